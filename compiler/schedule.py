"""How a kernel's axes become a grid and tiles: what of the lowering depends on the target.

A schedule maps each axis of the tile, outermost first, to its block, or to None: the whole axis.  Parallel axes that
are in no tile have one position a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from . import dtypes
from . import expr as E
from .draws import PER_BLOCK
from .expr import Expr
from .group import PARTIAL, TRIPLES, At, Group, behind, canonical, edges, split_axis
from .index import Axis, Index
from .ops import TABLE

Tiles = dict[Axis, int | None]

#: CPU: elements of a tile, and of its innermost extent where others stand beside it.
TILE = 8192
ROW = 2048
#: Side of a square tile where an input's rows are an output's columns.
SQUARE = 64
#: CPU: columns that a program reduces together: streamed (whole rows, if they are split among programs), and bytes of
#: a block that is walked again and stays in a cache.
COLUMNS = 1024
WHOLE_COLUMNS = 4096
RESIDENT_BYTES = 1 << 18

#: GPU: bytes of a program's tile in the widest type of its accesses: several small blocks share a processor better than
#: few large ones.
GPU_TILE_BYTES = 4096
#: GPU: elements of short rows that a program walks together, and of a tile of several rows.
GPU_TILE = 2048
GPU_OVERLAP_TILE = 4096
#: GPU: rows of a tile whose neighbours read the same memory, so that they find it in the nearest cache.
GPU_OVERLAP_ROWS = 8
#: GPU: positions that a thread takes along one axis or two along which windows are shifted, and columns of such a tile.
GPU_WINDOWS = ((8, 512), (4, 4, 128))
#: GPU: fewest columns of such a tile where rows are longer: a warp then reads whole lines of memory.
GPU_LEAST_LANES = 128
#: GPU: most positions of a row that a program can keep on chip.
GPU_ROW = 1 << 18
#: GPU: columns that a program reduces together, and the least that still fill a memory sector each; elements that it
#: keeps of a block that is walked again, and of one that is only reduced: small ones load while others compute.
GPU_COLUMNS = 128
GPU_LEAST_COLUMNS = 32
GPU_RESIDENT = 1 << 15
GPU_REDUCED = 1 << 13
#: GPU: bytes of a long scan that a program takes (twice as many where programs are many), and the fewest of such blocks
#: that are worth the waiting.
GPU_SCAN_BYTES = 1 << 16
GPU_SCAN_BLOCKS = 8
#: GPU: columns that a program scans at least, where only so give they work to all processors.
GPU_SCAN_COLUMNS = 8
#: Types whose elements a GPU adds to in memory; integers, so that their order does not matter.
ATOMIC = frozenset(map(np.dtype, ("int32", "uint32", "int64", "uint64")))
#: GPU: sides of a product's tile, largest first.
GPU_PRODUCT = (128, 64, 32, 16)
#: GPU: tiles of products of other types, by the time of a step of 64 along k, relative to beginning and ending a tile.
_ORDINARY = {(128, 256): 4.3, (128, 128): 2.3, (64, 64): 0.75, (32, 32): 0.26, (16, 16): 0.12}
GPU_TILES: dict[str, dict[tuple[int, int], float]] = {
    **dict.fromkeys(("f32", "i32", "u32"), _ORDINARY),
    "f64": {(128, 128): 2.1, (128, 64): 1.1, (64, 64): 0.65, (32, 32): 0.22, (16, 16): 0.12},
    "c64": {(128, 128): 8.6, (128, 64): 4.6, (64, 64): 2.6, (32, 32): 0.9, (16, 16): 0.4},
    "c128": {(128, 64): 4.4, (64, 64): 2.4, (32, 32): 0.8, (16, 16): 0.4},
}
#: GPU: tiles of products whose processors each take several, in tensor cores; the microseconds of beginning and ending
#: one, and of a step of 64 along k.
GPU_WIDE_PRODUCT = {(128, 256): (2.7, 0.61), (128, 128): (0.8, 0.33), (128, 64): (0.5, 0.25)}
#: GPU: the same of tiles that only the copy engine fills, and of those of few columns, or rows.
GPU_BOXED_PRODUCT = {(128, 224): (2.1, 0.575), (128, 192): (1.5, 0.463), (128, 160): (1.1, 0.435)}
GPU_NARROW_PRODUCT = {(128, 32): (0.3, 0.25), (128, 16): (0.3, 0.24)}
#: GPU: microseconds of beginning a product; bytes of memory that a processor takes in one.
GPU_BEGINNING, GPU_BYTES = 1.0, 30_000
#: GPU: columns that a last tile of more columns may have instead.
GPU_EDGE = 64
#: GPU: parts of k of one tile that blocks of a cluster multiply, and what it costs to add them up, for each column.
GPU_PARTS, GPU_ADDED_UP = (1, 2, 4, 8), 0.03
#: GPU: parts of k of one tile that are added up through memory, and what that costs: in all, and for a megabyte.
GPU_SPREAD, GPU_SPREADING, GPU_SPREAD_BYTES = (2, 4, 8, 16, 32), 7.0, 0.2
#: GPU: most rows and columns of products that have a small tile each.
GPU_SMALL = 32
#: GPU: most rows or columns of products whose other operand is computed as it comes from memory, see cuda/streamed.py.
GPU_STREAMED = 64
#: The same of products of float32 in parts.
GPU_TRIPLES = {(128, 128): 1.5, (128, 64): 0.85}
#: GPU: columns of a tile at most whose sums are promoted.
GPU_PROMOTED = 128


def is_ordered(root: Expr) -> bool:
    """Whether a kernel's root stores elements one after the other: what is there in the end depends on the order."""
    return root.op is E.SCATTER and (root.attrs == "set" or (root.attrs == "add" and root.dtype not in ATOMIC))


