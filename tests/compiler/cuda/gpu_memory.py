"""The emulator's memory: arrays between which nothing may be touched, and who was where since which barrier."""

from __future__ import annotations

import re

import numpy as np

from blockarray.compiler.cuda.codegen import Code

GUARD = 64


class Races:
    """Who read and who wrote each place last: barriers of the program before (32 bits), program (18), thread (14).

    `readers` threads read side by side: one of them may overwrite what all of them have read.
    """

    THREAD, PROGRAM = (1 << 14) - 1, (1 << 32) - (1 << 14)

    def __init__(self, nbytes: int, readers: int = 1) -> None:
        self.readers = readers
        self.read, self.written = (np.zeros(nbytes, np.int64) for _ in range(2))

    def _meets(self, seen: np.ndarray, places: np.ndarray, mine: np.ndarray) -> np.bool_:
        """Whether another thread was there with no barrier since."""
        other = seen[places]
        apart = other ^ mine
        earlier = (apart & self.PROGRAM == 0) & (other >> 32 != mine >> 32)
        return ((other != 0) & (apart & 0xFFFFFFFF != 0) & ~earlier).any()

    def load(self, places: np.ndarray, who: np.ndarray, program: np.ndarray, epoch: np.ndarray) -> None:
        mine = self._stamp(who, program, epoch)
        assert not self._meets(self.written, places, mine), "read before a barrier"
        mine = self._stamp(who // self.readers, program, epoch)
        before = self.read[places]
        self.read[places] = mine
        # All ones: several threads, of several programs.
        for other in (before, self.read[places]):
            if not other.any() or (other == mine).all():
                continue
            earlier = ((other ^ mine) & self.PROGRAM == 0) & (other >> 32 < mine >> 32)
            apart = np.where((other == 0) | earlier, 0, other ^ mine)
            if apart.any():
                mine = mine | np.where(apart & 0xFFFFFFFF != 0, self.THREAD, 0)
                mine = mine | np.where(apart & self.PROGRAM != 0, self.PROGRAM, 0)
                self.read[places] = np.maximum(self.read[places], mine)

    def store(self, places: np.ndarray, who: np.ndarray, program: np.ndarray, epoch: np.ndarray) -> None:
        mine = self._stamp(who, program, epoch)
        reader = self._stamp(who // self.readers, program, epoch)
        for seen, me in ((self.read, reader), (self.written, mine)):
            assert not self._meets(seen, places, me), "overwritten before a barrier"
        self.written[places] = mine
        assert (self.written[places] == mine).all(), "two threads write to one place"

    @staticmethod
    def _stamp(who: np.ndarray, program: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        return (epoch.astype(np.int64) << 32 | program << 14 | who + 1)[:, None]


class Memory:
    """Global memory: arrays, and between them bytes that nothing may touch."""

    def __init__(self) -> None:
        self.size = 4096
        #: Where a module's own variables are.
        self.names: dict[str, int] = {}
        self.variables: list[np.ndarray] = []
        self.arrays: list[tuple[int, np.ndarray]] = []

    def put(self, array: np.ndarray, offset: int = 0) -> int:
        """The array's address, `offset` bytes after a multiple of 512."""
        self.size = -(-(self.size + GUARD) // 512) * 512 + offset
        self.arrays.append((self.size, array))
        self.size += array.nbytes
        return self.arrays[-1][0]

    def declare(self, code: Code) -> None:
        """Put the variables of a module, which begin as 0."""
        for name, count in re.findall(r"(@\w+) = internal addrspace\(1\) global (?:\[(\d+) x )?i32", code.text):
            variable = np.zeros(int(count or 1), np.int32)
            self.variables.append(variable)
            self.names[name] = self.put(variable)

    def open(self) -> None:
        total = -(-self.size // 512) * 512 + 4096
        self.bytes = np.full(total, 0xA5, np.uint8)
        self.allowed = np.zeros(total, np.bool_)
        #: Bytes whose order of accesses does not matter.
        self.shared = np.zeros(total, np.bool_)
        self.races = Races(total, 32)
        for at, array in self.arrays:
            self.bytes[at : at + array.nbytes] = array.view(np.uint8)
            self.allowed[at : at + array.nbytes] = True

    def close(self) -> None:
        for at, array in self.arrays:
            array.view(np.uint8)[:] = self.bytes[at : at + array.nbytes]
        assert not any(a.any() for a in self.variables), "a variable that the next launch finds changed"
