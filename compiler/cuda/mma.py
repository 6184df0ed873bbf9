"""The schedule of products of f16 and bf16 that multiplies in tensor cores, a warp at a time; see gemm.py.

Panels hold 16-bit elements in rows along the direction in which memory is contiguous, in pieces of 16 bytes whose
places are exchanged from row to row, so that eight rows' pieces lie in different banks.  Operands that need no prologue
are copied there past the registers, several steps ahead.
"""

from __future__ import annotations

from .. import ir
from ..llvm.convert import to_memory
from ..llvm.text import V, vector
from . import memory
from .memory import i32
from .panels import Loader, Plane, Side
from .simt import Simt, Sums
from .target import Target

#: Elements of k in a step and in one instruction.
STEP, DEPTH = 32, 16
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES = (((128, 128), (64, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16)))
#: Bytes of a piece.
PIECE = 16
_WORDS = "{i32, i32, i32, i32}"
_SUMS = "{float, float, float, float}"


class MmaLoader(Loader):
    """Brings a side's panels to shared memory as 16-bit elements; what is past the end of k is zero."""

    gemm: Mma

    def _encoded(self, x: V, plane: Plane, inside: V | None) -> V:
        t = self.t
        stored = to_memory(t, x, self.gemm.dtype)
        assert isinstance(stored, V)
        bits = t.cast("bitcast", stored, "i16")
        return bits if inside is None else t.select(inside, bits, V("0", "i16"))


class Mma(Simt):
    """Generates the code of one kernel."""

    loader = MmaLoader
    widest = PIECE // 2
    #: Elements of k in a step.
    depth = STEP
    natural = True
    padded = True

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        return target.bf16 and any(
            op.name == "dot" and op.operands[0].type.dtype in ("f16", "bf16") for op in kernel.body.ops
        )

    # -- choices ------------------------------------------------------------------------------------------------------
    def _multiplied(self) -> str:
        return self.root.operands[0].type.dtype

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        for tile, self.warp in _TILES:
            if tile[0] <= self.block[0] and tile[1] <= self.block[1]:
                return tile, (self.warp[0] // 8, self.warp[1] // 4)
        raise NotImplementedError("a product's block must be 16 by 16 at least")

    def _step(self) -> int:
        return self.depth

    def _side(self, values: tuple[ir.Value, ...], dim: str, extent: int) -> Side:
        side = super()._side(values, dim, extent)
        side.planes = [Plane(values[0], 1, "float", "i16")]
        return side

    def _copies(self) -> bool:
        return all(self._plain(side) and side.width == PIECE // 2 for side in (self.a, self.b))

    def _arrange(self) -> None:
        """Panels lie as memory does, whether they are copied or not."""

    # -- places -------------------------------------------------------------------------------------------------------
    def _threads(self) -> None:
        t, tid = self.t, self.tid
        lane = t.bin("and", tid, i32(31))
        number = t.bin("lshr", tid, i32(5))
        broad = self.columns // self.warp[1]
        down = t.bin("mul", t.bin("lshr", number, i32(broad.bit_length() - 1)), i32(self.warp[0]))
        across = t.bin("mul", t.bin("and", number, i32(broad - 1)), i32(self.warp[1]))
        self.run = [1, 2]
        self.down = t.bin("add", down, t.bin("lshr", lane, i32(2)))
        self.across = t.bin("add", across, t.bin("shl", t.bin("and", lane, i32(3)), i32(1)))
        bit = lambda k: t.bin("and", t.bin("lshr", lane, i32(k)), i32(1))
        low = t.bin("and", lane, i32(7))
        #: Byte offsets in a panel of what a thread fetches for the warp's fragments, by tile and part of the step.
        self.fragments = [
            [[self._fragment(side, start, low, line, k, tile, part) for part in range(STEP // DEPTH)]
             for tile in range(extent // 16)]
            for side, start, line, k, extent in (
                (self.a, down, bit(3), bit(4), self.warp[0]), (self.b, across, bit(4), bit(3), self.warp[1]),
            )
        ]  # fmt: skip

    def _fragment(self, side: Side, start: V, low: V, line: V, k: V, tile: int, part: int) -> V:
        """Where a thread's row of a fragment begins: eight rows from `low` on, in the halves `line` and `k`."""
        t = self.t
        eight = lambda x: t.bin("shl", x, i32(3))
        if side.deep:
            row = t.bin("add", t.bin("add", start, i32(16 * tile)), t.bin("add", eight(line), low))
            return self.place(side, row, t.bin("add", eight(k), i32(DEPTH * part)))
        column = t.bin("add", t.bin("add", start, i32(16 * tile)), eight(line))
        return self.place(side, t.bin("add", t.bin("add", eight(k), low), i32(DEPTH * part)), column)

    def place(self, side: Side, row: V, column: V, size: int = 2) -> V:
        t = self.t
        length = (self.depth if side.deep else side.extent) * size
        pieces = length // PIECE
        number = t.bin("lshr", column, i32(3))
        # Rows that share 128 bytes lie in different banks as they are.
        sharing = max(1, 8 // pieces)
        turn = t.bin("and", t.bin("lshr", row, i32(sharing.bit_length() - 1)), i32(min(8, pieces) - 1))
        inside = t.bin("shl", t.bin("and", column, i32(7)), i32(1))
        start = t.bin("add", t.bin("mul", row, i32(length)), inside)
        return t.bin("add", start, t.bin("shl", t.bin("xor", number, turn), i32(4)))

    def _offset(self, index: int, axis: int) -> int:
        return index * 8 if axis == 0 else index // 2 * 8 + index % 2

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        values = [[t.get(cells[0], "float") for cells in row] for row in sums]
        for part in range(STEP // DEPTH):
            a = [self._fetch(self.a, here, tiles[part]) for tiles in self.fragments[0]]
            pairs = [self._fetch(self.b, here, tiles[part]) for tiles in self.fragments[1]]
            b = [half for words in pairs for half in (words[:2], words[2:])]
            for i, x in enumerate(a):
                for j, y in enumerate(b):
                    places = [(2 * i + high, 2 * j + c) for high in range(2) for c in range(2)]
                    new = self._product(x, y, [values[r][c] for r, c in places])
                    for (r, c), z in zip(places, new, strict=True):
                        values[r][c] = z
        for row, new in zip(sums, values, strict=True):
            for cells, x in zip(row, new, strict=True):
                t.set(cells[0], x)

    def _fetch(self, side: Side, here: V, offset: V) -> list[V]:
        """A warp's 16 by 16 elements of a panel, as an instruction takes them."""
        t = self.t
        trans = "" if side.deep else ".trans"
        at = memory.at(t, here, t.bin("add", offset, i32(side.offsets[0])))
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{trans}.b16.p3"
        found = t.call(name, _WORDS, [at])
        return [t.op(f"extractvalue {found}, {k}", "i32") for k in range(4)]

    def _product(self, a: list[V], b: list[V], sums: list[V]) -> list[V]:
        t = self.t
        words, name = [*a, *b], "llvm.nvvm.mma.m16n8k16.row.col.bf16"
        if self.dtype == "f16":
            words = [t.op(f"bitcast {w} to <2 x half>", vector("half", 2)) for w in words]
            name = "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
        found = t.call(name, _SUMS, [*words, *sums])
        return [t.op(f"extractvalue {found}, {k}", "float") for k in range(4)]
