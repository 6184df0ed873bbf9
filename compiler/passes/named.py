"""Blocks that hold a row become the row: static extents with bounds become named dims.

Kernels that are written by hand load a row into a block that is at least as long, and say by bounds and masks which
of its elements there are.  A named dim says so once; see `named`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from .. import dtypes, ops
from ..ir import BOOL, I64, Block, Dim, Kernel, Op, Type, Value, has_effect
from .linear import Linear, Scalars
from .rewrite import Rewriter
from .views import moved

#: Least blocks whose dims get names: shorter ones are a few vectors, whose masks cost little.
LEAST = 64
#: Ops whose results have their operands' elements, each at its place.
_ALIKE = frozenset(("cast", "bitcast", "hint"))
#: Ops of floats that give NaN where an operand is NaN.
_NAN_WINS = frozenset((
    "add", "subtract", "multiply", "divide", "negative", "exp", "exp2", "expm1", "log", "log2", "sqrt", "square",
    "absolute", "tanh", "maximum", "minimum",
))  # fmt: skip
_COMPARED = {"less": 0, "less_equal": 1, "greater": 0, "greater_equal": 1}

Axis = tuple[Value, int]


def named(kernel: Kernel, least: int = LEAST) -> Kernel:
    """Give the extents names along which a kernel written by hand keeps within a bound.

    An extent becomes a dim, whose positions are those below the bound, where the bound is a parameter (a block holds a
    whole row), or what is left of a parameter where the program's block begins; where all stores along it keep within
    the bound; and where each reduction along it finds nothing that counts behind the bound.  Loads along it need no
    bounds then, and masks that say nothing else are gone.  Programs that would store nothing do nothing, which is the
    only condition that is added.

    Keeps every value that is stored, whatever the parameters and the grid are, unless the arithmetic of positions
    overflows.  Extents below `least` are left alone.
    """
    if kernel.attrs.get("schedule") != "blocks" or kernel.dims:
        return kernel
    found = _Analysis(kernel, least)
    return _Namer(found).named() if found.names else kernel


class Pad(NamedTuple):
    """What all elements behind a bound are.

    If it is not `sure`, they may be NaN instead, where all elements within the bound are.
    """

    value: np.ndarray
    sure: bool = True


@dataclass(slots=True, eq=False)
class _Extent:
    """An extent that several tiles share, since ops join them element by element."""

    size: int
    axes: list[Axis] = field(default_factory=list)
    #: The bounds of loads and stores along it; None: there is none, or one that is not understood.
    loads: set[Linear | None] = field(default_factory=set)
    stores: set[Linear | None] = field(default_factory=set)
    #: Reductions along it.
    reduced: list[tuple[Op, int]] = field(default_factory=list)
    fixed: bool = False

    def limit(self) -> Linear | None:
        """The bound of all stores, or, if there is no store, of all loads."""
        known = self.stores or self.loads
        return next(iter(known)) if len(known) == 1 else None


class _Analysis:
    """Which extents of a kernel are dims."""

    def __init__(self, kernel: Kernel, least: int) -> None:
        self.kernel = kernel
        self.least = least
        self.scalars = Scalars(kernel)
        #: The joined axes, as a forest.
        self.parents: dict[Axis, Axis] = {}
        self.extents: dict[Axis, _Extent] = {}
        self._pads: dict[tuple[Value, int], Pad | None] = {}
        self.dims: dict[str, Dim] = {}
        #: Of each axis that is one: its dim and bound.
        self.names: dict[Axis, str] = {}
        #: Bounds, known above 0 in every program that stores anything.
        self.guards = self._guards()
        self._join()
        for extent in self.extents.values():
            self._name(extent)

    # -- axes ---------------------------------------------------------------------------------------------------------
    def root(self, axis: Axis) -> Axis:
        while (parent := self.parents.get(axis, axis)) != axis:
            self.parents[axis] = self.parents.get(parent, parent)
            axis = parent
        return axis

    def extent(self, value: Value, k: int) -> _Extent | None:
        return self.extents.get(self.root((value, k)))

    def _unite(self, a: Axis, b: Axis) -> None:
        self.parents[self.root(a)] = self.root(b)

    def _alike(self, values: Iterable[Value]) -> None:
        first, *rest = values
        for v in rest:
            for k in range(min(len(first.type.extents), len(v.type.extents))):
                self._unite((first, k), (v, k))

    def _join(self) -> None:
        """Find the extents, and what is done along each."""
        tiles: dict[Value, None] = {}
        along: list[tuple[str, Axis, Linear | None]] = []
        reduced: list[tuple[Op, int]] = []
        for op in self.kernel.walk():
            for v in (*op.operands, *op.results, *(a for r in op.regions for a in r.args)):
                if v.type.extents:
                    tiles[v] = None
            match op.name:
                case "load_view":
                    along += [("loads", (op.result, k), b) for k, b in enumerate(self.bounds(op))]
                case "store_view":
                    along += [("stores", (op.operands[0], k), b) for k, b in enumerate(self.bounds(op))]
                case "iota" | "const":
                    pass
                case "broadcast" | "reshape":
                    dims = moved(op.name, op.operands[0], op.result)
                    if dims is None:
                        along += self._fixed(op)
                    for k, d in enumerate(dims or ()):
                        if d >= 0:
                            self._unite((op.operands[0], k), (op.result, d))
                case "reduce" | "argreduce":
                    self._alike(op.operands)
                    left = [k for k in range(len(op.operands[0].type.extents)) if k not in op.attrs["dims"]]
                    for k, old in enumerate(left):
                        self._unite((op.operands[0], old), (op.result, k))
                    reduced += [(op, k) for k in op.attrs["dims"]]
                case "for":
                    (body,) = op.regions
                    for group in zip(op.operands[3:], body.args[1:], body.ops[-1].operands, op.results):
                        self._alike(group)
                case "if":
                    for group in zip(op.results, *(r.ops[-1].operands for r in op.regions)):
                        self._alike(group)
                case "yield" | "assume":
                    pass
                case "load_ptr":
                    self._alike((*op.operands[1:], op.result))
                case name if name in _ALIKE or name in ops.TABLE:
                    self._alike((*op.operands, *op.results))
                case _:
                    along += self._fixed(op)
        for v in tiles:
            for k, size in enumerate(v.type.extents):
                assert isinstance(size, int)
                axis = self.root((v, k))
                self.extents.setdefault(axis, _Extent(size)).axes.append((v, k))
        for what, axis, bound in along:
            extent = self.extents[self.root(axis)]
            if what == "fixed":
                extent.fixed = True
            else:
                getattr(extent, what).add(bound)
        for op, k in reduced:
            self.extents[self.root((op.operands[0], k))].reduced.append((op, k))

    def _fixed(self, op: Op) -> Iterator[tuple[str, Axis, None]]:
        inside = [v for r in op.regions for v in (*r.args, *r.ops[-1].operands)]
        for v in (*op.operands, *op.results, *inside):
            yield from (("fixed", (v, k), None) for k in range(len(v.type.extents)))

    # -- bounds -------------------------------------------------------------------------------------------------------
    def bounds(self, op: Op) -> list[Linear | None]:
        """Of each extent of a view."""
        tile, rest = (op.result, op.operands[2:]) if op.name == "load_view" else (op.operands[0], op.operands[3:])
        rank = len(tile.type.extents)
        if "bounded" not in op.attrs:
            return [None] * rank
        return [self.scalars.linear(v) for v in rest[rank:]]

    def _guards(self) -> list[Linear]:
        """The bounds that every effect keeps, of values known where the kernel begins."""
        common: dict[Linear, None] | None = None
        for op in self.kernel.walk():
            if op.name == "store_view":
                own = dict.fromkeys(b for b in self.bounds(op) if b is not None and b.terms)
                common = own if common is None else {b: None for b in common if b in own}
            elif has_effect(op) and op.name != "assume":
                return []
        return [b for b in common or () if self.scalars.is_early(b)]

    def is_positive(self, bound: Linear | None) -> bool:
        """Whether a bound is above 0 wherever it is asked for."""
        if bound is None:
            return False
        return bound in self.guards or self.scalars.is_above_zero(bound)

    def is_implied(self, value: Value, k: int, bound: Linear | None) -> bool:
        """Whether no position of a tile along extent k is at the bound or behind it."""
        if bound is None:
            return False
        size = value.type.extents[k]
        assert isinstance(size, int)
        if not bound.terms:
            return bound.constant >= size
        if size == 1:
            return self.is_positive(bound)
        extent = self.extent(value, k)
        return extent is not None and self.root((value, k)) in self.names and extent.limit() == bound

    def _name(self, extent: _Extent) -> None:
        """Make an extent a dim, if that changes nothing."""
        limit, twice = extent.limit(), len({v for v, _ in extent.axes}) < len(extent.axes)
        if extent.size < self.least or extent.fixed or twice or limit is None:
            return
        made = self.scalars.dim(limit, extent.size)
        if made is None or not all(self._is_neutral(op, k, limit) for op, k in extent.reduced):
            return
        used = {self.names.get(self.root((v, k))) for v, _ in extent.axes for k in range(len(v.type.extents))}
        name = next((n for n, dim in self.dims.items() if dim == made and n not in used), f"d{len(self.dims)}")
        self.dims[name] = made
        self.names[self.root(extent.axes[0])] = name

    def _is_neutral(self, op: Op, k: int, limit: Linear) -> bool:
        """Whether what lies behind the bound changes nothing of a reduction's result, if that is stored."""
        x, kind = op.operands[0], op.attrs["kind"].removesuffix("_number")
        pad = self.pad(x, k, limit)
        if pad is None:
            return False
        identity = ops.TABLE[kind].identity
        assert identity is not None
        neutral = np.all(pad.value == np.asarray(identity(x.type.dtype)).astype(pad.value.dtype))
        if op.name == "argreduce":  # the first of all wins, if there is one
            return bool(neutral) and pad.sure and limit in self.guards
        return bool(neutral) and (pad.sure or (kind in ("sum", "max", "min") and limit in self.guards))

    # -- what lies behind a bound -------------------------------------------------------------------------------------
    def pad(self, x: Value, k: int, limit: Linear) -> Pad | None:
        """What all elements of a tile at positions from `limit` on along extent k are, if it is known."""
        key = x, k
        if key not in self._pads:
            self._pads[key] = None
            self._pads[key] = self._pad(x, k, limit)
        return self._pads[key]

    def _pad(self, x: Value, k: int, limit: Linear) -> Pad | None:
        op = x.op
        if op is None or len(op.results) > 1 or op.regions:
            return None
        dtype = dtypes.NUMPY[x.type.dtype]
        if op.name == "load_view":
            return Pad(np.full(1, op.attrs.get("other", 0), dtype)) if self.bounds(op)[k] == limit else None
        if op.name in ("broadcast", "reshape"):
            (source,) = op.operands
            if source.op is not None and source.op.name == "const":
                return Pad(np.full(1, source.op.attrs["value"], dtype))
            dims = moved(op.name, source, x) or ()
            return self.pad(source, dims.index(k), limit) if k in dims else self._uniform(source)
        if op.name == "where":
            tests = self.tests(op.operands[0])
            if tests is not None and (k, limit) in tests:
                return self.pad(op.operands[2], k, limit)
        if op.name == "subtract" and (rest := self._below_maximum(op, k, limit)):
            return rest
        if op.name not in ("cast", "hint") and (op.name not in ops.TABLE or ops.TABLE[op.name].types):
            return None
        pads = [self.pad(v, k, limit) for v in op.operands]
        given = [p for p in pads if p is not None]
        if len(given) < len(pads):
            return None
        sure = all(p.sure for p in given)
        plain = x.type.dtype in dtypes.FLOAT and all(v.type.dtype in dtypes.FLOAT for v in op.operands)
        if not sure and not (plain and (op.name in _NAN_WINS or op.name == "cast")):
            return None
        if op.name in ("cast", "hint"):
            return Pad(np.asarray(dtypes.cast_array(given[0].value, dtype)), sure)
        return Pad(ops.interpret(op.name, *(p.value for p in given)).astype(dtype), sure)

    def _uniform(self, source: Value) -> Pad | None:
        """What a tile is that was made of constants."""
        while source.op is not None and source.op.name in ("broadcast", "reshape"):
            (source,) = source.op.operands
        if source.op is None or source.op.name != "const":
            return None
        return Pad(np.full(1, source.op.attrs["value"], dtypes.NUMPY[source.type.dtype]))

    def _below_maximum(self, op: Op, k: int, limit: Linear) -> Pad | None:
        """x - max(x), where x is minus infinity behind the bound.

        So is the difference; but it is NaN where the maximum is minus infinity or NaN, and then all others are, too.
        """
        x, y = op.operands
        pad = self.pad(x, k, limit)
        if pad is None or not pad.sure or not np.isneginf(pad.value.astype(np.float64)).all():
            return None
        places: list[int] = list(range(len(y.type.extents)))
        while y.op is not None and y.op.name in ("broadcast", "reshape"):
            dims = moved(y.op.name, y.op.operands[0], y)
            if dims is None:
                return None
            (y,) = y.op.operands
            places = [places[d] if d >= 0 else -1 for d in dims]
        top = y.op
        if top is None or top.name != "reduce" or top.attrs["kind"] not in ("max", "max_number"):
            return None
        if top.operands[0] is not x:
            return None
        left = [j for j in range(len(x.type.extents)) if j != k]
        aligned = all(p in (j, -1) for p, j in zip(places, left))
        return Pad(pad.value, False) if top.attrs["dims"] == (k,) and aligned else None

    # -- masks --------------------------------------------------------------------------------------------------------
    def tests(self, mask: Value) -> list[tuple[int, Linear]] | None:
        """The bounds, by extents, whose conjunction a mask is."""
        op = mask.op
        if op is None:
            return None
        if op.name in ("logical_and", "bitwise_and"):
            a, b = (self.tests(v) for v in op.operands)
            return None if a is None or b is None else a + b
        if op.name in ("broadcast", "reshape"):
            inner, dims = self.tests(op.operands[0]), moved(op.name, op.operands[0], mask)
            if inner is None or dims is None or any(dims[k] < 0 for k, _ in inner):
                return None
            return [(dims[k], bound) for k, bound in inner]
        if op.name not in _COMPARED:
            return None
        low, high = op.operands if op.name.startswith("less") else op.operands[::-1]
        a, b = self.place(low), self.place(high)
        if a is None or b is None or a[0] is None or b[0] is not None:
            return None
        return [(a[0], b[1].minus(a[1]).plus(_COMPARED[op.name]))]

    def place(self, x: Value) -> tuple[int | None, Linear] | None:
        """An integer tile as the place along an extent (None: alike everywhere) plus a scalar."""
        op = x.op
        if not x.type.extents:
            scalar = self.scalars.linear(x)
            return None if scalar is None else (None, scalar)
        if op is None or x.type.dtype not in ("i32", "i64"):
            return None
        match op.name:
            case "iota":
                return 0, Linear()
            case "cast" | "hint":
                return self.place(op.operands[0])
            case "broadcast" | "reshape":
                inner, dims = self.place(op.operands[0]), moved(op.name, op.operands[0], x)
                if inner is None or inner[0] is None or dims is None:
                    return inner
                return None if dims[inner[0]] < 0 else (dims[inner[0]], inner[1])
            case "add" | "subtract":
                a, b = (self.place(v) for v in op.operands)
                if a is None or b is None or (b[0] is not None and (op.name == "subtract" or a[0] is not None)):
                    return None
                total = a[1].minus(b[1]) if op.name == "subtract" else a[1].minus(Linear().minus(b[1]))
                return (b[0] if a[0] is None else a[0]), total
        return None


