"""Maths on elements, by the names of Triton's `math` and of libdevice."""

from __future__ import annotations

from typing import Any

from .bessel import cyl_bessel_i0, cyl_bessel_i1, j0, j1, y0, y1
from .elementwise import (
    abs,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floats,
    floor,
    fma,
    from_table,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
    where,
)  # fmt: skip
from .emit import elementwise
from .errors import CompilationError
from .types import int32, uint32, uint64
from .values import Tensor, convert, tensor

acos, asin, atan = from_table("acos", "arccos"), from_table("asin", "arcsin"), from_table("atan", "arctan")
acosh, asinh, atanh = from_table("acosh", "arccosh"), from_table("asinh", "arcsinh"), from_table("atanh", "arctanh")
cosh, sinh, tan, tanh = (from_table(n, n) for n in ("cosh", "sinh", "tan", "tanh"))
expm1, log1p, log10, cbrt = (from_table(n, n) for n in ("expm1", "log1p", "log10", "cbrt"))
trunc, rint, nearbyint = from_table("trunc", "trunc"), from_table("rint", "rint"), from_table("nearbyint", "rint")
isnan, isinf, isfinited = (
    from_table("isnan", "isnan"),
    from_table("isinf", "isinf"),
    from_table("isfinited", "isfinite"),
)
finitef, signbit, fabs = (
    from_table("finitef", "isfinite"),
    from_table("signbit", "signbit"),
    from_table("fabs", "absolute"),
)
atan2, hypot, copysign = (
    from_table("atan2", "arctan2"),
    from_table("hypot", "hypot"),
    from_table("copysign", "copysign"),
)
fmod, nextafter = from_table("fmod", "fmod"), from_table("nextafter", "nextafter")
fmax, fmin = from_table("fmax", "fmax"), from_table("fmin", "fmin")
fast_dividef, div_rz = fdiv, fdiv
fast_expf, fast_logf, fast_sinf, fast_cosf, fast_tanhf = exp, log, sin, cos, tanh


def pow(x: Any, y: Any) -> Tensor:
    """x to the power of y."""
    x, y = tensor(x), tensor(y)
    return _power(x, convert(y, x.dtype) if y.dtype.is_int() and x.dtype.is_floating() else y)


_power = from_table("pow", "power")


def exp10(x: Any) -> Tensor:
    """Ten to the power of x."""
    (x,) = floats("exp10", x)
    return _power(tensor(10.0, x.dtype), x)


def rcbrt(x: Any) -> Tensor:
    """One divided by the cube root."""
    return fdiv(1.0, cbrt(x))


def round(x: Any) -> Tensor:
    """To the nearest integer, halves away from zero."""
    (x,) = floats("round", x)
    whole = trunc(x)
    return where(x == whole, x, whole + trunc((x - whole) * 2.0))  # infinities and -0.0 as they are


def popc(x: Any) -> Tensor:
    """The number of bits that are set."""
    x = tensor(x)
    if not x.dtype.is_int():
        raise CompilationError(f"popc takes integers, not {x.type}")
    unsigned = convert(x, uint32 if x.dtype.primitive_bitwidth <= 32 else uint64)
    return convert(Tensor(elementwise("bitwise_count", unsigned.value), uint32, x.shape), int32)
