"""Running the steps of a plan on the CPU: launches of kernels, and library calls."""

from __future__ import annotations

import ctypes
import struct
from time import perf_counter
from typing import Any

import numpy as np

from . import debug
from .compiler import dtypes, interpreter
from .compiler.expr import Expr
from .compiler.plan import HostStep, KernelStep
from .kernels import Code, code_for
from .runtime import profiler, threads
from .runtime.config import config
from .runtime.memory import Buffer, allocate, as_numpy, wrap

#: How a parameter lies in its slot of 8 bytes, for `struct`; complex parameters take two slots.
_SLOT = {
    "bool": "?7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u8": "B7x", "u16": "H6x", "u32": "I4x",
    "u64": "Q", "f8e4m3": "B7x", "f8e5m2": "B7x", "f16": "e6x", "bf16": "H6x", "f32": "f4x", "f64": "d",
    "c64": "f4xf4x", "c128": "dd",
}  # fmt: skip


#: Types that `struct` does not know, and integers of their size.
_AS_BITS = {"bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8}
#: Bytes moved and operations below which one thread is done before another has woken up, and operations of a product,
#: whose threads wait for each other.
_SERIAL, _SERIAL_TEAM = 1 << 15, 1 << 22


def _packed(value: Any, dtype: str) -> Any:
    """A scalar as `struct` takes it (a complex one's real part)."""
    if dtype in _AS_BITS:
        return int(value.view(_AS_BITS[dtype]))
    return value.real if dtype in dtypes.COMPLEX else value


class Arguments:
    """A kernel step's packed arguments, as a template of values with the places that change."""

    __slots__ = (
        "step", "block", "address", "nbytes", "pack", "template", "pointers", "windows", "scalars", "odd", "errors",
        "workspace",
    )  # fmt: skip

    def __init__(self, step: KernelStep) -> None:
        self.step = step
        self.template: list[Any] = []
        #: (place, slot, byte offset); (place, position of the UPDATE, bytes of an element); (place, position).
        self.pointers: list[tuple[int, int, int]] = []
        self.windows: list[tuple[int, int, int]] = []
        self.scalars: list[tuple[int, int]] = []
        #: Scalars that are not packed as they are: (place, position, dtype).
        self.odd: list[tuple[int, int, str]] = []
        #: Places of the pointers to the word of errors and to the workspace; -1: there is none.
        self.errors = self.workspace = -1
        layout = "="
        for p, arg in zip(step.kernel.params, step.args, strict=True):
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
                    if dtype in _AS_BITS or dtype in dtypes.COMPLEX:
                        self.odd.append((place, arg[1], dtype))
                    else:
                        self.scalars.append((place, arg[1]))
                case "value":
                    value = arg[1]
                case "errors":
                    self.errors = place
                case _:
                    self.workspace = place
            self.template.append(_packed(value, dtype) if arg[0] == "value" else value)
            if dtype in dtypes.COMPLEX and not p.type.pointer:
                self.template.append(value.imag if arg[0] == "value" else 0)
        packing = struct.Struct(layout)
        self.nbytes = packing.size
        self.block = ctypes.create_string_buffer(max(8, packing.size))
        self.address = ctypes.addressof(self.block)
        self.pack = packing.pack_into

    def values(self, nodes: list[Expr], base: list[int]) -> list[Any]:
        """This run's arguments; the workspace's place is left open."""
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
        return values

    def interpret(self, nodes: list[Expr], memory: list[Any], base: list[int], arrays: dict[int, np.ndarray]) -> int:
        """Run the kernel in the NumPy interpreter of the block IR; the number of the check that failed, or 0.

        `arrays` are the bytes of the memory in each slot.
        """
        args: list[Any] = []
        for p, arg in zip(self.step.kernel.params, self.step.args, strict=True):
            dtype = dtypes.NUMPY[p.type.dtype]
            if arg[0] == "pointer":
                _, slot, offset, window, size = arg
                start = base[slot] + offset - memory[slot].address
                if window >= 0:
                    start += nodes[window].attrs[0] * size
                whole = arrays[slot]
                args.append((whole[: len(whole) // size * size].view(dtype), start // size))
            elif arg[0] == "scalar":
                args.append(nodes[arg[1]].attrs)
            elif arg[0] in ("int", "value"):
                args.append(arg[1])
            else:
                args.append(np.zeros(1, dtype))
        failed = interpreter.run(self.step.kernel, args)
        return int(failed[0]) + 1 if failed else 0


class Launch(Arguments):
    """A kernel step on the CPU: its code and its arguments."""

    __slots__ = ("code", "reserves", "frees", "word", "scratch", "programs", "team", "threads")

    def __init__(self, step: KernelStep) -> None:
        super().__init__(step)
        self.code: Code = code_for(step.key, step.kernel)
        self.reserves = step.reserves
        self.frees = step.frees
        self.programs = step.programs
        self.team = bool(step.kernel.attrs.get("team"))
        small = step.flops < _SERIAL_TEAM if self.team else step.bytes + step.flops < _SERIAL
        #: Most threads to use; 0: all.
        self.threads = 1 if step.serial or small else 0
        self.word: np.ndarray | None = None
        if self.errors >= 0:
            self.word = np.zeros(1, np.int64)
            self.template[self.errors] = self.word.ctypes.data
        self.pack(self.block, 0, *self.template)
        self.scratch = self.code.scratch(self.address)

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        for slot, nbytes in self.reserves:
            buffer = memory[slot] = allocate(nbytes)
            base[slot] = buffer.address
        values = self.values(nodes, base)
        count = self.threads
        if self.team:
            count = count or threads.num_threads()
            space = self._workspace(count)
            values[self.workspace] = space.address
        self.pack(self.block, 0, *values)
        if profiler.active or config.debug or self.code.kernel is not None:
            self._run_watched(nodes, memory, base, count)
        else:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, count)
        for slot in self.frees:
            memory[slot] = None
        if self.word is not None and self.word[0]:
            message = self.step.messages[int(self.word[0]) - 1]
            self.word[0] = 0
            raise IndexError(message)

    def _run_watched(self, nodes: list[Expr], memory: list[Any], base: list[int], count: int) -> None:
        """Run with the clock on, or in the interpreter."""
        started = perf_counter()
        if self.code.kernel is None:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, count)
        else:
            arrays = {slot: np.asarray(memory[slot]) for _, slot, _ in self.pointers}
            failed = self.interpret(nodes, memory, base, arrays)
            if self.word is not None:
                self.word[0] = failed
        seconds = perf_counter() - started
        profiler.note(self.step.name, seconds, self.step.bytes, self.programs)
        if "time" in config.debug:
            debug.launched(self.step.name, seconds, self.step.bytes)

    def _workspace(self, count: int) -> Buffer:
        space = allocate(self.code.workspace(self.address, count))
        ctypes.memset(space.address, 0, min(4096, space.nbytes))
        return space


class Call:
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
                arrays.append(self.read(memory[slot], dtype, start + offset, shape, strides))
        started = perf_counter() if profiler.active else 0.0
        value = np.asarray(function(*arrays, *static), dtype=step.dtype)
        if value.shape != step.shape:
            raise AssertionError(f"{step.name} gave shape {value.shape}, not {step.shape}")
        if profiler.active:
            moved = value.nbytes + sum(a.nbytes for a in arrays)
            profiler.note(step.name, perf_counter() - started, moved, 1, kind="library call")
        memory[step.slot] = self.write(value)
        base[step.slot] = memory[step.slot].address
        for slot in step.frees:
            memory[slot] = None

    def read(self, buffer: Any, dtype: Any, offset: int, shape: Any, strides: Any) -> np.ndarray:
        """An operand; it may share the buffer's memory."""
        return as_numpy(buffer, dtype, offset, shape, strides, False)

    def write(self, value: np.ndarray) -> Any:
        """A buffer with a copy of the result."""
        return wrap(value, copy=True)
