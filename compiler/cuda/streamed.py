"""The schedule of products of f16 and bf16 with few rows or columns, whose large operand is computed on the way from
memory: dequantised, say.  See gemm.py.

Each element of the large operand is used by one warp only, so that warps load it straight to registers, several steps
ahead, and compute there what the tensor cores take.  The order along k is free if both operands follow it: what a
thread loads at once is what it multiplies.  A block's warps take turns along k, and add up at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import dtypes, ir
from ..llvm.convert import Register, round_to
from ..llvm.text import V
from . import memory
from .codegen import Code as Generated
from .elements import Elements, Where
from .layout import view
from .memory import SHARED, i32, i64
from .mma import Mma
from .panels import Side
from .simt import BARRIER, product_of
from .target import Target

#: Rows of a tile, warps that share it, and bytes that a block's threads have under way.
ROWS, WARPS, AHEAD = 64, 8, 49152
#: Rows of the large operand that a thread multiplies, its elements along k in an instruction, and in a step at most.
HIGH, DEPTH, DEEPEST = 8, 4, 16
#: Types that have all numbers of 8 bits.
_EXACT = ("f16", "bf16", "f32")


@dataclass(slots=True)
class _Unit:
    """One load of a step."""

    op: ir.Op
    #: Which of the thread's rows and elements of k it begins with, and elements that it takes.
    row: int
    k: int
    count: int
    #: Whether it goes along k.
    deep: bool
    #: Bytes from the thread's first element.
    beyond: V | None = None
    #: Variables for the words, by number of the step that is under way.
    cells: list[list[V]] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        return self.op.result.type.dtype


@dataclass(slots=True)
class _Feed:
    """How a thread gets its elements of an operand."""

    side: Side
    #: Positions along the operand's dim.
    rows: list[V]
    units: list[_Unit]
    #: By load: where the thread's first element lies, and bytes from one turn to the next.
    starts: dict[ir.Op, tuple[V, V]]


class Streamed(Mma):
    """Generates the code of one kernel."""

    piece = 2 * DEEPEST

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if not Mma.suits(kernel, target) or Mma(kernel, target).size != 2:
            return False
        blocks = sorted(kernel.dims[str(e)].block or 0 for e in product_of(kernel).result.type.extents)
        return len(blocks) == 2 and 16 <= blocks[0] <= ROWS == blocks[1] and Streamed(kernel, target).fits

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        #: More of those that take few elements at a time.
        self.warps = WARPS if self.a.deep or self.columns > 16 else 2 * WARPS
        self.threads = 32 * self.warps
        self.broad = self.columns * ROWS // self.threads
        #: Elements of k that a thread has in a step.
        self.each = self.a.width if self.a.deep else DEPTH

    @property
    def fits(self) -> bool:
        """Whether there is something to compute of the large operand, and both can be loaded so."""
        ops = [*self.a.ops, *self.b.ops]
        known = all(op.name != "load_ptr" and not op.attrs.get("bounded") for op in ops)
        real = all(op.result.type.dtype not in dtypes.COMPLEX for op in ops)
        wide = self.a.width >= DEPTH <= self.b.width and self.b.deep
        return known and real and wide and not self._plain(self.a) and self.facts.divides_extent(self.k, DEEPEST)

    def _sides(self) -> tuple[list[str], tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]]:
        """The dims m, k and n, and the operands, the large one first."""
        (m, k, n), (a, b) = super()._sides()
        few, many = (self.kernel.dims[d].block or 0 for d in (m, n))
        computed = b[0].op is None or b[0].op.name != "load_view"
        return ([n, k, m], (b, a)) if few < many or (few == many and computed) else ([m, k, n], (a, b))

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        columns = self.block[1]
        return (ROWS, columns), (1, columns * ROWS // (32 * WARPS))

    def generate(self) -> Generated:
        return super().generate()._replace(shared=self.warps * self.columns * ROWS * 4)

    def _residents(self) -> int:
        return 1

    def _threads(self) -> None:
        t, tid = self.t, self.tid
        self.lane = t.bin("and", tid, i32(31))
        self.number = t.bin("lshr", tid, i32(5))
        self.run = [1, 1]
        self.down = t.bin("and", tid, i32(ROWS - 1))
        self.across = t.bin("lshr", tid, i32(ROWS.bit_length() - 1))

    def _offset(self, index: int, axis: int) -> int:
        return index * (self.threads // ROWS)

    # -- operands -----------------------------------------------------------------------------------------------------
    def _feed(self, side: Side, count: int, extent: V) -> _Feed:
        """Find a thread's elements of an operand: so many rows."""
        t, e = self.t, self.e
        group = t.cast("zext", t.bin("lshr", self.lane, i32(2)), "i64")
        rows: list[V] = []
        for j in range(count):
            row = t.bin("add", group, i64(8 * j)) if side.deep else t.bin("add", t.bin("mul", group, i64(HIGH)), i64(j))
            # Those past the end are the first one, and go nowhere.
            rows.append(t.select(t.cmp("slt", row, extent), row, i64(0)))
        loads = [op for op in side.ops if op.name == "load_view" and self.k in op.result.type.extents]
        feed = _Feed(side, rows, [unit for op in loads for unit in self._divided(side, op, count)], {})
        for op in loads:
            pointer, _, strides, extents = view(op)
            size = dtypes.SIZE[pointer.type.dtype]
            along = t.bin("mul", e.integer(strides[extents.index(self.k)]), i64(size))
            turn = t.bin("mul", along, i64(self.warps * 4 * self.each))
            feed.starts[op] = e.address(op, {side.dim: i64(0), self.k: self.first}), turn
            for unit in feed.units:
                if unit.op is op:
                    unit.beyond = t.bin("mul", along, i64(unit.k))
                    if side.dim in extents:
                        across = t.bin("mul", e.integer(strides[extents.index(side.dim)]), i64(size))
                        unit.beyond = t.bin("add", unit.beyond, t.bin("mul", rows[unit.row], across))
        for row in rows:
            e.run([op for op in side.ops if op.result.type.extents == (side.dim,)], {side.dim: row})
        return feed

    def _divided(self, side: Side, op: ir.Op, count: int) -> list[_Unit]:
        both = side.dim in op.result.type.extents
        if side.deep or not both:
            width = min(max(1, self.facts.width(op, self.k)), self.each)
            ks = range(0, self.each, width)
            return [_Unit(op, j, i, width, True) for j in range(count if both else 1) for i in ks]
        width = min(max(1, self.facts.width(op, side.dim)), HIGH)
        return [_Unit(op, j, i, width, False) for i in range(self.each) for j in range(0, count, width)]

    def _fetch(self, feed: _Feed, place: int, turn: V, inside: V) -> None:
        """Load what the thread multiplies of a step."""
        t = self.t
        for op, (start, bytes_) in feed.starts.items():
            here = memory.at(t, start, t.bin("mul", turn, bytes_))
            for unit in feed.units:
                if unit.op is op:
                    assert unit.beyond is not None
                    words = memory.load_words(t, memory.at(t, here, unit.beyond), unit.dtype, unit.count, inside)
                    while len(unit.cells) <= place:
                        unit.cells.append([t.cell(w.ty) for w in words])
                    for cell, word in zip(unit.cells[place], words, strict=True):
                        t.set(cell, word)

    def _taken(self, feed: _Feed, place: int, ks: list[V], inside: V | None) -> list[list[V]]:
        """The elements of a step, two along k in a word, by row."""
        t, e, side = self.t, self.e, feed.side
        (value,) = side.values
        with e.scope():
            for unit in feed.units:
                words = [t.get(c, self._word_type(unit)) for c in unit.cells[place]]
                both = side.dim in unit.op.result.type.extents
                step = (0, 1) if unit.deep else (1, 0)
                places = [
                    {
                        self.k: ks[unit.k + i * step[1]],
                        **({side.dim: feed.rows[unit.row + i * step[0]]} if both else {}),
                    }
                    for i in range(unit.count)
                ]
                define_bytes(e, unit.op, words, places, side.ops)
            e.excess = True
            found: list[list[V]] = []
            for row in feed.rows:
                elements: list[Register] = []
                for k in ks:
                    where = {side.dim: row, self.k: k}
                    e.run(side.ops, where)
                    x = e(value, where)
                    assert isinstance(x, V)
                    elements.append(round_to(t, x, self.dtype))
                packed = memory.pack(t, elements, self.dtype, "i32")
                found.append(packed if inside is None else [t.select(inside, w, i32(0)) for w in packed])
            e.excess = False
        return found

    def _word_type(self, unit: _Unit) -> str:
        return memory.word(unit.dtype, unit.count * dtypes.SIZE[unit.dtype])[0]

    # -- a tile -------------------------------------------------------------------------------------------------------
    def _tile_at(self, origin: Sequence[V], extents: Sequence[V]) -> None:
        t, e = self.t, self.e
        step = 4 * self.each
        with e.scope():
            depth = e.integer(self.kernel.dims[self.k].size)
            steps = t.bin("udiv", t.bin("add", depth, i64(step - 1)), i64(step))
            warp = t.cast("zext", self.number, "i64")
            part = t.cast("zext", t.bin("mul", t.bin("and", self.lane, i32(3)), i32(self.each)), "i64")
            #: The thread's first element of k.
            self.first = t.bin("add", part, t.bin("mul", warp, i64(step)))
            a, b = self._feed(self.a, HIGH, extents[0]), self._feed(self.b, self.columns // 8, extents[1])
            nbytes = sum(u.count * dtypes.SIZE[u.dtype] for feed in (a, b) for u in feed.units)
            turns = max(2, AHEAD // (self.threads * nbytes))
            partial = [
                [[t.cell("float") for _ in range(4)] for _ in range(self.columns // 8)] for _ in range(HIGH // 2)
            ]
            for cell in (c for row in partial for cells in row for c in cells):
                t.set(cell, t.const(0.0, "float"))

            def fetch(place: int, turn: V) -> None:
                inside = t.cmp("slt", t.bin("add", self.first, t.bin("mul", turn, i64(self.warps * step))), depth)
                for feed in (a, b):
                    self._fetch(feed, place, turn, inside)

            for place in range(turns):
                fetch(place, i64(place))
            mine = t.bin("sub", t.bin("add", steps, i64(self.warps - 1)), warp)
            with t.for_(t.bin("udiv", mine, i64(self.warps)), turns) as base:
                for place in range(turns):
                    turn = t.bin("add", base, i64(place))
                    k = t.bin("add", self.first, t.bin("mul", turn, i64(self.warps * step)))
                    with t.if_(t.cmp("slt", t.bin("add", t.bin("mul", turn, i64(self.warps)), warp), steps)):
                        ks = [t.bin("add", k, i64(i)) for i in range(self.each)]
                        # Threads that have less of k than others.
                        inside = t.cmp("slt", k, depth) if step > DEEPEST else None
                        self._add_products(partial, *(self._taken(feed, place, ks, inside) for feed in (a, b)))
                        fetch(place, t.bin("add", turn, i64(turns)))
            sums = self._sums()
            self._join(partial, sums)
            self._finish(sums, origin, extents)

    def _add_products(self, sums: list[list[list[V]]], a: list[list[V]], b: list[list[V]]) -> None:
        t = self.t
        for p in range(0, self.each // 2, 2):
            for q, row in enumerate(sums):
                first, second = a[2 * q], a[2 * q + 1]
                words = [first[p], second[p], first[p + 1], second[p + 1]]
                for column, cells in zip(b, row, strict=True):
                    new = self._product(words, column[p : p + 2], [t.get(c, "float") for c in cells])
                    for cell, x in zip(cells, new, strict=True):
                        t.set(cell, x)

    def _join(self, partial: list[list[list[V]]], sums: list[list[list[V]]]) -> None:
        """Add the warps' sums, in their order, by way of shared memory."""
        t = self.t
        group, pair = t.bin("lshr", self.lane, i32(2)), t.bin("shl", t.bin("and", self.lane, i32(3)), i32(1))
        scale = 1 if self.a.deep else HIGH
        start = t.bin("add", t.bin("mul", group, i32(scale)), t.bin("mul", pair, i32(ROWS)))
        start = t.bin("add", start, t.bin("mul", self.number, i32(ROWS * self.columns)))
        place = lambda index: memory.at(t, V("@shared", SHARED), t.cast("zext", t.bin("shl", index, i32(2)), "i64"))
        mine = place(start)
        for q, row in enumerate(partial):
            for c, cells in enumerate(row):
                for k, cell in enumerate(cells):
                    half, column = divmod(k, 2)
                    high = (2 * q + half) * (8 if self.a.deep else 1)
                    at = memory.at(t, mine, 4 * (high + (8 * c + column) * ROWS))
                    t.store(t.get(cell, "float"), at, 4)
        t.line(BARRIER)
        own = place(t.bin("add", self.down, t.bin("mul", self.across, i32(ROWS))))
        for j in range(self.broad):
            total = None
            for warp in range(self.warps):
                at = memory.at(t, own, 4 * ROWS * (self.columns * warp + self._offset(j, 1)))
                x = t.load(at, "float", 4)
                total = x if total is None else t.bin("fadd", total, x)
            assert total is not None
            t.set(sums[0][j][0], total)


def define_bytes(e: Elements, op: ir.Op, words: list[V], places: Sequence[Where], ops: Sequence[ir.Op]) -> None:
    """Tell what was loaded; of small integers, as floats too, which arithmetic makes faster than conversions."""
    t, dtype = e.t, op.result.type.dtype
    for where, x in zip(places, memory.unpack(t, words, dtype, len(places)), strict=True):
        e.define(op.result, x, where)
    casts = [c for c in ops if c.name == "cast" and c.operands[0] is op.result and c.result.type.dtype in _EXACT]
    if dtype not in ("i8", "u8") or words[0].ty != "i32" or not casts:
        return
    # The upper bits of 2**23, whose lowest digit is 1.
    middle = 128 if dtype == "i8" else 0
    for i, where in enumerate(places):
        word = t.bin("xor", words[i // 4], i32(-0x7F7F7F80)) if middle else words[i // 4]
        bits = t.call("llvm.nvvm.prmt", "i32", [word, i32(0x4B000000), i32(0x7440 + i % 4)], "nounwind memory(none)")
        x = t.bin("fsub", t.op(f"bitcast {bits} to float", "float"), t.const(2.0**23 + middle, "float"))
        for cast in casts:
            e.define(cast.result, x, where)
