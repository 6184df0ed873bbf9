"""Attention written as array code, planned for a GPU: one kernel, whose code the emulator runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray.array import Array
from blockarray.compiler import cuda, interpreter, lower_online, passes
from blockarray.compiler.ir import Kernel
from blockarray.compiler.policy import gpu_policy
from tests.compiler import planning
from tests.compiler.cuda import gpu_emulator
from tests.integration.test_attention import (
    BF16,
    HUGE,
    NOT_ON_GPUS,
    SPELLINGS,
    Attention,
    heads_inside,
    heads_inside_joined,
    huge_scores,
    padded_on_the_left,
    tensors,
)

TARGET = cuda.make_target((9, 0))
POLICY = gpu_policy(132, (9, 0))


def emulate(kernel: Kernel, args: list[Any]) -> list[str]:
    if kernel.attrs.get("schedule") != "online":
        assert not any(op.name == "dot" for op in kernel.walk()), "two kernels"
        return interpreter.run(kernel, args)
    return emulate_any(kernel, args)


#: What kernels made of their arguments: several spellings are one kernel.
_MADE: dict[tuple[Any, ...], list[Any]] = {}


def emulate_any(kernel: Kernel, args: list[Any]) -> list[str]:
    plain = [a[0][a[1] :] if isinstance(a, tuple) else a for a in args]
    code = cuda.generate(passes.run(kernel), TARGET)
    key = code.text, *(a.tobytes() if isinstance(a, np.ndarray) else a for a in plain)
    if key not in _MADE:
        gpu_emulator.run(code, kernel, plain)
        _MADE[key] = [np.array(a) for a in plain]
    for a, made in zip(plain, _MADE[key], strict=True):
        if isinstance(a, np.ndarray):
            a[...] = made
    return []


def check(function: Attention, *inputs: np.ndarray, execute: Any = emulate) -> None:
    """What the emulated kernel computes, after copies at most."""
    out = function(xp, *[Array(planning.leaf(a)) for a in inputs])
    (got,) = planning.run(out._read(), policy=POLICY, execute=execute, aligned=True)
    with np.errstate(all="ignore"):
        want = function(np, *[a.astype(np.float64) for a in inputs])
    np.testing.assert_allclose(got.astype(np.float64), want, 0, 3e-2 * np.nanmax(np.abs(want)))


@pytest.mark.parametrize("name", [name for name in SPELLINGS if name not in NOT_ON_GPUS])
def test_spelling(name: str) -> None:
    check(SPELLINGS[name], *tensors((2,), 130, 144, 32, 32, BF16))


@pytest.mark.parametrize(
    ("name", "batch", "n", "m", "d", "e"),
    [
        ("causal", (2, 2), 129, 127, 80, 40), ("plain", (4, 1, 2), 33, 31, 33, 17), ("window", (), 200, 263, 96, 128),
        ("late_division", (), 100, 63, 200, 256), ("causal_added", (1,), 2, 300, 64, 8), ("plain", (3,), 40, 2, 1, 1),
        ("residual", (2,), 70, 70, 16, 24), ("residual", (2,), 70, 70, 16, 32),
    ],
)  # fmt: skip
def test_shapes(name: str, batch: tuple[int, ...], n: int, m: int, d: int, e: int) -> None:
    check(SPELLINGS[name], *tensors(batch, n, m, d, e, np.float16))


@pytest.mark.parametrize("function", [heads_inside, heads_inside_joined])
def test_layouts(function: Attention) -> None:
    rng = np.random.default_rng(0)
    check(function, *[rng.standard_normal((1, n, 2, d)).astype(BF16) for n, d in ((70, 32), (90, 32), (90, 48))])


@pytest.mark.parametrize(("name", "queries", "keys"), [("causal", 70, 90), ("causal_at_the_end", 1, 300)])
def test_grouped_heads(name: str, queries: int, keys: int) -> None:
    def attention(xp, q, k, v):
        return SPELLINGS[name](xp, q, xp.repeat(k, 3, axis=1), xp.repeat(v, 3, axis=1))

    check(attention, tensors((1, 6), queries, 1, 32, 1, BF16)[0], *tensors((1, 2), 1, keys, 32, 32, BF16)[1:])


@pytest.mark.parametrize("shape", [(70, 90), (1, 90), (70, 1), (2, 1, 90)])
def test_masks(shape: tuple[int, ...]) -> None:
    def attention(xp, q, k, v, bias):
        s = (q @ xp.swapaxes(k, -1, -2)).astype(np.float32) * 0.25 + bias
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        return (e / xp.sum(e, axis=-1, keepdims=True)).astype(q.dtype) @ v

    bias = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(attention, *tensors((2,), 70, 90, 32, 32, BF16), bias)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("shape", [(70, 420), (2, 70, 420), (420,)])
def test_biases_are_loaded_while_products_are_under_way(shape: tuple[int, ...], dtype: np.dtype, causal: bool) -> None:
    def attention(xp, q, k, v, bias):
        s = (q @ xp.swapaxes(k, -1, -2)).astype(np.float32) * 0.25 + bias
        if causal:
            s = xp.where(xp.arange(420)[None, :] <= xp.arange(70)[:, None] + 350, s, -np.inf)
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        return (e / xp.sum(e, axis=-1, keepdims=True)).astype(q.dtype) @ v

    bias = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    check(attention, *tensors((2,), 70, 420, 32, 32, BF16), bias)


def test_windows_of_memory() -> None:
    q, k, v = tensors((3,), 140, 180, 48, 64, BF16)
    check(
        lambda xp, q, k, v: SPELLINGS["plain"](xp, q[:1, ::-2, 3:35], k[1:2, 7:, 32:0:-1], v[1:2, :-7, 1::2]), q, k, v
    )


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("size", "factor"), HUGE)
def test_huge_scores(size: float, factor: float, known: bool) -> None:
    check(padded_on_the_left(factor, known), *huge_scores(size, factor))


@pytest.mark.parametrize("keys", [77, 200, 1000])
@pytest.mark.parametrize("name", ["plain", "causal_at_the_end", "late_division"])
def test_one_query(name: str, keys: int) -> None:
    check(SPELLINGS[name], *tensors((2,), 1, keys, 32, 32, BF16))


@pytest.mark.parametrize(
    "name",
    [
        "plain", "unscaled", "late_reciprocal", "without_the_maximum", "log_softmax", "columns", "causal",
        "causal_at_the_end", "causal_added", "window", "position_bias", "soft_cap", "safe_maximum",
        "one_more_than_the_sum", "residual",
    ],
)  # fmt: skip
def test_programs_that_share_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_online, "gpu_parts", lambda *_: 3)
    check(SPELLINGS[name], *tensors((2,), 70, 400, 32, 32, BF16))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("size", "factor"), [(1.0, 0.3), *HUGE])
def test_programs_that_share_huge_scores(
    size: float, factor: float, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower_online, "gpu_parts", lambda *_: 2)
    check(padded_on_the_left(factor, known), *huge_scores(size, factor))


def test_parts_of_keys() -> None:
    parts = lambda programs, blocks: lower_online.gpu_parts(programs, blocks, 132)
    assert parts(132, 64) == parts(1, 1) == parts(100, 32) == 1
    assert parts(66, 64) == 2
    assert parts(1, 1024) == 32


def test_many_rows_of_small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lower_online.gpu_block(256, 1024, 64, 64, False) == (192, 128)
    assert (
        lower_online.gpu_block(256, 1024, 64, 64, True) == lower_online.gpu_block(256, 100, 64, 32, False) == (128, 128)
    )
    monkeypatch.setattr(lower_online, "GPU_MANY", 1)
    check(SPELLINGS["plain"], *tensors((2,), 200, 144, 32, 32, BF16))
