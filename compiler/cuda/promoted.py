"""The schedule of products of floats of 8 bits on Hopper, whose tensor cores truncate what they add up; see gemm.py.

The sums of a step of k begin anew, and are added to the tile's in ordinary arithmetic.  Groups of warps take turns: one
begins two steps, and lets the other one begin before it waits for them.  While the second step is multiplied it adds
the first one's sums, and while the other group multiplies those of the second.  Without turns the tensor cores would
serve both groups alike, which would then add at the same time.

The sums of steps lie in registers that only the assembler knows: nothing may move what is under way.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.text import V
from .hopper import MULTIPLYING, Hopper
from .memory import i32
from .pipeline import Ring
from .simt import Sums
from .target import Target

#: Steps of a turn.
STEPS = 2
#: The barrier at which the first group waits for its turn; that of the second one is the next.
TURN = 3


class Promoted(Hopper):
    """Generates the code of one kernel."""

    together = 8

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        narrow = any(op.name == "dot" and op.operands[0].type.dtype in dtypes.FLOAT8 for op in kernel.body.ops)
        return narrow and Hopper.suits(kernel, target)

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        if self.columns > 128:
            raise NotImplementedError("registers hold no promoted sums of more than 128 columns")

    def _compute(self) -> None:
        super()._compute()
        with self.t.if_(self.t.cmp("eq", self.group, i32(0))):
            self._await(self.turn)

    def _take_turns(self) -> None:
        t = self.t
        self._act(f".reg .f32 f<{STEPS * self.columns // 2}>;")
        self.turn = t.bin("add", self.group, i32(TURN))
        self.other = t.bin("sub", i32(2 * TURN + 1), self.turn)
        with t.if_(t.cmp("ne", self.group, i32(0))):
            self._let(self.other)

    def _await(self, turn: V) -> None:
        self._act(f"barrier.cta.sync.aligned $0, {MULTIPLYING};", turn)

    def _let(self, turn: V) -> None:
        self._act(f"barrier.cta.arrive.aligned $0, {MULTIPLYING};", turn)

    def _begin_turn(self) -> None:
        """Turns go on from tile to tile."""

    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        t = self.t
        whole = t.bin("and", self.steps, i32(-STEPS))
        for count, first, end in ((STEPS, i32(0), whole), (1, whole, self.steps)):
            with t.for_(end, count, first) as number:
                self._take_some(sums, ring, count)
                self.epilogue.bring(t.cmp("eq", number, i32(0)))
        self.epilogue.bring(t.cmp("eq", self.steps, i32(0)))
        self.epilogue.prefetch()

    def _take_some(self, sums: Sums, ring: Ring, count: int) -> None:
        """Add up the products of `count` steps, in a turn."""
        t, width = self.t, self.columns // 2
        stages: list[V] = []
        for number in range(count):
            stage, here = self._arrived(ring)
            if not stages:
                self._await(self.turn)
            self._add_products(sums, here, [(self.a.offsets[0], self.b.offsets[0])], own=number * width)
            stages.append(stage)
            self._advance(ring)
        self._let(self.other)
        for number, stage in enumerate(stages):
            added = " ".join(f"add.f32 ${k}, ${k}, f{number * width + k};" for k in range(width))
            self._asm(sums, f"wgmma.wait_group.sync.aligned {count - 1 - number}; {added}", [])
            with t.if_(self.lead):
                self._release(stage)
