from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from blockarray.runtime.cuda import copies, memory, streams
from blockarray.runtime.cuda.memory import Buffer, allocate, memory_stats, pool_of, set_memory_limit, size_class, trim
from blockarray.runtime.device import CudaDevice

from .fake import FakeDriver


def test_size_classes():
    sizes = [*range(5000), *(int(1.013**i) for i in range(700, 2000)), *(1 << k for k in range(12, 45))]
    for n in sizes:
        c = size_class(n)
        assert n <= c and c % memory.ALIGNMENT == 0 and size_class(c) == c
        assert c - n < max(512, n / 8 + 1, not n and 513) and c - n < 32 << 20
    with pytest.raises(ValueError, match="-1 bytes"):
        size_class(-1)


def test_reuse(fake: FakeDriver, gpu: CudaDevice):
    a, b = allocate(gpu, 1000), allocate(gpu, 0)
    assert a.address % 512 == 0 and a.address != b.address
    assert (a.nbytes, a.capacity, a.device, a.pinned, a.owner) == (1000, 1024, gpu, False, None)
    assert repr(a) == f"<Buffer 1000 bytes at {a.address:#x} on cuda:0>"
    address, count = a.address, fake.calls.count("cuMemAllocFromPoolAsync")
    del a
    assert allocate(gpu, 900).address == address
    assert fake.calls.count("cuMemAllocFromPoolAsync") == count


def test_statistics(gpu: CudaDevice):
    assert memory_stats(gpu) == (0, 0, 0, 0, None)
    kept = [allocate(gpu, 512) for _ in range(10)]
    assert memory_stats(gpu) == (5120, 0, 5120, 5120, None)
    del kept[5:]
    assert memory_stats(gpu) == (2560, 2560, 5120, 5120, None)
    assert trim(gpu) == 2560
    assert memory_stats(gpu) == (2560, 0, 2560, 5120, None)
    kept.clear()
    assert trim(gpu) == 2560 and memory_stats(gpu)[:3] == (0, 0, 0)


@pytest.mark.parametrize("fake", [{"memory": 8 << 20}], indirect=True)
def test_out_of_memory(fake: FakeDriver, gpu: CudaDevice):
    kept = [allocate(gpu, 3 << 20), allocate(gpu, 1 << 20), allocate(gpu, 2 << 20), allocate(gpu, 1 << 20)]
    message = (
        r"cannot allocate 2\.0 MiB on cuda:0: arrays hold 7\.0 MiB \(the largest: 3\.0 MiB, 2\.0 MiB, 1\.0 MiB\), "
        r"freed blocks 0 B; the device has 8\.0 MiB, of which 1\.0 MiB are free"
    )
    with pytest.raises(MemoryError, match=message):
        allocate(gpu, 2 << 20)
    # Freed blocks of other sizes make room, as do those in cycles.
    kept[:] = [kept[0], [kept[1:], kept]]  # pyright: ignore[reportArgumentType, reportCallIssue]
    del kept
    assert allocate(gpu, 8 << 20).nbytes == 8 << 20
    with pytest.raises(MemoryError, match=r"cannot allocate 4\.0 EiB"):
        allocate(gpu, 1 << 62)
    assert allocate(gpu, 8 << 20).nbytes == 8 << 20
    gc.collect()


def test_limit(gpu: CudaDevice):
    assert set_memory_limit(gpu, 10 << 20) is None
    a = allocate(gpu, 6 << 20)
    with pytest.raises(MemoryError, match=r"the limit is 10\.0 MiB"):
        allocate(gpu, 6 << 20)
    del a
    b = allocate(gpu, 8 << 20)
    assert memory_stats(gpu)[:3] == (8 << 20, 0, 8 << 20)
    del b
    assert set_memory_limit(gpu, 1 << 20) == 10 << 20
    assert memory_stats(gpu).reserved == 0
    assert set_memory_limit(gpu, None) == 1 << 20
    with pytest.raises(ValueError, match="negative"):
        set_memory_limit(gpu, -1)


def test_configured_limits(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory.config, "device_memory_limit", 10 << 20)
    monkeypatch.setattr(memory.config, "pool_limit", 3 << 20)
    for size in (1, 2, 3):
        allocate(gpu, size << 20)
    # More than 3 MiB of freed blocks, when the next one was needed: they went.
    assert memory_stats(gpu).cached == 6 << 20
    a = allocate(gpu, 4 << 20)
    assert memory_stats(gpu) == (4 << 20, 0, 4 << 20, 4 << 20, 10 << 20)
    del a


def test_freed_in_threads(gpu: CudaDevice):
    parts = [[allocate(gpu, 100 * i) for i in range(100)] for _ in range(4)]

    def work(part: list[Buffer]) -> None:
        while part:
            part.pop()
            for n in (10, 1000, 5000):
                allocate(gpu, n)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stats = memory_stats(gpu)
    assert stats.live == 0 and stats.cached == stats.reserved == pool_of(gpu).held


def test_blocks_of_swapped_buffers(gpu: CudaDevice):
    """The attributes say what is freed, whichever object they were made for."""
    a, b = allocate(gpu, 100), allocate(gpu, 1 << 20)
    for name in ("address", "owner", "capacity"):
        x, y = getattr(a, name), getattr(b, name)
        setattr(a, name, y)
        setattr(b, name, x)
    address = b.address
    del b
    assert allocate(gpu, 100).address == address
    del a
    assert memory_stats(gpu).live == 0


class Owner:
    """Something whose end shows."""

    def __init__(self, ended: list[int]) -> None:
        self.ended = ended

    def __del__(self) -> None:
        self.ended.append(1)


def test_adopted_memory_is_kept_while_work_is_queued(fake: FakeDriver, gpu: CudaDevice):
    ended: list[int] = []
    base, target = allocate(gpu, 8), allocate(gpu, 8)
    copies.copy_from_host(np.array([5]), base)
    view = memory.adopt(gpu, base.address, 8, Owner(ended))
    assert view.pinned and view.capacity == 0 and "pinned" in repr(view)
    copies.copy(view, 0, target, 0, 8)
    del view
    for _ in range(2):
        memory.adopt(gpu, base.address, 8, None)  # looks after those that left
        assert not ended
    out = np.zeros(1, int)
    copies.copy_to_host(target, 0, out)
    assert out[0] == 5 and ended == [1]


def test_order_of_reuse(fake: FakeDriver, gpu: CudaDevice):
    """A block that is freed and used again holds what was put there last, though nobody waited."""
    results = []
    for i in range(10):
        a = allocate(gpu, 8)
        copies.copy_from_host(np.array([i]), a)
        b = allocate(gpu, 8)
        copies.copy(a, 0, b, 0, 8)
        del a
        results.append(b)
        pool_of(gpu).evict()
    out = np.zeros(1, int)
    for i, b in enumerate(results):
        copies.copy_to_host(b, 0, out)
        assert out[0] == i


def test_events_are_used_again(fake: FakeDriver, gpu: CudaDevice):
    for _ in range(10):
        streams.Event(gpu).record().wait()
    assert fake.calls.count("cuEventCreate") == 1