class _Namer(Rewriter):
    """Makes the kernel again, with the dims."""

    def __init__(self, found: _Analysis) -> None:
        super().__init__()
        self.found = found

    def named(self) -> Kernel:
        made = self.kernel(self.found.kernel)
        return replace(made, body=Block(made.body.args, self._guarded(made.body.ops)), dims=self.found.dims)

    def _guarded(self, ops: list[Op]) -> list[Op]:
        """The ops where programs that would store nothing do nothing."""
        if not self.found.guards:
            return ops
        self.out = []
        zero, condition = self._emit("const", (), I64, value=0), None
        for bound in self.found.guards:
            test = self._emit("less", (zero, bound.emit(self._emit)), BOOL)
            condition = test if condition is None else self._emit("logical_and", (condition, test), BOOL)
        assert condition is not None
        regions = tuple([Block((), [*body, Op("yield", (), ())]) for body in (ops, [])])
        return [*self.out, Op("if", (condition,), (), {}, regions)]

    def _emit(self, name: str, operands: tuple[Value, ...], type: Type, **attrs: object) -> Value:
        op = Op(name, operands, (type,), attrs)
        self.out.append(op)
        return op.result

    def type(self, value: Value) -> Type:
        found = self.found
        extents = [found.names.get(found.root((value, k)), e) for k, e in enumerate(value.type.extents)]
        return Type(value.type.dtype, tuple(extents), value.type.pointer)

    def block(self, block: Block) -> Block:
        args = tuple([Value(self.type(a), None, a.name) for a in block.args])
        self.replaced.update(zip(block.args, args))
        return replace(super().block(block), args=args)

    def op(self, op: Op) -> None:
        if op.name == "where":
            tests = self.found.tests(op.operands[0])
            if tests and all(self.found.is_implied(op.result, k, bound) for k, bound in tests):
                self.replace(op, (self.operands(op)[1],))
                return
        super().op(op)

    def rebuilt(self, op: Op) -> Op:
        types = tuple([self.type(v) for v in op.results])
        operands, attrs = self.operands(op), op.attrs
        if "bounded" in attrs:
            operands, attrs = self._bounds(op, operands)
        same = not op.regions and operands == op.operands and types == tuple([v.type for v in op.results])
        if same:
            return op
        regions = tuple([self.block(r) for r in op.regions])
        made = Op(op.name, operands, types, attrs, regions, op.line)
        self.replace(op, made.results)
        return made

    def _bounds(self, op: Op, operands: Sequence[Value]) -> tuple[tuple[Value, ...], dict[str, object]]:
        """A view's operands and attributes without the bounds, if no element of its tile is behind one."""
        tile, first = (op.result, 2) if op.name == "load_view" else (op.operands[0], 3)
        rank = len(tile.type.extents)
        implied = [self.found.is_implied(tile, k, bound) for k, bound in enumerate(self.found.bounds(op))]
        if all(implied):
            attrs = {k: v for k, v in op.attrs.items() if k not in ("bounded", "other")}
            return tuple(operands[: first + rank]), attrs
        bounds = list(operands[first + rank :])
        for k, whole in enumerate(implied):
            if whole and tile.type.extents[k] == 1:
                bounds[k] = self._emit("const", (), I64, value=1)
        return (*operands[: first + rank], *bounds), op.attrs
