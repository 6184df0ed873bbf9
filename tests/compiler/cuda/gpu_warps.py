"""The emulator's instructions of whole warps: fragments of matrices, their products; and asynchronous copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .gpu_emulator import Emulator


def load_fragments(e: Emulator, address: np.ndarray, mask: np.ndarray, transposed: bool) -> list[np.ndarray]:
    """ldmatrix: four matrices of 8 by 8 elements of 16 bits; lane 8 i + r tells where row r of matrix i lies."""
    warps = mask.reshape(-1, 32)
    assert (warps.all(1) | ~warps.any(1)).all(), "fragments loaded by a part of a warp"
    rows = e._load(address, "ptr addrspace(3)", "i16", 8, mask).reshape(-1, 4, 8, 8)
    if transposed:
        rows = rows.transpose(0, 1, 3, 2)
    pairs = np.ascontiguousarray(rows).reshape(-1, 4, 32, 2).view(np.int32)[..., 0]
    return [pairs[:, i].reshape(-1) for i in range(4)]


def _halves(x: np.ndarray, bf16: bool) -> np.ndarray:
    """Two numbers of each word, by warp and lane."""
    bits = np.ascontiguousarray(x).view(np.uint16).reshape(-1, 32, 2)
    if bf16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(np.float16).astype(np.float32)


def multiply_fragments(args: list[np.ndarray], bf16: bool) -> list[np.ndarray]:
    """mma.m16n8k16: 16 by 16 elements times 16 by 8, plus 16 by 8 sums."""
    lane = np.arange(32)
    row, column = lane // 4, lane % 4 * 2
    warps = len(args[0]) // 32
    a, b = np.zeros((warps, 16, 16), np.float32), np.zeros((warps, 16, 8), np.float32)
    for i, x in enumerate(args[:6]):
        for half in range(2):
            y = _halves(x, bf16)[..., half]
            if i < 4:
                a[:, row + i % 2 * 8, column + i // 2 * 8 + half] = y
            else:
                b[:, column + (i - 4) * 8 + half, row] = y
    product = a @ b
    return [x + product[:, row + i // 2 * 8, column + i % 2].reshape(-1) for i, x in enumerate(args[6:])]


def copy(e: Emulator, to: np.ndarray, source: np.ndarray, nbytes: np.ndarray, mask: np.ndarray) -> None:
    """cp.async of 16 bytes, of which the first `nbytes` (0 or 16) are read and the others zero."""
    some = mask & (nbytes > 0)
    words = np.zeros((e.count, 4), np.int32)
    words[some] = e._load(source, "ptr addrspace(1)", "i32", 4, some)[some]
    e._store(words, to, "ptr addrspace(3)", mask)
