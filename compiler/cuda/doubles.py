"""Functions of doubles for NVIDIA GPUs, made for throughput.

A processor begins as many operations on doubles as it has other work for in the same time, so what counts is their
number: exponents are taken apart in integers, quotients begin with the hardware's approximation of the reciprocal.
Code without branches lets a thread's elements overlap.  Where rare operands need other code, one branch serves all
elements of a thread: see `together`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ..llvm import library
from ..llvm.floats import Emitter, Real
from ..llvm.lanes import Lanes
from ..llvm.polynomials import ATANH, DOUBLE, horner
from .together import Fast, Ways, or_library

#: A double's exponent is in the bits of its upper word from this one on.
_EXPONENT = 20
_BIAS = 1023
#: (exp(r) - 1 - r) / r**2 for r from -log(2) / 4 to 3 log(2) / 4: a Remez fit, of which exp(r) - 1 has 55 digits right.
_EXPM1 = (
    0.5000000000000004, 0.1666666666666605, 0.04166666666656493, 0.008333333334357027, 0.0013888888929071642,
    0.00019841264507177307, 2.480164087935013e-05, 2.7564879478234513e-06, 2.7258141619394325e-07,
    2.9342164755857257e-08,
)  # fmt: skip


# -- parts of numbers -------------------------------------------------------------------------------------------------
def _high(x: Lanes) -> Lanes:
    """The upper word."""
    return x.to_bits().shr(32).cast("trunc", "i32")


def _low(x: Lanes) -> Lanes:
    return x.to_bits().cast("trunc", "i32")


def _double(high: Lanes, low: Lanes | None = None) -> Lanes:
    """A double of its words; the lower one is 0 by default."""
    bits = high.cast("zext", "i64") << 32
    return (bits if low is None else bits | low.cast("zext", "i64")).from_bits()


def _with_high(x: Lanes, high: Lanes) -> Lanes:
    return _double(high, _low(x))


def _word(x: float) -> int:
    """The upper word of a positive constant."""
    return struct.unpack("<2i", struct.pack("<d", x))[1]


def _approximate(name: str, x: Lanes) -> Lanes:
    """The hardware's reciprocal (rcp) or reciprocal root (rsqrt), to about 20 bits."""
    symbol = f"llvm.nvvm.{name}.approx.{'ftz.' if name == 'rcp' else ''}d"
    return Lanes(x.t, x.t.call(symbol, "double", [x.v], library.PURE))


def _reciprocal(x: Lanes) -> Lanes:
    """1 / x to within 2 ULP, where neither is close to the ends of the range."""
    y = _approximate("rcp", x)
    # A bit more than the approximation, for divisors just below a power of two: only so do their quotients round well.
    y = _double(_high(y), x.to_bits().cast("trunc", "i32").like(1))
    error = (-x).fma(y, 1)
    return y.fma(error.fma(error, error), y)


def _nearest(t: Lanes) -> tuple[Lanes, Lanes]:
    """The integer that was rounded to by adding the magic constant, as an i32 and as a double."""
    return _low(t), t - DOUBLE.magic


# -- exponentials -----------------------------------------------------------------------------------------------------
def _scaled(p: Lanes, n: Lanes) -> Lanes:
    """p * 2**n for p around 1, rounded once, where the result is denormal."""
    first = n >> 1
    grown = _with_high(p, _high(p) + (first << _EXPONENT))
    return grown * _double((n - first + _BIAS) << _EXPONENT)


def _clamped(x: Lanes) -> Lanes:
    """x, where it is beyond 1280 something around that."""
    limit = _word(1280.0)
    return _with_high(x, _high(x).call("smin", limit).call("umin", limit - (1 << 31)))


def _exponential(x: Lanes, n: Lanes, r: Lanes) -> Lanes:
    """exp(r) 2**n, or x if that is a NaN."""
    return x.isnan().where(x, _scaled(horner(r, (1.0, 1.0, *DOUBLE.exp)), n))


def _exp(m: Real, x: Lanes) -> Lanes:
    y = _clamped(x)
    n, rounded = _nearest(y.fma(1 / math.log(2), DOUBLE.magic))
    high, low = DOUBLE.ln2
    return _exponential(x, n, rounded.fma(-low, rounded.fma(-high, y)))


def _exp2(m: Real, x: Lanes) -> Lanes:
    y = _clamped(x)
    n, rounded = _nearest(y + DOUBLE.magic)
    return _exponential(x, n, (y - rounded) * math.log(2))


def _tanh(m: Real, x: Lanes) -> Lanes:
    # expm1(2 y) / (expm1(2 y) + 2), which is 1 from 20 on.
    y = abs(x)
    y = (y > DOUBLE.one).where(DOUBLE.one, y)
    # Half-integers rounded down to integers: the rest is from -1/4 to 3/4 of log(2), far from where the sum cancels.
    t = y.fma(2 / math.log(2), DOUBLE.magic / 2)
    n = _low(t) >> 1
    rounded = _double(_high(t), _low(t) & -2) - DOUBLE.magic / 2
    high, low = DOUBLE.ln2
    r = rounded.fma(-low / 2, rounded.fma(-high / 2, y))
    half = (r * r).fma(horner(r, tuple([c * 2.0 ** (k + 1) for k, c in enumerate(_EXPM1)])), r)
    power = _double((n + _BIAS) << _EXPONENT)
    twice = _double((n + (_BIAS + 1)) << _EXPONENT)
    top = half.fma(twice, power - 1)
    inverse = _reciprocal(top + 2)
    ratio = top * inverse
    # The rest, without the rounding of the divisor.
    rest = (-ratio).fma(top, ratio.fma(-2, top))
    return rest.fma(inverse, ratio).copysign(x)


