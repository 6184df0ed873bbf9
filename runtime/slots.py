"""Argument blocks: one slot of 8 bytes a parameter, on every target (complex parameters take two)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

#: How a parameter lies in its slot, for `struct`.  It knows no f8 and bf16: these are integers of their bits.  The real
#: and the imaginary part of a complex number are two values.
FORMATS = {
    "pointer": "q", "bool": "?7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u8": "B7x", "u16": "H6x",
    "u32": "I4x", "u64": "Q", "f8e4m3": "B7x", "f8e5m2": "B7x", "f16": "e6x", "bf16": "H6x", "f32": "f4x", "f64": "d",
    "c64": "f4xf4x", "c128": "dd",
}  # fmt: skip


def layout(kinds: Iterable[str]) -> struct.Struct:
    """The block of parameters that are pointers, "pointer", or scalars of the block IR's dtypes."""
    return struct.Struct("=" + "".join([FORMATS[kind] for kind in kinds]))
