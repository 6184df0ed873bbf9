"""When recorded work happens: scan the pending graph, look its plan up, run the plan's steps, publish the results."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import replace
from functools import cache
from typing import Any

from . import cuda, debug, tiny
from .compiler import plan
from .compiler.expr import BUFFER, UPDATE, VIEW, Expr
from .compiler.lower import shift
from .compiler.plan import Graph, KernelStep, Plan
from .compiler.policy import Policy, gpu_policy
from .compiler.prepare import postorder
from .launch import Call, Launch
from .recipes import RoutineCall, recipe
from .runtime import threads
from .runtime.config import config
from .runtime.device import CPU, CudaDevice, Device, default_device
from .runtime.memory import Buffer, allocate
from .tuned import table

#: Plans by graph key; the oldest leave when there are too many.
_plans: dict[tuple[Any, ...], Ready] = {}
_MAX_PLANS = 4096
#: Flushes and publications, one at a time.
lock = threading.RLock()


def _after_fork() -> None:
    # The thread that held it does not exist in the child.
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)

#: Vector accesses want memory at multiples of this many bytes.
_ALIGNMENT = 16


@cache
def policy(device: Device) -> Policy:
    """What a device wants of a plan."""
    choices = table(device)
    if isinstance(device, CudaDevice):
        room = (config.device_memory_limit or device.total_memory) // 4
        return replace(gpu_policy(device.multiprocessors, device.capability), choices=choices, room=room)
    count = threads.num_threads()
    return Policy(min_programs=max(4, 2 * count), processors=count, choices=choices)


def evaluate(exprs: list[Expr]) -> None:
    """Compute expressions; each becomes a BUFFER, and so do those behind them that arrays hold, where that is free.

    Raises
    ------
    IndexError
        If an index array holds an index that is out of bounds; nothing is published then.  On a GPU the work is only
        queued, and the error raised when the host next reads from the device.
    """
    with lock:
        roots = exprs
        if len(exprs) != 1 or exprs[0].op is BUFFER:
            roots = list(dict.fromkeys([e for e in exprs if e.op is not BUFFER]))
            if not roots:
                return
        device = roots[0].device
        if len(roots) > 1 and any(e.device is not device for e in roots):
            device = None
        if device is None:
            _evaluate_anywhere(roots)
        else:
            _evaluate_on(device, roots)


def _evaluate_anywhere(roots: list[Expr]) -> None:
    """Compute expressions on the devices where they belong."""
    by_device: dict[Device, list[Expr]] = {}
    for e in roots:
        by_device.setdefault(e.device or default_device(), []).append(e)
    e = None  # A name that still refers to a root would count as a holder.
    for device, some in by_device.items():
        _evaluate_on(device, some)


def _evaluate_on(device: Device, roots: list[Expr]) -> None:
    """Compute expressions on a device."""
    if (small := tiny.schedule(roots, device)) is not None:
        _interpret(small, roots, device)
        return
    graph = scanned(roots, device)
    ready = _plans.get(graph.key)
    if ready is None:
        ready = _plan(graph, device)
    if graph.elsewhere:
        bring(graph, device)
    ready.run(graph.nodes)


def _interpret(nodes: list[Expr], roots: list[Expr], device: Device) -> None:
    if _imported:
        leaves = {x for node in nodes for x in node.inputs if x.op is BUFFER}
        computed_with(sum([x.nbytes for x in leaves]))
    tiny.run(nodes, roots, device)


def scanned(roots: list[Expr], device: Device) -> Graph:
    """The graph behind roots that will be computed on a device, with the key of its plan there."""
    graph = plan.scan(roots)
    if device is not CPU:
        _place(graph, device)
        graph.key = (device.index, graph.key, graph.aligned, graph.shifted, graph.even)
    return graph


def _plan(graph: Graph, device: Device) -> Ready:
    if len(_plans) >= _MAX_PLANS:
        del _plans[next(iter(_plans))]
    made = plan.build(graph, policy(device))
    if config.debug:
        debug.planned(graph, made, device)
    ready = _plans[graph.key] = Ready(made, device)
    return ready


def forget_plans() -> None:
    """Plan anew from now on: what plans depend on has changed.  Kernels that stay as they were are not recompiled."""
    with lock:
        _plans.clear()


def bring(graph: Graph, device: Any) -> None:
    """Copy leaves that are elsewhere, host data most often, to a GPU."""
    moved: dict[int, Any] = {}
    for i in graph.leaves:
        node = graph.nodes[i]
        buffer, offset, strides = node.attrs
        if buffer.device is not device:
            if id(buffer) not in moved:
                moved[id(buffer)] = cuda.upload(buffer, device)
            node.realize(moved[id(buffer)], offset, strides)


def _place(graph: Graph, device: Device) -> None:
    """Note of a GPU's graph what its memory says: which leaves are elsewhere yet, which windows are shifted ones of
    others, and which BUFFERs, and windows that UPDATEs write, begin at a multiple of 16 bytes; those that shifts count
    from may begin at one of two elements only.

    What is elsewhere will be copied to memory that begins so.
    """
    nodes = graph.nodes
    starts: dict[int, int] = {}
    for i in graph.leaves:
        node = nodes[i]
        buffer, offset, _ = node.attrs
        start = 0
        if buffer.device is not device:
            graph.elsewhere = True
        elif not buffer.capacity:  # memory of our own begins at such a multiple, what others share with us may not
            start = buffer.address
        starts[i] = start + offset * node.dtype.itemsize if offset else start
    if graph.related:
        graph.shifted = _shifted(graph)
        for i, k, _ in graph.shifted:
            if i != k:
                starts.pop(i, None)
    if graph.writes:
        for i, node in enumerate(nodes):
            if node.op is UPDATE:
                base = node.inputs[0]
                buffer = base.attrs[0] if base.op is BUFFER else None
                start = buffer.address if buffer is not None and buffer.device is device else 0
                starts[i] = start + node.attrs[0] * node.dtype.itemsize
    graph.aligned = frozenset([i for i, start in starts.items() if not start % _ALIGNMENT])
    if graph.shifted:
        odd = {k for _, k, _ in graph.shifted} - graph.aligned
        graph.even = frozenset([k for k in odd if k in starts and not starts[k] % (2 * nodes[k].dtype.itemsize)])


def _shifted(graph: Graph) -> tuple[tuple[int, int, int], ...]:
    """Windows of the same memory that are shifted by a few elements along their axes, as stencils have them: pairs of
    BUFFERs, and the elements between their beginnings.

    A kernel reads what they share once, and only the first one's alignment matters.
    """
    windows: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for i in graph.leaves:
        node = graph.nodes[i]
        buffer, offset, strides = node.attrs
        windows.setdefault((id(buffer), node.dtype, strides), []).append((offset, i))
    found: list[tuple[int, int, int]] = []
    for (*_, strides), some in windows.items():
        axes = {k: s for k, s in enumerate(strides) if s}
        if len(some) > 1 and axes:
            # The first one in a row.
            lane = min(axes, key=lambda k: abs(axes[k]))
            origin, first = min(some, key=lambda w: ((shift(w[0] - some[0][0], axes) or {}).get(lane, 0), w[0]))
            near = [(i, first, offset - origin) for offset, i in some if shift(offset - origin, axes) is not None]
            found += near if len(near) > 1 else []
    return tuple(found)


class Ready:
    """A plan bound to a device and loaded code, with argument blocks filled as far as they do not change."""

    def __init__(self, made: Plan, device: Device) -> None:
        self.plan = made
        self.leaves = made.leaves
        self.results = made.results
        self.device = device
        self.calls: list[Launch | Call | cuda.CudaLaunch | RoutineCall] = [_bound(step, device) for step in made.steps]

    def run(self, nodes: list[Expr]) -> None:
        """Compute a graph, and let its nodes become their values."""
        memory = self.compute(nodes)
        for position, slot, offset, strides in self.results:
            nodes[position].realize(memory[slot], offset, strides)
        for position in self.plan.empty:
            empty = cuda.allocate(self.device, 0) if isinstance(self.device, CudaDevice) else allocate(0)
            nodes[position].realize(empty)

    def compute(self, nodes: list[Expr]) -> list[Any]:
        """Run the steps; the memory of each slot."""
        memory: list[Any] = [None] * self.plan.slots
        base = [0] * self.plan.slots
        for slot, position in self.leaves:
            leaf = nodes[position]
            buffer, offset, _ = leaf.attrs
            memory[slot] = buffer
            base[slot] = buffer.address + offset * leaf.dtype.itemsize
        call = None
        try:
            for call in self.calls:
                call.run(nodes, memory, base)
        except MemoryError as error:
            assert call is not None
            raise MemoryError(f"{self._unmet(call.step, memory)}: {error}") from None
        if _imported:
            computed_with(sum([nodes[position].nbytes for _, position in self.leaves]))
        return memory

    def _unmet(self, step: plan.KernelStep | plan.HostStep, memory: list[Any]) -> str:
        """What a step had no memory for, in words: a result of its own, or of a later one's."""
        if isinstance(step, KernelStep):
            lacking = next((slot for slot, _ in step.reserves if memory[slot] is None), None)
            for later in self.plan.steps:
                if isinstance(later, KernelStep) and any(slot == lacking for slot, _ in later.writes):
                    step = later
            return f"{', '.join(step.outputs)} of {' '.join(step.ops)}"
        return f"{step.dtype}{list(step.shape)} of {step.name}"


