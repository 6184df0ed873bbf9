"""Kernels for the GPU, built by hand, with arguments for the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import I64, Kernel, Type, Value


class Case(NamedTuple):
    """A kernel and its arguments: arrays for pointers.  `exact`: to the bit, else within `rtol` of the interpreter."""

    kernel: Kernel
    args: list[Any]
    rtol: float = 0.0
    atol: float = 0.0


class Make:
    """A kernel under construction together with its arguments."""

    def __init__(self, name: str, aligned: bool = True, seed: int = 0) -> None:
        self.b = Builder(name)
        self.args: list[Any] = []
        self.names: list[str] = []
        self.aligned = aligned
        self.rng = np.random.default_rng(seed)

    def array(self, dtype: str, size: int, aligned: bool | None = None, data: np.ndarray | None = None) -> Value:
        name = f"p{len(self.args)}"
        if data is None:
            data = values(self.rng, dtype, size)
        self.args.append(data)
        if self.aligned if aligned is None else aligned:
            self.names.append(name)
        return self.b.param(name, Type(dtype, pointer=True))

    def size(self, n: int) -> Value:
        name = f"n{len(self.args)}"
        self.args.append(n)
        if n % 16 == 0:
            self.names.append(name)
        return self.b.param(name, I64)

    def scalar(self, dtype: str, value: Any) -> Value:
        self.args.append(value)
        return self.b.param(f"c{len(self.args)}", Type(dtype))

    def errors(self) -> None:
        self.args.append(np.zeros(1, np.int64))
        self.b.param("errors", Type("i64", pointer=True))

    def whole(self, name: str, size: Value, bucket: int | None) -> str:
        self.b.dim(name, size)
        self.b._dims[name] = self.b._dims[name]._replace(bucket=bucket)
        return name

    def blocked(self, name: str, size: Value, block: int) -> str:
        return self.b.dim(name, size, block, self.b.grid_axis(size, block))

    def case(self, rtol: float = 0.0, atol: float = 0.0) -> Case:
        self.b.attrs["aligned"] = tuple(self.names)
        return Case(self.b.finish(), self.args, rtol, atol)


def bucket(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def values(rng: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    kind = NUMPY[dtype]
    if size > 1 << 20:
        return np.resize(values(rng, dtype, 1 << 20), size)
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(np.uint8).view(np.bool_)
    if dtype in dtypes.INTEGER:
        low = 0 if dtype in dtypes.UNSIGNED else -9
        return rng.integers(low, 10, size).astype(kind)
    real = rng.standard_normal(size)
    if dtype in dtypes.COMPLEX:
        return (real + 1j * rng.standard_normal(size)).astype(kind)
    return real.astype(kind)


def tolerance(dtype: str) -> float:
    return {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12, "c64": 1e-5, "c128": 1e-12}.get(dtype, 0.0)


# -- elementwise ------------------------------------------------------------------------------------------------------
def chain(dtype: str = "f32", n: int = 100003, block: int = 4096, aligned: bool = True) -> Case:
    """(x * y + x) * c of contiguous arrays."""
    m = Make(f"chain_{dtype}", aligned)
    b = m.b
    x, y, out = (m.array(dtype, n) for _ in range(3))
    c = m.scalar(dtype, values(np.random.default_rng(1), dtype, 1)[0])
    j = m.blocked("j", m.size(n), block)
    start, one = b.dim_start(j), b.const(1)
    p, q = (b.load_view(a, start, [one], (j,)) for a in (x, y))
    if dtype == "bool":
        r = b.op("logical_or", b.op("logical_and", p, q), b.broadcast(c, (), (j,)))
    else:
        r = b.op("multiply", b.op("add", b.op("multiply", p, q), p), b.broadcast(c, (), (j,)))
    b.store_view(r, out, start, [one])
    return m.case(tolerance(dtype), tolerance(dtype))


def mixed(n: int = 5001) -> Case:
    """Several dtypes of different sizes together, two outputs, and a row of bools."""
    m = Make("mixed")
    b = m.b
    x, y, flag, k = m.array("f16", n), m.array("f64", n), m.array("bool", n), m.array("i8", n)
    out, less = m.array("f64", n), m.array("bool", n)
    j = m.blocked("j", m.size(n), 1024)
    start, one = b.dim_start(j), b.const(1)
    p, q, f, i = (b.load_view(a, start, [one], (j,)) for a in (x, y, flag, k))
    total = b.op("add", b.op("add", b.cast(p, "f64"), q), b.cast(i, "f64"))
    b.store_view(b.op("where", f, total, q), out, start, [one])
    b.store_view(b.op("less", total, q), less, start, [one])
    return m.case(1e-14)


#: Shifts from the first position that has all neighbours.
CROSS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
SQUARE = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))
ALONG = ((0,), (1,), (-2,))
FACES = ((0, 0, 0), *(tuple(s if a == b else 0 for b in range(3)) for a in range(3) for s in (-1, 1)))


def windows(
    shifts: Sequence[Sequence[int]], sizes: Sequence[int], blocks: Sequence[int], dtype: str = "f32", **kind: bool
) -> Case:
    """The sum of shifted windows of the same memory, that of the position with no shift twice."""
    m = Make("windows", **kind)
    b = m.b
    margin = [max(abs(s[k]) for s in shifts) for k in range(len(sizes))]
    full = [n + 2 * w for n, w in zip(sizes, margin, strict=True)]
    x, out = m.array(dtype, int(np.prod(full))), m.array(dtype, int(np.prod(sizes)))
    dims = [m.blocked(f"d{k}", m.size(n), block) for k, (n, block) in enumerate(zip(sizes, blocks, strict=True))]

    starts = [b.dim_start(d) for d in dims]

    def strides(extents: Sequence[int]) -> list[Value]:
        return [m.size(int(np.prod(extents[k + 1 :]))) for k in range(len(extents) - 1)] + [b.const(1)]

    def offset(steps: Sequence[Value], shift: Sequence[int]) -> Value:
        total = b.const(0)
        for start, step in zip(starts, steps, strict=True):
            total = b.op("add", total, b.op("multiply", start, step))
        for n, step in zip(shift, steps, strict=True):
            total = b.op("add", total, b.op("multiply", step, b.const(n)))
        return total

    of_x, of_out = strides(full), strides(sizes)
    parts = [
        b.load_view(x, offset(of_x, [s + w for s, w in zip(shift, margin, strict=True)]), of_x, tuple(dims))
        for shift in (shifts[0], *shifts)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = b.op("add", total, part)
    b.store_view(total, out, offset(of_out, [0] * len(sizes)), of_out)
    case = m.case(4 * tolerance(dtype), 4 * tolerance(dtype))
    case.kernel.attrs["even"] = tuple(
        p.name
        for p, a in zip(case.kernel.params, case.args, strict=True)
        if isinstance(a, int) and a % 16 and not a % 2
    )
    return case


def planes(sizes: Sequence[int] = (3, 37, 130), dtype: str = "f32", blocks: tuple[int, int] = (8, 256)) -> Case:
    """x[k, i, j] * w[j] + v[i], of rows with a pitch; the last grid axis is fastest; one operand in steps of 2."""
    m = Make("planes")
    b = m.b
    n0, n1, n2 = sizes
    pitch = n2 + 6
    x, w, v = m.array(dtype, n0 * n1 * pitch), m.array(dtype, 2 * n2), m.array(dtype, n1)
    out = m.array(dtype, n0 * n1 * n2)
    s0, s1, s2, p1, p0, o0 = (m.size(s) for s in (n0, n1, n2, pitch, n1 * pitch, n1 * n2))
    k = b.program_id(b.grid_axis(s0))
    i, j = m.blocked("i", s1, blocks[0]), m.blocked("j", s2, blocks[1])
    one, row, column = b.const(1), b.dim_start(i), b.dim_start(j)
    offset = b.op("add", b.op("add", b.op("multiply", k, p0), b.op("multiply", row, p1)), column)
    tile = b.load_view(x, offset, [p1, one], (i, j))
    weight = b.load_view(w, b.op("multiply", column, b.const(2)), [b.const(2)], (j,))
    bias = b.load_view(v, row, [one], (i,))
    r = b.op("add", b.op("multiply", tile, b.broadcast(weight, (1,), (i, j))), b.broadcast(bias, (0,), (i, j)))
    r = b.op("add", r, b.load_view(v, row, [one, b.const(0)], (i, j)))
    offset = b.op("add", b.op("add", b.op("multiply", k, o0), b.op("multiply", row, s2)), column)
    b.store_view(r, out, offset, [s2, one])
    return m.case(1e-6, 1e-6)


def positions(n: int = 3001) -> Case:
    """Index arithmetic: iota, quotient and remainder."""
    m = Make("positions")
    b = m.b
    out = m.array("i64", n)
    j = m.blocked("j", m.size(n), 1024)
    where = b.op("add", b.iota(j), b.broadcast(b.dim_start(j), (), (j,)))
    seven = b.broadcast(b.const(7), (), (j,))
    r = b.op("subtract", b.op("remainder", where, seven), b.op("floor_divide", where, seven))
    b.store_view(r, out, b.dim_start(j), [b.const(1)])
    return m.case()


def gather(n: int = 3001, size: int = 500, bad: bool = False) -> Case:
    m = Make("gather")
    b = m.b
    index = m.rng.integers(-size, size, n)
    if bad:
        index[n // 2] = size
    x, at, out = m.array("f32", size), m.array("i64", n, data=index), m.array("f32", n)
    limit, count = m.size(size), m.size(n)
    j = m.blocked("j", count, 1024)
    one, start = b.const(1), b.dim_start(j)
    raw = b.load_view(at, start, [one], (j,))
    zeros, limits = b.broadcast(b.const(0), (), (j,)), b.broadcast(limit, (), (j,))
    wrapped = b.op("where", b.op("less", raw, zeros), b.op("add", raw, limits), raw)
    ok = b.op("logical_and", b.op("greater_equal", wrapped, zeros), b.op("less", wrapped, limits))
    b.check(ok, "0")
    b.store_view(b.load_ptr(x, b.op("where", ok, wrapped, zeros)), out, start, [one])
    m.errors()
    return m.case()


def scatter(n: int = 3001) -> Case:
    """To distinct places, some left out by a mask."""
    m = Make("scatter")
    b = m.b
    x, at, out = m.array("f32", n), m.array("i64", n, data=m.rng.permutation(n)), m.array("f32", n)
    j = m.blocked("j", m.size(n), 1024)
    one, start = b.const(1), b.dim_start(j)
    p = b.load_view(x, start, [one], (j,))
    keep = b.op("greater", p, b.broadcast(b.const(0, "f32"), (), (j,)))
    b.store_ptr(p, out, b.load_view(at, start, [one], (j,)), keep)
    return m.case()


def serial(combine: str | None, n: int = 1001, places: int = 40, dtype: str = "f32", row: int = 1) -> Case:
    """To repeated places, in order; rows of several elements."""
    m = Make("serial")
    b = m.b
    x, at = m.array(dtype, n * row), m.array("i64", n, data=m.rng.integers(0, places, n))
    out = m.array(dtype, places * row)
    i, one = m.whole("i", m.size(n), None), b.const(1)
    index = b.load_view(at, b.const(0), [one], (i,))
    if row == 1:
        b.store_ptr(b.load_view(x, b.const(0), [one], (i,)), out, index, combine=combine)
    else:
        s = m.size(row)
        j = m.whole("j", s, bucket(row))
        index = b.op("multiply", index, b.broadcast(s, (), (i,)))
        index = b.op("add", b.broadcast(index, (0,), (i, j)), b.broadcast(b.iota(j), (1,), (i, j)))
        b.store_ptr(b.load_view(x, b.const(0), [s, one], (i, j)), out, index, combine=combine)
    b.attrs["serial"] = True
    return m.case()


def counts(n: int = 3001, dtype: str = "i64", combine: str = "add") -> Case:
    """What is stored to equal places is joined; integers in any order."""
    m = Make("counts")
    b = m.b
    x, at, out = m.array(dtype, n), m.array("i64", n, data=m.rng.integers(0, 40, n)), m.array(dtype, 40)
    j = m.blocked("j", m.size(n), 1024)
    one, start = b.const(1), b.dim_start(j)
    b.store_ptr(b.load_view(x, start, [one], (j,)), out, b.load_view(at, start, [one], (j,)), combine=combine)
    return m.case()


def transpose(
    n0: int = 130, n1: int = 200, dtype: str = "f32", aligned: bool = True, back: bool = False, blocks: Any = (64, 64)
) -> Case:
    """out[i, j] = x[j, i] + y[i, j]; or, `back`, the store crosses."""
    m = Make("transpose", aligned)
    b = m.b
    x, y, out = m.array(dtype, n0 * n1), m.array(dtype, n0 * n1), m.array(dtype, n0 * n1)
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.blocked("i", s0, blocks[0]), m.blocked("j", s1, blocks[1])
    one, row, column = b.const(1), b.dim_start(i), b.dim_start(j)
    across = b.op("add", row, b.op("multiply", column, s0))
    along = b.op("add", b.op("multiply", row, s1), column)
    if back:
        p, q = (b.load_view(a, along, [s1, one], (i, j)) for a in (x, y))
        b.store_view(b.op("add", p, q), out, across, [one, s0])
    else:
        p, q = b.load_view(x, across, [one, s0], (i, j)), b.load_view(y, along, [s1, one], (i, j))
        b.store_view(b.op("add", p, q), out, along, [s1, one])
    return m.case()


# -- rows -------------------------------------------------------------------------------------------------------------
class Rows(Make):
    """Rows of x, one a program or `together` of them, in a tile of dims `i` (if together) and `j`."""

    def __init__(self, name: str, n0: int, n1: int, dtype: str, known: bool = True, together: int = 1) -> None:
        super().__init__(name)
        b = self.b
        self.shape, self.dtype = (n0, n1), dtype
        self.x = self.array(dtype, n0 * n1)
        self.n0, self.n1 = self.size(n0), self.size(n1)
        self.extents: tuple[str, ...] = ()
        if together > 1:
            self.extents = (self.blocked("i", self.n0, together),)
            self.row = b.dim_start("i")
        else:
            self.row = b.program_id(b.grid_axis(self.n0))
        self.extents = (*self.extents, self.whole("j", self.n1, bucket(n1) if known else None))
        self.one = b.const(1)
        self.strides = [self.n1, self.one][-len(self.extents) :]
        self.offset = b.op("multiply", self.row, self.n1)
        self.tile = b.load_view(self.x, self.offset, self.strides, self.extents)

    def reduce(self, x: Value, kind: str) -> Value:
        return self.b.reduce(x, kind, (len(self.extents) - 1,))

    def spread(self, x: Value) -> Value:
        return self.b.broadcast(x, tuple(range(len(x.type.extents))), self.extents)

    def weights(self) -> Value:
        w = self.b.load_view(self.array(self.dtype, self.shape[1]), self.b.const(0), [self.one], ("j",))
        return self.b.broadcast(w, (len(self.extents) - 1,), self.extents)

    def store(self, value: Value) -> None:
        self.b.store_view(value, self.array(value.type.dtype, self.shape[0] * self.shape[1]), self.offset, self.strides)

    def store_rows(self, value: Value) -> None:
        out = self.array(value.type.dtype, self.shape[0])
        self.b.store_view(value, out, self.row, [self.one] * len(value.type.extents))


def softmax(n0: int = 5, n1: int = 1000, dtype: str = "f32", known: bool = True, together: int = 1) -> Case:
    m = Rows("softmax", n0, n1, dtype, known, together)
    b = m.b
    e = b.op("exp", b.op("subtract", m.tile, m.spread(m.reduce(m.tile, "max"))))
    m.store(b.op("divide", e, m.spread(m.reduce(e, "sum"))))
    return m.case(10 * tolerance(dtype), 1e-7)


def layernorm(
    n0: int = 5, n1: int = 1000, dtype: str = "f32", known: bool = True, together: int = 1, weighted: bool = True
) -> Case:
    """In f32 whatever the dtype."""
    m = Rows("layernorm", n0, n1, dtype, known, together)
    b = m.b
    x = b.cast(m.tile, "f32")
    count = b.cast(m.n1, "f32")

    def mean(v: Value) -> Value:
        total = m.reduce(v, "sum")
        return b.op("divide", total, b.broadcast(count, (), total.type.extents))

    centred = b.op("subtract", x, m.spread(mean(x)))
    variance = mean(b.op("square", centred))
    eps = b.broadcast(b.const(1e-5, "f32"), (), variance.type.extents)
    y = b.op("divide", centred, m.spread(b.op("sqrt", b.op("add", variance, eps))))
    if weighted:
        y = b.op("add", b.op("multiply", y, b.cast(m.weights(), "f32")), b.cast(m.weights(), "f32"))
    m.store(b.cast(y, dtype))
    return m.case(10 * tolerance(dtype), 1e-4)


def argmax(
    n0: int = 7, n1: int = 1000, kind: str = "argmax", dtype: str = "f32", together: int = 1, known: bool = True
) -> Case:
    m = Rows(kind, n0, n1, dtype, known, together)
    x = m.args[0].reshape(n0, n1)
    if dtype in dtypes.FLOAT:
        x[:] = np.round(x)
        x[1, n1 // 2] = x[1, n1 - 1] = np.nan
        x[2] = -np.inf
    where = m.b.broadcast(m.b.iota("j"), (len(m.extents) - 1,), m.extents)
    m.store_rows(m.b.argreduce(m.tile, where, kind, (len(m.extents) - 1,)))
    return m.case()


def partial_argmax(n: int = 100003, block: int = 16384, kind: str = "argmax") -> Case:
    m = Make(kind)
    b = m.b
    blocks = -(-n // block)
    x, out = m.array("f32", n), m.array("i64", blocks)
    m.args[0][:] = np.round(m.args[0])
    m.args[0][[block + 5, block + 700]] = np.nan
    j = m.blocked("j", m.size(n), block)
    start, one = b.dim_start(j), b.const(1)
    where = b.op("add", b.broadcast(start, (), (j,)), b.op("multiply", b.iota(j), b.broadcast(one, (), (j,))))
    winner = b.argreduce(b.load_view(x, start, [one], (j,)), where, kind, (0,))
    b.store_view(winner, out, b.program_id(0), [])
    return m.case()


def column_argmax(n0: int = 100, n1: int = 333, known: bool = True, across: bool = False) -> Case:
    """Of each column; `across`: the indices are no positions along it, and fall."""
    m = Make("argmax")
    b = m.b
    x, out = m.array("f32", n0 * n1), m.array("i64", n1)
    m.args[0][:] = np.round(m.args[0])
    m.args[0][[5 * n1 + 7, 50 * n1 + 7]] = np.nan
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.whole("i", s0, bucket(n0) if known else None), m.blocked("j", s1, 128)
    start, one = b.dim_start(j), b.const(1)
    where = b.broadcast(b.iota(i), (0,), (i, j))
    if across:
        where = b.op("subtract", b.broadcast(s0, (), (i, j)), where)
    tile = b.load_view(x, start, [s1, one], (i, j))
    b.store_view(b.argreduce(tile, where, "argmax", (0,)), out, start, [one])
    return m.case()


def outlier(n0: int = 3, n1: int = 40001, dtype: str = "f32") -> Case:
    """The element farthest from its row's mean: where it is, how far, and how many are on its side."""
    m = Rows("outlier", n0, n1, dtype)
    b = m.b
    mean = b.op("divide", m.reduce(m.tile, "sum"), b.cast(m.n1, dtype))
    centred = b.op("subtract", m.tile, m.spread(mean))
    far = b.op("absolute", centred)
    m.store_rows(b.argreduce(far, b.iota("j"), "argmax", (0,)))
    high = m.reduce(centred, "max")
    m.store_rows(high)
    above = b.op("equal", far, m.spread(high))
    m.store_rows(m.reduce(b.cast(above, "i64"), "sum"))
    return m.case(10 * tolerance(dtype), 1e-5)


