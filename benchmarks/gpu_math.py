"""Times elementwise kernels on a GPU that compute more than they move, with and without the compiler's own functions.

python benchmarks/gpu_math.py [words that the names must contain]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "compiler" / "cuda"))

import bringup
import gpu_kernels
import workloads
from bringup import call, driver
from gpu_kernels import Builder

from blockarray.compiler import cuda
from blockarray.compiler.cuda import doubles, layout
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.ir import Value

#: Seconds after which nothing new begins.
LIMIT = 55
ELEMENTS = 1 << 24


class Tile:
    """A tile of a kernel under construction, with NumPy's operators."""

    def __init__(self, b: Builder, value: Value) -> None:
        self.b, self.value = b, value

    def op(self, name: str, *args: Tile | float) -> Tile:
        return Tile(self.b, self.b.op(name, *map(self._operand, args)))

    def _operand(self, x: Tile | float) -> Value:
        if isinstance(x, Tile):
            return x.value
        ty = self.value.type
        return self.b.broadcast(self.b.const(x, ty.dtype), (), ty.extents)

    def __add__(self, x: Tile | float) -> Tile:
        return self.op("add", self, x)

    def __radd__(self, x: float) -> Tile:
        return self.op("add", x, self)

    def __sub__(self, x: Tile | float) -> Tile:
        return self.op("subtract", self, x)

    def __mul__(self, x: Tile | float) -> Tile:
        return self.op("multiply", self, x)

    def __rmul__(self, x: float) -> Tile:
        return self.op("multiply", x, self)

    def __truediv__(self, x: Tile | float) -> Tile:
        return self.op("divide", self, x)

    def __neg__(self) -> Tile:
        return self.op("negative", self)


class Namespace:
    """The functions of tiles."""

    def __getattr__(self, name: str) -> Callable[[Tile], Tile]:
        return lambda x: x.op(name, x)


def case(function: Callable[..., Any], arity: int, dtype: str, block: int) -> gpu_kernels.Case:
    """The kernel that computes a function of positive numbers, in tiles of `block` elements."""
    m = gpu_kernels.Make(function.__name__)
    b, kind = m.b, NUMPY[dtype]
    data = [np.resize(m.rng.uniform(0.1, 3, 1 << 20).astype(kind), ELEMENTS) for _ in range(arity)]
    # Numbers whose quotients and roots are hard to round.
    steps = np.arange(1, 500) * np.finfo(kind).eps
    hard = np.concatenate([1 + steps, 2 - steps])
    data[0][: hard.size] = 1
    data[-1][: hard.size] = hard
    sources = [m.array(dtype, ELEMENTS, data=x) for x in data]
    out = m.array(dtype, ELEMENTS, data=np.zeros(ELEMENTS, kind))
    j = m.blocked("j", m.size(ELEMENTS), block)
    start, one = b.dim_start(j), b.const(1)
    tiles = [Tile(b, b.load_view(x, start, [one], (j,))) for x in sources]
    b.store_view(function(Namespace(), *tiles).value, out, start, [one])
    return m.case()


def single(name: str) -> Callable[..., Any]:
    def function(xp: Any, *args: Any) -> Any:
        return args[0] / args[1] if name == "divide" else getattr(xp, name)(*args)

    return function


class Library(cuda.Target):
    """Takes NVIDIA's functions of doubles."""

    def emitter(self, name: str, elem: str) -> None:
        return None

    def calls(self, name: str, elem: str) -> bool:
        return super().calls(name, elem) or (elem == "double" and name in doubles.EMITTERS)


class Variant(NamedTuple):
    name: str
    #: Whether doubles' functions are NVIDIA's.
    library: bool = False
    #: Threads of a block that makes short trips; 0: a thread holds all elements of a tile at once.
    threads: int = layout.COMPUTING
    tile: int = 4096


