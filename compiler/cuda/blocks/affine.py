"""By how much a tile of integers differs from register to register of a thread, where it is known.

So an address is computed once, and the other registers' are constants away, or multiples of scalars.
Index arithmetic is taken not to overflow.
"""

from __future__ import annotations

from ... import dtypes
from ...ir import Op, Value
from .assign import SHAPES, Assignment, through
from .axes import constant
from .layout import Layout

#: A sum of multiples: of 1 (None), and of scalars.
Sum = dict[Value | None, int]


class Affine:
    """Differences of a kernel's tiles."""

    def __init__(self, assigned: Assignment) -> None:
        self.owners = assigned.axes.owners
        self.known: dict[tuple[Value, Layout, int], Sum | None] = {}

    def away(self, value: Value, given: Layout, register: int) -> Sum | None:
        """What a register holds less what the first one holds; None: nobody knows."""
        if not register or not value.type.extents:
            return {}
        key = value, given, register
        if key not in self.known:
            # What a loop carries is taken to keep what it is found to have.
            self.known[key] = None
            self.known[key] = self._find(value, given, register)
        return self.known[key]

    def _find(self, value: Value, given: Layout, register: int) -> Sum | None:
        if value.type.dtype not in dtypes.INTEGER:
            return None
        op = value.op
        if op is None or op.regions:
            return self._carried(value, given, register)
        match op.name:
            case "iota":
                return {None: given.offset(register, 0)}
            case "join" | "cat":
                return None
            case name if name in SHAPES:
                source, registers = through(op, given)
                return self.away(op.operands[0], source, registers[register])
            case "cast" if op.operands[0].type.dtype in dtypes.INTEGER:
                return self.away(op.operands[0], given, register)
            case "hint":
                return self.away(op.operands[0], given, register)
            case "add" | "subtract":
                a, b = (self.away(v, given, register) for v in op.operands)
                return None if a is None or b is None else _sum(a, b, -1 if op.name == "subtract" else 1)
            case "multiply":
                return self._product(op, given, register)
        return None

    def _product(self, op: Op, given: Layout, register: int) -> Sum | None:
        for x, y in (op.operands, op.operands[::-1]):
            scalar = uniform(y)
            if scalar is None:
                continue
            found = self.away(x, given, register)
            if found is None:
                return None
            factor = constant(scalar)
            if factor is not None:
                return {k: n * factor for k, n in found.items()}
            return {scalar: found.get(None, 0)} if not found.keys() - {None} else None
        return None

    def _carried(self, value: Value, given: Layout, register: int) -> Sum | None:
        """Of what a loop carries: what its start has, if each round keeps it."""
        op = value.op
        if op is not None:
            if op.name != "for":
                return None
            value = op.regions[0].args[1 + op.results.index(value)]
        if value not in self.owners:
            return None
        op, k = self.owners[value]
        if op.name != "for":
            return None
        guess = self.away(op.operands[2 + k], given, register)
        if guess is None:
            return None
        before = dict(self.known)
        self.known[value, given, register] = guess
        after = self.away(op.regions[0].ops[-1].operands[k - 1], given, register)
        self.known = before
        return guess if after is not None and _sum(guess, after, -1) == {} else None


def _sum(a: Sum, b: Sum, sign: int) -> Sum:
    found = {k: a.get(k, 0) + sign * b.get(k, 0) for k in (*a, *b)}
    return {k: n for k, n in found.items() if n}


def uniform(value: Value) -> Value | None:
    """The scalar that all of a tile's elements are."""
    while value.op is not None and value.op.name in ("broadcast", "reshape", "trans") and value.type.extents:
        value = value.op.operands[0]
    return value if not value.type.extents else None
