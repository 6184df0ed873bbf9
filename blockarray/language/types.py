"""Element types, and the types of blocks and pointers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from ..compiler import dtypes


class dtype:
    """The type of one element.

    Parameters
    ----------
    name : str
        Such as "int32", "uint8", "fp16", "bf16", "fp8e4nv"; "int1" is a truth value.
    """

    class KIND(Enum):
        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    class SIGNEDNESS(Enum):
        SIGNED = 0
        UNSIGNED = 1

    SINT_TYPES = ("int8", "int16", "int32", "int64")
    UINT_TYPES = ("int1", "uint8", "uint16", "uint32", "uint64")
    FP_TYPES = ("fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64")
    STANDARD_FP_TYPES = ("fp16", "bf16", "fp32", "fp64")

    __slots__ = ("name", "ir")

    def __init__(self, name: str) -> None:
        if name not in _IR and name not in _NAMED:
            raise ValueError(f"unknown element type {name!r}; there are {', '.join(_IR)}")
        self.name = name
        #: The name in block IR.
        self.ir = _IR.get(name, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dtype) and type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def element_ty(self) -> dtype:
        raise TypeError(f"{self} is no pointer and no block")

    @property
    def primitive_bitwidth(self) -> int:
        return 1 if self.ir == "bool" else 8 * self.itemsize

    @property
    def itemsize(self) -> int:
        return dtypes.SIZE.get(self.ir, 1 if self.name in _NAMED[1:] else 0)

    @property
    def int_bitwidth(self) -> int:
        return self.primitive_bitwidth

    @property
    def int_signedness(self) -> dtype.SIGNEDNESS:
        return dtype.SIGNEDNESS.SIGNED if self.ir in dtypes.SIGNED else dtype.SIGNEDNESS.UNSIGNED

    @property
    def fp_mantissa_width(self) -> int:
        return _MANTISSA[self.name]

    @property
    def exponent_bias(self) -> int:
        return _BIAS[self.name]

    def kind(self) -> dtype.KIND:
        if self.is_bool():
            return dtype.KIND.BOOLEAN
        return dtype.KIND.FLOATING if self.is_floating() else dtype.KIND.INTEGRAL

    # Triton's questions.
    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_void(self) -> bool:
        return self.name == "void"

    def is_bool(self) -> bool:
        return self.ir == "bool"

    def is_int(self) -> bool:
        return self.ir in dtypes.INTEGER or self.ir == "bool"

    def is_int_signed(self) -> bool:
        return self.ir in dtypes.SIGNED

    def is_int_unsigned(self) -> bool:
        return self.ir in dtypes.UNSIGNED or self.ir == "bool"

    def is_floating(self) -> bool:
        return self.ir in dtypes.FLOAT

    def is_standard_floating(self) -> bool:
        return self.is_floating() and not self.is_fp8()

    def is_fp8(self) -> bool:
        return self.ir in dtypes.FLOAT8

    def is_dtype(self) -> bool:
        return True

    def get_int_min_value(self) -> int:
        return -(1 << self.primitive_bitwidth - 1) if self.is_int_signed() else 0

    def get_int_max_value(self) -> int:
        return (1 << self.primitive_bitwidth - (1 if self.is_int_signed() else 0)) - 1

    def to(self, *_: Any) -> Any:
        raise TypeError(f"{self} is a type, no value")


#: The language's names -> the IR's.
_IR = {
    "int1": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2", "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64",
}  # fmt: skip
#: Types without values here: no value, and Triton's floats of other chips.
_NAMED = ("void", "fp8e4b15", "fp8e4b8", "fp8e5b16")


_BIAS = {
    "fp8e4nv": 7, "fp8e5": 15, "fp8e4b15": 15, "fp8e4b8": 8, "fp8e5b16": 16, "fp16": 15, "bf16": 127, "fp32": 127,
    "fp64": 1023,
}  # fmt: skip
_MANTISSA = {
    "fp8e4nv": 3, "fp8e5": 2, "fp8e4b15": 3, "fp8e4b8": 3, "fp8e5b16": 2, "fp16": 10, "bf16": 7, "fp32": 23, "fp64": 52,
}  # fmt: skip


def _asking(name: str) -> Any:
    return lambda self: self.name == name


for _name in (*_IR, *_NAMED[1:]):
    setattr(dtype, f"is_{_name}", _asking(_name))


class pointer_type(dtype):
    """The address of elements of a type."""

    __slots__ = ("_element", "const")

    def __init__(self, element_ty: Any, address_space: int = 1, const: bool = False) -> None:
        if not isinstance(element_ty, dtype) or isinstance(element_ty, block_type):
            raise TypeError(f"a pointer points to elements, not to {element_ty!r}")
        self._element = element_ty
        #: Whether nothing is stored through it.
        self.const = const
        self.name = f"{'const ' if const else ''}pointer<{element_ty.name}>"
        self.ir = "i64"

    @property
    def element_ty(self) -> dtype:
        return self._element

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def is_int(self) -> bool:
        return False

    def is_int_signed(self) -> bool:
        return False


class block_type(dtype):
    """The type of a block of elements."""

    __slots__ = ("_element", "shape")

    def __init__(self, element_ty: dtype, shape: Sequence[int]) -> None:
        self._element = element_ty
        self.shape = list(shape)
        self.name = f"<{self.shape}, {element_ty.name}>"
        self.ir = element_ty.ir

    @property
    def element_ty(self) -> dtype:
        return self._element

    @property
    def scalar(self) -> dtype:
        return self._element

    @property
    def numel(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def primitive_bitwidth(self) -> int:
        return self._element.primitive_bitwidth

    def get_block_shapes(self) -> list[int]:
        return self.shape

    def is_block(self) -> bool:
        return True

    def is_ptr(self) -> bool:
        return self._element.is_ptr()


void = dtype("void")
int1, int8, int16, int32, int64 = map(dtype, ("int1", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(dtype, ("uint8", "uint16", "uint32", "uint64"))
float8e4nv, float8e5 = dtype("fp8e4nv"), dtype("fp8e5")
float8e4b15, float8e4b8, float8e5b16 = map(dtype, _NAMED[1:])
float16, bfloat16, float32, float64 = map(dtype, ("fp16", "bf16", "fp32", "fp64"))
pi32_t = pointer_type(int32)

#: The IR's names -> element types.
OF_IR = {ir: dtype(name) for name, ir in _IR.items()}


class constexpr_type(dtype):
    """The type of a value that is known when the kernel is compiled: a type for each value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)
        self.name = f"constexpr[{self.value!r}]"
        self.ir = "void"


