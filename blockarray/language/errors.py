"""What is wrong with a kernel, at the line of its author."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A place in a source file: lines count from 1, columns from 0; `text` is the whole line."""

    file: str
    line: int
    column: int
    end: int
    text: str
    function: str


class CompilationError(ValueError):
    """A kernel cannot be compiled: it breaks a rule of the language.

    Attributes
    ----------
    reason : str
        What was wrong.
    positions : list of Position
        Where, innermost first: the line itself, then the calls that led there.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.positions: list[Position] = []

    @property
    def error_message(self) -> str:
        """Triton's name of the reason."""
        return self.reason

    def __str__(self) -> str:
        if not self.positions:
            return self.reason
        lines = [self.reason]
        for k, p in enumerate(self.positions):
            lines.append(f"  {'called from' if k else 'at'} {p.file}:{p.line}, in {p.function}")
            stripped = p.text.lstrip()
            start = max(p.column - (len(p.text) - len(stripped)), 0)
            width = max(min(p.end, len(p.text)) - p.column, 1)
            lines += ["    " + stripped.rstrip(), "    " + " " * start + "^" * width]
        return "\n".join(lines)
