"""The schedule of products of f64 and complex128 that multiplies in tensor cores, a warp at a time; see gemm.py.

Panels lie as memory does.  A thread reads 8 bytes at a time, since an instruction takes a thread's elements of its rows
and of k in such an order of registers that no neighbours in memory are neighbours there.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..llvm.text import V
from . import memory
from .dmma import DEPTH, Doubles, Fragment
from .memory import i32
from .panels import Side
from .pipeline import Pipelined
from .simt import BARRIER, Sums, Tiles
from .target import Target

#: Elements of k in a step.
STEP = 16
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES: dict[str, Tiles] = {
    "f64": (
        ((128, 128), (32, 64)),
        ((128, 64), (32, 32)),
        ((64, 64), (32, 32)),
        ((32, 32), (16, 16)),
        ((16, 16), (16, 16)),
    ),
    "c128": (((128, 64), (32, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16))),
}
#: Bytes between rows of a panel: with them, four rows' elements of four columns lie in different banks.
PADDING = 32


class Mma64(Pipelined, Doubles):
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Other GPUs have none of these instructions, or slow ones."""
        return target.sm in (80, 90, 100) and any(
            op.name == "dot" and op.result.type.dtype in _TILES for op in kernel.body.ops
        )

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        if target.sm < 90:
            self.shape = (8, 4)
        self.eager = self.ahead
        self.loose = target.sm >= 90

    def _tiles(self) -> Tiles:
        return _TILES[self.dtype]

    def _residents(self) -> int:
        return max(1, 256 // self.threads)

    def _step(self) -> int:
        return STEP

    # -- places -------------------------------------------------------------------------------------------------------
    def _pitch(self, side: Side) -> int:
        return (self.step if side.deep else side.extent) + PADDING // side.planes[0].size

    def _panel(self, side: Side) -> int:
        return (side.extent if side.deep else self.step) * self._pitch(side)

    def place(self, side: Side, row: V, column: V, size: int) -> V:
        t = self.t
        return t.bin("mul", t.bin("add", t.bin("mul", row, i32(self._pitch(side))), column), i32(size))

    def _threads(self) -> None:
        super()._threads()
        t = self.t
        #: Of two warps that share tensor cores, not 0 in one.
        self.late = t.bin("and", self.number, i32(4))
        line, k = t.bin("lshr", self.lane, i32(2)), t.bin("and", self.lane, i32(3))
        #: Where a thread's elements of the panels begin, in parts: one of eight rows or columns, one of four elements
        #: of k.
        self.corners: list[list[V]] = []
        for side, first in zip((self.a, self.b), self.corner, strict=True):
            mine = t.bin("add", first, line)
            (plane,) = side.planes
            start = self.place(side, *((mine, k) if side.deep else (k, mine)), plane.size)
            self.corners.append([start])
            if plane.parts > 1:
                # Assemblers may not see that parts are neighbours: they would read both at once, and then move them.
                hidden = t.op(f'call i32 asm "", "=r,0"({start})', "i32")
                self.corners[-1].append(t.bin("xor", hidden, i32(plane.part)))

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        bases = self._bases(here)
        self._multiply_step(sums, bases, self._read(bases), None)

    def _read_first(self, here: V) -> None:
        first = self._read(self._bases(here))
        self.taken = [[[[self.t.cell("double") for _ in x] for x in xs] for xs in side] for side in first]
        self._hold(first)

    def _multiply_on(self, sums: Sums, here: V, following: V, copy: Callable[[], None]) -> None:
        get = lambda cell: self.t.get(cell, "double")
        first = [[[[get(c) for c in x] for x in xs] for xs in side] for side in self.taken]
        found = self._multiply_step(sums, self._bases(here), first, self._bases(following), copy)
        self._hold(found)

    def _make_meeting(self) -> None:
        t = self.t
        self.base = self._shared()
        self.meeting = t.bin("add", self.base, i32(self.stages * self.panels))
        self.parity = t.cell("i32")
        t.set(self.parity, i32(0))
        with t.if_(t.cmp("eq", self.tid, i32(0))):
            self._make_barrier(self.stages * self.panels, self.threads)
        t.line(BARRIER)

    def _tell(self) -> None:
        """Tell that the thread's part of the next panels is there, and that it has read the last ones."""
        # Of the copies that begin `stages - 2` steps before, this step's own and those between may be under way.
        self.t.line(f"call void @llvm.nvvm.cp.async.wait.group(i32 {self.stages - 3})")
        self._arrive(self.meeting)

    def _meet(self) -> None:
        """Wait until all threads have told."""
        parity = self.t.get(self.parity, "i32")
        self._wait(self.meeting, parity)
        self.t.set(self.parity, self.t.bin("xor", parity, i32(1)))

    def _hold(self, first: list[list[Fragment]]) -> None:
        for cells, values in zip(self.taken, first, strict=True):
            for xs, ys in zip(cells, values, strict=True):
                for x, y in zip(xs, ys, strict=True):
                    for cell, value in zip(x, y, strict=True):
                        self.t.set(cell, value)

    def _bases(self, here: V) -> list[list[V]]:
        """Addresses of a thread's first elements of both sides, in parts."""
        t = self.t
        return [
            [memory.at(t, memory.at(t, here, side.offsets[0]), corner) for corner in corners]
            for side, corners in zip((self.a, self.b), self.corners, strict=True)
        ]

    def _read(self, bases: list[list[V]]) -> list[list[Fragment]]:
        """The first sixteen rows of a step, and all columns of its first instructions."""
        rows = [self._fetch(self.a, bases[0], line, 0) for line in (0, 8)]
        return [rows, [self._fetch(self.b, bases[1], line, 0) for line in range(0, self.warp[1], 8)]]

    def _multiply_step(
        self, sums: Sums, bases: list[list[V]], first: list[list[Fragment]], following: list[list[V]] | None,
        copy: Callable[[], None] | None = None,
    ) -> list[list[Fragment]]:  # fmt: skip
        """Multiply a step whose first fragments are given; gives those of the following one.

        Fragments are read while those before them are multiplied.  Of two warps that share tensor cores, one begins
        copies when the other one multiplies.
        """
        t = self.t
        values = [[[t.get(c, "double") for c in cells] for cells in row] for row in sums]
        turns = [(bases, k, line) for k in range(0, self.step, DEPTH) for line in range(0, self.warp[0], 16)]
        if following is not None:
            turns.append((following, 0, 0))
        a, b = first
        count = self.step // DEPTH * self.warp[0] // 16
        for n, (_, _, line) in enumerate(turns[:count]):
            if copy is not None and n in (0, count // 2):
                turn = None if count < 2 else t.cmp("ne" if n else "eq", self.late, i32(0))
                with t.if_(turn):
                    copy()
            if copy is not None and self.loose and n == max(count // 2, count - 3):
                self._tell()
            if copy is not None and self.loose and n == count - 1:
                self._meet()
            coming = a
            if n + 1 < len(turns):
                place, deep, below = turns[n + 1]
                coming = [self._fetch(self.a, place[0], below + half, deep) for half in (0, 8)]
            for j in self._add_rows(values, line // 8, a, b):
                if n + 1 < len(turns) and turns[n + 1][2] == 0:
                    place, deep, _ = turns[n + 1]
                    b[j] = self._fetch(self.b, place[1], 8 * j, deep)
            a = coming
        for row, new in zip(sums, values, strict=True):
            for cells, xs in zip(row, new, strict=True):
                for cell, x in zip(cells, xs, strict=True):
                    t.set(cell, x)
        return [a, b]

    def _fetch(self, side: Side, bases: list[V], line: int, first: int) -> Fragment:
        """A thread's elements of eight rows or columns, at its elements of k from `first` on."""
        (plane,) = side.planes
        pitch = self._pitch(side)
        found = []
        for k in range(first, first + DEPTH, 4):
            offset = (line * pitch + k if side.deep else k * pitch + line) * plane.size
            found.append([self.t.load(memory.at(self.t, base, offset), "double", 8) for base in bases])
        return found
