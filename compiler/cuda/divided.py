"""The schedule of attention on Hopper where a few rows have many keys: several programs share them.

Each program walks over its part of the keys and leaves its maximum and its sums in memory.  The one that is there last
joins all of them, in the order of the parts, and goes on as if it had walked over all keys.
"""

from __future__ import annotations

from math import inf

from .. import ir
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .memory import i32, i64
from .online import GROUP, Online
from .softmax import _of
from .target import Target

#: Bytes that a thread leaves at once, and tiles that are counted: of more, there is no need to share the keys.
SHARE, TILES = 16, 1024


class Divided(Online):
    """Generates the code of one kernel."""

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        #: The axis of the grid along which programs have the same rows.
        self.split = int(kernel.attrs["split"])
        self.parts = kernel.grid[self.split].size
        #: Pieces of a row that a thread leaves: its sums, and what belongs to all of them.
        self.pieces = self.columns // 16 + 1
        self.words = next(p for p in kernel.params if p.name == "workspace")
        #: Bytes of a program's pieces.
        self.nbytes = self.groups * GROUP * 2 * self.pieces * SHARE
        #: Words that tell each group whether it was the last one.
        self.verdicts = self.tile + 4

    def generate(self) -> Generated:
        return super().generate()._replace(workspace=(0, self.nbytes))

    def _variables(self) -> list[str]:
        counts = f"@arrived = internal addrspace(1) global [{TILES} x i32] zeroinitializer, align 4"
        return [*super()._variables(), counts]

    def _locate(self, tile: V) -> None:
        """Tell where a tile is, and which part of its keys the program has."""
        super()._locate(tile)
        t, keys = self.t, i64(self.keys)
        part = t.cast("zext", self.programs[self.split], "i64")
        parts = self.e.integer(self.parts)
        blocks = t.bin("udiv", t.bin("add", t.bin("sub", self.high, self.low), i64(self.keys - 1)), keys)
        blocks = t.select(self.some, blocks, i64(0))
        each = t.bin("mul", t.bin("udiv", t.bin("sub", t.bin("add", blocks, parts), i64(1)), parts), keys)
        self.low = t.bin("add", self.low, t.bin("mul", part, each))
        self.high = t.call("llvm.smin.i64", "i64", [self.high, t.bin("add", self.low, each)])
        self.some = t.cmp("slt", self.low, self.high)

    def _finish(self) -> None:
        t = self.t
        number = i32(0)
        for axis, count in enumerate(self.counts):
            if axis != self.split:
                number = t.bin("add", t.bin("mul", number, count), self.programs[axis])
        parts = self.counts[self.split]
        rows = t.bin("sub", self.e.integer(self.kernel.dims[self.i].size), t.cast("zext", self.start, "i64"))
        there = [t.cmp("slt", row, rows) for row in self._rows()]
        first = t.bin("mul", number, parts)
        place = self._place(t.bin("add", first, self.programs[self.split]))
        for row, inside in enumerate(there):
            with t.if_(inside):
                self._leave(row, place)
        with t.if_(self._is_last(number, parts)):
            for row, inside in enumerate(there):
                with t.if_(inside):
                    self._join(row, self._place(first), parts)
            super()._finish()

    def _place(self, program: V) -> V:
        """Where the thread's pieces of a program's rows are."""
        t = self.t
        thread = t.bin("sub", self.tid, i32(self.threads - self.groups * GROUP))
        start = t.bin("mul", t.cast("zext", program, "i64"), i64(self.nbytes))
        place = t.bin("add", start, t.cast("zext", t.bin("mul", thread, i32(SHARE)), "i64"))
        return memory.at(t, self.e.integer(self.words), place)

    def _piece(self, place: V, row: int, number: int) -> V:
        return memory.at(self.t, place, (row * self.pieces + number) * self.groups * GROUP * SHARE)

    def _is_last(self, number: V, parts: V) -> V:
        """Whether all other programs have left their sums of the group's rows."""
        t = self.t
        group = t.bin("add", self.group, i32(1))
        verdict = t.bin("add", self._at(self.verdicts), t.bin("shl", self.group, i32(2)))
        self._act("fence.acq_rel.gpu;")
        self._act("bar.sync $0, 128;", group)
        with t.if_(self.lead):
            index = t.bin("add", t.bin("mul", number, i32(self.groups)), self.group)
            count = memory.at(t, V("@arrived", memory.GLOBAL), t.cast("zext", t.bin("shl", index, i32(2)), "i64"))
            before = t.op(f"atomicrmw add {count}, i32 1 monotonic", "i32")
            last = t.cmp("eq", before, t.bin("sub", parts, i32(1)))
            with t.if_(last):
                # It leaves the count as it was.
                t.op(f"atomicrmw add {count}, {t.bin('sub', i32(0), parts)} monotonic", "i32")
                self._act("fence.acq_rel.gpu;")
            self._act("st.shared.b32 [$0], $1;", verdict, t.cast("zext", last, "i32"))
        self._act("bar.sync $0, 128;", group)
        offset = t.bin("sub", verdict, self.base)
        found = t.load(memory.at(t, V("@shared", memory.SHARED), t.cast("zext", offset, "i64")), "i32", 4)
        return t.cmp("ne", found, i32(0))

    def _leave(self, row: int, place: V) -> None:
        """Store what the thread has of a row."""
        t = self.t
        values = [t.get(self.sums[k], "float") for k in _of(row, self.sums)]
        values += [t.get(cells[row], "float") for cells in (self.top, self.total, self.less)]
        values.append(t.const(0.0, "float"))
        for number in range(self.pieces):
            packed = V("poison", "<4 x float>")
            for i, x in enumerate(values[4 * number : 4 * number + 4]):
                packed = t.insert(packed, x, i)
            t.store(packed, self._piece(place, row, number), SHARE)

    def _join(self, row: int, place: V, parts: V) -> None:
        """Add up what all parts have of a row, relative to the maximum of all."""
        t = self.t
        t.set(self.top[row], t.const(-inf, "float"))
        with t.for_(parts) as part:
            top, _, less, _ = self._read(self._piece(self._part(place, part), row, self.pieces - 1))
            before = t.get(self.top[row], "float")
            more = t.cmp("ogt", top, before)
            t.set(self.less[row], t.select(more, less, t.get(self.less[row], "float")))
            t.set(self.top[row], self._larger(before, top))
        shift = self._pivot(t.get(self.top[row], "float"))
        sums = [self.sums[k] for k in _of(row, self.sums)]
        for cell in (*sums, self.total[row]):
            t.set(cell, t.const(0.0, "float"))
        with t.for_(parts) as part:
            here = self._part(place, part)
            top, total, less, _ = self._read(self._piece(here, row, self.pieces - 1))
            fade = self._faded(top, less, shift, t.get(self.less[row], "float"))
            t.set(self.total[row], t.fma(total, fade, t.get(self.total[row], "float")))
            for number in range(self.pieces - 1):
                for cell, x in zip(sums[4 * number :], self._read(self._piece(here, row, number)), strict=False):
                    t.set(cell, t.fma(x, fade, t.get(cell, "float")))

    def _part(self, place: V, part: V) -> V:
        return memory.at(self.t, place, self.t.bin("mul", self.t.cast("zext", part, "i64"), i64(self.nbytes)))

    def _read(self, place: V) -> list[V]:
        """What a thread of another program left."""
        t, ty = self.t, "{float, float, float, float}"
        text = "@$5 ld.global.cg.v4.b32 {$0, $1, $2, $3}, [$4];"
        found = t.op(f'call {ty} asm sideeffect "{text}", "=f,=f,=f,=f,l,b,~{{memory}}"({place}, i1 true)', ty)
        return [t.op(f"extractvalue {found}, {i}", "float") for i in range(4)]
