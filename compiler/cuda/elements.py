"""The values of a kernel at single positions of its tiles, with structured control flow round them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from .. import dtypes, ops
from ..ir import Kernel, Op, Value
from ..llvm import math
from ..llvm.convert import Register, constant, convert, from_memory, memory_type, round_to
from ..llvm.text import Text, V
from . import memory
from .memory import GLOBAL, i64, join
from .target import Target

_CONTRACTED = {"add": "fadd", "subtract": "fsub", "multiply": "fmul"}
#: Position by dim, within the program's tile.
Where = Mapping[str, V]


class Code(Text):
    """The body of one function."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.rounding = memory.rounding(self, target)
        self.allocas: list[str] = []

    def cell(self, ty: str) -> V:
        """A variable."""
        ref = self.fresh("c")
        self.allocas.append(f"  {ref} = alloca {ty}")
        return V(ref, "ptr")

    def get(self, cell: V, ty: str) -> V:
        return self.op(f"load {ty}, {cell}", ty)

    def set(self, cell: V, value: V) -> None:
        self.line(f"store {value}, {cell}")

    @contextmanager
    def for_(self, upper: V, step: int | V = 1, first: V | None = None) -> Iterator[V]:
        """A loop over first (None: 0), first + step, ... below `upper`; gives the index."""
        head, body, after = self.new_label("head"), self.new_label("body"), self.new_label("after")
        cell = self.cell(upper.ty)
        self.set(cell, first or V("0", upper.ty))
        self.br(head)
        self.label(head)
        index = self.get(cell, upper.ty)
        self.br_if(self.cmp("slt", index, upper), body, after)
        self.label(body)
        yield index
        self.set(cell, self.bin("add", index, step if isinstance(step, V) else V(str(step), upper.ty)))
        self.br(head)
        self.label(after)

    @contextmanager
    def while_(self, goes_on: Callable[[], V]) -> Iterator[None]:
        """A loop; `goes_on` writes its condition."""
        head, body, after = self.new_label("head"), self.new_label("body"), self.new_label("after")
        self.br(head)
        self.label(head)
        self.br_if(goes_on(), body, after)
        self.label(body)
        yield
        self.br(head)
        self.label(after)


def scaled(t: Text, base: V, index: V, size: int) -> V:
    """The address `index` elements of `size` bytes after `base`."""
    return memory.at(t, base, index if size == 1 else t.bin("mul", index, V(str(size), index.ty)))


