"""The linalg namespace: products, and what a library computes: NumPy or, on a GPU, cuSOLVER."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from . import manipulation, products, solvers
from .array import Array
from .compiler.ops import TABLE
from .dtypes import real_type, result_type
from .elementwise import cast_to, where
from .host import at_once, call
from .manipulation import broadcast_to, expand_dims, matrix_transpose, moveaxis
from .operands import as_array, axis_tuple, broadcast_shapes, elementwise
from .products import cross, matmul, tensordot, vecdot

__all__ = [
    "matmul", "vecdot", "outer", "tensordot", "matrix_transpose", "diagonal", "trace", "cross", "inv", "det", "solve",
    "cholesky", "pinv", "qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "slogdet", "lstsq",
    "matrix_rank", "matrix_power", "multi_dot", "vector_norm", "matrix_norm", "norm", "cond", "LinAlgError",
]  # fmt: skip


# -- products and diagonals -------------------------------------------------------------------------------------------
def outer(x1: Any, x2: Any, /) -> Array:
    """Products of each pair of elements of two vectors."""
    a, b = as_array(x1), as_array(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={a.ndim} and x2.ndim={b.ndim}.")
    return products.outer(a, b)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """A view of the diagonals of matrices."""
    return manipulation.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Sum along the diagonals of matrices."""
    return products.trace(x, offset, -2, -1, dtype)


# -- what a library computes ------------------------------------------------------------------------------------------
def _inexact(x: Any) -> Array:
    """The operand as LAPACK takes it: of a single or double precision type."""
    a = as_array(x)
    if a.dtype.kind in "iub":
        return a.astype(np.float64)
    if a.dtype.itemsize == 2:
        raise TypeError(f"array type {a.dtype} is unsupported in linalg")
    return a


def _square(a: Array) -> None:
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")


def inv(x: Any, /) -> Array:
    """Inverse of square matrices."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.inv", a):
        return solvers.inv("linalg.inv", gpu, a)
    return call("linalg.inv", np.linalg.inv, (a,), a.shape, a.dtype)


def det(x: Any, /) -> Array:
    """Determinant of square matrices."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.det", a):
        return solvers.det("linalg.det", gpu, a)
    return call("linalg.det", np.linalg.det, (a,), a.shape[:-2], a.dtype)


def solve(x1: Any, x2: Any, /) -> Array:
    """Solution of x1 @ result = x2."""
    a, b = _inexact(x1), _inexact(x2)
    _square(a)
    to = result_type(a.dtype, b.dtype)
    column = b.ndim == 1
    if b.shape[-1 if column else -2] != a.shape[-1]:
        raise ValueError(f"solve: shapes {a.shape} and {b.shape} do not match")
    shape = b.shape if column else (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])
    if column:
        shape = (*a.shape[:-2], b.shape[0])
    a, b = cast_to(a, to), cast_to(b, to)
    if gpu := solvers.place("linalg.solve", a, b):
        right = b[:, None] if column else b
        lead = shape[:-1] if column else shape[:-2]
        a, right = (broadcast_to(v, (*lead, *v.shape[-2:])) for v in (a, right))
        result = solvers.solve("linalg.solve", gpu, a, right)
        return result[..., 0] if column else result
    return call("linalg.solve", np.linalg.solve, (a, b), shape, to)


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """Cholesky factor of positive definite matrices."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.cholesky", a):
        result = solvers.cholesky("linalg.cholesky", gpu, a)
    else:
        result = call("linalg.cholesky", np.linalg.cholesky, (a,), a.shape, a.dtype)
    return elementwise(TABLE["conjugate"], matrix_transpose(result)) if upper else result


def pinv(x: Any, /, *, rtol: Any = None) -> Array:
    """Pseudo-inverse of matrices; computed at once."""
    a = _inexact(x)
    if not solvers.place("linalg.pinv", a):
        return at_once("linalg.pinv", lambda m: np.linalg.pinv(m, rtol=_plain(rtol)), (a,))
    u, s, vh = svd(a, full_matrices=False)
    kept = s > _tolerance(a, s, rtol)[..., None]
    inverse = where(kept, 1 / where(kept, s, 1), 0)
    return matmul(_adjoint(vh), inverse[..., None] * _adjoint(u))


def _adjoint(a: Array) -> Array:
    transposed = matrix_transpose(a)
    return elementwise(TABLE["conjugate"], transposed) if a.dtype.kind == "c" else transposed


def _tolerance(a: Array, s: Array, rtol: Any) -> Array:
    """How small a singular value counts as zero."""
    if rtol is None:
        rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps
    return s[..., 0] * as_array(rtol).astype(s.dtype)


def _plain(x: Any) -> Any:
    return x._host() if isinstance(x, Array) else x


def qr(x: Any, /, *, mode: Any = "reduced") -> Any:
    """Orthogonal and triangular factor; computed at once."""
    a = _inexact(x)
    gpu = solvers.place("linalg.qr", a)
    if gpu is None or a.ndim < 2 or mode not in ("reduced", "complete", "r", "raw"):
        return at_once("linalg.qr", lambda m: np.linalg.qr(m, mode), (a,))
    result = solvers.qr("linalg.qr", gpu, a, mode)
    return result if mode in ("r", "raw") else _named("qr", result)


@cache
def _result(function: str) -> Any:
    """NumPy's named tuple for the results of a function."""
    return type(getattr(np.linalg, function)(np.ones((1, 1))))


