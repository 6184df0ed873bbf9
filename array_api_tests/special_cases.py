"""The tables of special cases of the Array API standard, in a notation of our own.

A case reads `operands -> result`.  An operand is a number or a set of numbers (see `SETS`); alternatives are joined by
"|".  A result is a number, an operand ("x1", "|x2|"), or a number after "~", whose sign the standard leaves open.
Complex numbers are written as their two parts; "*cis" stands for the direction of the imaginary part as an angle.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: All of them are numbers of single precision, too.
_TINY, _HUGE = 2.0**-100, 2.0**100
_SAMPLES = (_TINY, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 700.0, _HUGE)
_FINITE = (*_SAMPLES, *(-x for x in _SAMPLES))
_EVERY = (*_FINITE, 0.0, -0.0, math.inf, -math.inf)

#: Samples of the sets of numbers that stand in the tables.
SETS: dict[str, tuple[float, ...]] = {
    "pos": _SAMPLES,
    "neg": tuple(-x for x in _SAMPLES),
    "nonzero": _FINITE,
    "finite": (*_FINITE, 0.0, -0.0),
    "number": _EVERY,
    "any": (*_EVERY, math.nan),
    "zero": (0.0, -0.0),
    "infinity": (math.inf, -math.inf),
    "above": (*_SAMPLES, math.inf),
    "below": (*(-x for x in _SAMPLES), -math.inf),
    ">1": (1.5, 3.0, _HUGE, math.inf),
    "<1": (*(x for x in _EVERY if x < 1),),
    "<-1": (-1.5, -3.0, -_HUGE, -math.inf),
    "size>1": (1.5, -1.5, 3.0, -_HUGE, math.inf, -math.inf),
    "size<1": (0.25, -0.5, _TINY, 0.0, -0.0),
    "+odd": (1.0, 3.0, 7.0),
    "+even": (0.5, 2.0, 4.0, 1.5),
    "-odd": (-1.0, -3.0, -7.0),
    "-even": (-0.5, -2.0, -4.0, -1.5),
    "fraction": (0.5, -0.25, 1.5, -2.5),
    "whole": (0.0, -0.0, 1.0, -3.0, _HUGE, math.inf, -math.inf, math.nan),
    "nan": (math.nan,),
}

CONSTANTS: dict[str, float] = {
    "inf": math.inf, "pi": math.pi, "pi/2": math.pi / 2, "pi/4": math.pi / 4, "3pi/4": 3 * math.pi / 4,
}  # fmt: skip

_ODD = "0 -> 0; -0 -> -0"
REAL: dict[str, str] = {
    "abs": "-0 -> 0; -inf -> inf; inf -> inf; nan -> nan",
    "acos": "nan | >1 | <-1 -> nan; 1 -> 0",
    "acosh": "nan | <1 -> nan; 1 -> 0; inf -> inf",
    "asin": f"nan | >1 | <-1 -> nan; {_ODD}",
    "asinh": f"nan -> nan; {_ODD}; inf -> inf; -inf -> -inf",
    "atan": f"nan -> nan; {_ODD}; inf -> pi/2; -inf -> -pi/2",
    "atanh": f"nan | >1 | <-1 -> nan; -1 -> -inf; 1 -> inf; {_ODD}",
    "ceil": "whole -> x1",
    "cos": "nan | infinity -> nan; zero -> 1",
    "cosh": "nan -> nan; zero -> 1; infinity -> inf",
    "exp": "nan -> nan; zero -> 1; inf -> inf; -inf -> 0",
    "expm1": f"nan -> nan; {_ODD}; inf -> inf; -inf -> -1",
    "floor": "whole -> x1",
    "log": "nan | below -> nan; zero -> -inf; 1 -> 0; inf -> inf",
    "log10": "nan | below -> nan; zero -> -inf; 1 -> 0; inf -> inf",
    "log1p": f"nan | <-1 -> nan; -1 -> -inf; {_ODD}; inf -> inf",
    "log2": "nan | below -> nan; zero -> -inf; 1 -> 0; inf -> inf",
    "reciprocal": "nan -> nan; 0 -> inf; -0 -> -inf; inf -> 0; -inf -> -0",
    "round": "whole -> x1; 0.5 -> 0; 1.5 | 2.5 -> 2; -0.5 -> -0; -1.5 -> -2",
    "sign": "below -> -1; zero -> 0; above -> 1; nan -> nan",
    "sin": f"nan | infinity -> nan; {_ODD}",
    "sinh": f"nan -> nan; {_ODD}; inf -> inf; -inf -> -inf",
    "sqrt": f"nan | below -> nan; {_ODD}; inf -> inf",
    "square": "nan -> nan; zero -> 0; infinity -> inf",
    "tan": f"nan | infinity -> nan; {_ODD}",
    "tanh": f"nan -> nan; {_ODD}; inf -> 1; -inf -> -1",
    "trunc": "whole -> x1",
}

_QUOTIENT = """
    nan, any -> nan; any, nan -> nan; infinity, infinity -> nan; zero, zero -> nan
    0, above -> 0; -0, above -> -0; 0, below -> -0; -0, below -> 0
    above, 0 -> inf; above, -0 -> -inf; below, 0 -> -inf; below, -0 -> inf
    inf, pos -> inf; inf, neg -> -inf; -inf, pos -> -inf; -inf, neg -> inf
    pos, inf -> 0; pos, -inf -> -0; neg, inf -> -0; neg, -inf -> 0
