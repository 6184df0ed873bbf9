"""Functions of each element by itself; most are rows of the compiler's op table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

from ..compiler import ops
from .emit import bound, builder, const, elementwise
from .emit import cast as cast_value
from .errors import CompilationError
from .types import bfloat16, float32, int1, int32, int64, uint32, uint64, unwrap
from .values import (
    Tensor,
    add,
    address,
    broadcast_to,
    common_type,
    convert,
    element_type,
    floordiv,
    is_number,
    known_number,
    member,
    operands,
    same_shape,
    sub,
    tensor,
    truth,
)  # fmt: skip

#: Elements a block may have.
MAX_NUMEL = 1 << 20


class PropagateNan(Enum):
    """Whether `minimum`, `maximum` and `clamp` give NaN for a NaN, or the other operand."""

    NONE = 0
    ALL = 0xFFFF


# -- new values -------------------------------------------------------------------------------------------------------
def static_int(x: Any, what: str) -> int:
    """`x`, which must be an integer that is known when the kernel is compiled."""
    x = unwrap(x)
    if isinstance(x, Tensor):
        raise CompilationError(f"{what} must be a constexpr, not a run-time value of type {x.type}{_constant_by(x)}")
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise CompilationError(f"{what} must be a constexpr integer, not {x!r}")
    return int(x.__index__())


def _constant_by(x: Tensor) -> str:
    """How what is known at run time would become a constant."""
    if x.value.op is None and x.value.name and not x.dtype.is_ptr():
        return f": annotate the parameter {x.value.name} with tl.constexpr"
    number = known_number(x)
    return "" if number is None else f": annotate the variable, as NAME: tl.constexpr = {number}"


def block_shape(shape: Any, what: str = "the shape") -> tuple[int, ...]:
    """A block's shape: powers of two that are known when the kernel is compiled."""
    shape = unwrap(shape)
    if not isinstance(shape, (tuple, list)):
        shape = (shape,)
    sizes = tuple([static_int(n, f"element {k} of {what}") for k, n in enumerate(shape)])
    count = 1
    for k, n in enumerate(sizes):
        if n < 1 or n & (n - 1):
            raise CompilationError(f"element {k} of {what} is {n}, which is no power of two{_next_power(n)}")
        count *= n
    if count > MAX_NUMEL:
        raise CompilationError(f"a block of shape {list(sizes)} has {count} elements, more than {MAX_NUMEL}")
    return sizes


def _next_power(n: int) -> str:
    """What to do about a size that is no power of two."""
    return f": take {1 << n.bit_length()}, and mask what is too much" if n > 0 else ""


def arange(start: Any, end: Any) -> Tensor:
    """The integers from start up to end, excluded, as an int32 block; their number is a power of two."""
    start, end = static_int(start, "arange's start"), static_int(end, "arange's end")
    if not -(2**31) <= start <= 2**31 - 1 or not end <= 2**31 - 1:
        raise CompilationError(f"arange({start}, {end}) is out of range for int32")
    if end <= start:
        raise CompilationError(f"arange({start}, {end}) is empty: its end must be above its start")
    count = end - start
    if count & (count - 1):
        what = f"arange({start}, {end}) has {count} elements"
        raise CompilationError(f"{what}, which is no power of two{_next_power(count)}")
    (count,) = block_shape(count, "arange's range")
    b = builder()
    if count == 1:
        return Tensor(const(start, "i32"), int32, (1,))
    positions = b.iota(count)
    bound(positions, 0)
    return add(Tensor(cast_value(positions, "i32"), int32, (count,)), start)


