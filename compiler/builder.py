"""The builder, by which all kernels are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import dtypes, ops
from .ir import I64, Block, Dim, GridAxis, Kernel, Op, Type, Value

Extents = tuple[int | str, ...]

_FOLDED = frozenset(("add", "multiply"))


def constant(value: Any, dtype: str) -> bool | int | float | complex:
    """`value` as the plain Python value that a `const` of dtype holds, rounded to the dtype."""
    if dtype in dtypes.INTEGER:
        return int(value)
    if dtype == "bool":
        return bool(value)
    if dtype == "f64":
        return float(value)
    with np.errstate(over="ignore"):
        rounded = dtypes.NUMPY[dtype].type(value)
    return complex(rounded) if dtype in dtypes.COMPLEX else float(rounded)


class Loop:
    """A `for` under construction: `index` and the `carried` values inside; `results` after."""

    __slots__ = ("index", "carried", "results")

    def __init__(self, index: Value, carried: tuple[Value, ...]) -> None:
        self.index = index
        self.carried = carried
        self.results: tuple[Value, ...] = ()


class Branch:
    """An `if` whose first region is built; `results` are its results, `else_` builds the second region."""

    __slots__ = ("_builder", "_op", "results")

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._op: Op | None = None
        self.results: tuple[Value, ...] = ()

    @contextmanager
    def else_(self) -> Iterator[None]:
        op = self._op
        assert op is not None, "else_ comes after the with of the if"
        op.regions[1].ops.clear()
        with self._builder._region(op.regions[1]):
            yield


class While:
    """A `while` under construction: `carried` in its first region, `values` in `body`; `results` after."""

    __slots__ = ("_builder", "_op", "carried", "values", "results")

    def __init__(self, builder: Builder, carried: tuple[Value, ...]) -> None:
        self._builder = builder
        self._op: Op | None = None
        self.carried = carried
        self.values: tuple[Value, ...] = ()
        self.results: tuple[Value, ...] = ()

    @contextmanager
    def body(self) -> Iterator[None]:
        """What runs while the condition holds; it ends with `yield_` of the next carried values."""
        assert self._op is not None, "body comes after the with of the while"
        with self._builder._region(self._op.regions[1]):
            yield


class Combine:
    """The region of a reduction or a scan: it joins the scalars `left` and `right`; `results` after."""

    __slots__ = ("left", "right", "results")

    def __init__(self, left: tuple[Value, ...], right: tuple[Value, ...]) -> None:
        self.left = left
        self.right = right
        self.results: tuple[Value, ...] = ()


class Builder:
    """Appends ops to the innermost open block of a kernel.

    Constants are shared, and scalar i64 sums and products with constants are folded.  `line` goes to the ops made
    while it is set.
    """

    __slots__ = ("name", "line", "attrs", "_params", "_grid", "_dims", "_body", "_ops", "_consts", "_scopes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: Any = None
        self.attrs: dict[str, Any] = {}
        self._params: list[Value] = []
        self._grid: list[GridAxis] = []
        self._dims: dict[str, Dim] = {}
        self._body = Block()
        self._ops = self._body.ops
        self._consts: dict[Any, Value] = {}
        self._scopes: list[dict[Any, Value]] = []

    # -- the kernel ---------------------------------------------------------------------------------------------------
    def param(self, name: str, type: Type) -> Value:
        value = Value(type, None, name)
        self._params.append(value)
        return value

    def grid_axis(self, size: Value, block: int = 1) -> int:
        """Add an axis of ceil(size / block) programs; its number."""
        self._grid.append(GridAxis(size, block))
        return len(self._grid) - 1

    def dim(
        self, name: str, size: Value, block: int | None = None, axis: int | None = None, bucket: int | None = None
    ) -> str:
        """Declare a named extent; its name."""
        self._dims[name] = Dim(size, block, axis, bucket)
        return name

    def finish(self) -> Kernel:
        return Kernel(self.name, tuple(self._params), tuple(self._grid), self._dims, self._body, self.attrs)

    # -- making ops ---------------------------------------------------------------------------------------------------
    def _emit(self, name: str, operands: tuple[Value, ...], type: Type, attrs: dict[str, Any] | None = None) -> Value:
        op = Op(name, operands, (type,), attrs, (), self.line)
        self._ops.append(op)
        return op.results[0]

    def _effect(self, name: str, operands: tuple[Value, ...], attrs: dict[str, Any] | None = None) -> None:
        self._ops.append(Op(name, operands, (), attrs, (), self.line))

    def op(self, name: str, *operands: Value, dtype: str | None = None, exact: bool = False) -> Value:
        """An elementwise op of the table; the operands have equal extents.

        Kernels written by hand say which quotients and roots of floats must be rounded correctly: those that are
        `exact`.
        """
        first = operands[0].type
        extents = first.extents
        if first == I64 and name in _FOLDED:
            folded = self._fold(name, *operands)
            if folded is not None:
                return folded
        for x in operands:
            if x.type.extents != extents:
                raise ValueError(f"{name}: extents differ: {', '.join(str(v.type) for v in operands)}")
        if dtype is None:
            dtype = ops.result_dtype(name, *[x.type.dtype for x in operands])
        return self._emit(name, operands, Type(dtype, extents), {"exact": True} if exact else None)

    def _fold(self, name: str, a: Value, b: Value) -> Value | None:
        """a + b and a * b of i64 scalars where one is a constant that makes the op needless."""
        x = a.op.attrs["value"] if a.op is not None and a.op.name == "const" else None
        y = b.op.attrs["value"] if b.op is not None and b.op.name == "const" and b.type == I64 else None
        if x is None and y is None:
            return None
        if x is not None and y is not None:
            value = x + y if name == "add" else x * y
            return self.const(value) if -(2**63) <= value < 2**63 else None
        if b.type != I64:
            return None
        neutral = 0 if name == "add" else 1
        if x == neutral:
            return b
        if y == neutral:
            return a
        if neutral and (x == 0 or y == 0):
            return a if x == 0 else b
        return None

    # -- scalars and positions ----------------------------------------------------------------------------------------
    def const(self, value: Any, dtype: str = "i64") -> Value:
        if dtype != "i64" or type(value) is not int:
            value = constant(value, dtype)
        key = (dtype, value if type(value) is int else repr(value))
        found = self._consts.get(key)
        if found is None:
            for scope in self._scopes:
                if key in scope:
                    return scope[key]
            found = self._consts[key] = self._emit("const", (), Type(dtype), {"value": value})
        return found

    def program_id(self, axis: int) -> Value:
        return self._emit("program_id", (), I64, {"axis": axis})

    def dim_start(self, dim: str) -> Value:
        return self._emit("dim_start", (), I64, {"dim": dim})

    def dim_extent(self, dim: str) -> Value:
        return self._emit("dim_extent", (), I64, {"dim": dim})

    def iota(self, extent: int | str) -> Value:
        return self._emit("iota", (), Type("i64", (extent,)))

    # -- shapes and types ---------------------------------------------------------------------------------------------
    def cast(self, x: Value, dtype: str) -> Value:
        return x if x.type.dtype == dtype else self._emit("cast", (x,), Type(dtype, x.type.extents))

    def bitcast(self, x: Value, dtype: str) -> Value:
        return x if x.type.dtype == dtype else self._emit("bitcast", (x,), Type(dtype, x.type.extents))

    def broadcast(self, x: Value, dims: Sequence[int], extents: Sequence[int | str]) -> Value:
        """x as a tile of `extents`, where extent k of x is extent dims[k] of the tile."""
        extents = tuple(extents)
        if x.type.extents == extents:
            return x
        return self._emit("broadcast", (x,), Type(x.type.dtype, extents), {"dims": tuple(dims)})

    def reshape(self, x: Value, extents: Sequence[int]) -> Value:
        extents = tuple(extents)
        return x if x.type.extents == extents else self._emit("reshape", (x,), Type(x.type.dtype, extents))

    def trans(self, x: Value, perm: Sequence[int]) -> Value:
        """Extent k of the result is x's extent perm[k]."""
        type = Type(x.type.dtype, tuple([x.type.extents[k] for k in perm]))
        return self._emit("trans", (x,), type, {"perm": tuple(perm)})

    def join(self, a: Value, b: Value) -> Value:
        return self._emit("join", (a, b), Type(a.type.dtype, (*a.type.extents, 2)))

    def split(self, x: Value) -> tuple[Value, Value]:
        """x[..., 0] and x[..., 1]."""
        half = Type(x.type.dtype, x.type.extents[:-1])
        op = Op("split", (x,), (half, half), None, (), self.line)
        self._ops.append(op)
        first, second = op.results
        return first, second

    def cat(self, a: Value, b: Value, dim: int) -> Value:
        extents = list(a.type.extents)
        extents[dim] *= 2
        return self._emit("cat", (a, b), Type(a.type.dtype, tuple(extents)), {"dim": dim})

    def gather(self, x: Value, index: Value, dim: int) -> Value:
        return self._emit("gather", (x, index), Type(x.type.dtype, index.type.extents), {"dim": dim})

    def flip(self, x: Value, dim: int) -> Value:
        return self._emit("flip", (x,), x.type, {"dim": dim})

    def sort(self, x: Value, dim: int, descending: bool = False) -> Value:
        return self._emit("sort", (x,), x.type, {"dim": dim, "descending": descending})

    def histogram(self, x: Value, bins: int, mask: Value | None = None) -> Value:
        return self._emit("histogram", (x,) if mask is None else (x, mask), Type("i32", (bins,)))

    def hint(
        self,
        x: Value,
        multiple: Sequence[int] | None = None,
        contiguous: Sequence[int] | None = None,
        constancy: Sequence[int] | None = None,
    ) -> Value:
        given = {"multiple": multiple, "contiguous": contiguous, "constancy": constancy}
        return self._emit("hint", (x,), x.type, {k: tuple(v) for k, v in given.items() if v is not None})

    def inline_asm(
        self, text: str, constraints: str, xs: Sequence[Value], types: Sequence[Type], pack: int, volatile: bool
    ) -> tuple[Value, ...]:
        attrs: dict[str, Any] = {"text": text, "constraints": constraints, "pack": pack}
        if volatile:
            attrs["volatile"] = True
        op = Op("inline_asm", tuple(xs), tuple(types), attrs, (), self.line)
        self._ops.append(op)
        return op.results

    # -- memory -------------------------------------------------------------------------------------------------------
    def load_view(
        self,
        ptr: Value,
        offset: Value,
        strides: Sequence[Value],
        extents: Sequence[int | str],
        bounds: Sequence[Value] | None = None,
        other: Any = None,
    ) -> Value:
        type = Type(ptr.type.dtype, tuple(extents))
        if bounds is None:
            return self._emit("load_view", (ptr, offset, *strides), type)
        attrs = {"bounded": True, "other": constant(other or 0, type.dtype)}
        return self._emit("load_view", (ptr, offset, *strides, *bounds), type, attrs)

    def store_view(
        self, value: Value, ptr: Value, offset: Value, strides: Sequence[Value], bounds: Sequence[Value] | None = None
    ) -> None:
        if bounds is None:
            self._effect("store_view", (value, ptr, offset, *strides))
        else:
            self._effect("store_view", (value, ptr, offset, *strides, *bounds), {"bounded": True})

    def load_ptr(
        self,
        ptr: Value,
        index: Value,
        mask: Value | None = None,
        other: Any = None,
        cache: str | None = None,
        evict: str | None = None,
        volatile: bool = False,
    ) -> Value:
        type = Type(ptr.type.dtype, index.type.extents)
        attrs = _given(cache=cache, evict=evict, volatile=volatile or None)
        if mask is None:
            return self._emit("load_ptr", (ptr, index), type, attrs)
        attrs["other"] = constant(other or 0, type.dtype)
        return self._emit("load_ptr", (ptr, index, mask), type, attrs)

    def store_ptr(
        self,
        value: Value,
        ptr: Value,
        index: Value,
        mask: Value | None = None,
        combine: str | None = None,
        cache: str | None = None,
        evict: str | None = None,
    ) -> None:
        operands = (value, ptr, index) if mask is None else (value, ptr, index, mask)
        self._effect("store_ptr", operands, _given(combine=combine, cache=cache, evict=evict))

    def atomic(
        self,
        kind: str,
        ptr: Value,
        index: Value,
        value: Value,
        mask: Value | None = None,
        compare: Value | None = None,
        order: str = "acq_rel",
        scope: str = "gpu",
    ) -> Value:
        """What ptr[index] was before it was joined with `value`; with kind "cas", replaced where it was `compare`."""
        operands = (value, ptr, index) if compare is None else (compare, value, ptr, index)
        attrs = {"kind": kind, "order": order, "scope": scope, "masked": mask is not None}
        return self._emit("atomic", operands if mask is None else (*operands, mask), value.type, attrs)

    def int_to_ptr(self, address: Value, dtype: str) -> Value:
        return self._emit("int_to_ptr", (address,), Type(dtype, pointer=True))

    def ptr_to_int(self, ptr: Value) -> Value:
        return self._emit("ptr_to_int", (ptr,), I64)

    # -- what only shows ----------------------------------------------------------------------------------------------
    def check(self, ok: Value, message: str, mask: Value | None = None) -> None:
        self._effect("check", (ok,) if mask is None else (ok, mask), {"message": message})

    def assume(self, ok: Value) -> None:
        self._effect("assume", (ok,))

    def print(self, values: Sequence[Value], prefix: str = "", hex: bool = False) -> None:
        self._effect("print", tuple(values), {"prefix": prefix, "hex": hex})

    def barrier(self) -> None:
        self._effect("barrier", ())

    # -- across lanes -------------------------------------------------------------------------------------------------
    def reduce(self, x: Value, kind: str, dims: Sequence[int]) -> Value:
        return self._emit("reduce", (x,), Type(x.type.dtype, without(x.type.extents, dims)), _across(kind, dims))

    def argreduce(self, x: Value, index: Value, kind: str, dims: Sequence[int]) -> Value:
        """The `index` of the winner among x's lanes along `dims`."""
        return self._emit("argreduce", (x, index), Type("i64", without(x.type.extents, dims)), _across(kind, dims))

    def scan(
        self,
        x: Value,
        kind: str,
        dim: int,
        carry: Value | None = None,
        across: bool = False,
        reverse: bool = False,
    ) -> Value:
        operands = (x,) if carry is None else (x, carry)
        attrs = {"kind": kind, "dim": dim, **_given(across=across or None, reverse=reverse or None)}
        return self._emit("scan", operands, x.type, attrs)

    @contextmanager
    def reduce_by(self, xs: Sequence[Value], dim: int) -> Iterator[Combine]:
        """Reduce tiles of equal extents together; the region ends with `yield_` of the joined scalars."""
        types = [Type(x.type.dtype, without(x.type.extents, (dim,))) for x in xs]
        with self._combine("reduce_by", xs, types, {"dims": (dim,)}) as combine:
            yield combine

    @contextmanager
    def scan_by(self, xs: Sequence[Value], dim: int, reverse: bool = False) -> Iterator[Combine]:
        """Inclusive scans of tiles of equal extents together, by a region as `reduce_by`'s."""
        with self._combine("scan_by", xs, [x.type for x in xs], {"dim": dim, "reverse": reverse}) as combine:
            yield combine

    @contextmanager
    def _combine(
        self, name: str, xs: Sequence[Value], types: Sequence[Type], attrs: dict[str, Any]
    ) -> Iterator[Combine]:
        block = Block(tuple([Value(Type(x.type.dtype)) for x in (*xs, *xs)]))
        combine = Combine(block.args[: len(xs)], block.args[len(xs) :])
        with self._region(block):
            yield combine
        op = Op(name, tuple(xs), tuple(types), attrs, (block,), self.line)
        self._ops.append(op)
        combine.results = op.results

    def dot(
        self,
        a: Value,
        b: Value,
        acc: Value | None = None,
        dtype: str | None = None,
        precision: str | None = None,
        max_num_imprecise: int | None = None,
    ) -> Value:
        """a @ b, plus acc; the result has acc's dtype, else `dtype`, else a's.

        A `precision` of "tf32" allows a target to multiply floats of 32 bits with mantissas of 10 bits.
        """
        type = Type(acc.type.dtype if acc else dtype or a.type.dtype, (*a.type.extents[:-1], b.type.extents[-1]))
        attrs = _given(precision=precision, max_num_imprecise=max_num_imprecise)
        return self._emit("dot", (a, b) if acc is None else (a, b, acc), type, attrs)

    # -- regions ------------------------------------------------------------------------------------------------------
    @contextmanager
    def _region(self, block: Block) -> Iterator[None]:
        ops, consts = self._ops, self._consts
        self._scopes.append(consts)
        self._ops, self._consts = block.ops, {}
        try:
            yield
            if not block.ops or block.ops[-1].name != "yield":
                self.yield_()
        finally:
            self._scopes.pop()
            self._ops, self._consts = ops, consts

    @contextmanager
    def for_(
        self, lower: Value, upper: Value, step: Value, inits: Sequence[Value] = (), **hints: int | bool
    ) -> Iterator[Loop]:
        """A loop over [lower, upper); its body ends with `yield_` of the next carried values."""
        block = Block((Value(lower.type), *[Value(v.type) for v in inits]))
        loop = Loop(block.args[0], block.args[1:])
        with self._region(block):
            yield loop
        op = Op("for", (lower, upper, step, *inits), tuple([v.type for v in inits]), hints, (block,), self.line)
        self._ops.append(op)
        loop.results = op.results

    @contextmanager
    def while_(self, inits: Sequence[Value]) -> Iterator[While]:
        """A loop whose first region ends with `yield_` of its condition and values; `While.body` follows it."""
        first = Block(tuple([Value(v.type) for v in inits]))
        loop = While(self, first.args)
        with self._region(first):
            yield loop
        types = tuple([v.type for v in first.ops[-1].operands[1:]])
        second = Block(tuple([Value(t) for t in types]))
        loop._op = Op("while", tuple(inits), types, None, (first, second), self.line)
        loop.values, loop.results = second.args, loop._op.results
        self._ops.append(loop._op)

    @contextmanager
    def if_(self, condition: Value) -> Iterator[Branch]:
        """The region that runs where the scalar `condition` holds; `Branch.else_` follows it where it has results."""
        then, branch = Block(), Branch(self)
        with self._region(then):
            yield branch
        types = tuple([v.type for v in then.ops[-1].operands])
        otherwise = Block()
        if not types:
            otherwise.ops.append(Op("yield", (), (), None, (), self.line))
        branch._op = Op("if", (condition,), types, None, (then, otherwise), self.line)
        branch.results = branch._op.results
        self._ops.append(branch._op)

    def yield_(self, *values: Value) -> None:
        self._effect("yield", values)


def without(extents: Extents, dims: Sequence[int]) -> Extents:
    return tuple([e for k, e in enumerate(extents) if k not in dims])


def _given(**attrs: Any) -> dict[str, Any]:
    return {key: value for key, value in attrs.items() if value is not None}


def _across(kind: str, dims: Sequence[int]) -> dict[str, Any]:
    return {"dims": tuple(dims), "kind": kind}
