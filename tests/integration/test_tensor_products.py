"""Products of 16-bit types whose panels a GPU's copy engine brings."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray as ba
from blockarray.compiler import prepare


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("m", "n", "k"), [(256, 144, 96), (130, 141, 67)])
def test_products_of_any_pitch(monkeypatch, dtype, m, n, k):
    monkeypatch.setattr(prepare, "WIDE_PRODUCT", 32)
    rng = np.random.default_rng(m)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k), (n,)))
    x, y, z = (ba.astype(ba.asarray(v), getattr(ba, dtype)) for v in (a, b, c))
    ba.evaluate(x, y, z)
    wide = [np.asarray(ba.astype(v, ba.float64)) for v in (x, y, z)]
    result = np.asarray(ba.astype(x @ y.T + z, ba.float64))
    wanted = wide[0] @ wide[1].T + wide[2]
    np.testing.assert_allclose(result, wanted, rtol=0.02, atol=0.1)
    turned = np.asarray(ba.astype(x[::-1] @ y.T, ba.float64))
    np.testing.assert_allclose(turned, wide[0][::-1] @ wide[1].T, rtol=0.02, atol=0.1)


def test_products_in_parts_of_k(monkeypatch):
    monkeypatch.setattr(prepare, "LEAST_PART", 64)
    monkeypatch.setattr(prepare, "ADDING", -100)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((48, 256), (256, 40)))
    result = np.asarray(ba.tanh(ba.asarray(a) @ ba.asarray(b) * 0.1))
    wanted = np.tanh(a.astype(float) @ b.astype(float) * 0.1)
    np.testing.assert_allclose(result.astype(float), wanted, rtol=0.01, atol=0.005)


SIZES = (1, 15, 17, 63, 65, 127, 129)
#: Batches of the operands.
BATCHES = (((), ()), ((2,), (2,)), ((3,), ()), ((2, 1), (3,)))


def _operand(rng, batch, rows, columns, dtype, transposed, strided):
    """A stack of matrices, which may lie transposed or with a gap behind each, and its elements as float64."""
    shape = (*batch, columns, rows) if transposed else (*batch, rows, columns)
    if strided:
        shape = (*shape[:-2], shape[-2] + 1, shape[-1])
    x = ba.astype(ba.asarray(rng.standard_normal(shape, np.float32)), getattr(ba, dtype))
    ba.evaluate(x)
    values = np.asarray(ba.astype(x, ba.float64))
    if strided:
        x, values = x[..., :-1, :], values[..., :-1, :]
    return (ba.matrix_transpose(x), values.swapaxes(-1, -2)) if transposed else (x, values)


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", SIZES)
def test_products_of_any_size(m, n):
    rng = np.random.default_rng(m * 1000 + n)
    which = SIZES.index(m) * len(SIZES) + SIZES.index(n)
    k = SIZES[which * 3 % len(SIZES)]
    dtype = ("float16", "bfloat16")[which % 2]
    (first, second), transposed = BATCHES[which % 5 % 4], which // 2 % 4
    x, a = _operand(rng, first, m, k, dtype, transposed & 1, which % 3 == 0)
    y, b = _operand(rng, second, k, n, dtype, transposed & 2, which % 3 == 1)
    result = np.asarray(ba.astype(x @ y, ba.float64))
    np.testing.assert_allclose(result, a @ b, rtol=0.01, atol=0.01 * k**0.5)


FEW = [(16, 144, 2048), (7, 272, 1040), (272, 9, 1040), (112, 128, 4096), (1, 64, 512)]


@pytest.mark.parametrize(("m", "n", "k"), FEW)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_few_tiles(m, n, k, dtype):
    rng = np.random.default_rng(k)
    x, a = _operand(rng, (), m, k, dtype, m == 7, False)
    y, b = _operand(rng, (), k, n, dtype, n > 144, False)
    z, c = _operand(rng, (), 1, n, dtype, False, False)
    result = np.asarray(ba.astype(ba.maximum(x @ y + z, 0), ba.float64))
    np.testing.assert_allclose(result, np.maximum(a @ b + c, 0), rtol=0.02, atol=0.02 * k**0.5)


@pytest.mark.parametrize(("m", "n", "k", "transposed"), [(1, 144, 272, 0), (1, 130, 272, 0), (160, 1, 272, 1)])
def test_products_of_vectors_go_down_columns(monkeypatch, m, n, k, transposed):
    monkeypatch.setattr(prepare, "LEAST_COPIED", 1 << 12)
    rng = np.random.default_rng(n)
    x, a = _operand(rng, (), m, k, "bfloat16", transposed, False)
    y, b = _operand(rng, (), k, n, "bfloat16", False, False)
    result = np.asarray(ba.astype(ba.maximum(x @ y + 1, 0), ba.float64))
    np.testing.assert_allclose(result, np.maximum(a @ b + 1, 0), rtol=0.02, atol=0.3)
    if m == 1:
        np.testing.assert_allclose(np.asarray(ba.astype(x[0] @ y, ba.float64)), (a @ b)[0], rtol=0.02, atol=0.3)
