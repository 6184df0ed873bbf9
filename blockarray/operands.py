"""From what a caller passes to expressions: conversion, casts, broadcasting, and the general way to record an op."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from . import array, cuda, flush
from .compiler.expr import BUFFER, SCALAR, Expr, Shape, apart, broadcast, contiguous_strides, node, scalar, view
from .compiler.ops import TABLE, Op, OperandType, compare_beyond, resolve
from .dtypes import CANONICAL, bool_, canonical
from .runtime.device import CPU, CudaDevice
from .runtime.memory import held, wrap

CAST = TABLE["cast"]
#: Python's scalars, whose type only chooses a kind.
SCALARS = (int, float, bool, complex)
_NP_TYPES = (np.ndarray, np.generic)
_HOST_TYPES = (*_NP_TYPES, list, tuple)


#: Bytes from which elements of host data are copied to memory of the pool.
_SMALL = 8192


def is_operand(x: Any) -> bool:
    """Whether a binary operator takes `x`."""
    kind = type(x)
    return kind is array.Array or kind in SCALARS or (isinstance(x, _HOST_TYPES) and kind is not np.void)


def from_numpy(x: np.ndarray) -> Expr:
    """A leaf with a copy of a NumPy array's elements; host data belongs to no device."""
    dtype = canonical(x.dtype)
    if not x.ndim:
        return Expr(SCALAR, (), x.astype(dtype)[()], (), dtype, 0)
    small = x.size and x.nbytes <= _SMALL
    buf = held(x.astype(dtype, order="C")) if small else wrap(x.astype(dtype, copy=False), copy=True)
    window = (buf, 0, contiguous_strides(x.shape))
    return Expr(BUFFER, (), window, x.shape, dtype, flush.imported(x.nbytes))


def to_numpy(x: Any, dtype: Any = None) -> np.ndarray:
    """A NumPy array of host data: (nested) sequences may hold Arrays."""
    if isinstance(x, list | tuple):
        x = _plain(x)
    result = np.asarray(x, dtype)
    if result.dtype == object or (result.dtype not in CANONICAL and result.dtype.newbyteorder("=") not in CANONICAL):
        raise TypeError(f"blockarray does not support dtype {result.dtype}")
    return result


def _plain(x: Any) -> Any:
    """Nested sequences with their Arrays turned into NumPy arrays."""
    if isinstance(x, array.Array):
        return x._host()
    return [_plain(i) for i in x] if isinstance(x, list | tuple) else x


def holds_array(x: Any) -> bool:
    """Whether nested sequences hold an Array."""
    return any(isinstance(i, array.Array) or (isinstance(i, list | tuple) and holds_array(i)) for i in x)


def as_expr(x: Any) -> Expr:
    """The value of an array-like; Python scalars get NumPy's default types."""
    if isinstance(x, array.Array):
        return x._read()
    if not isinstance(x, (*_HOST_TYPES, *SCALARS)):
        from .transfer import adopt, exporter

        if (kind := exporter(x)) is not None:
            return adopt(x, kind, None)._read()
        if hasattr(x, "__array__") or hasattr(x, "__array_interface__") or hasattr(x, "__buffer__"):
            x = np.asarray(x)
        elif hasattr(x, "__dlpack__"):
            x = np.from_dlpack(x)
        elif isinstance(x, bytes | bytearray | memoryview):
            x = np.asarray(memoryview(x))
        elif isinstance(x, range):
            x = np.asarray(x)
        else:
            raise TypeError(f"cannot make an array of {type(x).__name__}")
    if isinstance(x, list | tuple) and any(isinstance(i, array.Array) for i in x):
        from .manipulation import stack

        if all(isinstance(i, array.Array) for i in x):
            return stack(x)._read()
    return from_numpy(to_numpy(x))


def as_array(x: Any) -> array.Array:
    """`x` itself if it is an Array, else an Array of its elements."""
    return x if isinstance(x, array.Array) else array.Array(as_expr(x))


