"""# Layer normalisation, forward and backward

Each row is shifted and scaled to mean 0 and variance 1, then multiplied by weights and shifted by a bias, one of each
for a column: `y = (x - mean) * rstd * w + b`.  A program holds a row, as in the softmax.

The gradient has two parts of different shape.  That of `x` is by rows:

    t = w * dy,  xhat = (x - mean) * rstd
    dx = rstd * (t - mean(t) - xhat * mean(t * xhat))

Those of `w` and `b` are sums over all rows, which many programs share.  Instead of atomics or locks, each program
takes every `programs`-th row, adds up its part in registers, and stores one row of partial sums.  A second, small
kernel adds these; it always adds in the same order, so results repeat to the bit.
"""

import numpy as np
from tutorial import by, close, compilers, composing, main, normal, of_peer, on_gpu, peers, processors, rate

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, perf_report


@ba.jit
def forward_kernel(x, w, b, y, mean, rstd, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + row * n + at, mask=inside, other=0.0)
    average = tl.sum(v, axis=0) / n
    d = tl.where(inside, v - average, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, axis=0) / n + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, scale)
    result = d * scale * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside)
    tl.store(y + row * n + at, result, mask=inside)


@ba.jit
def backward_kernel(x, w, dy, mean, rstd, dx, parts, rows, n, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    weights = tl.load(w + at, mask=inside, other=0.0)
    of_weights = tl.zeros((BLOCK,), tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, programs):
        here = tl.cast(row, tl.int64) * n + at
        scale = tl.load(rstd + row)
        xhat = tl.where(inside, (tl.load(x + here, mask=inside, other=0.0) - tl.load(mean + row)) * scale, 0.0)
        g = tl.load(dy + here, mask=inside, other=0.0)
        t = weights * g
        result = scale * (t - tl.sum(t, axis=0) / n - xhat * (tl.sum(t * xhat, axis=0) / n))
        tl.store(dx + here, result, mask=inside)
        of_weights += g * xhat
        of_bias += g
    tl.store(parts + program * n + at, of_weights, mask=inside)
    tl.store(parts + (programs + program) * n + at, of_bias, mask=inside)


@ba.jit
def sum_kernel(parts, sums, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    which = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(parts + (which * rows + row) * n + at, mask=(row < rows) & (at < n), other=0.0)
    tl.store(sums + which * n + at, tl.sum(total, axis=0), mask=at < n)


def meta(n):
    block = ba.next_power_of_2(n)
    return {"BLOCK": block, "num_warps": min(max(block // 256, 1), 16)}


def empty(*shape):
    return ba.empty(shape, dtype="float32")


def forward(x, w, b, out=None, eps=1e-5):
    rows, n = x.shape
    y, mean, rstd = out or (empty(rows, n), empty(rows), empty(rows))
    forward_kernel[(rows,)](x, w, b, y, mean, rstd, n, eps, **meta(n))
    return y, mean, rstd


# The more columns, the more registers a program takes, and the fewer programs run at a time.  More of them than that
# would only store more partial sums.


def backward(x, w, dy, mean, rstd, out=None):
    rows, n = x.shape
    programs = min(rows, processors() * min(max(8192 // n, 1), 8))
    dx, parts, sums = out or (empty(rows, n), empty(2, programs, n), empty(2, n))
    backward_kernel[(programs,)](x, w, dy, mean, rstd, dx, parts, rows, n, **meta(n))
    few = min(64, ba.next_power_of_2(programs))
    sum_kernel[(ba.cdiv(n, 32), 2)](parts, sums, programs, n, ROWS=few, BLOCK=32)
    return dx, parts, sums


def reference(x, w, b, dy):
    """Results and gradients in float64."""
    d = x - x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)
    xhat, t = d * rstd, w * dy
    dx = rstd * (t - t.mean(1, keepdims=True) - xhat * (t * xhat).mean(1, keepdims=True))
    return xhat * w + b, dx, (dy * xhat).sum(0), dy.sum(0)


def check():
    for rows, n in ((1, 1), (7, 100), (100, 1151)):
        x, w, b, dy = normal(rows, n) + 3, normal(n, seed=1), normal(n, seed=2), normal(rows, n, seed=3)
        y, mean, rstd = forward(x, w, b)
        dx, _, (dw, db) = backward(x, w, dy, mean, rstd)
        found = y, dx, dw, db
        for mine, right in zip(found, reference(*(np.asarray(v).astype("f8") for v in (x, w, b, dy)))):
            close(mine, right)


# ## Measuring
#
# The forward pass moves 8 bytes an element, the backward pass 12.  "composed" is what one writes without a fused
# operation: mean, variance, and arithmetic.


def composed(xp, x, w, b):
    mean = xp.mean(x, -1)[:, None]
    d = x - mean
    return d / xp.sqrt(xp.mean(d * d, -1)[:, None] + 1e-5) * w + b


def arrays(n):
    rows = 4096 if on_gpu() else 256
    return normal(rows, n), normal(n, seed=1), normal(n, seed=2), normal(rows, n, seed=3)


def report_forward():
    lines = [*compilers(), "blockarray", *composing(fused=True)]

    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[1024, 2048, 4096, 8192, 16384] if on_gpu() else [256, 1000, 4096],
            line_arg="provider",
            line_vals=lines,
            line_names=lines,
            plot_name="layer-norm-forward",
            ylabel="GB/s",
            x_log=True,
            args={},
        )
    )
    def measure(n, provider):
        x, w, b, _ = arrays(n)
        if provider in compilers():
            run, out = by(provider, forward), forward(x, w, b)
            return rate(lambda: run(x, w, b, out), 8 * x.size)
        if provider == "blockarray":
            return rate(lambda: composed(ba, x, w, b), 8 * x.size)
        amount = 8 * x.size
        x, w, b = of_peer(provider.split()[0], x, w, b)
        if provider == "numpy composed":
            return rate(lambda: composed(np, x, w, b), amount)
        import torch  # pyright: ignore[reportMissingImports]

        if "composed" in provider:
            return rate(lambda: composed(torch, x, w, b), amount)
        return rate(lambda: torch.nn.functional.layer_norm(x, (n,), w, b), amount)

    return measure


def report_backward():
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[1024, 2048, 4096, 8192, 16384] if on_gpu() else [256, 1000, 4096],
            line_arg="provider",
            line_vals=[*compilers(), *peers()],
            line_names=[*compilers(), *peers()],
            plot_name="layer-norm-backward",
            ylabel="GB/s",
            x_log=True,
            args={},
        )
    )
    def measure(n, provider):
        x, w, b, dy = arrays(n)
        amount = 12 * x.size
        if provider in compilers():
            _, mean, rstd = forward(x, w, b)
            run, out = by(provider, backward), backward(x, w, dy, mean, rstd)
            return rate(lambda: run(x, w, dy, mean, rstd, out), amount)
        if provider == "numpy":
            host = [np.asarray(v) for v in (x, w, b, dy)]
            return rate(lambda: reference(*host), amount)
        x, w, b, dy = of_peer(provider, x, w, b, dy)
        import torch  # pyright: ignore[reportMissingImports]

        x, w, b = (v.detach().requires_grad_() for v in (x, w, b))
        y = torch.nn.functional.layer_norm(x, (n,), w, b)
        return rate(lambda: torch.autograd.grad(y, (x, w, b), dy, retain_graph=True), amount)

    return measure


if __name__ == "__main__":
    main(check, report_forward, report_backward)
