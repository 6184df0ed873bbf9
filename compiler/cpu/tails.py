"""The end of a tile that lies past all of the bounds of its nest's loads: there all elements are alike.

A loop goes one vector into it.  If that vector has left the state of all reductions as it was, so would those behind
it, and the loop ends there: a row of 781 elements in a block of 1024 takes little longer than it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ops
from ..ir import Value
from ..llvm.convert import Register, convert
from ..llvm.text import V, element
from .loops import Counted
from .memory import i64, parts

if TYPE_CHECKING:
    from .nest import NestCode

#: Work (in additions) from which a nest without reductions is worth it.
WORTH = 8


class Tail:
    """What a nest's loop over vectors does past `limit`, from where on all elements are alike."""

    def __init__(self, nest: NestCode, limit: V) -> None:
        self.nest = nest
        self.t = nest.t
        self.limit = limit

    def run(self, k: int, start: V, end: V) -> None:
        """The loop over vectors, which is the nest's loop k."""
        nest, t, n = self.nest, self.t, self.nest.lanes
        if not nest.reductions and not nest.nest.keeps:
            # Stores past the bounds do nothing.
            end = t.call("llvm.smin.i64", "i64", [end, self.limit])
            with Counted(t, start, end, i64(n)) as position:
                nest.positions[nest.lane] = position
                nest.body(k + 1)
            return
        beyond, going, leave, after = [t.new_label(x) for x in ("beyond", "going", "leave", "after")]
        with Counted(t, start, end, i64(n)) as position:
            nest.positions[nest.lane] = position
            before = self._state()
            nest.body(k + 1)
            values = [(v, nest.full(nest.nest.item(v))) for v in nest.nest.keeps]
            t.br_if(t.cmp("sge", position, self.limit), beyond, going)
            t.label(beyond)
            t.br_if(self._same(before, self._state()), leave, going)
            t.label(going)
        t.br(after)
        t.label(leave)
        self._fill(values, t.bin("add", position, i64(n)), end)
        t.br(after)
        t.label(after)

    def _state(self) -> list[V]:
        return [v for reduction in self.nest.reductions for reg in reduction.state() for v in parts(reg)]

    def _same(self, before: list[V], after: list[V]) -> V:
        """Whether all bits are the same."""
        t = self.t
        found = V("true", "i1")
        for a, b in zip(before, after, strict=True):
            bits = {"float": "i32", "double": "i64"}.get(element(a.ty))
            if bits is not None:
                a, b = t.cast("bitcast", a, bits), t.cast("bitcast", b, bits)
            found = t.bin("and", found, t.intrinsic("vector.reduce.and", t.cmp("eq", a, b), ty="i1"))
        return found

    def _fill(self, values: list[tuple[Value, Register]], start: V, end: V) -> None:
        """Write what all elements from `start` on are."""
        nest = self.nest
        for value, reg in values:
            access = nest.accesses[value]
            reg = convert(self.t, reg, value.type.dtype, access.dtype)
            with Counted(self.t, start, end, i64(nest.lanes)) as position:
                nest.positions[nest.lane] = position
                nest.store(access, reg)


def tail_of(nest: NestCode) -> Tail | None:
    """What to do at the end of a nest whose last loop is over whole vectors of a tile; None: nothing special.

    Notes of the tiles that the nest keeps from where on their elements are alike.
    """
    if not nest.rank or nest.loops[-1].kind != "lane" or not nest._is_whole():
        return None
    limits = [nest.accesses[op].bounds.get(nest.lane) if op.name == "store_view" else None for op in nest.effects]
    if nest.reductions or nest.nest.keeps:
        limits += _limits(nest)
    found = [limit for limit in dict.fromkeys(limits) if limit is not None]
    if not found or None in limits:
        return None
    most = found[0]
    for limit in found[1:]:
        most = nest.t.call("llvm.smax.i64", "i64", [most, limit])
    for value in nest.nest.keeps:
        nest.code.alike[value] = nest.lane, most
    if nest.nest.keeps and not nest.reductions and nest.work < WORTH:
        return None
    return None if any(not r.across or r.op.name != "reduce" for r in nest.reductions) else Tail(nest, most)


def _limits(nest: NestCode) -> list[V | None]:
    """From where on values are alike that vary along the vectors."""
    found: list[V | None] = []
    for item in nest.nest.items:
        op = item.value.op
        if nest.lane not in item.axes:
            continue
        if item.kept:
            axis, limit = nest.code.alike.get(item.value, (-1, None))
            found.append(limit if axis >= 0 and item.where[axis] == nest.lane else None)
        elif op is not None and op.name == "load_view":
            found.append(nest.accesses[item].bounds.get(nest.lane))
        else:
            row = ops.TABLE.get(op.name) if op is not None else None
            plain = row is not None and row.kind == "elementwise" and not row.types
            if not plain and (op is None or op.name not in ("cast", "bitcast")):
                found.append(None)
    return found
