"""Array memory: a recycling pool, and buffers that share memory with NumPy.

Freed blocks wait in one list per size class.  Getting memory from the operating system costs a page fault for each
page that is written (more than the computation, for most kernels), so blocks are reused while they are plentiful.
Every step on the pool's lists is one atomic operation of a list or dict: no lock is taken, so a buffer may be freed by
the garbage collector or a signal handler at any point.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from bisect import bisect_right
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from . import limits
from .config import config
from .device import CPU, Device

HUGE_PAGE = 2 << 20
#: Size classes from here on are mapped one by one; smaller blocks are carved out of slabs.
LARGE = 2 << 20
SLAB = 16 << 20
#: No address space is larger.
_ABSURD = 1 << 56

#: Freed blocks by size class, and the part of it from LARGE on (the same lists).
_free: dict[int, list[int]] = {}
_free_large: dict[int, list[int]] = {}
#: Mapped bytes of each large block by address, in use or not.
_mapped: dict[int, int] = {}
#: When a block of a large class was last freed.
_freed_at: dict[int, int] = {}
_clock = itertools.count()


class _Slab:
    """Mapped memory, handed out from the front."""

    __slots__ = ("base", "carved", "full")

    def __init__(self, base: int) -> None:
        self.base = base
        self.carved = 0
        self.full = False


_new = object.__new__
_slabs: dict[int, _Slab] = {}
#: Slabs with room.  Whoever carves one takes it out of the list meanwhile.
_open: list[_Slab] = []


class Buffer:
    """A block of memory; it returns to the pool, or lets go of its owner, when nobody refers to it.

    Attributes
    ----------
    address : int
        Address of the first byte.
    nbytes : int
        Bytes that may be used.
    device : Device
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
        device: Device = CPU,
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
    def __del__(self, _free: dict[int, list[int]] = _free, _large: int = LARGE) -> None:
        capacity = self.capacity
        if capacity:
            _free[capacity].append(self.address)
            if capacity >= _large and _bound_cache is not None:
                _bound_cache(capacity)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def __repr__(self) -> str:
        return f"<Buffer {self.nbytes} bytes at {self.address:#x} on {self.device}{', pinned' if self.pinned else ''}>"


class MemoryStats(NamedTuple):
    """Bytes of array memory.

    Attributes
    ----------
    live : int
        In use by buffers (rounded up to size classes).
    cached : int
        Freed, and kept for new buffers.
    reserved : int
        Obtained from the operating system.
    limit : int
        Bound on what is kept of freed blocks of 2 MiB or more.
    """

    live: int
    cached: int
    reserved: int
    limit: int


@lru_cache(4096)
def size_class(nbytes: int) -> int:
    """Bytes that the pool sets aside for a block: multiples of 64, then eight classes between powers of two."""
    if nbytes <= 512:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        return (nbytes + 63) & -64 or 64
    shift = (nbytes - 1).bit_length() - 4
    return ((nbytes - 1 >> shift) + 1) << shift


def allocate(nbytes: int, zeroed: bool = False) -> Buffer:
    """Memory for an array, aligned to 64 bytes (to 2 MiB from 2 MiB on).

    Parameters
    ----------
    nbytes : int
        Size in bytes; may be 0.
    zeroed : bool
        Whether the memory must hold zeros; otherwise it holds anything.

    Raises
    ------
    MemoryError
        If the operating system refuses, even after the freed blocks went back to it.
    """
    capacity = size_class(nbytes)
    try:
        address = _free[capacity].pop()
    except (KeyError, IndexError):
        address = _fresh(capacity, nbytes)
    else:
        if zeroed:
            ctypes.memset(address, 0, nbytes)
    buffer = _new(Buffer)
    buffer.address = address
    buffer.nbytes = nbytes
    buffer.device = CPU
    buffer.pinned = False
    buffer.owner = None
    buffer.capacity = capacity
    return buffer


