"""Functions of floats for NVIDIA GPUs, made for throughput."""

from __future__ import annotations

import math

from ..llvm import library
from ..llvm.floats import Real
from ..llvm.lanes import Lanes
from ..llvm.polynomials import LOG, SINGLE, horner, small_cos, small_sin
from .together import Fast, Ways, or_library

#: Remainders of numbers below the first, and quotients below the second, may have digits that are lost.
_LEAST, _LEAST_QUOTIENT = 2.0**-100, 2.0**-125


def _approximate(symbol: str, x: Lanes) -> Lanes:
    """The hardware's approximation, to one unit in the last place."""
    return Lanes(x.t, x.t.call(f"llvm.nvvm.{symbol}", x.elem, [x.v], library.PURE))


def _inverse(y: Lanes) -> Lanes:
    """The reciprocal; a NaN or 0 where it is out of range."""
    r = _approximate("rcp.approx.ftz.f", y)
    return (-y).fma(r, 1).fma(r, r)


def _divide(m: Real, a: Lanes, b: Lanes) -> Fast:
    """A quotient by a divisor whose reciprocal can be shared."""
    inverse = _inverse(b)
    q = a * inverse
    # The remainder is exact, or its rounding too small to count, and the sum rounds as the quotient does.
    q = (-b).fma(q, a).fma(inverse, q)
    return Fast(q, (abs(a) >= _LEAST) & (abs(q) >= _LEAST_QUOTIENT))


def _sqrt(m: Real, x: Lanes) -> Fast:
    y = _approximate("rsqrt.approx.ftz.f", x)
    root = x * y
    least = x.like(_LEAST).to_bits()
    good = (x.to_bits() - least).below(x.like(2.0**127).to_bits() - least)
    return Fast((-root).fma(root, x).fma(y * 0.5, root), good)


def _log(m: Real, x: Lanes) -> Fast:
    """The logarithm of a normal number."""
    bits = x.to_bits()
    lowest = x.like(math.sqrt(0.5)).to_bits()
    # The exponent, times 2**23.
    power = (bits - lowest) & -(1 << SINGLE.mantissa)
    f = (bits - power).from_bits() - 1
    log = (f * f).fma(f.fma(horner(f, LOG), -0.5), f)
    log = power.cast("sitofp", "float").fma(math.log(2) / 2**SINGLE.mantissa, log)
    return Fast(log, (bits - (1 << SINGLE.mantissa)).below(254 << SINGLE.mantissa))


#: Functions that most operands have fast code for.
FAST: dict[str, Ways] = {
    "sin": or_library("sin", lambda m, x: Fast(small_sin(x), abs(x) <= SINGLE.angle), 4),
    "cos": or_library("cos", lambda m, x: Fast(small_cos(x), abs(x) <= SINGLE.angle), 4),
}
#: As well, where registers are not needed for what waits from pass to pass.
STREAMING: dict[str, Ways] = {
    **FAST,
    "divide": Ways(_divide, lambda m, a, b: a / b),
    "sqrt": Ways(_sqrt, lambda m, x: x.call("sqrt")),
    "log": or_library("log", _log),
}
