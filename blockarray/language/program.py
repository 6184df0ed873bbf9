"""The program itself: its place in the grid, products, loops' ranges, hints, and what only shows."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from .elementwise import static_int
from .emit import bound, builder, common_shape, learn, least
from .emit import cast as cast_value
from .errors import CompilationError
from .types import int1, int32, unwrap
from .values import Tensor, broadcast_to, convert, known_number, member, tensor, truth


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
    value = builder().grid[_axis(axis)]
    bound(value, 1)
    return Tensor(cast_value(value, "i32"), int32)


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
def _hint(x: Any, name: str, values: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
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
    if isinstance(cond, Tensor) and known_number(cond) is None:
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
    if isinstance(cond, Tensor) and known_number(cond) is None and not builder().eager:
        raise CompilationError(f"static_assert takes a constexpr, not a run-time value of type {cond.type}")
    if not cond:
        raise CompilationError(f"static_assert failed{': ' if unwrap(msg) else ''}{unwrap(msg)}")


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print values while the kernel runs, behind a prefix."""
    prefix = unwrap(prefix)
    if not isinstance(prefix, str):
        raise CompilationError(f"device_print's first argument is a string, not {prefix!r}")
    if args:
        prefix = prefix.rstrip(" ").removesuffix(":") + ": "
    if len(prefix) > 2 and not prefix.startswith(" "):
        prefix = " " + prefix
    tensors = [tensor(x) for x in args]
    values = []
    for x in tensors:
        x = convert(x, "i64") if x.dtype.is_ptr() else x
        values.append(x.value)
    # Addresses are read in hexadecimal.
    addresses = builtins.bool(tensors) and all(x.dtype.is_ptr() for x in tensors)
    builder().print(values, prefix, builtins.bool(unwrap(hex)) or addresses)


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
    # Who compiles the check adds its line.
    where = f" ({b.line[0]}:{b.line[1]})" if b.eager and b.line else ""
    b.check(cond.value, f"device_assert failed: {message}{where}", chosen)
