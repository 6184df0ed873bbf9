"""Movements of elements, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.language import CompilationError
from tests.blockarray.language.running import compiled, jit, launch


def apply(x_ptr, o_ptr, shape: tl.constexpr, count: tl.constexpr, f: tl.constexpr):
    """o[:] = f(x) in row-major order."""
    size: tl.constexpr = shape[0] * (shape[1] if len(shape) > 1 else 1) * (shape[2] if len(shape) > 2 else 1)
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, size)), shape)
    tl.store(o_ptr + tl.arange(0, count), tl.reshape(f(x), (count,)))


def moved(x: np.ndarray, f, count: int | None = None) -> np.ndarray:
    count = x.size if count is None else count
    o = np.zeros(count, x.dtype)
    launch(apply, x_ptr=x, o_ptr=o, shape=x.shape, count=count, f=jit(f))
    return o


def block(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype("i4")


def transpose(x):
    return x.T


def permuted(x):
    return tl.permute(x, (2, 0, 1)) + tl.trans(x, 2, 0, 1)


def swapped(x):
    return tl.trans(x)


@pytest.mark.parametrize("shape", [(4, 8), (1, 8), (8, 1), (1, 1)])
def test_transposes(shape):
    x = block(*shape)
    np.testing.assert_array_equal(moved(x, transpose), x.T.ravel())


@pytest.mark.parametrize("shape", [(2, 4, 8), (1, 4, 8), (2, 1, 8), (4, 2, 1), (1, 1, 2)])
def test_permutations(shape):
    x = block(*shape)
    np.testing.assert_array_equal(moved(x, permuted), 2 * x.transpose(2, 0, 1).ravel())
    np.testing.assert_array_equal(moved(x, swapped), x.swapaxes(-1, -2).ravel())


def outer(x):
    r = tl.arange(0, 4)
    return x + r[:, None] * 100 + tl.arange(0, 8)[None, :] * 1000 + tl.expand_dims(tl.expand_dims(r, 1), 0).sum(0)


def test_new_dims_and_broadcasts():
    x = block(4, 8)
    r, c = np.arange(4)[:, None], np.arange(8)
    np.testing.assert_array_equal(moved(x, outer), (x + r * 101 + c * 1000).ravel())


def repeated(x):
    return tl.broadcast_to(x, (4, 8))


def both(x):
    a, b = tl.broadcast(x, tl.zeros((4, 8), tl.int32))
    return a + b


def test_broadcasts_of_blocks():
    for shape in ((4, 1), (1, 8), (1, 1)):
        x = block(*shape)
        for f in (repeated, both):
            np.testing.assert_array_equal(moved(x, f, 32), np.broadcast_to(x, (4, 8)).ravel())


def joined(x):
    return tl.join(x, x + 100)


def parted(x):
    a, b = tl.split(x)
    return a * 2 - b


def interleaved(x):
    return tl.interleave(x, -x)


def doubled(x):
    return tl.cat(x, x + 100, dim=0)


def doubled_rows(x):
    return tl.cat(x, x + 100, dim=1)


@pytest.mark.parametrize("shape", [(8,), (4, 8), (1, 4), (4, 1), (1,)])
def test_joins_and_cats(shape):
    x = block(*shape)
    n = 2 * x.size
    np.testing.assert_array_equal(moved(x, joined, n), np.stack([x, x + 100], -1).ravel())
    np.testing.assert_array_equal(moved(x, interleaved, n), np.stack([x, -x], -1).ravel())
    np.testing.assert_array_equal(moved(x, doubled, n), np.concatenate([x, x + 100]).ravel())
    if len(shape) > 1:
        np.testing.assert_array_equal(moved(x, doubled_rows, n), np.concatenate([x, x + 100], 1).ravel())


@pytest.mark.parametrize("shape", [(8, 2), (1, 2), (2,), (4, 2, 2)])
def test_splits(shape):
    x = block(*shape)
    np.testing.assert_array_equal(moved(x, parted, x.size // 2), (2 * x[..., 0] - x[..., 1]).ravel())


def flipped(x):
    return tl.flip(x)


def flipped_rows(x):
    return x.flip(0)


def ascending(x):
    return tl.sort(x)


def descending(x):
    return tl.sort(x, dim=1, descending=True)


def largest(x):
    return tl.topk(x, 4)


@pytest.mark.parametrize("shape", [(4, 8), (1, 8), (8, 1)])
def test_flips_and_sorts(shape):
    x = block(*shape)
    np.testing.assert_array_equal(moved(x, flipped), x[:, ::-1].ravel())
    np.testing.assert_array_equal(moved(x, flipped_rows), x[::-1].ravel())
    np.testing.assert_array_equal(moved(x, ascending), np.sort(x, 1).ravel())
    np.testing.assert_array_equal(moved(x, descending), np.sort(x, 1)[:, ::-1].ravel())
    if shape[1] == 8:
        np.testing.assert_array_equal(moved(x, largest, 4 * shape[0]), np.sort(x, 1)[:, :-5:-1].ravel())


def gathering(
    x_ptr, i_ptr, o_ptr, axis: tl.constexpr, M: tl.constexpr, N: tl.constexpr, P: tl.constexpr, Q: tl.constexpr
):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    at = tl.arange(0, P)[:, None] * Q + tl.arange(0, Q)[None, :]
    tl.store(o_ptr + at, tl.gather(x, tl.load(i_ptr + at), axis))


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 8)), (1, (4, 2)), (1, (4, 1)), (0, (1, 8))])
def test_gather(axis, shape):
    x = block(4, 8)
    index = np.random.default_rng(1).integers(0, x.shape[axis], shape).astype("i4")
    o = np.zeros(shape, "i4")
    launch(gathering, x_ptr=x, i_ptr=index, o_ptr=o, axis=axis, M=4, N=8, P=shape[0], Q=shape[1])
    np.testing.assert_array_equal(o, np.take_along_axis(x, index, axis))


def histograms(x_ptr, o_ptr, p_ptr):
    x = tl.load(x_ptr + tl.arange(0, 64))
    tl.store(o_ptr + tl.arange(0, 8), tl.histogram(x, 8))
    tl.store(p_ptr + tl.arange(0, 8), x.histogram(8, mask=tl.arange(0, 64) < 10))


def test_histogram():
    x = np.random.default_rng(2).integers(0, 8, 64).astype("i4")
    o, p = np.zeros(8, "i4"), np.zeros(8, "i4")
    launch(histograms, x_ptr=x, o_ptr=o, p_ptr=p)
    np.testing.assert_array_equal(o, np.bincount(x, minlength=8))
    np.testing.assert_array_equal(p, np.bincount(x[:10], minlength=8))


def swizzle(o_ptr):
    i, j = tl.swizzle2d(tl.arange(0, 4)[:, None], tl.arange(0, 4)[None, :], 4, 4, 2)
    at = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(o_ptr + at, i * 4 + j)


def test_swizzle2d():
    o = np.zeros((4, 4), "i4")
    launch(swizzle, o_ptr=o)
    np.testing.assert_array_equal(o, [[0, 4, 1, 5], [2, 6, 3, 7], [8, 12, 9, 13], [10, 14, 11, 15]])


def test_what_does_not_move_costs_nothing():
    def kernel(x_ptr, o_ptr):
        i = tl.arange(0, 8)
        x = tl.load(x_ptr + i)[None, :, None].reshape(8, 1).trans().ravel().expand_dims(0)
        tl.store((o_ptr + i)[None, :], x)

    o = np.zeros(8, "f4")
    assert [op.name for op in compiled(kernel, x_ptr=o, o_ptr=o).walk()] == ["iota", "load_ptr", "store_ptr"]


def to_six(x):
    return tl.reshape(x, (4, 4))


def test_sizes_must_fit():
    with pytest.raises(CompilationError, match=r"a block of shape \[4, 8\] cannot be reshaped to \[4, 4\]"):
        moved(block(4, 8), to_six)
