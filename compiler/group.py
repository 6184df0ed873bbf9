"""A kernel's nodes, with the indices at which each is used, and what nodes read at which indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from . import dtypes
from . import expr as E
from .expr import Expr
from .index import Axis, Gathered, Index, through_view
from .ops import Op

if TYPE_CHECKING:
    from .online import Online

At = tuple[Index, ...]

#: attrs = (reduction, axes, axis, block): the reduction over blocks of one reduced axis; the last result axis counts
#: the blocks.
PARTIAL = E.structural("partial", 1, "A reduction of each block of an axis.")
COPY = E.COPY
#: attrs = elements from one row to the next: the input, which memory holds as three arrays of bfloat16 one after the
#: other.  2**16 times an element is the first one's plus 2**-8 times (the second one's plus 2**-8 times the third
#: one's), exactly; of elements from about 2**112 on, infinities and NaNs, that is an infinity or a NaN.
TRIPLES = E.structural("triples", 1, "float32 as sums of three bfloat16, which tensor cores multiply.")
WRITES = (E.UPDATE, E.SCATTER)
#: What strides must be multiples of for a GPU to move whole rows, in elements.
ALIGNED = 16
#: Columns of a product's tile along which its kernel can reduce.
ROW_BLOCKS = (64, 128, 256)


@dataclass(eq=False, slots=True)
class Group:
    """Nodes of one kernel, with the indices at which each is used."""

    outputs: list[Expr]
    nodes: dict[Expr, None] = field(default_factory=dict)
    #: Indices at which a node (of the group or an input) is read, by consumers in the group.
    uses: dict[Expr, list[At]] = field(default_factory=dict)
    #: Index of each output's elements: an axis (or ZERO where the extent is 1) per dimension.
    output_index: dict[Expr, At] = field(default_factory=dict)
    #: Axes of the inputs' dimensions that a reduction removes, a product contracts or a partial reduction blocks.
    bound: dict[Expr, tuple[Axis, ...]] = field(default_factory=dict)
    #: For a bound axis, the axes of the results that it must stay apart from.
    owners: dict[Axis, list[At]] = field(default_factory=dict)
    parallel: set[Axis] = field(default_factory=set)
    reduces: int = 0
    #: Windows of buffers that are read.
    loads: int = 0
    #: What the group's reductions read.
    reduced: set[Expr] = field(default_factory=set)
    product: Expr | None = None
    #: What the product's first operand is, if it is made of another product by one walk over the keys.
    online: Online | None = None
    #: Outputs that nobody asked for but that are still held.
    extra: list[Expr] = field(default_factory=list)
    #: Why producers were left out, for explain().
    cuts: list[tuple[Expr, str]] = field(default_factory=list)

    @property
    def root(self) -> Expr:
        return self.outputs[0]


def axes_of(at: At) -> set[Axis]:
    found: set[Axis] = set()
    for i in at:
        found |= i.axes()
    return found


def canonical(at: At) -> At:
    return tuple(i.substitute({}) for i in at)


def strip_views(node: Expr, at: At) -> tuple[Expr, At]:
    """The node behind views, with its index; what has no axes has none."""
    while node.op is E.VIEW:
        base = node.inputs[0]
        at = through_view(at if node.shape else (), node.attrs[0], node.attrs[1], base.shape)
        node = base
    return node, (at if node.shape else ())


def behind(x: Expr) -> Expr:
    """The node behind views."""
    while x.op is E.VIEW:
        x = x.inputs[0]
    return x


def edges(group: Group, node: Expr, at: At) -> list[tuple[Expr, At]]:
    """The producers that `node` at index `at` reads, with the index of each, views resolved."""
    op = node.op
    inputs = node.inputs
    if op.kind == "elementwise" or op in (COPY, TRIPLES, E.UPDATE) or op.kind == "scan":
        if op is E.UPDATE:
            inputs = inputs[1:]
        return [strip_views(x, at) for x in inputs]
    if op.kind == "reduction" or op is PARTIAL:
        axes = node.attrs if op.kind == "reduction" else node.attrs[1]
        bound = iter(group.bound[node])
        free = iter(at)
        inner = tuple(Index.axis(next(bound)) if k in axes else next(free) for k in range(len(inputs[0].shape)))
        return [strip_views(inputs[0], inner)]
    if op is E.DOT:
        (k,) = group.bound[node]
        *batch, m, n = at
        walk = Index.axis(k)
        return [strip_views(inputs[0], (*batch, m, walk)), strip_views(inputs[1], (*batch, walk, n))]
    if op is E.GATHER:
        x, *indices = inputs
        ndim = len(indices[0].shape)
        rows = tuple(Index(0, {Gathered(i, at[:ndim], n): 1}) for i, n in zip(indices, x.shape, strict=False))
        return [strip_views(x, rows + at[ndim:]), *(strip_views(i, at[:ndim]) for i in indices)]
    if op is E.SCATTER:
        _, value, *indices = inputs
        ndim = len(indices[0].shape)
        return [strip_views(value, at), *(strip_views(i, at[:ndim]) for i in indices)]
    return []


def operands(root: Expr) -> tuple[Expr, ...]:
    """Memory that a root reads or writes beside the uses of its group."""
    if root.op in WRITES:
        return root.inputs[:1]
    if root.op is E.HOST:
        return tuple([x.inputs[0] if x.op is E.VIEW else x for x in root.inputs])
    return ()


def split_axis(group: Group) -> Axis:
    """The axis whose blocks a PARTIAL reduces."""
    _, over, axis, _ = group.root.attrs
    return group.bound[group.root][over.index(axis)]


def triples_layout(node: Expr) -> tuple[E.Shape, int]:
    """Strides of the elements of a TRIPLES, and elements from one part of an element to the next."""
    *outer, rows, _ = node.shape
    shape = (*outer, rows, node.attrs)
    return E.contiguous_strides(shape), prod(shape)


def chooses_triples(node: Expr) -> bool:
    """Whether a node is part of a choice between a TRIPLES and what that was made of."""
    return any(behind(x).op is TRIPLES for x in node.inputs)


def memory_of(node: Expr) -> tuple[np.dtype, int]:
    """The dtype of a computed node's elements in memory, and their number."""
    return (dtypes.BFLOAT16, 3 * triples_layout(node)[1]) if node.op is TRIPLES else (node.dtype, node.size)


