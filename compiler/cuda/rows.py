"""Rows of 16-bit elements that begin anywhere, from shared memory to memory, a warp at a time.

Words of 32 bits are stored where memory has them, which may be between two of shared memory; what is left of a row is
an element at either end.
"""

from __future__ import annotations

from ..llvm.text import V
from . import memory
from .elements import Code
from .memory import SHARED, i32

#: Rows of a box, elements of one, and bytes of one.
ROWS, ELEMENTS, PITCH = 16, 64, 128


class Box:
    """Where a thread finds its words of boxes, whose pieces of 16 bytes are exchanged as the hardware's swizzle does.

    Parameters
    ----------
    offset : V
        Bytes before the warp's first box in shared memory, a multiple of 1024.
    """

    def __init__(self, t: Code, lane: V, offset: V) -> None:
        self.t = t
        self.lane = lane
        self.offset = offset
        following = t.call("llvm.umin.i32", "i32", [t.bin("add", lane, i32(1)), i32(31)])
        self.words = [t.bin("add", offset, t.bin("shl", k, i32(2))) for k in (lane, following)]
        #: The row at whose beginning (or end, in the upper half of the warp) the thread stores an element.
        self.row = t.bin("and", lane, i32(ROWS - 1))
        self.tail = t.cmp("uge", lane, i32(ROWS))

    def _at(self, place: V, beyond: int) -> V:
        t = self.t
        return memory.at(t, memory.at(t, V("@shared", SHARED), t.cast("zext", place, "i64")), beyond)

    def store(self, start: V, pitch: V, rows: V, columns: V, beyond: int) -> None:
        """Store a box.

        Parameters
        ----------
        start, pitch : V
            Address of the first element, and bytes from one row to the next.
        rows, columns : V
            How many there are; what is further is not stored.
        beyond : int
            Bytes from the warp's first box to this one.
        """
        t = self.t
        end = t.call("llvm.smin.i32", "i32", [columns, i32(ELEMENTS)])
        first = t.bin("shl", self.lane, i32(1))
        address = start
        for row in range(ROWS):
            if row:
                address = memory.at(t, address, pitch)
            odd = self._odd(address)
            low, high = (
                t.load(self._at(t.bin("xor", word, i32(row % 8 << 4)), row * PITCH + beyond), "i32", 4)
                for word in self.words
            )
            value = t.call("llvm.fshr.i32", "i32", [high, low, t.bin("shl", odd, i32(4))])
            element = t.bin("add", first, odd)
            whole = t.cmp("slt", t.bin("add", element, i32(1)), end)
            mask = t.bin("and", whole, t.cmp("sgt", rows, i32(row)))
            place = memory.at(t, address, t.cast("zext", t.bin("shl", element, i32(1)), "i64"))
            memory.store(t, [value], place, "i32", mask)
        # An element before the first word, or after the last one.
        address = memory.at(t, start, t.bin("mul", pitch, t.cast("zext", self.row, "i64")))
        odd = self._odd(address)
        last = t.bin("sub", end, i32(1))
        element = t.select(self.tail, t.call("llvm.smax.i32", "i32", [last, i32(0)]), i32(0))
        alone = t.select(self.tail, t.cmp("eq", t.bin("and", last, i32(1)), odd), t.cmp("ne", odd, i32(0)))
        inside = t.bin("and", t.cmp("sgt", rows, self.row), t.cmp("sgt", end, i32(0)))
        column = t.bin("xor", t.bin("shl", element, i32(1)), t.bin("shl", t.bin("and", self.row, i32(7)), i32(4)))
        place = t.bin("add", self.offset, t.bin("add", t.bin("mul", self.row, i32(PITCH)), column))
        value = t.load(self._at(place, beyond), "i16", 2)
        to = memory.at(t, address, t.cast("zext", t.bin("shl", element, i32(1)), "i64"))
        memory.store(t, [value], to, "i16", t.bin("and", alone, inside))

    def _odd(self, address: V) -> V:
        """Whether words begin with a row's second element, 0 or 1."""
        t = self.t
        bits = t.cast("trunc", t.op(f"ptrtoint {address} to i64", "i64"), "i32")
        return t.bin("and", t.bin("lshr", bits, i32(1)), i32(1))
