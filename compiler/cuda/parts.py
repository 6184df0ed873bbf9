"""The schedule of products of few tiles and long k on Hopper; see gemm.py.

The blocks of a cluster multiply parts of k of the same tile.  Each sends its sums to the shared memory of the blocks
that finish those columns; these add them up in the order of the parts.  A barrier there counts the bytes that have
arrived, so that nobody waits for memory to be seen, and a block may end while what it sent is under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..llvm.text import V
from . import memory
from .hopper import MULTIPLYING, QUAD, Hopper
from .memory import SHARED, i32
from .pipeline import BARRIER
from .simt import Sums
from .target import Target


class Parts(Hopper):
    """Generates the code of one kernel."""

    added = True

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        # Where rounds turn, blocks do not know whether another tile follows.
        return kernel.attrs.get("parts", 1) > 1 and "edge" not in kernel.attrs and Hopper.suits(kernel, target)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.cluster = int(kernel.attrs["parts"])
        super().__init__(kernel, target)

    def _layout(self) -> None:
        #: Blocks that finish some of the columns each, and how many times eight of them.
        quads = self.columns // 8
        self.finishing = max(n for n in range(1, self.cluster + 1) if quads % n == 0)
        self.share = quads // self.finishing
        self.exchange = self.cluster * self.share * MULTIPLYING * QUAD
        super()._layout()
        #: Barriers of each group of warps: whether all sums are there, and whether all that were sent have been read.
        self.there = self.nbytes
        self.read = self.there + 2 * BARRIER
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
            self._make_barrier(self.there + group * BARRIER, 1)
            self._make_barrier(self.read + group * BARRIER, self.finishing)

    def _meet(self) -> None:
        for side in ("arrive", "wait"):
            self.t.call(f"llvm.nvvm.barrier.cluster.{side}.aligned", "void", [], "convergent nounwind")

    def _locate(self, tile: V) -> None:
        super()._locate(tile)
        #: Whether another tile follows.
        self.more = self.t.cmp("slt", self.t.bin("add", tile, self.step_), self.tiles)

    def _compute(self) -> None:
        self.turn = self.t.cell("i32")
        self.t.set(self.turn, i32(1))
        super()._compute()

    def _finish(self, sums: Sums, origin: Sequence[V], extents: Sequence[V]) -> None:
        t = self.t
        there, read = (self._barrier(start, self.group) for start in (self.there, self.read))
        each = self.share * MULTIPLYING * QUAD
        thread = t.bin("sub", self.tid, i32(self.threads - MULTIPLYING))
        first = t.bin("add", t.bin("mul", thread, i32(QUAD)), i32(self.told))
        turn = t.get(self.turn, "i32")
        self._wait(read, turn, "cluster")
        turn = t.bin("xor", turn, i32(1))
        t.set(self.turn, turn)
        finishes = t.cmp("ult", self.rank, i32(self.finishing))
        with t.if_(t.bin("and", finishes, self.lead)):
            self._expect(there, self.cluster * each // 2)
        self._give(sums, t.bin("add", t.bin("add", self.base, first), t.bin("mul", self.rank, i32(each))), there)
        with t.if_(finishes):
            self._wait(there, turn, "cluster")
            whole = memory.at(t, V("@shared", SHARED), t.cast("zext", first, "i64"))
            totals = self._added_quads([memory.at(t, whole, part * each) for part in range(self.cluster)], self.share)
            with t.if_(self.more):
                self._act("bar.sync $0, 128;", t.bin("add", self.group, i32(1)))
                with t.if_(t.cmp("ult", self.own, i32(self.cluster))):
                    self._arrive_at(read, self.own)
            across = self.across
            self.across = t.bin("add", across, t.bin("mul", self.rank, i32(8 * self.share)))
            super()._finish(totals, origin, extents)
            self.across = across

    def _give(self, sums: Sums, place: V, barrier: V) -> None:
        """Send the thread's sums to `place` of the blocks that finish them; their bytes count at a barrier there."""
        quads = self._quads(sums)
        for rank in range(self.finishing):
            mine = quads[rank * self.share : (rank + 1) * self.share]
            values = [self.t.get(cell, "float") for quad in mine for cell in quad]
            sent = "".join(
                "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                f"[to+{k * MULTIPLYING * QUAD}], {{{', '.join(f'${2 + 4 * k + i}' for i in range(4))}}}, [at]; "
                for k in range(self.share)
            )
            self._act(
                f"{{ .reg .b32 to, at; mapa.shared::cluster.u32 to, $0, {rank}; "
                f"mapa.shared::cluster.u32 at, $1, {rank}; {sent}}}", place, barrier, *values,
            )  # fmt: skip
