"""Bessel functions of the orders 0 and 1.

Up to `FAR` they are means over a circle of functions that are periodic there: sums over equally spaced angles, which
converge faster than any power.  From there on they are Hankel's expansions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .elementwise import abs, cos, exp, floats, from_table, log, sin, sqrt, where
from .types import float32
from .values import Tensor, convert

#: From where on `TERMS` of the expansions are exact, and the angles of a circle that are enough up to there.
FAR, TERMS, ANGLES = 25.0, 20, 128
_GAMMA = 0.5772156649015329
_cosh, _sinh = from_table("cosh", "cosh"), from_table("sinh", "sinh")
#: Sines of the angles of a quarter, the share of the circle that each stands for, and what logarithms add at each.
_QUARTER = [2 * math.pi * j / ANGLES for j in range(ANGLES // 4 + 1)]
_SINES = [math.sin(t) for t in _QUARTER]
_SHARES = [(2 if j in (0, ANGLES // 4) else 4) / ANGLES for j in range(len(_QUARTER))]
_LOGARITHMS = [-2 * sum((-1) ** k * math.cos(2 * k * t) / k for k in range(1, ANGLES // 4)) for t in _QUARTER]


def j0(x: Any) -> Tensor:
    """Bessel function of the first kind of order 0."""
    return _even(x, lambda x: _near(x, 0), lambda x: _far(x, 0, 0))


def j1(x: Any) -> Tensor:
    """Bessel function of the first kind of order 1."""
    return _odd(x, lambda x: _near(x, 1), lambda x: _far(x, 1, 0))


def y0(x: Any) -> Tensor:
    """Bessel function of the second kind of order 0."""

    def near(x: Tensor) -> Tensor:
        added = _mean(lambda s: cos(x * s), _LOGARITHMS)
        return ((log(x * 0.5) + _GAMMA) * _near(x, 0) + added) * (2 / math.pi)

    return _joined(x, near, lambda x: _far(x, 0, 1))


def y1(x: Any) -> Tensor:
    """Bessel function of the second kind of order 1."""

    def near(x: Tensor) -> Tensor:
        added = _mean(lambda s: sin(x * s), [s * w for s, w in zip(_SINES, _LOGARITHMS)])
        found = ((log(x * 0.5) + _GAMMA) * _near(x, 1) - _near(x, 0) / x + added) * (2 / math.pi)
        return where(x == 0, -math.inf, found)

    return _joined(x, near, lambda x: _far(x, 1, 1))


def cyl_bessel_i0(x: Any) -> Tensor:
    """Modified Bessel function of the first kind of order 0."""
    return _even(x, lambda x: _mean(lambda s: _cosh(x * s)), lambda x: _grown(x, 0))


def cyl_bessel_i1(x: Any) -> Tensor:
    """Modified Bessel function of the first kind of order 1."""
    return _odd(x, lambda x: _mean(lambda s: _sinh(x * s), _SINES), lambda x: _grown(x, 1))


def _joined(x: Any, near: Callable[[Tensor], Tensor], far: Callable[[Tensor], Tensor]) -> Tensor:
    (x,) = floats("a Bessel function", x)
    wide = x if x.dtype.primitive_bitwidth >= 32 else convert(x, float32)
    return convert(where(wide < FAR, near(wide), far(wide)), x.dtype)


def _even(x: Any, near: Callable[[Tensor], Tensor], far: Callable[[Tensor], Tensor]) -> Tensor:
    return _joined(abs(x), near, far)


def _odd(x: Any, near: Callable[[Tensor], Tensor], far: Callable[[Tensor], Tensor]) -> Tensor:
    found = _even(x, near, far)
    return where(x < 0, -found, found)


def _mean(f: Callable[[float], Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """The mean over a circle of a function of the sine, times weights."""
    shares = _SHARES if weights is None else [a * b for a, b in zip(_SHARES, weights)]
    terms = [f(s) * share for s, share in zip(_SINES, shares)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _near(x: Tensor, order: int) -> Tensor:
    return _mean(lambda s: sin(x * s), _SINES) if order else _mean(lambda s: cos(x * s))


def _coefficients(order: int) -> list[float]:
    found = [1.0]
    for k in range(1, TERMS):
        found.append(found[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return found


def _polynomial(coefficients: list[float], x: Tensor) -> Tensor:
    result: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def _far(x: Tensor, order: int, kind: int) -> Tensor:
    """Of the first or the second kind: a wave whose phase lags by a quarter of pi, and by a half for each order."""
    c = _coefficients(order)
    inverse = 1.0 / x
    square = inverse * inverse
    even = _polynomial([a * (-1) ** k for k, a in enumerate(c[::2])], square)
    odd = _polynomial([a * (-1) ** k for k, a in enumerate(c[1::2])], square) * inverse
    # Cosine and sine of x less the phase, times the root of 2.
    cosine, sine = (sin(x) - cos(x), -sin(x) - cos(x)) if order else (cos(x) + sin(x), sin(x) - cos(x))
    wave = even * sine + odd * cosine if kind else even * cosine - odd * sine
    return where(inverse == 0, 0.0, wave * sqrt(inverse * (1 / math.pi)))


def _grown(x: Tensor, order: int) -> Tensor:
    inverse = 1.0 / x
    series = _polynomial([a * (-1) ** k for k, a in enumerate(_coefficients(order))], inverse)
    half = exp(x * 0.5)  # whose square may be too large where the result is not
    return where(inverse == 0, math.inf, half * (series * sqrt(inverse * (0.5 / math.pi))) * half)
