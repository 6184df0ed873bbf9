"""Checks in kernels on a GPU: whose results they make doubtful, and what they found.

A kernel with checks gets a word of its own, which says after it has run which check failed.  Until then, and for ever
if one did, all buffers that were computed from what it computed are suspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from .runtime.cuda import words
from .runtime.device import CudaDevice

#: Devices that something was launched on.
used: dict[CudaDevice, None] = {}
#: The checks behind a buffer's elements that may have failed.
suspects: WeakKeyDictionary[Any, frozenset[Check]] = WeakKeyDictionary()
#: Checks of kernels that were queued and may not have run yet.
_waiting: dict[CudaDevice, dict[Check, None]] = {}
#: Checks that failed, until somebody is told.
_untold: list[Check] = []
#: Checks behind one buffer, and on one device, beyond which the host waits for their kernels.
_MANY = 64
_MANY_WAITING = 4096


class Check:
    """The checks of one launch.

    Attributes
    ----------
    word : Word
        Where the kernel stores the number of one that failed, counted from 1; None once it has been looked at.
    problem : str or None
        What that one says, once it is known.
    error : type
        The exception that says so.
    """

    __slots__ = ("device", "word", "messages", "settled", "problem", "error")

    def __init__(self, device: CudaDevice, messages: Sequence[str], error: type[Exception] = IndexError) -> None:
        self.device = device
        self.word: Any = words.error_word(device)
        self.messages = messages
        self.settled = False
        self.problem: str | None = None
        self.error = error


def spread(check: Check | None, sources: Iterable[Any], targets: Iterable[Any]) -> None:
    """Note that a kernel, which may have a check of its own, was queued that computes buffers from others."""
    if check is not None:
        waiting = _waiting.setdefault(check.device, {})
        if len(waiting) >= _MANY_WAITING:
            _await(check.device)
        waiting[check] = None
    found = {c for source in sources for c in suspects.get(source, ()) if not c.settled or c.problem}
    if check is not None:
        found.add(check)
    if len(found) > _MANY:
        for device in {c.device for c in found if not c.settled}:
            _await(device)
        found = {c for c in found if c.problem}
    doubts = frozenset(found)
    for target in targets:
        if doubts:
            suspects[target] = suspects.get(target, frozenset()) | doubts


def launched(device: CudaDevice) -> list[Check]:
    """The checks of kernels that were queued until now, to be settled when these have run."""
    return list(_waiting.get(device, ()))


def settle(checks: list[Check]) -> None:
    """Note what checks found, whose kernels have run."""
    for c in checks:
        if not c.settled:
            if number := int(c.word.view[0]):
                c.problem = c.messages[number - 1]
                _untold.append(c)
            c.settled, c.word = True, None
            _waiting[c.device].pop(c, None)


def raise_for(buffer: Any) -> None:
    """Raise what a check behind a buffer's elements found; they have been computed."""
    for c in suspects.get(buffer, ()):
        if c.problem:
            if c in _untold:
                _untold.remove(c)
            raise c.error(c.problem)
    suspects.pop(buffer, None)


def wait(buffer: Any) -> None:
    """Wait until a buffer's elements are there; raises as `raise_for` does."""
    if isinstance(buffer.device, CudaDevice):
        _await(buffer.device)
    raise_for(buffer)


def _await(device: CudaDevice) -> None:
    waiting = launched(device)
    device.synchronize()
    settle(waiting)


def synchronize() -> None:
    """Wait until all devices that work was given to are done.

    Raises
    ------
    IndexError, AssertionError
        If a check failed of which nobody was told yet.
    """
    for device in tuple(used):
        _await(device)
    if _untold:
        first = _untold[0]
        _untold.clear()
        raise first.error(first.problem)
