"""Passes: pure functions from kernel to kernel, in a flat pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Kernel
from ..verifier import VerifyError, verify
from .accumulate import accumulate
from .cse import cse
from .dce import dce
from .views import views

Pass = Callable[[Kernel], Kernel]

#: What every kernel goes through, on every target.
PIPELINE: tuple[Pass, ...] = (cse, dce)
#: What goes before, for kernels that are written by hand.
WRITTEN: tuple[Pass, ...] = (accumulate, views)


def pipeline(kernel: Kernel) -> tuple[Pass, ...]:
    """The passes that a kernel goes through."""
    return (*WRITTEN, *PIPELINE) if kernel.attrs.get("schedule") == "blocks" else PIPELINE


def run(kernel: Kernel, passes: Sequence[Pass] | None = None, *, check: bool = False) -> Kernel:
    """The kernel after `passes` (None: all that it should go through), one after another.

    With `check` the verifier runs before the first and after each.
    """
    passes = pipeline(kernel) if passes is None else passes
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
