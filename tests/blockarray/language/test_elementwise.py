"""Maths and selection on elements, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.compiler.dtypes import NUMPY
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, jit, launch

N = 16


def unary(x_ptr, o_ptr, f: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, f(tl.load(x_ptr + i)))


def binary(x_ptr, y_ptr, o_ptr, f: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, f(tl.load(x_ptr + i), tl.load(y_ptr + i)))


def ternary(x_ptr, y_ptr, z_ptr, o_ptr, f: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, f(tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)))


UNARY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": np.vectorize(math.erf), "floor": np.floor,
    "ceil": np.ceil, "abs": np.abs,
}  # fmt: skip
LIBDEVICE: dict[str, Any] = {
    "tanh": np.tanh, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh,
    "expm1": np.expm1, "log1p": np.log1p, "log10": np.log10, "cbrt": np.cbrt, "trunc": np.trunc, "rint": np.rint,
    "exp10": lambda x: 10**x, "fabs": np.abs,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", [*UNARY, *LIBDEVICE])
def test_functions_of_one_number(name, dtype):
    x = np.linspace(0.1, 3.4, N).astype(dtype)
    o = np.zeros(N, dtype)
    launch(unary, x_ptr=x, o_ptr=o, f=getattr(tl if name in UNARY else tl.math, name))
    expected = (UNARY | LIBDEVICE)[name](x.astype("f8"))
    np.testing.assert_allclose(o.astype("f8"), expected, rtol={"f2": 3e-3, "f4": 1e-6, "f8": 1e-14}[dtype])


def test_round_takes_halves_away_from_zero_and_keeps_what_is_whole():
    x = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 0.49999997, -0.5, -0.3, 2.5, 1.5, 8388609, -4194304.5], "f4")
    x, o = np.resize(x, N), np.zeros(N, "f4")
    launch(unary, x_ptr=x, o_ptr=o, f=tl.math.round)
    expected = np.resize([-0.0, 0, np.inf, -np.inf, np.nan, 0, -1, -0.0, 3, 2, 8388609, -4194305], N)
    np.testing.assert_array_equal(o, expected)
    np.testing.assert_array_equal(np.signbit(o), np.signbit(expected))


@pytest.mark.parametrize("name", ["exp", "sin", "rsqrt", "erf"])
def test_functions_of_floats_refuse_integers(name):
    x = np.zeros(N, "i4")
    with pytest.raises(CompilationError, match=rf"{name} takes floating-point numbers, not <\[16\], int32>"):
        compiled(unary, x_ptr=x, o_ptr=x, f=getattr(tl, name))


@pytest.mark.parametrize(
    ("f", "reference"),
    [(tl.math.pow, np.power), (tl.math.atan2, np.arctan2), (tl.math.hypot, np.hypot), (tl.math.copysign, np.copysign),
     (tl.fdiv, np.divide), (tl.div_rn, np.divide), (tl.math.fmod, np.fmod)],
)  # fmt: skip
def test_functions_of_two_numbers(f, reference):
    x, y = np.linspace(0.5, 4, N).astype("f4"), np.linspace(3, -2.3, N).astype("f4")
    o = np.zeros(N, "f4")
    launch(binary, x_ptr=x, y_ptr=y, o_ptr=o, f=f)
    np.testing.assert_allclose(o, reference(x, y), rtol=1e-6)


def test_minimum_and_maximum_leave_nans_out_unless_they_propagate():
    x = np.array([1, np.nan, 3, np.nan] * 4, "f4")
    y = np.array([2, 2, np.nan, np.nan] * 4, "f4")
    o = np.zeros(N, "f4")

    def both(x, y):
        return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)

    launch(binary, x_ptr=x, y_ptr=y, o_ptr=o, f=tl.maximum)
    np.testing.assert_array_equal(o, np.fmax(x, y))
    launch(binary, x_ptr=x, y_ptr=y, o_ptr=o, f=tl.minimum)
    np.testing.assert_array_equal(o, np.fmin(x, y))
    launch(binary, x_ptr=x, y_ptr=y, o_ptr=o, f=jit(both))
    np.testing.assert_array_equal(o, np.maximum(x, y))


def test_clamp_where_fma():
    rng = np.random.default_rng(1)
    x, y, z = (rng.standard_normal(N).astype("f4") for _ in range(3))
    o = np.zeros(N, "f4")
    low, high = np.minimum(y, z), np.maximum(y, z)
    launch(ternary, x_ptr=x, y_ptr=low, z_ptr=high, o_ptr=o, f=tl.clamp)
    np.testing.assert_array_equal(o, np.clip(x, low, high))
    launch(ternary, x_ptr=x, y_ptr=y, z_ptr=z, o_ptr=o, f=tl.fma)
    np.testing.assert_allclose(o, x * y + z, rtol=1e-5)
    launch(ternary, x_ptr=x > 0, y_ptr=y, z_ptr=z, o_ptr=o, f=tl.where)
    np.testing.assert_array_equal(o, np.where(x > 0, y, z))


@pytest.mark.parametrize("dtype", ["u4", "u8", "i4", "i8"])
def test_umulhi(dtype):
    rng = np.random.default_rng(2)
    x, y = (rng.integers(0, np.iinfo(dtype).max, N, dtype) for _ in range(2))
    o = np.zeros(N, dtype)
    launch(binary, x_ptr=x, y_ptr=y, o_ptr=o, f=tl.umulhi)
    bits = 8 * x.itemsize
    np.testing.assert_array_equal(o, [np.array(int(a) * int(b) >> bits, dtype) for a, b in zip(x, y)])


def creation(o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, tl.full((N,), 2.5, tl.float32))
    tl.store(o_ptr + N + i, tl.zeros([N], tl.int32))
    tl.store(o_ptr + 2 * N + i, tl.full([N], n, tl.float32))
    tl.store(o_ptr + 3 * N + i, tl.arange(4, 4 + N))
    tl.store(o_ptr + 4 * N + i, tl.zeros_like(i) + 1)
    tl.store(o_ptr + 5 * N + i, tl.cdiv(n, 4))
    tl.store(o_ptr + 6 * N + i, tl.cast(tl.arange(0, N), tl.float32) * n)


def test_new_blocks():
    o = np.ones((7, N), "f4")
    launch(creation, o_ptr=o, n=np.int32(7), N=N)
    expected = [[2.5] * N, [0] * N, [7] * N, range(4, 4 + N), [1] * N, [2] * N, [7 * k for k in range(N)]]
    np.testing.assert_array_equal(o, [list(row) for row in expected])


def test_table_names_do_for_all_floats():
    for dtype in ("bf16", "f8e4m3"):
        x = np.linspace(0.5, 2, N).astype(NUMPY[dtype])
        o = np.zeros(N, NUMPY[dtype])
        launch(unary, x_ptr=x, o_ptr=o, f=tl.exp)
        np.testing.assert_allclose(o.astype("f4"), np.exp(x.astype("f4")), rtol=0.1)


def test_names():
    assert tl.extra.libdevice.tanh is tl.math.tanh and tl.math.exp2 is tl.exp2
    assert tl.float16.primitive_bitwidth == 16 and tl.pointer_type(tl.int8).element_ty == tl.int8
    assert str(tl.bfloat16) == "bf16" and tl.int32.is_int() and not tl.uint8.is_int_signed()


@jit
def order(x, y):
    if x < y:
        return -1
    elif x == y:
        return 0
    else:
        return 1


@jit
def quotients(a0, a1, a2, a3, b0, b1, b2, b3):
    return a0 // b0, a1 // b1, a2 // b2, a3 // b3, a0 % b0, a1 % b1, a2 % b2, a3 % b3


def mapped(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(o_ptr + i, tl.map_elementwise(order, x, y))
    q, r = tl.map_elementwise(quotients, x, y, pack=4)
    tl.store(o_ptr + 16 + i, q)
    tl.store(o_ptr + 32 + i, r)


def test_map_elementwise():
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 9, N).astype("i4"), rng.integers(1, 5, N).astype("i4")
    o = np.zeros((3, N), "i4")
    launch(mapped, x_ptr=x, y_ptr=y, o_ptr=o)
    np.testing.assert_array_equal(o, [np.sign(x - y), x // y, x % y])


def shifts(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, tl.load(x_ptr + i) >> tl.load(y_ptr + i))


def test_shifts_have_the_sign_of_what_is_shifted():
    x, y = np.linspace(-30000, 30000, N).astype("i2"), (np.arange(N) % 12).astype("u4")
    o = np.zeros(N, "i4")
    launch(shifts, x_ptr=x, y_ptr=y, o_ptr=o)
    np.testing.assert_array_equal(o, x.astype("i4") >> y.astype("i4"))
