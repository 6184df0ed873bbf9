"""Values of each dtype in registers and in memory, and conversions between dtypes.

In a register a bool is i1, an integer itself, f16, bf16 and f32 are float (the narrow ones rounded), f64 is double, and
a complex number is a pair of its parts.  In memory a bool is i8, bf16 is i16, f16 is half; the parts of complex
numbers are loaded and stored one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from .lanes import Lanes
from .text import Text, V, lanes, vector

#: A value in registers: one LLVM value, or a complex number's two.
Register = V | tuple[V, V]

_REGISTER = {"bool": "i1", "f16": "float", "bf16": "float", "f32": "float", "f64": "double"}
_MEMORY = {"bool": "i8", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}


def register_type(dtype: str, n: int = 0) -> str:
    """LLVM type of n lanes of a dtype (n = 0: a scalar); of a complex one, of each part."""
    dtype = dtypes.PART.get(dtype, dtype)
    return vector(_REGISTER.get(dtype) or "i" + dtype[1:], n)


def memory_type(dtype: str, n: int = 0) -> str:
    """LLVM type in memory; of a complex dtype, of each part."""
    dtype = dtypes.PART.get(dtype, dtype)
    return vector(_MEMORY.get(dtype) or "i" + dtype[1:], n)


def constant(t: Text, value: Any, dtype: str, n: int = 0) -> Register:
    """A Python number in n lanes, rounded to the dtype."""
    with np.errstate(all="ignore"):
        rounded = np.asarray(value).astype(dtypes.NUMPY[dtype])[()]
    ty = register_type(dtype, n)
    if dtype in dtypes.COMPLEX:
        return t.const(np.real(rounded), ty), t.const(np.imag(rounded), ty)
    return t.const(rounded, ty)


def from_memory(t: Text, v: Register, dtype: str) -> Register:
    """A loaded value as held in registers."""
    if not isinstance(v, V):
        return v
    x = Lanes(t, v)
    if dtype == "bool":
        return (x != 0).v
    if dtype == "f16":
        return x.cast("fpext", "float").v
    if dtype == "bf16":
        return (x.cast("zext", "i32") << 16).from_bits().v
    return v


def to_memory(t: Text, v: Register, dtype: str) -> Register:
    """A value in registers as it is stored."""
    if not isinstance(v, V):
        return v
    x = Lanes(t, v)
    if dtype == "bool":
        return x.cast("zext", "i8").v
    if dtype == "f16":
        return x.cast("fptrunc", "half").v
    if dtype == "bf16":
        return x.to_bits().shr(16).cast("trunc", "i16").v
    return v


def round_to(t: Text, v: V, dtype: str) -> V:
    """A register whose value was computed in f32, rounded to f16 or bf16; of another dtype, itself."""
    if dtype == "f16":
        return Lanes(t, v).cast("fptrunc", "half").cast("fpext", "float").v
    if dtype == "bf16":
        x = Lanes(t, v)
        if t.round_bfloat is not None:
            rounded = t.round_bfloat(v)
            t.unrounded[rounded.ref] = v
            return rounded
        bits = x.to_bits()
        nearest = bits + 0x7FFF + (bits.shr(16) & 1)
        # Rounding could carry a NaN's payload into an infinity: make it quiet instead.
        kept = x.isnan().where(bits | 0x400000, nearest)
        return (kept & -0x10000).from_bits().v
    return v


def convert(t: Text, v: Register, source: str, into: str) -> Register:
    """A register of dtype `source` as one of `into`: see `dtypes.cast_array` for the values."""
    if source == into:
        return v
    if not isinstance(v, V):
        part = dtypes.PART[source]
        if into in dtypes.COMPLEX:
            return _real(t, v[0], part, dtypes.PART[into]), _real(t, v[1], part, dtypes.PART[into])
        if into == "bool":
            return t.bin("or", _real(t, v[0], part, "bool"), _real(t, v[1], part, "bool"))
        return _real(t, v[0], part, into)
    if into in dtypes.COMPLEX:
        part = dtypes.PART[into]
        return _real(t, v, source, part), t.const(0, register_type(part, lanes(v.ty)))
    return _real(t, v, source, into)


def _real(t: Text, v: V, source: str, into: str) -> V:
    if source == into:
        return v
    x = Lanes(t, v)
    target = register_type(into)
    if into == "bool":
        return (x != 0).v
    if source in dtypes.FLOAT:
        if into in dtypes.INTEGER:
            sign = "s" if into in dtypes.SIGNED else "u"
            ty = vector(target, lanes(v.ty))
            return t.saturating(f"fpto{sign}i", v, ty)
        if source == "f64":
            # NumPy rounds f64 to f16 once, ml_dtypes f64 to bf16 by way of f32.
            single = _to_odd(x) if into == "f16" else x.cast("fptrunc", "float")
            return round_to(t, single.v, into)
        wider = into == "f64" or into == "f32"
        return x.cast("fpext", target).v if wider else round_to(t, v, into)
    if into in dtypes.FLOAT:
        signed = source in dtypes.SIGNED
        return round_to(t, x.cast("sitofp" if signed else "uitofp", target).v, into)
    if dtypes.SIZE[into] < dtypes.SIZE[source]:
        return x.cast("trunc", target).v
    return x.cast("sext" if source in dtypes.SIGNED else "zext", target).v


def _to_odd(x: Lanes) -> Lanes:
    """A double as a float, rounded to odd where inexact: rounding that again to fewer bits is as if rounded once."""
    single = x.cast("fptrunc", "float")
    back = single.cast("fpext", "double")
    bits = single.to_bits()
    truncated = (abs(back) > abs(x)).where(bits - 1, bits)
    return (back != x).where(truncated | 1, bits).from_bits()
