"""What passes share: making a kernel again with some ops left out, replaced or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import Block, Kernel, Op, Value


class Rewriter:
    """Walks a kernel in order and builds its successor; a pass overrides `op`.

    Ops that do not change are shared between the two kernels, which is sound because nothing changes an op in place.
    """

    def __init__(self) -> None:
        self.replaced: dict[Value, Value] = {}
        self.out: list[Op] = []

    def kernel(self, kernel: Kernel) -> Kernel:
        return replace(kernel, body=self.block(kernel.body))

    def block(self, block: Block) -> Block:
        outer, self.out = self.out, []
        for op in block.ops:
            self.op(op)
        made, self.out = Block(block.args, self.out), outer
        return made

    def op(self, op: Op) -> None:
        """Append what becomes of an op, and say in `replaced` what becomes of its results."""
        self.out.append(self.rebuilt(op))

    def rebuilt(self, op: Op) -> Op:
        """The op with its operands and regions in the successor; itself if it does not change."""
        operands = self.operands(op)
        if not op.regions and operands == op.operands:
            return op
        regions = tuple([self.block(r) for r in op.regions])
        made = Op(op.name, operands, tuple([v.type for v in op.results]), op.attrs, regions, op.line)
        self.replace(op, made.results)
        return made

    def operands(self, op: Op) -> tuple[Value, ...]:
        return tuple([self.replaced.get(v, v) for v in op.operands])

    def replace(self, op: Op, results: tuple[Value, ...]) -> None:
        self.replaced.update(zip(op.results, results))


class _Copier(Rewriter):
    def block(self, block: Block) -> Block:
        args = tuple([Value(a.type, None, a.name) for a in block.args])
        self.replaced.update(zip(block.args, args))
        return replace(super().block(block), args=args)

    def rebuilt(self, op: Op) -> Op:
        regions = tuple([self.block(r) for r in op.regions])
        made = Op(op.name, self.operands(op), tuple([v.type for v in op.results]), op.attrs, regions, op.line)
        self.replace(op, made.results)
        return made


def copied(ops: Sequence[Op], values: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """Ops again, so that they can stand in a kernel twice, and what becomes of some values."""
    copier = _Copier()
    for op in ops:
        copier.op(op)
    return copier.out, [copier.replaced.get(v, v) for v in values]
