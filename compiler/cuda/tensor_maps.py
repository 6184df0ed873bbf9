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
    #: Of the inner and the outer dim, and of the axes.
    sizes: tuple[Value, ...]
    #: Positions along the inner and the outer dim that one copy moves.
    box: tuple[int, int]

    def described(self, kernel: Kernel) -> dict[str, Any]:
        """For the host: which slots of the arguments hold what a map is made of."""
        slots, count = {}, 0
        for p in kernel.params:
            slots[p] = count
            count += 2 if p.type.dtype in dtypes.COMPLEX and not p.type.pointer else 1
        return {
            "dtype": self.pointer.type.dtype, "pointer": slots[self.pointer], "sizes": [slots[s] for s in self.sizes],
            "strides": [slots[s] for s in self.strides], "box": [*self.box, *(1 for _ in self.axes)],
        }  # fmt: skip

    def place(self, inner: V, outer: V, programs: list[V]) -> list[V]:
        """The coordinates of a box."""
        return [inner, outer, *(programs[a] for a in self.axes)]


def find(
    kernel: Kernel, facts: Facts, op: Op, box: tuple[int, int], walk: tuple[Value, Value] | None = None
) -> TensorMap | None:
    """The map of a load_view or store_view, if its memory is such that there is one.

    Parameters
    ----------
    box : tuple of int
        Positions along the contiguous dim and along the other one.
    walk : tuple of Value, optional
        Where the blocks of an extent that is no dim begin: the index of a loop; and the size of the whole.
    """
    pointer, offset, strides, extents = view(op)
    inner = [e for e, s in zip(extents, strides, strict=True) if is_const(s, 1)]
    terms = _terms(offset)
    if len(extents) != 2 or len(inner) != 1 or terms is None or pointer.name not in facts.aligned:
        return None
    found: dict[str, Value] = {str(e): s for e, s in zip(extents, strides, strict=True)}
    axes: dict[int, Value] = {}
    started: set[int | str] = set()
    for term, coefficient in terms:
        if term.op is not None and term.op.name == "program_id":
            if coefficient is None or axes.setdefault(term.op.attrs["axis"], coefficient) is not coefficient:
                return None
            continue
        if term.op is not None:
            dim = term.op.attrs["dim"]
        elif walk is not None and term is walk[0]:
            dim = next((e for e in extents if isinstance(e, int)), "")
        else:
            return None
        started.add(dim)
        stride = found.get(str(dim))
        if stride is None or not (is_const(stride, 1) if coefficient is None else stride is coefficient):
            return None
    (first,) = inner
    (second,) = (e for e in extents if e != first)
    if any(_moves(kernel, e) != (e in started) for e in extents) or len(axes) > RANK - 2:
        return None
    steps = (found[str(second)], *axes.values())
    if any(s.op is not None or s.name not in facts.aligned for s in steps):
        return None
    whole = [kernel.dims[e].size if isinstance(e, str) else walk[1] if walk else None for e in (first, second)]
    sizes = [s for s in (*whole, *(kernel.grid[a].size for a in axes)) if s is not None and s.op is None]
    if len(sizes) != 2 + len(axes) or any(kernel.grid[a].block != 1 for a in axes):
        return None
    return TensorMap(pointer, str(first), str(second), tuple(axes), steps, tuple(sizes), box)


def _moves(kernel: Kernel, extent: int | str) -> bool:
    """Whether an extent is a block of something longer."""
    return isinstance(extent, int) or kernel.dims[extent].block is not None


def _terms(offset: Value) -> list[tuple[Value, Value | None]] | None:
    """An offset as a sum of starts of dims, programs' numbers and indices, each with its coefficient (None: 1)."""
    op = offset.op
    if op is None:
        return [(offset, None)]
    match op.name:
        case "const" if op.attrs["value"] == 0:
            return []
        case "dim_start" | "program_id":
            return [(offset, None)]
        case "add":
            parts = [_terms(x) for x in op.operands]
            return None if None in parts else [term for p in parts if p is not None for term in p]
        case "multiply":
            a, b = op.operands
            if b.op is None and (a.op is None or a.op.name in ("dim_start", "program_id")):
                return [(a, b)]
    return None
