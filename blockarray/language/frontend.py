"""Kernels from Python functions: what `build` takes, and the parameters that it makes of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.ir import Kernel


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to elements of an IR dtype; `aligned`: its address is a multiple of 16."""

    dtype: str
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of an IR dtype; `aligned`: it is a multiple of 16."""

    dtype: str = "i32"
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Real:
    """A floating-point number."""

    dtype: str = "f32"


@dataclass(frozen=True, slots=True)
class Boolean:
    """A truth value."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor descriptor.

    The kernel takes a pointer NAME, then NAME.shape0, ... and NAME.stride0, ... (i64; strides in elements).  The last
    stride is 1 and no parameter.  `aligned`: the address and, in bytes, the strides are multiples of 16.
    """

    dtype: str
    rank: int
    block_shape: tuple[int, ...]
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of arguments; its items, as parameters, are NAME.0, NAME.1, ...  A `Constant` item is no parameter."""

    items: tuple[Kind, ...]
    #: Names of the fields where the argument is a named tuple.
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """An item of a tuple that is a constant of the specialisation."""

    value: Any


Kind = Pointer | Integer | Real | Boolean | Descriptor | Tuple | Constant


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that is a parameter of the kernel: the function's name for it, and what it is."""

    name: str
    kind: Kind


def build(
    fn: Any,
    arguments: Sequence[Argument],
    constants: dict[str, Any],
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    name: str = "",
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
    raise NotImplementedError
