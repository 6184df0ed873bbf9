"""How many kernels a program becomes: what explain() says and what profile() saw launched.

A program names every intermediate result and returns them all, its value last, so that each test runs twice: with the
intermediates dropped, and with every one of them held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import host, needs_lazy, xp

pytestmark = needs_lazy

F32 = np.float32
Program = Callable[..., list[Any]]


def normal(*shape: int, dtype: Any = F32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax(xp, x):
    m = xp.max(x, axis=-1, keepdims=True)
    d = x - m
    e = xp.exp(d)
    s = xp.sum(e, axis=-1, keepdims=True)
    return [m, d, e, s, e / s]


def log_softmax(xp, x):
    m = xp.max(x, axis=-1, keepdims=True)
    d = x - m
    e = xp.exp(d)
    s = xp.sum(e, axis=-1, keepdims=True)
    t = xp.log(s)
    return [m, d, e, s, t, d - t]


def layernorm(xp, x, w, b):
    m = xp.mean(x, axis=-1, keepdims=True)
    d = x - m
    q = d * d
    v = xp.mean(q, axis=-1, keepdims=True)
    r = xp.sqrt(v + 1e-5)
    y = d / r
    z = y * w
    return [m, d, q, v, r, y, z, z + b]


def rmsnorm(xp, x, w):
    q = x * x
    v = xp.mean(q, axis=-1, keepdims=True)
    r = xp.sqrt(v + 1e-6)
    y = x / r
    return [q, v, r, y, y * w]


def variance(xp, x):
    return [xp.var(x, axis=-1)]


def variance_by_hand(xp, x):
    m = xp.mean(x, axis=1, keepdims=True)
    d = x - m
    q = d * d
    return [m, d, q, xp.mean(q, axis=1)]


def centre_columns(xp, x):
    m = xp.mean(x, axis=0)
    return [m, x - m]


def normal_cdf(xp, x):
    """Abramowitz and Stegun 26.2.17."""
    a = xp.abs(x)
    k = 1.0 / (1.0 + 0.2316419 * a)
    p = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    e = xp.exp(-0.5 * a * a)
    tail = 0.3989422804014327 * e * p
    return [a, k, p, e, tail, xp.where(x > 0, 1.0 - tail, tail)]


def black_scholes(xp, s, k, t):
    rate, sigma = 0.02, 0.3
    root = xp.sqrt(t)
    ratio = xp.log(s / k)
    d1 = (ratio + (rate + 0.5 * sigma * sigma) * t) / (sigma * root)
    d2 = d1 - sigma * root
    n1, n2 = normal_cdf(xp, d1), normal_cdf(xp, d2)
    discount = xp.exp(-rate * t)
    strike = k * discount
    return [root, ratio, d1, d2, *n1, *n2, discount, strike, s * n1[-1] - strike * n2[-1]]


def stencil(xp, u):
    up, down, left, right = u[:-2, 1:-1], u[2:, 1:-1], u[1:-1, :-2], u[1:-1, 2:]
    a = up + down
    b = left + right
    c = a + b
    return [up, down, left, right, a, b, c, c - 4 * u[1:-1, 1:-1]]


def pairwise(xp, a, b):
    d = a[:, None] - b[None]
    q = d**2
    return [d, q, q.sum(-1)]


def gelu(xp, x):
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    t = xp.tanh(inner)
    return [inner, t, 0.5 * x * (1.0 + t)]


def gelu_of_affine(xp, a, b, c):
    p = a @ b
    s = p + c
    return [p, s, *gelu(xp, s)]


def matmul_cast(xp, a, b):
    c = a.astype(np.float32)
    d = b.astype(np.float32)
    return [c, d, c @ d]


def matmul_transposed(xp, a, b):
    return [a.T @ b.T]


def matmul_cast_transposed(xp, a, b):
    c = a.T.astype(np.float32)
    d = b.astype(np.float32).T
    return [c, d, c @ d]


ONE_KERNEL: dict[str, tuple[Program, tuple[np.ndarray, ...]]] = {
    "softmax": (softmax, (normal(512, 1000),)),
    "softmax-3d": (softmax, (normal(4, 128, 257),)),
    "softmax-f64": (softmax, (normal(100, 4096, dtype=np.float64),)),
    "softmax-f16": (softmax, (normal(300, 999, dtype=np.float16),)),
    "log_softmax": (log_softmax, (normal(512, 1000),)),
    "layernorm": (layernorm, (normal(512, 768), normal(768, seed=1), normal(768, seed=2))),
    "layernorm-long-rows": (
        layernorm,
        (normal(64, 20_000), normal(20_000, seed=1), normal(20_000, seed=2)),
    ),
    "rmsnorm": (rmsnorm, (normal(512, 768), normal(768, seed=1))),
    "var": (variance, (normal(512, 1000),)),
    "var-by-hand": (variance_by_hand, (normal(512, 1000),)),
    "centre-columns": (centre_columns, (normal(1000, 512),)),
    "black-scholes": (
        black_scholes,
        (50 + 10 * abs(normal(100_000)), 50 + 10 * abs(normal(100_000, seed=1)), 0.1 + abs(normal(100_000, seed=2))),
    ),
    "stencil": (stencil, (normal(700, 900),)),
    "pairwise": (pairwise, (normal(300, 16), normal(400, 16, seed=1))),
    "gelu-affine": (gelu_of_affine, (normal(256, 300), normal(300, 200, seed=1), normal(200, seed=2))),
    "matmul-f16-in": (matmul_cast, (normal(128, 200, dtype=np.float16), normal(200, 96, dtype=np.float16, seed=1))),
    "matmul-int-in": (
        matmul_cast,
        (np.arange(128 * 200, dtype=np.int8).reshape(128, 200), normal(200, 96, seed=1)),
    ),
    "matmul-transposed": (matmul_transposed, (normal(200, 128), normal(96, 200, seed=1))),
    "matmul-cast-transposed": (
        matmul_cast_transposed,
        (normal(200, 128, dtype=np.float16), normal(96, 200, dtype=np.float16, seed=1)),
    ),
}

AT_MOST_TWO: dict[str, tuple[Program, tuple[np.ndarray, ...]]] = {
    "relu-sum": (lambda xp, x: [r := xp.maximum(x, 0), r.sum()], (normal(1000, 1000),)),
    # Rows' variances, each row read once, and what combines them.
    "variance-of-all": (lambda xp, x: [xp.var(x)], (normal(1500, 1000) + 100,)),
    "softmax-sum": (lambda xp, x: [*(parts := softmax(xp, x)), parts[-1].sum(axis=0)], (normal(512, 1000),)),
}


def reference(program: Program, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """NumPy's values, computed a step wider than the program."""
    wide = {"f": np.float64, "i": np.int64}
    return program(np, *(a.astype(wide[a.dtype.kind]) for a in inputs))


