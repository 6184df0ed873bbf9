"""The schedule of products of few tiles and long k on Hopper; see gemm.py.

The blocks of a cluster multiply parts of k of the same tile.  Each sends its sums to the shared memory of the blocks
that finish those columns; these add them up, always in the same order.  A barrier there counts the bytes that have
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
        self.exchange = (self.cluster - 1) * self.share * MULTIPLYING * QUAD
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
            self._expect(there, (self.cluster - 1) * each // 2)
        self._give(sums, t.bin("add", self.base, first), there)
        with t.if_(finishes):
            kept = self._kept(sums)
            self._wait(there, turn, "cluster")
            whole = memory.at(t, V("@shared", SHARED), t.cast("zext", first, "i64"))
            others = [memory.at(t, whole, slot * each) for slot in range(self.cluster - 1)]
            totals = self._added_quads(others, self.share)
            for k, own in enumerate(kept):
                for i, x in enumerate(own):
                    cell = totals[i // 2][2 * k + i % 2][0]
                    t.set(cell, t.bin("fadd", t.get(cell, "float"), x))
            with t.if_(self.more):
                self._act("bar.sync $0, 128;", t.bin("add", self.group, i32(1)))
                with t.if_(t.cmp("ult", self.own, i32(self.cluster))):
                    self._arrive_at(read, self.own)
            across = self.across
            self.across = t.bin("add", across, t.bin("mul", self.rank, i32(8 * self.share)))
            super()._finish(totals, origin, extents)
            self.across = across

    def _give(self, sums: Sums, place: V, barrier: V) -> None:
        """Send the thread's sums to the other blocks that finish them; their bytes count at a barrier there."""
        t, quads = self.t, self._quads(sums)
        for rank in range(self.finishing):
            with t.if_(t.cmp("ne", self.rank, i32(rank))):
                # A block has slots for all others, in their order.
                slot = t.bin("sub", self.rank, t.cast("zext", t.cmp("ugt", self.rank, i32(rank)), "i32"))
                to = t.bin("add", place, t.bin("mul", slot, i32(self.share * MULTIPLYING * QUAD)))
                mine = quads[rank * self.share : (rank + 1) * self.share]
                values = [t.get(cell, "float") for quad in mine for cell in quad]
                sent = "".join(
                    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                    f"[to+{k * MULTIPLYING * QUAD}], {{{', '.join(f'${2 + 4 * k + i}' for i in range(4))}}}, [at]; "
                    for k in range(self.share)
                )
                self._act(
                    f"{{ .reg .b32 to, at; mapa.shared::cluster.u32 to, $0, {rank}; "
                    f"mapa.shared::cluster.u32 at, $1, {rank}; {sent}}}", to, barrier, *values,
                )  # fmt: skip

    def _kept(self, sums: Sums) -> list[list[V]]:
        """The thread's sums that its block finishes."""
        t, quads = self.t, self._quads(sums)
        found = [[t.get(cell, "float") for cell in quad] for quad in quads[: self.share]]
        for rank in range(1, self.finishing):
            own = t.cmp("eq", self.rank, i32(rank))
            for kept, quad in zip(found, quads[rank * self.share :], strict=False):
                kept[:] = [t.select(own, t.get(cell, "float"), x) for cell, x in zip(quad, kept, strict=True)]
        return found
