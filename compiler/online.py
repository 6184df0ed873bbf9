"""Softmax between two products as one walk over the keys, whatever it is spelled like.

A product over keys may share a kernel with the product that its first operand (the weights) is made of if one walk
over the keys computes it: with a running maximum of the scores, sums of exp(score - maximum) that are rescaled when
the maximum grows, and nothing else that has to be known before the walk ends.

The rule is an algebra of what lies between the two products, seen from the walk:

    Plain     known at its position: made of scores, masks, biases, positions
    Late      known when the walk has ended: made of maxima and sums over the keys
    Shifted   a Plain minus a Late
    Weight    exp(Plain - maximum), times a Plain, times a Late: what a sum over the keys may be taken of

exp of a Shifted is a Weight, a sum of Weights or of their products with values is Late, and so on; where no rule
applies the two products stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from . import dtypes
from . import expr as E
from .expr import Expr
from .group import At, Group, axes_of, canonical, edges
from .index import Axis, Index
from .policy import Policy

#: Nodes that a kernel of this kind may have between its products, and behind the second one until the sums meet it.
MOST_NODES = 128
MOST_BEHIND = 8


# -- what is computed where -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Read:
    """A node's value at an index, which does not depend on the walk's results."""

    node: Expr
    at: At


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operation; a cast if `name` is "cast"."""

    name: str
    dtype: str
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    dtype: str


@dataclass(frozen=True, slots=True)
class Of:
    """What is made of a term, in its dtype."""

    term: Term


class Maximum(Of):
    """The maximum of a term over the keys."""

    __slots__ = ()


class Pivot(Of):
    """What the scores are lowered by before `exp`: their maximum, or 0 where that is minus infinity."""

    __slots__ = ()


class Weights(Of):
    """exp(scores - Pivot)."""

    __slots__ = ()


class Sum(Of):
    """The sum over the keys of a term that is linear in Weights."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """exp(Pivot - top), where top is the scores' maximum: 1, but infinite where all scores are minus infinity.

    If top is that of what is scaled to be the scores, and the scale is negative, it is larger than 1.
    """

    scores: Term
    top: Term


@dataclass(frozen=True, slots=True)
class Product:
    """The sum over the keys of products of such a term with the values."""

    term: Term
    dtype: str


Term = Read | Apply | Number | Of | Unit | Product


def dtype_of(term: Term) -> str:
    """The dtype that a term is computed in."""
    match term:
        case Read(node, _):
            return wide(dtypes.name(node.dtype))
        case Apply(_, dtype, _) | Number(_, dtype) | Product(_, dtype):
            return dtype
        case Of(x) | Unit(x, _):
            return dtype_of(x)


def terms(term: Term) -> Iterator[Term]:
    """A term and what it is made of."""
    yield term
    match term:
        case Apply(_, _, args):
            for x in args:
                yield from terms(x)
        case Of(x) | Product(x, _):
            yield from terms(x)
        case Unit(x, top):
            yield from terms(x)
            yield from terms(top)


# -- what a node is to the walk ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Plain:
    term: Term
    #: Whether it is different from key to key.
    varies: bool


@dataclass(frozen=True, slots=True)
class Late:
    term: Term


@dataclass(frozen=True, slots=True)
class Shifted:
    """`term` - `late`."""

    term: Term
    late: Term


@dataclass(frozen=True, slots=True)
class Weight:
    """`term` * `times` / `over`; `plain` if it may also be taken as a Plain."""

    scores: Term
    term: Term
    times: Term | None = None
    over: Term | None = None
    plain: Plain | None = None


Form = Plain | Late | Shifted | Weight


class Refused(Exception):
    """Why the products stay apart."""


@dataclass(eq=False, slots=True)
class Online:
    """The nodes of a softmax between two products.

    `head` is the last one: the product over keys, or what divides it by the sums.
    """

    head: Expr
    product: Expr
    scores: Expr
    #: Which of the product's operands is the weights.
    side: int
    inside: set[Expr] = field(default_factory=set)

    def of(self, image: Mapping[Expr, Expr]) -> Online:
        """The same of nodes that others were made into; the scores may have become elementwise ones of a product."""
        inside = {image[n] for n in self.inside}
        scores = image[self.scores]
        while scores.op is not E.DOT:
            scores = scores.inputs[0]
            inside.add(scores)
        return Online(image[self.head], image[self.product], scores, self.side, inside)

    def columns(self, at: At) -> Index:
        """Of an index of the product, that along the values' features."""
        return at[-1 if self.side == 0 else -2]

    def bind(self, group: Group) -> Axis:
        """Let all reductions, and the product, walk along one axis, which is returned."""
        keys = Axis(self.product.inputs[0].shape[-1])
        for node in self.inside:
            if node.op.kind == "reduction":
                group.bound[node] = (keys,)
        group.bound[self.product] = (keys,)
        group.bound[self.scores] = (Axis(self.scores.inputs[0].shape[-1]),)
        return keys


