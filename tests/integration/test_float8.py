"""Floats of 8 bits: casts of all of them, and of floats next to and between them, beside ml_dtypes; arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blockarray.compiler import dtypes
from tests.support import xp

FLOATS = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]
BF16 = np.dtype(ml_dtypes.bfloat16)
pytestmark = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def every(dtype: np.dtype) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(dtype)


def around(dtype: np.dtype) -> np.ndarray:
    """Floats that are in a type, in the middle of two such, and next to those; beyond all of them; tiny ones."""
    own = np.unique(every(dtype).astype("f4"))
    own = own[np.isfinite(own)]
    middle = (own[1:] + own[:-1]) / 2
    beyond = np.float32(own[-1] + (own[-1] - own[-2]) / 2)
    points = np.concatenate([own, middle, [beyond, -beyond]]).astype("f4")
    r = np.random.default_rng(0)
    spread = r.standard_normal(3000) * 2.0 ** r.integers(-24, 20, 3000)
    special = [np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, -1e-40, -0.0, 3e38]
    near = [np.nextafter(points, np.float32(x)) for x in (np.inf, -np.inf)]
    return np.concatenate([points, *near, spread, special]).astype("f4")


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    bits = f"u{got.dtype.itemsize}"
    nan = (got != got) & (want != want)
    np.testing.assert_array_equal(np.where(nan, 0, got.view(bits)), np.where(nan, 0, want.view(bits)))


@pytest.mark.parametrize("source", ["f4", "f8", "f2", BF16, "i1", "u1", "i4", "?", *FLOATS], ids=str)
def test_casts_to(dtype: np.dtype, source: Any):
    source = np.dtype(source)
    with np.errstate(all="ignore"):
        x = np.arange(-70000, 70000).astype(source) if source.kind in "iub" else around(dtype).astype(source)
        want = x.astype(dtype)
    same(np.asarray(xp.astype(xp.asarray(x), dtype)), want)


@pytest.mark.parametrize("into", ["f4", "f8", "f2", BF16, "i1", "u1", "i4", "?", *FLOATS], ids=str)
def test_casts_from(dtype: np.dtype, into: Any):
    x = np.tile(every(dtype), 5)
    got = np.asarray(xp.astype(xp.asarray(x), np.dtype(into)))
    same(got, dtypes.cast_array(x, np.dtype(into)))


def test_elements_that_begin_anywhere(dtype: np.dtype):
    x = np.tile(every(dtype), 3)
    for start, step in ((1, 1), (3, 2), (5, 3)):
        wide = xp.astype(xp.asarray(x)[start::step], "f4")
        same(np.asarray(wide), x[start::step].astype("f4"))
        same(np.asarray(xp.astype(wide * 1, dtype)), x[start::step])


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "nextafter", "copysign", "less"])
def test_arithmetic(dtype: np.dtype, name: str):
    x, y = (np.ascontiguousarray(v) for v in np.broadcast_arrays(every(dtype)[:, None], every(dtype)))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, y)
    got = np.asarray(getattr(xp, name)(xp.asarray(x), xp.asarray(y)))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))


def test_reductions(dtype: np.dtype):
    finite = every(dtype)[np.isfinite(every(dtype).astype("f4"))]
    x = xp.asarray(finite)
    assert float(xp.max(x)) == float(finite.astype("f4").max()) and float(xp.min(x)) == float(finite.astype("f4").min())
    assert int(xp.argmax(x)) == int(finite.astype("f4").argmax())
    assert np.isnan(float(xp.max(xp.asarray(every(dtype)))))
    assert xp.sum(x).dtype == dtype and float(xp.sum(x * 0 + 1)) == 256
    np.testing.assert_array_equal(np.asarray(xp.sort(x)).astype("f4"), np.sort(finite.astype("f4")))


def test_scalars_and_limits(dtype: np.dtype):
    x = xp.asarray([1, 2.5, 3], dtype=dtype)
    assert (x + 1.5).dtype == (2 * x).dtype == dtype
    assert xp.finfo(dtype).max == float(ml_dtypes.finfo(dtype).max)
    assert xp.isdtype(dtype, "real floating") and xp.zeros(2, dtype=dtype.name).dtype == dtype
    np.testing.assert_array_equal(np.asarray(xp.full(3, 0.3, dtype=dtype)), np.full(3, 0.3, dtype))