def host_value(x: Any) -> Any:
    """A 0-d array of the CPU as a NumPy scalar, which goes with arrays of any device; anything else as it is."""
    return x._host()[()] if type(x) is array.Array and not x.shape and x.device is CPU else x


def cast(e: Expr, dtype: np.dtype) -> Expr:
    """`e` converted to a dtype."""
    if e.dtype is dtype or e.dtype == dtype:
        return e
    if e.op is SCALAR:
        from .compiler.dtypes import cast_array

        return scalar(cast_array(np.asarray(e.attrs, e.dtype), dtype)[()], dtype, e.device)
    return node(CAST, (e,), None, e.shape, dtype)


@cache
def blank(dtype: np.dtype, device: Any) -> Expr:
    """The zero of arrays whose elements may be anything, by which they are known."""
    return scalar(0, dtype, device)


def constant(value: Any, dtype: np.dtype, shape: Shape = (), device: Any = None) -> Expr:
    """A host value at every position."""
    return broadcast(scalar(value, dtype, device), shape)


def placed(e: Expr, device: Any) -> Expr:
    """`e` as a value that belongs to a device, if it belongs to none."""
    if e.device is not None:
        return e
    if e.op is BUFFER and isinstance(device, CudaDevice):
        buf, offset, strides = e.attrs
        return Expr(BUFFER, (), (cuda.upload(buf, device), offset, strides), e.shape, e.dtype, e.depth, device)
    return Expr(e.op, (*e.inputs,), e.attrs, e.shape, e.dtype, e.depth, device)


@lru_cache(4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that arrays of these shapes are broadcast to.

    Raises
    ------
    ValueError
        If they cannot be broadcast together.
    """
    first = shapes[0] if shapes else ()
    if all(s == first for s in shapes):
        return first
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        for k in range(-len(shape), 0):
            n = shape[k]
            if n != 1:
                if result[k] not in (1, n):
                    spelled = " ".join(str(tuple(s)).replace(" ", "") for s in shapes)
                    raise ValueError(f"operands could not be broadcast together with shapes {spelled}")
                result[k] = n
    return tuple(result)


def weak_value(value: Any, dtype: np.dtype) -> Any:
    """A Python scalar as one of a dtype; OverflowError if an integer does not fit."""
    with np.errstate(all="ignore"):
        return dtype.type(value)


@cache
def _rule(op: Op, *types: OperandType) -> tuple[tuple[np.dtype, ...], np.dtype]:
    inputs, out = resolve(op, *types)
    return tuple(CANONICAL[t] for t in inputs), CANONICAL[out]


def elementwise(op: Op, *operands: Any, dtype: np.dtype | None = None, casting: Any = "same_kind") -> array.Array:
    """Record an elementwise op on array-likes, with NumPy's promotion and broadcasting.

    Parameters
    ----------
    op : Op
    *operands
    dtype : numpy.dtype, optional
        Dtype to compute in, and of the result.
    casting : str
        Rule by which the operands may be cast to `dtype`.
    """
    types: list[OperandType] = []
    values: list[Any] = []
    for x in operands:
        if type(x) in SCALARS:
            types.append(type(x))
            values.append(x)
        else:
            e = as_expr(x)
            types.append(e.dtype)
            values.append(e)
    if dtype is not None:
        types = [dtype if isinstance(t, np.dtype) else t for t in types]
        for v in values:
            if isinstance(v, Expr) and not np.can_cast(v.dtype, dtype, casting):
                raise TypeError(
                    f"Cannot cast ufunc '{op.name}' input from {v.dtype!r} to {dtype!r} with casting rule {casting!r}"
                )
    if op.name in _MIRROR:
        beyond = _beyond(op, types, values)
        if beyond is not None:
            return beyond
    inputs, out = _rule(op, *types)
    if dtype is not None and out != dtype and out != bool_:
        inputs, out = _rule(op, *(dtype for _ in types))
    shape = broadcast_shapes(*[v.shape for v in values if isinstance(v, Expr)])
    cooked: list[Expr] = []
    depth = 0
    device = None
    for v, t in zip(values, inputs):
        e = cast(v, t) if isinstance(v, Expr) else scalar(weak_value(v, t), t)
        if e.shape != shape and e.op is not SCALAR:
            e = broadcast(e, shape)
        if e.depth > depth:
            depth = e.depth
        if e.device is not device and e.device is not None:
            if device is not None:
                plain = [host_value(x) for x in operands]
                if all(map(operator.is_, plain, operands)):
                    raise ValueError(apart(op.name, device, e.device))
                return elementwise(op, *plain, dtype=dtype, casting=casting)
            device = e.device
        cooked.append(e)
    return array.lazy(Expr(op, tuple(cooked), None, shape, out, depth + 1, device))


def _beyond(op: Op, types: Sequence[OperandType], values: Sequence[Any]) -> array.Array | None:
    """A comparison of an integer array with a Python int that its type cannot hold."""
    for name, k in ((op.name, 0), (_MIRROR[op.name], 1)):
        dtype, value = types[k], values[1 - k]
        if isinstance(dtype, np.dtype) and type(value) is int:
            answer = compare_beyond(name, dtype, value)
            if answer is not None:
                return array.Array(constant(answer, bool_, values[k].shape, values[k].device))
    return None


#: Comparisons, and what they are with their operands swapped.
_MIRROR = {
    "equal": "equal", "not_equal": "not_equal", "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal",
}  # fmt: skip


def assigned(value: Any, dtype: np.dtype, shape: Shape, device: Any = CPU) -> Expr:
    """`value` as NumPy's assignment to elements of a dtype and shape, on a device, converts it."""
    if device is not CPU:
        value = host_value(value)
    if type(value) in SCALARS or isinstance(value, str):
        e = scalar(np.asarray(value, dtype)[()], dtype)
    elif isinstance(value, list | tuple) and not holds_array(value):
        # Python's integers must fit, as in NumPy.
        e = from_numpy(np.asarray(value, dtype))
    else:
        e = cast(as_expr(value), dtype)
    if e.shape == shape:
        return e
    given = e.shape
    while len(e.shape) > len(shape) and e.shape[0] == 1:
        e = view(e, 0, contiguous_strides(e.shape)[1:], e.shape[1:])
    if len(e.shape) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(e.shape), reversed(shape))):
        raise ValueError(f"could not broadcast input array from shape {given} into shape {shape}")
    return broadcast(e, shape)


