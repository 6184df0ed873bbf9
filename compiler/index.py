"""Index arithmetic: integer expressions over bounded loop axes, as the planner composes movements.

An `Index` is affine: const + sum(coefficient * atom).  Atoms are axes, quotients and remainders of indices by
constants, and values read from an index array.  `unflatten` is where quotients and remainders arise; interval analysis
removes those that the bounds make unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from .expr import Shape, contiguous_strides


class Axis:
    """A loop axis of `size` positions.  Two axes that must walk together are united (union-find)."""

    __slots__ = ("size", "_parent")

    def __init__(self, size: int) -> None:
        self.size = size
        self._parent: Axis | None = None

    def find(self) -> Axis:
        axis = self
        while axis._parent is not None:
            axis = axis._parent
        return axis

    def unite(self, other: Axis) -> None:
        """Make this axis stand for `other`."""
        mine, theirs = self.find(), other.find()
        if mine is not theirs:
            mine._parent = theirs

    def __repr__(self) -> str:
        return f"a{id(self) % 997}<{self.size}"


@dataclass(frozen=True, slots=True)
class Quotient:
    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder:
    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """A value of an index array, wrapped into [0, size): `node` evaluated at `index`."""

    node: Any
    index: tuple[Index, ...]
    size: int


Atom = Axis | Quotient | Remainder | Gathered


class Index:
    """const + sum(coefficient * atom); immutable, hashable."""

    __slots__ = ("const", "terms", "_hash", "_range")

    def __init__(self, const: int = 0, terms: Mapping[Atom, int] | None = None) -> None:
        self.const = const
        self.terms: dict[Atom, int] = dict(terms) if terms else {}
        self._hash: int | None = None
        self._range: tuple[int, int] | None = None

    @staticmethod
    def axis(axis: Axis) -> Index:
        return ZERO if axis.size == 1 else Index(0, {axis: 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, frozenset(self.terms.items())))
        return self._hash

    def __repr__(self) -> str:
        return " + ".join([str(self.const), *(f"{c}*{a!r}" for a, c in self.terms.items())])

    def scaled(self, k: int) -> Index:
        if k == 1:
            return self
        return Index(self.const * k, {a: c * k for a, c in self.terms.items()}) if k else ZERO

    def single(self) -> Axis | None:
        """The axis, if this index is one axis and nothing else."""
        if self.const == 0 and len(self.terms) == 1:
            ((atom, c),) = self.terms.items()
            if c == 1 and isinstance(atom, Axis):
                return atom.find()
        return None

    def bounds(self) -> tuple[int, int]:
        """Lowest and highest value."""
        if self._range is None:
            lo = hi = self.const
            for atom, c in self.terms.items():
                a, b = _bounds(atom)
                lo += min(c * a, c * b)
                hi += max(c * a, c * b)
            self._range = lo, hi
        return self._range

    def depth(self) -> int:
        """How deeply quotients and remainders are nested: 0 for an affine index."""
        found = 0
        for atom in self.terms:
            if isinstance(atom, (Quotient, Remainder)):
                found = max(found, 1 + atom.index.depth())
            elif isinstance(atom, Gathered):
                found = max(found, *[i.depth() for i in atom.index], 0)
        return found

    def axes(self) -> set[Axis]:
        """Axes that the value depends on."""
        found: set[Axis] = set()
        for atom in self.terms:
            if isinstance(atom, Axis):
                found.add(atom.find())
            elif isinstance(atom, Gathered):
                for i in atom.index:
                    found |= i.axes()
            else:
                found |= atom.index.axes()
        return found

    def substitute(self, mapping: Mapping[Axis, Index]) -> Index:
        """With axes replaced, and quotients and remainders simplified again."""
        for atom in self.terms:
            if type(atom) is not Axis or atom._parent is not None or atom in mapping:
                break
        else:
            return self
        parts: list[Index] = [Index(self.const)]
        for atom, c in self.terms.items():
            if isinstance(atom, Axis):
                axis = atom.find()
                parts.append(mapping.get(axis, Index.axis(axis)).scaled(c))
            elif isinstance(atom, Quotient):
                parts.append(divmod_index(atom.index.substitute(mapping), atom.divisor)[0].scaled(c))
            elif isinstance(atom, Remainder):
                parts.append(divmod_index(atom.index.substitute(mapping), atom.divisor)[1].scaled(c))
            else:
                parts.append(Index(0, {atom: c}))
        return add(parts)


ZERO = Index()


def _bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, (Axis, Gathered)):
        return 0, atom.size - 1
    lo, hi = atom.index.bounds()
    if isinstance(atom, Quotient):
        return lo // atom.divisor, hi // atom.divisor
    return 0, atom.divisor - 1


def add(parts: Iterable[Index]) -> Index:
    const = 0
    terms: dict[Atom, int] = {}
    for part in parts:
        const += part.const
        for atom, c in part.terms.items():
            c += terms.get(atom, 0)
            if c:
                terms[atom] = c
            else:
                terms.pop(atom, None)
    return Index(const, terms)


def divmod_index(index: Index, divisor: int) -> tuple[Index, Index]:
    """Floor quotient and remainder by a positive constant."""
    if divisor == 1:
        return index, ZERO
    whole: dict[Atom, int] = {}
    part: dict[Atom, int] = {}
    for atom, c in index.terms.items():
        if c % divisor == 0:
            whole[atom] = c // divisor
        else:
            part[atom] = c
    rest = Index(0, part)
    lo, hi = rest.bounds()
    # The constant goes to the quotient as far as keeps the remainder's lowest value at or above 0.
    q_const = (index.const + lo) // divisor
    r_const = index.const - q_const * divisor
    rest = Index(r_const, part)
    if r_const + hi < divisor:
        return Index(q_const, whole), rest
    coarse = _in_steps(rest, divisor)
    if coarse is not None:
        # (s * a + r) // (s * d) is a // d, and its remainder s * (a % d) + r, where r is in [0, s).
        step, count, within = coarse
        quotient, part_of = divmod_index(count, divisor // step)
        return add((Index(q_const, whole), quotient)), add((part_of.scaled(step), within))
    quotient = add((Index(q_const, whole), Index(0, {Quotient(rest, divisor): 1})))
    return quotient, Index(0, {Remainder(rest, divisor): 1})


def _in_steps(index: Index, divisor: int) -> tuple[int, Index, Index] | None:
    """(s, a, r) so that the index is s * a + r, s > 1 divides the divisor and r is in [0, s), if there are such."""
    terms = sorted(index.terms.items(), key=lambda term: -abs(term[1]))
    step = divisor
    for k, (_, c) in enumerate(terms, 1):
        step = gcd(step, c)
        if step == 1:
            return None
        within = Index(index.const % step, dict(terms[k:]))
        lo, hi = within.bounds()
        if lo >= 0 and hi < step:
            return step, Index(index.const // step, {atom: c // step for atom, c in terms[:k]}), within
    return None


def flatten(index: tuple[Index, ...], offset: int, strides: Shape) -> Index:
    """A position from indices along axes."""
    flat = add((Index(offset), *(i.scaled(s) for i, s in zip(index, strides, strict=True))))
    # k*d * (r // d) + k * (r % d) is k * r: a reshape and its inverse leave nothing behind.
    changed = True
    while changed:
        changed = False
        for atom, k in flat.terms.items():
            if isinstance(atom, Remainder):
                quotient = Quotient(atom.index, atom.divisor)
                if flat.terms.get(quotient) == k * atom.divisor:
                    rest = {t: c for t, c in flat.terms.items() if t not in (atom, quotient)}
                    flat = add((Index(flat.const, rest), atom.index.scaled(k)))
                    changed = True
                    break
    return flat


def unflatten(flat: Index, shape: Shape) -> tuple[Index, ...]:
    """The indices along `shape` of a row-major position."""
    out: list[Index] = []
    for n, step in zip(shape, contiguous_strides(shape), strict=True):
        if n == 1:
            out.append(ZERO)
            continue
        digit, flat = divmod_index(flat, step)
        out.append(digit)
    return tuple(out)


def through_view(index: tuple[Index, ...], offset: int, strides: Shape, base_shape: Shape) -> tuple[Index, ...]:
    """The index into a VIEW's base of an index into the VIEW."""
    return unflatten(flatten(index, offset, strides), base_shape)


