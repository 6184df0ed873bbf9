"""Loops and conditions in LLVM text, as context managers."""

from __future__ import annotations

from ..llvm.text import Text, V


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


class When:
    """Code that runs if a condition holds."""

    def __init__(self, t: Text, condition: V) -> None:
        self.t = t
        self.condition = condition

    def __enter__(self) -> None:
        t = self.t
        then, self.done = t.new_label("then"), t.new_label("done")
        t.br_if(self.condition, then, self.done)
        t.label(then)

    def __exit__(self, *_: object) -> None:
        self.t.br(self.done)
        self.t.label(self.done)
