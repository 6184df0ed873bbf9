"""One kernel of block IR -> LLVM IR for NVPTX.

A value is held as one LLVM value for each of its elements that a thread has (see layout.py).  Ops are emitted when a
*root* needs them: a reduction, a store or a check.  Roots that can run together form a strip; a strip over dims that
do not fit into registers makes trips, and computes what it shares with other strips again.  All loads of a strip come
first, so that they are in flight together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, product
from math import prod
from typing import Any, NamedTuple

from .. import dtypes, ops
from ..ir import Kernel, Op, Value
from ..llvm import math
from ..llvm.convert import Register, constant, convert, from_memory, memory_type, register_type
from ..llvm.floats import Real
from ..llvm.lanes import Lanes
from ..llvm.text import Text, V
from . import (
    accesses,
    ahead,
    doubles,
    grid,
    layout,
    lookback,
    reduction,
    runs,
    scan,
    scatter,
    singles,
    staging,
    windows,
)
from .layout import Facts, Point, is_const
from .memory import GLOBAL, REMOTE, SHARED, at, both, i32, i64, join, parts, rounding
from .target import Target
from .together import Ways, together

BARRIERS = frozenset(("reduce", "argreduce"))
EFFECTS = frozenset(("store_view", "store_ptr", "check"))
LOADS = frozenset(("load_view", "load_ptr"))
#: Registers that a thread may have, and those that it needs in any case.
MOST_REGISTERS, FEW = 128, 28

Key = tuple[Value, tuple[int, ...]]


class Code(NamedTuple):
    """A kernel's module, and what its launch needs."""

    text: str
    threads: int
    shared: int
    #: Bytes, and bytes a program.
    workspace: tuple[int, int] = (0, 0)
    #: Whether it must be zeroed, or how many bytes of it.
    workspace_zeroed: bool | int = False
    #: Whether it keeps from launch to launch, its first bytes as it found them: zero.
    workspace_kept: bool = False
    #: Programs to launch, where it is not the kernel's number.
    programs: int | None = None
    #: Tensor maps that follow the arguments: see tensor_maps.py.
    maps: tuple[dict[str, Any], ...] = ()
    #: Blocks of a program.
    cluster: int = 1
    #: If not 0: blocks of a processor that together go through all programs.
    resident: int = 0
    #: Whether it waits itself, before it touches memory, for what is queued before it.
    waits: bool = False
    #: Whether it is made of loads, above all, so that one more block of a processor is worth a few spills.
    loads: bool = False


@dataclass(slots=True)
class Group:
    """Roots that one strip computes: a straight line, or trips over `loops`."""

    stage: int
    loops: tuple[str, ...]
    roots: list[Op] = field(default_factory=list)


def generate(kernel: Kernel, target: Target) -> Code:
    return Codegen(kernel, target).generate()


