"""Linear algebra on a GPU, by cuSOLVER.

The library stores matrices by columns and this one by rows, so that what it gets is the transpose of a matrix, and
what it returns is seen transposed; where that will not do, the copy that it works on is a transposed one.  A call runs
at once: what it raises depends on the elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np

from . import checks, cuda, flush
from .array import Array, in_order
from .compiler.expr import Shape, buffer
from .compiler.ops import TABLE
from .creation import eye, tril, triu, zeros
from .dtypes import int32, real_type
from .elementwise import where
from .host import home
from .manipulation import broadcast_to, concatenate, diagonal, matrix_transpose, roll
from .operands import elementwise, placed
from .runtime import profiler
from .runtime.cuda import streams
from .runtime.cuda.memory import Buffer, allocate
from .runtime.cuda.solver import Solver, solver
from .runtime.device import CudaDevice


def place(name: str, *arrays: Array) -> CudaDevice | None:
    """The GPU that computes a function of arrays, if one does: there is nothing to compute without elements."""
    device = home(name, arrays)
    return device if isinstance(device, CudaDevice) and all(a.size for a in arrays) else None


class _Call:
    """One library call: its operands, its results, and whether it succeeded."""

    def __init__(self, name: str, device: CudaDevice, count: int) -> None:
        self.name = name
        self.device = device
        self.count = count
        self.sources: list[Buffer] = []
        self.results: list[Buffer] = []
        self.info = self.result(4 * count)

    def result(self, nbytes: int) -> Buffer:
        memory = allocate(self.device, nbytes)
        self.results.append(memory)
        return memory

    def own(self, x: Array) -> Buffer:
        """A copy of an array's elements, in row-major order, that may be overwritten."""
        memory = owned(x, self.device)
        self.sources.append(memory)
        self.results.append(memory)
        return memory

    @contextmanager
    def running(self) -> Iterator[Solver]:
        """Queue work inside a `with` block."""
        checks.used[self.device] = None
        watched = bool(profiler.active)
        with solver(self.device) as library:
            before = streams.Event(self.device, timing=True).record() if watched else None
            yield library
            if before is not None:
                after = streams.Event(self.device, timing=True).record()
                nbytes = sum([m.nbytes for m in self.results])
                profiler.note(self.name, lambda: before.elapsed(after), nbytes, self.count, kind="cuSOLVER")
        if checks.suspects:
            checks.spread(None, self.sources, self.results)

    def check(self, message: str) -> None:
        """Raise an error if the library reports one of a matrix."""
        info = cuda.download(self.info, int32, 0, (self.count,), (1,))
        if info.any():
            raise np.linalg.LinAlgError(message)


def owned(x: Array, device: CudaDevice) -> Buffer:
    """A copy of an array's elements, in row-major order, that nobody else sees."""
    e = placed(in_order(x._read()), device)
    flush.evaluate([e])
    memory, offset, _ = e.attrs
    return cuda.copied(memory, offset * e.dtype.itemsize, e.nbytes, device)


def _array(memory: Buffer, shape: Shape, dtype: np.dtype) -> Array:
    return Array(buffer(memory, shape, dtype, device=memory.device))


def _conjugate(x: Array) -> Array:
    return x.conj() if x.dtype.kind == "c" else x


def cholesky(name: str, device: CudaDevice, a: Array) -> Array:
    """The lower factor."""
    n, count = a.shape[-1], prod(a.shape[:-2])
    call = _Call(name, device, count)
    work = call.own(matrix_transpose(a))
    with call.running() as library:
        library.cholesky(a.dtype, n, count, work.address, call.info.address)
    call.check("Matrix is not positive definite")
    return tril(matrix_transpose(_array(work, a.shape, a.dtype)))


def _factors(call: _Call, a: Array) -> tuple[Buffer, Buffer]:
    """Triangular factors of the transposed matrices, and the exchanges of rows."""
    n = a.shape[-1]
    work, pivots = call.own(a), call.result(8 * n * call.count)
    with call.running() as library:
        library.lu(a.dtype, n, call.count, work.address, pivots.address, call.info.address)
    return work, pivots


