"""Products of bf16, and of integers of 8 bits, on CPUs that multiply and add pairs of 16 bits.

A panel holds two neighbouring elements of k in each word of 32 bits, the first one in the low half; past the end of k
is zero.  A step of k of the other functions is such a pair.
"""

from __future__ import annotations

from .. import dtypes, ir
from ..llvm.convert import Register, to_memory
from ..llvm.text import V, vector
from ..slices import slice_of
from .gemm_code import I1, I64, PTR, Emitter, Function, integer
from .gemm_tiles import Side, Tiles, along_depth, transposed
from .target import Target

#: Elements of k in a step.
PAIR = 2


class PairTiles(Tiles):
    """Generates the functions for one kernel."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        """Whether there is an instruction for the kernel's product, and it is a fast one.

        On Intel's processors f32 multiplies faster: 150 GFLOP/s against 84 on a Xeon of the fourth generation.
        """
        dots = [op for op in kernel.body.ops if op.name == "dot"]
        narrow = bool(dots) and all(x.type.dtype == "bf16" for op in dots for x in op.operands)
        return narrow and target.has("avx512bf16") and target.cpu.startswith("znver")

    def packed_type(self) -> str:
        return "i32"

    def steps(self, t: Function, e: Emitter) -> V:
        return t.ceildiv(e.size(self.k), PAIR)

    def pack(self, side: Side) -> Function:
        params = {"args": PTR, "program": I64, "to": PTR, "start": I64, "count": I64, "k0": I64, "kc": I64}
        t = Function(side.name, "void", params, "internal")
        width, panel = self.tile.width, side.panel
        needed = slice_of(side.values, self.kernel.body)
        e = Emitter(t, self.kernel, self.target, needed)
        deep = along_depth(side, needed)
        kc, count = t["kc"], t["count"]
        # Whole vectors may read past a panel, but not past the matrix.
        reach = panel if deep else -(-panel // width) * width
        room = t.max(t.sub(t.sub(e.size(side.dim), t["start"]), integer(reach - panel)), integer(0))
        whole = t.mul(t.div(t.min(count, room), panel), panel)
        step = width if deep else 1
        pairs = t.min(kc, t.sub(t.div(e.size(self.k), PAIR), t["k0"]))
        with t.for_(integer(0), count, panel) as panels:
            to = t.at(t["to"], t.mul(panels.index, kc), side.bytes)
            first = t.add(t["start"], panels.index)
            valid = t.min(integer(panel), t.sub(count, panels.index))
            bulk = t.select(t.cmp("slt", panels.index, whole), t.mul(t.div(pairs, step), step), integer(0))
            with t.for_(integer(0), bulk, step) as ks:
                row = t.at(to, t.mul(ks.index, panel), side.bytes)
                position = t.mul(t.add(t["k0"], ks.index), PAIR)
                (self._pack_depth if deep else self._pack_row)(e, side, first, position, row)
            with t.if_(t.cmp("slt", valid, integer(panel))):
                t.declare("llvm.memset.p0.i64", "void", (PTR, "i8", I64, I1))
                bytes_ = t.mul(kc, panel * side.bytes)
                t.line(f"call void @llvm.memset.p0.i64({to}, i8 0, {bytes_}, i1 false)")
            with t.for_(integer(0), valid) as rows, t.for_(bulk, kc) as ks:
                position = t.mul(t.add(t["k0"], ks.index), PAIR)
                halves = self._halves(e, side, position, {side.dim: t.add(first, rows.index)})
                place = t.add(t.mul(ks.index, panel), rows.index)
                t.store(self._joined(t, *halves), t.at(to, place, side.bytes), side.bytes)
        t.line("ret void")
        return t

    def _bits(self, e: Emitter, side: Side) -> V:
        (value,) = side.values
        bits = self._half(e.t, e.values[value], value.type.dtype)
        assert isinstance(bits, V)
        return bits

    def _half(self, t: Function, register: Register, dtype: str) -> Register:
        """A value's 16 bits."""
        return to_memory(t, register, "bf16")

    def _halves(self, e: Emitter, side: Side, position: V, where: dict[str, V], width: int = 0) -> tuple[V, V]:
        """A value's bits at two neighbouring positions of k, zeros where there is no second one."""
        t, found = e.t, []
        for half in range(PAIR):
            k = t.min(t.add(position, integer(half)), t.sub(e.size(self.k), integer(1)))
            e.run(None, where | {side.depth: k}, side.dim, width)
            (value,) = side.values
            e.values[value] = e.splat(e.values[value], width)
            found.append(self._bits(e, side))
        inside = t.cmp("slt", t.add(position, integer(1)), e.size(self.k))
        return found[0], t.select(inside, found[1], V("zeroinitializer" if width else "0", found[1].ty))

    def _joined(self, t: Function, low: V, high: V) -> V:
        low, high = t.cast("zext", low, "i32"), t.cast("zext", high, "i32")
        shift = V("16", "i32") if high.ty == "i32" else t.splat(V("16", "i32"), self.tile.width)
        return t.bin("or", low, t.bin("shl", high, shift))

    def _pack_row(self, e: Emitter, side: Side, first: V, position: V, row: V) -> None:
        """One step of k of a whole panel whose memory is consecutive along the other dim."""
        t, width, panel = e.t, self.tile.width, side.panel
        for j in range(0, panel, width):
            halves = self._halves(e, side, position, {side.dim: t.add(first, integer(j))}, width)
            self._put(t, self._joined(t, *halves), t.at(row, integer(j), side.bytes), min(width, panel - j))

    def _pack_depth(self, e: Emitter, side: Side, first: V, position: V, row: V) -> None:
        """`width` steps of k of a whole panel whose memory is consecutive along k."""
        t, width, panel = e.t, self.tile.width, side.panel
        for j in range(0, panel, width):
            count, vectors = min(width, panel - j), []
            for r in range(count):
                e.run(None, {side.dim: t.add(first, integer(j + r)), side.depth: position}, side.depth, PAIR * width)
                (value,) = side.values
                e.values[value] = e.splat(e.values[value], PAIR * width)
                bits = self._bits(e, side)
                vectors.append(t.op(f"bitcast {bits} to {vector('i32', width)}", vector("i32", width)))
            vectors += [V("poison", vector("i32", width))] * (width - count)
            for k, x in enumerate(transposed(t, vectors)):
                self._put(t, x, t.at(row, integer(k * panel + j), side.bytes), count)

    def _mac(self, t: Function, a: V, b: V, total: V) -> V:
        ty = vector("bfloat", PAIR * self.tile.width)
        a, b = (t.op(f"bitcast {x} to {ty}", ty) for x in (a, b))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.tile.width}"
        return t.call(name, total.ty, [total, a, b], "nounwind memory(none)")


