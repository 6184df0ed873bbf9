"""What is known of a tile's integers along each dim: where they are consecutive, multiples, or all the same.

Index arithmetic is taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ... import dtypes, ops
from ...ir import Block, Kernel, Op, Value
from .layout import Extents

#: A multiple of everything.
ZERO = 1 << 62
#: What arguments that are `aligned` are multiples of; pointers in bytes.
ALIGNED = 16
#: Elementwise ops that are no rows of the table.
PLAIN = frozenset(("cast", "bitcast", "hint"))


@dataclass(frozen=True, slots=True)
class Axis:
    """What is known along one dim.  All are powers of two.

    Elements come in groups of `run`, each of which begins at a multiple of `run` and counts up by one from a multiple
    of `multiple`.  Elements in a group of `same` are equal.
    """

    run: int = 1
    multiple: int = 1
    same: int = 1

    def within(self, run: int) -> int:
        """What the first elements of groups of `run` are multiples of."""
        return self.multiple if self.run <= run else min(self.multiple, run)

    def meet(self, other: Axis) -> Axis:
        run = min(self.run, other.run)
        return Axis(run, min(self.within(run), other.within(run)), min(self.same, other.same))


#: Along each dim; a scalar has one of extent 1.
Info = tuple[Axis, ...]


def extents_of(value: Value) -> Extents:
    return tuple([int(e) for e in value.type.extents])


def is_elementwise(op: Op) -> bool:
    row = ops.TABLE.get(op.name)
    return op.name in PLAIN or (row is not None and row.kind == "elementwise")


def lowest(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n if n else ZERO


class Axes:
    """The info of a kernel's values, found when asked for."""

    def __init__(self, kernel: Kernel) -> None:
        self.aligned = frozenset(kernel.attrs.get("aligned", ()))
        sizes = {p.name: dtypes.SIZE[p.type.dtype] for p in kernel.params}
        #: What strides of descriptors are multiples of, in elements.
        self.pitched = {n: ALIGNED // sizes[n.rpartition(".")[0]] for n in kernel.attrs.get("pitched", ())}
        self.known: dict[Value, Info] = {}
        #: Of blocks' arguments: the op, and which of its regions' arguments.
        self.owners: dict[Value, tuple[Op, int]] = {}
        self._own(kernel.body)

    def _own(self, block: Block) -> None:
        for op in block.ops:
            for region in op.regions:
                for k, arg in enumerate(region.args):
                    self.owners[arg] = op, k
                self._own(region)

    def __getitem__(self, value: Value) -> Info:
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._find(value)
        return found

    def address(self, pointer: Value) -> int:
        """What a pointer's address is a multiple of."""
        if pointer.name in self.aligned:
            return ALIGNED
        if pointer.op is not None and pointer.op.name == "int_to_ptr":
            return max(self[pointer.op.operands[0]][0].multiple, 1)
        return dtypes.SIZE[dtypes.PART.get(pointer.type.dtype, pointer.type.dtype)]

    def _find(self, value: Value) -> Info:
        nothing = unknown(value)
        if value.type.pointer or (value.type.dtype not in dtypes.INTEGER and value.type.dtype != "bool"):
            return nothing
        if value.op is not None and not value.op.regions:
            return self._of(value.op, value)
        if value in self.owners:
            op, k = self.owners[value]
            if op.name == "for" and k == 0:
                lower, step = self[op.operands[0]], self[op.operands[2]]
                return (Axis(1, min(lower[0].within(1), step[0].within(1))),)
            return self._carried(value, op, k)
        if value.op is not None and value.op.name in ("for", "while"):
            return nothing
        if value.op is not None:
            k = value.op.results.index(value)
            then, other = (self[r.ops[-1].operands[k]] for r in value.op.regions)
            return tuple([a.meet(b) for a, b in zip(then, other, strict=True)])
        return (Axis(1, ALIGNED if value.name in self.aligned else self.pitched.get(value.name, 1)),)

    def _carried(self, value: Value, op: Op, k: int) -> Info:
        """Of what a loop carries: what its start has, if each round keeps it; else nothing."""
        if op.name != "for":
            return unknown(value)
        guess = self[op.operands[2 + k]]
        yielded = op.regions[0].ops[-1].operands[k - 1]
        for _ in range(3):
            before = dict(self.known)
            self.known[value] = guess
            after = self[yielded]
            self.known = before
            met = tuple([a.meet(b) for a, b in zip(guess, after, strict=True)])
            if met == guess:
                return guess
            guess = met
        return unknown(value)

    def _of(self, op: Op, value: Value) -> Info:
        extents = extents_of(value) or (1,)
        of = [self[v] for v in op.operands]
        match op.name:
            case "const":
                return tuple([Axis(1, lowest(int(op.attrs["value"])), n) for n in extents])
            case "iota":
                (n,) = extents
                return (Axis(n, ZERO, 1),)
            case "broadcast":
                return self._broadcast(op, of[0], extents)
            case "trans":
                return tuple([of[0][k] for k in op.attrs["perm"]])
            case "reshape":
                return _reshaped(extents_of(op.operands[0]), of[0], extents)
            case "cast" if op.operands[0].type.dtype in dtypes.INTEGER or op.operands[0].type.dtype == "bool":
                return of[0]
            case "hint":
                return _hinted(op, of[0])
            case "multiply" if (kept := _times_one(op)) is not None:
                return self[kept]
            case name if name in _RULES and len({len(x) for x in of}) == 1:
                along = zip(*of, strict=True)
                found = [_RULES[name](n, *axes) for n, axes in zip(extents, along, strict=True)]
                return tuple([Axis(min(a.run, n), a.multiple, min(a.same, n)) for a, n in zip(found, extents)])
        return unknown(value)

    @staticmethod
    def _broadcast(op: Op, of: Info, extents: Sequence[int]) -> Info:
        dims = op.attrs["dims"]
        # Along a new dim, elements have all positions along the others.
        everywhere = min([a.within(1) for a in of])
        given = extents_of(op.operands[0])
        found = [Axis(1, everywhere, n) for n in extents]
        for k, d in enumerate(dims):
            if given[k] == extents[d]:
                found[d] = of[k]
        return tuple(found)


def unknown(value: Value) -> Info:
    return (Axis(),) * max(1, len(value.type.extents))


def _reshaped(given: Sequence[int], of: Info, extents: Sequence[int]) -> Info:
    """Dims of extent 1 come and go; else the last dim's runs may stay."""
    kept = [a for n, a in zip(given, of, strict=False) if n > 1]
    if [n for n in given if n > 1] == [n for n in extents if n > 1]:
        rest = iter(kept)
        everywhere = min([a.within(1) for a in of])
        return tuple([next(rest) if n > 1 else Axis(1, everywhere, 1) for n in extents])
    everywhere = min([a.within(1) for a in of])
    found = [Axis(1, everywhere, 1) for _ in extents]
    last = of[-1] if given else Axis()
    run, same = min(last.run, extents[-1]), min(last.same, extents[-1])
    found[-1] = Axis(run, last.within(run), same)
    return tuple(found)


def constant(value: Value) -> int | None:
    """The integer that all elements are, if it is known."""
    while value.op is not None and value.op.name in ("broadcast", "cast", "reshape"):
        value = value.op.operands[0]
    if value.op is None or value.op.name != "const" or not isinstance(value.op.attrs["value"], int):
        return None
    return value.op.attrs["value"]


def _times_one(op: Op) -> Value | None:
    """The other operand of a product with 1."""
    a, b = op.operands
    return a if constant(b) == 1 else b if constant(a) == 1 else None


def _hinted(op: Op, of: Info) -> Info:
    attrs, found = op.attrs, list(of)
    for name, field in (("contiguous", "run"), ("multiple", "multiple"), ("constancy", "same")):
        given = attrs.get(name)
        if given is None:
            continue
        for k, n in enumerate(given if isinstance(given, tuple) else (given,)):
            if k < len(found):
                old = found[k]
                value = max(getattr(old, field), lowest(int(n)))
                found[k] = Axis(**{"run": old.run, "multiple": old.multiple, "same": old.same, field: value})
    return tuple(found)


# -- elementwise ops, along one dim of extent n -----------------------------------------------------------------------
def _is_same(n: int, a: Axis) -> bool:
    return a.same >= n


def _add(n: int, a: Axis, b: Axis) -> Axis:
    run = max(min(a.run, b.same), min(b.run, a.same))
    return Axis(run, min(a.within(run), b.within(run)), min(a.same, b.same))


def _subtract(n: int, a: Axis, b: Axis) -> Axis:
    run = min(a.run, b.same)
    return Axis(run, min(a.within(run), b.within(run)), min(a.same, b.same))


def _multiply(n: int, a: Axis, b: Axis) -> Axis:
    return Axis(1, min(a.within(1) * b.within(1), ZERO), min(a.same, b.same))


def _divide(n: int, a: Axis, b: Axis) -> Axis:
    # Quotients of a run that begins at a multiple of the divisor are the same for as long as the divisor is.
    same = min(a.same, b.same)
    if _is_same(n, b):
        same = max(same, min(a.run, a.multiple, b.multiple))
    return Axis(1, 1, same)


def _remainder(n: int, a: Axis, b: Axis) -> Axis:
    if not _is_same(n, b):
        return Axis()
    run = min(a.run, a.multiple, b.multiple)
    return Axis(run, min(a.within(run), b.multiple), a.same)


def _shift_left(n: int, a: Axis, b: Axis) -> Axis:
    return Axis(1, a.within(1), min(a.same, b.same))


def _either(n: int, a: Axis, b: Axis) -> Axis:
    return Axis(1, min(a.within(1), b.within(1)), min(a.same, b.same))


def _and(n: int, a: Axis, b: Axis) -> Axis:
    return Axis(1, max(a.within(1), b.within(1)), min(a.same, b.same))


def _equal(n: int, a: Axis, b: Axis) -> Axis:
    return Axis(1, 1, min(a.same, b.same))


def _where(n: int, c: Axis, a: Axis, b: Axis) -> Axis:
    run = min(c.same, a.run, b.run)
    return Axis(run, min(a.within(run), b.within(run)), min(c.same, a.same, b.same))


def _less(n: int, a: Axis, b: Axis) -> Axis:
    """x < bound and x >= bound change at the bound itself; the other two behind it."""
    same = min(a.same, b.same)
    if _is_same(n, b):
        same = max(same, min(a.run, a.multiple, b.multiple))
    return Axis(1, 1, same)


def _greater(n: int, a: Axis, b: Axis) -> Axis:
    return _less(n, b, a) if _is_same(n, a) else Axis(1, 1, min(a.same, b.same))


_RULES: dict[str, Callable[..., Axis]] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply,
    "floor_divide": _divide, "trunc_divide": _divide, "remainder": _remainder, "fmod": _remainder,
    "left_shift": _shift_left, "minimum": _either, "maximum": _either, "fmin": _either, "fmax": _either,
    "bitwise_and": _and, "bitwise_or": _either, "bitwise_xor": _either,
    "logical_and": _equal, "logical_or": _equal, "logical_xor": _equal,
    # A run is cut where x passes the bound: below it for these two, behind it for the others.
    "less": _less, "greater_equal": _less, "greater": _greater, "less_equal": _greater,
    "equal": _equal, "not_equal": _equal, "where": _where,
}  # fmt: skip
