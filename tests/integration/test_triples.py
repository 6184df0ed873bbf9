"""Products of float32 that tensor cores make of parts of bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from blockarray import flush
from blockarray.compiler import policy, prepare
from tests.support import xp

pytestmark = pytest.mark.cpu_only


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from tests.fake_gpu import installed

    monkeypatch.setattr(policy, "TRIPLES_WORK", 1)
    monkeypatch.setattr(prepare, "TRIPLES_SIDE", 16)
    with installed(emulate=True):
        yield


def on_gpu(a: np.ndarray):
    x = xp.asarray(a, device="cuda:0")
    xp.evaluate(x)
    return x


def floats(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (130, 80, 70), (33, 17, 200)])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products(m, n, k, turned):
    r = np.random.default_rng(m)
    a, b = floats(r, k, m).T if "a" in turned else floats(r, m, k), floats(r, k, n)
    b = floats(r, n, k).T if "b" in turned else b
    x = on_gpu(a.T).T if "a" in turned else on_gpu(a)
    y = on_gpu(b.T).T if "b" in turned else on_gpu(b)
    product = x @ y
    assert [k.name for k in xp.explain(product).kernels] == ["triples", "triples", "dot"]
    wide = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(np.asarray(product) - wide) <= 3e-7 * scale).all()


def extremes(r: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 of any exponent, among them the smallest and the largest ones."""
    bits = r.integers(0, 1 << 32, shape, np.uint32)
    x = bits.view(np.float32).copy()
    x[~np.isfinite(x)] = np.finfo(np.float32).max
    flat = x.reshape(-1)
    edges = [0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x00800000, 0x007FFFFF, 1, 0x80000001, 0x3F7FFFFF, 0x80000000, 0]
    flat[: len(edges)] = np.array(edges, np.uint32).view(np.float32)
    return x


def split(x: np.ndarray) -> list[np.ndarray]:
    """What the kernel does, in NumPy."""
    parts = []
    with np.errstate(all="ignore"):
        x = x * np.float32(2.0**16)
        for _ in range(3):
            part = x.astype(ml_dtypes.bfloat16)
            parts.append(part)
            x = (x - part.astype(np.float32)) * np.float32(256)
    return parts


def test_parts_add_up_exactly():
    x = np.concatenate([extremes(np.random.default_rng(0), 1 << 20), np.array([np.inf, -np.inf, np.nan], np.float32)])
    high, middle, low = (p.astype(np.float32) for p in split(x))
    with np.errstate(all="ignore"):
        total = (high + (middle + low / 256) / 256) / np.float32(2.0**16)
    small = np.abs(x) < 2.0**111
    np.testing.assert_array_equal(total[small], x[small])
    assert not np.isfinite(total[~(np.abs(x) <= 2.0**112)]).any()
    # The largest parts have all the digits of what they are the largest parts of, or eight.
    error = np.abs(high[small].astype(np.float64) - x[small].astype(np.float64) * 2.0**16)
    assert (error <= np.abs(x[small].astype(np.float64)) * 2.0**8).all()


def test_kernel_that_splits():
    """A product by the identity gives the other operand, whatever it is."""
    a = extremes(np.random.default_rng(1), 128, 128)
    one = np.eye(128, dtype=np.float32)
    # One product's parts of the largest floats may add up to infinity: the ordinary arithmetic has them.
    np.testing.assert_array_equal(np.asarray(on_gpu(a) @ on_gpu(one)), a + 0)
    np.testing.assert_array_equal(np.asarray(on_gpu(one) @ on_gpu(a)), a + 0)


@pytest.mark.parametrize("shape", [(128, 128, 64), (150, 70, 80)])
def test_what_is_not_finite(shape):
    m, n, k = shape
    r = np.random.default_rng(2)
    a, b = floats(r, m, k), floats(r, k, n)
    a[3, 5], a[70, 2], a[71, 2], a[100, 9], a[127, 0] = np.inf, -np.inf, np.nan, np.inf, 3e38
    a[100, 11], b[0, 1], b[9, 6], b[5, 7], a[9, :2], b[:2, 9] = -np.inf, 3.0, 0.0, 1e-40, (3e38, -3e38), (1e38, 1e38)
    with np.errstate(all="ignore"):
        want = np.zeros((m, n), np.float32)
        for j in range(k):
            want = (want.astype(np.float64) + a[:, j, None].astype(np.float64) * b[j]).astype(np.float32)
    got = np.asarray(on_gpu(a) @ on_gpu(b))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    np.testing.assert_array_equal(np.sign(got[np.isinf(got)]), np.sign(want[np.isinf(want)]))
    fine = np.isfinite(want)
    with np.errstate(all="ignore"):
        scale = (np.abs(a).astype(np.float64) @ np.abs(b))[fine]
    assert (np.abs(got[fine].astype(np.float64) - want[fine]) <= 1e-6 * scale).all()


def test_prologues_and_epilogues():
    r = np.random.default_rng(3)
    a, b, c = floats(r, 130, 70), floats(r, 70, 96), floats(r, 96)
    product = xp.tanh(xp.exp(on_gpu(a)) @ on_gpu(b) * 0.1 + on_gpu(c))
    found = xp.explain(product).kernels
    assert [k.name for k in found][:1] != ["dot"] and len(found) == 3
    assert any("precision" in cut for cut in found[-1].cuts)
    want = np.tanh(np.exp(a.astype(np.float64)) @ b * 0.1 + c)
    np.testing.assert_allclose(np.asarray(product), want, 1e-5, 1e-5)


