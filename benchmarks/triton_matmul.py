"""Products of 16-bit matrices in Triton, as its tutorials write them: a program a tile, in groups of rows of tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

#: Rows of tiles that are gone through together, so that their operands stay in the L2 cache.
TOGETHER = 8


class Tile(NamedTuple):
    """A program's tile, its steps along k, the stages that are in flight and the warps that work on it."""

    m: int
    n: int
    k: int
    stages: int
    warps: int


TILES = (
    Tile(128, 256, 64, 3, 8),
    Tile(128, 256, 64, 4, 8),
    Tile(128, 128, 64, 4, 4),
    Tile(128, 128, 32, 4, 8),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 64, 5, 4),
)


@triton.jit
def _kernel(
    out, a, b, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    rows = (row * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (column * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    steps = tl.arange(0, BLOCK_K)
    at_a = a + rows[:, None] * K + steps[None, :]
    at_b = b + steps[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        inside = steps < K - k * BLOCK_K
        left = tl.load(at_a, mask=inside[None, :], other=0.0)
        right = tl.load(at_b, mask=inside[:, None], other=0.0)
        total = tl.dot(left, right, total)
        at_a += BLOCK_K
        at_b += BLOCK_K * N
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(out.dtype.element_ty), mask=inside)


def matmul(a: Any, b: Any, tile: Tile) -> Any:
    """Product of contiguous matrices."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    kernel: Any = _kernel
    kernel[(triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)](
        out, a, b, m, n, k, tile.m, tile.n, tile.k, TOGETHER, num_stages=tile.stages, num_warps=tile.warps
    )
    return out


def fastest(a: Any, b: Any, seconds: Callable[[Callable[[], Any]], float]) -> Tile:
    """The tile that a product of these matrices takes least time with."""
    return min(TILES, key=lambda tile: seconds(lambda: matmul(a, b, tile)))
