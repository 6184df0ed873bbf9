"""Dtypes, which are NumPy's or ml_dtypes', and the questions one asks of them."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from . import array
from .compiler import dtypes
from .compiler.ops import OperandType, promote

__all__ = ["result_type", "promote_types", "can_cast", "isdtype", "finfo", "iinfo"]

#: Every supported dtype to the one object that stands for it, so that dtypes can be compared by identity.
CANONICAL: dict[np.dtype, np.dtype] = {d: d for d in dtypes.NUMPY.values()}

(
    bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float8_e4m3fn, float8_e5m2, float16, bfloat16,
    float32, float64, complex64, complex128,
) = (dtypes.NUMPY[n] for n in (
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64",
    "c64", "c128",
))  # fmt: skip
bool_ = bool
#: Dtypes that NumPy does not know, by name.
OTHERS = {d.name: d for d in (bfloat16, float8_e4m3fn, float8_e5m2)}
#: NumPy's scalar types stand for dtypes, too.
_OF_SCALAR: dict[Any, np.dtype] = {d.type: d for d in CANONICAL}


def canonical(dtype: Any) -> np.dtype:
    """The supported dtype that `dtype` names; TypeError if there is none."""
    found = CANONICAL.get(dtype) if isinstance(dtype, np.dtype) else _OF_SCALAR.get(dtype)
    if found is not None:
        return found
    if isinstance(dtype, str) and dtype in OTHERS:
        return OTHERS[dtype]
    if dtype is None:
        return float64
    d = np.dtype(dtype)
    found = CANONICAL.get(d) or CANONICAL.get(d.newbyteorder("="))
    if found is None:
        raise TypeError(f"blockarray does not support dtype {d}")
    return found


def real_type(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex dtype's parts; of others, itself."""
    return dtypes.NUMPY[dtypes.PART.get(dtypes.name(dtype), dtypes.name(dtype))]


def operand_type(x: Any) -> OperandType:
    """The type by which an array, dtype or scalar takes part in promotion."""
    if isinstance(x, array.Array):
        return x.dtype
    if type(x) in (builtins.bool, int, float, complex):
        return type(x)
    if isinstance(x, np.ndarray | np.generic):
        return canonical(x.dtype)
    return canonical(x)


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that arrays, dtypes and Python scalars are promoted to together."""
    if not arrays_and_dtypes:
        raise ValueError("at least one array or dtype is required")
    return CANONICAL[promote(*map(operand_type, arrays_and_dtypes))]


def promote_types(type1: Any, type2: Any) -> np.dtype:
    """The smallest dtype that both dtypes can be cast to safely."""
    return CANONICAL[promote(canonical(type1), canonical(type2))]


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> builtins.bool:
    """Whether a cast between dtypes may happen under a rule."""
    source = from_.dtype if isinstance(from_, array.Array) else canonical(from_)
    return np.can_cast(source, canonical(to), casting)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype is of a kind, such as "real floating", or one of several."""
    if dtype is None or kind is None:
        raise TypeError(f"isdtype: {'dtype' if dtype is None else 'kind'} must not be None")
    d = canonical(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return _kind(d) in _KINDS[kind]
    if isinstance(kind, str):
        raise ValueError(f"unrecognized data type kind {kind!r}")
    return d == canonical(kind)


_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def _kind(dtype: np.dtype) -> str:
    return "f" if dtype.name in OTHERS else dtype.kind


def same_kind(source: np.dtype, to: np.dtype) -> builtins.bool:
    """Whether casts go to the same kind or a larger one; to NumPy, ml_dtypes' floats are of kinds of their own."""
    return "buifc".index(_kind(source)) <= "buifc".index(_kind(to))


class FloatInfo:
    """Limits of a floating-point type, as Python floats.

    Attributes
    ----------
    bits : int
    eps, max, min, smallest_normal, smallest_subnormal, tiny, resolution : float
    dtype : numpy.dtype
    """

    def __init__(self, dtype: np.dtype) -> None:
        other = dtype.name in OTHERS
        info = ml_dtypes.finfo(dtype) if other else np.finfo(dtype)
        self.dtype = canonical(dtype if other else np.dtype(info.dtype))
        self.bits = info.bits
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.smallest_normal = self.tiny = float(info.smallest_normal)
        self.smallest_subnormal = float(info.smallest_subnormal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, dtype={self.dtype})"


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating-point or complex type."""
    d = type.dtype if isinstance(type, array.Array) else canonical(type)
    if _kind(d) not in "fc":
        raise ValueError(f"data type {d} not inexact")
    return FloatInfo(d)


def iinfo(type: Any, /) -> np.iinfo:
    """Limits of an integer type."""
    return np.iinfo(type.dtype if isinstance(type, array.Array) else canonical(type))
