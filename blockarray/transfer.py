"""Arrays on their way between devices, and device memory that is shared with other libraries."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import array, cuda, dlpack, export, flush
from .compiler.expr import BUFFER, SCALAR, VIEW, Expr, Shape, contiguous_strides
from .dtypes import OTHERS, canonical
from .operands import SCALARS, placed
from .runtime.cuda import driver, streams
from .runtime.cuda import memory as device_memory
from .runtime.device import CPU, CudaDevice, Device
from .runtime.memory import allocate


def dense(e: Expr) -> Expr:
    """A computed expression as a leaf whose elements lie in row-major order; itself if they do."""
    if e.attrs[2] == contiguous_strides(e.shape):
        return e
    result = Expr(VIEW, (e,), (0, contiguous_strides(e.shape)), e.shape, e.dtype, 0, e.device)
    flush.evaluate([result])
    return result


def move(e: Expr, device: Device) -> Expr:
    """A leaf on a device with the value of a computed expression that is elsewhere."""
    if e.op is SCALAR:
        return Expr(SCALAR, (), e.attrs, (), e.dtype, 0, device)
    if isinstance(device, CudaDevice):
        if e.attrs[0].device is CPU:
            target: Any = cuda.put(export.host(e), device)
        else:
            e = dense(e)
            target = cuda.copied(e.attrs[0], e.attrs[1] * e.dtype.itemsize, e.nbytes, device)
    else:
        target = allocate(e.nbytes)
        np.asarray(target)[...] = np.ascontiguousarray(export.host(e)).reshape(-1).view(np.uint8)
    return Expr(BUFFER, (), (target, 0, contiguous_strides(e.shape)), e.shape, e.dtype, 0, device)


def to_device(a: array.Array, device: Device, stream: Any) -> array.Array:
    """See `Array.to_device`."""
    if stream is not None and CPU in (device, a.device) and device is a.device:
        raise ValueError("the CPU has no streams")
    if a._device() is None:
        result = array.Array(placed(a._read(), device))
    elif a.device is device:
        flush.evaluate([a._read()])
        result = a
    else:
        result = array.Array(move(a._computed(), device))
    if stream is not None and isinstance(device, CudaDevice):
        flush.evaluate([result._read()])
        streams.signal(device, int(stream))
    return result


# -- other libraries --------------------------------------------------------------------------------------------------
def exporter(x: Any) -> str | None:
    """How an object of another library hands out a GPU's memory, if it does."""
    if type(x) in SCALARS or isinstance(x, list | tuple | np.ndarray | np.generic):
        return None
    kind = getattr(x, "__dlpack_device__", None)
    if kind is not None:
        return "dlpack" if kind()[0] in (dlpack.CUDA, dlpack.CUDA_MANAGED) else None
    return "interface" if hasattr(x, "__cuda_array_interface__") else None


def adopt(x: Any, kind: str, copy: bool | None) -> array.Array:
    """An Array over the device memory of another library's array, or with a copy of it."""
    shared = _from_dlpack(x) if kind == "dlpack" else _from_interface(x)
    return array.Array(export.snapshot(shared._read())) if copy else shared


def _from_dlpack(x: Any) -> array.Array:
    device = Device(f"cuda:{x.__dlpack_device__()[1]}")
    assert isinstance(device, CudaDevice)
    stream = streams.stream(device)
    return _over(dlpack.consume(_capsule(x, stream=stream)), device)


def _capsule(x: Any, **kwargs: Any) -> Any:
    try:
        return x.__dlpack__(max_version=dlpack.VERSION, **kwargs)
    except TypeError:
        # An exporter from before there were versions.
        return x.__dlpack__(**kwargs)


def on_host(x: Any) -> np.ndarray:
    """The elements of another library's array, in its own memory if that is the host's, by DLPack."""
    kind, index = map(int, x.__dlpack_device__())
    elsewhere = {} if kind in (dlpack.CPU, dlpack.CUDA_HOST) else {"dl_device": (dlpack.CPU, 0)}
    try:
        memory = dlpack.consume(_capsule(x, **elsewhere))
    except TypeError as error:
        raise BufferError(f"DLPack device {(kind, index)} is not supported") from error
    return dlpack.as_numpy(memory)


