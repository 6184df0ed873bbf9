"""profile() counts what the GPU ran: as many kernels as CUPTI saw, which torch's profiler asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import needs_lazy, xp

pytestmark = [needs_lazy, pytest.mark.gpu]

F32 = np.float32


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def updated(x: Any) -> Any:
    y = xp.array(x)
    y[::2] *= 3
    y[xp.asarray([1, 5, 9])] = 0
    return y + xp.sum(y)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: xp.exp(-(x * x) * 0.5) * 0.3989 + xp.sin(x) * 0.5,
    "softmax": softmax,
    "long softmax": lambda x: softmax(x.reshape(1, -1)),
    "mean and deviation": lambda x: (x - x.mean(0)) / x.std(0),
    "sum": lambda x: x.sum(),
    "sums": lambda x: (x.sum(0), x.sum(1), x.max()),
    "var": lambda x: x.var(),
    "argmax": lambda x: x.argmax(1),
    "cumsum": lambda x: xp.cumsum(x.reshape(-1)),
    "product": lambda x: x[:, :512] @ x[:512],
    "batched product": lambda x: xp.matmul(x.reshape(8, 256, 1024)[:, :, :256], x.reshape(8, 256, 1024)),
    "gelu of a product": lambda x: xp.tanh(x @ x.T + 1) * 0.5,
    "transposed": lambda x: xp.ascontiguousarray(x.T),
    "gather": lambda x: x[xp.arange(500) * 3 % 700],
    "update": updated,
    "concatenate": lambda x: xp.concatenate((x, x * 2)),
    "sort": lambda x: xp.sort(x.reshape(-1)),
    "sort rows": lambda x: xp.sort(x, axis=1),
    "argsort": lambda x: xp.argsort(x.reshape(-1)),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: xp.nonzero(x > 0),
    "unique": lambda x: xp.unique(xp.floor(x)),
    "searchsorted": lambda x: xp.searchsorted(xp.sort(x[0]), x[1]),
    "random": lambda x: xp.random.default_rng(1).standard_normal(1000) + 1,
}


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name: str, torch: Any) -> None:
    with xp.device("cuda:0"):
        x = xp.asarray(np.random.default_rng(0).standard_normal((2048, 1024)).astype(F32))
        program = PROGRAMS[name]
        xp.evaluate(x, program(x))
        xp.synchronize()
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with xp.profile() as ours, torch.profiler.profile(activities=activities) as theirs:
            xp.evaluate(program(x))
            xp.synchronize()
    seen = [e.name for e in theirs.events() if "cuda" in str(e.device_type).lower()]
    seen = [n for n in seen if not n.lower().startswith(("memcpy", "memset"))]
    assert ours.launches == len(seen), (str(ours), seen)
