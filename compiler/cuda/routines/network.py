"""Sorting of very short rows by warps, in registers."""

from __future__ import annotations

from functools import cache

from ... import dtypes
from ...llvm.text import V
from ..codegen import Code
from . import keys
from .builder import Builder, predicated_store

#: Elements of a row that a warp sorts.
LONGEST = 256
THREADS = 128


def lanes(bucket: int) -> int:
    """Lanes that share a row."""
    return min(bucket, 32)


@cache
def network(dtype: str, descending: bool, bucket: int, with_keys: bool, result: str | None) -> Code:
    """Rows of at most `bucket` elements (a power of two up to 256), each sorted by a bitonic network over some lanes.

    What is sorted is the key with its position, so the order is stable and elements beyond the row's end come last.
    """
    width = lanes(bucket)
    held = bucket // width
    bits = keys.bits(dtype)
    parameters = [("x", "ptr")]
    parameters += [("y", "ptr")] if with_keys else []
    parameters += [("q", "ptr")] if result else []
    parameters += [("n", "i64"), ("rows", "i64")]
    k = Builder(parameters, THREADS)
    p = k.parameters
    lane = k.and_(k.tid, width - 1)
    row = k.add(
        k.mul(k.zext(k.program(), "i64"), THREADS // width), k.zext(k.shr(k.tid, width.bit_length() - 1), "i64")
    )
    here = k.is_("slt", row, p["rows"])
    n = k.trunc(p["n"], "i32")
    start = k.mul(row, p["n"])
    places = [k.add(lane, r * width) for r in range(held)]
    inside = [k.and_(here, k.is_("slt", place, n)) for place in places]
    x = k.at(p["x"], start, bits // 8)

    elements = []
    for place, valid in zip(places, inside):
        raw = k.variable(0, keys.word(dtype))
        with k.if_(valid):
            k.set(raw, k.read(x, place, bits))
        key = k.choose(valid, keys.ordered(k, k.get(raw), dtype, descending), -1)
        elements.append(_pack(k, key, place, bits))

    size = 2
    while size <= bucket:
        distance = size // 2
        while distance:
            _exchange(k, elements, lane, width, size, distance, last=size == bucket)
            distance //= 2
        size *= 2

    for place, valid, element in zip(places, inside, elements):
        position = _position(k, element, bits)
        to = k.add(start, k.zext(place, "i64"))
        if with_keys:
            raw = k.variable(0, keys.word(dtype))
            with k.if_(valid):
                k.set(raw, k.read(x, position, bits))
            predicated_store(k, k.at(p["y"], to, bits // 8), k.get(raw), bits, valid)
        if result:
            nbytes = dtypes.SIZE[result]
            predicated_store(k, k.at(p["q"], to, nbytes), position, nbytes * 8, valid)
    return k.code()


def _pack(k: Builder, key: V, place: V, bits: int) -> list[V]:
    """A key and its place as integers, the most significant first."""
    if bits == 64:
        return [key, place]
    if bits == 32:
        return [k.or_(k.shl(k.zext(key, "i64"), 32), k.zext(place, "i64"))]
    return [k.or_(k.shl(key, 16), place)]


def _position(k: Builder, element: list[V], bits: int) -> V:
    low = element[-1]
    return low if bits == 64 else k.and_(k.resize(low, "i32"), 0xFFFF)


def _less(k: Builder, a: list[V], b: list[V]) -> V:
    less = k.is_("ult", a[0], b[0])
    if len(a) == 1:
        return less
    return k.or_(less, k.and_(k.is_("eq", a[0], b[0]), k.is_("ult", a[1], b[1])))


def _exchange(k: Builder, elements: list[list[V]], lane: V, width: int, size: int, distance: int, last: bool) -> None:
    """One step of the network: put places whose numbers differ in the bit `distance` in order.

    The order is ascending where the bit `size` of the number is clear (in the last phase: everywhere).
    """

    def bit(which: int, r: int) -> V | bool:
        if which >= width:
            return bool(r * width & which)
        return k.is_("ne", k.and_(lane, which), 0)

    if distance >= width:
        step = distance // width
        for r in range(len(elements)):
            if r & step:
                continue
            a, b = elements[r], elements[r + step]
            wrong = _less(k, b, a)
            if not last and bit(size, r):  # a register's: size exceeds distance
                wrong = k.xor(wrong, True)
            elements[r] = [k.choose(wrong, v, u) for u, v in zip(a, b)]
            elements[r + step] = [k.choose(wrong, u, v) for u, v in zip(a, b)]
        return
    upper = bit(distance, 0)
    for r, own in enumerate(elements):
        other = [k.shuffle_xor(v, distance) for v in own]
        greater = upper  # whether this lane keeps the greater one
        if not last:
            flip = bit(size, r)
            if isinstance(flip, V) or flip:
                greater = k.xor(greater, flip)  # type: ignore[arg-type]
        take = k.xor(_less(k, other, own), greater)  # type: ignore[arg-type]
        elements[r] = [k.choose(take, v, u) for u, v in zip(own, other)]
