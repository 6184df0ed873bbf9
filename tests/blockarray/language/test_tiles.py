"""Tiles of which a part lies outside of an array, and products that read them."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.compiler import interpreter, passes
from tests.blockarray.language.running import compiled, run_compiled
from tests.compiler.cpu_kernels import Compiled


def short_rows(x, out, sums, rows, n, OTHER: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, at = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (r < rows) & (at < n)
    v = tl.load(x + r * BLOCK + at, mask=inside, other=OTHER)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(out + r * BLOCK + at, e / tl.sum(e, 1)[:, None], mask=inside)
    place = sums + tl.arange(0, ROWS)
    tl.store(place, tl.sum(v, 1))
    tl.store(place + ROWS, tl.min(e, 1))
    tl.store(place + 2 * ROWS, tl.sum(tl.exp(tl.abs(e)), 1))
    tl.store(place + 3 * ROWS, tl.sum(tl.where(at < n, tl.exp(e), 0.5), 1))


@pytest.mark.parametrize("other", [-float("inf"), 0.0, 1.5, float("nan")])
def test_rows_shorter_than_their_block(other):
    """What lies past the end counts as often as it is there."""
    for rows, block in ((1, 256), (4, 64), (2, 2)):
        x = np.random.default_rng(0).standard_normal((rows, block)).astype("f4")
        x[0, 1] = -0.0
        if rows == 4:
            x[1], x[2, 40], x[3, 3] = -np.inf, np.nan, np.inf
        arguments = {"x": x, "out": x, "sums": x, "rows": np.int32(1), "n": np.int32(0)}
        kernel = compiled(short_rows, **arguments, OTHER=other, ROWS=rows, BLOCK=block)
        run = Compiled(passes.run(kernel, check=True))
        for n in (-1, 0, 1, 17, 50, block - 1, block + 5):
            expected, found = ([x, np.full((rows * block), 7, "f4"), np.zeros(4 * rows, "f4")] for _ in range(2))
            rest = [max(1, rows - 1), n, 1, 1, 1]
            with np.errstate(all="ignore"):
                interpreter.run(kernel, [*(a.ravel() for a in expected), *rest])
            run([*(a.ravel() for a in found), *rest])
            for have, want in zip(found[1:], expected[1:], strict=True):
                np.testing.assert_allclose(have, want, 3e-5)


def product(a, b, c, M, N, K, a_row, a_k, b_k, b_column, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32 if a.dtype.element_ty != tl.float64 else tl.float64)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * a_row + k * a_k, mask=(m[:, None] < M) & (k < K), other=0.0)
        y = tl.load(b + k[:, None] * b_k + n * b_column, mask=(k[:, None] < K) & (n < N), other=0.0)
        total = tl.dot(x, y, total, out_dtype=total.dtype)
    tl.store(c + m[:, None] * N + n, total, mask=(m[:, None] < M) & (n < N))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_products(dtype):
    """Operands in place, in panels and turned, with infinities beside the sums that they are in."""
    M, N, K = 50, 70, 75
    blocks = ((64, 64, 64, False), (32, 16, 32, True), (16, 32, 16, False), (4, 4, 16, False))
    for bm, bn, bk, turned in blocks if dtype == "f4" else blocks[:2]:
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((M, K), (K, N)))
        a[3, 4], b[74, 69] = np.inf, np.nan
        if turned:
            a, b = np.asfortranarray(a), np.asfortranarray(b)
        c = np.zeros((M, N), "f8" if dtype == "f8" else "f4")
        strides = dict(zip(("a_row", "a_k", "b_k", "b_column"), (*a.strides, *b.strides), strict=True))
        arguments = {k: np.int32(v) for k, v in {"M": M, "N": N, "K": K}.items()}
        arguments |= {k: np.int32(v // a.itemsize) if v != a.itemsize else 1 for k, v in strides.items()}
        grid = (-(-N // bn), -(-M // bm))
        with np.errstate(all="ignore"):
            run_compiled(product, grid, a=a, b=b, c=c, **arguments, BM=bm, BN=bn, BK=bk)
            expected = a.astype("f8") @ b.astype("f8")
        np.testing.assert_allclose(c, expected, 1e-3, 1e-3)


def wrapped(x, out, n, trips, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = x + (tl.program_id(0) * BLOCK + at) % n
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(trips):
        total += tl.load(row, mask=at < BLOCK - 5 - i) if MASKED else tl.load(row)
        row += n
        row += 2
    tl.store(out + tl.program_id(0) * BLOCK + at, total - tl.load(row))


@pytest.mark.parametrize("masked", [False, True])
def test_places_that_are_wrapped_around_an_end(masked):
    x = np.random.default_rng(0).integers(-9, 9, 600).astype("f4")
    for n, trips in ((1, 3), (64, 0), (100, 3)):
        arguments = {"x": x, "out": np.zeros(192, "f4"), "n": np.int32(n), "trips": np.int32(trips)}
        run_compiled(wrapped, (3,), **arguments, BLOCK=64, MASKED=masked)
