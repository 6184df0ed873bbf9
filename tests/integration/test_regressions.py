"""Kinds of faults that array libraries are prone to, each by small cases of its own.

Values are NumPy's unless a comment says otherwise.
"""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from tests.support import NAMESPACE, assert_same, compiles, evaluate, host, needs_lazy, xp

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]


def both(function: Any, *arrays: np.ndarray, exact: bool = True, **kwargs: Any) -> None:
    """The same call on both sides, on arrays long and short, whole and strided."""
    with np.errstate(all="ignore"):
        want = function(np, *arrays, **kwargs)
        got = function(xp, *map(xp.asarray, arrays), **kwargs)
    if exact:
        assert_same(got, want)
    else:
        assert host(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(host(got), want, rtol=1e-6 if np.asarray(want).dtype == np.float32 else 1e-13)


# -- zero-dimensional arrays ------------------------------------------------------------------------------------------
def test_zero_dimensional_integers_are_indices() -> None:
    a = xp.arange(30, 60)
    k = xp.asarray(np.array([4, 6])).sum()
    assert host(a[k]).shape == () and int(a[k]) == 40
    assert host(a[k - 2 : k + 1]).tolist() == [38, 39, 40]
    assert "abcdefghijklm"[k] == "k" and [7] * int(k) == [7] * 10 and list(range(int(k)))[-1] == 9
    a[k] = 1
    a[k + 1 : k + 3] = xp.asarray(np.array([2, 3]))
    assert host(a)[9:14].tolist() == [39, 1, 2, 3, 43]
    assert host(xp.zeros((int(k), 2))).shape == (10, 2)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_shapes_of_size_one_are_kept(shape: tuple[int, ...]) -> None:
    x = xp.reshape(xp.asarray(5.0), shape)
    assert host(x + 1).shape == shape
    assert host(xp.sqrt(x)).shape == shape
    assert host(xp.sum(x)).shape == ()
    assert host(xp.sum(x, axis=tuple(range(len(shape))), keepdims=True)).shape == shape
    assert host(xp.take(xp.arange(4), xp.reshape(xp.asarray(3), shape))).shape == shape
    assert float(xp.reshape(x, ())) == 5


# -- NaN, infinity, zero and their signs ------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [7, 67])
def test_nan_passes_through_minima_and_maxima(dtype: Any, n: int) -> None:
    """At every position of a vector, from either side."""
    for at in range(0, n, 3):
        a, b = np.arange(n, dtype=dtype), np.arange(n, dtype=dtype)[::-1].copy()
        a[at], b[(at + 1) % n] = np.nan, np.nan
        both(lambda m, p, q: m.maximum(p, q), a, b)
        both(lambda m, p, q: m.minimum(p, q), a, b)
        both(lambda m, p, q: m.fmax(p, q), a, b)
        both(lambda m, p, q: m.fmin(p, q), a, b)
        both(lambda m, p: m.clip(p, 2, 5), a)
        both(lambda m, p: m.max(p), a)
        both(lambda m, p: m.argmin(p), a)
        both(lambda m, p: m.argmax(p), a)
        assert math.isnan(float(xp.min(xp.asarray(a))))


def test_sign_of_special_values() -> None:
    both(lambda m, x: m.sign(x), np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, -5e-324, -3]))
    assert math.isnan(float(xp.sign(xp.asarray(np.array([0.0, np.nan])))[1]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_extreme_integers_are_finite(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.min + 1, 0, info.max - 1, info.max], dtype)
    for name in ("isinf", "isnan", "isfinite", "isposinf", "isneginf"):
        both(lambda m, a, f=name: getattr(m, f)(a), x)
    both(lambda m, a: a == np.inf, x)
    both(lambda m, a: a < np.inf, x)


def test_nothing_is_folded_away_from_floats() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -2.5, 0.0, -0.0, 3])
    for f in (lambda m, a: a * 0, lambda m, a: a - a, lambda m, a: a / a, lambda m, a: a + 0.0, lambda m, a: 0.0 - a,
              lambda m, a: a * 1, lambda m, a: a * -1, lambda m, a: a == a, lambda m, a: a != a, lambda m, a: 0 * a + a,
              lambda m, a: a - 0.0, lambda m, a: m.negative(m.negative(a)), lambda m, a: m.where(a > 0, a, a),
              lambda m, a: 0 / a):  # fmt: skip
        both(f, x)
        with np.errstate(all="ignore"):
            assert np.signbit(host(f(xp, xp.asarray(x)))).tolist()[3:] == np.signbit(f(np, x)).tolist()[3:]


