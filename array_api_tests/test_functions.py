"""Every function of the standard beside array-api-strict's: values, dtypes, shapes and kinds of results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from array_api_tests.standard import SIGNATURES

strict = pytest.importorskip("array_api_strict", minversion="2.6")

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
#: Tolerance by the precision of what was computed.
CLOSE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-10, "complex128": 1e-10}


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(1 if dtype.startswith("u") else -6, 7, shape).astype(dtype)
    values = rng.standard_normal(shape) * 2
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


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


F, G = sample("float64", (4, 3)), sample("float64", (4, 3), 1)
S, I8, U = sample("float32", (4, 3)), sample("int8", (4, 3)), sample("uint16", (12,))
C, B = sample("complex128", (3, 4)), sample("bool", (4, 3))
K = np.array([0, 2, -1, 1])
#: Square matrices: any, and ones with the eigenvalues of a product.
Q = sample("float64", (2, 3, 3))
P = Q @ np.swapaxes(Q, -1, -2) + 3 * np.eye(3)
V = np.array([1.0, 3.0, 4.0])

#: Calls of each other function, and their arrays.
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "arange": [
        (lambda m: m.arange(5),),
        (lambda m: m.arange(9, 2, -3, dtype=m.float32),),
        (lambda m: m.arange(0.5, 3.0),),
    ],
    "asarray": [(lambda m: m.asarray([[1, 2], [3, 4]]),), (lambda m: m.asarray(1.5, dtype=m.float32),)],
    "empty": [(lambda m: m.empty((2, 3), dtype=m.int8) * 0,)],
    "empty_like": [(lambda m, x: m.empty_like(x, dtype=m.int8) * 0, F)],
    "eye": [(lambda m: m.eye(3, 4, k=-1),), (lambda m: m.eye(2, dtype=m.complex64),)],
    "from_dlpack": [(lambda m, x: m.from_dlpack(x), F)],
    "full": [(lambda m: m.full((2, 2), 7),), (lambda m: m.full(3, True),), (lambda m: m.full((), 1j),)],
    "full_like": [(lambda m, x: m.full_like(x, 3), S)],
    "linspace": [(lambda m: m.linspace(0, 1, 5),), (lambda m: m.linspace(0, 1j, 4, endpoint=False),)],
    "meshgrid": [(lambda m, x: m.meshgrid(x, x + 1, indexing="ij"), V), (lambda m, x: m.meshgrid(x, x[:2]), V)],
    "ones": [(lambda m: m.ones((2, 0, 3)),)],
    "ones_like": [(lambda m, x: m.ones_like(x), I8)],
    "tril": [(lambda m, x: m.tril(x, k=-1), Q)],
    "triu": [(lambda m, x: m.triu(x, k=1), Q)],
    "zeros": [(lambda m: m.zeros(4, dtype=m.bool),)],
    "zeros_like": [(lambda m, x: m.zeros_like(x), C)],
    "astype": [(lambda m, x: m.astype(x, m.int16), F), (lambda m, x: m.astype(x, m.bool), I8)],
    "can_cast": [(lambda m: m.can_cast(m.int8, m.int16),), (lambda m: m.can_cast(m.int16, m.int8),)],
    "finfo": [(lambda m: tuple(getattr(m.finfo(m.complex64), k) for k in ("bits", "eps", "max", "dtype")),)],
    "iinfo": [(lambda m: tuple(getattr(m.iinfo(m.uint8), k) for k in ("bits", "max", "min", "dtype")),)],
    "isdtype": [
        (lambda m: m.isdtype(m.int8, ("bool", "integral")),),
        (lambda m: m.isdtype(m.int8, "unsigned integer"),),
    ],
    "result_type": [(lambda m: m.result_type(m.int8, m.uint8),), (lambda m, x: m.result_type(x, 1j), S)],
    "clip": [
        (lambda m, x: m.clip(x, -1, 2), I8),
        (lambda m, x: m.clip(x, max=0.5), S),
        (lambda m, x: m.clip(x, x * 0), F),
    ],
    "take": [(lambda m, x, k: m.take(x, k, axis=0), F, K)],
    "take_along_axis": [(lambda m, x, k: m.take_along_axis(x, k[:, None], axis=1), F, K)],
    "matmul": [(lambda m, x, y: m.matmul(x, m.matrix_transpose(y)), F, G), (lambda m, x, y: m.matmul(x, y), Q, V)],
    "matrix_transpose": [(lambda m, x: m.matrix_transpose(x), Q)],
    "tensordot": [
        (lambda m, x, y: m.tensordot(x, y, axes=((0, 1), (0, 1))), F, G),
        (lambda m, x: m.tensordot(x, x, axes=0), V),
    ],
    "vecdot": [(lambda m, x: m.vecdot(x, x + 1j, axis=-2), C)],
    "broadcast_arrays": [(lambda m, x, y: m.broadcast_arrays(x, y), F, V)],
    "broadcast_shapes": [(lambda m: m.broadcast_shapes((2, 1), (3,)),), (lambda m: m.broadcast_shapes(),)],
    "broadcast_to": [(lambda m, x: m.broadcast_to(x, (2, 3)), V)],
    "concat": [(lambda m, x, y: m.concat((x, y), axis=-1), F, G), (lambda m, x, y: m.concat([x, y], axis=None), F, V)],
    "expand_dims": [(lambda m, x: m.expand_dims(x, axis=(0, -1)), F), (lambda m, x: m.expand_dims(x, axis=-2), F)],
    "flip": [(lambda m, x: m.flip(x), F), (lambda m, x: m.flip(x, axis=(0,)), F)],
    "moveaxis": [(lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)), Q)],
    "permute_dims": [(lambda m, x: m.permute_dims(x, (-1, 0, 1)), Q)],
    "repeat": [(lambda m, x: m.repeat(x, 2, axis=1), F), (lambda m, x, k: m.repeat(x, k * k, axis=0), F, K)],
    "reshape": [(lambda m, x: m.reshape(x, (2, -1)), F), (lambda m, x: m.reshape(x, (3, 4), copy=True), F)],
    "roll": [(lambda m, x: m.roll(x, (1, -1), axis=(0, 1)), F), (lambda m, x: m.roll(x, 5), F)],
    "squeeze": [(lambda m, x: m.squeeze(x[:1, ..., :1], axis=(0, -1)), Q)],
    "stack": [(lambda m, x, y: m.stack([x, y], axis=1), F, G)],
    "tile": [(lambda m, x: m.tile(x, (2, 1, 3)), F)],
    "unstack": [(lambda m, x: m.unstack(x, axis=-1), F)],
    "argmax": [(lambda m, x: m.argmax(x, axis=1), F), (lambda m, x: m.argmax(x, keepdims=True), F)],
    "argmin": [(lambda m, x: m.argmin(x, axis=0, keepdims=True), I8)],
    "count_nonzero": [
        (lambda m, x: m.count_nonzero(x), I8),
        (lambda m, x: m.count_nonzero(x, axis=(0, 1), keepdims=True), B),
    ],
    "nonzero": [(lambda m, x: m.nonzero(x), B)],
    "searchsorted": [
        (lambda m, x: m.searchsorted(x, 3.0, side="right"), V),
        (lambda m, x, y: m.searchsorted(x, y), V, F),
    ],
    "where": [(lambda m, b, x, y: m.where(b, x, y), B, F, S), (lambda m, b, x: m.where(b, x, 0), B, S)],
    "isin": [(lambda m, x: m.isin(x, x[0, :]), I8), (lambda m, x: m.isin(2, x), I8)],
    "unique_all": [(lambda m, x: m.unique_all(x)[1:], U)],
    "unique_counts": [(lambda m, x: m.unique_counts(x), I8)],
    "unique_inverse": [(lambda m, x: m.unique_inverse(x), I8)],
    "unique_values": [(lambda m, x: m.sort(m.unique_values(x)), I8)],
    "argsort": [(lambda m, x: m.argsort(x, axis=0), I8), (lambda m, x: m.argsort(x, descending=True), I8)],
    "sort": [(lambda m, x: m.sort(x), F), (lambda m, x: m.sort(x, axis=0, descending=True), I8)],
    "cumulative_prod": [
        (lambda m, x: m.cumulative_prod(x, axis=0), S),
        (lambda m, x: m.cumulative_prod(x, axis=1), I8),
    ],
    "cumulative_sum": [
        (lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True), I8),
        (lambda m, x: m.cumulative_sum(x), U),
    ],
    "max": [(lambda m, x: m.max(x, axis=(0, 1)), F), (lambda m, x: m.max(x, axis=1, keepdims=True), I8)],
    "mean": [(lambda m, x: m.mean(x, axis=0), S), (lambda m, x: m.mean(x), C)],
    "min": [(lambda m, x: m.min(x, axis=()), F), (lambda m, x: m.min(x), U)],
    "prod": [(lambda m, x: m.prod(x, axis=0), I8), (lambda m, x: m.prod(x, dtype=m.float32), U)],
    "std": [(lambda m, x: m.std(x, axis=0, correction=1.5), F)],
    "sum": [
        (lambda m, x: m.sum(x, axis=0), I8),
        (lambda m, x: m.sum(x), U),
        (lambda m, x: m.sum(x, axis=(0, 1), keepdims=True), S),
    ],
    "var": [(lambda m, x: m.var(x), S), (lambda m, x: m.var(x, axis=1, correction=1), F)],
    "all": [(lambda m, x: m.all(x, axis=1), B), (lambda m, x: m.all(x[:0, :]), F)],
    "any": [(lambda m, x: m.any(x), I8), (lambda m, x: m.any(x, axis=(0, 1), keepdims=True), B)],
    "diff": [(lambda m, x: m.diff(x, axis=0, n=2), F), (lambda m, x: m.diff(x, prepend=x[:, :1], append=x), I8)],
    "linalg.cholesky": [(lambda m, x: m.linalg.cholesky(x), P), (lambda m, x: m.linalg.cholesky(x, upper=True), P)],
    "linalg.cross": [(lambda m, x, y: m.linalg.cross(x, y), F, V)],
    "linalg.det": [(lambda m, x: m.linalg.det(x), Q)],
    "linalg.diagonal": [(lambda m, x: m.linalg.diagonal(x, offset=-1), Q)],
    "linalg.eig": [(lambda m, x: m.linalg.eig(x), Q)],
    "linalg.eigh": [(lambda m, x: m.linalg.eigh(x)[0], P)],
    "linalg.eigvals": [(lambda m, x: m.linalg.eigvals(x), Q)],
    "linalg.eigvalsh": [(lambda m, x: m.linalg.eigvalsh(x), P)],
    "linalg.inv": [(lambda m, x: m.linalg.inv(x), P)],
    "linalg.matmul": [(lambda m, x: m.linalg.matmul(x, x), Q)],
    "linalg.matrix_norm": [
        (lambda m, x, k=k: m.linalg.matrix_norm(x, ord=k, keepdims=True), Q)
        for k in ("fro", "nuc", 1, -2, float("inf"))
    ],
    "linalg.matrix_power": [
        (lambda m, x: m.linalg.matrix_power(x, 3), Q),
        (lambda m, x: m.linalg.matrix_power(x, -1), P),
    ],
    "linalg.matrix_rank": [(lambda m, x: m.linalg.matrix_rank(x), Q)],
    "linalg.matrix_transpose": [(lambda m, x: m.linalg.matrix_transpose(x), Q)],
    "linalg.outer": [(lambda m, x: m.linalg.outer(x, x[:2]), V)],
    "linalg.pinv": [(lambda m, x: m.linalg.pinv(x), F)],
    "linalg.qr": [(lambda m, x: m.linalg.qr(x), F), (lambda m, x: m.linalg.qr(x, mode="complete"), F)],
    "linalg.slogdet": [(lambda m, x: m.linalg.slogdet(x), Q)],
    "linalg.solve": [(lambda m, x, y: m.linalg.solve(x, y), P, V), (lambda m, x: m.linalg.solve(x, x[0, ...]), P)],
    "linalg.svd": [(lambda m, x: m.linalg.svd(x, full_matrices=False), F)],
    "linalg.svdvals": [(lambda m, x: m.linalg.svdvals(x), F)],
    "linalg.tensordot": [(lambda m, x, y: m.linalg.tensordot(x, y, axes=((-1,), (-1,))), F, G)],
    "linalg.trace": [(lambda m, x: m.linalg.trace(x, offset=1), Q)],
    "linalg.vecdot": [(lambda m, x, y: m.linalg.vecdot(x, y), F, V)],
    "linalg.vector_norm": [
        (lambda m, x, k=k: m.linalg.vector_norm(x, axis=(0, 1), keepdims=True, ord=k), F)
        for k in (0, 1, 2, 3, float("-inf"))
    ],
    **{
        f"fft.{name}": [
            (lambda m, x, name=name: getattr(m.fft, name)(x, n=5, axis=0, norm="ortho"), C.astype("complex64")),
            (lambda m, x, name=name: getattr(m.fft, name)(x), C),
        ]
        for name in ("fft", "ifft", "irfft", "hfft")
    },
    **{
        f"fft.{name}": [(lambda m, x, name=name: getattr(m.fft, name)(x, axes=(0, 1), norm="forward"), C)]
        for name in ("fftn", "ifftn", "irfftn")
    },
    "fft.rfft": [(lambda m, x: m.fft.rfft(x, n=5), S)],
    "fft.ihfft": [(lambda m, x: m.fft.ihfft(x, axis=0), F)],
    "fft.rfftn": [(lambda m, x: m.fft.rfftn(x, s=(2, 3), axes=(0, 1)), F)],
    "fft.fftfreq": [(lambda m: m.fft.fftfreq(5, d=0.5, dtype=m.float32),)],
    "fft.rfftfreq": [(lambda m: m.fft.rfftfreq(6),)],
    "fft.fftshift": [(lambda m, x: m.fft.fftshift(x), F)],
    "fft.ifftshift": [(lambda m, x: m.fft.ifftshift(x, axes=0), F)],
    "info.capabilities": [(lambda m: tuple(sorted(m.__array_namespace_info__().capabilities())),)],
    "info.default_dtypes": [(lambda m: tuple(sorted(m.__array_namespace_info__().default_dtypes())),)],
    "info.dtypes": [
        (lambda m, kind=kind: tuple(sorted(m.__array_namespace_info__().dtypes(kind=kind))),)
        for kind in (None, "bool", "numeric", ("integral", "complex floating"))
    ],
}


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
        f"{part}.{line.split('(')[0].strip()}" if part in ("linalg", "fft", "info") else line.split("(")[0].strip()
        for part, text in SIGNATURES.items() if part != "methods" for line in text.strip().splitlines()
    }  # fmt: skip
    # Devices are each library's own.
    own = {"info.__array_namespace_info__", "info.default_device", "info.devices"}
    assert every - own == {*UNARY, *BINARY, *CALLS}
