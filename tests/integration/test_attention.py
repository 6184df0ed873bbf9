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
#: Whether there is a schedule for attention in 16-bit floats, and the spellings below that it is not for: weights that
#: are changed, no sum of them.
ON_HOPPER = ON_GPU and xp.get_default_device().capability == (9, 0)
NOT_ON_GPUS = ("weighted_keys", "sum_of_chosen_weights", "without_the_sum")


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


def check(function: Attention, *inputs: np.ndarray) -> None:
    """One kernel, whose values are those of NumPy in float64."""
    arrays = [xp.asarray(a) for a in inputs]
    xp.evaluate(*arrays)
    got = function(xp, *arrays)
    plan = xp.explain(got)
    narrow = inputs[0].dtype in (BF16, np.float16)
    if not ON_GPU:
        assert len(plan.kernels) == 1, str(plan)
    elif ON_HOPPER and narrow and function.__name__ not in NOT_ON_GPUS:
        # Operands may have been copied to where rows are aligned.
        assert sum("dot" in k.ops for k in plan.kernels) == 1, str(plan)
    with np.errstate(all="ignore"):
        want = function(np, *[a.astype(np.float64) if a.dtype.kind in "fV" else a for a in inputs])
    dtype = inputs[0].dtype
    tolerance = {BF16: 3e-2, np.dtype(np.float16): 4e-3, np.dtype(F32): 3e-6}.get(dtype, 1e-13)
    finite = np.abs(want[np.isfinite(want)]).max(initial=1 if narrow else 1e-3)
    np.testing.assert_allclose(host(got).astype(np.float64), want, 0, tolerance * finite)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    check(SPELLINGS[name], *tensors((2, 3), 50, 50, 32, 32))


#: In which all spellings are emulated, but these.
SOME = ("plain", "late_division", "log_sum_exp", "causal", "without_the_maximum")


@pytest.mark.parametrize("name", SPELLINGS if ON_GPU else [*SOME, "window", "residual", *NOT_ON_GPUS])
def test_spelling_in_bfloat16(name: str) -> None:
    check(SPELLINGS[name], *tensors((2,), 70, 70, 16, 24, BF16))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", SOME)
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


