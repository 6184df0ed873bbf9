"""When memory runs out, or a step fails for another reason: what is said, and that every array keeps its value.

On a machine without a GPU, or with the CPU as the tests' device, one is faked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests import fake_gpu
from tests.support import needs_lazy, xp

pytestmark = needs_lazy

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def devices(pytestconfig: pytest.Config) -> Iterator[None]:
    if pytestconfig.getoption("--device") == "cpu":
        with fake_gpu.installed(1), xp.device("cuda:0"):
            yield
    else:
        yield


@contextmanager
def limit(more: int) -> Iterator[None]:
    """Let arrays on the GPU have so many bytes more than they have now."""
    from blockarray.runtime.cuda import memory

    gpu = xp.get_default_device()
    xp.synchronize()
    before = memory.set_memory_limit(gpu, memory.memory_stats(gpu).live + more)
    try:
        yield
    finally:
        memory.set_memory_limit(gpu, before)


def made(*arrays: Any) -> list[Any]:
    found = [xp.array(a) for a in arrays]
    xp.evaluate(*found)
    return found


def test_what_is_said() -> None:
    (x,) = made(np.arange(100_000.0))
    with limit(4 * MIB):
        y = xp.cumsum(x)[:, None] * x[:100]
        with pytest.raises(MemoryError) as caught:
            xp.evaluate(y)
    said = str(caught.value)
    for part in ("float64[100000, 100] of", "cumsum", "multiply", "cannot allocate 76.3 MiB on cuda:0", "arrays hold"):
        assert part in said
    assert "the largest: " in said and "the limit is" in said
    np.testing.assert_allclose(y[-1, :3].tolist(), np.arange(3) * np.arange(100_000.0).sum())
    assert x[7].item() == 7


def test_freed_memory_is_used_again() -> None:
    with limit(10 * MIB):
        for mib in (1, 3, 5, 2, 7, 9, 4):
            made(np.full(mib * MIB // 8, 1.5))
        (x,) = made(np.full(9 * MIB // 8, 2.5))
        cycle: list[Any] = [x]
        cycle.append(cycle)
        del x, cycle
        (x,) = made(np.full(9 * MIB // 8, 3.5))
        with pytest.raises(MemoryError):
            xp.evaluate(x + x.sum())
        y = x[: MIB // 16] + 1
        xp.evaluate(y)
        del x
        z = y.sum() + xp.ones(8 * MIB // 8)
        assert z[-1].item() == 4.5 * (MIB // 16) + 1


def add(xp: Any, x: Any) -> Any:
    x += 1
    return x[:, None] * xp.cumsum(x)[None, :]


def windows(xp: Any, x: Any) -> Any:
    x[5:10] = x[15:20] + x[5:10]
    x[3:8] *= 2
    return xp.cumsum(x)[:, None] * x[None, :]


def scatter(xp: Any, x: Any) -> Any:
    total = x.sum()
    x[xp.asarray([1, 2])] += 7
    x[10:] -= x[:-10]
    return (xp.cumsum(x) + total)[:, None] * x[None, :]


def several(xp: Any, x: Any) -> Any:
    y = x * 2
    x[::2] += y[::2]
    y[1::2] = x[1::2]
    z = xp.sort(y)
    x[0] = z[3]
    return xp.outer(z, x) @ xp.outer(x, y)


def product(xp: Any, x: Any) -> Any:
    x[3] = 5
    y = xp.outer(x, x) @ xp.outer(x, x)
    x[4] += 1
    return y + x


@pytest.mark.parametrize("program", [add, windows, scatter, several, product])
def test_arrays_keep_their_values(program: Callable[..., Any]) -> None:
    """However often a program fails, and wherever in it the memory runs out, it is as if it had not been tried."""
    values = np.arange(60.0)[::-1] % 17
    expected = values.copy()
    result = program(np, expected)
    (x,) = made(values)
    y = program(xp, x)
    failures = 0
    for more in (0, 1, 4, 30, 60, 200, 64 * KIB):
        with limit(int(more * KIB)):
            try:
                xp.evaluate(y, x)
                break
            except MemoryError:
                failures += 1
    assert failures > 2
    np.testing.assert_allclose(np.asarray(x), expected)
    np.testing.assert_allclose(np.asarray(y), result)


def test_a_library_call_that_fails() -> None:
    for device in ("cpu", xp.get_default_device()):
        x = xp.asarray(np.zeros((2, 2)), device=device)
        xp.evaluate(x)
        x[0, 0] += 1
        total = x.sum()
        with pytest.raises(np.linalg.LinAlgError):
            xp.evaluate(xp.linalg.inv(x))
        with pytest.raises(np.linalg.LinAlgError):
            xp.evaluate(xp.linalg.inv(x), total)
        assert x.tolist() == [[1, 0], [0, 0]] and total.item() == 1


def test_a_check_that_fails() -> None:
    for device in ("cpu", xp.get_default_device()):
        x = xp.asarray(np.arange(10.0), device=device)
        wrong = xp.asarray([3, 0], device=device) * 4
        xp.evaluate(x)
        x[2:4] += 7
        picked = x[wrong] * 2
        for _ in range(2):
            with pytest.raises(IndexError):
                picked.tolist()
        assert x.tolist() == [0, 1, 9, 10, 4, 5, 6, 7, 8, 9]
