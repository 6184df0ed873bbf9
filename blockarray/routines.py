"""Sorting and selection on a GPU whose results' shapes depend on the data: they run at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import checks, cuda, flush
from .array import Array, in_order, lazy
from .compiler import dtypes
from .compiler.expr import buffer
from .operands import placed
from .recipes import queue
from .runtime.cuda.memory import Buffer, allocate
from .runtime.device import CudaDevice, default_device

if TYPE_CHECKING:
    from .compiler.cuda.routines.compact import Selection


def serves(x: Array) -> bool:
    """Whether an array is on a GPU and its elements are real."""
    return isinstance(x.device, CudaDevice) and x.dtype.kind != "c"


def together(*arrays: Array) -> tuple[Array, ...]:
    """Arrays, with host data among them moved, if they are on one GPU and real; else nothing."""
    places = {a._device() for a in arrays} - {None}
    device = places.pop() if len(places) == 1 else None if places else default_device()
    if not isinstance(device, CudaDevice) or any(a.dtype.kind == "c" for a in arrays):
        return ()
    return tuple([Array(placed(a._read(), device)) for a in arrays])


def contiguous(x: Array) -> Array:
    """An array whose elements lie in row-major order."""
    e = x._read()
    ordered = in_order(e)
    return x if ordered is e else lazy(ordered)


def _computed(x: Array, device: CudaDevice) -> tuple[Buffer, int]:
    """The memory that an array's elements lie in, in row-major order, and the first one's address."""
    e = placed(in_order(x._read()), device)
    flush.evaluate([e])
    memory, offset, _ = e.attrs
    return memory, memory.address + offset * e.dtype.itemsize


def _array(memory: Buffer, count: int, dtype: np.dtype) -> Array:
    """The first elements of a buffer, in memory of their own if they are few of it."""
    nbytes = count * dtype.itemsize
    if 2 * nbytes < memory.nbytes:
        memory = cuda.copied(memory, 0, nbytes, memory.device)
    return Array(buffer(memory, (count,), dtype, device=memory.device))


def _compact(name: str, selection: Selection, x: Array, values: Array | None = None) -> tuple[Array | None, ...]:
    """What a condition selects of `values`, and where."""
    from .compiler.cuda.routines.compact import compact

    device = x.device
    assert isinstance(device, CudaDevice)
    source, address = _computed(x, device)
    addresses = {"x": address}
    results: dict[str, Buffer] = {}
    read = [source]
    if values is not None:
        memory, addresses["values"] = (source, address) if values is x else _computed(values, device)
        read.append(memory)
        results["selected"] = allocate(device, values.nbytes)
    if selection.positions:
        results["positions"] = allocate(device, x.size * dtypes.SIZE[selection.positions])
    results["count"] = allocate(device, 8)
    addresses.update({key: memory.address for key, memory in results.items()})
    routine = compact(selection, x.size)
    queue(name, routine, device, addresses, x.nbytes + sum([m.nbytes for m in results.values()]))
    if checks.suspects:
        checks.spread(None, read, results.values())
    count = int(cuda.download(results["count"], dtypes.INT64, 0, (1,), (1,))[0])
    selected = _array(results["selected"], count, values.dtype) if values is not None else None
    positions = _array(results["positions"], count, dtypes.INT64) if selection.positions else None
    return selected, positions


@cache
def _selection(dtype: np.dtype, **options: Any) -> Selection:
    from .compiler.cuda.routines.compact import Selection

    return Selection(dtypes.name(dtype), **options)


def positions(name: str, x: Array) -> Array:
    """Positions in the flattened array of the elements that are not zero, of an array that a GPU `serves`."""
    _, found = _compact(name, _selection(x.dtype, positions="i64"), x)
    assert found is not None
    return found


def selected(name: str, mask: Array, values: Array) -> Array:
    """The elements where a mask of the same shape holds, in one axis."""
    found, _ = _compact(name, _selection(mask.dtype, value=values.itemsize), mask, values)
    assert found is not None
    return found


def distinct(name: str, x: Array, equal_nan: bool) -> tuple[Array, Array]:
    """The different elements of a sorted vector, and where each is first."""
    options = _selection(x.dtype, condition="distinct", equal_nan=equal_nan, value=x.itemsize, positions="i64")
    values, starts = _compact(name, options, x, x)
    assert values is not None and starts is not None
    return values, starts


def sorted_with_order(name: str, x: Array) -> tuple[Array, Array]:
    """A vector's elements in order, and where they were."""
    from .compiler.cuda.routines.sort import sort

    device = x.device
    assert isinstance(device, CudaDevice)
    source, address = _computed(x, device)
    keys, order = allocate(device, x.nbytes), allocate(device, 8 * x.size)
    routine = sort(dtypes.name(x.dtype), x.size, positions="i64", processors=device.multiprocessors)
    addresses = {"x": address, "keys": keys.address, "positions": order.address}
    queue(name, routine, device, addresses, 2 * x.nbytes + order.nbytes)
    if checks.suspects:
        checks.spread(None, [source], [keys, order])
    return _array(keys, x.size, x.dtype), _array(order, x.size, dtypes.INT64)
