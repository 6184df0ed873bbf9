"""Tiles for which a program has too few registers: most of each is parked in shared memory, instead of being spilled.

A kernel without loops whose tiles are rows, from loads to reductions and stores, is written again with rows in parts.
What a row is made of is computed part by part, where a reduction or a store asks for it: for the first parts once, from
registers, for the others each time, from what threads have copied to shared memory as in `ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ... import dtypes, ops
from ...ir import BOOL, EFFECTS, Kernel, Op, Type, Value
from ...passes.dce import dce
from ...passes.rewrite import Rewriter
from ..codegen import Code
from ..target import Target
from . import assign
from .ahead import COPYING, Finder, attributes
from .axes import extents_of, is_elementwise

#: Words of a thread's registers at most, and of a processor's.
MOST, REGISTERS = 255, 64 << 10
#: Elements of a thread in a part; of all parts, the share that is held in registers.
PART, HELD = 8, 3 / 8
#: Bytes of shared memory that are left for other things.
REST = 8 << 10
_STORES = frozenset(("store_ptr", "store_view"))
_I32 = Type("i32")


@dataclass(frozen=True)
class _Plan:
    extent: int
    count: int
    #: Loads that are made once, most parts of which are parked; others are made where they are needed.
    parked: frozenset[Op]


def _plan(kernel: Kernel, target: Target) -> _Plan | None:
    threads = 32 * int(kernel.attrs.get("num_warps", 4))
    tiles = {extents_of(v) for op in kernel.walk() for v in op.results if v.type.extents}
    if len(tiles) != 1 or any(op.regions for op in kernel.body.ops):
        return None
    (extents,) = tiles
    if len(extents) != 1 or extents[0] < threads * min(MOST + 1, REGISTERS // threads):
        return None
    if not all(_is_divided(op) for op in kernel.body.ops):
        return None
    takers = _takers(kernel)
    meetings = [k for k, op in enumerate(kernel.body.ops) if op.name == "reduce" or op.name in _STORES]
    parked = set[Op]()
    for k, op in enumerate(kernel.body.ops):
        if op.name in assign.LOADS and op.result.type.extents:
            last = max(takers[op], default=k)
            # A store, or others' behind a reduction, may overwrite what is to be loaded.
            if len(takers[op]) > 1 or any(k < meeting < last for meeting in meetings):
                parked.add(op)
    nbytes = sum(dtypes.SIZE[op.result.type.dtype] for op in parked) * extents[0] * (1 - HELD)
    if not parked or nbytes > target.shared - REST:
        return None
    return _Plan(extents[0], extents[0] // (PART * threads), frozenset(parked))


def _is_divided(op: Op) -> bool:
    """Whether an op can be made part by part."""
    if op.name in _STORES or op.name in assign.LOADS:
        return not op.attrs.get("volatile")
    tiles = [v for v in (*op.operands, *op.results) if v.type.extents]
    if op.name == "reduce" and tiles:
        return tiles[0].type.dtype not in dtypes.NARROW and tiles[0].type.dtype not in dtypes.COMPLEX
    if op.name in EFFECTS:
        return False
    scalar = all(not v.type.extents for v in op.operands)
    return not tiles or is_elementwise(op) or op.name == "iota" or (op.name == "broadcast" and scalar)


def _takers(kernel: Kernel) -> dict[Op, set[int]]:
    """By op: the numbers of the reductions and stores for which its tile is needed."""
    found: dict[Op, set[int]] = {op: set() for op in kernel.body.ops}
    for k, op in reversed(list(enumerate(kernel.body.ops))):
        own = {k} if op.name == "reduce" or op.name in _STORES else found[op]
        for v in op.operands:
            if v.op is not None and v.type.extents:
                found[v.op] |= own
    return found


class _Parked(Rewriter):
    def __init__(self, kernel: Kernel, target: Target, plan: _Plan) -> None:
        super().__init__()
        self.finder, self.plan = Finder(kernel, target), plan
        self.extents = (plan.extent // plan.count,)
        self.held = int(plan.count * HELD)
        #: Of tiles, by number: the parts that are held.
        self.parts: dict[tuple[Value, int], Value] = {}
        #: Of loads, by number: the attributes of what is copied.
        self.copies: dict[tuple[Op, int], dict[str, object]] = {}
        self.waited = self.possible = True

    def kernel(self, kernel: Kernel) -> Kernel:
        zero, true = Op("const", (), (_I32,), {"value": 0}), Op("const", (), (BOOL,), {"value": True})
        self.slot, self.there = zero.result, true.result
        made = super().kernel(kernel)
        made.body.ops[:0] = [zero, true]
        return made

    def op(self, op: Op) -> None:
        if op in self.plan.parked:
            self._park(op)
        elif op.name == "reduce" and op.operands[0].type.extents:
            combine = ops.TABLE[op.attrs["kind"]].combine
            assert combine is not None
            total, *rest = (self._part(op.operands[0], k, {}) for k in range(self.plan.count))
            for x in rest:
                total = self._emit(Op(combine, (total, x), (total.type,), {}, (), op.line))
            self.replace(op, (self._emit(Op("reduce", (total,), (op.result.type,), op.attrs, (), op.line)),))
        elif op.name in _STORES and assign.accessed(op):
            for k in range(self.plan.count):
                self.out.append(self._of_part(op, k, {}))
        elif not any(v.type.extents for v in op.results):
            super().op(op)

    def _emit(self, op: Op) -> Value:
        self.out.append(op)
        return op.result

    def _park(self, op: Op) -> None:
        """Copy the parts that are not held, and load the others."""
        for k in range(self.held, self.plan.count):
            load = self._of_part(op, k, {})
            stream = self.finder.alone(load)
            if stream is None:
                self.possible = False
                return
            attrs = self.copies[op, k] = attributes(stream, len(self.copies), 2) | {"parked": True}
            more = {"load": op.name, "extents": self.extents}
            self.out.append(Op("fetch", (*load.operands, self.slot, self.there), (), load.attrs | attrs | more))
        self.out.append(Op("commit", (self.slot,), ()))
        self.waited = False
        for k in range(self.held):
            self.parts[op.result, k] = self._emit(self._of_part(op, k, {}))

    def _part(self, value: Value, k: int, near: dict[Value, Value]) -> Value:
        """A part of a tile; `near` are those that have been made for the same purpose."""
        found = self.parts.get((value, k), near.get(value))
        if found is not None:
            return found
        op = value.op
        assert op is not None
        if (op, k) in self.copies:
            if not self.waited:
                self.out.append(
                    Op("await", (self.slot,), (), {"pending": 0, "proxy": False, "own": True, "fence": True})
                )
                self.waited = True
            made = Op("own", (self.slot,), (Type(value.type.dtype, self.extents),), self.copies[op, k])
        else:
            made = self._of_part(op, k, near)
        found = near[value] = self._emit(made)
        if k < self.held:
            self.parts[value, k] = found
        return found

    def _of_part(self, op: Op, k: int, near: dict[Value, Value]) -> Op:
        """What an op does for a part."""
        operands = [self._part(v, k, near) if v.type.extents else self.replaced.get(v, v) for v in op.operands]
        start = k * self.extents[0]
        attrs = op.attrs | {"start": (start,)} if op.name.endswith("_view") else op.attrs
        types = tuple([Type(v.type.dtype, self.extents) for v in op.results])
        made = Op(op.name, tuple(operands), types, attrs, (), op.line)
        if op.name != "iota" or not k:
            return made
        first = self._emit(Op("const", (), (Type(types[0].dtype),), {"value": start}))
        spread = self._emit(Op("broadcast", (first,), types, {"dims": ()}))
        return Op("add", (self._emit(made), spread), types)


def parked(kernel: Kernel, target: Target) -> Kernel | None:
    """The kernel with most of its tiles in shared memory; None if it has registers enough, or is not such a one."""
    plan = _plan(kernel, target) if target.async_copy else None
    if plan is None:
        return None
    made = _Parked(kernel, target, plan)
    found = made.kernel(kernel)
    return dce(found, EFFECTS | COPYING) if made.possible else None


def generate(kernel: Kernel, target: Target) -> Code | None:
    """The code of a kernel that has too few registers for its tiles; None if it is not one, or not such a one."""
    from .codegen import Codegen

    found = parked(kernel, target)
    return None if found is None else Codegen(found, target).generate()
