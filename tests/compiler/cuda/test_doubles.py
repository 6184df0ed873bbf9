"""The GPU's own functions of doubles, by emulation: their errors, and what is rounded correctly."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import cuda
from blockarray.compiler.cuda import doubles
from tests.compiler.accuracy import operand_arrays
from tests.compiler.cuda.elementwise import problem

TARGET = cuda.make_target((9, 0))
N = 8192


def dense() -> np.ndarray:
    """Hostile numbers, bits, spans in which functions change, and neighbours of multiples of a quarter turn."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**64, N, np.uint64).view(np.float64)
    spans = [rng.uniform(-s, s, N) for s in (1e-3, 0.3, 1, 3, 30, 800, 2.0**24)]
    near = [1 + rng.uniform(-s, s, N) for s in (1e-9, 0.3)]
    turns = np.round(np.exp(rng.uniform(0, 16, N))) * (np.pi / 2)
    edges = np.array([709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412, -1074.5, 1024.0])
    return np.concatenate([*operand_arrays(("f64",)), bits, *spans, *near, turns, np.nextafter(turns, 0), edges])


@pytest.mark.parametrize("name", [*doubles.EMITTERS, "sin", "cos", "sqrt"])
def test_errors(name):
    assert not problem(name, "f64", dense())


def test_roots_near_the_middle():
    steps = np.arange(N) * 2.0**-52
    assert not problem("sqrt", "f64", np.concatenate([1 + steps, 2 + 2 * steps, 4 - 2 * steps]))


def test_quotients():
    assert not problem("divide", "f64", *operand_arrays(("f64", "f64")))
    rng = np.random.default_rng(6)
    steps = np.arange(1, 100) * 2.0**-52
    # Divisors with the most and the fewest digits are the hard ones.
    divisors = np.concatenate([rng.uniform(1, 2, N), 1 + steps, 2 - steps])
    for dividend in (1.0, 1.5, 2 - 2.0**-52, 1 + 2.0**-52):
        assert not problem("divide", "f64", np.full(divisors.size, dividend), divisors)
    sizes = [np.ldexp(rng.uniform(1, 2, N), rng.integers(-1070, 1023, N)) for _ in range(2)]
    assert not problem("divide", "f64", *sizes)
