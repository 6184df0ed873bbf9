"""Kernels built by hand, with arguments and NumPy's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import I64, Kernel, Type, Value

F32 = Type("f32", pointer=True)
I64S = Type("i64", pointer=True)


class Case(NamedTuple):
    """The kernel's arguments, and what each output (by its position among them) must hold afterwards."""

    args: list[Any]
    expected: dict[int, np.ndarray]
    failed: tuple[str, ...] = ()


def sizes(b: Builder, *names: str) -> list[Value]:
    return [b.param(name, I64) for name in names]


def softmax() -> Kernel:
    b = Builder("softmax")
    x, out = b.param("x", F32), b.param("out", F32)
    n0, n1, xs, os = sizes(b, "n0", "n1", "xs", "os")
    row = b.program_id(b.grid_axis(n0))
    j = b.dim("j", n1)
    tile = b.load_view(x, b.op("multiply", row, xs), [b.const(1)], (j,))
    high = b.reduce(tile, "max", (0,))
    e = b.op("exp", b.op("subtract", tile, b.broadcast(high, (), (j,))))
    y = b.op("divide", e, b.broadcast(b.reduce(e, "sum", (0,)), (), (j,)))
    b.store_view(y, out, b.op("multiply", row, os), [b.const(1)])
    return b.finish()


def softmax_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((5, 37)).astype("f")
    e = np.exp(x - x.max(1, keepdims=True))
    return Case([x.ravel(), np.zeros(x.size, "f"), 5, 37, 37, 37], {1: e / e.sum(1, keepdims=True)})


def layernorm() -> Kernel:
    """Two passes over a row that stays in one tile."""
    b = Builder("layernorm")
    x, w, bias, out = (b.param(name, F32) for name in ("x", "w", "b", "out"))
    n0, n1 = sizes(b, "n0", "n1")
    eps = b.param("eps", Type("f32"))
    row = b.program_id(b.grid_axis(n0))
    j = b.dim("j", n1)
    zero, one = b.const(0), b.const(1)
    start = b.op("multiply", row, n1)
    tile = b.load_view(x, start, [one], (j,))
    count = b.cast(n1, "f32")
    mean = b.op("divide", b.reduce(tile, "sum", (0,)), count)
    centred = b.op("subtract", tile, b.broadcast(mean, (), (j,)))
    variance = b.op("divide", b.reduce(b.op("square", centred), "sum", (0,)), count)
    scale = b.op("divide", b.const(1, "f32"), b.op("sqrt", b.op("add", variance, eps)))
    y = b.op("multiply", centred, b.broadcast(scale, (), (j,)))
    y = b.op("multiply", y, b.load_view(w, zero, [one], (j,)))
    b.store_view(b.op("add", y, b.load_view(bias, zero, [one], (j,))), out, start, [one])
    return b.finish()


def layernorm_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((4, 19)).astype("f")
    w, bias = rng.standard_normal((2, 19)).astype("f")
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5)) * w + bias
    return Case([x.ravel(), w, bias, np.zeros(x.size, "f"), 4, 19, 1e-5], {3: y})


def stencil() -> Kernel:
    """Five points, blocks of rows and columns."""
    b = Builder("stencil")
    x, out = b.param("x", F32), b.param("out", F32)
    n0, n1, xs, os = sizes(b, "n0", "n1", "xs", "os")
    i = b.dim("i", n0, 4, b.grid_axis(n0, 4))
    j = b.dim("j", n1, 16, b.grid_axis(n1, 16))
    one = b.const(1)
    row, column = b.dim_start(i), b.dim_start(j)

    def shifted(di: int, dj: int) -> Value:
        offset = b.op("multiply", b.op("add", row, b.const(di)), xs)
        offset = b.op("add", b.op("add", offset, column), b.const(dj))
        return b.load_view(x, offset, [xs, one], (i, j))

    total = shifted(0, 1)
    for di, dj in ((1, 0), (1, 1), (1, 2), (2, 1)):
        total = b.op("add", total, shifted(di, dj))
    fifth = b.broadcast(b.const(0.2, "f32"), (), (i, j))
    offset = b.op("add", b.op("multiply", row, os), column)
    b.store_view(b.op("multiply", total, fifth), out, offset, [os, one])
    return b.finish()


