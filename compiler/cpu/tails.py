"""The end of a tile that lies past all of the bounds of its nest's loads: there all elements are alike.

A loop goes one vector into it.  If that vector has left the state of all reductions as it was, so would those behind
it, and the loop ends there: a row of 781 elements in a block of 1024 takes little longer than it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .. import ops
from ..ir import Op, Value
from ..llvm.convert import Register, convert
from ..llvm.text import V, element
from .loops import Counted
from .memory import i64, parts
from .strips import Item

if TYPE_CHECKING:
    from .nest import NestCode

#: Comparisons that along growing numbers change once.
_COMPARED = frozenset(("less", "less_equal", "greater", "greater_equal"))
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
    read = [v for r in nest.reductions for v in r.op.operands]
    if read or nest.nest.keeps:
        known = _limits(nest)
        limits += [x for value in (*nest.nest.keeps, *read) for x in known[nest.nest.item(value)]]
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


def _limits(nest: NestCode) -> dict[Item, list[V | None]]:
    """From where on all elements of values along the vectors are alike: past all of these; None: nowhere."""
    known: dict[Item, list[V | None]] = {}
    for item in nest.nest.items:
        op = item.value.op
        if nest.lane not in item.axes:
            known[item] = []
        elif item.kept:
            axis, limit = nest.code.alike.get(item.value, (-1, None))
            known[item] = [limit if axis >= 0 and item.where[axis] == nest.lane else None]
        elif op is not None and op.name == "load_view":
            known[item] = [nest.accesses[item].bounds.get(nest.lane)]
        elif op is not None and op.name in _COMPARED:
            known[item] = [_crossing(nest, op)]
        elif op is not None and (op.name in ("cast", "bitcast") or _is_plain(op)):
            known[item] = list(dict.fromkeys(limit for arg in item.args for limit in known[arg]))
        else:
            known[item] = [None]
    return known


def _is_plain(op: Op) -> bool:
    """Whether an op makes an element of elements, and of nothing else."""
    row = ops.TABLE.get(op.name)
    return row is not None and row.kind == "elementwise" and not row.types


def _crossing(nest: NestCode, op: Op) -> V | None:
    """The first place at which a comparison of places with a scalar fails, or holds; after it nothing changes."""
    t, (a, b) = nest.t, [_place(nest, v) for v in op.operands]
    if a is None or b is None or abs(a.step - b.step) != 1:
        return None
    low, high = (a, b) if a.step > b.step else (b, a)
    # One further on than where they meet.
    return t.bin("add", t.bin("sub", high.base, low.base), i64(1))


class _Places(NamedTuple):
    """Integers `base`, `base + step`, and so on along a tile of one extent."""

    base: V
    step: int


def _place(nest: NestCode, value: Value) -> _Places | None:
    """The places that a tile of integers is, or a scalar."""
    op, t = value.op, nest.t
    if value.type.dtype not in ("i32", "i64") or len(value.type.extents) > 1:
        return None
    if not value.type.extents:
        return _Places(t.cast("sext", nest.code.integer(value), "i64"), 0)
    if op is None:
        return None
    if op.name == "iota":
        return _Places(i64(0), 1)
    if op.name not in ("broadcast", "cast", "add", "subtract"):
        return None
    found = [_place(nest, v) for v in op.operands]
    known = [x for x in found if x is not None]
    if len(known) < len(found):
        return None
    first, *rest = known
    for other in rest:
        name, sign = ("add", 1) if op.name == "add" else ("sub", -1)
        first = _Places(t.bin(name, first.base, other.base), first.step + sign * other.step)
    return first
