"""Reductions, argreductions and scans inside a loop nest.

A reduction's accumulator lives in registers in the innermost run of loops over reduced axes.  If an outer loop is over
a reduced axis too (rows outside, columns inside), what the run gave is joined into scratch.  Floating-point sums have
an accumulator for every loop of the run, so that rounding errors grow slowly.  The order of all additions depends on
extents alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes, ops
from ..ir import Op
from ..llvm.convert import Register, convert, register_type
from ..llvm.text import V, lanes
from .loops import Counted
from .memory import address, i64, join, parts, select, splat

if TYPE_CHECKING:
    from .codegen import Slot
    from .nest import Access, NestCode

_LAST = 2**63 - 1


class Reduction:
    """One `reduce` or `argreduce` of a nest.

    Its state is a list of register values: the accumulator, and for an argreduce the winner's index.
    """

    def __init__(self, nest: NestCode, op: Op) -> None:
        self.nest = nest
        self.op = op
        self.reduced = frozenset(op.attrs["dims"])
        row = ops.TABLE[op.attrs["kind"]]
        assert row.combine is not None and row.identity is not None
        dtype = op.operands[0].type.dtype
        if dtype in dtypes.NARROW and row.combine in ("add", "multiply"):
            dtype = "f32"
        self.dtypes = [dtype, "i64"] if op.name == "argreduce" else [dtype]
        self.combiner = row.combine
        self.identity = [row.identity(dtype), _LAST][: len(self.dtypes)]
        #: The first loop of the run in which accumulators are in registers.
        self.start = len(nest.loops)
        while self.start and nest.loops[self.start - 1].axis in self.reduced:
            self.start -= 1
        self.outer = any(loop.axis in self.reduced for loop in nest.loops[: self.start])
        self.across = nest.lane in self.reduced
        levels = range(self.start, len(nest.loops)) if self.blocked(op) else range(self.start, self.start + 1)
        #: Stack slots that hold the state, by loop.
        self.levels = {k: self._allocas(0 if not nest.rank else nest.lanes) for k in levels}
        self.result: list[list[V]] = []
        self.slots: list[Slot] = []
        self.accesses: list[Access] = []
        #: More accumulators in scratch, by the loop whose rows they hold.
        self.partial: dict[int, Slot] = {}

    @staticmethod
    def blocked(op: Op) -> bool:
        """Whether the order of joining matters to accuracy."""
        return (
            op.name == "reduce"
            and op.attrs["kind"] in ("sum", "prod")
            and op.operands[0].type.dtype not in (dtypes.INTEGER)
        )

    # -- states -------------------------------------------------------------------------------------------------------
    def _allocas(self, n: int) -> list[list[V]]:
        """A stack slot for each LLVM value of the state."""
        return [
            [self.nest.memory.alloca(register_type(d, n)) for _ in range(2 if d in dtypes.COMPLEX else 1)]
            for d in self.dtypes
        ]

    def _read(self, cells: list[list[V]], n: int) -> list[Register]:
        t = self.nest.t
        return [
            join([t.load(cell, register_type(d, n), 64) for cell in group])
            for d, group in zip(self.dtypes, cells, strict=True)
        ]

    def _write(self, cells: list[list[V]], state: list[Register]) -> None:
        for group, reg in zip(cells, state, strict=True):
            for cell, v in zip(group, parts(reg), strict=True):
                self.nest.t.store(v, cell, 64)

    def state(self) -> list[Register]:
        """The accumulator of the innermost loop."""
        return self._read(self.levels[max(self.levels)], self.nest.lanes)

    def neutral(self, n: int) -> list[Register]:
        return [self.nest.code.constant(x, d, n) for x, d in zip(self.identity, self.dtypes, strict=True)]

    def join(self, a: list[Register], b: list[Register]) -> list[Register]:
        """The state of a's elements and b's together."""
        if self.op.name == "reduce":
            d = self.dtypes[0]
            return [self.nest.code.combine(self.combiner, [a[0], b[0]], [d, d], d)]
        better = self._better(a, b)
        return [select(self.nest.t, better, y, x) for x, y in zip(a, b, strict=True)]

    def _better(self, a: list[Register], b: list[Register]) -> V:
        """Where b beats a: a NaN beats numbers, then the extreme value, then the lower index."""
        code, t, dtype = self.nest.code, self.nest.t, self.dtypes[0]

        def compare(name: str, x: Register, y: Register) -> V:
            (found,) = parts(code.combine(name, [x, y], [dtype, dtype], "bool"))
            return found

        beyond = compare("greater" if self.op.attrs["kind"] == "argmax" else "less", b[0], a[0])
        level = compare("equal", a[0], b[0])
        if dtype in dtypes.FLOAT or dtype in dtypes.COMPLEX:
            (nan_a,), (nan_b,) = (parts(code.combine("isnan", [x[0]], [dtype], "bool")) for x in (a, b))
            fresh = t.bin("and", nan_b, t.bin("xor", nan_a, t.like(True, nan_a)))
            # Where a part is NaN a complex comparison may still say something.
            beyond = t.bin("or", fresh, t.bin("and", beyond, t.bin("xor", nan_a, t.like(True, nan_a))))
            level = t.bin("or", level, t.bin("and", nan_a, nan_b))
        ia, ib = parts(a[1])[0], parts(b[1])[0]
        return t.bin("or", beyond, t.bin("and", level, t.cmp("slt", ib, ia)))

    def _across_lanes(self, state: list[Register]) -> list[Register]:
        """Join the lanes, in a fixed tree."""
        t = self.nest.t
        n = lanes(parts(state[0])[0].ty)
        while n > 1:
            n //= 2
            halves = [[join([t.shuffle(v, V("poison", v.ty), range(at, at + n)) for v in parts(reg)]) for reg in state]
                      for at in (0, n)]  # fmt: skip
            state = self.join(halves[0], halves[1])
        return [join([t.extract(v, 0) for v in parts(reg)]) for reg in state]

    # -- emission, in this order --------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Before the loops: find scratch, and fill it if the loops join into it."""
        nest, code = self.nest, self.nest.code
        kept = [k for k in range(nest.rank) if k not in self.reduced]
        value = self.op.result
        if not kept:
            self.result = self._allocas(0)
            return
        where = dict(enumerate(kept))
        innermost = kept.index(nest.lane) if nest.lane in kept else None
        main = self.dtypes[-1]
        self.slots = [code.slot(value, main, innermost)]
        if len(self.dtypes) == 2:
            order = list(range(len(kept)))
            if innermost is not None:
                order.append(order.pop(innermost))
            if self.outer:
                # The winners' values, beside their indices.
                self.slots.insert(0, code.allocate(self.dtypes[0], value.type.extents, order))
        self.accesses = [nest.slot_access(slot, where) for slot in self.slots]
        if self.outer and self.blocked(self.op):
            self._add_partial(where, innermost)
        if self.outer:
            for slot, identity in zip(self.slots, self.identity, strict=True):
                nest.fill(slot, identity)

    def _add_partial(self, where: dict[int, int], innermost: int | None) -> None:
        """Give each of the outermost loops, if they are over reduced axes, an accumulator of its own."""
        nest, extents = self.nest, self.op.result.type.extents
        order = list(range(len(extents)))
        if innermost is not None:
            order.append(order.pop(innermost))
        k = 1
        while k < self.start and nest.loops[k - 1].axis in self.reduced and nest.loops[k].axis in self.reduced:
            self.partial[k] = nest.code.allocate(self.dtypes[0], extents, order)
            k += 1
        if self.partial:
            self.accesses = [nest.slot_access(self.partial[k - 1], where)]

    def _join_slots(self, into: Slot, slot: Slot) -> None:
        nest, t = self.nest, self.nest.t
        with Counted(t, i64(0), slot.size, i64(nest.lanes)) as position:
            a, b = (nest.memory.load(s.dtype, address(t, s.base, position, s.dtype), nest.lanes) for s in (into, slot))
            (both,) = self.join([a], [b])
            nest.memory.store(into.dtype, both, address(t, into.base, position, into.dtype))

    def open(self, k: int) -> None:
        if k in self.partial:
            self.nest.fill(self.partial[k], self.identity[0])
        if k in self.levels:
            self._write(self.levels[k], self.neutral(self.nest.lanes))

    def update(self) -> None:
        """In the innermost loop: take in the operands' lanes."""
        nest = self.nest
        state: list[Register] = []
        for value, dtype in zip(self.op.operands, self.dtypes, strict=True):
            reg = nest.full(nest.nest.item(value))
            state.append(convert(nest.t, reg, value.type.dtype, dtype))
        if nest.count is not None and self.across:
            inside = nest.memory.mask(nest.count, nest.lanes)
            state = [select(nest.t, inside, x, y) for x, y in zip(state, self.neutral(nest.lanes), strict=True)]
        if not self.levels or self.start == len(nest.loops):
            self._finish_run(state)
            return
        cells = self.levels[max(self.levels)]
        self._write(cells, self.join(self._read(cells, nest.lanes), state))

    def close(self, k: int) -> None:
        nest = self.nest
        if k in self.partial:
            self._join_slots(self.partial.get(k - 1, self.slots[0]), self.partial[k])
        if k not in self.levels or self.start == len(nest.loops):
            return
        state = self._read(self.levels[k], nest.lanes)
        if k > self.start:
            cells = self.levels[k - 1]
            self._write(cells, self.join(self._read(cells, nest.lanes), state))
        else:
            self._finish_run(state)

    def _finish_run(self, state: list[Register]) -> None:
        nest = self.nest
        if self.across:
            state = self._across_lanes(state)
        if self.result:
            self._write(self.result, state)
            return
        if not self.outer:
            state = state[-1:]
        for access in self.accesses:
            access.base = nest.base(access)
        if self.outer:
            n = lanes(parts(state[0])[0].ty)
            state = self.join([nest.load(access, n) for access in self.accesses], state)
        for access, reg in zip(self.accesses, state, strict=True):
            nest.store(access, reg)

    def finish(self) -> None:
        """After the loops: a scalar result is known."""
        if self.result:
            reg = self._read(self.result, 0)[-1]
            value = self.op.result
            self.nest.code.scalars[value] = convert(self.nest.t, reg, self.dtypes[-1], value.type.dtype)