def _bound(step: plan.KernelStep | plan.HostStep, device: Device) -> Launch | Call | cuda.CudaLaunch | RoutineCall:
    """A step bound to a device."""
    if isinstance(step, plan.HostStep) and (make := getattr(step.function, "step", None)):
        return make(step, device)  # a custom operation's
    if isinstance(device, CudaDevice):
        if isinstance(step, KernelStep):
            return cuda.CudaLaunch(step, device)
        found = recipe(step, device)
        return RoutineCall(step, device, found) if found else cuda.CudaCall(step, device)
    return Launch(step) if isinstance(step, KernelStep) else Call(step)


# -- the bound on pending work ----------------------------------------------------------------------------------------
#: Bytes that pending graphs may keep alive by imports, and those imported and not yet computed with.
_MAX_IMPORTED = 64 << 20
_imported = 0
#: Operations on such a leaf before its graph is computed: enough for it to meet the values that keep the others alive.
_SLACK = 4
#: Memory of such leaves that has been computed with: an array's windows are leaves of their own, made at each reading.
_met: weakref.WeakSet[Buffer] = weakref.WeakSet()


def imported(nbytes: int) -> int:
    """The depth for a new leaf of so many bytes: its readers are computed at once if there were many such leaves."""
    global _imported
    _imported += nbytes
    if _imported <= _MAX_IMPORTED or nbytes > _MAX_IMPORTED:
        return 0
    _imported = 0
    return config.max_pending - _SLACK


