"""Subscripts: basic keys make views, integer arrays gather and scatter, masks select."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import array, export
from .compiler.expr import (
    BUFFER,
    GATHER,
    SCATTER,
    VIEW,
    Expr,
    Shape,
    apart,
    broadcast,
    contiguous_strides,
    iota,
    node,
    view,
)
from .compiler.ops import TABLE
from .dtypes import bool_, int32, int64
from .operands import (
    SCALARS,
    as_expr,
    assigned,
    broadcast_shapes,
    cast,
    constant,
    from_numpy,
    to_numpy,
)
from .runtime.device import CPU, CudaDevice
from .storage import writing

_WHERE = TABLE["where"]
_FULL = slice(None)
#: On a GPU, up to so many values, and ones for less than one of so many places, are stored in order.
FEW, SPARSE = 1 << 14, 64
#: From so many values for places of so many bytes on, more than caches hold, near ones are stored together, unless each
#: is of so many bytes.
MANY, NEAR, LINE = 1 << 22, 1 << 25, 128
#: Computed indices of at most so many bytes are checked at the call, others when they are used.
SMALL = 4096


class Window(NamedTuple):
    """A strided window of a storage's elements."""

    offset: int
    strides: Shape
    shape: Shape


# -- basic keys -------------------------------------------------------------------------------------------------------
def _plain(key: tuple[Any, ...]) -> list[Any] | None:
    """The key with its integers as Python's, or None if it has an index array or a mask."""
    result: list[Any] = []
    for k in key:
        t = type(k)
        if t is int or t is slice or k is None or k is Ellipsis:
            result.append(k)
        elif t is array.Array:
            if k.shape or k.dtype.kind not in "iu":
                return None
            result.append(int(k))
        elif (
            t is bool
            or t is np.bool_
            or isinstance(k, list | tuple)
            or (t is np.ndarray and k.ndim)
            or (t is np.ndarray and k.dtype.kind == "b")
        ):
            return None
        else:
            try:
                result.append(k.__index__())
            except (AttributeError, TypeError):
                if t is float or isinstance(k, str | complex | np.inexact) or not hasattr(k, "__array__"):
                    raise IndexError(
                        "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean"
                        " arrays are valid indices"
                    ) from None
                return None
    return result


def _window(key: Sequence[Any], shape: Shape, offset: int, strides: Shape) -> Window:
    """The window of a window that a basic key names."""
    ndim = len(shape)
    taken = 0
    fill = -1
    for k in key:
        if k is Ellipsis:
            if fill >= 0:
                raise IndexError("an index can only have a single ellipsis ('...')")
            fill = 0
        elif k is not None:
            taken += 1
    if taken > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {taken} were indexed")
    new_shape: list[int] = []
    new_strides: list[int] = []
    axis = 0
    for k in key:
        t = type(k)
        if t is int:
            n = shape[axis]
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for axis {axis} with size {n}")
            offset += (k + n if k < 0 else k) * strides[axis]
            axis += 1
        elif t is slice:
            start, stop, step = k.indices(shape[axis])
            extent = len(range(start, stop, step))
            if extent:
                offset += start * strides[axis]
            new_shape.append(extent)
            new_strides.append(strides[axis] * step)
            axis += 1
        elif k is None:
            new_shape.append(1)
            new_strides.append(0)
        else:
            stop = axis + ndim - taken
            new_shape.extend(shape[axis:stop])
            new_strides.extend(strides[axis:stop])
            axis = stop
    new_shape.extend(shape[axis:])
    new_strides.extend(strides[axis:])
    return Window(0 if 0 in new_shape else offset, tuple(new_strides), tuple(new_shape))


# -- index arrays -----------------------------------------------------------------------------------------------------
class Advanced(NamedTuple):
    """A key with index arrays, taken apart.

    `window` has the indexed axes first, `count` of them, then the others; the result's indexed axes stand at `place`
    among the others.
    """

    window: Window
    indices: tuple[Expr, ...]
    shape: Shape
    place: int


def _is_mask(k: Any) -> bool:
    return k.dtype == bool_


