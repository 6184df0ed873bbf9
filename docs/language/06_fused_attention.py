"""# Fused attention

`softmax(q @ k.T * scale) @ v`, for many heads.  The matrix of scores is as large as the sequence is long, squared; it
is never stored.  A program holds a block of queries and walks along the keys.  Of each query it keeps

- `high`, the largest score so far,
- `total`, the sum of `exp2(score - high)`, and
- `result`, the same sum with the values as factors.

When a larger score comes, the sums are scaled by `exp2(old high - new high)`, as if it had been there from the
beginning.  (`exp2` is what hardware has; the scale takes in the factor of log2(e).)

Causal attention lets a query see no key behind it.  The blocks of keys before the program's queries need no mask and
those behind are not visited, so there are two loops with one body.  The body is a function of its own: kernels call
each other, and what is called is inlined.
"""

import numpy as np
from tutorial import by, close, compilers, composing, main, normal, of_peer, on_gpu, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def walk(
    q, k, v, result, total, high, rows, start, end, N, scale,
    BN: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    for first in tl.range(start, end, BN):
        keys = first + tl.arange(0, BN)
        at = keys[:, None] * D + tl.arange(0, D)
        if MASK:
            seen = keys < N
            s = tl.dot(q, tl.load(k + at, mask=seen[:, None], other=0.0).T) * scale
            values = tl.load(v + at, mask=seen[:, None], other=0.0)
            allowed = seen & (keys <= rows[:, None]) if CAUSAL else seen & (rows[:, None] >= 0)
            s = tl.where(allowed, s, -1e30)
        else:
            s = tl.dot(q, tl.load(k + at).T) * scale
            values = tl.load(v + at)
        higher = tl.maximum(high, tl.max(s, axis=1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(high - higher)
        total = total * shrink + tl.sum(p, axis=1)
        result = tl.dot(p.to(q.dtype), values, result * shrink[:, None])
        high = higher
    return result, total, high


@ba.jit
def attention_kernel(
    q, k, v, out, N, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * N * D
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # Where causal, the longest walks begin first.
    rows = block * BM + tl.arange(0, BM)
    at = head + rows[:, None] * D + tl.arange(0, D)
    queries = tl.load(q + at, mask=rows[:, None] < N, other=0.0)
    high = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(N, (block + 1) * BM) if CAUSAL else N
    whole = (block * BM if CAUSAL else N) // BN * BN
    k += head
    v += head
    result, total, high = walk(queries, k, v, result, total, high, rows, 0, whole, N, scale, BN, D, False, CAUSAL)
    result, total, high = walk(queries, k, v, result, total, high, rows, whole, end, N, scale, BN, D, True, CAUSAL)
    tl.store(out + at, (result / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < N)


def attention(q, k, v, causal, out=None, BM=128, BN=128, **options):
    *heads, n, d = q.shape
    out = ba.empty_like(q) if out is None else out
    scale = d**-0.5 * 1.4426950408889634
    grid = (ba.cdiv(n, BM), int(np.prod(heads)))
    attention_kernel[grid](q, k, v, out, n, scale, causal, BM=BM, BN=BN, D=d, **options)
    return out


def composed(xp, q, k, v, causal):
    """In operations, each of which stores its result."""
    d = q.shape[-1]
    s = q @ k.swapaxes(-1, -2) * d**-0.5
    if causal:
        mask = xp.tril(xp.ones_like(s[0, 0])) > 0
        s = xp.where(mask, s, -xp.inf)
    e = xp.exp(s - xp.amax(s, -1)[..., None])
    return e / xp.sum(e, -1)[..., None] @ v


def check():
    side = 64 if on_gpu() else 32
    for heads, n, d in ((2, 96, 16), (1, 77, 16)):
        for causal in (False, True):
            q, k, v = (normal(1, heads, n, d, seed=seed, dtype="float16") for seed in range(3))
            want = composed(np, *(np.asarray(x).astype("f8") for x in (q, k, v)), causal=causal)
            close(attention(q, k, v, causal, BM=side, BN=side), want, 5e-3)


# ## Measuring
#
# Two products of n x n x d a head; causal attention does half of that.  TFLOP/s of float16 on a GPU, beside
# torch.scaled_dot_product_attention and the composed operations; GFLOP/s of float32 on the CPU.


def report():
    unit = "TFLOP/s" if on_gpu() else "GFLOP/s"
    lines = [*compilers(), *composing(fused=True)]

    @perf_report(
        [
            Benchmark(
                x_names=["n"],
                x_vals=[1024, 2048, 4096] if on_gpu() else [128, 512],
                line_arg="provider",
                line_vals=lines,
                line_names=lines,
                plot_name="attention" + "-causal" * causal,
                ylabel=unit,
                x_log=True,
                args={"d": 128 if on_gpu() else 64, "causal": causal},
            )
            for causal in (False, True)
        ]
    )
    def measure(n, d, causal, provider):
        shape, dtype = ((4, 16, n, d), "float16") if on_gpu() else ((1, 2, n, d), "float32")
        amount = 4 * shape[0] * shape[1] * n * n * d // (2 if causal else 1)
        q, k, v = (normal(*shape, seed=seed, dtype=dtype) for seed in range(3))
        if provider in compilers():
            run, out = by(provider, attention), ba.empty(shape, dtype=dtype)
            options = {"num_warps": 8, "num_stages": 2} if on_gpu() else {"BM": 64, "BN": 64}
            found = rate(lambda: run(q, k, v, causal, out, **options), amount)
        else:
            q, k, v = of_peer(provider.split()[0], q, k, v)
            if provider == "numpy composed":
                fn = lambda: composed(np, q, k, v, causal)
            else:
                import torch  # pyright: ignore[reportMissingImports]

                fused = torch.nn.functional.scaled_dot_product_attention
                fn = (lambda: composed(torch, q, k, v, causal)) if "composed" in provider else (
                    lambda: fused(q, k, v, is_causal=causal)
                )  # fmt: skip
            found = rate(fn, amount)
        return found / 1000 if on_gpu() else found

    return measure


if __name__ == "__main__":
    main(check, report)
