"""What the Array API standard asks a namespace about itself, and where arrays live."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import checks, flush
from . import dtypes as dt
from .array import Array
from .runtime.device import Device, default_device, device, devices, set_default_device

__all__ = [
    "device", "set_default_device", "get_default_device", "evaluate", "synchronize", "shares_memory",
    "may_share_memory", "shape", "ndim", "size", "isscalar",
]  # fmt: skip

_DTYPES: dict[str, np.dtype] = {
    name: getattr(dt, name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
        "complex64", "complex128",
    )
}  # fmt: skip


class Info:
    """Answers of `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """What the library can do."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device that new arrays are put on."""
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes that functions use unless told otherwise."""
        return {
            "real floating": dt.float64, "complex floating": dt.complex128, "integral": dt.int64, "indexing": dt.int64
        }  # fmt: skip

    def devices(self) -> tuple[Device, ...]:
        """The devices that can be used."""
        return devices()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The dtypes of the standard, of one kind or several."""
        return {name: d for name, d in _DTYPES.items() if kind is None or dt.isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """The namespace's description of itself."""
    return Info()


def get_default_device() -> Device:
    """The device that new arrays are put on."""
    return default_device()


def evaluate(*arrays: Any) -> None:
    """Compute arrays, together.

    Parameters
    ----------
    *arrays : Array, or nested list, tuple or dict of them
    """
    if len(arrays) == 1 and type(arrays[0]) is Array and (e := arrays[0]._expr) is not None:
        flush.evaluate([e])
        return
    pending = []
    stack = list(arrays)
    while stack:
        x = stack.pop()
        if isinstance(x, Array):
            pending.append(x._read() if x._storage is None else x._storage.expr)
        elif isinstance(x, dict):
            stack.extend(x.values())
        elif isinstance(x, list | tuple):
            stack.extend(x)
        else:
            raise TypeError(f"evaluate takes Arrays, not {type(x).__name__}")
    flush.evaluate(pending[::-1])


def synchronize() -> None:
    """Wait until all devices have finished; a CPU's `evaluate` returns finished already.

    Raises
    ------
    IndexError
        If an index array on a GPU held an index that is out of bounds.
    """
    checks.synchronize()


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays may see each other's writes."""
    if not (isinstance(a, Array) and isinstance(b, Array)) or a._storage is None or a._storage is not b._storage:
        return a is b
    (low_a, high_a), (low_b, high_b) = _reach(a), _reach(b)
    return low_a <= high_b and low_b <= high_a


may_share_memory = shares_memory


def _reach(a: Array) -> tuple[int, int]:
    """The lowest and the highest element of the storage that a view sees."""
    offset, strides = a._window()
    steps = [s * (n - 1) for s, n in zip(strides, a.shape)]
    return offset + sum(min(s, 0) for s in steps), offset + sum(max(s, 0) for s in steps)


def shape(a: Any) -> tuple[int, ...]:
    """Extents of an array's axes."""
    return a.shape if isinstance(a, Array) else np.shape(a)


def ndim(a: Any) -> int:
    """Number of an array's axes."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """Number of elements, or extent of an axis."""
    extents = shape(a)
    return int(np.prod(extents, dtype=np.int64)) if axis is None else extents[axis]


def isscalar(element: Any) -> bool:
    """Whether something is a scalar, not an array."""
    return not isinstance(element, Array) and np.isscalar(element)
