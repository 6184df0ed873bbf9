"""The workloads, each written once as array code over a NumPy-like namespace `xp`, and the rows that time them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np


def chain(xp: Any, x: Any) -> Any:
    return xp.exp(-(x * x) * 0.5) * 0.3989 + xp.sin(x) * 0.5


def softmax_parts(xp: Any, x: Any) -> tuple[Any, Any]:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e, xp.sum(e, axis=-1, keepdims=True)


def softmax(xp: Any, x: Any) -> Any:
    e, total = softmax_parts(xp, x)
    return e / total


def layernorm_parts(xp: Any, x: Any) -> tuple[Any, Any]:
    d = x - xp.mean(x, axis=-1, keepdims=True)
    return d, xp.sqrt(xp.mean(d * d, axis=-1, keepdims=True) + 1e-5)


def layernorm(xp: Any, x: Any) -> Any:
    d, deviation = layernorm_parts(xp, x)
    return d / deviation


def sum_0(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=0)


def sum_1(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=1)


def sum_all(xp: Any, x: Any) -> Any:
    return xp.sum(x)


def var_0(xp: Any, x: Any) -> Any:
    return xp.var(x, axis=0)


def var_1(xp: Any, x: Any) -> Any:
    return xp.var(x, axis=1)


def var_all(xp: Any, x: Any) -> Any:
    return xp.var(x)


def matmul(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


def matmul_tn(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a.T, b)


def matmul_nt(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b.T)


def matmul_tt(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a.T, b.T)


def matmul_f8(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b.T, dtype=xp.bfloat16)


def matmul_int8(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b.T, dtype=xp.int32)


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = xp.matmul(q, xp.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5
    return xp.matmul(softmax(xp, scores), v)


def causal_attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = xp.matmul(q, xp.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5
    places = xp.arange(q.shape[-2], like=q)
    return xp.matmul(softmax(xp, xp.where(places[:, None] >= places, scores, -math.inf)), v)


def matmul_alone(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.matmul(a, b)


def gelu_matmul(xp: Any, a: Any, b: Any, c: Any) -> Any:
    z = xp.matmul(a, b) + c
    return 0.5 * z * (1.0 + xp.tanh(0.7978845608 * (z + 0.044715 * z * z * z)))


def black_scholes(xp: Any, spot: Any, strike: Any, years: Any) -> Any:
    rate, vol = 0.02, 0.3
    d1 = (xp.log(spot / strike) + (rate + vol * vol * 0.5) * years) / (vol * xp.sqrt(years))
    d2 = d1 - vol * xp.sqrt(years)
    cdf1 = 0.5 * (1.0 + xp.tanh(0.7978845608 * (d1 + 0.044715 * d1 * d1 * d1)))
    cdf2 = 0.5 * (1.0 + xp.tanh(0.7978845608 * (d2 + 0.044715 * d2 * d2 * d2)))
    return spot * cdf1 - strike * xp.exp(-rate * years) * cdf2


def stencil(xp: Any, u: Any) -> Any:
    c = u[1:-1, 1:-1]
    return c + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * c)


def pairwise(xp: Any, a: Any, b: Any) -> Any:
    d = a[:, None, :] - b[None, :, :]
    return xp.sum(d * d, axis=-1)


def small(xp: Any, x: Any) -> Any:
    for _ in range(5):
        x = x * 1.01
        x = x + 0.5
    return x


def argmax_1(xp: Any, x: Any) -> Any:
    return xp.argmax(x, axis=1)


def transpose(xp: Any, x: Any) -> Any:
    return xp.ascontiguousarray(x.T)


def gather(xp: Any, x: Any, index: Any) -> Any:
    return x[index]


def cumsum(xp: Any, x: Any) -> Any:
    return xp.cumsum(x, axis=0)


def sort(xp: Any, x: Any) -> Any:
    return xp.sort(x)


#: Rows that end in a division, and what is divided.
QUOTIENTS: dict[Callable[..., Any], Callable[..., tuple[Any, Any]]] = {
    softmax: softmax_parts,
    layernorm: layernorm_parts,
}
ATTENTION = (attention, causal_attention)
#: Products that a library call does as they are.
MATMULS = (matmul, matmul_tn, matmul_nt, matmul_tt, matmul_f8, matmul_int8, matmul_alone)
PRODUCTS = (*MATMULS, gelu_matmul, *ATTENTION)
#: Rows of which the tables tell how they are computed.
EXPLAINED = (gelu_matmul, *ATTENTION)
#: Products with something behind them, and the product alone.
BARE: dict[Callable[..., Any], Callable[..., Any]] = {gelu_matmul: matmul_alone}
REDUCTIONS = (argmax_1, sum_0, sum_1, sum_all, var_0, var_1, var_all)
FLOATS = (("f32", "float32", 4), ("f64", "float64", 8))
#: Sides of square products.
SQUARES = (8192, 4096, 2048, 1024)
#: Types that are made from float32 and that files hold as integers.
NARROW = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
}


@dataclass(frozen=True)
class Row:
    """A line of the tables: `function` on random arrays of these shapes.

    The limit of a row is the longer of `nbytes` (inputs read once, output written once) at the bandwidth measured in
    the same run and `flops` at the peak (measured on a CPU, a GPU's vendor's figure); a row of neither (10 ops on
    1,000 elements) is all overhead.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    nbytes: int = 0
    flops: int = 0
    positive: bool = False
    #: The last input holds random indices into the first.
    indices: bool = False

    def limit(self, limits: dict[str, float]) -> float:
        """Seconds that the row takes at least, given what `limits.py` measured; 0 if nothing is known."""
        bandwidth = limits["read" if self.function in (*REDUCTIONS, *PRODUCTS) else "copy"]
        return max(self.nbytes / bandwidth, self.flops / limits.get(self.dtype, float("inf")))

    @property
    def memory_bound(self) -> bool:
        """Whether a GPU does the row as fast as the bytes move."""
        return bool(self.nbytes) and not self.flops and self.function is not sort

    def sources(self) -> list[tuple[str, int, int]]:
        """What the inputs are cut from (see `Pools`): name, first element, number of elements."""
        kind = "uniform" if self.positive else "normal"
        names = [f"{kind}-{self.dtype}"] * len(self.shapes)
        if self.indices:
            names[-1] = f"indices-{self.shapes[0][0]}"
        return [(name, k << 20, math.prod(shape)) for k, (name, shape) in enumerate(zip(names, self.shapes))]

    def inputs(self) -> list[np.ndarray]:
        """Random values."""
        out = []
        for k, shape in enumerate(self.shapes):
            rng = np.random.default_rng(k)
            t = np.dtype("float64" if self.dtype == "float64" else "float32").type
            out.append(rng.random(shape, t) + t(0.5) if self.positive else rng.standard_normal(shape, t))
        return out


