"""Loops that move tiles of positions, all of a tile by as much, carry by how much."""

from __future__ import annotations

from ..ir import Block, Kernel, Op, Type, Value
from ..passes.rewrite import Rewriter


def moved(kernel: Kernel) -> Kernel:
    """Make of each tile of integers that a loop only adds scalars to a sum of what it was before and a scalar.

    That scalar is carried in a register, and the tile can be recognised for what it is: mostly rows of neighbours.
    """
    return _Moved().kernel(kernel)


class _Moved(Rewriter):
    def op(self, op: Op) -> None:
        steps = _steps(op) if op.name == "for" else {}
        if not steps:
            return super().op(op)
        (body,) = op.regions
        operands = list(self.operands(op))
        tiles = {k: operands[3 + k] for k in steps}
        args = list(body.args)
        for k, tile in tiles.items():
            scalar = Type(tile.type.dtype)
            operands[3 + k] = self.emit("const", (), scalar, value=0)
            args[1 + k] = Value(scalar, None, body.args[1 + k].name)
        outer, self.out = self.out, []
        for k, tile in tiles.items():
            self.replaced[body.args[1 + k]] = self.plus(tile, args[1 + k])
        for inner in body.ops[:-1]:
            self.op(inner)
        last = body.ops[-1]
        yielded = list(self.operands(last))
        for k, added in steps.items():
            total = args[1 + k]
            for step in added:
                total = self.emit("add", (total, self.replaced.get(step, step)), total.type)
            yielded[k] = total
        self.out.append(Op(last.name, tuple(yielded), (), last.attrs, (), last.line))
        region = Block(tuple(args), self.out)
        self.out = outer
        types = tuple([Type(v.type.dtype) if k in steps else v.type for k, v in enumerate(op.results)])
        made = Op("for", tuple(operands), types, op.attrs, (region,), op.line)
        self.out.append(made)
        found = [self.plus(tiles[k], v) if k in tiles else v for k, v in enumerate(made.results)]
        return self.replace(op, tuple(found))

    def emit(self, name: str, operands: tuple[Value, ...], type: Type, **attrs: object) -> Value:
        op = Op(name, operands, (type,), attrs)
        self.out.append(op)
        return op.result

    def plus(self, tile: Value, scalar: Value) -> Value:
        return self.emit("add", (tile, self.emit("broadcast", (scalar,), tile.type, dims=())), tile.type)


def _steps(op: Op) -> dict[int, list[Value]]:
    """What a loop adds to the tiles of integers that it carries, where all that is scalars."""
    (body,) = op.regions
    found: dict[int, list[Value]] = {}
    for k, (arg, value) in enumerate(zip(body.args[1:], body.ops[-1].operands, strict=True)):
        added: list[Value] = []
        while value is not arg:
            step = _added(value)
            if step is None:
                break
            value, scalar = step
            added.append(scalar)
        if value is arg and arg.type.extents and arg.type.dtype in ("i32", "i64"):
            found[k] = added
    return found


def _added(value: Value) -> tuple[Value, Value] | None:
    """(tile, scalar) of which a tile is the sum."""
    if value.op is None or value.op.name != "add":
        return None
    a, b = value.op.operands
    for tile, other in ((a, b), (b, a)):
        if other.op is not None and other.op.name == "broadcast" and not other.op.operands[0].type.extents:
            return tile, other.op.operands[0]
    return None
