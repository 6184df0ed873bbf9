"""Operands of products: what they are made of, and how they had better lie in memory."""

from __future__ import annotations

from . import dtypes
from . import expr as E
from .expr import Expr, contiguous_strides
from .group import ALIGNED, COPY, WRITES, strip_views
from .index import Axis, Index, Quotient, Remainder
from .ops import TABLE, Op

#: A node without elements.
EMPTY = E.structural("empty", 0, "No elements, or memory that was not written yet.")
#: Cost of an operand that is computed twice: where it is split, and where a tile of its product needs all of it.
REPEATED = 20
#: Types of 16 bits that tensor cores multiply.
NARROW_FLOATS = ("f16", "bf16")


def strides_of(x: Expr) -> E.Shape | None:
    """The strides by which an elementwise node's input walks memory, if it is memory or a view."""
    if x.op is E.SCALAR:
        return ()
    if x.op is E.BUFFER:
        return x.attrs[2]
    return x.attrs[1] if x.op is E.VIEW else None


def copy(node: Expr) -> Expr:
    return Expr(COPY, (node,), None, node.shape, node.dtype, 0)


def copied(node: Expr) -> Expr:
    """Memory of its own, or a window of such: a reshape is one of what it reshapes, which kernels reach without it."""
    if node.op is E.VIEW and node.attrs == (0, contiguous_strides(node.shape)) and node.inputs[0].op is E.VIEW:
        base = node.inputs[0]
        if base.size == node.size:
            return Expr(E.VIEW, (copy(base),), node.attrs, node.shape, node.dtype, 0)
    return copy(node)


def bare(x: Expr) -> tuple[Expr, list[Expr], list[tuple[Op, Expr]]]:
    """What a product's operand is a scaled window of, the windows of it, and the scalars that it is scaled by.

    A cast to f32 is left out: products of 16-bit floats are exact in f32.
    """
    windows: list[Expr] = []
    factors: list[tuple[Op, Expr]] = []
    while True:
        name, inputs = x.op.name, x.inputs
        if x.op is E.VIEW:
            windows.insert(0, x)
            x = inputs[0]
        elif name in ("multiply", "divide") and inputs[1].op is E.SCALAR:
            factors.append((x.op, inputs[1]))
            x = inputs[0]
        elif name == "multiply" and inputs[0].op is E.SCALAR:
            factors.append((x.op, inputs[0]))
            x = inputs[1]
        elif name == "cast" and x.dtype == dtypes.NUMPY["f32"] and dtypes.name(inputs[0].dtype) in NARROW_FLOATS:
            x = inputs[0]
        else:
            return x, windows, factors


def walkable(x: Expr, apart: bool = False) -> Expr:
    """A product's operand whose rows and columns can be walked by strides.

    `apart`: its leading axes may be cut into two, as those of a matrix that several others are multiplied by.
    """
    if x.op is not E.VIEW:
        return x
    axes = [Axis(n) for n in x.shape]
    _, at = strip_views(x, tuple(map(Index.axis, axes)))

    def steps(atom: object) -> bool:
        if apart and isinstance(atom, (Quotient, Remainder)):
            axis = atom.index.single()
            return axis in axes[:-2] and axis is not None and axis.size % atom.divisor == 0
        return isinstance(atom, Axis)

    return x if all(steps(atom) for i in at for atom in i.terms) else copied(x)


