"""Large, deep, wide and shared graphs: linear time, bounded memory, no recursion."""

from __future__ import annotations

import gc
import resource
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.support import evaluate, host, live_nodes, needs_lazy, run_python, xp


@pytest.fixture(autouse=True)
def unraisable(monkeypatch):
    """An error in a destructor is an error."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    yield
    gc.collect()
    assert not seen, seen[0]


@pytest.mark.parametrize("length", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_long_chain(length: int) -> None:
    start = time.perf_counter()
    x = xp.asarray(np.zeros(3))
    for _ in range(length):
        x = x + 1.0
    assert host(x).tolist() == [length] * 3
    assert time.perf_counter() - start < 60 * length / 100_000


def test_long_chain_is_dropped_without_recursion() -> None:
    x = xp.asarray(np.ones(4))
    for _ in range(100_000):
        x = xp.sqrt(x * x)
    del x
    gc.collect()


def test_mixed_chain() -> None:
    """Views, reductions and casts in the chain, so that it is no single fused loop."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 10, (6, 6))
    x = xp.asarray(a)
    for step in range(2000):
        match step % 5:
            case 0:
                x, a = x.T + step, a.T + step
            case 1:
                x, a = x - xp.max(x, axis=0), a - a.max(axis=0)
            case 2:
                x, a = x[::-1] % 1000, a[::-1] % 1000
            case 3:
                x, a = xp.reshape(x, (4, 9)), a.reshape(4, 9)
            case 4:
                x, a = xp.reshape(x * 3, (6, 6)), (a * 3).reshape(6, 6)
    assert np.array_equal(host(x), a)


