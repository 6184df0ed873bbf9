"""What a result must be: an exact array, or a wider one with a bound on the error of every element.

Integers, bools and correctly rounded operations on exact operands are exact: NumPy's own result, bit for bit.
Anything that follows an approximate operation carries a running error bound: the operands' errors propagated, plus the
operation's own rounding.  Where the bound says nothing (a quotient whose divisor may be zero, a sum that may overflow)
it is infinite and the element is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
NARROW = (np.dtype(np.float16), BF16)
PART = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


class Known(NamedTuple):
    """`value` has `dtype` if `error` is None (exact), else a wider dtype and |result - value| <= error."""

    value: np.ndarray
    dtype: np.dtype
    error: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def exact(self) -> bool:
        return self.error is None

    @property
    def kind(self) -> str:
        """NumPy's kind letter, bfloat16 being a float."""
        return "f" if self.dtype == BF16 else self.dtype.kind

    def wide(self) -> np.ndarray:
        return self.value.astype(wider(self.dtype)) if self.error is None else self.value

    def bound(self) -> np.ndarray:
        return np.zeros(self.shape) if self.error is None else self.error

    def moved(self, function: Callable[[np.ndarray], np.ndarray]) -> Known:
        """The elements moved and not changed."""
        return Known(function(self.value), self.dtype, None if self.error is None else function(self.error))


def exact(value: Any) -> Known:
    a = np.asarray(value)
    return Known(a, a.dtype)


def wider(dtype: np.dtype) -> np.dtype:
    if dtype in PART:
        return np.dtype(np.clongdouble) if dtype.itemsize == 16 else np.dtype(np.complex128)
    return np.dtype(np.longdouble) if dtype == np.float64 or dtype.kind in "iu" else np.dtype(np.float64)


