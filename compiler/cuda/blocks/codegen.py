"""One kernel of blocks -> LLVM IR for NVPTX.

A tile is a list of LLVM values, one for each register of a thread, as its layout says (see layout.py).  Tiles with a
home (see assign.py) are emitted where they are defined; flexible ones register by register, when something asks for
them, but where they are defined: in front of the loops and branches that have been entered since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import dtypes
from ...ir import Block, Kernel, Op, Value
from ...llvm import math
from ...llvm.convert import Register, constant, convert, from_memory, memory_type, to_memory
from ...llvm.text import Text, V
from ..codegen import Code
from ..memory import GLOBAL, SHARED, at, i32, i64, join, parts, rounding, select
from ..target import Target
from . import fast, layout, wgmma
from .affine import Affine, uniform
from .ahead import Ahead
from .assign import LOADS, SHAPES, assign, is_elementwise, joining, through
from .branches import light
from .convert import convert as move
from .handlers import HANDLERS
from .layout import Layout, pieces
from .once import once
from .panel import ALIGNMENT, ROW

#: Warps of a program, unless the kernel says so.
WARPS = 4
Tile = list[Register]
_PREDICATES = {"less": "slt", "less_equal": "sle", "greater": "sgt", "greater_equal": "sge"}
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


class OutOfResources(RuntimeError):
    """A kernel's blocks need more of a processor than there is: smaller tiles, or fewer stages, may do."""


class _Rounds:
    """The exchanges of a loop's rounds.

    Two or more need no barrier for the next round: that of each is behind the reads of the one before.
    """

    __slots__ = ("again", "count", "mark", "synchronized")

    def __init__(self) -> None:
        self.count = 0
        #: Whether some place may have been used by two exchanges.
        self.again = False
        #: Whether each round begins with a barrier.
        self.synchronized = False
        #: The line that stands where the first one begins.
        self.mark = f"; {id(self)}"


class _Region:
    """A region being written, and the code that goes in front of the one inside it."""

    __slots__ = ("lines", "block")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = ""


def generate(kernel: Kernel, target: Target) -> Code:
    """The code of a kernel whose tiles have integer extents."""
    return Codegen(light(once(kernel)), target).generate()


