"""# Fused softmax

Written as separate operations, a softmax over rows reads and writes the matrix five times.  A program that holds a
whole row in registers reads it once and writes the result once.

This shows two more things: reductions, `tl.max` and `tl.sum`, which make one number of a block; and loads with
`other`, the value of elements that are masked out.  Rows need not be as long as a block: what is missing counts as
minus infinity, whose exponential is 0.
"""

import numpy as np
from tutorial import by, close, compilers, composing, main, normal, of_peer, on_gpu, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def softmax_kernel(x, out, x_stride, out_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # Large matrices need offsets of 64 bits.
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + row * x_stride + at, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=inside)


# The block has to hold a row, so its size follows from the arguments.  `num_warps` says how many groups of 32 threads
# work on a program on a GPU: the longer the rows, the more.  A row of 65536 numbers does not fit in the registers of 32
# of them; the compiler keeps a part of it in shared memory.
#
# On a GPU, a program of one short row has so little to do that starting it takes longer.  So short rows are taken
# several at a time there, as a block of two dimensions, which is reduced along the second.


@ba.jit
def short_rows_kernel(x, out, x_stride, out_stride, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (at < n)
    v = tl.load(x + row * x_stride + at, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=1, keep_dims=True))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=1, keep_dims=True), mask=inside)


def softmax(x, out=None):
    rows, n = x.shape
    out = ba.empty_like(x) if out is None else out
    block = ba.next_power_of_2(n)
    warps = min(max(block // 512, 1), 32)
    arguments = x, out, x.strides[0] // 4, out.strides[0] // 4
    if block < 512 and on_gpu():
        several = 512 // block
        grid = (ba.cdiv(rows, several),)
        short_rows_kernel[grid](*arguments, rows, n, ROWS=several, BLOCK=block, num_warps=warps)
    else:
        softmax_kernel[(rows,)](*arguments, n, BLOCK=block, num_warps=warps)
    return out


def composed(xp, x):
    """The same in operations of an array library."""
    e = xp.exp(x - xp.amax(x, -1)[:, None])
    return e / xp.sum(e, -1)[:, None]


def check():
    for shape in ((1, 1), (3, 5), (100, 781), (17, 4096)):
        x = normal(*shape)
        close(softmax(x), composed(np, np.asarray(x)), 1e-6)
    x = normal(64, 100)
    close(softmax(x[1::2, 3:50]), composed(np, np.asarray(x)[1::2, 3:50]), 1e-6)


# ## Measuring
#
# The matrix has 4096 rows (256 on the CPU); bytes are those that have to move, 8 an element.  `composed` above is
# measured three times: by this library, which fuses it, by NumPy or torch, which do one operation at a time, and by
# torch's own fused softmax.


def report():
    lines = [*compilers(), "blockarray", *composing(fused=True)]

    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[128 << i for i in range(10)] if on_gpu() else [128, 1000, 4096],
            line_arg="provider",
            line_vals=lines,
            line_names=lines,
            plot_name="softmax",
            ylabel="GB/s",
            x_log=True,
            args={"rows": 4096 if on_gpu() else 256},
        )
    )
    def measure(rows, n, provider):
        x, amount = normal(rows, n), 8 * rows * n
        if provider in compilers():
            run, out = by(provider, softmax), ba.empty_like(x)
            return rate(lambda: run(x, out), amount)
        if provider == "blockarray":
            return rate(lambda: composed(ba, x), amount)
        (x,) = of_peer(provider.split()[0], x)
        if provider == "numpy composed":
            return rate(lambda: composed(np, x), amount)
        import torch  # pyright: ignore[reportMissingImports]

        return rate(lambda: composed(torch, x) if "composed" in provider else torch.softmax(x, -1), amount)

    return measure


if __name__ == "__main__":
    main(check, report)
