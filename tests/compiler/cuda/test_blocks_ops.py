"""Every op of hand-written kernels, on random tiles, layouts and numbers of warps, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.cuda import block_kernels as kernels
from tests.compiler.cuda.test_blocks import compare

WARPS = st.sampled_from((1, 2, 4, 8))
#: Of a tile: bits of each extent.
SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(lambda bits: tuple(1 << b for b in bits))


def permuted(draw: Any, rank: int) -> list[int]:
    return draw(st.permutations(range(rank)))


FEW = settings(max_examples=12, deadline=None)


@FEW
@given(st.data(), SHAPES, WARPS)
def test_movements(data: st.DataObject, shape: tuple[int, ...], warps: int) -> None:
    draw = data.draw
    dim, split = draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, int(np.prod(shape)).bit_length() - 1))
    orders = [permuted(draw, len(shape)) for _ in range(2)]
    compare(kernels.movements(shape, permuted(draw, len(shape)), dim, 1 << split, warps, orders))


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i32", "f16", "f64", "u8")))
def test_reductions(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    compare(kernels.reductions(shape, dims, dtype, warps, permuted(data.draw, len(shape))))


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i64", "bf16")))
def test_scans(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    dim, reverse = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    compare(kernels.scans(shape, dim, reverse, dtype, warps, permuted(data.draw, len(shape))))


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("f32", "i32", "u8", "f64", "bool", "f16")))
def test_sorts(data: st.DataObject, shape: tuple[int, ...], warps: int, dtype: str) -> None:
    dim, descending = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    compare(kernels.sorts(shape, dim, descending, dtype, warps, permuted(data.draw, len(shape))))


@FEW
@given(st.data(), SHAPES, WARPS, st.sampled_from(("i32", "u8", "i64")))
def test_gathers_and_histograms(data: st.DataObject, shape: tuple[int, ...], warps: int, kind: str) -> None:
    draw = data.draw
    dim, bins, extent = draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, 8)), draw(st.integers(0, 5))
    orders = [permuted(draw, len(shape)) for _ in range(2)]
    compare(kernels.gathers(shape, dim, 1 << extent, 1 << bins, kind, warps, orders))


@FEW
@given(st.tuples(*[st.integers(0, 5)] * 3), WARPS, st.sampled_from(("f32", "f16", "i8", "f64")), st.booleans())
def test_products(bits: tuple[int, int, int], warps: int, dtype: str, batched: bool) -> None:
    m, k, n = (1 << b for b in bits)
    compare(kernels.products(m, k, n, dtype, batched, warps))


@pytest.mark.parametrize("name", kernels.OPS)
def test_ops(name: str) -> None:
    compare(kernels.OPS[name]())