def axis_index(axis: Any, ndim: int) -> int:
    """An axis counted from 0.

    Raises
    ------
    numpy.exceptions.AxisError
        If it is out of bounds.
    """
    k = axis if type(axis) is int else _as_index(axis)
    if not -ndim <= k < ndim:
        raise np.exceptions.AxisError(k, ndim)
    return k % ndim


def _as_index(axis: Any) -> int:
    try:
        return axis.__index__()
    except AttributeError:
        raise TypeError(f"{type(axis).__name__!r} object cannot be interpreted as an integer") from None


def numbers(value: Any) -> tuple[Any, ...]:
    """The members of a sequence or array of numbers, or a number alone."""
    many = isinstance(value, list | tuple) or (hasattr(value, "__iter__") and getattr(value, "ndim", 1))
    return tuple(value) if many else (value,)


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """As `axis_tuple`; a 0-d array may be reduced over its axis 0 or -1, as in NumPy."""
    return () if not ndim and type(axis) is int and axis in (0, -1) else axis_tuple(axis, ndim)


def axis_tuple(axis: Any, ndim: int, repeated: str = "duplicate value in 'axis'") -> tuple[int, ...]:
    """Axes counted from 0; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int:
        return (axis_index(axis, ndim),)
    axes = tuple(axis_index(a, ndim) for a in numbers(axis))
    if len(set(axes)) != len(axes):
        raise ValueError(repeated)
    return axes


def shape_tuple(shape: Any) -> Shape:
    """A shape from an integer or a sequence of them."""
    result = tuple(_as_index(n) for n in numbers(shape))
    if any(n < 0 for n in result):
        raise ValueError("negative dimensions are not allowed")
    return result
