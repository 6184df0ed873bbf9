"""Dead code elimination."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import EFFECTS, Block, Kernel, Op, Value
from .rewrite import Rewriter


def dce(kernel: Kernel, effects: frozenset[str] = EFFECTS) -> Kernel:
    """Drop the ops that no effect depends on, and what loops carry and branches yield for nothing.

    Keeps every effect, in order, with its operands' values.  `effects` are the names of the ops that count as such.
    """
    live = _Live(kernel, effects)
    return _Filter(live).kernel(kernel)


class _Live:
    """The ops and values that effects depend on."""

    def __init__(self, kernel: Kernel, effects: frozenset[str]) -> None:
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self.work: list[Value] = []
        #: The op that each op stands in, and each parameter of a region belongs to.
        self.owner: dict[Op, Op | None] = {}
        self.params: dict[Value, tuple[Op, int, int]] = {}
        blocks: list[tuple[Block, Op | None]] = [(kernel.body, None)]
        while blocks:
            block, outer = blocks.pop()
            for op in block.ops:
                self.owner[op] = outer
                for r, region in enumerate(op.regions):
                    blocks.append((region, op))
                    self.params.update({arg: (op, r, k) for k, arg in enumerate(region.args)})
        for op in self.owner:
            if op.name in effects or op.attrs.get("volatile"):  # such a load may wait for others
                self._run(op)
        while self.work:
            self._need(self.work.pop())

    def _ask(self, values: Sequence[Value]) -> None:
        for v in values:
            if v not in self.values:
                self.values.add(v)
                self.work.append(v)

    def _run(self, op: Op) -> None:
        """Let an op be run, wherever it stands."""
        while op not in self.ops:
            self.ops.add(op)
            match op.name:
                case "for":
                    self._ask(op.operands[:3])
                case "while":
                    self._ask(op.regions[0].ops[-1].operands[:1])
                case "reduce_by" | "scan_by":
                    self._ask([*op.operands, *op.regions[0].ops[-1].operands])
                case "if":
                    self._ask(op.operands)
                case _:
                    self._ask(op.operands)
            outer = self.owner[op]
            if outer is None:
                break
            op = outer

    def _need(self, value: Value) -> None:
        """Ask for what a value is made of."""
        if value in self.params:
            op, region, k = self.params[value]
            self._run(op)
            if op.name == "for" and k > 0:
                self._carried(op, k - 1)
            elif op.name == "while" and region == 0:
                self._ask([op.operands[k], op.regions[1].ops[-1].operands[k]])
            elif op.name == "while":
                self._ask([op.regions[0].ops[-1].operands[1 + k]])
        elif value.op is not None:
            self._run(value.op)
            if value.op.name in ("for", "if", "while"):
                self._result(value.op, value.op.results.index(value))

    def _result(self, op: Op, k: int) -> None:
        if op.name == "for":
            self._carried(op, k)
        elif op.name == "while":
            self._ask([op.regions[0].ops[-1].operands[1 + k], op.regions[1].args[k]])
        else:
            self._ask([region.ops[-1].operands[k] for region in op.regions])

    def _carried(self, op: Op, k: int) -> None:
        (body,) = op.regions
        self._ask([op.operands[3 + k], body.args[1 + k], body.ops[-1].operands[k], op.results[k]])


class _Filter(Rewriter):
    def __init__(self, live: _Live) -> None:
        super().__init__()
        self.live = live
        #: Which of the values that a region yields are kept; None: all.
        self.kept: list[int] | None = None

    def op(self, op: Op) -> None:
        if op.name == "yield":
            operands = self.operands(op)
            if self.kept is not None and len(self.kept) < len(operands):
                op = Op("yield", tuple([operands[k] for k in self.kept]), (), op.attrs, (), op.line)
            super().op(op)
        elif op in self.live.ops:
            super().op(op)

    def rebuilt(self, op: Op) -> Op:
        if op.name not in ("for", "if", "while"):
            outer, self.kept = self.kept, None
            made = super().rebuilt(op)
            self.kept = outer
            return made
        values, outer = self.live.values, self.kept
        results = [k for k, v in enumerate(op.results) if v in values]
        operands = self.operands(op)
        if op.name == "while":
            first, second = op.regions
            # The second region takes what results, the first what the second yields.
            results = [k for k in range(len(op.results)) if op.results[k] in values or second.args[k] in values]
            carried = [k for k, v in enumerate(first.args) if v in values]
            self.kept = [0, *(1 + k for k in results)]
            head = self._region(first, carried)
            self.kept = carried
            regions = (head, self._region(second, results))
            operands = tuple([operands[k] for k in carried])
        elif op.name == "for":
            (body,) = op.regions
            self.kept = results
            regions = (self._region(body, [0, *(1 + k for k in results)]),)
            operands = (*operands[:3], *(operands[3 + k] for k in results))
        else:
            self.kept = results
            regions = tuple([self.block(r) for r in op.regions])
        self.kept = outer
        made = Op(op.name, operands, tuple([op.results[k].type for k in results]), op.attrs, regions, op.line)
        self.replaced.update({op.results[k]: v for k, v in zip(results, made.results)})
        return made

    def _region(self, block: Block, args: Sequence[int]) -> Block:
        return self.block(Block(tuple([block.args[k] for k in args]), block.ops))
