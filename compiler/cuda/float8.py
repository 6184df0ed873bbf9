"""Floats of 8 bits (e4m3) by instructions that convert two at once, of compute capability 8.9 on."""

from __future__ import annotations

from collections.abc import Sequence

from ..llvm.text import Text, V

DTYPE = "f8e4m3"
#: From here on a float is no more than half a step beyond the largest number, which the instruction gives instead.
_BEYOND = 464.0


def rounded(t: Text, v: V) -> V:
    """A float rounded to an e4m3."""
    return _floats(t, _pair(t, v, t.const(0.0, "float")))[0]


def packed(t: Text, values: Sequence[V], word: str) -> list[V]:
    """Floats as e4m3s in words."""
    if word == "i8":
        return [t.cast("trunc", _pair(t, v, t.const(0.0, "float")), "i8") for v in values]
    pairs = [_pair(t, low, high) for low, high in zip(values[::2], values[1::2], strict=True)]
    if word == "i16":
        return pairs
    halves = [t.cast("zext", p, word) for p in pairs]
    return [t.bin("or", a, t.bin("shl", b, V("16", word))) for a, b in zip(halves[::2], halves[1::2], strict=True)]


def unpacked(t: Text, word: V, count: int) -> list[V]:
    """The first floats of e4m3s in a word."""
    found: list[V] = []
    bits = word if word.ty == "i32" else t.cast("zext", word, "i32")
    for first in range(0, count, 2):
        pair = word if not first else t.bin("lshr", word, V(str(8 * first), word.ty))
        found += _floats(t, t.cast("zext" if word.ty == "i8" else "trunc", pair, "i16"))
    return [_signed(t, v, bits, 24 - 8 * k) for k, v in enumerate(found[:count])]


def _signed(t: Text, v: V, bits: V, left: int) -> V:
    """A float with the sign in `bits`, so far from the left end: the instruction makes every NaN positive."""
    sign = t.bin("shl", bits, V(str(left), "i32")) if left else bits
    return t.intrinsic("copysign", v, t.cast("bitcast", sign, "float"))


def _floats(t: Text, pair: V) -> list[V]:
    both = t.op(f'call i32 asm "cvt.rn.f16x2.e4m3x2 $0, $1;", "=r,h"({pair})', "i32")
    halves = t.op(f"bitcast {both} to <2 x half>", "<2 x half>")
    return [t.cast("fpext", t.extract(halves, k), "float") for k in range(2)]


def _pair(t: Text, low: V, high: V) -> V:
    """Two floats as e4m3s in 16 bits; what is beyond the largest number is a NaN."""
    low, high = (_finite(t, v) for v in (low, high))
    return t.op(f'call i16 asm "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "=h,f,f"({high}, {low})', "i16")


def _finite(t: Text, v: V) -> V:
    if not v.ref.startswith("%"):
        return v
    beyond = t.cmp("ogt", t.intrinsic("fabs", v), t.const(_BEYOND, "float"))
    return t.select(beyond, t.const(float("nan"), "float"), v)
