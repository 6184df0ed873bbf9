"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .elementwise import where
from .emit import bare, builder, whole
from .errors import CompilationError
from .shapes import broadcast_to, interleave, permute, reshape
from .types import (
    bfloat16,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
    unwrap,
)
from .values import Tensor, convert, element_type, mul, tensor


def _product_type(a: dtype, b: dtype, out: dtype) -> dtype:
    """The type that products are added up in."""
    if a.is_int():
        if a.int_bitwidth != 8:
            raise CompilationError(f"dot takes integers of 8 bits only, not {a}")
        return int32
    if a == float64:
        return float64
    if out == bfloat16:
        raise CompilationError("dot gives float32 or float16; cast its result to bfloat16")
    return float16 if out == float16 and a == float16 else float32


def dot(
    input: Any, other: Any, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None, out_dtype: Any = float32,
) -> Tensor:  # fmt: skip
    """The product of matrices, or of as many matrices as the dims before the last two say.

    Parameters
    ----------
    input, other : tensor
        Of shapes (M, K) and (K, N), and as many dims before these.
    acc : tensor, optional
        What the product is added to.
    input_precision : str, optional
        How float32 is multiplied: "tf32" (by default), "tf32x3" or "ieee".
    max_num_imprecise_acc : int, optional
        How many products of 8-bit floats may be added up with less precision than float32's.
    out_dtype : dtype
        The result's, without acc.
    """
    a, b = tensor(input), tensor(other)
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise CompilationError(f"dot takes two blocks of two (or more) dims, not {a.type} and {b.type}")
    if len(a.shape) > 3:
        batch = a.shape[:-2]
        if b.shape[:-2] != batch:
            raise CompilationError(f"dot's operands have {list(batch)} and {list(b.shape[:-2])} matrices")
        count = int(np.prod(batch))
        first, second = (reshape(x, (count, *x.shape[-2:])) for x in (a, b))
        sums = None if unwrap(acc) is None else reshape(acc, (count, *acc.shape[-2:]))
        found = dot(first, second, sums, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return reshape(found, (*batch, *found.shape[-2:]))
    if a.dtype.is_ptr() or b.dtype.is_ptr():
        raise CompilationError(f"dot does not take pointers: {a.type} and {b.type}")
    narrow = (a.dtype.is_fp8() and b.dtype.is_fp8()) or {a.dtype.name, b.dtype.name} <= {"int8", "uint8"}
    if a.dtype != b.dtype and not narrow:
        raise CompilationError(f"dot takes blocks of one type, not {a.dtype} and {b.dtype}")
    k, (k2, n) = a.shape[-1], b.shape[-2:]
    if k != k2 or a.shape[:-2] != b.shape[:-2]:
        raise CompilationError(f"the shapes of dot's operands do not match: {list(a.shape)} and {list(b.shape)}")
    least = 32 if a.dtype.primitive_bitwidth == 8 else 16
    if k < least:
        raise CompilationError(
            f"dot of {a.dtype} needs K >= {least}, but the shapes are {list(a.shape)} and {list(b.shape)}"
        )
    wanted = element_type(out_dtype)
    type = _product_type(a.dtype, b.dtype, wanted)
    shape = (*a.shape[:-1], n)
    start = None
    if unwrap(acc) is not None:
        sums = tensor(acc)
        if sums.shape != shape:
            raise CompilationError(f"dot's acc has shape {list(sums.shape)}, and the product {list(shape)}")
        if sums.dtype == float16 and a.dtype == float16:
            type = float16
        wanted = sums.dtype if sums.dtype == float16 and a.dtype.is_fp8() else type
        if sums.dtype != wanted:
            raise CompilationError(f"dot's acc is {sums.dtype}, and the product {type}")
        start = whole(convert(sums, type).value, shape)
    imprecise = unwrap(max_num_imprecise_acc)
    if imprecise is not None and not (a.dtype.is_fp8() and b.dtype.is_fp8()):
        imprecise = None
    if imprecise is not None and imprecise > k:
        raise CompilationError(f"max_num_imprecise_acc is {imprecise}, more than K ({k})")
    precision = _precision(input_precision, allow_tf32) if a.dtype == float32 else None
    value = builder().dot(
        whole(a.value, a.shape), whole(b.value, b.shape), start, type.ir, precision, max_num_imprecise=imprecise
    )
    result = Tensor(bare(value), type, shape)
    return convert(result, wanted) if wanted.is_floating() and type.is_floating() else result


def _precision(input_precision: Any, allow_tf32: Any) -> str:
    chosen, allowed = unwrap(input_precision), unwrap(allow_tf32)
    if chosen is not None and allowed is not None:
        raise CompilationError("dot takes input_precision or allow_tf32, not both")
    if chosen is None:
        return "tf32" if allowed is None or allowed else "ieee"
    chosen = str(chosen).lower()
    if chosen in ("bf16x3", "bf16x6"):
        return "tf32x3"  # which is more precise
    if chosen not in ("tf32", "tf32x3", "ieee"):
        raise CompilationError(f"input_precision is 'tf32', 'tf32x3' or 'ieee', not {chosen!r}")
    return chosen


# -- with scales ------------------------------------------------------------------------------------------------------
_FORMATS = {"e2m1": None, "e4m3": float8e4nv, "e5m2": float8e5, "bf16": bfloat16, "fp16": float16}
#: Neighbours along K that share a scale.
_SHARING = 32


def dot_scaled(
    lhs: Tensor, lhs_scale: Any, lhs_format: Any, rhs: Tensor, rhs_scale: Any, rhs_format: Any, acc: Any = None,
    fast_math: Any = False, lhs_k_pack: Any = True, rhs_k_pack: Any = True, out_dtype: Any = float32,
) -> Tensor:  # fmt: skip
    """The product of matrices of which each 32 neighbours along K have a scale, a power of two.

    Parameters
    ----------
    lhs, rhs : tensor
        Of shapes (M, K) and (K, N).  Numbers of 4 bits lie two in a uint8.
    lhs_scale, rhs_scale : tensor or None
        Of shapes (M, K / 32) and (N, K / 32), uint8: the exponents, plus 127; 255 is NaN.
    lhs_format, rhs_format : str
        "e2m1", "e4m3", "e5m2", "bf16" or "fp16".
    acc : tensor, optional
        What the product is added to.
    lhs_k_pack, rhs_k_pack : bool
        Whether numbers of 4 bits that share a byte are neighbours along K, or along the other dim.
    """
    formats = [str(unwrap(f)).lower() for f in (lhs_format, rhs_format)]
    for f in formats:
        if f not in _FORMATS:
            raise CompilationError(f"a format of dot_scaled is one of {', '.join(_FORMATS)}, not {f!r}")
    common = float16 if "fp16" in formats else bfloat16
    a = _scaled(lhs, lhs_scale, formats[0], common, 1, bool(unwrap(lhs_k_pack)))
    b = _scaled(rhs, rhs_scale, formats[1], common, 0, bool(unwrap(rhs_k_pack)))
    return dot(a, b, acc, out_dtype=out_dtype)


def _scaled(x: Tensor, scale: Any, format: str, common: dtype, along: int, packed_along_k: bool) -> Tensor:
    """An operand times its scales; `along` is its dim K."""
    if len(x.shape) != 2:
        raise CompilationError(f"dot_scaled takes blocks of two dims, not {x.type}")
    wanted = _FORMATS[format]
    if wanted is None:
        x = _four_bits(x, along if packed_along_k else 1 - along)
    elif x.dtype in (uint8, int8) and wanted.primitive_bitwidth == 8:
        x = convert(x, wanted, bitcast=True)
    elif x.dtype != wanted:
        raise CompilationError(f"an operand of format {format} is {wanted}, not {x.dtype}")
    scale = unwrap(scale)
    if scale is None:
        return convert(x, common)
    count = x.shape[along]
    shape = (x.shape[1 - along], count // _SHARING)
    if scale.shape != shape or scale.dtype not in (uint8, int8):
        raise CompilationError(f"the scales of a {x.type} are uint8 of shape {list(shape)}, not {scale.type}")
    exponents = convert(scale, uint8, bitcast=True)
    power = convert(convert(exponents, uint16) << 7, bfloat16, bitcast=True)
    power = where(exponents == 255, float("nan"), convert(power, float32))
    power = reshape(broadcast_to(power[:, :, None], (*shape, _SHARING)), (shape[0], count))
    return convert(mul(convert(x, float32), power if along else permute(power, (1, 0))), common)


def _four_bits(x: Tensor, along: int) -> Tensor:
    """Numbers with two bits of exponent and one of mantissa, two in a byte along a dim, as float32."""
    if x.dtype not in (uint8, int8):
        raise CompilationError(f"numbers of 4 bits lie in uint8, not {x.dtype}")
    byte = convert(convert(x, uint8, bitcast=True), uint32)
    # The bits at their places in a float32 make numbers, subnormal ones among them, that are 2**126 times too small.
    bits = ((byte & 0x07) << 22) | ((byte & 0x08) << 28), ((byte & 0x70) << 18) | ((byte & 0x80) << 24)
    low, high = (convert(x, float32, bitcast=True) * 2.0**126 for x in bits)
    if along:
        return interleave(low, high)
    return permute(interleave(permute(low, (1, 0)), permute(high, (1, 0))), (1, 0))
