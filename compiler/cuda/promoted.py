"""The schedule of products of floats of 8 bits on Hopper, whose tensor cores truncate what they add up; see gemm.py.

The sums of a step of k begin anew, and are added to the tile's in ordinary arithmetic.  While one group of warps adds,
the other one multiplies.
"""

from __future__ import annotations

from .. import dtypes, ir
from .hopper import Hopper
from .pipeline import Ring
from .simt import Sums
from .target import Target


class Promoted(Hopper):
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        narrow = any(op.name == "dot" and op.operands[0].type.dtype in dtypes.FLOAT8 for op in kernel.body.ops)
        return narrow and Hopper.suits(kernel, target)

    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        t = self.t
        fresh = self._sums()
        with t.for_(self.steps) as number:
            self._wait_for_turn(number)
            stage, here = self._arrived(ring)
            self._add_products(fresh, here, [(self.a.offsets[0], self.b.offsets[0])], waiting=0, fresh=True)
            with t.if_(self.lead):
                self._release(stage)
            for row, added in zip(sums, fresh, strict=True):
                for (total,), (cell,) in zip(row, added, strict=True):
                    t.set(total, t.bin("fadd", t.get(total, "float"), t.get(cell, "float")))
            self.epilogue.bring(t.cmp("eq", number, t.like(1, number)))
            self._advance(ring)
        self._end_turn()
        self.epilogue.bring(t.cmp("slt", self.steps, t.like(2, self.steps)))
        self.epilogue.prefetch()
