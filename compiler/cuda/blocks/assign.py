"""A layout for each tile of a kernel: one walk over its ops.

Values come in three kinds.  Most tiles have a *home*: loads, products and reductions choose theirs, and what is
computed from them follows.  A *flexible* tile (positions, constants, broadcasts and what is computed from such alone)
has none: it is computed in any layout that it is asked for.  An *open* one (what a loop carries, small tiles that are
loaded) gets its home from the first op that asks for it in a layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from ... import dtypes
from ...ir import Block, Kernel, Op, Type, Value
from ..target import Target
from . import dot, layout, streams
from .axes import Axes, constant, extents_of, is_elementwise
from .layout import Extents, Layout, Renamed, behind

#: Shape ops that any layout of a result can be had through.
SHAPES = frozenset(("broadcast", "trans", "reshape", "join", "cat"))
LOADS = frozenset(("load_ptr", "load_view"))
#: Ops that access a tile's elements in memory.
ACCESSES = frozenset(("load_ptr", "load_view", "store_ptr", "store_view", "atomic"))
#: Bytes of an access; of a sector of memory.
WIDEST, SECTOR = 16, 32


def accessed(op: Op) -> Extents:
    """The extents of the tile that a memory op accesses."""
    if op.name in LOADS:
        return extents_of(op.result)
    return extents_of(op.operands[pointer_of(op) + 1] if op.name != "store_view" else op.operands[0])


def pointer_of(op: Op) -> int:
    """Which of a memory op's operands is the pointer."""
    return next(k for k, v in enumerate(op.operands) if v.type.pointer)


def joining(op: Op) -> layout.Bit:
    """The bit of a position in the result of a `join` or `cat` that says which operand an element is from."""
    if op.name == "join":
        return len(op.result.type.extents) - 1, 0
    dim = op.attrs["dim"]
    return dim, layout.log2(int(op.operands[0].type.extents[dim]))


def how(op: Op) -> tuple[int, ...]:
    """A shape op's `dims` or `perm`."""
    return tuple(op.attrs.get("dims", op.attrs.get("perm", ())))


def through(op: Op, wanted: Layout, operand: int = 0, result: int = 0) -> Renamed:
    """What a shape op's operand is to be like for its result to have a layout."""
    given = extents_of(op.operands[operand])
    return behind(op.name, wanted, given, extents_of(op.results[result]), how(op))


def fetched(op: Op) -> Op:
    """The load that a copy ahead is made instead of, in its round."""
    *load, _, _ = op.operands
    return Op(op.attrs["load"], tuple(load), (Type(load[0].type.dtype, op.attrs["extents"]),), op.attrs)


def copying(op: Op, warps: int) -> Layout:
    """The layout in which a tile is copied to shared memory."""
    extents, inner = op.attrs["extents"], op.attrs["inner"]
    order = (inner, *(d for d in reversed(range(len(extents))) if d != inner))
    return layout.blocked(extents, warps, layout.log2(op.attrs["width"]), order)


@dataclass
class Assignment:
    """The homes of a kernel's tiles, and the layouts that ops work in which differ from their results'."""

    axes: Axes
    warps: int
    home: dict[Value, Layout] = field(default_factory=dict)
    works: dict[Op, Layout] = field(default_factory=dict)
    #: By stream: the home of what each thread copies ahead itself.
    own: dict[int, Layout] = field(default_factory=dict)


def assign(kernel: Kernel, warps: int, target: Target) -> Assignment:
    """The layouts of a kernel whose programs have 2**warps warps."""
    return _Walk(kernel, warps, target).found


