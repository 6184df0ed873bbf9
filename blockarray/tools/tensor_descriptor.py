"""Tensor descriptors made by the host."""

from ..blocks.descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]
