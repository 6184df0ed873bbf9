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


#: What gives all results.
_SLOW: dict[str, Emitter] = {
    "divide": lambda m, a, b: a / b,
    "sqrt": lambda m, x: x.call("sqrt"),
    "sin": lambda m, x: library.call(m.target, "sin", x),
    "cos": lambda m, x: library.call(m.target, "cos", x),
}


def together(m: Real, name: str, fast: Callable[..., Fast], operands: Sequence[Sequence[Lanes]]) -> list[V]:
    """The function `name` of several elements' operands."""
    found = [fast(m, *xs) for xs in operands]
    good = found[0].good
    for one in found[1:]:
        good = good & one.good
    t = good.t
    rare, done = t.new_label("rare"), t.new_label("join")
    origin = t.block
    t.br_if(good.v, done, rare)
    t.label(rare)
    slow = [_SLOW[name](m, *xs).v for xs in operands]
    end = t.block
    t.br(done)
    t.label(done)
    return [t.phi(v.ty, (v, end), (one.value.v, origin)) for v, one in zip(slow, found, strict=True)]
