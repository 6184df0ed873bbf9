"""Emitters of the elementwise ops on real floating-point numbers.

f16 and bf16 come as floats; the caller rounds what is returned.  No operation is contracted or reassociated; some
functions use fma inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from . import library
from .convert import from_memory, to_memory
from .lanes import Lanes, branch, per_lane
from .target import MathTarget
from .text import V


@dataclass(frozen=True, slots=True)
class Real:
    """Emits functions of real numbers: of values of the IR dtype `dtype`, for `target`."""

    dtype: str
    target: MathTarget

    def __call__(self, name: str, *args: Lanes) -> Lanes:
        """The op `name` of the table, not yet rounded to f16 or bf16."""
        if self.dtype in ("f16", "bf16") and (approximation := self._approximation(name, *args)) is not None:
            return approximation
        if (emitter := self.target.emitter(name, args[0].elem)) is not None:
            return emitter(self, *args)
        if self.target.calls(name, args[0].elem):
            return library.call(self.target, name, *args)
        return FLOAT[name](self, *args)

    def _approximation(self, name: str, *args: Lanes) -> Lanes | None:
        """What is exact enough to be rounded to f16 or bf16, if the target has an instruction for it."""
        if name in ("exp", "exp2"):
            # The square of a half's is there where results are denormal, even if the instruction flushes those.
            half = self._approximation("power of two", args[0] * (0.5 if name == "exp2" else math.log2(math.e) / 2))
            return None if half is None else half * half
        if name == "reciprocal":
            return self._approximation("divide", args[0].like(1), args[0])
        if name == "divide":
            return self._quotient(*args)
        if name == "tanh" and self.dtype == "f16":
            return self._tanh(*args)
        symbol = self.target.approximation(name)
        if symbol is None:
            return None
        t, elem = args[0].t, args[0].elem
        return Lanes(t, per_lane(t, lambda *xs: t.call(symbol, elem, xs, library.PURE), *(a.v for a in args)))

    def _tanh(self, x: Lanes) -> Lanes | None:
        power = self._approximation("power of two", x * (2 * math.log2(math.e)))
        inverse = None if power is None else self._approximation("inverse", power + 1)
        if inverse is None:
            return None
        # Near 0 the difference from 1 has lost too many digits: two terms of the series have not.
        return (abs(x) < 2.0**-5).where((x * x * x).fma(-1 / 3, x), (inverse * -2) + 1)

    def _quotient(self, a: Lanes, b: Lanes) -> Lanes | None:
        """A quotient whose divisor's reciprocal can be shared."""
        if self.dtype == "f16":
            inverse = self._approximation("inverse", b)
            if inverse is None:
                return None
            # Quotients may be near the middle of two numbers, or there.
            q = a * inverse
            better = (-q).fma(b, a).fma(inverse, q)
            return (abs(better) > 0).where(better, q)
        # Quotients of bfloat16s are far from the middle of two.  A reciprocal may be denormal, or out of range where
        # the quotient is not.
        size = abs(b)
        scale = (size > 2.0**64).where(2.0**-64, (size < 2.0**-64).where(2.0**64, b.like(1)))
        inverse = self._approximation("inverse", b * scale)
        return None if inverse is None else a * inverse * scale


#: (context, operands) -> result, all of one float type (a bool for a predicate).
Emitter = Callable[..., Lanes]
FLOAT: dict[str, Emitter] = {}
#: Ops that give a value of the dtype as they stand, without rounding.
EXACT = frozenset((
    "positive", "negative", "absolute", "fabs", "sign", "conjugate", "real", "imag", "floor", "ceil", "trunc", "rint",
    "maximum", "minimum", "fmax", "fmin", "clip", "copysign", "nextafter", "heaviside", "where", "fmod",
))  # fmt: skip


def emits(*names: str) -> Callable[[Emitter], Emitter]:
    def register(function: Emitter) -> Emitter:
        for name in names:
            FLOAT[name] = function
        return function

    return register


