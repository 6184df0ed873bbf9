"""Random programs of array operations: made from a seed, run, checked, minimised and printed as Python.

A program is a list of steps `v3 = xp.add(v1, v2)`.  Each step carries its text, which is what runs, and what is known
of its result (`known.Known`), computed beside it while the program is made.
"""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tests.support import LAZY

from . import known as k
from .known import BF16, Known

DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
DTYPES["bfloat16"] = BF16
WEIGHTS = [2, 1, 1, 3, 3, 2, 1, 1, 1, 3, 9, 6, 2, 2, 2]
EXTENTS = [0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 64, 65, 100, 130]
LARGEST = 40_000


def data(seed: int, shape: tuple[int, ...], dtype: str, kind: str) -> np.ndarray:
    """An input: "small" whole numbers, "normal" deviates, or "special" values among them."""
    rng = np.random.default_rng(seed)
    t = DTYPES[dtype]
    if t.kind == "b":
        return rng.integers(0, 2, shape).astype(t)
    if t.kind in "iu":
        info = np.iinfo(t)
        if kind == "small":
            return rng.integers(max(info.min, -8), 9, shape).astype(t)
        return rng.integers(info.min, info.max, shape, dtype=t, endpoint=True)
    if t.kind == "c":
        re = rng.integers(-4, 5, shape) if kind == "small" else rng.standard_normal(shape)
        im = rng.integers(-4, 5, shape) if kind == "small" else rng.standard_normal(shape)
        return (re + 1j * im).astype(t)
    values = rng.integers(-8, 9, shape).astype(float) if kind == "small" else rng.standard_normal(shape)
    values = np.asarray(values).astype(t)
    if kind == "special":
        info = ml_dtypes.finfo(t)
        odd = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            1.0,
            float(info.max),
            float(info.tiny),
            float(info.smallest_subnormal),
        ]
        values = np.where(rng.random(shape) < 0.3, np.array(odd).astype(t)[rng.integers(0, len(odd), shape)], values)
    return np.asarray(values)


class Step(NamedTuple):
    text: str
    inputs: tuple[int, ...]
    known: Known


class Program(NamedTuple):
    seed: int
    steps: list[Step]
    outputs: tuple[int, ...]
    #: Whether every intermediate result is still held by a name when the outputs are evaluated.
    hold: bool

    def __str__(self) -> str:
        """The program as Python, with what it must give."""
        lines = [
            f"# seed {self.seed}",
            "import ml_dtypes",
            "import numpy as np",
            "from numpy import inf, nan",
            "",
            "import blockarray as xp",
            "from tests.fuzz.programs import DTYPES, data",
            "",
        ]
        live = set(cone(self.steps, self.outputs))
        lines += [f"v{i} = {step.text}" for i, step in enumerate(self.steps) if i in live]
        if not self.hold and len(live) > len(self.outputs):
            lines.append("del " + ", ".join(f"v{i}" for i in sorted(live - set(self.outputs))))
        names = ", ".join(f"v{i}" for i in self.outputs)
        lines += [f"xp.evaluate({names})", *(f"print(repr(np.asarray(v{i})))" for i in self.outputs)]
        for i in self.outputs:
            want = self.steps[i].known
            lines.append(
                f"# v{i} is {want.dtype}{list(want.shape)}" + (" exactly" if want.exact else ", approximately")
            )
        return "\n".join(lines)


def cone(steps: list[Step], outputs: Iterable[int]) -> list[int]:
    """The steps that the outputs need, in order."""
    stack, seen = list(outputs), set()
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack.extend(steps[i].inputs)
    return sorted(seen)


# -- making -----------------------------------------------------------------------------------------------------------
def _floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """floor(x / y) where either is infinite, as the Array API standard has it; NumPy pairs // with %."""
    q = np.floor_divide(x, y)
    return np.where(np.isinf(x) | np.isinf(y), np.true_divide(x, y), q) if LAZY and q.dtype.kind == "f" else q


