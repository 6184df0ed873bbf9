"""These tests are about recording: values come from the reference interpreter, so that nothing is compiled.

Unless arrays live on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from blockarray import flush
from blockarray.compiler import reference
from blockarray.compiler.expr import BUFFER, Expr
from blockarray.runtime.memory import as_numpy, wrap


def read(buffer: Any, offset: int, shape: Any, strides: Any, dtype: np.dtype) -> np.ndarray:
    return as_numpy(buffer, dtype, offset, shape, strides, False)


def evaluate(exprs: Sequence[Expr]) -> None:
    pending = [e for e in exprs if e.op is not BUFFER]
    for e, value in zip(pending, reference.evaluate(pending, read)):
        e.realize(wrap(value, copy=True))


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Iterator[None]:
    if pytestconfig.getoption("--device") != "cpu":
        yield
        return
    monkeypatch.setattr(flush, "evaluate", evaluate)
    monkeypatch.setattr(flush, "bound", lambda e: evaluate([e]))
    yield
