"""exp, exp2, log, log2, sin, cos and tanh of floats and doubles by range reduction and a minimax polynomial.

Free of branches, except that sines of large angles are left to C's library.  The polynomials are Remez fits of relative
error: below 2**-27 for float, 2**-55 for double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import library
from .floats import Real, emits
from .lanes import Lanes, branch


@dataclass(frozen=True, slots=True)
class Format:
    """Constants for one IEEE type.  Parts of a constant sum up to more digits than the type has."""

    mantissa: int
    bias: int
    #: exp overflows above `high`, and is 0 below `low`; tanh is 1 beyond `one`.
    high: float
    low: float
    one: float
    ln2: tuple[float, float]
    half_pi: tuple[float, float, float]
    #: Up to which angle the parts of half_pi reduce well.
    angle: float
    #: (exp(r) - 1 - r) / r**2
    exp: tuple[float, ...]
    #: (sin(sqrt(z)) / sqrt(z) - 1) / z
    sin: tuple[float, ...]
    #: (cos(sqrt(z)) - 1 + z / 2) / z**2
    cos: tuple[float, ...]
    #: (tanh(sqrt(z)) / sqrt(z) - 1) / z
    tanh: tuple[float, ...]

    @property
    def magic(self) -> float:
        """Added to a number, leaves its nearest integer in the low bits of the sum."""
        return 1.5 * 2**self.mantissa

    @property
    def magic_bits(self) -> int:
        return (self.bias + self.mantissa << self.mantissa) + (1 << self.mantissa - 1)


SINGLE = Format(
    mantissa=23,
    bias=127,
    high=89.0,
    low=-104.0,
    one=10.0,
    ln2=(0.6931471228599548, 5.769998878690785e-08),
    half_pi=(1.570796251296997, 7.549789415861596e-08, 5.390302953474238e-15),
    angle=2.0**15,
    exp=(0.4999999403953552, 0.1666651964187622, 0.04166839271783829, 0.008368780836462975, 0.001381447073072195),
    sin=(-0.16666655242443085, 0.00833216030150652, -0.00019515218446031213),
    cos=(0.04166664555668831, -0.0013887315290048718, 2.4433082217001356e-05),
    tanh=(-0.33333316445350647, 0.13332585990428925, -0.05385230854153633, 0.021071678027510643, -0.006274237763136625),
)
DOUBLE = Format(
    mantissa=52,
    bias=1023,
    high=710.0,
    low=-746.0,
    one=20.0,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    half_pi=(1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32),
    angle=2.0**24,
    exp=(
        0.5000000000000011, 0.1666666666666641, 0.04166666666652919, 0.008333333333495627, 0.0013888888943921454,
        0.00019841269504751636, 2.4801492763973955e-05, 2.7557587357531655e-06, 2.7630378228186743e-07,
        2.4999960208336418e-08,
    ),
    sin=(
        -0.1666666666666663, 0.008333333333322108, -0.00019841269829580329, 2.7557313618060165e-06,
        -2.5050747223405e-08, 1.5896197873538838e-10,
    ),
    cos=(
        0.041666666666666595, -0.001388888888887304, 2.4801587288841367e-05, -2.7557314176233885e-07,
        2.087570041558388e-09, -1.1358513938598842e-11,
    ),
    tanh=(
        -0.33333333333332316, 0.13333333333168707, -0.05396825387607851, 0.021869485974787186, -0.008863194503882595,
        0.0035917196956794227, -0.001453216746903537, 0.0005791369842716378, -0.00021030234479730507,
        5.102143865829893e-05,
    ),
)  # fmt: skip
#: (log(1 + f) - f + f**2 / 2) / f**3, for sqrt(1/2) <= 1 + f < sqrt(2), in float.
LOG = (
    0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.1662335842847824, 0.14201760292053223,
    -0.13160181045532227, 0.12761564552783966, -0.07634486258029938,
)  # fmt: skip
#: (2 atanh(sqrt(z)) / sqrt(z) - 2) / z, in double.
ATANH = (
    0.6666666666666734, 0.3999999999941434, 0.28571428742472477, 0.2222219856364367, 0.181835648617608,
    0.15314035898408324, 0.14796105287459915,
)  # fmt: skip
#: Below this tanh has its polynomial.
_TANH_SMALL = 0.55


def _format(x: Lanes) -> Format:
    return SINGLE if x.elem == "float" else DOUBLE


def horner(x: Lanes, coefficients: tuple[float, ...]) -> Lanes:
    value = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value.fma(x, c)
    return value


def _at_most(x: Lanes, limit: float) -> Lanes:
    """min(x, limit); NaNs stay."""
    return (x > limit).where(limit, x)


def _at_least(x: Lanes, limit: float) -> Lanes:
    return (x < limit).where(limit, x)


# -- exponentials -----------------------------------------------------------------------------------------------------
def _exp_of_rest(r: Lanes) -> Lanes:
    """exp(r) for |r| up to log(2) / 2."""
    return 1 + (r * r).fma(horner(r, _format(r).exp), r)


def _rest(x: Lanes) -> tuple[Lanes, Lanes]:
    """(t, r) with x = n log(2) + r, where n is in the low bits of t."""
    f = _format(x)
    t = x.fma(1 / math.log(2), f.magic)
    n = f.magic - t
    return t, n.fma(f.ln2[1], n.fma(f.ln2[0], x))


def _scale(p: Lanes, t: Lanes) -> Lanes:
    """p * 2**n in two steps, since the power may be out of range where the product is not, or denormal."""
    f = _format(p)
    exponents = t.to_bits() + (2 * f.bias - f.magic_bits)
    first = exponents.shr(1)
    power = lambda e: (e << f.mantissa).from_bits()
    return p * power(first) * power(exponents - first)


@emits("exp")
def _exp(m: Real, x: Lanes) -> Lanes:
    f = _format(x)
    t, r = _rest(_at_least(_at_most(x, f.high), f.low))
    return _scale(_exp_of_rest(r), t)


@emits("exp2")
def _exp2(m: Real, x: Lanes) -> Lanes:
    f = _format(x)
    x = _at_least(_at_most(x, f.high * 1.5), f.low * 1.5)
    t = x + f.magic
    return _scale(_exp_of_rest((x - (t - f.magic)) * math.log(2)), t)


@emits("tanh")
def _tanh(m: Real, x: Lanes) -> Lanes:
    f = _format(x)
    y = abs(x)
    z = y * y
    small = (y * z).fma(horner(z, f.tanh), y)
    t, r = _rest(2 * _at_most(y, f.one))
    power = ((t.to_bits() + (f.bias - f.magic_bits)) << f.mantissa).from_bits()
    large = 1 - 2 / (_exp_of_rest(r).fma(power, 1))
    return (y < _TANH_SMALL).where(small, large).copysign(x)


# -- logarithms -------------------------------------------------------------------------------------------------------
def _log_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(e, f) with x = 2**e (1 + f), for positive finite x."""
    f = _format(x)
    tiny = x < 2.0 ** (1 - f.bias)
    lift = f.mantissa + 1
    bits = tiny.where(x * 2.0**lift, x).to_bits()
    lowest = x.like(math.sqrt(0.5)).to_bits()
    above = bits - lowest
    # The exponent, biased, in the low bits of 2**mantissa.
    biased = (above + (f.bias << f.mantissa)).shr(f.mantissa) | (f.bias + f.mantissa << f.mantissa)
    offset = 2.0**f.mantissa + f.bias
    e = biased.from_bits() - tiny.where(offset + lift, x.like(offset))
    return e, ((above & ((1 << f.mantissa) - 1)) + lowest).from_bits() - 1