def computed_with(nbytes: int) -> None:
    """Leaves of so many bytes are not, or no more, kept alive by pending work."""
    global _imported
    _imported = max(0, _imported - nbytes)


def bound(expr: Expr) -> None:
    """Compute the older part of a graph that has become deep.

    A loop that records the same operations again and again is cut after a whole number of its repeats, at the same
    place of the repeat each time, so that it makes one plan and one set of kernels.
    """
    with lock:
        nodes = postorder([expr])
        marked = config.max_pending - _SLACK
        large = [x for n in nodes for x in n.inputs if x.op is BUFFER and x.depth == marked]
        fresh = {leaf.attrs[0] for leaf in large}.difference(_met)
        _met.update(fresh)
        for leaf in large:
            leaf.depth = 0
        for node in nodes:  # depths that were recorded before inputs were computed are too large
            node.depth = 1 + max([x.depth for x in node.inputs])
        if not nodes or (2 * expr.depth < config.max_pending and not fresh):
            return
        cut = _cut(nodes)
        roots = _crossing(nodes, cut)
        later = [n for n in nodes if n.depth > cut]
        del nodes, node
        evaluate(roots)
        for node in later:
            if node.inputs:
                node.depth = 1 + max([x.depth for x in node.inputs])


def _crossing(nodes: list[Expr], cut: int) -> list[Expr]:
    """Nodes no deeper than `cut` that deeper ones read, or the last node if there are no deeper ones."""
    found: dict[Expr, None] = {}
    for node in nodes:
        if node.depth > cut:
            for x in node.inputs:
                while x.op is VIEW and x.depth <= cut:
                    x = x.inputs[0]
                if x.inputs and x.depth <= cut:
                    found[x] = None
    return list(found) or nodes[-1:]


def _cut(nodes: list[Expr]) -> int:
    """The depth down to which to compute: a whole number of repeats of the recorded structure, or everything."""
    depth = nodes[-1].depth
    levels = [0] * (depth + 1)
    for n in nodes:
        levels[n.depth] += hash((id(n.op), n.dtype.num, n.shape))
    window = depth // 3
    for period in range(1, window):
        # The newest repeat may be incomplete.
        top = depth - period
        if levels[top - window + 1 : top + 1] == levels[top - window + 1 - period : top + 1 - period]:
            if levels[1 + period : top + 1] == levels[1 : top + 1 - period]:
                return top // period * period
            # Something else came before: of the places in a repeat take the one with the smallest hash, which is the
            # same one in every graph.
            return min(
                range(top - period + 1, top + 1), key=lambda d: (hash(tuple(levels[d - period + 1 : d + 1])), -d)
            )
    return depth
