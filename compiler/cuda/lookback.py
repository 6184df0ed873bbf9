"""Scans that go on from program to program, in one pass over memory.

Programs are numbered by a ticket, so that those before a program have begun.  32 of them are a group, and 32 groups a
batch.  Each program leaves the total of its block in the workspace; the last one of a group, the group's total; the
last one of a batch, what the scan has come to.  So a program waits for at most 31 totals of blocks, 31 of groups and
one value of the scan, which a warp reads together.  They are joined as a tree, whoever was first, so that the result is
the same in every run; and only once in 1,024 programs does one wait for what another one has waited for.

A value is published as words of 64 bits, of which each says that it is there next to 32 bits of it: what is read of a
word is whole, and a reader needs neither a second access nor a fence.

After Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Kernel, Op
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import V
from .memory import at, i32, i64, join, load, parts, select, store
from .reduction import scan_lanes, shuffle, slot, state_types

if TYPE_CHECKING:
    from .codegen import Codegen

#: Bytes of the ticket, the workspace's first.
TICKET = 16
#: Bits of a program's number in its group, and of a group's in its batch.
GROUP = 5
_WARP = "convergent nounwind"


def scanned(kernel: Kernel) -> Op | None:
    """The scan that goes on from program to program, if there is one."""
    return next((op for op in kernel.body.ops if op.name == "scan" and op.attrs.get("across")), None)


def ticket(code: Codegen) -> V:
    """The program's number."""
    t = code.t
    base = code.integer(code.workspace)
    place = code.exchange(16)
    first, done = t.new_label("first"), t.new_label("numbered")
    t.br_if(t.cmp("eq", code.tid, i32(0)), first, done)
    t.label(first)
    store(t, [t.op(f"atomicrmw add {base}, i32 1 monotonic", "i32")], place, "i32")
    t.br(done)
    t.label(done)
    code.barrier()
    (found,) = parts(load(t, place, "i32", 1)[0])
    return found


def _words(dtype: str) -> int:
    """Words of a value."""
    part = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
    return max(1, part // 4) * (2 if dtype in dtypes.COMPLEX else 1)


def workspace(op: Op) -> tuple[int, int]:
    """Bytes, and bytes a program: there are fewer groups and batches than programs."""
    return TICKET, 16 * _words(state_types(op)[0])


class Values:
    """Published values that a warp reads, a lane each, and waits for where they `exist`."""

    def __init__(self, look: LookBack, place: V, exist: V) -> None:
        self.look, self.place, self.exist = look, place, exist
        self.cells = [look.code.alloca("i64") for _ in range(look.words)]
        self.read()

    def read(self) -> None:
        look, t = self.look, self.look.code.t
        for k in range(0, look.words, 2):
            count = min(2, look.words - k)
            ty = "{i64, i64}" if count == 2 else "i64"
            zeros = " ".join(f"mov.b64 ${i}, 0;" for i in range(count))
            text = f"{zeros} @${count + 1} ld.relaxed.gpu.global.{_access(count)} {_braced(0, count)}, [${count}];"
            constraints = ",".join(["=&l"] * count)
            args = f"{at(t, self.place, 8 * k)}, {self.exist}"
            found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints},l,b,~{{memory}}"({args})', ty)
            words = [found] if count == 1 else [t.op(f"extractvalue {found}, {i}", "i64") for i in range(2)]
            for word, cell in zip(words, self.cells[k:], strict=False):
                t.line(f"store {word}, {cell}")

    def waits(self) -> V:
        """Whether this lane's value is not known yet."""
        t = self.look.code.t
        words = [t.op(f"load i64, {cell}", "i64") for cell in self.cells]
        unknown = [t.cmp("eq", t.bin("lshr", w, i64(32)), i64(0)) for w in words]
        return t.bin("and", self.exist, reduce(lambda a, b: t.bin("or", a, b), unknown))

    def get(self, other: Register) -> Register:
        """This lane's value; `other` where there is none."""
        look, t = self.look, self.look.code.t
        words = [t.op(f"load i64, {cell}", "i64") for cell in self.cells]
        pieces = words
        if look.bits <= 32:
            pieces = [t.cast("trunc", w, f"i{look.bits}") for w in words]
        else:
            lows = [t.bin("and", w, i64(0xFFFFFFFF)) for w in words[::2]]
            pieces = [t.bin("or", low, t.bin("shl", w, i64(32))) for low, w in zip(lows, words[1::2], strict=True)]
        value = join([t.cast("bitcast", p, memory_type(look.dtype)) for p in pieces])
        return select(t, self.exist, from_memory(t, value, look.dtype), other)


