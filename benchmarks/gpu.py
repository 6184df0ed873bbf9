"""Clocks of an NVIDIA GPU, and what it can do at most.

Calls are timed between two events behind a kernel that does nothing for a while, so that they are all queued before
the first one starts and the host's time does not show.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

#: Calls to time in one go, and seconds that they should take.
MOST, BURST = 200, 0.02
#: Longest that the device waits for calls to be queued.
LONGEST = 0.05

#: Operations a second that the vendor's data sheets name, dense.  Products of float32 may use a sixth of bfloat16's:
#: that many products of parts make one of float32.
_HOPPER = {"bfloat16": 989e12, "float16": 989e12, "float8_e4m3fn": 1979e12, "int8": 1979e12}
PEAKS = {name: {**_HOPPER, "float32": 989e12 / 6, "float64": 67e12} for name in ("H100", "H200")}

PTX = b"""
.version 7.4
.target sm_80
.address_size 64

// Wait for some nanoseconds.
.visible .entry spin(.param .u64 nanoseconds) {
    .reg .u64 %t<4>;
    .reg .pred %p;
    ld.param.u64 %t0, [nanoseconds];
    mov.u64 %t1, %globaltimer;
    add.u64 %t1, %t1, %t0;
again:
    mov.u64 %t2, %globaltimer;
    setp.lt.u64 %p, %t2, %t1;
    @%p bra again;
    ret;
}

// Keep every multiprocessor busy until a word of the host's changes, or for some nanoseconds.
.visible .entry gate(.param .u64 word, .param .u64 nanoseconds) .reqntid 1024, 1, 1 {
    .reg .u64 %t<4>;
    .reg .u32 %r<2>;
    .reg .pred %p<3>;
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra join;
    ld.param.u64 %t0, [word];
    ld.param.u64 %t3, [nanoseconds];
    mov.u64 %t1, %globaltimer;
    add.u64 %t1, %t1, %t3;
again:
    ld.volatile.global.u32 %r1, [%t0];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra join;
    mov.u64 %t2, %globaltimer;
    setp.lt.u64 %p2, %t2, %t1;
    @%p2 bra again;
join:
    bar.sync 0;
    ret;
}

// Read 32 KiB a block, 8 times 16 bytes a thread; stores nothing, since the memory holds zeros.
.visible .entry read(.param .u64 memory) .reqntid 256, 1, 1 {
    .reg .u64 %a<3>;
    .reg .u32 %r<4>, %x<4>, %y<32>;
    .reg .pred %p;
    ld.param.u64 %a0, [memory];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %a1, %r1, 32768;
    add.u64 %a0, %a0, %a1;
    mul.wide.u32 %a2, %r0, 16;
    add.u64 %a0, %a0, %a2;
LOADS
    setp.ne.u32 %p, %x0, 0;
    @%p st.global.u32 [%a0], %x0;
    ret;
}
""".replace(
    b"LOADS",
    "\n".join(
        [
            f"    ld.global.nc.L1::no_allocate.v4.u32 {{%y{4 * k}, %y{4 * k + 1}, %y{4 * k + 2}, %y{4 * k + 3}}}, "
            f"[%a0+{4096 * k}];"
            for k in range(8)
        ]
        + ["    mov.u32 %x0, 0;", *(f"    or.b32 %x0, %x0, %y{k};" for k in range(32))]
    ).encode(),
)


def call(function: Any, *args: Any) -> Any:
    status, *rest = function(*args)
    if int(status):
        raise RuntimeError(f"{function.__name__}: {status}")
    return rest[0] if len(rest) == 1 else rest


class Gate(NamedTuple):
    """A stream of its own, a word that opens the gate and its address on the device."""

    stream: Any
    word: Any
    address: int


@cache
def device() -> Any:
    """The first GPU, its primary context current."""
    call(driver.cuInit, 0)
    found = call(driver.cuDeviceGet, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, found))
    return found


@cache
def kernel(name: str) -> Any:
    device()
    return call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, PTX + b"\0"), name.encode())


@cache
def attribute(name: str) -> int:
    return call(
        driver.cuDeviceGetAttribute, getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device()
    )


def launch(name: str, blocks: int, threads: int, stream: Any, *values: int) -> None:
    arguments = (values, (ctypes.c_uint64,) * len(values))
    call(driver.cuLaunchKernel, kernel(name), blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0)


def synchronize() -> None:
    device()
    call(driver.cuCtxSynchronize)


@cache
def _events() -> tuple[Any, Any]:
    device()
    return call(driver.cuEventCreate, 0), call(driver.cuEventCreate, 0)


def seconds(run: Callable[[], object], stream: int, count: int | None = None) -> float:
    """The device's time for one call of a function that queues work on a stream, the mean over a burst of calls."""
    start, end = _events()
    once, queued = BURST, 0.0
    for warm in (1, 4):
        if warm == 1 or once < BURST / 4:
            synchronize()
            began = time.perf_counter()
            for _ in range(warm):
                run()
            queued = (time.perf_counter() - began) / warm
            synchronize()
            once = (time.perf_counter() - began) / warm
    count = count or max(2, min(MOST, int(BURST / once)))
    if once < 2 * queued:
        launch("spin", 1, 1, stream, int(1e9 * min(LONGEST, 1.5 * queued * count + 1e-4)))
    call(driver.cuEventRecord, start, stream)
    for _ in range(count):
        run()
    call(driver.cuEventRecord, end, stream)
    call(driver.cuEventSynchronize, end)
    return call(driver.cuEventElapsedTime, start, end) * 1e-3 / count


