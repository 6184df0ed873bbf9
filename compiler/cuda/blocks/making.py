"""Tensor maps that blocks make as they run, for arrays whose addresses they load from memory.

A map must lie in global memory.  Each block has room there for some maps of each stream, which it takes while it runs:
blocks of another launch may run at the same time.  A map is a copy of one that the host made, with another address and
another stride.  Of a stream's maps a new one takes the place of the oldest, by which nothing is copied any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...llvm.text import V
from .. import tensor_maps
from ..memory import at, i32, i64
from .panel import PIECE
from .streams import Stream

if TYPE_CHECKING:
    from .specialised import Specialised

#: Blocks that there is room for: more than run at once.
BLOCKS = 512
#: Bytes of a word in global memory.
WORD = 4


def template(code: Specialised, stream: Stream, far: int) -> dict[str, Any] | None:
    """What the host makes for a stream's maps to be copies of; None if they cannot be made."""
    panel, pointer = stream.panel, stream.op.operands[0]
    aligned = code.kernel.attrs.get("aligned", ())
    params = [p for p in code.kernel.params if p.type.pointer and p.name in aligned]
    if pointer in code.kernel.params or not params or panel.rows > 256 or not code.persistent:
        return None
    slots = code.slots()
    return {
        "dtype": pointer.type.dtype, "pointer": slots[params[0]], "far": far,
        "strides": [{"value": panel.row // panel.size}], "box": [panel.side, panel.rows],
    }  # fmt: skip


class Making:
    """The maps of one kernel's blocks; `streams` are those that have some."""

    def __init__(self, code: Specialised) -> None:
        self.code = code
        self.streams: list[int] = []
        #: Of each stream: where its maps are; the address and the stride of the last one, and its place.
        self.cells: dict[int, tuple[V, list[V]]] = {}

    def _each(self) -> int:
        """Maps of a stream: as many as may be in use, and one."""
        return max(self.code.depths) + 1

    def globals(self) -> list[str]:
        if not self.streams:
            return []
        words = BLOCKS * len(self.streams) * self._each() * tensor_maps.NBYTES // WORD
        return [
            f"@made = internal addrspace(1) global [{words} x i32] zeroinitializer, align {tensor_maps.NBYTES}",
            f"@busy = internal addrspace(1) global [{BLOCKS} x i32] zeroinitializer, align {WORD}",
        ]

    # -- a block's room -----------------------------------------------------------------------------------------------
    def take(self, place: int) -> None:
        """Have one thread take room, and leave its number in shared memory."""
        if not self.streams:
            return
        code, t = self.code, self.code.t
        cell = t.cell("i32")
        first = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        t.set(cell, t.bin("urem", first, i32(BLOCKS)))
        head, busy, free = t.new_label("take"), t.new_label("busy"), t.new_label("free")
        with t.if_(t.cmp("eq", code.tid, i32(0))):
            # What runs at once is less than there is room for, so that some is free.
            t.br(head)
            t.label(head)
            number = t.get(cell, "i32")
            t.br_if(t.cmp("eq", self._count(number, 1), i32(0)), free, busy)
            t.label(busy)
            self._count(number, -1)
            t.set(cell, t.bin("urem", t.bin("add", number, i32(1)), i32(BLOCKS)))
            t.br(head)
            t.label(free)
            code._act("st.shared.b32 [$0], $1;", t.bin("add", code.base, i32(place)), number)

    def _count(self, number: V, change: int) -> V:
        t = self.code.t
        word = at(t, V("@busy", "ptr addrspace(1)"), t.cast("zext", t.bin("mul", number, i32(WORD)), "i64"))
        return t.op(f"atomicrmw add {word}, i32 {change} monotonic", "i32")

    def taken(self, place: int) -> V:
        """The number of the room that the block has."""
        t = self.code.t
        return t.load(at(t, V("@shared", "ptr addrspace(3)"), place), "i32", WORD)

    def leave(self, place: int) -> None:
        """Have one thread give the room back, when all copies have been made."""
        if self.streams:
            with self.code.t.if_(self.code.t.cmp("eq", self.code.tid, i32(0))):
                self._count(self.taken(place), -1)

    # -- maps ---------------------------------------------------------------------------------------------------------
    def begin(self, place: int) -> None:
        """In the thread that brings: where maps are, and of what arrays, which are none yet."""
        t = self.code.t
        if not self.streams:
            return
        nbytes = self._each() * tensor_maps.NBYTES
        block = t.bin("mul", t.cast("zext", self.taken(place), "i64"), i64(len(self.streams) * nbytes))
        start = at(t, V("@made", "ptr addrspace(1)"), block)
        for k, number in enumerate(self.streams):
            own = t.op(f"ptrtoint {at(t, start, k * nbytes)} to i64", "i64")
            self.cells[number] = own, [t.cell(ty) for ty in ("i64", "i64", "i32")]
            for cell, value in zip(self.cells[number][1], (i64(0), i64(0), i32(0)), strict=True):
                t.set(cell, value)

    def suits(self, pointer: V, stride: V) -> V:
        """Whether there is a map of rows so many bytes apart."""
        t = self.code.t
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        even = t.cmp("eq", t.bin("and", t.bin("or", address, stride), i64(PIECE - 1)), i64(0))
        return t.bin("and", even, t.cmp("ult", t.bin("sub", stride, i64(1)), i64((1 << 40) - 1)))

    def map(self, number: int, source: V, pointer: V, stride: V) -> V:
        """A map of an array for the thread that brings: the last one, if it is of the same."""
        t = self.code.t
        start, (last, pitch, place) = self.cells[number]
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        same = t.bin("and", t.cmp("eq", t.get(last, "i64"), address), t.cmp("eq", t.get(pitch, "i64"), stride))
        with t.if_(t.bin("xor", same, V("true", "i1"))):
            following = t.bin("add", t.get(place, "i32"), i32(1))
            following = t.select(t.cmp("eq", following, i32(self._each())), i32(0), following)
            for cell, value in ((last, address), (pitch, stride), (place, following)):
                t.set(cell, value)
            self._make(self._at(start, following), source, address, stride)
        return self._at(start, t.get(place, "i32"))

    def _at(self, start: V, place: V) -> V:
        t = self.code.t
        return t.bin("add", start, t.bin("mul", t.cast("zext", place, "i64"), i64(tensor_maps.NBYTES)))

    def _make(self, to: V, source: V, address: V, stride: V) -> None:
        copies = [
            f"ld.v2.b64 {{x, y}}, [$1+{k}]; st.global.v2.b64 [$0+{k}], {{x, y}};"
            for k in range(0, tensor_maps.NBYTES, 16)
        ]
        self.code._act(
            f"{{ .reg .b64 x, y; {' '.join(copies)} "
            "tensormap.replace.tile.global_address.global.b1024.b64 [$0], $2; "
            "tensormap.replace.tile.global_stride.global.b1024.b64 [$0], 0, $3; "
            "fence.proxy.tensormap::generic.release.gpu; "
            f"fence.proxy.tensormap::generic.acquire.gpu [$0], {tensor_maps.NBYTES}; }}", to, source, address, stride,
        )  # fmt: skip
