"""Calls of C's mathematical functions, on vectors where the target has those."""

from __future__ import annotations

from .lanes import Lanes, pad, per_lane, unpad
from .target import MathTarget
from .text import V, lanes

PURE = "nounwind willreturn memory(none)"


def call(target: MathTarget, name: str, *args: Lanes) -> Lanes:
    """C's function `name` (without a suffix) of floats or doubles, a lane at a time in effect."""
    t, elem = args[0].t, args[0].elem
    n = lanes(args[0].v.ty)
    vector = target.vector_function(name, elem, n)
    if vector is None:
        symbol = target.scalar_function(name, elem)
        return Lanes(t, per_lane(t, lambda *xs: t.call(symbol, elem, xs, PURE), *(a.v for a in args)))
    symbol, width = vector
    pieces: list[list[V]] = [t.split(pad(t, a.v, width), width) for a in args]
    results = [t.call(symbol, xs[0].ty, xs, PURE) for xs in zip(*pieces, strict=True)]
    return Lanes(t, unpad(t, t.concat(results), n))
