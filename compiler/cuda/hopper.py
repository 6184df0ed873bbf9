"""The schedule of products of 16 and 8 bits on Hopper, where some warps load and others multiply; see gemm.py.

A processor has one block, which takes tile after tile.  One thread has the copy engine bring panels into a ring of
stages, ahead of eight warps that multiply and release them: barriers in shared memory count what has arrived, and who
has read it.  Finished tiles go through shared memory, from where the copy engine stores them while the next tile is
under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .. import ir
from ..llvm.text import V
from . import memory, tensor_maps
from .codegen import Code as Generated
from .epilogue import Direct, Epilogue
from .memory import SHARED, i32, i64
from .mma import Mma
from .panels import Side
from .pipeline import BARRIER, Ring, Specialised
from .simt import Sums
from .target import Target
from .tensor_maps import TensorMap
from .wgmma import ROW, ROWS, Wgmma

#: Threads that load, of which one does, and that multiply.
LOADING, MULTIPLYING = 128, 256
#: Registers of a thread of either.
FEW, MANY = 40, 232
#: Columns of a tile, at least, that warps store together.
SIDE = 64
#: Columns of a tile.
WIDTHS = (16, *range(32, 257, 32))
#: Bytes of all barriers of a kind.
BARRIERS = 128
#: Bytes of the sums that a thread leaves for another at once, those of two rows and two columns.
QUAD = 16
#: Steps of k by which one group of warps finishes a tile before the other, so that one multiplies while the other
#: computes what comes after the product.
LEAST_LAG, MOST_LAG = 2, 4


class Hopper(Specialised, Wgmma):
    """Generates the code of one kernel."""

    blocks = 1
    #: Rows of 2,048 elements: their panels stay in the L2 cache.
    together = 16
    #: Blocks of a cluster, whether what they have of a tile is added up, and bytes of shared memory for that.
    cluster = 1
    added = False
    exchange = 0
    #: Columns to which the products of a last tile that has no more are restricted (0: they are not), and whether the
    #: tile whose panels are loaded is such a one, where that matters.
    edge = 0
    narrow: V | None = None
    #: Bytes of shared memory behind the stages, where no finished tile is.
    spare = 0
    #: Bytes of shared memory for what is neither of the stages nor of finished tiles.
    beside = 0
    #: Boxes of a warp for finished tiles at most.
    boxes = 4
    #: Groups of threads that release stages, each by one of them.
    readers = MULTIPLYING // 128

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if target.arch != "sm_90a" or not Mma.suits(kernel, target):
            return False
        made = Hopper(kernel, target)
        rows, columns = made.block
        # Some columns may be finished twice, which is once too often for what rows are reduced to.
        twice = columns > SIDE and columns % SIDE and any(op.name == "reduce" for op in kernel.body.ops)
        fits = rows == ROWS and columns in WIDTHS and made.stages > 1
        return fits and not twice and None not in made.maps.values()

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        self.threads = LOADING + MULTIPLYING
        self.maps: dict[str, TensorMap | None] = {"a": self._map(self.a), "b": self._map(self.b)}
        self.edge = kernel.attrs.get("edge", self.edge)
        self._place_panels()
        self.epilogue = self._epilogue()
        self._layout()

    def _epilogue(self) -> Epilogue | Direct:
        return Epilogue(self) if not self.added and self.columns >= SIDE else Direct(self)

    def _sides(self) -> tuple[list[str], tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]]:
        """The dims m, k and n, and the operands; of a product of few rows, those of its transpose.

        The tensor cores take 64 rows at least, and any few columns.
        """
        (m, k, n), (a, b) = super()._sides()
        few, many = (self.kernel.dims[d].block or 0 for d in (m, n))
        return ([n, k, m], (b, a)) if few < ROWS == many else ([m, k, n], (a, b))

    def _layout(self) -> None:
        """Divide up shared memory: stages, sums for other blocks, the finished tile and barriers."""
        behind = max(self.epilogue.nbytes, self.spare)
        room = self.target.shared - self.exchange - self.beside - behind - 4 * BARRIERS
        most = self.kernel.attrs.get("stages", BARRIERS // BARRIER)
        self.stages = min(most, room // self.panels)
        # The group that waits holds one stage more than those that it leaves to the other one.
        self.lag = min(max(LEAST_LAG, min(MOST_LAG, self.stages - 2)), self.stages - 1)
        self.told = self.stages * self.panels
        self.staging = self.told + self.exchange
        self.full = self.staging + behind
        self.empty = self.full + BARRIERS
        #: Barriers of the matrices that the epilogue reads, and of the group that goes first.
        self.brought = self.empty + BARRIERS
        self.ahead_ = self.brought + MULTIPLYING // 32 * BARRIER
        self.nbytes = self.brought + BARRIERS

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        columns = self.block[1]
        return (ROWS, columns), (2, columns // 4)

    def _place_panels(self) -> None:
        """Tell where panels lie in a stage."""
        self.a.offsets, self.b.offsets = (0,), (self._nbytes(self.a),)
        self.panels = sum(self._nbytes(side) for side in (self.a, self.b))

    def _nbytes(self, side: Side) -> int:
        """Bytes of a side's panel: rows along k, or boxes of `depth` rows and columns."""
        return side.extent * ROW if side.deep else -(-side.extent // self.depth) * self.depth * ROW

    def _map(self, side: Side) -> TensorMap | None:
        op = side.values[0].op
        if op is None or not self._plain(side):
            return None
        return tensor_maps.find(self.kernel, self.facts, op, (self.depth, side.extent if side.deep else self.depth))

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Generated:
        t, e, kernel = self.t, self.e, self.kernel
        e.run([op for op in kernel.body.ops if op.name == "const" and not op.result.type.extents], {})
        maps = [m for m in (*self.maps.values(), *self.epilogue.maps) if m is not None]
        self.names = {m: V(f"%m{k}", "ptr") for k, m in enumerate(dict.fromkeys(maps))}
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
        bounds = f'"nvvm.reqntid"="{self.threads}"'
        bounds += f' "nvvm.cluster_dim"="{self.cluster}"' if self.cluster > 1 else ""
        shared = f"@shared = external addrspace(3) global [0 x i8], align {self.alignment}"
        text = self._module(self.names.values(), bounds, shared)
        found = tuple(m.described(kernel) for m in self.names)
        return Generated(
            text, self.threads, self.nbytes, maps=found, cluster=self.cluster, resident=1, waits=True
        )  # fmt: skip

    def _begin(self) -> None:
        """Make the barriers, and count the tiles."""
        t, e = self.t, self.e
        self.tid = self._special("tid.x")
        self.first, self.step_ = self._blocks()
        self.base = self._shared()
        self.counts = self._counts()
        self.tiles = i32(1)
        for count in self.counts:
            self.tiles = t.bin("mul", self.tiles, count)
        self._open(self.names.values())
        #: Steps of k before those that this block multiplies, and how many these are.
        self.skipped = i32(0)
        length = e.integer(self.kernel.dims[self.k].size)
        steps = t.bin("lshr", t.bin("add", length, i64(self.depth - 1)), i64(self.depth.bit_length() - 1))
        self.steps = t.cast("trunc", steps, "i32")

    def _blocks(self) -> tuple[V, V]:
        """The first tile, and how far it is to the next one."""
        return self._special("ctaid.x"), self._special("nctaid.x")

    def _make_barriers(self) -> None:
        for beyond in self._bunches():
            for k in range(self.stages):
                for start, count in ((self.full, 1), (self.empty, self.readers)):
                    self._make_barrier(start + beyond + k * BARRIER, count)
        for start in range(self.brought, self.ahead_ + BARRIER, BARRIER):
            self._make_barrier(start, 1)

    def _ring(self) -> Ring:
        return self._begin_ring(self.stages, self.full, self.empty)

    @contextmanager
    def _each_tile(self) -> Iterator[V]:
        """A loop over the block's tiles; gives their numbers."""
        t = self.t
        if not self.edge:
            with t.for_(self.tiles, self.step_, self.first) as tile, self.e.scope():
                yield tile
            return
        # The order turns from round to round, so that the narrow tiles, which are last, go to the same few blocks.
        cell, last = t.cell("i32"), t.bin("sub", self.step_, i32(1))
        t.set(cell, self.first)
        with t.for_(self.tiles, self.step_) as before, self.e.scope():
            own = t.get(cell, "i32")
            t.set(cell, t.bin("sub", last, own))
            tile = t.bin("add", before, own)
            with t.if_(t.cmp("slt", tile, self.tiles)):
                yield tile

    def _places(self, linear: V, counts: Sequence[V]) -> list[V]:
        if not self.edge or len(counts) > 2:
            return super()._places(linear, counts)
        # The last column of tiles, which are narrow, comes last.
        t = self.t
        row, column = (self.kernel.dims[d].axis for d in (self.m, self.n))
        assert row is not None and column is not None
        wide = list(counts)
        wide[column] = t.call("llvm.umax.i32", "i32", [t.bin("sub", counts[column], i32(1)), i32(1)])
        number = t.bin("mul", *wide)
        beyond = t.cmp("uge", linear, number)
        places = super()._places(linear, wide)
        places[row] = t.select(beyond, t.bin("sub", linear, number), places[row])
        places[column] = t.select(beyond, wide[column], places[column])
        return places

    # -- the thread that loads ----------------------------------------------------------------------------------------
    def _load(self) -> None:
        t = self.t
        ring = self._ring()
        with self._each_tile() as tile:
            self._locate(tile)
            self.narrow = self._is_narrow() if self.edge and not self.b.deep else None
            with t.for_(self.steps) as number:
                stage, parity = self._present(ring)
                panel = t.bin("add", self.base, t.bin("mul", stage, i32(self.panels)))
                k = t.bin("shl", t.bin("add", number, self.skipped), i32(self.depth.bit_length() - 1))
                for beyond, bunch in self._bunches().items():
                    self._wait(self._barrier(self.empty + beyond, stage), t.bin("xor", parity, i32(1)))
                    full = self._barrier(self.full + beyond, stage)
                    nbytes = sum(self._nbytes(side) for side, _, _ in bunch)
                    spared = (-(-self.columns // self.depth) - self.edge // self.depth) * self.depth * ROW
                    few = None if self.narrow is None else t.select(self.narrow, i32(nbytes - spared), i32(nbytes))
                    self._expect(full, few or nbytes)
                    for side, map_, offset in bunch:
                        self._fetch_panel(side, map_, t.bin("add", panel, i32(offset)), k, full)
                self._advance(ring)

    def _bunches(self) -> dict[int, list[tuple[Side, TensorMap, int]]]:
        """The panels of a stage that have barriers of their own, by how far these are beyond the first ones."""
        places = [(side, offset) for side in (self.a, self.b) for offset in side.offsets]
        maps = [m for m in self.maps.values() if m is not None]
        return {0: [(side, map_, offset) for (side, offset), map_ in zip(places, maps, strict=True)]}

    def _fetch_panel(self, side: Side, map_: TensorMap, panel: V, k: V, full: V) -> None:
        t = self.t
        start = t.cast("trunc", self.starts[side.dim], "i32")
        for part in range(1 if side.deep else -(-side.extent // self.depth)):
            inner, outer = (k, start) if side.deep else (t.bin("add", start, i32(part * self.depth)), k)
            to = t.bin("add", panel, i32(part * self.depth * ROW))
            place = map_.place(inner, outer, self.programs)
            beyond = self.narrow is not None and side is self.b and part * self.depth >= self.edge
            with t.if_(t.bin("xor", self.narrow, V("true", "i1")) if beyond and self.narrow else None):
                self._bring(self.names[map_], to, place, full)

    def _locate(self, tile: V) -> None:
        """Tell where a tile is."""
        self.programs = self._places(tile, self.counts)
        self._start(self.programs)

    # -- the warps that multiply --------------------------------------------------------------------------------------
    def _threads(self) -> None:
        t = self.t
        self.own = t.bin("and", self.tid, i32(127))
        self.lead = t.cmp("eq", self.own, i32(0))
        self.group = t.bin("sub", t.bin("lshr", self.tid, i32(7)), i32(1))
        self.lane = t.bin("and", self.tid, i32(31))
        self.warp_row = t.bin("shl", t.bin("lshr", self.own, i32(5)), i32(4))
        self.run = [1, 2]
        rows = t.bin("add", t.bin("shl", self.group, i32(6)), self.warp_row)
        self.down = t.bin("add", rows, t.bin("lshr", self.lane, i32(2)))
        self.across = t.bin("shl", t.bin("and", self.lane, i32(3)), i32(1))

    def _compute(self) -> None:
        self._threads()
        self.epilogue.begin(self.staging, self.brought)
        ring = self._ring()
        self._take_turns()
        with self._each_tile() as tile:
            self._locate(tile)
            self._begin_turn()
            sums = self._sums()
            self._take_steps(sums, ring)
            self._leave(sums)
        self.epilogue.end()

    def _take_turns(self) -> None:
        """Near the end of a tile the second group waits for the first one to be at its end."""
        t = self.t
        self.before, self.lag_turn = t.cell("i32"), t.cell("i32")
        t.set(self.lag_turn, i32(0))
        self.lag_barrier = t.bin("add", self.base, i32(self.ahead_))

    def _begin_turn(self) -> None:
        t = self.t
        second = t.cmp("ne", self.group, i32(0))
        many = t.cmp("uge", self.steps, i32(2 * self.stages))
        self.lag_waits = t.select(t.bin("and", many, second), t.bin("sub", self.steps, i32(self.lag)), i32(-1))
        self.lag_leads = t.bin("and", t.bin("and", many, self.lead), t.cmp("eq", self.group, i32(0)))
        self.lag_flips = t.cast("zext", many, "i32")

    def _wait_for_turn(self, number: V) -> None:
        t = self.t
        if self.lag:
            with t.if_(t.cmp("eq", number, self.lag_waits)):
                self._wait(self.lag_barrier, t.get(self.lag_turn, "i32"))

    def _end_turn(self) -> None:
        t = self.t
        if self.lag:
            with t.if_(self.lag_leads):
                self._arrive(self.lag_barrier)
            t.set(self.lag_turn, t.bin("xor", t.get(self.lag_turn, "i32"), self.lag_flips))

    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        """Add up a tile's products."""
        t, before = self.t, self.before
        if self.edge:
            # Of a tile with few columns inside, the others are zero.
            with t.if_else(self._is_narrow()) as turn:
                for some in ([row[: self.edge // 4] for row in sums], sums):
                    self._take_all(some, ring)
                    self._asm(some, "wgmma.wait_group.sync.aligned 0;", [])
                    if some is not sums:
                        next(turn)
        else:
            self._take_all(sums, ring)
        self._end_turn()
        self.epilogue.bring(t.cmp("slt", self.steps, i32(2)))
        self.epilogue.prefetch()
        if not self.edge:
            self._asm(sums, "wgmma.wait_group.sync.aligned 0;", [])
        with t.if_(t.bin("and", self.lead, t.cmp("ne", self.steps, i32(0)))):
            self._release(t.get(before, "i32"))

    def _take_all(self, sums: Sums, ring: Ring) -> None:
        t, before = self.t, self.before
        with t.for_(self.steps) as number:
            self._wait_for_turn(number)
            stage, here = self._arrived(ring)
            self._multiply(sums, here, None)
            with t.if_(t.bin("and", self.lead, t.cmp("ne", number, i32(0)))):
                self._release(t.get(before, "i32"))
            self.epilogue.bring(t.cmp("eq", number, i32(1)))
            t.set(before, stage)
            self._advance(ring)

    def _is_narrow(self) -> V:
        """Whether a tile has no more columns inside than those of an edge."""
        return self.t.cmp("sle", self._extent(self.n), i64(self.edge))

    def _leave(self, sums: Sums) -> None:
        """Have a finished tile stored."""
        self.epilogue.finish(sums)

    def _quads(self, sums: Sums) -> list[list[V]]:
        """The variables for the sums of two rows and two columns each."""
        return [[sums[row][2 * k + c][0] for row in range(2) for c in range(2)] for k in range(self.columns // 8)]

    def _leave_quads(self, sums: Sums, place: V) -> None:
        """Store the thread's sums, its first quad at `place`, for others to add up."""
        t = self.t
        for k, cells in enumerate(self._quads(sums)):
            packed = V("poison", "<4 x float>")
            for i, cell in enumerate(cells):
                packed = t.insert(packed, t.get(cell, "float"), i)
            t.store(packed, memory.at(t, place, k * MULTIPLYING * QUAD), QUAD)

    def _added_quads(self, places: Sequence[V], count: int) -> Sums:
        """The sums of so many quads, added up over what lies at some places, in their order."""
        t = self.t
        totals: list[list[V]] = []
        for number, place in enumerate(places):
            for k in range(count):
                found = t.load(memory.at(t, place, k * MULTIPLYING * QUAD), "<4 x float>", QUAD)
                values = [t.extract(found, i) for i in range(4)]
                if not number:
                    totals.append(values)
                    continue
                totals[k] = [t.bin("fadd", x, y) for x, y in zip(totals[k], values, strict=True)]
        sums: Sums = [[], []]
        for values in totals:
            for i, x in enumerate(values):
                cell = t.cell("float")
                t.set(cell, x)
                sums[i // 2].append([cell])
        return sums

    def _arrived(self, ring: Ring) -> tuple[V, V]:
        """The present stage, and the address of its panels, once they are there."""
        t = self.t
        stage, parity = self._present(ring)
        self._wait(self._barrier(self.full, stage), parity)
        start = t.cast("zext", t.bin("mul", stage, i32(self.panels)), "i64")
        return stage, memory.at(t, V("@shared", SHARED), start)

    def _release(self, stage: V) -> None:
        self._arrive(self._barrier(self.empty, stage))
