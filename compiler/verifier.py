"""The verifier: what must hold of every kernel, between any two passes."""

from __future__ import annotations

import math
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
    "divide": ((), ("exact",)),
    "sqrt": ((), ("exact",)),
    "const": (("value",), ()),
    "program_id": (("axis",), ()),
    "dim_start": (("dim",), ()),
    "dim_extent": (("dim",), ()),
    "broadcast": (("dims",), ()),
    "load_view": ((), ("bounded", "other", "cache", "evict")),
    "store_view": ((), ("bounded", "cache", "evict")),
    "load_ptr": ((), ("other", "cache", "evict", "volatile")),
    "store_ptr": ((), ("combine", "cache", "evict")),
    "atomic": (("kind", "order", "scope"), ("masked",)),
    "check": (("message",), ()),
    "print": (("prefix", "hex"), ()),
    "inline_asm": (("text", "constraints", "pack"), ("volatile",)),
    "hint": ((), ("multiple", "contiguous", "constancy")),
    "trans": (("perm",), ()),
    "cat": (("dim",), ()),
    "gather": (("dim",), ()),
    "flip": (("dim",), ()),
    "sort": (("dim", "descending"), ()),
    "reduce": (("dims", "kind"), ()),
    "argreduce": (("dims", "kind"), ()),
    "reduce_by": (("dims",), ()),
    "scan": (("dim", "kind"), ("across", "reverse")),
    "scan_by": (("dim", "reverse"), ()),
    "dot": ((), ("precision", "max_num_imprecise")),
    "for": ((), ("num_stages", "unroll", "flatten", "disallow_acc_multi_buffer", "warp_specialize")),
}
#: Where an op takes a pointer.
_POINTER = {"load_view": 0, "load_ptr": 0, "store_view": 1, "store_ptr": 1, "ptr_to_int": 0}
_REGIONS = {"for": 1, "while": 2, "if": 2, "reduce_by": 1, "scan_by": 1}
_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys")
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
        #: Whether it is written by hand: its grid is what the launch says.
        self.written = kernel.attrs.get("schedule") == "blocks"
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
        known = size in self.visible and (size.type == I64 or (self.written and size.type == Type("i32")))
        _need(known, f"the size of {what} is no i64 parameter")

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
            same = grid[dim.axis] == GridAxis(dim.size, dim.block) or (self.written and grid[dim.axis].block == 1)
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
                found, wanted = _types(op.operands), _yielded(owner, block)
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
        pointer = _pointer(op)
        for i, v in enumerate(op.operands):
            _need(v in self.visible, f"operand {i} is not defined here")
            if i != pointer:
                _need(not v.type.pointer, f"operand {i} is a pointer")
        if pointer is not None:
            _need(len(op.operands) > pointer + (op.name != "ptr_to_int"), "operands are missing")
            _need(op.operands[pointer].type.pointer, f"operand {pointer} is no pointer")
        required, optional = _ATTRS.get(op.name, ((), ()))
        for key in required:
            _need(key in op.attrs, f"attribute {key} is missing")
        for key in op.attrs:
            _need(key in required or key in optional, f"has no attribute {key}")
        _need(len(op.regions) == _REGIONS.get(op.name, 0), f"has {len(op.regions)} regions")
        for v in op.results:
            _need(v.op is op, "a result belongs to another op")
            _need(op.name == "int_to_ptr" or not v.type.pointer, "the result is a pointer")
            self.type(v.type)
        found, wanted = _types(op.results), self.result_types(op)
        _need(found == wanted, f"the result is {_show(found)}, not {_show(wanted)}")

    def type(self, type: Type) -> None:
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
            case "bitcast":
                _same(len(x), 1, "the number of operands")
                dtype = _given(op).dtype
                _need("bool" not in (dtype, x[0].type.dtype), "bools have no bits")
                _same(dtypes.SIZE[dtype], dtypes.SIZE[x[0].type.dtype], "the size of the result's dtype")
                return (Type(dtype, x[0].type.extents),)
            case "load_ptr":
                for key in ("cache", "evict"):
                    _need(type(op.attrs.get(key, "")) is str, f"{key} is no string")
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
            case "atomic":
                return (self.atomic(op),)
            case "int_to_ptr":
                _same(len(x), 1, "the number of operands")
                _scalar(x[0], "the address")
                return (Type(_given(op).dtype, pointer=True),)
            case "ptr_to_int":
                _same(len(x), 1, "the number of operands")
                return (I64,)
            case "check":
                _need(1 <= len(x) <= 2, "the number of operands is wrong")
                _same(x[0].type.dtype, "bool", "the condition's dtype")
                for mask in x[1:]:
                    _same(mask.type, x[0].type, "the mask")
                _need(type(op.attrs["message"]) is str, "message is no string")
                return ()
            case "assume":
                _same(len(x), 1, "the number of operands")
                _same(x[0].type.dtype, "bool", "the condition's dtype")
                return ()
            case "hint":
                _same(len(x), 1, "the number of operands")
                _need(x[0].type.dtype in dtypes.INTEGER, f"a hint about {x[0].type.dtype}")
                for key, entries in op.attrs.items():
                    _need(type(entries) is tuple and all(map(_is_positive, entries)), f"{key} is {entries!r}")
                    _same(len(entries), max(1, len(x[0].type.extents)), f"the number of entries of {key}")
                return (x[0].type,)
            case "print":
                _need(type(op.attrs["prefix"]) is str and type(op.attrs["hex"]) is bool, "prefix or hex is wrong")
                return ()
            case "inline_asm":
                _need(
                    all(type(op.attrs[k]) is str for k in ("text", "constraints")), "text or constraints is no string"
                )
                _need(_is_positive(op.attrs["pack"]), f"pack is {op.attrs['pack']!r}")
                given, made = ({t.extents for t in _types(some)} for some in (x, op.results))
                _need(len(given | made) == 1 and not any(t.pointer for t in _types(x)), "the extents differ")
                return _types(op.results)
            case "barrier":
                _same(len(x), 0, "the number of operands")
                return ()
            case "reshape" | "trans" | "join" | "split" | "cat" | "gather" | "flip" | "sort" | "histogram":
                return self.movement(op)
            case "reduce" | "argreduce" | "scan":
                return (self.across(op),)
            case "reduce_by" | "scan_by":
                return self.combine(op)
            case "dot":
                return (self.dot(op),)
            case "for":
                _need(len(x) >= 3, "operands are missing")
                index = x[0].type
                _need(index in (I64, Type("i32")), f"lower is {index}, no i32 or i64")
                for v, what in zip(x[1:], ("upper", "step")):
                    _scalar(v, what, index)
                step = x[2].op
                _need(step is None or step.attrs.get("value", 1) != 0, "step is 0")
                carried = _types(x[3:])
                _same(_types(op.regions[0].args), (index, *carried), "what the region takes")
                return carried
            case "while":
                first, second = op.regions
                _same(_types(first.args), _types(x), "what the first region takes")
                values = _types(op.results)
                _same(_types(second.args), values, "what the second region takes")
                return values
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
        _need(index.type.dtype in ("i32", "i64"), f"the index's dtype is {index.type.dtype}, no i32 or i64")
        _need(len(mask) <= 1, "operands are left over")
        for v in mask:
            _same(v.type, Type("bool", index.type.extents), "the mask")

    def atomic(self, op: Op) -> Type:
        at = 2 if op.attrs["kind"] == "cas" else 1
        x, kind = op.operands, op.attrs["kind"]
        type_ = x[0].type
        for v in x[:at]:
            _same(v.type, Type(x[at].type.dtype, x[at + 1].type.extents), "the value")
        self.lanes(x[at + 1], x[at + 2 :])
        _same(op.attrs.get("masked", False), len(x) == at + 3, "masked")
        _need(op.attrs["order"] in _ORDERS, f"order is {op.attrs['order']!r}")
        _need(op.attrs["scope"] in _SCOPES, f"scope is {op.attrs['scope']!r}")
        if kind in ("and", "or", "xor"):
            held = dtypes.INTEGER
        elif kind in ("xchg", "cas"):
            held = dtypes.INTEGER | dtypes.FLOAT
        else:
            _need(kind in ("add", "max", "min"), f"kind is {kind!r}")
            held = dtypes.INTEGER | dtypes.FLOAT - dtypes.FLOAT8
        _need(type_.dtype in held, f"no atomic {kind} of {type_.dtype}")
        return type_

    def movement(self, op: Op) -> tuple[Type, ...]:
        x, attrs = op.operands, op.attrs
        counts = {"join": (2, 2), "cat": (2, 2), "gather": (2, 2), "histogram": (1, 2)}
        least, most = counts.get(op.name, (1, 1))
        _need(least <= len(x) <= most, "the number of operands is wrong")
        dtype, extents = x[0].type.dtype, x[0].type.extents
        rank = len(extents)
        dim: Any = attrs.get("dim", 0)
        _need("dim" not in attrs or (type(dim) is int and 0 <= dim < rank), f"no extent {dim!r}")
        match op.name:
            case "reshape":
                made = _given(op).extents
                # Beside dims, which have any number of positions, extents of 1 come and go.
                if any(type(e) is str for e in (*extents, *made)):
                    same = [e for e in extents if e != 1] == [e for e in made if e != 1]
                else:
                    same = math.prod(map(int, extents)) == math.prod(map(int, made))
                _need(same, "the numbers of elements differ")
                return (Type(dtype, made),)
            case "trans":
                perm: Any = attrs["perm"]
                _need(type(perm) is tuple and sorted(perm) == list(range(rank)), f"perm is {perm!r}")
                return (Type(dtype, tuple([extents[k] for k in attrs["perm"]])),)
            case "join":
                _same(x[1].type, x[0].type, "the second operand")
                return (Type(dtype, (*extents, 2)),)
            case "split":
                _need(extents[-1:] == (2,), "the last extent is not 2")
                return (Type(dtype, extents[:-1]),) * 2
            case "cat":
                _same(x[1].type, x[0].type, "the second operand")
                extent = extents[dim]
                if isinstance(extent, str):
                    raise _Broken("the extent is no number")
                return (Type(dtype, (*extents[:dim], 2 * extent, *extents[dim + 1 :])),)
            case "gather":
                _need(x[1].type.dtype in dtypes.INTEGER, f"the index is {x[1].type}")
                dims = (dim,)
                _same(len(x[1].type.extents), rank, "the number of the index's extents")
                _same(without(x[1].type.extents, dims), without(extents, dims), "what the index's other extents are")
                return (Type(dtype, x[1].type.extents),)
            case "histogram":
                _need(dtype in dtypes.INTEGER, f"a histogram of {dtype}")
                for mask in x[1:]:
                    _same(mask.type, Type("bool", extents), "the mask")
                bins = _given(op).extents
                _same(len(bins), 1, "the number of the result's extents")
                return (Type("i32", bins),)
        _need(op.name == "flip" or dtype not in dtypes.COMPLEX, f"a sort of {dtype}")
        _need(op.name == "flip" or type(attrs["descending"]) is bool, "descending is no bool")
        return (x[0].type,)

    def combine(self, op: Op) -> tuple[Type, ...]:
        x = op.operands
        _need(len(x) >= 1, "operands are missing")
        extents = x[0].type.extents
        for v in x:
            _same(v.type.extents, extents, "an operand's extents")
        (region,) = op.regions
        scalars = tuple([Type(v.type.dtype) for v in x])
        _same(_types(region.args), scalars * 2, "what the region takes")
        for inner in region.ops:
            row = ops.TABLE.get(inner.name)
            plain = inner.name in ("const", "bitcast", "yield") or (row is not None and row.kind == "elementwise")
            _need(plain, f"{inner.name} does not join scalars")
        if op.name == "scan_by":
            dim = op.attrs["dim"]
            _need(type(dim) is int and 0 <= dim < len(extents), f"no extent {dim!r}")
            _need(type(op.attrs["reverse"]) is bool, "reverse is no bool")
            return _types(x)
        _increasing(op.attrs["dims"], len(extents))
        _same(len(op.attrs["dims"]), 1, "the number of dims")
        return tuple([Type(v.type.dtype, without(extents, op.attrs["dims"])) for v in x])

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
                    blocked and len(x) == 1 and not op.attrs.get("reverse"),
                    "a scan goes on across programs along a blocked dim only, forwards and without a carry",
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
        _need(not kind.endswith("_number") or dtype in dtypes.FLOAT, f"{kind} of {dtype}")
        _need(kind not in ("sum", "prod") or dtype != "bool", f"{kind} of {dtype}")
        return Type(dtype, without(extents, op.attrs["dims"]))

    def dot(self, op: Op) -> Type:
        x = op.operands
        _need(2 <= len(x) <= 3, "the number of operands is wrong")
        a, b = x[0].type, x[1].type
        rank = len(a.extents)
        _need(rank == len(b.extents) and rank in (2, 3), f"{a} and {b} are no matrices")
        if not ({a.dtype, b.dtype} <= dtypes.FLOAT8 or {a.dtype, b.dtype} <= {"i8", "u8"}):
            _same(a.dtype, b.dtype, "the first operand's dtype")
        _same(a.extents[-1], b.extents[-2], "the first operand's last extent")
        _same(a.extents[:-2], b.extents[:-2], "the first operand's first extent")
        dtype = _given(op).dtype
        _need(dtype in (a.dtype, _WIDER.get(a.dtype)), f"{a.dtype} products accumulate in {dtype}")
        tile = Type(dtype, (*a.extents[:-1], b.extents[-1]))
        precision = op.attrs.get("precision", "ieee")
        _need(precision == "ieee" or (precision in ("tf32", "tf32x3") and a.dtype == "f32"), "the precision is wrong")
        _need(type(op.attrs.get("max_num_imprecise", 0)) is int, "max_num_imprecise is no integer")
        if len(x) == 3:
            _same(x[2].type, tile, "the accumulator")
        return tile


def _types(values: Sequence[Value]) -> tuple[Type, ...]:
    return tuple([v.type for v in values])


def _pointer(op: Op) -> int | None:
    """Which operand is a pointer."""
    if op.name == "atomic":
        return 2 if op.attrs.get("kind") == "cas" else 1
    return _POINTER.get(op.name)


def _yielded(owner: Op, block: Block) -> tuple[Type, ...]:
    """The types that a region of `owner` yields."""
    if owner.name == "while":
        first, _ = owner.regions
        return (BOOL, *_types(owner.results)) if block is first else _types(first.args)
    if owner.name in ("reduce_by", "scan_by"):
        return tuple([Type(v.type.dtype) for v in owner.results])
    return _types(owner.results)


def _is_positive(value: Any) -> bool:
    return type(value) is int and value >= 1


def _given(op: Op) -> Type:
    """The type of the one result of an op whose operands do not determine it."""
    _same(len(op.results), 1, "the number of results")
    return op.results[0].type
