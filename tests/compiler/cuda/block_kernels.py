"""Kernels as a person writes them, in blocks of integer extents, built by hand, with arguments for the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from blockarray.compiler.builder import Builder
from blockarray.compiler.cuda.blocks.axes import extents_of
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import I64, Type, Value
from tests.compiler.cuda.gpu_kernels import Case, tolerance, values


class Blocks:
    """A kernel under construction together with its arguments, on a grid of up to three axes."""

    def __init__(self, name: str, grid: Sequence[int] = (1,), num_warps: int = 4, seed: int = 0) -> None:
        self.b = Builder(name)
        self.args: list[Any] = []
        self.aligned: list[str] = []
        self.grid = (*grid, *(1,) * (3 - len(grid)))
        self.rng = np.random.default_rng(seed)
        self.b.attrs.update(schedule="blocks", num_warps=num_warps)

    def array(self, dtype: str, size: int, data: np.ndarray | None = None, aligned: bool = True) -> Value:
        return self._param(Type(dtype, pointer=True), values(self.rng, dtype, size) if data is None else data, aligned)

    def scalar(self, dtype: str, value: Any) -> Value:
        return self._param(Type(dtype), value, isinstance(value, int) and value % 16 == 0)

    def _param(self, type: Type, value: Any, aligned: bool) -> Value:
        name = f"p{len(self.args)}"
        self.args.append(value)
        if aligned:
            self.aligned.append(name)
        return self.b.param(name, type)

    def begin(self) -> None:
        """After the parameters."""
        counts = [self.b.param(f"grid_{k}", I64) for k in range(3)]
        self.args += self.grid
        for n in reversed(counts):
            self.b.grid_axis(n)

    def program(self, axis: int = 0) -> Value:
        return self.b.program_id(2 - axis)

    def case(self, rtol: float = 0.0, atol: float = 0.0) -> Case:
        self.b.attrs["aligned"] = tuple(self.aligned)
        return Case(self.b.finish(), self.args, rtol, atol)

    # -- as the language has it ---------------------------------------------------------------------------------------
    def full(self, value: Any, extents: Sequence[int], dtype: str) -> Value:
        return self.b.broadcast(self.b.const(value, dtype), (), extents)

    def arange(self, n: int, along: int = 0, extents: Sequence[int] | None = None) -> Value:
        """0, 1, ... along one dim of a tile."""
        found = self.b.iota(n)
        return found if extents is None else self.b.broadcast(found, (along,), extents)

    def spread(self, x: Value, like: Value, dims: Sequence[int] = ()) -> Value:
        return self.b.broadcast(x, dims, like.type.extents)

    def plus(self, x: Value, scalar: Value) -> Value:
        return self.b.op("add", x, self.spread(scalar, x))

    def times(self, x: Value, scalar: Value) -> Value:
        return self.b.op("multiply", x, self.spread(scalar, x))

    def less(self, x: Value, scalar: Value) -> Value:
        return self.b.op("less", x, self.spread(scalar, x))


def vector_add(n: int = 10000, block: int = 1024, dtype: str = "f32", warps: int = 4, aligned: bool = True) -> Case:
    m = Blocks("vector_add", (-(-n // block),), warps)
    x, y, out = (m.array(dtype, n, aligned=aligned) for _ in range(3))
    size = m.scalar("i64", n)
    m.begin()
    b = m.b
    at = m.plus(m.arange(block), b.op("multiply", m.program(), b.const(block)))
    mask = m.less(at, size)
    total = b.op("add", b.load_ptr(x, at, mask), b.load_ptr(y, at, mask))
    b.store_ptr(total, out, at, mask)
    return m.case()


def softmax(rows: int = 5, columns: int = 1000, dtype: str = "f32", warps: int = 4) -> Case:
    block = 1 << (columns - 1).bit_length()
    m = Blocks("softmax", (rows,), warps)
    x, out = (m.array(dtype, rows * columns) for _ in range(2))
    width = m.scalar("i64", columns)
    m.begin()
    b = m.b
    column = m.arange(block)
    at = m.plus(column, b.op("multiply", m.program(), width))
    mask = m.less(column, width)
    row = b.cast(b.load_ptr(x, at, mask, other=-np.inf), "f32")
    row = b.op("exp", b.op("subtract", row, m.spread(b.reduce(row, "max", (0,)), row)))
    row = b.op("divide", row, m.spread(b.reduce(row, "sum", (0,)), row))
    b.store_ptr(b.cast(row, dtype), out, at, mask)
    return m.case(10 * tolerance(dtype), 1e-6)


def softmax_rows(rows: int = 50, columns: int = 100, tall: int = 16, dtype: str = "f32", warps: int = 4) -> Case:
    """Several rows a program."""
    block = 1 << (columns - 1).bit_length()
    m = Blocks("softmax_rows", (-(-rows // tall),), warps)
    x, out = (m.array(dtype, rows * columns) for _ in range(2))
    height, width = m.scalar("i64", rows), m.scalar("i64", columns)
    m.begin()
    b, extents = m.b, (tall, block)
    column = m.arange(block, 1, extents)
    row = b.broadcast(m.plus(m.arange(tall), b.op("multiply", m.program(), b.const(tall))), (0,), extents)
    at = b.op("add", m.times(row, width), column)
    mask = b.op("logical_and", m.less(row, height), m.less(column, width))
    v = b.cast(b.load_ptr(x, at, mask, other=-np.inf), "f32")
    v = b.op("exp", b.op("subtract", v, m.spread(b.reduce(v, "max", (1,)), v, (0,))))
    v = b.op("divide", v, m.spread(b.reduce(v, "sum", (1,)), v, (0,)))
    b.store_ptr(b.cast(v, dtype), out, at, mask)
    return m.case(10 * tolerance(dtype), 1e-6)


def layer_norm(rows: int = 3, columns: int = 1500, block: int = 512, dtype: str = "f32", warps: int = 4) -> Case:
    """In loops over blocks of columns, as a row may be long."""
    m = Blocks("layer_norm", (rows,), warps)
    x, w, bias, out = (m.array(dtype, n) for n in (rows * columns, columns, columns, rows * columns))
    width, eps = m.scalar("i64", columns), m.scalar("f32", 1e-5)
    m.begin()
    b = m.b
    start = b.op("multiply", m.program(), width)
    zero, step = b.const(0), b.const(block)

    def row(at: Value, mask: Value) -> Value:
        return b.cast(b.load_ptr(x, m.plus(at, start), mask, other=0.0), "f32")

    with b.for_(zero, width, step, [m.full(0.0, (block,), "f32")]) as loop:
        at = m.plus(m.arange(block), loop.index)
        b.yield_(b.op("add", loop.carried[0], row(at, m.less(at, width))))
    count = b.cast(width, "f32")
    mean = b.op("divide", b.reduce(loop.results[0], "sum", (0,)), count)
    with b.for_(zero, width, step, [m.full(0.0, (block,), "f32")]) as loop:
        at = m.plus(m.arange(block), loop.index)
        mask = m.less(at, width)
        v = b.op("subtract", row(at, mask), b.broadcast(mean, (), (block,)))
        v = b.op("where", mask, v, m.full(0.0, (block,), "f32"))
        b.yield_(b.op("add", loop.carried[0], b.op("multiply", v, v)))
    variance = b.op("divide", b.reduce(loop.results[0], "sum", (0,)), count)
    scale = b.op("divide", b.const(1.0, "f32"), b.op("sqrt", b.op("add", variance, eps)))
    with b.for_(zero, width, step) as loop:
        at = m.plus(m.arange(block), loop.index)
        mask = m.less(at, width)
        weight, shift = (b.cast(b.load_ptr(p, at, mask), "f32") for p in (w, bias))
        v = m.times(b.op("subtract", row(at, mask), b.broadcast(mean, (), (block,))), scale)
        v = b.op("add", b.op("multiply", v, weight), shift)
        b.store_ptr(b.cast(v, dtype), out, m.plus(at, start), mask)
    return m.case(10 * tolerance(dtype), 1e-5)


def row_norm(columns: int = 8100, early: bool = True, dtype: str = "f32", warps: int = 1) -> Case:
    """A row at once; weights are loaded before or behind the reductions."""
    block = 1 << (columns - 1).bit_length()
    m = Blocks("row_norm", (2,), warps)
    x, w, out = (m.array(dtype, n) for n in (2 * columns, columns, 2 * columns))
    width = m.scalar("i64", columns)
    m.begin()
    b, at = m.b, m.arange(block)
    mask, place = m.less(at, width), m.plus(at, b.op("multiply", m.program(), width))
    first = b.load_ptr(w, at, mask) if early else None
    row = b.cast(b.load_ptr(x, place, mask, other=0.0), "f32")
    mean = b.op("divide", b.reduce(row, "sum", (0,)), b.cast(width, "f32"))
    away = b.op("where", mask, b.op("subtract", row, m.spread(mean, row)), m.full(0.0, (block,), "f32"))
    scale = b.op("divide", b.reduce(b.op("multiply", away, away), "sum", (0,)), b.cast(width, "f32"))
    weight = b.cast(b.load_ptr(w, at, mask) if first is None else first, "f32")
    found = b.op("multiply", m.times(away, b.op("rsqrt", scale)), weight)
    b.store_ptr(b.cast(found, dtype), out, place, mask)
    return m.case(10 * tolerance(dtype), 1e-5)


def transpose(rows: int = 70, columns: int = 50, tall: int = 32, wide: int = 32, dtype: str = "f32") -> Case:
    m = Blocks("transpose", (-(-rows // tall), -(-columns // wide)))
    x, out = m.array(dtype, rows * columns), m.array(dtype, rows * columns)
    height, width = m.scalar("i64", rows), m.scalar("i64", columns)
    m.begin()
    b, extents = m.b, (tall, wide)
    row = b.broadcast(m.plus(m.arange(tall), b.op("multiply", m.program(0), b.const(tall))), (0,), extents)
    column = b.broadcast(m.plus(m.arange(wide), b.op("multiply", m.program(1), b.const(wide))), (1,), extents)
    mask = b.op("logical_and", m.less(row, height), m.less(column, width))
    v = b.load_ptr(x, b.op("add", m.times(row, width), column), mask)
    b.store_ptr(v, out, b.op("add", m.times(column, height), row), mask)
    return m.case()


def softmax_in_turns(rows: int = 7, columns: int = 304, programs: int = 3, stages: int = 4, warps: int = 8) -> Case:
    """Programs that go through rows."""
    block = 1 << (columns - 1).bit_length()
    m = Blocks("softmax_in_turns", (programs,), warps)
    x, out = (m.array("f32", rows * columns) for _ in range(2))
    height, width = m.scalar("i32", rows), m.scalar("i64", columns)
    m.begin()
    b = m.b
    first, step = b.cast(m.program(), "i32"), b.cast(b._params[-3], "i32")
    with b.for_(first, height, step, num_stages=stages) as loop:
        column = m.arange(block)
        at = m.plus(column, b.op("multiply", b.cast(loop.index, "i64"), width))
        mask = m.less(column, width)
        row = b.load_ptr(x, at, mask, other=-np.inf)
        row = b.op("exp", b.op("subtract", row, m.spread(b.reduce(row, "max", (0,)), row)))
        row = b.op("divide", row, m.spread(b.reduce(row, "sum", (0,)), row))
        b.store_ptr(row, out, at, mask)
    return m.case(10 * tolerance("f32"), 1e-6)


def rounds(
    count: int = 5, stages: int = 4, columns: int = 240, block: int = 256, dtype: str = "f32", other: float = 2.5,
    step: int = 1, warps: int = 1, table: bool = False, twice: bool = True,
) -> Case:  # fmt: skip
    """Sums of rows, from `count` rounds' places or from those in a table; `twice` also of another array's."""
    m = Blocks("rounds", (1,), warps)
    x, y = (m.array(dtype, 8 * columns) for _ in range(2))
    places = m.array("i32", 8, m.rng.permutation(8).astype(np.int32))
    out, rows, width = m.array("f32", block), m.scalar("i32", count), m.scalar("i64", columns)
    m.begin()
    b, column = m.b, m.arange(block)
    mask = m.less(column, width)
    first, stride = b.const(1, "i32"), b.const(step, "i32")
    with b.for_(first, rows, stride, [m.full(0.0, (block,), "f32"), b.const(0)], num_stages=stages) as loop:
        acc, start = loop.carried
        row = b.load_ptr(places, b.cast(loop.index, "i64")) if table else loop.index
        v = b.load_ptr(x, m.plus(column, b.op("multiply", b.cast(row, "i64"), width)), mask, other=other)
        acc = b.op("add", acc, b.cast(v, "f32"))
        if twice:
            acc = b.op("multiply", acc, b.cast(b.load_ptr(y, m.plus(column, start), mask), "f32"))
        b.yield_(acc, b.op("add", start, width))
    b.store_ptr(loop.results[0], out, column)
    return m.case(10 * tolerance("f32"), 1e-5)


def of_rows(op: str, rows: int, columns: int, dtype: str = "f32", warps: int = 4) -> Case:
    """A scan or a sort of whole rows, one a program."""
    m = Blocks(op, (rows,), warps)
    x, out = (m.array(dtype, rows * columns) for _ in range(2))
    m.begin()
    b = m.b
    at = m.plus(m.arange(columns), b.op("multiply", m.program(), b.const(columns)))
    row = b.load_ptr(x, at)
    found = {
        "scan": lambda: b.scan(row, "cumsum", 0),
        "sort": lambda: b.sort(row, 0),
        "flip": lambda: b.flip(row, 0),
    }[op]()
    b.store_ptr(found, out, at)
    return m.case(tolerance(dtype), 1e-3)


def count_by_atomics(n: int, bins: int, block: int = 1024, warps: int = 4) -> Case:
    """A histogram: an atomic addition for each element."""
    m = Blocks("count", (-(-n // block),), warps)
    x = m.array("i32", n, np.random.default_rng(0).integers(0, bins, n).astype(np.int32))
    out, size = m.array("i32", bins, np.zeros(bins, np.int32)), m.scalar("i64", n)
    m.begin()
    b = m.b
    at = m.plus(m.arange(block), b.op("multiply", m.program(), b.const(block)))
    mask = m.less(at, size)
    b.atomic("add", out, b.cast(b.load_ptr(x, at, mask), "i64"), m.full(1, (block,), "i32"), mask)
    return m.case()


# -- one op after the other -------------------------------------------------------------------------------------------
def linear(m: Blocks, extents: Sequence[int], order: Sequence[int] | None = None) -> Value:
    """The number of each element of a tile in memory, along the dims in `order`, the last one fastest."""
    b, total, step = m.b, m.full(0, extents, "i64"), 1
    for d in reversed(order or range(len(extents))):
        total = b.op("add", total, b.op("multiply", m.arange(extents[d], d, extents), m.full(step, extents, "i64")))
        step *= extents[d]
    return total


def apply(
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    build: Callable[..., Value | Sequence[Value]],
    warps: int = 4,
    orders: Sequence[Sequence[int] | None] = (),
    data: Sequence[np.ndarray | None] = (),
    rtol: float = 0.0,
) -> Case:
    """Load tiles, build, store what comes out."""
    m = Blocks("kernel", num_warps=warps)
    sizes = [int(np.prod(s)) for s in shapes]
    arrays = [*data, *[None] * (len(shapes) - len(data))]
    pointers = [m.array(d, n, x) for d, n, x in zip(dtypes, sizes, arrays, strict=True)]
    probe = Blocks("probe")
    tiles = [probe.array(d, n) for d, n in zip(dtypes, sizes, strict=True)]
    probe.begin()
    loaded = [probe.b.load_ptr(p, linear(probe, s)) for p, s in zip(tiles, shapes, strict=True)]
    found = build(probe, *loaded)
    results = [found] if isinstance(found, Value) else list(found)
    outs = [m.array(v.type.dtype, int(np.prod(extents_of(v)))) for v in results]
    m.begin()
    orders = [*orders, *[None] * (len(shapes) - len(orders))]
    loaded = [m.b.load_ptr(p, linear(m, s, o)) for p, s, o in zip(pointers, shapes, orders, strict=True)]
    found = build(m, *loaded)
    results = [found] if isinstance(found, Value) else list(found)
    for out, v in zip(outs, results, strict=True):
        m.b.store_ptr(v, out, linear(m, extents_of(v)) if v.type.extents else m.b.const(0))
    return m.case(rtol, rtol)


def movements(
    shape: Sequence[int], perm: Sequence[int], dim: int, split: int, warps: int, orders: Sequence[Sequence[int] | None]
) -> Case:
    """Transposes, reshapes, joins, splits, concatenations, broadcasts and flips in a row."""
    total = int(np.prod(shape))

    def build(m: Blocks, x: Value, y: Value) -> list[Value]:
        b = m.b
        both = b.join(x, y)
        first, second = b.split(b.op("add", both, both))
        longer = b.cat(b.flip(x, dim), y, dim)
        flat = b.reshape(b.trans(second, perm), (split, total // split))
        wide = b.broadcast(b.reduce(flat, "max", (1,)), (0,), flat.type.extents)
        return [first, longer, b.op("add", flat, wide), b.trans(longer, perm)]

    return apply([shape] * 2, ["i32", "i32"], build, warps, orders)


def reductions(
    shape: Sequence[int], dims: tuple[int, ...], dtype: str, warps: int, order: Sequence[int] | None = None
) -> Case:
    def build(m: Blocks, x: Value) -> list[Value]:
        b = m.b
        index = m.arange(shape[dims[0]], dims[0], shape)
        found = [b.reduce(x, kind, dims) for kind in ("sum", "max")]
        return [*found, b.argreduce(x, index, "argmin", dims[:1])]

    return apply([shape], [dtype], build, warps, [order], rtol=4 * tolerance(dtype))


def scans(
    shape: Sequence[int], dim: int, reverse: bool, dtype: str, warps: int, order: Sequence[int] | None = None
) -> Case:
    def build(m: Blocks, x: Value, y: Value) -> list[Value]:
        b = m.b
        with b.scan_by([x, y], dim, reverse) as combine:
            # x -> a x + c, one after the other: the order counts.
            (a, c), (p, q) = combine.left, combine.right
            b.yield_(b.op("multiply", a, p), b.op("add", b.op("multiply", p, c), q))
        with b.reduce_by([x, y], dim) as lesser:
            (a, c), (p, q) = lesser.left, lesser.right
            wins = b.op("less", a, p)
            b.yield_(b.op("where", wins, a, p), b.op("maximum", c, q))
        return [b.scan(x, "cumsum", dim, reverse=reverse), *combine.results, *lesser.results]

    given = np.random.default_rng(0).integers(-1, 2, (2, int(np.prod(shape))))
    return apply([shape] * 2, [dtype] * 2, build, warps, [order] * 2, [v.astype(NUMPY[dtype]) for v in given])


def sorts(
    shape: Sequence[int], dim: int, descending: bool, dtype: str, warps: int, order: Sequence[int] | None = None
) -> Case:
    return apply([shape], [dtype], lambda m, x: m.b.sort(x, dim, descending), warps, [order])


def gathers(
    shape: Sequence[int],
    dim: int,
    extent: int,
    bins: int,
    kind: str,
    warps: int,
    orders: Sequence[Sequence[int] | None] = (),
) -> Case:
    other = list(shape)
    other[dim] = extent
    index = np.random.default_rng(0).integers(0, shape[dim], int(np.prod(other))).astype(NUMPY[kind])

    def build(m: Blocks, x: Value, i: Value) -> list[Value]:
        b = m.b
        mask = b.op("less", i, m.full(20, extents_of(i), kind))
        return [b.gather(x, i, dim), b.histogram(i, bins), b.histogram(i, bins, mask)]

    return apply([shape, other], ["f32", kind], build, warps, orders, [None, index])


def products(m: int, k: int, n: int, dtype: str, batched: bool, warps: int) -> Case:
    first = (2,) if batched else ()
    out = {"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype, dtype)

    def build(kernel: Blocks, a: Value, b: Value, c: Value) -> list[Value]:
        return [kernel.b.dot(a, b, c), kernel.b.dot(a, b, dtype=out)]

    shapes = [(*first, m, k), (*first, k, n), (*first, m, n)]
    return apply(shapes, [dtype, dtype, out], build, warps, rtol=1e-5)


def atomics(kind: str, dtype: str, shape: tuple[int, ...], warps: int) -> Case:
    m = Blocks("atomics", (3,), warps)
    size = int(np.prod(shape))
    x, out, old = m.array(dtype, size), m.array(dtype, 3 * size), m.array(dtype, 3 * size)
    m.begin()
    b = m.b
    # Programs have places of their own, so that what they find does not depend on their order.
    here = b.op("multiply", m.program(), b.const(size))
    if not shape:
        value = b.load_ptr(x, b.const(0))
        expected = value if kind == "cas" else None
        b.store_ptr(b.atomic(kind, out, here, value, compare=expected), old, here)
        b.atomic(kind, out, here, value, compare=expected, order="relaxed", scope="cta")
    else:
        at = linear(m, shape)
        value = b.load_ptr(x, at)
        mask = m.less(at, b.const(size - size // 4))
        expected = value if kind == "cas" else None
        there = m.plus(at, here)
        b.store_ptr(b.atomic(kind, out, there, value, mask, expected), old, there, mask)
        b.atomic(kind, out, there, value, mask, expected, order="release")
    return m.case(tolerance(dtype))


def counts_by_atomics() -> Case:
    """All programs add to the same places."""
    m = Blocks("counts", (5,), 4)
    x = m.array("i32", 1000, np.random.default_rng(0).integers(0, 16, 1000).astype(np.int32))
    out, size = m.array("i32", 16), m.scalar("i64", 1000)
    m.begin()
    b = m.b
    at = m.plus(m.arange(256), b.op("multiply", m.program(), b.const(256)))
    mask = m.less(at, size)
    where = b.cast(b.load_ptr(x, at, mask), "i64")
    b.atomic("add", out, where, m.full(1, (256,), "i32"), mask, order="relaxed")
    return m.case()


def control_flow() -> Case:
    """Tiles and scalars through branches and loops in each other."""
    m = Blocks("flow", (3,), 4)
    x, out = m.array("f32", 256), m.array("f32", 3 * 256)
    n = m.scalar("i64", 5)
    m.begin()
    b = m.b
    tile = b.load_ptr(x, m.arange(256))
    with b.if_(b.op("equal", m.program(), b.const(1))) as branch:
        b.yield_(b.op("add", tile, tile), b.const(3))
    with branch.else_():
        b.yield_(b.op("negative", tile), m.program())
    tile, count = branch.results
    with b.while_([tile, count]) as loop:
        carried, left = loop.carried
        b.yield_(b.op("less", left, n), carried, left)
    with loop.body():
        carried, left = loop.values
        with b.for_(b.const(0), left, b.const(1), [carried, carried]) as inner:
            first, second = inner.carried
            total = b.reduce(first, "max", (0,))
            # Each takes the other's place.
            b.yield_(second, b.op("multiply", b.op("add", first, m.spread(total, first)), m.full(0.5, (256,), "f32")))
        b.yield_(b.op("add", *inner.results), b.op("add", left, b.const(1)))
    where = m.plus(m.arange(256), b.op("multiply", m.program(), b.const(256)))
    b.store_ptr(loop.results[0], out, where)
    return m.case(1e-5)


def moves_before_loops() -> Case:
    """Tiles that loops and branches need in other layouts than they have outside."""
    m = Blocks("moves", (2,), 4)
    extents = (32, 64)
    x, y, out = m.array("f32", 2048), m.array("f32", 64), m.array("f32", 4 * 2048)
    n = m.scalar("i64", 2)
    m.begin()
    b = m.b
    tile, row = b.load_ptr(x, linear(m, extents)), b.load_ptr(y, m.arange(64))
    column = b.reduce(tile, "sum", (1,))
    with b.for_(b.const(0), n, b.const(1)) as loop:
        turned = b.op("multiply", b.trans(tile, (1, 0)), b.broadcast(row, (0,), (64, 32)))
        with b.if_(b.op("equal", loop.index, m.program())) as branch:
            b.yield_(b.op("add", turned, b.broadcast(column, (1,), (64, 32))))
        with branch.else_():
            b.yield_(b.op("subtract", turned, m.full(1.0, (64, 32), "f32")))
        total = b.op("add", branch.results[0], b.broadcast(b.reduce(turned, "max", (0,)), (1,), (64, 32)))
        place = b.op("add", b.op("multiply", m.program(), b.const(4096)), b.op("multiply", loop.index, b.const(2048)))
        b.store_ptr(total, out, m.plus(linear(m, (64, 32)), place))
    return m.case(1e-5, 1e-5)


def sums_under_a_lock(dtype: str = "f32") -> Case:
    """Programs that add to the same tile, one after the other."""
    m = Blocks("lock", (5,), 4)
    x, total = m.array(dtype, 5 * 256), m.array(dtype, 256, np.zeros(256, NUMPY[dtype]))
    lock, count = m.array("i32", 1, np.zeros(1, np.int32)), m.array("i32", 1, np.zeros(1, np.int32))
    m.begin()
    b, at = m.b, m.arange(256)
    place, zero, one = b.const(0), b.const(0, "i32"), b.const(1, "i32")
    tile = b.cast(b.load_ptr(x, m.plus(at, b.op("multiply", m.program(), b.const(256)))), "f32")
    with b.while_([]) as loop:
        b.yield_(b.op("equal", b.atomic("cas", lock, place, one, compare=zero), one))
    with loop.body():
        pass
    with b.if_(b.op("equal", b.load_ptr(count, place, volatile=True), zero)) as branch:
        b.atomic("xchg", count, place, one)
        b.yield_(tile)
    with branch.else_():
        b.yield_(b.op("add", tile, b.cast(b.load_ptr(total, at, cache="cv"), "f32")))
    b.store_ptr(b.cast(branch.results[0], dtype), total, at)
    b.barrier()
    b.atomic("xchg", lock, place, zero)
    # Programs come in any order, and each rounds.
    return m.case(tolerance(dtype), 1e-5 if dtype == "f32" else 1e-2)


def checks_and_pointers() -> Case:
    m = Blocks("checks", (2,), 4)
    x, out = m.array("i32", 64), m.array("i64", 2)
    m.args.append(np.zeros(1, np.int64))
    m.b.param("errors", Type("i64", pointer=True))
    m.begin()
    b = m.b
    tile = b.load_ptr(x, m.arange(64))
    b.check(b.op("less", tile, m.full(5, (64,), "i32")), "too large")
    b.barrier()
    address = b.ptr_to_int(out)
    again = b.int_to_ptr(address, "i64")
    b.store_ptr(b.program_id(2), again, b.program_id(2))
    return m.case()


_ATOMICS = (
    ("add", "i32"), ("add", "f32"), ("add", "f16"), ("add", "bf16"), ("add", "f64"), ("max", "f32"), ("min", "f64"),
    ("max", "u32"), ("and", "i64"), ("xor", "i32"), ("xchg", "i32"), ("cas", "i64"),
)  # fmt: skip
OPS = {
    "counts by atomics": counts_by_atomics,
    "control flow": control_flow,
    "sums under a lock": sums_under_a_lock,
    "sums of f16 under a lock": lambda: sums_under_a_lock("f16"),
    "moves before loops": moves_before_loops,
    "checks and pointers": checks_and_pointers,
    "movements": lambda: movements((8, 4, 32), (2, 0, 1), 1, 16, 4, [(1, 0, 2), (0, 2, 1)]),
    "movements flat": lambda: movements((2048,), (0,), 0, 2, 8, [None, None]),
    "reductions": lambda: reductions((16, 64), (0,), "f32", 4),
    "reductions of all": lambda: reductions((8, 16, 16), (0, 1, 2), "f64", 8),
    "scans": lambda: scans((1024,), 0, False, "f32", 4),
    "scans back": lambda: scans((16, 32), 0, True, "i64", 4),
    "sorts": lambda: sorts((1024,), 0, False, "f32", 4),
    "sorts down": lambda: sorts((8, 64), 1, True, "f16", 2),
    "gathers": lambda: gathers((16, 32), 1, 64, 128, "i32", 4),
    "products": lambda: products(32, 64, 32, "f16", False, 4),
    "products f64": lambda: products(16, 16, 32, "f64", True, 2),
    **{
        f"atomic {kind} {dtype} {shape} {warps}": partial(atomics, kind, dtype, shape, warps)
        for kind, dtype in _ATOMICS
        for shape, warps in (((), 4), ((8,), 1), ((512,), 4), ((16, 8), 4))
    },
}


CASES = {
    "add": vector_add,
    "add f16": lambda: vector_add(dtype="f16", n=5001),
    "add bf16 whole": lambda: vector_add(dtype="bf16", n=8192),
    "add i8": lambda: vector_add(dtype="i8", n=8200),
    "add f64 8 warps": lambda: vector_add(dtype="f64", n=8192, warps=8),
    "add small": lambda: vector_add(n=77, block=32),
    "add misaligned": lambda: vector_add(aligned=False),
    "softmax": softmax,
    "softmax 128": lambda: softmax(columns=128),
    "softmax bf16 8 warps": lambda: softmax(columns=2048, dtype="bf16", warps=8),
    "softmax 32 warps": lambda: softmax(columns=4096, warps=32),
    "softmax 1 warp": lambda: softmax(columns=500, warps=1),
    "softmax rows": softmax_rows,
    "softmax rows narrow": lambda: softmax_rows(columns=16),
    "softmax rows f16": lambda: softmax_rows(columns=256, tall=4, dtype="f16"),
    "softmax in turns": softmax_in_turns,
    "softmax in turns 1024": lambda: softmax_in_turns(columns=1024, programs=2),
    "softmax in turns, several rows": lambda: softmax_in_turns(3, 112, 1, 2, 1),
    "rounds": rounds,
    "rounds, none": lambda: rounds(1),
    "rounds, fewer than stages": lambda: rounds(2, 5, twice=False),
    "rounds f16": lambda: rounds(8, 3, dtype="f16"),
    "rounds f64": lambda: rounds(6, 3, 48, 64, "f64", -np.inf),
    "rounds, large steps": lambda: rounds(7, 4, step=1 << 30),
    "rounds, from a table": lambda: rounds(7, 3, table=True, warps=2),
    "layer norm": layer_norm,
    "layer norm of one block": lambda: layer_norm(columns=500, dtype="f16"),
    "layer norm bf16": lambda: layer_norm(columns=1536, dtype="bf16"),
    "scan of rows": lambda: of_rows("scan", 3, 2048),
    "sort of rows": lambda: of_rows("sort", 3, 512, warps=8),
    "flip of rows": lambda: of_rows("flip", 3, 1024),
    "count by atomics": lambda: count_by_atomics(3000, 32),
    "transpose": transpose,
    "transpose f16": lambda: transpose(64, 128, 32, 64, "f16"),
    "transpose f64": lambda: transpose(64, 64, 16, 64, "f64"),
    "transpose of many odd rows": lambda: transpose(131, 67, 64, 128, "f16"),
}  # fmt: skip
