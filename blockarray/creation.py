"""Making arrays."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from . import transfer
from .array import Array, in_order, lazy
from .compiler.dtypes import NARROW
from .compiler.dtypes import name as dtype_name
from .compiler.expr import Expr, broadcast, iota, scalar
from .compiler.ops import TABLE
from .dlpack import CopyNeeded
from .dtypes import bool_, canonical, float32, float64, int64, operand_type, result_type
from .elementwise import cast_to
from .operands import (
    SCALARS,
    as_array,
    as_expr,
    blank,
    cast,
    constant,
    elementwise,
    from_numpy,
    holds_array,
    placed,
    shape_tuple,
    to_numpy,
)
from .runtime.device import CPU, Device, default_device

__all__ = [
    "asarray", "array", "asanyarray", "ascontiguousarray", "require", "copy", "astype", "from_dlpack", "frombuffer",
    "fromiter", "fromfunction", "full", "zeros", "ones", "empty", "zeros_like", "ones_like", "empty_like", "full_like",
    "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "tril", "triu", "diag", "diagflat",
    "vander", "meshgrid", "indices", "tril_indices", "triu_indices",
]  # fmt: skip


def _place(device: Any) -> Device:
    """The device that a `device=` argument means."""
    return default_device() if device is None else Device(device)


def _shared(device: Any, *operands: Any) -> Device:
    """The device that a `device=` argument means; by default that of the operands which are on one."""
    found = [x.device for x in operands if isinstance(x, Array)] if device is None else []
    return found[0] if found else _place(device)


def _put(e: Expr, device: Device) -> Array:
    """An Array on a device of a value that may belong to none yet."""
    e = placed(e, device)
    return Array(e if e.device is device else transfer.move(e, device))


def asarray(
    a: Any, /, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Array:
    """An Array of an array-like's elements.

    Parameters
    ----------
    a : array_like
        An Array, a NumPy array, a scalar, a nested sequence of them, or an object that exports its memory.
    dtype : dtype, optional
    order : {"C", "K", "A", "F"}, optional
        Has no effect.
    device : Device or str, optional
        Where the result is wanted; by default where `a` is if it is on a device, else the default device.
    copy : bool, optional
        NumPy arrays are copied unless it is False; an Array is only copied if it is True, or if it is elsewhere.

    Returns
    -------
    Array
    """
    to = None if dtype is None else canonical(dtype)
    if isinstance(a, Array):
        target = None if device is None or a.device is Device(device) else Device(device)
        if copy is False and (target is not None or (to is not None and to != a.dtype)):
            raise ValueError("a change of dtype or device needs a copy")
        if to is not None and to != a.dtype:
            a = a.astype(to)
        elif copy and target is None:
            a = a.copy("K")
        return a if target is None else a.to_device(target)
    if (kind := transfer.exporter(a)) is not None:
        shared = copy is False
        return asarray(transfer.adopt(a, kind, not shared), dtype, device=device, copy=False if shared else None)
    target = _place(device)
    if copy is False:
        from .export import adopt

        if type(a) in SCALARS or isinstance(a, list | tuple | np.generic):
            raise ValueError("this cannot become an Array without a copy")
        x = a if isinstance(a, np.ndarray) else np.from_dlpack(a) if hasattr(a, "__dlpack__") else np.asarray(a)
        if (to is not None and x.dtype != to) or (device is not None and target is not CPU):
            raise ValueError("a change of dtype or device needs a copy")
        return adopt(x)
    if type(a) in SCALARS and to is not None:
        if (to.kind in "iu" and type(a) is complex) or (to.kind not in "cb" and type(a) is complex):
            raise TypeError(f"cannot convert a complex number to {to}")
        return Array(scalar(np.asarray(a, to)[()], to, target))
    if to is not None and not isinstance(a, np.ndarray) and isinstance(a, list | tuple) and not holds_array(a):
        e = from_numpy(to_numpy(a, to))
    else:
        e = as_expr(a)
    return _put(e if to is None else cast(e, to), target if device is not None or e.device is None else e.device)


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    device: Any = None,
    like: Any = None,
) -> Array:
    """A new Array of an array-like's elements, with at least `ndmin` axes."""
    result = asarray(object, dtype, device=device, copy=copy)
    return result[(None,) * (ndmin - result.ndim)] if result.ndim < ndmin else result


def asanyarray(a: Any, dtype: Any = None, **kwargs: Any) -> Array:
    """An Array of an array-like's elements."""
    return asarray(a, dtype, **kwargs)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Array:
    """An Array with at least one axis whose elements lie in row-major order: `a` itself if they do, or else a copy."""
    x = asarray(a, dtype)
    if not x.ndim:
        return x[None]
    e = x._read()
    ordered = in_order(e)
    return x if ordered is e else lazy(ordered)


