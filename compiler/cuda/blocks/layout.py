"""Which element of a tile each register of each thread holds.

A tile of power-of-two extents has 2**n elements, and an element's position is n bits.  A layout gives each bit of a
register's number, of a lane's number in its warp and of a warp's number the bit of the position that it stands for, so
shape operations rename bits and move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

#: A dim and a bit of the position along it.
Bit = tuple[int, int]
Extents = tuple[int, ...]
#: Bits of a lane's number.
LANES = 5


class Layout(NamedTuple):
    """`regs[i]`, `lanes[i]` and `warps[i]` are what bit i of a register's, lane's or warp's number stands for.

    None stands for nothing: threads that differ in such a bit only hold the same elements.
    """

    regs: tuple[Bit, ...]
    lanes: tuple[Bit | None, ...]
    warps: tuple[Bit | None, ...]

    @property
    def threads(self) -> tuple[Bit | None, ...]:
        """What each bit of a thread's number stands for."""
        return self.lanes + self.warps

    @property
    def registers(self) -> int:
        """Elements of a thread."""
        return 1 << len(self.regs)

    @property
    def bits(self) -> frozenset[Bit]:
        return frozenset(b for b in (*self.regs, *self.threads) if b is not None)

    @property
    def replicas(self) -> int:
        """A mask of the bits of a thread's number that stand for nothing."""
        return sum(1 << i for i, b in enumerate(self.threads) if b is None)

    def offset(self, register: int, dim: int) -> int:
        """A register's part of the position along a dim."""
        return sum(1 << b for i, (d, b) in enumerate(self.regs) if d == dim and register >> i & 1)

    def position(self, register: int, thread: int, rank: int) -> tuple[int, ...]:
        """Where a thread's register is in the tile."""
        found = [self.offset(register, d) for d in range(rank)]
        for i, bit in enumerate(self.threads):
            if bit is not None and thread >> i & 1:
                found[bit[0]] += 1 << bit[1]
        return tuple(found)

    def renamed(self, rename: Callable[[Bit], Bit | None]) -> Layout:
        """The layout of a tile whose bits have other names.  Registers that differ in bits without one are merged."""
        regs = [new for b in self.regs if (new := rename(b)) is not None]
        lanes, warps = (tuple([None if b is None else rename(b) for b in bits]) for bits in (self.lanes, self.warps))
        return Layout(tuple(regs), lanes, warps)

    def without(self, dims: Iterable[int]) -> Layout:
        """The layout of a slice: of a tile that has all dims but `dims`."""
        gone = frozenset(dims)
        return self.renamed(lambda b: None if b[0] in gone else (b[0] - sum(d < b[0] for d in gone), b[1]))

    def run(self, dim: int) -> int:
        """Consecutive elements along a dim among a thread's registers, which begin at a multiple of their number."""
        own = {b for d, b in self.regs if d == dim}
        count = 0
        while count in own:
            count += 1
        return 1 << count

    def groups(self, dim: int, width: int) -> list[list[int]]:
        """Registers of so many elements that are consecutive along a dim, each group in order."""
        bits = self.low(dim, width.bit_length() - 1)
        inner = [sum(1 << b for k, b in enumerate(bits) if i >> k & 1) for i in range(width)]
        mask = sum(1 << b for b in bits)
        return [[r | i for i in inner] for r in range(self.registers) if not r & mask]

    def low(self, dim: int, count: int) -> list[int]:
        """The bits of a register's number for the lowest `count` bits along a dim."""
        return [self.regs.index((dim, b)) for b in range(count)]


def log2(n: int) -> int:
    assert n > 0 and n & (n - 1) == 0, f"{n} is no power of two"
    return n.bit_length() - 1


def bits_of(extents: Sequence[int], order: Sequence[int] | None = None) -> list[Bit]:
    """All bits of a tile's positions, those of the dims that come first in `order` first, the lowest ones first."""
    dims = range(len(extents) - 1, -1, -1) if order is None else order
    return [(d, b) for d in dims for b in range(log2(extents[d]))]