def row_reduce(kind: str, dtype: str, n0: int = 5, n1: int = 1000, known: bool = True, together: int = 1) -> Case:
    m = Rows(f"{kind}_{dtype}", n0, n1, dtype, known, together)
    if kind == "prod":
        m.args[0][:] = np.where(m.rng.integers(0, 2, n0 * n1), 1, -1).astype(NUMPY[dtype])
    m.store_rows(m.reduce(m.tile, kind))
    return m.case(20 * tolerance(dtype), 20 * tolerance(dtype))


def several(n0: int = 6, n1: int = 777) -> Case:
    """An array, its rows' sums and its rows' largest elements."""
    m = Rows("several", n0, n1, "f32")
    y = m.b.op("square", m.tile)
    m.store(y)
    m.store_rows(m.reduce(y, "sum"))
    m.store_rows(m.reduce(m.tile, "max"))
    return m.case(1e-5)


# -- columns and more dims --------------------------------------------------------------------------------------------
def columns(n0: int = 300, n1: int = 333, kind: str = "sum", dtype: str = "f32", block: int = 128) -> Case:
    m = Make(f"columns_{kind}")
    b = m.b
    x, out = m.array(dtype, n0 * n1), m.array(dtype, n1)
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.whole("i", s0, None), m.blocked("j", s1, block)
    one, start = b.const(1), b.dim_start(j)
    b.store_view(b.reduce(b.load_view(x, start, [s1, one], (i, j)), kind, (0,)), out, start, [one])
    return m.case(20 * tolerance(dtype), 20 * tolerance(dtype))


