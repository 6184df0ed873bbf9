"""Cuts a straight line of block IR into loop nests.

A *barrier* (reduction, dot, what moves elements) has to see all of its operand before anything reads its result.  The
stage of an op is the largest number of barriers on a path to it; ops of one stage and equal extents share one loop
nest.  Memory order adds stages where a load must see an earlier store, or a store must wait for earlier loads.

A value that another nest needs is computed again there if that is cheap and the memory it reads still stands, and is
kept in scratch otherwise.  Barrier results are always kept (scalars in registers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import ops
from ..ir import Kernel, Op, Value

#: Ops on whole tiles in scratch.
WHOLE = frozenset((
    "dot", "reshape", "join", "split", "cat", "flip", "sort", "reduce_by", "scan_by", "print",
))  # fmt: skip
BARRIERS = WHOLE | {"reduce", "argreduce", "histogram", "atomic"}
LOADS = frozenset(("load_view", "load_ptr"))
#: Ops that no access is moved over.
FENCES = frozenset(("atomic", "barrier"))
STORES = frozenset(("store_view", "store_ptr")) | FENCES
#: Values at least this dear (in additions) are kept rather than computed again.
DEAR = 7
_COSTS = {
    "const": 0, "iota": 0, "broadcast": 0, "trans": 0, "program_id": 0, "dim_start": 0, "dim_extent": 0, "load_ptr": 4,
    "gather": 4,
}  # fmt: skip

Axes = tuple[int, ...]
Key = tuple[int, int, tuple[int | str, ...]]


class Item:
    """A value needed in a nest: extent k of `value` is the nest's axis `where[k]`.

    `axes` are those nest axes that it really varies along.  `kept`: it is read from scratch, else computed by its op.
    """

    __slots__ = ("value", "where", "args", "axes", "kept", "order", "level", "shared")

    def __init__(self, value: Value, where: Axes, args: tuple[Item, ...], axes: frozenset[int], kept: bool) -> None:
        self.value = value
        self.where = where
        self.args = args
        self.axes = axes
        self.kept = kept
        self.order = 0
        self.level = -1
        #: Whether a vector op reads this uniform value, which is then splat once.
        self.shared = False


@dataclass(slots=True, eq=False)
class Nest:
    """Ops that run in one loop nest over `extents`."""

    extents: tuple[int | str, ...]
    #: Barriers, scans without another reader, and effects, in body order.
    roots: list[Op] = field(default_factory=list)
    #: Values to write to scratch.
    keeps: list[Value] = field(default_factory=list)
    #: All values, operands first.
    items: list[Item] = field(default_factory=list)
    #: What `item` made, by value and axes.
    table: dict[tuple[Value, Axes], Item] = field(default_factory=dict)

    def item(self, value: Value) -> Item:
        """The item of a value with the nest's extents, or of a scalar."""
        return self.table[resolve(value, tuple(range(len(value.type.extents))))]


@dataclass(slots=True)
class Stage:
    """Scalar ops that can run once the earlier stages have, then loop nests."""

    scalars: list[Op]
    nests: list[Nest]


def resolve(value: Value, where: Axes) -> tuple[Value, Axes]:
    """See through broadcasts and transpositions."""
    while value.op is not None and value.op.name in ("broadcast", "trans"):
        if value.op.name == "trans":
            perm = value.op.attrs["perm"]
            where = tuple([where[perm.index(k)] for k in range(len(perm))])
        else:
            where = tuple([where[d] for d in value.op.attrs["dims"]])
        value = value.op.operands[0]
    return value, where


def is_const(value: Value, number: int) -> bool:
    return value.op is not None and value.op.name == "const" and value.op.attrs["value"] == number


def pointer(op: Op) -> Value:
    """The pointer that a load or store goes through."""
    if op.attrs.get("kind") == "cas":
        return op.operands[2]
    return op.operands[0] if op.name in LOADS else op.operands[1]


def reads_whole(op: Op) -> Sequence[Value]:
    """The tiles that an op reads at other places than it writes: they must be in scratch before."""
    if op.name == "gather":
        return op.operands[:1]
    return [v for v in op.operands if v.type.extents] if op.name in WHOLE else ()


