"""Panels of a product's operands: what threads load of them, with the prologue applied, and keep in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ir
from ..llvm.convert import convert
from ..llvm.text import V, vector
from . import memory
from .elements import Where, scaled
from .memory import i64, parts

if TYPE_CHECKING:
    from .simt import Simt


class Plane(NamedTuple):
    """One LLVM value of each of a side's elements, as shared memory holds it."""

    value: ir.Value
    #: Number among the value's parts, type in registers and type in memory.
    part: int
    register: str
    stored: str

    @property
    def size(self) -> int:
        return {"i16": 2, "double": 8, "i64": 8}.get(self.stored, 4)


@dataclass(slots=True)
class Side:
    """An operand: what it is made of, and how threads load a step of it."""

    values: tuple[ir.Value, ...]
    dim: str
    extent: int
    #: Elements from one element of k to the next in a panel.
    pitch: int
    ops: list[ir.Op]
    planes: list[Plane]
    #: Whether loads go along k, and elements that one takes.
    deep: bool = False
    width: int = 1
    #: Byte offsets of the planes in a buffer.
    offsets: tuple[int, ...] = ()
    #: Threads' loads in a step: of each, positions in the tile along dim and k, and whether all threads have it.
    units: tuple[tuple[V, V], ...] = ()
    spare: V | None = None


class Loader:
    """Brings a side's panels from global to shared memory, by way of registers."""

    def __init__(self, gemm: Simt, side: Side, origin: V, extent: V) -> None:
        self.gemm = gemm
        self.side = side
        t = self.t = gemm.t
        self.cells = [
            [[t.cell(p.stored) for _ in range(side.width)] for p in side.planes] for _ in range(len(side.units))
        ]
        #: Rows (or columns) that the thread loads; those past the end are the first one, and go nowhere.
        self.lines: list[V] = []
        for position, _ in side.units:
            line = t.bin("add", origin, position)
            self.lines.append(t.select(t.cmp("slt", line, extent), line, i64(0)))
        self.loads = [
            op
            for op in side.ops
            if op.name == "load_view" and len(op.result.type.extents) and self._neighbours(op) == side.width
        ]
        self.anchors = [
            {op: gemm.e.address(op, {side.dim: line, gemm.k: up}) for op in self.loads}
            for line, (_, up) in zip(self.lines, side.units, strict=True)
        ]

    def _neighbours(self, op: ir.Op) -> int:
        """Elements of a unit that one access of `op` takes."""
        along = self.gemm.k if self.side.deep else self.side.dim
        if self.side.width == 1:
            return 1
        return min(self.side.width, self.gemm.facts.width(op, along))

    def fetch(self, k: V, depth: V) -> None:
        """Load the step from k on; what is past the end is anything."""
        t, gemm = self.t, self.gemm
        e = gemm.e
        left = t.bin("sub", depth, k)
        with t.if_else(t.cmp("sge", left, i64(gemm.step))) as turn:
            for number in range(len(self.side.units)):
                with e.scope():
                    self._unit(number, k, None)
            next(turn)
            for number in range(len(self.side.units)):
                with e.scope():
                    self._unit(number, k, left)

    def _unit(self, number: int, k: V, left: V | None) -> None:
        t, gemm, side = self.t, self.gemm, self.side
        e = gemm.e
        line, up = self.lines[number], side.units[number][1]
        inside = None
        if left is not None:
            inside = t.cmp("slt", up, left)
            up = t.select(inside, up, i64(0))
        lines, depths = [line], [t.bin("add", k, up)]
        for i in range(1, side.width):
            if side.deep:
                depths.append(t.bin("add", depths[0], i64(i)))
            else:
                lines.append(t.bin("add", line, i64(i)))
        places = [{side.dim: x, gemm.k: y} for x in lines for y in depths]
        for op in self.loads:
            anchor = self.anchors[number][op]
            if left is not None:
                anchor = e.address(op, places[0])
            elif gemm.k in op.result.type.extents:
                _, _, *strides = op.operands
                step = e.integer(strides[op.result.type.extents.index(gemm.k)])
                ahead = k if step.ref == "1" else t.bin("mul", k, step)
                size = dtypes.SIZE[op.result.type.dtype]
                anchor = scaled(t, anchor, ahead, size)
            for where, register in zip(places, e.load(op, anchor, side.width), strict=True):
                e.define(op.result, register, where)
        for i, where in enumerate(places):
            e.run(side.ops, where)
            for plane, cells in zip(side.planes, self.cells[number], strict=True):
                t.set(cells[i], self._encoded(self._parts(plane.value, where)[plane.part], plane, inside))

    def _parts(self, value: ir.Value, where: Where) -> tuple[V, ...]:
        """An element's parts, of the product's dtype."""
        register = self.gemm.e(value, where)
        if self.gemm.root.name == "dot":
            register = convert(self.t, register, value.type.dtype, self.gemm.dtype)
        return parts(register)

    def _encoded(self, x: V, plane: Plane, inside: V | None) -> V:
        """A part of an element as shared memory holds it; `inside`: whether it is in k (None: it is)."""
        return x if x.ty == plane.stored else self.t.cast("zext", x, plane.stored)

    def put(self, number: V) -> None:
        """Store what was loaded as the panels of a step."""
        t, gemm, side = self.t, self.gemm, self.side
        base = gemm.buffer(number)
        with t.if_(side.spare):
            for (position, up), planes in zip(side.units, self.cells, strict=True):
                where = t.bin("add", t.bin("mul", up, i64(side.pitch)), position)
                for plane, cells, offset in zip(side.planes, planes, side.offsets, strict=True):
                    start = memory.at(t, base, offset)
                    values = [t.get(c, plane.stored) for c in cells]
                    size = plane.size
                    at = scaled(t, start, where, size)
                    if side.deep:
                        for i, x in enumerate(values):
                            t.store(x, memory.at(t, at, i * side.pitch * size), size)
                        continue
                    chunk = min(16 // size, side.width)
                    for first in range(0, side.width, chunk):
                        self._row(values[first : first + chunk], memory.at(t, at, first * size), size)

    def _row(self, values: list[V], at: V, size: int) -> None:
        t = self.t
        if len(values) == 1:
            t.store(values[0], at, size)
            return
        whole = V("poison", vector(values[0].ty, len(values)))
        for i, x in enumerate(values):
            whole = t.insert(whole, x, i)
        t.store(whole, at, len(values) * size)