BINARY: dict[str, tuple[str, Callable[..., Any], bool]] = {
    # rule of known.arithmetic: (text, function, whether it takes approximate operands)
    "+": ("{} + {}", np.add, True),
    "-": ("{} - {}", np.subtract, True),
    "*": ("{} * {}", np.multiply, True),
    "/": ("{} / {}", np.divide, True),
    "max": ("xp.maximum({}, {})", np.maximum, True),
    "min": ("xp.minimum({}, {})", np.minimum, True),
    "//": ("{} // {}", _floor_divide, False),
    "%": ("{} % {}", np.remainder, False),
    "==": ("{} == {}", np.equal, False),
    "!=": ("{} != {}", np.not_equal, False),
    "<": ("{} < {}", np.less, False),
    ">=": ("{} >= {}", np.greater_equal, False),
    "and": ("xp.logical_and({}, {})", np.logical_and, False),
    "copysign": ("xp.copysign({}, {})", np.copysign, False),
    "&": ("{} & {}", np.bitwise_and, False),
    "|": ("{} | {}", np.bitwise_or, False),
    "^": ("{} ^ {}", np.bitwise_xor, False),
}
BINARY_WEIGHTS = [8, 6, 8, 4, 3, 3, 2, 2, 1, 1, 3, 2, 1, 1, 1, 1, 1]
BITS = ("&", "|", "^")

#: name: (function, kinds of dtype) on exact operands, correctly rounded
UNARY_EXACT: dict[str, tuple[Callable[..., Any], str]] = {
    "negative": (np.negative, "iufc"),
    "square": (np.square, "iuf"),
    "floor": (np.floor, "f"),
    "ceil": (np.ceil, "f"),
    "trunc": (np.trunc, "f"),
    "rint": (np.rint, "f"),
    "sqrt": (np.sqrt, "f"),
    "sign": (np.sign, "iuf"),
    "isnan": (np.isnan, "f"),
    "isfinite": (np.isfinite, "f"),
    "signbit": (np.signbit, "f"),
    "logical_not": (np.logical_not, "biuf"),
    "invert": (np.invert, "biu"),
    "conj": (np.conj, "c"),
}
#: name: (function, ulp, slope); slope None: monotone
UNARY_SMOOTH: dict[str, tuple[Callable[..., Any], float, float | None]] = {
    "exp": (np.exp, 4, None),
    "expm1": (np.expm1, 5, None),
    "log": (np.log, 5, None),
    "log1p": (np.log1p, 5, None),
    "sqrt": (np.sqrt, 1, None),
    "tanh": (np.tanh, 5, None),
    "arctan": (np.arctan, 5, None),
    "sin": (np.sin, 5, 1),
    "cos": (np.cos, 5, 1),
}