FLOAT.update({
    "add": lambda m, a, b: a + b,
    "subtract": lambda m, a, b: a - b,
    "multiply": lambda m, a, b: a * b,
    "divide": lambda m, a, b: a / b,
    "negative": lambda m, a: -a,
    "positive": lambda m, a: a,
    "conjugate": lambda m, a: a,
    "real": lambda m, a: a,
    "imag": lambda m, a: a.like(0),
    "absolute": lambda m, a: abs(a),
    "fabs": lambda m, a: abs(a),
    "square": lambda m, a: a * a,
    "reciprocal": lambda m, a: 1 / a,
    "sqrt": lambda m, a: a.call("sqrt"),
    "rsqrt": lambda m, a: 1 / a.call("sqrt"),
    "fma": lambda m, a, b, c: a.fma(b, c),
    "floor": lambda m, a: a.call("floor"),
    "ceil": lambda m, a: a.call("ceil"),
    "trunc": lambda m, a: a.call("trunc"),
    "rint": lambda m, a: a.call("roundeven"),
    "copysign": lambda m, a, b: a.copysign(b),
    "equal": lambda m, a, b: a == b,
    "not_equal": lambda m, a, b: a != b,
    "less": lambda m, a, b: a < b,
    "less_equal": lambda m, a, b: a <= b,
    "greater": lambda m, a, b: a > b,
    "greater_equal": lambda m, a, b: a >= b,
    "isnan": lambda m, a: a.isnan(),
    "isinf": lambda m, a: abs(a) == math.inf,
    "isfinite": lambda m, a: abs(a) < math.inf,
    "signbit": lambda m, a: a.signbit(),
    "maximum": lambda m, a, b: a.isnan().where(a, (a > b).where(a, b)),
    "minimum": lambda m, a, b: a.isnan().where(a, (a < b).where(a, b)),
    "fmax": lambda m, a, b: b.isnan().where(a, (a > b).where(a, b)),
    "fmin": lambda m, a, b: b.isnan().where(a, (a < b).where(a, b)),
    "clip": lambda m, a, low, high: m("minimum", m("maximum", a, low), high),
    "deg2rad": lambda m, a: a * (math.pi / 180),
    "rad2deg": lambda m, a: a * (180 / math.pi),
    "sign": lambda m, a: (a > 0).where(1, (a < 0).where(-1, (a == 0).where(0, a))),
    "heaviside": lambda m, a, h: a.isnan().where(a, (a == 0).where(h, (a < 0).where(0, a.like(1)))),
})  # fmt: skip


# -- division that rounds ---------------------------------------------------------------------------------------------
@emits("fmod")
def _fmod(m: Real, a: Lanes, b: Lanes) -> Lanes:
    x, y = abs(a), abs(b)
    # Rounding can only carry the quotient up, to the next integer.
    q = (x / y).call("trunc")
    r = (-q).fma(y, x)
    r = (r < 0).where(r + y, r)
    # A quotient of 0 is exact, and y may be infinite.
    fast = (q == 0).where(x, r)
    exact = q < (1 << (23 if a.bits == 32 else 52))
    slow = lambda: library.call(m.target, "fmod", x, y)
    return branch(~exact, lambda: exact.where(fast, slow()), fast).copysign(a)


@emits("remainder")
def _remainder(m: Real, a: Lanes, b: Lanes) -> Lanes:
    r = m("fmod", a, b)
    moved = ((b < 0) ^ (r < 0)).where(r + b, r)
    return (b == 0).where(r, (r != 0).where(moved, r.like(0).copysign(b)))


@emits("floor_divide")
def _floor_divide(m: Real, a: Lanes, b: Lanes) -> Lanes:
    r = m("fmod", a, b)
    q = (a - r) / b
    q = ((r != 0) & ((b < 0) ^ (r < 0))).where(q - 1, q)
    floor = q.call("floor")
    floor = (q - floor > 0.5).where(floor + 1, floor)
    ratio = a / b
    floor = (q != 0).where(floor, q.like(0).copysign(ratio))
    # The standard's floor(a / b), where Python pairs // with %.
    endless = (abs(a) == math.inf) | (abs(b) == math.inf)
    return ((b == 0) | endless).where(ratio, floor)


