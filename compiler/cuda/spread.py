"""The schedule of products on Hopper whose few tiles many processors share, each a part of k; see gemm.py.

Each block leaves its sums in memory and counts.  When all of a tile's parts are there, each adds up some of the
columns, in the order of the parts, and finishes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .hopper import MULTIPLYING, QUAD, Hopper
from .memory import i32, i64
from .simt import Sums
from .target import Target
from .wgmma import ROWS

#: Bytes of a word that counts the parts that are there, for each group of warps of each tile; and of all of these,
#: which are zero between kernels.
FLAG, FLAGS = 4, 4096


class Spread(Hopper):
    """Generates the code of one kernel."""

    added = True

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        return "spread" in kernel.attrs and Hopper.suits(kernel, target)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        #: Parts of k, blocks that finish some of the columns each, and bytes of the sums of each block.
        self.parts = int(kernel.attrs["spread"])
        quads = self.columns // 8
        self.finishing = max(n for n in range(1, self.parts + 1) if quads % n == 0)
        self.slot = ROWS * self.columns * 4

    def generate(self) -> Generated:
        tiles = FLAGS // (2 * FLAG)
        made = super().generate()
        return made._replace(
            workspace=(FLAGS, self.parts * self.slot), workspace_kept=True, programs=self.parts * tiles
        )

    def _begin(self) -> None:
        super()._begin()
        t = self.t
        words = next(p for p in self.kernel.params if p.name == "workspace")
        self.words = self.e.integer(words)
        self.each = t.bin("udiv", t.bin("add", self.steps, i32(self.parts - 1)), i32(self.parts))
        self.total = self.steps
        self.tiles = t.bin("mul", self.tiles, i32(self.parts))

    def _locate(self, tile: V) -> None:
        t = self.t
        self.number, self.rank = t.bin("udiv", tile, i32(self.parts)), t.bin("urem", tile, i32(self.parts))
        # The block's part of the steps.
        self.skipped = t.call("llvm.umin.i32", "i32", [t.bin("mul", self.rank, self.each), self.total])
        self.steps = t.call("llvm.umin.i32", "i32", [self.each, t.bin("sub", self.total, self.skipped)])
        super()._locate(self.number)

    def _finish(self, sums: Sums, origin: Sequence[V], extents: Sequence[V]) -> None:
        t = self.t
        thread = t.bin("sub", self.tid, i32(self.threads - MULTIPLYING))
        slots = memory.at(t, self.words, FLAGS)
        first = t.bin("mul", t.cast("zext", t.bin("mul", self.number, i32(self.parts)), "i64"), i64(self.slot))
        first = t.bin("add", first, t.cast("zext", t.bin("mul", thread, i32(QUAD)), "i64"))
        first = memory.at(t, slots, first)
        rank = t.cast("zext", self.rank, "i64")
        self._leave_quads(sums, memory.at(t, first, t.bin("mul", rank, i64(self.slot))))
        flag = t.bin("add", t.bin("shl", self.number, i32(1)), self.group)
        self._wait_for_all(memory.at(t, self.words, t.cast("zext", t.bin("mul", flag, i32(FLAG)), "i64")))
        with t.if_(t.cmp("ult", self.rank, i32(self.finishing))):
            count = self.columns // 8 // self.finishing
            mine = memory.at(t, first, t.bin("mul", rank, i64(count * MULTIPLYING * QUAD)))
            totals = self._added_quads([memory.at(t, mine, part * self.slot) for part in range(self.parts)], count)
            across = self.across
            self.across = t.bin("add", across, t.bin("mul", self.rank, i32(8 * count)))
            super()._finish(totals, origin, extents)
            self.across = across

    def _wait_for_all(self, flag: V) -> None:
        """Wait until all parts of the tile have left their sums; the last one that has seen so leaves zero."""
        t = self.t
        group = t.bin("add", self.group, i32(1))
        self._act("bar.sync $0, 128;", group)
        with t.if_(self.lead):
            self._count(flag)
            again, after = t.new_label("again"), t.new_label("there")
            t.br(again)
            t.label(again)
            text, true = "@$2 ld.acquire.gpu.global.b32 $0, [$1];", V("true", "i1")
            found = t.op(f'call i32 asm sideeffect "{text}", "=r,l,b,~{{memory}}"({flag}, {true})', "i32")
            t.br_if(t.cmp("uge", found, i32(self.parts)), after, again)
            t.label(after)
            with t.if_(t.cmp("eq", self._count(flag), i32(2 * self.parts - 1))):
                t.store(i32(0), flag, FLAG)
        self._act("bar.sync $0, 128;", group)

    def _count(self, flag: V) -> V:
        self._act("fence.acq_rel.gpu;")
        return self.t.op(f"atomicrmw add {flag}, i32 1 monotonic", "i32")
