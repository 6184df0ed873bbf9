"""Hand-written kernels as machine code, beside the interpreter."""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from blockarray.compiler import cpu, interpreter, passes
from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY, NUMPY_NAMES
from blockarray.compiler.ir import I64, Kernel, Type, Value
from blockarray.compiler.parser import parse
from blockarray.compiler.verifier import verify
from tests.compiler.block_programs import programs
from tests.compiler.cpu_kernels import Compiled, check

RNG = np.random.default_rng(0)


def pointer(dtype: str) -> Type:
    return Type(dtype, pointer=True)


def blocks(name: str = "k") -> Builder:
    b = Builder(name)
    b.attrs["schedule"] = "blocks"
    return b


def grid(b: Builder) -> list[Value]:
    sizes = [b.param(f"grid_{k}", I64) for k in range(3)]
    for size in sizes[::-1]:
        b.grid_axis(size)
    return sizes


def positions(b: Builder, extents: Any) -> Value:
    return b.reshape(b.iota(math.prod(extents)), extents)


def data(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype in ("f16", "bf16", "f32", "f64"):
        return (RNG.standard_normal(shape) * 3).astype(NUMPY[dtype])
    info = np.iinfo(NUMPY[dtype])
    return RNG.integers(max(info.min, -99), min(info.max, 99), shape).astype(NUMPY[dtype])


def compare(make, *arrays: np.ndarray, rtol: float = 0, atol: float = 0) -> None:
    """Compare the tiles that `make` gives for tiles, with every pipeline."""
    b = blocks()
    params = [b.param(f"x{k}", pointer(NUMPY_NAMES[x.dtype])) for k, x in enumerate(arrays)]
    made = make(b, *[b.load_ptr(p, positions(b, x.shape)) for p, x in zip(params, arrays, strict=True)])
    made = [made] if isinstance(made, Value) else list(made)
    outs = []
    for k, value in enumerate(made):
        b.store_ptr(value, b.param(f"out{k}", pointer(value.type.dtype)), positions(b, value.type.extents))
        outs.append(np.zeros(math.prod(map(int, value.type.extents)), NUMPY[value.type.dtype]))
    both(b.finish(), [*[x.ravel() for x in arrays], *outs], rtol, atol)


def both(kernel: Kernel, args: list[Any], rtol: float = 0, atol: float = 0) -> None:
    check(kernel, args, rtol, atol)
    check(passes.run(kernel, check=True), args, rtol, atol)


# -- elements that move -----------------------------------------------------------------------------------------------
#: One of each kind of register and memory.
DTYPES = ["bool", "i8", "bf16", "f32", "i64"]
SHAPES = [(2,), (64,), (4, 16), (16, 4), (2, 8, 4), (1, 32), (32, 1), (1, 1), (2, 1, 8)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_movements(dtype):
    for shape in SHAPES:
        backwards = tuple(range(len(shape)))[::-1]

        def moved(b, x, y, backwards=backwards, shape=shape):
            found = [
                b.reshape(x, (x.type.extents[0] * math.prod(shape[1:]),)),
                b.trans(b.op("maximum", x, x), backwards),
            ]
            found += [b.reshape(b.trans(x, backwards), shape[::-1]), b.join(x, y), *b.split(b.join(y, x))]
            if math.prod(shape) > 1:
                found += b.split(b.reshape(x, (math.prod(shape) // 2, 2)))
            return found + [f for dim in backwards for f in (b.flip(x, dim), b.cat(x, y, dim))]

        compare(moved, data(shape, dtype), data(shape, dtype))


def test_movements_of_what_is_computed():
    x = data((8, 16), "f32")

    def chain(b, x):
        e = b.op("multiply", x, x)
        turned = b.trans(e, (1, 0))
        halves = b.split(b.reshape(turned, (16, 4, 2)))
        joined = b.join(halves[1], halves[0])
        back = b.trans(b.reshape(joined, (16, 8)), (1, 0))
        return b.op("add", back, b.flip(e, 1)), b.op("subtract", turned, b.trans(b.flip(e, 0), (1, 0)))

    compare(chain, x)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f64"])
def test_gathers(dtype):
    cases = [((16,), 0, 64), ((4, 16), 1, 4), ((16, 4), 0, 8), ((2, 8, 4), 1, 16), ((4, 1), 1, 8), ((4, 8), 1, 1)]
    for (shape, dim, n), kind in itertools.product(cases, (np.int32, np.uint8)):
        index = RNG.integers(0, shape[dim], (*shape[:dim], n, *shape[dim + 1 :])).astype(kind)

        def picked(b, x, i, dim=dim):
            return b.gather(x, i, dim), b.op("add", b.gather(b.op("add", x, x), i, dim), b.gather(x, i, dim))

        compare(picked, data(shape, dtype), index)


@pytest.mark.parametrize("dtype", ["bool", "u16", "f16", "bf16", "f64"])
def test_sorts(dtype):
    for shape, dim in [((2,), 0), ((256,), 0), ((4, 32), 1), ((32, 4), 0), ((2, 16, 2), 1), ((8, 1), 1)]:
        x = data(shape, dtype)
        if dtype[0] in "bf" and dtype != "bool" and x.size > 4:
            x.ravel()[RNG.integers(0, x.size, 4)] = [np.nan, np.inf, -np.inf, 0.0]
        compare(lambda b, x, dim=dim: [b.sort(x, dim, down) for down in (False, True)], x)


def test_histograms():
    for shape, bins in [((64,), 4), ((8, 16), 32), ((1,), 8), ((32,), 1)]:
        for dtype in ("i32", "i64", "u8", "i16"):
            x = (data(shape, dtype) % (bins + 3)).astype(NUMPY[dtype]) - (dtype[0] == "i")
            compare(lambda b, x, m, n=bins: [b.histogram(x, n), b.histogram(x, n, m)], x, data(shape, "bool"))


def test_bits():
    pairs = [
        ("f32", "i32"),
        ("i32", "f32"),
        ("f16", "i16"),
        ("bf16", "u16"),
        ("u16", "bf16"),
        ("f64", "i64"),
        ("i8", "u8"),
    ]
    for dtype, out in pairs:
        compare(lambda b, x, out=out: b.bitcast(x, out), data((32,), dtype))
        compare(lambda b, x, out=out: b.bitcast(b.op("add", x, x), out), data((32,), dtype))


# -- regions that join scalars ----------------------------------------------------------------------------------------
def welford(b: Builder, dim: int, mean: Value, m2: Value, count: Value) -> tuple[Value, ...]:
    with b.reduce_by([mean, m2, count], dim) as c:
        (mean_a, m2_a, n_a), (mean_b, m2_b, n_b) = c.left, c.right
        delta, n = b.op("subtract", mean_b, mean_a), b.op("add", n_a, n_b)
        share = b.op("divide", n_b, n)
        moved = b.op("add", mean_a, b.op("multiply", delta, share))
        spread = b.op("multiply", b.op("multiply", delta, delta), b.op("multiply", n_a, share))
        b.yield_(moved, b.op("add", b.op("add", m2_a, m2_b), spread), n)
    return c.results


def test_reductions_by_regions():
    for shape in [(64,), (2,), (4, 32), (32, 4), (2, 8, 4), (8, 1)]:
        for dim in range(len(shape)):
            x = data(shape, "f64")
            compare(lambda b, *v, dim=dim: welford(b, dim, *v), x, np.zeros_like(x), np.ones_like(x), rtol=1e-12)

            def largest(b, x, i, dim=dim):
                with b.reduce_by([x, i], dim) as c:
                    (a, k), (d, j) = c.left, c.right
                    first = b.op(
                        "logical_or",
                        b.op("greater", a, d),
                        b.op("logical_and", b.op("equal", a, d), b.op("less", k, j)),
                    )
                    b.yield_(b.op("where", first, a, d), b.op("where", first, k, j))
                return c.results

            for dtype in ("i32", "f16"):
                compare(largest, data(shape, dtype), np.arange(x.size).reshape(shape).astype(np.int32))


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_by_regions(reverse):
    for shape in [(64,), (2,), (32, 4), (2, 8, 4), (8, 1), (4, 4)]:
        for dim in range(len(shape)):

            def composed(b, a, c, dim=dim):
                with b.scan_by([a, c], dim, reverse) as s:
                    (a0, c0), (a1, c1) = s.left, s.right
                    b.yield_(b.op("multiply", a0, a1), b.op("add", b.op("multiply", a1, c0), c1))
                return s.results

            for dtype in ("i64", "u8"):
                compare(composed, data(shape, dtype), data(shape, dtype))

            def scanned(b, x, dim=dim):
                return b.scan(x, "cumsum", dim, reverse=reverse), b.scan(x, "cummax", dim, reverse=reverse)

            compare(scanned, data(shape, "i32"))
            compare(scanned, data(shape, "f32"), rtol=1e-5, atol=1e-5)


def test_reductions():
    for shape in [(64,), (4, 32), (32, 4), (2, 8, 4), (1, 16), (16, 1), (1, 1)]:
        for dims in [(d,) for d in range(len(shape))] + [tuple(range(len(shape)))]:
            x = data(shape, "f32")
            compare(
                lambda b, x, dims=dims: [b.reduce(x, kind, dims) for kind in ("sum", "max", "min")],
                x,
                rtol=1e-5,
                atol=1e-5,
            )
            i = np.arange(x.size).reshape(shape)
            compare(lambda b, x, i, dims=dims: b.argreduce(x, i, "argmax", dims), x, i)
            compare(lambda b, x, dims=dims: b.reduce(x, "sum", dims), data(shape, "i64"))


# -- products ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64", "i8"])
def test_products(dtype):
    out: str = {"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype) or dtype
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype != "i8" else {}
    for m, n, k in [(16, 32, 16), (2, 64, 8), (64, 2, 32), (1, 16, 16), (16, 1, 16), (16, 16, 1), (1, 1, 4)]:
        x, y, acc = data((m, k), dtype), data((k, n), dtype), data((m, n), out)

        def products(b, x, y, turned, acc):
            return b.dot(x, y, dtype=out), b.dot(x, y, acc), b.dot(x, b.trans(turned, (1, 0)), dtype=out)

        compare(products, x, y, data((n, k), dtype), acc, **tolerance)
        batches = [np.stack([v, v[::-1], v, v]) for v in (x, y, acc)]
        compare(lambda b, x, y, acc: b.dot(x, y, acc), *batches, **tolerance)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_sums_as_whole_tiles(dtype):
    """Narrow results of products and reductions go into ops that read them from scratch."""

    def chain(b, x, y):
        first = b.dot(x, y)
        second = b.dot(x, y, first)
        sums = b.reduce(b.op("multiply", x, x), "sum", (0,))
        return second, b.sort(sums, 0), b.flip(b.reduce(y, "sum", (1,)), 0), b.reshape(b.trans(second, (1, 0)), (256,))

    x, y = (RNG.integers(-3, 4, (16, 16)).astype(NUMPY[dtype]) for _ in range(2))
    compare(chain, x, y)


# -- memory and control -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["i32", "u8", "bf16", "f64"])
def test_atomics(dtype):
    kinds = ["add", "max", "min", "xchg", "cas"] + ["and", "or", "xor"] * (dtype[0] in "iu")
    for kind, masked, shape in itertools.product(kinds, (False, True), ((64,), (4, 8), (1,))):
        b = blocks()
        names = ["memory", "index", "value", "mask", "compare"]
        arrays = [
            data((8,), dtype),
            RNG.integers(0, 8, shape),
            data(shape, dtype),
            data(shape, "bool"),
            data(shape, dtype),
        ]
        params = [b.param(n, pointer(NUMPY_NAMES[a.dtype])) for n, a in zip(names, arrays, strict=True)]
        out, at = b.param("out", pointer(dtype)), positions(b, shape)
        index, value, mask, compare = [b.load_ptr(p, at) for p in params[1:]]
        order = {"add": "relaxed", "max": "acquire", "min": "release"}.get(kind, "acq_rel")
        old = b.atomic(
            kind, params[0], index, value, mask if masked else None, compare if kind == "cas" else None, order=order
        )
        b.store_ptr(old, out, at)
        both(b.finish(), [*[a.ravel() for a in arrays], np.zeros(math.prod(shape), NUMPY[dtype])])


def test_atomics_of_many_threads():
    """Programs of two threads add to the same elements, and take turns behind a lock."""
    b = blocks()
    counts, total, lock, last = (
        b.param(n, pointer(d)) for n, d in zip("abcd", ("i32", "f32", "i32", "i64"), strict=True)
    )
    grid(b)
    zero, one = b.const(0), b.const(1, "i32")
    b.atomic(
        "add", counts, b.op("remainder", b.iota(64), b.broadcast(b.const(4), (), (64,))), b.broadcast(one, (), (64,))
    )
    b.atomic("add", total, zero, b.const(0.5, "f32"))
    with b.while_([]) as loop:
        taken = b.atomic("cas", lock, zero, one, compare=b.const(0, "i32"))
        b.yield_(b.op("not_equal", taken, b.const(0, "i32")))
    with loop.body():
        pass
    b.store_ptr(b.op("add", b.load_ptr(last, zero), b.const(3)), last, zero)
    b.barrier()
    b.atomic("xchg", lock, zero, b.const(0, "i32"))
    compiled = Compiled(passes.run(b.finish(), check=True))
    n = 4000
    args = [np.zeros(4, np.int32), np.zeros(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.int64), n, 1, 1]
    threads = [threading.Thread(target=compiled, args=(args,)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(args[0], [2 * 16 * n] * 4)
    assert args[1][0] == n and args[2][0] == 0 and args[3][0] == 2 * 3 * n


def test_masks_bounds_and_hints():
    """Vectors that are partly there, of every size of element and stride, in programs of a grid of three axes."""
    for dtype, stride in itertools.product(("i8", "f16", "f32", "f64"), (1, 2, -1)):
        b = blocks()
        x, out = b.param("x", pointer(dtype)), b.param("out", pointer(dtype))
        grid(b)
        n, start = b.param("n", Type("i32")), b.param("start", Type("i32"))
        linear = b.cast(b.op("add", b.op("multiply", b.program_id(1), b.const(3)), b.program_id(2)), "i32")
        cols = b.op(
            "add", b.cast(b.iota(32), "i32"), b.broadcast(b.op("multiply", linear, b.const(32, "i32")), (), (32,))
        )
        mask = b.op("less", cols, b.broadcast(n, (), (32,)))
        at = b.op(
            "add", b.op("multiply", cols, b.broadcast(b.const(stride, "i32"), (), (32,))), b.broadcast(start, (), (32,))
        )
        b.assume(b.op("less", b.const(0, "i32"), n))
        value = b.load_ptr(x, b.hint(at, multiple=(1,)), mask, 1, evict="evict_last")
        b.store_ptr(b.op("add", value, value), out, cols, mask, cache=".wt")
        for count in (1, 31, 32, 33, 150):
            memory = data((2 * 192,), dtype)
            both(b.finish(), [memory, np.zeros(192, NUMPY[dtype]), 3, 2, 1, count, 0 if stride > 0 else 191])


@pytest.mark.parametrize("dtype", ["i8", "bool", "f16", "f32", "i64"])
def test_rows_at_computed_places(dtype):
    """Runs of neighbours that begin where an array says, under masks of every kind."""
    for masked, narrow in itertools.product((False, True), repeat=2):
        b = blocks()
        x, rows, keep, out = (
            b.param(n, pointer(d)) for n, d in zip("abcd", (dtype, "i64", "bool", dtype), strict=True)
        )
        wide = lambda v, dims, b=b: b.broadcast(v, dims, (4, 32))
        row = b.op("multiply", b.load_ptr(rows, b.iota(4)), b.broadcast(b.const(70), (), (4,)))
        at = b.op("add", wide(row, (0,)), wide(b.iota(32), (1,)))
        at = b.cast(b.op("subtract", at, wide(b.const(1), ())), "i32" if narrow else "i64")
        mask = b.load_ptr(keep, b.reshape(b.iota(128), (4, 32))) if masked else None
        value = b.load_ptr(x, at, mask, 1)
        b.store_ptr(value, out, at, mask)
        kernel, memory = b.finish(), data((600,), dtype)
        keeps = [np.ones(128, bool), data((128,), "bool"), np.arange(128) % 32 < 20]
        for keep in keeps if masked else keeps[:1]:
            both(kernel, [memory, np.array([5, 1, 7, 3]), keep, np.zeros(600, NUMPY[dtype])])


def test_pointers_from_numbers():
    b = blocks()
    x, y, out = (b.param(n, pointer("f32")) for n in "xyz")
    choose = b.param("choose", Type("bool"))
    with b.if_(choose) as branch:
        b.yield_(b.ptr_to_int(x))
    with branch.else_():
        b.yield_(b.ptr_to_int(y))
    anywhere = b.int_to_ptr(b.const(0), "f32")
    at = b.op("floor_divide", branch.results[0], b.const(4))
    index = b.op("add", b.iota(16), b.broadcast(at, (), (16,)))
    b.store_ptr(b.load_ptr(anywhere, index), out, b.iota(16))
    b.store_ptr(b.const(7, "i32"), b.int_to_ptr(b.ptr_to_int(out), "i32"), b.const(3))
    x, y = data((16,), "f32"), data((16,), "f32")
    compiled = Compiled(passes.run(b.finish(), check=True))
    for chosen in (True, False):
        out = np.zeros(16, "f4")
        compiled([x, y, out, chosen])
        assert out.view(np.int32)[3] == 7
        np.testing.assert_array_equal(np.delete(out, 3), np.delete(x if chosen else y, 3))


def test_checks_with_masks():
    b = blocks()
    ok, mask = (b.load_ptr(b.param(n, pointer("bool")), b.iota(32)) for n in ("ok", "mask"))
    b.param("errors", pointer("i64"))
    b.check(ok, "no", mask)
    compiled = Compiled(passes.run(b.finish(), check=True))
    ok, errors = np.arange(32) != 5, np.zeros(1, np.int64)
    compiled([ok, ok, errors])
    assert errors[0] == 0
    compiled([ok, np.arange(32) == 5, errors])
    assert errors[0] == 1


def test_copies_of_checks_have_one_number():
    """Which of the two loops over the same checks runs depends on a condition."""
    b = blocks()
    n, errors = b.param("n", I64), b.param("errors", pointer("i64"))
    with b.if_(b.op("less", n, b.const(5))):
        b.check(b.op("less", n, b.const(4)), "0")
        b.check(b.op("less", n, b.const(3)), "1")
    with b.if_(b.op("less", b.const(4), n)):
        b.check(b.op("less", n, b.const(10)), "0")
        b.check(b.op("less", n, b.const(8)), "1")
    kernel = b.finish()
    assert set(kernel.checks().values()) == {1, 2} and errors in kernel.params
    for value, number in ((0, 0), (3, 2), (7, 0), (8, 2), (11, 1)):
        found = np.zeros(1, np.int64)
        Compiled(kernel)([value, found])
        assert found[0] == number


def test_waiting_for_another_thread():
    b = blocks()
    flag, out = b.param("flag", pointer("i32")), b.param("out", pointer("i32"))
    with b.while_([]) as loop:
        seen = b.load_ptr(flag, b.const(0), volatile=True)
        b.yield_(b.op("equal", seen, b.const(0, "i32")))
    with loop.body():
        pass
    b.store_ptr(b.const(1, "i32"), out, b.const(0))
    compiled = Compiled(passes.run(b.finish(), check=True))
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    thread = threading.Thread(target=compiled, args=([flag, out],))
    thread.start()
    time.sleep(0.01)
    assert out[0] == 0
    flag[0] = 1
    thread.join(60)
    assert not thread.is_alive() and out[0] == 1


def test_print_is_the_interpreters(capfd):
    b = blocks()
    grid(b)
    tile = b.reshape(b.iota(16), (1, 16))
    b.print([b.cast(tile, "f32"), b.cast(tile, "u8")], " 100% x: ")
    b.print([b.op("negative", b.program_id(2))], " y: ")
    b.print([b.bitcast(b.const(1.5, "f32"), "u32"), b.const(-1, "i16"), b.const(True, "bool")], ' "\\z: ', hex=True)
    b.print([], " done")
    kernel, args = b.finish(), [2, 1, 1]
    interpreter.run(kernel, args)
    expected = capfd.readouterr().out
    assert expected.count("\n") == 2 * (32 + 1 + 3 + 1)
    Compiled(passes.run(kernel, check=True))(args)
    assert capfd.readouterr().out == expected


# -- whole programs ---------------------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(programs())
def test_random_programs(made):
    kernel, args = made
    both(kernel, args)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "%b = bitcast %v : i64[j]\n%f = cast %b : c64[j]",
            "bits of complex numbers",
        ),
        ("%f = flip %v {dim=0} : c64[j]", "is moved as a whole"),
    ],
)
def test_refused(body: str, message: str) -> None:
    """What the language has no way to write: complex elements, and tiles of run-time extents."""
    head = 'kernel @k(%p: ptr<c64>, %n: i64) grid() dims(j = %n) attrs(schedule="blocks") {\n'
    head += "%0 = const {value=0} : i64\n%1 = const {value=1} : i64\n%v = load_view %p, %0, %1 : c64[j]\n"
    kernel = parse(f"{head}{body}\nstore_view %f, %p, %0, %1\n}}")
    verify(kernel)
    with pytest.raises(NotImplementedError, match=message):
        cpu.compile(kernel, cpu.host_target())
