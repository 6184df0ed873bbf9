"""Tiles from one layout to another: by names of registers, by shuffles, or through shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import dtypes
from ...llvm.convert import Register
from ...llvm.text import V
from .. import memory
from ..memory import at, i32, select
from ..reduction import shuffle
from .layout import Bit, Layout, Piece

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: Bytes that threads of a warp access in shared memory without a conflict.
BANKS = 128


def convert(code: Codegen, tile: Tile, dtype: str, given: Layout, wanted: Layout) -> Tile:
    """A tile in another layout."""
    if given == wanted:
        return tile
    assert given.bits == wanted.bits, f"{given} and {wanted} are of different tiles"
    if (found := _in_threads(code, tile, given, wanted)) is not None:
        return found
    if (found := _in_warps(code, tile, given, wanted)) is not None:
        return found
    return through_shared(code, tile, dtype, given, wanted)


def _register(given: Layout, wanted: Layout, number: int) -> int:
    """The register that holds what one of another layout does, but for bits that are a thread's there."""
    places = {b: i for i, b in enumerate(wanted.regs)}
    return sum(1 << i for i, b in enumerate(given.regs) if b in places and number >> places[b] & 1)


def in_threads(given: Layout, wanted: Layout) -> bool:
    """Whether each thread holds what it needs."""
    pairs = zip(given.threads, wanted.threads, strict=True)
    return all(own == bit or (own is None and bit in given.regs) for own, bit in pairs)


def _in_threads(code: Codegen, tile: Tile, given: Layout, wanted: Layout) -> Tile | None:
    """If each thread holds what it needs."""
    chosen: list[tuple[int, int]] = []
    for i, (own, bit) in enumerate(zip(given.threads, wanted.threads)):
        if own == bit:
            continue
        if own is not None:
            return None
        assert bit is not None
        if bit not in given.regs:
            return None
        chosen.append((i, given.regs.index(bit)))
    pieces = list(tile)
    for i, k in chosen:
        # The register of each pair that the thread's bit says.
        bit = code.bit(i)
        pieces = [
            select(code.t, bit, pieces[r | 1 << k], pieces[r]) if not r >> k & 1 else pieces[r]
            for r in range(len(pieces))
        ]
    return [pieces[_register(given, wanted, r)] for r in range(wanted.registers)]


def _in_warps(code: Codegen, tile: Tile, given: Layout, wanted: Layout) -> Tile | None:
    """If lanes of the same warp hold what each one needs, in the same register for all of them."""
    if any(own != bit and own is not None for own, bit in zip(given.warps, wanted.warps)):
        return None
    if any(own is None and bit is not None for own, bit in zip(given.warps, wanted.warps)):
        return None
    if any(b in wanted.lanes for b in given.regs):
        return None
    t = code.t
    moved: list[Piece] = []
    fixed: list[tuple[int, int]] = []
    for i, own in enumerate(given.lanes):
        if own is None:
            moved.append(Piece(i, 1, i))
        elif own in wanted.lanes:
            moved.append(Piece(wanted.lanes.index(own), 1, i))
        elif own in wanted.regs:
            fixed.append((wanted.regs.index(own), i))
        else:
            return None
    lane = code.spread(_merged(moved))
    found: Tile = []
    for r in range(wanted.registers):
        there = sum(1 << i for k, i in fixed if r >> k & 1)
        source = t.bin("or", lane, i32(there)) if there else lane
        found.append(shuffle(t, "idx", tile[_register(given, wanted, r)], source))
    return found


def _merged(found: list[Piece]) -> list[Piece]:
    """Pieces of single bits, with neighbours as one."""
    merged: list[Piece] = []
    for shift, count, place in sorted(found):
        if merged and merged[-1].shift + merged[-1].count == shift and merged[-1].place + merged[-1].count == place:
            merged[-1] = merged[-1]._replace(count=merged[-1].count + count)
        else:
            merged.append(Piece(shift, count, place))
    return merged


