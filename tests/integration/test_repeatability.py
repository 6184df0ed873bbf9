"""The same program gives the same bits each time, and long sums are accurate."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import ON_GPU, canonical, evaluate, needs_lazy, xp

N = 1_000_003 if ON_GPU else 260_003


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def scattered(x: Any) -> Any:
    y = xp.array(x)
    index = (xp.arange(N // 2) * 7919) % 1000
    y[index] += x[: N // 2]  # the last one of each place is kept
    return y[:1000]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sum": xp.sum,
    "mean of squares": lambda x: xp.mean(x * x),
    "sums of rows": lambda x: x[:250_000].reshape(500, 500).sum(1),
    "sums of few long rows": lambda x: x[:250_000].reshape(2, -1).sum(1),
    "sums of columns": lambda x: x[:250_000].reshape(-1, 100).sum(0),
    "var": xp.var,
    "prod": lambda x: xp.prod(1 + x * 1e-6),
    "argmax of ties": lambda x: xp.argmax(xp.floor(x)),
    "cumsum": xp.cumsum,
    "cumsum of columns": lambda x: xp.cumsum(x[:250_000].reshape(-1, 100), axis=0),
    "softmax": lambda x: softmax(x[:250_000].reshape(500, 500)),
    "long softmax": softmax,
    "product": lambda x: x[:250_000].reshape(500, 500) @ x[-250_000:].reshape(500, 500),
    "product over long rows": lambda x: x[:240_000].reshape(8, -1) @ x[:240_000].reshape(8, -1).T,
    "dot": lambda x: xp.matmul(x, x),
    "scatter": scattered,
    "bincount": lambda x: xp.bincount(xp.astype(abs(x) * 10, np.int64), minlength=100),
    "weighted bincount": lambda x: xp.bincount(xp.astype(abs(x) * 10, np.int64), weights=x, minlength=100),
    "sort": xp.sort,
    "argsort": lambda x: xp.argsort(xp.floor(x * 10), stable=True),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: xp.unique(xp.floor(x * 100)),
    "random": lambda x: xp.random.default_rng(5).standard_normal(N),
    "histogram": lambda x: xp.histogram(x, bins=17, range=(-3, 3))[0],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_do_not_change(name: str, dtype: Any) -> None:
    values = np.random.default_rng(0).standard_normal(N).astype(dtype)
    first = canonical(PROGRAMS[name](xp.asarray(values)))
    for k in range(3):
        # Memory elsewhere, and other work beside it.
        x, other = xp.array(values), xp.ones(N + k) * 2
        evaluate(other)
        assert canonical(PROGRAMS[name](x)) == first


@needs_lazy
@pytest.mark.gpu
def test_a_sum_of_a_quarter_of_a_billion() -> None:
    """No less accurate than NumPy's pairwise summation."""
    n = 2**28
    with xp.device("cuda:0"):
        for kind in ("uniform", "normal"):
            rng = np.random.default_rng(1)
            values = rng.random(n, np.float32) if kind == "uniform" else rng.standard_normal(n, np.float32)
            exact = values.sum(dtype=np.float64)
            of_numpy = abs(float(values.sum()) - exact)
            scale = abs(values).sum(dtype=np.float64)
            x = xp.asarray(values)
            for got in (x.sum().item(), x.reshape(4, -1).sum(1).sum().item(), x.reshape(-1, 16).sum(0).sum().item()):
                assert abs(got - exact) <= max(of_numpy, 2 * np.finfo(np.float32).eps * scale), (kind, got, exact)
            got = xp.mean(x).item() * n
            assert abs(got - exact) <= max(of_numpy, 2 * np.finfo(np.float32).eps * scale), (kind, got, exact)
            del x
            gc.collect()
