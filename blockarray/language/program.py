"""The program itself: its place in the grid, products, loops' ranges, hints, and what only shows."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from .elementwise import static_int
from .emit import bare, bound, builder, common_shape, constant, learn, least, whole
from .emit import cast as cast_value
from .errors import CompilationError
from .shapes import reshape
from .types import bfloat16, dtype, float16, float32, float64, int1, int32, unwrap
from .values import Tensor, broadcast_to, convert, element_type, member, tensor, truth


# -- the grid ---------------------------------------------------------------------------------------------------------
def _axis(axis: Any) -> int:
    k = static_int(axis, "the axis")
    if not 0 <= k < 3:
        raise CompilationError(f"a grid has axes 0, 1 and 2, not {k}")
    return k


def program_id(axis: Any) -> Tensor:
    """This program's number along an axis of the grid."""
    b = builder()
    value = b.program_id(2 - _axis(axis))
    bound(value, 0)
    return Tensor(cast_value(value, "i32"), int32)


def num_programs(axis: Any) -> Tensor:
    """The number of programs along an axis of the grid."""
    return Tensor(cast_value(builder().grid[_axis(axis)], "i32"), int32)


# -- products ---------------------------------------------------------------------------------------------------------
def _product_type(a: dtype, b: dtype, out: dtype) -> dtype:
    """The type that products are added up in."""
    if a.is_int():
        if a.int_bitwidth != 8:
            raise CompilationError(f"dot takes integers of 8 bits only, not {a}")
        return int32
    if a == float64:
        return float64
    if out == bfloat16:
        raise CompilationError("dot gives float32 or float16; cast its result to bfloat16")
    return float16 if out == float16 and a == float16 else float32


