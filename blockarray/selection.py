"""Picking elements: by position, along an axis, by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from .array import Array, method
from .compiler.expr import Shape
from .creation import arange
from .dtypes import bool_
from .elementwise import clip
from .manipulation import ravel, reshape
from .operands import as_array, axis_index, from_numpy, shape_tuple, to_numpy

__all__ = [
    "take", "take_along_axis", "put_along_axis", "nonzero", "argwhere", "flatnonzero", "compress",
    "extract", "put", "unravel_index", "ix_",
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
    if mode == "wrap":
        i = i % n
    elif mode == "clip":
        i = clip(i, 0, n - 1)
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
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
        arr, axis = reshape(arr, (-1,)), 0
    axis = axis_index(axis, arr.ndim)
    arr[_along(i, arr.shape, axis)] = values


def _along(i: Array, shape: Shape, axis: int) -> tuple[Any, ...]:
    """The key of index arrays that walks the other axes alongside `i`."""
    ndim = len(shape)
    return tuple(
        i if k == axis else reshape(arange(shape[k]), (1,) * k + (-1,) + (1,) * (ndim - k - 1)) for k in range(ndim)
    )


@method
def nonzero(a: Any) -> tuple[Array, ...]:
    """Positions of the elements that are not zero, an index array an axis; computes `a`."""
    x = as_array(a)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use atleast_1d(scalar).nonzero() instead.")
    return tuple(Array(from_numpy(i)) for i in np.nonzero(x._host()))


def argwhere(a: Any) -> Array:
    """Positions of the elements that are not zero, a row each; computes `a`."""
    return Array(from_numpy(np.argwhere(as_array(a)._host())))


def flatnonzero(a: Any) -> Array:
    """Positions in the flattened array of the elements that are not zero; computes `a`."""
    return Array(from_numpy(np.flatnonzero(as_array(a)._host())))


@method
def compress(condition: Any, a: Any, axis: int | None = None) -> Array:
    """The slices along an axis where a condition holds; computes the condition."""
    keep = np.flatnonzero(as_array(condition)._host())
    return take(a, keep, axis)


def extract(condition: Any, arr: Any) -> Array:
    """The elements where a condition holds; computes the condition."""
    return take(ravel(as_array(arr)), np.flatnonzero(as_array(condition)._host()))


@method
def put(a: Array, ind: Any, v: Any) -> None:
    """Set elements of the flattened array."""
    i = as_array(ind)
    values = as_array(v)
    reshape(a, (-1,))[reshape(i, (-1,))] = values if values.size in (1, i.size) else np.resize(values._host(), i.size)


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
