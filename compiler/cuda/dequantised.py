"""The schedule on Hopper of products of f16 and bf16 with few rows or columns, whose large operand is computed from
elements of 8 bits, as weights are that were quantised.  See gemm.py.

The copy engine brings the elements as they lie in memory.  Each group of warps computes its 64 rows of a step of what
the tensor cores take, and leaves them in a panel of its own, while these multiply the step before.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.convert import Register, round_to
from ..llvm.text import V
from . import memory, tensor_maps
from .elements import Where
from .hopper import Hopper
from .memory import SHARED, i32, i64
from .mma import Mma
from .panels import Side
from .parts import Parts
from .pipeline import Ring
from .simt import Sums
from .streamed import define_bytes
from .target import Target
from .tensor_maps import TensorMap
from .wgmma import BOX, ROW, ROWS

#: Elements of a step, rows of a group, and elements that a thread computes of one.
STEP, GROUP, MINE = 64, 64, 32
#: Steps whose panels are computed before any is multiplied; sets of such panels: one that is written to, one that is
#: read, and one that warps may still read which come later.
TOGETHER, PANELS = 2, 3
#: Most columns, and bytes of a step of the large operand.
COLUMNS, RAW = 64, ROWS * STEP


class Dequantised(Hopper):
    """Generates the code of one kernel."""

    beside = 2 * PANELS * TOGETHER * BOX + 1024

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if target.arch != "sm_90a" or kernel.attrs.get("parts", 1) != 1 or not Mma.suits(kernel, target):
            return False
        return _fits(Dequantised(kernel, target))

    @property
    def load(self) -> ir.Op | None:
        """The only access to the large operand."""
        loads = [op for op in self.a.ops if op.name in ("load_view", "load_ptr") and len(op.result.type.extents) == 2]
        return loads[0] if len(loads) == 1 and loads[0].name == "load_view" else None

    def _access(self, side: Side) -> None:
        super()._access(side)
        ops = [op for op in side.ops if op.name == "load_view" and len(op.result.type.extents) == 2]
        if len(ops) == 1:
            side.deep = self.facts.width(ops[0], self.k) > 1

    def _map(self, side: Side) -> TensorMap | None:
        if side is self.b:
            return super()._map(side)
        if self.load is None:
            return None
        box = (STEP, ROWS) if side.deep else (ROWS, STEP)
        return tensor_maps.find(self.kernel, self.facts, self.load, box)

    def _nbytes(self, side: Side) -> int:
        return RAW if side is self.a else super()._nbytes(side)

    def _layout(self) -> None:
        super()._layout()
        #: Where the groups' panels are.
        self.computed = -(-self.nbytes // 1024) * 1024
        self.nbytes = self.computed + 2 * PANELS * TOGETHER * BOX

    def _fetch_panel(self, side: Side, map_: TensorMap, panel: V, k: V, full: V) -> None:
        if side is self.b:
            super()._fetch_panel(side, map_, panel, k, full)
            return
        start = self.t.cast("trunc", self.starts[side.dim], "i32")
        inner, outer = (k, start) if side.deep else (start, k)
        self._bring(self.names[map_], panel, map_.place(inner, outer, self.programs), full)

    # -- the warps that multiply --------------------------------------------------------------------------------------
    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        t, e = self.t, self.e
        panels = t.cell("i32")
        t.set(panels, i32(0))
        even = t.bin("and", self.steps, i32(-TOGETHER))
        with e.scope():
            self.places = self._positions()
            with t.for_(even, TOGETHER) as number:
                self._wait_for_turn(number)
                self._take(sums, ring, panels, number, TOGETHER)
                self.epilogue.bring(t.cmp("eq", number, i32(0)))
            with t.if_(t.cmp("ne", even, self.steps)):
                self._take(sums, ring, panels, even, 1)
        self._end_turn()
        self.epilogue.bring(t.cmp("slt", self.steps, i32(2)))
        self.epilogue.prefetch()
        self._asm(sums, "wgmma.wait_group.sync.aligned 0;", [])
        with t.if_(t.bin("and", self.lead, t.cmp("ne", self.steps, i32(0)))):
            self._release(t.get(self.before, "i32"))

    def _take(self, sums: Sums, ring: Ring, panels: V, number: V, count: int) -> None:
        """Compute panels of so many steps, from the given one on, and begin to multiply them."""
        t, before = self.t, self.before
        group = t.bin("mul", self.group, i32(BOX))
        start = t.bin("add", t.get(panels, "i32"), i32(self.computed))
        arrived = []
        for step in range(count):
            stage, here = self._arrived(ring)
            arrived.append((stage, here, t.bin("add", start, i32(2 * BOX * step))))
            self._advance(ring)
        for step, (_, here, offset) in enumerate(arrived):
            k = t.bin("mul", t.bin("add", t.bin("add", number, self.skipped), i32(step)), i32(STEP))
            self._compute_panel(here, t.bin("add", t.bin("add", self.base, offset), group), self.places, k)
        self._act("fence.proxy.async.shared::cta;")
        self._act("bar.sync $0, 128;", t.bin("add", self.group, i32(1)))
        for step, (stage, here, offset) in enumerate(arrived):
            left = memory.at(t, V("@shared", SHARED), t.cast("zext", offset, "i64"))
            self._add_products(sums, here, [(0, self.b.offsets[0])], waiting=1, left=left)
            first = t.cmp("ne", number, i32(0)) if step == 0 else V("true", "i1")
            with t.if_(t.bin("and", self.lead, first)):
                self._release(t.get(before, "i32"))
            t.set(before, stage)
        following = t.bin("add", t.get(panels, "i32"), i32(2 * BOX * TOGETHER))
        t.set(panels, t.select(t.cmp("eq", following, i32(2 * BOX * TOGETHER * PANELS)), i32(0), following))

    def _positions(self) -> list[V]:
        """The thread's positions along the large operand's dim, and what is known there."""
        t, e, side = self.t, self.e, self.a
        #: The thread's line of a step, along k or the other dim, and where its elements of it begin.
        self.line = t.bin("lshr", self.own, i32(1))
        self.half = t.bin("mul", t.bin("and", self.own, i32(1)), i32(MINE))
        first = t.bin("mul", self.group, i32(GROUP))
        first = t.bin("add", first, self.line if side.deep else self.half)
        extent, wide = self._extent(side.dim), t.cast("zext", first, "i64")
        found = []
        for i in range(1 if side.deep else MINE):
            position = t.bin("add", wide, i64(i)) if i else wide
            # Those past the end are the first one, and go nowhere.
            found.append(t.select(t.cmp("slt", position, extent), position, i64(0)))
            e.run([op for op in side.ops if op.result.type.extents == (side.dim,)], {side.dim: found[-1]})
        return found

    def _compute_panel(self, here: V, to: V, places: list[V], k: V) -> None:
        """Compute the thread's elements of a step, and store them as the tensor cores take them."""
        t, e, side, load = self.t, self.e, self.a, self.load
        assert load is not None
        depth = t.cast("trunc", e.integer(self.kernel.dims[self.k].size), "i32")
        row = t.bin("mul", self.group, i32(GROUP))
        if side.deep:
            at = t.bin("add", t.bin("mul", t.bin("add", row, self.line), i32(STEP)), self.half)
            turn = t.bin("and", t.bin("lshr", at, i32(7)), i32(3))
        else:
            at = t.bin("add", t.bin("mul", self.line, i32(ROW)), t.bin("add", row, self.half))
            turn = t.bin("and", self.line, i32(7))
        turned = t.bin("shl", turn, i32(4))
        line = t.bin("add", to, t.bin("mul", self.line, i32(ROW)))
        first = t.bin("add", k, self.half if side.deep else self.line)
        for piece in range(MINE // 16):
            start = t.bin("add", at, i32(16 * piece)) if piece else at
            place = memory.at(t, here, t.cast("zext", t.bin("xor", start, turned), "i64"))
            loaded = t.load(place, "<4 x i32>", 16)
            words = [t.op(f"extractelement {loaded}, i32 {n}", "i32") for n in range(4)]
            begin = t.bin("add", first, i32(16 * piece)) if side.deep and piece else first
            inside = t.cmp("slt", begin, depth)
            wide = t.cast("zext", begin, "i64")
            elements: list[Register] = []
            with e.scope():
                wheres: list[Where] = [
                    {self.k: t.bin("add", wide, i64(i)), side.dim: places[0]}
                    if side.deep
                    else {self.k: wide, side.dim: places[16 * piece + i]}
                    for i in range(16)
                ]
                define_bytes(e, load, words, wheres, side.ops)
                e.excess = True
                for where in wheres:
                    e.run(side.ops, where)
                    x = e(side.values[0], where)
                    assert isinstance(x, V)
                    elements.append(round_to(t, x, self.dtype))
                e.excess = False
                packed = [t.select(inside, w, i32(0)) for w in memory.pack(t, elements, self.dtype, "i32")]
            for half in range(2):
                chunk = t.bin("add", t.bin("lshr", self.half, i32(3)), i32(2 * piece + half))
                chunk = t.bin("xor", chunk, t.bin("and", self.line, i32(7)))
                place = t.bin("add", line, t.bin("shl", chunk, i32(4)))
                self._act("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", place, *packed[4 * half : 4 * half + 4])


class DequantisedParts(Dequantised, Parts):
    """The same for parts of k."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        if target.arch != "sm_90a" or kernel.attrs.get("parts", 1) == 1 or not Mma.suits(kernel, target):
            return False
        return _fits(DequantisedParts(kernel, target))


def _fits(made: Dequantised) -> bool:
    """Whether there is something to compute of the large operand, and both can be brought so."""
    load = made.load
    if made.block[0] != ROWS or not 16 <= made.block[1] <= COLUMNS or load is None or None in made.maps.values():
        return False
    if dtypes.SIZE[load.result.type.dtype] != 1 or load.attrs.get("bounded") or made.size != 2:
        return False
    others = [op for op in made.a.ops if op.name in ("load_view", "load_ptr") and op is not load]
    return (
        all(op.name == "load_view" and op.result.type.extents == (made.a.dim,) for op in others)
        and all(op.result.type.dtype not in dtypes.COMPLEX for op in made.a.ops)
        and made.facts.divides_extent(made.k, 16)
    )
