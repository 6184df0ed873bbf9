"""Sorting, selection and copies in row-major order: on the tests' device, and on fake GPUs where that is the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests import fake_gpu
from tests.support import assert_same, needs_lazy, xp

pytestmark = needs_lazy


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Any]:
    if request.param == "cpu":
        yield xp.Device("cpu")
    elif pytestconfig.getoption("--device") == "cpu":
        with fake_gpu.installed(1):
            yield xp.devices()[1]
    else:
        yield xp.devices()[1]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(shape) * 5).round(1).astype(dtype)
    if x.dtype.kind == "f":
        for start, v in enumerate((np.nan, 0.0, -0.0, np.inf, -np.inf)):
            x.reshape(-1)[start::17] = v
    return x


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "float64"])
def test_sort_along_axes(device: Any, dtype: str) -> None:
    a = sample(dtype, (5, 30, 4))
    x = xp.asarray(a, device=device)
    for axis in (0, 1, -1, None):
        assert_same(xp.sort(x, axis), np.sort(a, axis))
        assert_same(xp.argsort(x, axis), np.argsort(a, axis, stable=True))
        assert_same(xp.partition(x, 2, axis)[:1], np.sort(a, axis)[:1]) if axis == 0 else None
    order = 29 - np.flip(np.argsort(np.flip(a, 1), 1, stable=True), 1)
    assert_same(xp.argsort(x, 1, descending=True), order)
    assert_same(xp.sort(x, 1, descending=True), np.take_along_axis(a, order, 1))
    assert_same(xp.sort(x[::2, ::-1].T, 0), np.sort(a[::2, ::-1].T, 0))
    assert xp.sort(x[:, :0]).shape == (5, 0, 4)


def test_sorting_is_a_step_of_the_plan(device: Any) -> None:
    x = xp.asarray(sample("float32", (40, 3)), device=device)
    y = xp.sort(x * 2, axis=0) + 1
    steps = xp.explain(y).kernels
    assert len(steps) == 3 and steps[1].name == "sort"
    assert steps[1].kind == ("library call" if device == "cpu" else "routine")
    with xp.profile() as p:
        xp.evaluate(y)
    assert "sort" in [k.name for k in p.kernels]
    z = xp.asarray(sample("float32", (6,)).astype("complex64"), device=device)
    assert_same(xp.sort(z), np.sort(np.asarray(z)))


def test_searchsorted(device: Any) -> None:
    a, v = np.sort(sample("float32", (50,))), sample("float32", (4, 9))
    x, y = xp.asarray(a, device=device), xp.asarray(v, device=device)
    for side in ("left", "right"):
        assert_same(xp.searchsorted(x, y, side=side), np.searchsorted(a, v, side))
        assert_same(xp.searchsorted(x, y.T, side=side), np.searchsorted(a, v.T, side))
        assert_same(xp.searchsorted(x, v, side=side), np.searchsorted(a, v, side))
        assert_same(xp.searchsorted(a, y, side=side), np.searchsorted(a, v, side))
        assert int(xp.searchsorted(x, 0.5, side=side)) == np.searchsorted(a, np.float32(0.5), side)
    order = np.arange(50)[::-1]
    assert_same(xp.searchsorted(x[::-1], y, sorter=xp.asarray(order, device=device)), np.searchsorted(a, v))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_selection(device: Any, dtype: str) -> None:
    a = np.nan_to_num(sample("float32", (6, 20)).round(), posinf=3, neginf=4).astype(dtype)
    x = xp.asarray(a, device=device)
    for got, want in ((x, a), (x.T, a.T), (x[:, ::-3], a[:, ::-3]), (x[:0], a[:0]), (x[0], a[0])):
        for one, other in zip(xp.nonzero(got), np.nonzero(want), strict=True):
            assert_same(one, other)
        assert_same(xp.argwhere(got), np.argwhere(want))
        assert_same(xp.flatnonzero(got), np.flatnonzero(want))
        assert_same(got[got != 0], want[want != 0])
        assert_same(xp.extract(got != 0, got), want[want != 0])
    assert x[x != 0].device is device
    assert_same(x[x[:, 0] != 0], a[a[:, 0] != 0])
    assert_same(x[:, x[0] != 0], a[:, a[0] != 0])
    assert_same(xp.compress(x[0] != 0, x, axis=1), np.compress(a[0] != 0, a, axis=1))
    count = int((a != 0).sum())
    x[x != 0] = xp.arange(count, device=device).astype(dtype)
    a[a != 0] = np.arange(count).astype(dtype)
    assert_same(x, a)


def test_values_for_a_mask(device: Any) -> None:
    a = sample("float32", (6, 20))
    mask = a > 0
    values = np.arange(mask.sum())
    for own in (lambda m: xp.asarray(m, device=device), lambda m: m):
        x, want = xp.asarray(a, device=device), a.copy()
        x[own(mask)] = xp.asarray(values, device=device)
        want[mask] = values
        assert_same(x, want)
        x.T[own(mask.T)] = values * 0.5
        want.T[mask.T] = values * 0.5
        x[own(mask)] += 1
        want[mask] += 1
        x[own(~mask)] = [7]
        want[~mask] = [7]
        x[own(mask & False)] = np.zeros(0)
        assert_same(x, want)
        with pytest.raises(ValueError, match="shape"):
            x[own(mask)] = values[1:]


@pytest.mark.parametrize("dtype", ["float64", "uint8", "bool"])
def test_unique(device: Any, dtype: str) -> None:
    a = sample(dtype, (9, 11)) if dtype != "uint8" else np.arange(99, dtype="u1").reshape(9, 11) % 7
    x = xp.asarray(a, device=device)
    for one, other in zip(xp.unique(x, True, True, True), np.unique(a, True, True, True), strict=True):
        assert_same(one, other)
    assert_same(xp.unique(x, equal_nan=False), np.unique(a, equal_nan=False))
    # Which NaN is first is not said.
    a = np.nan_to_num(a)
    x = xp.asarray(a, device=device)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        got = getattr(xp, name)(x)
        assert all(r.device is device for r in got)
        for one, other in zip(got, getattr(np, name)(a), strict=True):
            assert_same(one, other, name)
    assert_same(xp.sort(xp.unique_values(x)), np.sort(np.unique_values(a)))
    assert xp.unique(x[:0]).shape == (0,)


def test_sets(device: Any) -> None:
    a, b = sample("float32", (40,)).round(), sample("float64", (5, 6)).round()
    x, y = xp.asarray(a, device=device), xp.asarray(b, device=device)
    for name in ("isin", "union1d", "intersect1d", "setdiff1d", "setxor1d"):
        assert_same(getattr(xp, name)(x, y), getattr(np, name)(a, b), name)
        assert_same(getattr(xp, name)(y, x), getattr(np, name)(b, a), name)
        mixed = getattr(xp, name)(x, b)
        assert mixed.device is device
        assert_same(mixed, getattr(np, name)(a, b), name)
    keys = np.arange(120).reshape(3, 8, 5) * 7 % 4
    for axis in (0, 1):
        assert_same(xp.lexsort(xp.asarray(keys, device=device), axis), np.lexsort(keys, axis))


def test_counts(device: Any) -> None:
    a = np.nan_to_num(sample("float32", (300,)), posinf=3, neginf=4)
    for d in (a, (a * 9).astype(np.int16), a > 0):
        x = xp.asarray(d, device=device)
        cases: Any = ((10, {}), (7, {"range": (-1, 1)}), ([-1, 0, 0.5, 3], {}), (5, {"density": True}))
        for bins, options in cases:
            with np.errstate(all="ignore"):
                for got, want in zip(xp.histogram(x, bins, **options), np.histogram(d, bins, **options), strict=True):
                    assert_same(got, want)
    n = np.arange(99) % 13
    for minlength in (0, 5, 50):
        assert_same(xp.bincount(xp.asarray(n, device=device), minlength=minlength), np.bincount(n, minlength=minlength))
    with pytest.raises(ValueError, match="negative"):
        xp.bincount(xp.asarray([1, -1], device=device))


def test_weights(device: Any) -> None:
    rng = np.random.default_rng(5)
    # Segments within a block of values, of whole blocks and of parts of several; of one place, and of none.
    for size, places in ((1, 1), (32, 1), (33, 1), (1100, 1), (1500, 7), (700, 900)):
        n, w = rng.integers(0, places, size), rng.standard_normal(size)
        x, weights = xp.asarray(n, device=device), xp.asarray(w, device=device)
        np.testing.assert_allclose(xp.bincount(x, weights, 20), np.bincount(n, w, 20), 1e-12, 1e-12)
    w[5] = np.nan
    found, want = xp.bincount(x, xp.asarray(w, device=device)), np.bincount(n, w)
    assert (np.isnan(found) == np.isnan(want)).all()
    y = rng.random(700)
    for v, options in ((w[::-1], {}), (n, {"density": True}), (w.astype("f4"), {"bins": 3, "range": (0.2, 0.7)})):
        v = np.nan_to_num(v)
        counts, edges = xp.histogram(xp.asarray(y, device=device), weights=xp.asarray(v, device=device), **options)
        want: Any = np.histogram(y, weights=v, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert counts.dtype == want[0].dtype
        np.testing.assert_allclose(counts, want[0], 1e-5, 1e-5)
        assert_same(edges, want[1])
    with pytest.raises(ValueError, match="length"):
        xp.bincount(x, xp.asarray([1.0], device=device))


@pytest.mark.parametrize("far", [False, True])
def test_many_values_at_equal_places(device: Any, far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW", "MANY", "NEAR") if far else ("FEW",):
        monkeypatch.setattr(xp.indexing, name, 16)
    rng = np.random.default_rng(6)

    def check(shape: tuple[int, ...], key: tuple[Any, ...], value: Any) -> None:
        want = rng.random(shape).astype("f4")
        x = xp.asarray(want.copy(), device=device)
        x[tuple([xp.asarray(k, device=device) if isinstance(k, np.ndarray) else k for k in key])] = (
            xp.asarray(value, device=device) if isinstance(value, np.ndarray) else value
        )
        want[key] = value
        assert_same(x, want)

    def places(n: int, *shape: int) -> np.ndarray:
        return rng.integers(-n, n, shape)

    values = lambda *shape: rng.random(shape, dtype=np.float32)
    check((50,), (places(50, 300),), values(300))
    check((50,), (places(50, 300),), 3)
    check((9, 4), (places(9, 60),), values(60, 4))
    check((9, 4), (places(9, 60),), values(4))
    check((9, 4), (places(9, 60),), values(60, 1))
    check((20, 30), (places(20, 15, 1), places(30, 1, 20)), values(15, 20))
    check((5, 20, 7), (slice(None, None, 2), places(20, 40), slice(1, 5)), values(3, 40, 4))
    x, a, n = xp.asarray(np.arange(60.0), device=device), np.arange(60.0), places(60, 200)
    index = xp.asarray(n, device=device)
    # What is assigned is computed from what was there before.
    x[index] = x[index][::-1] * 2
    a[n] = a[n][::-1] * 2
    assert_same(x, a)
    with pytest.raises(IndexError):
        x[xp.asarray(np.full(20, 60), device=device)] = xp.asarray(np.arange(20.0), device=device)
        np.asarray(x)


def test_order_statistics(device: Any) -> None:
    for dtype in ("float32", "int32"):
        a = sample(dtype, (5, 8, 3))
        a[:2] = 1
        x = xp.asarray(a, device=device)
        to = np.float32 if dtype == "float32" else np.float64
        for axis in (None, 1, (0, 2)):
            for keep in (False, True):
                with np.errstate(invalid="ignore"):
                    want = (
                        np.median(a, axis, keepdims=keep),
                        np.quantile(a, np.array([0.1, 0.5, 1]), axis, keepdims=keep),
                    )
                assert_same(xp.median(x, axis, keepdims=keep), np.asarray(want[0], to))
                assert_same(xp.quantile(x, [0.1, 0.5, 1], axis, keepdims=keep), np.asarray(want[1], to))
    with pytest.raises(ValueError, match="range"):
        xp.evaluate(xp.percentile(x, 101))


def test_an_index_out_of_bounds_is_told_by_what_depends_on_it(device: Any) -> None:
    x = xp.arange(10.0, device=device)
    bad = x[xp.asarray(np.arange(2000) % 11, device=device)]
    with pytest.raises(IndexError, match="out of bounds"):
        np.asarray(xp.sort(bad))
    with pytest.raises(IndexError, match="out of bounds"):
        bad[bad > 3]
    with pytest.raises(IndexError, match="out of bounds"):
        x[:0][xp.asarray([-1], device=device)] = 1


# -- copies -----------------------------------------------------------------------------------------------------------
def test_a_contiguous_copy_is_one_kernel(device: Any) -> None:
    a = sample("float32", (70, 90))
    x = xp.asarray(a, device=device)
    for y, want in (
        (xp.ascontiguousarray(x.T), a.T),
        (x.T.copy(), a.T),
        (xp.require(x.T, requirements="C"), a.T),
        (xp.ascontiguousarray(x.T + 1), a.T + 1),
        (xp.ascontiguousarray(x[::2, ::-1]), a[::2, ::-1]),
        (xp.ascontiguousarray(xp.broadcast_to(x[0], (4, 90))), np.broadcast_to(a[0], (4, 90))),
    ):
        steps = xp.explain(y).kernels
        assert len(steps) == 1 and "copy" in steps[0].ops
        xp.evaluate(y)
        assert y.strides == np.ascontiguousarray(want).strides
        assert np.asarray(y).flags.c_contiguous
        assert_same(y, want)
    for y in (x.copy("F"), xp.require(x, requirements=["F", "W"]), xp.copy(x.T, "F").T[::1].T.T):
        assert_same(y, a if y.shape == a.shape else a.T)
    assert np.asarray(x.copy("F")).flags.f_contiguous


def test_a_copy_of_what_lies_in_order_costs_nothing(device: Any) -> None:
    x = xp.asarray(sample("float32", (70, 90)), device=device)
    xp.evaluate(x)
    assert xp.ascontiguousarray(x) is x
    assert not xp.explain(x.copy()).kernels
    (step,) = xp.explain((x + 1).copy() * 2).kernels
    assert step.ops == ["add", "multiply"]
    assert xp.ascontiguousarray(3.0).shape == (1,)


def test_writes_to_a_copy_leave_the_rest_alone(device: Any) -> None:
    a = sample("int32", (6, 7))
    x = xp.asarray(a, device=device)
    t = x.T + 1
    c = t.copy()
    d = c * 2
    c[0] = 5
    t[1] = 9
    want = a.T + 1
    copied, kept = want.copy(), want.copy()
    copied[0], kept[1] = 5, 9
    xp.evaluate(d, c, t)
    assert_same(d, want * 2)
    assert_same(c, copied)
    assert_same(t, kept)
    assert_same(x, a)
