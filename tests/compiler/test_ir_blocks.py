"""Hand-written kernels: what the block language's ops mean, and that the passes and the text keep them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from blockarray.compiler import passes
from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY, NUMPY_NAMES
from blockarray.compiler.interpreter import OutOfBounds, run
from blockarray.compiler.ir import I64, Kernel, Type, Value, written
from blockarray.compiler.parser import parse
from blockarray.compiler.passes.linear import Linear, Scalars
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify

I32 = Type("i32")


def pointer(dtype: str) -> Type:
    return Type(dtype, pointer=True)


def positions(b: Builder, extents: Any) -> Value:
    """Row-major positions in a tile."""
    return b.reshape(b.iota(math.prod(extents)), extents)


def over(make, *arrays: np.ndarray) -> list[np.ndarray]:
    """The tiles that `make` gives for arrays as tiles, through the text and the passes."""
    b = Builder("k")
    params = [b.param(f"x{k}", pointer(NUMPY_NAMES[x.dtype])) for k, x in enumerate(arrays)]
    made = make(b, *[b.load_ptr(p, positions(b, x.shape)) for p, x in zip(params, arrays, strict=True)])
    made = [made] if isinstance(made, Value) else list(made)
    outs = []
    for k, value in enumerate(made):
        b.store_ptr(value, b.param(f"out{k}", pointer(value.type.dtype)), positions(b, value.type.extents))
        outs.append(np.zeros(math.prod(map(int, value.type.extents)), NUMPY[value.type.dtype]))
    run(settled(b.finish()), [*[x.ravel() for x in arrays], *outs])
    return [o.reshape(tuple(map(int, v.type.extents))) for o, v in zip(outs, made, strict=True)]


def settled(kernel: Kernel) -> Kernel:
    verify(kernel)
    read = parse(text(kernel))
    assert text(read) == text(kernel)
    return passes.run(read, check=True)


def one(make, *arrays: np.ndarray) -> np.ndarray:
    (result,) = over(make, *arrays)
    return result


RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype("f")


def test_movements():
    np.testing.assert_array_equal(one(lambda b, x: b.trans(x, (1, 0)), X), X.T)
    np.testing.assert_array_equal(one(lambda b, x: b.reshape(x, (2, 2, 8)), X), X.reshape(2, 2, 8))
    np.testing.assert_array_equal(one(lambda b, x, y: b.join(x, y), X, -X), np.stack([X, -X], -1))
    np.testing.assert_array_equal(one(lambda b, x, y: b.cat(x, y, 0), X, -X), np.concatenate([X, -X]))
    np.testing.assert_array_equal(one(lambda b, x: b.flip(x, 1), X), X[:, ::-1])
    first, second = over(lambda b, x: b.split(b.reshape(x, (4, 4, 2))), X)
    np.testing.assert_array_equal(first, X[:, ::2])
    np.testing.assert_array_equal(second, X[:, 1::2])
    index = RNG.integers(0, 4, (2, 8)).astype(np.int32)
    np.testing.assert_array_equal(one(lambda b, x, i: b.gather(x, i, 0), X, index), np.take_along_axis(X, index, 0))
    with pytest.raises(OutOfBounds, match="index of a gather"):
        one(lambda b, x, i: b.gather(x, i, 0), X, index + 2)


def test_sort_and_histogram():
    x = X.copy()
    x[0, :2] = np.nan, -np.inf
    np.testing.assert_array_equal(one(lambda b, x: b.sort(x, 1), x), np.sort(x, 1))
    np.testing.assert_array_equal(one(lambda b, x: b.sort(x, 1, True), x), np.sort(x, 1)[:, ::-1])
    i = np.array([0, 3, 3, -1, 7, 2, 3, 0], np.int32)
    keep = np.arange(8) != 1
    np.testing.assert_array_equal(one(lambda b, x: b.histogram(x, 4), i), [2, 0, 1, 3])
    np.testing.assert_array_equal(one(lambda b, x, m: b.histogram(x, 4, m), i, keep), [2, 0, 1, 2])


def test_bits():
    np.testing.assert_array_equal(one(lambda b, x: b.bitcast(x, "i32"), X), X.view(np.int32))
    half = X.astype(np.float16)
    np.testing.assert_array_equal(one(lambda b, x: b.bitcast(b.bitcast(x, "u16"), "f16"), half), half)


def welford(b: Builder, mean: Value, m2: Value, count: Value) -> tuple[Value, ...]:
    with b.reduce_by([mean, m2, count], 1) as c:
        (mean_a, m2_a, n_a), (mean_b, m2_b, n_b) = c.left, c.right
        delta, n = b.op("subtract", mean_b, mean_a), b.op("add", n_a, n_b)
        share = b.op("divide", n_b, n)
        moved = b.op("add", mean_a, b.op("multiply", delta, share))
        spread = b.op("multiply", b.op("multiply", delta, delta), b.op("multiply", n_a, share))
        b.yield_(moved, b.op("add", b.op("add", m2_a, m2_b), spread), n)
    return c.results


def test_reductions_by_regions():
    mean, m2, n = over(welford, X, np.zeros_like(X), np.ones_like(X))
    np.testing.assert_allclose(mean, X.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(m2 / n, X.var(1), rtol=1e-5)

    def first(b, x):
        with b.reduce_by([x], 0) as c:
            b.yield_(c.left[0])
        return c.results

    np.testing.assert_array_equal(one(first, X), X[0])


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_by_regions(reverse):
    """x -> a x + b, composed: not commutative."""

    def composed(b, a, c):
        with b.scan_by([a, c], 1, reverse) as s:
            (a0, c0), (a1, c1) = s.left, s.right
            b.yield_(b.op("multiply", a0, a1), b.op("add", b.op("multiply", a1, c0), c1))
        return s.results

    a, c = RNG.integers(-3, 4, (2, 2, 8))
    got = over(composed, a, c)
    if reverse:
        a, c = a[:, ::-1], c[:, ::-1]
    expected = np.empty((2, 2, 8), int)
    for r in range(2):
        p, q = 1, 0
        for k in range(8):
            p, q = p * a[r, k], a[r, k] * q + c[r, k]
            expected[:, r, k] = p, q
    for g, e in zip(got, expected[:, :, ::-1] if reverse else expected, strict=True):
        np.testing.assert_array_equal(g, e)


def test_scans_backwards():
    x = RNG.integers(-9, 9, (4, 8))
    got = one(lambda b, x: b.scan(x, "cumsum", 1, reverse=True), x)
    np.testing.assert_array_equal(got, x[:, ::-1].cumsum(1)[:, ::-1])


def test_products_in_batches():
    x, y = RNG.standard_normal((2, 4, 8)), RNG.standard_normal((2, 8, 2))
    np.testing.assert_allclose(one(lambda b, x, y: b.dot(x, y), x, y), x @ y)


def test_loops():
    """i32 indices, downwards, and a while whose values are not what it carries."""

    def kernel(b, x):
        lower, upper, step = b.const(7, "i32"), b.const(-1, "i32"), b.const(-2, "i32")
        with b.for_(lower, upper, step, [b.const(0, "i32")], num_stages=2) as loop:
            b.yield_(b.op("add", b.op("multiply", loop.carried[0], b.const(10, "i32")), loop.index))
        with b.while_([b.const(27), b.const(0)]) as steps:
            n, count = steps.carried
            b.yield_(b.op("greater", n, b.const(1)), count, n)
        with steps.body():
            count, n = steps.values
            odd = b.op("equal", b.op("bitwise_and", n, b.const(1)), b.const(1))
            up = b.op("add", b.op("multiply", n, b.const(3)), b.const(1))
            b.yield_(b.op("where", odd, up, b.op("right_shift", n, b.const(1))), b.op("add", count, b.const(1)))
        return *loop.results, *steps.results

    down, count, last = over(kernel, X)
    assert (down, count, last) == (7531, 111, 1)


def atomics(kind: str, start: np.ndarray, index, value: np.ndarray, mask=None, compare=None):
    b = Builder("k")
    dtype = NUMPY_NAMES[start.dtype]
    names = ["memory", "index", "value", "mask", "compare"]
    arrays = [start.copy(), np.asarray(index, np.int64), value, mask, compare]
    params = [b.param(n, pointer(NUMPY_NAMES[a.dtype])) for n, a in zip(names, arrays, strict=True) if a is not None]
    out = b.param("out", pointer(dtype))
    arrays = [a for a in arrays if a is not None]
    at = b.iota(len(index))
    tiles = [b.load_ptr(p, at) for p in params[1:]]
    given = dict(zip([p.name for p in params[1:]], tiles, strict=True))
    old = b.atomic(kind, params[0], given["index"], given["value"], given.get("mask"), given.get("compare"))
    b.store_ptr(old, out, at)
    result = np.zeros(len(index), start.dtype)
    run(settled(b.finish()), [*arrays, result])
    return arrays[0], result


def test_atomics():
    start = np.array([1, 2, 3], np.int32)
    value = np.array([5, 6, 7, 8], np.int32)
    memory, old = atomics("add", start, [0, 0, 2, 0], value, np.array([True, True, True, False]))
    np.testing.assert_array_equal(memory, [12, 2, 10])
    np.testing.assert_array_equal(old, [1, 6, 3, 0])
    memory, old = atomics("xchg", start, [1, 1, 0, 2], value)
    np.testing.assert_array_equal(memory, [7, 6, 8])
    np.testing.assert_array_equal(old, [2, 5, 1, 3])
    memory, old = atomics("cas", start, [0, 0, 1, 2], value, compare=np.array([1, 1, 1, 3], np.int32))
    np.testing.assert_array_equal(memory, [5, 2, 8])
    np.testing.assert_array_equal(old, [1, 5, 2, 3])
    for kind, expected in (("max", 8), ("min", 1), ("xor", 1 ^ 5 ^ 6 ^ 7 ^ 8), ("or", 15), ("and", 0)):
        assert atomics(kind, start, [0] * 4, value)[0][0] == expected
    assert atomics("add", np.zeros(1, np.float16), [0] * 4, np.full(4, 0.5, np.float16))[0][0] == 2


def test_pointers_from_numbers():
    """Two arrays behind one address, chosen at run time."""
    b = Builder("k")
    x, y, out = (b.param(n, pointer("f32")) for n in "xyz")
    choose = b.param("choose", Type("bool"))
    at = b.op("where", choose, b.ptr_to_int(x), b.ptr_to_int(y))
    anywhere = b.int_to_ptr(b.const(0), "f32")
    index = b.op("add", b.iota(4), b.broadcast(b.op("floor_divide", at, b.const(4)), (), (4,)))
    b.store_ptr(b.load_ptr(anywhere, index), out, b.iota(4))
    bits = b.int_to_ptr(b.ptr_to_int(out), "i32")
    b.store_ptr(b.const(1, "i32"), bits, b.const(0))
    kernel = settled(b.finish())
    x, y, out = np.arange(4, dtype="f"), np.arange(4, 8, dtype="f"), np.zeros(4, "f")
    for chosen in (True, False):
        run(kernel, [x, y, out, chosen])
        np.testing.assert_array_equal(out[1:], (x if chosen else y)[1:])
        assert out.view(np.int32)[0] == 1
    with pytest.raises(OutOfBounds, match="address"):
        run(kernel, [x[:3], y, out, True])


def test_checks_with_masks():
    def kernel(b, ok, mask):
        b.check(ok, "no", mask)
        b.assume(ok)
        b.barrier()
        return b.hint(b.iota(2), multiple=(2,), contiguous=(2,))

    b = Builder("k")
    ok, mask = (
        b.load_ptr(b.param("ok", pointer("bool")), b.iota(2)),
        b.load_ptr(b.param("m", pointer("bool")), b.iota(2)),
    )
    kernel(b, ok, mask)
    checked = settled(b.finish())
    fine = np.array([True, False])
    assert run(checked, [fine, fine]) == []
    assert run(checked, [fine, np.ones(2, bool)]) == ["no"]


def test_print(capsys):
    b = Builder("k")
    for name in ("grid_2", "grid_1", "grid_0"):
        b.grid_axis(b.param(name, I64))
    b.print([b.iota(2)], " x: ")
    b.print([b.const(1.5, "f32"), b.const(-1, "i16")], " y: ", hex=True)
    b.print([], " done")
    run(settled(b.finish()), [1, 1, 2])
    assert capsys.readouterr().out.splitlines()[5:] == [
        "pid (1, 0, 0) idx (0) x: 0",
        "pid (1, 0, 0) idx (1) x: 1",
        "pid (1, 0, 0) idx () y: (operand 0) 0x3fc00000",
        "pid (1, 0, 0) idx () y: (operand 1) 0xffff",
        "pid (1, 0, 0) done",
    ]


def test_effects_keep_loads_apart():
    b = Builder("k")
    p, zero = b.param("p", pointer("i32")), b.const(0)
    first = b.load_ptr(p, zero)
    b.atomic("add", p, zero, first)
    second = b.load_ptr(p, zero)
    b.barrier()
    third, fourth = b.load_ptr(p, zero), b.load_ptr(p, zero)
    b.load_ptr(p, zero, volatile=True)
    for k, v in enumerate((first, second, third, fourth)):
        b.store_ptr(v, p, b.const(k + 1))
    names = [op.name for op in settled(b.finish()).walk()]
    assert names.count("load_ptr") == 4 and names.count("atomic") == 1


@pytest.mark.parametrize("volatile", [False, True])
def test_instructions_by_hand_may_write_anywhere(volatile: bool) -> None:
    b = Builder("k")
    p, n, zero = b.param("p", pointer("i32")), b.param("n", I64), b.const(0)
    first = b.load_ptr(p, zero)
    b.inline_asm("st.global.u32 [$1], 7; mov.u32 $0, 0;", "=r,l", (n,), (I32,), 1, volatile)
    total = b.op("add", first, b.load_ptr(p, zero))
    assert (p in written(b.finish())) == volatile
    b.store_ptr(total, p, b.const(1))
    names = [op.name for op in settled(b.finish()).walk()]
    assert (names.count("load_ptr"), names.count("inline_asm")) == ((2, 1) if volatile else (1, 0))


def test_scalars_keep_their_bits() -> None:
    b = Builder("k")
    n, m = b.param("n", I64), b.param("m", I32)
    narrow, large = b.cast(n, "i32"), b.cast(b.const(1 << 40), "i32")
    known = Scalars(b.finish())
    assert known.linear(b.cast(m, "i64")) == known.linear(m)
    assert known.linear(narrow) != known.linear(n)
    assert known.linear(large) != Linear(constant=1 << 40)
