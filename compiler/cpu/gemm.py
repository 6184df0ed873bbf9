"""Matrix products: block IR with one `dot` -> an LLVM module, by blocking and packing.

A `reduce` over k of an elementwise function of a[m, k] and b[k, n] takes the place of the dot in a generalised product,
such as a table of distances.

The operands are packed into panels that the inner loop reads in order (their prologues are applied on the way), k is
cut into blocks whose panels stay in the L1 cache, and tiles of the result stay in registers.  One operand, the whole
of it, is packed once and shared by the team; the other is packed by each thread as it needs it, a block at a time:

    share A if it is one block high, else B; pack it, each thread a part; barrier
    each thread, for its blocks of the result:
        for each block of k: pack the other operand's block; multiply; on the last one apply the epilogue

An operand that is read only a few times, as the other one is narrow, is not packed but read where it lies in memory.

The order of additions depends on k only, so results do not depend on the number of threads.
"""

from __future__ import annotations

from .. import ir
from ..llvm.text import V
from .gemm_code import I1, I64, PTR, Emitter, Function, integer
from .gemm_pairs import tiles
from .gemm_tiles import Side
from .target import SYMBOL, Target

#: Bytes of the workspace that hold counters; they are zero before a launch.
HEADER = 4096
#: Positions in a header: arrivals at barriers, blocks handed out.
ARRIVALS, CLAIMS = 0, 128
#: Columns of B up to which A is read where it lies: by rows that are consecutive in memory, or columns that are.
THIN, THIN_UPRIGHT = 256, 128
#: Steps of k in a block where A is read where it lies and its columns are consecutive: a line holds parts of several
#: panels' rows, and must stay in the L1 cache until the last of them.
UPRIGHT = 128
#: Panels of A up to which B is read where it lies, steps of k in a block then, and columns.
LOW = 4
SHALLOW = 8
BROAD = 2048
#: Products of at most this many multiplications are done by one thread each, if there are many.
SMALL = 1 << 24


