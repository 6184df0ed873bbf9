"""The verifier: what must hold of every kernel, between any two passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from . import dtypes, ops, printer
from .builder import constant, without
from .ir import BOOL, I64, STRUCTURAL, Block, Dim, GridAxis, Kernel, Op, Type, Value

_KERNEL_NAME = re.compile(r"[A-Za-z_][\w.]*")
_PARAM_NAME = re.compile(r"(?!\d+$)[\w.]+")

#: Attributes an op must have, and those that it may have.
_ATTRS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "const": (("value",), ()),
    "program_id": (("axis",), ()),
    "dim_start": (("dim",), ()),
    "dim_extent": (("dim",), ()),
    "broadcast": (("dims",), ()),
    "load_view": ((), ("bounded", "other")),
    "store_view": ((), ("bounded",)),
    "load_ptr": ((), ("other",)),
    "store_ptr": ((), ("combine",)),
    "check": (("message",), ()),
    "reduce": (("dims", "kind"), ()),
    "argreduce": (("dims", "kind"), ()),
    "scan": (("dim", "kind"), ("across",)),
    "dot": ((), ("precision",)),
}
#: Where an op takes a pointer.
_POINTER = {"load_view": 0, "load_ptr": 0, "store_view": 1, "store_ptr": 1}
#: Dtypes in which a product of narrow operands may accumulate, beside their own.
_WIDER = {"i8": "i32", "u8": "i32", **dict.fromkeys(dtypes.NARROW, "f32")}


class VerifyError(ValueError):
    """A kernel breaks a rule of the IR; the message names the op and its line of text."""


class _Broken(Exception):
    pass


def verify(kernel: Kernel) -> None:
    """Raise VerifyError unless the kernel keeps every rule of the IR."""
    _Verifier(kernel).run()


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise _Broken(message)


def _scalar(value: Value, what: str, type: Type = I64) -> None:
    _need(value.type == type, f"{what} is {value.type}, not {type}")


def _same(found: Any, wanted: Any, what: str) -> None:
    _need(found == wanted, f"{what} is {_show(found)}, not {_show(wanted)}")


def _show(x: Any) -> str:
    return f"({', '.join(map(str, x))})" if type(x) is tuple else str(x)


def _increasing(dims: Any, rank: int) -> None:
    whole = isinstance(dims, tuple) and all(type(d) is int for d in dims)
    _need(whole and list(dims) == sorted(set(dims)), f"dims are {dims!r}, not an increasing tuple")
    _need(not dims or (dims[0] >= 0 and dims[-1] < rank), f"dims {dims!r} are out of range for {rank} extents")


def _is_constant(value: Any, dtype: str, what: str) -> None:
    try:
        held = constant(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise _Broken(f"{what} is {value!r}, not a {dtype}") from None
    _need(type(value) is type(held) and repr(value) == repr(held), f"{what} is {value!r}, not a {dtype}")
    if dtype in dtypes.INTEGER:
        bits = 8 * dtypes.SIZE[dtype]
        low, high = (0, 2**bits) if dtype in dtypes.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        _need(low <= held < high, f"{what} is {value!r}, out of range for {dtype}")  # type: ignore[operator]


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in (str, int, float, bool, complex)


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.visible: set[Value] = set(kernel.params)
        self.seen: set[Op] = set()

    def run(self) -> None:
        try:
            self.signature()
        except _Broken as e:
            raise VerifyError(f"kernel @{self.kernel.name}: {e}") from None
        self.block(self.kernel.body, None)

    def fail(self, op: Op, message: str) -> NoReturn:
        line, text = printer.locate(self.kernel, op)
        raise VerifyError(f"kernel @{self.kernel.name}, line {line}: {text}: {message}")

    # -- the kernel ---------------------------------------------------------------------------------------------------
    def signature(self) -> None:
        kernel = self.kernel
        _need(_KERNEL_NAME.fullmatch(kernel.name) is not None, "its name is no identifier")
        names = [p.name for p in kernel.params]
        _need(len(set(names)) == len(names), "two parameters have one name")
        for p in kernel.params:
            _need(_PARAM_NAME.fullmatch(p.name) is not None, f"parameter name {p.name!r} is no identifier")
            _need(p.op is None and not p.type.extents, f"parameter %{p.name} is no scalar or pointer")
            _need(p.type.dtype in dtypes.NUMPY, f"parameter %{p.name} has unknown dtype {p.type.dtype}")
        for axis, (size, block) in enumerate(kernel.grid):
            self.size(size, f"grid axis {axis}")
            _need(type(block) is int and block >= 1, f"grid axis {axis} has block {block!r}")
        for name, dim in kernel.dims.items():
            self.dim(name, dim)
        for key, value in kernel.attrs.items():
            _need(key.isidentifier() and _is_plain(value), f"attribute {key}={value!r} is not plain")

    def size(self, size: Value, what: str) -> None:
        _need(size in self.visible and size.type == I64, f"the size of {what} is no i64 parameter")

    def dim(self, name: str, dim: Dim) -> None:
        _need(name.isidentifier(), f"dim name {name!r} is no identifier")
        self.size(dim.size, f"dim {name}")
        if dim.block is None:
            _need(dim.axis is None, f"dim {name} has an axis and no block")
            power = dim.bucket is None or (dim.bucket >= 1 and not dim.bucket & (dim.bucket - 1))
            _need(power, f"dim {name} has bucket {dim.bucket}, no power of two")
        else:
            _need(dim.bucket is None, f"dim {name} has a block and a bucket")
            grid = self.kernel.grid
            _need(type(dim.axis) is int and 0 <= dim.axis < len(grid), f"dim {name} has no axis of the grid")
            assert dim.axis is not None
            same = grid[dim.axis] == GridAxis(dim.size, dim.block)
            _need(same, f"dim {name} and grid axis {dim.axis} differ in size or block")

    # -- blocks -------------------------------------------------------------------------------------------------------
    def block(self, block: Block, owner: Op | None) -> None:
        """`owner` is the op of the region; None: the kernel's body."""
        before = set(self.visible) if owner is not None else self.visible
        self.visible.update(block.args)
        if owner is not None and (not block.ops or block.ops[-1].name != "yield"):
            self.fail(owner, "a region does not end with yield")
        for i, op in enumerate(block.ops):
            if op in self.seen:
                self.fail(op, "the op stands in the kernel twice")
            self.seen.add(op)
            if op.name == "yield":
                if owner is None or i + 1 != len(block.ops):
                    self.fail(op, "yield is not the last op of a region")
                found, wanted = _types(op.operands), _types(owner.results)
                if found != wanted:
                    self.fail(op, f"yields {_show(found)} to results {_show(wanted)}")
            try:
                self.op(op)
            except (_Broken, TypeError) as e:
                self.fail(op, str(e))
            for region in op.regions:
                self.block(region, op)
            self.visible.update(op.results)
        self.visible = before

    def op(self, op: Op) -> None:
        if op.name not in STRUCTURAL:
            row = ops.TABLE.get(op.name)
            _need(row is not None and row.kind == "elementwise", "no such op")
        pointer = _POINTER.get(op.name)
        for i, v in enumerate(op.operands):
            _need(v in self.visible, f"operand {i} is not defined here")
            if i != pointer:
                _need(not v.type.pointer, f"operand {i} is a pointer")
        if pointer is not None:
            _need(len(op.operands) > pointer + 1, "operands are missing")
            _need(op.operands[pointer].type.pointer, f"operand {pointer} is no pointer")
        required, optional = _ATTRS.get(op.name, ((), ()))
        for key in required:
            _need(key in op.attrs, f"attribute {key} is missing")
        for key in op.attrs:
            _need(key in required or key in optional, f"has no attribute {key}")
        _need(len(op.regions) == {"for": 1, "if": 2}.get(op.name, 0), f"has {len(op.regions)} regions")
        for v in op.results:
            _need(v.op is op, "a result belongs to another op")
            self.type(v.type)
        found, wanted = _types(op.results), self.result_types(op)
        _need(found == wanted, f"the result is {_show(found)}, not {_show(wanted)}")

    def type(self, type: Type) -> None:
        _need(not type.pointer, "the result is a pointer")
        _need(type.dtype in dtypes.NUMPY, f"unknown dtype {type.dtype}")
        for e in type.extents:
            known = e in self.kernel.dims if isinstance(e, str) else e >= 1
            _need(known, f"extent {e} is not a declared dim or a positive number")

    # -- the rule of each op ------------------------------------------------------------------------------------------
    def result_types(self, op: Op) -> tuple[Type, ...]:
        """Check the operands and attributes; the types that the results must have."""
        x = op.operands
        match op.name:
            case "const" | "iota" | "program_id" | "dim_start" | "dim_extent":
                _same(len(x), 0, "the number of operands")
                return (self.nullary(op),)
            case "cast":
                _same(len(x), 1, "the number of operands")
                return (Type(_given(op).dtype, x[0].type.extents),)
            case "broadcast":
                _same(len(x), 1, "the number of operands")
                extents = _given(op).extents
                _increasing(op.attrs["dims"], len(extents))
                _same(tuple([extents[d] for d in op.attrs["dims"]]), x[0].type.extents, "what dims pick")
                return (Type(x[0].type.dtype, extents),)
            case "load_view":
                tile = Type(x[0].type.dtype, _given(op).extents)
                self.window(op, x[1:], len(tile.extents))
                if "other" in op.attrs:
                    _need("bounded" in op.attrs, "has `other` and no bounds")
                    _is_constant(op.attrs["other"], tile.dtype, "other")
                return (tile,)
            case "store_view":
                self.window(op, x[2:], len(x[0].type.extents))
                _same(x[0].type.dtype, x[1].type.dtype, "the value's dtype")
                return ()
            case "load_ptr":
                tile = Type(x[0].type.dtype, x[1].type.extents)
                self.lanes(x[1], x[2:])
                if "other" in op.attrs:
                    _need(len(x) == 3, "has `other` and no mask")
                    _is_constant(op.attrs["other"], tile.dtype, "other")
                return (tile,)
            case "store_ptr":
                _need(len(x) >= 3, "operands are missing")
                self.lanes(x[2], x[3:])
                _same(x[0].type, Type(x[1].type.dtype, x[2].type.extents), "the value")
                combine = op.attrs.get("combine", "add")
                _need(combine in ("add", "maximum"), f"combine is {combine!r}")
                return ()
            case "check":
                _same(len(x), 1, "the number of operands")
                _same(x[0].type.dtype, "bool", "the condition's dtype")
                _need(type(op.attrs["message"]) is str, "message is no string")
                return ()
            case "reduce" | "argreduce" | "scan":
                return (self.across(op),)
            case "dot":
                return (self.dot(op),)
            case "for":
                _need(len(x) >= 3, "operands are missing")
                for v, what in zip(x, ("lower", "upper", "step")):
                    _scalar(v, what)
                carried = _types(x[3:])
                _same(_types(op.regions[0].args), (I64, *carried), "what the region takes")
                return carried
            case "if":
                _same(len(x), 1, "the number of operands")
                _scalar(x[0], "the condition", BOOL)
                _need(not op.regions[0].args and not op.regions[1].args, "its regions take arguments")
                return _types(op.results)
            case "yield":
                return ()
            case name:
                _same(len(x), ops.TABLE[name].arity, "the number of operands")
                for v in x:
                    _same(v.type.extents, x[0].type.extents, "an operand's extents")
                return (Type(ops.result_dtype(name, *[v.type.dtype for v in x]), x[0].type.extents),)

    def nullary(self, op: Op) -> Type:
        match op.name:
            case "const":
                scalar = Type(_given(op).dtype)
                _is_constant(op.attrs["value"], scalar.dtype, "value")
                return scalar
            case "iota":
                extents = _given(op).extents
                _same(len(extents), 1, "the number of extents")
                return Type("i64", extents)
            case "program_id":
                axis = op.attrs["axis"]
                _need(type(axis) is int and 0 <= axis < len(self.kernel.grid), f"the grid has no axis {axis!r}")
            case _:
                _need(op.attrs["dim"] in self.kernel.dims, f"no dim {op.attrs['dim']!r}")
        return I64

    def window(self, op: Op, x: Sequence[Value], rank: int) -> None:
        bounded = op.attrs.get("bounded", False)
        _need(type(bounded) is bool, f"bounded is {bounded!r}")
        _same(len(x), 1 + rank * (2 if bounded else 1), "the number of offset, strides and bounds")
        for v in x:
            _scalar(v, "an offset, stride or bound")

    def lanes(self, index: Value, mask: Sequence[Value]) -> None:
        _same(index.type.dtype, "i64", "the index's dtype")
        _need(len(mask) <= 1, "operands are left over")
        for v in mask:
            _same(v.type, Type("bool", index.type.extents), "the mask")

    def across(self, op: Op) -> Type:
        x, kind = op.operands, op.attrs["kind"]
        row = ops.TABLE.get(kind)
        most = 1 if op.name == "reduce" else 2
        _need(1 <= len(x) <= most, "the number of operands is wrong")
        dtype, extents = x[0].type.dtype, x[0].type.extents
        if op.name == "scan":
            dim = op.attrs["dim"]
            _need(row is not None and row.kind == "scan", f"no scan {kind!r}")
            _need(type(dim) is int and 0 <= dim < len(extents), f"no extent {dim!r}")
            for carry in x[1:]:
                _same(carry.type, Type(dtype, without(extents, (dim,))), "the carry")
            if op.attrs.get("across"):
                extent = extents[dim]
                blocked = isinstance(extent, str) and self.kernel.dims[extent].block is not None
                _need(
                    blocked and len(x) == 1,
                    "a scan goes on across programs along a blocked dim only, and without a carry",
                )
            return x[0].type
        _need(row is not None and row.kind == "reduction", f"no reduction {kind!r}")
        _need((kind in ("argmax", "argmin")) == (op.name == "argreduce"), f"no {op.name} {kind!r}")
        _increasing(op.attrs["dims"], len(extents))
        _need(op.attrs["dims"] != (), "no dims")
        if op.name == "argreduce":
            _same(len(x), 2, "the number of operands")
            _same(x[1].type, Type("i64", extents), "the index")
            return Type("i64", without(extents, op.attrs["dims"]))
        _need(kind not in ("any", "all") or dtype == "bool", f"{kind} of {dtype}")
        _need(kind not in ("sum", "prod") or dtype != "bool", f"{kind} of {dtype}")
        return Type(dtype, without(extents, op.attrs["dims"]))

    def dot(self, op: Op) -> Type:
        x = op.operands
        _need(2 <= len(x) <= 3, "the number of operands is wrong")
        a, b = x[0].type, x[1].type
        _need(len(a.extents) == len(b.extents) == 2, f"{a} and {b} are no matrices")
        if not ({a.dtype, b.dtype} <= dtypes.FLOAT8 or {a.dtype, b.dtype} <= {"i8", "u8"}):
            _same(a.dtype, b.dtype, "the first operand's dtype")
        _same(a.extents[1], b.extents[0], "the first operand's last extent")
        dtype = _given(op).dtype
        _need(dtype in (a.dtype, _WIDER.get(a.dtype)), f"{a.dtype} products accumulate in {dtype}")
        tile = Type(dtype, (a.extents[0], b.extents[1]))
        if "precision" in op.attrs:
            _need(op.attrs["precision"] == "tf32" and a.dtype == "f32", "the precision is wrong")
        if len(x) == 3:
            _same(x[2].type, tile, "the accumulator")
        return tile


def _types(values: Sequence[Value]) -> tuple[Type, ...]:
    return tuple([v.type for v in values])


def _given(op: Op) -> Type:
    """The type of the one result of an op whose operands do not determine it."""
    _same(len(op.results), 1, "the number of results")
    return op.results[0].type