class Maker:
    """Grows a program step by step; a step that cannot be made as drawn is left out."""

    def __init__(self, seed: int, elementwise: bool, numpys: bool) -> None:
        self.random = random.Random(seed)
        self.elementwise = elementwise
        self.numpys = numpys
        self.steps: list[Step] = []

    def add(self, text: str, inputs: tuple[int, ...], known: Known) -> int:
        self.steps.append(Step(text, inputs, known))
        return len(self.steps) - 1

    def add_any_zero(self, text: str, inputs: tuple[int, ...], known: Known, any_zero: bool) -> int:
        """The step, then one that makes its zeros positive: which zero max(-0.0, 0.0) is, nobody says."""
        i = self.add(text, inputs, known)
        if not any_zero or known.kind != "f":
            return i
        return self.add(f"v{i} + 0", (i,), known._replace(value=known.value + known.value.dtype.type(0)))

    def at(self, i: int) -> Known:
        return self.steps[i].known

    # Operands.

    def leaf(self, shape: tuple[int, ...], dtype: str | None = None) -> int:
        r = self.random
        dtype = dtype or r.choices(list(DTYPES), WEIGHTS)[0]
        kind = r.choice(["small", "small", "normal", "special"])
        seed = r.randrange(1000)
        text = f"data({seed}, {{}}, {dtype!r}, {kind!r})"
        way = r.choice(["plain", "plain", "plain", "transposed", "flipped", "strided"]) if shape else "plain"
        match way:
            case "transposed":
                text = text.format(shape[::-1]) + ".T"
            case "flipped":
                text = text.format(shape) + "[::-1]"
            case "strided":
                text = text.format((*shape[:-1], 2 * shape[-1])) + "[..., ::2]"
            case _:
                text = text.format(shape)
        return self.add(f"xp.asarray({text})", (), k.exact(eval(text, {"data": data})))

    def shape(self) -> tuple[int, ...]:
        r = self.random
        while True:
            shape = tuple(r.choice(EXTENTS[r.random() < 0.95 :]) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])))
            if np.prod(shape, dtype=np.int64) <= LARGEST:
                return shape

    def pick(self, test: Callable[[Known], bool] = lambda x: True) -> int | None:
        """A recent step more likely than an old one."""
        fit = [i for i, step in enumerate(self.steps) if test(step.known)]
        return fit[-1 - int(len(fit) * self.random.random() ** 2)] if fit else None

    def partner(self, i: int, test: Callable[[Known], bool]) -> int | None:
        """Something that broadcasts with step i to no more than LARGEST elements, made if need be."""
        shape = self.at(i).shape

        def fits(x: Known) -> bool:
            try:
                both = np.broadcast_shapes(x.shape, shape)
            except ValueError:
                return False
            return math.prod(both) <= LARGEST and test(x)

        if self.random.random() < 0.7 and (j := self.pick(fits)) is not None:
            return j
        other = [1 if self.random.random() < 0.3 else n for n in shape[self.random.choice([0, 0, 0, 1, 2]) :]]
        dtype = self.random.choice(sorted(DTYPES)) if self.random.random() < 0.3 else str(self.at(i).dtype)
        j = self.leaf(tuple(other), dtype)
        return j if test(self.at(j)) else None

    def axis(self, x: Known) -> int:
        return self.random.randrange(-len(x.shape), len(x.shape))

    # Steps.  Each returns whether it made one.

    def binary(self) -> None:
        name = self.random.choices(list(BINARY), BINARY_WEIGHTS)[0]
        text, function, smooth = BINARY[name]
        kinds = (
            "biu"
            if name in BITS
            else "f"
            if name == "copysign"
            else "iuf"
            if name in ("//", "%", "<", ">=")
            else "biufc"
        )

        def test(x: Known) -> bool:
            return (smooth or x.exact) and x.kind in kinds

        i = self.pick(test)
        if i is None:
            return
        x = self.at(i)
        if name in ("//", "%") and x.dtype in k.NARROW:
            return
        scalars = "iuf" if not (self.numpys and x.dtype == BF16) else ""
        if self.random.random() < 0.25 and name not in BITS and x.kind in scalars:
            s = self.random.choice([1, 2, 3, 5] if x.kind in "iu" else [1, 2, 0.5, -3, 1.25, 0])
            a, b = (x, s) if self.random.random() < 0.6 else (s, x)
            operands = [f"v{i}" if isinstance(o, Known) else repr(o) for o in (a, b)]
            inputs: tuple[int, ...] = (i,)
        else:
            j = self.partner(i, lambda y: test(y) and (BF16 not in (x.dtype, y.dtype) or x.dtype == y.dtype))
            if j is None:
                return
            a, b, operands, inputs = x, self.at(j), [f"v{i}", f"v{j}"], (i, j)
        if smooth:
            known = k.arithmetic(name, function, a, b)
        else:
            known = k.exact(function(*(o.value if isinstance(o, Known) else x.dtype.type(o) for o in (a, b))))
        self.add_any_zero(text.format(*operands), inputs, known, name in ("max", "min"))

    def unary(self) -> None:
        i = self.pick()
        if i is None:
            return
        x = self.at(i)
        if x.exact and self.random.random() < 0.5:
            name = self.random.choice(list(UNARY_EXACT))
            function, kinds = UNARY_EXACT[name]
            if x.kind in kinds:
                self.add(f"xp.{name}(v{i})", (i,), k.exact(function(x.value)))
        elif x.kind == "f" and self.random.random() < 0.8:
            name = self.random.choice(list(UNARY_SMOOTH))
            function, ulp, slope = UNARY_SMOOTH[name]
            self.add(f"xp.{name}(v{i})", (i,), k.smooth(function, x, ulp, slope))
        elif x.kind in "iufc":
            self.add(f"abs(v{i})", (i,), k.magnitude(x))

    def cast(self) -> None:
        i = self.pick()
        dtype = DTYPES[self.random.choices(list(DTYPES), WEIGHTS)[0]]
        if i is None:
            return
        x = self.at(i)
        if (x.kind == "c" and dtype.kind != "c") or not (x.exact or dtype.kind in "fcV"):
            return
        if self.numpys and x.kind == "f" and dtype.kind in "iu":
            return
        self.add(f"v{i}.astype(DTYPES[{str(dtype)!r}])", (i,), k.cast(x, dtype))

    def where(self) -> None:
        c = self.pick(lambda x: x.dtype == bool)
        if c is None:
            return
        i = self.partner(c, lambda x: True)
        if i is None:
            return
        x = self.at(i)
        j = self.partner(i, lambda y: BF16 not in (x.dtype, y.dtype) or x.dtype == y.dtype)
        if j is None:
            return
        try:
            shape = np.broadcast_shapes(self.at(c).shape, x.shape, self.at(j).shape)
        except ValueError:
            return
        if np.prod(shape, dtype=np.int64) <= LARGEST:
            self.add(f"xp.where(v{c}, v{i}, v{j})", (c, i, j), k.select(self.at(c), x, self.at(j)))

    def move(self) -> None:
        i = self.pick()
        if i is None:
            return
        x, r = self.at(i), self.random
        shape = x.shape
        match r.choice(
            ["slice", "slice", "transpose", "reshape", "reshape", "broadcast", "flip", "newaxis", "permute"]
        ):
            case "slice":
                parts = []
                for n in shape:
                    a, b = sorted((r.randint(0, n), r.randint(0, n)))
                    parts.append(
                        r.choice([":", ":", "::-1", f"{a}:{b}", f"{a}::2", f":{b}", f"{b}:{a}:-1", "::3"]
                                 + ([str(r.randrange(n))] if n else []))
                    )  # fmt: skip
                if not parts:
                    return
                index = ", ".join(parts)
                # A comma: NumPy's scalars are arrays here.
                function = eval(f"lambda a: np.asarray(a[{index}])", {"np": np})
                text = f"v{i}[{index}]"
            case "transpose":
                function, text = np.transpose, f"v{i}.T"
            case "reshape":
                new = self.factors(int(np.prod(shape, dtype=np.int64)))
                function, text = (lambda a: a.reshape(new)), f"xp.reshape(v{i}, {new})"
            case "broadcast":
                new = tuple(r.choice([2, 3, 5]) if n == 1 else n for n in shape)
                new = (r.choice([1, 2, 3]), *new) if r.random() < 0.5 else new
                if np.prod(new, dtype=np.int64) > LARGEST:
                    return
                function, text = (lambda a: np.broadcast_to(a, new)), f"xp.broadcast_to(v{i}, {new})"
            case "flip":
                if not shape:
                    return
                axis = self.axis(x)
                function, text = (lambda a: np.flip(a, axis=axis)), f"xp.flip(v{i}, axis={axis})"
            case "permute":
                order = tuple(r.sample(range(len(shape)), len(shape)))
                function, text = (lambda a: a.transpose(order)), f"xp.permute_dims(v{i}, {order})"
            case _:
                axis = r.randint(0, len(shape))
                function, text = (lambda a: np.expand_dims(a, axis)), f"xp.expand_dims(v{i}, axis={axis})"
        known = x.moved(function)
        if len(known.shape) <= 6:
            self.add(text, (i,), known)

    def factors(self, n: int) -> tuple[int, ...]:
        """A random shape of n elements."""
        shape, left = [], n
        while left > 1 and len(shape) < 3 and self.random.random() < 0.7:
            f = self.random.choice([f for f in range(1, min(left, 200) + 1) if left % f == 0])
            shape.append(f)
            left //= f
        shape.append(left)
        return tuple(shape)

    def reduce(self) -> None:
        i = self.pick(lambda x: len(x.shape) > 0 and not (self.numpys and x.dtype in k.NARROW))
        if i is None:
            return
        x, r = self.at(i), self.random
        axis: Any = r.choice([None, self.axis(x), self.axis(x)])
        if len(x.shape) > 1 and r.random() < 0.2:
            axis = tuple(r.sample(range(len(x.shape)), 2))
        keepdims = r.random() < 0.4
        name = r.choice(
            ["sum", "sum", "sum", "max", "min", "mean", "var", "prod", "any", "all", "argmax", "argmin", "count"]
        )
        n = k.count(x, axis)
        if name in ("argmax", "argmin") and isinstance(axis, tuple):
            axis = axis[0]
        if not n and name in ("max", "min", "mean", "var", "argmax", "argmin"):
            return
        arguments = f"axis={axis}" + (", keepdims=True" if keepdims else "")
        text = f"xp.{name}(v{i}, {arguments})"
        match name:
            case "sum":
                known = k.total(x, axis, keepdims)
            case "mean":
                known = k.total(x, axis, keepdims, mean=True)
            case "prod" if x.kind != "c":
                known = k.product(x, axis, keepdims)
            case "var" if x.exact and x.kind in "iuf" and not self.numpys:
                known = k.variance(x, axis, keepdims)
            case "max" | "min" if x.kind in "biuf":
                known = k.extreme(getattr(np, name), x, axis, keepdims)
            case "any" | "all" | "argmax" | "argmin" if x.exact and x.kind in "biuf":
                known = k.exact(getattr(np, name)(x.value, axis=axis, keepdims=keepdims))
            case "count" if x.exact and x.kind in "biuf":
                known = k.exact(np.asarray(np.sum(x.value != 0, axis=axis, keepdims=keepdims)))
                text = f"xp.sum(v{i} != 0, {arguments})"
            case _:
                return
        self.add_any_zero(text, (i,), known, name in ("max", "min"))

    def scan(self) -> None:
        i = self.pick(lambda x: len(x.shape) > 0 and x.kind != "c" and not (self.numpys and x.dtype in k.NARROW))
        if i is not None:
            axis = self.axis(self.at(i))
            self.add(f"xp.cumsum(v{i}, axis={axis})", (i,), k.running_sum(self.at(i), axis))

    def gather(self) -> None:
        i = self.pick(lambda x: len(x.shape) > 0 and 0 not in x.shape)
        if i is None:
            return
        x = self.at(i)
        axis = self.axis(x)
        n = x.shape[axis]
        shape = self.random.choice([(), (3,), (7,), (40,), (2, 3), (0,)])
        seed = self.random.randrange(1000)
        index = np.random.default_rng(seed).integers(-n, n, shape)
        if index.size * x.value.size // n > LARGEST:
            return
        made = f"xp.asarray(np.random.default_rng({seed}).integers({-n}, {n}, {shape}))"
        if axis in (0, -len(x.shape)) and self.random.random() < 0.5:
            text = f"v{i}[{made}]"
        else:
            text = f"xp.take(v{i}, {made}, axis={axis})"
        self.add(text, (i,), x.moved(lambda a: np.asarray(np.take(a, index, axis=axis))))

    def join(self) -> None:
        i = self.pick(lambda x: len(x.shape) > 0)
        if i is None:
            return
        x = self.at(i)
        axis = self.axis(x) % len(x.shape)

        def fits(y: Known) -> bool:
            return (
                len(y.shape) == len(x.shape)
                and y.dtype == x.dtype
                and all(p == q for d, (p, q) in enumerate(zip(x.shape, y.shape)) if d != axis)
                and y.value.size + x.value.size <= LARGEST
            )

        j = self.pick(fits)
        if j is not None:
            self.add(f"xp.concatenate([v{i}, v{j}], axis={axis})", (i, j), k.join([x, self.at(j)], axis))

    def matmul(self) -> None:
        i = self.pick(lambda x: len(x.shape) > 1 and x.kind in "iufc" and max(x.shape) <= 200)
        if i is None or (self.numpys and self.at(i).dtype in k.NARROW):
            return
        x = self.at(i)
        inner = x.shape[-1]
        j = self.pick(lambda y: len(y.shape) == 2 and y.shape[0] == inner and y.dtype == x.dtype)
        if j is None or self.random.random() < 0.5:
            columns = self.random.choice([1, 2, 16, 17, 40])
            j = self.leaf(self.random.choice([(inner, columns), (inner, columns), (inner,)]), str(x.dtype))
        y = self.at(j)
        if x.value.size * (y.shape[1] if len(y.shape) > 1 else 1) > 3_000_000:
            return
        self.add(f"v{i} @ v{j}", (i, j), k.matmul(x, y))

    def run(self, length: int) -> None:
        self.leaf(self.shape())
        moves = {self.binary: 12, self.unary: 6, self.cast: 3, self.where: 2, self.move: 8}
        if not self.elementwise:
            moves |= {self.reduce: 6, self.scan: 1, self.gather: 2, self.join: 1, self.matmul: 2}
        with np.errstate(all="ignore"):
            while len(self.steps) < length:
                if self.random.random() < 0.06:
                    self.leaf(self.shape())
                try:
                    self.random.choices(list(moves), list(moves.values()))[0]()
                except TypeError:  # NumPy does not define this operation on these types
                    continue


