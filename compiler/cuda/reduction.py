"""Reductions: a thread's registers, then the threads of a warp by shuffles, then the warps through shared memory.

Every thread gets the result.  The order of all operations is fixed by the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .. import dtypes, ops
from ..ir import Op
from ..llvm.convert import Register, constant, convert
from ..llvm.lanes import Lanes, branch
from ..llvm.text import Text, V
from . import layout, runs
from .memory import at, i32, i64, join, load, parts, select, store

if TYPE_CHECKING:
    from .codegen import Codegen

LAST = {"i32": 2**31 - 1, "i64": 2**63 - 1}
FULL = -1
#: Bits of a lane's number in its warp.
WARP = 5
#: Bytes of shared memory that one exchange takes if it can.
EXCHANGE = 8 << 10
#: Accumulators of a thread, along a dim, where there is not one for each element.
CHAINS = 4
State = list[Register]


class Reduction:
    """One `reduce` or `argreduce`.

    Its state is the accumulator and, for an argreduce, the winner's index.
    """

    def __init__(self, code: Codegen, op: Op) -> None:
        self.code = code
        self.op = op
        row = ops.TABLE[op.attrs["kind"]]
        assert row.combine is not None and row.identity is not None
        self.dtypes, self.combiner = state_types(op), row.combine
        #: The dim in which an argreduce finds a position, if that is so: a thread finds its own winner first.
        self.along = str(op.operands[0].type.extents[op.attrs["dims"][0]]) if self._finds_position() else None
        if self.along is not None and layout.bucket(code.kernel, self.along) is not None:
            self.dtypes[1] = "i32"
        self.identity = [row.identity(self.dtypes[0]), *(LAST[d] for d in self.dtypes[1:])]
        self.extents = op.operands[0].type.extents
        self.reduced = [str(self.extents[d]) for d in op.attrs["dims"]]
        self.kept = op.result.type.extents
        #: By the registers of the operand: variables that survive trips, or this strip's values.
        self.cells: dict[tuple[int, ...], list[list[V]]] | None = None
        self.values: dict[tuple[int, ...], State] = {}

    def _finds_position(self) -> bool:
        return self.op.name == "argreduce" and layout.finds_position(self.op)

    def result(self, state: State) -> Register:
        """What all elements together give."""
        found = convert(self.code.t, state[-1], self.dtypes[-1], self.op.result.type.dtype)
        if self.along is not None:
            for scalar in layout.beyond(self.op.operands[1], self.along) or ():
                found = self.code.t.bin("add", parts(found)[0], self.code.integer(scalar))
        return found

    def neutral(self) -> State:
        return [constant(self.code.t, x, d) for x, d in zip(self.identity, self.dtypes, strict=True)]

    def join(self, a: State, b: State) -> State:
        """The state of a's elements and b's together."""
        if self.op.name == "reduce":
            d = self.dtypes[0]
            return [self.code.combine(self.combiner, [a[0], b[0]], [d, d], d)]
        better = self._better(a, b)
        return [select(self.code.t, better, y, x) for x, y in zip(a, b, strict=True)]

    def join_lanes(self, state: State, distances: Sequence[int]) -> State:
        """The state of the threads of a warp whose numbers differ in some bits; all of them get it."""
        t = self.code.t

        def other(x: Register, distance: int) -> Register:
            return shuffle(t, "bfly", x, i32(distance))

        if self.along is None or len(distances) < 2:
            for n in distances:
                state = self.join(state, [other(x, n) for x in state])
            return state
        # The value, then the first of the places where it is.
        best, (place,) = state[0], parts(state[1])
        for n in distances:
            best = self._extreme(best, other(best, n))
        level = self._compare("equal", state[0], best)
        if self.dtypes[0] in dtypes.FLOAT:
            level = t.bin("or", level, self._compare("isnan", state[0]))
        place = t.select(level, place, V(str(LAST[self.dtypes[1]]), place.ty))
        for n in distances:
            place = t.call(f"llvm.smin.{place.ty}", place.ty, [place, parts(other(place, n))[0]])
        return [best, place]

    def _better(self, a: State, b: State) -> V:
        """Where b beats a: a NaN beats numbers, then the extreme value, then the lower index."""
        t, dtype, compare = self.code.t, self.dtypes[0], self._compare

        def invert(x: V) -> V:
            return t.bin("xor", x, V("true", "i1"))

        beyond = compare("greater" if self.op.attrs["kind"] == "argmax" else "less", b[0], a[0])
        level = compare("equal", a[0], b[0])
        if dtype in dtypes.FLOAT or dtype in dtypes.COMPLEX:
            nan_a, nan_b = compare("isnan", a[0]), compare("isnan", b[0])
            # Where a part is NaN a complex comparison may still say something.
            beyond = t.bin("or", t.bin("and", nan_b, invert(nan_a)), t.bin("and", beyond, invert(nan_a)))
            level = t.bin("or", level, t.bin("and", nan_a, nan_b))
        ia, ib = parts(a[1])[0], parts(b[1])[0]
        return t.bin("or", beyond, t.bin("and", level, t.cmp("slt", ib, ia)))

    # -- in this order ------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Before trips: set the accumulators up."""
        code = self.code
        self.cells = {}
        for point in code.points(self.extents):
            key = tuple(point.values()) if self.along is None else self._kept(point)
            if key in self.cells:
                continue
            cells = self.cells[key] = [code.variable(d) for d in self.dtypes]
            for cell, reg in zip(cells, self.neutral(), strict=True):
                code.write(cell, reg)

    def update(self, points: Sequence[dict[str, int]]) -> None:
        """Take in elements."""
        if self.along is not None:
            rows: dict[tuple[int, ...], list[dict[str, int]]] = {}
            for point in points:
                rows.setdefault(self._kept(point), []).append(point)
            for key, row in rows.items():
                self._take(key, self._winner(self.along, row))
            return
        few = not runs.is_large(self.code, self.extents)
        for point in points:
            self._take(tuple(point.values()) if few else self._chain(point), self._state(point))

    def _state(self, point: dict[str, int]) -> State:
        """An element's, or where there is none the neutral one."""
        code, t = self.code, self.code.t
        operands = zip(self.op.operands, self.dtypes, strict=True)
        state = [convert(t, code.get(v, point), v.type.dtype, d) for v, d in operands]
        mask = code.mask(self.reduced, point)
        return state if mask is None else [select(t, mask, x, y) for x, y in zip(state, self.neutral())]

    def _take(self, key: tuple[int, ...], state: State) -> None:
        """Join a state to the accumulator of a key."""
        code = self.code
        if self.cells is None:
            self.values[key] = self.join(self.values[key], state) if key in self.values else state
            return
        old = [code.read(cell, d) for cell, d in zip(self.cells[key], self.dtypes, strict=True)]
        for cell, reg in zip(self.cells[key], self.join(old, state), strict=True):
            code.write(cell, reg)

    def _kept(self, point: dict[str, int]) -> tuple[int, ...]:
        """The accumulator of a row's elements."""
        return tuple([0 if name in self.reduced else r for name, r in point.items()])

    def _compare(self, name: str, *x: Register) -> V:
        dtype = self.dtypes[0]
        return parts(self.code.combine(name, x, [dtype] * len(x), "bool"))[0]

    def _extreme(self, a: Register, b: Register) -> Register:
        return self.code.combine(self.combiner, [a, b], [self.dtypes[0]] * 2, self.dtypes[0])

    def _winner(self, along: str, row: Sequence[dict[str, int]]) -> State:
        """The state of a thread's elements, in the order of their positions: the extreme value, then where it is.

        What lies outside of the tile comes last.
        """
        code, t, dtype = self.code, self.code.t, self.dtypes[0]
        x = self.op.operands[0]
        values = [convert(t, code.get(x, point), x.type.dtype, dtype) for point in row]
        inside: list[Register] = []
        for mask, few in groupby(zip(row, values, strict=True), lambda pair: code.mask(self.reduced, pair[0])):
            (best,) = _tree([value for _, value in few], self._extreme)
            inside.append(best if mask is None else select(t, mask, best, self.neutral()[0]))
        (best,) = _tree(inside, self._extreme)
        offsets = [i32(code.layout.splits[along].offset(point[along])) for point in row]

        def first(found: Callable[[Register], V]) -> Lanes:
            place = offsets[-1]
            for x, offset in zip(values[-2::-1], offsets[-2::-1], strict=True):
                place = t.select(found(x), offset, place)
            return Lanes(t, place)

        place = first(lambda x: self._compare("equal", x, best))
        if dtype in dtypes.FLOAT:
            is_nan = lambda x: self._compare("isnan", x)
            place = branch(Lanes(t, is_nan(best)), lambda: first(is_nan), place)
        place = t.bin("add", code.first[along], place.v)
        if along in code.base or self.dtypes[1] == "i64":
            wide = t.bin("add", t.cast("zext", place, "i64"), code.base.get(along, i64(0)))
            place = t.cast("trunc", wide, self.dtypes[1])
        return [best, place]

    def _chain(self, point: dict[str, int]) -> tuple[int, ...]:
        """The accumulator of an element where there is none for each."""
        return tuple([r % CHAINS if name in self.reduced else r for name, r in point.items()])

    def fold(self) -> list[State]:
        """After the trips: the thread's state at each register of the result."""
        code = self.code
        if self.cells is not None:
            for key, cells in self.cells.items():
                self.values[key] = [code.read(cell, d) for cell, d in zip(cells, self.dtypes, strict=True)]
        places = [k for k, e in enumerate(self.extents) if e not in self.reduced]
        rows: dict[tuple[int, ...], list[State]] = {}
        for key, state in self.values.items():
            rows.setdefault(tuple([key[k] for k in places]), []).append(state)
        folded: list[State] = []
        for states in rows.values():
            folded += _tree(states, self.join)
        return folded


