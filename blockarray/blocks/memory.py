"""The memory of arrays that a kernel is given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from .. import cuda, export, flush
from ..array import Array
from ..compiler.expr import BUFFER, SCALAR, VIEW, Expr, contiguous_strides
from ..operands import blank, from_numpy
from ..runtime.device import CPU, CudaDevice, Device
from ..runtime.memory import allocate

#: The CPU, among the numbers of GPUs.
HOST = -1


def settle(arrays: Iterable[Array]) -> None:
    """Compute arrays, together."""
    arrays = list(arrays)
    for a in arrays:
        e = _held(a)
        if e.op is VIEW and e.inputs[0] is blank(e.dtype, e.device):
            e.realize(space(e.nbytes, e.device))
    pending = [e for a in arrays if (e := _held(a)).op is not BUFFER and e.op is not SCALAR]
    if pending:
        flush.evaluate(pending)


def space(nbytes: int, device: Device) -> Any:
    """A buffer on a device."""
    return cuda.allocate(device, nbytes) if isinstance(device, CudaDevice) else allocate(nbytes)


def locate(a: Array) -> tuple[Any, int]:
    """The buffer behind an array, and the byte of it where the first element lies; the rest follows by `a.strides`.

    Raises
    ------
    ValueError
        If its elements lie otherwise, in memory that others see too.
    """
    storage = a._storage
    e = a._expr if storage is None else storage.expr
    if e is None or e.op is not BUFFER or (e.attrs[2] != contiguous_strides(e.shape) and not _is_dense(e)):
        e = _dense(a)
        storage = a._storage
    buffer, offset, _ = e.attrs
    if storage is not None:
        offset += a._offset
    return buffer, offset * e.dtype.itemsize


def plain(a: Array) -> tuple[Any, int, int] | None:
    """Dtype, GPU's number or HOST, and address of a computed array whose memory lies as `a.strides` says; else None."""
    e = a._expr
    start = 0
    if e is None:
        e, start = a._shared.expr, a._offset
    if e.op is not BUFFER:
        return None
    buffer, offset, strides = e.attrs
    if strides != contiguous_strides(e.shape):
        return None
    dtype, device = e.dtype, e.device
    return dtype, HOST if device is CPU else device.index, buffer.address + (offset + start) * dtype.itemsize


def address(a: Array, dtype: Any, device: Device) -> int:
    """The address that `plain` gives; 0 if it gives none, or another dtype or device."""
    e = a._expr
    start = 0
    if e is None:
        e, start = a._shared.expr, a._offset
    if e.op is not BUFFER or e.dtype is not dtype or e.device is not device:
        return 0
    buffer, offset, strides = e.attrs
    return buffer.address + (offset + start) * dtype.itemsize if strides == contiguous_strides(e.shape) else 0


def buffer(a: Array) -> Any:
    """The buffer behind a computed array."""
    e = a._expr
    return (a._shared.expr if e is None else e).attrs[0]


def own(a: Array) -> bool:
    """Let nobody see what will be written to a computed array's memory, but its views and those outside who share it.

    Whoever else refers to the memory (recorded work, arrays with the same value) keeps what is there now.

    Returns
    -------
    bool
        Whether the array's memory is another one now.

    Raises
    ------
    ValueError
        If the array must not be written to.
    """
    storage = a._storage
    if storage is None:
        if _holders(a) <= _alone():
            return False
        e = a._expr
        assert e is not None
        a._expr = export.snapshot(e)
        return True
    if a._readonly:
        raise ValueError("it is read-only, as views of broadcasts and operands of custom operations are")
    holder = storage.export() if storage.export is not None else None
    if holder is not None:
        if not holder.writable:
            raise ValueError("its memory is read-only: write to a copy")
        return export.own(storage, holder)
    if _holders(storage) <= _alone():
        return False
    storage.expr = export.snapshot(storage.expr)
    return True


def _held(a: Array) -> Expr:
    """The expression whose memory an array's elements will be in."""
    e = a._expr
    return a._shared.expr if e is None else e


def _is_dense(e: Expr) -> bool:
    steps = zip(e.shape, e.attrs[2], contiguous_strides(e.shape))
    return 0 in e.shape or all(n == 1 or s == c for n, s, c in steps)


def _dense(a: Array) -> Expr:
    """The value behind an array, which becomes row-major."""
    e = _held(a)
    if e.op is SCALAR:
        e = export.from_scalar(e)
    else:
        flush.evaluate([e])
        if not _is_dense(e):
            if export.is_shared(e):
                raise ValueError("it is a view of memory whose rows do not follow each other: pass a copy of it")
            e = Expr(VIEW, (e,), (0, contiguous_strides(e.shape)), e.shape, e.dtype, 0, e.device)
            flush.evaluate([e])
    if a._storage is None:
        a._expr = e
    else:
        a._storage.expr = e
    return e


def _holders(place: Any) -> int:
    """A count of references to the computed value in an array without a storage, or in a storage, and to its memory."""
    e: Any = place._expr if type(place) is Array else place.expr
    return sys.getrefcount(e) + sys.getrefcount(e.attrs[0])


@cache
def _alone() -> int:
    """What `_holders` counts where nobody else refers to either."""
    return _holders(Array(from_numpy(np.zeros(1))))
