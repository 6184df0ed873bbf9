"""Tensor descriptors made by the host."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.dtypes import NUMPY
from ..runtime.device import CPU, Device, default_device
from .arguments import HOST, ir_dtype, library, pointer

_MOST = 5
_NARROW = [NUMPY[name] for name in ("bf16", "f8e4m3", "f8e5m2")]


@dataclass
class TensorDescriptor:
    """An array in memory, and the shape of the blocks of it that a kernel loads and stores.

    Parameters
    ----------
    base : array
        What a kernel takes as a pointer: a torch tensor, an Array, ...  It begins at a multiple of 16 bytes.
    shape, strides : sequence of int
        In elements.  The last stride is 1, the others are multiples of 16 bytes.
    block_shape : sequence of int
        Powers of two.
    padding : str
        What elements outside are: "zero" or "nan".

    Raises
    ------
    ValueError
        If one of these rules is broken.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    def __setattr__(self, name: str, value: Any) -> None:
        # Also when another one is put in its place: autotune's hooks choose block_shape.
        if name in ("shape", "strides", "block_shape"):
            value = _integers(name, value)
        if name == "block_shape":
            for n in value:
                if n < 1 or n & n - 1:
                    raise ValueError(f"block_shape {list(value)}: {n} is no power of two")
            if hasattr(self, name) and len(value) != len(self.shape):
                raise ValueError(f"block_shape {list(value)} differs in length from the shape {list(self.shape)}")
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 0 < rank <= _MOST:
            raise ValueError(f"a tensor descriptor has 1 to {_MOST} dimensions, not {rank}")
        if len(self.strides) != rank or len(self.block_shape) != rank:
            raise ValueError(
                f"shape, strides and block_shape differ in length: {self.shape}, {self.strides}, {self.block_shape}"
            )
        if self.strides[-1] != 1:
            raise ValueError(f"the last stride of a tensor descriptor is 1, not {self.strides[-1]}")
        if any(n <= 0 for n in self.shape):
            raise ValueError(f"the shape {list(self.shape)} has no elements")
        if any(n < 0 for n in self.strides):
            raise ValueError(f"the strides of a tensor descriptor are not negative: {list(self.strides)}")
        if self.padding not in ("zero", "nan"):
            raise ValueError(f"padding is 'zero' or 'nan', not {self.padding!r}")
        dtype, _, address = pointer(self.base)
        size = ir_dtype(dtype)[1]
        if address % 16:
            raise ValueError("the base of a tensor descriptor begins at a multiple of 16 bytes")
        if any(s * size % 16 for s in self.strides[:-1]):
            raise ValueError(f"the strides of a tensor descriptor are multiples of 16 bytes, not {list(self.strides)}")
        if self.padding == "nan" and ir_dtype(dtype)[0] not in ("f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"):
            raise ValueError("padding='nan' is for floating-point arrays")

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole array."""
        if library(tensor) is None:
            raise TypeError(f"a tensor descriptor is made of an array, not of a {type(tensor).__name__}")
        if hasattr(tensor, "stride"):  # torch
            steps = tensor.stride()
        else:
            steps = [s // tensor.dtype.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, tuple(tensor.shape), tuple(steps), block_shape, padding)


def _integers(name: str, given: Any) -> list[int] | tuple[int, ...]:
    """Integers of any library as Python's."""
    try:
        found = [operator.index(n) for n in given]
    except TypeError:
        raise TypeError(f"{name} of a tensor descriptor is a sequence of integers, not {given!r}") from None
    return tuple(found) if isinstance(given, tuple) else found


def device_of(arguments: Iterable[Any]) -> Device:
    """The device of the first array among a kernel's arguments."""
    for x in arguments:
        if isinstance(x, TensorDescriptor):
            x = x.base
        if not isinstance(x, int | float) and (of := library(x)) is not None:
            index = of.read(x)[1]
            return CPU if index <= HOST else Device(f"cuda:{index}")
    return default_device()


def refused(x: Any) -> TypeError:
    """What is said of an argument that is of no known kind."""
    instead = "pass an array, or a tuple" if isinstance(x, list | range) else "is it to be a tl.constexpr?"
    return TypeError(f"a kernel cannot take a {type(x).__name__}: {instead}")


def integer_type(x: int) -> str:
    """The type that an argument has which is an integer."""
    bits = (31, "i32"), (63, "i64")
    if not -(1 << 63) <= x < 1 << 64:
        raise OverflowError(f"{x} has more than 64 bits")
    return next((d for n, d in bits if -(1 << n) <= x < 1 << n), "u64")


def is_real(x: Any) -> bool:
    """Whether an argument is a floating-point number, perhaps of a type that NumPy has not."""
    return isinstance(x, float | np.floating) or (isinstance(x, np.generic) and x.dtype in _NARROW)


def is_constant(x: Any) -> bool:
    """Whether an argument is a constant whatever its parameter says: a constexpr, a type, or a function of kernels."""
    return hasattr(x, "starting_line_number") or type(x).__name__ in ("constexpr", "dtype", "pointer_type")


def describe(x: Any, ones: bool, multiples: bool, name: str, places: list[str], homes: dict[int, str]) -> Any:
    """What the front end is told of an argument.

    Parameters
    ----------
    x
        The argument.
    ones, multiples : bool
        Whether the number 1 (and negative numbers), and multiples of 16, are worth a kernel of their own.
    name : str
        What to call it in messages.
    places : list of str
        Gets the name of each of its values.
    homes : dict
        Gets the place of memory that it is in: a GPU's number or HOST, and the argument's name.

    Returns
    -------
    language.frontend.Kind
    """
    from ..language import frontend as f

    if x is None:
        return f.Constant(None)
    if is_constant(x):
        return f.Constant(getattr(x, "value", x))
    if isinstance(x, tuple):
        items = [describe(item, ones, multiples, f"{name}[{k}]", places, homes) for k, item in enumerate(x)]
        return f.Tuple(tuple(items), type(x) if hasattr(x, "_fields") else tuple)
    if isinstance(x, TensorDescriptor):
        kind = describe(x.base, ones, multiples, name, places, homes)
        places += [f"{name}.shape"] * len(x.shape) + [f"{name}.strides"] * (len(x.shape) - 1)
        return f.Descriptor(kind.dtype, len(x.shape), tuple(x.block_shape), True, x.padding)
    if isinstance(x, bool | np.bool_):
        kind = f.Boolean()
    elif isinstance(x, int | np.integer):
        if x == 1 and ones:
            return f.Constant(1)
        kind = f.Integer(integer_type(int(x)), bool(multiples and not x & 15), bool(ones and x >= 0))
    elif is_real(x):
        kind = f.Real()
    elif (of := library(x)) is not None:
        dtype, index, address = of.read(x)
        kind = f.Pointer(ir_dtype(dtype)[0], multiples and not address & 15)
        homes.setdefault(max(index, HOST), name)
    else:
        raise refused(x)
    places.append(name)
    return kind