def _tree(values: list[Any], join: Callable[[Any, Any], Any]) -> list[Any]:
    """Values joined to one, neighbours first."""
    while len(values) > 1:
        odd = values[len(values) & ~1 :]
        values = [join(a, b) for a, b in zip(values[::2], values[1::2])] + odd
    return values


def state_types(op: Op) -> list[str]:
    """The dtypes of a reduction's or scan's state: narrow floats accumulate in f32."""
    dtype = op.operands[0].type.dtype
    row = ops.TABLE[op.attrs["kind"]]
    if dtype in dtypes.NARROW and row.combine in ("add", "multiply"):
        dtype = "f32"
    return [dtype, "i64"] if op.name == "argreduce" else [dtype]


def finish(code: Codegen, reductions: Sequence[Reduction]) -> None:
    """Join the threads' states and define the results.  Reductions that end together share barriers."""
    folded = [(r, r.fold()) for r in reductions]
    pending: list[Pending] = []
    for r, states in folded:
        bits = [b for name in r.reduced for b in code.layout.splits[name].bits]
        states[:] = [r.join_lanes(s, [1 << b for b in bits if b < WARP]) for s in states]
        high = [b - WARP for b in bits if b >= WARP]
        if high:
            pending += [Pending(r, states, k, high, len(bits) - len(high) == WARP) for k in range(len(states))]
    _across_warps(code, pending)
    for r, states in folded:
        for point, state in zip(code.points(r.kept), states, strict=True):
            code.define(code.key(r.op.result, point), r.result(state))
        code.define(("all", r.op), True)


