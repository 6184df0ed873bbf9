"""# Grouped and persistent products

The number of programs need not follow from the size.  Here as many programs start as run at a time, and each goes on
to the next block when it is done with one.

**Persistent**: one product.  While a program stores a block it can begin to load the next one.  Operands are read by
*descriptors*: made from a pointer, a shape, strides and the shape of a block.  Their loads take offsets instead of
addresses and are bounded by the shape, so no masks are needed.  On Hopper the copy engine (TMA) does them.

**Grouped**: many products of different sizes in one launch, as in mixtures of experts.  Sizes and addresses come from
memory: a table with a row for each product.  A pointer is loaded as an integer and cast to a pointer type.
"""

import numpy as np
from tutorial import OURS, by, close, compilers, main, normal, of_peer, on_gpu, peers, processors, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def persistent_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    result = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0)):
        i, j = tl.swizzle2d(tile // across, tile % across, down, across, GROUP)
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([i * BM, k]), right.load([k, j * BN]), total)
        result.store([i * BM, j * BN], total.to(c.dtype.element_ty))


def persistent(a, b, c=None, BM=128, BN=128, BK=64, GROUP=8, **options):
    (m, k), n = a.shape, b.shape[1]
    c = ba.empty((m, n), dtype=a.dtype) if c is None else c
    persistent_kernel[(processors(),)](a, b, c, m, n, k, BM=BM, BN=BN, BK=BK, GROUP=GROUP, **options)
    return c


