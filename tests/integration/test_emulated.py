"""What a GPU is given, emulated: writes in place, whose threads share elements, and walks along several axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support import xp

pytestmark = pytest.mark.cpu_only


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    from tests.fake_gpu import installed

    with installed(emulate=True):
        yield


def add_row_sums(x: Any, a: Any) -> None:
    x[1:] += a.sum(axis=1)


def add_column_sums(x: Any, a: Any) -> None:
    x[1:] += a.sum(axis=0)


def add_two_passes(x: Any, a: Any) -> None:
    x[1:] += (a - a.max(axis=1)[:, None]).sum(axis=1)


def subtract_means(x: Any, a: Any) -> None:
    x[1:] -= a.mean(axis=1, keepdims=True)


def add_transposed(x: Any, a: Any) -> None:
    x.T[1:] += a.sum(axis=1)[:, None]


def scale_by_maximum(x: Any, a: Any) -> None:
    x[1:] = x[1:] * a.max() + 1


def add_product(x: Any, a: Any) -> None:
    x[1:] += a @ a.T


@pytest.mark.parametrize(
    ("write", "shape", "operand"),
    [
        (add_row_sums, (17,), (16, 700)),
        (add_row_sums, (1001,), (1000, 64)),
        (add_row_sums, (3,), (2, 40000)),
        (add_column_sums, (65,), (300, 64)),
        (add_column_sums, (1001,), (64, 1000)),
        (add_two_passes, (65,), (64, 128)),
        (add_two_passes, (5,), (4, 30000)),
        (subtract_means, (9, 300), (8, 300)),
        (add_transposed, (40, 65), (64, 40)),
        (scale_by_maximum, (1001,), (1000,)),
        (add_product, (33, 32), (32, 70)),
    ],
)
def test_write_in_place(write: Callable[[Any, Any], None], shape: tuple[int, ...], operand: tuple[int, ...]) -> None:
    r = np.random.default_rng(0)
    want, a = r.standard_normal(shape).astype("f4"), r.standard_normal(operand).astype("f4")
    x, y = xp.asarray(want, device="cuda:0"), xp.asarray(a, device="cuda:0")
    xp.evaluate(x, y)
    write(x, y)
    write(want, a)
    np.testing.assert_allclose(np.asarray(x), want, 1e-3, 1e-2)


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x: x.cumsum(1).cumsum(2), 2),
        (lambda x: x.cumsum(1) / (x.cumsum(1) ** 2).max(2)[:, :, None], 2),
        (lambda x: x.cumsum(1).sum(2), 2),
        (lambda x: x - x.mean(1)[:, None] - x.mean(2)[:, :, None], 2),
        (lambda x: (x - x.max(1)[:, None]).sum(2), 2),
        (lambda x: (x.cumsum(1) - x.max(1)[:, None]).min(1), 1),
        (lambda x: x.sum(2).max(1), 1),
        (lambda x: x.max((1, 2))[:, None, None] - x, 1),
    ],
    ids=["scans", "normalised", "scan-sum", "centred", "sum", "one-axis", "nested", "joint"],
)
@pytest.mark.parametrize("shape", [(2, 150, 90), (1, 5, 33000)], ids=str)
def test_walks_along_two_axes(function: Callable[[Any], Any], kernels: int, shape: tuple[int, ...]) -> None:
    """A block of threads cannot go along two long axes at once, each inside the other."""
    a = np.random.default_rng(0).standard_normal(shape).astype("f4")
    x = xp.asarray(a, device="cuda:0")
    got = function(x)
    with xp.profile() as p:
        xp.evaluate(got)
    np.testing.assert_allclose(np.asarray(got), function(a), 1e-3, 1e-2)
    if shape[0] > 1:
        assert len(p.kernels) == kernels


def test_walks_that_fit() -> None:
    a = np.random.default_rng(0).standard_normal((3, 60, 64)).astype("f4")
    x = xp.asarray(a, device="cuda:0")
    centred = x - x.mean(1)[:, None] - x.mean(2)[:, :, None]
    with xp.profile() as p:
        xp.evaluate(centred)
    np.testing.assert_allclose(np.asarray(centred), a - a.mean(1)[:, None] - a.mean(2)[:, :, None], 1e-3, 1e-3)
    assert len(p.kernels) == 1


@pytest.mark.parametrize("start", [0, 1])
def test_signs_of_narrow_nans(start: int) -> None:
    """The GPU's conversion makes every NaN positive."""
    a = np.tile(np.arange(256, dtype=np.uint8), 9).view(ml_dtypes.float8_e4m3fn)
    x = xp.asarray(a, device="cuda:0")[start:]
    a = a[start:]
    np.testing.assert_array_equal(np.asarray(xp.signbit(x)), np.signbit(a))
    np.testing.assert_array_equal(np.signbit(np.asarray(xp.astype(x, "f4"))), np.signbit(a))
    one = xp.ones_like(x)
    got = np.asarray(xp.copysign(one, x)).astype("f4")
    np.testing.assert_array_equal(got, np.where(np.signbit(a), -1, 1))
    got = np.asarray(xp.copysign(one, xp.where(x == 3, one, x))).astype("f4")
    np.testing.assert_array_equal(got, np.where(np.signbit(a), -1, 1))


@pytest.mark.parametrize(("n", "m", "d"), [(1, 15, 16), (2, 15, 33), (17, 33, 16)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("sums", [False, True], ids=["", "sums"])
def test_small_attention(n: int, m: int, d: int, dtype: str, sums: bool) -> None:
    """Few queries: in the registers of a few threads, or parts of the keys that the last one to end adds up."""
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((2, 1, *s)) for s in ((n, d), (m, d), (m, 33)))

    def attention(ns: Any, q: Any, k: Any, v: Any) -> list[Any]:
        s = -1.0 * (q @ ns.swapaxes(k, -1, -2))
        e = ns.exp(s - ns.max(s, axis=-1, keepdims=True))
        total = ns.sum(e, axis=-1, keepdims=True)
        return [(e @ v) / total, *([total] if sums else [])]

    narrow = [a.astype(getattr(xp, dtype)) for a in (q, k, v)]
    x, y, z = [xp.asarray(a, device="cuda:0") for a in narrow]
    wide = [a.astype("f8") for a in narrow]
    tolerance = {"bfloat16": 0.15, "float16": 0.02, "float32": 1e-4}[dtype]
    for got, want in zip(attention(xp, x, y, z), attention(np, wide[0], wide[1], wide[2]), strict=True):
        np.testing.assert_allclose(np.asarray(got).astype("f8"), want, tolerance, tolerance)
