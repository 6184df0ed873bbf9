"""`for`, `while` and `if`: scalars travel in registers, tiles in scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import dtypes, ops
from ..ir import Block, Op, Value
from ..llvm.convert import Register, register_type
from .ahead import Trip
from .loops import Counted
from .memory import i64, join, parts
from .strips import WHOLE

if TYPE_CHECKING:
    from .codegen import Codegen, Slot


#: Ops whose results are not computed, or in slots that they choose.
_ELSEWHERE = (WHOLE - {"dot"}) | {"broadcast", "trans", "histogram"}


class Variable:
    """A scalar that several places of the code assign."""

    def __init__(self, code: Codegen, value: Value) -> None:
        self.code = code
        self.type = register_type(value.type.dtype)
        self.cells = [code.memory.alloca(self.type) for _ in range(2 if value.type.dtype in dtypes.COMPLEX else 1)]

    def set(self, reg: Register) -> None:
        for cell, v in zip(self.cells, parts(reg), strict=True):
            self.code.t.store(v, cell, 64)

    def get(self) -> Register:
        return join([self.code.t.load(cell, self.type, 64) for cell in self.cells])


class CarriedTile:
    """A loop's tile: one slot holds its present value, another takes the next one; then they change places.

    A tile `in_place` has one slot, whose elements are read before what follows them is there.
    """

    def __init__(self, code: Codegen, value: Value, in_place: bool) -> None:
        self.code = code
        self.in_place = in_place
        order = list(range(len(value.type.extents)))
        self.slots = [code.allocate(value.type.dtype, value.type.extents, order) for _ in range(2 - in_place)]
        self.cells = [code.memory.alloca("ptr", 8) for _ in self.slots] if not in_place else []
        for cell, slot in zip(self.cells, self.slots, strict=not in_place):
            code.t.store(slot.base, cell, 8)

    def slot(self, following: bool = False) -> Slot:
        if self.in_place:
            return self.slots[0]
        return replace(self.slots[0], base=self.code.t.load(self.cells[following], "ptr", 8))

    def swap(self) -> None:
        if self.in_place:
            return
        t = self.code.t
        a, b = (t.load(cell, "ptr", 8) for cell in self.cells)
        t.store(a, self.cells[1], 8)
        t.store(b, self.cells[0], 8)


def emit(code: Codegen, op: Op) -> None:
    """Emit an op with regions."""
    if op.name == "for":
        _for(code, op)
        return
    # What a branch computes of the next trip is not known behind it.
    outer, code.trip = code.trip, None
    if op.name == "while":
        _while(code, op)
    else:
        _if(code, op)
    code.trip = outer


def _bind(code: Codegen, value: Value, home: Variable | CarriedTile) -> None:
    """Let `value` be what `home` holds now."""
    if isinstance(home, Variable):
        code.scalars[value] = home.get()
    else:
        code.slots[value] = home.slot()
        code.kept.add(value)


def _for(code: Codegen, op: Op) -> None:
    t = code.t
    lower, upper, step = (t.cast("sext", code.integer(v), "i64") for v in op.operands[:3])
    made = op.operands[2].op
    down = made is not None and made.attrs.get("value", 1) < 0
    if down:  # the mirrored index goes up
        lower, upper, step = (t.bin("sub", i64(0), x) for x in (lower, upper, step))
    inits = op.operands[3:]
    (body,) = op.regions
    homes: list[Variable | CarriedTile] = []
    yielded = body.ops[-1].operands
    for init, arg, value in zip(inits, body.args[1:], yielded, strict=True):
        in_place = yielded.count(value) == 1 and _accumulates(code, arg, value, body)
        home = CarriedTile(code, init, in_place) if init.type.extents else Variable(code, init)
        if isinstance(home, Variable):
            home.set(code.scalar(init))
        else:
            code.write_tile(init, home.slot())
        homes.append(home)
    with Counted(t, lower, upper, step) as index:
        index = t.bin("sub", i64(0), index) if down else index
        code.scalars[body.args[0]] = t.cast("trunc", index, register_type(body.args[0].type.dtype))
        for arg, home in zip(body.args[1:], homes, strict=True):
            _bind(code, arg, home)
        # A value computed by the body goes to the next slot directly.
        direct: dict[Value, Slot] = {}
        for value, home in zip(yielded, homes, strict=True):
            if isinstance(home, CarriedTile) and value not in direct and _is_made_by(value, body):
                direct[value] = code.slots[value] = home.slot(following=True)
        outer, code.trip = code.trip, None if down else Trip(body, t.bin("add", index, step), upper)
        code.run_block(body)
        code.trip = outer
        scalars = [code.scalar(v) if isinstance(h, Variable) else None for v, h in zip(yielded, homes, strict=True)]
        placed: set[Value] = set()
        for value, home in zip(yielded, homes, strict=True):
            if isinstance(home, CarriedTile):
                if value not in direct or value in placed or value not in code.kept:
                    code.write_tile(value, home.slot(following=True))
                placed.add(value)
        for home, reg in zip(homes, scalars, strict=True):
            if isinstance(home, CarriedTile):
                home.swap()
            elif reg is not None:
                home.set(reg)
    for result, home in zip(op.results, homes, strict=True):
        _bind(code, result, home)


def _accumulates(code: Codegen, arg: Value, value: Value, body: Block) -> bool:
    """Whether the next value of a tile is made of the present one element by element, and nothing else reads that."""
    op = value.op
    if op is None or op not in body.ops or code.readers.get(arg) != {op} or value.type != arg.type:
        return False
    if op.name == "dot":
        return op.operands[2:] == (arg,) and arg not in op.operands[:2] and _is_made_by(value, body)
    row = ops.TABLE.get(op.name)
    return row is not None and row.kind == "elementwise" and code.readers[value] == {body.ops[-1]}


def _is_made_by(value: Value, body: Block) -> bool:
    """Whether a plain op of the body writes the tile, in its own dtype, if it is kept."""
    op = value.op
    if op is None or op not in body.ops or op.regions or op.name in _ELSEWHERE:
        return False
    narrow = value.type.dtype in dtypes.NARROW
    return not (narrow and op.name in ("reduce", "dot"))


def _while(code: Codegen, op: Op) -> None:
    t = code.t
    first, second = op.regions
    carried, values = _homes(code, first.args), _homes(code, op.results)
    _assign(code, op.operands, carried)
    head, body, done = t.new_label("while"), t.new_label("body"), t.new_label("done")
    t.br(head)
    t.label(head)
    _bind_all(code, first.args, carried)
    code.run_block(first)
    condition, *found = first.ops[-1].operands
    _assign(code, found, values)
    (going,) = parts(code.scalar(condition))
    t.br_if(going, body, done)
    t.label(body)
    _bind_all(code, second.args, values)
    code.run_block(second)
    _assign(code, second.ops[-1].operands, carried)
    t.br(head)
    t.label(done)
    _bind_all(code, op.results, values)


def _homes(code: Codegen, values: Sequence[Value]) -> list[Variable | Slot]:
    return [_new_slot(code, v) if v.type.extents else Variable(code, v) for v in values]


def _bind_all(code: Codegen, values: Sequence[Value], homes: Sequence[Variable | Slot]) -> None:
    for value, home in zip(values, homes, strict=True):
        if isinstance(home, Variable):
            code.scalars[value] = home.get()
        else:
            code.slots[value] = home
            code.kept.add(value)


def _if(code: Codegen, op: Op) -> None:
    t = code.t
    (condition,) = parts(code.scalar(op.operands[0]))
    homes = _homes(code, op.results)
    then, other, done = t.new_label("then"), t.new_label("else"), t.new_label("done")
    t.br_if(condition, then, other)
    for label, region in zip((then, other), op.regions, strict=True):
        t.label(label)
        code.run_block(region)
        _assign(code, region.ops[-1].operands, homes)
        t.br(done)
    t.label(done)
    _bind_all(code, op.results, homes)


def _new_slot(code: Codegen, value: Value) -> Slot:
    return code.allocate(value.type.dtype, value.type.extents, list(range(len(value.type.extents))))


def _assign(code: Codegen, values: Sequence[Value], homes: Sequence[Variable | Slot]) -> None:
    for value, home in zip(values, homes, strict=True):
        if isinstance(home, Variable):
            home.set(code.scalar(value))
        else:
            code.write_tile(value, home)
