"""A softmax between two products -> block IR: a loop over the keys with a running maximum and running sums.

One program has a block of rows (queries) and all features of the result.  It walks over the keys a block at a time:

    s = scores of the rows and the block's keys
    m, before = max(m, max of s over the keys), m
    w = exp(s - m)
    sums = sums * exp(before - m) + sum of w over the keys
    product = product * exp(before - m) + w @ values

16-bit floats are rounded where a product takes them and where the result is stored; between, they are f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import numpy as np

from . import alternatives, dtypes
from .builder import Extents
from .expr import Expr
from .group import At, Group, canonical, edges
from .index import Axis, Index
from .ir import Value
from .lower import Lowered, Lowering, Origins
from .online import (
    Analysis,
    Apply,
    Maximum,
    Number,
    Pivot,
    Product,
    Read,
    Sum,
    Term,
    Unit,
    Weights,
    dtype_of,
    terms,
    wide,
)  # fmt: skip
from .policy import Policy
from .regions import FALSE, Bound, Mask, Regions
from .schedule import bucket

#: Rows of a program, and keys that it takes at a time.
CPU_ROWS, CPU_KEYS = 64, 64
GPU_ROWS, GPU_KEYS = 128, 128
#: What strides on a GPU had better be multiples of.
ALIGNED = 16
#: Features from which a GPU takes half as many keys, so that two blocks of them have room.
GPU_WIDE = 128
#: Features up to which programs of a GPU have more rows, if there are so many programs.
GPU_SMALL, GPU_MANY = 64, 1024
#: Programs of a GPU, at most, that share the keys of some rows; what one costs more, in blocks of keys.
GPU_PARTS, GPU_BEGINNING = 32, 4
#: What the lowering knows of values, by the names of its attributes.
_SCOPED = ("values", "coefficients", "position", "start", "wrapped", "terms")


def gpu_block(queries: int, programs: int, features: int, columns: int, beside: bool) -> tuple[int, int]:
    """Rows of a program on a GPU, and keys that it takes at a time.

    Small heads leave registers for more rows, which pays where there are enough programs, all take all keys, and
    nothing is loaded `beside` the scores.
    """
    wide = max(features, columns)
    more = wide <= GPU_SMALL and programs >= GPU_MANY and not beside
    rows = GPU_ROWS // 2 if queries <= GPU_ROWS // 2 else GPU_ROWS * 3 // 2 if more else GPU_ROWS
    return rows, GPU_KEYS // 2 if wide > GPU_WIDE else GPU_KEYS


def gpu_parts(programs: int, blocks: int, processors: int) -> int:
    """Into how many parts, of which each is a program, to divide so many blocks of keys."""
    if programs >= processors:
        return 1

    def cost(parts: int) -> int:
        return -(-programs * parts // processors) * (-(-blocks // parts) + GPU_BEGINNING)

    return min((p for k in range(6) for p in (1 << k, 3 << k) if p <= min(GPU_PARTS, blocks)), key=cost)


def lower_online(
    group: Group, name: str, policy: Policy, alignment: Callable[[Expr], int], origins: Origins | None = None
) -> Lowered:
    """The kernel of a group with a softmax between two products; as `lower`."""
    return _Online(group, name, policy, alignment, origins or {}).run()


@dataclass(slots=True)
class _Blocks:
    """Blocks of keys: where they begin and end, and whether the last one reaches behind the last key."""

    lower: Value
    upper: Value
    cut: bool
    #: Values that do not depend on the position in these blocks.
    known: Mapping[tuple[Expr, At], Term] = field(default_factory=dict)


class _Online(Lowering):
    """The lowering of such a group.  Its tile is (rows, features, keys, columns): q and k have features, v columns."""

    def run(self) -> Lowered:
        self._collect()
        self._split_axes()
        self._analyse()
        self._choose_tiles()
        self._emit()
        self._finish_args()
        kernel = self.b.finish()
        kernel.attrs.update(self.attrs, schedule="online")
        self._annotate(kernel)
        return Lowered(kernel, self.args, self.programs, False, tuple(self.messages), self.tuned)

    # -- axes ---------------------------------------------------------------------------------------------------------
    def _fixed(self) -> set[Axis]:
        group = self.group
        assert group.online is not None
        self.online = online = group.online
        (self.scores_at,) = self.ats[online.scores]
        (self.product_at,) = self.ats[online.product]
        self.keys = group.bound[online.product][0].find()
        self.features = group.bound[online.scores][0].find()
        self.columns = online.columns(self.product_at).single() or Axis(1)
        return {self.keys, self.features, self.columns}

    def _analyse(self) -> None:
        """Find what is computed, and along which axis the rows are."""
        group, online = self.group, self.online
        analysis = Analysis(online, group, self.keys)
        (at,) = self.ats[online.head]
        self.result = analysis.head(at)
        assert analysis.scores is not None and analysis.weights is not None
        self.scores, self.weights = analysis.scores, analysis.weights
        used = dict.fromkeys(terms(self.result))
        maxima = dict.fromkeys([Maximum(self.scores), *[t for t in used if isinstance(t, Maximum)]])
        (product,) = [t for t in used if isinstance(t, Product)]
        #: What the walk carries along.
        self.carried: list[Maximum | Sum | Product] = [*maxima, *[t for t in used if isinstance(t, Sum)], product]
        sides = edges(group, online.scores, self.scores_at)
        self.query, self.key = sides[::-1] if self.keys in self._reach(*sides[0]) else sides
        self.value = edges(group, online.product, self.product_at)[1 - online.side]
        shared = self._reach(*self.key) | self._reach(*self.value)
        queries = self._reach(*self.query)
        rows = [a for a in self.axes if a in queries and a in self.parallel and a not in shared]
        self.rows = max(rows, key=lambda a: a.size, default=Axis(1))
        self._widen()

    def _widen(self) -> None:
        """Let arrays step along those axes of the tile that have but one position, as if there were more."""

        def step(key: tuple[str, Expr, At], axis: Axis, inner: Axis) -> None:
            form = self.forms[key]
            if axis.size == 1 and key in self.forms:
                aligned = -(-inner.size // ALIGNED) * ALIGNED
                self.forms[key] = Index(form.const, {**form.terms, axis: aligned if 1 in form.terms.values() else 1})

        for key in list(self.forms):
            if key[0] == "store":
                step(key, self.columns, self.columns)
                step(key, self.rows, self.columns)
            elif key[1:] == (self.query[0], canonical(self.query[1])):
                step(key, self.features, self.features)
                step(key, self.rows, self.features)

    def _choose_tiles(self) -> None:
        rows, block = CPU_ROWS, min(CPU_KEYS, bucket(self.keys.size))
        heads = prod(a.size for a in self.parallel - {self.rows, self.columns})
        if self.gpu:
            programs = heads * -(-self.rows.size // GPU_ROWS)
            pairs = [form for (what, *_), form in self.forms.items() if what == "load" and self.keys in form.axes()]
            beside = bool(self._masks()) or any(self.rows in form.axes() for form in pairs)
            rows, block = gpu_block(self.rows.size, programs, self.features.size, self.columns.size, beside)
        usual = {"rows": rows, "keys": block}
        axes = self.rows, self.features, self.keys, self.columns, *(self.parallel - {self.rows, self.columns})
        found = alternatives.online(self.group, axes, usual, self.policy.target, self.policy.choices)
        self.block, self.tuned = found["keys"], found is not usual
        self.tile = {self.rows: found["rows"], self.features: None, self.columns: None}
        programs = heads * -(-self.rows.size // found["rows"])
        self.parts = gpu_parts(programs, -(-self.keys.size // self.block), self.policy.processors) if self.gpu else 1
        stride = lambda axis: max(abs(f.terms.get(axis, 0)) for f in self.forms.values())
        batch = [a for a in self.axes if a in self.parallel and a not in self.tile]
        self.grid = sorted(batch, key=stride, reverse=True)

    def _declare(self) -> None:
        super()._declare()
        if self.parts > 1:
            # Programs that differ along it alone share the keys.
            self.attrs["split"] = self.b.grid_axis(self._int(f"s{len(self.args)}", self.parts))
            self.programs *= self.parts
        self.length = self._size(self.keys)
        # The keys' extent is no dim but a number: that of a block.
        self.names[self.keys] = self.block
        self.order = [self.rows, self.features, self.keys, self.columns]
        self.tile = {a: self.tile.get(a) for a in self.order}

    # -- emission -----------------------------------------------------------------------------------------------------
    def _emit(self) -> None:
        b = self.b
        self._declare()
        self.terms: dict[Term, Value] = {}
        #: The blocks of the loop that is being made.
        self.blocks: _Blocks | None = None
        self._prepare()
        carried = self._initial()
        for blocks in self._walk():
            carried = self._loop(blocks, carried)
        self.terms.update(zip(self.carried, carried, strict=True))
        head = self.online.head
        (at,) = self.ats[head]
        self.values[head, at] = b.cast(self._term(self.result), dtypes.name(head.dtype))
        behind = {head}
        for node in reversed(self.group.nodes):
            for at in self.ats[node] if node not in self.online.inside else ():
                if any(p in behind for p, _ in edges(self.group, node, at)):
                    behind.add(node)
                    self.values[node, at] = self._node(node, at)
        for out in self.group.outputs:
            self._store(out)

    def _prepare(self) -> None:
        """Compute, before any loop, what is the same for all keys, and where the loops' loads begin."""
        self.affine: dict[tuple[Expr, At], tuple[Value, list[Value], Extents]] = {}
        extents: set[int | str] = set()
        for (what, node, at), form in self.forms.items():
            if what == "load" and self.keys in form.axes():
                self._pointer(node, form.const)
                if (affine := self._affine(form)) is not None:
                    self.affine[node, at] = affine
                    extents |= {*affine[2]} if self.gpu else set()
        self.bounds = {e: self.b.dim_extent(e) for e in extents if isinstance(e, str)}
        seen: set[tuple[Expr, At]] = set()
        stack = [(self.online.scores, self.scores_at), self.value]
        stack += [(t.node, t.at) for x in (self.scores, *self.carried) for t in terms(x) if isinstance(t, Read)]
        while stack:
            node, at = stack.pop()
            if (node, at) in seen:
                continue
            seen.add((node, at))
            inside = node in self.online.inside
            if not inside and self.keys not in self._reach(node, at):
                self._value(node, at)
            elif node in self.group.nodes:
                stack += [(p, canonical(i)) for p, i in edges(self.group, node, at)]

    def _initial(self) -> list[Value]:
        b = self.b
        values = []
        for term in self.carried:
            start = b.const(-np.inf if isinstance(term, Maximum) else 0, dtype_of(term))
            values.append(b.broadcast(start, (), self._extents(term)))
        return values

    def _extents(self, term: Term) -> Extents:
        rows, columns = self.names[self.rows], self.names[self.columns]
        return (rows, columns) if isinstance(term, Product) else (rows,)

    def _walk(self) -> list[_Blocks]:
        """The loops, one after the other: over whole blocks in which all masks are open, then over the others."""
        b = self.b
        masks = self._masks()
        cut = self.keys.size % self.block != 0
        lower, upper = self._limits(masks)
        inner = [m for m in masks if all(r.axes.get(self.keys, 0) == -1 and self._steps(r) for r in m.region.bounds)]
        if not inner and not cut:
            return [_Blocks(lower, upper, False)]
        if not inner and self.keys.size < self.block:
            return [_Blocks(lower, upper, True)]
        end = self._least([upper, *[self._limit(r, False) for m in inner for r in m.region.bounds]])
        end = self._floored(b.op("maximum", end, b.const(0)) if inner else end)
        end = b.op("maximum", end, lower) if lower is not b.const(0) else end
        opened = {(m.node, m.at): m.region.inside for m in inner}
        for term in opened.values():
            self._term(term)
        return [_Blocks(lower, end, False, opened), _Blocks(end, upper, cut)]

    def _masks(self) -> list[Mask]:
        if not isinstance(self.scores, Read):
            return []
        regions = Regions(lambda node, at: edges(self.group, node, at), self.forms, self.group.nodes, self.keys)
        return regions.masks(self.scores.node, self.scores.at)

    def _limits(self, masks: list[Mask]) -> tuple[Value, Value]:
        """The first block, and the key behind the last one, that the scores of some row are not all closed for."""
        b = self.b
        lower, upper = b.const(0), self.length
        for mask in masks:
            bounds = [r for r in mask.region.bounds if abs(r.axes.get(self.keys, 0)) == 1 and self._steps(r)]
            if mask.closed == FALSE or not bounds:
                continue
            closed = self._term(mask.closed)
            for r in bounds:
                limit = self._limit(r, True)
                if r.axes[self.keys] < 0:
                    upper = b.op("minimum", upper, self._op("where", closed, limit, self.length))
                else:
                    lower = b.op("maximum", lower, self._op("where", closed, limit, b.const(0)))
        return lower if lower is b.const(0) else self._floored(lower), upper

    def _least(self, xs: list[Value]) -> Value:
        least = xs[0]
        for x in xs[1:]:
            least = self.b.op("minimum", least, x)
        return least

    def _floored(self, x: Value) -> Value:
        """The first position of the block that a position is in."""
        step = self.b.const(self.block)
        return self.b.op("multiply", self.b.op("floor_divide", x, step), step)

    def _steps(self, bound: Bound) -> bool:
        """Whether a bound is one on keys that depends on the row and on the program alone."""
        return {*bound.axes} <= {self.keys, self.rows, *self.grid}

    def _limit(self, bound: Bound, any_row: bool) -> Value:
        """The key behind the last one that a bound allows for any row of the program, or for all of them.

        If it is a bound from below, the first one instead.
        """
        b, keys = self.b, bound.axes[self.keys]
        total = b.const(bound.const * -keys + (keys < 0))
        for axis, c in bound.axes.items():
            c *= -keys
            if axis is self.keys or not c:
                continue
            position = self.position[axis] if axis in self.grid else self._start(axis)
            if axis is self.rows and (c > 0) == (any_row == (keys < 0)):
                last = b.op("add", b.dim_extent(self.names[axis]), b.const(-1))
                position = b.op("add", position, last)
            total = b.op("add", total, b.op("multiply", position, b.const(c)))
        for scalar, c in bound.scalars.items():
            total = b.op("add", total, b.op("multiply", self._value(scalar, ()), b.const(-keys * c)))
        return total

    @contextmanager
    def _inside(self, blocks: _Blocks, first: Value) -> Iterator[None]:
        """Values that are computed inside a loop are not known behind it."""
        known = {name: getattr(self, name) for name in _SCOPED}
        for name, values in known.items():
            setattr(self, name, dict(values))
        self.blocks, self.first = blocks, first
        for (node, at), term in blocks.known.items():
            self.values[node, at] = self._term(term)
        self.rest = self.b.op("subtract", self.length, first) if blocks.cut or self.gpu else self.length
        yield
        self.blocks = None
        for name, values in known.items():
            setattr(self, name, values)

    def _loop(self, blocks: _Blocks, carried: list[Value]) -> list[Value]:
        b = self.b
        step = b.const(self.block)
        with b.for_(blocks.lower, blocks.upper, step, carried) as loop, self._inside(blocks, loop.index):
            before = dict(zip(self.carried, loop.carried, strict=True))
            after: dict[Term, Value] = {}
            for term in self.carried:
                if isinstance(term, Maximum):
                    x = self._masked(self._across(self._term(term.term)), -np.inf)
                    after[term] = b.op("maximum", before[term], b.reduce(x, "max", (1,)))
                    if term.term == self.scores:
                        scores = x
            top = Maximum(self.scores)
            pivot = self._pivot(after[top])
            decay = b.op("exp", b.op("subtract", before[top], pivot))
            self.terms[Weights(self.scores)] = b.op("exp", self._op("subtract", scores, pivot))
            for term in self.carried:
                if isinstance(term, Sum):
                    x = self._masked(self._across(self._term(term.term)), 0, term.term)
                    x = b.cast(b.reduce(x, "sum", (1,)), dtype_of(term))
                    after[term] = b.op("add", self._scaled(before[term], decay), x)
                elif isinstance(term, Product):
                    after[term] = self._product(term, self._scaled(before[term], decay))
            b.yield_(*[after[term] for term in self.carried])
        return [*loop.results]

    def _scaled(self, x: Value, factor: Value) -> Value:
        return self._op("multiply", x, self.b.cast(factor, x.type.dtype))

    def _pivot(self, maximum: Value) -> Value:
        b, dtype = self.b, maximum.type.dtype
        none = self._op("equal", maximum, b.const(-np.inf, dtype))
        return self._op("where", none, b.const(0, dtype), maximum)

    def _across(self, x: Value) -> Value:
        """A value as a tile over rows and keys."""
        return self._spread(x, (self.names[self.rows], self.block))

    def _masked(self, x: Value, other: float, term: Term | None = None) -> Value:
        """A tile with `other` for positions behind the last key; the weights themselves are 0 there."""
        if self.blocks is None or not self.blocks.cut or isinstance(term, Weights):
            return x
        return self._op("where", self._present(), x, self.b.const(other, x.type.dtype))

    def _present(self) -> Value:
        return self._op("less", self._where(self.keys), self.length)

    def _product(self, term: Product, total: Value) -> Value:
        """The block's weights, multiplied by its values, added to a total."""
        b, node = self.b, self.online.product
        narrow = dtypes.name(node.inputs[0].dtype)
        weights = self._masked(self._across(self._term(term.term)), 0, term.term)
        values = self._value(*self.value)
        if self.value[0] in self.group.nodes:  # not as it lies in memory, where zeros are read behind the last key
            values = self._masked(values, 0)
        values = self._spread(values, (self.block, self.names[self.columns]))
        return b.dot(self._operand(weights, narrow), self._operand(values, narrow), total)

    def _operand(self, x: Value, dtype: str) -> Value:
        """What a product takes: 16-bit floats on a GPU, whose units multiply these."""
        return self.b.cast(x, dtype if self.gpu else wide(dtype))

    # -- values -------------------------------------------------------------------------------------------------------
    def _term(self, term: Term) -> Value:
        found = self.terms.get(term)
        if found is None:
            found = self.terms[term] = self._computed(term)
        return found

    def _computed(self, term: Term) -> Value:
        b = self.b
        match term:
            case Read(node, at):
                return self._widened(self._value(node, at))
            case Number(value, dtype):
                return b.const(value, dtype)
            case Pivot(x):
                return self._pivot(self._term(Maximum(x)))
            case Unit(x, top):
                return b.op("exp", b.op("subtract", self._term(Pivot(x)), self._term(top)))
            case Apply("cast", dtype, (x,)):
                return b.cast(self._term(x), dtype)
            case Apply(name, dtype, args):
                xs = [self._term(x) for x in args]
                floats = {x.type.dtype for x in xs} & dtypes.FLOAT
                joint = "f64" if "f64" in floats else "f32"
                return self._op(name, *[b.cast(x, joint) if x.type.dtype in floats else x for x in xs], dtype=dtype)
        raise AssertionError(f"{term} is known when the walk has ended")

    def _widened(self, x: Value) -> Value:
        return self.b.cast(x, wide(x.type.dtype))

    def _where(self, axis: Axis) -> Value:
        if axis is not self.keys or axis in self.position:
            return super()._where(axis)
        self.position[axis] = self._op("add", self.b.iota(self.block), self.first)
        return self.position[axis]

    def _node(self, node: Expr, at: At) -> Value:
        online, b = self.online, self.b
        if node not in online.inside:
            return super()._node(node, at)
        if node is online.scores:
            narrow = dtypes.name(node.inputs[0].dtype)
            rows, features = self.names[self.rows], self.names[self.features]
            q = self._operand(self._spread(self._value(*self.query), (rows, features)), narrow)
            k = self._operand(self._spread(self._value(*self.key), (features, self.block)), narrow)
            return b.dot(q, k, dtype=wide(narrow))
        producers = edges(self.group, node, at)
        if node.op.name == "where" and self.blocks is not None:
            match self.blocks.known.get((producers[0][0], canonical(producers[0][1]))):
                case Number(value, "bool"):
                    return self._widened(self._value(*producers[1 if value else 2]))
        xs = [self._widened(x) for x in self._operands(node, producers)]
        dtype = wide(dtypes.name(node.dtype))
        return b.cast(xs[0], dtype) if node.op.name == "cast" else self._op(node.op.name, *xs, dtype=dtype)

    def _load(self, node: Expr, at: At) -> Value:
        b, form = self.b, self.forms["load", node, at]
        if self.blocks is None or self.keys not in form.axes():
            return super()._load(node, at)
        pointer = self._pointer(node, form.const)
        if (node, at) not in self.affine:
            index = self._index(Index(0, form.terms))
            if not self.blocks.cut:
                return b.load_ptr(pointer, index)
            return b.load_ptr(pointer, index, self._spread(self._present(), index.type.extents))
        offset, strides, extents = self.affine[node, at]
        step = strides[extents.index(self.block)]
        offset = b.op("add", offset, b.op("multiply", self.first, step))
        bounds = None
        if self.blocks.cut or self.gpu:
            bounds = [self.rest if isinstance(e, int) else self._extent(e) for e in extents]
        return b.load_view(pointer, offset, strides, extents, bounds)

    def _extent(self, name: str) -> Value:
        return self.bounds.get(name) or self.b.dim_extent(name)
