"""Hand-written kernels with products, built by hand, with arguments for the interpreter."""

from __future__ import annotations

import numpy as np

from blockarray.compiler.ir import Value
from tests.compiler.cuda.block_kernels import Blocks
from tests.compiler.cuda.gpu_kernels import Case


def matmul(
    m: int = 128, n: int = 128, k: int = 128, block: tuple[int, int, int] = (64, 64, 64), warps: int = 4,
    dtype: str = "f16", a_turned: bool = False, b_turned: bool = False, bounded: bool = True, stages: int = 3,
    pad: int = 0, aligned: bool = True, out_dtype: str = "f32", precision: str | None = None,
    stored: tuple[str, str] | None = None, loaded: bool = False,
) -> Case:  # fmt: skip
    """a @ b, a program a tile; `a_turned` and `b_turned` say that the operands lie along the other direction, `stored`
    as what; where they are is an address, another one from step to step, if they are `loaded`."""
    bm, bn, bk = block
    made = Blocks("matmul", (-(-m // bm), -(-n // bn)), warps)
    b = made.b
    b.attrs["num_stages"] = stages
    rows = {
        "a": (k if a_turned else m, (m if a_turned else k) + pad),
        "b": (n if b_turned else k, (k if b_turned else n) + pad),
    }
    kinds = stored or (dtype, dtype)
    x, y = (made.array(kind, int(np.prod(rows[name])), aligned=aligned) for kind, name in zip(kinds, "ab", strict=True))
    wide = {"i8": "i32", "u8": "i32", "f64": "f64"}.get(dtype, "f32")
    out = made.array(out_dtype if wide == "f32" else wide, m * n)
    lda, ldb, ldc = (made.scalar("i64", s) for s in (rows["a"][1], rows["b"][1], n))
    sizes = [made.scalar("i64", s) for s in (m, n, k)]
    made.begin()
    one, zero = b.const(1), b.const(0)
    pm, pn = made.program(0), made.program(1)
    i0, j0 = b.op("multiply", pm, b.const(bm)), b.op("multiply", pn, b.const(bn))
    left = [b.op("subtract", s, at) for s, at in zip(sizes, (i0, j0), strict=False)]
    with b.for_(zero, sizes[2], b.const(bk), [made.full(0, (bm, bn), wide)]) as loop:
        (acc,) = loop.carried
        rest = b.op("subtract", sizes[2], loop.index)

        def load(
            pointer: Value, stride: Value, turned: bool, at: tuple[Value, Value], extents: tuple[int, int], bounds
        ):
            strides = (one, stride) if turned else (stride, one)
            parts = [b.op("multiply", place, stride) for place, stride in zip(at, strides, strict=True)]
            if loaded:
                along = parts.pop(at.index(loop.index))
                address = b.op("add", b.ptr_to_int(pointer), b.op("multiply", along, b.const(2)))
                parts.append(zero)
                pointer = b.int_to_ptr(address, dtype)
            offset = b.op("add", *parts)
            order = (1, 0) if turned else (0, 1)
            # As memory lies, then turned.
            tile = b.load_view(
                pointer, offset, [strides[d] for d in order], [extents[d] for d in order],
                [bounds[d] for d in order] if bounded else None,
            )  # fmt: skip
            tile = b.cast(tile, dtype)
            return b.trans(tile, (1, 0)) if turned else tile

        p = load(x, lda, a_turned, (i0, loop.index), (bm, bk), (left[0], rest))
        q = load(y, ldb, b_turned, (loop.index, j0), (bk, bn), (rest, left[1]))
        b.yield_(b.dot(p, q, acc, precision=precision))
    offset = b.op("add", b.op("multiply", i0, ldc), j0)
    if loaded:
        out = b.int_to_ptr(b.ptr_to_int(out), out_dtype)
    b.store_view(b.cast(loop.results[0], out_dtype if wide == "f32" else wide), out, offset, (ldc, one), left)
    atol = 2e-2 if precision == "tf32" else 1e-3
    return made.case(*((1e-3, atol * k**0.5) if out_dtype == "f32" else (2e-2, 2e-2)))


def product(
    m: int, n: int, k: int, warps: int, dtype: str = "f16", a_turned: bool = False, b_turned: bool = False,
    precision: str | None = None, batch: int = 0, second: str = "", out: str = "",
) -> Case:  # fmt: skip
    """a @ b of one block, or of `batch` ones."""
    made = Blocks("product", (1,), warps)
    b, lead = made.b, (batch,) if batch else ()
    turn = (0, 2, 1) if batch else (1, 0)
    wide = out or {"i8": "i32", "u8": "i32", "f64": "f64"}.get(dtype, "f32")

    def strides(extents: tuple[int, ...]) -> list[Value]:
        return [b.const(int(np.prod(extents[d + 1 :]))) for d in range(len(extents))]

    kinds = (dtype, second or dtype)
    sizes = ((k, m) if a_turned else (m, k), (n, k) if b_turned else (k, n))
    pointers = [made.array(kind, int(np.prod((*lead, *size)))) for kind, size in zip(kinds, sizes, strict=True)]
    result = made.array(wide, max(1, batch) * m * n)
    made.begin()
    tiles = []
    for pointer, size, turned in zip(pointers, sizes, (a_turned, b_turned), strict=True):
        tile = b.load_view(pointer, b.const(0), strides((*lead, *size)), (*lead, *size))
        tiles.append(b.trans(tile, turn) if turned else tile)
    found = b.dot(*tiles, dtype=wide, precision=precision)
    b.store_view(found, result, b.const(0), strides((*lead, m, n)))
    exact = {"f64": 1e-13, "f32": 2e-6, "f16": 2e-2}.get(wide, 0.0)
    return made.case(0.0, 0.02 * k**0.5 if precision == "tf32" else exact * k)


def gathered(n: int = 64, k: int = 128, block: tuple[int, int, int] = (32, 32, 32), warps: int = 4) -> Case:
    """Rows of a, from a table, times rows of b in blocks, from another table."""
    bm, bn, bk = block
    made = Blocks("gathered", (1, n // bn), warps)
    b = made.b
    x, y = made.array("f16", 2 * bm * k), made.array("f16", k * n)
    rows = made.array("i32", bm, made.rng.permutation(2 * bm)[:bm].astype(np.int32))
    pages = made.array("i32", k // bk, made.rng.permutation(k // bk).astype(np.int32))
    out = made.array("f32", bm * n)
    wide, columns = made.scalar("i64", k), made.scalar("i64", n)
    made.begin()
    zero, one, step = b.const(0), b.const(1), b.const(bk)
    column = b.op("multiply", made.program(1), b.const(bn))
    row = b.broadcast(b.cast(b.load_ptr(rows, made.arange(bm)), "i64"), (0,), (bm, bk))
    at = b.op("add", made.times(row, wide), made.arange(bk, 1, (bm, bk)))
    mask = made.less(row, b.const(bm))
    with b.for_(zero, wide, step, [at, made.full(0, (bm, bn), "f32")]) as loop:
        place, acc = loop.carried
        page = b.cast(b.load_ptr(pages, b.op("floor_divide", loop.index, step)), "i64")
        start = b.op("add", b.op("multiply", b.op("multiply", page, step), columns), column)
        q = b.load_view(y, start, (columns, one), (bk, bn))
        b.yield_(made.plus(place, step), b.dot(b.load_ptr(x, place, mask), q, acc))
    b.store_view(loop.results[1], out, column, (columns, one))
    return made.case(1e-3, 1e-2)


def attention(
    n: int = 128, d: int = 64, block: tuple[int, int] = (64, 64), warps: int = 4, dtype: str = "f16",
    scale: float = 0.125, power: str = "exp", top: str = "", keys: int | None = None, masked: bool = False,
) -> Case:  # fmt: skip
    """softmax(q @ k.T) @ v in a walk over the keys; stores what the maxima are, too, or with the logarithms of sums."""
    keys = n if keys is None else keys
    bm, bn = block
    made = Blocks("attention", (n // bm, 2), warps)
    b = made.b
    q, k, v = (made.array(dtype, 2 * count * d) for count in (n, keys, keys))
    out = made.array(dtype, 2 * n * d)
    tops = made.array("f32", 2 * n) if top else None
    size = made.scalar("i64", keys)
    made.begin()
    one, zero, ld = b.const(1), b.const(0), b.const(d)
    head, first = (b.op("multiply", made.program(1), b.const(count * d)) for count in (n, keys))
    row = b.op("multiply", made.program(0), b.const(bm))
    at = b.op("add", head, b.op("multiply", row, ld))
    queries = b.load_view(q, at, (ld, one), (bm, d))
    inits = [made.full(-np.inf, (bm,), "f32"), made.full(0.0, (bm,), "f32"), made.full(0.0, (bm, d), "f32")]
    with b.for_(zero, size, b.const(bn), inits) as loop:
        past, total, acc = loop.carried
        here = b.op("add", first, b.op("multiply", loop.index, ld))
        turned = b.trans(b.load_view(k, here, (ld, one), (bn, d)), (1, 0))
        scores = b.op("multiply", b.dot(queries, turned, dtype="f32"), made.full(scale, (bm, bn), "f32"))
        if masked:
            places = [b.op("add", b.iota(e), b.broadcast(at_, (), (e,))) for e, at_ in ((bm, row), (bn, loop.index))]
            rows, columns = (b.broadcast(x, (dim,), (bm, bn)) for dim, x in enumerate(places))
            scores = b.op("where", b.op("greater_equal", rows, columns), scores, made.full(-1e6, (bm, bn), "f32"))
        new = b.op("maximum", past, b.reduce(scores, "max", (1,)))
        weights = b.op(power, b.op("subtract", scores, b.broadcast(new, (0,), (bm, bn))))
        fade = b.op(power, b.op("subtract", past, new))
        total = b.op("add", b.op("multiply", total, fade), b.reduce(weights, "sum", (1,)))
        acc = b.op("multiply", acc, b.broadcast(fade, (0,), (bm, d)))
        values = b.load_view(v, here, (ld, one), (bn, d))
        b.yield_(new, total, b.dot(b.cast(weights, dtype), values, acc))
    last, total, acc = loop.results
    if tops is not None:
        if top == "with sums":
            last = b.op("add", last, b.op("log2" if power == "exp2" else "log", total))
        b.store_view(last, tops, b.op("add", b.op("multiply", made.program(1), b.const(n)), row), (one,))
    found = b.op("divide", acc, b.broadcast(total, (0,), (bm, d)))
    b.store_view(b.cast(found, dtype), out, at, (ld, one))
    return made.case(1e-2, 1e-2)


CASES = {
    "matmul": matmul,
    "eight warps": lambda: matmul(256, 128, 192, (128, 64, 64), 8),
    "columns shared": lambda: matmul(64, 256, 128, (64, 128, 64), 8),
    "columns of one box shared": lambda: matmul(64, 128, 64, (64, 64, 64), 8),
    "many rows": lambda: matmul(256, 64, 64, (256, 64, 64), 4),
    "wide": lambda: matmul(64, 256, 128, (64, 256, 64), 4),
    "wide, cut": lambda: matmul(60, 248, 136, (64, 256, 64), 4, pad=8),
    "wide and short": lambda: matmul(64, 256, 64, (64, 256, 32), 4, stages=4),
    "odd": lambda: matmul(100, 90, 70, pad=2),
    "odd, unaligned": lambda: matmul(65, 67, 33, pad=1, aligned=False),
    "short depth": lambda: matmul(128, 64, 96, (64, 64, 32)),
    "narrow": lambda: matmul(64, 32, 64, (64, 32, 16)),
    "a turned": lambda: matmul(a_turned=True),
    "b turned": lambda: matmul(b_turned=True),
    "both turned": lambda: matmul(a_turned=True, b_turned=True, pad=8),
    "bf16": lambda: matmul(dtype="bf16"),
    "without bounds": lambda: matmul(bounded=False),
    "two stages": lambda: matmul(k=512, stages=2),
    "stored by the copy engine": lambda: matmul(256, 128, 64, (128, 64, 64), 8, out_dtype="f16"),
    "many rounds": lambda: matmul(256, 64, 1088, (128, 64, 64), 8, out_dtype="f16"),
    "stored by columns": lambda: matmul(64, 256, 64, (64, 256, 64), 8, out_dtype="bf16", dtype="bf16"),
    "stored by many rows": lambda: matmul(512, 64, 64, (256, 64, 64), 8, out_dtype="f16"),
    "stored, cut": lambda: matmul(200, 136, 64, (128, 64, 64), 8, out_dtype="f16", pad=8),
    "stored, odd": lambda: matmul(65, 67, 64, (64, 128, 64), 4, out_dtype="bf16", dtype="bf16"),
    "f8": lambda: matmul(dtype="f8e4m3", b_turned=True, block=(64, 64, 64)),
    "f8, short depth": lambda: matmul(dtype="f8e5m2", b_turned=True, block=(64, 32, 32), k=96),
    "f8, b across": lambda: matmul(dtype="f8e4m3", block=(128, 64, 128)),
    "f8, both across": lambda: matmul(dtype="f8e4m3", a_turned=True, block=(64, 64, 64), pad=16),
    "i8": lambda: matmul(dtype="i8", b_turned=True, block=(64, 128, 128)),
    "u8, across": lambda: matmul(dtype="u8", block=(64, 32, 64)),
    "gathered": lambda: gathered(block=(64, 64, 32)),
    "tf32": lambda: matmul(64, 64, 96, dtype="f32", b_turned=True, block=(64, 64, 32), precision="tf32"),
    "tf32, odd": lambda: matmul(65, 67, 33, pad=1, dtype="f32", b_turned=True, aligned=False, precision="tf32"),
    "tf32, b across": lambda: matmul(64, 64, 64, dtype="f32", block=(64, 64, 32), precision="tf32"),
    "loaded": lambda: matmul(k=576, loaded=True, stages=2, pad=8),
    "loaded, odd": lambda: matmul(100, 90, 136, loaded=True, pad=2, out_dtype="f16"),
    "loaded, stored": lambda: matmul(136, 72, 200, (128, 64, 64), 8, loaded=True, pad=8, out_dtype="f16"),
    "attention": attention,
    "attention, eight warps": lambda: attention(256, 64, (128, 64), 8),
    "attention, long heads": lambda: attention(128, 128, (64, 128), 4, "bf16"),
    "attention, maxima that grow": lambda: attention(256, 64, (128, 64), scale=4.0, power="exp2", top="with sums"),
    "attention, maxima that grow far": lambda: attention(
        256, 64, (128, 64), 4, "bf16", scale=16.0, power="exp2", top="with sums"
    ),
    "attention, maxima that are stored": lambda: attention(scale=4.0, top="as they are"),
    "attention, masked": lambda: attention(256, 64, (128, 64), keys=192, masked=True),
    "attention, one round": lambda: attention(128, 64, (128, 64), keys=64, top="with sums"),
}

#: Of one block, for tensor cores a warp at a time.
PRODUCTS = {
    "smallest": lambda: product(16, 16, 16, 1),
    "more warps than there is work": lambda: product(16, 16, 16, 4),
    "few rows and columns": lambda: product(4, 2, 16, 2, b_turned=True),
    "rows and columns": lambda: product(64, 64, 32, 4, "bf16"),
    "a turned": lambda: product(64, 32, 32, 2, a_turned=True),
    "both turned": lambda: product(32, 64, 32, 8, a_turned=True, b_turned=True),
    "batched": lambda: product(16, 16, 32, 4, batch=8, b_turned=True),
    "batched, more than warps": lambda: product(32, 16, 16, 2, batch=4, a_turned=True),
    "rounded": lambda: product(32, 32, 32, 4, out="f16"),
    "tf32": lambda: product(32, 64, 32, 4, "f32", precision="tf32"),
    "tf32, along the depth": lambda: product(32, 64, 32, 4, "f32", precision="tf32", b_turned=True),
    "tf32, a turned": lambda: product(32, 16, 16, 1, "f32", precision="tf32", a_turned=True),
    "tf32x3": lambda: product(16, 32, 32, 2, "f32", precision="tf32x3"),
    "ieee": lambda: product(16, 32, 32, 2, "f32", precision="ieee"),
    "f64": lambda: product(32, 64, 16, 4, "f64"),
    "f64, both turned": lambda: product(16, 16, 16, 2, "f64", a_turned=True, b_turned=True),
    "f64, few rows": lambda: product(4, 16, 16, 1, "f64"),
    "i8": lambda: product(32, 32, 64, 4, "i8", b_turned=True),
    "i8 and u8, across": lambda: product(32, 32, 32, 2, "i8", a_turned=True, second="u8"),
    "f8": lambda: product(32, 16, 64, 2, "f8e4m3", b_turned=True),
    "f8, mixed": lambda: product(16, 32, 32, 1, "f8e5m2", second="f8e4m3"),
}
#: Loops, for GPUs that copy ahead by cp.async.
LOOPS = {
    "matmul": matmul,
    "two stages": lambda: matmul(k=256, stages=2, block=(64, 32, 32)),
    "without stages": lambda: matmul(stages=1, block=(32, 64, 32)),
    "turned": lambda: matmul(64, 64, 256, (64, 32, 32), 8, a_turned=True, b_turned=True, stages=4),
    "smallest": lambda: matmul(32, 32, 96, (16, 16, 16)),
    "smallest, one warp": lambda: matmul(32, 32, 96, (16, 16, 16), 1),
    "odd": lambda: matmul(100, 90, 70, (32, 32, 32), pad=26),
    "odd, unaligned": lambda: matmul(65, 67, 33, (32, 32, 32), pad=1, aligned=False),
    "one round": lambda: matmul(32, 32, 32, (32, 32, 32)),
    "i8": lambda: matmul(dtype="i8", b_turned=True),
    "u8, across": lambda: matmul(dtype="u8", block=(32, 32, 64)),
    "f32": lambda: matmul(64, 64, 64, (32, 32, 32), dtype="f32"),
    "tf32": lambda: matmul(64, 64, 64, (32, 32, 32), dtype="f32", a_turned=True, precision="tf32"),
    "f64": lambda: matmul(64, 64, 64, (32, 32, 16), dtype="f64"),
    "gathered": gathered,
    "gathered, one warp": lambda: gathered(block=(16, 64, 64), warps=1),
    "weights of 8 bits": lambda: matmul(64, 64, 128, (32, 64, 32), 4, stored=("f16", "i8")),
    "rows of 8 bits": lambda: matmul(64, 64, 128, (64, 32, 32), 2, "bf16", stored=("f8e4m3", "bf16"), b_turned=True),
    "attention": attention,
    "attention, few rows": lambda: attention(block=(16, 32)),
    "attention, few warps": lambda: attention(64, block=(32, 32), warps=2, dtype="bf16"),
}