# -- logarithms -------------------------------------------------------------------------------------------------------
def _logarithm(x: Lanes, finish: Callable[[Lanes, Lanes], Lanes], low: float) -> Lanes:
    """finish(e, log(1 + f) + e low) for x = 2**e (1 + f)."""
    lift = 54
    tiny = _high(x) < (1 << _EXPONENT)
    y = tiny.where(x * 2.0**lift, x)
    high = _high(y)
    lowest = _word(math.sqrt(0.5))
    above = high - lowest
    exponent = (above >> _EXPONENT) + tiny.where(-lift, above.like(0))
    # Integers around 2**52 + 2**31 have their lower bits in the lower word.
    e = _double(high.like(0x43300000), exponent ^ -(1 << 31)) - (2.0**52 + 2.0**31)
    f = _with_high(y, (above & ((1 << _EXPONENT) - 1)) + lowest) - 1
    half = (0.5 * f) * f
    # f / (2 + f): its error counts for little beside f.
    d = 2 + f
    approximate = _approximate("rcp", d)
    error = (-d).fma(approximate, 1)
    s = f * approximate
    s = s.fma(error.fma(error, error), s)
    z = s * s
    log = finish(e, f - (half - s.fma(z.fma(horner(z, ATANH), half), e * low if low else 0.0)))
    # Zero, negative numbers, infinity and NaNs.
    special = ((high - (1 << _EXPONENT)).below(0x7FE00000)) ^ True
    zero = ((high << 1) | _low(y)) == 0
    return special.where(zero.where(-math.inf, x.fma(math.inf, math.inf)), log)


def _log(m: Real, x: Lanes) -> Lanes:
    high, low = DOUBLE.ln2
    return _logarithm(x, lambda e, log: e.fma(high, log), low)


def _log2(m: Real, x: Lanes) -> Lanes:
    return _logarithm(x, lambda e, log: log.fma(1 / math.log(2), e), 0.0)


#: Instead of the common emitters.
EMITTERS: dict[str, Emitter] = {"exp": _exp, "exp2": _exp2, "tanh": _tanh, "log": _log, "log2": _log2}


# -- functions that some operands need other code for -----------------------------------------------------------------
def _within(x: Lanes, exponents: int) -> Lanes:
    """Whether the magnitude is in [2**-exponents, 2**exponents)."""
    low = (_BIAS - exponents) << _EXPONENT + 1
    return ((_high(x) << 1) - low).below(2 * exponents << _EXPONENT + 1)


def _divide(m: Real, a: Lanes, b: Lanes) -> Fast:
    y = _reciprocal(b)
    y = (-b).fma(y, 1).fma(y, y)
    q = a * y
    return Fast((-b).fma(q, a).fma(y, q), _within(a, 510) & _within(b, 510))


def _sqrt(m: Real, x: Lanes) -> Fast:
    y = _approximate("rsqrt", x)
    error = x.fma(-(y * y), 1)
    y = error.fma(0.375, 0.5).fma(error * y, y)
    root = x * y
    half = _with_high(y, _high(y) - (1 << _EXPONENT))
    good = (_high(x) - _word(2.0**-900)).below(_word(2.0**900) - _word(2.0**-900))
    return Fast((-root).fma(root, x).fma(half, root), good)


def _quarter_turns(a: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """Number of quarter turns in the angle a >= 0, sine and cosine of the rest, and whether those are right."""
    first, second, third = DOUBLE.half_pi
    n, rounded = _nearest(a.fma(2 / math.pi, DOUBLE.magic))
    # The first difference is exact, and no number is so near to a multiple that the others lose digits that count.
    r = rounded.fma(-third, rounded.fma(-second, rounded.fma(-first, a)))
    z = r * r
    sin = (r * z).fma(horner(z, DOUBLE.sin), r)
    cos = z.fma(horner(z, (-0.5, *DOUBLE.cos)), 1)
    return n, sin, cos, _high(a).below(_word(DOUBLE.angle))


def _signed(x: Lanes, sign: Lanes) -> Lanes:
    """x with its sign changed where the top bit of a word is set."""
    return _with_high(x, _high(x) ^ (sign & -(1 << 31)))


def _sin(m: Real, x: Lanes) -> Fast:
    n, sin, cos, good = _quarter_turns(abs(x))
    return Fast(_signed(((n & 1) != 0).where(cos, sin), (n << 30) ^ _high(x)), good)


def _cos(m: Real, x: Lanes) -> Fast:
    n, sin, cos, good = _quarter_turns(abs(x))
    return Fast(_signed(((n & 1) != 0).where(sin, cos), (n + 1) << 30), good)


#: Functions that most operands have fast code for.
FAST: dict[str, Ways] = {
    "divide": Ways(_divide, lambda m, a, b: a / b),
    "sqrt": Ways(_sqrt, lambda m, x: x.call("sqrt")),
    "sin": or_library("sin", _sin),
    "cos": or_library("cos", _cos),
}
