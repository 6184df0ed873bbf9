"""Which expressions become one kernel.

Legality is one rule.  Every node of a group is evaluated at an index over the group's axes; the parallel axes are those
that every output, reduction and scan keeps, the others are walked inside a program.  A group is one kernel if each of
its outputs visits each of its elements exactly once.

Policy is separate (`Policy`): a producer joins the group of its only consumer unless that leaves too few programs; it
is computed again in several groups, or at several indices of one group, if that costs less than a store and a load.
"""

from __future__ import annotations

from collections import deque
from math import prod

from . import dtypes
from . import expr as E
from .expr import Expr
from .group import (
    COPY,
    PARTIAL,
    ROW_BLOCKS,
    TRIPLES,
    WRITES,
    At,
    Group,
    axes_of,
    canonical,
    edges,
    fusible,
    in_boxes,
    is_leaf,
    is_of_rows,
    operands,
    pure_elementwise,
    split_axis,
    touched,
)
from .index import ZERO, Axis, Gathered, Index
from .online import Online
from .policy import Policy

#: Uses of each element of a product's operand up to which no computation of it costs more than to store it.
FEW_USES = 32
#: Reductions that the kernel of a product can make of its rows.
ROW_REDUCTIONS = ("sum", "prod", "max", "min")
#: Nodes that are always a kernel's root: what they compute is written where only a kernel of its own may write.
ROOTS_ONLY = frozenset((E.UPDATE, E.SCATTER, E.HOST, PARTIAL, COPY, TRIPLES))


def _streamed(product: Expr, operand: Expr, boxes: bool) -> int:
    """Uses of each element up to which a product takes an operand as it is computed, see cuda/streamed.py.

    With `boxes`, elements of 8 bits are brought by a copy engine, however they lie (cuda/dequantised.py).
    """
    first = operand in (product.inputs[0], *product.inputs[0].inputs[:1])
    large, other = product.inputs if first else product.inputs[::-1]
    if other.op is not E.BUFFER or other.attrs[2][-2 if first else -1] != 1:
        return 0
    k, directions, narrow = product.inputs[0].shape[-1], set(), True
    stack = [large]
    while stack:
        x = stack.pop()
        if x.op is E.BUFFER and len(x.shape) > 1 and 0 not in x.attrs[2][-2:]:
            along = [s for s, n in zip(x.attrs[2][-2:], x.shape[-2:], strict=True) if s == 1]
            directions.add(x.attrs[2][-2:].index(1) if along else None)
            narrow &= x.dtype.itemsize == 1 and all(s % 16 == 0 for s in x.attrs[2] if s != 1)
        stack += x.inputs if x.op.kind == "elementwise" or x.op is E.VIEW else ()
    if len(directions) != 1 or None in directions or k % 16 or max(product.shape[-2:]) % 16:
        return 0
    if boxes and narrow:
        return 64
    along = first == (directions == {1}) if large.op is not E.VIEW else first != (directions == {1})
    return 16 if along else 64


def _along_axes(index: Index) -> bool:
    """Whether an index is a sum of axes with strides, no quotient, remainder or gathered number among it."""
    return index.terms.keys() <= set(index.axes())


def partition(
    order: list[Expr],
    roots: set[Expr],
    external: set[Expr],
    policy: Policy,
    online: dict[Expr, Online] | None = None,
    apart: dict[Expr, str] | None = None,
) -> list[Group]:
    """Groups of nodes that become kernels, producers first.

    `online` are the softmaxes between products that are one walk, by their last nodes; `apart` says of products over
    other ones why they are not.
    """
    alone: set[Expr] = set()
    while True:
        groups = Partitioner(order, roots, external, policy, alone, online or {}, apart or {}).run()
        walks = [g for g in groups if g.online is None] if policy.held else []
        found = [node for g in walks if (node := _entangled(g, policy)) is not None]
        if not found:
            return groups
        alone.update(found)


