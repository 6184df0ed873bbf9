"""Attention for the GPU: kernels of the online form, built by hand, with arguments for the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import Value
from tests.compiler.cuda.gpu_kernels import Case, Make, bucket, tolerance, values


class Attention(Make):
    """softmax(q @ k.T * scale + ...) @ v over batches and heads, in loops over blocks of keys.

    Parameters
    ----------
    m, n, d, e : int
        Queries, keys, and the sizes of a head of q and k, and of v.
    rows, keys : int
        Positions of a block of queries, and of one of keys.
    swapped : bool
        Whether heads lie within positions.
    group : int
        Heads of queries to a head of keys.
    across : str
        Those of q, k and v along whose positions memory is contiguous.
    """

    def __init__(
        self, dtype: str = "bf16", m: int = 128, n: int = 128, d: int = 64, e: int = 0, batch: int = 1, heads: int = 1,
        rows: int = 128, keys: int = 128, swapped: bool = False, group: int = 1, across: str = "",
    ) -> None:  # fmt: skip
        super().__init__("attention")
        b = self.b
        self.dtype, self.shape = dtype, (m, n, d, e or d)
        self.heads, self.batch, self.group, self.swapped, self.across = heads, batch, group, swapped, across
        self.sizes = {name: self.size(x) for name, x in zip("mnde", self.shape, strict=True)}
        counts = [self.size(x) for x in (batch, heads // group, group)]
        self.axes = [b.grid_axis(c) for c in counts]
        self.programs = [b.program_id(a) for a in self.axes]
        self.i = self.blocked("i", self.sizes["m"], rows)
        self.d = self.whole("d", self.sizes["d"], bucket(d))
        self.e = self.whole("e", self.sizes["e"], bucket(e or d))
        self.rows, self.keys = rows, keys
        #: Arguments of what changes the scores.
        self.biases: tuple[Value, ...] = ()
        b.attrs["schedule"] = "online"

    def _array(self, name: str, length: int, width: int, grouped: bool, zero: bool = False) -> tuple[Value, ...]:
        """(pointer, offset of the program's matrix, stride of a position, stride along the head)."""
        b = self.b
        heads = self.heads // (1 if grouped else self.group)
        if self.swapped:
            steps = (length * heads * width, width, heads * width, 1)
        elif name in self.across:
            steps = (heads * length * width, length * width, 1, length)
        else:
            steps = (heads * length * width, length * width, width, 1)
        size = self.batch * heads * length * width
        pointer = self.array(self.dtype, size, data=self.data(size, zero))
        groups = (steps[1] * self.group, steps[1]) if grouped else (steps[1], 0)
        offset = b.const(0)
        for program, step in zip(self.programs, (steps[0], *groups), strict=True):
            if step:
                offset = b.op("add", offset, b.op("multiply", program, self.size(step)))
        return pointer, offset, *(b.const(1) if s == 1 else self.size(s) for s in steps[2:])

    def data(self, size: int, zero: bool) -> np.ndarray:
        return np.zeros(size, NUMPY[self.dtype]) if zero else values(self.rng, self.dtype, size)

    def spread(self, value: Value, dims: tuple[int, ...], extents: tuple[int | str, ...]) -> Value:
        return self.b.broadcast(value, dims, extents)

    def full(self, value: float, *extents: int | str) -> Value:
        return self.b.broadcast(self.b.const(value, "f32"), (), extents)

    def build(
        self, scores: Callable[[Attention, Value, Value, Value], Value] | None = None, causal: bool = False,
        scale: float | None = 0.125, known: bool = True, fill: float = -inf, more: bool = False,
    ) -> Case:  # fmt: skip
        """`scores`: from the kernel, the scores, their first key and how many there are from it on, the new scores.

        Whether the scale and what masks put in are `known` numbers; else they are arguments.  With `more`, the weights
        are exp(s) / (1 + the sum of all).
        """
        b, (m, n, d, _), keys = self.b, self.shape, self.keys
        q, k, v = (self._array(x, size, width, g) for x, size, width, g in (
            ("q", m, d, True), ("k", n, d, False), ("v", n, self.shape[3], False)))  # fmt: skip
        out = self._array("out", m, self.shape[3], True, zero=True)
        start, length = b.dim_start(self.i), self.sizes["n"]
        query = b.load_view(
            q[0], b.op("add", q[1], b.op("multiply", start, q[2])), q[2:], (self.i, self.d),
            (b.dim_extent(self.i), b.dim_extent(self.d)),
        )  # fmt: skip
        zero, step = b.const(0), b.const(keys)
        diagonal = b.op("add", start, b.op("subtract", length, self.sizes["m"]))
        low = b.op("minimum", length, b.op("add", diagonal, b.const(1))) if causal else length
        split = b.op("maximum", zero, b.op("multiply", b.op("floor_divide", low, step), step))
        high = b.op("minimum", length, b.op("add", diagonal, b.const(self.rows))) if causal else length
        number = lambda x: b.const(x, "f32") if known else b.cast(self.scalar(self.dtype, x), "f32")
        factor, other = number(scale or 1.0), number(fill)
        state = [self.full(-inf, self.i), self.full(0.0, self.i), self.full(0.0, self.i, self.e)]
        tile = (self.i, keys)

        def body(j: Value, carried: tuple[Value, ...], masked: bool) -> None:
            m, l, acc = carried
            left = b.op("subtract", length, j)
            key = b.load_view(
                k[0], b.op("add", k[1], b.op("multiply", j, k[2])), k[2:][::-1], (self.d, keys),
                (b.dim_extent(self.d), left),
            )  # fmt: skip
            s = b.dot(query, key, dtype="f32")
            if scale is not None:
                s = b.op("multiply", s, self.spread(factor, (), tile))
            if scores is not None:
                s = scores(self, s, j, left)
            if masked:
                place = b.op("add", b.iota(keys), self.spread(j, (), (keys,)))
                keep = self.spread(b.op("less", place, self.spread(length, (), (keys,))), (1,), tile)
                if causal:
                    last = b.op("add", b.iota(self.i), self.spread(diagonal, (), (self.i,)))
                    seen = b.op("less_equal", self.spread(place, (1,), tile), self.spread(last, (0,), tile))
                    keep = b.op("logical_and", keep, seen)
                s = b.op("where", keep, s, self.spread(other, (), tile))
            top = b.op("maximum", m, b.reduce(s, "max", (1,)))
            shift = b.op("where", b.op("equal", top, self.full(-inf, self.i)), self.full(0.0, self.i), top)
            p = b.op("exp", b.op("subtract", s, self.spread(shift, (0,), tile)))
            fade = b.op("exp", b.op("subtract", m, shift))
            total = b.op("add", b.op("multiply", l, fade), b.reduce(p, "sum", (1,)))
            value = b.load_view(
                v[0], b.op("add", v[1], b.op("multiply", j, v[2])), v[2:], (keys, self.e), (left, b.dim_extent(self.e))
            )
            faded = b.op("multiply", acc, self.spread(fade, (0,), (self.i, self.e)))
            b.yield_(top, total, b.dot(b.cast(p, self.dtype), value, faded))

        with b.for_(zero, split, step, state) as loop:
            body(loop.index, loop.carried, False)
        state = list(loop.results)
        with b.for_(split, high, step, state) as loop:
            body(loop.index, loop.carried, True)
        top, l, acc = loop.results
        if more:
            l = b.op("add", l, b.op("exp", b.op("negative", top)))
        result = b.cast(b.op("divide", acc, self.spread(l, (0,), (self.i, self.e))), self.dtype)
        b.store_view(
            result, out[0], b.op("add", out[1], b.op("multiply", start, out[2])), out[2:],
            (b.dim_extent(self.i), b.dim_extent(self.e)),
        )  # fmt: skip
        return self.case(2 * tolerance(self.dtype), 2 * tolerance(self.dtype))


def biased(a: Attention, s: Value, j: Value, left: Value) -> Value:
    """Plus a bias by row and key, and one by key."""
    b, (m, n, _, _), tile = a.b, a.shape, (a.i, a.keys)
    if not a.biases:
        a.biases = (a.array("f32", m * n), a.array(a.dtype, n), a.size(n))
    bias, line, pitch = a.biases
    start, one = b.dim_start(a.i), b.const(1)
    offset = b.op("add", b.op("multiply", start, pitch), j)
    x = b.load_view(bias, offset, (pitch, one), tile, (b.dim_extent(a.i), left))
    y = b.cast(b.load_view(line, j, (one,), (a.keys,), (left,)), "f32")
    return b.op("add", b.op("add", s, x), a.spread(y, (1,), tile))


#: Small cases: names and kernels.
CASES: dict[str, Callable[[], Case]] = {
    "plain": lambda: Attention(n=256).build(),
    "f16": lambda: Attention("f16", n=384).build(),
    "one block": lambda: Attention("f16").build(),
    "causal": lambda: Attention(m=256, n=256, heads=2).build(causal=True),
    "causal, more keys": lambda: Attention("f16", m=128, n=272).build(causal=True),
    "causal, fewer keys": lambda: Attention("f16", m=256, n=112).build(causal=True),
    "ends": lambda: Attention("f16", m=144, n=208, d=48, e=80).build(),
    "no scale": lambda: Attention("f16", d=32, n=256).build(scale=None),
    "falling": lambda: Attention("f16", d=32, n=256).build(scale=-0.25),
    **{
        f"scale {x}": lambda x=x: Attention("f16", m=80, n=192, d=32).build(causal=True, scale=x, known=False)
        for x in (0.25, -0.25, 0.0)
    },
    "low instead of -inf": lambda: Attention(m=256, n=192).build(causal=True, known=False, fill=-3.38e38),
    "one more": lambda: Attention("f16", m=80, n=256, d=32).build(scale=1.0, more=True),
    "biased": lambda: Attention("f16", m=144, n=208, d=32).build(biased),
    "heads inside": lambda: Attention(m=144, n=160, batch=2, heads=2, swapped=True).build(),
    "grouped": lambda: Attention("f16", n=160, heads=4, group=2, d=32).build(),
    "large heads": lambda: Attention("f16", n=144, d=256, keys=64).build(),
    "128": lambda: Attention(n=272, d=128).build(),
    "three groups": lambda: Attention(m=192, n=160, rows=192).build(),
    **{f"across {x}": lambda x=x: Attention("f16", m=128, n=144, d=80, across=x).build() for x in "qkv"},
}
