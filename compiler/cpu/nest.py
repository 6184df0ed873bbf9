"""Code of one loop nest of tile ops: loops, loads, stores and the values between them.

The innermost positions run in vectors of `lanes` lanes.  A value that does not vary along the vectors' axis is a
scalar, and every value is computed in the outermost loop that it can be.  The last, partial vector of an axis is a copy
of the loop's body in which loads, stores and reductions mind the number of positions left; a heavy body is not copied,
but minds the number always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op, Value
from ..llvm.convert import Register, convert, memory_type, to_memory
from ..llvm.text import V, lanes
from . import ahead, scattered
from .loops import Counted, either
from .memory import address, i64, join, lane_numbers, parts, select, splat
from .reduction import Reduction, Scan
from .strips import Item, Nest, is_const, view
from .tails import Tail, tail_of
from .transpose import transpose
from .walk import Walk

if TYPE_CHECKING:
    from .codegen import Codegen, Slot

#: A row of this many bytes is read from two places at once, one of twice as many from four, and so on: memory is faster
#: when several pages are under way.
STREAM = 16 << 10
#: Most places that a row is read from, as a power of two.
STREAMS = 3
#: Work (in additions) from which a loop's body is not copied for the last vector: every vector is tested instead.
MERGE = 24


class Access:
    """Where a load, store or scratch tile is: an address of the nest's positions."""

    __slots__ = ("dtype", "pointer", "offset", "strides", "bounds", "level", "base", "padded", "panels")

    def __init__(
        self, dtype: str, pointer: V, offset: V | int, strides: dict[int, V | int], bounds: dict[int, V], padded: bool
    ) -> None:
        self.dtype = dtype
        self.pointer = pointer
        self.offset = offset
        #: By axis of the nest; a constant stride is an int.
        self.strides = strides
        self.bounds = bounds
        #: The loop in which the part of the address without the lanes' axis is known.
        self.level = -1
        self.base = pointer
        #: Whether vectors may run past the end.
        self.padded = padded
        #: The axis along which a scratch tile is in panels, and how wide they are.
        self.panels: tuple[int, int] | None = None

    def consecutive(self, axis: int) -> bool:
        """Whether elements along an axis lie side by side."""
        return self.strides[axis] == 1 if self.panels is None else self.panels[0] == axis


