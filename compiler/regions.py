"""Masks that compare positions: in which region of a tile they are open, and what they are in and outside of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from . import dtypes
from . import expr as E
from .expr import Expr
from .group import At, canonical
from .index import Axis, Index
from .online import Apply, Number, Read, Term, dtype_of, wide

T = TypeVar("T")
#: Operands of an elementwise operation, with their indices.
Producers = Callable[[Expr, At], list[tuple[Expr, At]]]

TRUE, FALSE = Number(True, "bool"), Number(False, "bool")
#: The difference of operands, and what is added to it, that is not negative where a comparison holds.
_COMPARISONS = {"greater_equal": (1, 0), "greater": (1, -1), "less_equal": (-1, 0), "less": (-1, -1)}


@dataclass(frozen=True, slots=True)
class Bound:
    """The sum of coefficients times axes, of scalars of the kernel and of a constant is not negative."""

    axes: Mapping[Axis, int]
    scalars: Mapping[Expr, int]
    const: int

    def complement(self) -> Bound:
        """Where this one does not hold, among integers."""
        return Bound(_times(self.axes, -1), _times(self.scalars, -1), -1 - self.const)


@dataclass(frozen=True, slots=True)
class Region:
    """Where all bounds hold a value is `inside`, elsewhere it is `outside`: both are made of scalars."""

    bounds: tuple[Bound, ...]
    inside: Term
    outside: Term


@dataclass(frozen=True, slots=True)
class Mask:
    """A value that closes positions: those outside of its region are minus infinity if `closed` holds."""

    node: Expr
    at: At
    region: Region
    closed: Term


class Regions:
    """Finds the masks of scores.

    Parameters
    ----------
    producers : callable
        The operands of a node at an index.
    forms : mapping
        The index arithmetic of a kernel; see `lower`.
    known : set of Expr
        Nodes of the kernel.
    keys : Axis
        The axis that is walked: regions up to some key are preferred.
    """

    def __init__(
        self,
        producers: Producers,
        forms: Mapping[tuple[str, Expr, At], Index],
        known: Mapping[Expr, object],
        keys: Axis,
    ) -> None:
        self.producers = producers
        self.forms = forms
        self.known = known
        self.keys = keys

    def masks(self, node: Expr, at: At) -> list[Mask]:
        """The masks that a score goes through: what `where` chooses by, and what is added."""
        found: list[Mask] = []
        stack: list[tuple[Expr, At, Term]] = [(node, canonical(at), TRUE)]
        while stack:
            node, at, guard = stack.pop()
            if node not in self.known or node.op.kind != "elementwise":
                continue
            args = self.producers(node, at)
            match node.op.name:
                case "where":
                    ends = [_is_lowest(self._scalar(x)) for x, _ in args[1:]]
                    # A scalar is what closes.
                    scalar = [x.op is E.SCALAR for x, _ in args[1:]]
                    region = self.region(*args[0], Number(scalar[1], "bool") if scalar[0] != scalar[1] else None)
                    if region is not None:
                        closed = _apply("where", "bool", region.outside, *ends)
                        found.append(Mask(*args[0], region, _apply("logical_and", "bool", guard, closed)))
                    # What one operand is made of matters where the other one is closed anyway.
                    for x, other in zip(args[1:], ends[::-1], strict=True):
                        stack.append((*x, _apply("logical_and", "bool", guard, other)))
                case "add":
                    regions = [self.region(*x) for x in args]
                    for x, region in zip(args, regions, strict=True):
                        if region is None:
                            stack.append((*x, guard))
                        else:
                            closed = _apply("logical_and", "bool", guard, _is_lowest(region.outside))
                            found.append(Mask(*x, region, closed))
                case "subtract" | "cast":
                    stack.append((*args[0], guard))
        return found

    def region(self, node: Expr, at: At, inside: Term | None = None) -> Region | None:
        """The region of a value that two scalars make up, where it is `inside`, if that is known."""
        found = self._regions(node, canonical(at))
        wanted = [r for r in found if r.inside == inside]
        upwards = [r for r in found if all(b.axes.get(self.keys, 0) < 0 for b in r.bounds)]
        return next(iter(wanted or upwards or found), None)

    def _regions(self, node: Expr, at: At) -> list[Region]:
        """A region, and the other way round where it has one bound."""
        if node not in self.known or node.op.kind != "elementwise":
            return []
        name, dtype = node.op.name, wide(dtypes.name(node.dtype))
        args = self.producers(node, at)
        if name in _COMPARISONS:
            sign, more = _COMPARISONS[name]
            a, b = (self._affine(*x) for x in args)
            if a is None or b is None:
                return []
            bound = _sum(_scaled(a, sign), _scaled(b, -sign), more)
            return [Region((bound,), TRUE, FALSE), Region((bound.complement(),), FALSE, TRUE)]
        if name in ("logical_and", "bitwise_and") and dtype == "bool":
            both = [r for x in args for r in self._regions(*x)[:1]]
            if len(both) == 2 and all((r.inside, r.outside) == (TRUE, FALSE) for r in both):
                return [Region(both[0].bounds + both[1].bounds, TRUE, FALSE)]
        terms = [self._scalar(x) for x, _ in args]
        if terms.count(None) != 1:
            return []
        k = terms.index(None)

        def applied(value: Term) -> Term:
            return _apply(name, dtype, *[value if x is None else x for x in terms])

        return [Region(r.bounds, applied(r.inside), applied(r.outside)) for r in self._regions(*args[k])]

    def _scalar(self, node: Expr) -> Term | None:
        return Read(node, ()) if node.op is E.SCALAR else None

    def _affine(self, node: Expr, at: At) -> Bound | None:
        """An integer that is affine in axes and scalars, as the Bound that it is not negative."""
        at = canonical(at)
        if dtypes.name(node.dtype) != "i64":
            return None
        if node.op is E.SCALAR:
            return Bound({}, {node: 1}, 0)
        if node.op is E.IOTA:
            form = self.forms["value", node, at]
            if not all(isinstance(a, Axis) for a in form.terms):
                return None
            return Bound({a: c for a, c in form.terms.items() if isinstance(a, Axis)}, {}, form.const)
        if node not in self.known:
            return None
        parts = {"add": (1, 1), "subtract": (1, -1), "negative": (-1,), "cast": (1,)}.get(node.op.name)
        if parts is None:
            return None
        found = [self._affine(*x) for x in self.producers(node, at)]
        if any(x is None for x in found):
            return None
        total = Bound({}, {}, 0)
        for x, sign in zip(found, parts, strict=True):
            assert x is not None
            total = _sum(total, _scaled(x, sign))
        return total


def _is_lowest(value: Term | None) -> Term:
    """Whether a scalar is minus infinity."""
    if value is None or dtype_of(value) not in dtypes.FLOAT:
        return FALSE
    return Apply("equal", "bool", (value, Number(float("-inf"), dtype_of(value))))


def _apply(name: str, dtype: str, *args: Term) -> Term:
    """An operation on scalars; what is known of truth values already is not computed."""
    match name, args:
        case "where", (Number(value, "bool"), x, y):
            return x if value else y
        case (("logical_not" | "invert"), (Number(value, "bool"),)):
            return FALSE if value else TRUE
        case "logical_and", (a, b) if FALSE in args:
            return FALSE
        case "logical_and", (a, b) if TRUE in args:
            return b if a == TRUE else a
    return Apply(name, dtype, args)


def _times(terms: Mapping[T, int], factor: int) -> dict[T, int]:
    return {x: c * factor for x, c in terms.items()}


def _scaled(x: Bound, factor: int) -> Bound:
    return Bound(_times(x.axes, factor), _times(x.scalars, factor), x.const * factor)


def _sum(a: Bound, b: Bound, more: int = 0) -> Bound:
    return Bound(_merged(a.axes, b.axes), _merged(a.scalars, b.scalars), a.const + b.const + more)


def _merged(a: Mapping[T, int], b: Mapping[T, int]) -> dict[T, int]:
    return {x: a.get(x, 0) + b.get(x, 0) for x in {**a, **b}}
