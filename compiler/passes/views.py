"""Accesses through computed positions become views, where the positions are affine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign
from typing import NamedTuple

from ..builder import constant
from ..ir import BOOL, I64, Block, Kernel, Op, Type, Value
from .rewrite import Rewriter, copied

#: Dtypes of positions.  Sums and products of signed integers are taken not to overflow.
_SIGNED = ("i32", "i64")
_COMPARED = {"less": 0, "less_equal": 1, "greater": 0, "greater_equal": 1}


def views(kernel: Kernel) -> Kernel:
    """Make load_ptr and store_ptr of affine positions load_view and store_view.

    A position is affine if it is a scalar plus a scalar for each extent times the place along it.  A mask must be a
    conjunction of upper bounds of places, and of scalar conditions.  Tiles of positions that a loop carries become
    scalars, if all that changes from trip to trip is where they begin.  `where(mask, load, c)` of a constant c and the
    load's own mask goes into the load.

    Positions that are wrapped around an end, or replaced where a mask does not hold, are affine in programs whose tiles
    do not meet that end, and so are those with a lower bound in programs above it: loops and accesses that depend on it
    are made twice, under a condition.

    Keeps every value that is loaded or stored, unless the arithmetic of positions overflows.
    """
    return _Views().kernel(kernel)


class Affine(NamedTuple):
    """An integer tile: `base` plus, for each extent, its step (None: 0) times the place along it; i64 scalars.

    It is so where all of the scalar conditions `given` hold.
    """

    base: Value
    steps: tuple[Value | None, ...]
    given: frozenset[Value] = frozenset()


class Inside(NamedTuple):
    """A mask: places below `limits` (None: all) where the scalar `guard` (None: True) holds; `given` is Affine's."""

    limits: tuple[Value | None, ...]
    guard: Value | None
    given: frozenset[Value] = frozenset()


