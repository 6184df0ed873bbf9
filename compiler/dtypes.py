"""Element types: NumPy dtypes on arrays and expressions, short names in the block IR."""

from __future__ import annotations

import ml_dtypes
import numpy as np

#: IR name -> NumPy dtype.  The IR spells types as LLVM and Triton do.
NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128),
}  # fmt: skip
#: NumPy dtype -> IR name.
NUMPY_NAMES = {dtype: name for name, dtype in NUMPY.items()}

BOOL, INT64, FLOAT64, COMPLEX128 = NUMPY["bool"], NUMPY["i64"], NUMPY["f64"], NUMPY["c128"]
BFLOAT16 = NUMPY["bf16"]

SIZE = {name: dtype.itemsize for name, dtype in NUMPY.items()}
SIGNED = frozenset(("i8", "i16", "i32", "i64"))
UNSIGNED = frozenset(("u8", "u16", "u32", "u64"))
INTEGER = SIGNED | UNSIGNED
FLOAT8 = frozenset(("f8e4m3", "f8e5m2"))
#: Floats that are computed with as f32, and rounded after each operation.
NARROW = FLOAT8 | {"f16", "bf16"}
FLOAT = NARROW | {"f32", "f64"}
COMPLEX = frozenset(("c64", "c128"))
#: Types of 8 bits that products take as they are, and what these add up in.
ACCUMULATED = {"i8": "i32", "u8": "i32", "f8e4m3": "f32", "f8e5m2": "f32"}
#: The real type of a complex type's two parts.
PART = {"c64": "f32", "c128": "f64"}
_NARROW = frozenset(NUMPY[d] for d in NARROW)


def name(dtype: np.dtype) -> str:
    """The IR name of a NumPy dtype; TypeError for one that blockarray does not compute with."""
    try:
        return NUMPY_NAMES[dtype]
    except KeyError:
        raise TypeError(f"blockarray does not support dtype {dtype}") from None


def cast_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`x` converted as compiled code does: floats to integers truncate and saturate, NaN gives 0; no warnings."""
    with np.errstate(all="ignore"):
        return convert(x, dtype)


def convert(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """As `cast_array`, for callers that have turned NumPy's warnings off."""
    kind = x.dtype.kind
    if dtype == x.dtype:
        return x
    if kind == "c" and dtype.kind not in "cb":
        x, kind = np.real(x), "f"
    if dtype.kind not in "iu" or not (kind == "f" or x.dtype in _NARROW):
        return x.astype(dtype)
    info = np.iinfo(dtype)
    wide = np.trunc(x.astype(FLOAT64))
    # The bounds are exact in f64 except the upper ones of 64-bit types, which round up to 2**63 and 2**64.
    low, high = wide <= info.min, wide >= info.max
    inside = np.where(low | high | np.isnan(wide), 0, wide).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, inside).astype(dtype)).astype(dtype)