def standardise(n0: int = 100, n1: int = 99, known: bool = True) -> Case:
    """Columns less their mean, which walks them again."""
    m = Make("standardise")
    b = m.b
    x, out = m.array("f32", n0 * n1), m.array("f32", n0 * n1)
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.whole("i", s0, bucket(n0) if known else None), m.blocked("j", s1, 32)
    one, start = b.const(1), b.dim_start(j)
    tile = b.load_view(x, start, [s1, one], (i, j))
    mean = b.op("divide", b.reduce(tile, "sum", (0,)), b.broadcast(b.cast(s0, "f32"), (), (j,)))
    b.store_view(b.op("subtract", tile, b.broadcast(mean, (1,), (i, j))), out, start, [s1, one])
    return m.case(1e-5, 1e-5)


def shares(n0: int = 37, n1: int = 700, known: tuple[bool, bool] = (False, False)) -> Case:
    """Elements less their row's largest one; and the sum of those largest ones, and of the shares of all."""
    m = Make("shares")
    b = m.b
    x, out, sums = m.array("f32", n0 * n1), m.array("f32", n0 * n1), m.array("f32", 2)
    s0, s1 = m.size(n0), m.size(n1)
    i = m.whole("i", s0, bucket(n0) if known[0] else None)
    j = m.whole("j", s1, bucket(n1) if known[1] else None)
    zero, one = b.const(0), b.const(1)
    tile = b.load_view(x, zero, [s1, one], (i, j))
    high = b.reduce(tile, "max", (1,))
    y = b.op("subtract", tile, b.broadcast(high, (0,), (i, j)))
    b.store_view(y, out, zero, [s1, one])
    b.store_view(b.reduce(high, "sum", (0,)), sums, zero, [])
    b.store_view(b.reduce(y, "sum", (0, 1)), sums, one, [])
    return m.case(1e-4, 1e-4)


