"""Scalars and blocks, and the rules of their arithmetic.

The types of operands are Triton's: Python's numbers are weak, and among blocks and scalars alike the wider type wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import ml_dtypes
import numpy as np

from ..compiler import dtypes
from ..compiler.ir import Value
from .emit import builder, cast, common_shape, const, constant, elementwise, extents, spread
from .errors import CompilationError
from .types import (
    OF_IR,
    bfloat16,
    block_type,
    constexpr,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    pointer_type,
    uint32,
    uint64,
    unwrap,
)  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])


class Tensor:
    """A scalar (of shape ()) or a block of elements.

    Attributes
    ----------
    value : Value
        Its IR value, without extents of 1.  Of a pointer: the index, in elements from `base`.
    dtype : dtype
        The type of its elements.
    shape : tuple of int
    base : Value or None
        Of pointers, what the index is relative to.
    """

    __slots__ = ("value", "dtype", "shape", "base")

    def __init__(self, value: Value, dtype: dtype, shape: Sequence[int] = (), base: Value | None = None) -> None:
        assert value.type.extents == extents(shape), (value, shape)
        self.value = value
        self.dtype = dtype
        self.shape = tuple(shape)
        self.base = base

    def like(self, value: Value, shape: Sequence[int] | None = None) -> Tensor:
        """Another value of the same kind."""
        return Tensor(value, self.dtype, self.shape if shape is None else shape, self.base)

    @property
    def type(self) -> dtype:
        return block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape))

    @property
    def T(self) -> Tensor:
        if TYPE_CHECKING:
            return self
        return self.trans()

    def __repr__(self) -> str:
        held = getattr(self.value, "array", None)
        return f"{self.type}" if held is None else f"{held} : {self.type}"

    if TYPE_CHECKING:
        # The members that `member` adds.
        def __getattr__(self, name: str) -> Any: ...

    # -- Python's questions: of what is known ---------------------------------------------------------------------
    def known(self) -> Any:
        """The number that a scalar is; CompilationError if that is known at run time only."""
        if self.dtype.is_ptr():
            return address(self).known()
        array = getattr(self.value, "array", None)
        known = known_number(self) if array is None else array.item() if array.size == 1 else None
        if known is None:
            raise CompilationError(f"the value of a {self.type} is not known when the kernel is compiled")
        return known

    def __bool__(self) -> bool:
        return bool(self.known())

    def __int__(self) -> int:
        return int(self.known())

    def __index__(self) -> int:
        if not self.dtype.is_int():
            raise TypeError(f"{self.type} is no integer")
        return int(self.known())

    def __float__(self) -> float:
        return float(self.known())

    def __len__(self) -> int:
        if not self.shape:
            raise CompilationError(f"a {self.type} has no len")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise CompilationError(f"a {self.type} cannot be iterated over")

    __hash__ = None  # type: ignore[assignment]
    #: Numbers of NumPy leave operators to tensors.
    __array_ufunc__ = None

    def item(self) -> Tensor:
        """The only element, as a scalar."""
        if self.numel != 1:
            raise CompilationError(f"item takes a block of one element, not {self.type}")
        return self.like(self.value, ())

    # -- operators ------------------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        return add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return truediv(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return truediv(other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> Tensor:
        return mod(self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return mod(other, self)

    def __and__(self, other: Any) -> Tensor:
        return bitwise("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return bitwise("bitwise_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return bitwise("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return bitwise("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return bitwise("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return bitwise("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return bitwise("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return bitwise("left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return bitwise("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return bitwise("right_shift", other, self)

    def __neg__(self) -> Tensor:
        _no_pointer("-", self)
        x = self.to(int32) if self.dtype == int1 else self
        return x.like(elementwise("negative", x.value))

    def __pos__(self) -> Tensor:
        return self

    def __invert__(self) -> Tensor:
        if not self.dtype.is_int():
            raise CompilationError(f"~ takes integers, not {self.type}")
        return self.like(elementwise("logical_not" if self.dtype == int1 else "invert", self.value))

    def __lt__(self, other: Any) -> Tensor:
        return compare("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return compare("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return compare("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return compare("greater_equal", self, other)

    def __eq__(self, other: Any) -> Any:
        return compare("equal", self, other)

    def __ne__(self, other: Any) -> Any:
        return compare("not_equal", self, other)

    def __getitem__(self, slices: Any) -> Tensor:
        """x[:, None] and the like: all of each dim, and new ones of extent 1."""
        shape, rest = [], list(self.shape)
        for s in slices if isinstance(slices, tuple) else (slices,):
            s = unwrap(s)
            whole = isinstance(s, slice) and (s.start, s.stop, s.step) == (None, None, None)
            if s is None:
                shape.append(1)
            elif whole and rest:
                shape.append(rest.pop(0))
            elif whole and not self.shape:
                pass  # a scalar has no dims to keep
            elif s is Ellipsis:
                shape, rest = shape + rest, []
            elif self.dtype.is_ptr():
                raise CompilationError(f"a {self.type} has no elements: load what it points to, by tl.load(x + i)")
            elif rest:
                hint = ": see tl.gather" if isinstance(s, Tensor) else ""
                raise CompilationError(f"a {self.type} takes None and `:` as indices, not {_spell(s)}{hint}")
            else:
                raise CompilationError(f"too many indices of a {self.type}")
        return self.like(self.value, shape + rest)

    def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> Tensor:
        """The elements as another type; with `bitcast`, the same bits."""
        return convert(self, dtype, fp_downcast_rounding, bitcast)

    def logical_and(self, other: Any) -> Tensor:
        return bitwise("logical_and", truth(self), truth(other))

    def logical_or(self, other: Any) -> Tensor:
        return bitwise("logical_or", truth(self), truth(other))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def member(function: _F) -> _F:
    """Make a function of the language a method of tensors, too."""
    setattr(Tensor, function.__name__, function)
    return function


# -- from Python's numbers --------------------------------------------------------------------------------------------
def number_dtype(x: Any) -> dtype:
    """The element type of a Python number where no operand has another."""
    if isinstance(x, (bool, np.bool_)):
        return int1
    if isinstance(x, (int, np.integer)):
        for candidate in (int32, uint32, int64, uint64):
            if candidate.get_int_min_value() <= x <= candidate.get_int_max_value():
                return candidate
        raise CompilationError(f"{x} does not fit an integer of 64 bits")
    if isinstance(x, (float, np.floating)):
        size = abs(float(x))
        small = size == 0 or size != size or size == float("inf") or 2.0**-126 <= size <= 3.4028234663852886e38
        return float32 if small else float64
    if isinstance(x, dtype):
        raise CompilationError(f"expected a number or a block, not the type {x}")
    raise CompilationError(f"expected a number or a block, not {x!r} of type {type(x).__name__}")


def tensor(x: Any, type: dtype | None = None) -> Tensor:
    """A tensor; of a Python number, a scalar constant."""
    x = unwrap(x)
    if isinstance(x, Tensor):
        return x
    type = number_dtype(x) if type is None else type
    return Tensor(const(x, type.ir), type)


def known_number(x: Tensor) -> Any:
    """The number that a scalar is known to be when the kernel is compiled, or None."""
    # Of a pointer the value is an index, and no number of its own.
    return None if x.dtype.is_ptr() else constant(x.value)


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, np.number, np.bool_))


def element_type(x: Any) -> dtype:
    """A dtype by itself or by its name."""
    x = unwrap(x)
    if isinstance(x, str) and x in OF_IR:
        return OF_IR[x]
    if not isinstance(x, dtype) or x.is_block():
        raise CompilationError(f"expected an element type, such as tl.float32, not {x!r}")
    if not x.is_ptr() and x.ir not in OF_IR:
        raise CompilationError(f"there are no values of type {x}")
    return x


# -- types of operands ------------------------------------------------------------------------------------------------
def integer_type(a: dtype, b: dtype) -> dtype:
    """The wider type; of types of one width, the unsigned one."""
    if a.is_int_signed() == b.is_int_signed():
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (b, a) if a.is_int_signed() else (a, b)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def common_type(x: Any, y: Any, division: bool = False) -> dtype:
    """The type that the arithmetic of two operands is done in; a division of narrow floats is done in float32."""
    a, b = (v.dtype if isinstance(v, Tensor) else number_dtype(v) for v in (x, y))
    weak = [not isinstance(v, Tensor) for v in (x, y)]
    if weak[0] != weak[1]:
        number, other = (a, b) if weak[0] else (b, a)
        if number.kind().value <= other.kind().value:
            return float32 if division and other in (float16, bfloat16) else other
    for wide in (float64, float32):
        if wide in (a, b):
            return wide
    if float16 in (a, b):
        return float32 if division else float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b and not division else float32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else float16
    if not (a.is_int() and b.is_int()):
        raise CompilationError(f"no common type of {a} and {b}")
    if division and a.is_int_signed() != b.is_int_signed():
        raise CompilationError(f"/, // and % take integers of one signedness, not {a} and {b}: cast one of them")
    return integer_type(a, b)


def operands(x: Any, y: Any, division: bool = False) -> tuple[Tensor, Tensor]:
    """Both as tensors of one type and shape."""
    x, y = unwrap(x), unwrap(y)
    type = common_type(x, y, division)
    return same_shape(_as(x, type), _as(y, type))


def _as(x: Any, type: dtype) -> Tensor:
    if isinstance(x, Tensor):
        return convert(x, type)
    if type.is_int():
        if x < 0 and type.is_int_unsigned():
            raise CompilationError(f"{x} is negative, and the other operand is unsigned ({type}): cast one of them")
        if not type.get_int_min_value() <= x <= type.get_int_max_value():
            raise CompilationError(f"{x} is out of range for {type}, the other operand's type")
    return Tensor(const(x, type.ir), type)


def same_shape(*tensors: Tensor) -> tuple[Any, ...]:
    shape = common_shape(*[t.shape for t in tensors])
    return tuple([broadcast_to(t, shape) for t in tensors])


def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.shape == shape:
        return x
    if common_shape(x.shape, shape) != shape:
        raise CompilationError(f"a block of shape {list(x.shape)} cannot be broadcast to {list(shape)}")
    own = (1,) * (len(shape) - len(x.shape)) + x.shape
    return x.like(spread(x.value, own, shape), shape)


def _no_pointer(sign: str, *xs: Any) -> None:
    for x in xs:
        if isinstance(x, Tensor) and x.dtype.is_ptr():
            raise CompilationError(f"{sign} does not take pointers: {x.type}")


def truth(x: Any) -> Tensor:
    x = tensor(x)
    return x if x.dtype == int1 else convert(x, int1)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def binary(name: str, x: Any, y: Any, division: bool = False) -> Tensor:
    a, b = operands(x, y, division)
    return a.like(elementwise(name, a.value, b.value))


def _is(x: Any, number: int) -> bool:
    """Whether an operand is this number."""
    x = unwrap(x)
    if isinstance(x, Tensor):
        return x.dtype.is_int() and not x.shape and known_number(x) == number
    return is_number(x) and type(x) is not float and x == number


def _neutral(x: Any, y: Any, number: int, either: bool = False) -> Tensor | None:
    """x where y is `number`, which changes no integer, and does not change the type; with `either`, or y."""
    if isinstance(x, Tensor) and x.dtype.is_int() and x.dtype != int1 and _is(y, number):
        return x if common_type(x, unwrap(y)) == x.dtype else None
    return _neutral(y, x, number) if either else None


def add(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """x + y; pointers move by elements."""
    x, y = unwrap(x), unwrap(y)
    if isinstance(x, Tensor) and x.dtype.is_ptr():
        return offset(x, y)
    if isinstance(y, Tensor) and y.dtype.is_ptr():
        return offset(y, x)
    same = _neutral(x, y, 0, either=True)
    return _modular("add", x, y, sanitize_overflow) if same is None else same


def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """x - y."""
    x, y = unwrap(x), unwrap(y)
    if isinstance(x, Tensor) and x.dtype.is_ptr():
        if isinstance(y, Tensor) and y.dtype.is_ptr():
            raise CompilationError("a difference of pointers is not part of the language")
        return offset(x, -y)
    _no_pointer("-", y)
    same = _neutral(x, y, 0)
    return _modular("subtract", x, y, sanitize_overflow) if same is None else same


def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """x * y."""
    x, y = unwrap(x), unwrap(y)
    _no_pointer("*", x, y)
    same = _neutral(x, y, 1, either=True)
    return _modular("multiply", x, y, sanitize_overflow) if same is None else same


def _modular(name: str, x: Any, y: Any, checked: Any) -> Tensor:
    a, b = operands(x, y)
    if builder().sanitize and unwrap(checked):
        _check_overflow(name, a, b)
    if a.dtype == int1:
        # Integers of one bit.
        name = "logical_and" if name == "multiply" else "logical_xor"
    return a.like(elementwise(name, a.value, b.value))


def _check_overflow(name: str, a: Tensor, b: Tensor) -> None:
    """Check that a sum, a difference or a product is a number of its type, by one of 64 bits."""
    if not a.dtype.is_int() or not 1 < a.dtype.primitive_bitwidth < 64:
        return
    wide = Tensor(elementwise(name, convert(a, int64).value, convert(b, int64).value), int64, a.shape)
    least, most = a.dtype.get_int_min_value(), a.dtype.get_int_max_value()
    fits = elementwise("logical_and", (wide >= least).value, (wide <= most).value)
    builder().check(fits, f"overflow of {a.dtype}: {name}")


def truediv(x: Any, y: Any) -> Tensor:
    """x / y in floating point; of integers, in float32."""
    _no_pointer("/", x, y)
    a, b = operands(x, y, division=True)
    if a.dtype.is_int():
        a, b = convert(a, float32), convert(b, float32)
    return a.like(elementwise("divide", a.value, b.value))


def floordiv(x: Any, y: Any) -> Tensor:
    """The quotient of integers, rounded towards zero."""
    _no_pointer("//", x, y)
    x, y = unwrap(x), unwrap(y)
    if common_type(x, y, division=True).is_floating():
        raise CompilationError(f"// takes integers, not {_spell(x)} and {_spell(y)}")
    same = _neutral(x, y, 1)
    if same is not None:
        return same
    a, b = _wide_bools(*operands(x, y, division=True))
    return a.like(elementwise("trunc_divide", a.value, b.value))


def mod(x: Any, y: Any) -> Tensor:
    """The remainder; it has the sign of x."""
    _no_pointer("%", x, y)
    a, b = _wide_bools(*operands(x, y, division=True))
    return a.like(elementwise("fmod", a.value, b.value))


def _wide_bools(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (convert(a, int32), convert(b, int32)) if a.dtype == int1 else (a, b)


def bitwise(name: str, x: Any, y: Any) -> Tensor:
    _no_pointer(name, x, y)
    x, y = unwrap(x), unwrap(y)
    type = common_type(x, y)
    if not type.is_int():
        raise CompilationError(f"{_SIGNS[name]} takes integers, not {_spell(x)} and {_spell(y)}")
    if "shift" in name:
        if not isinstance(y, Tensor) and y < 0:
            raise CompilationError(f"a shift by {y}")
        if isinstance(x, Tensor):
            type = _signed_as(x.dtype, type)
    a, b = same_shape(_as(x, type), _as(y, type))
    if type == int1:
        if "shift" in name:
            a, b = convert(a, int32), convert(b, int32)
        else:
            name = name.replace("bitwise", "logical")
    return a.like(elementwise(name, a.value, b.value))


def _signed_as(type: dtype, wide: dtype) -> dtype:
    """The integer of `wide`'s size that is signed as another."""
    if type == int1 or wide == int1:
        return wide
    return OF_IR[f"{'i' if type.is_int_signed() else 'u'}{wide.int_bitwidth}"]


