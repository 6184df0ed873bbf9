"""Integer scalars as sums of parameters, numbers of programs and indices of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir import I64, Dim, Kernel, Value

#: What a term is a multiple of: a value, or the program's number along an axis of the grid.
Atom = Value | int


class Linear(NamedTuple):
    """`constant` plus the multiples `terms` of what is known at run time only."""

    terms: frozenset[tuple[Atom, int]] = frozenset()
    constant: int = 0

    def minus(self, other: Linear) -> Linear:
        total = dict(self.terms)
        for atom, factor in other.terms:
            total[atom] = total.get(atom, 0) - factor
        return Linear(frozenset([t for t in total.items() if t[1]]), self.constant - other.constant)

    def plus(self, number: int) -> Linear:
        return Linear(self.terms, self.constant + number)

    def times(self, number: int) -> Linear:
        if not number:
            return Linear()
        return Linear(frozenset([(atom, f * number) for atom, f in self.terms]), self.constant * number)

    def emit(self, make: Callable[..., Value]) -> Value:
        """The sum, written out by `make(name, operands, type, **attrs)`: first what is added."""
        total: Value | None = None if not self.constant else make("const", (), I64, value=self.constant)
        for atom, factor in sorted(self.terms, key=lambda t: (t[1] < 0, _order(t[0]))):
            x = make("program_id", (), I64, axis=atom) if isinstance(atom, int) else atom
            x = x if x.type == I64 else make("cast", (x,), I64)
            if abs(factor) != 1:
                x = make("multiply", (x, make("const", (), I64, value=abs(factor))), I64)
            if total is None:
                total = x if factor > 0 else make("subtract", (make("const", (), I64, value=0), x), I64)
            else:
                total = make("add" if factor > 0 else "subtract", (total, x), I64)
        return make("const", (), I64, value=0) if total is None else total


def _order(atom: Atom) -> tuple[bool, str]:
    return isinstance(atom, int), str(atom) if isinstance(atom, int) else atom.name


class Scalars:
    """The scalars of a kernel; sums and products of signed integers are taken not to overflow.

    A cast that may lose bits makes another value, but for numbers and counts of programs.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.params = frozenset(kernel.params)
        #: What is below 2**31: the numbers of programs along the grid's axes.
        self._counts = frozenset([axis.size for axis in kernel.grid])
        self._known: dict[Value, Linear | None] = {}
        #: The upper bounds of the indices of loops that go up.
        self._uppers: dict[Value, Value] = {}
        for op in kernel.walk():
            if op.name == "for":
                made = op.operands[2].op
                if made is None or made.attrs.get("value", 1) > 0:
                    self._uppers[op.regions[0].args[0]] = op.operands[1]

    def linear(self, x: Value) -> Linear | None:
        if x not in self._known:
            self._known[x] = self._linear(x)
        return self._known[x]

    def _linear(self, x: Value) -> Linear | None:
        if x.type.extents or x.type.pointer or x.type.dtype not in ("i32", "i64"):
            return None
        op = x.op
        if op is not None and op.name == "const":
            return Linear(constant=op.attrs["value"])
        if op is not None and op.name == "program_id":
            return Linear(frozenset([(op.attrs["axis"], 1)]))
        if op is not None and op.name in ("cast", "hint", "add", "subtract", "multiply"):
            found: list[Any] = [self.linear(v) for v in op.operands]
            if None not in found:
                a, b = found[0], found[-1]
                match op.name:
                    case "cast" | "hint":
                        narrow = (op.operands[0].type.dtype, x.type.dtype) == ("i64", "i32")
                        return Linear(frozenset([(x, 1)])) if narrow and not self._is_short(a) else a
                    case "add":
                        return a.minus(b.times(-1))
                    case "subtract":
                        return a.minus(b)
                a, b = (b, a) if not a.terms else (a, b)
                if not b.terms:
                    return a.times(b.constant)
        return Linear(frozenset([(x, 1)]))

    def _is_short(self, x: Linear) -> bool:
        """Whether a sum fits 32 bits, as numbers and counts of programs do."""
        counted = all(isinstance(atom, int) or atom in self._counts for atom, _ in x.terms)
        return counted and x.constant >> 31 in (0, -1)

    def is_early(self, x: Linear) -> bool:
        """Whether a sum is known where the kernel begins."""
        return all(isinstance(atom, int) or atom in self.params for atom, _ in x.terms)

    def is_above_zero(self, x: Linear) -> bool:
        """Whether a sum is what is left of a loop to go."""
        for atom, factor in x.terms:
            if factor == -1 and not isinstance(atom, int) and atom in self._uppers:
                upper = self.linear(self._uppers[atom])
                if upper is not None and x == upper.minus(Linear(frozenset([(atom, 1)]))):
                    return True
        return False

    def dim(self, limit: Linear, block: int) -> Dim | None:
        """The dim of the positions below a bound, of a block's."""
        sizes = [atom for atom, factor in limit.terms if factor == 1 and atom in self.params]
        programs = [atom for atom, factor in limit.terms if isinstance(atom, int) and factor == -block]
        if limit.constant or len(sizes) != 1 or len(programs) != len(limit.terms) - 1:
            return None
        (size,) = sizes
        assert isinstance(size, Value)
        if not programs:
            return Dim(size, bucket=block)
        return Dim(size, block, programs[0]) if len(programs) == 1 else None
