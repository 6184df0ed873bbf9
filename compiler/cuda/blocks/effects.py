"""Checks and barriers; pointers from numbers; halves of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Op
from ...llvm.text import V
from .. import memory
from ..memory import GLOBAL, i64, parts

if TYPE_CHECKING:
    from .codegen import Codegen


def check(code: Codegen, op: Op) -> None:
    """Record the check's number if it fails anywhere."""
    if code.errors is None:
        return
    t = code.t
    given = code.works[op] if op.operands[0].type.extents else code.scalars
    failed: V | None = None
    tiles = [code.tile(v, given) for v in op.operands]
    for good, *masks in zip(*tiles, strict=True):
        bad = t.bin("xor", parts(good)[0], V("true", "i1"))
        for m in masks:
            bad = t.bin("and", bad, parts(m)[0])
        failed = bad if failed is None else t.bin("or", failed, bad)
    assert failed is not None
    memory.store(t, [i64(code.checks[op])], code.integer(code.errors), "i64", failed)


def barrier(code: Codegen, op: Op) -> None:
    code.synchronize()


def int_to_ptr(code: Codegen, op: Op) -> None:
    address = code.integer(op.operands[0])
    code.define(op.result, [code.t.op(f"inttoptr {address} to {GLOBAL}", GLOBAL)])


def ptr_to_int(code: Codegen, op: Op) -> None:
    pointer = code.integer(op.operands[0])
    code.define(op.result, [code.t.op(f"ptrtoint {pointer} to i64", "i64")])


def split(code: Codegen, op: Op) -> None:
    """Both halves are there: the last dim's bit is one of the registers'."""
    value = op.operands[0]
    given = code.works[op]
    tile = code.tile(value, given)
    k = given.regs.index((len(value.type.extents) - 1, 0))
    for half, v in enumerate(op.results):
        code.define(v, [x for r, x in enumerate(tile) if r >> k & 1 == half])