@cache
def _gate() -> Gate:
    device()
    stream = call(driver.cuStreamCreate, 1)  # CU_STREAM_NON_BLOCKING
    host = call(driver.cuMemHostAlloc, 4, driver.CU_MEMHOSTALLOC_DEVICEMAP)
    word = ctypes.c_uint32.from_address(int(host))
    return Gate(stream, word, int(call(driver.cuMemHostGetDevicePointer, host, 0)))


def gated_seconds(run: Callable[[], object], wait: Callable[[], object], few: int = 4, many: int = 24) -> float:
    """As `seconds`, for a library that does not tell its stream.

    The gate keeps the device from starting while calls are queued; the clock runs from its opening to the end of the
    last call.  What that adds is the same for few calls as for many (which must be fewer than the library queues).
    """
    gate = _gate()
    blocks = attribute("MULTIPROCESSOR_COUNT") * (attribute("MAX_THREADS_PER_MULTIPROCESSOR") // 1024)
    times = []
    for count in (few, many):
        best = []
        for _ in range(5):
            synchronize()
            gate.word.value = 0
            launch("gate", blocks, 1024, gate.stream, gate.address, int(1e9 * LONGEST))
            for _ in range(count):
                run()
            began = time.perf_counter()
            gate.word.value = 1
            wait()
            best.append(time.perf_counter() - began)
        times.append(sorted(best)[2])
    return max(0.0, times[1] - times[0]) / (many - few)


def peaks() -> dict[str, float]:
    """Operations a second by type, as far as `PEAKS` has the device."""
    name = call(driver.cuDeviceGetName, 100, device()).decode()
    return next((peak for part, peak in PEAKS.items() if part in name), {})


def limits() -> dict[str, float]:
    """Bytes a second of copies (read plus written) and of reading, and the peaks of arithmetic."""
    device()
    nbytes = 1 << 31
    source, target = (call(driver.cuMemAlloc, nbytes) for _ in range(2))
    call(driver.cuMemsetD8, source, 0, nbytes)

    def best(run: Callable[[], object]) -> float:
        return min(seconds(run, 0, 10) for _ in range(7))

    copied = best(lambda: call(driver.cuMemcpyDtoDAsync, target, source, nbytes, 0))
    read = best(lambda: launch("read", nbytes >> 15, 256, 0, int(source)))
    for memory in (source, target):
        call(driver.cuMemFree, memory)
    return {"copy": 2 * nbytes / copied, "read": nbytes / read, **peaks()}
