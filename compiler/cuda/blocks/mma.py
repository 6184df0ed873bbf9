"""Products in tensor cores, a warp at a time: an instruction has 16 rows and 8 columns.

What a thread holds of operands and sums are bits of positions, as everywhere.  The first operand comes from registers
if each thread has what it needs, as sums of a product before do; else operands lie in shared memory, in rows along
the direction in which threads hold them, and are fetched as they are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import dtypes
from ...ir import Op, Value
from ...llvm.convert import convert, register_type, round_to
from ...llvm.text import V
from .. import memory
from ..memory import at, i32, parts
from ..mma import NAMES
from ..target import Target
from . import layout
from .axes import extents_of, is_elementwise
from .convert import in_threads
from .layout import Bit, Extents, Layout
from .panel import PIECE, ROW

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: Instructions' names of the types of sums, the letters of their registers, and what LLVM calls these.
_SUMS = {"f32": ("f32", "f", "float"), "i32": ("s32", "r", "i32"), "f64": ("f64", "d", "double")}
#: The digits of a float that tensor cores take.
_DIGITS = i32(-(1 << 13))
#: Bytes that each bit of a position adds to an address in shared memory, by exclusive or.
Places = Mapping[Bit, int]


def multiplied(op: Op, target: Target) -> tuple[str, str] | None:
    """The dtypes as which tensor cores take a product's operands; None if they do not."""
    a, b = (v.type.dtype for v in op.operands[:2])
    result = op.result.type.dtype
    if target.sm < 80:
        return None
    if a in dtypes.FLOAT8:
        found = (a, b) if target.float8 else ("f16", "f16")
    elif a == "f32":
        found = (a, b) if op.attrs.get("precision") in ("tf32", "tf32x3") else None
    else:
        found = (a, b) if a in ("f16", "bf16", "f64") or (a in ("i8", "u8") and result == "i32") else None
    return found if found and extents_of(op.operands[0])[-1] >= 8 << _word(found[0]) else None


def _word(dtype: str) -> int:
    """How many bits of a position along the depth are in one word of an instruction's operand."""
    return max(0, 2 - layout.log2(dtypes.SIZE[dtype]))


# -- layouts ----------------------------------------------------------------------------------------------------------
def sums_of(extents: Extents, warps: int, upright: bool) -> Layout:
    """The layout of sums.  Warps divide matrices first, then rows as long as there are some (`upright`), or what is
    longer."""
    rank, (*_, m, n) = len(extents), (layout.log2(e) for e in extents)
    rows, columns = rank - 2, rank - 1
    apart = layout.bits_of(extents, range(rank - 2))
    down, across = [(rows, b) for b in range(4, m)], [(columns, b) for b in range(3, n)]
    own: list[Bit | None] = []
    while len(own) < warps:
        if apart:
            own.append(apart.pop())
        elif down and (upright or len(down) + 1 >= len(across)):
            own.append(down.pop(0))
        else:
            own.append(across.pop() if across else None)
    lanes = _existing(extents, [(columns, 1), (columns, 2), (rows, 0), (rows, 1), (rows, 2)])
    first = [b for b in _existing(extents, [(columns, 0), (rows, 3)]) if b is not None]
    return Layout((*first, *across, *down, *apart), tuple(lanes), tuple(own))


def fragment(extents: Extents, sums: Layout, second: bool, dtype: str, paired: bool = False) -> Layout:
    """The layout of an operand beside sums of one.

    Along the depth threads hold words, and two of these, half an instruction's depth apart; if `paired` words beside
    each other, as sums are.
    """
    rank, word = len(extents), _word(dtype)
    line, deep = (rank - 1, rank - 2) if second else (rank - 2, rank - 1)
    own = tuple([None if b is None or b[0] not in (*range(rank - 2), line) else b for b in sums.warps])
    inner = [(deep, b) for b in range(word)]
    lanes = [(deep, word + paired), (deep, word + 1 + paired), *((line, b) for b in range(3))]
    other = (deep, 0 if paired else word + 2)
    first = [other] if second else [(line, 3), other]
    taken = {*inner, *lanes, *first, *own}
    rest = [b for b in layout.bits_of(extents, (line, deep, *range(rank - 2))) if b not in taken]
    regs = [b for b in _existing(extents, [*inner, *first]) if b is not None]
    return Layout((*regs, *rest), tuple(_existing(extents, lanes)), own)


