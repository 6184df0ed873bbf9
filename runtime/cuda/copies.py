"""Copies between host and device, and between devices, in the order of the devices' streams.

The driver reads and writes ordinary host memory slowly, on one thread.  Large copies therefore go through pinned
memory: several threads, each with two slots of it, copy chunks between host memory and one slot while the device reads
or fills the other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

import numpy as np

from .. import limits
from ..device import CudaDevice
from . import driver
from .memory import Buffer, pool_of
from .streams import Event

#: Copies of fewer bytes are left to the driver.
_STAGED = 2 << 20
#: Bytes of a slot, and the least that is worth a chunk.
_SLOT = 4 << 20
_CHUNK = 256 << 10
_MAX_LANES = 4


def copy_from_host(source: np.ndarray, buffer: Buffer, offset: int = 0) -> None:
    """Copy an array's elements, in C order, to a buffer from byte `offset` on.

    Returns when `source` may be changed; the copy may still be under way on the device's stream.
    """
    source = np.ascontiguousarray(source)
    nbytes = source.nbytes
    _check_range(buffer, offset, nbytes)
    if not nbytes:
        return
    start, address = _address(source), buffer.address + offset
    context = driver.context(buffer.device.index)
    context.enter()
    if nbytes >= _STAGED:
        with _staging_lock:
            _run_lanes(buffer.device, nbytes, lambda *lane: _upload(buffer.device, start, address, nbytes, *lane))
    else:
        context.check(driver.api.cuMemcpyHtoDAsync(address, start, nbytes, context.stream))


def copy_to_host(buffer: Buffer, offset: int, out: np.ndarray) -> None:
    """Fill a C-contiguous array from a buffer's bytes from `offset` on, and wait until it is done."""
    nbytes = out.nbytes
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("copies from a device go to writeable C-contiguous arrays")
    _check_range(buffer, offset, nbytes)
    if not nbytes:
        return
    start, address = _address(out), buffer.address + offset
    context = driver.context(buffer.device.index)
    context.enter()
    if nbytes >= _STAGED:
        with _staging_lock:
            _run_lanes(buffer.device, nbytes, lambda *lane: _download(buffer.device, address, start, nbytes, *lane))
    else:
        context.check(driver.api.cuMemcpyDtoHAsync(start, address, nbytes, context.stream))
        context.synchronize()
    pool_of(buffer.device).sweep()


def copy(source: Buffer, offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
    """Copy bytes between buffers on one device or on two, in the order of both streams; does not wait."""
    _check_range(source, offset, nbytes)
    _check_range(target, target_offset, nbytes)
    if not nbytes:
        return
    api = driver.api
    start, end = source.address + offset, target.address + target_offset
    here = driver.context(target.device.index)
    if source.device is target.device:
        here.enter()
        here.check(api.cuMemcpyDtoDAsync(end, start, nbytes, here.stream))
        return
    there = driver.context(source.device.index)
    _connect(source.device, target.device)
    ready = Event(source.device).record()
    done = Event(target.device)
    here.check(api.cuStreamWaitEvent(here.stream, ready.handle, 0))
    here.check(api.cuMemcpyPeerAsync(end, here.handle, start, there.handle, nbytes, here.stream))
    done.record()
    # The source's memory is free for new work there only after the copy.
    there.enter()
    there.check(api.cuStreamWaitEvent(there.stream, done.handle, 0))


def clear(buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> None:
    """Set bytes (all from `offset` on by default) to zero, in stream order."""
    nbytes = buffer.nbytes - offset if nbytes is None else nbytes
    _check_range(buffer, offset, nbytes)
    if nbytes:
        context = driver.context(buffer.device.index)
        context.enter()
        context.check(driver.api.cuMemsetD8Async(buffer.address + offset, 0, nbytes, context.stream))


def pinned(nbytes: int, device: CudaDevice) -> int:
    """The address of pinned host memory, which is never freed."""
    context = driver.context(device.index)
    context.enter()
    return int(context.check(driver.api.cuMemHostAlloc(nbytes, driver.api.CU_MEMHOSTALLOC_PORTABLE)))


def _check_range(buffer: Buffer, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ValueError(f"bytes {offset} to {offset + nbytes} are outside of {buffer!r}")


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@cache
def _connect(source: CudaDevice, target: CudaDevice) -> None:
    """Let `target` read `source`'s pool directly, where the hardware can."""
    api, here, there = driver.api, driver.context(target.index), driver.context(source.index)
    if here.check(api.cuDeviceCanAccessPeer(here.device, there.device)):
        access = api.CUmemAccessDesc()
        access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = target.index
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        there.check(api.cuMemPoolSetAccess(pool_of(source).handle, [access], 1))


# -- staging ----------------------------------------------------------------------------------------------------------
class _Slot:
    """Pinned memory, and the event after which it is free."""

    __slots__ = ("address", "event")

    def __init__(self, device: CudaDevice) -> None:
        self.address = pinned(_SLOT, device)
        self.event: Event | None = None

    def wait(self) -> None:
        event, self.event = self.event, None
        # What another device failed at does not concern this copy.
        if event is not None and event.context.fault is None:
            event.wait()


_staging_lock = threading.Lock()
_slots: list[tuple[_Slot, _Slot]] = []


@cache
def _lanes() -> int:
    return min(_MAX_LANES, limits.cpus())


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_lanes() - 1, "blockarray-copy")


def _run_lanes(device: CudaDevice, nbytes: int, lane: Callable[[tuple[_Slot, _Slot], range, int], None]) -> None:
    """Call `lane(slots, starts, size)` on several threads, for chunks of `size` bytes."""
    lanes = _lanes()
    size = min(_SLOT, max(_CHUNK, -(-nbytes // (2 * lanes)) + 4095 & -4096))
    while len(_slots) < lanes:
        _slots.append((_Slot(device), _Slot(device)))
    jobs = [(_slots[i], range(i * size, nbytes, lanes * size), size) for i in range(min(lanes, -(-nbytes // size)))]
    futures: list[Future[None]] = []
    try:
        for job in jobs[1:]:
            try:
                futures.append(_workers().submit(lane, *job))
            except RuntimeError:  # the interpreter is shutting down
                lane(*job)
        lane(*jobs[0])
    finally:
        # The threads use memory of the caller's.
        wait(futures)
    for future in futures:
        future.result()


def _upload(
    device: CudaDevice, source: int, target: int, nbytes: int, slots: tuple[_Slot, _Slot], starts: range, size: int
) -> None:
    context = driver.context(device.index)
    for turn, start in enumerate(starts):
        slot = slots[turn & 1]
        slot.wait()
        count = min(size, nbytes - start)
        ctypes.memmove(slot.address, source + start, count)
        context.enter()
        context.check(driver.api.cuMemcpyHtoDAsync(target + start, slot.address, count, context.stream))
        slot.event = Event(device).record()


def _download(
    device: CudaDevice, source: int, target: int, nbytes: int, slots: tuple[_Slot, _Slot], starts: range, size: int
) -> None:
    context = driver.context(device.index)

    def fetch(turn: int) -> None:
        slot, start = slots[turn & 1], starts[turn]
        slot.wait()
        count = min(size, nbytes - start)
        context.enter()
        context.check(driver.api.cuMemcpyDtoHAsync(slot.address, source + start, count, context.stream))
        slot.event = Event(device).record()

    fetch(0)
    for turn, start in enumerate(starts):
        if turn + 1 < len(starts):
            fetch(turn + 1)
        slot = slots[turn & 1]
        slot.wait()
        ctypes.memmove(target + start, slot.address, min(size, nbytes - start))
