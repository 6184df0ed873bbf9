"""Whole kernels: their block IR as it is meant to be, and what they compute."""

from __future__ import annotations

import numpy as np

import blockarray.language as tl
from tests.blockarray.language.running import Described, jit, launch, text


def softmax(x_ptr, o_ptr, x_stride, o_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(o_ptr + row * o_stride + cols, e / tl.sum(e, axis=0), mask=mask)


SOFTMAX = """\
kernel @softmax(%x_ptr: ptr<f32>, %o_ptr: ptr<f32>, %x_stride: i32, %o_stride: i32, %n_cols: i32, %grid_0: i64, \
%grid_1: i64, %grid_2: i64) grid(%grid_2 / 1, %grid_1 / 1, %grid_0 / 1) attrs(num_stages=3, num_warps=4, \
schedule="blocks") {
  %0 = program_id {axis=2} : i64
  %1 = cast %0 : i32
  %2 = iota : i64[64]
  %3 = cast %2 : i32[64]
  %4 = broadcast %n_cols {dims=()} : i32[64]
  %5 = less %3, %4 : bool[64]
  %6 = multiply %1, %x_stride : i32
  %7 = cast %6 : i64
  %8 = broadcast %7 {dims=()} : i64[64]
  %9 = add %8, %2 : i64[64]
  %10 = load_ptr %x_ptr, %9, %5 {other=-inf} : f32[64]
  %11 = reduce %10 {dims=(0,), kind="max_number"} : f32
  %12 = broadcast %11 {dims=()} : f32[64]
  %13 = subtract %10, %12 : f32[64]
  %14 = exp %13 : f32[64]
  %15 = multiply %1, %o_stride : i32
  %16 = cast %15 : i64
  %17 = broadcast %16 {dims=()} : i64[64]
  %18 = add %17, %2 : i64[64]
  %19 = reduce %14 {dims=(0,), kind="sum"} : f32
  %20 = broadcast %19 {dims=()} : f32[64]
  %21 = divide %14, %20 : f32[64]
  store_ptr %21, %o_ptr, %18, %5
}"""


def reference(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_softmax():
    x = np.random.default_rng(0).standard_normal((5, 50)).astype("f4")
    o = np.zeros_like(x)
    stride = np.int32(50)
    arguments = {"x_ptr": x, "o_ptr": o, "x_stride": stride, "o_stride": stride, "n_cols": stride, "BLOCK": 64}
    launch(softmax, (5,), **arguments)
    np.testing.assert_allclose(o, reference(x), rtol=1e-6)
    arguments |= {"x_ptr": Unaligned(x), "o_ptr": Unaligned(o)}
    assert text(softmax, **arguments) == SOFTMAX


class Unaligned(np.ndarray):
    """An array that is not known to be aligned."""

    def __new__(cls, x: np.ndarray) -> Unaligned:
        return np.zeros(x.nbytes + 32, np.uint8)[1:][: x.nbytes].view(x.dtype).reshape(x.shape).view(cls)


def described(x, o, N: tl.constexpr):
    row = tl.program_id(0)
    value = x.load([row, 0])
    e = tl.exp(value - tl.max(value, 1, keep_dims=True))
    o.store([row, 0], e / tl.sum(e, 1, keep_dims=True))


def test_softmax_of_descriptors():
    x = np.random.default_rng(0).standard_normal((5, 32)).astype("f4")
    o = np.zeros_like(x)
    arguments = {"x": Described(x, [1, 32]), "o": Described(o, [1, 32]), "N": 32}
    launch(described, (5,), **arguments)
    np.testing.assert_allclose(o, reference(x), rtol=1e-6)
    found = text(described, **arguments)
    assert found.count("load_view") == found.count("store_view") == 1 and "load_ptr" not in found


@jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * columns
    first = pid // in_group * GROUP
    size = min(rows - first, GROUP)
    pid_m = first + pid % in_group % size
    pid_n = pid % in_group // size
    m = (pid_m * BM + tl.arange(0, BM)) % M
    n = (pid_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + (m[:, None] * stride_am + k[None, :])
    b_ptrs = b_ptr + (k[:, None] * stride_bk + n[None, :])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=k[None, :] < K - i * BK, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - i * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    m = pid_m * BM + tl.arange(0, BM)
    n = pid_n * BN + tl.arange(0, BN)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + stride_cm * m[:, None] + n[None, :], c, mask=(m[:, None] < M) & (n[None, :] < N))


LOOP = """\
  %43, %44, %45 = for %40, %39, %42, %34, %26, %33 (%46: i32, %47: f32[16, 16], %48: i64[16, 32], %49: i64[32, 16]) {
    %50 = multiply %46, %38 : i32
    %51 = subtract %K, %50 : i32
    %52 = broadcast %51 {dims=()} : i32[32]
    %53 = less %20, %52 : bool[32]
    %54 = broadcast %53 {dims=(1,)} : bool[16, 32]
    %55 = load_ptr %a_ptr, %48, %54 {other=0.0} : f16[16, 32]
    %56 = broadcast %53 {dims=(0,)} : bool[32, 16]
    %57 = load_ptr %b_ptr, %49, %56 {other=0.0} : f16[32, 16]
    %58 = dot %55, %57, %47 : f32[16, 16]
    yield %58, %60, %64
  } : f32[16, 16], i64[16, 32], i64[32, 16]"""


def shape_of(loop: str) -> list[str]:
    """The ops of lines, without the numbers of values."""
    import re

    return [re.sub(r"%\d+", "%", line).strip() for line in loop.splitlines()]


def test_matmul():
    rng = np.random.default_rng(0)
    M, N, K = 50, 40, 70
    a, b = rng.standard_normal((M, K)).astype("f2"), rng.standard_normal((K, N)).astype("f2")
    c = np.zeros((M, N), "f2")
    sizes = {"M": M, "N": N, "K": K, "stride_am": K, "stride_bk": N, "stride_cm": N}
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c, **{n: np.int32(v) for n, v in sizes.items()}}
    arguments |= {"BM": 16, "BN": 16, "BK": 32, "GROUP": 2, "ACTIVATION": "leaky_relu"}
    launch(matmul, (4 * 3,), **arguments)
    expected = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(c.astype("f8"), np.where(expected >= 0, expected, 0.01 * expected), rtol=2e-3, atol=2e-3)
    found = shape_of(text(matmul, **arguments))
    start = next(k for k, line in enumerate(found) if " for " in line)
    loop = found[start : found.index("} : f32[16, 16], i64[16, 32], i64[32, 16]") + 1]
    assert [line for line in shape_of(LOOP)[:-2] if line not in loop] == []
    assert len(loop) == 19
    # Nothing is computed twice, and positions are computed in 32 bits.
    lines = [line for line in found if "= " in line]
    assert sum(" iota " in line for line in lines) == 2
    assert sum(" cast " in line and "i64[" in line for line in lines) == 4


def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y_ptr += row * stride
    x_ptr += row * stride
    mean = 0
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        total += x * x
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        w, b = tl.load(w_ptr + cols, mask=mask), tl.load(b_ptr + cols, mask=mask)
        tl.store(y_ptr + cols, (x - mean) * rstd * w + b, mask=mask)


def test_layer_norm():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 75)).astype("f2")
    y, w, b = np.zeros_like(x), rng.standard_normal(75).astype("f2"), rng.standard_normal(75).astype("f2")
    mean, rstd = np.zeros(4, "f4"), np.zeros(4, "f4")
    launch(
        layer_norm, (4,), x_ptr=x, y_ptr=y, w_ptr=w, b_ptr=b, mean_ptr=mean, rstd_ptr=rstd, stride=np.int32(75),
        N=np.int32(75), eps=np.float32(1e-5), BLOCK=32,
    )  # fmt: skip
    wide = x.astype("f8")
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y.astype("f8"), normal * w + b, rtol=5e-3, atol=5e-3)


