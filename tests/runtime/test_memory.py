"""The pool and the buffers."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from blockarray.runtime import memory
from blockarray.runtime.memory import LARGE, allocate, as_numpy, memory_stats, set_limit, size_class, trim, wrap

F32 = np.dtype(np.float32)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4096, 100_001, LARGE - 1, LARGE, 3 * LARGE + 1])
def test_alignment_and_contents(nbytes):
    buffer = allocate(nbytes)
    assert buffer.nbytes == nbytes <= buffer.capacity
    assert buffer.address % (2 << 20 if nbytes >= LARGE else 64) == 0
    bytes_ = as_numpy(buffer, np.dtype(np.uint8), 0, (nbytes,))
    bytes_[...] = 171
    assert (bytes_ == 171).all()


def test_size_classes_waste_at_most_an_eighth():
    for nbytes in [*range(1, 5000), *(2**k + d for k in range(12, 40) for d in (-1, 0, 1, 2**k // 3))]:
        size = size_class(nbytes)
        assert size >= nbytes and size % 64 == 0 and size_class(size) == size
        assert size - nbytes <= max(63, nbytes // 8)
        assert size < LARGE or size % 4096 == 0


@pytest.mark.parametrize("nbytes", [1000, 5 << 20])
def test_a_freed_block_is_used_again(nbytes):
    first = allocate(nbytes)
    address = first.address
    del first
    assert allocate(nbytes).address == address


@pytest.mark.parametrize("nbytes", [777, 3 << 20])
def test_zeroed(nbytes):
    for _ in range(3):
        buffer = allocate(nbytes, zeroed=True)
        view = as_numpy(buffer, np.dtype(np.uint8), 0, (nbytes,))
        assert not view.any()
        view[...] = 255
        del buffer, view


def test_blocks_do_not_overlap():
    rng = np.random.default_rng(0)
    held = []
    for i in range(2000):
        held.append(allocate(int(rng.integers(0, 20_000))))
        if i % 3 == 0:
            held.pop(int(rng.integers(len(held))))
    spans = sorted((b.address, b.address + b.capacity) for b in held)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_views_hold_the_buffer():
    buffer = allocate(4096)
    address = buffer.address
    view = as_numpy(buffer, F32, 0, (1024,))
    view[...] = np.arange(1024)
    part = view[10:20]
    del buffer, view
    assert allocate(4096).address != address
    assert part.tolist() == list(range(10, 20))
    del part
    assert allocate(4096).address == address


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.float64, np.complex128])
def test_windows(dtype):
    dtype = np.dtype(dtype)
    source = np.arange(60).reshape(3, 4, 5).astype(dtype)
    buffer = wrap(source, copy=True)
    assert np.array_equal(as_numpy(buffer, dtype, 0, (3, 4, 5)), source)
    assert np.array_equal(as_numpy(buffer, dtype, 59, (3, 4, 5), (-20, -5, -1)), source[::-1, ::-1, ::-1])
    assert np.array_equal(as_numpy(buffer, dtype, 7, (2, 5, 3), (20, 0, 5)), np.broadcast_to(
        source[:2, 1:, 2][:, None, :], (2, 5, 3)
    ))  # fmt: skip
    assert as_numpy(buffer, dtype, 3, ()).item() == source.flat[3]
    assert as_numpy(buffer, dtype, 60, (0, 4)).shape == (0, 4)
    fixed = as_numpy(buffer, dtype, 0, (60,), writeable=False)
    with pytest.raises(ValueError, match="read-only"):
        fixed[0] = 1
    with pytest.raises((ValueError, TypeError)):
        as_numpy(buffer, dtype, 1, (60,))


def test_wrap_shares_memory():
    source = np.arange(10.0)
    buffer = wrap(source)
    assert buffer.pinned and buffer.owner is source and buffer.nbytes == 80
    as_numpy(buffer, source.dtype, 0, (10,))[3] = -1
    assert source[3] == -1
    backwards = wrap(source[::-2])
    assert backwards.address == source[1:].ctypes.data and backwards.nbytes == 72
    assert wrap(np.empty((0, 3))).nbytes == 0
    with pytest.raises(TypeError, match="objects"):
        wrap(np.array([None]))


def test_limit_and_trim():
    trim()
    before = set_limit(16 << 20)
    try:
        blocks = [allocate(4 << 20) for _ in range(8)] + [allocate(3 << 20) for _ in range(8)]
        blocks.clear()
        assert memory._cached_large() <= 16 << 20
        del blocks
        allocate(100 << 20)
        assert memory._cached_large() <= 16 << 20
        trim()
        assert memory._cached_large() == 0
    finally:
        set_limit(before)
    with pytest.raises(ValueError, match="negative"):
        set_limit(-1)


def test_trim_gives_back_slabs_that_are_free_and_keeps_the_rest():
    gc.collect()
    trim()
    start = memory_stats()
    kept = [allocate(300_000) for _ in range(100)]
    for i, b in enumerate(kept):
        as_numpy(b, np.dtype(np.uint8), 0, (300_000,))[...] = i
    del b
    live = memory_stats().live
    assert live - start.live == 100 * size_class(300_000)
    del kept[5:]
    assert trim() > 0
    now = memory_stats()
    assert now.reserved < start.reserved + 100 * 300_000
    for i, b in enumerate(kept):
        assert (as_numpy(b, np.dtype(np.uint8), 0, (300_000,)) == i).all()
    del b
    kept.clear()
    trim()
    assert memory_stats().live == start.live


def test_impossible_sizes():
    for nbytes in (1 << 50, 1 << 62, 1 << 70):
        with pytest.raises(MemoryError, match=r"cannot allocate .*arrays hold .*freed blocks"):
            allocate(nbytes)
    with pytest.raises(ValueError, match="-1 bytes"):
        allocate(-1)


def test_threads_share_the_pool():
    errors = []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for i in range(1500):
            n = int(rng.integers(1, 1 << int(rng.integers(1, 23))))
            buffer = allocate(n)
            view = as_numpy(buffer, np.dtype(np.uint8), 0, (n,))
            view[0] = view[-1] = seed
            held.append(view)
            if len(held) > 20:
                old = held.pop(int(rng.integers(20)))
                if old[0] != seed or old[-1] != seed:
                    errors.append(n)
            if i % 500 == 0:
                trim()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_cycles_and_exit():
    code = """
import numpy as np, sys
from blockarray.runtime.memory import allocate, as_numpy
class Node: pass
for _ in range(10):
    n = Node(); n.me = n; n.buffer = allocate(3 << 20); n.view = as_numpy(n.buffer, np.dtype('u1'), 0, (9,))
class Last:
    def __init__(self): self.view = as_numpy(allocate(4 << 20), np.dtype('f4'), 0, (1 << 20,))
    def __del__(self): self.view[...] = 1
keep = Last(); sys.keep = [Last(), allocate(10), allocate(8 << 20)]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
