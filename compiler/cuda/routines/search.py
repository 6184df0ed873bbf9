"""Binary search."""

from __future__ import annotations

from functools import cache

from ... import dtypes
from ..codegen import Code
from . import keys
from .builder import Builder
from .routine import Launch, Pointer, Routine

THREADS = 256


@cache
def kernel(dtype: str, right: bool, sorter: bool, result: str) -> Code:
    """One value a thread."""
    bits = keys.bits(dtype)
    parameters = [("a", "ptr")]
    parameters += [("order", "ptr")] if sorter else []
    parameters += [("v", "ptr"), ("q", "ptr"), ("n", "i64"), ("m", "i64")]
    k = Builder(parameters, THREADS)
    p = k.parameters
    i = k.add(k.mul(k.zext(k.program(), "i64"), THREADS), k.zext(k.tid, "i64"))
    with k.if_(k.is_("slt", i, p["m"])):
        value = keys.ordered(k, k.read(p["v"], i, bits), dtype)
        low, length = k.variable(0, "i64"), k.variable(p["n"])
        with k.while_(lambda: k.is_("sgt", k.get(length), 0)):
            half = k.shr(k.get(length), 1)
            middle = k.add(k.get(low), half)
            at = k.read(p["order"], middle, 64) if sorter else middle
            key = keys.ordered(k, k.read(p["a"], at, bits), dtype)
            behind = k.is_("ule" if right else "ult", key, value)
            k.set(low, k.choose(behind, k.add(middle, 1), k.get(low)))
            k.set(length, k.choose(behind, k.sub(k.sub(k.get(length), half), 1), half))
        k.write(p["q"], i, k.get(low), dtypes.SIZE[result] * 8)
    return k.code()


def searchsorted(
    dtype: str, n: int, m: int, *, right: bool = False, sorter: bool = False, result: str = "i64"
) -> Routine:
    """Where `m` values belong in a sorted vector of `n` elements: before equal ones, or behind them (`right`).

    The operands are "a", the vector; "sorter", the positions (i64, each within it) that sort it, if asked for; "v", the
    values; and "positions".
    """
    if not m:
        return Routine(())
    order: tuple[int | Pointer, ...] = (Pointer("sorter"),) if sorter else ()
    arguments = (Pointer("a"), *order, Pointer("v"), Pointer("positions"), n, m)
    return Routine((Launch(kernel(dtype, right, sorter, result), -(-m // THREADS), arguments),))
