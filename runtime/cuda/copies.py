"""Copies between host and device, and between devices, in the order of the devices' streams."""

from __future__ import annotations

import numpy as np

from .memory import Buffer


def copy_from_host(source: np.ndarray, buffer: Buffer, offset: int = 0) -> None:
    """Copy an array's elements, in C order, to a buffer from byte `offset` on.

    Returns when `source` may be changed; the copy may still be under way on the device's stream.
    """
    raise NotImplementedError


def copy_to_host(buffer: Buffer, offset: int, out: np.ndarray) -> None:
    """Fill a C-contiguous array from a buffer's bytes from `offset` on, and wait until it is done."""
    raise NotImplementedError


def copy(source: Buffer, offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
    """Copy bytes between buffers on one device or on two, in the order of both streams; does not wait."""
    raise NotImplementedError


def clear(buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> None:
    """Set bytes (all from `offset` on by default) to zero, in stream order."""
    raise NotImplementedError
