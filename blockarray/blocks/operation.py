"""Functions that launch kernels as operations of the lazy graph: `custom_op`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from math import prod
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import export
from ..array import Array, lazy
from ..compiler.expr import BUFFER, HOST, Expr, Shape, contiguous_strides, node
from ..compiler.plan import HostStep
from ..dtypes import canonical
from ..operands import as_array
from ..runtime import profiler
from ..runtime.device import Device
from . import memory

#: A result's shape or dtype: as it is, or as a function of the operation's arguments.
Rule = Any


class Operation:
    """A function that launches kernels, as an operation: a call records it, and it runs when its result is needed.

    Attributes
    ----------
    fn : function
        Takes arrays, other arguments, and `out`: the array that it is to fill, or a tuple of them.
    """

    __name__: str

    def __init__(self, fn: Callable[..., Any], shape: Rule = None, dtype: Rule = None, name: str = "") -> None:
        update_wrapper(self, fn)
        self.fn = fn
        self.name = name or fn.__name__
        parameters = inspect.signature(fn).parameters
        if "out" not in parameters:
            raise TypeError(f"custom_op {self.name}: the function has no parameter out")
        self.signature = inspect.Signature([p for p in parameters.values() if p.name != "out"])
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"custom_op({self.name})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the operation.

        Returns
        -------
        Array, or tuple of Array if the rules give several shapes
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        given = bound.arguments
        arrays = {k: as_array(x) for k, x in given.items() if isinstance(x, Array | np.ndarray)}
        if not arrays:
            raise TypeError(f"{self.name}: none of its arguments is an array")
        given.update(arrays)
        first = next(iter(arrays.values()))
        shapes = self._rule("shape", self.shape, bound, first.shape)
        several = isinstance(shapes, list) or any(isinstance(s, tuple | list) for s in shapes)
        shapes = [tuple(map(int, s)) for s in (shapes if several else [shapes])]
        dtypes = self._rule("dtype", self.dtype, bound, first.dtype)
        dtypes = list(dtypes) if isinstance(dtypes, tuple | list) else [dtypes] * len(shapes)
        if len(dtypes) != len(shapes):
            raise ValueError(f"{self.name}: {len(shapes)} shapes, but {len(dtypes)} dtypes")
        layout = tuple(zip(shapes, map(canonical, dtypes)))
        rest = tuple([(k, x) for k, x in given.items() if k not in arrays])
        inputs = tuple([a._read() for a in arrays.values()])
        attrs = (self.name, _Run(self, tuple(arrays), layout, several), rest)
        main = lazy(node(HOST, inputs, attrs, *layout[0]))
        if not several:
            return main
        others = [
            lazy(node(HOST, (main._read(),), (self.name, _Pick(k), ()), *layout[k])) for k in range(1, len(layout))
        ]
        return main, *others

    def _rule(self, what: str, rule: Rule, bound: inspect.BoundArguments, default: Any) -> Any:
        if rule is None:
            return default
        if not callable(rule) or isinstance(rule, type):
            return rule
        try:
            return rule(*bound.args, **bound.kwargs)
        except Exception as error:
            error.add_note(f"{self.name}: the rule of its {what}")
            raise


class _Run:
    """What a recorded operation does in a flush; equal ones have equal plans."""

    __slots__ = ("operation", "names", "layout", "several")

    def __init__(
        self, operation: Operation, names: tuple[str, ...], layout: tuple[tuple[Shape, Any], ...], several: bool
    ) -> None:
        self.operation = operation
        self.names = names
        self.layout = layout
        self.several = several

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Run) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return id(self.operation), self.names, self.layout, self.several

    def step(self, step: HostStep, device: Device) -> Step:
        """The step of a plan for it."""
        return Step(step, device)

    def __call__(self, *args: Any) -> np.ndarray:
        """The first result, of NumPy arrays and the other arguments."""
        arrays = [Array(as_array(x)._read()) for x in args[: len(self.names)]]
        outs = self.run(arrays, dict(args[len(self.names) :]), arrays[0].device)
        return np.asarray(outs[0])

    def run(self, arrays: Sequence[Array], rest: dict[str, Any], device: Device) -> list[Array]:
        """Call the function on arrays; its results."""
        outs = [Array(_blank(shape, dtype, device)) for shape, dtype in self.layout]
        self.operation.fn(**dict(zip(self.names, arrays)), **rest, out=tuple(outs) if self.several else outs[0])
        memory.settle(outs)
        return outs


class _Pick:
    """A further result of an operation, which its first one has brought along."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pick) and self.place == other.place

    def __hash__(self) -> int:
        return hash((_Pick, self.place))

    def step(self, step: HostStep, device: Device) -> Step:
        return Step(step, device)


