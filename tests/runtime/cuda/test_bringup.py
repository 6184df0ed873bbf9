"""The checks of bringup.py, on a GPU."""

from __future__ import annotations

import pytest

from blockarray.runtime.device import CudaDevice, Device

from . import bringup


@pytest.mark.gpu
@pytest.mark.parametrize("check", bringup.CHECKS, ids=lambda check: check.__name__)
def test_on_a_gpu(check: bringup.Check):
    gpu = Device("cuda")
    assert isinstance(gpu, CudaDevice)
    check(gpu)
