# pyright: reportAssignmentType=false, reportAttributeAccessIssue=false, reportArgumentType=false
"""Branches, loops and calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, jit, launch, run_compiled


def ops_of(fn, **arguments) -> list[str]:
    return [op.name for op in compiled(fn, **arguments).walk()]


# -- branches ---------------------------------------------------------------------------------------------------------
def branching(x_ptr, o_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 4))
    if n > 3:
        y = x + 1
        z = 5
    elif n == 3:
        y = x * 2
        z = n
    else:
        y = x
        z = -n
    tl.store(o_ptr + tl.arange(0, 4), y + z)


@pytest.mark.parametrize(("n", "expected"), [(7, [6, 7, 8, 9]), (3, [3, 5, 7, 9]), (1, [-1, 0, 1, 2])])
def test_if(n, expected):
    x, o = np.arange(4, dtype="i4"), np.zeros(4, "i4")
    launch(branching, x_ptr=x, o_ptr=o, n=np.int32(n))
    np.testing.assert_array_equal(o, expected)


def effects(o_ptr, n):
    if n > 2:
        tl.store(o_ptr, 1)
    if n > 3:
        tl.store(o_ptr + 1, 1)
    else:
        pass


def test_if_without_values():
    for n in (2, 3, 4):
        o = np.zeros(2, "i4")
        launch(effects, o_ptr=o, n=np.int32(n))
        np.testing.assert_array_equal(o, [n > 2, n > 3])


def early(o_ptr, n, m):
    if n < 0:
        return
    tl.store(o_ptr, 1)
    if m > 0:
        if m > 5:
            return
        tl.store(o_ptr + 1, 1)
    else:
        tl.store(o_ptr + 2, 1)
    tl.store(o_ptr + 3, 1)


@pytest.mark.parametrize(
    ("n", "m", "expected"), [(-1, 3, [0, 0, 0, 0]), (1, 3, [1, 1, 0, 1]), (1, 9, [1, 0, 0, 0]), (1, 0, [1, 0, 1, 1])]
)
def test_early_return(n, m, expected):
    o = np.zeros(4, "i4")
    launch(early, o_ptr=o, n=np.int32(n), m=np.int32(m))
    np.testing.assert_array_equal(o, expected)


def early_under_static(flag_ptr, o_ptr, MODE: tl.constexpr):
    if MODE == "dynamic":
        flag = tl.load(flag_ptr + tl.arange(0, 1)) > 1
        if flag.item():
            tl.store(o_ptr, 7)
            return
    elif MODE == "never":
        return
    tl.store(o_ptr, 1)


@pytest.mark.parametrize(
    ("mode", "flag", "expected"), [("dynamic", 2, 7), ("dynamic", 1, 1), ("never", 2, 0), ("", 2, 1)]
)
def test_early_return_of_a_branch_that_is_known(mode, flag, expected):
    o = np.zeros((), "i4")
    launch(early_under_static, flag_ptr=np.array(flag, "i4"), o_ptr=o, MODE=mode)
    assert o == expected


@jit
def absolute(x):
    if x < 0:
        return -x
    return x


@jit
def kind(x, y: tl.constexpr):
    if y == 0:
        return tl.arange(0, 4)
    elif x > 2:
        return tl.zeros((8,), tl.int32) + x
    else:
        return tl.arange(0, 8)


def calling(o_ptr, n):
    tl.store(o_ptr, absolute(n))
    tl.store(o_ptr + 1, kind(n, 0).sum())
    tl.store(o_ptr + 2, kind(n, y=1).sum())


@pytest.mark.parametrize("n", [-4, 4])
def test_returns_of_helpers(n):
    o = np.zeros(3, "i4")
    launch(calling, o_ptr=o, n=np.int32(n))
    np.testing.assert_array_equal(o, [4, 6, 8 * n if n > 2 else 28])


def ternary(x_ptr, o_ptr, n):
    tl.store(o_ptr, 1 if n > 0 else 2)
    tl.store(o_ptr + 1, tl.load(x_ptr) if n > 0 else tl.load(x_ptr + 1))
    flag = (n > 0 and n < 5) or n == 9
    tl.store(o_ptr + 2, flag)
    tl.store(o_ptr + 3, (0 < n <= 3).to(tl.int32))


@pytest.mark.parametrize(("n", "expected"), [(2, [1, 7, 1, 1]), (-2, [2, 8, 0, 0]), (9, [1, 7, 1, 0])])
def test_conditional_expressions(n, expected):
    x, o = np.array([7, 8], "i4"), np.zeros(4, "i4")
    launch(ternary, x_ptr=x, o_ptr=o, n=np.int32(n))
    np.testing.assert_array_equal(o, expected)
    names = ops_of(ternary, x_ptr=x, o_ptr=o, n=np.int32(n))
    assert names.count("if") == 1 and names.count("where") == 1


def static(o_ptr, MODE: tl.constexpr, ptr=None):
    if MODE == "double" and ptr is None:
        value = 2
    elif MODE:
        value: tl.constexpr = 3
    else:
        nonsense()  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    tl.store(o_ptr, value)
    if ptr is not None:
        tl.store(ptr, 1.0)


def test_what_is_known_is_decided_at_once():
    o = np.zeros(1, "i4")
    launch(static, o_ptr=o, MODE="double")
    assert o[0] == 2
    assert ops_of(static, o_ptr=o, MODE="double") == ["const", "const", "store_ptr"]
    launch(static, o_ptr=o, MODE="x")
    assert o[0] == 3


# -- loops ------------------------------------------------------------------------------------------------------------
def loops(o_ptr, n):
    total = 0
    last = tl.zeros((2,), tl.float32)
    for i in range(n):
        total += i
        last = last + i
    tl.store(o_ptr, total)
    for i in tl.range(2, n, 3, num_stages=2, loop_unroll_factor=2):
        total += i * 10
    tl.store(o_ptr + 1, total)
    for i in range(n, 0, -2):
        total = i
    tl.store(o_ptr + 2, total)
    tl.store(o_ptr + 3 + tl.arange(0, 2), last)


@pytest.mark.parametrize("n", [0, 1, 7, 10])
def test_for(n):
    o = np.zeros(5, "i4")
    launch(loops, o_ptr=o, n=np.int32(n))
    total = sum(range(n))
    second = total + 10 * sum(range(2, n, 3))
    last = list(range(n, 0, -2))[-1] if n > 0 else second
    np.testing.assert_array_equal(o, [total, second, last, total, total])


def nested(o_ptr, n, m):
    total = 0
    for i in range(n):
        row = 0
        for j in range(i, m):
            if j % 2 == 0:
                row += j
        total += row * (i + 1)
    tl.store(o_ptr, total)


def test_nested_loops():
    o = np.zeros(1, "i4")
    launch(nested, o_ptr=o, n=np.int32(5), m=np.int32(9))
    assert o[0] == sum((i + 1) * sum(j for j in range(i, 9) if j % 2 == 0) for i in range(5))


def collatz(o_ptr, n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(o_ptr, steps)
    k = 0
    while k < 5 and steps > 0:
        k += 2
        steps -= 1
    tl.store(o_ptr + 1, k)


def test_while():
    o = np.zeros(2, "i4")
    launch(collatz, o_ptr=o, n=np.int32(27))
    np.testing.assert_array_equal(o, [111, 6])
    launch(collatz, o_ptr=o, n=np.int32(1))
    np.testing.assert_array_equal(o, [0, 0])


def skipping(o_ptr, n):
    total = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        total += i
        if i > 6:
            continue
        total += 100
    tl.store(o_ptr, total)


def test_continue():
    o = np.zeros(1, "i4")
    launch(skipping, o_ptr=o, n=np.int32(11))
    assert o[0] == sum(i + (0 if i > 6 else 100) for i in range(11) if i % 3)


def unrolled(o_ptr, N: tl.constexpr):
    values = (tl.arange(0, 4), 5, 6.0)
    total = 0
    for i in tl.static_range(N):
        if i == 5:
            break
        if i == 2:
            continue
        total += i
        tl.store(o_ptr + i, i * 2)
    for i, v in enumerate(values):
        tl.store(o_ptr + 8 + i, tl.sum(v) if i == 0 else v)
    for i in tl.static_range(12, 10, -1):
        tl.store(o_ptr + i, i)
    tl.store(o_ptr + 13, total + len(values))
    squares: tl.constexpr = [k * k for k in range(N) if k % 2]
    tl.store(o_ptr + 14, squares[1])


def test_static_loops():
    o = np.zeros(15, "f4")
    launch(unrolled, o_ptr=o, N=8)
    np.testing.assert_array_equal(o, [0, 2, 0, 6, 8, 0, 0, 0, 6, 5, 6, 11, 12, 11, 9])
    assert "for" not in ops_of(unrolled, o_ptr=o, N=8)


def long_indices(o_ptr, n):
    count = tl.zeros((), tl.int64)
    for i in range(n - 3, n):
        count += i
    tl.store(o_ptr, count)


def test_loops_of_64_bits():
    o = np.zeros(1, "i8")
    launch(long_indices, o_ptr=o, n=np.int64(2**40))
    assert o[0] == 3 * 2**40 - 6


def ping_pong(a_ptr, b_ptr, n):
    x, y = a_ptr, b_ptr
    for _ in range(n):
        tl.store(y, tl.load(x) + 1)
        x, y = y, x


def test_pointers_are_carried():
    a, b = np.zeros(1, "i4"), np.zeros(1, "i4")
    run_compiled(ping_pong, a_ptr=a, b_ptr=b, n=np.int32(5))
    assert (a[0], b[0]) == (4, 5)


def carrying(o_ptr, n):
    same = tl.arange(0, 4)
    unused = tl.zeros((4,), tl.float32)
    pair = (0, tl.zeros((4,), tl.int32))
    for i in range(n):
        unused = unused + 1.0
        temporary = same + i
        pair = (pair[0] + 1, pair[1] + temporary)
        same = same
    tl.store(o_ptr + tl.arange(0, 4), pair[1] * pair[0])


def test_only_what_changes_is_carried():
    o = np.zeros(4, "i4")
    launch(carrying, o_ptr=o, n=np.int32(3))
    np.testing.assert_array_equal(o, 3 * (3 * np.arange(4) + 3))
    (loop,) = [op for op in compiled(carrying, o_ptr=o, n=np.int32(3)).walk() if op.name == "for"]
    assert len(loop.results) == 2


# -- names, tuples, calls ---------------------------------------------------------------------------------------------
SCALE = tl.constexpr(3)
SHIFT: tl.constexpr = 4
TYPE = tl.float32


class Two(NamedTuple):
    first: object
    second: object


@jit
def helper(x, by=SCALE, *rest):
    return x * by + len(rest) * 100


@jit
def swapped(pair):
    a, b = pair
    return b, a


@jit
def factorial(n: tl.constexpr):
    if n < 2:
        return 1
    return n * factorial(n - 1)


def names(o_ptr, n):
    a, (b, c) = n, (n + 1, n + 2)
    a, b = swapped((a, b))
    t = Two(a, second=b)
    tl.store(o_ptr, helper(t.first) + SHIFT)
    tl.store(o_ptr + 1, helper(t[1], 2, 1, 2))
    args = (c, 1)
    tl.store(o_ptr + 2, helper(*args))
    tl.store(o_ptr + 3, tl.zeros((), TYPE) + factorial(4))
    x = (y := n + 7) * 2
    tl.store(o_ptr + 4, x + y)
    z = -1 if n is None else min(n, 2, 9)
    z += max(3, n)
    tl.store(o_ptr + 5, z)


def test_names_and_calls():
    o = np.zeros(6, "f4")
    launch(names, o_ptr=o, n=np.int32(5))
    np.testing.assert_array_equal(o, [6 * 3 + 4, 5 * 2 + 200, 7, 24, 36, 7])


def closure(factor: int, function):
    captured = tl.constexpr(factor)

    def kernel(o_ptr, n=7):
        tl.store(o_ptr, function(captured) + n)

    return kernel


def test_closures_and_defaults():
    o = np.zeros(1, "i4")
    launch(closure(4, helper), o_ptr=o)
    assert o[0] == 4 * 3 + 7
    launch(closure(5, helper), o_ptr=o, n=np.int32(1))
    assert o[0] == 5 * 3 + 1


@tl.constexpr_function
def next_power(n, least=SCALE):
    return max(1 << (n - 1).bit_length(), least)


def sized(o_ptr, N: tl.constexpr):
    size: tl.constexpr = next_power(N)
    i = tl.arange(0, size)
    tl.store(o_ptr + i, size, mask=i < N)


def test_functions_of_constants():
    o = np.zeros(6, "i4")
    launch(sized, o_ptr=o, N=5)
    np.testing.assert_array_equal(o, [8, 8, 8, 8, 8, 0])
    assert next_power(tl.constexpr(9)) == 16


@jit
def each(x, functions: tl.constexpr):
    for i in tl.static_range(len(functions)):
        x = functions[i](x)
    return x


@jit
def plus_one(x):
    return x + 1


@jit
def twice(x):
    return x * 2


def composed(o_ptr, n):
    tl.store(o_ptr, each(n, [plus_one, twice, plus_one]))


def test_functions_are_values():
    o = np.zeros(1, "i4")
    launch(composed, o_ptr=o, n=np.int32(3))
    assert o[0] == 9


def texts(o_ptr, n, NAME: tl.constexpr):
    x = tl.arange(0, 4)
    tl.static_print(f"{NAME} is {x.dtype} {len(x.shape):02d}", x.shape)
    tl.static_assert(x.shape[0] == 4, f"{NAME}!")
    tl.store(o_ptr, n)


def test_static_print(capsys):
    compiled(texts, o_ptr=np.zeros(1, "i4"), n=np.int32(1), NAME="x")
    assert capsys.readouterr().out == "x is int32 01 (4,)\n"


def methods(x_ptr, o_ptr, stride):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i * stride.to(tl.int64))
    y = x.to(tl.float32).reshape(2, 4).sum(axis=0).max(axis=0).exp()
    tl.store(o_ptr, y.to(x.dtype) + x.sum())


def test_methods():
    x, o = np.full(8, 0.5, "f2"), np.zeros(1, "f2")
    for stride in (1, np.int32(1)):
        launch(methods, x_ptr=x, o_ptr=o, stride=stride)
        np.testing.assert_allclose(o[0], np.exp(1) + 4, rtol=1e-3)


def hints(x_ptr, o_ptr, n):
    tl.assume(n > 0)
    n = tl.multiple_of(n, 8)
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 8)[None, :], (1, 8)), (1, 8))
    tl.debug_barrier()
    tl.store(o_ptr + i, tl.load(tl.max_constancy(x_ptr + i * 0, (1, 8))) + n)


def test_hints():
    x, o = np.zeros(1, "i4"), np.zeros(8, "i4")
    launch(hints, x_ptr=x, o_ptr=o, n=np.int32(8))
    np.testing.assert_array_equal(o, 8)
    names = ops_of(hints, x_ptr=x, o_ptr=o, n=np.int32(8))
    assert names.count("hint") == 4 and "assume" in names and "barrier" in names


def grid(o_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny = tl.num_programs(0), tl.num_programs(1)
    tl.store(o_ptr + (z * ny + y) * nx + x, x + 10 * y + 100 * z)


def test_grid():
    o = np.zeros((4, 3, 2), "i4")
    launch(grid, (2, 3, 4), o_ptr=o)
    z, y, x = np.indices(o.shape)
    np.testing.assert_array_equal(o, x + 10 * y + 100 * z)


def test_lines_are_those_of_the_file():
    kernel = compiled(branching, x_ptr=np.zeros(4, "i4"), o_ptr=np.zeros(4, "i4"), n=np.int32(1))
    first = branching.__code__.co_firstlineno
    (store,) = [op for op in kernel.walk() if op.name == "store_ptr"]
    assert store.line == (__file__, first + 11)


def returning(x):
    return x


def test_kernels_return_nothing():
    with pytest.raises(CompilationError, match="returns a value"):
        compiled(returning, x=np.int32(1))