def check_counts(program: Program, inputs: tuple[np.ndarray, ...], at_most: int, hold: bool) -> None:
    arrays = [xp.asarray(a) for a in inputs]
    xp.evaluate(*arrays)
    parts = program(xp, *arrays)
    x = parts[-1]
    if not hold:
        del parts
    plan = xp.explain(x)
    with xp.profile() as p:
        xp.evaluate(x)
    assert 1 <= len(plan.kernels) <= at_most, str(plan)
    assert p.launches == len(plan.kernels), (p.launches, str(plan))
    values = reference(program, inputs)
    tolerance = 2e-2 if inputs[0].dtype == np.float16 else 2e-4
    scale = np.abs(values[-1]).max()
    np.testing.assert_allclose(host(x), values[-1], rtol=tolerance, atol=tolerance * scale)
    if hold:  # what was held can still be asked for
        for got, want in zip(parts, values):
            np.testing.assert_allclose(host(got), want, rtol=tolerance, atol=tolerance * max(np.abs(want).max(), 1))


@pytest.mark.parametrize("hold", [False, True], ids=["dropped", "held"])
@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str, hold: bool) -> None:
    check_counts(*ONE_KERNEL[name], at_most=1, hold=hold)


@pytest.mark.parametrize("hold", [False, True], ids=["dropped", "held"])
@pytest.mark.parametrize("name", AT_MOST_TWO)
def test_at_most_two_kernels(name: str, hold: bool) -> None:
    check_counts(*AT_MOST_TWO[name], at_most=2, hold=hold)


