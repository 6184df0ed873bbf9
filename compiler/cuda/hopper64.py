"""The schedule of products of f64 on Hopper, where some warps load and others multiply; see gemm.py.

The copy engine brings panels into a ring of stages, as it does for narrower types (hopper.py).  Each of eight warps
multiplies its part of a tile and goes on by itself: what it reads next lies in registers before it has multiplied all
of a stage, and while it waits or stores, another one has the tensor cores.

A thread reads 8 bytes at a time, since an instruction takes a thread's elements in such an order of registers that no
neighbours in memory are neighbours there.  Which rows and columns of a tile are a warp's is free: those that the
swizzle has in different banks.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..llvm.text import V
from . import memory
from .dmma import DEPTH, Doubles, Fragment
from .epilogue import Direct
from .hopper import LOADING, MULTIPLYING, Hopper
from .memory import SHARED, i32
from .panels import Side
from .pipeline import Ring
from .simt import Sums
from .target import Target
from .wgmma import ROW

#: Rows and columns of a warp, by those of a tile.
_WARPS = {(128, 128): (32, 64), (128, 64): (32, 32)}
#: Bytes of eight rows of a panel.
EIGHT = 8 * ROW


class Hopper64(Doubles, Hopper):
    """Generates the code of one kernel."""

    readers = MULTIPLYING // 32
    together = 4

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        roots = [op for op in kernel.body.ops if op.name == "dot" and op.result.type.dtype == "f64"]
        if target.arch != "sm_90a" or not roots:
            return False
        (m, _), (_, n) = (x.type.extents for x in roots[0].operands[:2])
        if (kernel.dims[str(m)].block, kernel.dims[str(n)].block) not in _WARPS:
            return False
        return None not in Hopper64(kernel, target).maps.values()

    def _accumulated(self) -> str:
        return self.dtype

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, columns = self.block
        self.warp = _WARPS[rows, columns]
        return (rows, columns), (self.warp[0] // 8, self.warp[1] // 4)

    def _epilogue(self) -> Direct:
        return Direct(self)

    # -- places -------------------------------------------------------------------------------------------------------
    def _threads(self) -> None:
        t, tid = self.t, self.tid
        self.lane = t.bin("and", tid, i32(31))
        self.lead = t.cmp("eq", self.lane, i32(0))
        number = t.bin("lshr", t.bin("sub", tid, i32(LOADING)), i32(5))
        broad = self.columns // self.warp[1]
        corner = (
            t.bin("mul", t.bin("lshr", number, i32(broad.bit_length() - 1)), i32(self.warp[0])),
            t.bin("mul", t.bin("and", number, i32(broad - 1)), i32(self.warp[1])),
        )
        line, k = t.bin("lshr", self.lane, i32(2)), t.bin("and", self.lane, i32(3))
        bit = lambda x, k: t.bin("and", t.bin("lshr", x, i32(k)), i32(1))
        # Of rows along k threads take every second one, and of boxes' columns pairs that are eight apart: so the
        # swizzle has the elements of half a warp in different banks.
        row = t.bin("or", t.bin("shl", t.bin("and", line, i32(3)), i32(1)), bit(line, 2))
        column = t.bin("or", t.bin("shl", bit(line, 2), i32(1)), bit(line, 0))
        column = t.bin("or", t.bin("shl", bit(line, 1), i32(3)), column)
        #: Where a thread's elements begin in each side's panel.  The others of eight elements of k, or of two blocks
        #: of columns, are where the swizzle has them.
        self.corners: list[list[V]] = []
        for side, first in zip((self.a, self.b), corner, strict=True):
            outer, inner = (row, k) if side.deep else (k, column)
            piece = t.bin("xor", t.bin("lshr", inner, i32(1)), outer)
            inside = t.bin("add", t.bin("mul", outer, i32(ROW)), t.bin("shl", piece, i32(4)))
            inside = t.bin("add", inside, t.bin("shl", t.bin("and", inner, i32(1)), i32(3)))
            before = t.bin("add", t.bin("mul", first, i32(ROW)), i32(side.offsets[0]))
            self.corners.append([t.bin("add", before, t.bin("xor", inside, i32(32 * n))) for n in range(4)])
        self.run = [1, 1 if self.b.deep else 2]
        self.down = t.bin("add", corner[0], row if self.a.deep else column)
        high, low = bit(k, 1), t.bin("and", k, i32(1))
        if self.b.deep:
            across = t.bin("or", t.bin("shl", low, i32(2)), high)
        else:
            across = t.bin("or", t.bin("shl", low, i32(3)), t.bin("shl", high, i32(1)))
        self.across = t.bin("add", corner[1], across)

    def _offset(self, index: int, axis: int) -> int:
        block, number = (index, 0) if axis == 0 else divmod(index, 2)
        if (self.a, self.b)[axis].deep:
            return 8 * block + 2 * number
        return block // 2 * 16 + block % 2 * 4 + number

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _take_turns(self) -> None:
        """Warps go on by themselves."""

    def _begin_turn(self) -> None:
        pass

    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        t = self.t
        blocks = self.warp[1] // 8
        taken = [[[t.cell("double") for _ in range(2)] for _ in range(count)] for count in (2, blocks)]

        def hold(values: list[list[Fragment]]) -> None:
            for cells, fragments in zip(taken, values, strict=True):
                for xs, ys in zip(cells, fragments, strict=True):
                    for x, (y,) in zip(xs, ys, strict=True):
                        t.set(x, y)

        with t.if_(t.cmp("ne", self.steps, i32(0))):
            _, here = self._arrived(ring)
            hold(self._first(self._places_in(here)))
        with t.for_(self.steps) as number:
            stage, _ = self._present(ring)
            here = self._panels_at(stage)
            self._advance(ring)
            following, parity = self._present(ring)
            more = t.cmp("ult", t.bin("add", number, i32(1)), self.steps)

            def await_following(following: V = following, parity: V = parity, more: V = more) -> None:
                with t.if_(more):
                    self._wait(self._barrier(self.full, following), parity)

            first = [[[[t.get(c, "double")] for c in xs] for xs in side] for side in taken]
            hold(self._multiply_stage(sums, here, first, self._panels_at(following), await_following))
            self._act("bar.warp.sync 0xffffffff;")
            with t.if_(self.lead):
                self._release(stage)

    def _panels_at(self, stage: V) -> V:
        t = self.t
        return memory.at(t, V("@shared", SHARED), t.cast("zext", t.bin("mul", stage, i32(self.panels)), "i64"))

    def _places_in(self, here: V) -> list[list[V]]:
        t = self.t
        return [[memory.at(t, here, t.cast("zext", x, "i64")) for x in corners] for corners in self.corners]

    def _first(self, places: list[list[V]]) -> list[list[Fragment]]:
        """The fragments of a stage's first sixteen rows, and of all columns, in the first half of the step."""
        counts = 2, self.warp[1] // 8
        sides = zip((self.a, self.b), places, counts, strict=True)
        return [[self._fetch(side, there, block, 0) for block in range(count)] for side, there, count in sides]

    def _fetch(self, side: Side, places: list[V], block: int, half: int) -> Fragment:
        """A thread's elements of eight rows or columns, in a half of the step."""
        found = []
        for k in range(2):
            which, beyond = 2 * half + k, block * EIGHT
            if not side.deep:
                box, number = divmod(block, 2)
                which, beyond = 2 * k + number, (2 * box + half) * EIGHT + 4 * k * ROW
            found.append([self.t.load(memory.at(self.t, places[which], beyond), "double", 8)])
        return found

    def _multiply_stage(
        self, sums: Sums, here: V, first: list[list[Fragment]], following: V, await_following: Callable[[], None]
    ) -> list[list[Fragment]]:
        """Multiply a stage whose first fragments are given; gives those of the following one, once that is there."""
        t = self.t
        values = [[[t.get(c, "double") for c in cells] for cells in row] for row in sums]
        places = self._places_in(here)
        rows = range(0, self.warp[0] // 8, 2)
        turns = [(places, row, half) for half in range(self.depth // DEPTH) for row in rows]
        turns.append((self._places_in(following), 0, 0))
        a, b = first
        for n, (_, row, _) in enumerate(turns[:-1]):
            if n + 2 == len(turns):
                await_following()
            there, coming, half = turns[n + 1]
            after = [self._fetch(self.a, there[0], coming + k, half) for k in range(2)]
            for j in self._add_rows(values, row, a, b):
                if coming == 0:
                    b[j] = self._fetch(self.b, there[1], j, half)
            a = after
        for row, new in zip(sums, values, strict=True):
            for cells, xs in zip(row, new, strict=True):
                for cell, x in zip(cells, xs, strict=True):
                    t.set(cell, x)
        return [a, b]
