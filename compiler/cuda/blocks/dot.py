"""Products: the layouts that they want, and their code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import Op
from .layout import Layout

if TYPE_CHECKING:
    from .codegen import Codegen


def layouts(walk: Any, op: Op) -> tuple[Layout, list[Layout | None]]:
    raise NotImplementedError("dot")


def emit(code: Codegen, op: Op) -> None:
    raise NotImplementedError("dot")