def test_several_outputs_of_one_kernel() -> None:
    x = xp.asarray(normal(400, 300))
    a = xp.exp(x)
    b = a + 1
    c = a * 2
    with xp.profile() as p:
        xp.evaluate(a, b, c)
    assert p.launches == 1
    np.testing.assert_allclose(host(c), 2 * np.exp(normal(400, 300)), rtol=1e-5)


def test_views_launch_nothing() -> None:
    x = xp.asarray(normal(64, 48))
    xp.evaluate(x)
    with xp.profile() as p:
        xp.evaluate(x[3:-2, ::-2], x.T, x[:, None], xp.broadcast_to(x, (5, 64, 48)), xp.reshape(x, (-1,)))
    assert p.launches == 0 and p.compiles == 0


def test_evaluated_arrays_launch_nothing() -> None:
    y = xp.asarray(normal(1000)) * 2
    xp.evaluate(y)
    with xp.profile() as p:
        xp.evaluate(y)
        host(y)
    assert p.launches == 0


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 4)])
def test_empty_arrays_launch_nothing(shape: tuple[int, ...]) -> None:
    x = xp.asarray(np.ones(shape, F32))
    with xp.profile() as p:
        y = xp.exp(x) + 1
        xp.evaluate(y)
    assert p.launches == 0
    assert host(y).shape == shape


def test_long_thin_reduction_is_split_and_says_why() -> None:
    a = normal(1_000_000, 8)
    x = xp.asarray(a)
    y = x - x.mean(axis=0)
    plan = xp.explain(y)
    assert 1 < len(plan.kernels) <= 3, str(plan)
    assert all(k.reason for k in plan.kernels[:-1]) or all(k.reason for k in plan.kernels[1:]), str(plan)
    with xp.profile() as p:
        xp.evaluate(y)
    assert p.launches == len(plan.kernels)
    np.testing.assert_allclose(host(y), a - a.astype(np.float64).mean(axis=0), atol=1e-5)


def test_explain_describes_kernels(tmp_path) -> None:
    x = xp.asarray(normal(512, 1000))
    y = softmax(xp, x)[-1]
    plan = xp.explain(y)
    (kernel,) = plan.kernels
    assert isinstance(kernel.name, str) and kernel.name in str(plan)
    assert len(kernel.inputs) == 1 and len(kernel.outputs) == 1
    assert "exp" in str(kernel.ops)
    assert kernel.bytes == 2 * x.nbytes
    page = tmp_path / "plan.html"
    plan.html(page)
    assert kernel.name in page.read_text()
    with xp.profile() as p:
        xp.evaluate(y)
    (row,) = p.kernels
    assert row.name == kernel.name and row.bytes == kernel.bytes
    assert row.seconds > 0
    np.testing.assert_allclose(row.gbps, row.bytes / row.seconds / 1e9, rtol=1e-6)
    assert p.launches == 1


def test_explain_does_not_run() -> None:
    x = xp.asarray(normal(100, 100))
    xp.evaluate(x)
    y = x * 2
    with xp.profile() as p:
        xp.explain(y)
    assert p.launches == 0
    assert len(xp.explain(y).kernels) == 1  # still pending


def test_windows_of_a_large_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports that add up to much are computed with early, once, and not again whenever a window of one is read."""
    monkeypatch.setattr("blockarray.flush._MAX_IMPORTED", 4000)
    monkeypatch.setattr("blockarray.flush._imported", 4000)
    a = normal(25, 40)
    u = xp.asarray(a)
    counts = []
    for _ in range(3):
        with xp.profile() as p:
            got = host(2 + xp.abs(1 - (u[2:] + u[:-2] - 2 * u[1:-1]) * 3 + u[1:-1] * 4))
        counts.append(p.launches)
    assert counts[0] > 1 and counts[1:] == [1, 1]
    assert np.allclose(got, 2 + np.abs(1 - (a[2:] + a[:-2] - 2 * a[1:-1]) * 3 + a[1:-1] * 4), rtol=1e-5)
