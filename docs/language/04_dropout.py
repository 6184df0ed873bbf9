"""# Dropout without a mask in memory

Dropout zeroes a random part of its input and scales up the rest.  Its gradient has to zero the same elements, so the
mask is usually kept in memory between the two.  It need not be: `tl.rand(seed, at)` is a *function* of a seed and a
position (Philox, a counter-based generator).  Forward and backward pass compute the same numbers where they need
them, in any order and on any number of programs, and only the seed is kept.

Philox makes four numbers of a position.  `tl.rand` gives one of them; `tl.rand4x` gives all, for the price of one.
"""

import numpy as np
from tutorial import by, compilers, main, normal, of_peer, on_gpu, peers, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    # Four numbers at a time, for four neighbours.
    r0, r1, r2, r3 = tl.rand4x(seed, program * (BLOCK // 4) + tl.arange(0, BLOCK // 4))
    numbers = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape(BLOCK)
    at = program * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    tl.store(out + at, tl.where(numbers >= p, v / (1 - p), 0.0), mask=inside)


# The gradient of what was kept is scaled likewise, and the rest has none: the same kernel with the same seed is the
# backward pass.


def dropout(x, p, seed, out=None, block=1024):
    out = ba.empty_like(x) if out is None else out
    dropout_kernel[(ba.cdiv(x.size, block),)](x, out, x.size, p, seed, BLOCK=block)
    return out


def check():
    n, p = 100_000, 0.3
    x = normal(n)
    y, again, other = (np.asarray(dropout(x, p, seed)) for seed in (123, 123, 124))
    kept = y != 0
    np.testing.assert_array_equal(y, again)
    assert (kept != (other != 0)).mean() > 0.3
    assert abs(kept.mean() - (1 - p)) < 0.01
    np.testing.assert_allclose(y[kept], np.asarray(x)[kept] / np.float32(1 - p), 1e-6)
    gradient = np.asarray(dropout(ba.ones_like(x), p, 123))
    np.testing.assert_array_equal(gradient != 0, kept)


# ## Measuring
#
# Bytes are the input's and the output's.  On a CPU the random numbers cost more than memory does.


def report():
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[2**k for k in (range(18, 28, 3) if on_gpu() else range(14, 21, 3))],
            line_arg="provider",
            line_vals=[*compilers(), *peers()],
            line_names=[*compilers(), *peers()],
            plot_name="dropout",
            ylabel="GB/s",
            x_log=True,
            args={"p": 0.5},
        )
    )
    def measure(n, p, provider):
        x = normal(n)
        if provider in compilers():
            run, out = by(provider, dropout), ba.empty_like(x)
            return rate(lambda: run(x, p, 123, out), 8 * n)
        (x,) = of_peer(provider, x)
        if provider == "numpy":
            rng = np.random.default_rng(123)
            return rate(lambda: np.where(rng.random(n, "float32") >= p, x, 0) * np.float32(1 / (1 - p)), 8 * n)
        import torch  # pyright: ignore[reportMissingImports]

        return rate(lambda: torch.dropout(x, p, True), 8 * n)

    return measure


if __name__ == "__main__":
    main(check, report)
