"""What an Array is to Python: views and writes, conversion, printing, pickling, sharing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray import Array
from blockarray.array import LIMIT
from tests.support import assert_same


def both(shape: tuple[int, ...] = (3, 4)) -> tuple[np.ndarray, Array]:
    a = np.arange(float(np.prod(shape))).reshape(shape)
    return a, xp.asarray(a)


@pytest.mark.parametrize(
    "move",
    [
        lambda m, a: m.reshape(a, (4, 3)),
        lambda m, a: m.reshape(a[:, ::-1], (2, 2, 3)),
        lambda m, a: m.reshape(a.T, (-1,)),
        lambda m, a: m.reshape(a[:, :2], (6,)),
        lambda m, a: m.reshape(a, (4, 3), order="F"),
        lambda m, a: a.T,
        lambda m, a: a.mT,
        lambda m, a: m.swapaxes(a, 0, 1)[1:],
        lambda m, a: m.squeeze(a[:, None, :1]),
        lambda m, a: m.expand_dims(a, (0, 2)),
        lambda m, a: m.flip(a, 1),
        lambda m, a: m.rot90(a),
        lambda m, a: m.rot90(a, 3),
        lambda m, a: m.moveaxis(a[None], 0, -1),
        lambda m, a: m.ravel(a),
        lambda m, a: m.ravel(a.T),
        lambda m, a: m.atleast_3d(a),
        lambda m, a: m.array_split(a, 3, 1)[1],
        lambda m, a: a[::-2, 1::2].T,
        lambda m, a: a.reshape(2, 6).transpose(1, 0),
        lambda m, a: m.unstack(a, axis=1)[2],
    ],
)
def test_aliasing(move: Any) -> None:
    """A movement is a view exactly where NumPy's is one."""
    a, x = both()
    v, w = move(np, a), move(xp, x)
    assert_same(w, v)
    v[...] = v + 100
    w[...] = w + 100
    assert_same(w, v)
    assert_same(x, a)
    a += 1
    x += 1
    assert_same(x, a)
    assert_same(w, v)


def test_diagonal_sees_writes() -> None:
    a, x = both()
    d, e = np.diagonal(a, 1), xp.diagonal(x, 1)
    a[0, 1] = x[0, 1] = 77
    assert_same(e, d)
    assert_same(xp.trace(x), np.trace(a))
    assert_same(x.diagonal(-1), a.diagonal(-1))


def test_broadcast_is_readonly() -> None:
    v = xp.broadcast_to(xp.arange(3), (2, 3))
    with pytest.raises(ValueError, match="read-only"):
        v[0] = 1
    with pytest.raises(ValueError):
        v += 1


def test_inplace_casting() -> None:
    x = xp.arange(4)
    for change in ("x += 0.5", "x /= 2", "x[1:] += 1j", "x[[0]] *= 0.5"):
        if change != "x[[0]] *= 0.5":
            with pytest.raises(TypeError):
                exec(change, {"x": x})
    y = xp.ones(3, dtype=xp.float32)
    y += xp.ones(3)
    assert y.dtype == xp.float32 and y.tolist() == [2, 2, 2]
    with pytest.raises(ValueError):
        y += xp.ones((2, 3))
    alias = y
    y **= 2
    y //= 3
    assert alias is y and y.tolist() == [1, 1, 1]


def test_setitem_casts_like_numpy() -> None:
    x = xp.zeros(3, dtype=xp.int8)
    x[0] = 2.9
    assert x.tolist() == [2, 0, 0]
    with pytest.raises(OverflowError):
        x[0] = 300
    with pytest.raises(TypeError):
        x[0] = 1j
    with pytest.raises(ValueError):
        x[:] = [1, 2]
    with pytest.raises(ValueError):
        x[0] = float("nan")
    x[:] = [[4, 5, 6]]
    assert x.tolist() == [4, 5, 6]


def test_conversions() -> None:
    assert bool(xp.asarray(3)) and int(xp.asarray(3.7)) == 3 and float(xp.asarray(2)) == 2.0
    assert complex(xp.asarray(1 + 2j)) == 1 + 2j and [1, 2, 3][xp.asarray(1)] == 2
    assert type(xp.asarray(True).item()) is bool and xp.arange(3).item(1) == 1
    assert xp.arange(4).reshape(2, 2).tolist() == [[0, 1], [2, 3]]
    for bad, error in ((bool, ValueError), (int, TypeError), (float, TypeError)):
        with pytest.raises(error):
            bad(xp.arange(3))
    with pytest.raises(TypeError):
        [1][xp.asarray(0.0)]
    with pytest.raises(TypeError):
        hash(xp.arange(3))
    assert float(xp.asarray(1.5, dtype=xp.bfloat16)) == 1.5
    assert xp.asarray([1, 2], dtype=xp.float16)[1].item() == 2.0


def test_printing() -> None:
    for a in (
        np.arange(3.0),
        np.float32(2) * np.ones((2, 2), np.float32),
        np.array(1j),
        np.zeros((0, 2)),
        np.arange(3000),
    ):
        assert repr(xp.asarray(a)) == repr(np.asarray(a)) and str(xp.asarray(a)) == str(np.asarray(a))
    assert f"{xp.asarray(2.5):.2f}" == "2.50"


