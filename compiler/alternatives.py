"""The schedules that a kernel may have beside the usual one, for a tuner to measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from . import dtypes, schedule
from .choices import Choice, Choices, size_class
from .group import PARTIAL, Group
from .index import Axis
from .policy import Policy
from .schedule import Space, Tiles, bucket, in_boxes, in_triples

#: GPU: rows of tiles of a product that are gone through together, and stages of its ring.
TOGETHER = (8, 16, 32)
STAGES = 4
#: Tiles are at least this part of the usual one.
_LEAST = 8
#: Rows, and keys, that a program of a softmax between two products takes at a time.
ROWS = {"cpu": (32, 64, 128), "cuda": (64, 128)}
#: CPU: steps of k in a block of a product, and rows.
DEPTHS = (128, 256, 384)
HEIGHTS = (96, 192)


def tiles(space: Space, usual: Tiles, policy: Policy) -> tuple[Tiles, dict[str, int], bool]:
    """The tiles of a kernel, attributes for its code, and whether these were chosen by measuring."""
    names = {f"d{k}": axis for k, axis in enumerate(usual)}
    blocks = {name: block for name, axis in names.items() if (block := usual[axis]) is not None}
    attrs = space.attrs
    picked = {**blocks, **attrs}
    if space.group.product is not None and space.reduces_rows():
        return usual, attrs, False
    if space.contraction is not None:
        gpu = lambda: _gpu_products(space, names, blocks, policy.processors)
        others = gpu if policy.target == "cuda" else _cpu_products
    elif policy.target == "cpu" or space.group.root.op is PARTIAL or any(n.op.kind == "scan" for n, _ in space.walks):
        return usual, attrs, False
    else:
        others = lambda: _scaled(names, blocks)
    found = policy.choices.choose(_key(space, usual, policy.target), picked, others)
    if found is picked:
        return usual, attrs, False
    made = {axis: found.get(name, usual[axis]) for name, axis in names.items()}
    return made, {name: value for name, value in found.items() if name not in names}, True


def online(group: Group, axes: Sequence[Axis], usual: Choice, target: str, choices: Choices) -> Choice:
    """Rows of a program that walks over keys, and keys that it takes at a time."""
    sizes = [*(a.size for a in axes[:4]), prod(a.size for a in axes[4:])]
    key = f"{target}: {' '.join(_ops(group))}; {'x'.join(map(size_class, sizes))}"
    blocks = [{"rows": rows, "keys": keys} for rows in ROWS[target] for keys in ROWS[target]]
    return choices.choose(key, usual, lambda: [b for b in blocks if b["keys"] <= bucket(sizes[2])])


def _ops(group: Group) -> list[str]:
    return [f"{n.op.name}:{dtypes.name(n.dtype)}" for n in reversed(group.nodes)]


def _key(space: Space, usual: Tiles, target: str) -> str:
    """What the best tiles may depend on."""
    axes = [f"{size_class(a.size)}{'' if a in space.parallel else 'w'}" for a in usual]
    rest = size_class(prod(a.size for a in space.parallel if a not in usual))
    lanes = [
        "".join(str(k) for k, a in enumerate(usual) if abs(form.terms.get(a, 0)) == 1)
        for (what, _, _), form in space.forms.items()
        if what != "value"
    ]
    product = space.group.product
    how = "" if product is None or product.attrs is None else f", {product.attrs}"
    if product is not None and target == "cuda":
        how += ", in triples" * in_triples(product) + ", in boxes" * in_boxes(space)
    return f"{target}: {' '.join(_ops(space.group))}; {rest} of {'x'.join(axes)}; along {' '.join(lanes)}{how}"


def _gpu_products(space: Space, names: Mapping[str, Axis], blocks: Choice, processors: int) -> Iterable[Choice]:
    product = space.group.product
    squares = [(side, side) for side in schedule.GPU_PRODUCT]
    if product is None or len(blocks) < 2:
        yield from (dict.fromkeys(blocks, side) for side, _ in squares)
        return
    dtype = product.inputs[0].dtype
    triples, tensor = in_triples(product), dtype.itemsize <= 2
    boxes = dtype.itemsize == 2 and in_boxes(space)
    if triples:
        sides = [*schedule.GPU_TRIPLES]
    elif tensor:
        narrow = [*schedule.GPU_NARROW_PRODUCT] if boxes and space.cluster > 1 else []
        wide = [*schedule.wide_tiles(product), *(schedule.GPU_BOXED_PRODUCT if narrow else ())]
        sides = [*dict.fromkeys([*wide, *narrow, *(side[::-1] for side in narrow), *squares])]
    else:
        sides = [*schedule.GPU_TILES.get(dtypes.name(dtype), squares)]
    m, n = (names[d].size for d in blocks)
    batches = prod(a.size for a in space.parallel) // (m * n)
    for rows, columns in sides:
        if _LEAST * rows * columns < prod(blocks.values()) or rows > 2 * bucket(m) or columns > 2 * bucket(n):
            continue
        tile = dict(zip(blocks, (rows, columns)))
        yield tile
        if not (triples or tensor) or max(rows, columns) < 128:
            continue
        yield from ({**tile, "together": high} for high in TOGETHER if high < -(-m // rows))
        yield {**tile, "stages": STAGES}
        if not boxes:
            continue
        if max(rows, columns) == 128:
            yield from ({**tile, "parts": parts} for parts in schedule.GPU_PARTS if 1 < parts <= space.cluster)
        count = schedule.count((rows, columns), (m, n), batches)
        yield from ({**tile, "spread": parts} for parts in schedule.GPU_SPREAD if parts * count <= processors)
        if batches == 1 and schedule.has_edge((rows, columns), (m, n)):
            yield {**tile, "edge": schedule.GPU_EDGE}


def _cpu_products() -> Iterable[Choice]:
    for depth in DEPTHS:
        yield from ({"kc": depth, "mc": height} for height in HEIGHTS)


def _scaled(names: Mapping[str, Axis], blocks: Choice) -> Iterable[Choice]:
    """Tiles half and twice as large along one dim."""
    for name, block in blocks.items():
        if block > 1:
            yield {**blocks, name: block // 2}
        if 2 * block <= bucket(names[name].size):
            yield {**blocks, name: 2 * block}
