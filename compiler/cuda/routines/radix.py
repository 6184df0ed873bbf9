"""Ranking of a block's keys by one digit: the heart of the radix sorts."""

from __future__ import annotations

from collections.abc import Sequence

from ...llvm.text import V
from .builder import Builder, Variable

DIGIT = 8
RADIX = 1 << DIGIT
#: Items whose atomics are in flight together.
_GROUP = 4


class Ranking:
    """Ranks of a block's keys by a digit, equal digits in order.

    Thread t of a warp holds items t, t + 32, ... of the warp's share: a key's place is (warp, item, lane).

    Each warp counts in its own histogram.  Once the counts of the block are known, those of a warp are replaced by the
    ranks that its first key of each digit gets; a key's rank is that plus the number of equal digits before it, which
    the lanes find by comparing their digits bit by bit in ballots.

    Parameters
    ----------
    k : Code
    items : int
        Keys of a thread.
    """

    def __init__(self, k: Builder, items: int) -> None:
        self.k, self.items, self.warps = k, items, k.threads // 32
        self.digits = k.is_("ult", k.tid, RADIX)
        self._counts = k.allocate(self.warps * RADIX * 4, RADIX * 4)
        self._sums = k.allocate(8 * 8)
        self._mine = k.add(self._counts, k.shl(k.warp, 10))
        self._column = k.add(self._counts, k.shl(k.tid, 2))

    def clear(self) -> None:
        """Begin.  (Each warp its own counts, so no barrier is due.)"""
        k = self.k
        address = k.add(self._mine, k.shl(k.lane, 4))
        k.zero_shared(address)
        k.zero_shared(address, 512)
        k.warp_barrier()

    def counter(self, key: V, shift: V) -> V:
        """The address of this warp's count of a key's digit, which stands for the digit from here on."""
        k = self.k
        digit = k.and_(k.resize(k.shr(key, k.resize(shift, key.ty)), "i32"), RADIX - 1)
        return k.add(k.shl(digit, 2), self._mine)

    def count(self, counters: Sequence[V]) -> None:
        for counter in counters:
            self.k.count_shared(counter)

    def totals(self) -> tuple[Variable, list[Variable]]:
        """For each thread below 256: keys of the block with this digit, and of the warps before each warp."""
        k = self.k
        k.barrier()
        total, before = k.variable(0), [k.variable(0) for _ in range(self.warps)]
        with k.if_(self.digits):
            running = V("0", "i32")
            for warp, variable in enumerate(before):
                k.set(variable, running)
                running = k.add(running, k.load_shared(self._column, "i32", warp * RADIX * 4))
            k.set(total, running)
        return total, before

    def exclusive(self, v: V) -> V:
        """The sum of v over the threads below, for the first 256 threads."""
        k, inclusive, size = self.k, v, int(v.ty[1:]) // 8
        for distance in (1, 2, 4, 8, 16):
            below = k.shuffle_up(inclusive, distance)
            inclusive = k.add(inclusive, k.choose(k.is_("uge", k.lane, distance), below, 0))
        last = k.and_(k.is_("eq", k.lane, 31), self.digits)
        with k.if_(last):
            k.store_shared(k.add(self._sums, k.mul(k.warp, size)), inclusive)
        k.barrier()
        result = k.sub(inclusive, v)
        for warp in range(7):
            partial = k.load_shared(self._sums, v.ty, warp * size)
            result = k.add(result, k.choose(k.is_("ugt", k.warp, warp), partial, 0))
        return result

    def place(self, first: V, before: Sequence[Variable]) -> None:
        """Replace the counts by ranks: `first` is that of the block's first key of this thread's digit."""
        k = self.k
        with k.if_(self.digits):
            for warp, variable in enumerate(before):
                k.store_shared(self._column, k.add(first, k.get(variable)), warp * RADIX * 4)
        k.barrier()

    def ranks(self, counters: Sequence[V]) -> list[V]:
        """Each key's place among the block's."""
        k, result = self.k, []
        upto = k.lanes_up_to_this()
        above = k.xor(upto, -1)
        for start in range(0, len(counters), _GROUP):
            group = counters[start : start + _GROUP]
            equal = [self._equal(counter) for counter in group]
            among = [k.intrinsic("ctpop", k.and_(lanes, upto)) for lanes in equal]
            for counter, lanes, count in zip(group, equal, among):
                # The last of the equal lanes moves the counter on, once all have read it.
                last = k.is_("eq", k.and_(lanes, above), 0)
                result.append(k.add(k.load_shared(counter, "i32"), count))
                k.warp_barrier()
                k.asm("@$2 st.shared.b32 [$0], $1;", None, counter, result[-1], last)
                k.warp_barrier()
        return [k.add(rank, -1) for rank in result]

    def _equal(self, counter: V) -> V:
        """The lanes with the same digit."""
        # A ballot says who has a bit set; who differs from this lane is that or its complement.
        code = []
        for bit in range(DIGIT):
            code += [f"and.b32 m, $1, {4 << bit}", "setp.ne.u32 p, m, 0", f"vote.sync.ballot.b32 b{bit % 2}, p, -1"]
            code += ["selp.b32 m, -1, 0, p", f"xor.b32 b{bit % 2}, b{bit % 2}, m"]
            if bit == 1:
                code += ["or.b32 $0, b0, b1"]
            elif bit % 2:
                code += ["lop3.b32 $0, $0, b0, b1, 0xFE"]  # the three's union
        different = self.k.asm(f"{{ .reg .pred p; .reg .b32 b<2>, m; {'; '.join(code)}; }}", "i32", counter)
        return self.k.xor(different, -1)
