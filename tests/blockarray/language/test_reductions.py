"""Reductions and scans, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.compiler.dtypes import NUMPY
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, jit, launch

SHAPE = (4, 16)


def apply(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, count: tl.constexpr, f: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    y = f(x)
    tl.store(o_ptr + tl.arange(0, count), tl.reshape(y, (count,)))


def reduced(x: np.ndarray, f, out: str, count: int, rtol: float = 0) -> np.ndarray:
    o = np.zeros(count, NUMPY[out])
    launch(apply, x_ptr=x, o_ptr=o, M=x.shape[0], N=x.shape[1], count=count, f=jit(f), rtol=rtol)
    return o


def block(dtype: str = "f4", shape: tuple[int, int] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(-9, 9, shape) if dtype[0] != "u" else rng.integers(0, 9, shape)).astype(dtype)


def sum0(x):
    tl.static_assert(tl.sum(x, 0).dtype == (tl.float32 if x.dtype.is_floating() else x.dtype))
    return tl.sum(x, axis=0)


def sum1(x):
    return x.sum(1)


def sum_all(x):
    return tl.sum(x)


def kept(x):
    return x - tl.sum(x, axis=1, keep_dims=True)


@pytest.mark.parametrize("shape", [(4, 16), (1, 16), (16, 1), (1, 1)])
def test_sums(shape):
    x = block("i4", shape)
    np.testing.assert_array_equal(reduced(x, sum0, "i32", shape[1]), x.sum(0))
    np.testing.assert_array_equal(reduced(x, sum1, "i32", shape[0]), x.sum(1))
    np.testing.assert_array_equal(reduced(x, sum_all, "i32", 1), [x.sum()])
    np.testing.assert_array_equal(reduced(x, kept, "i32", x.size), (x - x.sum(1, keepdims=True)).ravel())


def maximum(x):
    return tl.max(x, 1)


def minimum(x):
    return tl.min(x, axis=0)


def position(x):
    return tl.argmax(x, 1)


def position0(x):
    return x.argmin(0)


def with_indices(x):
    value, index = tl.max(x, axis=1, return_indices=True)
    return value * 100 + index


@pytest.mark.parametrize("shape", [(4, 16), (1, 16), (16, 1)])
def test_extremes(shape):
    x = block("i4", shape)
    np.testing.assert_array_equal(reduced(x, maximum, "i32", shape[0]), x.max(1))
    np.testing.assert_array_equal(reduced(x, minimum, "i32", shape[1]), x.min(0))
    np.testing.assert_array_equal(reduced(x, position, "i32", shape[0]), x.argmax(1))
    np.testing.assert_array_equal(reduced(x, position0, "i32", shape[1]), x.argmin(0))
    np.testing.assert_array_equal(reduced(x, with_indices, "i32", shape[0]), x.max(1) * 100 + x.argmax(1))


def extremes(x):
    return tl.max(x, 1) - tl.reduce(x, 1, smaller)


@jit
def smaller(a, b):
    return tl.minimum(a, b)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_extrema_pass_over_nan(dtype):
    x = block(dtype)
    x[0, ::3] = x[1, 0] = x[2, 1:] = x[3] = np.nan
    with np.errstate(all="ignore"):
        want = np.fmax.reduce(x, 1) - np.fmin.reduce(x, 1)
    np.testing.assert_array_equal(reduced(x, extremes, "f64", SHAPE[0]), want)


def types(x):
    tl.static_print(tl.sum(x).dtype, tl.max(x).dtype, tl.cumsum(x).dtype)
    return tl.sum(x, 0)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bool", "uint32 int32 uint32"), ("i8", "int32 int32 int32"), ("u16", "uint32 int32 uint32"),
     ("i64", "int64 int64 int64"), ("f16", "fp16 fp32 fp16"), ("bf16", "fp32 fp32 fp32"), ("f32", "fp32 fp32 fp32")],
)  # fmt: skip
def test_types(dtype, expected, capsys):
    x = np.zeros(SHAPE, NUMPY[dtype])
    compiled(apply, x_ptr=x, o_ptr=np.zeros(16, "f4"), M=4, N=16, count=16, f=jit(types))
    assert capsys.readouterr().out.strip() == expected


def exclusive(x):
    return tl.xor_sum(x, 1)


def ored(x):
    return tl.reduce_or(x, 0)


def parity(x):
    return tl.sum(x != 0, 0, dtype=tl.int1).to(tl.int32)


def test_bits():
    x = block("u4")
    np.testing.assert_array_equal(reduced(x, exclusive, "u32", 4), np.bitwise_xor.reduce(x, 1))
    np.testing.assert_array_equal(reduced(x, parity, "u32", 16), (x != 0).sum(0) % 2)
    np.testing.assert_array_equal(reduced(x, ored, "u32", 16), np.bitwise_or.reduce(x, 0))


@jit
def add(a, b):
    return a + b


@jit
def larger(a, b):
    return a if a > b else b


@jit
def signed(a, b):
    if a > b:
        r = a * 1
    else:
        r = b
    return r


@jit
def welford(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    d = m2 - m1
    return m1 + d * n2 / n, s1 + s2 + d * d * n1 * n2 / n, n


def added(x):
    return tl.reduce(x, 0, add)


def chosen(x):
    return tl.reduce(x, axis=1, combine_fn=larger, keep_dims=True)


def branched(x):
    return tl.reduce(x, None, signed)


def variances(x):
    _, s, n = tl.reduce((x, tl.zeros_like(x), tl.full(x.shape, 1.0, tl.float32)), 1, welford)
    return s / n


def test_functions_of_the_user():
    x = block()
    np.testing.assert_array_equal(reduced(x, added, "f32", 16), x.sum(0))
    np.testing.assert_array_equal(reduced(x, chosen, "f32", 4), x.max(1))
    np.testing.assert_array_equal(reduced(x, branched, "f32", 1), [x.max()])
    np.testing.assert_allclose(reduced(x, variances, "f32", 4, rtol=1e-6), x.var(1), rtol=1e-5)
    names = [op.name for op in compiled(apply, x_ptr=x, o_ptr=x, M=4, N=16, count=16, f=jit(added)).walk()]
    assert "reduce" in names and "reduce_by" not in names


def running(x):
    return tl.cumsum(x, 1)


def running_back(x):
    return x.cumsum(axis=0, reverse=True)


def products(x):
    return tl.cumprod(x, axis=1)


def running_by(x):
    return tl.associative_scan(x, 1, larger)


def running_by_back(x):
    return tl.associative_scan(x, 0, larger, reverse=True)


@jit
def recurrence(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


def recurrent(x):
    _, b = tl.associative_scan((x * 0 + 0.5, x), 1, recurrence)
    return b


@pytest.mark.parametrize("shape", [(4, 16), (1, 16), (16, 1)])
def test_scans(shape):
    x = block("f4", shape)
    n = x.size
    np.testing.assert_array_equal(reduced(x, running, "f32", n), x.cumsum(1).ravel())
    np.testing.assert_array_equal(reduced(x, running_back, "f32", n), x[::-1].cumsum(0)[::-1].ravel())
    np.testing.assert_array_equal(reduced(x, products, "f32", n), x.cumprod(1).ravel())
    np.testing.assert_array_equal(reduced(x, running_by, "f32", n), np.maximum.accumulate(x, 1).ravel())
    back = np.maximum.accumulate(x[::-1], 0)[::-1]
    np.testing.assert_array_equal(reduced(x, running_by_back, "f32", n), back.ravel())
    expected = np.zeros_like(x)
    for k in range(shape[1]):
        expected[:, k] = x[:, k] + (0.5 * expected[:, k - 1] if k else 0)
    np.testing.assert_allclose(reduced(x, recurrent, "f32", n), expected.ravel(), rtol=1e-6)


def weights(x):
    return tl.softmax(x, 1)


def logistic(x):
    return tl.sigmoid(x)


def test_softmax_and_sigmoid():
    x = block()
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(reduced(x, weights, "f32", 64), (e / e.sum(1, keepdims=True)).ravel(), rtol=1e-6)
    np.testing.assert_allclose(reduced(x, logistic, "f32", 64), (1 / (1 + np.exp(-x))).ravel(), rtol=1e-6)


def wide(x):
    return tl.reduce(x, 0, pair)


@jit
def pair(a, b):
    return a, b


def test_what_joins_gives_as_many():
    with pytest.raises(CompilationError, match="the combining function gives 2 values for 1"):
        reduced(block(), wide, "f32", 16)
    with pytest.raises(CompilationError, match="axis 2 is out of range for 2 dims"):
        reduced(block(), beyond, "f32", 16)


def beyond(x):
    return tl.sum(x, 2)
