"""Stable sorting of contiguous rows."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ... import dtypes
from ...llvm.text import V
from ..codegen import Code
from . import keys
from .builder import Builder, predicated_store
from .network import LONGEST, THREADS, lanes, network
from .radix import DIGIT, RADIX, Ranking
from .routine import Launch, Pointer, Routine

#: Keys that one program sorts in shared memory.
SHORT = 4096
#: Elements of a row whose counts need 64 bits, with the two that say what they count.
WIDE = 1 << 30
_COUNT_THREADS, _COUNT_UNROLL = 256, 8


class Tuning(NamedTuple):
    """Sizes of a program of a pass."""

    threads: int
    items: int
    #: Programs whose counts are read at once in the look-back.
    ahead: int = 4
    #: Programs that a multiprocessor should hold.
    resident: int = 2


def tuning(bits: int, positions: int) -> Tuning:
    """The sizes for keys of `bits` bits and positions of as many (0: none)."""
    nbytes = max(bits, 32) // 8 + positions // 8
    return Tuning(384, {4: 23, 8: 15, 12: 11, 16: 8}[nbytes])


def _passes(dtype: str) -> int:
    return dtypes.SIZE[dtype]


@cache
def count(dtype: str, descending: bool, wide: bool) -> Code:
    """Histograms of all digits of each row, in one reading.

    A program counts `chunk` keys of a row, each of `parts` programs others.
    """
    word, passes, bits = "i64" if wide else "i32", _passes(dtype), keys.bits(dtype)
    parameters = [("x", "ptr"), ("bins", "ptr"), ("n", "i64"), ("parts", "i32"), ("chunk", "i64")]
    k = Builder(parameters, _COUNT_THREADS)
    p = k.parameters
    step = _COUNT_THREADS * _COUNT_UNROLL
    table = k.allocate(passes * RADIX * 4)
    for i in range(passes * RADIX * 4 // (_COUNT_THREADS * 4)):
        k.store_shared(k.add(table, k.shl(k.tid, 2)), 0, i * _COUNT_THREADS * 4)
    k.barrier()
    program = k.program()
    row = k.udiv(program, p["parts"])
    begin = k.mul(k.zext(k.sub(program, k.mul(row, p["parts"])), "i64"), p["chunk"])
    row = k.zext(row, "i64")
    end = k.min(k.add(begin, p["chunk"]), p["n"])
    x = k.at(p["x"], k.mul(row, p["n"]), bits // 8)

    def add(raw: V) -> None:
        key = keys.ordered(k, raw, dtype, descending)
        for place in range(passes):
            digit = k.and_(k.resize(k.shr(key, place * DIGIT), "i32"), RADIX - 1)
            k.count_shared(k.add(table, k.shl(digit, 2)), place * RADIX * 4)

    i = k.variable(k.add(begin, k.zext(k.tid, "i64")))
    whole = k.sub(end, (_COUNT_UNROLL - 1) * _COUNT_THREADS)
    with k.while_(lambda: k.is_("slt", k.get(i), whole)):
        at = k.get(i)
        for raw in [k.read(x, at, bits, u * _COUNT_THREADS) for u in range(_COUNT_UNROLL)]:
            add(raw)
        k.set(i, k.add(at, step))
    with k.while_(lambda: k.is_("slt", k.get(i), end)):
        at = k.get(i)
        add(k.read(x, at, bits))
        k.set(i, k.add(at, _COUNT_THREADS))
    k.barrier()
    for j in range(passes * RADIX // _COUNT_THREADS):
        found = k.load_shared(k.add(table, k.shl(k.tid, 2)), "i32", j * _COUNT_THREADS * 4)
        with k.if_(k.is_("ne", found, 0)):
            at = k.add(k.mul(row, passes * RADIX), k.zext(k.add(k.tid, j * _COUNT_THREADS), "i64"))
            k.add_global(k.at(p["bins"], at, 8 if wide else 4), k.resize(found, word))
    return k.code()


class Pass(NamedTuple):
    """What a pass over one digit moves.  Positions: "i32" or "i64" in memory, "new" if the pass makes them."""

    dtype: str
    descending: bool
    #: Counts need 64 bits.
    wide: bool
    #: Whether keys are written.
    keys: bool = True
    source: str | None = None
    result: str | None = None


@cache
def scatter(move: Pass, sizes: Tuning) -> Code:
    """One pass of a least significant digit radix sort, which reads and writes each key once.

    A program ranks its tile by the digit, publishes its 256 counts and adds those of the tiles before it by decoupled
    look-back: A. Adinets and D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs" (2022).

    Tiles are numbered by a ticket, so that those before one have begun.  A word of the look-back is a count and, in its
    two low bits, what it counts: nothing yet, this tile, or all tiles so far (from the digit's place in the row on).
    Every pass leaves all words in the last of these states, which the next pass takes for nothing yet: the words are
    zeroed once for all passes.
    """
    dtype, wide = move.dtype, move.wide
    threads, items = sizes.threads, sizes.items
    bits, slot, tile_size = keys.bits(dtype), max(4, dtypes.SIZE[dtype]), threads * items
    word, word_size = ("i64", 8) if wide else ("i32", 4)
    carried = "i64" if wide else "i32"
    carried_size = 8 if wide else 4
    parameters = [("x", "ptr")]
    parameters += [("y", "ptr")] if move.keys else []
    parameters += [("p", "ptr")] if move.source in ("i32", "i64") else []
    parameters += [("q", "ptr")] if move.result else []
    parameters += [("bins", "ptr"), ("words", "ptr"), ("ticket", "ptr")]
    parameters += [("n", "i64"), ("tiles", "i32"), ("shift", "i32"), ("nothing", "i32")]
    k = Builder(parameters, threads, sizes.resident)
    p = k.parameters
    ranking = Ranking(k, items)
    stage = k.allocate(tile_size * slot)
    stage_positions = k.allocate(tile_size * carried_size) if move.result else None
    starts = k.allocate(RADIX * word_size)
    number = k.allocate(4)

    with k.if_(k.is_("eq", k.tid, 0)):
        k.store_shared(number, k.asm("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "i32", p["ticket"]))
    ranking.clear()
    k.barrier()
    ticket = k.load_shared(number, "i32")
    row = k.udiv(ticket, p["tiles"])
    tile = k.sub(ticket, k.mul(row, p["tiles"]))
    start = k.mul(k.zext(tile, "i64"), tile_size)
    row_start = k.mul(k.zext(row, "i64"), p["n"])
    valid = k.trunc(k.min(k.sub(p["n"], start), tile_size), "i32")
    whole = k.is_("eq", valid, tile_size)
    own = k.add(k.mul(k.warp, 32 * items), k.lane)  # the thread's first key in the tile
    x = k.at(p["x"], k.add(k.add(row_start, start), k.zext(own, "i64")), bits // 8)

    # -- keys, and the counters of their digits; beyond the row's end keys are the largest
    raws = [k.variable(0, keys.word(dtype)) for _ in range(items)]
    counters = [k.variable(0) for _ in range(items)]

    def read_whole() -> None:
        loaded = [k.read(x, V("0", "i64"), bits, i * 32) for i in range(items)]
        for raw, counter, v in zip(raws, counters, loaded):
            k.set(raw, v)
            k.set(counter, ranking.counter(keys.ordered(k, v, dtype, move.descending), p["shift"]))

    def read_part() -> None:
        for i, (raw, counter) in enumerate(zip(raws, counters)):
            inside = k.is_("slt", k.add(own, i * 32), valid)
            with k.if_(inside):
                k.set(raw, k.read(x, V("0", "i64"), bits, i * 32))
            key = keys.ordered(k, k.get(raw), dtype, move.descending)
            k.set(counter, ranking.counter(k.choose(inside, key, -1), p["shift"]))

    k.either(whole, read_whole, read_part)
    digits = [k.get(c) for c in counters]
    ranking.count(digits)

    # -- publish the counts
    total, before = ranking.totals()
    this, all_ = (_next(k, p["nothing"], i) for i in (1, 2))
    published = k.variable(0, word)
    with k.if_(ranking.digits):
        beyond = k.choose(k.is_("eq", k.tid, RADIX - 1), k.sub(tile_size, valid), 0)
        k.set(published, k.resize(k.sub(k.get(total), beyond), word))
    words = k.at(p["words"], k.mul(k.zext(row, "i64"), k.mul(k.zext(p["tiles"], "i64"), RADIX)), word_size)
    mine = k.at(words, k.add(k.mul(k.zext(tile, "i64"), RADIX), k.zext(k.tid, "i64")), word_size)
    first = k.is_("eq", tile, 0)
    so_far = k.variable(0, word)

    def publish(count: V, state: V) -> None:
        k.store_relaxed(mine, k.or_(k.shl(count, 2), k.resize(state, word)))

    with k.if_(k.and_(ranking.digits, k.xor(first, True))):
        publish(k.get(published), this)
    with k.if_(first):
        found = k.variable(0, word)
        with k.if_(ranking.digits):
            at = k.add(k.mul(k.zext(row, "i64"), _passes(dtype) * RADIX), k.zext(k.tid, "i64"))
            k.set(found, k.load(k.at(p["bins"], at, word_size), word, word_size))
        k.set(so_far, ranking.exclusive(k.get(found)))
        with k.if_(ranking.digits):
            publish(k.add(k.get(so_far), k.get(published)), all_)
        k.barrier()

    # -- rank, and gather what goes to one place
    within = ranking.exclusive(k.get(total))
    ranking.place(within, before)
    ranks = ranking.ranks(digits)
    for raw, rank in zip(raws, ranks):
        k.store_shared(k.add(stage, k.mul(rank, slot)), k.get(raw))
    if stage_positions is not None:
        for rank, position in zip(ranks, _positions(k, move, own, start, row_start, valid, items)):
            k.store_shared(k.add(stage_positions, k.mul(rank, carried_size)), position)

    # -- look back
    with k.if_(k.and_(ranking.digits, k.xor(first, True))):
        k.set(so_far, _look_back(k, words, tile, p["nothing"], all_, word, sizes.ahead))
        publish(k.add(k.get(so_far), k.get(published)), all_)
    with k.if_(ranking.digits):
        k.store_shared(k.add(starts, k.mul(k.tid, word_size)), k.sub(k.get(so_far), k.resize(within, word)))
    k.barrier()

    # -- write
    y = k.at(p["y"], row_start, bits // 8) if move.keys else None
    q_size = dtypes.SIZE[move.result] if move.result else 0
    q = k.at(p["q"], row_start, q_size) if move.result else None
    stage_own = k.add(stage, k.mul(k.tid, slot))
    positions_own = k.add(stage_positions, k.mul(k.tid, carried_size)) if stage_positions is not None else None

    def write(masked: bool) -> None:
        for i in range(items):
            raw = k.load_shared(stage_own, keys.word(dtype), i * threads * slot)
            key = keys.ordered(k, raw, dtype, move.descending)
            digit = k.and_(k.resize(k.shr(key, k.resize(p["shift"], key.ty)), "i32"), RADIX - 1)
            offset = k.load_shared(k.add(starts, k.mul(digit, word_size)), word)
            index = k.add(k.tid, i * threads)
            to = k.add(offset, k.resize(index, word))
            inside = k.is_("slt", index, valid) if masked else None
            if y is not None:
                predicated_store(k, k.at(y, to, bits // 8), raw, bits, inside)
            if q is not None and positions_own is not None:
                position = k.load_shared(positions_own, carried, i * threads * carried_size)
                predicated_store(k, k.at(q, to, q_size), position, q_size * 8, inside)

    k.either(whole, lambda: write(False), lambda: write(True))
    return k.code()


def _next(k: Builder, state: V, by: int) -> V:
    """State + by, modulo 3."""
    v = k.add(state, by)
    return k.choose(k.is_("uge", v, 3), k.sub(v, 3), v)


def _positions(k: Builder, move: Pass, own: V, start: V, row_start: V, valid: V, items: int) -> list[V]:
    """The positions that go with a thread's keys."""
    carried = "i64" if move.wide else "i32"
    places = [k.add(own, i * 32) for i in range(items)]
    if move.source == "new":
        return [k.add(k.resize(start, carried), k.resize(place, carried)) for place in places]
    size = dtypes.SIZE[carried]
    p = k.at(k.parameters["p"], k.add(k.add(row_start, start), k.zext(own, "i64")), size)
    code = "mov.b{0} $0, 0; @$2 ld.global.b{0} $0, [$1+{1}];"
    return [
        k.asm(code.format(size * 8, i * 32 * size), carried, p, k.is_("slt", place, valid))
        for i, place in enumerate(places)
    ]


def _look_back(k: Builder, words: V, tile: V, nothing: V, all_: V, word: str, ahead: int) -> V:
    """The sum of this thread's counts of all tiles before `tile`, which is not the first."""
    total, at = k.variable(0, word), k.variable(k.sub(tile, 1))
    looking = k.variable(V("true", "i1"))
    with k.while_(lambda: k.get(looking)):
        position = k.get(at)
        loaded = []
        for i in range(ahead):
            # Before the first tile, its word again: it is never added twice, for it counts all tiles so far.
            before = k.intrinsic("smax", k.sub(position, i), V("0", "i32")) if i else position
            index = k.add(k.mul(k.zext(before, "i64"), RADIX), k.zext(k.tid, "i64"))
            loaded.append(k.load_relaxed(k.at(words, index, int(word[1:]) // 8), word))
        live, finished = V("true", "i1"), V("false", "i1")
        running = k.get(total)
        for v in loaded:
            state = k.and_(k.resize(v, "i32"), 3)
            live = k.and_(live, k.is_("ne", state, nothing))
            running = k.add(running, k.choose(live, k.shr(v, 2), 0))
            position = k.sub(position, k.zext(live, "i32"))
            last = k.and_(live, k.is_("eq", state, all_))
            finished = k.or_(finished, last)
            live = k.and_(live, k.xor(last, True))
        k.set(total, running)
        k.set(at, position)
        k.set(looking, k.xor(finished, True))
    return k.get(total)


@cache
def block(dtype: str, descending: bool, capacity: int, with_keys: bool, result: str | None) -> Code:
    """Rows of at most `capacity` keys (a power of two from 256 on), each sorted by one program in shared memory."""
    threads = min(512, max(RADIX, capacity // 4))
    items = capacity // threads
    bits, slot = keys.bits(dtype), max(4, dtypes.SIZE[dtype])
    parameters = [("x", "ptr")]
    parameters += [("y", "ptr")] if with_keys else []
    parameters += [("q", "ptr")] if result else []
    parameters += [("n", "i64")]
    k = Builder(parameters, threads, resident=2)
    p = k.parameters
    ranking = Ranking(k, items)
    stage = k.allocate(capacity * slot)
    stage_positions = k.allocate(capacity * 4) if result else None
    row_start = k.mul(k.zext(k.program(), "i64"), p["n"])
    valid = k.trunc(p["n"], "i32")
    own = k.add(k.mul(k.warp, 32 * items), k.lane)
    x = k.at(p["x"], k.add(row_start, k.zext(own, "i64")), bits // 8)
    places = [k.add(own, i * 32) for i in range(items)]
    inside = [k.is_("slt", place, valid) for place in places]
    raws = [k.variable(0, keys.word(dtype)) for _ in places]
    positions = [k.variable(place) for place in places]
    for i, raw in enumerate(raws):
        with k.if_(inside[i]):
            k.set(raw, k.read(x, V("0", "i64"), bits, i * 32))
    shift = k.variable(0)
    with k.while_(lambda: k.is_("ult", k.get(shift), bits)):
        ranking.clear()
        counters = []
        for raw, here in zip(raws, inside):
            key = keys.ordered(k, k.get(raw), dtype, descending)
            counters.append(ranking.counter(k.choose(here, key, -1), k.get(shift)))
        ranking.count(counters)
        total, before = ranking.totals()
        ranking.place(ranking.exclusive(k.get(total)), before)
        ranks = ranking.ranks(counters)
        moved = [(raws, stage, slot)]
        if stage_positions is not None:
            moved.append((positions, stage_positions, 4))
        for held, memory, size in moved:
            for variable, rank in zip(held, ranks):
                k.store_shared(k.add(memory, k.mul(rank, size)), k.get(variable))
        k.barrier()
        for held, memory, size in moved:
            address = k.add(memory, k.mul(own, size))
            for i, variable in enumerate(held):
                k.set(variable, k.load_shared(address, variable.ty, i * 32 * size))
        k.set(shift, k.add(k.get(shift), DIGIT))
    for i, (raw, position) in enumerate(zip(raws, positions)):
        to = k.add(row_start, k.zext(places[i], "i64"))
        if with_keys:
            predicated_store(k, k.at(p["y"], to, bits // 8), k.get(raw), bits, inside[i])
        if result:
            size = dtypes.SIZE[result]
            predicated_store(k, k.at(p["q"], to, size), k.get(position), size * 8, inside[i])
    return k.code()


def sort(
    dtype: str,
    n: int,
    rows: int = 1,
    *,
    descending: bool = False,
    with_keys: bool = True,
    positions: str | None = None,
    processors: int = 132,
    sizes: Tuning | None = None,
) -> Routine:
    """Sort rows of `n` contiguous elements.  Equal elements keep their order; NaNs are last, in descending order first.

    The operands are "x", "keys" (if `with_keys`) and "positions", none of which overlap.

    Parameters
    ----------
    dtype : str
        The IR's name of the elements' type, which is real.
    n, rows : int
        The shape; rows follow each other.
    descending : bool, optional
        Largest first.
    with_keys : bool, optional
        Write the sorted elements.
    positions : str, optional
        Write where in their rows these were, as "i32" (rows of less than 2**30 elements) or "i64".
    processors : int, optional
        Multiprocessors of the GPU.
    sizes : Tuning, optional
        Sizes of a program, instead of those that `tuning` knows.
    """
    if not n or not rows or not (with_keys or positions):
        return Routine(())
    outputs = ((Pointer("keys"),) if with_keys else ()) + ((Pointer("positions"),) if positions else ())
    if n <= LONGEST:
        bucket = 1 << (n - 1).bit_length()
        code = network(dtype, descending, bucket, with_keys, positions)
        programs = -(-rows * lanes(bucket) // THREADS)
        return Routine((Launch(code, programs, (Pointer("x"), *outputs, n, rows)),))
    if n <= SHORT:
        code = block(dtype, descending, 1 << (n - 1).bit_length(), with_keys, positions)
        return Routine((Launch(code, rows, (Pointer("x"), *outputs, n)),))

    wide = n >= WIDE
    word_size, carried = (8, "i64") if wide else (4, "i32")
    passes, size = _passes(dtype), dtypes.SIZE[dtype]
    sizes = sizes or tuning(size * 8, dtypes.SIZE[carried] * 8 if positions else 0)
    tiles = -(-n // (sizes.threads * sizes.items))
    end = 0

    def reserve(nbytes: int) -> Pointer:
        nonlocal end
        place = Pointer("workspace", end)
        end = -(-(end + nbytes) // 256) * 256
        return place

    bins = reserve(rows * passes * RADIX * word_size)
    words = reserve(rows * tiles * RADIX * word_size)
    tickets = reserve(passes * 4)
    zeroed = end

    def buffers(result: Pointer | None, nbytes: int) -> list[Pointer]:
        """Where each pass writes: the last one to the result, which the passes before it may use."""
        spare = [reserve(nbytes) if passes > 1 else result, result]
        if result is None:
            spare[1] = reserve(nbytes) if passes > 2 else None
        return [spare[(passes - i) % 2] for i in range(passes)]  # type: ignore[misc]

    key_places = buffers(Pointer("keys") if with_keys else None, rows * n * size)
    position_places = buffers(Pointer("positions"), rows * n * dtypes.SIZE[carried]) if positions else []

    step = _COUNT_THREADS * _COUNT_UNROLL
    parts = min(-(-n // (4 * step)), max(1, -(-8 * processors // rows)))
    chunk = -(-n // (parts * step)) * step
    parts = -(-n // chunk)
    launches = [
        Launch(count(dtype, descending, wide), rows * parts, (Pointer("x"), bins, n, parts, chunk)),
    ]
    for i in range(passes):
        last = i == passes - 1
        move = Pass(
            dtype, descending, wide, with_keys or not last,
            source=None if not positions else carried if i else "new",
            result=positions if last else carried if positions else None,
        )  # fmt: skip
        arguments = [key_places[i - 1] if i else Pointer("x")]
        arguments += [key_places[i]] if move.keys else []
        arguments += [position_places[i - 1]] if positions and i else []
        arguments += [position_places[i]] if positions else []
        arguments += [Pointer(bins.operand, bins.offset + i * RADIX * word_size), words]
        arguments += [Pointer(tickets.operand, tickets.offset + i * 4)]
        launches.append(Launch(scatter(move, sizes), rows * tiles, (*arguments, n, tiles, i * DIGIT, 2 * i % 3)))
    return Routine(tuple(launches), end, zeroed)
