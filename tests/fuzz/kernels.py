"""Random kernels in the block IR, with arguments for them.

Everything computed is exact, whatever order sums are taken in: whole numbers small enough for their type where
something is added up, any values elsewhere.  A compiled kernel must therefore store the very values that the
interpreter stores.

Kernels for a GPU have no loops and branches; some of their whole dims have a bucket, and some of the parameters that
are multiples of 16 are said to be so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.builder import Builder
from blockarray.compiler.ir import I64, Kernel, Type, Value

SIZES = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40]
GPU_SIZES = [1, 3, 8, 16, 16, 17, 32, 32, 40, 48, 64, 65, 100, 128]
DTYPES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"]
WEIGHTS = [2, 1, 1, 4, 4, 2, 1, 1, 1, 2, 2, 10, 6, 1, 1]
#: Whole numbers up to this are exact.
WHOLE = {"f16": 2**11, "bf16": 2**8, "f32": 2**24, "f64": 2**53, "c64": 2**24, "c128": 2**53}


class Case(NamedTuple):
    kernel: Kernel
    args: list[Any]
    #: Positions of the arguments that the kernel writes.
    outputs: tuple[int, ...]


class Made(NamedTuple):
    """A value in the kernel; `most` bounds its magnitude if it is a whole number."""

    value: Value
    most: int | None

    @property
    def dtype(self) -> str:
        return self.value.type.dtype

    @property
    def extents(self) -> tuple[Any, ...]:
        return self.value.type.extents


class Maker:
    def __init__(self, seed: int, gpu: bool = False) -> None:
        self.gpu = gpu
        self.aligned: list[str] = []
        self.choices = GPU_SIZES if gpu else SIZES
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.b = Builder(f"fuzz{seed}")
        self.args: list[Any] = []
        self.outputs: list[int] = []
        self.pool: list[Made] = []
        self.sizes: dict[str, int] = {}
        self.grid: list[tuple[int, int]] = []  # (programs, block) of each axis
        self.blocked: dict[str, int] = {}  # dim -> grid axis

    # -- parameters ---------------------------------------------------------------------------------------------------
    def number(self, value: int) -> Value:
        """A run-time integer; 0 and 1 now and then as constants, which steer code generation."""
        if value in (0, 1) and self.random.random() < 0.6:
            return self.b.const(value)
        return self.size(f"n{len(self.args) + 1}", value)

    def size(self, name: str, value: int) -> Value:
        self.args.append(value)
        if self.gpu and value % 16 == 0 and self.random.random() < 0.8:
            self.aligned.append(name)
        return self.b.param(name, I64)

    def pointer(self, dtype: str, array: np.ndarray, output: bool = False) -> Value:
        self.args.append(array)
        name = f"p{len(self.args)}"
        if output:
            self.outputs.append(len(self.args) - 1)
        if self.gpu and self.random.random() < 0.8:
            self.aligned.append(name)
        return self.b.param(name, Type(dtype, pointer=True))

    def axes(self) -> None:
        """The grid and the named dims."""
        r, b = self.random, self.b
        for name in r.choice(["", "i", "i", "ij", "j"]):
            size = r.choice(self.choices)
            block = r.choice([1, 2, 4, 8, 16, 64])
            length = self.size(f"n_{name}", size)
            axis = b.grid_axis(length, block)
            b.dim(name, length, block, axis)
            self.blocked[name] = axis
            self.sizes[name] = size
            self.grid.append((-(-size // block), block))
        for name in r.choice(["", "k", "k", "k", "kl"]):
            size = r.choice([0, *self.choices] if r.random() < 0.1 else self.choices)
            length = self.size(f"n_{name}", size)
            known = self.gpu and r.random() < 0.7
            b.dim(name, length, bucket=1 << max(size - 1, 0).bit_length() if known else None)
            self.sizes[name] = size
        if r.random() < 0.3 or not self.grid:
            size = r.choice([1, 2, 5])
            b.grid_axis(self.size("rows", size))
            self.grid.append((size, 1))

    def window(self, dims: tuple[str, ...], programs: bool, free: bool) -> tuple[int, Value, list[Value]]:
        """The length of a buffer, and the offset and strides of a program's window over `dims` in it.

        With `programs` each program of a grid axis that has no dim among `dims` has its own window.  With `free`
        strides may be zero or negative, and windows overlap.
        """
        r, b = self.random, self.b
        places: list[tuple[str | int, int]] = [(d, self.sizes[d]) for d in dims]
        if programs:
            mine = {self.blocked.get(d) for d in dims}
            places += [(axis, count) for axis, (count, _) in enumerate(self.grid) if axis not in mine]
        order = list(range(len(places)))
        if r.random() < 0.4:
            r.shuffle(order)
        strides = [0] * len(places)
        step = r.choice([1, 1, 1, 1, 2, 3])
        for p in reversed(order):
            n = places[p][1]
            strides[p] = step
            step *= max(n, 1) + (r.choice([0, 0, 3]) if n > 1 else 0)
        if free:
            strides = [0 if r.random() < 0.08 else -s if r.random() < 0.1 else s for s in strides]
        base = r.choice([0, 0, 5]) + sum(-s * max(n - 1, 0) for s, (_, n) in zip(strides, places) if s < 0)
        length = base + sum(s * max(n - 1, 0) for s, (_, n) in zip(strides, places) if s > 0) + 1
        values = [self.number(s) for s in strides]
        offset = self.number(base)
        for (place, _), stride in zip(places, values):
            if isinstance(place, int):
                start = b.program_id(place)
            elif place in self.blocked:
                start = b.dim_start(place)
            else:
                continue
            offset = b.op("add", offset, b.op("multiply", start, stride))
        return length, offset, values[: len(dims)]

    def data(self, dtype: str, n: int, most: int | None) -> np.ndarray:
        """Whole numbers up to `most`, or any values."""
        t = dtypes.NUMPY[dtype]
        if dtype == "bool":
            # Any non-zero byte is True.
            return np.where(self.rng.random(n) < 0.5, self.rng.integers(1, 256, n), 0).astype(np.uint8).view(np.bool_)
        if most is not None:
            low = 0 if dtype in dtypes.UNSIGNED else -most
            a = self.rng.integers(low, most + 1, n)
            return (a + 1j * self.rng.integers(low, most + 1, n) if dtype in dtypes.COMPLEX else a).astype(t)
        if dtype in dtypes.INTEGER:
            info = np.iinfo(t)
            return self.rng.integers(info.min, info.max, n, dtype=t, endpoint=True)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 6e4, 0.3])
        a = np.where(self.rng.random(n) < 0.2, self.rng.choice(special, n), self.rng.standard_normal(n) * 10)
        return a.astype(t)

    def some_dims(self) -> tuple[str, ...]:
        names = list(self.sizes)
        return tuple(d for d in names if self.random.random() < 0.75)

    # -- values -------------------------------------------------------------------------------------------------------
    def keep(self, value: Value, most: int | None) -> Made:
        made = Made(value, most)
        self.pool.append(made)
        return made

    def pick(self, test: Callable[[Made], bool] = lambda m: True) -> Made | None:
        fit = [m for m in self.pool if test(m)]
        return fit[-1 - int(len(fit) * self.random.random() ** 2)] if fit else None

    def load(self) -> None:
        dtype = self.random.choices(DTYPES, WEIGHTS)[0]
        whole = dtype in dtypes.COMPLEX or self.random.random() < 0.6
        most = 8 if whole and dtype != "bool" else None
        dims = self.some_dims()
        n, offset, strides = self.window(dims, self.random.random() < 0.7, free=True)
        p = self.pointer(dtype, self.data(dtype, n, most))
        self.keep(self.b.load_view(p, offset, strides, dims), most)

    def const(self) -> None:
        dtype = self.random.choices(DTYPES, WEIGHTS)[0]
        value = self.random.choice([0, 1, 2, 3] if dtype != "bool" else [0, 1])
        scalar = self.b.const(value, dtype)
        dims = self.some_dims()
        self.keep(self.b.broadcast(scalar, (), dims) if dims else scalar, value if dtype != "bool" else None)

    def iota(self) -> None:
        if self.sizes:
            dim = self.random.choice(list(self.sizes))
            value = self.b.iota(dim)
            if dim in self.blocked:
                value = self.b.op("add", value, self.b.broadcast(self.b.dim_start(dim), (), (dim,)))
            self.keep(value, 64)

    def broadcast(self) -> None:
        m = self.pick()
        if m is not None:
            dims = tuple(d for d in self.sizes if d in m.extents or self.random.random() < 0.6)
            self.pool.append(self.wider(m, dims))

    def wider(self, m: Made, dims: tuple[str, ...]) -> Made:
        where = tuple(dims.index(e) for e in m.extents)
        return Made(self.b.broadcast(m.value, where, dims), m.most)

    def together(self, *made: Made) -> list[Made]:
        """The same values, broadcast to one tile."""
        dims = tuple(d for d in self.sizes if any(d in m.extents for m in made))
        return [self.wider(m, dims) for m in made]

    def cast(self) -> None:
        m = self.pick()
        dtype = self.random.choices(DTYPES, WEIGHTS)[0]
        if m is None or m.dtype == dtype or m.dtype in dtypes.COMPLEX:
            return
        if m.most is None and dtype in ("f16", "bf16"):  # double rounding is no fault
            return
        if m.most is not None and m.most > WHOLE.get(dtype, 0):
            most = None if dtype in WHOLE else m.most
        else:
            most = m.most
        if dtype in dtypes.INTEGER:
            limit = np.iinfo(dtypes.NUMPY[dtype]).max
            most = most if most is not None and most <= limit and dtype not in dtypes.UNSIGNED else None
        if dtype == "bool":
            most = None
        self.keep(self.b.cast(m.value, dtype), 1 if m.dtype == "bool" and dtype != "bool" else most)

    def as_dtype(self, m: Made, dtype: str) -> Made | None:
        if m.dtype == dtype:
            return m
        if m.dtype == "bool" and dtype != "bool":
            return Made(self.b.cast(m.value, dtype), 1)
        return None

    def binary(self) -> None:
        m = self.pick()
        if m is None:
            return
        other = self.pick(lambda x: x.dtype == m.dtype)
        assert other is not None
        a, b = self.together(m, other)
        kind = m.dtype
        names = ["add", "multiply", "subtract", "equal", "not_equal"] if kind != "bool" else []
        if kind == "bool":
            names = ["logical_and", "logical_or", "logical_xor", "bitwise_xor"]
        elif kind in dtypes.COMPLEX:
            names = ["add", "subtract", "equal"]
        else:
            names += ["maximum", "minimum", "less", "less_equal", "greater", "greater_equal"]
            if kind in dtypes.INTEGER:
                names += [
                    "bitwise_and",
                    "bitwise_or",
                    "bitwise_xor",
                    "floor_divide",
                    "remainder",
                    "left_shift",
                    "right_shift",
                ]
            elif kind in ("f32", "f64"):
                names += ["divide", "fmax", "fmin", "copysign"]
            else:
                names += ["divide"]
        name = self.random.choice(names)
        self.keep(*self.result(name, a, b))

    def result(self, name: str, a: Made, b: Made) -> tuple[Value, int | None]:
        value = self.b.op(name, a.value, b.value)
        most = None
        if a.most is not None and b.most is not None:
            most = {"add": a.most + b.most, "subtract": a.most + b.most, "multiply": a.most * b.most,
                    "maximum": max(a.most, b.most), "minimum": max(a.most, b.most)}.get(name)  # fmt: skip
        dtype = value.type.dtype
        limit = WHOLE.get(dtype) or (np.iinfo(dtypes.NUMPY[dtype]).max if dtype in dtypes.INTEGER else 0)
        if most is not None and (most > limit or (dtype in dtypes.UNSIGNED and name == "subtract")):
            most = None
        if name in ("maximum", "minimum", "fmax", "fmin") and dtype in dtypes.FLOAT:
            value = self.positive_zero(value)
        return value, most

    def positive_zero(self, value: Value) -> Value:
        """Which zero max(-0.0, 0.0) is, nobody says."""
        zero = self.b.const(0, value.type.dtype)
        if value.type.extents:
            zero = self.b.broadcast(zero, (), value.type.extents)
        return self.b.op("add", value, zero)

    def unary(self) -> None:
        m = self.pick()
        if m is None:
            return
        if m.dtype in dtypes.FLOAT:
            name = self.random.choice(
                ["negative", "absolute", "floor", "ceil", "trunc", "rint", "square", "isnan", "signbit"]
            )
            if m.dtype in ("f32", "f64") and self.random.random() < 0.3:
                name = "sqrt"
        elif m.dtype in dtypes.INTEGER:
            name = self.random.choice(["negative", "absolute", "invert", "square", "sign"])
        elif m.dtype == "bool":
            name = "logical_not"
        else:
            name = self.random.choice(["negative", "conjugate", "real", "imag"])
        most = None
        if m.most is not None and m.dtype not in dtypes.UNSIGNED:
            most = {"square": m.most**2, "sqrt": None, "isnan": None, "signbit": None, "sign": 1}.get(name, m.most + 1)
        value = self.b.op(name, m.value)
        limit = WHOLE.get(value.type.dtype, 0)
        if value.type.dtype in dtypes.INTEGER:
            limit = np.iinfo(dtypes.NUMPY[value.type.dtype]).max
        self.keep(value, most if most is not None and most <= limit else None)

    def where(self) -> None:
        c, m = self.pick(lambda x: x.dtype == "bool"), self.pick()
        if c is None or m is None:
            return
        other = self.pick(lambda x: x.dtype == m.dtype)
        assert other is not None
        c, a, b = self.together(c, m, other)
        most = max(a.most, b.most) if a.most is not None and b.most is not None else None
        self.keep(self.b.op("where", c.value, a.value, b.value), most)

    def reduce(self) -> None:
        m = self.pick(lambda x: bool(x.extents))
        if m is None:
            return
        dims = tuple(k for k in range(len(m.extents)) if self.random.random() < 0.5)
        if not dims:
            dims = (self.random.randrange(len(m.extents)),)
        count = int(np.prod([max(self.sizes[m.extents[k]], 1) for k in dims]))
        kinds = ["any", "all"] if m.dtype == "bool" else ["max", "min"] if m.dtype not in dtypes.COMPLEX else []
        if m.dtype in dtypes.INTEGER:
            kinds += ["sum", "prod"]
        if m.dtype in dtypes.FLOAT:
            kinds += ["max_number", "min_number"]
        most = m.most
        if m.dtype in WHOLE and m.most is not None and m.most * count <= WHOLE[m.dtype]:
            kinds += ["sum", "sum", "sum"]
        if not kinds:
            return
        kind = self.random.choice(kinds)
        value = self.b.reduce(m.value, kind, dims)
        if kind[:3] in ("max", "min"):
            if any(self.sizes[m.extents[k]] == 0 for k in dims):
                most = None  # the identity
            if m.dtype in dtypes.FLOAT:
                value = self.positive_zero(value)
        elif kind == "sum" and most is not None:
            most *= count
            most = most if m.dtype in WHOLE or most <= np.iinfo(dtypes.NUMPY[m.dtype]).max else None
        else:
            most = None
        self.keep(value, most)

    def argreduce(self) -> None:
        m = self.pick(lambda x: bool(x.extents) and x.dtype not in dtypes.COMPLEX and x.dtype != "bool")
        if m is None:
            return
        k = self.random.randrange(len(m.extents))
        index = self.wider(Made(self.b.iota(m.extents[k]), None), m.extents)
        self.keep(self.b.argreduce(m.value, index.value, self.random.choice(["argmax", "argmin"]), (k,)), None)

    def scan(self) -> None:
        m = self.pick(lambda x: bool(x.extents) and x.dtype not in dtypes.COMPLEX and x.dtype != "bool")
        if m is None:
            return
        k = self.random.randrange(len(m.extents))
        count = max(self.sizes[m.extents[k]], 1)
        kinds = ["cummax", "cummin"]
        if m.dtype in dtypes.INTEGER or (m.most is not None and m.most * count <= WHOLE[m.dtype]):
            kinds += ["cumsum"] * 3
        kind = self.random.choice(kinds)
        value = self.b.scan(m.value, kind, k)
        most = m.most
        if kind != "cumsum":
            value = self.positive_zero(value) if m.dtype in dtypes.FLOAT else value
        elif most is not None:
            most *= count
            most = most if m.dtype in WHOLE or most <= np.iinfo(dtypes.NUMPY[m.dtype]).max else None
        self.keep(value, most)

    def gather(self) -> None:
        """Elements at computed positions, some of them masked out where they lie outside."""
        m = self.pick(lambda x: x.dtype == "i64" and bool(x.extents))
        if m is None:
            return
        dtype = self.random.choices(DTYPES[:-2], WEIGHTS[:-2])[0]
        n = self.random.choice([1, 5, 64])
        whole = 8 if self.random.random() < 0.5 and dtype != "bool" else None
        p = self.pointer(dtype, self.data(dtype, n, whole))
        length = self.wider(Made(self.number(n), None), m.extents).value
        if self.random.random() < 0.5:
            self.keep(self.b.load_ptr(p, self.b.op("remainder", m.value, length)), whole)
            return
        zero = self.wider(Made(self.b.const(0), None), m.extents).value
        low, high = self.b.op("greater_equal", m.value, zero), self.b.op("less", m.value, length)
        mask = self.b.op("logical_and", low, high)
        self.keep(self.b.load_ptr(p, m.value, mask, other=1), whole)

    def loop(self) -> None:
        """A sum carried over slices of a buffer, one at a time."""
        dims = tuple(d for d in self.sizes if d in self.blocked or self.random.random() < 0.4)
        dtype = self.random.choice(["f32", "f64", "i32", "i64"])
        steps = self.random.choice([0, 1, 3, 9])
        n, offset, strides = self.window(dims, False, free=False)
        p = self.pointer(dtype, self.data(dtype, n * max(steps, 1), 8))
        b = self.b
        pitch, count = self.number(n), self.number(steps)
        zero = b.const(0, dtype)
        init = b.broadcast(zero, (), dims) if dims else zero
        with b.for_(b.const(0), count, b.const(1), [init]) as loop:
            tile = b.load_view(p, b.op("add", offset, b.op("multiply", loop.index, pitch)), strides, dims)
            b.yield_(b.op("add", loop.carried[0], tile))
        self.keep(loop.results[0], 8 * max(steps, 1))

    def branch(self) -> None:
        condition = self.pick(lambda x: x.value.type == Type("bool"))
        m = self.pick(lambda x: x.dtype != "bool")
        if condition is None or m is None:
            return
        b = self.b
        with b.if_(condition.value) as branch:
            b.yield_(b.op("add", m.value, m.value))
        with branch.else_():
            b.yield_(m.value)
        self.keep(branch.results[0], self.result("add", m, m)[1])

    # -- stores -------------------------------------------------------------------------------------------------------
    def store(self, m: Made) -> None:
        n, offset, strides = self.window(m.extents, True, free=False)
        canary = np.frombuffer(bytes([0xA5]) * (n * dtypes.SIZE[m.dtype]), np.uint8).copy()
        p = self.pointer(m.dtype, canary.view(dtypes.NUMPY[m.dtype]), output=True)
        self.b.store_view(m.value, p, offset, strides)

    def histogram(self) -> None:
        m = self.pick(lambda x: x.dtype == "i64")
        if m is None:
            return
        n = self.random.choice([1, 7, 50])
        dtype = self.random.choice(["i64", "i32"] if self.gpu else ["i64", "i32", "f64"])
        p = self.pointer(dtype, np.zeros(n, dtypes.NUMPY[dtype]), output=True)
        length = self.wider(Made(self.number(n), None), m.extents).value
        one = self.wider(Made(self.b.const(1, dtype), None), m.extents).value
        combine = self.random.choice(["add", "maximum"])
        self.b.store_ptr(one, p, self.b.op("remainder", m.value, length), combine=combine)

    def run(self) -> Case:
        self.axes()
        for _ in range(self.random.choice([1, 2, 3])):
            self.load()
        steps = {
            self.load: 2, self.const: 2, self.iota: 2, self.broadcast: 2, self.cast: 5, self.binary: 16, self.unary: 7,
            self.where: 4, self.reduce: 7, self.argreduce: 1, self.scan: 2, self.gather: 2, self.loop: 1,
            self.branch: 1,
        }  # fmt: skip
        if self.gpu:
            del steps[self.loop], steps[self.branch]
        for _ in range(self.random.choice([2, 5, 10, 20])):
            self.random.choices(list(steps), list(steps.values()))[0]()
        for m in {id(m): m for m in (self.pool[-1], *self.random.sample(self.pool, min(2, len(self.pool))))}.values():
            self.store(m)
        if self.random.random() < 0.2:
            self.histogram()
        if self.gpu:
            self.b.attrs["aligned"] = tuple(self.aligned)
        return Case(self.b.finish(), self.args, tuple(self.outputs))


def make(seed: int, gpu: bool = False) -> Case:
    return Maker(seed, gpu).run()
