"""Keys of launches: what is known of arguments without their values, by which compiled kernels are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..array import Array
from . import memory
from .arguments import HOST, Library, Reinterpreted, library, writable_address
from .descriptor import TensorDescriptor, is_constant, is_real, refused

#: What is made of an argument: a constant of the compiled kernel, or a parameter.  A kernel of its own is compiled for
#: the number 1 (from ONES on), and for multiples of 16.
CONSTANT, GENERAL, ONES, SPECIALIZED = range(4)
#: In keys: integers by their types, 2 more if they are not negative and 1 if they are multiples of 16; the other kinds.
NONE, ONE, REAL, _BOOL, _I32, _I64, _U64 = 0, 1, 2, 3, 32, 64, 68
#: By role: what integers are in keys.  They are looked up, since the same ones come again and again.
codes: tuple[dict[int, int], ...] = ({}, {}, {}, {})
_MANY = 4096


class Seen:
    """What arguments are that need more care than numbers."""

    __slots__ = ("arrays", "foreign")

    def __init__(self) -> None:
        #: Each with its place among the values.
        self.arrays: list[tuple[int, Array]] = []
        self.foreign: list[tuple[int, Library, Any]] = []


#: What the functions of `walker` see, and torch's function for a GPU's current stream: nothing is known of torch before
#: one of its tensors was met.
space: dict[str, Any] = {"tensor": None, "torch_stream": None}


def walker(roles: Sequence[int]) -> Any:
    """A function (given, seen) that walks through arguments: their key, a value of each, and a GPU's number.

    It knows numbers, and arrays of torch (whose GPU it tells) and NumPy; and, with `seen`, while nobody flushes,
    computed ones of ours.  It gives None if there is another.  All launches go through it: it is written out for the
    roles.
    """
    taken = [k for k, role in enumerate(roles) if role != CONSTANT]
    lines = [
        "def walk(given, seen):",
        f"    [{', '.join(f'x{k}' for k in range(len(roles)))}] = given",
        "    index = -1",
    ]
    for k in taken:
        facts = f"v{k} & 15" if roles[k] == SPECIALIZED else "0"
        lines += [
            f"    kind = type(x{k})",
            f"    if kind is tensor and (v{k} := x{k}.data_ptr()):",
            f"        index = x{k}.get_device()",
            f"        k{k} = x{k}.dtype, index, {facts}",
            f"    elif kind is int and (k{k} := codes{roles[k]}.get(x{k}) or learn(x{k}, {roles[k]})):",
            f"        v{k} = x{k}",
            "    elif kind is float:",
            f"        v{k} = x{k}",
            f"        k{k} = {REAL}",
            f"    elif kind is ndarray and (v{k} := writable_address(x{k})):",
            f"        k{k} = x{k}.dtype, {HOST}, {facts}",
            f"    elif kind is Array and seen is not None and (found := plain(x{k})) is not None:",
            f"        dtype, where, v{k} = found",
            f"        k{k} = dtype, where, {facts}",
            f"        seen.arrays.append(({taken.index(k)}, x{k}))",
            "    else:",
            "        return None",
        ]
    constant = "x{0} if type(x{0}) is int else exact(x{0}), type(x{0}), "
    key = "".join(f"k{k}, " if role != CONSTANT else constant.format(k) for k, role in enumerate(roles))
    lines.append(f"    return ({key}), [{', '.join(f'v{k}' for k in taken)}], index")
    made: dict[str, Any] = {}
    exec("\n".join(lines), space, made)
    return made["walk"]


def exact(x: Any) -> Any:
    """A constant as something with a hash that tells apart what compares equal: 1, 1.0 and True; 0.0 and -0.0."""
    if type(x).__name__ == "constexpr":
        return type(x), exact(x.value)
    if isinstance(x, float | np.floating):
        return type(x), float(x).hex()
    if isinstance(x, tuple | list):
        return type(x), *map(exact, x)
    if is_dataclass(x) and not isinstance(x, type):
        return type(x), *[exact(getattr(x, f.name)) for f in fields(x)]
    if isinstance(x, dict):
        return type(x), *[(exact(k), exact(v)) for k, v in x.items()]
    if isinstance(x, set | frozenset):
        return type(x), frozenset(map(exact, x))
    if isinstance(x, np.ndarray):
        return type(x), x.dtype, x.shape, x.tobytes()
    return (type(x), x, _attributes(x)) if has_attributes(x) else (type(x), x)


def has_attributes(x: Any) -> bool:
    """Whether an object is told from others by identity, and may change nevertheless."""
    by_identity = type(x).__hash__ is object.__hash__ and hasattr(x, "__dict__")
    return by_identity and not callable(x) and not isinstance(x, ModuleType)


def _attributes(x: Any) -> Any:
    try:
        found = tuple([(name, exact(value)) for name, value in vars(x).items()])
        hash(found)
    except (TypeError, RecursionError):  # of an attribute there is nothing but its identity
        return tuple([(name, id(value)) for name, value in vars(x).items()])
    return found


def changeable(x: Any) -> bool:
    """Whether a constant may change while it stays the same object."""
    if type(x).__name__ == "constexpr":
        return changeable(x.value)
    if isinstance(x, tuple):
        return any(map(changeable, x))
    if is_dataclass(x) and not isinstance(x, type):
        return True
    return isinstance(x, list | dict | set | np.ndarray) or has_attributes(x)


def learn(x: int, role: int) -> int:
    """What an integer is in keys; 0 for one of more than 64 bits."""
    if x == 1 and role >= ONES:
        code = ONE
    else:
        code = (
            _I32 if -(1 << 31) <= x < 1 << 31 else _I64 if -(1 << 63) <= x < 1 << 63 else _U64 if 0 < x < 1 << 64 else 0
        )
        if code and role > GENERAL:
            code += ((x >= 0) << 1) + (role == SPECIALIZED and not x & 15)
    known = codes[role]
    if len(known) >= _MANY:
        known.clear()
    known[x] = code
    return code


def see(x: Any, role: int, key: list[Any], values: list[Any], seen: Seen) -> None:
    """Add an argument to a launch's key and values."""
    if x is None:
        key.append(NONE)
    elif isinstance(x, (bool, np.bool_)):
        key.append(_BOOL)
        values.append(bool(x))
    elif isinstance(x, (int, np.integer)):
        code = learn(int(x), role)
        if not code:
            raise OverflowError(f"{x} has more than 64 bits")
        key.append(code)
        if code != ONE:
            values.append(int(x))
    elif is_real(x):
        key.append(REAL)
        values.append(float(x))
    elif isinstance(x, tuple):
        key += type(x), len(x)
        for item in x:
            see(item, role, key, values, seen)
    elif isinstance(x, TensorDescriptor):
        key += TensorDescriptor, tuple(x.block_shape), x.padding
        see(x.base, role, key, values, seen)
        values += *x.shape, *x.strides[:-1]
    elif (of := library(x)) is not None:
        dtype, index, address = of.read(x)
        key += dtype, index, address & 15 and role == SPECIALIZED
        base = x.base if isinstance(x, Reinterpreted) else x
        if type(base) is Array:
            seen.arrays.append((len(values), base))
        else:
            seen.foreign.append((len(values), of, x))
            if of.name == "torch" and type(x).__name__ == "Tensor":  # the short way from now on
                space.update(tensor=type(x), torch_stream=of.stream or (lambda index: 0))
        values.append(address)
    elif is_constant(x):
        value = getattr(x, "value", x)
        key += exact(value), type(value)
    else:
        raise refused(x)


space.update(
    ndarray=np.ndarray, Array=Array, plain=memory.plain, writable_address=writable_address, learn=learn,
    exact=exact, **{f"codes{role}": known for role, known in enumerate(codes)},
)  # fmt: skip
