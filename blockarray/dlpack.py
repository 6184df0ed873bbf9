"""DLPack capsules, both ways."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np

from .dtypes import bfloat16, float8_e4m3fn, float8_e5m2

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
#: The newest version that can be read.
VERSION = (1, 0)
_READ_ONLY, _IS_COPIED = 1, 2

#: Type codes by kind of dtype.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
#: Codes of types that NumPy has no names for.
_OTHERS = {bfloat16: 4, float8_e4m3fn: 10, float8_e5m2: 12}


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("index", c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


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


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))

# Capsules keep no copy of their names.
_NAMES = {_Managed: c_char_p(b"dltensor"), _Versioned: c_char_p(b"dltensor_versioned")}
_USED = {_Managed: c_char_p(b"used_dltensor"), _Versioned: c_char_p(b"used_dltensor_versioned")}


class CopyNeeded(BufferError, ValueError):
    """What was asked for needs a copy, which was forbidden.  The standard names both exceptions."""


class Memory(NamedTuple):
    """Elements in somebody's memory; strides count elements."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    readonly: bool
    owner: Any


class _Exporter:
    """What NumPy makes an array of, without looking at the elements."""

    def __init__(self, memory: Memory) -> None:
        self.owner = memory.owner
        size = memory.dtype.itemsize
        typestr = f"<u{size}" if memory.dtype in _OTHERS else memory.dtype.str
        self.__array_interface__ = {
            "data": (memory.address, memory.readonly), "shape": memory.shape, "typestr": typestr,
            "strides": tuple(s * size for s in memory.strides), "version": 3,
        }  # fmt: skip


def export(memory: Memory | np.ndarray, max_version: Any, copied: bool = False) -> Any:
    """A capsule of memory, whose `owner` lives until the consumer lets go, or of a NumPy array.

    NumPy makes it, since its functions for letting go may run where no Python code may; only the device is ours.
    """
    code = _OTHERS.get(memory.dtype)
    if isinstance(memory, np.ndarray):
        array = memory.view(f"u{memory.dtype.itemsize}") if code else memory
    else:
        array = np.asarray(_Exporter(memory))
    capsule = array.__dlpack__(max_version=max_version)
    managed = _managed(capsule)
    if isinstance(memory, Memory):
        managed.tensor.device = _Device(*memory.device)
    if code:
        managed.tensor.dtype.code = code
    if copied and isinstance(managed, _Versioned):
        managed.flags |= _IS_COPIED
    return capsule


def as_numpy(memory: Memory) -> np.ndarray:
    """A NumPy array over memory of the host."""
    if 0 in memory.shape:
        return np.empty(memory.shape, memory.dtype)
    array = np.asarray(_Exporter(memory))
    return array.view(memory.dtype) if memory.dtype in _OTHERS else array


def _managed(capsule: Any) -> Any:
    """The structure in a capsule that was not used yet."""
    for kind, name in _NAMES.items():
        if _is_valid(capsule, name):
            return kind.from_address(_pointer(capsule, name))
    raise BufferError("this is no DLPack capsule, or it was used before")


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
    managed = _managed(capsule)
    if isinstance(managed, _Versioned) and managed.major > VERSION[0]:
        raise BufferError(f"DLPack {managed.major}.{managed.minor} is not supported")
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _row_major(shape)
    dtype = _dtype(tensor.dtype)
    readonly = isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY)
    _rename(capsule, _USED[type(managed)])
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
        for dtype, code in _OTHERS.items():
            if given.code == code and given.bits == 8 * dtype.itemsize:
                return dtype
        for kind, code in _CODES.items():
            if code == given.code:
                try:
                    return np.dtype(f"{kind}{given.bits // 8}")
                except TypeError:
                    break
    raise BufferError(f"DLPack's type (code {given.code}, {given.bits} bits, {given.lanes} lanes) is not supported")
