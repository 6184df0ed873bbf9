"""Attention written as array code: one kernel on the CPU, in every spelling, with NumPy's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support import ON_GPU, host, needs_lazy, xp

pytestmark = needs_lazy

F32 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
Attention = Callable[..., Any]


def softmax(xp: Any, s: Any) -> Any:
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def turned(xp: Any, k: Any) -> Any:
    return xp.swapaxes(k, -1, -2)


def scores(xp: Any, q: Any, k: Any) -> Any:
    return q @ turned(xp, k) * 0.25


def positions(xp: Any, q: Any, k: Any) -> tuple[Any, Any]:
    return xp.arange(q.shape[-2])[:, None], xp.arange(k.shape[-2])[None]


SPELLINGS: dict[str, Attention] = {}


def spelling(function: Attention) -> Attention:
    SPELLINGS[function.__name__] = function
    return function


@spelling
def plain(xp, q, k, v):
    return softmax(xp, scores(xp, q, k)) @ v


@spelling
def unscaled(xp, q, k, v):
    return softmax(xp, q @ turned(xp, k)) @ v


@spelling
def scaled_queries(xp, q, k, v):
    return softmax(xp, (q * 0.25) @ turned(xp, k)) @ v


@spelling
def scaled_keys(xp, q, k, v):
    return softmax(xp, q @ turned(xp, k / 4)) @ v


@spelling
def divided_scores(xp, q, k, v):
    return softmax(xp, q @ turned(xp, k) / np.sqrt(q.dtype.type(q.shape[-1]))) @ v


@spelling
def scaled_after_the_maximum(xp, q, k, v):
    s = q @ turned(xp, k)
    e = xp.exp((s - xp.max(s, axis=-1, keepdims=True)) * 0.25)
    return (e / xp.sum(e, axis=-1, keepdims=True)) @ v


@spelling
def late_division(xp, q, k, v):
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return (e @ v) / xp.sum(e, axis=-1, keepdims=True)


@spelling
def late_reciprocal(xp, q, k, v):
    s = scores(xp, q, k)
    e = xp.exp(s - s.max(-1)[..., None])
    return (1 / e.sum(-1))[..., None] * (e @ v)


@spelling
def without_the_maximum(xp, q, k, v):
    e = xp.exp(scores(xp, q, k))
    return (e / e.sum(-1, keepdims=True)) @ v


@spelling
def without_the_maximum_late(xp, q, k, v):
    e = xp.exp(scores(xp, q, k))
    return (e @ v) / e.sum(-1, keepdims=True)


@spelling
def log_sum_exp(xp, q, k, v):
    s = scores(xp, q, k)
    top = xp.max(s, axis=-1, keepdims=True)
    return xp.exp(s - (top + xp.log(xp.sum(xp.exp(s - top), axis=-1, keepdims=True)))) @ v


@spelling
def log_softmax(xp, q, k, v):
    s = scores(xp, q, k)
    s = s - xp.max(s, axis=-1, keepdims=True)
    return xp.exp(s - xp.log(xp.sum(xp.exp(s), axis=-1, keepdims=True))) @ v


@spelling
def einsum_both(xp, q, k, v):
    s = xp.einsum("...id,...jd->...ij", q, k) * 0.25
    return xp.einsum("...ij,...je->...ie", softmax(xp, s), v)


@spelling
def einsum_transposed_scores(xp, q, k, v):
    s = xp.einsum("...id,...jd->...ji", q, k) * 0.25
    e = xp.exp(s - xp.max(s, axis=-2, keepdims=True))
    return xp.einsum("...ji,...je->...ie", e / xp.sum(e, axis=-2, keepdims=True), v)


@spelling
def columns(xp, q, k, v):
    s = k @ turned(xp, q) * 0.25
    e = xp.exp(s - xp.max(s, axis=-2, keepdims=True))
    return turned(xp, turned(xp, v) @ (e / xp.sum(e, axis=-2, keepdims=True)))


@spelling
def causal(xp, q, k, v):
    i, j = positions(xp, q, k)
    return softmax(xp, xp.where(i >= j, scores(xp, q, k), -np.inf)) @ v


@spelling
def causal_at_the_end(xp, q, k, v):
    i, j = positions(xp, q, k)
    late = j > i + (k.shape[-2] - 1)
    return softmax(xp, xp.where(late, -np.inf, scores(xp, q, k))) @ v


@spelling
def causal_before_the_scale(xp, q, k, v):
    i, j = positions(xp, q, k)
    return softmax(xp, xp.where(j <= i, q @ turned(xp, k), -np.inf) * 0.25) @ v


@spelling
def causal_large_negative(xp, q, k, v):
    i, j = positions(xp, q, k)
    return softmax(xp, xp.where(j - i <= 0, scores(xp, q, k), -1e9)) @ v


@spelling
def causal_tril(xp, q, k, v):
    mask = xp.tril(xp.ones((q.shape[-2], k.shape[-2]), dtype=bool))
    return softmax(xp, xp.where(mask, scores(xp, q, k), -np.inf)) @ v


@spelling
def causal_not_tril(xp, q, k, v):
    mask = ~xp.tril(xp.ones((q.shape[-2], k.shape[-2]), dtype=bool))
    return softmax(xp, xp.where(mask, -np.inf, scores(xp, q, k))) @ v


@spelling
def causal_added(xp, q, k, v):
    mask = xp.triu(xp.full((q.shape[-2], k.shape[-2]), -np.inf, dtype=q.dtype), 1)
    return softmax(xp, scores(xp, q, k) + mask) @ v


@spelling
def causal_tril_of_ones(xp, q, k, v):
    ones = xp.tril(xp.ones((q.shape[-2], k.shape[-2]), dtype=q.dtype))
    return softmax(xp, scores(xp, q, k) + (ones - 1) * 3e4) @ v


@spelling
def window(xp, q, k, v):
    i, j = positions(xp, q, k)
    near = (j <= i) & (j > i - 20)
    return softmax(xp, xp.where(near, scores(xp, q, k), -np.inf)) @ v


@spelling
def window_of_two_masks(xp, q, k, v):
    i, j = positions(xp, q, k)
    s = xp.where(i >= j, scores(xp, q, k), -np.inf)
    return softmax(xp, xp.where(i - j < 70, s, -np.inf)) @ v


@spelling
def position_bias(xp, q, k, v):
    i, j = positions(xp, q, k)
    return softmax(xp, scores(xp, q, k) - xp.abs(i - j).astype(q.dtype) * 0.125) @ v


@spelling
def soft_cap(xp, q, k, v):
    return softmax(xp, xp.tanh(scores(xp, q, k) / 3) * 3) @ v


@spelling
def safe_maximum(xp, q, k, v):
    s = scores(xp, q, k)
    top = xp.max(s, axis=-1, keepdims=True)
    e = xp.exp(s - xp.where(xp.isfinite(top), top, 0))
    return (e @ v) / xp.sum(e, axis=-1, keepdims=True)


@spelling
def weighted_keys(xp, q, k, v):
    e = softmax(xp, scores(xp, q, k))
    return (e * xp.abs(k[..., 0])[..., None, :]) @ v


@spelling
def one_more_than_the_sum(xp, q, k, v):
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return (e / (1 + xp.sum(e, axis=-1, keepdims=True))) @ v


@spelling
def without_the_sum(xp, q, k, v):
    s = scores(xp, q, k)
    return xp.exp(s - xp.max(s, axis=-1, keepdims=True)) @ v


@spelling
def sum_of_chosen_weights(xp, q, k, v):
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True)) * (k[..., None, :, 0] > 0)
    return (e @ v) / (1 + xp.sum(e, axis=-1, keepdims=True))


@spelling
def residual(xp, q, k, v):
    return plain(xp, q, k, v) * 0.5 + v[..., :1, :]


@spelling
def in_float32(xp, q, k, v):
    s = scores(xp, q, k).astype(np.float32)
    return softmax(xp, s).astype(q.dtype) @ v


@spelling
def late_in_float32(xp, q, k, v):
    s = scores(xp, q, k).astype(np.float32)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return ((e.astype(v.dtype) @ v) / xp.sum(e, axis=-1, keepdims=True)).astype(q.dtype)


def tensors(batch: tuple[int, ...], n: int, m: int, d: int, e: int, dtype: Any = F32) -> list[np.ndarray]:
    rng = np.random.default_rng(n * m + d)
    return [rng.standard_normal((*batch, *shape)).astype(F32).astype(dtype) for shape in ((n, d), (m, d), (m, e))]


def check(function: Attention, *inputs: np.ndarray, kernels: int = 1) -> None:
    """One kernel, whose values are those of NumPy in float64."""
    arrays = [xp.asarray(a) for a in inputs]
    xp.evaluate(*arrays)
    got = function(xp, *arrays)
    plan = xp.explain(got)
    if not ON_GPU:
        assert len(plan.kernels) == kernels, str(plan)
    with np.errstate(all="ignore"):
        want = function(np, *[a.astype(np.float64) if a.dtype.kind in "fV" else a for a in inputs])
    dtype = inputs[0].dtype
    narrow = dtype in (BF16, np.float16)
    tolerance = {BF16: 3e-2, np.dtype(np.float16): 4e-3, np.dtype(F32): 3e-6}.get(dtype, 1e-13)
    finite = np.abs(want[np.isfinite(want)]).max(initial=1 if narrow else 1e-3)
    np.testing.assert_allclose(host(got).astype(np.float64), want, 0, tolerance * finite)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    check(SPELLINGS[name], *tensors((2, 3), 50, 50, 32, 32))


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_in_bfloat16(name: str) -> None:
    check(SPELLINGS[name], *tensors((2,), 70, 70, 16, 24, BF16))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", ["plain", "late_division", "log_sum_exp", "causal", "without_the_maximum"])
def test_spelling_of_other_types(name: str, dtype: Any) -> None:
    check(SPELLINGS[name], *tensors((2,), 70, 70, 16, 24, dtype))


@pytest.mark.parametrize("name", ["plain", "causal", "late_division", "window", "columns", "without_the_maximum"])
@pytest.mark.parametrize(
    ("batch", "n", "m", "d", "e"),
    [
        ((), 64, 64, 64, 64), ((), 1, 77, 32, 32), ((3,), 77, 1, 40, 40), ((2,), 1, 1, 8, 8), ((), 5, 3, 1, 1),
        ((2, 2), 129, 127, 80, 40), ((1,), 63, 200, 40, 96), ((), 200, 63, 256, 128), ((2,), 65, 64, 96, 80),
        ((), 300, 300, 128, 256), ((4, 1, 2), 33, 31, 33, 17),
    ],
)  # fmt: skip
def test_shapes(name: str, batch: tuple[int, ...], n: int, m: int, d: int, e: int) -> None:
    check(SPELLINGS[name], *tensors(batch, n, m, d, e))
