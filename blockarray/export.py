"""Memory that NumPy and others see too.

`__array__` hands out the array's own memory, read-only.  While anybody holds it, writes to the array run at once and in
that memory, so that the outside sees them; an expression that was recorded before keeps the old elements, which move to
another block.  Memory that the outside may write to (an import with copy=False or by DLPack) is read only by operations
that run at once.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import array, cuda, flush, transfer
from .compiler.expr import BUFFER, SCALAR, UPDATE, VIEW, Expr, Shape, contiguous_strides, node, view
from .operands import from_numpy
from .runtime.device import CPU, CudaDevice, default_device
from .runtime.memory import allocate, as_numpy, wrap

if TYPE_CHECKING:
    from .array import Array
    from .storage import Storage


#: The export of each buffer that has one, by the buffer's id.  (A buffer's own `pinned` stays False: to the planner it
#: means that writes must go to the memory, and here those never reach the planner.)
_live: weakref.WeakValueDictionary[int, Export] = weakref.WeakValueDictionary()


class Export:
    """What NumPy arrays over a storage's memory keep alive."""

    __slots__ = ("buffer", "writable", "__weakref__")

    def __init__(self, buffer: Any, writable: bool = True) -> None:
        self.buffer = buffer
        self.writable = writable
        _live[id(buffer)] = self
        cuda.forget(buffer)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.buffer.__array_interface__


def host(e: Expr) -> np.ndarray:
    """The elements of an expression, computed if need be; read-only, and for the moment only."""
    if e.op is SCALAR:
        return np.asarray(e.attrs)
    if e.op is not BUFFER:
        flush.evaluate([e])
    if 0 in e.shape:
        return np.empty(e.shape, e.dtype)
    buf, offset, strides = e.attrs
    if buf.device is not CPU and _is_sparse(e):
        buf, offset, strides = transfer.dense(e).attrs
    return cuda.as_host(buf, e.dtype, offset, e.shape, strides, id(buf) not in _live)


def _is_sparse(e: Expr) -> bool:
    """Whether a leaf's elements are few among those between the first and the last."""
    reach = sum([abs(s) * (n - 1) for s, n in zip(e.attrs[2], e.shape)]) + 1
    return reach > max(2 * e.size, 1 << 14)


_C_TYPES = {np.dtype(c): c for c in (
    ctypes.c_bool, ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint8, ctypes.c_uint16,
    ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_double,
)}  # fmt: skip


def element(e: Expr) -> Any:
    """The element of a 0-d expression as a Python scalar; in memory it is read without the detour over NumPy."""
    if e.op is BUFFER:
        c_type = _C_TYPES.get(e.dtype)
        if c_type is not None:
            buf, offset, _ = e.attrs
            if buf.device is not CPU:
                return host(e).item()
            return c_type.from_address(buf.address + offset * e.dtype.itemsize).value
    return host(e).item()


def snapshot(e: Expr) -> Expr:
    """A leaf with a copy of the elements of an expression."""
    if isinstance(e.device, CudaDevice) and e.op is not SCALAR:
        flush.evaluate([e])
        source, offset, _ = transfer.dense(e).attrs
        buf: Any = cuda.copied(source, offset * e.dtype.itemsize, e.nbytes, e.device)
    else:
        buf = wrap(host(e), copy=True)
    return Expr(BUFFER, (), (buf, 0, contiguous_strides(e.shape)), e.shape, e.dtype, 0, buf.device)


def is_shared(e: Expr) -> bool:
    """Whether the outside sees the memory of a leaf."""
    return e.op is BUFFER and id(e.attrs[0]) in _live


def readonly(a: Array) -> np.ndarray:
    """The array's memory as a read-only NumPy array; a copy of a small window of a large array that is not computed."""
    if a.device is not CPU:
        return host(a._computed())
    result = host(a._computed()).copy() if a._is_small_window() else _exported(a)
    result.flags.writeable = False
    return result


def writable(a: Array) -> np.ndarray:
    """The array's memory as a NumPy array that may be written to; from now on readers of the array run at once."""
    share(a)
    return _exported(a)


def share(a: Array) -> Export:
    """The export of an array's storage for somebody who may write to it: from now on readers of it run at once."""
    storage = a._share()
    holder = _pin(storage)
    if _holders(storage) > _sole():
        _move(storage, holder)
    storage.expr.depth = array.LIMIT + 1
    return holder