def test_batches():
    r = np.random.default_rng(4)
    a, b = floats(r, 3, 1, 50, 40), floats(r, 2, 40, 33)
    np.testing.assert_allclose(np.asarray(on_gpu(a) @ on_gpu(b)), a @ b, 1e-5, 1e-4)
    c = floats(r, 64, 48)
    y = on_gpu(c)
    np.testing.assert_allclose(np.asarray(y @ y.T), c @ c.T, 1e-5, 1e-4)
    np.testing.assert_allclose(np.asarray(y[::-1, ::2].T @ y[::-1, 1::2]), c[::-1, ::2].T @ c[::-1, 1::2], 1e-5, 1e-4)


@pytest.mark.parametrize("turned", ["", "ab"])
def test_parts_of_k(monkeypatch, turned):
    monkeypatch.setattr(prepare._Preparation, "_parts", lambda *args: 4)
    r = np.random.default_rng(6)
    a, b = floats(r, 48, 256), floats(r, 256, 40)
    x, y = (on_gpu(a.T.copy()).T, on_gpu(b.T.copy()).T) if turned else (on_gpu(a), on_gpu(b))
    product = xp.tanh(x @ y * 0.1)
    assert [k.name for k in xp.explain(product).kernels][:-1] == ["triples", "triples", "dot"]
    np.testing.assert_allclose(np.asarray(product), np.tanh(a.astype(np.float64) @ b * 0.1), 1e-5, 1e-5)


def test_precision_is_that_of_the_recording():
    r = np.random.default_rng(5)
    a, b = floats(r, 64, 48), floats(r, 48, 40)
    x, y = on_gpu(a), on_gpu(b)
    assert xp.get_matmul_precision() == "highest"
    with xp.matmul_precision("ieee"):
        exact = x @ y
        with xp.matmul_precision("highest"):
            assert xp.get_matmul_precision() == "highest"
    parts = x @ y
    assert [k.name for k in xp.explain(exact).kernels] == ["dot"]
    assert xp.explain(exact).kernels[0].ops == ["dot (ieee)"]
    assert len(xp.explain(parts).kernels) == 3
    both = np.asarray(exact + parts)
    np.testing.assert_allclose(both, 2 * (a @ b), 1e-5, 1e-5)
    with pytest.raises(ValueError, match="highest, high, ieee"):
        xp.set_matmul_precision("double")
    xp.set_matmul_precision("ieee")
    try:
        assert xp.get_matmul_precision() == "ieee" and len(xp.explain(x @ y).kernels) == 1
    finally:
        xp.set_matmul_precision("highest")


def test_a_matrix_that_is_brought_and_sums_that_are_not_finite():
    r = np.random.default_rng(7)
    a, b, c = floats(r, 192, 64), floats(r, 64, 128), floats(r, 192, 128).astype(ml_dtypes.bfloat16)
    a[5, 3], a[150, 2], b[9, 100] = np.nan, np.inf, -np.inf
    z = on_gpu(c)
    with np.errstate(all="ignore"):
        want = (a @ b + c.astype(np.float32)).astype(ml_dtypes.bfloat16)
    got = xp.astype(on_gpu(a) @ on_gpu(b) + xp.astype(z, xp.float32), xp.bfloat16)
    np.testing.assert_allclose(np.asarray(xp.astype(got, xp.float32)), want.astype(np.float32), 0.01, 0.1)


@pytest.mark.parametrize("turned", ["", "a", "ab"])
def test_short_mantissas(turned):
    r = np.random.default_rng(8)
    a, b, c = floats(r, 140, 80), floats(r, 80, 96), floats(r, 96)
    x = on_gpu(a.T.copy()).T if "a" in turned else on_gpu(a)
    y = on_gpu(b.T.copy()).T if "b" in turned else on_gpu(b)
    with xp.matmul_precision("high"):
        product = x @ y + on_gpu(c)
    *copies, last = xp.explain(product).kernels
    assert last.ops == ["dot (high)", "add"] and len(copies) == 2
    found = np.asarray(product).astype(np.float64) - c

    def short(x):
        bits = x.view(np.uint32)
        even = bits >> 13 & 1
        return ((bits + 0xFFF + even) & 0xFFFFE000).view(np.float32).astype(np.float64)

    np.testing.assert_allclose(found, short(a) @ short(b), 1e-5, 1e-5)


def test_an_operand_is_split_once():
    a = floats(np.random.default_rng(9), 64, 64)
    x = on_gpu(a)
    for product, want in ((x @ x, a @ a), (x @ x.T, a @ a.T), (xp.exp(x) @ xp.exp(x), np.exp(a) @ np.exp(a))):
        assert xp.explain(product).kernels[-1].ops[-1] == "dot"
        assert "triples" in xp.explain(product).kernels[0].name
        np.testing.assert_allclose(np.asarray(product), want, 1e-5, 1e-5)
    both = xp.explain(x @ x, x @ x.T)
    assert [k.name for k in both.kernels].count("triples") == 2


def test_memory_is_left_for_others(monkeypatch):
    x = on_gpu(floats(np.random.default_rng(9), 64, 64))
    assert len(xp.explain(x @ x).kernels) == 2
    monkeypatch.setattr(flush.config, "device_memory_limit", 4 * 64 * 128 * 6 - 4)
    flush.policy.cache_clear()
    assert [k.name for k in xp.explain(x @ x).kernels] == ["dot"]
