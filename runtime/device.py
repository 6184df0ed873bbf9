"""Devices: where arrays live and kernels run."""

from __future__ import annotations

from typing import ClassVar

from .config import config


class Device:
    """A device, named like "cpu" or "cuda:0".

    There is one object for each device: equal devices are identical.  A device also equals its name.

    Parameters
    ----------
    name : str or Device
        The device's name.  An omitted index is 0, except for the CPU, of which there is one.

    Attributes
    ----------
    kind : str
        "cpu", "cuda", ...
    index : int
        Number among the devices of its kind.
    """

    __slots__ = ("kind", "index", "_name")

    kind: str
    index: int
    _name: str
    _known: ClassVar[dict[str, Device]] = {}

    def __new__(cls, name: str | Device = "cpu") -> Device:
        if isinstance(name, Device):
            return name
        if not isinstance(name, str):
            raise TypeError(f"a device is given by its name, not by {type(name).__name__}")
        kind, colon, index = name.strip().lower().partition(":")
        if kind not in _KINDS or (colon and not index.isdecimal()) or (kind == "cpu" and int(index or 0)):
            raise ValueError(f"unknown device {name!r}; available: {', '.join(map(str, devices()))}")
        canonical = kind if kind == "cpu" else f"{kind}:{int(index or 0)}"
        found = cls._known.get(canonical)
        if found is None:
            found = super().__new__(cls)
            found.kind, found.index, found._name = kind, int(index or 0), canonical
            # setdefault, so that two threads agree on one object.
            found = cls._known.setdefault(canonical, found)
        return found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            try:
                other = Device(other)
            except ValueError:
                return False
        return self is other if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"Device({self._name!r})"

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (self._name,)


_KINDS = frozenset(("cpu",))

CPU = Device("cpu")


def devices() -> tuple[Device, ...]:
    """The devices that can be used."""
    return (CPU,)


def default_device() -> Device:
    """The device that new arrays are put on."""
    return Device(config.device) if config.device else CPU
