"""Launch plans: a recorded graph -> the steps that compute it.

A plan refers to the graph by position only, so one plan serves every graph with the same key.  The key holds structure,
shapes and strides; offsets of buffers and values of scalars are arguments.
"""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from . import dtypes
from . import expr as E
from .expr import Expr
from .fusion import partition
from .group import COPY, PARTIAL, WRITES, Group, chooses_triples, memory_of, operands, touched
from .ir import Kernel
from .lower import lower
from .lower_online import lower_online
from .ops import LITERAL_EXPONENTS, TABLE
from .policy import Policy
from .prepare import EMPTY, Prepared, prepare
from .printer import text

POWER = TABLE["power"]
#: Operations whose inputs do not say what the result's dtype is.
_TYPED = frozenset((TABLE["cast"], E.DOT))


_new = object.__new__
_NONE: frozenset[int] = frozenset()


@dataclass(slots=True, init=False)
class Graph:
    """A recorded graph in canonical order (consumers first), with its key; `scan` makes it."""

    nodes: list[Expr]
    key: tuple[Any, ...]
    #: Position of a BUFFER -> of an earlier one that is the same window of the same memory.
    twins: dict[int, int]
    #: How many of the nodes were asked for: the first ones.
    roots: int
    external: tuple[int, ...]
    donated: tuple[int, ...]
    #: Positions of BUFFERs, whether several of them are of the same memory, and whether there are writes.
    leaves: list[int]
    related: bool
    writes: bool
    #: On a GPU: BUFFERs and UPDATEs whose memory begins at a multiple of 16 bytes.
    aligned: frozenset[int]
    #: On a GPU: (BUFFER, another one, elements from that one on) of windows that are shifted a little; and those "other
    #: ones" that begin at a multiple of two elements.
    shifted: tuple[tuple[int, int, int], ...]
    even: frozenset[int]
    #: On a GPU: whether leaves have to be copied there first.
    elsewhere: bool


def scan(roots: list[Expr]) -> Graph:
    """Walk the graph behind `roots`, which are distinct.

    A node that something beside the graph refers to is `external`: an array, or a graph that is not evaluated now,
    holds it.  This is the path of every warm flush, so it is spelled out rather than short.
    """
    nodes = roots.copy()
    first = len(nodes)
    # The key says of every input, in order, what it is: the operation of a new node, the position of one met before.
    # How many inputs there are follows from the operation.
    key: list[Any] = [first]
    #: Nodes with inputs, in the order in which these are looked at.
    inner: list[Expr] = []
    #: Positions of nodes that may be met again, and how often each was met as an input.
    index: dict[Expr, int] = {}
    edges: dict[int, int] = {}
    leaves: list[int] = []
    writes = False
    refs, alone, scalar_op, buffer_op = sys.getrefcount, _ALONE, E.SCALAR, E.BUFFER
    if first > 1:  # a root alone is nobody's input
        for i, x in enumerate(roots):
            index[x] = i
            edges[i] = 0
    for x in roots:
        key.append(x.op)
        if x.inputs:
            inner.append(x)
        else:
            key.append(x.shape)
            key.append(x.dtype)
    for node in inner:
        inputs = node.inputs
        for x in inputs:
            op = x.op
            if op is scalar_op:
                # Another argument wherever it is read, whether or not the node is the same: plans do not tell numbers
                # apart.
                nodes.append(x)
                key.append(type(x.attrs))
                continue
            if refs(x) != alone:  # else nothing but `inputs` refers to it: it is not met again, and not external
                i = index.get(x)
                if i is not None:
                    key.append(i)
                    edges[i] += 1
                    continue
                index[x] = i = len(nodes)
                edges[i] = 1
            nodes.append(x)
            key.append(op)
            if x.inputs:
                inner.append(x)
            else:
                key.append(x.shape)
                key.append(x.dtype)
                if op is buffer_op:
                    key.append(x.attrs[2])
                    leaves.append(len(nodes) - 1)
        attrs = node.attrs
        op = node.op
        if attrs is not None:
            if op is E.UPDATE:
                writes = True
                key.append(attrs[1])
                key.append(inputs[1].shape)
            else:
                writes = writes or op is E.SCATTER
                key.append(attrs)
                if op is E.VIEW:
                    key.append(node.shape)
                elif op is E.HOST:
                    key.append((len(inputs), node.shape, node.dtype))
        elif op in _TYPED:
            key.append(node.dtype)
        elif op is POWER and inputs[1].op is scalar_op and inputs[1].attrs in LITERAL_EXPONENTS:
            key.append((float(inputs[1].attrs),))
    # A name that still refers to a node would count as a holder.
    node = inputs = x = None  # type: ignore[assignment]
    inner.clear()
    related = len(leaves) > 1 and len({id(nodes[i].attrs[0]) for i in leaves}) < len(leaves)
    twins: dict[int, int] = {}
    buffers: dict[int, list[int]] = {}
    if writes or related:
        _compare(nodes, leaves, buffers, twins)
        key.append(tuple(twins.items()))
    # The graph's own references to a node: `index`, `nodes`, the argument of getrefcount, and its readers.
    external: tuple[int, ...] = ()
    if edges:
        external = tuple([i for i, n in edges.items() if nodes[i].inputs and refs(nodes[i]) - n > 3 and i >= first])
    donated: tuple[int, ...] = ()
    if writes:
        donated = _donated(nodes, edges, buffers)
        key.append(donated)
        key.append(_relations(nodes, buffers))
    key.append(external)
    graph = _new(Graph)
    graph.nodes = nodes
    graph.key = tuple(key)
    graph.roots = first
    graph.leaves = leaves
    graph.twins = twins
    graph.related = related
    graph.writes = writes
    graph.external = external
    graph.donated = donated
    graph.aligned = graph.even = _NONE
    graph.shifted = ()
    graph.elsewhere = False
    return graph