def wrap(array: np.ndarray, copy: bool = False) -> Buffer:
    """A buffer over a NumPy array's memory.

    Parameters
    ----------
    array : ndarray
        Any shape and strides.
    copy : bool
        True: the buffer is the pool's and holds the elements in C order.  False: the buffer shares all bytes between
        the array's lowest and highest element, and keeps the array alive; it is pinned.
    """
    if array.dtype.hasobject:
        raise TypeError("cannot compute with arrays of Python objects")
    if copy:
        buffer = allocate(array.nbytes)
        as_numpy(buffer, array.dtype, 0, array.shape)[...] = array
        return buffer
    low, high = np.lib.array_utils.byte_bounds(array)
    return Buffer(int(low), int(high - low) if array.size else 0, CPU, True, array)


def held(array: np.ndarray) -> Buffer:
    """A buffer over a small NumPy array that nobody else uses: cheaper than memory of the pool.

    The array owns its elements, which lie in C order; it is the buffer's `owner`.
    """
    try:
        address = ctypes.addressof(_Byte.from_buffer(cast("Any", array)))
    except (BufferError, TypeError, ValueError):  # no elements, or of a type that the buffer protocol does not know
        address = array.ctypes.data
    return Buffer(address, array.nbytes, CPU, False, array)


_Byte = ctypes.c_char


def as_numpy(
    buffer: Buffer,
    dtype: np.dtype,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    writeable: bool = True,
) -> np.ndarray:
    """A NumPy array that shares a buffer's memory and keeps it alive.

    Parameters
    ----------
    buffer : Buffer
        Memory of the host.
    dtype : dtype
        Element type.
    offset : int
        Position of the first element, in elements.
    shape : tuple of int
        Shape of the result.
    strides : tuple of int, optional
        Strides in elements; C order by default.
    writeable : bool
        Whether the result may be written to.
    """
    size = dtype.itemsize
    steps = None if strides is None else tuple([s * size for s in strides])
    array = np.ndarray(shape, dtype, np.asarray(buffer), offset * size, steps)
    if not writeable:
        array.flags.writeable = False
    return array


def memory_stats() -> MemoryStats:
    """How much memory arrays hold, and how much the pool keeps for new ones."""
    cached = sum(size * len(blocks) for size, blocks in list(_free.items()))
    slabs = list(_slabs.values())
    large = sum(list(_mapped.values()))
    return MemoryStats(sum(s.carved for s in slabs) + large - cached, cached, SLAB * len(slabs) + large, _limit)


def set_limit(nbytes: int) -> int:
    """Bound the freed memory that is kept in blocks of 2 MiB or more; returns the bound until now."""
    global _limit
    if nbytes < 0:
        raise ValueError(f"a limit of {nbytes} bytes is negative")
    before, _limit = _limit, nbytes
    _evict(nbytes)
    return before


def trim() -> int:
    """Give freed memory back to the operating system; returns the number of bytes given back.

    Small blocks go back where a whole slab of them is free.
    """
    return _evict(0) + _drop_free_slabs()


def _fresh(capacity: int, nbytes: int) -> int:
    """An address of `capacity` zeroed bytes, and a list for it to return to."""
    if nbytes < 0:
        raise ValueError(f"cannot allocate {nbytes} bytes")
    blocks = _free.setdefault(capacity, [])
    if capacity < LARGE:
        return _carve(capacity)
    _free_large[capacity] = blocks
    address = _map(capacity)
    _mapped[address] = capacity
    return address


def _carve(capacity: int) -> int:
    try:
        slab = _open.pop()
    except IndexError:
        slab = None
    if slab is None or slab.carved + capacity > SLAB:
        if slab is not None:
            slab.full = True
        slab = _Slab(_map(SLAB))
        _slabs[slab.base] = slab
    address = slab.base + slab.carved
    slab.carved += capacity
    _open.append(slab)
    return address


def _cached_large() -> int:
    return sum([size * len(blocks) for size, blocks in list(_free_large.items())])


