"""Launching on the pool: every program once, whatever else goes on."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from blockarray.runtime import dispatch, jit, limits, threads
from blockarray.runtime.threads import launch, num_threads, set_num_threads

from .kernels import COUNT, TEAM, build


class Counter:
    """The COUNT kernel with its arguments."""

    def __init__(self, size: int, scratch: int = 0, times: int = 1) -> None:
        self.function = jit.load(build(COUNT))
        self.out = (ctypes.c_int64 * max(size, 1))()
        self.args = (ctypes.c_int64 * 3)(ctypes.addressof(self.out), scratch, times)
        self.scratch = scratch
        self.times = times
        self.launches = 0

    def launch(self, programs: int, **options) -> None:
        launch(self.function.address, ctypes.addressof(self.args), programs, self.scratch, **options)
        self.launches += 1

    def right(self, programs: int) -> bool:
        want = self.launches * self.times
        return all(self.out[i] == (want if i < programs else 0) for i in range(len(self.out)))


class Team:
    def __init__(self) -> None:
        self.function = jit.load(build(TEAM))
        self.out = (ctypes.c_int64 * 64)()
        self.workspace = ctypes.c_int64(0)
        self.args = (ctypes.c_int64 * 2)(ctypes.addressof(self.out), ctypes.addressof(self.workspace))

    def launch(self, **options) -> list[int]:
        self.workspace.value = 0
        self.out[:] = [0] * 64
        launch(self.function.address, ctypes.addressof(self.args), 1, team=True, **options)
        return [x for x in self.out if x]


@pytest.fixture(params=[1, 2, 5])
def count(request):
    before = threads._wanted
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before or num_threads())
    threads._wanted = before


@pytest.mark.parametrize("programs", [-1, 0, 1, 2, 3, 5, 7, 11, 12, 13, 29, 30, 31, 1000, 1001])
@pytest.mark.parametrize("scratch", [0, 8, 1000])
def test_every_program_once(count, programs, scratch):
    counter = Counter(1010, scratch)
    for _ in range(3):
        counter.launch(programs)
    assert counter.right(programs)


def test_serial_jobs():
    counter = Counter(20, 64)
    scratch = ctypes.create_string_buffer(64)
    job = (ctypes.c_int64 * 4)(counter.function.address, ctypes.addressof(counter.args), 7, ctypes.addressof(scratch))
    for _ in range(3):
        threads.serial(job)
        counter.launches += 1
    assert counter.right(7)


def test_team(count):
    team = Team()
    for _ in range(50):
        assert team.launch() == [count] * count
    assert team.launch(threads=2) == [min(count, 2)] * min(count, 2)
    assert team.launch(threads=1) == [1]


def test_thread_cap(count):
    counter = Counter(100)
    for cap in (1, 2, 3, 100):
        counter.launch(100, threads=cap)
    assert counter.right(100)


def test_many_launches_spinning_and_asleep(count):
    counter = Counter(40, 64, times=20)
    for i in range(3000):
        counter.launch(40)
        if i % 100 == 0:
            time.sleep(0.0005)
    assert counter.right(40)


def test_scratch_grows_and_is_reused():
    set_num_threads(2)
    counter = Counter(64, 64, times=50)
    for scratch in (64, 4096, 100_000, 64, 3 << 20, 8):
        counter.scratch = counter.args[1] = scratch
        counter.launch(64)
    assert counter.right(64)


def test_several_python_threads(count):
    counters = [Counter(100, 800, times=30) for _ in range(4)]
    teams = [Team() for _ in range(4)]
    wrong = []

    def work(i):
        for k in range(200):
            counters[i].launch(100)
            if k % 10 == 0:
                out = teams[i].launch()
                if out not in ([count] * count, [1]):
                    wrong.append(out)

    users = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for u in users:
        u.start()
    for u in users:
        u.join()
    assert not wrong and all(c.right(100) for c in counters)


def test_resizing_while_launching():
    set_num_threads(2)
    counter = Counter(100, 64, times=30)
    over = threading.Event()

    def resize():
        while not over.is_set():
            for n in (1, 3, 2):
                set_num_threads(n)

    other = threading.Thread(target=resize)
    other.start()
    for _ in range(500):
        counter.launch(100)
    over.set()
    other.join()
    assert counter.right(100)
    with pytest.raises(ValueError, match="0 threads"):
        set_num_threads(0)


def test_interrupts():
    """Signals between and during launches leave the pool usable."""
    set_num_threads(2)
    counter = Counter(64, 64, times=500)
    team = Team()
    counter.launch(64)
    # An interrupt in a finaliser is lost, and llvmlite's are not made for it.
    gc.collect()
    gc.disable()
    caught, armed = 0, False

    def interrupt(*_):
        # Raises only inside the `try`, and once: elsewhere it would end the test run.
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    before = signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    end = time.monotonic() + 0.5
    try:
        while time.monotonic() < end:
            try:
                armed = True
                while time.monotonic() < end:
                    counter.launch(64)
                armed = False
            except KeyboardInterrupt:
                caught += 1
                # Nobody knows whether the launch came before or after the interrupt.
                counter.launches = counter.out[0] // counter.times
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, old)
        gc.enable()
    assert caught and counter.right(64)
    assert team.launch() == [2, 2]


def test_without_futex():
    """What runs where there is no futex."""
    native = dispatch.Native(None)
    pool = threads._Pool(native, 3)
    counter = Counter(50)
    for i in range(50):
        assert native.launch(
            pool.control, counter.function.address, ctypes.addressof(counter.args), 50, 0, 0, False, 1 << 30
        )
        counter.launches += 1
        if i % 10 == 0:
            time.sleep(0.001)
    assert counter.right(50)
    pool.stop()
    assert not any(w.is_alive() for w in pool.workers)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "s390x"])
@pytest.mark.parametrize("futex", [None, 98])
def test_source_for_other_machines(monkeypatch, machine, futex):
    import llvmlite.binding as llvm

    monkeypatch.setattr(dispatch, "_machine", lambda: machine)
    llvm.parse_assembly(dispatch.source(futex)).verify()


def test_no_more_threads(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool = threads._Pool(threads._load(), 4)
    assert pool.threads == 1
    pool.stop()


def test_limits(monkeypatch, tmp_path):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(limits, "_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert limits.cpus() == 2
    assert limits.memory() == 1_000_000
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert limits.cpus() == 8
    assert limits.memory() > 1_000_000
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert limits.cpus() == 1


PRELUDE = """
import os, sys, threading, time
from blockarray.runtime import threads
from tests.runtime.test_threads import Counter, Team
"""


def python(code: str, first: str = "") -> str:
    """Run a program that must end by itself, without complaint."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(first) + PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "BLOCKARRAY_NUM_THREADS": "3", "PYTHONPATH": os.getcwd()},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_nothing_starts_at_import():
    assert python("print(threading.active_count(), threads._native)").split() == ["1", "None"]


