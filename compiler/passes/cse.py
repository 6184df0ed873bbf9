"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from ..ir import Block, Kernel, Op, Value
from ..printer import attrs_text
from .rewrite import Rewriter

#: What may change memory, or lets others change it, beside what is volatile.
_STORES = ("store_view", "store_ptr", "atomic", "barrier")
_LOADS = ("load_view", "load_ptr")
_ONCE = ("for", "while", "if", "reduce_by", "scan_by", "yield", "print", *_STORES)


def cse(kernel: Kernel) -> Kernel:
    """Compute once what is computed twice where the first is visible; a repeated check is dropped.

    Keeps every value and every store.  No load is moved over a store, whatever pointers the two go through, and nothing
    is moved out of its block.
    """
    return _Sharer().kernel(kernel)


class _Sharer(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, tuple[Value, ...]] = {}
        #: Counts the stores so far: loads with equal counts see the same memory.
        self.memory = 0

    def block(self, block: Block) -> Block:
        outer = self.known
        self.known = dict(outer)
        made = super().block(block)
        self.known = outer
        return made

    def op(self, op: Op) -> None:
        if op.name in _ONCE or op.attrs.get("volatile"):
            # Twice for a region with stores: a loop's body also runs after its own stores.
            stores = _stores(op)
            self.memory += stores
            super().op(op)
            self.memory += stores
            return
        memory = self.memory if op.name in _LOADS else None
        types = tuple([v.type for v in op.results])
        key = (op.name, self.operands(op), attrs_text(op.attrs), types, memory)
        found = self.known.get(key)
        if found is not None:
            self.replace(op, found)
        else:
            made = self.rebuilt(op)
            self.known[key] = made.results
            self.out.append(made)


def _stores(op: Op) -> bool:
    return (
        op.name in _STORES
        or bool(op.attrs.get("volatile"))
        or any(_stores(inner) for region in op.regions for inner in region.ops)
    )
