"""What the Array API standard asks for beyond values: versions, DLPack, errors."""

from typing import Any

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
