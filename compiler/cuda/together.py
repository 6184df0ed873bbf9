"""Functions that most operands have fast code for, of several elements: one branch serves the rare operands of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..llvm import library
from ..llvm.floats import Emitter, Real
from ..llvm.lanes import Lanes
from ..llvm.text import V


class Fast(NamedTuple):
    """A result, and whether it is right."""

    value: Lanes
    good: Lanes


class Ways(NamedTuple):
    """A function's code that most operands may take, and its code for all."""

    fast: Callable[..., Fast]
    slow: Emitter
    #: Elements that a branch serves at most: what they are computed from waits in registers beside their results.
    elements: int = 8


def or_library(name: str, fast: Callable[..., Fast], elements: int = 8) -> Ways:
    return Ways(fast, lambda m, *xs: library.call(m.target, name, *xs), elements)


def together(m: Real, ways: Ways, operands: Sequence[Sequence[Lanes]]) -> list[V]:
    """A function of several elements' operands."""
    found = [ways.fast(m, *xs) for xs in operands]
    good = found[0].good
    for one in found[1:]:
        good = good & one.good
    t = good.t
    rare, done = t.new_label("rare"), t.new_label("join")
    origin = t.block
    t.br_if(good.v, done, rare)
    t.label(rare)
    slow = [ways.slow(m, *xs).v for xs in operands]
    end = t.block
    t.br(done)
    t.label(done)
    return [t.phi(v.ty, (v, end), (one.value.v, origin)) for v, one in zip(slow, found, strict=True)]
