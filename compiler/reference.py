"""A NumPy interpreter of expression graphs, one node at a time: what compiled code is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import dtypes, ops
from .expr import Expr, Shape

#: (buffer, offset, shape, strides, dtype) -> the window's elements; offset and strides in elements.
Read = Callable[[Any, int, Shape, Shape, np.dtype], np.ndarray]


def evaluate(roots: Sequence[Expr], read: Read) -> list[np.ndarray]:
    """The values of `roots`.

    Parameters
    ----------
    roots : sequence of Expr
    read : callable
        Gives the elements of a window of a buffer.

    Returns
    -------
    list of numpy.ndarray
        One array a root, of the root's shape and dtype.  It may share memory with a buffer or another result.

    Raises
    ------
    IndexError
        If an index of a gather or scatter is out of bounds.
    """
    order = schedule(roots)
    uses: dict[int, int] = {}
    for node in order:
        for i in node.inputs:
            uses[id(i)] = uses.get(id(i), 0) + 1
    for root in roots:
        uses[id(root)] = uses.get(id(root), 0) + 1
    values: dict[int, np.ndarray] = {}
    for node in order:
        values[id(node)] = compute(node, [values[id(i)] for i in node.inputs], read)
        for i in node.inputs:
            uses[id(i)] -= 1
            if not uses[id(i)]:
                values.pop(id(i), None)
    return [values[id(root)] for root in roots]


def schedule(roots: Sequence[Expr]) -> list[Expr]:
    """Every node below `roots`, once, inputs first."""
    order: list[Expr] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if id(i) not in seen)
    return order


def window(array: np.ndarray, offset: int, strides: Shape, shape: Shape) -> np.ndarray:
    """A strided window of a C-contiguous array's elements."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    flat = array.reshape(-1)
    steps = tuple(s * array.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)


def compute(node: Expr, inputs: list[np.ndarray], read: Read) -> np.ndarray:
    """One node's value from its inputs' values."""
    value = _compute(node, inputs, read)
    if value.shape != node.shape or value.dtype != node.dtype:
        raise AssertionError(f"{node} evaluated to {value.dtype}{list(value.shape)}")
    return value


def _compute(node: Expr, inputs: list[np.ndarray], read: Read) -> np.ndarray:
    op = node.op
    match op.kind:
        case "elementwise":
            if op.name == "cast":
                return dtypes.cast_array(inputs[0], node.dtype)
            return ops.interpret(op.name, *inputs)
        case "reduction":
            assert op.numpy is not None
            axis = node.attrs[0] if op.name in ("argmax", "argmin") else node.attrs
            return np.asarray(op.numpy(inputs[0], axis))
        case "scan":
            assert op.numpy is not None
            return np.asarray(op.numpy(inputs[0], node.attrs))
    match op.name:
        case "buffer":
            buf, offset, strides = node.attrs
            return read(buf, offset, node.shape, strides, node.dtype)
        case "scalar":
            return np.asarray(node.attrs, node.dtype)
        case "iota":
            return np.arange(node.shape[0], dtype=node.dtype)
        case "view":
            return window(np.ascontiguousarray(inputs[0]), node.attrs[0], node.attrs[1], node.shape)
        case "copy":
            return inputs[0].copy(order="C")
        case "update":
            base, value = inputs
            result = base.copy(order="C")
            window(result, node.attrs[0], node.attrs[1], value.shape)[...] = value
            return result
        case "gather":
            return np.asarray(inputs[0][tuple(inputs[1:])])
        case "scatter":
            result = inputs[0].copy(order="C")
            index = tuple(inputs[2:])
            if node.attrs == "add":
                np.add.at(result, index, inputs[1])
            else:
                result[index] = inputs[1]
            return result
        case "dot":
            wide = np.dtype(np.float32) if node.dtype.itemsize == 2 and node.dtype.kind not in "iu" else node.dtype
            return np.matmul(*(i.astype(wide, copy=False) for i in inputs)).astype(node.dtype, copy=False)
        case "host":
            _, function, static = node.attrs
            return np.asarray(function(*inputs, *static))
    raise ValueError(f"{op.name} is no recorded operation")