def is_of_rows(group: Group) -> bool:
    """Whether a group reduces blocks of rows that a tile of a product may be as wide as."""
    if group.root.op is not PARTIAL:
        return False
    _, over, axis, block = group.root.attrs
    return over == (axis,) == (len(group.root.inputs[0].shape) - 1,) and block in ROW_BLOCKS


def in_boxes(x: Expr) -> bool:
    """Whether boxes of an operand of a product, as memory holds it, can be copied as they are."""
    if x.op is E.VIEW and x.inputs[0].op is E.UPDATE:
        strides = x.attrs[1]
    elif x.op is E.BUFFER:
        strides = x.attrs[2]
    else:
        return False
    one, *others = sorted(s for s, n in zip(strides, x.shape, strict=True) if n > 1)
    return one == 1 and all(s % ALIGNED == 0 for s in others)


def is_leaf(node: Expr) -> bool:
    return not node.inputs


def fusible(op: Op) -> bool:
    return op.kind in ("elementwise", "reduction", "scan") or op is E.DOT or op is E.GATHER


def pure_elementwise(node: Expr) -> bool:
    return node.op.kind == "elementwise"


def touched(node: Expr) -> int:
    """Bytes of memory behind an input."""
    if node.op is E.BUFFER:
        return prod(n for n, s in zip(node.shape, node.attrs[2], strict=True) if s) * node.dtype.itemsize
    dtype, count = memory_of(node)
    return 0 if node.op in (E.SCALAR, E.IOTA) else count * dtype.itemsize
