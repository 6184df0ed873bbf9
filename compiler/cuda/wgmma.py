"""The schedule of products of 16 and 8 bits on Hopper, whose tensor cores take panels from shared memory; see gemm.py.

Four warps multiply 64 rows by all columns of a tile.  Panels lie in rows of 128 bytes whose pieces of 16 bytes are
exchanged as the hardware's swizzle does: along k in one piece, else in boxes of 64 rows or columns.  Those of 8 bits
must lie along k.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..llvm.text import V
from .memory import i32, i64
from .mma import DEPTH, NAMES, Mma
from .panels import Loader, Side
from .simt import BARRIER, Sums, fits
from .target import Target

#: Rows and columns of a tile; twice as many columns, where a block has them, ask less of shared memory.
ROWS, COLUMNS = 128, 128
#: Bytes of a row, which is a step of k or 64 elements, and of a box of 64 rows.
ROW, BOX = 128, 8192
#: Of a descriptor: the swizzle of 128 bytes, and 1024 bytes from eight rows to the next.
_SWIZZLE = 1 << 62 | 64 << 32


class Wgmma(Mma):
    """Generates the code of one kernel."""

    span = ROW
    alignment = 1024
    #: Two blocks share a processor: one computes while the other begins or ends.
    stages = 3
    blocks = 2

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if target.arch != "sm_90a" or not Mma.suits(kernel, target):
            return False
        made = Wgmma(kernel, target)
        return made.ahead and made.size == 2 and fits((ROWS, COLUMNS), made.block)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        if self.columns > COLUMNS:
            self.stages, self.blocks = 4, 1

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        columns = 2 * COLUMNS if fits((ROWS, 2 * COLUMNS), self.block) else COLUMNS
        return (ROWS, columns), (2, columns // 4)

    # -- places -------------------------------------------------------------------------------------------------------
    def _threads(self) -> None:
        t, tid = self.t, self.tid
        lane = t.bin("and", tid, i32(31))
        #: The number of the thread's four warps.
        self.group = t.bin("lshr", tid, i32(7))
        self.run = [1, 2]
        self.down = t.bin("add", t.bin("shl", t.bin("lshr", tid, i32(5)), i32(4)), t.bin("lshr", lane, i32(2)))
        self.across = t.bin("shl", t.bin("and", lane, i32(3)), i32(1))

    def place(self, side: Side, row: V, column: V, size: int = 2) -> V:
        if side.deep:
            return super().place(side, row, column)
        t = self.t
        box = t.bin("mul", t.bin("lshr", column, i32(6)), i32(BOX))
        inside = t.bin("and", column, i32(63))
        turned = t.bin("xor", t.bin("lshr", inside, i32(3)), t.bin("and", row, i32(7)))
        start = t.bin("add", t.bin("mul", row, i32(ROW)), t.bin("shl", t.bin("and", inside, i32(7)), i32(1)))
        return t.bin("add", t.bin("add", box, start), t.bin("shl", turned, i32(4)))

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _walk(self, sums: Sums, loaders: Sequence[Loader], depth: V) -> None:
        t = self.t
        # While one step's products run, the step before may still be read.
        early, step = self.stages - 2, self.depth
        self._declare_copies()
        t.declare("llvm.nvvm.fence.proxy.async.shared_cta", "void", [])
        for number in range(early):
            self._copy(loaders, depth, i64(number * step), i64(number))
        with t.for_(depth, step) as k:
            number = t.bin("lshr", k, i64(step.bit_length() - 1))
            t.line(f"call void @llvm.nvvm.cp.async.wait.group(i32 {early - 1})")
            t.line("call void @llvm.nvvm.fence.proxy.async.shared_cta()")
            t.line(BARRIER)
            self._copy(loaders, depth, t.bin("add", k, i64(early * step)), t.bin("add", number, i64(early)))
            self._multiply(sums, self.buffer(number), None)
        self._asm(sums, "wgmma.wait_group.sync.aligned 0;", [])

    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        self._add_products(sums, here, [(self.a.offsets[0], self.b.offsets[0])], waiting=1)

    def _add_products(
        self, sums: Sums, here: V, panels: Sequence[tuple[int, int]], waiting: int | None = None, fresh: bool = False,
        left: V | None = None, own: int | None = None,
    ) -> None:  # fmt: skip
        """Add products of pairs of panels, which lie at offsets from `here`; `fresh`: the sums begin with them.

        Those of rows may lie at offsets from `left` instead.

        Of all that was begun, this waits until no more than the `waiting` last ones are under way, if that is given.
        With `own` new sums begin in registers that only the assembler knows, from that one on.
        """
        t = self.t
        base = t.op(f"ptrtoint {here} to i64", "i64")
        rows = t.bin("mul", t.cast("zext", self.group, "i64"), i64(BOX))
        starts = (t.bin("add", base if left is None else t.op(f"ptrtoint {left} to i64", "i64"), rows), base)
        operands: list[V] = []
        lines: list[str] = []
        count, ty = 2 * len(sums[0]), "s32" if self.wide == "i32" else "f32"
        types = [ty, *(NAMES[self.held(side.values[0])] for side in (self.a, self.b))]
        kind = f"m64n{2 * count}k{DEPTH // self.size}.{'.'.join(types)}"
        for side, start in zip((self.a, self.b), starts, strict=True):
            address = t.bin("and", start, i64(0x3FFFF))
            leading = 1 if side.deep else BOX >> 4
            operands.append(t.bin("or", t.bin("lshr", address, i64(4)), i64(_SWIZZLE | leading << 16)))
        registers = ", ".join(f"${k}" if own is None else f"f{own + k}" for k in range(count))
        # Integers have no signs to change, and only elements of 16 bits can be transposed.
        signs = "" if self.wide == "i32" else ", 1, 1"
        if self.size == 2:
            signs += "".join(f", {int(not side.deep)}" for side in (self.a, self.b))
        parts = [(pair, part) for pair in panels for part in range(ROW // DEPTH)]
        for number, (pair, part) in enumerate(parts):
            names = [f"{letter}{number}" for letter in "ab"]
            for k, (name, side, offset) in enumerate(zip(names, (self.a, self.b), pair, strict=True)):
                step = (offset >> 4) + (DEPTH if side.deep else DEPTH // self.size * ROW) * part // 16
                lines.append(f"add.s64 {name}, ${2 * count + k}, {step};")
            lines.append(
                f"wgmma.mma_async.sync.aligned.{kind} {{{registers}}}, {names[0]}, {names[1]}, "
                f"{'q' if (fresh or own is not None) and not number else 'p'}{signs};"
            )
        waits = "" if waiting is None else f"wgmma.wait_group.sync.aligned {waiting};"
        declared = ", ".join(f"{letter}{number}" for number in range(len(parts)) for letter in "ab")
        text = (
            f"{{ .reg .pred p, q; .reg .b64 {declared}; setp.eq.u32 p, 0, 0; setp.ne.u32 q, 0, 0; "
            f"wgmma.fence.sync.aligned; {' '.join(lines)} "
            f"wgmma.commit_group.sync.aligned; {waits} }}"
        )
        self._asm(sums, text, operands)

    def _asm(self, sums: Sums, text: str, operands: Sequence[V]) -> None:
        """Instructions on all sums, which stay in their registers."""
        t = self.t
        blocks = range(len(sums[0]) // 2)
        order = [sums[row][2 * block + c][0] for block in blocks for row in range(2) for c in range(2)]
        held = self._sum_type(0)
        values = [t.get(cell, held) for cell in order]
        ty = "{" + ", ".join([held] * len(order)) + "}"
        constraints = ",".join(
            ["=r" if held == "i32" else "=f"] * len(order)
            + [str(k) for k in range(len(order))]
            + ["l"] * len(operands)
            + ["~{memory}"]
        )
        args = ", ".join(map(str, [*values, *operands]))
        found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', ty)
        for k, cell in enumerate(order):
            t.set(cell, t.op(f"extractvalue {found}, {k}", held))
