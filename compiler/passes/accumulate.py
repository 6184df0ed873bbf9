"""Sums of products and tiles become products that begin with the tiles."""

from __future__ import annotations

from ..ir import Kernel, Op, Value
from .rewrite import Rewriter


def accumulate(kernel: Kernel) -> Kernel:
    """Make `x + dot(a, b)` a `dot(a, b, x)`, where nothing else reads the product.

    Keeps every value, but that x and the product are added as the products themselves are: to f32, and not after the
    product has been rounded to f32.
    """
    uses: dict[Value, int] = {}
    for op in kernel.walk():
        for v in op.operands:
            uses[v] = uses.get(v, 0) + 1
    return _Accumulate(uses).kernel(kernel)


class _Accumulate(Rewriter):
    def __init__(self, uses: dict[Value, int]) -> None:
        super().__init__()
        self.uses = uses

    def op(self, op: Op) -> None:
        if op.name == "add" and op.result.type.dtype in ("f32", "i32"):
            for k, v in enumerate(op.operands):
                dot = v.op
                if dot is not None and dot.name == "dot" and len(dot.operands) == 2 and self.uses[v] == 1:
                    # Where the sum is, the other operand is known.
                    operands = tuple([self.replaced.get(x, x) for x in (*dot.operands, op.operands[1 - k])])
                    made = Op("dot", operands, (op.result.type,), dot.attrs, (), dot.line)
                    self.out.append(made)
                    self.replace(op, made.results)
                    return
        super().op(op)