class Staged:
    """A tile in shared memory: the order of its bits there, and gaps against conflicts of banks."""

    def __init__(self, code: Codegen, dtype: str, given: Layout, wanted: Layout) -> None:
        self.code, self.dtype = code, dtype
        self.size = dtypes.SIZE[dtype]
        widest = max(1, 16 // self.size).bit_length() - 1
        first = [b for b in wanted.regs if b in given.regs][:widest]
        lanes = [b for b in wanted.lanes if b is not None]
        rest = [b for b in (*given.threads, *wanted.threads, *wanted.regs) if b is not None]
        self.bits: list[Bit] = list(dict.fromkeys((*first, *lanes, *rest)))
        self.vector = len(first)
        #: After so many elements comes a gap of one vector.
        self.every = max(BANKS // self.size, 1 << self.vector)
        count = 1 << len(self.bits)
        self.nbytes = self._padded(count) * self.size

    def _padded(self, element: int) -> int:
        return element + (element // self.every << self.vector)

    def places(self, layout: Layout, base: V) -> list[tuple[list[int], V, int]]:
        """Groups of registers that are together, the address of the thread's first, and bytes from there."""
        code, t = self.code, self.code.t
        place = {b: k for k, b in enumerate(self.bits)}
        pieces = _merged([Piece(i, 1, place[b]) for i, b in enumerate(layout.threads) if b is not None])
        thread = code.spread(pieces)
        shift = self.every.bit_length() - 1

        def start() -> V:
            gaps = t.bin("shl", t.bin("lshr", thread, i32(shift)), i32(self.vector))
            return t.cast("zext", t.bin("mul", t.bin("add", thread, gaps), i32(self.size)), "i64")

        first = at(t, base, code.memo(("staged", tuple(pieces), self.every, self.vector, self.size), 0, start))
        low = [layout.regs.index(b) for b in self.bits[: self.vector]]
        inner = [sum(1 << k for i, k in enumerate(low) if j >> i & 1) for j in range(1 << self.vector)]
        mask = sum(1 << k for k in low)
        found = []
        for r in range(layout.registers):
            if not r & mask:
                # Bits of threads and registers are apart, so the gaps add up.
                away = sum(1 << place[b] for i, b in enumerate(layout.regs) if r >> i & 1)
                found.append(([r | i for i in inner], first, self._padded(away) * self.size))
        return found


def _parts(given: Layout, bits: list[Bit]) -> tuple[Layout, list[list[int]]]:
    """The layout of tiles that have no such bits, and the registers of each: of bits that are all registers'."""
    places = [given.regs.index(b) for b in bits]
    rest = [i for i in range(len(given.regs)) if i not in places]
    numbers = [sum(1 << i for k, i in enumerate(rest) if n >> k & 1) for n in range(1 << len(rest))]
    found = []
    for part in range(1 << len(bits)):
        origin = sum(1 << i for k, i in enumerate(places) if part >> k & 1)
        found.append([origin | n for n in numbers])
    return Layout(tuple([given.regs[i] for i in rest]), given.lanes, given.warps), found


def through_shared(code: Codegen, tile: Tile, dtype: str, given: Layout, wanted: Layout) -> Tile:
    t = code.t
    staged = Staged(code, dtype, given, wanted)
    # A large tile goes in parts, if need be of shorter vectors.
    vector = staged.bits[: staged.vector]
    shared = [b for b in wanted.regs if b in given.regs and b not in vector] + vector[:0:-1]
    parts = shared[: max(0, (staged.nbytes // code.WHOLE).bit_length())]
    if parts:
        own, sources = _parts(given, parts)
        other, results = _parts(wanted, parts)
        whole: list[Register | None] = [None] * wanted.registers
        for source, result in zip(sources, results, strict=True):
            for r, v in zip(result, through_shared(code, [tile[r] for r in source], dtype, own, other), strict=True):
                whole[r] = v
        return [v for v in whole if v is not None]
    base = code.exchange(staged.nbytes)
    writer = code.writer(given)
    for group, ptr, away in staged.places(given, base):
        memory.store(t, [tile[r] for r in group], ptr, dtype, writer, away)
    code.barrier()
    found: list[Register | None] = [None] * wanted.registers
    for group, ptr, away in staged.places(wanted, base):
        for r, v in zip(group, memory.load(t, at(t, ptr, away), dtype, len(group)), strict=True):
            found[r] = v
    code.exchange_end()
    return [v for v in found if v is not None]
