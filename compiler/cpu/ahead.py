"""Fetching what the next trip of a loop reads while this one multiplies.

Tiles of a matrix are many short pieces of rows, which the hardware does not foresee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ops
from ..ir import Block, Op, Value
from ..llvm.convert import Register, register_type
from ..llvm.text import V
from .memory import address, i64
from .strips import is_const, view

if TYPE_CHECKING:
    from .codegen import Codegen

#: Bytes of a cache line.
LINE = 64
#: Ops of which the next trip's values are computed: cheap ones that never trap.
_PLAIN = frozenset(("const", "cast", "add", "subtract", "multiply", "minimum", "maximum", "where"))


@dataclass(slots=True)
class Trip:
    """The present trip of a `for` that goes up: its position, and the next one."""

    body: Block
    index: V
    following: V
    end: V
    #: What values of the body are now and will be in the next trip; None: that is not known.
    now: dict[Value, Register | None] = field(default_factory=dict)
    then: dict[Value, Register | None] = field(default_factory=dict)


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
    """The lines that a dot's operands will be loaded from in the next trip, to be asked for in parts.

    Parameters
    ----------
    code : Codegen
    dot : Op
        Whose operands are loaded in the body of `code.trip`'s loop, where the code is now.
    parts : int
        How often `some` will be called.
    soon : int
        How many parts ahead to ask for what is read where it lies.
    """

    def __init__(self, code: Codegen, dot: Op, parts: int, soon: int) -> None:
        self.code = code
        self.t = code.t
        self.trip = code.trip
        self.parts = parts
        self.soon = soon
        self.tiles: list[_Tile] = []
        if self.trip is not None and dot in self.trip.body.ops:
            for load in self._loads(dot):
                self._add(load)

    def _loads(self, dot: Op) -> Iterator[Op]:
        """The loads in the loop's body that the operands are computed from."""
        assert self.trip is not None
        inside = set(self.trip.body.ops)
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

    def _add(self, load: Op) -> None:
        pointer, offset, strides, _ = view(load)
        extents, dtype = load.result.type.extents, pointer.type.dtype
        if len(extents) != 2 or not all(isinstance(e, int) for e in extents):
            return
        along = next((k for k in (1, 0) if is_const(strides[k], 1)), None)
        if along is None:
            return
        found = [self._value(v, later) for v, later in
                 ((pointer, False), (offset, False), (offset, True), (strides[1 - along], False))]  # fmt: skip
        if not all(isinstance(v, V) for v in found):
            return
        t, trip, size = self.t, self.trip, dtypes.SIZE[dtype]
        base, now, then, stride = [v for v in found if isinstance(v, V)]
        # After the last trip there is nothing to fetch.
        then = t.select(t.cmp("slt", trip.following, trip.end), then, now)
        step = t.bin("mul", stride, i64(size))
        lines = max(1, int(extents[along]) * size // LINE)
        places = [address(t, base, x, dtype) for x in (now, then)]
        self.tiles.append(_Tile(*places, step, int(extents[1 - along]), lines, load.result in self.code.direct))

    def _value(self, value: Value, later: bool) -> Register | None:
        """A scalar, now or in the next trip."""
        trip = self.trip
        known = trip.then if later else trip.now
        if value not in known:
            known[value] = self._found(value, later)
        return known[value]

    def _found(self, value: Value, later: bool) -> Register | None:
        code, body = self.code, self.trip.body
        if value in body.args:
            if not later:
                return code.scalars.get(value)
            if value is body.args[0]:
                return code.t.cast("trunc", self.trip.following, register_type(value.type.dtype))
            return self._value(body.ops[-1].operands[body.args.index(value) - 1], False)
        op = value.op
        if op is None or op not in body.ops:
            return code.scalar(value)
        if not later and value in code.scalars:
            return code.scalars[value]
        if op.name not in _PLAIN or value.type.extents:
            return None
        if op.name == "const":
            return code.scalar(value)
        args = [self._value(v, later) for v in op.operands]
        known = [a for a in args if a is not None]
        return code.apply(op, known, 0) if len(known) == len(args) else None

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
            for k in range(each):
                number = t.bin("and", t.bin("add", first, i64(k)), i64(total - 1))
                row = t.bin("lshr", number, i64(int(math.log2(tile.lines))))
                column = t.bin("mul", t.bin("and", number, i64(tile.lines - 1)), i64(LINE))
                place = t.bin("add", t.bin("mul", row, tile.step), column)
                near = 3 if tile.direct else 2
                arguments = [t.gep(start, place, "i8"), *[V(str(x), "i32") for x in (0, near, 1)]]
                t.call("llvm.prefetch.p0", "void", arguments)
