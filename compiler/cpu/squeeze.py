"""Kernels written by hand, as the loop nests take them: without extents of 1, hints, and scans that go backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes, ops
from ..ir import BOOL, I64, Block, Kernel, Op, Type, Value
from ..passes.rewrite import Rewriter

_DROPPED = frozenset(("assume",))


def squeeze(kernel: Kernel) -> Kernel:
    """A kernel of the same effects whose tiles have no extents of 1.

    What an op says of such an extent is dropped, or becomes a condition; a gather may have an index without the extent
    along which it gathers, and a print says in `extents` what its operands' extents were.  Products of which an extent
    is 1 become reductions.
    """
    return _Squeezer().kernel(kernel)


def squeezed(type: Type) -> Type:
    return Type(type.dtype, tuple([e for e in type.extents if e != 1]), type.pointer)


class _Squeezer(Rewriter):
    # -- making ops ---------------------------------------------------------------------------------------------------
    def emit(self, name: str, operands: Sequence[Value], type: Type, **attrs: Any) -> Value:
        op = Op(name, tuple(operands), (type,), attrs)
        self.out.append(op)
        return op.result

    def number(self, value: int, dtype: str = "i64") -> Value:
        return self.emit("const", (), Type(dtype), value=value)

    def spread(self, x: Value, dims: Sequence[int], extents: tuple[int | str, ...]) -> Value:
        if x.type.extents == extents:
            return x
        return self.emit("broadcast", (x,), Type(x.type.dtype, extents), dims=tuple(dims))

    # -- walking ------------------------------------------------------------------------------------------------------
    def block(self, block: Block) -> Block:
        args = tuple([Value(squeezed(a.type), None, a.name) for a in block.args])
        self.replaced.update(zip(block.args, args, strict=True))
        outer, self.out = self.out, []
        for op in block.ops:
            self.op(op)
        made, self.out = Block(args, self.out), outer
        return made

    def op(self, op: Op) -> None:
        if op.name in _DROPPED:
            return
        x = self.operands(op)
        handler = getattr(self, "_" + op.name, None)
        found = handler(op, x) if handler is not None else None
        if found is None:
            found = self.same(op, x, op.attrs)
        self.replace(op, found)

    def same(self, op: Op, x: Sequence[Value], attrs: dict[str, Any]) -> tuple[Value, ...]:
        """The op itself on what became of its operands."""
        types = tuple([squeezed(v.type) for v in op.results])
        regions = tuple([self.block(r) for r in op.regions])
        made = Op(op.name, tuple(x), types, attrs, regions, op.line)
        self.out.append(made)
        return made.results

    # -- the ops that speak of extents; None: as it is ----------------------------------------------------------------
    def _iota(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        return (self.number(0),) if op.result.type.extents == (1,) else None

    def _hint(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        return (x[0],)

    def _inline_asm(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        raise NotImplementedError("inline_asm_elementwise holds instructions of a GPU, and no CPU's")

    def _broadcast(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        given, extents = op.operands[0].type.extents, op.result.type.extents
        dims = [_place(extents, d) for d, e in zip(op.attrs["dims"], given, strict=True) if e != 1]
        return (self.spread(x[0], dims, squeezed(op.result.type).extents),)

    def _trans(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        given = op.operands[0].type.extents
        perm = tuple([_place(given, k) for k in op.attrs["perm"] if given[k] != 1])
        return (x[0],) if perm == tuple(sorted(perm)) else self.same(op, x, {"perm": perm})

    def _reshape(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        return (x[0],) if squeezed(op.result.type) == x[0].type else None

    def _load_view(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        extents = op.result.type.extents
        if 1 not in extents:
            return None
        strides, bounds, guard = self.window(extents, x[2:])
        if guard is not None and not strides:
            other = op.attrs["other"]
            return (self.emit("load_ptr", (x[0], x[1], guard), squeezed(op.result.type), other=other),)
        attrs = op.attrs if bounds else {}
        return (self.emit("load_view", (*x[:2], *strides, *bounds), squeezed(op.result.type), **attrs),)

    def _store_view(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        extents = op.operands[0].type.extents
        if 1 not in extents:
            return None
        strides, bounds, guard = self.window(extents, x[3:])
        if guard is not None and not strides:
            self.out.append(Op("store_ptr", (*x[:3], guard), (), {}))
        else:
            self.out.append(Op("store_view", (*x[:3], *strides, *bounds), (), op.attrs if bounds else {}))
        return ()

    def window(
        self, extents: tuple[int | str, ...], x: Sequence[Value]
    ) -> tuple[list[Value], list[Value], Value | None]:
        """Strides and bounds of the extents above 1, and, if none is left, the condition that the bounds were."""
        rank = len(extents)
        left = [k for k, e in enumerate(extents) if e != 1]
        strides = [x[k] for k in left]
        bounds = [x[rank + k] for k in left] if len(x) > rank else []
        guard: Value | None = None
        for k in range(rank):
            if extents[k] == 1 and len(x) > rank and not _is_positive(x[rank + k]):
                inside = self.emit("less", (self.number(0), x[rank + k]), BOOL)
                guard = inside if guard is None else self.emit("logical_and", (guard, inside), BOOL)
        if guard is not None and bounds:
            bounds[0] = self.emit("where", (guard, bounds[0], self.number(0)), I64)
        return strides, bounds, guard

    def _reduce(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        given = op.operands[0].type.extents
        dims = tuple([_place(given, d) for d in op.attrs["dims"] if given[d] != 1])
        return self.same(op, x, op.attrs | {"dims": dims}) if dims else (x[-1],)

    _argreduce = _reduce

    def _reduce_by(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        return self.along(op, x, op.attrs["dims"][0])

    def _scan_by(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        return self.along(op, x, op.attrs["dim"])

    _flip = _sort = _scan_by

    def along(self, op: Op, x: Sequence[Value], dim: int) -> tuple[Value, ...]:
        """An op along one extent, which does nothing if that is 1."""
        given = op.operands[0].type.extents
        if given[dim] == 1:
            return tuple(x)
        place = _place(given, dim)
        attrs = {"dims": (place,)} if op.name == "reduce_by" else op.attrs | {"dim": place}
        return self.same(op, x, attrs)

    def _scan(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        given, dim = op.operands[0].type.extents, op.attrs["dim"]
        if given[dim] == 1:
            combine = ops.TABLE[op.attrs["kind"]].combine
            assert combine is not None
            return (self.emit(combine, (x[1], x[0]), x[0].type) if len(x) > 1 else x[0],)
        place = _place(given, dim)
        attrs = {k: v for k, v in op.attrs.items() if k != "reverse"} | {"dim": place}
        if not op.attrs.get("reverse"):
            return self.same(op, x, attrs)
        backwards = self.emit("flip", (x[0],), x[0].type, dim=place)
        (found,) = self.same(op, (backwards, *x[1:]), attrs)
        return (self.emit("flip", (found,), found.type, dim=place),)

    def _cat(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        given, dim = op.operands[0].type.extents, op.attrs["dim"]
        place = _place(given, dim)
        if given[dim] != 1:
            return self.same(op, x, {"dim": place})
        type = Type(x[0].type.dtype, (*x[0].type.extents, 2))
        joined = self.emit("join", x, type)
        perm = list(range(len(type.extents) - 1))
        perm.insert(place, len(perm))
        return (joined,) if perm == sorted(perm) else self.same(op_named("trans", op), (joined,), {"perm": tuple(perm)})

    def _gather(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        source, index = (v.type.extents for v in op.operands)
        dim = op.attrs["dim"]
        if source[dim] == 1:
            dims = [_place(index, k) for k, e in enumerate(source) if e != 1]
            return (self.spread(x[0], dims, squeezed(op.result.type).extents),)
        return self.same(op, x, {"dim": _place(source, dim)})

    def _histogram(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        if op.result.type.extents != (1,):
            return None
        zero = self.spread(self.number(0, x[0].type.dtype), (), x[0].type.extents)
        bools = Type("bool", x[0].type.extents)
        found = self.emit("equal", (x[0], zero), bools)
        if len(x) > 1:
            found = self.emit("logical_and", (found, x[1]), bools)
        counts = self.emit("cast", (found,), Type("i32", bools.extents))
        dims = tuple(range(len(bools.extents)))
        return (self.emit("reduce", (counts,), Type("i32"), kind="sum", dims=dims) if dims else counts,)

    def _print(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...]:
        return self.same(op, x, op.attrs | {"extents": tuple([v.type.extents for v in op.operands])})

    def _dot(self, op: Op, x: Sequence[Value]) -> tuple[Value, ...] | None:
        a, b = (v.type for v in op.operands[:2])
        matrix = (*a.extents[-2:], b.extents[-1])
        if 1 not in matrix:
            return None
        out = op.result.type
        wide = "f32" if out.dtype in dtypes.NARROW else out.dtype
        # Positions in (batch..., M, N, K), without those of 1.
        rank = len(a.extents)
        whole = (*a.extents[:-1], b.extents[-1], a.extents[-1])
        first, second = (*range(rank - 1), rank), (*range(rank - 2), rank, rank - 1)
        full = Type(wide, squeezed(Type(wide, whole)).extents)
        factors = []
        for v, given, dims in ((x[0], a, first), (x[1], b, second)):
            cast = v if v.type.dtype == wide else self.emit("cast", (v,), Type(wide, v.type.extents))
            kept = [_place(whole, d) for d, e in zip(dims, given.extents, strict=True) if e != 1]
            if kept != sorted(kept):
                order = sorted(range(len(kept)), key=kept.__getitem__)
                turned = Type(wide, tuple([cast.type.extents[k] for k in order]))
                cast, kept = self.emit("trans", (cast,), turned, perm=tuple(order)), sorted(kept)
            factors.append(self.spread(cast, kept, full.extents))
        product = self.emit("multiply", factors, full)
        if a.extents[-1] != 1:
            sums = Type(wide, full.extents[:-1])
            product = self.emit("reduce", (product,), sums, kind="sum", dims=(len(full.extents) - 1,))
        if len(x) > 2:
            acc = x[2] if x[2].type.dtype == wide else self.emit("cast", (x[2],), Type(wide, x[2].type.extents))
            product = self.emit("add", (product, acc), product.type)
        return (product if wide == out.dtype else self.emit("cast", (product,), squeezed(out)),)


def op_named(name: str, op: Op) -> Op:
    """An op of another name with the same results."""
    return Op(name, op.operands, tuple([v.type for v in op.results]), {}, (), op.line)


def _place(extents: tuple[int | str, ...], k: int) -> int:
    """Where extent k is among those that are not 1."""
    return sum(e != 1 for e in extents[:k])


def _is_positive(x: Value) -> bool:
    return x.op is not None and x.op.name == "const" and x.op.attrs["value"] > 0
