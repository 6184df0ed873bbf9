"""Block IR -> machine code for NVIDIA GPUs."""

from __future__ import annotations

import json
import struct
from typing import Any

from .. import ir
from . import blocks, codegen, gemm, online
from . import ptx as back_end
from .codegen import Code
from .divided import Divided
from .libdevice import set_cache
from .shifted import Shifted
from .target import SYMBOL, Target, make_target

__all__ = ["SYMBOL", "Target", "compile", "generate", "make_target", "package", "ptx", "set_cache", "text", "unpack"]

_LENGTH = struct.Struct("<I")


def generate(kernel: ir.Kernel, target: Target) -> Code:
    """The LLVM IR of a kernel, and how it is launched."""
    if kernel.attrs.get("schedule") == "blocks":
        return blocks.generate(kernel, target)
    if kernel.attrs.get("schedule") == "gemm" and any(op.name in ("dot", "reduce") for op in kernel.body.ops):
        return gemm.generate(kernel, target)
    if kernel.attrs.get("schedule") == "online":
        return (Divided if "split" in kernel.attrs else online.Online)(kernel, target).generate()
    if Shifted.suits(kernel, target):
        return Shifted(kernel, target).generate()
    return codegen.generate(kernel, target)


def text(kernel: ir.Kernel, target: Target) -> str:
    """The LLVM IR of a kernel."""
    return generate(kernel, target).text


def ptx(kernel: ir.Kernel, target: Target) -> str:
    """The PTX of a kernel."""
    return back_end.emit(text(kernel, target), target)


def compile(kernel: ir.Kernel, target: Target) -> bytes:
    """A kernel's code and how it is launched, in one piece.

    Returns
    -------
    bytes
        The length of a header (four bytes, little endian), the header in JSON and the code; see `unpack`.
    """
    return package(generate(kernel, target), target)


def package(made: Code, target: Target) -> bytes:
    """What `compile` gives, of code that is not a kernel's."""
    code = back_end.emit(made.text, target)
    header: dict[str, Any] = {"threads": made.threads, "shared": made.shared, "workspace": made.workspace}
    header.update(workspace_zeroed=made.workspace_zeroed, workspace_kept=made.workspace_kept)
    header.update(cluster=made.cluster, resident=made.resident, waits=made.waits)
    if made.programs is not None:
        header["programs"] = made.programs
    if made.maps:
        header["maps"] = made.maps
    assembled = back_end.assemble_densely(code, target, made.loads)
    if assembled is None:
        header["format"], payload = "ptx", code.encode()
    else:
        header.update(format="cubin", registers=assembled.registers, spills=assembled.spills)
        payload = assembled.cubin
    described = json.dumps(header).encode()
    return _LENGTH.pack(len(described)) + described + payload


def unpack(blob: bytes) -> tuple[dict[str, Any], bytes]:
    """What `compile` gives, as its header and the code.

    The header holds ``threads`` of a block, how many blocks of a ``cluster`` run a program, bytes of dynamic ``shared``
    memory, ``workspace`` as bytes in all and bytes a program, whether it must be zeroed or is kept from launch to
    launch with zeros where it had some, ``programs`` if another number of them must be launched than the kernel has,
    how many blocks of a processor go through all programs (``resident``; 0: each program has its own), whether the
    code ``waits`` itself for what is queued before it, the tensor ``maps`` that follow the arguments (``dtype``, box,
    and the slots of their pointer, sizes and strides, innermost first), and ``format``: "cubin", with ``registers`` of
    a thread and ``spills`` in bytes, or "ptx".
    """
    (length,) = _LENGTH.unpack_from(blob)
    start = _LENGTH.size + length
    return json.loads(blob[_LENGTH.size : start]), blob[start:]