class LookBack:
    """Finds what precedes this program's block."""

    def __init__(
        self, code: Codegen, op: Op, dtype: str, join: Callable[[Register, Register], Register], identity: Register
    ) -> None:
        self.code = code
        self.dtype = dtype
        self.join = join
        self.identity = identity
        #: The block's total, a variable of the first warp.
        self.total = code.variable(dtype)
        dim = str(op.result.type.extents[op.attrs["dim"]])
        axis = code.kernel.dims[dim].axis
        last, alone = len(code.kernel.grid) - 1, len(op.result.type.extents) == 1
        split = code.layout.splits[dim]
        if axis is None or axis != last or not alone or split.looped or split.threads < 32:
            raise NotImplementedError(
                "a scan goes on along the last axis of the grid, in a tile of one dim, of 32 positions at least, in"
                " one trip"
            )
        t = code.t
        self.place = t.cast("trunc", code.places[axis], "i32")
        #: Bits of a part of a value, and words of a value.
        self.bits = 8 * dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
        self.words = _words(dtype)
        self.writes = t.cmp("eq", code.tid, i32(0))
        # A scan's values lie together: those of its programs, of its groups and of its batches.
        along = code.kernel.grid[axis]
        size = t.bin("add", code.integer(along.size), i64(along.block - 1))
        count = t.cast("trunc", t.bin("udiv", size, i64(along.block)), "i32")
        self.groups = count
        self.batches = t.bin("add", count, t.bin("lshr", count, i32(GROUP)))
        self.base = at(t, code.integer(code.workspace), TICKET)
        if len(code.kernel.grid) > 1:
            values = t.bin("add", self.batches, t.bin("lshr", count, i32(2 * GROUP)))
            self.base = self._slot(t.bin("mul", t.bin("udiv", code.program, count), values))

    def announce(self, totals: V, warps: int) -> None:
        """Publish the block's total, the tree of its warps', by the first warp."""
        t, lane = self.code.t, self.code.tid
        begin, done = t.new_label("early"), t.new_label("announced")
        t.br_if(t.cmp("ult", lane, i32(32)), begin, done)
        t.label(begin)
        exist = t.cmp("ult", lane, i32(warps))
        x = load(t, slot(self.code, totals, lane, self.dtype), self.dtype, 1, exist)[0]
        total = self._tree(select(t, exist, x, self.identity))
        self.code.write(self.total, total)
        self._publish(total, self._slot(self.place), self.writes)
        t.br(done)
        t.label(done)

    def put_before(self, totals: V, count: int, first: Register) -> None:
        """Replace `count` totals of parts of the block, in shared memory, by what precedes each; by the first warp.
        `first` is what the scan begins with."""
        t, lane = self.code.t, self.code.tid
        begin, done = t.new_label("begin"), t.new_label("done")
        t.br_if(t.cmp("ult", lane, i32(32)), begin, done)
        t.label(begin)
        each, nbytes = max(1, count // 32), dtypes.SIZE[self.dtype]
        own = at(t, totals, t.cast("zext", t.bin("mul", lane, i32(each * nbytes)), "i64"))
        exist = t.cmp("ult", lane, i32(count)) if count < 32 else None
        xs = [load(t, at(t, own, k * nbytes), self.dtype, 1, exist)[0] for k in range(each)]
        if exist is not None:
            xs = [select(t, exist, x, self.identity) for x in xs]
        xs = [*accumulate(xs, self.join)]
        earlier, _ = scan_lanes(t, xs[-1], lane, self.join, self.identity)
        before = self.join(self._find(self.code.read(self.total, self.dtype), first), earlier)
        for k, x in enumerate([before, *(self.join(before, x) for x in xs[:-1])]):
            store(t, [x], at(t, own, k * nbytes), self.dtype, exist)
        t.br(done)
        t.label(done)

    def _find(self, total: Register, first: Register) -> Register:
        """What precedes the block, whose `total` is known to the lanes of the first warp."""
        t, lane = self.code.t, self.code.tid
        group, batch = t.bin("lshr", self.place, i32(GROUP)), t.bin("lshr", self.place, i32(2 * GROUP))
        number, group_number = (t.bin("and", n, i32((1 << GROUP) - 1)) for n in (self.place, group))
        end = t.bin("add", self.batches, batch)
        earlier = Values(self, self._slot(t.bin("sub", end, i32(1))), t.cmp("ne", batch, i32(0)))
        start = t.bin("add", self.groups, t.bin("sub", group, group_number))
        groups = Values(self, self._slot(t.bin("add", start, lane)), t.cmp("ult", lane, group_number))
        start = t.bin("sub", self.place, number)
        blocks = Values(self, self._slot(t.bin("add", start, lane)), t.cmp("ult", lane, number))
        self._await(blocks)
        near = self._total(blocks)
        # Others wait for this one.
        last = t.bin("and", self.writes, t.cmp("eq", number, i32((1 << GROUP) - 1)))
        whole = self.join(near, total)
        self._publish(whole, self._slot(t.bin("add", self.groups, group)), last)
        self._await(groups, earlier)
        far = self.join(earlier.get(first), self._total(groups))
        last = t.bin("and", last, t.cmp("eq", group_number, i32((1 << GROUP) - 1)))
        self._publish(self.join(far, whole), self._slot(end), last)
        return self.join(far, near)

    def _slot(self, number: V) -> V:
        """Where one of the scan's values is."""
        t = self.code.t
        return at(t, self.base, t.bin("mul", t.cast("zext", number, "i64"), i64(8 * self.words)))

    def _publish(self, value: Register, place: V, writes: V) -> None:
        """By one thread."""
        t = self.code.t
        words: list[V] = []
        for part in parts(to_memory(t, value, self.dtype)):
            x = t.cast("zext", t.cast("bitcast", part, f"i{self.bits}"), "i64")
            halves = [x] if self.bits <= 32 else [t.bin("and", x, i64(0xFFFFFFFF)), t.bin("lshr", x, i64(32))]
            words += [t.bin("or", half, i64(1 << 32)) for half in halves]
        for k in range(0, len(words), 2):
            pair = words[k : k + 2]
            n = len(pair)
            text = f"@${n + 1} st.relaxed.gpu.global.{_access(n)} [${n}], {_braced(0, n)};"
            args = ", ".join(map(str, [*pair, at(t, place, 8 * k), writes]))
            t.line(f'call void asm sideeffect "{text}", "{",".join(["l"] * (n + 1))},b,~{{memory}}"({args})')

    def _await(self, *values: Values) -> None:
        t = self.code.t
        look, again, known = (t.new_label(k) for k in ("look", "again", "known"))
        t.br(look)
        t.label(look)
        waits = reduce(lambda a, b: t.bin("or", a, b), [v.waits() for v in values])
        t.br_if(t.call("llvm.nvvm.vote.any.sync", "i1", [i32(-1), waits], _WARP), again, known)
        t.label(again)
        for v in values:
            v.read()
        t.br(look)
        t.label(known)

    def _total(self, values: Values) -> Register:
        """The lanes' values joined, as a tree."""
        return self._tree(values.get(self.identity))

    def _tree(self, found: Register) -> Register:
        for k in range(5):
            found = self.join(found, shuffle(self.code.t, "bfly", found, i32(1 << k)))
        return found


def _access(words: int) -> str:
    return "v2.b64" if words == 2 else "b64"


def _braced(first: int, count: int) -> str:
    names = ", ".join(f"${first + k}" for k in range(count))
    return f"{{{names}}}" if count > 1 else names
