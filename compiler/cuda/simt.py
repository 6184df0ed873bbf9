"""The schedule of products that multiplies in the ordinary arithmetic units; see gemm.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import dtypes, ir, ops
from ..llvm import math
from ..llvm.convert import constant, register_type
from ..llvm.text import V, vector
from ..slices import sides, slice_of
from . import memory
from .codegen import Code as Generated
from .elements import Code, Elements, scaled
from .layout import Facts
from .memory import SHARED, i32, i64, join, parts
from .panels import Loader, Plane, Side
from .results import Results
from .target import Target

#: Elements of k in a step, for elements of up to 4 bytes.
STEP = 16
#: Bytes of shared memory for both buffers, so that several blocks share a processor.
PANELS = 64 << 10
#: Elements between rows of a panel that copies turn: eight threads' elements of 4 bytes along k, in four rows, lie in
#: different banks.
PADDING = 4
#: Bytes of shared memory with which the largest tiles have deeper steps, of which there are fewer to begin.
DEEP = 160 << 10
#: Bytes of a barrier in shared memory.
MEETING = 8
#: Bytes of shared memory that a block has besides.
RESERVED = 1 << 10
#: Bytes that memory gives at once.
SECTOR = 32
#: Rows of blocks whose columns are walked before the next rows: they share what they read in the L2 cache.
GROUP = 8
#: Variables for the sums, by row, column and part.
Sums = list[list[list[V]]]
BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
#: (least rows and columns of a tile, rows and columns of a thread), by bytes of an accumulator, best first.
Tiles = tuple[tuple[tuple[int, int], tuple[int, int]], ...]
_TILES: dict[int, Tiles] = {
    4: (((128, 128), (8, 8)), ((64, 64), (8, 4)), ((32, 32), (4, 4)), ((16, 16), (2, 2))),
    8: (((128, 64), (8, 4)), ((64, 64), (4, 4)), ((32, 32), (4, 4)), ((16, 16), (2, 2))),
    16: (((64, 64), (4, 4)), ((32, 32), (4, 2)), ((16, 16), (2, 2))),
}
#: Of products proper: with so many sums a thread, shared memory is read faster than they are added to.
_LARGE: dict[str, Tiles] = {
    **dict.fromkeys(("f32", "i32", "u32"), (((128, 256), (8, 16)), ((128, 128), (8, 16)))),
    "c64": (((128, 128), (8, 8)), ((128, 64), (8, 8))),
}
#: The axes that the bits of a warp's lanes count along: it reads few different elements of either side, and in each
#: half of it pairs of lanes read the same ones.
_LANES = (1, 0, 1, 1, 0)


def fits(tile: tuple[int, int], block: tuple[int, ...]) -> bool:
    """Whether a product's block is made of whole tiles."""
    return all(extent and extent % side == 0 for side, extent in zip(tile, block, strict=True))


def product_of(kernel: ir.Kernel) -> ir.Op:
    """The op that a kernel is a product by."""
    return min((op for op in kernel.body.ops if op.name in ("dot", "reduce")), key=lambda op: op.name != "dot")


