"""Ops on whole tiles in scratch: what moves, orders, joins and prints their elements.

These tiles are those of kernels written by hand: their extents are powers of two, and no vector runs over an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op, Value
from ..llvm.convert import Register, convert, from_memory, memory_type, register_type, to_memory
from ..llvm.text import Text, V
from . import dot
from .loops import Counted
from .memory import address, i64, join, parts, splat

if TYPE_CHECKING:
    from .codegen import Codegen, Slot

#: Lanes of a scan that are joined by shifts.
SHIFTED = 8


def emit(code: Codegen, op: Op) -> None:
    """Emit one op of `strips.WHOLE`."""
    _EMITTERS[op.name](code, op)


# -- slots ------------------------------------------------------------------------------------------------------------
def _numbers(extents: Sequence[int | str]) -> tuple[int, ...]:
    if any(isinstance(e, str) for e in extents):
        raise NotImplementedError(f"a tile of {extents} elements is moved as a whole")
    return tuple([int(e) for e in extents])


def _row_major(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple([math.prod(extents[k + 1 :]) for k in range(len(extents))])


def _dense(code: Codegen, value: Value) -> Slot:
    """The tile's elements in row-major order."""
    extents = _numbers(value.type.extents)
    found = code.tile(value)
    if found.strides == _row_major(extents):
        return found
    made = code.allocate(value.type.dtype, extents, list(range(len(extents))))
    code.write_tile(value, made)
    return made


def _moved(code: Codegen, slot: Slot, elements: V | int) -> V:
    return address(code.t, slot.base, elements if isinstance(elements, V) else i64(elements), slot.dtype)


def _bind(code: Codegen, value: Value, slot: Slot) -> None:
    code.slots[value] = slot
    code.kept.add(value)


# -- the same memory, seen otherwise ----------------------------------------------------------------------------------
def _reshape(code: Codegen, op: Op) -> None:
    strides = _row_major(_numbers(op.result.type.extents))
    _bind(code, op.result, replace(_dense(code, op.operands[0]), strides=strides))


def _split(code: Codegen, op: Op) -> None:
    slot = code.tile(op.operands[0])
    for k, value in enumerate(op.results):
        first = slot if not k else replace(slot, base=_moved(code, slot, slot.strides[-1]))
        if value.type.extents:
            _bind(code, value, replace(first, strides=slot.strides[:-1]))
        else:
            found = code.memory.load(slot.dtype, first.base, 0)
            code.scalars[value] = convert(code.t, found, slot.dtype, value.type.dtype)


def _flip(code: Codegen, op: Op) -> None:
    slot, dim = _dense(code, op.operands[0]), op.attrs["dim"]
    stride = slot.strides[dim]
    assert isinstance(stride, int)
    last = (_numbers(op.result.type.extents)[dim] - 1) * stride
    strides = tuple([-s if k == dim and isinstance(s, int) else s for k, s in enumerate(slot.strides)])
    _bind(code, op.result, replace(slot, base=_moved(code, slot, last), strides=strides))


# -- copies -----------------------------------------------------------------------------------------------------------
def _place(code: Codegen, value: Value, slot: Slot) -> None:
    if value.type.extents:
        code.write_tile(value, slot)
    else:
        code.memory.store(slot.dtype, code.scalar(value), slot.base)


def _join(code: Codegen, op: Op) -> None:
    slot = _made(code, op.result)
    for k, value in enumerate(op.operands):
        _place(code, value, replace(slot, base=_moved(code, slot, k), strides=slot.strides[:-1]))


def _cat(code: Codegen, op: Op) -> None:
    slot, dim = _made(code, op.result), op.attrs["dim"]
    stride = slot.strides[dim]
    assert isinstance(stride, int)
    half = _numbers(op.operands[0].type.extents)[dim] * stride
    for k, value in enumerate(op.operands):
        _place(code, value, replace(slot, base=_moved(code, slot, k * half)))


