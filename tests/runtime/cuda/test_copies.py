from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from blockarray.runtime.cuda import copies, streams
from blockarray.runtime.cuda.copies import clear, copy, copy_from_host, copy_to_host
from blockarray.runtime.cuda.memory import Buffer, allocate
from blockarray.runtime.device import CudaDevice, Device

from .fake import CUresult, FakeDriver


@pytest.fixture(autouse=True)
def small_stages(monkeypatch: pytest.MonkeyPatch):
    """Every stage of a large copy, in small."""
    monkeypatch.setattr(copies, "_STAGED", 10_000)
    monkeypatch.setattr(copies, "_SLOT", 8192)
    monkeypatch.setattr(copies, "_CHUNK", 4096)
    monkeypatch.setattr(copies, "_lanes", lambda: 3)
    workers = copies.ThreadPoolExecutor(2)
    monkeypatch.setattr(copies, "_workers", lambda: workers)
    yield
    workers.shutdown()


def read(buffer: Buffer, n: int, offset: int = 0) -> np.ndarray:
    out = np.full(n, 77, np.uint8)
    copy_to_host(buffer, offset, out)
    return out


@pytest.mark.parametrize("n", [0, 1, 9999, 10_000, 12_289, 50_000, 8192 * 6, 300_001])
def test_there_and_back(gpu: CudaDevice, n: int):
    x = np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)
    buffer = allocate(gpu, n + 5)
    expected = x.copy()
    copy_from_host(x, buffer, 5)
    x[:] = 0
    assert (read(buffer, n, 5) == expected).all()


def test_strided_source(gpu: CudaDevice):
    x = np.arange(60_000.0).reshape(200, 300)[::2, ::-3]
    buffer = allocate(gpu, x.nbytes)
    copy_from_host(x, buffer)
    out = np.empty(x.shape)
    copy_to_host(buffer, 0, out)
    assert (out == x).all()


def test_many_threads(gpu: CudaDevice):
    wrong = []

    def work(seed: int) -> None:
        for n in (100, 30_000, 100_001):
            x = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
            buffer = allocate(gpu, n)
            copy_from_host(x, buffer)
            if not (read(buffer, n) == x).all():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_on_the_device(gpu: CudaDevice):
    x = np.arange(100, dtype=np.uint8)
    a, b = allocate(gpu, 100), allocate(gpu, 100)
    copy_from_host(x, a)
    clear(b)
    copy(a, 10, b, 20, 30)
    clear(b, 25, 5)
    copy(a, 0, b, 0, 0)
    expected = np.zeros(100, np.uint8)
    expected[20:50] = x[10:40]
    expected[25:30] = 0
    assert (read(b, 100) == expected).all()


@pytest.mark.parametrize("fake", [{"devices": 2}], indirect=True)
def test_between_devices(fake: FakeDriver, gpu: CudaDevice):
    other = Device("cuda:1")
    assert isinstance(other, CudaDevice)
    for i in range(5):
        a, b = allocate(gpu, 8), allocate(other, 8)
        copy_from_host(np.array([i]), a)
        copy(a, 0, b, 0, 8)
        del a
        # The same block; the write must not overtake the copy.
        c = allocate(gpu, 8)
        copy_from_host(np.array([-1]), c)
        if i % 2:
            gpu.synchronize()
        out = np.zeros(1, int)
        copy_to_host(b, 0, out)
        assert out[0] == i
    assert fake.calls.count("cuMemPoolSetAccess") == 1


def test_refusals(gpu: CudaDevice):
    buffer = allocate(gpu, 100)
    with pytest.raises(ValueError, match="outside"):
        copy_from_host(np.zeros(13), buffer)
    with pytest.raises(ValueError, match="outside"):
        copy_to_host(buffer, -8, np.zeros(1))
    with pytest.raises(ValueError, match="outside"):
        copy(buffer, 60, allocate(gpu, 100), 0, 50)
    with pytest.raises(ValueError, match="outside"):
        clear(buffer, 0, 101)
    with pytest.raises(ValueError, match="C-contiguous"):
        copy_to_host(buffer, 0, np.zeros((2, 3)).T)
    locked = np.zeros(3)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        copy_to_host(buffer, 0, locked)


def test_error_in_a_lane(fake: FakeDriver, gpu: CudaDevice):
    buffer, x = allocate(gpu, 100_000), np.zeros(100_000, np.uint8)
    fake.fail["cuMemcpyHtoDAsync"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        copy_from_host(x, buffer)
    fake.fail.clear()
    copy_from_host(x + 1, buffer)
    assert (read(buffer, 100_000) == 1).all()


def test_order_with_other_streams(fake: FakeDriver, gpu: CudaDevice):
    """Work of others waits for ours after `signal`, and ours for theirs after `wait_for`."""
    stream = 77
    fake.stream(stream).context = 1000
    a, b, c = allocate(gpu, 8), allocate(gpu, 8), allocate(gpu, 8)
    copy_from_host(np.array([5]), a)
    streams.signal(gpu, stream)
    fake.stream(stream).put(lambda: ctypes.memmove(b.address, a.address, 8))
    streams.wait_for(gpu, stream)
    copy(b, 0, c, 0, 8)
    out = np.zeros(1, int)
    copy_to_host(c, 0, out)
    assert out[0] == 5
    count = len(fake.calls)
    for own in (streams.stream(gpu), streams.LEGACY, 0):
        streams.wait_for(gpu, own)
        streams.signal(gpu, own)
    assert "cuStreamWaitEvent" not in fake.calls[count:]
