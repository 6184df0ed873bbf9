"""Block IR -> machine code for the CPU."""

from __future__ import annotations

from .. import ir
from ..passes.cse import cse
from ..passes.dce import dce
from ..passes.named import named
from . import gemm, object
from .codegen import Codegen
from .moved import moved
from .squeeze import squeeze
from .target import SYMBOL, Target, host_target, make_target

__all__ = ["SYMBOL", "Target", "assembly", "compile", "host_target", "make_target", "text"]


def text(kernel: ir.Kernel, target: Target) -> str:
    """The LLVM IR of a kernel."""
    if kernel.attrs.get("schedule") == "gemm" and any(op.name in ("dot", "reduce") for op in kernel.body.ops):
        return gemm.generate(kernel, target)
    return Codegen(prepared(kernel), target).module()


def prepared(kernel: ir.Kernel) -> ir.Kernel:
    """What loop nests are made of: a kernel that was written by hand in the form that the array library's have."""
    return squeeze(moved(dce(cse(named(kernel))))) if kernel.attrs.get("schedule") == "blocks" else kernel


def assembly(kernel: ir.Kernel, target: Target) -> str:
    """The assembly of a kernel."""
    return object.assembly(text(kernel, target), target)


def compile(kernel: ir.Kernel, target: Target) -> bytes:
    """An object file with `kernel` and its companions (see docs/architecture.md)."""
    return object.emit(text(kernel, target), target)
