"""The emulator's instructions of whole warps: fragments of matrices, their products; and asynchronous copies."""

from __future__ import annotations

import re
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


def copied(e: Emulator, source: np.ndarray, width: int, nbytes: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """What cp.async copies: `width` words, of which the first `nbytes` (none or all) are read and the others zero."""
    some = mask & (nbytes > 0)
    words = np.zeros((e.count, width), np.int32)
    words[some] = e._load(source, "ptr addrspace(1)", "i32", width, some)[some]
    return words


def wgmma(e: Emulator, text: str, args: list[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    """Asynchronous products of four warps, which are done at once: panels in shared memory, by descriptors, or rows in
    registers."""
    sums = [a.copy() for a in args if a.dtype == np.float32]
    # Operands are numbered after the results.
    first = len(re.search(r"\{\$0.*?\}", text)[0].split(",")) if "m64n" in text else 0  # type: ignore[index]
    sums = sums or [np.zeros(e.count, np.float32) for _ in range(first)]
    groups = np.flatnonzero(mask.reshape(-1, 128).all(1))
    assert mask.reshape(-1, 128).any(1).sum() == len(groups), "a product by a part of its threads"
    thread = np.arange(128)
    row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    addition = r"add\.s64 (\w+), \$(\d+), (\d+);"
    product = r"\.m64n(\d+)k16\.f32\.(\w+)\.\w+ \{.*?\}, (\w+|\{.*?\}), (\w+), ([pq]), 1, 1, (.*?);"
    added: dict[str, tuple[np.ndarray, int]] = {}
    for m in re.finditer(f"{addition}|{product}", text):
        if m[1]:
            added[m[1]] = args[int(m[2]) - first], int(m[3])
            continue
        columns, kind, trans = int(m[4]), m[5], m[9].split(", ")
        for group in groups.tolist():
            own = slice(group * 128, group * 128 + 128)
            program = own.start // e.block
            place = {name: int(where[own.start]) + step for name, (where, step) in added.items()}
            words = re.findall(r"\$(\d+)", m[6])
            if words:
                a = np.zeros((64, 16), np.float32)
                for i, word in enumerate(words):
                    pairs = _halves(args[int(word) - first][own], kind == "bf16").reshape(128, 2)
                    for half in range(2):
                        a[row + i % 2 * 8, column + i // 2 * 8 + half] = pairs[:, half]
            else:
                a = _panel(e, program, place[m[6]], 64, trans[0] == "1", kind)
            found = a @ _panel(e, program, place[m[7]], columns, trans[-1] == "1", kind).T
            for k, total in enumerate(sums):
                new = found[row + k // 2 % 2 * 8, column + k // 4 * 8 + k % 2]
                total[own] = total[own] + new if m[8] == "p" else new
    return sums


def _panel(e: Emulator, block: int, descriptor: int, lines: int, across: bool, kind: str) -> np.ndarray:
    """`lines` by 16 elements of a panel with the swizzle of 128 bytes."""
    assert descriptor >> 62 & 3 == 1
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    line, k = np.arange(lines)[:, None], np.arange(16)[None]
    if across:
        address = start + line // 64 * leading + line % 64 * 2 + k // 8 * stride + k % 8 * 128
    else:
        address = start + line // 8 * stride + line % 8 * 128 + k * 2
    address ^= (address >> 7 & 7) << 4
    who, places = np.full(1, block * e.block), (address.reshape(1, -1) + block * e.shared.shape[1])
    e._note("load", "(3)", who, np.concatenate([places, places + 1], 1))
    raw = e.shared[block]
    bits = raw[address].astype(np.uint16) | raw[address + 1].astype(np.uint16) << 8
    return _halves(bits.reshape(-1, 2), kind == "bf16").reshape(lines, 16)


def any_of_group(e: Emulator, value: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """bar.red.or of four warps."""
    groups = mask.reshape(-1, 128)
    assert (groups.all(1) | ~groups.any(1)).all(), "a barrier that not all threads reach"
    e.epoch[np.unique(np.flatnonzero(mask) // e.threads)] += 1
    return np.repeat((value.reshape(-1, 128) != 0).any(1), 128).astype(np.int32)


def multiply_doubles(text: str, args: list[np.ndarray]) -> list[np.ndarray]:
    """mma of f64: 8 or 16 rows times 8 columns."""
    shape = re.search(r"m(\d+)n8k(\d+)", text)
    assert shape is not None
    rows, depth = map(int, shape.groups())
    lane = np.arange(32)
    row, column = lane // 4, lane % 4
    warps = len(args[0]) // 32
    a, b = np.zeros((warps, rows, depth)), np.zeros((warps, depth, 8))
    halves, count = rows // 8, rows * depth // 32
    for i, x in enumerate(args[:count]):
        a[:, row + i % halves * 8, column + i // halves * 4] = x.reshape(-1, 32)
    for i, x in enumerate(args[count : count + depth // 4]):
        b[:, column + i * 4, row] = x.reshape(-1, 32)
    product = a @ b
    sums = args[count + depth // 4 :]
    return [x + product[:, row + i // 2 * 8, column * 2 + i % 2].reshape(-1) for i, x in enumerate(sums)]