class _Walk:
    def __init__(self, kernel: Kernel, warps: int, target: Target) -> None:
        self.target = target
        self.found = Assignment(Axes(kernel), warps)
        self.axes, self.warps, self.home = self.found.axes, warps, self.found.home
        self.threads = layout.LANES + warps
        self.open: dict[Value, None] = {}
        self.asked: set[tuple[Value, Layout]] = set()
        #: The layout that a tile of some extents got last.
        self.recent: dict[Extents, Layout] = {}
        memory = [op for op in kernel.walk() if op.name in ACCESSES]
        memory += [fetched(op) for op in kernel.walk() if op.name == "fetch" and op.attrs["own"]]
        self.chained = dot.chained(kernel)
        self.rank = max([len(accessed(op)) for op in memory], default=0)
        self.across: dict[Extents, set[int]] = {}
        for op in kernel.walk():
            if op.name in ("reduce", "argreduce", "reduce_by"):
                self.across.setdefault(extents_of(op.operands[0]), set()).update(op.attrs["dims"])
        #: Elements that one access may move, at most, of all tiles of the same extents that memory holds alike.
        self.vectors: dict[tuple[Extents, Extents], int] = {}
        for op in memory:
            if extents := accessed(op):
                order = self._order(op)
                width = min(self.width(op, order[0]), max(1, prod(extents) >> self.threads))
                self.vectors[extents, order] = max(self.vectors.get((extents, order), 1), width)
        self._block(kernel.body)
        while self.open:
            value = next(iter(self.open))
            self._ask(value, self._usual(extents_of(value)))

    # -- memory -------------------------------------------------------------------------------------------------------
    def _runs(self, op: Op) -> list[int]:
        """How many elements are consecutive in memory along each dim."""
        return [runs(self.axes, op, d) for d in range(len(accessed(op)))]

    def _order(self, op: Op) -> Extents:
        """The dims of what an op accesses, those along which memory is consecutive first."""
        found = self._runs(op)
        return tuple(sorted(range(len(found)), key=lambda d: (-found[d], -d)))

    def width(self, op: Op, dim: int) -> int:
        return width(self.axes, op, dim)

    def coalesced(self, op: Op) -> Layout:
        """The layout in which a warp accesses consecutive elements."""
        extents, order = accessed(op), self._order(op)
        vector = self.vectors[extents, order].bit_length() - 1
        return layout.blocked(extents, self.warps, vector, order, tuple(self.across.get(extents, ())))

    def _suits(self, op: Op, given: Layout) -> bool:
        """Whether a layout makes an op access whole sectors of memory, or as much of them as there is."""
        extents, dim = accessed(op), self._order(op)[0]
        if given == self.coalesced(op):
            return True
        count = given.run(dim).bit_length() - 1
        for bit in given.lanes:
            if bit != (dim, count):
                break
            count += 1
        run = min(runs(self.axes, op, dim), extents[dim])
        size = dtypes.SIZE[op.operands[pointer_of(op)].type.dtype]
        return min(run, 1 << count) * size >= min(SECTOR, run * size)

    # -- asking -------------------------------------------------------------------------------------------------------
    def _usual(self, extents: Extents) -> Layout:
        """A layout for a tile that nothing else gives one."""
        if extents not in self.recent:
            vector = min(2, max(0, sum(map(layout.log2, extents)) - self.threads))
            across = tuple(self.across.get(extents, ()))
            self.recent[extents] = layout.blocked(extents, self.warps, vector, None, across)
        return self.recent[extents]

    def _ask(self, value: Value, wanted: Layout) -> None:
        """Say that a tile is needed in a layout."""
        if value in self.home or not value.type.extents or (value, wanted) in self.asked:
            return
        if streams.is_staged(value) or streams.is_copied(value):
            return
        self.asked.add((value, wanted))
        if value in self.open:
            self._settle(value, wanted)
            return
        op = value.op
        assert op is not None, f"{value} has no layout"
        if is_elementwise(op):
            for v in op.operands:
                self._ask(v, wanted)
        elif op.name in SHAPES:
            for k, v in enumerate(op.operands):
                self._ask(v, through(op, wanted, k).layout)

    def _settle(self, value: Value, chosen: Layout) -> None:
        """Give an open tile its home."""
        del self.open[value]
        self.home[value] = chosen
        self.recent[extents_of(value)] = chosen
        if value.op is not None and value.op.name in LOADS:
            self._ask_all(value.op, chosen)

    def _ask_all(self, op: Op, wanted: Layout) -> None:
        """Ask for all tiles that an op works on, of one layout."""
        for v in op.operands:
            if v.type.extents:
                self._ask(v, wanted)

    def _give(self, value: Value, chosen: Layout) -> None:
        self.home[value] = chosen
        self.recent[extents_of(value)] = chosen

    def _work(self, op: Op, value: Value) -> Layout:
        """The layout in which an op takes an operand: its home, or a usual one."""
        found = self.home.get(value)
        if found is None:
            found = self._usual(extents_of(value))
            self._ask(value, found)
        self.found.works[op] = found
        return found

    # -- the walk -----------------------------------------------------------------------------------------------------
    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        match op.name:
            case "load_ptr" | "load_view":
                self._load(op)
            case "store_ptr" | "store_view" | "atomic":
                self._effect(op)
            case "stage" | "staged":
                pass
            case "read":
                self.open[op.result] = None
            case "own":
                self._give(op.result, self.found.own[op.attrs["stream"]])
            case "fetch":
                if op.attrs["own"] and op.attrs["stream"] not in self.found.own:
                    self.found.own[op.attrs["stream"]] = self.coalesced(fetched(op))
                self._ask_all(op, self.found.own[op.attrs["stream"]] if op.attrs["own"] else copying(op, self.warps))
            case "dot":
                self._dot(op)
            case "reduce" | "argreduce" | "reduce_by":
                self._across(op, op.attrs["dims"])
            case "scan" | "scan_by" | "sort" | "flip" | "gather" | "histogram" | "split" | "joined":
                self._whole(op)
            case "inline_asm":
                self._inline(op)
            case "for":
                self._for(op)
            case "while":
                self._while(op)
            case "if":
                self._if(op)
            case "check" if op.operands[0].type.extents:
                self._ask_all(op, self._work(op, op.operands[0]))
            case "print":
                for v in op.operands:
                    if v.type.extents and v not in self.home:
                        self._ask(v, self._usual(extents_of(v)))
            case name if name in SHAPES and name != "broadcast":
                self._shape(op)
            case _ if is_elementwise(op) and op.result.type.extents:
                homes = [self.home[v] for v in op.operands if v in self.home]
                if homes:
                    self._give(op.result, max(homes, key=homes.count))
                    self._ask_all(op, self.home[op.result])
            case _:
                pass

    def _load(self, op: Op) -> None:
        extents = extents_of(op.result)
        if not extents:
            return
        if len(extents) < self.rank:
            # Its reader knows better, and many threads may read the same.
            self.open[op.result] = None
            return
        self._give(op.result, self.coalesced(op))
        self._ask_all(op, self.home[op.result])

    def _effect(self, op: Op) -> None:
        if not accessed(op):
            return
        homes = [self.home[v] for v in op.operands if v in self.home and extents_of(v) == accessed(op)]
        chosen = next((h for h in homes if self._suits(op, h)), None) or self.coalesced(op)
        self.found.works[op] = chosen
        self._ask_all(op, chosen)
        for v in op.results:
            self._give(v, chosen)

    def _dot(self, op: Op) -> None:
        acc, operands = dot.layouts(self, op)
        self._give(op.result, acc)
        for v, wanted in zip(op.operands, operands):
            self._ask(v, self.home.get(v, self._usual(extents_of(v))) if wanted is None else wanted)

    def _across(self, op: Op, dims: Sequence[int]) -> None:
        found = self._work(op, op.operands[0])
        self._ask_all(op, found)
        for v in op.results:
            if v.type.extents:
                self._give(v, found.without(dims))

    def _whole(self, op: Op) -> None:
        """Ops that say themselves what they do with an operand in its home, or in a usual one."""
        x = op.operands[0]
        match op.name:
            case "scan" | "scan_by" | "flip" | "sort" | "joined":
                found = self._work(op, x)
                self._ask_all(op, found)
                for v in op.results:
                    self._give(v, found)
            case "split":
                found = self._work(op, x)
                last = (len(x.type.extents) - 1, 0)
                if last not in found.regs:
                    found = _to_registers(found, last)
                    self.found.works[op] = found
                given, extents = extents_of(x), extents_of(op.results[0])
                for v in op.results:
                    if v.type.extents:
                        self._give(v, layout.ahead("split", found, given, extents, ()))
            case "gather":
                self._work(op, x)
                index = op.operands[1]
                wanted = self.home.get(index) or self._usual(extents_of(index))
                self._ask(index, wanted)
                self._give(op.result, wanted)
            case _:
                self._work(op, x)
                for v in op.operands[1:]:
                    self._ask(v, self.home.get(v) or self._usual(extents_of(v)))
                self._give(op.result, self._usual(extents_of(op.result)))

    def _inline(self, op: Op) -> None:
        if op.results[0].type.extents:
            tiles = [v for v in op.operands if v.type.extents]
            found = self._work(op, next((v for v in tiles if v in self.home), tiles[0]))
            self._ask_all(op, found)
            for v in op.results:
                self._give(v, found)

    def _shape(self, op: Op) -> None:
        homes = {v: self.home[v] for v in op.operands if v in self.home}
        if homes and op.result.type.extents:
            v, given = next(iter(homes.items()))
            self._give(op.result, layout.ahead(op.name, given, extents_of(v), extents_of(op.result), how(op)))
            for k, v in enumerate(op.operands):
                self._ask(v, through(op, self.home[op.result], k).layout)

    # -- regions ------------------------------------------------------------------------------------------------------
    def _tiles(self, values: Sequence[Value]) -> Iterator[tuple[int, Value]]:
        return ((k, v) for k, v in enumerate(values) if v.type.extents)

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        for _, v in self._tiles(body.args):
            self.open[v] = None
        self._block(body)
        self._carry(body.args[1:], op.operands[3:], body.ops[-1].operands)
        for k, v in self._tiles(op.results):
            self._give(v, self.home[body.args[1 + k]])

    def _carry(self, args: Sequence[Value], inits: Sequence[Value], nexts: Sequence[Value]) -> None:
        """Give what a loop carries its home, if nothing has: that of what comes next, or of the start."""
        for k, arg in self._tiles(args):
            if arg in self.open:
                chosen = self.home.get(nexts[k]) or self.home.get(inits[k])
                self._ask(arg, chosen or self._usual(extents_of(arg)))
            for v in (inits[k], nexts[k]):
                self._ask(v, self.home[arg])

    def _while(self, op: Op) -> None:
        first, second = op.regions
        for _, v in self._tiles(first.args):
            self.open[v] = None
        self._block(first)
        passed = first.ops[-1].operands[1:]
        for _, v in self._tiles(second.args):
            self.open[v] = None
        self._block(second)
        self._carry(first.args, op.operands, second.ops[-1].operands)
        for k, v in self._tiles(second.args):
            if v in self.open:
                self._ask(v, self.home.get(passed[k]) or self._usual(extents_of(v)))
            self._ask(passed[k], self.home[v])
            self._give(op.results[k], self.home[v])

    def _if(self, op: Op) -> None:
        for region in op.regions:
            self._block(region)
        yields = [region.ops[-1].operands for region in op.regions]
        for k, v in self._tiles(op.results):
            homes = [self.home[y[k]] for y in yields if y[k] in self.home]
            chosen = homes[0] if homes else self._usual(extents_of(v))
            self._give(v, chosen)
            for y in yields:
                self._ask(y[k], chosen)


