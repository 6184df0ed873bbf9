"""Passes: pure functions from kernel to kernel, in a flat pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Kernel
from ..verifier import VerifyError, verify
from .cse import cse
from .dce import dce

Pass = Callable[[Kernel], Kernel]

#: What every kernel goes through, on every target.
PIPELINE: tuple[Pass, ...] = (cse, dce)


def run(kernel: Kernel, passes: Sequence[Pass] = PIPELINE, *, check: bool = False) -> Kernel:
    """The kernel after `passes`, one after another; with `check` the verifier runs before the first and after each."""
    if check:
        verify(kernel)
    for step in passes:
        kernel = step(kernel)
        if check:
            try:
                verify(kernel)
            except VerifyError as e:
                raise VerifyError(f"after pass {step.__name__}: {e}") from None
    return kernel
