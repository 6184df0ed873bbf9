"""What the Array API standard asks for beyond values: versions, DLPack, errors."""

from typing import Any

import numpy as np
import pytest

import blockarray as xp


def test_versions() -> None:
    x = xp.ones(3)
    assert x.__array_namespace__() is xp is x.__array_namespace__(api_version=xp.__array_api_version__)
    for version in ("2021.12", "2022.12", "2023.12", "2024.12"):
        earlier = x.__array_namespace__(api_version=version)
        assert earlier is xp.asarray([1]).__array_namespace__(api_version=version)
        assert earlier.__array_api_version__ == version and earlier.linalg is xp.linalg
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
