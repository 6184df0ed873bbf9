"""cuFFT: Fourier transforms of device memory."""

from __future__ import annotations

import threading
from math import prod

import numpy as np

from ..device import CudaDevice
from . import driver, libraries, streams
from .libraries import TYPES
from .memory import allocate

_lock = threading.Lock()
#: Handles of plans and bytes of their workspaces; the oldest leave when there are too many.
_plans: dict[tuple[CudaDevice, int, int, tuple[int, ...], int], tuple[int, int]] = {}
_MAX_PLANS = 64
_FORWARD, _INVERSE = -1, 1


def transform(
    device: CudaDevice,
    source: int,
    target: int,
    dtypes: tuple[np.dtype, np.dtype],
    lengths: tuple[int, ...],
    batch: int,
    forward: bool,
) -> None:
    """Queue a transform, without a scale, of `batch` contiguous arrays of one to three axes.

    Parameters
    ----------
    device : CudaDevice
    source, target : int
        Addresses that are multiples of an element's size.  A transform to real numbers overwrites its source.
    dtypes : pair of dtype
        Of the source and of the target; of the real one, if there is one, the complex side has
        `lengths[-1] // 2 + 1` elements along its last axis.
    lengths : tuple of int
        Extents of the axes.
    batch : int
    forward : bool
    """
    with _lock:
        driver.context(device.index).enter()
        api = libraries.binding("cufft")
        key = device, TYPES[dtypes[0]], TYPES[dtypes[1]], lengths, batch
        plan, nbytes = _plans.get(key) or _make(*key)
        space = allocate(device, nbytes)
        api.set_work_area(plan, space.address)
        api.xt_exec(plan, source, target, _FORWARD if forward else _INVERSE)


def _make(device: CudaDevice, source: int, target: int, lengths: tuple[int, ...], batch: int) -> tuple[int, int]:
    api = libraries.binding("cufft")
    if len(_plans) >= _MAX_PLANS:
        api.destroy(_plans.pop(next(iter(_plans)))[0])
    plan = libraries.create(api.create, device)
    api.set_stream(plan, streams.stream(device))
    api.set_auto_allocation(plan, 0)
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    before = half if target < source else [*lengths]
    after = half if source < target else [*lengths]
    nbytes = api.xt_make_plan_many(
        plan, len(lengths), [*lengths], before, 1, prod(before), source, after, 1, prod(after), target, batch,
        source | 4,
    )  # fmt: skip
    _plans[device, source, target, lengths, batch] = plan, nbytes
    return plan, nbytes
