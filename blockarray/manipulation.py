"""Shapes, axes, joining and repeating.  Where NumPy gives a view, so does this."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .array import Array, lazy, method
from .compiler.expr import UPDATE, Expr, Shape, compose, contiguous_strides, node, view
from .dtypes import canonical, result_type
from .elementwise import finish
from .host import at_once
from .operands import (
    as_array,
    axis_index,
    axis_tuple,
    cast,
    constant,
    numbers,
    shape_tuple,
)
from .operands import (
    broadcast_shapes as _broadcast_shapes,
)

__all__ = [
    "reshape", "ravel", "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "atleast_3d", "transpose",
    "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "flip", "fliplr", "flipud", "rot90",
    "diagonal", "broadcast_to", "broadcast_arrays", "broadcast_shapes", "concatenate", "concat", "stack", "hstack",
    "vstack", "row_stack", "dstack", "column_stack", "append", "block", "array_split", "split", "hsplit", "vsplit",
    "dsplit", "unstack", "tile", "repeat", "roll", "pad", "resize", "trim_zeros", "delete", "insert",
]  # fmt: skip


def _size(shape: Shape) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


# -- shape ------------------------------------------------------------------------------------------------------------
def reshape(a: Any, /, shape: Any = None, order: Any = "C", *, copy: bool | None = None, newshape: Any = None) -> Array:
    """The elements in another shape; a view unless strides cannot say it.

    Parameters
    ----------
    a : array_like
    shape : int or tuple of int
        One extent may be -1.
    order : {"C", "F"}, optional
        Order in which elements are read and placed.
    copy : bool, optional
        False: raise ValueError rather than copy.

    Returns
    -------
    Array
    """
    x = as_array(a)
    shape = newshape if shape is None else shape
    extents = _infer(tuple([n.__index__() for n in numbers(shape)]), x.size)
    if order == "F":
        return transpose(reshape(transpose(x), extents[::-1], copy=copy))
    if copy:
        x = x.copy("K")
    if extents == x.shape:
        return x._view(*x._window(), extents)
    offset, strides = x._window()
    packed = contiguous_strides(extents)
    if strides == contiguous_strides(x.shape):
        return x._view(offset, packed, extents)
    window = compose(x.shape, offset, strides, 0, packed, extents)
    if window is not None:
        return x._view(*window, extents)
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return Array(view(x._read(), 0, packed, extents))


def _infer(shape: Shape, size: int) -> Shape:
    if _size(shape) == size and min(shape, default=0) >= 0:
        return shape
    unknown = [k for k, n in enumerate(shape) if n < 0]
    if len(unknown) > 1:
        raise ValueError("can only specify one unknown dimension")
    known = _size(tuple(n for n in shape if n >= 0))
    if unknown:
        if not known or size % known:
            raise ValueError(f"cannot reshape array of size {size} into shape {_spell(shape)}")
        return (*shape[: unknown[0]], size // known, *shape[unknown[0] + 1 :])
    if known != size:
        raise ValueError(f"cannot reshape array of size {size} into shape {_spell(shape)}")
    return shape


def _spell(shape: Shape) -> str:
    return str(shape).replace(" ", "")


def _reshape_method(self: Array, *shape: Any, order: Any = "C", copy: bool | None = None) -> Array:
    return reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose_method(self: Array, *axes: Any) -> Array:
    return transpose(self, axes[0] if len(axes) == 1 else axes or None)


Array.reshape = _reshape_method  # type: ignore[attr-defined]
Array.transpose = _transpose_method  # type: ignore[attr-defined]


@method
def ravel(a: Any, order: Any = "C") -> Array:
    """The elements in one axis; a view where strides can say it."""
    return reshape(a, (-1,) if as_array(a).size else (0,), order)


@method
def flatten(a: Any, order: Any = "C") -> Array:
    """A copy of the elements in one axis."""
    return ravel(a, order).copy("K")


@method
def squeeze(a: Any, /, axis: Any = None) -> Array:
    """A view without axes of extent 1."""
    x = as_array(a)
    if axis is None:
        drop = {k for k, n in enumerate(x.shape) if n == 1}
    else:
        drop = set(axis_tuple(axis, x.ndim))
        if any(x.shape[k] != 1 for k in drop):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    offset, strides = x._window()
    left = [k for k in range(x.ndim) if k not in drop]
    return x._view(offset, tuple(strides[k] for k in left), tuple(x.shape[k] for k in left))


def expand_dims(a: Any, /, axis: Any = 0) -> Array:
    """A view with new axes of extent 1 at the given positions of the result."""
    x = as_array(a)
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    new = set(axis_tuple(axes, x.ndim + len(axes), "repeated axis"))
    return x[tuple(None if k in new else slice(None) for k in range(x.ndim + len(axes)))]


def _atleast(n: int, key_of: dict[int, tuple[Any, ...]]) -> Any:
    def function(*arys: Any) -> Any:
        result = tuple(x if x.ndim >= n else x[key_of[x.ndim]] for x in map(as_array, arys))
        return result[0] if len(result) == 1 else result

    function.__name__ = function.__qualname__ = f"atleast_{n}d"
    function.__doc__ = f"Views with at least {n} axes."
    return function


atleast_1d = _atleast(1, {0: (None,)})
atleast_2d = _atleast(2, {0: (None, None), 1: (None,)})
atleast_3d = _atleast(3, {0: (None, None, None), 1: (None, slice(None), None), 2: (slice(None), slice(None), None)})


# -- order of axes ----------------------------------------------------------------------------------------------------
def transpose(a: Any, axes: Any = None) -> Array:
    """A view with the axes in another order, by default the reverse one."""
    x = as_array(a)
    if axes is None:
        return x.T
    order = axis_tuple(axes, x.ndim, "repeated axis in transpose")
    if len(order) != x.ndim:
        raise ValueError("axes don't match array")
    offset, strides = x._window()
    return x._view(offset, tuple(strides[k] for k in order), tuple(x.shape[k] for k in order))


def permute_dims(a: Any, /, axes: Any) -> Array:
    """A view with the axes in another order."""
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Array:
    """A view with the last two axes swapped."""
    return as_array(x).mT


@method
def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """A view with two axes swapped."""
    x = as_array(a)
    i, j = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return transpose(x, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """A view with axes moved to other positions."""
    x = as_array(a)
    source = axis_tuple(source, x.ndim, "repeated axis in `source` argument")
    destination = axis_tuple(destination, x.ndim, "repeated axis in `destination` argument")
    if len(source) != len(destination):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(x.ndim) if k not in source]
    for d, s in sorted(zip(destination, source)):
        order.insert(d, s)
    return transpose(x, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """A view with an axis moved back to before another one."""
    x = as_array(a)
    axis = axis_index(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    if not 0 <= start <= x.ndim:
        raise np.exceptions.AxisError(
            f"'start' arg requires {-x.ndim} <= start < {x.ndim + 1}, but {start} was passed in"
        )
    return moveaxis(x, axis, start - 1 if axis < start else start)


def flip(m: Any, axis: Any = None) -> Array:
    """A view with the order along axes reversed, by default along all."""
    x = as_array(m)
    axes = axis_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(x.ndim))]


def fliplr(m: Any) -> Array:
    """A view with the columns in reverse order."""
    return flip(m, 1)


def flipud(m: Any) -> Array:
    """A view with the rows in reverse order."""
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Array:
    """A view rotated by 90 degrees in the plane of two axes."""
    x = as_array(m)
    i, j = axis_tuple(axes, x.ndim, "Axes must be different.")
    match k % 4:
        case 1:
            return swapaxes(flip(x, j), i, j)
        case 2:
            return flip(flip(x, i), j)
        case 3:
            return flip(swapaxes(x, i, j), j)
    return x[...]


@method
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """A view of the diagonals in the plane of two axes, as the last axis."""
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    start, strides = x._window()
    row, column = max(-offset, 0), max(offset, 0)
    n = max(min(x.shape[i] - row, x.shape[j] - column), 0)
    rest = [k for k in range(x.ndim) if k not in (i, j)]
    if n:
        start += row * strides[i] + column * strides[j]
    shape = (*(x.shape[k] for k in rest), n)
    return x._view(start, (*(strides[k] for k in rest), strides[i] + strides[j]), shape)


# -- broadcasting -----------------------------------------------------------------------------------------------------
def broadcast_to(array: Any, /, shape: Any, subok: bool = False) -> Array:
    """A read-only view at a shape that the array is broadcast to."""
    x = as_array(array)
    shape = shape_tuple(shape)
    own = x.shape
    lead = len(shape) - len(own)
    if lead < 0 or any(n not in (1, m) for n, m in zip(own, shape[lead:])):
        raise ValueError(
            f"operands could not be broadcast together with remapped shapes [original->remapped]: {_spell(own)} and"
            f" requested shape {_spell(shape)}"
        )
    offset, strides = x._window()
    result = x._view(offset, (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(own, strides)), shape)
    result._readonly = True
    return result


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Array, ...]:
    """Read-only views at the shape that the arrays are broadcast to together."""
    arrays = [as_array(x) for x in args]
    shape = _broadcast_shapes(*(x.shape for x in arrays))
    return tuple(x if x.shape == shape else broadcast_to(x, shape) for x in arrays)


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that arrays of these shapes are broadcast to together."""
    return _broadcast_shapes(*map(shape_tuple, shapes))