def _entangled(group: Group, policy: Policy) -> Expr | None:
    """A reduction or scan that cannot be in a group: another one goes along its result, and it along the other's.

    Neither can be walked outside the other, so that a program would have to hold all positions of both.
    """
    walks: list[tuple[Expr, set[Axis], set[Axis]]] = []
    for node in group.nodes:  # consumers first
        if node.op.kind not in ("reduction", "scan"):
            continue
        for at in [group.output_index[node]] if node in group.output_index else group.uses[node]:
            along = at[node.attrs].axes() if node.op.kind == "scan" else {*group.bound[node]}
            walks.append((node, {a.find() for a in along if a.size != 1}, axes_of(canonical(at))))
    if len(walks) < 2:
        return None
    axes = set().union(*[along | result for _, along, result in walks])
    axes = axes.union(*[axes_of(canonical(group.output_index[o])) for o in group.outputs])
    parallel = {a.find() for a in group.parallel}
    held = prod([1 << (a.size - 1).bit_length() for a in axes - parallel])
    held *= max([n.dtype.itemsize for n in group.nodes])
    if axes_of(canonical(group.output_index[group.root])[-1:]) & parallel:
        held *= policy.lane_block
    if held <= policy.held:
        return None
    for k, (node, along, result) in enumerate(walks):
        for _, others, beside in walks[:k]:
            if any(p is not q for p in along & beside for q in others & result):
                return node
    return None


