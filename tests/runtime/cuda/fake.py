"""A driver without a GPU: device memory is host memory, and a stream's work waits until somebody waits for it.

`FakeDriver` stands in for the module cuda.bindings.driver, as far as the runtime uses it, and its `launch_kernel` for
the driver's own function of that name.  Work is put off for as long
as CUDA allows, so that memory that is reused or freed too early shows.  A module's code is the name of a Python
function in `kernels`, which gets (programs, argument block).
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_LAUNCH_FAILED = 719


OK = CUresult.CUDA_SUCCESS


class _Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class Stream:
    def __init__(self, context: int) -> None:
        self.context = context
        self.queue: deque[Callable[[], object]] = deque()
        self.issued = self.done = 0

    def put(self, work: Callable[[], object]) -> None:
        self.queue.append(work)
        self.issued += 1

    def run(self, until: int | None = None) -> None:
        while self.queue and (until is None or self.done < until):
            work = self.queue.popleft()
            self.done += 1
            try:
                work()
            except BaseException:
                # What waits may copy to memory that the test, which fails now, lets go of.
                self.queue.clear()
                self.done = self.issued
                raise


class FakeEvent:
    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.point = 0

    def run(self) -> None:
        if self.stream is not None:
            self.stream.run(self.point)


class FakeDriver:
    """See the module.

    Attributes
    ----------
    fail : dict
        Status by the name of the function that is to return it instead of working, until it is removed.
    calls : list of str
        Names of the functions that were called.
    kernels : dict
        Python functions by name.
    """

    CUresult = CUresult
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP = 1, 2
    CUdevice_attribute = CUpointer_attribute = CUjit_option = CUfunction_attribute = CUmemPool_attribute = _Names()
    CUmemAllocationType = CUmemAllocationHandleType = CUmemLocationType = CUmemAccess_flags = _Names()
    CUlaunchAttributeID = _Names()
    CUstream_flags = SimpleNamespace(CU_STREAM_DEFAULT=0)
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)
    cuuint64_t = int

    def __init__(self, devices: int = 1, memory: int = 1 << 30, capability: tuple[int, int] = (9, 0)) -> None:
        self.devices = devices
        self.memory = memory
        self.capability = capability
        self.fail: dict[str, CUresult] = {}
        self.calls: list[str] = []
        self.kernels: dict[str, Callable[[int, bytes], object]] = {"store": _store}
        self.launched: list[tuple[int, ...]] = []
        #: Launches of kernels that may begin before what is queued before them has ended.
        self.early = 0
        self.pools: dict[int, int] = {}
        self._current = threading.local()
        self._blocks: dict[int, tuple[np.ndarray, int, int]] = {}
        self._host: list[tuple[int, int, Any]] = []
        self._streams = {handle: Stream(0) for handle in (1, 2, 77)}
        self._functions: list[Callable[[int, bytes], object]] = []
        self._lock = threading.RLock()

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("cu") or name == "cuuint64_t":
            return value

        def call(*args: Any) -> tuple[Any, ...]:
            with self._lock:
                self.calls.append(name)
                if name in self.fail:
                    return self.fail[name], None
                found = value(*args)
                return found if isinstance(found, tuple) else (OK,) if found is None else (OK, found)

        return call

    def CUmemPoolProps(self) -> Any:
        return SimpleNamespace(location=SimpleNamespace())

    CUmemAccessDesc = CUmemPoolProps

    def CUstream(self, handle: int) -> int:
        return handle

    CUfunction = CUstream

    def stream(self, handle: int) -> Stream:
        return self._streams[handle]

    # -- devices and contexts ------------------------------------------------------------------------------------------
    def cuInit(self, flags: int) -> None:
        pass

    def cuDriverGetVersion(self) -> int:
        return 13000

    def cuDeviceGetCount(self) -> int:
        return self.devices

    def cuDeviceGet(self, index: int) -> int:
        return index

    def cuDeviceGetName(self, length: int, device: int) -> bytes:
        return b"Fake GPU".ljust(length - 1, b"\0") + b"?"  # behind the zero, anything

    def cuDeviceTotalMem(self, device: int) -> int:
        return self.memory

    def cuDeviceGetAttribute(self, name: str, device: int) -> int:
        major, minor = self.capability
        name = name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        values = {"COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor, "MULTIPROCESSOR_COUNT": 132}
        return values.get(name, 1)

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> int:
        return 1

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return 1000 + device

    def cuCtxSetCurrent(self, context: int) -> None:
        self._current.context = context

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        return OK, self.memory - self.pools[self._context() - 1000], self.memory

    def cuGetErrorString(self, status: CUresult) -> tuple[Any, ...]:
        return OK, status.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode()

    def _context(self) -> int:
        assert getattr(self._current, "context", None) is not None, "no current context"
        return self._current.context

    # -- streams and events --------------------------------------------------------------------------------------------
    def cuStreamCreate(self, flags: int) -> int:
        handle = 100 + len(self._streams)
        self._streams[handle] = Stream(self._context())
        return handle

    def cuStreamSynchronize(self, stream: int) -> None:
        self._streams[stream].run()

    def cuStreamWaitEvent(self, stream: int, event: FakeEvent, flags: int) -> None:
        source, point = event.stream, event.point
        assert source is not None
        self._streams[stream].put(lambda: source.run(point))

    def cuEventCreate(self, flags: int) -> FakeEvent:
        self._context()
        return FakeEvent()

    def cuEventRecord(self, event: FakeEvent, stream: int) -> None:
        event.stream = self._streams[stream]
        assert event.stream.context in (0, self._context())
        event.point = event.stream.issued

    def cuEventQuery(self, event: FakeEvent) -> tuple[Any, ...]:
        assert event.stream is not None
        return (CUresult.CUDA_ERROR_NOT_READY if event.stream.done < event.point else OK,)

    def cuEventSynchronize(self, event: FakeEvent) -> None:
        event.run()

    def cuEventElapsedTime(self, first: FakeEvent, last: FakeEvent) -> float:
        return float(last.point - first.point)

    # -- memory --------------------------------------------------------------------------------------------------------
    def cuMemPoolCreate(self, properties: Any) -> int:
        self.pools[properties.location.id] = 0
        return properties.location.id

    def cuMemPoolSetAttribute(self, pool: int, attribute: str, value: int) -> None:
        pass

    def cuMemPoolGetAttribute(self, pool: int, attribute: str) -> int:
        return self.pools[pool]

    def cuMemPoolSetAccess(self, pool: int, access: list[Any], count: int) -> None:
        assert len(access) == count

    def cuMemPoolTrimTo(self, pool: int, nbytes: int) -> None:
        pass

    def cuMemAllocFromPoolAsync(self, nbytes: int, pool: int, stream: int) -> tuple[Any, ...]:
        self._check(stream)
        if self.pools[pool] + nbytes > self.memory:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        # Pages that nobody touches cost nothing: the tests may ask for a lot.
        block = np.empty(nbytes + 512, np.uint8)
        address = (block.ctypes.data + 511) & -512
        self._blocks[address] = block, nbytes, pool
        self.pools[pool] += nbytes
        return OK, address

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        self._check(stream)
        _, nbytes, pool = self._blocks[address]
        self.pools[pool] -= nbytes
        self._streams[stream].put(lambda: self._forget(address))

    def _forget(self, address: int) -> None:
        block, nbytes, _ = self._blocks.pop(address)
        if nbytes < 1 << 20:
            block.fill(0xCD)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        self._context()
        memory = ctypes.create_string_buffer(nbytes + 8)
        address = ctypes.addressof(memory) + 7 & -8
        self._host.append((address, nbytes, memory))
        return address

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> int:
        return address

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check(stream)
        if self._is_pinned(source):
            self._streams[stream].put(lambda: ctypes.memmove(target, source, nbytes))
        else:
            data = ctypes.string_at(source, nbytes)
            self._streams[stream].put(lambda: ctypes.memmove(target, data, nbytes))

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check(stream)
        self._streams[stream].put(lambda: ctypes.memmove(target, source, nbytes))
        if not self._is_pinned(target):
            self._streams[stream].run()

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check(stream)
        self._streams[stream].put(lambda: ctypes.memmove(target, source, nbytes))

    def cuMemcpyPeerAsync(
        self, target: int, context: int, source: int, source_context: int, nbytes: int, stream: int
    ) -> None:
        assert context != source_context
        self.cuMemcpyDtoDAsync(target, source, nbytes, stream)

    def cuMemsetD8Async(self, target: int, value: int, nbytes: int, stream: int) -> None:
        self._check(stream)
        self._streams[stream].put(lambda: ctypes.memset(target, value, nbytes))

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < start + size for start, size, _ in self._host)

    def _check(self, stream: int) -> None:
        assert self._streams[stream].context == self._context(), "another device's context is current"

    # -- code ----------------------------------------------------------------------------------------------------------
    def cuModuleLoadDataEx(self, code: bytes, count: int, options: list[str], values: list[Any]) -> Any:
        self._context()
        name = code.rstrip(b"\0").decode()
        if name not in self.kernels:
            values[options.index("CU_JIT_ERROR_LOG_BUFFER")][:6] = b"line 1"
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        return self.kernels[name]

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        assert name == b"kernel"
        self._functions.append(module)
        return len(self._functions)

    def cuFuncGetAttribute(self, attribute: str, function: Any) -> int:
        return {"CU_FUNC_ATTRIBUTE_NUM_REGS": 32}.get(attribute, 0)

    def cuFuncSetAttribute(self, function: Any, attribute: str, value: int) -> None:
        assert attribute == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES" and value > 48 << 10

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> int:
        return 132 // config.gridDimX

    def launch_kernel(self, config: int, function: int, params: int, extra: int) -> int:
        """cuLaunchKernelEx of the driver itself, which takes addresses."""
        *grid, x, y, z, shared, stream, attributes, count = struct.unpack("=7I4xQQI4x", ctypes.string_at(config, 56))
        if count:
            assert count == 1
            # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            assert struct.unpack("=I4xI", ctypes.string_at(attributes, 12)) == (6, 1)
            self.early += 1
        return self.cuLaunchKernelEx((*grid, x, y, z, shared), function, stream, params, extra)[0]

    def cuLaunchKernelEx(self, config: tuple[int, ...], number: int, stream: int, params: int, extra: int) -> Any:
        self._check(stream)
        assert 0 < config[0] < 1 << 31 and params == 0
        pointer, address, size, size_address, end = struct.unpack("=5Q", ctypes.string_at(extra, 40))
        assert (pointer, size, end) == (1, 2, 0)
        args = ctypes.string_at(address, ctypes.c_size_t.from_address(size_address).value)
        self.launched.append(config)
        function = self._functions[number - 1]
        self._streams[stream].put(lambda: function(config[0], args))


def _store(programs: int, args: bytes) -> None:
    """*out = value: (out, value)."""
    address, value = struct.unpack("=2q", args)
    ctypes.c_int64.from_address(address).value = value
