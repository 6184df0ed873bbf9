"""Order statistics, histograms and correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import routines
from .array import Array
from .compiler.ops import TABLE
from .dtypes import float64, int64, result_type
from .elementwise import cast_to
from .host import at_once, call
from .operands import as_array, axis_tuple, elementwise, from_numpy, placed
from .products import matmul
from .reductions import mean
from .reductions import sum as _sum

__all__ = [
    "median", "nanmedian", "quantile", "percentile", "nanquantile", "nanpercentile", "cov", "corrcoef", "histogram",
    "bincount", "interp", "convolve", "gradient", "trapezoid",
]  # fmt: skip

#: Values of a segment that are added before and after whole blocks of so many.
RUN = 32


def _reduced(x: Array, axis: Any, keepdims: bool) -> tuple[int, ...]:
    axes = axis_tuple(axis, x.ndim)
    return tuple(1 if k in axes else n for k, n in enumerate(x.shape) if keepdims or k not in axes)


def _order_statistic(name: str, a: Any, q: Any, axis: Any, keepdims: bool, method: Any = None) -> Array:
    x = as_array(a)
    to = float64 if x.dtype.kind in "iub" else x.dtype
    axis = tuple(axis) if isinstance(axis, list) else axis
    shape = _reduced(x, axis, keepdims)
    if routines.serves(x) and x.size and name in _OF_ROWS:
        if q is None:
            return _of_rows(x, None, axis, shape, to)
        if not isinstance(q, Array) and method == "linear":
            share = np.asarray(q, np.float64) / _OF_ROWS[name]
            if not ((share >= 0) & (share <= 1)).all():
                raise ValueError(f"{name}s must be in the range [0, {_OF_ROWS[name]}]".capitalize())
            return _of_rows(x, share, axis, shape, to)
    if q is None:
        return call(name, _median, (x,), shape, to, name, axis, keepdims)
    points = as_array(q)
    return call(name, _quantile, (x, points), (*points.shape, *shape), to, name, axis, keepdims, method)


#: What a GPU takes from sorted rows, with the value of `q` that stands for everything.
_OF_ROWS = {"median": 1, "quantile": 1, "percentile": 100}


def _of_rows(x: Array, share: np.ndarray | None, axis: Any, shape: tuple[int, ...], to: np.dtype) -> Array:
    """The median, or quantiles, over axes of an array on a GPU, as NumPy interpolates them."""
    from .manipulation import moveaxis, reshape
    from .searching import sort
    from .selection import take

    axes = axis_tuple(axis, x.ndim)
    kept = [n for k, n in enumerate(x.shape) if k not in axes]
    rows = reshape(moveaxis(x, axes, tuple(range(-len(axes), 0))), (*kept, -1)) if axes else x[..., None]
    rows = sort(rows if x.dtype.kind == "f" or to == x.dtype else cast_to(rows, to))
    last = rows.shape[-1] - 1
    if share is None:
        low, high = rows[..., last // 2], rows[..., (last + 1) // 2]
        wide = np.dtype(np.float32) if to.itemsize == 2 else to
        result = cast_to((cast_to(low, wide) + cast_to(high, wide)) / 2, to) if last % 2 else low
        largest = rows[..., last]
    else:
        place = share.reshape(-1) * last
        before = np.where(place < last, np.floor(place), last).astype(np.int64)
        t = (place - before).reshape(-1, *[1] * len(kept))
        low, high = (moveaxis(take(rows, i, -1), -1, 0) for i in (before, np.minimum(before + 1, last)))
        step = cast_to(high - low, float64)
        between = elementwise(TABLE["where"], as_array(t >= 0.5), high - step * (1 - t), low + step * t)
        result, shape = cast_to(between, to), (*share.shape, *shape)
        largest = rows[..., last]
    if to.kind not in "iub":
        result = elementwise(TABLE["where"], elementwise(TABLE["isnan"], largest), largest, result)
    return reshape(result, shape)


def _median(x: np.ndarray, name: str, axis: Any, keepdims: bool) -> Any:
    return getattr(np, name)(x, axis, keepdims=keepdims)


def _quantile(x: np.ndarray, q: np.ndarray, name: str, axis: Any, keepdims: bool, method: Any) -> Any:
    result = np.asarray(getattr(np, name)(x, q, axis, method=method, keepdims=keepdims))
    return result.astype(x.dtype if x.dtype.kind in "fc" else np.float64, copy=False)


def median(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Middle element over axes, or the mean of the middle two."""
    from .elementwise import finish

    return finish(_order_statistic("median", a, None, axis, keepdims), out)


