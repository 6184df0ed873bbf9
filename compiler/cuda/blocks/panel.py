"""Operands of products in shared memory, as Hopper's tensor cores take them."""

from __future__ import annotations

from typing import NamedTuple

from ...llvm.text import Text, V
from ..memory import i32

#: Bytes of the longest row, of depth in one instruction, and of what the swizzle moves as one.
ROW, DEPTH, PIECE = 128, 32, 16
#: Rows after which the swizzle repeats.
ROWS = 8
#: What panels begin at a multiple of.
ALIGNMENT = 1024
#: In a descriptor, by bytes of a row.
_SWIZZLE = {128: 1, 64: 2, 32: 3}


class Panel(NamedTuple):
    """A matrix whose rows are cut into boxes of rows of up to 128 bytes, one box after the other.

    Pieces of a row change places as the hardware's swizzle says.  `size` is that of an element, in bytes.
    """

    rows: int
    columns: int
    size: int

    @property
    def row(self) -> int:
        """Bytes of a box's row."""
        return min(ROW, self.columns * self.size)

    @property
    def side(self) -> int:
        """Elements of a box's row."""
        return self.row // self.size

    @property
    def boxes(self) -> int:
        return self.columns * self.size // self.row

    @property
    def box(self) -> int:
        """Bytes of a box."""
        return self.rows * self.row

    @property
    def nbytes(self) -> int:
        return self.boxes * self.box

    def descriptor(self, deep: bool) -> int:
        """That of a panel at address 0 whose rows lie along the depth of products (`deep`), or whose columns do."""
        leading = 1 if deep else self.box >> 4
        return _SWIZZLE[self.row] << 62 | (ROWS * self.row >> 4) << 32 | leading << 16

    def step(self, number: int, deep: bool) -> int:
        """Where an instruction's part of the depth begins, in the units of descriptors."""
        if not deep:
            return number * (DEPTH // self.size * self.row >> 4)
        box, inside = divmod(number * DEPTH, self.row)
        return box * self.box + inside >> 4

    def lines(self, first: int, deep: bool) -> int:
        """Where a line (a row if `deep`, else a column) begins that is a multiple of eight, in those units."""
        if deep:
            return first * self.row >> 4
        # Groups of warps that share the columns may begin within a row: what swaps pieces goes by their addresses.
        box, inside = divmod(first * self.size, self.row)
        return box * self.box + inside >> 4

    def placed(self, t: Text, row: V, column: V) -> V:
        """The offset of an element, in bytes."""
        nbytes = t.bin("mul", column, i32(self.size))
        box = t.bin("mul", t.bin("lshr", nbytes, i32(self.row.bit_length() - 1)), i32(self.box))
        inside = t.bin("add", t.bin("and", nbytes, i32(self.row - 1)), t.bin("mul", row, i32(self.row)))
        place = t.bin("add", box, inside)
        turn = t.bin("and", t.bin("lshr", place, i32(7)), i32(self.row // PIECE - 1))
        return t.bin("xor", place, t.bin("shl", turn, i32(4)))
