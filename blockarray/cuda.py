"""NVIDIA GPUs: running the steps of a plan on one, and elements on their way there and back.

Work is queued in the order of the device's stream, and the host waits only where it reads.  What a kernel's checks
found is raised then, to those who read what the kernel computed, or what was computed from it.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from . import checks, debug
from .checks import Check
from .compiler.expr import Expr, Shape
from .compiler.plan import HostStep, KernelStep
from .kernels import code_for
from .launch import Arguments, Call
from .runtime import profiler
from .runtime.config import config
from .runtime.cuda import copies, streams
from .runtime.cuda.launch import Repeated
from .runtime.cuda.memory import Buffer, allocate
from .runtime.cuda.tensor_maps import TensorMaps
from .runtime.device import CPU, CudaDevice
from .runtime.memory import as_numpy


def put(value: np.ndarray, device: CudaDevice) -> Buffer:
    """A buffer on a device with a NumPy array's elements, in C order."""
    target = allocate(device, value.nbytes)
    if value.nbytes:
        started = perf_counter() if profiler.active else 0.0
        copies.copy_from_host(value, target)
        if value.nbytes <= _SMALL:
            _mirrors[target] = np.frombuffer(value.tobytes(), np.uint8)
            _known.add(target)
        if profiler.active:
            profiler.note(f"copy to {device}", perf_counter() - started, value.nbytes, 0, kind="copy")
    return target


def upload(source: Any, device: CudaDevice) -> Buffer:
    """A buffer on a device with the bytes of one on the host or on another device."""
    if source.device is CPU:
        return put(np.asarray(source), device)
    return copied(source, 0, source.nbytes, device)


def copied(source: Buffer, offset: int, nbytes: int, device: CudaDevice) -> Buffer:
    """A buffer on a device with bytes of one on that or another device."""
    target = allocate(device, nbytes)
    if nbytes:
        copies.copy(source, offset, target, 0, nbytes)
    if source in checks.suspects:
        checks.suspects[target] = checks.suspects[source]
    return target


#: Host copies of small buffers, until something is written to them: elements are often read one by one.
_mirrors: WeakKeyDictionary[Buffer, np.ndarray] = WeakKeyDictionary()
#: Those among them whose elements come from the host: whether they are known does not depend on what was read.
_known: WeakSet[Buffer] = WeakSet()
_SMALL = 8192
_BYTE = np.dtype(np.uint8)


def forget(buffer: Any) -> None:
    """Note that a buffer's elements may change."""
    if buffer.__weakref__ is None:  # no table has it
        return
    _mirrors.pop(buffer, None)
    _known.discard(buffer)


def is_known(buffer: Any) -> bool:
    """Whether a buffer's elements come from the host, which has them still."""
    return buffer.device is CPU or buffer in _known or not buffer.nbytes


