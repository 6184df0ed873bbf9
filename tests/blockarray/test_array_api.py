"""What the Array API standard asks for beyond values: versions, DLPack, errors."""

import gc
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray import dlpack


def test_versions() -> None:
    x = xp.ones(3)
    assert x.__array_namespace__() is xp is x.__array_namespace__(api_version=xp.__array_api_version__)
    for version in ("2021.12", "2022.12", "2023.12", "2024.12"):
        earlier = x.__array_namespace__(api_version=version)
        assert earlier is xp.asarray([1]).__array_namespace__(api_version=version)
        assert earlier.__array_api_version__ == version and earlier.linalg is xp.linalg
        assert earlier == xp and xp == earlier and len({earlier, xp}) == 1 and earlier != np
        assert type(earlier.meshgrid(x, x)) is type(earlier.broadcast_arrays(x, x)) is list
        assert type(earlier.__array_namespace_info__().devices()) is list
    assert type(xp.meshgrid(x, x)) is type(xp.broadcast_arrays(x, x)) is tuple
    assert type(xp.__array_namespace_info__().devices()) is tuple
    bad: Any = "2019.12"
    with pytest.raises(ValueError, match=r"api_version '2019\.12'"):
        x.__array_namespace__(api_version=bad)


def test_linalg_takes_the_last_two_axes() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    x = xp.asarray(a)
    for offset in (-3, -1, 0, 2, 5):
        assert np.array_equal(xp.linalg.diagonal(x, offset=offset), np.linalg.diagonal(a, offset=offset))
        assert np.array_equal(xp.linalg.trace(x, offset=offset), np.linalg.trace(a, offset=offset))
        assert np.array_equal(xp.trace(x, offset), np.trace(a, offset))
    assert xp.linalg.trace(x, dtype=xp.float32).dtype == xp.float32
    with pytest.raises(ValueError, match="one-dimensional"):
        xp.linalg.outer(x, x)


class Foreign:
    """An array of another library, which knows as much of DLPack as `keywords` says."""

    def __init__(self, array: Any, *keywords: str) -> None:
        self.array, self.keywords = array, keywords

    def __dlpack__(self, **given: Any) -> Any:
        if not set(given) <= set(self.keywords):
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.cpu_only
def test_dlpack_shares_memory_unless_told_otherwise() -> None:
    for keywords in ((), ("max_version",), ("max_version", "copy", "dl_device")):
        theirs = np.arange(12.0).reshape(3, 4)
        x = xp.from_dlpack(Foreign(theirs[:, ::-2], *keywords))
        twice = x * 2
        theirs[0, 3] = 50
        assert x.tolist() == [[50, 1], [7, 5], [11, 9]] and twice.tolist() == [[6, 2], [14, 10], [22, 18]]
        x[1] = -1
        assert theirs[1].tolist() == [4, -1, 6, -1]
        for copy in (True, False):
            y = xp.from_dlpack(Foreign(theirs), copy=copy) if not keywords else xp.from_dlpack(theirs, copy=copy)
            theirs[2, 2] += 1
            assert bool(y[2, 2] == theirs[2, 2]) is not copy
    frozen = np.arange(3)
    frozen.flags.writeable = False
    x = xp.from_dlpack(frozen)
    x[0] = 7
    assert x.tolist() == [7, 1, 2] and frozen.tolist() == [0, 1, 2]


