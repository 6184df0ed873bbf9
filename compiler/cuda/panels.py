"""Panels of a product's operands: what threads load of them, with the prologue applied, and keep in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ir
from ..llvm.convert import convert
from ..llvm.text import V, vector
from . import memory
from .elements import Where, scaled
from .memory import GLOBAL, SHARED, i32, i64, parts

if TYPE_CHECKING:
    from .simt import Simt


class Plane(NamedTuple):
    """One value of each of a side's elements, as shared memory holds it."""

    value: ir.Value
    #: How many LLVM values it is, and their type in registers and in memory.
    parts: int
    register: str
    stored: str

    @property
    def size(self) -> int:
        return self.parts * self.part

    @property
    def part(self) -> int:
        return {"i8": 1, "i16": 2, "double": 8, "i64": 8}.get(self.stored, 4)


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
    #: How far these positions are from the first load's.
    shifts: tuple[tuple[int, int], ...] = ()


class Loader:
    """Brings a side's panels from global to shared memory: by way of registers, or past them."""

    def __init__(self, gemm: Simt, side: Side, origin: V, extent: V) -> None:
        self.gemm = gemm
        self.side = side
        t = self.t = gemm.t
        #: Variables for what is under way: of each load and plane, of each element its parts.
        self.cells = [
            [[[t.cell(p.stored) for _ in range(p.parts)] for _ in range(side.width)] for p in side.planes]
            for _ in range(len(side.units))
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
        #: Byte offsets in the planes' panels of what the thread loads.
        self.places: list[list[V]] = []
        for position, up in side.units:
            line, k = t.cast("trunc", position, "i32"), t.cast("trunc", up, "i32")
            pair = (line, k) if side.deep else (k, line)
            self.places.append([gemm.place(side, *pair, p.size) for p in side.planes])
        if gemm.ahead:
            self._prepare(origin, extent)

    def _neighbours(self, op: ir.Op) -> int:
        """Elements of a unit that one access of `op` takes."""
        along = self.gemm.k if self.side.deep else self.side.dim
        if self.side.width == 1:
            return 1
        return min(self.side.width, self.gemm.facts.width(op, along))

    # -- past the registers -------------------------------------------------------------------------------------------
    def _prepare(self, origin: V, extent: V) -> None:
        """What copies share from step to step."""
        t, gemm, side = self.t, self.gemm, self.side
        (op,) = self.loads
        (plane,) = side.planes
        pointer, _, *strides = op.operands
        size = dtypes.SIZE[pointer.type.dtype]
        #: Bytes from one element to the next along dim and k.
        self.strides = [
            t.bin("mul", gemm.e.integer(strides[op.result.type.extents.index(d)]), i64(size))
            for d in (side.dim, gemm.k)
        ]
        line, up = side.units[0]
        self.source = gemm.e.address(op, {side.dim: t.bin("add", origin, line), gemm.k: up})
        #: Lines from the first one that the thread loads to the end, and whether all of the tile's are before that.
        self.left = t.bin("sub", extent, t.bin("add", origin, line))
        self.whole = t.cmp("sle", t.bin("add", origin, i64(side.extent)), extent)
        #: Bytes of a copy: complex numbers may be aligned to their parts only.
        self.piece = side.width * size
        if plane.parts > 1 and pointer.name not in gemm.facts.aligned:
            self.piece = plane.part

    def copy(self, k: V, depth: V, number: V) -> None:
        """Begin to copy the step from k on; what is past the end is zero."""
        t, gemm, side = self.t, self.gemm, self.side
        base = memory.at(t, gemm.buffer(number), side.offsets[0])
        source = memory.at(t, self.source, t.bin("mul", k, self.strides[1]))
        left = t.bin("sub", depth, k)
        whole = t.bin("and", self.whole, t.cmp("sge", left, i64(gemm.step)))
        with t.if_(side.spare), t.if_else(whole) as turn:
            self._copy(base, source, None)
            next(turn)
            self._copy(base, source, left)

    def _copy(self, base: V, source: V, left: V | None) -> None:
        t, side, piece = self.t, self.side, self.piece
        name = f"llvm.nvvm.cp.async.{'cg' if piece == 16 else 'ca'}.shared.global.{piece}"
        t.declare(name, "void", [SHARED, GLOBAL])
        t.declare(f"{name}.s", "void", [SHARED, GLOBAL, "i32"])
        (size,) = (p.size for p in side.planes)
        for (line, up), place in zip(side.shifts, self.places, strict=True):
            at = source
            for count, stride in zip((line, up), self.strides, strict=True):
                if count:
                    at = memory.at(t, at, t.bin("mul", stride, i64(count)))
            to = memory.at(t, base, place[0])
            ends = None
            if left is not None:
                deep = t.bin("sub", left, t.bin("add", side.units[0][1], i64(up)))
                across = t.bin("sub", self.left, i64(line))
                along, other = (deep, across) if side.deep else (across, deep)
                ends = t.select(t.cmp("sgt", other, i64(0)), along, i64(0))
            for first in range(0, side.width * size, piece):
                here, there = memory.at(t, to, first), memory.at(t, at, first)
                if ends is None:
                    t.line(f"call void @{name}({here}, {there})")
                else:
                    t.line(f"call void @{name}.s({here}, {there}, {self._bytes(ends, size, first)})")

    def _bytes(self, ends: V, size: int, first: int) -> V:
        """Bytes of a piece that begins at `first` which are before the end, `ends` elements on."""
        t, piece = self.t, self.piece
        if self.side.width == 1:
            return t.select(t.cmp("sgt", ends, i64(0)), i32(piece), i32(0))
        left = t.bin("sub", t.bin("mul", ends, i64(size)), i64(first))
        left = t.call("llvm.smin.i64", "i64", [left, i64(piece)])
        return t.cast("trunc", t.call("llvm.smax.i64", "i64", [left, i64(0)]), "i32")

    # -- by way of registers ------------------------------------------------------------------------------------------
    def fetch(self, k: V, depth: V) -> None:
        """Load the step from k on; what is past the end is zero where it is multiplied as well, else anything."""
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
            for plane, elements in zip(side.planes, self.cells[number], strict=True):
                for cell, x in zip(elements[i], self._parts(plane.value, where), strict=True):
                    t.set(cell, self._encoded(x, plane, inside))

    def _parts(self, value: ir.Value, where: Where) -> tuple[V, ...]:
        """An element's parts, of the dtype that is multiplied."""
        return parts(convert(self.t, self.gemm.e(value, where), value.type.dtype, self.gemm.held(value)))

    def _encoded(self, x: V, plane: Plane, inside: V | None) -> V:
        """A part of an element as shared memory holds it; `inside`: whether it is in k (None: it is)."""
        t = self.t
        held = x if x.ty == plane.stored else t.cast("zext", x, plane.stored)
        return t.select(inside, held, t.like(0, held)) if inside is not None and self.gemm.padded else held

    def put(self, number: V) -> None:
        """Store what was loaded as the panels of a step."""
        t, side = self.t, self.side
        base = self.gemm.buffer(number)
        with t.if_(side.spare):
            for planes, places in zip(self.cells, self.places, strict=True):
                for plane, elements, place, offset in zip(side.planes, planes, places, side.offsets, strict=True):
                    at = memory.at(t, memory.at(t, base, offset), place)
                    # Neighbours along k are none where panels lie along the other dim.
                    apart = side.deep and not self.gemm.natural
                    chunk = 1 if apart else min(max(1, 16 // plane.size), side.width)
                    for first in range(0, side.width, chunk):
                        values = [t.get(c, plane.stored) for cells in elements[first : first + chunk] for c in cells]
                        step = side.pitch * plane.size if apart else plane.size
                        self._row(values, memory.at(t, at, first * step), plane.part)

    def _row(self, values: list[V], at: V, size: int) -> None:
        t = self.t
        if len(values) == 1:
            t.store(values[0], at, size)
            return
        whole = V("poison", vector(values[0].ty, len(values)))
        for i, x in enumerate(values):
            whole = t.insert(whole, x, i)
        t.store(whole, at, len(values) * size)