def _part_scalars(graph: Graph) -> None:
    """Give each place where a scalar is read a node of its own: whoever plans tells arguments apart by their nodes."""
    nodes = graph.nodes
    first = graph.roots
    places: dict[Expr, list[int]] = {}
    for i in range(len(nodes) - 1, first - 1, -1):
        if nodes[i].op is E.SCALAR:
            places.setdefault(nodes[i], []).append(i)
    seen = set(nodes[:first])
    for node in nodes.copy():  # inputs stand in the order of their readers
        inputs = list(node.inputs)
        for k, x in enumerate(inputs):
            if x.op is E.SCALAR:
                place = places[x].pop()
                if x in seen:
                    inputs[k] = nodes[place] = Expr(E.SCALAR, (), x.attrs, (), x.dtype, 0, x.device)
                seen.add(x)
        if any(map(operator.is_not, inputs, node.inputs)):
            node.inputs = tuple(inputs)


def _alone() -> int:
    """What `scan` sees as the number of references to an input that nothing else refers to."""
    inputs = (object(),)
    for x in inputs:
        return sys.getrefcount(x)
    raise AssertionError


_ALONE = _alone()


def _compare(nodes: list[Expr], leaves: list[int], buffers: dict[int, list[int]], twins: dict[int, int]) -> None:
    """Fill in the leaves of each buffer, and which of them are the same window as an earlier one."""
    for position in leaves:
        leaf = nodes[position]
        attrs = leaf.attrs
        same = buffers.setdefault(id(attrs[0]), [])
        for t in same:
            other = nodes[t]
            if other.shape == leaf.shape and other.attrs[1:] == attrs[1:] and other.dtype is leaf.dtype:
                twins[position] = t
                break
        same.append(position)


def _donated(nodes: list[Expr], edges: dict[int, int], buffers: dict[int, list[int]]) -> tuple[int, ...]:
    """Buffers that only this graph holds (or that must be written in place): a write may take their memory over."""
    refs = sys.getrefcount
    donated: list[int] = []
    for same in buffers.values():
        buf = nodes[same[0]].attrs[0]
        # One reference by each leaf, by `buf` and by the argument; each leaf held by the graph alone.
        if buf.pinned or (
            refs(buf) - len(same) <= 2 and all(t not in edges or refs(nodes[t]) - edges[t] <= 3 for t in same)
        ):
            donated += [t for t in same if _whole(nodes[t])]
    return tuple(sorted(donated))


