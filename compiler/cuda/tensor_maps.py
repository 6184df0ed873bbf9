"""Views as the tensor maps by which the copy engine of Hopper reads and writes boxes of memory.

The host makes the maps at each launch from the kernel's arguments; they follow the arguments' slots of 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..ir import Kernel, Op, Value
from ..llvm.text import V
from .layout import Facts, is_const, view

#: Bytes of a map, and what its address is a multiple of.
NBYTES, ALIGNMENT = 128, 64
#: Dimensions of memory that a map can have.
RANK = 5


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A view of a blocked matrix, possibly one of many, with contiguous rows that begin at multiples of 16 bytes."""

    pointer: Value
    #: The dim along which elements are contiguous, and the other one.
    inner: str
    outer: str
    #: Axes of the grid that choose the matrix.
    axes: tuple[int, ...]
    #: Of the outer dim and the axes, in elements.
    strides: tuple[Value, ...]
    #: Positions along the inner and the outer dim that one copy moves.
    box: tuple[int, int]

    def described(self, kernel: Kernel) -> dict[str, Any]:
        """For the host: which slots of the arguments hold what a map is made of."""
        slots, count = {}, 0
        for p in kernel.params:
            slots[p] = count
            count += 2 if p.type.dtype in dtypes.COMPLEX and not p.type.pointer else 1
        sizes = [kernel.dims[d].size for d in (self.inner, self.outer)] + [kernel.grid[a].size for a in self.axes]
        return {
            "dtype": self.pointer.type.dtype, "pointer": slots[self.pointer], "sizes": [slots[s] for s in sizes],
            "strides": [slots[s] for s in self.strides], "box": [*self.box, *(1 for _ in self.axes)],
        }  # fmt: skip

    def place(self, inner: V, outer: V, programs: list[V]) -> list[V]:
        """The coordinates of a box."""
        return [inner, outer, *(programs[a] for a in self.axes)]


def find(kernel: Kernel, facts: Facts, op: Op, box: tuple[int, int]) -> TensorMap | None:
    """The map of a load_view or store_view, if its memory is such that there is one.

    Parameters
    ----------
    box : tuple of int
        Positions along the contiguous dim and along the other one.
    """
    pointer, offset, strides, extents = view(op)
    inner = [e for e, s in zip(extents, strides, strict=True) if is_const(s, 1)]
    terms = _terms(offset)
    if len(extents) != 2 or len(inner) != 1 or terms is None or pointer.name not in facts.aligned:
        return None
    found: dict[str, Value] = {str(e): s for e, s in zip(extents, strides, strict=True)}
    axes: dict[int, Value] = {}
    for op_, coefficient in terms:
        if op_.name == "program_id":
            if coefficient is None or axes.setdefault(op_.attrs["axis"], coefficient) is not coefficient:
                return None
            continue
        stride = found.get(op_.attrs["dim"])
        if stride is None or not (is_const(stride, 1) if coefficient is None else stride is coefficient):
            return None
    (first,) = inner
    (second,) = (e for e in extents if e != first)
    started = {op_.attrs["dim"] for op_, _ in terms if op_.name == "dim_start"}
    if any((kernel.dims[str(e)].block is not None) != (e in started) for e in extents) or len(axes) > RANK - 2:
        return None
    steps = (found[str(second)], *axes.values())
    if any(s.op is not None or s.name not in facts.aligned for s in steps):
        return None
    sizes = [kernel.dims[str(e)].size for e in extents] + [kernel.grid[a].size for a in axes]
    if any(s.op is not None for s in sizes) or any(kernel.grid[a].block != 1 for a in axes):
        return None
    return TensorMap(pointer, str(first), str(second), tuple(axes), steps, box)


def _terms(offset: Value) -> list[tuple[Op, Value | None]] | None:
    """An offset as a sum of starts of dims and programs' numbers, each with its coefficient (None: 1)."""
    op = offset.op
    if op is None:
        return None
    match op.name:
        case "const" if op.attrs["value"] == 0:
            return []
        case "dim_start" | "program_id":
            return [(op, None)]
        case "add":
            parts = [_terms(x) for x in op.operands]
            return None if None in parts else [term for p in parts if p is not None for term in p]
        case "multiply":
            a, b = op.operands
            if a.op is not None and a.op.name in ("dim_start", "program_id") and b.op is None:
                return [(a.op, b)]
    return None
