"""Every special case of the standard's tables, interpreted and compiled, in both precisions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from array_api_tests.special_cases import BINARY, COMPLEX, OF_OPERANDS, REAL, TURNED, cases, number, samples
from blockarray.runtime.config import config

#: Copies of the operands that make their arrays too large to be interpreted.
SIZES = {"tiny": 1, "compiled": config.tiny + 1}


def check(got: np.ndarray, expected: np.ndarray, free: bool, what: str) -> None:
    """Equal, or nearly so; signs of zeros and infinities count unless the standard leaves them open."""
    with np.errstate(all="ignore"):
        if free:
            got, expected = np.abs(got), np.abs(expected)
        same = np.isclose(got, expected, 1e-5, 0, equal_nan=True)
        same &= (np.signbit(got) == np.signbit(expected)) | np.isnan(expected)
    assert same.all(), f"{what}: {got[~same][:4]}, not {expected[~same][:4]}"


def run(name: str, operands: list[np.ndarray], copies: int) -> np.ndarray:
    return np.asarray(getattr(xp, name)(*(xp.asarray(np.tile(x, copies)) for x in operands)))[: len(operands[0])]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*REAL, *BINARY])
def test_real(name: str, dtype: Any, size: str) -> None:
    every = []
    for operands, result in cases((REAL | BINARY)[name]):
        for values in itertools.product(*map(samples, operands)):
            x1, x2 = values[0], values[-1]
            expected = OF_OPERANDS[result](x1, x2) if result in OF_OPERANDS else number(result)
            every.append((values, expected, f"{name}({', '.join(map(str, values))})"))
    arrays = [np.array(column, dtype) for column in zip(*(values for values, _, _ in every), strict=True)]
    got = run(name, arrays, SIZES[size])
    for value, (_, expected, what) in zip(got, every, strict=True):
        check(np.array([value]), np.array([expected], dtype), False, what)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_of_one_half(dtype: Any, size: str) -> None:
    # A number for an exponent has code of its own.
    x = np.array([-np.inf, -0.0, 0.0, 4.0, -1.0, np.inf, np.nan], dtype)
    expected = np.array([np.inf, 0.0, 0.0, 2.0, np.nan, np.inf, np.nan], dtype)
    for power in (xp.pow, lambda x, y: x**y):
        for half in (0.5, xp.asarray(0.5, dtype=x.dtype)):
            got = np.asarray(power(xp.asarray(np.tile(x, SIZES[size])), half))[: x.size]
            check(got, expected, False, f"{power} of {x}")


def complex_cases(name: str) -> list[tuple[complex, list[str]]]:
    """Numbers, and the two parts of the function's value there as the table spells them."""
    found = []
    for (operand,), result in cases(COMPLEX[name]):
        words = operand.split()
        for re, im in itertools.product(samples(words[0]), samples(" ".join(words[1:]))):
            parts = result.split()
            if result.endswith("*cis"):
                size = number(result.removesuffix("*cis"))
                parts = [repr(float(x)) for x in (size * np.cos(im), size * np.sin(im))]
            found.append((complex(re, im), parts))
    return found


def turned(z: np.ndarray, sign: int = 1) -> np.ndarray:
    """-i * z, or i * z if sign is -1, part by part."""
    result = np.empty(z.shape, z.dtype)
    result.real, result.imag = sign * np.imag(z), -sign * np.real(z)
    return result


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", [*COMPLEX, *TURNED])
def test_complex(name: str, dtype: Any, size: str) -> None:
    source, back = TURNED.get(name, (name, False))
    every = complex_cases(source)
    z = np.array([value for value, _ in every], dtype)
    # A table's number is i times the function's: (a, b) is i * (b, -a).
    z = turned(z) if name in TURNED else z
    got = run(name, [z], SIZES[size])
    got = turned(got, -1) if back else got
    for value, argument, (_, parts) in zip(got, z, every, strict=True):
        for part, expected in zip((value.real, value.imag), parts, strict=True):
            check(np.array([part]), np.array([number(expected)]), expected.startswith("~"), f"{name}({argument})")