def wide(dtype: str) -> str:
    """What is computed in place of a dtype: 16-bit floats are rounded only where a product takes them."""
    return "f32" if dtype in ("f16", "bf16") else dtype


class Analysis:
    """The forms of the nodes of an `Online` at their indices in a group, whose walks are bound."""

    def __init__(self, online: Online, group: Group, keys: Axis) -> None:
        self.online = online
        self.group = group
        self.keys = keys.find()
        self.forms: dict[tuple[Expr, At], Form] = {}
        #: The index of the scores' product, and what the weights are exponentials of.
        self.scores_at: At | None = None
        self.product_at: At | None = None
        self.scores: Term | None = None
        #: What the product takes of the weights.
        self.weights: Term | None = None

    def head(self, at: At) -> Term:
        """What the last node is made of."""
        found = self.form(self.online.head, at)
        if not isinstance(found, Late):
            raise Refused("its result is not known when the walk over the keys has ended")
        return found.term

    def form(self, node: Expr, at: At) -> Form:
        at = canonical(at)
        found = self.forms.get((node, at))
        if found is None:
            found = self.forms[node, at] = self._form(node, at)
        return found

    def _form(self, node: Expr, at: At) -> Form:
        online = self.online
        varies = self.keys in axes_of(at)
        if node not in online.inside:
            return Plain(Read(node, at), varies)
        if node is online.scores:
            self._meet_scores(at)
            return Plain(Read(node, at), True)
        producers = edges(self.group, node, at)
        if node is online.product:
            return self._product(node, at, producers)
        if node.op.kind == "reduction":
            if varies:
                raise Refused("a reduction across the queries")
            return self._reduction(node, self.form(*producers[0]))
        return self._elementwise(node, at, [self.form(*p) for p in producers])

    def _meet_scores(self, at: At) -> None:
        if self.scores_at not in (None, at):
            raise Refused("the scores are read at several indices")
        self.scores_at = at
        *batch, rows, columns = (i.axes() for i in at)
        along = [self.keys in axes for axes in (rows, columns)]
        if any(self.keys in axes for axes in batch) or all(along) or (self.keys.size > 1 and not any(along)):
            raise Refused("the scores are read along something else than the keys")
        index = at[-2] if along[0] else at[-1]
        if self.keys.size > 1 and index.single() is not self.keys:
            raise Refused("the keys are read at other indices")

    def _product(self, node: Expr, at: At, producers: list[tuple[Expr, At]]) -> Late:
        if self.product_at not in (None, at):
            raise Refused("the product is read at several indices")
        self.product_at = at
        form = self.form(*producers[self.online.side])
        if not isinstance(form, Weight):
            raise Refused("the product's operand is no exponential of scores")
        self._settle(form)
        if self.weights not in (None, form.term):
            raise Refused("several products")
        self.weights = form.term
        return Late(_scaled(Product(form.term, wide(dtypes.name(node.dtype))), form))

    def _settle(self, form: Weight) -> None:
        if self.scores not in (None, form.scores):
            raise Refused("exponentials of different scores")
        self.scores = form.scores

    def _reduction(self, node: Expr, x: Form) -> Late:
        if node.op.name == "max":
            if isinstance(x, Weight) and x.plain is not None:
                x = x.plain
            if isinstance(x, Plain):
                return Late(Maximum(x.term))
        if node.op.name == "sum" and isinstance(x, Weight):
            self._settle(x)
            return Late(_scaled(Sum(x.term), x))
        raise Refused(f"{node.op.name} over the keys of something else than exponentials of scores")

    def _elementwise(self, node: Expr, at: At, xs: list[Form]) -> Form:
        name, dtype = node.op.name, wide(dtypes.name(node.dtype))
        plain = None
        if all(isinstance(x, Plain) or (isinstance(x, Weight) and x.plain is not None) for x in xs):
            plain = Plain(Read(node, at), True)
            if name == "exp":
                x = xs[0].plain if isinstance(xs[0], Weight) else xs[0]
                assert isinstance(x, Plain)
                factor = Apply("exp", dtype, (Pivot(x.term),))
                return Weight(x.term, Weights(x.term), factor, None, plain)
            if all(isinstance(x, Plain) for x in xs):
                return plain
        elif all(isinstance(x, Late) or (isinstance(x, Plain) and not x.varies) for x in xs):
            return Late(_quotient(name, dtype, tuple([x.term for x in xs])))
        found = self._weighted(name, dtype, xs) or self._shifted(name, dtype, xs) or plain
        if found is None:
            raise Refused(f"{name} of what is known only after a walk over the keys")
        return replace(found, plain=plain) if isinstance(found, Weight) else found

    def _weighted(self, name: str, dtype: str, xs: list[Form]) -> Form | None:
        """What stays linear in the weights."""
        match name, xs:
            case "exp", [Shifted(term, late)]:
                # exp(term - late) = exp(term - pivot) * exp(pivot - late)
                top = _is_top(late, term)
                factor = Unit(term, late) if top else _exp_of_difference(Pivot(term), late, dtype)
                return Weight(term, Weights(term), factor)
            case "cast", [Weight() as w] if dtype in dtypes.FLOAT:
                return w if dtype == dtype_of(w.term) else replace(w, term=Apply(name, dtype, (w.term,)))
            case "negative", [Weight() as w]:
                return replace(w, term=Apply(name, dtype, (w.term,)))
            case ("multiply", [Weight() as w, Plain(x, _)]) | ("multiply", [Plain(x, _), Weight() as w]):
                return replace(w, term=Apply(name, dtype, (w.term, x)))
            case "divide", [Weight() as w, Plain(x, _)]:
                return replace(w, term=Apply(name, dtype, (w.term, x)))
            case ("multiply", [Weight() as w, Late(x)]) | ("multiply", [Late(x), Weight() as w]):
                return replace(w, times=x if w.times is None else Apply(name, dtype, (w.times, x)))
            case "divide", [Weight() as w, Late(x)]:
                if w.over is None:
                    return replace(w, over=x)
                times = w.times or Number(1, dtype)
                return replace(w, times=Apply(name, dtype, (times, w.over)), over=x)
        return None

    def _shifted(self, name: str, dtype: str, xs: list[Form]) -> Form | None:
        """What stays a difference of something known at its position and something known at the end."""
        apply = lambda name, *args: Apply(name, dtype, args)
        match name, xs:
            case "subtract", [Plain(x, _), Late(late)]:
                return Shifted(x, late)
            case ("add", [Plain(x, _), Late(late)]) | ("add", [Late(late), Plain(x, _)]):
                return Shifted(x, apply("negative", late))
            case ("add", [Shifted(x, late), Plain(y, _)]) | ("add", [Plain(y, _), Shifted(x, late)]):
                return Shifted(apply("add", x, y), late)
            case "subtract", [Shifted(x, late), Plain(y, _)]:
                return Shifted(apply("subtract", x, y), late)
            case "subtract", [Shifted(x, late), Late(y)]:
                return Shifted(x, apply("add", late, y))
            case ("add", [Shifted(x, late), Late(y)]) | ("add", [Late(y), Shifted(x, late)]):
                return Shifted(x, apply("subtract", late, y))
            case ("multiply" | "divide", [Shifted(x, late), Plain(y, False)]):
                return Shifted(apply(name, x, y), apply(name, late, y))
            case "multiply", [Plain(y, False), Shifted(x, late)]:
                return Shifted(apply(name, y, x), apply(name, y, late))
            case "cast", [Shifted(x, late)] if dtype in dtypes.FLOAT:
                return Shifted(apply(name, x), apply(name, late))
        return None


