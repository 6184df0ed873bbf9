"""The schedule of products of f64 and complex128 that multiplies in tensor cores, a warp at a time; see gemm.py.

Panels lie as memory does.  A thread reads 8 bytes at a time, since an instruction takes a thread's elements of its rows
and of k in such an order of registers that no neighbours in memory are neighbours there.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.text import V
from . import memory
from .memory import i32
from .panels import Side
from .simt import Simt, Sums
from .target import Target

#: Elements of k in a step and in one instruction.
STEP, DEPTH = 16, 16
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES = {
    "f64": (((128, 128), (64, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16))),
    "c128": (((128, 64), (32, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16))),
}
#: Elements between rows of a panel: with them, four rows' elements lie in different banks.
PADDING = 4
#: A thread's elements of k, in parts.
Fragment = list[list[V]]


class Mma64(Simt):
    """Generates the code of one kernel."""

    natural = True
    padded = True

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Other GPUs have none of these instructions, or slow ones."""
        return target.sm in (80, 90, 100) and any(
            op.name == "dot" and op.result.type.dtype in _TILES for op in kernel.body.ops
        )

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        #: Rows and elements of k of an instruction; it has 8 columns.
        self.shape = (16, 16) if target.sm >= 90 else (8, 4)

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        for tile, warp in _TILES[self.dtype]:
            if tile[0] <= self.block[0] and tile[1] <= self.block[1]:
                self.warp = warp
                return tile, (warp[0] // 8, warp[1] // 4)
        raise NotImplementedError("a product's block must be 16 by 16 at least")

    def _residents(self) -> int:
        return max(1, 256 // self.threads)

    def _step(self) -> int:
        return STEP

    def _arrange(self) -> None:
        """Panels lie as memory does, whether they are copied or not."""

    # -- places -------------------------------------------------------------------------------------------------------
    def _pitch(self, side: Side) -> int:
        return (self.step if side.deep else side.extent) + PADDING

    def _panel(self, side: Side) -> int:
        return (side.extent if side.deep else self.step) * self._pitch(side)

    def place(self, side: Side, row: V, column: V, size: int) -> V:
        t = self.t
        return t.bin("mul", t.bin("add", t.bin("mul", row, i32(self._pitch(side))), column), i32(size))

    def _threads(self) -> None:
        t, tid = self.t, self.tid
        lane, number = t.bin("and", tid, i32(31)), t.bin("lshr", tid, i32(5))
        broad = self.columns // self.warp[1]
        down = t.bin("mul", t.bin("lshr", number, i32(broad.bit_length() - 1)), i32(self.warp[0]))
        across = t.bin("mul", t.bin("and", number, i32(broad - 1)), i32(self.warp[1]))
        line, k = t.bin("lshr", lane, i32(2)), t.bin("and", lane, i32(3))
        #: Where a thread's elements of the panels begin, in parts: one of eight rows or columns, one of four elements
        #: of k.
        self.corners: list[list[V]] = []
        for side, first in ((self.a, down), (self.b, across)):
            mine = t.bin("add", first, line)
            (plane,) = side.planes
            start = self.place(side, *((mine, k) if side.deep else (k, mine)), plane.size)
            self.corners.append([start])
            if plane.parts > 1:
                # Assemblers may not see that parts are neighbours: they would read both at once, and then move them.
                hidden = t.op(f'call i32 asm "", "=r,0"({start})', "i32")
                self.corners[-1].append(t.bin("xor", hidden, i32(plane.part)))
        self.run = [1, 2]
        self.down, self.across = t.bin("add", down, line), t.bin("add", across, self._times(k, 2))

    def _offset(self, index: int, axis: int) -> int:
        return index * 8 if axis == 0 else index // 2 * 8 + index % 2

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        values = [[[t.get(c, "double") for c in cells] for cells in row] for row in sums]
        bases = [
            [memory.at(t, memory.at(t, here, side.offsets[0]), corner) for corner in corners]
            for side, corners in zip((self.a, self.b), self.corners, strict=True)
        ]
        for k in range(0, self.step, DEPTH):
            b = [self._fetch(self.b, bases[1], line, k) for line in range(0, self.warp[1], 8)]
            for first in range(0, self.warp[0], 16):
                a = [self._fetch(self.a, bases[0], line, k) for line in (first, first + 8)]
                self._add_rows(values, first // 8, a, b)
        for row, new in zip(sums, values, strict=True):
            for cells, xs in zip(row, new, strict=True):
                for cell, x in zip(cells, xs, strict=True):
                    t.set(cell, x)

    def _fetch(self, side: Side, bases: list[V], line: int, first: int) -> Fragment:
        """A thread's elements of eight rows or columns, at its elements of k from `first` on."""
        (plane,) = side.planes
        pitch = self._pitch(side)
        found = []
        for k in range(first, first + DEPTH, 4):
            offset = (line * pitch + k if side.deep else k * pitch + line) * plane.size
            found.append([self.t.load(memory.at(self.t, base, offset), "double", 8) for base in bases])
        return found

    def _add_rows(self, values: list[list[list[V]]], first: int, a: list[Fragment], b: list[Fragment]) -> None:
        """Add products of sixteen rows."""
        rows = [[[x[n] for x in half] for half in a] for n in range(len(a[0][0]))]
        #: Parts of a, of b and of the sums.
        passes = [(rows[0], 0, 0)]
        if self.dtype in dtypes.COMPLEX:
            negated = [[self.t.fneg(x) for x in half] for half in rows[1]]
            passes = [(rows[0], 0, 0), (rows[0], 1, 1), (rows[1], 0, 1), (negated, 1, 0)]
        for own, part, total in passes:
            for j, columns in enumerate(b):
                places = [(first + half, 2 * j + c) for half in range(2) for c in range(2)]
                new = self._product(own, [x[part] for x in columns], [values[r][c][total] for r, c in places])
                for (r, c), x in zip(places, new, strict=True):
                    values[r][c][total] = x

    def _product(self, a: list[list[V]], b: list[V], sums: list[V]) -> list[V]:
        """Of sixteen rows and eight columns, in as many instructions as that takes."""
        rows, depth = self.shape
        sums = list(sums)
        for k in range(0, DEPTH // 4, depth // 4):
            for half in range(0, 2, rows // 8):
                halves = range(half, half + rows // 8)
                steps = range(k, k + depth // 4)
                own = slice(2 * half, 2 * half + rows // 4)
                sums[own] = self._instruction(
                    [a[h][i] for i in steps for h in halves], [b[i] for i in steps], sums[own]
                )
        return sums

    def _instruction(self, a: list[V], b: list[V], sums: list[V]) -> list[V]:
        t, (rows, depth) = self.t, self.shape
        counts = (len(sums), len(a), len(b), len(sums))
        names = [f"${k}" for k in range(sum(counts))]
        operands = []
        for count in counts:
            operands.append("{" + ", ".join(names[:count]) + "}")
            del names[:count]
        text = f"mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 {', '.join(operands)};"
        ty = "{" + ", ".join(["double"] * len(sums)) + "}"
        args = ", ".join(map(str, [*a, *b, *sums]))
        constraints = ",".join(["=d"] * len(sums) + ["d"] * (len(a) + len(b) + len(sums)))
        found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', ty)
        return [t.op(f"extractvalue {found}, {k}", "double") for k in range(len(sums))]
