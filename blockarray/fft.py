"""Fourier transforms, which a library computes on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from .array import Array
from .creation import asarray
from .dtypes import canonical
from .host import at_once
from .operands import as_array


def _make(name: str) -> Any:
    numpy_function = getattr(np.fft, name)

    def function(x: Any, /, *args: Any, **kwargs: Any) -> Array:
        return at_once(f"fft.{name}", lambda v: numpy_function(v, *args, **kwargs), (as_array(x),))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{(numpy_function.__doc__ or '').strip().splitlines()[0]}  Arguments as in numpy.fft.{name}."
    return function


__all__ = [
    "fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fft2", "ifft2", "rfft2",
    "irfft2", "fftshift", "ifftshift", "fftfreq", "rfftfreq",
]  # fmt: skip

fft = _make("fft")
ifft = _make("ifft")
fftn = _make("fftn")
ifftn = _make("ifftn")
rfft = _make("rfft")
irfft = _make("irfft")
rfftn = _make("rfftn")
irfftn = _make("irfftn")
hfft = _make("hfft")
ihfft = _make("ihfft")
fft2 = _make("fft2")
ifft2 = _make("ifft2")
rfft2 = _make("rfft2")
irfft2 = _make("irfft2")
fftshift = _make("fftshift")
ifftshift = _make("ifftshift")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """Frequencies of a transform's elements."""
    return asarray(np.fft.fftfreq(n, d), canonical(dtype), device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """Frequencies of a real transform's elements."""
    return asarray(np.fft.rfftfreq(n, d), canonical(dtype), device=device)