@needs_lazy
def test_many_live_arrays_of_one_graph() -> None:
    before = live_nodes()
    x = xp.asarray(np.arange(8.0))
    arrays = [x]
    for i in range(4_999):
        arrays.append(arrays[i // 2] + 1.0)
    evaluate(*arrays)
    want = [0.0]
    for i in range(4_999):
        want.append(want[i // 2] + 1.0)
    assert [float(host(a)[0]) for a in arrays] == want
    del arrays, x
    assert live_nodes() <= before + 10


@needs_lazy
def test_evaluated_graph_is_freed() -> None:
    before = live_nodes()
    x = xp.asarray(np.ones(10))
    y = x
    for _ in range(500):
        y = y * 0.5 + x
    evaluate(y)
    assert live_nodes() <= before + 10  # y keeps its value, not its history
    assert abs(float(y[0]) - 2) < 1e-9


def test_shared_graph_of_depth_200() -> None:
    start = time.perf_counter()
    x = xp.asarray(np.array([1, 2], np.uint64))
    for _ in range(200):
        x = x + x + 1
    want = [1, 2]
    for _ in range(200):
        want = [(2 * w + 1) % 2**64 for w in want]
    assert host(x).tolist() == want
    assert time.perf_counter() - start < 20


def test_shared_graph_through_reductions() -> None:
    """Each level reads the one before twice, once reduced."""
    a = np.arange(12, dtype=np.uint32).reshape(3, 4)
    x = xp.asarray(a)
    for _ in range(60):
        x = x + xp.sum(x, axis=0, dtype=np.uint32)
        a = a + a.sum(axis=0, dtype=np.uint32)
    assert np.array_equal(host(x), a)


def step(u: Any) -> Any:
    return 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def steps(u: Any, n: int) -> Any:
    for _ in range(n):
        u = step(u)
    return u


@pytest.mark.parametrize("n", [2, 3, 5])
def test_stencil_of_stencil(n: int) -> None:
    a = np.random.default_rng(n).standard_normal((40, 37))
    assert np.array_equal(host(steps(xp.asarray(a), n)), steps(a, n))


@needs_lazy
def test_stencil_steps_stay_linear() -> None:
    a = np.random.default_rng(0).standard_normal((160, 150)).astype(np.float32)
    x = xp.asarray(a)
    counts = {}
    for n in (25, 50):
        y = steps(x, n)
        plan = xp.explain(y)
        counts[n] = (len(plan.kernels), sum(len(k.ops) for k in plan.kernels))
        np.testing.assert_allclose(host(y), steps(a.astype(np.float64), n), atol=1e-5)
    assert counts[50][0] <= 2 * counts[25][0] + 2, counts
    assert counts[50][1] <= 2.2 * counts[25][1] + 20, counts


def test_in_place_stencil_steps() -> None:
    a = np.random.default_rng(0).standard_normal((50, 60))
    x = xp.asarray(a)
    a = a.copy()
    for _ in range(50):
        x[1:-1, 1:-1] = step(x)
        a[1:-1, 1:-1] = step(a)
    assert np.array_equal(host(x), a)


def test_broadcast_chain_does_not_multiply_work() -> None:
    """A producer that is dear to compute and is read along a new axis is computed once."""
    a = np.random.default_rng(0).standard_normal(300)
    x = xp.asarray(a)
    for _ in range(6):
        x = xp.sum(xp.exp(-xp.abs(x[:, None] - x[None, :])), axis=1) / 300
        a = np.exp(-np.abs(a[:, None] - a[None, :])).sum(axis=1) / 300
    start = time.perf_counter()
    np.testing.assert_allclose(host(x), a, rtol=1e-10)
    assert time.perf_counter() - start < 20


def test_loop_memory_is_flat() -> None:
    def loop(n: int) -> Any:
        x = xp.asarray(np.ones(64))
        y = xp.asarray(np.full(64, 0.5))
        for _ in range(n):
            x = x * 0.5 + y
        return float(x[0])

    loop(5_000)
    gc.collect()
    tracemalloc.start()  # slows the loop to a third
    try:
        loop(3_000)
        short = tracemalloc.get_traced_memory()[1]
        loop(12_000)
        long = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert long < short + 4 * 2**20, (short, long)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loop(60_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 32 * 1024


@pytest.mark.cpu_only
def test_loop_of_large_arrays_keeps_no_history() -> None:
    """Pending buffers, not only pending nodes, bound what a loop keeps: 300 steps would otherwise hold 1.2 GB."""
    out = run_python("""
import resource, numpy as np, importlib, os
xp = importlib.import_module(os.environ.get("BLOCKARRAY_TEST_NAMESPACE", "blockarray"))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = xp.asarray(np.ones(1000)); float(xp.sum(x * 2 + 1))
before = peak()
x, v = xp.asarray(np.ones(500_000, np.float32)), xp.asarray(np.zeros(500_000, np.float32))
for step in range(300):
    v = v - 0.001 * xp.asarray(np.full(500_000, step, np.float32))
    x = x + 0.001 * v
float(xp.sum(x))
print((peak() - before) // 1024)
""")
    assert int(out) < 400, f"{out} MiB"


@pytest.mark.cpu_only
@needs_lazy
def test_pairwise_distance_never_holds_the_intermediate() -> None:
    """Its (n, m, k) difference would be 4 GiB."""
    out = run_python(
        """
import resource, numpy as np, blockarray as xp
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rng = np.random.default_rng(0)
a = rng.standard_normal((64, 64)).astype(np.float32)
float(xp.sum(((xp.asarray(a)[:, None] - xp.asarray(a)[None]) ** 2).sum(-1)))
before = peak()
a = rng.standard_normal((4096, 64), dtype=np.float32); b = rng.standard_normal((4096, 64), dtype=np.float32)
x, y = xp.asarray(a), xp.asarray(b)
d = x[:, None] - y[None]
q = d ** 2
r = q.sum(-1)
xp.evaluate(r)
print((peak() - before) // 1024)
got = np.asarray(r)
np.testing.assert_allclose(got[:50, :50], ((a[:50, None] - b[None, :50]) ** 2).sum(-1), rtol=1e-5)
""",
        timeout=300,
    )
    result, inputs = 4096 * 4096 * 4 >> 20, 4 * (4096 * 64 * 4 >> 20)
    assert int(out) < result + inputs + 64, f"{out} MiB"
