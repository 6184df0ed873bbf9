"""Exercise the GPU runtime on a real driver: what works, what it costs.

    python tests/runtime/cuda/bringup.py

Prints measurements, then a table of ok and FAILED; the exit status is the number of failures.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path += [str(HERE), str(ROOT)]

from ptx import SCALE, SHARED, SPIN, STORE, function, pack

from blockarray.runtime.cuda import copies, driver, launch, memory, streams, words
from blockarray.runtime.device import CPU, CudaDevice, Device, default_device, device, devices
from blockarray.runtime.memory import readable

Check = Callable[[CudaDevice], str | None]
CHECKS: list[Check] = []


def check(f: Check) -> Check:
    CHECKS.append(f)
    return f


def best(f: Callable[[], object], count: int = 1, repeats: int = 5) -> float:
    """Seconds that one call takes."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            f()
        seconds.append((time.perf_counter() - start) / count)
    return min(seconds)


def run(f: launch.Function, gpu: CudaDevice, programs: int, *args: int | float) -> None:
    block = pack(*args)
    launch.launch(f, gpu, ctypes.addressof(block), len(block), programs)


def upload(gpu: CudaDevice, x: np.ndarray) -> memory.Buffer:
    buffer = memory.allocate(gpu, x.nbytes)
    copies.copy_from_host(x, buffer)
    return buffer


def download(buffer: memory.Buffer, dtype: str, count: int, offset: int = 0) -> np.ndarray:
    out = np.empty(count, dtype)
    copies.copy_to_host(buffer, offset, out)
    return out


