"""What blockarray costs on the host: recording, launching, compiling, and loading compiled kernels from the disk cache.

Run as a program it measures this process and prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from report import duration


def per_call(function: Any, count: int) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count)
    return median(times)


def first_calls(xp: Any, x: Any) -> list[float]:
    """Seconds that programs of four operations take at first, over what they take when warm."""
    unary = (xp.exp, xp.sin, xp.sqrt)
    times = []
    for f, g, h in product(unary, repeat=3):
        start = time.perf_counter()
        xp.evaluate(f(g(h(x))) + x)
        times.append(time.perf_counter() - start)
        times[-1] -= per_call(lambda f=f, g=g, h=h: xp.evaluate(f(g(h(x))) + x), 20)
    return times


def child() -> dict[str, float]:
    start = time.perf_counter()
    import blockarray

    imported = time.perf_counter() - start
    import numpy as np

    xp: Any = blockarray
    x = xp.asarray(np.ones(1000, np.float32))
    xp.evaluate(x + 1)
    costs = {"import": imported, "first call": median(first_calls(xp, x))}

    def record() -> Any:
        y = x
        for _ in range(5):
            y = y * 1.01
            y = y + 0.5
        return y

    xp.evaluate(record())
    costs["record"] = per_call(record, 200) / 10
    costs["flush"] = per_call(lambda: xp.evaluate(record()), 200) - 10 * costs["record"]
    costs["one"] = per_call(lambda: xp.evaluate(x + 1), 500)
    a = xp.asarray(np.ones((32, 32), np.float32))
    xp.evaluate(a @ a)
    costs["record product"] = per_call(lambda: a @ a, 500)
    costs["product"] = per_call(lambda: xp.evaluate(a @ a), 500)
    return costs


def measure() -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory(prefix="blockarray-bench-") as cache:
        command = [sys.executable, str(Path(__file__))]
        env = os.environ | {"BLOCKARRAY_CACHE_DIR": cache}
        cold, warm = (
            json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout) for _ in range(2)
        )
    return [
        ("record one operation", duration(warm["record"])),
        ("flush of ten recorded operations on 1,000 elements, warm", duration(warm["flush"])),
        ("record and run one operation on 1,000 elements, warm", duration(warm["one"])),
        ("record a product", duration(warm["record product"])),
        ("record and run a product of 32 by 32, warm", duration(warm["product"])),
        ("compile a kernel of four operations", duration(cold["first call"])),
        ("load that kernel from the disk cache in a new process", duration(warm["first call"])),
        ("import blockarray", duration(warm["import"])),
    ]


if __name__ == "__main__":
    print(json.dumps(child()))
