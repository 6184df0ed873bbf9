"""Kernels as a person writes them, in blocks of integer extents, built by hand, with arguments for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockarray.compiler.builder import Builder
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
    "layer norm": layer_norm,
    "layer norm bf16": lambda: layer_norm(columns=1536, dtype="bf16"),
    "transpose": transpose,
    "transpose f16": lambda: transpose(64, 128, 32, 64, "f16"),
    "transpose f64": lambda: transpose(64, 64, 16, 64, "f64"),
}  # fmt: skip
