"""What a kernel can be given as a pointer: arrays of this library and of others, on a GPU or the CPU."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..array import Array
from ..compiler import dtypes
from ..runtime.cuda import driver
from ..runtime.device import CPU
from . import memory
from .memory import HOST

#: A pointer: the type of its elements, as its library has it; the GPU's number, or HOST; the address.
Pointer = tuple[Any, int, int]


class Library(NamedTuple):
    """How arrays of some type are given to kernels.

    Attributes
    ----------
    name : str
    read : callable
        An array as a Pointer.
    stream : callable or None
        The driver's handle of the stream on which the library works now, on the GPU of a number.
    writable : callable or None
        Whether an array may be written to; None: all may.
    """

    name: str
    read: Callable[[Any], Pointer]
    stream: Callable[[int], int] | None = None
    writable: Callable[[Any], bool] | None = None


#: By type of array, as far as they have been met.
_libraries: dict[type, Library | None] = {}


def library(x: Any) -> Library | None:
    """The library of an array; None if a kernel cannot take it for a pointer."""
    kind = type(x)
    if kind is Reinterpreted:
        found = library(x.base)
        return found and _reinterpreted(found)
    if kind not in _libraries:
        _libraries[kind] = _find(x)
    return _libraries[kind]


def pointer(x: Any) -> Pointer:
    """An array as a pointer; TypeError if it is none."""
    found = library(x)
    if found is None:
        raise TypeError(f"a {type(x).__name__} is no array in memory")
    return found.read(x)


def ir_dtype(dtype: Any) -> tuple[str, int]:
    """The block IR's name of elements of a type, whichever library's it is, and their bytes.

    Raises
    ------
    TypeError
        If kernels do not know it.
    """
    if isinstance(dtype, np.dtype):
        name = dtypes.name(dtype)
    else:
        spelled = str(dtype).rpartition(".")[2]
        name = getattr(dtype, "ir", None) or _SPELLED.get(spelled) or spelled
    if name not in dtypes.NUMPY or name in dtypes.COMPLEX:
        raise TypeError(f"kernels have no elements of type {dtype}")
    return name, dtypes.SIZE[name]


#: Names of types in other libraries.
_SPELLED = {
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float16": "f16", "half": "f16", "bfloat16": "bf16",
    "float32": "f32", "float": "f32", "float64": "f64", "double": "f64", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


# -- the libraries ----------------------------------------------------------------------------------------------------
def _find(x: Any) -> Library | None:
    kind = type(x)
    if kind is Array:
        return Library("blockarray", _read_array)
    if isinstance(x, np.ndarray):
        return Library("NumPy", _read_numpy, writable=lambda x: x.flags.writeable)
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "torch" in roots and hasattr(x, "data_ptr"):
        return _torch()
    if "cupy" in roots:
        return _cupy()
    if roots & {"jaxlib", "jax"}:
        # Their values never change: programs that were recorded before may read them later.
        return Library("JAX", _read_jax, writable=lambda x: False)
    if hasattr(kind, "__cuda_array_interface__") or hasattr(x, "__cuda_array_interface__"):
        return Library(kind.__name__, _read_interface, writable=lambda x: not x.__cuda_array_interface__["data"][1])
    if callable(getattr(x, "data_ptr", None)) and hasattr(x, "dtype"):
        return Library(kind.__name__, lambda x: (x.dtype, _home(x.data_ptr()), x.data_ptr()))
    return None


def _read_array(x: Array) -> Pointer:
    buffer, offset = memory.locate(x)
    device = buffer.device
    return x.dtype, HOST if device is CPU else device.index, buffer.address + offset


def _read_numpy(x: np.ndarray) -> Pointer:
    if any(s % x.itemsize for s in x.strides):
        raise ValueError(f"its strides {x.strides} are no multiples of its elements' {x.itemsize} bytes")
    return x.dtype, HOST, x.__array_interface__["data"][0]


def writable_address(x: Any, addressof: Any = ctypes.addressof, from_buffer: Any = ctypes.c_char.from_buffer) -> int:
    """Where the elements of most NumPy arrays begin; 0 for one that is read-only, and for some others."""
    try:
        return addressof(from_buffer(x))
    except (BufferError, TypeError, ValueError):  # it has gaps, no elements, or a type of ml_dtypes
        return 0


def _torch() -> Library:
    torch = importlib.import_module("torch")
    current = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return Library("torch", _read_torch, current)


def _read_torch(x: Any) -> Pointer:
    address = x.data_ptr()
    if not address and x.numel():
        raise TypeError(f"a tensor on {x.device} has no memory")
    return x.dtype, x.get_device(), address


def _cupy() -> Library:
    cupy = importlib.import_module("cupy")
    return Library(
        "CuPy", lambda x: (x.dtype, x.device.id, x.data.ptr), lambda index: cupy.cuda.get_current_stream().ptr
    )


def _read_jax(x: Any) -> Pointer:
    x = x.block_until_ready()
    (device,) = x.devices()
    return x.dtype, HOST if device.platform == "cpu" else device.local_hardware_id, x.unsafe_buffer_pointer()


def _read_interface(x: Any) -> Pointer:
    given = x.__cuda_array_interface__
    address = given["data"][0]
    return np.dtype(given["typestr"]), _home(address), address


def _home(address: int) -> int:
    """The GPU that memory belongs to."""
    if not address or driver.missing():
        return HOST
    driver.context(driver.indices()[0]).enter()
    what = driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, index = driver.api.cuPointerGetAttribute(what, address)
    return HOST if status else int(index)


# -- memory of another type -------------------------------------------------------------------------------------------
class Reinterpreted:
    """An array whose elements are taken for those of another type of the same size."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.shape = base.shape

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def __repr__(self) -> str:
        return f"reinterpret({self.base!r}, {self.dtype})"


@cache
def _reinterpreted(of: Library) -> Library:
    """How such arrays are read whose bases are of a library."""
    writable = of.writable
    return of._replace(
        read=lambda x: (x.dtype, *of.read(x.base)[1:]), writable=writable and (lambda x: writable(x.base))
    )


def reinterpret(x: Any, dtype: Any) -> Any:
    """An array for kernels to take for one of `dtype`, a type of the block language of the same size."""
    if isinstance(x, Reinterpreted):
        x = x.base
    return Reinterpreted(x, dtype)