def _index_array(k: Any) -> array.Array | np.ndarray:
    """An index or mask: an Array, or host data as a NumPy array."""
    if isinstance(k, array.Array):
        result: Any = k
    else:
        result = to_numpy(k)
        if not result.size and result.dtype == np.float64 and not isinstance(k, np.ndarray):
            result = result.astype(np.int64)
    if result.dtype.kind not in "iub":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return result


def _positions(mask: Any) -> list[Expr]:
    """Positions where a mask holds, an index array an axis."""
    from .selection import nonzero

    if isinstance(mask, array.Array):
        return [found._read() for found in nonzero(mask)]
    return [from_numpy(found) for found in np.nonzero(mask)]


def _check(index: np.ndarray, axis: int, extent: int) -> None:
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -extent or high >= extent:
            bad = low if low < -extent else high
            raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {extent}")


def _advanced(a: array.Array, key: tuple[Any, ...]) -> Advanced:
    # Each item of the key with the number of axes it takes.
    items: list[tuple[Any, int]] = []
    for k in key:
        t = type(k)
        if k is None or k is Ellipsis:
            items.append((k, 0))
        elif t is int or t is slice:
            items.append((k, 1))
        elif t is not array.Array and t is not bool and not isinstance(k, list | tuple | np.ndarray | np.bool_):
            items.append((k.__index__(), 1) if hasattr(k, "__index__") else (_index_array(k), 1))
        else:
            x: Any = _index_array(k)
            if isinstance(x, array.Array) and (place := x._device()) is not None and place is not a.device:
                raise ValueError(apart("indexing", a.device, place))
            items.append((x, x.ndim if _is_mask(x) else 1))
    shape = a.shape
    taken = sum(n for _, n in items)
    if taken > len(shape):
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {taken} were indexed")
    if sum(k is Ellipsis for k, _ in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not any(k is Ellipsis for k, _ in items):
        items.append((Ellipsis, 0))
    # Basic part: index arrays keep their axes for now.
    basic: list[Any] = []
    arrays: list[tuple[int, Expr]] = []  # (axis of the basic window, index)
    known: list[tuple[np.ndarray, int]] = []  # (index, axis of a), to be checked
    fancy: list[bool] = []  # whether an item takes part in the placement
    axis = 0  # of a
    out = 0  # of the basic window
    others_before = -1
    others = 0
    for k, n in items:
        if k is Ellipsis:
            fill = len(shape) - taken
            basic.extend([_FULL] * fill)
            axis, out, others = axis + fill, out + fill, others + fill
            fancy.append(False)
            continue
        if k is None or type(k) is slice:
            basic.append(k)
            axis, out, others = axis + n, out + 1, others + 1
            fancy.append(False)
            continue
        fancy.append(True)
        if others_before < 0:
            others_before = others
        if type(k) is int:
            basic.append(k)
            axis += 1
            continue
        if _is_mask(k):
            for j, (have, want) in enumerate(zip(k.shape, shape[axis : axis + n])):
                # As in NumPy, a mask of extent 0 selects nothing of an axis of any extent.
                if have not in (0, want):
                    raise IndexError(
                        f"boolean index did not match indexed array along axis {axis + j}; size of axis is {want} but"
                        f" size of corresponding boolean axis is {have}"
                    )
            if n == 0:
                mask = k._host() if isinstance(k, array.Array) else k
                # A new axis, of extent 1 or 0.
                basic.append(None)
                arrays.append((out, from_numpy(np.zeros(int(mask), np.int64))))
                out += 1
                continue
            for found in _positions(k):
                basic.append(_FULL)
                arrays.append((out, found))
                out += 1
            axis += n
            continue
        if isinstance(k, np.ndarray):
            known.append((k, axis))
            index = from_numpy(k.astype(np.int64))
        else:
            index = cast(k._read(), int64)
            if index.op is BUFFER and index.nbytes <= SMALL and index.attrs[0].device is CPU:
                known.append((export.host(index), axis))
        basic.append(_FULL)
        arrays.append((out, index))
        axis, out = axis + 1, out + 1
    window = _window(basic, shape, *a._window())
    try:
        common = broadcast_shapes(*(i.shape for _, i in arrays))
    except ValueError:
        spelled = " ".join(str(i.shape).replace(" ", "") for _, i in arrays)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {spelled}"
        ) from None
    if 0 not in common:
        # As in NumPy, indices that are broadcast away may be anything.
        for index, axis in known:
            _check(index, axis, shape[axis])
        if 0 in window.shape:
            # The result is empty: no kernel will look at the indices.
            for w, index in arrays:
                _check(export.host(index), w, window.shape[w])
        if any(window.shape[w] == 0 for w, _ in arrays):
            raise IndexError("index out of bounds for an axis of size 0")
    first, last = fancy.index(True), len(fancy) - 1 - fancy[::-1].index(True)
    place = others_before if all(fancy[first : last + 1]) else 0
    lead = [w for w, _ in arrays]
    order = lead + [w for w in range(len(window.shape)) if w not in lead]
    moved = Window(window.offset, tuple(window.strides[w] for w in order), tuple(window.shape[w] for w in order))
    return Advanced(moved, tuple(broadcast(i, common) for _, i in arrays), common, place)


