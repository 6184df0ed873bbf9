"""The schedule of products of floats of 8 bits on Hopper, whose tensor cores truncate what they add up; see gemm.py.

The sums of a step of k begin anew, and are added to the tile's in ordinary arithmetic.  While one group of warps adds,
the other one multiplies.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.text import V
from .hopper import Hopper
from .simt import Sums
from .target import Target
from .wgmma import ROW

#: Columns whose sums begin anew together, since registers hold these beside the tile's.
FRESH = 128


class Promoted(Hopper):
    """Generates the code of one kernel."""

    behind = False

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        narrow = any(op.name == "dot" and op.operands[0].type.dtype in dtypes.FLOAT8 for op in kernel.body.ops)
        return narrow and Hopper.suits(kernel, target)

    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        t = self.t
        columns = min(FRESH, self.columns)
        count = columns // 4
        fresh = [[[t.cell("float")] for _ in range(count)] for _ in range(self.high)]
        for part in range(self.columns // columns):
            panels = [(self.a.offsets[0], self.b.offsets[0] + part * columns * ROW)]
            self._add_products(fresh, here, panels, waiting=0, fresh=True)
            for row, added in zip(sums, fresh, strict=True):
                for (total,), (cell,) in zip(row[part * count : (part + 1) * count], added, strict=True):
                    t.set(total, t.bin("fadd", t.get(total, "float"), t.get(cell, "float")))
