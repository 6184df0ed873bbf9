"""Devices: where arrays live and kernels run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from .config import config
from .cuda import driver


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
        "cpu" or "cuda".
    index : int
        Number among the devices of its kind.

    Raises
    ------
    ValueError
        If there is no such device.
    RuntimeError
        If it names a GPU and GPUs cannot be used; the message says why.
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
        known = Device._known.get(name)
        if known is not None:
            return known
        found = _parse(name)
        if found is None:
            raise ValueError(f"unknown device {name!r}; available: {', '.join(map(str, devices()))}")
        kind, index = found
        canonical = kind if kind == "cpu" else f"{kind}:{index}"
        known = Device._known.get(canonical)
        if known is None:
            if kind == "cuda" and index not in driver.indices():
                if lacking := driver.missing():
                    raise RuntimeError(f"{canonical} cannot be used: {'; '.join(lacking)}")
                raise ValueError(f"unknown device {name!r}; available: {', '.join(map(str, devices()))}")
            if kind == "cuda":
                known = object.__new__(CudaDevice)
                known.pool = None
            else:
                known = object.__new__(Device)
            known.kind, known.index, known._name = kind, index, canonical
            # setdefault, so that two threads agree on one object.
            known = Device._known.setdefault(canonical, known)
        return known

    def synchronize(self) -> None:
        """Wait until all work that was given to the device is done."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return _parse(other) == (self.kind, self.index)
        return self is other if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"Device({self._name!r})"

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (self._name,)


class CudaDevice(Device):
    """An NVIDIA GPU.

    Attributes
    ----------
    name : str
        The product's name.
    capability : tuple of int
        Compute capability, such as (9, 0).
    multiprocessors : int
        Their number.
    total_memory : int
        Bytes of device memory.
    pool : object
        What cuda/memory.py allocates from; None before it was used.
    """

    __slots__ = ("pool",)

    pool: Any

    @property
    def name(self) -> str:
        return driver.properties(self.index).name

    @property
    def capability(self) -> tuple[int, int]:
        return driver.properties(self.index).capability

    @property
    def multiprocessors(self) -> int:
        return driver.properties(self.index).multiprocessors

    @property
    def total_memory(self) -> int:
        return driver.properties(self.index).total_memory

    def synchronize(self) -> None:
        driver.context(self.index).synchronize()


def _parse(name: str) -> tuple[str, int] | None:
    """Kind and index, None for what is no device's name."""
    kind, colon, index = name.strip().lower().partition(":")
    if kind not in ("cpu", "cuda") or (colon and not (index.isdecimal() and index.isascii())):
        return None
    number = int(index or 0)
    return None if kind == "cpu" and number else (kind, number)


CPU = Device("cpu")

#: What `set_default_device` chose for the process, and `device(...)` for the context.
_chosen: Device | None = None
_inside: ContextVar[Device | None] = ContextVar("device", default=None)


def devices() -> tuple[Device, ...]:
    """The devices that can be used: the CPU, then the GPUs."""
    return (CPU, *[Device(f"cuda:{index}") for index in driver.indices()])


def default_device() -> Device:
    """The device that new arrays are put on.

    The innermost `device(...)` decides, else `set_default_device`, else BLOCKARRAY_DEVICE; else it is the first GPU
    that can be used, or the CPU.
    """
    found = _inside.get() or _chosen
    if found is not None:
        return found
    if config.device:
        return Device(config.device)
    indices = driver.indices()
    return Device(f"cuda:{indices[0]}") if indices else CPU


def set_default_device(name: str | Device | None) -> None:
    """Put new arrays on this device; None: on the one that would be the default."""
    global _chosen
    _chosen = None if name is None else Device(name)


@contextmanager
def device(name: str | Device) -> Iterator[Device]:
    """Put new arrays on a device inside a `with` block, in the present thread or task only."""
    token = _inside.set(Device(name))
    try:
        yield Device(name)
    finally:
        _inside.reset(token)
