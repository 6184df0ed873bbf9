"""Reductions of two-sided expressions, which are computed as products are, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blockarray as ba
from blockarray.compiler import lower

F32 = np.float32


def draw(*shape: int, dtype: Any = F32) -> np.ndarray:
    return (3 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(dtype)


def check(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arrays: np.ndarray, contracted: bool = True
) -> None:
    """Compare with NumPy; `contracted`: whether a kernel was computed as a product is."""
    found = []
    contraction = lower.Lowering._contraction

    def spy(self: Any) -> Any:
        axes = contraction(self)
        found.append(axes is not None and self.group.product is None)
        return axes

    monkeypatch.setattr(lower.Lowering, "_contraction", spy)
    got = np.asarray(function(ba, *[ba.asarray(x) for x in arrays]))
    with np.errstate(all="ignore"):
        want = function(np, *arrays)
    assert got.dtype == want.dtype
    tolerance = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-13}.get(want.dtype.name, 0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert any(found) == contracted, found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint64"])
@pytest.mark.parametrize("shape", [(37, 53, 41), (100, 17, 2), (16, 16, 700), (210, 150, 33)])
def test_distances(monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    scale = 8 if dtype == "float16" else 1
    a, b = draw(m, k, dtype=dtype) // scale, draw(n, k, dtype=dtype) // scale
    check(monkeypatch, lambda _, a, b: abs(a[:, None] - b[None]).max(-1), a, b)
    sums = lambda _, a, b: ((a[:, None] - b[None]) ** 2).sum(-1)
    # The sum of int32 is int64, which no panel holds beside int32.
    check(monkeypatch, sums, a, b, contracted=dtype != "int32")


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "min": (lambda xp, a, b: xp.minimum(a[:, None], b[None]).min(-1), (draw(40, 50), draw(60, 50))),
    "prod": (lambda _, a, b: (1 + a[:, None] * b[None]).prod(-1), (draw(40, 50) / 50, draw(60, 50) / 50)),
    "count": (
        lambda _, a, b: (a[:, None] == b[None]).sum(-1), (draw(40, 50, dtype=np.int64), draw(60, 50, dtype=np.int64))
    ),
    "weights inside": (
        lambda xp, a, b, w: xp.sqrt((((a[:, None] - b[None]) * w) ** 2).sum(-1)) + a[:, :1],
        (draw(40, 50), draw(60, 50), draw(50)),
    ),
    "weights outside": (
        lambda xp, a, b, w: xp.sqrt(((a[:, None] - b[None]) ** 2 * (w + 1)).mean(-1)),
        (draw(40, 50), draw(60, 50), draw(50) ** 2),
    ),
    "several values a side": (
        lambda xp, a, b, c: (abs(a[:, None] - b[None]) * xp.minimum(c[:, None], b[None] + 1)).sum(-1) / 9,
        (draw(40, 50) / 9, draw(60, 50) / 9, draw(40, 50) / 9),
    ),
    "prologue and epilogue": (
        lambda xp, a, b, c: (xp.tanh(a)[:, None] - b[None] * 2 + c[:, None, None]).max(-1).clip(-1, 3),
        (draw(40, 50), draw(60, 50), draw(40)),
    ),
    "with itself": (lambda _, a: ((a[:, None] - a[None]) ** 2).max(-1), (draw(131, 50),)),
    "batch": (lambda _, a, b: ((a[:, :, None] - b[:, None]) ** 2).max(-1), (draw(7, 40, 50), draw(7, 60, 50))),
    "strides": (
        lambda _, a, b: ((a[::2, None] - b[None, :, ::-1]) ** 2).max(-1), (draw(80, 50), draw(60, 50))
    ),
    "middle axis": (lambda _, a, b: ((a[:, :, None] - b[None]) ** 2).max(1), (draw(40, 50), draw(50, 60))),
    "transposed result": (lambda _, a, b: ((a[:, None] - b[None]) ** 2).max(-1).T, (draw(40, 50), draw(60, 50))),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_forms(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    function, arrays = CASES[case]
    check(monkeypatch, function, *arrays)


def test_what_depends_on_both_sides_at_once_stays_a_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lambda _, a, b, c: (a[:, None] * b[None] + c[:, :, None]).max(-1)
    check(monkeypatch, function, draw(40, 50), draw(60, 50), draw(40, 60), contracted=False)


def test_special_values(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draw(40, 50), draw(60, 50)
    a[3, 4], a[9, 3], b[7, 3] = np.nan, np.inf, np.inf
    check(monkeypatch, lambda _, a, b: (a[:, None] - b[None]).max(-1), a, b)
    check(monkeypatch, lambda _, a, b: (a[:, None] * b[None]).min(-1), a, b)
    check(monkeypatch, lambda _, a, b: (a[:, None] / b[None] * 0).sum(-1), a, b)


@pytest.mark.parametrize("shape", [(2000, 64, 10), (1001, 33, 3), (5, 700, 9), (777, 20, 17), (999, 400, 33)])
def test_thin_products(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b, t = draw(m, k, dtype="f8"), draw(k, n, dtype="f8"), draw(k, m, dtype="f8")
    for dtype, tolerance in (("f4", 2e-3), ("f8", 1e-11)):
        x, y, z = (ba.asarray(v.astype(dtype)) for v in (a, b, t))
        wide = [v.astype(dtype).astype("f8") for v in (a, b, t)]
        np.testing.assert_allclose(np.asarray(x @ y), wide[0] @ wide[1], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(np.asarray(z.T @ y + 1), wide[2].T @ wide[1] + 1, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            np.asarray(x[::-1, ::2] @ y[::2]), wide[0][::-1, ::2] @ wide[1][::2], tolerance, 1e-3
        )


def reversed_rows(xp: Any, x: Any) -> Any:
    """A reshape that strides cannot say."""
    return xp.reshape(x[:, ::-1, ::2], (195, 65))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x, y: reversed_rows(xp, x > 0) @ (y > 0),
        lambda xp, x, y: reversed_rows(xp, x).astype("f8") @ y.astype("f8"),
        lambda xp, x, y: reversed_rows(xp, x).astype("i4") @ y.astype("i4"),
        lambda xp, x, y: y.T @ (reversed_rows(xp, x).T[:, :65] * 2),
        lambda xp, x, y: y @ y.T + xp.exp(xp.tanh(xp.reshape(x[:1, ::-1, :65], (65, 65))) * 1.5),
        lambda xp, x, y: xp.reshape(xp.arange(195 * 65) % 3, (195, 65)).astype("f4") @ y,
    ],
    ids=["bool", "f8", "i4", "right", "epilogue", "iota"],
)
def test_reshapes_that_strides_cannot_say(function: Callable[..., Any]) -> None:
    x, y = draw(3, 65, 130), draw(65, 33)
    got, want = function(ba, ba.asarray(x), ba.asarray(y)), function(np, x, y)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, 1e-4, 1e-3)
