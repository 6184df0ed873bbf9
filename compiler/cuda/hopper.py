"""The schedule of products of f16 and bf16 on Hopper, where some warps load and others multiply; see gemm.py.

A processor has one block, which takes tile after tile.  One thread has the copy engine bring panels into a ring of
stages, ahead of eight warps that multiply and release them: barriers in shared memory count what has arrived, and who
has read it.  Finished tiles go through shared memory, from where the copy engine stores them while the next tile is
under way.
"""

from __future__ import annotations

from .. import ir
from ..llvm.convert import Register, round_to
from ..llvm.text import V
from . import memory, tensor_maps
from .codegen import Code as Generated
from .elements import Where
from .memory import SHARED, i32, i64
from .mma import Mma
from .panels import Side
from .pipeline import BARRIER, Pipelined, Ring
from .target import Target
from .tensor_maps import TensorMap
from .wgmma import BOX, ROW, ROWS, STEP, Wgmma

#: Threads that load, of which one does, and that multiply.
LOADING, MULTIPLYING = 128, 256
#: Registers of a thread of either.
FEW, MANY = 40, 232
#: Elements of a box's side.
SIDE = 64
#: Bytes of all barriers of a kind.
BARRIERS = 128


class Hopper(Pipelined, Wgmma):
    """Generates the code of one kernel."""

    blocks = 1
    #: Rows of 2,048 elements: their panels stay in the L2 cache.
    together = 16

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if target.arch != "sm_90a" or not Mma.suits(kernel, target):
            return False
        made = Hopper(kernel, target)
        return made.block in ((ROWS, 64), (ROWS, 128), (ROWS, 256)) and None not in made.maps.values()

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        self.threads = LOADING + MULTIPLYING
        self.maps: dict[str, TensorMap | None] = {"a": self._map(self.a), "b": self._map(self.b)}
        #: How the copy engine stores the tile, if it can.
        self.out = self._staged()
        panels = (ROWS + self.columns) * ROW
        staging = ROWS * self.columns * 2 if self.out else 0
        self.stages = min(8, (target.shared - staging - 2 * BARRIERS) // panels)
        self.staging = self.stages * panels
        self.full = self.staging + staging
        self.empty = self.full + BARRIERS

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        columns = self.block[1]
        return (ROWS, columns), (2, columns // 4)

    def _map(self, side: Side) -> TensorMap | None:
        op = side.values[0].op
        if op is None or not self._plain(side):
            return None
        return tensor_maps.find(self.kernel, self.facts, op, (SIDE, side.extent if side.deep else SIDE))

    def _staged(self) -> TensorMap | None:
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        if len(stores) != 1 or stores[0].operands[1].type.dtype not in ("f16", "bf16"):
            return None
        found = tensor_maps.find(self.kernel, self.facts, stores[0], (SIDE, SIDE))
        return found if found is not None and found.inner == self.n else None

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Generated:
        t, e, kernel = self.t, self.e, self.kernel
        e.run([op for op in kernel.body.ops if op.name == "const" and not op.result.type.extents], {})
        self.a.offsets, self.b.offsets = (0,), (ROWS * ROW,)
        self.panels = (ROWS + self.columns) * ROW
        maps = [m for m in (*self.maps.values(), self.out) if m is not None]
        self.names = {m: V(f"%m{k}", "ptr") for k, m in enumerate(maps)}
        self._begin()
        loads = t.cmp("ult", self.tid, i32(LOADING))
        with t.if_else(loads) as turn:
            self._registers("dec", FEW)
            with t.if_(t.cmp("eq", self.tid, i32(0))):
                self._load()
            next(turn)
            self._registers("inc", MANY)
            self._compute()
        t.line("ret void")
        params = ", ".join(f"{ty} {ref}" for ty, ref in e.signature)
        params += "".join(
            f', ptr byval([{tensor_maps.NBYTES} x i8]) align {tensor_maps.ALIGNMENT} "nvvm.grid_constant" {name.ref}'
            for name in self.names.values()
        )
        text = "\n".join((
            f"@shared = external addrspace(3) global [0 x i8], align {self.alignment}",
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{self.threads}" "nvvm.minctasm"="1" {{',
            "entry:", *t.allocas, *t.lines, "}", *t.declarations.values(), "",
        ))  # fmt: skip
        return Generated(
            text, self.threads, self.empty + BARRIERS, maps=tuple(m.described(kernel) for m in maps), resident=1,
            waits=True,
        )  # fmt: skip

    def _begin(self) -> None:
        """Make the barriers, and count the tiles."""
        t, e = self.t, self.e
        sreg = lambda name: t.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [], "nounwind memory(none)")
        self.tid, self.first, self.step_ = sreg("tid.x"), sreg("ctaid.x"), sreg("nctaid.x")
        self.base = self._shared()
        self.counts = self._counts()
        self.tiles = i32(1)
        for count in self.counts:
            self.tiles = t.bin("mul", self.tiles, count)
        with t.if_(t.cmp("eq", self.tid, i32(0))):
            for name in self.names.values():
                t.call("llvm.nvvm.prefetch.tensormap.p0", "void", [name])
            for k in range(self.stages):
                for start, count in ((self.full, 1), (self.empty, MULTIPLYING // 128)):
                    self._make_barrier(start + k * BARRIER, count)
            self._act("fence.mbarrier_init.release.cluster;")
        self._act("bar.sync 0;")
        # What is queued next may begin as processors fall idle, and so has this: here it meets memory.
        self._act("griddepcontrol.launch_dependents;")
        self._act("griddepcontrol.wait;")
        self.depth = e.integer(self.kernel.dims[self.k].size)
        steps = t.bin("lshr", t.bin("add", self.depth, i64(STEP - 1)), i64(STEP.bit_length() - 1))
        self.steps = t.cast("trunc", steps, "i32")

    def _ring(self) -> Ring:
        return self._begin_ring(self.stages, self.full, self.empty)

    # -- the thread that loads ----------------------------------------------------------------------------------------
    def _load(self) -> None:
        t = self.t
        ring = self._ring()
        with t.for_(self.tiles, self.step_, self.first) as tile, self.e.scope():
            self._locate(tile)
            with t.for_(self.steps) as number:
                stage, parity = self._present(ring)
                self._wait(self._barrier(self.empty, stage), t.bin("xor", parity, i32(1)))
                full = self._barrier(self.full, stage)
                self._expect(full, self.panels)
                panel = t.bin("add", self.base, t.bin("mul", stage, i32(self.panels)))
                k = t.bin("shl", number, i32(STEP.bit_length() - 1))
                for side, map_ in zip((self.a, self.b), self.maps.values(), strict=True):
                    assert map_ is not None
                    self._fetch_panel(side, map_, t.bin("add", panel, i32(side.offsets[0])), k, full)
                self._advance(ring)

    def _fetch_panel(self, side: Side, map_: TensorMap, panel: V, k: V, full: V) -> None:
        t = self.t
        start = t.cast("trunc", self.starts[side.dim], "i32")
        for part in range(1 if side.deep else side.extent // SIDE):
            inner, outer = (k, start) if side.deep else (t.bin("add", start, i32(part * SIDE)), k)
            to = t.bin("add", panel, i32(part * BOX))
            place = map_.place(inner, outer, self.programs)
            self._bring(self.names[map_], to, place, full)

    def _locate(self, tile: V) -> None:
        """Tell where a tile is."""
        self.programs = self._places(tile, self.counts)
        self._start(self.programs)

    # -- the warps that multiply --------------------------------------------------------------------------------------
    def _compute(self) -> None:
        t, e = self.t, self.e
        self.own = t.bin("and", self.tid, i32(127))
        self.lead = t.cmp("eq", self.own, i32(0))
        self.group = t.bin("sub", t.bin("lshr", self.tid, i32(7)), i32(1))
        self.lane = t.bin("and", self.tid, i32(31))
        self.warp_row = t.bin("shl", t.bin("lshr", self.own, i32(5)), i32(4))
        self.run = [1, 2]
        rows = t.bin("add", t.bin("shl", self.group, i32(6)), self.warp_row)
        self.down = t.bin("add", rows, t.bin("lshr", self.lane, i32(2)))
        self.across = t.bin("shl", t.bin("and", self.lane, i32(3)), i32(1))
        if self.out is not None:
            self._stage()
        ring = self._ring()
        before = t.cell("i32")
        with t.for_(self.tiles, self.step_, self.first) as tile, e.scope():
            self._locate(tile)
            sums = self._sums()
            with t.for_(self.steps) as number:
                stage, parity = self._present(ring)
                self._wait(self._barrier(self.full, stage), parity)
                here = memory.at(t, V("@shared", SHARED), t.cast("zext", t.bin("mul", stage, i32(self.panels)), "i64"))
                self._multiply(sums, here, None)
                with t.if_(t.bin("and", self.lead, t.cmp("ne", number, i32(0)))):
                    self._release(t.get(before, "i32"))
                t.set(before, stage)
                self._advance(ring)
            self._asm(sums, "wgmma.wait_group.sync.aligned 0;", [])
            with t.if_(t.bin("and", self.lead, t.cmp("ne", self.steps, i32(0)))):
                self._release(t.get(before, "i32"))
            self._finish(sums, [i64(0), i64(0)], [self._extent(d) for d in (self.m, self.n)])
        if self.out is not None:
            with t.if_(self.lead):
                self._act("cp.async.bulk.wait_group 0;")

    def _release(self, stage: V) -> None:
        self._arrive(self._barrier(self.empty, stage))

    # -- the result ---------------------------------------------------------------------------------------------------
    def _whole(self, needed: list[ir.Op], inside: V) -> V | None:
        """The copy engine leaves out what is past the end."""
        return inside if self.out is None else None

    def _stage(self) -> None:
        """Where the thread's rows of eight elements go in the staged tile."""
        t, lane = self.t, self.lane
        low = t.bin("and", lane, i32(7))
        down = t.bin("add", low, t.bin("and", lane, i32(8)))
        size = SIDE * self.columns * 2
        self.staged = t.bin("add", t.bin("add", self.base, i32(self.staging)), t.bin("mul", self.group, i32(size)))
        row = t.bin("add", self.staged, t.bin("mul", t.bin("add", down, self.warp_row), i32(ROW)))
        half = t.bin("lshr", lane, i32(4))
        self.chunks = [
            t.bin("add", row, t.bin("shl", t.bin("xor", t.bin("add", half, i32(2 * q)), low), i32(4)))
            for q in range(SIDE // 16)
        ]

    def _store_whole(
        self, stores: list[ir.Op], needed: list[ir.Op], rows: list[V], columns: list[V], results: list[list[Register]]
    ) -> None:
        if self.out is None:
            super()._store_whole(stores, needed, rows, columns, results)
            return
        t, e = self.t, self.e
        if any(op.name in ("load_view", "load_ptr") for op in needed):
            last = [t.bin("sub", self._extent(d), i64(1)) for d in (self.m, self.n)]
            rows, columns = (
                [t.call("llvm.smin.i64", "i64", [x, end]) for x in lined]
                for lined, end in zip((rows, columns), last, strict=True)
            )
        (op,) = stores
        value, dtype = op.operands[0], op.operands[1].type.dtype
        group = t.bin("add", self.group, i32(1))
        with t.if_(self.lead):
            self._act("cp.async.bulk.wait_group.read 0;")
        self._act("bar.sync $0, 128;", group)
        for first in range(0, self.columns // 4, 4):
            words = []
            with e.scope():
                for pair in (0, 2):
                    for row in range(2):
                        values = []
                        for k in (first + pair, first + pair + 1):
                            where: Where = {self.m: rows[row], self.n: columns[k]}
                            e.define(self.root.result, results[row][k], where)
                            e.run(needed, where)
                            found = e(value, where if value.type.extents else None)
                            assert isinstance(found, V)
                            values.append(round_to(t, found, dtype))
                        words += memory.pack(t, values, dtype, "i32")
            block, chunk = divmod(first // 4, SIDE // 16)
            at = t.bin("add", self.chunks[chunk], i32(block * BOX))
            self._act("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", at, *words)
        self._act("fence.proxy.async.shared::cta;")
        self._act("bar.sync $0, 128;", group)
        with t.if_(self.lead):
            start = t.bin("add", t.cast("trunc", self.starts[self.m], "i32"), t.bin("shl", self.group, i32(6)))
            for part in range(self.columns // SIDE):
                column = t.bin("add", t.cast("trunc", self.starts[self.n], "i32"), i32(part * SIDE))
                place = self.out.place(column, start, self.programs)
                self._send(self.names[self.out], t.bin("add", self.staged, i32(part * BOX)), place)
            self._act("cp.async.bulk.commit_group;")
