"""# Matrix products

A program computes one block of `c = a @ b`: it walks along the inner dim in steps of `BK`, loads a block of each
operand and adds their product, `tl.dot`, to what it has so far.  On a GPU `dot` runs on tensor cores, and the
compiler brings the next blocks to shared memory while the present ones are multiplied (`num_stages` says how many it
may hold); on a CPU it becomes a loop nest that keeps the sums in vector registers.

Blocks have two dims here.  `rows[:, None]` makes a column of a block of one dim, and a column and a row broadcast.
Sizes need not be multiples of the blocks: masks say what lies inside, and what does not counts as 0, which adds
nothing.

A GPU's tensor cores round operands of float32 to TF32, with mantissas of 10 bits, unless `dot` is told otherwise by
`input_precision="ieee"`.  A CPU does not.
"""

import numpy as np
from tutorial import by, close, compilers, main, normal, of_peer, on_gpu, peers, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def matmul_kernel(
    a, b, c, M, N, K, a_stride, b_stride, c_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    rows = i * BM + tl.arange(0, BM)
    columns = j * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at = a + rows[:, None] * a_stride + k
    bt = b + k[:, None] * b_stride + columns
    total = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(at, mask=(rows[:, None] < M) & (k < K - k0), other=0.0)
        right = tl.load(bt, mask=(k[:, None] < K - k0) & (columns < N), other=0.0)
        total = tl.dot(left, right, total)
        at += BK
        bt += BK * b_stride
    inside = (rows[:, None] < M) & (columns < N)
    tl.store(c + rows[:, None] * c_stride + columns, total.to(c.dtype.element_ty), mask=inside)


# Programs that run at the same time should need the same rows and columns, which then come from the cache.  Those that
# follow one another in axis 0 of the grid do; `swizzle2d` takes them for a walk along `GROUP` rows of blocks together,
# column by column.
#
# ## Choosing the blocks
#
# Which blocks are best depends on the sizes and the device.  `autotune` measures configurations when it first sees
# values of its `key`, and keeps the fastest, on disk, too.


def configs():
    if not on_gpu():
        shapes = ((64, 64, 128), (128, 128, 128), (256, 128, 128), (256, 256, 256))
        return [ba.Config({"BM": m, "BN": n, "BK": k, "GROUP": 4}) for m, n, k in shapes]
    shapes = ((128, 256, 64, 8), (128, 128, 64, 8), (128, 64, 64, 4), (64, 64, 64, 4))
    return [
        ba.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_warps=warps, num_stages=4) for m, n, k, warps in shapes
    ]


def strides(*arrays):
    return [x.strides[0] // x.itemsize for x in arrays]


def matmul(a, b, c=None, kernel=matmul_kernel, **meta):
    (m, k), n = a.shape, b.shape[1]
    c = ba.empty((m, n), dtype=a.dtype) if c is None else c
    grid = lambda meta: (ba.cdiv(n, meta["BN"]), ba.cdiv(m, meta["BM"]))
    kernel[grid](a, b, c, m, n, k, *strides(a, b, c), **meta)
    return c


def check():
    side = 64 if on_gpu() else 32  # Tensor cores take 64 rows and more.
    small = {"BM": side, "BN": side, "BK": 32, "GROUP": 2}
    for m, n, k in ((1, 1, 1), (64, 96, 32), (77, 130, 51)):
        a, b = normal(m, k), normal(k, n, seed=1)
        want = np.asarray(a).astype("f8") @ np.asarray(b).astype("f8")
        close(matmul(a, b, **small), want, 2e-3 if on_gpu() else 1e-5)
        a, b = a.astype("float16"), b.astype("float16")
        close(matmul(a, b, **small), want, 2e-3)


# ## Measuring
#
# In TFLOP/s (float16) on a GPU, GFLOP/s (float32) on the CPU.


def report():
    unit = "TFLOP/s" if on_gpu() else "GFLOP/s"

    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[512, 1024, 2048, 4096, 8192] if on_gpu() else [128, 256, 512],
            line_arg="provider",
            line_vals=[*compilers(), "blockarray", *peers()],
            line_names=[*compilers(), "a @ b", *peers()],
            plot_name="matmul",
            ylabel=unit,
            x_log=True,
            args={},
        )
    )
    def measure(n, provider):
        dtype = "float16" if on_gpu() else "float32"
        a, b, amount = normal(n, n, dtype=dtype), normal(n, n, seed=1, dtype=dtype), 2 * n**3
        if provider in compilers():
            run, kernel, c = by(provider, matmul), by(provider, tuned), ba.empty((n, n), dtype=dtype)
            found = rate(lambda: run(a, b, c, kernel), amount)
        else:
            if provider != "blockarray":
                a, b = of_peer(provider, a, b)
            found = rate(lambda: a @ b, amount)
        return found / 1000 if on_gpu() else found

    tuned = ba.autotune(configs(), key=["M", "N", "K"])(matmul_kernel)
    return measure


if __name__ == "__main__":
    main(check, report)