_SIGNS = {
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
    "logical_and": "and", "logical_or": "or", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=",
}  # fmt: skip


def _spell(x: Any) -> str:
    if isinstance(x, slice):
        parts = ["" if part is None else _spell(part) for part in (x.start, x.stop, x.step)]
        return ":".join(parts[: 2 if x.step is None else 3])
    return str(x.type) if isinstance(x, Tensor) else repr(x)


def compare(name: str, x: Any, y: Any) -> Any:
    x, y = unwrap(x), unwrap(y)
    for v in (x, y):
        if v is None or isinstance(v, (str, dtype)):
            if name in ("equal", "not_equal"):
                return name == "not_equal"
            raise CompilationError(f"{_SIGNS[name]} takes numbers and blocks, not {v!r}")
    pointers = [v for v in (x, y) if isinstance(v, Tensor) and v.dtype.is_ptr()]
    if pointers:
        for v in (x, y):
            # An address is a number; to order it among others says that an array stands where a number was meant.
            kind = v.dtype if isinstance(v, Tensor) else number_dtype(v)
            if not kind.is_ptr() and (name not in ("equal", "not_equal") or not kind.is_int()):
                raise CompilationError(
                    f"{_SIGNS[name]} does not compare {_spell(x)} with {_spell(y)}: one is a pointer"
                )
        if len(pointers) == 2 and x.base is y.base:
            a, b = same_shape(x, y)
        else:
            a, b = same_shape(*[address(v) if v in _Identity(pointers) else _as(v, int64) for v in (x, y)])
    else:
        a, b = operands(x, y)
    return Tensor(elementwise(name, a.value, b.value), int1, a.shape)


