"""Tensor maps that blocks make as they run, for arrays whose addresses they load from memory.

A map must lie in global memory.  Each block has room there for some maps of each stream, which it takes while it runs:
blocks of another launch may run at the same time.  A map is a copy of one that the host made, with another address and
another stride; it is changed in shared memory, where that takes less time.  Of a stream's maps a new one takes the
place of the oldest, by which nothing is copied any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...llvm.text import V
from .. import tensor_maps
from ..memory import at, i32, i64
from .panel import PIECE
from .streams import Stream

if TYPE_CHECKING:
    from .specialised import Bringing, Specialised

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


@dataclass(frozen=True, slots=True)
class Made:
    """The maps of one stream."""

    #: Among the streams that have some, and where in shared memory the next one is made.
    number: int
    draft: V
    #: Variables: how many blocks had asked for the room before; the last map (0: none yet), and of what address and
    #: stride it is.
    before: V
    last: V
    address: V
    stride: V


class Making:
    """The maps of one kernel's blocks; `streams` are those that have some.

    All the warp that moves a stream's tiles makes its maps.
    """

    def __init__(self, code: Specialised) -> None:
        self.code = code
        self.streams: list[int] = []
        self.made: dict[int, Made] = {}
        self.drafts = 0

    def _each(self) -> int:
        """Bytes of a stream's maps: as many as may be in use and one, made a power of two."""
        return tensor_maps.NBYTES << max(self.code.depths).bit_length()

    def globals(self) -> list[str]:
        if not self.streams:
            return []
        rooms = BLOCKS * len(self.streams)
        nbytes = rooms * self._each()
        return [
            f"@made = internal addrspace(1) global [{nbytes} x i8] zeroinitializer, align {self._each()}",
            f"@busy = internal addrspace(1) global [{rooms} x i32] zeroinitializer, align {WORD}",
        ]

    def place_drafts(self, start: int) -> int:
        """Place in shared memory behind `start` what maps are made in, and tell where it ends."""
        if not self.streams:
            return start
        self.drafts = -(-start // tensor_maps.NBYTES) * tensor_maps.NBYTES
        return self.drafts + len(self.streams) * tensor_maps.NBYTES

    # -- a block's room -----------------------------------------------------------------------------------------------
    def begin(self, bringing: Bringing) -> None:
        """Copy what maps are copies of to shared memory, and ask for room, which takes long to be granted."""
        code, t = self.code, self.code.t
        copies = [
            f"ld.v2.b64 {{x, y}}, [$1+{k}]; st.shared.v2.b64 [$0+{k}], {{x, y}};"
            for k in range(0, tensor_maps.NBYTES, PIECE)
        ]
        for k, stream in enumerate(self.streams):
            source = code.names[stream]
            assert source is not None
            draft = t.bin("add", code.base, i32(self.drafts + k * tensor_maps.NBYTES))
            made = self.made[stream] = Made(k, draft, *(t.cell(ty) for ty in ("i32", "i64", "i64", "i64")))
            t.set(made.before, i32(0))
            for cell in (made.last, made.address, made.stride):
                t.set(cell, i64(0))
            with t.if_(bringing.leads(stream)):
                t.set(made.before, self._count(made, self._first(), 1))
                code._act(f"{{ .reg .b64 x, y; {' '.join(copies)} }}", draft, source)

    def _first(self) -> V:
        """The room that is tried first."""
        t = self.code.t
        block = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        return t.bin("urem", block, i32(BLOCKS))

    def _count(self, made: Made, room: V, change: int) -> V:
        """Add to how many blocks have a stream's room, or want it; how many it were before."""
        t = self.code.t
        word = t.bin("add", t.bin("mul", room, i32(WORD)), i32(made.number * BLOCKS * WORD))
        place = at(t, V("@busy", "ptr addrspace(1)"), t.cast("zext", word, "i64"))
        return t.op(f"atomicrmw add {place}, i32 {change} monotonic", "i32")

    def _rooms(self, made: Made) -> V:
        """The address of a stream's rooms."""
        t = self.code.t
        start = at(t, V("@made", "ptr addrspace(1)"), made.number * BLOCKS * self._each())
        return t.op(f"ptrtoint {start} to i64", "i64")

    def _take(self, made: Made, first: V) -> None:
        """Wait for room; `first` is true in the warp's first thread."""
        t = self.code.t
        cell, head, busy, free = t.cell("i32"), t.new_label("take"), t.new_label("busy"), t.new_label("free")
        t.set(cell, self._first())
        with t.if_(first):
            # What runs at once is less than there is room for, so that some is free.
            t.br(head)
            t.label(head)
            room = t.get(cell, "i32")
            t.br_if(t.cmp("eq", t.get(made.before, "i32"), i32(0)), free, busy)
            t.label(busy)
            self._count(made, room, -1)
            following = t.bin("urem", t.bin("add", room, i32(1)), i32(BLOCKS))
            t.set(cell, following)
            t.set(made.before, self._count(made, following, 1))
            t.br(head)
            t.label(free)
        args = [i32(-1), t.get(cell, "i32"), i32(0), i32(31)]
        room = t.call("llvm.nvvm.shfl.sync.idx.i32", "i32", args, "convergent nounwind")
        t.set(made.last, t.bin("add", self._rooms(made), t.bin("mul", t.cast("zext", room, "i64"), i64(self._each()))))

    def leave(self, bringing: Bringing) -> None:
        """Give the room back, when all copies have been made."""
        t = self.code.t
        for stream, made in self.made.items():
            with t.if_(bringing.leads(stream)):
                last = t.get(made.last, "i64")
                taken = t.bin("sub", last, self._rooms(made))
                taken = t.cast("trunc", t.bin("lshr", taken, i64(self._each().bit_length() - 1)), "i32")
                self._count(made, t.select(t.cmp("eq", last, i64(0)), self._first(), taken), -1)

    # -- maps ---------------------------------------------------------------------------------------------------------
    def suits(self, pointer: V, stride: V) -> V:
        """Whether there is a map of rows so many bytes apart."""
        t = self.code.t
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        even = t.cmp("eq", t.bin("and", t.bin("or", address, stride), i64(PIECE - 1)), i64(0))
        return t.bin("and", even, t.cmp("ult", t.bin("sub", stride, i64(1)), i64((1 << 40) - 1)))

    def renew(self, stream: int, pointer: V, stride: V, first: V) -> None:
        """See to it that the last map is of an array, in the warp whose first thread is `first`."""
        code, t, made = self.code, self.code.t, self.made[stream]
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        moved = t.cmp("ne", t.get(made.address, "i64"), address)
        with t.if_(t.bin("or", moved, t.cmp("ne", t.get(made.stride, "i64"), stride))):
            t.set(made.address, address)
            t.set(made.stride, stride)
            with t.if_(t.cmp("eq", t.get(made.last, "i64"), i64(0))):
                self._take(made, first)
            last = t.get(made.last, "i64")
            mask = self._each() - 1
            following = t.bin("and", t.bin("add", last, i64(tensor_maps.NBYTES)), i64(mask))
            to = t.bin("or", t.bin("and", last, i64(~mask)), following)
            t.set(made.last, to)
            with t.if_(first):
                code._act(
                    "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [$0], $1; "
                    "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [$0], 0, $2;",
                    made.draft, address, stride,
                )  # fmt: skip
            code._act("bar.warp.sync 0xffffffff;")
            code._act(
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                f"[$0], [$1], {tensor_maps.NBYTES}; "
                f"fence.proxy.tensormap::generic.acquire.gpu [$0], {tensor_maps.NBYTES};", to, made.draft,
            )  # fmt: skip

    def last(self, stream: int) -> V:
        """The last map that was made."""
        return self.code.t.get(self.made[stream].last, "i64")