def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Array:
    """An Array that lies in memory as required.

    Parameters
    ----------
    a : array_like
    dtype : dtype, optional
    requirements : str or sequence of str, optional
        "C" (row-major order), "F" (column-major order) or "O" (memory of its own, as a copy is); "A", "E" and "W" are
        always met.  NumPy's long names go as well.
    """
    wanted = [requirements] if isinstance(requirements, str) else requirements or ()
    letters = {str(r).upper().removesuffix("_CONTIGUOUS").removesuffix("CONTIGUOUS")[:1] or "C" for r in wanted}
    if unknown := letters - set("CFOAEW"):
        raise ValueError(f"unknown requirement: {', '.join(sorted(unknown))}")
    if {"C", "F"} <= letters:
        raise ValueError('Cannot specify both "C" and "F" order')
    x = asarray(a, dtype)
    if "O" in letters:
        return x.copy("C" if "C" in letters else "F" if "F" in letters else "K")
    if letters & {"C", "F"}:
        e = x._read() if "C" in letters else x.T._read()
        ordered = in_order(e)
        if ordered is not e:
            return lazy(ordered) if "C" in letters else lazy(ordered).T
    return x


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The array with its elements cast to another type."""
    return as_array(x).astype(dtype, copy=copy, device=device)


def copy(a: Any, order: Any = "K", subok: bool = False) -> Array:
    """A copy of an array."""
    return as_array(a).copy(order)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of the elements of another library's array, in its memory where that is possible.

    Operations that read shared memory run at once, one by one, since the other library may write to it.  Those of a
    copy are recorded, and fuse, as those of any other array.

    Parameters
    ----------
    x : object
        It has the methods `__dlpack__` and `__dlpack_device__`.
    device : Device or str, optional
        Where the result is wanted; by default where `x` is.
    copy : bool, optional
        Whether to copy; by default only if the memory cannot be shared.

    Returns
    -------
    Array

    Raises
    ------
    BufferError
        If a copy is needed but `copy` is False, or if the elements cannot be exchanged at all.
    """
    if not isinstance(x, Array):
        kind = transfer.exporter(x)
        x = transfer.adopt(x, kind, copy) if kind is not None else _over(transfer.on_host(x), copy)
    elif copy is None and (device is None or Device(device) is x.device):
        return x._view(*x._window(), x.shape)
    try:
        return asarray(x, device=device, copy=copy)
    except ValueError as error:
        raise CopyNeeded(str(error)) from error


def _over(x: np.ndarray, copy: bool | None) -> Array:
    """An Array on the CPU over a NumPy array's memory, or with its elements."""
    from .export import adopt

    if not copy:
        try:
            return adopt(x)
        except ValueError:
            if copy is False:
                raise CopyNeeded("copy=False: this memory cannot be used without a copy") from None
    return asarray(x, device=CPU)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """A 1-d Array of the elements in a buffer's bytes."""
    return asarray(np.frombuffer(buffer, canonical(dtype), count, offset))


def fromiter(iter: Any, dtype: Any, count: int = -1) -> Array:
    """A 1-d Array of an iterable's elements."""
    return asarray(np.fromiter(iter, canonical(dtype), count))


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Array:
    """An Array computed from its index arrays."""
    return function(*indices(shape, dtype), **kwargs)


# -- constants --------------------------------------------------------------------------------------------------------
def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Array:
    """An array of one value."""
    target = _place(device)
    shape = shape_tuple(shape)
    if type(fill_value) in SCALARS:
        to = canonical(type(fill_value) if dtype is None else dtype)
        if type(fill_value) is float and to.kind in "iu":
            return Array(broadcast(cast(scalar(fill_value, float64, target), to), shape))
        return Array(constant(np.asarray(fill_value, to)[()], to, shape, target))
    e = as_expr(fill_value)
    if e.device is not None and e.device is not target:
        if device is None:
            target = e.device
        else:
            e = _put(e, target)._read()
    from .manipulation import broadcast_to

    return broadcast_to(Array(placed(e if dtype is None else cast(e, canonical(dtype)), target)), shape).copy("K")


