"""Copies ahead: loads in loops go past the registers to shared memory, rounds earlier.

They are those whose tiles are multiplied, and all in loops without products that say `num_stages`.  `ahead` makes
such a load the effect `fetch` of a later round's tile, with copies of the scalar ops that say where that lies, and a
`staged` tile of the present round, in one of as many slots as there are stages; `read` brings one to registers that
other ops take, too.  A loop begins a round with `await`, and so all threads are done with the slot that is filled next.

Where nothing is multiplied, each thread copies what it takes itself (`own`): it waits for nobody, and a slot is filled
again in the round that takes its tile to registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import BOOL, EFFECTS, I64, Block, Kernel, Op, Type, Value, written
from ...llvm.convert import Register
from ...llvm.convert import constant as constant_of
from ...llvm.text import V
from ...passes.dce import dce
from ...passes.rewrite import Rewriter
from .. import memory
from ..codegen import Code
from ..memory import at, both, i32
from ..target import Target
from . import assign, layout, mma, streams, wgmma
from .axes import Axes, constant, extents_of
from .layout import Layout
from .memory import Access
from .mma import Places, Stored
from .panel import ALIGNMENT, Panel
from .streams import is_copied
from .wgmma import Factor

if TYPE_CHECKING:
    from .codegen import Codegen

#: Stages, unless the kernel says so.
STAGES = 3
#: Bytes of a copy, and how it goes: past the nearest cache, if it can.
COPIES = {4: "ca", 8: "ca", 16: "cg"}
#: Ops that may be computed twice, beside those that are elementwise.
_PURE = assign.SHAPES | {"const", "iota", "program_id", "int_to_ptr"}
#: Bytes of a copy from which on it is no slower than a load to registers.
NARROWEST = 8
#: Schedulers of a processor, among which its warps are divided.
SCHEDULERS = 4
#: Bytes of a round's tiles up to which more programs on a processor do better than warps of their own.
SHORT = 12 << 10
#: Version of PTX that can ignore what is copied.
IGNORING = 75
COPYING = frozenset(("begin", "fetch", "commit", "await", "end"))
#: Ops with which a loop has no loads ahead that each thread makes alone: others may tell it by them to go on.
_APART = frozenset(("dot", "atomic", "barrier", "inline_asm", "while"))
_I32 = Type("i32")


# -- finding them -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stream:
    """A load that is made ahead: of how many elements at once, along the dim `inner`."""

    op: Op
    inner: int
    width: int
    #: Whether of each so many all or none are loaded.
    whole: bool
    #: Whether products add up along its rows; None: other ops take it.
    deep: bool | None
    #: Whether each thread takes what it has copied itself.
    own: bool = False


class Finder:
    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.axes, self.target = Axes(kernel), target
        self.warps = layout.log2(int(kernel.attrs.get("num_warps", 4)))
        self.uses = kernel.uses()
        self.written = written(kernel)
        self.rank = max([len(assign.accessed(op)) for op in kernel.walk() if op.name in assign.ACCESSES], default=0)

    def streams(self, loop: Op) -> list[Stream]:
        """The loads of a loop's rounds that can be made ahead."""
        if (constant(loop.operands[2]) or 1) < 0 or any(op.name in ("for", "while") for op in loop.regions[0].ops):
            return []
        loads = [op for op in loop.regions[0].ops if op.name in assign.LOADS and op.result.type.extents]
        alone = loop.attrs.get("num_stages") and _APART.isdisjoint({op.name for op in _inside(loop)})
        found = [s for op in loads if (s := self.alone(op) if alone else self._stream(op)) is not None]
        wide = [s for s in found if not s.own or s.width * dtypes.SIZE[s.op.result.type.dtype] >= NARROWEST]
        return [s for s in wide if self._steps(loop, s) is not None]

    def _steps(self, loop: Op, stream: Stream) -> tuple[list[Op], list[int]] | None:
        found = steps(loop, stream.op.operands)
        loads = [op for op in found[0] if op.name == "load_ptr"] if found is not None else []
        if stream.own and found is not None and any(loop.regions[0].args[1 + k].type.extents for k in found[1]):
            return None  # Positions of a later round, too, would take many registers.
        return None if any(op.operands[0] in self.written for op in loads) else found

    def _stream(self, op: Op) -> Stream | None:
        rank, dtype = len(op.result.type.extents), op.result.type.dtype
        if rank < 2 or op.operands[0] in self.written or op.attrs.get("other", 0) or op.attrs.get("volatile"):
            return None
        # Of a row's last piece a part may be copied, if bounds say so.
        bare = op if op.name == "load_ptr" else Op("load_view", op.operands[: 2 + rank], (op.result.type,))
        along = [(assign.width(self.axes, bare, d), assign.runs(self.axes, bare, d), d) for d in range(rank)]
        width, _, inner = max(along)
        if inner < rank - 2 or width * dtypes.SIZE[dtype] not in COPIES:
            return None
        found = self._readers(op.result, inner)
        deep = found[0] if found and (dtypes.SIZE[dtype] > 1 or all(found)) else None
        if deep is None and not self._multiplied(op.result):
            return None
        return Stream(op, inner, width, assign.width(self.axes, op, inner) >= width, deep)

    def alone(self, op: Op) -> Stream | None:
        """A load whose tile nothing multiplies."""
        extents, dtype = extents_of(op.result), op.result.type.dtype
        pointer = op.operands[0]
        if len(extents) < self.rank or pointer in self.written or op.attrs.get("volatile"):
            return None
        if any(p.op is not None for p in {pointer, *self.written} if p.type.pointer):
            return None  # What is stored may lie where an address leads.
        inner = max(range(len(extents)), key=lambda d: (assign.runs(self.axes, op, d), d))
        width = min(assign.width(self.axes, op, inner), prod(extents) >> layout.LANES + self.warps)
        if width * dtypes.SIZE[dtype] not in COPIES:
            return None
        return Stream(op, inner, width, whole=True, deep=None, own=True)

    def _readers(self, value: Value, inner: int) -> list[bool] | None:
        """Of each product that a tile is an operand of, whether it adds up along a dim; None if it has other uses."""
        found: list[bool] = []
        for op in self.uses.get(value, ()):
            match op.name:
                case "trans":
                    more = self._readers(op.result, op.attrs["perm"].index(inner))
                case "dot" if value not in op.operands[2:]:
                    rank = len(value.type.extents)
                    if not self._takes(op, value):
                        return None
                    more = [inner == rank - 1 - k for k, v in enumerate(op.operands[:2]) if v is value]
                case _:
                    return None
            if more is None:
                return None
            found += more
        return found

    def _takes(self, op: Op, value: Value) -> bool:
        """Whether a product's instructions take a tile as it lies in a slot."""
        if not wgmma.takes(op, self.warps, self.target):
            kinds = mma.multiplied(op, self.target)
            return kinds is not None and value.type.dtype in kinds
        large = dtypes.SIZE[value.type.dtype] * prod(extents_of(value)) >= ALIGNMENT
        return large and min(extents_of(value)) >= 32 // dtypes.SIZE[value.type.dtype]

    def shares(self, loop: Op) -> bool:
        """Whether a loop has products whose instructions read shared memory."""
        return any(op.name == "dot" and wgmma.takes(op, self.warps, self.target) for op in loop.regions[0].ops)

    def _multiplied(self, value: Value) -> bool:
        """Whether something made of a tile, element by element, is multiplied."""
        for op in self.uses.get(value, ()):
            if op.name == "dot":
                tensor = wgmma.takes(op, self.warps, self.target) or mma.multiplied(op, self.target)
                if value not in op.operands[2:] and tensor:
                    return True
            elif (assign.is_elementwise(op) or op.name in assign.SHAPES) and self._multiplied(op.result):
                return True
        return False


