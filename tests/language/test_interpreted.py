"""Launches under BLOCKARRAY_INTERPRET=1."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl
from blockarray.runtime.config import config


@pytest.fixture(autouse=True)
def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "interpret", True)


@ba.jit
def helper(x):
    return x * 2


@ba.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, helper(tl.load(x + at, mask=at < n)), mask=at < n)


def test_arrays_of_the_library():
    x, out = ba.arange(100, dtype="f") + 1, ba.zeros(100, dtype="f")
    view, pending = out[10:], out + 1
    double[lambda meta: (ba.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 100, BLOCK=32)
    want = 2 * np.arange(1, 101)
    np.testing.assert_array_equal(np.asarray(out), want)
    np.testing.assert_array_equal(np.asarray(view), want[10:])
    np.testing.assert_array_equal(np.asarray(pending), np.ones(100))


def test_numpy_arrays():
    x, out = np.arange(20, dtype="f"), np.zeros(20, "f")
    double[1,](x, out, 20, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)


@ba.jit
def scale(pair, desc, BLOCK: tl.constexpr):
    x, factor = pair
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * factor)
    desc.store([0, 0], desc.load([0, 0]) + 1)


def test_tuples_and_descriptors():
    x, table = ba.ones(16, dtype="f"), ba.zeros((8, 16), dtype="f")
    scale[1,]((x, 3), ba.TensorDescriptor.from_tensor(table, [4, 16]), BLOCK=16)
    assert float(x.sum()) == 48
    np.testing.assert_array_equal(np.asarray(table).sum(1), [16.0] * 4 + [0.0] * 4)


def test_accesses_are_checked():
    x, out = np.arange(20, dtype="f"), np.zeros(20, "f")
    with pytest.raises(IndexError):
        double[1,](x, out, 32, BLOCK=32)


def test_operands_of_operations_are_read():
    @ba.custom_op
    def doubled(x, *, out):
        double[1,](x, out, x.size, BLOCK=32)

    @ba.custom_op
    def wrong(x, *, out):
        double[1,](out, x, x.size, BLOCK=32)

    x = ba.arange(20, dtype="f") + 1
    np.testing.assert_array_equal(np.asarray(doubled(x) + 1), 2 * np.arange(1, 21) + 1)
    with pytest.raises(ValueError, match="read-only"):
        wrong(x).block_until_ready()
