from __future__ import annotations

import copy
import pickle

import pytest

from blockarray.runtime import device
from blockarray.runtime.device import Device, default_device, devices


def test_names():
    cpu = Device("cpu")
    assert cpu is Device("CPU") is Device("cpu:0") is Device(cpu)
    assert str(cpu) == "cpu" and repr(cpu) == "Device('cpu')"
    assert cpu == "cpu" and cpu != "cuda:0" and cpu != 1
    assert {cpu: 1}[Device("cpu")] == 1 and hash(cpu) == hash("cpu")
    assert cpu in devices()
    assert pickle.loads(pickle.dumps(cpu)) is cpu is copy.deepcopy(cpu)


@pytest.mark.parametrize("name", ["", "gpu", "cpu:1", "cpu:", "cpu:x", "cpu:-1"])
def test_unknown(name):
    with pytest.raises(ValueError, match="available: cpu"):
        Device(name)


def test_not_a_name():
    with pytest.raises(TypeError, match="int"):
        Device(0)  # pyright: ignore[reportArgumentType]


def test_default(monkeypatch):
    monkeypatch.setattr(device, "_chosen", None)
    assert default_device() == "cpu"
    monkeypatch.setattr(device.config, "device", "tpu")
    with pytest.raises(ValueError, match="tpu"):
        default_device()
