from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from blockarray.runtime.cuda import launch, streams, words
from blockarray.runtime.cuda.copies import copy_to_host
from blockarray.runtime.cuda.memory import allocate
from blockarray.runtime.device import CudaDevice

from .fake import CUresult, FakeDriver
from .ptx import blob, function, pack


def run(f: launch.Function, gpu: CudaDevice, programs: int, *args: int | float) -> None:
    block = pack(*args)
    launch.launch(f, gpu, ctypes.addressof(block), len(block), programs)
    block[:] = b"\xff" * len(block)  # the driver has its own copy


def test_launch(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 96, shared=100 << 10)
    buffer, out = allocate(gpu, 8), np.zeros(1, int)
    for value in (3, 4):
        run(f, gpu, 7 + value, buffer.address, value)
        copy_to_host(buffer, 0, out)
        assert out[0] == value
    assert fake.launched == [(10, 1, 1, 96, 1, 1, 100 << 10), (11, 1, 1, 96, 1, 1, 100 << 10)]
    assert fake.calls.count("cuModuleLoadDataEx") == 1


def test_sizes_of_grids(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 32)
    run(f, gpu, 0, 0, 0)
    assert not fake.launched
    with pytest.raises(ValueError, match="2147483648 programs is too large"):
        run(f, gpu, 1 << 31, 0, 0)


def test_clusters(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 256, cluster=8)
    buffer = allocate(gpu, 8)
    run(f, gpu, 3, buffer.address, 5)
    assert fake.launched == [(24, 1, 1, 256, 1, 1, 0)]
    with pytest.raises(ValueError, match="268435456 programs is too large"):
        run(f, gpu, 1 << 28, 0, 0)


@pytest.mark.parametrize(("cluster", "most"), [(1, 264), (4, 33)])
def test_resident_blocks(fake: FakeDriver, gpu: CudaDevice, cluster: int, most: int):
    f = function("store", 256, cluster=cluster, resident=2)
    buffer = allocate(gpu, 8)
    for programs in (3, 1 << 31):
        run(f, gpu, programs, buffer.address, 5)
    assert [blocks for blocks, *_ in fake.launched] == [3 * cluster, most * cluster]


def test_kernels_that_wait_themselves_begin_early(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 384, shared=200 << 10, resident=1, waits=True)
    buffer, out = allocate(gpu, 8), np.zeros(1, int)
    for programs, value in ((7, 3), (500, 4), (600, 5)):
        run(f, gpu, programs, buffer.address, value)
        copy_to_host(buffer, 0, out)
        assert out[0] == value
    assert fake.launched == [(n, 1, 1, 384, 1, 1, 200 << 10) for n in (7, 132, 132)] and fake.early == 3
    run(function("store", 32), gpu, 1, buffer.address, 6)
    assert fake.early == 3


def test_repeated_launches(fake: FakeDriver, gpu: CudaDevice):
    buffer, out, block = allocate(gpu, 8), np.zeros(1, int), pack(0, 0)
    f = function("store", 64, cluster=2)
    repeated = launch.Repeated(f, gpu, ctypes.addressof(block), len(block), 3)
    for value in (4, 5):
        struct.pack_into("=2q", block, 0, buffer.address, value)
        repeated()
        run(f, gpu, 1, buffer.address, -1)  # it has a configuration and a block of its own
        repeated()
        copy_to_host(buffer, 0, out)
        assert out[0] == value
    assert [blocks for blocks, *_ in fake.launched] == [6, 2, 6, 6, 2, 6]
    with pytest.raises(ValueError, match="too large"):
        launch.Repeated(f, gpu, ctypes.addressof(block), len(block), 1 << 31)
    fake.fail["cuLaunchKernelEx"] = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(RuntimeError, match="LAUNCH_OUT_OF_RESOURCES"):
        repeated()


