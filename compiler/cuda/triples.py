"""The schedule of products of f32 on Hopper's tensor cores, which multiply bf16; see gemm.py.

Each operand, times 2**16, lies in memory in three parts of bf16, each scaled by 2**8 more than the one before, that add
up to it: so the parts of the smallest numbers have all their digits.  Of the nine products of parts six count: those of
a step of k are added up from the smallest to the largest, scaled down between, and then added to the tile's sums.
Tensor cores truncate as they add, which in so short a run does no harm.  The largest products have sums of their own,
so that there are two rounds of waiting in a step, not three.

A tile of which a sum is infinite or a NaN is computed once more in ordinary arithmetic, from the operands themselves:
so infinities and NaNs come out as they do there, and so do sums and elements that are too large to be scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import ir
from ..llvm.text import V
from . import memory, tensor_maps
from .hopper import Hopper
from .memory import SHARED, i32, i64
from .panels import Side
from .pipeline import Ring
from .simt import Simt, Sums
from .target import Target
from .tensor_maps import TensorMap
from .wgmma import ROWS

#: Products of parts that are of one size, smallest first.
PRODUCTS = (((2, 0), (0, 2), (1, 1)), ((1, 0), (0, 1)), ((0, 0),))
#: The scale of a part relative to the one before, and that of the first one.
SCALE, RAISED = 2.0**-8, 2.0**16
COUNT = 3
#: Groups of products that may be under way: more than there are.
BEGUN = 7
#: Bytes between the barriers of the panels that are needed to a step's end and of the smallest parts, which are not.
EARLY = 64


class Triples(Hopper):
    """Generates the code of one kernel."""

    #: What is computed in ordinary arithmetic has its panels where finished tiles are.
    boxes, spare = 2, 32 << 10

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        roots = [op for op in kernel.body.ops if op.name == "dot" and op.result.type.dtype == "f32"]
        if target.arch != "sm_90a" or not roots or None in map(triple, roots[0].operands[:2]):
            return False
        made = Triples(kernel, target)
        return made.block in ((ROWS, 64), (ROWS, 128)) and None not in made.maps.values()

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        self.maps = {}
        for name, side in (("a", self.a), ("b", self.b)):
            box = (self.depth, side.extent if side.deep else self.depth)
            for k, op in enumerate(_parts(side)):
                self.maps[f"{name}{k}"] = tensor_maps.find(kernel, self.facts, op, box)

    def _multiplied(self) -> str:
        return "bf16"

    def _access(self, side: Side) -> None:
        side.deep = self.facts.width(_parts(side)[0], self.k) > 0

    def _place_panels(self) -> None:
        sizes = [self._nbytes(side) for side in (self.a, self.b)]
        self.a.offsets = tuple(k * sizes[0] for k in range(COUNT))
        self.b.offsets = tuple(COUNT * sizes[0] + k * sizes[1] for k in range(COUNT))
        self.panels = COUNT * sum(sizes)

    def _bunches(self) -> dict[int, list[tuple[Side, TensorMap, int]]]:
        (panels,) = super()._bunches().values()
        early = panels[COUNT - 1 :: COUNT]
        return {EARLY: early, 0: [p for p in panels if p not in early]}

    def _take_steps(self, sums: Sums, ring: Ring) -> None:
        t = self.t
        scale = t.const(SCALE, "float")
        small, large = self._sums(), self._sums()
        both = [[*x, *y] for x, y in zip(small, large, strict=True)]
        pairs = [[(self.a.offsets[i], self.b.offsets[j]) for i, j in group] for group in PRODUCTS]
        with t.for_(self.steps) as number:
            stage, here = self._arrived(ring)
            _, parity = self._present(ring)
            self._wait(self._barrier(self.full + EARLY, stage), parity)
            self.epilogue.bring(t.cmp("eq", number, i32(0)))
            self._add_products(small, here, pairs[0], waiting=BEGUN, fresh=True)
            self._add_products(large, here, pairs[2], waiting=BEGUN, fresh=True)
            self._asm(both, "wgmma.wait_group.sync.aligned 0;", [])
            with t.if_(self.lead):
                self._arrive(self._barrier(self.empty + EARLY, stage))
            for cell in _cells(small):
                t.set(cell, t.bin("fmul", t.get(cell, "float"), scale))
            self._add_products(small, here, pairs[1], waiting=BEGUN)
            # While the last ones are under way:
            for total, cell in zip(_cells(sums), _cells(large), strict=True):
                t.set(total, t.bin("fadd", t.get(total, "float"), t.get(cell, "float")))
            self._asm(small, "wgmma.wait_group.sync.aligned 0;", [])
            with t.if_(self.lead):
                self._release(stage)
            for total, cell in zip(_cells(sums), _cells(small), strict=True):
                t.set(total, t.fma(t.get(cell, "float"), scale, t.get(total, "float")))
            self._advance(ring)
        for cell in _cells(sums):
            t.set(cell, t.bin("fmul", t.get(cell, "float"), t.const(RAISED**-2, "float")))
        self.epilogue.prefetch()

    def _leave(self, sums: Sums) -> None:
        with self.t.if_(self._overflows(sums)):
            self.epilogue.clear()
            Plain(self).compute(sums)
            self._act("fence.proxy.async.shared::cta;")
            self.epilogue.bring(V("true", "i1"))
        super()._leave(sums)

    def _overflows(self, sums: Sums) -> V:
        """Whether a sum of the group's threads is infinite or a NaN."""
        t = self.t
        zero = t.const(0.0, "float")
        # A product by zero is a NaN of what is not.
        found = [zero] * 4
        for k, cell in enumerate(_cells(sums)):
            found[k % 4] = t.fma(t.get(cell, "float"), zero, found[k % 4])
        total = t.bin("fadd", t.bin("fadd", *found[:2]), t.bin("fadd", *found[2:]))
        text = "{ .reg .pred p, q; setp.ne.u32 p, $1, 0; bar.red.or.pred q, $2, 128, p; selp.u32 $0, 1, 0, q; }"
        mine = t.cast("zext", t.cmp("uno", total, zero), "i32")
        group = t.bin("add", self.group, i32(1))
        call = f'call i32 asm sideeffect "{text}", "=r,r,r,~{{memory}}"({mine}, {group}) convergent nounwind'
        return t.cmp("ne", t.op(call, "i32"), i32(0))