def _reduction(body: Block, load: Op) -> Op:
    """The first reduction behind a load; the load itself, if there is none."""
    rest = body.ops[body.ops.index(load) :]
    return next((op for op in rest if op.name == "reduce"), load)


def _inside(op: Op) -> Iterator[Op]:
    for region in op.regions:
        for inner in region.ops:
            yield inner
            yield from _inside(inner)


def steps(loop: Op, wanted: Sequence[Value]) -> tuple[list[Op], list[int]] | None:
    """The ops of a loop's body that values are made by, and which carried ones they need; None if they need more."""
    (body,) = loop.regions
    inside = {v for op in body.ops for v in op.results}
    needed, carried = set[Op](), set[int]()
    work = list(wanted)
    while work:
        v = work.pop()
        if v in body.args[1:]:
            k = body.args.index(v) - 1
            if k not in carried:
                carried.add(k)
                work.append(body.ops[-1].operands[k])
        elif v in inside and v.op is not None and v.op not in needed:
            scalar = v.op.name == "load_ptr" and not v.type.extents and not v.op.attrs.get("volatile")
            if not assign.is_elementwise(v.op) and v.op.name not in _PURE and not scalar:
                return None
            needed.add(v.op)
            work += v.op.operands
    return [op for op in body.ops if op in needed], sorted(carried)


