"""The inner functions of a matrix product: packing of operands into panels, and the product of two packed blocks.

A panel holds a few rows of A (or columns of B) for one block of k: for each k, an element of each, for complex types
the real parts and then the imaginary parts.  Missing rows and columns are zeros.

A generalised product reduces f(a, b) over k instead, where a and b are what depends on (m, k) or on (k, n) alone: each
side may have several such values, which a panel holds as it holds the parts of complex ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import dtypes, ir, ops
from ..llvm import math
from ..llvm.convert import Register, constant, memory_type
from ..llvm.text import V, lanes, vector
from ..slices import sides, slice_of
from .gemm_code import I1, I64, PTR, Emitter, Function, integer
from .libmvec import host_math
from .target import Target

#: Steps of k in a trip of the innermost loop, if a step is at most `BRIEF` ops an element.
UNROLL = 4
BRIEF = 6
#: Sums that a narrow tile keeps of each row, joined in the end.
CHAINS = 2
#: Bytes of a cache line.
LINE = 64
#: Rows by which packing fetches ahead: its steps from row to row are too long for the hardware to foresee.
AHEAD = 8
#: Panels that are packed side by side.
TOGETHER = 8
#: Tiles that fetch the next panel of B together.
QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """The register tile: mr rows by nr columns of accumulators, in vectors of `width` lanes."""

    mr: int
    nr: int
    width: int
    #: Element type of panels and accumulators; complex ones have two parts.
    element: str
    size: int
    parts: int
    fused: bool

    @property
    def vector(self) -> str:
        return vector(self.element, self.width)

    @property
    def elements(self) -> int:
        return self.mr * self.nr * self.parts


def register_tile(dtype: str, target: Target) -> Tile:
    """The tile that fills the registers: all but four hold accumulators."""
    part = {"bool": "i32", "i8": "i32", "u8": "i32", "i16": "i32", "u16": "i32"}
    part |= dict.fromkeys(dtypes.NARROW, "f32")
    part = part.get(dtype) or dtypes.PART.get(dtype, dtype)
    x86 = target.triple.startswith(("x86_64", "i386", "i686"))
    width = target.vector_bytes // dtypes.SIZE[part]
    parts = 2 if dtype in dtypes.COMPLEX else 1
    mr = 6 if x86 and not target.has("avx512f") else 14
    return Tile(
        mr, 2 * width // parts, width, memory_type(part), dtypes.SIZE[part], parts, not x86 or target.has("fma")
    )


@dataclass(frozen=True, slots=True)
class Side:
    """An operand of the product: the block IR value, its dim beside k, and how wide its panels are."""

    name: str
    values: tuple[ir.Value, ...]
    dim: str
    depth: str
    panel: int
    #: Elements that a panel holds of each position, and their bytes.
    parts: int
    bytes: int


def _registers(register: Register) -> tuple[V, ...]:
    return (register,) if isinstance(register, V) else register


def is_one(stride: ir.Value) -> bool:
    """Whether a stride is the constant 1."""
    return stride.op is not None and stride.op.name == "const" and stride.op.attrs["value"] == 1


def along_depth(side: Side, ops: Sequence[ir.Op]) -> bool:
    """Whether memory is consecutive along k rather than along the other dim."""
    votes = 0
    for op in ops:
        if op.name == "load_view":
            _, _, *strides = op.operands
            for extent, stride in zip(op.result.type.extents, strides):
                if is_one(stride):
                    weight = len(op.result.type.extents)
                    votes += weight if extent == side.depth else -weight
    return votes > 0


def transposed(t: Function, rows: Sequence[V]) -> list[V]:
    """n vectors of n lanes, with rows and lanes exchanged."""
    rows, n = list(rows), len(rows)
    inner = min(n, 128 // {"float": 32, "i32": 32, "double": 64, "i64": 64}[rows[0].ty.split()[-1].rstrip(">")])
    # Exchange blocks of 128 bits between vectors, then zip within them: both are single instructions.
    step = n // 2
    while step >= inner:
        for i in (i for i in range(n) if not i & step):
            a, b = rows[i], rows[i + step]
            low = [j if not j & step else n + j - step for j in range(n)]
            rows[i] = t.shuffle(a, b, low)
            rows[i + step] = t.shuffle(a, b, [j + step for j in low])
        step //= 2
    half = inner // 2
    for _ in range(inner.bit_length() - 1):
        zipped = list(rows)
        for base in range(0, n, inner):
            for i in range(half):
                a, b = rows[base + i], rows[base + i + half]
                for high in (0, 1):
                    mask = [
                        block + high * half + j // 2 + n * (j % 2) for block in range(0, n, inner) for j in range(inner)
                    ]
                    zipped[base + 2 * i + high] = t.shuffle(a, b, mask)
        rows = zipped
    return rows


class Tiles:
    """Generates the functions for one kernel."""

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        (root,) = [op for op in kernel.body.ops if op.name in ("dot", "reduce")]
        self.kernel = kernel
        self.target = target
        self.root = root
        self.dtype = root.result.type.dtype
        self.tile = register_tile(self.dtype, target)
        #: The ops of a step of k, between the sides' values and the reduction.
        self.inner: list[ir.Op] = []
        if root.name == "dot":
            a, b = root.operands
            self.m, self.k = map(str, a.type.extents)
            self.n = str(b.type.extents[1])
            values = ((a,), (b,))
        else:
            self.m, self.k, self.n = map(str, root.operands[0].type.extents)
            self.inner, values = sides(root.operands[0], self.kernel.body, self.m, self.n)
            row = ops.TABLE[root.attrs["kind"]]
            assert row.combine is not None and row.identity is not None
            self.combiner, self.identity = row.combine, row.identity(self.dtype)
        #: The load that is all of A, if a product can read it where it lies, and whether its columns are consecutive.
        self.direct = values[0][0].op if root.name == "dot" and self._as_in_memory(values[0][0]) else None
        self.upright = self.direct is not None and not is_one(self.direct.operands[3])
        #: The load that is all of B, if its rows can be read where they lie.
        b = values[1][0].op if root.name == "dot" and self._as_in_memory(values[1][0]) else None
        self.rows = b if b is not None and is_one(b.operands[3]) else None
        self.unroll = UNROLL if len(self.inner) <= BRIEF else 1
        self.a = self._side("gemm.pack_a", values[0], self.m, self.tile.mr)
        self.b = self._side("gemm.pack_b", values[1], self.n, self.tile.nr)

    def packed_type(self) -> str:
        """LLVM type of what a panel holds of a position in a step of k."""
        return self.tile.element

    def steps(self, t: Function, e: Emitter) -> V:
        """Steps of k."""
        return e.size(self.k)

    def _as_in_memory(self, a: ir.Value) -> bool:
        if a.op is None or a.op.name != "load_view" or len(a.type.extents) != 2:
            return False
        consecutive = any(map(is_one, a.op.operands[2:4]))
        return consecutive and a.type.dtype == self.dtype in ("f32", "f64", "i32", "u32", "i64", "u64")

    def _side(self, name: str, values: tuple[ir.Value, ...], dim: str, panel: int) -> Side:
        parts = len(values) * self.tile.parts
        return Side(name, values, dim, self.k, panel, parts, parts * self.tile.size)

    # -- packing ------------------------------------------------------------------------------------------------------
    def pack(self, side: Side) -> Function:
        """Pack positions [start, start + count) of the side's dim, for k in [k0, k0 + kc)."""
        params = {"args": PTR, "program": I64, "to": PTR, "start": I64, "count": I64, "k0": I64, "kc": I64}
        t = Function(side.name, "void", params, "internal")
        tile, panel = self.tile, side.panel
        size, parts, width = tile.size, side.parts, tile.width
        needed = slice_of(side.values, self.kernel.body)
        e = Emitter(t, self.kernel, self.target, needed)
        depth = along_depth(side, needed)
        step = width if depth else 1
        k0, kc, start, count = t["k0"], t["kc"], t["start"], t["count"]
        groups = range(0, panel, width)
        # Whole vectors may read past a panel, but not past the matrix.
        reach = panel if depth else groups[-1] + width
        room = t.max(t.sub(t.sub(e.size(side.dim), start), integer(reach - panel)), integer(0))
        whole = t.mul(t.div(t.min(count, room), panel), panel)
        if not depth:
            self._pack_across(e, side, whole)
            if self._maskable(side, needed):
                self._pack_masked(e, side, whole)
                t.line("ret void")
                return t
        with t.for_(integer(0), count, panel) as panels:
            to = t.at(t["to"], t.mul(panels.index, kc), size * parts)
            first = t.add(start, panels.index)
            valid = t.min(integer(panel), t.sub(count, panels.index))
            bulk = t.select(t.cmp("slt", panels.index, whole), t.mul(t.div(kc, step), step), integer(0))
            if depth:
                with t.for_(integer(0), bulk, step) as ks:
                    row = t.at(to, t.mul(ks.index, panel), size * parts)
                    self._pack_depth(e, side, first, t.add(k0, ks.index), row)
            with t.if_(t.cmp("slt", valid, integer(panel))):
                t.declare("llvm.memset.p0.i64", "void", (PTR, "i8", I64, I1))
                bytes_ = t.mul(kc, panel * size * parts)
                t.line(f"call void @llvm.memset.p0.i64({to}, i8 0, {bytes_}, i1 false)")
            with t.for_(integer(0), valid) as rows, t.for_(bulk, kc) as ks:
                e.run(None, {side.dim: t.add(first, rows.index), side.depth: t.add(k0, ks.index)})
                column = t.add(t.mul(ks.index, panel * parts), rows.index)
                for i, x in enumerate(self._parts(e, side, 0)):
                    t.store(x, t.at(to, t.add(column, integer(i * panel)), size), size)
        t.line("ret void")
        return t

    def _pack_across(self, e: Emitter, side: Side, whole: V) -> None:
        """Pack the first `whole` positions, a few panels at a time so that long pieces of rows are read."""
        t, tile, panel = e.t, self.tile, side.panel
        per_k = side.bytes
        with t.for_(integer(0), whole, panel * TOGETHER) as spans, t.for_(integer(0), t["kc"]) as ks:
            position = t.add(t["k0"], ks.index)
            end = t.min(whole, t.add(spans.index, integer(panel * TOGETHER)))
            with t.for_(spans.index, end, panel) as panels:
                first = t.add(t["start"], panels.index)
                for op in e.tile_ops:
                    if op.name == "load_view" and len(op.result.type.extents) == 2:
                        e.prefetch(op, {side.dim: first, side.depth: t.add(position, integer(AHEAD))})
                to = t.at(t["to"], t.add(t.mul(panels.index, t["kc"]), t.mul(ks.index, panel)), per_k)
                for j in range(0, panel, tile.width):
                    e.run(None, {side.dim: t.add(first, integer(j)), side.depth: position}, side.dim, tile.width)
                    for i, x in enumerate(self._parts(e, side, tile.width)):
                        self._put(t, x, t.at(to, integer(i * panel + j), tile.size), min(tile.width, panel - j))

    def _maskable(self, side: Side, needed: Sequence[ir.Op]) -> bool:
        """Whether the loads along the side's dim are of consecutive elements, and the target has a mask for them."""
        for op in needed:
            if op.name == "load_view" and side.dim in op.result.type.extents:
                stride = op.operands[2 + op.result.type.extents.index(side.dim)]
                dtype = op.result.type.dtype
                if dtype in dtypes.COMPLEX or dtypes.SIZE[dtype] not in self.target.masked:
                    return False
                if not is_one(stride):
                    return False
        return True

    def _pack_masked(self, e: Emitter, side: Side, start: V) -> None:
        """Pack the positions from `start` on, a panel at a time, touching no others."""
        t, tile, panel, count = e.t, self.tile, side.panel, e.t["count"]
        with t.for_(start, count, panel) as panels:
            first, end = t.add(t["start"], panels.index), t.min(count, t.add(panels.index, integer(panel)))
            masks = []
            for j in range(0, panel, tile.width):
                lane = e.positions(t.add(panels.index, integer(j)), tile.width)
                masks.append(t.cmp("slt", lane, t.splat(end, tile.width)))
            with t.for_(integer(0), t["kc"]) as ks:
                position = t.add(t["k0"], ks.index)
                to = t.at(t["to"], t.add(t.mul(panels.index, t["kc"]), t.mul(ks.index, panel)), side.bytes)
                for j, e.mask in zip(range(0, panel, tile.width), masks, strict=True):
                    e.run(None, {side.dim: t.add(first, integer(j)), side.depth: position}, side.dim, tile.width)
                    for i, x in enumerate(self._parts(e, side, tile.width)):
                        self._put(t, x, t.at(to, integer(i * panel + j), tile.size), min(tile.width, panel - j))
        e.mask = None

    def _pack_depth(self, e: Emitter, side: Side, first: V, position: V, row: V) -> None:
        """`width` steps of k of a whole panel whose memory is consecutive along k."""
        t, tile, panel = e.t, self.tile, side.panel
        width, size, parts = tile.width, tile.size, side.parts
        for j in range(0, panel, width):
            count = min(width, panel - j)
            vectors: list[list[V]] = [[] for _ in range(parts)]
            for r in range(count):
                e.run(None, {side.dim: t.add(first, integer(j + r)), side.depth: position}, side.depth, width)
                for i, x in enumerate(self._parts(e, side, width)):
                    vectors[i].append(x)
            for i, part in enumerate(vectors):
                part += [V("poison", tile.vector)] * (width - count)
                for k, x in enumerate(transposed(t, part)):
                    self._put(t, x, t.at(row, integer((k * parts + i) * panel + j), size), count)

    def _put(self, t: Function, x: V, to: V, count: int) -> None:
        if count < lanes(x.ty):
            x = t.shuffle(x, V("poison", x.ty), range(count))
        t.store(x, to, self.tile.size)

    def _parts(self, e: Emitter, side: Side, width: int) -> list[V]:
        """A side's values in registers as the parts that a panel holds."""
        t, found = e.t, []
        for value in side.values:
            for x in _registers(e.values[value]):
                x = t.splat(x, width)
                if self.tile.element == "i32" and x.ty != vector("i32", width):
                    x = t.cast("sext" if value.type.dtype in dtypes.SIGNED else "zext", x, "i32")
                found.append(x)
        return found

    # -- the product --------------------------------------------------------------------------------------------------
    def multiply(self, direct: str = "") -> Function:
        """Multiply packed blocks: rows [m0, m0 + rows) by columns [n0, n0 + columns) over one block of k, from k0.

        Each register tile is added to the one at `tiles` unless `first`; after the `last` block of k it goes through
        the epilogue.  `stride` elements lie between tiles (0: there is but one block of k).  A `direct` operand, "a" or
        "b", is read where it lies; of B whole tiles.
        """
        params = {
            "args": PTR, "program": I64, "a": PTR, "b": PTR, "tiles": PTR, "stride": I64, "m0": I64, "rows": I64,
            "n0": I64, "columns": I64, "k0": I64, "kc": I64, "first": I1, "last": I1,
        }  # fmt: skip
        t = Function(f"gemm.multiply_{direct}" if direct else "gemm.multiply", "void", params, "internal")
        tile = self.tile
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        loads = [op for name, op in (("a", self.direct), ("b", self.rows)) if name == direct and op is not None]
        e = Emitter(t, self.kernel, self.target, [*self.inner, *loads, *stores])
        e.excess = True
        kc, size = t["kc"], tile.size
        with t.for_(integer(0), t["columns"], tile.nr, [t["tiles"]]) as js:
            b, pitch = t.at(t["b"], t.mul(js.index, kc), self.b.bytes), integer(self.b.parts * tile.nr)
            columns = t.min(integer(tile.nr), t.sub(t["columns"], js.index))
            column = t.add(t["n0"], js.index)
            if direct == "b":
                b, pitch = e.address(loads[0], {self.k: t["k0"], self.n: column}), e.scalar(loads[0].operands[2])
            with t.for_(integer(0), t["rows"], tile.mr, js.carried) as is_:
                to = is_.carried[0]
                row = t.add(t["m0"], is_.index)
                rows = t.min(integer(tile.mr), t.sub(t["rows"], is_.index))
                a = t.at(t["a"], t.mul(is_.index, kc), self.a.bytes)
                offsets, stride = None, integer(self.a.parts * tile.mr)
                if direct == "a":
                    op = loads[0]
                    # Rows past the end repeat the last one.
                    a = e.address(op, {self.m: row, self.k: t["k0"]})
                    apart, stride = (e.scalar(x) for x in op.operands[2:4])
                    last = t.sub(rows, integer(1))
                    offsets = [t.mul(t.min(integer(r), last), apart) for r in range(tile.mr)]
                with t.if_(t["last"]):
                    self._prefetch(e, row, column)
                for line in range(0, tile.elements * size, LINE):
                    t.prefetch(t.at(to, integer(line)), write=True)
                # The first tiles of a panel fetch the next panel, a quarter each.
                quarter = t.min(t.div(is_.index, tile.mr), integer(QUARTERS))
                panel = t.mul(kc, tile.nr * self.b.bytes)
                ahead = t.at(b, t.add(panel, t.mul(quarter, t.div(panel, QUARTERS))))

                def block(vectors: int) -> None:
                    sums = self._accumulate(e, a, offsets, stride, b, pitch, kc, ahead, vectors)
                    per_row = tile.nr * tile.parts // tile.width
                    numbers = [r * per_row + v for r in range(tile.mr) for v in range(vectors)]
                    places = [t.at(to, integer(i * tile.width), size) for i in numbers]
                    with t.if_else(t["first"]) as branch:
                        for x, place in zip(sums, places, strict=True):
                            t.store(x, place, size)
                        next(branch)
                        for x, place in zip(sums, places, strict=True):
                            t.store(self._sum(e, t.load(place, tile.vector, size), x), place, size)

                if direct == "a":
                    with t.if_else(t.cmp("sle", columns, integer(tile.width))) as narrow:
                        block(1)
                        next(narrow)
                        block(tile.nr // tile.width)
                else:
                    block(tile.nr * tile.parts // tile.width)
                with t.if_(t["last"]):
                    operands = [t["args"], t["program"], to, row, rows, column, columns]
                    t.call("gemm.epilogue", "void", operands)
                is_.next = [t.at(to, t["stride"], size)]
            js.next = is_.carried
        t.line("ret void")
        return t

    def _prefetch(self, e: Emitter, row: V, column: V) -> None:
        """Fetch the part of each output that a tile is going to overwrite, where it lies in rows."""
        t, tile = e.t, self.tile
        for op in e.tile_ops:
            if op.name == "store_view" and e.scalar(op.operands[4]).ref == "1":
                for r in range(tile.mr):
                    for j in (0, tile.nr - 1):
                        e.prefetch(op, {self.m: t.add(row, integer(r)), self.n: t.add(column, integer(j))})

    def _accumulate(
        self, e: Emitter, a: V, offsets: Sequence[V] | None, stride: V, b: V, pitch: V, kc: V, ahead: V, per_row: int
    ) -> list[V]:
        """The products of two panels, row by row; within a row the real vectors, then the imaginary ones.

        A's rows lie `offsets` elements behind `a`, or next to each other in a panel.  Steps of k are `stride` elements
        apart there, and `pitch` in B, of which `per_row` vectors are used.
        """
        t, tile = e.t, self.tile
        zero = V("zeroinitializer", tile.vector)
        if self.root.name == "reduce":
            (zero,) = _registers(constant(t, self.identity, e.dtype(self.root.result), tile.width))
        loads = self.b.parts * tile.nr // tile.width
        used = per_row if self.b.parts == 1 else loads
        packed = self.packed_type()
        across = vector(packed, tile.width)

        def element(a: V, r: int, part: int) -> V:
            offset = integer(part * tile.mr + r) if offsets is None else offsets[r]
            return t.load(t.at(a, offset, tile.size), packed, tile.size)

        def advance(address: V, step: V, k: int) -> V:
            """The address k steps on."""
            address = t.at(address, t.mul(step, k), tile.size)
            if not step.ref.startswith("%"):
                return address
            # Opaque, or each of the elements of a trip would get a pointer of its own.
            return t.op(f'call ptr asm "", "=r,0"({address})', PTR)

        def step(sums: Sequence[V], a: V, b: V) -> list[V]:
            sums, out = list(sums), []
            bs = [t.load(t.at(b, integer(v * tile.width), tile.size), across, tile.size) for v in range(used)]
            for r in range(tile.mr):
                x = [t.splat(element(a, r, i), tile.width) for i in range(self.a.parts)]
                row = sums[r * per_row : (r + 1) * per_row]
                if self.root.name == "reduce":
                    out += [self._combine(e, x, bs[v::per_row], s) for v, s in enumerate(row)]
                elif tile.parts == 1:
                    out += [self._mac(t, x[0], y, s) for y, s in zip(bs, row)]
                else:
                    real = self._mac(t, x[0], bs[0], row[0])
                    imag = self._mac(t, x[0], bs[1], row[1])
                    out += [self._mac(t, t.fneg(x[1]), bs[1], real), self._mac(t, x[1], bs[0], imag)]
            return out

        unroll, count = self.unroll, tile.mr * per_row
        # One vector a row is too few chains of additions to hide their latency.
        chains = min(CHAINS, unroll) if used * tile.parts == 1 else 1
        bulk = t.bin("and", kc, integer(-unroll))
        with t.for_(integer(0), bulk, unroll, [a, b, ahead, *[zero] * (count * chains)]) as unrolled:
            a, b, ahead, *sums = unrolled.carried
            fetched = unroll * tile.nr * self.b.bytes // QUARTERS
            for line in range(0, fetched, LINE):
                t.prefetch(t.at(ahead, integer(line)), locality=2)
            for k in range(unroll):
                own = slice(k % chains * count, (k % chains + 1) * count)
                sums[own] = step(sums[own], advance(a, stride, k), advance(b, pitch, k))
            b = advance(b, pitch, unroll)
            unrolled.next = [advance(a, stride, unroll), b, t.at(ahead, integer(fetched)), *sums]
        a, b, _, *sums = unrolled.carried
        while len(sums) > count:
            sums = [self._sum(e, x, y) for x, y in zip(sums[count:], sums, strict=False)]
        if unroll == 1:
            return sums
        with t.for_(bulk, kc, 1, [a, b, *sums]) as rest:
            a, b, *sums = rest.carried
            sums = step(sums, a, b)
            rest.next = [advance(a, stride, 1), advance(b, pitch, 1), *sums]
        return rest.carried[2:]

    def _combine(self, e: Emitter, a: Sequence[V], b: Sequence[V], total: V) -> V:
        """One step of a generalised product, from the sides' values in vectors."""
        *before, last = self.inner
        e.values.update(zip((*self.a.values, *self.b.values), (*a, *b), strict=True))
        e.run(before, {}, self.n, self.tile.width)
        if last.name in ("multiply", "square") and self.combiner == "add" and self.dtype in dtypes.FLOAT:
            return self._mac(e.t, e.scalar(last.operands[0]), e.scalar(last.operands[-1]), total)
        e.run([last], {}, self.n, self.tile.width)
        return self._join(e, total, e.scalar(last.result))

    def _join(self, e: Emitter, a: V, b: V) -> V:
        dtype = e.dtype(self.root.result)
        (joined,) = _registers(math.emit(e.t, self.combiner, [a, b], [dtype, dtype], dtype, host_math()))
        return joined

    def _mac(self, t: Function, a: V, b: V, total: V) -> V:
        if self.dtype == "bool":
            return t.bin("or", total, t.bin("and", a, b))
        if self.tile.element not in ("float", "double"):
            return t.bin("add", total, t.bin("mul", a, b))
        return t.fma(a, b, total) if self.tile.fused else t.bin("fadd", total, t.bin("fmul", a, b))

    def _sum(self, e: Emitter, a: V, b: V) -> V:
        if self.root.name == "reduce":
            return self._join(e, a, b)
        if self.dtype == "bool":
            return e.t.bin("or", a, b)
        return e.t.bin("fadd" if self.tile.element in ("float", "double") else "add", a, b)

    def epilogue(self) -> Function:
        """Take the tile at `sums` through the ops after the product.

        A function of its own, as its constants would take registers from the product.
        """
        params = {"args": PTR, "program": I64, "sums": PTR, "row": I64, "rows": I64, "column": I64, "columns": I64}
        t = Function("gemm.epilogue", "void", params, "internal", "noinline")
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        needed = slice_of([x for op in stores for x in op.operands], self.kernel.body, self.root.result)
        e = Emitter(t, self.kernel, self.target, [op for op in self.kernel.body.ops if op in stores or op in needed])
        e.excess = True
        width, columns = self.tile.width, t["columns"]
        bulk = t.bin("and", columns, integer(-width))
        with t.for_(integer(0), t["rows"]) as rs:
            for lower, upper, step in ((integer(0), bulk, width), (bulk, columns, 1)):
                lanes_ = width if step == width else 0
                with t.for_(lower, upper, step) as cs:
                    e.values[self.root.result] = self._result(t, t["sums"], rs.index, cs.index, lanes_)
                    where = {self.m: t.add(t["row"], rs.index), self.n: t.add(t["column"], cs.index)}
                    e.run(None, where, self.n, lanes_)
        t.line("ret void")
        return t

    def _result(self, t: Function, sums: V, row: V, column: V, width: int) -> Register:
        """The product's value at a position of a tile, in registers."""
        tile = self.tile
        ty = vector(tile.element, width)
        place = t.add(t.mul(row, tile.nr * tile.parts), column)
        values = [
            t.load(t.at(sums, t.add(place, integer(i * tile.nr)), tile.size), ty, tile.size) for i in range(tile.parts)
        ]
        if tile.parts == 2:
            return values[0], values[1]
        (value,) = values
        if self.dtype == "bool":
            return t.cmp("ne", value, V("zeroinitializer" if width else "0", ty))
        if tile.element == "i32":
            value = t.cast("trunc", value, memory_type(self.dtype))
        return value