class _Views(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        #: What is known of values of the successor.
        self.affine: dict[Value, Affine] = {}
        self.inside: dict[Value, Inside] = {}
        #: Masks of loads that were made views.
        self.masks: dict[Value, Value] = {}
        #: Whether forms may be such that hold under conditions only, and the conditions that accesses relied on.
        self.hopes = True
        self.relied: set[Value] = set()
        #: Conditions that hold in the loop that is being made, and an order of all.
        self.assumed: frozenset[Value] = frozenset()
        self.numbered: dict[Value, int] = {}
        #: Scalars that were made: by operation and operands, visible in the present block.
        self.made: dict[tuple[object, ...], Value] = {}

    # -- making scalars -----------------------------------------------------------------------------------------------
    def block(self, block: Block) -> Block:
        outer = self.made
        self.made = dict(outer)
        made = super().block(block)
        self.made = outer
        return made

    def emit(self, name: str, operands: tuple[Value, ...], type: Type, **attrs: object) -> Value:
        key = (name, operands, type, tuple(attrs.items()))
        if key not in self.made:
            op = Op(name, operands, (type,), attrs)
            self.out.append(op)
            self.made[key] = op.result
        return self.made[key]

    def number(self, value: int) -> Value:
        return self.emit("const", (), I64, value=value)

    def wide(self, x: Value) -> Value:
        if x.op is not None and x.op.name == "const":
            return self.number(x.op.attrs["value"])
        return x if x.type == I64 else self.emit("cast", (x,), I64)

    def scalar(self, name: str, a: Value, b: Value) -> Value:
        """a + b, a - b, a * b or minimum(a, b) of i64 scalars."""
        x, y = _const(a), _const(b)
        if x is not None and y is not None:
            return self.number({"add": x + y, "subtract": x - y, "multiply": x * y, "minimum": min(x, y)}[name])
        neutral = 1 if name == "multiply" else 0
        if name != "minimum":
            if y == neutral:
                return a
            if x == neutral and name != "subtract":
                return b
            if name == "multiply" and 0 in (x, y):
                return self.number(0)
        return a if name == "minimum" and a is b else self.emit(name, (a, b), I64)

    def sum(self, name: str, a: Value | None, b: Value | None) -> Value | None:
        """a + b or a - b, where None is 0."""
        if b is None:
            return a
        if a is None:
            return b if name == "add" else self.scalar("subtract", self.number(0), b)
        found = self.scalar(name, a, b)
        return None if _const(found) == 0 else found

    # -- what values are ----------------------------------------------------------------------------------------------
    def form(self, x: Value) -> Affine | None:
        if x.type.dtype not in _SIGNED or x.type.pointer:
            return None
        found = Affine(self.wide(x), ()) if not x.type.extents else self.affine.get(x)
        return found if found is None or self.hopes or not found.given else None

    def bounded(self, x: Value) -> Inside | None:
        found = self.inside.get(x)
        return found if found is None or self.hopes or not found.given else None

    def learn(self, op: Op, made: Value) -> None:
        """Note what an op of the successor makes of places."""
        x = made.op.operands if made.op is not None else ()
        if made.type.dtype == "bool" and made.type.extents:
            found = self.mask(op.name, x, made)
            if found is not None:
                self.inside[made] = found
        elif made.type.dtype in _SIGNED and made.type.extents:
            form = self.position(op.name, x, made)
            if form is not None:
                # Along an extent of 1 nothing varies.
                steps = [None if e == 1 else s for s, e in zip(form.steps, made.type.extents, strict=True)]
                self.affine[made] = Affine(form.base, tuple(steps), form.given)

    def position(self, name: str, x: Sequence[Value], made: Value) -> Affine | None:
        if name == "iota":
            return Affine(self.number(0), (self.number(1),))
        if name == "where":
            return self.clipped(x)
        forms = [self.form(v) for v in x]
        if not forms or None in forms:
            return None
        a, b = forms[0], forms[-1]
        assert a is not None and b is not None
        given = a.given | b.given
        match name:
            case "hint" if made.op is not None and "multiple" in made.op.attrs and _is_read(a.base):
                multiple = max(n & -n for n in made.op.attrs["multiple"])
                return Affine(self.emit("hint", (a.base,), I64, multiple=(multiple,)), a.steps, given)
            case "cast" | "positive" | "hint":
                return a
            case "broadcast" | "trans" | "reshape":
                dims = moved(name, x[0], made)
                return None if dims is None else Affine(a.base, spread(a.steps, dims, x[0], made), given)
            case "add" | "subtract":
                steps = [self.sum(name, s, t) for s, t in zip(a.steps, b.steps, strict=True)]
                return Affine(self.scalar(name, a.base, b.base), tuple(steps), given)
            case "fmod" | "remainder":
                return self.wrapped(a, b, made.type.extents)
            case "multiply":
                if any(a.steps):
                    a, b = b, a
                if any(a.steps):
                    return None
                steps = [None if s is None else self.scalar("multiply", s, a.base) for s in b.steps]
                return Affine(self.scalar("multiply", a.base, b.base), tuple(steps), given)
        return None

    def wrapped(self, x: Affine, by: Affine, extents: tuple[int | str, ...]) -> Affine | None:
        """x % by in programs where nothing is wrapped around but the beginning."""
        along = [k for k, s in enumerate(x.steps) if s is not None]
        if not self.hopes or any(by.steps) or len(along) != 1 or _const(x.steps[along[0]]) != 1:
            return None
        extent = extents[along[0]]
        if not isinstance(extent, int):
            return None
        base = self.emit("fmod", (x.base, by.base), I64)
        last = self.scalar("add", base, self.number(extent))
        fits = self.emit("less_equal", (last, by.base), BOOL)
        positive = self.emit("less_equal", (self.number(0), base), BOOL)
        condition = self.emit("logical_and", (fits, positive), BOOL)
        return Affine(base, x.steps, x.given | by.given | {condition})

    def clipped(self, x: Sequence[Value]) -> Affine | None:
        """where(mask, x, y) in programs where all of the mask holds."""
        inside, form = self.bounded(x[0]), self.form(x[1])
        if not self.hopes or inside is None or form is None:
            return None
        conditions = [
            self.emit("less_equal", (self.number(e), limit), BOOL)
            for limit, e in zip(inside.limits, x[0].type.extents, strict=True)
            if limit is not None and isinstance(e, int)
        ]
        conditions += [] if inside.guard is None else [inside.guard]
        return Affine(form.base, form.steps, form.given | inside.given | frozenset(conditions))

    def mask(self, name: str, x: Sequence[Value], made: Value) -> Inside | None:
        if name in ("broadcast", "trans", "reshape"):
            dims = moved(name, x[0], made)
            if dims is None:
                return None
            if not x[0].type.extents:
                return Inside((None,) * len(made.type.extents), x[0])
            inside = self.bounded(x[0])
            if inside is None:
                return None
            return Inside(spread(inside.limits, dims, x[0], made), inside.guard, inside.given)
        if name in ("logical_and", "bitwise_and"):
            a, b = (self.bounded(v) for v in x)
            return None if a is None or b is None else self.both(a, b)
        return self.comparison(name, x) if name in _COMPARED else None

    def both(self, a: Inside, b: Inside) -> Inside:
        def joined(name: str, type: Type) -> Callable[[Value | None, Value | None], Value | None]:
            def join(s: Value | None, t: Value | None) -> Value | None:
                if s is None or t is None:
                    return t if s is None else s
                return self.scalar(name, s, t) if type == I64 else self.emit(name, (s, t), type)

            return join

        least = joined("minimum", I64)
        limits = [least(s, t) for s, t in zip(a.limits, b.limits, strict=True)]
        return Inside(tuple(limits), joined("logical_and", BOOL)(a.guard, b.guard), a.given | b.given)

    def comparison(self, name: str, x: Sequence[Value]) -> Inside | None:
        """The mask of x0 < x1, or like it."""
        if name.startswith("greater"):
            x = x[::-1]
        low, high = (self.form(v) for v in x)
        if low is None or high is None:
            return None
        steps = [self.sum("subtract", s, t) for s, t in zip(low.steps, high.steps, strict=True)]
        along = [k for k, s in enumerate(steps) if s is not None]
        limit = self.scalar("add", self.scalar("subtract", high.base, low.base), self.number(_COMPARED[name]))
        given = low.given | high.given
        if not along:
            return Inside((None,) * len(steps), self.emit("less", (self.number(0), limit), BOOL), given)
        step = _const(steps[along[0]])
        if self.hopes and len(along) == 1 and step is not None and step < 0:
            # A lower bound, which all places are above where the first one is.
            first = self.emit("less", (self.number(0), limit), BOOL)
            return Inside((None,) * len(steps), None, given | {first})
        if len(along) > 1 or step != 1:
            return None
        return Inside(tuple([limit if k == along[0] else None for k in range(len(steps))]), None, given)

    # -- ops ----------------------------------------------------------------------------------------------------------
    def op(self, op: Op) -> None:
        match op.name:
            case "for":
                self.loop(op)
            case "load_ptr" | "store_ptr":
                self.access(op)
            case "where" if self.is_filled(op):
                self.fill(op)
            case _:
                super().op(op)
                for result in op.results:
                    made = self.replaced.get(result, result)
                    if not op.regions:
                        self.learn(op, made)

    def access(self, op: Op) -> None:
        operands = self.operands(op)
        made = self.view(op, operands)
        if made is None:
            return super().op(op)
        op_, given = made
        if not given or given <= self.assumed:
            self.relied |= given
            self.out.append(op_)
            self.replace(op, op_.results)
            if op.name == "load_ptr" and len(operands) > 2:
                self.masks[op_.result] = operands[2]
            return None
        other = super().rebuilt(op)
        regions = tuple([
            Block((), [o, Op("yield", o.results, (), {}, (), op.line)])
            for o in (op_, other if other is not op else Op(op.name, operands, _types(op), op.attrs, (), op.line))
        ])  # fmt: skip
        branch = Op("if", (self.all_of(given),), _types(op), {}, regions, op.line)
        self.out.append(branch)
        self.replace(op, branch.results)
        return None

    def all_of(self, conditions: frozenset[Value]) -> Value:
        first, *rest = sorted(conditions, key=lambda v: self.numbered.setdefault(v, len(self.numbered)))
        for v in rest:
            first = self.emit("logical_and", (first, v), BOOL)
        return first

    def view(self, op: Op, operands: tuple[Value, ...]) -> tuple[Op, frozenset[Value]] | None:
        """The access as a view, and the conditions under which it is one."""
        load = op.name == "load_ptr"
        pointer, index, *mask = operands if load else operands[1:]
        extents = index.type.extents
        form = self.form(index) if extents else None
        inside = self.bounded(mask[0]) if mask else None
        if (
            form is None
            or (mask and inside is None)
            or not {"combine", "volatile"}.isdisjoint(op.attrs)
            or any(isinstance(e, str) for e in extents)
        ):
            return None
        steps = [self.number(0) if s is None else s for s in form.steps]
        if not load and any(_const(s) == 0 and e != 1 for s, e in zip(steps, extents, strict=True)):
            return None
        attrs = {k: v for k, v in op.attrs.items() if k != "other"}
        bounds: list[Value] = []
        given = form.given
        if inside is not None:
            given |= inside.given
            attrs["bounded"] = True
            if load:
                attrs["other"] = op.attrs.get("other", constant(0, pointer.type.dtype))
            bounds = self.bounds(inside, extents)
        leading = () if load else operands[:1]
        name = "load_view" if load else "store_view"
        made = Op(name, (*leading, pointer, form.base, *steps, *bounds), _types(op), attrs, (), op.line)
        return made, given

    def bounds(self, inside: Inside, extents: tuple[int | str, ...]) -> list[Value]:
        limits = [
            self.number(int(e)) if limit is None else limit for limit, e in zip(inside.limits, extents, strict=True)
        ]
        if inside.guard is not None:
            limits[0] = self.emit("where", (inside.guard, limits[0], self.number(0)), I64)
        return limits

    def is_filled(self, op: Op) -> bool:
        """Whether an op puts a constant where a load's mask does not hold."""
        mask, load, other = self.operands(op)
        return self.masks.get(load) is mask and _filler(other) is not None

    def fill(self, op: Op) -> None:
        _, load, other = self.operands(op)
        assert load.op is not None
        attrs = load.op.attrs | {"other": _filler(other)}
        made = Op("load_view", load.op.operands, (load.type,), attrs, (), load.op.line)
        self.out.append(made)
        self.replace(op, made.results)

    # -- loops --------------------------------------------------------------------------------------------------------
    def loop(self, op: Op) -> None:
        """A loop that carries, of as many tiles of positions as it can, only where they begin."""
        made, tiles, given = self.best(op)
        if not given:
            self.out += [*made]
            self.replaced.update(zip(op.results, tiles, strict=True))
            return
        # Under other conditions the loop stays as it is.
        hopes, self.hopes = self.hopes, False
        outer, scope, self.out, self.made = self.out, self.made, [], dict(self.made)
        assumed, self.assumed = self.assumed, frozenset()
        plain, others, _ = self.best(op)
        plain, others = copied(plain, others)
        self.out, self.made, self.hopes, self.assumed = outer, scope, hopes, assumed
        regions = tuple([
            Block((), [*ops, Op("yield", tuple(values), (), {}, (), op.line)])
            for ops, values in ((made, tiles), (plain, others))
        ])  # fmt: skip
        branch = Op("if", (self.all_of(given),), _types(op), {}, regions, op.line)
        self.out.append(branch)
        self.replace(op, branch.results)

    def best(self, op: Op) -> tuple[list[Op], list[Value], frozenset[Value]]:
        """The loop with what goes before and after it, its results, and the conditions under which it is right."""
        outer, scope, self.out, self.made = self.out, self.made, [], dict(self.made)
        operands = self.operands(op)
        inits = operands[3:]
        forms = {k: f for k, v in enumerate(inits) if v.type.extents and (f := self.form(v)) is not None}
        # Conditions of what is known before the loop can be asked before it.
        known = frozenset().union(*(f.given for f in (*self.affine.values(), *self.inside.values())))
        relied, self.relied = self.relied, set()
        assumed, self.assumed = self.assumed, self.assumed | (known if self.hopes else frozenset())
        while True:
            start = len(self.out)
            made, wrong = self.attempt(op, operands, forms)
            if not wrong:
                break
            del self.out[start:]
            self.relied.clear()
            forms = {k: f for k, f in forms.items() if k not in wrong}
        given = frozenset(self.relied).union(*(f.given for f in forms.values())) - assumed
        self.relied, self.assumed = relied | set(given & assumed), assumed
        self.out.append(made)
        tiles = [
            self.tile(Affine(new, forms[k].steps), op.results[k].type) if k in forms else new
            for k, new in enumerate(made.results)
        ]
        found, self.out, self.made = self.out, outer, scope
        return found, tiles, given

    def attempt(self, op: Op, operands: tuple[Value, ...], forms: dict[int, Affine]) -> tuple[Op, set[int]]:
        """The loop where the tiles of `forms` are carried as scalars, and for which of them that is wrong."""
        (body,) = op.regions
        args = [Value(I64 if k - 1 in forms else a.type) for k, a in enumerate(body.args)]
        outer, scope, self.out, self.made = self.out, self.made, [], dict(self.made)
        for k, (old, new) in enumerate(zip(body.args, args, strict=True)):
            known = forms.get(k - 1)
            self.replaced[old] = new if known is None else self.tile(Affine(new, known.steps, known.given), old.type)
        for inner in body.ops[:-1]:
            self.op(inner)
        last = body.ops[-1]
        yielded, wrong = list(self.operands(last)), set[int]()
        for k, known in forms.items():
            found = self.form(yielded[k])
            if found is None or not all(map(_same, found.steps, known.steps)):
                wrong.add(k)
            else:
                yielded[k] = found.base
        self.out.append(Op(last.name, tuple(yielded), (), last.attrs, (), last.line))
        region = Block(tuple(args), self.out)
        self.out, self.made = outer, scope
        starts = [forms[k].base if k in forms else v for k, v in enumerate(operands[3:])]
        types = tuple([I64 if k in forms else v.type for k, v in enumerate(op.results)])
        return Op("for", (*operands[:3], *starts), types, op.attrs, (region,), op.line), wrong

    def tile(self, form: Affine, type: Type) -> Value:
        """An affine tile, written out."""
        found = self.emit("broadcast", (form.base,), Type("i64", type.extents), dims=())
        for k, step in enumerate(form.steps):
            if step is not None:
                row = Type("i64", type.extents[k : k + 1])
                places = self.emit("iota", (), row)
                if _const(step) != 1:
                    places = self.emit("multiply", (places, self.emit("broadcast", (step,), row, dims=())), row)
                if len(type.extents) > 1:
                    places = self.emit("broadcast", (places,), found.type, dims=(k,))
                found = self.emit("add", (found, places), found.type)
        if type.dtype != "i64":
            found = self.emit("cast", (found,), type)
        self.affine[found] = form
        return found


def _types(op: Op) -> tuple[Type, ...]:
    return tuple([v.type for v in op.results])


def _is_read(x: Value) -> bool:
    """Whether a scalar depends on memory, so that nothing is known of it but what hints say."""
    return x.op is not None and (x.op.name == "load_ptr" or any(map(_is_read, x.op.operands)))


def _const(x: Value | None) -> int | None:
    return x.op.attrs["value"] if x is not None and x.op is not None and x.op.name == "const" else None


def _same(a: Value | None, b: Value | None) -> bool:
    return a is b or (_const(a) is not None and _const(a) == _const(b))


def _filler(x: Value) -> int | float | bool | None:
    """The constant that all elements of a tile are; not -0.0, which loads take for 0."""
    while x.op is not None and x.op.name == "broadcast":
        (x,) = x.op.operands
    if x.op is None or x.op.name != "const" or isinstance(x.op.attrs["value"], complex):
        return None
    value = x.op.attrs["value"]
    return None if value == 0 and copysign(1, value) < 0 else value


def moved(name: str, x: Value, made: Value) -> tuple[int, ...] | None:
    """Which extent of the result each extent of a moved tile becomes; one of 1 that goes away becomes -1."""
    op = made.op
    assert op is not None
    if name == "broadcast":
        return op.attrs["dims"]
    if name == "trans":
        perm = op.attrs["perm"]
        return tuple([perm.index(k) for k in range(len(perm))])
    dims: list[int] = []
    following = 0
    for extent in x.type.extents:
        if extent == 1:
            dims.append(-1)
            continue
        while following < len(made.type.extents) and made.type.extents[following] == 1:
            following += 1
        if following == len(made.type.extents) or made.type.extents[following] != extent:
            return None
        dims.append(following)
        following += 1
    return tuple(dims)


def spread(given: Sequence[Value | None], dims: Sequence[int], x: Value, made: Value) -> tuple[Value | None, ...]:
    """What is known along each extent of a moved tile; along an extent of 1 that is repeated nothing varies."""
    found: list[Value | None] = [None] * len(made.type.extents)
    for known, dim, extent in zip(given, dims, x.type.extents, strict=True):
        if dim >= 0 and extent == made.type.extents[dim]:
            found[dim] = known
    return tuple(found)
