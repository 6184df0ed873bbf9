"""The inner functions of a matrix product: packing of operands into panels, and the product of two packed blocks.

A panel holds a few rows of A (or columns of B) for one block of k: for each k, an element of each, for complex types
the real parts and then the imaginary parts.  Missing rows and columns are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import dtypes, ir
from ..llvm.convert import Register, memory_type
from ..llvm.text import V, lanes, vector
from .gemm_code import I1, I64, PTR, Emitter, Function, integer, slice_of
from .target import Target

#: Steps of k in a trip of the innermost loop.
UNROLL = 4
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
    part = {"bool": "i32", "i8": "i32", "u8": "i32", "i16": "i32", "u16": "i32", "f16": "f32", "bf16": "f32"}
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
    value: ir.Value
    dim: str
    depth: str
    panel: int


def _along_depth(side: Side, ops: Sequence[ir.Op]) -> bool:
    """Whether memory is consecutive along k rather than along the other dim."""
    votes = 0
    for op in ops:
        if op.name == "load_view":
            _, _, *strides = op.operands
            for extent, stride in zip(op.result.type.extents, strides):
                if stride.op is not None and stride.op.name == "const" and stride.op.attrs["value"] == 1:
                    weight = len(op.result.type.extents)
                    votes += weight if extent == side.depth else -weight
    return votes > 0


def _transpose(t: Function, rows: Sequence[V]) -> list[V]:
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
        (dot,) = [op for op in kernel.body.ops if op.name == "dot"]
        self.kernel = kernel
        self.target = target
        self.dot = dot
        self.dtype = dot.result.type.dtype
        self.tile = register_tile(self.dtype, target)
        a, b = dot.operands
        self.m, self.k = map(str, a.type.extents)
        self.n = str(b.type.extents[1])
        self.a = Side("gemm.pack_a", a, self.m, self.k, self.tile.mr)
        self.b = Side("gemm.pack_b", b, self.n, self.k, self.tile.nr)

    # -- packing ------------------------------------------------------------------------------------------------------
    def pack(self, side: Side) -> Function:
        """Pack positions [start, start + count) of the side's dim, for k in [k0, k0 + kc)."""
        params = {"args": PTR, "program": I64, "to": PTR, "start": I64, "count": I64, "k0": I64, "kc": I64}
        t = Function(side.name, "void", params, "internal")
        tile, panel = self.tile, side.panel
        size, parts, width = tile.size, tile.parts, tile.width
        ops = slice_of([side.value], self.kernel.body)
        e = Emitter(t, self.kernel, self.target, ops, [side.value] if not ops else ())
        depth = _along_depth(side, ops)
        step = width if depth else 1
        k0, kc, start, count = t["k0"], t["kc"], t["start"], t["count"]
        groups = range(0, panel, width)
        # Whole vectors may read past a panel, but not past the matrix.
        reach = panel if depth else groups[-1] + width
        room = t.max(t.sub(t.sub(e.size(side.dim), start), integer(reach - panel)), integer(0))
        whole = t.mul(t.div(t.min(count, room), panel), panel)
        if not depth:
            self._pack_across(e, side, whole)
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
                for i, x in enumerate(self._parts(t, e.values[side.value], 0)):
                    t.store(x, t.at(to, t.add(column, integer(i * panel)), size), size)
        t.line("ret void")
        return t

    def _pack_across(self, e: Emitter, side: Side, whole: V) -> None:
        """Pack the first `whole` positions, a few panels at a time so that long pieces of rows are read."""
        t, tile, panel = e.t, self.tile, side.panel
        per_k = tile.size * tile.parts
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
                    for i, x in enumerate(self._parts(t, e.values[side.value], tile.width)):
                        self._put(t, x, t.at(to, integer(i * panel + j), tile.size), min(tile.width, panel - j))

    def _pack_depth(self, e: Emitter, side: Side, first: V, position: V, row: V) -> None:
        """`width` steps of k of a whole panel whose memory is consecutive along k."""
        t, tile, panel = e.t, self.tile, side.panel
        width, size, parts = tile.width, tile.size, tile.parts
        for j in range(0, panel, width):
            count = min(width, panel - j)
            vectors: list[list[V]] = [[] for _ in range(parts)]
            for r in range(count):
                e.run(None, {side.dim: t.add(first, integer(j + r)), side.depth: position}, side.depth, width)
                for i, x in enumerate(self._parts(t, e.values[side.value], width)):
                    vectors[i].append(x)
            for i, part in enumerate(vectors):
                part += [V("poison", tile.vector)] * (width - count)
                for k, x in enumerate(_transpose(t, part)):
                    self._put(t, x, t.at(row, integer((k * parts + i) * panel + j), size), count)

    def _put(self, t: Function, x: V, to: V, count: int) -> None:
        if count < lanes(x.ty):
            x = t.shuffle(x, V("poison", x.ty), range(count))
        t.store(x, to, self.tile.size)

    def _parts(self, t: Function, value: Register, width: int) -> tuple[V, ...]:
        """A value in registers as the parts that a panel holds."""
        if not isinstance(value, V):
            return tuple(t.splat(x, width) for x in value)
        value = t.splat(value, width)
        if self.tile.element == "i32" and value.ty != vector("i32", width):
            value = t.cast("zext", value, "i32")
        return (value,)

    # -- the product --------------------------------------------------------------------------------------------------
    def multiply(self) -> Function:
        """Multiply packed blocks: rows [m0, m0 + rows) by columns [n0, n0 + columns) over one block of k.

        Each register tile is added to the one at `tiles` unless `first`; after the `last` block of k it goes through
        the epilogue.  `stride` elements lie between tiles (0: there is but one block of k).
        """
        params = {
            "args": PTR, "program": I64, "a": PTR, "b": PTR, "tiles": PTR, "stride": I64, "m0": I64, "rows": I64,
            "n0": I64, "columns": I64, "kc": I64, "first": I1, "last": I1,
        }  # fmt: skip
        t = Function("gemm.multiply", "void", params, "internal")
        tile = self.tile
        stores = [op for op in self.kernel.body.ops if op.name == "store_view"]
        needed = slice_of([x for op in stores for x in op.operands], self.kernel.body, self.dot.result)
        after = [op for op in self.kernel.body.ops if op in stores or op in needed]
        e = Emitter(t, self.kernel, self.target, after)
        e.excess = True
        kc, size = t["kc"], tile.size
        with t.for_(integer(0), t["columns"], tile.nr, [t["tiles"]]) as js:
            b = t.at(t["b"], t.mul(js.index, kc), size * tile.parts)
            columns = t.min(integer(tile.nr), t.sub(t["columns"], js.index))
            column = t.add(t["n0"], js.index)
            with t.for_(integer(0), t["rows"], tile.mr, js.carried) as is_:
                to = is_.carried[0]
                a = t.at(t["a"], t.mul(is_.index, kc), size * tile.parts)
                with t.if_(t["last"]):
                    self._prefetch(e, t.add(t["m0"], is_.index), column)
                for line in range(0, tile.elements * size, LINE):
                    t.prefetch(t.at(to, integer(line)), write=True)
                # The first tiles of a panel fetch the next panel, a quarter each.
                quarter = t.min(t.div(is_.index, tile.mr), integer(QUARTERS))
                panel = t.mul(kc, tile.nr * size * tile.parts)
                ahead = t.add(panel, t.mul(quarter, t.div(panel, QUARTERS)))
                sums = self._accumulate(t, a, b, kc, t.at(b, ahead))
                places = [t.at(to, integer(i * tile.width), size) for i in range(len(sums))]
                with t.if_else(t["first"]) as branch:
                    for x, place in zip(sums, places):
                        t.store(x, place, size)
                    next(branch)
                    for x, place in zip(sums, places):
                        t.store(self._sum(t, x, t.load(place, tile.vector, size)), place, size)
                with t.if_(t["last"]):
                    rows = t.min(integer(tile.mr), t.sub(t["rows"], is_.index))
                    self._epilogue(e, to, t.add(t["m0"], is_.index), rows, column, columns)
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

    def _accumulate(self, t: Function, a: V, b: V, kc: V, ahead: V) -> list[V]:
        """The products of two panels, row by row; within a row the real vectors, then the imaginary ones."""
        tile = self.tile
        per_row = tile.nr * tile.parts // tile.width
        zeros = [V("zeroinitializer", tile.vector)] * (tile.mr * per_row)

        def step(sums: Sequence[V], a: V, b: V, k: int) -> list[V]:
            sums, out = list(sums), []
            bs = [
                t.load(t.at(b, integer((k * per_row + v) * tile.width), tile.size), tile.vector, tile.size)
                for v in range(per_row)
            ]
            for r in range(tile.mr):
                x = [
                    t.splat(
                        t.load(
                            t.at(a, integer((k * tile.parts + i) * tile.mr + r), tile.size), tile.element, tile.size
                        ),
                        tile.width,
                    )
                    for i in range(tile.parts)
                ]
                row = sums[r * per_row : (r + 1) * per_row]
                if tile.parts == 1:
                    out += [self._mac(t, x[0], y, s) for y, s in zip(bs, row)]
                else:
                    real = self._mac(t, x[0], bs[0], row[0])
                    imag = self._mac(t, x[0], bs[1], row[1])
                    out += [self._mac(t, t.fneg(x[1]), bs[1], real), self._mac(t, x[1], bs[0], imag)]
            return out

        bulk = t.bin("and", kc, integer(-UNROLL))
        per_k = tile.size * tile.parts
        with t.for_(integer(0), bulk, UNROLL, [a, b, ahead, *zeros]) as unrolled:
            a, b, ahead, *sums = unrolled.carried
            fetched = UNROLL * tile.nr * per_k // QUARTERS
            for line in range(0, fetched, LINE):
                t.prefetch(t.at(ahead, integer(line)), locality=2)
            for k in range(UNROLL):
                sums = step(sums, a, b, k)
            a, b = t.at(a, integer(UNROLL * tile.mr), per_k), t.at(b, integer(UNROLL * tile.nr), per_k)
            unrolled.next = [a, b, t.at(ahead, integer(fetched)), *sums]
        a, b, _, *sums = unrolled.carried
        with t.for_(bulk, kc, 1, [a, b, *sums]) as rest:
            a, b, *sums = rest.carried
            sums = step(sums, a, b, 0)
            rest.next = [t.at(a, integer(tile.mr), per_k), t.at(b, integer(tile.nr), per_k), *sums]
        return rest.carried[2:]

    def _mac(self, t: Function, a: V, b: V, total: V) -> V:
        if self.dtype == "bool":
            return t.bin("or", total, t.bin("and", a, b))
        if self.tile.element not in ("float", "double"):
            return t.bin("add", total, t.bin("mul", a, b))
        return t.fma(a, b, total) if self.tile.fused else t.bin("fadd", total, t.bin("fmul", a, b))

    def _sum(self, t: Function, a: V, b: V) -> V:
        if self.dtype == "bool":
            return t.bin("or", a, b)
        return t.bin("fadd" if self.tile.element in ("float", "double") else "add", a, b)

    def _epilogue(self, e: Emitter, sums: V, row: V, rows: V, column: V, columns: V) -> None:
        """Take the tile at `sums` through the ops after the dot."""
        t, width = e.t, self.tile.width
        bulk = t.bin("and", columns, integer(-width))
        with t.for_(integer(0), rows) as rs:
            for lower, upper, step in ((integer(0), bulk, width), (bulk, columns, 1)):
                lane_width = width if step == width else 0
                with t.for_(lower, upper, step) as cs:
                    e.values[self.dot.result] = self._result(t, sums, rs.index, cs.index, lane_width)
                    e.run(None, {self.m: t.add(row, rs.index), self.n: t.add(column, cs.index)}, self.n, lane_width)

    def _result(self, t: Function, sums: V, row: V, column: V, width: int) -> Register:
        """The dot's value at a position of a tile, in registers."""
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
