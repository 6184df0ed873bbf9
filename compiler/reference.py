"""The op table's interpreter: expression graphs in NumPy, one node at a time.

It says what compiled code must give, and computes graphs of tiny arrays, for which compiling does not pay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from . import dtypes, ops
from . import expr as E
from .expr import Expr, Shape

#: (buffer, offset, shape, strides, dtype) -> the window's elements; offset and strides in elements.
Read = Callable[[Any, int, Shape, Shape, np.dtype], np.ndarray]

_CAST = ops.TABLE["cast"]


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
    found = values(schedule(roots), read)
    return [np.asarray(found[root]) for root in roots]


def schedule(roots: Sequence[Expr]) -> list[Expr]:
    """Every node below `roots`, once, inputs first."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if i not in seen)
    return order


def values(order: Iterable[Expr], read: Read) -> dict[Expr, Any]:
    """The values of nodes and of what they need, which is best computed before them; SCALARs are left out."""
    found: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for node in order:
            _compute(node, found, read)
    return found


def _compute(node: Expr, found: dict[Expr, Any], read: Read) -> Any:
    inputs = []
    for x in node.inputs:
        value = found.get(x)
        if value is None:
            value = x.attrs if x.op is E.SCALAR else _compute(x, found, read)
        inputs.append(value)
    op = node.op
    function = _ELEMENTWISE.get(op)
    if function is not None:
        value = function(*inputs)
        if type(value) is not np.ndarray:
            value = np.asarray(value)
    elif op is E.SCALAR:
        value = node.attrs
    elif op is E.BUFFER:
        buffer, offset, strides = node.attrs
        value = read(buffer, offset, node.shape, strides, node.dtype)
    elif op.kind == "structural":
        value = _STRUCTURAL[op](node, [np.asarray(x) for x in inputs])
    elif op is _CAST:
        value = dtypes.convert(np.asarray(inputs[0]), node.dtype)
    else:
        value = _reduced(node, inputs[0])
    dtype = value.dtype
    if value.shape != node.shape or (dtype is not node.dtype and dtype != node.dtype):
        raise AssertionError(f"{node} evaluated to {dtype}{list(value.shape)}")
    found[node] = value
    return value


#: What computes each elementwise op.
_ELEMENTWISE: dict[ops.Op, Any] = {
    op: op.values or op.numpy for op in ops.TABLE.values() if op.kind == "elementwise" and op is not _CAST
}


def window(array: np.ndarray, offset: int, strides: Shape, shape: Shape) -> np.ndarray:
    """A strided window of an array's elements in row-major order."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    steps = tuple([s * array.itemsize for s in strides])
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.ndarray(shape, array.dtype, flat, offset * array.itemsize, steps)


def _reduced(node: Expr, x: np.ndarray) -> np.ndarray:
    """A reduction or scan."""
    op = node.op
    assert op.numpy is not None and op.identity is not None
    if not x.size:
        return np.full(node.shape, op.identity(dtypes.name(node.dtype)), node.dtype)
    axis = node.attrs[0] if op.name in ("argmax", "argmin") else node.attrs
    return np.asarray(op.numpy(x, axis))


def _update(node: Expr, inputs: list[np.ndarray]) -> np.ndarray:
    result = inputs[0].copy(order="C")
    offset, strides = node.attrs
    window(result, offset, strides, inputs[1].shape)[...] = inputs[1]
    return result


def _gather(node: Expr, inputs: list[np.ndarray]) -> np.ndarray:
    x, *index = inputs
    _check(index, x.shape)
    return np.asarray(x[tuple(index)])


#: Scatters that join what is written to what is there.
_COMBINED = {"add": np.add, "maximum": np.maximum}


def _scatter(node: Expr, inputs: list[np.ndarray]) -> np.ndarray:
    base, value, *index = inputs
    _check(index, base.shape)
    result = base.copy(order="C")
    if node.attrs in _COMBINED:
        _COMBINED[node.attrs].at(result, tuple(index), value)
    else:
        result[tuple(index)] = value
    return result


def _check(index: list[np.ndarray], shape: Shape) -> None:
    for x, n in zip(index, shape):
        if x.size and not -n <= x.min() <= x.max() < n:
            raise IndexError(f"index out of bounds for an axis of size {n}")


def _dot(node: Expr, inputs: list[np.ndarray]) -> np.ndarray:
    wide = dtypes.NUMPY["f32"] if dtypes.name(node.dtype) in dtypes.NARROW else node.dtype
    a, b = (x.astype(wide, copy=False) for x in inputs)
    result = np.matmul(a, b)
    if result.dtype.kind == "c" and not np.isfinite(result).all():
        # BLAS multiplies sums by one, as a complex number, which makes infinities NaNs.
        (p, q), (r, s) = ((np.real(x), np.imag(x)) for x in (a, b))
        result.real, result.imag = np.matmul(p, r) - np.matmul(q, s), np.matmul(p, s) + np.matmul(q, r)
    return result.astype(node.dtype, copy=False)


def _host(node: Expr, inputs: list[np.ndarray]) -> np.ndarray:
    _, function, static = node.attrs
    return np.asarray(function(*inputs, *static), node.dtype)


_STRUCTURAL: dict[ops.Op, Callable[[Expr, list[np.ndarray]], np.ndarray]] = {
    E.IOTA: lambda node, inputs: np.arange(node.shape[0], dtype=node.dtype),
    E.VIEW: lambda node, inputs: window(inputs[0], node.attrs[0], node.attrs[1], node.shape),
    E.COPY: lambda node, inputs: inputs[0].copy(order="C"),
    E.UPDATE: _update,
    E.GATHER: _gather,
    E.SCATTER: _scatter,
    E.DOT: _dot,
    E.HOST: _host,
}
