"""LLVM IR text -> object file."""

from __future__ import annotations

import threading
from functools import lru_cache

import llvmlite.binding as llvm

from .target import Target

#: LLVM's pass managers and target machines are not safe to share; one compilation runs at a time.
_lock = threading.Lock()


@lru_cache(maxsize=4)
def _tools(target: Target) -> tuple[llvm.TargetMachine, llvm.PassBuilder, llvm.ModulePassManager]:
    machine = target.machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    # The text is explicit about vectors and loops, and the code generator folds by itself what can be folded.
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    return machine, builder, passes


def optimised(text: str, target: Target) -> str:
    """The module after the passes, as text: for debugging."""
    with _lock:
        _, builder, passes = _tools(target)
        module = llvm.parse_assembly(text)
        passes.run(module, builder)
        return str(module)


def assembly(text: str, target: Target) -> str:
    """The module's assembly: for debugging and explain()."""
    with _lock:
        machine, builder, passes = _tools(target)
        module = llvm.parse_assembly(text)
        passes.run(module, builder)
        return machine.emit_assembly(module)


def emit(text: str, target: Target) -> bytes:
    """The object file of a module given as text."""
    with _lock:
        machine, builder, passes = _tools(target)
        module = llvm.parse_assembly(text)
        passes.run(module, builder)
        return machine.emit_object(module)
