"""Products of float32 on a GPU's tensor cores beside those in float32: values at the ends of the range, and others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import xp

pytestmark = pytest.mark.gpu
SIDE = 1024


def put(a: np.ndarray):
    return xp.asarray(a.astype(np.float32), device="cuda")


def relative(product, exact: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(product).astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.fixture
def numbers() -> np.random.Generator:
    return np.random.default_rng(0)


def test_products_by_one_are_exact(numbers):
    x = numbers.integers(0, 1 << 32, (SIDE, SIDE), np.uint32).view(np.float32).copy()
    x[~np.isfinite(x)] = np.finfo(np.float32).max
    x[0, :4] = np.array([0x7F7FFFFF, 0xFF7F8000, 0x00800000, 1], np.uint32).view(np.float32)
    one = np.eye(SIDE, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(put(x) @ put(one)), x + 0)
    np.testing.assert_array_equal(np.asarray(put(one) @ put(x)), x + 0)


@pytest.mark.parametrize(("left", "right"), [(1e-41, 1e36), (1e36, 1e-38), (3e-20, 1.0)])
def test_tiny_and_huge_numbers(numbers, left, right):
    a, b = (numbers.standard_normal((SIDE, SIDE)) * scale for scale in (left, right))
    x, y = put(a), put(b)
    exact = np.asarray(x).astype(np.float64) @ np.asarray(y).astype(np.float64)
    with xp.matmul_precision("ieee"):
        plain = x @ y
    assert relative(x @ y, exact) <= relative(plain, exact)


def test_what_is_not_finite(numbers):
    a, b = (numbers.standard_normal((SIDE, SIDE)) for _ in range(2))
    a[3, 5], a[70, 2], a[71, 2], b[9, 700], b[2, 3] = np.inf, -np.inf, np.nan, np.inf, 0
    a[500, 9:11] = np.inf, -np.inf
    a[900], b[:, 900], b[:, 901] = 3e38, np.where(np.arange(SIDE) % 2, 1, -1), 2.0
    x, y = put(a), put(b)
    with xp.matmul_precision("ieee"):
        plain = x @ y
    want, got = np.asarray(plain), np.asarray(x @ y)
    fine = np.isfinite(want)
    np.testing.assert_array_equal(got[~fine], want[~fine])
    assert np.isfinite(got[fine]).all()


def test_products_are_repeatable(numbers):
    x, y = (put(numbers.standard_normal((SIDE, SIDE))) for _ in range(2))
    np.testing.assert_array_equal(np.asarray(x @ y), np.asarray(x @ y))
