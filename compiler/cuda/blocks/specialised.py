"""Kernels of products on Hopper: some warps bring tiles to shared memory while the others compute.

What is brought is found by `streams.split`.  Each stream has a ring of stages.  Four warps go through the bringing
kernel: of a tile that lies whole within its bounds the copy engine moves all, if it can; of others, each thread copies
pieces, and zeros for what is outside.  The program's own warps go through the computing kernel, wait for tiles where
they multiply them, and give stages back when the products are done.  Blocks stay on their processors and go from
program to program, so that tiles of the next one arrive while the results of one are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ... import dtypes
from ...ir import Block, Kernel, Op, Value
from ...llvm.text import V
from .. import memory, tensor_maps
from ..codegen import Code
from ..elements import Code as Body
from ..memory import SHARED, at, i32, i64, rounding
from ..pipeline import BARRIER, Pipelined, Ring
from ..target import Target
from . import assign, lagging, making, wgmma
from .axes import Axes, constant, extents_of
from .codegen import Codegen
from .layout import LANES, log2
from .making import FARTHEST, PITCH, Making
from .panel import ALIGNMENT, PIECE, ROWS
from .sending import MEET, Sending
from .streams import Parts, Stream, goes_on, is_staged, split

#: Threads that bring tiles, and of a group of warps that multiplies.
BRINGING, GROUP = 128, 128
#: Stages of a ring at most.
MOST = 8
#: Blocks of a processor, whether results may be staged for the copy engine, and stages at least.  Blocks that share it
#: compute in turns; less room to store results in costs less than a single stage.
_TOGETHER = ((3, False, 3), (2, False, 3))
#: The same of kernels that only add products up: two blocks with three stages are slower than one with more.
_ADDING = ((3, False, 3), (2, False, 4))
_ALONE = ((1, True, 2), (1, False, 1))
#: Bytes of shared memory that a block takes besides its own, and that blocks that share a processor exchange at once.
RESERVED, SMALL = 1024, 12 << 10
#: Bytes of a tile of which there is one at a time, if it is brought outside of loops.
LARGE = 16 << 10
#: Registers of a thread that brings and of one that computes, and those that all begin with, by groups that compute.
REGISTERS = {2: (56, 224), 3: (32, 160)}
#: Of blocks that share a processor, by their number and that of their groups; then columns of an instruction and
#: registers for the tiles of products that a thread may have.
SHARING = {(2, 1): (24, 232, 128, 224), (3, 1): (24, 136, 64, 90), (2, 2): (24, 104, 128, 80)}
#: The barrier where the threads that bring meet.
MEETING = f"bar.sync 5, {BRINGING};"
#: Registers that tiles may have beyond these for a part of a loop's round.
LAGGING = 24
#: What makes threads' writes to shared memory be seen by the copy engine and the tensor cores.
FENCE = "fence.proxy.async.shared::cta;"
#: Elements along the rows of a map that only says where rows begin; positions are below.
FAR = 1 << 31


def generate(kernel: Kernel, target: Target) -> Code | None:
    """The kernel's code with warps for each task, or None if there is nothing to bring or no room for it."""
    warps = int(kernel.attrs.get("num_warps", 4))
    if target.arch != "sm_90a" or warps % 4 or warps > 12:
        return None
    parts = split(kernel)
    if parts is None:
        return None
    # Warps are as many as suit these tasks, whatever the kernel says: threads of four may have too few registers for
    # the tiles of products; where four do, two blocks of them share a processor if they can.
    if warps == 4 and Specialised(parts, target, 1, False).held() > SHARING[2, 1][3]:
        return generate(replace(kernel, attrs=kernel.attrs | {"num_warps": 8}), target)
    if goes_on(parts.bringing.body):
        # There are as many programs as processors, and a block has all its shared memory for stages.
        return _fitting(parts, target, _ALONE)
    if warps == 8:
        four = replace(kernel, attrs=kernel.attrs | {"num_warps": 4})
        if (made := _shared(four, target)) is not None:
            return made
    return _shared(kernel, target) or _fitting(parts, target, _ALONE)


