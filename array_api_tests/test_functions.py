"""Every function of the standard beside array-api-strict's and NumPy's: values, dtypes, shapes, kinds of results.

Functions are called as the session has them, compiled as a rule.  What goes through dtypes and shapes is interpreted:
kernels for each would take minutes, and the two are compared elsewhere.
"""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import blockarray as xp
from array_api_tests.calls import CALLS, DTYPES, I8, calls, functions, sample
from array_api_tests.standard import SIGNATURES
from blockarray.runtime.config import TINY, config

strict = pytest.importorskip("array_api_strict", minversion="2.6")
pytestmark = pytest.mark.filterwarnings("ignore")

#: Tolerance by the precision of what was computed.
CLOSE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-10, "complex128": 1e-10}


def same(ours: Any, theirs: Any, close: float) -> None:
    """Both are arrays of equal dtype, shape and values, tuples of such, or equal objects."""
    if isinstance(theirs, tuple | list):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        assert isinstance(theirs, list) or getattr(ours, "_fields", None) == getattr(theirs, "_fields", None)
        for x, y in zip(ours, theirs, strict=True):
            same(x, y, close)
    elif isinstance(ours, xp.Array):
        x: Any = np.asarray(ours)
        y: Any = np.asarray(theirs) if isinstance(theirs, np.generic) else np.from_dlpack(theirs)
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, close, close)
    else:
        assert not isinstance(theirs, strict._array_object.Array | np.ndarray)
        assert ours == getattr(theirs, "_np_dtype", theirs)


def both(call: Any, *arrays: np.ndarray, library: Any = strict) -> None:
    with np.errstate(all="ignore"):
        # Some calls write to their operands.
        theirs = call(library, *[library.asarray(a.copy()) for a in arrays])
        ours = call(xp, *map(xp.asarray, arrays))
    close = max((CLOSE.get(a.dtype.name, 0.0) for a in arrays), default=1e-10)
    same(ours, theirs, close or 1e-12)


def takes(call: Any, *arrays: np.ndarray, library: Any = strict) -> bool:
    """Whether a library has such a function for operands of these dtypes and shapes."""
    with np.errstate(all="ignore"):
        try:
            call(library, *[library.asarray(a.copy()) for a in arrays])
        except (TypeError, ValueError, IndexError, np.linalg.LinAlgError):
            return False
    return True


interpreted = patch.object(config, "tiny", TINY)


ELEMENTWISE = [line.strip() for line in SIGNATURES["elementwise"].strip().splitlines()]
UNARY = [line.split("(")[0] for line in ELEMENTWISE if "(x, /)" in line]
BINARY = [line.split("(")[0] for line in ELEMENTWISE if "(x1, x2, /)" in line]
#: Functions that take no negative integer for their second operand.
NOT_NEGATIVE = ("bitwise_left_shift", "bitwise_right_shift", "pow")


def calling(name: str) -> Any:
    return lambda m, *xs: getattr(m, name)(*xs)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    tried = 0
    for dtype in DTYPES:
        x = sample(dtype, (5, 7))
        if takes(calling(name), x):
            tried += 1
            both(calling(name), x)
            both(lambda m, x: getattr(m, name)(x[::-2, ..., 1:]), x)
    assert tried


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    tried = 0
    for dtype in DTYPES:
        x, y = sample(dtype, (5, 7)), second(name, dtype, (7,))
        if takes(calling(name), x, y):
            tried += 1
            both(calling(name), x, y)
            for scalar in (True, 2, 2.5, 1.5 + 1j):
                call = lambda m, x, scalar=scalar: getattr(m, name)(x, scalar)
                if takes(call, x):
                    both(call, x)
    assert tried


def second(name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A second operand."""
    y = sample(dtype, shape, 1)
    return np.abs(y) if name in NOT_NEGATIVE else y


@interpreted
@pytest.mark.parametrize("name", BINARY)
def test_promotion(name: str) -> None:
    for left, right in itertools.permutations(DTYPES, 2):
        x, y = sample(left, (5, 7)), second(name, right, (7,))
        if takes(calling(name), x, y):
            both(calling(name), x, y)


#: Of two operands: 0-d, empty, broadcast.
SHAPES = (((), ()), ((3, 0), (1,)), ((0,), ()), ((4, 1), (1, 5)), ((), (2, 3)), ((1, 3), (2, 0, 1, 1)), ((1,), (1, 1)))


@interpreted
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_shapes(name: str) -> None:
    tried = 0
    for dtype, (left, right) in itertools.product(("bool", "uint8", "int64", "float32", "complex128"), SHAPES):
        operands = [sample(dtype, left), second(name, dtype, right)][: 1 if name in UNARY else 2]
        if takes(calling(name), *operands):
            tried += 1
            both(calling(name), *operands)
    assert tried


EVERY_CALL = [(name, call) for name, some in CALLS.items() for call in some]


@pytest.mark.parametrize(("name", "call"), EVERY_CALL)
def test_function(name: str, call: tuple[Any, ...]) -> None:
    both(*call)


@interpreted
@pytest.mark.parametrize(("name", "call"), [(name, call) for name, call in EVERY_CALL if len(call) > 1])
def test_function_of_every_dtype(name: str, call: tuple[Any, ...]) -> None:
    function, *arrays = call
    first = arrays[0].dtype
    for dtype in DTYPES:
        converted = [converted_to(dtype, a) if a.dtype == first else a for a in arrays]
        if takes(function, *converted):
            both(function, *converted)
        # Its first operand without elements; NumPy's transforms give anything then.
        emptied = [converted[0][:0], *converted[1:]]
        if takes(function, *emptied) and not name.startswith("fft."):
            both(function, *emptied)


def converted_to(dtype: str, x: np.ndarray) -> np.ndarray:
    """The elements in another dtype, all of them in its range."""
    x = x if dtype.startswith("complex") else np.real(x)
    return (np.abs(x) if dtype.startswith("uint") else x).astype(dtype)


#: Methods whose results are each library's own.
OWN = ("__array_namespace__", "__dlpack__", "__dlpack_device__", "to_device")


@interpreted
@pytest.mark.parametrize("name", [name for name in functions("methods") if name not in OWN])
def test_method(name: str) -> None:
    tried = 0
    for (call, *arrays), dtype in itertools.product(calls("methods", name), DTYPES):
        converted = [converted_to(dtype, a) if a.dtype == arrays[0].dtype else a for a in arrays]
        if name in ("__pow__", "__lshift__", "__rshift__"):
            converted = [np.abs(a) for a in converted]
        if takes(call, *converted):
            tried += 1
            both(call, *converted)
    assert tried


#: NumPy's eigenvalues are real where all of them are.
NOT_AS_NUMPY = ("linalg.eig", "linalg.eigvals")


@interpreted
@pytest.mark.parametrize(("name", "call"), EVERY_CALL)
def test_function_beside_numpy(name: str, call: tuple[Any, ...]) -> None:
    if name not in NOT_AS_NUMPY and takes(*call, library=np):
        both(*call, library=np)


def test_transforms_of_nothing() -> None:
    for dtype, name in (("float32", "rfft"), ("complex64", "fft"), ("complex64", "irfft"), ("complex128", "hfft")):
        x = xp.zeros((2, 0), dtype=getattr(xp, dtype))
        assert getattr(xp.fft, name)(x, n=4).tolist() == np.zeros((2, 3 if name == "rfft" else 4)).tolist()


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