def _made(code: Codegen, value: Value) -> Slot:
    """A new slot for a result."""
    slot = code.allocate(value.type.dtype, value.type.extents, list(range(len(value.type.extents))))
    _bind(code, value, slot)
    return slot


# -- what is computed from register values ----------------------------------------------------------------------------
def bitcast(t: Text, reg: Register, given: str, out: str) -> Register:
    """The bits of a value as another dtype's."""
    raw = to_memory(t, reg, given)
    if not isinstance(raw, V) or out in dtypes.COMPLEX:
        raise NotImplementedError("bits of complex numbers")
    return from_memory(t, t.cast("bitcast", raw, memory_type(out)), out)


def gathered(code: Codegen, op: Op, index: Register, positions: Mapping[int, V]) -> V:
    """Where the elements of a gather are, by the positions along the axes of its result (vectors or scalars)."""
    t, slot, dim = code.t, code.tile(op.operands[0]), op.attrs["dim"]
    extents = _numbers(op.operands[0].type.extents)
    (at,) = parts(convert(t, index, op.operands[1].type.dtype, "i64"))
    at = t.bin("and", at, t.like(extents[dim] - 1, at))  # what is out of range touches no other memory
    shorter = len(extents) > len(op.result.type.extents)
    total: V | None = None
    for k, stride in enumerate(slot.strides):
        place = at if k == dim else positions[k - (shorter and k > dim)]
        if stride != 1:
            place = t.bin(
                "mul", place, t.splat(stride, _lanes(place)) if isinstance(stride, V) else t.like(stride, place)
            )
        if total is not None:
            n = max(_lanes(total), _lanes(place))
            place = t.bin("add", t.splat(total, n), t.splat(place, n))
        total = place
    assert total is not None
    return address(t, slot.base, total, slot.dtype)


def _lanes(v: V) -> int:
    return int(v.ty[1 : v.ty.index(" ")]) if v.ty.startswith("<") else 0


