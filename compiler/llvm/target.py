"""What a target tells the emitters of mathematical functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .lanes import Lanes


class MathTarget(Protocol):
    def vector_function(self, name: str, elem: str, lanes: int) -> tuple[str, int] | None:
        """The symbol of C's function `name` on vectors of `elem`, and the number of lanes that it takes, or None.

        The answer may not make a value depend on `lanes` (0 for a scalar): a target with several widths picks one.
        """
        ...

    def emitter(self, name: str, elem: str) -> Callable[..., Lanes] | None:
        """What emits the function `name` of the op table, of (floats.Real, operands), if the target has its own."""
        ...

    def calls(self, name: str, elem: str) -> bool:
        """Whether the function `name` of the op table is called, of those that emitters can compute in line."""
        ...

    def approximation(self, name: str) -> str | None:
        """The intrinsic that gives a function of the op table within a few ULP of a float, if there is one.

        It is used where the result is rounded to f16 or bf16.  "power of two" (2**x) and "inverse" (1 / x)
        may take denormal numbers for 0.
        """
        ...

    def scalar_function(self, name: str, elem: str) -> str:
        """The symbol of C's function `name` on `elem`."""
        ...
