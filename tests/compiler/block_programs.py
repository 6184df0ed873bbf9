"""Random kernels of the block language, for hypothesis: every one is correct, stays in bounds and ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import I64, Kernel, Type, Value

DTYPES = ("i32", "u8", "f32", "i64", "bool")
#: Elements of a buffer, and the most of a tile.
SIZE = 256
SHAPES = [(), (2,), (16,), (64,), (4, 16), (8, 2), (2, 4, 8), (1, 16), (16, 1), (4, 1, 4)]


class Maker:
    """Draws ops over the values that are visible.

    Numbers stay small and whole, so that sums and products of floats are exact in any order.
    """

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = b = Builder("k")
        b.attrs["schedule"] = "blocks"
        self.buffers = {d: b.param(f"p_{d}", Type(d, pointer=True)) for d in DTYPES}
        self.outs = {d: b.param(f"o_{d}", Type(d, pointer=True)) for d in DTYPES}
        sizes = [b.param(f"grid_{k}", I64) for k in range(3)]
        for size in sizes[::-1]:
            b.grid_axis(size)
        self.n = b.param("n", Type("i32"))
        self.values: list[Value] = [self.n]
        self.depth = 0

    def kernel(self) -> Kernel:
        b = self.b
        self.values.append(b.cast(b.program_id(2), "i32"))
        for d in DTYPES[: self.draw(st.integers(1, 5))]:
            self.values.append(self.load(d))
        for _ in range(self.draw(st.integers(1, 7))):
            self.step()
        for _ in range(3):
            self.store(self.any())
        return b.finish()

    def any(self) -> Value:
        return self.draw(st.sampled_from(self.values[-12:]))

    def pick(self, extents: Any = None, dtype: str | None = None) -> Value:
        """A visible value of a type, made if there is none."""
        found = [v for v in self.values if extents is None or v.type.extents == extents]
        found = [v for v in found if dtype is None or v.type.dtype == dtype]
        if found and self.draw(st.integers(0, 4)):
            return self.draw(st.sampled_from(found))
        extents = self.draw(st.sampled_from(SHAPES)) if extents is None else extents
        dtype = dtype or str(self.draw(st.sampled_from(DTYPES)))
        like = [v for v in self.values if v.type.extents == extents]
        if like and self.draw(st.booleans()):
            return self.tame(self.b.cast(self.draw(st.sampled_from(like)), dtype))
        return self.b.broadcast(self.b.const(self.draw(st.integers(0, 3)), dtype), (), extents)

    def tame(self, x: Value) -> Value:
        """x within [0, 16), by an op that is cheap or one that is not."""
        b, dtype, extents = self.b, x.type.dtype, x.type.extents
        if dtype == "bool":
            return x
        if self.draw(st.integers(0, 3)) == 0:
            return b.op("remainder", x, b.broadcast(b.const(16, dtype), (), extents))
        most = b.broadcast(b.const(15, dtype), (), extents)
        return b.op("minimum" if dtype == "f32" else "bitwise_and", x, most)

    def places(self, extents: Any) -> Value:
        b = self.b
        size = math.prod(extents)
        if not extents:
            return b.const(self.draw(st.integers(0, SIZE - 1)))
        at = b.iota(size)
        kind = self.draw(st.sampled_from(["plain", "scaled", "reversed", "turned"]))
        if kind == "turned":
            return self.turned(extents)
        if kind == "scaled":
            at = b.op("multiply", at, b.broadcast(b.const(SIZE // size), (), (size,)))
        if kind == "reversed":
            at = b.op("subtract", b.broadcast(b.const(SIZE - 1), (), (size,)), at)
        return b.reshape(at, extents)

    def turned(self, extents: Any) -> Value:
        """Places in column-major order."""
        b, found, stride = self.b, None, 1
        for k, extent in enumerate(extents):
            steps = b.op("multiply", b.iota(extent), b.broadcast(b.const(stride), (), (extent,)))
            tile = b.broadcast(steps, (k,), extents)
            found = tile if found is None else b.op("add", found, tile)
            stride *= extent
        assert found is not None
        return found

    def mask(self, extents: Any) -> Value | None:
        """None, any mask, or bounds of some extents."""
        b = self.b
        match self.draw(st.sampled_from(["none", "none", "any", "bounds", "bounds"])):
            case "any":
                return self.pick(extents, "bool")
            case "bounds" if extents:
                found = None
                for k in self.draw(st.sets(st.integers(0, len(extents) - 1), min_size=1)):
                    limit = self.draw(st.sampled_from([self.n, b.const(extents[k] - 1, "i32"), b.const(0, "i32")]))
                    places = b.cast(b.iota(extents[k]), "i32")
                    name = self.draw(st.sampled_from(["less", "less_equal"]))
                    inside = b.op(name, places, b.broadcast(limit, (), (extents[k],)))
                    inside = b.broadcast(inside, (k,), extents)
                    found = inside if found is None else b.op("logical_and", found, inside)
                return found
        return None

    def load(self, dtype: str, extents: Any = None) -> Value:
        b = self.b
        extents = self.draw(st.sampled_from(SHAPES)) if extents is None else extents
        at = self.places(extents)
        if self.draw(st.booleans()):
            at = b.cast(at, "i32")
        buffer = (self.outs if self.draw(st.integers(0, 3)) == 0 else self.buffers)[dtype]
        mask = self.mask(extents)
        return self.tame(b.load_ptr(buffer, at, mask, None if mask is None else 1))

    def store(self, value: Value) -> None:
        b, extents = self.b, value.type.extents
        mask = self.mask(extents)
        b.store_ptr(self.tame(value), self.outs[value.type.dtype], self.places(extents), mask)

    def step(self) -> None:
        kinds = [
            "op",
            "op",
            "where",
            "cast",
            "move",
            "move",
            "reduce",
            "scan",
            "by",
            "sort",
            "gather",
            "histogram",
            "dot",
        ]
        kinds += ["load", "store", "atomic", "arg"]
        if self.depth < 2:
            kinds += ["for", "if", "while"] * 2
        kind = self.draw(st.sampled_from(kinds))
        made = getattr(self, "make_" + kind)()
        self.values += [v for v in (made or ()) if math.prod(map(int, v.type.extents)) <= SIZE]

    # -- one kind of op each ------------------------------------------------------------------------------------------
    def make_op(self) -> list[Value]:
        x = self.any()
        name = self.draw(st.sampled_from(["add", "multiply", "maximum", "minimum", "less", "equal"]))
        found = self.b.op(name, x, self.pick(x.type.extents, x.type.dtype))
        return [found if found.type.dtype == "bool" else self.tame(found)]

    def make_where(self) -> list[Value]:
        x = self.any()
        return [self.b.op("where", self.pick(x.type.extents, "bool"), x, self.pick(x.type.extents, x.type.dtype))]

    def make_cast(self) -> list[Value]:
        return [self.tame(self.b.cast(self.any(), self.draw(st.sampled_from(DTYPES))))]

    def make_move(self) -> list[Value]:
        b, x = self.b, self.any()
        extents = x.type.extents
        rank = len(extents)
        dim = self.draw(st.integers(0, max(rank - 1, 0)))
        match self.draw(st.sampled_from(["reshape", "trans", "join", "split", "cat", "flip", "broadcast", "expand"])):
            case "reshape" if rank:
                size = math.prod(map(int, extents))
                fitting = [s for s in SHAPES if math.prod(s) == size and s] or [(size,)]
                return [b.reshape(x, self.draw(st.sampled_from(fitting)))]
            case "trans" if rank:
                return [b.trans(x, self.draw(st.permutations(range(rank))))]
            case "join":
                return [b.join(x, self.pick(extents, x.type.dtype))]
            case "split" if rank and extents[-1] == 2:
                return list(b.split(x))
            case "cat" if rank:
                return [b.cat(x, self.pick(extents, x.type.dtype), dim)]
            case "flip" if rank:
                return [b.flip(x, dim)]
            case "expand" if rank < 3:
                return [b.reshape(x, [*map(int, extents[:dim]), 1, *map(int, extents[dim:])])] if rank else []
            case "broadcast" if rank < 3:
                wide = (*extents[:dim], 4, *extents[dim:])
                return [b.broadcast(x, [k for k in range(rank + 1) if k != dim], wide)]
        return []

    def tile(self) -> tuple[Value, int]:
        found = [v for v in self.values if v.type.extents] or [self.load("i32", (16,))]
        x = self.draw(st.sampled_from(found[-10:]))
        return x, self.draw(st.integers(0, len(x.type.extents) - 1))

    def make_reduce(self) -> list[Value]:
        x, dim = self.tile()
        kinds = ["any", "all"] if x.type.dtype == "bool" else ["sum", "max", "min"]
        dims = self.draw(st.sampled_from([(dim,), tuple(range(len(x.type.extents)))]))
        return [self.tame(self.b.reduce(x, self.draw(st.sampled_from(kinds)), dims))]

    def make_arg(self) -> list[Value]:
        x, dim = self.tile()
        index = self.b.reshape(self.b.iota(math.prod(map(int, x.type.extents))), x.type.extents)  # type: ignore[arg-type]
        return [self.tame(self.b.argreduce(x, index, self.draw(st.sampled_from(["argmax", "argmin"])), (dim,)))]

    def make_scan(self) -> list[Value]:
        x, dim = self.tile()
        kind = self.draw(st.sampled_from(["cummax", "cummin"] + ["cumsum"] * (x.type.dtype != "bool")))
        return [self.tame(self.b.scan(x, kind, dim, reverse=self.draw(st.booleans())))]

    def make_by(self) -> list[Value]:
        """Pairs, joined by taking the larger first one and adding up the second ones."""
        b = self.b
        x, dim = self.tile()
        y = self.pick(x.type.extents, "i32")
        reverse = self.draw(st.booleans())
        scan = self.draw(st.booleans())
        with b.scan_by([x, y], dim, reverse) if scan else b.reduce_by([x, y], dim) as c:
            (p, q), (r, s) = c.left, c.right
            b.yield_(b.op("maximum", p, r), b.op("add", q, s))
        return [self.tame(v) for v in c.results]

    def make_sort(self) -> list[Value]:
        x, dim = self.tile()
        return [self.b.sort(x, dim, self.draw(st.booleans()))]

    def make_gather(self) -> list[Value]:
        b = self.b
        x, dim = self.tile()
        extents = list(x.type.extents)
        index = self.pick((*extents[:dim], self.draw(st.sampled_from([1, 4, 16])), *extents[dim + 1 :]), "i32")
        size = b.broadcast(b.const(int(extents[dim]), "i32"), (), index.type.extents)
        return [b.gather(x, b.op("remainder", index, size), dim)]

    def make_histogram(self) -> list[Value]:
        b, dtype = self.b, self.draw(st.sampled_from(["i32", "u8", "i64"]))
        x = self.pick(None, dtype)
        if not x.type.extents:
            return []
        mask = self.pick(x.type.extents, "bool") if self.draw(st.booleans()) else None
        return [b.histogram(x, self.draw(st.sampled_from([1, 4, 16])), mask)]

    def make_dot(self) -> list[Value]:
        m, n, k = (self.draw(st.sampled_from([1, 2, 4, 16])) for _ in range(3))
        dtype = self.draw(st.sampled_from(["i32", "f32"]))
        acc = self.pick((m, n), dtype) if self.draw(st.booleans()) else None
        return [self.tame(self.b.dot(self.pick((m, k), dtype), self.pick((k, n), dtype), acc))]

    def make_load(self) -> list[Value]:
        return [self.load(self.draw(st.sampled_from(DTYPES)))]

    def make_store(self) -> None:
        self.store(self.any())

    def make_atomic(self) -> list[Value]:
        b, dtype = self.b, self.draw(st.sampled_from(["i32", "i64", "f32"]))
        value = self.pick(None, dtype)
        extents = value.type.extents
        index = self.pick(extents, self.draw(st.sampled_from(["i32", "i64"])))
        kind = self.draw(st.sampled_from(["add", "max", "min", "xchg", "cas"]))
        mask = self.pick(extents, "bool") if self.draw(st.booleans()) else None
        compare = self.pick(extents, dtype) if kind == "cas" else None
        found = b.atomic(kind, self.outs[dtype], self.tame(index), value, mask, compare)
        return [self.tame(found)]

    # -- regions ------------------------------------------------------------------------------------------------------
    def inside(self, steps: int, *visible: Value) -> None:
        """Some steps whose values are not seen outside."""
        self.values += visible
        self.depth += 1
        for _ in range(self.draw(st.integers(0, steps))):
            self.step()
        self.depth -= 1

    def make_for(self) -> list[Value]:
        b, before = self.b, len(self.values)
        inits = [self.any() for _ in range(self.draw(st.integers(0, 3)))]
        dtype = self.draw(st.sampled_from(["i32", "i64"]))
        bounds = self.draw(st.sampled_from([(0, 3, 1), (5, 0, -2), (0, 0, 1), (1, 6, 4)]))
        lower, upper, step = [b.const(x, dtype) for x in bounds]
        with b.for_(lower, upper, step, inits) as loop:
            self.inside(4, b.cast(loop.index, "i32"), *loop.carried)
            b.yield_(*[self.pick(v.type.extents, v.type.dtype) for v in inits])
        del self.values[before:]
        return list(loop.results)

    def make_if(self) -> list[Value]:
        b, before = self.b, len(self.values)
        types = [self.any().type for _ in range(self.draw(st.integers(0, 2)))]
        with b.if_(self.pick((), "bool")) as branch:
            self.inside(3)
            b.yield_(*[self.pick(t.extents, t.dtype) for t in types])
        del self.values[before:]
        with branch.else_():
            self.inside(2)
            b.yield_(*[self.pick(t.extents, t.dtype) for t in types])
        del self.values[before:]
        return list(branch.results)

    def make_while(self) -> list[Value]:
        """Three trips at most; the values are the carried ones in another order."""
        b, before = self.b, len(self.values)
        inits = [self.any() for _ in range(self.draw(st.integers(0, 2)))]
        with b.while_([b.const(0, "i32"), *inits]) as loop:
            count, *carried = loop.carried
            self.inside(2, *carried)
            going = b.op("less", count, b.const(self.draw(st.integers(0, 3)), "i32"))
            b.yield_(going, *[self.pick(v.type.extents, v.type.dtype) for v in carried[::-1]], count)
        del self.values[before:]
        with loop.body():
            *values, count = loop.values
            self.inside(2, *values)
            b.yield_(b.op("add", count, b.const(1, "i32")), *[self.pick(v.type.extents, v.type.dtype) for v in inits])
        del self.values[before:]
        return list(loop.results[:-1])


@st.composite
def programs(draw: Any) -> tuple[Kernel, list[Any]]:
    """A kernel, and its arguments."""
    kernel = Maker(draw).kernel()
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    buffers = [rng.integers(0, 2 if d == "bool" else 16, SIZE).astype(NUMPY[d]) for d in (*DTYPES, *DTYPES)]
    return kernel, [*buffers, *draw(st.sampled_from([(1, 1, 1), (3, 1, 1), (2, 2, 2)])), draw(st.integers(0, 9))]
