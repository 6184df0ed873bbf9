"""Products of arrays: of matrices, of vectors and over labelled axes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from string import ascii_letters
from typing import Any

import numpy as np

from .array import Array, lazy, method
from .compiler.expr import DOT, Expr, broadcast, node
from .compiler.ops import TABLE
from .dtypes import (
    bfloat16,
    bool_,
    canonical,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    result_type,
    same_kind,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .elementwise import cast_to, finish
from .manipulation import broadcast_to, diagonal, moveaxis, reshape, transpose
from .operands import as_array, axis_tuple, broadcast_shapes, cast, elementwise, is_operand
from .reductions import sum as _sum
from .runtime.config import PRECISIONS, config

__all__ = [
    "matmul", "dot", "vdot", "vecdot", "inner", "outer", "kron", "tensordot", "trace", "cross", "einsum",
    "matmul_precision", "set_matmul_precision", "get_matmul_precision",
]  # fmt: skip

#: What `set_matmul_precision` chose for the process, and `matmul_precision(...)` for the context.
_chosen: str | None = None
_inside: ContextVar[str | None] = ContextVar("matmul_precision", default=None)


def get_matmul_precision() -> str:
    """How products of float32 are computed that are recorded now.

    The innermost `matmul_precision(...)` decides, else `set_matmul_precision`, else BLOCKARRAY_MATMUL_PRECISION; else
    it is "highest".
    """
    return _inside.get() or _chosen or config.matmul_precision


def set_matmul_precision(name: str) -> None:
    """Compute products of float32 that are recorded from now on so; see `matmul_precision`."""
    global _chosen
    _chosen = _checked(name)


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Compute products of float32 that are recorded inside a `with` block so, in the present thread or task only.

    Parameters
    ----------
    name : {"highest", "high", "ieee"}
        "highest": as accurate as sums of float32 products are, in whatever units are fastest: a GPU's tensor cores may
        multiply parts of the operands, and add up those products.  "high": tensor cores may leave out all but 10 bits
        of the operands' mantissas (TF32).  "ieee": every multiplication and addition is one of float32, fused.
    """
    token = _inside.set(_checked(name))
    try:
        yield
    finally:
        _inside.reset(token)


def _checked(name: str) -> str:
    if name not in PRECISIONS:
        raise ValueError(f"unknown precision {name!r}; expected one of {', '.join(PRECISIONS)}")
    return name


#: Types of 8 bits whose products add up alike, and types that have all their numbers.
_FLOATS = frozenset((float16, bfloat16, float32, float64))
_NARROW = {
    frozenset((int8, uint8)): _FLOATS | {int16, int32, int64, uint16, uint32, uint64},
    frozenset((float8_e4m3fn, float8_e5m2)): _FLOATS,
}


def _dot(a: Expr, b: Expr, dtype: np.dtype) -> Expr:
    """DOT of (..., M, K) and (..., K, N), whose leading axes are broadcast, with elements of a dtype."""
    if a.dtype is not dtype or b.dtype is not dtype:
        own = {a.dtype, b.dtype}
        if own != {dtype} and not any(own <= narrow and dtype in wide for narrow, wide in _NARROW.items()):
            a, b = cast(a, dtype), cast(b, dtype)
    lead = a.shape[:-2]
    if lead != b.shape[:-2]:
        lead = broadcast_shapes(lead, b.shape[:-2])
        a, b = broadcast(a, lead + a.shape[-2:]), broadcast(b, lead + b.shape[-2:])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if dtype is bool_:
        # A product of truth values asks whether any pair is True.
        counts = node(DOT, (cast(a, int64), cast(b, int64)), None, shape, int64)
        return cast(counts, bool_)
    precision = None
    if dtype is float32:
        precision = get_matmul_precision()
        precision = None if precision == PRECISIONS[0] else precision
    return node(DOT, (a, b), precision, shape, dtype)


def _computed(name: str, dtype: Any, *operands: Array) -> np.dtype:
    """The dtype to compute in that was asked for, if the operands may be cast to it."""
    to = canonical(dtype)
    for k, x in enumerate(operands):
        if not same_kind(x.dtype, to):
            raise TypeError(
                f"Cannot cast ufunc {name!r} input {k} from {x.dtype!r} to {to!r} with casting rule 'same_kind'"
            )
    return to


def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None) -> Array:
    """Matrix product; leading axes are broadcast, vectors are rows or columns.

    Parameters
    ----------
    x1, x2 : array_like
    out : Array, optional
    dtype : dtype, optional
        What to cast the operands to, of the same kind or a larger one, and to compute in.

    Returns
    -------
    Array
    """
    if type(x1) is type(x2) is Array and dtype is None and out is None:  # the short way
        p, q = x1._read(), x2._read()
        if p.dtype is q.dtype and len(p.shape) > 1 < len(q.shape) and p.shape[-1] == q.shape[-2]:
            return lazy(_dot(p, q, p.dtype))
    x, y = as_array(x1), as_array(x2)
    if not x.ndim or not y.ndim:
        which = 0 if not x.ndim else 1
        raise ValueError(
            f"matmul: Input operand {which} does not have enough dimensions (has 0, gufunc core with signature"
            " (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    to = result_type(x.dtype, y.dtype) if dtype is None else _computed("matmul", dtype, x, y)
    a = x[None] if x.ndim == 1 else x
    b = y[:, None] if y.ndim == 1 else y
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature"
            f" (n?,k),(k,m?)->(n?,m?) (size {b.shape[-2]} is different from {a.shape[-1]})"
        )
    result = lazy(_dot(a._read(), b._read(), to))
    if y.ndim == 1:
        result = result[..., 0]
    if x.ndim == 1:
        result = result[..., 0] if y.ndim == 1 else result[..., 0, :]
    return result if out is None else finish(result, out)


@method
def __matmul__(x: Array, y: Any) -> Any:
    return matmul(x, y) if type(y) is Array or is_operand(y) else NotImplemented


@method
def __rmatmul__(y: Array, x: Any) -> Any:
    return matmul(x, y) if is_operand(x) else NotImplemented


@method
def __imatmul__(x: Array, y: Any) -> Any:
    if not is_operand(y):
        return NotImplemented
    x._fill(matmul(x, y)._read(), TABLE["multiply"])
    return x


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

    def letter(axis: Any) -> str:
        if axis is Ellipsis:
            return "..."
        k = operator.index(axis)
        if not 0 <= k < len(ascii_letters):
            raise ValueError(f"einsum: axis number {k} is not between 0 and {len(ascii_letters) - 1}")
        return ascii_letters[k]

    letters = lambda axes: "".join(map(letter, axes))
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
        What to cast the operands to, of the same kind or a larger one, and to compute in.

    Returns
    -------
    Array
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _spelled((subscripts, *operands))
    terms, result = _parse(subscripts, [as_array(x) for x in operands])
    arrays = [x for _, x in terms]
    to = result_type(*(x.dtype for x in arrays)) if dtype is None else _computed("einsum", dtype, *arrays)
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
        labels = (*head, *range(extra, 0, -1), *tail)
        if any(x.shape[k] != x.shape[labels.index(c)] for k, c in enumerate(labels)):
            raise ValueError(f"einsum: a label is repeated in {term!r} for axes of extents {x.shape}")
        terms.append((labels, x))
    ellipsis = tuple(range(widest, 0, -1))
    if arrow:
        head, dots, tail = right.partition("...")
        if widest and not dots:
            raise ValueError("einsum: operands have axes under '...', and the output has no '...'")
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
