"""cuSOLVER: factorisations of matrices in device memory, in place; cuBLAS for many small ones at once.

Matrices are stored by columns, `count` of them one after another.  Every function queues its work on the device's
stream and writes a 32-bit `info` for each matrix, as LAPACK's functions do.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ..device import CudaDevice
from . import copies, driver, libraries, streams
from .libraries import TYPES, Space
from .memory import Buffer, allocate

LOWER, UPPER = 0, 1
#: Matrices of at most so many rows are factored side by side if there are several.
_SMALL = 128
TRANSPOSED = 1
_INFO = 4


@cache
def solver(device: CudaDevice) -> Solver:
    """A device's solver."""
    return Solver(device)


class Solver:
    """cuSOLVER on a device, for one thread at a time: the one that holds `lock`."""

    __slots__ = ("device", "lock", "api", "handle", "params", "_blas")

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.api = libraries.binding("cusolverDn")
        self.handle = libraries.create(self.api.create, device)
        self.params = self.api.create_params()
        self.api.set_stream(self.handle, streams.stream(device))
        self._blas: int | None = None

    @property
    def general(self) -> bool:
        """Whether `eig` is there: from CUDA 12.6.2 on."""
        return libraries.binding("cusolver").get_version() >= 11701

    def __enter__(self) -> Solver:
        self.lock.acquire()
        driver.context(self.device.index).enter()
        return self

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def _space(self, name: str, *arguments: int) -> Space:
        sizes = getattr(self.api, f"{name}_buffer_size")(self.handle, self.params, *arguments)
        return Space(self.device, sizes)

    def cholesky(self, dtype: np.dtype, n: int, count: int, a: int, info: int) -> None:
        """The lower factor of each matrix, from its lower triangle: faster than the upper one."""
        kind, step = TYPES[dtype], n * n * dtype.itemsize
        with self._space("xpotrf", LOWER, n, kind, a, n, kind) as space:
            for i in range(count):
                self.api.xpotrf(
                    self.handle, self.params, LOWER, n, kind, a + i * step, n, kind, *space.arguments,
                    info + i * _INFO,
                )  # fmt: skip

    def _many(self, name: str, dtype: np.dtype) -> Callable[..., Any]:
        """A function of cuBLAS for many matrices at once, with its handle."""
        api = libraries.binding("cublas")
        if self._blas is None:
            self._blas = libraries.create(api.create, self.device)
            api.set_stream(self._blas, streams.stream(self.device))
        letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[dtype.char]
        return partial(getattr(api, f"{letter}{name}_batched"), self._blas)

    def _addresses(self, start: int, step: int, count: int) -> Buffer:
        """The addresses of matrices, in device memory."""
        addresses = np.arange(count, dtype=np.int64) * step + start
        memory = allocate(self.device, addresses.nbytes)
        copies.copy_from_host(addresses, memory)
        return memory

    def lu(self, dtype: np.dtype, n: int, count: int, a: int, pivots: int, info: int) -> None:
        """Both triangular factors of each matrix, and the row that each was exchanged for, from 1 on: see `pivots`."""
        kind, step = TYPES[dtype], n * n * dtype.itemsize
        if self.pivots(n, count) == np.int32:
            at = self._addresses(a, step, count)
            self._many("getrf", dtype)(n, at.address, n, pivots, info, count)
            return
        with self._space("xgetrf", n, n, kind, a, n, kind) as space:
            for i in range(count):
                self.api.xgetrf(
                    self.handle, self.params, n, n, kind, a + i * step, n, pivots + i * n * 8, kind,
                    *space.arguments, info + i * _INFO,
                )  # fmt: skip

    @staticmethod
    def pivots(n: int, count: int) -> np.dtype:
        """The type of the numbers of rows."""
        return np.dtype(np.int32 if count > 1 and n <= _SMALL else np.int64)

    def solve(
        self, dtype: np.dtype, n: int, columns: int, count: int, a: int, pivots: int, b: int, info: int,
        transposed: bool,
    ) -> None:  # fmt: skip
        """The solutions, in place of the right-hand sides, by factors from `lu`."""
        kind, step, right = TYPES[dtype], n * n * dtype.itemsize, n * columns * dtype.itemsize
        trans = TRANSPOSED if transposed else 0
        if self.pivots(n, count) == np.int32:
            at_a, at_b = self._addresses(a, step, count), self._addresses(b, right, count)
            wrong = ctypes.c_int32()  # the number of an argument that is
            self._many("getrs", dtype)(
                trans, n, columns, at_a.address, n, pivots, at_b.address, n, ctypes.addressof(wrong), count
            )
            return
        for i in range(count):
            self.api.xgetrs(
                self.handle, self.params, trans, n, columns, kind, a + i * step, n, pivots + i * n * 8, kind,
                b + i * right, n, info + i * _INFO,
            )  # fmt: skip

    def qr(self, dtype: np.dtype, m: int, n: int, count: int, a: int, tau: int, info: int) -> None:
        """The upper triangular factor, with the reflections below it, and their scales."""
        kind, step, scales = TYPES[dtype], m * n * dtype.itemsize, min(m, n) * dtype.itemsize
        with self._space("xgeqrf", m, n, kind, a, m, kind, tau, kind) as space:
            for i in range(count):
                self.api.xgeqrf(
                    self.handle, self.params, m, n, kind, a + i * step, m, kind, tau + i * scales, kind,
                    *space.arguments, info + i * _INFO,
                )  # fmt: skip

    def reflections(self, dtype: np.dtype, m: int, n: int, k: int, count: int, a: int, tau: int, info: int) -> None:
        """The first n columns of a product of k reflections from `qr`, in their place."""
        letter = {"f": "sorgqr", "d": "dorgqr", "F": "cungqr", "D": "zungqr"}[dtype.char]
        size = getattr(self.api, f"{letter}_buffer_size")(self.handle, m, n, k, a, m, tau)
        step, scales = m * n * dtype.itemsize, k * dtype.itemsize
        with Space(self.device, (size * dtype.itemsize, 0)) as space:
            for i in range(count):
                getattr(self.api, letter)(
                    self.handle, m, n, k, a + i * step, m, tau + i * scales, space.arguments[0], size,
                    info + i * _INFO,
                )  # fmt: skip

    def svd(
        self, dtype: np.dtype, m: int, n: int, count: int, a: int, s: int, u: int, vt: int, info: int, full: bool
    ) -> None:
        """Singular values of matrices with m >= n and, unless their addresses are 0, the singular vectors."""
        kind, real = TYPES[dtype], TYPES[dtype] & 1
        columns = m if full else n
        left, right = (ord("A" if full else "S"), ord("A")) if u else (ord("N"), ord("N"))
        size = dtype.itemsize
        steps = m * n * size, n * (4 << real), m * columns * size if u else 0, n * n * size if u else 0
        with self._space("xgesvd", left, right, m, n, kind, a, m, real, s, kind, u, m, kind, vt, n, kind) as space:
            for i in range(count):
                at_a, at_s, at_u, at_v = (x + i * step for x, step in zip((a, s, u, vt), steps))
                self.api.xgesvd(
                    self.handle, self.params, left, right, m, n, kind, at_a, m, real, at_s, kind, at_u, m, kind, at_v,
                    n, kind, *space.arguments, info + i * _INFO,
                )  # fmt: skip

    def eigh(self, dtype: np.dtype, n: int, count: int, a: int, w: int, info: int, vectors: bool) -> None:
        """Eigenvalues of Hermitian matrices, from their upper triangles, and eigenvectors in place of the matrices."""
        kind, real = TYPES[dtype], TYPES[dtype] & 1
        if count > 1 and hasattr(self.api, "xsyev_batched"):
            arguments = int(vectors), UPPER, n, kind, a, n, real, w, kind
            with self._space("xsyev_batched", *arguments, count) as space:
                self.api.xsyev_batched(self.handle, self.params, *arguments, *space.arguments, info, count)
            return
        step = n * n * dtype.itemsize
        with self._space("xsyevd", int(vectors), UPPER, n, kind, a, n, real, w, kind) as space:
            for i in range(count):
                self.api.xsyevd(
                    self.handle, self.params, int(vectors), UPPER, n, kind, a + i * step, n, real,
                    w + i * n * (4 << real), kind, *space.arguments, info + i * _INFO,
                )  # fmt: skip

    def eig(self, dtype: np.dtype, n: int, count: int, a: int, w: int, v: int, info: int) -> None:
        """Eigenvalues, complex, and, unless the address is 0, right eigenvectors.

        The eigenvectors of a real matrix are real: those of a conjugate pair are the real and the imaginary part.
        """
        kind = TYPES[dtype]
        values = kind | 4
        step, size = n * n * dtype.itemsize, 8 << (kind & 1)
        wanted = int(v != 0)
        with self._space("xgeev", 0, wanted, n, kind, a, n, values, w, kind, 0, n, kind, v, n, kind) as space:
            for i in range(count):
                at_v = v + i * step if v else 0
                self.api.xgeev(
                    self.handle, self.params, 0, wanted, n, kind, a + i * step, n, values, w + i * n * size, kind, 0,
                    n, kind, at_v, n, kind, *space.arguments, info + i * _INFO,
                )  # fmt: skip
