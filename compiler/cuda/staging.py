"""Accesses whose neighbours in memory are not neighbours in the layout: a tile changes hands in shared memory, so that
both sides read and write wide.

The tile lies in shared memory in the order of the access, each run of neighbours padded, so that threads of a warp
that go across the runs find different banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.convert import Register
from ..llvm.text import V
from . import layout
from .layout import is_const
from .memory import at, both, i32, i64, load, store

if TYPE_CHECKING:
    from .codegen import Codegen

#: Shorter sides are accessed as they are.
LEAST = 8


@dataclass(slots=True)
class Run:
    """Neighbours in memory that a thread accesses together, from (`along`, `across`) on."""

    along: V
    across: V
    address: V
    masks: list[V | None]


class Tile:
    """A view of two dims with its neighbours along `along`; the layout's lane is `across`."""

    def __init__(self, code: Codegen, op: Op) -> None:
        self.code = code
        self.op = op
        pointer, self.offset, strides, extents = layout.view(op)
        self.dtype = pointer.type.dtype
        self.size = dtypes.SIZE[self.dtype]
        assert code.layout.lane is not None
        self.across = code.layout.lane
        self.along = along(code, op)
        self.stride = strides[extents.index(self.across)]
        self.pointer = pointer
        splits = code.layout.splits
        self.length = splits[self.along].chunk
        self.width = splits[self.across].chunk
        self.pitch = self.length + max(1, 4 // self.size)
        vector = min(code.facts.width(op, self.along), self.length)
        self.vector = vector
        self.access = vector if code.whole_vectors(self.along, vector) else 1
        self.base = code.exchange(self.size * self.pitch * self.width)
        #: Threads along and across it that access a row of runs together, and whether this is one of them.
        self.threads = min(code.layout.active, self.length // self.vector)
        self.rows = min(code.layout.active // self.threads, self.width)
        self.works: V | None = None
        if self.rows * self.threads < code.layout.threads:
            self.works = code.t.cmp("ult", code.tid, i32(self.rows * self.threads))

    def runs(self) -> list[Run]:
        """What this thread accesses."""
        code, t = self.code, self.code.t
        length, width = (
            code.memo(("extent", d), lambda d=d: t.cast("trunc", code.extents[d], "i32"))
            for d in (self.along, self.across)
        )
        x = t.bin("mul", t.bin("and", code.tid, i32(self.threads - 1)), i32(self.vector))
        y = t.bin("lshr", code.tid, i32(self.threads.bit_length() - 1))
        stride = code.integer(self.stride)
        start = at(t, code.integer(self.pointer), t.bin("mul", code.integer(self.offset), i64(self.size)))
        found: list[Run] = []
        for k in range(0, self.width, self.rows):
            across = t.bin("add", y, i32(k))
            line = at(t, start, t.bin("mul", t.cast("zext", across, "i64"), t.bin("mul", stride, i64(self.size))))
            for m in range(0, self.length, self.threads * self.vector):
                place = t.bin("add", x, i32(m))
                row = both(t, self.works, t.cmp("slt", across, width))
                masks = [
                    both(t, row, t.cmp("slt", t.bin("add", place, i32(n)), length))
                    for n in range(0, self.vector, self.access)
                ]
                address = at(t, line, t.cast("zext", t.bin("mul", place, i32(self.size)), "i64"))
                found.append(Run(place, across, address, masks))
        return found

    def place(self, along: V, across: V) -> V:
        """Where an element lies in shared memory."""
        t = self.code.t
        number = t.bin("add", t.bin("mul", across, i32(self.pitch)), along)
        return at(t, self.base, t.cast("zext", t.bin("mul", number, i32(self.size)), "i64"))

    def here(self) -> V:
        """Where the thread's first element in the layout lies."""
        return self.place(self.code.first[self.along], self.code.first[self.across])

    def shift(self, point: dict[str, int]) -> int:
        """Bytes from there to the element of a point."""
        splits = self.code.layout.splits
        along, across = (splits[d].offset(point[d]) for d in (self.along, self.across))
        return self.size * (across * self.pitch + along)


def along(code: Codegen, op: Op) -> str:
    """The dim of a crossing view's neighbours."""
    (found,) = [str(e) for e in layout.view(op)[3] if e != code.layout.lane]
    return found


def is_crossing(code: Codegen, op: Op) -> bool:
    """Whether a view goes through shared memory."""
    _, _, strides, extents = layout.view(op)
    lane, splits = code.layout.lane, code.layout.splits
    if len(extents) != 2 or lane not in extents or any(splits[str(e)].looped for e in extents):
        return False
    if any(splits[str(e)].chunk < LEAST for e in extents):
        return False
    where = extents.index(lane)
    return is_const(strides[1 - where], 1) and not (is_const(strides[where], 1) or is_const(strides[where], 0))


def load_tile(code: Codegen, op: Op) -> None:
    """Define all of the thread's elements of a crossing load."""
    t, tile = code.t, Tile(code, op)
    found: list[tuple[Run, list[Register]]] = []
    for run in tile.runs():
        values: list[Register] = []
        for k, mask in enumerate(run.masks):
            values += load(t, at(t, run.address, k * tile.access * tile.size), tile.dtype, tile.access, mask)
        found.append((run, values))
    for run, values in found:
        place = tile.place(run.along, run.across)
        for k, value in enumerate(values):
            store(t, [value], at(t, place, k * tile.size), tile.dtype, tile.works)
    code.barrier()
    here = tile.here()
    for point in code.points(op.result.type.extents):
        (value,) = load(t, at(t, here, tile.shift(point)), tile.dtype, 1)
        code.define(code.key(op.result, point), value)


def store_tile(code: Codegen, op: Op) -> None:
    """Store a tile by a crossing store."""
    t, tile = code.t, Tile(code, op)
    value = op.operands[0]
    here, writer = tile.here(), code.writer(value.type.extents)
    for point in code.points(value.type.extents):
        store(t, [code.get(value, point)], at(t, here, tile.shift(point)), tile.dtype, writer)
    code.barrier()
    for run in tile.runs():
        place = tile.place(run.along, run.across)
        values = [load(t, at(t, place, k * tile.size), tile.dtype, 1, tile.works)[0] for k in range(tile.vector)]
        for k, mask in enumerate(run.masks):
            piece = values[k * tile.access : (k + 1) * tile.access]
            store(t, piece, at(t, run.address, k * tile.access * tile.size), tile.dtype, mask)
