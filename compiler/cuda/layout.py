"""How a block's threads share the positions of a kernel's dims.

All tiles of a kernel have one layout.  Each dim is split as

    position = trip * chunk + (high * threads + thread) * vector + low,    chunk = repeat * threads * vector

where a thread holds the elements of all `high` and `low` in registers.  A tile over some of the dims is held alike by
all threads that differ in the other dims only.  A long row that is walked again is spread over the threads of several
blocks, a cluster, which count as the threads of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

from .. import dtypes, ops
from ..draws import PER_BLOCK
from ..ir import Kernel, Op, Value
from . import scatter
from .target import Target

if TYPE_CHECKING:
    from .windows import Windows

#: Bytes of the widest access, and of a thread's share of a row of windows.
WIDE = 16
WINDOW = 8
#: Threads of a block that streams, and of one that keeps its elements from pass to pass.
STREAMING = 512
RESIDENT = 1024
#: Words that a thread keeps of a block that waits for others, and the registers that it needs beside them.
SCANNED, SPARE = 32, 32
#: Threads of a block that walks a dim of unknown extent.
WALKING = 256
#: Threads of a block whose time goes to functions of doubles, in additions an element, from so many on: they take
#: twice the registers, and more small blocks than large ones fit.
COMPUTING, HEAVY = 128, 20
#: Bytes of columns that are walked again that a thread holds.
COLUMN_BYTES = 128
#: Elements of four bytes that a thread holds at most, and registers of a processor.
REGISTERS, REGISTER_FILE = 32, 1 << 16
#: Elements a thread of rows of floats that just fill a block of STREAMING threads so.
FEWER = 8
#: Bytes that a thread of a kernel with reductions or scans takes at once if it can.
GOAL = 64
#: Blocks that a cluster may have on every GPU, and the shortest rows that are loaded ahead.
CLUSTER = 8
AHEAD = 1 << 15
ACROSS = frozenset(("reduce", "argreduce", "scan"))
#: Register numbers by dim.
Point = Mapping[str, int]
VIEWS = frozenset(("load_view", "store_view"))


@dataclass(slots=True)
class Split:
    """One dim's share: see the module's docstring."""

    vector: int = 1
    threads: int = 1
    repeat: int = 1
    #: The thread's number in this dim is bits [shift, shift + log2(threads)) of its number in the block.
    shift: int = 0
    #: Whether there is more than one trip.
    looped: bool = False

    @property
    def registers(self) -> int:
        return self.vector * self.repeat

    @property
    def chunk(self) -> int:
        return self.registers * self.threads

    @property
    def bits(self) -> range:
        return range(self.shift, self.shift + self.threads.bit_length() - 1)

    def offset(self, register: int) -> int:
        """Position of a register's element beyond the thread's first one."""
        high, low = divmod(register, self.vector)
        return high * self.threads * self.vector + low


@dataclass(slots=True)
class Layout:
    splits: dict[str, Split]
    #: The dim whose neighbours are neighbours in memory.
    lane: str | None
    #: Dims that some reduction or scan goes along.
    walked: frozenset[str]
    #: Threads that hold something of their own, and threads of a block.
    active: int
    threads: int
    #: Blocks that a processor must be able to run at once, which bounds the registers.
    blocks: int = 1
    #: Blocks of a program.
    cluster: int = 1
    #: Whether a block goes from program to program and loads ahead.
    ahead: bool = False

    def looped(self, extents: tuple[int | str, ...]) -> tuple[str, ...]:
        """Those of the extents that the strips walk over in trips."""
        return tuple([e for e in extents if isinstance(e, str) and self.splits[e].looped and e in self.walked])

    @property
    def outer(self) -> list[str]:
        """Parallel dims that the whole body makes trips over."""
        return [name for name, s in self.splits.items() if s.looped and name not in self.walked]


# -- facts about values and accesses ----------------------------------------------------------------------------------
def is_const(value: Value, number: int) -> bool:
    return value.op is not None and value.op.name == "const" and value.op.attrs["value"] == number


def beyond(value: Value, dim: int | str) -> list[Value] | None:
    """The scalars that an index is beyond the position in a dim by, if that is what it is."""
    op = value.op
    if op is None:
        return None
    if op.name == "iota":
        return [] if op.result.type.extents == (dim,) else None
    if op.name == "broadcast":
        return beyond(op.operands[0], dim)
    if op.name not in ("add", "multiply"):
        return None
    for x, other in (op.operands, op.operands[::-1]):
        while other.op is not None and other.op.name == "broadcast":
            other = other.op.operands[0]
        if other.type.extents or (op.name == "multiply" and not is_const(other, 1)):
            continue
        found = beyond(x, dim)
        if found is not None:
            return found if op.name == "multiply" or is_const(other, 0) else [*found, other]
    return None


def finds_position(op: Op) -> bool:
    """Whether an argreduce is of a row of numbers and gives a position in it, so that the elements' order is known."""
    value, *indices = op.operands
    if not indices or len(op.attrs["dims"]) > 1 or value.type.dtype not in (*dtypes.INTEGER, *dtypes.FLOAT):
        return False
    return beyond(indices[0], str(value.type.extents[op.attrs["dims"][0]])) is not None


