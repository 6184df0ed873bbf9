"""Device memory: buffers, and the pool they come from.

A device's work is on one stream, so that a block may be handed out again as soon as its buffer is gone: what will be
done with it comes after what was done with it before.  Freed blocks wait in one list per size class; behind these
lists the driver's stream-ordered pool joins and splits.  A buffer's finaliser only appends to a list: it may run in any
thread, at any point, after a fork and at exit.
"""

from __future__ import annotations

import gc
import threading
from functools import lru_cache
from typing import Any, NamedTuple

from ..config import config
from ..device import CudaDevice
from ..memory import readable
from . import driver
from .streams import Event

#: Every block starts and ends at a multiple of it.
ALIGNMENT = 512
#: Size classes are at most 32 MiB apart.
_MAX_STEP = 25

_lock = threading.RLock()
_new = object.__new__


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

    # No globals: at interpreter exit they may be gone.
    def __del__(self) -> None:
        capacity = self.capacity
        if capacity:
            pool = self.device.pool
            pool.free[capacity].append(self.address)
            pool.live -= capacity
        elif self.owner is not None:
            # Work that reads it may still be queued.
            self.device.pool.departed.append(self.owner)

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


@lru_cache(4096)
def size_class(nbytes: int) -> int:
    """Bytes that the pool sets aside for a block: multiples of 512, then eight classes between powers of two."""
    if nbytes <= 8 * ALIGNMENT:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        return (nbytes + ALIGNMENT - 1) & -ALIGNMENT or ALIGNMENT
    shift = min((nbytes - 1).bit_length() - 4, _MAX_STEP)
    return ((nbytes - 1 >> shift) + 1) << shift


def allocate(device: CudaDevice, nbytes: int) -> Buffer:
    """Memory on a device, aligned to 512 bytes; it holds anything.

    Raises
    ------
    MemoryError
        If the device has none left, even after the freed blocks went back to it, or if the limit forbids it.
    """
    pool: Pool = device.pool or pool_of(device)
    if pool.context.fault is not None:
        raise RuntimeError(pool.context.fault)
    capacity = size_class(nbytes)
    try:
        address = pool.free[capacity].pop()
    except (KeyError, IndexError):
        address = pool.fresh(capacity, nbytes)
    live = pool.live = pool.live + capacity
    if live > pool.peak:
        pool.peak = live
    buffer = _new(Buffer)
    buffer.address = address
    buffer.nbytes = nbytes
    buffer.device = device
    buffer.pinned = False
    buffer.owner = None
    buffer.capacity = capacity
    return buffer


def adopt(device: CudaDevice, address: int, nbytes: int, owner: Any) -> Buffer:
    """A pinned buffer over memory that is not ours; `owner` is kept until all work queued with the buffer is done.

    What the owner has queued on a stream of its own needs `streams.wait_for` first.
    """
    pool_of(device).sweep()
    return Buffer(address, nbytes, device, True, owner)


def memory_stats(device: CudaDevice) -> MemoryStats:
    """How much of a device's memory arrays hold, and how much is kept for new ones."""
    return pool_of(device).stats()


def set_memory_limit(device: CudaDevice, nbytes: int | None) -> int | None:
    """Bound the memory that is taken from a device (None: all there is); returns the bound until now."""
    if nbytes is not None and nbytes < 0:
        raise ValueError(f"a limit of {nbytes} bytes is negative")
    pool = pool_of(device)
    before, pool.limit = pool.limit, nbytes
    if nbytes is not None and pool.held > nbytes:
        pool.trim()
    return before


def trim(device: CudaDevice) -> int:
    """Wait for the device and give it back its freed memory; returns the number of bytes given back."""
    return pool_of(device).trim()


def pool_of(device: CudaDevice) -> Pool:
    """A device's pool, made if need be."""
    if device.pool is None:
        driver.context(device.index).enter()
        with _lock:
            if device.pool is None:
                device.pool = Pool(device)
    return device.pool


