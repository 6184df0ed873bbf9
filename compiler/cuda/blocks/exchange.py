"""What other threads hold: by shuffles in a warp, else through shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import dtypes
from ...llvm.text import V
from .. import memory
from ..memory import at, i32
from ..reduction import shuffle
from .layout import LANES

if TYPE_CHECKING:
    from .codegen import Codegen, Tile


def partner(code: Codegen, tile: Tile, dtype: str, mask: int) -> Tile:
    """The registers of the thread whose number differs in the bits of `mask`."""
    if not mask:
        return tile
    if mask < 1 << LANES:
        return [shuffle(code.t, "bfly", v, i32(mask)) for v in tile]
    return _through_shared(code, tile, dtype, code.t.bin("xor", code.thread, i32(mask)), None)


def broadcast(code: Codegen, tile: Tile, dtype: str, mask: int) -> Tile:
    """The registers of the thread whose number has no bit of `mask`; only such threads need hold something."""
    if not mask:
        return tile
    t = code.t
    if mask < 1 << LANES:
        there = t.bin("and", code.lane, i32(~mask))
        return [shuffle(t, "idx", v, there) for v in tile]
    there = t.bin("and", code.thread, i32(~mask))
    speaks = t.cmp("eq", t.bin("and", code.thread, i32(mask)), i32(0))
    return _through_shared(code, tile, dtype, there, speaks)


def _through_shared(code: Codegen, tile: Tile, dtype: str, there: V, speaks: V | None) -> Tile:
    t, size = code.t, dtypes.SIZE[dtype]
    apart = code.threads * size
    base = code.exchange(apart * len(tile))
    mine, other = (place(code, base, thread, size) for thread in (code.thread, there))
    for k, v in enumerate(tile):
        memory.store(t, [v], mine, dtype, speaks, k * apart)
    code.barrier()
    found = [memory.load(t, at(t, other, k * apart), dtype, 1)[0] for k in range(len(tile))]
    code.exchange_end()
    return found


def place(code: Codegen, base: V, number: V, size: int) -> V:
    """The address of an element."""
    t = code.t
    return at(t, base, t.cast("zext", t.bin("mul", number, i32(size)), "i64"))
