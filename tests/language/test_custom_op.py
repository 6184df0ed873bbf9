"""Kernels as operations of the lazy graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl


@ba.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@ba.custom_op
def add(x, y, *, out):
    add_kernel[(ba.cdiv(x.size, 64),)](ba.ravel(x), ba.ravel(y), out, x.size, BLOCK=64)


@ba.jit
def rows_kernel(x, total, largest, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < n, other=0.0)
    tl.store(total + row, tl.sum(v, axis=0))
    tl.store(largest + row, tl.max(v, axis=0).to(tl.float64))


@ba.custom_op(shape=lambda x, scale: [x.shape[:1], x.shape[:1]], dtype=["float32", "float64"], name="row_statistics")
def rows(x, scale=1, *, out):
    total, largest = out
    n = x.shape[1]
    rows_kernel[(x.shape[0],)](x, total, largest, x.strides[0] // 4, n, BLOCK=ba.next_power_of_2(n))
    total *= scale


def data(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("f")


def test_operations_in_lazy_expressions():
    x, y = data(10, 30), data(10, 30)
    a, b = ba.asarray(x), ba.asarray(y)
    z = add(2 * a, b + 1) * 3
    assert "custom operation add" in str(ba.explain(z))
    np.testing.assert_allclose(np.asarray(z), 3 * (2 * x + y + 1), 1e-5, 1e-6)
    # The plan serves other arrays.
    np.testing.assert_allclose(np.asarray(add(2 * b, a + 1) * 3), 3 * (2 * y + x + 1), 1e-5, 1e-6)
    np.testing.assert_array_equal(np.asarray(a), x)


def test_numpy_operands_and_small_arrays():
    x = data(4)
    np.testing.assert_array_equal(np.asarray(add(x, ba.asarray(x))), 2 * x)
    np.testing.assert_array_equal(np.asarray(add(ba.zeros(0, dtype="f"), ba.zeros(0, dtype="f"))), [])


def test_windows_are_operands_as_they_lie():
    x = data(12, 40)
    seen = []

    @ba.custom_op(shape=lambda x: x.shape)
    def doubled(x, *, out):
        seen.append(x.strides)
        out[...] = 2 * x

    a = ba.asarray(x)
    np.testing.assert_array_equal(np.asarray(doubled(a[2:, 5:])), 2 * x[2:, 5:])
    np.testing.assert_array_equal(np.asarray(doubled(a.T)), 2 * x.T)
    assert seen == [(160, 4), (4, 160)]


def test_several_results():
    x = data(5, 9)
    total, largest = rows(ba.asarray(x) * 2, scale=3)
    assert (total.dtype, largest.dtype, total.shape) == (np.float32, np.float64, (5,))
    np.testing.assert_allclose(np.asarray(largest * 2), np.maximum(2 * x.max(1), 0) * 2, 1e-6)
    np.testing.assert_allclose(np.asarray(total), 6 * x.sum(1), 1e-5, 1e-5)
    again, _ = rows(ba.asarray(x), 1)
    np.testing.assert_allclose(np.asarray(again), x.sum(1), 1e-5, 1e-5)
    assert "row_statistics" in str(ba.explain(rows(ba.asarray(x))[1]))


def test_operands_are_not_written_to():
    @ba.custom_op
    def wrong(x, *, out):
        add_kernel[1,](out, out, x, 4, BLOCK=4)

    with pytest.raises(ValueError, match="add_kernel may write to out: it is read-only"):
        wrong(ba.asarray(data(4))).block_until_ready()


def test_failures_publish_nothing():
    calls = []

    @ba.custom_op
    def late(x, *, out):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        out[...] = x

    a = ba.asarray(data(6))
    z = late(a + 1) + 1
    with pytest.raises(RuntimeError, match="not yet"):
        np.asarray(z)
    np.testing.assert_allclose(np.asarray(z), data(6) + 2, 1e-6)


def test_errors():
    with pytest.raises(TypeError, match="bare: the function has no parameter out"):

        @ba.custom_op
        def bare(x):
            pass

    with pytest.raises(TypeError, match="add: missing a required argument"):
        add(data(3))
    with pytest.raises(TypeError, match="add: none of its arguments is an array"):
        add(1, 2)
    with pytest.raises(ZeroDivisionError, match="by_zero: the rule of its shape"):
        ba.custom_op(lambda x, out: None, shape=lambda x: (1 // 0,), name="by_zero")(data(3))
    with pytest.raises(ValueError, match="two: 2 shapes, but 3 dtypes"):
        ba.custom_op(lambda x, out: None, shape=[(1,), (2,)], dtype=["f", "f", "f"], name="two")(data(3))

    def op(**rules):
        return ba.custom_op(lambda x, out: None, name="op", **rules)(data(3))

    assert op(shape=5).shape == op(shape=lambda x: np.array([5])).shape == op(shape=[5]).shape == (5,)
    assert op(dtype=tl.float64).dtype == np.float64
    for rules, error, reason in (
        ({"shape": lambda x: None}, TypeError, "op: a shape is an integer or a tuple of integers, not None"),
        ({"shape": lambda x: (3.0,)}, TypeError, r"op: a shape is an integer or a tuple of integers, not \(3.0,\)"),
        ({"shape": [(3,), "ab"]}, TypeError, "op: a shape is .* not 'ab'"),
        ({"shape": (-3,)}, ValueError, "op: a shape has no negative dimensions"),
        ({"dtype": lambda x: None}, TypeError, "op: its dtype is None"),
        ({"dtype": "nothing"}, TypeError, "op: its dtype is 'nothing'"),
    ):
        with pytest.raises(error, match=reason):
            op(**rules)
    with pytest.raises(TypeError, match="custom_op takes a function that launches kernels, not 3"):
        ba.custom_op(3)
    with pytest.raises(TypeError, match=r"stars: the function is called by names, which \*xs does not take"):
        ba.custom_op(lambda *xs, out: None, name="stars")
    with pytest.raises(TypeError, match="returns returned an array: it is to fill out"):
        np.asarray(ba.custom_op(lambda x, out: x + 1, name="returns")(data(3)))


def test_other_arguments_are_those_of_the_call():
    seen: list[Any] = []

    @ba.custom_op
    def noted(x, k, *, out):
        seen.append(k)
        out[...] = x

    x = ba.asarray(data(6))
    given: list[Any] = [0.0, -0.0, 1, True, [1], {"a": 1}, {2}, np.float32(1)]
    results = [noted(x, k) for k in given]
    given[4].append(2)
    total = results[0]
    for r in results[1:]:
        total = total + r
    np.testing.assert_allclose(np.asarray(total), 8 * data(6), 1e-6)
    assert sorted(map(repr, seen)) == sorted(map(repr, [0.0, -0.0, 1, True, [1], {"a": 1}, {2}, np.float32(1)]))


@dataclass
class Offset:
    value: float


@ba.custom_op(shape=lambda x, offset, more: x.shape, dtype="float32")
def moved(x, offset, more, *, out):
    out[...] = x + offset.value + more[0][0]


def test_arguments_are_those_of_the_call():
    """What an operation is given may change before it runs."""
    x, offset, inner = data(8), Offset(1.0), [10.0]
    y = moved(ba.asarray(x), offset, (inner,))
    offset.value, inner[0] = 5.0, 20.0
    np.testing.assert_allclose(np.asarray(y), x + 11, 1e-6)