# -- joining ----------------------------------------------------------------------------------------------------------
def _windows(parts: Sequence[Expr], axis: int, shape: Shape, dtype: np.dtype) -> Expr:
    """Parts side by side along an axis."""
    if len(parts) == 1:
        return parts[0]
    strides = contiguous_strides(shape)
    result = constant(0, dtype, shape)
    at = 0
    for part in parts:
        if 0 not in part.shape:
            result = node(UPDATE, (result, part), (at * strides[axis], strides), shape, dtype)
        at += part.shape[axis]
    return result


def concatenate(
    arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Array:
    """Arrays joined along an axis (flattened ones if it is None)."""
    if isinstance(arrays, Array):
        arrays = list(arrays)
    parts = [as_array(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    first = parts[0]
    if not first.ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = axis_index(axis, first.ndim)
    for k, x in enumerate(parts[1:], 1):
        if x.ndim != first.ndim:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but along"
                f" dimension 0, the array at index 0 has {first.ndim} dimension(s) and the array at index {k} has"
                f" {x.ndim} dimension(s)"
            )
        for d in range(first.ndim):
            if d != axis and x.shape[d] != first.shape[d]:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along"
                    f" dimension {d}, the array at index 0 has size {first.shape[d]} and the array at index {k} has"
                    f" size {x.shape[d]}"
                )
    to = canonical(dtype) if dtype is not None else result_type(*(x.dtype for x in parts))
    for x in parts:
        if not np.can_cast(x.dtype, to, casting):
            raise TypeError(f"Cannot cast array data from {x.dtype!r} to {to!r} according to the rule {casting!r}")
    shape = (*first.shape[:axis], sum(x.shape[axis] for x in parts), *first.shape[axis + 1 :])
    result = lazy(_windows([cast(x._read(), to) for x in parts], axis, shape, to))
    return result if out is None else finish(result, out)


concat = concatenate


def stack(arrays: Any, /, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Array:
    """Arrays of one shape joined along a new axis."""
    parts = [as_array(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to stack")
    if any(x.shape != parts[0].shape for x in parts):
        raise ValueError("all input arrays must have the same shape")
    axis = axis_index(axis, parts[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in parts], axis, out, dtype=dtype, casting=casting)


def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Array:
    """Arrays joined along their second axis, vectors along their only one."""
    parts = [atleast_1d(x) for x in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Array:
    """Arrays joined along their first axis, vectors as rows."""
    return concatenate([atleast_2d(x) for x in tup], 0, dtype=dtype, casting=casting)


row_stack = vstack


def dstack(tup: Any) -> Array:
    """Arrays joined along their third axis."""
    return concatenate([atleast_3d(x) for x in tup], 2)


def column_stack(tup: Any) -> Array:
    """Arrays joined along their second axis, vectors as columns."""
    return concatenate([x[:, None] if x.ndim == 1 else x for x in map(atleast_1d, tup)], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """`values` after the elements of an array."""
    return concatenate((as_array(arr), as_array(values)), axis)


def block(arrays: Any) -> Array:
    """An array from nested lists of blocks."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x), default=0) if isinstance(x, list) else 0

    def ndim(x: Any) -> int:
        return max(map(ndim, x), default=0) if isinstance(x, list) else as_array(x).ndim

    levels = depth(arrays)
    n = max(levels, ndim(arrays))

    def build(x: Any, level: int) -> Array:
        if isinstance(x, list):
            return concatenate([build(i, level + 1) for i in x], n - levels + level)
        a = as_array(x)
        return a[(None,) * (n - a.ndim)]

    return build(arrays, 0)


# -- splitting --------------------------------------------------------------------------------------------------------
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Views of the parts of an array, of nearly equal extents or cut at given positions."""
    x = as_array(ary)
    axis = axis_index(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(indices_or_sections, int | np.integer):
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(n, sections)
        cuts = [0]
        for k in range(sections):
            cuts.append(cuts[-1] + each + (k < extra))
    else:
        cuts = [0, *(int(i) for i in indices_or_sections), n]
    lead = (slice(None),) * axis
    return [x[(*lead, slice(a, b))] for a, b in pairwise(cuts)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Views of the parts of an array, of equal extents or cut at given positions."""
    x = as_array(ary)
    if isinstance(indices_or_sections, int | np.integer) and x.shape[axis_index(axis, x.ndim)] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(x, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Split along the second axis, of vectors along the only one."""
    return split(ary, indices_or_sections, 0 if as_array(ary).ndim == 1 else 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Split along the first axis."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Split along the third axis."""
    return split(ary, indices_or_sections, 2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Views of the slices along an axis."""
    a = moveaxis(x, axis, 0)
    return tuple(a[i] for i in range(a.shape[0]))


# -- repeating and moving ---------------------------------------------------------------------------------------------
def tile(A: Any, reps: Any, /) -> Array:
    """The array repeated along each axis."""
    x = as_array(A)
    counts = shape_tuple(reps)
    n = max(x.ndim, len(counts))
    counts = (1,) * (n - len(counts)) + counts
    shape = (1,) * (n - x.ndim) + x.shape
    paired = tuple(m for pair in zip(counts, shape) for m in pair)
    spread = broadcast_to(reshape(x, tuple(m for e in shape for m in (1, e))), paired)
    return reshape(spread, tuple(c * e for c, e in zip(counts, shape))).copy("K")


@method
def repeat(a: Any, repeats: Any, /, axis: int | None = None) -> Array:
    """Each element repeated along an axis; counts that differ are computed at once."""
    from .selection import take

    x = as_array(a)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_index(axis, x.ndim)
    n = x.shape[axis]
    counts = np.asarray(repeats._host() if isinstance(repeats, Array) else repeats)
    if counts.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {counts.dtype!r} to dtype('int64') according to the rule 'safe'")
    if (counts < 0).any():
        raise ValueError("repeats may not contain negative values.")
    if counts.size == 1:
        r = int(counts.item())
        spread = broadcast_to(expand_dims(x, axis + 1), (*x.shape[: axis + 1], r, *x.shape[axis + 1 :]))
        return reshape(spread, (*x.shape[:axis], n * r, *x.shape[axis + 1 :])).copy("K")
    if counts.shape != (n,):
        raise ValueError(f"operands could not be broadcast together with shape ({n},) {_spell(counts.shape)}")
    return take(x, np.repeat(np.arange(n), counts), axis)


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """The elements moved along axes; those that leave at one end enter at the other."""
    x = as_array(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes, shifts = numbers(axis), numbers(shift)
    if len(shifts) != len(axes):
        if 1 not in (len(shifts), len(axes)):
            raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
        shifts = shifts * len(axes) if len(shifts) == 1 else shifts
        axes = axes * len(shifts) if len(axes) == 1 else axes
    for s, k in zip(shifts, axes):
        k = axis_index(k, x.ndim)
        n = x.shape[k]
        s = int(s) % n if n else 0
        if s:
            lead = (slice(None),) * k
            x = concatenate((x[(*lead, slice(n - s, None))], x[(*lead, slice(None, n - s))]), k)
    return x.copy("K") if x is a else x


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """The array with a border; modes that repeat elements gather, those that compute new ones run on the host."""
    x = as_array(array)
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap") or kwargs.get("reflect_type") == "odd":
        return at_once("pad", lambda v: np.pad(v, pad_width, mode, **kwargs), (x,))
    widths = (
        np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
        if not isinstance(pad_width, dict)
        else [
            pad_width.get(k, (0, 0)) if isinstance(pad_width.get(k, (0, 0)), tuple) else (pad_width[k],) * 2
            for k in range(x.ndim)
        ]
    )
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    if mode == "constant":
        values = np.broadcast_to(np.asarray(kwargs.pop("constant_values", 0)), (x.ndim, 2))
        if kwargs:
            raise ValueError(f"unsupported keyword arguments for mode '{mode}': {set(kwargs)}")
        from .creation import full

        for k, (before, after) in enumerate(widths):
            parts = [x]
            for n, value, place in ((before, values[k, 0], 0), (after, values[k, 1], 2)):
                if n:
                    edge = (*x.shape[:k], n, *x.shape[k + 1 :])
                    parts.insert(place, full(edge, value.astype(x.dtype), x.dtype, device=x.device))
            x = concatenate(parts, k) if len(parts) > 1 else x
        return x.copy("K") if x is array else x
    from .selection import take

    for k, (before, after) in enumerate(widths):
        if before or after:
            # NumPy pads the positions; the same positions then serve all the other axes.
            x = take(x, np.pad(np.arange(x.shape[k]), (before, after), mode, **kwargs), k)
    return x.copy("K") if x is array else x


def resize(a: Any, new_shape: Any) -> Array:
    """The elements in another shape, repeated as often as needed."""
    x = ravel(a)
    shape = shape_tuple(new_shape)
    n = _size(shape)
    if not x.size:
        from .creation import zeros

        return zeros(shape, x.dtype, device=x.device)
    return reshape(tile(x, -(-n // x.size))[:n], shape)


def trim_zeros(filt: Any, trim: str = "fb") -> Array:
    """A vector without its zeros at the ends; computes it."""
    x = as_array(filt)
    found = np.flatnonzero(x._host())
    if not found.size:
        return x[:0]
    start = int(found[0]) if "f" in trim.lower() else 0
    stop = int(found[-1]) + 1 if "b" in trim.lower() else x.size
    return x[start:stop]


def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """The array without some slices along an axis."""
    from .selection import take

    x = as_array(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_index(axis, x.ndim)
    kept = np.delete(np.arange(x.shape[axis]), obj._host() if isinstance(obj, Array) else obj)
    return take(x, kept, axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """The array with values inserted along an axis; computed on the host."""
    host = lambda v: v._host() if isinstance(v, Array) else v
    return at_once("insert", lambda v: np.insert(v, host(obj), host(values), axis), (as_array(arr),))
