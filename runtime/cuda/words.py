"""Words of pinned host memory that kernels write to and the host reads without a copy."""

from __future__ import annotations

import ctypes
import threading

import numpy as np

from ..device import CudaDevice
from . import driver

_PAGE = 4096
_SIZE = 8

_arenas: dict[int, _Arena] = {}
_lock = threading.Lock()


class Word:
    """A 64-bit word, zero at first; it is used again when nobody refers to it and the device has passed that point.

    Attributes
    ----------
    address : int
        Where the device sees it.
    view : ndarray
        The word, of shape (1,) and type int64.  Read it after a synchronisation; reset it by assignment.
    """

    __slots__ = ("address", "view", "_arena")

    def __init__(self, address: int, view: np.ndarray, arena: _Arena) -> None:
        self.address = address
        self.view = view
        self._arena = arena

    def __del__(self) -> None:
        self._arena.retired.append((self.address, self.view))


class _Arena:
    """The words of one device; its pages are kept for good."""

    __slots__ = ("context", "free", "retired")

    def __init__(self, context: driver.Context) -> None:
        self.context = context
        self.free: list[tuple[int, np.ndarray]] = []
        #: Given up by the host, but kernels that are queued may still write to them.
        self.retired: list[tuple[int, np.ndarray]] = []

    def take(self) -> Word:
        if not self.free:
            self._refill()
        address, view = self.free.pop()
        view[0] = 0
        return Word(address, view, self)

    def _refill(self) -> None:
        count = len(self.retired)
        if count >= _PAGE // _SIZE // 2:
            retired, self.retired[:count] = self.retired[:count], []
            self.context.synchronize()
            self.free += retired
            return
        api = driver.api
        host = self.context.check(api.cuMemHostAlloc(_PAGE, api.CU_MEMHOSTALLOC_DEVICEMAP))
        address = int(self.context.check(api.cuMemHostGetDevicePointer(host, 0)))
        words = np.ctypeslib.as_array((ctypes.c_int64 * (_PAGE // _SIZE)).from_address(int(host)))
        self.free += [(address + _SIZE * i, words[i : i + 1]) for i in range(len(words))]


def error_word(device: CudaDevice) -> Word:
    """A new word for a kernel's `errors` parameter."""
    context = driver.context(device.index)
    # Before the lock, which may be held for ever in a forked process.
    context.enter()
    with _lock:
        arena = _arenas.get(device.index)
        if arena is None:
            arena = _arenas[device.index] = _Arena(context)
        return arena.take()
