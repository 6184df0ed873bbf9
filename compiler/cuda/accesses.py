"""Accesses to memory: loads as elements need them, stores and checks of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.convert import Register, constant
from ..llvm.text import V
from . import layout, scatter, staging
from .layout import Point, is_const
from .memory import at, both, combine, i64, load, parts, select, store

if TYPE_CHECKING:
    from .codegen import Codegen


def load_view(code: Codegen, op: Op, point: Point) -> None:
    t, value = code.t, op.result
    extents, width = value.type.extents, code.width(op)
    # Along a stride of 0 all registers hold the same.
    strides = layout.view(op)[2]
    origin = {str(e): 0 if is_const(s, 0) else point[str(e)] for e, s in zip(extents, strides, strict=True)}
    if width > 1:
        origin[str(code.layout.lane)] -= origin[str(code.layout.lane)] % width
    key = ("loaded", op, *origin.values())
    found = code.lookup(key)
    if found is None:
        values = load(t, code.address(op, origin), value.type.dtype, width, code.mask(extents, origin))
        for k, reg in enumerate(values):
            there = {**point, str(code.layout.lane): origin[str(code.layout.lane)] + k} if width > 1 else point
            code.define(code.key(value, there), reg)
        code.define(key, values[0])
    elif width == 1:
        code.define(code.key(value, point), found)
    else:
        raise AssertionError("a vector is loaded once")


def load_ptr(code: Codegen, op: Op, point: Point) -> Register:
    t, dtype = code.t, op.result.type.dtype
    pointer, index, *masks = op.operands
    inside = code.mask(op.result.type.extents, point)
    given = parts(code.get(masks[0], point))[0] if masks else None
    ptr = at(t, code.integer(pointer), t.bin("mul", code.integer_at(index, point), i64(dtypes.SIZE[dtype])))
    found = load(t, ptr, dtype, 1, both(t, inside, given))[0]
    if given is not None:
        found = select(t, given, found, constant(t, op.attrs.get("other", 0), dtype))
    return found


def effect(code: Codegen, op: Op, points: Sequence[dict[str, int]]) -> None:
    """Emit a store or check of a tile's elements at some points, whole vectors of them."""
    match op.name:
        case "store_view":
            _store_view(code, op, points)
        case "store_ptr":
            _store_ptr(code, op, points)
        case _:
            _check(code, op, points)


def _store_view(code: Codegen, op: Op, points: Sequence[dict[str, int]]) -> None:
    value, extents = op.operands[0], op.operands[0].type.extents
    if staging.is_crossing(code, op):
        staging.store_tile(code, op)
        return
    writer, lane, width = code.writer(extents), str(code.layout.lane), code.width(op)
    if writer is not None and "overwritten" in code.kernel.attrs:
        # The others that hold these elements may not have read what was there.
        code.barrier()
    for point in points:
        if width > 1 and point[lane] % width:
            continue
        run = [{**point, lane: point[lane] + k} for k in range(width)] if width > 1 else [point]
        mask = both(code.t, code.mask(extents, point), writer)
        store(code.t, [code.get(value, p) for p in run], code.address(op, point), value.type.dtype, mask)


def _store_ptr(code: Codegen, op: Op, points: Sequence[dict[str, int]]) -> None:
    if code.serial:
        scatter.emit(code, op)
        return
    t, (value, pointer, index) = code.t, op.operands[:3]
    extents, dtype = index.type.extents, value.type.dtype
    for point in points:
        mask = both(t, code.mask(extents, point), code.writer(extents))
        if len(op.operands) > 3:
            mask = both(t, mask, parts(code.get(op.operands[3], point))[0])
        where = code.integer_at(index, point)
        ptr = at(t, code.integer(pointer), t.bin("mul", where, i64(dtypes.SIZE[dtype])))
        element = code.get(value, point)
        if "combine" in op.attrs:
            combine(t, op.attrs["combine"], element, ptr, dtype, mask)
        else:
            store(t, [element], ptr, dtype, mask)


def _check(code: Codegen, op: Op, points: Sequence[dict[str, int]]) -> None:
    """Record the check's number if it fails anywhere."""
    if code.errors is None:
        return
    t, ok = code.t, op.operands[0]
    failed: V | None = None
    for point in points:
        (good,) = parts(code.get(ok, point))
        bad = t.bin("xor", good, V("true", "i1"))
        mask = code.mask(ok.type.extents, point)
        bad = bad if mask is None else t.bin("and", bad, mask)
        failed = bad if failed is None else t.bin("or", failed, bad)
    assert failed is not None
    store(t, [i64(code.checks[op])], code.integer(code.errors), "i64", failed)
