"""Threads that share arrays, and processes that fork after use."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from blockarray.runtime import threads
from tests.support import NAMESPACE, assert_same, evaluate, host, run_python, xp


def together(*functions: Callable[[], None]) -> None:
    """Run each on its own thread, started at once; the first failure is raised here."""
    barrier = threading.Barrier(len(functions))
    failures: list[BaseException] = []

    def call(function: Callable[[], None]) -> None:
        try:
            barrier.wait(30)
            function()
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=call, args=(f,), daemon=True) for f in functions]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in started:
            t.start()
        for t in started:
            t.join(100)
    finally:
        sys.setswitchinterval(interval)
    assert not any(t.is_alive() for t in started), "deadlock"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("n", [10, 50_000])
def test_threads_evaluate_one_pending_array(n: int) -> None:
    for k in range(10):
        y = xp.sqrt(xp.asarray(np.arange(float(n))) * 2 + k)
        z = xp.sum(y)
        want = np.sqrt(np.arange(float(n)) * 2 + k)
        values = partial(assert_same, y, want)
        total = partial(np.testing.assert_allclose, z, want.sum())
        together(*[values, total] * 4)


def test_threads_extend_one_graph() -> None:
    x = xp.asarray(np.arange(200.0)) + 1

    def work(k: int) -> Callable[[], None]:
        def run() -> None:
            y, a = x, np.arange(200.0) + 1
            for i in range(300):
                y, a = y * 0.5 + k, a * 0.5 + k
                if i % 50 == k:
                    assert_same(y, a)
            assert_same(y, a)

        return run

    together(*map(work, range(8)))


def test_threads_write_disjoint_rows_of_one_array() -> None:
    x = xp.zeros((8, 1000))

    def work(k: int) -> Callable[[], None]:
        def run() -> None:
            row = x[k]
            for i in range(50):
                row += 1
                row[i::7] *= 2
                if i % 10 == k:
                    evaluate(x)

        return run

    together(*map(work, range(8)))
    a = np.zeros(1000)
    for i in range(50):
        a += 1
        a[i::7] *= 2
    assert_same(x, np.tile(a, (8, 1)))


def test_writers_and_readers_share_an_array() -> None:
    """A reader sees some state between whole writes, never half of one."""
    x = xp.zeros(4096, dtype=xp.int64)

    def writer() -> None:
        for i in range(100):
            x[:] = i
            if i % 3 == 0:
                evaluate(x)

    def reader() -> None:
        last = -1
        for _ in range(60):
            seen = host(x + 0)
            assert (seen == seen[0]).all()
            assert seen[0] >= last
            last = seen[0]

    if NAMESPACE != "numpy":
        together(writer, *[reader] * 7)


def test_threads_with_work_of_their_own() -> None:
    """The same programs at different shapes, compiled and cached by whichever thread comes first."""

    def work(k: int) -> Callable[[], None]:
        def run() -> None:
            rng = random.Random(k)
            for _ in range(25):
                n, m = rng.randrange(1, 90), rng.randrange(1, 90)
                a = np.random.default_rng(n * m).integers(-5, 6, (n, m)).astype(float)
                x = xp.asarray(a)
                match rng.randrange(4):
                    case 0:
                        assert_same(xp.sum(x * 2, axis=0), (a * 2).sum(axis=0))
                    case 1:
                        assert_same(x @ x.T, a @ a.T)
                    case 2:
                        assert_same(x - xp.max(x, axis=1, keepdims=True), a - a.max(axis=1, keepdims=True))
                    case 3:
                        assert_same(xp.cumsum(x, axis=1)[:, ::-1], np.cumsum(a, axis=1)[:, ::-1])

        return run

    together(*map(work, range(8)))


def test_results_die_on_other_threads() -> None:
    made: list[Any] = []

    def make() -> None:
        for i in range(200):
            x = xp.asarray(np.full(1000, float(i)))
            made.append(x * 2 + 1)

    def drop() -> None:
        for _ in range(400):
            if made:
                y = host(made.pop())
                assert (y == y[0]).all()

    together(make, drop, make, drop, drop, make, drop, drop)


START = """
import importlib, os, sys, threading, numpy as np
xp = importlib.import_module(os.environ.get("BLOCKARRAY_TEST_NAMESPACE", "blockarray"))
def total(n): return int(xp.sum(xp.arange(n) * 2))
def child(function):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(w, str(function()).encode())
        finally:
            os._exit(0)
    os.close(w)
    answer = os.read(r, 100)
    os.waitpid(pid, 0)
    return int(answer)