class Simt:
    """Generates the code of one kernel."""

    loader: type[Loader] = Loader
    #: Buffers for panels where operands are copied past the registers (else 2), and what their addresses are
    #: multiples of.
    stages = 4
    alignment = 16
    #: Blocks that share a processor where their sums leave room.
    blocks = 2
    #: Elements that one load takes at most.
    widest = 16
    #: Rows of tiles that are walked together.
    together = GROUP
    #: Instructions that the multiplication of a step may be unrolled to.
    unrolled = 1024
    #: Whether panels lie as memory does, and whether steps are multiplied as a whole, past the end of k, too.
    natural = False
    padded = False
    #: Whether the end of a step already reads from the next one's panels, which takes registers, and whether threads
    #: then tell each other before that that they are there, and go on, instead of waiting where a step begins.
    eager = False
    loose = False

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.root = product_of(kernel)
        self.kernel = kernel
        self.target = target
        self.together = kernel.attrs.get("together", self.together)
        self.facts = Facts(kernel)
        self.dtype = self._multiplied()
        #: What sums are held as: registers of `wide`, narrow integers in 32 bits.
        self.wide = self._accumulated()
        self.inner: list[ir.Op] = []
        (self.m, self.k, self.n), values = self._sides()
        self.block = tuple(kernel.dims[d].block or 0 for d in (self.m, self.n))
        #: Rows and columns of a tile, and of it those that a thread has.
        (self.rows, self.columns), (self.high, self.broad) = self._tile()
        self.threads = self.rows * self.columns // (self.high * self.broad)
        self.a = self._side(values[0], self.m, self.rows)
        self.b = self._side(values[1], self.n, self.columns)
        self.step = self._step()
        for side in (self.a, self.b):
            self._access(side)
        #: Whether both operands are copied past the registers.
        self.ahead = self._copies()
        if self.ahead:
            self._arrange()
        else:
            self.stages = 2
        self.t = Code(target)
        self.e = Elements(self.t, kernel, target)

    # -- choices ------------------------------------------------------------------------------------------------------
    def _multiplied(self) -> str:
        """The dtype that is multiplied."""
        return self.root.result.type.dtype

    def _sides(self) -> tuple[list[str], tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]]:
        """The dims m, k and n, and the values of each side that are multiplied."""
        if self.root.name == "dot":
            a, b = self.root.operands[:2]
            return [*map(str, a.type.extents), str(b.type.extents[1])], ((a,), (b,))
        self.m, self.k, self.n = map(str, self.root.operands[0].type.extents)
        self.inner, values = sides(self.root.operands[0], self.kernel.body, self.m, self.n)
        return [self.m, self.k, self.n], values

    def _accumulated(self) -> str:
        """The dtype of sums."""
        return "f32" if self.dtype in dtypes.NARROW else self.dtype

    def _tile(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """A tile's rows and columns, and those of a thread."""
        tiles = _TILES[max(4, dtypes.SIZE[self.wide])]
        if self.root.name == "dot" and self.wide in _LARGE:
            tiles = *_LARGE[self.wide], *tiles
        for tile, thread in tiles:
            if fits(tile, self.block):
                return tile, thread
        raise NotImplementedError("a product's block must be of tiles of 16 by 16")

    def _side(self, values: tuple[ir.Value, ...], dim: str, extent: int) -> Side:
        planes = []
        for value in values:
            register = register_type(self.held(value))
            stored = "i32" if register in ("i1", "i8", "i16") else register
            planes.append(Plane(value, 2 if value.type.dtype in dtypes.COMPLEX else 1, register, stored))
        needed = [op for op in slice_of(values, self.kernel.body) if op.result.type.extents]
        return Side(values, dim, extent, extent, needed, planes)

    def held(self, value: ir.Value) -> str:
        """The dtype that a side's value has in shared memory."""
        return self.dtype if self.root.name == "dot" else value.type.dtype

    def _residents(self) -> int:
        """Blocks that share a processor, which bounds the registers of a thread."""
        size = dtypes.SIZE[self.wide]
        fits = self.threads * self.high * self.broad * size <= 1 << 16
        return self.blocks if fits and (size <= 4 or self.wide == "c64") else 1

    def _step(self) -> int:
        """Elements of k in a step."""
        bytes_ = 2 * sum(p.size * side.extent for side in (self.a, self.b) for p in side.planes)
        # Small tiles have few loads in flight at a time: deeper steps make up for that.
        step = STEP * (4 if self.rows <= 16 else 2 if self.rows <= 64 else 1)
        while step > 1 and step * bytes_ > min(PANELS, self.target.shared):
            step //= 2
        return step

    def _access(self, side: Side) -> None:
        """Choose the direction of a side's loads, and their width."""
        votes: dict[bool, int] = {False: 1, True: 0}
        widths: dict[bool, int] = {False: self.widest, True: self.widest}
        for op in side.ops:
            if op.name == "load_view":
                for deep, dim in ((False, side.dim), (True, self.k)):
                    width = self.facts.width(op, dim)
                    if width:
                        votes[deep] += 2 * len(op.result.type.extents)
                        widths[deep] = min(widths[deep], width)
        side.deep = votes[True] > votes[False]
        along, extent = (self.k, self.step) if side.deep else (side.dim, side.extent)
        width = min(widths[side.deep], extent) if votes[side.deep] > 1 else 1
        while width > 1 and not self.facts.divides_extent(along, width):
            width //= 2
        side.width = width

    def _copies(self) -> bool:
        """Whether both operands can be copied to shared memory as they are."""
        if self.root.name != "dot" or not self.target.async_copy:
            return False
        return all(self._plain(side) and side.planes[0].register == side.planes[0].stored for side in (self.a, self.b))

    def _plain(self, side: Side) -> bool:
        """Whether an operand lies in memory as it is multiplied."""
        (value,) = side.values
        return value.op is not None and value.op.name == "load_view" and value.type.dtype == self.held(value)

    def _arrange(self) -> None:
        """Lay out panels that operands are copied to: along rows or columns; copies of single elements turn them."""
        for side in (self.a, self.b):
            side.pitch += PADDING
            side.width = 1 if side.deep else side.width
        self.eager = True
        if self.threads == 256 and self.target.shared >= DEEP and dtypes.SIZE[self.wide] == 4:
            self.step, self.stages = 2 * STEP, 3

    # -- the module ---------------------------------------------------------------------------------------------------
    def generate(self) -> Generated:
        t, e, kernel = self.t, self.e, self.kernel
        e.run([op for op in kernel.body.ops if op.name == "const" and not op.result.type.extents], {})
        self._place()
        self.panels = 0
        for side in (self.a, self.b):
            sizes = [self._panel(side) * p.size for p in side.planes]
            side.offsets = tuple(self.panels + sum(sizes[:i]) for i in range(len(sizes)))
            self.panels += sum(sizes)
        if self.ahead:
            room = self.target.shared // self._residents() - RESERVED
            self.stages = max(2, min(self.stages, room // self.panels))
            self.eager = self.eager and self.stages > 2
            self.loose = self.loose and self.eager and self.stages > 3
        self._threads()
        for side in (self.a, self.b):
            self._units(side)
        if self.loose:
            self._make_meeting()
        counts = [b // s for b, s in zip(self.block, (self.rows, self.columns), strict=True)]
        extents = [self._extent(d) for d in (self.m, self.n)]
        if counts == [1, 1]:
            self._tile_at([i64(0), i64(0)], extents)
        else:
            with t.for_(extents[0], self.rows) as row, t.for_(extents[1], self.columns) as column:
                self._tile_at([row, column], extents)
                t.line(BARRIER)
        t.declare("llvm.nvvm.barrier.cta.sync.aligned.all", "void", ["i32"], "convergent nounwind")
        t.line("ret void")
        params = ", ".join(f"{ty} {ref}" for ty, ref in e.signature)
        bounds = f'"nvvm.reqntid"="{self.threads}" "nvvm.minctasm"="{self._residents()}"'
        text = "\n".join((
            f"@shared = external addrspace(3) global [0 x i8], align {self.alignment}",
            f"define ptx_kernel void @kernel({params}) {bounds} {{", "entry:",
            *t.allocas, *t.lines, "}", *t.declarations.values(), "",
        ))  # fmt: skip
        return Generated(text, self.threads, self.stages * self.panels + (MEETING if self.loose else 0))

    def _extent(self, dim: str) -> V:
        """Positions of the program's block."""
        d = self.kernel.dims[dim]
        left = self.t.bin("sub", self.e.integer(d.size), self.starts[dim])
        return self.t.call("llvm.smin.i64", "i64", [left, i64(d.block or 0)])

    def _place(self) -> None:
        """Find the program's place: its numbers on the grid's axes."""
        t = self.t
        linear = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        self.tid = t.call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", [], "nounwind memory(none)")
        self._start(self._places(linear, self._counts()))

    def _counts(self) -> list[V]:
        """Programs along the grid's axes."""
        t, counts = self.t, []
        for axis in self.kernel.grid:
            size = self.e.integer(axis.size)
            if axis.block != 1:
                size = t.bin("udiv", t.bin("add", size, i64(axis.block - 1)), i64(axis.block))
            counts.append(t.cast("trunc", size, "i32"))
        return counts

    def _places(self, linear: V, counts: Sequence[V]) -> list[V]:
        """A program's numbers on the grid's axes."""
        t, kernel = self.t, self.kernel
        places: list[V] = [i32(0)] * len(counts)
        last = [axis for d in (self.m, self.n) if (axis := kernel.dims[d].axis) is not None]
        rest = list(range(len(counts)))
        if sorted(last) == rest[-2:]:
            rows, columns = (counts[axis] for axis in last)
            whole = t.bin("mul", rows, columns)
            inside = t.bin("urem", linear, whole)
            linear = t.bin("udiv", linear, whole)
            width = t.bin("mul", columns, i32(self.together))
            first = t.bin("mul", t.bin("udiv", inside, width), i32(self.together))
            high = t.call("llvm.umin.i32", "i32", [t.bin("sub", rows, first), i32(self.together)])
            within = t.bin("urem", inside, width)
            places[last[0]] = t.bin("add", first, t.bin("urem", within, high))
            places[last[1]] = t.bin("udiv", within, high)
            del rest[-2:]
        for axis in reversed(rest):
            places[axis] = t.bin("urem", linear, counts[axis])
            linear = t.bin("udiv", linear, counts[axis])
        return places

    def _start(self, places: Sequence[V]) -> None:
        """Tell where the program's tile starts."""
        t = self.t
        programs = [t.cast("zext", p, "i64") for p in places]
        self.starts = {}
        for name, dim in self.kernel.dims.items():
            self.starts[name] = i64(0) if dim.axis is None else t.bin("mul", programs[dim.axis], i64(dim.block or 1))
        self.e.place(programs, self.starts)

    def _panel(self, side: Side) -> int:
        """Elements of a side's panel."""
        return self.step * side.pitch

    def place(self, side: Side, row: V, column: V, size: int) -> V:
        """Byte offset in a panel of an element; rows are those of memory."""
        if side.deep:
            row, column = column, row
        return self._times(self.t.bin("add", self._times(row, side.pitch), column), size)

    def _threads(self) -> None:
        """The thread's place in the tile: rows and columns of its elements."""
        t, tid = self.t, self.tid
        left = [self.rows // self.high, self.columns // self.broad]
        places: list[V] = [i32(0), i32(0)]
        counts = [1, 1]
        for number in range(self.threads.bit_length() - 1):
            axis = _LANES[number] if number < len(_LANES) else 1
            axis = axis if left[axis] > 1 else 1 - axis
            bit = t.bin("and", t.bin("lshr", tid, i32(number)), i32(1))
            places[axis] = t.bin("or", places[axis], self._times(bit, counts[axis]))
            counts[axis] *= 2
            left[axis] //= 2
        element = max(p.size for side in (self.a, self.b) for p in side.planes)
        self.run = [min(max(1, 16 // element), n) for n in (self.high, self.broad)]
        self.down, self.across = (self._times(place, run) for place, run in zip(places, self.run, strict=True))

    def _units(self, side: Side) -> None:
        """What each thread loads in a step: neighbours load neighbours, or store them."""
        t, tid = self.t, self.tid
        lines, depths = (side.extent, self.step // side.width) if side.deep else (side.extent // side.width, self.step)
        if side.deep and self.ahead and not self.natural:
            near = min(depths, SECTOR // side.planes[0].size)
            order = ((1, near, 1), (0, lines, 1), (1, depths // near, near))
        elif side.deep and not self.natural:
            order = ((0, lines, 1), (1, depths, side.width))
        elif side.deep:
            order = ((1, depths, side.width), (0, lines, 1))
        else:
            order = ((0, lines, side.width), (1, depths, 1))
        count = lines * depths
        here: list[V] = [i32(0), i32(0)]
        step = 1
        for axis, extent, scale in order:
            part = t.bin("and", t.bin("lshr", tid, i32(step.bit_length() - 1)), i32(extent - 1))
            here[axis] = t.bin("or", here[axis], self._times(part, scale))
            step *= extent
        shifts = []
        for rest in range(0, count, self.threads):
            shift = [0, 0]
            for axis, extent, scale in order:
                rest, field = divmod(rest, extent)
                shift[axis] += field * scale
            shifts.append((shift[0], shift[1]))
        side.shifts = tuple(shifts)
        side.units = tuple(
            (t.cast("zext", t.bin("add", here[0], i32(x)), "i64"), t.cast("zext", t.bin("add", here[1], i32(y)), "i64"))
            for x, y in shifts
        )
        side.spare = t.cmp("ult", tid, i32(count)) if count < self.threads else None

    def _times(self, x: V, n: int) -> V:
        return x if n == 1 else self.t.bin("mul", x, i32(n))

    def _offset(self, index: int, axis: int) -> int:
        """Position of a thread's row or column beyond its first one."""
        run = self.run[axis]
        threads = (self.rows // self.high, self.columns // self.broad)[axis]
        return index // run * run * threads + index % run

    # -- a tile -------------------------------------------------------------------------------------------------------
    def _tile_at(self, origin: Sequence[V], extents: Sequence[V]) -> None:
        e = self.e
        with e.scope():
            sums = self._sums()
            depth = e.integer(self.kernel.dims[self.k].size)
            loaders = [
                self.loader(self, side, first, extent)
                for side, first, extent in zip((self.a, self.b), origin, extents, strict=True)
            ]
            self._walk(sums, loaders, depth)
            self._finish(sums, origin, extents)

    def _walk(self, sums: Sums, loaders: Sequence[Loader], depth: V) -> None:
        """Walk k: multiply one step's panels while the next step's are loaded.

        The last step is by itself, with all registers to it: a product with few elements of k is nothing else.
        """
        if self.ahead:
            self._walk_ahead(sums, loaders, depth)
            return
        t = self.t
        some = t.cmp("sgt", depth, i64(0))
        with t.if_(some):
            for loader in loaders:
                loader.fetch(i64(0), depth)
                loader.put(i64(0))
        self._synchronize()
        number = lambda k: t.bin("lshr", k, i64(self.step.bit_length() - 1))
        with t.for_(t.bin("sub", depth, i64(self.step)), self.step) as k:
            for loader in loaders:
                loader.fetch(t.bin("add", k, i64(self.step)), depth)
            self._multiply(sums, self.buffer(number(k)), None)
            for loader in loaders:
                loader.put(t.bin("add", number(k), i64(1)))
            self._synchronize()
        with t.if_(some):
            last = t.bin("and", t.bin("sub", depth, i64(1)), i64(-self.step))
            self._take(sums, self.buffer(number(last)), t.bin("sub", depth, last))

    def _walk_ahead(self, sums: Sums, loaders: Sequence[Loader], depth: V) -> None:
        """Walk k: multiply one step's panels while later steps' are copied."""
        t = self.t
        early, step = self.stages - (2 if self.loose else 1), self.step
        self._declare_copies()
        number = lambda k: t.bin("lshr", k, i64(step.bit_length() - 1))
        with t.for_(i64(early * step), step) as k:
            self._copy(loaders, depth, k, number(k))
        if self.eager:
            t.line(f"call void @llvm.nvvm.cp.async.wait.group(i32 {early - 1})")
            t.line(BARRIER)
            self._read_first(self.buffer(i64(0)))
        with t.for_(depth, step) as k:
            if not self.loose:
                t.line(f"call void @llvm.nvvm.cp.async.wait.group(i32 {early - 2 if self.eager else early - 1})")
                t.line(BARRIER)
            following = t.bin("add", k, i64(early * step))
            copy = lambda following=following: self._copy(loaders, depth, following, number(following))
            if self.eager:
                self._multiply_on(sums, self.buffer(number(k)), self.buffer(number(t.bin("add", k, i64(step)))), copy)
            else:
                copy()
                self._multiply(sums, self.buffer(number(k)), None)

    def _make_meeting(self) -> None:
        """Make the barrier at which threads tell that they have the next panels and are done with the last ones."""
        raise AssertionError("a schedule whose threads meet makes a barrier")

    def _declare_copies(self) -> None:
        for name, operands in (("commit.group", []), ("wait.group", ["i32"])):
            self.t.declare(f"llvm.nvvm.cp.async.{name}", "void", operands)

    def _copy(self, loaders: Sequence[Loader], depth: V, first: V, number: V) -> None:
        """Begin to copy the panels of step `number`, from `first` on in k, if there is one."""
        t = self.t
        with t.if_(t.cmp("slt", first, depth)):
            for loader in loaders:
                loader.copy(first, depth, number)
        t.line("call void @llvm.nvvm.cp.async.commit.group()")

    def _synchronize(self) -> None:
        """Wait for the other threads."""
        self.t.line(BARRIER)

    def _take(self, sums: Sums, here: V, left: V) -> None:
        """Multiply a step's panels, of which the last one is shorter."""
        t = self.t
        if self.padded:
            self._multiply(sums, here, None)
            return
        with t.if_else(t.cmp("sge", left, i64(self.step))) as turn:
            self._multiply(sums, here, None)
            next(turn)
            self._multiply(sums, here, t.cast("trunc", left, "i32"))

    def buffer(self, number: V) -> V:
        """The address of a step's panels."""
        t = self.t
        turn = t.bin("urem", t.cast("trunc", number, "i32"), i32(self.stages))
        return memory.at(t, V("@shared", SHARED), t.cast("zext", t.bin("mul", turn, i32(self.panels)), "i64"))

    def _sums(self) -> Sums:
        """Variables for the sums, by row, column and part."""
        t = self.t
        zero = 0
        if self.root.name == "reduce":
            identity = ops.TABLE[self.root.attrs["kind"]].identity
            assert identity is not None
            zero = identity(self.dtype)
        start = [self._widened(x) for x in parts(constant(t, zero, self.wide))]
        sums = [[[t.cell(x.ty) for x in start] for _ in range(self.broad)] for _ in range(self.high)]
        for row in sums:
            for cells in row:
                for cell, x in zip(cells, start, strict=True):
                    t.set(cell, x)
        return sums

    def _widened(self, x: V) -> V:
        return self.t.cast("zext", x, "i32") if x.ty in ("i1", "i8", "i16") else x

    # -- the inner loop -----------------------------------------------------------------------------------------------
    def _multiply(self, sums: Sums, here: V, steps: V | None) -> None:
        """Add a step's products: all of it, or, of the last one, `steps` elements of k."""
        t = self.t
        starts, unroll = self._starts(here), self._unroll(sums)
        if steps is None and unroll == self.step:
            self._products(sums, starts, None, unroll)
        elif steps is None:
            with t.for_(i32(self.step), unroll) as k:
                self._products(sums, starts, k, unroll)
        else:
            done = i32(0)
            if self.step > STEP and unroll >= 4:
                done = t.bin("and", steps, i32(-4))
                with t.for_(done, 4) as k:
                    self._products(sums, starts, k, 4)
            with t.for_(t.bin("sub", steps, done)) as k:
                self._products(sums, starts, t.bin("add", k, done), 1)

    def _starts(self, here: V) -> list[list[V]]:
        """Addresses of a thread's first elements of both sides, by plane."""
        t = self.t
        return [
            [
                scaled(t, memory.at(t, here, offset), position, p.size)
                for p, offset in zip(side.planes, side.offsets, strict=True)
            ]
            for side, position in ((self.a, self.down), (self.b, self.across))
        ]

    def _unroll(self, sums: Sums) -> int:
        """Elements of k in a turn of the inner loop."""
        cost = self.high * self.broad * max(1, len(self.inner)) * len(sums[0][0]) ** 2
        unroll = self.step
        while unroll > 1 and unroll * cost > self.unrolled:
            unroll //= 2
        return unroll

    def _read_first(self, here: V) -> None:
        """Read what the first products of a step's panels need."""
        first = self._both(self._starts(here), None, 0)
        self.taken = [[[self.t.cell(x.ty) for x in xs] for xs in side] for side in first]
        self._hold(first)

    def _hold(self, first: list[list[list[V]]]) -> None:
        for cells, values in zip(self.taken, first, strict=True):
            for xs, ys in zip(cells, values, strict=True):
                for cell, y in zip(xs, ys, strict=True):
                    self.t.set(cell, y)

    def _multiply_on(self, sums: Sums, here: V, following: V, copy: Callable[[], None]) -> None:
        """Multiply a step's panels, of which the first elements have been read, and read the next step's first ones.

        Meanwhile begin to copy a later step's panels.
        """
        t = self.t
        starts, beyond, unroll = self._starts(here), self._starts(following), self._unroll(sums)
        begins = i32(0)
        if unroll < self.step:
            # Of two warps that share arithmetic units, one begins copies while the other one multiplies.
            late = t.bin("lshr", t.bin("and", self.tid, i32(128)), i32(7))
            begins = self._times(late, self.step // 2)
        with t.for_(i32(self.step), unroll) as k:
            with t.if_(t.cmp("eq", k, begins)):
                copy()
            after = t.bin("add", k, i32(unroll))
            ends = t.cmp("eq", after, i32(self.step))
            coming = [
                [
                    t.select(ends, there, scaled(t, at, after, side.pitch * p.size))
                    for p, at, there in zip(side.planes, xs, ys, strict=True)
                ]
                for side, xs, ys in zip((self.a, self.b), starts, beyond, strict=True)
            ]
            first = [[[t.get(c, self._sum_type(i)) for i, c in enumerate(xs)] for xs in side] for side in self.taken]
            self._hold(self._products(sums, starts, k, unroll, first, coming))

    def _products(
        self, sums: Sums, starts: list[list[V]], k: V | None, count: int,
        first: list[list[list[V]]] | None = None, beyond: list[list[V]] | None = None,
    ) -> list[list[list[V]]]:  # fmt: skip
        """Add the products of `count` elements of k; elements are read while those before them are multiplied.

        The first ones may be given.  Gives those at `beyond`, if that is.
        """
        t = self.t
        values = [[[t.get(c, self._sum_type(i)) for i, c in enumerate(cells)] for cells in row] for row in sums]
        following = first or self._both(starts, k, 0)
        for step in range(count):
            here = following
            if step + 1 < count:
                following = self._both(starts, k, step + 1)
            elif beyond is not None:
                following = self._both(beyond, None, 0)
            for i, a in enumerate(here[0]):
                for j, b in enumerate(here[1]):
                    values[i][j] = self._add(values[i][j], a, b)
        for row, new in zip(sums, values, strict=True):
            for cells, xs in zip(row, new, strict=True):
                for cell, x in zip(cells, xs, strict=True):
                    t.set(cell, x)
        return following

    def _both(self, starts: list[list[V]], k: V | None, step: int) -> list[list[list[V]]]:
        """A thread's elements of both sides at one element of k."""
        return [
            self._fragments(side, starts[axis], k, step, (self.high, self.broad)[axis], axis)
            for axis, side in enumerate((self.a, self.b))
        ]

    def _sum_type(self, part: int) -> str:
        ty = register_type(self.wide)
        return "i32" if ty in ("i1", "i8", "i16") else ty

    def _fragments(self, side: Side, starts: list[V], k: V | None, step: int, count: int, axis: int) -> list[list[V]]:
        """A thread's elements of a side at one element of k: for each row or column, the planes' parts."""
        t, run = self.t, self.run[axis]
        found: list[list[V]] = [[] for _ in range(count)]
        for plane, start in zip(side.planes, starts, strict=True):
            at = start
            if k is not None:
                at = scaled(t, at, k, side.pitch * plane.size)
            for first in range(0, count, run):
                nbytes = (step * side.pitch + self._offset(first, axis)) * plane.size
                loaded = self._load(memory.at(t, at, nbytes), plane, run)
                for i in range(run):
                    found[first + i] += loaded[i * plane.parts : (i + 1) * plane.parts]
        return found

    def _load(self, at: V, plane: Plane, count: int) -> list[V]:
        """The parts of neighbours in shared memory."""
        t, total = self.t, count * plane.parts
        if total == 1:
            return [t.load(at, plane.stored, plane.part)]
        loaded = t.load(at, vector(plane.stored, total), total * plane.part)
        return [t.extract(loaded, i) for i in range(total)]

    def _add(self, total: list[V], a: list[V], b: list[V]) -> list[V]:
        """Sums with one more product."""
        t = self.t
        if self.root.name == "reduce":
            return self._combine(total, a, b)
        if self.dtype in dtypes.COMPLEX:
            real = t.fma(t.fneg(a[1]), b[1], t.fma(a[0], b[0], total[0]))
            return [real, t.fma(a[1], b[0], t.fma(a[0], b[1], total[1]))]
        return [self._mac(a[0], b[0], total[0])]

    def _mac(self, a: V, b: V, total: V) -> V:
        t = self.t
        if self.dtype == "bool":
            return t.bin("or", total, t.bin("and", a, b))
        if a.ty not in ("float", "double"):
            return t.bin("add", total, t.bin("mul", a, b))
        return t.fma(a, b, total)

    def _combine(self, total: list[V], a: list[V], b: list[V]) -> list[V]:
        """One step of a generalised product."""
        t, e = self.t, self.e
        where = {self.m: V("m", "i64"), self.k: V("k", "i64"), self.n: V("n", "i64")}
        *before, last = self.inner
        with e.scope():
            for side, held in ((self.a, a), (self.b, b)):
                rest = iter(held)
                for plane in side.planes:
                    pieces = [t.cast("trunc", next(rest), plane.register) for _ in range(plane.parts)]
                    e.define(plane.value, join(pieces), where)
            e.excess = True
            e.run(before, where)
            kind = ops.TABLE[self.root.attrs["kind"]].combine
            if last.name in ("multiply", "square") and kind == "add" and self.dtype in dtypes.FLOAT:
                x, y = (e(v, where if v.type.extents else None) for v in (last.operands[0], last.operands[-1]))
                assert isinstance(x, V) and isinstance(y, V)
                result = [t.fma(x, y, total[0])]
            else:
                e.run([last], where)
                wide = e.dtype(self.root.result)
                mine = join([t.cast("trunc", x, register_type(wide)) for x in total])
                assert kind is not None
                joined = math.emit(t, kind, [mine, e(last.result, where)], [wide, wide], wide, self.target)
                result = [self._widened(x) for x in parts(joined)]
            e.excess = False
        return result

    # -- the result ---------------------------------------------------------------------------------------------------
    def _finish(self, sums: Sums, origin: Sequence[V], extents: Sequence[V]) -> None:
        """Take the tile through the ops after the product, to memory."""
        Results(self, origin, extents).store(sums)

    def _narrowed(self, x: V) -> V:
        ty = register_type(self.wide)
        if ty == "i1":
            return self.t.cmp("ne", x, i32(0))
        return self.t.cast("trunc", x, ty) if ty in ("i8", "i16") else x
