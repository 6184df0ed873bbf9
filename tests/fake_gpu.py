"""GPUs that are not there: the whole library on the fake driver, whose kernels run in the block IR's interpreter, or as
the code that a GPU would run, emulated.

The driver puts work off for as long as CUDA allows, so that the host's waits, reuse of memory and late errors are
tested without a GPU.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import numpy as np

from blockarray import checks, flush, kernels
from blockarray.compiler import dtypes, interpreter, parser
from blockarray.compiler.ir import Kernel, Value
from blockarray.compiler.printer import text
from blockarray.runtime import device
from blockarray.runtime.cuda import copies, driver, launch, libraries, memory, words
from blockarray.runtime.device import Device
from tests import fake_libraries
from tests.compiler.cuda import gpu_emulator, ptx_machine
from tests.runtime.cuda.fake import FakeDriver

#: Bytes of foreign memory that a pointer may reach, by its first byte.
foreign: dict[int, int] = {}
#: How the code of a routine's kernel begins: then its bytes of shared memory, and PTX on the next line.
_ROUTINE = b"// routine "


class InterpretingDriver(FakeDriver):
    """A driver whose modules are block IR."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self._texts: dict[bytes, Callable[[int, bytes], None]] = {}

    def cuModuleLoadDataEx(self, code: bytes, count: int, options: list[str], values: list[Any]) -> Any:
        found = self._texts.get(code)
        if found is None and code.startswith(_ROUTINE):
            head, ptx = code.rstrip(b"\0").decode().split("\n", 1)
            shared = int(head.removeprefix(_ROUTINE.decode()))
            found = self._texts[code] = lambda programs, args: self._run_routine(ptx, shared, programs, args)
        elif found is None:
            kernel = parser.parse(code.rstrip(b"\0").decode())
            found = self._texts[code] = lambda programs, args: self._run(kernel, programs, args)
        return found

    def cuEventElapsedTime(self, first: Any, last: Any) -> float:
        return 1.0 + last.point - first.point

    def cuPointerGetAttribute(self, attribute: str, address: int) -> int:
        return next((pool for start, (_, nbytes, pool) in self._blocks.items() if start <= address < start + nbytes), 0)

    def _memory(self, address: int) -> tuple[int, int]:
        """First byte and size of the block that an address is in."""
        for start, (_, nbytes, _) in self._blocks.items():
            if start <= address < start + nbytes:
                return start, nbytes
        for start, nbytes in foreign.items():
            if start <= address < start + nbytes:
                return start, nbytes
        raise AssertionError(f"a kernel was given {address:#x}, which is no device memory")

    def _slots(self, kernel: Kernel, block: bytes) -> Iterator[tuple[Value, bytes]]:
        """The parameters with their bytes in the argument block."""
        at = 0
        for p in kernel.params:
            nbytes = 8 if p.type.pointer or p.type.dtype not in dtypes.COMPLEX else 16
            yield p, block[at : at + nbytes]
            at += nbytes
        assert at == len(block)

    def _run(self, kernel: Kernel, programs: int, block: bytes) -> None:
        args: list[Any] = []
        errors = 0
        for p, raw in self._slots(kernel, block):
            dtype = dtypes.NUMPY[p.type.dtype]
            if not p.type.pointer:
                half = dtype.itemsize // (len(raw) // 8)
                args.append(np.frombuffer(raw[:half] + raw[8 : 8 + half], dtype)[0])
                continue
            address = int.from_bytes(raw, "little")
            if p.name == "errors":
                errors = address
                args.append(np.zeros(1, dtype))
                continue
            start, nbytes = self._memory(address)
            if p.name in kernel.attrs.get("aligned", ()):
                assert address % 16 == 0, (p.name, hex(address))
            if p.name in kernel.attrs.get("even", ()):
                assert address % (2 * dtype.itemsize) == 0, (p.name, hex(address))
            whole = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
            position, odd = divmod(address - start, dtype.itemsize)
            assert not odd
            args.append((whole[: nbytes // dtype.itemsize * dtype.itemsize].view(dtype), position))
        failed = interpreter.run(kernel, args)
        if failed:
            ctypes.c_int64.from_address(errors).value = int(failed[0]) + 1

    def _run_routine(self, ptx: str, shared: int, programs: int, block: bytes) -> None:
        """Run a routine's kernel in the interpreter of PTX, on copies of the blocks that arguments point into."""
        words = list(struct.unpack(f"={len(block) // 8}q", block))
        found = {start: nbytes for start, (_, nbytes, _) in self._blocks.items()}
        used = {start: n for start, n in found.items() if any(start <= w < start + max(n, 1) for w in words)}
        image = ptx_machine.Memory(sum(used.values()) + 1024 * (len(used) + 2))
        moved = {}
        for start, nbytes in used.items():
            whole = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
            moved[start] = whole, image.put(whole, start % 256)
        words = [next((moved[s][1] + w - s for s, n in used.items() if s <= w < s + max(n, 1)), w) for w in words]
        ptx_machine.launch(ptx, image, words, programs, shared)
        for whole, address in moved.values():
            whole[:] = image.get(address, np.uint8, whole.shape)


class EmulatingDriver(InterpretingDriver):
    """A driver that emulates the code that a GPU would run."""

    def _run(self, kernel: Kernel, blocks: int, block: bytes) -> None:
        image = gpu_emulator.Memory()
        addresses: dict[int, int] = {}
        args: list[int] = []
        aligned = kernel.attrs.get("aligned", ())
        for p, raw in self._slots(kernel, block):
            args += struct.unpack(f"={len(raw) // 8}Q", raw)
            if not p.type.pointer:
                assert p.name not in aligned or args[-1] % 16 == 0, (p.name, args[-1])
                continue
            start, nbytes = (args[-1], 8) if p.name == "errors" else self._memory(args[-1])
            if start not in addresses:
                whole = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
                addresses[start] = image.put(whole, start % 512)
            args[-1] += addresses[start] - start
            assert p.name not in aligned or args[-1] % 16 == 0, (p.name, hex(args[-1]))
        code = _generated(text(kernel))
        image.declare(code)
        image.open()
        gpu_emulator.mark_shared(kernel, args, image)
        programs, rest = divmod(blocks, code.cluster)
        assert not rest, "a part of a cluster"
        gpu_emulator.launch(code, args, image, programs)
        image.close()


@lru_cache
def _generated(text: str) -> Any:
    from blockarray.compiler import cuda

    return cuda.generate(parser.parse(text), cuda.make_target((9, 0)))


@lru_cache
def _emitted(text: str) -> str:
    from blockarray.compiler import cuda
    from blockarray.compiler.cuda.ptx import emit

    return emit(text, cuda.make_target((9, 0)))


class _Interpreted:
    """A compiler, and its target, whose code is block IR."""

    key = "block IR"

    @staticmethod
    def header(kernel: Kernel) -> dict[str, Any]:
        return {"threads": 128, "shared": 0, "workspace": [0, 0]}

    @classmethod
    def compile(cls, kernel: Kernel, target: Any) -> bytes:
        header = json.dumps({**cls.header(kernel), "format": "ptx"}).encode()
        return struct.pack("<I", len(header)) + header + text(kernel).encode()

    @staticmethod
    def package(code: Any, target: Any) -> bytes:
        """A routine's kernel, as PTX whatever runs the others."""
        header = json.dumps({"threads": code.threads, "shared": code.shared, "workspace": [0, 0], "format": "ptx"})
        payload = _ROUTINE + f"{code.shared}\n{_emitted(code.text)}".encode()
        return struct.pack("<I", len(header)) + header.encode() + payload

    @staticmethod
    def text(kernel: Kernel, target: Any) -> str:
        return text(kernel)

    ptx = text


class _Emulated(_Interpreted):
    """The same, launched as the compiler's code is."""

    key = "block IR, emulated"

    @staticmethod
    def header(kernel: Kernel) -> dict[str, Any]:
        code = _generated(text(kernel))
        names = (
            "threads", "cluster", "resident", "waits", "shared", "workspace", "workspace_zeroed", "workspace_kept",
            "programs",
        )  # fmt: skip
        return {name: value for name in names if (value := getattr(code, name)) is not None}


def install(devices: int = 2, emulate: bool = False) -> InterpretingDriver:
    """Put the fake in the driver's place, for the rest of the process.

    To `emulate` is to run the code that a GPU would run, some thousand times slower, with every access checked to the
    byte.
    """
    api = EmulatingDriver(devices) if emulate else InterpretingDriver(devices)
    driver.api = api
    driver.launch_kernel = api.launch_kernel
    driver._missing = ()
    driver._several = devices > 1
    compiler = _Emulated if emulate else _Interpreted
    kernels._cuda = cache(lambda capability: kernels.Backend(compiler, compiler, launch.load))
    libraries.binding = fake_libraries.modules().__getitem__
    if emulate:
        # Blocks end where their buffers do.
        memory.size_class = lambda nbytes: max(nbytes, 1)  # type: ignore[assignment]
    return api


#: Modules' variables that `install` replaces, and tables of what belongs to a driver.
_REPLACED = (
    (driver, "api"), (driver, "launch_kernel"), (driver, "_missing"), (driver, "_several"), (driver, "_local"),
    (kernels, "_cuda"), (device, "_chosen"), (memory, "size_class"), (libraries, "binding"),
)  # fmt: skip
_TABLES = words._arenas, driver._contexts, Device._known, flush._plans, kernels._loaded, checks.used, checks._waiting
_CACHES = driver.properties, driver._usable, copies._connect, flush.policy


@contextmanager
def installed(devices: int = 2, emulate: bool = False) -> Iterator[InterpretingDriver]:
    """Put the fake in the driver's place meanwhile; the CPU stays the default device."""
    replaced = [(module, name, getattr(module, name)) for module, name in _REPLACED]
    tables: list[Any] = list(_TABLES)
    saved = [table.copy() for table in tables]
    slots, copies._slots[:] = copies._slots.copy(), []
    for table in tables:
        if table is Device._known:
            for name in [n for n in table if n.startswith("cuda")]:
                del table[name]
        else:
            table.clear()
    for cached in _CACHES:
        cached.cache_clear()
    driver._local = driver._Local()
    try:
        api = install(devices, emulate)
        device._chosen = device.CPU
        yield api
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)
        for table, before in zip(tables, saved):
            table.clear()
            table.update(before)
        copies._slots[:] = slots
        for cached in _CACHES:
            cached.cache_clear()
