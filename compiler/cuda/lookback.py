"""Scans that go on from program to program, in one pass over memory.

Programs are numbered by a ticket, so that those before a program have begun.  Each leaves the total of its block in the
workspace, then looks back over the programs before it for one whose place in the scan is known, and joins the totals
since.  They are joined one after the other, so that the result does not depend on which program that was.

Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ir import Kernel, Op
from ..llvm.convert import Register
from ..llvm.text import V
from .memory import at, i32, i64, join, load, parts, select, store
from .reduction import shuffle

if TYPE_CHECKING:
    from .codegen import Codegen

#: Workspace: the ticket, then a program's state: what is known, its total, and the scan's value at its end.
TICKET = 16
STATE = 48
TOTAL, END = 16, 32
#: What is known of a program.
HAS_TOTAL, HAS_END = 1, 2
#: Lanes whose values are joined without asking whether there are so many.
FOLDED = 8
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


class LookBack:
    """Finds what precedes this program's block."""

    def __init__(self, code: Codegen, op: Op, dtype: str, join: Callable[[Register, Register], Register]) -> None:
        self.code = code
        self.dtype = dtype
        self.join = join
        dim = str(op.result.type.extents[op.attrs["dim"]])
        axis = code.kernel.dims[dim].axis
        if axis is None or axis != len(code.kernel.grid) - 1 or len(op.result.type.extents) != 1:
            raise NotImplementedError("a scan goes on along the last axis of the grid, in a tile of one dim")
        t = code.t
        self.place = t.cast("trunc", code.places[axis], "i32")
        self.states = at(t, code.integer(code.workspace), TICKET)

    def _state(self, number: V) -> V:
        t = self.code.t
        return at(t, self.states, t.bin("mul", t.cast("zext", number, "i64"), i64(STATE)))

    def _publish(self, state: V, value: Register, where: int, known: int) -> None:
        t = self.code.t
        store(t, [value], at(t, state, where), self.dtype)
        t.line(
            f'call void asm sideeffect "st.release.gpu.global.b32 [$0], $1;", "l,r,~{{memory}}"({state}, i32 {known})'
        )

    def emit(self, total: Register, first: Register) -> Register:
        """What the block's elements are joined to.  `total` of the block is known to all threads, and `first`, with
        which the scan begins."""
        code, t = self.code, self.code.t
        shared = code.exchange(16)
        alone, begin, search, spin, found, done = (
            t.new_label(k) for k in ("alone", "begin", "search", "spin", "found", "done")
        )  # fmt: skip
        mine = self._state(code.program)
        is_first = t.cmp("eq", self.place, i32(0))
        t.br_if(t.cmp("ult", code.tid, i32(32)), begin, done)
        t.label(begin)
        self._once(lambda: self._publish(mine, total, TOTAL, HAS_TOTAL))
        t.br_if(is_first, alone, search)
        t.label(alone)
        self._once(lambda: self._conclude(mine, first, total, shared))
        t.br(done)
        t.label(search)
        lane = code.tid
        # Before the row's first program the scan's value is `first`.
        exists = t.cmp("ult", lane, self.place)
        number = t.select(exists, t.bin("sub", t.bin("sub", code.program, i32(1)), lane), code.program)
        state = self._state(number)
        t.br(spin)
        t.label(spin)
        text = "mov.b32 $0, 2; @$2 ld.acquire.gpu.global.b32 $0, [$1];"
        known = t.op(f'call i32 asm sideeffect "{text}", "=&r,l,b,~{{memory}}"({state}, {exists})', "i32")
        ends = self._ballot(t.cmp("eq", known, i32(HAS_END)))
        unknown = self._ballot(t.cmp("eq", known, i32(0)))
        # The lanes before the nearest one whose end is known: all, if there is none.
        since = t.bin("and", t.bin("sub", ends, i32(1)), t.bin("xor", ends, i32(-1)))
        waits = t.bin("or", t.cmp("eq", ends, i32(0)), t.cmp("ne", t.bin("and", unknown, since), i32(0)))
        t.br_if(waits, spin, found)
        t.label(found)
        nearest = t.call("llvm.ctpop.i32", "i32", [since])
        is_nearest = t.cmp("eq", lane, nearest)
        offset = t.select(is_nearest, i64(END), i64(TOTAL))
        (value,) = load(t, at(t, state, offset), self.dtype, 1, t.bin("and", exists, t.cmp("ule", lane, nearest)))
        value = select(t, exists, value, first)
        carry = self._fold(value, nearest)
        self._once(lambda: self._conclude(mine, carry, total, shared))
        t.br(done)
        t.label(done)
        code.barrier()
        return load(t, shared, self.dtype, 1)[0]

    def _fold(self, value: Register, nearest: V) -> Register:
        """The value of lane `nearest`, joined with those of the lanes before it, from the farthest on."""
        t = self.code.t
        carry = shuffle(t, "idx", value, nearest)
        for first in reversed(range(0, 32, FOLDED)):
            then, done = t.new_label("fold"), t.new_label("folded")
            origin, before = t.block, carry
            t.br_if(t.cmp("ugt", nearest, i32(first)), then, done)
            t.label(then)
            for k in reversed(range(first, min(first + FOLDED, 31))):
                joined = self.join(carry, shuffle(t, "idx", value, i32(k)))
                carry = select(t, t.cmp("ult", i32(k), nearest), joined, carry)
            end = t.block
            t.br(done)
            t.label(done)
            pairs = zip(parts(carry), parts(before), strict=True)
            carry = join([t.phi(x.ty, (x, end), (y, origin)) for x, y in pairs])
        return carry

    def _conclude(self, mine: V, carry: Register, total: Register, shared: V) -> None:
        self._publish(mine, self.join(carry, total), END, HAS_END)
        store(self.code.t, [carry], shared, self.dtype)

    def _once(self, emit: Callable[[], None]) -> None:
        """By the block's first thread."""
        t = self.code.t
        then, done = t.new_label("one"), t.new_label("all")
        t.br_if(t.cmp("eq", self.code.tid, i32(0)), then, done)
        t.label(then)
        emit()
        t.br(done)
        t.label(done)
        t.call("llvm.nvvm.bar.warp.sync", "void", [i32(-1)], _WARP)

    def _ballot(self, condition: V) -> V:
        return self.code.t.call("llvm.nvvm.vote.ballot.sync", "i32", [i32(-1), condition], _WARP)
