"""The schedule of products of f64 that multiplies in tensor cores, a warp at a time; see gemm.py."""

from __future__ import annotations

from .. import ir
from ..llvm.text import V
from . import memory
from .elements import scaled
from .memory import i32
from .panels import Loader, Plane, Side
from .simt import Simt, Sums
from .target import Target

#: Elements of k in an instruction, and in a step.
DEPTH, STEP = 8, 16
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES = (((128, 64), (32, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16)))
#: Elements between rows of a panel, so that four rows' elements lie in different banks.
PADDING = 4


class Padded(Loader):
    """Brings a side's panels to shared memory; what is past the end of k is zero."""

    def _encoded(self, x: V, plane: Plane, inside: V | None) -> V:
        return x if inside is None else self.t.select(inside, x, self.t.like(0, x))


class Mma64(Simt):
    """Generates the code of one kernel."""

    loader = Padded
    blocks = 2

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Earlier GPUs have smaller instructions, or slow ones."""
        return target.sm in (90, 100) and any(
            op.name == "dot" and op.result.type.dtype == "f64" for op in kernel.body.ops
        )

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        for tile, self.warp in _TILES:
            if tile[0] <= self.block[0] and tile[1] <= self.block[1]:
                return tile, (self.warp[0] // 8, self.warp[1] // 4)
        raise NotImplementedError("a product's block must be 16 by 16 at least")

    def _residents(self) -> int:
        return self.blocks

    def _step(self) -> int:
        return STEP

    def _side(self, values: tuple[ir.Value, ...], dim: str, extent: int) -> Side:
        side = super()._side(values, dim, extent)
        side.pitch += PADDING
        return side

    def _threads(self) -> None:
        super()._threads()
        t, tid = self.t, self.tid
        lane, number = t.bin("and", tid, i32(31)), t.bin("lshr", tid, i32(5))
        broad = self.columns // self.warp[1]
        down = t.bin("mul", t.bin("lshr", number, i32(broad.bit_length() - 1)), i32(self.warp[0]))
        across = t.bin("mul", t.bin("and", number, i32(broad - 1)), i32(self.warp[1]))
        line, depth = t.bin("lshr", lane, i32(2)), t.bin("and", lane, i32(3))
        #: Where a thread's elements of the panels begin: one of eight rows or columns, one of four elements of k.
        self.corners = [
            t.bin("add", t.bin("add", first, line), t.bin("mul", depth, i32(side.pitch)))
            for side, first in ((self.a, down), (self.b, across))
        ]
        self.run = [1, 2]
        self.down = t.bin("add", down, line)
        self.across = t.bin("add", across, t.bin("shl", depth, i32(1)))

    def _offset(self, index: int, axis: int) -> int:
        return index * 8 if axis == 0 else index // 2 * 8 + index % 2

    def _take(self, sums: Sums, here: V, left: V) -> None:
        self._multiply(sums, here, None)

    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        values = [[t.get(cells[0], "double") for cells in row] for row in sums]
        bases = [
            scaled(t, memory.at(t, here, side.offsets[0]), start, 8)
            for side, start in zip((self.a, self.b), self.corners, strict=True)
        ]
        for k in range(0, STEP, DEPTH):
            # Of sixteen rows, in the order of the instruction's operands; of eight columns.
            a = [
                [self._fetch(self.a, bases[0], line + 8 * half, k + 4 * part) for part in range(2) for half in range(2)]
                for line in range(0, self.warp[0], 16)
            ]
            b = [
                [self._fetch(self.b, bases[1], line, k + 4 * part) for part in range(2)]
                for line in range(0, self.warp[1], 8)
            ]
            for i, x in enumerate(a):
                for j, y in enumerate(b):
                    places = [(2 * i + half, 2 * j + c) for half in range(2) for c in range(2)]
                    new = self._product(x, y, [values[r][c] for r, c in places])
                    for (r, c), z in zip(places, new, strict=True):
                        values[r][c] = z
        for row, new in zip(sums, values, strict=True):
            for cells, x in zip(row, new, strict=True):
                t.set(cells[0], x)

    def _fetch(self, side: Side, base: V, line: int, k: int) -> V:
        return self.t.load(memory.at(self.t, base, (k * side.pitch + line) * 8), "double", 8)

    def _product(self, a: list[V], b: list[V], sums: list[V]) -> list[V]:
        t = self.t
        registers = lambda first, count: "{" + ", ".join(f"${first + k}" for k in range(count)) + "}"
        text = (
            f"mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {registers(0, 4)}, {registers(4, 4)}, "
            f"{registers(8, 2)}, {registers(10, 4)};"
        )
        ty = "{" + ", ".join(["double"] * 4) + "}"
        args = ", ".join(map(str, [*a, *b, *sums]))
        constraints = ",".join(["=d"] * 4 + ["d"] * 10)
        found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', ty)
        return [t.op(f"extractvalue {found}, {k}", "double") for k in range(4)]
