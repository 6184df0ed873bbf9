"""Linear algebra against NumPy: on a GPU these are other libraries' calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import ON_GPU, host, needs_lazy, xp

DTYPES = ("f4", "f8", "c8", "c16")
#: Leading axes and extents of matrices.
SHAPES = ((1, 1), (2, 2), (5, 5), (33, 33), (3, 4, 4), (2, 3, 5, 5), (0, 0), (0, 3, 3), (2, 0, 0))
RECTANGLES = ((1, 1), (7, 3), (3, 7), (5, 1), (1, 5), (4, 6, 2), (2, 2, 6), (0, 3), (3, 0), (0, 3, 2))


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng((seed, *shape))
    x = random.standard_normal(shape)
    if dtype.startswith("c"):
        x = x + 1j * random.standard_normal(shape)
    return x.astype(dtype)


def definite(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    a = sample(shape, dtype)
    return a @ np.swapaxes(a.conj(), -1, -2) + np.eye(shape[-1], dtype=dtype)


def layouts(a: np.ndarray) -> Iterator[Any]:
    """An array as it is, as a transposed view, as a part of a larger one, and as a result not computed yet."""
    x = xp.asarray(a)
    yield x
    yield xp.asarray(np.swapaxes(a, -1, -2).copy()).mT
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    yield xp.asarray(wide)[..., ::2]
    yield x * 1 + 0


def close(got: Any, want: Any, scale: float = 1.0) -> None:
    g, w = host(got), np.asarray(want)
    assert g.shape == w.shape and g.dtype == w.dtype, (g.shape, w.shape, g.dtype, w.dtype)
    eps = np.finfo(w.dtype).eps if w.dtype.kind in "fc" else 0
    size = float(np.max(np.abs(w), initial=1))
    np.testing.assert_allclose(g, w, 0, 400 * eps * size * scale)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x.conj(), -1, -2)


def unitary(columns: np.ndarray) -> None:
    n = columns.shape[-1]
    close(adjoint(columns) @ columns, np.broadcast_to(np.eye(n, dtype=columns.dtype), (*columns.shape[:-2], n, n)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_square(shape: tuple[int, ...], dtype: str) -> None:
    a = sample(shape, dtype) / max(shape[-1], 1) + np.eye(shape[-1], dtype=dtype)
    for x in layouts(a):
        close(xp.linalg.inv(x), np.linalg.inv(a))
        close(xp.linalg.det(x), np.linalg.det(a), 10)
        for got, want in zip(xp.linalg.slogdet(x), np.linalg.slogdet(a)):
            close(got, want)
        b = sample((*shape[:-1], 3), dtype, 1)
        close(xp.linalg.solve(x, xp.asarray(b)), np.linalg.solve(a, b))
        close(xp.linalg.solve(x, xp.asarray(b).mT.mT[..., ::-1]), np.linalg.solve(a, b[..., ::-1]))
    np.testing.assert_array_equal(host(x), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_broadcasts(dtype: str) -> None:
    a, b, v = sample((3, 1, 4, 4), dtype), sample((2, 4, 2), dtype), sample((4,), dtype)
    close(xp.linalg.solve(xp.asarray(a), xp.asarray(b)), np.linalg.solve(a, b), 10)
    close(xp.linalg.solve(xp.asarray(a), xp.asarray(v)), np.linalg.solve(a, v), 10)
    whole = np.arange(8).reshape(4, 2)
    close(
        xp.linalg.solve(xp.asarray(a), xp.asarray(whole)), np.linalg.solve(a.astype(np.result_type(a, "f8")), whole), 10
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hermitian(shape: tuple[int, ...], dtype: str) -> None:
    a = definite(shape, dtype)
    # What is above the diagonal is not looked at.
    marked = np.tril(a) + np.triu(np.full(shape, 7, dtype), 1)
    for x in layouts(marked):
        close(xp.linalg.cholesky(x), np.linalg.cholesky(marked))
        w, v = (host(part) for part in xp.linalg.eigh(x))
        close(w, np.linalg.eigvalsh(a), 10)
        close(v * w[..., None, :] @ adjoint(v), a, 10)
        unitary(v)
        close(xp.linalg.eigvalsh(x), np.linalg.eigvalsh(a), 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RECTANGLES, ids=str)
def test_rectangular(shape: tuple[int, ...], dtype: str) -> None:
    a = sample(shape, dtype)
    m, n = shape[-2:]
    for x in layouts(a):
        for full in (True, False):
            u, s, vh = (host(part) for part in xp.linalg.svd(x, full_matrices=full))
            want = np.linalg.svd(a, full)
            assert u.shape == want[0].shape and vh.shape == want[2].shape and u.dtype == vh.dtype == a.dtype
            close(s, want[1], 10)
            k = min(m, n)
            close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, 10)
            unitary(u)
            unitary(adjoint(vh))
        close(xp.linalg.svdvals(x), np.linalg.svd(a, compute_uv=False), 10)
        for mode in ("reduced", "complete"):
            q, r = (host(part) for part in xp.linalg.qr(x, mode=mode))
            want = np.linalg.qr(a, mode)
            assert q.shape == want[0].shape and r.shape == want[1].shape
            close(q @ r, a)
            unitary(q)
            np.testing.assert_array_equal(np.tril(r, -1), 0)
        close(abs(host(xp.linalg.qr(x, mode="r"))), abs(np.asarray(np.linalg.qr(a, "r"))), 10)
        for got, want in zip(xp.linalg.qr(x, mode="raw"), np.linalg.qr(a, "raw")):
            assert host(got).shape == want.shape
        if a.size:
            close(xp.linalg.pinv(x), np.linalg.pinv(a), 100)
            close(xp.linalg.matrix_rank(x), np.linalg.matrix_rank(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_general_eigenvalues(shape: tuple[int, ...], dtype: str) -> None:
    a = sample(shape, dtype)
    for x in layouts(a):
        w, v = (np.asarray(part) for part in xp.linalg.eig(x))
        assert w.dtype == v.dtype == np.result_type(dtype, "c8")
        close(a @ v, v * w[..., None, :], 100)
        close(np.linalg.norm(v, axis=-2), np.ones(w.shape, np.abs(w).dtype))
        order: Callable[[Any], Any] = lambda values: np.take_along_axis(
            values, np.lexsort((values.imag.round(3), values.real.round(3))), -1
        )
        close(order(host(xp.linalg.eigvals(x))), order(np.linalg.eigvals(a).astype(w.dtype)), 100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(6, 3), (3, 6), (4, 4)])
def test_least_squares(m: int, n: int, dtype: str) -> None:
    a, b = sample((m, n), dtype), sample((m, 2), dtype, 1)
    a[:, -1] = a[:, 0]  # not of full rank
    for matrix in (a, sample((m, n), dtype, 2)):
        for right in (b, b[:, 0]):
            got = xp.linalg.lstsq(xp.asarray(matrix), xp.asarray(right))
            want = np.linalg.lstsq(matrix, right)
            close(got[0], want[0], 100)
            close(got[1], want[1], 100)
            assert int(got[2]) == want[2]
            close(got[3], want[3], 10)


def test_ranks() -> None:
    a = np.zeros((3, 4, 5))
    a[1, 0, 0], a[2] = 1, sample((4, 5), "f8")
    close(xp.linalg.matrix_rank(xp.asarray(a)), np.linalg.matrix_rank(a))
    close(xp.linalg.matrix_rank(xp.asarray(a), rtol=0.9), np.linalg.matrix_rank(a, rtol=0.9))
    close(xp.linalg.pinv(xp.asarray(a), rtol=0.5), np.linalg.pinv(a, rtol=0.5))


@pytest.mark.parametrize("lead", [(), (3,)], ids=["one", "batch"])
@pytest.mark.parametrize("name", ["inv", "solve"])
def test_singular(name: str, lead: tuple[int, ...]) -> None:
    a = np.broadcast_to(np.eye(4), (*lead, 4, 4)).copy()
    a[(*(1 for _ in lead), 2, 2)] = 0
    x = xp.asarray(a)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        host(xp.linalg.inv(x) if name == "inv" else xp.linalg.solve(x, xp.asarray(np.ones((4, 1)))))
    close(xp.linalg.det(x), np.linalg.det(a))
    for got, want in zip(xp.linalg.slogdet(x), np.linalg.slogdet(a)):
        np.testing.assert_allclose(host(got), want)


def test_indefinite() -> None:
    a = np.stack([np.eye(3), -np.eye(3)])
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        host(xp.linalg.cholesky(xp.asarray(a)))


@pytest.mark.parametrize("function", [xp.linalg.inv, xp.linalg.det, xp.linalg.cholesky, xp.linalg.eigh, xp.linalg.eig])
def test_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(np.linalg.LinAlgError, match="two-dimensional"):
        function(xp.ones(3))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        function(xp.ones((2, 3)))
    with pytest.raises(TypeError):
        function(xp.ones((2, 2), dtype=xp.float16))


@needs_lazy
@pytest.mark.cpu_only
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from blockarray.runtime.cuda import libraries
    from tests.fake_gpu import installed

    real = libraries.binding
    with installed():
        monkeypatch.setattr(libraries, "binding", real.__wrapped__)
        monkeypatch.setitem(sys.modules, "nvmath", None)
        x = xp.eye(2, device="cuda:0")
        for function in (xp.linalg.inv, xp.linalg.svd, xp.fft.fft):
            with pytest.raises(ImportError, match=r"pip install 'blockarray\[cuda\]'"):
                function(x)
        assert float(xp.linalg.inv(xp.eye(2, device="cpu"))[0, 0]) == 1


@pytest.mark.skipif(not ON_GPU, reason="about the order of work on a GPU")
def test_results_and_workspace_follow_the_stream() -> None:
    """Memory is handed out again before the work that uses it has run."""
    a = definite((40, 40), "f8")
    x = xp.asarray(a)
    parts = []
    for k in range(4):
        y = x * (k + 1)
        parts.append(xp.linalg.cholesky(y))
        y += 100
        del y
    for k, part in enumerate(parts):
        close(part, np.linalg.cholesky(a * (k + 1)))
