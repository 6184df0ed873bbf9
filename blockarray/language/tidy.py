"""Leaves out of a fresh kernel what nothing depends on, values that loops carry for nothing among them."""

from __future__ import annotations

from ..compiler.ir import EFFECTS, Block, Kernel, Op, Value


def tidy(kernel: Kernel) -> Kernel:
    """The same kernel, changed in place: without dead ops, results of branches, and values that loops carry.

    A value that a loop carries without a change is what it was before the loop.
    """
    _invariants(kernel.body)
    live = _Live(kernel.body)
    live.drop(kernel.body)
    return kernel


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


class _Live:
    """The values and ops that an effect depends on."""

    def __init__(self, body: Block) -> None:
        self.values: set[Value] = set()
        self.ops: set[Op] = set()
        self.owner: dict[Op, Op | None] = {}
        self.place: dict[Value, tuple[Op, int]] = {}
        self._enter(body, None)
        for op in self.owner:
            if op.name in EFFECTS:
                self.keep(op)

    def _enter(self, block: Block, owner: Op | None) -> None:
        for op in block.ops:
            self.owner[op] = owner
            for region in op.regions:
                for i, arg in enumerate(region.args):
                    self.place[arg] = (op, i)
                self._enter(region, op)

    def keep(self, op: Op) -> None:
        work: list[Op | Value] = [op]
        while work:
            x = work.pop()
            if isinstance(x, Op):
                if x not in self.ops:
                    self.ops.add(x)
                    work.extend(self._of_op(x))
            elif x not in self.values:
                self.values.add(x)
                work.extend(self._of_value(x))

    def _of_op(self, op: Op) -> list[Op | Value]:
        owner = self.owner[op]
        above: list[Op | Value] = [] if owner is None else [owner]
        if op.name == "for":
            return [*op.operands[:3], *above]
        if op.name == "while":
            return [op.regions[0].ops[-1].operands[0], *above]
        if op.name in ("reduce_by", "scan_by"):
            return [*op.operands, *op.regions[0].ops[-1].operands, *above]
        return [*op.operands, *above]

    def _of_value(self, value: Value) -> list[Op | Value]:
        if value.op is not None:
            return [value.op, *self._result(value.op, value.op.results.index(value))]
        if value not in self.place:
            return []
        op, k = self.place[value]
        if op.name == "for" and k:
            return self._carried(op, k - 1)
        if op.name == "while":
            return self._carried(op, k)
        return []

    def _result(self, op: Op, k: int) -> list[Op | Value]:
        if op.name == "if":
            return [region.ops[-1].operands[k] for region in op.regions]
        return self._carried(op, k) if op.name in ("for", "while") else []

    def _carried(self, op: Op, k: int) -> list[Op | Value]:
        """All that stands for value k of a loop lives together."""
        if op.name == "for":
            (body,) = op.regions
            return [op.operands[3 + k], body.args[1 + k], op.results[k], body.ops[-1].operands[k]]
        first, second = op.regions
        ends = [first.ops[-1].operands[1 + k], second.ops[-1].operands[k]]
        return [op.operands[k], first.args[k], second.args[k], op.results[k], *ends]

    def drop(self, block: Block) -> None:
        kept = []
        for op in block.ops:
            if op.name != "yield" and op not in self.ops:
                continue
            kept.append(op)
            if op.name in ("for", "while", "if"):
                self._narrow(op)
            for region in op.regions:
                self.drop(region)
        block.ops[:] = kept

    def _narrow(self, op: Op) -> None:
        """Leave out the dead results."""
        kept = [k for k, v in enumerate(op.results) if v in self.values]
        if len(kept) == len(op.results):
            return
        lead = 3 if op.name == "for" else 0
        if op.name != "if":
            op.operands = (*op.operands[:lead], *[op.operands[lead + k] for k in kept])
        for i, region in enumerate(op.regions):
            end = region.ops[-1]
            before = 1 if op.name == "while" and i == 0 else 0
            end.operands = (*end.operands[:before], *[end.operands[before + k] for k in kept])
            if op.name != "if":
                first = 1 if op.name == "for" else 0
                region.args = (*region.args[:first], *[region.args[first + k] for k in kept])
        op.results = tuple([op.results[k] for k in kept])