#: Positions that windows of the same memory are shifted by at most along an axis.
FAR = 8


def shift(distance: int, strides: Mapping[Any, int]) -> dict[Any, int] | None:
    """Small numbers of steps along axes that make a distance in memory; None if it is no such shift."""
    found: dict[Any, int] = {}
    for axis, stride in sorted(strides.items(), key=lambda item: -abs(item[1])):
        if stride:
            n = round(distance / stride)
            distance -= n * stride
            if n:
                found[axis] = n
    return found if not distance and all(abs(n) <= FAR for n in found.values()) else None


def splittable(forms: Iterable[Index], fixed: set[Axis]) -> tuple[Axis, int] | None:
    """An axis and a divisor of its size by which an access divides it."""
    stack = [a for f in forms for a in f.terms]
    while stack:
        atom = stack.pop()
        if isinstance(atom, (Quotient, Remainder)):
            axis = atom.index.single()
            if axis is not None and axis not in fixed and axis.size % atom.divisor == 0:
                return axis, atom.divisor
            stack.extend(atom.index.terms)
    return None


def ordered_axes(forms: Iterable[Index], walks: Iterable[list[Axis]]) -> list[Axis]:
    """Every axis once, in the order of first appearance."""
    seen: dict[Axis, None] = {}

    def visit(form: Index) -> None:
        for atom in form.terms:
            if isinstance(atom, Axis):
                seen[atom.find()] = None
            elif isinstance(atom, Gathered):
                for i in atom.index:
                    visit(i)
            else:
                visit(atom.index)

    for form in forms:
        visit(form)
    for axes in walks:
        seen.update(dict.fromkeys(axes))
    return list(seen)
