"""Copies of rows of 16-bit elements that begin anywhere to rows that begin at multiples of words, in words.

A warp's threads load neighbouring words of a row.  Where a word that is stored lies between two that are loaded, its
second half comes from the next thread.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .. import dtypes, ir
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .elements import Code, Elements
from .layout import Facts, view
from .memory import i32, i64
from .target import Target

#: Threads and warps of a block; lanes of a warp, bytes of a word, and elements that the warp's words have.
THREADS, WARPS, LANES, WORD, PIECE = 128, 4, 32, 4, 64
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
        fits = (rows == 1 and columns % (WARPS * PIECE) == 0) or (rows % WARPS == 0 and columns % PIECE == 0)
        return bool(
            rows and columns and fits and not load.attrs.get("bounded") and pointer.name in facts.aligned
            and facts.width(load, extents[1]) == 1 and facts.width(store, extents[1]) > 1
        )  # fmt: skip

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel = kernel
        self.t = Code(target)
        self.e = Elements(self.t, kernel, target)
        self.load, self.store = (op for op in kernel.body.ops if op.name not in _SCALARS)
        self.row, self.column = map(str, self.load.result.type.extents)
        rows, columns = (kernel.dims[d].block or 0 for d in (self.row, self.column))
        #: Rows of a warp, which are so many apart, and columns.
        self.apart = WARPS if rows > 1 else 0
        self.count = max(1, rows // WARPS)
        self.span = columns if rows > 1 else columns // WARPS

    def generate(self) -> Generated:
        t, e = self.t, self.e
        waits = e.target.sm >= 90
        for what in ("launch_dependents", "wait") if waits else ():
            t.line(f'call void asm sideeffect "griddepcontrol.{what};", "~{{memory}}"() convergent nounwind')
        tid = self._special("tid.x")
        self.lane, warp = t.bin("and", tid, i32(LANES - 1)), t.bin("lshr", tid, i32(LANES.bit_length() - 1))
        self._place(self._special("ctaid.x"))
        first = (warp, i32(0)) if self.apart else (i32(0), t.bin("mul", warp, i32(self.span)))
        rows, columns = (t.bin("sub", self._left(d), x) for d, x in zip((self.row, self.column), first, strict=True))
        self.inside = [t.cmp("sgt", rows, i32(k * self.apart)) for k in range(self.count)]
        source, to = (self._rows(op, *first) for op in (self.load, self.store))
        # A row's last word may hold the element behind.
        with t.if_else(t.cmp("sgt", columns, i32(self.span))) as turn:
            self._copy(source, to)
            next(turn)
            self._copy_elements(source, to, columns)
        t.line("ret void")
        params = ", ".join(f"{ty} {ref}" for ty, ref in e.signature)
        text = "\n".join((
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{THREADS}" {{', "entry:",
            *t.allocas, *t.lines, "}", *t.declarations.values(), "",
        ))  # fmt: skip
        return Generated(text, THREADS, 0, waits=waits)

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

    def _rows(self, op: ir.Op, row: V, column: V) -> list[V]:
        """Where the warp's columns of each of its rows begin."""
        t, e = self.t, self.e
        where = {self.row: t.cast("zext", row, "i64"), self.column: t.cast("zext", column, "i64")}
        found = [e.address(op, where)]
        _, _, strides, _ = view(op)
        step = t.bin("mul", e.integer(strides[0]), i64(2 * self.apart))
        for _ in range(1, self.count):
            found.append(memory.at(t, found[-1], step))
        return found

    def _copy(self, source: list[V], to: list[V]) -> None:
        """Copy rows that have all of the warp's columns, and one more."""
        t = self.t
        along = t.cast("zext", t.bin("mul", self.lane, i32(WORD)), "i64")
        heads = t.cmp("eq", self.lane, i32(0))
        following = t.bin("and", t.bin("add", self.lane, i32(1)), i32(LANES - 1))
        words, shifts = [], []
        for start, inside in zip(source, self.inside, strict=True):
            odd = t.bin("and", t.op(f"ptrtoint {start} to i64", "i64"), i64(2))
            start = memory.at(t, start, t.bin("sub", i64(0), odd))
            own = memory.at(t, start, along)
            loaded = [self._word(own, k, inside) for k in range(self.span // PIECE)]
            needed = t.bin("and", t.bin("and", inside, heads), t.cmp("ne", odd, i64(0)))
            words.append([*loaded, self._word(start, len(loaded), needed)])
            shifts.append(t.bin("shl", t.cast("trunc", odd, "i32"), i32(3)))
        for start, row, shift, inside in zip(to, words, shifts, self.inside, strict=True):
            own = memory.at(t, start, along)
            for k, (low, after) in enumerate(pairwise(row)):
                # The last thread's next word is the first one's of the following words.
                sent = [i32(-1), t.select(heads, after, low), following, i32(LANES - 1)]
                high = t.call("llvm.nvvm.shfl.sync.idx.i32", "i32", sent, "convergent nounwind")
                value = t.call("llvm.fshr.i32", "i32", [high, low, shift])
                memory.store(t, [value], own, "i32", inside, k * LANES * WORD)

    def _word(self, start: V, number: int, inside: V) -> V:
        (word,) = memory.load(self.t, start, "i32", 1, inside, number * LANES * WORD)
        assert isinstance(word, V)
        return word

    def _copy_elements(self, source: list[V], to: list[V], columns: V) -> None:
        """Copy what there is of rows one by one."""
        t = self.t
        for start, target, inside in zip(source, to, self.inside, strict=True):
            for first in range(0, self.span, LANES):
                place = t.bin("add", self.lane, i32(first))
                mask = t.bin("and", inside, t.cmp("slt", place, columns))
                beyond = t.cast("zext", t.bin("shl", place, i32(1)), "i64")
                (x,) = memory.load(t, memory.at(t, start, beyond), "i16", 1, mask)
                memory.store(t, [x], memory.at(t, target, beyond), "i16", mask)