class _Identity(list[Any]):
    def __contains__(self, x: object) -> bool:
        return any(x is y for y in self)


# -- pointers ---------------------------------------------------------------------------------------------------------
def offset(pointer: Tensor, by: Any) -> Tensor:
    """The pointer, `by` elements on."""
    by = unwrap(by)
    if not isinstance(by, Tensor):
        if not isinstance(by, (int, np.integer)):
            raise CompilationError(f"a pointer moves by integers, not by {by!r}")
        by = Tensor(const(by, "i64"), int64)
    if not by.dtype.is_int():
        raise CompilationError(f"a pointer moves by integers, not by {by.type}")
    by = convert(by, int64)
    if constant(by.value) == 0:
        return broadcast_to(pointer, common_shape(pointer.shape, by.shape))
    if constant(pointer.value) == 0:
        shape = common_shape(pointer.shape, by.shape)
        return pointer.like(broadcast_to(by, shape).value, shape)
    a, b = same_shape(pointer, by)
    return a.like(elementwise("add", a.value, b.value))


def address(pointer: Tensor) -> Tensor:
    """The pointer as an int64."""
    assert pointer.base is not None
    size = pointer.dtype.element_ty.itemsize
    op = pointer.value.op
    if op is not None and op.name == "right_shift" and pointer.base in builder().origins.values():
        # As `pointer_at` made it.
        return Tensor(op.operands[0], int64, pointer.shape)
    index = Tensor(pointer.value, int64, pointer.shape)
    base = _address_of(pointer.base)
    scaled = mul(index, size)
    return scaled if base is None else add(scaled, Tensor(base, int64))