VARIANTS = (
    Variant("libdevice", True, 0), Variant("libdevice, trips", True), Variant("own", threads=0),
    Variant("own, trips of 512", threads=512), Variant("own, trips of 256", threads=256),
    Variant("own, trips of 128", threads=128), Variant("own, tile 1024", threads=256, tile=1024),
    Variant("own, tile 512", threads=128, tile=512),
)  # fmt: skip


@contextmanager
def chosen(variant: Variant, target: cuda.Target) -> Iterator[cuda.Target]:
    """The target to compile for, with the compiler set as a variant says."""
    before = doubles.FAST, layout.COMPUTING, layout.HEAVY
    layout.COMPUTING = variant.threads
    if not variant.threads:
        layout.HEAVY = 1 << 30
    if variant.library:
        doubles.FAST = {}
        target = Library(target.arch, target.ptx, target.shared)
    yield target
    doubles.FAST, layout.COMPUTING, layout.HEAVY = before


def rows(words: list[str], target: cuda.Target, begun: float) -> Iterator[str]:
    """Time and bandwidth of each kernel and variant, and the largest error against NumPy."""
    work: list[tuple[str, Callable[..., Any], int, str]] = [
        ("Black-Scholes f64", workloads.black_scholes, 3, "f64"), ("exp/sin chain f64", workloads.chain, 1, "f64"),
        ("Black-Scholes f32", workloads.black_scholes, 3, "f32"), ("exp/sin chain f32", workloads.chain, 1, "f32"),
        *((f"{n} f64", single(n), 1 + (n == "divide"), "f64") for n in (*doubles.EMITTERS, *sorted(doubles.FAST))),
    ]  # fmt: skip
    for name, function, arity, dtype in work:
        if not all(w in name for w in words):
            continue
        short = VARIANTS[1:5:3] if function.__name__ == "function" else VARIANTS
        for variant in short if dtype == "f64" else [VARIANTS[4]]:
            if time.perf_counter() - begun > LIMIT:
                yield "(out of time)"
                return
            made = case(function, arity, dtype, variant.tile)
            with chosen(variant, target) as changed:
                launch = bringup.Launch(made, changed)
            launch.run()
            got = launch.results()[-1][: 1 << 20]
            want = function(np, *(x[: 1 << 20] for x in made.args[:arity]))
            error = np.max(np.abs(got - want) / np.spacing(np.maximum(np.abs(want), 0.1).astype(want.dtype)))
            seconds = bringup.timed(launch)
            h = launch.header
            yield (
                f"{name:18} {variant.name:17} {seconds * 1e6:7.1f} us "
                f"{launch.bytes / seconds / 1e9:5.0f} GB/s {ELEMENTS / seconds / 1e9:6.1f} G/s  threads "
                f"{h['threads']:4} registers {h.get('registers')} spills {h.get('spills')}  {error:.1f} ulp"
            )
            launch.free()
    for length in (128, 1024, 4096):
        name = f"softmax bf16 rows of {length}"
        if all(w in name for w in words) and time.perf_counter() - begun < LIMIT:
            together = max(1, 4096 // length)
            launch = bringup.Launch(gpu_kernels.softmax((1 << 26) // length, length, "bf16", together=together), target)
            launch.run()
            call(driver.cuCtxSynchronize)
            seconds, h = bringup.timed(launch), launch.header
            yield (
                f"{name:34} {seconds * 1e6:7.1f} us {launch.bytes / seconds / 1e9:5.0f} GB/s  threads {h['threads']:4} "
                f"registers {h.get('registers')} spills {h.get('spills')}"
            )
            launch.free()


def main(words: list[str]) -> None:
    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
    attribute = driver.CUdevice_attribute
    prefix = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_"
    capability = [
        int(call(driver.cuDeviceGetAttribute, getattr(attribute, prefix + part), device)) for part in ("MAJOR", "MINOR")
    ]
    begun = time.perf_counter()
    for row in rows(words, cuda.make_target((capability[0], capability[1])), begun):
        print(row, flush=True)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