def _log_edges(x: Lanes, log: Lanes) -> Lanes:
    log = (x < math.inf).where(log, x)
    return (x <= 0).where((x == 0).where(-math.inf, x.like(math.nan)), log)


def _log1p_rest(f: Lanes, add: Lanes | float) -> Lanes:
    """log(1 + f) plus something small."""
    square = f * f
    if f.elem == "float":
        return f + square.fma(f.fma(horner(f, LOG), -0.5), add)
    half = 0.5 * square
    s = f / (2 + f)
    z = s * s
    return f - (half - s.fma(z.fma(horner(z, ATANH), half), add))


@emits("log")
def _log(m: Real, x: Lanes) -> Lanes:
    high, low = _format(x).ln2
    e, f = _log_parts(x)
    return _log_edges(x, e.fma(high, _log1p_rest(f, e * low)))


@emits("log2")
def _log2(m: Real, x: Lanes) -> Lanes:
    e, f = _log_parts(x)
    return _log_edges(x, _log1p_rest(f, 0.0).fma(1 / math.log(2), e))


# -- sine and cosine --------------------------------------------------------------------------------------------------
def _quarter_turns(a: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Bits whose low two count the quarter turns in the angle a >= 0, and sine and cosine of the rest."""
    f = _format(a)
    first, second, third = f.half_pi
    t = a.fma(2 / math.pi, f.magic)
    n = t - f.magic
    r = (-n).fma(first, a)
    if a.elem == "float":
        r = (-n).fma(third, (-n).fma(second, r))
        z = r * r
        sin = (r * z).fma(horner(z, f.sin), r)
        cos = (z * z).fma(horner(z, f.cos), z.fma(-0.5, 1))
        return t.to_bits(), sin, cos
    # The digits that r has no room for go to `low`.
    b = n * second
    rest = r - b
    low = (-n).fma(third, ((r - rest) - b) - n.fma(second, -b))
    z = rest * rest
    half = 0.5 * z
    near = 1 - half
    sin = rest + (rest * z).fma(horner(z, f.sin), low * near)
    cos = near + (((1 - near) - half) + (z * z).fma(horner(z, f.cos), -(rest * low)))
    return t.to_bits(), sin, cos


def _odd(turns: Lanes) -> Lanes:
    return (turns << (turns.bits - 1)) < 0


def flip(x: Lanes, sign: Lanes) -> Lanes:
    """x with its sign changed where the top bit of `sign` is set."""
    return (x.to_bits() ^ (sign & -(1 << (x.bits - 1)))).from_bits()


def _large_angles(m: Real, name: str, x: Lanes, value: Lanes) -> Lanes:
    large = abs(x) > _format(x).angle
    return branch(large, lambda: large.where(library.call(m.target, name, x), value), value)


def small_sin(x: Lanes) -> Lanes:
    """The sine of an angle up to the format's `angle`."""
    turns, sin, cos = _quarter_turns(abs(x))
    sign = (turns << (x.bits - 2)) ^ x.to_bits()
    return flip(_odd(turns).where(cos, sin), sign)


def small_cos(x: Lanes) -> Lanes:
    turns, sin, cos = _quarter_turns(abs(x))
    sign = (turns + 1) << (x.bits - 2)
    return flip(_odd(turns).where(sin, cos), sign)


@emits("sin")
def _sin(m: Real, x: Lanes) -> Lanes:
    return _large_angles(m, "sin", x, small_sin(x))


@emits("cos")
def _cos(m: Real, x: Lanes) -> Lanes:
    return _large_angles(m, "cos", x, small_cos(x))