def _from_interface(x: Any) -> array.Array:
    given = x.__cuda_array_interface__
    if given.get("mask") is not None:
        raise ValueError("masked arrays are not supported")
    dtype = np.dtype(given["typestr"])
    shape = tuple(given["shape"])
    address, readonly = given["data"]
    strides = given.get("strides")
    if strides is None:
        steps = contiguous_strides(shape)
    elif any(s % dtype.itemsize for s in strides):
        raise ValueError("strides must be multiples of the element's size")
    else:
        steps = tuple(s // dtype.itemsize for s in strides)
    device = _home(address)
    if given.get("stream") is not None:
        streams.wait_for(device, given["stream"])
    return _over(dlpack.Memory(address, (dlpack.CUDA, device.index), shape, steps, dtype, readonly, x), device)


def _home(address: int) -> CudaDevice:
    """The device that memory belongs to."""
    index = 0
    if address:
        driver.context(driver.indices()[0]).enter()
        what = driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        index = int(driver.check(driver.api.cuPointerGetAttribute(what, address)))
    device = Device(f"cuda:{index}")
    assert isinstance(device, CudaDevice)
    return device


def _over(memory: dlpack.Memory, device: CudaDevice) -> array.Array:
    """An Array over foreign memory: a window of the row of all elements between the first and the last."""
    dtype = canonical(memory.dtype)
    if 0 in memory.shape:
        nothing = device_memory.allocate(device, 0)
        window = (nothing, 0, contiguous_strides(memory.shape))
        return array.Array(Expr(BUFFER, (), window, memory.shape, dtype, 0, device))
    reach = [s * (n - 1) for s, n in zip(memory.strides, memory.shape, strict=True)]
    below = -sum(min(r, 0) for r in reach)
    count = below + sum(max(r, 0) for r in reach) + 1
    size = dtype.itemsize
    buffer = device_memory.adopt(device, memory.address - below * size, count * size, memory.owner)
    # What the outside may write to is read by operations that run at once; see export.py.
    row = array.Array(Expr(BUFFER, (), (buffer, 0, (1,)), (count,), dtype, array.LIMIT + 1, device))
    buffer.pinned = False
    holder = export.Export(buffer, not memory.readonly)
    row._share().export = lambda: holder
    result = row._view(below, memory.strides, memory.shape)
    result._readonly = any(s == 0 and n > 1 for s, n in zip(memory.strides, memory.shape))
    return result


def to_dlpack(a: array.Array, stream: Any, max_version: Any, dl_device: Any, copy: Any) -> Any:
    """See `Array.__dlpack__`."""
    device = a.device if dl_device is None else _named(dl_device, a)
    if device is not a.device and copy is False:
        raise dlpack.CopyNeeded(f"copy=False: an array on {a.device} cannot be handed to {device} without a copy")
    copied = bool(copy) or device is not a.device
    if device is CPU:
        if stream is not None:
            raise ValueError("stream must be None: the CPU has no streams")
        return dlpack.export(a._host().copy() if copied else export.writable(a), max_version, copied)
    assert isinstance(device, CudaDevice)
    if stream == 0:
        raise ValueError("stream 0 is ambiguous; 1 is the legacy default stream, 2 that of the calling thread")
    if copied:
        a = array.Array(export.snapshot(a._computed())) if device is a.device else to_device(a, device, None)
    address, strides, owner = exposed(a)
    if stream != -1:
        streams.signal(device, 1 if stream is None else stream)
    memory = dlpack.Memory(address, (dlpack.CUDA, device.index), a.shape, strides, a.dtype, a._is_readonly(), owner)
    return dlpack.export(memory, max_version, copied)


def _named(dl_device: Any, a: array.Array) -> Device:
    """The device that DLPack's pair of numbers names."""
    kind, index = map(int, dl_device)
    try:
        if kind in (dlpack.CPU, dlpack.CUDA) and not (kind == dlpack.CPU and index):
            return Device("cpu" if kind == dlpack.CPU else f"cuda:{index}")
    except (ValueError, RuntimeError) as error:
        raise BufferError(f"dl_device {(kind, index)}: {error}") from error
    raise BufferError(f"dl_device: an array on {a.device} cannot be handed to device {(kind, index)}")


def interface(a: array.Array) -> dict[str, Any]:
    """See `Array.__cuda_array_interface__`; the array is on a GPU."""
    device = a.device
    assert isinstance(device, CudaDevice)
    if a.dtype.name in OTHERS:
        raise AttributeError(f"the CUDA array interface has no name for {a.dtype}")
    address, strides, owner = exposed(a)
    # The consumer keeps the array, not what this function made.
    a._share().export = lambda: owner
    steps = None if strides == contiguous_strides(a.shape) else tuple(s * a.itemsize for s in strides)
    return {
        "shape": a.shape, "typestr": a.dtype.str, "data": (address, a._is_readonly()), "strides": steps, "version": 3,
        "stream": streams.stream(device),
    }  # fmt: skip


def exposed(a: array.Array) -> tuple[int, Shape, export.Export | None]:
    """Address and strides of an array's own memory, for the outside; readers of the array run at once from now on."""
    if not prod(a.shape):
        return 0, contiguous_strides(a.shape), None
    holder = export.share(a)
    _, offset, strides = a._read().attrs
    return holder.buffer.address + offset * a.itemsize, strides, holder
