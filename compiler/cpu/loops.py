"""Loops in LLVM text, and values of one of two ways."""

from __future__ import annotations

from collections.abc import Callable

from ..llvm.convert import Register
from ..llvm.text import Text, V
from .memory import join, parts


class Counted:
    """A loop over [start, end) by a positive step, tested at the end of each trip; `with` gives the position.

    `nonempty` says that there is a first trip.
    """

    def __init__(self, t: Text, start: V, end: V, step: V, nonempty: bool = False) -> None:
        self.t = t
        self.start, self.end, self.step = start, end, step
        self.nonempty = nonempty

    def __enter__(self) -> V:
        t = self.t
        entry, self.head, self.latch, self.done = (t.new_label(x) for x in ("enter", "loop", "latch", "done"))
        if self.nonempty:
            t.br(entry)
        else:
            t.br_if(t.cmp("slt", self.start, self.end), entry, self.done)
        t.label(entry)
        t.br(self.head)
        t.label(self.head)
        self.following = V(t.fresh("next"), "i64")
        self.position = t.phi("i64", (self.start, entry), (self.following, self.latch))
        return self.position

    def __exit__(self, *_: object) -> None:
        t = self.t
        t.br(self.latch)
        t.label(self.latch)
        t.line(f"{self.following.ref} = add nsw i64 {self.position.ref}, {self.step.ref}")
        t.br_if(t.cmp("slt", self.following, self.end), self.head, self.done)
        t.label(self.done)


def either(t: Text, condition: V, first: Callable[[], Register], second: Callable[[], Register]) -> Register:
    """What one of two ways gives, the first one where a condition holds."""
    yes, no, done = (t.new_label(x) for x in ("then", "else", "done"))
    t.br_if(condition, yes, no)
    t.label(yes)
    a, from_a = first(), t.block
    t.br(done)
    t.label(no)
    b, from_b = second(), t.block
    t.br(done)
    t.label(done)
    return join([t.phi(x.ty, (x, from_a), (y, from_b)) for x, y in zip(parts(a), parts(b), strict=True)])
