"""Scattered stores whose order matters: the last of several values for one place wins, and floats are added in order.

Every warp of the launch walks all positions in order, 32 at a time, and takes those whose destination is in its class.
So no two warps share a destination, and in a warp lanes with equal destinations take turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.text import V
from .memory import at, both, i32, i64, load, parts, store

if TYPE_CHECKING:
    from .codegen import Codegen

#: Blocks to launch (any number is right), and threads of a block.
PROGRAMS = 256
THREADS = 128
#: Neighbours of one class, where a whole row goes to one place.
RUN = 5
_WARP = "convergent nounwind"


def emit(code: Codegen, op: Op) -> None:
    """Emit the `store_ptr` for this trip's elements."""
    t = code.t
    value, pointer, index = op.operands[:3]
    extents, dtype = index.type.extents, value.type.dtype
    lane = t.bin("and", code.tid, i32(31))
    warps = THREADS // 32
    # A power of two of classes.
    blocks = t.call("llvm.nvvm.read.ptx.sreg.nctaid.x", "i32", [], "nounwind memory(none)")
    zeros = t.call("llvm.ctlz.i32", "i32", [t.bin("mul", blocks, i32(warps)), V("false", "i1")])
    classes = t.cast("zext", t.bin("lshr", i32(-(1 << 31)), zeros), "i64")
    last_class = t.bin("sub", classes, i64(1))
    number = t.bin("add", t.bin("mul", code.program, i32(warps)), t.bin("lshr", code.tid, i32(5)))
    mine = t.cast("zext", number, "i64")
    base = code.integer(pointer)
    for point in code.points(extents):
        mask = code.mask(extents, point)
        if len(op.operands) > 3:
            mask = both(t, mask, parts(code.get(op.operands[3], point))[0])
        where = code.integer_at(index, point)
        kind = t.bin("lshr", where, i64(RUN)) if len(extents) > 1 else where
        owned = t.cmp("eq", t.bin("and", kind, last_class), mine)
        owned = owned if mask is None else t.bin("and", owned, mask)
        some, done = t.new_label("owned"), t.new_label("stored")
        t.br_if(_any(code, owned), some, done)
        t.label(some)
        # A lane without an element has a destination of its own.
        alone = t.bin("xor", t.cast("zext", lane, "i64"), i64(-1))
        peers = t.call("llvm.nvvm.match.any.sync.i64", "i32", [i32(-1), t.select(owned, where, alone)], _WARP)
        ptr = at(t, base, t.bin("mul", where, i64(dtypes.SIZE[dtype])))
        element = code.get(value, point)
        if op.attrs.get("combine") is None:
            later = t.bin("shl", i32(-2), lane)
            last = t.cmp("eq", t.bin("and", peers, later), i32(0))
            store(t, [element], ptr, dtype, t.bin("and", owned, last))
        else:
            earlier = t.bin("xor", t.bin("shl", i32(-1), lane), i32(-1))
            rank = t.call("llvm.ctpop.i32", "i32", [t.bin("and", peers, earlier)])
            turn, body, end = t.new_label("turn"), t.new_label("take"), t.new_label("taken")
            cell = code.alloca("i32")
            t.line(f"store i32 0, {cell}")
            t.br(turn)
            t.label(turn)
            now = t.op(f"load i32, {cell}", "i32")
            t.br_if(_any(code, t.bin("and", owned, t.cmp("uge", rank, now))), body, end)
            t.label(body)
            is_mine = t.bin("and", owned, t.cmp("eq", rank, now))
            (old,) = load(t, ptr, dtype, 1, is_mine)
            store(t, [code.combine("add", [old, element], [dtype, dtype], dtype)], ptr, dtype, is_mine)
            t.call("llvm.nvvm.bar.warp.sync", "void", [i32(-1)], _WARP)
            t.line(f"store {t.bin('add', now, i32(1))}, {cell}")
            t.br(turn)
            t.label(end)
        t.call("llvm.nvvm.bar.warp.sync", "void", [i32(-1)], _WARP)
        t.br(done)
        t.label(done)


def _any(code: Codegen, condition: V) -> V:
    return code.t.call("llvm.nvvm.vote.any.sync", "i1", [i32(-1), condition], _WARP)