def _address_of(base: Value) -> Value | None:
    """The address of a base; None for address 0."""
    b = builder()
    if base in b.origins.values():
        return None
    if base.op is not None and base.op.name == "int_to_ptr":
        return base.op.operands[0]
    return b.ptr_to_int(base)


def pointer_at(x: Tensor, type: pointer_type) -> Tensor:
    """The pointer to an address, an int64."""
    size = type.element_ty.itemsize
    ir = "i64" if type.element_ty.is_ptr() else type.element_ty.ir
    if not x.shape:
        return Tensor(const(0, "i64"), type, (), builder().int_to_ptr(x.value, ir))
    shifted = x if size == 1 else bitwise("right_shift", x, size.bit_length() - 1)
    return Tensor(shifted.value, type, x.shape, builder().origin(ir))


def absolute(pointer: Tensor) -> Tensor:
    """The same pointer, relative to address 0."""
    b = builder()
    if pointer.base in b.origins.values():
        return pointer
    size = pointer.dtype.element_ty.itemsize
    shifted = bitwise("right_shift", address(pointer), size.bit_length() - 1)
    ir = "i64" if pointer.dtype.element_ty.is_ptr() else pointer.dtype.element_ty.ir
    return Tensor(shifted.value, pointer.dtype, pointer.shape, b.origin(ir))


