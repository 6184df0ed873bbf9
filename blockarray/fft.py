"""Fourier transforms, which a library computes: NumPy or, on a GPU, cuFFT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from . import transforms
from .array import Array
from .creation import asarray
from .dtypes import canonical
from .host import at_once
from .manipulation import roll
from .operands import as_array, axis_index
from .solvers import place

Norm = Literal["backward", "ortho", "forward"] | None


def _transformed(name: str, x: Any, *arguments: Any) -> Array:
    a = as_array(x)
    gpu = place(f"fft.{name}", a)
    if gpu is not None and a.ndim:
        return getattr(transforms, name)(transforms.Transform(f"fft.{name}", gpu), a, *arguments)
    function = getattr(np.fft, name)
    if not a.size:
        # NumPy's transforms to real elements give what is in memory beside an operand without elements.
        return at_once(f"fft.{name}", lambda v, *rest: np.zeros_like(function(v, *rest)), (a,), *arguments)
    return at_once(f"fft.{name}", function, (a,), *arguments)


def _one(name: str) -> Any:
    def function(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return _transformed(name, x, n, axis, norm)

    return _named(
        function,
        name,
        """n : int, optional
        Length of the transformed axis; the input is cut or padded with zeros.
    axis : int""",
    )


def _several(name: str, every: Sequence[int] | None = None) -> Any:
    def function(
        x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = every, norm: Norm = "backward"
    ) -> Array:
        return _transformed(name, x, s, axes, norm)

    return _named(
        function,
        name,
        """s : sequence of int, optional
        Lengths of the transformed axes; the input is cut or padded with zeros.
    axes : sequence of int, optional""",
    )


def _shift(name: str, sign: int) -> Any:
    def function(x: Any, /, axes: int | Sequence[int] | None = None) -> Array:
        a = as_array(x)
        given = range(a.ndim) if axes is None else axes if isinstance(axes, list | tuple) else (axes,)
        shifted = [axis_index(k, a.ndim) for k in given]  # one that comes twice is rolled twice
        return roll(a, tuple([sign * (a.shape[k] // 2) for k in shifted]), shifted)

    return _named(function, name, "axes : int or sequence of int, optional", norm=False)


def _named(function: Any, name: str, parameters: str, norm: bool = True) -> Any:
    function.__name__ = function.__qualname__ = name
    last = """
    norm : {"backward", "ortho", "forward"}
        Which direction divides by the number of elements, or whether both divide by its root."""
    function.__doc__ = f"""{(getattr(np.fft, name).__doc__ or "").strip().splitlines()[0]}

    Parameters
    ----------
    x : array_like
    {parameters}{last if norm else ""}

    Returns
    -------
    Array
    """
    return function


__all__ = [
    "fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fft2", "ifft2", "rfft2",
    "irfft2", "fftshift", "ifftshift", "fftfreq", "rfftfreq",
]  # fmt: skip

fft = _one("fft")
ifft = _one("ifft")
fftn = _several("fftn")
ifftn = _several("ifftn")
rfft = _one("rfft")
irfft = _one("irfft")
rfftn = _several("rfftn")
irfftn = _several("irfftn")
hfft = _one("hfft")
ihfft = _one("ihfft")
fft2 = _several("fft2", (-2, -1))
ifft2 = _several("ifft2", (-2, -1))
rfft2 = _several("rfft2", (-2, -1))
irfft2 = _several("irfft2", (-2, -1))
fftshift = _shift("fftshift", 1)
ifftshift = _shift("ifftshift", -1)


def fftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """Frequencies of a transform's elements."""
    return asarray(np.fft.fftfreq(n, d), canonical(dtype), device=device)


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """Frequencies of a real transform's elements."""
    return asarray(np.fft.rfftfreq(n, d), canonical(dtype), device=device)