def test_pickle_and_copy() -> None:
    for x in (xp.arange(6.0).reshape(2, 3).T, xp.asarray(3), xp.zeros((0, 2), dtype=xp.int8), xp.ones(2) + 1j):
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
            assert type(y) is Array
            assert_same(y, np.asarray(x))
    a = xp.zeros(3)
    b = copy.copy(a)
    a[0] = 1
    assert b.tolist() == [0, 0, 0]


def test_properties() -> None:
    x = xp.ones((2, 3), dtype=xp.float32)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.dtype) == ((2, 3), 2, 6, 4, 24, np.float32)
    assert x.strides == (12, 4) and x.T.strides == (4, 12)
    assert x.device == xp.get_default_device() and x.to_device(x.device) is x
    assert x.__array_namespace__() is xp
    z = xp.asarray([1 + 2j, 3 - 1j])
    z.real = 5
    z.imag = [7, 8]
    assert z.tolist() == [5 + 7j, 5 + 8j]


@pytest.mark.cpu_only
def test_exports_follow_writes() -> None:
    x = xp.arange(6.0) * 1
    before = x + 1
    h = np.asarray(x)
    after = x * 2
    x[1] = 50
    x[3:] -= 1
    assert h.tolist() == [0, 50, 2, 2, 3, 4] == x.tolist()
    assert before.tolist() == [1, 2, 3, 4, 5, 6] and after.tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(ValueError):
        h[0] = 1
    assert np.shares_memory(h, np.asarray(x))
    tail = np.asarray(x[4:])
    x += 1
    assert h.tolist() == [1, 51, 3, 3, 4, 5] and tail.tolist() == [4, 5]
    del h, tail
    x[0] = 9
    assert x.tolist() == [9, 51, 3, 3, 4, 5]


@pytest.mark.cpu_only
def test_copies_of_exported_arrays_are_separate() -> None:
    x = xp.arange(4.0) * 1
    y = x.copy()
    h, k = np.asarray(x), np.asarray(y)
    x[0] = 10
    y[1] = 20
    assert h.tolist() == [10, 1, 2, 3] and k.tolist() == [0, 20, 2, 3]
    z = x.copy()
    x[2] = 30
    assert z.tolist() == [10, 1, 2, 3] and h.tolist() == [10, 1, 30, 3]


@pytest.mark.parametrize("order", ["C", "F", "reversed"])
def test_shared_import(order: str) -> None:
    h = np.arange(12.0).reshape(3, 4)
    h = {"C": h, "F": h.T, "reversed": h[::-1, ::2]}[order]
    x = xp.asarray(h, copy=False)
    twice = x * 2
    want = h * 2
    h[0] += 100
    assert_same(twice, want)
    assert_same(x, h)
    x[1:, 1] = -5
    x.T[0] += 1
    x.reshape(-1)[:2] = 3
    expected = np.asarray(x).copy()
    if order != "F":
        assert_same(x, h)
    assert_same(x + 0, expected)
    total = xp.sum(x)
    want_total = float(np.sum(expected))
    h[...] = 0
    assert float(total) == want_total


@pytest.mark.cpu_only
def test_dlpack() -> None:
    x = xp.arange(5.0) + 1
    before = x * 2
    h = np.from_dlpack(x)
    assert h.tolist() == [1, 2, 3, 4, 5]
    after = x * 3
    x[0] = 9
    assert h[0] == 9 and before.tolist() == [2, 4, 6, 8, 10] and after.tolist() == [3, 6, 9, 12, 15]
    assert xp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    shared = np.arange(3)
    assert xp.from_dlpack(shared, copy=False)[1:].tolist() == [1, 2]


def test_numpy_functions_accept_arrays() -> None:
    x = xp.arange(4.0)
    assert type(np.exp(x)) is Array and type(np.arange(4) + x) is Array and type(np.float64(2) * x) is Array
    assert type(np.sum(x)) is Array and type(np.concatenate([x, x])) is Array
    assert type(np.add.reduce(x)) is Array
    h = np.arange(4.0)
    h += x
    assert h.tolist() == [0, 2, 4, 6]


def test_unknown_operands() -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "other"

        def __rmatmul__(self, other: Any) -> str:
            return "other"

    x = xp.arange(3)
    assert x + Other() == "other" and x @ Other() == "other"
    with pytest.raises(TypeError):
        x + "text"
    assert np.asarray(x == None).tolist() == [False] * 3  # noqa: E711
    assert np.asarray(x != "a").tolist() == [True] * 3


def test_deep_graphs_are_bounded() -> None:
    x = xp.zeros(3)
    for _ in range(5 * LIMIT):
        x = x + 1
        assert x._read().depth <= LIMIT + 1
    assert x.tolist() == [5 * LIMIT] * 3
    y = xp.zeros(3)
    for _ in range(3 * LIMIT):
        y[1] += 1
    assert y.tolist() == [0, 3 * LIMIT, 0]


def test_nothing_runs_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from blockarray import flush

    x = xp.arange(12.0).reshape(3, 4) + 1

    def fail(*args: Any) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(flush, "evaluate", fail)
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    y = e / xp.sum(e, axis=1, keepdims=True)
    y[0] = 0
    y[y < 0.5] = 1
    y[xp.asarray([0, 1])] += 1
    z = xp.einsum("ij,kj->ik", y, x) @ xp.ones((3, 2))
    w = xp.concatenate([z, z]).reshape(-1)[::2].astype(xp.float32)
    xp.where(w > 0, w, xp.cumsum(w))
    xp.var(y, axis=0), xp.sort(y), xp.clip(y, 0, 1), xp.std(w), xp.argmax(y)
