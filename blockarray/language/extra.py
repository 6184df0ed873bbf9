"""Where Triton keeps functions of targets: its libdevice is `math` here."""

from . import math as libdevice
