"""What the tutorials share: options, random arrays, torch's arrays, and tables and plots of what was measured.

python docs/language/01_vector_add.py [--device cpu|cuda] [--save FOLDER] [--points N] [--no-bench]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import blockarray as ba
from blockarray.testing import Benchmark, Mark, do_bench


def on_gpu() -> bool:
    """Whether new arrays live on a GPU."""
    return ba.get_default_device() != "cpu"


def processors() -> int:
    """How many programs run at a time: multiprocessors of a GPU, or cores."""
    return getattr(ba.get_default_device(), "multiprocessors", None) or os.cpu_count() or 1


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    """Normally distributed numbers, on the default device."""
    x = ba.random.default_rng(seed).standard_normal(shape, "float32").astype(dtype)
    ba.evaluate(x)  # So that what is measured finds it there.
    return x


def peers() -> list[str]:
    """Who else is measured: torch on a GPU, if it is there, and NumPy on the CPU."""
    if not on_gpu():
        return ["numpy"]
    return ["torch"] if importlib.util.find_spec("torch") else []


def of_peer(provider: str, *arrays: Any) -> list[Any]:
    """Arrays as NumPy's, or as torch's of the same memory."""
    if provider == "numpy":
        return [np.asarray(x) for x in arrays]
    import torch  # pyright: ignore[reportMissingImports]

    return [torch.from_dlpack(x) for x in arrays]


def rate(fn: Callable[[], Any], amount: float) -> float:
    """Billions a second of what a call does an `amount` of: bytes (GB/s) or operations (GFLOP/s)."""
    return amount / do_bench(fn, return_mode="median", warmup=5, rep=40) * 1e-6


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless arrays agree, relative to the largest element."""
    found, wanted = (np.asarray(x).astype(np.float64) for x in (found, wanted))
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def main(check: Callable[[], None], *reports: Callable[[], Mark], argv: Sequence[str] | None = None) -> None:
    """Run a tutorial: its check, then what it measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", help="cpu or cuda (default: the library's)")
    parser.add_argument("--save", metavar="FOLDER", help="write tables (.csv) and, with matplotlib, plots (.svg)")
    parser.add_argument("--points", type=int, default=0, help="measure the last N sizes only")
    parser.add_argument("--no-bench", action="store_true", help="check only")
    options = parser.parse_args(argv)
    if options.device:
        ba.set_default_device("cuda:0" if options.device == "cuda" else options.device)
    check()
    print("results agree")
    if options.no_bench:
        return
    for report in reports:
        mark = report()
        for benchmark in [mark.benchmarks] if isinstance(mark.benchmarks, Benchmark) else mark.benchmarks:
            benchmark.x_vals = benchmark.x_vals[-options.points :]
        mark.run(print_data=True, save_path=options.save or "", format="svg")