class Codegen:
    #: Programs of a launch up to which what is queued behind it may begin as soon as there is room: with more, it would
    #: begin no earlier by much, and to say so takes a processor as long as a small program.
    FEW = 1024
    #: Bytes of shared memory for exchanges without a barrier between.
    EXCHANGES = 16 << 10
    #: Bytes of an exchange that takes place where slots of loops were, if there is room.
    LARGE = 2 << 10
    #: Whether there may be more shared memory that is kept.
    growing = True
    #: Bytes of a tile that does not go through shared memory at once, if it can be cut.
    WHOLE = 64 << 10

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.num_warps = int(kernel.attrs.get("num_warps", WARPS))
        self.warps = layout.log2(self.num_warps)
        self.threads = 32 << self.warps
        self.assigned = assign(kernel, self.warps, target)
        self.home, self.works, self.axes = self.assigned.home, self.assigned.works, self.assigned.axes
        self.affine = Affine(self.assigned)
        self.scalars = layout.scalar(self.warps)
        self.t = Text()
        self.t.rounding = rounding(self.t, target)
        #: Tiles with a home (scalars, too), and what was made of values where they are defined.
        self.tiles: dict[Value, Tile] = {}
        self.made: dict[Any, Any] = {}
        #: The regions that are open, and the one that is being written to; where each value is defined.
        self.regions = [_Region()]
        self.level = 0
        self.depth: dict[Value, int] = {}
        self.allocas: list[str] = []
        self.globals: list[str] = []
        #: Bytes of shared memory: for as long as the program runs, for parts of it (now, and at most), and for
        #: exchanges (now, and at most).
        self.kept = 0
        self.lent = self.most_lent = 0
        self.exchanged: int | None = 0
        self.rounds: _Rounds | None = None
        self.exchanges = 0
        self.checks = kernel.checks()
        self.loaded = {op.operands[0] for op in kernel.walk() if op.name in LOADS}
        #: Of which products the upper half is asked for.
        self.doubled = {frozenset(op.operands) for op in kernel.walk() if op.name == "umulhi"}
        self.used = {v for op in kernel.walk() for v in op.operands}
        self.errors = next((p for p in kernel.params if p.name == "errors"), None)
        self.products = wgmma.Products(self)
        self.ahead = Ahead(self)

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Code:
        t = self.t
        signature = self._parameters()
        waits = self.target.sm >= 90
        if waits:
            self._meet_queue()
        self.thread = t.call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", [], "nounwind memory(none)")
        linear = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        self.places = self._place(linear)
        self.block(self.kernel.body)
        t.line("ret void")
        params = ", ".join(f"{ty} %{name}" for name, ty in signature)
        most = self.kernel.attrs.get("maxnreg")
        bound = f' "nvvm.maxnreg"="{most}"' if most else ""
        # Panels of products may lie there.
        self.kept = -(-self.kept // ALIGNMENT) * ALIGNMENT
        lent = f"  %lent = getelementptr i8, {SHARED} @shared, i64 {self.kept}"
        begin = -(-(self.kept + self.most_lent) // ALIGNMENT) * ALIGNMENT
        base = f"  %exchange = getelementptr i8, {SHARED} @shared, i64 {begin}"
        text = "\n".join((
            "@shared = external addrspace(3) global [0 x i8], align 1024", *self.globals,
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{self.threads}"{bound} {{', "entry:",
            *([lent] if self.most_lent else []), *([base] if self.exchanges else []), *self.allocas, *t.lines, "}",
            *t.declarations.values(), "",
        ))  # fmt: skip
        shared = begin + self.exchanges
        if shared > self.target.shared:
            raise OutOfResources(
                f"kernel @{self.kernel.name} needs {shared} bytes of shared memory of a block, "
                f"of {self.target.shared} that {self.target.arch} has"
            )
        loads = not most and not any(op.name in ("dot", "own") for op in self.kernel.walk())
        return Code(text, self.threads, shared, waits=waits, loads=loads)

    def _meet_queue(self) -> None:
        """Let what is queued behind begin, and wait for what is queued before."""
        t = self.t
        programs = t.call("llvm.nvvm.read.ptx.sreg.nctaid.x", "i32", [], "nounwind memory(none)")
        few = t.cmp("ult", programs, i32(self.FEW))
        lets = "@$0 griddepcontrol.launch_dependents;"
        t.line(f'call void asm sideeffect "{lets}", "b,~{{memory}}"({few}) convergent nounwind')
        t.line('call void asm sideeffect "griddepcontrol.wait;", "~{memory}"() convergent nounwind')

    def _parameters(self) -> list[tuple[str, str]]:
        """Bind the parameters, each in its slot of 8 bytes (see cuda.py's ABI)."""
        t = self.t
        signature: list[tuple[str, str]] = []
        for k, p in enumerate(self.kernel.params):
            self.depth[p] = 0
            if p.type.pointer:
                signature.append((f"p{k}", GLOBAL))
                self.tiles[p] = [V(f"%p{k}", GLOBAL)]
                continue
            dtype = p.type.dtype
            found: list[V] = []
            for suffix in ("r", "i") if dtype in dtypes.COMPLEX else ("",):
                signature.append((f"p{k}{suffix}", "i64"))
                size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
                bits = t.cast("trunc", V(f"%p{k}{suffix}", "i64"), f"i{8 * size}")
                found.append(t.cast("bitcast", bits, memory_type(dtype)))
            self.tiles[p] = [from_memory(t, join(found), dtype)]
        return signature

    def _place(self, linear: V) -> list[V]:
        """The place on each grid axis of a program with a number."""
        grid = self.kernel.grid
        used = {op.attrs["axis"] for op in self.kernel.walk() if op.name == "program_id"}
        if any(op.name == "print" for op in self.kernel.walk()):
            used.add(0)
        found = [i32(0)] * len(grid)
        for axis in reversed(range(min(used, default=len(grid)), len(grid))):
            if axis == 0:
                found[0] = linear
                break
            count = self._count(axis)
            quotient, found[axis] = self._divided(linear, count)
            linear = quotient
        return found

    def _count(self, axis: int) -> V:
        t, (size, block) = self.t, self.kernel.grid[axis]
        (count,) = parts(self.scalar(size))
        if block != 1:
            count = t.bin("udiv", t.bin("add", count, i64(block - 1)), i64(block))
        return t.cast("trunc", count, "i32")

    def _divided(self, x: V, by: V) -> tuple[V, V]:
        """A quotient and its remainder; most grids have one axis, and the quotient is 0."""
        t = self.t
        long, done = t.new_label("long"), t.new_label("placed")
        origin = t.block
        t.br_if(t.cmp("ult", x, by), done, long)
        t.label(long)
        quotient = t.bin("udiv", x, by)
        rest = t.bin("sub", x, t.bin("mul", quotient, by))
        t.br(done)
        t.label(done)
        return t.phi("i32", (i32(0), origin), (quotient, long)), t.phi("i32", (x, origin), (rest, long))

    # -- where code goes ----------------------------------------------------------------------------------------------
    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Write in front of the region that is open inside region number `level`."""
        if level >= self.level:
            yield
            return
        t, region, before = self.t, self.regions[level], (self.level, self.t.lines, self.t.block)
        t.lines, t.block, self.level = region.lines, region.block, level
        yield
        region.block = t.block
        self.level, t.lines, t.block = before

    @property
    def aside(self) -> bool:
        """Whether what is written is run before what was written last."""
        return self.level < len(self.regions) - 1

    @contextmanager
    def region(self, loop: bool = False) -> Iterator[None]:
        """Write a region: a part of the code that not every thread's way goes through once."""
        t, outer = self.t, self.regions[-1]
        assert not self.aside
        written = t.lines
        outer.lines, outer.block = [], t.block
        t.lines = []
        self.regions.append(_Region())
        self.level += 1
        rounds, self.rounds = self.rounds, _Rounds() if loop and self.exchanged is not None else None
        if self.rounds is None:
            # Another way may lead here, on which other exchanges were the last ones.
            self.exchanged = None
        yield
        if self.rounds is None:
            self.exchanged = None
        else:
            self._close(self.rounds)
        self.rounds = rounds
        if rounds is not None and self.exchanged is None:
            rounds.again = True
        self.regions.pop()
        self.level -= 1
        t.lines = written + outer.lines + t.lines

    def _close(self, rounds: _Rounds) -> None:
        """A barrier before the first exchange of a loop's rounds, unless what it overwrites is known to be read."""
        lines = self.t.lines
        if rounds.mark not in lines:
            return
        at_, end = lines.index(rounds.mark), len(lines)
        if rounds.again or (rounds.count < 2 and not rounds.synchronized):
            self.barrier()
        made = lines[end:]
        del lines[end:]
        lines[at_ : at_ + 1] = made

    def memo(self, key: Any, level: int, make: Callable[[], Any]) -> Any:
        """What `make` makes at a level, once."""
        found = self.made.get(key)
        if found is None:
            with self.at(level):
                found = self.made[key] = make()
        return found

    # -- values -------------------------------------------------------------------------------------------------------
    def layout_of(self, value: Value) -> Layout:
        """A tile's home."""
        return self.home[value] if value.type.extents else self.scalars

    def scalar(self, value: Value) -> Register:
        return self.tiles[value][0]

    def integer(self, value: Value) -> V:
        (found,) = parts(self.scalar(value))
        return found

    def define(self, value: Value, registers: Tile) -> None:
        """A tile in its home."""
        self.tiles[value] = registers

    def tile(self, value: Value, wanted: Layout | None = None) -> Tile:
        """All of a thread's elements of a tile in a layout; of None, in its home."""
        self.products.ready(value)
        if wanted is None:
            wanted = self.layout_of(value)
        if value in self.tiles:
            return self._converted(value, wanted)
        return [self.register(value, wanted, r) for r in range(wanted.registers)]

    def register(self, value: Value, wanted: Layout, number: int) -> Register:
        """A thread's element of a tile in a layout."""
        self.products.ready(value)
        if value in self.tiles:
            return self._converted(value, wanted)[number]
        if value.type.dtype == "bool":
            number = self._alike(value, wanted, number)
        key = value, wanted, number
        found = self.made.get(key)
        if found is None:
            with self.at(self.depth[value]):
                found = self.made[key] = self._flexible(value, wanted, number)
        return found

    def _alike(self, value: Value, wanted: Layout, number: int) -> int:
        """The first register that is known to hold what a register holds: a mask is the same for several elements."""
        along = self.axes[value]
        for k, (dim, bit) in enumerate(wanted.regs):
            if number >> k & 1 and along[dim].same >= 2 << bit:
                number -= 1 << k
        return number

    def _converted(self, value: Value, wanted: Layout) -> Tile:
        own = self.tiles[value]
        if not value.type.extents or self.home[value] == wanted:
            return own
        home, dtype = self.home[value], value.type.dtype
        return self.memo((value, wanted), self.depth[value], lambda: move(self, own, dtype, home, wanted))

    def _flexible(self, value: Value, wanted: Layout, number: int) -> Register:
        """Emit an element of a flexible tile."""
        op = value.op
        assert op is not None
        t = self.t
        match op.name:
            case "iota":
                return t.cast("zext", self.position(wanted, 0, number), "i64")
            case "join" | "cat":
                return self._joined(op, wanted, number)
            case name if name in SHAPES:
                source, registers = through(op, wanted)
                return self.register(op.operands[0], source, registers[number])
            case name if name in _PREDICATES and (found := self._compared(op, wanted, number)) is not None:
                return found
        return self.element(op, [self.register(v, wanted, number) for v in op.operands])

    def address(self, pointer: Value, index: Value, wanted: Layout, number: int) -> V:
        """The address of the element of memory that a register of a tile of indices says."""

        def make() -> V:
            t, size = self.t, dtypes.SIZE[pointer.type.dtype]
            (v,) = parts(self.register(index, wanted, number))
            if v.ty != "i64":
                v = t.cast("sext" if index.type.dtype in dtypes.SIGNED else "zext", v, "i64")
            return at(t, self.integer(pointer), t.bin("mul", v, i64(size)))

        level = max(self.depth[pointer], self.depth[index])
        return self.memo(("address", pointer, index, wanted, number), level, make)

    def further(self, ptr: V, scalar: Value, factor: int) -> V:
        """An address, a multiple of a scalar further."""

        def make() -> V:
            (v,) = parts(self.scalar(scalar))
            if v.ty != "i64":
                v = self.t.cast("sext" if scalar.type.dtype in dtypes.SIGNED else "zext", v, "i64")
            return self.t.bin("mul", v, i64(factor))

        return at(self.t, ptr, self.memo(("multiple", scalar, factor), self.depth[scalar], make))

    def _compared(self, op: Op, wanted: Layout, number: int) -> V | None:
        """A comparison with a scalar of what differs by constants: these, with how far the scalar is from the first."""
        name, (x, y) = op.name, op.operands
        if uniform(x) is not None:
            name, x, y = _MIRRORED[name], y, x
        scalar = uniform(y)
        if scalar is None or x.type.dtype not in dtypes.SIGNED or wanted.registers == 1:
            return None
        away = self.affine.away(x, wanted, number)
        if away is None or away.keys() - {None}:
            return None
        t = self.t

        def make() -> V:
            first, bound = (parts(v)[0] for v in (self.register(x, wanted, 0), self.scalar(scalar)))
            if first.ty == bound.ty == "i32":
                return self._room(bound, first)
            room = t.bin("sub", t.cast("sext", bound, "i64"), t.cast("sext", first, "i64"))
            return self._saturate(room)

        level = max(self.depth[x], self.depth[scalar])
        room = self.memo(("room", x, scalar, wanted), level, make)
        return t.cmp(_PREDICATES[name], i32(away.get(None, 0)), room)

    def _saturate(self, v: V) -> V:
        """An i64 as the nearest i32, said so that LLVM does not see through it and compare 64 bits again."""
        return self.t.op(f'call i32 asm "cvt.sat.s32.s64 $0, $1;", "=r,l"({v})', "i32")

    def _room(self, a: V, b: V) -> V:
        """The nearest i32 to a difference of two."""
        return self.t.op(f'call i32 asm "sub.sat.s32 $0, $1, $2;", "=r,r,r"({a}, {b})', "i32")

    def saturated(self, bound: Value) -> V:
        """A bound of a tile, not below 0 and in 32 bits."""

        def make() -> V:
            terms = _narrow(bound)
            if terms:
                a, *rest = (self.integer(v) for v in terms)
                return self.t.call("llvm.smax.i32", "i32", [self._room(a, *rest) if rest else a, i32(0)])
            low = self.t.call("llvm.smax.i64", "i64", [self.integer(bound), i64(0)])
            return self._saturate(low)

        return self.memo(("bound", bound), self.depth[bound], make)

    def _joined(self, op: Op, wanted: Layout, number: int) -> Register:
        """An element of the first or of the second operand, as a bit of the position says."""
        bit = joining(op)
        places = [through(op, wanted, k) for k in range(2)]
        if bit in wanted.regs:
            k = number >> wanted.regs.index(bit) & 1
            return self.register(op.operands[k], places[k].layout, places[k].registers[number])
        first, second = (self.register(v, p.layout, p.registers[number]) for v, p in zip(op.operands, places))
        return select(self.t, self.bit(wanted.threads.index(bit)), second, first)

    def element(self, op: Op, args: Sequence[Register]) -> Register:
        """An elementwise op on one element of each operand."""
        t, dtype = self.t, op.result.type.dtype
        given = [v.type.dtype for v in op.operands]
        match op.name:
            case "hint":
                return args[0]
            case "cast":
                return convert(t, args[0], given[0], dtype)
            case "bitcast":
                return self._bitcast(args[0], given[0], dtype)
        found = fast.emit(self, op, args, given, dtype)
        return math.emit(t, op.name, args, given, dtype, self.target) if found is None else found

    def _bitcast(self, x: Register, given: str, dtype: str) -> Register:
        (v,) = parts(to_memory(self.t, x, given))
        bits = self.t.cast("bitcast", v, f"i{8 * dtypes.SIZE[given]}")
        return from_memory(self.t, self.t.cast("bitcast", bits, memory_type(dtype)), dtype)

    # -- threads ------------------------------------------------------------------------------------------------------
    @property
    def lane(self) -> V:
        return self.memo("lane", 0, lambda: self.t.bin("and", self.thread, i32(31)))

    @property
    def warp(self) -> V:
        return self.memo("warp", 0, lambda: self.t.bin("lshr", self.thread, i32(layout.LANES)))

    def bit(self, k: int) -> V:
        """Whether a bit of the thread's number is set."""
        t = self.t
        return self.memo(("bit", k), 0, lambda: t.cmp("ne", t.bin("and", self.thread, i32(1 << k)), i32(0)))

    def writer(self, given: Layout) -> V | None:
        """Whether this thread is the one that writes, of those that hold the same elements; None: all are."""
        t, mask = self.t, given.replicas
        if not mask:
            return None
        return self.memo(("writer", mask), 0, lambda: t.cmp("eq", t.bin("and", self.thread, i32(mask)), i32(0)))

    def first(self, given: Layout, dim: int) -> V:
        """A thread's part of positions along a dim."""
        return self.spread(pieces(given, dim))

    def spread(self, found: Sequence[layout.Piece]) -> V:
        """Some bits of the thread's number at other places."""

        def make() -> V:
            t, total = self.t, i32(0)
            for shift, count, place in found:
                v = self.thread
                if shift + count < layout.LANES + self.warps:
                    v = t.bin("and", v, i32((1 << shift + count) - 1))
                if shift:
                    v = t.bin("lshr", v, i32(shift))
                if place:
                    v = t.bin("shl", v, i32(place))
                total = v if total.ref == "0" else t.bin("or", total, v)
            return total

        return self.memo(("spread", tuple(found)), 0, make)

    def position(self, given: Layout, dim: int, number: int) -> V:
        """A register's position along a dim."""
        first, offset = self.first(given, dim), given.offset(number, dim)
        return self.t.bin("add", first, i32(offset)) if offset else first

    # -- shared memory ------------------------------------------------------------------------------------------------
    def barrier(self) -> None:
        if self.t.lines and "@llvm.nvvm.barrier.cta.sync" in self.t.lines[-1]:
            return
        self.t.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [i32(0)], "convergent nounwind")

    def synchronize(self) -> None:
        """A barrier behind all that was exchanged so far."""
        self.barrier()
        if not self.aside:
            self.exchanged = 0
            if self.rounds is not None and not self.rounds.count:
                self.rounds.synchronized = True

    def keep(self, nbytes: int, align: int = 16) -> V:
        """Shared memory for as long as the program runs."""
        where = -(-self.kept // align) * align
        self.kept = -(-(where + nbytes) // 16) * 16
        return at(self.t, V("@shared", SHARED), where)

    def lend(self, nbytes: int) -> V:
        """Shared memory until `lent` is what it was before; what was there may be in use until the next barrier."""
        align = ALIGNMENT if nbytes >= ALIGNMENT else ROW
        where = -(-self.lent // align) * align
        self.lent = where + -(-nbytes // ROW) * ROW
        self.most_lent = max(self.most_lent, self.lent)
        return at(self.t, V("%lent", SHARED), where)

    def exchange(self, nbytes: int) -> V:
        """Shared memory for one exchange between threads; what was there has been read by all."""
        nbytes = -(-nbytes // 16) * 16
        free = nbytes >= self.LARGE and self.lent + nbytes <= self.most_lent
        if self.growing and self.most_lent and (free or nbytes > self.EXCHANGES):
            self.barrier()
            before, start = self.lent, self.lend(nbytes)
            self.lent = before
            return start
        rounds = None if self.aside else self.rounds
        if rounds is not None:
            rounds.count += 1
            if rounds.count == 1:
                self.t.lines.append(rounds.mark)
        if self.exchanged == 0 and not self.aside:
            start = 0
        elif self.aside or self.exchanged is None or self.exchanged + nbytes > self.EXCHANGES:
            self.barrier()
            start = 0
            if rounds is not None:
                rounds.again = True
        else:
            start = self.exchanged
        if not self.aside:
            self.exchanged = start + nbytes
        self.exchanges = max(self.exchanges, start + nbytes)
        return at(self.t, V("%exchange", SHARED), start)

    def exchange_end(self) -> None:
        """After an exchange has been read."""
        if self.aside:
            self.barrier()

    # -- ops ----------------------------------------------------------------------------------------------------------
    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "stage":
                self.products.stage(op, block)
            else:
                if op.regions:
                    self.products.before(op)
                self.op(op)
                if op.regions:
                    self.products.after(op)
        self.products.end_block(block)

    def op(self, op: Op) -> None:
        for v in op.results:
            self.depth[v] = self.level
        handler = HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.name == "const":
            self.define(op.result, [constant(self.t, op.attrs["value"], op.result.type.dtype)])
        elif op.name == "program_id":
            self.define(op.result, [self.t.cast("zext", self.places[op.attrs["axis"]], "i64")])
        elif is_elementwise(op) or op.name in SHAPES:
            self._pure(op)
        elif op.name not in ("iota", "assume", "yield"):
            raise NotImplementedError(f"kernel @{self.kernel.name}: no GPU code for {op.name}")

    def _pure(self, op: Op) -> None:
        value = op.result
        if not value.type.extents:
            operand = op.operands[0]
            if op.name in SHAPES:
                # Of one element.
                self.define(value, self.tile(operand, through(op, self.scalars).layout))
            else:
                self.define(value, [self.element(op, [self.scalar(v) for v in op.operands])])
        elif value in self.home:
            home = self.home[value]
            if op.name in SHAPES:
                self.define(value, [self._flexible(value, home, r) for r in range(home.registers)])
                return
            self.define(value, fast.elements(self, op, [self.tile(v, home) for v in op.operands]))


def _narrow(bound: Value) -> tuple[Value, ...]:
    """The value of 32 bits that a scalar is, or the two that it is the difference of."""
    terms = bound.op.operands if bound.op is not None and bound.op.name == "subtract" else (bound,)
    casts = [v.op for v in terms]
    found = [op.operands[0] for op in casts if op is not None and op.name == "cast"]
    return tuple(found) if len(found) == len(casts) and all(v.type.dtype == "i32" for v in found) else ()
