"""Picking elements: by position, along an axis, by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import routines
from .array import Array, method
from .compiler.expr import Shape
from .compiler.ops import TABLE
from .creation import positions
from .dtypes import bool_, result_type
from .elementwise import clip, finish
from .host import at_once
from .manipulation import broadcast_arrays, ravel, reshape, resize, stack
from .operands import SCALARS, as_array, assigned, axis_index, elementwise, shape_tuple, to_numpy
from .runtime.device import CPU

__all__ = [
    "take", "take_along_axis", "put_along_axis", "nonzero", "argwhere", "flatnonzero", "compress",
    "extract", "put", "putmask", "place", "copyto", "fill_diagonal", "choose", "select", "unravel_index", "ix_",
]  # fmt: skip

FULL = slice(None)


@method
def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Array:
    """Elements along an axis (of the flattened array by default), in the shape of `indices`."""
    x = as_array(a)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_index(axis, x.ndim)
    n = x.shape[axis]
    i = indices if isinstance(indices, Array) else to_numpy(indices)
    if i.size == 0 and not isinstance(indices, Array | np.ndarray):
        i = np.asarray(i, np.int64)
    if i.dtype.kind not in "iu":
        raise TypeError(f"Cannot cast array data from {i.dtype!r} to dtype('int64') according to the rule 'safe'")
    i = _positions(i, n, mode)
    if not i.ndim:
        # A 0-d index array would be an integer, whose value decides on a view.
        result = x[(FULL,) * axis + (i[None],)]
        result = result[(FULL,) * axis + (0,)]
    else:
        result = x[(FULL,) * axis + (i,)]
    if out is not None:
        out._fill(result._read())
        return out
    return result


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Array:
    """Elements whose position along an axis `indices` gives; the other axes are matched."""
    x = as_array(arr)
    i = as_array(indices)
    if i.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_index(axis, x.ndim)
    if x.ndim != i.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return x[_along(i, x.shape, axis)]


def put_along_axis(arr: Array, indices: Any, values: Any, axis: int | None) -> None:
    """Set the elements whose position along an axis `indices` gives."""
    i = as_array(indices)
    if axis is None:
        _set_flat(arr, i, values)
        return
    axis = axis_index(axis, arr.ndim)
    arr[_along(i, arr.shape, axis)] = values


def _along(i: Array, shape: Shape, axis: int) -> tuple[Any, ...]:
    """The key of index arrays that walks the other axes alongside `i`."""
    ndim = len(shape)
    return tuple(
        i if k == axis else reshape(positions(shape[k]), (1,) * k + (-1,) + (1,) * (ndim - k - 1)) for k in range(ndim)
    )


@method
def nonzero(a: Any) -> tuple[Array, ...]:
    """Positions of the elements that are not zero, an index array an axis; computes `a`."""
    x = as_array(a)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use atleast_1d(scalar).nonzero() instead.")
    if routines.serves(x):
        return unravel_index(routines.positions("nonzero", x), x.shape)
    return at_once("nonzero", np.nonzero, (x,))


def argwhere(a: Any) -> Array:
    """Positions of the elements that are not zero, a row each; computes `a`."""
    x = as_array(a)
    if x.ndim and routines.serves(x):
        return stack(unravel_index(routines.positions("argwhere", x), x.shape), -1)
    return at_once("argwhere", np.argwhere, (x,))


def flatnonzero(a: Any) -> Array:
    """Positions in the flattened array of the elements that are not zero; computes `a`."""
    x = as_array(a)
    return routines.positions("flatnonzero", x) if routines.serves(x) else at_once("flatnonzero", np.flatnonzero, (x,))


def _where(mask: Array) -> Any:
    """Positions in the flattened array where a mask holds: on the GPU that it is on, or host data."""
    on_gpu = mask._device() not in (None, CPU) and routines.serves(mask)
    return flatnonzero(mask) if on_gpu else np.flatnonzero(mask._host())


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Array:
    """The slices along an axis where a condition holds; computes the condition."""
    mask = as_array(condition)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return finish(take(a, _where(mask), axis), out)


def _compress(self: Array, condition: Any, axis: int | None = None, out: Any = None) -> Array:
    """The slices along an axis where a condition holds; computes the condition."""
    return compress(condition, self, axis, out)


Array.compress = _compress  # type: ignore[method-assign]


def extract(condition: Any, arr: Any) -> Array:
    """The elements where a condition holds; computes the condition."""
    return take(ravel(as_array(arr)), _where(as_array(condition)))


def _set_flat(a: Array, key: Any, values: Any) -> None:
    """Set elements of the flattened array."""
    flat = reshape(a, (-1,))
    flat[key] = values
    if flat._storage is not a._storage:
        # The elements do not lie in a row: they were copied.
        a[...] = reshape(flat, a.shape)


@method
def put(a: Array, ind: Any, v: Any, mode: str = "raise") -> None:
    """Set elements of the flattened array; `v` is repeated as often as needed."""
    i = _positions(reshape(as_array(ind), (-1,)), a.size, mode)
    values = as_array(v)
    _set_flat(a, i, values if values.size in (1, i.size) else resize(values, i.size))


def _positions(i: Any, n: int, mode: str) -> Any:
    """Positions along an axis of extent `n`, with those beyond its ends treated as `mode` says."""
    if mode == "wrap":
        return i % n
    if mode == "clip":
        return clip(i, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    return i


def putmask(a: Array, mask: Any, values: Any) -> None:
    """Set the elements where a mask holds to those of `values`, repeated as often as needed, at the same positions."""
    v = as_array(values)
    if v.size:
        where = elementwise(TABLE["where"], as_array(mask), reshape(resize(v, a.size), a.shape), a)
        a[...] = where.astype(a.dtype)


def place(arr: Array, mask: Any, vals: Any) -> None:
    """Set the elements where a mask holds to those of `vals` in turn; computes the mask."""
    found = _where(as_array(mask))
    v = as_array(vals)
    if found.size:
        if not v.size:
            raise ValueError("Cannot insert from an empty array!")
        _set_flat(arr, found, resize(v, found.size))


def copyto(dst: Array, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Assign an array's elements to another's, where a mask holds."""
    if type(src) not in SCALARS:
        src = as_array(src)
        if not np.can_cast(src.dtype, dst.dtype, casting):
            raise TypeError(
                f"Cannot cast array data from {src.dtype!r} to {dst.dtype!r} according to the rule {casting!r}"
            )
    value = Array(assigned(src, dst.dtype, dst.shape, dst.device))
    dst[...] = value if where is True else elementwise(TABLE["where"], as_array(where), value, dst)


