"""The parts of loops over blocks of keys that keep a running softmax of scores and the weighted sum of values.

s = dot(q, k);  x = elementwise(s)
top = maximum(m, max(x));  shift = where(top == -inf, 0, top)
p = exp(x - shift);  fade = exp(m - shift)
yield top, l * fade + sum(p), dot(cast(p), v, acc * fade)
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir import Block, Op, Value

_COMMUTE = frozenset(("add", "multiply", "maximum", "fmax", "equal", "logical_and"))


class Walk(NamedTuple):
    """A loop, by the parts that a schedule treats in its own ways."""

    loop: Op
    index: Value
    #: The product of queries and keys, and of weights and values.
    first: Op
    second: Op
    #: What the softmax is of.
    scores: Value


def read(loop: Op) -> Walk | None:
    """The parts of a loop, if it is of this form."""
    (body,) = loop.regions
    products = [op for op in body.ops if op.name == "dot"]
    tops = [op for op in body.ops if op.name == "reduce" and op.attrs["kind"] == "max"]
    if len(body.args) != 4 or len(products) != 2 or len(tops) != 1 or len(products[1].operands) != 3:
        return None
    index, m, l, acc = body.args
    first, second = products
    x = tops[0].operands[0]
    names = {m: "m", l: "l", acc: "acc", x: "x", second.operands[1]: "v"}
    top = _call("maximum", "m", "max(x)")
    shift = f"where({_call('equal', top, '-inf')}, 0.0, {top})"
    weights, fade = f"exp(subtract(x, {shift}))", f"exp(subtract(m, {shift}))"
    wanted = (
        top,
        _call("add", _call("multiply", "l", fade), f"sum({weights})"),
        f"dot({weights}, v, {_call('multiply', 'acc', fade)})",
    )
    if tuple([form(v, names) for v in body.ops[-1].operands]) != wanted:
        return None
    if tuple([form(v, {}) for v in loop.operands[3:]]) != ("-inf", "0.0", "0.0"):
        before = loop.operands[3].op
        if before is None or before.name != "for" or loop.operands[3:] != before.results:
            return None
    return Walk(loop, index, first, second, x)


def is_quotient(walk: Walk, body: Block) -> bool:
    """Whether what is used of a loop is only the weighted sum over the running sum, in which the maximum cancels."""
    top, total, acc = walk.loop.results

    def users(value: Value) -> list[Op]:
        return [op for op in body.ops if value in op.operands]

    quotients = users(acc)
    wide = [op.result for op in users(total)]
    return (
        not users(top)
        and all(v.op is not None and v.op.name == "broadcast" for v in wide)
        and all(op.name == "divide" and op.operands[0] is acc and op.operands[1] in wide for op in quotients)
        and all(op in quotients for v in wide for op in users(v))
    )


class Scaled(NamedTuple):
    """Scores that are a product times a scalar, or by it, with some of them replaced by scalars."""

    #: The scalar (None: 1).
    by: Value | None
    divides: bool
    #: `where` ops, innermost first.
    masks: tuple[Op, ...]

    def same(self, other: Scaled) -> bool:
        names = [x.by and form(x.by, {}) for x in (self, other)]
        return names[0] == names[1] and self.divides == other.divides


def scaled(walk: Walk) -> Scaled | None:
    """The scores as such, if that is what they are."""
    raw, value, masks = walk.first.result, walk.scores, list[Op]()
    while (op := value.op) is not None and op.name == "where":
        side = kept(op)
        if side is None or raw in _needed(op.operands[0]):
            return None
        masks.append(op)
        value = op.operands[side]
    ends = tuple(masks[::-1])
    if value is raw:
        return Scaled(None, False, ends)
    if op is not None and op.name in ("multiply", "divide"):
        a, b = op.operands if op.operands[0] is raw or op.name == "divide" else op.operands[::-1]
        by = scalar(b)
        if a is raw and by is not None and walk.index not in _needed(by):
            return Scaled(by, op.name == "divide", ends)
    return None


def kept(op: Op) -> int | None:
    """Which operand of a `where` is not a scalar, if the other one is."""
    sides = [k for k in (1, 2) if scalar(op.operands[k]) is None]
    return sides[0] if len(sides) == 1 else None


def scalar(value: Value) -> Value | None:
    """The scalar that a value is everywhere."""
    while value.type.extents and value.op is not None and value.op.name == "broadcast":
        value = value.op.operands[0]
    return None if value.type.extents else value


def number(value: Value) -> float | None:
    """The number that a scalar is known to be."""
    op = value.op
    while op is not None and op.name == "cast":
        op = op.operands[0].op
    return op.attrs["value"] if op is not None and op.name == "const" else None


def _needed(value: Value) -> set[Value]:
    found, stack = {value}, [value]
    while stack:
        op = stack.pop().op
        new = [] if op is None else [v for v in op.operands if v not in found]
        found.update(new)
        stack += new
    return found


def _call(name: str, *args: str) -> str:
    return f"{name}({', '.join(sorted(args) if name in _COMMUTE else args)})"


def form(value: Value, names: dict[Value, str]) -> str:
    """An expression as text, without broadcasts and casts."""
    if value in names:
        return names[value]
    op = value.op
    if op is None:
        return value.name
    if op.name in ("broadcast", "cast"):
        return form(op.operands[0], names)
    if op.name == "const":
        return str(op.attrs["value"])
    kind = op.attrs["kind"] if op.name == "reduce" else op.name
    return _call(kind, *(form(v, names) for v in op.operands))
