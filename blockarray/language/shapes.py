"""Blocks of other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .elementwise import block_shape, static_int
from .emit import bare, builder, extents, whole
from .errors import CompilationError
from .types import int1, int32, unwrap
from .values import Tensor, convert, member, same_shape, tensor
from .values import broadcast_to as spread_to


def axis_of(axis: Any, rank: int) -> int:
    """An axis that counts from the end if it is negative."""
    axis = static_int(axis, "the axis")
    if not -rank <= axis < rank:
        raise CompilationError(f"axis {axis} is out of range for {rank} dims")
    return axis % rank


def place(shape: Sequence[int], axis: int) -> int:
    """The extent of a value that is its block's axis, which is not 1."""
    return axis - list(shape[:axis]).count(1)


def _dims(given: Sequence[Any]) -> Any:
    """f(x, 1, 2) and f(x, (1, 2)) are the same."""
    if len(given) == 1:
        only = unwrap(given[0])
        return only if isinstance(only, (tuple, list)) else (only,)
    return given


def _elements(name: str, *xs: Any) -> list[Tensor]:
    tensors = [tensor(x) for x in xs]
    for x in tensors:
        if x.dtype.is_ptr():
            raise CompilationError(f"{name} does not take pointers: {x.type}")
    return tensors


@member
def reshape(input: Tensor, *shape: Any, can_reorder: bool = False) -> Tensor:
    """The elements, in row-major order, in another shape."""
    x, target = tensor(input), block_shape(_dims(shape))
    count = 1
    for n in target:
        count *= n
    if count != x.numel:
        raise CompilationError(f"a block of shape {list(x.shape)} cannot be reshaped to {list(target)}")
    return x.like(builder().reshape(x.value, extents(target)), target)


@member
def view(input: Tensor, *shape: Any) -> Tensor:
    """The elements in another shape; prefer `reshape`."""
    return reshape(input, *shape)


@member
def ravel(x: Tensor, can_reorder: bool = False) -> Tensor:
    """The elements in one dim."""
    return reshape(x, (tensor(x).numel,))


@member
def expand_dims(input: Tensor, axis: Any) -> Tensor:
    """New dims of extent 1 at these axes of the result."""
    x = tensor(input)
    axes = unwrap(axis)
    axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    rank = len(x.shape) + len(axes)
    places = sorted([axis_of(a, rank) for a in axes])
    if len(set(places)) != len(places):
        raise CompilationError(f"expand_dims is given an axis twice: {axes}")
    shape = list(x.shape)
    for k in places:
        shape.insert(k, 1)
    return x.like(x.value, shape)


@member
def unsqueeze(x: Tensor, dim: Any) -> Tensor:
    """A new dim of extent 1."""
    return expand_dims(x, dim)


@member
def squeeze(x: Tensor, dim: Any) -> Tensor:
    """Without a dim, whose extent is 1."""
    x = tensor(x)
    k = axis_of(dim, len(x.shape))
    if x.shape[k] != 1:
        raise CompilationError(f"dim {k} of a block of shape {list(x.shape)} is not 1")
    return x.like(x.value, x.shape[:k] + x.shape[k + 1 :])


@member
def broadcast_to(input: Any, *shape: Any) -> Tensor:
    """A block of this shape; extents of 1 are repeated."""
    return spread_to(tensor(input), block_shape(_dims(shape)))


