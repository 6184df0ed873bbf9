"""Tensor maps that blocks make as they run, for arrays whose addresses they load from memory.

A map must lie in global memory.  Each block takes room there for some maps while it runs: blocks of another launch may
run at the same time.  A map is a copy of one that the host made, with another address and another stride; it is changed
in shared memory, where that takes less time.  A new one takes the place of the oldest, by which nothing is copied any
more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...llvm.text import V
from .. import tensor_maps
from ..memory import SHARED, at, i32, i64
from .panel import PIECE
from .sending import MEET
from .streams import Stream

if TYPE_CHECKING:
    from .specialised import Bringing, Specialised

#: Blocks that there is room for: more than run at once.
BLOCKS = 512
#: Bytes of a word in global memory, and of what is known of the last map in shared memory.
WORD, STATE = 4, 32
#: Bytes from row to row that a map can have are below.
PITCH = 1 << 40
#: What bounds are taken to be at most, so that a position and a bound make a size.
FARTHEST = 1 << 30


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
    """Maps that a block makes: of a stream's tiles that lie within their bounds, or of those that are cut."""

    stream: int
    cut: bool
    #: Among all that a block makes; and in shared memory where the next one is made, and what the last one is of.
    number: int
    draft: int
    state: int
    #: A variable: how many blocks had asked for the room before.
    before: V