def make(seed: int, length: int | None = None, elementwise: bool = False, numpys: bool = not LAZY) -> Program:
    """The program of a seed; with `numpys`, of what NumPy itself does as is known (sums of float16 it does not)."""
    maker = Maker(seed, elementwise, numpys)
    r = maker.random
    maker.run(length or r.choice([4, 8, 12, 20, 35]))
    steps = maker.steps
    used = {i for step in steps for i in step.inputs}
    loose = [i for i, step in enumerate(steps) if i not in used and step.inputs]
    more = r.sample(range(len(steps)), min(r.choice([0, 0, 1, 2]), len(steps)))
    return Program(seed, steps, tuple(sorted({*loose, *more, len(steps) - 1})), r.random() < 0.5)


# -- running ----------------------------------------------------------------------------------------------------------
def execute(
    program: Program, xp: Any, evaluate: Callable[..., None], after: Callable[[int], bool] | None = None
) -> dict:
    """The arrays of the program, by number; `after(i)`: whether to evaluate step i when it is made."""
    env: dict[str, Any] = {"xp": xp, "np": np, "data": data, "DTYPES": DTYPES, "nan": np.nan, "inf": np.inf}
    live = cone(program.steps, program.outputs)
    with np.errstate(all="ignore"):
        for i in live:
            env[f"v{i}"] = eval(program.steps[i].text, env)
            if after is not None and after(i):
                evaluate(env[f"v{i}"])
        if not program.hold:
            for i in set(live) - set(program.outputs):
                del env[f"v{i}"]
        evaluate(*(env[f"v{i}"] for i in program.outputs))
    return {i: env[f"v{i}"] for i in live if f"v{i}" in env}