def adopt(x: np.ndarray) -> Array:
    """An Array over a NumPy array's memory."""
    from .dtypes import canonical

    dtype = canonical(x.dtype)
    if dtype != x.dtype or any(s % x.itemsize for s in x.strides):
        raise ValueError("this array cannot be used without a copy")
    strides = tuple(s // x.itemsize for s in x.strides)
    offset = -sum(min(s * (n - 1), 0) for s, n in zip(strides, x.shape)) if x.size else 0
    buf = wrap(x)
    result = array.Array(Expr(BUFFER, (), (buf, offset, strides), x.shape, dtype, array.LIMIT + 1, buf.device))
    buf.pinned = False
    holder = Export(buf, x.flags.writeable)
    result._share().export = lambda: holder
    return result


def write(storage: Storage, offset: int, strides: Shape, value: Expr) -> bool:
    """Write `value` to a window of exported memory; False if nobody outside looks at it any more."""
    assert storage.export is not None
    holder = storage.export()
    if holder is None or not holder.writable:
        if holder is not None:
            storage.expr = snapshot(storage.expr)
        storage.export = None
        return False
    if storage.expr.device is not CPU:
        _write_on_device(storage, holder, offset, strides, value)
        return True
    source = host(value)
    if _holders(storage) > _sole():
        _move(storage, holder)
    target = view(storage.expr, offset, strides, value.shape)
    if target.op is BUFFER:
        buf, start, steps = target.attrs
        as_numpy(buf, target.dtype, start, target.shape, steps)[...] = source
    else:
        # A window that cuts across the rows of a foreign array: by way of a contiguous copy.
        whole = storage.expr
        buf, start, steps = whole.attrs
        memory = as_numpy(buf, whole.dtype, start, whole.shape, steps)
        copy = memory.copy()
        bytes_ = tuple(s * copy.itemsize for s in strides)
        np.ndarray(value.shape, copy.dtype, copy, offset * copy.itemsize, bytes_)[...] = source
        memory[...] = copy
    return True


def own(storage: Storage, holder: Export) -> bool:
    """Let nobody but the storage and the outside see the exported memory; whether it is another expression's now."""
    if _holders(storage) <= _sole():
        return False
    _move(storage, holder)
    return True


def _write_on_device(storage: Storage, holder: Export, offset: int, strides: Shape, value: Expr) -> None:
    """Write `value` to a window of exported device memory, by a kernel."""
    # It may read what it overwrites.
    flush.evaluate([value])
    if _holders(storage) > _sole():
        _move(storage, holder)
    base = storage.expr
    depth, buf = base.depth, base.attrs[0]
    new = node(UPDATE, (base, value), (offset, strides), base.shape, base.dtype)
    buf.pinned = True
    try:
        flush.evaluate([new])
    finally:
        buf.pinned = False
    assert new.attrs[0] is buf
    new.depth = depth
    storage.expr = new


def _exported(a: Array) -> np.ndarray:
    if 0 in a.shape:
        return np.empty(a.shape, a.dtype)
    storage = a._share()
    holder = _pin(storage)
    window = a._read()
    if window.op is not BUFFER:
        # Only a window across the rows of a foreign array: there is no such NumPy array.
        return host(window).copy()
    _, offset, strides = window.attrs
    size = window.dtype.itemsize
    steps = tuple(s * size for s in strides)
    return np.ndarray(window.shape, window.dtype, np.asarray(holder), offset * size, steps)


def _pin(storage: Storage) -> Export:
    """The storage's export, made if nobody holds one."""
    holder = storage.export() if storage.export is not None else None
    if holder is not None:
        return holder
    e = storage.expr
    if e.op is SCALAR:
        e = from_scalar(e)
    elif e.op is not BUFFER:
        flush.evaluate([e])
    if e.attrs[2] != contiguous_strides(e.shape):
        # A kernel transposes faster than NumPy.
        e = Expr(VIEW, (e,), (0, contiguous_strides(e.shape)), e.shape, e.dtype, 0, e.device)
        flush.evaluate([e])
    elif is_shared(e):
        e = snapshot(e)
    storage.expr = e
    holder = Export(e.attrs[0])
    storage.export = weakref.ref(holder)
    return holder


def from_scalar(e: Expr) -> Expr:
    """A leaf in memory with a host value."""
    device = e.device or default_device()
    x = np.asarray(e.attrs)
    buf = cuda.put(x, device) if isinstance(device, CudaDevice) else wrap(x, copy=True)
    return Expr(BUFFER, (), (buf, 0, ()), (), e.dtype, 0, buf.device)


def _holders(storage: Storage) -> int:
    """A count of references to the storage's memory; `_sole()` if no other expression uses it."""
    e = storage.expr
    return sys.getrefcount(e) + sys.getrefcount(e.attrs[0])


def _move(storage: Storage, holder: Export) -> None:
    """Leave a copy of the elements to the other users of the memory, and the memory to the storage."""
    e = storage.expr
    old: Any = e.attrs[0]
    copy: Any
    if old.device is CPU:
        copy = allocate(old.nbytes)
        np.asarray(copy)[...] = np.asarray(old)
    else:
        copy = cuda.copied(old, 0, old.nbytes, old.device)
    kept = type(old)(old.address, old.nbytes, old.device, False, old.owner, old.capacity)
    old.address, old.owner, old.capacity = copy.address, copy.owner, copy.capacity
    copy.capacity = 0  # its block belongs to `old` now
    del _live[id(old)]
    holder.buffer = kept
    _live[id(kept)] = holder
    storage.expr = Expr(BUFFER, (), (kept, *e.attrs[1:]), e.shape, e.dtype, e.depth, e.device)


@cache
def _sole() -> int:
    """What `_holders` counts for memory that only a storage and its export use."""
    from .storage import Storage

    storage = Storage(from_numpy(np.zeros(1)))
    holder = Export(storage.expr.attrs[0])
    count = _holders(storage)
    del holder
    return count