class Pool:
    """One device's memory.

    Attributes
    ----------
    context : Context
        The device's.
    handle : object
        The driver's stream-ordered pool behind it.
    free : dict
        Freed blocks by size class.
    departed : list
        Owners of foreign memory whose buffers are gone since `sweep` was called.
    live, peak : int
        Bytes in use, and the most there ever were.  Two threads can make them miss a block; `stats` mends it.
    held : int
        Bytes obtained from the driver's pool.
    keep : int
        Bytes of freed blocks that are kept when a new one is obtained.
    limit : int or None
        Bound on `held`.
    """

    __slots__ = (
        "device", "context", "handle", "free", "departed", "live", "peak", "held", "keep", "limit", "_blocks",
        "_leaving",
    )  # fmt: skip

    def __init__(self, device: CudaDevice) -> None:
        api, context = driver.api, driver.context(device.index)
        context.enter()
        self.device = device
        self.context = context
        self.free: dict[int, list[int]] = {}
        self.departed: list[Any] = []
        self.live = self.peak = self.held = 0
        self.keep = device.total_memory // 4 if config.pool_limit is None else config.pool_limit
        self.limit = config.device_memory_limit
        #: Sizes of the blocks that came from the driver, by address.
        self._blocks: dict[int, int] = {}
        self._leaving: list[tuple[Event, list[Any]]] = []
        # A pool of our own: settings and statistics of the device's default one are everybody's.
        properties = api.CUmemPoolProps()
        properties.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = device.index
        self.handle = context.check(api.cuMemPoolCreate(properties))
        threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        context.check(api.cuMemPoolSetAttribute(self.handle, threshold, api.cuuint64_t(self.keep)))

    def fresh(self, capacity: int, nbytes: int) -> int:
        """The address of a new block of a size class, for which there will be a list."""
        # Before the lock, which may be held for ever in a forked process.
        self.context.enter()
        with _lock:
            self.sweep()
            self.free.setdefault(capacity, [])
            if self._exceeds(capacity):
                self.trim()
            elif self.held - self.live > self.keep:
                self.evict()
            if self._exceeds(capacity):
                gc.collect()
                self.trim()
            if self._exceeds(capacity) or capacity > self.device.total_memory:
                raise MemoryError(self._complaint(nbytes))
            address = self._obtain(capacity)
            if address is None:
                gc.collect()
                self.evict()
                address = self._obtain(capacity)
            if address is None:
                self.trim()
                address = self._obtain(capacity)
            if address is None:
                raise MemoryError(self._complaint(nbytes))
            self._blocks[address] = capacity
            self.held += capacity
            return address

    def evict(self) -> int:
        """Give all freed blocks to the driver's pool, in stream order; returns their bytes."""
        released = 0
        self.context.enter()
        with _lock:
            for capacity, blocks in list(self.free.items()):
                for _ in range(len(blocks)):
                    try:
                        address = blocks.pop()
                    except IndexError:
                        break
                    del self._blocks[address]
                    self.held -= capacity
                    released += capacity
                    self.context.check(driver.api.cuMemFreeAsync(address, self.context.stream))
        return released

    def trim(self) -> int:
        """Wait for the device, then give it all freed memory; returns the number of bytes given back."""
        self.context.enter()
        with _lock:
            before = self._reserved()
            self.evict()
            self.context.synchronize()
            self.context.check(driver.api.cuMemPoolTrimTo(self.handle, 0))
            self.sweep()
            return before - self._reserved()

    def sweep(self) -> None:
        """Let go of owners of foreign memory that no queued work uses any more."""
        if not self.departed and not self._leaving:
            return
        self.context.enter()
        with _lock:
            count = len(self.departed)
            if count:
                owners, self.departed[:count] = self.departed[:count], []
                self._leaving.append((Event(self.device).record(), owners))
            while self._leaving and self._leaving[0][0].done():
                del self._leaving[0]

    def stats(self) -> MemoryStats:
        self.context.enter()
        with _lock:
            cached = sum(size * len(blocks) for size, blocks in list(self.free.items()))
            self.live = self.held - cached
            return MemoryStats(self.live, cached, self._reserved(), self.peak, self.limit)

    def _obtain(self, capacity: int) -> int | None:
        """A block from the driver's pool, None if there is no memory."""
        api = driver.api
        result = api.cuMemAllocFromPoolAsync(capacity, self.handle, self.context.stream)
        if result[0] == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        return int(self.context.check(result))

    def _exceeds(self, capacity: int) -> bool:
        return self.limit is not None and self.held + capacity > self.limit

    def _reserved(self) -> int:
        attribute = driver.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        return int(self.context.check(driver.api.cuMemPoolGetAttribute(self.handle, attribute)))

    def _complaint(self, nbytes: int) -> str:
        stats = self.stats()
        waiting = {address for blocks in list(self.free.values()) for address in list(blocks)}
        largest = sorted((size for address, size in self._blocks.items() if address not in waiting), reverse=True)[:3]
        held = f"arrays hold {readable(stats.live)}"
        if largest:
            held += f" (the largest: {', '.join(map(readable, largest))})"
        if self.limit is not None:
            bound = f"the limit is {readable(self.limit)}"
        else:
            free, total = self.context.check(driver.api.cuMemGetInfo())
            bound = f"the device has {readable(total)}, of which {readable(free)} are free"
        cached = readable(stats.cached)
        return f"cannot allocate {readable(nbytes)} on {self.device}: {held}, freed blocks {cached}; {bound}"
