"""NVIDIA's libraries without a GPU: what the bindings of nvmath-python are to do, done by NumPy on a fake's memory.

Matrices lie by columns, as the libraries have them, and only the triangle that is asked for is read.  Work waits in
the stream; what a function may overwrite, it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from blockarray.runtime.cuda import driver

_DTYPES = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}
_ON_DEVICE, _ON_HOST = 96, 24


def _memory(address: int, nbytes: int) -> Any:
    assert address or not nbytes, "a null pointer"
    return (ctypes.c_uint8 * nbytes).from_address(address)


def _elements(address: int, shape: Any, dtype: Any) -> Any:
    """Memory as an array that is stored by columns."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return np.ndarray(shape, dtype, _memory(address, prod(shape) * np.dtype(dtype).itemsize), order="F")


class _Library:
    """What has a handle, and puts work into a stream."""

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}

    def create(self) -> int:
        self.streams[len(self.streams) + 1] = 0
        return len(self.streams)

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def put(self, handle: int, work: Callable[[], object]) -> None:
        driver.api._check(self.streams[handle])
        driver.api.stream(self.streams[handle]).put(work)


class Solver(_Library):
    """nvmath.bindings.cusolverDn."""

    def create_params(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_buffer_size"):
            size = _ON_DEVICE, _ON_HOST
            return lambda *arguments: size if name.startswith("x") else size[0] // 16
        if name in ("sorgqr", "dorgqr", "cungqr", "zungqr"):
            dtype = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}[name[0]]
            return lambda *arguments: self._reflections(dtype, *arguments)
        raise AttributeError(name)

    def _queue(self, handle: int, space: tuple[Any, ...], info: int, work: Callable[[], int | None]) -> None:
        on_device, device_bytes, on_host, host_bytes = space
        assert (device_bytes, host_bytes) == (_ON_DEVICE, _ON_HOST)

        def run() -> None:
            _elements(on_device, device_bytes, np.uint8)[:] = 0xAB
            _elements(on_host, host_bytes, np.uint8)[:] = 0xAB
            _elements(info, 1, np.int32)[0] = work() or 0

        self.put(handle, run)

    def xpotrf(
        self, handle: int, params: int, uplo: int, n: int, kind: int, a: int, lda: int, compute: int, *rest: Any
    ) -> None:
        assert uplo == 0 and lda == n and kind == compute
        *space, info = rest

        def work() -> int | None:
            x = _elements(a, (n, n), _DTYPES[kind])
            try:
                factor = np.linalg.cholesky(x)
            except np.linalg.LinAlgError:
                return 1
            x[np.tril_indices(n)] = factor[np.tril_indices(n)]

        self._queue(handle, tuple(space), info, work)

    def xgetrf(
        self, handle: int, params: int, m: int, n: int, kind: int, a: int, lda: int, pivots: int, compute: int,
        *rest: Any,
    ) -> None:  # fmt: skip
        assert m == n == lda and kind == compute
        *space, info = rest
        self._queue(
            handle, tuple(space), info,
            lambda: _lu(_elements(a, (n, n), _DTYPES[kind]), _elements(pivots, n, np.int64)),
        )  # fmt: skip

    def xgetrs(
        self, handle: int, params: int, trans: int, n: int, columns: int, kind: int, a: int, lda: int, pivots: int,
        kind_b: int, b: int, ldb: int, info: int,
    ) -> None:  # fmt: skip
        assert lda == ldb == n and kind == kind_b and trans in (0, 1)

        def work() -> None:
            x = _elements(a, (n, n), _DTYPES[kind])
            _solve(x, _elements(pivots, n, np.int64), _elements(b, (n, columns), x.dtype), trans)
            _elements(info, 1, np.int32)[0] = 0

        self.put(handle, work)

    def xgeqrf(
        self, handle: int, params: int, m: int, n: int, kind: int, a: int, lda: int, kind_tau: int, tau: int,
        compute: int, *rest: Any,
    ) -> None:  # fmt: skip
        assert lda == m and kind == kind_tau == compute
        *space, info = rest

        def work() -> None:
            x = _elements(a, (m, n), _DTYPES[kind])
            stored, scales = np.linalg.qr(x, "raw")
            x[:] = stored.T
            _elements(tau, min(m, n), x.dtype)[:] = scales

        self._queue(handle, tuple(space), info, work)

    def _reflections(
        self, dtype: Any, handle: int, m: int, n: int, k: int, a: int, lda: int, tau: int, space: int, size: int,
        info: int,
    ) -> None:  # fmt: skip
        assert lda == m >= n >= k

        def work() -> None:
            x = _elements(a, (m, n), dtype)
            q = np.eye(m, dtype=dtype)
            for i, scale in enumerate(_elements(tau, k, dtype)):
                v = np.concatenate((np.zeros(i), [1], x[i + 1 :, i]))
                q = q @ (np.eye(m) - scale * np.outer(v, v.conj()))
            x[:] = q[:, :n]
            _elements(info, 1, np.int32)[0] = 0

        self.put(handle, work)

    def xgesvd(
        self, handle: int, params: int, left: int, right: int, m: int, n: int, kind: int, a: int, lda: int, real: int,
        s: int, kind_u: int, u: int, ldu: int, kind_v: int, vt: int, ldv: int, compute: int, *rest: Any,
    ) -> None:  # fmt: skip
        assert m >= n and lda == ldu == m and ldv == n and kind == kind_u == kind_v == compute and real == kind & 1
        *space, info = rest

        def work() -> None:
            x = _elements(a, (m, n), _DTYPES[kind])
            values = _elements(s, n, _DTYPES[real])
            if left == right == ord("N"):
                values[:] = np.linalg.svd(x, compute_uv=False)
            else:
                assert right == ord("A")
                columns = {ord("A"): m, ord("S"): n}[left]
                found = np.linalg.svd(x, left == ord("A"))
                _elements(u, (m, columns), x.dtype)[:], values[:], _elements(vt, (n, n), x.dtype)[:] = found
            x[:] = np.nan

        self._queue(handle, tuple(space), info, work)

    def xsyevd(
        self, handle: int, params: int, vectors: int, uplo: int, n: int, kind: int, a: int, lda: int, real: int,
        w: int, compute: int, *rest: Any,
    ) -> None:  # fmt: skip
        assert uplo == 1 and lda == n and kind == compute and real == kind & 1
        *space, info = rest

        def work() -> None:
            x = _elements(a, (n, n), _DTYPES[kind])
            found = np.linalg.eigh(_hermitian(x))
            _elements(w, n, _DTYPES[real])[:] = found.eigenvalues
            x[:] = found.eigenvectors if vectors else np.nan

        self._queue(handle, tuple(space), info, work)

    def xsyev_batched(self, handle: int, params: int, *arguments: Any) -> None:
        vectors, uplo, n, kind, a, lda, real, w, compute, *space, info, count = arguments
        for i in range(count):
            at = a + i * n * n * np.dtype(_DTYPES[kind]).itemsize, lda, real, w + i * n * (4 << real)
            self.xsyevd(handle, params, vectors, uplo, n, kind, *at, compute, *space, info + 4 * i)

    def xgeev(
        self, handle: int, params: int, left: int, right: int, n: int, kind: int, a: int, lda: int, kind_w: int,
        w: int, kind_left: int, vl: int, ldl: int, kind_right: int, v: int, ldv: int, compute: int, *rest: Any,
    ) -> None:  # fmt: skip
        assert not left and kind == kind_left == kind_right == compute and kind_w == kind | 4 and lda == ldv == n
        *space, info = rest

        def work() -> None:
            x = _elements(a, (n, n), _DTYPES[kind])
            found = np.linalg.eig(x)
            _elements(w, n, _DTYPES[kind_w])[:] = found.eigenvalues
            if right:
                vectors: Any = found.eigenvectors.copy()
                for i in range(n):
                    if x.dtype.kind == "f" and np.imag(found.eigenvalues[i]) > 0:
                        vectors[:, i + 1] = vectors[:, i].imag
                _elements(v, (n, n), x.dtype)[:] = vectors if x.dtype.kind == "c" else vectors.real
            x[:] = np.nan

        self._queue(handle, tuple(space), info, work)


