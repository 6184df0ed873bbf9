"""Instructions that a kernel's author wrote, on the registers of a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Op, Value
from ...llvm.convert import Register, from_memory, memory_type, to_memory
from ...llvm.text import V
from ..memory import parts

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: LLVM's types of the registers that constraints ask for.
_REGISTERS = {"b": "i1", "c": "i8", "h": "i16", "r": "i32", "l": "i64", "f": "float", "d": "double"}


def emit(code: Codegen, op: Op) -> None:
    """One statement for each `pack` registers of the tiles, packed into registers as wide as the constraints say."""
    t, attrs, pack = code.t, op.attrs, op.attrs["pack"]
    given = code.works[op] if op.results[0].type.extents else code.scalars
    constraints = [c.strip() for c in attrs["constraints"].split(",")]
    outputs = [_register(op, c.lstrip("=&")) for c in constraints if c.startswith("=")]
    others = [c for c in constraints if not c.startswith(("=", "~"))]
    inputs = [outputs[int(c)] if c.isdigit() else _register(op, c) for c in others]
    ty = outputs[0] if len(outputs) == 1 else f"{{{', '.join(outputs)}}}"
    effect, touched = (" sideeffect", ["~{memory}"]) if attrs.get("volatile") else ("", [])
    text = "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\{ord(c):02X}" for c in attrs["text"])
    tiles = [code.tile(v, given if v.type.extents else None) for v in op.operands]
    found: list[Tile] = [[] for _ in op.results]
    for first in range(0, given.registers, pack):
        left = list(inputs)
        words = [w for v, tile in zip(op.operands, tiles) for w in _packed(code, op, v, tile, first, left)]
        if left:
            raise ValueError(_mismatch(op, "inputs"))
        call = f'call {ty} asm{effect} "{text}", "{",".join(constraints + touched)}"({", ".join(map(str, words))})'
        made = t.op(call, ty)
        results = [made] if len(outputs) == 1 else [t.op(f"extractvalue {made}, {k}", x) for k, x in enumerate(outputs)]
        for v, tile in zip(op.results, found):
            tile += _unpacked(code, op, v, results)
        if results:
            raise ValueError(_mismatch(op, "outputs"))
    for v, tile in zip(op.results, found):
        code.define(v, tile[: given.registers])


def _register(op: Op, letter: str) -> str:
    if letter not in _REGISTERS:
        raise ValueError(f"inline_asm_elementwise: no register is {letter!r}, in {op.attrs['constraints']!r}")
    return _REGISTERS[letter]


def _mismatch(op: Op, what: str) -> str:
    return f"inline_asm_elementwise: {op.attrs['constraints']!r} does not fit the {what} for pack={op.attrs['pack']}"


def _width(ty: str) -> int:
    return {"float": 32, "double": 64}.get(ty) or int(ty[1:])


def _share(dtype: str, ty: str) -> int:
    """Elements in a register."""
    return max(1, _width(ty) // (8 * dtypes.SIZE[dtype]))


def _packed(code: Codegen, op: Op, value: Value, tile: Sequence[Register], first: int, left: list[str]) -> list[V]:
    """A value's next elements in the first of the registers that are `left`."""
    t, pack, dtype = code.t, op.attrs["pack"], value.type.dtype
    bits = 8 * dtypes.SIZE[dtype]
    elements = [t.cast("bitcast", parts(to_memory(t, v, dtype))[0], f"i{bits}") for v in tile[first : first + pack]]
    found = []
    done = 0
    while done < pack:
        if not left:
            raise ValueError(_mismatch(op, "inputs"))
        ty = left.pop(0)
        held = f"i{_width(ty)}"
        some = elements[done : done + _share(dtype, ty)]
        done += _share(dtype, ty)
        word = V("0", held)
        for k, v in enumerate(some):
            wide = t.cast("zext", v, held) if _width(ty) >= bits else t.cast("trunc", v, held)
            shifted = t.bin("shl", wide, V(str(k * bits), held)) if k else wide
            word = t.bin("or", word, shifted) if k else shifted
        found.append(t.cast("bitcast", word, ty))
    return found


def _unpacked(code: Codegen, op: Op, value: Value, results: list[V]) -> Tile:
    """A value's elements in the first of the registers that result."""
    t, pack, dtype = code.t, op.attrs["pack"], value.type.dtype
    bits = 8 * dtypes.SIZE[dtype]
    found: Tile = []
    while len(found) < pack:
        if not results:
            raise ValueError(_mismatch(op, "outputs"))
        word = results.pop(0)
        share, held = _share(dtype, word.ty), f"i{_width(word.ty)}"
        word = t.cast("bitcast", word, held)
        for k in range(min(share, pack - len(found))):
            part = t.bin("lshr", word, V(str(k * bits), held)) if k else word
            part = t.cast("trunc" if _width(held) >= bits else "zext", part, f"i{bits}")
            found.append(from_memory(t, t.cast("bitcast", part, memory_type(dtype)), dtype))
    return found
