from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from blockarray.runtime import device
from blockarray.runtime.cuda import copies, driver, memory, streams, words
from blockarray.runtime.device import CPU, CudaDevice, Device, default_device, devices, set_default_device

from .fake import CUresult, FakeDriver

several = pytest.mark.parametrize("fake", [{"devices": 2}], indirect=True)


def test_import_touches_no_driver():
    code = (
        "import sys, blockarray.runtime.cuda.copies, blockarray.runtime.cuda.launch, blockarray.runtime.cuda.words\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'cuda'])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@several
def test_devices(fake: FakeDriver):
    assert list(map(str, devices())) == ["cpu", "cuda:0", "cuda:1"]
    gpu = Device("CUDA:1")
    assert gpu is devices()[2] and gpu == "cuda:1" and gpu != "cuda:0" and gpu != CPU and Device("cuda") == "cuda"
    assert isinstance(gpu, CudaDevice) and (gpu.kind, gpu.index) == ("cuda", 1)
    assert (gpu.name, gpu.capability, gpu.multiprocessors) == ("Fake GPU", (9, 0), 132)
    assert gpu.total_memory == fake.memory
    assert "cuDevicePrimaryCtxRetain" not in fake.calls
    with pytest.raises(ValueError, match="available: cpu, cuda:0, cuda:1"):
        Device("cuda:2")
    gpu.synchronize()
    CPU.synchronize()


def test_default_device(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    assert default_device() == "cuda:0"
    monkeypatch.setattr(device.config, "device", "cpu")
    assert default_device() is CPU
    set_default_device("cuda")
    assert default_device() == "cuda:0"
    with device.device("cpu") as inner:
        assert inner is default_device() is CPU
        with device.device("cuda"):
            assert default_device() == "cuda:0"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(default_device()))
        thread.start()
        thread.join()
        assert seen == ["cuda:0"]
        assert default_device() is CPU
    set_default_device(None)
    assert default_device() is CPU


@pytest.mark.cpu_only
@pytest.mark.parametrize("fake", [{"devices": 0}, {"capability": (7, 5)}], indirect=True)
def test_no_usable_device(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "_missing", None)
    monkeypatch.setattr(driver, "_load", lambda: driver._start(fake))
    assert devices() == (CPU,) and default_device() is CPU
    with pytest.raises(RuntimeError, match=r"cuda:0 cannot be used: no GPU of compute capability 8\.0"):
        Device("cuda")


def test_driver_that_does_not_start(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    fake.fail["cuInit"] = CUresult.CUDA_ERROR_NO_DEVICE
    assert "CUDA_ERROR_NO_DEVICE: no device" in driver._start(fake)[0]
    del fake.fail["cuInit"]
    assert driver._start(fake) == ()
    monkeypatch.setattr(FakeDriver, "cuDriverGetVersion", lambda self: 11040)
    assert "knows CUDA 11.4" in driver._start(fake)[0]


def test_no_driver(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", absent)
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None)
    assert [word in why for word, why in zip(("libcuda", "pip install"), driver._load(), strict=True)] == [True, True]


def test_errors_have_names(fake: FakeDriver, gpu: CudaDevice):
    gpu.synchronize()
    fake.fail["cuStreamSynchronize"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE: invalid value"):
        gpu.synchronize()
    fake.fail.clear()
    gpu.synchronize()


@several
def test_faults_last(fake: FakeDriver, gpu: CudaDevice):
    memory.allocate(gpu, 100)  # and freed
    buffer = memory.allocate(gpu, 1000)
    event = streams.Event(gpu)
    fake.fail["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(RuntimeError, match="a kernel or copy on cuda:0 failed with CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.synchronize()
    fake.fail.clear()
    for use in (
        gpu.synchronize,
        event.record,
        lambda: memory.allocate(gpu, 100),
        lambda: copies.copy_to_host(buffer, 0, np.zeros(1)),
        lambda: copies.copy_from_host(np.zeros(1), buffer),
        lambda: memory.memory_stats(gpu),
        lambda: words.error_word(gpu),
    ):
        with pytest.raises(RuntimeError, match=r"arrays on it are lost.*CUDA_ERROR_ILLEGAL_ADDRESS"):
            use()
    # Other devices go on.
    other = devices()[2]
    assert isinstance(other, CudaDevice)
    copies.copy_from_host(np.zeros(1 << 20), memory.allocate(other, 8 << 20))
    other.synchronize()


def test_threads_have_contexts(fake: FakeDriver, gpu: CudaDevice):
    kept = []
    thread = threading.Thread(target=lambda: kept.append(memory.allocate(gpu, 100)))
    thread.start()
    thread.join()
    before = len(fake.calls)
    kept.append(memory.allocate(gpu, 100))
    assert fake.calls[before:].count("cuCtxSetCurrent") <= 1


@pytest.mark.cpu_only
def test_fork(fake: FakeDriver, gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch):
    buffer = memory.allocate(gpu, 100)
    memory.adopt(gpu, 4096, 8, "somebody")
    event = streams.Event(gpu).record()
    monkeypatch.setattr(driver, "_lock", driver._lock)
    with memory._lock, words._lock, copies._staging_lock:
        pid = os.fork()
        if not pid:
            # In the child: nothing touches the driver or waits for a lock, and what is used says why it cannot be.
            status = 0
            try:
                thread = threading.Thread(target=_in_child, args=(fake, gpu, buffer, event))
                thread.start()
                thread.join(20)
                status = 0 if not thread.is_alive() and _child_passed else 1
            finally:
                os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    gpu.synchronize()


_child_passed: list[bool] = []


def _in_child(fake: FakeDriver, gpu: CudaDevice, buffer: memory.Buffer, event: streams.Event) -> None:
    before = len(fake.calls)
    for use in (
        gpu.synchronize,
        event.record,
        lambda: memory.allocate(gpu, 100),
        lambda: memory.trim(gpu),
        lambda: memory.memory_stats(gpu),
        lambda: words.error_word(gpu),
        lambda: copies.copy_to_host(buffer, 0, np.zeros(1)),
        lambda: Device("cuda:7"),
    ):
        with pytest.raises(RuntimeError, match=r"cannot be used: .*forked.*spawn"):
            use()
    assert devices() == (CPU,) and default_device() is CPU
    memory.Buffer(buffer.address, 100, gpu, capacity=512)  # and its end
    assert len(fake.calls) == before
    _child_passed.append(True)
