"""Reductions and scans."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ..compiler.ir import Block, Op, Type, Value
from .elementwise import exp, fdiv
from .emit import Builder, builder, building, spread
from .emit import cast as cast_value
from .errors import CompilationError
from .shapes import axis_of, place, reshape
from .types import bfloat16, dtype, float32, int1, int32, uint32, unwrap
from .values import Tensor, add, convert, element_type, member, tensor, truediv

#: Where a combining function is one op, the reduction and the scan that it makes.
_KINDS = {
    "add": ("sum", "cumsum"), "multiply": ("prod", "cumprod"), "minimum": ("min", "cummin"),
    "maximum": ("max", "cummax"), "logical_or": ("any", None), "logical_and": ("all", None),
    "fmin": ("min_number", None), "fmax": ("max_number", None),
}  # fmt: skip


def _numbers(name: str, x: Any) -> Tensor:
    x = tensor(x)
    if x.dtype.is_ptr():
        raise CompilationError(f"{name} does not take pointers: {x.type}")
    return x


def _axes(x: Tensor, axis: Any) -> tuple[int, ...]:
    return tuple(range(len(x.shape))) if unwrap(axis) is None else (axis_of(axis, len(x.shape)),)


def _reduced(shape: Sequence[int], axes: Sequence[int], keep_dims: bool) -> tuple[int, ...]:
    if keep_dims:
        return tuple([1 if k in axes else n for k, n in enumerate(shape)])
    return tuple([n for k, n in enumerate(shape) if k not in axes])


def _reduce(x: Tensor, kind: str, axis: Any, keep_dims: Any) -> Tensor:
    axes = _axes(x, axis)
    shape = _reduced(x.shape, axes, builtins.bool(unwrap(keep_dims)))
    dims = [place(x.shape, k) for k in axes if x.shape[k] != 1]
    return x.like(builder().reduce(x.value, kind, dims) if dims else x.value, shape)


def _at_least_32(x: Tensor) -> Tensor:
    """Narrow types are compared and added as wider ones, as Triton does."""
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return convert(x, float32 if x.dtype.is_floating() else int32)


def _sum_type(type: dtype, chosen: Any) -> dtype:
    if unwrap(chosen) is not None:
        return element_type(chosen)
    if type == bfloat16:
        return float32
    if type.is_int() and type.int_bitwidth < 32:
        return int32 if type.is_int_signed() else uint32
    return type


@member
def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> Tensor:
    """Sum along an axis, by default all; integers of less than 32 bits are added as 32, bfloat16 as float32."""
    x = _numbers("sum", input)
    x = convert(x, _sum_type(x.dtype, dtype))
    # Integers of one bit are added modulo 2.
    return xor_sum(x, axis, keep_dims) if x.dtype == int1 else _reduce(x, "sum", axis, keep_dims)


@member
def max(
    input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:  # fmt: skip
    """Largest element along an axis, by default all, and if asked for, its index; only then a NaN counts."""
    return _extremum("max", input, axis, return_indices, keep_dims)


@member
def min(
    input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:  # fmt: skip
    """Smallest element along an axis, by default all, and if asked for, its index; only then a NaN counts."""
    return _extremum("min", input, axis, return_indices, keep_dims)


def _extremum(kind: str, input: Any, axis: Any, indices: Any, keep_dims: Any) -> Any:
    x = _at_least_32(_numbers(kind, input))
    if not unwrap(indices):
        return _reduce(x, f"{kind}_number" if x.dtype.is_floating() else kind, axis, keep_dims)
    return _reduce(x, kind, axis, keep_dims), _position("arg" + kind, x, axis, keep_dims)


def _position(kind: str, x: Tensor, axis: Any, keep_dims: Any) -> Tensor:
    """The index, along an axis or in row-major order, of the first extreme element."""
    keep = builtins.bool(unwrap(keep_dims))
    shape = _reduced(x.shape, _axes(x, axis), keep)
    if unwrap(axis) is None:
        x, axis = reshape(x, (x.numel,)), 0
    k = axis_of(axis, len(x.shape))
    b = builder()
    if x.shape[k] == 1:
        zero = Tensor(b.const(0, "i32"), int32)
        return Tensor(spread(zero.value, (), shape), int32, shape)
    index = b.iota(x.shape[k])
    dim = place(x.shape, k)
    index = b.broadcast(index, (dim,), x.value.type.extents)
    return Tensor(cast_value(b.argreduce(x.value, index, kind, (dim,)), "i32"), int32, shape)


@member
def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Tensor:
    """Index of the largest element along an axis; of equal ones, of the first."""
    return _position("argmax", _at_least_32(_numbers("argmax", input)), axis, keep_dims)


@member
def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Tensor:
    """Index of the smallest element along an axis; of equal ones, of the first."""
    return _position("argmin", _at_least_32(_numbers("argmin", input)), axis, keep_dims)


def _by_op(name: str, row: str, input: Any, axis: Any, keep_dims: Any) -> Tensor:
    x = _numbers(name, input)
    if not x.dtype.is_int():
        raise CompilationError(f"{name} takes integers, not {x.type}")
    if unwrap(axis) is None:
        shape = _reduced(x.shape, _axes(x, None), builtins.bool(unwrap(keep_dims)))
        if not x.shape:
            return x
        flat = _by_op(name, row, reshape(x, (x.numel,)), 0, False)
        return flat.like(flat.value, shape)
    left, right = Value(Type(x.dtype.ir)), Value(Type(x.dtype.ir))
    row = row.replace("bitwise", "logical") if x.dtype == int1 else row
    joined = Op(row, (left, right), (Type(x.dtype.ir),))
    block = Block((left, right), [joined, Op("yield", joined.results, ())])
    (result,) = _across([x], axis, block, keep_dims)
    return result


@member
def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> Tensor:
    """Exclusive or of the elements along an axis, by default all."""
    return _by_op("xor_sum", "bitwise_xor", input, axis, keep_dims)


@member
def reduce_or(input: Any, axis: Any, keep_dims: Any = False) -> Tensor:
    """Bitwise or of the elements along an axis."""
    return _by_op("reduce_or", "bitwise_or", input, axis, keep_dims)


# -- by functions of the user -----------------------------------------------------------------------------------------
def _joining(combine_fn: Any, xs: Sequence[Tensor]) -> Block:
    """The region of a function that joins two elements (or two of each of several)."""
    return traced(combine_fn, (*xs, *xs), xs)


def traced(function: Any, xs: Sequence[Tensor], like: Sequence[Tensor] | None = None) -> Block:
    """The region of a function of elements of blocks; its results have the types of `like`, if that is given."""
    from .visitor import inline

    args = [Tensor(Value(Type(x.dtype.ir)), x.dtype) for x in xs]
    block = Block(tuple([a.value for a in args]))
    outer = builder()
    inner = Builder("combine", outer.debug)
    inner.line = outer.line
    with building(inner), inner.region(block):
        made = unwrap(inline(function, args))
        results = [tensor(r) for r in (made if isinstance(made, (tuple, list)) else (made,))]
        if like is not None:
            if len(results) != len(like):
                raise CompilationError(f"the combining function gives {len(results)} values for {len(like)}")
            results = [convert(r, x.dtype) for r, x in zip(results, like)]
        for r in results:
            if r.shape:
                raise CompilationError(f"a function of elements gives a {r.type}")
    inner.finish_region(block, [r.value for r in results])
    return block


def _inputs(name: str, input: Any) -> tuple[list[Tensor], bool]:
    given = unwrap(input)
    several = isinstance(given, (tuple, list))
    xs = [_numbers(name, x) for x in (given if several else (given,))]
    if any(x.shape != xs[0].shape for x in xs):
        raise CompilationError(f"{name} takes blocks of one shape, not {', '.join(str(x.type) for x in xs)}")
    return xs, several


def _kind(block: Block) -> tuple[str | None, str | None]:
    """The reduction and the scan that a region of one op is."""
    if len(block.ops) == 2 and len(block.args) == 2 and block.ops[0].operands in (block.args, block.args[::-1]):
        kinds = _KINDS.get(block.ops[0].name)
        if kinds is not None and block.ops[1].operands == block.ops[0].results:
            return kinds
    return None, None


def _across(xs: Sequence[Tensor], axis: Any, block: Block, keep_dims: Any) -> list[Tensor]:
    k = axis_of(axis, len(xs[0].shape))
    shape = _reduced(xs[0].shape, (k,), builtins.bool(unwrap(keep_dims)))
    if xs[0].shape[k] == 1:
        return [x.like(x.value, shape) for x in xs]
    b, dim = builder(), place(xs[0].shape, k)
    kind, _ = _kind(block)
    if kind is not None:
        return [xs[0].like(b.reduce(xs[0].value, kind, (dim,)), shape)]
    kept = tuple([n for j, n in enumerate(xs[0].value.type.extents) if j != dim])
    types = tuple([Type(x.dtype.ir, kept) for x in xs])
    results = b.put(Op("reduce_by", tuple([x.value for x in xs]), types, {"dims": (dim,)}, (block,), b.line))
    return [x.like(r, shape) for x, r in zip(xs, results)]


@member
def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """Join the elements along an axis by a function of two elements, which must be associative and commutative.

    Parameters
    ----------
    input : tensor or tuple of tensors
        Of several, the function takes an element of each, then another one of each, and returns as many.
    axis : int or None
        None: all elements.
    """
    xs, several = _inputs("reduce", input)
    if unwrap(axis) is None:
        shape = _reduced(xs[0].shape, _axes(xs[0], None), builtins.bool(unwrap(keep_dims)))
        flat = [reshape(x, (x.numel,)) for x in xs]
        results = [r.like(r.value, shape) for r in _across(flat, 0, _joining(combine_fn, xs), False)]
    else:
        results = _across(xs, axis, _joining(combine_fn, xs), keep_dims)
    return tuple(results) if several else results[0]


# -- scans ------------------------------------------------------------------------------------------------------------
def _scan(x: Tensor, kind: str, axis: Any, reverse: Any) -> Tensor:
    k = axis_of(axis, len(x.shape))
    if x.shape[k] == 1:
        return x
    return x.like(builder().scan(x.value, kind, place(x.shape, k), reverse=builtins.bool(unwrap(reverse))))


@member
def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> Tensor:
    """Sums of the elements so far along an axis."""
    x = _numbers("cumsum", input)
    return _scan(convert(x, _sum_type(x.dtype, dtype)), "cumsum", axis, reverse)


@member
def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> Tensor:
    """Products of the elements so far along an axis."""
    x = _numbers("cumprod", input)
    return _scan(convert(x, float32) if x.dtype == bfloat16 else x, "cumprod", axis, reverse)


@member
def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Join the elements so far along an axis by an associative function of an earlier and a later element."""
    xs, several = _inputs("associative_scan", input)
    k = axis_of(axis, len(xs[0].shape))
    if xs[0].shape[k] == 1:
        return tuple(xs) if several else xs[0]
    block = _joining(combine_fn, xs)
    _, kind = _kind(block)
    if kind is not None and xs[0].dtype != int1:
        results = [_scan(xs[0], kind, axis, reverse)]
    else:
        b = builder()
        attrs = {"dim": place(xs[0].shape, k), "reverse": builtins.bool(unwrap(reverse))}
        values = tuple([x.value for x in xs])
        types = tuple([v.type for v in values])
        made = b.put(Op("scan_by", values, types, attrs, (block,), b.line))
        results = [x.like(r) for x, r in zip(xs, made)]
    return tuple(results) if several else results[0]


# -- made of these ----------------------------------------------------------------------------------------------------
@member
def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    return truediv(1, add(1, exp(-tensor(x))))


@member
def softmax(x: Tensor, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> Tensor:
    """exp(x) as parts of its sum along a dim, by default the first."""
    axis = 0 if unwrap(dim) is None else dim
    numerator = exp(x - max(x, axis, keep_dims=True))
    return fdiv(numerator, sum(numerator, axis, keep_dims=True))


__all__ = [
    "argmax", "argmin", "associative_scan", "cumprod", "cumsum", "max", "min", "reduce", "reduce_or", "sigmoid",
    "softmax", "sum", "xor_sum",
]  # fmt: skip
