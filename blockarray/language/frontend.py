"""Kernels from Python functions: what `build` takes, and the parameters that it makes of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.ir import I64, Kernel, Type, Value
from .emit import Builder, building
from .errors import CompilationError
from .memory import TensorDescriptor
from .source import function_of, source_of
from .tidy import tidy
from .types import OF_IR, int1, pointer_type
from .values import Tensor, convert
from .visitor import Visitor


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to elements of an IR dtype; `aligned`: its address is a multiple of 16."""

    dtype: str
    aligned: bool = False

    @property
    def spelled(self) -> str:
        return f"*{_spelled(self.dtype)}"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of an IR dtype; `aligned`: it is a multiple of 16; `natural`: it is not negative."""

    dtype: str = "i32"
    aligned: bool = False
    natural: bool = False

    @property
    def spelled(self) -> str:
        return self.dtype


@dataclass(frozen=True, slots=True)
class Real:
    """A floating-point number."""

    dtype: str = "f32"

    @property
    def spelled(self) -> str:
        return _spelled(self.dtype)


@dataclass(frozen=True, slots=True)
class Boolean:
    """A truth value."""

    spelled = "i1"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor descriptor.

    The kernel takes a pointer NAME, then NAME.shape0, ... and NAME.stride0, ... (i64; strides in elements).  The last
    stride is 1 and no parameter.  `aligned`: the address is a multiple of 16.
    """

    dtype: str
    rank: int
    block_shape: tuple[int, ...]
    aligned: bool = True
    padding: str = "zero"

    @property
    def spelled(self) -> str:
        return f"tensordesc<{_spelled(self.dtype)}{list(self.block_shape)}>"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of arguments; its items, as parameters, are NAME.0, NAME.1, ...  A `Constant` item is no parameter."""

    items: tuple[Kind, ...]
    #: The class of a named tuple.
    type: type = tuple

    @property
    def spelled(self) -> str:
        return f"({', '.join(item.spelled for item in self.items)})"


@dataclass(frozen=True, slots=True)
class Constant:
    """An item of a tuple that is a constant of the specialisation."""

    value: Any

    spelled = "constexpr"


def _spelled(dtype: str) -> str:
    """Triton's spelling of a type of elements."""
    return OF_IR[dtype].name if "f" in dtype else {"bool": "i1"}.get(dtype, dtype)


