"""A record of launches, kept while somebody asks for it.

A launcher looks at `active`, which is empty except inside `record()`:

    if profiler.active:
        start = time.perf_counter()
        launch(...)
        profiler.note(name, time.perf_counter() - start, nbytes, programs)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast


class Launch(NamedTuple):
    """One launch.

    Attributes
    ----------
    name : str
        The kernel's.
    seconds : float
        How long it ran.
    bytes : int
        Bytes that it has to read and write.
    programs : int
        Size of its grid; 0 for a copy.
    kernels : int
        Of how many kernels it is made, one after the other: sorting on a GPU takes several.
    kind : str
        "kernel"; "routine" where a GPU sorts, searches or selects; "library call" for NumPy's functions, "cuSOLVER",
        "cuFFT"; "interpreted" for tiny arrays; "copy" between the host and a GPU.
    """

    name: str
    seconds: float
    bytes: int
    programs: int
    kernels: int = 1
    kind: str = "kernel"

    @property
    def gbps(self) -> float:
        """1e9 bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


class Summary(NamedTuple):
    """All launches of one kernel."""

    name: str
    count: int
    seconds: float
    bytes: int

    gbps = Launch.gbps


#: The records that are being kept: one list for each `record()` that is open.
active: list[list[Launch]] = []


def note(
    name: str,
    seconds: float | Callable[[], float],
    nbytes: int,
    programs: int,
    kernels: int = 1,
    kind: str = "kernel",
) -> None:
    """Add a launch to the open records; where the time is not known yet, with a function that waits for it."""
    launch = Launch(name, cast("float", seconds), nbytes, programs, kernels, kind)
    for launches in tuple(active):
        launches.append(launch)


@contextmanager
def record() -> Iterator[list[Launch]]:
    """Keep a record: `with record() as launches:` fills the list while the block runs."""
    launches: list[Launch] = []
    active.append(launches)
    try:
        yield launches
    finally:
        # By identity: two open records may hold equal lists.
        active[:] = [other for other in active if other is not launches]
        settle(launches)


def settle(launches: list[Launch]) -> None:
    """Wait for the times that are not known yet."""
    for i, launch in enumerate(launches):
        seconds: Any = launch.seconds
        if callable(seconds):
            launches[i] = launch._replace(seconds=seconds())


def summarise(launches: list[Launch]) -> list[Summary]:
    """One line for each kernel, the one that took longest first."""
    totals: dict[str, Summary] = {}
    for name, seconds, nbytes, *_ in launches:
        _, count, time, size = totals.get(name, Summary(name, 0, 0.0, 0))
        totals[name] = Summary(name, count + 1, time + seconds, size + nbytes)
    return sorted(totals.values(), key=lambda s: s.seconds, reverse=True)
