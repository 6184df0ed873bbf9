"""Products on Hopper's tensor cores: four warps multiply 64 rows, and go on while the products are under way.

The first operand comes from registers or from shared memory, the second from shared memory: from a stage that other
warps filled (see specialised.py), or from where the program's own threads put it.  Sums stay in registers; what reads
them waits.  A loop that only adds products to what it carries waits for those of the round before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Block, Op, Value
from ...llvm.convert import Register
from ...llvm.text import V
from .. import memory
from ..memory import SHARED, i32, i64, parts
from ..mma import NAMES
from ..target import Target
from . import layout
from .axes import extents_of
from .layout import Bit, Layout
from .panel import DEPTH, PIECE, Panel
from .streams import is_copied, is_staged, suits

if TYPE_CHECKING:
    from .codegen import Codegen
    from .specialised import Specialised

#: Bits of a warp's number within a group, and rows of one instruction.
GROUP_BITS, ROWS = 2, 64
#: Columns of one instruction.
COLUMNS = 256
#: Instructions' names of the types of sums, and the registers that these are in.
WIDE = {"f32": "f32", "i32": "s32"}
REGISTERS = {"f32": "float", "i32": "i32"}


def takes(op: Op, warps: int, target: Target) -> bool:
    """Whether a product is one for these instructions, by 2**warps warps."""
    if target.arch != "sm_90a" or warps < GROUP_BITS or not suits(op):
        return False
    m, n = extents_of(op.result)
    return n >> max(0, warps - GROUP_BITS - (layout.log2(m) - 6)) >= 8


def rows_of(extents: Sequence[int], warps: int) -> Layout:
    """The layout of sums, and of first operands: rows by warps, columns by lanes and registers.

    Groups of warps that are too many for the rows share the columns of sums; of a first operand, they hold the same.
    """
    m, n = (layout.log2(e) for e in extents)
    more = max(0, warps - GROUP_BITS)
    down = min(more, m - 6)
    own: list[Bit | None] = [(0, 4), (0, 5), *((0, 6 + k) for k in range(down))]
    across = more - down
    own += [(1, n - across + k) for k in range(across)]
    regs = [(1, 0), (0, 3), *((1, b) for b in range(3, n - across)), *((0, b) for b in range(6 + down, m))]
    return Layout(tuple(regs), ((1, 1), (1, 2), (0, 0), (0, 1), (0, 2)), tuple(own))


def first_of(value: Value, sums: Layout) -> Layout:
    """The layout of a first operand in registers, beside sums of one: words of 32 bits along the columns."""
    m, k = (layout.log2(e) for e in extents_of(value))
    own = tuple([b if b is not None and b[0] == 0 else None for b in sums.warps])
    held = {b for b in own if b is not None}
    low = 2 - layout.log2(dtypes.SIZE[value.type.dtype])
    rows = ((0, b) for b in range(6, m) if (0, b) not in held)
    regs = [*((1, b) for b in range(low)), (0, 3), *((1, b) for b in range(low + 2, k)), *rows]
    return Layout(tuple(regs), ((1, low), (1, low + 1), *sums.lanes[2:]), own)


@dataclass
class Staged:
    """A tile in shared memory: where it lies (unknown until somebody waits for it), and who reads it last."""

    number: int
    block: Block
    at: V | None = None
    #: Products that read it, in order, if all stand in its own block.
    readers: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class Factor:
    """A product's operand in shared memory."""

    panel: Panel
    at: V
    #: Whether its rows lie along the depth.
    deep: bool
    stage: Staged | None


