"""Matrix products and generalised ones for the GPU, built by hand, with arguments for the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import Type, Value
from tests.compiler.cuda.gpu_kernels import Case, Make, tolerance, values


class Product(Make):
    """A kernel with the dims of a product: blocks of m and n, the whole of k."""

    def __init__(self, m: int, n: int, k: int, side: int, batch: int = 0, aligned: bool = True, broad: int = 0) -> None:
        super().__init__("product", aligned)
        self.shape = (m, n, k)
        sizes = [self.size(x) for x in self.shape]
        axis = self.b.grid_axis(self.size(batch)) if batch else None
        self.batch = batch
        self.program = self.b.program_id(axis) if axis is not None else None
        self.m, self.n = self.blocked("m", sizes[0], side), self.blocked("n", sizes[1], broad or side)
        self.k = self.b.dim("k", sizes[2])
        self.b.attrs["schedule"] = "gemm"

    def _view(self, dims: str, transposed: bool, pad: int, step: int = 1) -> tuple[int, list[Value], Value]:
        """(elements, strides, offset) of an array over two of the dims (and the batch), its rows padded."""
        b = self.b
        lengths = dict(zip("mnk", self.shape, strict=True))
        rows, columns = (lengths[d] for d in (dims[::-1] if transposed else dims))
        pitch = columns * step + pad
        size = rows * pitch
        strides = [self.size(pitch), b.const(1) if step == 1 else self.size(step)]
        offset = b.const(0)
        if self.program is not None:
            offset = b.op("multiply", self.program, self.size(size))
        for d, stride in zip(dims, strides[::-1] if transposed else strides, strict=True):
            if d != "k":
                offset = b.op("add", offset, b.op("multiply", b.dim_start(d), stride))
        return size * max(1, self.batch), strides[::-1] if transposed else strides, offset

    def operand(self, dims: str, dtype: str, transposed: bool = False, pad: int = 0, step: int = 1) -> Value:
        size, strides, offset = self._view(dims, transposed, pad, step)
        # Large arrays repeat themselves: random numbers take long.
        data = np.resize(values(self.rng, dtype, min(size, 1 << 20) - (size > 1 << 20)), size)
        return self.b.load_view(self.array(dtype, size, data=data), offset, strides, tuple(dims))

    def line(self, dim: str, dtype: str) -> Value:
        """A vector along m or n."""
        length = dict(zip("mnk", self.shape, strict=True))[dim]
        offset = self.b.dim_start(dim) if dim != "k" else self.b.const(0)
        return self.b.load_view(self.array(dtype, length), offset, [self.b.const(1)], (dim,))

    def result(self, value: Value, transposed: bool = False, pad: int = 0) -> None:
        size, strides, offset = self._view("mn", transposed, pad)
        out = self.array(value.type.dtype, size, data=np.zeros(size, NUMPY[value.type.dtype]))
        self.b.store_view(value, out, offset, strides)

    def spread(self, value: Value, dims: str) -> Value:
        extents = tuple(dims)
        return self.b.broadcast(value, [extents.index(str(e)) for e in value.type.extents], extents)


def product(
    dtype: str = "f32", m: int = 64, n: int = 64, k: int = 32, side: int = 64, transposed: str = "", pad: int = 0,
    batch: int = 0, aligned: bool = True, step: int = 1, broad: int = 0, parts: int = 1,
) -> Case:  # fmt: skip
    """a @ b; `transposed` names those of a, b and c whose rows lie along the other dim."""
    p = Product(m, n, k, side, batch, aligned, broad)
    if parts > 1:
        p.b.attrs["parts"] = parts
    a = p.operand("mk", dtype, "a" in transposed, pad, step)
    b = p.operand("kn", dtype, "b" in transposed, pad, step)
    dtype = dtypes.ACCUMULATED.get(dtype, dtype)
    p.result(p.b.dot(a, b, dtype=dtype), "c" in transposed, pad)
    scale = k**0.5 * tolerance(dtype)
    return p.case(tolerance(dtype), 4 * scale)


def fused(dtype: str = "f32", m: int = 64, n: int = 64, k: int = 32, side: int = 64) -> Case:
    """exp(-|(2 a) @ cast(b) + c|) * d with c over n and d over m, and the sum before it."""
    p = Product(m, n, k, side)
    b = p.b
    x = p.operand("mk", dtype)
    y = b.cast(p.operand("kn", "f64" if dtype == "f32" else "f32"), dtype)
    total = b.dot(b.op("add", x, x), y)
    added = b.op("add", total, p.spread(p.line("n", dtype), "mn"))
    shrunk = b.op("exp", b.op("negative", b.op("absolute", added)))
    p.result(b.op("multiply", shrunk, p.spread(p.line("m", dtype), "mn")))
    p.result(total)
    return p.case(4 * tolerance(dtype), 8 * k**0.5 * tolerance(dtype))


def dense(dtype: str = "bf16", m: int = 208, n: int = 144, k: int = 80, batch: int = 0, broad: int = 128) -> Case:
    """maximum(a @ b + c, 0) + d with c over n and d over both."""
    p = Product(m, n, k, 128, batch, broad=broad)
    b = p.b
    total = b.op("add", b.dot(p.operand("mk", dtype), p.operand("kn", dtype)), p.spread(p.line("n", dtype), "mn"))
    zero = b.broadcast(b.const(0, dtype), [], ("m", "n"))
    p.result(b.op("add", b.op("maximum", total, zero), p.operand("mn", dtype)))
    return p.case(4 * tolerance(dtype), 8 * k**0.5 * tolerance(dtype))


def finished(
    dtype: str = "bf16", m: int = 208, n: int = 272, k: int = 80, pad: int = 0, broad: int = 256, turned: bool = False
) -> Case:
    """Of z = a @ b + c + d several results, of several types; `turned`: d is transposed, and one result."""
    p = Product(m, n, k, 128, broad=broad)
    b = p.b
    product = b.dot(p.operand("mk", dtype, pad=pad), p.operand("kn", dtype, pad=pad))
    total = b.op("add", product, p.spread(p.line("n", dtype), "mn"))
    other = p.operand("mn", dtype, turned, pad)
    z = b.op("add", total, other)
    p.result(z, pad=pad)
    p.result(b.op("multiply", b.cast(product, "f32"), p.spread(p.line("m", "f32"), "mn")), turned, pad)
    p.result(b.op("less", other, p.spread(p.line("n", dtype), "mn")), pad=pad)
    return p.case(4 * tolerance(dtype), 8 * k**0.5 * tolerance(dtype))


def dequantised(
    held: str = "i8", m: int = 16, n: int = 144, k: int = 272, turned: bool = False, swapped: bool = False,
    broad: int = 64, parts: int = 1,
) -> Case:  # fmt: skip
    """a @ (cast(b) * c) with b of another type and c over n; `turned`: b lies along k, `swapped`: all transposed."""
    few = 16 if m <= 16 else 64
    p = Product(n, m, k, broad, broad=few) if swapped else Product(m, n, k, few, broad=broad)
    b = p.b
    if parts > 1:
        b.attrs["parts"] = parts
    large, few = ("mk", "kn") if swapped else ("kn", "mk")
    dim = large.strip("k")
    weights = b.cast(p.operand(large, held, turned), "bf16")
    weights = b.op("multiply", weights, p.spread(p.line(dim, "bf16"), large))
    other = p.operand(few, "bf16", swapped)
    p.result(b.dot(weights, other) if swapped else b.dot(other, weights))
    return p.case(4 * tolerance("bf16"), (60 if held in ("i8", "u8") else 1) * k**0.5 * tolerance("bf16"))


def spread(parts: int, m: int, n: int, k: int, broad: int = 64, residual: bool = False, turned: bool = False) -> Case:
    """a @ b, perhaps with a matrix added, in tiles of which several blocks have a part of k each."""
    p = Product(m, n, k, 128, broad=broad)
    total = p.b.dot(p.operand("mk", "bf16"), p.operand("kn", "bf16", turned))
    p.result(p.b.op("add", total, p.operand("mn", "bf16")) if residual else total)
    p.b.attrs["spread"] = parts
    p.args.append(np.zeros(4096 + parts * -(-m // 128) * -(-n // broad) * 128 * broad * 4, np.int8))
    p.b.param("workspace", Type("i8", pointer=True))
    p.names.append("workspace")
    return p.case(4 * tolerance("bf16"), 8 * k**0.5 * tolerance("bf16"))


def edged(m: int, n: int, k: int, broad: int = 256, turned: bool = False, pad: int = 0) -> Case:
    """a @ b, whose last tiles have few columns."""
    p = Product(m, n, k, 128, broad=broad)
    p.b.attrs["edge"] = 64
    p.result(p.b.dot(p.operand("mk", "bf16"), p.operand("kn", "bf16", turned, pad)))
    return p.case(tolerance("bf16"), 4 * k**0.5 * tolerance("bf16"))


def distances(dtype: str = "f32", m: int = 64, n: int = 64, k: int = 16, side: int = 64, kind: str = "sum") -> Case:
    """Sums of (a[:, None] - b[None]) ** 2, or for other kinds of |a[:, None] - b[None]|, over k."""
    p = Product(m, n, k, side)
    b = p.b
    x = p.spread(p.operand("mk", dtype), "mkn")
    y = p.spread(p.operand("kn", dtype, transposed=True), "mkn")
    d = b.op("subtract", x, y)
    d = b.op("multiply", d, d) if kind == "sum" else b.op("absolute", d)
    p.result(b.reduce(d, kind, [1]))
    return p.case(8 * tolerance(dtype), tolerance(dtype))


def agreement(m: int = 40, n: int = 33, k: int = 21, side: int = 32) -> Case:
    """Whether all of i < a[i, k] + i and a == b hold: several values a side, of several types, and bools."""
    p = Product(m, n, k, side)
    b = p.b
    a = p.operand("mk", "i16")

    x = p.spread(a, "mkn")
    y = p.spread(p.operand("kn", "i16", transposed=True), "mkn")
    z = p.spread(p.line("n", "i64"), "mkn")

    below = b.op("less", b.cast(x, "i64"), z)
    p.result(b.reduce(b.op("logical_or", below, b.op("equal", x, y)), "all", [1]))
    return p.case()


DTYPES = ("bool", "i8", "u8", "f8e4m3", "f8e5m2", "u16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128")

#: Small cases: names and kernels.
CASES: dict[str, Callable[[], Case]] = {
    **{f"product {d}": lambda d=d: product(d, 40, 36, 21, 32) for d in DTYPES},
    **{f"product {d} whole": lambda d=d: product(d, 32, 64, 48, 32) for d in DTYPES},
    **{
        f"product f32 {t or 'plain'} {pad}": lambda t=t, pad=pad: product("f32", 80, 96, 32, 64, t, pad)
        for t, pad in (("", 0), ("a", 0), ("b", 0), ("abc", 0), ("", 3), ("c", 3))
    },
    "product f16 transposed": lambda: product("f16", 64, 64, 48, 64, "ab"),
    "product bf16 transposed": lambda: product("bf16", 64, 64, 48, 64, "a"),
    **{
        f"product {d} {t or 'plain'} {side} {m}": lambda d=d, t=t, m=m, side=side: product(d, m, 96, 80, side, t)
        for d, t, m, side in (
            ("f16", "", 144, 128),
            ("bf16", "ab", 144, 128),
            ("bf16", "a", 60, 64),
            ("f16", "b", 64, 32),
            ("bf16", "", 48, 16),
            ("f16", "abc", 32, 32),
            ("bf16", "ab", 30, 16),
        )
    },
    **{
        f"product {d} {t or 'plain'} long": lambda d=d, t=t: product(d, 144, 160, 336, 128, t)
        for d, t in (("bf16", "a"), ("f16", "b"), ("f16", "abc"))
    },
    **{
        f"product {d} {t or 'plain'} broad": lambda d=d, t=t: product(d, 144, 272, 208, 128, t, broad=256)
        for d, t in (("bf16", ""), ("f16", "ab"))
    },
    **{
        f"product {d} {t or 'plain'} ahead {m} {broad}": lambda d=d, t=t, m=m, n=n, broad=broad: product(
            d, m, n, 144, 128, t, broad=broad
        )
        for d, t, m, n, broad in (
            ("f16", "", 256, 80, 64),
            ("bf16", "a", 144, 176, 128),
            ("bf16", "c", 144, 144, 128),
            ("f16", "ab", 400, 272, 256),
        )
    },
    **{
        f"product {d} {t or 'plain'} {side}x{broad} in {parts}": lambda d=d, t=t, s=s, i=side, w=broad, p=parts: (
            product(d, *s, i, t, broad=w, parts=p)
        )
        for d, t, s, side, broad, parts in (
            ("f16", "", (16, 272, 80), 16, 128, 1),
            ("bf16", "ab", (48, 256, 144), 32, 128, 1),
            ("f16", "a", (112, 160, 96), 64, 128, 1),
            ("bf16", "b", (272, 16, 144), 128, 16, 1),
            ("f16", "", (144, 32, 64), 128, 32, 1),
            ("bf16", "", (144, 144, 336), 128, 128, 2),
            ("f16", "ab", (128, 112, 208), 128, 64, 4),
            ("bf16", "", (16, 400, 272), 16, 128, 2),
            ("f16", "b", (80, 144, 656), 64, 128, 8),
            ("bf16", "a", (16, 272, 320), 16, 128, 4),
            ("f16", "c", (64, 128, 192), 32, 128, 2),
            ("f16", "", (128, 128, 64), 128, 128, 4),
        )
    },
    **{
        f"product {d} rows {m}x{n}": lambda d=d, m=m, n=n, broad=broad: product(d, m, n, 80, 128, "b", broad=broad)
        for d, m, n, broad in (
            ("bf16", 144, 141, 128),
            ("f16", 130, 203, 64),
            ("bf16", 128, 67, 64),
            ("f16", 272, 319, 256),
            ("bf16", 17, 66, 64),
        )
    },
    "product bf16 parts batched": lambda: product("bf16", 32, 144, 208, 16, batch=3, broad=128, parts=2),
    **{
        f"product {d} ahead {m} {broad}": lambda d=d, m=m, n=n, k=k, broad=broad: product(
            d, m, n, k, 128, "b", broad=broad
        )
        for d, m, n, k, broad in (
            ("i8", 256, 80, 288, 64),
            ("f8e5m2", 144, 176, 144, 128),
            ("f8e4m3", 144, 144, 1168, 128),
            ("u8", 400, 272, 144, 256),
        )
    },
    **{
        f"product {d} {t or 'plain'} {side}": lambda d=d, t=t, side=side: product(d, 144, 96, 144, side, t)
        for d, t, side in (("i8", "b", 64), ("u8", "b", 32), ("f8e4m3", "ab", 128), ("f8e5m2", "b", 128))
    },
    **{
        f"product {d} {t or 'plain'} {m}x{n}x{k} pitched": lambda d=d, t=t, m=m, n=n, k=k, s=s, p=p: product(
            d, m, n, k, s, t, pad=p
        )
        for d, t, m, n, k, s, p in (
            ("i8", "b", 61, 35, 333, 32, 3),
            ("f8e4m3", "b", 77, 130, 141, 64, 3),
            ("bf16", "b", 61, 35, 333, 32, 3),
            ("f16", "", 60, 45, 77, 32, 3),
            ("bf16", "a", 45, 45, 77, 16, 3),
        )
    },
    **{
        f"product f64 {t or 'plain'} ahead {m} {broad}": lambda t=t, m=m, n=n, k=k, broad=broad, pad=pad: product(
            "f64", m, n, k, 128, t, pad, broad=broad
        )
        for t, m, n, k, broad, pad in (
            ("", 144, 272, 128, 128, 0),
            ("b", 130, 74, 126, 64, 2),
            ("a", 34, 144, 142, 128, 0),
            ("ab", 142, 70, 96, 64, 4),
            ("c", 128, 130, 16, 128, 0),
        )
    },
    "product f64 ahead batched": lambda: product("f64", 48, 60, 32, 128, "b", batch=3),
    "product f64 ahead k 0": lambda: product("f64", 128, 128, 0, 128),
    "product i8 ahead batched": lambda: product("i8", 144, 160, 96, 128, "b", batch=3),
    "product f8e4m3 ahead k 0": lambda: product("f8e4m3", 128, 128, 0, 128, "b"),
    "product bf16 ahead batched": lambda: product("bf16", 144, 160, 96, 128, batch=3),
    "product f16 ahead k 0": lambda: product("f16", 128, 128, 0, 128),
    "dense bf16": lambda: dense("bf16"),
    "dense f64": lambda: dense("f64", 136, 144, 48),
    "dense f16 batched": lambda: dense("f16", batch=2, broad=64),
    "product bf16 ahead far": lambda: product("bf16", 300, 272, 464, 128, broad=256),
    "finished bf16": finished,
    "finished f16 odd": lambda: finished("f16", 150, 141, 77, 3, 64),
    "finished bf16 turned": lambda: finished("bf16", 144, 144, 64, 0, 128, turned=True),
    "dequantised": dequantised,
    "dequantised turned": lambda: dequantised("i8", 13, 80, 560, True),
    "dequantised u8 swapped": lambda: dequantised("u8", 16, 128, 96, False, True),
    "dequantised u8 swapped turned": lambda: dequantised("u8", 16, 112, 336, True, True),
    "dequantised in panels": lambda: dequantised(broad=128),
    "dequantised in panels turned": lambda: dequantised("i8", 48, 336, 464, True, broad=128),
    "dequantised in panels swapped": lambda: dequantised("u8", 16, 208, 320, False, True, broad=128),
    "dequantised in panels swapped turned": lambda: dequantised("f8e4m3", 64, 128, 256, True, True, broad=128),
    "dequantised in parts": lambda: dequantised("u8", 32, 144, 592, broad=128, parts=2),
    "dequantised in parts turned": lambda: dequantised("i8", 16, 272, 1040, True, broad=128, parts=2),
    "dequantised f32": lambda: dequantised("f32", 16, 64, 64),
    "dequantised f32 turned": lambda: dequantised("f32", 50, 70, 144, True),
    "dequantised f16": lambda: dequantised("f16", 64, 64, 208),
    "spread in three": lambda: spread(3, 120, 48, 720),
    "spread in four": lambda: spread(4, 250, 64, 320, residual=True),
    "spread in eight": lambda: spread(8, 128, 256, 720, 256, turned=True),
    "spread odd": lambda: spread(2, 131, 160, 144, 160),
    "product bf16 192": lambda: product("bf16", 136, 400, 144, 128, broad=192),
    "product f16 192 b parts": lambda: product("f16", 128, 192, 272, 128, "b", broad=192, parts=2),
    "product bf16 160": lambda: product("bf16", 136, 400, 144, 128, broad=160),
    "product f16 96 b": lambda: product("f16", 144, 112, 80, 128, "b", broad=96),
    "product bf16 224 odd": lambda: product("bf16", 130, 259, 80, 128, broad=224, pad=16 - 259 % 16),
    "product f16 64 long": lambda: product("f16", 128, 64, 272, 128, broad=64),
    "product bf16 160 parts": lambda: product("bf16", 128, 160, 272, 128, broad=160, parts=2),
    "dense bf16 160": lambda: dense(n=336, broad=160),
    "finished bf16 224": lambda: finished(n=240, broad=224),
    "finished f16 96": lambda: finished("f16", n=112, broad=96, turned=True),
    "edge": lambda: edged(400, 304, 144),
    "edge b": lambda: edged(300, 208, 144, 192, True),
    "edge 224": lambda: edged(400, 272, 144, 224),
    "edge 160 b": lambda: edged(300, 384, 144, 160, True),
    "edge odd": lambda: edged(200, 259, 144, pad=13),
    "edge one": lambda: edged(300, 48, 144, 128),
    "finished bf16 192": lambda: finished(n=208, broad=192),
    "product bf16 192 strided": lambda: product("bf16", 136, 208, 72, 128, step=2, broad=192),
    "product f16 short": lambda: product("f16", 64, 64, 16, 64),
    "product bf16 long": lambda: product("bf16", 33, 32, 333, 32),
    "product f16 aligned, k odd": lambda: product("f16", 32, 64, 176, 64, "ab"),
    "product strided": lambda: product("f32", 40, 33, 20, 32, "a", 5, step=2),
    "product bf16 strided": lambda: product("bf16", 40, 33, 20, 32, "b", 5, step=3),
    "product batched": lambda: product("f32", 33, 20, 50, 16, batch=3),
    "product large blocks": lambda: product("f32", 150, 140, 40, 128),
    "product f64 transposed": lambda: product("f64", 64, 64, 52, 64, "ab"),
    "product f64 long": lambda: product("f64", 40, 32, 100, 32),
    "product f64 16": lambda: product("f64", 40, 32, 33, 16, "a"),
    "product f64 large blocks": lambda: product("f64", 150, 140, 20, 128),
    "product c128 large blocks": lambda: product("c128", 130, 129, 9, 128, broad=64),
    **{
        f"product {d} {t or 'plain'} copied {pad}": lambda d=d, t=t, pad=pad, n=n, k=k, broad=broad: product(
            d, 144, n, k, 128, t, pad, broad=broad
        )
        for d, t, pad, n, k, broad in (
            ("f64", "", 0, 136, 96, 128),
            ("f64", "b", 2, 136, 80, 128),
            ("f64", "a", 1, 72, 79, 64),
            ("f64", "abc", 0, 136, 33, 128),
            ("c128", "", 0, 80, 80, 64),
            ("c128", "b", 0, 80, 33, 64),
            ("c128", "a", 1, 64, 64, 64),
            ("c128", "abc", 0, 70, 16, 64),
            ("c64", "", 0, 136, 80, 128),
            ("c64", "b", 1, 72, 33, 64),
            ("c64", "ab", 2, 136, 64, 128),
            ("f32", "b", 1, 264, 80, 256),
            ("f32", "ab", 0, 136, 100, 128),
            ("i64", "b", 0, 136, 40, 128),
            ("i32", "a", 3, 257, 50, 256),
        )
    },
    "product c64 misaligned": lambda: product("c64", 40, 36, 50, 32, "b", aligned=False),
    "product c128 misaligned": lambda: product("c128", 40, 36, 50, 32, aligned=False),
    "product f64 batched": lambda: product("f64", 70, 60, 50, 64, "b", batch=2),
    "product f64 strided": lambda: product("f64", 40, 33, 20, 32, "a", 5, step=2),
    "product c64 strided": lambda: product("c64", 40, 33, 20, 32, "b", 5, step=3),
    "product misaligned": lambda: product("f32", 64, 64, 32, 64, aligned=False),
    **{f"product {d} padded": lambda d=d: product(d, 150, 141, 45, 128, pad=3) for d in ("f32", "f64", "bf16")},
    "product k 1": lambda: product("f32", 20, 20, 1, 16),
    "product k 0": lambda: product("f32", 20, 20, 0, 16),
    "product one": lambda: product("f32", 1, 1, 5, 16),
    "fused f32": lambda: fused("f32", 70, 50, 33),
    "fused f32 whole": lambda: fused("f32", 64, 128, 32),
    "fused bf16": lambda: fused("bf16", 70, 50, 33),
    "fused f64": lambda: fused("f64", 70, 50, 33),
    **{f"distances {d}": lambda d=d: distances(d, 70, 50, 19) for d in ("i32", "f16", "bf16", "f32", "f64")},
    "distances whole": lambda: distances("f32", 128, 128, 16, 128),
    **{
        f"distances {kind}": lambda kind=kind: distances("f32", 40, 33, 21, 32, kind) for kind in ("max", "min", "prod")
    },
    "agreement": agreement,
}


def _square(
    dtype: str, n: int, side: int = 128, transposed: str = "", broad: int = 0
) -> tuple[Callable[[int], Case], float]:
    work = 8 if dtype.startswith("c") else 2
    make = lambda part: product(dtype, n // part, n // part, n // part, side, transposed, broad=broad)
    return make, work * float(n) ** 3


#: Large cases, of which a function of p makes one with sides of a p-th; and the arithmetic operations of each.
TIMED: dict[str, tuple[Callable[[int], Case], float]] = {
    "f32 4096": _square("f32", 4096, broad=256),
    "f32 4096 transposed": _square("f32", 4096, transposed="ab", broad=256),
    "f32 2048": _square("f32", 2048),
    "f32 1024": _square("f32", 1024, 64),
    "f64 4096": _square("f64", 4096),
    "f64 4096 transposed": _square("f64", 4096, transposed="ab"),
    "f64 1024": _square("f64", 1024, broad=64),
    "c64 2048": _square("c64", 2048),
    "c64 2048 transposed": _square("c64", 2048, transposed="ab"),
    "c128 2048": _square("c128", 2048, broad=64),
    "c128 2048 transposed": _square("c128", 2048, transposed="ab", broad=64),
    "bf16 8192": _square("bf16", 8192),
    "bf16 8192 transposed": _square("bf16", 8192, transposed="ab"),
    "bf16 8192 broad": _square("bf16", 8192, broad=256),
    "bf16 8192 broad transposed": _square("bf16", 8192, transposed="ab", broad=256),
    "bf16 4096 broad": _square("bf16", 4096, broad=256),
    "bf16 4096": _square("bf16", 4096),
    "bf16 1024": _square("bf16", 1024),
    "f16 4096": _square("f16", 4096),
    "i8 4096": _square("i8", 4096),
    "i8 4096 upright": _square("i8", 4096, transposed="b", broad=256),
    "f8e4m3 4096 upright": _square("f8e4m3", 4096, transposed="b"),
    "f32 4095x4097x4099": (
        lambda part: product("f32", 4095 // part | 1, 4097 // part | 1, 4099 // part | 1, 128),
        2 * 4095.0 * 4097 * 4099,
    ),
    "distances 8192x8192x16": (lambda part: distances("f32", 8192 // part, 8192 // part, 16, 128), 3 * 8192.0**2 * 16),
}


def zeros(case: Case) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
