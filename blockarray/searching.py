"""Sorting, searching and sets.  A library does them on the host; those whose shape depends on the data run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import recipes, routines
from .array import Array, method
from .creation import arange, full
from .dtypes import int32, int64, result_type
from .elementwise import cast_to
from .host import at_once, call
from .operands import as_array, axis_index

__all__ = [
    "sort", "argsort", "partition", "argpartition", "lexsort", "searchsorted", "digitize", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "isin", "union1d", "intersect1d", "setdiff1d", "setxor1d",
]  # fmt: skip


def _sorted(x: np.ndarray, axis: int, descending: bool, stable: bool) -> np.ndarray:
    result = np.sort(x, axis, stable=stable)
    return np.flip(result, axis) if descending else result


def _order(x: np.ndarray, axis: int, descending: bool, stable: bool) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis, stable=stable)
    # Sort the reversed array, so that equal elements stay in order once the result is reversed.
    n = x.shape[axis]
    return n - 1 - np.flip(np.argsort(np.flip(x, axis), axis, stable=stable), axis)


recipes.replace(_sorted, "sort")
recipes.replace(_order, "argsort")


def _sorting(name: str, function: Any, x: Array, axis: int, descending: bool, stable: bool, dtype: Any) -> Array:
    """A call of `_sorted` or `_order`; a GPU does it along rows that lie in memory."""
    from .manipulation import moveaxis

    if not routines.serves(x):
        return call(name, function, (x,), x.shape, dtype, axis, descending, stable)
    rows = routines.contiguous(moveaxis(x, axis, -1))
    result = call(name, function, (rows,), rows.shape, dtype, x.ndim - 1, descending, stable)
    return moveaxis(result, -1, axis)


def _flat(a: Any, axis: int | None) -> tuple[Array, int]:
    from .manipulation import ravel

    x = as_array(a)
    if axis is None:
        return ravel(x), 0
    return x, axis_index(axis, x.ndim)


def sort(
    a: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements in order along an axis (of the flattened array if it is None); NaNs last.

    Parameters
    ----------
    a : array_like
    axis : int, optional
    stable : bool, optional
        Keep equal elements in order.
    descending : bool, optional
        Largest first.

    Returns
    -------
    Array
    """
    x, k = _flat(a, axis)
    return _sorting("sort", _sorted, x, k, descending, stable is not False, x.dtype)


