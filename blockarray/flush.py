"""When recorded work happens: scan the pending graph, look its plan up, run the plan's steps, publish the results."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import weakref
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from . import debug
from .compiler import dtypes, interpreter, plan
from .compiler.expr import BUFFER, VIEW, Expr
from .compiler.fusion import Policy
from .compiler.plan import HostStep, KernelStep, Plan
from .compiler.prepare import postorder
from .kernels import Code, code_for
from .runtime import profiler, threads
from .runtime.config import config
from .runtime.memory import Buffer, allocate, as_numpy, wrap

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

policy = Policy(min_programs=max(4, 2 * threads.num_threads()))


def evaluate(exprs: Sequence[Expr]) -> None:
    """Compute expressions; each becomes a BUFFER, and so do those behind them that arrays hold, where that is free.

    Raises
    ------
    IndexError
        If an index array holds an index that is out of bounds; nothing is published then.
    """
    with lock:
        roots = [e for e in exprs if e.op is not BUFFER]
        if len(roots) > 1:
            roots = list(dict.fromkeys(roots))
        if not roots:
            return
        graph = plan.scan(roots)
        ready = _plans.get(graph.key)
        if ready is None:
            if len(_plans) >= _MAX_PLANS:
                del _plans[next(iter(_plans))]
            made = plan.build(graph, policy)
            if config.debug:
                debug.planned(graph, made)
            ready = _plans[graph.key] = Ready(made)
        ready.run(graph.nodes)


class Ready:
    """A plan bound to loaded code, with argument blocks filled as far as they do not change."""

    def __init__(self, made: Plan) -> None:
        self.plan = made
        self.calls: list[_Launch | _Call] = [
            _Launch(step) if isinstance(step, KernelStep) else _Call(step) for step in made.steps
        ]

    def run(self, nodes: list[Expr]) -> None:
        made = self.plan
        memory: list[Any] = [None] * made.slots
        base = [0] * made.slots
        for slot, position in made.leaves:
            leaf = nodes[position]
            buffer, offset, _ = leaf.attrs
            memory[slot] = buffer
            base[slot] = buffer.address + offset * leaf.dtype.itemsize
        for call in self.calls:
            call.run(nodes, memory, base)
        for position, slot, offset, strides in made.results:
            nodes[position].realize(memory[slot], offset, strides)
        for position in made.empty:
            nodes[position].realize(allocate(0))


#: How a parameter lies in its slot of 8 bytes, for `struct`; complex parameters take two slots.
_SLOT = {
    "bool": "?7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u8": "B7x", "u16": "H6x", "u32": "I4x",
    "u64": "Q", "f16": "e6x", "bf16": "H6x", "f32": "f4x", "f64": "d", "c64": "f4xf4x", "c128": "dd",
}  # fmt: skip


def _packed(value: Any, dtype: str) -> Any:
    """A scalar as `struct` takes it (a complex one's real part)."""
    if dtype == "bf16":
        return int(value.view(np.uint16))
    return value.real if dtype in dtypes.COMPLEX else value


class _Launch:
    """A kernel step: its code, and its arguments as a template of values with the places that change."""

    __slots__ = (
        "step", "code", "block", "address", "pack", "template", "pointers", "windows", "scalars", "odd", "writes",
        "frees", "errors", "workspace", "scratch", "programs", "team", "threads",
    )  # fmt: skip

    def __init__(self, step: KernelStep) -> None:
        self.step = step
        kernel = step.kernel
        self.code: Code = code_for(step.key, kernel)
        self.template: list[Any] = []
        #: (place, slot, byte offset); (place, position of the UPDATE, bytes of an element); (place, position).
        self.pointers: list[tuple[int, int, int]] = []
        self.windows: list[tuple[int, int, int]] = []
        self.scalars: list[tuple[int, int]] = []
        #: Scalars that are not packed as they are: (place, position, dtype).
        self.odd: list[tuple[int, int, str]] = []
        self.writes = step.writes
        self.frees = step.frees
        self.errors: np.ndarray | None = None
        self.workspace = -1
        self.programs = step.programs
        self.team = bool(kernel.attrs.get("team"))
        #: Most threads to use; 0: all.
        self.threads = 1 if step.serial else threads.num_threads() if self.team else 0
        layout = "="
        for p, arg in zip(kernel.params, step.args, strict=True):
            place = len(self.template)
            dtype = p.type.dtype
            layout += "q" if p.type.pointer else _SLOT[dtype]
            value: Any = 0
            match arg[0]:
                case "int":
                    value = arg[1]
                case "pointer":
                    self.pointers.append((place, arg[1], arg[2]))
                    if arg[3] >= 0:
                        self.windows.append((place, arg[3], arg[4]))
                case "scalar":
                    if dtype == "bf16" or dtype in dtypes.COMPLEX:
                        self.odd.append((place, arg[1], dtype))
                    else:
                        self.scalars.append((place, arg[1]))
                case "value":
                    value = arg[1]
                case "errors":
                    self.errors = np.zeros(1, np.int64)
                    value = self.errors.ctypes.data
                case _:
                    self.workspace = place
            self.template.append(_packed(value, dtype) if arg[0] == "value" else value)
            if dtype in dtypes.COMPLEX and not p.type.pointer:
                self.template.append(value.imag if arg[0] == "value" else 0)
        layout = struct.Struct(layout)
        self.block = ctypes.create_string_buffer(max(8, layout.size))
        self.address = ctypes.addressof(self.block)
        self.pack = layout.pack_into
        self.pack(self.block, 0, *self.template)
        self.scratch = self.code.scratch(self.address)

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        for slot, nbytes in self.writes:
            buffer = memory[slot] = allocate(nbytes)
            base[slot] = buffer.address
        values = self.template.copy()
        for place, slot, offset in self.pointers:
            values[place] = base[slot] + offset
        for place, position in self.scalars:
            values[place] = nodes[position].attrs
        for place, position, size in self.windows:
            values[place] += nodes[position].attrs[0] * size
        for place, position, dtype in self.odd:
            value = nodes[position].attrs
            values[place] = _packed(value, dtype)
            if dtype in dtypes.COMPLEX:
                values[place + 1] = value.imag
        if self.team:
            space = self._workspace()
            values[self.workspace] = space.address
        self.pack(self.block, 0, *values)
        if profiler.active or config.debug or self.code.kernel is not None:
            self._run_watched(nodes, memory, base)
        else:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, self.threads)
        for slot in self.frees:
            memory[slot] = None
        if self.errors is not None and self.errors[0]:
            message = self.step.messages[int(self.errors[0]) - 1]
            self.errors[0] = 0
            raise IndexError(message)

    def _run_watched(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        """Run with the clock on, or in the interpreter."""
        started = perf_counter()
        if self.code.kernel is None:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, self.threads)
        else:
            self._interpret(nodes, memory, base)
        seconds = perf_counter() - started
        profiler.note(self.step.name, seconds, self.step.bytes, self.programs)
        if "time" in config.debug:
            debug.launched(self.step.name, seconds, self.step.bytes)

    def _interpret(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        """Run the kernel in the NumPy interpreter of the block IR."""
        kernel = self.code.kernel
        assert kernel is not None
        args: list[Any] = []
        for p, arg in zip(kernel.params, self.step.args, strict=True):
            dtype = dtypes.NUMPY[p.type.dtype]
            if arg[0] == "pointer":
                _, slot, offset, window, size = arg
                start = base[slot] + offset - memory[slot].address
                if window >= 0:
                    start += nodes[window].attrs[0] * size
                whole = as_numpy(memory[slot], dtype, 0, (memory[slot].nbytes // size,))
                args.append((whole, start // size))
            elif arg[0] == "scalar":
                args.append(nodes[arg[1]].attrs)
            elif arg[0] in ("int", "value"):
                args.append(arg[1])
            else:
                args.append(np.zeros(1, dtype))
        failed = interpreter.run(kernel, args)
        if failed and self.errors is not None:
            self.errors[0] = int(failed[0]) + 1

    def _workspace(self) -> Buffer:
        space = allocate(self.code.workspace(self.address, self.threads))
        ctypes.memset(space.address, 0, min(4096, space.nbytes))
        return space


class _Call:
    """A library call on the host."""

    __slots__ = ("step",)

    def __init__(self, step: HostStep) -> None:
        self.step = step

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        step = self.step
        _, function, static = nodes[step.position].attrs
        arrays = []
        for slot, offset, strides, shape, dtype in step.operands:
            if slot < 0:
                arrays.append(np.empty(shape, dtype))
            else:
                start = (base[slot] - memory[slot].address) // dtype.itemsize
                arrays.append(as_numpy(memory[slot], dtype, start + offset, shape, strides, False))
        started = perf_counter() if profiler.active else 0.0
        value = np.asarray(function(*arrays, *static), dtype=step.dtype)
        if value.shape != step.shape:
            raise AssertionError(f"{step.name} gave shape {value.shape}, not {step.shape}")
        memory[step.slot] = wrap(value, copy=True)
        base[step.slot] = memory[step.slot].address
        if profiler.active:
            moved = value.nbytes + sum(a.nbytes for a in arrays)
            profiler.note(step.name, perf_counter() - started, moved, 1)
        for slot in step.frees:
            memory[slot] = None


# -- the bound on pending work ----------------------------------------------------------------------------------------
#: Bytes that pending graphs may keep alive by imports, and those imported since the last flush.
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
