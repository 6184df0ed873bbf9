"""How a finished tile of a product goes from registers to memory on Hopper, through the ops after the product.

A warp has sixteen rows of a tile, and takes them along by blocks of columns.  What the copy engine can store goes to
boxes in shared memory, from where it is stored while the next blocks and the next tile are computed; the warps do not
wait for each other.  A matrix that is read where the result is written is brought into those boxes beforehand.  Rows
that begin anywhere are stored from boxes, too, by the warp (rows.py).  Other memory is accessed in predicated
instructions, those of a block loaded while the block before it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import dtypes, ir, ops
from ..llvm import math
from ..llvm.convert import Register, round_to
from ..llvm.text import V
from ..slices import slice_of
from . import memory, tensor_maps
from .elements import Where
from .layout import is_const, view
from .memory import i32, i64, join
from .rows import Box
from .tensor_maps import TensorMap

if TYPE_CHECKING:
    from .hopper import Hopper
    from .simt import Sums

#: Columns of a block, and rows of a warp.
BLOCK, HIGH = 64, 16
#: Bytes of a box's row, and of a box.
ROW, BOX = 128, 2048
#: Columns from one of a thread's pairs to the next.
APART = 8
#: Groups of warps, and threads of one.
GROUPS, GROUP = 2, 128


@dataclass(slots=True)
class Output:
    """A store, and how the copy engine does it, if it can."""

    op: ir.Op
    map: TensorMap | None
    #: Boxes that a block takes; without a map, the warp stores them.
    boxes: int = 0

    @property
    def dtype(self) -> str:
        return self.op.operands[1].type.dtype


class Epilogue:
    """Writes what becomes of a tile's sums."""

    def __init__(self, gemm: Hopper) -> None:
        self.gemm = gemm
        self.warps = gemm.rows // HIGH
        body = gemm.kernel.body
        stores = [op for op in body.ops if op.name == "store_view"]
        needed = slice_of([x for op in stores for x in op.operands], body, gemm.root.result)
        self.needed = [op for op in needed if op.result.type.extents and op.name != "reduce"]
        #: Stores of what rows are reduced to; reductions whose results are read for elements, with the ops before each.
        self.totals = [op for op in stores if (made := op.operands[0].op) is not None and made.name == "reduce"]
        read = {x for op in self.needed for x in op.operands}
        self.earlier = {op: self._before(op) for op in needed if op.name == "reduce" and op.result in read}
        late = {op.result for op in self.earlier}
        for op in self.needed:
            late.update([op.result] if late.intersection(op.operands) else [])
        #: Ops over rows, without and with such results.
        lines = [op for op in self.needed if op.result.type.extents == (gemm.m,)]
        self.lines = [[op for op in lines if (op.result in late) == behind] for behind in (False, True)]
        self.blocks = -(-gemm.columns // BLOCK)
        self.outputs: list[Output] = []
        each = 0
        for op in stores:
            if op in self.totals:
                continue
            output = self._output(op)
            if each + output.boxes > gemm.boxes:
                output = Output(op, None)
            each += output.boxes
            self.outputs.append(output)
        #: Boxes that a block of columns takes, and blocks that have boxes of their own.
        self.each = each
        self.turns = min(self.blocks, max(1, gemm.boxes // each)) if each else 0
        if not any(o.map for o in self.outputs):
            # Boxes that the warps store are free when the next block comes; stages take their place.
            self.turns = min(self.turns, 1)
        self.loads = [op for op in self.needed if self._direct(op)]
        #: Vectors along the columns that are copied to shared memory beforehand: bytes of a copy, and where they go.
        self.vectors: dict[ir.Op, tuple[int, int]] = {}
        length = 0
        for op in self.loads:
            if op.result.type.extents == (gemm.n,) and (piece := self._piece(op)):
                self.vectors[op] = piece, length
                length += gemm.columns * dtypes.SIZE[op.result.type.dtype]
        #: Bytes of boxes, and of a group's vectors, of which there are two sets.
        self.boxes, self.set = self.warps * self.turns * each * BOX, length
        self.nbytes = self.boxes + 2 * GROUPS * length
        self.brought, self.source = self._in_place()
        self.maps = [m for m in (*(o.map for o in self.outputs), self.source) if m is not None]

    def _before(self, reduction: ir.Op) -> list[ir.Op]:
        """The ops that a reduction of rows needs of each element."""
        ops_ = slice_of(reduction.operands[:1], self.gemm.kernel.body, self.gemm.root.result)
        return [op for op in ops_ if op.result.type.extents and op.name != "reduce"]

    # -- choices ------------------------------------------------------------------------------------------------------
    def _output(self, op: ir.Op) -> Output:
        gemm, dtype = self.gemm, op.operands[1].type.dtype
        if dtype not in ("f16", "bf16", "f32", "i32", "u32") or op.operands[0].type.extents != (gemm.m, gemm.n):
            return Output(op, None)
        size = dtypes.SIZE[dtype]
        found = tensor_maps.find(gemm.kernel, gemm.facts, op, (ROW // size, HIGH))
        if found is None or found.inner != gemm.n:
            return Output(op, None, int(size == 2 and is_const(view(op)[2][1], 1)))
        return Output(op, found, size * BLOCK // ROW)

    def _direct(self, op: ir.Op) -> bool:
        """Whether an op loads what is accessed at a tile's positions, and only there."""
        whole = {self.gemm.m, self.gemm.n}
        return (
            op.name == "load_view"
            and not op.attrs.get("bounded")
            and op.result.type.dtype not in dtypes.COMPLEX
            and {*op.result.type.extents} <= whole
        )

    def _piece(self, op: ir.Op) -> int:
        """Bytes of a vector along the columns that one copy takes; 0 if it cannot be copied."""
        facts, n, size = self.gemm.facts, self.gemm.n, dtypes.SIZE[op.result.type.dtype]
        width = facts.width(op, n)
        return next((b for b in (16, 4) if width * size >= b >= size and facts.divides_extent(n, b // size)), 0)

    def _in_place(self) -> tuple[ir.Op | None, TensorMap | None]:
        """A matrix that the copy engine brings to where the result will be, and how."""
        gemm = self.gemm
        if self.each == 1 and self.turns == self.blocks and all(o.map is not None for o in self.outputs):
            for op in self.loads:
                if len(op.result.type.extents) == 2 and op.result.type.dtype in ("f16", "bf16"):
                    found = tensor_maps.find(gemm.kernel, gemm.facts, op, (BLOCK, HIGH))
                    if found is not None and found.inner == gemm.n:
                        return op, found
        return None, None

    # -- before the tiles ---------------------------------------------------------------------------------------------
    def begin(self, offset: int, barriers: int) -> None:
        """Find the thread's places in the boxes, which begin at an offset.

        Parameters
        ----------
        barriers : int
            Offset of a barrier for each warp, of which one thread arrives.
        """
        gemm = self.gemm
        t, lane = gemm.t, gemm.lane
        self.first = t.cmp("eq", lane, i32(0))
        warp = t.bin("sub", t.bin("lshr", gemm.tid, i32(5)), i32(gemm.threads // 32 - self.warps))
        #: Rows of the tile before the warp's.
        self.above = t.bin("mul", warp, i32(HIGH))
        self.barrier = t.bin("add", gemm.base, t.bin("add", t.bin("shl", warp, i32(3)), i32(barriers)))
        self.parity = t.cell("i32")
        t.set(self.parity, i32(0))
        #: Where the group's vectors lie, and how far from there the present set of them.
        self.aside = t.bin("add", t.bin("mul", gemm.group, i32(2 * self.set)), i32(offset + self.boxes))
        self.turn = t.cell("i32")
        t.set(self.turn, i32(0))
        before = t.bin("add", t.bin("mul", warp, i32(self.turns * self.each * BOX)), i32(offset))
        self.here = t.bin("add", gemm.base, before)
        self.box = Box(t, lane, before)
        low = t.bin("and", lane, i32(7))
        place = lambda row, piece: t.bin(
            "add", t.bin("add", self.here, t.bin("mul", row, i32(ROW))), t.bin("shl", t.bin("xor", piece, low), i32(4))
        )
        row = t.bin("add", low, t.bin("and", lane, i32(8)))
        half = t.bin("lshr", lane, i32(4))
        #: Where fragments of 16 by 16 elements of 16 bits go.
        self.fragments = [place(row, t.bin("add", half, i32(2 * q))) for q in range(4)]
        # Pairs of floats: eight rows, of which four threads have eight columns each.
        row = low = t.bin("lshr", lane, i32(2))
        half = t.bin("lshr", t.bin("and", lane, i32(3)), i32(1))
        beyond = t.bin("shl", t.bin("and", lane, i32(1)), i32(3))
        self.pairs = [t.bin("add", place(row, t.bin("add", half, i32(2 * q))), beyond) for q in range(4)]

    # -- a tile -------------------------------------------------------------------------------------------------------
    def bring(self, when: V) -> None:
        """Have the copy engine bring the matrix that is read, `when` the tile before is behind."""
        gemm = self.gemm
        t = gemm.t
        if self.vectors:
            with t.if_(when):
                self._copy_vectors()
        if self.source is None:
            return
        with t.if_(t.bin("and", self.first, when)):
            gemm._act("cp.async.bulk.wait_group.read 0;")
            gemm._expect(self.barrier, self.blocks * BOX)
            for block in range(self.blocks):
                to = t.bin("add", self.here, i32(block * BOX))
                gemm._bring(gemm.names[self.source], to, self._box(self.source, block, 0), self.barrier)

    def _copy_vectors(self) -> None:
        """Begin to copy vectors along the columns; what is past the end is zero."""
        gemm = self.gemm
        t, e, columns = gemm.t, gemm.e, gemm.columns
        extent = gemm._extent(gemm.n)
        for op, (piece, start) in self.vectors.items():
            size = dtypes.SIZE[op.result.type.dtype]
            each = piece // size
            name = f"llvm.nvvm.cp.async.{'cg' if piece == 16 else 'ca'}.shared.global.{piece}.s"
            t.declare(name, "void", [memory.SHARED, memory.GLOBAL, "i32"])
            for first in range(0, columns // each, GROUP):
                number = t.bin("add", gemm.own, i32(first))
                column = t.cast("zext", t.bin("mul", number, i32(each)), "i64")
                inside = t.cmp("slt", column, extent)
                source = e.address(op, {gemm.n: t.select(inside, column, i64(0))})
                to = t.bin("add", self._vector(start), t.bin("mul", number, i32(piece)))
                with t.if_(t.cmp("ult", number, i32(columns // each)) if columns // each - first < GROUP else None):
                    count = t.select(inside, i32(piece), i32(0))
                    t.line(f"call void @{name}({self._at(to)}, {source}, {count})")

    def _vector(self, start: int) -> V:
        """The offset in shared memory of a vector of the present set."""
        t = self.gemm.t
        return t.bin("add", t.bin("add", self.aside, t.get(self.turn, "i32")), i32(start))

    def _at(self, offset: V) -> V:
        t = self.gemm.t
        return memory.at(t, V("@shared", memory.SHARED), t.cast("zext", offset, "i64"))

    def _await_vectors(self) -> None:
        """Wait for the group's vectors, and find the thread's columns in them."""
        gemm = self.gemm
        t = gemm.t
        self.found: dict[ir.Op, V] = {}
        if not self.vectors:
            return
        t.declare("llvm.nvvm.cp.async.wait.all", "void", [])
        t.line("call void @llvm.nvvm.cp.async.wait.all()")
        gemm._act("bar.sync $0, 128;", t.bin("add", gemm.group, i32(1)))
        for op, (_, start) in self.vectors.items():
            size = dtypes.SIZE[op.result.type.dtype]
            self.found[op] = self._at(t.bin("add", self._vector(start), t.bin("mul", gemm.across, i32(size))))
        t.set(self.turn, t.bin("sub", i32(self.set), t.get(self.turn, "i32")))

    def _box(self, map_: TensorMap, block: int, part: int) -> list[V]:
        """The coordinates of a part of a block of columns."""
        gemm = self.gemm
        t = gemm.t
        row = t.bin("add", t.cast("trunc", gemm.starts[gemm.m], "i32"), self.above)
        column = t.cast("trunc", gemm.starts[gemm.n], "i32")
        return map_.place(t.bin("add", column, i32(self._first(block) + part * map_.box[0])), row, gemm.programs)

    def prefetch(self) -> None:
        """Load what the first block needs, before the sums are there."""
        gemm = self.gemm
        t, e = gemm.t, gemm.e
        m, n = gemm.m, gemm.n
        e.excess = True
        self.addresses: dict[tuple[ir.Op, int, int], V] = {}
        self.masks: dict[tuple[int | None, int], V] = {}
        down, across = (t.cast("zext", x, "i64") for x in (gemm.down, gemm.across))
        self.rows = [down, t.bin("add", down, i64(8))]
        self.columns = [t.bin("add", across, i64(k // 2 * APART + k % 2)) if k else across for k in range(gemm.broad)]
        extents = [gemm._extent(d) for d in (m, n)]
        self.inside = [t.cmp("slt", row, extents[0]) for row in self.rows]
        self.left = t.cast("trunc", t.bin("sub", extents[1], across), "i32")
        if any(op.name in ("load_view", "load_ptr") and not self._direct(op) for op in self.needed):
            # What is past the end is read from the last row and column.
            self.rows, self.columns = (
                [t.call("llvm.smin.i64", "i64", [x, t.bin("sub", end, i64(1))]) for x in lined]
                for lined, end in zip((self.rows, self.columns), extents, strict=True)
            )
        for row, inside in zip(self.rows, self.inside, strict=True):
            for op in self.loads:
                if op.result.type.extents == (m,):
                    address = e.address(op, {m: row})
                    e.define(op.result, memory.load(t, address, op.result.type.dtype, 1, inside)[0], {m: row})
            e.run(self.lines[0], {m: row})
        self._fetch(0)
        e.excess = False

    def _fetch(self, block: int) -> None:
        """Load what a block needs."""
        gemm = self.gemm
        e, n = gemm.e, gemm.n
        if block == self.blocks:
            return
        for op in self.loads:
            if n not in op.result.type.extents or op is self.brought or op in self.vectors:
                continue
            for row in range(2):
                for pair in self._pairs(block):
                    places = [{gemm.m: self.rows[row], n: self.columns[k]} for k in pair]
                    if e.find(op.result, places[0]) is None:
                        for where, x in zip(places, self._load(op, row, pair), strict=True):
                            e.define(op.result, x, where)

    def _take_vectors(self, block: int) -> None:
        """Read a block of what was copied to shared memory."""
        gemm, n = self.gemm, self.gemm.n
        for op, place in self.found.items():
            dtype = op.result.type.dtype
            for pair in self._pairs(block):
                if gemm.e.find(op.result, {n: self.columns[pair[0]]}) is None:
                    at = memory.at(gemm.t, place, self._known(pair[0]) * dtypes.SIZE[dtype])
                    for k, x in zip(pair, memory.load(gemm.t, at, dtype, 2), strict=True):
                        gemm.e.define(op.result, x, {n: self.columns[k]})

    def _pairs(self, block: int) -> list[tuple[int, int]]:
        """A thread's pairs of columns in a block."""
        first = self._first(block) // APART
        return [(2 * k, 2 * k + 1) for k in range(first, first + BLOCK // APART)]

    def _first(self, block: int) -> int:
        """The first column of a block; the last block is whole, too, and may have some of the columns before again."""
        return min(block * BLOCK, self.gemm.columns - BLOCK)

    def _width(self, op: ir.Op) -> tuple[bool, int]:
        """Whether columns are neighbours in memory, and how many of them one access takes."""
        near = self.gemm.facts.width(op, self.gemm.n)
        return near > 0, 2 if near > 1 and self.gemm.facts.divides_extent(self.gemm.n, 2) else 1

    def _known(self, column: int) -> int:
        """Of a column, what the compiler knows of its distance from the thread's first one."""
        return column // 2 * APART + column % 2

    def _accesses(self, op: ir.Op, row: int, pair: tuple[int, int]) -> list[_Access]:
        """How a thread reads or writes two columns of one of its rows."""
        gemm = self.gemm
        near, width = self._width(op)
        pointer, _, _, extents = view(op)
        size = dtypes.SIZE[pointer.type.dtype]
        tall = gemm.m in extents
        found = []
        for i in range(0, 2, width):
            column = pair[i]
            address = self._address(op, row if tall else 0, 0 if near else column)
            mask = self._mask(row if tall else None, column)
            found.append(_Access(address, self._known(column) * size if near else 0, mask, width))
        return found

    def _address(self, op: ir.Op, row: int, column: int) -> V:
        """Where the element of a thread's row and column lies."""
        gemm, key = self.gemm, (op, row, column)
        t, e = gemm.t, gemm.e
        if key not in self.addresses and not column:
            self.addresses[key] = e.address(op, {gemm.m: self.rows[row], gemm.n: self.columns[0]})
        elif key not in self.addresses:
            pointer, _, strides, extents = view(op)
            step = e.integer(strides[extents.index(gemm.n)])
            distance = t.bin("mul", step, i64(self._known(column) * dtypes.SIZE[pointer.type.dtype]))
            self.addresses[key] = memory.at(t, self._address(op, row, 0), distance)
        return self.addresses[key]

    def _mask(self, row: int | None, column: int) -> V:
        """Whether a thread's column, and its row, is inside."""
        t, key = self.gemm.t, (row, column)
        if key not in self.masks:
            if row is None:
                self.masks[key] = t.cmp("sgt", self.left, i32(self._known(column)))
            else:
                self.masks[key] = t.bin("and", self.inside[row], self._mask(None, column))
        return self.masks[key]

    def _load(self, op: ir.Op, row: int, pair: tuple[int, int]) -> list[Register]:
        found: list[Register] = []
        for a in self._accesses(op, row, pair):
            found += memory.load(self.gemm.t, a.address, op.result.type.dtype, a.width, a.mask, a.beyond)
        return found

    def finish(self, sums: Sums) -> None:
        """Compute the tile and have it stored."""
        gemm = self.gemm
        t, e = gemm.t, gemm.e
        e.excess = True
        self.await_brought()
        self._await_vectors()
        self.sums: dict[tuple[ir.Op, int], V] = {}
        for op, before in self.earlier.items():
            self._reduce_rows(op, before, sums)
        for row in self.rows if self.earlier else ():
            e.run(self.lines[1], {gemm.m: row})
        for block in range(self.blocks):
            self._fetch(block + 1)
            self._take_vectors(block)
            if self.each and self.source is None:
                with t.if_(self.first):
                    gemm._act(f"cp.async.bulk.wait_group.read {self.turns - 1};")
                self._together()
            with e.scope():
                self._block(sums, block)
            self._send(block)
        for op in self.totals:
            for row in range(2):
                self._store_total(op, row)
        e.excess = False

    def await_brought(self) -> None:
        """Wait for the matrix that the copy engine brings."""
        if self.source is not None:
            t = self.gemm.t
            parity = t.get(self.parity, "i32")
            self.gemm._wait(self.barrier, parity)
            t.set(self.parity, t.bin("xor", parity, i32(1)))

    def clear(self) -> None:
        """Wait until nothing is under way from or to the boxes; what was brought is brought again, if it is needed."""
        self.await_brought()
        if self.each:
            with self.gemm.t.if_(self.first):
                self.gemm._act("cp.async.bulk.wait_group.read 0;")

    def end(self) -> None:
        """Wait until all is stored."""
        if self.each:
            with self.gemm.t.if_(self.first):
                self.gemm._act("cp.async.bulk.wait_group 0;")

    def _together(self) -> None:
        self.gemm._act("bar.warp.sync 0xffffffff;")

    def _places(self, block: int, q: int) -> list[tuple[int, tuple[int, int], list[dict[str, V]]]]:
        """The thread's rows and pairs of columns among 16 columns of a block, with the positions of each."""
        gemm = self.gemm
        return [
            (row, pair, [{gemm.m: self.rows[row], gemm.n: self.columns[k]} for k in pair])
            for pair in self._pairs(block)[2 * q : 2 * q + 2]
            for row in range(2)
        ]

    def _compute(self, sums: Sums, row: int, column: int, where: Where, needed: list[ir.Op]) -> None:
        """Compute ops at an element."""
        gemm = self.gemm
        registers = [gemm._narrowed(gemm.t.get(c, gemm._sum_type(0))) for c in sums[row][column]]
        gemm.e.define(gemm.root.result, join(registers), where)
        gemm.e.run(needed, where)

    def _block(self, sums: Sums, block: int) -> None:
        """Compute a block of columns, by 16 columns."""
        e = self.gemm.e
        for q in range(BLOCK // 16):
            words: dict[int, list[V]] = {number: [] for number in range(len(self.outputs))}
            places = self._places(block, q)
            with e.scope():
                self._take_brought(block, q, [where for _, _, where in places])
                for row, pair, wheres in places:
                    for k, where in zip(pair, wheres, strict=True):
                        self._compute(sums, row, k, where, self.needed)
                        for op in self.totals:
                            reduction = op.operands[0].op
                            assert reduction is not None
                            self._add_up(reduction, row, k, where)
                    for number, output in enumerate(self.outputs):
                        value = output.op.operands[0]
                        values = [e(value, w if value.type.extents else None) for w in wheres]
                        if not output.boxes:
                            self._store(output, values, wheres, row, pair)
                        else:
                            words[number] += self._packed(values, output.dtype)
            if self.each:
                for number, (output, box) in enumerate(self._boxes(block)):
                    self._stage(output, words[number], box, q)

    # -- reductions of rows -------------------------------------------------------------------------------------------
    def _reduce_rows(self, reduction: ir.Op, before: list[ir.Op], sums: Sums) -> None:
        """Reduce the thread's rows, for what is computed of their elements then."""
        gemm, e = self.gemm, self.gemm.e
        for block in range(self.blocks):
            self._fetch(block)
            self._take_vectors(block)
            for q in range(BLOCK // 16):
                places = self._places(block, q)
                with e.scope():
                    self._take_brought(block, q, [where for _, _, where in places])
                    for row, pair, wheres in places:
                        for k, where in zip(pair, wheres, strict=True):
                            self._compute(sums, row, k, where, before)
                            self._add_up(reduction, row, k, where)
        for row in range(2):
            e.define(reduction.result, self._total(reduction, row), {gemm.m: self.rows[row]})

    def _add_up(self, reduction: ir.Op, row: int, column: int, where: Where) -> None:
        """Take an element into what its row is reduced to."""
        t = self.gemm.t
        x = self.gemm.e(reduction.operands[0], where)
        identity = ops.TABLE[reduction.attrs["kind"]].identity
        assert isinstance(x, V) and identity is not None
        x = t.select(self._mask(None, column), x, t.const(identity("f32"), x.ty))
        before = self.sums.get((reduction, row))
        self.sums[reduction, row] = x if before is None else self._joined(reduction, before, x)

    def _joined(self, reduction: ir.Op, a: V, b: V) -> V:
        kind = ops.TABLE[reduction.attrs["kind"]].combine
        assert kind is not None
        found = math.emit(self.gemm.t, kind, [a, b], ["f32", "f32"], "f32", self.gemm.target)
        assert isinstance(found, V)
        return found

    def _total(self, reduction: ir.Op, row: int) -> V:
        """Join what the four threads of a row have."""
        t, total = self.gemm.t, self.sums[reduction, row]
        for step in (1, 2):
            args = [i32(-1), total, i32(step), i32(31)]
            other = t.call("llvm.nvvm.shfl.sync.bfly.f32", "float", args, "convergent nounwind")
            total = self._joined(reduction, total, other)
        return total

    def _store_total(self, op: ir.Op, row: int) -> None:
        """Store what a row is reduced to, by one of its threads."""
        gemm, (value, pointer, *_) = self.gemm, op.operands
        t, dtype = gemm.t, pointer.type.dtype
        assert value.op is not None
        total = self._total(value.op, row)
        mask = t.bin("and", self.inside[row], t.cmp("eq", t.bin("and", gemm.lane, i32(3)), i32(0)))
        address = gemm.e.address(op, {gemm.m: self.rows[row]})
        memory.store(t, [round_to(t, total, dtype)], address, dtype, mask)

    # -- boxes and other memory ---------------------------------------------------------------------------------------
    def _take_brought(self, block: int, q: int, places: list[list[dict[str, V]]]) -> None:
        """Read 16 columns of the matrix that the copy engine brought."""
        op, t = self.brought, self.gemm.t
        if op is None:
            return
        at = t.bin("add", self.fragments[q], i32(block * BOX))
        ty = "{i32, i32, i32, i32}"
        found = t.op(
            f'call {ty} asm sideeffect "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{$0, $1, $2, $3}}, [$4];", '
            f'"=r,=r,=r,=r,r,~{{memory}}"({at}) convergent nounwind', ty,
        )  # fmt: skip
        for k, wheres in enumerate(places):
            word = t.op(f"extractvalue {found}, {k}", "i32")
            for where, x in zip(wheres, memory.unpack(t, [word], op.result.type.dtype, 2), strict=True):
                self.gemm.e.define(op.result, x, where)

    def _packed(self, values: list[Register], dtype: str) -> list[V]:
        """Two elements as words."""
        t = self.gemm.t
        rounded: list[Register] = [round_to(t, v, dtype) for v in values if isinstance(v, V)]
        return memory.pack(t, rounded, dtype, "i32")

    def _stage(self, output: Output, words: list[V], box: int, q: int) -> None:
        """Put 16 columns into boxes of shared memory."""
        t, act = self.gemm.t, self.gemm._act
        if output.boxes == 1:
            at = t.bin("add", self.fragments[q], i32(box * BOX))
            act("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", at, *words)
        elif output.boxes == 2:
            for k in range(4):  # pairs of columns, and rows
                half, piece = divmod(2 * q + k // 2, 4)
                beyond = (box + half) * BOX + k % 2 * APART * ROW
                at = t.bin("add", self.pairs[piece], i32(beyond))
                act("st.shared.v2.b32 [$0], {$1, $2};", at, *words[2 * k : 2 * k + 2])

    def _store(
        self, output: Output, values: list[Register], places: Sequence[Where], row: int, pair: tuple[int, int]
    ) -> None:
        """Store two elements that are no part of a box."""
        t, e = self.gemm.t, self.gemm.e
        op, dtype = output.op, output.dtype
        rounded = [round_to(t, v, dtype) if isinstance(v, V) else v for v in values]
        for i, a in enumerate(self._accesses(op, row, pair)):
            stored = rounded[i * a.width : (i + 1) * a.width]
            if dtype in dtypes.COMPLEX:
                with t.if_(a.mask):
                    for k, x in enumerate(stored):
                        e.store([x], e.address(op, places[i * a.width + k]), dtype)
            else:
                memory.store(t, stored, a.address, dtype, a.mask, a.beyond)

    def _send(self, block: int) -> None:
        """Have the copy engine store a block."""
        gemm = self.gemm
        t = gemm.t
        if not self.each:
            return
        gemm._act("fence.proxy.async.shared::cta;")
        self._together()
        with t.if_(self.first):
            for output, box in self._boxes(block):
                for part in range(output.boxes if output.map is not None else 0):
                    assert output.map is not None
                    source = t.bin("add", self.here, i32((box + part) * BOX))
                    gemm._send(gemm.names[output.map], source, self._box(output.map, block, part))
            gemm._act("cp.async.bulk.commit_group;")
        for output, box in self._boxes(block):
            if output.boxes and output.map is None:
                self._send_rows(output.op, block, box)

    def _boxes(self, block: int) -> list[tuple[Output, int]]:
        """The outputs, and the first of the boxes of each."""
        first, found = block % self.turns * self.each, []
        for output in self.outputs:
            found.append((output, first))
            first += output.boxes
        return found

    def _send_rows(self, op: ir.Op, block: int, box: int) -> None:
        """Store a block of rows that the copy engine cannot store."""
        gemm = self.gemm
        t, e = gemm.t, gemm.e
        _, _, strides, _ = view(op)
        above, before = t.cast("zext", self.above, "i64"), i64(self._first(block))
        start = e.address(op, {gemm.m: above, gemm.n: before})
        rows, columns = (
            t.cast("trunc", t.bin("sub", gemm._extent(d), first), "i32")
            for d, first in ((gemm.m, above), (gemm.n, before))
        )
        self.box.store(start, t.bin("shl", e.integer(strides[0]), i64(1)), rows, columns, box * BOX)


class Direct:
    """The same for tiles of few columns, which every thread stores by itself."""

    nbytes = 0
    maps: Sequence[TensorMap] = ()

    def __init__(self, gemm: Hopper) -> None:
        self.gemm = gemm

    def begin(self, offset: int, barriers: int) -> None:
        pass

    def bring(self, when: V) -> None:
        pass

    def await_brought(self) -> None:
        pass

    def prefetch(self) -> None:
        pass

    def finish(self, sums: Sums) -> None:
        gemm = self.gemm
        gemm._finish(sums, [i64(0), i64(0)], [gemm._extent(d) for d in (gemm.m, gemm.n)])

    def clear(self) -> None:
        pass

    def end(self) -> None:
        pass


@dataclass(slots=True)
class _Access:
    """One instruction's: an address, bytes beyond it, whether it is in bounds, and its elements."""

    address: V
    beyond: int
    mask: V
    width: int