@ba.jit
def grouped_kernel(
    table, products, TYPE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    tile = tl.program_id(0)
    first = 0  # The first tile of the product that is looked at.
    for product in range(products):
        row = table + product * 6
        M, N, K = tl.load(row).to(tl.int32), tl.load(row + 1).to(tl.int32), tl.load(row + 2).to(tl.int32)
        across = tl.cdiv(N, BN)
        after = first + tl.cdiv(M, BM) * across
        a = tl.load(row + 3).to(tl.pointer_type(TYPE))
        b = tl.load(row + 4).to(tl.pointer_type(TYPE))
        c = tl.load(row + 5).to(tl.pointer_type(TYPE))
        while tile < after:
            rows = (tile - first) // across * BM + tl.arange(0, BM)
            columns = (tile - first) % across * BN + tl.arange(0, BN)
            k = tl.arange(0, BK)
            at = a + rows[:, None] * K + k
            bt = b + k[:, None] * N + columns
            total = tl.zeros((BM, BN), tl.float32)
            for k0 in range(0, K, BK):
                left = tl.load(at, mask=(rows[:, None] < M) & (k < K - k0), other=0.0)
                right = tl.load(bt, mask=(k[:, None] < K - k0) & (columns < N), other=0.0)
                total = tl.dot(left, right, total)
                at += BK
                bt += BK * N
            tl.store(c + rows[:, None] * N + columns, total.to(TYPE), mask=(rows[:, None] < M) & (columns < N))
            tile += tl.num_programs(0)
        first = after


def address(x):
    """Where an array begins in memory."""
    return x.__cuda_array_interface__["data"][0] if on_gpu() else x.ctypes.data


def prepare(pairs):
    """Results of products, and the table that says where all is.  Memory is named by number: keep the arrays."""
    arrays = [(a, b, np.empty((a.shape[0], b.shape[1]), a.dtype)) for a, b in pairs]
    if on_gpu():
        arrays = [[ba.asarray(x) for x in row] for row in arrays]
    rows = [[a.shape[0], b.shape[1], a.shape[1], address(a), address(b), address(c)] for a, b, c in arrays]
    return arrays, ba.asarray(np.array(rows, np.int64))


def grouped(table, dtype, BM=128, BN=128, BK=64, **options):
    type = tl.float16 if dtype == "float16" else tl.float32
    grouped_kernel[(processors(),)](table, table.shape[0], type, BM=BM, BN=BN, BK=BK, **options)


def check():
    side = 64 if on_gpu() else 32
    small = {"BM": side, "BN": side, "BK": 32}
    for m, n, k in ((64, 96, 32), (80, 136, 56)):
        a, b = normal(m, k, dtype="float16"), normal(k, n, seed=1, dtype="float16")
        want = np.asarray(a).astype("f8") @ np.asarray(b).astype("f8")
        close(persistent(a, b, GROUP=2, **small), want, 2e-3)
    sizes = ((1, 1, 1), (70, 33, 20), (32, 64, 96), (5, 100, 300))
    pairs = [(np.asarray(normal(m, k)), np.asarray(normal(k, n, seed=1))) for m, n, k in sizes]
    arrays, table = prepare(pairs)
    grouped(table, "float32", **small)
    ba.synchronize()
    for (a, b), (_, _, c) in zip(pairs, arrays):
        close(c, a.astype("f8") @ b.astype("f8"), 2e-3 if on_gpu() else 1e-6)


# ## Measuring


def report_persistent():
    unit = "TFLOP/s" if on_gpu() else "GFLOP/s"

    @perf_report(
        Benchmark(
            x_names=["k"],
            x_vals=[512, 2048, 4096, 8192] if on_gpu() else [128, 512],
            line_arg="provider",
            line_vals=[*compilers(), "blockarray", *peers()],
            line_names=[*compilers(), "a @ b", *peers()],
            plot_name="persistent-matmul",
            ylabel=unit,
            x_log=True,
            args={"n": 8192 if on_gpu() else 256},
        )
    )
    def measure(n, k, provider):
        dtype = "float16" if on_gpu() else "float32"
        a, b, amount = normal(n, k, dtype=dtype), normal(k, n, seed=1, dtype=dtype), 2 * n * n * k
        if provider in compilers():
            run, c = by(provider, persistent), ba.empty((n, n), dtype=dtype)
            # Triton keeps room for the result beside the stages, so that four do not fit.
            stages = 4 if provider == OURS else 3
            options = {"BN": 256, "num_warps": 8, "num_stages": stages} if on_gpu() else {"BM": 64, "BN": 64}
            found = rate(lambda: run(a, b, c, **options), amount)
        else:
            if provider != "blockarray":
                a, b = of_peer(provider, a, b)
            found = rate(lambda: a @ b, amount)
        return found / 1000 if on_gpu() else found

    return measure


def report_grouped():
    unit = "TFLOP/s" if on_gpu() else "GFLOP/s"

    @perf_report(
        Benchmark(
            x_names=["products"],
            x_vals=[4, 16, 64] if on_gpu() else [4, 16],
            line_arg="provider",
            line_vals=[*compilers(), *peers()],
            line_names=[*compilers(), *[f"{p}, one by one" for p in peers()]],
            plot_name="grouped-matmul",
            ylabel=unit,
            x_log=True,
            args={"n": 1024 if on_gpu() else 128},
        )
    )
    def measure(products, n, provider):
        dtype = "float16" if on_gpu() else "float32"
        sizes = [n // (1 + i % 4) for i in range(products)]
        pairs = [(np.asarray(normal(m, n, dtype=dtype)), np.asarray(normal(n, n, dtype=dtype))) for m in sizes]
        amount = 2 * n * n * sum(sizes)
        arrays, table = prepare(pairs)
        if provider in compilers():
            run = by(provider, grouped)
            options = {"num_warps": 8, "num_stages": 4} if on_gpu() else {"BM": 64, "BN": 64}
            found = rate(lambda: run(table, dtype, **options), amount)
        else:
            each = [of_peer(provider, a, b) for a, b, _ in arrays]
            found = rate(lambda: [a @ b for a, b in each], amount)
        return found / 1000 if on_gpu() else found

    return measure


if __name__ == "__main__":
    main(check, report_persistent, report_grouped)
