"""What ran: kernels with times and bandwidths, launches, compilations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from . import kernels
from .runtime import profiler


class KernelTime(NamedTuple):
    """One launch: `seconds`, `bytes` that it has to read and write, `gbps` in 1e9 bytes a second."""

    name: str
    seconds: float
    bytes: int

    @property
    def gbps(self) -> float:
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


class Profile:
    """What ran inside a `profile()` block.

    Attributes
    ----------
    kernels : list of KernelTime
        Each launch of a kernel and each library call, in order.
    launches : int
        Their number.
    compiles : int
        Kernels that were compiled (not found loaded or on disk).
    compile_seconds : float
        Time that took.
    """

    def __init__(self) -> None:
        self._launches: list[profiler.Launch] = []
        self._compiled: list[tuple[str, float]] = []

    @property
    def kernels(self) -> list[KernelTime]:
        return [KernelTime(x.name, x.seconds, x.nbytes) for x in self._launches]

    @property
    def launches(self) -> int:
        return len(self._launches)

    @property
    def compiles(self) -> int:
        return len(self._compiled)

    @property
    def compile_seconds(self) -> float:
        return sum(seconds for _, seconds in self._compiled)

    def __str__(self) -> str:
        lines = [f"{'kernel':40} {'launches':>8} {'ms':>10} {'GB/s':>8}"]
        for s in profiler.summarise(self._launches):
            rate = s.nbytes / s.seconds / 1e9 if s.seconds else 0.0
            lines.append(f"{s.name:40.40} {s.count:8} {s.seconds * 1e3:10.3f} {rate:8.1f}")
        lines.append(f"{self.launches} launches, {self.compiles} compilations ({self.compile_seconds * 1e3:.1f} ms)")
        return "\n".join(lines)


@contextmanager
def profile() -> Iterator[Profile]:
    """Record what runs: `with profile() as p: ...`, then `p.kernels`, `p.launches`, `p.compiles`, `print(p)`.

    Work counts when it runs, so evaluate inside the block what should be seen.
    """
    p = Profile()
    before = len(kernels.compiled)
    with profiler.record() as launches:
        p._launches = launches
        try:
            yield p
        finally:
            p._compiled = kernels.compiled[before:]
