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
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((48, 256), (256, 40)))
    result = np.asarray(ba.tanh(ba.asarray(a) @ ba.asarray(b) * 0.1))
    wanted = np.tanh(a.astype(float) @ b.astype(float) * 0.1)
    np.testing.assert_allclose(result.astype(float), wanted, rtol=0.01, atol=0.005)