def _move_axes(e: Expr, source: int, count: int, target: int) -> Expr:
    """`e` with `count` axes from `source` on moved to `target`, counted among the other axes."""
    if source == target or not count:
        return e
    axes = list(range(len(e.shape)))
    block = axes[source : source + count]
    rest = axes[:source] + axes[source + count :]
    order = rest[:target] + block + rest[target:]
    strides = contiguous_strides(e.shape)
    return view(e, 0, tuple(strides[k] for k in order), tuple(e.shape[k] for k in order))


def gather(x: Expr, indices: tuple[Expr, ...]) -> Expr:
    """x[i0, ..., ik-1] for int64 indices of one shape."""
    return node(GATHER, (x, *indices), None, indices[0].shape + x.shape[len(indices) :], x.dtype)


def getitem(a: array.Array, key: Any) -> array.Array:
    """a[key]."""
    if type(key) is not tuple:
        key = (key,)
    plain = _plain(key)
    if plain is not None:
        return a._view(*_window(plain, a.shape, *a._window()))
    mask = key[0]
    if len(key) == 1 and type(mask) is array.Array and _is_mask(mask) and mask.shape == a.shape:
        from . import routines

        if mask._device() is a._device() and routines.serves(mask) and a.ndim:
            return routines.selected("mask", mask, a)
    adv = _advanced(a, key)
    result = gather(a._region(*adv.window), adv.indices)
    return array.lazy(_move_axes(result, 0, len(adv.shape), adv.place))


def setitem(a: array.Array, key: Any, value: Any) -> None:
    """a[key] = value."""
    if type(key) is not tuple:
        key = (key,)
    plain = _plain(key)
    if plain is not None:
        window = _window(plain, a.shape, *a._window())
        aliased = type(value) is array.Array and a._storage is not None and value._storage is a._storage
        if aliased and value._window() == window[:2] and value.shape == window.shape:
            # The end of `a[key] += x`: the view has been written to already.
            return
        a._assign(*window, assigned(value, a.dtype, window.shape, a.device))
        return
    # What is written depends on what is there.
    with writing:
        _assign_advanced(a, key, value)


def _assign_advanced(a: array.Array, key: tuple[Any, ...], value: Any) -> None:
    """a[key] = value, where key has index arrays or masks."""
    if len(key) == 1 and _assign_masked(a, key[0], value):
        return
    adv = _advanced(a, key)
    rest = adv.window.shape[len(adv.indices) :]
    shape = (*rest[: adv.place], *adv.shape, *rest[adv.place :])
    try:
        e = assigned(value, a.dtype, shape, a.device)
    except ValueError as error:
        given = as_expr(value).shape
        raise ValueError(
            f"shape mismatch: value array of shape {given} could not be broadcast to indexing result of shape {shape}"
        ) from error
    e = _move_axes(e, adv.place, len(adv.shape), 0)
    if 0 in e.shape:
        return
    e, indices, order = _settled(e, adv, a)
    new = node(SCATTER, (a._region(*adv.window), e, *indices), order, adv.window.shape, a.dtype)
    a._assign(*adv.window, new)