"""


@pytest.mark.cpu_only
def test_fork_after_use() -> None:
    """Worker threads do not survive a fork: the child must start its own."""
    out = run_python(
        START
        + """
x = xp.asarray(np.ones((3000, 1000), np.float32))
assert float(xp.sum(x * 2)) == 6e6
pending = x + 1
assert child(lambda: total(20)) == 380
assert child(lambda: int(xp.sum(x))) == 3_000_000
assert child(lambda: int(xp.sum(pending[:2]))) == 4000
assert child(lambda: int(xp.sum(xp.asarray(np.ones((300, 200))) @ xp.asarray(np.ones((200, 100)))))) == 6_000_000
assert child(lambda: child(lambda: total(30))) == 870
assert total(10) == 90 and float(xp.sum(pending)) == 6e6
print("done")
""",
        timeout=60,
    )
    assert out.split() == ["done"]


@pytest.mark.cpu_only
def test_fork_while_threads_work() -> None:
    """A lock that another thread holds at the fork must not be held for ever in the child."""
    out = run_python(
        START
        + """
stop = False
def busy():
    while not stop:
        total(5000)
threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads: t.start()
try:
    for i in range(20):
        assert child(lambda: total(100 + i)) == (100 + i) * (99 + i)
finally:
    stop = True
    for t in threads: t.join()
print("done")
""",
        timeout=100,
    )
    assert out.split() == ["done"]


def test_exit_with_pending_work() -> None:
    """The interpreter ends promptly with arrays pending, workers idle and a thread still running."""
    run_python(
        START
        + """
x = xp.asarray(np.ones(2_000_000)); y = x * 2; float(xp.sum(y)); z = y + 1
threading.Thread(target=lambda: [total(1000) for _ in range(10)], daemon=True).start()
""",
        timeout=30,
    )


@pytest.mark.cpu_only
@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_results_do_not_depend_on_the_number_of_threads(threads: str) -> None:
    code = """
import importlib, os, hashlib, numpy as np
xp = importlib.import_module(os.environ.get("BLOCKARRAY_TEST_NAMESPACE", "blockarray"))
a = np.random.default_rng(0).standard_normal((3001, 517)).astype(np.float32)
x = xp.asarray(a)
h = hashlib.sha256()
for r in (xp.exp(x), xp.sum(x), xp.sum(x, axis=0), xp.sum(x, axis=1), xp.cumsum(xp.reshape(x, (-1,))), x.T @ x):
    h.update(np.ascontiguousarray(np.asarray(r)).tobytes())
print(h.hexdigest())
"""
    assert run_python(code, BLOCKARRAY_THREADS=threads) == run_python(code, BLOCKARRAY_THREADS="3")


@pytest.mark.cpu_only
def test_products_use_the_threads_that_are_set_when_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    threads._load()
    launch, serial = threads.launch, threads.serial

    def noting(address: int, args: int, programs: int, scratch: int, team: bool, count: int) -> None:
        counts.append(count)
        launch(address, args, programs, scratch, team, count)

    def noting_one(job: Any) -> None:
        counts.append(1)
        serial(job)

    monkeypatch.setattr(threads, "launch", noting)
    monkeypatch.setattr(threads, "serial", noting_one)
    a, small = np.ones((200, 200)), np.ones((40, 40))
    before = threads.num_threads()
    try:
        for count in (1, 2, 1):
            threads.set_num_threads(count)
            assert_same(xp.asarray(a) @ xp.asarray(a), a @ a)
            assert_same(xp.asarray(small) @ xp.asarray(small), small @ small)
    finally:
        threads.set_num_threads(before)
    assert counts == [1, 1, 2, 1, 1, 1]
