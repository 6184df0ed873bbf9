"""The block IR in NumPy: what a kernel means, one program after another, with every access checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from . import dtypes, ops, printer
from .ir import Block, Kernel, Op, Value

_BYTE = np.dtype(np.uint8)


class OutOfBounds(IndexError):
    """A kernel touched memory outside a buffer."""


def run(kernel: Kernel, args: Sequence[Any]) -> list[str]:
    """Run every program of a kernel's grid.

    Parameters
    ----------
    kernel : Kernel
        A verified kernel.
    args : sequence
        One argument a parameter: for a pointer a 1-D array, whose element 0 it points to, or (array, position pointed
        to), else a scalar.  Stores change the arrays.

    Returns
    -------
    list of str
        The messages of the checks that failed, each once, in the order of their first failures.

    Raises
    ------
    OutOfBounds
        If an access that is not masked lies outside its array.
    """
    if len(args) != len(kernel.params):
        raise TypeError(f"kernel @{kernel.name} takes {len(kernel.params)} arguments, not {len(args)}")
    values: dict[Value, np.ndarray] = {}
    origins: dict[Value, int] = {}
    for p, arg in zip(kernel.params, args):
        if isinstance(arg, tuple):
            arg, origins[p] = arg
        dtype = dtypes.NUMPY[p.type.dtype]
        values[p] = _buffer(p, arg) if p.type.pointer else np.asarray(arg, dtype)
    counts = [-(-int(values[axis.size]) // axis.block) for axis in kernel.grid]
    failed: dict[str, None] = {}
    ends: dict[Any, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for program in product(*map(range, counts)):
            _Program(kernel, program, dict(values), origins, failed, ends).block(kernel.body)
    return list(failed)


def _buffer(p: Value, arg: Any) -> np.ndarray:
    dtype = dtypes.NUMPY[p.type.dtype]
    if not isinstance(arg, np.ndarray) or arg.ndim != 1 or arg.dtype != dtype:
        raise TypeError(f"parameter %{p.name} takes a 1-D array of {dtype}")
    # Any non-zero byte is True.
    return arg.view(_BYTE) if p.type.dtype == "bool" else arg


class _Program:
    def __init__(
        self,
        kernel: Kernel,
        program: tuple[int, ...],
        values: dict[Value, np.ndarray],
        origins: dict[Value, int],
        failed: dict[str, None],
        ends: dict[Any, np.ndarray],
    ) -> None:
        self.kernel = kernel
        #: Where each scan ended, by op and the program's other coordinates.
        self.ends = ends
        self.program = program
        self.values = values
        self.origins = origins
        self.failed = failed
        self.starts: dict[str, int] = {}
        self.extents: dict[str, int] = {}
        for name, dim in kernel.dims.items():
            size = int(values[dim.size])
            start = 0 if dim.block is None or dim.axis is None else program[dim.axis] * dim.block
            self.starts[name] = start
            if dim.bucket is not None and size > dim.bucket:
                raise ValueError(f"dim {name} has {size} positions, more than its bucket of {dim.bucket}")
            self.extents[name] = size - start if dim.block is None else min(dim.block, size - start)

    def block(self, block: Block) -> tuple[np.ndarray, ...]:
        """Run a block; the values that it yields."""
        for op in block.ops:
            operands = tuple([self.values[v] for v in op.operands])
            if op.name == "yield":
                return operands
            for value, array in zip(op.results, self.op(op, operands), strict=True):
                shape, dtype = self.shape(value.type.extents), dtypes.NUMPY[value.type.dtype]
                if array.shape != shape or array.dtype != dtype:
                    line, text = printer.locate(self.kernel, op)
                    raise TypeError(f"line {line}: {text}: gave {array.dtype}{list(array.shape)}")
                self.values[value] = array
        return ()

    def shape(self, extents: tuple[int | str, ...]) -> tuple[int, ...]:
        return tuple([self.extents[e] if isinstance(e, str) else e for e in extents])

    def op(self, op: Op, x: Sequence[np.ndarray]) -> Iterable[np.ndarray]:
        match op.name:
            case "for":
                return self.loop(op, x)
            case "if":
                return self.block(op.regions[0 if x[0] else 1])
            case "store_view":
                index, inside = self.window(op, x[2:], x[0].shape)
                self.store(op, x[0], x[1], index, inside)
            case "store_ptr":
                inside = x[3] if len(x) > 3 else np.ones(x[2].shape, np.bool_)
                self.store(op, x[0], x[1], x[2], inside)
            case "check":
                if not x[0].all():
                    self.failed[op.attrs["message"]] = None
            case _:
                return (self.value(op, x),)
        return ()

    def value(self, op: Op, x: Sequence[np.ndarray]) -> np.ndarray:
        type = op.result.type
        dtype = dtypes.NUMPY[type.dtype]
        match op.name:
            case "const":
                return np.array(op.attrs["value"], dtype)
            case "program_id":
                return np.array(self.program[op.attrs["axis"]], dtype)
            case "dim_start":
                return np.array(self.starts[op.attrs["dim"]], dtype)
            case "dim_extent":
                return np.array(self.extents[op.attrs["dim"]], dtype)
            case "iota":
                return np.arange(*self.shape(type.extents), dtype=dtype)
            case "cast":
                return np.asarray(dtypes.cast_array(x[0], dtype))
            case "broadcast":
                shape = self.shape(type.extents)
                own = [n if k in op.attrs["dims"] else 1 for k, n in enumerate(shape)]
                return np.broadcast_to(x[0].reshape(own), shape)
            case "load_view":
                index, inside = self.window(op, x[1:], self.shape(type.extents))
                return self.load(op, x[0], index, inside)
            case "load_ptr":
                inside = x[2] if len(x) > 2 else np.ones(x[1].shape, np.bool_)
                return self.load(op, x[0], x[1], inside)
            case "reduce":
                return _reduce(op.attrs["kind"], x[0], op.attrs["dims"])
            case "argreduce":
                return _argreduce(op.attrs["kind"], x[0], x[1], op.attrs["dims"])
            case "scan":
                return self.scan(op, x)
            case "dot":
                wide = dtypes.NUMPY["f32"] if type.dtype in dtypes.NARROW else dtype
                y = x[0].astype(wide) @ x[1].astype(wide)
                return (y + x[2].astype(wide) if len(x) > 2 else y).astype(dtype)
            case name:
                return ops.interpret(name, *x)

    def loop(self, op: Op, x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        lower, upper, step = (int(v) for v in x[:3])
        if step <= 0:
            raise ValueError(f"a loop of kernel @{self.kernel.name} has step {step}")
        (body,) = op.regions
        carried = x[3:]
        for index in range(lower, upper, step):
            self.values.update(zip(body.args, (np.array(index, np.int64), *carried), strict=True))
            carried = self.block(body)
        return carried

    # -- memory -------------------------------------------------------------------------------------------------------
    def window(self, op: Op, x: Sequence[np.ndarray], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The indices of a view's elements, and which of them lie within its bounds; x is offset, strides, bounds."""
        index = np.full(shape, x[0], np.int64)
        inside = np.ones(shape, np.bool_)
        rank = len(shape)
        for k, t in enumerate(np.ogrid[tuple(map(slice, shape))]):
            index += t * x[1 + k]
            if op.attrs.get("bounded"):
                inside &= t < x[1 + rank + k]
        return index, inside

    def load(self, op: Op, buffer: np.ndarray, index: np.ndarray, inside: np.ndarray) -> np.ndarray:
        dtype = dtypes.NUMPY[op.result.type.dtype]
        result = np.full(index.shape, op.attrs.get("other", 0), dtype)
        result[inside] = buffer[self.checked(op, op.operands[0], buffer, index[inside])].astype(dtype)
        return result

    def store(self, op: Op, value: np.ndarray, buffer: np.ndarray, index: np.ndarray, inside: np.ndarray) -> None:
        where = self.checked(op, op.operands[1], buffer, index[inside])
        if "combine" in op.attrs:
            join = np.add if op.attrs["combine"] == "add" else np.maximum
            join.at(buffer, where, value[inside].astype(buffer.dtype))
        else:
            buffer[where] = value[inside]

    def scan(self, op: Op, x: Sequence[np.ndarray]) -> np.ndarray:
        dim = op.attrs["dim"]
        if not op.attrs.get("across"):
            return _scan(op.attrs["kind"], x, dim)
        extent = op.result.type.extents[dim]
        assert isinstance(extent, str)
        axis = self.kernel.dims[extent].axis
        assert axis is not None
        row = op, self.program[:axis], self.program[axis + 1 :]
        carry = [self.ends[row]] if self.program[axis] else []
        y = _scan(op.attrs["kind"], [x[0], *carry], dim)
        self.ends[row] = np.take(y, -1, axis=dim)
        return y

    def checked(self, op: Op, pointer: Value, buffer: np.ndarray, index: np.ndarray) -> np.ndarray:
        index = index + self.origins.get(pointer, 0)
        outside = index[(index < 0) | (index >= len(buffer))]
        if outside.size:
            line, text = printer.locate(self.kernel, op)
            raise OutOfBounds(f"line {line}: {text}: element {outside[0]} of {len(buffer)}, program {self.program}")
        return index