"""
_ANGLES = """
    nan, any -> nan; any, nan -> nan; above, zero -> pi/2; 0, above | 0 -> 0; 0, -0 | below -> pi
    -0, above | 0 -> -0; -0, -0 | below -> -pi; below, zero -> -pi/2; pos, inf -> 0; pos, -inf -> pi; neg, inf -> -0
    neg, -inf -> -pi; inf, finite -> pi/2; -inf, finite -> -pi/2; inf, inf -> pi/4; inf, -inf -> 3pi/4
    -inf, inf -> -pi/4; -inf, -inf -> -3pi/4
"""
BINARY: dict[str, str] = {
    "add": """
        nan, any -> nan; any, nan -> nan; inf, -inf -> nan; -inf, inf -> nan; inf, finite | inf -> inf
        -inf, finite | -inf -> -inf; finite, inf -> inf; finite, -inf -> -inf; -0, -0 -> -0; -0, 0 -> 0; 0, zero -> 0
        zero, nonzero -> x2; nonzero, zero -> x1
    """,
    "atan2": _ANGLES,
    "copysign": "finite | infinity, below | -0 -> -|x1|; finite | infinity, above | 0 -> |x1|",
    "divide": _QUOTIENT,
    "floor_divide": _QUOTIENT,
    "hypot": "infinity, any -> inf; any, infinity -> inf; number, zero -> |x1|; zero, number -> |x2|; nan, 1 -> nan",
    "logaddexp": "nan, any -> nan; any, nan -> nan; inf, number -> inf; number, inf -> inf",
    "maximum": "nan, any -> nan; any, nan -> nan",
    "minimum": "nan, any -> nan; any, nan -> nan",
    "multiply": """
        nan, any -> nan; any, nan -> nan; infinity, zero -> nan; zero, infinity -> nan
        inf, above -> inf; inf, below -> -inf; -inf, above -> -inf; -inf, below -> inf; above, inf -> inf
        0, pos | 0 -> 0; 0, neg | -0 -> -0; -0, pos -> -0; -0, neg -> 0
    """,
    "nextafter": "nan, any -> nan; any, nan -> nan; -0, 0 -> 0; 0, -0 -> -0",
    "pow": """
        <1 | >1, nan -> nan; any, zero -> 1; nan, above | below -> nan; size>1, inf -> inf; size>1, -inf -> 0
        1 | -1, infinity -> 1; 1, number -> 1; size<1, inf -> 0; size<1, -inf -> inf; inf, above -> inf; inf, below -> 0
        -inf, +odd -> -inf; -inf, +even -> inf; -inf, -odd -> -0; -inf, -even -> 0; 0, above -> 0; 0, below -> inf
        -0, +odd -> -0; -0, +even -> 0; -0, -odd -> -inf; -0, -even -> inf; neg, fraction -> nan
    """,
    "remainder": """
        nan, any -> nan; any, nan -> nan; infinity, infinity -> nan; zero, zero -> nan; zero, above -> 0
        zero, below -> -0; any, zero -> nan; infinity, nonzero -> nan; pos, inf -> x1; pos, -inf -> x2; neg, inf -> x2
        neg, -inf -> x1
    """,
    "subtract": "nan, any -> nan; any, nan -> nan; inf, inf -> nan; -inf, -inf -> nan; 0, 0 -> 0; -0, 0 -> -0",
}

_LOG = """
    finite inf -> inf pi/2; finite nan -> nan nan; -inf pos -> inf pi; inf pos -> inf 0; -inf inf -> inf 3pi/4
    inf inf -> inf pi/4; infinity nan -> inf nan; nan finite -> nan nan; nan inf -> inf nan; nan nan -> nan nan
