"""A group of expressions -> one block IR kernel, with the recipe of its arguments.

The group's axes become grid axes and tile dims.  Accesses are affine in them wherever possible: axes that a reshape
splits are split (`a // c` and `a % c` become axes), then neighbours that every access walks alike are merged, so that
contiguous arrays of any rank make the same one-dimensional kernel.  Sizes, strides, offsets and scalars are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, NamedTuple

from . import alternatives, dtypes
from . import expr as E
from .builder import Builder, Extents
from .expr import Expr, contiguous_strides
from .group import (
    COPY,
    PARTIAL,
    TRIPLES,
    At,
    Group,
    canonical,
    edges,
    memory_of,
    split_axis,
    strip_views,
    triples_layout,
)
from .index import Axis, Gathered, Index, Quotient, Remainder, add, flatten, ordered_axes, shift, splittable
from .ir import I64, Kernel, Type, Value
from .ops import LITERAL_EXPONENTS, Op
from .policy import Policy
from .schedule import GPU_ROW, Space, Tiles, bucket, cpu, gpu, is_ordered

#: A reduction is computed like a product if both its sides have this many positions, few values, and steps of at most
#: this many additions.
MANY = 16
SIDE_VALUES = 3
STEP_COST = 40
#: The size of a part of a float32, relative to the one before, and what elements are multiplied by, so that the first
#: part of the smallest has all their digits.
PART = 2.0**-8
RAISED = 2.0**16
#: Types that a panel of a product may hold beside each other.
_PACKED = {
    "f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64",
}  # fmt: skip


class Arg(NamedTuple):
    """How a kernel's argument is made at launch.

    kind "pointer": address of `node`'s memory plus `offset` elements; "int": `offset`; "scalar": the value of SCALAR
    `node`; "errors" and "workspace": provided by the runtime.
    """

    kind: str
    node: Expr | None = None
    offset: int = 0


@dataclass(slots=True)
class Lowered:
    kernel: Kernel
    args: list[Arg]
    #: Programs of the linear grid.
    programs: int
    #: Programs run in order, by one thread.
    serial: bool = False
    messages: tuple[str, ...] = ()
    #: Whether its tiles were chosen by measuring.
    tuned: bool = False


@dataclass(slots=True)
class _Walk:
    """The axes that one reduction, scan or product walks; its node and index for identity."""

    node: Expr
    at: At
    axes: list[Axis] = field(default_factory=list)


Origins = Mapping[Expr, tuple[Expr, int]]


def lower(
    group: Group, name: str, policy: Policy, alignment: Callable[[Expr], int], origins: Origins | None = None
) -> Lowered:
    """The kernel of a group.

    `alignment` gives bytes that memory begins at a multiple of; `origins` says of a BUFFER how many elements behind
    another one it begins in the same memory, where that is known.
    """
    return Lowering(group, name, policy, alignment, origins or {}).run()


class Lowering:
    def __init__(
        self, group: Group, name: str, policy: Policy, alignment: Callable[[Expr], int], origins: Origins
    ) -> None:
        self.group = group
        self.policy = policy
        self.gpu = policy.target != "cpu"
        self.alignment = alignment
        self.origins = origins
        #: Names of the parameters that are multiples of 16, or of two elements, which a GPU's code may rely on.
        self.multiples: list[str] = []
        self.even: list[str] = []
        self.b = Builder(name)
        self.ats: dict[Expr, dict[At, None]] = {n: {} for n in group.nodes}
        #: Index arithmetic by (what, node, index): "load" and "store" offsets, "value" of IOTA and argreduce positions.
        self.forms: dict[tuple[str, Expr, At], Index] = {}
        self.walks: list[_Walk] = []
        self.tile: Tiles = {}
        #: Attributes of the kernel that were chosen with the tiles, and whether these were measured.
        self.attrs: dict[str, int] = {}
        self.tuned = False
        self.args: list[Arg] = []
        self.values: dict[tuple[Expr, At], Value] = {}
        self.pointers: dict[tuple[Expr, int], Value] = {}
        self.messages: list[str] = []
        #: Checked values of index arrays, and coefficients by (form, axis).
        self.wrapped: dict[tuple[Expr, At], Value] = {}
        self.coefficients: dict[tuple[Any, Axis], Value] = {}
        self.contraction: tuple[Axis | None, Axis | None, Axis | None] | None = None
        #: Of loads of shifted windows: the memory, its first element and the shift along each axis.
        self.shifts: dict[tuple[Expr, At], tuple[Expr, int, dict[Axis, int]]] = {}

    def run(self) -> Lowered:
        self._collect()
        self._split_axes()
        if self.group.product is None and self.group.root.op is not E.SCATTER:
            self._find_windows()
            self._merge_axes()
        self.contraction = self._contraction()
        self._find_windows()
        self._choose_tiles()
        self._emit()
        self._finish_args()
        kernel = self.b.finish()
        kernel.attrs.update(self.attrs)
        if self.contraction is not None:
            kernel.attrs.update({"schedule": "gemm"} if self.gpu else {"schedule": "gemm", "team": True})
        if self.gpu and is_ordered(self.group.root):
            kernel.attrs["serial"] = True
        self._annotate(kernel)
        serial = self.group.root.op is E.SCATTER
        return Lowered(kernel, self.args, self.programs, serial, tuple(self.messages), self.tuned)

    def _annotate(self, kernel: Kernel) -> None:
        """Say what the code of a GPU may rely on."""
        if self.multiples:
            kernel.attrs["aligned"] = tuple(self.multiples)
        if self.even:
            kernel.attrs["even"] = tuple(self.even)
        if self.gpu and (names := self._overwritten()):
            kernel.attrs["overwritten"] = names

    # -- what is read and written, at which indices ------------------------------------------------------------------
    def _collect(self) -> None:
        group = self.group
        for out in group.outputs:
            at = canonical(group.output_index[out])
            self.forms["store", out, at] = self._store_form(out, at)
            self.ats[out][at[:-1] if out.op is PARTIAL else at] = None
        for node in group.nodes:  # consumers first
            for at in self.ats[node]:
                if node in group.bound:
                    walked = [a.find() for a in group.bound[node] if a.size != 1]
                    self.walks.append(_Walk(node, at, walked))
                    if _reduction(node).name in ("argmax", "argmin"):
                        self.forms["value", node, at] = Index.axis(group.bound[node][0].find())
                elif node.op.kind == "scan" and (axis := at[node.attrs].single()) is not None:
                    self.walks.append(_Walk(node, at, [axis]))
                for producer, index in edges(group, node, at):
                    index = canonical(index)
                    if producer in group.nodes:
                        self.ats[producer][index] = None
                    elif producer.op is E.IOTA:
                        self.forms["value", producer, index] = index[0]
                    elif producer.op is not E.SCALAR:
                        strides = _strides(producer)
                        self.forms["load", producer, index] = flatten(index, 0, strides)

    def _store_form(self, out: Expr, at: At) -> Index:
        if out.op is E.UPDATE:
            return flatten(at, 0, out.attrs[1])
        if out.op is E.SCATTER:
            base, _, *indices = out.inputs
            ndim = len(indices[0].shape)
            rows = tuple(Index(0, {Gathered(i, at[:ndim], n): 1}) for i, n in zip(indices, base.shape, strict=False))
            return flatten(rows + at[ndim:], 0, contiguous_strides(base.shape))
        if out.op is PARTIAL:
            return flatten(at[:-1], 0, contiguous_strides(out.shape)[:-1])
        return flatten(at, 0, _strides(out))

    # -- axes ---------------------------------------------------------------------------------------------------------
    def _fixed(self) -> set[Axis]:
        """Axes that may not be split."""
        if self.group.product is not None:
            return {a for f in self.forms.values() for a in f.axes()}
        fixed = {w.axes[0] for w in self.walks if w.node.op.kind == "scan"}
        return fixed | {split_axis(self.group).find()} if self.group.root.op is PARTIAL else fixed

    def _split_axes(self) -> None:
        """Make axes of `a // c` and `a % c` where c divides a's size."""
        fixed = self._fixed()
        self.parallel = {a.find() for a in self.group.parallel}
        while True:
            found = splittable(self.forms.values(), fixed)
            if found is None:
                break
            axis, c = found
            outer, inner = Axis(axis.size // c), Axis(c)
            whole = {axis: add((Index(0, {outer: c}), Index(0, {inner: 1})))}
            self.forms = {k: f.substitute(whole) for k, f in self.forms.items()}
            for walk in self.walks:
                if axis in walk.axes:
                    walk.axes[walk.axes.index(axis) : walk.axes.index(axis) + 1] = [outer, inner]
            if axis in self.parallel:
                self.parallel = self.parallel - {axis} | {outer, inner}
        self.axes = ordered_axes(self.forms.values(), (w.axes for w in self.walks))

    def _merge_axes(self) -> None:
        """Merge neighbours a, b where every access steps through a in units of b's extent."""
        fixed = {w.axes[0] for w in self.walks if w.node.op.kind == "scan"} | self._rows_of_windows()
        if self.group.root.op is PARTIAL:
            fixed.add(split_axis(self.group).find())
        for form in self.forms.values():
            for atom in form.terms:
                if isinstance(atom, (Quotient, Remainder)):
                    fixed |= atom.index.axes()
        members = {a: (a in self.parallel, *(a in w.axes for w in self.walks)) for a in self.axes}
        terms = [f.terms for f in self.forms.values()]
        merged = True
        while merged:
            merged = False
            for a in self.axes:
                for b in self.axes:
                    if a is b or a in fixed or b in fixed or members[a] != members[b]:
                        continue
                    if all(t.get(a, 0) == t.get(b, 0) * b.size for t in terms):
                        self._merge(a, b, members)
                        terms = [f.terms for f in self.forms.values()]
                        merged = True
                        break
                if merged:
                    break

    def _merge(self, a: Axis, b: Axis, members: dict[Axis, Any]) -> None:
        axis = Axis(a.size * b.size)
        members[axis] = members[a]
        for key, form in self.forms.items():
            if a in form.terms or b in form.terms:
                kept = {t: c for t, c in form.terms.items() if t is not a and t is not b}
                kept[axis] = form.terms[b]
                self.forms[key] = Index(form.const, kept)
        for walk in self.walks:
            if a in walk.axes:
                walk.axes = [axis if x is b else x for x in walk.axes if x is not a]
        if a in self.parallel:
            self.parallel = self.parallel - {a, b} | {axis}
        self.axes = [axis if x is b else x for x in self.axes if x is not a]

    # -- products -----------------------------------------------------------------------------------------------------
    def _contraction(self) -> tuple[Axis | None, Axis | None, Axis | None] | None:
        """The axes (m, k, n) of a product, or of a reduction over k that is computed like one.

        Such a reduction's operand is made of values that depend on m or on n, not on both, so that each of them is read
        many times.
        """
        group = self.group
        if group.product is not None:
            at = next(iter(self.ats[group.product]))
            k = group.bound[group.product][0].find()
            m, n = (i.single() for i in at[-2:])
            if self.gpu and k.size != 1 and (m is None) != (n is None):
                m, n = self._single(at, 0) if m is None else m, self._single(at, 1) if n is None else n
            return m, k if k.size != 1 else None, n
        if len(self.walks) != 1 or group.root.op in (PARTIAL, E.SCATTER):
            return None
        node, walk = self.walks[0].node, self.walks[0]
        if len(walk.axes) != 1 or node.op.kind != "reduction" or node.op.combine is None:
            return None
        (k,) = walk.axes
        packed = _PACKED.get(dtypes.name(node.dtype))
        if packed is None or node.op.name in ("argmax", "argmin"):
            return None
        if not all(isinstance(a, Axis) for form in self.forms.values() for a in form.terms):
            return None
        if any(k in self._reach(out, canonical(group.output_index[out]), node) for out in group.outputs):
            return None
        operand = edges(group, node, walk.at)[0]
        store = self.forms["store", group.root, canonical(group.output_index[group.root])]
        large = sorted((a for a in self.parallel if a.size >= MANY), key=lambda a: abs(store.terms.get(a, 0)))
        for n in large[:2]:
            for m in large:
                if m is not n and self._bilateral(*operand, m, n, packed):
                    return m, k, n
        return None

    def _single(self, at: At, side: int) -> Axis | None:
        """An axis of one row or column of a product, along which one operand, if it is memory, and the results lie."""
        group, axis = self.group, Axis(1)
        assert group.product is not None
        operand, index = edges(group, group.product, at)[side]
        keys = [("load", operand, canonical(index))]
        if keys[0] not in self.forms:
            return None
        keys += [("store", out, canonical(group.output_index[out])) for out in group.outputs]
        for key in keys:
            form = self.forms[key]
            self.forms[key] = Index(form.const, {**form.terms, axis: ROW_APART})
        self.axes.append(axis)
        self.parallel.add(axis)
        return axis

    def _reach(self, node: Expr, at: At, stop: Expr | None = None) -> set[Axis]:
        """The axes that a value depends on, not counting what is behind `stop`."""
        at = canonical(at)
        if node is stop:
            return set()
        if node not in self.group.nodes:
            form = self.forms.get(("load", node, at)) or self.forms.get(("value", node, at))
            return form.axes() if form is not None else set()
        found: set[Axis] = set()
        for producer, index in edges(self.group, node, at):
            found |= self._reach(producer, index, stop)
        return found

    def _bilateral(self, node: Expr, at: At, m: Axis, n: Axis, packed: str) -> bool:
        """Whether a value is made, by a few cheap operations, of ones that depend on m or on n and are packed alike."""
        leaves: dict[tuple[Expr, At], set[Axis]] = {}
        inner: dict[tuple[Expr, At], None] = {}
        queue = [(node, canonical(at))]
        while queue:
            value = queue.pop()
            if value in inner or value in leaves:
                continue
            axes = self._reach(*value)
            if {m, n} <= axes and value[0].op.kind == "elementwise":
                inner[value] = None
                queue += [(p, canonical(i)) for p, i in edges(self.group, *value)]
            elif value[0].op is not E.SCALAR:
                leaves[value] = axes
        first = sum(m in axes for axes in leaves.values())
        return (
            1 <= first <= SIDE_VALUES
            and 1 <= len(leaves) - first <= SIDE_VALUES
            and any(n in axes for axes in leaves.values())
            and not any({m, n} <= axes for axes in leaves.values())
            and all(_PACKED.get(dtypes.name(leaf.dtype)) == packed for leaf, _ in leaves)
            and sum(x.op.cost for x, _ in inner) <= STEP_COST
        )

    # -- windows ------------------------------------------------------------------------------------------------------
    def _find_windows(self) -> None:
        """Find loads of the same memory that differ by small shifts along axes.

        They get one pointer and the same strides, by which the code of a GPU sees that they read the same elements.
        """
        self.shifts.clear()
        if not self.gpu or self.contraction is not None:
            return
        memories: dict[Any, list[tuple[int, tuple[Expr, At]]]] = {}
        for (what, node, at), form in self.forms.items():
            if what == "load" and form.terms and all(isinstance(t, Axis) for t in form.terms):
                origin, distance = self.origins.get(node, (node, 0))
                key = origin, frozenset(form.terms.items())
                memories.setdefault(key, []).append((distance + form.const, (node, at)))
        for (origin, terms), loads in memories.items():
            starts = [start for start, _ in loads]
            base = next((start for start in starts if start == 0), min(starts))
            for start, load in loads:
                shifts = shift(start - base, dict(terms))
                if shifts is not None and len(loads) > 1:
                    self.shifts[load] = origin, base, shifts

    def _rows_of_windows(self) -> set[Axis]:
        """Axes of long rows along which windows are shifted: merged with others, they would read every row twice."""
        found: dict[Axis, set[int]] = {}
        for (node, at), (_, _, shifts) in self.shifts.items():
            for axis, stride in self.forms["load", node, at].terms.items():
                # In rows of odd lengths accesses would be narrow.
                if isinstance(axis, Axis) and abs(stride) >= LONG and stride % 2 == 0:
                    found.setdefault(axis, set()).add(shifts.get(axis, 0))
        return {axis for axis, steps in found.items() if len(steps) > 1}

    # -- grid and tiles -----------------------------------------------------------------------------------------------
    def _choose_tiles(self) -> None:
        """Set `tile` (axis -> block, or None: whole; outermost first) and `grid` (axes of one position a program)."""
        scattered: list[Axis] = []
        if self.group.root.op is E.SCATTER:
            at = next(iter(self.ats[self.group.root]))
            scattered = [a for i in at if (a := i.single()) is not None]
        walks = [(w.node, w.axes) for w in self.walks]
        shifted = {a for _, _, shifts in self.shifts.values() for a in shifts}
        space = Space(
            self.group, self.forms, self.axes, self.parallel, walks, self.contraction, scattered, shifted,
            self.policy.cluster,
        )  # fmt: skip
        usual = (gpu if self.gpu else cpu)(space, self.policy.processors)
        self.tile, self.attrs, self.tuned = alternatives.tiles(space, usual, self.policy)
        outer = scattered if scattered else space.ordered()[1]
        self.grid = [a for a in outer if a not in self.tile]

    # -- emission -----------------------------------------------------------------------------------------------------
    def _size(self, axis: Axis) -> Value:
        """The parameter that says how many positions an axis has."""
        if axis not in self.sizes:
            self.sizes[axis] = self._int(f"n{len(self.sizes)}", axis.size)
            # Whole rows of wide accesses; a blocked axis has its last block apart, but for products.
            whole = axis in self.tile and (self.tile[axis] is None or self.contraction is not None)
            if whole and any(f.terms.get(axis, 0) == 1 for f in self.forms.values()):
                self._mark(self.sizes[axis], axis.size)
        return self.sizes[axis]

    def _declare(self) -> None:
        """Declare the grid and the tile's extents."""
        b = self.b
        self.sizes: dict[Axis, Value] = {}
        # Pointers come first: they are found while the body is emitted, so the body waits for the declarations.
        self.position: dict[Axis, Value] = {}
        self.start: dict[Axis, Value] = {}
        self.names: dict[Axis, Any] = {}
        self.grid_number: dict[Axis, int] = {}
        self.programs = 1
        for axis in self.grid:
            number = b.grid_axis(self._size(axis))
            self.grid_number[axis] = number
            self.programs *= axis.size
        for k, (axis, block) in enumerate(self.tile.items()):
            number = None
            if block is not None:
                number = b.grid_axis(self._size(axis), block)
                self.grid_number[axis] = number
                self.programs *= -(-axis.size // block)
            whole = block is None and self.gpu and self.contraction is None and bucket(axis.size) <= GPU_ROW
            self.names[axis] = b.dim(f"d{k}", self._size(axis), block, number, bucket(axis.size) if whole else None)
        for axis in self.grid:
            self.position[axis] = b.program_id(self.grid_number[axis])
        self.order = list(self.tile)

    def _emit(self) -> None:
        self._declare()
        for node in reversed(self.group.nodes):
            for at in self.ats[node]:
                if (node, at) not in self.values:
                    self.values[node, at] = self._node(node, at)
        for out in self.group.outputs:
            self._store(out)

    def _int(self, name: str, value: int) -> Value:
        self.args.append(Arg("int", None, value))
        return self.b.param(name, I64)

    def _mark(self, param: Value, value: int, pair: int = 2) -> None:
        """Tell the code of a GPU that a parameter is a multiple of 16, if it is (and, of a product, no outlier).

        Of windows, whose rows are rarely both read and written at such multiples, also that it is one of two elements.
        """
        if self.gpu and param.op is None:
            if value % 16 == 0 and (0 <= value < FAR_APART or self.contraction is None):
                self.multiples.append(param.name)
            elif value % pair == 0 and self.shifts:
                self.even.append(param.name)

    def _finish_args(self) -> None:
        if self.messages:
            self.b.param("errors", Type("i64", pointer=True))
            self.args.append(Arg("errors"))
        across = any(w.node.op.kind == "scan" and self.tile[w.axes[0]] is not None for w in self.walks)
        if across or self.attrs.keys() & {"spread", "split"} or (self.contraction is not None and not self.gpu):
            self.b.param("workspace", Type("i8", pointer=True))
            self.args.append(Arg("workspace"))

    def _pointer(self, node: Expr, offset: int) -> Value:
        key = (node, offset)
        found = self.pointers.get(key)
        if found is None:
            dtype, _ = memory_of(node)
            found = self.b.param(f"p{len(self.pointers)}", Type(dtypes.name(dtype), pointer=True))
            self.pointers[key] = found
            self._mark(found, gcd(self.alignment(node), offset * dtype.itemsize), 2 * dtype.itemsize)
            self.args.append(Arg("pointer", node, offset))
        return found

    def _coefficient(self, value: int) -> Value:
        if value in (0, 1, -1):
            return self.b.const(value)
        return self._int(f"s{len(self.args)}", value)

    def _where(self, axis: Axis) -> Value:
        """The axis's position: a scalar on the grid, a tile over its dim."""
        found = self.position.get(axis)
        if found is None:
            found = self.b.iota(self.names[axis])
            if self.tile[axis] is not None:
                found = self._op("add", found, self._start(axis))
            self.position[axis] = found
        return found

    def _start(self, axis: Axis) -> Value:
        if axis not in self.start:
            self.start[axis] = self.b.dim_start(self.names[axis])
        return self.start[axis]

    def _index(self, form: Index) -> Value:
        """The value of index arithmetic, a scalar or a tile."""
        total = self._coefficient(form.const)
        for atom, c in form.terms.items():
            if isinstance(atom, Axis):
                x = self._where(atom)
            elif isinstance(atom, Gathered):
                x = self._wrapped(atom)
            else:
                name = "floor_divide" if isinstance(atom, Quotient) else "remainder"
                x = self._op(name, self._index(atom.index), self._coefficient(atom.divisor))
            x = x if c == 1 else self._op("multiply", x, self._coefficient(c))
            total = x if total is self.b.const(0) else self._op("add", total, x)
        return total

    def _wrapped(self, atom: Gathered) -> Value:
        """A value of an index array, checked, with negative ones counted from the end."""
        b = self.b
        key = (atom.node, atom.index)
        wrapped = self.wrapped.get(key)
        if wrapped is None:
            node, at = strip_views(atom.node, atom.index)
            x = self._value(node, at)
            size, zero = self._coefficient(atom.size), b.const(0)
            negative = self._op("less", x, zero)
            x = self._op("where", negative, self._op("add", x, size), x)
            ok = self._op("logical_and", self._op("greater_equal", x, zero), self._op("less", x, size))
            self.messages.append(f"index out of bounds for an axis of size {atom.size}")
            b.check(ok, str(len(self.messages) - 1))
            wrapped = self._op("where", ok, x, zero)
            self.wrapped[key] = wrapped
        return wrapped

    def _op(self, name: str, *xs: Value, dtype: str | None = None) -> Value:
        """An elementwise op, with operands broadcast to their joint extents."""
        first = xs[0].type.extents
        if any(x.type.extents != first for x in xs):
            joint = self._joint(xs)
            xs = tuple(self._spread(x, joint) for x in xs)
        return self.b.op(name, *xs, dtype=dtype)

    def _joint(self, xs: Iterable[Value]) -> Extents:
        present = {e for x in xs for e in x.type.extents}
        return tuple(name for a in self.order if (name := self.names[a]) in present)

    def _spread(self, x: Value, extents: Extents) -> Value:
        if x.type.extents == extents:
            return x
        return self.b.broadcast(x, [extents.index(e) for e in x.type.extents], extents)

    def _value(self, node: Expr, at: At) -> Value:
        """A producer's value at an index: computed here, loaded, or an argument."""
        at = canonical(at)
        if node in self.group.nodes:
            if (node, at) not in self.values:  # an index array that a gather reads before its turn
                self.values[node, at] = self._node(node, at)
            return self.values[node, at]
        if node.op is E.SCALAR:
            at = ()
        found = self.values.get((node, at))
        if found is None:
            if node.op is E.SCALAR:
                found = self.b.param(f"c{len(self.args)}", Type(dtypes.name(node.dtype)))
                self.args.append(Arg("scalar", node))
            elif node.op is E.IOTA:
                found = self._index(self.forms["value", node, at])
            else:
                found = self._load(node, at)
            self.values[node, at] = found
        return found

    def _affine(self, form: Index, name: object = None) -> tuple[Value, list[Value], Extents] | None:
        """(offset, strides, extents) of an affine access; None if it has other atoms.

        Accesses of one `name` share their strides.
        """
        if not all(isinstance(t, Axis) for t in form.terms):
            return None
        b = self.b
        offset = b.const(0)
        for axis in (*self.grid, *self.order):
            c = form.terms.get(axis, 0)
            if c and (axis not in self.tile or self.tile[axis] is not None):
                start = self.position[axis] if axis not in self.tile else self._start(axis)
                offset = b.op("add", offset, b.op("multiply", start, self._stride_value(form, axis, c, name)))
        walked = [a for a in self.order if form.terms.get(a, 0)]
        strides = [self._stride_value(form, a, form.terms[a], name) for a in walked]
        return offset, strides, tuple(self.names[a] for a in walked)

    def _stride_value(self, form: Index, axis: Axis, c: int, name: object = None) -> Value:
        key = (id(form) if name is None else name, axis)
        if key not in self.coefficients:
            self.coefficients[key] = self._coefficient(c)
            self._mark(self.coefficients[key], c)
        return self.coefficients[key]

    def _overwritten(self) -> tuple[str, ...]:
        """Names of the parameters through which a write in place reads what it overwrites."""
        if self.group.root.op is not E.UPDATE:
            return ()
        base = self.group.root.inputs[0]
        memory = lambda x: x.attrs[0] if x.op is E.BUFFER else x
        return tuple([p.name for (x, _), p in self.pointers.items() if memory(x) is memory(base)])

    def _load(self, node: Expr, at: At) -> Value:
        b, form = self.b, self.forms["load", node, at]
        if (node, at) in self.shifts:
            origin, base, shifts = self.shifts[node, at]
            name = origin, base, frozenset(form.terms.items())
            affine = self._affine(form, name)
            assert affine is not None
            offset, strides, extents = affine
            for axis, n in shifts.items():
                step = self._stride_value(form, axis, form.terms[axis], name)
                offset = b.op("add", offset, b.op("multiply", step, b.const(n)))
            return b.load_view(self._pointer(origin, base), offset, strides, extents)
        affine = self._affine(form)
        if node.op is TRIPLES:
            assert affine is not None
            return self._load_triples(node, form.const, *affine)
        pointer = self._pointer(node, form.const)
        if affine is not None:
            offset, strides, extents = affine
            return b.load_view(pointer, offset, strides, extents)
        return self.b.load_ptr(pointer, self._index(Index(0, form.terms)))

    def _load_triples(self, node: Expr, start: int, offset: Value, strides: list[Value], extents: Extents) -> Value:
        """The elements of a TRIPLES."""
        b = self.b
        _, plane = triples_layout(node)
        *others, total = [
            b.cast(b.load_view(self._pointer(node, start + k * plane), offset, strides, extents), "f32")
            for k in range(3)
        ]
        for x in reversed(others):
            total = b.op("add", x, self._op("multiply", total, b.const(PART, "f32")))
        return self._op("multiply", total, b.const(1 / RAISED, "f32"))

    def _store_triples(self, out: Expr, form: Index, x: Value) -> None:
        """Split elements."""
        b = self.b
        _, plane = triples_layout(out)
        affine = self._affine(form)
        assert affine is not None
        offset, strides, extents = affine
        x = self._op("multiply", self._spread(x, extents), b.const(RAISED, "f32"))
        for k in range(3):
            part = b.cast(x, "bf16")
            b.store_view(part, self._pointer(out, form.const + k * plane), offset, strides)
            if k < 2:
                x = self._op("multiply", b.op("subtract", x, b.cast(part, "f32")), b.const(1 / PART, "f32"))

    def _node(self, node: Expr, at: At) -> Value:
        group, b, op = self.group, self.b, node.op
        producers = edges(group, node, at)
        if op is E.GATHER:
            return self._value(*producers[0])
        if op is E.SCATTER:
            return self._value(*producers[0])
        xs = self._operands(node, producers)
        if op.kind == "elementwise":
            dtype = dtypes.name(node.dtype)
            return b.cast(xs[0], dtype) if op.name == "cast" else self._op(op.name, *xs, dtype=dtype)
        if op in (COPY, TRIPLES, E.UPDATE):
            return xs[0]
        if op is E.DOT:
            assert self.contraction is not None
            m, _, n = self.contraction
            k = group.bound[node][0].find()
            names = [self.names.get(a) if a is not None else None for a in (m, k, n)]
            x = self._spread(xs[0], tuple(e for e in (names[0], names[1]) if e))
            y = self._spread(xs[1], tuple(e for e in (names[1], names[2]) if e))
            return b.dot(x, y, dtype=dtypes.name(node.dtype), precision="tf32" if node.attrs == "high" else None)
        walk = next((w for w in self.walks if w.node is node and w.at == at), None)
        if op.kind == "scan":
            if walk is None:
                return xs[0]
            x = self._spread(xs[0], self._joint_with(xs[0], walk.axes))
            (axis,) = walk.axes
            return b.scan(x, op.name, x.type.extents.index(self.names[axis]), across=self.tile[axis] is not None)
        assert walk is not None
        kind = _reduction(node).name
        x = self._spread(xs[0], self._joint_with(xs[0], walk.axes))
        dims = sorted(x.type.extents.index(self.names[a]) for a in walk.axes)
        if kind in ("argmax", "argmin"):
            position = self._index(self.forms["value", node, at])
            if not dims:
                return position
            return b.argreduce(x, self._spread(position, x.type.extents), kind, dims)
        return b.reduce(x, kind, dims) if dims else x

    def _operands(self, node: Expr, producers: list[tuple[Expr, At]]) -> list[Value]:
        literal: list[Value] = []
        if node.op.name == "power":
            exponent, _ = producers[1]
            if exponent.op is E.SCALAR and exponent.attrs in LITERAL_EXPONENTS:
                literal = [self.b.const(exponent.attrs.item(), dtypes.name(exponent.dtype))]
        return [self._value(p, i) for p, i in producers[: len(producers) - len(literal)]] + literal

    def _joint_with(self, x: Value, axes: Iterable[Axis]) -> Extents:
        present = {*x.type.extents, *(self.names[a] for a in axes)}
        return tuple(name for a in self.order if (name := self.names[a]) in present)

    def _store(self, out: Expr) -> None:
        b = self.b
        at = canonical(self.group.output_index[out])
        form = self.forms["store", out, at]
        value = self.values[out, at[:-1] if out.op is PARTIAL else at]
        if out.op is TRIPLES:
            self._store_triples(out, form, value)
            return
        pointer = self._pointer(out, form.const)
        affine = self._affine(form)
        if affine is None:
            index = self._index(Index(0, form.terms))
            extents = self._joint((value, index))
            value, index = self._spread(value, extents), self._spread(index, extents)
            combine = out.attrs if out.op is E.SCATTER and out.attrs in ("add", "maximum") else None
            b.store_ptr(value, pointer, index, combine=combine)
            return
        offset, strides, extents = affine
        if out.op is PARTIAL:
            block = self.grid_number[split_axis(self.group).find()]
            offset = b.op("add", offset, b.program_id(block))
        b.store_view(self._spread(value, extents), pointer, offset, strides)


def _strides(node: Expr) -> E.Shape:
    """Strides of a node's elements in memory."""
    if node.op is TRIPLES:
        return triples_layout(node)[0]
    return node.attrs[2] if node.op is E.BUFFER else contiguous_strides(node.shape)


def _reduction(node: Expr) -> Op:
    return node.attrs[0] if node.op is PARTIAL else node.op


#: From the only row of an operand to the next, which is not there: the copy engine wants a multiple of 16 bytes.
ROW_APART = 1 << 16
#: Strides of a product's operands that are too large for a tensor map, in elements.
FAR_APART = 1 << 36
#: Elements of rows that are long.
LONG = 256