def _existing(extents: Extents, bits: Sequence[Bit]) -> list[Bit | None]:
    return [(d, b) if extents[d] >> b > 1 else None for d, b in bits]


@lru_cache(1 << 10)
def places(extents: Extents, size: int, inner: int, turn: int) -> dict[Bit, int]:
    """Where a tile's elements lie: in boxes of rows of up to 128 bytes along the dim `inner`.

    Pieces of 16 bytes change places from row to row, so that neither eight rows' pieces lie in the same banks, nor (for
    a `turn` of 1) four rows' halves of 32 bytes.
    """
    rank = len(extents)
    row = min(ROW, extents[inner] * size)
    along = [(inner, b) for b in range(layout.log2(extents[inner]))]
    count = layout.log2(row // size)
    others = (2 * rank - 3 - inner, *range(rank - 2))
    order = [*along[:count], *layout.bits_of(extents, others[:1]), *along[count:], *layout.bits_of(extents, others[1:])]
    found = {b: size << i for i, b in enumerate(order)}
    pieces = layout.log2(max(1, row // PIECE))
    for b, place in found.items():
        k = layout.log2(place // ROW) if place >= ROW else pieces
        if k < pieces:
            found[b] = place | PIECE << (k + turn) % pieces
    return found


def turned(dtype: str, deep: bool) -> int:
    """The `turn` of an operand's places: 0 as hardware has it, where fragments are fetched as matrices."""
    size = dtypes.SIZE[dtype]
    return int(size == 8 or (size == 4 and not deep))


# -- shared memory ----------------------------------------------------------------------------------------------------
class Stored:
    """A tile in shared memory."""

    def __init__(self, code: Codegen, base: V, bits: Places) -> None:
        self.code, self.base, self.bits = code, base, bits

    def pointer(self, threads: Sequence[Bit | None], further: int) -> tuple[V, int]:
        """Where elements lie, the bits of whose positions are those of a thread's number, and how far from there."""
        code, t = self.code, self.code.t
        masks = {i: self.bits[b] for i, b in enumerate(threads) if b is not None}
        span = 0
        #: By how far bits are shifted: which.
        shifts: dict[int, int] = {}
        for i, mask in masks.items():
            span |= mask
            for k in range(mask.bit_length()):
                if mask >> k & 1:
                    shifts[k - i] = shifts.get(k - i, 0) | 1 << i

        def thread() -> V:
            total = i32(further & span)
            for shift, mask in shifts.items():
                v = t.bin("and", code.thread, i32(mask))
                v = t.bin("shl" if shift > 0 else "lshr", v, i32(abs(shift))) if shift else v
                total = t.bin("xor", total, v)
            return t.cast("zext", total, "i64")

        offset = code.memo(("stored", tuple(shifts.items()), further & span), 0, thread)
        return at(t, self.base, offset), further & ~span

    def place(self, bits: Sequence[Bit], number: int) -> int:
        """The part of an address that a register's number makes."""
        found = 0
        for i, b in enumerate(bits):
            found ^= self.bits[b] if number >> i & 1 else 0
        return found

    def _groups(self, given: Layout, dtype: str, inner: int) -> Iterator[tuple[list[int], V, int]]:
        """Registers that lie together, in up to 16 bytes: where, and how far from there."""
        run = min(given.run(inner), PIECE // dtypes.SIZE[dtype])
        low = given.low(inner, layout.log2(run))
        for first in range(given.registers):
            if not any(first >> i & 1 for i in low):
                group = [first + sum(1 << i for k, i in enumerate(low) if n >> k & 1) for n in range(run)]
                yield group, *self.pointer(given.threads, self.place(given.regs, first))

    def put(self, tile: Tile, given: Layout, dtype: str, inner: int) -> None:
        """Store a thread's elements; rows lie along the dim `inner`."""
        writer = self.code.writer(given)
        for group, ptr, away in self._groups(given, dtype, inner):
            memory.store(self.code.t, [tile[r] for r in group], ptr, dtype, writer, away)

    def take(self, given: Layout, dtype: str, inner: int) -> Tile:
        """A thread's elements."""
        t, found = self.code.t, {}
        for group, ptr, away in self._groups(given, dtype, inner):
            found.update(zip(group, memory.load(t, at(t, ptr, away), dtype, len(group)), strict=True))
        return [found[r] for r in range(given.registers)]


class Fragments:
    """An operand as instructions take it: in words of a thread, by number."""

    def __init__(self, given: Layout, dtype: str, second: bool) -> None:
        self.layout, self.dtype, self.inner, self.second = given, dtype, _word(dtype), second
        self.words: dict[int, V] = {}

    def word(self, number: int) -> V:
        return self.words[number]

    def number(self, bits: Collection[Bit]) -> int:
        """The number of the first word of a place in the tile."""
        return sum(1 << i for i, b in enumerate(self.layout.regs) if b in bits) >> self.inner

    def operand(self, first: int) -> list[V]:
        """An instruction's words: two halves of its depth, of a first operand for its upper and lower rows each."""
        rank = 1 + max(d for d, _ in self.layout.bits)
        low = self.layout.regs[self.inner : self.inner + 2]
        if self.second:
            return [self.word(first + k) for k in range(2)]
        steps = (0, 1, 2, 3) if low[0] == (rank - 2, 3) else (0, 0, 1, 1)
        return [self.word(first + k) for k in steps]


class Held(Fragments):
    """One that threads hold."""

    def __init__(self, code: Codegen, tile: Tile, given: Layout, dtype: str) -> None:
        super().__init__(given, dtype, False)
        whole = dtypes.SIZE[dtype] == 8
        words = [parts(v)[0] for v in tile] if whole else memory.pack(code.t, tile, dtype, "i32")
        self.words.update(enumerate(words))


class Fetched(Fragments):
    """One that lies in shared memory; `inner` is the dim along which its rows lie there."""

    def __init__(self, stored: Stored, given: Layout, dtype: str, second: bool, inner: int) -> None:
        super().__init__(given, dtype, second)
        self.stored, self.code = stored, stored.code
        assert given.lanes[0] is not None
        deep = given.lanes[0][0]
        size = dtypes.SIZE[dtype]
        #: How matrices of 8 by 8 elements of 16 bits are turned on their way; None: elements come one by one.
        self.how: str | None = None
        if inner == deep and size < 8 and given.lanes[0] == (deep, self.inner):
            self.how, rows = "", given.lanes[2:]
        elif inner != deep and size == 2 and None not in given.lanes:
            self.how, rows = ".trans", (given.regs[0], *given.lanes[:2])
        if self.how is not None:
            more = [given.regs[i] if i < len(given.regs) else None for i in (self.inner, self.inner + 1)]
            self.threads = (*rows, *more, *given.warps)

    def word(self, number: int) -> V:
        if number not in self.words:
            if self.how is None:
                self.words[number] = self._elements(number)
            else:
                self._matrices(number & ~3)
        return self.words[number]

    def _matrices(self, first: int) -> None:
        t = self.code.t
        ptr, away = self.stored.pointer(self.threads, self.stored.place(self.layout.regs, first << self.inner))
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{self.how}.b16.p3"
        found = t.call(name, "{i32, i32, i32, i32}", [at(t, ptr, away)])
        for k in range(4):
            self.words[first + k] = t.op(f"extractvalue {found}, {k}", "i32")

    def _elements(self, number: int) -> V:
        t, size, total = self.code.t, dtypes.SIZE[self.dtype], i32(0)
        for k in range(1 << self.inner):
            register = (number << self.inner) + k
            ptr, away = self.stored.pointer(self.layout.threads, self.stored.place(self.layout.regs, register))
            if size == 8:
                return t.load(at(t, ptr, away), "double", 8)
            v = t.cast("zext", t.load(at(t, ptr, away), f"i{8 * size}", size), "i32")
            total = t.bin("or", total, t.bin("shl", v, i32(8 * size * k))) if k else v
        return total


# -- a product --------------------------------------------------------------------------------------------------------
def emit(code: Codegen, op: Op, kinds: tuple[str, str]) -> None:
    t, dtype = code.t, op.result.type.dtype
    wide = "f32" if dtype in dtypes.NARROW else dtype
    home = code.layout_of(op.result)
    sums = [t.const(0, register_type(wide))] * home.registers
    if len(op.operands) > 2:
        sums = [parts(convert(t, v, dtype, wide))[0] for v in code.tile(op.operands[2], home)]
    found, exchanged = _operands(code, op, kinds)
    product = _Product(code, kinds, wide, home)
    precise = op.attrs.get("precision") == "tf32x3"
    small = [t.const(0, "float")] * len(sums) if precise else []
    halves: dict[V, tuple[V, V]] = {}
    for numbers, own in _steps(found, home):
        x, y = (f.operand(n) for f, n in zip(found, numbers, strict=True))
        if precise:
            (x, rest_x), (y, rest_y) = (list(zip(*[_halves(code, v, halves) for v in words])) for words in (x, y))
            product.add(small, own, rest_x, y)
            product.add(small, own, x, rest_y)
        product.add(sums, own, x, y)
    if exchanged:
        code.exchange_end()
    if precise:
        # What infinity times nothing is here, it is not in the operands themselves.
        small = [t.select(t.cmp("uno", v, v), t.const(0, "float"), v) for v in small]
        sums = [t.bin("fadd", v, w) for v, w in zip(sums, small, strict=True)]
    code.define(op.result, [round_to(t, v, dtype) for v in sums] if wide != dtype else list(sums))


def _steps(operands: Sequence[Fragments], home: Layout) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """A thread's part of a product: the operands' first words, and registers of sums."""
    a, b = operands
    rank = 1 + max(d for d, _ in a.layout.bits)
    rows, columns = rank - 2, rank - 1
    apart = [bit for bit in home.regs if bit[0] < rows]
    down = [bit for bit in home.regs if bit[0] == rows and bit[1] >= 4]
    across = [bit for bit in home.regs if bit[0] == columns and bit[1] >= 3]
    # One of the bits along the depth is within an instruction.
    depth = [k for d, k in a.layout.regs[a.inner :] if d == columns][1:]
    corner = [sum(1 << home.regs.index(bit) for bit in bits if bit in home.regs)
              for bits in ((), ((columns, 0),), ((rows, 3),), ((columns, 0), (rows, 3)))]  # fmt: skip
    for matrix in _subsets(apart):
        for step in _subsets(depth):
            for line in _subsets(down):
                for column in _subsets(across):
                    first = a.number({*matrix, *line, *((columns, k) for k in step)})
                    second = b.number({*matrix, *column, *((rows, k) for k in step)})
                    origin = sum(1 << home.regs.index(bit) for bit in (*matrix, *line, *column))
                    yield (first, second), [origin | c for c in corner]


def _subsets(bits: Sequence[Any]) -> list[list[Any]]:
    return [[b for i, b in enumerate(bits) if n >> i & 1] for n in range(1 << len(bits))]


def _halves(code: Codegen, word: V, known: dict[V, tuple[V, V]]) -> tuple[V, V]:
    """A float's first digits, and the others."""
    if word not in known:
        t = code.t
        large = t.bin("and", word, _DIGITS)
        rest = t.bin("fsub", t.cast("bitcast", word, "float"), t.cast("bitcast", large, "float"))
        known[word] = large, t.cast("bitcast", rest, "i32")
    return known[word]


class _Product:
    """The instructions of one product."""

    def __init__(self, code: Codegen, kinds: tuple[str, str], wide: str, home: Layout) -> None:
        self.t, self.kinds = code.t, kinds
        self.name, self.letter, self.type = _SUMS[wide]
        #: Whether an instruction of doubles has 16 rows.
        self.tall = code.target.sm >= 90

    def add(self, sums: list[V], own: list[int], a: Sequence[V], b: Sequence[V]) -> None:
        """Add the product of 16 rows and 8 columns of operands to a thread's four sums, of which some may be one."""
        given = [sums[r] for r in own]
        if self.name != "f64":
            types = ".".join([self.name, *(NAMES[k] for k in self.kinds), self.name])
            depth = 32 // dtypes.SIZE[self.kinds[0]]
            made = self._instruction(f"m16n8k{depth}.row.col.{types}", "r", a, b, given)
        elif self.tall:
            made = self._instruction("m16n8k8.row.col.f64.f64.f64.f64", "d", a, b, given)
        else:
            made, name = given, "m8n8k4.row.col.f64.f64.f64.f64"
            for k in range(2):
                made = [
                    v for h in range(2)
                    for v in self._instruction(name, "d", [a[2 * k + h]], [b[k]], made[2 * h : 2 * h + 2])
                ]  # fmt: skip
        for r, v in zip(own, made, strict=True):
            sums[r] = v

    def _instruction(self, name: str, letter: str, a: Sequence[V], b: Sequence[V], sums: Sequence[V]) -> list[V]:
        t, place, operands = self.t, 0, []
        for count in (len(sums), len(a), len(b), len(sums)):
            operands.append("{" + ", ".join(f"${place + k}" for k in range(count)) + "}")
            place += count
        constraints = ",".join([f"={self.letter}"] * len(sums) + [letter] * len([*a, *b]) + [self.letter] * len(sums))
        ty = "{" + ", ".join([self.type] * len(sums)) + "}"
        args = ", ".join(map(str, [*a, *b, *sums]))
        text = f"mma.sync.aligned.{name} {', '.join(operands)};"
        found = t.op(f'call {ty} asm "{text}", "{constraints}"({args}) convergent nounwind', ty)
        return [t.op(f"extractvalue {found}, {k}", self.type) for k in range(len(sums))]


# -- operands ---------------------------------------------------------------------------------------------------------
class _Area(NamedTuple):
    """How an operand is put into shared memory."""

    value: Value
    dtype: str
    given: Layout
    #: The dim along which its rows lie there.
    inner: int
    bits: Places

    @property
    def nbytes(self) -> int:
        return dtypes.SIZE[self.dtype] << len(self.bits)

    def tile(self, code: Codegen) -> Tile:
        return _converted(code, code.tile(self.value, self.given), self.value, self.dtype)

    def keep(self, code: Codegen) -> Stored:
        """Put it where it stays."""
        tile = self.tile(code)
        stored = Stored(code, code.keep(self.nbytes), self.bits)
        if code.level:
            # Others may be reading what was there before.
            code.barrier()
        stored.put(tile, self.given, self.dtype, self.inner)
        code.barrier()
        return stored


def _operands(code: Codegen, op: Op, kinds: tuple[str, str]) -> tuple[list[Fragments], bool]:
    """A product's operands, and whether some are in memory for exchanges."""
    home, count = code.layout_of(op.result), len(op.result.type.extents)
    held = _held(code, op.operands[0], home, kinds[0])
    paired = held is not None and held.layout.lanes[0] != (count - 1, held.inner)
    stored: dict[int, tuple[Stored, int]] = {}
    waiting: list[tuple[int, _Area, Tile]] = []
    for k in range(held is not None, 2):
        value = op.operands[k]
        found = code.ahead.stored(value)
        if found is None:
            area = _area(code, value, kinds[k], count - 1 - k)
            level = code.depth[value]
            if level == code.level or code.aside or not code.growing:
                waiting.append((k, area, area.tile(code)))
                continue
            key = "operand", value, area.dtype, area.inner
            found = code.memo(key, level, lambda area=area: area.keep(code)), area.inner
        stored[k] = found
    if waiting:
        base = code.exchange(sum(area.nbytes for _, area, _ in waiting))
        for k, area, tile in waiting:
            stored[k] = Stored(code, base, area.bits), area.inner
            stored[k][0].put(tile, area.given, area.dtype, area.inner)
            base = at(code.t, base, area.nbytes)
        code.barrier()
    made: list[Fragments] = [held] if held is not None else []
    for k, (where, inner) in sorted(stored.items()):
        given = fragment(extents_of(op.operands[k]), home, k == 1, kinds[k], paired)
        made.append(Fetched(where, given, kinds[k], k == 1, inner))
    return made, bool(waiting)


def _held(code: Codegen, value: Value, home: Layout, dtype: str) -> Held | None:
    """A first operand in registers, if each thread has what it needs."""
    own = code.home.get(value)
    if code.ahead.stored(value) is not None:
        return None
    for paired in (False, True) if dtypes.SIZE[dtype] >= 4 else (False,):
        given = fragment(extents_of(value), home, False, dtype, paired)
        if own is None or in_threads(own, given):
            return Held(code, _converted(code, code.tile(value, given), value, dtype), given, dtype)
    return None


def _converted(code: Codegen, tile: Tile, value: Value, dtype: str) -> Tile:
    return [convert(code.t, v, value.type.dtype, dtype) for v in tile]


def _pieces(extents: Extents, warps: int, size: int, inner: int) -> Layout:
    """The layout in which a thread has 16 bytes along a dim."""
    rank = len(extents)
    vector = min(layout.log2(PIECE // size), layout.log2(extents[inner]))
    return layout.blocked(extents, warps, vector, (inner, 2 * rank - 3 - inner, *range(rank - 2)))


def put_from(value: Value, warps: int, dtype: str) -> Layout:
    """The layout in which a tile without a home is put into shared memory: in rows of what it is made of."""
    inner = rows_of(value)
    last = len(value.type.extents) - 1
    return _pieces(extents_of(value), warps, dtypes.SIZE[dtype], last if inner is None or inner < last - 1 else inner)


def rows_of(value: Value) -> int | None:
    """The dim along which that lies in a slot which a tile is made of, element by element; None: nothing does."""
    op = value.op
    if op is None:
        return None
    if op.name == "read":
        source = op.operands[0].op
        return source.attrs["inner"] if source is not None else None
    if op.name == "trans":
        inner = rows_of(op.operands[0])
        return None if inner is None else op.attrs["perm"].index(inner)
    made = [rows_of(v) for v in op.operands if is_elementwise(op) and v.type.extents]
    return next((inner for inner in made if inner is not None), None)


def _area(code: Codegen, value: Value, dtype: str, deep: int) -> _Area:
    """Rows lie as threads hold them, but those of 8 bits along the depth, since nothing turns them on their way."""
    extents, size = extents_of(value), dtypes.SIZE[dtype]
    rank = len(extents)
    given = code.home.get(value) or put_from(value, code.warps, dtype)
    inner = deep if size == 1 else max(rank - 1, rank - 2, key=given.run)
    if size == 1 and given.run(deep) < 4:
        given = _pieces(extents, code.warps, size, deep)
    return _Area(value, dtype, given, inner, places(extents, size, inner, turned(dtype, inner == deep)))
