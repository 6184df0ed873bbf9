"""Scans: positions' bits are gone through from the lowest one on, wherever they are.

After each bit, an element knows what its block of neighbours that agree in the higher bits gives up to it, and what it
gives as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from ... import dtypes, ops
from ...ir import Op
from ...llvm import math
from ...llvm.convert import convert
from ...llvm.text import V
from ..memory import select
from .exchange import partner
from .layout import Layout, log2
from .reduce import Join, State, region

if TYPE_CHECKING:
    from .codegen import Codegen, Tile


def scan(code: Codegen, op: Op) -> None:
    x, *carry = op.operands
    if carry or op.attrs.get("across"):
        raise NotImplementedError(f"kernel @{code.kernel.name}: a scan of blocks that goes on from something")
    dtype = x.type.dtype
    combine = ops.TABLE[op.attrs["kind"]].combine
    assert combine is not None
    wide = "f32" if dtype in dtypes.NARROW and combine in ("add", "multiply") else dtype

    def join(a: State, b: State) -> State:
        return [math.emit(code.t, combine, [a[0], b[0]], [wide, wide], wide, code.target)]

    given = code.works[op]
    tile = [convert(code.t, v, dtype, wide) for v in code.tile(x, given)]
    extent = int(op.result.type.extents[op.attrs["dim"]])
    (found,) = _Scan(code, [wide], given, op.attrs["dim"], bool(op.attrs.get("reverse")), join).run([tile], extent)
    code.define(op.result, [convert(code.t, v, wide, dtype) for v in found])


def scan_by(code: Codegen, op: Op) -> None:
    given = code.works[op]
    kinds = [v.type.dtype for v in op.operands]
    extent = int(op.results[0].type.extents[op.attrs["dim"]])
    walk = _Scan(code, kinds, given, op.attrs["dim"], op.attrs["reverse"], region(code, op))
    found = walk.run([code.tile(v, given) for v in op.operands], extent)
    for v, tile in zip(op.results, found, strict=True):
        code.define(v, tile)


@dataclass(eq=False)
class _Before:
    """What comes before an element's block: a state, which is there where `valid` (None: everywhere)."""

    state: State
    valid: V | None


class _Scan:
    def __init__(self, code: Codegen, kinds: list[str], given: Layout, dim: int, reverse: bool, join: Join) -> None:
        self.code, self.kinds, self.given, self.dim, self.reverse, self.join = code, kinds, given, dim, reverse, join
        #: By what they were made of, which registers share.
        self.made: dict[tuple[str, int, int], object] = {}
        self.alive: list[object] = []

    def run(self, tiles: list[Tile], extent: int) -> list[Tile]:
        count = self.given.registers
        sums: list[State] = [[x[r] for x in tiles] for r in range(count)]
        low = self._low(log2(extent))
        totals = self._in_order(sums, low)
        before: list[_Before | None] = [None] * count
        for b in range(len(low), log2(extent)):
            place = (self.dim, b)
            if place in self.given.regs:
                self._registers(self.given.regs.index(place), totals, before)
            else:
                self._threads(self.given.threads.index(place), totals, before)
        whole = [self._with(p, s) for p, s in zip(before, sums, strict=True)]
        return [[s[k] for s in whole] for k in range(len(tiles))]

    def _low(self, bits: int) -> list[int]:
        """The bits of a register's number that stand for the lowest bits of positions."""
        found: list[int] = []
        while len(found) < bits and (self.dim, len(found)) in self.given.regs:
            found.append(self.given.regs.index((self.dim, len(found))))
        return found

    def _in_order(self, sums: list[State], low: list[int]) -> list[State]:
        """Scan runs of neighbours that a thread holds; what each run gives."""
        totals = list(sums)
        inner = [sum(1 << k for i, k in enumerate(low) if n >> i & 1) for n in range(1 << len(low))]
        if self.reverse:
            inner.reverse()
        mask = sum(1 << k for k in low)
        for r in range(len(sums)):
            if r & mask:
                continue
            run = [r | n for n in inner]
            for a, b in pairwise(run):
                sums[b] = self.join(sums[a], sums[b])
            for a in run:
                totals[a] = sums[run[-1]]
        return totals

    def _once(self, what: str, a: object, b: object, make: Callable[[], object]) -> object:
        key = what, id(a), id(b)
        if key not in self.made:
            self.made[key] = make()
            self.alive += [a, b]
        return self.made[key]

    def _joined(self, a: State, b: State) -> State:
        return self._once("join", a, b, lambda: self.join(a, b))  # type: ignore[return-value]

    def _with(self, before: _Before | None, state: State) -> State:
        """A state with what comes before it."""
        if before is None:
            return state
        joined = self._joined(before.state, state)
        if before.valid is None:
            return joined
        t, valid = self.code.t, before.valid
        return [select(t, valid, x, y) for x, y in zip(joined, state, strict=True)]

    def _registers(self, k: int, totals: list[State], before: list[_Before | None]) -> None:
        for r in range(len(totals)):
            if r >> k & 1:
                continue
            first, second = (r | 1 << k, r) if self.reverse else (r, r | 1 << k)
            a, b = totals[first], totals[second]
            before[second] = self._preceded(a, before[second])
            totals[first] = totals[second] = self._joined(a, b)

    def _preceded(self, total: State, before: _Before | None) -> _Before:
        """What comes before an element after a block that comes before all else."""
        if before is None:
            return self._once("only", total, None, lambda: _Before(total, None))  # type: ignore[return-value]
        return self._once("preceded", total, before, lambda: self._after(total, before, None))  # type: ignore[return-value]

    def _after(self, total: State, before: _Before, late: V | None) -> _Before:
        t = self.code.t
        joined = self.join(total, before.state)
        if before.valid is not None:
            joined = [select(t, before.valid, x, y) for x, y in zip(joined, total, strict=True)]
        if late is None:
            return _Before(joined, None)
        state = [select(t, late, x, y) for x, y in zip(joined, before.state, strict=True)]
        return _Before(state, None if before.valid is None else t.bin("or", before.valid, late))

    def _threads(self, k: int, totals: list[State], before: list[_Before | None]) -> None:
        """A bit of the thread's number: exchange what blocks give."""
        code, t = self.code, self.code.t
        late = code.bit(k)
        if self.reverse:
            late = t.bin("xor", late, V("true", "i1"))
        distinct = list({id(s): s for s in totals}.values())
        columns = [partner(code, [s[n] for s in distinct], kind, 1 << k) for n, kind in enumerate(self.kinds)]
        others = {id(s): [c[i] for c in columns] for i, s in enumerate(distinct)}
        joined = {}
        for s in distinct:
            pairs = list(zip(s, others[id(s)], strict=True))
            joined[id(s)] = self.join(
                [select(t, late, o, v) for v, o in pairs], [select(t, late, v, o) for v, o in pairs]
            )
        for r, s in enumerate(totals):
            own, other = before[r], others[id(s)]
            if own is None:
                made = self._once("late", s, k, partial(_Before, other, late))
            else:
                made = self._once("after", other, own, partial(self._after, other, own, late))
            before[r] = made  # type: ignore[assignment]
            totals[r] = joined[id(s)]
        self.alive += [*distinct, *others.values()]
