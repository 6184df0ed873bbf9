"""Scans that go on from program to program, in one pass over memory.

Programs are numbered by a ticket, so that those before a program have begun.  Each leaves the total of its block in the
workspace, then looks back over the programs before it for one whose place in the scan is known, and joins the totals
since.  They are joined one after the other, so that the result does not depend on which program that was.

A value is published as words of 64 bits, of which each says what it is next to 32 bits of it: what is read of a word
is whole, and a reader needs neither a second access nor a fence.

Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Kernel, Op
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import V
from .memory import at, i32, i64, join, load, parts, select, store
from .reduction import shuffle

if TYPE_CHECKING:
    from .codegen import Codegen

#: Workspace: the ticket, then of each program the total, later the scan's value at its end, of at most so many bytes.
TICKET = 16
STATE = 32
#: What is known of a program.
HAS_TOTAL, HAS_END = 1, 2
#: Words that a lane looks at: as many times 32 programs of one word go on from one program at a time.
ROWS = 4
#: Programs whose values are joined without asking whether there are so many.
FOLDED = 16
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
        last, alone = len(code.kernel.grid) - 1, len(op.result.type.extents) == 1
        if axis is None or axis != last or not alone or code.layout.splits[dim].looped:
            raise NotImplementedError(
                "a scan goes on along the last axis of the grid, in a tile of one dim in one trip"
            )
        t = code.t
        self.place = t.cast("trunc", code.places[axis], "i32")
        part = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
        #: Bits of a part of a value, and words of a state.
        self.bits = 8 * part
        self.words = max(1, part // 4) * (2 if dtype in dtypes.COMPLEX else 1)
        self.rows = max(1, ROWS // self.words)
        number = t.cast("zext", code.program, "i64")
        states = at(t, code.integer(code.workspace), TICKET)
        self.state = at(t, states, t.bin("mul", number, i64(8 * self.words)))
        self.writes = t.cmp("eq", code.tid, i32(0))

    def emit(self, total: Register, first: Register) -> Register:
        """What the block's elements are joined to.  `total` of the block is known to all threads, and `first`, with
        which the scan begins."""
        code, t = self.code, self.code.t
        shared = code.exchange(16)
        begin, spin, found, done = (t.new_label(k) for k in ("begin", "spin", "found", "done"))
        t.br_if(t.cmp("ult", code.tid, i32(32)), begin, done)
        t.label(begin)
        self._publish(total, HAS_TOTAL)
        lane = code.tid
        ahead = t.bin("mul", t.cast("zext", lane, "i64"), i64(-8 * self.words))
        nearest_state = at(t, self.state, ahead)
        # Before the row's first program the scan's value is `first`.
        exist = [t.cmp("ult", t.bin("add", lane, i32(32 * row)), self.place) for row in range(self.rows)]
        t.br(spin)
        t.label(spin)
        rows = [
            self._read(at(t, nearest_state, -8 * self.words * (32 * row + 1)), exists)
            for row, exists in enumerate(exist)
        ]
        waits, nearest = self._search([known for _, known in rows])
        t.br_if(waits, spin, found)
        t.label(found)
        values = [select(t, exists, value, first) for exists, (value, _) in zip(exist, rows, strict=True)]
        carry = self._fold(values, nearest)
        self._publish(self.join(carry, total), HAS_END)
        store(t, [carry], shared, self.dtype, self.writes)
        t.br(done)
        t.label(done)
        code.barrier()
        return load(t, shared, self.dtype, 1)[0]

    # -- states -------------------------------------------------------------------------------------------------------
    def _publish(self, value: Register, known: int) -> None:
        """By the block's first thread."""
        t = self.code.t
        words: list[V] = []
        for part in parts(to_memory(t, value, self.dtype)):
            x = t.cast("zext", t.cast("bitcast", part, f"i{self.bits}"), "i64")
            halves = [x] if self.bits <= 32 else [t.bin("and", x, i64(0xFFFFFFFF)), t.bin("lshr", x, i64(32))]
            words += [t.bin("or", half, i64(known << 32)) for half in halves]
        for k in range(0, len(words), 2):
            pair = words[k : k + 2]
            text = f"@${len(pair) + 1} st.relaxed.gpu.global.{_access(pair)} [${len(pair)}], {_braced(0, len(pair))};"
            args = ", ".join(map(str, [*pair, at(t, self.state, 8 * k), self.writes]))
            constraints = ",".join(["l"] * (len(pair) + 1))
            t.line(f'call void asm sideeffect "{text}", "{constraints},b,~{{memory}}"({args})')

    def _read(self, state: V, exists: V) -> tuple[Register, V]:
        """A program's value, and what it is: 0 while its words do not agree on that."""
        t = self.code.t
        words: list[V] = []
        for k in range(0, self.words, 2):
            count = min(2, self.words - k)
            ty = "{i64, i64}" if count == 2 else "i64"
            zeros = " ".join(f"mov.b64 ${i}, 0;" for i in range(count))
            access = _access(range(count))
            text = f"{zeros} @${count + 1} ld.relaxed.gpu.global.{access} {_braced(0, count)}, [${count}];"
            constraints = ",".join(["=&l"] * count)
            args = f"{at(t, state, 8 * k)}, {exists}"
            found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints},l,b,~{{memory}}"({args})', ty)
            words += [found] if count == 1 else [t.op(f"extractvalue {found}, {i}", "i64") for i in range(2)]
        flags = [t.cast("trunc", t.bin("lshr", w, i64(32)), "i32") for w in words]
        known = flags[0]
        for flag in flags[1:]:
            known = t.select(t.cmp("eq", known, flag), known, i32(0))
        pieces: list[V] = []
        if self.bits <= 32:
            pieces = [t.cast("trunc", w, f"i{self.bits}") for w in words]
        else:
            for low, high in zip(words[::2], words[1::2], strict=True):
                low = t.bin("and", low, i64(0xFFFFFFFF))
                pieces.append(t.bin("or", low, t.bin("shl", high, i64(32))))
        value = join([t.cast("bitcast", p, memory_type(self.dtype)) for p in pieces])
        return from_memory(t, value, self.dtype), t.select(exists, known, i32(HAS_END))

    def _search(self, known: Sequence[V]) -> tuple[V, V]:
        """Whether there is more to wait for, and how far back the nearest program is whose end is known."""
        t = self.code.t
        waits, nearest = V("true", "i1"), i32(0)
        for row, flags in reversed([*enumerate(known)]):
            ends = self._ballot(t.cmp("eq", flags, i32(HAS_END)))
            unknown = self._ballot(t.cmp("eq", flags, i32(0)))
            # The lanes before the nearest one whose end is known: all, if there is none.
            since = t.bin("and", t.bin("sub", ends, i32(1)), t.bin("xor", ends, i32(-1)))
            gap = t.cmp("ne", t.bin("and", unknown, since), i32(0))
            none = t.cmp("eq", ends, i32(0))
            waits = t.bin("or", gap, t.bin("and", none, waits))
            here = t.bin("add", t.call("llvm.ctpop.i32", "i32", [since]), i32(32 * row))
            nearest = t.select(none, nearest, here)
        return waits, nearest

    # -- the totals since ---------------------------------------------------------------------------------------------
    def _fold(self, values: Sequence[Register], nearest: V) -> Register:
        """The value of the program `nearest`, joined with those after it, from the farthest on."""
        code, t = self.code, self.code.t
        row, lane = t.bin("lshr", nearest, i32(5)), t.bin("and", nearest, i32(31))
        value = self._pick(values, row)
        carry = shuffle(t, "idx", value, lane)
        # Up to a multiple of FOLDED, then so many at a time.
        rest, start = t.bin("and", nearest, i32(FOLDED - 1)), t.bin("and", lane, i32(-FOLDED))
        for k in reversed(range(FOLDED - 1)):
            joined = self.join(carry, shuffle(t, "idx", value, t.bin("add", start, i32(k))))
            carry = select(t, t.cmp("ult", i32(k), rest), joined, carry)
        left, held = code.alloca("i32"), code.variable(self.dtype)
        t.line(f"store {t.bin('and', nearest, i32(-FOLDED))}, {left}")
        code.write(held, carry)
        head, body, end = (t.new_label(k) for k in ("left", "fold", "folded"))
        t.br(head)
        t.label(head)
        number, carry = t.op(f"load i32, {left}", "i32"), code.read(held, self.dtype)
        t.br_if(t.cmp("eq", number, i32(0)), end, body)
        t.label(body)
        number = t.bin("sub", number, i32(FOLDED))
        value = self._pick(values, t.bin("lshr", number, i32(5)))
        lane = t.bin("and", number, i32(31))
        for k in reversed(range(FOLDED)):
            carry = self.join(carry, shuffle(t, "idx", value, t.bin("add", lane, i32(k))))
        t.line(f"store {number}, {left}")
        code.write(held, carry)
        t.br(head)
        t.label(end)
        return code.read(held, self.dtype)

    def _pick(self, values: Sequence[Register], row: V) -> Register:
        t = self.code.t
        found = values[0]
        for k, value in enumerate(values[1:], 1):
            found = select(t, t.cmp("eq", row, i32(k)), value, found)
        return found

    def _ballot(self, condition: V) -> V:
        return self.code.t.call("llvm.nvvm.vote.ballot.sync", "i32", [i32(-1), condition], _WARP)


def _access(words: Sequence[object]) -> str:
    return "v2.b64" if len(words) == 2 else "b64"


def _braced(first: int, count: int) -> str:
    names = ", ".join(f"${first + k}" for k in range(count))
    return f"{{{names}}}" if count > 1 else names