class Blas(_Library):
    """nvmath.bindings.cublas."""

    def __getattr__(self, name: str) -> Any:
        letter, rest = name[0], name[1:]
        dtype = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}[letter]
        return partial({"getrf_batched": self._getrf, "getrs_batched": self._getrs}[rest], dtype)

    def _getrf(self, dtype: Any, handle: int, n: int, a: int, lda: int, pivots: int, info: int, count: int) -> None:
        assert lda == n

        def work() -> None:
            for i, address in enumerate(_elements(a, count, np.int64)):
                rows = _elements(pivots + 4 * i * n, n, np.int32)
                _elements(info, count, np.int32)[i] = _lu(_elements(int(address), (n, n), dtype), rows)

        self.put(handle, work)

    def _getrs(
        self, dtype: Any, handle: int, trans: int, n: int, columns: int, a: int, lda: int, pivots: int, b: int,
        ldb: int, info: int, count: int,
    ) -> None:  # fmt: skip
        assert lda == ldb == n and trans in (0, 1)
        _elements(info, 1, np.int32)[0] = 0  # on the host

        def work() -> None:
            places = _elements(a, count, np.int64), _elements(b, count, np.int64)
            for i, (at_a, at_b) in enumerate(zip(*places, strict=True)):
                rows = _elements(pivots + 4 * i * n, n, np.int32)
                _solve(_elements(int(at_a), (n, n), dtype), rows, _elements(int(at_b), (n, columns), dtype), trans)

        self.put(handle, work)