@member
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dims in another order: dim k of the result is dim dims[k]."""
    input = tensor(input)
    rank = len(input.shape)
    order = [axis_of(d, rank) for d in _dims(dims)]
    if sorted(order) != list(range(rank)):
        raise CompilationError(f"permute of {rank} dims needs each once, not {tuple(order)}")
    kept = [place(input.shape, d) for d in order if input.shape[d] != 1]
    value = input.value if kept == sorted(kept) else builder().trans(input.value, kept)
    return input.like(value, [input.shape[d] for d in order])


@member
def trans(input: Tensor, *dims: Any) -> Tensor:
    """`permute`; without dims, the last two are swapped."""
    input = tensor(input)
    if dims:
        return permute(input, *dims)
    rank = len(input.shape)
    if rank < 2:
        raise CompilationError(f"trans takes blocks of at least two dims, not {input.type}")
    return permute(input, (*range(rank - 2), rank - 1, rank - 2))


def join(a: Any, b: Any) -> Tensor:
    """Both along a new last dim of extent 2."""
    a, b = same_shape(tensor(a), tensor(b))
    a, b = _elements("join", a, b)
    if a.dtype != b.dtype:
        raise CompilationError(f"join takes blocks of one type, not {a.dtype} and {b.dtype}")
    return a.like(builder().join(a.value, b.value), (*a.shape, 2))


@member
def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """Both parts along the last dim, whose extent is 2."""
    (a,) = _elements("split", a)
    if not a.shape or a.shape[-1] != 2:
        raise CompilationError(f"split takes blocks whose last dim is 2, not {a.type}")
    first, second = builder().split(a.value)
    return a.like(first, a.shape[:-1]), a.like(second, a.shape[:-1])


def cat(input: Tensor, other: Tensor, can_reorder: bool = False, dim: Any = 0) -> Tensor:
    """b behind a along a dim."""
    input, other = _elements("cat", input, other)
    if input.shape != other.shape or input.dtype != other.dtype:
        raise CompilationError(f"cat takes blocks of one shape and type, not {input.type} and {other.type}")
    k = axis_of(dim, len(input.shape))
    shape = list(input.shape)
    shape[k] *= 2
    b = builder()
    if input.shape[k] != 1:
        return input.like(b.cat(input.value, other.value, place(input.shape, k)), shape)
    flat = Tensor(b.join(input.value, other.value), input.dtype, (*extents(input.shape), 2))
    at = place(shape, k)
    rank = len(flat.shape) - 1
    return reshape(permute(flat, (*range(at), rank, *range(at, rank))), shape)


def interleave(a: Any, b: Any) -> Tensor:
    """Elements of both in turns, along the last dim."""
    both = join(a, b)
    if len(both.shape) == 1:
        return both
    return reshape(both, (*both.shape[:-2], 2 * both.shape[-2]))


@member
def gather(src: Tensor, index: Tensor, axis: Any) -> Tensor:
    """The elements of src at positions `index` along an axis."""
    (src,), index = _elements("gather", src), tensor(index)
    if not index.dtype.is_int():
        raise CompilationError(f"gather's index is of integers, not {index.dtype}")
    if len(src.shape) != len(index.shape):
        raise CompilationError(f"gather's index has as many dims as its source: {index.type} and {src.type}")
    k = axis_of(axis, len(src.shape))
    for d, (n, m) in enumerate(zip(src.shape, index.shape)):
        if d != k and n != m:
            raise CompilationError(f"dim {d} of gather's index is {m}, and of its source {n}")
    index = convert(index, int32) if index.dtype.primitive_bitwidth < 32 else index
    got = builder().gather(whole(src.value, src.shape), whole(index.value, index.shape), k)
    return Tensor(bare(got), src.dtype, index.shape)


@member
def flip(x: Tensor, dim: Any = None) -> Tensor:
    """The block backwards along a dim, by default the last."""
    (x,) = _elements("flip", x)
    k = axis_of(-1 if unwrap(dim) is None else dim, len(x.shape))
    return x if x.shape[k] == 1 else x.like(builder().flip(x.value, place(x.shape, k)))


@member
def sort(x: Tensor, dim: Any = None, descending: Any = False) -> Tensor:
    """The block sorted along a dim, by default the last."""
    (x,) = _elements("sort", x)
    k = axis_of(-1 if unwrap(dim) is None else dim, len(x.shape))
    if x.shape[k] == 1:
        return x
    return x.like(builder().sort(x.value, place(x.shape, k), bool(unwrap(descending))))


@member
def topk(x: Tensor, k: Any, dim: Any = None) -> Tensor:
    """The k largest elements along a dim, by default the last; the largest one first."""
    from .elementwise import arange

    (x,) = _elements("topk", x)
    axis = axis_of(-1 if unwrap(dim) is None else dim, len(x.shape))
    count = static_int(k, "topk's k")
    if count < 1 or count & (count - 1) or count > x.shape[axis]:
        raise CompilationError(f"topk's k is a power of two of at most {x.shape[axis]}, not {count}")
    ordered = sort(x, axis, True)
    if count == x.shape[axis]:
        return ordered
    shape = [1] * len(x.shape)
    shape[axis] = count
    index = reshape(arange(0, count), shape)
    return gather(ordered, broadcast_to(index, [*x.shape[:axis], count, *x.shape[axis + 1 :]]), axis)


@member
def histogram(input: Tensor, num_bins: Any, mask: Any = None) -> Tensor:
    """How many elements of a block of one dim are 0, 1, ... up to num_bins - 1, in int32."""
    input = tensor(input)
    if len(input.shape) != 1 or not input.dtype.is_int():
        raise CompilationError(f"histogram takes integers in one dim, not {input.type}")
    (bins,) = block_shape(num_bins, "histogram's bins")
    x = convert(input, int32) if input.dtype.primitive_bitwidth < 32 else input
    chosen = None if unwrap(mask) is None else whole(spread_to(convert(tensor(mask), int1), x.shape).value, x.shape)
    counts = builder().histogram(whole(x.value, x.shape), bins, chosen)
    return Tensor(bare(counts), int32, (bins,))


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """Indices of a row-major matrix as those of one that is column-major in groups of size_g rows."""
    from .elementwise import minimum

    ij = i * size_j + j
    size_gj = size_g * size_j
    group = ij // size_gj
    off_i = group * size_g
    size_g = minimum(size_i - off_i, size_g)
    ij = ij % size_gj
    return off_i + ij % size_g, ij // size_g
