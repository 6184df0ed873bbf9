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
    """What a loop yields as it was becomes what it began with."""
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        for region in op.regions:
            replaced |= _invariants(region)
        if op.name == "for":
            (body,) = op.regions
            carried = [
                (i, (a,), e, r) for i, a, e, r in zip(op.operands[3:], body.args[1:], _yielded(body), op.results)
            ]
        elif op.name == "while":
            first, second = op.regions
            _, *passed = _yielded(first)
            carried = [
                (init, args, end, result)
                for init, *args, end, result in zip(op.operands, first.args, second.args, _yielded(second), op.results)
                if passed[first.args.index(args[0])] is args[0]
            ]
        else:
            continue
        for init, args, end, result in carried:
            same: list[Value] = [*args, result]
            init = _final(init, replaced)
            if _stays(end, args[-1], init, replaced, same):
                replaced |= dict.fromkeys(same, init)
    if replaced:
        _replace(block, replaced)
    return replaced


def _yielded(block: Block) -> tuple[Value, ...]:
    return block.ops[-1].operands


def _stays(end: Value, arg: Value, init: Value, replaced: dict[Value, Value], same: list[Value]) -> bool:
    """Whether a loop gives on what it carries, or takes again what it began with; the values on the way are `same`."""
    end = _final(end, replaced)
    if end is arg or end is init:
        return True
    if end.op is None or end.op.name != "if":
        return False
    k = end.op.results.index(end)
    same.append(end)
    return all(_stays(_yielded(r)[k], arg, init, replaced, same) for r in end.op.regions)


def _final(value: Value, replaced: dict[Value, Value]) -> Value:
    while value in replaced:
        value = replaced[value]
    return value


def _replace(block: Block, replaced: dict[Value, Value]) -> None:
    for op in block.ops:
        op.operands = tuple([_final(v, replaced) for v in op.operands])
        for region in op.regions:
            _replace(region, replaced)
