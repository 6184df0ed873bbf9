"""What the tutorials share: options, random arrays, other libraries' arrays and kernels, and what is measured.

python docs/language/01_vector_add.py [--device cpu|cuda] [--save FOLDER] [--points N] [--no-bench]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import numpy as np

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark, Mark, do_bench

#: Providers of the tutorial's kernel, and the column that compares them.
OURS, TRITON, RATIO = "kernel", "Triton", "kernel / Triton"


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


def composing(fused: bool = False) -> list[str]:
    """Lines for what the peers compose of their operations, and (`fused`) for torch's one operation for it all."""
    return [*[f"{peer} composed" for peer in peers()], *[peer for peer in peers() if fused and peer == "torch"]]


def of_peer(provider: str, *arrays: Any) -> list[Any]:
    """Arrays as NumPy's, or as torch's of the same memory."""
    if provider == "numpy":
        return [np.asarray(x) for x in arrays]
    import torch  # pyright: ignore[reportMissingImports]

    return [torch.from_dlpack(x) for x in arrays]


# -- the same kernel, compiled by Triton ------------------------------------------------------------------------------
def compilers() -> list[str]:
    """Who compiles a tutorial's kernels: this library, and on a GPU also Triton, if it is there."""
    return [OURS, TRITON] if importlib.util.find_spec("triton") and peers() == ["torch"] else [OURS]


def by(provider: str, function: Any) -> Any:
    """A kernel, or a function that launches kernels; for the provider TRITON it is Triton that compiles them."""
    if provider == OURS:
        return function
    if not isinstance(function, FunctionType):
        return _Launched(function)
    kernels = {name: _Launched(x) for name, x in function.__globals__.items() if isinstance(x, ba.JITFunction)}
    return _with(function, kernels)


class _Launched:
    """A kernel of Triton's, launched with this library's arrays as torch's of the same memory."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = _in_triton(kernel)
        self._known: dict[int, tuple[Any, Any]] = {}

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self._launch, grid)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> None:
        self.kernel[grid](*[self._given(x) for x in args], **kwargs)

    def _given(self, x: Any) -> Any:
        if isinstance(x, tl.dtype):
            return importlib.import_module("triton.language").dtype(str(x))
        if not isinstance(x, ba.Array):
            return x
        if id(x) not in self._known:
            self._known[id(x)] = x, of_peer("torch", x)[0]
        return self._known[id(x)][1]


@cache
def _in_triton(kernel: Any) -> Any:
    """Triton's kernel of the same source."""
    triton, language = importlib.import_module("triton"), importlib.import_module("triton.language")
    if hasattr(kernel, "configs"):
        configs = [triton.Config(c.kwargs, num_warps=c.num_warps, num_stages=c.num_stages) for c in kernel.configs]
        return triton.autotune(configs, kernel.keys)(_in_triton(kernel.fn))
    fn = kernel.fn
    called = {name: x for name in fn.__code__.co_names if isinstance(x := fn.__globals__.get(name), ba.JITFunction)}
    made = _with(fn, {"tl": language, **{name: _in_triton(x) for name, x in called.items()}})
    made.__annotations__ = dict.fromkeys(fn.__annotations__, language.constexpr)
    # Descriptors that are made on the device lie in memory that Triton asks for.
    torch = importlib.import_module("torch")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    return triton.jit(made)


def _with(function: Any, names: dict[str, Any]) -> Any:
    """A function for which some global names mean something else."""
    made = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# -- measuring --------------------------------------------------------------------------------------------------------
def rate(fn: Callable[[], Any], amount: float) -> float:
    """Billions a second of what a call does an `amount` of: bytes (GB/s) or operations (GFLOP/s)."""
    return amount / do_bench(fn, return_mode="median", warmup=5, rep=40) * 1e-6


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless arrays agree, relative to the largest element."""
    found, wanted = (np.asarray(x).astype(np.float64) for x in (found, wanted))
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def reports(marks: Sequence[Callable[[], Mark]], points: int = 0) -> list[tuple[Mark, Benchmark]]:
    """What a tutorial's reports measure, at the last sizes only if `points` is not 0."""
    found = []
    for report in marks:
        mark = report()
        for benchmark in [mark.benchmarks] if isinstance(mark.benchmarks, Benchmark) else mark.benchmarks:
            benchmark.x_vals = benchmark.x_vals[-points:]
            found.append((Mark(partial(_measured, mark.fn), benchmark), benchmark))
    return found


def _measured(fn: Callable[..., float], provider: str, **arguments: Any) -> float:
    """What a provider reaches; NaN if Triton cannot compile a kernel."""
    try:
        return fn(provider=provider, **arguments)
    except Exception as error:
        if provider != TRITON:
            raise
        print(f"Triton: {type(error).__name__}: {error}")
        return float("nan")


def main(check: Callable[[], None], *marks: Callable[[], Mark], argv: Sequence[str] | None = None) -> None:
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
    for mark, _ in reports(marks, options.points):
        mark.run(print_data=True, save_path=options.save or "", format="svg")
