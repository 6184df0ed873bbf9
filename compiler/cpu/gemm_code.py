"""Functions with structured control flow, as LLVM text, and the values of block IR inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import dtypes, ir
from ..llvm import math
from ..llvm.convert import Register, constant, convert, from_memory, memory_type, round_to, to_memory
from ..llvm.text import Text, V, mangle, vector
from ..slices import slice_of
from .libmvec import host_math
from .target import Target

PTR, I64, I1 = "ptr", "i64", "i1"


def integer(n: int) -> V:
    return V(str(n), I64)


class Loop:
    """A loop under construction: the carried values inside it, and after it their last values."""

    def __init__(self, index: V, carried: list[V]) -> None:
        self.index = index
        self.carried = carried
        #: What the next trip starts from; set by the body.
        self.next: Sequence[V] = carried


class Function(Text):
    """One function: its parameters by name, then its body."""

    def __init__(
        self, name: str, result: str, params: Mapping[str, str], linkage: str = "", attributes: str = ""
    ) -> None:
        super().__init__()
        self.name = name
        listed = ", ".join(f"{ty} %{p}" for p, ty in params.items())
        self._head = f"define {linkage} {result} @{name}({listed}) {attributes} {{"
        self.params = {p: V(f"%{p}", ty) for p, ty in params.items()}

    def __getitem__(self, name: str) -> V:
        return self.params[name]

    def text(self) -> str:
        return "\n".join((self._head, "entry:", *self.lines, "}\n"))

    # -- integers -----------------------------------------------------------------------------------------------------
    def add(self, a: V, b: V) -> V:
        if a.ref.isdigit() and b.ref.isdigit():
            return integer(int(a.ref) + int(b.ref))
        if "0" in (a.ref, b.ref):
            return a if b.ref == "0" else b
        return self.bin("add", a, b)

    def sub(self, a: V, b: V) -> V:
        return a if b.ref == "0" else self.bin("sub", a, b)

    def mul(self, a: V, *factors: V | int) -> V:
        for f in factors:
            b = integer(f) if isinstance(f, int) else f
            if a.ref.isdigit() and b.ref.isdigit():
                a = integer(int(a.ref) * int(b.ref))
            elif "0" in (a.ref, b.ref):
                a = integer(0)
            elif "1" in (a.ref, b.ref):
                a = a if b.ref == "1" else b
            else:
                a = self.bin("mul", a, b)
        return a

    def div(self, a: V, b: V | int) -> V:
        return self.bin("udiv", a, integer(b) if isinstance(b, int) else b)

    def rem(self, a: V, b: V | int) -> V:
        return self.bin("urem", a, integer(b) if isinstance(b, int) else b)

    def ceildiv(self, a: V, b: V | int) -> V:
        b = integer(b) if isinstance(b, int) else b
        return self.div(self.add(a, self.sub(b, integer(1))), b)

    def round_up(self, a: V, step: int) -> V:
        return self.mul(self.ceildiv(a, step), step)

    def min(self, a: V, b: V) -> V:
        return self.intrinsic("smin", a, b)

    def max(self, a: V, b: V) -> V:
        return self.intrinsic("smax", a, b)

    # -- control ------------------------------------------------------------------------------------------------------
    @contextmanager
    def for_(self, lower: V, upper: V, step: V | int = 1, carried: Iterable[V] = ()) -> Iterator[Loop]:
        """A loop over [lower, upper)."""
        step = integer(step) if isinstance(step, int) else step
        first = list(carried)
        before, head, body, after = self.block, self.new_label("head"), self.new_label("body"), self.new_label("after")
        self.br(head)
        self.label(head)
        hole = len(self.lines)
        phis = [V(self.fresh(), x.ty) for x in (lower, *first)]
        self.lines += [""] * len(phis)
        loop = Loop(phis[0], phis[1:])
        self.br_if(self.cmp("slt", loop.index, upper), body, after)
        self.label(body)
        yield loop
        following = (self.add(loop.index, step), *loop.next)
        for i, (phi, x, y) in enumerate(zip(phis, (lower, *first), following, strict=True)):
            self.lines[hole + i] = f"  {phi.ref} = phi {x.ty} [{x.ref}, %{before}], [{y.ref}, %{self.block}]"
        self.br(head)
        self.label(after)

    @contextmanager
    def while_(self) -> Iterator[str]:
        """An endless loop; the body branches to the label that it is given to leave."""
        head, after = self.new_label("head"), self.new_label("after")
        self.br(head)
        self.label(head)
        yield after
        self.br(head)
        self.label(after)

    def leave_if(self, cond: V, target: str) -> None:
        stay = self.new_label("stay")
        self.br_if(cond, target, stay)
        self.label(stay)

    # -- memory -------------------------------------------------------------------------------------------------------
    def prefetch(self, address: V, write: bool = False, locality: int = 3) -> None:
        self.declare("llvm.prefetch.p0", "void", (PTR, "i32", "i32", "i32"))
        self.line(f"call void @llvm.prefetch.p0({address}, i32 {write:d}, i32 {locality}, i32 1)")

    def at(self, base: V, offset: V, size: int = 1) -> V:
        """The address `offset` elements of `size` bytes past `base`."""
        return self.gep(base, offset, f"[{size} x i8]")


def is_scalar(op: ir.Op) -> bool:
    return bool(op.results) and not op.result.type.extents


class Emitter:
    """The values of a kernel inside one function.

    Scalars are computed where the emitter is made.  `run` then computes elements of tiles at given positions, one at a
    time or, with `lane` and `width`, at `width` consecutive positions along one dim.  With `excess`, f16 and bf16 are
    computed as f32.
    """

    def __init__(
        self, t: Function, kernel: ir.Kernel, target: Target, ops: Sequence[ir.Op], needed: Iterable[ir.Value] = ()
    ) -> None:
        self.t = t
        self.kernel = kernel
        self.target = target
        self.excess = False
        #: Lanes that loads of consecutive elements may touch, if not all.
        self.mask: V | None = None
        self.values: dict[ir.Value, Register] = {}
        self._sizes = [d.size for d in kernel.dims.values()] + [axis.size for axis in kernel.grid]
        self.tile_ops = [op for op in ops if not is_scalar(op)]
        wanted = {*needed, *self._sizes, *(x for op in ops for x in op.operands)}
        scalar_ops = [op for op in slice_of(wanted, kernel.body) if is_scalar(op)]
        self._params(wanted.union(*(op.operands for op in scalar_ops)))
        self.run(scalar_ops)

    def scalar(self, value: ir.Value) -> V:
        register = self.values[value]
        assert isinstance(register, V)
        return register

    def size(self, dim: str) -> V:
        return self.scalar(self.kernel.dims[dim].size)

    def _params(self, used: set[ir.Value]) -> None:
        t, slot = self.t, 0
        for p in self.kernel.params:
            pair = p.type.dtype in dtypes.COMPLEX and not p.type.pointer
            if p in used:
                address = t.at(t["args"], integer(slot), 8)
                if p.type.pointer:
                    self.values[p] = t.load(address, PTR, 8)
                elif pair:
                    part = memory_type(p.type.dtype)
                    self.values[p] = (t.load(address, part, 8), t.load(t.at(address, integer(8)), part, 8))
                else:
                    loaded = t.load(address, memory_type(p.type.dtype), 8)
                    self.values[p] = from_memory(t, loaded, p.type.dtype)
            slot += 1 + pair

    def dtype(self, value: ir.Value) -> str:
        dtype = value.type.dtype
        return "f32" if self.excess and dtype in dtypes.NARROW else dtype

    def run(
        self,
        ops: Sequence[ir.Op] | None = None,
        where: Mapping[str, V] | None = None,
        lane: str | None = None,
        width: int = 0,
    ) -> None:
        """Compute `ops` (all tile ops by default) at the positions `where`, overwriting earlier values of tiles."""
        t, where = self.t, where or {}
        for op in self.tile_ops if ops is None else ops:
            name = op.name
            if name == "store_view":
                self._store(op, where, lane, width)
                continue
            result = op.result
            wide = width if lane in result.type.extents else 0
            if name == "const":
                value = constant(t, op.attrs["value"], result.type.dtype)
            elif name == "load_view":
                value = self._load(op, where, lane, wide)
            elif name == "broadcast":
                value = self.splat(self.values[op.operands[0]], wide)
            elif name == "iota":
                value = self.positions(where[str(result.type.extents[0])], wide)
            elif name == "cast":
                source = op.operands[0]
                value = convert(t, self.values[source], self.dtype(source), self.dtype(result))
            elif name == "dim_extent":
                value = self.size(op.attrs["dim"])
            elif name == "dim_start":
                value = integer(0)
            elif name == "program_id":
                value = self._program_id(op.attrs["axis"])
            else:
                args, types = [self.values[x] for x in op.operands], [self.dtype(x) for x in op.operands]
                value = math.emit(t, name, args, types, self.dtype(result), host_math())
            self.values[result] = value

    def _program_id(self, number: int) -> V:
        """The last axis varies fastest."""
        t, rest = self.t, self.t["program"]
        sizes = [self.scalar(axis.size) for axis in self.kernel.grid]
        for size in sizes[:number:-1]:
            rest = t.div(rest, size)
        return t.rem(rest, sizes[number]) if number else rest

    def splat(self, x: Register, width: int) -> Register:
        return self.t.splat(x, width) if isinstance(x, V) else (self.t.splat(x[0], width), self.t.splat(x[1], width))

    # -- memory -------------------------------------------------------------------------------------------------------
    def _address(self, ptr: ir.Value, operands: Sequence[ir.Value], extents: Sequence[Any], where: Any) -> V:
        t, (offset, *strides) = self.t, operands
        index = self.scalar(offset)
        for stride, extent in zip(strides, extents):
            index = t.add(index, t.mul(where[extent], self.scalar(stride)))
        return t.at(self.scalar(ptr), index, dtypes.SIZE[ptr.type.dtype])

    def address(self, op: ir.Op, where: Mapping[str, V]) -> V:
        """Where a load reads."""
        ptr, *rest = op.operands
        return self._address(ptr, rest, op.result.type.extents, where)

    def prefetch(self, op: ir.Op, where: Mapping[str, V]) -> None:
        """Bring in the cache line that a load or store is going to use."""
        *value, ptr = op.operands[: len(op.operands) - 1 - len(self._extents(op))]
        self.t.prefetch(self._address(ptr, op.operands[len(value) + 1 :], self._extents(op), where), write=bool(value))

    @staticmethod
    def _extents(op: ir.Op) -> tuple[int | str, ...]:
        return (op.result if op.results else op.operands[0]).type.extents

    def _load(self, op: ir.Op, where: Mapping[str, V], lane: str | None, width: int) -> Register:
        t, (ptr, *rest), extents = self.t, op.operands, op.result.type.extents
        dtype = ptr.type.dtype
        address = self._address(ptr, rest, extents, where)
        part, size = memory_type(dtype), dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
        parts = 2 if dtype in dtypes.COMPLEX else 1
        if not width:
            loaded = [t.load(t.at(address, integer(i * size)), part, size) for i in range(parts)]
        else:
            stride = self.scalar(rest[1 + extents.index(lane)])
            if stride.ref == "0":
                loaded = [t.splat(t.load(t.at(address, integer(i * size)), part, size), width) for i in range(parts)]
            elif stride.ref == "1":
                ty = vector(part, width * parts)
                whole = t.load(address, ty, size) if self.mask is None else self._masked(address, ty, size)
                poison = V("poison", whole.ty)
                loaded = [whole] if parts == 1 else [t.shuffle(whole, poison, range(i, 2 * width, 2)) for i in (0, 1)]
            else:
                loaded = [V("poison", vector(part, width))] * parts
                for j in range(width):
                    element = t.at(address, t.mul(stride, j), size * parts)
                    for i in range(parts):
                        x = t.load(t.at(element, integer(i * size)), part, size)
                        loaded[i] = t.insert(loaded[i], x, j)
        if parts == 2:
            return loaded[0], loaded[1]
        return from_memory(t, loaded[0], dtype)

    def _masked(self, address: V, ty: str, size: int) -> V:
        assert self.mask is not None
        name, zero = f"llvm.masked.load.{mangle(ty)}.p0", V("zeroinitializer", ty)
        self.t.declare(name, ty, [PTR, self.mask.ty, ty])
        return self.t.op(f"call {ty} @{name}(ptr align {size} {address.ref}, {self.mask}, {zero})", ty)

    def positions(self, first: V, width: int) -> V:
        """first, first + 1, ... in lanes."""
        if not width:
            return first
        steps = V("<" + ", ".join(f"i64 {i}" for i in range(width)) + ">", vector(I64, width))
        return self.t.bin("add", self.t.splat(first, width), steps)

    def _encoded(self, register: V, dtype: str) -> V:
        if self.excess:
            register = round_to(self.t, register, dtype)
        stored = to_memory(self.t, register, dtype)
        assert isinstance(stored, V)
        return stored

    def _store(self, op: ir.Op, where: Mapping[str, V], lane: str | None, width: int) -> None:
        t, (value, ptr, *rest) = self.t, op.operands
        dtype, extents = ptr.type.dtype, value.type.extents
        address = self._address(ptr, rest, extents, where)
        size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
        register = self.values[value]
        stored = [self._encoded(register, dtype)] if isinstance(register, V) else list(register)
        if not width:
            for i, x in enumerate(stored):
                t.store(x, t.at(address, integer(i * size)), size)
            return
        stride = self.scalar(rest[1 + extents.index(lane)])
        if stride.ref == "1":
            if len(stored) == 2:
                order = [i + width * part for i in range(width) for part in (0, 1)]
                stored = [t.shuffle(stored[0], stored[1], order)]
            t.store(stored[0], address, size)
            return
        for j in range(width):
            element = t.at(address, t.mul(stride, j), size * len(stored))
            for i, x in enumerate(stored):
                t.store(t.extract(x, j), t.at(element, integer(i * size)), size)
