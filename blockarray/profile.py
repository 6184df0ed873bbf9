"""What ran: kernels with times and bandwidths, launches, compilations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import kernels
from .runtime import profiler


class Profile:
    """What ran inside a `profile()` block.

    Attributes
    ----------
    kernels : list of Launch
        Each launch of a kernel and each library call, in order: `name`, `seconds` (a GPU's are of its own clock; to
        look at them is to wait for it), `bytes` that it has to read and write, `programs` of its grid, `gbps` (1e9
        bytes a second), `kernels`, of how many it is made (sorting on a GPU takes several), and `kind`: "kernel",
        "routine", "library call", "cuSOLVER", "cuFFT" or "interpreted".
    launches : int
        How many kernels and library calls that were: as many as a GPU's profiler counts.
    copies : list of Launch
        Each copy between the host and a GPU, with the seconds that the host took or waited for it.
    compiles : int
        Kernels that were compiled (not found loaded or on disk).
    compile_seconds : float
        Time that took.
    """

    def __init__(self) -> None:
        self._launches: list[profiler.Launch] = []
        self._compiled: list[tuple[str, float]] = []

    @property
    def kernels(self) -> list[profiler.Launch]:
        profiler.settle(self._launches)
        return [launch for launch in self._launches if launch.programs]

    @property
    def copies(self) -> list[profiler.Launch]:
        return [launch for launch in self._launches if not launch.programs]

    @property
    def launches(self) -> int:
        return sum(launch.kernels for launch in self._launches if launch.programs)

    @property
    def compiles(self) -> int:
        return len(self._compiled)

    @property
    def compile_seconds(self) -> float:
        return sum(seconds for _, seconds in self._compiled)

    def __str__(self) -> str:
        lines = [f"{'kernel':40} {'launches':>8} {'ms':>10} {'GB/s':>8}"]
        lines += [
            f"{s.name:40.40} {s.count:8} {s.seconds * 1e3:10.3f} {s.gbps:8.1f}"
            for s in profiler.summarise([*self.kernels, *self.copies])
        ]
        copies = f"{len(self.copies)} copies, " if self.copies else ""
        compiled = f"{self.compiles} compilations ({self.compile_seconds * 1e3:.1f} ms)"
        lines.append(f"{self.launches} launches, {copies}{compiled}")
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
