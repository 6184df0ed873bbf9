"""Functions that launch kernels as operations of the lazy graph: `custom_op`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import update_wrapper
from math import prod
from operator import index
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import export
from ..array import Array, lazy
from ..compiler import dtypes
from ..compiler.expr import BUFFER, HOST, Expr, Shape, contiguous_strides, node
from ..compiler.plan import HostStep
from ..dtypes import canonical
from ..operands import as_array
from ..runtime import profiler
from ..runtime.device import Device
from . import memory
from .keys import changeable, exact, has_attributes

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
        if not callable(fn):
            raise TypeError(f"custom_op takes a function that launches kernels, not {fn!r}")
        update_wrapper(self, fn)
        self.fn = fn
        self.name = name or getattr(fn, "__name__", type(fn).__name__)
        parameters = inspect.signature(fn).parameters
        if "out" not in parameters:
            raise TypeError(f"custom_op {self.name}: the function has no parameter out")
        for p in parameters.values():
            if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                raise TypeError(f"custom_op {self.name}: the function is called by names, which {p} does not take")
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
        shapes, several = self._shapes(self._rule("shape", self.shape, bound, first.shape))
        types = self._rule("dtype", self.dtype, bound, first.dtype)
        types = list(types) if isinstance(types, tuple | list) else [types] * len(shapes)
        if len(types) != len(shapes):
            raise ValueError(f"{self.name}: {len(shapes)} shapes, but {len(types)} dtypes")
        layout = tuple(zip(shapes, map(self._dtype, types)))
        rest = (_Rest({k: x for k, x in given.items() if k not in arrays}),)
        inputs = tuple([a._read() for a in arrays.values()])
        attrs = (self.name, _Run(self, tuple(arrays), layout, several), rest)
        main = lazy(node(HOST, inputs, attrs, *layout[0]))
        if not several:
            return main
        others = [
            lazy(node(HOST, (main._read(),), (self.name, _Pick(k), ()), *layout[k])) for k in range(1, len(layout))
        ]
        return main, *others

    def _shapes(self, given: Any) -> tuple[list[Shape], bool]:
        """What a rule gave as shapes, and whether these are of several results."""
        if isinstance(given, np.ndarray):
            given = given.tolist()
        several = isinstance(given, list | tuple) and any(isinstance(s, tuple | list) for s in given)
        shapes: list[Shape] = []
        shape: Any
        for shape in given if several else [given]:
            try:
                sizes = (index(shape),) if hasattr(shape, "__index__") else tuple(map(index, shape))
            except TypeError:
                raise TypeError(f"{self.name}: a shape is an integer or a tuple of integers, not {shape!r}") from None
            if any(n < 0 for n in sizes):
                raise ValueError(f"{self.name}: a shape has no negative dimensions: {sizes}")
            shapes.append(sizes)
        return shapes, several

    def _dtype(self, given: Any) -> np.dtype:
        try:
            if given is not None:
                return canonical(dtypes.NUMPY[given.ir] if isinstance(getattr(given, "ir", None), str) else given)
        except (TypeError, KeyError):
            pass
        raise TypeError(f"{self.name}: its dtype is {given!r}, which arrays cannot have")

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


class _Rest:
    """The arguments of an operation that are no arrays, as they were when it was recorded."""

    __slots__ = ("given", "key")

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = {k: deepcopy(x) if changeable(x) and not has_attributes(x) else x for k, x in given.items()}
        key: Any = []
        for k, x in given.items():
            try:
                state = exact(x)
                hash(state)
            except TypeError:  # nothing is like it
                state = id(x)
            key.append((k, state))
        self.key = tuple(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rest) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


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
        outs = self.run(arrays, args[len(self.names)].given, arrays[0].device)
        return np.asarray(outs[0])

    def run(self, arrays: Sequence[Array], rest: dict[str, Any], device: Device) -> list[Array]:
        """Call the function on arrays; its results."""
        outs = [Array(_blank(shape, dtype, device)) for shape, dtype in self.layout]
        out = tuple(outs) if self.several else outs[0]
        given = self.operation.fn(**dict(zip(self.names, arrays)), **rest, out=out)
        if isinstance(given, Array | np.ndarray) and given is not out:
            raise TypeError(f"{self.operation.name} returned an array: it is to fill out, by out[...] = or a kernel")
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
            outs = function.run(arrays, rest[0].given, self.device)
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
        all arrays computed, and must not write to its operands.  `out` is memory of its own, and holds anything at
        first.
    shape : int, tuple of int, or callable
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
