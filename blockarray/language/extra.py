"""Where Triton keeps functions of targets: its libdevice is `math` here."""

from . import cuda
from . import math as libdevice

__all__ = ["cuda", "libdevice"]
