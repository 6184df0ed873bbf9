"""`dot` of tiles in scratch: what hand-written kernels use (see `gemm` for matrix products of arrays)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op, Value
from ..llvm.convert import Register, convert, register_type
from ..llvm.text import V
from .ahead import Fetches
from .gemm_tiles import register_tile
from .loops import Counted
from .memory import address, i64, join, parts, splat
from .strips import STORES, is_const

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


def panel(op: Op, code: Codegen) -> int:
    """Columns of the result whose sums are in registers at a time, which are those of the right operand's panels."""
    columns = op.result.type.extents[-1]
    most = max(register_tile(accumulated(op), code.target).nr, 2)
    return min(most, columns if isinstance(columns, int) and columns > 1 else 64)


def panel_of(code: Codegen, value: Value, readers: Iterable[Op]) -> int:
    """Columns of the panels in which a tile is kept that dots read; 0: it is not in panels."""
    if any(isinstance(e, str) for e in value.type.extents):
        return 0
    panels = {panel(op, code) for op in readers}
    only_right = all(op.operands[1] is value and op.operands.count(value) == 1 for op in readers)
    return panels.pop() if only_right and len(panels) == 1 else 0


def reads_in_place(code: Codegen, value: Value, line: Sequence[Op]) -> bool:
    """Whether dots may read a tile as their left operand where it lies in memory."""
    op, readers = value.op, code.readers[value]
    if op is None or op.name != "load_view" or len(value.type.extents) != 2 or not is_const(op.operands[3], 1):
        return False
    if any(isinstance(e, str) for e in value.type.extents) or any(other.name in STORES for other in line):
        return False
    return readers <= set(line) and all(
        op.name == "dot" and op.operands[0] is value and op.operands.count(value) == 1
        and accumulated(op) == value.type.dtype for op in readers
    )  # fmt: skip


def _cuts(extent: int, most: int) -> list[tuple[int, int, int]]:
    """Ranges of rows (start, end) with how many of them have sums in registers at a time.

    Few rows are too few chains of additions: what is left over is shared with the last `most`, half and half.
    """
    whole = extent - extent % most
    if whole == extent:
        return [(0, extent, most)]
    start = max(0, whole - most)
    rest = extent - start
    last = rest if rest <= most else -(-rest // 2)
    return [*([(0, start, most)] if start else ()), (start, extent, last)]


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
    width = panel(op, code)

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
        for _ in range(tile.mr)
    ]

    def write(group: list[V], reg: Register) -> None:
        for cell, v in zip(group, parts(reg), strict=True):
            t.store(v, cell, 64)

    def read(group: list[V]) -> Register:
        return join([t.load(cell, register_type(wide, width), 64) for cell in group])

    extent = out.extents[-2]
    cuts = [(0, 0, tile.mr)] if isinstance(extent, str) else _cuts(extent, tile.mr)
    last = t.bin("sub", m, i64(1))
    across = int(out.extents[-1]) // width if isinstance(out.extents[-1], int) else 1
    down = sum([-(-(end - start) // count) for start, end, count in cuts])
    fetches = Fetches(code, op, across * down, across)
    visited = code.memory.alloca("i64", 8)
    t.store(i64(0), visited, 8)
    for start, end, count in cuts:
        with Counted(t, i64(start), i64(end) if end else m, i64(count)) as top:
            rows = [t.bin("add", top, i64(r)) for r in range(count)]
            if not end or (end - start) % count:
                # Rows past the end repeat the last one.
                rows = [t.call("llvm.smin.i64", "i64", [row, last]) for row in rows]
            with Counted(t, i64(0), n, i64(width)) as column:
                for group, row in zip(cells, rows, strict=False):
                    write(group, load(acc[0], row, column, width) if acc else code.constant(0, wide, width))
                if fetches.tiles:
                    number = t.load(visited, "i64", 8)
                    fetches.some(number)
                    t.store(t.bin("add", number, i64(1)), visited, 8)
                with Counted(t, i64(0), depth, i64(1)) as k:
                    y = load(b, k, column, width)
                    for group, row in zip(cells, rows, strict=False):
                        x = splat(t, load(a, row, k, 0), width)
                        write(group, add_product(x, y, read(group)))
                for group, row in zip(cells, rows, strict=False):
                    reg = convert(t, read(group), wide, result.dtype)
                    code.memory.store(result.dtype, reg, locate(result, row, column))
