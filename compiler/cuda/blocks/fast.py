"""Elementwise ops as the language has them: floats of 32 bits by the hardware's approximations where others do so."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ir import Op
from ...llvm import library
from ...llvm.convert import Register
from ...llvm.text import Text, V
from ..memory import parts

if TYPE_CHECKING:
    from .codegen import Codegen, Tile


def _call(t: Text, name: str, *args: V) -> V:
    return t.call(f"llvm.nvvm.{name}", args[0].ty, args, library.PURE)


def _exp(t: Text, x: V) -> V:
    return _call(t, "ex2.approx.f", t.bin("fmul", x, t.const(numbers.log2(numbers.e), "float")))


#: Within two units in the last place or so, of f32.
_APPROXIMATE: dict[str, Callable[..., V]] = {
    "exp": _exp,
    "exp2": lambda t, x: _call(t, "ex2.approx.ftz.f", x),
    "rsqrt": lambda t, x: _call(t, "rsqrt.approx.f", x),
    "divide": lambda t, a, b: _call(t, "div.full", a, b),
    "sqrt": lambda t, x: _call(t, "sqrt.approx.f", x),
}


#: A product and a sum that it goes into are rounded once.
_CONTRACTED = {"add": "fadd", "subtract": "fsub", "multiply": "fmul"}


def emit(code: Codegen, op: Op, args: Sequence[Register], given: Sequence[str], out: str) -> Register | None:
    """An op that has code of its own here, or None."""
    t, name = code.t, op.name
    if out == "f32" and given[0] == "f32" and name in _APPROXIMATE and not op.attrs.get("exact"):
        return _APPROXIMATE[name](t, *args)
    if given[0] in ("i32", "u32") and name in ("umulhi", "multiply"):
        return _half(code, op, *[v for x in args for v in parts(x)])
    if out in ("f32", "f64") and name in _CONTRACTED and code.kernel.attrs.get("enable_fp_fusion", True):
        a, b = (v for x in args for v in parts(x))
        return t.op(f"{_CONTRACTED[name]} contract {a}, {b.ref}", a.ty)
    return None


def _half(code: Codegen, op: Op, a: V, b: V) -> V | None:
    """Half of a product of 64 bits, of which both may be asked for, as by random numbers."""
    t, upper = code.t, op.name == "umulhi"
    if not upper and frozenset(op.operands) not in code.doubled:
        return None
    key = "product", t.block, code.level, frozenset((a.ref, b.ref))
    if key not in code.made:
        code.made[key] = t.bin("mul", t.cast("zext", a, "i64"), t.cast("zext", b, "i64"))
    wide = code.made[key]
    return t.cast("trunc", t.bin("lshr", wide, V("32", "i64")) if upper else wide, "i32")


def elements(code: Codegen, op: Op, operands: Sequence[Tile]) -> Tile:
    """An elementwise op on all of a thread's elements."""
    return [code.element(op, args) for args in zip(*operands, strict=True)]