def _to_registers(given: Layout, bit: layout.Bit) -> Layout:
    """A layout with a thread's bit among those of its registers; threads that differed in it hold the same."""
    lanes, warps = (tuple([None if b == bit else b for b in bits]) for bits in (given.lanes, given.warps))
    return Layout((*given.regs, bit), lanes, warps)


# -- what memory holds together ---------------------------------------------------------------------------------------
def runs(axes: Axes, op: Op, dim: int) -> int:
    """Elements that are consecutive in memory along a dim of what an op accesses."""
    pointer = pointer_of(op)
    if op.name.endswith("_view"):
        extents = accessed(op)
        return extents[dim] if constant(op.operands[pointer + 2 + dim]) == 1 else 1
    return axes[op.operands[pointer + 1]][dim].run


def width(axes: Axes, op: Op, dim: int) -> int:
    """Elements along a dim that one access can move: consecutive, aligned, and all masked or none."""
    pointer = pointer_of(op)
    dtype = op.operands[pointer].type.dtype
    size = dtypes.SIZE[dtype]
    run = runs(axes, op, dim)
    address = axes.address(op.operands[pointer])
    if op.name.endswith("_view"):
        rank = len(accessed(op))
        offset, strides = op.operands[pointer + 1], op.operands[pointer + 2 : pointer + 2 + rank]
        multiple = axes[offset][0].multiple
        for d, s in enumerate(strides):
            if d != dim and int(accessed(op)[d]) > 1:
                multiple = min(multiple, axes[s][0].multiple)
        if op.attrs.get("bounded"):
            run = min(run, axes[op.operands[pointer + 2 + rank + dim]][0].multiple)
    else:
        multiple = axes[op.operands[pointer + 1]][dim].multiple
        if len(op.operands) > pointer + 2 and op.operands[pointer + 2].type.extents:
            run = min(run, axes[op.operands[pointer + 2]][dim].same)
    found = min(run, max(1, WIDEST // size), max(1, multiple), max(1, address // size))
    return found if found * size <= WIDEST else 1
