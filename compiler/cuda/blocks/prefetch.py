"""Loops that say how many stages they have load the next round's tiles while they compute with the present ones."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import BOOL, Kernel, Op, Type, Value
from ...passes.rewrite import Rewriter
from .assign import LOADS, SHAPES, is_elementwise


def prefetch(kernel: Kernel) -> Kernel:
    """The kernel with such loads at the end of the round before; products bring their operands themselves."""
    return _Prefetch().kernel(kernel)


class _Prefetch(Rewriter):
    def op(self, op: Op) -> None:
        if op.name == "for" and op.attrs.get("num_stages", 1) > 1:
            loads = list(_ready(op))
            if loads and not any(inner.name == "dot" for inner in _walk(op)):
                self._loop(op, loads)
                return
        super().op(op)

    def _loop(self, op: Op, loads: list[Op]) -> None:
        """The loop, which carries the tiles of its loads."""
        (body,) = op.regions
        lower, upper, step, *inits = self.operands(op)
        down = step.op is not None and step.op.name == "const" and step.op.attrs["value"] < 0
        order = "greater" if down else "less"
        first = self._load(op, loads, lower, self._new(order, (lower, upper), BOOL))
        carried = tuple([Value(v.type) for v in first])
        self.replaced.update(zip([x.result for x in loads], carried, strict=True))
        outer, self.out = self.out, []
        following = self._new("add", (body.args[0], step), body.args[0].type)
        nexts = self._load(op, loads, following, self._new(order, (following, upper), BOOL))
        kept = set(loads)
        for inner in body.ops[:-1]:
            if inner not in kept:
                self.op(inner)
        last = body.ops[-1]
        self.out.append(Op("yield", (*self.operands(last), *nexts), (), None, (), last.line))
        made, self.out = self.out, outer
        region = type(body)((*body.args, *carried), made)
        types = (*[v.type for v in op.results], *[v.type for v in first])
        loop = Op("for", (lower, upper, step, *inits, *first), types, op.attrs, (region,), op.line)
        self.out.append(loop)
        self.replaced.update(zip(op.results, loop.results))

    def _new(self, name: str, operands: tuple[Value, ...], type_: Type, **attrs: object) -> Value:
        op = Op(name, operands, (type_,), attrs)
        self.out.append(op)
        return op.result

    def _load(self, loop: Op, loads: list[Op], index: Value, alive: Value) -> list[Value]:
        """The loads of the round that has this index, if there is such a round."""
        own = dict.fromkeys(loop.regions[0].ops)
        copies: dict[Value, Value] = {loop.regions[0].args[0]: index}

        def copy(v: Value) -> Value:
            if v not in copies:
                if v.op not in own:
                    return self.replaced.get(v, v)
                made = Op(v.op.name, tuple(map(copy, v.op.operands)), (v.type,), v.op.attrs, (), v.op.line)
                self.out.append(made)
                copies[v] = made.result
            return copies[v]

        found: list[Value] = []
        for load in loads:
            operands, attrs = self._masked(load, [copy(v) for v in load.operands], alive)
            made = Op(load.name, tuple(operands), (load.result.type,), attrs, (), load.line)
            self.out.append(made)
            found.append(made.result)
        return found

    def _masked(self, load: Op, operands: list[Value], alive: Value) -> tuple[list[Value], dict[str, object]]:
        """A load's operands and attributes, so that it loads nothing where a condition does not hold."""
        extents, attrs = load.result.type.extents, {"other": 0, **load.attrs}
        if load.name == "load_ptr":
            everywhere = self._new("broadcast", (alive,), Type("bool", extents), dims=())
            if len(operands) > 2:
                operands[2] = self._new("logical_and", (operands[2], everywhere), everywhere.type)
            else:
                operands.append(everywhere)
            return operands, attrs
        rank = len(extents)
        i64 = operands[1].type
        if not attrs.get("bounded"):
            operands += [self._new("const", (), i64, value=n) for n in extents]
        nothing = self._new("const", (), i64, value=0)
        operands[2 + rank] = self._new("where", (alive, operands[2 + rank], nothing), i64)
        return operands, {**attrs, "bounded": True}


def _walk(op: Op) -> Iterable[Op]:
    for region in op.regions:
        for inner in region.ops:
            yield inner
            yield from _walk(inner)


def _ready(loop: Op) -> Iterable[Op]:
    """The loads of tiles whose place is known at the beginning of a round, from its index alone."""
    (body,) = loop.regions
    known: dict[Value, bool] = dict.fromkeys(body.args, False)
    known[body.args[0]] = True
    for op in body.ops:
        ready = all(known.get(v, True) for v in op.operands)
        pure = is_elementwise(op) or op.name in SHAPES or op.name in ("const", "iota", "program_id")
        for v in op.results:
            known[v] = ready and pure
        if ready and op.name in LOADS and op.result.type.extents and not op.attrs.get("volatile"):
            yield op
