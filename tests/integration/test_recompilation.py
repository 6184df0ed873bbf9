"""New shapes, scalars, offsets and steps of a loop reuse compiled kernels."""

from __future__ import annotations

import gc
import resource
from typing import Any

import numpy as np
import pytest

from tests.support import ON_GPU, compiles, evaluate, host, needs_lazy, xp

pytestmark = needs_lazy


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def ones(*shape: int) -> Any:
    return xp.asarray(np.ones(shape, np.float32))


PROGRAMS = {
    "elementwise": lambda n, m: ones(n, m) * 2 + xp.exp(ones(m)),
    "softmax": lambda n, m: softmax(ones(n, m)),
    "sum-rows": lambda n, m: xp.sum(ones(n, m), axis=1),
    "sum-columns": lambda n, m: xp.sum(ones(n, m), axis=0),
    "sum-all": lambda n, m: xp.sum(ones(n, m) * 3),
    "centre": lambda n, m: ones(n, m) - ones(n, m).mean(0),
    "stencil": lambda n, m: (u := ones(n, m))[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:],
    "transposed": lambda n, m: ones(n, m).T + ones(m, n),
    "cumsum": lambda n, m: xp.cumsum(ones(n, m), axis=1),
    "gather": lambda n, m: xp.take(ones(n, m), xp.asarray(np.arange(7)), axis=0) + 1,
    "matmul": lambda n, m: ones(n, m) @ ones(m, 40) + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_inside_a_bucket_compile_once(name: str) -> None:
    program = PROGRAMS[name]
    program_args = [(130 + 2 * i + i % 2, 300) for i in range(50)] + [(200, 260 + 12 * i + i % 5) for i in range(20)]
    evaluate(program(255, 511))
    assert sum(compiles(program, n, m) for n, m in program_args) <= 12 * ON_GPU


def test_scalars_are_arguments() -> None:
    x = xp.asarray(np.linspace(0, 1, 1000))
    assert compiles(lambda: x * 1.5 + 1.5) <= 1
    assert sum(compiles(lambda t=t: x * t + t) for t in np.linspace(-2, 2, 40).tolist()) == 0
    assert host(x * 3.0 + 3.0)[-1] == 6


def test_python_int_scalars_compile_one_kernel() -> None:
    x = xp.asarray(np.arange(6))
    total = 0
    for k in range(8):
        with xp.profile() as p:
            y = host(x * k + k)
        total += p.compiles
        assert y.tolist() == [v * k + k for v in range(6)]
    assert total <= 1


def test_zero_dimensional_values_are_arguments() -> None:
    x = xp.asarray(np.linspace(0, 1, 1000))
    scales = [xp.sum(xp.asarray(np.full(10, k / 10.0))) for k in range(6)]
    evaluate(*scales)
    total = sum(compiles(lambda s=s: x * s) for s in scales)
    assert total <= 1
    np.testing.assert_allclose(host(x * scales[5])[-1], 5.0)


def test_offsets_are_arguments() -> None:
    a = np.arange(64 * 2048, dtype=np.float32).reshape(64, 2048)
    x = xp.asarray(a)
    assert compiles(lambda: x[0] + 1) <= 1
    assert sum(compiles(lambda i=i: x[i] + 1) for i in range(64)) == 0
    assert np.array_equal(host(x[63] + 1), a[63] + 1)


def test_slice_bounds_are_arguments() -> None:
    a = np.arange(4096.0)
    x = xp.asarray(a)
    evaluate(x[5:105] * 2)
    assert sum(compiles(lambda i=i: x[i : i + 100 + i] * 2) for i in range(2, 60)) <= ON_GPU
    assert np.array_equal(host(x[59:218] * 2), a[59:218] * 2)


def test_slice_writes_compile_once() -> None:
    x = xp.asarray(np.zeros(4096))
    y = xp.asarray(np.arange(64.0))

    def write(i: int) -> Any:
        x[i : i + 64] = y * 2
        return x

    compiles(write, 1)
    assert sum(compiles(write, i) for i in range(2, 50)) <= ON_GPU
    assert np.array_equal(host(x)[49 : 49 + 64], 2 * np.arange(64.0))


def test_reading_items_compiles_nothing() -> None:
    x = xp.asarray(np.arange(500))
    int(x[0])
    with xp.profile() as p:
        assert [int(x[i]) for i in range(500)] == list(range(500))
    assert p.compiles == 0


def test_equal_sizes_are_not_assumed() -> None:
    """A kernel compiled when two free sizes happened to be equal serves unequal ones."""
    f = lambda n, m: xp.sum(ones(n, 300)[:, None, :8] * ones(m, 300)[None, :, :8], axis=2)
    evaluate(f(200, 200))
    y = f(150, 250)
    assert host(y).shape == (150, 250) and (host(y) == 8).all()


def test_size_one_and_strides_zero() -> None:
    f = lambda a, b: xp.asarray(a) * 2 + xp.asarray(b)
    for n, m in ((200, 300), (1, 300), (200, 1), (1, 1)):
        a, b = np.arange(float(n * m)).reshape(n, m), np.arange(float(m))
        assert np.array_equal(host(f(a, b)), a * 2 + b)


def oscillate(steps: int) -> tuple[Any, Any]:
    x, v = xp.asarray(np.ones(16)), xp.asarray(np.zeros(16))
    dt = 1e-3
    for _ in range(steps):
        a = x * 1.0
        v = v - a * dt
        x = xp.minimum(x + v * dt, 2.0)
        v = v * 1.0
    return x, v


@pytest.mark.parametrize("steps", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_steady_loop_compiles_its_body_once(steps: int) -> None:
    """Seven operations a step, no call to evaluate: the automatic flush must find the loop's period."""
    with xp.profile() as p:
        oscillate(3000)
    assert p.launches > 10 and p.compiles <= 1
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with xp.profile() as q:
        x, v = oscillate(steps)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert q.compiles == 0
    assert grown < 64 * 1024, f"{grown} KiB"
    a, b = 1.0, 0.0
    for _ in range(steps):
        b -= a * 1e-3
        a += b * 1e-3
    np.testing.assert_allclose([float(x[0]), float(v[0])], [a, b], rtol=1e-12)
