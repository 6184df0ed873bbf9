"""The GPU's own functions of floats, by emulation: their errors, and what is rounded correctly."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import cuda
from blockarray.compiler.cuda import singles
from tests.compiler.accuracy import operand_arrays
from tests.compiler.cuda.elementwise import problem

TARGET = cuda.make_target((9, 0))
N = 8192


def floats(first: int, last: int, step: int = 1) -> np.ndarray:
    """Floats by their bits."""
    return np.arange(first, last, step).astype(np.uint32).view(np.float32)


def dense() -> np.ndarray:
    """Hostile numbers, bits, and spans in which functions change."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 8 * N, np.uint32).view(np.float32)
    spans = [rng.uniform(-s, s, N).astype(np.float32) for s in (1e-3, 0.3, 1, 3, 30, 800, 2.0**15)]
    near = [(1 + rng.uniform(-s, s, N)).astype(np.float32) for s in (1e-5, 0.3)]
    return np.concatenate([*operand_arrays(("f32",)), bits, *spans, *near])


@pytest.mark.parametrize("name", [name for name in singles.STREAMING if name != "divide"])
def test_errors(name):
    assert not problem(name, "f32", dense())


def test_roots():
    assert not problem("sqrt", "f32", floats(0x3F800000, 0x40800000, 37))
    assert not problem("sqrt", "f32", np.concatenate([floats(0, 100), floats(0x0D000000 - 4 * N, 0x0D000000 + 4 * N)]))


def test_logarithms():
    assert not problem("log", "f32", floats(0x3F000000, 0x40000000, 37))


def test_quotients():
    assert not problem("divide", "f32", *operand_arrays(("f32", "f32")))
    rng = np.random.default_rng(6)
    # Divisors with the most and the fewest digits are the hard ones.
    divisors = np.concatenate([floats(0x3F800000, 0x40000000, 1013), floats(0x3FFFFF00, 0x40000000)])
    for dividend in (1.0, 1.5, 2 - 2.0**-23, 1 + 2.0**-23):
        assert not problem("divide", "f32", np.full(divisors.size, dividend, np.float32), divisors)
    bits = [rng.integers(0, 2**32, 8 * N, np.uint32).view(np.float32) for _ in range(2)]
    assert not problem("divide", "f32", *bits)


@pytest.mark.parametrize("distance", [1, -1, 3, -3])
def test_quotients_near_the_middle(distance):
    """Those that lie next to the middle of two floats: |2**25 x - m y| is small for an odd m."""
    y = np.arange(2**23 + 1, 2**24, 2 * 211, dtype=np.int64)
    inverse = np.array([pow(int(v), -1, 2**25) for v in y])
    m = distance * inverse % 2**25
    x = (m * y - distance) >> 25
    fits = (m > 2**24) & (x >= 2**23) & (x < y)
    assert fits.sum() > 1000
    assert not problem("divide", "f32", x[fits].astype(np.float32), y[fits].astype(np.float32))


def test_zeros_and_infinities_beside_other_dividends():
    x = np.tile(np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-44, 3.0], np.float32), 256)
    for divisor in (3.0, -3.0, 0.0, -0.0, np.inf, np.nan, 1e-40, 3e38, 2.0**126, 2.0**-126):
        assert not problem("divide", "f32", x, np.full_like(x, divisor))
