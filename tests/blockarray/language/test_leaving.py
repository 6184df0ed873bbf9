# pyright: reportArgumentType=false
"""break and return in loops of the run."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, jit, launch


def first_negative(x_ptr, o_ptr, n):
    """Nothing behind what is looked for is read."""
    found = -1
    for i in range(n):
        if tl.load(x_ptr + i) < 0:
            found = i
            break
        tl.store(o_ptr + 1 + i, 1)
    tl.store(o_ptr, found)


def endless(x_ptr, o_ptr, n):
    i = 0
    while True:
        if i >= n:
            break
        x = tl.load(x_ptr + i)
        i += 1
        if x == 3:
            continue
        if x < 0:
            tl.store(o_ptr, i - 1)
            break
        tl.store(o_ptr + i, 1)
    if i == n:
        tl.store(o_ptr + n + 1, i)


def while_there_are(x_ptr, o_ptr, n):
    i = 0
    while tl.load(x_ptr + i) >= 0:
        tl.store(o_ptr + 1 + i, 1)
        i += 1
        if i == n:
            break
    tl.store(o_ptr, i)


@pytest.mark.parametrize("at", [0, 2, None])
def test_break(at):
    x = np.array([5, 4, 3, 2, 1], "i4")
    if at is not None:
        x[at] = -1
    seen = [0 if at is not None and k >= at else 1 for k in range(5)]
    o = np.zeros(7, "i4")
    launch(first_negative, x_ptr=x, o_ptr=o, n=np.int32(5))
    np.testing.assert_array_equal(o, [-1 if at is None else at, *seen, 0])
    o[:] = 0
    launch(while_there_are, x_ptr=x, o_ptr=o, n=np.int32(5))
    np.testing.assert_array_equal(o, [5 if at is None else at, *seen, 0])
    o[:] = 0
    launch(endless, x_ptr=x, o_ptr=o, n=np.int32(5))
    np.testing.assert_array_equal(o, [at or 0, *[s and int(v != 3) for s, v in zip(seen, x)], 5 * (at is None)])


def downwards(o_ptr, n, step):
    total = tl.zeros((4,), tl.int32)
    for i in range(n, -1, -3):
        if i < 4:
            break
        total += i
    for i in tl.range(0, n, step, num_stages=2):
        total += 1
        if i > 5:
            if i > 6:
                break
            total += 100
    tl.store(o_ptr + tl.arange(0, 4), total)


def test_break_of_other_ranges():
    o = np.zeros(4, "i4")
    for n, step in ((11, 2), (3, 1), (0, 4), (20, 3)):
        launch(downwards, o_ptr=o, n=np.int32(n), step=np.int32(step))
        total = sum(i for i in range(n, -1, -3) if i >= 4)
        for i in range(0, n, step):
            total += 1 + 100 * (i == 6)
            if i > 6:
                break
        np.testing.assert_array_equal(o, total)


def either_way(o_ptr, low, high, step):
    count = last = left = 0
    for i in range(low, high, step):
        count += 1
        last = i
    for i in range(low, high, step):
        if i == 4:
            continue
        if left == 3:
            break
        left += 1
    tl.store(o_ptr, count)
    tl.store(o_ptr + 1, last)
    tl.store(o_ptr + 2, left)


@pytest.mark.parametrize("bounds", [(0, 10, 3), (10, 0, -3), (0, 10, -1), (10, 0, 1)])
def test_steps_of_either_sign(bounds):
    o = np.zeros(3, "i4")
    low, high, step = map(np.int32, bounds)
    launch(either_way, o_ptr=o, low=low, high=high, step=step)
    found = list(range(*bounds))
    left = [i for i in found if i != 4][:3]
    np.testing.assert_array_equal(o, [len(found), found[-1] if found else 0, len(left)])


def nested(o_ptr, n, m):
    count = 0
    for i in range(n):
        for j in range(n):
            if j > i:
                break
            if i * j == m:
                tl.store(o_ptr, 1)
                return
            count += 1
        k = i
        while k > 0:
            k -= 2
            if k == m:
                return
        if i == 7:
            break
        tl.store(o_ptr + 1, count)
    tl.store(o_ptr + 2, count)


@pytest.mark.parametrize(("n", "m"), [(5, 6), (5, 40), (10, 100), (0, 0), (4, -1), (6, 3)])
def test_return_in_nested_loops(n, m):
    o, want = np.zeros(3, "i4"), np.zeros(3, "i4")
    launch(nested, o_ptr=o, n=np.int32(n), m=np.int32(m))
    # As Python's own: places in `want` for pointers.
    FunctionType(nested.__code__, {"tl": SimpleNamespace(store=want.__setitem__)})(0, n, m)
    np.testing.assert_array_equal(o, want)


@jit
def steps_to_one(x):
    steps = 0
    while x != 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
        if steps == 50:
            break
    return steps


def in_helpers(o_ptr, n, DEEP: tl.constexpr):
    for i in range(1, n):
        if i == 6:
            return
        for k in tl.static_range(4):
            if k == DEEP:
                break
            tl.store(o_ptr + 4 * i + k, steps_to_one(i))


def test_break_in_functions_and_unrolled_loops():
    o = np.zeros(32, "i4")
    launch(in_helpers, o_ptr=o, n=np.int32(8), DEEP=2)
    want = np.zeros((8, 4), "i4")
    want[1:6, :2] = np.array([[0, 1, 7, 2, 5]]).T
    np.testing.assert_array_equal(o, want.reshape(-1))


def pairs(x_ptr, o_ptr, n):
    """Tuples, and pointers with different bases, are carried through loops that are left."""
    state = (tl.zeros((4,), tl.float32), 0)
    at = x_ptr
    for i in range(n):
        total, count = state
        state = (total + tl.load(at + tl.arange(0, 4)), count + 1)
        if i == 2:
            break
        at = x_ptr + 4 if i % 2 == 0 else o_ptr + 8
    total, count = state
    tl.store(o_ptr + tl.arange(0, 4), total)
    tl.store(o_ptr + 4, count)


@pytest.mark.parametrize("n", [0, 2, 5])
def test_tuples_and_pointers_are_carried(n):
    x, o = np.arange(8, dtype="f4"), np.zeros(12, "f4")
    o[8:] = [100, 200, 300, 400]
    launch(pairs, x_ptr=x, o_ptr=o, n=np.int32(n))
    parts = [x[:4], x[4:], [100, 200, 300, 400]][:n]
    np.testing.assert_array_equal(o[:5], [*np.sum([np.zeros(4), *parts], 0), min(n, 3)])


def with_value(n):
    for i in range(n):
        if i > 3:
            return i
    return n


def unrolled_break(n):
    for i in tl.static_range(4):
        if n == i:
            break


def only_in_the_loop(o_ptr, n):
    for i in range(n):
        x = i
        if i > 3:
            break
    tl.store(o_ptr, x)


@pytest.mark.parametrize(
    ("kernel", "line", "reason"),
    [
        (with_value, "return i", "kernels cannot return a value inside of a loop of the run: break, then return it"),
        (unrolled_break, "if n == i:", "an unrolled loop cannot have break under a condition of the run: use range"),
        (only_in_the_loop, "tl.store(o_ptr, x)", "x may not be defined here: it is assigned in the loop"),
    ],
)
def test_what_is_not_supported(kernel, line, reason):
    given = {"o_ptr": np.zeros(1, "i4")} if kernel is only_in_the_loop else {}
    with pytest.raises(CompilationError) as caught:
        compiled(kernel, **given, n=np.int32(3))
    assert caught.value.reason.startswith(reason)
    assert line in caught.value.positions[0].text
