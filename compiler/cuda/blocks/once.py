"""Rows that one block holds whole, of kernels that walk rows in loops.

Where several loops walk the same blocks of columns, as for a mean, a variance and a result, the first block is often
all there is.  A kernel asks for that, and has code for it without loops: what several of these load is loaded once.
"""

from __future__ import annotations

from dataclasses import replace

from ... import dtypes
from ...ir import BOOL, Block, Kernel, Op, Value
from ...passes.cse import cse
from ...passes.dce import dce
from ...passes.rewrite import Rewriter, copied
from .assign import LOADS
from .axes import constant

#: Ops of kernels that stay as they are: text that may not stand there twice, and products, whose loops are long.
_SINGLE = frozenset(("inline_asm", "dot"))


def once(kernel: Kernel) -> Kernel:
    """The kernel with code of its own for loops that have one round."""
    ops = kernel.body.ops
    loops = [op for op in ops if _walks(op)]
    loops = [op for op in loops if _bounds(op) == _bounds(loops[0])]
    if len(loops) < 2 or any(op.name in _SINGLE for op in kernel.walk()):
        return kernel
    first = ops.index(loops[0])
    lower, upper, step = loops[0].operands[:3]
    some, few = Op("less", (lower, upper), (BOOL,)), Op("less_equal", (upper, step), (BOOL,))
    single = Op("logical_and", (some.result, few.result), (BOOL,))
    rest = Block((), [*ops[first:], Op("yield", (), ())])
    straight = Block((), copied(_Straight(loops).block(rest).ops, ())[0])
    branch = Op("if", (single.result,), (), regions=(straight, rest))
    return dce(cse(replace(kernel, body=Block(kernel.body.args, [*ops[:first], some, few, single, branch]))))


def _walks(op: Op) -> bool:
    """Whether an op is a loop over blocks of what it loads, from 0 on."""
    if op.name != "for" or constant(op.operands[0]) != 0 or (constant(op.operands[2]) or 0) <= 0:
        return False
    return any(inner.name in LOADS and inner.result.type.extents for inner in op.regions[0].ops)


def _bounds(loop: Op) -> tuple[Value, int | None]:
    return loop.operands[1], constant(loop.operands[2])


class _Straight(Rewriter):
    """Puts the first round in the place of loops."""

    def __init__(self, loops: list[Op]) -> None:
        super().__init__()
        self.loops = set(loops)

    def op(self, op: Op) -> None:
        if op in self.loops:
            (body,) = op.regions
            start, *rest = self.operands(op)
            self.replaced.update(zip(body.args, (start, *rest[2:]), strict=True))
            for inner in body.ops[:-1]:
                self.op(inner)
            self.replace(op, self.operands(body.ops[-1]))
        elif (same := self._same(op)) is not None:
            self.replaced[op.result] = same
        else:
            super().op(op)

    def _same(self, op: Op) -> Value | None:
        """Which operand an op's result is, as the index is 0."""
        if op.name not in ("add", "subtract") or op.result.type.dtype not in dtypes.INTEGER:
            return None
        a, b = self.operands(op)
        return a if constant(b) == 0 else b if constant(a) == 0 and op.name == "add" else None
