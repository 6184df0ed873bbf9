"""Tensor maps, by which the copy engine finds boxes of an array, as a kernel's last arguments."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from operator import itemgetter
from typing import Any

from . import driver

#: Bytes of a map.
NBYTES = 128
#: The driver's name of each dtype, and bytes of an element.
KINDS = {
    **dict.fromkeys(("i8", "u8", "f8e4m3", "f8e5m2"), ("UINT8", 1)), "f16": ("FLOAT16", 2), "bf16": ("BFLOAT16", 2),
    "i32": ("INT32", 4), "u32": ("UINT32", 4), "f32": ("FLOAT32", 4), "f64": ("FLOAT64", 8),
}  # fmt: skip


#: Maps that a kernel remembers of each of its arrays.
_KNOWN = 256


class TensorMaps:
    """The maps that a kernel's header describes, which follow its arguments in slots of 8 bytes."""

    __slots__ = ("block", "slots", "array", "address", "used", "last", "maps")

    def __init__(self, specs: list[dict[str, Any]], block: Any, nbytes: int) -> None:
        count = nbytes // 8
        self.block = block
        self.slots = struct.Struct(f"{count}q")
        #: Pointers to each of the kernel's arguments.
        self.array = (ctypes.c_void_p * (count + len(specs)))(*[ctypes.addressof(block) + 8 * k for k in range(count)])
        self.address = ctypes.addressof(self.array)
        uses = [_slots(spec) for spec in specs]
        #: The arguments that the maps are made of, and their values when the pointers were last set.
        self.used = itemgetter(*[s for use in uses for s in use])
        self.last: Any = None
        #: Of each map: its place among the pointers, the arguments that it is made of, and the maps made of such.
        self.maps: list[tuple[int, dict[str, Any], itemgetter[Any], dict[Any, Any]]] = [
            (count + k, spec, itemgetter(*use), {}) for k, (spec, use) in enumerate(zip(specs, uses))
        ]

    def pointers(self) -> int:
        """Address of an array of pointers to each of the kernel's arguments: those in the block, and their maps.

        Raises
        ------
        RuntimeError
            If the driver refuses a map.
        """
        slots = self.slots.unpack_from(self.block)
        used = self.used(slots)
        if used != self.last:
            self.last = None
            for place, spec, use, known in self.maps:
                values = use(slots)
                made = known.get(values)
                if made is None:
                    if len(known) >= _KNOWN:
                        known.clear()
                    made = known[values] = _map(spec, slots)
                self.array[place] = ctypes.addressof(made)
            self.last = used
        return self.address


def _map(spec: dict[str, Any], slots: tuple[int, ...]) -> Any:
    """Memory that holds a map of these arguments."""
    # Rows that begin anywhere and lie a stride apart, or an array.
    far = spec.get("far")
    sizes = (far, *spec["box"][1:]) if far else tuple([slots[s] for s in spec["sizes"]])
    if min(sizes) < 1:  # nothing is read
        return ctypes.create_string_buffer(NBYTES)
    strides = tuple([s["value"] if isinstance(s, dict) else slots[s] for s in spec["strides"]])
    made = _encode(spec["dtype"], slots[spec["pointer"]], sizes, strides, tuple(spec["box"]))
    return ctypes.create_string_buffer(made, NBYTES)


def _slots(spec: dict[str, Any]) -> list[int]:
    """The slots of the arguments that a map is made of; a dict stands for a number that is known."""
    given = (spec["pointer"], *spec.get("sizes", ()), *spec["strides"])
    return [s for s in given if not isinstance(s, dict)]


@lru_cache(maxsize=1024)
def _encode(dtype: str, pointer: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    """A map of an array with contiguous rows; `strides` are of the other dims, in elements."""
    api = driver.api
    kind = getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{KINDS[dtype][0]}")
    size = KINDS[dtype][1]
    # Panels of 16 bits have rows as long as the swizzle, of 128 bytes or less.
    swizzle = {64: "64B", 32: "32B"}.get(size * box[0], "128B")
    status, made = api.cuTensorMapEncodeTiled(
        kind, len(sizes), pointer,
        [api.cuuint64_t(n) for n in sizes], [api.cuuint64_t(size * n) for n in strides],
        [api.cuuint32_t(n) for n in box], [api.cuuint32_t(1)] * len(sizes),
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    if status:
        raise RuntimeError(f"cannot describe an array of {sizes} elements, strides {strides}, to the GPU: {status}")
    return ctypes.string_at(made.getPtr(), NBYTES)