class Plain(Simt):
    """Computes the sums of four warps in ordinary arithmetic."""

    #: It is rarely needed, and compiled with every product.
    unrolled = 64

    def __init__(self, gemm: Triples) -> None:
        super().__init__(gemm.kernel, gemm.target)
        self.gemm = gemm
        self.t, self.e = gemm.t, gemm.e

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (64, 64), (8, 4)

    def _step(self) -> int:
        return 16

    def _sides(self) -> tuple[list[str], tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]]:
        dims, sides = super()._sides()
        a, b = (found.whole for (x,) in sides if (found := triple(x)))
        return dims, ((a,), (b,))

    def _copies(self) -> bool:
        return False

    def _synchronize(self) -> None:
        self.gemm._act("bar.sync $0, 128;", self.t.bin("add", self.gemm.group, i32(1)))

    def buffer(self, number: V) -> V:
        t = self.t
        turn = t.bin("mul", t.bin("urem", number, i64(self.stages)), i64(self.panels))
        return memory.at(t, self.start, turn)

    def compute(self, sums: Sums) -> None:
        """Compute what is to be in a group's sums."""
        t, gemm = self.t, self.gemm
        self.sums = sums
        self.tid = gemm.own
        self.panels = 0
        for side in (self.a, self.b):
            side.offsets = (self.panels,)
            self.panels += self._panel(side) * 4
        group = t.cast("zext", gemm.group, "i64")
        behind = t.bin("add", t.bin("mul", group, i64(self.stages * self.panels)), i64(gemm.staging))
        self.start = memory.at(t, V("@shared", SHARED), behind)
        self._threads()
        for side in (self.a, self.b):
            self._units(side)
        row = t.bin("shl", group, i64(6))
        extents = [gemm._extent(d) for d in (self.m, self.n)]
        self._synchronize()
        with t.for_(i64(gemm.columns), self.columns) as column:
            self._tile_at([row, column], extents)
            self._synchronize()

    def _finish(self, sums: Sums, origin: Sequence[V], extents: Sequence[V]) -> None:
        """Give sums to the threads that have them in tensor cores, by way of shared memory."""
        t, gemm = self.t, self.gemm
        place = lambda row, column: t.bin("add", t.bin("mul", row, i32(4 * self.columns)), t.bin("shl", column, i32(2)))
        self._synchronize()
        mine = memory.at(t, self.start, place(self.down, self.across))
        for i, row in enumerate(sums):
            for j, (cell,) in enumerate(row):
                beyond = 4 * (self._offset(i, 0) * self.columns + self._offset(j, 1))
                t.store(t.get(cell, "float"), memory.at(t, mine, beyond), 4)
        self._synchronize()
        theirs = memory.at(t, self.start, place(t.bin("sub", gemm.down, t.bin("shl", gemm.group, i32(6))), gemm.across))
        for first in range(0, gemm.columns, self.columns):
            with t.if_(t.cmp("eq", origin[1], i64(first))):
                for i, row in enumerate(self.sums):
                    for j in range(self.columns // 4):
                        beyond = 4 * (gemm._offset(i, 0) * self.columns + gemm._offset(j, 1))
                        (cell,) = row[first // 4 + j]
                        t.set(cell, t.load(memory.at(t, theirs, beyond), "float", 4))


def _cells(sums: Sums) -> list[V]:
    return [cell for row in sums for (cell,) in row]


class Triple(NamedTuple):
    """An operand: the loads of its parts, largest first, and all of it, for where these are not finite."""

    parts: list[ir.Op]
    whole: ir.Value


def triple(value: ir.Value) -> Triple | None:
    """How an operand is made of parts; None if it is not."""
    match _made(value):
        case "where", (condition, scaled, whole):
            pass
        case _:
            return None
    if _made(condition) != ("isfinite", (scaled,)):
        return None
    parts: list[ir.Op] = []
    rest = _multiplied(scaled, 1 / RAISED)
    while rest is not None and len(parts) < COUNT - 1:
        match _made(rest):
            case "add", (part, smaller):
                parts += _load(part)
                rest = _multiplied(smaller, SCALE)
            case _:
                return None
    if rest is None:
        return None
    parts += _load(rest)
    return Triple(parts, whole) if len(parts) == COUNT else None


def _parts(side: Side) -> list[ir.Op]:
    found = triple(side.values[0])
    assert found is not None
    return found.parts


def _made(value: ir.Value) -> tuple[str, tuple[ir.Value, ...]]:
    return (value.op.name, value.op.operands) if value.op is not None else ("", ())


def _multiplied(value: ir.Value, factor: float) -> ir.Value | None:
    """What a factor multiplies to give a value."""
    match _made(value):
        case "multiply", (x, y):
            _, spread = _made(y)
            op = (spread[0] if spread else y).op
            return x if op is not None and op.name == "const" and op.attrs["value"] == factor else None
    return None


def _load(value: ir.Value) -> list[ir.Op]:
    """The load of a bf16 that a value is."""
    match _made(value):
        case "cast", (x,) if x.type.dtype == "bf16" and x.op is not None and x.op.name == "load_view":
            return [x.op]
    return []
