"""Views, writes and readers recorded before a write: NumPy's semantics, whenever the work is done.

A program is text, run line by line against NumPy and against the namespace under test, under several schedules: nothing
evaluated until the end, everything after every line, and every other line.  All variables must agree at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import NAMESPACE, assert_same, evaluate, xp

PROGRAMS = {
    "shift-right": """
        a = xp.arange(10); a[1:] = a[:-1]
    """,
    "shift-left": """
        a = xp.arange(10); a[:-1] = a[1:]
    """,
    "reverse-in-place": """
        a = xp.arange(11); a[:] = a[::-1]
    """,
    "transpose-in-place": """
        a = xp.reshape(xp.arange(49), (7, 7)); a[:] = a.T
    """,
    "add-transpose": """
        a = xp.reshape(xp.arange(81), (9, 9)); a += a.T
    """,
    "add-shifted": """
        a = xp.arange(1000); a[1:] += a[:-1]; a[:-1] -= a[1:]
    """,
    "add-reversed": """
        a = xp.arange(9); a[::-1] += a
    """,
    "interleave": """
        a = xp.arange(12); a[::2] = a[1::2] * 10; a[1::2] = a[::2]
    """,
    "swap-halves": """
        a = xp.arange(10)
        t = a[:5] + 0
        a[:5] = a[5:]
        a[5:] = t
    """,
    "swap-by-views": """
        a = xp.arange(10)
        a[:5], a[5:] = a[5:], a[:5]
    """,
    "reader-before-write": """
        a = xp.arange(6)
        r = a * 2
        a[:] = 7
        s = a * 2
    """,
    "reader-of-view-before-write": """
        a = xp.arange(6)
        v = a[::-2]
        r = v + 1
        a[3] = 100
        s = v + 1
        v[0] = -1
        t = a + 0
    """,
    "many-readers": """
        a = xp.zeros(4)
        r0 = a + 0
        a[0] = 1
        r1 = a + 0
        a[1:] += 2
        r2 = a + 0
        a *= 3
        r3 = a + 0
        a[:] = r0
        r4 = a - r3
    """,
    "view-of-view": """
        a = xp.reshape(xp.arange(24), (4, 6))
        b = a[1:, ::2]
        c = b.T[::-1]
        d = c[1, :]
        d[:] = 99
        c[0, 0] = -5
        e = b[:, None, 1:]
        e[...] += 1000
    """,
    "view-outlives-base": """
        a = xp.arange(8)
        v = a[2:6]
        a = a + 100
        v[0] = 50
        w = v * a[2:6]
    """,
    "rebind-is-no-write": """
        a = xp.arange(5)
        b = a
        a = a + 1
        b[0] = 9
    """,
    "alias-sees-augmented": """
        a = xp.arange(5)
        b = a
        a += 1
        b *= 2
    """,
    "argument-of-its-own-update": """
        a = xp.arange(6.0)
        a[2:4] = xp.sum(a)
        a[:] = a / xp.max(a)
        a -= xp.mean(a)
    """,
    "reshape-view": """
        a = xp.arange(12)
        b = xp.reshape(a, (3, 4))
        b[1] = -1
        c = xp.reshape(b, (-1,))
        c[0] = 77
    """,
    "negative-steps": """
        a = xp.zeros(7, dtype=xp.int64)
        a[::2] = 1
        a[-2::-3] += 10
        a[4:1:-1] = a[2:5]
    """,
    "augmented-slices-once": """
        a = xp.asarray([1.0, 2.0, 3.0, 4.0])
        a[:2] *= 7
        a[1:] -= 1
        a[:, None][2] += 5
    """,
    "newaxis-and-ellipsis": """
        a = xp.reshape(xp.arange(12), (3, 4))
        a[None, ..., 1] = 5
        a[..., None, -1][1] = 6
        b = a[:, None, :, None]
        b[0, 0, 2:] *= -1
    """,
    "scalar-view": """
        a = xp.reshape(xp.arange(6), (2, 3))
        v = a[1, 2, ...]
        v[...] = 42
        a[0, 0, ...] += 8
    """,
    "empty-writes": """
        a = xp.arange(5)
        a[5:] = 9
        a[3:1] += 1
        a[0:0] = a[0:0]
    """,
    "index-array": """
        a = xp.arange(10)
        i = xp.asarray([3, 0, -1, 3])
        r = a[i]
        a[i] = xp.asarray([1, 2, 3, 4])
        s = a[i]
        a[i[:2]] += 100
    """,
    "index-array-into-view": """
        a = xp.reshape(xp.arange(20), (4, 5))
        v = a[::2, 1:]
        v[xp.asarray([1, 0])] = v[xp.asarray([0, 1])] + 1
        v[:, xp.asarray([0, 2])] = -3
        v[xp.asarray([0, 1]), xp.asarray([3, 1])] += 50
    """,
    "index-overlaps-target": """
        a = xp.arange(12)
        a[3:][a[:-3]] = 4
    """,
    "index-is-the-target": """
        a = xp.asarray([2, 0, 1])
        a[a] = a + 10 - 10
        b = xp.asarray([1, 2, 0])
        b[b] += 5
    """,
    "mask": """
        a = xp.arange(10)
        m = a % 3 == 0
        a[m] = -1
        r = a[m]
        a[~m] += 100
        a[a > 104] = 0
    """,
    "mask-with-values": """
        a = xp.arange(8)
        a[a % 2 == 1] = xp.asarray([10, 20, 30, 40])
        b = xp.reshape(xp.arange(6), (2, 3))
        b[xp.asarray([True, False])] = xp.asarray([7, 8, 9])
        b[:, xp.asarray([False, True, True])] *= 2
    """,
    "mask-of-itself": """
        a = xp.asarray([True, False, True, True])
        a[a] = False
        b = xp.asarray([True, False, True, True])
        b[:2] = b[2:]
    """,
    "write-to-broadcast-source": """
        a = xp.arange(3)
        b = xp.broadcast_to(a, (2, 3))
        r = b + 0
        a[1] = 10
        s = b + 0
    """,
    "value-is-broadcast": """
        a = xp.zeros((3, 4)); a[:] = xp.arange(4); a[1:, 2] = 9; a[:, :1] = xp.reshape(xp.arange(3), (3, 1))
    """,
    "casting-writes": """
        a = xp.zeros(4, dtype=xp.int32)
        a[:2] = xp.asarray([1.9, -1.9])
        b = xp.zeros(3, dtype=xp.float32)
        b[:] = xp.arange(3)
        c = xp.zeros(3, dtype=xp.bool_)
        c[1:] = xp.asarray([0, 7])
        b += xp.asarray([0.1, 0.2, 0.3])
    """,
    "copy-is-separate": """
        a = xp.arange(5)
        b = a.copy()
        c = xp.array(a)
        a[0] = 50
        b[1] = 60
    """,
    "astype-is-separate": """
        a = xp.arange(5)
        b = a.astype(xp.int64)
        b[0] = 9
    """,
    "sum-then-write-in-loop": """
        a = xp.ones(8)
        for i in range(8): a[i] = xp.sum(a) + i
    """,
    "prefix-sums-by-slices": """
        a = xp.arange(64)
        for s in (1, 2, 4, 8, 16, 32): a[s:] += a[:-s]
    """,
    "gather-then-overwrite": """
        a = xp.arange(6) * 10
        g = a[xp.asarray([5, 4, 3])]
        a[3:] = 0
        h = g + a[:3]
    """,
    "diagonal-writes": """
        a = xp.zeros((4, 4))
        xp.reshape(a, (-1,))[::5] = 1
        a[::-1] += a
    """,
    "row-by-row": """
        a = xp.reshape(xp.arange(30), (5, 6))
        for i in range(1, 5): a[i] = a[i - 1] + a[i]
        for j in range(4, -1, -1): a[:, j] += a[:, j + 1]
    """,
    "chained-holders": """
        a = xp.arange(4)
        b = a + 1
        c = b * 2
        b[0] = 100
        d = b + c
        c[:] = b
        b[1] = 200
    """,
    "out-argument": """
        a = xp.arange(6.0)
        b = xp.zeros((3, 2)).T
        xp.add(xp.reshape(a, (2, 3)), 1.0, out=b)
        s = xp.zeros(12)[::2]
        r = xp.multiply(a, a, out=s)
        xp.negative(a, out=a)
    """,
}


def lines(program: str) -> list[str]:
    return [piece.strip() for line in program.strip().splitlines() for piece in pieces(line) if piece.strip()]


def pieces(line: str) -> list[str]:
    return [line] if line.strip().startswith("for ") else line.split(";")


def run(program: str, namespace: Any, when: int) -> dict[str, Any]:
    """The variables after the program; all are evaluated after every `when`-th line (0: never)."""
    env: dict[str, Any] = {"xp": namespace}
    for number, line in enumerate(lines(program)):
        exec(line, env)
        if when and number % when == when - 1:
            evaluate(*(v for k, v in env.items() if type(v).__name__ == "Array"))
    return {k: v for k, v in env.items() if isinstance(getattr(v, "shape", None), tuple)}


@pytest.mark.parametrize("when", [0, 1, 2], ids=["lazy", "eager", "alternating"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, when: int) -> None:
    want = run(PROGRAMS[name], np, 0)
    got = run(PROGRAMS[name], xp, when)
    for variable in reversed(want):
        assert_same(got[variable], want[variable], f"{variable} in {name}")


@pytest.mark.parametrize("n", [4, 100, 100_000])
def test_import_copies(n: int) -> None:
    h = np.arange(float(n))
    x, y = xp.array(h), xp.array(h) + 1
    z = xp.zeros(n)
    z[:] = h
    w = xp.ones(n) * xp.array(h)
    h[:] = -50
    assert float(y[0]) == 1 and float(y[n - 1]) == n and float(x[1]) == 1
    assert_same(z, np.arange(float(n)))
    assert_same(w, np.arange(float(n)))


@pytest.mark.skipif(NAMESPACE == "numpy", reason="NumPy's asarray shares memory")
def test_asarray_copies_unless_told() -> None:
    h = np.arange(100.0)
    x = xp.asarray(h)
    shared = xp.asarray(h, copy=False)
    before = shared * 2
    h[:] = 5
    assert float(x[3]) == 3
    assert float(before[3]) == 6  # reads of shared memory are done when the call returns
    assert float((shared * 2)[3]) == 10
    shared[0] = 77
    assert h[0] == 77  # and so are writes


@pytest.mark.skipif(NAMESPACE == "numpy", reason="NumPy exports itself")
def test_export_is_pinned() -> None:
    """Memory that was handed out is neither recycled nor left behind by a later write."""
    x = xp.arange(1000) * 1
    h = np.asarray(x)
    kept = h.copy()
    del x
    for _ in range(5):
        evaluate(xp.zeros(1000, dtype=xp.int64) + 7)
    assert np.array_equal(h, kept)


def test_copies_do_not_share() -> None:
    import copy
    import pickle

    x = xp.reshape(xp.arange(6.0), (2, 3)).T
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is type(x)
        assert_same(y, np.arange(6.0).reshape(2, 3).T)
        y[0] = -1
    assert_same(x, np.arange(6.0).reshape(2, 3).T)


def test_reader_survives_the_array_it_read() -> None:
    x = xp.arange(1000)
    r = x[::3] + 1
    x[:] = 0
    del x
    assert_same(r, np.arange(0, 1000, 3) + 1)


def test_buffer_is_not_reused_under_a_pending_reader() -> None:
    """In-place reuse at flush time must order, or copy for, every reader recorded before the write."""
    for n in (10, 5000):
        x = xp.arange(n) + 0
        evaluate(x)
        readers = []
        for i in range(20):
            readers.append(x[i % 7 :] * 2)
            x[i % 5 : n - i % 3] += i
        evaluate(x)
        a = np.arange(n)
        for i in range(20):
            assert_same(readers[i], a[i % 7 :] * 2)
            a[i % 5 : n - i % 3] += i
        assert_same(x, a)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("read_first", [False, True])
def test_library_call_reads_before_the_write(read_first: bool, pending: bool) -> None:
    """Evaluated together, a library call on the host sees what its operand held when it was recorded."""
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    x = xp.asarray(values)
    if pending:
        x = x + 1
        values = values + 1
    ordered = xp.sort(x)
    x[1:3] = -7
    evaluate(*((ordered, x) if read_first else (x, ordered)))
    assert_same(ordered, np.sort(values))
    values[1:3] = -7
    assert_same(x, values)


@pytest.mark.parametrize("base", [lambda x: x + 1, xp.cumsum], ids=["elementwise", "scan"])
def test_plans_tell_apart_writes_that_overlap_what_they_read(base: Any) -> None:
    """A plan for a window that lies elsewhere than what is read must not serve one that overlaps it."""
    values = np.arange(200_000.0)
    x = xp.asarray(values)
    count, read = 60_000, 100_000
    for write in (10, read + 1, read - 1, read + 1000):
        y = base(x)
        expected = np.array(base(x))
        y[write : write + count] = y[read : read + count] * 2
        expected[write : write + count] = expected[read : read + count] * 2
        assert_same(y, expected)


def test_a_kernel_reads_a_library_call_and_its_operand() -> None:
    a = xp.asarray([3.0, 1.0, 2.0])
    x = a + 1
    assert_same(xp.sort(x) + x, np.array([6.0, 5.0, 7.0]))
    x = a + 1
    y = xp.cumsum(xp.sort(x)[1:]) - x[1:]
    evaluate(y, x)
    assert_same(y, np.array([1.0, 4.0]))


def test_a_write_spares_what_a_pending_array_reads() -> None:
    """Evaluating a write must not overwrite memory that a held array, of which it reads a part, is still to read."""
    x = xp.asarray(np.arange(7.0))
    r = x[::-1]
    c = r + r
    r[1:3] = c[0:2][::-1] * 2
    evaluate(x)
    assert_same(c, 2 * np.arange(7.0)[::-1])
    assert_same(x, np.array([0.0, 1, 2, 3, 24, 20, 6]))