def _bound_cache(capacity: int) -> None:
    """Note that a block of this class was freed."""
    _freed_at[capacity] = next(_clock)
    if _cached_large() > _limit:
        _evict(_limit)


def _evict(limit: int) -> int:
    """Unmap free large blocks, of the classes that were used longest ago, until at most `limit` bytes are kept."""
    released = 0
    while _cached_large() > limit:
        filled = [size for size, blocks in list(_free_large.items()) if blocks]
        if not filled:
            break
        try:
            address = _free_large[min(filled, key=lambda size: _freed_at.get(size, 0))].pop(0)
        except IndexError:
            continue
        size = _mapped.pop(address)
        _munmap(address, size)
        released += size
    return released


def _drop_free_slabs() -> int:
    # Take all free small blocks and the open slabs, so that nobody else hands them out meanwhile.
    taken: list[tuple[int, int]] = []
    for size, blocks in list(_free.items()):
        if size < LARGE:
            count = len(blocks)
            for _ in range(count):
                try:
                    taken.append((blocks.pop(), size))
                except IndexError:
                    break
    opened: list[_Slab] = []
    while _open:
        try:
            opened.append(_open.pop())
        except IndexError:
            break
    slabs = dict(_slabs)
    bases = sorted(slabs)
    free = dict.fromkeys(bases, 0)
    homes = [bases[bisect_right(bases, address) - 1] for address, _ in taken]
    for home, (_, size) in zip(homes, taken, strict=True):
        free[home] += size
    mine = set(opened)
    empty = {b for b in bases if free[b] == slabs[b].carved and (slabs[b].full or slabs[b] in mine)}
    for home, (address, size) in zip(homes, taken, strict=True):
        if home not in empty:
            _free[size].append(address)
    _open.extend(slab for slab in opened if slab.base not in empty)
    for base in empty:
        del _slabs[base]
        _munmap(base, SLAB)
    return SLAB * len(empty)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value
_HUGEPAGE_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


def _map(nbytes: int) -> int:
    """Zeroed pages that start at a huge page's boundary; `nbytes` is a multiple of the page size."""
    address = _mmap(nbytes + HUGE_PAGE)
    if address is None:
        trim()
        address = _mmap(nbytes + HUGE_PAGE)
        if address is None:
            raise MemoryError(_complaint(nbytes))
    start = (address + HUGE_PAGE - 1) & -HUGE_PAGE
    if start > address:
        _libc.munmap(address, start - address)
    if start - address < HUGE_PAGE:
        _libc.munmap(start + nbytes, address + HUGE_PAGE - start)
    if _HUGEPAGE_ADVICE is not None:
        _libc.madvise(start, nbytes, _HUGEPAGE_ADVICE)
    return start


def _mmap(nbytes: int) -> int | None:
    if nbytes > _ABSURD:
        return None
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(None, nbytes, protection, flags, -1, 0)
    return None if address == _FAILED else address


def _munmap(address: int, nbytes: int) -> None:
    _libc.munmap(address, nbytes)


def _complaint(nbytes: int) -> str:
    stats = memory_stats()
    waiting = {address for blocks in list(_free_large.values()) for address in list(blocks)}
    largest = sorted((size for address, size in list(_mapped.items()) if address not in waiting), reverse=True)[:3]
    held = f"arrays hold {readable(stats.live)}"
    if largest:
        held += f" (the largest: {', '.join(map(readable, largest))})"
    return f"cannot allocate {readable(nbytes)}: {held}, freed blocks {readable(stats.cached)}"


def readable(nbytes: int) -> str:
    """A size in the unit that suits it, such as 1.5 GiB."""
    power = min(max(nbytes.bit_length() - 1, 0) // 10, 6)
    return f"{nbytes} B" if power == 0 else f"{nbytes / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB"


_limit = limits.memory() // 4 if config.pool_limit is None else config.pool_limit