def stencil_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((13, 39)).astype("f")
    y = (x[:-2, 1:-1] + x[1:-1, :-2] + x[1:-1, 1:-1] + x[1:-1, 2:] + x[2:, 1:-1]) * np.float32(0.2)
    return Case([x.ravel(), np.zeros(y.size, "f"), 11, 37, 39, 37], {1: y})


def column_mean() -> Kernel:
    b = Builder("column_mean")
    x, out = b.param("x", F32), b.param("out", F32)
    n0, n1 = sizes(b, "n0", "n1")
    i = b.dim("i", n0)
    j = b.dim("j", n1, 16, b.grid_axis(n1, 16))
    one, start = b.const(1), b.dim_start(j)
    total = b.reduce(b.load_view(x, start, [n1, one], (i, j)), "sum", (0,))
    mean = b.op("divide", total, b.broadcast(b.cast(n0, "f32"), (), (j,)))
    b.store_view(mean, out, start, [one])
    return b.finish()


def column_mean_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((23, 35)).astype("f")
    return Case([x.ravel(), np.zeros(35, "f"), 23, 35], {1: x.mean(0)})


def gather() -> Kernel:
    """x[index] with negative indices and a check; what fails the check touches nothing."""
    b = Builder("gather")
    x, index, out = b.param("x", F32), b.param("index", I64S), b.param("out", F32)
    size, n = sizes(b, "size", "n")
    j = b.dim("j", n, 8, b.grid_axis(n, 8))
    one, start = b.const(1), b.dim_start(j)
    raw = b.load_view(index, start, [one], (j,))
    zeros, limit = b.broadcast(b.const(0), (), (j,)), b.broadcast(size, (), (j,))
    wrapped = b.op("where", b.op("less", raw, zeros), b.op("add", raw, limit), raw)
    ok = b.op("logical_and", b.op("greater_equal", wrapped, zeros), b.op("less", wrapped, limit))
    b.check(ok, "index out of bounds")
    b.store_view(b.load_ptr(x, wrapped, ok, -1.0), out, start, [one])
    return b.finish()


def gather_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal(10).astype("f")
    index = np.array([0, 9, -1, -10, 3, 3, 10, 5, -11, 2, 4])
    safe = np.where((index >= -10) & (index < 10), index, 0)
    y = np.where((index >= -10) & (index < 10), x[safe], np.float32(-1))
    return Case([x, index, np.zeros(11, "f"), 10, 11], {2: y}, ("index out of bounds",))


def argmax() -> Kernel:
    b = Builder("argmax")
    x, out = b.param("x", F32), b.param("out", I64S)
    n0, n1 = sizes(b, "n0", "n1")
    row = b.program_id(b.grid_axis(n0))
    j = b.dim("j", n1)
    tile = b.load_view(x, b.op("multiply", row, n1), [b.const(1)], (j,))
    b.store_view(b.argreduce(tile, b.iota(j), "argmax", (0,)), out, row, [])
    return b.finish()


def argmax_case(rng: np.random.Generator) -> Case:
    x = rng.integers(-3, 3, (7, 11)).astype("f")
    x[1, 4] = x[1, 7] = np.nan
    x[2] = -np.inf
    return Case([x.ravel(), np.zeros(7, "i8"), 7, 11], {1: x.argmax(1)})


def matmul() -> Kernel:
    """relu(a @ b + c), the depth in bounded steps of 8."""
    b = Builder("matmul")
    x, y, bias, out = (b.param(name, F32) for name in ("a", "b", "c", "out"))
    n0, n1, n2 = sizes(b, "n0", "n1", "n2")
    i = b.dim("i", n0, 8, b.grid_axis(n0, 8))
    j = b.dim("j", n1, 16, b.grid_axis(n1, 16))
    b.attrs["schedule"] = "gemm"
    one, row, column = b.const(1), b.dim_start(i), b.dim_start(j)
    zero = b.broadcast(b.const(0, "f32"), (), (i, j))
    start = b.op("multiply", row, n2)
    with b.for_(b.const(0), n2, b.const(8), [zero]) as loop:
        rest = b.op("subtract", n2, loop.index)
        left = b.load_view(x, b.op("add", start, loop.index), [n2, one], (i, 8), [b.dim_extent(i), rest])
        offset = b.op("add", b.op("multiply", loop.index, n1), column)
        right = b.load_view(y, offset, [n1, one], (8, j), [rest, b.dim_extent(j)])
        b.yield_(b.dot(left, right, loop.carried[0]))
    c = b.broadcast(b.load_view(bias, column, [one], (j,)), (1,), (i, j))
    result = b.op("maximum", b.op("add", loop.results[0], c), zero)
    b.store_view(result, out, b.op("add", b.op("multiply", row, n1), column), [n1, one])
    return b.finish()


