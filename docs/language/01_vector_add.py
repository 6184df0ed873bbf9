"""# Vector addition

A kernel is a Python function that says what *one program* does.  A launch starts many of them, each of which finds
out by `tl.program_id` which part of the work is its own.

Programs compute with *blocks*: arrays of a fixed size, a power of two, that live in registers.  `tl.arange(0, BLOCK)`
is the block 0, 1, ..., BLOCK - 1, and arithmetic works element by element, as NumPy's does.  Arrays come in as
pointers.  A pointer plus a block of integers is a block of addresses, which `tl.load` reads and `tl.store` writes.
"""

import numpy as np
from tutorial import by, compilers, main, normal, of_peer, on_gpu, peers, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # The last program's block reaches beyond the end, unless BLOCK divides n.  Elements whose mask is false are neither
    # read nor written.
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


# `BLOCK` is marked as a `constexpr`: the kernel is compiled for its value.  The launch names the number of programs
# in brackets, and the arguments in parentheses.  Arrays of NumPy, torch, CuPy and JAX are arguments as well as the
# library's own; they say where the kernel runs.  Results of the library's arrays are seen by all their views.


def add(x, y, out=None, block=1024):
    out = ba.empty_like(x) if out is None else out
    add_kernel[(ba.cdiv(x.size, block),)](x, y, out, x.size, BLOCK=block)
    return out


def check():
    for n in (1, 1000, 4096, 98_432):
        x, y = normal(n), normal(n, seed=1)
        np.testing.assert_array_equal(np.asarray(add(x, y)), np.asarray(x) + np.asarray(y))
    x = np.arange(10.0)  # An array of NumPy: the kernel runs on the CPU.
    out = np.empty(10)
    add_kernel[(1,)](x, x, out, 10, BLOCK=16)
    np.testing.assert_array_equal(out, x + x)


# ## Measuring
#
# `do_bench` (here inside of `rate`) times a function; `perf_report` calls one for many sizes and for several
# providers, and prints a table, or plots.  An addition only moves memory: 12 bytes an element.
#
# Here and in the other tutorials, "Triton" is the same kernel compiled by Triton, on a GPU where that is installed, and
# "torch" and "numpy" are those libraries' own operations.
#
# An array expression, `x + y`, becomes a kernel as good as this one by itself.  The language is for what comes next.


def report():
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[2**k for k in (range(16, 28, 2) if on_gpu() else range(14, 23, 2))],
            line_arg="provider",
            line_vals=[*compilers(), "expression", *peers()],
            line_names=[*compilers(), "x + y", *peers()],
            plot_name="vector-add",
            ylabel="GB/s",
            x_log=True,
            args={},
        )
    )
    def measure(n, provider):
        x, y = normal(n), normal(n, seed=1)
        if provider in compilers():
            run, out, block = by(provider, add), ba.empty_like(x), 1024 if on_gpu() else 4096
            return rate(lambda: run(x, y, out, block), 12 * n)
        if provider != "expression":
            x, y = of_peer(provider, x, y)
        return rate(lambda: x + y, 12 * n)

    return measure


if __name__ == "__main__":
    main(check, report)