# -- sorting ----------------------------------------------------------------------------------------------------------
def _sort(code: Codegen, op: Op) -> None:
    """A bitonic network: pairs at distances of powers of two are put in order, upwards or downwards."""
    slot, dim = _made(code, op.result), op.attrs["dim"]
    code.write_tile(op.operands[0], slot)
    extents = _numbers(op.result.type.extents)
    inner = math.prod(extents[dim + 1 :])
    total = math.prod(extents)
    width = min(total, 2 * code.target.vector_bytes // max(2, dtypes.SIZE[slot.dtype]))
    size = 2
    while size <= extents[dim]:
        distance = size // 2
        while distance:
            last = size == extents[dim]
            _exchange(code, slot, total, width, distance * inner, 0 if last else size * inner, op.attrs["descending"])
            distance //= 2
        size *= 2


def _exchange(code: Codegen, slot: Slot, total: int, width: int, distance: int, turn: int, descending: bool) -> None:
    """Put all pairs at a distance in order: the other way round where the position has the bit `turn`."""
    t, memory, dtype = code.t, code.memory, slot.dtype

    def less(a: Register, b: Register) -> V:
        """Whether a comes before b, lane by lane; NaNs come last."""
        (found,) = parts(code.combine("less", [a, b], [dtype, dtype], "bool"))
        if dtype in dtypes.FLOAT:
            (nan_a,), (nan_b,) = (parts(code.combine("isnan", [x], [dtype], "bool")) for x in (a, b))
            found = t.bin("or", found, t.bin("and", nan_b, t.bin("xor", nan_a, t.like(True, nan_a))))
        return found

    def downwards(position: V) -> V:
        bit = t.cmp("ne", t.bin("and", position, i64(turn)), i64(0)) if turn else V("false", "i1")
        return t.bin("xor", bit, V("true", "i1")) if descending else bit

    if distance >= width:
        # Positions whose bit `distance` is not set.
        with Counted(t, i64(0), i64(total // 2), i64(width), True) as half:
            above = t.bin("and", half, i64(-distance))
            position = t.bin("add", half, above)
            places = [address(t, slot.base, p, dtype) for p in (position, t.bin("add", position, i64(distance)))]
            a, b = (memory.load(dtype, place, width) for place in places)
            swap = t.select(t.splat(downwards(position), width), less(a, b), less(b, a))
            for place, x, y in zip(places, (b, a), (a, b), strict=True):
                (x,), (y,) = parts(x), parts(y)
                memory.store(dtype, t.select(swap, x, y), place)
        return
    lower = [lane & distance == 0 for lane in range(width)]
    with Counted(t, i64(0), i64(total), i64(width), True) as position:
        place = address(t, slot.base, position, dtype)
        (a,) = parts(memory.load(dtype, place, width))
        b = t.shuffle(a, V("poison", a.ty), [lane ^ distance for lane in range(width)])
        if turn and turn < width:
            flags = [low == (lane & turn == 0) for lane, low in enumerate(lower)]
            upwards = V(_flags([f != descending for f in flags]), f"<{width} x i1>")
        else:
            low = V(_flags(lower), f"<{width} x i1>")
            upwards = t.bin("xor", low, t.splat(downwards(position), width))
        swap = t.select(upwards, less(b, a), less(a, b))
        memory.store(dtype, t.select(swap, b, a), place)


def _flags(values: Sequence[bool]) -> str:
    return "<" + ", ".join(f"i1 {'true' if v else 'false'}" for v in values) + ">"


# -- regions that join scalars ----------------------------------------------------------------------------------------
class Joined:
    """A reduction or a scan by a region, of tiles seen as (outer, count, inner)."""

    def __init__(self, code: Codegen, op: Op, dim: int) -> None:
        self.code = code
        self.t = code.t
        (self.region,) = op.regions
        self.dtypes = [v.type.dtype for v in op.operands]
        self.slots = [_dense(code, v) for v in op.operands]
        extents = _numbers(op.operands[0].type.extents)
        self.outer, self.count = math.prod(extents[:dim]), extents[dim]
        self.inner = math.prod(extents[dim + 1 :])
        widest = max([dtypes.SIZE[dtypes.PART.get(d, d)] for d in self.dtypes])
        self.lanes = max(2, 2 * code.target.vector_bytes // max(widest, 2))

    def join(self, left: Sequence[Register], right: Sequence[Register], n: int) -> list[Register]:
        """What the region yields."""
        code = self.code
        known: dict[Value, Register] = dict(zip(self.region.args, (*left, *right), strict=True))

        def value(v: Value) -> Register:
            if v not in known:
                known[v] = splat(code.t, code.scalar(v), n)
            return known[v]

        for op in self.region.ops[:-1]:
            if op.name == "const":
                known[op.result] = code.constant(op.attrs["value"], op.result.type.dtype, n)
            else:
                known[op.result] = code.apply(op, [value(v) for v in op.operands], n)
        return [value(v) for v in self.region.ops[-1].operands]

    def load(self, position: V, n: int) -> list[Register]:
        found = []
        for slot, dtype in zip(self.slots, self.dtypes, strict=True):
            loaded = self.code.memory.load(slot.dtype, address(self.t, slot.base, position, slot.dtype), n)
            found.append(convert(self.t, loaded, slot.dtype, dtype))
        return found

    def store(self, slots: Sequence[Slot], values: Sequence[Register], position: V) -> None:
        for slot, value in zip(slots, values, strict=True):
            self.code.memory.store(slot.dtype, value, address(self.t, slot.base, position, slot.dtype))

    def cells(self, n: int) -> tuple[Callable[[], list[Register]], Callable[[Sequence[Register]], None]]:
        """How to read and write what a loop carries."""
        t = self.t
        types = [register_type(d, n) for d in self.dtypes]
        cells = [
            [self.code.memory.alloca(ty) for _ in range(2 if d in dtypes.COMPLEX else 1)]
            for d, ty in zip(self.dtypes, types, strict=True)
        ]

        def read() -> list[Register]:
            return [join([t.load(c, ty, 64) for c in group]) for group, ty in zip(cells, types, strict=True)]

        def write(values: Sequence[Register]) -> None:
            for group, value in zip(cells, values, strict=True):
                for cell, v in zip(group, parts(value), strict=True):
                    t.store(v, cell, 64)

        return read, write

    def shuffled(self, values: Sequence[Register], mask: Sequence[int]) -> list[Register]:
        t = self.t
        return [join([t.shuffle(v, V("poison", v.ty), mask) for v in parts(x)]) for x in values]

    def reduce(self, results: Sequence[Value]) -> None:
        t, code = self.t, self.code
        slots = [_made(code, v) for v in results if v.type.extents]
        along = self.inner == 1
        n = min(self.count if along else self.inner, self.lanes)
        read, write = self.cells(n)
        row = self.count * self.inner
        with Counted(t, i64(0), i64(self.outer), i64(1), True) as o:
            start = t.bin("mul", o, i64(row))
            with Counted(t, i64(0), i64(1 if along else self.inner), i64(n), True) as column:
                first = t.bin("add", start, column)
                write(self.load(first, n))
                step = n if along else self.inner
                with Counted(t, i64(step), i64(row), i64(step)) as at:
                    write(self.join(read(), self.load(t.bin("add", first, at), n), n))
                found = read()
                if along:
                    while n > 1:
                        n //= 2
                        halves = [self.shuffled(found, range(k, k + n)) for k in (0, n)]
                        found = self.join(*halves, n)
                    found = [join([t.extract(v, 0) for v in parts(x)]) for x in found]
                if slots:
                    self.store(slots, found, t.bin("add", t.bin("mul", o, i64(self.inner)), column))
        if not slots:
            code.scalars.update(zip(results, found, strict=True))

    def scan(self, results: Sequence[Value], reverse: bool) -> None:
        slots = [_made(self.code, v) for v in results]
        if self.inner == 1:
            self._scan_lanes(slots, reverse)
            return
        t, n = self.t, min(self.inner, self.lanes)
        read, write = self.cells(n)
        row = self.count * self.inner
        outer = Counted(t, i64(0), i64(self.outer), i64(1), True)
        with outer as o, Counted(t, i64(0), i64(self.inner), i64(n), True) as column:
            first = t.bin("add", t.bin("mul", o, i64(row)), column)
            if reverse:
                first = t.bin("add", first, i64(row - self.inner))
            write(self.load(first, n))
            self.store(slots, read(), first)
            with Counted(t, i64(self.inner), i64(row), i64(self.inner)) as at:
                place = t.bin("sub" if reverse else "add", first, at)
                write(self.join(read(), self.load(place, n), n))
                self.store(slots, read(), place)

    def _scan_lanes(self, slots: Sequence[Slot], reverse: bool) -> None:
        """Vectors of neighbours, each scanned by shifts and joined with what came before."""
        t, n = self.t, min(self.count, SHIFTED)
        read, write = self.cells(0)
        order = list(range(n))[:: -1 if reverse else 1]
        with Counted(t, i64(0), i64(self.outer), i64(1), True) as o:
            start = t.bin("mul", o, i64(self.count))
            write([join([t.const(0, v) for v in _types(d)]) for d in self.dtypes])
            with Counted(t, i64(0), i64(self.count), i64(n), True) as at:
                place = t.bin("add", start, t.bin("sub", i64(self.count - n), at) if reverse else at)
                found = self.load(place, n)
                found = self.shuffled(found, order) if reverse else found
                shift = 1
                while shift < n:
                    moved = self.shuffled(found, [max(0, lane - shift) for lane in range(n)])
                    later = V(_flags([lane >= shift for lane in range(n)]), f"<{n} x i1>")
                    found = self.chosen(later, self.join(moved, found, n), found)
                    shift *= 2
                before = [splat(t, x, n) for x in read()]
                begun = t.splat(t.cmp("ne", at, i64(0)), n)
                found = self.chosen(begun, self.join(before, found, n), found)
                write([join([t.extract(v, n - 1) for v in parts(x)]) for x in found])
                self.store(slots, self.shuffled(found, order) if reverse else found, place)

    def chosen(self, where: V, a: Sequence[Register], b: Sequence[Register]) -> list[Register]:
        return [
            join([self.t.select(where, v, w) for v, w in zip(parts(x), parts(y), strict=True)])
            for x, y in zip(a, b, strict=True)
        ]


def _types(dtype: str) -> list[str]:
    return [register_type(dtype)] * (2 if dtype in dtypes.COMPLEX else 1)


def _reduce_by(code: Codegen, op: Op) -> None:
    Joined(code, op, op.attrs["dims"][0]).reduce(op.results)


def _scan_by(code: Codegen, op: Op) -> None:
    Joined(code, op, op.attrs["dim"]).scan(op.results, op.attrs["reverse"])


# -- printing ---------------------------------------------------------------------------------------------------------
def _print(code: Codegen, op: Op) -> None:
    """A line an element, operand by operand, as the interpreter prints it."""
    t = code.t
    prefix, hex_ = op.attrs["prefix"].replace("%", "%%"), op.attrs["hex"]
    program = [*code.programs[::-1], i64(0), i64(0), i64(0)][:3]
    place = "pid (%lld, %lld, %lld)"
    if not op.operands:
        _printf(code, place + prefix + "\n", program)
    for k, (value, extents) in enumerate(zip(op.operands, op.attrs["extents"], strict=True)):
        extents = _numbers(extents)
        index = ", ".join([f"%{len(str(n - 1))}lld" for n in extents])
        which = f"(operand {k}) " if len(op.operands) > 1 else ""
        dtype = value.type.dtype
        text = f"{place} idx ({index}){prefix}{which}{_format(dtype, hex_)}\n"
        slot = _dense(code, value) if value.type.extents else None
        with Counted(t, i64(0), i64(math.prod(extents)), i64(1), True) as position:
            if slot is None:
                reg = code.scalar(value)
            else:
                reg = code.memory.load(slot.dtype, address(t, slot.base, position, slot.dtype), 0)
                reg = convert(t, reg, slot.dtype, dtype)
            places = [
                t.bin("urem", t.bin("udiv", position, i64(s)), i64(n))
                for s, n in zip(_row_major(extents), extents, strict=True)
            ]
            _printf(code, text, [*program, *places, _shown(t, reg, dtype, hex_)])
    t.declare("fflush", "i32", ["ptr"])
    t.line("call i32 @fflush(ptr null)")


def _format(dtype: str, hex_: bool) -> str:
    if hex_:
        return f"0x%0{2 * dtypes.SIZE[dtype]}llx"
    return "%f" if dtype in dtypes.FLOAT else "%llu" if dtype in dtypes.UNSIGNED else "%lld"


def _shown(t: Text, reg: Register, dtype: str, hex_: bool) -> V:
    if hex_:
        (raw,) = parts(to_memory(t, reg, dtype))
        return t.cast("zext", t.cast("bitcast", raw, f"i{8 * dtypes.SIZE[dtype]}"), "i64")
    (shown,) = parts(convert(t, reg, dtype, "f64" if dtype in dtypes.FLOAT else "i64"))
    return shown


def _printf(code: Codegen, text: str, args: Sequence[V]) -> None:
    code.t.declare("printf", "i32", ["ptr", "..."])
    given = ", ".join(map(str, (code.string(text), *args)))
    code.t.line(f"call i32 (ptr, ...) @printf({given})")


_EMITTERS: dict[str, Callable[[Codegen, Op], None]] = {
    "dot": dot.emit, "reshape": _reshape, "split": _split, "flip": _flip, "join": _join, "cat": _cat, "sort": _sort,
    "reduce_by": _reduce_by, "scan_by": _scan_by, "print": _print,
}  # fmt: skip
