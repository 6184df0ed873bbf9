"""Blocks that hold a row become the row: hand-written kernels in the array library's form, and what stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockarray.language as tl
from blockarray.compiler import cpu, interpreter, passes
from blockarray.compiler.builder import Builder
from blockarray.compiler.canonical import canonical
from blockarray.compiler.ir import I64, Kernel, Type, Value
from blockarray.compiler.parser import parse
from blockarray.compiler.passes.cse import cse
from blockarray.compiler.passes.dce import dce
from blockarray.compiler.passes.named import named
from blockarray.compiler.plan import KernelStep
from blockarray.compiler.policy import gpu_policy
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify
from tests.blockarray.language.running import compiled, run_compiled
from tests.compiler.cpu_kernels import Compiled
from tests.compiler.planning import leaf, planned
from tests.compiler.test_plan import softmax as of_rows

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def softmax(x, out, rows, n, x_stride, out_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, n], [x_stride, 1], [ROWS, BLOCK])
    target = tl.make_tensor_descriptor(out, [rows, n], [out_stride, 1], [ROWS, BLOCK])
    row = tl.program_id(0) * ROWS
    v = tl.where(tl.arange(0, BLOCK)[None, :] < n, source.load([row, 0]), -float("inf"))
    e = tl.exp(v - tl.max(v, 1, keep_dims=True))
    target.store([row, 0], e / tl.sum(e, 1, keep_dims=True))


def softmax_by_pointers(x, out, rows, n, x_stride, out_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    if row < rows:
        v = tl.load(x + row * x_stride + at, mask=at < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, 0), mask=at < n)


def softmax_by_a_loop(x, out, rows, n, x_stride, out_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * x_stride + at, mask=at < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, 0), mask=at < n)


def arguments(rows: int, n: int, height: int = 1, block: int = 1024) -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((rows, n)).astype("f4")
    sizes = {"rows": rows, "n": n, "x_stride": n, "out_stride": n}
    return {
        "x": x, "out": np.zeros_like(x), **{k: np.int32(v) for k, v in sizes.items()}, "ROWS": height, "BLOCK": block,
    }  # fmt: skip


def of_arrays(rows: int, n: int, policy: Any = None) -> Kernel:
    (step,) = planned(of_rows(leaf(np.zeros((rows, n), np.float32))), policy=policy).steps
    assert isinstance(step, KernelStep)
    return parse(step.key)


@pytest.mark.parametrize("kernel", [softmax, softmax_by_pointers, softmax_by_a_loop])
def test_a_softmax_by_hand_is_that_of_arrays(kernel):
    want = text(canonical(of_arrays(64, 781)))
    assert text(canonical(compiled(kernel, **arguments(64, 781)))) == want
    verify(canonical(compiled(kernel, **arguments(64, 781))))
    path = GOLDEN / "canonical_softmax.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(want + "\n")
    assert want + "\n" == path.read_text()


def test_a_softmax_of_several_rows_is_that_of_arrays_on_a_gpu():
    arrays = of_arrays(1 << 16, 100, gpu_policy(132))
    rows = arrays.dims["d0"].block
    assert rows is not None and rows > 1
    assert text(canonical(compiled(softmax, **arguments(8, 100, rows, 128)))) == text(canonical(arrays))


def test_code_for_the_cpu_is_made_of_it():
    kernel = cpu.prepared(passes.run(compiled(softmax, **arguments(8, 100, 1, 128))))
    verify(kernel)
    assert text(kernel).count("bounded") == 0 and "where" not in text(kernel)
    assert "dims(d0 = %n in 128)" in text(kernel)


@pytest.mark.parametrize(("rows", "n", "programs"), [(5, 100, 9), (3, 128, 2), (4, 1, 4)])
@pytest.mark.parametrize("height", [1, 2])
def test_they_compute_what_they_should(rows, n, programs, height):
    for kernel in (softmax, softmax_by_pointers, softmax_by_a_loop):
        given = arguments(rows, n, height, 128)
        run_compiled(kernel, (programs,), **given)
        e = np.exp(given["x"] - given["x"].max(1, keepdims=True))
        covered = rows if kernel is softmax_by_a_loop else min(rows, programs * (height if kernel is softmax else 1))
        np.testing.assert_allclose(given["out"][:covered], (e / e.sum(1, keepdims=True))[:covered], 1e-5)
        assert not given["out"][covered:].any()


def test_longer_rows_are_cut_off_as_before():
    given = arguments(3, 200, 1, 128)
    run_compiled(softmax, (3,), **given)
    assert given["out"][:, :128].all() and not given["out"][:, 128:].any()


def sums(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0)))


def test_blocks_of_a_dim_may_be_empty():
    x, out = np.ones(300, "f4"), np.full(6, 7, "f4")
    kernel = cpu.prepared(passes.run(compiled(sums, x=x, out=out, n=np.int32(300), BLOCK=128)))
    assert "d0 = %n / 128 @ 2" in text(kernel)
    run_compiled(sums, (5,), x=x, out=out, n=np.int32(300), BLOCK=128)
    np.testing.assert_array_equal(out, [128, 128, 44, 0, 0, 7])


def counted(x, out, n, BLOCK: tl.constexpr):
    """Zeros behind the end are among what the maximum is of."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.store(out + at, v + tl.max(v), mask=at < n)


