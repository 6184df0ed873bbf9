"""Every function of the standard beside array-api-strict's: values, dtypes, shapes and kinds of results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from array_api_tests.calls import CALLS, DTYPES, I8, functions, sample
from array_api_tests.standard import SIGNATURES

strict = pytest.importorskip("array_api_strict", minversion="2.6")

#: Tolerance by the precision of what was computed.
CLOSE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-10, "complex128": 1e-10}


def same(ours: Any, theirs: Any, close: float) -> None:
    """Both are arrays of equal dtype, shape and values, tuples of such, or equal objects."""
    if isinstance(theirs, tuple | list):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        assert getattr(ours, "_fields", None) == getattr(theirs, "_fields", None)
        for x, y in zip(ours, theirs, strict=True):
            same(x, y, close)
    elif hasattr(theirs, "__array_namespace__"):
        x, y = np.asarray(ours), np.from_dlpack(theirs)
        assert isinstance(ours, xp.Array) and x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, close, close)
    elif isinstance(theirs, strict._dtypes.DType):
        assert ours == theirs._np_dtype
    else:
        assert ours == theirs


def both(call: Any, *arrays: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        theirs = call(strict, *map(strict.asarray, arrays))
        ours = call(xp, *map(xp.asarray, arrays))
    close = max((CLOSE.get(a.dtype.name, 0.0) for a in arrays), default=1e-10)
    same(ours, theirs, close or 1e-12)


ELEMENTWISE = [line.strip() for line in SIGNATURES["elementwise"].strip().splitlines()]
UNARY = [line.split("(")[0] for line in ELEMENTWISE if "(x, /)" in line]
BINARY = [line.split("(")[0] for line in ELEMENTWISE if "(x1, x2, /)" in line]
#: Functions that take no negative integer for their second operand.
NOT_NEGATIVE = ("bitwise_left_shift", "bitwise_right_shift", "pow")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    tried = 0
    for dtype in DTYPES:
        x = sample(dtype, (5, 7))
        try:
            getattr(strict, name)(strict.asarray(x))
        except TypeError:
            continue
        tried += 1
        both(lambda m, x: getattr(m, name)(x), x)
        both(lambda m, x: getattr(m, name)(x[::-2, ..., 1:]), x)
    assert tried


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    tried = 0
    for left, right in itertools.product(DTYPES, DTYPES):
        x, y = sample(left, (5, 7)), sample(right, (7,), 1)
        if name in NOT_NEGATIVE:
            y = np.abs(y)
        try:
            getattr(strict, name)(strict.asarray(x), strict.asarray(y))
        except TypeError:
            continue
        tried += 1
        both(lambda m, x, y: getattr(m, name)(x, y), x, y)
        if left == right:
            for scalar in (True, 2, 2.5, 1.5 + 1j):
                try:
                    getattr(strict, name)(strict.asarray(x), scalar)
                except TypeError:
                    continue
                both(lambda m, x, scalar=scalar: getattr(m, name)(x, scalar), x)
    assert tried


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in CALLS.items() for call in calls])
def test_function(name: str, call: tuple[Any, ...]) -> None:
    both(*call)


def test_isin_inverted() -> None:
    x = xp.asarray(I8)
    for operands in ((x, x[0]), (2, x), (x, 2)):
        assert xp.all(xp.isin(*operands, invert=True) == ~xp.isin(*operands))


def test_all_functions_are_called() -> None:
    every = {
        f"{part}.{name}" if part in ("linalg", "fft", "info") else name
        for part in SIGNATURES if part != "methods" for name in functions(part)
    }  # fmt: skip
    assert every == {*UNARY, *BINARY, *CALLS}