def unit(dtype: np.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return float(ml_dtypes.finfo(PART.get(dtype, dtype)).eps) / 2


def accumulator(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype in NARROW else dtype


def approximate(value: np.ndarray, dtype: np.dtype, error: np.ndarray, ulp: float = 0.5, reach: Any = None) -> Known:
    """A result with its own rounding, of `ulp` units in the last place, added to `error`.

    `reach` bounds the finite numbers on the way to the result; where one, or the result, may overflow nothing is known.
    """
    info = ml_dtypes.finfo(PART.get(dtype, dtype))
    magnitude = np.abs(value).astype(np.float64)
    finite = np.isfinite(value)
    total = error + 2 * ulp * unit(dtype) * (magnitude + error) + 2 * ulp * float(info.smallest_subnormal)
    top = 0.99 * float(info.max)
    overflow = finite & ~(magnitude + total < top)
    if reach is not None:
        overflow |= ~(np.asarray(reach).astype(np.float64) < top)
    # A NaN or infinity that comes of exact operands is itself exact; of approximate ones, it may be anything.
    total = np.where(finite, total, np.where((error == 0) & (dtype not in PART), 0, np.inf))
    total = np.where(overflow, np.inf, total)
    return Known(np.asarray(value), dtype, np.where(np.isnan(total), np.inf, total))


def mismatch(got: np.ndarray, known: Known) -> str | None:
    """Why `got` is not what is known; None if it may be."""
    if got.dtype != known.dtype:
        return f"dtype {got.dtype}, not {known.dtype}"
    if got.shape != known.shape:
        return f"shape {got.shape}, not {known.shape}"
    with np.errstate(all="ignore"):
        value = known.wide()
        g = got.astype(value.dtype)
        same = (g == value) | ((g != g) & (value != value))
        if known.error is not None:
            same |= ~np.isfinite(known.error) | (np.abs(g - value) <= known.error)
        elif got.dtype.kind in "iub":
            same = got == known.value
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    bound = "" if known.error is None else f" +- {known.error[at]:.3g}"
    return f"{(~same).sum()} of {same.size} elements; at {at}: {got[at]!r}, not {known.value[at]!r}{bound}"


def cast(x: Known, dtype: np.dtype) -> Known:
    """Conversion: floats to integers truncate and saturate, NaN becoming 0."""
    target = "f" if dtype == BF16 else dtype.kind
    if target in "iu" and x.kind == "f":
        info = np.iinfo(dtype)
        wide = x.value.astype(np.longdouble)
        inside = np.trunc(np.where(np.isnan(wide), 0, np.clip(wide, info.min, info.max)))
        return exact(inside.astype(dtype))
    # Through float32, as some do it, is not correct rounding: NumPy's conversions to the narrow floats are no oracle.
    doubtful = dtype in NARROW and (x.kind in "iu" or (x.dtype == np.float64 and dtype == BF16))
    if x.exact and not doubtful:
        return exact(x.value.astype(dtype))
    value = x.wide().astype(wider(dtype))
    return approximate(value, dtype, x.bound(), 1.0)


def result_dtype(function: Callable[..., Any], *operands: Any) -> np.dtype:
    """The dtype that NumPy gives; Python scalars are weak."""
    empty = [np.empty(0, o.dtype) if isinstance(o, Known) else o for o in operands]
    if any(isinstance(o, np.ndarray) and o.dtype == BF16 for o in empty):
        empty = [o if isinstance(o, np.ndarray) else np.empty(0, BF16) for o in empty]
    return np.asarray(function(*empty)).dtype


def as_known(x: Any, dtype: np.dtype) -> Known:
    """An operand as it enters an operation in `dtype`: an integer becomes the float that it rounds to."""
    if not isinstance(x, Known):
        return exact(np.asarray(x).astype(dtype))
    return cast(x, PART.get(dtype, dtype)) if x.kind in "iu" else x


def arithmetic(name: str, function: Callable[..., Any], a: Any, b: Any) -> Known:
    """+ - * / and the like; a or b may be a Python scalar."""
    dtype = result_dtype(function, a, b)
    complex_product = dtype in PART and name in "*/"
    strong = [x for x in (a, b) if isinstance(x, Known)]
    if all(x.exact for x in strong) and not complex_product:
        scalar = next((x.dtype for x in strong if x.dtype == BF16), None)
        operands = [x.value if isinstance(x, Known) else x if scalar is None else scalar.type(x) for x in (a, b)]
        return exact(np.asarray(function(*operands)))
    x, y = as_known(a, dtype), as_known(b, dtype)
    v, w, e, f = x.wide(), y.wide(), x.bound(), y.bound()
    value = np.asarray(function(v, w)).astype(wider(dtype))
    match name:
        case "+" | "-":
            error = e + f
        case "*":
            error = np.abs(v) * f + np.abs(w) * e + e * f
        case "/":
            least = np.abs(w) - f
            error = np.where((e == 0) & (f == 0), 0, np.where(least > 0, (e + np.abs(value) * f) / least, np.inf))
        case "max" | "min":
            error = np.maximum(e, f)
        case _:
            raise AssertionError(name)
    error = np.where((e == 0) & (f == 0), 0, np.broadcast_to(error, value.shape).astype(np.float64))
    if complex_product:
        size = np.broadcast_to(np.abs(v) * np.abs(w) if name == "*" else np.abs(value), value.shape)
        error = error + 8 * unit(dtype) * size.astype(np.float64)
        # Of operands near the ends of the range, formulas differ.
        tame = (np.abs(v) < 1e18) & (np.abs(w) < 1e18) & ((np.abs(w) > 1e-18) | (name == "*"))
        return approximate(value, dtype, np.where(tame, error, np.inf), 4, size)
    return approximate(value, dtype, error)


def smooth(function: Callable[..., Any], x: Known, ulp: float, slope: float | None = None) -> Known:
    """A function of one float: of slope at most `slope`, else monotone."""
    dtype = result_dtype(function, x)
    v, e = x.wide(), x.bound()
    if v.dtype.kind == "f" and wider(dtype).itemsize > v.dtype.itemsize:
        v = v.astype(wider(dtype))
    value = np.asarray(function(v)).astype(wider(dtype))
    if slope is not None:
        error = np.where(np.isinf(e), np.inf, slope * e)  # what may be anything may be a NaN
    else:
        low, high = function(v - e), function(v + e)
        error = np.where(
            e == 0, 0, np.where(np.isinf(e), np.inf, np.maximum(np.abs(value - low), np.abs(high - value)))
        )
    return approximate(value, dtype, error.astype(np.float64), ulp)


def magnitude(x: Known) -> Known:
    if x.exact and x.dtype not in PART:
        return exact(np.asarray(np.abs(x.value)))
    return approximate(np.abs(x.wide()), PART.get(x.dtype, x.dtype), x.bound(), 0.5 if x.dtype not in PART else 4)


def select(condition: Known, a: Known, b: Known) -> Known:
    dtype = result_dtype(lambda p, q: np.where(np.empty(0, bool), p, q), a, b)
    if a.exact and b.exact:
        return exact(np.where(condition.value, a.value, b.value).astype(dtype))
    c, d = cast(a, dtype), cast(b, dtype)
    return Known(np.where(condition.value, c.wide(), d.wide()), dtype, np.where(condition.value, c.bound(), d.bound()))


def join(parts: Sequence[Known], axis: int) -> Known:
    dtype = parts[0].dtype
    if all(p.exact for p in parts):
        return exact(np.concatenate([p.value for p in parts], axis=axis))
    value = np.concatenate([p.wide() for p in parts], axis=axis)
    return Known(value, dtype, np.concatenate([p.bound() for p in parts], axis=axis))


def count(x: Known, axis: Any) -> int:
    axes = range(len(x.shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([x.shape[k] for k in axes], dtype=np.int64))


def finite_size(v: np.ndarray) -> np.ndarray:
    """Magnitudes, those of NaNs and infinities 0."""
    return np.abs(np.where(np.isfinite(v), v, 0))


def total(x: Known, axis: Any, keepdims: bool, mean: bool = False) -> Known:
    """A sum or mean whose additions form a tree, or are at worst blocked."""
    n = count(x, axis)
    if x.kind in "iub" and not mean:
        return exact(np.asarray(np.sum(x.value, axis=axis, keepdims=keepdims)))
    if x.kind in "iub":
        x = exact(x.value.astype(np.float64))
    dtype = x.dtype
    v = x.wide()
    value = np.asarray(v.sum(axis=axis, keepdims=keepdims))
    size = np.asarray(finite_size(v).sum(axis=axis, keepdims=keepdims)).astype(np.float64)
    error = np.asarray(x.bound().sum(axis=axis, keepdims=keepdims))
    error = error + np.where(np.isfinite(value), unit(accumulator(dtype)) * min(n, 32 + n.bit_length()) * size, 0)
    reach = size + error if accumulator(dtype) == dtype else None
    if mean:
        value, error = value / n, error / n
    return approximate(value.astype(wider(dtype)), dtype, np.asarray(error), 1.0, reach)


def product(x: Known, axis: Any, keepdims: bool) -> Known:
    if x.kind in "iub":
        return exact(np.asarray(np.prod(x.value, axis=axis, keepdims=keepdims)))
    v = x.wide()
    n = count(x, axis)
    size = np.abs(v)
    value = np.asarray(np.prod(v, axis=axis, keepdims=keepdims))
    most = np.asarray(np.prod(np.maximum(size, 1), axis=axis, keepdims=keepdims))
    least = np.asarray(np.prod(np.where(size == 0, 1, np.minimum(size, 1)), axis=axis, keepdims=keepdims))
    relative = np.where(x.bound() == 0, 0, x.bound() / size)  # infinite, as is its effect, where size is 0
    relative = np.asarray(np.expm1(relative.sum(axis=axis, keepdims=keepdims, dtype=np.float64)))
    relative = relative + n * unit(accumulator(x.dtype))
    error = np.where(np.isfinite(value), relative * np.abs(value), 0).astype(np.float64)
    error = np.where(np.isinf(relative), np.inf, error)
    error = np.where(least < 1e3 * float(ml_dtypes.finfo(x.dtype).tiny), np.inf, error)
    return approximate(value, x.dtype, error, 1.0, most)


def variance(x: Known, axis: Any, keepdims: bool) -> Known:
    """Of an exact array, by the two-pass formula."""
    n = count(x, axis)
    if x.kind in "iub":
        x = exact(x.value.astype(np.float64))
    dtype = x.dtype
    v = x.wide()
    value = np.asarray(v.var(axis=axis, keepdims=keepdims))
    mean = np.asarray(np.abs(v).mean(axis=axis, keepdims=keepdims)).astype(np.float64)
    square = np.asarray((finite_size(v) ** 2).sum(axis=axis, keepdims=keepdims))
    k = 40 + n.bit_length()
    error = np.where(np.isfinite(value), value * unit(dtype) * k + (unit(dtype) * k * mean) ** 2, 0)
    return approximate(value.astype(wider(dtype)), dtype, error.astype(np.float64), 2.0, square)


def extreme(function: Callable[..., Any], x: Known, axis: Any, keepdims: bool) -> Known:
    if x.exact:
        return exact(np.asarray(function(x.value, axis=axis, keepdims=keepdims)))
    value = np.asarray(function(x.value, axis=axis, keepdims=keepdims))
    return Known(value, x.dtype, np.asarray(np.max(x.bound(), axis=axis, keepdims=keepdims)))


def running_sum(x: Known, axis: int) -> Known:
    if x.kind in "iub":
        return exact(np.cumsum(x.value, axis=axis))
    v = x.wide()
    value = np.cumsum(v, axis=axis)
    size = np.cumsum(finite_size(v), axis=axis).astype(np.float64)
    n = x.shape[axis]
    error = np.cumsum(x.bound(), axis=axis)
    error = error + np.where(np.isfinite(value), unit(accumulator(x.dtype)) * n * size, 0)
    return approximate(value, x.dtype, error, 1.0, size if accumulator(x.dtype) == x.dtype else None)


def matmul(a: Known, b: Known) -> Known:
    if a.kind in "iu" and b.kind in "iu":
        return exact(np.asarray(np.matmul(a.value, b.value)))
    dtype = np.result_type(a.dtype, b.dtype)
    v, w, e, f = a.wide().astype(wider(dtype)), b.wide().astype(wider(dtype)), a.bound(), b.bound()
    size = np.asarray(np.matmul(np.abs(v), np.abs(w))).astype(np.float64)
    value = np.asarray(np.matmul(v, w))
    k = a.shape[-1]
    error = np.matmul(np.abs(v).astype(float), f) + np.matmul(e, np.abs(w).astype(float)) + np.matmul(e, f)
    error = np.asarray(error) + unit(accumulator(dtype)) * (k + 8) * size
    error = np.where(np.isfinite(value), error, np.inf)
    return approximate(value, dtype, error, 1.0 if dtype not in PART else 8.0, size)
