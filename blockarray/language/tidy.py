"""Leaves out of a fresh kernel what nothing depends on, and values that loops carry without a change."""

from __future__ import annotations

from ..compiler.ir import Block, Kernel, Value
from ..compiler.passes.cse import cse
from ..compiler.passes.dce import dce


def tidy(kernel: Kernel) -> Kernel:
    """The same kernel with less in it; changed in place, too."""
    _invariants(kernel.body)
    return cse(dce(kernel))


def _invariants(block: Block) -> dict[Value, Value]:
    """What a `for` yields as it was becomes what it began with."""
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        for region in op.regions:
            replaced |= _invariants(region)
        if op.name == "for":
            (body,) = op.regions
            for init, arg, end, result in zip(op.operands[3:], body.args[1:], body.ops[-1].operands, op.results):
                if end is arg:
                    replaced |= {arg: init, result: init}
    if replaced:
        _replace(block, replaced)
    return replaced


def _replace(block: Block, replaced: dict[Value, Value]) -> None:
    def final(v: Value) -> Value:
        while v in replaced:
            v = replaced[v]
        return v

    for op in block.ops:
        op.operands = tuple([final(v) for v in op.operands])
        for region in op.regions:
            _replace(region, replaced)
