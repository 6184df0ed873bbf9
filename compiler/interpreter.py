"""The block IR in NumPy: what a kernel means, one program after another, with every access checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NoReturn

import numpy as np

from . import dtypes, ops, printer, tiles
from .ir import Block, Kernel, Op, Value

_BYTE = np.dtype(np.uint8)
_MOVEMENTS = frozenset(("reshape", "trans", "join", "split", "cat", "gather", "flip", "sort", "histogram"))
_JOINS = {"add": "add", "max": "maximum", "min": "minimum", "and": "bitwise_and", "or": "bitwise_or",
          "xor": "bitwise_xor"}  # fmt: skip


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
        If an access that is not masked lies outside its array, or what a number points to outside all arrays.
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
            extent = size - start if dim.block is None else min(dim.block, size - start)
            if kernel.attrs.get("schedule") == "blocks":
                extent = max(0, extent if dim.bucket is None else min(dim.bucket, extent))
            elif dim.bucket is not None and size > dim.bucket:
                raise ValueError(f"dim {name} has {size} positions, more than its bucket of {dim.bucket}")
            self.extents[name] = extent

    def block(self, block: Block) -> tuple[np.ndarray, ...]:
        """Run a block; the values that it yields."""
        for op in block.ops:
            operands = tuple([self.values[v] for v in op.operands])
            if op.name == "yield":
                return operands
            for value, array in zip(op.results, self.op(op, operands), strict=True):
                if value.type.pointer:
                    self.values[value] = array
                    continue
                shape, dtype = self.shape(value.type.extents), dtypes.NUMPY[value.type.dtype]
                if array.shape != shape or array.dtype != dtype:
                    line, text = printer.locate(self.kernel, op)
                    raise TypeError(f"line {line}: {text}: gave {array.dtype}{list(array.shape)}")
                self.values[value] = array
        return ()

    def joined(self, region: Block, left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a region that joins scalars yields, on all elements of arrays at once."""
        self.values.update(zip(region.args, (*left, *right), strict=True))
        for op in region.ops[:-1]:
            self.values[op.result] = self.value(op, [self.values[v] for v in op.operands])
        return [np.broadcast_to(self.values[v], left[0].shape) for v in region.ops[-1].operands]

    def shape(self, extents: tuple[int | str, ...]) -> tuple[int, ...]:
        return tuple([self.extents[e] if isinstance(e, str) else e for e in extents])

    def op(self, op: Op, x: Sequence[np.ndarray]) -> Iterable[np.ndarray]:
        match op.name:
            case "for":
                return self.loop(op, x)
            case "while":
                return self.while_(op, x)
            case "reduce_by":
                return tiles.reduce_by(partial(self.joined, op.regions[0]), x, op.attrs["dims"][0])
            case "scan_by":
                return tiles.scan_by(partial(self.joined, op.regions[0]), x, op.attrs["dim"], op.attrs["reverse"])
            case "atomic":
                return (self.atomic(op, x),)
            case "gather" if np.any((x[1] < 0) | (x[1] >= x[0].shape[op.attrs["dim"]])):
                self.outside(op, "an index of a gather")
            case name if name in _MOVEMENTS:
                return tiles.move(name, op.attrs, self.shape(op.results[0].type.extents), x)
            case "assume" | "barrier":
                pass
            case "print":
                program = (*self.program[::-1], 0, 0, 0)[:3]
                for line in tiles.lines(op.attrs["prefix"], op.attrs["hex"], program, x):
                    print(line, flush=True)
            case "if":
                return self.block(op.regions[0 if x[0] else 1])
            case "store_view":
                index, inside = self.window(op, x[2:], x[0].shape)
                self.store(op, x[0], x[1], index, inside)
            case "store_ptr":
                inside = x[3] if len(x) > 3 else np.ones(x[2].shape, np.bool_)
                self.store(op, x[0], x[1], x[2], inside)
            case "check":
                if not (x[0] if len(x) == 1 else x[0] | ~x[1]).all():
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
            case "bitcast":
                return x[0].view(dtype)
            case "hint":
                return x[0]
            case "ptr_to_int":
                return np.array(self.address(op.operands[0]), dtype)
            case "int_to_ptr":
                return x[0]
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
        made = op.operands[2].op
        if step == 0 or (step < 0 and (made is None or made.name != "const")):
            raise ValueError(f"a loop of kernel @{self.kernel.name} has step {step}")
        (body,) = op.regions
        carried = x[3:]
        for index in range(lower, upper, step):
            self.values.update(zip(body.args, (np.array(index, x[0].dtype), *carried), strict=True))
            carried = self.block(body)
        return carried

    def while_(self, op: Op, x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        first, second = op.regions
        while True:
            self.values.update(zip(first.args, x, strict=True))
            going, *values = self.block(first)
            if not going:
                return values
            self.values.update(zip(second.args, values, strict=True))
            x = self.block(second)

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
        result[inside] = self.read(op, op.operands[0], buffer, index[inside]).astype(dtype)
        return result

    def store(self, op: Op, value: np.ndarray, buffer: np.ndarray, index: np.ndarray, inside: np.ndarray) -> None:
        if "combine" in op.attrs:
            where = self.checked(op, op.operands[1], buffer, index[inside])
            join = np.add if op.attrs["combine"] == "add" else np.maximum
            join.at(buffer, where, value[inside].astype(buffer.dtype))
        else:
            self.write(op, op.operands[1], buffer, index[inside], value[inside])

    def atomic(self, op: Op, x: Sequence[np.ndarray]) -> np.ndarray:
        """Lane after lane."""
        kind, dtype = op.attrs["kind"], dtypes.NUMPY[op.result.type.dtype]
        at = 2 if kind == "cas" else 1
        pointer, buffer, index = op.operands[at], x[at], x[at + 1]
        inside = x[at + 2] if len(x) > at + 2 else np.ones(index.shape, np.bool_)
        result = np.zeros(index.shape, dtype)
        for lane in np.argwhere(inside):
            lane = tuple(lane)
            place = np.reshape(index[lane], 1)
            old = self.read(op, pointer, buffer, place).astype(dtype)
            new = x[at - 1][lane].reshape(1)
            if kind == "cas":
                new = new if old.tobytes() == x[0][lane].tobytes() else old
            elif kind != "xchg":
                new = ops.interpret(_JOINS[kind], old, new)
            self.write(op, pointer, buffer, place, new)
            result[lane] = old[0]
        return result

    # -- memory, by indices of one dimension --------------------------------------------------------------------------
    def read(self, op: Op, pointer: Value, buffer: np.ndarray, index: np.ndarray) -> np.ndarray:
        if pointer.op is None:
            return buffer[self.checked(op, pointer, buffer, index)]
        dtype = _held(pointer)
        result = np.empty(index.shape, dtype)
        for memory, at, lanes in self.places(op, int(buffer), index, dtype.itemsize):
            result[lanes] = np.ascontiguousarray(memory[at]).view(dtype)[:, 0]
        return result

    def write(self, op: Op, pointer: Value, buffer: np.ndarray, index: np.ndarray, value: np.ndarray) -> None:
        if pointer.op is None:
            buffer[self.checked(op, pointer, buffer, index)] = value
            return
        dtype = _held(pointer)
        for memory, at, lanes in self.places(op, int(buffer), index, dtype.itemsize):
            memory[at] = value[lanes].astype(dtype).reshape(-1, 1).view(_BYTE)

    def places(
        self, op: Op, address: int, index: np.ndarray, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Which bytes of which buffer each lane's element is."""
        where = address + index.astype(np.int64) * size
        left = np.ones(where.shape, np.bool_)
        for p in self.kernel.params:
            if p.type.pointer:
                memory = self.values[p].view(_BYTE)
                offset = where - memory.ctypes.data
                lanes = left & (offset >= 0) & (offset + size <= memory.size)
                left &= ~lanes
                if lanes.any():
                    yield memory, offset[lanes, None] + np.arange(size), lanes
        if left.any():
            yield from self.elsewhere(op, where, left, size)

    def elsewhere(
        self, op: Op, where: np.ndarray, lanes: np.ndarray, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The same of addresses that are in no argument's memory."""
        self.outside(op, f"address {where[lanes][0]:#x}, which is in no argument's memory")

    def address(self, pointer: Value) -> int:
        buffer = self.values[pointer]
        if pointer.op is not None:
            return int(buffer)
        return buffer.ctypes.data + self.origins.get(pointer, 0) * buffer.itemsize

    def scan(self, op: Op, x: Sequence[np.ndarray]) -> np.ndarray:
        dim = op.attrs["dim"]
        if op.attrs.get("reverse"):
            return np.flip(_scan(op.attrs["kind"], [np.flip(x[0], dim), *x[1:]], dim), dim)
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
            self.outside(op, f"element {outside[0]} of {len(buffer)}")
        return index

    def outside(self, op: Op, what: str) -> NoReturn:
        line, text = printer.locate(self.kernel, op)
        raise OutOfBounds(f"line {line}: {text}: {what}, program {self.program}")


def _held(pointer: Value) -> np.dtype:
    """The dtype of a pointer's elements in memory."""
    return _BYTE if pointer.type.dtype == "bool" else dtypes.NUMPY[pointer.type.dtype]


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