def volumes(sizes: tuple[int, int, int] = (9, 70, 33), kind: str = "sum", known: bool = False) -> Case:
    """x[i, j, k] over i and k, a program for each j."""
    m = Make("volumes")
    b = m.b
    x, out = m.array("f64", int(np.prod(sizes))), m.array("f64", sizes[1])
    s0, s1, s2, step = (m.size(s) for s in (*sizes, sizes[1] * sizes[2]))
    row = b.program_id(b.grid_axis(s1))
    i = m.whole("i", s0, bucket(sizes[0]) if known else None)
    k = m.whole("k", s2, bucket(sizes[2]) if known else None)
    tile = b.load_view(x, b.op("multiply", row, s2), [step, b.const(1)], (i, k))
    b.store_view(b.reduce(tile, kind, (0, 1)), out, row, [])
    return m.case(1e-12, 1e-12)


def partial(n: int = 100003, block: int = 16384, dtype: str = "f32") -> Case:
    """The sum of each block."""
    m = Make("partial")
    b = m.b
    x, out = m.array(dtype, n), m.array(dtype, -(-n // block))
    j = m.blocked("j", m.size(n), block)
    total = b.reduce(b.load_view(x, b.dim_start(j), [b.const(1)], (j,)), "sum", (0,))
    b.store_view(total, out, b.program_id(0), [])
    return m.case(20 * tolerance(dtype), 1e-3)


def partial_columns(n0: int = 3000, n1: int = 100, block: int = 512) -> Case:
    m = Make("partial_columns")
    b = m.b
    x, out = m.array("f32", n0 * n1), m.array("f32", -(-n0 // block) * n1)
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.blocked("i", s0, block), m.blocked("j", s1, 64)
    one = b.const(1)
    offset = b.op("add", b.op("multiply", b.dim_start(i), s1), b.dim_start(j))
    total = b.reduce(b.load_view(x, offset, [s1, one], (i, j)), "sum", (0,))
    b.store_view(total, out, b.op("add", b.op("multiply", b.program_id(0), s1), b.dim_start(j)), [one])
    return m.case(1e-4, 1e-4)


# -- scans ------------------------------------------------------------------------------------------------------------
def row_scan(kind: str = "cumsum", dtype: str = "f32", n0: int = 4, n1: int = 1000, known: bool = True) -> Case:
    m = Rows(kind, n0, n1, dtype, known)
    if kind == "cumprod":
        m.args[0][:] = np.where(m.rng.integers(0, 2, n0 * n1), 1, -1).astype(NUMPY[dtype])
    m.store(m.b.scan(m.tile, kind, 0))
    return m.case(50 * tolerance(dtype), 100 * tolerance(dtype))


def column_scan(n0: int = 100, n1: int = 77, known: bool = True) -> Case:
    m = Make("column_scan")
    b = m.b
    x, out = m.array("f32", n0 * n1), m.array("f32", n0 * n1)
    s0, s1 = m.size(n0), m.size(n1)
    i, j = m.whole("i", s0, bucket(n0) if known else None), m.blocked("j", s1, 32)
    one, start = b.const(1), b.dim_start(j)
    tile = b.load_view(x, start, [s1, one], (i, j))
    b.store_view(b.scan(tile, "cumsum", 0), out, start, [s1, one])
    return m.case(1e-4, 1e-4)


def scan_of_totals(n1: int = 20, n2: int = 5) -> Case:
    """The running sum of the columns' totals, and the running sums of rows: two walked dims of unknown extents."""
    m = Make("scan_of_totals")
    b = m.b
    p0, p1 = m.array("i32", n1 * n2), m.array("i32", n2)
    p2 = m.array("i32", n1 * n2, data=np.zeros(n1 * n2, np.int32))
    s1, s2 = m.size(n1), m.size(n2)
    i, j = m.whole("i", s1, None), m.whole("j", s2, None)
    one, zero = b.const(1), b.const(0)
    tile = b.load_view(p0, zero, [s2, one], (i, j))
    b.store_view(b.scan(b.reduce(tile, "sum", (0,)), "cumsum", 0), p1, zero, [one])
    b.store_view(b.scan(tile, "cumsum", 1), p2, zero, [s2, one])
    return m.case()


def long_scan(n0: int = 2, n1: int = 5000, block: int = 128, kind: str = "cumsum", dtype: str = "f32") -> Case:
    """A row in blocks, each of which goes on from the one before."""
    m = Make("long_scan")
    b = m.b
    x, out = m.array(dtype, n0 * n1), m.array(dtype, n0 * n1)
    if kind == "cumprod":
        m.args[0][:] = np.where(m.rng.integers(0, 2, n0 * n1), 1, -1).astype(NUMPY[dtype])
    s0, s1 = m.size(n0), m.size(n1)
    row = b.program_id(b.grid_axis(s0))
    j = m.blocked("j", s1, block)
    offset = b.op("add", b.op("multiply", row, s1), b.dim_start(j))
    tile = b.load_view(x, offset, [b.const(1)], (j,))
    b.store_view(b.scan(tile, kind, 0, across=True), out, offset, [b.const(1)])
    programs = n0 * -(-n1 // block)
    m.args.append(np.zeros(16 + 48 * programs, np.int8))
    b.param("workspace", Type("i8", pointer=True))
    m.names.append("workspace")
    return m.case(50 * tolerance(dtype), 200 * tolerance(dtype))


DTYPES = tuple(NUMPY)
CASES: dict[str, Callable[[], Case]] = {
    **{f"chain {d}": lambda d=d: chain(d) for d in DTYPES},
    **{f"chain {d} n=5": lambda d=d: chain(d, 5) for d in ("f32", "bf16", "c128")},
    "chain whole": lambda: chain(n=4096 * 3),
    "chain divisible": lambda: chain(n=4096 * 3 + 160),
    "chain misaligned": lambda: chain(aligned=False),
    "chain bf16 misaligned": lambda: chain("bf16", aligned=False),
    "mixed": mixed,
    "mixed whole": lambda: mixed(4096),
    "planes": planes,
    "planes aligned": lambda: planes((2, 64, 250)),
    "planes f16": lambda: planes((2, 33, 64), "f32", (32, 64)),
    "windows": lambda: windows(CROSS, (37, 130), (8, 64)),
    "windows even": lambda: windows(CROSS, (18, 142), (8, 64)),
    "windows even bf16": lambda: windows(CROSS, (18, 142), (8, 128), "bf16"),
    "windows whole": lambda: windows(CROSS, (16, 128), (8, 64)),
    "windows misaligned": lambda: windows(CROSS, (17, 100), (8, 64), aligned=False),
    "windows square": lambda: windows(SQUARE, (20, 254), (8, 128), "f64"),
    "windows square odd": lambda: windows(SQUARE, (20, 253), (8, 128)),
    "windows of rows": lambda: windows(((0, 0), (2, 0), (-1, 0)), (33, 160), (8, 128), "bf16"),
    "windows of planes": lambda: windows(FACES, (5, 7, 100), (4, 4, 64)),
    **{f"windows along {d}": lambda d=d: windows(ALONG, (3001,), (1024,), d) for d in ("f32", "i8", "c64")},
    "windows along whole": lambda: windows(ALONG, (2048,), (1024,)),
    "positions": positions,
    "gather": gather,
    "gather bad": lambda: gather(bad=True),
    "scatter": scatter,
    "serial set": lambda: serial(None),
    "serial add": lambda: serial("add"),
    "serial add few": lambda: serial("add", 700, 3, "bf16"),
    "serial set rows": lambda: serial(None, 50, 9, "c64", 70),
    "serial add rows": lambda: serial("add", 50, 9, "f64", 70),
    "counts": counts,
    "counts u32": lambda: counts(dtype="u32"),
    **{f"maxima {d}": lambda d=d: counts(dtype=d, combine="maximum") for d in ("i32", "u32", "i64", "u64")},
    **{f"transpose {d}": lambda d=d: transpose(dtype=d) for d in ("f32", "f16", "i8", "f64", "c64", "c128")},
    "transpose odd": lambda: transpose(131, 77),
    "transpose whole": lambda: transpose(128, 192),
    "transpose back": lambda: transpose(back=True),
    "transpose back odd": lambda: transpose(129, 67, "bf16", back=True),
    **{
        f"transpose {d} by {n} and {m}{' back' * back}": lambda d=d, n=n, m=m, back=back: transpose(
            n * 2, m, d, back=back, blocks=(n, m)
        )
        for d in ("i8", "f16", "c128")
        for n, m in ((8, 8), (8, 16), (16, 8), (64, 8))
        for back in (False, True)
    },
    "transpose misaligned": lambda: transpose(aligned=False),
    **{f"softmax {n}": lambda n=n: softmax(3, n) for n in (1, 2, 37, 128, 1000, 4096, 16384, 32768, 32767)},
    **{f"softmax {n} loop": lambda n=n: softmax(3, n, known=False) for n in (1, 37, 4096, 10007)},
    **{f"softmax {n} x8": lambda n=n: softmax(21, n, together=8) for n in (3, 16, 100, 256)},
    **{f"softmax {d}": lambda d=d: softmax(3, 4096, d) for d in ("f16", "bf16", "f64")},
    **{f"softmax {n}": lambda n=n: softmax(2, n) for n in (65536, 40001, 40016, 262144)},
    **{
        f"softmax {d} {n}": lambda d=d, n=n: softmax(2, n, d)
        for d, n in (("f64", 65536), ("bf16", 131072), ("bf16", 32752))
    },
    **{f"outlier {n}": lambda n=n: outlier(n1=n) for n in (1000, 32768, 32784, 40016)},
    "outlier f64": lambda: outlier(2, 70000, "f64"),
    "softmax bf16 65536": lambda: softmax(2, 65536, "bf16"),
    "softmax f16 40001": lambda: softmax(2, 40001, "f16"),
    "softmax f16 40016": lambda: softmax(2, 40016, "f16"),
    "layernorm bf16 65536": lambda: layernorm(2, 65536, "bf16"),
    **{f"layernorm {d} {n}": lambda d=d, n=n: layernorm(3, n, d) for d in ("f32", "bf16") for n in (37, 1024, 8000)},
    "layernorm loop": lambda: layernorm(3, 10000, known=False),
    "layernorm x4": lambda: layernorm(7, 200, together=4),
    **{f"{k} {n}": lambda k=k, n=n: argmax(7, n, k) for k in ("argmax", "argmin") for n in (5, 1000, 5000)},
    "argmax i8": lambda: argmax(7, 1000, dtype="i8"),
    **{f"argmax {d}": lambda d=d: argmax(7, 5000, dtype=d) for d in ("f64", "bf16", "u64", "c64")},
    "argmax unknown": lambda: argmax(7, 5000, known=False),
    "argmax 70000": lambda: argmax(3, 70000),
    **{f"{k} partial": lambda k=k: partial_argmax(kind=k) for k in ("argmax", "argmin")},
    "argmax columns": column_argmax,
    "argmax columns unknown": lambda: column_argmax(known=False),
    "argmax columns falling": lambda: column_argmax(across=True),
    "argmax x4": lambda: argmax(7, 100, together=4),
    **{f"sum {d}": lambda d=d: row_reduce("sum", d) for d in DTYPES if d != "bool"},
    **{f"{k} {d}": lambda k=k, d=d: row_reduce(k, d) for k in ("min", "max") for d in ("i8", "u64", "f16", "f64")},
    **{f"prod {d}": lambda d=d: row_reduce("prod", d) for d in ("i64", "f32", "bf16")},
    "any": lambda: row_reduce("any", "bool"),
    "all": lambda: row_reduce("all", "bool", n1=3),
    "sum loop": lambda: row_reduce("sum", "f32", 3, 100001, known=False),
    "sum i64 loop": lambda: row_reduce("sum", "i64", 3, 10001, known=False),
    "sum x8": lambda: row_reduce("sum", "f32", 21, 50, together=8),
    "sum empty": lambda: row_reduce("sum", "f32", 3, 0),
    "sum empty loop": lambda: row_reduce("sum", "f32", 3, 0, known=False),
    "several": several,
    **{f"columns {k}": lambda k=k: columns(kind=k) for k in ("sum", "max")},
    "columns few": lambda: columns(5, 3),
    "columns narrow": lambda: columns(1000, 40, block=32),
    "columns bf16": lambda: columns(dtype="bf16"),
    "columns aligned": lambda: columns(1024, 256),
    "standardise": standardise,
    "standardise loop": lambda: standardise(1000, known=False),
    "shares": shares,
    "shares known": lambda: shares(known=(True, True)),
    "shares rows": lambda: shares(known=(False, True)),
    "shares columns": lambda: shares(200, 30, known=(True, False)),
    "volumes": volumes,
    "volumes known": lambda: volumes(known=True),
    "partial": partial,
    "partial short": lambda: partial(16384 * 2 + 5),
    "partial bf16": lambda: partial(block=4096, dtype="bf16"),
    "partial columns": partial_columns,
    **{f"cumsum {n}": lambda n=n: row_scan(n1=n) for n in (1, 31, 1000, 4096, 8192)},
    **{f"cumsum {d}": lambda d=d: row_scan(dtype=d) for d in ("i64", "f64", "bf16", "c64", "u8")},
    **{f"{k}": lambda k=k: row_scan(k) for k in ("cumprod", "cummin", "cummax")},
    "cumsum loop": lambda: row_scan(n1=10001, known=False),
    "cumsum of totals": scan_of_totals,
    "cumsum long": long_scan,
    "cumsum long whole": lambda: long_scan(1, 4096, 128),
    "cumsum long large": lambda: long_scan(1, 100003, 8192),
    "cumsum long narrow": lambda: long_scan(1, 15007, 64),
    "cumsum long narrow f64": lambda: long_scan(2, 8200, 64, dtype="f64"),
    "cumsum long large c128": lambda: long_scan(1, 20003, 8192, dtype="c128"),
    **{f"cumsum long {d}": lambda d=d: long_scan(dtype=d) for d in ("i64", "c64", "c128", "bf16", "u8")},
    "cumprod long": lambda: long_scan(kind="cumprod", dtype="f64"),
    "cummax long": lambda: long_scan(kind="cummax"),
    "cumsum columns": column_scan,
    "cumsum columns loop": lambda: column_scan(1000, 77, known=False),
}
#: Large ones to time: with how many bytes they move.
TIMED: dict[str, Callable[[], Case]] = {
    "chain f32": lambda: chain("f32", 1 << 26),
    "chain f32 odd": lambda: chain("f32", (1 << 26) - 1),
    "chain f32 misaligned": lambda: chain("f32", 1 << 26, aligned=False),
    "chain bf16": lambda: chain("bf16", 1 << 27),
    "chain f16": lambda: chain("f16", 1 << 27),
    "chain f64": lambda: chain("f64", 1 << 25),
    "windows": lambda: windows(CROSS, (8190, 8190), (8, 256)),
    "chain i8": lambda: chain("i8", 1 << 27),
    "transpose f32": lambda: transpose(8192, 8192),
    "transpose bf16": lambda: transpose(8192, 8192, "bf16"),
    "transpose f64": lambda: transpose(4096, 4096, "f64"),
    "softmax 128 x32": lambda: softmax(1 << 19, 128, together=32),
    "softmax 1000": lambda: softmax(1 << 16, 1000),
    "softmax 1024": lambda: softmax(1 << 16, 1024),
    "softmax 4096": lambda: softmax(1 << 14, 4096),
    "softmax 4096 bf16": lambda: softmax(1 << 15, 4096, "bf16"),
    "softmax 32768": lambda: softmax(1 << 11, 32768),
    "softmax 4096 loop": lambda: softmax(1 << 14, 4096, known=False),
    "softmax 65536 bf16": lambda: softmax(1 << 11, 1 << 16, "bf16"),
    "softmax 65536 bf16 loop": lambda: softmax(1 << 11, 1 << 16, "bf16", known=False),
    "layernorm 65536 bf16": lambda: layernorm(1 << 11, 1 << 16, "bf16"),
    "layernorm 4096": lambda: layernorm(1 << 14, 4096),
    "layernorm 4096 bf16": lambda: layernorm(1 << 15, 4096, "bf16"),
    "argmax 4096": lambda: argmax(1 << 14, 4096),
    "row sum 4096": lambda: row_reduce("sum", "f32", 1 << 14, 4096),
    "row sum loop": lambda: row_reduce("sum", "f32", 1 << 10, 1 << 16, known=False),
    "columns 16384": lambda: columns(4096, 16384),
    "partial": lambda: partial(1 << 26, 1 << 16),
    "cumsum 4096": lambda: row_scan(n0=1 << 14, n1=4096),
    "cumsum loop": lambda: row_scan(n0=1 << 10, n1=1 << 16, known=False),
    **{f"cumsum long {b}": lambda b=b: long_scan(1, 1 << 26, b) for b in (4096, 8192, 16384, 32768)},
    "cumsum long f64": lambda: long_scan(1, 1 << 25, 8192, dtype="f64"),
    "serial set": lambda: serial(None, 1 << 20, 1 << 22),
    "serial add": lambda: serial("add", 1 << 20, 1 << 22),
    "serial add rows": lambda: serial("add", 1 << 14, 1 << 14, row=256),
}
