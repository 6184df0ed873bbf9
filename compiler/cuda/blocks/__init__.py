"""Kernels written by hand, as blocks of integer extents -> LLVM IR for NVPTX."""

from .codegen import generate

__all__ = ["generate"]
