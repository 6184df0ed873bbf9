"""Schedules that were chosen by measuring, kept on disk for each device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from . import kernels
from .compiler import cpu
from .compiler.choices import Choice, Choices
from .runtime import cache as disk
from .runtime import threads
from .runtime.device import CudaDevice, Device

#: Choices of a device that are kept; the oldest leave when there are more.
_MOST = 10_000


class Table(Choices):
    """What is known of devices of a kind, by the keys of the compiler's choices; `name` is theirs on disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = self._stored()

    def choose(self, key: str, usual: Choice, others: Callable[[], Iterable[Choice]]) -> Choice:
        return self.known.get(key, usual)

    def learn(self, found: Mapping[str, Choice]) -> None:
        """Keep choices, beside those that another process may have found meanwhile."""
        known = {**self._stored(), **self.known}
        for key, choice in found.items():
            known.pop(key, None)
            known[key] = choice
        self.known = dict(list(known.items())[-_MOST:])
        disk.put(self.name, json.dumps(self.known, default=dict).encode())

    def _stored(self) -> dict[str, Choice]:
        data = disk.get(self.name)
        return {} if data is None else json.loads(data)


def table(device: Device) -> Table:
    """The table of a device, which is that of all like it."""
    if isinstance(device, CudaDevice):
        what = f"{device.name}, {device.multiprocessors} multiprocessors"
    else:
        what = f"{cpu.host_target().key}, {threads.num_threads()} threads"
    # Another compiler's schedules are others.
    return named(hashlib.sha256("\0".join(("tuned", what, kernels.compiler_version())).encode()).hexdigest())


#: One table a name.
named = cache(Table)
