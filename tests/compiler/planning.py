"""Planning and interpreting expression graphs without the front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blockarray.compiler import expr as E
from blockarray.compiler import interpreter, ops, plan, verifier
from blockarray.compiler.expr import Expr
from blockarray.compiler.ir import Kernel
from blockarray.compiler.policy import Policy


class Memory:
    """A buffer that is a NumPy array."""

    device = None

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.pinned = False
        self.nbytes = array.nbytes


def leaf(array: np.ndarray) -> Expr:
    array = np.ascontiguousarray(array)
    return E.buffer(Memory(array.reshape(-1)), array.shape, array.dtype)


def op(name: str, *inputs: Expr) -> Expr:
    """An elementwise node with broadcasting; the dtypes are right already."""
    row = ops.TABLE[name]
    shape = np.broadcast_shapes(*[x.shape for x in inputs])
    dtype = ops.resolve(row, *[x.dtype for x in inputs])[1]
    return E.node(row, tuple(E.broadcast(x, shape) for x in inputs), None, shape, dtype)


def reduce(name: str, x: Expr, axis: int | tuple[int, ...], keepdims: bool = False) -> Expr:
    axes = tuple(a % len(x.shape) for a in ((axis,) if isinstance(axis, int) else axis))
    row = ops.TABLE[name]
    shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    out = E.node(row, (x,), axes, shape, ops.resolve(row, x.dtype)[1])
    if keepdims:
        kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        out = E.view(out, 0, E.contiguous_strides(kept), kept)
    return out


def window(x: Expr, key: Any) -> Expr:
    """Basic indexing."""
    probe = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), x.shape, E.contiguous_strides(x.shape))
    part = probe[key]
    offset = part.__array_interface__["data"][0] - probe.__array_interface__["data"][0]
    return E.view(x, offset, part.strides, part.shape)


def planned(*roots: Expr, policy: Policy | None = None) -> plan.Plan:
    return plan.build(plan.scan(list(roots)), policy or Policy())


def run(
    *roots: Expr,
    policy: Policy | None = None,
    execute: Callable[[Kernel, list[Any]], list[str]] = interpreter.run,
    aligned: bool = False,
) -> list[np.ndarray]:
    """Values of the roots, computed by the interpreter of the block IR; `aligned`: as if memory began at 16 bytes."""
    graph = plan.scan(list(roots))
    if aligned:
        starts = {i: n.attrs[1] * n.dtype.itemsize for i, n in enumerate(graph.nodes) if n.op is E.BUFFER}
        graph.aligned = frozenset(i for i, start in starts.items() if start % 16 == 0)
    made = plan.build(graph, policy or Policy())
    memory: list[Any] = [None] * made.slots
    start = [0] * made.slots
    for slot, position in made.leaves:
        memory[slot], start[slot] = graph.nodes[position].attrs[0].array, graph.nodes[position].attrs[1]
    for step in made.steps:
        assert isinstance(step, plan.KernelStep)
        verifier.verify(step.kernel)
        for slot, nbytes in step.reserves:
            memory[slot] = np.full(nbytes, 0xAB, np.uint8)
        args: list[Any] = []
        for p, arg in zip(step.kernel.params, step.args, strict=True):
            if arg[0] == "int":
                args.append(arg[1])
            elif arg[0] == "pointer":
                _, slot, offset, moving, size = arg
                first = start[slot] + offset // size + (graph.nodes[moving].attrs[0] if moving >= 0 else 0)
                args.append((memory[slot].view(E.dtypes.NUMPY[p.type.dtype]), first))
            elif arg[0] == "scalar":
                args.append(graph.nodes[arg[1]].attrs)
            elif arg[0] == "value":
                args.append(arg[1])
            else:
                args.append(np.zeros(4096, np.int64 if arg[0] == "errors" else np.int8))
        failed = execute(step.kernel, args)
        if failed:
            raise IndexError(step.messages[int(failed[0])])
    for position, slot, offset, strides in made.results:
        node = graph.nodes[position]
        node.realize(Memory(memory[slot].view(node.dtype)), offset, strides)
    for position in made.empty:
        graph.nodes[position].realize(Memory(np.empty(0, graph.nodes[position].dtype)))
    return [value(r) for r in roots]


def value(node: Expr) -> np.ndarray:
    """What a BUFFER holds."""
    buf, offset, strides = node.attrs
    if 0 in node.shape:
        return np.empty(node.shape, node.dtype)
    steps = tuple(s * node.dtype.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(buf.array[offset:], node.shape, steps)