class IntegerTiles(PairTiles):
    """Generates the functions for a kernel of integers of 8 bits, which are added up in i32."""

    @staticmethod
    def suits(kernel: ir.Kernel, target: Target) -> bool:
        dots = [op for op in kernel.body.ops if op.name == "dot" and op.result.type.dtype == "i32"]
        narrow = bool(dots) and all(x.type.dtype in ("i8", "u8") for op in dots for x in op.operands)
        has = target.has("avx512bw") or target.vector_bytes < 64
        return narrow and has and target.triple.startswith("x86_64")

    def _half(self, t: Function, register: Register, dtype: str) -> Register:
        assert isinstance(register, V)
        return t.cast("sext" if dtype in dtypes.SIGNED else "zext", register, "i16")

    def _mac(self, t: Function, a: V, b: V, total: V) -> V:
        bits = 32 * self.tile.width
        name = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}[bits]
        ty = vector("i16", PAIR * self.tile.width)
        operands = [t.op(f"bitcast {x} to {ty}", ty) for x in (a, b)]
        return t.bin("add", total, t.call(f"llvm.x86.{name}", total.ty, operands, "nounwind memory(none)"))


def tiles(kernel: ir.Kernel, target: Target) -> Tiles:
    """The generator of a kernel's inner functions."""
    return next((c for c in (PairTiles, IntegerTiles) if c.suits(kernel, target)), Tiles)(kernel, target)
