"""Reductions and scans."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

from .array import Array, lazy, method
from .compiler.dtypes import NARROW, NUMPY
from .compiler.expr import Expr, Shape, contiguous_strides, node, view
from .compiler.ops import TABLE, resolve
from .dtypes import CANONICAL, canonical, float32, float64, int64, real_type
from .elementwise import cast_to, finish
from .operands import (
    as_array,
    as_expr,
    assigned,
    axis_index,
    axis_tuple,
    cast,
    constant,
    elementwise,
    reduced_axes,
)
from .runtime.device import CudaDevice

__all__ = [
    "sum", "prod", "max", "min", "amax", "amin", "any", "all", "argmax", "argmin", "mean", "var", "std",
    "count_nonzero", "ptp", "average", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd",
    "nanargmax", "nanargmin", "cumsum", "cumprod", "cumulative_sum", "cumulative_prod", "nancumsum", "nancumprod",
    "diff",
]  # fmt: skip

_NARROW = frozenset(NUMPY[d] for d in NARROW)


def reduce(name: str, e: Expr, axes: tuple[int, ...], keepdims: bool = False) -> Expr:
    """A reduction of the table over axes, in the dtype of `e`."""
    if len(axes) > 1:
        axes = tuple(sorted(axes))
    op = TABLE[name]
    shape = tuple([n for k, n in enumerate(e.shape) if k not in axes])
    out = e.dtype if name in ("sum", "prod") else CANONICAL[resolve(op, e.dtype)[1]]
    # Over no axes: the elements themselves.
    result = Expr(op, (e,), axes, shape, out, e.depth + 1, e.device) if axes else cast(e, out)
    return keep(result, axes, e.shape) if keepdims else result


def keep(result: Expr, axes: tuple[int, ...], shape: Shape) -> Expr:
    """A reduction's result with the reduced axes put back, of extent 1."""
    kept = tuple([1 if k in axes else n for k, n in enumerate(shape)])
    return view(result, 0, contiguous_strides(kept), kept)


def _masked(e: Expr, where: Any, identity: Any) -> Expr:
    """`e` with the positions left out that `where` leaves out."""
    if where is True:
        return e
    return elementwise(TABLE["where"], where, Array(e), identity)._read()


