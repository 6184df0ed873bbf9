"""How a finished tile of a product goes from registers to memory in plain stores, through the ops after the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import dtypes, ir
from ..llvm.convert import Register
from ..llvm.text import V
from ..slices import slice_of
from . import memory
from .elements import Where
from .layout import is_const
from .memory import i64, join

if TYPE_CHECKING:
    from .simt import Simt, Sums


class Results:
    """Stores the tile of a `gemm` that begins at `origin` in a program's block, of which `extents` positions are."""

    def __init__(self, gemm: Simt, origin: Sequence[V], extents: Sequence[V]) -> None:
        self.gemm, self.t, self.e = gemm, gemm.t, gemm.e
        self.origin, self.extents = origin, extents
        kernel = gemm.kernel
        self.stores = [op for op in kernel.body.ops if op.name == "store_view"]
        assert all(op.results or op in self.stores for op in kernel.body.ops), f"@{kernel.name} is more than a product"
        needed = slice_of([x for op in self.stores for x in op.operands], kernel.body, gemm.root.result)
        self.needed = [op for op in needed if op.result.type.extents]

    def store(self, sums: Sums) -> None:
        t, e, gemm = self.t, self.e, self.gemm
        e.excess = True
        with e.scope():
            rows, columns = (
                [
                    t.bin("add", t.bin("add", first, t.cast("zext", own, "i64")), i64(gemm._offset(i, axis)))
                    for i in range(count)
                ]
                for axis, (first, own, count) in enumerate(
                    ((self.origin[0], gemm.down, len(sums)), (self.origin[1], gemm.across, len(sums[0])))
                )
            )
            results: list[list[Register]] = []
            for row in sums:
                results.append([])
                for cells in row:
                    registers = [t.get(c, gemm._sum_type(i)) for i, c in enumerate(cells)]
                    results[-1].append(join([gemm._narrowed(x) for x in registers]))
            inside = [
                t.cmp("sle", t.bin("add", first, i64(size)), extent)
                for first, size, extent in zip(self.origin, (gemm.rows, gemm.columns), self.extents, strict=True)
            ]
            with t.if_else(t.bin("and", *inside)) as turn:
                with e.scope():
                    self._store_whole(rows, columns, results)
                next(turn)
                for i, row in enumerate(rows):
                    with t.if_(t.cmp("slt", row, self.extents[0])), e.scope():
                        for j, column in enumerate(columns):
                            with t.if_(t.cmp("slt", column, self.extents[1])), e.scope():
                                where = {gemm.m: row, gemm.n: column}
                                e.define(gemm.root.result, results[i][j], where)
                                e.run(self.needed, where)
                                for op in self.stores:
                                    self._store(op, [where], where)
        e.excess = False

    def _store_whole(self, rows: list[V], columns: list[V], results: list[list[Register]]) -> None:
        """Store a tile that is all inside, in accesses as wide as may be."""
        gemm = self.gemm
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                where = {gemm.m: row, gemm.n: column}
                self.e.define(gemm.root.result, results[i][j], where)
        for axis, (outer, lined) in enumerate(((columns, rows), (rows, columns))):
            mine = [op for op in self.stores if self._tall(op) == (axis == 0)]
            if not mine:
                continue
            dim = (gemm.m, gemm.n)[axis]
            for first in range(0, len(lined), gemm.run[axis]):
                group = lined[first : first + gemm.run[axis]]
                for other in outer:
                    places = [{gemm.m: x, gemm.n: other} if axis == 0 else {gemm.m: other, gemm.n: x} for x in group]
                    for where in places:
                        self.e.run(self.needed, where)
                    for op in mine:
                        near = gemm.facts.width(op, dim)
                        width = min(max(1, near), len(group))
                        for k in range(0, len(group), width):
                            # Neighbours have one address, and differences that are known.
                            anchor = {**places[0], dim: lined[0]} if near else places[k]
                            beyond = gemm._offset(first + k, axis) if near else 0
                            self._store(op, places[k : k + width], anchor, beyond)

    def _tall(self, op: ir.Op) -> bool:
        """Whether a store's neighbours are rows of one column."""
        extents, strides = op.operands[0].type.extents, op.operands[3:]
        return any(e == self.gemm.m and is_const(s, 1) for e, s in zip(extents, strides, strict=True))

    def _store(self, op: ir.Op, places: Sequence[Where], anchor: Where, beyond: int = 0) -> None:
        """Store neighbours, the first of which is `beyond` elements after `anchor`."""
        value, pointer = op.operands[:2]
        values = [self.e(value, where if value.type.extents else None) for where in places]
        dtype = pointer.type.dtype
        address = memory.at(self.t, self.e.address(op, anchor), beyond * dtypes.SIZE[dtype])
        self.e.store(values, address, dtype)
