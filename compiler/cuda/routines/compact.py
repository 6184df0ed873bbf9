"""Stream compaction: what a condition selects, in order, and how much that is."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ... import dtypes
from ...llvm.text import V
from ..codegen import Code
from . import keys
from .builder import Builder, predicated_store
from .routine import Launch, Pointer, Routine

THREADS, ITEMS = 256, 16
TILE = THREADS * ITEMS
#: What a word of the look-back counts (its two low bits; 0: nothing yet): a tile's elements, or also all before it.
_TILE, _ALL = 1, 2


class Selection(NamedTuple):
    """What is selected, and what is written of it."""

    #: Type of the elements that the condition looks at.
    dtype: str
    #: "nonzero": elements that are not zero.  "distinct": of equal neighbours the first.
    condition: str = "nonzero"
    #: With "distinct": whether NaNs are equal.
    equal_nan: bool = True
    #: Bytes of a value that is written for each, 0 for none.
    value: int = 0
    #: Type of the positions written, if any.
    positions: str | None = None


@cache
def kernel(selection: Selection) -> Code:
    """The elements of a vector that meet a condition, by one reading.

    A warp's ballots rank its elements; the tiles before are counted by decoupled look-back, 32 tiles at a time.
    """
    dtype, bits = selection.dtype, keys.bits(selection.dtype)
    parameters = [("x", "ptr")]
    parameters += [("v", "ptr"), ("y", "ptr")] if selection.value else []
    parameters += [("q", "ptr")] if selection.positions else []
    parameters += [("count", "ptr"), ("words", "ptr"), ("ticket", "ptr"), ("n", "i64"), ("tiles", "i32")]
    k = Builder(parameters, THREADS, resident=4)
    p = k.parameters
    number, sums, base = k.allocate(4), k.allocate(THREADS // 32 * 4), k.allocate(8)
    with k.if_(k.is_("eq", k.tid, 0)):
        k.store_shared(number, k.asm("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "i32", p["ticket"]))
    k.barrier()
    tile = k.load_shared(number, "i32")
    start = k.mul(k.zext(tile, "i64"), TILE)
    valid = k.trunc(k.min(k.sub(p["n"], start), TILE), "i32")
    own = k.add(k.mul(k.warp, 32 * ITEMS), k.lane)
    first = k.add(start, k.zext(own, "i64"))
    x = k.at(p["x"], first, bits // 8)

    # -- what is selected, as a bit a lane
    masks = [k.variable(0) for _ in range(ITEMS)]

    def read(partial: bool) -> None:
        inside = [k.is_("slt", k.add(own, i * 32), valid) for i in range(ITEMS)] if partial else None
        loaded = [_read(k, x, i * 32, bits, inside[i] if inside else None) for i in range(ITEMS)]
        if selection.condition == "distinct":
            # The element before the vector's first is not read: the first itself stands for it.
            at_first = [k.is_("eq", k.add(first, i * 32), 0) for i in range(ITEMS)]
            outside = [k.or_(f, k.xor(inside[i], True)) if inside else f for i, f in enumerate(at_first)]
            before = [_read(k, x, i * 32 - 1, bits, k.xor(o, True)) for i, o in enumerate(outside)]
        for i, (mask, raw) in enumerate(zip(masks, loaded)):
            if selection.condition == "nonzero":
                chosen = k.is_("ne", _magnitude(k, raw, dtype), 0)
            else:
                key = keys.ordered(k, raw, dtype)
                chosen = k.or_(k.is_("ne", key, keys.ordered(k, before[i], dtype)), at_first[i])
                if dtype in dtypes.FLOAT and not selection.equal_nan:
                    chosen = k.or_(chosen, k.is_("eq", key, (1 << bits) - 1))
            if inside:
                chosen = k.and_(chosen, inside[i])
            k.set(mask, k.ballot(chosen))

    k.either(k.is_("eq", valid, TILE), lambda: read(False), lambda: read(True))
    selected = [k.get(mask) for mask in masks]
    counts = [k.intrinsic("ctpop", mask) for mask in selected]
    total = counts[0]
    for c in counts[1:]:
        total = k.add(total, c)
    with k.if_(k.is_("eq", k.lane, 0)):
        k.store_shared(k.add(sums, k.shl(k.warp, 2)), total)
    k.barrier()

    # -- the values, on their way meanwhile if registers hold them
    lane_bit = k.shl(1, k.lane)
    width = min(selection.value, 8)
    parts = selection.value // width if width else 0
    chosen = [k.is_("ne", k.and_(mask, lane_bit), 0) for mask in selected]
    source = k.at(p["v"], first, selection.value) if parts else None
    early: list[V] = []
    if parts == 1 and source is not None:
        early = [_read(k, source, i * 32, width * 8, c) for i, c in enumerate(chosen)]

    # -- what the warps and the tiles before have selected
    before_warp, block_total = V("0", "i32"), V("0", "i32")
    for warp in range(THREADS // 32):
        partial = k.load_shared(sums, "i32", warp * 4)
        before_warp = k.add(before_warp, k.choose(k.is_("ugt", k.warp, warp), partial, 0))
        block_total = k.add(block_total, partial)
    block_total = k.zext(block_total, "i64")
    with k.if_(k.is_("eq", k.warp, 0)):
        mine = k.at(p["words"], tile, 8)
        with k.if_(k.and_(k.is_("eq", k.lane, 0), k.is_("ne", tile, 0))):
            k.store_relaxed(mine, k.or_(k.shl(block_total, 2), _TILE))
        before = _look_back(k, p["words"], tile)
        with k.if_(k.is_("eq", k.lane, 0)):
            so_far = k.add(before, block_total)
            k.store_relaxed(mine, k.or_(k.shl(so_far, 2), _ALL))
            k.store_shared(base, before)
            with k.if_(k.is_("eq", k.add(tile, 1), p["tiles"])):
                k.store(so_far, p["count"], 8)
    k.barrier()

    # -- write
    running = k.add(k.load_shared(base, "i64"), k.zext(before_warp, "i64"))
    below = k.shr(k.lanes_up_to_this(), 1)
    for i, (mask, count) in enumerate(zip(selected, counts)):
        to = k.add(running, k.zext(k.intrinsic("ctpop", k.and_(mask, below)), "i64"))
        running = k.add(running, k.zext(count, "i64"))
        place = k.add(first, i * 32)
        for part in range(parts):
            assert source is not None
            value = early[i] if early else _read(k, source, i * 32 * parts + part, width * 8, chosen[i])
            target = k.at(k.at(p["y"], to, selection.value), V(str(part), "i64"), width)
            predicated_store(k, target, value, width * 8, chosen[i])
        if selection.positions:
            nbytes = dtypes.SIZE[selection.positions]
            predicated_store(k, k.at(p["q"], to, nbytes), k.resize(place, f"i{nbytes * 8}"), nbytes * 8, chosen[i])
    return k.code()


def _read(k: Builder, x: V, offset: int, bits: int, condition: V | None) -> V:
    """The element `offset` elements behind an address as an integer of at least 32 bits; 0 where a condition fails."""
    ty = "i64" if bits == 64 else "i32"
    register = max(bits, 32)
    at = f"[$1+{offset * bits // 8}]"
    kind = f"ld.global.{'u' if bits < 32 else 'b'}{bits}"
    if condition is None:
        return k.asm(f"{kind} $0, {at};", ty, x)
    return k.asm(f"mov.b{register} $0, 0; @$2 {kind} $0, {at};", ty, x, condition)


def _magnitude(k: Builder, raw: V, dtype: str) -> V:
    """Zero for zeros."""
    return k.and_(raw, (1 << keys.bits(dtype) - 1) - 1) if dtype in dtypes.FLOAT else raw


def _look_back(k: Builder, words: V, tile: V) -> V:
    """What the tiles before have selected, found by a warp."""
    total, at = k.variable(0, "i64"), k.variable(k.sub(k.sub(tile, 1), k.lane))
    looking = k.variable(k.is_("ne", tile, 0))
    with k.while_(lambda: k.get(looking)):
        place = k.get(at)
        exists = k.is_("sge", place, 0)
        # Before the first tile, its word, which no lane beyond it adds.
        v = k.load_relaxed(k.at(words, k.choose(exists, place, 0), 8), "i64")
        state = k.and_(k.trunc(v, "i32"), 3)
        ended = k.ballot(k.is_("eq", state, _ALL))
        last = k.sub(k.and_(ended, k.sub(0, ended)), 1)  # the lanes before the first that counts all: all, if none
        empty = k.and_(k.ballot(k.is_("eq", state, 0)), last)
        with k.if_(k.is_("eq", empty, 0)):
            # Not zero in the lanes behind that one.
            counted = k.and_(k.shr(k.lanes_up_to_this(), 1), k.xor(last, -1))
            sum_ = k.choose(k.is_("eq", counted, 0), k.shr(v, 2), 0)
            for distance in (16, 8, 4, 2, 1):
                sum_ = k.add(sum_, k.shuffle_xor(sum_, distance))
            k.set(total, k.add(k.get(total), sum_))
            k.set(at, k.sub(place, 32))
            k.set(looking, k.is_("eq", ended, 0))
    return k.get(total)


def compact(selection: Selection, n: int) -> Routine:
    """Write what a condition selects of a vector of `n` elements.

    The operands are "x", what the condition looks at; "values", elements of `selection.value` bytes, and "selected",
    those of them that it selects; "positions", where they are; "count", an i64 that says how many.  Results have room
    for all n.
    """
    tiles = max(1, -(-n // TILE))
    arguments: list[int | Pointer] = [Pointer("x")]
    arguments += [Pointer("values"), Pointer("selected")] if selection.value else []
    arguments += [Pointer("positions")] if selection.positions else []
    arguments += [Pointer("count"), Pointer("workspace", 256), Pointer("workspace"), n, tiles]
    nbytes = 256 + tiles * 8
    return Routine((Launch(kernel(selection), tiles, tuple(arguments)),), nbytes, nbytes)
