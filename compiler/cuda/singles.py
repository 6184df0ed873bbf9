"""Functions of floats for NVIDIA GPUs, made for throughput."""

from __future__ import annotations

from collections.abc import Callable

from ..llvm.polynomials import SINGLE, small_cos, small_sin
from .together import Fast

#: Functions that most operands have fast code for.
FAST: dict[str, Callable[..., Fast]] = {
    "sin": lambda m, x: Fast(small_sin(x), abs(x) <= SINGLE.angle),
    "cos": lambda m, x: Fast(small_cos(x), abs(x) <= SINGLE.angle),
}
