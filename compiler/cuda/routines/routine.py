"""How a routine is run: launches in order, over operands and a workspace."""

from __future__ import annotations

from typing import NamedTuple

from ..codegen import Code


class Pointer(NamedTuple):
    """An address: an operand's, or the workspace's, and bytes from there."""

    operand: str
    offset: int = 0


class Launch(NamedTuple):
    """One kernel's run: its arguments are integers and addresses, a slot each."""

    code: Code
    programs: int
    arguments: tuple[int | Pointer, ...]


class Routine(NamedTuple):
    """Launches, one after the other.

    Attributes
    ----------
    launches : tuple of Launch
    workspace : int
        Bytes of the operand "workspace", at a multiple of 256.
    zeroed : int
        How many of its bytes, from the first, are zero before the first launch.
    """

    launches: tuple[Launch, ...]
    workspace: int = 0
    zeroed: int = 0
