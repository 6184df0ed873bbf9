"""Copies of rows of 16-bit elements that begin anywhere to rows that begin at multiples of words, in words.

A word of 32 bits that is stored may lie between two that are loaded, of which it has a half each.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes, ir
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .elements import Code, Elements
from .layout import Facts, view
from .memory import i32, i64
from .target import Target

#: Threads and warps of a block; elements of a row that a warp copies at once.
THREADS, WARPS, PIECE = 128, 4, 64
_SCALARS = frozenset(("const", "program_id", "dim_start", "add", "multiply"))


class Shifted:
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Whether a kernel copies a tile of rows, and does nothing else."""
        accesses = [op for op in kernel.body.ops if op.name not in _SCALARS]
        if [op.name for op in accesses] != ["load_view", "store_view"] or len(kernel.dims) != 2:
            return False
        load, store = accesses
        facts, (pointer, _, _, extents) = Facts(kernel), view(load)
        if store.operands[0] is not load.result or dtypes.SIZE[pointer.type.dtype] != 2 or len(extents) != 2:
            return False
        # The load's rows begin anywhere but the first one.
        rows, columns = (kernel.dims[str(e)].block or 0 for e in extents)
        # Where a block has several rows, wide stores of single elements' loads are faster.
        whole = rows == 1 and columns and columns % (WARPS * PIECE) == 0
        return bool(
            whole and not load.attrs.get("bounded") and pointer.name in facts.aligned
            and facts.width(load, extents[1]) == 1 and facts.width(store, extents[1]) > 1
        )  # fmt: skip

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel = kernel
        self.t = Code(target)
        self.e = Elements(self.t, kernel, target)
        self.load, self.store = (op for op in kernel.body.ops if op.name not in _SCALARS)
        self.row, self.column = map(str, self.load.result.type.extents)

    def generate(self) -> Generated:
        t, e, kernel = self.t, self.e, self.kernel
        waits = e.target.sm >= 90
        for what in ("launch_dependents", "wait") if waits else ():
            t.line(f'call void asm sideeffect "griddepcontrol.{what};", "~{{memory}}"() convergent nounwind')
        tid = self._special("tid.x")
        self.lane, warp = t.bin("and", tid, i32(31)), t.bin("lshr", tid, i32(5))
        self._place(self._special("ctaid.x"))
        rows, columns = (self._left(d) for d in (self.row, self.column))
        sizes = [kernel.dims[d].block or 0 for d in (self.row, self.column)]
        units = [
            self._piece(number, warp, sizes[1] // PIECE) for number in range(sizes[0] * sizes[1] // PIECE // WARPS)
        ]
        # The words of a row's end may reach beyond the array.
        whole = lambda column: t.cmp("sgt", columns, t.bin("add", column, i32(PIECE + 1)))
        inside = lambda row: t.cmp("slt", row, rows)
        found = [self._fetch(row, column, t.bin("and", inside(row), whole(column))) for row, column in units]
        for word, place, mask in found:
            memory.store(t, [word], place, "i32", mask)
        with t.if_(t.cmp("sle", columns, i32(sizes[1] + 1))):
            for row, column in units:
                cut = t.bin("xor", whole(column), V("true", "i1"))
                self._single(row, column, t.bin("and", inside(row), cut), columns)
        t.line("ret void")
        params = ", ".join(f"{ty} {ref}" for ty, ref in e.signature)
        text = "\n".join((
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{THREADS}" {{', "entry:",
            *t.allocas, *t.lines, "}", *t.declarations.values(), "",
        ))  # fmt: skip
        return Generated(text, THREADS, 0, waits=waits)

    def _piece(self, number: int, warp: V, across: int) -> tuple[V, V]:
        """The row and the first column of one of the warp's pieces, of so many in a row."""
        t = self.t
        place = t.bin("add", warp, i32(number * WARPS))
        column = t.bin("mul", t.bin("and", place, i32(across - 1)), i32(PIECE))
        return t.bin("lshr", place, i32(across.bit_length() - 1)), column

    def _special(self, name: str) -> V:
        return self.t.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [], "nounwind memory(none)")

    def _place(self, linear: V) -> None:
        """Find the program's place on each grid axis, the last one fastest."""
        t, e, kernel = self.t, self.e, self.kernel
        places: list[V] = []
        for axis in reversed(kernel.grid):
            size = e.integer(axis.size)
            size = t.bin("udiv", t.bin("add", size, i64(axis.block - 1)), i64(axis.block))
            count = t.cast("trunc", size, "i32")
            places.append(t.cast("zext", t.bin("urem", linear, count), "i64"))
            linear = t.bin("udiv", linear, count)
        places.reverse()
        dims: dict[str, Any] = kernel.dims
        self.starts = {d: t.bin("mul", places[dim.axis], i64(dim.block)) for d, dim in dims.items()}
        e.place(places, self.starts)

    def _left(self, dim: str) -> V:
        """Positions from the tile's first one to the end."""
        t = self.t
        left = t.bin("sub", self.e.integer(self.kernel.dims[dim].size), self.starts[dim])
        return t.cast("trunc", t.call("llvm.smin.i64", "i64", [left, i64(1 << 30)]), "i32")

    def _at(self, op: ir.Op, row: V, column: V) -> V:
        wide = (self.t.cast("zext", x, "i64") for x in (row, column))
        return self.e.address(op, dict(zip((self.row, self.column), wide, strict=True)))

    def _fetch(self, row: V, column: V, inside: V) -> tuple[V, V, V]:
        """Load a word's two elements; gives it and where it goes, if its piece is inside."""
        t = self.t
        first = t.bin("add", t.bin("shl", self.lane, i32(1)), column)
        source = self._at(self.load, row, first)
        odd = t.bin("and", t.bin("lshr", t.op(f"ptrtoint {source} to i64", "i64"), i64(1)), i64(1))
        source = memory.at(t, source, t.bin("mul", odd, i64(-2)))
        both = t.bin("and", inside, t.cmp("ne", odd, i64(0)))
        (low,) = memory.load(t, source, "i32", 1, inside)
        (high,) = memory.load(t, source, "i32", 1, both, 4)
        assert isinstance(low, V) and isinstance(high, V)
        shift = t.bin("shl", t.cast("trunc", odd, "i32"), i32(4))
        return t.call("llvm.fshr.i32", "i32", [high, low, shift]), self._at(self.store, row, first), inside

    def _single(self, row: V, column: V, inside: V, columns: V) -> None:
        """Copy the elements of a piece one by one."""
        t = self.t
        for half in range(2):
            place = t.bin("add", self.lane, t.bin("add", column, i32(32 * half)))
            mask = t.bin("and", inside, t.cmp("slt", place, columns))
            (x,) = memory.load(t, self._at(self.load, row, place), "i16", 1, mask)
            memory.store(t, [x], self._at(self.store, row, place), "i16", mask)
