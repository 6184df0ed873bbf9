"""Fetching what the next trip of a loop reads while this one computes.

Tiles of a matrix are many short pieces of rows, which the hardware does not foresee, nor rows far apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ops
from ..ir import Block, Op, Value
from ..llvm.convert import Register, register_type
from ..llvm.text import Text, V
from .loops import Counted
from .memory import address, i64
from .strips import is_const, view

if TYPE_CHECKING:
    from .codegen import Codegen

#: Bytes of a cache line.
LINE = 64
#: Up to so many lines are asked for without a loop.
FEW = 8
#: Ops whose results in the next trip are computed: cheap ones that never trap.
_PLAIN = frozenset(("const", "cast", "add", "subtract", "multiply", "minimum", "maximum", "where"))


@dataclass(slots=True)
class Trip:
    """The present trip of a `for` that goes up: its body, the position in the next trip, and where the loop ends."""

    body: Block
    following: V
    end: V
    #: What scalars of the body are now, and what they will be in the next trip; None: that is not known.
    now: dict[Value, Register | None] = field(default_factory=dict)
    then: dict[Value, Register | None] = field(default_factory=dict)
    #: Loads whose next rows are asked for.
    asked: set[Op] = field(default_factory=set)

    def value(self, code: Codegen, value: Value, later: bool) -> Register | None:
        """A scalar, now or in the next trip."""
        known = self.then if later else self.now
        if value not in known:
            known[value] = self._found(code, value, later)
        return known[value]

    def _found(self, code: Codegen, value: Value, later: bool) -> Register | None:
        args, op = self.body.args, value.op
        if value in args:
            if not later:
                return code.scalars.get(value)
            if value is args[0]:
                return code.t.cast("trunc", self.following, register_type(value.type.dtype))
            return self.value(code, self.body.ops[-1].operands[args.index(value) - 1], False)
        if op is None or op.name == "const" or op not in self.body.ops:
            return code.scalar(value)
        if not later and value in code.scalars:
            return code.scalars[value]
        if op.name not in _PLAIN or value.type.extents:
            return None
        found = [self.value(code, v, later) for v in op.operands]
        known = [x for x in found if x is not None]
        return code.apply(op, known, 0) if len(known) == len(found) else None


class _Tile(NamedTuple):
    """What is loaded: where the tile begins now and in the next trip, bytes from row to row, rows, lines in each."""

    now: V
    then: V
    step: V
    rows: int
    lines: int
    #: Whether it is read where it lies.
    direct: bool


class Fetches:
    """The lines that the operands of a dot come from, to be asked for a part at a time.

    Parameters
    ----------
    code : Codegen
        About to emit `dot`; what it loads in the body of the innermost loop is known ahead.
    dot : Op
    parts : int
        How often `some` will be called.
    soon : int
        How many parts ahead to ask for what is read where it lies; the rest is asked for a trip ahead.
    """

    def __init__(self, code: Codegen, dot: Op, parts: int, soon: int) -> None:
        self.t = code.t
        self.parts = parts
        self.soon = soon
        trip = code.trip
        loads = _loads(trip.body, dot) if trip is not None and dot in trip.body.ops else ()
        tiles = [_tile(code, trip, load) for load in loads if trip is not None]
        self.tiles = [tile for tile in tiles if tile is not None]

    def some(self, part: V) -> None:
        """Ask for one part of the lines."""
        t = self.t
        for tile in self.tiles:
            total = tile.rows * tile.lines
            each = -(-total // self.parts)
            first, start = t.bin("mul", part, i64(each)), tile.then
            if tile.direct:
                first = t.bin("add", first, i64(each * self.soon))
                start = t.select(t.cmp("slt", first, i64(total)), tile.now, tile.then)
            if each > FEW:
                with Counted(t, i64(0), i64(each), i64(1), True) as k:
                    self._fetch(tile, start, t.bin("add", first, k))
            else:
                for k in range(each):
                    self._fetch(tile, start, t.bin("add", first, i64(k)))

    def _fetch(self, tile: _Tile, start: V, number: V) -> None:
        """Ask for a line, by its number in a tile."""
        t = self.t
        number = t.bin("and", number, i64(tile.rows * tile.lines - 1))
        row = t.bin("lshr", number, i64(tile.lines.bit_length() - 1))
        column = t.bin("mul", t.bin("and", number, i64(tile.lines - 1)), i64(LINE))
        place = t.gep(start, t.bin("add", t.bin("mul", row, tile.step), column), "i8")
        _fetch(t, place, 3 if tile.direct else 2)


def _loads(body: Block, dot: Op) -> Iterator[Op]:
    """The loads in a loop's body that a dot's factors are computed from."""
    inside = set(body.ops)
    stack, seen = list(dot.operands[:2]), set[Value]()
    while stack:
        value = stack.pop()
        op = value.op
        if value in seen or op not in inside or not value.type.extents:
            continue
        seen.add(value)
        row = ops.TABLE.get(op.name)
        if op.name == "load_view":
            yield op
        elif op.name in ("cast", "broadcast", "trans") or (row is not None and row.kind == "elementwise"):
            stack.extend(op.operands)


def _tile(code: Codegen, trip: Trip, load: Op) -> _Tile | None:
    """A matrix of which one stride is 1, and whose place in the next trip is known."""
    pointer, offset, strides, _ = view(load)
    extents, dtype = load.result.type.extents, pointer.type.dtype
    along = next((k for k, s in enumerate(strides) if is_const(s, 1)), None)
    if len(extents) != 2 or along is None or any(isinstance(e, str) for e in extents):
        return None
    asked = ((pointer, False), (strides[1 - along], False), (offset, False), (offset, True))
    base, stride, now, then = (trip.value(code, v, later) for v, later in asked)
    if not (isinstance(base, V) and isinstance(stride, V) and isinstance(now, V) and isinstance(then, V)):
        return None
    t, size = code.t, dtypes.SIZE[dtype]
    # After the last trip there is nothing to fetch.
    then = t.select(t.cmp("slt", trip.following, trip.end), then, now)
    lines = max(1, int(extents[along]) * size // LINE)
    places = [address(t, base, x, dtype) for x in (now, then)]
    rows = int(extents[1 - along])
    return _Tile(places[0], places[1], t.bin("mul", stride, i64(size)), rows, lines, load.result in code.direct)


def following_row(code: Codegen, load: Op) -> V | None:
    """Where a row is loaded from in the next trip, if that is known and no nest asks for it yet."""
    trip = code.trip
    pointer, offset, strides, _ = view(load)
    if trip is None or load not in trip.body.ops or load in trip.asked:
        return None
    if len(strides) != 1 or not is_const(strides[0], 1):
        return None
    base, now, then = (trip.value(code, v, later) for v, later in ((pointer, False), (offset, False), (offset, True)))
    if not (isinstance(base, V) and isinstance(now, V) and isinstance(then, V)):
        return None
    trip.asked.add(load)
    t = code.t
    then = t.select(t.cmp("slt", trip.following, trip.end), then, now)
    return address(t, base, then, pointer.type.dtype)


def fetch_vector(code: Codegen, row: V, position: V, dtype: str, lanes: int) -> None:
    """Ask for the lines of one vector of a row."""
    t = code.t
    start = address(t, row, position, dtype)
    for offset in range(0, max(1, lanes) * dtypes.SIZE[dtype], LINE):
        _fetch(t, t.gep(start, i64(offset), "i8"), 3)


def _fetch(t: Text, place: V, locality: int) -> None:
    """Ask for a line of data to read, in the L1 (3) or the L2 cache (2)."""
    t.call("llvm.prefetch.p0", "void", [place, *[V(str(x), "i32") for x in (0, locality, 1)]])
