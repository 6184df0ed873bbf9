"""How a loop nest is walked: the axis of its vectors, their lanes, and its loops, outermost first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ops
from ..ir import Value
from .reduction import Reduction
from .strips import Nest, is_const, view

if TYPE_CHECKING:
    from .codegen import Codegen

#: Rows of a reduction over an outer axis that are joined in registers before memory sees them; of a sum, rows whose sum
#: is in an accumulator of its own.
ROWS, MORE_ROWS = 8, (16 * 512, 512)
#: A sum of so many vectors goes to an accumulator of its own, so many such sums to the next one, and so on.
CHUNKS = (32**2, 32)
#: A known extent that is a long row.
LONG = 256


class Loop(NamedTuple):
    """A loop over an axis: by `step` positions ("block"), one position ("step") or one vector ("lane")."""

    axis: int
    kind: str
    step: int = 1


class Walk:
    """What is chosen for a nest before its code is written.

    Attributes
    ----------
    lane : int
        The axis along which vectors lie.
    lanes : int
        Positions of a vector.
    work : int
        What a position takes, in additions.
    streamed : bool
        Whether the nest does little but reduce rows that it loads.
    loops : list of Loop
        The loops, outermost first.
    across : int or None
        The axis that is transposed with the lanes', in square blocks.
    """

    def __init__(self, code: Codegen, nest: Nest) -> None:
        self.code = code
        self.nest = nest
        self.rank = len(nest.extents)
        self.work = 0
        self.across: int | None = None
        self.lane = self._choose_lane()
        self.lanes = self._choose_lanes() if self.rank else 0
        self.streamed = self._is_streamed()
        self.loops = self._order()

    def _views(self) -> list[tuple[tuple[int, ...], tuple[Value, ...], int]]:
        """(axes, strides, weight) of the nest's loads and stores."""
        identity = tuple(range(self.rank))
        found = [
            (item.where, view(item.value.op)[2], 2)
            for item in self.nest.items
            if item.where and not item.kept and item.value.op is not None and item.value.op.name == "load_view"
        ]
        return found + [(identity, view(op)[2], 3) for op in self.nest.roots if op.name == "store_view"]

    def _choose_lane(self) -> int:
        """The axis along which vectors lie: one of unit stride in most loads and stores; the last, if in doubt."""
        score = [-1 if e == 1 else 0 for e in self.nest.extents]
        for axes, strides, weight in self._views():
            for axis, stride in zip(axes, strides, strict=True):
                score[axis] += weight if is_const(stride, 1) else 0
        return max(range(self.rank), key=lambda a: (score[a], a), default=-1)

    def _choose_lanes(self) -> int:
        """Two native vectors a value, four if that pays; all dtypes share the number of lanes."""
        sizes, work, draws = 0, 0, False  # dtype sizes are weighed by work
        for item in self.nest.items:
            if item.where and self.lane in item.axes:
                row = ops.TABLE.get(item.value.op.name) if item.value.op is not None else None
                weight = row.cost if row else 1
                dtype = item.value.type.dtype
                sizes += weight * (4 if dtype in dtypes.NARROW else dtypes.SIZE[dtypes.PART.get(dtype, dtype)])
                work += weight
                draws |= row is not None and bool(row.types)
        self.work = work
        native = self.code.target.vector_bytes
        extent = self.nest.extents[self.lane]
        # Few values fit the registers four times.  Many are a long chain: narrow vectors need company to fill the
        # pipelines meanwhile, where a row is long enough not to leave most lanes idle.
        blocked = self.code.kernel.dims[extent].block is not None if isinstance(extent, str) else extent >= LONG
        many = work <= 8 or (blocked and native <= 32)
        total = (4 if many else 2) * native * max(work, 1) // max(sizes, 1)
        if draws:  # the positions of random draws are wide, but few beside the work
            total += total // 4
        if isinstance(extent, int):
            total = min(total, 1 << (extent - 1).bit_length() if extent > 1 else 1)
        # Vectors do not go from one panel to the next one.
        total = min([total, *[slot.panel for v in self.nest.keeps if (slot := self.code.slots.get(v)) and slot.panel]])
        return max(2, min(64, 1 << (total.bit_length() - 1)))

    def _order(self) -> list[Loop]:
        """The loops, outermost first."""
        others = [a for a in range(self.rank) if a != self.lane]
        lane = Loop(self.lane, "lane", self.lanes)
        roots = self.nest.roots
        scan = next((op for op in roots if op.name == "scan"), None)
        if scan is not None:
            # Positions along a scan come last, so that its carry stays in registers.
            dim = scan.attrs["dim"]
            loops = [*[Loop(a, "step") for a in others if a != dim], lane]
            return loops if dim == self.lane else [*loops, Loop(dim, "step")]
        folds = [op for op in roots if op.name in ("reduce", "argreduce")]
        if folds and all(self.lane not in op.attrs["dims"] for op in folds):
            dims = {op.attrs["dims"] for op in folds}
            if len(dims) == 1:
                # Rows outside, columns inside, then a few rows in registers.
                (reduced,) = dims
                inner = max(reduced)
                loops = [Loop(a, "step") for a in others if a in reduced and a != inner]
                kept = [Loop(a, "step") for a in others if a not in reduced]
                if any(Reduction.blocked(op) for op in folds):
                    loops += [Loop(inner, "block", rows) for rows in MORE_ROWS]
                return [*loops, Loop(inner, "block", ROWS), *kept, lane, Loop(inner, "step")]
        loops = [Loop(a, "step") for a in others]
        if any(Reduction.blocked(op) and self.lane in op.attrs["dims"] for op in folds):
            loops += [Loop(self.lane, "block", chunks * self.lanes) for chunks in CHUNKS]
        elif self._transposes():
            block = max(self.lanes, 16)
            self.across = other = self._transposes()[0]
            outer = [Loop(a, "step") for a in others if a != other]
            return [*outer, Loop(other, "block", block), Loop(self.lane, "block", block), Loop(other, "step"), lane]
        return [*loops, lane] if self.rank else []

    def _is_streamed(self) -> bool:
        """Whether the nest does little but reduce rows that it loads."""
        roots = self.nest.roots
        rows = all(op.name == "reduce" and self.lane in op.attrs["dims"] for op in roots)
        return bool(roots) and rows and not self.nest.keeps and self.work <= 8 and bool(self._views())

    def _transposes(self) -> list[int]:
        """Axes of unit stride in an access that is strided along the lanes."""
        found = []
        for axes, strides, _ in self._views():
            if self.lane in axes and not is_const(strides[axes.index(self.lane)], 1):
                found += [a for a, s in zip(axes, strides, strict=True) if a != self.lane and is_const(s, 1)]
        return found
