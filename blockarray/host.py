"""Library calls on the host, recorded as nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from .array import Array, lazy
from .compiler.expr import HOST, Shape, apart, node
from .dtypes import canonical
from .operands import from_numpy, placed
from .runtime import profiler
from .runtime.device import Device, default_device


def call(
    name: str, function: Callable[..., Any], arrays: Sequence[Array], shape: Shape, dtype: Any, *static: Any
) -> Array:
    """The array that function(*numpy_arrays, *static) gives, whose shape and dtype are known beforehand.

    Parameters
    ----------
    name : str
        What explain() calls it.
    function : callable
    arrays : sequence of Array
    shape : tuple of int
    dtype : dtype
    *static
        Arguments that are no arrays.
    """
    attrs = (name, function, static)
    return lazy(node(HOST, tuple(a._read() for a in arrays), attrs, shape, canonical(dtype)))


def at_once(name: str, function: Callable[..., Any], arrays: Sequence[Array], *static: Any) -> Any:
    """function(*numpy_arrays, *static), now; arrays in its result become Arrays on the operands' device.

    No plan shows such a call, so `profile()` does, by its `name`.
    """
    device = home(name, arrays)
    values = [a._host() for a in arrays]
    started = perf_counter() if profiler.active else 0.0
    result = function(*values, *static)
    if profiler.active:
        moved = sum(v.nbytes for v in values) + _nbytes(result)
        profiler.note(name, perf_counter() - started, moved, 1, kind="library call")
    return to_arrays(result, device)


def home(name: str, arrays: Sequence[Array]) -> Device:
    """The device that arrays are on; the default one if all are made of host data.

    Raises
    ------
    ValueError
        If they are on several.
    """
    found = None
    for a in arrays:
        device = a._device()
        if device is not None and device is not found:
            if found is not None:
                raise ValueError(apart(name, found, device))
            found = device
    return found or default_device()


def _nbytes(x: Any) -> int:
    return sum(map(_nbytes, x)) if isinstance(x, tuple | list) else getattr(x, "nbytes", 0)


def to_arrays(x: Any, device: Device) -> Any:
    """NumPy arrays and scalars, in tuples and lists too, as Arrays on a device."""
    if isinstance(x, tuple | list):
        parts = [to_arrays(i, device) for i in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return Array(placed(from_numpy(np.asarray(x)), device)) if isinstance(x, np.ndarray | np.generic) else x