Kind = Pointer | Integer | Real | Boolean | Descriptor | Tuple | Constant


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that is a parameter of the kernel: the function's name for it, what it is, and the IR dtype that its
    annotation wants, if it is a number."""

    name: str
    kind: Kind
    type: str | None = None


def build(
    fn: Any,
    arguments: Sequence[Argument],
    constants: dict[str, Any],
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    name: str = "",
    debug: bool = False,
    sanitize: bool = False,
) -> Kernel:
    """The block IR of a function of the block language.

    Parameters
    ----------
    fn : function
        The Python function, or an object whose `fn` is the function.
    arguments : sequence of Argument
        Those that are parameters of the kernel, in the order of the function's.
    constants : dict
        The others by name: constexprs, None, integers equal to 1.  What is in neither has its default.
    num_warps, num_stages : int
        As at the launch.
    name : str
        The kernel's; by default the function's.
    debug : bool
        Whether device_assert checks.
    sanitize : bool
        Whether sums, differences and products of integers check for overflow.

    Returns
    -------
    Kernel
        Its parameters are those of the arguments, then grid_0, grid_1 and grid_2, then, if it checks something,
        `errors`.

    Raises
    ------
    CompilationError
        If the function breaks a rule of the language.
    """
    function = function_of(fn)
    if function is None:
        raise TypeError(f"a kernel is made of a function, not of {fn!r}")
    b = Builder(name or function.__name__, debug, sanitize)
    b.line = (source_of(function).file, source_of(function).line(source_of(function).tree))
    b.attrs |= {"schedule": "blocks", "num_warps": num_warps, "num_stages": num_stages}
    parameters = _Parameters(b)
    with building(b):
        values = dict(constants)
        for argument in arguments:
            kind = Real("f64") if argument.type == "f64" and isinstance(argument.kind, Real) else argument.kind
            value = parameters.value(argument.name, kind)
            if argument.type is not None and isinstance(kind, Integer | Real | Boolean):
                value = convert(value, OF_IR[argument.type])
            values[argument.name] = value
        b.grid = tuple([b.param(f"grid_{k}", I64) for k in range(3)])
        visitor = Visitor(function)
        try:
            visitor.bind(*_bound(function, values))
            result = visitor.body()
        except CompilationError as e:
            # The author's lines matter, not those of the compiler.
            raise e.with_traceback(None) from e.__cause__
    if result is not None:
        error = CompilationError(f"kernel {function.__name__} returns a value: kernels store their results")
        error.positions.append(visitor.source.position(visitor.returned))
        raise error
    for size in reversed(b.grid):
        b.grid_axis(size)
    if parameters.aligned:
        b.attrs["aligned"] = tuple(parameters.aligned)
    if parameters.pitched:
        b.attrs["pitched"] = tuple(parameters.pitched)
    kernel = tidy(b.finish())
    if any(op.name == "check" for op in kernel.walk()):
        kernel.params += (Value(Type("i64", pointer=True), None, "errors"),)
    return kernel


#: Parameters that no argument stands for.
_OWN = ("grid_0", "grid_1", "grid_2", "errors")


def _bound(function: Any, values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments; those of *args come as a tuple."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    positional = True
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            args.extend(values.get(p.name, ()))
            positional = False
        elif p.name not in values:
            positional = False
        elif positional and p.kind is not p.KEYWORD_ONLY:
            args.append(values[p.name])
        else:
            kwargs[p.name] = values[p.name]
    return args, kwargs


class _Parameters:
    """Makes the parameters of arguments, and the values that these are in the language."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.aligned: list[str] = []
        #: Strides of descriptors, which are multiples of 16 bytes.
        self.pitched: list[str] = []

    def value(self, name: str, kind: Kind) -> Any:
        match kind:
            case Pointer(dtype, aligned):
                return self.pointer(name, dtype, aligned)
            case Integer(dtype, aligned, natural):
                value = self.param(name, Type(dtype), aligned)
                if natural:
                    self.b.lowest[value] = 0
                return Tensor(value, OF_IR[dtype])
            case Real(dtype):
                return Tensor(self.param(name, Type(dtype)), OF_IR[dtype])
            case Boolean():
                return Tensor(self.param(name, Type("bool")), int1)
            case Descriptor(dtype, rank, block, aligned, padding):
                base = self.pointer(name, dtype, aligned)
                shape = [self.param(f"{name}.shape{k}", I64) for k in range(rank)]
                strides = [self.param(f"{name}.stride{k}", I64) for k in range(rank - 1)]
                self.b.lowest |= dict.fromkeys(shape, 0)
                self.pitched += [s.name for s in strides]
                return TensorDescriptor(base, shape, [*strides, self.b.const(1)], block, padding)
            case Tuple(items, type):
                made = [self.value(f"{name}.{k}", item) for k, item in enumerate(items)]
                return type(made) if type is tuple else type(*made)
            case Constant(value):
                return value

    def param(self, name: str, type: Type, aligned: bool = False) -> Value:
        # Names that the kernel has besides are told apart.
        name = f"{name}.value" if name in _OWN else name
        if aligned:
            self.aligned.append(name)
        return self.b.param(name, type)

    def pointer(self, name: str, dtype: str, aligned: bool) -> Tensor:
        base = self.param(name, Type(dtype, pointer=True), aligned)
        return Tensor(self.b.const(0), pointer_type(OF_IR[dtype]), (), base)