def full(shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """A block of one value."""
    shape, value = block_shape(shape), unwrap(value)
    if isinstance(value, Tensor):
        if value.numel != 1:
            raise CompilationError(f"full takes a scalar, not a {value.type}")
        scalar = value if dtype is None else convert(value, dtype)
        scalar = scalar.like(scalar.value, ())
    else:
        if dtype is None:
            raise CompilationError("full needs a dtype where its value is a number")
        type = element_type(dtype)
        if not is_number(value):
            raise CompilationError(f"full takes a number or a scalar, not {value!r}")
        if type.is_ptr():
            raise CompilationError("full makes no pointers of numbers")
        number = value if type.is_floating() or not isinstance(value, float) else int(value)
        scalar = Tensor(const(bool(number) if type == int1 else number, type.ir), type)
    return broadcast_to(scalar, shape)


def zeros(shape: Any, dtype: Any) -> Tensor:
    """A block of zeros."""
    return full(shape, 0, dtype)


@member
def zeros_like(input: Tensor) -> Tensor:
    """Zeros of the shape and type of another tensor."""
    return zeros(input.shape, input.dtype)


def to_tensor(x: Any) -> Tensor:
    """A Python number as a scalar."""
    return tensor(x)


@member
def cast(input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> Tensor:
    """The elements as another type; with `bitcast`, the same bits.

    Parameters
    ----------
    fp_downcast_rounding : str, optional
        "rtne" (to nearest, halves to even) or "rtz" (towards zero), where floats become narrower.
    """
    input = unwrap(input)
    return convert(tensor(input), dtype, fp_downcast_rounding, bool(bitcast))


def broadcast(input: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Both with the shape that they have together."""
    a, b = same_shape(tensor(input), tensor(other))
    return a, b


# -- selection --------------------------------------------------------------------------------------------------------
def where(condition: Any, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y; both are always computed."""
    if isinstance(condition, Tensor) and condition.dtype != int1:
        warnings.warn(f"where takes a condition of int1; {condition.dtype} is compared with 0", stacklevel=2)
    condition, x, y = truth(condition), unwrap(x), unwrap(y)
    if any(isinstance(v, Tensor) and v.dtype.is_ptr() for v in (x, y)):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype):
            raise CompilationError("where takes two pointers of one type, or none")
        if x.base is not y.base or x.base in builder().origins.values():
            return convert(where(condition, address(x), address(y)), x.dtype)
    else:
        type = common_type(x, y)
        x, y = (convert(tensor(v, None if isinstance(v, Tensor) else type), type) for v in (x, y))
    condition, x, y = same_shape(condition, x, y)
    return x.like(elementwise("where", condition.value, x.value, y.value))


def _extremum(name: str, narrow: str, x: Any, y: Any, propagate_nan: Any) -> Tensor:
    x, y = _at_least_f32(unwrap(x)), _at_least_f32(unwrap(y))
    x, y = operands(x, y)
    every = unwrap(propagate_nan) in (PropagateNan.ALL, True)
    return x.like(elementwise(name if every or x.dtype.is_int() else narrow, x.value, y.value))


def _at_least_f32(x: Any) -> Any:
    return convert(x, float32) if isinstance(x, Tensor) and x.dtype == bfloat16 else x


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """The smaller operand; of a NaN and a number the number, unless NaNs propagate."""
    return _extremum("minimum", "fmin", x, y, propagate_nan)


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """The larger operand; of a NaN and a number the number, unless NaNs propagate."""
    return _extremum("maximum", "fmax", x, y, propagate_nan)


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """x within [min, max]; a NaN becomes min, unless NaNs propagate."""
    x = tensor(x)
    if not x.dtype.is_floating():
        raise CompilationError(f"clamp takes floating-point numbers, not {x.type}")
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


# -- rows of the table ------------------------------------------------------------------------------------------------
def floats(name: str, *xs: Any) -> list[Tensor]:
    """Operands that must be floating-point numbers."""
    tensors = [tensor(x) for x in xs]
    for x in tensors:
        if not x.dtype.is_floating():
            raise CompilationError(f"{name} takes floating-point numbers, not {x.type}")
    return tensors


def from_table(name: str, row: str, exact: bool = False) -> Callable[..., Tensor]:
    """The function of floating-point numbers that a row of the op table is."""
    entry = ops.TABLE[row]

    def one(x: Any) -> Tensor:
        (value,) = floats(name, x)
        result = elementwise(row, value.value, exact=exact)
        return Tensor(result, int1 if result.type.dtype == "bool" else value.dtype, value.shape)

    def two(x: Any, y: Any) -> Tensor:
        a, b = operands(x, y)
        floats(name, a, b)
        return a.like(elementwise(row, a.value, b.value))

    function = one if entry.arity == 1 else two
    function.__name__ = function.__qualname__ = name
    function.__doc__ = entry.doc
    return function


exp, exp2, log, log2 = (from_table(n, n) for n in ("exp", "exp2", "log", "log2"))
cos, sin, sqrt, floor, ceil = (from_table(n, n) for n in ("cos", "sin", "sqrt", "floor", "ceil"))
sqrt_rn = from_table("sqrt_rn", "sqrt", exact=True)
for _function in (exp, exp2, log, log2, cos, sin, sqrt, sqrt_rn, floor, ceil):
    member(_function)


@member
def abs(x: Any) -> Tensor:
    """Absolute value."""
    x = tensor(x)
    if x.dtype.is_ptr():
        raise CompilationError(f"abs does not take pointers: {x.type}")
    return x if x.dtype.is_int_unsigned() else x.like(elementwise("absolute", x.value))


@member
def fdiv(x: Any, y: Any, ieee_rounding: bool = False) -> Tensor:
    """The quotient of floating-point numbers."""
    a, b = operands(x, y)
    floats("fdiv", a, b)
    return a.like(elementwise("divide", a.value, b.value, exact=ieee_rounding))


@member
def div_rn(x: Any, y: Any) -> Tensor:
    """The quotient, rounded to the nearest float32."""
    return fdiv(x, y, ieee_rounding=True)


@member
def cdiv(x: Any, div: Any) -> Any:
    """The quotient of integers, rounded up."""
    x, div = unwrap(x), unwrap(div)
    if not isinstance(x, Tensor) and not isinstance(div, Tensor):
        return -(-x // div)
    return floordiv(add(x, sub(div, 1) if isinstance(div, Tensor) else div - 1), div)


@member
def umulhi(x: Any, y: Any) -> Tensor:
    """The upper half of the product of integers of 32 or 64 bits."""
    a, b = operands(x, y)
    if a.dtype not in (int32, uint32, int64, uint64):
        raise CompilationError(f"umulhi takes integers of 32 or 64 bits, not {a.type}")
    return a.like(elementwise("umulhi", a.value, b.value))


@member
def fma(x: Any, y: Any, z: Any) -> Tensor:
    """x * y + z, rounded once."""
    x, y = operands(x, y)
    x, z = operands(x, z)
    x, y = operands(x, y)
    floats("fma", x, y, z)
    x, y, z = same_shape(x, y, z)
    return x.like(elementwise("fma", x.value, y.value, z.value))


rsqrt, erf = member(from_table("rsqrt", "rsqrt")), member(from_table("erf", "erf"))