class NestCode:
    """Emits one nest."""

    def __init__(self, code: Codegen, nest: Nest, targets: dict[Value, Slot] | None = None) -> None:
        self.code = code
        #: Where to keep values, if not in their own slots.
        self.targets = targets or {}
        self.nest = nest
        self.t = code.t
        self.memory = code.memory
        self.rank = len(nest.extents)
        self.extents = [code.extent(e) for e in nest.extents]
        self.values: dict[Item, Register] = {}
        self.splats: dict[Item, Register] = {}
        #: By how much integers grow from lane to lane, where that was asked for.
        self.steps: dict[Item, int | None] = {}
        #: Current position along each axis, and the end of the innermost loop over it.
        self.positions: list[V] = [i64(0)] * self.rank
        self.ends = list(self.extents)
        #: Positions left for the vector, in a partial one.
        self.count: V | None = None
        #: Length and number of the pieces of a row that are read at once.
        self.pieces: tuple[V, V] | None = None
        walk = Walk(code, nest)
        self.lane, self.lanes, self.loops, self.across = walk.lane, walk.lanes, walk.loops, walk.across
        self.work, self.streamed = walk.work, walk.streamed
        self.merged = self.work >= MERGE and self.loops[-1].kind == "lane" and not self._is_whole()
        self.level_of = {loop.axis: k for k, loop in enumerate(self.loops)}
        self.effects = [op for op in nest.roots if not op.results or op.name in ("atomic", "histogram")]
        self.reductions = [Reduction(self, op) for op in nest.roots if op.name in ("reduce", "argreduce")]
        self.scans = {op: Scan(self, op) for op in nest.roots if op.name == "scan"}
        self.accesses: dict[Item | Op | Value, Access] = {}
        #: Loads that go through a transposed block: what they load from, and the block's access.
        self.transposed: list[tuple[Access, Access]] = []
        self.tail: Tail | None = None
        #: Where what is loaded will be loaded from in the next trip of the loop around.
        self.following: dict[Item, V] = {}

    def _is_whole(self) -> bool:
        """Whether all vectors are."""
        extent = self.nest.extents[self.lane]
        return isinstance(extent, int) and extent % self.lanes == 0

    # -- emission -----------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        self._place()
        for reduction in self.reductions:
            reduction.prepare()
        for op in self.effects:
            if op.name == "histogram":
                scattered.clear_counts(self, op)
        self.tail = tail_of(self)
        if self.tail is not None and self.streamed:
            self.streamed = self._widest() * int(self.nest.extents[self.lane]) >= STREAM
            self.tail = None if self.streamed else self.tail
        self._run()
        for reduction in self.reductions:
            reduction.finish()

    def _run(self) -> None:
        """The loops; for tiles that are whole, as most are, without tests of bounds, where that is worth the code."""
        t, nest = self.t, self.nest
        simple = self.rank > 1 and self.work < MERGE and not self.reductions and not self.scans
        if not simple or any(isinstance(e, str) for e in nest.extents):
            self.body(0)
            return
        for item in nest.items:
            if not item.where:
                self.code.scalar(item.value)  # so that its code is in neither branch
        whole: V | None = None
        for axis, bound in dict.fromkeys((a, b) for x in self.accesses.values() for a, b in x.bounds.items()):
            inside = t.cmp("sge", bound, self.extents[axis])
            whole = inside if whole is None else t.bin("and", whole, inside)
        if whole is not None:
            with t.if_(t.bin("xor", whole, V("true", "i1"))):
                self.body(0)
        for access in self.accesses.values():
            access.bounds = {}
        self.tail = None
        keeps = nest.keeps
        nest.keeps = [v for v in keeps if v not in self.code.direct]
        if nest.keeps or nest.roots:
            with t.if_(whole):
                self.body(0)
        for value in keeps:
            if value in self.code.direct:
                self._read_in_place(value, whole)
        nest.keeps = keeps

    def _read_in_place(self, value: Value, whole: V | None) -> None:
        """Let the tile's slot be where it was loaded from, if that is whole (None: it is)."""
        t, there, slot = self.t, self.accesses[self.nest.item(value)], self.code.slots[value]
        base, stride = address(t, there.pointer, _integer(there.offset), slot.dtype), _integer(there.strides[0])
        if whole is not None:
            base = t.select(whole, base, slot.base)
            stride = t.select(whole, stride, _integer(slot.strides[0]))
        self.code.slots[value] = replace(slot, base=base, strides=(stride, 1))

    def _place(self) -> None:
        """Decide in which loop each value is computed, and find the accesses."""
        for item in self.nest.items:
            item.level = max([self.level_of[a] for a in item.axes], default=-1)
            op = item.value.op
            if item.kept:
                self.accesses[item] = self.slot_access(self.code.slot(item.value), dict(enumerate(item.where)))
            elif item.where and op is not None and op.name == "load_view":
                access = self._view_access(op, item.where)
                self.accesses[item] = self._through_block(access) if self._is_transposed(access) else access
                there = ahead.following_row(self.code, op)
                if there is not None:
                    self.following[item] = there
            for arg in item.args:
                arg.shared |= self.lane in item.axes and self.lane not in arg.axes
        for op in self.effects:
            if op.name == "store_view":
                self.accesses[op] = self._view_access(op, tuple(range(self.rank)))
            if op.name == "atomic" and self.rank and self.code.readers.get(op.result):
                slot = self.code.slot(op.result, innermost=self.lane)
                self.accesses[op] = self.slot_access(slot, dict(enumerate(range(self.rank))))
            for value in op.operands if self.rank else ():
                if value.type.extents:
                    item = self.nest.item(value)
                    item.shared |= self.lane not in item.axes
        for value in self.nest.keeps:
            slot = self.targets.get(value) or self.code.slot(value, innermost=self.lane)
            self.accesses[value] = self.slot_access(slot, dict(enumerate(range(self.rank))))
        for access in self.accesses.values():
            axes = [a for a, s in access.strides.items() if a != self.lane and s != 0]
            axes += [a for a in access.bounds if a != self.lane]
            access.level = max([self.level_of[a] for a in axes], default=-1)

    def _is_transposed(self, access: Access) -> bool:
        if self.across is None or access.bounds or dtypes.SIZE[access.dtype] > 8:
            return False
        return access.strides.get(self.across) == 1 and access.strides.get(self.lane, 0) not in (0, 1)

    def _through_block(self, access: Access) -> Access:
        """An access to a buffer that holds the present block of another one, transposed."""
        assert self.across is not None
        block = self._block()
        buffer = self.memory.alloca(f"[{block * block * dtypes.SIZE[access.dtype]} x i8]")
        inner = Access(access.dtype, buffer, 0, {self.across: block, self.lane: 1}, {}, True)
        self.transposed.append((access, inner))
        return inner

    def _block(self) -> int:
        return next(loop.step for loop in self.loops if loop.kind == "block")

    def _transpose(self, source: Access, inner: Access) -> None:
        """Where both loops over blocks are open: fill the buffer."""
        t, across, lane, block = self.t, self.across, self.lane, self._block()
        assert across is not None
        left, top = self.positions[across], self.positions[lane]
        stride = _integer(source.strides[lane])
        start = address(t, self.base(source, but=across), t.bin("add", t.bin("mul", top, stride), left), source.dtype)
        rows, columns = t.bin("sub", self.ends[lane], top), t.bin("sub", self.ends[across], left)
        size = dtypes.SIZE[source.dtype]
        transpose(t, start, stride, rows, columns, inner.pointer, block, size, self.code.target.vector_bytes)
        corner = t.bin("add", t.bin("mul", left, i64(block)), top)
        inner.offset = t.bin("sub", i64(0), corner)

    def _view_access(self, op: Op, where: tuple[int, ...]) -> Access:
        ptr, offset, strides, bounds = view(op)
        extents = (op.result if op.results else op.operands[0]).type.extents
        integer = self.code.integer
        start = 0 if is_const(offset, 0) else integer(offset)
        return Access(
            ptr.type.dtype,
            integer(ptr),
            start,
            {a: _stride(s, integer) for a, s in zip(where, strides, strict=True)},
            {a: integer(b) for a, b, e in zip(where, bounds, extents, strict=False) if not _covers(b, e)},
            False,
        )

    def slot_access(self, slot: Slot, where: dict[int, int]) -> Access:
        """A scratch tile whose extent k is the nest's axis where[k]."""
        strides = {a: slot.strides[k] for k, a in where.items()}
        access = Access(slot.dtype, slot.base, 0, strides, {}, strides.get(self.lane) == 1)
        if slot.panel:
            access.panels = where[len(slot.strides) - 1], slot.panel
            access.padded = access.consecutive(self.lane)
        return access

    def body(self, k: int) -> None:
        """What is inside the first k loops."""
        t = self.t
        if self.transposed and k and self.loops[k - 1].kind == "block" and self.loops[k - 1].axis == self.lane:
            for source, inner in self.transposed:
                self._transpose(source, inner)
        for access in self.accesses.values():
            if access.level == k - 1:
                access.base = self.base(access)
        for item in self.nest.items:
            if item.level == k - 1:
                self.values[item] = value = self._compute(item)
                if item.shared:
                    self.splats[item] = splat(t, value, self.lanes)
        for reduction in self.reductions:
            reduction.open(k)
        for scan in self.scans.values():
            scan.open(k)
        if k < len(self.loops):
            self._loop(k)
        else:
            self._innermost()
        for reduction in self.reductions:
            reduction.close(k)

    def _loop(self, k: int) -> None:
        if self.streamed and self.loops[k].axis == self.lane and all(loop.axis != self.lane for loop in self.loops[:k]):
            self._stream(k)
        else:
            self._run_loop(k)

    def _stream(self, k: int) -> None:
        """Walk a row in several pieces at once, then the rest of it."""
        t, axis = self.t, self.lane
        size = self.ends[axis]
        shift = i64(0)
        for doubling in range(STREAMS):
            long = t.cmp("sge", size, i64((STREAM << doubling) // self._widest()))
            shift = t.bin("add", shift, t.cast("zext", long, "i64"))
        whole = t.bin("and", t.bin("lshr", size, shift), i64(-self.lanes))
        piece = t.select(t.cmp("eq", shift, i64(0)), i64(0), whole)
        self.pieces = piece, t.bin("shl", i64(1), shift)
        self.ends[axis] = piece
        self._run_loop(k)
        self.pieces = None
        self.positions[axis], self.ends[axis] = t.bin("shl", piece, shift), size
        self._run_loop(k)
        self.positions[axis] = i64(0)

    def _widest(self) -> int:
        """Bytes of the largest element that is loaded."""
        loads = [
            item.value for item in self.nest.items if item.value.op is not None and item.value.op.name == "load_view"
        ]
        return max(dtypes.SIZE[value.type.dtype] for value in loads)

    def _run_loop(self, k: int) -> None:
        t, loop = self.t, self.loops[k]
        start, end = self.positions[loop.axis], self.ends[loop.axis]
        inside = any(outer.axis == loop.axis for outer in self.loops[:k])  # a block has positions
        if loop.kind == "block":
            step = i64(loop.step >> (STREAMS if self.pieces is not None else 0))
            with Counted(self.t, start, end, step, inside) as position:
                self.positions[loop.axis] = position
                stop = t.bin("add", position, step)
                self.ends[loop.axis] = t.call("llvm.smin.i64", "i64", [stop, end])
                self.body(k + 1)
        elif loop.kind == "step":
            with Counted(self.t, start, end, i64(1), inside) as position:
                self.positions[loop.axis] = position
                self.body(k + 1)
        else:
            self._lane_loop(k, start, end)
        self.positions[loop.axis], self.ends[loop.axis] = start, end

    def _lane_loop(self, k: int, start: V, end: V) -> None:
        t, axis = self.t, self.loops[k].axis
        if self._is_map():
            self._map_loop(end)
            return
        if self.pieces is not None:
            piece, count = self.pieces
            with Counted(t, start, end, i64(self.lanes)) as first, Counted(t, i64(0), count, i64(1), True) as number:
                self.positions[axis] = t.bin("add", first, t.bin("mul", number, piece))
                self.body(k + 1)
            return
        if self.merged:
            with Counted(t, start, end, i64(self.lanes)) as position:
                self.positions[axis] = position
                self.count = t.bin("sub", end, position)
                self.memory.remember(self.count, self.lanes)
                self.body(k + 1)
                self.count = None
            return
        if self.tail is not None:
            self.tail.run(k, start, end)
            return
        size = t.bin("sub", end, start) if start.ref != "0" else end
        whole = t.bin("and", size, i64(-self.lanes))
        last = t.bin("add", start, whole) if start.ref != "0" else whole
        with Counted(self.t, start, last, i64(self.lanes)) as position:
            self.positions[axis] = position
            self.body(k + 1)
        if self._is_whole():
            return
        with t.if_(t.cmp("slt", last, end)):
            self.positions[axis] = last
            self.count = t.bin("sub", end, last)
            self.memory.remember(self.count, self.lanes)
            self.body(k + 1)
            self.count = None

    def _is_map(self) -> bool:
        """Whether all that the nest does is to load, compute and store elements of a long axis, side by side."""
        nest = self.nest
        (extent,) = nest.extents if self.rank == 1 else (0,)
        if not isinstance(extent, str) or self.code.kernel.dims[extent].block is None or nest.keeps:
            return False
        if any(op.name != "store_view" for op in nest.roots):
            return False
        if any(i.where and i.value.op is not None and i.value.op.name in ("iota", "load_ptr") for i in nest.items):
            return False
        steps = {access: access.strides.get(self.lane, 0) for access in self.accesses.values()}
        plain = all(not a.padded and not a.bounds and step in (0, 1) for a, step in steps.items())
        return plain and all(steps[self.accesses[op]] == 1 for op in self.effects)

    def _map_loop(self, end: V) -> None:
        """The loop of a map: over the whole vectors, then once more over a copy of the elements that are left.

        So the body is there once, and knows nothing of partial vectors.
        """
        t, memory, n = self.t, self.memory, self.lanes
        whole = t.bin("and", end, i64(-n))
        rest = t.bin("sub", end, whole)
        entry = t.block
        turn, fill, finish, back, done = [t.new_label(x) for x in ("turn", "fill", "finish", "back", "mapped")]
        t.br(turn)
        t.label(turn)
        last = t.phi("i64", (whole, entry), (i64(n), fill))
        left = t.phi("i64", (rest, entry), (i64(0), fill))
        moved: list[tuple[Access, V, V]] = []
        for access in self.accesses.values():
            if access.strides.get(self.lane, 0) == 1:
                buffer = memory.alloca(f"[{n * dtypes.SIZE[access.dtype]} x i8]")
                moved.append((access, access.base, buffer))
                access.base = t.phi("ptr", (access.base, entry), (buffer, fill))
        with Counted(t, i64(0), last, i64(n)) as position:
            self.positions[self.lane] = position
            self.body(len(self.loops))
        t.br_if(t.cmp("sgt", left, i64(0)), fill, finish)
        t.label(fill)
        stores = [self.accesses[op] for op in self.effects]
        for access, base, buffer in moved:
            if access not in stores:
                size = dtypes.SIZE[access.dtype]
                memory.clear(buffer, n * size)
                memory.copy(buffer, address(t, base, whole, access.dtype), t.bin("mul", rest, i64(size)))
        t.br(turn)
        t.label(finish)
        t.br_if(t.cmp("sgt", rest, i64(0)), back, done)
        t.label(back)
        for access, base, buffer in moved:
            if access in stores:
                size = dtypes.SIZE[access.dtype]
                memory.copy(address(t, base, whole, access.dtype), buffer, t.bin("mul", rest, i64(size)))
        t.br(done)
        t.label(done)

    def _innermost(self) -> None:
        for reduction in self.reductions:
            reduction.update()
        for value in self.nest.keeps:
            access = self.accesses[value]
            reg = self.full(self.nest.item(value))
            self.store(access, convert(self.t, reg, value.type.dtype, access.dtype))
        for op in self.effects:
            self._effect(op)

    def fill(self, slot: Slot, value: object) -> None:
        """Set all of a scratch tile."""
        n = self.lanes
        constant = self.code.constant(value, slot.dtype, n)
        with Counted(self.t, i64(0), slot.size, i64(n)) as position:
            self.memory.store(slot.dtype, constant, address(self.t, slot.base, position, slot.dtype))

    def scan_item(self, op: Op) -> Item:
        return self.nest.table[op.result, tuple(range(self.rank))]

    # -- values -------------------------------------------------------------------------------------------------------
    def full(self, item: Item) -> Register:
        """The value at the nest's lanes, splat if uniform."""
        if self.lane in item.axes or not self.rank:
            return self.values[item]
        found = self.splats.get(item)
        return found if found is not None else splat(self.t, self.values[item], self.lanes)

    def _compute(self, item: Item) -> Register:
        code, t, op = self.code, self.t, item.value.op
        if not item.where:
            return code.scalar(item.value)
        vectorised = self.lane in item.axes
        n = self.lanes if vectorised else 0
        if item.kept:
            found = self.load(self.accesses[item], n)
            return convert(t, found, self.accesses[item].dtype, item.value.type.dtype)
        assert op is not None
        if op.name == "iota":
            position = self.positions[item.where[0]]
            return t.bin("add", t.splat(position, n), lane_numbers(n)) if n else position
        if op.name == "load_view":
            if item in self.following:
                ahead.fetch_vector(self.code, self.following[item], self.positions[self.lane], op.result.type.dtype, n)
            return self.load(self.accesses[item], n, op.attrs.get("other", 0))
        if n and op.name == "cast" and item.value.type.dtype == "i32" and _is_iota(item.args[0]):
            # The positions need not be wide first.
            first = t.cast("trunc", self.positions[self.lane], "i32")
            return t.bin("add", t.splat(first, n), lane_numbers(n, "i32"))
        args = [self.full(a) if vectorised else self.values[a] for a in item.args]
        if op.name == "load_ptr":
            return scattered.gather(self, item, args, n)
        if op.name == "gather":
            return scattered.pick(self, op, args[0], n)
        if op.name == "scan":
            return self.scans[op].step(args[0])
        return code.apply(op, args, n)

    # -- addresses ----------------------------------------------------------------------------------------------------
    def base(self, access: Access, but: int | None = None) -> V:
        """The address at position 0 of the lanes' axis, and of `but`."""
        t = self.t
        index = access.offset
        for axis, stride in access.strides.items():
            if axis in (self.lane, but) or stride == 0:
                continue
            step = self._step(access, axis)
            index = step if index == 0 else t.bin("add", _integer(index), step)
        return access.pointer if index == 0 else address(t, access.pointer, _integer(index), access.dtype)

    def _step(self, access: Access, axis: int) -> V:
        """How many elements the present position along an axis is from the first one."""
        t, position, stride = self.t, self.positions[axis], access.strides[axis]
        if access.panels is None or access.panels[0] != axis:
            return position if stride == 1 else t.bin("mul", position, _integer(stride))
        within = t.bin("and", position, i64(access.panels[1] - 1))
        return t.bin("add", t.bin("mul", t.bin("sub", position, within), _integer(stride)), within)

    def _left(self, access: Access, n: int) -> V | None:
        """How many lanes are in memory; None: all."""
        t = self.t
        count = None if access.padded else self.count
        for axis, bound in access.bounds.items():
            if axis == self.lane and n:
                left = t.bin("sub", bound, self.positions[axis])
                count = left if count is None else t.call("llvm.smin.i64", "i64", [left, count])
        outside = self._outside(access, n)
        if outside is not None:
            count = t.select(outside, i64(0), count if count is not None else i64(n))
        return count

    def _outside(self, access: Access, n: int) -> V | None:
        """Whether a position other than the lanes' is out of bounds."""
        t, found = self.t, None
        for axis, bound in access.bounds.items():
            if axis != self.lane or not n:
                out = t.cmp("sge", self.positions[axis], bound)
                found = out if found is None else t.bin("or", found, out)
        return found

    # -- loads --------------------------------------------------------------------------------------------------------
    def load(self, access: Access, n: int, other: object = 0) -> Register:
        t = self.t
        if not n:
            where = self._scalar_address(access)
            outside = self._outside(access, n)
            if outside is None:
                return self.memory.load(access.dtype, where, 0)
            found = self.memory.load(access.dtype, t.select(outside, self.memory.nothing(), where), 0)
            return select(t, outside, self.code.constant(other, access.dtype, 0), found)
        count = self._left(access, n)
        if count is None or not (access.bounds or self.merged):
            return self._load_lanes(access, n, count)

        def some() -> Register:
            found = self._load_lanes(access, n, count)
            if not other and (not access.bounds or access.strides[self.lane] == 1):
                return found
            # Lanes that do not lie side by side repeat what is in memory.
            return select(t, self.memory.mask(count, n), found, self.code.constant(other, access.dtype, n))

        # Most vectors are whole.
        return either(t, t.cmp("sge", count, i64(n)), lambda: self._load_lanes(access, n, None), some)

    def _load_lanes(self, access: Access, n: int, count: V | None) -> Register:
        t, dtype = self.t, access.dtype
        stride, position = access.strides[self.lane], self.positions[self.lane]
        if stride == 0:
            where = access.base
            if count is not None:
                where = t.select(t.cmp("sgt", count, i64(0)), where, self.memory.nothing())
            return splat(t, self.memory.load(dtype, where, 0), n)
        if stride == 1:
            return self.memory.load(dtype, address(t, access.base, position, dtype), n, count)
        if stride == -1 and count is None:
            last = t.bin("sub", i64(1 - n), position)
            found = self.memory.load(dtype, address(t, access.base, last, dtype), n)
            poison = [V("poison", v.ty) for v in parts(found)]
            return join([t.shuffle(v, p, range(n - 1, -1, -1)) for v, p in zip(parts(found), poison, strict=True)])
        pointers = self._lane_addresses(access, n, count)
        return self.memory.load_each(dtype, pointers)

    def _lane_addresses(self, access: Access, n: int, count: V | None) -> list[V]:
        """The lanes' addresses; those of lanes out of memory repeat the last good one's."""
        t, dtype = self.t, access.dtype
        stride = _integer(access.strides[self.lane])
        pointer = address(t, access.base, t.bin("mul", self.positions[self.lane], stride), dtype)
        if count is not None:
            pointer = t.select(t.cmp("sgt", count, i64(0)), pointer, self.memory.nothing())
        found = [pointer]
        for lane in range(1, n):
            step = stride
            if count is not None:
                step = t.select(t.cmp("sgt", count, i64(lane)), stride, i64(0))
            pointer = address(t, pointer, step, dtype)
            found.append(pointer)
        return found

    def _scalar_address(self, access: Access) -> V:
        if access.strides.get(self.lane, 0) == 0:
            return access.base
        return address(self.t, access.base, self._step(access, self.lane), access.dtype)

    # -- effects ------------------------------------------------------------------------------------------------------
    def operand(self, value: Value) -> Register:
        if not self.rank:
            return self.code.scalar(value)
        return self.full(self.nest.item(value))

    def _effect(self, op: Op) -> None:
        if op.name == "store_view":
            self.store(self.accesses[op], self.operand(op.operands[0]))
        else:
            scattered.effect(self, op)

    def store(self, access: Access, value: Register) -> None:
        t, n, dtype = self.t, lanes(parts(value)[0].ty), access.dtype
        if not n:
            self.memory.store(dtype, value, self._scalar_address(access))
            return
        count = self._left(access, n)
        if count is None or not (access.bounds or self.merged):
            self._store_lanes(access, value, count)
            return
        with t.if_else(t.cmp("sge", count, i64(n))) as turn:
            self._store_lanes(access, value, None)
            next(turn)
            self._store_lanes(access, value, count)

    def _store_lanes(self, access: Access, value: Register, count: V | None) -> None:
        t, n, dtype = self.t, self.lanes, access.dtype
        where = address(t, access.base, self._step(access, self.lane), dtype)
        if access.consecutive(self.lane):
            self.memory.store(dtype, value, where, count)
            return
        step = _integer(access.strides[self.lane])
        if count is None:
            for lane in range(n):
                self.memory.store(dtype, join([t.extract(v, lane) for v in parts(value)]), where)
                where = address(t, where, step, dtype)
            return
        spilled = self.spill(value, dtype)
        with Counted(self.t, i64(0), t.call("llvm.smin.i64", "i64", [count, i64(n)]), i64(1)) as lane:
            to = address(t, where, t.bin("mul", lane, step), dtype)
            self.memory.store(dtype, self.lane_of(spilled, dtype, lane), to)

    def spill(self, value: Register, dtype: str) -> list[V]:
        """The lanes of a value in stack buffers, to be indexed at run time."""
        buffers = []
        for v in parts(to_memory(self.t, value, dtype)):
            buffer = self.memory.alloca(v.ty)
            self.t.store(v, buffer, 64)
            buffers.append(buffer)
        return buffers

    def lane_of(self, spilled: list[V], dtype: str, lane: V) -> Register:
        part = dtypes.PART.get(dtype, dtype)
        elem = memory_type(dtype)
        return join([parts(self.memory.load(part, self.t.gep(b, lane, elem), 0))[0] for b in spilled])


def _covers(bound: Value, extent: int | str) -> bool:
    """Whether a bound lets all of an extent through."""
    op = bound.op
    return isinstance(extent, int) and op is not None and op.name == "const" and op.attrs["value"] >= extent


def _is_iota(item: Item) -> bool:
    return not item.kept and item.value.op is not None and item.value.op.name == "iota"


def _integer(x: V | int) -> V:
    return x if isinstance(x, V) else i64(x)


def _stride(value: Value, integer: Callable[[Value], V]) -> V | int:
    """A stride: an int if constant."""
    if value.op is not None and value.op.name == "const":
        return value.op.attrs["value"]
    return integer(value)
