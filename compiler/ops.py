"""The op table: every elementwise operation, reduction and scan, declared once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row.  Rows are compared by identity.

    kind      "elementwise", "reduction", "scan" or "structural" (those stand in `expr`)
    arity     number of array operands; -1: any
    numpy     elementwise: the NumPy ufunc or function that defines values and, if a ufunc, dtypes; reduction and scan:
              function(array, axis) with dtype already right
    """

    name: str
    arity: int
    kind: str
    doc: str
    numpy: Callable[..., Any] | None = None
    cost: int = 1


TABLE: dict[str, Op] = {}
