"""The emulator's instructions of whole warps: fragments of matrices, their products; and asynchronous copies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import ml_dtypes
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


#: Element types by the names that instructions have for them.
_TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


def _numbers(x: np.ndarray, kind: str) -> np.ndarray:
    """The elements of words, in a type of 32 bits."""
    if kind == "tf32":
        return (x.view(np.uint32) & 0xFFFFE000).view(np.float32)
    found = x.view(_TYPES[kind])
    return found.astype(np.int32 if kind in ("s8", "u8") else np.float32)


def converted(text: str, args: list[np.ndarray]) -> np.ndarray:
    """Two floats as e4m3s, or such ones as halves; every NaN becomes the one of all bits but the sign."""
    kind = _TYPES["e4m3"]
    if text.startswith("cvt.rn.f16x2.e4m3x2"):
        halves = args[0].view(kind).astype(np.float16)
        return np.where(np.isnan(halves), np.uint16(0x7FFF), halves.view(np.uint16)).view(np.int32)
    high, low = (np.where(np.isnan(x), 0x7F, np.clip(x, -448, 448).astype(kind).view(np.uint8)) for x in args)
    return np.stack([low, high], -1).astype(np.uint8).view(np.int16)[:, 0]


def multiply_fragments(text: str, args: list[np.ndarray]) -> list[np.ndarray]:
    """mma.m16n8: 16 rows of 32 bytes times 8 columns of 32 bytes, plus 16 by 8 sums."""
    shape = re.search(r"m16n8k(\d+)\.row\.col\.\w+\.(\w+)\.(\w+)\.", text)
    assert shape is not None
    depth, kinds = int(shape[1]), (shape[2], shape[3])
    each = depth // 8
    lane = np.arange(32)
    row, column = lane // 4, lane % 4
    warps = len(args[0]) // 32
    a, b = np.zeros((warps, 16, depth), args[6].dtype), np.zeros((warps, depth, 8), args[6].dtype)
    for i, x in enumerate(args[:6]):
        y = _numbers(np.ascontiguousarray(x), kinds[i // 4]).reshape(warps, 32, each)
        for part in range(each):
            if i < 4:
                a[:, row + i % 2 * 8, column * each + i // 2 * depth // 2 + part] = y[..., part]
            else:
                b[:, column * each + (i - 4) * depth // 2 + part, row] = y[..., part]
    product = a @ b
    return [x + product[:, row + i // 2 * 8, column * 2 + i % 2].reshape(-1) for i, x in enumerate(args[6:])]


def copied(e: Emulator, source: np.ndarray, width: int, nbytes: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """What cp.async copies: `width` words, of which the first `nbytes` bytes are read and the others zero."""
    words = np.zeros((e.count, width), np.int32)
    assert (source[mask & (nbytes > 0)] % (4 * width) == 0).all(), "a copy from an odd address"
    whole = mask & (nbytes == 4 * width)
    words[whole] = e._load(source, "ptr addrspace(1)", "i32", width, whole)[whole]
    for k in range(4 * width):
        some = mask & ~whole & (nbytes > k)
        words.view(np.int8)[some, k] = e._load(source + k, "ptr addrspace(1)", "i8", 1, some)[some, 0]
    return words


def wgmma(e: Emulator, text: str, args: list[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    """Asynchronous products of four warps, which are done at once: panels in shared memory, by descriptors, or rows in
    registers."""
    if "mma_async" not in text:
        return _with_own(e, text, [a.copy() for a in args], mask)
    held = np.int32 if ".s32." in text or all(a.dtype == np.int32 for a in args) else np.float32
    sums = [a.copy() for a in args if a.dtype == held]
    # Operands are numbered after the results.
    results = re.findall(r"m64n\S+ \{.*?\$(\d+)\}", text)
    first = max(map(int, results), default=-1) + 1
    sums = sums or [np.zeros(e.count, np.float32) for _ in range(first)]
    first = first or len(sums)
    groups = np.flatnonzero(mask.reshape(-1, 128).all(1))
    assert mask.reshape(-1, 128).any(1).sum() == len(groups), "a product by a part of its threads"
    thread = np.arange(128)
    row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    added: dict[str, tuple[np.ndarray, int]] = {}
    for step in _steps(text):
        if isinstance(step, Added):
            added[step.name] = args[step.operand - first], step.nbytes
            continue
        totals = e.own if step.own else sums
        for group in groups.tolist():
            own = slice(group * 128, group * 128 + 128)
            program = own.start // e.block
            place = {name: int(where[own.start]) + nbytes for name, (where, nbytes) in added.items()}
            if step.words:
                held_a = [_numbers(args[word - first][own], step.kinds[0]).reshape(128, -1) for word in step.words]
                each = held_a[0].shape[1]
                a = np.zeros((64, 8 * each), held_a[0].dtype)
                for i, some in enumerate(held_a):
                    for k in range(each):
                        a[row + i % 2 * 8, thread % 4 * each + i // 2 * 4 * each + k] = some[:, k]
            else:
                a = _panel(e, program, place[step.a], 64, step.across[0], step.kinds[0])
            found = a @ _panel(e, program, place[step.b], step.columns, step.across[1], step.kinds[1]).T
            for k, total in enumerate(totals[step.start : step.start + step.columns // 2]):
                new = found[row + k // 2 % 2 * 8, column + k // 4 * 8 + k % 2]
                total[own] = total[own] + new if step.adds else new
    return _with_own(e, text, sums, mask)


class Added(NamedTuple):
    """A descriptor: an operand and so many bytes."""

    name: str
    operand: int
    nbytes: int


class Product(NamedTuple):
    """One product of a sequence: its sums begin at register `start`, of those that only the assembler knows if `own`.

    The first operand is `words` in registers or the panel `a`.
    """

    columns: int
    kinds: tuple[str, str]
    own: bool
    start: int
    words: tuple[int, ...]
    a: str
    b: str
    adds: bool
    across: tuple[bool, bool]


_ADDITION = r"add\.s64 (\w+), \$(\d+), (\d+);"
_PRODUCT = r"\.m64n(\d+)k\d+\.\w+\.(\w+)\.(\w+) \{([$f]\d+).*?\}, (\w+|\{.*?\}), (\w+), ([pq])(?:, 1, 1)?(.*?);"


@lru_cache(256)
def _steps(text: str) -> list[Added | Product]:
    found: list[Added | Product] = []
    for m in re.finditer(f"{_ADDITION}|{_PRODUCT}", text):
        if m[1]:
            found.append(Added(m[1], int(m[2]), int(m[3])))
            continue
        words = tuple(map(int, re.findall(r"\$(\d+)", m[8])))
        trans = m[11].split(", ")
        across = "1" in trans[-2:-1], trans[-1] == "1"
        own, start = m[7][0] != "$", int(m[7][1:])
        found.append(Product(int(m[4]), (m[5], m[6]), own, start, words, m[8], m[9], m[10] == "p", across))
    return found


def _with_own(e: Emulator, text: str, sums: list[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    """Sums to which registers are added that only the assembler knows."""
    for total, number in re.findall(r"add\.f32 \$(\d+), \$\1, f(\d+);", text):
        sums[int(total)][mask] += e.own[int(number)][mask]
    return sums


def _panel(e: Emulator, block: int, descriptor: int, lines: int, across: bool, kind: str) -> np.ndarray:
    """`lines` by 32 bytes of a panel, with a swizzle of 128, 64 or 32 bytes."""
    address = _places(descriptor, lines, across)
    who, places = np.full(1, block * e.block), (address.reshape(1, -1) + block * e.shared.shape[1])
    e._note("load", "(3)", who, np.concatenate([places, places + 1], 1))
    raw = e.shared[block]
    return _numbers(np.stack([raw[address], raw[address + 1]], -1).reshape(lines, 32), kind)


@lru_cache(1024)
def _places(descriptor: int, lines: int, across: bool) -> np.ndarray:
    """Where the pairs of bytes of a panel lie."""
    row = {1: 128, 2: 64, 3: 32}[descriptor >> 62 & 3]
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    line, k = np.arange(lines)[:, None], np.arange(16)[None]
    if across:
        many = row // 2
        address = start + line // many * leading + line % many * 2 + k // 8 * stride + k % 8 * row
    else:
        address = start + line // 8 * stride + line % 8 * row + k * 2
    return address ^ (address >> 7 & row // 16 - 1) << 4


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