# -- conversions ------------------------------------------------------------------------------------------------------
def convert(x: Tensor, type: Any, rounding: str | None = None, bitcast: bool = False) -> Tensor:
    type = element_type(type)
    if type == x.dtype:
        return x
    if x.dtype.is_ptr() or type.is_ptr():
        return _convert_pointer(x, type)
    if bitcast:
        if type.primitive_bitwidth != x.dtype.primitive_bitwidth:
            raise CompilationError(f"a bitcast keeps the size of elements: {x.dtype} has not that of {type}")
        return Tensor(_bitcast(x.value, type.ir), type, x.shape)
    if rounding not in (None, "rtne", "rtz"):
        raise CompilationError(f"fp_downcast_rounding is 'rtne' or 'rtz', not {rounding!r}")
    if type.is_fp8():
        x = _within(x, type)
    narrowed = Tensor(cast(x.value, type.ir), type, x.shape)
    if rounding is None or not (x.dtype.is_floating() and type.is_floating()):
        if rounding is not None:
            raise CompilationError(f"fp_downcast_rounding is for floats that become narrower, not {x.dtype} to {type}")
        return narrowed
    if type.itemsize >= x.dtype.itemsize:
        raise CompilationError(f"fp_downcast_rounding is for floats that become narrower, not {x.dtype} to {type}")
    return _towards_zero(x, narrowed) if rounding == "rtz" else narrowed


