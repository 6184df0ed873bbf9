"""Fourier transforms on a GPU, by cuFFT.

The library transforms the last axes of arrays that lie in row-major order.  What comes before (moving axes to the end,
cutting, padding, conversion) is one kernel, fused with what computes the operand, and what comes after (the scale) is
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from operator import index
from typing import Any

import numpy as np

from . import checks, flush
from .array import Array, in_order
from .compiler.expr import buffer
from .compiler.ops import TABLE
from .creation import arange, zeros
from .dtypes import real_type
from .elementwise import where
from .manipulation import concatenate, moveaxis
from .operands import axis_tuple, elementwise, placed
from .runtime import profiler
from .runtime.cuda import streams
from .runtime.cuda.fourier import transform
from .runtime.cuda.memory import allocate
from .runtime.device import CudaDevice
from .solvers import owned

#: Axes that the library transforms at once.
_RANK = 3
_ALIGNMENT = 16


@cache
def _dtype(name: str, dtype: np.dtype) -> np.dtype:
    """What NumPy's function computes with, and returns."""
    return getattr(np.fft, name)(np.zeros(2, dtype)).dtype


class Transform:
    """The transforms of a namespace on one GPU, by the names that profiles give them."""

    def __init__(self, name: str, device: CudaDevice) -> None:
        self.name = name
        self.device = device

    def complex(self, x: Array, lengths: Sequence[int], axes: Sequence[int], forward: bool) -> Array:
        """A transform of complex elements over different axes, without a scale."""
        for axis, n in zip(axes, lengths):
            x = _resized(x, axis, n)
        to = _dtype("fft", x.dtype)
        x = x.astype(to, copy=False)
        for first in range(0, len(axes), _RANK):
            x = self._run(x, axes[first : first + _RANK], to, forward)
        return x

    def to_half(self, x: Array, lengths: Sequence[int], axes: Sequence[int]) -> Array:
        """A transform of real elements: half of the last axis, the rest being its conjugate."""
        to = _dtype("rfft", x.dtype)
        for axis, n in zip(axes, lengths):
            x = _resized(x, axis, n)
        x = self._run(x.astype(real_type(to), copy=False), axes[-_RANK:], to, True)
        return self.complex(x, lengths[:-_RANK], axes[:-_RANK], True)

    def from_half(self, x: Array, lengths: Sequence[int], axes: Sequence[int]) -> Array:
        """The inverse of `to_half`."""
        to = _dtype("irfft", x.dtype)
        x = self.complex(x, lengths[:-1], axes[:-1], False)
        axis, n = axes[-1], lengths[-1]
        x = moveaxis(_resized(x, axis, n // 2 + 1), axis, -1)
        x = x.astype(np.result_type(to, np.complex64), copy=False)
        # These elements are their own conjugates; NumPy does not look at their imaginary parts.
        k = arange(n // 2 + 1, device=self.device)
        x = where((k == 0) | (2 * k == n), x.real, x).astype(x.dtype, copy=False)
        result = self._run(x, (x.ndim - 1,), real_type(x.dtype), False, n)
        return moveaxis(result.astype(to, copy=False), -1, axis)

    def _run(self, x: Array, axes: Sequence[int], to: np.dtype, forward: bool, n: int | None = None) -> Array:
        last = tuple(range(x.ndim - len(axes), x.ndim))
        x = moveaxis(x, tuple(axes), last)
        shape = [*x.shape]
        if n is not None:
            memory, address = owned(x, self.device), None
            shape[-1] = n
        else:
            e = placed(in_order(x._read()), self.device)
            flush.evaluate([e])
            memory, offset, _ = e.attrs
            address = memory.address + offset * e.dtype.itemsize
            if address % _ALIGNMENT:
                memory, address = owned(x, self.device), None
        lengths = tuple(shape[-len(axes) :])
        if to.kind == "c" and x.dtype.kind != "c":
            shape[-1] = shape[-1] // 2 + 1
        result = allocate(self.device, prod(shape) * to.itemsize)
        checks.used[self.device] = None
        before = streams.Event(self.device, timing=True).record() if profiler.active else None
        transform(
            self.device, address or memory.address, result.address, (x.dtype, to), lengths,
            prod(shape[: -len(axes)]), forward,
        )  # fmt: skip
        if before is not None:
            after = streams.Event(self.device, timing=True).record()
            profiler.note(self.name, lambda: before.elapsed(after), x.nbytes + result.nbytes, 1, kind="cuFFT")
        if checks.suspects:
            checks.spread(None, [memory], [result])
        return moveaxis(Array(buffer(result, tuple(shape), to, device=self.device)), last, tuple(axes))


def _resized(x: Array, axis: int, n: int) -> Array:
    """The first n elements along an axis, zeros after the last."""
    have = x.shape[axis]
    if n <= have:
        return x if n == have else x[(*(slice(None),) * axis, slice(n))]
    shape = (*x.shape[:axis], n - have, *x.shape[axis + 1 :])
    return concatenate((x, zeros(shape, x.dtype, device=x.device)), axis)


def _scaled(x: Array, lengths: Sequence[int], norm: str | None, forward: bool) -> Array:
    """A transform's result with the scale that `norm` asks for."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    n = prod(lengths)
    if norm == "ortho":
        return x * (1 / np.sqrt(n)).item()
    return x * (1 / n) if forward == (norm == "forward") else x


def _swapped(norm: str | None) -> str | None:
    return {"forward": "backward", None: "forward", "backward": "forward"}.get(norm, norm)


def _shape(x: Array, s: Any, axes: Any, half: bool = False) -> tuple[list[int], list[int]]:
    """Extents to transform, and axes from 0 on; `half`: of the result of a transform to real elements."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(x.ndim)
    axes = [axis_tuple(axis, x.ndim)[0] for axis in axes]
    lengths = [x.shape[axis] for axis in axes]
    if s is not None:
        if len(s) != len(axes):
            raise ValueError("Shape and axes have different lengths.")
        lengths = [have if n is None or n == -1 else index(n) for n, have in zip(s, lengths)]
    elif half and lengths:
        lengths[-1] = 2 * (lengths[-1] - 1)
    for n in lengths:
        if n < 1:
            raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    return lengths, axes


def _some(lengths: list[int], axes: list[int]) -> tuple[list[int], list[int]]:
    """What `_shape` found, for a transform that halves the last axis, and so needs one."""
    if not axes:
        raise IndexError("a transform from or to real elements needs an axis")
    return lengths, axes


def _many(run: Any, x: Array, lengths: Sequence[int], axes: Sequence[int]) -> Array:
    """Transform axes together, or one by one if one of them comes twice."""
    if len(set(axes)) == len(axes):
        return run(x, lengths, axes)
    for axis, n in zip(reversed(axes), reversed(lengths)):
        x = run(x, (n,), (axis,))
    return x


def fftn(t: Transform, x: Array, s: Any = None, axes: Any = None, norm: Any = None, forward: bool = True) -> Array:
    lengths, axes = _shape(x, s, axes)
    if not axes:
        return x.copy()
    result = _many(partial(t.complex, forward=forward), x, lengths, axes)
    return _scaled(result, lengths, norm, forward)


def ifftn(t: Transform, x: Array, s: Any = None, axes: Any = None, norm: Any = None) -> Array:
    return fftn(t, x, s, axes, norm, False)


def rfftn(t: Transform, x: Array, s: Any = None, axes: Any = None, norm: Any = None) -> Array:
    lengths, axes = _some(*_shape(x, s, axes))
    _dtype("rfft", x.dtype)
    if len(set(axes)) == len(axes):
        result = t.to_half(x, lengths, axes)
    else:
        result = t.to_half(x, lengths[-1:], axes[-1:])
        result = _many(partial(t.complex, forward=True), result, lengths[:-1], axes[:-1])
    return _scaled(result, lengths, norm, True)


def irfftn(t: Transform, x: Array, s: Any = None, axes: Any = None, norm: Any = None) -> Array:
    lengths, axes = _some(*_shape(x, s, axes, half=True))
    if len(set(axes)) < len(axes):
        x = _many(partial(t.complex, forward=False), x, lengths[:-1], axes[:-1])
        result = t.from_half(x, lengths[-1:], axes[-1:])
    else:
        result = t.from_half(x, lengths, axes)
    return _scaled(result, lengths, norm, False)


def _one(function: Any) -> Any:
    """A transform of one axis from that of several."""

    def single(t: Transform, x: Array, n: Any = None, axis: int = -1, norm: Any = None) -> Array:
        if n is not None and index(n) < 1:  # of several axes -1 asks for the whole of one
            raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
        return function(t, x, None if n is None else (n,), (index(axis),), norm)

    return single


fft, ifft, rfft, irfft = map(_one, (fftn, ifftn, rfftn, irfftn))
fft2, ifft2, rfft2, irfft2 = fftn, ifftn, rfftn, irfftn


def _conjugate(x: Array) -> Array:
    return elementwise(TABLE["conjugate"], x) if x.dtype.kind == "c" else x


def hfft(t: Transform, x: Array, n: Any = None, axis: int = -1, norm: Any = None) -> Array:
    return irfft(t, _conjugate(x), n, axis, _swapped(norm))


def ihfft(t: Transform, x: Array, n: Any = None, axis: int = -1, norm: Any = None) -> Array:
    return _conjugate(rfft(t, x, n, axis, _swapped(norm)))
