"""Subscripts against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockarray as xp
from blockarray import Array
from tests.support import assert_same

SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 1, 3), (4, 0, 2), (2, 3, 4)]


@st.composite
def keys(draw: Any, shape: tuple[int, ...], arrays: bool) -> tuple[Any, ...]:
    """A valid subscript, now and then one that is out of bounds."""
    key: list[Any] = []
    axis = 0
    extent = draw(st.sampled_from([1, 2, 3]))
    while axis < len(shape) and draw(st.integers(0, 9)):
        n = shape[axis]
        kind = draw(st.sampled_from(["slice", "int", "slice", *(("ints", "mask") if arrays else ())]))
        if kind == "slice":
            bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = st.sampled_from([None, 1, 2, -1, -2, 3])
            key.append(slice(draw(bound), draw(bound), draw(step)))
        elif kind == "int":
            key.append(draw(st.integers(-n, n)))
        elif kind == "ints":
            values = draw(st.lists(st.integers(-n, max(n - 1, 0)), min_size=extent, max_size=extent))
            key.append(np.array(values).reshape(draw(st.sampled_from([(extent,), (extent, 1), (1, extent)]))))
        else:
            count = draw(st.integers(1, 2)) if axis + 1 < len(shape) else 1
            own = shape[axis : axis + count]
            bits = draw(st.lists(st.booleans(), min_size=int(np.prod(own)), max_size=int(np.prod(own))))
            key.append(np.array(bits, bool).reshape(own))
            axis += count - 1
        axis += 1
        if not draw(st.integers(0, 7)):
            key.insert(draw(st.integers(0, len(key))), None)
    if not draw(st.integers(0, 3)):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    return tuple(key)


def ours(key: Any) -> Any:
    """The key with Arrays for every other array."""
    return tuple(xp.asarray(k) if isinstance(k, np.ndarray) and k.sum() % 2 else k for k in key)


def outcome(function: Any) -> Any:
    try:
        return function()
    except (IndexError, ValueError) as error:
        return type(error)


@given(st.data(), st.sampled_from(SHAPES), st.booleans())
@settings(max_examples=300, deadline=None)
def test_get(data: Any, shape: tuple[int, ...], arrays: bool) -> None:
    key = data.draw(keys(shape, arrays))
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    want = outcome(lambda: a[key])
    got = outcome(lambda: np.asarray(xp.asarray(a)[ours(key)]))
    if isinstance(want, type):
        assert got is want, (key, got)
    else:
        assert not isinstance(got, type), (key, got)
        assert_same(got, want, str(key))


@given(st.data(), st.sampled_from(SHAPES), st.booleans())
@settings(max_examples=300, deadline=None)
def test_view_of_view_and_write(data: Any, shape: tuple[int, ...], arrays: bool) -> None:
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = xp.asarray(a)
    before = x + 1
    first = data.draw(keys(shape, False))
    first = first if Ellipsis in first else (*first, ...)
    try:
        v = a[first]
    except IndexError:
        return
    w = x[first]
    assert_same(w, v)
    second = data.draw(keys(v.shape, arrays))
    want = outcome(lambda: v.__setitem__(second, -7))
    got = outcome(lambda: w.__setitem__(ours(second), -7))
    if want in (IndexError, ValueError):
        assert got is want
    else:
        assert got is None
    assert_same(x, a, f"{first} {second}")
    assert_same(w, v)
    assert_same(before, np.arange(a.size).reshape(shape) + 1)


@pytest.mark.parametrize(
    "key",
    [
        (0, slice(None), [1, 0]),
        ([1, 0], slice(None), [0, 3]),
        (slice(None), [1, 0], [0, 3]),
        (None, [0, 1], slice(1, 3), None),
        ([0, 1], None, [0, 1]),
        (slice(None), 1, [0, 3]),
        (..., [0, 1]),
        ([[0, 1], [1, 0]], ..., 2),
        (True,),
        (False, [0]),
        (slice(None), True, [0, 2]),
        (np.array([True, False]), slice(None), [0, 1]),
        (np.array([True, False]), [2]),
        (np.int64(1), np.array(2)),
        ([],),
        (np.zeros((2, 3), bool),),
    ],
)
def test_placement(key: Any) -> None:
    a = np.arange(24).reshape(2, 3, 4)
    assert_same(xp.asarray(a)[key], a[key], str(key))
    b, x = a.copy(), xp.asarray(a)
    value = np.arange(a[key].size).reshape(a[key].shape)
    b[key] = value
    x[key] = xp.asarray(value)
    assert_same(x, b, str(key))
    b[key] += 1
    x[key] += 1
    assert_same(x, b, str(key))


@pytest.mark.parametrize(
    "key",
    [9, -4, (0, 9), (0, 0, 0), "x", 1.5, [9], [0, -4], (0, [9]), np.zeros(4, bool), np.zeros((3, 5), bool), (..., ...),
     ([0, 1], [0, 1, 2]), slice(None, None, 0), [0.5]],
)  # fmt: skip
def test_bad_keys(key: Any) -> None:
    a = np.arange(12).reshape(3, 4)
    with pytest.raises((IndexError, ValueError)) as want:
        a[key]
    with pytest.raises(want.type):
        xp.asarray(a)[key]
    with pytest.raises(want.type):
        xp.asarray(a)[key] = 0


def test_zero_dimensional_arrays_are_integers() -> None:
    a = xp.arange(6) * 10
    i = xp.sum(xp.ones(3, dtype=xp.int64))
    assert int(a[i]) == 30 and a[i].shape == ()
    assert a[i - 2 : i].tolist() == [10, 20]
    assert xp.take(a, i).shape == () and int(xp.take(a, i)) == 30


def test_mask_assignment() -> None:
    a = np.arange(12.0).reshape(3, 4)
    x = xp.asarray(a)
    for key, value in (
        (a > 5, 0.5),
        (np.array([True, False, True]), np.arange(4)),
        (a < 3, np.arange((a < 3).sum())),
        (np.array([False, True, False]), [[9, 8, 7, 6]]),
    ):
        a[key] = value
        x[xp.asarray(key)] = xp.asarray(value) if isinstance(value, np.ndarray) else value
        assert_same(x, a)
    with pytest.raises(ValueError):
        x[x > 0] = xp.zeros(2)


def test_take() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    x = xp.asarray(a)
    i = np.array([[2, 0], [-1, 1]])
    for axis in (None, 0, 1, 2, -1):
        j = i % 2
        assert_same(xp.take(x, xp.asarray(j), axis=axis), np.take(a, j, axis=axis))
    assert_same(xp.take(x, i, axis=1, mode="wrap"), np.take(a, i, axis=1, mode="wrap"))
    assert_same(x.take([0, 5]), a.take([0, 5]))
    order = np.argsort(-a, axis=1)
    assert_same(xp.take_along_axis(x, xp.asarray(order), 1), np.take_along_axis(a, order, 1))
    xp.put_along_axis(x, xp.asarray(order[:, :1]), 99, 1)
    np.put_along_axis(a, order[:, :1], 99, 1)
    assert_same(x, a)
    with pytest.raises(IndexError):
        xp.take(x, [7], axis=0)
    with pytest.raises(IndexError):
        np.asarray(xp.take(x, xp.asarray([7]), axis=0))


def test_last_of_equal_indices_wins() -> None:
    x = xp.zeros(3, dtype=xp.int64)
    x[xp.asarray([1, 1, 1])] = xp.asarray([5, 6, 7])
    assert x.tolist() == [0, 7, 0]


def test_iteration() -> None:
    x = xp.asarray([[1, 2], [3, 4]])
    assert [r.tolist() for r in x] == [[1, 2], [3, 4]]
    assert len(x) == 2 and 3 in x and 9 not in x
    assert all(isinstance(r, Array) for r in x)
    with pytest.raises(TypeError):
        iter(xp.asarray(1))
    with pytest.raises(TypeError):
        len(xp.asarray(1))