def unbounded(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=5))


def two_bounds(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.store(out + at, v, mask=at < n)
    tl.store(out + at + BLOCK, v, mask=at < n + 1)


def empty_maximum(x, out, n, BLOCK: tl.constexpr):
    """Of no element, the sum is NaN."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.store(out, tl.sum(tl.exp(v - tl.max(v))))


def scanned(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at, mask=at < n, other=0), reverse=True), mask=at < n)


@pytest.mark.parametrize("kernel", [counted, unbounded, two_bounds, empty_maximum, scanned])
def test_what_counts_behind_the_end_stays(kernel):
    x, out = -np.arange(1, 257, dtype="f4"), np.zeros(256, "f4")
    made = passes.run(compiled(kernel, x=x, out=out, n=np.int32(100), BLOCK=128))
    assert named(made) is made
    run_compiled(kernel, (1,), x=x, out=out, n=np.int32(0), BLOCK=128)


def winner(x, out, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.store(out + at, v + tl.argmax(v, 0), mask=at < n)


def carried(x, out, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for r in range(3):
        v = tl.load(x + r * 8 + at, mask=at < n, other=0)
        total += v
        if r > n:
            total = total * 2
        else:
            total = total + tl.sum(v)
    tl.store(out + at, total, mask=at < n)


def gathered(x, out, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.load(y + at, mask=at < n, other=0), mask=at < n, other=0)
    tl.store(out + at, v, mask=at < n)
    tl.store(out + 300 + at, tl.where(at < n - 1, v, 3.0), mask=at < n)


@pytest.mark.parametrize("kernel", [winner, carried, gathered])
def test_ties_loops_and_gathers(kernel):
    y, out = np.random.default_rng(0).integers(0, 300, 300).astype("i4"), np.zeros(600, "f4")
    made = passes.run(compiled(kernel, x=out, out=out, y=y, n=np.int32(3), BLOCK=128))
    assert named(made) is not made
    for n in (-3, 50):
        for x in (np.arange(300, dtype="f4") % 7, np.full(300, -np.inf, "f4")):
            run_compiled(kernel, (1,), x=x, out=out, y=y, n=np.int32(n), BLOCK=128)


# -- random kernels ---------------------------------------------------------------------------------------------------
BLOCK, SIZE = 64, 160
FILLERS = (0.0, 1.0, -float("inf"), float("inf"))
UNARY = ("exp", "negative", "absolute", "square", "floor")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide", "fmax")
KINDS = {"sum": "f32", "max": "f32", "min": "f32", "prod": "f32", "any": "bool", "all": "bool"}


class Rows:
    """Draws a kernel of rows: loads, masks, arithmetic, reductions and stores, some of which keep within the bound."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = b = Builder("k")
        b.attrs["schedule"] = "blocks"
        self.x, self.y = (b.param(name, Type("f32", pointer=True)) for name in "xy")
        self.n, self.m, self.rows = b.param("n", I64), b.param("m", Type("i32")), b.param("rows", I64)
        for k in (2, 1, 0):
            b.grid_axis(b.param(f"grid_{k}", I64))
        self.height = draw(st.sampled_from([None, None, 1, 2]))
        self.row = b.program_id(2)
        self.blocked = self.height is None and draw(st.booleans())

    @property
    def extents(self) -> tuple[int, ...]:
        return (BLOCK,) if self.height is None else (self.height, BLOCK)

    def chance(self, of: int) -> bool:
        return self.draw(st.integers(1, of)) == 1

    def spread(self, x: Value) -> Value:
        return self.b.broadcast(x, [], self.extents)

    def bound(self) -> Value:
        b = self.b
        size = b.cast(self.m, "i64") if self.chance(8) else self.n
        return b.op("subtract", size, b.op("multiply", self.row, b.const(BLOCK))) if self.blocked else size

    def window(self) -> tuple[Value, list[Value], list[Value] | None]:
        b = self.b
        start = b.op("multiply", self.row, b.const(BLOCK)) if self.blocked else b.op("multiply", self.row, b.const(3))
        if self.height is None:
            return start, [b.const(1)], None if self.chance(10) else [self.bound()]
        rows = b.op("subtract", self.rows, b.op("multiply", self.row, b.const(self.height)))
        bounds = None if self.chance(10) else [rows, self.bound()]
        return b.op("multiply", start, b.const(self.height)), [b.const(3), b.const(1)], bounds

    def load(self) -> Value:
        start, strides, bounds = self.window()
        other = self.draw(st.sampled_from(FILLERS))
        return self.b.load_view(self.x, start, strides, self.extents, bounds, other)

    def mask(self, x: Value) -> Value:
        b = self.b
        places = b.broadcast(b.iota(BLOCK), [len(self.extents) - 1], self.extents)
        inside = b.op("less", places, self.spread(self.bound()))
        return b.op("where", inside, x, self.spread(b.const(self.draw(st.sampled_from(FILLERS)), "f32")))

    def reduced(self, x: Value) -> Value:
        """A reduction of the rows, spread over them again."""
        b, kind = self.b, self.draw(st.sampled_from(tuple(KINDS)))
        along = len(self.extents) - 1
        y = b.op("greater", x, self.spread(b.const(0.5, "f32"))) if KINDS[kind] == "bool" else x
        total = b.reduce(y, kind, (along,))
        total = b.cast(total, "f32")
        if self.height is None and self.chance(6):
            b.store_ptr(total, self.y, b.op("add", self.row, b.const(SIZE - 8)))
        return b.broadcast(total, list(range(along)), self.extents)

    def kernel(self) -> Kernel:
        b, draw = self.b, self.draw
        values = [self.mask(self.load()) if draw(st.booleans()) else self.load()]
        for _ in range(draw(st.integers(1, 6))):
            x = draw(st.sampled_from(values[-3:]))
            step = draw(st.integers(0, 5))
            if step == 0:
                values.append(self.mask(x))
            elif step == 1:
                values.append(b.op(draw(st.sampled_from(UNARY)), x))
            elif step == 2:
                values.append(b.op(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(values))))
            elif step == 3:
                values.append(b.op("subtract", x, b.broadcast(*self._maximum(x))))
            else:
                values.append(b.op(draw(st.sampled_from(BINARY)), x, self.reduced(x)))
        for x in values[-draw(st.integers(1, 2)) :]:
            start, strides, bounds = self.window()
            b.store_view(x, self.y, start, strides, bounds)
        return b.finish()

    def _maximum(self, x: Value) -> tuple[Value, list[int], tuple[int, ...]]:
        along = len(self.extents) - 1
        return self.b.reduce(x, "max", (along,)), list(range(along)), self.extents


@st.composite
def kernels(draw: Any) -> Kernel:
    return Rows(draw).kernel()


SIZES = st.one_of(st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 9]), st.integers(-3, 100))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(kernel=kernels(), n=SIZES, m=SIZES, rows=st.integers(0, 4), special=st.booleans(), ran=st.integers(0, 9))
def test_random_kernels_keep_what_they_store(kernel, n, m, rows, special, ran):
    verify(kernel)
    made = passes.run(kernel)
    after = named(made)
    verify(after)
    x = (np.arange(2 * SIZE * 3) % 7 - 3).astype("f4")
    if special:
        x[::5] = [(-np.inf, np.nan, np.inf)[k % 3] for k in range(len(x[::5]))]
    stored = []
    for k in (kernel, after, dce(cse(after))):
        y = np.full(4 * SIZE, 9, "f4")
        interpreter.run(k, [x, y, n, m, rows, 1, 1, 2])
        stored.append(y)
    if ran == 0 and after is not made:
        y = np.full(4 * SIZE, 9, "f4")
        Compiled(made)([x, y, n, m, rows, 1, 1, 2])
        stored.append(y)
    for y in stored[1:]:
        np.testing.assert_allclose(y, stored[0], rtol=2e-5)