def _within(x: Tensor, type: dtype) -> Tensor:
    """x within the range of a float of 8 bits, to whose ends conversions go."""
    x = convert(x, float32) if x.dtype.is_fp8() or x.dtype.is_int() else x
    largest = float(ml_dtypes.finfo(dtypes.NUMPY[type.ir]).max)
    for name, end in (("minimum", largest), ("maximum", -largest)):
        x = x.like(elementwise(name, x.value, spread(const(end, x.dtype.ir), (), x.shape)))
    return x


def _towards_zero(x: Tensor, nearest: Tensor) -> Tensor:
    """Where rounding to nearest enlarged x, the bits before."""
    back = convert(nearest, x.dtype)
    larger = compare("greater", x.like(elementwise("absolute", back.value)), x.like(elementwise("absolute", x.value)))
    integer = OF_IR[f"u{nearest.dtype.primitive_bitwidth}"]
    bits = convert(nearest, integer, bitcast=True)
    return convert(sub(bits, convert(larger, integer)), nearest.dtype, bitcast=True)


def _bitcast(value: Value, ir: str) -> Value:
    known = None if builder().eager else constant(value)
    if known is not None:
        return const(np.array(known, dtypes.NUMPY[value.type.dtype]).view(dtypes.NUMPY[ir]).item(), ir)
    return builder().bitcast(value, ir)


def _convert_pointer(x: Tensor, type: dtype) -> Tensor:
    if not isinstance(type, pointer_type):
        if type == int1:
            return compare("not_equal", x, 0)
        if type not in (int64, uint64):
            raise CompilationError(f"a pointer becomes an int64 or another pointer, not {type}: load what it points to")
        return convert(address(x), type)
    if not x.dtype.is_ptr():
        if not x.dtype.is_int() or x.dtype.itemsize != 8:
            raise CompilationError(f"a pointer is made of an integer of 64 bits, not of {x.dtype}")
        return pointer_at(convert(x, int64), type)
    before, after = x.dtype.element_ty, type.element_ty
    if before.ir == after.ir and before.is_ptr() == after.is_ptr():
        return Tensor(x.value, type, x.shape, x.base)
    if constant(x.value) == 0 or (before.itemsize >= after.itemsize and x.base is not None):
        start = pointer_at(address(x.like(const(0, "i64"), ())), type)
        ratio = before.itemsize // after.itemsize or 1
        return offset(start, mul(Tensor(x.value, int64, x.shape), ratio))
    return pointer_at(address(x), type)


__all__ = ["Tensor", "constexpr", "member", "tensor"]