def inv(name: str, device: CudaDevice, a: Array) -> Array:
    """The inverse: the transposed matrix times the transposed inverse is the identity."""
    n, count = a.shape[-1], prod(a.shape[:-2])
    call = _Call(name, device, count)
    work, pivots = _factors(call, a)
    call.check("Singular matrix")
    b = call.own(broadcast_to(eye(n, dtype=a.dtype, device=device), a.shape))
    with call.running() as library:
        library.solve(a.dtype, n, n, count, work.address, pivots.address, b.address, call.info.address, False)
    return _array(b, a.shape, a.dtype)


def solve(name: str, device: CudaDevice, a: Array, b: Array) -> Array:
    """The solution for matrices and right-hand sides, in columns, with the same leading axes."""
    count, (n, columns) = prod(a.shape[:-2]), b.shape[-2:]
    call = _Call(name, device, count)
    work, pivots = _factors(call, a)
    call.check("Singular matrix")
    x = call.own(matrix_transpose(b))
    with call.running() as library:
        library.solve(a.dtype, n, columns, count, work.address, pivots.address, x.address, call.info.address, True)
    return matrix_transpose(_array(x, (*b.shape[:-2], columns, n), a.dtype))


def slogdet(name: str, device: CudaDevice, a: Array) -> tuple[Array, Array]:
    """Sign and logarithm of the absolute determinant."""
    diagonals, sign = _determinant(name, device, a)
    sizes = abs(diagonals)
    zero = elementwise(TABLE["equal"], sizes, 0).any(axis=-1)
    if a.dtype.kind == "c":
        sign = sign * (diagonals / where(sizes == 0, 1, sizes)).prod(axis=-1)
    else:
        sign = sign * where(diagonals < 0, -1, 1).astype(a.dtype).prod(axis=-1)
    return where(zero, 0, sign), elementwise(TABLE["log"], sizes).sum(axis=-1)


def det(name: str, device: CudaDevice, a: Array) -> Array:
    """The determinant."""
    diagonals, sign = _determinant(name, device, a)
    return sign * diagonals.prod(axis=-1)


def _determinant(name: str, device: CudaDevice, a: Array) -> tuple[Array, Array]:
    """The diagonal of a triangular matrix with the same determinant but for its sign, and that sign."""
    n, lead = a.shape[-1], a.shape[:-2]
    work, pivots = _factors(_Call(name, device, prod(lead)), a)
    rows = _array(pivots, (*lead, n), Solver.pivots(n, prod(lead)))
    exchanged = elementwise(TABLE["not_equal"], rows, np.arange(1, n + 1))
    sign = 1 - 2 * (exchanged.sum(axis=-1) & 1)
    return diagonal(_array(work, a.shape, a.dtype), 0, -2, -1), sign.astype(a.dtype)


def qr(name: str, device: CudaDevice, a: Array, mode: str) -> Array | tuple[Array, Array]:
    """Factors as numpy.linalg.qr gives them in its modes."""
    *lead, m, n = a.shape
    k, count = min(m, n), prod(lead)
    call = _Call(name, device, count)
    work, tau = call.own(matrix_transpose(a)), call.result(k * count * a.itemsize)
    with call.running() as library:
        library.qr(a.dtype, m, n, count, work.address, tau.address, call.info.address)
    stored = _array(work, (*lead, n, m), a.dtype)
    if mode == "raw":
        return stored, _array(tau, (*lead, k), a.dtype)
    columns = m if mode == "complete" else k
    r = triu(matrix_transpose(stored)[..., :columns, :])
    if mode == "r":
        return r
    reflections = stored[..., :columns, :]
    if columns > n:
        reflections = concatenate((reflections, zeros((*lead, columns - n, m), a.dtype, device=device)), -2)
    q = call.own(reflections)
    with call.running() as library:
        library.reflections(a.dtype, m, columns, k, count, q.address, tau.address, call.info.address)
    return matrix_transpose(_array(q, (*lead, columns, m), a.dtype)), r