# -- what the arrays may be like --------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("way", ["reshaped", "axis", "repeat"])
def test_grouped_heads(way: str, group: int) -> None:
    def attention(xp, q, k, v):
        b, h, n, d = q.shape
        if way == "axis":
            q = xp.reshape(q, (b, h // group, group, n, d))
            return xp.reshape(causal(xp, q, k[:, :, None], v[:, :, None]), (b, h, n, v.shape[-1]))
        if way == "repeat":
            spread = lambda x: xp.repeat(x, group, axis=1)
        else:
            spread = lambda x: xp.reshape(
                xp.broadcast_to(x[:, :, None], (b, h // group, group, *x.shape[2:])), (b, h, *x.shape[2:])
            )
        return causal(xp, q, spread(k), spread(v))

    q, _, _ = tensors((2, 6), 65, 70, 32, 40)
    _, k, v = tensors((2, 6 // group), 65, 70, 32, 40)
    check(attention, q, k, v)


def heads_inside(xp: Any, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (xp.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    return xp.transpose(plain(xp, q, k, v), (0, 2, 1, 3))


def heads_inside_einsum(xp: Any, q: Any, k: Any, v: Any) -> Any:
    s = xp.einsum("bnhd,bmhd->bhnm", q, k) * 0.25
    return xp.einsum("bhnm,bmhe->bnhe", softmax(xp, s), v)


def heads_inside_joined(xp: Any, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (xp.moveaxis(x, 2, 1) for x in (q, k, v))
    o = xp.moveaxis(causal(xp, q, k, v), 1, 2)
    return xp.reshape(o, (*o.shape[:2], -1))


@pytest.mark.parametrize("function", [heads_inside, heads_inside_einsum, heads_inside_joined])
def test_layouts(function: Attention) -> None:
    rng = np.random.default_rng(0)
    check(function, *[rng.standard_normal((2, n, 3, d)).astype(F32) for n, d in ((70, 24), (90, 24), (90, 40))])


@pytest.mark.parametrize("shape", [(70, 90), (1, 90), (70, 1), (3, 1, 90), (2, 3, 70, 90), (2, 1, 1, 90), ()])
def test_masks_of_any_shape(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    bias = rng.standard_normal(shape).astype(F32)
    q, k, v = tensors((2, 3), 70, 90, 24, 32)
    check(lambda xp, q, k, v, b: softmax(xp, scores(xp, q, k) + b) @ v, q, k, v, bias)
    check(lambda xp, q, k, v, b: softmax(xp, xp.where(b > 0, scores(xp, q, k), -1e30)) @ v, q, k, v, bias)


def test_windows_of_memory() -> None:
    q, k, v = tensors((4,), 140, 180, 48, 64)
    check(lambda xp, q, k, v: plain(xp, q[1:3, ::-2, 3:35], k[:2, 7:, 32:0:-1], v[1:3, :-7, 1::2]), q, k, v)


def test_one_array_three_times() -> None:
    x = tensors((2,), 100, 1, 32, 1)[0]
    check(lambda xp, x: causal(xp, x, x, x), x)


def test_computed_operands() -> None:
    x, w, _ = tensors((), 96, 32, 32, 1)

    def attention(xp, x, w):
        q, k, v = x @ w, x @ (w + 1), xp.tanh(x @ w)
        return plain(xp, q, k, v) + x

    arrays = [xp.asarray(a) for a in (x, w)]
    got = attention(xp, *arrays)
    np.testing.assert_allclose(host(got), attention(np, x.astype(float), w.astype(float)), 0, 1e-4)


def test_written_in_place() -> None:
    q, k, v = tensors((2,), 100, 100, 32, 32)
    a = [xp.asarray(x) for x in (q, k, v)]
    out = xp.zeros((4, 100, 32), dtype=F32)
    xp.evaluate(out, *a)
    out[1:3] = causal(xp, *a)
    want = np.zeros((4, 100, 32))
    want[1:3] = causal(np, q.astype(float), k.astype(float), v.astype(float))
    np.testing.assert_allclose(host(out), want, 0, 1e-5)


# -- numbers ----------------------------------------------------------------------------------------------------------
def same_as_numpy(function: Attention, *inputs: np.ndarray) -> None:
    """Finite where NumPy's values are, and NaN where they are."""
    got = host(function(xp, *[xp.asarray(a) for a in inputs]))
    with np.errstate(all="ignore"):
        want = function(np, *inputs)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["plain", "late_division", "log_sum_exp", "without_the_maximum", "without_the_sum"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40])
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_special_values(name: str, value: float, place: str) -> None:
    q, k, v = tensors((), 70, 150, 16, 16)
    {"q": q, "k": k, "v": v}[place][40, 3] = value
    same_as_numpy(SPELLINGS[name], q, k, v)


@pytest.mark.parametrize("name", ["plain", "without_the_maximum", "log_softmax", "safe_maximum"])
@pytest.mark.parametrize("scale", [1e-20, 30.0, 1e3, 1e18])
def test_large_scores(name: str, scale: float) -> None:
    q, k, v = tensors((), 70, 150, 16, 16)
    q = q * F32(scale)
    with np.errstate(all="ignore"):
        want = SPELLINGS[name](np, q, k, v)
    got = host(SPELLINGS[name](xp, *map(xp.asarray, (q, k, v))))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    exact = np.where(np.isnan(want), 0, got - want)
    assert np.abs(exact).max() < 1e-3


def huge_scores(size: float, factor: float) -> list[np.ndarray]:
    """Queries and keys whose scores, times a factor, are up to a size: equal, or far from each other."""
    rng = np.random.default_rng(0)
    q, k, v = tensors((1,), 70, 300, 32, 32)
    q[..., 2:], k[..., 1] = 0, 1
    q[..., 0] = (size / factor) ** 0.5 * rng.choice([-1, 0.5, 1], (1, 70))
    k[..., 0] = (size / factor) ** 0.5 * rng.standard_normal((1, 300)).clip(-1, 1)
    return [x.astype(BF16) for x in (q, k, v)]


def padded_on_the_left(factor: float, known: bool) -> Attention:
    """Some rows see no key of the first blocks; `known`: only the quotient of the sums is asked for."""

    def attention(xp, q, k, v):
        wide = np.float64 if q.dtype == np.float64 else np.float32
        s = (q @ xp.swapaxes(k, -1, -2)).astype(wide) * wide(factor)
        seen = xp.arange(k.shape[-2])[None, :] >= xp.arange(q.shape[-2])[:, None] % 4 * 60
        s = xp.where(seen, s, np.finfo(np.float32).min.astype(wide))
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        total = xp.sum(e, axis=-1, keepdims=True)
        return (e / total if known else e / (1 + total)).astype(q.dtype) @ v

    return attention


#: Sizes of scores, and what products are multiplied by to be them.
HUGE = [(1e8, 0.3), (1e10, 2.0), (1e31, 0.3), (3.3e38, 1.0), (4e37, 0.125)]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("size", "factor"), HUGE)
def test_huge_scores(size: float, factor: float, known: bool) -> None:
    function, inputs = padded_on_the_left(factor, known), huge_scores(size, factor)
    got = host(function(xp, *map(xp.asarray, inputs)))
    want = function(np, *[x.astype(float) for x in inputs])
    np.testing.assert_allclose(got, want, 0, 3e-2 * np.abs(want).max())


@pytest.mark.parametrize("name", ["where", "added", "late", "kept"])
def test_rows_without_keys(name: str) -> None:
    def attention(xp, q, k, v):
        i, j = positions(xp, q, k)
        s = scores(xp, q, k)
        if name == "added":
            s = s + xp.where(j <= i - 70, 0.0, -np.inf).astype(q.dtype)
        else:
            s = xp.where(j <= i - 70, s, -np.inf)
        top = xp.max(s, axis=-1, keepdims=True)
        if name == "kept":
            top = xp.where(xp.isfinite(top), top, 0)
        e = xp.exp(s - top)
        total = xp.sum(e, axis=-1, keepdims=True)
        if name == "kept":
            return (e @ v) / xp.where(total == 0, 1, total)
        return (e @ v) / total if name == "late" else (e / total) @ v

    q, k, v = tensors((), 150, 150, 16, 16)
    same_as_numpy(attention, q, k, v)
    plan = xp.explain(attention(xp, *map(xp.asarray, (q, k, v))))
    assert ON_GPU or len(plan.kernels) == 1, str(plan)


def test_repeatable() -> None:
    a = [xp.asarray(x) for x in tensors((3,), 200, 300, 64, 64)]
    first = host(causal(xp, *a))
    for _ in range(3):
        np.testing.assert_array_equal(first, host(causal(xp, *a)))


# -- what is not one kernel -------------------------------------------------------------------------------------------
def check_apart(function: Attention, why: str, *inputs: np.ndarray) -> None:
    """More than one kernel, which says why, and NumPy's values."""
    results = function(xp, *[xp.asarray(a) for a in inputs])
    plan = xp.explain(*results)
    assert ON_GPU or (len(plan.kernels) > 1 and why in str(plan)), str(plan)
    for got, want in zip(results, function(np, *[a.astype(float) for a in inputs]), strict=True):
        np.testing.assert_allclose(host(got), want, 1e-4, 1e-4)


def with_weights(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    p = softmax(xp, scores(xp, q, k))
    return [p @ v, p]


def with_scores(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    return [softmax(xp, s) @ v, s]


def with_sums(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    top = xp.max(s, axis=-1, keepdims=True)
    total = xp.sum(xp.exp(s - top), axis=-1, keepdims=True)
    return [(xp.exp(s - top) / total) @ v, top + xp.log(total)]


def weights_reduced(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    p = softmax(xp, scores(xp, q, k))
    return [p @ v, p.sum(0)]


@pytest.mark.parametrize("function", [with_weights, with_scores, with_sums, weights_reduced])
def test_what_is_asked_for_is_computed_apart(function: Attention) -> None:
    check_apart(function, "not one walk with the product behind it", *tensors((), 100, 120, 32, 32))


def by_columns(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-2, keepdims=True))
    return [(e / xp.sum(e, axis=-2, keepdims=True)) @ v]


def squared(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return [((e / xp.sum(e, axis=-1, keepdims=True)) ** 2) @ v]


def centred(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    return [(s - xp.mean(s, axis=-1, keepdims=True)) @ v]


def of_other_scores(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return [(e / xp.sum(xp.exp(s), axis=-1, keepdims=True)) @ v]


def twice(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    return [softmax(xp, softmax(xp, scores(xp, q, k))) @ v]


def by_itself(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    p = softmax(xp, scores(xp, q, k))
    return [p @ turned(xp, p)]


def of_values_made_of_scores(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    return [softmax(xp, s) @ (v * xp.sum(s, axis=0)[:, None])]


def of_differences(xp: Any, q: Any, k: Any, v: Any) -> list[Any]:
    s = scores(xp, q, k)
    return [softmax(xp, s - turned(xp, s)) @ v]


@pytest.mark.parametrize(
    "function",
    [
        by_columns, squared, centred, of_other_scores, twice, by_itself, of_values_made_of_scores, of_differences,
    ],
)  # fmt: skip
def test_what_is_no_walk_over_keys(function: Attention) -> None:
    inputs = tensors((), 100, 100, 32, 32)
    (got,) = function(xp, *[xp.asarray(a) for a in inputs])
    (want,) = function(np, *[a.astype(float) for a in inputs])
    np.testing.assert_allclose(host(got), want, 1e-4, 1e-4)


def test_held_weights_are_computed_when_asked_for() -> None:
    inputs = tensors((), 100, 120, 32, 32)
    q, k, v = (xp.asarray(a) for a in inputs)
    p = softmax(xp, scores(xp, q, k))
    out = p @ v
    assert ON_GPU or len(xp.explain(out).kernels) == 1
    xp.evaluate(out)
    want = softmax(np, scores(np, *inputs[:2]).astype(float))
    np.testing.assert_allclose(host(p), want, 1e-4, 1e-6)
    np.testing.assert_allclose(host(out), want @ inputs[2], 1e-4, 1e-5)


def test_memory() -> None:
    """No array of queries by keys, and explain() says so."""
    plan = xp.explain(causal(xp, *[xp.asarray(a) for a in tensors((2,), 2048, 2048, 16, 16)]))
    assert ON_GPU or (plan.kernels[0].bytes == 4 * 2 * 2048 * 16 * 4 and "2048, 2048] of each, are not" in str(plan))


def test_attention_and_projection() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(F32) for shape in ((2, 70, 3, 16),) * 3 + ((48, 40),)]
    out = lambda xp, q, k, v, w: heads_inside_joined(xp, q, k, v) @ w
    got = out(xp, *map(xp.asarray, inputs))
    assert ON_GPU or len(xp.explain(got).kernels) == 2
    np.testing.assert_allclose(host(got), out(np, *[a.astype(float) for a in inputs]), 1e-4, 1e-4)


def test_layers_of_a_transformer() -> None:
    def layer(xp: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        b, n, c = x.shape
        y = x - xp.mean(x, axis=-1, keepdims=True)
        y = y / xp.sqrt(xp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
        q, k, v = (xp.transpose(xp.reshape(y @ w, (b, n, 4, c // 4)), (0, 2, 1, 3)) for w in (wq, wk, wv))
        return x + xp.reshape(xp.transpose(causal(xp, q, k, v), (0, 2, 1, 3)), (b, n, c)) @ wo

    def layers(xp: Any, x: Any, *weights: Any) -> Any:
        return layer(xp, layer(xp, x, *weights[:4]), *weights[4:])

    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(F32) * F32(0.1) for shape in [(2, 70, 64), *[(64, 64)] * 8]]
    out = layers(xp, *map(xp.asarray, inputs))
    if not ON_GPU:
        assert [k.ops.count("dot") for k in xp.explain(out).kernels].count(2) == 2
    np.testing.assert_allclose(host(out), layers(np, *[a.astype(float) for a in inputs]), 1e-3, 1e-4)
