"""`dot` of tiles in scratch: what hand-written kernels use (see `gemm` for matrix products of arrays)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.convert import Register, convert, register_type
from ..llvm.text import V
from .gemm_tiles import register_tile
from .loops import Counted
from .memory import address, i64, join, parts, splat

if TYPE_CHECKING:
    from .codegen import Codegen, Slot


def emit(code: Codegen, op: Op) -> None:
    """Emit one dot, or a batch of them."""
    t = code.t
    wide = accumulated(op)
    slots = [*[code.tile(v) for v in op.operands], code.slot(op.result, wide)]
    code.kept.add(op.result)
    if len(op.result.type.extents) == 2:
        _product(code, op, slots)
        return
    with Counted(t, i64(0), code.extent(op.result.type.extents[0]), i64(1)) as number:
        matrices = []
        for slot in slots:
            stride = slot.strides[0]
            step = t.bin("mul", number, stride if isinstance(stride, V) else i64(stride))
            base = address(t, slot.base, step, slot.dtype)
            matrices.append(replace(slot, base=base, strides=slot.strides[1:]))
        _product(code, op, matrices)


def _rows(extent: int | str, most: int) -> int:
    """Rows of the result whose sums are in registers: of known rows, no more than make the same number of trips."""
    return most if isinstance(extent, str) else -(-extent // -(-extent // most))


def accumulated(op: Op) -> str:
    """The dtype that a dot's sums have; its operands are best kept in it."""
    dtype = op.result.type.dtype
    return "f32" if dtype in dtypes.NARROW else dtype


def _product(code: Codegen, op: Op, slots: Sequence[Slot]) -> None:
    """One product of matrices.  Every vector along the result's columns is whole: tiles are padded or powers of two."""
    t = code.t
    out = op.result.type
    wide = accumulated(op)
    a, b, *acc, result = slots
    m, n = (code.extent(e) for e in out.extents[-2:])
    depth = code.extent(op.operands[0].type.extents[-1])
    tile = register_tile(wide, code.target)
    columns = out.extents[-1]
    width = min(max(tile.nr, 2), columns if isinstance(columns, int) and columns > 1 else 64)
    count = _rows(out.extents[-2], tile.mr)

    def load(slot: Slot, row: V, column: V, lanes: int) -> Register:
        return convert(t, code.memory.load(slot.dtype, locate(slot, row, column), lanes), slot.dtype, wide)

    def locate(slot: Slot, row: V, column: V) -> V:
        steps = [x if s == 1 else t.bin("mul", x, s if isinstance(s, V) else i64(s))
                 for x, s in zip((row, column), slot.strides, strict=True)]  # fmt: skip
        return address(t, slot.base, t.bin("add", *steps), slot.dtype)

    def add_product(x: Register, y: Register, sum: Register) -> Register:
        if wide in dtypes.FLOAT and tile.fused and isinstance(x, V) and isinstance(y, V) and isinstance(sum, V):
            return t.fma(x, y, sum)
        product = code.combine("multiply", [x, y], [wide, wide], wide)
        return code.combine("add", [sum, product], [wide, wide], wide)

    cells = [
        [code.memory.alloca(register_type(wide, width)) for _ in range(2 if wide in dtypes.COMPLEX else 1)]
        for _ in range(count)
    ]

    def write(group: list[V], reg: Register) -> None:
        for cell, v in zip(group, parts(reg), strict=True):
            t.store(v, cell, 64)

    def read(group: list[V]) -> Register:
        return join([t.load(cell, register_type(wide, width), 64) for cell in group])

    last = t.bin("sub", m, i64(1))
    with Counted(t, i64(0), m, i64(count)) as top:
        # Rows past the end repeat the last one.
        rows = [t.call("llvm.smin.i64", "i64", [t.bin("add", top, i64(r)), last]) for r in range(count)]
        with Counted(t, i64(0), n, i64(width)) as column:
            for group, row in zip(cells, rows, strict=True):
                write(group, load(acc[0], row, column, width) if acc else code.constant(0, wide, width))
            with Counted(t, i64(0), depth, i64(1)) as k:
                y = load(b, k, column, width)
                for group, row in zip(cells, rows, strict=True):
                    x = splat(t, load(a, row, k, 0), width)
                    write(group, add_product(x, y, read(group)))
            for group, row in zip(cells, rows, strict=True):
                reg = convert(t, read(group), wide, result.dtype)
                code.memory.store(result.dtype, reg, locate(result, row, column))
