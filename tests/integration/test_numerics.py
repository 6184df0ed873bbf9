"""Accuracy where a plain formula loses it, and sizes where a 32-bit index or a temporary would not do."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support import NAMESPACE, assert_same, host, run_python, xp

BF16 = np.dtype(ml_dtypes.bfloat16)
not_numpy = pytest.mark.skipif(NAMESPACE == "numpy", reason="NumPy is the weaker one here")


@pytest.mark.parametrize("kind", ["uniform", "constant", "alternating", "wide"])
def test_long_float32_sum(kind: str) -> None:
    n = 2**24 + 13
    rng = np.random.default_rng(1)
    match kind:
        case "uniform":
            a = rng.random(n, dtype=np.float32)
        case "constant":
            a = np.full(n, 0.1, np.float32)
        case "alternating":
            a = rng.random(n, dtype=np.float32)
            a[1::2] *= -1
        case _:
            a = (rng.random(n, dtype=np.float32) ** 8) * 1e6
    exact = float(np.sum(a, dtype=np.longdouble))
    scale = float(np.sum(np.abs(a), dtype=np.float64))
    for view in (a, a[: 2**24].reshape(4096, 4096)):
        want = exact if view is a else float(np.sum(view, dtype=np.longdouble))
        x = xp.asarray(view)
        assert abs(float(xp.sum(x)) - want) <= 12 * 2**-24 * scale
    columns = a[: 2**24].reshape(2**21, 8)
    if NAMESPACE != "numpy":  # NumPy adds down columns one by one
        np.testing.assert_allclose(
            host(xp.sum(xp.asarray(columns), axis=0)),
            columns.sum(axis=0, dtype=np.float64),
            atol=12 * 2**-24 * float(np.abs(columns).sum(axis=0, dtype=np.float64).max()),
        )


@pytest.mark.parametrize("shape, axis", [((20_000,), None), ((20_000, 3), 0), ((3, 20_000), 1)])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_variance_with_a_large_mean(offset: float, shape: tuple[int, ...], axis: int | None) -> None:
    v = (offset + 10 * np.random.default_rng(5).standard_normal(shape)).astype(np.float32)
    want = np.var(v.astype(np.float64), axis=axis)
    got = host(xp.var(xp.asarray(v), axis=axis))
    assert got.dtype == np.float32
    if NAMESPACE == "numpy" and axis == 0:
        return
    assert (got >= 0).all()
    np.testing.assert_allclose(got, want, rtol=1e-3)
    np.testing.assert_allclose(
        host(xp.std(xp.asarray(v), axis=axis, ddof=1)), np.std(v.astype(float), axis, ddof=1), 1e-3
    )


def test_variance_of_constants_and_of_complex() -> None:
    assert float(xp.var(xp.asarray(1e8 + np.array([0.0, 1, 2, 3])))) == 1.25
    assert float(xp.var(xp.asarray(np.full(1000, 0.1)))) < 1e-30
    assert float(xp.var(xp.asarray(np.array([1 + 1j, 1 - 1j])))) == 1.0
    assert float(xp.var(xp.asarray(np.array([0, 255], np.uint8)))) == 127.5**2


@not_numpy
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16], ids=str)
def test_half_precision_accumulates_wider(dtype: np.dtype) -> None:
    small = xp.asarray(np.full(700_001, 4e-5).astype(dtype))
    item = float(np.float64(np.array(4e-5).astype(dtype)))
    mean = xp.mean(small)
    assert host(mean).dtype == dtype
    np.testing.assert_allclose(float(mean), item, rtol=float(ml_dtypes.finfo(dtype).eps))
    total = float(xp.sum(xp.asarray(np.ones(5000).astype(dtype))))
    assert total == float(np.array(5000).astype(dtype))
    np.testing.assert_allclose(float(xp.mean(xp.asarray(np.full(90, 52000).astype(dtype)))), 52000, rtol=1e-2)
    columns = xp.asarray(np.full((5000, 3), 0.3).astype(dtype))
    np.testing.assert_allclose(host(xp.mean(columns, axis=0)).astype(float), 0.3, rtol=1e-2)
    a = np.random.default_rng(0).standard_normal((40, 3000)).astype(dtype)
    b = np.random.default_rng(1).standard_normal((3000, 24)).astype(dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    got = host(xp.asarray(a) @ xp.asarray(b))
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(float), want, rtol=float(ml_dtypes.finfo(dtype).eps), atol=1e-2)
    running = host(xp.cumsum(xp.asarray(np.ones(3000).astype(dtype)))).astype(float)
    np.testing.assert_array_equal(running, np.arange(1, 3001).astype(dtype).astype(float))


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    d = x - xp.max(x, axis=-1, keepdims=True)
    return d - xp.log(xp.sum(xp.exp(d), axis=-1, keepdims=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_extremes(dtype: Any) -> None:
    inf = np.inf
    rows = np.array(
        [
            [1e4, 1e4, -1e4, 0],
            [-1e30, -1e30, -1e30, -1e30],
            [inf, 0, 0, 0],
            [-inf, 0, -inf, 0],
            [-inf, -inf, -inf, -inf],
            [np.nan, 0, 0, 0],
            [88.9, 88.8, 0, -88.9],
            [0, -0.0, 5e-324, -5e-324],
        ],
        dtype,
    )
    with np.errstate(all="ignore"):
        e = np.exp(rows - rows.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True)
        got, logs = host(softmax(xp.asarray(rows))), host(log_softmax(xp.asarray(rows)))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert got[0].tolist() == [0.5, 0.5, 0, 0] and got[3].tolist() == [0, 0.5, 0, 0.5]
    assert np.isnan(got[[2, 4, 5]]).any(axis=-1).all()
    np.testing.assert_allclose(logs[0], [-math.log(2), -math.log(2), -2e4 - math.log(2), -1e4 - math.log(2)], rtol=1e-6)


def test_long_softmax_rows() -> None:
    a = np.random.default_rng(0).standard_normal((3, 300_001)).astype(np.float32) * 5
    wide = a.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(host(softmax(xp.asarray(a))), e / e.sum(-1, keepdims=True), rtol=2e-5)


def test_subnormals_survive() -> None:
    for dtype in (np.float32, np.float64, np.float16):
        info = np.finfo(dtype)
        t = info.smallest_subnormal
        x = xp.asarray(np.array([t, -t, 1], dtype))
        assert host(x != 0).all()
        assert host(x * dtype(2))[0] == t * 2 and host(x + dtype(0))[0] == t
        half = xp.asarray(np.array([info.tiny], dtype)) / 2
        assert float(half[0]) > 0 and float((half * 2)[0]) == info.tiny
        assert host(xp.sum(x[:1]))[()] == t
        assert float(xp.max(x[:1] * dtype(1))) == t


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_integer_sums_widen_and_means_do_not_overflow(dtype: Any) -> None:
    top = np.iinfo(dtype).max
    a = np.full((70, 1001), top, dtype)
    for axis in (None, 0, 1):
        assert_same(xp.sum(xp.asarray(a), axis=axis), np.sum(a, axis=axis))
    pair = xp.asarray(np.array([top, top], dtype))
    assert host(xp.mean(pair)).dtype == np.float64 and float(xp.mean(pair)) == float(top)
    assert_same(xp.prod(xp.asarray(np.full(10, 4, dtype))), np.prod(np.full(10, 4, dtype)))
    assert_same(xp.cumsum(xp.asarray(a[0])), np.cumsum(a[0]))
    assert host(xp.max(pair)).dtype == dtype


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1023, 1025, 4097])
def test_odd_lengths(n: int) -> None:
    """Every tail of a vector loop: exact results for integers held in floats."""
    a = np.random.default_rng(n).integers(-8, 9, (3, n)).astype(np.float32)
    x = xp.asarray(a)
    for f in (lambda m, v: m.sum(v, axis=1), lambda m, v: m.max(v, axis=1), lambda m, v: m.min(v, axis=1),
              lambda m, v: m.sum(v, axis=0), lambda m, v: m.sum(v), lambda m, v: m.argmax(v, axis=1),
              lambda m, v: m.argmin(v), lambda m, v: m.cumsum(v, axis=1), lambda m, v: v[:, ::-1] * 2 - v,
              lambda m, v: m.any(v > 7, axis=1), lambda m, v: v @ v.T, lambda m, v: v.T[: n // 2] + 1):  # fmt: skip
        assert_same(f(xp, x), f(np, a))


def test_huge_broadcast_reductions() -> None:
    """More than 2**31 logical elements; in a process of its own, whose memory must not grow with them."""
    out = run_python(
        """
