"""The functions that generated code calls, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc, lgamma
from typing import Any

import numpy as np


def unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(x.dtype.str.replace("i", "u")) if x.dtype.kind == "i" else x.view(np.uint8)


def saturated(x: np.ndarray, ty: Any, natural: bool) -> np.ndarray:
    """Floats as integers: the nearest there is, 0 for NaN."""
    info = np.iinfo(np.dtype(ty).str.replace("i", "u") if natural else ty)
    wide = np.trunc(x.astype(np.float64))
    inside = (wide >= float(info.min)) & (wide < float(info.max) + (info.bits < 64))
    found = np.where(inside, wide, 0).astype(info.dtype)
    found = np.where(inside | np.isnan(wide), found, np.where(wide < 0, info.min, info.max).astype(info.dtype))
    return found.astype(info.dtype).view(ty)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Rounded once, but for products near the ends of the range."""
    if a.dtype == np.float32:
        total, error = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
        # Rounded to odd, so that the sum is not rounded twice.
        odd = total.view(np.int64) - ((error != 0) & ((error < 0) != (total < 0))) | (error != 0)
        return np.where(np.isfinite(total), odd.view(np.float64), total).astype(np.float32)
    product = a * b
    halves = [x * 134217729.0 for x in (a, b)]
    (ah, al), (bh, bl) = ((h - (h - x), x - (h - (h - x))) for h, x in zip(halves, (a, b)))
    total, first = _two_sum(product, c)
    error, rest = _two_sum(((ah * bh - product) + ah * bl + al * bh) + al * bl, first)
    # Rounded to odd, so that the sum is not rounded twice.
    bits = error.view(np.int64) - ((rest != 0) & ((rest < 0) != (error < 0)))
    exact = total + (bits | (rest != 0)).view(np.float64)
    return np.where(np.isfinite(exact), exact, product + c)


def _upper(x: np.ndarray) -> np.ndarray:
    """The digits of a double that an approximation gives."""
    if x.dtype == np.float32:
        return x
    return (x.view(np.int64) & -(1 << 32)).view(np.float64)


def _fshr(high: np.ndarray, low: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The low word of two, shifted to the right."""
    both = high.view(np.uint32).astype(np.uint64) << np.uint64(32) | low.view(np.uint32)
    return (both >> (count.view(np.uint32) & np.uint32(31))).astype(np.uint32).view(np.int32)


def _ctlz(x: np.ndarray, _: Any) -> np.ndarray:
    bits = 8 * x.itemsize
    found = np.full(x.shape, bits, x.dtype)
    for k in range(bits):
        found = np.where(unsigned(x) >> k & 1 == 1, bits - 1 - k, found)
    return found.astype(x.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "smin": np.minimum, "smax": np.maximum, "umin": np.minimum, "umax": np.maximum, "sqrt": np.sqrt, "fabs": np.abs,
    "maximum": np.maximum, "minimum": np.minimum, "maxnum": np.fmax,
    "minnum": np.fmin, "floor": np.floor, "ceil": np.ceil, "rint": np.rint,
    "roundeven": np.rint, "trunc": np.trunc, "copysign": np.copysign, "fma": _fma, "abs": lambda a, _: np.abs(a),
    "rcp": lambda x: _upper(1 / x), "rsqrt": lambda x: _upper(1 / np.sqrt(x)),
    "fshr": _fshr, "ctpop": np.bitwise_count, "ctlz": _ctlz, "ex2": np.exp2, "div": np.divide, "tanh": np.tanh,
}  # fmt: skip
#: NVIDIA's library.
LIBRARY: dict[str, Callable[..., Any]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "cos": np.cos, "cosh": np.cosh,
    "erf": np.vectorize(erf, [float]), "erfc": np.vectorize(erfc, [float]), "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "fmod": np.fmod, "hypot": np.hypot, "lgamma": np.vectorize(lgamma, [float]), "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "pow": np.power, "sin": np.sin, "sinh": np.sinh,
    "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