def bucket(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(slots=True)
class Space:
    """A kernel's axes and accesses, as the lowering found them."""

    group: Group
    #: Index arithmetic by (what, node, index); see lower.py.
    forms: Mapping[tuple[str, Expr, At], Index]
    axes: Iterable[Axis]
    parallel: set[Axis]
    #: Reductions, scans and products: the node and the axes that it walks.
    walks: list[tuple[Expr, list[Axis]]]
    contraction: tuple[Axis | None, Axis | None, Axis | None] | None
    #: The scattered value's axes in the order of its elements, for a SCATTER.
    scattered: list[Axis]
    #: Axes along which windows of the same memory are shifted, on a GPU.
    shifted: set[Axis]
    #: Blocks that may be a cluster; what a product's kernel is to do with its tiles.
    cluster: int = 1
    attrs: dict[str, int] = field(default_factory=dict)

    def reduces_rows(self) -> bool:
        """Whether rows of a product are reduced."""
        return any(node.op is not E.DOT for node, _ in self.walks)

    def computed(self, axis: Axis) -> bool:
        """Whether a product's operand along an axis is computed in the kernel."""
        product = self.group.product
        assert product is not None
        at = self.group.output_index[product] if product in self.group.output_index else self.group.uses[product][0]
        sides = zip(canonical(at)[-2:], edges(self.group, product, canonical(at)), strict=True)
        return any(index.single() is axis and node in self.group.nodes for index, (node, _) in sides)

    def stride(self, axis: Axis) -> int:
        return max((abs(f.terms.get(axis, 0)) for f in self.forms.values()), default=0)

    def ordered(self) -> tuple[list[Axis], list[Axis]]:
        """The walked and the parallel axes, each from the largest stride to the smallest."""
        axes = sorted(self.axes, key=self.stride, reverse=True)
        return [a for a in axes if a not in self.parallel], [a for a in axes if a in self.parallel]

    def lane(self) -> Axis | None:
        """The axis along which most accesses are contiguous."""
        score: dict[Axis, int] = {}
        # Neighbouring positions share blocks of random bits as neighbouring elements do lines of memory.
        draws = any(n.op.name in PER_BLOCK for n in self.group.nodes)
        for (what, node, _), form in self.forms.items():
            if what == "value" and not (draws and node.op is E.IOTA):
                continue
            weight = prod(a.size for a in form.axes()) * (3 if what == "store" else 2)
            for atom, c in form.terms.items():
                if isinstance(atom, Axis) and abs(c) == 1:
                    score[atom] = score.get(atom, 0) + weight * node.dtype.itemsize
        return max(score, key=lambda a: score[a], default=None)

    def crossing(self, lane: Axis) -> Axis | None:
        """Another axis along which a large access is contiguous while it strides along `lane`."""
        for (what, _, _), form in self.forms.items():
            if what != "value" and abs(form.terms.get(lane, 0)) > 1:
                for atom, c in form.terms.items():
                    if isinstance(atom, Axis) and atom is not lane and abs(c) == 1 and atom.size >= 16 <= lane.size:
                        return atom
        return None

    def overlaps(self) -> bool:
        """Whether shifted windows of the same memory are read, as stencils do."""
        seen: dict[object, tuple[int, int]] = {}
        for (what, node, _), form in self.forms.items():
            if what == "load" and form.terms:
                memory, offset = (id(node.attrs[0]), node.attrs[1]) if node.op is E.BUFFER else (id(node), 0)
                where = offset, form.const
                if seen.setdefault((memory, frozenset(form.terms.items())), where) != where:
                    return True
        return False

    def gpu_tile(self) -> int:
        """Elements of an elementwise tile on a GPU."""
        widest = max((n.dtype.itemsize for (what, n, _) in self.forms if what != "value"), default=4)
        return GPU_TILE_BYTES // max(widest, 2)

    def passes(self) -> int:
        """How often what is reduced is walked."""
        return len([node for node, _ in self.walks if node.op.kind != "scan"]) + self.writes_walked()

    def writes_walked(self) -> bool:
        """Whether results as large as what is reduced are written."""
        passes = [node for node, _ in self.walks if node.op.kind != "scan"]
        return any(n.size > node.size for n in self.group.outputs for node in passes)


def cpu(space: Space, processors: int) -> Tiles:
    """Tiles that a core's caches hold."""
    inner, outer = space.ordered()
    if space.contraction is not None:
        return {axis: None for axis in space.contraction if axis is not None}
    if space.group.root.op is E.SCATTER:
        return {space.scattered[-1]: TILE} if space.scattered else {}
    lane = space.lane()
    if space.group.root.op is PARTIAL:
        split = split_axis(space.group).find()
        walked = sorted({*inner, split}, key=space.stride, reverse=True)
        tile: Tiles = {a: space.group.root.attrs[3] if a is split else None for a in walked}
        if lane in outer and lane is not split:
            tile[lane] = WHOLE_COLUMNS
        return tile
    if inner:
        tile = dict.fromkeys(inner)
        if lane in outer:
            tile[lane] = _cpu_columns(space, lane, prod(a.size for a in inner), processors)
        return tile
    if not outer:
        return {}
    lane = lane or outer[-1]
    other = space.crossing(lane)
    rest = [a for a in outer if a is not lane]
    if other is not None:
        return {other: SQUARE, lane: SQUARE}
    if rest and lane.size <= ROW:
        return {rest[-1]: max(1, TILE // bucket(lane.size)), lane: None}
    return {lane: TILE if not rest else ROW}


def _cpu_columns(space: Space, lane: Axis, length: int, processors: int) -> int:
    """Positions of the parallel lane axis that a program takes, above `length` walked positions."""
    passes = space.passes()
    if passes <= 1:
        return COLUMNS if lane.size < 8 * WHOLE_COLUMNS else WHOLE_COLUMNS
    size = max(n.dtype.itemsize for n in space.group.nodes)
    block = COLUMNS
    while block > 64 and block * size * bucket(length) > RESIDENT_BYTES:
        block //= 2
    if passes > 2 or block * size * bucket(length) <= RESIDENT_BYTES:
        return block
    # Reading memory twice, in long pieces of rows, is faster than reading short pieces once.
    return max(block, bucket(-(-lane.size // max(1, processors))))


def gpu(space: Space, processors: int) -> Tiles:
    """Tiles that a block of threads holds in registers; powers of two."""
    inner, outer = space.ordered()
    if space.contraction is not None:
        return _gpu_product(space, processors)
    if is_ordered(space.group.root):
        return dict.fromkeys(space.scattered)
    if space.group.root.op is E.SCATTER:
        inner, outer = [], space.scattered
    lane = space.lane()
    if space.group.root.op is PARTIAL:
        split = split_axis(space.group).find()
        walked = sorted({*inner, split}, key=space.stride, reverse=True)
        tile: Tiles = {a: space.group.root.attrs[3] if a is split else None for a in walked}
        if lane in outer and lane is not split:
            tile[lane] = min(GPU_COLUMNS, bucket(lane.size))
        return tile
    if inner:
        if len(inner) == len(space.walks) == 1 and space.walks[0][0].op.kind == "scan":
            (scanned,) = inner
            size = space.walks[0][0].dtype.itemsize
            block = GPU_SCAN_BYTES // max(4, size)
            if size <= 4 and scanned.size >= 32 * processors * block:
                block *= 2
            if scanned.size >= GPU_SCAN_BLOCKS * block and prod(a.size for a in outer) < 2 * processors:
                return {scanned: block}
        length = prod(bucket(a.size) for a in inner)
        if lane in outer:
            columns = min(GPU_COLUMNS, bucket(lane.size))
            if space.passes() > 1:
                held = GPU_RESIDENT if space.writes_walked() else GPU_REDUCED
                while columns > GPU_LEAST_COLUMNS and columns * length > held:
                    columns //= 2
            total = prod(a.size for a in outer)
            while columns > GPU_LEAST_COLUMNS and total < 2 * processors * columns:
                columns //= 2
            if any(node.op.kind == "scan" for node, _ in space.walks):
                while columns > GPU_SCAN_COLUMNS and 2 * total < processors * columns:
                    columns //= 2
            return {**dict.fromkeys(inner), lane: columns}
        if outer and (rows := _gpu_rows(prod(a.size for a in outer), outer[-1].size, length, processors)) > 1:
            return {outer[-1]: rows, **dict.fromkeys(inner)}
        return dict.fromkeys(inner)
    if not outer:
        return {}
    lane = lane or outer[-1]
    other = space.crossing(lane)
    rest = [a for a in outer if a is not lane]
    if other is not None:
        return {other: SQUARE, lane: SQUARE}
    if not rest:
        return {lane: space.gpu_tile()}
    if windows := [a for a in outer if a in space.shifted and a is not lane]:
        *rows, columns = GPU_WINDOWS[min(len(windows), len(GPU_WINDOWS)) - 1]
        tile: Tiles = {a: min(n, bucket(a.size)) for a, n in zip(windows[-len(rows) :], rows, strict=True)}
        return {**tile, lane: min(columns, bucket(lane.size))}
    # The block that wastes least of its lanes; the largest of those that waste as much.
    size = GPU_OVERLAP_TILE if space.overlaps() else space.gpu_tile()
    most = size // GPU_OVERLAP_ROWS if space.overlaps() else size
    least = min(GPU_LEAST_LANES, bucket(lane.size))
    columns = min((max(least, most >> k) for k in range(8)), key=lambda c: (-(-lane.size // c) * c, -c))
    return {rest[-1]: min(size // columns, bucket(rest[-1].size)), lane: columns}


def _gpu_rows(rows: int, innermost: int, length: int, processors: int) -> int:
    """Rows of `length` positions that a program walks together."""
    block = min(GPU_TILE // length, bucket(innermost))
    while block > 1 and rows < 4 * processors * block:
        block //= 2
    return max(1, block)


def _gpu_product(space: Space, processors: int) -> Tiles:
    assert space.contraction is not None
    m, k, n = space.contraction
    sizes = [1 if a is None else a.size for a in (m, n)]
    batches = prod(a.size for a in space.parallel if a not in (m, n))
    product = space.group.product
    if product is not None and space.reduces_rows():
        assert m and n
        columns = space.group.root.attrs[3] if space.group.root.op is PARTIAL else max(64, bucket(n.size))
        return {a: None if a is k else 128 if a is m else columns for a in (m, k, n) if a is not None}
    if m and k and n and product is not None and in_triples(product):
        tile = _quickest(GPU_TRIPLES, sizes, k.size, batches, processors)
        return {m: tile[0], k: None, n: tile[1]}
    if m and k and n and product is not None and product.attrs == "high":
        # An element has twice the bytes of a narrower one.
        tile = product_cost(GPU_WIDE_PRODUCT, sizes, 2 * k.size, batches, processors, 1)[1].tile
        return {m: tile[0], k: None, n: tile[1]}
    if m and k and n and product is not None and _is_wide(product) and max(sizes) > GPU_SMALL:
        narrow = product.inputs[0].dtype.itemsize == 1
        depth = k.size // 2 if narrow else k.size
        few, many = sorted((m, n), key=lambda axis: axis.size)
        if not narrow and space.cluster > 1 and few.size <= GPU_STREAMED and _is_dequantised(space, k, many):
            width = max(16, bucket(few.size))
            tile = (128, width) if many is m else (width, 128)
            parts = max(1, min(space.cluster, processors // (batches * -(-many.size // 128))))
            space.attrs = Tiling(tile, parts).attrs()
            return {m: tile[0], k: None, n: tile[1]}
        if not narrow and few.size <= GPU_STREAMED and space.computed(many):
            return {a: None if a is k else GPU_STREAMED if a is many else max(16, bucket(few.size)) for a in (m, k, n)}
        tiles = wide_tiles(product)
        boxes = not narrow and space.cluster > 1 and in_boxes(space)
        _, found = product_cost(tiles, sizes, depth, batches, processors, space.cluster if boxes else 1)
        if boxes or count(found.tile, sizes, batches) >= processors // 4:
            space.attrs = found.attrs()
            return {m: found.tile[0], k: None, n: found.tile[1]}
    tiles = {} if product is None else GPU_TILES.get(dtypes.name(product.inputs[0].dtype), {})
    if m and k and n and tiles:
        tile = _quickest(tiles, sizes, k.size, batches, processors)
        return {m: tile[0], k: None, n: tile[1]}
    sides = [side for side in GPU_PRODUCT if side <= max(GPU_PRODUCT[-1], bucket(max(sizes)))]
    side = next((s for s in sides if batches * prod(-(-size // s) for size in sizes) >= processors), sides[-1])
    return {a: side if a is not k else None for a in (m, k, n) if a is not None}


def _quickest(
    tiles: Mapping[tuple[int, int], float], sizes: list[int], depth: int, batches: int, processors: int
) -> tuple[int, int]:
    """The tile with the least time for a product, given the time of a step of 64 along k of each."""

    def cost(tile: tuple[int, int]) -> float:
        rounds = -(-batches * prod(-(-s // t) for s, t in zip(sizes, tile, strict=True)) // processors)
        return rounds * (1 + -(-depth // 64) * tiles[tile])

    return min(tiles, key=cost)


def in_triples(product: Expr) -> bool:
    """Whether a product of float32 is one of its operands' parts in bfloat16."""
    x = behind(product.inputs[0])
    return x.op is TABLE["where"] and behind(x.inputs[1]).op is TRIPLES


def _is_wide(product: Expr) -> bool:
    """Whether tensor cores multiply a product's elements as they are."""
    name = dtypes.name(product.inputs[0].dtype)
    return name in ("f16", "bf16") or dtypes.ACCUMULATED.get(name) == dtypes.name(product.dtype)


def wide_tiles(product: Expr) -> list[tuple[int, int]]:
    """Tiles of a product in tensor cores; registers hold the sums of floats of 8 bits thrice."""
    promoted = dtypes.name(product.inputs[0].dtype) in dtypes.FLOAT8
    return [t for t in GPU_WIDE_PRODUCT if t[1] <= GPU_PROMOTED or not promoted]


def _is_dequantised(space: Space, k: Axis, many: Axis) -> bool:
    """Whether a product's operand along an axis is computed from one array of 8 bits: see cuda/dequantised.py."""
    plain = [space.forms.get(("load", *key)) for key in _operands(space)]
    walked = {(node, form) for (what, node, _), form in space.forms.items() if what == "load" and k in form.axes()}
    beside = [(node, form) for node, form in walked if form not in plain]
    if not space.computed(many) or len(beside) != 1 or sum(f is not None and _is_boxed(f) for f in plain) != 1:
        return False
    ((node, form),) = beside
    return node.dtype.itemsize == 1 and many in form.axes() and _is_boxed(form)


def _operands(space: Space) -> list[tuple[Expr, At]]:
    """The operands of a product, and the indices that it reads them at."""
    group, product = space.group, space.group.product
    assert product is not None
    at = group.output_index[product] if product in group.output_index else group.uses[product][0]
    return [(node, canonical(index)) for node, index in edges(group, product, canonical(at))]


def _is_boxed(form: Index) -> bool:
    one, *others = sorted(form.terms.values())
    return all(isinstance(atom, Axis) for atom in form.terms) and one == 1 and not any(s % 16 for s in others)


def in_boxes(space: Space) -> bool:
    """Whether a product's operands lie in memory such that boxes of them can be copied: see cuda/tensor_maps.py."""
    forms = [space.forms.get(("load", *key)) for key in _operands(space)]
    return all(form is not None and _is_boxed(form) for form in forms)


class Tiling(NamedTuple):
    """How a product is cut: its tiles, and parts of k that blocks of a cluster have, or blocks anywhere."""

    tile: tuple[int, int]
    parts: int = 1
    spread: int = 1
    #: Columns of a last tile that has no more.
    edge: int = 0

    def attrs(self) -> dict[str, int]:
        """What the kernel's code depends on, beside the tile."""
        found = {"parts": self.parts, "spread": self.spread, "edge": self.edge}
        return {name: value for name, value in found.items() if value > 1}


def product_cost(
    tiles: Iterable[tuple[int, int]], sizes: Sequence[int], depth: int, batches: int, processors: int, cluster: int
) -> tuple[float, Tiling]:
    """The least microseconds of a product, and how; `cluster` is 1 where boxes cannot be copied."""
    found = [Tiling(tile) for tile in tiles]
    if cluster > 1:
        found += map(Tiling, (*GPU_BOXED_PRODUCT, *GPU_NARROW_PRODUCT))
        found += [Tiling((few, many)) for (many, few), *_ in found if few <= GPU_EDGE]
        found += [
            t._replace(parts=p) for t in found for p in GPU_PARTS if 1 < p <= cluster and max(t.tile) <= 128
        ] + [
            t._replace(spread=p) for t in found for p in GPU_SPREAD if p * count(t.tile, sizes, batches) <= processors
        ] + [
            t._replace(edge=GPU_EDGE) for t in found if batches == 1 and has_edge(t.tile, sizes)
        ]  # fmt: skip
    return min(((_cost(t, sizes, depth, batches, processors), t) for t in found), key=lambda f: f[0])


def count(tile: tuple[int, int], sizes: Sequence[int], batches: int) -> int:
    """Tiles of a product."""
    return batches * prod(-(-s // t) for s, t in zip(sizes, tile, strict=True))


def has_edge(tile: tuple[int, int], sizes: Sequence[int]) -> bool:
    """Whether the last of several tiles has few columns."""
    return sizes[1] > tile[1] > GPU_EDGE >= sizes[1] % tile[1] > 0


def _cost(how: Tiling, sizes: Sequence[int], depth: int, batches: int, processors: int) -> float:
    """The microseconds of a product: see docs/architecture.md."""
    tiles, parts = count(how.tile, sizes, batches), how.parts * how.spread
    known = {**GPU_WIDE_PRODUCT, **GPU_BOXED_PRODUCT, **GPU_NARROW_PRODUCT}
    ends, step = known.get(how.tile) or known[how.tile[1], how.tile[0]]
    # Clusters lie in groups of processors, which they do not fill.
    together = processors if how.parts == 1 else max(1, processors * 32 // 33 // how.parts)
    narrow = -(-sizes[0] // how.tile[0]) if how.edge else 0
    rounds = -(-(tiles - narrow) * how.spread // together)
    if how.edge:
        # Narrow tiles take the places that the others leave, if these are enough.
        part = GPU_WIDE_PRODUCT[128, GPU_EDGE][1] / step
        rounds += part * (narrow > int(1 / part) * (rounds * together - tiles + narrow))
    nbytes = 2 * batches * (depth * sum(sizes) + prod(sizes))
    work = rounds * -(-depth // (64 * parts)) * step, nbytes * rounds / GPU_BYTES / (tiles * parts)
    # What goes on side by side hides most of what takes less time.
    found = GPU_BEGINNING + rounds * ends + max(work) + min(work) / 4
    if how.parts > 1:
        found += rounds * GPU_ADDED_UP * min(how.tile)
    if how.spread > 1:
        found += GPU_SPREADING + GPU_SPREAD_BYTES * 4e-6 * tiles * how.spread * prod(how.tile)
    return found
