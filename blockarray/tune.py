"""Choosing schedules by measuring them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from . import cuda, flush, tiny
from .array import Array
from .compiler import plan
from .compiler.choices import Choice, Choices
from .compiler.expr import BUFFER, Expr, buffer
from .compiler.plan import Graph, KernelStep, Plan
from .compiling import compile_ahead
from .dtypes import bfloat16, complex64, float16, float32
from .elementwise import isfinite, isnan, maximum, where
from .reductions import any as _any
from .runtime import profiler
from .runtime.cuda import copies
from .runtime.device import CudaDevice, Device, default_device
from .storage import Window, guard
from .tuned import Table

#: Rounds that all candidates take part in, and what the best of these may take more than the fastest to stay in.
_FIRST, _NEAR = 3, 1.25
#: Rounds of those that are left: as many as take so many seconds, within bounds.
_SECONDS, _LEAST, _MOST = 0.5, 5, 30
#: By how much another choice than the usual one must be faster.
_GAIN = 0.01
#: Bytes that are written before each measurement on a GPU, so that no operand is in its cache.
_COLD = 1 << 28
#: By how much of the largest element results may differ: other orders of addition give other roundings.
_TOLERANCE = {float16: 4e-3, bfloat16: 3e-2, float32: 1e-4, complex64: 1e-4}


@dataclass
class Candidate:
    """A choice, and what came of it.

    Attributes
    ----------
    choice : dict
        Blocks of the kernel's dims by name, and attributes of its code.
    seconds : float or None
        What all kernels of the function take, the median over the rounds.
    note : str
        Why there is no time.
    """

    choice: dict[str, int]
    seconds: float | None = None
    note: str = ""


@dataclass
class Decision:
    """One thing that was chosen: `key` says for what, `candidates[0]` is what the cost model picks."""

    key: str
    candidates: list[Candidate]
    best: Candidate

    @property
    def gain(self) -> float:
        """How many times faster than the cost model's choice."""
        usual = self.candidates[0].seconds
        return usual / self.best.seconds if usual and self.best.seconds else 1.0


@dataclass
class Tuning:
    """What `tune` measured; `str()` shows it."""

    device: Device
    decisions: list[Decision] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.decisions:
            return f"nothing to choose on {self.device}"
        lines = []
        for d in self.decisions:
            lines.append(f"{d.key}: {d.gain:.2f} times faster than the cost model's choice")
            for c in sorted(d.candidates, key=lambda c: c.seconds or float("inf")):
                what = "  ".join(f"{name}={value}" for name, value in c.choice.items()) or "as it is"
                time = f"{c.seconds * 1e6:10.1f} us" if c.seconds else f"{'-':>13}"
                marks = [" best"] * (c is d.best) + [" cost model"] * (c is d.candidates[0])
                lines.append(f"  {time}  {what}{','.join(marks)}{c.note and f'  ({c.note})'}")
        return "\n".join(lines)

    __repr__ = __str__


class _Asked(Choices):
    """Gives some choices, asks a table for others, and remembers what could be chosen."""

    def __init__(self, table: Choices, given: Mapping[str, Choice]) -> None:
        self.table = table
        self.given = given
        self.found: dict[str, list[Choice]] = {}

    def choose(self, key: str, usual: Choice, others: Callable[[], Iterable[Choice]]) -> Choice:
        if key in self.given:
            return self.given[key]
        self.found[key] = [usual, *[c for c in others() if c != usual]]
        return self.table.choose(key, usual, others)


def tune(fn: Callable[..., Any], *args: Any) -> Tuning:
    """Measure schedules for what a function computes, and use the fastest from then on.

    The kernels of `fn(*args)` are compiled with other tiles, stages, orders and parts than the cost models pick, side
    by side in processes of their own, and run on these arguments in turns. What is fastest, and gives the same results
    up to rounding, is kept on disk for the device and for sizes near these; later plans use it, also in other
    processes.

    Parameters
    ----------
    fn : callable
        Gives an array, or lists, tuples or dictionaries of them, and must not look at their elements: what is computed
        inside is not measured.
    *args : Any
        Its arguments. Arrays keep their elements, also those that `fn` writes to.

    Returns
    -------
    Tuning
        The candidates with their times.

    Raises
    ------
    ValueError
        If `fn` writes to an array that it neither made nor was given, which then keeps its elements; or if its results
        are on several devices.
    """
    with _writes_refused():
        results = _arrays(fn(*[_guarded(a) for a in args]))
    roots = list(dict.fromkeys(e for e in (a._read() for a in results) if e.op is not BUFFER))
    places = {e.device or default_device() for e in roots}
    if len(places) > 1:
        raise ValueError(f"tune takes results of one device, not of {', '.join(sorted(map(str, places)))}")
    device = places.pop() if places else default_device()
    tuning = Tuning(device)
    with flush.lock:
        if roots and tiny.schedule(roots, device) is None:
            graph = flush.scanned(roots, device)
            graph.donated = ()  # Plans run again and again: what they write goes to copies.
            if isinstance(device, CudaDevice):
                flush.bring(graph, device)
            _decide(graph, tuning)
    return tuning


@contextmanager
def _writes_refused() -> Iterator[None]:
    """Refuse writes to all arrays that are there now."""
    there = [a for a in gc.get_objects() if issubclass(type(a), Array)]

    def ask(a: Window) -> None:
        storage = a._storage
        if any(a is b or (storage is not None and storage is b._storage) for b in there):
            raise ValueError("the function writes to an array that is not among its arguments")

    token = guard.set(ask)
    try:
        yield
    finally:
        guard.reset(token)