# -- the kernel that copies ahead -------------------------------------------------------------------------------------
def ahead(kernel: Kernel, target: Target, most: int | None = None) -> Kernel | None:
    """The kernel with copies ahead, in `most` stages at most; None if there are none."""
    if not target.async_copy:
        return None
    made = _Ahead(kernel, target, most)
    found = made.kernel(kernel)
    return dce(found, EFFECTS | COPYING) if made.count else None


class _Ahead(Rewriter):
    def __init__(self, kernel: Kernel, target: Target, most: int | None) -> None:
        super().__init__()
        self.finder, self.most = Finder(kernel, target), most
        self.stages = int(kernel.attrs.get("num_stages", STAGES))
        self.count = 0
        #: By load: its stream, the stream's number, and the stages.
        self.loads: dict[Op, tuple[Stream, int, int]] = {}
        #: By op: what is copied behind it, to slots from which tiles have been taken by then.
        self.behind: dict[Op, list[Op]] = {}
        self.slot: Value | None = None

    def op(self, op: Op) -> None:
        if op in self.loads and self.slot is not None:
            stream, number, stages = self.loads[op]
            attrs = attributes(stream, number, stages)
            if stream.own:
                self.replace(op, (self._emit("own", (self.slot,), op.result.type, **attrs),))
                return
            tile = self._emit("staged", (self.slot,), op.result.type, **attrs)
            self.replace(op, (tile if stream.deep is not None else self._emit("read", (tile,), tile.type),))
            return
        if op.name == "for":
            stages = int(op.attrs.get("num_stages") or self.stages)
            stages = stages if self.most is None else min(stages, self.most)
            if stages > 1 and (streams := self.finder.streams(op)):
                self._loop(op, streams, self._fitting(streams, stages))
                return
        super().op(op)

    def _fitting(self, streams: list[Stream], stages: int) -> int:
        """Stages with which a processor has room for as many programs as have a warp for each of its schedulers."""
        if not streams[0].own:
            return stages
        room = self.finder.target.shared // max(1, SCHEDULERS >> self.finder.warps)
        return min(stages, 1 + max(1, room // sum(_nbytes(s.op) for s in streams)))

    def _emit(self, name: str, operands: Sequence[Value], type: Type | None, **attrs: object) -> Value:
        made = Op(name, tuple(operands), () if type is None else (type,), attrs)
        self.out.append(made)
        return made.result if type is not None else operands[0]

    def _const(self, value: int, like: Value | None = None) -> Value:
        return self._emit("const", (), _I32 if like is None else like.type, value=value)

    def _loop(self, loop: Op, streams: list[Stream], stages: int) -> None:
        (body,) = loop.regions
        loads = {s.op: (s, self.count + k, stages) for k, s in enumerate(streams)}
        self.count += len(streams)
        self.loads.update(loads)
        found = steps(loop, [v for s in streams for v in s.op.operands])
        assert found is not None
        needed, carried = found
        lower, upper, step, *inits = self.operands(loop)
        state = [inits[k] for k in carried]
        own = all(s.own for s in streams)
        self._emit("begin", (step,), None)
        for round in range(stages - 1):
            index, inside = self._later(lower, upper, step, round)
            state, fetches = self._fetch(loop, needed, carried, index, state, self._const(round), inside, streams)
            self.out += fetches
        # The body, with more that it carries.
        args = tuple([Value(a.type, None, a.name) for a in body.args])
        states, slot = [Value(v.type) for v in state], Value(_I32)
        zero, one = self._const(0), self._const(1)
        outer, self.out = self.out, []
        self.replaced.update(zip(body.args, args, strict=True))
        self._emit("await", (step,), None, pending=stages - 2, proxy=self.finder.shares(loop), own=own)
        last, free = self._const(stages - 1 - own), slot
        if not own:
            first, before = self._emit("equal", (slot, zero), BOOL), self._emit("subtract", (slot, one), _I32)
            free = self._emit("where", (first, last, before), _I32)
        index, inside = self._later(args[0], upper, step, stages - 1)
        nexts, fetches = self._fetch(loop, needed, carried, index, states, free, inside, streams)
        # Copies that wait for loads of where they begin come last.
        waits = any(op.name == "load_ptr" for op in needed)
        if own and not waits:
            *copies, commit = fetches
            # Where a program has a processor for itself, behind what it stores; else while warps wait for each other.
            alone = 2 * (stages - 1) * sum(_nbytes(s.op) for s in streams) > self.finder.target.shared
            for s, copy in zip(streams, copies, strict=True):
                anchor = body.ops[-2] if alone else _reduction(body, s.op)
                self.behind.setdefault(anchor, []).append(copy)
            waits, fetches = True, [commit]
        self.out += () if waits else fetches
        around, self.slot = self.slot, slot
        for op in body.ops[:-1]:
            self.op(op)
            self.out += self.behind.pop(op, ())
        self.slot = around
        self.out += fetches if waits else ()
        at_end = self._emit("equal", (slot, last), BOOL)
        after = self._emit("where", (at_end, zero, self._emit("add", (slot, one), _I32)), _I32)
        self.out.append(Op("yield", (*self.operands(body.ops[-1]), *nexts, after), ()))
        made, self.out = Block((*args, *states, slot), self.out), outer
        operands = (lower, upper, step, *inits, *state, zero)
        types = tuple([v.type for v in operands[3:]])
        new = Op("for", operands, types, loop.attrs, (made,), loop.line)
        self.out.append(new)
        self.replace(loop, new.results[: len(loop.results)])
        self._emit("end", (step,), None, own=own)

    def _later(self, index: Value, upper: Value, step: Value, rounds: int) -> tuple[Value, Value]:
        """The index of a round that comes so many later, and whether it does: in bits that the difference fits in."""
        away = self._emit("multiply", (step, self._const(rounds, step)), step.type)
        later = self._emit("add", (index, away), step.type)
        index, upper, step = (self._emit("cast", (v,), I64) for v in (index, upper, step))
        away = self._emit("multiply", (step, self._const(rounds, step)), I64)
        return later, self._emit("less", (away, self._emit("subtract", (upper, index), I64)), BOOL)

    def _fetch(
        self, loop: Op, needed: list[Op], carried: list[int], index: Value, state: list[Value], slot: Value,
        inside: Value, streams: list[Stream],
    ) -> tuple[list[Value], list[Op]]:  # fmt: skip
        """Copies of the tiles of a round, and what it carries to the next one."""
        (body,) = loop.regions
        names = {body.args[0]: index, **{body.args[1 + k]: v for k, v in zip(carried, state, strict=True)}}
        again = _Again({**self.replaced, **names}, inside)
        for op in needed:
            again.op(op)
        self.out += again.out
        made: list[Op] = []
        for s in streams:
            _, number, stages = self.loads[s.op]
            attrs = attributes(s, number, stages) | {"load": s.op.name, "extents": extents_of(s.op.result)}
            made.append(Op("fetch", (*again.operands(s.op), slot, inside), (), s.op.attrs | attrs, (), s.op.line))
        made.append(Op("commit", (slot,), ()))
        return [again.replaced.get(v, v) for k in carried for v in (body.ops[-1].operands[k],)], made


class _Again(Rewriter):
    """Copies ops, with other operands; scalars are loaded where a round is inside the loop."""

    def __init__(self, replaced: dict[Value, Value], inside: Value) -> None:
        super().__init__()
        self.replaced, self.inside = replaced, inside

    def rebuilt(self, op: Op) -> Op:
        operands, mask = self.operands(op), self.inside
        if op.name == "load_ptr":
            if len(operands) > 2:
                both = Op("logical_and", (operands[2], mask), (BOOL,))
                self.out.append(both)
                mask = both.result
            operands = (*operands[:2], mask)
        made = Op(op.name, operands, tuple([v.type for v in op.results]), op.attrs, (), op.line)
        self.replace(op, made.results)
        return made


def attributes(stream: Stream, number: int, stages: int) -> dict[str, object]:
    return {
        "stream": number, "stages": stages, "slots": stages - stream.own, "inner": stream.inner,
        "width": stream.width, "whole": stream.whole, "deep": stream.deep, "own": stream.own,
    }  # fmt: skip


# -- their code -------------------------------------------------------------------------------------------------------
class Ahead:
    """The tiles that a kernel copies ahead, as its code is written."""

    def __init__(self, code: Codegen) -> None:
        self.code = code
        #: What was lent before each loop that is being written.
        self.lent: list[int] = []
        #: Where each stream's slots are.
        self.slots: dict[int, V] = {}
        #: By tile: where it is, and the dim along which its rows lie there.
        self.tiles: dict[Value, Stored] = {}
        self.inner: dict[Value, int] = {}

    def _places(self, op: Op, extents: tuple[int, ...], dtype: str) -> Places:
        turn = 0 if op.attrs["deep"] is None else mma.turned(dtype, op.attrs["deep"])
        return mma.places(extents, dtypes.SIZE[dtype], op.attrs["inner"], turn)

    def _slot(self, op: Op, slot: Value, bits: Places, dtype: str) -> Stored:
        nbytes, number = dtypes.SIZE[dtype] << len(bits), op.attrs["stream"]
        if number not in self.slots:
            self.slots[number] = self.code.lend(nbytes * op.attrs["slots"])
        return Stored(self.code, self._in(number, slot, nbytes), bits)

    def _in(self, number: int, slot: Value, nbytes: int, further: V | None = None) -> V:
        """Where a slot of a stream is, of so many bytes each, or a place in it."""
        t = self.code.t
        offset = t.bin("mul", self.code.integer(slot), i32(nbytes))
        if further is not None:
            offset = t.bin("add", offset, further)
        return at(t, self.slots[number], t.cast("zext", offset, "i64"))

    def _owned(self, op: Op, slot: Value, given: Layout, dtype: str) -> list[tuple[V, int]]:
        """Where each of a thread's own vectors is in a slot: those of neighbours side by side."""
        code, number = self.code, op.attrs["stream"]
        vector = op.attrs["width"] * dtypes.SIZE[dtype]
        count = given.registers // op.attrs["width"]
        nbytes = vector * code.threads * count
        if number not in self.slots:
            self.slots[number] = code.lend(nbytes * op.attrs["slots"])
        first = self._in(number, slot, nbytes, code.t.bin("mul", code.thread, i32(vector)))
        return [(first, k * vector * code.threads) for k in range(count)]

    def own(self, op: Op) -> None:
        """What a thread has copied, in registers."""
        code, given, dtype = self.code, self.code.layout_of(op.result), op.result.type.dtype
        places = self._owned(op, op.operands[0], given, dtype)
        found: dict[int, Register] = {}
        for group, (ptr, away) in zip(given.groups(op.attrs["inner"], op.attrs["width"]), places, strict=True):
            # A parked tile is read again where it is needed again.
            hint = memory.VOLATILE if op.attrs.get("parked") else ""
            words = memory.load_words(code.t, ptr, dtype, len(group), None, away, hint)
            found.update(zip(group, memory.unpack(code.t, words, dtype, len(group)), strict=True))
        code.define(op.result, [found[r] for r in range(given.registers)])

    def staged(self, op: Op) -> None:
        dtype = op.result.type.dtype
        self.tiles[op.result] = self._slot(op, op.operands[0], self._places(op, extents_of(op.result), dtype), dtype)
        self.inner[op.result] = op.attrs["inner"]

    def stored(self, value: Value) -> tuple[Stored, int] | None:
        """Where a tile is, and the dim along which its rows lie there; None if it was not copied ahead."""
        if not is_copied(value):
            return None
        op = value.op
        assert op is not None
        if op.name == "staged":
            return self.tiles[value], self.inner[value]
        found = self.stored(op.operands[0])
        assert found is not None
        perm = op.attrs["perm"]
        bits = {(perm.index(d), b): place for (d, b), place in found[0].bits.items()}
        return Stored(self.code, found[0].base, bits), perm.index(found[1])

    def read(self, op: Op) -> None:
        """A staged tile in registers."""
        code, value = self.code, op.result
        staged = op.operands[0]
        assert staged.op is not None
        found = self.tiles[staged].take(code.layout_of(value), value.type.dtype, staged.op.attrs["inner"])
        code.define(value, found)

    def factor(self, value: Value, depth: int) -> Factor:
        """A tile as Hopper's tensor cores take it; `depth` is the dim along which products are summed."""
        stored, inner = self.tiles[value], self.inner[value]
        extents = extents_of(value)
        panel = Panel(extents[1 - inner], extents[inner], dtypes.SIZE[value.type.dtype])
        where = self.code.t.op(f"ptrtoint {stored.base} to i32", "i32")
        return Factor(panel, where, inner == depth, None)

    def fetch(self, op: Op) -> None:
        code, t = self.code, self.code.t
        *_, slot, inside = op.operands
        load = assign.fetched(op)
        inner, width, dtype, own = op.attrs["inner"], op.attrs["width"], load.result.type.dtype, op.attrs["own"]
        size = dtypes.SIZE[dtype]
        given = code.assigned.own[op.attrs["stream"]] if own else assign.copying(op, code.warps)
        access = Access(code, load, given)
        access.groups = given.groups(inner, width)
        if own:
            places = self._owned(op, slot, given, dtype)
        else:
            stored = self._slot(op, slot, self._places(op, op.attrs["extents"], dtype), dtype)
            firsts = [stored.place(given.regs, first) for first, *_ in access.groups]
            places = [stored.pointer(given.threads, first) for first in firsts]
        there, writer = code.integer(inside), None if own else code.writer(given)
        copies: list[tuple[V, int, V, int, V, V]] = []
        outside: list[tuple[V, int, V]] = []
        counts = self._counts(access, inner, width, op.attrs["whole"])
        for place, (ptr, beyond), (mask, count) in zip(places, access.addresses(), counts, strict=True):
            outside += [] if mask is None else [(*place, mask)]
            mask = there if mask is None else t.bin("and", there, mask)
            copies.append((*place, ptr, beyond, mask, count))
        other, zero = (constant_of(t, x, dtype) for x in (op.attrs.get("other", 0), 0))
        fills = str(other) != str(zero)  # Which -0.0 is not.
        after = t.new_label("copied")
        if writer is not None:
            some = t.new_label("copies")
            t.br_if(writer, some, after)
            t.label(some)
        for copy in copies:
            if fills:
                self._copy_some(width * size, *copy[:5])
            else:
                self._copy(width * size, size, op.attrs["whole"], *copy)
        if fills and outside:
            self._fill([other] * width, dtype, outside)
        if writer is not None:
            t.br(after)
            t.label(after)

    def _copy_some(self, nbytes: int, to: V, further: int, ptr: V, beyond: int, mask: V) -> None:
        """Copy some elements, if the mask says so."""
        text = f"@$2 cp.async.{COPIES[nbytes]}.shared.global [$0+{further}], [$1+{beyond}], {nbytes};"
        self.code.t.line(f'call void asm sideeffect "{text}", "l,l,b,~{{memory}}"({to}, {ptr}, {mask})')

    def _fill(self, values: list[Register], dtype: str, places: list[tuple[V, int, V]]) -> None:
        """Put down what is at places whose masks are not set."""
        t = self.code.t
        some, after, whole = t.new_label("fill"), t.new_label("filled"), V("true", "i1")
        for *_, mask in places:
            whole = t.bin("and", whole, mask)
        t.br_if(whole, after, some)
        t.label(some)
        for to, further, mask in places:
            memory.store(t, values, to, dtype, t.bin("xor", mask, V("true", "i1")), further)
        t.br(after)
        t.label(after)

    def _copy(
        self, nbytes: int, size: int, whole: bool, to: V, further: int, ptr: V, beyond: int, mask: V, count: V
    ) -> None:
        """Copy some elements, if the mask says so, and make the others zero."""
        t, how = self.code.t, COPIES[nbytes]
        if whole and self.code.target.ptx >= IGNORING:
            text = f"cp.async.{how}.shared.global [$0+{further}], [$1+{beyond}], {nbytes}, $2;"
            ignored = t.bin("xor", mask, V("true", "i1"))
            t.line(f'call void asm sideeffect "{text}", "l,l,b,~{{memory}}"({to}, {ptr}, {ignored})')
            return
        some = t.select(mask, t.bin("mul", count, i32(size)), i32(0))
        name = f"llvm.nvvm.cp.async.{how}.shared.global.{nbytes}.s"
        t.call(name, "void", [at(t, to, further), at(t, ptr, beyond), some], "nounwind")

    def _counts(self, access: Access, inner: int, width: int, whole: bool) -> Iterator[tuple[V | None, V]]:
        """Whether each group is copied, and how many of its elements are: all, or those within a view's bounds."""
        code, t, rank = self.code, self.code.t, len(access.extents)
        if access.op.name == "load_ptr" or not access.op.attrs.get("bounded"):
            mask = access.rest[1] if access.op.name == "load_ptr" and len(access.rest) > 1 else None
            yield from ((m, i32(width)) for m in access.masks(mask))
            return
        bounds = access.rest[1 + rank :]
        room = [t.bin("sub", code.saturated(b), code.first(access.layout, d)) for d, b in enumerate(bounds)]
        for first, *_ in access.groups:
            mask, count = None, i32(width)
            for d, left in enumerate(room):
                away = i32(access.away(first, d))
                if d == inner and not whole:
                    count = t.call("llvm.smin.i32", "i32", [t.bin("sub", left, away), count])
                    count = t.call("llvm.smax.i32", "i32", [count, i32(0)])
                else:
                    mask = both(t, mask, t.cmp("slt", away, left))
            yield mask, count

    def commit(self, op: Op) -> None:
        self.code.t.call("llvm.nvvm.cp.async.commit.group", "void", [], "nounwind")

    def begin(self, op: Op) -> None:
        """Before a loop: nobody reads what will be written."""
        self.lent.append(self.code.lent)
        self.code.synchronize()

    def wait(self, op: Op) -> None:
        """Wait for the present round's copies."""
        t = self.code.t
        if op.attrs.get("fence"):
            # Or else ptxas may issue loads to registers behind it.
            t.line('call void asm sideeffect "fence.acq_rel.cta;", "~{memory}"() nounwind')
        t.call("llvm.nvvm.cp.async.wait.group", "void", [i32(op.attrs["pending"])], "nounwind")
        if op.attrs["proxy"]:
            # Tensor cores read memory themselves.
            t.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"() convergent nounwind')
        if not op.attrs["own"]:
            self.code.synchronize()

    def end(self, op: Op) -> None:
        """Behind a loop: all is there, and has been read."""
        self.code.t.call("llvm.nvvm.cp.async.wait.all", "void", [], "nounwind")
        if not op.attrs["own"]:
            self.code.synchronize()
        self.code.lent = self.lent.pop()


def prefers(kernel: Kernel, target: Target) -> bool:
    """Whether to copy ahead rather than to have warps for it: rounds are short, or none has all its tiles brought."""
    parts = streams.split(kernel)
    brought = {s.op for s in parts.streams} if parts is not None else set()
    finder = Finder(kernel, target)
    rounds = [op for op in kernel.walk() if op.name == "for"]
    loops = [{s.op for s in finder.streams(op) if not s.own} for op in rounds]
    loops = [tiles for tiles in loops if tiles]
    if not any(tiles <= brought for tiles in loops):
        return bool(loops)
    copied = set[Op]().union(*loops)
    inside = {op for loop in rounds for op in loop.regions[0].ops}
    short = all(sum(map(_nbytes, tiles)) <= SHORT for tiles in loops)
    return short and brought & inside <= copied


def _nbytes(op: Op) -> int:
    return prod(extents_of(op.result)) * dtypes.SIZE[op.result.type.dtype]


def generate(kernel: Kernel, target: Target) -> Code | None:
    """The kernel's code with copies ahead, in as many stages as there is room for; None if it has none."""
    from .codegen import Codegen, OutOfResources

    most = None
    while most is None or most > 1:
        made = ahead(kernel, target, most)
        if made is None:
            return None
        try:
            return Codegen(made, target).generate()
        except OutOfResources:
            most = max([op.attrs["stages"] for op in made.walk() if op.name == "fetch"]) - 1
    return None
