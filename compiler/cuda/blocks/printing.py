"""device_print: a line an element, by the driver's vprintf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Op, Value
from ...llvm.convert import Register, to_memory
from ...llvm.text import V
from ..memory import i32, i64, parts
from .layout import Layout, blocked

if TYPE_CHECKING:
    from .codegen import Codegen

GENERIC = "ptr"


def print_(code: Codegen, op: Op) -> None:
    prefix = op.attrs["prefix"].replace("%", "%%")
    if not op.operands:
        _guarded(code, code.scalars, lambda: _line(code, prefix, []))
    for k, value in enumerate(op.operands):
        which = f"(operand {k}) " if len(op.operands) > 1 else ""
        _operand(code, value, prefix, which, op.attrs["hex"])


def _operand(code: Codegen, value: Value, prefix: str, which: str, hex_: bool) -> None:
    extents = [int(e) for e in value.type.extents]
    given = code.home.get(value) or (blocked(extents, code.warps) if extents else code.scalars)
    tile = code.tile(value, given)
    shown = _shown(value.type.dtype, hex_)
    widths = ", ".join(f"%{len(str(n - 1))}u" for n in extents)
    positions = [[code.position(given, d, r) for d in range(len(extents))] for r in range(given.registers)]

    def lines() -> None:
        for reg, position in zip(tile, positions, strict=True):
            _line(code, f" idx ({widths}){prefix}{which}{shown}", [*position, _word(code, reg, value.type.dtype, hex_)])

    _guarded(code, given, lines)


def _guarded(code: Codegen, given: Layout, lines: Callable[[], None]) -> None:
    """Lines that one of the threads writes that hold the same."""
    t, writer = code.t, code.writer(given)
    if writer is None:
        lines()
        return
    inside, done = t.new_label("print"), t.new_label("printed")
    t.br_if(writer, inside, done)
    t.label(inside)
    lines()
    t.br(done)
    t.label(done)


def _shown(dtype: str, hex_: bool) -> str:
    size = dtypes.SIZE[dtype]
    if hex_:
        return f"0x%0{2 * size}{'ll' if size == 8 else ''}x"
    if dtype in dtypes.FLOAT:
        return "%f"
    return ("%ll" if size == 8 else "%") + ("u" if dtype in dtypes.UNSIGNED else "d")


def _word(code: Codegen, reg: Register, dtype: str, hex_: bool) -> V:
    """A value as variable arguments have it."""
    t = code.t
    (v,) = parts(reg)
    if hex_:
        bits = 8 * dtypes.SIZE[dtype]
        word = t.cast("bitcast", parts(to_memory(t, v, dtype))[0], f"i{bits}")
        return t.cast("zext", word, "i32") if bits < 32 else word
    if dtype in dtypes.FLOAT:
        return t.cast("fpext", v, "double")
    if dtypes.SIZE[dtype] < 4:
        return t.cast("sext" if dtype in dtypes.SIGNED else "zext", v, "i32")
    return v


def _line(code: Codegen, text: str, values: list[V]) -> None:
    t = code.t
    found = f"pid (%u, %u, %u){text}\n".encode() + b"\0"
    name = f"@format{len(code.globals)}"
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else f"\\{c:02X}" for c in found)
    code.globals.append(f'{name} = internal addrspace(1) constant [{len(found)} x i8] c"{escaped}", align 1')
    places = [*code.places[::-1], i32(0), i32(0), i32(0)][:3]
    cell = t.fresh("buffer")
    code.allocas.append(f"  {cell} = alloca [{8 * (3 + len(values))} x i8], align 8")
    offset = 0
    for v in (*places, *values):
        size = 8 if v.ty in ("i64", "double") else 4
        offset = -(-offset // size) * size
        t.store(v, t.op(f"getelementptr i8, ptr {cell}, {i64(offset)}", GENERIC), size)
        offset += size
    where = t.op(f"addrspacecast ptr addrspace(1) {name} to ptr", GENERIC)
    t.call("vprintf", "i32", [where, V(cell, GENERIC)], "nounwind")