def _reduce(kind: str, x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    row = ops.TABLE[kind]
    assert row.numpy is not None and row.identity is not None
    if x.size == 0:
        kept = tuple(n for k, n in enumerate(x.shape) if k not in dims)
        return np.full(kept, row.identity(dtypes.name(x.dtype)), x.dtype)
    return np.asarray(row.numpy(x, axis=dims))


def _argreduce(kind: str, x: np.ndarray, index: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """NaN wins, then the extreme value, then the lowest index; of no lanes, the largest i64."""
    best = _reduce("max" if kind == "argmax" else "min", x, dims)
    best = np.expand_dims(best, dims)
    wins = np.where(np.isnan(best), np.isnan(x), x == best) if x.dtype.kind not in "biu" else x == best
    none = np.iinfo(np.int64).max
    return np.min(np.where(wins, index, none), axis=dims, initial=none)


def _scan(kind: str, x: Sequence[np.ndarray], dim: int) -> np.ndarray:
    """A carry comes before the first position."""
    row = ops.TABLE[kind]
    assert row.numpy is not None
    if len(x) == 1:
        return row.numpy(x[0], axis=dim)
    whole = row.numpy(np.concatenate([np.expand_dims(x[1], dim), x[0]], axis=dim), axis=dim)
    return np.delete(whole, 0, axis=dim)
