"""The schedule of attention on Hopper: softmax(scores of q @ k) @ v in one walk over the keys.

Blocks of queries are drawn by a counter, so that no processor waits for others that got those with the most keys.  A
thread has the copy engine bring a block of queries, and block after block of keys and values into rings of stages.
Groups of four warps have 64 rows of queries each.  A group multiplies them by a block of keys, turns the scores in its
registers into weights, and multiplies these, from the registers, by the block of values.  The scores of one block are
multiplied before the values of the block before, so that the tensor cores work while the group computes weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from typing import NoReturn

from .. import ir
from ..llvm.convert import Register, round_to
from ..llvm.text import V
from ..slices import slice_of
from . import memory, running, tensor_maps
from .codegen import Code as Generated
from .elements import Code, Elements, Where
from .layout import Facts, bucket
from .memory import i32, i64
from .pipeline import BARRIER, Ring, Specialised
from .running import Walk
from .softmax import ROWS, Softmax
from .target import Target
from .tensor_maps import TensorMap

#: Threads that load, of which one does, and of a group that computes.
LOADING, GROUP = 128, 128
#: Registers of a thread that loads and of one that computes, by the number of groups.
REGISTERS = {1: (56, 240), 2: (24, 240), 3: (32, 160)}
#: Registers that hold neither scores nor weights, sums or what else a thread has of each key.
OTHERS = 40
#: Elements of a row of 128 bytes, and of depth in an instruction.
SIDE, DEPTH = 64, 16
#: Bytes of a row, of a box of 64 by 64, and of all barriers.
ROW, BOX, BARRIERS = 128, 8192, 256
#: Of a descriptor: the swizzle of 128 bytes, and 1024 bytes from eight rows to the next.
_SWIZZLE = 1 << 62 | 64 << 32
#: Bytes of keys and values that programs that run together share in the L2 cache.
CACHED = 24 << 20
_TICKET = "ptr addrspace(1) @ticket"


@dataclass(frozen=True, slots=True)
class Panel:
    """An operand of products in shared memory, `lines` by `depth` elements, in boxes of rows of 128 bytes.

    The sum is over depth; rows go along it, or, if they are `across`, along the lines.
    """

    map: TensorMap
    lines: int
    depth: int
    across: bool

    @property
    def boxes(self) -> int:
        return -(-(self.lines if self.across else self.depth) // SIDE)

    @property
    def box(self) -> int:
        """Bytes of a box."""
        return ROW * (self.depth if self.across else self.lines)

    @property
    def nbytes(self) -> int:
        return self.boxes * self.box

    @property
    def descriptor(self) -> int:
        """That of a panel at address 0, whose lines lie so many bytes after those of the box before."""
        return _SWIZZLE | (self.box >> 4 if self.across else 1) << 16

    def step(self, number: int) -> int:
        """Where a step of the depth begins, in the units of descriptors."""
        if self.across:
            return number * (DEPTH * ROW >> 4)
        box, inside = divmod(number, SIDE // DEPTH)
        return box * (self.box >> 4) + 2 * inside


class Online(Softmax, Specialised):
    """Generates the code of one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Whether the kernel is of the form that `running` reads, with arrays that the copy engine finds its way in."""
        if target.arch != "sm_90a":
            return False
        try:
            return Online(kernel, target).stages >= 2
        except NotImplementedError:
            return False

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.facts = Facts(kernel)
        self.walks = self._walks()
        first, last = self.walks[0], self.walks[-1]
        query, key = first.first.operands
        value = first.second.operands[1]
        self.dtype = query.type.dtype
        #: The dims of rows and of a result's columns; rows and keys of a block.
        self.i, self.e_ = (str(x) for x in first.second.result.type.extents)
        keys = key.type.extents[1]
        block = kernel.dims[self.i].block or 0
        depth, self.columns = (max(DEPTH, bucket(kernel, str(d)) or 0) for d in (query.type.extents[1], self.e_))
        self.groups = block // ROWS
        if (
            self.dtype not in ("f16", "bf16") or not isinstance(keys, int) or keys % DEPTH or keys > 256
            or block % ROWS or self.groups not in REGISTERS or max(depth, self.columns) > 256
        ):  # fmt: skip
            self._refuse("these dtypes and sizes")
        assert isinstance(keys, int)
        self.keys = keys
        #: The number of keys in all.
        self.length = self._length(first)
        for walk in self.walks:
            if self.facts.multiple(walk.loop.operands[0]) == 16:
                self.facts.assume(walk.index, 16)
        self.q = self._panel(query, self.i, ROWS, depth, first)
        self.k = self._panel(key, self.keys, self.keys, depth, first)
        self.v = self._panel(value, self.e_, self.columns, self.keys, first)
        self.out = self._staged()
        forms = [running.scaled(w) for w in self.walks]
        found = [f for f in forms if f is not None]
        self.forms = found if len(found) == len(forms) and found[0].same(found[-1]) else []
        # Elsewhere the maximum must not lag.
        self.lazy = running.is_quotient(last, kernel.body)
        self.threads = LOADING + self.groups * GROUP
        # Others hold scores, weights, sums and addresses.
        self._plan_fetches(REGISTERS[self.groups][1] - OTHERS - self.keys * 3 // 4 - self.columns // 2)
        self._place_memory(last)
        self.t = Code(target)
        self.e = Elements(self.t, kernel, target)

    # -- choices ------------------------------------------------------------------------------------------------------
    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(f"kernel @{self.kernel.name}: {what} are not for tensor cores")

    def _walks(self) -> list[Walk]:
        loops = [op for op in self.kernel.body.ops if op.regions]
        walks = [w for op in loops if op.name == "for" and (w := running.read(op)) is not None]
        if not walks or len(walks) != len(loops) or len(walks) > 2:
            self._refuse("loops that do not walk over keys")
        for before, after in pairwise(walks):
            same = before.loop.operands[1] is after.loop.operands[0]
            if not same or before.first.operands[0] is not after.first.operands[0]:
                self._refuse("loops that do not go on where others end")
        return walks

    def _length(self, walk: Walk) -> ir.Value:
        """The keys that there are, from the bounds of a load."""
        op = walk.first.operands[1].op
        if op is not None and op.name == "load_view" and op.attrs.get("bounded"):
            left = op.operands[5].op
            if left is not None and left.name == "subtract" and left.operands[1] is walk.index:
                return left.operands[0]
        self._refuse("keys without bounds")

    def _panel(self, value: ir.Value, lines: int | str, count: int, depth: int, walk: Walk) -> Panel:
        op = value.op
        if op is not None and op.name == "load_view" and value.type.dtype == self.dtype:
            for across, box in ((True, depth), (False, count)):
                found = tensor_maps.find(self.kernel, self.facts, op, (SIDE, box), (walk.index, self.length))
                if found is not None and (found.inner == str(lines)) == across:
                    return Panel(found, count, depth, across)
        self._refuse("these arrays")

    def _staged(self) -> TensorMap | None:
        """How the copy engine stores the result, if it can."""
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        if len(stores) != 1 or stores[0].operands[1].type.dtype not in ("f16", "bf16"):
            return None
        if stores[0].operands[0].type.extents not in ((self.i, self.e_), (self.e_, self.i)):
            return None
        found = tensor_maps.find(self.kernel, self.facts, stores[0], (SIDE, SIDE))
        return found if found is not None and found.inner == self.e_ else None

    def _place_memory(self, last: Walk) -> None:
        """Queries, results, stages of keys and of values, barriers."""
        self.asked_bytes = queries = self.groups * self.q.nbytes
        results = self.groups * -(-self.columns // SIDE) * BOX if self.out else 0
        stage = self.k.nbytes + self.v.nbytes
        room = self.target.shared - BARRIERS
        #: Whether results wait where queries were.
        self.shares = results <= queries
        rest = 0 if self.shares else results
        #: Blocks of queries that there is room for.
        self.slots = 2 if room - 2 * queries - rest >= 2 * stage else 1
        self.results = self.slots * queries
        self.keys_at = self.results + rest
        self.stages = min(4, (room - self.keys_at) // stage)
        self.values_at = self.keys_at + self.stages * self.k.nbytes
        barriers = self.values_at + self.stages * self.v.nbytes
        #: Barriers: queries are there, or their place is free; a tile is told, or taken; stages are full, or empty.
        self.asked, self.answered, self.told, self.taken = (barriers + n * BARRIER for n in (0, 2, 4, 5))
        self.tile = barriers + BARRIERS - 16
        starts = [barriers + (6 + n * self.stages) * BARRIER for n in range(4)]
        self.full, self.empty = starts[:2], starts[2:]
        self.shared = barriers + BARRIERS

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Generated:
        t, e, kernel = self.t, self.e, self.kernel
        e.excess = True
        e.run([op for op in kernel.body.ops if op.name == "const" and not op.result.type.extents], {})
        maps = [m for m in (self.q.map, self.k.map, self.v.map, self.out) if m is not None]
        self.names = [V(f"%m{k}", "ptr") for k in range(len(maps))]
        self._begin()
        few, many = REGISTERS[self.groups]
        with t.if_else(t.cmp("ult", self.tid, i32(LOADING))) as turn:
            self._registers("dec", few)
            with t.if_(t.cmp("eq", self.tid, i32(0))):
                self._load()
            next(turn)
            self._registers("inc", many)
            self._compute()
        t.line("ret void")
        text = self._module(self.names, f'"nvvm.reqntid"="{self.threads}"', *self._variables())
        found = tuple(m.described(kernel) for m in maps)
        return Generated(text, self.threads, self.shared, maps=found, resident=1, waits=True)

    def _variables(self) -> list[str]:
        shared = "@shared = external addrspace(3) global [0 x i8], align 1024"
        return [shared, "@ticket = internal addrspace(1) global i32 0, align 4"]

    def _begin(self) -> None:
        """Make the barriers, and count the programs."""
        t, e, kernel = self.t, self.e, self.kernel
        self.tid, self.first, self.stride = (self._special(name) for name in ("tid.x", "ctaid.x", "nctaid.x"))
        self.base = self._shared()
        self.counts = []
        for axis in kernel.grid:
            size = t.bin("udiv", t.bin("add", e.integer(axis.size), i64(axis.block - 1)), i64(axis.block))
            self.counts.append(t.cast("trunc", size, "i32"))
        self.row_axis = kernel.dims[self.i].axis or 0
        self.heads = i32(1)
        for axis, count in enumerate(self.counts):
            if axis != self.row_axis:
                self.heads = t.bin("mul", self.heads, count)
        self.blocks = self.counts[self.row_axis]
        self.tiles = t.bin("mul", self.heads, self.blocks)
        # As many heads at a time as the cache holds the keys and values of.
        row = i64(2 * SIDE * (-(-self.k.depth // SIDE) + -(-self.columns // SIDE)))
        held = t.bin("mul", t.call("llvm.smax.i64", "i64", [e.integer(self.length), i64(1)]), row)
        together = t.cast("trunc", t.bin("udiv", i64(CACHED), held), "i32")
        self.together = t.call("llvm.umax.i32", "i32", [together, i32(1)])
        self._open(self.names)

    def _make_barriers(self) -> None:
        for slot in range(self.slots):
            self._make_barrier(self.asked + slot * BARRIER, 1)
            self._make_barrier(self.answered + slot * BARRIER, self.groups)
        self._make_barrier(self.told, 1)
        self._make_barrier(self.taken, self.groups * GROUP)
        for starts, count in ((self.full, 1), (self.empty, self.groups)):
            for start in starts:
                for stage in range(self.stages):
                    self._make_barrier(start + stage * BARRIER, count)

    def _locate(self, tile: V) -> None:
        """Tell where a tile is, the last rows first: they may have the most keys."""
        t = self.t
        whole = t.bin("mul", self.together, self.blocks)
        start = t.bin("mul", t.bin("udiv", tile, whole), self.together)
        inside = t.bin("urem", tile, whole)
        some = t.call("llvm.umin.i32", "i32", [self.together, t.bin("sub", self.heads, start)])
        row = t.bin("sub", t.bin("sub", self.blocks, i32(1)), t.bin("udiv", inside, some))
        head = t.bin("add", start, t.bin("urem", inside, some))
        places = [row] * len(self.counts)
        for axis in reversed(range(len(self.counts))):
            if axis != self.row_axis:
                places[axis] = t.bin("urem", head, self.counts[axis])
                head = t.bin("udiv", head, self.counts[axis])
        self.programs = places
        wide = [t.cast("zext", p, "i64") for p in places]
        starts = {
            name: i64(0) if dim.axis is None else t.bin("mul", wide[dim.axis], i64(dim.block or 1))
            for name, dim in self.kernel.dims.items()
        }
        self.start = t.cast("trunc", starts[self.i], "i32")
        self.e.place(wide, starts)
        self.low = self.e.integer(self.walks[0].loop.operands[0])
        self.high = self.e.integer(self.walks[-1].loop.operands[1])
        self.some = t.cmp("slt", self.low, self.high)

    def _drawn(self) -> Iterator[None]:
        """Draw tiles until there are no more, and tell the groups."""
        t = self.t
        cell, parity, drawn = (t.cell("i32") for _ in range(3))
        t.set(cell, self.first)
        t.set(parity, i32(1))

        def publish(tile: V) -> None:
            self._wait(self._at(self.taken), t.get(parity, "i32"))
            t.set(parity, t.bin("xor", t.get(parity, "i32"), i32(1)))
            self._act("st.shared.b32 [$0], $1;", self._at(self.tile), tile)
            self._arrive(self._at(self.told))

        with t.while_(lambda: t.cmp("slt", t.get(cell, "i32"), self.tiles)), self.e.scope():
            tile = t.get(cell, "i32")
            publish(tile)
            # In time for the next tile.
            number = t.op(f"atomicrmw add {_TICKET}, i32 1 monotonic", "i32")
            self._locate(tile)
            yield
            t.set(drawn, number)
            t.set(cell, t.bin("add", number, self.stride))
        publish(self.tiles)
        # The last one leaves the counter as it was.
        with t.if_(t.cmp("eq", t.get(drawn, "i32"), t.bin("sub", self.tiles, i32(1)))):
            t.op(f"atomicrmw add {_TICKET}, {t.bin('sub', i32(0), self.tiles)} monotonic", "i32")

    def _told(self) -> Iterator[None]:
        """The tiles that are drawn."""
        t = self.t
        parity = t.cell("i32")
        t.set(parity, i32(0))

        def tile() -> V:
            self._wait(self._at(self.told), t.get(parity, "i32"))
            t.set(parity, t.bin("xor", t.get(parity, "i32"), i32(1)))
            place = memory.at(t, V("@shared", memory.SHARED), self.tile)
            found = t.load(place, "i32", 4)
            self._arrive(self._at(self.taken))
            t.set(cell, found)
            return t.cmp("slt", found, self.tiles)

        cell = t.cell("i32")
        with t.while_(tile), self.e.scope():
            self._locate(t.get(cell, "i32"))
            yield

    def _rings(self) -> list[Ring]:
        """Of keys, and of values."""
        return [self._begin_ring(self.stages, f, e) for f, e in zip(self.full, self.empty, strict=True)]

    def _at(self, offset: int) -> V:
        return self.t.bin("add", self.base, i32(offset))

    # -- the thread that loads ----------------------------------------------------------------------------------------
    def _load(self) -> None:
        t = self.t
        rings = self._rings()
        slots = self._begin_ring(self.slots, self.asked, self.answered)
        for _ in self._drawn():
            with t.if_(self.some):
                self._bring_keys(rings[0], self.low)
            self._bring_queries(slots)
            with t.if_(self.some):
                with t.for_(self.high, self.keys, t.bin("add", self.low, i64(self.keys))) as j:
                    self._bring_keys(rings[0], j)
                    self._bring_values(rings[1], t.bin("sub", j, i64(self.keys)))
                # The last block begins at a multiple of its size after the first.
                beyond = t.bin("sub", t.bin("sub", self.high, i64(1)), self.low)
                last = t.bin("mul", t.bin("udiv", beyond, i64(self.keys)), i64(self.keys))
                self._bring_values(rings[1], t.bin("add", self.low, last))

    def _bring_queries(self, slots: Ring) -> None:
        t = self.t
        to, full = self._free(slots, 0, self.asked_bytes)
        with t.if_else(self.some) as turn:
            self._expect(full, self.asked_bytes)
            for group in range(self.groups):
                line = t.bin("add", self.start, i32(group * ROWS))
                place = t.bin("add", to, i32(group * self.q.nbytes))
                self._bring_panel(self.q, self.names[0], place, line, i32(0), full)
            next(turn)
            self._arrive(full)

    def _bring_keys(self, ring: Ring, j: V) -> None:
        to, full = self._free(ring, self.keys_at, self.k.nbytes)
        self._expect(full, self.k.nbytes)
        self._bring_panel(self.k, self.names[1], to, self.t.cast("trunc", j, "i32"), i32(0), full)

    def _bring_values(self, ring: Ring, j: V) -> None:
        to, full = self._free(ring, self.values_at, self.v.nbytes)
        self._expect(full, self.v.nbytes)
        self._bring_panel(self.v, self.names[2], to, i32(0), self.t.cast("trunc", j, "i32"), full)

    def _free(self, ring: Ring, start: int, nbytes: int) -> tuple[V, V]:
        """Wait until the present stage is empty; its address and its barrier."""
        t = self.t
        stage, parity = self._present(ring)
        self._wait(self._barrier(ring.empty, stage), t.bin("xor", parity, i32(1)))
        full = self._barrier(ring.full, stage)
        to = t.bin("add", self._at(start), t.bin("mul", stage, i32(nbytes)))
        self._advance(ring)
        return to, full

    def _bring_panel(self, panel: Panel, name: V, to: V, line: V, depth: V, full: V) -> None:
        t = self.t
        inner, outer = (line, depth) if panel.across else (depth, line)
        for box in range(panel.boxes):
            at = t.bin("add", inner, i32(box * SIDE)) if box else inner
            place = panel.map.place(at, outer, self.programs)
            self._bring(name, t.bin("add", to, i32(box * panel.box)), place, full)

    # -- the warps that compute ---------------------------------------------------------------------------------------
    def _compute(self) -> None:
        t = self.t
        own = t.bin("and", self.tid, i32(GROUP - 1))
        self.lead = t.cmp("eq", own, i32(0))
        self.group = t.bin("sub", t.bin("lshr", self.tid, i32(7)), i32(1))
        self.lane = t.bin("and", self.tid, i32(31))
        self.warp_row = t.bin("shl", t.bin("lshr", own, i32(5)), i32(4))
        self.down = t.bin("add", self.warp_row, t.bin("lshr", self.lane, i32(2)))
        self.across = t.bin("shl", t.bin("and", self.lane, i32(3)), i32(1))
        if self.out is not None:
            self._stage()
        self._scale()
        keys, values = self._rings()
        self.ring = slots = self._begin_ring(self.slots, self.asked, self.answered)
        self.waiting = t.cell("i1")
        t.set(self.waiting, V("false", "i1"))
        self.sums = [t.cell("float") for _ in range(self.columns // 2)]
        self.top, self.total, self.fade, self.less = ([t.cell("float") for _ in range(2)] for _ in range(4))
        weights = [t.cell("i32") for _ in range(self.keys // 4)]
        for _ in self._told():
            for cell in (*self.sums, *self.total):
                t.set(cell, t.const(0.0, "float"))
            for top, less in zip(self.top, self.less, strict=True):
                t.set(top, t.const(-inf, "float"))
                t.set(less, t.const(nan, "float"))
            slot, parity = self._present(slots)
            self._wait(self._barrier(self.asked, slot), parity)
            self.queries = t.bin("add", self.base, t.bin("mul", slot, i32(self.asked_bytes)))
            self.queries = t.bin("add", self.queries, t.bin("mul", self.group, i32(self.q.nbytes)))
            with t.if_(self.some):
                scores = self._await(0, self._multiply_keys(keys))
                self._release(keys)
                self._retire()
                found = self._soften(self._scores(scores, self.low), first=True)
                for cell, word in zip(weights, self._packed(found), strict=True):
                    t.set(cell, word)
                with t.for_(self.high, self.keys, t.bin("add", self.low, i64(self.keys))) as j:
                    scores = self._multiply_keys(keys)
                    self._multiply_values(values, weights)
                    self._fetch(j)
                    scores = self._await(1, scores)
                    found, grown = self._weigh(keys, scores, j)
                    # The weights before are read until then: the new ones may not be in their registers earlier.
                    sums = [t.get(c, "float") for c in self.sums]
                    done = self._await(0, [*sums, *found])
                    self._release(values)
                    for cell, x in zip(self.sums, done, strict=False):
                        t.set(cell, x)
                    for cell, word in zip(weights, self._packed(done[len(sums) :]), strict=True):
                        t.set(cell, word)
                    self._fade(grown)
                self._multiply_values(values, weights)
                for cell, x in zip(self.sums, self._await(0, [t.get(c, "float") for c in self.sums]), strict=True):
                    t.set(cell, x)
                self._release(values)
            with t.if_(t.bin("xor", self.some, V("true", "i1"))):
                self._retire()
            self._finish()
            t.set(self.waiting, V("true", "i1"))
            if self.slots == 1:
                self._retire()
            self._advance(slots)
        if self.out is not None:
            with t.if_(self.lead):
                self._act("cp.async.bulk.wait_group 0;")

    def _weigh(self, keys: Ring, products: list[V], j: V) -> tuple[list[V], V | None]:
        """The weights of a block of keys; whether the maximum may have grown, if the group knows."""
        t = self.t
        if not self.lazy or not self.forms:
            self._release(keys)
            return self._soften(self._scores(products, j, fetched=True), first=False), None
        found, large = self._trust(self._scores(products, j, fetched=True))
        cells = [t.cell("float") for _ in found]
        for cell, x in zip(cells, found, strict=True):
            t.set(cell, x)
        with t.if_(large):
            again = self._await(0, self._multiply_keys(keys))
            for cell, x in zip(cells, self._soften(self._scores(again, j), first=False), strict=True):
                t.set(cell, x)
        self._release(keys)
        return [t.get(c, "float") for c in cells], large

    def _retire(self) -> None:
        """Give back the place of the queries before, once results that wait there have been stored."""
        t = self.t
        slot = self._present(self.ring)[0]
        with t.if_(t.bin("and", self.lead, t.get(self.waiting, "i1"))):
            if self.out is not None:
                self._act("cp.async.bulk.wait_group.read 0;")
            other = t.bin("xor", slot, i32(self.slots - 1))
            self._arrive(self._barrier(self.answered, other))
        t.set(self.waiting, V("false", "i1"))

    def _release(self, ring: Ring) -> None:
        with self.t.if_(self.lead):
            self._arrive(self._barrier(ring.empty, self._present(ring)[0]))
        self._advance(ring)

    # -- products -----------------------------------------------------------------------------------------------------
    def _multiply_keys(self, ring: Ring) -> list[V]:
        """Begin the products of queries and keys."""
        stage, parity = self._present(ring)
        self._wait(self._barrier(ring.full, stage), parity)
        a = self._descriptor(self.q, self.queries, None)
        b = self._descriptor(self.k, self._at(self.keys_at), stage)
        return self._begin_products([], self.keys, [a], b, self.q, self.k)

    def _multiply_values(self, ring: Ring, weights: Sequence[V]) -> None:
        """Begin to add the products of weights and values."""
        t = self.t
        stage, parity = self._present(ring)
        self._wait(self._barrier(ring.full, stage), parity)
        words = [t.get(c, "i32") for c in weights]
        b = self._descriptor(self.v, self._at(self.values_at), stage)
        sums = [t.get(c, "float") for c in self.sums]
        found = self._begin_products(sums, self.columns, words, b, None, self.v)
        for cell, x in zip(self.sums, found, strict=True):
            t.set(cell, x)

    def _descriptor(self, panel: Panel, start: V, stage: V | None) -> V:
        t = self.t
        at = start if stage is None else t.bin("add", start, t.bin("mul", stage, i32(panel.nbytes)))
        place = t.bin("lshr", t.bin("and", at, i32(0x3FFFF)), i32(4))
        return t.bin("or", t.cast("zext", place, "i64"), i64(panel.descriptor))

    def _begin_products(
        self, sums: list[V], columns: int, a: list[V], b: V, left: Panel | None, right: Panel
    ) -> list[V]:
        """Begin to add a @ b to sums (none: 0); `a` is a descriptor, or the words of all steps in registers."""
        count = columns // 2
        first = count + len(sums)
        place = first + len(a)
        lines, names = [], ["b"]
        if left is not None:
            names.append("a")
        for step in range(right.depth // DEPTH):
            lines.append(f"add.s64 b, ${place}, {right.step(step)};")
            if left is not None:
                lines.append(f"add.s64 a, ${first}, {left.step(step)};")
                source, trans = "a", f"{int(left.across)}, {int(right.across)}"
            else:
                source = "{" + ", ".join(f"${first + 4 * step + k}" for k in range(4)) + "}"
                trans = str(int(right.across))
            registers = ", ".join(f"${k}" for k in range(count))
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{self.dtype}.{self.dtype} "
                f"{{{registers}}}, {source}, b, {'p' if sums or step else 'q'}, 1, 1, {trans};"
            )
        text = (
            f"{{ .reg .pred p, q; .reg .b64 {', '.join(names)}; setp.eq.u32 p, 0, 0; setp.ne.u32 q, 0, 0; "
            f"wgmma.fence.sync.aligned; {' '.join(lines)} wgmma.commit_group.sync.aligned; }}"
        )
        return self._floats(text, sums, [*a, b], count)

    def _await(self, left: int, values: list[V]) -> list[V]:
        """Values of products, once all but so many are done."""
        return self._floats(f"wgmma.wait_group.sync.aligned {left};", values, [], len(values))

    def _floats(self, text: str, values: Sequence[V], operands: Sequence[V], count: int) -> list[V]:
        """Instructions whose results are `count` floats, in the registers of `values` if there are any."""
        t = self.t
        ty = "{" + ", ".join(["float"] * count) + "}"
        letters = [{"i32": "r", "i64": "l"}[v.ty] for v in operands]
        constraints = ",".join(["=f"] * count + [str(k) for k in range(len(values))] + letters + ["~{memory}"])
        args = ", ".join(map(str, [*values, *operands]))
        found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', ty)
        return [t.op(f"extractvalue {found}, {k}", "float") for k in range(count)]

    # -- the result ---------------------------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Take the sums through the ops after the loops, to memory."""
        t, e = self.t, self.e
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        needed = slice_of([x for op in stores for x in op.operands], self._straight())
        needed = [op for op in needed if op.result.type.extents]
        top, total, result = self.walks[-1].loop.results
        with e.scope():
            rows = self._rows()
            columns = [self._column(4 * (k // 2) + k % 2) for k in range(self.columns // 4)]
            loads = any(op.name in ("load_view", "load_ptr") and not op.attrs.get("bounded") for op in needed)
            if loads and self.out is not None:  # else positions are tested before anything is loaded
                rows, columns = self._clamped(rows, self.i), self._clamped(columns, self.e_)
            for k, row in enumerate(rows):
                where = {self.i: row}
                e.define(top, t.bin("fmul", t.get(self.top[k], "float"), self.factor), where)
                whole = t.get(self.total[k], "float")
                for step in (1, 2):
                    whole = t.bin("fadd", whole, self._exchanged(whole, step))
                e.define(total, whole, where)
            for k, cell in enumerate(self.sums):
                where = {self.i: rows[k // 2 % 2], self.e_: columns[k // 4 * 2 + k % 2]}
                e.define(result, t.get(cell, "float"), where)
            if self.out is not None:
                self._send_results(stores[0], needed, rows, columns)
            else:
                self._store_results(stores, needed, rows, columns)

    def _run(self, needed: Sequence[ir.Op], where: Where, inverses: dict[tuple[ir.Value, str], V]) -> None:
        """Compute ops at a position; quotients by a row's number are products, which are rounded more roughly after."""
        t, e = self.t, self.e
        for op in needed:
            if e.find(op.result, where) is not None:
                continue
            by = op.operands[1].op if op.name == "divide" and op.result.type.dtype == "f32" else None
            if by is None or by.name != "broadcast" or by.operands[0].type.extents != (self.i,):
                e.run([op], where)
                continue
            key = by.operands[0], where[self.i].ref
            a, b = e(op.operands[0], where), e(by.operands[0], where)
            assert isinstance(a, V) and isinstance(b, V)
            if key not in inverses:
                inverses[key] = t.bin("fdiv", t.const(1.0, "float"), b)
            e.define(op.result, t.bin("fmul", a, inverses[key]), where)

    def _store_results(self, stores: list[ir.Op], needed: list[ir.Op], rows: list[V], columns: list[V]) -> None:
        t, e = self.t, self.e
        extents = [e.integer(self.kernel.dims[d].size) for d in (self.i, self.e_)]
        start = t.bin("mul", t.cast("zext", self.programs[self.row_axis], "i64"), i64(self.groups * ROWS))
        extents[0] = t.bin("sub", extents[0], start)
        for row in rows:
            with t.if_(t.cmp("slt", row, extents[0])), e.scope():
                inverses: dict[tuple[ir.Value, str], V] = {}
                for k, column in enumerate(columns):
                    with t.if_(t.cmp("slt", column, extents[1])), e.scope():
                        where = {self.i: row, self.e_: column}
                        self._run(needed, where, dict(inverses))
                        for op in stores:
                            value, pointer = op.operands[:2]
                            if k == 0 or self.e_ in value.type.extents:
                                found = e(value, where if value.type.extents else None)
                                e.store([found], e.address(op, where), pointer.type.dtype)

    def _stage(self) -> None:
        """Where the thread's rows of eight elements go among a group's results."""
        t, lane = self.t, self.lane
        low = t.bin("and", lane, i32(7))
        down = t.bin("add", low, t.bin("and", lane, i32(8)))
        row = t.bin("mul", t.bin("add", down, self.warp_row), i32(ROW))
        half = t.bin("lshr", lane, i32(4))
        self.chunks = [
            t.bin("add", row, t.bin("shl", t.bin("xor", t.bin("add", half, i32(2 * q)), low), i32(4)))
            for q in range(SIDE // DEPTH)
        ]

    def _send_results(self, store: ir.Op, needed: list[ir.Op], rows: list[V], columns: list[V]) -> None:
        """Have the copy engine store the results, by way of shared memory."""
        t, e = self.t, self.e
        assert self.out is not None
        value, dtype = store.operands[0], store.operands[1].type.dtype
        group = t.bin("add", self.group, i32(1))
        staged = self.queries
        if not self.shares:
            size = -(-self.columns // SIDE) * BOX
            staged = t.bin("add", self._at(self.results), t.bin("mul", self.group, i32(size)))
            with t.if_(self.lead):
                self._act("cp.async.bulk.wait_group.read 0;")
        self._act("bar.sync $0, 128;", group)
        inverses: dict[tuple[ir.Value, str], V] = {}
        for first in range(0, len(columns), 4):
            words = []
            for pair in (0, 2):
                for row in rows:
                    values: list[Register] = []
                    for column in columns[first + pair : first + pair + 2]:
                        where: Where = {self.i: row, self.e_: column}
                        self._run(needed, where, inverses)
                        found = e(value, where if value.type.extents else None)
                        assert isinstance(found, V)
                        values.append(round_to(t, found, dtype))
                    words += memory.pack(t, values, dtype, "i32")
            block, chunk = divmod(first // 4, SIDE // DEPTH)
            at = t.bin("add", t.bin("add", staged, self.chunks[chunk]), i32(block * BOX))
            self._act("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", at, *words)
        self._act("fence.proxy.async.shared::cta;")
        self._act("bar.sync $0, 128;", group)
        with t.if_(self.lead):
            line = t.bin("add", self.start, t.bin("mul", self.group, i32(ROWS)))
            for part in range(-(-self.columns // SIDE)):
                place = self.out.place(i32(part * SIDE), line, self.programs)
                self._send(self.names[-1], t.bin("add", staged, i32(part * BOX)), place)
            self._act("cp.async.bulk.commit_group;")