def nanmedian(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Median over axes of the elements that are not NaN."""
    return _order_statistic("nanmedian", a, None, axis, keepdims)


def quantile(a: Any, q: Any, axis: Any = None, *, method: Any = "linear", keepdims: bool = False) -> Array:
    """Elements that a share `q` of the others lie below, over axes."""
    return _order_statistic("quantile", a, q, axis, keepdims, method)


def percentile(a: Any, q: Any, axis: Any = None, *, method: Any = "linear", keepdims: bool = False) -> Array:
    """Elements that `q` percent of the others lie below, over axes."""
    return _order_statistic("percentile", a, q, axis, keepdims, method)


def nanquantile(a: Any, q: Any, axis: Any = None, *, method: Any = "linear", keepdims: bool = False) -> Array:
    """Quantiles over axes of the elements that are not NaN."""
    return _order_statistic("nanquantile", a, q, axis, keepdims, method)


def nanpercentile(a: Any, q: Any, axis: Any = None, *, method: Any = "linear", keepdims: bool = False) -> Array:
    """Percentiles over axes of the elements that are not NaN."""
    return _order_statistic("nanpercentile", a, q, axis, keepdims, method)


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Array:
    """Covariance matrix of variables, a row each (a column each if not `rowvar`)."""
    from .manipulation import atleast_2d, concatenate

    def variables(v: Any) -> Array:
        x = atleast_2d(as_array(v))
        x = x if rowvar or as_array(v).ndim < 2 else x.T
        return cast_to(x, result_type(x.dtype, float64))

    x = variables(m)
    if y is not None:
        x = concatenate((x, variables(y)), 0)
    x = x - mean(x, 1, keepdims=True)
    n = x.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
    right = elementwise(TABLE["conjugate"], x.T) if x.dtype.kind == "c" else x.T
    result = matmul(x, right) / n
    return result[0, 0] if result.shape == (1, 1) else result


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Array:
    """Matrix of correlation coefficients of variables, a row each."""
    from .manipulation import diagonal

    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    deviation = elementwise(TABLE["sqrt"], diagonal(c).real)
    return c / deviation[:, None] / deviation[None, :]


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Counts of elements in bins, or sums of their weights, and the bins' edges; computed at once."""
    edges = bins._host() if isinstance(bins, Array) else bins
    operands = [as_array(x) for x in (a, weights) if x is not None]
    if not isinstance(bins, str) and (served := _served(operands)):
        return _histogram(served, edges, range, density)
    counted = lambda x, w=None: np.histogram(x, edges, range, density, w)
    return at_once("histogram", counted, operands)


def _served(operands: list[Array]) -> tuple[Array, ...]:
    """Elements, and weights if there are any, where a GPU can sort them; else nothing."""
    x, *weights = operands
    if not routines.serves(x) or not x.size or any(w.shape != x.shape for w in weights):
        return ()
    return routines.together(*operands)


def _histogram(operands: tuple[Array, ...], bins: Any, range: Any, density: Any) -> tuple[Array, Array]:
    """The same on a GPU: a search for the edges among the sorted elements."""
    from .manipulation import concatenate, ravel
    from .reductions import amax, amin, diff
    from .searching import searchsorted

    x, *weights = [ravel(x) for x in operands]
    flat = x if x.dtype.kind != "b" else cast_to(x, np.dtype(np.uint8))
    ends = np.zeros(2, flat.dtype)
    if np.ndim(bins) == 0 and range is None:
        ends[:] = amin(flat)._host(), amax(flat)._host()
    edges = np.histogram_bin_edges(ends, bins, range)
    ordered, *weights = _in_order("histogram", flat, *weights)
    places = Array(placed(from_numpy(edges), x.device))
    below = concatenate((searchsorted(ordered, places[:-1]), searchsorted(ordered, places[-1:], "right")))
    counts = diff(below)
    if weights:
        (w,) = weights
        wide = cast_to(w, float64) if w.dtype.kind == "f" else w
        counts = cast_to(_sums_between(wide, below[:-1], below[1:]), w.dtype)
    if density:
        widths = diff(cast_to(places, float64))
        return counts / widths / _sum(counts), places
    return counts, places


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Array:
    """Counts of each non-negative integer, or sums of their weights; computed at once."""
    operands = [as_array(v) for v in (x, weights) if v is not None]
    if operands[0].ndim == 1 and operands[0].dtype.kind in "iub" and (served := _served(operands)):
        return _bincount(served, minlength)
    return at_once("bincount", lambda v, w=None: np.bincount(v, w, minlength), operands)


def _bincount(operands: tuple[Array, ...], minlength: int) -> Array:
    """The same on a GPU: a search for each integer among the sorted ones."""
    from .creation import arange, full
    from .info import evaluate
    from .manipulation import concatenate
    from .reductions import amax, amin, diff
    from .searching import searchsorted

    x, *weights = operands
    ends = amin(x), amax(x)
    evaluate(*ends)
    smallest, largest = map(int, ends)
    if smallest < 0:
        raise ValueError("'list' argument must have no negative elements")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    bins = max(largest + 1, minlength)
    # The fewer digits, the sooner sorted.
    digits = np.min_scalar_type(bins - 1)
    ordered, *weights = _in_order("bincount", cast_to(x, digits), *weights)
    below = searchsorted(ordered, cast_to(arange(bins, device=x.device), digits))
    below = concatenate((below, full(1, x.size, int64, device=x.device)))
    if weights:
        return _sums_between(cast_to(weights[0], float64), below[:-1], below[1:])
    return diff(below)


def _in_order(name: str, keys: Array, *others: Array) -> list[Array]:
    """A vector in order, and others in the same."""
    from .searching import sort

    if not others:
        return [sort(keys)]
    ordered, order = routines.sorted_with_order(name, keys)
    return [ordered, *(x[order] for x in others)]


def _sums_between(values: Array, starts: Array, ends: Array) -> Array:
    """The sums of values[start:end], in an order that depends on the places alone."""
    from .creation import arange
    from .elementwise import clip, where
    from .info import evaluate
    from .manipulation import reshape

    # Sums of blocks, of blocks of blocks, ...
    levels = [values]
    while (n := levels[-1].size) >= RUN:
        levels.append(_sum(reshape(levels[-1][: n // RUN * RUN], (-1, RUN)), axis=1))
    evaluate(*levels, starts, ends)
    total: Any = 0
    for level in levels:
        # What is before the first whole block, and behind the last one.
        step = arange(min(RUN, level.size), device=values.device)
        first = elementwise(TABLE["minimum"], -(-starts // RUN) * RUN, ends)
        last = elementwise(TABLE["maximum"], ends // RUN * RUN, first)
        for start, end in ((starts, first), (last, ends)):
            at = start[:, None] + step
            found = level[clip(at, 0, level.size - 1)]
            total = total + _sum(where(at < end[:, None], found, values.dtype.type(0)), axis=1)
        starts, ends = first // RUN, last // RUN
    return total


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Array:
    """Piecewise linear interpolation."""
    points, xs, fs = as_array(x), as_array(xp), as_array(fp)
    dtype = np.complex128 if fs.dtype.kind == "c" else np.float64
    return call("interp", np.interp, (points, xs, fs), points.shape, dtype, left, right)


def convolve(a: Any, v: Any, mode: Any = "full") -> Array:
    """Discrete convolution of two vectors; computed at once."""
    return at_once("convolve", lambda x, y: np.convolve(x, y, mode), (as_array(a), as_array(v)))


def gradient(f: Any, *varargs: Any, axis: Any = None) -> Any:
    """Central differences, one-sided at the ends; computed at once."""
    spacing = tuple(v._host() if isinstance(v, Array) else v for v in varargs)
    return at_once("gradient", lambda x: np.gradient(x, *spacing, axis=axis), (as_array(f),))


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """Integral along an axis by the trapezoidal rule."""
    from .manipulation import moveaxis
    from .reductions import diff

    v = moveaxis(as_array(y), axis, -1)
    if x is None:
        steps: Any = dx
    else:
        points = as_array(x)
        steps = diff(points if points.ndim == 1 else moveaxis(points, axis, -1))
    return _sum(steps * (v[..., 1:] + v[..., :-1]) / 2.0, -1)