def _whole(leaf: Expr) -> bool:
    return leaf.attrs[1] == 0 and leaf.attrs[2] == E.contiguous_strides(leaf.shape)


def _relations(nodes: list[Expr], buffers: dict[int, list[int]]) -> tuple[Any, ...]:
    """What a plan with writes may depend on: where windows of one memory lie, if it has several."""
    relative = [tuple((t, nodes[t].attrs[1]) for t in same) for same in buffers.values() if len(same) > 1]
    offsets = tuple(n.attrs[0] for n in nodes if n.op is E.UPDATE)
    written = {x for n in nodes if n.op in WRITES for x in (n, n.inputs[0])}
    several = bool(relative) or any(n.op is E.VIEW and n.inputs[0] in written for n in nodes)
    pinned = tuple(t[0] for t in buffers.values() if nodes[t[0]].attrs[0].pinned)
    return (tuple(relative), offsets, pinned) if several else (pinned,)


@dataclass(slots=True)
class KernelStep:
    """Run a kernel.

    `writes` are (slot, bytes): memory for its results.  `reserves`, likewise, is what to allocate before it: the same,
    but what would be allocated after an array's memory was overwritten is allocated before that.  `args` follow the
    kernel's parameters: ("int", value), ("pointer", slot, byte offset, position of an UPDATE whose offset is added or
    -1, bytes of an element), ("scalar", position), ("value", NumPy scalar), ("errors",), ("workspace",).
    """

    name: str
    key: str
    kernel: Kernel
    #: Programs of the linear grid, and whether one thread runs them in order.
    programs: int
    serial: bool
    #: What a failed check says, by its number.
    messages: tuple[str, ...]
    args: list[tuple[Any, ...]]
    writes: list[tuple[int, int]]
    reads: list[int]
    bytes: int
    flops: int
    ops: list[str]
    inputs: list[str]
    outputs: list[str]
    cuts: list[str]
    #: Where results may differ from those of one operation after the other.
    notes: list[str]
    #: Slots of memory that it changes.
    changes: list[int]
    #: Whether its schedule was chosen by measuring.
    tuned: bool = False
    reserves: list[tuple[int, int]] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)


@dataclass(slots=True)
class HostStep:
    """Call a function on NumPy arrays: `operands` are (slot, offset, strides, shape, dtype)."""

    name: str
    position: int
    operands: list[tuple[Any, ...]]
    slot: int
    shape: E.Shape
    dtype: Any
    function: Any
    static: tuple[Any, ...]
    reads: list[int] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    steps: list[KernelStep | HostStep]
    #: (slot, position of the BUFFER in the graph)
    leaves: list[tuple[int, int]]
    slots: int
    #: (position of a node, slot, offset, strides): what each computed node becomes.
    results: list[tuple[int, int, int, E.Shape]]
    #: (position, slot) of results without elements.
    empty: list[int]
    #: Operations that were recorded.
    recorded: int


def build(graph: Graph, policy: Policy) -> Plan:
    """Plan a graph: rewrite, partition, lower."""
    _part_scalars(graph)
    nodes = graph.nodes
    if len({*nodes}) < len(nodes):
        raise AssertionError("nodes share a tuple of inputs")
    roots = nodes[: graph.roots]
    external = {nodes[i] for i in graph.external}
    donated = {nodes[graph.twins.get(i, i)] for i in graph.donated}
    twins = {nodes[i]: nodes[t] for i, t in graph.twins.items()}
    copied: set[Expr] = set()
    apart: dict[Expr, str] = {}
    while True:
        prepared = prepare(roots, twins, external, donated, copied, policy, apart)
        stored = prepared.roots | prepared.stored
        groups = partition(prepared.order, stored, prepared.external, policy, prepared.online, prepared.apart)
        conflict = _order(groups)
        if isinstance(conflict, list):
            try:
                made = _Assembly(graph, prepared, conflict, policy).run()
            except Unserved as e:
                if e.rows:
                    policy = replace(policy, rows=False)
                    continue
                product = next(n for n in nodes if prepared.image.get(n) is e.product)
                apart[product] = "the target has no schedule for the kernel that they would be"
                continue
            kept = _read_later(graph, made) | _at_risk(graph, made, policy)
            lost = {x for x in donated if id(x.attrs[0]) in kept and not x.attrs[0].pinned}
            if not lost:
                return made
            donated -= lost
            continue
        # The write cannot come after all readers of what it overwrites: let it copy.
        copied.add(next(n for n in nodes if prepared.image[n] is conflict))


