"""Reductions: a thread's registers, then the lanes of a warp by shuffles, then the warps through shared memory.

Every thread gets the result.  The order of all operations is fixed by the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING

from ... import dtypes, ops
from ...ir import Op
from ...llvm import math
from ...llvm.convert import Register, convert
from ...llvm.text import V
from .. import memory
from ..memory import at, i32, parts, select
from ..reduction import shuffle
from .layout import LANES, Layout, Piece

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: What is reduced together: one register of each operand.
State = list[Register]
Join = Callable[[State, State], State]
#: Partial results that a thread keeps of a row, so that they need not wait for each other.
CHAINS = 4


def reduce(code: Codegen, op: Op) -> None:
    given = code.works.get(op, code.scalars)
    x = op.operands[0]
    dtype = x.type.dtype
    row = ops.TABLE[op.attrs["kind"]]
    assert row.combine is not None
    combine = row.combine
    wide = "f32" if dtype in dtypes.NARROW and combine in ("add", "multiply") else dtype
    tile = [convert(code.t, v, dtype, wide) for v in code.tile(x, given)]

    def join_(a: State, b: State) -> State:
        return [math.emit(code.t, combine, [a[0], b[0]], [wide, wide], wide, code.target)]

    (found,) = across(code, [tile], [wide], given, op.attrs["dims"], join_, bool(op.attrs.get("own")))
    if wide != dtype:
        found = [math.round_to(code.t, v, dtype) for reg in found for v in parts(reg)]
    code.define(op.result, found)


def beyond(code: Codegen, op: Op) -> None:
    """Whether for some thread of the warp some of its elements are False."""
    t = code.t
    small = [v for reg in code.tile(op.operands[0]) for v in parts(reg)]
    while len(small) > 1:
        small = [t.bin("and", a, b) for a, b in zip(small[::2], small[1::2], strict=True)]
    large = t.bin("xor", small[0], V("true", "i1"))
    code.define(op.result, [t.call("llvm.nvvm.vote.any.sync", "i1", [i32(-1), large], "convergent nounwind")])


def joined(code: Codegen, op: Op) -> None:
    """The sums of what threads have each of a part of, where otherwise they would hold the same."""
    t, given = code.t, code.works[op]
    found = [v for reg in code.tile(op.operands[0], given) for v in parts(reg)]
    for k, bit in enumerate(given.lanes):
        if bit is None:
            others = [v for x in found for v in parts(shuffle(t, "bfly", x, i32(1 << k)))]
            found = [t.bin("fadd", v, w) for v, w in zip(found, others, strict=True)]
    code.define(op.result, [*found])


def argreduce(code: Codegen, op: Op) -> None:
    given = code.works.get(op, code.scalars)
    dtype = op.operands[0].type.dtype
    kinds = [v.type.dtype for v in op.operands]
    largest = op.attrs["kind"] == "argmax"

    def join_(a: State, b: State) -> State:
        wins = _wins(code, a, b, dtype, largest)
        return [select(code.t, wins, x, y) for x, y in zip(a, b, strict=True)]

    tiles = [code.tile(v, given) for v in op.operands]
    found = across(code, tiles, kinds, given, op.attrs["dims"], join_)
    code.define(op.result, found[1])


def _wins(code: Codegen, a: State, b: State, dtype: str, largest: bool) -> V:
    """Whether the first of two wins: NaN, then the extreme value, then the lower index."""
    t = code.t
    (x,), (i,), (y,), (j,) = parts(a[0]), parts(a[1]), parts(b[0]), parts(b[1])
    if dtype in dtypes.FLOAT:
        better = t.cmp("ogt" if largest else "olt", x, y)
        same = t.cmp("oeq", x, y)
        mine, other = t.cmp("uno", x, x), t.cmp("uno", y, y)
        nan = V("true", "i1")
        better = t.bin("or", better, t.bin("and", mine, t.bin("xor", other, nan)))
        same = t.bin("or", same, t.bin("and", mine, other))
    else:
        sign = "s" if dtype in dtypes.SIGNED else "u"
        better, same = t.cmp(f"{sign}gt" if largest else f"{sign}lt", x, y), t.cmp("eq", x, y)
    return t.bin("or", better, t.bin("and", same, t.cmp("slt", i, j)))


def reduce_by(code: Codegen, op: Op) -> None:
    given = code.works.get(op, code.scalars)
    tiles = [code.tile(v, given) for v in op.operands]
    kinds = [v.type.dtype for v in op.operands]
    found = across(code, tiles, kinds, given, op.attrs["dims"], region(code, op))
    for v, tile in zip(op.results, found, strict=True):
        code.define(v, tile)


def region(code: Codegen, op: Op) -> Join:
    """The function of two states that an op's region is."""
    (body,) = op.regions

    def join_(a: State, b: State) -> State:
        for v, reg in zip(body.args, (*a, *b), strict=True):
            code.depth[v] = code.level
            code.define(v, [reg])
        for inner in body.ops[:-1]:
            code.op(inner)
        return [code.scalar(v) for v in body.ops[-1].operands]

    return join_


