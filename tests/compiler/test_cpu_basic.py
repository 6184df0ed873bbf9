"""Elementwise kernels and row reductions as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler.builder import Builder
from blockarray.compiler.ir import I64, Kernel, Type
from tests.compiler.cpu_kernels import Compiled, check

SIZES = [0, 1, 7, 8, 9, 31, 33, 1000, 4099]


def softmax(dtype: str = "f32") -> Kernel:
    b = Builder("softmax")
    x, out = b.param("x", Type(dtype, (), True)), b.param("out", Type(dtype, (), True))
    n0, n1 = b.param("n0", I64), b.param("n1", I64)
    b.grid_axis(n0)
    j = b.dim("j", n1)
    offset = b.op("multiply", b.program_id(0), n1)
    one = b.const(1)
    row = b.load_view(x, offset, [one], (j,))
    largest = b.broadcast(b.reduce(row, "max", (0,)), (), (j,))
    e = b.op("exp", b.op("subtract", row, largest))
    total = b.broadcast(b.reduce(e, "sum", (0,)), (), (j,))
    b.store_view(b.op("divide", e, total), out, offset, [one])
    return b.finish()


def unary(name: str, dtype: str, block: int = 1000) -> Kernel:
    b = Builder(name)
    x, out = b.param("x", Type(dtype, (), True)), b.param("out", Type(dtype, (), True))
    n = b.param("n", I64)
    axis = b.grid_axis(n, block)
    j = b.dim("j", n, block, axis)
    one = b.const(1)
    tile = b.load_view(x, b.dim_start(j), [one], (j,))
    b.store_view(b.op(name, tile), out, b.dim_start(j), [one])
    return b.finish()


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_softmax(dtype):
    from blockarray.compiler.dtypes import NUMPY

    kernel = softmax(dtype)
    compiled = Compiled(kernel)
    rng = np.random.default_rng(0)
    for n in SIZES[1:]:
        x = rng.standard_normal(5 * n).astype(NUMPY[dtype])
        tolerance = {"f32": 1e-5, "f64": 1e-13, "f16": 2e-3, "bf16": 2e-2}[dtype]
        check(kernel, [x, np.zeros_like(x), 5, n], rtol=tolerance, atol=1e-7, compiled=compiled)


@pytest.mark.parametrize("name, dtype", [("negative", "f32"), ("exp", "f64"), ("negative", "i8"), ("square", "c64")])
def test_unary(name, dtype):
    from blockarray.compiler.dtypes import NUMPY

    kernel = unary(name, dtype)
    compiled = Compiled(kernel)
    rng = np.random.default_rng(0)
    for n in SIZES:
        x = (rng.standard_normal(n + 1) * 9).astype(NUMPY[dtype])
        check(kernel, [x, np.zeros_like(x), n], rtol=1e-6, compiled=compiled)


def test_wider_vectors_where_the_target_has_them():
    from blockarray.compiler import cpu
    from blockarray.compiler.cpu import object

    host = cpu.host_target()
    if not host.triple.startswith("x86_64"):
        pytest.skip("the other target is x86-64")
    wide = cpu.make_target(host.triple, "skylake-avx512", "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq")
    text = cpu.text(unary("square", "f32"), wide)
    assert "min-legal-vector-width" in text
    assert "zmm" in object.assembly(text, wide)
    assert cpu.compile(unary("square", "i8"), wide)
