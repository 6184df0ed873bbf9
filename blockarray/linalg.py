"""Products of matrices, and the functions of linear algebra that a library computes on the host."""

from __future__ import annotations

import operator
from string import ascii_letters
from typing import Any

import numpy as np

from .array import Array, lazy, method
from .compiler.expr import DOT, Expr, broadcast, node
from .compiler.ops import TABLE
from .dtypes import bool_, canonical, int64, real_type, result_type
from .elementwise import cast_to, finish
from .host import at_once, call
from .manipulation import (
    broadcast_to,
    diagonal,
    expand_dims,
    matrix_transpose,
    moveaxis,
    reshape,
    transpose,
)
from .operands import as_array, axis_tuple, broadcast_shapes, cast, elementwise
from .reductions import sum as _sum

__all__ = [
    "matmul", "dot", "vdot", "vecdot", "inner", "outer", "kron", "tensordot", "trace", "cross", "einsum", "inv", "det",
    "solve", "cholesky", "pinv", "qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "slogdet", "lstsq",
    "matrix_rank", "matrix_power", "multi_dot", "vector_norm", "matrix_norm", "norm", "cond", "LinAlgError",
]  # fmt: skip


def _dot(a: Expr, b: Expr) -> Expr:
    """DOT of (..., M, K) and (..., K, N), whose leading axes are broadcast."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = broadcast(a, lead + a.shape[-2:]), broadcast(b, lead + b.shape[-2:])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if a.dtype == bool_:
        # A product of truth values asks whether any pair is True.
        counts = node(DOT, (cast(a, int64), cast(b, int64)), None, shape, int64)
        return cast(counts, bool_)
    return node(DOT, (a, b), None, shape, a.dtype)


def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None) -> Array:
    """Matrix product; leading axes are broadcast, vectors are rows or columns.

    Parameters
    ----------
    x1, x2 : array_like
    out : Array, optional
    dtype : dtype, optional

    Returns
    -------
    Array
    """
    x, y = as_array(x1), as_array(x2)
    if not x.ndim or not y.ndim:
        which = 0 if not x.ndim else 1
        raise ValueError(
            f"matmul: Input operand {which} does not have enough dimensions (has 0, gufunc core with signature"
            " (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    to = result_type(x.dtype, y.dtype) if dtype is None else canonical(dtype)
    a, b = cast_to(x, to), cast_to(y, to)
    a = a[None] if x.ndim == 1 else a
    b = b[:, None] if y.ndim == 1 else b
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature"
            f" (n?,k),(k,m?)->(n?,m?) (size {b.shape[-2]} is different from {a.shape[-1]})"
        )
    result = lazy(_dot(a._read(), b._read()))
    if y.ndim == 1:
        result = result[..., 0]
    if x.ndim == 1:
        result = result[..., 0] if y.ndim == 1 else result[..., 0, :]
    return result if out is None else finish(result, out)


@method
def dot(a: Any, b: Any, out: Any = None) -> Array:
    """Inner product over the last axis of `a` and the last but one of `b`."""
    x, y = as_array(a), as_array(b)
    if not x.ndim or not y.ndim:
        result = elementwise(TABLE["multiply"], x, y)
    elif x.ndim <= 2 and y.ndim <= 2:
        k = y.shape[0]
        if x.shape[-1] != k:
            raise ValueError(
                f"shapes {x.shape} and {y.shape} not aligned: {x.shape[-1]} (dim {x.ndim - 1}) != {k} (dim 0)"
            )
        result = matmul(x, y)
    else:
        result = tensordot(x, y, ((-1,), (-2 if y.ndim > 1 else -1,)))
    return finish(result, out)


def vdot(a: Any, b: Any, /) -> Array:
    """Inner product of two flattened arrays, the first one conjugated."""
    x, y = reshape(as_array(a), (-1,)), reshape(as_array(b), (-1,))
    return dot(elementwise(TABLE["conjugate"], x) if x.dtype.kind == "c" else x, y)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Inner products along an axis, the first operand conjugated."""
    x, y = as_array(x1), as_array(x2)
    if not x.ndim or not y.ndim:
        raise ValueError("vecdot: operands need at least one axis")
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"vecdot: core dimensions differ ({x.shape[-1]} and {y.shape[-1]})")
    x = elementwise(TABLE["conjugate"], x) if x.dtype.kind == "c" else x
    return matmul(x[..., None, :], y[..., None])[..., 0, 0]


