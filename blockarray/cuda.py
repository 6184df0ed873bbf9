"""NVIDIA GPUs: running the steps of a plan on one, and elements on their way there and back.

Work is queued in the order of the device's stream, and the host waits only where it reads.  What a kernel's checks
found is raised then.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from . import debug
from .compiler.expr import Expr, Shape
from .compiler.plan import HostStep, KernelStep
from .kernels import code_for
from .launch import Arguments, Call
from .runtime import profiler
from .runtime.config import config
from .runtime.cuda import copies, streams, words
from .runtime.cuda.launch import launch
from .runtime.cuda.memory import Buffer, allocate
from .runtime.device import CPU, CudaDevice
from .runtime.memory import as_numpy

#: Launches whose checks nobody has looked at yet, by device (as a set that keeps the order).
_unchecked: dict[CudaDevice, dict[CudaLaunch, None]] = {}


def put(value: np.ndarray, device: CudaDevice) -> Buffer:
    """A buffer on a device with a NumPy array's elements, in C order."""
    target = allocate(device, value.nbytes)
    if value.nbytes:
        started = perf_counter() if profiler.active else 0.0
        copies.copy_from_host(value, target)
        if profiler.active:
            profiler.note(f"copy to {device}", perf_counter() - started, value.nbytes, 1)
    return target


def upload(source: Any, device: CudaDevice) -> Buffer:
    """A buffer on a device with the bytes of one on the host or on another device."""
    if source.device is CPU:
        return put(np.asarray(source), device)
    target = allocate(device, source.nbytes)
    if source.nbytes:
        copies.copy(source, 0, target, 0, source.nbytes)
    return target


def download(buffer: Buffer, dtype: np.dtype, offset: int, shape: Shape, strides: Shape) -> np.ndarray:
    """Elements of a buffer as a NumPy array of its own: waits for them.

    One copy fetches everything between the first and the last element.

    Raises
    ------
    IndexError
        If a check in a kernel that ran on the device failed.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    reach = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low = offset + sum([min(r, 0) for r in reach])
    count = offset + sum([max(r, 0) for r in reach]) - low + 1
    started = perf_counter() if profiler.active else 0.0
    elements = np.empty(count, dtype)
    copies.copy_to_host(buffer, low * dtype.itemsize, elements.view(np.uint8))
    if profiler.active:
        profiler.note(f"copy from {buffer.device}", perf_counter() - started, elements.nbytes, 1)
    check(buffer.device)
    steps = tuple([s * dtype.itemsize for s in strides])
    return np.ndarray(shape, dtype, elements, (offset - low) * dtype.itemsize, steps)


def check(device: CudaDevice) -> None:
    """Raise what the checks in kernels found; everything that was queued has run.

    Raises
    ------
    IndexError
        If an index array held an index that is out of bounds.
    """
    waiting = _unchecked.pop(device, None)
    if waiting:
        failed = [message for message in [call.failure() for call in waiting] if message]
        if failed:
            raise IndexError(failed[0])


def synchronize() -> None:
    """Wait until all devices that work was given to are done.

    Raises
    ------
    IndexError
        If a check in a kernel failed.
    """
    for device in tuple(used):
        device.synchronize()
        check(device)


#: Devices that something was launched on.
used: dict[CudaDevice, None] = {}


class CudaLaunch(Arguments):
    """A kernel step on a GPU: its code and its arguments."""

    __slots__ = ("code", "device", "word", "programs")

    def __init__(self, step: KernelStep, device: CudaDevice) -> None:
        super().__init__(step)
        self.device = device
        self.programs = step.programs
        self.code = code_for(step.key, step.kernel, device)
        self.word = None
        if self.errors >= 0:
            self.word = words.error_word(device)
            self.template[self.errors] = self.word.address
        used[device] = None

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        device = self.device
        for slot, nbytes in self.step.writes:
            buffer = memory[slot] = allocate(device, nbytes)
            base[slot] = buffer.address
        values = self.values(nodes, base)
        space = None
        if self.workspace >= 0 and self.code.kernel is None:
            function = self.code.function
            space = allocate(device, function.workspace(self.programs))
            if function.header.get("workspace_zeroed"):
                copies.clear(space)
            values[self.workspace] = space.address
        self.pack(self.block, 0, *values)
        if self.code.kernel is not None:
            self._interpret(nodes, memory, base)
        elif profiler.active or config.debug:
            self._run_watched()
        else:
            launch(self.code.function, device, self.address, self.nbytes, self.programs)
        for slot in self.step.frees:
            memory[slot] = None
        if self.word is not None:
            _unchecked.setdefault(device, {})[self] = None

    def failure(self) -> str | None:
        """What the check that failed says; forgets it."""
        assert self.word is not None
        number = int(self.word.view[0])
        if not number:
            return None
        self.word.view[0] = 0
        return self.step.messages[number - 1]

    def _run_watched(self) -> None:
        """Run between two events."""
        step = self.step
        before = streams.Event(self.device, timing=True).record()
        launch(self.code.function, self.device, self.address, self.nbytes, self.programs)
        after = streams.Event(self.device, timing=True).record()
        profiler.note(step.name, lambda: before.elapsed(after), step.bytes, self.programs)
        if "time" in config.debug:
            debug.launched(step.name, before.elapsed(after), step.bytes)

    def _interpret(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        """Run the kernel in the NumPy interpreter of the block IR, on copies of its memory."""
        started = perf_counter()
        buffers = {slot: memory[slot] for _, slot, _ in self.pointers}
        arrays = {slot: np.empty(b.nbytes, np.uint8) for slot, b in buffers.items()}
        for slot, array in arrays.items():
            copies.copy_to_host(buffers[slot], 0, array)
        failed = self.interpret(nodes, memory, base, arrays)
        if self.word is not None and failed:
            self.word.view[0] = failed
        written = {slot for slot, _ in self.step.writes} | {arg[1] for arg in self.step.args if arg[0] == "pointer"}
        for slot in written:
            copies.copy_from_host(arrays[slot], buffers[slot])
        profiler.note(self.step.name, perf_counter() - started, self.step.bytes, self.programs)


class CudaCall(Call):
    """A library call on the host, whose operands and result live on a GPU."""

    __slots__ = ("device",)

    def __init__(self, step: HostStep, device: CudaDevice) -> None:
        super().__init__(step)
        self.device = device

    def read(self, buffer: Any, dtype: Any, offset: int, shape: Any, strides: Any) -> np.ndarray:
        return download(buffer, dtype, offset, shape, strides)

    def write(self, value: np.ndarray) -> Any:
        return put(value, self.device)


def as_host(buffer: Any, dtype: np.dtype, offset: int, shape: Shape, strides: Shape) -> np.ndarray:
    """Elements of a buffer, wherever it is, read-only: the host's memory itself, or a copy of a GPU's."""
    if buffer.device is CPU:
        return as_numpy(buffer, dtype, offset, shape, strides, False)
    result = download(buffer, dtype, offset, shape, strides)
    result.flags.writeable = False
    return result
