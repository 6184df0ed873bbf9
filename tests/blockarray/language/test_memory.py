"""Loads, stores, block pointers, descriptors and atomics."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from blockarray.compiler.dtypes import NUMPY
from blockarray.language import CompilationError
from tests.blockarray.language.running import Described, compiled, launch, run_compiled, text


def masked(x_ptr, o_ptr, n, fill, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n, other=-1)
    y = tl.load(x_ptr + i, i < n, other=i)
    z = tl.load(x_ptr + i, i < n, fill, cache_modifier=".cg", eviction_policy="evict_last")
    tl.store(o_ptr + i, x + 100 * y + 10000 * z, mask=i < n + 2)


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_masks(dtype):
    x = np.arange(21, dtype=dtype)
    o = np.zeros(40, dtype)
    launch(masked, (4,), x_ptr=x, o_ptr=o, n=np.int32(21), fill=np.int32(7), N=8)
    expected = np.zeros(40, dtype)
    expected[:21] = x * 10101
    expected[21:23] = -1 + 100 * np.arange(21, 23) + 70000
    np.testing.assert_array_equal(o, expected)


def fillers(x_ptr, o_ptr, n, OTHER: tl.constexpr, INVERSE: tl.constexpr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i, mask=i < n, other=OTHER)
    tl.store(o_ptr + i, (1 / x).to(x.dtype) if INVERSE == 1 else x)


@pytest.mark.parametrize(
    ("dtype", "other"),
    [("f4", -0.0), ("f2", -0.0), ("f8", np.nan), ("f2", 1e30), ("i1", 300), ("u1", -1), ("u8", -1), ("?", 3)],
)
def test_what_a_mask_leaves_out(dtype, other):
    x, o = np.ones(8, dtype), np.zeros(8, dtype)
    inverse = int(o.dtype.kind == "f")  # which tells 0.0 from -0.0
    launch(fillers, x_ptr=x, o_ptr=o, n=np.int32(3), OTHER=other, INVERSE=inverse)
    with np.errstate(all="ignore"):
        value = np.array(other).astype(dtype)
        np.testing.assert_array_equal(o, np.where(np.arange(8) < 3, x, 1 / value if inverse else value))


def quotients(x_ptr, o_ptr, n, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [64], [1], [N])
    tl.store(o_ptr + tl.arange(0, N), x.load([(tl.program_id(0) + 3) // n]))


@pytest.mark.parametrize("n", [2, -1, -2])
def test_quotients_by_negative_numbers_begin_before_the_array(n):
    x, o = np.arange(1, 65, dtype="f4"), np.zeros(8, "f4")
    launch(quotients, x_ptr=x, o_ptr=o, n=np.int32(n), N=8)
    at = int(3 / n) + np.arange(8)
    np.testing.assert_array_equal(o, np.where(at < 0, 0, x[at]))


def columns(x_ptr, o_ptr, n, stride, STRIDE: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i * STRIDE, mask=i < n, other=0)
    y = tl.load(x_ptr + i * stride, mask=i < n)
    tl.store(o_ptr + i, x + y)


@pytest.mark.parametrize("stride", [0, 1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 9, 16])
def test_what_a_mask_leaves_out_of_columns(n, stride):
    x, o = np.arange(1, 100, dtype="f4"), np.zeros(16, "f4")
    launch(columns, x_ptr=x, o_ptr=o, n=np.int32(n), stride=np.int32(stride), STRIDE=stride)
    at = np.arange(16)
    np.testing.assert_array_equal(o, np.where(at < n, 2 * x[at * stride], 0))


def scalars(x_ptr, o_ptr):
    x = tl.load(x_ptr + 2)
    tl.store(o_ptr, x * 2)
    p = o_ptr + 1
    tl.store(p, tl.load(x_ptr + 1, mask=x > 100, other=5))
    tl.store(p + 1, 1.5)
    tl.store(p + 2, True)
    p += 3
    tl.store(p - 0, tl.load(x_ptr))


def test_scalars():
    x, o = np.array([3, 4, 5], "f4"), np.zeros(5, "f4")
    launch(scalars, x_ptr=x, o_ptr=o)
    np.testing.assert_array_equal(o, [10, 5, 1.5, 1, 3])


def strided(x_ptr, o_ptr, stride_m, stride_n, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * stride_m + n[None, :] * stride_n)
    tl.store(o_ptr + m[:, None] * N + n[None, :], x)


def test_strides():
    x = np.arange(128, dtype="f4").reshape(8, 16)
    for view in (x, x.T, x[::2, ::4], x[::-1]):
        o = np.zeros((4, 4), "f4")
        s, t = (np.int32(s // 4) for s in view.strides)
        launch(strided, x_ptr=view, o_ptr=o, stride_m=s, stride_n=t, M=4, N=4)
        np.testing.assert_array_equal(o, view[:4, :4])


def bools(x_ptr, o_ptr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    tl.static_assert(x.dtype == tl.int1)
    tl.store(o_ptr + i, ~x & (i < 6))


def test_bools():
    x, o = np.array([1, 0, 1, 0, 1, 0, 0, 0], np.bool_), np.ones(8, np.bool_)
    launch(bools, x_ptr=x, o_ptr=o)
    np.testing.assert_array_equal(o, ~x & (np.arange(8) < 6))


def pointers(x_ptr, o_ptr, n, flag):
    i = tl.arange(0, 4)
    bytes_of = x_ptr.to(tl.pointer_type(tl.int8))
    tl.store(o_ptr + i, tl.load(bytes_of + i))
    word = (x_ptr.to(tl.int64) + 4).to(tl.pointer_type(tl.int16))
    tl.store(o_ptr + 4 + i, tl.load(word + i))
    either = tl.where(flag != 0, x_ptr, x_ptr + 1)
    tl.store(o_ptr + 8, tl.load(either))
    if n > 3:
        p = x_ptr + 2
    else:
        p = o_ptr
    tl.store(o_ptr + 9, tl.load(p))
    q = x_ptr
    for _ in range(n):
        q = p
        p += 1
    tl.store(o_ptr + 10, tl.load(q))
    tl.store(o_ptr + 11, (x_ptr + 1 == x_ptr + i).to(tl.int32).sum())


def test_pointers_that_become_others():
    x = np.array([0x04030201, 0x00070006, 77, 78, 79, 80, 81, 82], "i4")
    o = np.zeros(12, "i4")
    launch(pointers, x_ptr=x, o_ptr=o, n=np.int32(4), flag=np.int32(0))
    np.testing.assert_array_equal(o, [1, 2, 3, 4, 6, 7, 77, 0, x[1], 77, 80, 1])


def round_trip(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 4)
    x, y = tl.load(x_ptr + i).to(tl.pi32_t), tl.load(y_ptr + i).to(tl.pi32_t)
    tl.store(o_ptr + i, tl.where(i > 1, x, y))


def test_pointers_are_the_numbers_they_were_made_of():
    x, y, o = np.arange(4) * 1001, -np.arange(4) * 7 - 1, np.zeros(4, "i8")
    run_compiled(round_trip, x_ptr=x, y_ptr=y, o_ptr=o)
    np.testing.assert_array_equal(o, [-1, -8, 2002, 3003])


def table(t_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    for k in range(2):
        p = tl.load(t_ptr + k).to(tl.pointer_type(tl.float32))
        tl.store(o_ptr + k * N + i, tl.load(p + i))


def truths(x_ptr, o_ptr, grid_0, errors, grid_1):
    if x_ptr:
        tl.store(o_ptr, 1)
    tl.store(o_ptr + 1, x_ptr and True)
    tl.store(o_ptr + 2, not x_ptr)
    tl.store(o_ptr + 3, 2 if x_ptr == 0 else 3)
    tl.store(o_ptr + 4, tl.cast(x_ptr + 1 > x_ptr, tl.int32) + (x_ptr != o_ptr).to(tl.int32))
    tl.store(o_ptr + 5, grid_0 + tl.load(errors) + grid_1)


def test_pointers_are_conditions() -> None:
    o = np.zeros(8, "i4")
    given = {"x_ptr": np.zeros(1, "i4"), "o_ptr": o, "grid_0": np.int32(16), "errors": np.ones(1, "i4")}
    launch(truths, **given, grid_1=np.int32(5))
    assert o.tolist() == [1, 1, 0, 3, 2, 22, 0, 0]


def test_pointers_from_memory():
    kernel = compiled(table, t_ptr=np.zeros(2, "i8"), o_ptr=np.zeros(8, "f4"), N=4)
    assert "int_to_ptr" in {op.name for op in kernel.walk()}


# -- windows ----------------------------------------------------------------------------------------------------------
def block_pointers(x_ptr, o_ptr, M, N, stride, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (stride, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    o = tl.make_block_ptr(o_ptr, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), order=(1, 0))
    for _ in range(tl.cdiv(N, BN)):
        value = tl.load(x, boundary_check=(0, 1), padding_option="zero")
        tl.store(o, value * 2, boundary_check=(0, 1))
        x = tl.advance(x, (0, BN))
        o = o.advance([0, BN])


def test_block_pointers():
    x = np.arange(7 * 40, dtype="f4").reshape(7, 40)
    view = x[:, :21]
    o = np.zeros((7, 21), "f4")
    args = {"x_ptr": view, "o_ptr": o, "M": np.int32(7), "N": np.int32(21), "stride": np.int32(40), "BM": 4, "BN": 8}
    launch(block_pointers, (2,), **args)
    np.testing.assert_array_equal(o, 2 * view)
    assert {"load_view", "store_view"} < {op.name for op in compiled(block_pointers, **args).walk()}


def backwards(x_ptr, o_ptr, N, B: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (N,), (1,), (8,), (B,), (0,))
    total = tl.zeros((B,), tl.float32)
    for _ in range(4):
        total += tl.load(p, boundary_check=(0,))
        p = p.advance((-4,))
    tl.store(o_ptr + tl.arange(0, B), total)


def test_what_may_begin_before_the_array_is_masked():
    x, o = np.arange(1, 11, dtype="f4"), np.zeros(4, "f4")
    args = {"x_ptr": x, "o_ptr": o, "N": np.int32(10), "B": 4}
    launch(backwards, **args)
    padded = np.concatenate([np.zeros(4), x, np.zeros(10)])
    np.testing.assert_array_equal(o, sum(padded[4 + s : 8 + s] for s in (8, 4, 0, -4)))
    assert "load_view" not in {op.name for op in compiled(backwards, **args).walk()}


def unchecked(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (N, N), (N, 1), (0, 0), (N, N), (1, 0))
    y = tl.make_block_ptr(x_ptr, (N - 1, N), (N, 1), (0, 0), (N, N), (1, 0))
    o = tl.make_block_ptr(o_ptr, (N, N), (1, N), (0, 0), (N, N), (0, 1))
    tl.store(o, tl.load(x) + tl.load(y, boundary_check=(0,), padding_option="nan"))


def test_some_dims_are_checked():
    x, o = np.ones((4, 4), "f4"), np.zeros((4, 4), "f4")
    launch(unchecked, x_ptr=x, o_ptr=o, N=4)
    expected = np.full((4, 4), 2.0, "f4")
    expected[:, 3] = np.nan
    np.testing.assert_array_equal(o, expected)


def described(x, o, N, B: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, N, B):
        value = x.load([row, start])
        tl.static_assert(value.shape == (1, B))
        o.store([row, start], value + row)


def test_descriptors():
    x = np.arange(3 * 20, dtype="f4").reshape(3, 20)
    o = np.zeros((3, 20), "f4")
    args = {"x": Described(x, [1, 8]), "o": Described(o, [1, 8]), "N": np.int32(20), "B": 8}
    launch(described, (3,), **args)
    np.testing.assert_array_equal(o, x + np.arange(3)[:, None])
    found = text(described, **args)
    assert "%x: ptr<f32>, %x.shape0: i64, %x.shape1: i64, %x.stride0: i64, %o: ptr<f32>" in found
    assert "load_ptr" not in found


def made_inside(x_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    o = tl.make_tensor_descriptor(o_ptr, [N, M], [M, 1], [BN, BM])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    value = tl.load_tensor_descriptor(x, [m, n])
    tl.store_tensor_descriptor(o, [n, m], value.T)


def test_descriptors_made_in_kernels():
    x = np.arange(20 * 12, dtype="f4").reshape(20, 12)
    o = np.zeros((12, 20), "f4")
    launch(made_inside, (3, 2), x_ptr=x, o_ptr=o, M=np.int32(20), N=np.int32(12), BM=8, BN=8)
    np.testing.assert_array_equal(o, x.T)


def rows(x, o_ptr, i_ptr):
    i = tl.load(i_ptr + tl.arange(0, 4))
    tl.store(o_ptr + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], x.gather(i, 2))
    x.scatter(tl.full((4, 8), 1, tl.int32), i, 8)


def test_rows_of_descriptors():
    x = np.arange(6 * 16, dtype="i4").reshape(6, 16)
    before = x.copy()
    o, i = np.zeros((4, 8), "i4"), np.array([5, 0, 9, 2], "i4")
    launch(rows, x=Described(x, [1, 8]), o_ptr=o, i_ptr=i)
    expected = before[[5, 0, 0, 2], 2:10]
    expected[2] = 0
    np.testing.assert_array_equal(o, expected)
    before[[5, 0, 2], 8:] = 1
    np.testing.assert_array_equal(x, before)


def conditions(x_ptr, o_ptr, first_ptr, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [N], [1], [8])
    first, last = tl.load(first_ptr), tl.load(first_ptr + 1)
    k = tl.load(first_ptr + 2)
    while k >= first and k < last:
        tl.store(o_ptr + tl.arange(0, 8), x.load([(k - first) // 2 * 8]))
        k += 1
    if last > 3:
        tl.store(o_ptr + 8 + tl.arange(0, 8), x.load([last]))
    tl.assume(first <= last)
    tl.store(o_ptr + 16 + tl.arange(0, 8), x.load([last - first]))


def test_conditions_say_where_blocks_begin():
    x, o = np.arange(32, dtype="f4"), np.zeros(24, "f4")
    args = {"x_ptr": x, "o_ptr": o, "first_ptr": np.array([2, 7, 3], "i4"), "N": 32}
    launch(conditions, **args)
    np.testing.assert_array_equal(o, [*range(16, 24), *range(7, 15), *range(5, 13)])
    names = [op.name for op in compiled(conditions, **args).walk()]
    assert names.count("load_view") == 3 and names.count("load_ptr") == 3


# -- atomics ----------------------------------------------------------------------------------------------------------
def atomics(x_ptr, o_ptr):
    i = tl.arange(0, 4)
    old = tl.atomic_add(x_ptr + i, i + 1, sem="relaxed")
    tl.store(o_ptr + i, old)
    tl.atomic_max(x_ptr + 4 + i, 5)
    tl.atomic_min(x_ptr + 8 + i, i, mask=i > 1)
    tl.atomic_xchg(x_ptr + 12, 77)
    seen = tl.atomic_cas(x_ptr + 13, 13, 99, sem="acquire", scope="sys")
    tl.store(o_ptr + 4, seen)
    tl.atomic_cas(x_ptr + 14, 13, 99)
    (x_ptr + 15).atomic_add(1)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "f4", "f8"])
def test_atomics(dtype):
    x, o = np.arange(16, dtype=dtype), np.zeros(5, dtype)
    launch(atomics, x_ptr=x, o_ptr=o)
    np.testing.assert_array_equal(x, [1, 3, 5, 7, 5, 5, 6, 7, 8, 9, 2, 3, 77, 99, 14, 16])
    np.testing.assert_array_equal(o, [0, 1, 2, 3, 13])


def locked(lock_ptr, x_ptr, SEM: tl.constexpr):
    i = tl.arange(0, 64)
    while tl.atomic_cas(lock_ptr + 1, 0, 1, sem=SEM) == 1:
        pass
    tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.program_id(0) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + 1, 0)


@pytest.mark.parametrize("order", ["acq_rel", "acquire"])
def test_locks(order):
    lock, x = np.zeros(2, "i4"), np.arange(64, dtype="i4")
    launch(locked, (3,), lock_ptr=lock, x_ptr=x, SEM=order)
    np.testing.assert_array_equal(x, np.arange(64) + 6)
    assert not lock.any()


def bits(x_ptr):
    tl.atomic_and(x_ptr, 6)
    tl.atomic_or(x_ptr + 1, 6)
    tl.atomic_xor(x_ptr + 2, 6)


def test_atomics_of_bits():
    x = np.full(3, 5, "i4")
    launch(bits, x_ptr=x)
    np.testing.assert_array_equal(x, [4, 7, 3])
    with pytest.raises(CompilationError, match="atomic_and takes integers, not fp32"):
        compiled(bits, x_ptr=np.zeros(3, "f4"))


def counting(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.atomic_add(o_ptr + x, 1)


def test_atomic_histogram():
    x = np.random.default_rng(0).integers(0, 10, 64).astype("i4")
    o = np.zeros(10, "i4")
    launch(counting, (4,), x_ptr=x, o_ptr=o, N=16)
    np.testing.assert_array_equal(o, np.bincount(x, minlength=10))


# -- products ---------------------------------------------------------------------------------------------------------
def product(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, out: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a, b, out_dtype=out)
    tl.static_assert(c.dtype == out)
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b, acc=c) if out != tl.int32 else c * 2)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("f16", "f32"),
        ("f16", "f16"),
        ("bf16", "f32"),
        ("f32", "f32"),
        ("f64", "f64"),
        ("i8", "i32"),
        ("f8e5m2", "f32"),
        ("f8e4m3", "f16"),
    ],
)
@pytest.mark.parametrize("shape", [(16, 16, 32), (1, 16, 32), (32, 8, 64)])
def test_dot(dtype, out, shape):
    from blockarray.language.types import OF_IR

    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(NUMPY[dtype]) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), NUMPY[out])
    launch(product, a_ptr=a, b_ptr=b, c_ptr=c, M=m, N=n, K=k, out=OF_IR[out])
    np.testing.assert_array_equal(c.astype("f8"), 2 * (a.astype("f8") @ b.astype("f8")))


def batched(a_ptr, c_ptr):
    i, j, k = tl.arange(0, 2), tl.arange(0, 16), tl.arange(0, 16)
    a = tl.load(a_ptr + i[:, None, None] * 256 + j[None, :, None] * 16 + k[None, None, :])
    c = tl.dot(a, a, input_precision="ieee")
    tl.store(c_ptr + i[:, None, None] * 256 + j[None, :, None] * 16 + k[None, None, :], c)


def test_batched_dot():
    a = np.random.default_rng(0).integers(-3, 4, (2, 16, 16)).astype("f4")
    c = np.zeros_like(a)
    launch(batched, a_ptr=a, c_ptr=c)
    np.testing.assert_array_equal(c, a @ a)


def many(a_ptr, c_ptr):
    at = tl.arange(0, 4 * 256).reshape(2, 2, 16, 16)
    a = tl.load(a_ptr + at)
    tl.store(c_ptr + at, tl.dot(a, a, acc=a, input_precision="bf16x3"))


def test_dot_of_many_dims():
    a = np.random.default_rng(0).integers(-3, 4, (2, 2, 16, 16)).astype("f4")
    c = np.zeros_like(a)
    launch(many, a_ptr=a, c_ptr=c)
    np.testing.assert_array_equal(c, a @ a + a)


def scaled(a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    m, n = tl.arange(0, 16), tl.arange(0, 16)
    ka: tl.constexpr = K // 2 if A == "e2m1" else K
    kb: tl.constexpr = K // 2 if B == "e2m1" else K
    a = tl.load(a_ptr + m[:, None] * ka + tl.arange(0, ka)[None, :])
    b = tl.load(b_ptr + tl.arange(0, kb)[:, None] * 16 + n[None, :])
    scales = m[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :]
    c = tl.dot_scaled(a, tl.load(as_ptr + scales), A, b, None if bs_ptr is None else tl.load(bs_ptr + scales), B)
    tl.store(c_ptr + m[:, None] * 16 + n[None, :], c)


@pytest.mark.parametrize(("a_format", "b_format"), [("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e5m2", "bf16")])
def test_dot_scaled(a_format, b_format):
    rng = np.random.default_rng(0)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = np.concatenate([table, -table])

    def operand(name, shape, along):
        if name == "e2m1":
            codes = rng.integers(0, 16, shape)
            low, high = np.take(codes, range(0, 64, 2), along), np.take(codes, range(1, 64, 2), along)
            return (low | high << 4).astype("u1"), table[codes]
        if name == "bf16":
            x = rng.integers(-3, 4, shape).astype(NUMPY["bf16"])
            return x, x.astype("f8")
        x = rng.integers(-3, 4, shape).astype(NUMPY[{"e4m3": "f8e4m3", "e5m2": "f8e5m2"}[name]])
        return x.view("u1"), x.astype("f8")

    (a, x), (b, y) = operand(a_format, (16, 64), 1), operand(b_format, (64, 16), 0)
    s, t = (rng.integers(125, 130, (16, 2)).astype("u1") for _ in range(2))
    c = np.zeros((16, 16), "f4")
    plain = b_format == "bf16"
    launch(scaled, a_ptr=a, as_ptr=s, b_ptr=b, bs_ptr=None if plain else t, c_ptr=c, K=64, A=a_format, B=b_format)
    x = x * np.repeat(2.0 ** (s.astype(int) - 127), 32, 1)
    y = y if plain else y * np.repeat(2.0 ** (t.astype(int) - 127), 32, 1).T
    np.testing.assert_array_equal(c, x @ y)


# -- messages ---------------------------------------------------------------------------------------------------------
def asserting(x_ptr, n):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    tl.device_assert(x < n, "too large", mask=i < 3)
    assert n > 0, "not positive"


def test_assertions():
    x = np.array([1, 2, 3, 9], "i4")
    assert run_compiled(asserting, debug=True, x_ptr=x, n=np.int32(4)) == []
    (message,) = run_compiled(asserting, debug=True, x_ptr=x, n=np.int32(3))
    assert message == "device_assert failed: too large"
    assert len(run_compiled(asserting, debug=True, x_ptr=x, n=np.int32(0))) == 2
    assert run_compiled(asserting, x_ptr=x, n=np.int32(0)) == []


def printing(x_ptr):
    tl.device_print("x: ", tl.load(x_ptr + tl.arange(0, 2)))
    print("sum", tl.load(x_ptr))


def test_print(capsys):
    run_compiled(printing, x_ptr=np.array([5, 6], "i4"))
    assert "x: 5" in capsys.readouterr().out
