"""Scans: along a thread's registers, then along the threads of a warp by shuffles, then along the warps through shared
memory, then from block of positions to block and from trip to trip by a carry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .. import dtypes, ops
from ..ir import Op
from ..llvm.convert import Register, constant, convert
from ..llvm.text import V
from . import lookback
from .memory import at, i32, load, select, store
from .reduction import WARP, scan_lanes, shuffle, slot, state_types

if TYPE_CHECKING:
    from .codegen import Codegen


#: Elements by the dim's register.
Block = dict[int, Register]


class Scan:
    """One `scan`.  A *row* is the registers of one position in the other dims."""

    def __init__(self, code: Codegen, op: Op) -> None:
        self.code = code
        self.op = op
        row = ops.TABLE[op.attrs["kind"]]
        assert row.combine is not None and row.identity is not None
        self.combiner = row.combine
        (self.dtype,) = state_types(op)
        self.identity = constant(code.t, row.identity(self.dtype), self.dtype)
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
        code = self.code
        if code.goes_on is self.op:
            self._go_on()
            return
        rows = list(code.points(self.others))
        # By row and block of positions: the thread's own scan.
        local = [[self._own(row, high) for high in range(self.split.repeat)] for row in rows]
        totals = [[list(block.values())[-1] for block in blocks] for blocks in local]
        #: What comes before a block's elements, but for earlier blocks.
        before: Sequence[Sequence[Register | None]] = [[None] * len(blocks) for blocks in local]
        if self.split.threads > 1:
            before, totals = self._across(totals)
        carries = code.carries.get(self.op)
        for k, row in enumerate(rows):
            carry: Register | None = code.read(carries[k], self.dtype) if carries else None
            if len(self.op.operands) == 2 and not carries:
                carry = self.first(row)
            for block, near, total in zip(local[k], before[k], totals[k], strict=True):
                self._define(row, block, self._both(carry, near))
                carry = self._both(carry, total)
            if carries and carry is not None:
                code.write(carries[k], carry)

    def _both(self, a: Register | None, b: Register | None) -> Register | None:
        """What comes before, of which a part may be nothing."""
        if a is None or b is None:
            return b if a is None else a
        return self.join(a, b)

    def _define(self, row: dict[str, int], block: Block, before: Register | None) -> None:
        code, t, value = self.code, self.code.t, self.op.result
        for register, x in block.items():
            y = x if before is None else self.join(before, x)
            code.define(code.key(value, {**row, self.dim: register}), convert(t, y, self.dtype, value.type.dtype))

    def _own(self, row: dict[str, int], high: int) -> Block:
        """The scan of a thread's neighbours."""
        code, t, vector = self.code, self.code.t, self.split.vector
        xs = []
        for register in range(high * vector, (high + 1) * vector):
            point = {**row, self.dim: register}
            x = convert(t, code.get(self.op.operands[0], point), self.op.result.type.dtype, self.dtype)
            mask = code.mask((self.dim,), point)
            xs.append(x if mask is None else select(t, mask, x, self.identity))
        return dict(enumerate(accumulate(xs, self.join), high * vector))

    def _go_on(self) -> None:
        """Warps scan their lanes; one of them scans the warps' totals and joins what earlier programs found."""
        code, t, split = self.code, self.code.t, self.split
        look = lookback.LookBack(code, self.op, self.dtype, self.join, self.identity)
        lane, warp = t.bin("and", code.tid, i32(31)), t.bin("lshr", code.tid, i32(WARP))
        warps, size = split.threads >> WARP, dtypes.SIZE[self.dtype]
        totals = code.exchange(split.repeat * warps * size)
        blocks: list[Block] = []
        own = [self._own({}, high) for high in range(split.repeat)]
        # Others wait for the block's total: it is known before its elements are scanned.
        found = [block[(high + 1) * split.vector - 1] for high, block in enumerate(own)]
        while len(found) > 1:
            found = [self.join(a, b) for a, b in zip(found[::2], found[1::2], strict=True)]
        area = code.exchange(warps * size)
        (total,) = found
        for k in range(WARP):
            total = self.join(total, shuffle(t, "bfly", total, i32(1 << k)))
        store(t, [total], slot(code, area, warp, self.dtype), self.dtype, t.cmp("eq", lane, i32(0)))
        code.barrier()
        look.announce(area, warps)
        for high, block in enumerate(own):
            earlier, through = scan_lanes(t, block[(high + 1) * split.vector - 1], lane, self.join, self.identity)
            blocks.append({k: self.join(earlier, x) for k, x in block.items()})
            place = slot(code, at(t, totals, high * warps * size), warp, self.dtype)
            store(t, [through], place, self.dtype, t.cmp("eq", lane, i32(31)))
        code.barrier()
        look.put_before(totals, split.repeat * warps, self.first({}))
        code.barrier()
        for high, block in enumerate(blocks):
            place = slot(code, at(t, totals, high * warps * size), warp, self.dtype)
            self._define({}, block, load(t, place, self.dtype, 1)[0])

    def _across(self, totals: list[list[Register]]) -> tuple[Sequence[list[Register]], list[list[Register]]]:
        """Of the threads' totals: what comes before this thread, and the sums over all threads."""
        code, t, split = self.code, self.code.t, self.split
        bits = list(split.bits)
        low, high = [b for b in bits if b < WARP], [b for b in bits if b >= WARP]
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
        """Put what earlier warps hold before, and make the sums those over all warps."""
        code, t = self.code, self.code.t
        lane, warp = t.bin("and", code.tid, i32(31)), t.bin("lshr", code.tid, i32(WARP))
        # Where the lanes of a warp agree, one lane speaks for them, and each lane reads another warp's total.
        agree = self.split.shift == 0
        size = dtypes.SIZE[self.dtype]
        each = size * (code.layout.threads >> WARP if agree else code.layout.threads)
        count = sum(map(len, sums))
        base = code.exchange(each * count)
        places = iter(range(count))
        areas = [[at(t, base, each * next(places)) for _ in row] for row in sums]
        for row, totals in zip(areas, sums, strict=True):
            for area, total in zip(row, totals, strict=True):
                if agree:
                    store(t, [total], slot(code, area, warp, self.dtype), self.dtype, t.cmp("eq", lane, i32(0)))
                else:
                    store(t, [total], slot(code, area, code.tid, self.dtype), self.dtype)
        code.barrier()
        join = self._by_lanes if agree else self._by_threads
        for k, row in enumerate(areas):
            for m, area in enumerate(row):
                earlier, sums[k][m] = join(area, lane, high)
                before[k][m] = self.join(earlier, before[k][m])

    def _by_lanes(self, area: V, lane: V, high: list[int]) -> tuple[Register, Register]:
        """What the warps before this one hold, and all warps: a scan by the lanes of each warp."""
        code, t = self.code, self.code.t
        mask = (1 << len(high)) - 1
        mine = t.bin("and", t.bin("lshr", code.tid, i32(high[0])), i32(mask))
        origin = t.bin("and", t.bin("lshr", code.tid, i32(WARP)), i32(~(mask << (high[0] - WARP))))
        number = t.bin("and", lane, i32(mask))
        there = t.bin("or", origin, t.bin("shl", number, i32(high[0] - WARP)))
        through = load(t, slot(code, area, there, self.dtype), self.dtype, 1)[0]
        for k in range(len(high)):
            other = shuffle(t, "up", through, i32(1 << k))
            through = select(t, t.cmp("uge", number, i32(1 << k)), self.join(other, through), through)
        previous = shuffle(t, "idx", through, t.bin("sub", mine, i32(1)))
        earlier = select(t, t.cmp("eq", mine, i32(0)), self.identity, previous)
        return earlier, shuffle(t, "idx", through, i32(mask))

    def _by_threads(self, area: V, lane: V, high: list[int]) -> tuple[Register, Register]:
        """What the warps before this one hold for a thread, and all warps."""
        code, t = self.code, self.code.t
        mask = sum(1 << b for b in high)
        mine = t.bin("and", code.tid, i32(mask))
        start = slot(code, area, t.bin("and", code.tid, i32(~mask)), self.dtype)
        total: Register | None = None
        earlier = self.identity
        # The bits of one dim are neighbours: warps that come earlier have smaller numbers.
        for h in range(1 << len(high)):
            there = h << high[0]
            (x,) = load(t, at(t, start, there * dtypes.SIZE[self.dtype]), self.dtype, 1)
            if total is not None:
                earlier = select(t, t.cmp("eq", mine, i32(there)), total, earlier)
            total = x if total is None else self.join(total, x)
        assert total is not None
        return earlier, total


def emit(code: Codegen, op: Op) -> None:
    Scan(code, op).emit()


def open_(code: Codegen, op: Op) -> None:
    Scan(code, op).open()