def test_folded_constants_agree_with_run_time() -> None:
    zeros = np.array([0.0, 0.0, -0.0, -0.0]), np.array([0.0, -0.0, 0.0, -0.0])
    both(lambda m, a, b: m.arctan2(a, b), *zeros)
    assert np.signbit(host(xp.arctan2(*map(xp.asarray, zeros)))).tolist() == [False, False, True, True]
    x = np.array([1.0, np.nan, -4.0])
    both(lambda m, a: m.arctan2((a < a).astype(np.float64), (a < a).astype(np.float64)), x)
    both(lambda m, a: m.sqrt((a != a) * -1.0), x)
    both(lambda m, a: m.log((a < a) * 1.0), x)
    for s in (0.0, -0.0):
        both(lambda m, a, s=s: m.arctan2(a * 0, m.full(3, s)), np.array([1.0, -1.0, 2.0]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs_of_zero_remainders(dtype: Any) -> None:
    a = np.array([-2, -9, 9, 0.0, -0.0, 0.0, 5.5, -5.5], dtype)
    b = np.array([2, -3, -3, 4, 4, -4, -2, 2], dtype)
    for f in (np.remainder, np.floor_divide, np.fmod):
        with np.errstate(all="ignore"):
            got, want = host(getattr(xp, f.__name__)(xp.asarray(a), xp.asarray(b))), f(a, b)
        assert_same(got, want)
        assert np.signbit(got).tolist() == np.signbit(want).tolist()


@pytest.mark.parametrize("dtype", [np.float16, *FLOATS])
def test_subnormals_are_numbers(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([tiny, -tiny, tiny * 3, np.finfo(dtype).tiny, 1], dtype)
    for f in (lambda m, a: a != 0, lambda m, a: a * dtype(np.inf), lambda m, a: a + a, lambda m, a: a / dtype(2),
              lambda m, a: m.sqrt(m.abs(a)), lambda m, a: m.maximum(a, 0), lambda m, a: a[:2] - a[1:3]):  # fmt: skip
        both(f, x)


# -- integers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_every_division_of_bytes(dtype: Any) -> None:
    info = np.iinfo(dtype)
    every = np.arange(info.min, info.max + 1).astype(dtype)
    a, b = np.repeat(every, 256), np.tile(every, 256)
    both(lambda m, p, q: p // q, a, b)
    both(lambda m, p, q: p % q, a, b)
    both(lambda m, p, q: m.fmod(p, q), a, b)
    with np.errstate(all="ignore"):
        q, r = host(xp.asarray(a) // xp.asarray(b)), host(xp.asarray(a) % xp.asarray(b))
    fit = (b != 0) & ~((a == info.min) & (b.astype(int) == -1))
    assert all(
        (int(x) // int(y), int(x) % int(y)) == (int(p), int(s)) for x, y, p, s in zip(a[fit], b[fit], q[fit], r[fit])
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_division_at_the_ends_of_the_range(dtype: Any) -> None:
    info = np.iinfo(dtype)
    odd = np.array([info.min, info.min + 1, 0, 1, 2, 3, 7, info.max // 2, info.max - 1, info.max], dtype)
    if info.min:
        odd = np.concatenate([odd, np.array([-1, -2, -3, -7], dtype)])
    a, b = np.repeat(odd, len(odd)), np.tile(odd, len(odd))
    both(lambda m, p, q: p // q, a, b)
    both(lambda m, p, q: p % q, a, b)
    for divisor in (1, 2, 3, 7, 10, 16):
        both(lambda m, p, d=divisor: p // d + p % d, a)


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS, np.float32])
def test_sums_widen(dtype: Any) -> None:
    a = np.ones((300, 257), dtype)
    for axis in (None, 0, 1):
        both(lambda m, x, axis=axis: m.sum(x, axis=axis), a)
    both(lambda m, x: m.cumsum(x[0]), a)
    both(lambda m, x: m.prod(x[0, :9] + x[1, :9], axis=0), a)
    both(lambda m, x: m.mean(x), a)
    both(lambda m, x: m.max(x, axis=0), a)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_means_of_large_integers(dtype: Any) -> None:
    a = np.full(33, np.iinfo(dtype).max - 1, dtype)
    both(lambda m, x: m.mean(x), a, exact=False)
    both(lambda m, x: m.var(x), np.array([0, np.iinfo(dtype).max], dtype), exact=False)


def test_portable_casts() -> None:
    v = np.array([0.5, 254.99, 3.0, 127.5, 0.0])
    both(lambda m, x: x.astype(np.uint8), np.tile(v, 9))
    both(lambda m, x: x.astype(np.int64).astype(np.uint8), np.tile(-v, 9))
    both(lambda m, x: x.astype(np.int32), np.tile(-v, 9).astype(np.float32))
    both(lambda m, x: x.astype(np.bool_), np.array([0.0, -0.0, np.nan, 1e-300, np.inf]))


# -- arange and searches ----------------------------------------------------------------------------------------------
RANGES = [
    (3.5,), (0.0, 0.9, 0.1), (0.1, 0.7, 0.2), (2, 2.4, 0.1), (0, 0.6, 0.2), (4, -1, -0.8), (5, 5), (7, 2),
    (0.2, 6.1, 0.007), (10**16, 10**16 + 4), (-3, 12, 5), (1, 2**40, 2**38),
]  # fmt: skip


@pytest.mark.parametrize("args", RANGES)
def test_arange_is_numpys_to_the_bit(args: tuple[float, ...]) -> None:
    assert_same(xp.arange(*args), np.arange(*args))
    assert len(xp.arange(*args)) == len(np.arange(*args))


def test_arange_of_narrow_types() -> None:
    for dtype in (np.uint8, np.int16, np.float32):
        assert_same(xp.arange(0, 200, 40, dtype=dtype), np.arange(0, 200, 40, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_among_nans(dtype: Any, side: str) -> None:
    for sorted_ in ([0, 3, 3, 8, np.nan, np.nan], [-5, -1], [np.nan], []):
        h, q = np.array(sorted_, dtype), np.array([np.nan, -6, 0, 3, 7, 9, np.inf, -np.inf], dtype)
        both(lambda m, a, b: m.searchsorted(a, b, side=side), h, q)


@pytest.mark.parametrize("kind", ["float", "complex"])
def test_nans_sort_last(kind: str) -> None:
    if kind == "float":
        both(lambda m, x: m.sort(x), np.array([3, np.nan, -np.inf, 0.0, np.inf, np.nan, -7]))
        both(lambda m, x: m.argsort(x, stable=True), np.array([3, np.nan, -np.inf, 0.5, np.inf, np.nan, -7]))
    else:
        z = np.array([complex(2, np.nan), 2 + 1j, 3, complex(np.nan, 1), 2 - 1j, -1j])
        assert host(xp.argsort(xp.asarray(z)))[:4].tolist() == np.argsort(z)[:4].tolist() == [5, 4, 1, 2]


# -- masks and broadcasts ---------------------------------------------------------------------------------------------
def test_masks_of_every_valid_place() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    m = np.array([True, False, True])
    both(lambda _, x, k: x[:, k], a, m)
    both(lambda _, x, k: x[None, :, k, None], a, m)
    both(lambda _, x, k: x[1, k], a, m)
    both(lambda _, x, k: x[..., k, 0], a, m)
    both(lambda _, x, k: x[k], a, np.zeros((2, 3), bool))
    both(lambda _, x, k: x[k], a, a % 5 == 0)
    both(lambda _, x: x[True], a)
    both(lambda _, x: x[False], a)
    for bad in (np.array([True]), np.ones((3, 2), bool), np.ones(4, bool)):
        with pytest.raises(IndexError):
            host(xp.asarray(a)[xp.asarray(bad)])


def test_broadcasts_of_one_source_keep_their_own_shapes() -> None:
    s = np.arange(4).reshape(1, 4, 1)
    both(lambda m, x: m.broadcast_to(x, (3, 4, 1)) + m.broadcast_to(x, (1, 4, 2)), s)
    both(lambda m, x: m.reshape(m.broadcast_to(x, (3, 4, 1)), (-1,)) * 2, s)
    both(lambda m, x: m.reshape(m.broadcast_to(x, (1, 4, 3)), (-1,)) * 2, s)
    both(lambda m, x: m.sum(m.broadcast_to(x, (3, 4, 2)) + m.broadcast_to(x, (1, 4, 2)), axis=0), s)


def test_broadcasts_are_exported_whole() -> None:
    b = host(xp.broadcast_to(xp.asarray(2.5), (4, 3)))
    assert np.ascontiguousarray(b).tobytes() == np.full((4, 3), 2.5).tobytes()
    both(lambda m, x: m.broadcast_to(x, (2, 3)), np.array([[1], [2]], np.int16))
    assert host(xp.broadcast_to(xp.asarray(np.int8(7)), (9,))).tobytes() == b"\x07" * 9


# -- complex and transcendental functions -----------------------------------------------------------------------------
def test_complex_magnitudes_and_quotients_do_not_overflow() -> None:
    z = np.array([6e300 + 8e300j, 6e-300 + 8e-300j, 5 - 12j])
    np.testing.assert_allclose(host(xp.abs(xp.asarray(z))) / np.array([1e301, 1e-299, 13]), 1)
    assert (
        host(xp.abs(xp.asarray(np.array([complex(-np.inf, np.nan), complex(np.nan, np.inf)])))).tolist() == [np.inf] * 2
    )
    for w in (2e300 - 1e300j, 3e-300 + 1e-300j, 1e300 + 1e-300j):
        x = xp.asarray(np.array([w]))
        np.testing.assert_allclose(host(x / x), 1)
    np.testing.assert_allclose(
        host(xp.hypot(xp.asarray(np.array([6e200, 6e-200])), xp.asarray([8e200, 8e-200]))), [1e201, 1e-199]
    )
    z32 = xp.asarray(np.array([3e30 + 4e30j, 3e-30 + 4e-30j], np.complex64))
    np.testing.assert_allclose(host(xp.abs(z32)), [5e30, 5e-30], rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "tanh", "sinh", "arcsin", "arctan", "arcsinh", "arctanh", "sin", "tan"]
)
def test_odd_functions_are_the_identity_near_zero(name: str) -> None:
    x = np.array([1e-25, -1e-25, 2e-305, 0.0, -0.0])
    got = host(getattr(xp, name)(xp.asarray(x)))
    assert np.array_equal(got, x) and np.signbit(got).tolist() == np.signbit(x).tolist()


def test_functions_at_large_arguments() -> None:
    big = np.array([1e22, -3e15, 2e5, 1e300, 709.5, -745.1, 1000, -1000])
    for name in ("sin", "cos", "tan"):
        np.testing.assert_allclose(host(getattr(xp, name)(xp.asarray(big))), getattr(np, name)(big), rtol=1e-12)
    for name in ("exp", "tanh", "expm1", "arctan", "cosh"):
        both(lambda m, x, f=name: getattr(m, f)(x), big, exact=False)
    single = np.array([3e4, -1e6, 88.5, -104, 1e30], np.float32)
    for name in ("sin", "exp", "tanh"):
        np.testing.assert_allclose(
            host(getattr(xp, name)(xp.asarray(single))),
            getattr(np, name)(single.astype(float)).astype(np.float32),
            2e-6,
        )


def test_log_sums_of_exponentials_at_the_ends() -> None:
    inf = np.inf
    v, w = np.array([-inf, -inf, 2.0, inf, inf, 900.0, -900.0]), np.array([-inf, 1.0, -inf, -inf, inf, 900.0, -900.0])
    both(lambda m, a, b: m.logaddexp(a, b), v, w, exact=False)


def test_products_of_no_elements() -> None:
    for m, k, n in ((3, 0, 2), (0, 4, 2), (3, 4, 0), (0, 0, 0), (1, 0, 1)):
        both(lambda xp, a, b: 2 * xp.matmul(a, b) + 1, np.ones((m, k)), np.ones((k, n)))
    both(lambda xp, a, b: a @ b, np.ones((0, 3, 2)), np.ones((2, 4)))
    both(lambda xp, a, b: a @ b, np.ones((2, 3, 0)), np.ones((2, 0, 4)))
    both(lambda xp, a, b: a @ b, np.ones(0), np.ones(0))


@pytest.mark.parametrize(
    "m, k, n", [(1, 1, 1), (3, 2, 5), (2, 3, 18), (6, 9, 16), (15, 17, 63), (1, 90, 33), (65, 1, 66), (129, 131, 128)]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_products_of_transposed_and_flipped_operands(m: int, k: int, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(m * k + n)
    a, b = rng.integers(-3, 4, (k, m)).astype(dtype), rng.integers(-3, 4, (n, k)).astype(dtype)
    both(lambda xp, p, q: p.T @ q.T, a, b)
    both(lambda xp, p, q: p.T[::-1] @ q.T[:, ::-1], a, b)
    both(lambda xp, p, q: p.T[:, ::2] @ q.T[::2], a, b)
    both(lambda xp, p, q: p.T @ q[0], a, b)
    both(lambda xp, p, q: q[0] @ p, a, b)
    both(lambda xp, p, q: (p + 1).T @ q.T - 2, a, b)


def test_products_of_stacks() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (3, 1, 4, 5)), rng.integers(0, 4, (2, 5, 3))
    both(lambda xp, p, q: p @ q, a, b)
    both(lambda xp, p, q: xp.broadcast_to(p, (3, 2, 4, 5)) @ q[::-1], a, b)


# -- fusion -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [4, 33, 5003])
def test_reductions_are_finished_before_they_are_used(n: int) -> None:
    a = np.linspace(-3, 5, n)
    both(lambda m, x: x / m.max(x), a)
    both(lambda m, x: m.sum((x - m.min(x)) / (m.max(x) - m.min(x))), a, exact=False)
    both(lambda m, x: (x - m.mean(x)) / m.std(x), a, exact=False)
    both(lambda m, x: x[::-1] - m.max(m.cumsum(x)), a, exact=False)


def test_reshape_between_stencil_and_sum() -> None:
    a = np.random.default_rng(0).integers(0, 9, (3, 29, 9, 11)).astype(float)
    both(lambda m, x: m.sum(m.reshape(x[:, :, 1:, :-1] + x[:, :, :-1, 1:], (3, -1)), axis=1), a)
    both(lambda m, x: m.max(m.reshape(x[:, ::2, 1:, ::3] * 2, (3, -1, 4)), axis=(1, 2)), a)
    both(lambda m, x: m.sum(m.reshape(x.T, (-1, 29)), axis=0), a)


def test_python_scalars_stay_weak() -> None:
    x = xp.asarray(np.array([1, 2, 3], np.float32))
    scale = 0.5
    for y in (x * scale, (1.5 + 0.5) * x - 3, 2 * 0.1 * x, x**2, x + True, xp.maximum(x, 0.5), xp.where(x > 1, x, 0.0)):
        assert host(y).dtype == np.float32
    for dtype in INTEGERS:
        assert host(xp.asarray(np.ones(2, dtype)) * 3 + 1).dtype == dtype
    assert host(xp.asarray(np.ones(2, np.float16)) * 2.5).dtype == np.float16


@needs_lazy
def test_scalars_are_neither_stale_nor_compiled_in() -> None:
    x = xp.asarray(np.arange(9))
    evaluate(x * 7 - 7)
    seen = []
    count = 0
    for k in (3, -2, 0, 10):
        count += compiles(lambda k=k: x * k - k)
        seen.append(host(x * k - k).tolist())
    assert seen == [[v * k - k for v in range(9)] for k in (3, -2, 0, 10)]
    assert count == 0


# -- out=, copies and pickles -----------------------------------------------------------------------------------------
def test_outputs_of_any_strides() -> None:
    a, b = np.arange(8.0).reshape(2, 4), np.arange(12.0).reshape(4, 3)
    out = xp.zeros((3, 2)).T
    result = xp.matmul(xp.asarray(a), xp.asarray(b), out=out)
    assert result is out
    assert_same(out, a @ b)
    base = xp.zeros((4, 4))
    xp.multiply(xp.asarray(a), 3, out=base[::2][:, ::-1])
    want = np.zeros((4, 4))
    want[::2][:, ::-1] = a * 3
    assert_same(base, want)
    flipped = xp.zeros((4, 2)).T
    xp.clip(xp.asarray(a), 2, 5, out=flipped)
    assert_same(flipped, np.clip(a, 2, 5))


COPIED = [
    np.arange(12.0).reshape(3, 4).T, np.array(2.5, np.float32), np.zeros((2, 0), np.int8), np.array([1j, 2]),
    np.array([True, False]),
]  # fmt: skip


@pytest.mark.parametrize("array", COPIED, ids=lambda a: f"{a.dtype}{a.shape}")
def test_copies_and_pickles(array: np.ndarray) -> None:
    for x in (xp.asarray(array), xp.asarray(array) if array.dtype == bool else xp.asarray(array) * 1):
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
            assert type(y) is type(x) or NAMESPACE == "numpy"
            assert_same(y, array)


def test_writes_after_evaluation() -> None:
    t = xp.zeros(9)
    evaluate(t)
    host(t)
    t[1::3] = 4
    t[::-4] -= 1
    want = np.zeros(9)
    want[1::3] = 4
    want[::-4] -= 1
    assert_same(t, want)
    np.asarray(t)
    t[2:4] = -1
    want[2:4] = -1
    assert_same(t, want)


@pytest.mark.parametrize("dtype", [np.float16])
def test_mean_of_many_halves(dtype: Any) -> None:
    both(lambda m, x: m.mean(x), np.full(300_001, 6e-5, dtype))
    assert float(xp.mean(xp.asarray(np.full(70, 60000, dtype)))) == 60000