def zeros(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Array:
    """An array of zeros."""
    return Array(constant(0, canonical(dtype), shape_tuple(shape), _place(device)))


def ones(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Array:
    """An array of ones."""
    return Array(constant(1, canonical(dtype), shape_tuple(shape), _place(device)))


def empty(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Array:
    """An array whose elements are anything: hand-written kernels get its memory as it is, others see zeros."""
    shape = shape_tuple(shape)
    if not shape:
        return zeros(shape, dtype, device=device)
    return Array(broadcast(blank(canonical(dtype), _place(device)), shape))


def _like(a: Any, dtype: Any, shape: Any, device: Any) -> tuple[Any, np.dtype, Device]:
    x = as_array(a)
    target = x.device if device is None else Device(device)
    return (x.shape if shape is None else shape_tuple(shape)), (x.dtype if dtype is None else canonical(dtype)), target


def zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Array:
    """An array of zeros, of another array's shape and dtype."""
    shape, dtype, device = _like(a, dtype, shape, device)
    return zeros(shape, dtype, device=device)


def ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Array:
    """An array of ones, of another array's shape and dtype."""
    shape, dtype, device = _like(a, dtype, shape, device)
    return ones(shape, dtype, device=device)


def empty_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Array:
    """An array of another array's shape and dtype, whose elements are anything; see `empty`."""
    shape, dtype, device = _like(a, dtype, shape, device)
    return empty(shape, dtype, device=device)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Array:
    """An array of one value, of another array's shape and dtype."""
    shape, dtype, device = _like(a, dtype, shape, device)
    return full(shape, fill_value, dtype, device=device)


# -- ranges -----------------------------------------------------------------------------------------------------------
def arange(
    start: Any = None, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Array:
    """Evenly spaced numbers from `start` (0 if it is the only argument) up to `stop`, which is left out.

    Element i is start + i * ((start + step) - start), as in NumPy.
    """
    target = _place(device)
    plain = lambda x: x.item() if isinstance(x, Array | np.ndarray) else x
    start, stop, step = plain(start), plain(stop), plain(step)
    if step is None:
        step = 1
    if start is None or stop is None:
        start, stop = 0, start if stop is None else stop
    if not all(isinstance(x, int | float | complex | np.generic) for x in (start, stop, step)):
        raise TypeError("arange takes numbers")
    to = canonical(dtype) if dtype is not None else result_type(*(_strong(x) for x in (start, stop, step)))
    if to == bool_:
        return asarray(np.arange(start, stop, step, dtype=to), device=target)
    if step == 0:
        raise ZeroDivisionError("arange: step must not be zero")
    if all(isinstance(x, int | np.integer) for x in (start, stop, step)):
        start, stop, step = int(start), int(stop), int(step)
        n = max(-((start - stop) // step), 0)
        if dtype is None and n and not all(int(x) in range(-(2**63), 2**63) for x in (start, start + (n - 1) * step)):
            raise OverflowError("arange: the numbers do not fit int64; pass a dtype")
    else:
        span = (stop - start) / step
        if isinstance(span, complex):
            n = max(math.ceil(min(span.real, span.imag)), 0)
        else:
            if math.isnan(span):
                raise ValueError("arange: cannot compute length")
            if math.isinf(span) and span > 0:
                raise ValueError("Maximum allowed size exceeded")
            span = max(span, 0.0)
            n = max(math.ceil(span), 0)
    if not n:
        return zeros((0,), to, device=target)
    # As NumPy: both ends of the first step are rounded to the type, narrow floats are computed in float32.
    wide = float32 if dtype_name(to) in NARROW else to
    first, second = (np.asarray(x).astype(to).astype(wide)[()] for x in (start, start + step))
    with np.errstate(over="ignore"):
        delta = second - first
    result = Array(cast(iota(n, target), wide))
    if delta != 1 or wide.kind in "fc":
        result = result * Array(scalar(delta, wide))
    if first != 0 or wide.kind in "fc":
        result = Array(scalar(first, wide)) + result
    return cast_to(result, to)


def positions(n: int) -> Array:
    """0, 1, ... n - 1, on no device yet."""
    return Array(iota(n) if n else constant(0, int64, (0,)))


def _strong(x: Any) -> np.dtype:
    t = operand_type(x)
    return t if isinstance(t, np.dtype) else canonical(t)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced numbers over an interval."""
    from .elementwise import floor, where  # type: ignore[attr-defined]
    from .manipulation import moveaxis, reshape

    target = _shared(device, start, stop)
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    div = num - 1 if endpoint else num
    low, high = as_array(start), as_array(stop)
    compute = result_type(low.dtype, high.dtype, float64)
    to = compute if dtype is None else canonical(dtype)
    low, high = low.astype(compute), high.astype(compute)
    delta = high - low
    position = reshape(cast_to(positions(num), compute), (-1,) + (1,) * delta.ndim)
    step = delta / div if div > 0 else delta * np.nan
    if div > 0:
        result = position * step
        # Where the step underflows to 0, divide after the product.
        if not delta.ndim and isinstance(start, int | float) and isinstance(stop, int | float):
            if (stop - start) / div == 0:
                result = position / div * delta
        else:
            result = where(step == 0, position / div * delta, result)
    else:
        result = position * delta
    result = result + low
    if endpoint and num > 1:
        last = reshape(positions(num), (-1,) + (1,) * delta.ndim) == num - 1
        result = where(last, high, result)
    if to.kind in "iu":
        result = floor(result)
    result = cast_to(result, to)
    if axis:
        result = moveaxis(result, 0, axis)
    result = _put(result._read(), target)
    return (result, step) if retstep else result


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Array:
    """Numbers evenly spaced on a logarithmic scale."""
    result = elementwise(TABLE["power"], base, linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else cast_to(result, canonical(dtype))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None) -> Array:
    """Numbers in geometric progression; computed on the host."""
    return asarray(
        np.geomspace(np.asarray(start), np.asarray(stop), num, endpoint), dtype, device=_shared(None, start, stop)
    )


# -- matrices and grids -----------------------------------------------------------------------------------------------
def _triangle(n: int, m: int, k: int) -> Array:
    """Whether column - row <= k."""
    return positions(m) - positions(n)[:, None] <= k


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Array:
    """A matrix with ones on a diagonal."""
    n, m = int(N), int(N if M is None else M)
    if n < 0 or m < 0:
        raise ValueError("negative dimensions are not allowed")
    result = cast_to(positions(m) - positions(n)[:, None] == int(k), canonical(dtype))
    return _put(result._read(), _place(device))


def identity(n: int, dtype: Any = None) -> Array:
    """The identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """A matrix with ones at and below a diagonal."""
    result = cast_to(_triangle(N, N if M is None else M, k), canonical(dtype))
    return _put(result._read(), default_device())


def _square(x: Array, name: str) -> Array:
    """A vector as every row of a matrix."""
    if not x.ndim:
        raise ValueError(f"{name} takes arrays of at least one axis")
    from .manipulation import broadcast_to

    return broadcast_to(x, x.shape * 2)


def tril(m: Any, /, k: int = 0) -> Array:
    """The lower triangle, zeros above the diagonal `k`."""
    x = as_array(m)
    if x.ndim < 2:
        x = _square(x, "tril")
    return elementwise(TABLE["where"], _triangle(x.shape[-2], x.shape[-1], k), x, Array(constant(0, x.dtype)))


def triu(m: Any, /, k: int = 0) -> Array:
    """The upper triangle, zeros below the diagonal `k`."""
    x = as_array(m)
    if x.ndim < 2:
        x = _square(x, "triu")
    return elementwise(TABLE["where"], _triangle(x.shape[-2], x.shape[-1], k - 1), Array(constant(0, x.dtype)), x)


def diag(v: Any, k: int = 0) -> Array:
    """A matrix with a diagonal, or the diagonal of a matrix (a view)."""
    from .manipulation import diagonal

    x = as_array(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = x.shape[0] + abs(k)
    result = zeros((n, n), x.dtype, device=x.device)
    diagonal(result, k)[...] = x
    return result


def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with the flattened array on a diagonal."""
    from .manipulation import ravel

    return diag(ravel(as_array(v)), k)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """Vandermonde matrix: powers of a vector as columns."""
    x = as_array(x)
    n = x.shape[0] if N is None else N
    powers = positions(n) if increasing else n - 1 - positions(n)
    return elementwise(TABLE["power"], x[:, None], cast_to(powers, result_type(x.dtype, int64)))


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Array, ...]:
    """Coordinate arrays of a grid, from the vectors along its axes."""
    from .manipulation import broadcast_arrays, reshape, swapaxes

    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    grids = [reshape(as_array(x), (1,) * k + (-1,) + (1,) * (n - k - 1)) for k, x in enumerate(xi)]
    if indexing == "xy" and n > 1:
        grids = [swapaxes(g, 0, 1) for g in grids]
    if sparse:
        return tuple(g.copy("K") if copy else g for g in grids)
    return tuple(g.copy("K") if copy else g for g in broadcast_arrays(*grids))


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """Index arrays of a grid, stacked along a new first axis."""
    from .manipulation import stack

    grids = meshgrid(*(arange(n, dtype=dtype) for n in shape_tuple(dimensions)), indexing="ij", sparse=sparse)
    return grids if sparse else stack(grids)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Positions of the lower triangle."""
    from .selection import nonzero

    return nonzero(_triangle(n, n if m is None else m, k))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Positions of the upper triangle."""
    from .selection import nonzero

    return nonzero(~_triangle(n, n if m is None else m, k - 1))
