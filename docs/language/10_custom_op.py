"""# A kernel as an operation of array expressions

A launch runs at once.  `custom_op` makes a function that launches kernels an operation instead: a call records it,
with the shapes and dtypes of what will come out, and it runs when something needs its results.  What is recorded
around it fuses as ever.

The kernel finds the smallest and the largest element of a window around each element, where every element has a
window of its own width.  An array expression would have to make a matrix of all windows.  The kernel gathers: each
element looks at its own stretch of the input, and a loop runs until the widest window of the block is done.
"""

import importlib

import numpy as np
from tutorial import close, composing, main, normal, of_peer, on_gpu, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def envelope_kernel(x, width, low, high, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(width + at, mask=inside, other=0)
    first, last = tl.maximum(at - w, 0), tl.minimum(at + w, n - 1)
    smallest = tl.full((BLOCK,), float("inf"), tl.float32)
    largest = -smallest
    k = 0
    while k <= tl.max(last - first, axis=0):
        v = tl.load(x + tl.minimum(first + k, last), mask=inside, other=0.0)
        smallest = tl.minimum(smallest, v)
        largest = tl.maximum(largest, v)
        k += 1
    tl.store(low + at, smallest, mask=inside)
    tl.store(high + at, largest, mask=inside)


# The function takes its operands and, by keyword, `out`: the arrays to fill.  Without rules there is one result with
# the shape and dtype of the first operand; `shape=` and `dtype=` are rules of the arguments.  A list of shapes makes
# several results.


@ba.custom_op(shape=lambda x, width: [x.shape, x.shape])
def envelope(x, width, *, out):
    envelope_kernel[(ba.cdiv(x.size, 256),)](x, width, *out, x.size, BLOCK=256)


def place(signal, width):
    """Where a smoothed signal is between the extremes around it, from -1 to 1."""
    x = ba.tanh(signal) * 2
    low, high = envelope(x, width)
    return (2 * x - low - high) / (high - low + 1e-3)


def composed(xp, signal, width, at):
    """The same in operations of an array library, which gather once for each place in the window."""
    x = xp.tanh(signal) * 2
    first, last = (at - width).clip(0), (at + width).clip(None, len(x) - 1)
    low = high = x
    for k in range(int((last - first).max()) + 1):
        v = x[xp.minimum(first + k, last)]
        low, high = xp.minimum(low, v), xp.maximum(high, v)
    return (2 * x - low - high) / (high - low + 1e-3)


def data(n):
    """A signal, widths of windows, and the places of the elements."""
    at = np.arange(n, dtype=np.int32)
    return normal(n), ba.asarray(at % 7), ba.asarray(at)


def check():
    for n in (1, 600, 1000):
        signal, width, at = data(n)
        y = place(signal, width)
        assert "custom operation envelope" in str(ba.explain(y))  # Recorded, and not yet run.
        close(y, composed(np, *(np.asarray(x) for x in (signal, width, at))), 1e-3)


# `print(ba.explain(y))` lists the steps: a kernel for `x`, the operation, and one kernel for all that follows.
#
# ## Measuring


def report():
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[2**k for k in (range(16, 25, 4) if on_gpu() else range(12, 19, 3))],
            line_arg="provider",
            line_vals=["operation", *composing()],
            line_names=["custom_op", *composing()],
            plot_name="envelope",
            ylabel="million elements/s",
            x_log=True,
            args={},
        )
    )
    def measure(n, provider):
        signal, width, at = data(n)
        if provider == "operation":
            return 1000 * rate(lambda: place(signal, width), n)
        signal, width, at = of_peer(provider.split()[0], signal, width, at)
        xp = np if provider == "numpy composed" else importlib.import_module("torch")
        return 1000 * rate(lambda: composed(xp, signal, width, at), n)

    return measure


if __name__ == "__main__":
    main(check, report)