import importlib, os, resource, numpy as np
xp = importlib.import_module(os.environ.get("BLOCKARRAY_TEST_NAMESPACE", "blockarray"))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small = xp.broadcast_to(xp.asarray(np.uint8(1)), (3, 10))
int(xp.sum(small, dtype=np.int64)); int(xp.max(small))
before = peak()
v = xp.broadcast_to(xp.asarray(np.uint8(1)), (3, 2**30 - 2**28))
assert int(xp.sum(v, dtype=np.int64)) == 9 * 2**28
assert int(xp.max(v)) == 1
print((peak() - before) // 1024)
""",
        timeout=300,
    )
    assert int(out) < 200, f"{out} MiB"


def test_indices_beyond_32_bits() -> None:
    """Views whose positions pass 2**31 and 2**32, although little of them is ever computed."""
    base = xp.asarray(np.arange(5, dtype=np.int64))
    v = xp.broadcast_to(base[:, None], (5, 2**31 + 7))
    assert v.shape == (5, 2**31 + 7)
    assert host(v[:, -3:] + 1).tolist() == [[k + 1] * 3 for k in range(5)]
    assert host(v[3, 2**31 : 2**31 + 2]).tolist() == [3, 3]
    assert host(v[::2, :: 2**30] * 10).tolist() == [[0] * 3, [20] * 3, [40] * 3]
    w = xp.broadcast_to(base, (2**31 + 1, 5))
    assert host(w[2**31] - 1).tolist() == [-1, 0, 1, 2, 3]
    flipped = w[::-1][:: 2**30, ::-1]
    assert host(flipped + 0).tolist() == [[4, 3, 2, 1, 0]] * 3


@not_numpy
def test_a_window_of_a_pending_giant_is_all_that_is_computed() -> None:
    """The whole, although a name holds it, would take 4 GiB."""
    out = run_python(
        """
import resource, numpy as np, blockarray as xp
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def window(n, where):
    x = xp.broadcast_to(xp.asarray(np.arange(4.0))[:, None], (4, n))
    y = xp.sqrt(x + 1)
    return y, np.asarray(y[1:3, where : where + 3])
window(10, 2)
before = peak()
y, read = window(2**27, 12345)
np.testing.assert_array_equal(read, np.sqrt(np.array([[2.0] * 3, [3.0] * 3])))
print((peak() - before) // 1024)
"""
    )
    assert int(out) < 100, f"{out} MiB"


def test_float32_matmul_is_float32_accurate() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((200, 700)).astype(np.float32), rng.standard_normal((700, 150)).astype(np.float32)
    want = a.astype(float) @ b.astype(float)
    bound = np.abs(a.astype(float)) @ np.abs(b.astype(float))
    assert (np.abs(host(xp.asarray(a) @ xp.asarray(b)) - want) <= 16 * 2**-24 * bound).all()


def test_results_are_deterministic() -> None:
    a = np.random.default_rng(0).standard_normal((2000, 501)).astype(np.float32)
    x = xp.asarray(a)
    for f in (
        lambda: xp.sum(x),
        lambda: xp.sum(x, axis=0),
        lambda: xp.var(x, axis=1),
        lambda: x.T @ x,
        lambda: softmax(x),
    ):
        first = host(f()).tobytes()
        assert all(host(f()).tobytes() == first for _ in range(3))


@not_numpy
def test_float_to_integer_casts_saturate() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 300.7, -300.7, -0.9, 254.99, -1.0] * 7)
    for source in (np.float32, np.float64, np.float16, BF16):
        with np.errstate(all="ignore"):
            narrow = a.astype(source)
        for target in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
            info = np.iinfo(target)
            want = [
                0 if math.isnan(v) else info.max if v > info.max else info.min if v < info.min else int(v)
                for v in narrow.astype(float).tolist()
            ]
            for view in (slice(None), slice(1, 4), slice(None, None, -3)):
                got = host(xp.asarray(narrow)[view].astype(target))
                assert got.dtype == target and got.tolist() == want[view], (source, target)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n", [1, 3, 40, 3000])
def test_running_sums_of_negative_zeros(dtype: Any, n: int) -> None:
    a = -np.zeros((2, n), dtype)
    for axis in (0, 1):
        got = host(xp.cumsum(xp.asarray(a), axis=axis))
        assert np.signbit(np.real(got)).all() and (np.signbit(np.imag(got)) == np.signbit(np.imag(a))).all()
