"""What kernels are made of whose warps have different tasks: barriers in shared memory, rings of stages that one warp
fills and others empty, copies of boxes by the copy engine, registers that tasks give to others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..llvm.text import V
from . import tensor_maps
from .elements import Code, Elements
from .memory import SHARED, i32

#: Bytes of a barrier.
BARRIER = 8


class Ring(NamedTuple):
    """One side's view of stages that are filled and emptied in turn."""

    #: Variables: the present stage, and the parity of its turn.
    stage: V
    parity: V
    stages: int
    #: Offsets in shared memory of the stages' barriers: what is full, what is empty.
    full: int
    empty: int


class Pipelined:
    """Writes the instructions by which warps that run apart work together."""

    t: Code
    #: The address of shared memory.
    base: V

    def _act(self, text: str, *operands: V) -> None:
        """An instruction with an effect on memory."""
        letters = [{"i32": "r", "float": "f"}.get(v.ty, "l") for v in operands]
        args = ", ".join(map(str, operands))
        constraints = ",".join([*letters, "~{memory}"])
        self.t.line(f'call void asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind')

    def _registers(self, which: str, count: int) -> None:
        """Take registers ("inc") or give them ("dec"), up to `count` of a thread."""
        self.t.call(f"llvm.nvvm.setmaxnreg.{which}.sync.aligned.u32", "void", [i32(count)])

    def _shared(self) -> V:
        base = V("@shared", SHARED)
        return self.t.op(f"ptrtoint {base} to i32", "i32")

    # -- barriers -----------------------------------------------------------------------------------------------------
    def _make_barrier(self, offset: int, count: int) -> None:
        """Make a barrier whose phases end when `count` have arrived."""
        place = self.t.bin("add", self.base, i32(offset))
        self._act(f"mbarrier.init.shared::cta.b64 [$0], {count};", place)

    def _arrive(self, barrier: V) -> None:
        self._act("mbarrier.arrive.shared::cta.b64 _, [$0];", barrier)

    def _expect(self, barrier: V, nbytes: int | V) -> None:
        """Arrive, and announce so many bytes that are copied."""
        self._act(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
            barrier,
            nbytes if isinstance(nbytes, V) else i32(nbytes),
        )

    def _arrive_at(self, barrier: V, rank: V) -> None:
        """Arrive at the barrier that another block of the cluster has at the same place."""
        self._act(
            "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }", barrier, rank,
        )  # fmt: skip

    def _wait(self, barrier: V, parity: V, scope: str = "cta") -> None:
        """Wait until the phase of this parity is over; `scope` tells from where what arrived is seen."""
        self._act(
            f"{{ .reg .pred P; AGAIN: mbarrier.try_wait.parity.acquire.{scope}.shared::cta.b64 P, [$0], $1; "
            "@P bra DONE; bra AGAIN; DONE: }", barrier, parity,
        )  # fmt: skip

    # -- rings --------------------------------------------------------------------------------------------------------
    def _begin_ring(self, stages: int, full: int, empty: int) -> Ring:
        stage, parity = self.t.cell("i32"), self.t.cell("i32")
        for cell in (stage, parity):
            self.t.set(cell, i32(0))
        return Ring(stage, parity, stages, full, empty)

    def _present(self, ring: Ring) -> tuple[V, V]:
        """The present stage, and the parity of its turn."""
        return self.t.get(ring.stage, "i32"), self.t.get(ring.parity, "i32")

    def _advance(self, ring: Ring) -> None:
        t = self.t
        stage, parity = self._present(ring)
        following = t.bin("add", stage, i32(1))
        wraps = t.cmp("eq", following, i32(ring.stages))
        t.set(ring.stage, t.select(wraps, i32(0), following))
        t.set(ring.parity, t.select(wraps, t.bin("xor", parity, i32(1)), parity))

    def _barrier(self, start: int, stage: V) -> V:
        """The address of a stage's barrier, of those that begin at an offset."""
        t = self.t
        return t.bin("add", self.base, t.bin("add", t.bin("shl", stage, i32(3)), i32(start)))

    # -- copies -------------------------------------------------------------------------------------------------------
    def _bring(self, map_: V, to: V, place: Sequence[V], barrier: V) -> None:
        """Copy the box at `place` to shared memory; its bytes count at the barrier."""
        names = ", ".join(f"${3 + i}" for i in range(len(place)))
        self._act(
            f"cp.async.bulk.tensor.{len(place)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            f"[$0], [$1, {{{names}}}], [$2];", to, map_, barrier, *place,
        )  # fmt: skip

    def _send(self, map_: V, source: V, place: Sequence[V]) -> None:
        """Copy a box from shared memory to `place`."""
        names = ", ".join(f"${2 + i}" for i in range(len(place)))
        self._act(
            f"cp.async.bulk.tensor.{len(place)}d.global.shared::cta.tile.bulk_group [$0, {{{names}}}], [$1];",
            map_, source, *place,
        )  # fmt: skip


class Specialised(Pipelined, ABC):
    """Writes a kernel whose warps have different tasks."""

    e: Elements
    #: The thread's number in the block.
    tid: V

    def _open(self, maps: Iterable[V]) -> None:
        """Make the barriers and fetch the tensor maps, and wait for what is queued before.

        What is queued next may begin as processors fall idle, and so has this: here it meets memory.
        """
        t = self.t
        with t.if_(t.cmp("eq", self.tid, i32(0))):
            for name in maps:
                t.call("llvm.nvvm.prefetch.tensormap.p0", "void", [name])
            self._make_barriers()
            self._act("fence.mbarrier_init.release.cluster;")
        self._meet()
        self._act("griddepcontrol.launch_dependents;")
        self._act("griddepcontrol.wait;")

    @abstractmethod
    def _make_barriers(self) -> None: ...

    def _meet(self) -> None:
        """Wait until there are barriers."""
        self._act("bar.sync 0;")

    def _module(self, maps: Iterable[V], bounds: str, *variables: str) -> str:
        """The module of a kernel that takes tensor maps behind its arguments."""
        t = self.t
        params = ", ".join(f"{ty} {ref}" for ty, ref in self.e.signature)
        params += "".join(
            f', ptr byval([{tensor_maps.NBYTES} x i8]) align {tensor_maps.ALIGNMENT} "nvvm.grid_constant" {name.ref}'
            for name in maps
        )
        return "\n".join((
            *variables, f'define ptx_kernel void @kernel({params}) "nvvm.minctasm"="1" {bounds} {{',
            "entry:", *t.allocas, *t.lines, "}", *t.declarations.values(), "",
        ))  # fmt: skip

    def _special(self, name: str) -> V:
        return self.t.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [], "nounwind memory(none)")
