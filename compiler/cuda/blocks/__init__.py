"""Kernels written by hand, as blocks of integer extents -> LLVM IR for NVPTX."""

from .codegen import OutOfResources, generate

__all__ = ["OutOfResources", "generate"]