class Facts:
    """What is known of a kernel's integers and pointers before it runs."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.aligned = frozenset(kernel.attrs.get("aligned", ()))
        self.even = frozenset(kernel.attrs.get("even", ()))
        self._multiples: dict[Value, int] = {}

    def assume(self, value: Value, divisor: int) -> None:
        """Say what divides a scalar, such as a loop's index."""
        self._multiples[value] = divisor

    def multiple(self, value: Value) -> int:
        """A divisor of an i64 scalar: 1, 2, 4, 8 or 16."""
        found = self._multiples.get(value)
        if found is None:
            found = self._multiples[value] = self._multiple(value)
        return found

    def _multiple(self, value: Value) -> int:
        op = value.op
        if op is None:
            return 16 if value.name in self.aligned else 2 if value.name in self.even else 1
        match op.name:
            case "const":
                return gcd(op.attrs["value"], 16)
            case "dim_start":
                return gcd(self.kernel.dims[op.attrs["dim"]].block or 16, 16)
            case "add" | "subtract":
                return gcd(*(self.multiple(v) for v in op.operands))
            case "multiply":
                a, b = (self.multiple(v) for v in op.operands)
                return min(16, a * b)
        return 1

    def divides_extent(self, dim: str, vector: int) -> bool:
        """Whether every program's extent of a dim is a multiple of `vector`."""
        d = self.kernel.dims[dim]
        return self.multiple(d.size) % vector == 0 and (d.block or 0) % vector == 0

    def width(self, op: Op, lane: int | str) -> int:
        """Elements along `lane` that a view can access at once; 0 where they are no neighbours."""
        pointer, offset, strides, extents = view(op)
        if lane not in extents:
            return 0
        if not is_const(strides[extents.index(lane)], 1):
            return 0
        size = dtypes.SIZE[pointer.type.dtype]
        known = WIDE // size if pointer.name in self.aligned else 2 if pointer.name in self.even else 1
        step = gcd(self.multiple(offset), *(self.multiple(s) for e, s in zip(extents, strides) if e != lane))
        return max(1, min(known, WIDE // size, step))

    def widest(self, op: Op) -> int:
        """Elements along any dim that a view can access at once."""
        return max(self.width(op, str(e)) for e in view(op)[3])


def view(op: Op) -> tuple[Value, Value, tuple[Value, ...], tuple[int | str, ...]]:
    """(pointer, offset, strides, extents) of a load_view or store_view."""
    if op.name == "load_view":
        rest, extents = op.operands, op.result.type.extents
    else:
        rest, extents = op.operands[1:], op.operands[0].type.extents
    return rest[0], rest[1], rest[2 : 2 + len(extents)], extents


def bucket(kernel: Kernel, dim: str) -> int | None:
    """A power of two that the dim's extent does not exceed, if one is known."""
    d = kernel.dims[dim]
    return d.block if d.block is not None else d.bucket


def _weight(op: Op) -> int:
    pointer, _, _, extents = view(op)
    return dtypes.SIZE[pointer.type.dtype] * 64 ** len(extents) * (3 if op.name == "store_view" else 2)


def _lane(kernel: Kernel, views: list[Op]) -> str | None:
    score: dict[str, int] = {}
    for op in views:
        _, _, strides, extents = view(op)
        for e, s in zip(extents, strides, strict=True):
            if isinstance(e, str) and is_const(s, 1):
                score[e] = score.get(e, 0) + _weight(op)
    return max(score, key=lambda e: score[e]) if score else next(reversed(kernel.dims), None)


def _vector(facts: Facts, views: list[Op], lane: str, windows: Mapping[Op, Windows]) -> int:
    """Neighbours along the lane dim that a thread holds: of windows, no more than all accesses take at once."""
    wide, narrow, vector = 0, 0, 1
    largest = 1
    for op in views:
        width = facts.width(op, lane)
        size = dtypes.SIZE[view(op)[0].type.dtype]
        if lane in view(op)[3]:
            largest = max(largest, size)
        if width > 1:
            wide += _weight(op)
            vector = max(vector, width)
        elif width == 1 and size < WIDE:
            narrow += _weight(op)
    if narrow >= wide:
        return 1
    if windows:
        # Those that are shifted along two dims or more need many registers.
        most = WINDOW // largest if any({lane} < w.shifted for w in windows.values()) else WIDE
        return min(max(1, most), *(max(1, facts.width(op, lane)) for op in views if lane in view(op)[3]))
    return max(1, min(vector, 2 * WIDE // largest))


def _passes(kernel: Kernel, walked: frozenset[str]) -> int:
    """How often the walked dims are gone through: once more behind each reduction."""
    depth: dict[Value, int] = {}
    most = 1
    for op in kernel.walk():
        below = max([depth.get(v, 0) for v in op.operands], default=0)
        if any(walked.intersection(v.type.extents) for v in (*op.operands, *op.results)):
            most = max(most, below + 1)
        for v in op.results:
            depth[v] = below + (op.name in ("reduce", "argreduce"))
    return most


def _walked(kernel: Kernel) -> frozenset[str]:
    found: set[str] = set()
    for op in kernel.walk():
        if op.name in ACROSS:
            extents = op.operands[0].type.extents
            dims = (op.attrs["dim"],) if op.name == "scan" else op.attrs["dims"]
            found.update(str(extents[d]) for d in dims)
    return frozenset(found)


def _floor(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def is_serial(kernel: Kernel) -> bool:
    """Whether the order of scattered stores matters."""
    return bool(kernel.attrs.get("serial")) and any(op.name == "store_ptr" for op in kernel.walk())


def in_order(kernel: Kernel) -> Layout:
    """The layout of a kernel whose every warp walks all positions in order, the last dim fastest."""
    (store,) = [op for op in kernel.walk() if op.name == "store_ptr"]
    extents = [str(e) for e in store.operands[2].type.extents]
    splits = {name: Split(looped=True) for name in kernel.dims}
    if extents:
        splits[extents[-1]] = Split(threads=32, repeat=8, looped=True)
    return Layout(splits, extents[-1] if extents else None, frozenset(kernel.dims), 32, scatter.THREADS)


def spread(length: int, width: int, vector: int, target: Target) -> tuple[int, int] | None:
    """How a row that is walked again is spread: the threads of a block, and the blocks of a cluster.

    Not at all if it is short, or too long, or if its elements cannot be copied by the 16 bytes.
    """
    held = REGISTERS * 4 // max(4, width)
    if length < AHEAD or vector * width < WIDE:
        return None
    if length <= RESIDENT * held:
        return RESIDENT, 1
    # Blocks of a cluster wait for one another: better two on a processor.
    threads = max(RESIDENT // 2, length // (CLUSTER * held))
    return (threads, length // (threads * held)) if threads <= RESIDENT and target.clusters else None


def choose(kernel: Kernel, target: Target, facts: Facts, windows: Mapping[Op, Windows]) -> Layout:
    """The layout of a kernel.

    Along dims other than the lane that windows are shifted along, a thread holds all positions.
    """
    if is_serial(kernel):
        return in_order(kernel)
    # Windows that can be loaded in wide accesses are read once, however many there are.
    shared = {op for op, w in windows.items() if op is not w.origin and facts.widest(w.origin) > 1}
    views = [op for op in kernel.walk() if op.name in VIEWS and op not in shared]
    walked = _walked(kernel)
    sizes = {name: bucket(kernel, name) for name in kernel.dims}
    lane = _lane(kernel, views)
    splits = {name: Split() for name in kernel.dims}
    if lane is None:
        return Layout(splits, None, walked, 1, target.warp)
    vector = _vector(facts, views, lane, windows)
    if vector == 1 and not any(lane in view(op)[3] for op in views):
        # Neighbours share blocks of random bits.
        vector = max(PER_BLOCK.get(op.name, 1) for op in kernel.walk())
    goes_on = any(op.name == "scan" and op.attrs.get("across") for op in kernel.walk())
    vector = min(vector, (sizes[lane] or 16) // (target.warp if goes_on else 1) or 1)
    splits[lane].vector = vector
    # Innermost first; scans go along registers rather than threads.
    scanned = {op.operands[0].type.extents[op.attrs["dim"]] for op in kernel.walk() if op.name == "scan"}
    order = [lane, *sorted((n for n in reversed(kernel.dims) if n != lane), key=lambda n: n in scanned)]
    width = max([dtypes.SIZE[view(op)[0].type.dtype] for op in views if lane in view(op)[3]], default=8)
    several = _passes(kernel, walked) > 1
    goal = max(vector, min(16, (GOAL if walked else 32) // width))
    if several and lane not in walked:
        # Threads of a column join in shared memory, the fewer the better.
        goal = max(goal, COLUMN_BYTES // width)
    limit = REGISTERS * 4 // max(4, width)
    shifted = {name for w in windows.values() for name in w.shifted}
    goal = max(goal, min(limit, vector * prod(sizes[name] or 1 for name in shifted if name != lane)))
    bounded = 1
    for size in sizes.values():
        bounded *= size or 1
    if several and lane in walked and width == 4 and bounded == FEWER * STREAMING:
        goal = max(vector, FEWER)
    unbounded = [n for n in order if sizes[n] is None]
    kept = several and not scanned and not unbounded
    shares = None
    if width == 2 and vector > 1 and kept and RESIDENT * limit < bounded <= 2 * RESIDENT * limit:
        limit *= 2  # two elements a register, see runs.py
    elif kept and len(order) == 1:
        shares = spread(bounded, width, vector, target)
    if not walked and _cost_of_doubles(kernel) >= HEAVY:
        # Short trips: several blocks then share a processor, some computing while others load.
        limit, streaming = goal, COMPUTING
    else:
        streaming = STREAMING
    most = RESIDENT if several and bounded <= RESIDENT * limit else streaming
    if not shares and any(op.name == "argreduce" and finds_position(op) for op in kernel.walk()):
        # What a thread has is compared twice.
        limit, most = goal, RESIDENT if lane in walked and bounded <= RESIDENT * goal else streaming
    if goes_on:
        # Its block is one trip, and waits for others: what does not wait must fill the memory's pipes meanwhile.
        most = min(RESIDENT, max(target.warp, bounded * max(4, width) // 4 // SCANNED))
        goal = limit = bounded // most
    threads = min(most, max(target.warp, _floor(bounded // goal)))
    if unbounded:
        threads = WALKING
    threads, cluster = shares or (threads, 1)
    # Threads go to the inner dims first.
    left, shift = threads * cluster, 0
    for name in order:
        split, size = splits[name], sizes[name]
        split.threads = left if size is None else min(left, max(1, size // split.vector))
        split.shift = shift
        shift += split.threads.bit_length() - 1
        left //= split.threads
        if size is not None:
            split.repeat = max(1, size // (split.threads * split.vector))
        else:
            split.looped = True
    _limit(splits, order, walked, limit, goal)
    while unbounded and _elements(splits) * 2 <= goal:
        splits[unbounded[0]].repeat *= 2
    active = 1 << shift
    # One block of so many threads alone would not load while it computes.
    words = _elements(splits) * max(4, width) // 4
    blocks = 2 if active == RESIDENT and words <= REGISTERS // 2 else 1
    if goes_on:
        # While some wait for what precedes them, others load.
        blocks = max(1, REGISTER_FILE // (active * (words + SPARE)))
    threads = max(active // cluster, target.warp)
    cluster = max(1, active // threads)
    if cluster > 1:
        blocks = max(1, RESIDENT // threads)
    ahead = shares is not None and target.async_copy
    return Layout(splits, lane, walked, active, threads, blocks, cluster, ahead)


def _cost_of_doubles(kernel: Kernel) -> int:
    """Additions of doubles that an element takes as long as."""
    found = (op for op in kernel.walk() if op.results and op.result.type.dtype == "f64" and op.result.type.extents)
    return sum(ops.TABLE[op.name].cost for op in found if op.name in ops.TABLE)


def _elements(splits: dict[str, Split]) -> int:
    n = 1
    for split in splits.values():
        n *= split.registers
    return n


def _limit(splits: dict[str, Split], order: list[str], walked: frozenset[str], limit: int, goal: int) -> None:
    """Make trips over dims, walked and outer ones first, until a thread holds few enough elements."""
    outermost = order[::-1]
    for name in sorted(outermost, key=lambda n: n not in walked):
        split = splits[name]
        if _elements(splits) <= limit:
            break
        while split.repeat > 1 and _elements(splits) > goal:
            split.repeat //= 2
            split.looped = True
