"""# A scan: linear recurrences

`h[t] = a[t] * h[t - 1] + b[t]` looks as if it had to be computed one step after the other.  But steps combine: first
`h -> a1 * h + b1`, then `h -> a2 * h + b2`, is `h -> (a1 * a2) * h + (a2 * b1 + b2)`.  This combination is
associative, so blocks of steps can be combined in any grouping, which is what `tl.associative_scan` does, in
log2(BLOCK) rounds or so. It takes a tuple of blocks and a function that combines two elements.

State space models and moving averages are such recurrences.  Array libraries without a scan of this kind compose them
of cumulative products and sums, which needs more passes over memory and overflows where the products get small.

A program takes a row, block by block, and hands the last state on to the next block.
"""

import numpy as np
from tutorial import by, close, compilers, composing, main, normal, of_peer, on_gpu, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def after(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@ba.jit
def recurrence_kernel(a, b, h, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    last = tl.arange(0, BLOCK) == BLOCK - 1
    state = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        factors = tl.load(a + row + at, mask=inside, other=1.0)
        terms = tl.load(b + row + at, mask=inside, other=0.0)
        factors, terms = tl.associative_scan((factors, terms), 0, after)
        result = factors * state + terms
        tl.store(h + row + at, result, mask=inside)
        state = tl.sum(tl.where(last, result, 0.0), axis=0)


def recurrence(a, b, h=None, block=1024):
    rows, n = a.shape
    h = ba.empty_like(a) if h is None else h
    recurrence_kernel[(rows,)](a, b, h, n, BLOCK=min(block, ba.next_power_of_2(n)))
    return h


def by_steps(a, b):
    h = np.zeros_like(b)
    state = np.zeros_like(b[:, 0])
    for t in range(b.shape[1]):
        h[:, t] = state = a[:, t] * state + b[:, t]
    return h


def check():
    for rows, n, block in ((1, 1, 16), (3, 100, 32), (5, 1000, 256)):
        a, b = 1 / (1 + ba.exp(-normal(rows, n))), normal(rows, n, seed=1)
        close(recurrence(a, b, block=block), by_steps(*(np.asarray(x).astype("f8") for x in (a, b))))


# ## Measuring
#
# 12 bytes an element.  "composed" is `p * cumsum(b / p)` where `p = cumprod(a)`; factors are near 1 here, so that it
# stays finite.


def composed(xp, a, b):
    p = xp.cumprod(a, 1)
    return p * xp.cumsum(b / p, 1)


def report():
    lines = [*compilers(), *composing()]

    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[1024, 4096, 16384] if on_gpu() else [256, 1024, 4096],
            line_arg="provider",
            line_vals=lines,
            line_names=lines,
            plot_name="recurrence",
            ylabel="GB/s",
            x_log=True,
            args={"rows": 4096 if on_gpu() else 64},
        )
    )
    def measure(rows, n, provider):
        a, b = 1 - 0.001 * abs(normal(rows, n)), normal(rows, n, seed=1)
        ba.evaluate(a, b)
        amount = 12 * rows * n
        if provider in compilers():
            run, h = by(provider, recurrence), ba.empty_like(a)
            return rate(lambda: run(a, b, h), amount)
        a, b = of_peer(provider.split()[0], a, b)
        if provider == "numpy composed":
            return rate(lambda: composed(np, a, b), amount)
        import torch  # pyright: ignore[reportMissingImports]

        return rate(lambda: composed(torch, a, b), amount)

    return measure


if __name__ == "__main__":
    main(check, report)