def download(
    buffer: Buffer, dtype: np.dtype, offset: int, shape: Shape, strides: Shape, keep: bool = False
) -> np.ndarray:
    """Elements of a buffer as a NumPy array, which must not be written to: waits for them.

    One copy fetches everything between the first and the last element.

    Parameters
    ----------
    buffer, dtype, offset, shape, strides
        The window, in elements.
    keep : bool
        Whether a copy of a small buffer may be kept for the next time: only kernels write to it.

    Raises
    ------
    IndexError
        If a check failed in a kernel that they come from.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = tuple([s * dtype.itemsize for s in strides])
    if buffer in _mirrors:
        return np.ndarray(shape, dtype, _mirrors[buffer], offset * dtype.itemsize, steps)
    if keep and buffer.nbytes <= _SMALL:
        mirror = np.ascontiguousarray(download(buffer, _BYTE, 0, (buffer.nbytes,), (1,)))
        _mirrors[buffer] = mirror
        return np.ndarray(shape, dtype, mirror, offset * dtype.itemsize, steps)
    reach = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low = offset + sum([min(r, 0) for r in reach])
    count = offset + sum([max(r, 0) for r in reach]) - low + 1
    waiting = checks.launched(buffer.device)
    started = perf_counter() if profiler.active else 0.0
    elements = np.empty(count, dtype)
    copies.copy_to_host(buffer, low * dtype.itemsize, elements.view(np.uint8))
    if profiler.active:
        profiler.note(f"copy from {buffer.device}", perf_counter() - started, elements.nbytes, 0, kind="copy")
    checks.settle(waiting)
    checks.raise_for(buffer)
    return np.ndarray(shape, dtype, elements, (offset - low) * dtype.itemsize, steps)


#: Workspaces that kernels leave as they found them: what was zero is zero again.
_kept: dict[CudaDevice, Buffer] = {}


def _kept_workspace(device: CudaDevice, nbytes: int) -> Buffer:
    """So many bytes at least, the first of which are zero before each kernel: none need be cleared between two."""
    space = _kept.get(device)
    if space is None or space.nbytes < nbytes:
        space = _kept[device] = allocate(device, nbytes)
        copies.clear(space, 0, None)
    return space


class CudaLaunch(Arguments):
    """A kernel step on a GPU: its code and its arguments."""

    __slots__ = ("code", "device", "programs", "maps", "repeated", "outputs", "rewritten", "reserves", "frees", "plain")

    def __init__(self, step: KernelStep, device: CudaDevice) -> None:
        super().__init__(step)
        self.device = device
        self.code = code_for(step.key, step.kernel, device)
        #: Programs to launch: the grid's, unless the compiler wants another number of them.
        self.programs = step.programs
        self.maps: TensorMaps | None = None
        #: The launch, once there was one.
        self.repeated: Repeated | None = None
        if step.programs and self.code.function is not None:
            header = self.code.function.header
            self.programs = header.get("programs", step.programs)
            if "maps" in header:
                self.maps = TensorMaps(header["maps"], self.block, self.nbytes)
        #: Slots of memory that was there before, and of all that it writes to.
        self.rewritten = set(step.changes) - {slot for slot, _ in step.writes}
        self.outputs = {slot for slot, _ in step.writes} | self.rewritten
        self.reserves = step.reserves
        self.frees = step.frees
        #: Whether there is nothing but code and the plan's own arguments.
        self.plain = not self.checked and not self.works and self.code.kernel is None
        checks.used[device] = None

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        device = self.device
        for slot, nbytes in self.reserves:
            buffer = memory[slot] = allocate(device, nbytes)
            base[slot] = buffer.address
        if self.plain and not profiler.active and not config.debug:
            self.pack(nodes, base, 0, 0)
            self._launch()
            check = None
        else:
            check = self._run_with_care(nodes, memory, base)
        if check is not None or checks.suspects:
            checks.spread(check, [memory[slot] for slot in self.step.reads], [memory[slot] for slot in self.outputs])
        for slot in self.rewritten:
            forget(memory[slot])
        for slot in self.frees:
            memory[slot] = None

    def _run_with_care(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> Check | None:
        """Run a kernel with checks or a workspace, between two events or in the interpreter; its checks."""
        check = Check(self.device, self.step.messages) if self.checked else None
        space = None
        if self.works and self.code.kernel is None:
            function = self.code.function
            nbytes = function.workspace(self.step.programs)
            space = _kept_workspace(self.device, nbytes) if function.header.get("workspace_kept") else None
            if space is None:
                space = allocate(self.device, nbytes)
                if zeroed := function.header.get("workspace_zeroed"):
                    copies.clear(space, 0, None if zeroed is True else zeroed)
        self.pack(nodes, base, check.word.address if check else 0, space.address if space else 0)
        if self.code.kernel is not None:
            self._interpret(nodes, memory, base, check)
        elif profiler.active or config.debug:
            self._run_watched()
        else:
            self._launch()
        return check

    def _launch(self) -> None:
        repeated = self.repeated
        if repeated is None:
            if self.programs < 1:
                return
            function = self.code.function
            repeated = self.repeated = Repeated(function, self.device, self.address, self.nbytes, self.programs)
        repeated(self.maps.pointers() if self.maps is not None else 0)

    def _run_watched(self) -> None:
        """Run between two events."""
        step = self.step
        before = streams.Event(self.device, timing=True).record()
        self._launch()
        after = streams.Event(self.device, timing=True).record()
        profiler.note(step.name, lambda: before.elapsed(after), step.bytes, self.programs)
        if "time" in config.debug:
            debug.launched(step.name, before.elapsed(after), step.bytes)

    def _interpret(self, nodes: list[Expr], memory: list[Any], base: list[int], check: Check | None) -> None:
        """Run the kernel in the NumPy interpreter of the block IR, on copies of its memory."""
        started = perf_counter()
        buffers = {arg[1]: memory[arg[1]] for arg in self.step.args if arg[0] == "pointer"}
        arrays = {slot: np.empty(b.nbytes, np.uint8) for slot, b in buffers.items()}
        for slot, array in arrays.items():
            copies.copy_to_host(buffers[slot], 0, array)
        failed = self.interpret(nodes, memory, base, arrays)
        if check is not None:
            check.word.view[0] = failed
        for slot in self.outputs:
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


def as_host(buffer: Any, dtype: np.dtype, offset: int, shape: Shape, strides: Shape, keep: bool) -> np.ndarray:
    """Elements of a buffer, wherever it is, read-only: the host's memory itself, or a copy of a GPU's."""
    if buffer.device is CPU:
        return as_numpy(buffer, dtype, offset, shape, strides, False)
    result = download(buffer, dtype, offset, shape, strides, keep)
    result.flags.writeable = False
    return result