def _is_top(late: Term, scores: Term) -> bool:
    """Whether something is the maximum of scores, or of what they are scaled from, scaled like them."""
    match late, scores:
        case Apply("multiply" | "divide" as f, _, (a, b)), Apply(g, _, (x, y)) if f == g:
            return (a == Maximum(x) and b == y) or (f == "multiply" and a == x and b == Maximum(y))
    return late == Maximum(scores)


def _exp_of_difference(x: Term, y: Term, dtype: str) -> Term:
    return Apply("exp", dtype, (Apply("subtract", dtype, (x, y)),))


def _scaled(total: Sum | Product, w: Weight) -> Term:
    """A sum over the keys of `w`, whose factors that are known late were left out."""
    dtype = dtype_of(total)
    if w.over is None:
        return total if w.times is None else Apply("multiply", dtype, (total, w.times))
    if w.times is None:
        return Apply("divide", dtype, (total, w.over))
    if isinstance(w.times, Unit):
        return _quotient("divide", dtype, (Apply("multiply", dtype, (total, w.times)), w.over))
    return Apply("multiply", dtype, (total, Apply("divide", dtype, (w.times, w.over))))


def _quotient(name: str, dtype: str, args: tuple[Term, ...]) -> Term:
    """An operation; a quotient of two sums without the unit that both are multiplied by."""
    if name == "cast":
        (x,) = args
        if dtype_of(x) == dtype:
            return x
    if name == "divide":
        match args:
            case (Apply("multiply", _, (x, Unit() as a)), Apply("multiply", _, (Sum() as y, Unit() as b))) if a == b:
                # Where the unit is infinite the sum is 0, and the quotient a NaN in any case.
                args = x, y
    return Apply(name, dtype, args)