class Fourier(_Library):
    """nvmath.bindings.cufft."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, tuple[Any, ...]] = {}
        self.spaces: dict[int, int] = {}

    def set_auto_allocation(self, plan: int, automatic: int) -> None:
        assert not automatic

    def destroy(self, plan: int) -> None:
        del self.plans[plan], self.spaces[plan]

    def set_work_area(self, plan: int, address: int) -> None:
        self.spaces[plan] = address

    def xt_make_plan_many(
        self, plan: int, rank: int, n: list[int], before: list[int], stride: int, distance: int, source: int,
        after: list[int], stride_after: int, distance_after: int, target: int, batch: int, kind: int,
    ) -> int:  # fmt: skip
        assert rank == len(n) == len(before) == len(after) <= 3 and stride == stride_after == 1
        assert (distance, distance_after) == (prod(before), prod(after)) and kind == max(source, target)
        self.plans[plan] = n, (batch, *before), source, (batch, *after), target
        return _ON_DEVICE

    def xt_exec(self, plan: int, source: int, target: int, direction: int) -> None:
        n, before, kind, after, to = self.plans[plan]
        space = self.spaces[plan]
        # The library's loads and stores are of whole complex numbers.
        assert source % 8 == target % 8 == 0 and direction in (-1, 1)

        def work() -> None:
            _elements(space, _ON_DEVICE, np.uint8)[:] = 0xAB
            x = _elements(source, before[::-1], _DTYPES[kind]).T
            y = _elements(target, after[::-1], _DTYPES[to]).T
            axes = range(1, len(before))
            if kind < 4:
                y[:] = np.fft.rfftn(x, axes=axes)
            elif to < 4:
                assert len(n) == 1
                assert not x[:, 0].imag.any() and (n[0] % 2 or not x[:, -1].imag.any())
                y[:] = np.fft.irfft(x, n[0], norm="forward")
                x[:] = np.nan
            else:
                y[:] = np.fft.fftn(x, axes=axes) if direction < 0 else np.fft.ifftn(x, axes=axes, norm="forward")

        self.put(plan, work)


def _hermitian(x: Any) -> Any:
    """The matrix that an upper triangle stands for."""
    above = np.triu(x, 1)
    return above + above.conj().T + np.diag(x.diagonal().real).astype(x.dtype)


def _lu(x: np.ndarray, pivots: np.ndarray) -> int:
    """LAPACK's getrf."""
    singular = 0
    for j in range(len(x)):
        p = j + int(np.argmax(abs(x[j:, j])))
        pivots[j] = p + 1
        x[[j, p]] = x[[p, j]]
        if x[j, j] == 0:
            singular = singular or j + 1
            continue
        x[j + 1 :, j] /= x[j, j]
        x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
    return singular


def _solve(x: Any, pivots: Any, right: Any, trans: int) -> None:
    """LAPACK's getrs."""
    matrix = (np.tril(x, -1) + np.eye(len(x), dtype=x.dtype)) @ np.triu(x)
    for i, p in reversed(list(enumerate(pivots))):
        matrix[[i, p - 1]] = matrix[[p - 1, i]]
    right[:] = np.linalg.solve(matrix.T if trans else matrix, right)


def modules() -> dict[str, Any]:
    """The bindings by name."""
    return {
        "cublas": Blas(),
        "cufft": Fourier(),
        "cusolverDn": Solver(),
        "cusolver": SimpleNamespace(get_version=lambda: 12000),
    }