"""
COMPLEX: dict[str, str] = {
    "acos": """
        zero 0 -> pi/2 -0; zero nan -> pi/2 nan; finite inf -> pi/2 -inf; nonzero nan -> nan nan; -inf pos -> pi -inf
        inf pos -> 0 -inf; -inf inf -> 3pi/4 -inf; inf inf -> pi/4 -inf; infinity nan -> nan ~inf
        nan finite -> nan nan; nan inf -> nan -inf; nan nan -> nan nan
    """,
    "acosh": """
        zero 0 -> 0 pi/2; finite inf -> inf pi/2; nonzero nan -> nan nan; 0 nan -> nan ~pi/2; -inf pos -> inf pi
        inf pos -> inf 0; -inf inf -> inf 3pi/4; inf inf -> inf pi/4; infinity nan -> inf nan; nan finite -> nan nan
        nan inf -> inf nan; nan nan -> nan nan
    """,
    "asinh": """
        0 0 -> 0 0; pos inf -> inf pi/2; finite nan -> nan nan; inf pos -> inf 0; inf inf -> inf pi/4; nan 0 -> nan 0
        nan nonzero -> nan nan; nan inf -> ~inf nan; nan nan -> nan nan
    """,
    "atanh": """
        0 0 -> 0 0; 0 nan -> 0 nan; 1 0 -> inf 0; pos inf -> 0 pi/2; nonzero nan -> nan nan; inf pos -> 0 pi/2
        inf inf -> 0 pi/2; inf nan -> 0 nan; nan finite -> nan nan; nan inf -> ~0 pi/2; nan nan -> nan nan
    """,
    "cosh": """
        0 0 -> 1 0; 0 inf | nan -> nan ~0; nonzero inf | nan -> nan nan; inf 0 -> inf 0; inf nonzero -> inf*cis
        inf inf | nan -> ~inf nan; nan zero -> nan ~0; nan nonzero -> nan nan; nan nan -> nan nan
    """,
    "exp": """
        zero 0 -> 1 0; finite inf | nan -> nan nan; inf 0 -> inf 0; -inf finite -> 0*cis; inf nonzero -> inf*cis
        -inf inf | nan -> ~0 ~0; inf inf | nan -> ~inf nan; nan 0 -> nan 0; nan nonzero | infinity | nan -> nan nan
    """,
    "expm1": """
        zero 0 -> 0 0; finite inf | nan -> nan nan; inf 0 -> inf 0; inf nonzero -> inf*cis; -inf inf | nan -> -1 ~0
        inf inf | nan -> ~inf nan; nan 0 -> nan 0; nan nonzero | infinity | nan -> nan nan
    """,
    "log": f"-0 0 -> -inf pi; 0 0 -> -inf 0; {_LOG}",
    "log1p": f"-1 0 -> -inf 0; {_LOG}",
    "log2": f"0 0 -> -inf 0; -inf pos -> inf {math.pi / math.log(2)}; infinity nan -> inf nan; nan finite -> nan nan",
    "log10": f"0 0 -> -inf 0; -inf pos -> inf {math.pi / math.log(10)}; infinity nan -> inf nan; nan finite -> nan nan",
    "sign": "zero zero -> 0 0; nan any -> nan nan; any nan -> nan nan",
    "sinh": """
        0 0 -> 0 0; 0 inf | nan -> ~0 nan; pos inf | nan -> nan nan; inf 0 -> inf 0; inf pos -> inf*cis
        inf inf | nan -> ~inf nan; nan 0 -> nan 0; nan nonzero | nan -> nan nan
    """,
    "sqrt": """
        zero 0 -> 0 0; any inf -> inf inf; finite nan -> nan nan; -inf pos -> 0 inf; inf pos -> inf 0
        -inf nan -> nan ~inf; inf nan -> inf nan; nan finite | nan -> nan nan
    """,
    "tanh": """
        0 0 -> 0 0; nonzero inf | nan -> nan nan; 0 inf | nan -> 0 nan; inf pos -> 1 0; inf inf | nan -> 1 ~0
        nan 0 -> nan 0; nan nonzero | nan -> nan nan
    """,
}

#: Functions whose cases are those of another one: f(z) = -i g(i z), or g(i z).
TURNED: dict[str, tuple[str, bool]] = {
    "asin": ("asinh", True), "atan": ("atanh", True), "sin": ("sinh", True), "tan": ("tanh", True),
    "cos": ("cosh", False),
}  # fmt: skip


def cases(table: str) -> list[tuple[list[str], str]]:
    """(operands, result) of each case of a table."""
    found = []
    for line in table.replace("\n", ";").split(";"):
        if line.strip():
            operands, result = line.split("->")
            found.append(([x.strip() for x in operands.split(",")], result.strip()))
    return found


def number(text: str) -> float:
    """A number as the tables spell it."""
    text = text.removeprefix("~")
    sign, size = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    return math.copysign(CONSTANTS[size], sign) if size in CONSTANTS else float(text)


def samples(text: str) -> list[float]:
    """Members of the sets and numbers that stand for an operand."""
    return [x for part in text.split("|") for x in SETS.get(part.strip()) or [number(part.strip())]]


#: Results that are made of an operand.
OF_OPERANDS: dict[str, Callable[[float, float], float]] = {
    "x1": lambda x1, x2: x1, "x2": lambda x1, x2: x2, "|x1|": lambda x1, x2: abs(x1), "|x2|": lambda x1, x2: abs(x2),
    "-|x1|": lambda x1, x2: -abs(x1),
}  # fmt: skip