@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64"])
def test_dlpack_of_every_type(dtype: str) -> None:
    x = xp.asarray([0, 1, 1], dtype=getattr(xp, dtype))
    for version in (None, (0, 8), (1, 0), (1, 1), (2, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert ("versioned" in repr(capsule)) is (version is not None and version >= (1, 0))

        class Once:
            def __dlpack__(self, **_: Any) -> Any:
                return capsule  # noqa: B023

            def __dlpack_device__(self) -> Any:
                return 1, 0

        y = xp.from_dlpack(Once())
        assert y.dtype == x.dtype and bool(xp.all(x == y))
        with pytest.raises(BufferError):
            xp.from_dlpack(Once())
    empty = xp.from_dlpack(Foreign(xp.zeros((0, 3), dtype=x.dtype), "max_version"))
    assert empty.shape == (0, 3) and empty.dtype == x.dtype


@pytest.mark.cpu_only
def test_dlpack_keeps_memory_alive_and_says_that_it_copied() -> None:
    x = xp.arange(1000.0) + 1
    shared, copied = x.__dlpack__(max_version=(1, 0)), x.__dlpack__(max_version=(1, 0), copy=True)
    assert [dlpack._managed(c).flags for c in (shared, copied)] == [0, 2]
    x[0] = 5
    del x
    gc.collect()
    xp.evaluate([xp.ones(1000) * k for k in range(20)])
    for capsule, first in ((shared, 5), (copied, 1)):
        y = dlpack.as_numpy(dlpack.consume(capsule))
        assert y[0] == first and y[1:].tolist() == [*range(2, 1001)]


@pytest.mark.cpu_only
def test_dlpack_refuses() -> None:
    x = xp.arange(3.0)
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)
    for device in ((2, 99), (10, 0), (1, 3)):
        with pytest.raises(BufferError):
            x.__dlpack__(dl_device=device)
    odd: Any = np.ndarray((3,), np.int32, bytes(32), strides=(6,))
    with pytest.raises(BufferError):
        xp.from_dlpack(odd, copy=False)
    with pytest.raises(AttributeError):
        xp.from_dlpack([1, 2])
    broadcast = xp.broadcast_to(x, (2, 3))
    assert np.from_dlpack(broadcast).tolist() == [[0, 1, 2]] * 2


def test_variance_of_too_few_elements_is_a_nan() -> None:
    x = xp.asarray([1.0, 2.0])
    for correction, expected in ((0, 0.25), (1.5, 1.0), (2, np.nan), (3, np.nan)):
        assert np.array_equal(xp.var(x, correction=correction), expected, equal_nan=True)
        assert np.array_equal(xp.std(x, correction=correction), np.sqrt(expected), equal_nan=True)
        assert np.array_equal(xp.var(x, correction=correction, where=[True, True]), expected, equal_nan=True)
    assert np.isnan(xp.var(xp.zeros((0,))))


def test_ufuncs_of_other_libraries_give_arrays() -> None:
    x = xp.asarray([1.0, 6.0])
    mantissa, exponent = np.frexp(x)
    assert type(mantissa) is type(exponent) is xp.Array and mantissa.device == x.device
    assert mantissa.tolist() == [0.5, 0.75] and exponent.tolist() == [1, 3]
    total = np.hypot.reduce(x)
    assert type(total) is xp.Array and float(total) == np.hypot(1, 6)
    out = np.empty(2)
    assert np.spacing(x, out=out) is out


def test_unique_values_are_in_order() -> None:
    a = np.random.default_rng(0).integers(-50, 50, (20, 30))
    assert xp.unique_values(xp.asarray(a)).tolist() == np.unique(a).tolist()
    assert np.array_equal(xp.unique_values(xp.asarray([np.nan, 1.0, np.nan])), [1, np.nan, np.nan], equal_nan=True)


def test_arguments_that_are_refused() -> None:
    x = xp.ones(3)
    nothing: Any = None
    for call, error, what in (
        (lambda: xp.isdtype(xp.float64, nothing), TypeError, "kind"),
        (lambda: xp.isdtype(nothing, "real floating"), TypeError, "dtype"),
        (lambda: xp.arange(0, 5, 0), ZeroDivisionError, "step"),
        (lambda: xp.clip(x, 1, a_max=2), ValueError, "a_max"),
        (lambda: xp.expand_dims(x, axis=3), IndexError, "axis 3"),
        (lambda: xp.reshape(xp.ones((2, 3)).T, (6,), copy=False), ValueError, "copy"),
        (lambda: xp.zeros(1, device="nowhere"), ValueError, "nowhere"),
    ):
        with pytest.raises(error, match=what):
            call()
