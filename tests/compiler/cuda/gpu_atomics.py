"""The emulator's atomic operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from .gpu_emulator import Emulator

_JOINS: dict[str, Callable[..., Any]] = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, new: new,
    "cas": lambda old, wanted, new: np.where(old == wanted, new, old),
}  # fmt: skip
_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def join(
    e: Emulator, text: str, address: np.ndarray, space: str, words: list[np.ndarray], active: np.ndarray
) -> np.ndarray:
    """Thread after thread, not in the order of their numbers; what each one found, 0 where a thread is not active."""
    found = re.search(r"(?:red|atom)\.\w+\.\w+\.\w+\.(\w+)\.(?:noftz\.)?(\w+)", text)
    assert found is not None, text
    name, kind = found.groups()
    dtype = np.dtype(_TYPES.get(kind) or {"s": "i", "b": "u"}.get(kind[0], kind[0]) + str(int(kind[1:]) // 8))
    size = dtype.itemsize
    who, places = e._places(address, space, size, active)
    memory = (e.memory.bytes if "(1)" in space else e.shared.reshape(-1)).view(dtype)
    old = np.zeros(e.count, dtype)
    values = [w.view(dtype) for w in words]
    for k in np.arange(len(who))[::-1]:
        place = places[k, 0] // size
        old[who[k]] = memory[place]
        memory[place] = _JOINS[name](memory[place], *(v[who[k]] for v in values))
    return old.view(words[0].dtype)