class Pools:
    """Random numbers in files of a folder, from which all peers cut the inputs of large rows."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def fill(self, selected: list[Row]) -> None:
        sizes: dict[str, int] = {}
        for row in selected:
            for name, first, count in row.sources():
                sizes[name] = max(sizes.get(name, 0), first + count)
        for name, size in sizes.items():
            kind, what = name.split("-")
            rng = np.random.Generator(np.random.SFC64(0))
            if kind == "indices":
                values = rng.integers(0, int(what), size)
            else:
                t = np.float64 if what == "float64" else np.float32
                values = rng.random(size, t) + t(0.5) if kind == "uniform" else rng.standard_normal(size, t)
                if what == "int8":
                    values = np.clip(values * 40, -127, 127).astype(np.int8)
                elif what in NARROW:
                    values = values.astype(NARROW[what]).view(f"i{NARROW[what].itemsize}")
            np.save(self.folder / f"{name}.npy", values)

    def cut(self, name: str, first: int, count: int) -> np.ndarray:
        values = np.load(self.folder / f"{name}.npy", mmap_mode="c")[first : first + count]
        narrow = NARROW.get(name.split("-")[1])
        return values if narrow is None else values.view(narrow)


def rows(device: str) -> list[Row]:
    """The rows, at sizes that a CPU or a GPU takes milliseconds for."""
    n, options, side, pairs = (
        (100_000_000, 50_000_000, 16384, 8192) if device == "cuda" else (10_000_000, 4_000_000, 4096, 2048)
    )
    mm = 2048
    square, moved = (side, side), 4 * side * side
    out = [Row(f"exp/sin chain {n // 10**6}M {short}", chain, ((n,),), t, 2 * n * size) for short, t, size in FLOATS]
    for short, t, size in FLOATS:
        name = f"Black-Scholes {options // 10**6}M {short}"
        out.append(Row(name, black_scholes, ((options,),) * 3, t, 4 * options * size, positive=True))
    out += [
        Row(f"{name} {side}^2 f32", function, (square,), nbytes=2 * moved)
        for name, function in (("softmax", softmax), ("layernorm", layernorm), ("5-point stencil", stencil))
    ]
    flops = 3 * 16 * pairs * pairs
    out.append(
        Row(f"pairwise distance {pairs}x{pairs}x16 f32", pairwise, ((pairs, 16),) * 2, "float32", 4 * pairs**2, flops)
    )
    names = ("argmax axis 1", "sum axis 0", "sum axis 1", "sum all", "var axis 0", "var axis 1", "var all")
    out += [
        Row(f"{name} {side}^2 f32", function, (square,), nbytes=moved)
        for name, function in zip(names, REDUCTIONS, strict=True)
        if device == "cuda" or function is not argmax_1
    ]
    if device == "cuda":
        out += gpu_rows()
        out += gpu_products()
    else:
        out += [Row(f"matmul {mm} {short}", matmul, ((mm, mm),) * 2, t, flops=2 * mm**3) for short, t, _ in FLOATS]
        out.append(Row(f"gelu(a @ b + c) {mm} f32", gelu_matmul, ((mm, mm), (mm, mm), (mm,)), flops=2 * mm**3))
        out.append(Row("matmul 32 f32", matmul, ((32, 32),) * 2, flops=2 * 32**3))
    out.append(Row("10 ops on 1,000 elements f32", small, ((1000,),)))
    return out


def gpu_rows() -> list[Row]:
    """What only a GPU's table has: rows of many lengths, and movement."""
    million = 1_000_000
    out = [Row("softmax 4096x1024 f32", softmax, ((4096, 1024),), nbytes=8 * 4096 * 1024)]
    for short, dtype, size in (("f32", "float32", 4), ("bf16", "bfloat16", 2)):
        for power in range(7, 19):
            shape = (2 ** (27 - power), 2**power)
            out.append(Row(f"softmax 2^27 {short}, rows of {2**power}", softmax, (shape,), dtype, 2 * size * 2**27))
    out += [
        Row("layernorm 16384x4096 f32", layernorm, ((16384, 4096),), nbytes=8 * 16384 * 4096),
        Row("transposed copy 16384^2 f32", transpose, ((16384, 16384),), nbytes=8 * 16384**2),
        Row("gather 64M random f32", gather, ((64 * million,),) * 2, nbytes=16 * 64 * million, indices=True),
        Row("cumsum 100M f32", cumsum, ((100 * million,),), nbytes=8 * 100 * million),
        Row("sort 32M f32", sort, ((32 * million,),), nbytes=8 * 32 * million),
    ]
    return out


