"""Functions of elements, written by the user, on whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler import ops
from ..compiler.ir import Block, Value
from .elementwise import static_int
from .emit import cast, const, elementwise, spread
from .errors import CompilationError
from .reductions import traced
from .shapes import interleave, reshape, split
from .types import OF_IR
from .values import Tensor, same_shape, tensor


def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1) -> Any:
    """What a function of elements gives for each element of blocks.

    Parameters
    ----------
    scalar_fn : function
        Of scalars; it may branch, and neither loops nor accesses memory.
    *args : tensor
    pack : int
        How many neighbours along the last dim the function takes of each block, one after the other, and returns.
    """
    xs = same_shape(*[tensor(x) for x in args])
    count = static_int(pack, "pack")
    if count < 1 or count & (count - 1) or (xs[0].shape and xs[0].shape[-1] % count):
        raise CompilationError(f"pack is a power of two that divides the last dim of {xs[0].type}, not {count}")
    parts = [part for x in xs for part in _parts(x, count)]
    given = traced(scalar_fn, parts)
    results = _replayed(given, parts)
    if len(results) % count:
        raise CompilationError(f"the function gives {len(results)} values, which is no multiple of pack ({count})")
    made = [_whole(results[k : k + count]) for k in range(0, len(results), count)]
    return made[0] if len(made) == 1 else tuple(made)


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """Every count-th element from the first, the second, ... on."""
    if count == 1:
        return [x]
    halves = split(reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2)))
    even, odd = (_parts(half, count // 2) for half in halves)
    return [part for pair in zip(even, odd) for part in pair]


def _whole(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else interleave(_whole(parts[::2]), _whole(parts[1::2]))


def _replayed(block: Block, xs: Sequence[Tensor]) -> list[Tensor]:
    """The ops of a region of scalars, on blocks."""
    shape = xs[0].shape
    values: dict[Value, Value] = dict(zip(block.args, [x.value for x in xs]))

    def wide(v: Value) -> Value:
        value = values[v]
        return value if value.type.extents else spread(value, (), shape)

    for op in block.ops[:-1]:
        (result,) = op.results
        if op.name == "const":
            values[result] = const(op.attrs["value"], result.type.dtype)
        elif op.name == "cast":
            values[result] = cast(values[op.operands[0]], result.type.dtype)
        elif op.name in ops.TABLE:
            values[result] = elementwise(op.name, *map(wide, op.operands))
        else:
            raise CompilationError(f"the function of map_elementwise only computes, and cannot have {op.name}")
    return [Tensor(wide(v), OF_IR[v.type.dtype], shape) for v in block.ops[-1].operands]


__all__ = ["map_elementwise"]
