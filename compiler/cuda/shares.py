"""The schedule of products on Hopper whose tiles do not come out even: see gemm.py.

What is left over when all processors have taken whole tiles as long as there are two for each is cut into equal shares
of steps along k, at least a tile's each.  So a tile has at most two of them.  The processor with a tile's later steps
comes to these first, and leaves the sums in memory for the one with the earlier steps, which comes to them last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import ir
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .hopper import MULTIPLYING, Hopper
from .memory import i32, i64
from .simt import Sums
from .target import Target
from .wgmma import ROWS

#: Bytes of a word that says that sums are there, for each group of warps; of what a thread leaves at once.
FLAG, SHARE = 4, 16


class Shares(Hopper):
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        return "shares" in kernel.attrs and Hopper.suits(kernel, target)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        #: Processors, bytes of their sums and of all flags.
        self.most = int(kernel.attrs["shares"])
        self.slot = ROWS * self.columns * 4
        self.flags = -(-self.most * 2 * FLAG // 128) * 128

    def generate(self) -> Generated:
        return (
            super().generate()._replace(workspace=(self.flags + self.most * self.slot, 0), workspace_zeroed=self.flags)
        )

    def _begin(self) -> None:
        super()._begin()
        t, all_ = self.t, self.step_
        self.total = self.steps
        rest, rounds = t.bin("urem", self.tiles, all_), t.bin("udiv", self.tiles, all_)
        some = t.bin("and", t.cmp("ne", rest, i32(0)), t.cmp("ugt", self.tiles, all_))
        some = t.bin("and", some, t.cmp("ule", all_, i32(self.most)))
        last = t.cast("zext", t.cmp("ne", rest, i32(0)), "i32")
        #: Tiles that each processor takes whole, and the first one that is shared.
        self.rounds = t.select(some, t.bin("sub", rounds, i32(1)), t.bin("add", rounds, last))
        self.beyond = t.bin("mul", self.rounds, all_)
        shared = t.select(some, t.bin("sub", self.tiles, self.beyond), i32(0))
        work = t.bin("mul", *(t.cast("zext", x, "i64") for x in (shared, self.total)))
        bound = lambda n: t.cast(
            "trunc", t.bin("udiv", t.bin("mul", t.cast("zext", n, "i64"), work), t.cast("zext", all_, "i64")), "i32"
        )
        #: The processor's share of the steps of all shared tiles.
        self.share = bound(self.first), bound(t.bin("add", self.first, i32(1)))
        words = next(p for p in self.kernel.params if p.name == "workspace")
        self.words = self.e.integer(words)

    @contextmanager
    def _each_tile(self) -> Iterator[V]:
        t = self.t
        cell = t.cell("i32")
        t.set(cell, self.share[0])
        with t.for_(t.bin("add", self.rounds, i32(3))) as number, self.e.scope():
            alone = t.cmp("slt", number, self.rounds)
            here = t.get(cell, "i32")
            index = t.bin("udiv", here, self.total)
            behind = t.bin("sub", here, t.bin("mul", index, self.total))
            left = t.bin("sub", self.share[1], here)
            count = t.call("llvm.umin.i32", "i32", [t.bin("sub", self.total, behind), left])
            own = t.bin("add", self.first, t.bin("mul", number, self.step_))
            whole = t.select(t.cmp("ult", own, self.tiles), self.total, i32(0))
            t.set(cell, t.select(alone, here, t.bin("add", here, count)))
            self.skipped = t.select(alone, i32(0), behind)
            self.steps = t.select(alone, whole, count)
            with t.if_(t.cmp("ne", self.steps, i32(0))):
                yield t.select(alone, own, t.bin("add", self.beyond, index))

    def _leave(self, sums: Sums) -> None:
        t = self.t
        with t.if_else(t.cmp("ne", self.skipped, i32(0))) as turn:
            self._tell(sums)
            self.epilogue.await_brought()
            next(turn)
            with t.if_(t.cmp("ult", self.steps, self.total)):
                self._hear(sums)
            super()._leave(sums)

    def _place(self, processor: V) -> tuple[V, V]:
        """Where a processor finds the flag of its group of warps, and the thread its sums."""
        t = self.t
        flag = t.bin("add", t.bin("shl", processor, i32(1)), self.group)
        thread = t.bin("sub", self.tid, i32(self.threads - MULTIPLYING))
        start = t.bin("mul", t.cast("zext", processor, "i64"), i64(self.slot))
        place = t.bin("add", start, t.cast("zext", t.bin("mul", thread, i32(SHARE)), "i64"))
        return (
            memory.at(t, self.words, t.cast("zext", t.bin("mul", flag, i32(FLAG)), "i64")),
            memory.at(t, memory.at(t, self.words, self.flags), place),
        )

    def _quads(self, sums: Sums) -> list[list[V]]:
        """The variables for the sums of two rows and two columns each."""
        return [[sums[row][2 * k + c][0] for row in range(2) for c in range(2)] for k in range(self.columns // 8)]

    def _tell(self, sums: Sums) -> None:
        """Leave the sums for the processor before this one."""
        t = self.t
        flag, place = self._place(t.bin("sub", self.first, i32(1)))
        for k, cells in enumerate(self._quads(sums)):
            packed = V("poison", "<4 x float>")
            for i, cell in enumerate(cells):
                packed = t.insert(packed, t.get(cell, "float"), i)
            t.store(packed, memory.at(t, place, k * MULTIPLYING * SHARE), SHARE)
        self._act("fence.acq_rel.gpu;")
        self._act("bar.sync $0, 128;", t.bin("add", self.group, i32(1)))
        with t.if_(self.lead):
            self._act("st.release.gpu.global.b32 [$0], $1;", flag, i32(1))

    def _hear(self, sums: Sums) -> None:
        """Add what the processor after this one left."""
        t = self.t
        flag, place = self._place(self.first)
        with t.if_(self.lead):
            again, after = t.new_label("again"), t.new_label("there")
            t.br(again)
            t.label(again)
            text, true = "@$2 ld.acquire.gpu.global.b32 $0, [$1];", V("true", "i1")
            found = t.op(f'call i32 asm sideeffect "{text}", "=r,l,b,~{{memory}}"({flag}, {true})', "i32")
            t.br_if(t.cmp("eq", found, i32(1)), after, again)
            t.label(after)
        self._act("bar.sync $0, 128;", t.bin("add", self.group, i32(1)))
        for k, cells in enumerate(self._quads(sums)):
            at = memory.at(t, place, k * MULTIPLYING * SHARE)
            text = "@$5 ld.global.cg.v4.b32 {$0, $1, $2, $3}, [$4];"
            ty = "{float, float, float, float}"
            found = t.op(f'call {ty} asm sideeffect "{text}", "=f,=f,=f,=f,l,b,~{{memory}}"({at}, i1 true)', ty)
            for i, cell in enumerate(cells):
                other = t.op(f"extractvalue {found}, {i}", "float")
                t.set(cell, t.bin("fadd", t.get(cell, "float"), other))
