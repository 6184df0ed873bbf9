"""Graphs of tiny arrays: the op table's interpreter computes them, and nothing is planned or compiled.

Whether a graph is one depends on its shapes and operations, and on where its leaves come from, so that what a program
computes does not depend on what it ran before.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np

from . import cuda
from .compiler import reference
from .compiler.expr import BUFFER, HOST, VIEW, Expr, Shape, contiguous_strides
from .runtime import profiler
from .runtime.config import config
from .runtime.device import CPU, CudaDevice, Device
from .runtime.memory import allocate, as_numpy, held

_DEPTH = attrgetter("depth")


def schedule(roots: Sequence[Expr], device: Device) -> list[Expr] | None:
    """The nodes with inputs, and the roots, of a graph to be interpreted, inputs first; None: it is to be compiled.

    Random numbers are always compiled: NumPy takes hundreds of operations for one of their nodes.  So are custom
    operations.  On a GPU, the host
    must know the leaves, so that nobody waits for the device.
    """
    limit = config.tiny
    if not limit:
        return None
    for root in roots:
        if prod(root.shape) > limit:
            return None
    on_gpu = device is not CPU
    nodes = [*roots]
    seen = {*nodes}
    for node in nodes:
        if node.op.types or (node.op is HOST and hasattr(node.attrs[1], "step")):
            return None
        shape = node.shape
        for x in node.inputs:
            while x.op is VIEW:
                if prod(x.shape) > limit:
                    return None
                x = x.inputs[0]
            if x.shape is not shape and prod(x.shape) > limit:
                return None
            if x.inputs:
                if x not in seen:
                    seen.add(x)
                    nodes.append(x)
            elif on_gpu and x.op is BUFFER and not cuda.is_known(x.attrs[0]):
                return None
    nodes.sort(key=_DEPTH)
    return nodes


def run(nodes: list[Expr], roots: Sequence[Expr], device: Device) -> None:
    """Compute what `schedule` gave; roots become BUFFERs, and so does what something beside the graph refers to."""
    started = perf_counter() if profiler.active else 0.0
    values = reference.values(nodes, read)
    wanted = [*roots]
    # The references of this function: `nodes`, `values` and the argument of getrefcount; a reader makes a fourth.
    refs = sys.getrefcount
    if len(nodes) > len(roots):
        shared = [i for i in range(len(nodes)) if refs(nodes[i]) > 4 and nodes[i] not in roots]
        if shared:
            readers = Counter([id(x) for node in values for x in node.inputs])
            wanted += [nodes[i] for i in shared if refs(nodes[i]) - readers[id(nodes[i])] > 3]
    if profiler.active:
        leaves = {x for node in nodes for x in node.inputs if not x.inputs}
        nbytes = sum([x.nbytes for x in (*leaves, *roots)])
        profiler.note("interpreted", perf_counter() - started, nbytes, 1, kind="interpreted")
    for node in wanted:
        value = values[node]
        aliased = value.base is not None or node.op is HOST or type(value) is not np.ndarray
        for x in node.inputs:
            aliased = aliased or values.get(x) is value
        if aliased or not value.flags.c_contiguous:
            value = np.array(value, order="C")
        if isinstance(device, CudaDevice):
            node.realize(cuda.put(value, device))
        else:
            node.realize(held(value) if value.size else allocate(0))


def read(buffer: Any, offset: int, shape: Shape, strides: Shape, dtype: np.dtype) -> np.ndarray:
    """Elements of a leaf, which must not be written to."""
    if buffer.device is not CPU:
        return cuda.download(buffer, dtype, offset, shape, strides, True)
    array = buffer.owner
    whole = not offset and strides == contiguous_strides(shape)
    if (
        whole
        and type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == shape
        and array.flags.c_contiguous
    ):
        return array
    return as_numpy(buffer, dtype, offset, shape, strides, False)
