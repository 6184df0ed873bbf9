"""Graphs of tiny arrays: what is interpreted, and that it is what compiled code computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray import flush
from blockarray.compiler import dtypes, ops
from blockarray.runtime.config import TINY, config
from tests.support import assert_same


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(config, "tiny", TINY)
    yield


def plans() -> int:
    return len(flush._plans)


def test_nothing_is_planned_for_tiny_arrays() -> None:
    before = plans()
    x = xp.asarray(np.linspace(0, 1, 77))
    y = xp.exp(x[::-1] * 2) + x
    assert y.sum().item() > 0 and float(y[3]) > 0 and y.tolist()
    z = xp.cumsum(xp.reshape(x, (7, 11)), axis=1) @ xp.ones((11, 3))
    z[1:, 0] = 5
    z[xp.asarray([0, 2]), 1] += 1
    assert xp.max(z).item() > 0 and xp.argmax(z) >= 0 and xp.sort(x)[0] == 0
    assert plans() == before


def test_what_is_not_tiny_is_compiled() -> None:
    for make in (
        lambda: xp.ones(TINY + 1) * 2,
        lambda: xp.sum(xp.ones(TINY + 1) * 2),
        lambda: xp.ones((TINY, 1)) + xp.ones(2),
        lambda: xp.random.default_rng(1).random(3),
    ):
        assert not xp.explain(make()).interpreted
    before = plans()
    xp.evaluate(xp.ones(TINY + 1) * 2)
    assert plans() == before + 1


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    x = xp.arange(3) * 7
    monkeypatch.setattr(config, "tiny", 0)
    assert not xp.explain(x).interpreted
    before = plans()
    xp.evaluate(x)
    assert plans() == before + 1


def test_explain_and_profile_name_it(tmp_path: Any) -> None:
    y = xp.sum(xp.asarray(np.arange(12.0)) * 2, axis=0)
    assert "2 recorded operations interpreted: 12 elements" in str(xp.explain(y))
    assert xp.explain(y).kernels == [] and xp.explain(y).interpreted == 12
    xp.explain(y).html(tmp_path / "plan.html")
    assert "interpreted: 12 elements" in (tmp_path / "plan.html").read_text()
    with xp.profile() as p:
        xp.evaluate(y)
    assert [k.name for k in p.kernels] == ["interpreted"] and p.compiles == 0
    assert not xp.explain(y).interpreted


def test_arrays_beside_the_graph_are_computed_too() -> None:
    x = xp.asarray(np.arange(6.0))
    shared = x + 1
    held = shared * 2
    result = held - shared
    xp.evaluate(result)
    assert "already computed" in str(xp.explain(held))
    assert held.tolist() == [2, 4, 6, 8, 10, 12] and result.tolist() == [1, 2, 3, 4, 5, 6]


def test_results_are_memory_of_their_own() -> None:
    z = xp.asarray(np.arange(4) * (1 + 2j))
    parts = [z.real, z.imag, xp.real(xp.asarray([1.0, 2.0])), xp.flip(z), z.T, +z, xp.reshape(z, (2, 2)).T]
    copies = [p * 1 for p in parts]
    xp.evaluate(*parts, *copies)
    before = [np.array(p) for p in copies]
    for p in parts:
        p *= 3
        p[...] = 9
    for p, b in zip(copies, before):
        assert_same(p, b, "a copy")
    host = np.arange(5)
    x = xp.asarray(host)
    y = x + 0
    xp.evaluate(y)
    host[:] = 0
    x[0] = 7
    assert x.tolist() == [7, 1, 2, 3, 4] and y.tolist() == [0, 1, 2, 3, 4]


def test_indices_are_refused_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    index = xp.arange(4) + 3
    for limit in (TINY, 0):
        monkeypatch.setattr(config, "tiny", limit)
        with pytest.raises(IndexError, match="index out of bounds for an axis of size 5"):
            np.asarray(xp.arange(5)[index + 0])


_BITS = [np.float16, np.float32, np.float64, dtypes.BFLOAT16, np.int8, np.uint16, np.int64, np.uint64, np.bool_]
_BITS += [np.complex64, np.complex128]
_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 100.0, np.inf, -np.inf, np.nan]


def _values(dtype: Any, which: int) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return (np.arange(12) * (which + 3) - (0 if dtype.kind != "i" else 9)).astype(dtype)
    x = np.roll(np.array(_SPECIAL), which * 5)
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            return (x + 1j * np.roll(x, 1)).astype(dtype)
        return x.astype(dtype)


@pytest.mark.parametrize("name", [n for n, op in ops.TABLE.items() if op.kind == "elementwise" and not op.types])
def test_agrees_with_compiled_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = ops.TABLE[name]
    for dtype in _BITS:
        given = [_values(dtype, k) for k in range(op.arity)]
        if name == "where":
            given[0] = given[0] != 0
        if name.endswith("power") and np.dtype(dtype).kind == "c":
            given = [np.nan_to_num(g, posinf=2, neginf=-2) for g in given]  # of infinities NumPy's is no rule
        try:
            if name == "cast":
                run = lambda *a: a[0].astype(xp.float32)
            else:
                ops.resolve(op, *(g.dtype for g in given))
                from blockarray.operands import elementwise

                run = lambda *a: elementwise(op, *a)
        except TypeError:
            continue
        got = []
        for limit in (TINY, 0):
            monkeypatch.setattr(config, "tiny", limit)
            result = run(*[xp.asarray(g) for g in given])
            got.append(np.asarray(result))
        a, b = got
        assert a.dtype == b.dtype and a.shape == b.shape
        what = f"{name} of {np.dtype(dtype)}: {given}"
        eps = {1: 0.0, 2: 1e-2, 4: 1e-5, 8: 1e-13}[a.real.dtype.itemsize]
        if a.dtype == dtypes.BFLOAT16:
            a, b = a.astype(np.float64), b.astype(np.float64)
        if any(op.ulp) or given[0].dtype.kind == "c":
            np.testing.assert_allclose(a, b, rtol=eps, atol=eps, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, what)
            if a.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(a) | np.isnan(a), np.signbit(b) | np.isnan(b), what)
