"""# A histogram, by atomics

Many programs count into the same bins.  `tl.atomic_add` reads, adds and writes as one step, so that no count is lost.
It is relaxed here: counts need no order among each other.

Atomics on one address wait for each other, and the bins are few.  So a program counts a block for itself first, with
`tl.histogram`, and adds its counts to the bins in memory once for many elements.  Integers add up to the same in any
order, so the result is exact.  (The order of atomics is not fixed: sums of floats would differ from run to run.)
"""

import numpy as np
from tutorial import by, compilers, main, of_peer, on_gpu, peers, processors, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def direct_kernel(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.atomic_add(counts + tl.load(x + at, mask=inside, other=0), 1, mask=inside, sem="relaxed")


@ba.jit
def histogram_kernel(x, counts, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    mine = tl.zeros((BINS,), tl.int32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        mine += tl.histogram(tl.load(x + at, mask=inside, other=0).to(tl.int32), BINS, mask=inside)
    tl.atomic_add(counts + tl.arange(0, BINS), mine, sem="relaxed")


def direct(x, bins, counts=None, block=1024):
    counts = ba.zeros(bins, dtype="int32") if counts is None else counts
    direct_kernel[(ba.cdiv(x.size, block),)](x, counts, x.size, BLOCK=block)
    return counts


def histogram(x, bins, counts=None, block=4096):
    """How often each of the numbers from 0 to `bins` - 1 is in x; `bins` is a power of two."""
    counts = ba.zeros(bins, dtype="int32") if counts is None else counts
    programs = min(ba.cdiv(x.size, block), 4 * processors())
    histogram_kernel[(programs,)](x, counts, x.size, BINS=bins, BLOCK=block)
    return counts


def numbers(n, bins):
    x = ba.random.default_rng(0).integers(0, bins, n, dtype="uint8")
    ba.evaluate(x)
    return x


def check():
    for n, bins in ((1, 16), (1000, 64), (100_000, 256)):
        x = numbers(n, bins)
        want = np.bincount(np.asarray(x), minlength=bins)
        np.testing.assert_array_equal(np.asarray(direct(x, bins)), want)
        np.testing.assert_array_equal(np.asarray(histogram(x, bins)), want)


# ## Measuring
#
# Bytes are the numbers', one each.


def report():
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[2**k for k in (range(18, 29, 5) if on_gpu() else range(14, 21, 3))],
            line_arg="provider",
            line_vals=[*compilers(), "direct", *peers()],
            line_names=[*compilers(), "atomics only", *[f"{p} bincount" for p in peers()]],
            plot_name="histogram",
            ylabel="GB/s",
            x_log=True,
            args={"bins": 256},
        )
    )
    def measure(n, bins, provider):
        x = numbers(n, bins)
        if provider in (*compilers(), "direct"):
            counts = ba.zeros(bins, dtype="int32")
            run = direct if provider == "direct" else by(provider, histogram)
            return rate(lambda: run(x, bins, counts), n)
        (x,) = of_peer(provider, x)
        if provider == "numpy":
            return rate(lambda: np.bincount(x, minlength=bins), n)
        import torch  # pyright: ignore[reportMissingImports]

        return rate(lambda: torch.bincount(x, minlength=bins), n)

    return measure


if __name__ == "__main__":
    main(check, report)
