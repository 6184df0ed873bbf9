"""What values of a kernel are made of."""

from __future__ import annotations

from collections.abc import Iterable

from .ir import Block, Op, Value


def slice_of(values: Iterable[Value], body: Block, stop: Value | None = None) -> list[Op]:
    """The ops of a body that `values` need, in order; what is behind `stop` does not count."""
    wanted, found = set(values), []
    for op in reversed(body.ops):
        if any(r in wanted and r is not stop for r in op.results):
            found.append(op)
            wanted.update(op.operands)
    return found[::-1]


def sides(value: Value, body: Block, m: str, n: str) -> tuple[list[Op], tuple[tuple[Value, ...], tuple[Value, ...]]]:
    """Of a generalised product, the ops over both `m` and `n`, and the values along each that they read."""
    both = {m, n}
    inner = [op for op in slice_of([value], body) if both <= {*op.result.type.extents}]
    made = {op.result for op in inner}
    read = dict.fromkeys(x for op in inner for x in op.operands if x not in made and x.type.extents)
    a = tuple(x for x in read if m in x.type.extents)
    return inner, (a, tuple(x for x in read if x not in a))
