"""The fake driver as a fixture, in place of a real one if there is one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from blockarray.runtime.device import CudaDevice

    from .fake import FakeDriver

# The library is imported by the fixtures: its settings come from the environment, which the options of the run change.


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeDriver]:
    """A fresh driver; `@pytest.mark.parametrize("fake", [dict(devices=2)], indirect=True)` chooses its devices."""
    from blockarray.runtime import device
    from blockarray.runtime.cuda import copies, driver, words
    from blockarray.runtime.device import CPU, Device

    from .fake import FakeDriver

    api = FakeDriver(**getattr(request, "param", {}))
    monkeypatch.setattr(driver, "api", api)
    monkeypatch.setattr(driver, "launch_kernel", api.launch_kernel)
    monkeypatch.setattr(driver, "_missing", ())
    monkeypatch.setattr(driver, "_several", api.devices > 1)
    monkeypatch.setattr(driver, "_local", driver._Local())
    monkeypatch.setattr(driver, "_contexts", {})
    monkeypatch.setattr(words, "_arenas", {})
    monkeypatch.setattr(copies, "_slots", [])
    monkeypatch.setattr(device, "_chosen", None)
    monkeypatch.setattr(device, "config", dataclasses.replace(device.config, device=None))
    monkeypatch.setattr(Device, "_known", {"cpu": CPU})
    caches = driver.properties, driver._usable
    for cached in caches:
        cached.cache_clear()
    yield api
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def gpu(fake: FakeDriver) -> CudaDevice:
    from blockarray.runtime.device import CudaDevice, Device

    found = Device("cuda")
    assert isinstance(found, CudaDevice)
    return found
