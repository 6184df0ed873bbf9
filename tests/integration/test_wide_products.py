"""Products of f32 by ordinary arithmetic, of f64, complex numbers and wide integers, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

from tests.support import evaluate, needs_lazy, xp

SIZES = (1, 15, 17, 63, 65, 127, 129, 1000)
DTYPES = ("float32", "float64", "complex64", "complex128", "int32", "int64")
WIDE = {"f": np.longdouble, "c": np.clongdouble, "i": np.int64}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = 5 * rng.standard_normal(shape)
    return (values + 3j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product without rounding to speak of."""
    wide = WIDE[a.dtype.kind]
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    assert got.dtype == a.dtype
    if a.dtype.kind == "i":
        np.testing.assert_array_equal(got, multiplied(a, b))
        return
    eps, k = np.finfo(a.dtype).eps, a.shape[-1]
    bound = eps * max(2, k**0.5) * (abs(a).astype(float) @ abs(b).astype(float))
    assert (abs(got - multiplied(a, b)) <= bound).all()


@contextmanager
def emulated() -> Iterator[None]:
    from tests.fake_gpu import installed

    with installed(emulate=True):
        yield


@needs_lazy
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", ["", "a", "b", "ab"])
def test_all_sizes(dtype: str, transposes: str) -> None:
    rng = np.random.default_rng(1)
    with xp.device("cuda:0"):
        for k in SIZES:
            for m, n in zip(SIZES, SIZES[3:] + SIZES[:3], strict=True):
                a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
                x, y = (xp.asarray(v.T).T if name in transposes else xp.asarray(v) for v, name in ((a, "a"), (b, "b")))
                evaluate(x, y)
                got = np.asarray(x @ y)
                check(got, a, b)
                assert (np.asarray(x @ y).tobytes()) == got.tobytes()


@needs_lazy
@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_and_strides_emulated(dtype: str) -> None:
    rng = np.random.default_rng(2)
    with emulated():
        a, b = draw(rng, (2, 33, 40), dtype), draw(rng, (40, 70), dtype)
        x, y = xp.asarray(a), xp.asarray(b)
        evaluate(x, y)
        for left, right, p, q in (
            (x, y, a, b),
            (x[:, ::-1, 1::2], y[::2, ::3], a[:, ::-1, 1::2], b[::2, ::3]),
            (xp.matrix_transpose(x)[:, 1:], x[:, :, 3:], a.swapaxes(1, 2)[:, 1:], a[:, :, 3:]),
        ):
            got = np.asarray(left @ right)
            for index in range(2):
                check(got[index], p[index], q if q.ndim == 2 else q[index])


@needs_lazy
@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_emulated(dtype: str, special: float) -> None:
    """They reach the elements that read them, and no others: not even where k ends inside a step."""
    rng = np.random.default_rng(3)
    a, b = draw(rng, (20, 37), dtype), draw(rng, (37, 18), dtype)
    a[3, 36], b[36, 5] = special, special
    with emulated():
        x, y = xp.asarray(a), xp.asarray(b)
        evaluate(x, y)
        got = np.asarray(x @ y)
    finite = np.ones((20, 18), bool)
    finite[3], finite[:, 5] = False, False
    np.testing.assert_array_equal(np.isfinite(got), finite)
    check(got[4:, 6:], a[4:], b[:, 6:])
    if dtype.startswith("float"):
        np.testing.assert_array_equal(got[~finite], (a @ b)[~finite])


def classes(x: np.ndarray) -> np.ndarray:
    """Of the parts, which are infinite, and how, and which are NaN."""
    parts = np.ascontiguousarray(x).view(np.real(x).dtype)
    return np.where(np.isfinite(parts), 0, parts)


@needs_lazy
@pytest.mark.parametrize("target", ["here", pytest.param("emulated", marks=pytest.mark.cpu_only)])
@pytest.mark.parametrize("types", [("float32", "complex64"), ("complex128", "float64"), ("complex64", "complex64")])
@pytest.mark.parametrize("shape", [(1, 2, 1), (5, 37, 1), (20, 37, 18), (70, 9, 80)])
def test_infinities_times_complex_numbers(target: str, types: tuple[str, str], shape: tuple[int, int, int]) -> None:
    """Each pair of elements is multiplied as complex numbers; NumPy's BLAS makes NaNs of the infinities in sums."""
    rng = np.random.default_rng(4)
    m, k, n = shape
    a, b = draw(rng, (m, k), types[0]), draw(rng, (k, n), types[1])
    a[0, 0], b[k // 2, -1], b[0, 0] = np.inf, -np.inf, 1
    with np.errstate(invalid="ignore"):
        want = np.sum(a[:, :, None] * b[None], axis=1)
    with emulated() if target == "emulated" else nullcontext():
        got = np.asarray(xp.asarray(a) @ xp.asarray(b))
    np.testing.assert_array_equal(classes(got), classes(want))