def across(
    code: Codegen,
    tiles: Sequence[Tile],
    kinds: Sequence[str],
    given: Layout,
    dims: Sequence[int],
    join_: Join,
    own: bool = False,
) -> list[Tile]:
    """Tiles without some of their dims: states joined along these; of a thread's `own` elements only, if so."""
    states: dict[int, State] = {r: [x[r] for x in tiles] for r in range(given.registers)}
    along = [i for i, b in enumerate(given.regs) if b[0] in dims]
    kept = [i for i in range(len(given.regs)) if i not in along]
    rows: list[State] = []
    for choice in product((0, 1), repeat=len(kept)):
        origin = sum(1 << i for i, c in zip(reversed(kept), choice) if c)
        row = [states[origin | sum(1 << i for k, i in enumerate(along) if n >> k & 1)] for n in range(1 << len(along))]
        rows.append(_row(row, join_))
    if own:
        return [[s[k] for s in rows] for k in range(len(tiles))]
    for k, b in enumerate(given.lanes):
        if b is not None and b[0] in dims:
            rows = [join_(s, [shuffle(code.t, "bfly", v, i32(1 << k)) for v in s]) for s in rows]
    high = [k for k, b in enumerate(given.warps) if b is not None and b[0] in dims]
    if high:
        rows = _warps(code, rows, kinds, given, dims, high, join_)
    return [[s[k] for s in rows] for k in range(len(tiles))]


def _row(states: list[State], join_: Join) -> State:
    """States joined to one, by a few chains."""
    chains = states[:CHAINS]
    for k, s in enumerate(states[CHAINS:]):
        chains[k % CHAINS] = join_(chains[k % CHAINS], s)
    while len(chains) > 1:
        odd = chains[len(chains) & ~1 :]
        chains = [join_(a, b) for a, b in zip(chains[::2], chains[1::2])] + odd
    return chains[0]


def _warps(
    code: Codegen,
    rows: list[State],
    kinds: Sequence[str],
    given: Layout,
    dims: Sequence[int],
    high: Sequence[int],
    join_: Join,
) -> list[State]:
    """Each warp leaves its rows in shared memory, and reads those of all warps that it is joined with."""
    t = code.t
    # Lanes that hold rows of their own, and a number for each; warps that differ in `high` only are neighbours.
    lanes = [i for i, b in enumerate(given.lanes) if b is not None and b[0] not in dims]
    same = [i for i in range(LANES) if i not in lanes]
    others = [i for i in range(len(given.warps)) if i not in high]
    warps = 1 << len(high)
    spots = 1 << len(lanes) + len(others)
    lane = code.spread(_collected([*lanes, *(LANES + i for i in others)], 0))
    warp = code.spread(_collected([LANES + i for i in high], 0))
    sizes = [dtypes.SIZE[d] for d in kinds]
    # Of each operand: [row][spot][warp].
    areas, total = [], 0
    for size in sizes:
        areas.append(total)
        total += -(-len(rows) * spots * warps * size // 16) * 16
    base = code.exchange(total)
    speaks = _first_of(code, same)
    for size, kind, area, k in zip(sizes, kinds, areas, range(len(kinds)), strict=True):
        spot = t.bin("add", t.bin("mul", lane, i32(warps)), warp)
        mine = at(t, at(t, base, area), t.cast("zext", t.bin("mul", spot, i32(size)), "i64"))
        for n, s in enumerate(rows):
            memory.store(t, [s[k]], mine, kind, speaks, n * spots * warps * size)
    code.barrier()
    found: list[list[list[Register]]] = [[] for _ in rows]
    for size, kind, area in zip(sizes, kinds, areas, strict=True):
        there = at(t, at(t, base, area), t.cast("zext", t.bin("mul", lane, i32(warps * size)), "i64"))
        width = min(warps, max(1, 16 // size))
        for n in range(len(rows)):
            values: list[Register] = []
            for w in range(0, warps, width):
                values += memory.load(t, at(t, there, (n * spots * warps + w) * size), kind, width)
            found[n].append(values)
    code.exchange_end()
    return [_tree([list(s) for s in zip(*columns, strict=True)], join_) for columns in found]


def _tree(states: list[State], join_: Join) -> State:
    while len(states) > 1:
        states = [join_(a, b) for a, b in zip(states[::2], states[1::2], strict=True)]
    return states[0]


def _collected(bits: Sequence[int], place: int) -> tuple[Piece, ...]:
    """The pieces that make a number of some bits of the thread's number."""
    return tuple([Piece(b, 1, place + k) for k, b in enumerate(bits)])


def _first_of(code: Codegen, bits: Sequence[int]) -> V | None:
    """Whether some bits of the lane's number are 0; of no bits, None."""
    mask = sum(1 << b for b in bits)
    if not mask:
        return None
    t = code.t
    return code.memo(("first", mask), 0, lambda: t.cmp("eq", t.bin("and", code.thread, i32(mask)), i32(0)))