def _shared(kernel: Kernel, target: Target) -> Code | None:
    """The code of blocks that share a processor, whose maxima lag if they may."""
    parts = split(kernel)
    assert parts is not None
    lags, made = lagging.lag(kernel), None
    lagged = split(lags) if lags is not kernel else None
    if lagged is not None and lagging.suits(lagged.computing, log2(int(kernel.attrs.get("num_warps", 4))), target):
        made = _fitting(lagged, target, _TOGETHER)
    turns = Specialised(parts, target, 1, False).products.turns
    return made or _fitting(parts, target, _TOGETHER if turns else _ADDING)


def _fitting(parts: Parts, target: Target, choices: Sequence[tuple[int, bool, int]]) -> Code | None:
    """The code with the first choice that there is room for."""
    for blocks, sends, least in choices:
        room = (target.shared + RESERVED) // blocks - RESERVED
        spare = 0 if blocks == 1 else SMALL
        while True:
            code = Specialised(parts, target, blocks, sends)
            if not code.fit(room - spare, least):
                break
            made = code.generate()
            if made.shared <= room:
                return made
            # Exchanges need so much, or as much more.
            spare = made.shared - code.kept
    return None


class Specialised(Codegen, Pipelined):
    """Generates the code of the computing warps, and through `Bringing` that of the others.

    `blocks` is how many share a processor; `sends` tells whether results may be staged for the copy engine.
    """

    t: Body
    growing = False

    def __init__(self, parts: Parts, target: Target, blocks: int, sends: bool) -> None:
        super().__init__(parts.computing, target)
        self.t = Body(target)
        self.allocas = self.t.allocas
        self.parts = parts
        self.streams = parts.streams
        self.groups, self.blocks = self.threads // GROUP, blocks
        if blocks > 1:
            self.WHOLE = self.EXCHANGES = SMALL
        #: Of each ring: the form of its tiles, and how many stages there are.
        count = max(parts.rings) + 1
        self.panels = [self.streams[parts.rings.index(k)].panel for k in range(count)]
        self.depths: list[int] = []
        #: Offsets of the rings' stages, and of all barriers.
        self.at_stages: list[int] = []
        self.barriers = 0
        #: Barriers of the groups' turns.
        self.turns_at = 0
        self.rings: list[Ring] = []
        self.stream_axes = Axes(parts.whole)
        #: Whether threads hold weights before they know whether these will do.
        self.lags = any(op.name == "beyond" for op in self.kernel.walk())
        #: Programs that differ in length are better given to the processors one by one.
        atomic = any(op.name == "atomic" for op in self.kernel.walk())
        self.persistent = not atomic and not _uneven(parts.bringing)
        self.sending, self.making = Sending(self, sends), Making(self)
        #: How the copy engine finds the tiles of each stream, or None; then how it finds what it stores.
        self.maps: list[dict[str, Any] | None] = []
        for k, s in enumerate(self.streams):
            found = far_map(self.kernel, s.op.operands[0], s.op.operands[2 + s.outer], s.panel.side, s.panel.rows)
            if found is None and (found := making.template(self, s, FAR)) is not None:
                self.making.streams.append(k)
            self.maps.append(found)
        #: Rings of tiles that threads copy always, which who reads them fences.  Others' need no fence there: threads
        #: that copy what is cut fence what they wrote.
        self.unmapped = {parts.rings[k] for k, m in enumerate(self.maps) if m is None}
        for k, ring in enumerate(parts.rings):
            if ring in self.unmapped:
                self.maps[k] = None
        self.making.streams = [k for k in self.making.streams if self.maps[k] is not None]
        # Where blocks share a processor, who brings has registers for no more than must be.
        mapped = [k for k, m in enumerate(self.maps) if m is not None]
        some = mapped if blocks == 1 and self.persistent else self.making.streams
        self.making.cut = [k for k in some if self.streams[k].op.attrs.get("bounded")]
        self.maps += self.sending.maps.values()

    # -- shared memory ------------------------------------------------------------------------------------------------
    def fit(self, room: int, least: int) -> bool:
        """Give rings as many stages as there is room for; tell whether that is as many as there must be at least."""
        if self.blocks > 1 and not self._shares():
            return False
        for stages in range(MOST, least - 1, -1):
            self.depths = self._depths(stages)
            self._lay_out()
            if self.kept <= room:
                return True
        return False

    def _shares(self) -> bool:
        """Whether threads have registers enough beside those of other blocks."""
        dots = [op for op in self.kernel.walk() if op.name == "dot"]
        _, _, wide, most = SHARING.get((self.blocks, self.groups), (0, 0, 0, 0))
        if max(extents_of(op.result)[-1] for op in dots) > wide:
            return False
        if self.lags:
            # While weights are made, what they are made of is kept.
            scores = max(self.layout_of(op.result).registers for op in dots if len(op.operands) == 2)
            return self.held() + scores <= most + LAGGING
        return self.held() <= most

    def held(self) -> int:
        """Registers for the tiles of products."""
        return self._held(self.kernel.body)

    def _held(self, block: Block) -> int:
        """Those of products that stand in a block, or in one of those inside."""
        own = most = 0
        for op in block.ops:
            if op.name == "dot" and wgmma.takes(op, self.warps, self.target):
                first, second = op.operands[:2]
                own += self.layout_of(op.result).registers
                if not is_staged(first):
                    own += math.prod(extents_of(first)) * dtypes.SIZE[first.type.dtype] // 4 // self.threads
                if not is_staged(second):
                    own += math.prod(extents_of(second)) // self.threads
            most = max(most, *(self._held(region) for region in op.regions), 0)
        return max(own, most)

    def _depths(self, stages: int) -> list[int]:
        """Stages of each ring: one outside of loops needs no more than two, for large tiles or beside others one."""
        outside = [op.attrs["stream"] for op in self.parts.bringing.body.ops if op.name == "bring"]
        rings = {self.parts.rings[k] for k in outside}
        few = [1 if self.blocks > 1 or panel.nbytes > LARGE else 2 for panel in self.panels]
        return [min(few[k], stages) if k in rings else stages for k in range(len(self.panels))]

    def _lay_out(self) -> None:
        self.at_stages, place = [], 0
        for panel, depth in zip(self.panels, self.depths, strict=True):
            self.at_stages.append(place)
            place += -(-panel.nbytes // ALIGNMENT) * ALIGNMENT * depth
        self.barriers = place
        self.turns_at = place + 2 * BARRIER * sum(self.depths)
        place = self.making.place_drafts(self.turns_at + 2 * BARRIER)
        self.kept = self.sending.place(-(-place // 16) * 16)

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Code:
        t = self.t
        signature = self._parameters()
        self.names = [None if m is None else V(f"%m{k}", "ptr") for k, m in enumerate(self.maps)]
        self.base = self._shared()
        self.tid = t.call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", [], "nounwind memory(none)")
        self.thread = self.tid
        self._begin()
        registers = REGISTERS.get(self.groups)
        if self.blocks > 1:
            # To make maps takes more.
            more = 16 if self.making.streams else 0
            few, many, *_ = SHARING[self.blocks, self.groups]
            registers = few + more, many - more // self.groups
        bringing = Bringing(self)
        with t.if_else(t.cmp("uge", self.tid, i32(self.threads))) as turn:
            if registers:
                self._registers("dec", registers[0])
            bringing.run()
            next(turn)
            if registers:
                self._registers("inc", registers[1])
            self._compute()
        if self.making.kinds():
            self._act("bar.sync 0;")
            self.making.leave(bringing)
        t.line("ret void")
        params = ", ".join(f"{ty} %{name}" for name, ty in signature)
        params += "".join(
            f', ptr byval([{tensor_maps.NBYTES} x i8]) align {tensor_maps.ALIGNMENT} "nvvm.grid_constant" {name.ref}'
            for name in self.names if name is not None
        )  # fmt: skip
        # Exchanges take place where results are staged, between the tiles.
        start = min(self.sending.places.values(), default=-(-self.kept // ALIGNMENT) * ALIGNMENT)
        shared = max(self.kept, start + self.exchanges)
        exchange = f"  %exchange = getelementptr i8, {SHARED} @shared, i64 {start}"
        threads = self.threads + BRINGING
        text = "\n".join((
            "@shared = external addrspace(3) global [0 x i8], align 1024", *self.globals, *self.making.globals(),
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{threads}" "nvvm.minctasm"="{self.blocks}" {{',
            "entry:", *([exchange] if self.exchanges else []), *self.allocas, *t.lines, "}",
            *t.declarations.values(), "",
        ))  # fmt: skip
        found = tuple([m for m in self.maps if m is not None])
        resident = self.blocks if self.persistent else 0
        return Code(text, threads, shared, maps=found, resident=resident, waits=True)

    def slots(self) -> dict[Value, int]:
        return slots_of(self.kernel)

    def _begin(self) -> None:
        t = self.t
        starts: list[tuple[int, int]] = []
        place = self.barriers
        for depth in self.depths:
            starts.append((place, place + depth * BARRIER))
            place += 2 * depth * BARRIER
        self.starts = starts
        with t.if_(t.cmp("eq", self.tid, i32(0))):
            for k, name in enumerate(self.names):
                if name is not None and k not in self.making.streams:
                    t.call("llvm.nvvm.prefetch.tensormap.p0", "void", [name])
            for ring, ((full, empty), depth) in enumerate(zip(starts, self.depths, strict=True)):
                # Of what only threads copy, each tells; else one thread.
                arriving = BRINGING if ring in self.unmapped else 1
                for stage in range(depth):
                    self._make_barrier(full + stage * BARRIER, arriving)
                    self._make_barrier(empty + stage * BARRIER, self.groups)
            if self.products.turns:
                for group in range(2):
                    self._make_barrier(self.turns_at + group * BARRIER, 1)
            self._act("fence.mbarrier_init.release.cluster;")
        self._act("griddepcontrol.launch_dependents;")
        self._act("griddepcontrol.wait;")
        self._act("bar.sync 0;")

    def turns(self) -> list[Ring]:
        """One side's view of all rings."""
        return [self._begin_ring(depth, *start) for depth, start in zip(self.depths, self.starts, strict=True)]

    def stage_at(self, ring: int, stage: V) -> V:
        """Where a stage lies, as an address in shared memory."""
        t, size = self.t, -(-self.panels[ring].nbytes // ALIGNMENT) * ALIGNMENT
        start = t.bin("add", self.base, i32(self.at_stages[ring]))
        return t.bin("add", start, t.bin("mul", stage, i32(size)))

    # -- programs -----------------------------------------------------------------------------------------------------
    @contextmanager
    def programs(self, code: Codegen) -> Iterator[None]:
        """Go through the block's programs, of which `code` writes one."""
        t = code.t
        first = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        if not self.persistent:
            code.places = code._place(first)
            with code.region():
                yield
            return
        stride = t.call("llvm.nvvm.read.ptx.sreg.nctaid.x", "i32", [], "nounwind memory(none)")
        count = i32(1)
        for axis in range(len(self.kernel.grid)):
            count = t.bin("mul", count, code._count(axis))
        head, inside, done = t.new_label("program"), t.new_label("inside"), t.new_label("over")
        with code.region():
            t.br(head)
            t.label(head)
            top, index = len(t.lines), V(t.fresh("program"), "i32")
            t.br_if(t.cmp("ult", index, count), inside, done)
            t.label(inside)
            code.places = code._place(index)
            yield
            following = t.bin("add", index, stride)
            t.br(head)
            before = code.regions[-2].block
            t.lines.insert(top, f"  {index.ref} = phi i32 [{first.ref}, %{before}], [{following.ref}, %{t.block}]")
            t.label(done)

    def _compute(self) -> None:
        t = self.t
        self.rings = self.turns()
        #: For each ring the stage that is given back next, and whether products may still read one that was used.
        self.behind = self.turns()
        self.owed = [t.cell("i1") for _ in self.rings]
        for cell in self.owed:
            t.set(cell, V("false", "i1"))
        self.group = t.bin("lshr", self.tid, i32(7))
        #: The first group need not wait at first.
        self.turn = t.cell("i32")
        t.set(self.turn, t.bin("xor", self.group, i32(1)))
        self.leads = t.cmp("eq", t.bin("and", self.tid, i32(GROUP - 1)), i32(0))
        with self.programs(self):
            self.block(self.kernel.body)
            self.products.settle()
        self.sending.finish()

    def op(self, op: Op) -> None:
        if op in self.sending:
            self.sending.store(op)
        else:
            super().op(op)

    def barrier(self) -> None:
        self._act(f"bar.sync 1, {self.threads};")

    def exchange(self, nbytes: int) -> V:
        if self.sending.maps:
            with self.t.if_(self.leads):
                self._act("cp.async.bulk.wait_group.read 0;")
            self.exchanged = None
        return super().exchange(nbytes)

    def exchange_end(self) -> None:
        if self.sending.maps:
            self.barrier()
        else:
            super().exchange_end()

    def _await(self, barrier: V, parity: V) -> None:
        """Wait in a block of its own, which may be run again as often as one likes."""
        label = self.t.new_label("await")
        self.t.br(label)
        self.t.label(label)
        self._wait(barrier, parity)

    # -- turns --------------------------------------------------------------------------------------------------------
    def take_turn(self) -> None:
        """Wait until the other group has begun its products, so that one multiplies while the other computes."""
        t = self.t
        parity = t.get(self.turn, "i32")
        self._await(self._barrier(self.turns_at, self.group), parity)
        t.set(self.turn, t.bin("xor", parity, i32(1)))

    def end_turn(self) -> None:
        t = self.t
        with t.if_(self.leads):
            self._arrive(self._barrier(self.turns_at, t.bin("xor", self.group, i32(1))))

    # -- stages -------------------------------------------------------------------------------------------------------
    def acquire(self, number: int) -> V:
        """Wait for the present tile of a stream; where it lies."""
        number = self.parts.rings[number]
        ring = self.rings[number]
        stage, parity = self._present(ring)
        self._await(self._barrier(ring.full, stage), parity)
        if number in self.unmapped:
            # What threads wrote is to be seen by the tensor cores.
            self._act(FENCE)
        self._advance(ring)
        return self.stage_at(number, stage)

    def owe(self, number: int) -> None:
        """Say that a stage is in use until products are done."""
        self.t.set(self.owed[self.parts.rings[number]], V("true", "i1"))

    def give_back(self, number: int, always: bool) -> None:
        """Give back the oldest stage in use; unless `always`, if one is owed."""
        number = self.parts.rings[number]
        t, ring = self.t, self.behind[number]
        owed = None if always else t.get(self.owed[number], "i1")
        with t.if_(owed):
            with t.if_(self.leads):
                self._arrive(self._barrier(ring.empty, self._present(ring)[0]))
            self._advance(ring)
        t.set(self.owed[number], V("false", "i1"))


def _uneven(kernel: Kernel) -> bool:
    """Whether it depends on a program's place how many tiles are brought."""
    bounds = [
        v for op in kernel.walk()
        if op.name == "for" and any(inner.name == "bring" for inner in op.regions[0].ops) for v in op.operands[:3]
    ]  # fmt: skip
    seen = set[Value]()
    while bounds:
        v = bounds.pop()
        if v.op is not None and v not in seen:
            seen.add(v)
            if v.op.name == "program_id":
                return True
            bounds += v.op.operands
    return False


def slots_of(kernel: Kernel) -> dict[Value, int]:
    """Where each parameter begins among the words that a launch passes."""
    slots: dict[Value, int] = {}
    count = 0
    for p in kernel.params:
        slots[p] = count
        count += 2 if p.type.dtype in dtypes.COMPLEX and not p.type.pointer else 1
    return slots


def far_map(kernel: Kernel, pointer: Value, stride: Value, columns: int, rows: int) -> dict[str, Any] | None:
    """A map by which the copy engine finds boxes of rows that begin anywhere and lie a stride apart; None if it cannot.

    A box's first column is how far it is from the pointer, and its first row is 0.
    """
    slots = slots_of(kernel)
    while stride.op is not None and stride.op.name == "cast":
        (stride,) = stride.op.operands
    aligned = kernel.attrs.get("aligned", ())
    if pointer.name not in aligned or pointer not in slots or rows > 256:
        return None
    fixed = constant(stride)
    if fixed is not None:
        if fixed <= 0 or fixed * dtypes.SIZE[pointer.type.dtype] % PIECE:
            return None
    elif (
        stride not in slots
        or stride.type.dtype not in ("i32", "i64")
        or stride.name not in (*aligned, *kernel.attrs.get("pitched", ()))
    ):
        return None
    return {
        "dtype": pointer.type.dtype, "pointer": slots[pointer], "far": FAR,
        "strides": [{"value": fixed} if fixed is not None else slots[stride]], "box": [columns, rows],
    }  # fmt: skip


def fits(code: Codegen, offset: V, columns: int, extents: Sequence[int], bounds: Sequence[V]) -> V:
    """Whether a tile lies within its bounds, and where a map of far rows reaches."""
    t = code.t
    found = t.cmp("ult", offset, i64(FAR - columns))
    for extent, bound in zip(extents, bounds, strict=False):
        found = t.bin("and", found, t.cmp("sge", bound, i64(extent)))
    return found


class Bringing(Codegen):
    """Writes what the bringing warps do."""

    t: Body

    def __init__(self, owner: Specialised) -> None:
        super().__init__(owner.parts.bringing, owner.target)
        self.owner, self.t, self.allocas = owner, owner.t, owner.allocas
        self.t.rounding = rounding(self.t, owner.target)
        self.tiles.update({p: owner.tiles[p] for p in owner.kernel.params})
        self.depth.update(dict.fromkeys(owner.kernel.params, 0))
        self.number = self.t.bin("sub", owner.tid, i32(owner.threads))
        #: Whether it is the first one of its warp; the warp's number, which a shuffle shows to be the same in all.
        self.elected = self.t.cmp("eq", self.t.bin("and", self.number, i32((1 << LANES) - 1)), i32(0))
        args = [i32(-1), self.t.bin("lshr", self.number, i32(LANES)), i32(0), i32(31)]
        self.mover = self.t.call("llvm.nvvm.shfl.sync.idx.i32", "i32", args, "convergent nounwind")

    def moves(self, stream: int) -> V:
        """Whether the thread is of the warp that has the copy engine move a stream's tiles."""
        return self.t.cmp("eq", self.mover, i32(self.owner.parts.rings[stream] % (BRINGING >> LANES)))

    def leads(self, stream: int) -> V:
        """Whether it is the first one of that warp."""
        return self.t.bin("and", self.moves(stream), self.elected)

    def run(self) -> None:
        owner = self.owner
        self.rings = owner.turns()
        owner.making.begin(self)
        with owner.programs(self):
            self.block(self.kernel.body)

    def op(self, op: Op) -> None:
        if op.name == "bring":
            self._bring(op)
        else:
            super().op(op)

    def _bring(self, op: Op) -> None:
        owner = self.owner
        original = op.attrs["stream"]
        stream, map_ = owner.streams[original], owner.names[original]
        number = owner.parts.rings[original]
        ring = self.rings[number]
        pointer, offset = self.integer(op.operands[0]), self.integer(op.operands[1])
        strides = [self._wide(v) for v in op.operands[2:4]]
        bounds = [self._wide(v) for v in op.operands[4:6]]
        args = stream, ring, pointer, offset, strides, bounds
        if map_ is None:
            self._await_free(ring)
            self._copy(*args)
        else:
            self._move_or_copy(original, map_, *args)
        owner._advance(ring)

    def _wide(self, value: Value) -> V:
        v = self.integer(value)
        return v if v.ty == "i64" else self.t.cast("sext", v, "i64")

    def _await_free(self, ring: Ring) -> None:
        """Wait until the present stage is free, as all are at first."""
        owner = self.owner
        stage, parity = owner._present(ring)
        owner._await(owner._barrier(ring.empty, stage), self.t.bin("xor", parity, i32(1)))

    def _move(self, stream: Stream, ring: Ring, map_: V, x: V, y: V) -> None:
        """Have the copy engine move all, for the warp that does."""
        t, owner, panel = self.t, self.owner, stream.panel
        self._await_free(ring)
        owner._act(MEET)
        with t.if_(self.elected):
            to, full = self._places(ring)
            owner._expect(full, panel.nbytes)
            column, row = (t.cast("trunc", v, "i32") for v in (x, y))
            for box in range(panel.boxes):
                place = t.bin("add", column, i32(box * panel.row // panel.size))
                owner._bring(map_, t.bin("add", to, i32(box * panel.box)), [place, row], full)

    def _move_or_copy(
        self, original: int, map_: V, stream: Stream, ring: Ring, pointer: V, offset: V, strides: Sequence[V],
        bounds: Sequence[V],
    ) -> None:  # fmt: skip
        """Have the copy engine move a tile, by a map that is made for it if need be, or else copy it."""
        t, making = self.t, self.owner.making
        whole = fits(self, offset, stream.panel.columns, extents_of(stream.op.result), bounds)
        pitch = t.bin("mul", strides[stream.outer], i64(stream.panel.size))
        if original in making.streams:
            whole = t.bin("and", whole, making.suits(pointer, pitch, PITCH))
        with t.if_else(whole) as turn:
            with t.if_(self.moves(original)):
                if original in making.streams:
                    map_ = making.map(original, pointer, pitch, None, self.elected)
                self._move(stream, ring, map_, offset, i64(0))
            next(turn)
            if original in making.cut:
                # What is outside for all tiles of an array is outside of a map's sizes.
                inside = t.cmp("sgt", t.call("llvm.smin.i64", "i64", list(bounds)), i64(0))
                inside = t.bin("and", inside, t.cmp("ult", offset, i64(FAR - stream.panel.columns)))
                with t.if_else(t.bin("and", inside, making.suits(pointer, pitch, FAR))) as other:
                    with t.if_(self.moves(original)):
                        self._move_cut(original, stream, ring, pointer, offset, strides[stream.outer], bounds)
                    next(other)
                    self._copy_together(stream, ring, pointer, offset, strides, bounds)
            else:
                self._copy_together(stream, ring, pointer, offset, strides, bounds)

    def _move_cut(
        self, original: int, stream: Stream, ring: Ring, pointer: V, offset: V, stride: V, bounds: Sequence[V]
    ) -> None:
        """Have the copy engine move what lies within the bounds: by rows and columns, which reach as far for all tiles
        of an array."""
        t = self.t
        row = t.bin("udiv", offset, stride)
        column = t.bin("sub", offset, t.bin("mul", row, stride))
        most = [t.call("llvm.smin.i64", "i64", [b, i64(FARTHEST)]) for b in bounds]
        sizes = t.bin("add", column, most[stream.inner]), t.bin("add", row, most[stream.outer])
        pitch = t.bin("mul", stride, i64(stream.panel.size))
        map_ = self.owner.making.map(original, pointer, pitch, sizes, self.elected)
        self._move(stream, ring, map_, column, row)

    def _copy_together(
        self, stream: Stream, ring: Ring, pointer: V, offset: V, strides: Sequence[V], bounds: Sequence[V]
    ) -> None:
        """Copy a tile of those that the copy engine moves else."""
        owner = self.owner
        # Who moved the tiles before knows that their stages were free.
        owner._act(MEETING)
        self._await_free(ring)
        self._copy(stream, ring, pointer, offset, strides, bounds)
        owner._act(FENCE)
        owner._act(MEETING)
        with self.t.if_(self.t.cmp("eq", self.number, i32(0))):
            owner._arrive(self._places(ring)[1])

    def _places(self, ring: Ring) -> tuple[V, V]:
        """The address of the present stage, and its barrier."""
        owner = self.owner
        stage, _ = owner._present(ring)
        return owner.stage_at(self.rings.index(ring), stage), owner._barrier(ring.full, stage)

    def _copy(
        self, stream: Stream, ring: Ring, pointer: V, offset: V, strides: Sequence[V], bounds: Sequence[V]
    ) -> None:
        """Copy pieces of 16 bytes where memory allows, else element by element."""
        t, size = self.t, stream.panel.size
        args = stream, *self._places(ring), pointer, offset, strides, bounds
        if assign.width(self.owner.stream_axes, stream.op, stream.inner) * size >= PIECE:
            self._pieces(*args)
            return
        start = t.op(f"ptrtoint {at(t, pointer, t.bin('mul', offset, i64(size)))} to i64", "i64")
        low = t.bin("or", start, t.bin("mul", strides[stream.outer], i64(size)))
        with t.if_else(t.cmp("eq", t.bin("and", low, i64(PIECE - 1)), i64(0))) as turn:
            self._pieces(*args)
            next(turn)
            self._elements(*args)

    def _pieces(
        self, stream: Stream, to: V, full: V, pointer: V, offset: V, strides: Sequence[V], bounds: Sequence[V]
    ) -> None:
        """Copy 16 bytes at a time: a thread's pieces lie below each other."""
        t, owner, panel, size = self.t, self.owner, stream.panel, stream.panel.size
        step = PIECE // size
        pieces = panel.columns // step
        shift = pieces.bit_length() - 1
        rows = strides[stream.outer]
        # Rows from one piece of a thread to its next, and how many pieces there are.
        apart, count = BRINGING // pieces, max(1, panel.rows * pieces // BRINGING)
        row = t.bin("lshr", self.number, i32(shift))
        column = t.bin("mul", t.bin("and", self.number, i32(pieces - 1)), i32(step))
        down, across = (t.cast("zext", v, "i64") for v in (row, column))
        place = t.bin("add", t.bin("add", offset, t.bin("mul", down, rows)), across)
        source = at(t, pointer, t.bin("mul", place, i64(size)))
        further = t.bin("mul", rows, i64(apart * size))
        nbytes: V = i32(PIECE)
        low: V | None = None
        if bounds:
            left = t.bin("mul", t.bin("sub", bounds[stream.inner], across), i64(size))
            some = t.call("llvm.smax.i64", "i64", [t.call("llvm.smin.i64", "i64", [left, i64(PIECE)]), i64(0)])
            nbytes, low = t.cast("trunc", some, "i32"), bounds[stream.outer]
        # The swizzle is the same again after some rows.
        turns = min(max(1, ROWS // apart), count)
        places = [panel.placed(t, t.bin("add", row, i32(k * apart)), column) for k in range(turns)]
        own = t.cmp("ult", self.number, i32(panel.rows * pieces)) if panel.rows * pieces < BRINGING else None
        line, cell = t.cell("i32"), t.cell(source.ty)
        t.set(line, to)
        t.set(cell, source)
        with t.if_(own), t.for_(i32(count * apart), turns * apart) as above:
            for k in range(turns):
                here, where = t.get(cell, source.ty), t.bin("add", t.get(line, "i32"), places[k])
                some, there = nbytes, here
                if low is not None:
                    inside = t.bin("add", down, t.cast("zext", t.bin("add", above, i32(k * apart)), "i64"))
                    some = t.select(t.cmp("slt", inside, low), nbytes, i32(0))
                    there = t.select(t.cmp("ne", some, i32(0)), here, pointer)
                owner._act("cp.async.cg.shared.global [$0], [$1], 16, $2;", where, there, some)
                t.set(cell, at(t, here, further))
            t.set(line, t.bin("add", t.get(line, "i32"), i32(turns * apart * panel.row)))
        if self._fenced_by_readers(stream):
            owner._act("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", full)
        else:
            t.call("llvm.nvvm.cp.async.wait.all", "void", [])

    def _elements(
        self, stream: Stream, to: V, full: V, pointer: V, offset: V, strides: Sequence[V], bounds: Sequence[V]
    ) -> None:
        """Copy one element at a time."""
        t, owner, panel, size = self.t, self.owner, stream.panel, stream.panel.size
        shift = panel.columns.bit_length() - 1
        with t.for_(i32(panel.rows * panel.columns), BRINGING, self.number) as k:
            row, column = t.bin("lshr", k, i32(shift)), t.bin("and", k, i32(panel.columns - 1))
            down, across = (t.cast("zext", v, "i64") for v in (row, column))
            place = t.bin("add", t.bin("add", offset, t.bin("mul", down, strides[stream.outer])), across)
            inside = None
            if bounds:
                within = t.cmp("slt", down, bounds[stream.outer])
                inside = t.bin("and", within, t.cmp("slt", across, bounds[stream.inner]))
            source = at(t, pointer, t.bin("mul", place, i64(size)))
            (v,) = memory.load_words(t, source, {1: "u8", 2: "u16", 4: "u32"}[size], 1, inside)
            target = t.bin("add", to, panel.placed(t, row, column))
            owner._act(f"st.shared.b{8 * size} [$0], $1;", target, t.cast("zext", v, "i32"))
        if self._fenced_by_readers(stream):
            owner._arrive(full)

    def _fenced_by_readers(self, stream: Stream) -> bool:
        number = self.owner.streams.index(stream)
        return self.owner.parts.rings[number] in self.owner.unmapped
