"""Interpret mode: the author's lines, and accesses that are out of bounds."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.language import interpret
from tests.blockarray.language.running import jit


def kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(
        o_ptr + i,
        scaled(x),
        mask=i < n,
    )


@jit
def scaled(x):
    half = 0.5
    return x * half


def test_loads_out_of_bounds():
    x, o = np.zeros(10, "f4"), np.zeros(16, "f4")
    with pytest.raises(interpret.OutOfBounds) as caught:
        interpret.run(kernel, (4, 1, 1), {"x_ptr": x, "o_ptr": o, "n": 16, "BLOCK": 4})
    line = kernel.__code__.co_firstlineno + 2
    assert str(caught.value) == f"load of x_ptr: element 10 of 10, program (2, 0, 0), at {__file__}:{line}"


def test_stores_out_of_bounds():
    x, o = np.zeros(16, "f4"), np.zeros(6, "f4")
    with pytest.raises(IndexError, match=r"store of o_ptr: element 6 of 6, program \(1, 0, 0\), at .*\.py"):
        interpret.run(kernel, (4, 1, 1), {"x_ptr": x, "o_ptr": o, "n": 16, "BLOCK": 4})


def test_a_debugger_sees_the_lines_of_the_file():
    lines: set[tuple[str, int]] = set()

    def trace(frame, event, arg):
        if frame.f_code.co_filename != __file__ or frame.f_code.co_name not in ("kernel", "scaled"):
            return None
        lines.add((frame.f_code.co_name, frame.f_lineno))
        return trace

    x, o = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        interpret.run(kernel, (2, 1, 1), {"x_ptr": x, "o_ptr": o, "n": 8, "BLOCK": 4})
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(o, x / 2)
    first = kernel.__code__.co_firstlineno
    assert {("kernel", first + 1), ("kernel", first + 2), ("kernel", first + 4)} <= lines
    assert ("scaled", scaled.fn.__code__.co_firstlineno + 2) in lines


def asserting(x_ptr):
    tl.device_assert(tl.load(x_ptr + tl.arange(0, 4)) > 0, "positive")


def test_assertions_fail_at_once():
    with pytest.raises(AssertionError, match="device_assert failed: positive"):
        interpret.run(asserting, (1, 1, 1), {"x_ptr": np.zeros(4, "f4")})


def seen(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 2))
    print(x)


def test_values_show(capsys):
    interpret.run(seen, (1, 1, 1), {"x_ptr": np.array([1, 2], "i4")})
    assert capsys.readouterr().out == "[1 2] : <[2], int32>\n"


def following(table_ptr, o_ptr, FAR: tl.constexpr):
    rows = tl.load(table_ptr + tl.arange(0, 2)).to(tl.pointer_type(tl.float32))
    at = rows[:, None] + tl.arange(0, 4)[None, :]
    x = tl.load(at)
    tl.store(at, x + 1, mask=x > 11)
    tl.store(o_ptr + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :], x)
    tl.load(tl.load(table_ptr).to(tl.pointer_type(tl.float32)) + FAR)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not say what memory there is")
def test_pointers_from_memory_are_followed():
    rows = [np.arange(4, dtype="f4"), np.arange(10, 14, dtype="f4")]
    o, table = np.zeros((2, 4), "f4"), np.array([row.ctypes.data for row in rows])
    interpret.run(following, (1, 1, 1), {"table_ptr": table, "o_ptr": o, "FAR": 3})
    np.testing.assert_array_equal(o, [[0, 1, 2, 3], [10, 11, 12, 13]])
    np.testing.assert_array_equal(rows, [[0, 1, 2, 3], [10, 11, 13, 14]])
    with pytest.raises(interpret.OutOfBounds, match="which is no memory of the process"):
        interpret.run(following, (1, 1, 1), {"table_ptr": table, "o_ptr": o, "FAR": -(int(table[0]) // 4)})