def _accumulating(name: str, combine: str, identity: int, doc: str) -> Any:
    def function(
        a: Any,
        /,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Array:
        e = as_expr(a)
        axes = reduced_axes(axis, len(e.shape))
        to = canonical(dtype) if dtype is not None else CANONICAL[resolve(TABLE[name], e.dtype)[1]]
        result = lazy(reduce(name, _masked(cast(e, to), where, identity), axes, keepdims))
        if initial is not None:
            result = cast_to(elementwise(TABLE[combine], result, initial), to)
        return result if out is None else finish(result, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(doc, "dtype : dtype, optional\n        Of the result and of the accumulation.\n    ")
    return function


_DOC = """{} over axes.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        All axes by default.
    {}out : Array, optional
        Where to put the result.
    keepdims : bool, optional
        Keep the reduced axes, with extent 1.
    initial : scalar, optional
        Value to start from.
    where : array_like of bool, optional
        Elements to include.

    Returns
    -------
    Array
    """

sum = method(_accumulating("sum", "add", 0, "Sum"))
prod = method(_accumulating("prod", "multiply", 1, "Product"))


def _extremum(name: str, combine: str, doc: str) -> Any:
    def function(
        a: Any,
        /,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Array:
        e = as_expr(a)
        axes = reduced_axes(axis, len(e.shape))
        if where is not True:
            if initial is None:
                raise ValueError(
                    f"reduction operation '{combine}' does not have an identity, so to use a where mask one"
                    " has to specify 'initial'"
                )
            e = _masked(e, where, initial)
        if builtins.any(e.shape[k] == 0 for k in axes):
            shape = tuple([n for k, n in enumerate(e.shape) if k not in axes])
            # NumPy lets it pass where the result is empty as well.
            if initial is None and builtins.all(shape):
                raise ValueError(f"zero-size array to reduction operation {combine} which has no identity")
            if initial is not None:
                # The only element of the reduced axes.
                e = constant(assigned(initial, e.dtype, ()).attrs, e.dtype, tuple([n or 1 for n in e.shape]))
        result = lazy(reduce(name, e, axes, keepdims))
        if initial is not None:
            result = elementwise(TABLE[combine], result, initial)
        return result if out is None else finish(result, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(doc, "")
    return function


max = method(_extremum("max", "maximum", "Largest element"))
min = method(_extremum("min", "minimum", "Smallest element"))
amax, amin = max, min


def _truth(name: str, identity: bool, doc: str) -> Any:
    def function(a: Any, /, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Array:
        e = as_expr(a)
        to_bool = cast(e, CANONICAL[np.dtype(bool)])
        result = lazy(reduce(name, _masked(to_bool, where, identity), reduced_axes(axis, len(e.shape)), keepdims))
        return result if out is None else finish(result, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(doc, "").replace(
        "    initial : scalar, optional\n        Value to start from.\n", ""
    )
    return function


any = method(_truth("any", False, "Whether any element is non-zero"))
all = method(_truth("all", True, "Whether all elements are non-zero"))


def _position(name: str, doc: str) -> Any:
    def function(a: Any, /, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Array:
        e = as_expr(a)
        shape = e.shape
        if axis is None:
            e = view(e, 0, (1,), (_size(shape),))
            k = 0
        else:
            if not shape and axis in (0, -1):
                # As in NumPy, a 0-d array has an axis here.
                e = view(e, 0, (1,), (1,))
            k = axis_index(axis, len(e.shape))
        if not e.shape[k] and _size(e.shape[:k] + e.shape[k + 1 :]):
            raise ValueError(f"attempt to get {name} of an empty sequence")
        result = reduce(name, e, (k,))
        if keepdims:
            result = keep(result, tuple(range(len(shape))) if axis is None else (k,), shape)
        return finish(lazy(result), out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}; of the flattened array if `axis` is None.

    Parameters
    ----------
    a : array_like
    axis : int, optional
    out : Array, optional
    keepdims : bool, optional
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Array
        Of dtype int64.
    """
    return function


def _size(shape: Shape) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


argmax = method(_position("argmax", "Position of the first largest element along an axis"))
argmin = method(_position("argmin", "Position of the first smallest element along an axis"))


@method
def mean(
    a: Any, /, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Array:
    """Arithmetic mean over axes; of integers in float64, of narrow floats through float32.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        All axes by default.
    dtype : dtype, optional
        Of the result and of the accumulation.
    out : Array, optional
    keepdims : bool, optional
        Keep the reduced axes, with extent 1.
    where : array_like of bool, optional
        Elements to include.

    Returns
    -------
    Array
    """
    e = as_expr(a)
    axes = reduced_axes(axis, len(e.shape))
    to, wide = _mean_types(e.dtype, dtype)
    e = cast(e, wide)
    if where is True:
        total = reduce("sum", e, axes, keepdims)
        count: Any = _weight(axes, e.shape)
    else:
        total = reduce("sum", _masked(e, where, 0), axes, keepdims)
        count = _count(where, e.shape, axes, keepdims)
    result = cast_to(_divide(lazy(total), count), to)
    return result if out is None else finish(result, out)


def _divide(total: Array, count: Any) -> Array:
    if isinstance(count, int):
        return elementwise(TABLE["divide"], total, float(count))
    return elementwise(TABLE["divide"], total, cast_to(count, real_type(total.dtype)))


def _weight(axes: tuple[int, ...], shape: Shape) -> int:
    return _size(tuple(shape[k] for k in axes))


def _count(where: Any, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Number of included elements."""
    from .manipulation import broadcast_to

    mask = broadcast_to(as_array(where), shape)._read()
    return lazy(reduce("sum", cast(mask, int64), axes, keepdims))


def _mean_types(own: np.dtype, dtype: Any) -> tuple[np.dtype, np.dtype]:
    """The dtype of a mean and that of its computation."""
    to = canonical(dtype) if dtype is not None else float64 if own.kind in "iub" else own
    return to, float32 if to in _NARROW else to


@method
def var(
    a: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Array:
    """Variance over axes: the mean of the squared deviations from the mean.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        All axes by default.
    dtype : dtype, optional
    out : Array, optional
    ddof, correction : number, optional
        The sum is divided by the number of elements minus this; if nothing is left, the result is a NaN.
    keepdims : bool, optional
        Keep the reduced axes, with extent 1.
    where : array_like of bool, optional
        Elements to include.
    mean : array_like, optional
        The mean, if it is known, as with keepdims=True.

    Returns
    -------
    Array
    """
    return finish(_variance(a, axis, dtype, ddof, keepdims, where, mean, correction, False), out)


@method
def std(
    a: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Array:
    """Standard deviation over axes: the square root of `var`, which explains the parameters."""
    return finish(_variance(a, axis, dtype, ddof, keepdims, where, mean, correction, True), out)


def _variance(
    a: Any, axis: Any, dtype: Any, ddof: float, keepdims: bool, where: Any, mean: Any, correction: Any, root: bool
) -> Array:
    if correction is not None:
        if ddof:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    e = as_expr(a)
    axes = reduced_axes(axis, len(e.shape))
    to, wide = _mean_types(e.dtype, dtype)
    x = Array(cast(e, wide))
    count: Any = _weight(axes, e.shape) if where is True else _count(where, e.shape, axes, True)
    blocks = _blocks(x, axes) if mean is None and where is True else None
    if blocks is not None:
        total = _deviations_by_blocks(x, axes, *blocks)
        total = lazy(keep(total._read(), axes, e.shape)) if keepdims else total
    else:
        if mean is None:
            mean = _divide(lazy(reduce("sum", _masked(x._read(), where, 0), axes, True)), count)
        total = lazy(reduce("sum", _masked(_square(x - mean)._read(), where, 0), axes, keepdims))
    if where is True:
        divisor = float(count - ddof) if count > ddof else np.nan
        result = elementwise(TABLE["divide"], total, divisor)
    else:
        left = _count(where, e.shape, axes, keepdims) - ddof
        result = _divide(total, elementwise(TABLE["where"], left > 0, left, np.nan))
    if root:
        result = elementwise(TABLE["sqrt"], result)
    return cast_to(result, real_type(to))


def _square(x: Array) -> Array:
    """The squares of the magnitudes."""
    if x.dtype.kind == "c":
        re, im = x.real, x.imag
        return re * re + im * im
    return elementwise(TABLE["square"], x)


class _Blocks(NamedTuple):
    """How large a variance must be that is made of the variances of blocks of an axis, so that each is read once."""

    #: Elements from which it is.
    least: int
    #: Lengths of a block, and the longest axis of which a program holds all positions anyway.
    lengths: range
    held: int


_ROW_BLOCKS = _Blocks(1 << 20, range(64, 8193), 1 << 16)
#: Of columns, on a GPU, whose cache is left by more bytes only.
_COLUMN_BLOCKS = _Blocks(1 << 24, range(64, 129), 1024)


def _blocks(x: Array, axes: tuple[int, ...]) -> tuple[int, int] | None:
    """The axis and the length of the blocks that a large variance is made of; None where it is not, or none divides."""
    axis = builtins.max(axes, default=0)
    of_rows = axis == x.ndim - 1
    if not axes or not (of_rows or (isinstance(x.device, CudaDevice) and _size(x.shape[axis + 1 :]) >= 32)):
        return None
    least, lengths, held = _ROW_BLOCKS if of_rows else _COLUMN_BLOCKS
    n = x.shape[axis]
    if x.size < least or (len(axes) == 1 and n <= held):
        return None
    if len(axes) > 1 and n in lengths:
        return axis, n
    length = next((length for length in reversed(lengths) if n % length == 0), None)
    return None if length is None else (axis, length)


def _deviations_by_blocks(x: Array, axes: tuple[int, ...], axis: int, length: int) -> Array:
    """Sums of the squared deviations from the mean, from those of blocks of an axis and the blocks' means.

    Chan, Golub and LeVeque, "Algorithms for computing the sample variance: analysis and recommendations" (1983).
    """
    shape, n = x.shape, x.shape[axis]
    outer, block = axes, axis
    if n == length:
        outer = tuple([k for k in axes if k != axis])
    else:
        block = axis + 1
        x = x.reshape((*shape[:axis], n // length, length, *shape[block:]))
    mean = _divide(lazy(reduce("sum", x._read(), (block,), True)), length)
    within = lazy(reduce("sum", _square(x - mean)._read(), (block,)))
    means = mean.reshape(within.shape)
    whole = _divide(lazy(reduce("sum", means._read(), outer, True)), _weight(outer, within.shape))
    return lazy(reduce("sum", (within + _square(means - whole) * float(length))._read(), outer))


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    """Number of elements that are not zero, over axes."""
    e = as_expr(a)
    truth = cast(cast(e, CANONICAL[np.dtype(bool)]), int64)
    return lazy(reduce("sum", truth, reduced_axes(axis, len(e.shape)), keepdims))


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Largest minus smallest element, over axes."""
    return finish(max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims), out)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """Weighted mean over axes."""
    x = as_array(a)
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        total = as_array(float(_weight(axis_tuple(axis, x.ndim), x.shape)))
    else:
        from .manipulation import broadcast_to, reshape

        w = as_array(weights)
        if w.shape != x.shape:
            if axis is None:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            k = axis_index(axis, x.ndim)
            if w.shape != (x.shape[k],):
                raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
            w = broadcast_to(reshape(w, (1,) * k + (-1,) + (1,) * (x.ndim - k - 1)), x.shape)
        total = sum(w, axis, keepdims=keepdims)
        result = sum(x * w, axis, keepdims=keepdims) / total
    if returned:
        from .manipulation import broadcast_to

        return result, broadcast_to(cast_to(total, result.dtype), result.shape)
    return result


# -- without NaNs -----------------------------------------------------------------------------------------------------
def _without_nan(x: Array, other: Any) -> Array:
    return elementwise(TABLE["where"], x != x, other, x) if x.dtype.kind in "fcV" else x


def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Sum over axes of the elements that are not NaN."""
    return sum(_without_nan(as_array(a), 0), axis, dtype, out, keepdims)


def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Product over axes of the elements that are not NaN."""
    return prod(_without_nan(as_array(a), 1), axis, dtype, out, keepdims)


def _nan_extremum(a: Any, axis: Any, out: Any, keepdims: bool, function: Any, other: float) -> Array:
    x = as_array(a)
    if x.dtype.kind not in "fV":
        return function(x, axis, out, keepdims)
    result = function(_without_nan(x, other), axis, None, keepdims)
    # Where there is nothing but NaNs, NaN.
    return finish(elementwise(TABLE["where"], all(x != x, axis, None, keepdims), np.nan, result), out)


def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Largest element over axes that is not NaN."""
    return _nan_extremum(a, axis, out, keepdims, max, -np.inf)


def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Smallest element over axes that is not NaN."""
    return _nan_extremum(a, axis, out, keepdims, min, np.inf)


def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Mean over axes of the elements that are not NaN."""
    x = as_array(a)
    return mean(x, axis, dtype, out, keepdims, where=x == x if x.dtype.kind in "fcV" else True)


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Array:
    """Variance over axes of the elements that are not NaN."""
    x = as_array(a)
    return var(x, axis, dtype, out, ddof, keepdims, where=x == x if x.dtype.kind in "fcV" else True)


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Array:
    """Standard deviation over axes of the elements that are not NaN."""
    x = as_array(a)
    return std(x, axis, dtype, out, ddof, keepdims, where=x == x if x.dtype.kind in "fcV" else True)


def _nan_position(a: Any, axis: Any, keepdims: bool, function: Any, other: float) -> Array:
    x = as_array(a)
    if x.dtype.kind not in "fV":
        return function(x, axis, keepdims=keepdims)
    # -inf or inf stands for NaN; a position of the real one wins over it by a look at what is no NaN.
    filled = _without_nan(x, other)
    best = (max if function is argmax else min)(filled, axis, keepdims=True)
    hit = (x == best) & (x == x)
    if not bool(all(any(hit, axis))):
        raise ValueError("All-NaN slice encountered")
    return argmax(hit, axis, keepdims=keepdims)


def nanargmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    """Position of the largest element that is not NaN; computes it."""
    return _nan_position(a, axis, keepdims, argmax, -np.inf)


def nanargmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    """Position of the smallest element that is not NaN; computes it."""
    return _nan_position(a, axis, keepdims, argmin, np.inf)


# -- scans ------------------------------------------------------------------------------------------------------------
def _scan(name: str, a: Any, axis: Any, dtype: Any, out: Any) -> Array:
    e = as_expr(a)
    if axis is None:
        e, k = view(e, 0, (1,), (_size(e.shape),)), 0
    else:
        k = axis_index(axis, len(e.shape))
    to = canonical(dtype) if dtype is not None else CANONICAL[resolve(TABLE[name], e.dtype)[1]]
    e = cast(e, to)
    return finish(lazy(node(TABLE[name], (e,), k, e.shape, to)), out)


@method
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Sums of the elements so far along an axis, or of the flattened array."""
    return _scan("cumsum", a, axis, dtype, out)


@method
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Products of the elements so far along an axis, or of the flattened array."""
    return _scan("cumprod", a, axis, dtype, out)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Running sum along an axis, NaN taken as zero."""
    return cumsum(_without_nan(as_array(a), 0), axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Running product along an axis, NaN taken as one."""
    return cumprod(_without_nan(as_array(a), 1), axis, dtype, out)


def _cumulative(name: str, x: Any, axis: Any, dtype: Any, out: Any, include_initial: bool) -> Array:
    a = as_array(x)
    if axis is None:
        if a.ndim > 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    result = _scan(name, a, axis, dtype, None)
    if include_initial:
        from .creation import full
        from .manipulation import concatenate

        shape = list(result.shape)
        shape[axis_index(axis, result.ndim)] = 1
        first = full(tuple(shape), 0 if name == "cumsum" else 1, result.dtype, device=result.device)
        result = concatenate((first, result), axis)
    return finish(result, out)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Array:
    """Sums of the elements so far along an axis, with a leading 0 if `include_initial`."""
    return _cumulative("cumsum", x, axis, dtype, out, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Array:
    """Products of the elements so far along an axis, with a leading 1 if `include_initial`."""
    return _cumulative("cumprod", x, axis, dtype, out, include_initial)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours along an axis, `n` times."""
    from .manipulation import broadcast_to, concatenate

    x = as_array(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if not x.ndim:
        raise ValueError("diff requires input that is at least one dimensional")
    if not n:
        return x
    axis = axis_index(axis, x.ndim)
    parts = [x]
    for extra, place in ((prepend, 0), (append, len(parts) + 1)):
        if extra is not None:
            extra = as_array(extra)
            if not extra.ndim:
                extra = broadcast_to(extra, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
            parts.insert(place, extra)
    if len(parts) > 1:
        x = concatenate(parts, axis)
    lead = (slice(None),) * axis
    for _ in range(n):
        high, low = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = elementwise(TABLE["not_equal" if x.dtype.kind == "b" else "subtract"], high, low)
    return x
