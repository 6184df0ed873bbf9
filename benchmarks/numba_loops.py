"""numba is a compiler of loops: its side of the rows, as one writes them by hand.  No fast-math, as the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange


def loops(dtype: str) -> dict[str, Callable[..., None]]:
    """Functions (out, *inputs) by workload.  Constants have the data's type, or numba would compute in float64."""
    t = np.dtype(dtype).type
    zero, half, one, four = t(0), t(0.5), t(1), t(4)
    k0, k1, k2, eps, tenth, step = t(0.3989), t(0.7978845608), t(0.044715), t(1e-5), t(0.1), t(1.01)
    rate, drift, vol = t(0.02), t(0.02 + 0.3 * 0.3 * 0.5), t(0.3)

    @numba.njit(inline="always")
    def cdf(z):
        return half * (one + math.tanh(k1 * (z + k2 * z * z * z)))

    def chain(out, x):
        for i in prange(x.size):
            v = x[i]
            out[i] = math.exp(-(v * v) * half) * k0 + math.sin(v) * half

    def black_scholes(out, spot, strike, years):
        for i in prange(spot.size):
            s, k, y = spot[i], strike[i], years[i]
            spread = vol * math.sqrt(y)
            d1 = (math.log(s / k) + drift * y) / spread
            out[i] = s * cdf(d1) - k * math.exp(-rate * y) * cdf(d1 - spread)

    def softmax(out, x):
        for i in prange(x.shape[0]):
            high = x[i, 0]
            for j in range(x.shape[1]):
                high = max(high, x[i, j])
            total = zero
            for j in range(x.shape[1]):
                e = math.exp(x[i, j] - high)
                out[i, j] = e
                total += e
            for j in range(x.shape[1]):
                out[i, j] /= total

    def layernorm(out, x):
        n = t(x.shape[1])
        for i in prange(x.shape[0]):
            total, squares = zero, zero
            for j in range(x.shape[1]):
                total += x[i, j]
            mean = total / n
            for j in range(x.shape[1]):
                d = x[i, j] - mean
                squares += d * d
            deviation = math.sqrt(squares / n + eps)
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) / deviation

    def stencil(out, u):
        for i in prange(out.shape[0]):
            for j in range(out.shape[1]):
                c = u[i + 1, j + 1]
                around = u[i + 2, j + 1] + u[i, j + 1] + u[i + 1, j + 2] + u[i + 1, j]
                out[i, j] = c + tenth * (around - four * c)

    def pairwise(out, a, b):
        for i in prange(a.shape[0]):
            for j in range(b.shape[0]):
                total = zero
                for k in range(a.shape[1]):
                    d = a[i, k] - b[j, k]
                    total += d * d
                out[i, j] = total

    def small(out, x):
        for i in range(x.size):
            v = x[i]
            for _ in range(5):
                v = v * step + half
            out[i] = v

    parallel = numba.njit(parallel=True, error_model="numpy")
    functions: list[Any] = [chain, black_scholes, softmax, layernorm, stencil, pairwise]
    return {f.__name__: parallel(f) for f in functions} | {"small": numba.njit(error_model="numpy")(small)}


def output_shape(name: str, args: list[np.ndarray]) -> tuple[int, ...]:
    match name:
        case "stencil":
            return args[0].shape[0] - 2, args[0].shape[1] - 2
        case "pairwise":
            return len(args[0]), len(args[1])
        case _:
            return args[0].shape
