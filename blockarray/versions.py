"""The namespace as earlier versions of the Array API standard describe it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import ModuleType
from typing import Any

from .info import Info

CURRENT = "2025.12"
#: Versions whose functions are all there.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", CURRENT)


class _Earlier(ModuleType):
    """The namespace of an earlier version; equal to the others, for it is the same library's."""

    def __init__(self, current: ModuleType) -> None:
        super().__init__(current.__name__, current.__doc__)
        vars(self).update(vars(current), _current=current)

    def __eq__(self, other: object) -> bool:
        return other is self._current or (isinstance(other, _Earlier) and other._current is self._current)

    def __hash__(self) -> int:
        return hash(self._current)


class _EarlierInfo(Info):
    def devices(self) -> Any:
        return [*super().devices()]


def _listing(function: Callable[..., tuple[Any, ...]]) -> Callable[..., list[Any]]:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> list[Any]:
        return [*function(*args, **kwargs)]

    return wrapper


@cache
def namespace(version: str) -> Any:
    """The namespace that follows a version of the standard.

    What later versions add stays; where they changed what a function returns, it is that of `version`.

    Parameters
    ----------
    version : str
        Such as "2024.12".

    Raises
    ------
    ValueError
        If the version is not supported.
    """
    import blockarray

    if version not in VERSIONS:
        raise ValueError(f"api_version {version!r} is not supported; these are: {', '.join(VERSIONS)}")
    if version == CURRENT:
        return blockarray
    earlier = _Earlier(blockarray)
    vars(earlier).update(
        __array_api_version__=version,
        __array_namespace_info__=_EarlierInfo,
        meshgrid=_listing(blockarray.meshgrid),
        broadcast_arrays=_listing(blockarray.broadcast_arrays),
    )
    return earlier
