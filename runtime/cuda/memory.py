"""Device memory: buffers, and the pool they come from.

A device's work is on one stream, so that a block may be handed out again as soon as its buffer is gone: what will be
done with it comes after what was done with it before.  Freed blocks wait in one list per size class; behind these
lists the driver's stream-ordered pool joins and splits.  A buffer's finaliser only appends to a list: it may run in any
thread, at any point, after a fork and at exit.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ..device import CudaDevice

#: Every block starts and ends at a multiple of it.
ALIGNMENT = 512
#: Steps between size classes are at most so large: 32 MiB.
_MAX_STEP = 25

_pools: dict[int, Pool] = {}
_lock = threading.RLock()


class Buffer:
    """A block of device memory; it returns to the pool, or lets go of its owner, when nobody refers to it.

    Attributes
    ----------
    address : int
        Device address of the first byte.
    nbytes : int
        Bytes that may be used.
    device : CudaDevice
        Where the memory is.
    pinned : bool
        Whether something outside shares the memory, so that it must not be donated to another array.
    owner : object
        What keeps foreign memory alive; None for the pool's own.
    capacity : int
        The pool's size class; 0 for foreign memory.
    """

    __slots__ = ("address", "nbytes", "device", "pinned", "owner", "capacity", "__weakref__")

    def __init__(
        self,
        address: int,
        nbytes: int,
        device: CudaDevice,
        pinned: bool = False,
        owner: Any = None,
        capacity: int = 0,
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.pinned = pinned
        self.owner = owner
        self.capacity = capacity

    # What it needs is bound early: at interpreter exit the module's globals may be gone.
    def __del__(self, _pools: dict[int, Pool] = _pools) -> None:
        capacity = self.capacity
        if capacity:
            pool = _pools[self.device.index]
            pool.free[capacity].append(self.address)
            pool.live -= capacity
        elif self.owner is not None:
            # Work that reads it may still be queued.
            _pools[self.device.index].departed.append((self.owner, None))

    def __repr__(self) -> str:
        return f"<Buffer {self.nbytes} bytes at {self.address:#x} on {self.device}{', pinned' if self.pinned else ''}>"


class MemoryStats(NamedTuple):
    """Bytes of a device's memory that this library holds.

    Attributes
    ----------
    live : int
        In use by buffers (rounded up to size classes).
    cached : int
        Freed, and kept for new buffers.
    reserved : int
        Obtained from the device.
    peak : int
        The most that was ever live.
    limit : int or None
        Bound on live and cached memory.
    """

    live: int
    cached: int
    reserved: int
    peak: int
    limit: int | None


def allocate(device: CudaDevice, nbytes: int) -> Buffer:
    """Memory on a device, aligned to 512 bytes; it holds anything.

    Raises
    ------
    MemoryError
        If the device has none left, even after the freed blocks went back to it, or if the limit forbids it.
    """
    raise NotImplementedError


def adopt(device: CudaDevice, address: int, nbytes: int, owner: Any) -> Buffer:
    """A pinned buffer over memory that is not ours; `owner` is kept until all work queued with the buffer is done.

    What the owner has queued on a stream of its own needs `streams.wait_for` first.
    """
    raise NotImplementedError


def memory_stats(device: CudaDevice) -> MemoryStats:
    """How much of a device's memory arrays hold, and how much is kept for new ones."""
    raise NotImplementedError


def set_memory_limit(device: CudaDevice, nbytes: int | None) -> int | None:
    """Bound the memory that is taken from a device (None: all there is); returns the bound until now."""
    raise NotImplementedError


def trim(device: CudaDevice) -> int:
    """Wait for the device and give it back its freed memory; returns the number of bytes given back."""
    raise NotImplementedError


class Pool:
    """One device's memory."""

    free: dict[int, list[int]]
    departed: list[tuple[Any, Any]]
    live: int