def argsort(
    a: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """Positions that put the elements in order along an axis; see `sort`."""
    x, k = _flat(a, axis)
    return _sorting("argsort", _order, x, k, descending, stable is not False, int64)


def _sort_method(self: Array, axis: int = -1, kind: Any = None, order: Any = None) -> None:
    """Sort in place."""
    self._fill(sort(self, axis)._read())


Array.sort = _sort_method  # type: ignore[attr-defined]
method(argsort)


def partition(a: Any, kth: Any, axis: int | None = -1) -> Array:
    """The elements with the `kth` at the place it has in order, smaller ones before it."""
    x, k = _flat(a, axis)
    if routines.serves(x):
        return sort(x, k)
    return call("partition", np.partition, (x,), x.shape, x.dtype, kth, k)


def argpartition(a: Any, kth: Any, axis: int | None = -1) -> Array:
    """Positions that `partition` puts the elements in."""
    x, k = _flat(a, axis)
    if routines.serves(x):
        return argsort(x, k)
    return call("argpartition", np.argpartition, (x,), x.shape, int64, kth, k)


def lexsort(keys: Any, axis: int = -1) -> Array:
    """Positions that sort by several keys, the last one first."""
    from .manipulation import stack
    from .selection import take_along_axis

    x = keys if isinstance(keys, Array) else stack(list(keys))
    k = axis_index(axis, x.ndim - 1)
    if routines.serves(x) and len(x):
        order = argsort(x[0], k)
        for i in range(1, len(x)):
            order = take_along_axis(order, argsort(take_along_axis(x[i], order, k), k), k)
        return order
    return call("lexsort", np.lexsort, (x,), x.shape[1:], int64, k)


def _search(a: np.ndarray, v: np.ndarray, side: Any) -> np.ndarray:
    return np.asarray(np.searchsorted(a, v, side))


recipes.replace(_search, "searchsorted")


def searchsorted(a: Any, v: Any, /, side: str = "left", sorter: Any = None) -> Array:
    """Where to insert elements in a sorted vector so that it stays sorted.

    Parameters
    ----------
    a : array_like
        The sorted vector, or any if `sorter` sorts it.
    v : array_like
        Elements to insert.
    side : {"left", "right"}, optional
        Before or after equal elements.
    sorter : array_like of int, optional

    Returns
    -------
    Array
        Of dtype int64.
    """
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    x, y = as_array(a), as_array(v)
    if x.ndim != 1:
        raise ValueError("object too deep for desired array")
    if sorter is not None:
        x = x[as_array(sorter)]
    to = result_type(x.dtype, v if type(v) in (int, float, complex) else y.dtype)
    x, y = cast_to(x, to), cast_to(y, to)
    operands = [routines.contiguous(o) for o in routines.together(x, y)] or (x, y)
    return call("searchsorted", _search, operands, y.shape, int64, side)


method(searchsorted)


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """Number of the bin that each element falls in; looks at `bins` at once."""
    edges = as_array(bins)._host()
    side = "left" if right else "right"
    if edges.size > 1 and edges[0] > edges[-1]:
        return len(edges) - searchsorted(edges[::-1], x, "right" if right else "left")
    return searchsorted(edges, x, side)


# -- sets -------------------------------------------------------------------------------------------------------------
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """The different elements in order; computed at once."""
    x = as_array(ar)
    if axis is None and _on_gpu(x):
        values, *others = _unique("unique", x, return_index, return_inverse, return_counts, equal_nan)
        found = [other for other in others if other is not None]
        return (values, *found) if found else values
    run = lambda x: np.unique(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    return at_once("unique", run, (x,))


def _on_gpu(x: Array) -> bool:
    return routines.serves(x) and x.size > 0


def _unique(name: str, x: Array, index: bool, inverse: bool, counts: bool, equal_nan: bool) -> tuple[Any, ...]:
    """What `unique` gives of an array on a GPU, None for what is not asked for."""
    from .manipulation import concatenate, ravel, reshape

    flat = ravel(x)
    order = None
    if index or inverse:
        flat, order = routines.sorted_with_order(name, flat)
    else:
        flat = sort(flat)
    values, starts = routines.distinct(name, flat, equal_nan)
    first = places = many = None
    if order is not None and index:
        first = order[starts]
    if order is not None and inverse:
        number = searchsorted(starts, arange(x.size, device=x.device), "right") - 1
        # Where each element went: half as many digits to sort by, if 32 bits can say where it came from.
        went = argsort(order.astype(int32) if x.size < 1 << 31 else order)
        places = reshape(number[went], x.shape)
    if counts:
        many = concatenate((starts[1:], full(1, x.size, int64, device=x.device))) - starts
    return values, first, places, many


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements, where each first is, which one each element is, and how many there are."""
    a = as_array(x)
    if _on_gpu(a):
        return UniqueAll(*_unique("unique_all", a, True, True, True, False))
    return UniqueAll(*at_once("unique_all", lambda v: tuple(np.unique_all(v)), (a,)))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements and how many there are of each."""
    a = as_array(x)
    if _on_gpu(a):
        values, _, _, counts = _unique("unique_counts", a, False, False, True, False)
        return UniqueCounts(values, counts)
    return UniqueCounts(*at_once("unique_counts", lambda v: tuple(np.unique_counts(v)), (a,)))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements and which one each element is."""
    a = as_array(x)
    if _on_gpu(a):
        values, _, inverse, _ = _unique("unique_inverse", a, False, True, False, False)
        return UniqueInverse(values, inverse)
    return UniqueInverse(*at_once("unique_inverse", lambda v: tuple(np.unique_inverse(v)), (a,)))


def unique_values(x: Any, /) -> Array:
    """The different elements."""
    a = as_array(x)
    if _on_gpu(a):
        return _unique("unique_values", a, False, False, False, False)[0]
    # NumPy's leaves them as its table of hashes has them; a GPU's are in order.
    return at_once("unique_values", lambda v: np.unique(v, equal_nan=False), (a,))


def isin(element: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Array:
    """Whether each element is one of others."""
    x, y = as_array(element), as_array(test_elements)
    both = routines.together(x, y)
    if both and y.size:
        return _member(both[0], both[1], invert)
    return call("isin", np.isin, (x, y), x.shape, bool, False, invert)


def _member(x: Array, y: Array, invert: bool) -> Array:
    """`isin` on a GPU: a search among the sorted elements."""
    from .manipulation import ravel

    to = result_type(x.dtype, y.dtype)
    x, among = cast_to(x, to), sort(ravel(cast_to(y, to)))
    found: Any = among[searchsorted(among, x).clip(0, y.size - 1)]
    return found != x if invert else found == x


def _set_function(name: str, doc: str, on_gpu: Callable[[Array, Array], Array]) -> Any:
    numpy_function = getattr(np, name)

    def function(ar1: Any, ar2: Any) -> Array:
        x, y = as_array(ar1), as_array(ar2)
        if x.size and y.size and (both := routines.together(x, y)):
            return on_gpu(*both)
        return at_once(name, numpy_function, (x, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}; computed at once."
    return function


def _joined(x: Array, y: Array) -> Array:
    from .manipulation import concatenate, ravel

    return concatenate((ravel(x), ravel(y)))


def _common(x: Array, y: Array) -> Array:
    only = unique(cast_to(x, result_type(x.dtype, y.dtype)))
    return only[_member(only, y, False)]


def _without(x: Array, y: Array) -> Array:
    only = unique(x)
    return only[_member(only, y, True)]


union1d = _set_function("union1d", "The elements of either array, in order", lambda x, y: unique(_joined(x, y)))
intersect1d = _set_function("intersect1d", "The elements of both arrays, in order", _common)
setdiff1d = _set_function("setdiff1d", "The elements of the first array that are not in the second, in order", _without)
setxor1d = _set_function(
    "setxor1d",
    "The elements of exactly one array, in order",
    lambda x, y: sort(_joined(_without(x, y), _without(y, x))),
)
