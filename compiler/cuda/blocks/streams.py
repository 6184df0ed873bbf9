"""Loads whose tiles are only multiplied: warps of their own bring them to shared memory, ahead of the products.

`split` makes two kernels of one: one that brings, in which such a load is the effect `bring`, and all that remains are
the scalars that say where tiles lie and the loops around; and one that computes, in which it is a `stage`, which waits
until the tile is there.  Both go through the same tiles in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import dtypes
from ...ir import EFFECTS, Block, Kernel, Op, Value, has_effect, written
from ...passes.dce import dce
from ...passes.rewrite import Rewriter
from .axes import constant, extents_of
from .panel import DEPTH, Panel

#: Dtypes that tensor cores take from shared memory in either direction; others must lie along the depth.
NARROW = ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class Stream:
    """A load that is made ahead."""

    op: Op
    #: The extent along which elements are consecutive, and the other one.
    inner: int
    outer: int
    panel: Panel


@dataclass(frozen=True, slots=True)
class Parts:
    """What `split` makes of a kernel."""

    whole: Kernel
    bringing: Kernel
    computing: Kernel
    streams: tuple[Stream, ...]
    #: The ring of stages that each stream goes through, by number; those of loops that follow each other share.
    rings: tuple[int, ...]


def split(kernel: Kernel) -> Parts | None:
    """The two kernels, or None if nothing can be brought ahead."""
    uses = kernel.uses()
    changing = written(kernel)
    found = tuple([
        s for op in kernel.walk()
        if op.name == "load_view" and op.operands[0] not in changing and (s := _stream(op, uses)) is not None
    ])  # fmt: skip
    if not found:
        return None
    bringing = dce(_Named(found, "bring").kernel(kernel), frozenset({"bring"}))
    # Tiles, and what is made of them, are for those that compute.
    scalars = all(not v.type.extents for op in bringing.walk() if op.name != "bring" for v in op.results)
    if not scalars or any(has_effect(op) for op in bringing.walk()):
        return None
    computing = dce(_Named(found, "stage").kernel(kernel), EFFECTS | {"stage"})
    return Parts(kernel, bringing, computing, found, _rings(bringing, found))


def goes_on(block: Block, loops: int = 0) -> bool:
    """Whether tiles are brought in loops in loops: a program goes on from result to result by itself."""
    for op in block.ops:
        if op.name == "bring" and loops > 1:
            return True
        if any(goes_on(region, loops + (op.name in ("for", "while"))) for region in op.regions):
            return True
    return False


def _rings(bringing: Kernel, streams: Sequence[Stream]) -> tuple[int, ...]:
    """Rings for streams: tiles of equal form, of blocks of which none stands in the other, go through one."""
    homes: dict[int, tuple[Block, ...]] = {}
    stack: list[tuple[Block, tuple[Block, ...]]] = [(bringing.body, ())]
    while stack:
        block, outer = stack.pop()
        around = (*outer, block)
        for op in block.ops:
            if op.name == "bring":
                homes[op.attrs["stream"]] = around
            stack += [(region, around) for region in op.regions]
    rings: list[list[int]] = []
    for k, stream in enumerate(streams):
        own = homes[k]
        for ring in rings:
            others = [homes[n] for n in ring]
            apart = all(own[-1] not in o and o[-1] not in own for o in others)
            if apart and streams[ring[0]].panel == stream.panel:
                ring.append(k)
                break
        else:
            rings.append([k])
    return tuple([next(i for i, ring in enumerate(rings) if k in ring) for k in range(len(streams))])


def _stream(op: Op, uses: dict[Value, list[Op]]) -> Stream | None:
    extents = extents_of(op.result)
    if len(extents) != 2 or op.attrs.get("other", 0):
        return None
    inner = [d for d in range(2) if constant(op.operands[2 + d]) == 1]
    found = factors(op.result, uses)
    if len(inner) != 1 or not found:
        return None
    panel = Panel(extents[1 - inner[0]], extents[inner[0]], dtypes.SIZE[op.result.type.dtype])
    if panel.row < 32 or panel.rows < 16:
        return None
    if panel.size != 2 and any(inner[0] != dim for dim in found):
        # Only elements of 16 bits are turned on the way.
        return None
    return Stream(op, inner[0], 1 - inner[0], panel)


def factors(value: Value, uses: dict[Value, list[Op]]) -> list[int] | None:
    """Of each use of a tile as a product's factor, the tile's dim that is summed over; None if it has other uses."""
    found: list[int] = []
    for op in uses.get(value, ()):
        if op.name == "trans":
            turned = factors(op.result, uses)
            if turned is None:
                return None
            found += [1 - dim for dim in turned]
        elif op.name == "dot" and value not in op.operands[2:] and suits(op):
            found += [1 - k for k, v in enumerate(op.operands[:2]) if v is value]
        else:
            return None
    return found


def is_staged(value: Value) -> bool:
    """Whether a tile is one that others bring, turned or not."""
    return _origin(value) == "stage"


def is_copied(value: Value) -> bool:
    """Whether a tile is one that was copied ahead, turned or not."""
    return _origin(value) == "staged"


def _origin(value: Value) -> str:
    while value.op is not None and value.op.name == "trans":
        (value,) = value.op.operands
    return value.op.name if value.op is not None else ""


def suits(op: Op) -> bool:
    """Whether Hopper's tensor cores take a product's second operand, and maybe its first, from shared memory."""
    if len(op.result.type.extents) != 2:
        return False
    (m, n), k = extents_of(op.result), extents_of(op.operands[0])[-1]
    a, b = (v.type.dtype for v in op.operands[:2])
    result = op.result.type.dtype
    if a in NARROW:
        taken = b == a and result == "f32"
    elif a == "f32":
        deep = all(_is_along(v, 1 - k) for k, v in enumerate(op.operands[:2]))
        taken = op.attrs.get("precision") == "tf32" and deep
    elif a in dtypes.FLOAT8:
        taken = b in dtypes.FLOAT8 and result == "f32"
    else:
        taken = {a, b} <= {"i8", "u8"} and result == "i32"
    return taken and m >= 64 and n >= 16 and k * dtypes.SIZE[a] >= DEPTH


def _is_along(value: Value, dim: int) -> bool:
    """Whether a tile is one of memory, in rows along a dim."""
    while value.op is not None and value.op.name == "trans":
        (value,) = value.op.operands
        dim = 1 - dim
    op = value.op
    if op is None:
        return False
    match op.name:
        case "stage":
            return True
        case "staged":
            return op.attrs["inner"] == dim
        case name:
            return name == "load_view" and constant(op.operands[2 + dim]) == 1


class _Named(Rewriter):
    """Gives streams' loads another name."""

    def __init__(self, streams: Sequence[Stream], name: str) -> None:
        super().__init__()
        self.numbers = {s.op: k for k, s in enumerate(streams)}
        self.name = name

    def op(self, op: Op) -> None:
        number = self.numbers.get(op)
        if number is None:
            return super().op(op)
        brings = self.name == "bring"
        if brings:
            # It stays for whoever reads the tile, which is nobody, or else nothing can be brought.
            super().op(op)
        types = () if brings else (op.result.type,)
        attrs = op.attrs | {"stream": number}
        made = Op(self.name, self.operands(op) if brings else (), types, attrs, (), op.line)
        self.out.append(made)
        if not brings:
            self.replace(op, made.results)
        return None
