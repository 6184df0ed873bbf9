"""Calls of every function of the Array API standard: what the tests compare, and what the table of states runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from array_api_tests.standard import SIGNATURES

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(1 if dtype.startswith("u") else -6, 7, shape).astype(dtype)
    values = rng.standard_normal(shape) * 2
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


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
    "ones": [(lambda m: m.ones((2, 3)),), (lambda m: m.ones((2, 0, 3)),)],
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
    "nonzero": [(lambda m, x: m.nonzero(x), B), (lambda m, x: m.nonzero(x), C)],
    "searchsorted": [
        (lambda m, x: m.searchsorted(x, 3.0, side="right"), V),
        (lambda m, x, y: m.searchsorted(x, y), V, F),
    ],
    "where": [(lambda m, b, x, y: m.where(b, x, y), B, F, S), (lambda m, b, x: m.where(b, x, 0), B, S)],
    "isin": [(lambda m, x: m.isin(x, x[0, :]), I8), (lambda m, x: m.isin(2, x), I8)],
    "unique_all": [(lambda m, x: m.unique_all(x)[1:], U), (lambda m, x: m.unique_all(x)[:1], C)],
    "unique_counts": [(lambda m, x: m.unique_counts(x), I8), (lambda m, x: m.unique_counts(x)[1], C)],
    "unique_inverse": [(lambda m, x: m.unique_inverse(x), I8), (lambda m, x: m.unique_inverse(x)[0], C)],
    "unique_values": [
        (lambda m, x: m.sort(m.unique_values(x)), I8),
        (lambda m, x: m.unique_values(x).shape, C),
    ],
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
    "info.__array_namespace_info__": [(lambda m: bool(m.__array_namespace_info__()),)],
    "info.default_device": [(lambda m: bool(m.__array_namespace_info__().default_device()),)],
    "info.devices": [(lambda m: bool(m.__array_namespace_info__().devices()),)],
    "info.capabilities": [(lambda m: tuple(sorted(m.__array_namespace_info__().capabilities())),)],
    "info.default_dtypes": [(lambda m: tuple(sorted(m.__array_namespace_info__().default_dtypes())),)],
    "info.dtypes": [
        (lambda m, kind=kind: tuple(sorted(m.__array_namespace_info__().dtypes(kind=kind))),)
        for kind in (None, "bool", "numeric", ("integral", "complex floating"))
    ],
}


def functions(part: str) -> list[str]:
    """Names of the functions of one part of the standard."""
    return [line.split("(")[0].strip() for line in SIGNATURES[part].strip().splitlines()]


def calls(part: str, name: str) -> list[tuple[Any, ...]]:
    """Calls of a function, method or operator, and their arrays."""
    called = f"{part}.{name}" if part in ("linalg", "fft", "info") else name
    if part == "methods":
        return METHODS.get(name) or _operator(name)
    if called in CALLS or part != "elementwise":
        return CALLS[called]
    operands = (I8, I8) if name.startswith("bitwise_") else (F, G)
    one = f"{name}(x, /)" in SIGNATURES["elementwise"]
    return [(lambda m, *xs: getattr(m, name)(*xs), *operands[: 1 if one else 2])]


METHODS: dict[str, list[tuple[Any, ...]]] = {
    "__array_namespace__": [(lambda m, x: x.__array_namespace__(), F)],
    "__dlpack__": [(lambda m, x: x.__dlpack__(max_version=(1, 0)), F)],
    "__dlpack_device__": [(lambda m, x: x.__dlpack_device__(), F)],
    "__getitem__": [
        (lambda m, x: x[1:, ::-1], F),
        (lambda m, x: x[None, ..., 0], F),
        (lambda m, x, k: x[k, k * 0], F, K),
        (lambda m, x, b: x[b], F, B),
    ],
    "__setitem__": [
        (lambda m, x: _set(x, (slice(1, None), 0), 7.0), F),
        (lambda m, x, y: _set(x, 0, y), F, V),
        (lambda m, x, b: _set(x, b, 0.0), F, B),
    ],
    "to_device": [(lambda m, x: x.to_device("cpu"), F)],
    **{
        name: [(lambda m, x, name=name: getattr(x, name)(), np.array(value))]
        for name, value in (
            ("__bool__", True), ("__complex__", 1.5), ("__float__", 1.5), ("__index__", 3), ("__int__", 3)
        )
    },
}  # fmt: skip


def _set(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def _operator(name: str) -> list[tuple[Any, ...]]:
    """Calls of an operator, with its reflected form and that in place, if it has them."""
    bare = name.strip("_")
    if bare == "matmul":
        return [(lambda m, x, form=form: getattr(x, f"__{form}matmul__")(x), Q) for form in ("", "r", "i")]
    operands = (I8, I8) if bare in ("and", "or", "xor", "invert", "lshift", "rshift") else (F, G)
    if f"{name}(self, /)" in SIGNATURES["methods"]:
        return [(lambda m, x: getattr(x, name)(), operands[0])]
    forms = ("",) if bare in ("eq", "ge", "gt", "le", "lt", "ne") else ("", "r", "i")
    return [(lambda m, x, y, form=form: getattr(x, f"__{form}{bare}__")(y), *operands) for form in forms]
