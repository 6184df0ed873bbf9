"""GPUs that are not there: the whole library on the fake driver, whose kernels run in the block IR's interpreter.

The driver puts work off for as long as CUDA allows, so that the host's waits, reuse of memory and late errors are
tested without a GPU.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from blockarray import cuda as front
from blockarray import flush, kernels
from blockarray.compiler import cuda, dtypes, interpreter, parser
from blockarray.compiler.ir import Kernel
from blockarray.compiler.printer import text
from blockarray.runtime import device
from blockarray.runtime.cuda import copies, driver, words
from blockarray.runtime.device import Device
from tests.runtime.cuda.fake import FakeDriver

#: Bytes of foreign memory that a pointer may reach, by its first byte.
foreign: dict[int, int] = {}


class InterpretingDriver(FakeDriver):
    """A driver whose modules are block IR."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self._texts: dict[bytes, Callable[[int, bytes], None]] = {}

    def cuModuleLoadDataEx(self, code: bytes, count: int, options: list[str], values: list[Any]) -> Any:
        found = self._texts.get(code)
        if found is None:
            kernel = parser.parse(code.rstrip(b"\0").decode())
            found = self._texts[code] = lambda programs, args: self._run(kernel, args)
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

    def _run(self, kernel: Kernel, block: bytes) -> None:
        args: list[Any] = []
        errors = 0
        slots = iter(struct.unpack(f"={len(block) // 8}Q", block))
        for p in kernel.params:
            raw = next(slots).to_bytes(8, "little")
            dtype = dtypes.NUMPY[p.type.dtype]
            if not p.type.pointer:
                if p.type.dtype in dtypes.COMPLEX:
                    half = dtype.itemsize // 2
                    raw = raw[:half] + next(slots).to_bytes(8, "little")[:half]
                args.append(np.frombuffer(raw[: dtype.itemsize], dtype)[0])
                continue
            address = int.from_bytes(raw, "little")
            if p.name == "errors":
                errors = address
                args.append(np.zeros(1, dtype))
                continue
            start, nbytes = self._memory(address)
            if p.name in kernel.attrs.get("aligned", ()):
                assert address % 16 == 0, (p.name, hex(address))
            whole = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
            position, odd = divmod(address - start, dtype.itemsize)
            assert not odd
            args.append((whole[: nbytes // dtype.itemsize * dtype.itemsize].view(dtype), position))
        failed = interpreter.run(kernel, args)
        if failed:
            ctypes.c_int64.from_address(errors).value = int(failed[0]) + 1


class _Target:
    key = "block IR"


def _compile(kernel: Kernel, target: Any) -> bytes:
    header = json.dumps({"threads": 128, "shared": 0, "workspace": [0, 0], "format": "ptx"}).encode()
    return struct.pack("<I", len(header)) + header + text(kernel).encode()


def install(devices: int = 2) -> InterpretingDriver:
    """Put the fake in the driver's place, for the rest of the process."""
    api = InterpretingDriver(devices)
    driver.api = api
    driver._missing = ()
    driver._several = devices > 1
    cuda.compile = _compile
    cuda.make_target = lambda capability: _Target()  # type: ignore[assignment]
    return api


#: Modules' variables that `install` replaces, and tables of what belongs to a driver.
_REPLACED = (
    (driver, "api"), (driver, "_missing"), (driver, "_several"), (driver, "_local"), (cuda, "compile"),
    (cuda, "make_target"), (device, "_chosen"),
)  # fmt: skip
_TABLES = words._arenas, driver._contexts, Device._known, flush._plans, kernels._loaded, front.used, front._unchecked
_CACHES = driver.properties, driver._usable, copies._connect, kernels._cuda, flush.policy


@contextmanager
def installed(devices: int = 2) -> Iterator[InterpretingDriver]:
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
        api = install(devices)
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
