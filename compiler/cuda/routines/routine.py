"""How a routine is run: launches in order, over operands and a workspace."""

from __future__ import annotations

from typing import NamedTuple


class Module(NamedTuple):
    """A kernel as LLVM IR, and how it is launched."""

    text: str
    #: Threads of a block.
    threads: int
    #: Bytes of dynamic shared memory.
    shared: int = 0
    #: Bytes of workspace in all and bytes a program: a routine's is its own.
    workspace: tuple[int, int] = (0, 0)


class Pointer(NamedTuple):
    """An address: an operand's, or the workspace's, and bytes from there."""

    operand: str
    offset: int = 0


class Launch(NamedTuple):
    """One kernel's run: its arguments are integers and addresses, a slot each."""

    module: Module
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
