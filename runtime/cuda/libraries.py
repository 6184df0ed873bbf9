"""NVIDIA's libraries, by way of nvmath-python's bindings."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..device import CudaDevice
from . import driver
from .memory import Buffer, allocate

_NEEDED = "linear algebra and Fourier transforms on a GPU need NVIDIA's libraries: pip install 'blockarray[cuda]'"
#: cudaDataType by dtype.
TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.complex64): 4, np.dtype(np.complex128): 5}


@cache
def binding(name: str) -> Any:
    """A module of nvmath.bindings.

    Raises
    ------
    ImportError
        If it is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(f"nvmath.bindings.{name}")
    except ImportError as error:
        raise ImportError(f"{_NEEDED} ({error})") from error


def create(function: Callable[[], Any], device: CudaDevice) -> Any:
    """A library's handle for a device: the first call that needs the library itself."""
    driver.context(device.index).enter()
    try:
        return function()
    except RuntimeError as error:  # The bindings look for the library now.
        raise ImportError(f"{_NEEDED} ({error})") from error


class Space:
    """Memory on the device and on the host that a library's function works in, until it is left.

    Parameters
    ----------
    device : CudaDevice
    sizes : pair of int
        Bytes on the device and on the host.

    Attributes
    ----------
    arguments : tuple of int
        Address and size of each, as the functions take them.
    """

    __slots__ = ("device", "arguments", "_host", "_buffer")

    def __init__(self, device: CudaDevice, sizes: tuple[int, int]) -> None:
        on_device, on_host = sizes
        self.device = device
        self._buffer: Buffer = allocate(device, on_device)
        self._host = ctypes.create_string_buffer(on_host) if on_host else None
        self.arguments = self._buffer.address, on_device, ctypes.addressof(self._host) if self._host else 0, on_host

    def __enter__(self) -> Space:
        return self

    def __exit__(self, *error: object) -> None:
        # Device memory is used again in the stream's order, but the host's would be gone at once.
        if self._host is not None:
            self.device.synchronize()