class Partitioner:
    """Consumers first, each node joins the group that reads it or starts its own."""

    def __init__(
        self,
        order: list[Expr],
        roots: set[Expr],
        external: set[Expr],
        policy: Policy,
        alone: set[Expr],
        online: dict[Expr, Online],
        apart: dict[Expr, str],
    ) -> None:
        self.order = order
        self.online = online
        self.apart = apart
        #: Nodes that join a group together with the last of them.
        self.inside = {n for o in online.values() for n in o.inside if n is not o.head}
        #: Nodes that may not join the groups that read them.
        self.alone = alone
        self.roots = roots
        self.external = external
        self.policy = policy
        self.groups: list[Group] = []
        #: For each node, the groups that read it, with the indices.
        self.needed: dict[Expr, dict[Group, list[At]]] = {}
        #: For each node, the groups that want it in memory.
        self.operand_of: dict[Expr, list[Group]] = {}
        self.place = {node: i for i, node in enumerate(order)}
        self.cost, self.reads = _costs(order)

    def run(self) -> list[Group]:
        """The groups, producers first."""
        for node in reversed(self.order):
            if node.op is E.VIEW or is_leaf(node) or node in self.inside:
                continue
            readers = self.needed.get(node)
            if readers is None and node not in self.roots:
                continue
            self._place(node, readers or {})
        for group in self.groups:
            self._settle_outputs(group)
        return self.groups[::-1]

    def _place(self, node: Expr, readers: dict[Group, list[At]]) -> None:
        wanted = node in self.roots or node in self.external
        if node in self.alone:
            for group in readers:
                group.cuts.append((node, "walks across another walk, and a program cannot hold both"))
        elif fusible(node.op):
            if len(readers) > 1:
                readers = self._merge_readers(node, readers)
            if len(readers) == 1:
                ((group, uses),) = readers.items()
                reason = self._join(node, group, uses, wanted)
                if reason is None:
                    return
                group.cuts.append((node, reason))
            elif readers:
                if self._repeatable(node, len(readers)):
                    readers = {g: u for g, u in readers.items() if self._join(node, g, u, False) is not None}
                    if not readers:
                        return
                elif node.op.kind == "reduction" and self._join_first(node, readers):
                    return
                for group in readers:
                    group.cuts.append((node, "read by several kernels"))
        elif node.op is PARTIAL:
            for group in readers:
                group.cuts.append((node, "the blocks of a long walk"))
        elif node.op is TRIPLES:
            why = "in three parts of bfloat16, whose products tensor cores add up: precision highest"
            for group in readers:
                group.cuts.append((node, why))
        self._start(node)

    def _join_first(self, node: Expr, readers: dict[Group, list[At]]) -> bool:
        """Compute a reduction in one of the groups that read it, which then writes it for the others."""
        for group, uses in readers.items():
            others = [g for g in readers if g is not group]
            if group.root.op in ROOTS_ONLY or any(self._leads(g, group) for g in others):
                continue
            if self._shares(node, group) and self._join(node, group, uses, True, stored=True) is None:
                return True
        return False

    def _shares(self, node: Expr, group: Group) -> bool:
        """Whether a group reads all that a reduction is made of, so that it is read once for both."""
        below = [node.inputs[0]]
        while below:
            x = below.pop()
            if x in group.uses and x not in group.nodes and x.op is not E.SCALAR:
                return True
            if x.op is E.VIEW or pure_elementwise(x):
                below.extend(x.inputs)
        return False

    def _repeatable(self, node: Expr, readers: int) -> bool:
        """Whether computing node again in each of several groups is cheaper than memory."""
        if node in self.roots or node in self.online or not pure_elementwise(node) or self.reads[node] > 1:
            return False
        return self.cost[node] * (readers - 1) <= self.policy.recompute_per_byte * node.dtype.itemsize

    # -- groups side by side ------------------------------------------------------------------------------------------
    def _merge_readers(self, node: Expr, readers: dict[Group, list[At]]) -> dict[Group, list[At]]:
        """Merge those groups that read node alike, so that it is computed once for all of them."""
        kept: list[Group] = []
        for group in list(readers):
            for other in kept:
                if self._alike(node, other, group) and not (self._leads(other, group) or self._leads(group, other)):
                    self._merge(node, other, group)
                    break
            else:
                kept.append(group)
        return self.needed[node]

    def _alike(self, node: Expr, a: Group, b: Group) -> bool:
        """Whether both groups walk all of node once, over the same parallel axes, and fit into one kernel."""
        policy = self.policy
        if len(a.nodes) + len(b.nodes) > policy.max_nodes or a.loads + b.loads > policy.max_inputs:
            return False
        if len(a.outputs) + len(b.outputs) > policy.max_outputs:
            return False
        positions: list[set[int]] = []
        for group in (a, b):
            uses = {canonical(u) for u in group.uses[node]}
            if len(uses) != 1 or group.product is not None or group.root.op in ROOTS_ONLY:
                return False
            (at,) = uses
            if not _plain(at, node.shape):
                return False
            parallel = {x.find() for x in group.parallel}
            if not parallel <= axes_of(at):
                return False
            positions.append({k for k, i in enumerate(at) if i.axes() <= parallel and i != ZERO})
        return positions[0] == positions[1]

    def _leads(self, start: Group, goal: Group) -> bool:
        """Whether goal reads, maybe through other groups, what start writes."""
        seen = {start}
        queue = deque([start])
        while queue:
            for out in queue.popleft().outputs:
                for reader in (*self.needed.get(out, ()), *self.operand_of.get(out, ())):
                    if reader is goal:
                        return True
                    if reader not in seen:
                        seen.add(reader)
                        queue.append(reader)
        return False

    def _merge(self, node: Expr, a: Group, b: Group) -> None:
        """Make b part of a, with the axes at which they read node united."""
        for x, y in zip(canonical(b.uses[node][0]), canonical(a.uses[node][0]), strict=True):
            p, q = x.single(), y.single()
            if p is not None and q is not None:
                if p in b.owners:
                    b.owners[q] = b.owners.pop(p)
                p.unite(q)
        for axis, owners in b.owners.items():
            a.owners.setdefault(axis, []).extend(owners)
        # Consumers come before producers.
        a.nodes = dict.fromkeys(sorted(a.nodes | b.nodes, key=self.place.__getitem__, reverse=True))
        for producer, ats in b.uses.items():
            if producer not in a.uses:
                a.loads += producer.op is E.BUFFER
            seen = a.uses.setdefault(producer, [])
            seen += [at for at in ats if at not in seen]
            needed = self.needed.get(producer)
            if needed is not None and needed.pop(b, None) is not None:
                needed[a] = seen
        a.outputs += b.outputs
        a.extra += b.extra
        a.output_index.update(b.output_index)
        a.bound.update(b.bound)
        a.reduced |= b.reduced
        a.reduces += b.reduces
        a.cuts += b.cuts
        self.groups.remove(b)

    def _start(self, node: Expr) -> None:
        """A new group whose root is node."""
        shape = node.inputs[1].shape if node.op in WRITES else node.shape
        axes = [Axis(n) for n in shape]
        at = tuple(Index.axis(a) for a in axes)
        group = Group([node])
        group.output_index[node] = at
        group.parallel = axes_of(at)
        if node.op is PARTIAL:
            _, over, _, _ = node.attrs
            group.bound[node] = tuple(Axis(node.inputs[0].shape[k]) for k in over)
            # The last result axis counts blocks of the split axis, which stands for it.
            at = at[:-1]
            group.parallel = axes_of(at) | {split_axis(group)}
            group.cuts.append((node, f"too few programs for so long a walk: blocks of {node.attrs[3]} side by side"))
        self.groups.append(group)
        for x in operands(node):
            self.operand_of.setdefault(x, []).append(group)
        self._add(node, group, [at])

    def _add(self, node: Expr, group: Group, ats: list[At]) -> None:
        if node in self.online:
            self._add_online(self.online[node], group, ats[0])
            return
        if node in self.apart:
            group.cuts.append((node, f"not one walk with the product behind it: {self.apart[node]}"))
        group.nodes[node] = None
        op = node.op
        walks = op.kind in ("reduction", "scan") or op is PARTIAL
        group.reduces += walks
        if op.kind == "reduction":
            group.bound[node] = tuple(Axis(node.inputs[0].shape[k]) for k in node.attrs)
            for axis in group.bound[node]:
                others = tuple(Index.axis(a) for a in group.bound[node] if a is not axis)
                group.owners[axis] = [ats[0] + others]
            group.parallel &= axes_of(ats[0])
        elif op.kind == "scan":
            group.parallel -= ats[0][node.attrs].axes()
            group.parallel &= axes_of(ats[0])
        elif op is E.DOT:
            group.product = node
            if group.root.op is PARTIAL:
                group.cuts = [(group.root, f"rows by the {group.root.attrs[3]} columns of a product's tiles")]
            group.bound[node] = (Axis(node.inputs[0].shape[-1]),)
            group.owners[group.bound[node][0]] = [ats[0]]
        for at in ats:
            for producer, index in edges(group, node, at):
                if walks:
                    group.reduced.add(producer)
                self._use(producer, index, group)

    def _use(self, producer: Expr, index: At, group: Group) -> None:
        seen = group.uses.get(producer)
        if seen is None:
            seen = group.uses[producer] = []
            group.loads += producer.op is E.BUFFER
        if index not in seen:
            seen.append(index)
        if not is_leaf(producer) and producer not in self.inside:
            self.needed.setdefault(producer, {})[group] = seen

    def _add_online(self, online: Online, group: Group, at: At) -> None:
        """Add all nodes of a softmax between two products, as one product."""
        group.product, group.online = online.product, online
        keys = online.bind(group)
        group.owners[keys] = [at]
        group.uses[online.head] = [at]
        for node in sorted(online.inside, key=self.place.__getitem__, reverse=True):
            group.nodes[node] = None
            for use in [at] if node is online.head else list(group.uses[node]):
                for producer, index in edges(group, node, use):
                    self._use(producer, canonical(index), group)

    # -- joining ------------------------------------------------------------------------------------------------------
    def _join(self, node: Expr, group: Group, uses: list[At], wanted: bool, stored: bool = False) -> str | None:
        """Put node into the group of its readers, or say why not; `stored`: other groups will read it from memory."""
        policy = self.policy
        if len(group.nodes) >= policy.max_nodes:
            return "the kernel would be too large"
        if group.loads + len(group.cuts) >= policy.max_inputs:
            return "the kernel would read too many arrays"
        if group.root.op in WRITES and group.root.inputs[0] is node:
            return "written to in place"
        if any(i.depth() > policy.max_reshapes for use in uses for i in use):
            return "reshaped too often on the way"
        ats = self._united(group, uses)
        op = node.op
        if len(ats) > 1:
            if not pure_elementwise(node) or node in self.online:
                return "read at several indices"
            if self.cost[node] * (len(ats) - 1) > policy.recompute_per_byte * node.dtype.itemsize:
                return "read at several indices: computing it again costs more than memory"
        at = ats[0]
        if any(isinstance(a, Gathered) for i in at for a in i.terms):
            work = prod(group.root.shape)
            if not pure_elementwise(node) or self.cost[node] * work > 4 * node.size:
                return "gathered from"
        plain = _plain(at, node.shape)
        if wanted:
            if len(ats) > 1 or not plain or not group.parallel <= axes_of(at):
                if stored or node in self.roots or len(ats) > 1:
                    return "asked for, and not computed exactly once here"
                wanted = False
            elif len(group.outputs) >= policy.max_outputs:
                return "the kernel would write too many arrays"
            elif any(self._leads(other, group) for other in self.operand_of.get(node, ())):
                return "an operand of something that the kernel reads"
            elif group.root.op is E.SCATTER:
                return "asked for"
        if op.kind == "elementwise" and node not in self.online:
            if group.product is not None:
                # What it reads can no longer refuse.
                below = [i for a in ats for x, i in edges(group, node, a) if x.op is not E.IOTA]
                if not all(_along_axes(i) for a in (*ats, *below) for i in a):
                    return "read at indices that a product cannot take"
                if self._feeds_product(group, at):
                    if group.online is not None and policy.serves is not None:
                        return "a product's operand, which is read as it lies in memory"
                    if self.cost[node] > policy.prologue:
                        return "too costly for a product's operand"
                    if policy.reused and self._had_better_be_stored(group, node, at):
                        return "a product reads each element of it many times, faster as they are multiplied"
                if len(ats) > 1:
                    return "read at several indices"
            elif not group.parallel <= axes_of(at) and self.cost[node] > 4:
                # A program computes it once for all positions of the innermost axis that it holds.
                last = axes_of(canonical(group.output_index[group.root])[-1:])
                missing = group.parallel - axes_of(at)
                repeats = prod(max(1, a.size // self.policy.lane_tile) if a in last else a.size for a in missing)
                if self.cost[node] * repeats > 4 * node.size + policy.small:
                    return "every program would compute it again"
            if node in group.reduced and self._walks_elsewhere(node, group, at):
                return "made of reductions along other axes that share its work"
        else:
            reason = self._join_walk(node, group, at, plain)
            if reason is not None:
                return reason
        self._add(node, group, ats)
        if op.kind == "reduction":
            self._unite_walks(node, group, at)
        if wanted:
            (group.outputs if stored or node in self.roots else group.extra).append(node)
            group.output_index[node] = at
        return None

    def _join_walk(self, node: Expr, group: Group, at: At, plain: bool) -> str | None:
        """Whether a reduction, scan, gather or product may join."""
        policy = self.policy
        op = node.op
        if group.reduces >= policy.max_walks:
            return "the kernel would make too many passes"
        if op is E.GATHER:
            return "a product's operand" if group.product is not None else None
        if group.product is not None:
            return "a product reads it"
        reduced = op is E.DOT and policy.rows and is_of_rows(group) and at[-1].single() is split_axis(group).find()
        if group.root.op is PARTIAL and not reduced:
            return "a split reduction reads it"
        if node.inputs[0].op is PARTIAL and group.parallel - axes_of(at):
            return "its result is broadcast, and was split to read memory in order"
        if op is E.DOT or node in self.online:
            rows = self._is_of_whole_rows(group, node, at)
            if (group.reduces > reduced and not rows) or not plain:
                return "its result is reduced or read at other indices"
            if not reduced and any(axes_of(group.output_index[o]) != axes_of(at) for o in group.outputs + group.extra):
                return "its result is broadcast"
            used = [{canonical(at) for at in u} for u in group.uses.values()]
            if any(len(u) > 1 or not all(map(_along_axes, next(iter(u)))) for u in used):
                return "its result is read at several indices"
            if group.root.op is E.SCATTER:
                return "its result is scattered"
            return None
        if op.kind == "scan":
            if at[node.attrs].single() is None and node.shape[node.attrs] != 1:
                return "the scanned axis is read at other indices"
            keep = group.parallel - at[node.attrs].axes()
        else:
            keep = group.parallel & axes_of(at)
            size = prod(node.inputs[0].shape)
            if 0 < policy.nested < size and size >= 16 * node.size and not axes_of(at) <= group.parallel:
                return "reduced again: its programs run side by side"
        if prod(node.inputs[0].shape) <= policy.small and prod(group.root.shape) <= policy.small:
            return None
        programs = self._programs(node, at, keep)
        if programs < policy.min_programs and prod(node.inputs[0].shape) > policy.each * programs:
            return "too few programs would be left"
        return None

    def _programs(self, node: Expr, at: At, keep: set[Axis]) -> int:
        """Programs over the parallel axes `keep`, counting positions along a walk's innermost axis by the block."""
        last = (
            at[-1].axes()
            if at and not (node.op.kind == "reduction" and len(node.inputs[0].shape) - 1 in node.attrs)
            else set()
        )
        return prod(max(1, a.size // self.policy.lane_block) if a in last else a.size for a in keep)

    def _walks_elsewhere(self, node: Expr, group: Group, at: At) -> bool:
        """Whether node is made of reductions that cannot join the group and that share computed values with it."""
        if node.size <= self.policy.small:
            return False
        computed: set[Expr] = set()
        inner: list[tuple[Expr, At]] = []
        queue = deque([(node, at)])
        while queue and len(computed) < 64:
            member, index = queue.popleft()
            if member.op.kind == "reduction":
                inner.append((member, index))
            elif pure_elementwise(member) and member.size >= node.size and member not in computed:
                computed.add(member)
                queue.extend(edges(group, member, index))
        for reduction, index in inner:
            keep = group.parallel & axes_of(canonical(index))
            if group.root.op is not PARTIAL and self._programs(reduction, index, keep) >= self.policy.min_programs:
                continue
            below = [reduction.inputs[0]]
            for _ in range(64):
                if not below:
                    break
                member = below.pop()
                # What is broadcast to the reduction is little work to share.
                if member in computed and member.size >= reduction.inputs[0].size:
                    return True
                if member.op is E.VIEW or pure_elementwise(member):
                    below.extend(member.inputs)
        return False

    def _feeds_product(self, group: Group, at: At) -> bool:
        assert group.product is not None
        axes = axes_of(at)
        walked = group.bound[group.product][0].find() in axes
        if group.online is None:
            return walked
        columns = group.online.columns(canonical(group.uses[group.product][0])).axes()
        features = group.bound[group.online.scores][0].find()
        return features in axes or (walked and not columns.isdisjoint(axes))

    def _is_of_whole_rows(self, group: Group, product: Expr, at: At) -> bool:
        """Whether all that a group reduces are rows of a product that lie in one tile each."""
        policy, column = self.policy, at[-1].single()
        if not policy.rows or column is None or column.size > ROW_BLOCKS[-1] or group.root.op is PARTIAL:
            return False
        if 2 * -(-(product.size // column.size) // 128) < policy.processors or not all(map(in_boxes, product.inputs)):
            return False
        walks = [n for n in group.nodes if n.op.kind in ("reduction", "scan")]
        types = {dtypes.name(x.dtype) for n in [product, *walks] for x in (n, *n.inputs)}
        return types <= {"f16", "bf16", "f32"} and all(
            n.op.name in ROW_REDUCTIONS and [a.find() for a in group.bound[n]] == [column] for n in walks
        )

    def _had_better_be_stored(self, group: Group, node: Expr, at: At) -> bool:
        """Whether a product is faster if an operand that is computed lies in memory before."""
        product, policy = group.product, self.policy
        assert product is not None
        dtype = dtypes.name(product.inputs[0].dtype)
        if dtype not in ("f16", "bf16", "f32"):
            return False
        (result,) = {canonical(use) for use in group.uses.get(product) or (group.output_index[product],)}
        uses = prod(a.size for a in axes_of(result) - axes_of(at))
        if dtype == "f32":
            return self.cost[node] >= policy.costly and uses >= FEW_USES and node.size >= policy.large
        return uses >= policy.reused or (
            node.size >= policy.large and uses > _streamed(product, node, policy.cluster > 1)
        )

    # -- axes that walk together --------------------------------------------------------------------------------------
    def _united(self, group: Group, uses: list[At]) -> list[At]:
        """The distinct indices of the uses, after uniting bound axes so that there are few."""
        distinct: list[At] = []
        for use in uses:
            use = canonical(use)
            for other in distinct:
                if self._unite(group, canonical(other), use):
                    break
            else:
                distinct.append(use)
        out: list[At] = []
        for use in distinct:
            use = canonical(use)
            if use not in out:
                out.append(use)
        return out

    def _unite(self, group: Group, a: At, b: At) -> bool:
        """Make two indices equal by uniting bound axes, where legal."""
        pairs: list[tuple[Axis, Axis]] = []
        for x, y in zip(a, b, strict=True):
            if x == y:
                continue
            p, q = x.single(), y.single()
            if p is None or q is None or p.size != q.size:
                return False
            if not self._may_unite(group, p, q):
                p, q = q, p
                if not self._may_unite(group, p, q):
                    return False
            pairs.append((p, q))
        for p, q in pairs:
            p, q = p.find(), q.find()
            if p is q:
                continue
            if not self._may_unite(group, p, q):
                return False
            owners = group.owners.pop(p)
            if q in group.owners:
                group.owners[q].extend(owners)
            p.unite(q)
        return True

    @staticmethod
    def _may_unite(group: Group, p: Axis, q: Axis) -> bool:
        """Whether bound axis p may walk with q: no result that p is bound in may have q already."""
        return p in group.owners and all(q not in axes_of(canonical(own)) for own in group.owners[p])

    def _unite_walks(self, node: Expr, group: Group, at: At) -> None:
        """Let a reduction walk its axes with the group's other walks over what it reads (a row that is read twice)."""
        free = {a.find() for a in group.bound[node]}
        queue = deque(edges(group, node, at))
        for _ in range(64):
            if not queue or not free:
                return
            producer, index = queue.popleft()
            if any(i.depth() > self.policy.max_reshapes for i in index):
                continue
            for use in list(group.uses.get(producer, ())):
                self._unite(group, canonical(use), canonical(index))
            free = {a for a in free if a.find() is a}
            if pure_elementwise(producer):
                queue.extend(edges(group, producer, index))

    # -- outputs ------------------------------------------------------------------------------------------------------
    def _settle_outputs(self, group: Group) -> None:
        """Keep those extra outputs that are no larger than what the kernel reads and was asked to write."""
        if not group.extra:
            return
        moved = sum(o.nbytes for o in group.outputs)
        moved += sum(touched(x) for x in group.uses if x not in group.nodes)
        for node in group.extra:
            if node.nbytes <= moved:
                group.outputs.append(node)
            else:
                del group.output_index[node]
                group.cuts.append((node, "held, but larger than what the kernel moves: computed again if asked for"))


def _plain(at: At, shape: E.Shape) -> bool:
    """Whether the index walks all elements once: a different whole axis for each extent above 1."""
    seen: set[Axis] = set()
    for i, n in zip(at, shape, strict=True):
        if n == 1:
            if i != ZERO:
                return False
            continue
        axis = i.single()
        if axis is None or axis.size != n or axis in seen:
            return False
        seen.add(axis)
    return True


def _costs(order: list[Expr]) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """For each node what computing it with everything elementwise that it is made of takes for an element.

    Returns
    -------
    cost, reads : dict
        Additions, and elements read from memory where neither is broadcast; both bounded.
    """
    cost: dict[Expr, int] = {}
    reads: dict[Expr, int] = {}
    for node in order:
        if pure_elementwise(node):
            cost[node] = min(1 << 20, node.op.cost + sum(cost.get(x, 0) for x in node.inputs))
            reads[node] = min(1 << 20, sum(reads.get(x, x.op is E.BUFFER) for x in node.inputs))
        elif node.op is E.VIEW:
            base = node.inputs[0]
            cost[node] = cost.get(base, 0)
            spread = any(s == 0 and n > 1 for s, n in zip(node.attrs[1], node.shape, strict=True))
            reads[node] = 0 if spread else reads.get(base, base.op is E.BUFFER)
        else:
            cost[node] = cost.get(node.inputs[0], 0) if node.op is E.GATHER else 0
            reads[node] = 1
    return cost, reads