def view(op: Op) -> tuple[Value, Value, tuple[Value, ...], tuple[Value, ...]]:
    """(pointer, offset, strides, bounds) of a load_view or store_view."""
    rest = op.operands if op.name == "load_view" else op.operands[1:]
    rank = len(op.result.type.extents if op.name == "load_view" else op.operands[0].type.extents)
    return rest[0], rest[1], rest[2 : 2 + rank], rest[2 + rank :]


def loop_extents(op: Op) -> tuple[int | str, ...]:
    """Extents of the nest that runs an op."""
    if op.name in BARRIERS or not op.results:
        return op.operands[0].type.extents if op.operands else ()
    return op.result.type.extents


class Strips:
    """The nests of one straight line of ops.

    Parameters
    ----------
    kernel : Kernel
    line : sequence of Op
        Ops without regions, in order.
    escaping : set of Value
        Values of the line that something outside it reads.
    kept : set of Value
        Tiles that are in scratch; grows.
    whole : set of Value
        Values of the line that something outside it reads from scratch.
    """

    def __init__(
        self,
        kernel: Kernel,
        line: Sequence[Op],
        escaping: Iterable[Value],
        kept: set[Value],
        whole: Iterable[Value] = (),
    ) -> None:
        self.kernel = kernel
        self.line = [op for op in line if op.name != "yield"]
        self.kept = kept
        self.noalias = bool(kernel.attrs.get("noalias"))
        self.index = {op: k for k, op in enumerate(self.line)}
        self.stage: dict[Op, int] = {}
        #: Cost to compute a value again, and the loads that this repeats.
        self.cost: dict[Value, int] = {}
        self.reads: dict[Value, frozenset[Op]] = {}
        self._assign_stages()
        self._measure()
        self.nests: dict[Key, Nest] = {}
        for op in self.line:
            if op.name in BARRIERS or op.name == "scan" or not op.results:
                self._nest(self._key(op)).roots.append(op)
            if op.name in BARRIERS:
                kept.update([v for v in op.results if v.type.extents])
            for value in reads_whole(op):
                self._keep(value)
        for value in whole:
            self._keep(value)
        # Outside the line nothing more can be kept: settle it for all that escaping values are computed from.
        stack, seen = list(escaping), set[Value]()
        while stack:
            value = stack.pop()
            if value in seen or value.op not in self.index or not value.type.extents:
                continue
            seen.add(value)
            if not self._keep_if_dear(value, escapes=True):
                stack.extend(value.op.operands)
        self._collect()

    # -- stages -------------------------------------------------------------------------------------------------------
    def _key(self, op: Op, stage: int | None = None) -> Key:
        extents = loop_extents(op)
        # Values of few extents are read by nests of more, at the same stage; scalar effects come last.
        rank = len(extents) or 99
        return (self.stage[op] if stage is None else stage, 98 if op.name in WHOLE else rank, extents)

    def _nest(self, key: Key) -> Nest:
        return self.nests.setdefault(key, Nest(key[2]))

    def _ready(self, value: Value) -> int:
        op = value.op
        if op is None or op not in self.stage:
            return 0
        return self.stage[op] + (op.name in BARRIERS)

    def _may_alias(self, p: Value, q: Value) -> bool:
        return p is q or not self.noalias

    def _may_change(self, store: Op, p: Value) -> bool:
        return store.name in FENCES or self._may_alias(pointer(store), p)

    def _assign_stages(self) -> None:
        loads: list[Op] = []
        stores: list[Op] = []
        scans: dict[Key, int] = {}
        prints: list[Op] = []
        for op in self.line:
            captured = [v for region in op.regions for inner in region.ops for v in inner.operands]
            stage = max([self._ready(v) for v in (*op.operands, *captured)], default=0)
            for value in reads_whole(op):
                if value.op in self.stage:
                    stage = max(stage, self.stage[value.op] + (op.name not in WHOLE))
            permutes = op.name == "broadcast" and 0 < len(op.operands[0].type.extents) == len(op.result.type.extents)
            if permutes or op.name == "trans":
                stage += 1  # its operand's nest has as many extents
            if op.name in LOADS:
                for store in stores:
                    if self._may_change(store, pointer(op)):
                        stage = max(stage, self.stage[store] + 1)
                loads.append(op)
            elif op.name in FENCES:
                stage = max([stage, *[self.stage[other] + 1 for other in (*loads, *stores)]])
                stores.append(op)
            elif op.name == "print":
                stage = max([stage, *[self.stage[other] + 1 for other in prints]])
                prints.append(op)
            elif op.name in STORES:
                stage = self._store_stage(op, stage, loads, stores)
                stores.append(op)
            elif op.name == "scan":
                # One direction a nest.
                dim = op.attrs["dim"]
                while scans.setdefault(self._key(op, stage), dim) != dim:
                    stage += 1
            self.stage[op] = stage

    def _store_stage(self, op: Op, stage: int, loads: list[Op], stores: list[Op]) -> int:
        p = pointer(op)
        for store in stores:
            if store.name in FENCES or pointer(store) is p:
                stage = max(stage, self.stage[store] + 1)
        for load in loads:
            if not self._may_alias(p, pointer(load)):
                continue
            if pointer(load) is p and not _same_positions(load, op):
                stage = max(stage, self.stage[load] + 1)
                continue
            # In one nest a chunk is loaded before it is stored; else the store's nest comes later.
            there = self._key(load)
            while (here := self._key(op, stage)) != there and here[:2] <= there[:2]:
                stage += 1
        return stage

    # -- what to keep -------------------------------------------------------------------------------------------------
    def _measure(self) -> None:
        for op in self.line:
            if op.name in BARRIERS or op.name == "scan":
                for value in op.results:
                    self.cost[value], self.reads[value] = 1 if op.name in BARRIERS else DEAR, frozenset()
                continue
            if not op.results:
                continue
            value = op.result
            row = ops.TABLE.get(op.name)
            cost = _COSTS.get(op.name, row.cost if row else 1)
            reads = frozenset((op,)) if op.name in LOADS else frozenset()
            for v in op.operands:
                if v.type.extents:
                    below = self.cost.get(v, 1)
                    # A dear operand would itself be kept.
                    cost += below if below < DEAR else 1
                    reads |= self.reads.get(v, frozenset())
            self.cost[value], self.reads[value] = cost, reads

    def _keep(self, value: Value) -> None:
        if value not in self.kept and value.op in self.index:
            self.kept.add(value)
            if value.op.name not in BARRIERS:
                self._nest(self._key(value.op)).keeps.append(value)

    def _keep_if_dear(self, value: Value, escapes: bool = False, at: Key | None = None) -> bool:
        """Whether `value` is read from scratch in the nest `at`, which is not its own."""
        if value in self.kept:
            return True
        op = value.op
        assert op is not None
        if op not in self.index:
            return False
        reads = self.reads[value]
        dear = self.cost[value] >= DEAR or (escapes and bool(reads))
        if not dear and at is not None and reads:
            dear = any(
                store.name in STORES
                and self._key(store)[:2] <= at[:2]
                and any(self._spoils(store, load, at) for load in reads)
                for store in self.line
            )
        if dear:
            self._keep(value)
        return dear

    def _spoils(self, store: Op, load: Op, at: Key) -> bool:
        """Whether a load again in the nest `at` may find what a store before it, or one of the same nest, wrote."""
        if self._key(store) != at:
            return self._may_change(store, pointer(load))
        return store.name not in FENCES and pointer(store) is pointer(load) and not _same_positions(load, store)

    def _collect(self) -> None:
        """Fill the nests' items, last nest first, since a later nest makes earlier ones keep values."""
        done: set[Key] = set()
        while pending := [key for key in self.nests if key not in done]:
            key = max(pending, key=lambda k: (k[0], k[1], self._first(k)))
            done.add(key)
            Collector(self, key).run()

    def _first(self, key: Key) -> int:
        return min(
            [self.index[op] for op in self.nests[key].roots]
            + [self.index[v.op] for v in self.nests[key].keeps if v.op is not None]
        )

    def stages(self) -> list[Stage]:
        """The stages in the order to run them."""
        scalars: dict[int, list[Op]] = {}
        for op in self.line:
            if op.results and op.name not in BARRIERS and not op.result.type.extents:
                scalars.setdefault(self.stage[op], []).append(op)
        keys = sorted(self.nests, key=lambda k: (k[0], k[1], self._first(k)))
        last = max([*scalars, *[k[0] for k in keys]], default=-1)
        return [Stage(scalars.get(s, []), [self.nests[k] for k in keys if k[0] == s]) for s in range(last + 1)]


