"""What a GPU reads once: what shifted windows of an array share, and columns whose variance is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests import fake_gpu
from tests.support import host, needs_lazy, xp

pytestmark = needs_lazy


@pytest.fixture
def gpu(pytestconfig: pytest.Config) -> Iterator[Any]:
    if pytestconfig.getoption("--device") == "cpu":
        with fake_gpu.installed(1):
            yield xp.devices()[1]
    else:
        yield xp.get_default_device()


def cross(u: Any) -> Any:
    c = u[1:-1, 1:-1]
    return c + 2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * c)


def write_between(u: Any) -> Any:
    v = u + 0
    v[1:-1, 1:-1] = v[:-2, 1:-1] - v[2:, 1:-1] + v[1:-1, 2:]
    return v


WINDOWS = {
    "cross": cross,
    "cross of a window": lambda u: cross(u[1:, 3:-2]),
    "square": lambda u: sum(u[i : i - 2 or None, j : j - 2 or None] for i in range(2) for j in range(2)) + u[2:, 2:],
    "rows": lambda u: u[2:] - 2 * u[1:-1] + u[:-2],
    "columns": lambda u: u[:, 3:] - u[:, :-3],
    "flat": lambda u: (f := u.reshape(-1))[1:] - f[:-1],
    "backwards": lambda u: u[::-1, ::-1][1:, 1:] - u[::-1, ::-1][:-1, :-1],
    "strided": lambda u: u[2::2] - u[:-2:2],
    "reduced": lambda u: (u[2:, 1:] * u[:-2, :-1]).sum(axis=1),
    "written between": write_between,
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("shape", [(19, 290), (18, 272), (34, 3), (5, 519)])
def test_shifted_windows(name: str, shape: tuple[int, int], gpu: Any) -> None:
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64, np.int8, np.complex64):
        a = rng.integers(-3, 4, shape).astype(dtype)
        if 0 in (want := WINDOWS[name](xp.asarray(a, device="cpu"))).shape:
            continue
        np.testing.assert_array_equal(host(WINDOWS[name](xp.asarray(a, device=gpu))), host(want))


@pytest.mark.parametrize(
    "shape, axis", [((2048, 64), 0), ((3, 1600, 40), 1), ((5, 128, 33), (0, 1)), ((2, 1200, 4, 16), (1,))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_variance_of_columns_by_blocks(
    shape: tuple[int, ...], axis: Any, dtype: Any, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blockarray import reductions

    monkeypatch.setattr(reductions, "_COLUMN_BLOCKS", reductions._COLUMN_BLOCKS._replace(least=1 << 10))
    rng = np.random.default_rng(4)
    plain = rng.standard_normal(shape)
    rows = np.arange(shape[-2 if len(shape) < 4 else 1]).reshape((-1, 1) if len(shape) < 4 else (-1, 1, 1))
    tolerance = 1e-13 if dtype is np.float64 else 5e-6
    for a in (plain, plain + 50 * (rows % 128 == 0), plain + rows, 100 + plain):
        a = a.astype(dtype)
        x = xp.asarray(a, device=gpu)
        got = host(xp.var(x, axis=axis, keepdims=True, ddof=1))
        want = np.var(a.astype(np.result_type(dtype, np.float64)), axis=axis, keepdims=True, ddof=1)
        np.testing.assert_allclose(got, want, tolerance)
    constant = xp.full(shape, 0.1, dtype=dtype, device=gpu)
    assert (host(xp.std(constant, axis=axis)) < 1e-6).all()
    a[(0,) * len(shape)] = np.nan
    a[(1,) * len(shape)] = np.inf
    with np.errstate(invalid="ignore"):
        want = np.var(a, axis=axis)
    assert np.array_equal(np.isnan(host(xp.var(xp.asarray(a, device=gpu), axis=axis))), np.isnan(want))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (0, 2)])
def test_variance_reads_arrays_once(axis: Any, gpu: Any) -> None:
    x = xp.zeros((16, 2048, 1024), np.float32, device=gpu)
    xp.evaluate(x)
    kernels = xp.explain(xp.var(x, axis=axis)).kernels
    assert len(kernels) <= 2
    assert sum(k.bytes for k in kernels) < 1.2 * x.nbytes
