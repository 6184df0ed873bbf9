"""Kernels written by hand, as blocks of integer extents -> LLVM IR for NVPTX."""

from __future__ import annotations

from ...ir import Kernel
from ..codegen import Code
from ..target import Target
from . import ahead, codegen, parked, specialised
from .codegen import OutOfResources


def generate(kernel: Kernel, target: Target) -> Code:
    """The code of a kernel whose tiles have integer extents."""
    found = None if ahead.prefers(kernel, target) else specialised.generate(kernel, target)
    found = found or ahead.generate(kernel, target) or parked.generate(kernel, target)
    return found or codegen.generate(kernel, target)


__all__ = ["OutOfResources", "generate"]