class Codegen:
    #: Bytes of shared memory for exchanges without a barrier between.
    EXCHANGES = 24 << 10

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.facts = Facts(kernel)
        self.serial = layout.is_serial(kernel)
        #: Loads of shifted windows of the same memory.
        self.windows = windows.find(kernel, self.facts)
        self.layout = layout.choose(kernel, target, self.facts, self.windows)
        self.windows = {op: w for op, w in self.windows.items() if not staging.is_crossing(self, op)}
        self.t = Text()
        self.t.rounding = rounding(self.t, target)
        self.allocas: list[str] = []
        self.globals: list[str] = []
        #: Elements and other derived values that may be read here: innermost scope last.
        self.scopes: list[dict[object, Any]] = [{}]
        #: The thread's number in the block, and in the cluster; its first position in each dim.
        self.thread = self.tid = i32(0)
        self.first: dict[str, V] = {}
        #: The program's number, its place on each grid axis, and the extents of its tile.
        self.program = i32(0)
        self.places: list[V] = []
        self.extents: dict[str, V] = {}
        #: Position at which the present trip of a looped dim starts.
        self.base: dict[str, V] = {}
        #: Whether the code being written is for programs at whose end no vector is cut.
        self.divisible = True
        #: Whether it is for programs whose tile ends nowhere within its blocks.
        self.whole = False
        self.loops = 0
        #: Bytes of shared memory that exchanges since the last barrier for it have taken.
        self.exchanged = 0
        #: Whether the cluster's other blocks are known to have begun.
        self.met = False
        #: Barriers so far, and whether shared memory has been used again since the program began.
        self.barriers, self.reused = 0, False
        #: Of scans along looped dims, by row of registers: variables.
        self.carries: dict[Op, list[list[V]]] = {}
        self.dependence = self._find_dependence()
        #: What the strips behind the present one are computed from, and words of two elements that wait for them.
        self.later: set[Op] = set()
        self.packed: list[list[V]] = []
        self.shared = 0
        self.checks = {op: k + 1 for k, op in enumerate(op for op in kernel.walk() if op.name == "check")}
        #: The scan that goes on from program to program, if there is one.
        self.goes_on = lookback.scanned(kernel)
        self.errors = next((p for p in kernel.params if p.name == "errors"), None)
        self.ahead = ahead.Ahead(self)
        self.order = {op: k for k, op in enumerate(kernel.body.ops)}
        if any(op.regions or op.name == "dot" for op in kernel.body.ops):
            raise NotImplementedError(f"kernel @{kernel.name}: this schedule takes no loops, branches or products")

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Code:
        self._parameters()
        # What is queued next may begin as processors fall idle, and so has this: here it meets memory.
        waits = self.target.sm >= 90 and self.goes_on is None
        if waits:
            for what in ("launch_dependents", "wait"):
                self.t.line(f'call void asm sideeffect "griddepcontrol.{what};", "~{{memory}}"() convergent nounwind')
        program = grid.threads(self)
        if self.ahead.areas:
            grid.walk(self, program)
        else:
            grid.place(self, program)
            self.versions()
        self.t.line("ret void")
        params = ", ".join(f"{ty} %{name}" for name, ty in self._signature)
        threads, blocks, cluster = self.layout.threads, self.layout.blocks, self.layout.cluster
        bound = f' "nvvm.minctasm"="{blocks}"' if blocks > 1 else ""
        bound += f' "nvvm.cluster_dim"="{cluster}"' if cluster > 1 else ""
        text = "\n".join((
            "@shared = external addrspace(3) global [0 x i8], align 16", *self.globals,
            f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="{threads}"{bound} {{', "entry:",
            *self.allocas, *self.t.lines, "}", *self.t.declarations.values(), "",
        ))  # fmt: skip
        if self.goes_on:
            return Code(text, threads, self.shared, lookback.workspace(self.goes_on), workspace_zeroed=True)
        resident = blocks if self.ahead.areas else 0
        shared, programs = self.ahead.nbytes + self.shared, scatter.PROGRAMS if self.serial else None
        return Code(text, threads, shared, programs=programs, cluster=cluster, resident=resident, waits=waits)

    def _parameters(self) -> None:
        """Bind the parameters: each is a slot of 8 bytes, a complex scalar two."""
        t = self.t
        self._signature: list[tuple[str, str]] = []
        for k, p in enumerate(self.kernel.params):
            if p.type.pointer:
                self._signature.append((f"p{k}", GLOBAL))
                self.define((p, ()), V(f"%p{k}", GLOBAL))
                continue
            dtype = p.type.dtype
            pieces: list[V] = []
            for suffix in ("r", "i") if dtype in dtypes.COMPLEX else ("",):
                self._signature.append((f"p{k}{suffix}", "i64"))
                elem = memory_type(dtype)
                size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
                bits = t.cast("trunc", V(f"%p{k}{suffix}", "i64"), f"i{8 * size}")
                pieces.append(t.cast("bitcast", bits, elem))
            self.define((p, ()), from_memory(t, join(pieces), dtype))

    def versions(self) -> None:
        """The body, and another one for programs at whose end a vector is cut, if that may be."""
        t = self.t
        cuts: V | None = None
        # Masks of windows are dear, and so are those that are kept while a program waits for others.
        blocks = {name: d.block or 0 for name, d in self.kernel.dims.items() if not self.layout.splits[name].looped}
        dear = bool(self.windows) or self.goes_on is not None
        unmasked = dear and len(blocks) == len(self.kernel.dims) and all(blocks.values())
        if unmasked:
            for dim, block in blocks.items():
                cut = t.cmp("ne", self.extents[dim], i64(block))
                cuts = cut if cuts is None else t.bin("or", cuts, cut)
        else:
            for dim, vector in self.vectors().items():
                if not self.facts.divides_extent(dim, vector):
                    rest = t.bin("and", self.extents[dim], i64(vector - 1))
                    cut = t.cmp("ne", rest, i64(0))
                    cuts = cut if cuts is None else t.bin("or", cuts, cut)
        self.divisible = True
        if cuts is None:
            self._outer(self.layout.outer)
            return
        self.meet()
        whole, cut, done = t.new_label("whole"), t.new_label("cut"), t.new_label("done")
        t.br_if(cuts, cut, whole)
        for label in (whole, cut):
            t.label(label)
            self.divisible = label is whole
            self.whole = unmasked and label is whole
            with self.scope():
                self._outer(self.layout.outer)
            t.br(done)
        t.label(done)

    def vectors(self) -> dict[str, int]:
        """Elements along each dim that masks and accesses take together, where there are several."""
        found = {name: split.vector for name, split in self.layout.splits.items() if split.vector > 1}
        for op in self.kernel.walk():
            if op.name in layout.VIEWS and staging.is_crossing(self, op):
                dim = staging.along(self, op)
                found[dim] = max(found.get(dim, 1), self.facts.width(op, dim))
        return found

    def _outer(self, dims: list[str]) -> None:
        """The body, in trips over parallel dims that are too long for the registers."""
        if dims:
            with self.trips(dims[0]):
                self._outer(dims[1:])
            return
        groups = self._groups()
        for k, group in enumerate(groups):
            self.later = self._behind(groups[k + 1 :])
            self.run_group(group.roots, group.loops)

    # -- strips -------------------------------------------------------------------------------------------------------
    def _groups(self) -> list[Group]:
        """The roots, in strips and in order."""
        stage: dict[Op, int] = {}
        groups: dict[tuple[int, tuple[str, ...]], Group] = {}
        written: dict[Value, int] = {}
        for op in self.kernel.body.ops:
            own = max([stage[v.op] + (v.op.name in BARRIERS) for v in op.operands if v.op in stage], default=0)
            if op.name in LOADS:
                own = max(own, written.get(op.operands[0], -1) + 1)
            stage[op] = own
            root = op.name in EFFECTS or (op.name in BARRIERS and not self.layout.looped(op.result.type.extents))
            if not root:
                continue
            if op.name in ("store_view", "store_ptr"):
                own = max([own, *(g.stage for g in groups.values() if self._reads(g, op.operands[1]))])
                written[op.operands[1]] = own
            loops = self.layout.looped(self.loop_extents(op))
            groups.setdefault((own, loops), Group(own, loops)).roots.append(op)
        return sorted(groups.values(), key=lambda g: (g.stage, len(g.loops)))

    @staticmethod
    def loop_extents(root: Op) -> tuple[int | str, ...]:
        """The tile that a root goes through."""
        return root.operands[2 if root.name == "store_ptr" else 0].type.extents

    def _behind(self, groups: Sequence[Group]) -> set[Op]:
        """All that the roots of strips are computed from."""
        found: set[Op] = set()
        stack = [op for g in groups for root in g.roots for v in root.operands if (op := v.op) is not None]
        while stack:
            op = stack.pop()
            if op not in found:
                found.add(op)
                stack.extend(v.op for v in op.operands if v.op is not None)
        return found

    def _reads(self, group: Group, pointer: Value) -> bool:
        return any(op.name in LOADS and op.operands[0] is pointer for op in self.needed(group.roots))

    def needed(self, roots: Iterable[Op]) -> list[Op]:
        """The ops that roots are computed from and that are not computed yet, in order."""
        found: set[Op] = set()
        stack = [op for root in roots for v in root.operands if (op := v.op) is not None]
        while stack:
            op = stack.pop()
            if op in found or self.lookup(("all", op)) is not None:
                continue
            found.add(op)
            stack.extend(v.op for v in op.operands if v.op is not None)
        return sorted(found, key=self.order.__getitem__)

    def run_group(self, roots: list[Op], loops: tuple[str, ...], open_: tuple[str, ...] = ()) -> None:
        """Emit a strip.  `open_` are the looped dims that a trip is being made over already."""
        extra = tuple([d for d in loops if d not in open_])
        across = [reduction.Reduction(self, op) for op in roots if op.name in BARRIERS]
        effects = [op for op in roots if op.name in EFFECTS]
        if extra:
            # What does not change from trip to trip.
            self.compute([op for op in self.needed(roots) if not set(extra) & self.dependence[op]], open_)
            for r in across:
                r.open()
        scans: dict[str, list[Op]] = {}
        for op in self.needed(roots):
            if op.name == "scan":
                dim = str(op.result.type.extents[op.attrs["dim"]])
                if dim in extra:
                    scans.setdefault(dim, []).append(op)
                elif dim in open_ and set(extra) & self.dependence[op]:
                    raise NotImplementedError(f"kernel @{self.kernel.name}: a scan along {dim} in trips inside its own")
        if len(scans) > 1:
            raise NotImplementedError(f"kernel @{self.kernel.name}: scans along {' and '.join(scans)} in one strip")
        # A scan begins again at each position in the other dims, and what others need reduced is reduced there.
        inner = {*scans, *(d for op in self.needed(roots) for d in self._reduced(op))}
        extra = tuple(sorted(extra, key=lambda d: d in inner))
        if any(set(open_) & self._reduced(op) for op in roots):
            raise NotImplementedError(f"kernel @{self.kernel.name}: a reduction along a dim that is walked around it")
        if not extra and not open_ and runs.is_large(self, self.loop_extents(roots[0])):
            runs.run_strip(self, roots, across, effects)
            reduction.finish(self, across)
            runs.settle(self)
            return
        with self._nest(extra, scans, roots, open_):
            self.compute(self.needed(roots), (*open_, *extra))
            for r in across:
                r.update(list(self.points(r.extents)))
            for op in effects:
                accesses.effect(self, op, list(self.points(self.loop_extents(op))))
        reduction.finish(self, across)

    def _reduced(self, op: Op) -> set[str]:
        """The looped dims that a reduction goes along."""
        if op.name not in BARRIERS:
            return set()
        extents = op.operands[0].type.extents
        return set(self.layout.looped(tuple([extents[d] for d in op.attrs["dims"]])))

    def _find_dependence(self) -> dict[Op, set[str]]:
        """The looped dims that an op's value, or what it is computed from, varies along."""
        found: dict[Op, set[str]] = {}
        for op in self.kernel.body.ops:
            if op.results:
                found[op] = set(self.layout.looped(op.result.type.extents))
                if op.name not in BARRIERS:
                    found[op].update(*(found[v.op] for v in op.operands if v.op in found))
        return found

    def compute(self, ops: Sequence[Op], inside: tuple[str, ...]) -> None:
        """Emit ops: first what threads do together and loads, then the rest point by point."""
        # What varies along other looped dims is computed in the trips of the reductions that need it.
        ops = [op for op in ops if self.dependence[op] <= set(inside)]
        room = self._room(ops)
        rest: list[Op] = []
        for k, op in enumerate(ops):
            if op.name in BARRIERS:
                self.run_group([op], self.layout.looped(op.operands[0].type.extents), inside)
            elif op.name == "scan":
                self._points(self._before(ops[:k], op), op.operands[0].type.extents)
                scan.emit(self, op)
            elif op.name == "load_view" and staging.is_crossing(self, op):
                self._points(self._before(ops[:k], op), ())
                staging.load_tile(self, op)
            elif op.name in LOADS and (nbytes := self._bytes(op)) <= room:
                room -= nbytes
                self._points([*self._before(ops[:k], op), op], op.result.type.extents)
            else:
                rest.append(op)
                continue
            self.define(("all", op), True)
        extents = tuple(dict.fromkeys(e for op in rest for e in op.result.type.extents))
        self._points(rest, extents)
        for op in rest:
            self.define(("all", op), True)

    def count(self, extents: Iterable[int | str]) -> int:
        """A thread's elements of a tile."""
        return prod(self.layout.splits[str(e)].registers for e in extents)

    def _bytes(self, op: Op) -> int:
        count = windows.count(self, op) if op in self.windows else self.count(op.result.type.extents)
        return dtypes.SIZE[op.result.type.dtype] * count

    def _room(self, ops: Sequence[Op]) -> int:
        """Bytes of registers that are free for loads in flight, beside what the ops read that is there already."""
        held = {v.op for op in ops for v in op.operands if v.op is not None and v.op not in ops}
        registers = min(MOST_REGISTERS, layout.REGISTER_FILE // (self.layout.threads * self.layout.blocks))
        free = max(registers - FEW, registers // 2)
        return 4 * free - sum(self._bytes(op) for op in held if op.name != "broadcast")

    def _before(self, ops: Sequence[Op], op: Op) -> list[Op]:
        """Those of `ops` that `op` is computed from, and that are not computed yet."""
        wanted = set(self.needed([op]))
        return [o for o in ops if o in wanted]

    def points(self, extents: Iterable[int | str]) -> Iterator[dict[str, int]]:
        """The registers of a tile."""
        names = [str(e) for e in extents]
        for numbers in product(*[range(self.layout.splits[n].registers) for n in names]):
            yield dict(zip(names, numbers, strict=True))

    def _points(self, ops: Sequence[Op], extents: tuple[int | str, ...]) -> None:
        names = dict.fromkeys((*extents, *(e for op in ops for e in op.result.type.extents)))
        self.emit_points(ops, list(self.points(names)))

    def emit_points(self, ops: Sequence[Op], points: Sequence[Point]) -> None:
        """Emit the ops' elements at some points."""
        # Elements that share branches go through all ops before the next ones do.
        n = min([ways.elements for op in ops if (ways := self._ways(op)) is not None], default=1)
        for few in (points[k : k + n] for k in range(0, len(points), n)):
            for ways, group in groupby(ops, self._ways):
                if ways is not None:
                    for op in group:
                        self._elements(op, ways, few)
                    continue
                group = list(group)
                for point in few:
                    for op in group:
                        self._element(op, point)

    # -- elements -----------------------------------------------------------------------------------------------------
    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.scopes.pop()

    def lookup(self, key: object) -> Any:
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def define(self, key: object, reg: Any) -> None:
        self.scopes[-1][key] = reg

    def memo(self, key: object, make: Callable[[], V]) -> V:
        found = self.lookup(key)
        if found is None:
            found = make()
            self.define(key, found)
        assert isinstance(found, V)
        return found

    @staticmethod
    def key(value: Value, point: Point) -> Key:
        return value, tuple([point[str(e)] for e in value.type.extents])

    def get(self, value: Value, point: Point) -> Register:
        """A value's element at a point, which has been computed."""
        while value.op is not None and value.op.name == "broadcast":
            value = value.op.operands[0]
        found = self.lookup(self.key(value, point))
        assert found is not None, f"{value} is not computed"
        return found.get(self.t) if isinstance(found, runs.Packed) else found

    def integer(self, value: Value) -> V:
        """A scalar i64 (or a pointer)."""
        found = self.lookup((value, ()))
        if found is None:
            for op in [*self.needed([value.op] if value.op else []), value.op]:
                assert op is not None
                self._element(op, {})
            found = self.lookup((value, ()))
        assert isinstance(found, V)
        return found

    def integer_at(self, value: Value, point: Point) -> V:
        """An i64's element."""
        (found,) = parts(self.get(value, point))
        return found

    def _ways(self, op: Op) -> Ways | None:
        """The op's code, if a branch for rare operands serves several elements."""
        dtype = op.result.type.dtype if op.results else ""
        if op.name not in ops.TABLE or dtype != op.operands[0].type.dtype:
            return None
        of_singles = singles.FAST if self.layout.walked else singles.STREAMING
        return {"f32": of_singles, "f64": doubles.FAST}.get(dtype, {}).get(op.name)

    def _elements(self, op: Op, ways: Ways, points: Sequence[Point]) -> None:
        """Emit elements of an op that is emitted for all of them together."""
        wanted = {key: p for p in points if self.lookup(key := self.key(op.result, p)) is None}
        if not wanted:
            return
        rows = [[self.get(v, p) for v in op.operands] for p in wanted.values()]
        lanes = [[Lanes(self.t, x) for x in row if isinstance(x, V)] for row in rows]
        found = together(Real(op.result.type.dtype, self.target), ways, lanes)
        for key, v in zip(wanted, found, strict=True):
            self.define(key, v)

    def _element(self, op: Op, point: Point) -> None:
        """Emit one element of an op."""
        if op.name == "broadcast" or self.lookup(self.key(op.result, point)) is not None:
            return
        t, dtype = self.t, op.result.type.dtype
        match op.name:
            case "const":
                reg: Register = constant(t, op.attrs["value"], dtype)
            case "program_id":
                reg = self.places[op.attrs["axis"]]
            case "dim_start":
                reg = self.start(op.attrs["dim"])
            case "dim_extent":
                reg = self.extents[op.attrs["dim"]]
            case "iota":
                (name,) = op.result.type.extents
                reg = self.position(str(name), point[str(name)])
            case "cast":
                reg = convert(t, self.get(op.operands[0], point), op.operands[0].type.dtype, dtype)
            case "load_view" if op in self.windows:
                reg = windows.element(self, op, point)
            case "load_view":
                accesses.load_view(self, op, point)
                return
            case "load_ptr":
                reg = accesses.load_ptr(self, op, point)
            case _:
                args = [self.get(v, point) for v in op.operands]
                reg = self.combine(op.name, args, [v.type.dtype for v in op.operands], dtype)
        self.define(self.key(op.result, point), reg)

    def combine(self, name: str, args: Sequence[Register], given: Sequence[str], out: str) -> Register:
        return math.emit(self.t, name, args, given, out, self.target)

    # -- positions ----------------------------------------------------------------------------------------------------
    def start(self, dim: str) -> V:
        """First position of this program's block of a dim."""
        d = self.kernel.dims[dim]
        if d.block is None or d.axis is None:
            return i64(0)
        axis, block = d.axis, d.block
        return self.memo(("start", dim), lambda: self.t.bin("mul", self.places[axis], i64(block)))

    def first64(self, dim: str) -> V:
        """The thread's first position of the present trip."""

        def make() -> V:
            wide = self.t.cast("zext", self.first[dim], "i64")
            return self.t.bin("add", wide, self.base[dim]) if dim in self.base else wide

        return self.memo(("first", dim), make)

    def position(self, dim: str, register: int) -> V:
        offset = self.layout.splits[dim].offset(register)
        return self.t.bin("add", self.first64(dim), i64(offset)) if offset else self.first64(dim)

    def inside(self, dim: str, register: int) -> V:
        """Whether a register's position is in the tile."""
        split = self.layout.splits[dim]
        if self.whole_vectors(dim, split.vector):
            register -= register % split.vector

        def make() -> V:
            t = self.t
            here = t.bin("add", self.first[dim], i32(split.offset(register)))
            return t.cmp("slt", here, self.memo(("limit", dim), lambda: self._limit(dim)))

        return self.memo(("inside", dim, register), make)

    def _limit(self, dim: str) -> V:
        """Positions of the present trip, as an i32."""
        t, extent = self.t, self.extents[dim]
        if dim in self.base:
            extent = t.bin("sub", extent, self.base[dim])
        # Unbounded extents can exceed 32 bits.
        extent = t.call("llvm.smin.i64", "i64", [extent, i64(1 << 30)])
        return t.cast("trunc", extent, "i32")

    def whole_vectors(self, dim: str, vector: int) -> bool:
        """Whether the end of the tile never cuts a vector."""
        return self.divisible or self.facts.divides_extent(dim, vector)

    def mask(self, extents: Iterable[int | str], point: Point) -> V | None:
        """Whether a point lies in the tile."""
        if self.whole:
            return None
        found: V | None = None
        for e in extents:
            found = both(self.t, found, self.inside(str(e), point[str(e)]))
        return found

    def writer(self, extents: Iterable[int | str]) -> V | None:
        """Whether this thread is the one that stores a tile's elements, of all that hold them."""
        names = set(extents)
        others = 0
        for name, split in self.layout.splits.items():
            if name not in names:
                others |= (split.threads - 1) << split.shift
        others |= (self.layout.threads - 1) & ~(self.layout.active - 1)
        if not others:
            return None
        t = self.t
        return self.memo(("writer", others), lambda: t.cmp("eq", t.bin("and", self.tid, i32(others)), i32(0)))

    # -- loads and stores ---------------------------------------------------------------------------------------------
    def address(self, op: Op, point: Point) -> V:
        """The address of a view's element."""
        extents = layout.view(op)[3]
        return self.address_of(op, [self.layout.splits[str(e)].offset(point[str(e)]) for e in extents])

    def address_of(self, op: Op, positions: Sequence[int]) -> V:
        """The address of a view's element at some positions behind the thread's first ones."""
        t = self.t
        pointer, _, strides, _ = layout.view(op)
        size = dtypes.SIZE[pointer.type.dtype]
        ptr = self.memo(("base", op), lambda: self._base(op))
        fixed = 0
        for offset, s in zip(positions, strides, strict=True):
            if s.op is not None and s.op.name == "const":
                fixed += offset * s.op.attrs["value"]
            elif offset:
                step = self.memo(
                    ("step", s, offset, size),
                    lambda: t.bin("mul", self.integer(s), i64(offset * size)),  # noqa: B023
                )
                ptr = at(t, ptr, step)
        return at(t, ptr, fixed * size)

    def _base(self, op: Op) -> V:
        """The address of the thread's first element of a view."""
        t = self.t
        pointer, offset, strides, extents = layout.view(op)
        total = self.integer(offset)
        for e, s in zip(extents, strides, strict=True):
            if not is_const(s, 0):
                total = t.bin("add", total, t.bin("mul", self.first64(str(e)), self.integer(s)))
        nbytes = t.bin("mul", total, i64(dtypes.SIZE[pointer.type.dtype]))
        return at(t, self.integer(pointer), nbytes)

    def width(self, op: Op) -> int:
        """Elements along the lane dim that one access of a view moves."""
        lane = self.layout.lane
        if lane is None or not self.whole_vectors(lane, self.layout.splits[lane].vector):
            return 1
        return min(max(1, self.facts.width(op, lane)), self.layout.splits[lane].vector)

    # -- loops --------------------------------------------------------------------------------------------------------
    def alloca(self, ty: str) -> V:
        """A variable; LLVM makes registers of it."""
        ref = self.t.fresh("a")
        self.allocas.append(f"  {ref} = alloca {ty}")
        return V(ref, "ptr")

    def variable(self, dtype: str) -> list[V]:
        return [self.alloca(register_type(dtype)) for _ in range(2 if dtype in dtypes.COMPLEX else 1)]

    def read(self, cells: Sequence[V], dtype: str) -> Register:
        ty = register_type(dtype)
        return join([self.t.op(f"load {ty}, {c}", ty) for c in cells])

    def write(self, cells: Sequence[V], reg: Register) -> None:
        for cell, v in zip(cells, parts(reg), strict=True):
            self.t.line(f"store {v}, {cell}")

    @contextmanager
    def _nest(
        self, dims: Sequence[str], scans: Mapping[str, Sequence[Op]], roots: Sequence[Op], inside: tuple[str, ...]
    ) -> Iterator[None]:
        """Trips over dims, the first outermost, and over the dims that scans go along; what does not vary along the
        inner dims is computed outside their trips."""
        if not dims:
            yield
            return
        for op in scans.get(dims[0], ()):
            scan.open_(self, op)
        inside = (*inside, dims[0])
        with self.trips(dims[0]):
            if len(dims) > 1:
                self.compute(self.needed(roots), inside)
            with self._nest(dims[1:], scans, roots, inside):
                yield

    @contextmanager
    def trips(self, dim: str) -> Iterator[None]:
        """Code that is run for each trip over a dim."""
        t, split = self.t, self.layout.splits[dim]
        self.meet()
        head, body, done = t.new_label("head"), t.new_label("trip"), t.new_label("end")
        cell = self.alloca("i64")
        t.line(f"store i64 0, {cell}")
        t.br(head)
        t.label(head)
        position = t.op(f"load i64, {cell}", "i64")
        t.br_if(t.cmp("slt", position, self.extents[dim]), body, done)
        t.label(body)
        self.base[dim] = position
        self.loops += 1
        with self.scope():
            yield
        self.loops -= 1
        del self.base[dim]
        t.line(f"store {t.bin('add', position, i64(split.chunk))}, {cell}")
        t.br(head)
        t.label(done)

    @property
    def workspace(self) -> Value:
        found = next((p for p in self.kernel.params if p.name == "workspace"), None)
        if found is None:
            raise ValueError(f"kernel @{self.kernel.name} needs a parameter %workspace")
        return found

    # -- the block's threads together ---------------------------------------------------------------------------------
    def barrier(self) -> None:
        self.barriers += 1
        if self.layout.cluster > 1:
            self.cluster_barrier("arrive")
            self.cluster_barrier("wait")
            return
        self.t.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [i32(0)], "convergent nounwind")

    def cluster_barrier(self, side: str) -> None:
        self.t.call(f"llvm.nvvm.barrier.cluster.{side}.aligned", "void", [], "convergent nounwind")

    def meet(self) -> None:
        """Before the first exchange: wait until the cluster's other blocks have begun and so have shared memory."""
        if self.layout.cluster > 1 and not self.met:
            self.cluster_barrier("wait")
            self.met = True

    def remote(self, place: V, block: V) -> V:
        """Where a place in shared memory is in another block of the cluster."""
        return self.t.call("llvm.nvvm.mapa.shared.cluster", REMOTE, [place, block], "nounwind memory(none)")

    def exchange(self, nbytes: int) -> V:
        """Shared memory for one exchange between threads, in each block of a cluster; what was there has been read by
        all."""
        self.meet()
        nbytes = -(-nbytes // 16) * 16
        if self.loops or self.exchanged + nbytes > self.EXCHANGES:
            self.barrier()
            self.exchanged, self.reused = 0, True
        where = self.exchanged
        self.exchanged += nbytes
        self.shared = max(self.shared, self.exchanged)
        return at(self.t, V("@shared", SHARED), self.ahead.nbytes + where)
