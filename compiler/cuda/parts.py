"""The schedule of products of few tiles and long k on Hopper; see gemm.py.

The blocks of a cluster multiply parts of k of the same tile.  Each leaves its sums in shared memory, from where the
others read those of their columns, and add them up in the order of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..llvm.text import V
from . import memory
from .hopper import MULTIPLYING, QUAD, Hopper
from .memory import REMOTE, SHARED, i32
from .pipeline import BARRIER
from .simt import Sums
from .target import Target


class Parts(Hopper):
    """Generates the code of one kernel."""

    added = True

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        return kernel.attrs.get("parts", 1) > 1 and Hopper.suits(kernel, target)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.cluster = int(kernel.attrs["parts"])
        super().__init__(kernel, target)

    def _layout(self) -> None:
        #: Blocks that finish some of the columns each.
        quads = self.columns // 8
        self.finishing = max(n for n in range(1, self.cluster + 1) if quads % n == 0)
        self.exchange = MULTIPLYING * self.columns // 8 * QUAD
        super()._layout()
        #: Barriers of each group of warps: whether all have left their sums, and whether all have read them.
        self.left = self.nbytes
        self.read = self.left + 2 * BARRIER
        self.nbytes = self.read + 2 * BARRIER

    def _begin(self) -> None:
        super()._begin()
        t = self.t
        # This block's part of the steps.
        each = t.bin("udiv", t.bin("add", self.steps, i32(self.cluster - 1)), i32(self.cluster))
        self.skipped = t.call("llvm.umin.i32", "i32", [t.bin("mul", self.rank, each), self.steps])
        self.steps = t.call("llvm.umin.i32", "i32", [each, t.bin("sub", self.steps, self.skipped)])

    def _blocks(self) -> tuple[V, V]:
        self.rank = self._special("cluster.ctarank")
        return self._special("clusterid.x"), self._special("nclusterid.x")

    def _make_barriers(self) -> None:
        super()._make_barriers()
        for group in range(2):
            self._make_barrier(self.left + group * BARRIER, self.cluster)
            self._make_barrier(self.read + group * BARRIER, self.finishing)

    def _meet(self) -> None:
        for side in ("arrive", "wait"):
            self.t.call(f"llvm.nvvm.barrier.cluster.{side}.aligned", "void", [], "convergent nounwind")

    def _compute(self) -> None:
        t = self.t
        self.turn = t.cell("i32")
        t.set(self.turn, i32(1))
        super()._compute()
        # Others may read here until they say so.
        self._wait(self._barrier(self.read, self.group), t.get(self.turn, "i32"), "cluster")

    def _finish(self, sums: Sums, origin: Sequence[V], extents: Sequence[V]) -> None:
        t = self.t
        thread = t.bin("sub", self.tid, i32(self.threads - MULTIPLYING))
        place = t.bin("add", t.bin("mul", thread, i32(QUAD)), i32(self.told))
        whole = memory.at(t, V("@shared", SHARED), t.cast("zext", place, "i64"))
        left, read = (self._barrier(start, self.group) for start in (self.left, self.read))
        speaks = t.cmp("ult", self.own, i32(self.cluster))
        turn = t.get(self.turn, "i32")
        self._wait(read, turn, "cluster")
        turn = t.bin("xor", turn, i32(1))
        t.set(self.turn, turn)
        self._leave_quads(sums, whole)
        group = t.bin("add", self.group, i32(1))
        self._act("bar.sync $0, 128;", group)
        with t.if_(t.bin("and", speaks, t.cmp("ult", self.own, i32(self.finishing)))):
            self._arrive_at(left, self.own)
        with t.if_(t.cmp("ult", self.rank, i32(self.finishing))):
            self._wait(left, turn, "cluster")
            count = self.columns // 8 // self.finishing
            mine = t.bin("mul", self.rank, i32(count * MULTIPLYING * QUAD))
            totals = self._added(memory.at(t, whole, t.cast("zext", mine, "i64")), count)
            self._act("bar.sync $0, 128;", group)
            with t.if_(speaks):
                self._arrive_at(read, self.own)
            across = self.across
            self.across = t.bin("add", across, t.bin("mul", self.rank, i32(8 * count)))
            super()._finish(totals, origin, extents)
            self.across = across

    def _added(self, place: V, count: int) -> Sums:
        """The sums of so many blocks of eight columns, over the parts in their order."""
        there = lambda rank: self.t.call(
            "llvm.nvvm.mapa.shared.cluster", REMOTE, [place, i32(rank)], "nounwind memory(none)"
        )
        return self._added_quads([there(rank) for rank in range(self.cluster)], count)
