"""Running the steps of a plan on the CPU: launches of kernels, and library calls."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from . import debug
from .compiler import dtypes, interpreter
from .compiler.expr import Expr
from .compiler.plan import HostStep, KernelStep
from .kernels import Code, code_for
from .runtime import profiler, slots, threads
from .runtime.config import config
from .runtime.memory import allocate, as_numpy, wrap

#: Types that `struct` does not know, and integers of their size.
_AS_BITS = {"bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8}
#: Bytes moved and operations below which one thread is done before another has woken up, and operations of a product,
#: whose threads wait for each other.
_SERIAL, _SERIAL_TEAM = 1 << 15, 1 << 22
#: Bytes of workspace and scratch that steps on one thread share, and what a workspace begins with.
_SHARED = 1 << 18
_ZEROS = bytes(4096)


def _parts(value: str, dtype: str) -> list[str]:
    """Expressions of what `struct` takes for a scalar, from that of the scalar."""
    if dtype in _AS_BITS:
        return [f"int({value}.view({dtype}))"]
    return [f"{value}.real", f"{value}.imag"] if dtype in dtypes.COMPLEX else [value]


class Arguments:
    """A kernel step's argument block.

    Attributes
    ----------
    pack : (nodes, base, errors, workspace)
        Fill the block for a graph, by the addresses of its slots, of the word of errors and of the workspace.  It is a
        function of its own, made for the step: this is the path of every warm flush.
    checked, works : bool
        Whether the kernel has a word of errors, and a workspace.
    """

    __slots__ = ("step", "block", "address", "nbytes", "pack", "checked", "works")

    def __init__(self, step: KernelStep) -> None:
        self.step = step
        self.checked = ("errors",) in step.args
        self.works = ("workspace",) in step.args
        kinds = ["pointer" if p.type.pointer else p.type.dtype for p in step.kernel.params]
        layout = slots.layout(kinds)
        self.nbytes = layout.size
        self.block = ctypes.create_string_buffer(max(8, self.nbytes))
        self.address = ctypes.addressof(self.block)
        values: list[str] = []
        names: dict[str, Any] = {"pack_into": layout.pack_into, "block": self.block, **_AS_BITS}
        for kind, arg in zip(kinds, step.args, strict=True):
            match arg:
                case ("int", value):
                    # Sizes are there before the first run: what else a kernel needs depends on them.
                    struct.pack_into("=q", self.block, 8 * len(values), value)
                    values.append(str(value))
                case ("pointer", slot, offset, window, size):
                    moved = f" + nodes[{window}].attrs[0] * {size}" if window >= 0 else ""
                    values.append(f"base[{slot}] + {offset}{moved}")
                case ("scalar", position):
                    values += _parts(f"nodes[{position}].attrs", kind)
                case ("value", value):
                    names[name := f"value{len(values)}"] = value
                    values += _parts(name, kind)
                case (name,):
                    values.append(name)
        self.pack = eval(f"lambda nodes, base, errors, workspace: pack_into(block, 0, {', '.join(values)})", names)

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

    __slots__ = ("code", "reserves", "frees", "word", "errors", "scratch", "programs", "team", "threads", "job")

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
        self.word = np.zeros(1, np.int64) if self.checked else None
        self.errors = 0 if self.word is None else self.word.ctypes.data
        self.scratch = self.code.scratch(self.address)
        #: On one thread, with little memory beside: what `threads.serial` runs.
        self.job = self._job() if self.threads == 1 and self.code.kernel is None else None

    def _job(self) -> Any:
        space = self.code.workspace(self.address, 1) + 63 & -64 if self.team else 0
        programs = 1 if self.team else self.programs
        if programs < 1 or space + self.scratch > _SHARED:
            return None
        return (ctypes.c_int64 * 4)(self.code.address, self.address, programs, _shared().address + space)

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        for slot, nbytes in self.reserves:
            buffer = memory[slot] = allocate(nbytes)
            base[slot] = buffer.address
        if self.job is not None and not profiler.active and not config.debug:
            workspace = 0
            if self.team:
                shared = _shared()
                workspace = shared.address
                shared.zeroed[:] = _ZEROS
            self.pack(nodes, base, self.errors, workspace)
            threads.serial(self.job)
        else:
            self._run_any(nodes, memory, base)
        for slot in self.frees:
            memory[slot] = None
        if self.word is not None and self.word[0]:
            message = self.step.messages[int(self.word[0]) - 1]
            self.word[0] = 0
            raise IndexError(message)

    def _run_any(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        """Run on several threads, with much memory beside, with the clock on, or in the interpreter."""
        count = self.threads
        workspace = 0
        if self.team:
            count = count or threads.num_threads()
            space = allocate(self.code.workspace(self.address, count))
            ctypes.memset(space.address, 0, min(len(_ZEROS), space.nbytes))
            workspace = space.address
        self.pack(nodes, base, self.errors, workspace)
        if profiler.active or config.debug or self.code.kernel is not None:
            self._run_watched(nodes, memory, base, count)
        else:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, count)

    def _run_watched(self, nodes: list[Expr], memory: list[Any], base: list[int], count: int) -> None:
        """Run with the clock on, or in the interpreter."""
        started = perf_counter()
        if self.code.kernel is None:
            threads.launch(self.code.address, self.address, self.programs, self.scratch, self.team, count)
        else:
            arrays = {arg[1]: np.asarray(memory[arg[1]]) for arg in self.step.args if arg[0] == "pointer"}
            failed = self.interpret(nodes, memory, base, arrays)
            if self.word is not None:
                self.word[0] = failed
        seconds = perf_counter() - started
        profiler.note(self.step.name, seconds, self.step.bytes, self.programs)
        if "time" in config.debug:
            debug.launched(self.step.name, seconds, self.step.bytes)


class _Shared:
    """Memory beside the arrays for steps on one thread, which have it one after the other: a flush holds a lock."""

    def __init__(self) -> None:
        self.buffer = allocate(_SHARED)
        self.address = self.buffer.address
        self.zeroed = memoryview((ctypes.c_char * len(_ZEROS)).from_address(self.address)).cast("B")


@cache
def _shared() -> _Shared:
    return _Shared()


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
