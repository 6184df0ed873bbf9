"""The schedule of products of 16 and 8 bits that multiplies in tensor cores, a warp at a time; see gemm.py.

Panels hold elements in rows along the direction in which memory is contiguous (along k, if they have 8 bits), in pieces
of 16 bytes whose places are exchanged from row to row, so that eight rows' pieces lie in different banks.  Operands
that need no prologue are copied there past the registers, several steps ahead.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.convert import register_type, to_memory
from ..llvm.text import V
from . import memory
from .memory import i32
from .panels import Loader, Plane, Side
from .simt import Sums, Tiles
from .target import Target
from .warps import Warps

#: Bytes of k in a step and in one instruction.
STEP, DEPTH = 64, 32
#: Instructions' names of element types.
NAMES = {"f16": "f16", "bf16": "bf16", "f8e4m3": "e4m3", "f8e5m2": "e5m2", "i8": "s8", "u8": "u8", "f32": "tf32"}
#: (least rows and columns of a tile, rows and columns of a warp), best first.
_TILES = (((128, 128), (64, 32)), ((64, 64), (32, 32)), ((32, 32), (16, 16)), ((16, 16), (16, 16)))
#: Bytes of a piece.
PIECE = 16
_WORDS = "{i32, i32, i32, i32}"


class MmaLoader(Loader):
    """Brings a side's panels to shared memory; what is past the end of k is zero."""

    gemm: Mma

    def _encoded(self, x: V, plane: Plane, inside: V | None) -> V:
        t = self.t
        stored = to_memory(t, x, self.gemm.held(plane.value))
        assert isinstance(stored, V)
        bits = t.cast("bitcast", stored, plane.stored)
        return bits if inside is None else t.select(inside, bits, V("0", plane.stored))


class Mma(Warps):
    """Generates the code of one kernel."""

    loader = MmaLoader
    #: Bytes that a load takes at most, as they are multiplied, and of k in a step.
    piece = PIECE
    span = STEP

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        roots = [op for op in kernel.body.ops if op.name == "dot"]
        if not any(_multiplies(target, op.operands[0].type.dtype, op.result.type.dtype) for op in roots):
            return False
        made = Mma(kernel, target)
        # Only elements of 16 bits are transposed on the way.
        return made.size == 2 or (made.a.deep and made.b.deep)

    # -- choices ------------------------------------------------------------------------------------------------------
    def _multiplied(self) -> str:
        return self.root.operands[0].type.dtype

    def held(self, value: ir.Value) -> str:
        return value.type.dtype if self.size == 1 else self.dtype

    def _accumulated(self) -> str:
        return "i32" if self.dtype in dtypes.INTEGER else "f32"

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtypes.SIZE[self.dtype]

    @property
    def depth(self) -> int:
        """Elements of k in a step."""
        return self.span // self.size

    def _tiles(self) -> Tiles:
        return _TILES

    def _step(self) -> int:
        return self.depth

    def _side(self, values: tuple[ir.Value, ...], dim: str, extent: int) -> Side:
        side = super()._side(values, dim, extent)
        side.planes = [Plane(values[0], 1, register_type(self.held(values[0])), f"i{8 * self.size}")]
        return side

    def _access(self, side: Side) -> None:
        self.widest = self.piece // self.size
        super()._access(side)

    def _copies(self) -> bool:
        each = PIECE // self.size
        for side in (self.a, self.b):
            op = side.values[0].op
            if op is None or not self._plain(side):
                return False
            if self.facts.width(op, self.k if side.deep else side.dim) != each:
                return False
        # Copies stop at the end, wherever that is.
        self.a.width = self.b.width = each
        return True

    # -- places -------------------------------------------------------------------------------------------------------
    def _threads(self) -> None:
        super()._threads()
        t, lane = self.t, self.lane
        down, across = self.corner
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
        depth = DEPTH // self.size * part
        if side.deep:
            row = t.bin("add", t.bin("add", start, i32(16 * tile)), t.bin("add", eight(line), low))
            return self.place(side, row, t.bin("add", self._times(k, PIECE // self.size), i32(depth)), self.size)
        column = t.bin("add", t.bin("add", start, i32(16 * tile)), eight(line))
        return self.place(side, t.bin("add", t.bin("add", eight(k), low), i32(depth)), column)

    def place(self, side: Side, row: V, column: V, size: int = 2) -> V:
        t = self.t
        length = self.span if side.deep else side.extent * size
        each = PIECE // size
        pieces = length // PIECE
        number = t.bin("lshr", column, i32(each.bit_length() - 1))
        # Rows that share 128 bytes lie in different banks as they are.
        sharing = max(1, 8 // pieces)
        turn = t.bin("and", t.bin("lshr", row, i32(sharing.bit_length() - 1)), i32(min(8, pieces) - 1))
        inside = self._times(t.bin("and", column, i32(each - 1)), size)
        start = t.bin("add", t.bin("mul", row, i32(length)), inside)
        return t.bin("add", start, t.bin("shl", t.bin("xor", number, turn), i32(4)))

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        values = [[t.get(cells[0], self._sum_type(0)) for cells in row] for row in sums]
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
        t, ty = self.t, self._sum_type(0)
        letter, wide = ("r", "s32") if ty == "i32" else ("f", "f32")
        types = (wide, *(NAMES[self.held(side.values[0])] for side in (self.a, self.b)), wide)
        registers = lambda first, count: "{" + ", ".join(f"${first + k}" for k in range(count)) + "}"
        text = (
            f"mma.sync.aligned.m16n8k{DEPTH // self.size}.row.col.{'.'.join(types)} {registers(0, 4)}, "
            f"{registers(4, 4)}, {registers(8, 2)}, {registers(10, 4)};"
        )
        whole = "{" + ", ".join([ty] * 4) + "}"
        args = ", ".join(map(str, [*a, *b, *sums]))
        constraints = ",".join([f"={letter}"] * 4 + ["r"] * 6 + [letter] * 4)
        found = t.op(f'call {whole} asm "{text}", "{constraints}"({args}) convergent nounwind', whole)
        return [t.op(f"extractvalue {found}, {k}", ty) for k in range(4)]


def _multiplies(target: Target, dtype: str, result: str) -> bool:
    """Whether a target's tensor cores multiply elements of a dtype."""
    if dtype in ("i8", "u8"):
        return target.bf16 and result == "i32"
    if dtype in dtypes.FLOAT8:
        return target.float8 and result == "f32"
    return target.bf16 and dtype in ("f16", "bf16")
