"""Elements as unsigned integers in the same order."""

from __future__ import annotations

from ... import dtypes
from ...llvm.text import V
from .builder import Builder

#: Bits of an infinity, or of the largest number where there is none; a larger magnitude is a NaN.
_INFINITY = {
    "f8e4m3": 0x7E, "f8e5m2": 0x7C, "f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000,
}  # fmt: skip


def bits(dtype: str) -> int:
    """Bits of an element in memory."""
    return dtypes.SIZE[dtype] * 8


def word(dtype: str) -> str:
    """The integer type that holds an element in registers."""
    return "i64" if bits(dtype) == 64 else "i32"


def ordered(k: Builder, raw: V, dtype: str, descending: bool = False) -> V:
    """An element's place in the order: NaNs are equal and the largest, zeros are equal."""
    n = bits(dtype)
    sign, ones = 1 << (n - 1), (1 << n) - 1
    if dtype == "bool":
        v, ones = k.zext(k.is_("ne", raw, 0), "i32"), 1
    elif dtype in dtypes.UNSIGNED:
        v = raw
    elif dtype in dtypes.SIGNED:
        v = k.xor(raw, sign)
    elif dtype == "f32":
        # The addition makes -0.0 positive, and any NaN the one of all bits but the sign.
        v = k.asm("add.rn.f32 $0, $1, 0f00000000;", "float", k.op(f"bitcast {raw} to float", "float"))
        v = k.op(f"bitcast {v} to i32", "i32")
        v = k.xor(v, k.or_(k.sar(v, 31), sign))
    else:
        magnitude = k.and_(raw, sign - 1)
        v = k.choose(k.is_("ne", k.and_(raw, sign), 0), k.xor(raw, ones), k.or_(raw, sign))
        v = k.choose(k.is_("eq", magnitude, 0), sign, v)
        v = k.choose(k.is_("ugt", magnitude, _INFINITY[dtype]), ones, v)
    return k.xor(v, ones) if descending else v
