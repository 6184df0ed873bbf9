"""What of the machine this process may use: affinity, and the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def cpus() -> int:
    """CPUs that this process may keep busy, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    for folder in _groups(""):
        if len(words := _read(folder / "cpu.max").split()) == 2:
            count = min(count, _ratio(*words))
    for folder in _groups("cpu"):
        count = min(count, _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")))
    return max(count, 1)


def memory() -> int:
    """Bytes of memory that this process may use."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for folder in _groups(controller):
            if (limit := _read(folder / name)).isdecimal():
                total = min(total, int(limit))
    return total


def _groups(controller: str) -> Iterator[Path]:
    """Folders of this process's control group and of those around it; `controller` "" is version 2's hierarchy."""
    base = _ROOT / controller
    yield base
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = Path(path.lstrip("/"))
            yield from (base / part for part in (folder, *folder.parents) if part.parts)


def _ratio(quota: str, period: str) -> int:
    """A quota in whole CPUs, rounded up; many where there is none."""
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return 1 << 20
    return -(-int(quota) // int(period))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
