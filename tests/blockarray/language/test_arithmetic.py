"""Types of operands, and the values of operators, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.compiler.dtypes import NUMPY
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, launch

N = 8


def binary(x_ptr, y_ptr, o_ptr, f: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, f(tl.load(x_ptr + i), tl.load(y_ptr + i)))


OPERATORS = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "&": lambda x, y: x & y, "<<": lambda x, y: x << y,
    "<": lambda x, y: x < y,
}  # fmt: skip


def type_of(sign: str, a: str, b: str) -> str:
    """The type that the language gives an operator's result."""
    from blockarray.compiler.ir import Type, Value
    from blockarray.language import emit, types
    from blockarray.language.values import Tensor

    with emit.building(emit.Builder("k")):
        x, y = (Tensor(Value(Type(d, (8,))), types.OF_IR[d], (8,)) for d in (a, b))
        return OPERATORS[sign](x, y).dtype.ir


@pytest.mark.parametrize(
    ("a", "b", "add", "divide"),
    [
        ("f16", "f16", "f16", "f32"), ("f16", "bf16", "f16", "f32"), ("bf16", "bf16", "bf16", "f32"),
        ("bf16", "i32", "f32", "f32"), ("f16", "i64", "f16", "f32"), ("f32", "f16", "f32", "f32"),
        ("f64", "f32", "f64", "f64"), ("i8", "i16", "i16", "f32"), ("i32", "i64", "i64", "f32"),
        ("u8", "u32", "u32", "f32"), ("f32", "i64", "f32", "f32"), ("bool", "i32", "i32", None),
        ("i32", "u32", "u32", None), ("i64", "u32", "i64", None), ("u8", "i8", "u8", None),
        ("f8e4m3", "f8e5m2", "f16", "f16"), ("f8e4m3", "f16", "f16", "f32"),
    ],
)  # fmt: skip
def test_types_of_results(a, b, add, divide):
    assert type_of("+", a, b) == type_of("+", b, a) == add
    assert type_of("<", a, b) == "bool"
    if divide is None:
        with pytest.raises(CompilationError, match="one signedness"):
            type_of("/", a, b)
    elif divide != "f16":
        assert type_of("/", a, b) == divide


def with_number(x_ptr, o_ptr, f: tl.constexpr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, f(x))


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [("f16", 2.5, "f16"), ("f16", 3, "f16"), ("i8", 3, "i8"), ("i8", 2.5, "f32"), ("i32", 2**40, None),
     ("u8", 200, "u8"), ("bool", 1, "i32"), ("f32", 1e300, "f32"), ("i64", 1e300, "f64"), ("bf16", True, "bf16")],
)  # fmt: skip
def test_numbers_are_weak(dtype, number, expected):
    from blockarray.compiler.ir import Type, Value
    from blockarray.language import emit, types
    from blockarray.language.values import Tensor

    with emit.building(emit.Builder("k")):
        x = Tensor(Value(Type(dtype, (8,))), types.OF_IR[dtype], (8,))
        if expected is None:
            with pytest.raises(CompilationError, match="out of range for int32"):
                x + number
        else:
            assert (x + number).dtype.ir == (number + x).dtype.ir == expected


def test_unsigned_and_negative_numbers_do_not_mix():
    def kernel(x_ptr, o_ptr):
        tl.store(o_ptr, tl.load(x_ptr) + -1)

    with pytest.raises(CompilationError, match="-1 is negative, and the other operand is unsigned"):
        compiled(kernel, x_ptr=np.zeros(1, "u4"), o_ptr=np.zeros(1, "u4"))


