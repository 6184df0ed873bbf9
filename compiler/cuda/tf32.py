"""The schedule of products of f32 on Hopper where mantissas of 10 bits will do; see gemm.py.

Tensor cores read elements of 32 bits as they are and leave out the last digits; panels must lie along k.
"""

from __future__ import annotations

from .. import ir
from .hopper import Hopper
from .target import Target
from .wgmma import ROWS


class Tf32(Hopper):
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        roots = [op for op in kernel.body.ops if op.name == "dot" and op.attrs.get("precision") == "tf32"]
        if target.arch != "sm_90a" or not roots:
            return False
        made = Tf32(kernel, target)
        rows, columns = made.block
        upright = made.a.deep and made.b.deep and None not in made.maps.values()
        return upright and rows == ROWS and columns in (64, 128, 256)
