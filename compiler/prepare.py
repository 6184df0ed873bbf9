"""Rewriting of a recorded graph before it is partitioned: what has no kernel form gets one, long reductions are split.

Recorded nodes are left alone; a node with a changed input is made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from . import dtypes, online
from . import expr as E
from .choices import size_class
from .expr import Expr, contiguous_strides
from .fusion import ROW_REDUCTIONS
from .group import ALIGNED, COPY, PARTIAL, TRIPLES, WRITES, in_boxes
from .operands import (
    EMPTY,
    NARROW_FLOATS,
    REPEATED,
    bare,
    copied,
    copy,
    cost_of,
    goes_down,
    pitched,
    shortened,
    strides_of,
    unscaled,
    upright,
    walkable,
)
from .ops import TABLE, Op
from .policy import Policy
from .schedule import GPU_BYTES, GPU_STREAMED, GPU_WIDE_PRODUCT, product_cost

#: Products below this many multiplications are made as a sum of products, inside any kernel.
SMALL_PRODUCT = 1 << 12
#: Sides from which copying operands whose rows begin anywhere costs less than loading them so, or elements of one.
WIDE_PRODUCT, LEAST_COPIED = 512, 1 << 20
#: Sides from which operands of 8 bits are copied so that they lie along k.
UPRIGHT_PRODUCT = 64
#: Rows and columns of the least tile that tensor cores are kept busy with, elements of k in a step, and of the shortest
#: part of k that is worth adding up.
TENSOR_TILE, TENSOR_STEP, LEAST_PART = (128, 64), 64, 512
#: Parts of k, and the microseconds of a kernel that adds them up.
ADDING = 2.25
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Sides of a product of float32 from which it is worth preparing its operands for tensor cores.
TRIPLES_SIDE = 128
#: Bytes of a part's element.
PART_BYTES = 2
#: Rows from which even a narrow block of columns is too large for a cache: whole rows are then read, in memory's order.
TALL = 1024
#: Elements from which an elementwise node follows its inputs' order in memory.
TRANSPOSED = 1 << 12


@dataclass(slots=True)
class Prepared:
    #: Producers first, without leaves.
    order: list[Expr]
    #: The node that computes each recorded root or external node.
    image: dict[Expr, Expr]
    roots: set[Expr]
    external: set[Expr]
    #: Nodes that need memory of their own although nobody asked: bases of writes, operands of library calls.
    stored: set[Expr]
    #: Softmaxes between products that are one walk, by their last nodes; why other ones are not, by their last product.
    online: dict[Expr, online.Online]
    apart: dict[Expr, str]


def prepare(
    roots: list[Expr],
    twins: dict[Expr, Expr],
    external: set[Expr],
    donated: set[Expr],
    copied: set[Expr],
    policy: Policy,
    apart: Mapping[Expr, str] | None = None,
) -> Prepared:
    """Rewrite a graph.

    Parameters
    ----------
    roots : list of Expr
        What was asked for.
    twins : dict
        BUFFER nodes that equal another one -> that one.
    external : set of Expr
        Nodes that are held outside the graph.
    donated : set of Expr
        BUFFER nodes whose memory an UPDATE or SCATTER may take over.
    copied : set of Expr
        UPDATE and SCATTER nodes that must copy their base.
    apart : mapping, optional
        Products that do not share a kernel with the one that they walk over a softmax of, with the reasons.
    """
    return _Preparation(donated, copied, policy).run(roots, twins, external, apart or {})


class _Preparation:
    def __init__(self, donated: set[Expr], copied: set[Expr], policy: Policy) -> None:
        self.donated = donated
        self.copied = copied
        self.policy = policy
        self.image: dict[Expr, Expr] = {}
        self.readers: Counter[Expr] = Counter()
        #: Reductions that no other walk over the same elements could share a kernel with.
        self.lone: set[Expr] = set()
        #: Recorded nodes that a write replaces elements of.
        self.written: set[Expr] = set()
        #: Nodes of softmaxes between products that become one kernel: nothing is to be done for them.
        self.walked: set[Expr] = set()
        #: Operands of products of float32: in triples, and whole.
        self.split: dict[Expr, tuple[Expr, Expr]] = {}

    def run(
        self, roots: list[Expr], twins: dict[Expr, Expr], external: set[Expr], apart: Mapping[Expr, str]
    ) -> Prepared:
        image = self.image
        wanted = {*roots, *external}
        for node in (*roots, *external):  # whose memory a window of it shares
            while node.op is E.VIEW:
                node = node.inputs[0]
                wanted.add(node)
        recorded = postorder(roots)
        for node in recorded:
            self.readers.update(node.inputs)
            if node.op in WRITES:
                self.written.add(node.inputs[0])
        self.lone = _lone_reductions(recorded)
        walks, apart = online.find(recorded, roots, self.policy, apart)
        self.walked = {n for walk in walks.values() for n in walk.inside}
        for root in roots:  # leaves
            image[root] = self._rewrite(root, (), wanted) if not root.inputs else root
        for node in recorded:
            for x in node.inputs:
                if not x.inputs and x not in image:
                    image[x] = self._rewrite(twins.get(x, x), (), wanted)
            image[node] = self._rewrite(node, tuple([image[x] for x in node.inputs]), wanted)
        made_roots: set[Expr] = set()
        for root in roots:
            made = image[root]
            if made.op is E.VIEW and _is_permutation(made):
                made = made.inputs[0]
            elif made.op in (E.VIEW, E.SCALAR, E.IOTA) or _pinned(made):
                image[root] = made = copied(made)
                made = made.inputs[0] if made.op is E.VIEW else made
            made_roots.add(made)
        made_external = set()
        for node in external:
            made = image[node]
            while made.op is E.VIEW:
                made = made.inputs[0]
            if made.inputs and made not in made_roots:
                made_external.add(made)
        order = postorder(made_roots)
        stored: set[Expr] = set()
        for node in order:
            if node.op in (E.UPDATE, E.SCATTER):
                stored.add(node.inputs[0])
            elif node.op is E.HOST:
                stored.update(x.inputs[0] if x.op is E.VIEW else x for x in node.inputs)
        made_walks = [walk.of(image) for walk in walks.values()]
        return Prepared(
            order, image, made_roots, made_external, {n for n in stored if n.inputs},
            {walk.head: walk for walk in made_walks}, {image[n]: why for n, why in apart.items()},
        )  # fmt: skip

    def _rewrite(self, node: Expr, inputs: tuple[Expr, ...], wanted: set[Expr]) -> Expr:
        op = node.op
        if not node.inputs:
            return node if prod(node.shape) or op is E.SCALAR else _leaf(EMPTY, node)
        if op is not E.HOST and prod(node.shape) == 0:
            return _leaf(EMPTY, node)
        if node in self.walked:
            return self._walked_product(node, inputs) if op is E.DOT else _with_inputs(node, inputs)
        if op.kind == "reduction":
            return self._reduction(node, inputs[0], block=self._rows_of_product(node, wanted))
        if op is E.DOT:
            return self._product(node, *inputs)
        if op in (E.UPDATE, E.SCATTER):
            return self._write(node, inputs, wanted)
        if op is E.HOST:
            return _with_inputs(node, tuple([_windowed(x) for x in inputs]))
        if op is COPY:
            # What is computed lies in row-major order, and may be shared where no write meets it.
            x = inputs[0]
            computed = bool(x.inputs) and x.op is not E.VIEW and x.op not in WRITES
            shared = computed and not {node, node.inputs[0]} & self.written
            return x if shared else copy(x)
        if op is E.GATHER and 0 in inputs[0].shape[: len(inputs) - 1]:
            raise IndexError("index out of bounds for an axis of size 0")
        return _in_memory_order(node, inputs) if op.kind == "elementwise" else _with_inputs(node, inputs)

    def _walked_product(self, node: Expr, inputs: tuple[Expr, ...]) -> Expr:
        """One of the products around a softmax that is one walk over keys."""
        weights = [online.base(x) in self.walked for x in node.inputs]
        if self.policy.target == "cpu":
            made = [y if w else walkable(y, True) for y, w in zip(inputs, weights, strict=True)]
            return _with_inputs(node, tuple(made))
        found = [bare(y) for y in inputs]
        if any(weights) or found[0][0].dtype != found[1][0].dtype:
            found = [(y, [], []) for y in inputs]
        operands: list[Expr] = []
        factors: list[tuple[Op, Expr]] = []
        for (x, windows, by), w in zip(found, weights, strict=True):
            x = x if w else pitched(x, self.policy.pitch // x.dtype.itemsize)
            for window in windows:
                x = Expr(E.VIEW, (x,), window.attrs, window.shape, x.dtype, 0)
            operands.append(x if w else walkable(x, True))
            factors += by
        made = _with_inputs(node, tuple(operands))
        for op, scalar in factors:
            made = Expr(op, (made, scalar), None, node.shape, node.dtype, 0)
        return made

    # -- reductions ---------------------------------------------------------------------------------------------------
    def _reduction(self, node: Expr, x: Expr, lone: bool = False, block: int = 0) -> Expr:
        """A reduction, possibly in two steps; along rows of a product by blocks of so many columns."""
        op, axes = node.op, node.attrs
        if prod(x.shape) == 0:
            assert op.identity is not None
            return _filled(op.identity(dtypes.name(node.dtype)), node)
        split = (axes[0], block) if block else self._split(x.shape, axes, lone or node in self.lone)
        if split is None:
            return _with_inputs(node, (x,))
        axis, block = split
        count = -(-x.shape[axis] // block)
        attrs = (op, axes, axis, block)
        if op.name not in ("argmax", "argmin"):
            partial = Expr(PARTIAL, (x,), attrs, (*node.shape, count), node.dtype, 0)
            if count == 1:
                return Expr(E.VIEW, (partial,), (0, contiguous_strides(node.shape)), node.shape, node.dtype, 0)
            return Expr(op, (partial,), (len(node.shape),), node.shape, node.dtype, 0)
        if len(x.shape) != 1:
            return _with_inputs(node, (x,))
        partial = Expr(PARTIAL, (x,), attrs, (count,), node.dtype, 0)
        values = Expr(E.GATHER, (x, partial), None, (count,), x.dtype, 0)
        winner = Expr(op, (values,), (0,), (), node.dtype, 0)
        return Expr(E.GATHER, (partial, winner), None, (), node.dtype, 0)

    def _rows_of_product(self, node: Expr, wanted: set[Expr]) -> int:
        """Columns of the blocks by which a product's kernel may reduce its rows, if nothing else reads them; or 0."""
        (x,) = node.inputs
        last = len(x.shape) - 1
        if not self.policy.rows or node.attrs != (last,) or node.op.name not in ROW_REDUCTIONS:
            return 0
        if min(x.shape[-2:], default=0) < TENSOR_TILE[0] or dtypes.name(node.dtype) not in ("f16", "bf16", "f32"):
            return 0
        found: set[Expr] = set()
        reads: Counter[Expr] = Counter({x: 1})
        stack = [x]
        products: list[Expr] = []
        while stack:
            member = stack.pop()
            if member in found or not member.inputs or member.shape != x.shape:
                continue
            found.add(member)
            if member.op is E.DOT:
                products.append(member)
            elif member.op.kind == "elementwise":
                reads.update(member.inputs)
                stack.extend(member.inputs)
            elif member.op is not E.VIEW or member.inputs[0].inputs:
                return 0
        if len(products) != 1 or found & wanted or any(self.readers[y] != reads[y] for y in found):
            return 0
        made = self.image[products[0]]
        if made.op is not E.DOT or dtypes.name(made.inputs[0].dtype) not in ("f16", "bf16"):
            return 0
        block = 256 if x.shape[-1] > 128 else 128
        tiles = prod(x.shape[:-2]) * -(-x.shape[-2] // TENSOR_TILE[0]) * -(-x.shape[-1] // block)
        return block if all(map(in_boxes, made.inputs)) and 2 * tiles >= self.policy.processors else 0

    def _split(self, shape: E.Shape, axes: tuple[int, ...], lone: bool) -> tuple[int, int] | None:
        """(axis, block) for a reduction that would leave the device idle."""
        policy = self.policy
        work = prod(shape)
        if work <= policy.split:
            return None
        last = len(shape) - 1
        # The outermost axis that gives enough blocks: pieces are then long in memory.
        axis = next((k for k in sorted(axes) if shape[k] >= 8 * policy.min_programs), max(axes, key=lambda k: shape[k]))
        n = shape[axis]
        columns = policy.tall_columns if lone and n > TALL else policy.split_columns
        programs = prod(-(-n // columns) if k == last else n for k, n in enumerate(shape) if k not in axes)
        if programs >= policy.min_programs or work <= policy.each * programs:
            return None
        least = 1 if last in axes else policy.split_rows
        if policy.split_programs:
            each = max(least, n * programs // policy.split_programs)
        else:
            each = max(least, policy.split_work * n // work, -(-n // policy.split_blocks))
        block = 1 << (each - 1).bit_length()
        return None if block >= n else (axis, block)

    # -- products -----------------------------------------------------------------------------------------------------
    def _product(self, node: Expr, a: Expr, b: Expr) -> Expr:
        *batch, m, n = node.shape
        k = a.shape[-1]
        if k == 0:
            return _filled(0, node)
        if (1 in (m, n, k) and not self._as_tiles(a, b, m, n)) or m * n * k <= SMALL_PRODUCT:
            return self._sum_of_products(node, a, b, (*batch, m, n, k))
        narrow = self._narrow(node, unscaled(a, -1), unscaled(b, -2))
        if narrow is not None:
            return narrow
        a, b = _cast(a, node.dtype), _cast(b, node.dtype)
        if node.attrs == "high":
            if self.policy.triples and min(m, n, k) >= TRIPLES_SIDE:
                pitch = self.policy.pitch // node.dtype.itemsize
                a, b = (shortened(walkable(x)) for x in (a, b))
                return _with_inputs(node, (upright(a, -1, pitch), upright(b, -2, pitch)))
            node = Expr(E.DOT, node.inputs, None, node.shape, node.dtype, 0)
        if self._by_triples(node, k):
            a, b = self._as_triples(a), self._as_triples(b)
            parts = self._parts(node, k, 1, 6)
            return self._product_in_parts(node, a, b, parts) if parts > 1 else _with_inputs(node, (a, b))
        a, b = walkable(a), walkable(b)
        if self.policy.pitch and dtypes.name(node.dtype) in NARROW_FLOATS:
            pitch = self.policy.pitch // a.dtype.itemsize
            if 1 not in (m, n) and (min(m, n, k) >= WIDE_PRODUCT or max(a.size, b.size) >= LEAST_COPIED):
                a, b = (pitched(x, pitch) for x in (a, b))
            boxes = self._in_boxes(a, n) and self._in_boxes(b, m)
            parts = self._parts(node, k, self.policy.cluster if boxes else 1)
            if parts > 1:
                return self._product_in_parts(node, a, b, parts)
        return _with_inputs(node, (a, b))

    def _in_boxes(self, x: Expr, uses: int) -> bool:
        """Whether an operand of 16-bit elements lies in boxes, now or once it is stored, by a kernel of its own."""
        if x.op.kind != "elementwise" or not self.policy.reused or x.shape[-1] % ALIGNED:
            return in_boxes(x)
        return uses >= self.policy.reused or (x.size >= self.policy.large and uses > GPU_STREAMED)

    def _by_triples(self, node: Expr, k: int) -> bool:
        """Whether a product of float32 is made of products of bfloat16, whose sum is as accurate."""
        least = self.policy.triples
        if not least or node.attrs is not None or dtypes.name(node.dtype) != "f32":
            return False
        *batch, m, n = node.shape
        nbytes = 3 * PART_BYTES * prod(batch) * k * (m + n)
        return min(m, n, k) >= TRIPLES_SIDE and node.size * k >= least and nbytes <= self.policy.room

    def _as_triples(self, x: Expr) -> Expr:
        """A product's operand as triples in memory's order; one that is broadcast is split once."""
        found = self.split.get(x)
        if found is None:
            whole = walkable(x) if cost_of(x) <= REPEATED else copy(x)
            strides = strides_of(whole) or contiguous_strides(x.shape)
            shape = [1 if s == 0 else n for n, s in zip(x.shape[:-2], strides, strict=False)]
            order = [*range(len(x.shape))]
            if 0 < abs(strides[-2]) < abs(strides[-1]):
                order[-2:] = order[:-3:-1]
            shape = (*shape, *x.shape[-2:])
            value, permuted = whole, tuple([shape[k] for k in order])
            if permuted != x.shape or order[-1] != len(order) - 1:
                steps = contiguous_strides(x.shape)
                value = Expr(E.VIEW, (whole,), (0, tuple([steps[k] for k in order])), permuted, x.dtype, 0)
            pitch = -(-permuted[-1] * PART_BYTES // self.policy.pitch) * self.policy.pitch // PART_BYTES
            triples = Expr(TRIPLES, (value,), pitch, permuted, x.dtype, 0)
            if value is not whole:
                steps = contiguous_strides(permuted)
                back = [0 if n == 1 else steps[order.index(k)] for k, n in enumerate(shape)]
                triples = Expr(E.VIEW, (triples,), (0, tuple(back)), x.shape, x.dtype, 0)
            found = self.split[x] = triples, whole
        # Nodes of their own for each product: one that reads them at two places would have them computed before.
        triples, whole = found
        finite = Expr(TABLE["isfinite"], (triples,), None, x.shape, dtypes.BOOL, 0)
        return Expr(TABLE["where"], (finite, triples, whole), None, x.shape, x.dtype, 0)

    def _narrow(self, node: Expr, *operands: tuple[Expr, list[Expr]]) -> Expr | None:
        """A product of elements of 8 bits, if that is what a product of (widened) operands is.

        What rows of one operand and columns of the other one are multiplied by, the product is.
        """
        (a, down), (b, across) = operands
        *_, m, n = node.shape
        k, names = a.shape[-1], [dtypes.name(x.dtype) for x in (a, b)]
        wide = {dtypes.ACCUMULATED.get(x) for x in names}
        into = dtypes.name(node.dtype)
        if wide == {"f32"}:
            fits = (into in dtypes.NARROW or into == "f32") and node.attrs != "ieee"
        elif wide == {"i32"}:
            fits = into in dtypes.INTEGER and dtypes.SIZE[into] <= 4  # where sums are taken modulo a power of two
            if not fits and (into in dtypes.INTEGER or (into in dtypes.FLOAT and self.policy.target == "cuda")):
                fits = k * prod([-128 if x == "i8" else 255 for x in names]) in range(-(1 << 31), 1 << 31)
        else:
            fits = False
        if not fits:
            return None
        a, b = walkable(a), walkable(b)
        dtype = dtypes.NUMPY[wide.pop() or ""]
        product = Expr(E.DOT, (a, b), None, node.shape, dtype, 0)
        if self.policy.pitch:
            if min(m, n, k) >= UPRIGHT_PRODUCT:
                a, b = upright(a, -1, self.policy.pitch), upright(b, -2, self.policy.pitch)
                product = Expr(E.DOT, (a, b), None, node.shape, dtype, 0)
            parts = self._parts(product, k, 1)
            if parts > 1:
                product = self._product_in_parts(product, a, b, parts)
        if down or across:
            product = _cast(product, dtypes.NUMPY["f32"] if into in dtypes.NARROW else node.dtype)
        for scales, axis in ((down, -1), (across, -2)):
            for scale in scales:
                if scale.shape:
                    strides = [*contiguous_strides(scale.shape)]
                    strides[axis] = 0
                    scale = Expr(E.VIEW, (scale,), (0, tuple(strides)), node.shape, scale.dtype, 0)
                scale = _cast(scale, product.dtype)
                product = Expr(TABLE["multiply"], (product, scale), None, node.shape, product.dtype, 0)
        return _cast(product, node.dtype)

    def _as_tiles(self, a: Expr, b: Expr, m: int, n: int) -> bool:
        """Whether tensor cores multiply a vector and a large matrix, whose columns it goes down."""
        large = dtypes.name(a.dtype) in NARROW_FLOATS and max(a.size, b.size) >= LEAST_COPIED
        return self.policy.cluster > 1 and large and goes_down(a, b, m, n) and in_boxes(a) and in_boxes(b)

    def _parts(self, node: Expr, k: int, cluster: int, products: int = 1) -> int:
        """Parts of k, each a product of its own, where there are too few tiles for all processors.

        Up to `cluster` processors share a tile; each two elements make so many `products`.
        """
        *batch, m, n = node.shape
        tiles = prod(batch) * -(-m // TENSOR_TILE[0]) * -(-n // TENSOR_TILE[1])
        processors = self.policy.processors
        fits = lambda parts: parts <= 1 or (not k % (parts * TENSOR_STEP) and k // parts >= LEAST_PART)
        if tiles > processors // (1 if products == 1 else 2):
            return 1

        def cost(parts: int) -> float:
            count = prod(batch) * parts
            found, _ = product_cost(GPU_WIDE_PRODUCT, (m, n), products * k // parts, count, processors, cluster)
            # What is added up is written and read again, in four bytes an element.
            return found + (parts > 1) * (ADDING + 8 * m * n * count / (GPU_BYTES * processors))

        usual = {"parts": min((parts for parts in PARTS if fits(parts)), key=cost)}
        key = f"{self.policy.target}: parts of {node.dtype} {'x'.join(map(size_class, (*node.shape, k)))}"
        others = lambda: [{"parts": p} for p in PARTS if p * tiles <= 2 * processors and fits(p)]
        chosen = self.policy.choices.choose(key, usual, others)["parts"]
        return chosen if fits(chosen) else usual["parts"]

    def _product_in_parts(self, node: Expr, a: Expr, b: Expr, parts: int) -> Expr:
        """The sum of products over parts of k, not rounded before."""
        *batch, m, n = node.shape
        k, wide = a.shape[-1], dtypes.NUMPY["f32"] if dtypes.name(node.dtype) in dtypes.NARROW else node.dtype
        each = k // parts
        strides = each, *contiguous_strides(a.shape)
        a = Expr(E.VIEW, (a,), (0, strides), (parts, *batch, m, each), a.dtype, 0)
        strides = each * n, *contiguous_strides(b.shape)
        b = Expr(E.VIEW, (b,), (0, strides), (parts, *batch, each, n), b.dtype, 0)
        products = Expr(E.DOT, (a, b), None, (parts, *node.shape), wide, 0)
        total = Expr(TABLE["sum"], (products,), (0,), node.shape, wide, 0)
        return _cast(self._reduction(total, products, lone=True), node.dtype)

    def _sum_of_products(self, node: Expr, a: Expr, b: Expr, shape: E.Shape) -> Expr:
        """(..., M, N, K) products, summed over K."""
        wide = dtypes.NUMPY["f32"] if dtypes.name(node.dtype) in dtypes.NARROW else node.dtype
        *batch, m, n, k = shape
        # Few columns are split.
        down = m * n < self.policy.split_columns * self.policy.processors and self.policy.target == "cuda"
        down = down and goes_down(a, b, m, n)
        a, b = _cast(a, wide), _cast(b, wide)
        *lead, sm, sk = contiguous_strides(a.shape)
        *behind, sl, sn = contiguous_strides(b.shape)
        strides = (*lead, sm, 0, sk), (*behind, 0, sn, sl)
        if down:  # (..., K, M or N): such columns can be split
            shape = (*batch, k, m * n)
            strides = (*lead, sk, sm if n == 1 else 0), (*behind, sl, sn if m == 1 else 0)
        a, b = (Expr(E.VIEW, (x,), (0, s), shape, wide, 0) for x, s in zip((a, b), strides, strict=True))
        both, join = ("logical_and", "any") if wide == dtypes.BOOL else ("multiply", "sum")
        product = Expr(TABLE[both], (a, b), None, shape, wide, 0)
        axis = len(batch) if down else len(shape) - 1
        made = (*shape[:axis], *shape[axis + 1 :])
        total = Expr(TABLE[join], (product,), (axis,), made, wide, 0)
        result = _cast(self._reduction(total, product, lone=True), node.dtype)
        if down:
            result = Expr(E.VIEW, (result,), (0, contiguous_strides(node.shape)), node.shape, node.dtype, 0)
        return result

    # -- writes -------------------------------------------------------------------------------------------------------
    def _write(self, node: Expr, inputs: tuple[Expr, ...], wanted: set[Expr]) -> Expr:
        base, value, *indices = inputs
        if prod(value.shape) == 0:
            return base
        if node.op is E.UPDATE and value.shape == node.shape and _is_whole(node) and not _pinned(base):
            # The value's memory may serve if nobody else knows it.
            recorded = node.inputs[1]
            alone = value.inputs and value.op is not E.VIEW and self.readers[recorded] == 1 and recorded not in wanted
            return value if alone else copy(value)
        own = node not in self.copied and (
            base in self.donated
            if base.op is E.BUFFER
            else bool(base.inputs) and base.op is not E.VIEW and node.inputs[0] not in wanted
        )
        if node.inputs[0].op is COPY and self.readers[node.inputs[0]] > 1:
            own = False
        if not own:
            base = copy(base)
        if _reads(value, base, node) or any(_reads(i, base, node) for i in indices):
            value = copy(value)
            indices = [copy(i) for i in indices]
        return Expr(node.op, (base, value, *indices), node.attrs, node.shape, node.dtype, 0)


def _reads(value: Expr, base: Expr, write: Expr) -> bool:
    """Whether computing `value` in the kernel that writes may read what is written, at other positions."""
    memory = base.attrs[0] if base.op is E.BUFFER else None
    window = write.attrs if write.op is E.UPDATE else None
    #: (node, whether only elementwise nodes lie between it and the written value)
    stack = [(value, True)]
    seen = set()
    while stack:
        node, direct = stack.pop()
        if (node, direct) in seen:
            continue
        seen.add((node, direct))
        if len(seen) > 256:
            return True
        if node is base or (memory is not None and node.op is E.BUFFER and node.attrs[0] is memory):
            if node.op is E.BUFFER and direct and window is not None and node.attrs[1:] == window and node is not base:
                continue
            if node is not base and window is not None and _disjoint(node, write):
                continue
            return True
        if (
            node.op is E.VIEW
            and node.inputs[0] is base
            and window is not None
            and ((node.attrs == window and direct) or _disjoint(node, write))
        ):
            continue
        if node.op is not COPY:
            direct = direct and node.op.kind == "elementwise"
            stack.extend((x, direct) for x in node.inputs)
    return False


def _disjoint(node: Expr, write: Expr) -> bool:
    """Whether a window of some memory and the window of an UPDATE of that memory share no element, by their bounds."""
    offset, strides = node.attrs[-2:]
    a = _reach(offset, strides, node.shape)
    offset, strides = write.attrs
    b = _reach(offset, strides, write.inputs[1].shape)
    return a[1] < b[0] or b[1] < a[0]


def _reach(offset: int, strides: E.Shape, shape: E.Shape) -> tuple[int, int]:
    lo = offset + sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    hi = offset + sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    return lo, hi


def _pinned(node: Expr) -> bool:
    return node.op is E.BUFFER and bool(node.attrs[0].pinned)


def _is_whole(update: Expr) -> bool:
    offset, strides = update.attrs
    return offset == 0 and strides == contiguous_strides(update.shape)


def _is_permutation(view: Expr) -> bool:
    """Whether a VIEW shows each element of a computed base once."""
    base = view.inputs[0]
    return (
        bool(base.inputs)
        and base.op is not E.VIEW
        and view.size == base.size
        and not any(s == 0 and n > 1 for s, n in zip(view.attrs[1], view.shape, strict=True))
    )


def _lone_reductions(recorded: list[Expr]) -> set[Expr]:
    """Reductions of what holds no reduction, whose result is neither reduced nor broadcast."""
    above: set[Expr] = set()
    for node in recorded:
        if any(x.op.kind == "reduction" or x in above for x in node.inputs):
            above.add(node)
    walked: set[Expr] = set()
    for node in reversed(recorded):
        walks = node.op.kind == "reduction" or node in walked
        walked.update(x for x in node.inputs if walks or x.size < node.size)
    return {n for n in recorded if n.op.kind == "reduction" and n not in above and n not in walked}


def _in_memory_order(node: Expr, inputs: tuple[Expr, ...]) -> Expr:
    """An elementwise node; where its inputs are transposed in memory alike, a transposed view of the node beneath.

    The work is then done in memory's order, and the result lies in memory as its inputs do.
    """
    made = _with_inputs(node, inputs)
    if node.size < TRANSPOSED:
        return made
    order: tuple[int, ...] | None = None
    for x in inputs:
        strides = strides_of(x)
        if strides is None:
            return made
        if any(strides):
            axes = tuple(sorted(range(len(strides)), key=[-s for s in strides].__getitem__))
            if order not in (None, axes) or not _dense(x.shape, strides, axes):
                return made
            order = axes
    if order is None or order == tuple(range(len(order))):
        return made
    shape = tuple([node.shape[k] for k in order])
    beneath = tuple([_permuted(x, order, shape) for x in inputs])
    result = Expr(node.op, beneath, node.attrs, shape, node.dtype, 0)
    strides = contiguous_strides(shape)
    back = tuple([strides[order.index(k)] for k in range(len(order))])
    return Expr(E.VIEW, (result,), (0, back), node.shape, node.dtype, 0)


def _dense(shape: E.Shape, strides: E.Shape, axes: tuple[int, ...]) -> bool:
    """Whether the axes, in this order, walk memory without gaps."""
    return tuple([strides[k] for k in axes]) == contiguous_strides(tuple([shape[k] for k in axes]))


def _permuted(x: Expr, order: tuple[int, ...], shape: E.Shape) -> Expr:
    if x.op is E.SCALAR:
        return x
    base, offset, strides = (x.inputs[0], *x.attrs) if x.op is E.VIEW else (x, 0, contiguous_strides(x.shape))
    return Expr(E.VIEW, (base,), (offset, tuple([strides[k] for k in order])), shape, x.dtype, 0)


def _windowed(x: Expr) -> Expr:
    """A library call's operand as memory, or a window of computed memory."""
    if x.op is E.VIEW:
        base = x.inputs[0]
        return x if base.inputs and base.op is not E.VIEW else copy(x)
    return copy(x) if x.op in (E.SCALAR, E.IOTA) else x


def _with_inputs(node: Expr, inputs: tuple[Expr, ...]) -> Expr:
    if all(x is y for x, y in zip(node.inputs, inputs, strict=True)):
        return node
    return Expr(node.op, inputs, node.attrs, node.shape, node.dtype, 0)


def _leaf(op: E.Op, node: Expr) -> Expr:
    return Expr(op, (), None, node.shape, node.dtype, 0)


def _filled(value: object, node: Expr) -> Expr:
    x = E.scalar(value, node.dtype)
    return Expr(E.VIEW, (x,), (0, (0,) * len(node.shape)), node.shape, node.dtype, 0) if node.shape else x


def _cast(x: Expr, dtype: np.dtype) -> Expr:
    return x if x.dtype == dtype else Expr(TABLE["cast"], (x,), None, x.shape, dtype, 0)


def postorder(roots: Iterable[Expr]) -> list[Expr]:
    """Every node with inputs that the roots need, producers first."""
    order: list[Expr] = []
    done: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in done or not node.inputs:
            done.add(node)
            stack.pop()
            continue
        pending = [x for x in node.inputs if x not in done and x.inputs]
        if pending:
            stack.extend(pending)
        else:
            done.add(node)
            order.append(node)
            stack.pop()
    return order
