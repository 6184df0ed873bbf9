"""Matrix products of the CPU compiler beside NumPy's BLAS, in one process, on one thread and on all.

`micro_gemm.py [M,K,N ...]`; threadpoolctl limits NumPy to one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from blockarray.compiler import cpu, dtypes, ir
from blockarray.compiler.builder import Builder
from blockarray.runtime import jit, threads

SHAPES = [(n, n, n) for n in (256, 512, 1000, 2048, 4096)] + [(4, 4096, 4096), (4096, 4096, 4), (64, 4096, 64)]


def kernel(dtype: str) -> ir.Kernel:
    """a @ b of contiguous matrices; parameters a, b, out, m, k, n, workspace."""
    b = Builder("matmul")
    left, right, out = (b.param(name, ir.Type(dtype, (), True)) for name in ("a", "b", "out"))
    m, k, n = (b.param(name, ir.I64) for name in "mkn")
    b.param("workspace", ir.Type("i8", (), True))
    for name, size in (("m", m), ("k", k), ("n", n)):
        b.dim(name, size)
    zero, one = b.const(0), b.const(1)
    product = b.dot(b.load_view(left, zero, (k, one), ("m", "k")), b.load_view(right, zero, (n, one), ("k", "n")))
    b.store_view(product, out, zero, (n, one))
    b.attrs.update(schedule="gemm", team=True)
    return b.finish()


def best(function: Callable[[], object], seconds: float = 1.0) -> float:
    # BLAS's workers spin for a while after a product.
    time.sleep(0.2)
    function()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    shapes = [tuple(map(int, text.split(","))) for text in sys.argv[1:]] or SHAPES
    target = cpu.host_target()
    for dtype in ("f32", "f64"):
        start = time.perf_counter()
        code = cpu.compile(kernel(dtype), target)
        print(f"{dtype}: compiled in {1e3 * (time.perf_counter() - start):.0f} ms")
        function = jit.load(code)
        for m, k, n in shapes:
            rng = np.random.default_rng(0)
            a, b = (rng.standard_normal(s).astype(dtypes.NUMPY[dtype]) for s in ((m, k), (k, n)))
            out, reference = np.zeros((m, n), a.dtype), np.zeros((m, n), a.dtype)
            args = np.array([*(x.ctypes.data for x in (a, b, out)), m, k, n, 0], np.int64)
            address, line = args.ctypes.data, f"  {m:5} x {k:5} x {n:5}"
            for count in dict.fromkeys((1, threads.num_threads())):
                workspace = np.zeros(function.workspace(address, count) + 64, np.uint8)
                args[-1] = workspace.ctypes.data + -workspace.ctypes.data % 64
                scratch = function.scratch(address)

                def ours() -> None:
                    workspace[: 4096 + 64] = 0  # noqa: B023
                    threads.launch(function.address, address, count, scratch, team=True, threads=count)  # noqa: B023

                with threadpool_limits(count):
                    mine, theirs = best(ours), best(lambda: np.matmul(a, b, out=reference))  # noqa: B023
                rate = 2e-9 * m * k * n
                line += f"   {count} threads: {rate / mine:6.1f} GF, NumPy {rate / theirs:6.1f}, {theirs / mine:.2f} x"
            print(line, flush=True)
            np.testing.assert_allclose(out, reference, atol=1e-3 if dtype == "f32" else 1e-10)


if __name__ == "__main__":
    main()