# -- finding it in a graph --------------------------------------------------------------------------------------------
def find(
    recorded: list[Expr], roots: Iterable[Expr], policy: Policy, apart: Mapping[Expr, str]
) -> tuple[dict[Expr, Online], dict[Expr, str]]:
    """The products of a recorded graph that walk once over a softmax of other products.

    Parameters
    ----------
    recorded : list of Expr
        Producers first.
    roots : iterable of Expr
        What was asked for.
    policy : Policy
    apart : mapping
        Products that are not taken, with the reasons.

    Returns
    -------
    found : dict
        By the last node.
    refused : dict
        Why not, by the product, of those between which there is something like a softmax.
    """
    found: dict[Expr, Online] = {}
    refused = dict(apart)
    dots = [n for n in recorded if n.op is E.DOT]
    if len(dots) < 2:
        return found, refused
    readers: dict[Expr, set[Expr]] = {}
    for node in recorded:
        if node.op is not E.VIEW:
            for x in node.inputs:
                readers.setdefault(base(x), set()).add(node)
    asked = {base(x) for x in roots}
    taken: set[Expr] = set()
    for product in dots:
        for side in (0, 1):
            scores = _scores_behind(product.inputs[side])
            if scores is None or scores in taken or product in taken or product in apart:
                continue
            try:
                online = _between(product, scores, side, readers, asked)
                if online is None:
                    continue
                _check(online, policy)
            except Refused as reason:
                refused[product] = str(reason)
                continue
            found[online.head] = online
            taken |= online.inside
    return found, refused


