"""DLPack capsules of device memory, both ways.  (Those of host memory NumPy makes and reads.)"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np

from .dtypes import bfloat16

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
#: The version that is written, and the newest that can be read.
VERSION = (1, 0)
_READ_ONLY, _COPIED = 1, 2

#: Type codes by kind of dtype.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("index", c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DataType), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    )  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", _Tensor),
    )  # fmt: skip


_api = ctypes.pythonapi
# A capsule whose destructor runs has no references: it must stay a plain address there.
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_SetName", _api))

# Capsules keep no copy of their names.
_NAMES = {_Managed: c_char_p(b"dltensor"), _Versioned: c_char_p(b"dltensor_versioned")}
_USED = {_Managed: c_char_p(b"used_dltensor"), _Versioned: c_char_p(b"used_dltensor_versioned")}

#: What consumers hold: the structure by its address, with what it points to.
_exported: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _release(address: int) -> None:
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, c_void_p)
def _destroy(capsule: int) -> None:
    """Let go of a capsule that nobody consumed."""
    for name in _NAMES.values():
        if _is_valid(capsule, name):
            _exported.pop(_pointer(capsule, name), None)


for _callback in (_release, _destroy):
    # Consumers may call them when this module is gone.
    _api.Py_IncRef(ctypes.py_object(_callback))


class Memory(NamedTuple):
    """Elements in somebody's memory; strides count elements."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    readonly: bool
    owner: Any


def export(memory: Memory, versioned: bool, copied: bool) -> Any:
    """A capsule of memory, whose `owner` lives until the consumer lets go."""
    ndim = len(memory.shape)
    shape, strides = (c_int64 * ndim)(*memory.shape), (c_int64 * ndim)(*memory.strides)
    kind, bits = memory.dtype.kind, memory.dtype.itemsize * 8
    code = _BFLOAT if memory.dtype == bfloat16 else _CODES[kind]
    tensor = _Tensor(
        memory.address, _Device(*memory.device), ndim, _DataType(code, bits, 1), shape, strides, 0
    )  # fmt: skip
    deleter = ctypes.cast(_release, c_void_p)
    if versioned:
        flags = _READ_ONLY * memory.readonly | _COPIED * copied
        managed: Any = _Versioned(*VERSION, None, deleter, flags, tensor)
    elif memory.readonly:
        raise BufferError("a consumer that knows no versions of DLPack cannot be given read-only memory")
    else:
        managed = _Managed(tensor, None, deleter)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, memory.owner)
    return _new(address, _NAMES[type(managed)], ctypes.cast(_destroy, c_void_p))


class _Foreign:
    """Somebody's structure, until nobody here needs it any more."""

    def __init__(self, managed: Any) -> None:
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.deleter:
            _Deleter(self.managed.deleter)(ctypes.addressof(self.managed))


def consume(capsule: Any) -> Memory:
    """What a capsule describes; the capsule cannot be used again.

    Raises
    ------
    BufferError
        If it cannot be read.
    """
    for kind, name in _NAMES.items():
        if _is_valid(id(capsule), name):
            managed = kind.from_address(_pointer(id(capsule), name))
            break
    else:
        raise BufferError("this is no DLPack capsule, or it was used before")
    if isinstance(managed, _Versioned) and managed.major > VERSION[0]:
        raise BufferError(f"DLPack {managed.major}.{managed.minor} is not supported")
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _row_major(shape)
    dtype = _dtype(tensor.dtype)
    readonly = isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY)
    _rename(id(capsule), _USED[type(managed)])
    address = (tensor.data or 0) + tensor.byte_offset
    return Memory(
        address, (tensor.device.kind, tensor.device.index), shape, strides, dtype, readonly, _Foreign(managed)
    )  # fmt: skip


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _dtype(given: _DataType) -> np.dtype:
    if given.lanes == 1 and not given.bits % 8:
        if given.code == _BFLOAT and given.bits == 16:
            return bfloat16
        for kind, code in _CODES.items():
            if code == given.code:
                try:
                    return np.dtype(f"{kind}{given.bits // 8}")
                except TypeError:
                    break
    raise BufferError(f"DLPack's type (code {given.code}, {given.bits} bits, {given.lanes} lanes) is not supported")
