"""The expression graph: immutable array-valued nodes, recorded by the front end and consumed by the planner.

Elementwise operations, reductions and scans take their `op` from the table in `ops`.  The structural operations below
are the rest.  After construction casts and broadcasts are explicit: the inputs of an elementwise node have the node's
shape (a broadcast is a VIEW with stride 0) or are SCALARs, and the dtypes that its type rule asks for.

An Expr's value never changes.  Its representation changes once: when it has been computed, `realize` turns it into a
BUFFER and drops its inputs, so that every holder of the node sees the result and the graph behind it can be freed.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from . import dtypes
from .ops import Op

Shape = tuple[int, ...]
_new = object.__new__


def structural(name: str, arity: int, doc: str) -> Op:
    return Op(name=name, arity=arity, kind="structural", doc=doc)


#: attrs = (buffer, offset, strides): a strided window of device memory; offset and strides in elements.
BUFFER = structural("buffer", 0, "Elements of a buffer.")
#: attrs = a NumPy scalar of the node's dtype; shape ().  A run-time argument of the kernel, never part of its key.
SCALAR = structural("scalar", 0, "A host value.")
#: shape (n,), dtype int64: 0, 1, ... n-1.
IOTA = structural("iota", 0, "Positions along an axis.")
#: attrs = (offset, strides): the input, seen as C-contiguous elements, read at offset + sum(index * stride).  Every
#: movement (slice, transpose, reshape, broadcast, flip, diagonal) is one.  Always in bounds.
VIEW = structural("view", 1, "A strided window of the input's elements.")
#: Memory of its own, however the input lies in memory.
COPY = structural("copy", 1, "The input's elements in row-major order.")
#: inputs (base, value), attrs = (offset, strides) of the window of base that value (shape of the window) replaces.
#: The window's strides are non-zero where its extent is not 1 and no two positions coincide.
UPDATE = structural("update", 2, "base with a window replaced by value.")
#: inputs (x, i0, ..., ik-1): the indices are int64, of one shape S; result shape S + x.shape[k:].  Negative indices
#: count from the end; one that is out of bounds is an IndexError.
GATHER = structural("gather", -1, "x[i0, ..., ik-1].")
#: inputs (base, value, i0, ..., ik-1): value has shape S + base.shape[k:].  attrs = "set": the last of equal indices
#: wins; "same": equal indices have equal values; "add"; "maximum" (of integers).
SCATTER = structural("scatter", -1, "base with base[i0, ..., ik-1] = value.")
#: inputs a (..., M, K), b (..., K, N) with equal leading axes and equal dtypes; the result (..., M, N) has their dtype,
#: or is float32 where parts of a product of 16-bit floats are added up.  attrs says how float32 is multiplied: "ieee":
#: in float32; None: as accurately, in any units; "high": with mantissas of 10 bits, where that is faster.
DOT = structural("dot", 2, "Matrix product.")
#: attrs = (name, function, static arguments): function(*numpy_inputs, *static) on the host, named in explain().
HOST = structural("host", -1, "A library call on the host.")


class Expr:
    """One node.

    `depth` is 1 + the deepest recorded input's (0 for leaves) and bounds the pending graph.  `device` is where the
    value belongs, that of the inputs; None for host values and what is made of them alone, which go with any device.
    No two nodes share a tuple of inputs: the planner counts references to see how many nodes read a node.
    """

    __slots__ = ("op", "inputs", "attrs", "shape", "dtype", "depth", "device", "__weakref__")

    op: Op
    inputs: tuple[Expr, ...]
    attrs: Any
    shape: Shape
    dtype: np.dtype
    depth: int
    device: Any

    def __init__(
        self,
        op: Op,
        inputs: tuple[Expr, ...],
        attrs: Any,
        shape: Shape,
        dtype: np.dtype,
        depth: int,
        device: Any = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.depth = depth
        self.device = device

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def realize(self, buffer: Any, offset: int = 0, strides: Shape | None = None) -> None:
        """Become a window of `buffer` that holds this node's value."""
        # attrs and op last: a reader on another thread sees either the old node or the new one through `op`.
        self.attrs = (buffer, offset, contiguous_strides(self.shape) if strides is None else strides)
        self.device = buffer.device
        self.op = BUFFER
        self.inputs = ()
        self.depth = 0

    def __repr__(self) -> str:
        return f"<Expr {self.op.name} {self.dtype}{list(self.shape)}>"


@lru_cache(4096)
def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides = [0] * len(shape)
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def buffer(
    buf: Any, shape: Shape, dtype: np.dtype, offset: int = 0, strides: Shape | None = None, device: Any = None
) -> Expr:
    window = (buf, offset, contiguous_strides(shape) if strides is None else strides)
    return Expr(BUFFER, (), window, shape, dtype, 0, device)


