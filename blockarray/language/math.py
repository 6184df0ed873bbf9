"""Maths on elements, by the names of Triton's `math` and of libdevice."""

from __future__ import annotations

from typing import Any

from .elementwise import (
    _floats,
    _row,
    abs,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)  # fmt: skip
from .emit import elementwise
from .errors import CompilationError
from .types import int32, uint32, uint64
from .values import Tensor, convert, tensor

acos, asin, atan = _row("acos", "arccos"), _row("asin", "arcsin"), _row("atan", "arctan")
acosh, asinh, atanh = _row("acosh", "arccosh"), _row("asinh", "arcsinh"), _row("atanh", "arctanh")
cosh, sinh, tan, tanh = (_row(n, n) for n in ("cosh", "sinh", "tan", "tanh"))
expm1, log1p, log10, cbrt = (_row(n, n) for n in ("expm1", "log1p", "log10", "cbrt"))
trunc, rint, nearbyint = _row("trunc", "trunc"), _row("rint", "rint"), _row("nearbyint", "rint")
isnan, isinf, isfinited = _row("isnan", "isnan"), _row("isinf", "isinf"), _row("isfinited", "isfinite")
finitef, signbit, fabs = _row("finitef", "isfinite"), _row("signbit", "signbit"), _row("fabs", "absolute")
atan2, hypot, copysign = _row("atan2", "arctan2"), _row("hypot", "hypot"), _row("copysign", "copysign")
fmod, nextafter = _row("fmod", "fmod"), _row("nextafter", "nextafter")
fmax, fmin = _row("fmax", "fmax"), _row("fmin", "fmin")
fast_dividef, div_rz = fdiv, fdiv
fast_expf, fast_logf, fast_sinf, fast_cosf, fast_tanhf = exp, log, sin, cos, tanh


def pow(x: Any, y: Any) -> Tensor:
    """x to the power of y."""
    x, y = tensor(x), tensor(y)
    return _power(x, convert(y, x.dtype) if y.dtype.is_int() and x.dtype.is_floating() else y)


_power = _row("pow", "power")


def exp10(x: Any) -> Tensor:
    """Ten to the power of x."""
    (x,) = _floats("exp10", x)
    return _power(tensor(10.0, x.dtype), x)


def rcbrt(x: Any) -> Tensor:
    """One divided by the cube root."""
    return fdiv(1.0, cbrt(x))


def round(x: Any) -> Tensor:
    """To the nearest integer, halves away from zero."""
    (x,) = _floats("round", x)
    whole = trunc(x)
    return whole + trunc((x - whole) * 2.0)


def popc(x: Any) -> Tensor:
    """The number of bits that are set."""
    x = tensor(x)
    if not x.dtype.is_int():
        raise CompilationError(f"popc takes integers, not {x.type}")
    unsigned = convert(x, uint32 if x.dtype.primitive_bitwidth <= 32 else uint64)
    return convert(Tensor(elementwise("bitwise_count", unsigned.value), uint32, x.shape), int32)