def _named(function: str, results: Any) -> Any:
    return _result(function)(*results)


def svd(x: Any, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular value decomposition; computed at once."""
    a = _inexact(x)
    gpu = solvers.place("linalg.svd", a)
    if gpu is None or a.ndim < 2:
        return at_once("linalg.svd", lambda m: np.linalg.svd(m, full_matrices, compute_uv), (a,))
    return _named("svd", solvers.svd("linalg.svd", gpu, a, full_matrices)) if compute_uv else svdvals(a)


def svdvals(x: Any, /) -> Array:
    """Singular values, the largest first."""
    a = _inexact(x)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if gpu := solvers.place("linalg.svdvals", a):
        return solvers.svdvals("linalg.svdvals", gpu, a)
    shape = (*a.shape[:-2], min(a.shape[-2:]))
    return call("linalg.svdvals", np.linalg.svdvals, (a,), shape, real_type(a.dtype))


def eigh(x: Any, /) -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices; computed at once."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.eigh", a):
        return _named("eigh", solvers.eigh("linalg.eigh", gpu, a))
    return at_once("linalg.eigh", np.linalg.eigh, (a,))


def eigvalsh(x: Any, /) -> Array:
    """Eigenvalues of Hermitian matrices."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.eigvalsh", a):
        return solvers.eigh("linalg.eigvalsh", gpu, a, vectors=False)[0]
    return call("linalg.eigvalsh", np.linalg.eigvalsh, (a,), a.shape[:-1], real_type(a.dtype))


def _complex(values: Any, dtype: np.dtype) -> Any:
    return values.astype(np.result_type(dtype, np.complex64))


def eig(x: Any, /) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex; computed at once."""
    a = _inexact(x)
    _square(a)
    if gpu := _general("linalg.eig", a):
        return _named("eig", solvers.eig("linalg.eig", gpu, a))

    def run(m: np.ndarray) -> Any:
        result = np.linalg.eig(m)
        return type(result)(*(_complex(r, m.dtype) for r in result))

    return at_once("linalg.eig", run, (a,))


def eigvals(x: Any, /) -> Array:
    """Eigenvalues of square matrices, complex; computed at once."""
    a = _inexact(x)
    _square(a)
    if gpu := _general("linalg.eigvals", a):
        return solvers.eig("linalg.eigvals", gpu, a, vectors=False)[0]
    return at_once("linalg.eigvals", lambda m: _complex(np.linalg.eigvals(m), m.dtype), (a,))


def _general(name: str, a: Array) -> Any:
    """The GPU that computes eigenvalues of matrices that are not Hermitian, which older libraries cannot."""
    gpu = solvers.place(name, a)
    if gpu is None or not solvers.solver(gpu).general:
        return None
    if not elementwise(TABLE["isfinite"], a).all():
        raise np.linalg.LinAlgError("Array must not contain infs or NaNs")
    return gpu


def slogdet(x: Any, /) -> Any:
    """Sign and logarithm of the absolute determinant; computed at once."""
    a = _inexact(x)
    _square(a)
    if gpu := solvers.place("linalg.slogdet", a):
        return _named("slogdet", solvers.slogdet("linalg.slogdet", gpu, a))
    return at_once("linalg.slogdet", np.linalg.slogdet, (a,))


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Least-squares solution; computed at once."""
    x, y = _inexact(a), _inexact(b)
    if not solvers.place("linalg.lstsq", x, y) or x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        return at_once("linalg.lstsq", lambda m, v: np.linalg.lstsq(m, v, rcond), (x, y))
    to = result_type(x.dtype, y.dtype)
    x, y = cast_to(x, to), cast_to(y, to)
    (m, n), right = x.shape, y[:, None] if y.ndim == 1 else y
    u, s, vh = svd(x, full_matrices=False)
    kept = s > _tolerance(x, s, None if rcond is None or rcond < 0 else rcond)
    solution = matmul(_adjoint(vh), where(kept, 1 / where(kept, s, 1), 0)[:, None] * matmul(_adjoint(u), right))
    rank = int(kept.sum())
    residuals = abs(right - matmul(x, solution)) ** 2
    residuals = residuals.sum(axis=0) if rank == n < m else residuals[:0, 0]
    return solution[:, 0] if y.ndim == 1 else solution, residuals, rank, s


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Array:
    """Number of singular values above a tolerance; computed at once."""
    a = _inexact(x)
    if a.ndim >= 2 and solvers.place("linalg.matrix_rank", a):
        s = svdvals(a)
        return (s > _tolerance(a, s, rtol)[..., None]).sum(axis=-1)
    rank = lambda m: np.asarray(np.linalg.matrix_rank(m, rtol=_plain(rtol)))
    return at_once("linalg.matrix_rank", rank, (a,))


