"""The running softmax of attention: scores in the registers of a group of warps, as products leave them, to weights.

A thread has two rows, eight apart, and of each the columns that products give it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import e as EULER
from math import inf, log2, nan
from typing import NamedTuple

import numpy as np

from .. import dtypes, ir
from ..llvm.convert import Register
from ..llvm.text import V
from ..slices import slice_of
from . import layout, memory, running
from .elements import Code, Elements, Where
from .layout import Facts, view
from .memory import i32, i64
from .running import Scaled, Walk

#: Rows of a group.
ROWS = 64
#: The maximum that weights are relative to may be less than the maximum by so much, as a power of two; and what a
#: thread's weights of a block may sum up to.
SLACK, TRUSTED = 8.0, 2.0**10
#: The first barrier of those at which groups vote.
VOTES = 8
#: Up to here, what is added to exponents is rounded to few enough digits for a fused product: to 2^-5.
FUSED = 2.0**20
#: The largest number.
MOST = float(np.finfo(np.float32).max)
_PREDICATES = {
    "less": "slt", "less_equal": "sle", "greater": "sgt", "greater_equal": "sge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_PURE = "nounwind memory(none)"
_WARP = "convergent nounwind memory(inaccessiblemem: readwrite)"


class Edge(NamedTuple):
    """A comparison of positions of keys, where scalars are what they are beyond the position in the block."""

    op: ir.Op
    #: Whether the key is the first operand.
    first: bool
    beyond: list[ir.Value]
    other: ir.Value


def _of(row: int, values: Sequence[V]) -> list[int]:
    """The numbers of the values that a thread has of one of its rows."""
    return [k for k in range(len(values)) if k // 2 % 2 == row]


class Softmax:
    """Writes what a group does between two products."""

    t: Code
    e: Elements
    kernel: ir.Kernel
    walks: list[Walk]
    #: The scores' forms if all are products times one scalar, which is then taken into the exponential.
    forms: list[Scaled]
    dtype: str
    facts: Facts
    #: The dim of rows, keys of a block and their number in all; the program's numbers on the grid's axes.
    i: str
    keys: int
    length: ir.Value
    programs: list[V]
    #: The number of the group, the thread's first row in it and its first column.
    group: V
    down: V
    across: V
    #: Variables: of each row the running maximum, the thread's running sum and what sums are scaled by; products.
    top: list[V]
    total: list[V]
    fade: list[V]
    sums: list[V]
    #: Variables: what is added to a row's scores, times their factor, before they are exponents.
    less: list[V]
    #: Whether sums are scaled only where the maximum has grown by much.
    lazy: bool

    def _scale(self) -> None:
        """Find the scores' factor: one that is not positive does not commute with their maximum and counts as 1."""
        t, one = self.t, self.t.const(1.0, "float")
        self.factor, self.scalar, self.odd = one, one, None
        by = self.forms[0].by if self.forms else None
        if by is not None:
            self.scalar = self.factor = self._everywhere(by)
            if self.forms[0].divides:
                self.factor = t.bin("fdiv", one, self.factor)
            number = running.number(by)
            if number is None or not 0 < number < inf:
                positive = t.cmp("ogt", self.factor, t.const(0.0, "float"))
                fine = t.bin("and", positive, t.cmp("olt", self.factor, t.const(inf, "float")))
                self.odd = t.bin("xor", fine, V("true", "i1"))
                self.factor = t.select(fine, self.factor, one)
        self.power = t.bin("fmul", self.factor, t.const(log2(EULER), "float"))
        self.others = {op: self._other(op) for form in self.forms for op in form.masks}

    def _everywhere(self, value: ir.Value) -> V:
        """A scalar that is the same for all blocks."""
        for body in (self._straight(), *(w.loop.regions[0] for w in self.walks)):
            self.e.run([op for op in slice_of([value], body) if not op.result.type.extents], {})
        found = self.e(value)
        assert isinstance(found, V)
        return found

    def _other(self, op: ir.Op) -> V:
        """What a `where` puts in the place of scores, but for the factor, which makes no finite number infinite."""
        t, side = self.t, running.kept(op)
        value = running.scalar(op.operands[3 - (side or 1)])
        assert value is not None
        x, infinite = self._everywhere(value), t.const(inf, "float")
        found = t.bin("fdiv", x, self.factor)
        finite = t.cmp("olt", t.intrinsic("fabs", x), infinite)
        beyond = t.bin("and", finite, t.cmp("oeq", t.intrinsic("fabs", found), infinite))
        return t.select(beyond, t.intrinsic("copysign", t.const(MOST, "float"), x), found)

    def _trust(self, scores: list[V]) -> tuple[list[V], V]:
        """The weights of a block of keys by the maximum before it, and whether these are too large for that.

        If they are not, the running sums are right with them.
        """
        t = self.t
        weights = [
            self._power(t.fma(x, self.power, t.get(self.less[k // 2 % 2], "float"))) for k, x in enumerate(scores)
        ]
        sums = [self._joined([weights[k] for k in _of(row, weights)], self._sum) for row in range(2)]
        small = t.bin("and", *(t.cmp("ole", x, t.const(TRUSTED, "float")) for x in sums))
        large = self._any(t.bin("xor", small, V("true", "i1")))
        for k, x in enumerate(sums):
            before = t.get(self.total[k], "float")
            t.set(self.total[k], t.select(large, before, t.bin("fadd", before, x)))
            t.set(self.fade[k], t.const(1.0, "float"))
        return weights, large

    def _any(self, condition: V) -> V:
        """Whether a condition holds for a thread of the group."""
        t = self.t
        text = "{ .reg .pred p, q; setp.ne.u32 p, $1, 0; bar.red.or.pred q, $2, 128, p; selp.u32 $0, 1, 0, q; }"
        barrier = t.bin("add", self.group, i32(VOTES))
        args = f"{t.cast('zext', condition, 'i32')}, {barrier}"
        found = t.op(f'call i32 asm sideeffect "{text}", "=r,r,r"({args}) convergent nounwind', "i32")
        return t.cmp("ne", found, i32(0))

    def _soften(self, scores: list[V], first: bool) -> list[V]:
        """The weights of a block of keys, and the running maximum and sum with it."""
        t, by, zero = self.t, self.power, self.t.const(0.0, "float")
        weights = list(scores)
        fuses = self._fuses
        for row in range(2):
            mine = _of(row, scores)
            top = self._joined([scores[k] for k in mine], self._larger)
            for step in (1, 2):
                top = self._larger(top, self._exchanged(top, step))
            before = t.get(self.top[row], "float")
            if not first:
                top = self._larger(before, top)
                if self.lazy:
                    grown = t.bin("fmul", t.bin("fsub", top, before), by)
                    top = t.select(t.cmp("ole", grown, t.const(SLACK, "float")), before, top)
            shift = self._pivot(top)
            lowered, less = shift, zero
            if fuses:
                less = t.fneg(t.bin("fmul", shift, by))
                small = t.cmp("olt", t.intrinsic("fabs", less), t.const(FUSED, "float"))
                lowered, less = t.select(small, zero, shift), t.select(small, less, zero)
            for k in mine:
                x = t.bin("fsub", scores[k], lowered)
                weights[k] = self._power(t.fma(x, by, less) if fuses else t.bin("fmul", x, by))
            total = self._joined([weights[k] for k in mine], self._sum)
            if fuses:
                # Without a maximum there is none to trust, nor where the exponents' error would be large.
                known = t.bin("and", small, t.cmp("ogt", top, t.const(-inf, "float")))
                less = t.select(known, less, t.const(nan, "float"))
            if not first:
                fade = self._faded(before, t.get(self.less[row], "float"), shift, less)
                t.set(self.fade[row], fade)
                total = t.fma(t.get(self.total[row], "float"), fade, total)
            t.set(self.total[row], total)
            t.set(self.top[row], top)
            if fuses:
                t.set(self.less[row], less)
        return weights

    @property
    def _fuses(self) -> bool:
        """Whether exponents are fused products, up to `FUSED`."""
        return bool(self.forms) and self.lazy

    def _pivot(self, top: V) -> V:
        """What scores are lowered by: their maximum, if there is one."""
        return self.t.select(
            self.t.cmp("oeq", top, self.t.const(-inf, "float")), self.t.const(0.0, "float"), top
        )  # fmt: skip

    def _faded(self, top: V, less: V, shift: V, now: V) -> V:
        """What sums by a maximum are scaled by where scores are lowered by another one; `now` is then added to them."""
        t = self.t
        fade = self._power(t.bin("fmul", t.bin("fsub", top, shift), self.power))
        if not self._fuses:
            return fade
        # As what is added to scores was rounded, before and now.
        moved = self._power(t.bin("fsub", now, less))
        return t.select(t.cmp("ord", moved, moved), moved, fade)

    def _power(self, x: V) -> V:
        """2**x."""
        return self.t.call("llvm.nvvm.ex2.approx.ftz.f", "float", [x], _PURE)

    def _sum(self, a: V, b: V) -> V:
        return self.t.bin("fadd", a, b)

    def _larger(self, a: V, b: V) -> V:
        return self.t.call("llvm.maximum.f32", "float", [a, b])

    def _exchanged(self, x: V, step: int) -> V:
        """The value of the thread whose lane differs in a bit."""
        name = "llvm.nvvm.shfl.sync.bfly.f32"
        return self.t.call(name, "float", [i32(-1), x, i32(step), i32(31)], _WARP)

    @staticmethod
    def _joined(values: list[V], join: Callable[[V, V], V]) -> V:
        """All values joined in a tree."""
        while len(values) > 1:
            pairs = [join(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]

    def _scores(self, products: list[V], j: V, fetched: bool = False) -> list[V]:
        """The scores, but for the factor, of products that begin at key j; `fetched`: `_fetch` was told of it."""
        t, e = self.t, self.e
        cells = [t.cell("float") for _ in products]
        for cell, x in zip(cells, products, strict=True):
            t.set(cell, x)
        if self.odd is not None:
            with t.if_(self.odd):
                opcode = "fdiv" if self.forms[0].divides else "fmul"
                for cell, x in zip(cells, products, strict=True):
                    t.set(cell, t.bin(opcode, x, self.scalar))
            products = [t.get(c, "float") for c in cells]

        def body(number: int) -> None:
            if self.forms and not self.forms[number].masks:
                return
            needed, loads = self._between(number)

            def write(whole: bool) -> None:
                with e.scope():
                    found = self._elementwise(number, needed, products, j, whole, whole and fetched)
                    for cell, x in zip(cells, found, strict=True):
                        t.set(cell, x)

            if not loads:
                write(False)
                return
            # Loads of a block that ends where the keys end or before need no conditions.
            with t.if_else(self._is_whole(j)) as turn:
                write(True)
                next(turn)
                write(False)

        if len(self.walks) == 1:
            body(0)
        else:
            begins = self.e.integer(self.walks[1].loop.operands[0])
            with t.if_else(t.cmp("slt", j, begins)) as turn:
                body(0)
                next(turn)
                body(1)
        return [t.get(c, "float") for c in cells]

    def _between(self, number: int) -> tuple[list[ir.Op], bool]:
        """The ops behind the product, up to the scores or what masks them; whether there are loads by keys."""
        walk = self.walks[number]
        body = walk.loop.regions[0]
        masks = self.forms[number].masks if self.forms else ()
        wanted = [op.operands[0] for op in masks] or [walk.scores]
        between = slice_of(wanted, body, walk.first.result)
        needed = slice_of([*wanted, *(v for op in between for v in op.operands)], self._straight()) + between
        return needed, any(self._is_cut(op, walk) for op in needed)

    def _is_cut(self, op: ir.Op, walk: Walk) -> bool:
        """Whether a load is bounded by the rows and by the keys that are left."""
        extents = op.result.type.extents
        if op.name != "load_view" or self.keys not in extents or not op.attrs.get("bounded"):
            return False
        left = op.operands[2 + len(extents) + extents.index(self.keys)].op
        return left is not None and left.name == "subtract" and left.operands == (self.length, walk.index)

    def _is_whole(self, j: V) -> V:
        """Whether all keys of a block are there."""
        return self.t.cmp("sle", self.t.bin("add", j, i64(self.keys)), self.e.integer(self.length))

    # -- what is loaded while products are under way ------------------------------------------------------------------
    def _plan_fetches(self, room: int) -> None:
        """Choose the loads that threads begin before they wait for scores, if so many registers hold what they load."""
        loads = [
            [op for op in self._between(number)[0] if self._is_cut(op, walk)]
            if not self.forms or self.forms[number].masks
            else []
            for number, walk in enumerate(self.walks)
        ]
        first, *others = [[(op.operands[0], op.result.type, view(op)[2:]) for op in ops] for ops in loads]
        words = sum(-(-2 * dtypes.SIZE[op.operands[0].type.dtype] // 4) * self.keys // 4 for op in loads[0])
        fits = words <= room and all(found == first for found in others)
        fits = fits and all(op.operands[0].type.dtype not in dtypes.COMPLEX for op in loads[0])
        #: Of each loop; and variables for the words of two neighbours.
        self.fetches: list[list[ir.Op]] = loads if fits else [[] for _ in loads]
        self.fetched: list[list[list[tuple[V, str]]]] = []

    def _fetch(self, j: V) -> None:
        """Begin the loads of a block of keys, if all of them are there."""
        t, e, walk = self.t, self.e, self.walks[0]
        if not self.fetches[0]:
            return
        needed, _ = self._between(0)
        with t.if_(self._is_whole(j)), e.scope():
            e.define(walk.index, j)
            e.run([op for op in needed if not op.result.type.extents], {})
            rows = self._clamped(self._rows(), self.i)
            for number, op in enumerate(self.fetches[0]):
                if len(self.fetched) == number:
                    self.fetched.append([])
                for pair in range(self.keys // 4):
                    words = self._loaded(op, [self._position(rows, 2 * pair + i) for i in range(2)])
                    if len(self.fetched[number]) == pair:
                        self.fetched[number].append([(t.cell(w.ty), w.ty) for w in words])
                    for (cell, _), word in zip(self.fetched[number][pair], words, strict=True):
                        t.set(cell, word)

    def _position(self, rows: list[V], k: int) -> Where:
        return {self.i: rows[k // 2 % 2], str(self.keys): self._column(k)}

    def _loaded(self, op: ir.Op, pair: list[Where]) -> list[V]:
        """The words of two neighbours, or of two elements."""
        t, e, dtype = self.t, self.e, op.operands[0].type.dtype
        if self.facts.width(op, self.keys) > 1:
            return memory.load_words(t, e.address(op, pair[0]), dtype, 2)
        return [w for where in pair for w in memory.load_words(t, e.address(op, where), dtype, 1)]

    def _told_apart(self, op: ir.Op, words: list[V]) -> list[Register]:
        t, dtype = self.t, op.operands[0].type.dtype
        if self.facts.width(op, self.keys) > 1:
            return memory.unpack(t, words, dtype, 2)
        return [x for word in words for x in memory.unpack(t, [word], dtype, 1)]

    def _elementwise(
        self, number: int, needed: list[ir.Op], products: list[V], j: V, whole: bool, fetched: bool
    ) -> list[V]:
        """The scores in one of the loops; `whole`: all keys of the block are there."""
        t, e, walk = self.t, self.e, self.walks[number]
        masks = self.forms[number].masks if self.forms else ()
        e.define(walk.index, j)
        rows = self._rows()
        if any(op.name in ("load_view", "load_ptr") and self.i in op.result.type.extents for op in needed):
            rows = self._clamped(rows, self.i)
        places = [self._position(rows, k) for k in range(len(products))]
        near = [op for op in needed if whole and self._is_cut(op, walk)]
        e.run([op for op in needed if not op.result.type.extents], {})
        for row in rows:
            e.run([op for op in needed if op.result.type.extents == (self.i,)], {self.i: row})
        edges = [edge for op in needed if (edge := self._edge(op)) is not None]
        limits = {(edge.op, row.ref): self._limit(edge, row) for edge in edges for row in rows}
        found = []
        for k, (x, where) in enumerate(zip(products, places, strict=True)):
            e.define(walk.first.result, x, where)
            for edge in edges:
                pair = limits[edge.op, where[self.i].ref], i32(k // 4 * 8 + k % 2)
                e.define(edge.op.result, t.cmp(_PREDICATES[edge.op.name], *(pair[::-1] if edge.first else pair)), where)
            if k % 2 == 0:
                for op in near:
                    pair = places[k : k + 2]
                    if fetched and op in self.fetches[number]:
                        cells = self.fetched[self.fetches[number].index(op)][k // 2]
                        words = [t.get(*c) for c in cells]
                    else:
                        words = self._loaded(op, pair)
                    for at, register in zip(pair, self._told_apart(op, words), strict=True):
                        e.define(op.result, register, at)
            e.run(needed, where)
            if not self.forms:
                x = e(walk.scores, where)
                assert isinstance(x, V)
            for op in masks:
                condition = e(op.operands[0], where)
                assert isinstance(condition, V)
                pair_ = (x, self.others[op]) if running.kept(op) == 1 else (self.others[op], x)
                x = t.select(condition, *pair_)
            found.append(x)
        return found

    def _edge(self, op: ir.Op) -> Edge | None:
        """The comparison of a key's position with something that is the same for all keys, if the op is one."""
        if op.name not in _PREDICATES or self.keys not in op.result.type.extents:
            return None
        for first, (key, other) in ((True, op.operands), (False, op.operands[::-1])):
            beyond = layout.beyond(key, self.keys)
            while other.op is not None and other.op.name == "broadcast":
                other = other.op.operands[0]
            if beyond is not None and other.type.dtype == "i64" and self.keys not in other.type.extents:
                return Edge(op, first, beyond, other)
        return None

    def _limit(self, edge: Edge, row: V) -> V:
        """What the distance of a key from the thread's first one is compared with."""
        t, e = self.t, self.e
        register = e(edge.other, {self.i: row} if edge.other.type.extents else None)
        assert isinstance(register, V)
        for start in (t.cast("zext", self.across, "i64"), *(e.integer(v) for v in edge.beyond)):
            register = t.bin("sub", register, start)
        # What is beyond 32 bits is beyond all keys of a block.
        return t.op(f'call i32 asm "cvt.sat.s32.s64 $0, $1;", "=r,l"({register})', "i32")

    def _clamped(self, positions: list[V], dim: str) -> list[V]:
        """Positions in the tile, the last one in the place of those behind it."""
        t, d = self.t, self.kernel.dims[dim]
        last = t.bin("sub", self.e.integer(d.size), i64(1))
        if d.axis is not None:
            place = t.cast("zext", self.programs[d.axis], "i64")
            last = t.bin("sub", last, t.bin("mul", place, i64(d.block or 1)))
        return [t.call("llvm.smin.i64", "i64", [x, last]) for x in positions]

    def _straight(self) -> ir.Block:
        """The kernel's body without its loops."""
        return ir.Block((), [op for op in self.kernel.body.ops if not op.regions])

    def _rows(self) -> list[V]:
        """Positions of the thread's rows in the tile."""
        t = self.t
        first = t.bin("add", t.bin("mul", self.group, i32(ROWS)), self.down)
        return [t.cast("zext", t.bin("add", first, i32(8 * k)) if k else first, "i64") for k in range(2)]

    def _column(self, k: int) -> V:
        """The column of a thread's k-th sum."""
        t = self.t
        return t.bin("add", t.cast("zext", self.across, "i64"), i64(k // 4 * 8 + k % 2))

    def _packed(self, weights: Sequence[V]) -> list[V]:
        """Weights as words of two, in the order in which an instruction takes them."""
        t = self.t
        kind, elem = ("ff2bf16x2", "bfloat") if self.dtype == "bf16" else ("ff2f16x2", "half")
        words = []
        for low, high in zip(weights[::2], weights[1::2], strict=True):
            pair = t.call(f"llvm.nvvm.{kind}.rn", f"<2 x {elem}>", [high, low], _PURE)
            words.append(t.op(f"bitcast {pair} to i32", "i32"))
        return words

    def _fade(self, grown: V | None) -> None:
        """Scale the sums by what the maximum has grown, if it has."""
        t = self.t
        fades = [t.get(c, "float") for c in self.fade]
        if self.lazy and grown is None:
            some = t.bin("or", *(t.cmp("une", f, t.const(1.0, "float")) for f in fades))
            grown = t.call("llvm.nvvm.vote.any.sync", "i1", [i32(-1), some], _WARP)
        with t.if_(grown):
            for k, cell in enumerate(self.sums):
                t.set(cell, t.bin("fmul", t.get(cell, "float"), fades[k // 2 % 2]))