class Collector:
    """Finds the items of one nest."""

    def __init__(self, strips: Strips, key: Key) -> None:
        self.strips = strips
        self.key = key
        self.nest = strips.nests[key]

    def run(self) -> None:
        nest = self.nest
        wanted = [v for op in nest.roots for v in _tiles_read(op)] + nest.keeps
        wanted += [op.result for op in nest.roots if op.name == "scan"]
        stack = [(resolve(v, tuple(range(len(v.type.extents)))), False) for v in wanted]
        # Depth first with an explicit stack, as chains may be long.
        while stack:
            (value, where), ready = stack.pop()
            if (value, where) in nest.table:
                continue
            operands = self._operands(value, where)
            if not ready and operands:
                stack.append(((value, where), True))
                stack.extend([(o, False) for o in operands if o not in nest.table])
                continue
            args = tuple([nest.table[o] for o in operands])
            kept = bool(where) and self._is_kept(value)
            item = Item(value, where, args, self._axes(value, where, args, kept), kept)
            item.order = len(nest.items)
            nest.items.append(item)
            nest.table[value, where] = item

    def _is_kept(self, value: Value) -> bool:
        op = value.op
        if op is None or (value in self.strips.kept and op not in self.strips.index):
            return True
        if op in self.strips.index and op.name not in BARRIERS and self.strips._key(op) == self.key:
            return False
        return self.strips._keep_if_dear(value, at=self.key)

    def _operands(self, value: Value, where: Axes) -> list[tuple[Value, Axes]]:
        if not where or self._is_kept(value):
            return []
        op = value.op
        assert op is not None
        found = [resolve(v, where if v.type.extents else ()) for v in _tiles_read(op)]
        if op.name == "scan" and len(op.operands) == 2:
            dim = op.attrs["dim"]
            found.append(resolve(op.operands[1], where[:dim] + where[dim + 1 :]))
        return found

    def _axes(self, value: Value, where: Axes, args: tuple[Item, ...], kept: bool) -> frozenset[int]:
        op = value.op
        if not where:
            return frozenset()
        if kept or op is None or op.name in ("iota", "scan", "load_ptr", "gather"):
            return frozenset(where)
        if op.name == "load_view":
            _, _, strides, bounds = view(op)
            if bounds:
                return frozenset(where)
            return frozenset([a for a, s in zip(where, strides, strict=True) if not is_const(s, 0)])
        return frozenset().union(*[a.axes for a in args])


def copy_nest(kernel: Kernel, value: Value, kept: set[Value]) -> Nest:
    """A nest that writes one tile, which is kept or cheap to compute from what is."""
    strips = Strips(kernel, (), (), kept)
    extents = value.type.extents
    key = (0, len(extents), extents)
    strips._nest(key).keeps.append(value)
    Collector(strips, key).run()
    return strips.nests[key]


def _tiles_read(op: Op) -> Sequence[Value]:
    """Operands that an op reads lane by lane."""
    if op.name == "load_view":
        return ()
    if op.name == "store_view":
        return op.operands[:1]
    if op.name == "load_ptr":
        return op.operands[1:]
    if op.name in ("store_ptr", "atomic"):
        ptr = pointer(op)
        return [v for v in op.operands if v is not ptr]
    if op.name == "scan":
        return op.operands[:1]
    if op.name == "gather":
        return op.operands[1:]
    if op.name in WHOLE:
        return ()
    return op.operands


def _same_positions(load: Op, store: Op) -> bool:
    """Whether a load reads just the elements that a store writes, lane by lane."""
    return (
        load.name == "load_view"
        and store.name == "store_view"
        and view(load) == view(store)
        and (load.result.type.extents == store.operands[0].type.extents)
    )
