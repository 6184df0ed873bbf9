"""Tensor maps, by which the copy engine finds boxes of an array, behind a kernel's arguments."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

from . import driver

#: Bytes of a map, and what its place among the arguments is a multiple of.
NBYTES, ALIGNMENT = 128, 64


def room(arguments: int, count: int) -> ctypes.Array[ctypes.c_char]:
    """A block for `arguments` bytes of arguments and `count` maps."""
    return ctypes.create_string_buffer(_start(arguments) + count * NBYTES)


def write(block: ctypes.Array[ctypes.c_char], arguments: int, maps: list[dict[str, Any]]) -> None:
    """Make the maps that a kernel's header describes from the arguments in the block, and put them there.

    Raises
    ------
    RuntimeError
        If the driver refuses one.
    """
    slots = struct.unpack_from(f"{arguments // 8}q", block)
    start = _start(arguments)
    for k, spec in enumerate(maps):
        sizes = tuple([slots[s] for s in spec["sizes"]])
        if min(sizes) > 0:  # else nothing is read
            strides = tuple([slots[s] for s in spec["strides"]])
            made = _encode(spec["dtype"], slots[spec["pointer"]], sizes, strides, tuple(spec["box"]))
            ctypes.memmove(ctypes.addressof(block) + start + k * NBYTES, made, NBYTES)


def _start(arguments: int) -> int:
    return -(-arguments // ALIGNMENT) * ALIGNMENT


@lru_cache(maxsize=1024)
def _encode(dtype: str, pointer: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    """A map of an array of 16-bit elements with contiguous rows; `strides` are of the other dims, in elements."""
    api = driver.api
    kinds = api.CUtensorMapDataType
    kind = {"f16": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, "bf16": kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}[dtype]
    status, made = api.cuTensorMapEncodeTiled(
        kind, len(sizes), pointer,
        [api.cuuint64_t(n) for n in sizes], [api.cuuint64_t(2 * n) for n in strides],
        [api.cuuint32_t(n) for n in box], [api.cuuint32_t(1)] * len(sizes),
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    if status:
        raise RuntimeError(f"cannot describe an array of {sizes} elements, strides {strides}, to the GPU: {status}")
    return ctypes.string_at(made.getPtr(), NBYTES)