def matrix_power(x: Any, n: int, /) -> Array:
    """Power of square matrices, by squaring."""
    a = as_array(x)
    _square(a)
    if n < 0:
        a, n = inv(a), -n
    if n == 0:
        from .creation import eye

        return broadcast_to(eye(a.shape[-1], dtype=a.dtype, device=a.device), a.shape).copy("K")
    result = None
    while n:
        if n & 1:
            result = a if result is None else matmul(result, a)
        n >>= 1
        if n:
            a = matmul(a, a)
    assert result is not None
    return result


def multi_dot(arrays: Any) -> Array:
    """Product of matrices in the cheapest order."""
    parts = [as_array(x) for x in arrays]
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    sizes = [1 if first else parts[0].shape[0], *(p.shape[0] for p in parts[1:]), 1 if last else parts[-1].shape[-1]]
    # The multiplication that costs least to save for last, over growing spans.
    best: dict[tuple[int, int], tuple[int, Any]] = {(i, i): (0, parts[i]) for i in range(len(parts))}
    plan: dict[tuple[int, int], int] = {}
    for span in range(1, len(parts)):
        for i in range(len(parts) - span):
            j = i + span
            cost, k = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
            best[i, j], plan[i, j] = (cost, None), k

    def build(i: int, j: int) -> Array:
        return parts[i] if i == j else matmul(build(i, plan[i, j]), build(plan[i, j] + 1, j))

    return build(0, len(parts) - 1)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """Norm of vectors along axes (of the flattened array by default)."""
    from . import reductions as r

    a = as_array(x)
    if a.dtype.kind in "iub":
        a = a.astype(np.float64)
    size = abs(a)
    if ord == np.inf:
        return r.max(size, axis, keepdims=keepdims)
    if ord == -np.inf:
        return r.min(size, axis, keepdims=keepdims)
    if ord == 0:
        return cast_to(r.count_nonzero(a, axis, keepdims=keepdims), size.dtype)
    if ord == 1:
        return r.sum(size, axis, keepdims=keepdims)
    if ord == 2:
        squares = a * a if a.dtype.kind != "c" else a.real * a.real + a.imag * a.imag
        return elementwise(TABLE["sqrt"], r.sum(squares, axis, keepdims=keepdims))
    return r.sum(size ** float(ord), axis, keepdims=keepdims) ** (1.0 / ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norm of matrices in the last two axes."""
    from . import reductions as r

    a = as_array(x)
    if ord in ("fro", None):
        return vector_norm(a, axis=(-2, -1), keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        values = svdvals(a)
        result = (r.sum if ord == "nuc" else r.max if ord == 2 else r.min)(values, -1)
    elif ord in (1, -1, np.inf, -np.inf):
        sums = r.sum(abs(_inexact(a)), -2 if abs(ord) == 1 else -1)
        result = (r.max if ord > 0 else r.min)(sums, -1)
    else:
        raise ValueError("Invalid norm order for matrices.")
    return result[..., None, None] if keepdims else result


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Norm of vectors along an axis, or of matrices along two."""
    a = as_array(x)
    if axis is None and ord is None:
        return vector_norm(a, keepdims=keepdims)
    axes = axis_tuple(axis, a.ndim)
    if len(axes) == 1:
        return vector_norm(a, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) == 2:
        result = matrix_norm(moveaxis(a, axes, (-2, -1)), ord="fro" if ord is None else ord)
        return expand_dims(result, tuple(sorted(axes))) if keepdims else result
    raise ValueError("Improper number of dimensions to norm.")


def cond(x: Any, p: Any = None) -> Array:
    """Condition number; computed at once."""
    return at_once("linalg.cond", lambda m: np.asarray(np.linalg.cond(m, p)), (_inexact(x),))


LinAlgError = np.linalg.LinAlgError