def product(
    name: str, m: int, n: int, k: int, dtype: str, *batch: int, function: Callable[..., Any] = matmul, result: int = 0
) -> Row:
    """A product of (m, k) and (k, n), stored as `function` takes them; bytes of the result's elements if not theirs."""
    a, b = (m, k), (k, n)
    if function in (matmul_tn, matmul_tt):
        a = a[::-1]
    if function in (matmul_nt, matmul_tt, matmul_f8, matmul_int8):
        b = b[::-1]
    size = NARROW[dtype].itemsize if dtype in NARROW else np.dtype(dtype).itemsize
    times = math.prod(batch)
    nbytes = times * (size * (m * k + k * n) + (result or size) * m * n)
    return Row(name, function, ((*batch, *a), (*batch, *b)), dtype, nbytes, 2 * times * m * n * k)


def gpu_products() -> list[Row]:
    bf16, f16 = "bfloat16", "float16"
    out = [product(f"matmul {n} {t}", n, n, n, d) for t, d in (("bf16", bf16), ("f16", f16)) for n in SQUARES]
    out.append(product("matmul 256 bf16", 256, 256, 256, bf16))  # whose time is the host's
    out += [
        product(f"matmul 8192 bf16, {which}", 8192, 8192, 8192, bf16, function=function)
        for which, function in (("a.T @ b", matmul_tn), ("a @ b.T", matmul_nt), ("a.T @ b.T", matmul_tt))
    ]
    out += [
        product(f"matmul {m}x{n}x{k} bf16", m, n, k, bf16)
        for m, n, k in ((4095, 4097, 4099), (16, 8192, 8192), (128, 4096, 16384), (512, 512, 32768))
    ]
    out += [
        product("matmul 64 times 1024 bf16", 1024, 1024, 1024, bf16, 64),
        product("matmul 8192 f8 e4m3, a @ b.T", 8192, 8192, 8192, "float8_e4m3fn", function=matmul_f8, result=2),
        product("matmul 8192 int8, a @ b.T", 8192, 8192, 8192, "int8", function=matmul_int8, result=4),
        product("matmul 4096 f32", 4096, 4096, 4096, "float32"),
        product("matmul 8192 f32", 8192, 8192, 8192, "float32"),
        product("matmul 4096 f64", 4096, 4096, 4096, "float64"),
    ]
    out += [
        Row(f"matrix-vector 8192x16384 {t}", matmul, ((8192, 16384), (16384,)), d, size * 8192 * 16384)
        for t, d, size in (("f32", "float32", 4), ("bf16", bf16, 2))
    ]
    shapes = ((8192, 8192), (8192, 8192), (8192,))
    out.append(Row("gelu(a @ b + c) 8192 bf16", gelu_matmul, shapes, bf16, 6 * 8192**2, 2 * 8192**3))
    for n, width in ((4096, 64), (8192, 128)):
        for name, function, share in (("attention", attention, 1), ("causal attention", causal_attention, 2)):
            shape = (4, 16, n, width)
            flops = 4 * 64 * n * n * width // share
            out.append(Row(f"{name} 4x16x{n}x{width} bf16", function, (shape,) * 3, bf16, 8 * math.prod(shape), flops))
    return out