def _arrays(value: Any) -> list[Array]:
    """The arrays in a result."""
    if isinstance(value, Array):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | np.ndarray):
        return []
    return [a for v in value for a in _arrays(v)]


def _guarded(value: Any) -> Any:
    """An argument whose arrays are others of the same memory, so that writes go elsewhere."""
    if isinstance(value, Array):
        e = value._read()
        flush.evaluate([e])
        if e.op is not BUFFER:  # a scalar
            return value
        memory, offset, strides = e.attrs
        # What others share with us is written in place, whoever else holds it.
        return value.copy("K") if memory.pinned else Array(buffer(memory, e.shape, e.dtype, offset, strides, e.device))
    if type(value) in (list, tuple):
        return type(value)(map(_guarded, value))
    return {k: _guarded(v) for k, v in value.items()} if type(value) is dict else value


def _decide(graph: Graph, tuning: Tuning) -> None:
    """Make one choice after the other, and keep them."""
    device = tuning.device
    given: dict[str, Choice] = {}
    while True:
        _, found = _planned(graph, device, given)
        key = next((k for k in found if k not in given), None)
        if key is None:
            break
        candidates = [Candidate(dict(choice)) for choice in found[key]]
        given[key] = found[key][0]
        if len(candidates) > 1:
            best = _measure(graph, device, given, key, candidates)
            tuning.decisions.append(Decision(key, candidates, best))
            given[key] = best.choice
    if tuning.decisions:
        table = flush.policy(device).choices
        assert isinstance(table, Table)
        table.learn({d.key: d.best.choice for d in tuning.decisions})
        flush.forget_plans()


def _planned(graph: Graph, device: Device, given: Mapping[str, Choice]) -> tuple[Plan, dict[str, list[Choice]]]:
    """A plan with some choices given, and what can be chosen in it."""
    usual = flush.policy(device)
    asked = _Asked(usual.choices, given)
    return plan.build(graph, replace(usual, choices=asked)), asked.found


def _measure(
    graph: Graph, device: Device, given: Mapping[str, Choice], key: str, candidates: list[Candidate]
) -> Candidate:
    """Give candidates their times; the best one."""
    plans = {}
    for i, c in enumerate(candidates):
        with _noted(c) if i else nullcontext():
            plans[i], _ = _planned(graph, device, {**given, key: c.choice})
    compile_ahead({s.key for made in plans.values() for s in made.steps if isinstance(s, KernelStep)}, device)
    ready: dict[int, flush.Ready] = {}
    wanted: list[Array] = []
    for i, made in plans.items():
        with _noted(candidates[i]) if i else nullcontext():
            ready[i] = flush.Ready(made, device)
            found = _values(ready[i], graph.nodes)
            wanted = wanted or found
            if not all(_alike(x, y) for x, y in zip(found, wanted, strict=True)):
                candidates[i].note = "other results"
    left = [i for i in ready if i == 0 or not candidates[i].note]
    cold = cuda.allocate(device, _COLD) if isinstance(device, CudaDevice) else None
    times: dict[int, list[float]] = {i: [] for i in left}

    def rounds(count: int) -> None:
        for _ in range(count):
            for i in left:
                times[i].append(_seconds(ready[i], graph.nodes, cold))

    rounds(_FIRST)
    fastest = max(1e-9, min(map(min, times.values())))
    left = [i for i in left if i == 0 or min(times[i]) <= _NEAR * fastest]
    if len(left) > 1:
        rounds(max(_LEAST, min(_MOST, int(_SECONDS / fastest / len(left)))))
    for i, found in times.items():
        candidates[i].seconds = median(found)
    best = min(left, key=lambda i: median(times[i]))
    usual = candidates[0]
    if usual.seconds and usual.seconds <= (1 + _GAIN) * median(times[best]):
        return usual
    return candidates[best]


class _noted(suppress):
    """Note an exception as the reason why a candidate has no time."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(RuntimeError, NotImplementedError, ValueError, AssertionError, MemoryError)
        self.candidate = candidate

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        handled = bool(super().__exit__(kind, error, trace))
        if handled:
            self.candidate.note = str(error).split("\n", 1)[0]
        return handled


def _values(ready: flush.Ready, nodes: list[Expr]) -> list[Array]:
    """The results of a plan, of which nothing is published."""
    memory = ready.compute(nodes)
    return [
        Array(buffer(memory[slot], nodes[position].shape, nodes[position].dtype, offset, strides, ready.device))
        for position, slot, offset, strides in ready.plan.results
    ]


def _alike(x: Array, y: Array) -> bool:
    """Whether results are the same up to rounding."""
    if x.dtype.kind in "biu":
        return not _any(x != y)
    tolerance = _TOLERANCE.get(x.dtype, 1e-10 if x.dtype.itemsize >= 8 else 0.1)
    if np.dtype(x.dtype).itemsize < 4:
        x, y = x.astype(float32), y.astype(float32)
    size = maximum(0, where(isfinite(y), abs(y), 0)).max() if y.size else 0
    return not _any((abs(x - y) > tolerance * size) | (isnan(x) != isnan(y)))


def _seconds(ready: flush.Ready, nodes: list[Expr], cold: Any) -> float:
    """What the kernels of a plan take."""
    with profiler.record() as launches:
        if cold is not None:
            copies.clear(cold)
        ready.compute(nodes)
    return sum(launch.seconds for launch in launches if launch.programs)
