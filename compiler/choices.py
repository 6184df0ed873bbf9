"""What a plan may choose among: schedules that a tuner measures beside the one that the cost models pick.

The compiler asks for each choice by a key, which says what the choice may depend on: sizes by classes, so that what was
measured for one size serves those near it.  Who plans passes the answers in (`Policy.choices`); a plan depends on
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

#: Names and numbers: blocks of a kernel's dims by their names in the block IR, and attributes of the kernel.
Choice = Mapping[str, int]

#: Leading bits of a size that its class keeps.
_BITS = 3


class Choices:
    """The cost models' choices."""

    def choose(self, key: str, usual: Choice, others: Callable[[], Iterable[Choice]]) -> Choice:
        """One of the choices: `usual` itself, unless something better is known."""
        return usual


USUAL = Choices()


def size_class(n: int) -> str:
    """Sizes from just above an eighth of an octave to the next, those that are no multiple of 16 by themselves."""
    shift = max(0, n.bit_length() - _BITS)
    upper = -(-n >> shift) << shift
    return f"{upper}" if n < 16 or n % 16 == 0 else f"{upper}-"
