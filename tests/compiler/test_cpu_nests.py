"""Reductions over any extents, scans, strides, scatters, loops and aliasing as machine code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import I64, Kernel, Type
from tests.compiler.cpu_kernels import Compiled, check

SHAPES = [(1, 1, 1), (3, 1, 9), (2, 7, 33), (5, 40, 8), (2, 3, 700), (0, 4, 5), (4, 0, 5), (4, 5, 0)]


def data(size: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size) * 3
    if dtype in ("c64", "c128"):
        x = x + 1j * rng.standard_normal(size)
    return (x > 0 if dtype == "bool" else x).astype(NUMPY[dtype])


def across(op: str, kind: str, dims: tuple[int, ...], dtype: str) -> Kernel:
    """One reduction or scan of a contiguous 3-D array, in one program."""
    b = Builder(kind)
    x = b.param("x", Type(dtype, (), True))
    sizes = [b.param(f"n{k}", I64) for k in range(3)]
    one = b.const(1)
    names = [b.dim(name, n) for name, n in zip("ijk", sizes, strict=True)]
    strides = [b.op("multiply", sizes[1], sizes[2]), sizes[2], one]
    tile = b.load_view(x, b.const(0), strides, names)
    if op == "scan":
        value = b.scan(tile, kind, dims[0])
    elif op == "reduce":
        value = b.reduce(tile, kind, dims)
    else:
        position = b.broadcast(b.iota(names[dims[0]]), dims, names)
        value = b.argreduce(tile, position, kind, dims)
    out = b.param("out", Type(value.type.dtype, (), True))
    step, steps = one, []
    for extent in reversed(value.type.extents):
        steps.insert(0, step)
        step = b.op("multiply", step, b.dim_extent(str(extent)))
    b.store_view(value, out, b.const(0), steps)
    return b.finish()


def run(kernel: Kernel, dtype: str, out: str, rtol: float = 0, special: tuple[float, ...] = ()) -> None:
    compiled = Compiled(kernel)
    for shape in SHAPES:
        x = data(int(np.prod(shape)), dtype)
        if special and x.size > 8:
            x[3 :: max(1, x.size // 7)] = np.resize(special, x[3 :: max(1, x.size // 7)].shape)
        check(kernel, [x, *shape, np.zeros(max(x.size, 1000), NUMPY[out])], rtol, 1e-4 if rtol else 0, compiled)


SUBSETS = [s for n in (1, 2, 3) for s in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("dims", SUBSETS)
@pytest.mark.parametrize(
    "kind, dtype", [("sum", "f32"), ("max", "f64"), ("sum", "i64"), ("prod", "c64"), ("any", "bool")]
)
def test_reduce(kind, dtype, dims):
    run(across("reduce", kind, dims, dtype), dtype, dtype, rtol=1e-4)


@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "u8", "i16"])
def test_reduce_narrow(dtype, dims):
    run(across("reduce", "sum", dims, dtype), dtype, dtype, rtol=1e-2)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_of_nan_and_infinity(kind, dims):
    run(across("reduce", kind, dims, "f32"), "f32", "f32", special=(np.nan, np.inf, -np.inf))
    run(across("reduce", kind, dims, "f32"), "f32", "f32", special=(np.inf, -np.inf))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind, dtype", [("argmax", "f32"), ("argmin", "i8"), ("argmax", "f64"), ("argmax", "bool")])
def test_argreduce(kind, dtype, dim):
    kernel = across("argreduce", kind, (dim,), dtype)
    run(kernel, dtype, "i64")
    if dtype.startswith("f"):
        run(kernel, dtype, "i64", special=(np.nan, np.inf, -np.inf))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind, dtype", [("cumsum", "f32"), ("cumprod", "f64"), ("cummax", "f32"), ("cumsum", "i32")])
def test_scan(kind, dtype, dim):
    run(across("scan", kind, (dim,), dtype), dtype, dtype, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u16", "bool", "f16", "c64", "c128"])
def test_strides(dtype):
    """Every combination of unit, reversed, run-time and zero strides, transposed ones among them."""
    for name in ("transposed", "reversed", "strided", "repeated"):
        b = Builder(name)
        x, out = b.param("x", Type(dtype, (), True)), b.param("out", Type(dtype, (), True))
        n, m, step = b.param("n", I64), b.param("m", I64), b.param("step", I64)
        offset, one = b.param("offset", I64), b.const(1)
        i, j = b.dim("i", n, 40, b.grid_axis(n, 40)), b.dim("j", m)
        start = b.dim_start(i)
        strides = {
            "transposed": (one, step), "reversed": (step, b.const(-1)), "strided": (step, b.const(3)),
            "repeated": (step, b.const(0)),
        }[name]  # fmt: skip
        where = b.op("add", offset, b.op("multiply", start, strides[0]))
        tile = b.load_view(x, where, strides, (i, j))
        b.store_view(tile, out, b.op("multiply", start, m), [m, one], None)
        kernel = b.finish()
        compiled = Compiled(kernel)
        for rows, columns in [(1, 1), (3, 7), (40, 33), (65, 70), (100, 8)]:
            where = {
                "transposed": (rows, 0), "reversed": (columns, columns - 1), "strided": (3 * columns, 0),
                "repeated": (1, 0),
            }[name]  # fmt: skip
            args = [data(3 * rows * columns, dtype), np.zeros(rows * columns, NUMPY[dtype]), rows, columns, *where]
            check(kernel, args, compiled=compiled)


def test_in_place():
    """x = (x - mean(x)) and y = 2 x, where y's memory is x's."""
    b = Builder("in_place")
    x, y, out = (b.param(name, Type("f32", (), True)) for name in ("x", "y", "out"))
    n = b.param("n", I64)
    j = b.dim("j", n)
    zero, one = b.const(0), b.const(1)
    tile = b.load_view(x, zero, [one], (j,))
    b.store_view(b.op("add", tile, tile), y, zero, [one])
    largest = b.broadcast(b.reduce(tile, "max", (0,)), (), (j,))
    b.store_view(b.op("subtract", tile, largest), out, zero, [one])
    kernel = b.finish()
    compiled = Compiled(kernel)
    for n in (1, 9, 1000):
        x = data(n, "f32")
        for first, second in ((0, 1), (1, 0), (1, 2)):
            buffers = [x.copy(), np.zeros_like(x), np.zeros_like(x)]
            compiled([buffers[0], buffers[first], buffers[second], n])
            np.testing.assert_array_equal(buffers[first], x + x)
            np.testing.assert_array_equal(buffers[second], x - x.max())


def test_scatter_keeps_order_and_check_reports():
    b = Builder("scatter")
    index = b.param("index", Type("i64", (), True))
    value, out = (b.param(name, Type("f32", (), True)) for name in ("value", "out"))
    errors, n, size = b.param("errors", Type("i64", (), True)), b.param("n", I64), b.param("size", I64)
    j = b.dim("j", n)
    zero, one = b.const(0), b.const(1)
    where = b.load_view(index, zero, [one], (j,))
    inside = b.op(
        "logical_and",
        b.op("greater_equal", where, b.broadcast(zero, (), (j,))),
        b.op("less", where, b.broadcast(size, (), (j,))),
    )
    b.check(b.broadcast(b.op("less", zero, one), (), (j,)), "never")
    b.check(inside, "out of range")
    b.store_ptr(b.load_view(value, zero, [one], (j,)), out, where, inside)
    kernel = b.finish()
    compiled = Compiled(kernel)
    rng = np.random.default_rng(0)
    for n in (1, 9, 100):
        where, values = rng.integers(0, 7, n), data(n, "f32")
        wanted, found, errors = np.zeros(7, "f"), np.zeros(7, "f"), np.zeros(1, np.int64)
        for i, v in zip(where, values, strict=True):
            wanted[i] = v
        compiled([where, values, found, errors, n, 7])
        np.testing.assert_array_equal(found, wanted)
        assert errors[0] == 0
        where[n // 2] = 7
        compiled([where, values, found, errors, n, 7])
        assert errors[0] == 2


def test_long_float_sums_are_accurate():
    kernel = across("reduce", "sum", (0, 1, 2), "f32")
    x = np.full(3_000_000, 0.1, "f")
    out = np.zeros(1, "f")
    Compiled(kernel)([x, 1, 1, x.size, out])
    assert abs(out[0] / (x.astype("d").sum()) - 1) < 2e-6
