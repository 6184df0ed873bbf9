"""Emitters of the elementwise ops on complex numbers.

c64 functions are computed in double and rounded, which makes them accurate and keeps them from overflowing inside; the
arithmetic is NumPy's, step by step.  Special cases are those of the Array API standard, which has them from C99.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from .. import dtypes
from .convert import Register
from .floats import Real
from .lanes import Lanes, Operand
from .target import MathTarget
from .text import Text, V


class Complex(NamedTuple):
    re: Lanes
    im: Lanes

    def scaled(self, factor: Operand) -> Complex:
        return Complex(self.re * factor, self.im * factor)


#: (real functions of the parts, operands) -> result
Emitter = Callable[..., Complex | Lanes]
F = TypeVar("F", bound=Emitter)
ARITHMETIC: dict[str, Emitter] = {}
#: Computed in double.
FUNCTIONS: dict[str, Emitter] = {}


def emit(
    t: Text, name: str, args: Sequence[Register], operands: Sequence[str], out: str, target: MathTarget
) -> Register:
    """As `math.emit`, where an operand or the result is complex."""
    values = [Lanes(t, a) if isinstance(a, V) else Complex(Lanes(t, a[0]), Lanes(t, a[1])) for a in args]
    part = dtypes.PART.get(operands[0], operands[0])
    if name in ARITHMETIC:
        result = ARITHMETIC[name](Real(part, target), *values)
    else:
        wide = [
            Complex(x.re.cast("fpext", "double"), x.im.cast("fpext", "double"))
            for x in values
            if isinstance(x, Complex)
        ]
        result = FUNCTIONS[name](Real("f64", target), *wide)
        narrow = lambda x: x.cast("fptrunc", "float") if part == "f32" else x
        result = Complex(narrow(result.re), narrow(result.im)) if isinstance(result, Complex) else narrow(result)
    return (result.re.v, result.im.v) if isinstance(result, Complex) else result.v


def arithmetic(*names: str) -> Callable[[F], F]:
    def register(f: F) -> F:
        ARITHMETIC.update(dict.fromkeys(names, f))
        return f

    return register


def function(*names: str) -> Callable[[F], F]:
    def register(f: F) -> F:
        FUNCTIONS.update(dict.fromkeys(names, f))
        return f

    return register


def choose(cond: Lanes, a: Complex, b: Complex) -> Complex:
    return Complex(cond.where(a.re, b.re), cond.where(a.im, b.im))


def flipped(z: Complex) -> Complex:
    """i * conj(z): the parts change places."""
    return Complex(z.im, z.re)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def _isnan(z: Complex) -> Lanes:
    return z.re.isnan() | z.im.isnan()


def _multiply(m: Real, a: Complex, b: Complex) -> Complex:
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _greater(a: Complex, b: Complex, or_equal: bool) -> Lanes:
    """a > b (or a >= b) in lexicographic order; False with a NaN, unless the real parts decide without it."""
    last = a.im >= b.im if or_equal else a.im > b.im
    return ((a.re > b.re) & ~(a.im.isnan() | b.im.isnan())) | ((a.re == b.re) & last)


def _maximum(m: Real, a: Complex, b: Complex) -> Complex:
    return choose(_isnan(a) | _greater(a, b, True), a, b)


def _minimum(m: Real, a: Complex, b: Complex) -> Complex:
    return choose(_isnan(a) | _greater(b, a, True), a, b)


ARITHMETIC.update({
    "complex": lambda m, a, b: Complex(a, b),
    "real": lambda m, z: z.re,
    "imag": lambda m, z: z.im,
    "add": lambda m, a, b: Complex(a.re + b.re, a.im + b.im),
    "subtract": lambda m, a, b: Complex(a.re - b.re, a.im - b.im),
    "multiply": _multiply,
    "square": lambda m, z: Complex(z.re * z.re - z.im * z.im, z.re * z.im + z.im * z.re),
    "negative": lambda m, z: Complex(-z.re, -z.im),
    "positive": lambda m, z: z,
    "conjugate": lambda m, z: Complex(z.re, -z.im),
    "rint": lambda m, z: Complex(m("rint", z.re), m("rint", z.im)),
    "absolute": lambda m, z: m("hypot", z.re, z.im),
    "isnan": lambda m, z: _isnan(z),
    "isinf": lambda m, z: m("isinf", z.re) | m("isinf", z.im),
    "isfinite": lambda m, z: m("isfinite", z.re) & m("isfinite", z.im),
    "equal": lambda m, a, b: (a.re == b.re) & (a.im == b.im),
    "not_equal": lambda m, a, b: (a.re != b.re) | (a.im != b.im),
    "greater": lambda m, a, b: _greater(a, b, False),
    "greater_equal": lambda m, a, b: _greater(a, b, True),
    "less": lambda m, a, b: _greater(b, a, False),
    "less_equal": lambda m, a, b: _greater(b, a, True),
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": lambda m, a, b: choose(_isnan(b) | (_greater(a, b, True) & ~_isnan(a)), a, b),
    "fmin": lambda m, a, b: choose(_isnan(b) | (_greater(b, a, True) & ~_isnan(a)), a, b),
    "clip": lambda m, z, low, high: _minimum(m, _maximum(m, z, low), high),
})  # fmt: skip


@arithmetic("divide")
def _divide(m: Real, a: Complex, b: Complex) -> Complex:
    # Smith's method.
    wide = abs(b.re) >= abs(b.im)
    p, q = wide.where(b.re, b.im), wide.where(b.im, b.re)
    u, v = wide.where(a.re, a.im), wide.where(a.im, a.re)
    ratio = q / p
    scale = 1 / (p + q * ratio)
    im = wide.where(v - u * ratio, u * ratio - v)
    result = Complex((u + v * ratio) * scale, im * scale)
    return choose(wide & (p == 0), Complex(a.re / abs(p), a.im / abs(p)), result)


@arithmetic("reciprocal")
def _reciprocal(m: Real, z: Complex) -> Complex:
    wide = abs(z.im) <= abs(z.re)
    p, q = wide.where(z.re, z.im), wide.where(z.im, z.re)
    ratio = q / p
    total = p + q * ratio
    return Complex(wide.where(1, ratio) / total, wide.where(-ratio, -1) / total)


@arithmetic("sign")
def _sign(m: Real, z: Complex) -> Complex:
    # Halved, for the size of a finite number may not be one.
    half = choose(abs(z.re) + abs(z.im) > 1, z.scaled(0.5), z)
    size = m("hypot", half.re, half.im)
    re_inf, im_inf = m("isinf", z.re), m("isinf", z.im)
    unit = lambda infinite, x: infinite.where(x.like(1).copysign(x), x.like(0))
    at_infinity = Complex(unit(re_inf, z.re), unit(im_inf, z.im))
    result = choose(re_inf ^ im_inf, at_infinity, Complex(half.re / size, half.im / size))
    zero, nan = z.re.like(0), z.re.like(math.nan)
    result = choose(size == 0, Complex(zero, zero), result)
    return choose(_isnan(z), Complex(nan, nan), result)


# -- exponentials and logarithms --------------------------------------------------------------------------------------
def _times(a: Lanes, b: Lanes) -> Lanes:
    """a * b where a zero wins over an infinity or a NaN, whose sign bit says nothing."""
    zero = (a == 0) | (b == 0)
    known = lambda x: x.isnan().where(1, x).to_bits()
    sign = (known(a) ^ known(b)).from_bits()
    return zero.where(a.like(0).copysign(sign), a * b)


#: exp(x) overflows soon after this, but its product with a sine need not.
_LARGE = 700.0


@function("exp")
def _exp(m: Real, z: Complex) -> Complex:
    return _polar_exp(m, "exp", z.re, z.im, math.exp(_LARGE))


@function("exp2")
def _exp2(m: Real, z: Complex) -> Complex:
    return _polar_exp(m, "exp2", z.re, z.im * math.log(2), 2.0**_LARGE)


def _polar_exp(m: Real, exp: str, x: Lanes, y: Lanes, size_of_large: float) -> Complex:
    """exp(x) in the direction of the angle y."""
    # exp(-inf) is 0 in any direction.
    directed = m("isfinite", y) | (x != -math.inf)
    y = directed.where(y, 0)
    large = x > _LARGE
    size = m(exp, large.where(x - _LARGE, x))
    factor = large.where(size_of_large, x.like(1))
    sin = m("sin", y)
    re, im = size * m("cos", y) * factor, (sin == 0).where(sin, size * sin) * factor
    return Complex(((x == math.inf) & ~m("isfinite", y)).where(math.inf, re), im)


@function("expm1")
def _expm1(m: Real, z: Complex) -> Complex:
    direct = _exp(m, z)
    half = m("sin", z.im * 0.5)
    # Of either zero it is 0, not -0.
    near = m("expm1", z.re) * m("cos", z.im) - 2 * half * half + 0.0
    return Complex((abs(z.re) < 1).where(near, direct.re - 1), direct.im)


@function("log")
def _log(m: Real, z: Complex) -> Complex:
    x, y = abs(z.re), abs(z.im)
    big, small = (x > y).where(x, y), (x > y).where(y, x)
    near = (big > 0.5) & (big < 2.0)
    # Near the unit circle: log |z| = log1p(|z|**2 - 1) / 2.
    near_value = 0.5 * m("log1p", (big - 1) * (big + 1) + small * small)
    tiny, huge = big < 2.0**-960, big > 2.0**1020
    factor = tiny.where(2.0**100, huge.where(0.25, x.like(1)))
    shift = tiny.where(-100 * math.log(2), huge.where(math.log(4), x.like(0)))
    far = m("log", m("hypot", x * factor, y * factor)) + shift
    return Complex(near.where(near_value, far), m("arctan2", z.im, z.re))


@function("log1p")
def _log1p(m: Real, z: Complex) -> Complex:
    x, y = z.re, z.im
    near = (abs(x) < 0.5) & (abs(y) < 0.5)
    size = 0.5 * m("log1p", x.fma(x, y * y) + 2 * x)
    far = _log(m, Complex(x + 1, y))
    return Complex(near.where(size, far.re), far.im)


@function("log2")
def _log2(m: Real, z: Complex) -> Complex:
    return _log(m, z).scaled(1 / math.log(2))


@function("log10")
def _log10(m: Real, z: Complex) -> Complex:
    return _log(m, z).scaled(1 / math.log(10))


@function("sqrt")
def _sqrt(m: Real, z: Complex) -> Complex:
    a, b = z
    x, y = abs(a), abs(b)
    big = (x > y).where(x, y)
    tiny, huge = big < 2.0**-900, big > 2.0**1000
    scale = tiny.where(2.0**200, huge.where(2.0**-4, a.like(1)))
    back = tiny.where(2.0**-100, huge.where(4.0, a.like(1)))
    x, y = x * scale, y * scale
    root = ((x + m("hypot", x, y)) * 0.5).call("sqrt")
    other = y / (2 * root) * back
    root = root * back
    right = ~(a < 0)
    re, im = right.where(root, other), right.where(other, root).copysign(b)
    result = choose((a == 0) & (b == 0), Complex(a.like(0), b), Complex(re, im))
    endless = Complex((a < 0).where((b - b) * 0 + abs(b - b), a), (a < 0).where(a, b - b).copysign(b))
    result = choose(m("isinf", a), endless, result)
    return choose(m("isinf", b), Complex(a.like(math.inf), b), result)


@arithmetic("power")
def _power(m: Real, a: Complex, b: Complex) -> Complex:
    zero, one = a.re.like(0), a.re.like(1)
    known: dict[float, Callable[[], Complex]] = {
        1.0: lambda: a,
        2.0: lambda: _multiply(m, a, a),
        3.0: lambda: _multiply(m, a, _multiply(m, a, a)),
        -1.0: lambda: _divide(m, Complex(one, zero), a),
    }
    if b.im.v.ref == zero.v.ref:
        for exponent, emit in known.items():
            if b.re.v.ref == b.re.like(exponent).v.ref:
                return emit()
    wide = lambda z: Complex(z.re.cast("fpext", "double"), z.im.cast("fpext", "double"))
    narrow = lambda x: x.cast("fptrunc", "float") if a.re.elem == "float" else x
    double = Real("f64", m.target)
    general = _exp(double, _multiply(double, wide(b), _log(double, wide(a))))
    result = Complex(narrow(general.re), narrow(general.im))
    nan = a.re.like(math.nan)
    at_zero = choose((b.re > 0) & ((b.im == 0) | (b.im != 0)), Complex(zero, zero), Complex(nan, nan))
    result = choose((a.re == 0) & (a.im == 0), at_zero, result)
    return choose((b.re == 0) & (b.im == 0), Complex(one, zero), result)


ARITHMETIC["float_power"] = ARITHMETIC["power"]


# -- trigonometric and hyperbolic functions ---------------------------------------------------------------------------
@function("sinh")
def _sinh(m: Real, z: Complex) -> Complex:
    return _hyperbolic(m, z)[0]


@function("cosh")
def _cosh(m: Real, z: Complex) -> Complex:
    return _hyperbolic(m, z)[1]


@function("sin")
def _sin(m: Real, z: Complex) -> Complex:
    return flipped(_hyperbolic(m, flipped(z))[0])


@function("cos")
def _cos(m: Real, z: Complex) -> Complex:
    return _hyperbolic(m, Complex(z.im, -z.re))[1]


def _hyperbolic(m: Real, z: Complex) -> tuple[Complex, Complex]:
    """sinh and cosh of z."""
    x, y = z
    large = abs(x) > _LARGE
    half = 0.5 * m("exp", abs(x) - _LARGE)
    sinh = large.where(half.copysign(x), m("sinh", x))
    cosh = large.where(half, m("cosh", x))
    factor = large.where(math.exp(_LARGE), x.like(1))
    sin, cos = m("sin", y), m("cos", y)
    product = lambda a, b: _times(a, b) * factor
    # In no direction, an infinite x still gives an infinity.
    lost = m("isinf", x) & ~m("isfinite", y)
    return (
        Complex(lost.where(x, product(sinh, cos)), product(cosh, sin)),
        Complex(lost.where(abs(x), product(cosh, cos)), product(sinh, sin)),
    )


@function("tanh")
def _tanh(m: Real, z: Complex) -> Complex:
    # Kahan's method.
    x, y = z
    t = m("tan", y)
    beta = t.fma(t, 1)
    s = m("sinh", x)
    rho = s.fma(s, 1).call("sqrt")
    scale = (beta * s).fma(s, 1)
    usual = Complex(beta * rho * s / scale, t / scale)
    sin_2y = m("isinf", x).where(y.like(0).copysign(y), 2 * m("sin", y) * m("cos", y))
    limit = Complex(sin_2y.isnan().where(sin_2y, x.like(1).copysign(x)), 2 * sin_2y * m("exp", -2 * abs(x)))
    return choose(abs(x) > 22, limit, Complex((x == 0).where(x, usual.re), (y == 0).where(y, usual.im)))


@function("tan")
def _tan(m: Real, z: Complex) -> Complex:
    return flipped(_tanh(m, flipped(z)))


def _roots(m: Real, z: Complex) -> tuple[Complex, Complex]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    return _sqrt(m, Complex(1 - z.re, -z.im)), _sqrt(m, Complex(1 + z.re, z.im))


#: The squares of numbers beyond this overflow, and 1 is nothing beside them.
_FAR = 1e150


def _far(z: Complex) -> Lanes:
    return (abs(z.re) > _FAR) | (abs(z.im) > _FAR)


@function("arcsin")
def _arcsin(m: Real, z: Complex) -> Complex:
    # Kahan's methods, here and below.
    minus, plus = _roots(m, z)
    re = m("arctan2", z.re, minus.re * plus.re - minus.im * plus.im)
    near = Complex(re, m("arcsinh", minus.re * plus.im - minus.im * plus.re))
    log = _log(m, Complex(abs(z.im), z.re))
    re, im = choose(_far(z), Complex(log.im, (log.re + math.log(2)).copysign(z.im)), near)
    # On an axis, here and below, one part of the result is known even if the other is a NaN.
    return Complex((z.re == 0).where(z.re, re), im)


@function("arccos")
def _arccos(m: Real, z: Complex) -> Complex:
    minus, plus = _roots(m, z)
    im = m("arcsinh", plus.re * minus.im - plus.im * minus.re)
    near = Complex(2 * m("arctan2", minus.re, plus.re), im)
    log = _log(m, Complex(z.re, abs(z.im)))
    re, im = choose(_far(z), Complex(log.im, -(log.re + math.log(2)).copysign(z.im)), near)
    return Complex((z.re == 0).where(math.pi / 2, re), im)


@function("arccosh")
def _arccosh(m: Real, z: Complex) -> Complex:
    minus, plus = _sqrt(m, Complex(z.re - 1, z.im)), _sqrt(m, Complex(z.re + 1, z.im))
    re = m("arcsinh", minus.re * plus.re + minus.im * plus.im)
    near = Complex(re, 2 * m("arctan2", minus.im, plus.re))
    log = _log(m, z)
    re, im = choose(_far(z), Complex(log.re + math.log(2), log.im), near)
    return Complex(re, (z.re == 0).where(z.re.like(math.pi / 2).copysign(z.im), im))


@function("arcsinh")
def _arcsinh(m: Real, z: Complex) -> Complex:
    return flipped(_arcsin(m, flipped(z)))


@function("arctanh")
def _arctanh(m: Real, z: Complex) -> Complex:
    x, y = abs(z.re), z.im
    square = y * y
    away = 0.25 * m("log1p", 4 * x / ((1 - x) * (1 - x) + square))
    at_one = 0.5 * (m("log", m("hypot", y, y.like(2))) - m("log", abs(y)))
    near = Complex((x == 1).where(at_one, away), 0.5 * m("arctan2", 2 * y, (1 - x) * (1 + x) - square))
    # Far away it is 1 / z, turned.
    infinite = m("isinf", x) | m("isinf", y)
    lost = y.isnan() | (x.isnan() & ~m("isinf", y))
    far = Complex(infinite.where(0, _reciprocal(m, z).re), lost.where(math.nan, y.like(math.pi / 2).copysign(y)))
    re, im = choose(_far(z), far, near)
    return Complex((x == 0).where(x, re).copysign(z.re), im)


@function("arctan")
def _arctan(m: Real, z: Complex) -> Complex:
    return flipped(_arctanh(m, flipped(z)))