def test_launcher(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 64)
    kernel = launch.Launcher(f, gpu, ["pointer", "i64"])
    buffers, out = [allocate(gpu, 8) for _ in range(3)], np.zeros(1, int)
    for value, buffer in enumerate(buffers):
        kernel(value + 1, buffer.address, -value)
    kernel(0, 0, 0)
    for value, buffer in enumerate(buffers):
        copy_to_host(buffer, 0, out)
        assert out[0] == -value
    assert [blocks for blocks, *_ in fake.launched] == [1, 2, 3]
    with pytest.raises(struct.error):
        kernel(1, buffers[0].address, 1.5)


def test_launcher_passes_scalars_in_their_slots(fake: FakeDriver, gpu: CudaDevice):
    seen = []
    fake.kernels["look"] = lambda programs, args: seen.append(args)
    kinds = ["i32", "f32", "bool", "u8", "f64", "f16", "bf16", "c64"]
    launch.Launcher(function("look", 64), gpu, kinds)(1, -5, 1.5, True, 200, np.pi, 0.25, 0x3F80, 1.0, -2.0)
    gpu.synchronize()
    expected = struct.pack("=i4xf4x?7xB7xde6xH6xf4xf4x", -5, 1.5, True, 200, np.pi, 0.25, 0x3F80, 1.0, -2.0)
    assert seen == [expected]


def test_a_launch_inside_a_launch_has_arguments_of_its_own(fake: FakeDriver, gpu: CudaDevice):
    kernel = launch.Launcher(function("store", 64), gpu, ["pointer", "i64"])
    buffer, other, out = allocate(gpu, 8), allocate(gpu, 8), np.zeros(1, int)

    class Five:
        """A number that launches the kernel when it is packed, as a finaliser may at any time."""

        def __index__(self) -> int:
            kernel(1, other.address, 7)
            return 5

    kernel(1, buffer.address, Five())
    for memory, value in ((buffer, 5), (other, 7)):
        copy_to_host(memory, 0, out)
        assert out[0] == value


def test_blobs():
    f = launch.load(blob("code", 128, 64, (100, 8)))
    assert (f.threads, f.shared, f.workspace(10), f.code) == (128, 64, 180, b"code\0")
    assert f.header["format"] == "ptx"
    for bad in (b"", b"\1", struct.pack("<I", 2) + b"{}", struct.pack("<I", 99) + b"{}", b"\x7fELF" + b"\0" * 20):
        with pytest.raises(RuntimeError, match="no compiled GPU kernel"):
            launch.load(bad)


def test_code_that_cannot_be_loaded(gpu: CudaDevice):
    with pytest.raises(RuntimeError, match=r"cannot load a kernel on cuda:0: CUDA_ERROR_INVALID_PTX.*\(line 1\)"):
        run(function("no such code", 32), gpu, 1)


def test_failed_launch(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 1024)
    fake.fail["cuLaunchKernelEx"] = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(RuntimeError, match="LAUNCH_OUT_OF_RESOURCES"):
        run(f, gpu, 1, 0, 0)
    gpu.synchronize()


def test_error_words(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 1)
    taken = [words.error_word(gpu) for _ in range(600)]
    assert len({w.address for w in taken}) == 600
    run(f, gpu, 1, taken[3].address, 42)
    gpu.synchronize()
    assert [w.view[0] for w in taken[2:5]] == [0, 42, 0] and taken[0].view.dtype == np.int64
    taken[3].view[0] = 0
    assert not any(w.view[0] for w in taken)


def test_error_words_are_used_again_only_when_kernels_are_done(fake: FakeDriver, gpu: CudaDevice):
    f = function("store", 1)
    for i in range(3000):
        word = words.error_word(gpu)
        assert word.view[0] == 0
        run(f, gpu, 1, word.address, i + 1)
    assert fake.calls.count("cuMemHostAlloc") < 4


def test_events(fake: FakeDriver, gpu: CudaDevice):
    first, last = streams.Event(gpu, timing=True).record(), streams.Event(gpu, timing=True)
    run(function("store", 1), gpu, 1, allocate(gpu, 8).address, 1)
    last.record()
    assert not last.done()
    assert first.elapsed(last) == pytest.approx(1e-3)  # the fake's clock counts pieces of work
    assert first.done() and last.done()