class Scan:
    """One `scan` of a nest, whose innermost loops are over the scanned axis: the carry is in registers."""

    def __init__(self, nest: NestCode, op: Op) -> None:
        self.nest = nest
        self.op = op
        row = ops.TABLE[op.attrs["kind"]]
        assert row.combine is not None and row.identity is not None
        dtype = op.operands[0].type.dtype
        self.dtype = "f32" if dtype in dtypes.NARROW and row.combine in ("add", "multiply") else dtype
        self.combiner = row.combine
        self.identity = row.identity(self.dtype)
        self.axis = op.attrs["dim"]
        self.along = self.axis == nest.lane
        self.start = len(nest.loops)
        while self.start and nest.loops[self.start - 1].axis == self.axis:
            self.start -= 1
        n = 0 if self.along else nest.lanes
        count = 2 if dtype in dtypes.COMPLEX else 1
        self.cells = [nest.memory.alloca(register_type(self.dtype, n)) for _ in range(count)]

    def _join(self, a: Register, b: Register) -> Register:
        return self.nest.code.combine(self.combiner, [a, b], [self.dtype, self.dtype], self.dtype)

    def open(self, k: int) -> None:
        if k != self.start:
            return
        nest = self.nest
        n = 0 if self.along else nest.lanes
        carry = nest.code.constant(self.identity, self.dtype, n)
        if len(self.op.operands) == 2:
            item = nest.scan_item(self.op).args[1]
            value = nest.values[item]
            if not self.along:
                value = nest.full(item)
            carry = convert(nest.t, value, self.op.operands[1].type.dtype, self.dtype)
        self._write(carry)

    def _write(self, carry: Register) -> None:
        for cell, v in zip(self.cells, parts(carry), strict=True):
            self.nest.t.store(v, cell, 64)

    def step(self, x: Register) -> Register:
        """The scan of one chunk."""
        nest, t = self.nest, self.nest.t
        given = self.op.operands[0].type.dtype
        n = 0 if self.along else nest.lanes
        x = convert(t, x if nest.lanes in map(lanes, [parts(x)[0].ty]) else splat(t, x, nest.lanes), given, self.dtype)
        carry = join([t.load(cell, register_type(self.dtype, n), 64) for cell in self.cells])
        if not self.along:
            carry = self._join(carry, x)
            self._write(carry)
            return convert(t, carry, self.dtype, given)
        # Lane after lane, in the order that NumPy adds in.  Lanes past the end come last and change nothing.
        found = [V("poison", v.ty) for v in parts(x)]
        for lane in range(nest.lanes):
            carry = self._join(carry, join([t.extract(v, lane) for v in parts(x)]))
            found = [t.insert(f, c, lane) for f, c in zip(found, parts(carry), strict=True)]
        self._write(carry)
        return convert(t, join(found), self.dtype, given)
