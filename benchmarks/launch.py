"""What a launch of a hand-written kernel costs the host, beside Triton's where it is installed: microseconds a call.

    python benchmarks/launch.py

On a GPU the calls are only queued, in bursts that the device keeps up with; on the CPU the kernel's own time is taken
off.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import blockarray as ba
import blockarray.language as tl
from blockarray.runtime import threads

BURST, ROUNDS = 100, 30


@ba.jit
def few(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@ba.jit
def many(a, b, c, d, e, f, m, n, k, sa, sb, sc, sd, se, sf, alpha, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    at = tl.arange(0, BLOCK_M)
    total = tl.load(a + at) + tl.load(b + at) + tl.load(c + at) + tl.load(d + at) + tl.load(e + at)
    tl.store(f + at, total * alpha + (m + n + k) + (sa + sb + sc + sd + se + sf), mask=at < n)


#: By name: what is launched, the number of arrays, the other arguments, the constants.
CASES: dict[str, tuple[Any, int, tuple[Any, ...], dict[str, Any]]] = {
    "3 arrays, 1 number, 1 constant": (few, 3, (99,), {"BLOCK": 128}),
    "6 arrays, 10 numbers, 2 constants": (
        many, 6, (7, 99, 64, 1, 32, 33, 1, 5, 6, 0.5), {"BLOCK_M": 128, "BLOCK_N": 64}
    ),
}  # fmt: skip


def microseconds(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """The host's time for a call, the least of some bursts' means."""
    run()
    best = float("inf")
    for _ in range(ROUNDS):
        wait()
        started = time.perf_counter()
        for _ in range(BURST):
            run()
        best = min(best, time.perf_counter() - started)
    wait()
    return 1e6 * best / BURST


def kinds() -> dict[str, tuple[Callable[[], Any], Callable[[], object]]]:
    """What arrays of each library are made by, and what waits for its work."""
    found: dict[str, tuple[Callable[[], Any], Callable[[], object]]] = {
        "Array": (lambda: ba.asarray(np.ones(128, "f")).block_until_ready(), ba.synchronize)
    }
    if ba.get_default_device() == "cpu":
        return {"NumPy": (lambda: np.ones(128, "f"), lambda: None), **found}
    if importlib.util.find_spec("torch"):
        import torch

        found = {"torch": (lambda: torch.ones(128, device="cuda"), torch.cuda.synchronize), **found}
    return found


def main() -> None:
    on_cpu = ba.get_default_device() == "cpu"
    for name, (kernel, count, numbers, constants) in CASES.items():
        print(f"{name}:")
        for kind, (make, wait) in kinds().items():
            arrays = [make() for _ in range(count)]
            call = partial(kernel[(1,)], *arrays, *numbers, **constants)
            spent = microseconds(call, wait)
            compiled = call()
            bare = microseconds(bare_launch(compiled), wait) if on_cpu else 0.0
            print(f"  {kind:8} {spent - bare:6.2f} us" + (f"  (and {bare:.2f} us of the kernel)" if on_cpu else ""))
        if not on_cpu and importlib.util.find_spec("triton"):
            print(f"  {'Triton':8} {triton(kernel, count, numbers, constants):6.2f} us")


def bare_launch(compiled: Any) -> Callable[[], None]:
    """The last launch of a kernel on the CPU, without what it does in Python."""
    _, address = compiled._launch._free[-1]
    scratch = compiled.code.scratch(address)
    return lambda: threads.launch(compiled.code.address, address, 1, scratch)


def triton(kernel: Any, count: int, numbers: tuple[Any, ...], constants: dict[str, Any]) -> float:
    import torch
    import triton as peer
    import triton.language

    names, ours = kernel.fn.__globals__, tl
    names["tl"] = triton.language
    try:
        theirs = peer.jit(kernel.fn)
        arrays = [torch.ones(128, device="cuda") for _ in range(count)]
        return microseconds(lambda: theirs[(1,)](*arrays, *numbers, **constants), torch.cuda.synchronize)
    finally:
        names["tl"] = ours


if __name__ == "__main__":
    main()
