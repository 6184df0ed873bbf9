"""Dead code elimination."""

from __future__ import annotations

from ..ir import EFFECTS, Block, Kernel, Op
from .rewrite import Rewriter


def dce(kernel: Kernel) -> Kernel:
    """Drop the ops that no effect depends on.

    Keeps every effect, in order, with its operands' values.
    """
    owner: dict[Op, Op | None] = {}
    blocks: list[tuple[Block, Op | None]] = [(kernel.body, None)]
    while blocks:
        block, outer = blocks.pop()
        for op in block.ops:
            owner[op] = outer
            blocks.extend((region, op) for region in op.regions)
    live: set[Op] = set()
    work = [op for op in owner if op.name in EFFECTS]
    while work:
        op = work.pop()
        if op in live:
            continue
        live.add(op)
        work.extend(v.op for v in op.operands if v.op is not None)
        work.extend(region.ops[-1] for region in op.regions)
        outer = owner[op]
        if outer is not None:
            work.append(outer)
    return _Filter(live).kernel(kernel)


class _Filter(Rewriter):
    def __init__(self, live: set[Op]) -> None:
        super().__init__()
        self.live = live

    def op(self, op: Op) -> None:
        if op in self.live:
            super().op(op)