def scaled(gpu: CudaDevice, f: launch.Function, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype("f4")
    source, target = upload(gpu, x), memory.allocate(gpu, 4 * n)
    run(f, gpu, -(-n // 256), source.address, target.address, n, 3.0)
    assert (download(target, "f4", n) == np.float32(3) * x).all()


def raises(error: type[BaseException], f: Callable[[], object]) -> str:
    try:
        f()
    except error as e:
        return str(e)
    raise AssertionError(f"no {error.__name__}")


def in_child(code: str) -> str:
    """Run code in a new process."""
    setup = (
        "import ctypes, os, sys, numpy as np\n"
        f"sys.path += {[str(HERE), str(ROOT)]}\n"
        "from blockarray.runtime.device import Device\n"
        "from blockarray.runtime.cuda import copies, driver, launch, memory, streams\n"
        "from ptx import *\n"
        "gpu = Device('cuda')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", setup + code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    return done.stdout.strip()


@check
def discovery(gpu: CudaDevice) -> str:
    assert devices()[0] is CPU and devices()[1] is gpu
    with device(gpu):
        assert default_device() is gpu
    message = raises(ValueError, lambda: Device("cuda:99"))
    assert "cuda:0" in message
    return f"{gpu.name}, capability {gpu.capability}, {gpu.multiprocessors} SMs, {readable(gpu.total_memory)}"


@check
def allocation(gpu: CudaDevice) -> None:
    before = memory.memory_stats(gpu).live
    buffers = [memory.allocate(gpu, n) for n in (0, 1, 511, 512, 513, 4097, 100_000, (2 << 20) + 1, 300 << 20)]
    assert all(b.address % memory.ALIGNMENT == 0 for b in buffers), buffers
    assert len({b.address for b in buffers}) == len(buffers)
    address = buffers[-1].address
    del buffers
    assert memory.memory_stats(gpu).live == before
    assert memory.allocate(gpu, 300 << 20).address == address


@check
def round_trips(gpu: CudaDevice) -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 4095, 65537, copies._STAGED - 1, copies._STAGED, (5 << 20) + 3, (77 << 20) + 5):
        x = rng.integers(0, 256, n, dtype=np.uint8)
        buffer = memory.allocate(gpu, n + 3)
        copies.copy_from_host(x, buffer, 3)
        y = x.copy()
        x[:] = 0  # the copy must have taken what it needs
        assert (download(buffer, "u1", n, 3) == y).all(), n
    x = rng.standard_normal((300, 200)).T
    assert (download(upload(gpu, x), "f8", x.size) == x.ravel()).all()


@check
def captured_sources(gpu: CudaDevice) -> None:
    """A source may be changed after the call, though the device has not come to the copy."""
    spin = function(SPIN, 1)
    busy = memory.allocate(gpu, 8)
    for n in (8, 4096, 65536, 65544, 1 << 20, 1 << 23):
        for staged in (n, n + 1):
            before, copies._STAGED = copies._STAGED, staged
            try:
                x = np.full(n, 3, "u1")
                buffer = memory.allocate(gpu, n)
                run(spin, gpu, 1, busy.address, 10_000_000, 1)
                copies.copy_from_host(x, buffer)
                x[:] = 4
                assert (download(buffer, "u1", n) == 3).all(), (n, staged)
            finally:
                copies._STAGED = before


@check
def copies_of_threads(gpu: CudaDevice) -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in (1000, 3 << 20, 20 << 20):
                x = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
                assert (download(upload(gpu, x), "u1", n) == x).all()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed


@check
def copies_on_the_device(gpu: CudaDevice) -> None:
    x = np.arange(1000, dtype="i4")
    source, target = upload(gpu, x), memory.allocate(gpu, 4000)
    copies.clear(target)
    copies.copy(source, 400, target, 800, 2000)
    expected = np.zeros(1000, "i4")
    expected[200:700] = x[100:600]
    assert (download(target, "i4", 1000) == expected).all()
    copies.clear(target, 800, 4)
    assert download(target, "i4", 1, 800)[0] == 0


@check
def launches(gpu: CudaDevice) -> None:
    f = function(SCALE, 256)
    for n in (1, 255, 256, 257, 1_000_003):
        scaled(gpu, f, n)
    run(f, gpu, 0, 0, 0, 0, 0.0)
    assert "too large" in raises(ValueError, lambda: run(f, gpu, 1 << 31, 0, 0, 0, 0.0))
    thread = threading.Thread(target=scaled, args=(gpu, f, 12345))
    thread.start()
    thread.join()


@check
def shared_memory(gpu: CudaDevice) -> None:
    size = 200 << 10
    target = memory.allocate(gpu, 4)
    run(function(SHARED, 32, shared=size), gpu, 1, target.address, size - 4)
    assert download(target, "i4", 1)[0] == 77


@check
def bad_code(gpu: CudaDevice) -> str:
    return raises(RuntimeError, lambda: run(function(SCALE.replace("fma.rn", "fmb.rn"), 32), gpu, 1, 0, 0, 0, 0.0))


@check
def error_words(gpu: CudaDevice) -> None:
    store = function(STORE, 1)
    taken = [words.error_word(gpu) for _ in range(600)]
    assert all(int(w.view[0]) == 0 for w in taken)
    run(store, gpu, 1, taken[5].address, 42)
    gpu.synchronize()
    assert [int(w.view[0]) for w in taken[4:7]] == [0, 42, 0]
    del taken
    assert int(words.error_word(gpu).view[0]) == 0


@check
def events(gpu: CudaDevice) -> str:
    first, last = streams.Event(gpu, timing=True), streams.Event(gpu, timing=True)
    spin = function(SPIN, 1)
    out = memory.allocate(gpu, 8)
    first.record()
    run(spin, gpu, 1, out.address, 5_000_000, 1)
    last.record()
    assert not last.done()
    seconds = first.elapsed(last)
    assert last.done() and 0.004 < seconds < 0.1, seconds
    return f"a kernel of 5 ms took {seconds * 1e3:.2f} ms"


@check
def order_of_reuse(gpu: CudaDevice) -> None:
    spin, store = function(SPIN, 1), function(STORE, 1)
    for i in range(5):
        old = memory.allocate(gpu, 1000)
        address = old.address
        run(spin, gpu, 1, address, 2_000_000, 1)
        del old
        new = memory.allocate(gpu, 1000)
        assert new.address == address
        run(store, gpu, 1, new.address, 100 + i)
        assert download(new, "i8", 1)[0] == 100 + i


@check
def order_with_other_streams(gpu: CudaDevice) -> None:
    api, context = driver.api, driver.context(gpu.index)
    spin, store = function(SPIN, 1), function(STORE, 1)
    other = context.check(api.cuStreamCreate(1))  # does not wait for the default stream
    for stream in (int(other), streams.LEGACY, streams.PER_THREAD):
        a, b = memory.allocate(gpu, 8), memory.allocate(gpu, 8)
        copies.clear(a)
        copies.clear(b)
        run(spin, gpu, 1, a.address, 3_000_000, 7)
        streams.signal(gpu, stream)
        context.check(api.cuMemcpyDtoDAsync(b.address, a.address, 8, api.CUstream(stream)))
        streams.wait_for(gpu, stream)
        run(store, gpu, 1, a.address, 8)
        assert (download(b, "i8", 1)[0], download(a, "i8", 1)[0]) == (7, 8), stream
    context.check(api.cuStreamDestroy(other))


@check
def foreign_memory(gpu: CudaDevice) -> None:
    class Owner:
        alive = 0

        def __init__(self) -> None:
            Owner.alive += 1

        def __del__(self) -> None:
            Owner.alive -= 1

    base = memory.allocate(gpu, 8)
    spin = function(SPIN, 1)
    view = memory.adopt(gpu, base.address, 8, Owner())
    run(spin, gpu, 1, view.address, 20_000_000, 9)
    assert view.pinned
    del view
    memory.pool_of(gpu).sweep()
    assert Owner.alive == 1
    assert download(base, "i8", 1)[0] == 9
    memory.pool_of(gpu).sweep()
    assert Owner.alive == 0


@check
def limit(gpu: CudaDevice) -> str:
    held = memory.memory_stats(gpu).live
    memory.set_memory_limit(gpu, held + (100 << 20))
    try:
        kept = memory.allocate(gpu, 60 << 20)
        message = raises(MemoryError, lambda: memory.allocate(gpu, 60 << 20))
        del kept
        memory.allocate(gpu, 90 << 20)
    finally:
        memory.set_memory_limit(gpu, None)
    return message


@check
def out_of_memory(gpu: CudaDevice) -> str:
    memory.trim(gpu)
    start = time.perf_counter()
    kept: list[memory.Buffer] = []
    message = raises(MemoryError, lambda: kept.extend(memory.allocate(gpu, 8 << 30) for _ in range(100)))
    room = sum(b.nbytes for b in kept)  # less than all where other processes use the GPU, too
    kept.clear()
    whole = memory.allocate(gpu, int(0.9 * room))  # another size: the freed blocks must be given back
    scaled(gpu, function(SCALE, 256), 1000)
    del whole
    released = memory.trim(gpu)
    assert memory.memory_stats(gpu).cached == 0 and released > room // 2, memory.memory_stats(gpu)
    raises(MemoryError, lambda: memory.allocate(gpu, 1 << 62))
    return f"{message} [{time.perf_counter() - start:.1f} s]"


@check
def finalisers(gpu: CudaDevice) -> None:
    kept = [[memory.allocate(gpu, 1000) for _ in range(100)] for _ in range(8)]
    before = memory.memory_stats(gpu).live
    threads = [threading.Thread(target=part.clear) for part in kept]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert before - memory.memory_stats(gpu).live == 800 * 1024


@check
def peers(gpu: CudaDevice) -> str:
    if len(devices()) < 3:
        return "one GPU only"
    other = devices()[2]
    assert isinstance(other, CudaDevice)
    spin, f = function(SPIN, 1), function(SCALE, 256)
    scaled(other, f, 1000)
    a = memory.allocate(gpu, 8)
    run(spin, gpu, 1, a.address, 3_000_000, 5)
    b = memory.allocate(other, 8)
    copies.copy(a, 0, b, 0, 8)
    run(function(STORE, 1), gpu, 1, a.address, 6)
    assert download(b, "i8", 1)[0] == 5
    big = 1 << 30
    a, b = memory.allocate(gpu, big), memory.allocate(other, big)

    def across() -> None:
        copies.copy(a, 0, b, 0, big)
        other.synchronize()

    across()
    return f"{big / best(across) / 1e9:.1f} GB/s from GPU to GPU"


@check
def torch_tensors(gpu: CudaDevice) -> str:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return "no PyTorch"
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    target = memory.allocate(gpu, 4000)
    streams.wait_for(gpu, torch.cuda.current_stream().cuda_stream)
    view = memory.adopt(gpu, x.data_ptr(), 4000, x)
    run(function(SCALE, 256), gpu, 4, view.address, target.address, 1000, 2.0)
    assert (download(target, "f4", 1000) == 2 * np.arange(1000, dtype="f4")).all()
    return torch.__version__


@check
def forks(gpu: CudaDevice) -> str:
    return in_child(
        "kept = memory.allocate(gpu, 1000)\n"
        "if not os.fork():\n"
        "    del kept\n"
        "    try: memory.allocate(gpu, 1000)\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "memory.allocate(gpu, 2000), gpu.synchronize()\n"
    )


@check
def exits(gpu: CudaDevice) -> None:
    in_child(
        "kept = [memory.allocate(gpu, 1 << 20) for _ in range(10)]\n"
        "cycle = [memory.allocate(gpu, 1 << 20)]; cycle.append(cycle)\n"
        "event = streams.Event(gpu).record()\n"
        "copies.copy_from_host(np.zeros(10 << 20, 'u1'), memory.allocate(gpu, 10 << 20))\n"
    )


@check
def faults(gpu: CudaDevice) -> str:
    return in_child(
        "b = memory.allocate(gpu, 1000)\n"
        "block = pack(8, 1)\n"
        "launch.launch(function(FAULT, 1), gpu, ctypes.addressof(block), len(block), 1)\n"
        "uses = gpu.synchronize, lambda: memory.allocate(gpu, 1000), lambda: copies.copy_to_host(b, 0, np.empty(9))\n"
        "for use in uses:\n"
        "    try: use()\n"
        "    except RuntimeError as error:\n"
        "        assert 'lost' in str(error) and 'ILLEGAL' in str(error)\n"
        "        print(error, flush=True)\n"
        "    else: assert 0\n"
    )


# -- measurements -----------------------------------------------------------------------------------------------------
def costs(gpu: CudaDevice) -> None:
    f, store = function(SCALE, 256), function(STORE, 1)
    x = memory.allocate(gpu, 1 << 20)
    block = pack(x.address, x.address, 0, 1.0)
    address, size = ctypes.addressof(block), len(block)
    event = streams.Event(gpu)
    pool = memory.pool_of(gpu)
    word = words.error_word(gpu)
    small, out = np.zeros(1), np.empty(1)
    buffer = memory.allocate(gpu, 8)
    one = pack(buffer.address, 1)
    one_address = ctypes.addressof(one)
    context, handle, _ = f.load(gpu.index)

    def settled(g: Callable[[], object]) -> Callable[[], object]:
        """Some calls, on an empty queue."""

        def once() -> None:
            for _ in range(100):
                g()

        gpu.synchronize()
        return once

    def row(name: str, g: Callable[[], object], calls: int = 100) -> None:
        seconds = []
        for _ in range(30):
            once = settled(g)
            start = time.perf_counter()
            once()
            seconds.append((time.perf_counter() - start) / calls)
        print(f"  {name:58} {min(seconds) * 1e6:9.2f} us")

    def launched_and_read() -> None:
        launch.launch(store, gpu, one_address, 16, 1)
        copies.copy_to_host(buffer, 0, out)

    def launched_and_waited() -> None:
        launch.launch(store, gpu, one_address, 16, 1)
        gpu.synchronize()

    raw = driver.api.cuLaunchKernel
    extra = launch._extra
    print("host cost of one call")
    row("launch", lambda: launch.launch(f, gpu, address, size, 1))
    row("  of which cuLaunchKernel", lambda: raw(handle, 1, 1, 1, 256, 1, 1, 0, context.stream, 0, extra.address))
    row("allocate and free", lambda: memory.allocate(gpu, 100_000))
    row("  where the driver's pool must help", lambda: (pool.evict(), memory.allocate(gpu, 100_000)))
    row("record an event", event.record)
    row("ask an event", event.done)
    row("look at an error word", lambda: bool(word.view[0]))
    row("synchronize, nothing queued", gpu.synchronize)
    row("launch a kernel and wait", launched_and_waited)
    row("launch a kernel and read 8 bytes", launched_and_read)
    row("copy 8 bytes to the device", lambda: copies.copy_from_host(small, buffer))
    row("copy 8 bytes to the host", lambda: copies.copy_to_host(buffer, 0, out))
    row("clear 4 KiB", lambda: copies.clear(x, 0, 4096))
    row("make the context current", lambda: driver.api.cuCtxSetCurrent(context.handle))


def bandwidths(gpu: CudaDevice) -> None:
    api, context = driver.api, driver.context(gpu.index)
    staged = copies._STAGED
    print("copies in GB/s                       to the device                 to the host")
    print("          size      driver  staged  from pinned      driver  staged  to pinned")
    pinned = copies.pinned(256 << 20, gpu)
    for shift in (16, 18, 20, 21, 22, 24, 26, 28):
        size = 1 << shift
        x, buffer = np.ones(size, "u1"), memory.allocate(gpu, size)
        figures = {}
        for name, threshold in (("driver", size + 1), ("staged", size)):
            copies._STAGED = threshold

            def upload_all(x: np.ndarray = x, buffer: memory.Buffer = buffer) -> None:
                copies.copy_from_host(x, buffer)
                gpu.synchronize()

            figures["up", name] = best(upload_all)
            figures["down", name] = best(lambda x=x, buffer=buffer: copies.copy_to_host(buffer, 0, x))
        copies._STAGED = staged
        for name, call in (
            ("up", lambda b=buffer, s=size: api.cuMemcpyHtoDAsync(b.address, pinned, s, context.stream)),
            ("down", lambda b=buffer, s=size: api.cuMemcpyDtoHAsync(pinned, b.address, s, context.stream)),
        ):

            def raw(call: Callable[[], tuple[object]] = call) -> None:
                context.check(call())
                gpu.synchronize()

            figures[name, "pinned"] = best(raw)
        line = "".join(
            "  ".join(f"{size / figures[way, how] / 1e9:8.1f}" for how in ("driver", "staged", "pinned")) + "      "
            for way in ("up", "down")
        )
        print(f"{readable(size):>14}  {line}")
    size = 256 << 20
    x, buffer = np.ones(size, "u1"), memory.allocate(gpu, size)
    lanes = copies._lanes
    for count in (1, 2, 3, 4, 6, 8):
        copies._lanes = lambda n=count: n
        copies._workers.cache_clear()
        up = best(lambda: (copies.copy_from_host(x, buffer), gpu.synchronize()))
        down = best(lambda: copies.copy_to_host(buffer, 0, x))
        new = best(lambda: copies.copy_to_host(buffer, 0, np.empty(size, "u1")), repeats=3)
        print(
            f"  256 MiB on {count} threads: to the device {size / up / 1e9:.1f}, to the host {size / down / 1e9:.1f}, "
            f"to new pages of the host {size / new / 1e9:.1f}"
        )
    copies._lanes = lanes
    copies._workers.cache_clear()
    size = 4 << 30
    a, b = memory.allocate(gpu, size), memory.allocate(gpu, size)

    def within() -> None:
        copies.copy(a, 0, b, 0, size)
        gpu.synchronize()

    within()
    print(f"  on the device, bytes read and written: {2 * size / best(within) / 1e12:.2f} TB/s")
    start = time.perf_counter()
    memory.trim(gpu)
    print(f"  trim: {(time.perf_counter() - start) * 1e3:.1f} ms")


def main() -> int:
    gpu = Device("cuda")
    assert isinstance(gpu, CudaDevice)
    start = time.perf_counter()
    gpu.synchronize()
    opening = time.perf_counter() - start
    print(f"opening the device: {opening:.2f} s; default: {default_device()}; {os.cpu_count()} CPUs; {sys.version}")
    results: list[tuple[str, str, str]] = []
    for f in [*CHECKS, costs, bandwidths]:
        try:
            results.append((f.__name__, "ok", f(gpu) or ""))
        except Exception:
            traceback.print_exc()
            results.append((f.__name__, "FAILED", traceback.format_exc().strip().splitlines()[-1]))
    print(f"{time.perf_counter() - start:.1f} s in all\n")
    for name, verdict, detail in results:
        print(f"{verdict:7}{name:28}{detail}")
    return sum(verdict != "ok" for _, verdict, _ in results)


if __name__ == "__main__":
    sys.exit(main())