@jit
def attend(
    acc, l_i, m_i, q, k_ptrs, v_ptrs, lo, hi, m, n, scale, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    for start in tl.range(lo, hi, BN):
        start = tl.multiple_of(start, BN)
        k = tl.load(k_ptrs + start * D)
        s = tl.dot(q, k.T) * scale
        if CAUSAL:
            s = tl.where(m[:, None] >= start + n[None, :], s, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(tl.float16), tl.load(v_ptrs + start * D), acc)
        m_i = m_new
    return acc, l_i, m_i


def attention(q_ptr, k_ptr, v_ptr, o_ptr, scale, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    i = tl.program_id(0)
    m, n, d = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    at = m[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at)
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale *= 1.44269504
    keys = n[:, None] * D + d[None, :]
    acc, l_i, m_i = attend(acc, l_i, m_i, q, k_ptr + keys, v_ptr + keys, 0, i * BM, m, n, scale, BN, D, False)
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_ptr + keys, v_ptr + keys, i * BM, (i + 1) * BM, m, n, scale, BN, D, CAUSAL=True
    )
    tl.store(o_ptr + at, (acc / l_i[:, None]).to(tl.float16))


def test_attention():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((64, 16)).astype("f2") for _ in range(3))
    o = np.zeros_like(q)
    launch(
        attention, (2,), rtol=2e-3, q_ptr=q, k_ptr=k, v_ptr=v, o_ptr=o, scale=np.float32(0.25), N=np.int32(64), BM=32,
        BN=16, D=16,
    )  # fmt: skip
    s = np.where(np.tri(64, dtype=bool), q.astype("f8") @ k.astype("f8").T * 0.25, -np.inf)
    # The kernel begins its sums of weights with 1, which the first rescaling removes.
    np.testing.assert_allclose(o.astype("f8"), reference(s) @ v.astype("f8"), rtol=2e-2, atol=2e-3)