def scalar(value: Any, dtype: np.dtype, device: Any = None) -> Expr:
    return Expr(SCALAR, (), dtype.type(value), (), dtype, 0, device)


def iota(n: int, device: Any = None) -> Expr:
    return Expr(IOTA, (), None, (n,), dtypes.INT64, 0, device)


def node(op: Op, inputs: tuple[Expr, ...], attrs: Any, shape: Shape, dtype: np.dtype) -> Expr:
    depth, device = 0, None
    for x in inputs:
        if x.depth > depth:
            depth = x.depth
        if x.device is not device and x.device is not None:
            if device is not None:
                raise ValueError(apart(op.name, device, x.device))
            device = x.device
    result = _new(Expr)
    result.op = op
    result.inputs = inputs
    result.attrs = attrs
    result.shape = shape
    result.dtype = dtype
    result.depth = depth + 1
    result.device = device
    return result


def apart(name: str, a: Any, b: Any) -> str:
    """What to say about operands on two devices."""
    return f"{name}: operands are on different devices, {a} and {b}; to_device() moves an array"


def view(base: Expr, offset: int, strides: Shape, shape: Shape) -> Expr:
    """`base` through a window; folds into a buffer's own window, or a view's, where strides can say so."""
    if base.shape == shape and offset == 0 and strides == contiguous_strides(shape):
        return base
    if base.op is BUFFER:
        buf, base_offset, base_strides = base.attrs
        if base_strides == contiguous_strides(base.shape):
            composed = base_offset + offset, strides
        else:
            composed = compose(base.shape, base_offset, base_strides, offset, strides, shape)
        if composed is not None:
            return Expr(BUFFER, (), (buf, composed[0], composed[1]), shape, base.dtype, base.depth, base.device)
    elif base.op is VIEW:
        composed = compose(base.shape, base.attrs[0], base.attrs[1], offset, strides, shape)
        if composed is not None:
            return view(base.inputs[0], composed[0], composed[1], shape)
    return Expr(VIEW, (base,), (offset, strides), shape, base.dtype, base.depth, base.device)


def broadcast(base: Expr, shape: Shape) -> Expr:
    """`base` seen at a shape that it broadcasts to."""
    if base.shape == shape:
        return base
    spread = lambda own: (0,) * (len(shape) - len(own)) + tuple([0 if n == 1 else s for n, s in zip(base.shape, own)])
    if base.op is BUFFER:
        buf, offset, own = base.attrs
        return Expr(BUFFER, (), (buf, offset, spread(own)), shape, base.dtype, base.depth, base.device)
    if base.op is VIEW:
        offset, own = base.attrs
        return Expr(VIEW, (base.inputs[0],), (offset, spread(own)), shape, base.dtype, base.depth, base.device)
    window = (0, spread(contiguous_strides(base.shape)))
    return Expr(VIEW, (base,), window, shape, base.dtype, base.depth, base.device)


def compose(
    inner_shape: Shape, inner_offset: int, inner_strides: Shape, offset: int, strides: Shape, shape: Shape
) -> tuple[int, Shape] | None:
    """A window of a window as one window (offset, strides) of the outermost elements; None if strides cannot say it.

    The inner window has `inner_shape`; the outer one counts the inner one's elements in row-major order.
    """
    if 0 in shape:
        return 0, (0,) * len(shape)
    # Merge the inner axes into runs that step uniformly: (extent, row-major step of the last axis, memory stride).
    runs: list[tuple[int, int, int]] = []
    step = 1
    for n, s in zip(reversed(inner_shape), reversed(inner_strides), strict=True):
        if n == 1:
            continue
        if runs and s == runs[-1][2] * runs[-1][0]:
            extent, low, stride = runs[-1]
            runs[-1] = (extent * n, low, stride)
        else:
            runs.append((n, step, s))
        step *= n
    runs.reverse()
    # Each outer axis must move inside one run, and the sum over the outer axes must never carry from a run to the next.
    out_strides = [0] * len(shape)
    taken = [False] * len(shape)
    rest = offset
    total = inner_offset
    for extent, low, stride in runs:
        lo = hi = 0
        for axis, (n, s) in enumerate(zip(shape, strides, strict=True)):
            if n == 1 or s == 0 or taken[axis] or abs(s) < low:
                continue
            if s % low:
                return None
            taken[axis] = True
            out_strides[axis] = s // low * stride
            reach = s // low * (n - 1)
            lo, hi = lo + min(reach, 0), hi + max(reach, 0)
        # The offset's digit here: what is left for lower runs must stay within [0, low).
        left = [s * (n - 1) for n, s, gone in zip(shape, strides, taken, strict=True) if not gone]
        digit = (rest + sum(min(reach, 0) for reach in left)) // low
        rest -= digit * low
        if digit + lo < 0 or digit + hi >= extent or rest + sum(max(reach, 0) for reach in left) >= low:
            return None
        total += digit * stride
    return total, tuple(out_strides)
