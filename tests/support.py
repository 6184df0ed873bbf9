"""What the integration tests and the fuzzers share.

`xp` is the namespace under test.  BLOCKARRAY_TEST_NAMESPACE=numpy puts NumPy in its place: a test of values that NumPy
itself fails is a wrong test.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NAMESPACE = os.environ.get("BLOCKARRAY_TEST_NAMESPACE", "blockarray")
xp = importlib.import_module(NAMESPACE)
LAZY = hasattr(xp, "evaluate")
#: Whether arrays live on a GPU: its kernels come in a few variants, by which addresses and sizes are multiples of 16.
ON_GPU = LAZY and str(xp.get_default_device()) != "cpu"
ROOT = Path(__file__).resolve().parent.parent

needs_lazy = pytest.mark.skipif(not LAZY, reason="asks about kernels and laziness, which NumPy has not")


def evaluate(*arrays: Any) -> None:
    if LAZY:
        xp.evaluate(*arrays)


def host(x: Any) -> np.ndarray:
    return np.asarray(x)


def canonical(x: Any) -> bytes:
    """The bits of an array, all NaNs made the same: equal exactly if the values are, -0.0 and 0.0 being different."""
    a = np.array(host(x), order="C")
    if a.dtype.kind in "fcV":
        wide = a.astype(np.complex128) if a.dtype.kind == "c" else a.astype(np.float64)
        parts = wide.view(np.float64)
        parts[np.isnan(parts)] = np.nan
        return wide.tobytes()
    return a.tobytes()


def assert_same(got: Any, want: Any, what: str = "") -> None:
    """Equal shape, dtype and values, NaN equal to NaN and the sign of a zero ignored."""
    g, w = host(got), np.asarray(want)
    assert g.shape == w.shape, (what, g.shape, w.shape)
    assert g.dtype == w.dtype, (what, g.dtype, w.dtype)
    if ON_GPU and g.dtype.kind in "fc":
        # Its functions round otherwise in the last bits.
        eps = 8 * np.finfo(g.dtype).eps
        np.testing.assert_allclose(g, w, eps, eps * np.max(np.abs(w), initial=0, where=np.isfinite(w)), err_msg=what)
    else:
        np.testing.assert_array_equal(g, w, err_msg=what)


def compiles(function: Any, *args: Any) -> int:
    """Kernels that the call compiles, its result evaluated."""
    with xp.profile() as p:
        evaluate(function(*args))
    return p.compiles


def live_nodes() -> int:
    """Nodes of expression graphs that something still refers to."""
    expr = importlib.import_module("blockarray.compiler.expr").Expr
    gc.collect()
    return sum(type(o) is expr for o in gc.get_objects())


def run_python(code: str, *argv: str, timeout: float = 120, **env: str) -> str:
    """Standard output of `code` in a fresh interpreter; fails the test, with the traceback, if it fails."""
    p = subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert p.returncode == 0, f"exit status {p.returncode}\n{p.stdout[-2000:]}\n{p.stderr[-4000:]}"
    return p.stdout