class Elements:
    """Computes elements of a kernel's tiles.  With `excess`, f16 and bf16 stay f32 until they are stored."""

    def __init__(self, t: Code, kernel: Kernel, target: Target) -> None:
        self.t = t
        self.kernel = kernel
        self.target = target
        self.excess = False
        self.signature: list[tuple[str, str]] = []
        self._scopes: list[dict[object, Register]] = [{}]
        self._starts: dict[str, V] = {}
        self._programs: list[V] = []
        self._parameters()

    # -- what is known where ------------------------------------------------------------------------------------------
    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten after."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _key(self, value: Value, where: Where) -> object:
        return (value, *[where[str(e)].ref for e in value.type.extents])

    def define(self, value: Value, register: Register, where: Where | None = None) -> None:
        self._scopes[-1][self._key(value, where or {})] = register

    def find(self, value: Value, where: Where) -> Register | None:
        return self._known(self._key(value, where))

    def _known(self, key: object) -> Register | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def __call__(self, value: Value, where: Where | None = None) -> Register:
        """A value that was defined or computed before."""
        found = self.find(value, where or {})
        assert found is not None, value
        return found

    def integer(self, value: Value) -> V:
        register = self(value)
        assert isinstance(register, V)
        return register

    # -- the kernel's scalars -----------------------------------------------------------------------------------------
    def _parameters(self) -> None:
        """Each parameter is a slot of 8 bytes, a complex scalar two."""
        t = self.t
        for k, p in enumerate(self.kernel.params):
            if p.type.pointer:
                self.signature.append((GLOBAL, f"%p{k}"))
                self.define(p, V(f"%p{k}", GLOBAL))
                continue
            elem = memory_type(p.type.dtype)
            pieces: list[V] = []
            for suffix in ("r", "i") if p.type.dtype in dtypes.COMPLEX else ("",):
                slot = V(f"%p{k}{suffix}", "i64")
                self.signature.append((slot.ty, slot.ref))
                bits = 8 * dtypes.SIZE[dtypes.PART.get(p.type.dtype, p.type.dtype)]
                pieces.append(t.cast("bitcast", t.cast("trunc", slot, f"i{bits}"), elem))
            self.define(p, from_memory(t, join(pieces), p.type.dtype))

    def place(self, programs: Sequence[V], starts: Mapping[str, V]) -> None:
        """Tell the program's numbers on the grid's axes and where its tile starts, then compute the scalars."""
        self._programs, self._starts = list(programs), dict(starts)
        ops_ = [op for op in self.kernel.body.ops if op.results and not op.regions]
        self.run([op for op in ops_ if not op.result.type.extents], {})

    # -- ops ----------------------------------------------------------------------------------------------------------
    def dtype(self, value: Value) -> str:
        dtype = value.type.dtype
        return "f32" if self.excess and dtype in dtypes.NARROW else dtype

    def run(self, ops_: Iterable[Op], where: Where) -> None:
        """Compute ops at a position, those not known yet."""
        for op in ops_:
            key = self._key(op.result, where)
            if self._known(key) is None:
                self._scopes[-1][key] = self._compute(op, where)

    def _compute(self, op: Op, where: Where) -> Register:
        t, result = self.t, op.result
        match op.name:
            case "const":
                return constant(t, op.attrs["value"], result.type.dtype)
            case "program_id":
                return self._programs[op.attrs["axis"]]
            case "dim_start":
                return self._starts[op.attrs["dim"]]
            case "dim_extent":
                dim = self.kernel.dims[op.attrs["dim"]]
                left = t.bin("sub", self.integer(dim.size), self._starts[op.attrs["dim"]])
                return left if dim.block is None else t.call("llvm.smin.i64", "i64", [left, i64(dim.block)])
            case "iota":
                return where[str(result.type.extents[0])]
            case "broadcast":
                return self._operand(op.operands[0], where)
            case "cast":
                source = op.operands[0]
                return convert(t, self._operand(source, where), self.dtype(source), self.dtype(result))
            case "load_view" if not op.attrs.get("bounded"):
                return self.load(op, self.address(op, where), 1)[0]
            case "load_view":
                return self._bounded(op, where)
            case "load_ptr" if len(op.operands) == 2:
                pointer, index = op.operands
                position = self._operand(index, where)
                assert isinstance(position, V)
                return self.load(op, self.element(pointer, position), 1)[0]
        if op.name in ops.TABLE and ops.TABLE[op.name].kind == "elementwise":
            args = [self._operand(x, where) for x in op.operands]
            if opcode := self._contracted(op):
                a, b = args
                assert isinstance(a, V) and isinstance(b, V)
                return t.op(f"{opcode} contract {a}, {b.ref}", a.ty)
            # As exact as the dtype asks for, even where it is not rounded to that.
            operands = [x.type.dtype for x in op.operands]
            return math.emit(t, op.name, args, operands, self.dtype(result), self.target)
        raise NotImplementedError(f"kernel @{self.kernel.name}: no {op.name} in a product")

    def _contracted(self, op: Op) -> str | None:
        """The instruction of an op whose product and sum may be rounded once, since neither need be rounded yet."""
        return _CONTRACTED.get(op.name) if self.excess and op.result.type.dtype in ("f16", "bf16") else None

    def _operand(self, value: Value, where: Where) -> Register:
        return self(value, where if value.type.extents else None)

    # -- memory -------------------------------------------------------------------------------------------------------
    def element(self, pointer: Value, index: V) -> V:
        """The address of an element."""
        return scaled(self.t, self.integer(pointer), index, dtypes.SIZE[pointer.type.dtype])

    def index(self, offset: Value, strides: Sequence[Value], extents: Sequence[int | str], where: Where) -> V:
        t, total = self.t, self.integer(offset)
        for stride, extent in zip(strides, extents, strict=True):
            step = self.integer(stride)
            position = where[str(extent)]
            product = position if step.ref == "1" else t.bin("mul", position, step)
            total = product if total.ref == "0" else t.bin("add", total, product)
        return total

    def address(self, op: Op, where: Where) -> V:
        """Where a view's element lies."""
        if op.name == "load_view":
            (pointer, offset, *strides), extents = op.operands, op.result.type.extents
        else:
            (_, pointer, offset, *strides), extents = op.operands, op.operands[0].type.extents
        # Bounds follow the strides.
        return self.element(pointer, self.index(offset, strides[: len(extents)], extents, where))

    def _bounded(self, op: Op, where: Where) -> Register:
        """An element of a view, or what is there instead outside its bounds."""
        t, extents = self.t, op.result.type.extents
        within: dict[str, V] = {}
        inside: V | None = None
        for bound, extent in zip(op.operands[2 + len(extents) :], extents, strict=True):
            position = where[str(extent)]
            below = t.cmp("slt", position, self.integer(bound))
            within[str(extent)] = t.select(below, position, V("0", position.ty))
            inside = memory.both(t, inside, below)
        dtype = op.result.type.dtype
        (found,) = self.load(op, self.address(op, within), 1)
        return (
            found if inside is None else memory.select(t, inside, found, constant(t, op.attrs.get("other", 0), dtype))
        )

    def load(self, op: Op, address: V, n: int) -> list[Register]:
        """n neighbours; more than one are aligned to their joint size."""
        dtype = op.operands[0].type.dtype
        if n > 1 or dtype not in dtypes.COMPLEX:
            return memory.load(self.t, address, dtype, n)
        return [join(self._parts(address, dtype))]

    def _parts(self, address: V, dtype: str) -> list[V]:
        """A complex number that may be aligned to its parts only."""
        elem, size = memory_type(dtype), dtypes.SIZE[dtypes.PART[dtype]]
        return [self.t.load(memory.at(self.t, address, i * size), elem, size) for i in range(2)]

    def store(self, values: Sequence[Register], address: V, dtype: str) -> None:
        """Store neighbours; more than one are aligned to their joint size."""
        t = self.t
        if self.excess:
            values = [round_to(t, v, dtype) if isinstance(v, V) else v for v in values]
        if len(values) == 1 and not isinstance(values[0], V):
            size = dtypes.SIZE[dtypes.PART[dtype]]
            for i, part in enumerate(values[0]):
                t.store(part, memory.at(t, address, i * size), size)
            return
        memory.store(t, values, address, dtype)