@dataclass(slots=True)
class Pending:
    """A state that warps must still join: those whose numbers differ in the bits `high`."""

    reduction: Reduction
    states: list[State]
    number: int
    high: list[int]
    #: Whether the lanes of a warp agree.
    agree: bool

    def field(self, code: Codegen, dtype: str) -> int:
        """Bytes of shared memory for one part of the state."""
        threads = code.layout.threads * code.layout.cluster
        each = threads >> WARP if self.agree else threads
        return -(-each * dtypes.SIZE[dtype] // 16) * 16

    def size(self, code: Codegen) -> int:
        return sum(self.field(code, d) for d in self.reduction.dtypes)


def _across_warps(code: Codegen, pending: Sequence[Pending]) -> None:
    """Every warp leaves its states in the shared memory of each block and reads those of the warps that it is joined
    with."""
    t = code.t
    lane, warp = t.bin("and", code.tid, i32(31)), t.bin("lshr", code.tid, i32(WARP))
    # One lane speaks for those that agree; in a cluster, one to each block.
    cluster = code.layout.cluster
    speaks = t.cmp("ult", lane, i32(cluster)) if any(p.agree for p in pending) else None
    rest = list(pending)
    while rest:
        batch, total = [], 0
        while rest and (not batch or total + rest[0].size(code) <= EXCHANGE):
            batch.append(rest.pop(0))
            total += batch[-1].size(code)
        base = code.exchange(total)
        areas: list[V] = []
        offset = 0
        for p in batch:
            areas.append(at(t, base, offset))
            offset += p.size(code)
            for area, reg, d in zip(_fields(code, areas[-1], p), p.states[p.number], p.reduction.dtypes, strict=True):
                place = slot(code, area, warp if p.agree else code.tid, d)
                if cluster > 1:
                    assert p.agree, "a cluster's blocks share one dim"
                    place = code.remote(place, t.bin("and", lane, i32(cluster - 1)))
                store(t, [reg], place, d, speaks if p.agree else None)
        code.barrier()
        for p, area in zip(batch, areas, strict=True):
            join_ = _by_lanes if p.agree else _by_threads
            p.states[p.number] = join_(code, p, _fields(code, area, p), lane, warp)


def _fields(code: Codegen, area: V, p: Pending) -> list[V]:
    """Where the parts of a state lie."""
    found = [area]
    for d in p.reduction.dtypes[:-1]:
        found.append(at(code.t, found[-1], p.field(code, d)))
    return found


def _by_lanes(code: Codegen, p: Pending, areas: list[V], lane: V, warp: V) -> State:
    """Each lane reads one warp's state, or several of a large cluster, and the lanes join them."""
    t, r = code.t, p.reduction
    there = t.bin("and", warp, i32(~sum(1 << b for b in p.high)))
    for k, b in enumerate(p.high[:WARP]):
        bit = t.bin("and", t.bin("lshr", lane, i32(k)), i32(1))
        there = t.bin("or", there, t.bin("shl", bit, i32(b)))
    starts = [slot(code, area, there, d) for area, d in zip(areas, r.dtypes, strict=True)]
    state = _joined(code, r, starts, p.high[WARP:])
    return r.join_lanes(state, [1 << k for k in range(len(p.high[:WARP]))])


def _by_threads(code: Codegen, p: Pending, areas: list[V], lane: V, warp: V) -> State:
    """Each thread reads the states of all warps."""
    t, r = code.t, p.reduction
    origin = t.bin("and", code.tid, i32(~sum(1 << b + WARP for b in p.high)))
    starts = [slot(code, area, origin, d) for area, d in zip(areas, r.dtypes, strict=True)]
    return _joined(code, r, starts, [b + WARP for b in p.high])


def _joined(code: Codegen, r: Reduction, starts: Sequence[V], bits: Sequence[int]) -> State:
    """The states at the places whose numbers differ from the first one's in some bits."""
    t = code.t
    found: list[State] = []
    for h in range(1 << len(bits)):
        there = sum(1 << b for k, b in enumerate(bits) if h >> k & 1)
        found.append([
            load(t, at(t, start, there * dtypes.SIZE[d]), d, 1)[0] for start, d in zip(starts, r.dtypes, strict=True)
        ])  # fmt: skip
    while len(found) > 1:
        found = [r.join(a, b) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def slot(code: Codegen, area: V, number: V, dtype: str) -> V:
    """The place of a thread's or warp's value."""
    t = code.t
    return at(t, area, t.cast("zext", t.bin("mul", number, i32(dtypes.SIZE[dtype])), "i64"))


# -- shuffles ---------------------------------------------------------------------------------------------------------
def shuffle(t: Text, kind: str, reg: Register, operand: V) -> Register:
    """Another thread's value: "bfly": of the thread whose number differs by xor; "up": of `operand` threads before;
    "idx": of thread `operand` of the warp."""
    return join([_shuffle(t, kind, v, operand) for v in parts(reg)])


def _shuffle(t: Text, kind: str, v: V, operand: V) -> V:
    ty = v.ty
    if ty in ("double", "i64"):
        bits = t.cast("bitcast", v, "i64")
        low = _shuffle(t, kind, t.cast("trunc", bits, "i32"), operand)
        high = _shuffle(t, kind, t.cast("trunc", t.bin("lshr", bits, i64(32)), "i32"), operand)
        wide = t.bin("or", t.cast("zext", low, "i64"), t.bin("shl", t.cast("zext", high, "i64"), i64(32)))
        return t.cast("bitcast", wide, ty)
    if ty == "float":
        word = t.cast("bitcast", v, "i32")
    else:
        word = t.cast("zext", v, "i32")
    clamp = i32(0 if kind == "up" else 31)
    name = f"llvm.nvvm.shfl.sync.{kind}.i32"
    found = t.call(name, "i32", [i32(FULL), word, operand, clamp], "convergent nounwind")
    if ty == "float":
        return t.cast("bitcast", found, "float")
    return t.cast("trunc", found, ty) if ty != "i32" else found


def scan_lanes(
    t: Text, x: Register, lane: V, join: Callable[[Register, Register], Register], identity: Register
) -> tuple[Register, Register]:
    """What the lanes before this one hold, and what they hold together with it."""
    for k in range(WARP):
        other = shuffle(t, "up", x, i32(1 << k))
        x = select(t, t.cmp("uge", lane, i32(1 << k)), join(other, x), x)
    return select(t, t.cmp("eq", lane, i32(0)), identity, shuffle(t, "up", x, i32(1))), x
