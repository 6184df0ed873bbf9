"""Values of each dtype in registers and in memory, and conversions between dtypes.

In a register a bool is i1, an integer itself, f32 and narrower floats are float (the narrow ones rounded), f64 is
double, and a complex number is a pair of its parts.  In memory a bool is i8, bf16 is i16, f16 is half, those of 8 bits
are i8; the parts of complex numbers are loaded and stored one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from .lanes import Lanes
from .text import Text, V, lanes, vector

#: A value in registers: one LLVM value, or a complex number's two.
Register = V | tuple[V, V]

_REGISTER = {"bool": "i1", **dict.fromkeys((*dtypes.NARROW, "f32"), "float"), "f64": "double"}
_MEMORY = {"bool": "i8", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}
_MEMORY |= dict.fromkeys(dtypes.FLOAT8, "i8")
#: Of a float of 8 bits: bits of the fraction, the least exponent of a normal number, and the largest number.
_FLOAT8 = {"f8e4m3": (3, -6, 448.0), "f8e5m2": (2, -14, 57344.0)}


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
    if dtype == "f8e5m2":  # the upper half of a half
        return (x.cast("zext", "i16") << 8).cast("bitcast", "half").cast("fpext", "float").v
    if dtype == "f8e4m3":
        wide = x.cast("zext", "i32")
        size = wide & 0x7F
        scaled = (size << 20).from_bits() * 2.0**120
        return (size == 0x7F).where(math.nan, scaled).copysign((wide << 24).from_bits()).v
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
    if dtype == "f8e5m2":
        return x.cast("fptrunc", "half").cast("bitcast", "i16").shr(8).cast("trunc", "i8").v
    if dtype == "f8e4m3":
        size = (abs(x) * 2.0**-120).to_bits().shr(20)
        sign = x.to_bits().shr(24) & 0x80
        return (x.isnan().where(size.like(0x7F), size) | sign).cast("trunc", "i8").v
    return v


def round_to(t: Text, v: V, dtype: str) -> V:
    """A register whose value was computed in f32, rounded to a narrow dtype; of another dtype, itself."""
    if dtype in t.rounding:
        rounded = t.rounding[dtype](v)
        t.unrounded[rounded.ref] = v
        return rounded
    if dtype == "f16":
        return Lanes(t, v).cast("fptrunc", "half").cast("fpext", "float").v
    if dtype == "bf16":
        x = Lanes(t, v)
        bits = x.to_bits()
        nearest = bits + 0x7FFF + (bits.shr(16) & 1)
        # Rounding could carry a NaN's payload into an infinity: make it quiet instead.
        kept = x.isnan().where(bits | 0x400000, nearest)
        return (kept & -0x10000).from_bits().v
    if dtype in dtypes.FLOAT8:
        return _round_to_8(Lanes(t, v), *_FLOAT8[dtype]).v
    return v


def _round_to_8(x: Lanes, fraction: int, least: int, most: float) -> Lanes:
    """Rounded to so many bits of the fraction; beyond `most` an infinity, or a NaN where the type has no infinity."""
    size = abs(x)
    # The last place of the sum with this power of two (and a half) is that of the result.
    bits = x.to_bits()
    exponent = bits & 0x7F80_0000
    exponent = exponent.call("umax", 127 + least << 23).call("umin", 127 + 16 << 23)
    magic = (exponent + (23 - fraction << 23 | 0x40_0000)).from_bits()
    rounded = (size + magic) - magic
    rounded = (rounded > most).where(math.inf if fraction == 2 else math.nan, rounded)
    # LLVM takes copysign for a conversion from double to half, which needs a library.
    return (rounded.to_bits() | bits & -0x8000_0000).from_bits()


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
            # NumPy rounds f64 to f16 once, ml_dtypes f64 to its types by way of f32.
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