#: The buffers of an operation's further results, by that of its first one.
_beside: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


class Step:
    """An operation as a step of a plan."""

    __slots__ = ("step", "device")

    def __init__(self, step: HostStep, device: Device) -> None:
        self.step = step
        self.device = device

    def run(self, nodes: list[Expr], slots: list[Any], base: list[int]) -> None:
        step = self.step
        _, function, rest = nodes[step.position].attrs
        if isinstance(function, _Pick):
            slots[step.slot] = _beside[slots[step.operands[0][0]]][function.place - 1]
        else:
            arrays = [self._operand(slots, base, *operand) for operand in step.operands]
            started = perf_counter() if profiler.active else 0.0
            outs = function.run(arrays, dict(rest), self.device)
            if profiler.active:
                moved = sum([a.nbytes for a in (*arrays, *outs)])
                profiler.note(step.name, perf_counter() - started, moved, 1, kind="custom operation")
            buffers = [_buffer(a) for a in outs]
            slots[step.slot] = buffers[0]
            if function.several:
                _beside[buffers[0]] = buffers[1:]
        base[step.slot] = slots[step.slot].address
        for slot in step.frees:
            slots[slot] = None

    def _operand(
        self, slots: list[Any], base: list[int], slot: int, offset: int, strides: Shape, shape: Shape, dtype: np.dtype
    ) -> Array:
        """A read-only array over an operand's memory."""
        if slot < 0:  # without elements
            return Array(_blank(shape, dtype, self.device))
        buffer = slots[slot]
        start = (base[slot] - buffer.address) // dtype.itemsize + offset
        row = Array(Expr(BUFFER, (), (buffer, 0, (1,)), (buffer.nbytes // dtype.itemsize,), dtype, 0, self.device))
        array = row._view(start, strides, shape)
        array._readonly = True
        return array


def _blank(shape: Shape, dtype: np.dtype, device: Device) -> Expr:
    """A leaf whose elements are anything."""
    buffer = memory.space(prod(shape) * dtype.itemsize, device)
    return Expr(BUFFER, (), (buffer, 0, contiguous_strides(shape)), shape, dtype, 0, device)


def _buffer(a: Array) -> Any:
    """A computed array's elements alone, in row-major order, as a buffer."""
    buffer, start = memory.locate(a)
    if start or buffer.nbytes != a.nbytes or a.strides != tuple(s * a.itemsize for s in contiguous_strides(a.shape)):
        return export.snapshot(a._read()).attrs[0]
    return buffer


def custom_op(fn: Any = None, *, shape: Rule = None, dtype: Rule = None, name: str = "") -> Any:
    """Make a function that launches kernels an operation, which may stand in lazy expressions.

    Parameters
    ----------
    fn : function
        Takes arrays, other arguments, and `out`: the array that it is to fill.  It runs when its result is needed, with
        all arrays computed, and must not write to its operands.
    shape : tuple of int, or callable
        The result's shape, or a function of the arguments that gives it; by default it is that of the first array.
        A list of shapes makes several results, and `out` a tuple.
    dtype : dtype, or callable
        The result's dtype (or a list of them), in the same way.
    name : str
        What `explain()` and `profile()` call it; by default the function's name.

    Examples
    --------
    ::

        @blockarray.custom_op(shape=lambda x, y: x.shape)
        def add(x, y, *, out):
            kernel[(blockarray.cdiv(x.size, 1024),)](x, y, out, x.size, BLOCK=1024)

        z = 2 * add(a, b)  # recorded
    """
    if fn is None:
        return lambda fn: Operation(fn, shape, dtype, name)
    return Operation(fn, shape, dtype, name)
