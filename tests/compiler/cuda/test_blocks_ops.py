"""Every op of hand-written kernels, on random tiles, layouts and numbers of warps, against the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockarray.compiler.cuda.blocks.axes import extents_of
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import Type, Value
from tests.compiler.cuda.block_kernels import Blocks
from tests.compiler.cuda.gpu_kernels import tolerance
from tests.compiler.cuda.test_blocks import compare

WARPS = st.sampled_from((1, 2, 4, 8))
#: Of a tile: bits of each extent.
SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(lambda bits: tuple(1 << b for b in bits))


def linear(m: Blocks, extents: Sequence[int], order: Sequence[int] | None = None) -> Value:
    """The number of each element of a tile in memory, along the dims in `order`, the last one fastest."""
    b, total, step = m.b, m.full(0, extents, "i64"), 1
    for d in reversed(order or range(len(extents))):
        total = b.op("add", total, b.op("multiply", m.arange(extents[d], d, extents), m.full(step, extents, "i64")))
        step *= extents[d]
    return total


def run(
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    build: Callable[..., Value | Sequence[Value]],
    warps: int = 4,
    orders: Sequence[Sequence[int] | None] = (),
    data: Sequence[np.ndarray | None] = (),
    rtol: float = 0.0,
) -> None:
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
    compare(m.case(rtol, rtol))


def permuted(draw: Any, rank: int) -> list[int]:
    return draw(st.permutations(range(rank)))


FEW = settings(max_examples=12, deadline=None)


@FEW
@given(st.data(), SHAPES, WARPS)
def test_movements(data: st.DataObject, shape: tuple[int, ...], warps: int) -> None:
    """Transposes, reshapes, joins, splits, concatenations, broadcasts and flips in a row."""
    draw = data.draw
    orders = [permuted(draw, len(shape)) for _ in range(2)]
    perm = permuted(draw, len(shape))
    dim = draw(st.integers(0, len(shape) - 1))
    total = int(np.prod(shape))
    split = 1 << draw(st.integers(0, total.bit_length() - 1))

    def build(m: Blocks, x: Value, y: Value) -> list[Value]:
        b = m.b
        both = b.join(x, y)
        first, second = b.split(b.op("add", both, both))
        longer = b.cat(b.flip(x, dim), y, dim)
        flat = b.reshape(b.trans(second, perm), (split, total // split))
        wide = b.broadcast(b.reduce(flat, "max", (1,)), (0,), flat.type.extents)
        return [first, longer, b.op("add", flat, wide), b.trans(longer, perm)]

    run([shape] * 2, ["i32", "i32"], build, warps, orders)


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i32", "f16", "f64", "u8")))
def test_reductions(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    draw = data.draw
    dims = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    order = permuted(draw, len(shape))

    def build(m: Blocks, x: Value) -> list[Value]:
        b = m.b
        index = m.arange(shape[dims[0]], dims[0], shape)
        return [
            b.reduce(x, "sum", dims),
            b.reduce(x, "max", dims),
            b.argreduce(x, index, "argmin", dims[:1]),
        ]

    run([shape], [dtype], build, warps, [order], rtol=4 * tolerance(dtype))


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i64", "bf16")))
def test_scans(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    draw = data.draw
    dim, reverse = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
    order = permuted(draw, len(shape))

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

    size = int(np.prod(shape))
    values = np.random.default_rng(0).integers(-1, 2, (2, size))
    run([shape] * 2, [dtype] * 2, build, warps, [order] * 2, [v.astype(NUMPY[dtype]) for v in values])


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i32", "u8", "f64", "bool", "f16")))
def test_sorts(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    draw = data.draw
    dim, descending = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
    order = permuted(draw, len(shape))
    run([shape], [dtype], lambda m, x: m.b.sort(x, dim, descending), warps, [order])


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("i32", "u8", "i64")))
def test_gathers_and_histograms(data: st.DataObject, shape: tuple[int, ...], warps: int, kind: str) -> None:
    draw = data.draw
    dim, bins = draw(st.integers(0, len(shape) - 1)), 1 << draw(st.integers(0, 8))
    other = list(shape)
    other[dim] = 1 << draw(st.integers(0, 5))
    rng = np.random.default_rng(0)
    index = rng.integers(0, shape[dim], int(np.prod(other))).astype(NUMPY[kind])

    def build(m: Blocks, x: Value, i: Value) -> list[Value]:
        b = m.b
        mask = b.op("less", i, m.full(20, extents_of(i), kind))
        return [b.gather(x, i, dim), b.histogram(i, bins), b.histogram(i, bins, mask)]

    run([shape, other], ["f32", kind], build, warps, [permuted(draw, len(shape)) for _ in range(2)], [None, index])


@FEW
@given(st.tuples(*[st.integers(0, 5)] * 3), WARPS, st.sampled_from(("f32", "f16", "i8", "f64")), st.booleans())
def test_products(bits: tuple[int, int, int], warps: int, dtype: str, batched: bool) -> None:
    m, k, n = (1 << b for b in bits)
    first = (2,) if batched else ()
    out = {"f16": "f32", "i8": "i32"}.get(dtype, dtype)

    def build(kernel: Blocks, a: Value, b: Value, c: Value) -> list[Value]:
        return [kernel.b.dot(a, b, c), kernel.b.dot(a, b, dtype=out)]

    shapes = [(*first, m, k), (*first, k, n), (*first, m, n)]
    run(shapes, [dtype, dtype, out], build, warps, rtol=1e-5)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("shape", [(), (8,), (512,), (16, 8)])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("add", "i32"), ("add", "f32"), ("add", "bf16"), ("max", "f32"), ("min", "f64"), ("max", "u32"), ("and", "i64"),
     ("xor", "i32"), ("xchg", "i32"), ("cas", "i64")],
)  # fmt: skip
def test_atomics(kind: str, dtype: str, shape: tuple[int, ...], warps: int) -> None:
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
    compare(m.case(tolerance(dtype)))


def test_counts_by_atomics() -> None:
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
    compare(m.case())


def test_control_flow() -> None:
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
    compare(m.case(1e-5))


def test_checks_and_pointers() -> None:
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
    compare(m.case())