class constexpr:
    """A value known when the kernel is compiled.

    As an annotation it marks parameters and locals as such; a module-level `constexpr(...)` may be read by kernels.
    """

    __slots__ = ("value",)
    value: Any

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "value", unwrap(value))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a constexpr does not change: assign another one to what names it, not to its {name}")

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return self.value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, item: Any) -> Any:
        return self.value[unwrap(item)]

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    if TYPE_CHECKING:
        # The operators that are set below.
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...

    def __eq__(self, other: object) -> Any:
        return self.value == unwrap(other)

    def __ne__(self, other: object) -> Any:
        return self.value != unwrap(other)


def _forward(name: str) -> Any:
    import operator

    plain = name.removeprefix("r") if name in _REFLECTED else name
    function = getattr(operator, f"__{plain}__")
    if name in _REFLECTED:
        return lambda self, other: function(unwrap(other), self.value)
    if name in ("neg", "pos", "invert"):
        return lambda self: function(self.value)
    return lambda self, other: function(self.value, unwrap(other))


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_REFLECTED = tuple("r" + name for name in _BINARY)
for _name in (*_BINARY, *_REFLECTED, "lt", "le", "gt", "ge", "neg", "pos", "invert"):
    setattr(constexpr, f"__{_name}__", _forward(_name))

#: Annotation of pointers that are only read.
const = type("const", (), {})


def unwrap(value: Any) -> Any:
    """The plain value of a constexpr, also inside tuples and lists."""
    if isinstance(value, constexpr):
        return value.value
    if type(value) in (tuple, list):
        return type(value)(map(unwrap, value))
    return value


def constexpr_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a Python function that kernels call with constants, when they are compiled."""

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        return fn(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})

    return called