def fill_diagonal(a: Array, val: Any, wrap: bool = False) -> None:
    """Set the main diagonal of an array whose axes have one extent (two axes may differ)."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = a.shape[1] + 1 if a.ndim == 2 else sum(a.shape[0] ** k for k in range(a.ndim))
    end = a.shape[1] * a.shape[1] if a.ndim == 2 and not wrap else a.size
    count = len(range(0, min(end, a.size), step))
    if count:
        _set_flat(a, slice(None, end, step), resize(as_array(val), count))


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Array:
    """Elements from one of several arrays, as `a` says at each position."""
    options = broadcast_arrays(*[as_array(c) for c in choices])
    to = result_type(*options)
    index, *options = broadcast_arrays(_positions(as_array(a), len(options), mode), *options)
    stacked = stack([x.astype(to, copy=False) for x in options])
    return finish(reshape(take_along_axis(stacked, index[None], 0), index.shape), out)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """Elements of the array that belongs to the first condition that holds, else a default."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    to = result_type(*[c if type(c) in SCALARS else as_array(c) for c in (*choicelist, default)])
    result: Any = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        condition = as_array(condition)
        if condition.dtype != bool_:
            raise TypeError("invalid entry in condlist: should be boolean ndarray")
        result = elementwise(TABLE["where"], condition, choice, result)
    return result.astype(to, copy=False)


def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """Index arrays for positions in the flattened array."""
    x = as_array(indices)
    result = []
    for n in reversed(shape_tuple(shape)):
        result.append(x % n)
        x = x // n
    return tuple(reversed(result))


def ix_(*args: Any) -> tuple[Array, ...]:
    """Index arrays that select a cross product."""
    result = []
    for k, x in enumerate(map(as_array, args)):
        i = nonzero(x)[0] if x.dtype == bool_ else x
        result.append(reshape(i, (1,) * k + (-1,) + (1,) * (len(args) - k - 1)))
    return tuple(result)
