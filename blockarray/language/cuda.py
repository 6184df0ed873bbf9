"""What NVIDIA's GPUs alone can say: `globaltimer`, `smid`, and a program's `num_warps` and `num_threads`."""

from __future__ import annotations

from . import math as libdevice
from .emit import builder
from .machine import read
from .types import int32, int64
from .values import Tensor


def globaltimer() -> Tensor:
    """Nanoseconds of the GPU's clock."""
    return read("globaltimer", "l", int64)


def smid() -> Tensor:
    """The number of the processor that the program runs on."""
    return read("smid", "r", int32)


def num_warps() -> int:
    """Warps of a program."""
    return builder().attrs["num_warps"]


def num_threads() -> int:
    """Threads of a program."""
    return 32 * num_warps()


__all__ = ["globaltimer", "libdevice", "num_threads", "num_warps", "smid"]
