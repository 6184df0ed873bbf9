"""What the schedules share that multiply in tensor cores a warp at a time; see gemm.py.

A warp has blocks of 16 rows and 8 columns of sums.  Of each, a thread has two rows, eight apart, of two neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from .memory import i32
from .simt import Simt, Tiles, fits


class Warps(Simt, ABC):
    """Products whose panels lie as memory does, and whose steps are multiplied as a whole."""

    natural = True
    padded = True
    #: Rows and columns of a warp.
    warp: tuple[int, int]

    @abstractmethod
    def _tiles(self) -> Tiles:
        """(least rows and columns of a tile, rows and columns of a warp), best first."""

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        for tile, warp in self._tiles():
            if fits(tile, self.block):
                self.warp = warp
                return tile, (warp[0] // 8, warp[1] // 4)
        raise NotImplementedError("a product's block must be of tiles of 16 by 16")

    def _arrange(self) -> None:
        """Panels lie as memory does, whether they are copied or not."""

    def _threads(self) -> None:
        t, tid = self.t, self.tid
        #: The thread's number in its warp, and the warp's in the block.
        self.lane, self.number = t.bin("and", tid, i32(31)), t.bin("lshr", tid, i32(5))
        broad = self.columns // self.warp[1]
        #: Where the warp's rows and columns begin.
        self.corner = (
            t.bin("mul", t.bin("lshr", self.number, i32(broad.bit_length() - 1)), i32(self.warp[0])),
            t.bin("mul", t.bin("and", self.number, i32(broad - 1)), i32(self.warp[1])),
        )
        self.run = [1, 2]
        self.down = t.bin("add", self.corner[0], t.bin("lshr", self.lane, i32(2)))
        self.across = t.bin("add", self.corner[1], t.bin("shl", t.bin("and", self.lane, i32(3)), i32(1)))

    def _offset(self, index: int, axis: int) -> int:
        return index * 8 if axis == 0 else index // 2 * 8 + index % 2