def svd(name: str, device: CudaDevice, a: Array, full: bool) -> tuple[Array, Array, Array]:
    """Left singular vectors, singular values and right singular vectors."""
    s, u, vt = _svd(name, device, a, full, True)
    assert u is not None and vt is not None
    return (matrix_transpose(u), s, matrix_transpose(vt)) if a.shape[-2] > a.shape[-1] else (vt, s, u)


def svdvals(name: str, device: CudaDevice, a: Array) -> Array:
    """Singular values, the largest first."""
    return _svd(name, device, a, False, False)[0]


def _svd(
    name: str, device: CudaDevice, a: Array, full: bool, vectors: bool
) -> tuple[Array, Array | None, Array | None]:
    """Singular values and vectors, both transposed, of the matrices, or of their transposes if these are higher."""
    *lead, m, n = a.shape
    high, k, count = max(m, n), min(m, n), prod(lead)
    columns = high if full else k
    call = _Call(name, device, count)
    work = call.own(matrix_transpose(a) if m > n else a)
    real = real_type(a.dtype)
    s = call.result(count * k * real.itemsize)
    u = call.result(count * columns * high * a.itemsize) if vectors else None
    vt = call.result(count * k * k * a.itemsize) if vectors else None
    with call.running() as library:
        library.svd(
            a.dtype, high, k, count, work.address, s.address, u.address if u else 0, vt.address if vt else 0,
            call.info.address, full,
        )  # fmt: skip
    call.check("SVD did not converge")
    values = _array(s, (*lead, k), real)
    if u is None or vt is None:
        return values, None, None
    return values, _array(u, (*lead, columns, high), a.dtype), _array(vt, (*lead, k, k), a.dtype)


def eigh(name: str, device: CudaDevice, a: Array, vectors: bool = True) -> tuple[Array, Array]:
    """Eigenvalues of Hermitian matrices, from their lower triangles, and eigenvectors (if not wanted, no matter what).

    The transposed matrix is the conjugate one, and so are its eigenvectors.
    """
    n, lead = a.shape[-1], a.shape[:-2]
    call = _Call(name, device, prod(lead))
    real = real_type(a.dtype)
    work, w = call.own(a), call.result(call.count * n * real.itemsize)
    with call.running() as library:
        library.eigh(a.dtype, n, call.count, work.address, w.address, call.info.address, vectors)
    call.check("Eigenvalues did not converge")
    v = _conjugate(matrix_transpose(_array(work, a.shape, a.dtype)))
    return _array(w, (*lead, n), real), v


def eig(name: str, device: CudaDevice, a: Array, vectors: bool = True) -> tuple[Array, Array | None]:
    """Eigenvalues and eigenvectors, complex."""
    n, lead = a.shape[-1], a.shape[:-2]
    call = _Call(name, device, prod(lead))
    to = np.result_type(a.dtype, np.complex64)
    work, w = call.own(matrix_transpose(a)), call.result(call.count * n * to.itemsize)
    v = call.result(work.nbytes) if vectors else None
    with call.running() as library:
        library.eig(a.dtype, n, call.count, work.address, w.address, v.address if v else 0, call.info.address)
    call.check("Eigenvalues did not converge")
    values = _array(w, (*lead, n), to)
    if v is None:
        return values, None
    columns = matrix_transpose(_array(v, a.shape, a.dtype))
    if a.dtype.kind == "c":
        return values, columns
    # The first of a conjugate pair of eigenvalues has the positive imaginary part.
    part = values.imag[..., None, :]
    first = columns + 1j * roll(columns, -1, -1)
    second = roll(columns, 1, -1) - 1j * columns
    return values, where(part > 0, first, where(part < 0, second, columns)).astype(to)
