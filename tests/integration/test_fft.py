"""Fourier transforms against NumPy: on a GPU these are another library's calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.integration.test_linalg import layouts, sample
from tests.support import host, xp

DTYPES = ("f4", "f8", "c8", "c16")
REAL_ONLY = ("rfft", "ihfft", "rfftn", "rfft2")
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
NORMS = (None, "backward", "ortho", "forward")


def check(name: str, x: Any, a: np.ndarray, *args: Any, **kwargs: Any) -> None:
    want = getattr(np.fft, name)(a, *args, **kwargs)
    got = host(getattr(xp.fft, name)(x, *args, **kwargs))
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    size = np.max(np.abs(want), initial=1e-30)
    np.testing.assert_allclose(got, want, 0, 40 * np.finfo(want.dtype).eps * size)


def serves(name: str, dtype: str) -> bool:
    return not (name in REAL_ONLY and dtype.startswith("c"))


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_axis(name: str, dtype: str) -> None:
    if not serves(name, dtype):
        with pytest.raises(TypeError):
            host(getattr(xp.fft, name)(xp.ones(4, dtype=np.dtype(dtype))))
        return
    for shape in ((1,), (2,), (17,), (128,), (3, 8), (5, 3, 4)):
        a = sample(shape, dtype)
        for x in layouts(a) if len(shape) > 1 else (xp.asarray(a), xp.asarray(np.append(a, a))[: len(a)]):
            for axis in range(-1, len(shape) - 1):
                m = shape[axis]
                for n in {m, m + 3, max(m - 1, 1)}:
                    check(name, x, a, n, axis)
        for norm in NORMS:
            check(name, xp.asarray(a), a, 6, 0, norm)
        np.testing.assert_array_equal(host(x), a)
    with pytest.raises(ValueError, match="data points"):
        getattr(xp.fft, name)(xp.asarray(sample((3,), dtype)), 0)
    with pytest.raises(IndexError):
        getattr(xp.fft, name)(xp.asarray(sample((3,), dtype)), axis=1)
    with pytest.raises(ValueError, match="norm"):
        getattr(xp.fft, name)(xp.asarray(sample((3,), dtype)), norm="half")


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_several_axes(name: str, dtype: str) -> None:
    if not serves(name, dtype):
        return
    for shape in ((6,), (4, 5), (3, 4, 5), (2, 3, 2, 5), (2, 2, 3, 2, 3)):
        a = sample(shape, dtype)
        for x in (xp.asarray(a), xp.asarray(np.ascontiguousarray(a.T)).T):
            check(name, x, a)
            check(name, x, a, axes=(-1, 0) if len(shape) > 1 else (0,), norm="ortho")
            check(name, x, a, s=(7, 3)[: len(shape)], axes=(0, 1)[: len(shape)], norm="forward")
    check(name, xp.asarray(a), a, axes=(1, 1))
    with pytest.raises(ValueError, match="lengths"):
        getattr(xp.fft, name)(xp.asarray(a), (3,), (0, 1))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_planes(name: str) -> None:
    a = sample((3, 4, 5), "f8")
    check(name, xp.asarray(a), a)
    check(name, xp.asarray(a), a, (5, 2), (0, 2))


@pytest.mark.parametrize("dtype", ["f2", "i4", "?", "u1"])
def test_conversion(dtype: str) -> None:
    a = (sample((3, 6), "f8") * 3).astype(dtype)
    for name in ("fft", "rfft", "irfft", "ifftn"):
        want = getattr(np.fft, name)(a)
        got = host(getattr(xp.fft, name)(xp.asarray(a)))
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-2 if got.dtype == "f2" else 1e-4, 1e-3)


def test_empty_and_scalar() -> None:
    check("fft", xp.zeros((0, 4)), np.zeros((0, 4)))
    check("rfft", xp.zeros((3, 0, 4)), np.zeros((3, 0, 4)))
    with pytest.raises((ValueError, IndexError)):
        host(xp.fft.fft(xp.asarray(1.0)))


@pytest.mark.parametrize("shape", [(1,), (4,), (5,), (4, 3)])
def test_shifts(shape: tuple[int, ...]) -> None:
    a = sample(shape, "f8")
    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(host(getattr(xp.fft, name)(xp.asarray(a))), getattr(np.fft, name)(a))
        np.testing.assert_array_equal(host(getattr(xp.fft, name)(xp.asarray(a), axes=0)), getattr(np.fft, name)(a, 0))


def test_misaligned_operand() -> None:
    a = sample((65,), "f4")
    check("rfft", xp.asarray(a)[1:], a[1:])
    check("fft", xp.asarray(a + 0j)[1:], a[1:] + 0j)


BAD: list[tuple[str, Any, dict[str, Any]]] = [
    *((name, ValueError, {"n": n}) for name in ONE for n in (0, -1, -3)),
    *((name, TypeError, {"n": n}) for name in ONE for n in (2.5, "3")),
    *((name, TypeError, {"axis": None}) for name in ONE),
    *((name, TypeError, {"s": (2.5, 3), "axes": (0, 1)}) for name in SEVERAL),
    *((name, IndexError, {"axes": ()}) for name in ("rfftn", "irfftn")),
]


@pytest.mark.parametrize(("name", "error", "arguments"), BAD)
def test_bad_arguments(name: str, error: Any, arguments: dict[str, Any]) -> None:
    a = np.arange(12.0).reshape(3, 4)
    for module, x in ((np.fft, a), (xp.fft, xp.asarray(a))):
        with pytest.raises(error):
            getattr(module, name)(x, **arguments)


def test_over_no_axes_and_one_axis_twice() -> None:
    a = sample((3, 4), "c16")
    x = xp.asarray(a)
    for name in ("fftn", "ifftn"):
        check(name, x, a, axes=())
    for name in ("fftshift", "ifftshift"):
        for axes in ((0, 0), (1, 0, -1), (), np.int64(1)):
            check(name, x, a, axes=axes)
    for name in ("fftfreq", "rfftfreq"):
        np.testing.assert_array_equal(host(getattr(xp.fft, name)(5, 0.1)), getattr(np.fft, name)(5, 0.1))
