"""Branches that wait for less and carry less.

Elements that are loaded in a branch and stored to behind it anyway are loaded in front of it, so that the load need not
wait for the condition.  That may have to come from memory itself, as where the first program of many stores and the
others add to what is there.  And what branches result in is cast in them, if it is only used as fewer bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import dtypes
from ...ir import Block, Kernel, Op, Value, has_effect
from ...passes.rewrite import Rewriter
from .assign import LOADS

#: By each kind of store, the load of what it stores to.
_STORES = {"store_ptr": "load_ptr", "store_view": "load_view"}
#: What an access touches: the op that loads it, its operands, and whether it is bounded.
_Access = tuple[str, tuple[Value, ...], bool]


def light(kernel: Kernel) -> Kernel:
    """The kernel with such branches."""
    return _Lighter(kernel).kernel(kernel) if any(op.name == "if" for op in kernel.walk()) else kernel


class _Lighter(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.uses = kernel.uses()
        #: The loads that are made in front of a branch, and ops that have been made already.
        self.early: dict[Op, list[Op]] = {}
        self.made: set[Op] = set()

    def block(self, block: Block) -> Block:
        for k, op in enumerate(block.ops):
            if op.name == "if":
                self.early[op] = list(_early(op, set(_stored(block.ops[k + 1 :]))))
        return super().block(block)

    def op(self, op: Op) -> None:
        if op in self.made:
            return
        for load in self.early.get(op, ()):
            super().op(load)
            self.made.add(load)
        casts = [self._cast(v) if op.name == "if" else None for v in op.results]
        if not any(casts):
            super().op(op)
            return
        regions = tuple([_cast(self.block(r), casts) for r in op.regions])
        types = tuple([v.type if c is None else c.result.type for v, c in zip(op.results, casts, strict=True)])
        made = Op("if", self.operands(op), types, op.attrs, regions, op.line)
        self.out.append(made)
        self.replace(op, made.results)
        for cast, v in zip(casts, made.results, strict=True):
            if cast is not None:
                self.made.add(cast)
                self.replaced[cast.result] = v

    def _cast(self, value: Value) -> Op | None:
        """The op that casts a tile to fewer bits, if nothing else uses the tile."""
        uses = self.uses.get(value, [])
        if not value.type.extents or len(uses) != 1 or uses[0].name != "cast":
            return None
        bits = (dtypes.SIZE[v.type.dtype] for v in (uses[0].result, value))
        return uses[0] if next(bits) < next(bits) else None


def _cast(block: Block, casts: Sequence[Op | None]) -> Block:
    """A branch with some of its results cast."""
    *ops, last = block.ops
    values = list(last.operands)
    for k, cast in enumerate(casts):
        if cast is not None:
            ops.append(Op("cast", (values[k],), (cast.result.type,), cast.attrs, line=cast.line))
            values[k] = ops[-1].result
    return Block(block.args, [*ops, Op("yield", tuple(values), (), line=last.line)])


def _stored(ops: Sequence[Op]) -> Iterator[_Access]:
    """What ops store to in any case."""
    for op in ops:
        if op.regions or op.name == "check":
            return
        if op.name in _STORES and "combine" not in op.attrs:
            yield _STORES[op.name], op.operands[1:], bool(op.attrs.get("bounded"))


def _early(branch: Op, stored: set[_Access]) -> Iterator[Op]:
    """The loads of what is stored to that a branch begins with: before it changes memory."""
    for region in branch.regions:
        for op in region.ops:
            if op.regions or has_effect(op):
                break
            if op.name in LOADS and (op.name, op.operands, bool(op.attrs.get("bounded"))) in stored:
                yield op