def _settled(values: Expr, adv: Advanced, a: array.Array) -> tuple[Expr, tuple[Expr, ...], str]:
    """What to assign at which indices, and how: of equal indices the last one's values, if not in order."""
    count, indices = prod(adv.shape), adv.indices
    places = adv.window.shape[: len(indices)]
    rest = values.shape[len(adv.shape) :]
    strides = values.attrs[-1] if values.op in (BUFFER, VIEW) else contiguous_strides(values.shape)
    alike = not any(s for s, n in zip(strides, adv.shape, strict=False) if n > 1)
    if not isinstance(a.device, CudaDevice):
        return values, indices, "same" if alike else "set"
    row = prod(rest)
    if not alike and (count * row < FEW or prod(places) > SPARSE * count * row):
        return values, indices, "set"
    dtype = int32 if count < 1 << 31 else int64
    flat = view(values, 0, (row, *contiguous_strides(rest)), (count, *rest))
    if count >= MANY and row * a.itemsize < LINE and prod(adv.window.shape) * a.itemsize > NEAR:
        indices, positions = _gathered_by_place(indices, places, count)
        values = flat
    else:
        positions = view(iota(count), 0, contiguous_strides(adv.shape), adv.shape)
    if alike:
        return values, indices, "same"
    # The last of equal indices is the largest of their positions, which needs no order; all then store its values.
    last = node(SCATTER, (constant(0, dtype, places), cast(positions, dtype), *indices), "maximum", places, dtype)
    return gather(flat, (cast(gather(last, indices), int64),)), indices, "same"


def _gathered_by_place(indices: tuple[Expr, ...], places: Shape, count: int) -> tuple[tuple[Expr, ...], Expr]:
    """Indices such that those which follow one another are near in memory, and which ones they are."""
    from .elementwise import cast_to, where
    from .searching import argsort

    flat = [array.Array(view(i, 0, (1,), (count,))) for i in indices]
    place: Any = 0
    for i, n in zip(flat, places, strict=True):
        place = place * n + where(i < 0, i + n, i)
    digits = (prod(places) - 1).bit_length()
    order = argsort(cast_to(place >> max(0, digits - 8), np.dtype(np.uint8)))._read()
    return tuple([gather(i._read(), (order,)) for i in flat]), order


def _assign_masked(a: array.Array, mask: Any, value: Any) -> bool:
    """a[mask] = value as a selection, if each position's value does not depend on how many there are."""
    t = type(mask)
    if t is not array.Array and t is not np.ndarray and t is not list:
        return False
    m = _index_array(mask)
    shape = a.shape
    if not _is_mask(m) or m.ndim > len(shape) or m.shape != shape[: m.ndim] or not m.ndim:
        return False
    rest = shape[m.ndim :]
    if type(value) not in SCALARS:
        value = as_expr(value)
        if len(value.shape) == 1 and not rest and isinstance(a.device, CudaDevice):
            return _assign_in_turn(a, m, value)
        if len(value.shape) > len(rest):
            return False
        value = array.Array(value)
    new = assigned(value, a.dtype, rest, a.device)
    old = a._read()
    selected = as_expr(m)
    spread = view(selected, 0, contiguous_strides(selected.shape) + (0,) * len(rest), shape)
    a._assign(*a._window(), shape, node(_WHERE, (spread, broadcast(new, shape), old), None, shape, a.dtype))
    return True


def _assign_in_turn(a: array.Array, mask: Any, values: Expr) -> bool:
    """a[mask] = values for a mask of a's shape, by the number that each position has among those that it selects.

    So every position finds its value, all at once; a scatter would have to store in order.
    """
    from .reductions import cumsum

    selects = array.Array(view(as_expr(mask), 0, (1,), (a.size,)))
    count = int(selects.sum())
    if values.shape != (count,):
        return False
    if count:
        numbers = (cumsum(selects, dtype=int64) - 1).clip(0)
        picked = gather(assigned(array.Array(values), a.dtype, (count,), a.device), (numbers._read(),))
        new = view(picked, 0, contiguous_strides(a.shape), a.shape)
        a._assign(*a._window(), a.shape, node(_WHERE, (as_expr(mask), new, a._read()), None, a.shape, a.dtype))
    return True