def matmul_case(rng: np.random.Generator) -> Case:
    x, y = rng.standard_normal((13, 21)).astype("f"), rng.standard_normal((21, 19)).astype("f")
    c = rng.standard_normal(19).astype("f")
    return Case([x.ravel(), y.ravel(), c, np.zeros(13 * 19, "f"), 13, 19, 21], {3: np.maximum(x @ y + c, 0)})


def running_sum() -> Kernel:
    """A scan in tiles of 4 with a carry, through a loop; a row of no elements is skipped."""
    b = Builder("running_sum")
    x, out = b.param("x", F32), b.param("out", F32)
    n0, n1 = sizes(b, "n0", "n1")
    row = b.program_id(b.grid_axis(n0))
    zero, one = b.const(0), b.const(1)
    start = b.op("multiply", row, n1)
    with b.if_(b.op("greater", n1, zero)) as branch:
        with b.for_(zero, n1, b.const(4), [b.const(0, "f32")]) as loop:
            offset, rest = b.op("add", start, loop.index), b.op("subtract", n1, loop.index)
            tile = b.load_view(x, offset, [one], (4,), [rest])
            b.store_view(b.scan(tile, "cumsum", 0, loop.carried[0]), out, offset, [one], [rest])
            b.yield_(b.op("add", loop.carried[0], b.reduce(tile, "sum", (0,))))
        b.yield_(loop.results[0])
    with branch.else_():
        b.yield_(b.const(float("nan"), "f32"))
    total = b.param("total", F32)
    b.store_view(branch.results[0], total, row, [])
    return b.finish()


def running_sum_case(rng: np.random.Generator) -> Case:
    x = rng.integers(-9, 9, (3, 10)).astype("f")
    return Case([x.ravel(), np.zeros(30, "f"), 3, 10, np.zeros(3, "f")], {1: x.cumsum(1), 4: x.sum(1)})


def histogram() -> Kernel:
    """Equal indices add up; a bool mask from memory."""
    b = Builder("histogram")
    index, keep, out = b.param("index", I64S), b.param("keep", Type("bool", pointer=True)), b.param("out", I64S)
    (n,) = sizes(b, "n")
    j = b.dim("j", n, 8, b.grid_axis(n, 8))
    one, start = b.const(1), b.dim_start(j)
    where = b.load_view(index, start, [one], (j,))
    mask = b.load_view(keep, start, [one], (j,))
    b.store_ptr(b.broadcast(one, (), (j,)), out, where, mask, "add")
    return b.finish()


def histogram_case(rng: np.random.Generator) -> Case:
    index = rng.integers(0, 5, 29)
    keep = rng.integers(0, 3, 29).astype(np.uint8)  # a byte of 2 is True
    expected = np.bincount(index[keep != 0], minlength=5)
    return Case([np.where(keep != 0, index, 99), keep.view(NUMPY["bool"]), np.zeros(5, "i8"), 29], {2: expected})


KERNELS: dict[str, tuple[Callable[[], Kernel], Callable[[np.random.Generator], Case]]] = {
    "softmax": (softmax, softmax_case),
    "layernorm": (layernorm, layernorm_case),
    "stencil": (stencil, stencil_case),
    "column_mean": (column_mean, column_mean_case),
    "gather": (gather, gather_case),
    "argmax": (argmax, argmax_case),
    "matmul": (matmul, matmul_case),
    "running_sum": (running_sum, running_sum_case),
    "histogram": (histogram, histogram_case),
}
