"""These tests are about recording: values come from the reference interpreter, so that nothing is compiled.

Unless arrays live on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from blockarray.compiler.expr import Expr

# The library is imported by the fixture: its settings come from the environment, which the options of the run change.


def read(buffer: Any, offset: int, shape: Any, strides: Any, dtype: np.dtype) -> np.ndarray:
    from blockarray.runtime.memory import as_numpy

    return as_numpy(buffer, dtype, offset, shape, strides, False)


def evaluate(exprs: Sequence[Expr]) -> None:
    from blockarray.compiler import reference
    from blockarray.compiler.expr import BUFFER
    from blockarray.runtime.memory import wrap

    pending = [e for e in exprs if e.op is not BUFFER]
    for e, value in zip(pending, reference.evaluate(pending, read)):
        e.realize(wrap(value, copy=True))


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Iterator[None]:
    from blockarray import flush

    if pytestconfig.getoption("--device") != "cpu":
        yield
        return
    monkeypatch.setattr(flush, "evaluate", evaluate)
    monkeypatch.setattr(flush, "bound", lambda e: evaluate([e]))
    yield
