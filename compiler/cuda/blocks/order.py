"""Ops that move elements along a dim: sorts, flips, gathers, histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Op
from ...llvm.lanes import Lanes
from ...llvm.text import V
from .. import memory
from ..memory import at, both, i32, parts, select
from . import layout
from .exchange import partner, place
from .layout import Layout, log2, pieces

if TYPE_CHECKING:
    from .codegen import Codegen, Tile


# -- sorts ------------------------------------------------------------------------------------------------------------
def sort(code: Codegen, op: Op) -> None:
    """Bitonic: in each step, elements whose positions differ in one bit are put in order."""
    value, dim = op.operands[0], op.attrs["dim"]
    dtype, given = value.type.dtype, code.works[op]
    keys = [_key(code, v, dtype) for v in code.tile(value, given) if isinstance(v, V)]
    kind = {"f64": "i64", "bool": "u8"}.get(dtype, "i32" if dtype in dtypes.FLOAT else dtype)
    for stage in range(1, log2(int(value.type.extents[dim])) + 1):
        for step in reversed(range(stage)):
            keys = _compare(code, keys, kind, given, (dim, step), (dim, stage), op.attrs["descending"])
    code.define(op.result, [_value(code, k, dtype) for k in keys])


def _key(code: Codegen, v: V, dtype: str) -> V:
    """An integer in the order of values, NaNs last."""
    if dtype == "bool":
        return code.t.cast("zext", v, "i8")
    if dtype not in dtypes.FLOAT:
        return v
    x = Lanes(code.t, v)
    bits = x.to_bits()
    most = (1 << x.bits - 1) - 1
    return x.isnan().where(bits.like(most), bits ^ ((bits >> x.bits - 1) & most)).v


def _value(code: Codegen, key: V, dtype: str) -> V:
    """The inverse of `_key`."""
    if dtype == "bool":
        return code.t.cast("trunc", key, "i1")
    if dtype not in dtypes.FLOAT:
        return key
    bits = Lanes(code.t, key)
    most = (1 << bits.bits - 1) - 1
    return (bits ^ ((bits >> bits.bits - 1) & most)).from_bits().v


def _compare(
    code: Codegen, keys: list[V], kind: str, given: Layout, step: layout.Bit, stage: layout.Bit, descending: bool
) -> list[V]:
    t = code.t
    sign = "u" if kind in dtypes.UNSIGNED else "s"

    def ends(a: V, b: V) -> tuple[V, V]:
        low, high = (t.call(f"llvm.{sign}{end}.{a.ty}", a.ty, [a, b]) for end in ("min", "max"))
        return low, high

    # Whether the block that both are in is to go down.
    down: V | None = code.bit(given.threads.index(stage)) if stage in given.threads else None

    def goes_down(r: int) -> bool:
        return bool(stage in given.regs and r >> given.regs.index(stage) & 1) != descending

    if down is not None and descending:
        down = t.bin("xor", down, V("true", "i1"))
    if step in given.regs:
        k = given.regs.index(step)
        found = list(keys)
        for r in range(len(keys)):
            if r >> k & 1:
                continue
            low, high = ends(keys[r], keys[r | 1 << k])
            if down is not None:
                low, high = t.select(down, high, low), t.select(down, low, high)
            elif goes_down(r):
                low, high = high, low
            found[r], found[r | 1 << k] = low, high
        return found
    number = given.threads.index(step)
    others = partner(code, list(keys), kind, 1 << number)
    upper = code.bit(number)
    found = []
    for r, (a, other) in enumerate(zip(keys, others, strict=True)):
        (b,) = parts(other)
        low, high = ends(a, b)
        if down is not None:
            takes_high = t.bin("xor", upper, down)
        else:
            takes_high = t.bin("xor", upper, V("true", "i1")) if goes_down(r) else upper
        found.append(t.select(takes_high, high, low))
    return found


# -- flips ------------------------------------------------------------------------------------------------------------
def flip(code: Codegen, op: Op) -> None:
    value, dim, given = op.operands[0], op.attrs["dim"], code.works[op]
    tile = code.tile(value, given)
    threads = sum(1 << i for i, b in enumerate(given.threads) if b is not None and b[0] == dim)
    registers = sum(1 << i for i, b in enumerate(given.regs) if b[0] == dim)
    found = partner(code, tile, value.type.dtype, threads)
    code.define(op.result, [found[r ^ registers] for r in range(given.registers)])


# -- gathers ----------------------------------------------------------------------------------------------------------
def gather(code: Codegen, op: Op) -> None:
    value, index = op.operands
    dim, t = op.attrs["dim"], code.t
    extents = [int(e) for e in value.type.extents]
    dtype, size = value.type.dtype, dtypes.SIZE[value.type.dtype]
    given, wanted = code.works[op], code.layout_of(op.result)
    strides = [1] * len(extents)
    for d in reversed(range(len(extents) - 1)):
        strides[d] = strides[d + 1] * extents[d + 1]
    base = code.exchange(size * extents[0] * strides[0])
    start = place(code, base, _linear(code, given, strides), size)
    for r, v in enumerate(code.tile(value, given)):
        away = sum(given.offset(r, d) * s for d, s in enumerate(strides))
        memory.store(t, [v], start, dtype, code.writer(given), away * size)
    code.barrier()
    others = [0 if d == dim else s for d, s in enumerate(strides)]
    start = place(code, base, _linear(code, wanted, others), size)
    found = []
    for r, i in enumerate(code.tile(index, wanted)):
        (number,) = parts(i)
        if number.ty != "i64":
            signed = index.type.dtype in dtypes.SIGNED
            number = t.cast("sext" if signed else "zext", number, "i64")
        away = sum(wanted.offset(r, d) * s for d, s in enumerate(others))
        there = at(t, start, t.bin("mul", number, memory.i64(strides[dim] * size)))
        found += memory.load(t, at(t, there, away * size), dtype, 1)
    code.exchange_end()
    code.define(op.result, found)


def _linear(code: Codegen, given: Layout, strides: list[int]) -> V:
    """A thread's part of an element's number."""
    t, total = code.t, i32(0)
    for d, s in enumerate(strides):
        if s and pieces(given, d):
            total = t.bin("add", total, t.bin("mul", code.first(given, d), i32(s)))
    return total


# -- histograms -------------------------------------------------------------------------------------------------------
def histogram(code: Codegen, op: Op) -> None:
    t, value = code.t, op.operands[0]
    (bins,) = (int(e) for e in op.result.type.extents)
    given, wanted = code.works[op], code.layout_of(op.result)
    masks: Tile = code.tile(op.operands[1], given) if len(op.operands) > 1 else []
    base = code.exchange(4 * bins)
    start = place(code, base, _linear(code, wanted, [1]), 4)
    for r in range(wanted.registers):
        memory.store(t, [i32(0)], start, "i32", code.writer(wanted), 4 * wanted.offset(r, 0))
    code.barrier()
    signed = value.type.dtype in dtypes.SIGNED
    for r, v in enumerate(code.tile(value, given)):
        (number,) = parts(v)
        if number.ty != "i64":
            number = t.cast("sext" if signed else "zext", number, "i64")
        inside: V | None = t.cmp("ult", number, memory.i64(bins))
        inside = both(t, inside, code.writer(given))
        if masks:
            inside = both(t, inside, parts(masks[r])[0])
        there = at(t, base, t.bin("mul", select_zero(code, inside, number), memory.i64(4)))
        t.line(
            f'call void asm sideeffect "@$2 red.relaxed.cta.shared.add.u32 [$1], $0;", "r,l,b,~{{memory}}"'
            f"(i32 1, {there}, {inside})"
        )
    code.barrier()
    found: Tile = []
    for r in range(wanted.registers):
        found += memory.load(t, at(t, start, 4 * wanted.offset(r, 0)), "i32", 1)
    code.exchange_end()
    code.define(op.result, found)


def select_zero(code: Codegen, mask: V | None, v: V) -> V:
    """A value where a condition holds, else 0."""
    return v if mask is None else parts(select(code.t, mask, v, V("0", v.ty)))[0]
