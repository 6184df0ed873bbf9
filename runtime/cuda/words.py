"""Words of pinned host memory that kernels write to and the host reads without a copy."""

from __future__ import annotations

import numpy as np

from ..device import CudaDevice


class Word:
    """A zeroed 64-bit word; it is used again when nobody refers to it and the device has passed that point.

    Attributes
    ----------
    address : int
        Where the device sees it.
    view : ndarray
        The word, of shape (1,) and type int64.  Read it after a synchronisation; reset it by assignment.
    """

    __slots__ = ("address", "view", "_index")

    address: int
    view: np.ndarray


def error_word(device: CudaDevice) -> Word:
    """A new word for a kernel's `errors` parameter."""
    raise NotImplementedError