def inner(a: Any, b: Any, /) -> Array:
    """Inner product over the last axes."""
    x, y = as_array(a), as_array(b)
    return elementwise(TABLE["multiply"], x, y) if not x.ndim or not y.ndim else tensordot(x, y, ((-1,), (-1,)))


def outer(a: Any, b: Any, out: Any = None) -> Array:
    """Products of each pair of elements of the flattened arrays."""
    x, y = reshape(as_array(a), (-1,)), reshape(as_array(b), (-1,))
    return finish(elementwise(TABLE["multiply"], x[:, None], y[None, :]), out)


def kron(a: Any, b: Any) -> Array:
    """Kronecker product."""
    x, y = as_array(a), as_array(b)
    n = max(x.ndim, y.ndim)
    x, y = x[(None,) * (n - x.ndim)], y[(None,) * (n - y.ndim)]
    spread = x[tuple(i for _ in range(n) for i in (slice(None), None))]
    packed = y[tuple(i for _ in range(n) for i in (None, slice(None)))]
    return reshape(spread * packed, tuple(p * q for p, q in zip(x.shape, y.shape)))


def tensordot(a: Any, b: Any, /, axes: Any = 2) -> Array:
    """Sum of products over pairs of axes.

    Parameters
    ----------
    a, b : array_like
    axes : int or pair of sequences of int
        How many of the last axes of `a` go with the first ones of `b`, or which with which.

    Returns
    -------
    Array
    """
    x, y = as_array(a), as_array(b)
    if isinstance(axes, int | np.integer):
        if axes > x.ndim or axes > y.ndim or axes < 0:
            raise ValueError("tensordot: more axes than the arrays have")
        left, right = tuple(range(x.ndim - int(axes), x.ndim)), tuple(range(int(axes)))
    else:
        left, right = axis_tuple(axes[0], x.ndim), axis_tuple(axes[1], y.ndim)
    if len(left) != len(right) or any(x.shape[i] != y.shape[j] for i, j in zip(left, right)):
        raise ValueError("shape-mismatch for sum")
    keep_x = [k for k in range(x.ndim) if k not in left]
    keep_y = [k for k in range(y.ndim) if k not in right]
    shape = (*(x.shape[k] for k in keep_x), *(y.shape[k] for k in keep_y))
    k = int(np.prod([x.shape[i] for i in left], dtype=np.int64))
    p = reshape(transpose(x, (*keep_x, *left)), (int(np.prod([x.shape[i] for i in keep_x], dtype=np.int64)), k))
    q = reshape(transpose(y, (*right, *keep_y)), (k, int(np.prod([y.shape[i] for i in keep_y], dtype=np.int64))))
    return reshape(matmul(p, q), shape)


