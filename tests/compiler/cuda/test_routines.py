"""The routines, run by an interpreter of PTX."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from blockarray.compiler import cuda, dtypes
from blockarray.compiler.cuda.ptx import emit
from blockarray.compiler.cuda.routines import sort as sorting
from blockarray.compiler.cuda.routines.compact import Selection, compact
from blockarray.compiler.cuda.routines.search import searchsorted
from blockarray.compiler.cuda.routines.sort import Tuning, sort
from tests.compiler.cuda.ptx_machine import Memory, launch, run

TARGET = cuda.make_target((9, 0))
REAL = [name for name in dtypes.NUMPY if name not in dtypes.COMPLEX]
SMALL = Tuning(256, 3)


@cache
def code(text: str) -> str:
    return emit(text, TARGET)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def sample(rng: Any, dtype: str, n: int) -> np.ndarray:
    t = dtypes.NUMPY[dtype]
    if dtype in dtypes.FLOAT:
        x = (rng.standard_normal(n) * 100).astype(t)
        for start, v in enumerate((0.0, -0.0, np.nan, np.inf, -np.inf, -np.nan, 1e-45, -1e-45)):
            x[start::19] = v
        return x
    x = np.frombuffer(rng.bytes(n * t.itemsize), np.uint8).copy()
    return (x & 1).view(t) if dtype == "bool" else x.view(t)


def stable_order(x: np.ndarray, descending: bool) -> np.ndarray:
    if dtypes.name(x.dtype) in dtypes.NARROW:  # NaNs have no order among the floats of ml_dtypes
        x = x.astype(np.float32)
    if descending:
        return x.shape[1] - 1 - np.flip(np.argsort(np.flip(x, 1), 1, kind="stable"), 1)
    return np.argsort(x, 1, kind="stable")


def check(
    x: np.ndarray, *, descending: bool = False, keys: bool = True, positions: str | None = "i64",
    sizes: Tuning | None = SMALL, **options: Any,
) -> None:  # fmt: skip
    rows, n = x.shape
    dtype = dtypes.name(x.dtype)
    routine = sort(
        dtype, n, rows, descending=descending, with_keys=keys, positions=positions, processors=1, sizes=sizes
    )
    memory = Memory(1 << 22)
    operands = {"x": memory.put(x, x.itemsize)}
    if keys:
        operands["keys"] = memory.allocate(x.nbytes, x.itemsize)
    if positions:
        operands["positions"] = memory.allocate(x.size * dtypes.SIZE[positions], dtypes.SIZE[positions])
    run(routine, code, memory, operands, **options)
    order = stable_order(x, descending)
    if positions:
        np.testing.assert_array_equal(memory.get(operands["positions"], dtypes.NUMPY[positions], x.shape), order)
    if keys:
        assert memory.get(operands["keys"], x.dtype, x.shape).tobytes() == np.take_along_axis(x, order, 1).tobytes()


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("descending", [False, True])
def test_short_rows_of_every_type(rng, dtype, descending):
    check(sample(rng, dtype, 3 * 40).reshape(3, 40), descending=descending)
    check(sample(rng, dtype, 2 * 300).reshape(2, 300), descending=descending)


@pytest.mark.parametrize("dtype", ["bool", "i16", "bf16", "f32", "f64"])
def test_long_rows(rng, dtype, monkeypatch):
    monkeypatch.setattr(sorting, "SHORT", 256)
    check(sample(rng, dtype, 2 * 1700).reshape(2, 1700), descending=dtype in ("f32", "i16"))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 9, 31, 32, 33, 65, 129, 256, 257, 513, 768, 769])
def test_sizes(rng, n, monkeypatch):
    monkeypatch.setattr(sorting, "SHORT", 512)
    check(sample(rng, "f32", 3 * n).reshape(3, n), positions="i32")


def test_keys_or_positions_alone(rng, monkeypatch):
    x = sample(rng, "i32", 1000).reshape(1, 1000)
    for short in (4096, 256):
        monkeypatch.setattr(sorting, "SHORT", short)
        check(x, positions=None)
        check(x, keys=False)
        check(x[:, :200], keys=False)


@pytest.mark.parametrize("values", [np.zeros(2000), np.arange(2000.0), np.arange(2000.0)[::-1], np.arange(2000.0) % 3])
def test_hostile_keys(values, monkeypatch):
    monkeypatch.setattr(sorting, "SHORT", 256)
    check(values.astype(np.float32)[None])


def test_counts_of_64_bits(rng, monkeypatch):
    monkeypatch.setattr(sorting, "SHORT", 256)
    monkeypatch.setattr(sorting, "WIDE", 1)
    check(sample(rng, "u16", 2 * 2000).reshape(2, 2000), positions="i64")


@pytest.mark.parametrize("seed", range(2))
def test_warps_and_programs_in_any_order(rng, seed, monkeypatch):
    monkeypatch.setattr(sorting, "SHORT", 512)
    x = sample(rng, "i16", 1800).reshape(1, 1800)
    check(x, by_warp=True, resident=3, seed=seed, positions=None)
    check(x[:, :400].copy(), by_warp=True, seed=seed)


def test_the_default_sizes_fit():
    for dtype, positions in (("f32", None), ("f32", "i64"), ("f64", "i64"), ("u8", None)):
        for n in (100, 4096, 1 << 20, 1 << 31):
            for step in sort(dtype, n, positions=positions).launches:
                assert step.code.shared <= TARGET.shared // 2
                assert step.programs < 1 << 31


def test_equal_options_share_code():
    a, b = (sort("f32", n, positions="i64") for n in (10_000, 1_000_000))
    assert {step.code.text for step in a.launches} == {step.code.text for step in b.launches}


@pytest.mark.parametrize("n", [0, 1, 31, 4096, 4097, 30_000])
@pytest.mark.parametrize("selection", [
    Selection("bool", value=4, positions="i64"), Selection("f32", value=16), Selection("i64", positions="i32"),
    Selection("f32", "distinct", value=1, positions="i64"), Selection("f64", "distinct", False, positions="i64"),
    Selection("u8", "distinct", value=8),
])  # fmt: skip
def test_compact(rng, selection, n):
    t = dtypes.NUMPY[selection.dtype]
    if selection.condition == "distinct":
        x = np.sort(rng.integers(0, 200, n)).astype(t)
        if selection.dtype in dtypes.FLOAT:
            x[n - n // 8 :] = np.nan
        chosen = np.ones(n, bool)
        chosen[1:] = x[1:] != x[:-1]
        if selection.equal_nan:
            chosen[1:] &= ~((x[1:] != x[1:]) & (x[:-1] != x[:-1]))
    else:
        x = rng.choice(np.array([0, 0, 1, -1, -0.0, np.nan] if t.kind == "f" else [0, 1]), n).astype(t)
        chosen = x != 0
    values = rng.integers(0, 256, (n, selection.value), dtype=np.uint8)
    memory = Memory(1 << 22)
    operands = {"x": memory.put(x, x.itemsize), "count": memory.allocate(8)}
    operands["values"] = memory.put(values, selection.value)
    operands["selected"] = memory.allocate(values.nbytes, selection.value)
    size = dtypes.SIZE[selection.positions] if selection.positions else 0
    operands["positions"] = memory.allocate(n * size)
    run(compact(selection, n), code, memory, operands)
    where = np.flatnonzero(chosen)
    assert memory.get(operands["count"], np.int64, 1)[0] == len(where)
    if selection.value:
        np.testing.assert_array_equal(
            memory.get(operands["selected"], np.uint8, (len(where), selection.value)), values[where]
        )
    if selection.positions:
        found = memory.get(operands["positions"], dtypes.NUMPY[selection.positions], len(where))
        np.testing.assert_array_equal(found, where)


def test_compact_looks_back_over_many_tiles(rng):
    x = rng.random(150_000) < 0.3
    memory = Memory(1 << 22)
    operands = {"x": memory.put(x), "count": memory.allocate(8), "positions": memory.allocate(x.size * 4)}
    run(compact(Selection("bool", positions="i32"), x.size), code, memory, operands, resident=40)
    np.testing.assert_array_equal(memory.get(operands["positions"], np.int32, x.sum()), np.flatnonzero(x))


@pytest.mark.parametrize("dtype", ["bool", "i8", "u64", "f16", "f32", "f64"])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("sorter", [False, True])
def test_searchsorted(rng, dtype, right, sorter):
    for n, m in ((0, 3), (1, 5), (700, 600)):
        a, v = sample(rng, dtype, n), sample(rng, dtype, m)
        v[: min(n, m) // 2] = a[: min(n, m) // 2]
        order = np.argsort(a, kind="stable")
        memory = Memory(1 << 20)
        operands = {
            "a": memory.put(a if sorter else a[order]), "sorter": memory.put(order), "v": memory.put(v),
            "positions": memory.allocate(m * 8),
        }  # fmt: skip
        run(searchsorted(dtype, n, m, right=right, sorter=sorter), code, memory, operands)
        want = np.searchsorted(a, v, "right" if right else "left", sorter=order)
        np.testing.assert_array_equal(memory.get(operands["positions"], np.int64, m), want)


def test_the_interpreter_finds_a_missing_barrier(rng):
    x = sample(rng, "i16", 400)
    (step,) = sort("i16", 400).launches
    memory = Memory(1 << 20)
    x_at, y_at = memory.put(x), memory.allocate(x.nbytes)
    faulty = code(step.code.text).replace("bar.sync", "bar.warp.sync")
    try:
        launch(faulty, memory, [x_at, y_at, 400], 1, step.code.shared, by_warp=True)
    except AssertionError:
        return
    assert memory.get(y_at, np.int16, 400).tobytes() != np.sort(x).tobytes()


def test_the_interpreter_finds_accesses_out_of_bounds(rng):
    x = sample(rng, "i16", 400)
    (step,) = sort("i16", 400).launches
    memory = Memory(1 << 20)
    with pytest.raises(AssertionError, match="not allocated"):
        arguments = [memory.put(x), memory.allocate(x.nbytes - 2), 400]
        launch(code(step.code.text), memory, arguments, 1, step.code.shared)


@pytest.mark.parametrize("operand", ["x", "values", "selected", "positions", "count", "workspace"])
def test_the_interpreter_finds_misaligned_accesses(operand):
    routine = compact(Selection("i32", value=8, positions="i64"), 300)
    memory = Memory(1 << 20)
    sizes = {"x": 1200, "values": 2400, "selected": 2400, "positions": 2400, "count": 8, "workspace": routine.workspace}
    places = {name: memory.put(np.ones(n + 8, np.uint8)) + 2 * (name == operand) for name, n in sizes.items()}
    (step,) = routine.launches
    start = places["workspace"] - memory.base
    memory.bytes[start : start + routine.zeroed] = 0
    arguments = [a if isinstance(a, int) else places[a.operand] + a.offset for a in step.arguments]
    with pytest.raises(AssertionError, match="misaligned"):
        launch(code(step.code.text), memory, arguments, step.programs, step.code.shared)