def test_exit_after_launches():
    python("""
        c = Counter(100); c.launch(100); sys.keep = c
        assert threading.active_count() == 3
    """)


def test_launch_at_exit():
    out = python(
        """
        c = Counter(100)
        class Last:
            def __del__(self, c=c): c.launch(100)
        sys.last = Last()
        c.launch(100)
        """,
        # Registered before the runtime's own, so it runs after that.
        first="""
        import atexit
        @atexit.register
        def late():
            c.launch(100)
            print(c.right(100), threading.active_count())
        """,
    )
    assert out.split() == ["True", "1"]


def test_exit_while_another_thread_launches():
    python("""
        c = Counter(100, 64, 100)
        def forever():
            while True: c.launch(100)
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.05)
    """)


def test_exit_by_exception_and_by_signal():
    code = PRELUDE + "c = Counter(10); c.launch(10); raise KeyboardInterrupt"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode in (130, -signal.SIGINT) and "KeyboardInterrupt" in done.stderr


def test_fork():
    out = python("""
        c = Counter(100); c.launch(100)
        for generation in range(3):
            pid = os.fork()
            if pid == 0:
                for _ in range(20): c.launch(100)
                assert c.right(100) and Team().launch() == [3, 3, 3]
                assert threading.active_count() == 3
                if generation % 2: os._exit(0)
                print("child", flush=True)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            c.launch(100)
        assert c.right(100)
    """)
    assert out.split() == ["child"] * 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_launches():
    out = python("""
        import warnings; warnings.simplefilter("ignore")
        busy = Counter(100, 64, 100)
        stop = threading.Event()
        def forever():
            while not stop.is_set(): busy.launch(100)
        t = threading.Thread(target=forever); t.start()
        for _ in range(3):
            c = Counter(100, 64)
            pid = os.fork()
            if pid == 0:
                for _ in range(20): c.launch(100)
                ok = c.right(100) and Team().launch() == [3, 3, 3]
                print("ok" if ok else "wrong", flush=True)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set(); t.join()
        assert busy.right(100)
    """)
    assert out.split() == ["ok"] * 3


def test_multiprocessing_pool():
    python("""
        import multiprocessing as mp, warnings
        warnings.simplefilter("ignore")
        c = Counter(100)
        def work(_):
            c.launch(100)
            return c.right(100)
        c.launch(100)
        with mp.get_context("fork").Pool(3) as pool:
            assert all(pool.map(work, range(12)))
    """)
