"""What the machine can do at most, measured: bandwidth by a copy and a read, arithmetic by a loop of FMAs.

`limits.py DEVICE THREADS` prints a line of JSON: `copy` (read plus written) and `read` in bytes/s, `float32` and
`float64` in flop/s.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import llvmlite.binding as llvm
import numpy as np

ACCUMULATORS = 12  # hides the latency of an FMA on two ports and fits 16 registers
TRIPS = 2_000_000
ENGINES: list[object] = []  # what the compiled loops live in


def best(run: Callable[[], object], rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def copy_bandwidth(threads: int) -> float:
    source = np.ones(1 << 28, np.uint8)
    target = np.ones_like(source)
    cuts = [len(source) * i // threads for i in range(threads + 1)]
    pieces = [(target[a:b], source[a:b]) for a, b in pairwise(cuts)]
    with ThreadPoolExecutor(threads) as pool:
        return 2 * len(source) / best(lambda: list(pool.map(lambda piece: np.copyto(*piece), pieces)))


def vector(dtype: str) -> tuple[int, str]:
    """Lanes and LLVM type of this CPU's widest vectors."""
    features = llvm.get_host_cpu_features()
    size = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    lanes = size // {"float": 4, "double": 8, "i64": 8}[dtype]
    return lanes, f"<{lanes} x {dtype}>"


def compiled(dtype: str, declare: str, step: Callable[[int], str]) -> Callable[[int, int], None]:
    """A loop (pointer, trips) over independent accumulators, each changed once a trip by the IR of `step`."""
    _, vec = vector(dtype)
    accumulators = range(ACCUMULATORS)
    text = [
        declare,
        "define void @loop(ptr %p, i64 %trips) #0 {",
        f"entry:\n  %start = load volatile {vec}, ptr %p, align 1\n  br label %body",
        "body:\n  %i = phi i64 [0, %entry], [%next, %body]",
        *(f"  %a{k} = phi {vec} [%start, %entry], [%b{k}, %body]" for k in accumulators),
        *(step(k) for k in accumulators),
        "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %trips\n  br i1 %more, label %body, label %end\nend:",
        *(f"  store volatile {vec} %b{k}, ptr %p, align 1" for k in accumulators),
        '  ret void\n}\nattributes #0 = { "prefer-vector-width"="512" "min-legal-vector-width"="512" }',
    ]
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("\n".join(text)), machine)
    engine.finalize_object()
    loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("loop"))

    def call(pointer: int, trips: int) -> None:
        loop(pointer, trips)

    ENGINES.append(engine)
    return call


def read_bandwidth(threads: int) -> float:
    lanes, vec = vector("i64")

    def step(k: int) -> str:
        return (
            f"  %j{k} = mul i64 %i, {ACCUMULATORS}\n  %k{k} = add i64 %j{k}, {k}\n"
            f"  %q{k} = getelementptr {vec}, ptr %p, i64 %k{k}\n"
            f"  %v{k} = load {vec}, ptr %q{k}, align 8\n  %b{k} = or {vec} %a{k}, %v{k}"
        )

    loop = compiled("i64", "", step)
    pieces = [np.ones(2**28 // threads, np.uint8) for _ in range(threads)]
    trips = pieces[0].nbytes // (8 * lanes * ACCUMULATORS)
    with ThreadPoolExecutor(threads) as pool:
        seconds = best(lambda: list(pool.map(lambda piece: loop(piece.ctypes.data, trips), pieces)))
    return threads * trips * 8 * lanes * ACCUMULATORS / seconds


def fma_peak(dtype: str, threads: int) -> float:
    lanes, vec = vector(dtype)
    name = f"@llvm.fma.v{lanes}f{32 if dtype == 'float' else 64}"
    half = f"<{', '.join([f'{dtype} 0.5'] * lanes)}>"
    loop = compiled(
        dtype,
        f"declare {vec} {name}({vec}, {vec}, {vec})",
        lambda k: f"  %b{k} = call {vec} {name}({vec} %a{k}, {vec} {half}, {vec} %start)",
    )
    buffers = [np.zeros(64, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = best(lambda: list(pool.map(lambda buffer: loop(buffer.ctypes.data, TRIPS), buffers)))
    return threads * TRIPS * 2 * lanes * ACCUMULATORS / seconds


def main() -> None:
    device, threads = sys.argv[1], int(sys.argv[2])
    if device == "cuda":
        import gpu

        limits = gpu.limits()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        limits = {"copy": copy_bandwidth(threads), "read": read_bandwidth(threads)}
        limits |= {f"float{bits}": fma_peak(t, threads) for t, bits in (("float", 32), ("double", 64))}
    print(json.dumps(limits))


if __name__ == "__main__":
    main()
