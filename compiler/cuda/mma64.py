"""The schedule of products of f64 and complex128 that multiplies in tensor cores, a warp at a time; see gemm.py.

Panels lie as memory does.  A thread reads 16 bytes at a time: two neighbours, or one complex number.  So that it needs
no others, an instruction's elements of k are not neighbours but those that its threads have, alike in both operands;
and where memory lies along rows or columns, the same holds for these.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.text import V
from . import memory
from .memory import i32
from .panels import Side
from .simt import Simt, Sums
from .target import Target

#: Elements of k in a step, and of those that a thread reads a part of at once.
STEP, DEPTH = 16, 16
#: A thread's elements at its places in k, in parts.
Fragment = list[list[V]]
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES = {
    "f64": (((128, 128), (64, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16))),
    "c128": (((128, 64), (32, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16))),
}
#: Elements between rows of k in a panel: with them, four threads' rows lie in different banks.
PADDING = 2
#: Bytes that a thread reads at once.
PIECE = 16


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
        for tile, self.warp in _TILES[self.dtype]:
            if tile[0] <= self.block[0] and tile[1] <= self.block[1]:
                return tile, (self.warp[0] // 8, self.warp[1] // 4)
        raise NotImplementedError("a product's block must be 16 by 16 at least")

    def _residents(self) -> int:
        return max(1, 256 // self.threads)

    def _step(self) -> int:
        return STEP

    def _side(self, values: tuple[ir.Value, ...], dim: str, extent: int) -> Side:
        side = super()._side(values, dim, extent)
        side.pitch += PADDING
        return side

    def _arrange(self) -> None:
        """Panels lie as memory does, whether they are copied or not."""

    # -- places -------------------------------------------------------------------------------------------------------
    def _panel(self, side: Side) -> int:
        return side.extent * self.step if side.deep else super()._panel(side)

    def place(self, side: Side, row: V, column: V, size: int) -> V:
        """Byte offset in a panel of an element; rows are those of memory.

        Halves of 128 bytes change places in odd rows along k, so that four threads' pieces of two rows do not meet.
        """
        if not side.deep:
            return super().place(side, row, column, size)
        t = self.t
        start = t.bin("mul", row, i32(self.step * size))
        turn = t.bin("shl", t.bin("and", row, i32(1)), i32(6))
        return t.bin("add", start, t.bin("xor", t.bin("mul", column, i32(size)), turn))

    def _threads(self) -> None:
        t, tid = self.t, self.tid
        lane, number = t.bin("and", tid, i32(31)), t.bin("lshr", tid, i32(5))
        broad = self.columns // self.warp[1]
        down = t.bin("mul", t.bin("lshr", number, i32(broad.bit_length() - 1)), i32(self.warp[0]))
        across = t.bin("mul", t.bin("and", number, i32(broad - 1)), i32(self.warp[1]))
        line, depth = t.bin("lshr", lane, i32(2)), t.bin("and", lane, i32(3))
        size = dtypes.SIZE[self.dtype]
        #: Elements that a thread reads at once.
        self.near = PIECE // size
        #: Of each side, whether a thread reads neighbouring rows or columns, and where its elements of panels begin:
        #: of even and odd pieces of k.
        self.paired = [not side.deep and self.near > 1 for side in (self.a, self.b)]
        self.corners: list[list[V]] = []
        for side, first, paired in zip((self.a, self.b), (down, across), self.paired, strict=True):
            mine = t.bin("add", first, self._times(line, 2 if paired else 1))
            k = t.bin("mul", depth, i32(self.near))
            if side.deep:
                start = self.place(side, mine, k, size)
                turned = t.bin("xor", start, i32(64))
                self.corners.append([start, t.bin("sub", turned, i32(64))])
            else:
                self.corners.append([self.place(side, k, mine, size)] * 2)
        self.run = [2 if self.paired[0] else 1, 4 if self.paired[1] else 2]
        self.down = t.bin("add", down, self._times(line, self.run[0]))
        self.across = t.bin("add", across, self._times(depth, self.run[1]))

    def _offset(self, index: int, axis: int) -> int:
        run = self.run[axis]
        return index // run * 8 * (2 if self.paired[axis] else 1) + index % run

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        values = [[[t.get(c, "double") for c in cells] for cells in row] for row in sums]
        bases = [
            [memory.at(t, memory.at(t, here, side.offsets[0]), start) for start in corners]
            for side, corners in zip((self.a, self.b), self.corners, strict=True)
        ]
        for k in range(0, self.step, DEPTH):
            b = self._fetch(1, bases[1], k, range(self.warp[1] // 8))
            for first in range(0, self.warp[0] // 8, 2):
                self._add_rows(values, first, self._fetch(0, bases[0], k, range(first, first + 2)), b)
        for row, new in zip(sums, values, strict=True):
            for cells, xs in zip(row, new, strict=True):
                for cell, x in zip(cells, xs, strict=True):
                    t.set(cell, x)

    def _fetch(self, axis: int, bases: list[V], k: int, groups: range) -> list[Fragment]:
        """A thread's elements of groups of eight rows or columns, at its elements of k from `k` on."""
        t, side, near = self.t, (self.a, self.b)[axis], self.near
        (plane,) = side.planes
        found: list[Fragment] = [[[] for _ in range(DEPTH // 4)] for _ in groups]
        load = lambda base, offset: self._load(memory.at(t, base, offset), plane, near)
        for place in range(0, len(groups), 2 if self.paired[axis] else 1):
            line = 8 * groups[place]
            for i in range(0, DEPTH // 4, near if side.deep else 1):
                piece, more = divmod(i, near)
                if side.deep:
                    parts = load(bases[piece % 2], (line * self.step + k) * plane.size + 4 * PIECE * piece)
                    for n in range(near):
                        found[place][i + n] = parts[n * plane.parts : (n + 1) * plane.parts]
                    continue
                parts = load(bases[0], ((k + 4 * near * piece + more) * side.pitch + line) * plane.size)
                for n in range(near):
                    found[place + n][i] = parts[n * plane.parts : (n + 1) * plane.parts]
        return found

    def _add_rows(self, values: list[list[list[V]]], first: int, a: list[Fragment], b: list[Fragment]) -> None:
        """Add products of sixteen rows."""
        part = lambda fragment, n: [x[n] for x in fragment]
        passes = [([part(x, 0) for x in a], 0, 0)]
        if self.dtype in dtypes.COMPLEX:
            imaginary = [part(x, 1) for x in a]
            negated = [[self.t.fneg(x) for x in xs] for xs in imaginary]
            passes = [(passes[0][0], 0, 0), (passes[0][0], 1, 1), (negated, 1, 0), (imaginary, 0, 1)]
        for rows, which, total in passes:
            for j, columns in enumerate(b):
                places = [
                    (first + half, 4 * (j // 2) + 2 * c + j % 2 if self.paired[1] else 2 * j + c)
                    for half in range(2) for c in range(2)
                ]  # fmt: skip
                new = self._product(rows, part(columns, which), [values[r][c][total] for r, c in places])
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
                sums[own] = self._instruction([a[h][i] for i in steps for h in halves], [b[i] for i in steps], sums[own])
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