def blocked(
    extents: Sequence[int],
    warps: int,
    vector: int = 1,
    order: Sequence[int] | None = None,
    across: Sequence[int] = (),
) -> Layout:
    """Each thread has `vector` elements along the first dim of `order`; then come lanes, warps, and more registers.

    `warps` is the number of bits of a warp's number, `vector` that of bits.  Warps keep out of the dims `across` if
    they can.  What threads are too many for, they hold together.
    """
    bits = bits_of(extents, order)
    regs, rest = bits[:vector], bits[vector:]
    lanes, rest = rest[:LANES], rest[LANES:]
    rest.sort(key=lambda b: b[0] in across)
    own, rest = rest[:warps], rest[warps:]
    # Registers keep the order of positions.
    rest.sort(key=bits.index)
    return Layout((*regs, *rest), (*lanes, *[None] * (LANES - len(lanes))), (*own, *[None] * (warps - len(own))))


def scalar(warps: int) -> Layout:
    """The layout of a scalar."""
    return Layout((), (None,) * LANES, (None,) * warps)


def picked(register: int, picks: Sequence[int]) -> int:
    """The number made of some bits of a register's number."""
    return sum((register >> i & 1) << k for k, i in enumerate(picks))


class Renamed(NamedTuple):
    """An operand's layout that gives an op's result a layout, and the operand's register of each of the result's."""

    layout: Layout
    registers: tuple[int, ...]


@lru_cache(1 << 12)
def _linear(extents: tuple[int, ...]) -> tuple[Bit, ...]:
    """The bits of row-major positions, the lowest one first."""
    return tuple(bits_of(extents))


@lru_cache(1 << 14)
def behind(name: str, layout: Layout, given: Extents, extents: Extents, how: tuple[int, ...]) -> Renamed:
    """What a shape op's operand is to be like, so that its result has a layout without any move.

    Parameters
    ----------
    name : str
        "broadcast", "trans", "reshape", "join" or "cat" (of either operand), or "split" (of either result).
    layout : Layout
        The result's.
    given, extents : tuple of int
        The operand's extents, and the result's.
    how : tuple of int
        The op's `dims` or `perm`.
    """
    if name == "split":
        last = (len(given) - 1, 0)
        wide = Layout((*layout.regs, last), layout.lanes, layout.warps)
        return Renamed(wide, tuple(range(wide.registers)))
    names = _names(name, given, extents, how)
    picks = [i for i, b in enumerate(layout.regs) if b in names]
    found = layout.renamed(names.get)
    return Renamed(found, tuple([picked(r, picks) for r in range(layout.registers)]))


def _names(name: str, given: Extents, extents: Extents, how: tuple[int, ...]) -> dict[Bit, Bit]:
    """The operand's bit of each of the result's, where there is one."""
    if name == "broadcast":
        return {(d, b): (k, b) for k, d in enumerate(how) for b in range(log2(given[k]))}
    if name == "trans":
        return {(d, b): (k, b) for d, k in enumerate(how) for b in range(log2(given[k]))}
    if name == "reshape":
        return dict(zip(_linear(extents), _linear(given), strict=True))
    assert name in ("join", "cat"), name
    return {b: b for b in bits_of(given)}


@lru_cache(1 << 14)
def ahead(name: str, layout: Layout, given: Extents, extents: Extents, how: tuple[int, ...]) -> Layout:
    """The layout of a shape op's result for its operand's; of a broadcast's new dims in registers."""
    if name == "split":
        return layout.renamed(lambda b: None if b[0] == len(given) - 1 else b)
    names = {old: new for new, old in _names(name, given, extents, how).items()}
    found = layout.renamed(names.get)
    new = [b for b in bits_of(extents) if b not in found.bits]
    return Layout((*found.regs, *new), found.lanes, found.warps)


class Piece(NamedTuple):
    """`count` bits of a thread's number from `shift` on, that stand for those of a position from `place` on."""

    shift: int
    count: int
    place: int


@lru_cache(1 << 12)
def pieces(layout: Layout, dim: int) -> tuple[Piece, ...]:
    """The bits of a thread's number that stand for bits along a dim, in runs of consecutive ones."""
    found = [(i, b[1]) for i, b in enumerate(layout.threads) if b is not None and b[0] == dim]
    runs = [list(g) for _, g in groupby(enumerate(found), key=lambda x: (x[1][0] - x[0], x[1][1] - x[0]))]
    return tuple([Piece(run[0][1][0], len(run), run[0][1][1]) for run in runs])