def pitched(x: Expr, pitch: int) -> Expr:
    """A matrix, or matrices, as a window of memory in which each row begins at a multiple of `pitch`.

    What is in memory is copied there, what is computed is written there at once.
    """
    if x.inputs:
        return _pitched_when_made(x, pitch)
    if x.op is not E.BUFFER or 0 in x.attrs[2]:
        return x
    *outer, rows, columns = x.shape
    strides = x.attrs[2]
    turned = strides[-2] == 1 != strides[-1]
    if turned:
        rows, columns = columns, rows
    others = (*strides[:-2], strides[-1] if turned else strides[-2])
    if 1 in strides and all(s > 0 and s % ALIGNED == 0 for s in others):
        return x
    row = -(-columns // pitch) * pitch
    shape = (*outer, rows, row)
    window = (0, contiguous_strides(shape))
    base = Expr(EMPTY, (), None, shape, x.dtype, 0)
    swapped = lambda s: (*s[:-2], s[-1], s[-2]) if turned else s
    value = x
    if turned:
        value = Expr(E.VIEW, (x,), (0, swapped(contiguous_strides(x.shape))), (*outer, rows, columns), x.dtype, 0)
    copied = Expr(E.UPDATE, (base, value), window, shape, x.dtype, 0)
    return Expr(E.VIEW, (copied,), (0, swapped(window[1])), x.shape, x.dtype, 0)


def _pitched_when_made(x: Expr, pitch: int) -> Expr:
    swapped = lambda s: (*s[:-2], s[-1], s[-2])
    base, turned = x, False
    if x.op is E.VIEW:
        base, turned = x.inputs[0], True
        if x.shape != swapped(base.shape) or x.attrs != (0, swapped(contiguous_strides(base.shape))):
            return x
    if base.op in (E.VIEW, COPY, *WRITES) or not base.inputs or base.shape[-1] % ALIGNED == 0:
        return x
    shape = (*base.shape[:-1], -(-base.shape[-1] // pitch) * pitch)
    strides = contiguous_strides(shape)
    made = Expr(E.UPDATE, (Expr(EMPTY, (), None, shape, x.dtype, 0), base), (0, strides), shape, x.dtype, 0)
    return Expr(E.VIEW, (made,), (0, swapped(strides) if turned else strides), x.shape, x.dtype, 0)


def goes_down(a: Expr, b: Expr, m: int, n: int) -> bool:
    """Whether a product of a vector walks down the columns of a matrix in memory."""
    if (m == 1) == (n == 1):
        return False
    strides = strides_of(b if m == 1 else a)
    if not strides:
        return False
    along, down = strides[-2:][::-1] if m == 1 else strides[-2:]
    return along == 1 != down


def unscaled(x: Expr, axis: int) -> tuple[Expr, list[Expr]]:
    """What is multiplied, and what it was multiplied by that is the same all along an axis."""
    scales: list[Expr] = []
    while True:
        x = _unwidened(x)
        base, views = _beneath(x)
        if base.op.name != "multiply" or dtypes.name(base.dtype) not in dtypes.FLOAT:
            return x, scales
        first, second = (_seen(y, views) for y in base.inputs)
        if _is_constant(first, axis):
            first, second = second, first
        elif not _is_constant(second, axis):
            return x, scales
        scales.append(second)
        x = first


def _beneath(x: Expr) -> tuple[Expr, list[Expr]]:
    """What views show, and these, outermost first."""
    views: list[Expr] = []
    while x.op is E.VIEW:
        views.append(x)
        x = x.inputs[0]
    return x, views


def _seen(x: Expr, views: list[Expr]) -> Expr:
    """What views would show of x."""
    if x.op is not E.SCALAR:
        for view in reversed(views):
            x = Expr(E.VIEW, (x,), view.attrs, view.shape, x.dtype, 0)
    return x


def _is_constant(x: Expr, axis: int) -> bool:
    """Whether an operand is the same all along an axis, by how it is walked."""
    if x.op is E.SCALAR:
        return True
    strides = _memory_strides(x, any_=True)
    return strides is not None and strides[axis] == 0


def _unwidened(x: Expr) -> Expr:
    """What is multiplied, where it is of a type of 8 bits and was cast to one that holds all of its numbers."""
    base, views = _beneath(x)
    if base.op.name != "cast" or dtypes.name(base.inputs[0].dtype) not in dtypes.ACCUMULATED:
        return x
    source, into = (dtypes.name(e.dtype) for e in (base.inputs[0], base))
    if dtypes.SIZE[into] == 1 or (source in dtypes.FLOAT and into not in dtypes.FLOAT) or into in dtypes.COMPLEX:
        return x
    return _seen(base.inputs[0], views)


def upright(x: Expr, axis: int, pitch: int) -> Expr:
    """A product's operand that lies along k, its axis -1 or -2, in rows that begin at multiples of 16 elements."""
    strides = _memory_strides(x)
    if strides is not None:
        others = [s for k, s in enumerate(strides) if k != len(strides) + axis]
        if strides[axis] == 1 and all(s >= 0 and s % ALIGNED == 0 for s in others):
            return x
    # What is broadcast is copied once.
    shape = tuple([1 if strides and strides[k] == 0 else n for k, n in enumerate(x.shape[:-2])]) + x.shape[-2:]
    swapped = lambda s: s if axis == -1 else (*s[:-2], s[-1], s[-2])
    value = Expr(E.VIEW, (x,), (0, swapped(contiguous_strides(x.shape))), swapped(shape), x.dtype, 0)
    *outer, rows, columns = value.shape
    memory = (*outer, rows, -(-columns // pitch) * pitch)
    window = contiguous_strides(memory)
    base = Expr(EMPTY, (), None, memory, x.dtype, 0)
    copied = Expr(E.UPDATE, (base, value), (0, window), memory, x.dtype, 0)
    back = tuple([0 if n == 1 else s for n, s in zip(shape, swapped(window), strict=True)])
    return Expr(E.VIEW, (copied,), (0, back), x.shape, x.dtype, 0)


def shortened(x: Expr) -> Expr:
    """Elements of float32, but the largest, rounded to mantissas of 10 bits, to which tensor cores would cut them."""
    scalar = lambda value: E.scalar(value, x.dtype)
    node = lambda name, *inputs, dtype=x.dtype: Expr(TABLE[name], inputs, None, x.shape, dtype, 0)
    large = node("multiply", x, scalar(2.0**13 + 1))
    short = node("subtract", large, node("subtract", large, x))
    small = node("less", node("absolute", x), scalar(2.0**112), dtype=dtypes.BOOL)
    return node("where", small, short, x)


def _memory_strides(x: Expr, any_: bool = False) -> E.Shape | None:
    """The strides by which a buffer (or `any_` node), or what views show of one, is walked."""
    if x.op is E.BUFFER:
        return x.attrs[2]
    if x.op is not E.VIEW:
        return contiguous_strides(x.shape) if any_ else None
    base, (offset, steps) = x.inputs[0], x.attrs
    strides = _memory_strides(base, any_)
    found = None if strides is None else E.compose(base.shape, 0, strides, offset, steps, x.shape)
    return None if found is None else found[1]


def cost_of(x: Expr) -> int:
    """What computing an element with everything elementwise that it is made of takes, in additions."""
    if x.op is E.VIEW:
        return cost_of(x.inputs[0])
    if x.op.kind != "elementwise":
        return 0
    total = x.op.cost
    for y in x.inputs:
        if total > REPEATED:
            break
        total += cost_of(y)
    return total
