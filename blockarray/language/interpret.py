"""Kernels as plain Python: BLOCKARRAY_INTERPRET=1.

The author's function runs itself, so that a debugger stops at its lines.  The language's functions make the same ops as
always, of a builder that computes each of them at once, with the interpreter of block IR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from ctypes import c_uint8
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, cast

import numpy as np

from ..compiler import dtypes, interpreter
from ..compiler.interpreter import OutOfBounds
from ..compiler.ir import I64, Block, Kernel, Op, Type, Value
from .emit import Builder, building
from .memory import TensorDescriptor
from .names import is_constexpr_annotation
from .plain import Plain
from .source import function_of
from .types import OF_IR, pointer_type, unwrap
from .values import Tensor, is_number, tensor

__all__ = ["OutOfBounds", "run"]


def run(fn: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
    """Call a function of the block language for every program of a grid, one after the other.

    Parameters
    ----------
    fn : function
        The Python function, or an object whose `fn` is the function.
    grid : tuple of int
        The numbers of programs; axis 0 varies fastest.
    arguments : dict
        Arrays of NumPy (which stores change), TensorDescriptors of them, scalars and constexprs, by name.

    Raises
    ------
    OutOfBounds
        If a load or store that is not masked lies outside its buffer.
    AssertionError
        If a device_assert fails.
    """
    function = function_of(fn)
    if function is None:
        raise TypeError(f"a kernel is made of a function, not of {fn!r}")
    plain = Plain()
    called = plain.function(function)
    given = {name: plain.value(value) for name, value in arguments.items()}
    with np.errstate(all="ignore"):
        for number in product(*map(range, reversed(grid))):
            b = _Eager(function.__name__, grid, number)
            with building(b):
                called(**{name: b.argument(function, name, value) for name, value in given.items()})


class _Held(Value):
    """A value with what it is."""

    __slots__ = ("array",)

    def __init__(self, type: Type, array: np.ndarray, op: Op | None = None, name: str = "") -> None:
        super().__init__(type, op, name)
        self.array = array


class _Nothing(dict[Value, int]):
    """Stays empty: what is known of a value is seen by a look at it."""

    def __setitem__(self, value: Value, low: int) -> None:
        pass


class _Values(dict[Value, np.ndarray]):
    def __missing__(self, value: Value) -> np.ndarray:
        assert isinstance(value, _Held)
        return value.array


class _Machine(interpreter._Program):
    """Runs ops on arrays; it says where in the author's file an access lies outside of its buffer."""

    def outside(self, op: Op, what: str) -> NoReturn:
        pointers = [v.name for v in op.operands if v.type.pointer and v.name]
        file, line = _author()
        verb = "load" if op.name.startswith("load") else "store" if op.name.startswith("store") else op.name
        number = self.program[::-1]
        raise OutOfBounds(f"{verb} of {', '.join(pointers) or 'memory'}: {what}, program {number}, at {file}:{line}")

    def owned(self, op: Op) -> None:
        """ValueError if an op writes to memory that is read-only."""
        for v in op.operands:
            if v.type.pointer and v.name and not self.values[v].flags.writeable:
                file, line = _author()
                raise ValueError(f"{op.name.partition('_')[0]} to {v.name}: its memory is read-only, at {file}:{line}")

    def elsewhere(
        self, op: Op, where: np.ndarray, lanes: np.ndarray, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pointers that were loaded may point to any memory of the process."""
        writes = not op.name.startswith("load")
        regions = [(start, end) for start, end, writable in _regions() if writable or not writes]
        for k in np.argwhere(lanes):
            lane = tuple(k)
            address = int(where[lane])
            if not any(start <= address and address + size <= end for start, end in regions):
                self.outside(op, f"address {address:#x}, which is no memory of the process")
            found = np.zeros(where.shape, np.bool_)
            found[lane] = True
            yield np.ctypeslib.as_array((c_uint8 * size).from_address(address)), np.arange(size)[None], found


def _regions() -> Iterator[tuple[int, int, bool]]:
    """The memory that the process may read, where the system says so, and whether it may write there."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        place, permissions, *_ = line.split()
        start, _, end = place.partition("-")
        if permissions.startswith("r"):
            yield int(start, 16), int(end, 16), permissions[1] == "w"


_HERE = os.path.dirname(__file__)
_LIBRARY = (_HERE, os.path.dirname(interpreter.__file__))


def _author() -> tuple[str, int]:
    """The line of the kernel that is running."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame = frame.f_back
    return ("?", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class _Eager(Builder):
    """A builder that computes each op instead of keeping it."""

    __slots__ = ("machine",)

    eager = True

    def __init__(self, name: str, grid: Sequence[int], number: tuple[int, ...]) -> None:
        super().__init__(name, debug=True)
        self.lowest = _Nothing()
        kernel = Kernel(name, (), (), {}, Block())
        self.machine = _Machine(kernel, number, _Values(), {}, {}, {})
        self.grid = tuple([_Held(I64, np.array(n, np.int64)) for n in grid])

    @property
    def line(self) -> Any:
        return _author()

    @line.setter
    def line(self, value: Any) -> None:
        pass

    # -- ops ------------------------------------------------------------------------------------------------------
    def put(self, op: Op) -> tuple[Value, ...]:
        machine = self.machine
        arrays = [machine.values[v] for v in op.operands]
        if op.name in ("store_ptr", "store_view", "atomic"):
            machine.owned(op)
        found = machine.op(op, arrays)
        # Values of regions are gone.
        machine.values = _Values({p: machine.values[p] for p in machine.kernel.params})
        kept = op if op.name in ("const", "int_to_ptr") else None
        results = tuple([_Held(v.type, np.asarray(a), kept) for v, a in zip(op.results, found, strict=True)])
        return results

    def _emit(self, name: str, operands: tuple[Value, ...], type: Type, attrs: dict[str, Any] | None = None) -> Value:
        return self.put(Op(name, operands, (type,), attrs))[0]

    def _effect(self, name: str, operands: tuple[Value, ...], attrs: dict[str, Any] | None = None) -> None:
        self.put(Op(name, operands, (), attrs))

    def split(self, x: Value) -> tuple[Value, Value]:
        half = Type(x.type.dtype, x.type.extents[:-1])
        first, second = self.put(Op("split", (x,), (half, half)))
        return first, second

    def check(self, ok: Value, message: str, mask: Value | None = None) -> None:
        super().check(ok, message, mask)
        if self.machine.failed:
            raise AssertionError(message)

    def origin(self, dtype: str) -> Value:
        if dtype not in self.origins:
            self.origins[dtype] = self.int_to_ptr(self.const(0), dtype)
        return self.origins[dtype]

    # -- arguments ------------------------------------------------------------------------------------------------
    def argument(self, function: FunctionType, name: str, value: Any) -> Any:
        value = unwrap(value)
        if is_constexpr_annotation(function.__annotations__.get(name)):
            return value
        return self._argument(name, value)

    def _argument(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._pointer(name, value)
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            shape = [self.const(int(n)) for n in value.shape]
            strides = [self.const(int(n)) for n in value.strides]
            padding = getattr(value, "padding", "zero")
            return TensorDescriptor(self._pointer(name, value.base), shape, strides, value.block_shape, padding)
        if isinstance(value, np.generic):
            return Tensor(_Held(Type(dtypes.name(value.dtype)), np.asarray(value)), OF_IR[dtypes.name(value.dtype)])
        if is_number(value):
            made = tensor(value)
            return Tensor(_Held(made.value.type, cast("Any", made.value).array), made.dtype)
        if isinstance(value, tuple):
            items = [self._argument(f"{name}.{k}", item) for k, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def _pointer(self, name: str, array: np.ndarray) -> Tensor:
        dtype = dtypes.name(array.dtype)
        flat, start = flattened(array)
        base = _Held(Type(dtype, pointer=True), flat.view(np.uint8) if dtype == "bool" else flat, None, name)
        machine = self.machine
        machine.kernel.params += (base,)
        machine.values[base] = base.array
        machine.origins[base] = start
        return Tensor(self.const(0), pointer_type(OF_IR[dtype]), (), base)


def flattened(array: np.ndarray) -> tuple[np.ndarray, int]:
    """The memory of an array, in one dimension, and where its first element is there."""
    size = array.itemsize
    if any(s % size for s in array.strides):
        raise ValueError(f"an array with strides {array.strides} does not lie at multiples of its elements' size")
    if array.size == 0 or array.ndim == 0:
        return array.reshape(-1), 0
    reach = [(n - 1) * s // size for n, s in zip(array.shape, array.strides)]
    before, after = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    first = array[tuple([slice(-1, None) if s < 0 else slice(1) for s in array.strides])].reshape(1)
    length = (before + after + 1) * size
    return np.lib.stride_tricks.as_strided(first.view(np.uint8), (length,), (1,)).view(array.dtype), before
