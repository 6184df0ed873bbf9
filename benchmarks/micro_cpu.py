"""Times the CPU code generator's machine code on kernels that should run at the machine's limits, on one thread.

python -m benchmarks.micro_cpu [name ...]
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from blockarray.compiler import cpu
from blockarray.compiler.builder import Builder
from blockarray.compiler.ir import I64, Kernel, Type, Value
from blockarray.runtime import jit

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


def flat(name: str, dtype: str, function: Callable[[Builder, Value], Value], block: int = 1 << 14) -> Kernel:
    """An elementwise kernel over a contiguous array."""
    b = Builder(name)
    b.attrs["noalias"] = True
    x, out = b.param("x", Type(dtype, (), True)), b.param("out", Type(dtype, (), True))
    n = b.param("n", I64)
    j = b.dim("j", n, block, b.grid_axis(n, block))
    one = b.const(1)
    b.store_view(function(b, b.load_view(x, b.dim_start(j), [one], (j,))), out, b.dim_start(j), [one])
    return b.finish()


def rows(name: str, function: Callable[[Builder, Value, str, Value], Value]) -> Kernel:
    """A kernel that maps each row of a matrix."""
    b = Builder(name)
    b.attrs["noalias"] = True
    x, out = b.param("x", Type("f32", (), True)), b.param("out", Type("f32", (), True))
    n0, n1 = b.param("n0", I64), b.param("n1", I64)
    b.grid_axis(n0)
    j = b.dim("j", n1)
    offset = b.op("multiply", b.program_id(0), n1)
    one = b.const(1)
    b.store_view(function(b, b.load_view(x, offset, [one], (j,)), j, n1), out, offset, [one])
    return b.finish()


def softmax(b: Builder, row: Value, j: str, n: Value) -> Value:
    e = b.op("exp", b.op("subtract", row, b.broadcast(b.reduce(row, "max", (0,)), (), (j,))))
    return b.op("divide", e, b.broadcast(b.reduce(e, "sum", (0,)), (), (j,)))


def layernorm(b: Builder, row: Value, j: str, n: Value) -> Value:
    def spread(v: Value) -> Value:
        return b.broadcast(v, (), (j,))

    size = b.cast(n, "f32")
    centred = b.op("subtract", row, spread(b.op("divide", b.reduce(row, "sum", (0,)), size)))
    variance = b.op("divide", b.reduce(b.op("square", centred), "sum", (0,)), size)
    return b.op("divide", centred, spread(b.op("sqrt", b.op("add", variance, b.const(1e-5, "f32")))))


def total(axes: tuple[int, ...], kind: str = "sum", block: int = 4096) -> Kernel:
    """A reduction of a matrix: rows per program, or columns per program."""
    b = Builder(f"{kind}{axes}")
    b.attrs["noalias"] = True
    x, out = b.param("x", Type("f32", (), True)), b.param("out", Type("f32", (), True))
    n0, n1 = b.param("n0", I64), b.param("n1", I64)
    one = b.const(1)
    if axes == (1,):
        axis = b.grid_axis(n0, 64)
        i, j = b.dim("i", n0, 64, axis), b.dim("j", n1)
        start = b.dim_start(i)
        tile = b.load_view(x, b.op("multiply", start, n1), [n1, one], (i, j))
        b.store_view(b.reduce(tile, kind, (1,)), out, start, [one])
    elif axes == (0,):
        axis = b.grid_axis(n1, block)
        i, j = b.dim("i", n0), b.dim("j", n1, block, axis)
        start = b.dim_start(j)
        tile = b.load_view(x, start, [n1, one], (i, j))
        b.store_view(b.reduce(tile, kind, (0,)), out, start, [one])
    else:
        i, j = b.dim("i", n0), b.dim("j", n1)
        b.store_view(b.reduce(b.load_view(x, b.const(0), [n1, one], (i, j)), kind, (0, 1)), out, b.const(0), [])
    return b.finish()


def transpose() -> Kernel:
    b = Builder("transpose")
    b.attrs["noalias"] = True
    x, out = b.param("x", Type("f32", (), True)), b.param("out", Type("f32", (), True))
    n0, n1 = b.param("n0", I64), b.param("n1", I64)
    axis = b.grid_axis(n0, 64)
    i, j = b.dim("i", n0, 64, axis), b.dim("j", n1)
    one, start = b.const(1), b.dim_start(i)
    b.store_view(b.load_view(x, start, [one, n0], (i, j)), out, b.op("multiply", start, n1), [n1, one])
    return b.finish()


def polynomial(b: Builder, x: Value) -> Value:
    for _ in range(4):
        x = b.op("add", b.op("multiply", x, x), x)
    return x


def chain(b: Builder, x: Value) -> Value:
    return b.op("multiply", b.op("exp", b.op("negative", b.op("square", x))), b.op("sin", x))


CASES: dict[str, tuple[Callable[[], Kernel], tuple[int, ...], str]] = {
    "copy 10M": (lambda: flat("copy", "f32", lambda b, x: b.op("negative", x)), (10_000_000,), "f32"),
    "polynomial 10M": (lambda: flat("polynomial", "f32", polynomial), (10_000_000,), "f32"),
    "exp*sin 10M f32": (lambda: flat("chain", "f32", chain), (10_000_000,), "f32"),
    "exp*sin 10M f64": (lambda: flat("chain", "f64", chain), (10_000_000,), "f64"),
    "exp 10M f32": (lambda: flat("exp", "f32", lambda b, x: b.op("exp", x)), (10_000_000,), "f32"),
    "softmax 4096": (lambda: rows("softmax", softmax), (4096, 4096), "f32"),
    "layernorm 4096": (lambda: rows("layernorm", layernorm), (4096, 4096), "f32"),
    "sum axis 1": (lambda: total((1,)), (4096, 4096), "f32"),
    "sum axis 0": (lambda: total((0,)), (4096, 4096), "f32"),
    "sum all": (lambda: total((0, 1)), (4096, 4096), "f32"),
    "max axis 0": (lambda: total((0,), "max"), (4096, 4096), "f32"),
    "max axis 1": (lambda: total((1,), "max"), (4096, 4096), "f32"),
    "transpose": (transpose, (4096, 4096), "f32"),
}


def measure(name: str) -> None:
    make, shape, dtype = CASES[name]
    kernel, target = make(), cpu.host_target()
    begin = time.thread_time()
    text = cpu.text(kernel, target)
    middle = time.thread_time()
    code = cpu.compile(kernel, target)
    compiled = time.thread_time() - middle
    function = jit.load(code)
    element = np.dtype({"f32": "f4", "f64": "f8"}[dtype])
    x = np.random.default_rng(0).standard_normal(int(np.prod(shape))).astype(element)
    out = np.zeros_like(x)
    args = np.array([x.ctypes.data, out.ctypes.data, *shape], np.int64)
    sizes: dict[Any, int] = dict(zip(kernel.params[2:], shape, strict=True))
    programs = int(np.prod([-(-sizes.get(axis.size, 1) // axis.block) for axis in kernel.grid]))
    scratch = np.zeros(function.scratch(args.ctypes.data) + 64, np.uint8)
    where = scratch.ctypes.data + -scratch.ctypes.data % 64
    call = _RUN(function.address)
    times = []
    for _ in range(15):
        start = time.thread_time()
        call(args.ctypes.data, 0, programs, where, 0)
        times.append(time.thread_time() - start)
    best = min(times)
    moved = x.nbytes * (1 if name.startswith(("sum", "max")) else 2)
    speed = f"{best * 1e3:8.3f} ms {moved / best / 1e9:7.1f} GB/s"
    cost = f"text {(middle - begin) * 1e3:5.1f} ms, compile {compiled * 1e3:5.1f} ms"
    print(f"{name:18} {speed}   {cost}, {len(text) // 1000} kB of text, {len(code) // 1000} kB of code")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        measure(case)