def _read_later(graph: Graph, made: Plan) -> set[int]:
    """Ids of the buffers behind held nodes that the plan does not compute: they must outlive its writes."""
    done = {graph.nodes[i] for i in (*made.empty, *[r[0] for r in made.results])}
    found: set[int] = set()
    stack = [graph.nodes[i] for i in graph.external]
    while stack:
        node = stack.pop()
        if node not in done:
            done.add(node)
            stack.extend(node.inputs)
            if node.op is E.BUFFER:
                found.add(id(node.attrs[0]))
    return found


def _at_risk(graph: Graph, made: Plan, policy: Policy) -> set[int]:
    """Ids of the buffers that are overwritten before a step that may raise an error.

    Nothing is published then, so that what was recorded would be done to them again, the next time.
    """
    leaves = dict(made.leaves)
    changed: set[int] = set()
    found: set[int] = set()
    for step in made.steps:
        if isinstance(step, HostStep):
            found |= changed
            continue
        # A GPU's checks are looked at later, when all is published.
        if (step.messages and policy.target == "cpu") or ("workspace",) in step.args:
            found |= changed
        changed.update(slot for slot in step.changes if slot in leaves)
    return {id(graph.nodes[leaves[slot]].attrs[0]) for slot in found}


def _dependencies(groups: list[Group]) -> dict[Group, set[Group]]:
    """The groups that must run before each: those that it reads, and those that read what it overwrites."""
    home = {out: g for g in groups for out in g.outputs}
    before: dict[Group, set[Group]] = {g: set() for g in groups}
    #: Groups that read a piece of memory, or overwrite it.
    users: dict[int, list[Group]] = {}
    for g in groups:
        beside = operands(g.root)
        for x in (*g.uses, *beside):
            if x in home and home[x] is not g:
                before[g].add(home[x])
        for x in {_memory(x) for x in (*g.uses, *beside)}:
            users.setdefault(x, []).append(g)
    for g in groups:
        if g.root.op in WRITES:
            base = g.root.inputs[0]
            before[g].update(u for u in users[_memory(base)] if u is not g and u is not home.get(base))
    return before


def _memory(x: Expr) -> int:
    """What names the memory behind an input."""
    return id(x.attrs[0]) if x.op is E.BUFFER else id(x)


def _order(groups: list[Group]) -> list[Group] | Expr:
    """The groups in an order that runs readers of a base before the write to it; a write for which there is none."""
    before = _dependencies(groups)
    ordered: list[Group] = []
    state: dict[Group, int] = {}
    for start in groups:
        stack = [start]
        while stack:
            g = stack[-1]
            if state.get(g) == 2:
                stack.pop()
                continue
            state[g] = 1
            waiting = [p for p in before[g] if state.get(p) != 2]
            for p in waiting:
                if state.get(p) == 1:
                    # A cycle: some write on the stack must copy.
                    for member in reversed(stack):
                        if member.root.op in WRITES and member.root.inputs[0].op is not COPY:
                            return member.root
                    raise AssertionError("kernels depend on each other")
            if waiting:
                stack.extend(waiting)
            else:
                state[g] = 2
                ordered.append(g)
                stack.pop()
    return ordered


class Unserved(Exception):
    """A product, after a softmax or, if `rows`, before reductions of its rows, for whose kernel there is no code."""

    def __init__(self, product: Expr, rows: bool = False) -> None:
        super().__init__("no code for the kernel")
        self.product = product
        self.rows = rows


