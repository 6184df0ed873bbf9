"""Launching kernels: on the calling thread, or on all threads of a pool.

The workers are Python threads that enter native code and stay there, so that a launch is a few microseconds.  The pool
starts with the first launch that wants it, and again after a fork.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from . import limits, slots
from .config import config
from .dispatch import PENDING, SPINS, THREADS, TICKET_STRIDE, TICKETS, Native, native_futex
from .jit import Function
from .memory import Buffer, allocate

#: Seconds that an idle worker watches for the next launch before it sleeps.
SPIN_SECONDS = 50e-6
_SCRATCH_STEP = 4096
_ANY = 1 << 30


class _Pool:
    """Worker threads and their control block."""

    __slots__ = ("native", "block", "control", "threads", "workers")

    def __init__(self, native: Native, threads: int) -> None:
        self.native = native
        self.block = allocate(TICKETS + TICKET_STRIDE * threads, zeroed=True)
        self.control = self.block.address
        self.workers: list[threading.Thread] = []
        # More threads than CPUs must not spin: they would keep those that have work from running.
        spins = self._spins() if threads <= _usable_cpus() else 1
        ctypes.c_int64.from_address(self.control + SPINS).value = spins
        for index in range(1, threads):
            worker = threading.Thread(
                target=_work, args=(native, self.block, index), name=f"blockarray-{index}", daemon=True
            )
            try:
                worker.start()
            except RuntimeError:  # no more threads are to be had
                break
            except BaseException:  # interrupted: leave nobody behind
                self.stop()
                raise
            self.workers.append(worker)
        self.threads = 1 + len(self.workers)
        ctypes.c_int64.from_address(self.control + THREADS).value = self.threads

    def _spins(self) -> int:
        """How many looks at a word take SPIN_SECONDS."""
        trial = 1000
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            self.native.poll(self.control + PENDING, 0, trial)
            best = min(best, time.perf_counter() - start)
        return max(int(SPIN_SECONDS / best * trial), 1)

    def stop(self) -> None:
        while not self.native.stop(self.control):
            time.sleep(0.001)
        for worker in self.workers:
            worker.join()


def _work(native: Native, block: Buffer, index: int) -> None:
    # The arguments keep the code and the control block alive as long as the worker.
    native.worker(block.address, index)


class _Local(threading.local):
    scratch: Buffer | None = None


_native: Native | None = None
_pool: _Pool | None = None
_wanted: int | None = None
_lock = threading.Lock()
_local = _Local()


def launch(
    address: int, args_address: int, programs: int, scratch_bytes: int = 0, team: bool = False, threads: int = 0
) -> None:
    """Run a kernel and return when it has finished.

    Safe to call from several threads: while one uses the pool, others run their kernels by themselves.

    Parameters
    ----------
    address : int
        The kernel.
    args_address : int
        Its arguments, one slot of 8 bytes each.
    programs : int
        Programs of its grid; with fewer than two it runs on the calling thread.  A team ignores them.
    scratch_bytes : int
        Scratch memory that a thread needs.
    team : bool
        Call the kernel once on each of T threads with (t, T), where T is between 1 and `num_threads()`.
    threads : int
        Use at most so many threads; 0: as many as there are.
    """
    if threads != 1 and (programs > 1 or team):
        pool = _pool or _start()
        if pool is not None and pool.threads > 1:
            if scratch_bytes:
                stride = scratch_bytes + _SCRATCH_STEP - 1 & -_SCRATCH_STEP
                scratch = _scratch(stride * pool.threads)
                where = scratch.address
            else:
                stride = where = 0
            if pool.native.launch(pool.control, address, args_address, programs, where, stride, team, threads or _ANY):
                return
    if team:
        programs = 1
    elif programs < 1:
        return
    if scratch_bytes:
        # `scratch` keeps the block alive if a signal handler launches a kernel that replaces the thread's.
        scratch = _scratch(scratch_bytes)
        _run(address, args_address, programs, scratch.address)
    else:
        _run(address, args_address, programs, 0)


class Launcher:
    """Launches of a kernel with arguments of given kinds: the short way for who calls a kernel again and again.

    Parameters
    ----------
    function : jit.Function
        The kernel.
    kinds : sequence of str
        What each parameter is: "pointer", or the block IR's name of a scalar's dtype (see `slots.layout`).
    """

    __slots__ = ("function", "layout", "_free")

    def __init__(self, function: Function, kinds: Sequence[str]) -> None:
        self.function = function
        self.layout = slots.layout(kinds)
        #: Argument blocks that nobody uses, and their addresses.
        self._free: list[tuple[Any, int]] = []

    def __call__(self, programs: int, *values: Any) -> None:
        """Run the kernel with these arguments: an address for a pointer, else a number.

        Raises
        ------
        struct.error
            If a value does not fit its parameter.
        """
        try:
            block = self._free.pop()
        except IndexError:
            memory = ctypes.create_string_buffer(max(8, self.layout.size))
            block = memory, ctypes.addressof(memory)
        memory, address = block
        self.layout.pack_into(memory, 0, *values)
        launch(self.function.address, address, programs, self.function.scratch(address))
        self._free.append(block)


def num_threads() -> int:
    """Threads that a launch can use."""
    if _pool is not None:
        return _pool.threads
    return _wanted or config.num_threads or _usable_cpus()


@cache
def _usable_cpus() -> int:
    return limits.cpus()


def set_num_threads(count: int) -> None:
    """Use `count` threads from the next launch on."""
    global _wanted
    if count < 1:
        raise ValueError(f"cannot run on {count} threads")
    _wanted = count
    _stop()


def _scratch(nbytes: int) -> Buffer:
    """The calling thread's scratch memory, grown to at least `nbytes`."""
    scratch = _local.scratch
    if scratch is None or scratch.capacity < nbytes:
        scratch = _local.scratch = allocate(nbytes)
    return scratch


def _first_run(address: int, args_address: int, programs: int, scratch: int) -> None:
    _load().run(address, args_address, programs, scratch)


_run = _first_run


def serial(job: Any) -> None:
    """Run a kernel on the calling thread.

    Parameters
    ----------
    job : int or ctypes array
        Four 8-byte words: the kernel's address, its arguments', the number of programs (1 for a team), and
        the address of the scratch memory; or where they are.
    """
    _load().serial(job)


def _load() -> Native:
    global _native, _run, serial
    native = _native
    if native is None:
        # Two threads may both come here; either's code is good.
        native = _native = Native(native_futex())
        _run, serial = native.run, native.serial
    return native


def _start() -> _Pool | None:
    """The pool, started; None while somebody else starts it."""
    global _pool
    if not _lock.acquire(blocking=False):
        return None
    try:
        if _pool is None:
            _pool = _Pool(_load(), num_threads())
        return _pool
    finally:
        _lock.release()


def _stop() -> None:
    global _pool
    with _lock:
        # Launches meanwhile find the pool busy.
        if _pool is not None:
            _pool.stop()
            _pool = None


def _at_exit() -> None:
    global _wanted
    # What is launched from now on runs on the calling thread.
    _wanted = 1
    _stop()


def _after_fork() -> None:
    global _pool, _lock
    # Only the forking thread lives on.  The old control block is left as it is: it may be in any state.
    _pool, _lock = None, threading.Lock()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