def base(x: Expr) -> Expr:
    """What a node is a view of."""
    while x.op is E.VIEW:
        x = x.inputs[0]
    return x


def _scores_behind(weights: Expr) -> Expr | None:
    """The one product that weights are made of by way of exponentials and reductions."""
    products: set[Expr] = set()
    seen: set[Expr] = set()
    names: set[str] = set()
    stack = [weights]
    while stack and len(seen) <= MOST_NODES:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        names.add(node.op.name)
        if node.op is E.DOT:
            products.add(node)
        elif node.op is E.VIEW or node.op.kind in ("elementwise", "reduction"):
            stack += node.inputs
    return products.pop() if len(products) == 1 and "exp" in names and not stack else None


def _between(product: Expr, scores: Expr, side: int, readers: dict[Expr, set[Expr]], asked: set[Expr]) -> Online | None:
    """The nodes from the scores to where all that is made of them has met; None if they are not reduced."""
    head = product
    for _ in range(MOST_BEHIND):
        inside = _dependents(head, scores, product)
        if not any(n.op.kind == "reduction" for n in inside) and head is not product:
            return None
        known = asked & (inside - {head})
        leaks = {r for n in inside if n is not head for r in readers[n]} - inside
        if known:
            if not any(n.op.kind == "reduction" for n in inside):
                return None
            raise Refused(f"{_spell(known.pop())} between the products is asked for")
        if not leaks and any(n.op.kind == "reduction" for n in inside):
            return Online(head, product, scores, side, inside)
        behind = readers.get(head, set())
        if len(behind) != 1 or head in asked:
            break
        (head,) = behind
        if head.op.kind != "elementwise" or head.size != product.size:
            break
    if any(n.op.kind == "reduction" for n in _dependents(product, scores, product)):
        raise Refused("the scores, or what is made of them, are read by something else, too")
    return None


def _dependents(head: Expr, scores: Expr, product: Expr) -> set[Expr]:
    """What lies between the scores and the head, both of them included."""
    depends: dict[Expr, bool] = {scores: True}
    stack = [head]
    while stack:
        node = stack[-1]
        if node in depends:
            stack.pop()
            continue
        walked = node.op is E.VIEW or node.op.kind in ("elementwise", "reduction") or node is product
        inputs = node.inputs if walked else ()
        if waiting := [x for x in inputs if x not in depends]:
            stack += waiting
        else:
            depends[node] = any(depends[x] for x in inputs)
            stack.pop()
    return {n for n, yes in depends.items() if yes and n.op is not E.VIEW}


def _check(online: Online, policy: Policy) -> None:
    """Raise Refused unless the rule and the policy allow it."""
    product, scores = online.product, online.scores
    if len(online.inside) > MOST_NODES:
        raise Refused("the kernel would be too large")
    if base(product.inputs[1 - online.side]) in online.inside:
        raise Refused("the values are made of the scores, too")
    if policy.target == "cpu" and product.shape[-2 if online.side == 0 else -1] == 1:
        raise Refused("one query needs no product")
    if 0 in product.shape or 0 in scores.shape or 0 in (product.inputs[0].shape[-1], scores.inputs[0].shape[-1]):
        raise Refused("no elements")
    for node in online.inside:
        if node.op.kind == "reduction":
            x = node.inputs[0]
            if len(node.attrs) != 1 or x.shape[node.attrs[0]] != product.inputs[0].shape[-1]:
                raise Refused("a reduction over something else than the keys")
    group = Group([online.head])
    keys = online.bind(group)
    at = tuple([Index.axis(Axis(n)) for n in online.head.shape])
    analysis = Analysis(online, group, keys)
    analysis.head(at)
    if analysis.product_at is None or analysis.scores_at is None:
        raise Refused("the product is not part of the result")
    values = product.shape[-1 if online.side == 0 else -2]
    if not policy.takes_online(product, scores, values):
        raise Refused("the target has no kernel for such types or heads")


def _spell(node: Expr) -> str:
    return f"{node.op.name} {node.dtype}[{', '.join(map(str, node.shape))}]"