# -- neighbours -------------------------------------------------------------------------------------------------------
@emits("nextafter")
def _nextafter(m: Real, a: Lanes, b: Lanes) -> Lanes:
    stored = to_memory(a.t, a.v, m.dtype)
    assert isinstance(stored, V)
    x = Lanes(a.t, stored)
    elem, is_float = x.elem, x.is_float
    x = x.to_bits() if is_float else x

    def back(bits: Lanes) -> Lanes:
        value = from_memory(a.t, (bits.cast("bitcast", elem) if is_float else bits).v, m.dtype)
        assert isinstance(value, V)
        return Lanes(a.t, value)

    away = (a < b) ^ (a < 0)
    moved = back(away.where(x + 1, x - 1))
    smallest = back(x.like(1)).copysign(b)
    result = (a == b).where(b, (a == 0).where(smallest, moved))
    return (a.isnan() | b.isnan()).where(a + b, result)


# -- functions --------------------------------------------------------------------------------------------------------
_LIBRARY = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "power": "pow",
}  # fmt: skip


def _from_library(name: str) -> Emitter:
    return lambda m, *args: library.call(m.target, name, *args)


for _name in (
    "expm1", "log1p", "log10", "tan", "sinh", "cosh", "cbrt",
    "arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh", "erf",
):  # fmt: skip
    FLOAT[_name] = _from_library(_LIBRARY.get(_name, _name))


@emits("power", "float_power")
def _power(m: Real, a: Lanes, b: Lanes) -> Lanes:
    # NumPy's shortcuts, and two more that cost less than a call.
    known: dict[float, Callable[[], Lanes]] = {
        1.0: lambda: a,
        -1.0: lambda: 1 / a,
        0.5: lambda: (a == -math.inf).where(math.inf, (a + 0.0).call("sqrt")),
        2.0: lambda: a * a,
        3.0: lambda: a * a * a,
        4.0: lambda: (a * a) * (a * a),
    }
    for exponent, emit in known.items():
        if b.v.ref == b.like(exponent).v.ref:
            return emit()
    return library.call(m.target, "pow", a, b)


@emits("hypot")
def _hypot(m: Real, a: Lanes, b: Lanes) -> Lanes:
    infinite = (abs(a) == math.inf) | (abs(b) == math.inf)
    if a.elem == "float":
        x, y = a.cast("fpext", "double"), b.cast("fpext", "double")
        root = (x * x + y * y).call("sqrt").cast("fptrunc", "float")
        return infinite.where(math.inf, root)
    x, y = abs(a), abs(b)
    big, small = (x > y).where(x, y), (x > y).where(y, x)
    # Powers of two keep the squares in range, and change nothing else.
    tiny, huge = big < 2.0**-480, big > 2.0**480
    scale = tiny.where(2.0**600, huge.where(2.0**-600, a.like(1)))
    back = tiny.where(2.0**-600, huge.where(2.0**600, a.like(1)))
    big, small = big * scale, small * scale
    total = big.fma(big, small * small)
    root = total.call("sqrt")
    # One step of Newton's method, with the exact error of the root's square.
    error = (-root).fma(root, big * big) + (big.fma(big, -(big * big)) + small * small)
    better = root + error / (2 * root)
    return infinite.where(math.inf, ((root > 0) & (root < math.inf)).where(better, root) * back)


def _log_of_sum(exp: str, scale: float) -> Emitter:
    def emit(m: Real, a: Lanes, b: Lanes) -> Lanes:
        top = (a > b).where(a, b)
        rest = m("log1p", m(exp, -abs(a - b)))
        if scale != 1:
            rest = rest * scale
        # Equal operands include infinities, whose difference is a NaN.
        return (a == b).where(a + math.log(2) * scale, (a.isnan() | b.isnan()).where(a + b, top + rest))

    return emit


FLOAT["logaddexp"] = _log_of_sum("exp", 1)
FLOAT["logaddexp2"] = _log_of_sum("exp2", 1 / math.log(2))
