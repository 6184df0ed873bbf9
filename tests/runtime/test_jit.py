"""Loading object files."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time

import pytest

from blockarray.runtime import jit

from .kernels import build

ADD_ONE = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch, i64 %thread) {
  %x = load i64, ptr %args
  %y = add i64 %x, 1
  store i64 %y, ptr %args
  ret void
}
define i64 @kernel_scratch(ptr %args) {
  %x = load i64, ptr %args
  ret i64 %x
}
"""
WORKSPACE = """
define i64 @kernel_workspace(ptr %args, i64 %threads) {
  %x = load i64, ptr %args
  %y = mul i64 %x, %threads
  ret i64 %y
}
"""


KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


def call(function: jit.Function, value: int) -> int:
    args = ctypes.c_int64(value)
    KERNEL(function.address)(ctypes.addressof(args), 0, 1, 0, 0)
    return args.value


def test_load():
    function = jit.load(build(ADD_ONE))
    assert call(function, 41) == 42
    args = ctypes.c_int64(640)
    assert function.scratch(ctypes.addressof(args)) == 640
    assert function.workspace_address == 0 and function.workspace(ctypes.addressof(args), 2) == 0


def test_workspace_and_symbol():
    function = jit.load(build((ADD_ONE + WORKSPACE).replace("@kernel", "@softmax")), "softmax")
    args = ctypes.c_int64(100)
    assert function.workspace_address and function.workspace(ctypes.addressof(args), 3) == 300


def test_same_symbol_many_times_and_unloading():
    code = build(ADD_ONE)
    start = time.perf_counter()
    functions = [jit.load(code) for _ in range(50)]
    assert (time.perf_counter() - start) / 50 < 0.02
    assert len({f.address for f in functions}) == 50
    assert all(call(f, i) == i + 1 for i, f in enumerate(functions))
    last = functions.pop()
    functions.clear()
    gc.collect()
    assert call(last, 1) == 2


def test_bad_objects():
    with pytest.raises(RuntimeError):
        jit.load(b"not an object")
    with pytest.raises(RuntimeError, match="nothere"):
        jit.load(build(ADD_ONE), "nothere")
    text = "declare void @no_such_function_anywhere()\n" + ADD_ONE.replace(
        "  ret void", "  call void @no_such_function_anywhere()\n  ret void"
    )
    with pytest.raises(RuntimeError, match="kernel"):
        jit.load(build(text))
    assert call(jit.load(build(ADD_ONE)), 1) == 2


def test_threads_load_at_once():
    code = build(ADD_ONE)
    results = []

    def work():
        results.extend(call(jit.load(code), i) == i + 1 for i in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 80 and all(results)


def test_exit_with_loaded_code():
    code = f"import sys; from blockarray.runtime import jit; sys.keep = jit.load({build(ADD_ONE)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_fork_while_another_thread_loads():
    code = f"""
import os, threading, warnings
warnings.simplefilter("ignore")
from blockarray.runtime import jit
code = {build(ADD_ONE)!r}
stop = threading.Event()
def forever():
    while not stop.is_set(): jit.load(code)
threads = [threading.Thread(target=forever) for _ in range(2)]
for t in threads: t.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        for _ in range(3): jit.load(code)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for t in threads: t.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