def failure(program: Program, xp: Any, evaluate: Callable[..., None]) -> str | None:
    """What is wrong with the program's results: the first wrong step's, or the exception; None if nothing is."""
    try:
        results = execute(program, xp, evaluate)
        for i, x in results.items():
            wrong = k.mismatch(np.asarray(x), program.steps[i].known)
            if wrong is not None:
                return f"v{i}: {wrong}"
    except Exception as error:  # of any kind: the program is valid
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    return None


def literal(known: Known) -> str | None:
    """An expression for an array that holds what is known."""
    if known.value.size > 200 or not known.exact:
        return None
    values = known.value.astype(object if known.kind in "biu" else np.complex128 if known.kind == "c" else np.float64)
    return f"xp.asarray(np.array({values.tolist()!r}, DTYPES[{str(known.dtype)!r}]).reshape({known.shape}))"


def minimise(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A smaller program that fails still: of fewer outputs, and with steps replaced by their known values."""
    for i in program.outputs:
        single = program._replace(outputs=(i,))
        if fails(single):
            program = single
            break
    for i in program.outputs:
        fewer = program._replace(outputs=tuple(j for j in program.outputs if j != i))
        if fewer.outputs and fails(fewer):
            program = fewer
    for hold in (False, True):
        if program.hold != hold and fails(program._replace(hold=hold)):
            program = program._replace(hold=hold)
            break
    progress = True
    while progress:
        progress = False
        for i in reversed(cone(program.steps, program.outputs)):
            step = program.steps[i]
            for smaller in (*(program._replace(outputs=(j,)) for j in step.inputs if i in program.outputs),
                            *replaced(program, i)):  # fmt: skip
                if fails(smaller):
                    program, progress = smaller, True
                    break
    return program


def replaced(program: Program, i: int) -> list[Program]:
    """The program with step i a literal."""
    step = program.steps[i]
    text = literal(step.known)
    if not step.inputs or text is None or i in program.outputs:
        return []
    steps = list(program.steps)
    steps[i] = Step(text, (), step.known)
    return [program._replace(steps=steps)]