class _Assembly:
    """Ordered groups -> a plan."""

    def __init__(self, graph: Graph, prepared: Prepared, groups: list[Group], policy: Policy) -> None:
        self.graph = graph
        self.policy = policy
        self.prepared = prepared
        self.groups = groups
        self.position = {n: i for i, n in enumerate(graph.nodes)}
        #: Recorded node of a write or library call: the window's offset, or the function, is read from it at launch.
        self.source: dict[Expr, int] = {}
        for n, i in self.position.items():
            if n.op in (E.UPDATE, E.HOST) and prepared.image[n].attrs is n.attrs:  # not the image of an input
                self.source[prepared.image[n]] = i
        #: The window that a shifted one's memory is addressed from, and its distance.
        self.origins = {graph.nodes[i]: (graph.nodes[k], distance) for i, k, distance in graph.shifted}
        self.slot: dict[Expr, int] = {}
        self.leaves: list[tuple[int, int]] = []
        self.count = 0

    def run(self) -> Plan:
        steps: list[KernelStep | HostStep] = []
        for g in self.groups:
            if g.root.op is E.HOST:
                steps.append(self._host(g.root))
            else:
                steps.append(self._kernel(g))
        results: list[tuple[int, int, int, E.Shape]] = []
        empty: list[int] = []
        for position in (*range(self.graph.roots), *self.graph.external):
            node = self.graph.nodes[position]
            made = self.prepared.image[node]
            offset, strides = 0, E.contiguous_strides(node.shape)
            if made.op is EMPTY:
                empty.append(position)
                continue
            if made.op is E.VIEW and made.inputs[0].inputs and made.inputs[0].op is not E.VIEW:
                offset, strides = made.attrs
                made = made.inputs[0]
            elif made.op is E.BUFFER:
                offset, strides = made.attrs[1:]
                self._slot(made)
            if made in self.slot:
                results.append((position, self.slot[made], offset, strides))
        self._reserve(steps)
        self._lifetimes(steps, {r[1] for r in results})
        recorded = sum(1 for n in self.graph.nodes if n.inputs and n.op is not E.VIEW)
        return Plan(steps, self.leaves, self.count, results, empty, recorded)

    def _slot(self, node: Expr) -> int:
        found = self.slot.get(node)
        if found is None:
            if node.op in WRITES:
                found = self._slot(node.inputs[0])
            else:
                found = self.count
                self.count += 1
                if node.op is E.BUFFER:
                    self.leaves.append((found, self.position[node]))
            self.slot[node] = found
        return found

    def _alignment(self, node: Expr) -> int:
        """A number of bytes, 16 at most, that memory begins at a multiple of in every graph of this key."""
        if node.op is E.UPDATE and node.inputs[0].op is EMPTY:
            return 16
        if node.op is E.BUFFER or node.op is E.UPDATE:
            position = self.position.get(node, self.source.get(node, -1))
            least = 2 * node.dtype.itemsize if position in self.graph.even else 1
            return 16 if position in self.graph.aligned else least
        return self._alignment(node.inputs[0]) if node.op is E.SCATTER else 16

    def _kernel(self, g: Group) -> KernelStep:
        name = _name(g)
        lowered = (lower if g.online is None else lower_online)(g, name, self.policy, self._alignment, self.origins)
        rows = g.product is not None and g.reduces > 0 and g.online is None
        if (rows or g.online is not None) and self.policy.serves is not None and not self.policy.serves(lowered.kernel):
            product = g.product if g.online is None else g.online.product
            assert product is not None
            raise Unserved(product, rows)
        writes = []
        for out in g.outputs:
            known = out in self.slot
            slot = self._slot(out)
            if not known and (out.op not in WRITES or out.inputs[0].op is EMPTY):
                dtype, count = memory_of(out)
                writes.append((slot, count * dtype.itemsize))
        args: list[tuple[Any, ...]] = []
        for arg in lowered.args:
            if arg.kind == "int":
                args.append(("int", arg.offset))
            elif arg.kind == "pointer":
                node = arg.node
                assert node is not None
                window = self.source.get(node, -1) if node in g.outputs and node.op is E.UPDATE else -1
                size = memory_of(node)[0].itemsize
                args.append(("pointer", self._slot(node), arg.offset * size, window, size))
            elif arg.kind == "scalar":
                assert arg.node is not None
                position = self.position.get(arg.node)
                args.append(("value", arg.node.attrs) if position is None else ("scalar", position))
            else:
                args.append((arg.kind,))
        inputs = [x for x in g.uses if x not in g.nodes and x.op not in (E.SCALAR, E.IOTA)]
        reads = dict.fromkeys([self._slot(y) for x in inputs for y in (x, *self.origins.get(x, ())[:1])])
        moved = sum(touched(x) for x in inputs) + sum((o.inputs[1] if o.op in WRITES else o).nbytes for o in g.outputs)
        flops = sum(n.op.cost * n.size for n in g.nodes)
        if g.product is not None:
            products = [g.product] if g.online is None else [g.product, g.online.scores]
            flops += sum([2 * x.size * x.inputs[0].shape[-1] for x in products])
        named = [n for n in reversed(g.nodes) if not chooses_triples(n)]
        ops = [n.op.name if n.op is not E.DOT or n.attrs is None else f"dot ({n.attrs})" for n in named]
        return KernelStep(
            name, text(lowered.kernel), lowered.kernel, lowered.programs, lowered.serial, lowered.messages, args,
            writes, list(reads), moved, flops, ops,
            [_spell(x) for x in inputs], [_spell(o) for o in g.outputs],
            [f"{_spell(n)} ({n.op.name}): {why}" for n, why in g.cuts], _notes(g),
            [self._slot(o) for o in g.outputs if o.op in WRITES], lowered.tuned,
        )  # fmt: skip

    def _host(self, node: Expr) -> HostStep:
        operands = []
        for x in node.inputs:
            base = x.inputs[0] if x.op is E.VIEW else x
            if base.op is EMPTY:
                operands.append((-1, 0, (), x.shape, x.dtype))
                continue
            offset, strides = x.attrs if x.op is E.VIEW else (0, E.contiguous_strides(x.shape))
            if x.op is E.BUFFER:
                offset, strides = 0, x.attrs[2]
            operands.append((self._slot(base), offset, strides, x.shape, x.dtype))
        reads = [o[0] for o in operands if o[0] >= 0]
        name, function, static = node.attrs
        slot = self._slot(node)
        return HostStep(name, self.source[node], operands, slot, node.shape, node.dtype, function, static, reads)

    def _reserve(self, steps: list[KernelStep | HostStep]) -> None:
        """Say when memory is allocated: all of it that is left before an array's memory is first overwritten.

        So there is either memory for all of the rest, or nothing has changed.
        """
        leaves = {slot for slot, _ in self.leaves}
        kernels = [step for step in steps if isinstance(step, KernelStep)]
        for i, step in enumerate(kernels):
            if leaves.intersection(step.changes):
                step.reserves = [write for later in kernels[i:] for write in later.writes]
                return
            step.reserves = step.writes

    def _lifetimes(self, steps: list[KernelStep | HostStep], kept: set[int]) -> None:
        """Free each temporary after the last step that touches it."""
        kept = kept | {slot for slot, _ in self.leaves}
        last: dict[int, int] = {}
        for i, step in enumerate(steps):
            touched = [*step.reads]
            if isinstance(step, KernelStep):
                touched += [a[1] for a in step.args if a[0] == "pointer"]
            else:
                touched.append(step.slot)
            for slot in touched:
                last[slot] = i
        for slot, i in last.items():
            if slot not in kept:
                steps[i].frees.append(slot)


def _name(g: Group) -> str:
    """A short name from the operations, for people."""
    nodes = [n for n in reversed(g.nodes) if not chooses_triples(n)]
    names = [n.attrs[0].name if n.op is PARTIAL else n.op.name for n in nodes]
    seen = dict.fromkeys(n for n in names if n not in ("cast", "copy"))
    return "_".join(list(seen)[:6]) or "copy"


def _spell(node: Expr) -> str:
    return f"{node.dtype}[{', '.join(map(str, node.shape))}]"


def _notes(group: Group) -> list[str]:
    """What is not stored, and what is not rounded after each operation."""
    product = group.product
    if group.online is not None:
        scores, narrow = group.online.scores, dtypes.name(group.online.product.dtype) in ("f16", "bf16")
        rounding = ", float32 until they are multiplied" if narrow else ""
        return [f"one walk over the keys: scores and weights, {list(scores.shape)} of each, are not stored{rounding}"]
    follows = product is not None and any(o is not product for o in group.outputs)
    if product is None or not follows or dtypes.name(product.dtype) not in ("f16", "bf16"):
        return []
    return [f"what follows the product is float32 until it is stored, not {product.dtype} after each operation"]
