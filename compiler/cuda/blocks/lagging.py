"""A running softmax whose weights are relative to the maximum of the blocks before.

A loop over blocks of scores that keeps their maximum m, the sum of weights l and the sum of weighted values acc,

    top = maximum(m, max(x) [* scalar]);  p = exp(x - top);  fade = exp(m - top)
    yield top, l * fade + sum(p), dot(p, v, acc * fade)

keeps the same acc / l and m + log(l) whatever it takes for the maximum, as long as weights do not overflow.  `lag`
makes it try the one that it has, and look for a larger one where the weights of some thread of a warp become large:
only then must lanes exchange maxima, and acc be scaled.  Each thread sums its own weights until the loop ends.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import BOOL, Block, Kernel, Op, Type, Value
from ...passes.rewrite import Rewriter
from .. import running
from ..target import Target
from .assign import assign
from .axes import is_elementwise

#: What a thread's weights of a row and a block may sum up to, by the type in which they are multiplied: none overflows,
#: nor does a sum of their products with values in float32.
TRUSTED = {"f16": 2.0**15, "bf16": 2.0**40, "f32": 2.0**40}
_LOGARITHMS = {"exp2": "log2", "exp": "log"}
_MAXIMA, _PEAKS = frozenset(("maximum", "fmax")), frozenset(("max", "max_number"))


class Running(NamedTuple):
    """A loop that keeps a running softmax, by its parts."""

    loop: Op
    #: Which of the carried values are the maximum, the sum and the product.
    places: tuple[int, int, int]
    scores: Value
    #: What makes weights, as they are summed, of scores, and as they are multiplied.
    power: Op
    weights: Value
    #: The sum of a block's weights, the next running sum, and what is added to the product of weights and values.
    sum: Op
    total: Op
    faded: Op
    top: Op
    #: All ops that are only run where the maximum is looked for.
    ops: frozenset[Op]


def lag(kernel: Kernel) -> Kernel:
    """The kernel with maxima that lag where it does not show; the kernel itself if there are none."""
    if not kernel.attrs.get("enable_fp_fusion", True):
        return kernel
    uses = kernel.uses()
    loops = [r for op in kernel.body.ops if op.name == "for" and (r := _read(op, uses)) is not None]
    kept: list[Running] = []
    for r in reversed(loops):
        if _cancels(r, kept, uses):
            kept.append(r)
    # A loop that goes on where another one ended has few rounds, mostly, with masks.
    results = {v for r in kept for v in r.loop.results}
    first = [r for r in kept if r.loop.operands[3 + r.places[0]] not in results]
    return _Lag(first).kernel(kernel) if first else kernel


def suits(kernel: Kernel, warps: int, target: Target) -> bool:
    """Whether rows are summed within warps, and no tile changes its layout where warps go ways of their own."""
    found = assign(kernel, warps, target)
    for op in kernel.walk():
        if op.name == "if" and op.operands[0].op is not None and op.operands[0].op.name == "beyond":
            ops = [inner for region in op.regions for inner in region.ops]
            values = {v for inner in (op, *ops) for v in (*inner.operands, *inner.results) if v in found.home}
            if len({(v.type.extents, found.home[v]) for v in values}) > len({v.type.extents for v in values}):
                return False
            given = [found.works[inner] for inner in ops if inner.name == "reduce"]
            if any(bit is not None and bit[0] == 1 for layout in given for bit in layout.warps):
                return False
        elif op.name == "for":
            for row in zip(op.regions[0].args[1:], op.regions[0].ops[-1].operands, op.results, strict=True):
                if row[0].type.extents and len({found.home.get(v) for v in row}) > 1:
                    return False
    return True


# -- reading ----------------------------------------------------------------------------------------------------------
def _read(loop: Op, uses: dict[Value, list[Op]]) -> Running | None:
    """The parts of a loop, if it is of the form above and nothing else reads what is not its own."""
    (body,) = loop.regions
    carried, yielded = body.args[1:], body.ops[-1].operands
    product = next((op for op in body.ops if op.name == "dot" and len(op.operands) == 3), None)
    power = _behind(product.operands[0], "cast") if product is not None else None
    lowered = power.operands[0].op if power is not None and power.name in _LOGARITHMS else None
    top = _behind(lowered.operands[1], "broadcast") if lowered is not None and lowered.name == "subtract" else None
    if product is None or power is None or lowered is None or top is None or top.name not in _MAXIMA:
        return None
    if top.result not in yielded or product.result not in yielded:
        return None
    m, acc = (carried[yielded.index(op.result)] for op in (top, product))
    peaks = [v for v in top.operands if v is not m]
    sums = [op for op in uses[power.result] if op.name == "reduce" and op.attrs["kind"] == "sum"]
    total = uses[sums[0].result][0] if len(sums) == 1 else None
    if len(peaks) != 1 or total is None or total.result not in yielded:
        return None
    l, scores, faded = carried[yielded.index(total.result)], lowered.operands[0], product.operands[2].op
    names = {m: "m", l: "l", acc: "acc", top.result: "top", power.result: "p"}
    fade = f"{power.name}(subtract(m, top))"
    wanted = "add(multiply({}, l), sum(p))", "multiply(acc, {})"
    found = [running.form(op.result, names) if op is not None else "" for op in (total, faded)]
    if faded is None or found != [text.format(fade) for text in wanted]:
        return None
    factor = peaks[0].op
    if factor is not None and factor.name == "multiply":
        peaks = [v for v in factor.operands if v.op is not None and v.op.name == "reduce"]
    peak = peaks[0].op if len(peaks) == 1 else None
    if peak is None or peak.name != "reduce" or peak.attrs["kind"] not in _PEAKS or peak.attrs["dims"] != (1,):
        return None
    weights = product.operands[0]
    tile = power.result.type
    if (tile.dtype, len(tile.extents), sums[0].attrs["dims"]) != ("f32", 2, (1,)) or weights.type.dtype not in TRUSTED:
        return None
    first = {op for op in (power, total, top, faded, weights.op) if op is not None}
    ops = _alone(body, first, scores, uses)
    own = {v: {*uses[v]} - ops for v in (m, l, acc, top.result, total.result, power.result, weights, faded.result)}
    ending = {body.ops[-1]}
    if any(own[v] for v in (m, l, acc)) or any(own[v] != ending for v in (top.result, total.result)):
        return None
    if own[weights] != {product} or own[power.result] - {product} or own[faded.result] != {product}:
        return None
    places = carried.index(m), carried.index(l), carried.index(acc)
    return Running(loop, places, scores, power, weights, sums[0], total, faded, top, frozenset(ops))


def _behind(value: Value, name: str) -> Op | None:
    """The op that a value is made by, but for one of a name on the way."""
    op = value.op
    return op.operands[0].op if op is not None and op.name == name else op


def _alone(body: Block, ops: set[Op], scores: Value, uses: dict[Value, list[Op]]) -> set[Op]:
    """Ops of a body with those that only they need, but for what the scores are made of."""
    found = set(ops)
    product = scores.op is not None and scores.op.name == "multiply"
    kept = scores.op.operands if scores.op is not None and product else (scores,)
    for op in reversed(body.ops):
        plain = is_elementwise(op) or op.name in ("broadcast", "reduce")
        if plain and op.result not in kept and all(user in found for user in uses.get(op.result, ())):
            found.add(op)
    return found


def _cancels(r: Running, later: list[Running], uses: dict[Value, list[Op]]) -> bool:
    """Whether a maximum does not show behind the loop."""
    m, l, acc = (r.loop.results[k] for k in r.places)
    for other in later:
        starts = other.loop.operands[3:]
        if (m, l, acc) == tuple([starts[k] for k in other.places]) and other.power.name == r.power.name:
            return all(uses[v] == [other.loop] for v in (m, l, acc))
    quotients, logarithms = list[Op](), list[Op]()
    for op in uses.get(l, ()):
        if op.name == "broadcast":
            quotients += uses.get(op.result, ())
        else:
            logarithms.append(op)
    if not all(op.name == "divide" and op.operands[0] is acc for op in quotients):
        return False
    if not set(uses.get(acc, ())) <= set(quotients) or any(op.name != _LOGARITHMS[r.power.name] for op in logarithms):
        return False
    sums = [o for op in logarithms for o in uses.get(op.result, ())]
    return all(o.name == "add" and m in o.operands for o in sums) and set(uses.get(m, ())) <= set(sums)


# -- writing ----------------------------------------------------------------------------------------------------------
class _Lag(Rewriter):
    def __init__(self, loops: list[Running]) -> None:
        super().__init__()
        self.loops = {r.loop: r for r in loops}
        #: The loop that is being written.
        self.present: Running | None = None

    def _put(self, name: str, operands: tuple[Value, ...], ty: Type, **attrs: object) -> Value:
        made = Op(name, operands, (ty,), dict(attrs))
        self.out.append(made)
        return made.result

    def op(self, op: Op) -> None:
        if (r := self.loops.get(op)) is not None:
            self._loop(op, r)
        elif self.present is None or op not in self.present.ops:
            super().op(op)
        elif op is self.present.power:
            self._weigh(self.present)

    def _loop(self, op: Op, r: Running) -> None:
        m, l, _ = r.places
        operands, row = self.operands(op), op.results[l].type
        begun = self._put("broadcast", (self._number(0.0),), row, dims=())
        starts = [begun if k == l else v for k, v in enumerate(operands[3:])]
        outer, self.present = self.present, r
        body = self.block(op.regions[0])
        self.present = outer
        made = Op("for", (*operands[:3], *starts), tuple([v.type for v in op.results]), op.attrs, (body,), op.line)
        self.out.append(made)
        self.replace(op, made.results)
        # Each thread has a part of the sum; what there was before the loop is scaled as if it had been carried.
        first, last = operands[3 + m], made.results[m]
        moved = self._put(r.power.name, (self._put("subtract", (first, last), row),), row)
        one = self._put("broadcast", (self._number(1.0),), row, dims=())
        same = self._put("equal", (first, last), row._replace(dtype="bool"))
        moved = self._put("where", (same, one, moved), row)
        before = self._put("multiply", (operands[3 + l], moved), row)
        whole = self._put("joined", (made.results[l],), row)
        self.replaced[op.results[l]] = self._put("add", (before, whole), row)

    def _number(self, value: float) -> Value:
        return self._put("const", (), Type("f32"), value=value)

    def _weigh(self, r: Running) -> None:
        """Weights by the maximum before; where they are large, all as the loop has it."""
        (body,) = r.loop.regions
        m, l, acc = (body.args[1 + k] for k in r.places)
        row, tile = m.type, r.power.result.type
        below = self._put("broadcast", (self._put("negative", (m,), row),), tile, dims=(0,))
        scores = r.scores
        if scores.op is not None and scores.op.name == "multiply":
            lowered = self._put("fma", (*[self.replaced.get(v, v) for v in scores.op.operands], below), tile)
        else:
            lowered = self._put("add", (self.replaced.get(scores, scores), below), tile)
        power = self._put(r.power.name, (lowered,), tile, **r.power.attrs)
        weights = power if r.weights is r.power.result else self._put("cast", (power,), r.weights.type)
        own = self._put("reduce", (power,), row, **r.sum.attrs, own=True)
        bound = self._put("broadcast", (self._number(TRUSTED[r.weights.type.dtype]),), row, dims=())
        small = self._put("less_equal", (own, bound), row._replace(dtype="bool"))
        large = self._put("beyond", (small,), BOOL)
        total = Op("add", (l, own), (row,))
        other = Block((), [total, Op("yield", (weights, total.result, m, acc), ())])
        then = Block((), self._sought(r))
        chosen = Op("if", (large,), (weights.type, row, row, acc.type), {}, (then, other), r.power.line)
        self.out.append(chosen)
        for v, new in zip((r.weights, r.total.result, r.top.result, r.faded.result), chosen.results, strict=True):
            self.replaced[v] = new

    def _sought(self, r: Running) -> list[Op]:
        """The loop's own ops."""
        outer, self.out = self.out, []
        present, self.present = self.present, None
        for op in r.loop.regions[0].ops:
            if op in r.ops:
                attrs = op.attrs | {"own": True} if op is r.sum else op.attrs
                made = Op(op.name, self.operands(op), tuple([v.type for v in op.results]), attrs, (), op.line)
                self.replace(op, made.results)
                self.out.append(made)
        wanted = [r.weights, r.total.result, r.top.result, r.faded.result]
        self.out.append(Op("yield", tuple([self.replaced[v] for v in wanted]), ()))
        made, self.out, self.present = self.out, outer, present
        return made
