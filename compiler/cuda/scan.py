"""Scans: along a thread's registers, then along the threads of a warp by shuffles, then along the warps through shared
memory, then from block of positions to block and from trip to trip by a carry."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from .. import dtypes, ops
from ..ir import Op
from ..llvm.convert import Register, constant, convert
from .memory import at, i32, load, select, store
from .reduction import shuffle, slot, state_types

if TYPE_CHECKING:
    from .codegen import Codegen


class Scan:
    """One `scan`.  A *row* is the registers of one position in the other dims."""

    def __init__(self, code: Codegen, op: Op) -> None:
        self.code = code
        self.op = op
        row = ops.TABLE[op.attrs["kind"]]
        assert row.combine is not None and row.identity is not None
        self.combiner = row.combine
        (self.dtype,) = state_types(op)
        identity = row.identity(self.dtype)
        if self.combiner == "add" and self.dtype not in dtypes.INTEGER:
            # It leaves a zero's sign alone.
            identity = complex(-0.0, -0.0) if self.dtype in dtypes.COMPLEX else -0.0
        self.identity = constant(code.t, identity, self.dtype)
        self.extents = op.result.type.extents
        self.dim = str(self.extents[op.attrs["dim"]])
        self.split = code.layout.splits[self.dim]
        self.others = tuple([e for e in self.extents if e != self.dim])

    def join(self, a: Register, b: Register) -> Register:
        return self.code.combine(self.combiner, [a, b], [self.dtype, self.dtype], self.dtype)

    def open(self) -> None:
        """Before trips along the dim: set the carries up."""
        code = self.code
        code.carries[self.op] = []
        for row in code.points(self.others):
            cells = code.variable(self.dtype)
            code.write(cells, self.first(row))
            code.carries[self.op].append(cells)

    def first(self, row: dict[str, int]) -> Register:
        """What the scan begins with."""
        if len(self.op.operands) == 1:
            return self.identity
        carry = self.op.operands[1]
        return convert(self.code.t, self.code.get(carry, row), carry.type.dtype, self.dtype)

    def emit(self) -> None:
        code, t, split = self.code, self.code.t, self.split
        rows = list(code.points(self.others))
        # By row and block of positions: the thread's own scan.
        local: list[list[list[Register]]] = []
        for row in rows:
            local.append([])
            for high in range(split.repeat):
                xs = []
                for low in range(split.vector):
                    point = {**row, self.dim: high * split.vector + low}
                    x = convert(t, code.get(self.op.operands[0], point), self.op.result.type.dtype, self.dtype)
                    mask = code.inside(self.dim, point[self.dim])
                    xs.append(x if mask is None else select(t, mask, x, self.identity))
                local[-1].append(list(accumulate(xs, self.join)))
        totals = [[block[-1] for block in blocks] for blocks in local]
        if split.threads > 1:
            before, totals = self._across(totals)
            local = [
                [[self.join(p, x) for x in block] for p, block in zip(ps, blocks, strict=True)]
                for ps, blocks in zip(before, local, strict=True)
            ]
        carries = code.carries.get(self.op)
        for k, row in enumerate(rows):
            carry = code.read(carries[k], self.dtype) if carries else self.first(row)
            for high, block in enumerate(local[k]):
                for low, x in enumerate(block):
                    if high or carries or len(self.op.operands) == 2:
                        x = self.join(carry, x)
                    point = {**row, self.dim: high * split.vector + low}
                    value = self.op.result
                    code.define(code.key(value, point), convert(t, x, self.dtype, value.type.dtype))
                carry = self.join(carry, totals[k][high])
            if carries:
                code.write(carries[k], carry)

    def _across(self, totals: list[list[Register]]) -> tuple[list[list[Register]], list[list[Register]]]:
        """Of the threads' totals: what comes before this thread, and the sums over all threads."""
        code, t, split = self.code, self.code.t, self.split
        bits = list(split.bits)
        low, high = [b for b in bits if b < 5], [b for b in bits if b >= 5]
        number = t.bin("and", t.bin("lshr", code.tid, i32(split.shift)), i32((1 << len(low)) - 1))
        before: list[list[Register]] = []
        sums: list[list[Register]] = []
        for row in totals:
            before.append([])
            sums.append([])
            for total in row:
                through = total
                for k, bit in enumerate(low):
                    other = shuffle(t, "up", through, i32(1 << bit))
                    through = select(t, t.cmp("uge", number, i32(1 << k)), self.join(other, through), through)
                if low:
                    shifted = shuffle(t, "up", through, i32(1 << low[0]))
                    before[-1].append(select(t, t.cmp("eq", number, i32(0)), self.identity, shifted))
                    last = t.bin("or", t.bin("and", code.tid, i32(31)), i32(sum(1 << b for b in low)))
                    sums[-1].append(shuffle(t, "idx", through, last))
                else:
                    before[-1].append(self.identity)
                    sums[-1].append(total)
        if high:
            self._across_warps(before, sums, high)
        return before, sums

    def _across_warps(self, before: list[list[Register]], sums: list[list[Register]], high: list[int]) -> None:
        code, t = self.code, self.code.t
        size = dtypes.SIZE[self.dtype]
        area = size * code.layout.threads
        count = sum(map(len, sums))
        base = code.exchange(area * count)
        places = iter(range(count))
        where = [[at(t, base, area * next(places)) for _ in row] for row in sums]
        for ptrs, row in zip(where, sums, strict=True):
            for ptr, total in zip(ptrs, row, strict=True):
                store(t, [total], slot(code, ptr, code.tid, self.dtype), self.dtype)
        code.barrier()
        mask = sum(1 << b for b in high)
        origin = t.bin("and", code.tid, i32(~mask))
        mine = t.bin("and", code.tid, i32(mask))
        for k, ptrs in enumerate(where):
            for m, ptr in enumerate(ptrs):
                start = slot(code, ptr, origin, self.dtype)
                total: Register | None = None
                earlier = self.identity
                # The bits of one dim are neighbours: warps that come earlier have smaller numbers.
                for h in range(1 << len(high)):
                    there = h << high[0]
                    (x,) = load(t, at(t, start, there * size), self.dtype, 1)
                    if total is not None:
                        is_mine = t.cmp("eq", mine, i32(there))
                        earlier = select(t, is_mine, total, earlier)
                    total = x if total is None else self.join(total, x)
                assert total is not None
                before[k][m] = self.join(earlier, before[k][m])
                sums[k][m] = total


def emit(code: Codegen, op: Op) -> None:
    Scan(code, op).emit()


def open_(code: Codegen, op: Op) -> None:
    Scan(code, op).open()