def quotient(x_ptr, y_ptr, q_ptr, r_ptr):
    i = tl.arange(0, 8)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(q_ptr + i, x // y)
    tl.store(r_ptr + i, x % y)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u4", "u8"])
def test_integers_divide_as_in_c(dtype):
    x = np.array([7, 7, 9, 100, 0, 5, 127, 6], dtype)
    y = np.array([2, 3, 9, 7, 4, 6, 1, 4], dtype)
    if dtype[0] == "i":
        x[:4] *= np.array([-1, 1, -1, 1], dtype)
        y[:4] *= np.array([1, -1, -1, 1], dtype)
    q, r = np.zeros_like(x), np.zeros_like(x)
    launch(quotient, x_ptr=x, y_ptr=y, q_ptr=q, r_ptr=r)
    np.testing.assert_array_equal(q, np.trunc(x / y).astype(dtype))
    np.testing.assert_array_equal(r, np.fmod(x, y))


def operators(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 8)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(o_ptr + i, x + y)
    tl.store(o_ptr + 8 + i, x - y)
    tl.store(o_ptr + 16 + i, x * y)
    tl.store(o_ptr + 24 + i, x & y)
    tl.store(o_ptr + 32 + i, x | y)
    tl.store(o_ptr + 40 + i, x ^ y)
    tl.store(o_ptr + 48 + i, x << 3)
    tl.store(o_ptr + 56 + i, x >> 2)
    tl.store(o_ptr + 64 + i, ~x)
    tl.store(o_ptr + 72 + i, -x)
    tl.store(o_ptr + 80 + i, 5 - x)
    tl.store(o_ptr + 88 + i, +x)
    tl.store(o_ptr + 96 + i, tl.abs(x))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integer_operators(dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x, y = (rng.integers(info.min, info.max, N, dtype, endpoint=True) for _ in range(2))
    o = np.zeros(13 * N, dtype)
    launch(operators, x_ptr=x, y_ptr=y, o_ptr=o)
    with np.errstate(all="ignore"):
        five = np.array(5, dtype)
        expected = [x + y, x - y, x * y, x & y, x | y, x ^ y, x << 3, x >> 2, ~x, -x, five - x, x, np.abs(x)]
    np.testing.assert_array_equal(o.reshape(13, N), expected)


def comparisons(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 8)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(o_ptr + i, x < y)
    tl.store(o_ptr + 8 + i, x <= y)
    tl.store(o_ptr + 16 + i, x > y)
    tl.store(o_ptr + 24 + i, x >= y)
    tl.store(o_ptr + 32 + i, x == y)
    tl.store(o_ptr + 40 + i, x != y)
    tl.store(o_ptr + 48 + i, (x < y) & (x < 1) | ~(y == y))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1"])
def test_comparisons(dtype):
    x = np.array([0, 1, 2, 3, 4, 5, 1, 0], dtype)
    y = np.array([1, 1, 1, 9, 4, 0, 2, 0], dtype)
    if dtype[0] == "f":
        x[6], y[7] = np.nan, np.nan
    o = np.zeros(7 * N, np.bool_)
    launch(comparisons, x_ptr=x, y_ptr=y, o_ptr=o)
    expected = [x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) & (x < 1) | ~(y == y)]
    np.testing.assert_array_equal(o.reshape(7, N), expected)


def convert(x_ptr, o_ptr):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(o_ptr.dtype.element_ty))


@pytest.mark.parametrize("target", ["bool", "i8", "u16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("source", ["bool", "i8", "u32", "i64", "f16", "bf16", "f32", "f64", "f8e5m2"])
def test_conversions(source, target):
    from blockarray.compiler.dtypes import cast_array

    x = cast_array(np.array([0, 1, -1, 2.5, 100, -3.75, 7, 0.0]), NUMPY[source])
    o = np.zeros(N, NUMPY[target])
    launch(convert, x_ptr=x, o_ptr=o)
    np.testing.assert_array_equal(o.astype("f8"), cast_array(x, NUMPY[target]).astype("f8"))


def bits(x_ptr, o_ptr):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(tl.int32, bitcast=True))


def towards_zero(x_ptr, o_ptr, dtype: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(dtype, fp_downcast_rounding="rtz"))


def test_bitcasts_and_rounding():
    x = np.array([1.0, -0.0, np.nan, np.inf, 1e-40, -3.3, 7, 0], "f4")
    o = np.zeros(N, "i4")
    launch(bits, x_ptr=x, o_ptr=o)
    np.testing.assert_array_equal(o, x.view("i4"))
    x = np.array([1 + 2**-11 + 2**-12, -1 - 2**-11 - 2**-12, 70000, -70000, np.inf, np.nan, 3e-8, 0.1], "f4")
    half = np.zeros(N, "f2")
    launch(towards_zero, x_ptr=x, o_ptr=half, dtype=tl.float16)
    np.testing.assert_array_equal(half, np.array([1, -1, 65504, -65504, np.inf, np.nan, 0, 0.0999755859375], "f2"))


def test_floats_of_8_bits_saturate():
    x = np.array([1e9, -500, 448, 60000, np.inf, -np.inf, np.nan, 0.3], "f4")
    for name, most in (("f8e4m3", 448), ("f8e5m2", 57344)):
        o = np.zeros(N, NUMPY[name])
        launch(convert, x_ptr=x, o_ptr=o)
        np.testing.assert_array_equal(o.astype("f8"), np.clip(x, -most, most).astype(NUMPY[name]).astype("f8"))


def ints_to_floats(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, tl.load(x_ptr + i) / tl.load(y_ptr + i))


def test_integers_divide_in_float32():
    x, y = np.arange(8), np.arange(1, 9)
    o = np.zeros(N, "f8")
    launch(ints_to_floats, x_ptr=x, y_ptr=y, o_ptr=o)
    np.testing.assert_array_equal(o, (x.astype("f4") / y.astype("f4")).astype("f8"))


def constants(o_ptr):
    a = 7
    b = -2
    tl.store(o_ptr, a // b)
    tl.store(o_ptr + 1, a % b)
    tl.store(o_ptr + 2, (a << 3) + (b >> 1))
    tl.store(o_ptr + 3, 2147483647 + a)
    tl.store(o_ptr + 4, a if a > b else b)


def test_constants_fold():
    o = np.zeros(5, "i4")
    launch(constants, o_ptr=o)
    np.testing.assert_array_equal(o, [-3, 1, 55, -2147483642, 7])
    ops = [op.name for op in compiled(constants, o_ptr=o).walk()]
    assert set(ops) == {"const", "store_ptr"}
