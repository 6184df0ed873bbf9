"""One kernel of block IR -> the text of an LLVM module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .. import dtypes
from ..ir import Block, Kernel, Op, Value
from ..llvm import math
from ..llvm.convert import Register, constant, convert
from ..llvm.text import Text, V
from . import ahead, dot, regions, whole
from .libmvec import host_math
from .memory import Memory, address, i64, parts, select
from .nest import NestCode
from .strips import BARRIERS, FENCES, WHOLE, Stage, Strips, copy_nest, reads_whole
from .target import Target

#: Extents in scratch are rounded up to this, so that every chunk of lanes there is whole.
PAD = 64
#: Ops that see where a program begins or ends, or what is beside an element.
_WHOLE = frozenset(("program_id", "dim_extent", "iota", "reduce", "argreduce", "scan", "gather", *WHOLE, *FENCES))


@dataclass(slots=True)
class Slot:
    """Scratch for one tile: `strides[k]` is extent k's, in elements; the unit stride is an int 1.

    In panels, `panel` columns (of the last extent) lie side by side, for one row after the other; then come the next
    ones.  There the last stride is a column's share of a panel: the way from the first column of one to the next one's
    is that many times `panel`.
    """

    base: V
    dtype: str
    strides: tuple[V | int, ...]
    #: Elements in all.
    size: V
    panel: int = 0


class Codegen:
    """State of one kernel's code: its text, its scalars, its scratch."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        #: Whether it is written by hand: its dims may be longer than their blocks, and its grid what the launch says.
        self.written = kernel.attrs.get("schedule") == "blocks"
        self.math = host_math()
        self.t = Text()
        self.memory = Memory(self.t, target)
        #: Scalars by value; the grid-invariant ones are in the prologue.
        self.scalars: dict[Value, Register] = {}
        self.invariant: set[Value] = set(kernel.params)
        self.slots: dict[Value, Slot] = {}
        self.kept: set[Value] = set()
        #: Run-time extents of this program, and the most that any program has.
        self.extents: dict[int | str, V] = {}
        self.limits: dict[int | str, V] = {}
        self.programs: list[V] = []
        #: The ops that read a value.
        self.readers: dict[Value, set[Op]] = {}
        for op in kernel.walk():
            for operand in op.operands:
                self.readers.setdefault(operand, set()).add(op)
        self.checks = kernel.checks()
        #: The innermost loop that the code is in, if it goes up.
        self.trip: ahead.Trip | None = None
        #: Kept tiles whose elements are alike from a position on along an extent: which one, and that position.
        self.alike: dict[Value, tuple[int, V]] = {}
        #: Tiles that products read where they lie in memory, if all of them is there.
        self.direct: set[Value] = set()
        self._prologue: list[str] = []
        self._strings: dict[str, str] = {}
        self._prologue_block = "entry"
        self._scratch: V = i64(0)
        self._slot_of_param: dict[Value, int] = {}
        slot = 0
        for param in kernel.params:
            self._slot_of_param[param] = slot
            slot += 2 if param.type.dtype in dtypes.COMPLEX and not param.type.pointer else 1

    # -- the module ---------------------------------------------------------------------------------------------------
    def module(self) -> str:
        """The module's text, with the functions `kernel` and, if it needs scratch, `kernel_scratch`."""
        t = self.t
        self.run_programs()
        body = t.lines
        attributes = f'nounwind "prefer-vector-width"="{8 * self.target.vector_bytes}"'
        if self.target.vector_bytes == 64:
            attributes += ' "min-legal-vector-width"="512"'
        head = "define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch, i64 %thread)"
        lines = [
            f"{head} {attributes} {{", "entry:", *self.memory.allocas, *self._prologue, "  br label %start", *body, "}",
        ]  # fmt: skip
        if self._scratch.ref != "0":
            # The prologue computes the scratch's size too; what this function does not need of it is dead code here.
            size = ["  %scratch = inttoptr i64 0 to ptr", *self.memory.allocas, *self._prologue]
            lines += [
                f"define i64 @kernel_scratch(ptr %args) {attributes} {{", "entry:", *size,
                f"  ret i64 {self._scratch.ref}", "}",
            ]  # fmt: skip
        return "\n".join((*lines, *self._strings.values(), *t.declarations.values(), ""))

    def string(self, text: str) -> V:
        """A constant's address."""
        name = f"@text{len(self._strings)}"
        raw = text.encode() + b"\0"
        body = "".join([chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in raw])
        if text not in self._strings:
            self._strings[text] = f'{name} = private constant [{len(raw)} x i8] c"{body}"'
        return V(self._strings[text].split(" ")[0], "ptr")

    @contextmanager
    def hoisted(self) -> Iterator[None]:
        """Emit into the prologue."""
        t = self.t
        lines, block = t.lines, t.block
        if lines is self._prologue:
            yield
            return
        t.lines, t.block = self._prologue, self._prologue_block
        yield
        self._prologue_block = t.block
        t.lines, t.block = lines, block

    def run_programs(self) -> None:
        t, kernel = self.t, self.kernel
        begin, end = V("%begin", "i64"), V("%end", "i64")
        with self.hoisted():
            counts = [self._ceildiv(self.integer(axis.size), axis.block) for axis in kernel.grid]
            for name, dim in kernel.dims.items():
                size = self.size(dim.size)
                whole = dim.block is None
                most = dim.block if dim.bucket is None or not self.written else dim.bucket
                self.limits[name] = size if most is None else self._clamped(size, most)
                if whole:
                    self.extents[name] = self.limits[name]
        stages = self._merged()
        if stages is not None:
            self._run_merged(begin, end, stages)
            return
        counters = [self.memory.alloca("i64", 8) for _ in counts] if len(counts) > 1 else []
        t.label("start")
        first, head, latch, done = [t.new_label(hint) for hint in ("first", "program", "latch", "done")]
        t.br_if(t.cmp("slt", begin, end), first, done)
        t.label(first)
        rest = begin
        for counter, count in list(zip(counters, counts, strict=True))[::-1] if counters else ():
            t.store(t.bin("urem", rest, count), counter, 8)
            rest = t.bin("udiv", rest, count)
        t.br(head)
        t.label(head)
        following = V(t.fresh("next"), "i64")
        linear = t.phi("i64", (begin, first), (following, latch))
        self.programs = [t.load(c, "i64", 8) for c in counters] or [linear] * len(counts)
        for name, dim in kernel.dims.items():
            if dim.block is not None:
                left = t.bin("sub", self.size(dim.size), self.start(name))
                self.extents[name] = self._clamped(left, dim.block)
        self.run_block(kernel.body)
        self._advance(counters, counts)
        t.br(latch)
        t.label(latch)
        t.line(f"{following.ref} = add i64 {linear.ref}, 1")
        t.br_if(t.cmp("slt", following, end), head, done)
        t.label(done)
        t.line("ret void")

    def _merged(self) -> list[Stage] | None:
        """The stages of a kernel that maps the elements along one axis, whose programs can run as one."""
        kernel = self.kernel
        if len(kernel.grid) != 1 or len(kernel.dims) != 1:
            return None
        ((name, dim),) = kernel.dims.items()
        if dim.block is None or dim.block != kernel.grid[0].block or dim.size is not kernel.grid[0].size:
            return None
        for op in kernel.body.ops:
            tiles = [v.type.extents for v in (*op.results, *op.operands) if v.type.extents]
            if op.name in _WHOLE or op.regions or any(extents != (name,) for extents in tiles):
                return None
        stages = Strips(kernel, kernel.body.ops, (), set()).stages()
        nests = [nest for stage in stages for nest in stage.nests]
        # Scratch has room for one program's tiles.
        if len(nests) != 1 or nests[0].keeps or any(item.kept for item in nests[0].items):
            return None
        return stages

    def _run_merged(self, begin: V, end: V, stages: list[Stage]) -> None:
        """Run programs [begin, end) as one program of their elements."""
        t = self.t
        ((name, dim),) = self.kernel.dims.items()
        first, done = t.new_label("first"), t.new_label("done")
        t.label("start")
        t.br_if(t.cmp("slt", begin, end), first, done)
        t.label(first)
        self.programs = [begin]
        stop = t.call("llvm.smin.i64", "i64", [t.bin("mul", end, i64(dim.block or 1)), self.integer(dim.size)])
        self.extents[name] = t.bin("sub", stop, self.start(name))
        self.run_stages(stages)
        t.br(done)
        t.label(done)
        t.line("ret void")

    def _clamped(self, size: V, most: int) -> V:
        """A number of positions that is at most `most`; a grid that the user chose may have programs without any."""
        found = self.t.call("llvm.smin.i64", "i64", [i64(most), size])
        return self.t.call("llvm.smax.i64", "i64", [i64(0), found]) if self.written else found

    def _ceildiv(self, size: V, block: int) -> V:
        t = self.t
        return size if block == 1 else t.bin("udiv", t.bin("add", size, i64(block - 1)), i64(block))

    def _advance(self, counters: list[V], counts: list[V]) -> None:
        """Step the program ids, the last one fastest."""
        t = self.t
        carry = i64(1)
        for counter, count, pid in list(zip(counters, counts, self.programs, strict=True))[::-1] if counters else ():
            following = t.bin("add", pid, carry)
            wrapped = t.cmp("eq", following, count)
            t.store(t.select(wrapped, i64(0), following), counter, 8)
            carry = t.cast("zext", wrapped, "i64")

    def start(self, name: str) -> V:
        """First position of this program's block of a dim."""
        dim = self.kernel.dims[name]
        if dim.block is None or dim.axis is None:
            return i64(0)
        return self.t.bin("mul", self.programs[dim.axis], i64(dim.block))

    def extent(self, extent: int | str) -> V:
        return i64(extent) if isinstance(extent, int) else self.extents[extent]

    # -- scalars ------------------------------------------------------------------------------------------------------
    def integer(self, value: Value) -> V:
        """An i64 or pointer scalar."""
        reg = self.scalar(value)
        assert isinstance(reg, V)
        return reg

    def size(self, value: Value) -> V:
        """The size of a dim as an i64."""
        return self.t.cast("sext", self.integer(value), "i64")

    def scalar(self, value: Value) -> Register:
        found = self.scalars.get(value)
        if found is not None:
            return found
        if value.op is None:
            with self.hoisted():
                reg = self._parameter(value)
        elif value.op.name == "const":
            self.invariant.add(value)
            reg = constant(self.t, value.op.attrs["value"], value.type.dtype)
        else:
            # Only sizes are asked for ahead of their turn.
            for operand in value.op.operands:
                if not operand.type.extents:
                    self.scalar(operand)
            self.run_scalar(value.op)
            return self.scalars[value]
        self.scalars[value] = reg
        return reg

    def _parameter(self, param: Value) -> Register:
        t = self.t
        where = t.gep(V("%args", "ptr"), i64(self._slot_of_param[param]), "i64")
        if param.type.pointer:
            return t.load(where, "ptr", 8)
        if param.type.dtype in dtypes.COMPLEX:
            part = dtypes.PART[param.type.dtype]
            re, im = self.memory.load(part, where, 0), self.memory.load(part, t.gep(where, i64(1), "i64"), 0)
            assert isinstance(re, V) and isinstance(im, V)
            return re, im
        return self.memory.load(param.type.dtype, where, 0)

    def run_scalar(self, op: Op) -> None:
        """Emit one op with a scalar result."""
        value = op.results[0]
        if op.name == "const" or value in self.scalars:
            return
        args = [self.scalar(v) for v in op.operands if not v.type.extents]
        pure = op.name not in ("load_view", "load_ptr", "gather", "program_id", "dim_start", "dim_extent")
        if pure and all(v in self.invariant for v in op.operands):
            self.invariant.add(value)
            with self.hoisted():
                self.scalars[value] = self.apply(op, args, 0)
        else:
            self.scalars[value] = self._scalar_op(op, args)

    def _scalar_op(self, op: Op, args: list[Register]) -> Register:
        t, dtype = self.t, op.result.type.dtype
        if op.name == "program_id":
            return self.programs[op.attrs["axis"]]
        if op.name == "dim_start":
            return self.start(op.attrs["dim"])
        if op.name == "dim_extent":
            return self.extents[op.attrs["dim"]]
        if op.name in ("load_view", "load_ptr"):
            ptr, index = args[0], args[1]
            assert isinstance(ptr, V) and isinstance(index, V)
            where = address(t, ptr, index, dtype)
            if op.name == "load_view" or len(args) == 2:
                found = self.memory.load(dtype, where, 0)
                if op.attrs.get("volatile"):
                    t.line("fence acquire")  # keeps the load in its loop
                return found
            mask = args[2]
            assert isinstance(mask, V)
            found = self.memory.load(dtype, t.select(mask, where, self.memory.nothing()), 0)
            return select(t, mask, found, constant(t, op.attrs.get("other", 0), dtype))
        if op.name == "broadcast":
            return args[0]
        if op.name == "gather":
            where = whole.gathered(self, op, args[-1], {})
            return self.memory.load(self.slot(op.operands[0]).dtype, where, 0)
        return self.apply(op, args, 0)

    def apply(self, op: Op, args: list[Register], n: int) -> Register:
        """An elementwise op, a cast or one of a pointer, on register values of n lanes."""
        out, given = op.result.type.dtype, [v.type.dtype for v in op.operands]
        if op.name == "cast":
            return convert(self.t, args[0], given[0], out)
        if op.name == "bitcast":
            return whole.bitcast(self.t, args[0], given[0], out)
        if op.name in ("int_to_ptr", "ptr_to_int"):
            (value,) = parts(args[0])
            to_int = op.name == "ptr_to_int"
            return self.t.cast("ptrtoint" if to_int else "inttoptr", value, "i64" if to_int else "ptr")
        return self.combine(op.name, args, given, out)

    def combine(self, name: str, args: list[Register], given: list[str], out: str) -> Register:
        return math.emit(self.t, name, args, given, out, self.math)

    def constant(self, value: Any, dtype: str, n: int) -> Register:
        return constant(self.t, value, dtype, n)

    # -- scratch ------------------------------------------------------------------------------------------------------
    def slot(self, value: Value, dtype: str | None = None, innermost: int | None = None) -> Slot:
        """Scratch for a tile; extent `innermost` (the last, unless said) has stride 1.

        Parameters
        ----------
        value : Value
        dtype : str, optional
            The elements' dtype, if wider than the value's.
        innermost : int, optional
            Matters when the slot is made: by the first nest that writes it.
        """
        found = self.slots.get(value)
        if found is None:
            extents = value.type.extents
            order = list(range(len(extents)))
            if innermost is not None:
                order.append(order.pop(innermost))
            found = self.slots[value] = self.allocate(dtype or value.type.dtype, extents, order)
        return found

    def allocate(self, dtype: str, extents: tuple[int | str, ...], order: list[int], pad: int = 0) -> Slot:
        """Scratch for a tile whose extents are laid out in `order`, the last one with stride 1.

        That one is padded, unless it is a power of two: then no vector runs over its end, and `pad` elements follow.
        """
        t = self.t
        with self.hoisted():
            strides: dict[int, V | int] = {}
            size: V | int = 1
            for place, k in enumerate(reversed(order)):
                extent = extents[k]
                strides[k] = size if place else 1
                if isinstance(extent, str):
                    size = self._product(size, self.limits[extent] if place else self._padded(self.limits[extent], PAD))
                elif place or (extent > 1 and extent & (extent - 1) == 0):
                    size = self._product(size, extent if place else extent + pad)
                else:
                    size = -(-extent // PAD) * PAD
            size = self._padded(size, PAD)
            base = t.gep(V("%scratch", "ptr"), self._scratch, "i8")
            nbytes = self._padded(self._product(size, dtypes.SIZE[dtype]), 64)
            self._scratch = t.bin("add", self._scratch, _integer(nbytes))
        return Slot(base, dtype, tuple([strides[k] for k in range(len(extents))]), _integer(size))

    def _product(self, a: V | int, b: V | int) -> V | int:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return self.t.bin("mul", _integer(a), _integer(b))

    def _padded(self, size: V | int, unit: int) -> V | int:
        """The next multiple of a power of two."""
        if isinstance(size, int):
            return -(-size // unit) * unit
        return self.t.bin("and", self.t.bin("add", size, i64(unit - 1)), i64(-unit))

    def tile(self, value: Value) -> Slot:
        """A tile's values in scratch."""
        if value in self.kept:
            return self.slot(value)
        slot = self.allocate(value.type.dtype, value.type.extents, list(range(len(value.type.extents))))
        self.write_tile(value, slot)
        return slot

    def write_tile(self, value: Value, slot: Slot) -> None:
        """Copy a tile that is in scratch, or is cheap to compute, to a slot."""
        nest = copy_nest(self.kernel, value, self.kept)
        NestCode(self, nest, {value: slot}).emit()

    # -- blocks -------------------------------------------------------------------------------------------------------
    def run_block(self, block: Block) -> None:
        """Emit a block's ops, but not its yield."""
        line: list[Op] = []
        for op in block.ops:
            if op.regions and op.name not in WHOLE:
                self.run_line(line)
                line = []
                regions.emit(self, op)
            elif op.name != "yield":
                line.append(op)
        self.run_line(line)

    def run_line(self, line: list[Op]) -> None:
        """Emit ops without regions."""
        inside = set(line)
        escaping = [v for op in line for v in op.results if not inside.issuperset(self.readers.get(v, ()))]
        wanted = [v for v in escaping if any(v in reads_whole(op) for op in self.readers.get(v, ()))]
        for v in (*wanted, *[v for op in line for v in reads_whole(op)]):
            if v.op in inside:
                # Row-major, whatever way its nest would lay it out.
                self._reserve(v)
                if dot.reads_in_place(self, v, line):
                    self.direct.add(v)
        self.run_stages(Strips(self.kernel, line, escaping, self.kept, wanted).stages())

    def _reserve(self, value: Value) -> None:
        """A slot for a tile that ops on whole tiles read: as wide as it is made, or, for products, as they compute.

        What only products read has a vector more in each row, as rows of powers of two would compete for the same
        lines of a cache; their right operands are in panels.
        """
        if value in self.slots:
            return
        assert value.op is not None
        dtype, extents = value.type.dtype, value.type.extents
        order = list(range(len(extents)))
        pad, panel = 0, 0
        if value.op.name == "reduce":
            dtype = "f32" if dtype in dtypes.NARROW else dtype
        elif value.op.name not in BARRIERS and all(op.name == "dot" for op in self.readers[value]):
            wide = {dot.accumulated(op) for op in self.readers[value]}
            dtype = wide.pop() if len(wide) == 1 else dtype
            pad = self.target.vector_bytes // dtypes.SIZE[dtype]
            panel = dot.panel_of(self, value, self.readers[value])
        if panel:
            self.slots[value] = self._in_panels(dtype, extents, panel)
        else:
            self.slots[value] = self.allocate(dtype, extents, order, pad)

    def _in_panels(self, dtype: str, extents: tuple[int | str, ...], panel: int) -> Slot:
        """Scratch for a tile in panels; they too are longer than a power of two."""
        *outer, depth, columns = [int(e) for e in extents]
        memory = (*outer, columns // panel, depth + 1, panel)
        slot = self.allocate(dtype, memory, list(range(len(memory))))
        return replace(slot, strides=(*slot.strides[:-3], panel, depth + 1), panel=panel)

    def run_stages(self, stages: list[Stage]) -> None:
        """Emit stages in their order."""
        for stage in stages:
            for op in stage.scalars:
                self.run_scalar(op)
            for nest in stage.nests:
                if nest.roots and nest.roots[0].name in WHOLE:
                    for op in nest.roots:
                        whole.emit(self, op)
                else:
                    NestCode(self, nest).emit()


def _integer(x: V | int) -> V:
    return x if isinstance(x, V) else i64(x)
