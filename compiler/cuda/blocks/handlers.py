"""The code of each op that is not elementwise and renames no bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir import Op
from . import assembly, atomic, control, dot, effects, memory, order, printing, reduce, scan

if TYPE_CHECKING:
    from .codegen import Codegen

HANDLERS: dict[str, Callable[[Codegen, Op], None]] = {
    "for": control.for_,
    "while": control.while_,
    "if": control.if_,
    "load_ptr": memory.load,
    "load_view": memory.load,
    "store_ptr": memory.store,
    "store_view": memory.store,
    "reduce": reduce.reduce,
    "beyond": reduce.beyond,
    "joined": reduce.joined,
    "argreduce": reduce.argreduce,
    "reduce_by": reduce.reduce_by,
    "dot": dot.emit,
    "begin": lambda code, op: code.ahead.begin(op),
    "fetch": lambda code, op: code.ahead.fetch(op),
    "commit": lambda code, op: code.ahead.commit(op),
    "await": lambda code, op: code.ahead.wait(op),
    "end": lambda code, op: code.ahead.end(op),
    "own": lambda code, op: code.ahead.own(op),
    "read": lambda code, op: code.ahead.read(op),
    "staged": lambda code, op: code.ahead.staged(op),
    "scan": scan.scan,
    "scan_by": scan.scan_by,
    "sort": order.sort,
    "flip": order.flip,
    "gather": order.gather,
    "histogram": order.histogram,
    "split": effects.split,
    "atomic": atomic.atomic,
    "inline_asm": assembly.emit,
    "check": effects.check,
    "print": printing.print_,
    "barrier": effects.barrier,
    "int_to_ptr": effects.int_to_ptr,
    "ptr_to_int": effects.ptr_to_int,
}
