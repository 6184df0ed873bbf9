"""Accesses at computed positions, lane by lane or in runs, and other effects of a nest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op, Value
from ..llvm.convert import Register, convert
from ..llvm.text import V
from . import atomics, whole
from .loops import Counted, either
from .memory import address, clamp, i64, join, lane_numbers, parts, select
from .strips import Item, pointer

if TYPE_CHECKING:
    from .nest import NestCode


#: Ops through which integers may grow steadily.
_STEADY = frozenset(("cast", "fmod", "remainder", "minimum", "maximum", "where", "add", "subtract", "multiply"))


def effect(nest: NestCode, op: Op) -> None:
    """Emit an effect, except of a view."""
    if op.name == "store_ptr":
        _scatter(nest, op)
    elif op.name == "atomic":
        _atomic(nest, op)
    elif op.name == "histogram":
        _count(nest, op)
    elif op.name == "barrier":
        nest.t.line("fence seq_cst")
    else:
        _check(nest, op)


def _step(nest: NestCode, item: Item) -> int | None:
    """By how much an integer grows from lane to lane, if that is a constant."""
    if item not in nest.steps:
        nest.steps[item] = _found_step(nest, item)
    return nest.steps[item]


def _found_step(nest: NestCode, item: Item) -> int | None:
    op = item.value.op
    if nest.lane not in item.axes:
        return 0
    if item.kept or op is None:
        return None
    steps = [_step(nest, a) for a in item.args]
    match op.name:
        case "iota":
            return 1
        case "cast" if op.operands[0].type.dtype in dtypes.SIGNED:
            return steps[0]
        case "add" | "subtract" if None not in steps:
            a, b = steps
            assert a is not None and b is not None
            return a + b if op.name == "add" else a - b
        case "multiply" if None not in steps:
            for k in (0, 1):
                factor, other = item.args[k].value.op, steps[1 - k]
                if factor is not None and factor.name == "const" and other is not None:
                    return factor.attrs["value"] * other
    return None


def _first(nest: NestCode, item: Item) -> Register:
    """An integer with a known step, at the first lane."""
    op = item.value.op
    if nest.lane not in item.axes:
        return nest.values[item]
    assert op is not None
    if op.name == "iota":
        return nest.positions[nest.lane]
    return nest.code.apply(op, [_first(nest, a) for a in item.args], 0)


def _load_run(nest: NestCode, dtype: str, start: V, index: Item, active: V | None) -> Register:
    """Consecutive elements, of which some may be masked."""
    t, n = nest.t, nest.lanes
    (first,) = parts(_first(nest, index))
    where = address(t, start, first, dtype)
    if active is None:
        return nest.memory.load(dtype, where, n)

    def some() -> Register:
        found = nest.memory.load_masked(dtype, where, active)
        return found or nest.memory.gather(dtype, address(t, where, lane_numbers(n), dtype), active)

    # Most vectors are whole.
    whole = t.intrinsic("vector.reduce.and", active, ty="i1")
    return either(t, whole, lambda: nest.memory.load(dtype, where, n), some)


def _rate(value: Value, axis: int, known: dict[tuple[Value, int], int | None]) -> int | None:
    """By how much integers mostly grow along an extent, though some may be wrapped around an end, or replaced."""
    if not value.type.extents:
        return 0
    if (value, axis) not in known:
        known[value, axis] = _found_rate(value, axis, known)
    return known[value, axis]


def _found_rate(value: Value, axis: int, known: dict[tuple[Value, int], int | None]) -> int | None:
    op = value.op
    if op is None:
        return None
    if op.name in ("broadcast", "trans"):
        perm = op.attrs.get("perm")
        dims = op.attrs["dims"] if perm is None else [perm.index(k) for k in range(len(perm))]
        return _rate(op.operands[0], list(dims).index(axis), known) if axis in dims else 0
    rates = [_rate(v, axis, known) for v in op.operands] if op.name in _STEADY else []
    match op.name, rates:
        case "iota", _:
            return 1
        case "cast" | "fmod" | "remainder" | "minimum" | "maximum", [rate, *_]:
            return rate
        case "where", [_, rate, _]:
            return rate
        case "add", [int(a), int(b)]:
            return a + b
        case "subtract", [int(a), int(b)]:
            return a - b
        case "multiply", [0, 0]:
            return 0
    return None


def _load_neighbours(nest: NestCode, dtype: str, start: V, index: V, active: V | None) -> Register:
    """Elements that are mostly neighbours."""
    t, n = nest.t, nest.lanes
    first = t.extract(index, 0)
    side_by_side = t.cmp("eq", index, t.bin("add", t.splat(first, n), lane_numbers(n, first.ty)))
    if active is not None:
        side_by_side = t.bin("and", side_by_side, active)
    return either(
        t, t.intrinsic("vector.reduce.and", side_by_side, ty="i1"),
        lambda: nest.memory.load(dtype, address(t, start, first, dtype), n),
        lambda: nest.memory.gather(dtype, address(t, start, index, dtype), active),
    )  # fmt: skip


def gather(nest: NestCode, item: Item, args: list[Register], n: int) -> Register:
    op = item.value.op
    assert op is not None
    t, dtype = nest.t, item.value.type.dtype
    index = args[0]
    mask = args[1] if len(args) > 1 else None
    assert isinstance(index, V) and (mask is None or isinstance(mask, V))
    active = mask
    if n and nest.count is not None:
        inside = nest.memory.mask(nest.count, n)
        active = inside if mask is None else t.bin("and", mask, inside)
    start = nest.code.integer(pointer(op))
    if n and _step(nest, item.args[0]) == 1:
        found = _load_run(nest, dtype, start, item.args[0], active)
        other = op.attrs.get("other", 0)
        return select(t, mask, found, nest.code.constant(other, dtype, n)) if mask is not None and other else found
    at = item.args[0]
    if n and nest.lane in at.where and _rate(at.value, at.where.index(nest.lane), {}) == 1:
        found = _load_neighbours(nest, dtype, start, index, active)
    elif n:
        found = nest.memory.gather(dtype, address(t, start, index, dtype), active)
    else:
        pointers = address(t, start, index, dtype)
        if active is not None:
            pointers = t.select(active, pointers, nest.memory.nothing())
        found = nest.memory.load(dtype, pointers, 0)
    other = op.attrs.get("other", 0)
    return select(t, mask, found, nest.code.constant(other, dtype, n)) if mask is not None and other else found


def pick(nest: NestCode, op: Op, index: Register, n: int) -> Register:
    """Elements of a tile in scratch."""
    t, dtype = nest.t, op.result.type.dtype
    positions = dict(enumerate(nest.positions))
    if n:
        at = nest.positions[nest.lane]
        positions[nest.lane] = t.bin("add", t.splat(at, n), lane_numbers(n))
    where = whole.gathered(nest.code, op, index, positions)
    held = nest.code.tile(op.operands[0]).dtype
    found = nest.memory.gather(held, where) if n else nest.memory.load(held, where, 0)
    return convert(t, found, held, dtype)


def _scatter(nest: NestCode, op: Op) -> None:
    """Lane by lane, in order."""
    t, dtype = nest.t, op.operands[0].type.dtype
    ptr = nest.code.integer(op.operands[1])
    value, index, *mask = [nest.operand(v) for v in (op.operands[0], *op.operands[2:])]
    if not nest.rank:
        with t.if_(parts(mask[0])[0] if mask else None):
            _scatter_one(nest, op, value, address(t, ptr, parts(index)[0], dtype))
        return
    item = nest.nest.item(op.operands[2])
    if nest.count is None and "combine" not in op.attrs and _step(nest, item) == 1:
        # Most vectors are whole.
        active = parts(mask[0])[0] if mask else V("true", "i1")
        with t.if_else(t.intrinsic("vector.reduce.and", active, ty="i1") if mask else active) as turn:
            (first,) = parts(_first(nest, item))
            nest.memory.store(dtype, value, address(t, ptr, first, dtype))
            next(turn)
            _scatter_lanes(nest, op, ptr, value, index, mask)
        return
    _scatter_lanes(nest, op, ptr, value, index, mask)


def _scatter_lanes(nest: NestCode, op: Op, ptr: V, value: Register, index: Register, mask: list[Register]) -> None:
    t, dtype = nest.t, op.operands[0].type.dtype
    places = op.operands[2].type.dtype
    values, indices = nest.spill(value, dtype), nest.spill(index, places)
    masks = nest.spill(mask[0], "bool") if mask else []
    with _each_lane(nest) as lane, t.if_(parts(nest.lane_of(masks, "bool", lane))[0] if masks else None):
        where = address(t, ptr, parts(nest.lane_of(indices, places, lane))[0], dtype)
        _scatter_one(nest, op, nest.lane_of(values, dtype, lane), where)


def _each_lane(nest: NestCode) -> Counted:
    """A loop over the lanes that are within the extent."""
    count = clamp(nest.t, nest.count, nest.lanes) if nest.count is not None else i64(nest.lanes)
    return Counted(nest.t, i64(0), count, i64(1))


def _atomic(nest: NestCode, op: Op) -> None:
    """Lane by lane, in order; what was there before, or 0 where the mask is False."""
    t, code, dtype = nest.t, nest.code, op.result.type.dtype
    masked, cas = op.attrs.get("masked", False), op.attrs["kind"] == "cas"
    ptr = code.integer(pointer(op))
    given = [v for v in op.operands if not v.type.pointer]
    access = nest.accesses.get(op)
    if nest.rank:
        spilled = [nest.spill(nest.operand(v), v.type.dtype) for v in given]
    old = [nest.memory.alloca(v.ty) for v in parts(code.constant(0, dtype, 0))]

    def run(values: list[Register]) -> Register:
        for cell in old:
            t.store(parts(code.constant(0, dtype, 0))[0], cell, 8)
        with t.if_(parts(values.pop())[0] if masked else None):
            *first, value, index = values
            where = address(t, ptr, parts(index)[0], dtype)
            found = atomics.one(code, op, where, value, first[0] if cas else None)
            for cell, v in zip(old, parts(found), strict=True):
                t.store(v, cell, 8)
        return join([t.load(cell, v.ty, 8) for cell, v in zip(old, parts(found), strict=True)])

    if not nest.rank:
        code.scalars[op.result] = run([nest.operand(v) for v in given])
        return
    with _each_lane(nest) as lane:
        lanes_ = zip(spilled, [v.type.dtype for v in given], strict=True)
        found = run([nest.lane_of(cells, d, lane) for cells, d in lanes_])
        if access is not None:
            stride = access.strides[nest.lane]
            step = stride if isinstance(stride, V) else i64(stride)
            place = t.bin("mul", t.bin("add", nest.positions[nest.lane], lane), step)
            nest.memory.store(dtype, found, address(t, access.base, place, dtype))


def clear_counts(nest: NestCode, op: Op) -> None:
    """A slot for a histogram; what is out of range goes to its end."""
    (bins,) = op.result.type.extents
    slot = nest.code.allocate("i32", (2 * int(bins),), [0])
    nest.memory.clear(slot.base, 4 * (int(bins) + 1))
    nest.code.slots[op.result] = slot


def _count(nest: NestCode, op: Op) -> None:
    t, dtype = nest.t, op.operands[0].type.dtype
    slot, (bins,) = nest.code.slots[op.result], op.result.type.extents
    wide = dtype if dtypes.SIZE[dtype] >= 4 else "i32"
    (index,) = parts(convert(t, nest.operand(op.operands[0]), dtype, wide))
    inside = t.cmp("ult", index, t.like(bins, index))
    for mask in op.operands[1:]:
        inside = t.bin("and", inside, parts(nest.operand(mask))[0])
    index = t.select(inside, index, t.like(bins, index))

    def add(at: V) -> None:
        place = t.gep(slot.base, t.cast("zext", at, "i64"), "i32")
        t.store(t.bin("add", t.load(place, "i32", 4), V("1", "i32")), place, 4)

    if not nest.rank:
        add(index)
        return
    places = nest.spill(index, wide)
    if nest.count is None:
        for lane in range(nest.lanes):
            add(parts(nest.lane_of(places, wide, i64(lane)))[0])
        return
    with _each_lane(nest) as lane:
        add(parts(nest.lane_of(places, wide, lane))[0])


def _scatter_one(nest: NestCode, op: Op, value: Register, where: V) -> None:
    dtype = op.operands[0].type.dtype
    if "combine" in op.attrs:
        old = nest.memory.load(dtype, where, 0)
        name = "logical_or" if dtype == "bool" else op.attrs["combine"]
        value = nest.code.combine(name, [old, value], [dtype, dtype], dtype)
    nest.memory.store(dtype, value, where)


def _check(nest: NestCode, op: Op) -> None:
    """Record the message's number, unless another one is."""
    t = nest.t
    ok = nest.operand(op.operands[0])
    assert isinstance(ok, V)
    bad = t.bin("xor", ok, t.like(True, ok))
    for mask in op.operands[1:]:
        bad = t.bin("and", bad, parts(nest.operand(mask))[0])
    if nest.rank and nest.count is not None:
        bad = t.bin("and", bad, nest.memory.mask(nest.count, nest.lanes))
    errors = next((p for p in nest.code.kernel.params if p.name == "errors"), None)
    if errors is None:
        return
    where = nest.code.integer(errors)
    with t.if_(t.any(bad)):
        old = t.load(where, "i64", 8)
        t.store(t.select(t.cmp("eq", old, i64(0)), i64(nest.code.checks[op]), old), where, 8)
