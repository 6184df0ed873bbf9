"""What the front end costs on a GPU: recording, flushes, reads, copies, profiles.

python tests/integration/bringup_devices.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blockarray as ba


def best(f: Callable[[], object], count: int = 200, repeats: int = 7) -> float:
    """Microseconds that one call takes."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            f()
        seconds.append((time.perf_counter() - start) / count)
        ba.synchronize()
    return min(seconds) * 1e6


def report(what: str, value: float, unit: str) -> None:
    print(f"{what:60} {value:10.2f} {unit}", flush=True)


def chain(x: ba.Array, y: ba.Array) -> ba.Array:
    z = x
    for _ in range(5):
        z = z * 2.5 + y
    return z


def main() -> None:
    print(ba.devices(), ba.get_default_device())
    for device in ("cpu", "cuda"):
        x = ba.asarray(np.arange(1000, dtype=np.float32), device=device)
        y = x + 1
        ba.evaluate(x, y)
        report(f"{device}: record ten operations", best(lambda x=x, y=y: chain(x, y)), "us")
        report(f"{device}: record and flush ten operations", best(lambda x=x, y=y: ba.evaluate(chain(x, y))), "us")
        report(f"{device}: the same, to a Python float", best(lambda x=x, y=y: float(chain(x, y)[0])), "us")
        report(f"{device}: one addition, flushed", best(lambda x=x, y=y: ba.evaluate(x + y)), "us")
        report(f"{device}: float(x[i]) of a small array", best(lambda x=x: float(x[17])), "us")
        large = ba.ones(1 << 20, dtype=np.float32, device=device) + 0
        ba.evaluate(large)
        report(f"{device}: float(x[i]) of a large array", best(lambda x=large: float(x[17])), "us")
        indices = ba.asarray(np.arange(100), device=device)
        report(f"{device}: gather, with its check", best(lambda x=large, i=indices: ba.evaluate(x[i])), "us")
        report(f"{device}: x[0] = 1, flushed", best(lambda x=large: (x.__setitem__(0, 1.0), ba.evaluate(x))), "us")

    host = np.ones(1 << 26, np.float32)
    device = ba.asarray(host, device="cuda")
    ba.synchronize()
    gb = host.nbytes / 1e3
    report("asarray of 256 MB", gb / best(lambda: (ba.asarray(host, device="cuda"), ba.synchronize()), 1), "GB/s")
    report("np.asarray of 256 MB", gb / best(lambda: np.asarray(device), 1), "GB/s")
    report("copy() of 256 MB", 2 * gb / best(lambda: (ba.evaluate(device + 0), ba.synchronize()), 5), "GB/s")
    if len(ba.devices()) > 2:
        move = lambda: (device.to_device("cuda:1"), ba.synchronize())
        report("to_device of 256 MB", gb / best(move, 5), "GB/s")
    with ba.profile() as p:
        softmax = ba.exp(device.reshape(8192, -1) - 1.0)
        ba.evaluate(softmax / softmax.sum(1, keepdims=True), ba.sort(device[: 1 << 20]))
        ba.linalg.svdvals(ba.ones((64, 64), device="cuda"))
        ba.synchronize()
    print(p)
    print(ba.explain(softmax.mean(0) + ba.linalg.det(ba.eye(3, device="cuda"))))


if __name__ == "__main__":
    main()