class Products:
    """The products of one kernel, as their code is written."""

    def __init__(self, code: Codegen) -> None:
        self.code = code
        #: Sums in registers of products that may be under way, and words that these read.
        self.flight: dict[Value, None] = {}
        self.words: list[V] = []
        #: Stages whose last readers may be under way.
        self.used: list[Staged] = []
        self.stages: dict[Value, Staged] = {}
        #: Products whose sums a loop carries to its next round, by what it carries; of those the ones that only add.
        self.late: dict[Value, Op] = {}
        self.chains: set[Op] = set()
        #: By loop whose groups of warps take turns, its two products: a turn is the second, and the next first one.
        self.turns: dict[Op, tuple[Op, Op]] = {}
        #: Variables for words that late products read.
        self.cells: dict[Op, list[V]] = {}
        self.reading: list[V] = []
        #: Streams of which a loop's last round may still hold a stage.
        self.owing: dict[int, None] = {}
        self._find()

    def _find(self) -> None:
        uses: dict[Value, int] = {}
        for op in self.code.kernel.walk():
            for v in op.operands:
                uses[v] = uses.get(v, 0) + 1
        for loop in self.code.kernel.walk():
            if loop.name != "for":
                continue
            (body,) = loop.regions
            late: list[Op] = []
            for arg, v in zip(body.args[1:], body.ops[-1].operands, strict=True):
                op = v.op
                if op is None or op.name != "dot" or op not in body.ops or uses.get(v) != 1:
                    continue
                if not takes(op, self.code.warps, self.code.target) or not is_staged(op.operands[1]):
                    continue
                self.late[arg] = op
                late.append(op)
                if op.operands[2:] == (arg,) and uses.get(arg) == 1 and is_staged(op.operands[0]):
                    self.chains.add(op)
            dots = [op for op in body.ops if op.name == "dot"]
            if len(dots) == 2 and late == dots[1:] and not is_staged(dots[1].operands[0]):
                self.turns[loop] = dots[0], dots[1]

    # -- waiting ------------------------------------------------------------------------------------------------------
    def ready(self, value: Value) -> None:
        """Wait for a product's sums, if they may be under way."""
        if value in self.flight:
            self.settle()

    def settle(self) -> None:
        """Wait for all products, and give back the stages that they read."""
        code = self.code
        if not self.flight and not self.used and not self.owing:
            return
        values = list(self.flight)
        held = [v for value in values for reg in code.tiles[value] for v in parts(reg)]
        words = [*self.words, *(code.t.op(f"load i32, {cell}", "i32") for cell in self.reading)]
        found = _asm(code, "wgmma.wait_group.sync.aligned 0;", [*held, *words], [])
        for value in values:
            count = len(code.tiles[value])
            code.define(value, list(found[:count]))
            found = found[count:]
        self.flight.clear()
        self.words, self.reading = [], []
        for number in self.owing:
            self._specialised().give_back(number, always=False)
        self.owing.clear()
        for stage in self.used:
            self._specialised().give_back(stage.number, always=True)
        self.used = []

    def _specialised(self) -> Specialised:
        from .specialised import Specialised

        assert isinstance(self.code, Specialised)
        return self.code

    # -- loops --------------------------------------------------------------------------------------------------------
    def before(self, op: Op) -> None:
        """In front of a region."""
        self.settle()
        if op in self.turns and (special := self._takes_turns()) is not None:
            special.take_turn()

    def after(self, op: Op) -> None:
        """Behind a region."""
        if op.name == "for":
            for v, arg in zip(op.results, op.regions[0].args[1:], strict=True):
                if arg in self.late:
                    self._carry(v, self.late[arg])
        if op in self.turns and (special := self._takes_turns()) is not None:
            special.end_turn()

    def _takes_turns(self) -> Specialised | None:
        """The code, if its groups of warps take turns."""
        from .specialised import Specialised

        code = self.code
        # Where blocks share a processor, those of one need not wait for each other.
        return code if isinstance(code, Specialised) and (code.groups, code.blocks) == (2, 1) else None

    def begin_round(self, op: Op) -> None:
        """At the beginning of a loop's body: products of the round before may be under way."""
        for arg in op.regions[0].args[1:]:
            if arg in self.late:
                self._carry(arg, self.late[arg])

    def _carry(self, value: Value, op: Op) -> None:
        """Let a value be sums of a late product of a round before."""
        self.flight[value] = None
        self.owing.update(dict.fromkeys(self._streams(op)))
        self.reading += self.cells.get(op, ()) or self._cells(op)

    def _cells(self, op: Op) -> list[V]:
        """Variables for the words of a late product whose first operand is in registers."""
        if is_staged(op.operands[0]):
            return []
        count = first_of(op.operands[0], self.code.layout_of(op.result)).registers
        count = count * dtypes.SIZE[op.operands[0].type.dtype] // 4
        self.cells[op] = [self._specialised().t.cell("i32") for _ in range(count)]
        return self.cells[op]

    def end_round(self, op: Op) -> None:
        """At the end of the body."""
        sums = {self.late[arg].result for arg in op.regions[0].args[1:] if arg in self.late}
        if self.used or self.words or not self.flight.keys() <= sums:
            self.settle()
        self.flight.clear()
        self.reading = []

    def _streams(self, op: Op) -> list[int]:
        found = [_source(v)[0] for v in op.operands[:2]]
        return [v.op.attrs["stream"] for v in found if v.op is not None and v.op.name == "stage"]

    # -- stages -------------------------------------------------------------------------------------------------------
    def stage(self, op: Op, block: Block) -> None:
        """A tile of a stream comes into sight."""
        readers = [o for o in block.ops if o.name == "dot" and op.result in map(_only_source, o.operands[:2])]
        every = [
            o for o in self.code.kernel.walk() if o.name == "dot" and op.result in map(_only_source, o.operands[:2])
        ]
        found = self.stages[op.result] = Staged(op.attrs["stream"], block)
        if len(readers) == len(every):
            found.readers = readers
        else:
            found.at = self._specialised().acquire(found.number)

    def end_block(self, block: Block) -> None:
        """Give back what a block's end leaves without readers."""
        left = [s for s in self.stages.values() if s.block is block and not s.readers]
        if left:
            self.settle()
            for stage in left:
                if stage.at is None:
                    self._specialised().acquire(stage.number)
                self._specialised().give_back(stage.number, always=True)

    # -- a product ----------------------------------------------------------------------------------------------------
    def emit(self, op: Op) -> None:
        code = self.code
        sums = code.layout_of(op.result)
        chain, late = op in self.chains, op in self.late.values()
        if late and not chain and self.owing:
            self.settle()
        first, second = op.operands[:2]
        words: list[list[V]] = []
        a = self._staged_factor(first, 1)
        if a is None:
            words = self._words(first, first_of(first, sums))
        start: list[Register] | None = None
        if len(op.operands) > 2:
            acc = op.operands[2]
            if acc in self.flight and not chain:
                self.settle()
            start = code.tile(acc, sums) if acc not in self.flight else code.tiles[acc]
            self.flight.pop(acc, None)
        b = self._staged_factor(second, 0) or self._own_factor(second)
        turning = self._takes_turns()
        if turning is not None and any(op is second for _, second in self.turns.values()):
            turning.take_turn()
        found = self._begin(op, sums, a, words, b, start)
        if turning is not None and any(op is first for first, _ in self.turns.values()):
            turning.end_turn()
        code.define(op.result, found)
        self.flight[op.result] = None
        stages = [f.stage for f in (a, b) if f is not None and f.stage is not None]
        last = [s for s in stages if s.readers and s.readers[-1] is op]
        if chain:
            _asm(code, "wgmma.wait_group.sync.aligned 1;", [], [])
            special = self._specialised()
            for stage in last:
                special.give_back(stage.number, always=False)
                special.owe(stage.number)
                self.owing[stage.number] = None
            return
        flat = [w for step in words for w in step]
        if late and b.stage is not None:
            special = self._specialised()
            for cell, word in zip(self.cells.get(op, ()), flat, strict=True):
                special.t.set(cell, word)
            self.reading += self.cells.get(op, ())
            for stage in last:
                special.owe(stage.number)
                self.owing[stage.number] = None
            return
        self.words += flat
        self.used += last
        if b.stage is None:
            self.settle()
            code.exchange_end()

    def _staged_factor(self, value: Value, depth: int) -> Factor | None:
        """An operand in a stage; `depth` is the dim along which products are summed."""
        source, turned = _source(value)
        if is_copied(source):
            return self.code.ahead.factor(source, depth ^ turned)
        stage = self.stages.get(source)
        if stage is None:
            return None
        special = self._specialised()
        if stage.at is None:
            stage.at = special.acquire(stage.number)
        stream = special.streams[stage.number]
        return Factor(stream.panel, stage.at, stream.inner == depth ^ turned, stage)

    def _own_factor(self, value: Value) -> Factor:
        """Put an operand where the tensor cores take it from."""
        code, t = self.code, self.code.t
        k, n = extents_of(value)
        dtype = value.type.dtype
        size = dtypes.SIZE[dtype]
        # Only elements of 16 bits may lie across the depth.
        deep = size != 2
        panel = Panel(n, k, size) if deep else Panel(k, n, size)
        vector = min(layout.log2(PIECE // size), layout.log2(panel.columns))
        held = layout.blocked((k, n), code.warps, vector, (0, 1) if deep else (1, 0))
        tile = code.tile(value, held)
        writer = code.writer(held)
        along, across = (1, 0) if deep else (0, 1)
        row, column = code.first(held, along), code.first(held, across)
        # At the beginning of that memory, which is where a panel may begin.
        code.exchanged = None
        base = t.op(f"ptrtoint {code.exchange(panel.nbytes)} to i32", "i32")
        run = 1 << vector
        for r in range(0, held.registers, run):
            down = t.bin("add", row, i32(held.offset(r, along)))
            place = panel.placed(t, down, t.bin("add", column, i32(held.offset(r, across))))
            ptr = t.op(f"inttoptr {t.bin('add', base, place)} to {SHARED}", SHARED)
            memory.store(t, tile[r : r + run], ptr, dtype, writer)
        t.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"() convergent nounwind')
        code.barrier()
        return Factor(panel, base, deep, None)

    def _words(self, value: Value, wanted: Layout) -> list[list[V]]:
        """An operand in registers, as words of two elements: for each 64 rows, those of all steps of depth."""
        code = self.code
        tile = code.tile(value, wanted)
        packed = memory.pack(code.t, tile, value.type.dtype, "i32")
        each = 4 * (extents_of(value)[1] * dtypes.SIZE[value.type.dtype] // DEPTH)
        return [packed[k : k + each] for k in range(0, len(packed), each)]

    def _begin(
        self, op: Op, sums: Layout, a: Factor | None, words: list[list[V]], b: Factor, start: list[Register] | None
    ) -> list[Register]:
        """Begin the products; the registers in which the sums will be."""
        code, t = self.code, self.code.t
        depth = extents_of(op.operands[0])[1]
        dtype = op.operands[0].type.dtype
        size, wide = dtypes.SIZE[dtype], op.result.type.dtype
        kinds = [WIDE[wide], *(NAMES[v.type.dtype] for v in op.operands[:2])]
        columns = 8 << sum(1 for d, b in sums.regs if d == 1 and b >= 3)
        rows = [sum(1 << b for i, (d, b) in enumerate(sums.regs) if d == 0 and b >= 6 and r >> i & 1)
                for r in range(0, sums.registers, columns // 2)]  # fmt: skip
        group = t.bin("lshr", code.thread, i32(layout.LANES + GROUP_BITS))
        down = [k for k, bit in enumerate(sums.warps[GROUP_BITS:]) if bit is not None and bit[0] == 0]
        across = [k for k, bit in enumerate(sums.warps[GROUP_BITS:]) if bit is not None and bit[0] == 1]
        at_b = self._descriptor(b, t.bin("lshr", group, i32(len(down))) if across else None, columns)
        at_a = None
        if a is not None:
            part = t.bin("and", group, i32((1 << len(down)) - 1)) if down else None
            at_a = self._descriptor(a, part, ROWS)
        steps = depth * size // DEPTH
        found: list[Register] = []
        each = columns // 2
        for number, row in enumerate(rows):
            own = [parts(v)[0] for v in start[number * each : (number + 1) * each]] if start else []
            lines = ["wgmma.fence.sync.aligned;"]
            # A sum's registers come first, then the words or the descriptor of the first operand, then the second's.
            first = each + len(own)
            count = len(words[number]) if a is None else 1
            for step in range(steps):
                for column in range(0, columns, COLUMNS):
                    width = min(columns, COLUMNS)
                    away = b.panel.step(step, b.deep) + (b.panel.lines(column, b.deep) if column else 0)
                    lines.append(f"add.s64 b, ${first + count}, {away};")
                    registers = ", ".join(f"${k}" for k in range(column // 2, (column + width) // 2))
                    if a is None:
                        source = "{" + ", ".join(f"${first + 4 * step + k}" for k in range(4)) + "}"
                        turns = [b]
                    else:
                        away = a.panel.step(step, a.deep) + (a.panel.lines(row, a.deep) if row else 0)
                        lines.append(f"add.s64 a, ${first}, {away};")
                        source, turns = "a", [a, b]
                    # Integers have no signs to change, and only elements of 16 bits can be turned.
                    how = "" if wide == "i32" else ", 1, 1"
                    how += "".join(f", {int(not x.deep)}" for x in turns) if size == 2 else ""
                    lines.append(
                        f"wgmma.mma_async.sync.aligned.m64n{width}k{DEPTH // size}.{'.'.join(kinds)} {{{registers}}}, "
                        f"{source}, b, {'p' if own or step else 'q'}{how};"
                    )
            if number == len(rows) - 1:
                lines.append("wgmma.commit_group.sync.aligned;")
            text = f"{{ .reg .pred p, q; .reg .b64 a, b; setp.eq.u32 p, 0, 0; setp.ne.u32 q, 0, 0; {' '.join(lines)} }}"
            operands = [*(words[number] if a is None else [at_a]), at_b]
            found += _asm(code, text, own, [v for v in operands if v is not None], each, REGISTERS[wide])
        return found

    def _descriptor(self, factor: Factor, part: V | None, lines: int) -> V:
        """That of an operand, or of a group's `lines` of it."""
        t = self.code.t
        place = t.bin("lshr", t.bin("and", factor.at, i32(0x3FFFF)), i32(4))
        if part is not None:
            place = t.bin("add", place, t.bin("mul", part, i32(factor.panel.lines(lines, factor.deep))))
        return t.bin("or", t.cast("zext", place, "i64"), i64(_signed(factor.panel.descriptor(factor.deep))))


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def _source(value: Value) -> tuple[Value, bool]:
    """The tile that a chain of transposes turns, and whether it is turned in the end."""
    turned = False
    while value.op is not None and value.op.name == "trans":
        turned = not turned
        (value,) = value.op.operands
    return value, turned


def _only_source(value: Value) -> Value:
    return _source(value)[0]


def _asm(
    code: Codegen, text: str, held: Sequence[V], operands: Sequence[V], count: int | None = None, ty: str = "float"
) -> list[V]:
    """Instructions on registers that they leave in their places (`held`), or make (`count` of them)."""
    t = code.t
    types = [v.ty for v in held] if held or count is None else [ty] * count
    letters = {"i32": "r", "i64": "l", "float": "f"}
    constraints = ",".join([
        *(f"={letters[ty]}" for ty in types), *(str(k) for k in range(len(held))),
        *(letters[v.ty] for v in operands), "~{memory}",
    ])  # fmt: skip
    args = ", ".join(map(str, [*held, *operands]))
    if not types:
        t.line(f'call void asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind')
        return []
    whole = "{" + ", ".join(types) + "}" if len(types) > 1 else types[0]
    found = t.op(f'call {whole} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', whole)
    if len(types) == 1:
        return [found]
    return [t.op(f"extractvalue {found}, {k}", one) for k, one in enumerate(types)]