class Gemm:
    """Generates the module of one kernel."""

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.tiles = tiles(kernel, target)
        tile = self.tiles.tile
        self.bytes = tile.size * tile.parts
        # A panel of B and one of A fill the L1 cache, a block of A half of the L2 cache.
        a, b = self.tiles.a.bytes, self.tiles.b.bytes
        self.kc = max(64, target.l1 // (tile.mr * a + tile.nr * b) // 8 * 8)
        if target.vector_bytes == 64:
            # Tiles this wide read panels slowly enough for the L2 cache: deeper blocks measured faster.
            self.kc = max(64, 4096 // max(a, b))
        self.kc = kernel.attrs.get("kc", self.kc)
        self.mc = max(1, kernel.attrs.get("mc", target.l2 // 2 // (self.kc * a)) // tile.mr) * tile.mr
        self.nc = 4096 // tile.nr * tile.nr
        #: Columns of B that are packed at a time when A is shared.
        self.strip = max(1, 128 // tile.nr) * tile.nr
        #: Bytes, for each step of k, of the operand that each thread packs for itself.
        self.own = max(self.mc * a, self.strip * b)

    def module(self) -> str:
        functions = [
            self.tiles.pack(self.tiles.a), self.tiles.pack(self.tiles.b), self.tiles.multiply(),
            *([self.tiles.multiply("a")] if self.tiles.direct is not None else ()),
            *([self.tiles.multiply("b")] if self.tiles.rows is not None else ()),
            self.tiles.epilogue(), self.barrier(), self.product(), self.run(), self.scratch(), self.workspace(),
        ]  # fmt: skip
        own = {f.name for f in functions}
        declarations = {name: text for f in functions for name, text in f.declarations.items() if name not in own}
        return "\n".join((*[f.text() for f in functions], *declarations.values(), ""))

    # -- sizes --------------------------------------------------------------------------------------------------------
    def _sizes(self, t: Function) -> tuple[Emitter, V, V, V]:
        e = Emitter(t, self.kernel, self.target, ())
        return e, e.size(self.tiles.m), e.size(self.tiles.n), self.tiles.steps(t, e)

    def _depth(self, t: Function, m: V, n: V, k: V) -> V:
        """Steps of k in a block: equal blocks of at most kc, a multiple of 8."""
        most = t.select(self._low(t, m, n), integer(SHALLOW), integer(self.kc))
        if self.tiles.upright:
            most = t.select(self._thin(t, n), integer(UPRIGHT), most)
        blocks = t.max(integer(1), t.ceildiv(k, most))
        return t.max(integer(8), t.round_up(t.ceildiv(k, blocks), 8))

    def _thin(self, t: Function, n: V) -> V:
        """Whether A is read so few times that packing all of it, or even packing it at all, does not pay."""
        return t.cmp("sle", n, integer(THIN_UPRIGHT if self.tiles.upright else THIN))

    def _low(self, t: Function, m: V, n: V) -> V:
        """Whether B is read so few times that packing it does not pay."""
        if self.tiles.rows is None:
            return V("false", I1)
        return t.bin("and", t.cmp("sle", m, integer(LOW * self.tiles.tile.mr)), self._shares_a(t, m, n))

    def _strip(self, t: Function, low: V) -> V:
        """Columns of B that are multiplied at a time when A is shared."""
        return t.select(low, integer(BROAD), integer(self.strip))

    def _shares_a(self, t: Function, m: V, n: V) -> V:
        wide = t.bin("xor", self._thin(t, n), V("true", I1))
        return t.bin("and", t.cmp("sle", m, integer(self.mc)), wide)

    def _shared_bytes(self, t: Function, m: V, n: V, k: V) -> V:
        a, b = self.tiles.a, self.tiles.b
        bytes_a, bytes_b = (t.mul(t.round_up(x, side.panel), side.bytes) for x, side in ((m, a), (n, b)))
        return t.round_up(t.mul(t.select(self._shares_a(t, m, n), bytes_a, bytes_b), k), 64)

    def _batches(self, t: Function, e: Emitter) -> V:
        count = integer(1)
        for axis in self.kernel.grid:
            count = t.mul(count, e.scalar(axis.size))
        return count

    def _alone(self, t: Function, batches: V, threads: V, m: V, n: V, k: V) -> V:
        """Whether each thread does whole products."""
        small = t.cmp("sle", t.mul(m, n, k), integer(SMALL))
        many = t.cmp("sge", batches, t.mul(threads, 4))
        return t.bin("and", small, many)

    def scratch(self) -> Function:
        t = Function(f"{SYMBOL}_scratch", I64, {"args": PTR})
        _, m, n, k = self._sizes(t)
        tile = self.tiles.tile
        shares_a, depth = self._shares_a(t, m, n), self._depth(t, m, n, k)
        packed = t.mul(depth, self.own)
        rows = t.select(shares_a, t.round_up(m, tile.mr), integer(self.mc))
        columns = t.select(
            shares_a, self._strip(t, self._low(t, m, n)), t.min(t.round_up(n, tile.nr), integer(self.nc))
        )
        tiles = t.select(t.cmp("sgt", k, depth), t.mul(rows, columns), integer(tile.mr * tile.nr))
        t.line(f"ret {t.add(packed, t.mul(tiles, self.bytes))}")
        return t

    def workspace(self) -> Function:
        t = Function(f"{SYMBOL}_workspace", I64, {"args": PTR, "threads": I64})
        e, m, n, k = self._sizes(t)
        alone = self._alone(t, self._batches(t, e), t["threads"], m, n, k)
        copies = t.select(alone, t["threads"], integer(1))
        t.line(f"ret {t.add(t.mul(copies, self._shared_bytes(t, m, n, k)), integer(HEADER))}")
        return t

    # -- the team -----------------------------------------------------------------------------------------------------
    def barrier(self) -> Function:
        """Wait until all threads have arrived `round` times."""
        t = Function("gemm.barrier", "void", {"header": PTR, "threads": I64, "round": I64}, "internal")
        with t.if_(t.cmp("sgt", t["threads"], integer(1))):
            t.op(f"atomicrmw add {t['header']}, i64 1 acq_rel", I64)
            target = t.mul(t["threads"], t["round"])
            with t.for_(integer(0), integer(1 << 62)) as spins:
                arrived = t.op(f"load atomic i64, {t['header']} acquire, align 8", I64)
                out = t.new_label("out")
                t.leave_if(t.cmp("sge", arrived, target), out)
                self._pause(t, spins.index)
            t.br(out)
            t.label(out)
        t.line("ret void")
        return t

    def _pause(self, t: Function, spins: V) -> None:
        """Let the other hardware thread run; after a while, any other thread."""
        if self.target.triple.startswith(("x86_64", "i386", "i686")):
            t.call("llvm.x86.sse2.pause", "void", [])
        with t.if_(t.cmp("sgt", spins, integer(1 << 12))):
            t.call("sched_yield", "i32", [])

    def product(self) -> Function:
        """One product, by thread `thread` of `threads` that share `header` and `shared`; `round` counts products."""
        params = {
            "args": PTR, "program": I64, "thread": I64, "threads": I64, "header": PTR, "shared": PTR, "scratch": PTR,
            "round": I64,
        }  # fmt: skip
        t = Function("gemm.product", "void", params, "internal")
        _, m, n, k = self._sizes(t)
        tile, threads = self.tiles.tile, t["threads"]
        direct = self._thin(t, n) if self.tiles.direct is not None else V("false", I1)
        low = self._low(t, m, n)
        shares_a, depth = self._shares_a(t, m, n), self._depth(t, m, n, k)
        blocks = t.max(integer(1), t.ceildiv(k, depth))
        m_padded, n_padded = t.round_up(m, tile.mr), t.round_up(n, tile.nr)

        # Blocks of the result: equal ones, as many for each thread.
        def cut(extent: V, most: V | int, panel: int) -> V:
            count = t.mul(threads, t.ceildiv(extent, t.mul(threads, most)))
            return t.min(most if isinstance(most, V) else integer(most), t.round_up(t.ceildiv(extent, count), panel))

        rows = t.select(shares_a, m_padded, t.max(cut(m, self.mc, tile.mr), integer(4 * tile.mr)))
        row_blocks = t.ceildiv(m, rows)
        spread = t.ceildiv(threads, row_blocks)
        columns = t.select(
            shares_a,
            cut(n, self._strip(t, low), tile.nr),
            t.min(integer(self.nc), t.round_up(t.ceildiv(n, spread), tile.nr)),
        )
        tasks = t.mul(row_blocks, t.ceildiv(n, columns))

        def each_block(body) -> None:
            with t.for_(integer(0), blocks) as ks:
                k0 = t.mul(ks.index, depth)
                body(ks.index, k0, t.min(depth, t.sub(k, k0)))

        def pack_share(side: Side, extent: V, padded: V) -> None:
            panels = t.ceildiv(extent, side.panel)
            start = t.mul(t.div(t.mul(panels, t["thread"]), threads), side.panel)
            end = t.mul(t.div(t.mul(panels, t.add(t["thread"], integer(1))), threads), side.panel)
            count = t.sub(t.min(end, extent), start)

            def body(_: V, k0: V, kc: V) -> None:
                to = t.at(t["shared"], t.add(t.mul(k0, padded), t.mul(start, kc)), side.bytes)
                t.call(side.name, "void", [t["args"], t["program"], to, start, count, k0, kc])

            each_block(body)

        with t.if_else(shares_a) as branch:
            pack_share(self.tiles.a, m, m_padded)
            next(branch)
            pack_share(self.tiles.b, n, n_padded)
        rounds = t.mul(t["round"], 2)
        t.call("gemm.barrier", "void", [t["header"], threads, t.add(rounds, integer(1))])

        # Each thread claims one block too many before it reaches the next barrier.
        base = t.mul(t["round"], t.add(tasks, threads))
        claims = t.at(t["header"], integer(CLAIMS))
        several = t.cmp("sgt", blocks, integer(1))
        with t.while_() as done:
            task = t.sub(t.op(f"atomicrmw add {claims}, i64 1 monotonic", I64), base)
            t.leave_if(t.cmp("sge", task, tasks), done)
            m0, n0 = t.mul(t.rem(task, row_blocks), rows), t.mul(t.div(task, row_blocks), columns)
            height, breadth = t.min(rows, t.sub(m, m0)), t.min(columns, t.sub(n, n0))
            packed = t["scratch"]
            tiles = t.at(packed, t.mul(depth, self.own))
            stride = t.select(several, integer(tile.elements), integer(0))

            def body(number: V, k0: V, kc: V) -> None:
                # Where B is not packed its last columns are, as they are no whole tile.
                whole = t.select(low, t.sub(breadth, t.rem(breadth, tile.nr)), integer(0))
                behind, rest = t.add(n0, whole), t.sub(breadth, whole)
                with t.if_else(shares_a) as branch:
                    t.call("gemm.pack_b", "void", [t["args"], t["program"], packed, behind, rest, k0, kc])
                    next(branch)
                    with t.if_(t.bin("xor", direct, V("true", I1))):
                        t.call("gemm.pack_a", "void", [t["args"], t["program"], packed, m0, height, k0, kc])
                extent = t.select(shares_a, m_padded, n_padded)
                start = t.select(shares_a, m0, n0)
                size = t.select(shares_a, integer(self.tiles.a.bytes), integer(self.tiles.b.bytes))
                shared = t.at(t["shared"], t.mul(t.add(t.mul(k0, extent), t.mul(start, kc)), size))
                a, b = t.select(shares_a, shared, packed), t.select(shares_a, packed, shared)
                first = t.cmp("eq", number, integer(0))
                last = t.cmp("eq", number, t.sub(blocks, integer(1)))

                def multiply(name: str, tiles: V, n0: V, breadth: V) -> None:
                    operands = [a, b, tiles, stride, m0, height, n0, breadth, k0, kc, first, last]
                    t.call(name, "void", [t["args"], t["program"], *operands])

                with t.if_else(direct) as branch:
                    if self.tiles.direct is not None:
                        multiply("gemm.multiply_a", tiles, n0, breadth)
                    next(branch)
                    if self.tiles.rows is not None:
                        with t.if_(low):
                            multiply("gemm.multiply_b", tiles, n0, whole)
                    before = t.mul(t.div(whole, tile.nr), t.ceildiv(height, tile.mr), stride)
                    multiply("gemm.multiply", t.at(tiles, before, tile.size), behind, rest)

            each_block(body)
        t.call("gemm.barrier", "void", [t["header"], threads, t.add(rounds, integer(2))])
        t.line("ret void")
        return t

    def run(self) -> Function:
        params = {"args": PTR, "begin": I64, "end": I64, "scratch": PTR, "thread": I64}
        t = Function(SYMBOL, "void", params)
        header = t.op("alloca [32 x i64], align 64", PTR)
        e = Emitter(t, self.kernel, self.target, (), [self.kernel.params[-1]])
        m, n, k = e.size(self.tiles.m), e.size(self.tiles.n), self.tiles.steps(t, e)
        workspace = e.scalar(self.kernel.params[-1])
        thread, threads = t["begin"], t["end"]
        batches = self._batches(t, e)
        shared = t.at(workspace, integer(HEADER))

        def product(program: V, thread: V, threads: V, header: V, shared: V, round_: V) -> None:
            operands = [t["args"], program, thread, threads, header, shared, t["scratch"], round_]
            t.call("gemm.product", "void", operands)

        with (
            t.if_(t.cmp("sgt", t.mul(m, n), integer(0))),
            t.if_else(self._alone(t, batches, threads, m, n, k)) as branch,
        ):
            own = t.at(shared, t.mul(thread, self._shared_bytes(t, m, n, k)))
            t.line(f"store [32 x i64] zeroinitializer, {header}")
            first = t.div(t.mul(batches, thread), threads)
            last = t.div(t.mul(batches, t.add(thread, integer(1))), threads)
            with t.for_(first, last) as programs:
                round_ = t.sub(programs.index, first)
                product(programs.index, integer(0), integer(1), header, own, round_)
            next(branch)
            with t.for_(integer(0), batches) as programs:
                product(programs.index, thread, threads, workspace, shared, programs.index)
        t.line("ret void")
        return t


def generate(kernel: ir.Kernel, target: Target) -> str:
    """The LLVM module of a matrix product.

    It exports `kernel` and `kernel_scratch` as any kernel's does, and `i64 kernel_workspace(i64* args, i64 threads)`,
    the bytes of the workspace that a team shares, whose first 4096 must be zero at a launch.
    """
    return Gemm(kernel, target).module()