def dot(
    input: Any, other: Any, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None, out_dtype: Any = float32,
) -> Tensor:  # fmt: skip
    """The product of matrices, or of as many matrices as the dims before the last two say.

    Parameters
    ----------
    input, other : tensor
        Of shapes (M, K) and (K, N), and as many dims before these.
    acc : tensor, optional
        What the product is added to.
    input_precision : str, optional
        How float32 is multiplied: "tf32" (by default), "tf32x3" or "ieee".
    max_num_imprecise_acc : int, optional
        How many products of 8-bit floats may be added up with less precision than float32's.
    out_dtype : dtype
        The result's, without acc.
    """
    a, b = tensor(input), tensor(other)
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise CompilationError(f"dot takes two blocks of two (or more) dims, not {a.type} and {b.type}")
    if len(a.shape) > 3:
        batch = a.shape[:-2]
        if b.shape[:-2] != batch:
            raise CompilationError(f"dot's operands have {list(batch)} and {list(b.shape[:-2])} matrices")
        count = int(np.prod(batch))
        first, second = (reshape(x, (count, *x.shape[-2:])) for x in (a, b))
        sums = None if unwrap(acc) is None else reshape(acc, (count, *acc.shape[-2:]))
        found = dot(first, second, sums, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return reshape(found, (*batch, *found.shape[-2:]))
    if a.dtype.is_ptr() or b.dtype.is_ptr():
        raise CompilationError(f"dot does not take pointers: {a.type} and {b.type}")
    narrow = (a.dtype.is_fp8() and b.dtype.is_fp8()) or {a.dtype.name, b.dtype.name} <= {"int8", "uint8"}
    if a.dtype != b.dtype and not narrow:
        raise CompilationError(f"dot takes blocks of one type, not {a.dtype} and {b.dtype}")
    k, (k2, n) = a.shape[-1], b.shape[-2:]
    if k != k2 or a.shape[:-2] != b.shape[:-2]:
        raise CompilationError(f"the shapes of dot's operands do not match: {list(a.shape)} and {list(b.shape)}")
    least = 32 if a.dtype.primitive_bitwidth == 8 else 16
    if k < least:
        raise CompilationError(
            f"dot of {a.dtype} needs K >= {least}, but the shapes are {list(a.shape)} and {list(b.shape)}"
        )
    wanted = element_type(out_dtype)
    type = _product_type(a.dtype, b.dtype, wanted)
    shape = (*a.shape[:-1], n)
    start = None
    if unwrap(acc) is not None:
        sums = tensor(acc)
        if sums.shape != shape:
            raise CompilationError(f"dot's acc has shape {list(sums.shape)}, and the product {list(shape)}")
        if sums.dtype == float16 and a.dtype == float16:
            type = float16
        if sums.dtype != type:
            raise CompilationError(f"dot's acc is {sums.dtype}, and the product {type}")
        start, wanted = whole(sums.value, shape), type
    imprecise = unwrap(max_num_imprecise_acc)
    if imprecise is not None and not (a.dtype.is_fp8() and b.dtype.is_fp8()):
        imprecise = None
    if imprecise is not None and imprecise > k:
        raise CompilationError(f"max_num_imprecise_acc is {imprecise}, more than K ({k})")
    precision = _precision(input_precision, allow_tf32) if a.dtype == float32 else None
    value = builder().dot(
        whole(a.value, a.shape), whole(b.value, b.shape), start, type.ir, precision, max_num_imprecise=imprecise
    )
    result = Tensor(bare(value), type, shape)
    return convert(result, wanted) if wanted.is_floating() and type.is_floating() else result


def _precision(input_precision: Any, allow_tf32: Any) -> str:
    chosen, allowed = unwrap(input_precision), unwrap(allow_tf32)
    if chosen is not None and allowed is not None:
        raise CompilationError("dot takes input_precision or allow_tf32, not both")
    if chosen is None:
        return "tf32" if allowed is None or allowed else "ieee"
    chosen = str(chosen).lower()
    if chosen in ("bf16x3", "bf16x6"):
        return "tf32x3"  # which is more precise
    if chosen not in ("tf32", "tf32x3", "ieee"):
        raise CompilationError(f"input_precision is 'tf32', 'tf32x3' or 'ieee', not {chosen!r}")
    return chosen


def dot_scaled(*args: Any, **kwargs: Any) -> Tensor:
    """Products of blocks with scales; not supported."""
    raise CompilationError("dot_scaled is not supported: scale the operands, and use dot")


# -- ranges -----------------------------------------------------------------------------------------------------------
class range:
    """What a `for` of a kernel runs over, with hints.

    Parameters
    ----------
    arg1, arg2, step : int or scalar
        As Python's range takes.
    num_stages : int, optional
        How many iterations' loads are in flight together.
    loop_unroll_factor : int, optional
    flatten, disallow_acc_multi_buffer, warp_specialize, disable_licm : bool
    """

    def __init__(
        self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None, loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False, flatten: Any = False, warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:  # fmt: skip
        arg1, arg2, step = map(unwrap, (arg1, arg2, step))
        self.start, self.end = (0, arg1) if arg2 is None else (arg1, arg2)
        self.step = 1 if step is None else step
        hints = {
            "num_stages": unwrap(num_stages), "unroll": unwrap(loop_unroll_factor),
            "flatten": builtins.bool(unwrap(flatten)),
            "disallow_acc_multi_buffer": builtins.bool(unwrap(disallow_acc_multi_buffer)),
            "warp_specialize": builtins.bool(unwrap(warp_specialize)),
        }  # fmt: skip
        #: Attributes of the IR's loop.
        self.hints = {k: v for k, v in hints.items() if v}

    def __iter__(self) -> Iterator[Tensor]:
        """In interpret mode."""
        bounds = [tensor(x) for x in (self.start, self.end, self.step)]
        type = int32 if all(b.dtype.int_bitwidth <= 32 for b in bounds) else bounds[0].dtype
        for i in builtins.range(*map(int, bounds)):
            yield tensor(i, type)


class static_range:
    """What a `for` runs over that is unrolled: its bounds are constexprs, and so is its variable."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        arg1, arg2, step = map(unwrap, (arg1, arg2, step))
        given = [arg1] if arg2 is None else [arg1, arg2, 1 if step is None else step]
        self.values = builtins.range(*[static_int(x, "a bound of static_range") for x in given])

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)


def condition(arg: Any, disable_licm: Any = False) -> Any:
    """The condition of a `while`, with hints."""
    return arg


# -- hints ------------------------------------------------------------------------------------------------------------
def _hint(x: Any, name: str, values: Any) -> Tensor:
    x = tensor(x)
    given = unwrap(values)
    sizes = [static_int(v, name) for v in (given if isinstance(given, (tuple, list)) else (given,))]
    if len(sizes) != max(len(x.shape), 1):
        raise CompilationError(f"{name} takes a number a dim: {len(sizes)} for {x.type}")
    if not (x.dtype.is_ptr() or x.dtype.is_int()) or x.dtype == int1 or builder().eager:
        return x
    kept = [v for v, n in zip(sizes, x.shape) if n != 1] if x.value.type.extents else sizes[:1]
    made = builder().hint(x.value, **{name.removeprefix("max_").removesuffix("_of"): kept})
    bound(made, least(x.value))
    return x.like(made)


@member
def multiple_of(input: Any, values: Any) -> Tensor:
    """The same block, of which the compiler is told that the first of each row of contiguous values is a multiple."""
    return _hint(input, "multiple_of", values)


@member
def max_contiguous(input: Any, values: Any) -> Tensor:
    """The same block, of which the compiler is told that so many values in a row are contiguous."""
    return _hint(input, "max_contiguous", values)


@member
def max_constancy(input: Any, values: Any) -> Tensor:
    """The same block, of which the compiler is told that so many values in a row are equal."""
    return _hint(input, "max_constancy", values)


def assume(cond: Any) -> None:
    """Tell the compiler that a condition holds."""
    cond = unwrap(cond)
    if isinstance(cond, Tensor) and constant(cond.value) is None:
        condition = truth(cond).value
        learn(condition)
        builder().assume(condition)


def debug_barrier() -> None:
    """Wait for all threads of the program."""
    builder().barrier()


# -- messages ---------------------------------------------------------------------------------------------------------
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """Print when the kernel is compiled."""
    print(*map(unwrap, values), sep=sep, end=end, file=file, flush=flush)


def static_assert(cond: Any, msg: Any = "") -> None:
    """An error, when the kernel is compiled, unless the condition holds."""
    cond = unwrap(cond)
    if isinstance(cond, Tensor) and constant(cond.value) is None and not builder().eager:
        raise CompilationError(f"static_assert takes a constexpr, not a run-time value of type {cond.type}")
    if not cond:
        raise CompilationError(f"static_assert failed{': ' if unwrap(msg) else ''}{unwrap(msg)}")


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print values while the kernel runs, behind a prefix."""
    prefix = unwrap(prefix)
    if not isinstance(prefix, str):
        raise CompilationError(f"device_print's first argument is a string, not {prefix!r}")
    tensors = [tensor(x) for x in args]
    values = []
    for x in tensors:
        x = convert(x, "i64") if x.dtype.is_ptr() else x
        values.append(x.value)
    builder().print(values, prefix, builtins.bool(unwrap(hex)))


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Where kernels are debugged, an error unless the condition holds (where `mask` is True)."""
    b = builder()
    if not b.debug:
        return
    cond, message = truth(unwrap(cond)), str(unwrap(msg))
    chosen = None
    if unwrap(mask) is not None:
        chosen = truth(mask)
        shape = common_shape(cond.shape, chosen.shape)
        cond, chosen = broadcast_to(cond, shape), broadcast_to(chosen, shape).value
    where = f" ({b.line[0]}:{b.line[1]})" if b.line else ""
    b.check(cond.value, f"device_assert failed: {message}{where}", chosen)


# -- what is not there ------------------------------------------------------------------------------------------------
def inline_asm_elementwise(*args: Any, **kwargs: Any) -> Tensor:
    """Machine code of one target; not supported."""
    raise CompilationError("inline_asm_elementwise is not supported: kernels are not written for one target")