@method
def trace(a: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Array:
    """Sum along the diagonals in the plane of two axes."""
    return _sum(diagonal(as_array(a), offset, axis1, axis2), -1, dtype, out)


def cross(a: Any, b: Any, axis: int = -1) -> Array:
    """Cross product of vectors of three components."""
    x, y = moveaxis(as_array(a), axis, -1), moveaxis(as_array(b), axis, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors")
    from .manipulation import stack

    x0, x1, x2 = (x[..., k] for k in range(3))
    y0, y1, y2 = (y[..., k] for k in range(3))
    return moveaxis(stack((x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0), -1), -1, axis)


# -- Einstein summation -----------------------------------------------------------------------------------------------
def _spelled(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts as a string, and the operands, from operands that alternate with lists of axis numbers."""
    letters = lambda axes: "".join("..." if k is Ellipsis else ascii_letters[operator.index(k)] for k in axes)
    spelled = ",".join(map(letters, args[1::2]))
    if len(args) % 2:
        spelled += "->" + letters(args[-1])
    return spelled, args[: len(args) // 2 * 2 : 2]


def einsum(subscripts: Any, /, *operands: Any, out: Any = None, optimize: Any = True, dtype: Any = None) -> Array:
    """Sums of products over labelled axes, contracted pair by pair as matrix products.

    Parameters
    ----------
    subscripts : str
        Such as "ij,jk->ik"; "..." stands for axes that are broadcast.  Operands may instead alternate with lists of
        axis numbers: `einsum(x, [0, 1], y, [1, 2], [0, 2])`.
    *operands : array_like
    out : Array, optional
    dtype : dtype, optional

    Returns
    -------
    Array
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _spelled((subscripts, *operands))
    terms, result = _parse(subscripts, [as_array(x) for x in operands])
    to = canonical(dtype) if dtype is not None else result_type(*(x.dtype for _, x in terms))
    terms = [_collect(labels, cast_to(x, to)) for labels, x in terms]
    if optimize and len(terms) > 2:
        path = np.einsum_path(
            ",".join(_letters(t) for t, _ in terms) + "->" + _letters(result),
            *(np.broadcast_to(np.zeros((), bool), x.shape) for _, x in terms),
        )[0][1:]
    else:
        path = [(0, 1)] * (len(terms) - 1)
    for pair in path:
        chosen = [terms[i] for i in pair]
        terms = [t for i, t in enumerate(terms) if i not in pair]
        joined = chosen[0]
        for k, other in enumerate(chosen[1:], 1):
            wanted = {c for t, _ in [*terms, *chosen[k + 1 :]] for c in t} | set(result)
            joined = _contract(joined, other, wanted)
        terms.append(joined)
    labels, x = terms[0]
    labels, x = _reduce(labels, x, set(result))
    missing = [c for c in result if c not in labels]
    if missing:
        raise ValueError(f"einsum: output subscript {missing[0]!r} is not in any input")
    return finish(transpose(x, [labels.index(c) for c in result]), out)


#: Labels are letters, and numbers for the axes that an ellipsis stands for.
Labels = tuple[Any, ...]


def _letters(labels: Labels) -> str:
    """Labels as letters, those of ellipses as ones far from the alphabet's beginning."""
    return "".join(c if isinstance(c, str) else chr(0x100 + c) for c in labels)


def _parse(subscripts: str, arrays: list[Array]) -> tuple[list[tuple[Labels, Array]], Labels]:
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(arrays):
        raise ValueError(f"einsum: {len(inputs)} terms in the subscripts, {len(arrays)} operands")
    terms: list[tuple[Labels, Array]] = []
    widest = 0
    for term, x in zip(inputs, arrays):
        head, dots, tail = term.partition("...")
        if any(not c.isalpha() for c in head + tail):
            raise ValueError(f"einsum: invalid subscript in {term!r}")
        extra = x.ndim - len(head) - len(tail)
        if extra < 0 or (extra and not dots):
            raise ValueError(f"einsum: operand of {x.ndim} axes does not fit the subscripts {term!r}")
        widest = max(widest, extra)
        terms.append(((*head, *range(extra, 0, -1), *tail), x))
    ellipsis = tuple(range(widest, 0, -1))
    if arrow:
        head, dots, tail = right.partition("...")
        result: Labels = (*head, *(ellipsis if dots else ()), *tail)
        if len(set(result)) != len(result):
            raise ValueError("einsum: an output subscript is repeated")
    else:
        every = [c for t, _ in terms for c in t if isinstance(c, str)]
        result = (*ellipsis, *sorted(c for c in set(every) if every.count(c) == 1))
    extents: dict[Any, int] = {}
    for labels, x in terms:
        for c, n in zip(labels, x.shape):
            if n != 1 and extents.setdefault(c, n) != n:
                raise ValueError(f"einsum: axes labelled {c!r} have extents {extents[c]} and {n}")
    return terms, result


def _collect(labels: Labels, x: Array) -> tuple[Labels, Array]:
    """Repeated labels of one operand made one, as a diagonal."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            x = diagonal(x, 0, i, j)
            labels = (*(b for k, b in enumerate(labels) if k not in (i, j)), c)
    return labels, x


def _reduce(labels: Labels, x: Array, wanted: set[Any]) -> tuple[Labels, Array]:
    """Sum over the labels that nobody wants."""
    gone = tuple(k for k, c in enumerate(labels) if c not in wanted)
    if not gone:
        return labels, x
    return tuple(c for c in labels if c in wanted), _sum(x, gone, x.dtype)


def _contract(first: tuple[Labels, Array], second: tuple[Labels, Array], wanted: set[Any]) -> tuple[Labels, Array]:
    """Multiply two operands and sum over the labels that nobody else wants."""
    (a, x), (b, y) = first, second
    a, x = _reduce(a, x, wanted | set(b))
    b, y = _reduce(b, y, wanted | set(a))
    extent: dict[Any, int] = {}
    for labels, array in ((a, x), (b, y)):
        for c, n in zip(labels, array.shape):
            extent[c] = max(extent.get(c, 0), n) if extent.get(c, 1) != 0 and n != 0 else 0
    shared = [c for c in a if c in b]
    batch = [c for c in shared if c in wanted]
    summed = [c for c in shared if c not in wanted]
    rows = [c for c in a if c not in b]
    columns = [c for c in b if c not in a]
    if not summed:
        labels = (*batch, *rows, *columns)
        p = _arrange(a, x, [*batch, *rows])[(..., *(None,) * len(columns))]
        q = _arrange(b, y, [*batch, *columns])
        q = q[(*(slice(None),) * len(batch), *(None,) * len(rows), ...)]
        return labels, p * q
    size = lambda labels: int(np.prod([extent[c] for c in labels], dtype=np.int64))
    full = lambda labels: tuple(extent[c] for c in labels)
    p = broadcast_to(_arrange(a, x, [*batch, *rows, *summed]), full([*batch, *rows, *summed]))
    q = broadcast_to(_arrange(b, y, [*batch, *summed, *columns]), full([*batch, *summed, *columns]))
    p = reshape(p, (*full(batch), size(rows), size(summed)))
    q = reshape(q, (*full(batch), size(summed), size(columns)))
    return (*batch, *rows, *columns), reshape(matmul(p, q), full([*batch, *rows, *columns]))


def _arrange(labels: Labels, x: Array, order: list[Any]) -> Array:
    return transpose(x, [labels.index(c) for c in order])


# -- the linalg namespace ---------------------------------------------------------------------------------------------
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
    return call("linalg.inv", np.linalg.inv, (a,), a.shape, a.dtype)


def det(x: Any, /) -> Array:
    """Determinant of square matrices."""
    a = _inexact(x)
    _square(a)
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
    return call("linalg.solve", np.linalg.solve, (cast_to(a, to), cast_to(b, to)), shape, to)


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """Cholesky factor of positive definite matrices."""
    a = _inexact(x)
    _square(a)
    result = call("linalg.cholesky", np.linalg.cholesky, (a,), a.shape, a.dtype)
    return elementwise(TABLE["conjugate"], matrix_transpose(result)) if upper else result


def pinv(x: Any, /, *, rtol: Any = None) -> Array:
    """Pseudo-inverse of matrices; computed at once."""
    a = _inexact(x)
    return at_once("linalg.pinv", lambda m: np.linalg.pinv(m, rtol=_plain(rtol)), (a,))


def _plain(x: Any) -> Any:
    return x._host() if isinstance(x, Array) else x


def qr(x: Any, /, *, mode: Any = "reduced") -> Any:
    """Orthogonal and triangular factor; computed at once."""
    return at_once("linalg.qr", lambda m: np.linalg.qr(m, mode), (_inexact(x),))


def svd(x: Any, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular value decomposition; computed at once."""
    return at_once("linalg.svd", lambda m: np.linalg.svd(m, full_matrices, compute_uv), (_inexact(x),))


def svdvals(x: Any, /) -> Array:
    """Singular values, the largest first."""
    a = _inexact(x)
    shape = (*a.shape[:-2], min(a.shape[-2:]))
    return call("linalg.svdvals", np.linalg.svdvals, (a,), shape, real_type(a.dtype))


def eigh(x: Any, /) -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices; computed at once."""
    return at_once("linalg.eigh", np.linalg.eigh, (_inexact(x),))


def eigvalsh(x: Any, /) -> Array:
    """Eigenvalues of Hermitian matrices."""
    a = _inexact(x)
    _square(a)
    return call("linalg.eigvalsh", np.linalg.eigvalsh, (a,), a.shape[:-1], real_type(a.dtype))


def _complex(values: Any, dtype: np.dtype) -> Any:
    return values.astype(np.result_type(dtype, np.complex64))


def eig(x: Any, /) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex; computed at once."""
    a = _inexact(x)

    def run(m: np.ndarray) -> Any:
        result = np.linalg.eig(m)
        return type(result)(*(_complex(r, m.dtype) for r in result))

    return at_once("linalg.eig", run, (a,))


def eigvals(x: Any, /) -> Array:
    """Eigenvalues of square matrices, complex; computed at once."""
    return at_once("linalg.eigvals", lambda m: _complex(np.linalg.eigvals(m), m.dtype), (_inexact(x),))


def slogdet(x: Any, /) -> Any:
    """Sign and logarithm of the absolute determinant; computed at once."""
    return at_once("linalg.slogdet", np.linalg.slogdet, (_inexact(x),))


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Least-squares solution; computed at once."""
    return at_once("linalg.lstsq", lambda m, v: np.linalg.lstsq(m, v, rcond), (_inexact(a), _inexact(b)))


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Array:
    """Number of singular values above a tolerance; computed at once."""
    rank = lambda m: np.asarray(np.linalg.matrix_rank(m, rtol=_plain(rtol)))
    return at_once("linalg.matrix_rank", rank, (_inexact(x),))


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