class Making:
    """The maps of one kernel's blocks: of all tiles of `streams`, and of tiles of others (`cut`) that are cut.

    All the warp that moves a stream's tiles makes its maps.
    """

    def __init__(self, code: Specialised) -> None:
        self.code = code
        self.streams: list[int] = []
        self.cut: list[int] = []
        self.made: dict[tuple[int, bool], Made] = {}
        self.drafts = 0

    def _each(self) -> int:
        """Bytes of as many maps as may be in use and one, made a power of two."""
        return tensor_maps.NBYTES << max(self.code.depths).bit_length()

    def kinds(self) -> list[tuple[int, bool]]:
        """Streams, and whether of tiles that are cut."""
        return [(k, False) for k in self.streams] + [(k, True) for k in self.cut]

    def globals(self) -> list[str]:
        if not self.kinds():
            return []
        rooms = BLOCKS * len(self.kinds())
        nbytes = rooms * self._each()
        return [
            f"@made = internal addrspace(1) global [{nbytes} x i8] zeroinitializer, align {self._each()}",
            f"@busy = internal addrspace(1) global [{rooms} x i32] zeroinitializer, align {WORD}",
        ]

    def place_drafts(self, start: int) -> int:
        """Place in shared memory behind `start` what maps are made in, and tell where it ends."""
        if not self.kinds():
            return start
        self.drafts = -(-start // tensor_maps.NBYTES) * tensor_maps.NBYTES
        return self.drafts + len(self.kinds()) * (tensor_maps.NBYTES + STATE)

    # -- a block's room -----------------------------------------------------------------------------------------------
    def begin(self, bringing: Bringing) -> None:
        """Ask for room for maps that are needed at once, since it takes long to be granted."""
        code, t = self.code, self.code.t
        kinds = self.kinds()
        for k, (stream, cut) in enumerate(kinds):
            draft = self.drafts + k * tensor_maps.NBYTES
            state = self.drafts + len(kinds) * tensor_maps.NBYTES + k * STATE
            made = self.made[stream, cut] = Made(stream, cut, k, draft, state, t.cell("i32"))
            t.set(made.before, i32(0))
            with t.if_(bringing.leads(stream)):
                self._keep(made, [i64(0)] * 4)
                if not cut:
                    self._ask(made)
        if kinds:
            code._act(MEET)

    def _keep(self, made: Made, state: list[V]) -> None:
        """Write what the last map is of: address, stride and sizes; and where it is, or 0."""
        for k in range(0, len(state), 2):
            place = self._shared(made.state + 8 * k)
            self.code._act("st.shared.v2.b64 [$0], {$1, $2};", place, *state[k : k + 2])

    def _shared(self, place: int) -> V:
        return self.code.t.bin("add", self.code.base, i32(place))

    def _kept(self, made: Made, k: int) -> V:
        t = self.code.t
        return t.load(t.op(f"inttoptr {self._shared(made.state + 8 * k)} to {SHARED}", SHARED), "i64", 8)

    def _ask(self, made: Made) -> None:
        """Ask for room, and copy to shared memory what maps are copies of."""
        source = self.code.names[made.stream]
        assert source is not None
        self.code.t.set(made.before, self._count(made, self._first(), 1))
        copies = [
            f"ld.v2.b64 {{x, y}}, [$1+{k}]; st.shared.v2.b64 [$0+{k}], {{x, y}};"
            for k in range(0, tensor_maps.NBYTES, PIECE)
        ]
        self.code._act(f"{{ .reg .b64 x, y; {' '.join(copies)} }}", self._shared(made.draft), source)

    def _first(self) -> V:
        """The room that is tried first."""
        t = self.code.t
        block = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [], "nounwind memory(none)")
        return t.bin("urem", block, i32(BLOCKS))

    def _count(self, made: Made, room: V, change: int) -> V:
        """Add to how many blocks have some room, or want it; how many it were before."""
        t = self.code.t
        word = t.bin("add", t.bin("mul", room, i32(WORD)), i32(made.number * BLOCKS * WORD))
        place = at(t, V("@busy", "ptr addrspace(1)"), t.cast("zext", word, "i64"))
        return t.op(f"atomicrmw add {place}, i32 {change} monotonic", "i32")

    def _rooms(self, made: Made) -> V:
        """Where the rooms begin."""
        t = self.code.t
        start = at(t, V("@made", "ptr addrspace(1)"), made.number * BLOCKS * self._each())
        return t.op(f"ptrtoint {start} to i64", "i64")

    def _take(self, made: Made, first: V) -> V:
        """Wait for room; where it is."""
        t = self.code.t
        cell, head, busy, free = t.cell("i32"), t.new_label("take"), t.new_label("busy"), t.new_label("free")
        t.set(cell, self._first())
        with t.if_(first):
            if made.cut:
                self._ask(made)
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
        return t.bin("add", self._rooms(made), t.bin("mul", t.cast("zext", room, "i64"), i64(self._each())))

    def leave(self, bringing: Bringing) -> None:
        """Give all room back, when all copies have been made."""
        t = self.code.t
        for made in self.made.values():
            with t.if_(bringing.leads(made.stream)):
                last = self._kept(made, 3)
                taken = t.cmp("ne", last, i64(0))
                away = t.bin("lshr", t.bin("sub", last, self._rooms(made)), i64(self._each().bit_length() - 1))
                room = t.select(taken, t.cast("trunc", away, "i32"), self._first())
                with t.if_(taken if made.cut else None):
                    self._count(made, room, -1)

    # -- maps ---------------------------------------------------------------------------------------------------------
    def suits(self, pointer: V, stride: V, most: int) -> V:
        """Whether there is a map of rows so many bytes apart, which are below `most`."""
        t = self.code.t
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        even = t.cmp("eq", t.bin("and", t.bin("or", address, stride), i64(PIECE - 1)), i64(0))
        return t.bin("and", even, t.cmp("ult", t.bin("sub", stride, i64(1)), i64(most - 1)))

    def map(self, stream: int, pointer: V, stride: V, sizes: tuple[V, V] | None, first: V) -> V:
        """A map for the warp whose first thread is `first`, of an array or of so much of it: the last one, or anew."""
        code, t, made = self.code, self.code.t, self.made[stream, sizes is not None]
        address = t.op(f"ptrtoint {pointer} to i64", "i64")
        both = i64(0)
        if sizes is not None:
            both = t.bin("or", sizes[0], t.bin("shl", sizes[1], i64(32)))
        wanted = [address, stride, both]
        kept = [self._kept(made, k) for k in range(4)]
        changed = t.cmp("ne", kept[0], address)
        for old, new in list(zip(kept, wanted, strict=False))[1 : 2 if sizes is None else 3]:
            changed = t.bin("or", changed, t.cmp("ne", old, new))
        cell = t.cell("i64")
        t.set(cell, kept[3])
        with t.if_(changed):
            code._act(MEET)
            with t.if_(t.cmp("eq", kept[3], i64(0))):
                t.set(cell, self._take(made, first))
            last, mask = t.get(cell, "i64"), self._each() - 1
            following = t.bin("and", t.bin("add", last, i64(tensor_maps.NBYTES)), i64(mask))
            to = t.bin("or", t.bin("and", last, i64(~mask)), following)
            t.set(cell, to)
            with t.if_(first):
                self._keep(made, [*wanted, to])
                self._replace(made, address, stride, sizes)
            code._act(MEET)
            code._act(
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                f"[$0], [$1], {tensor_maps.NBYTES}; "
                f"fence.proxy.tensormap::generic.acquire.gpu [$0], {tensor_maps.NBYTES};", to, self._shared(made.draft),
            )  # fmt: skip
        return t.get(cell, "i64")

    def _replace(self, made: Made, address: V, stride: V, sizes: tuple[V, V] | None) -> None:
        t = self.code.t
        fields = [("global_address", "b64", ""), ("global_stride", "b64", " 0,")]
        operands = [address, stride]
        if sizes is not None:
            fields += [("global_dim", "b32", " 0,"), ("global_dim", "b32", " 1,")]
            operands += [t.cast("trunc", size, "i32") for size in sizes]
        text = " ".join(
            f"tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [$0],{where} ${k + 1};"
            for k, (name, kind, where) in enumerate(fields)
        )
        self.code._act(text, self._shared(made.draft), *operands)
