"""Runs the GPU's kernels under compute-sanitizer: memcheck, racecheck, initcheck and synccheck.

    python tests/sanitize.py [--tools memcheck,racecheck] [--subjects programs] [--seconds 60]

The subjects, each under each tool in a process of its own, all at once: `kernels` (the checked cases of
tests/compiler/cuda/bringup.py, and products), `routines` (small cases of bringup_sort.py), `programs` (array code,
through the whole library, then random programs) and `faults` (kernels that are wrong: each tool must find its own).
`products` are those of the programs, if they are asked for. No report is excused.
Prints what each tool said at last; the exit status is the number of runs that were not as they should be.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SUBJECTS = ("programs", "kernels", "routines", "faults")
#: Of the programs only the products.
PRODUCTS = "products"
#: Sorts of more elements than this take a tool too long.
SMALL = 70_000
#: What a tool's process ends with when it found something.
FOUND = 3
#: Stands before the name of what runs.
CASE = "case: "
#: Reports of a tool at most.
PRINTED = 1000
#: How many random programs.
RANDOM = 100


# -- array code -------------------------------------------------------------------------------------------------------
def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "biu":
        return rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def scattered(xp: Any, x: Any, index: np.ndarray) -> Any:
    y = xp.array(x)
    y[xp.asarray(index)] = 5
    y[3:50:7] += 1
    y[y > 2] *= -1
    return y


def programs() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Names, and functions of a namespace that give arrays."""
    for dtype in ("bool", "int8", "uint16", "int32", "int64", "float32", "float64", "complex64", "complex128"):
        a, b = values(1003, dtype=np.dtype(dtype).type), values(1003, dtype=np.dtype(dtype).type, seed=1)
        yield f"elementwise {dtype}", lambda xp, a=a, b=b: xp.asarray(a) * b + xp.asarray(b) * 3
    x, odd, wide = values(64, 1024), values(37, 1003), values(3, 70_001)
    for name, s in (("64x1024", x), ("37x1003", odd), ("3x70001", wide)):
        for f in ("sum", "max", "min", "mean", "var", "prod", "argmax", "any"):
            for axis in (0, 1, None):
                yield (
                    f"{f} axis {axis} {name}",
                    lambda xp, f=f, s=s, axis=axis: getattr(xp, f)(xp.asarray(s) * 0.5, axis=axis),
                )
        yield f"softmax {name}", lambda xp, s=s: softmax(xp, xp.asarray(s))
        yield f"cumsum rows {name}", lambda xp, s=s: xp.cumsum(xp.asarray(s) + 1, axis=1)
        yield f"cumsum columns {name}", lambda xp, s=s: xp.cumsum(xp.asarray(s), axis=0)
        yield f"transposed {name}", lambda xp, s=s: xp.ascontiguousarray(xp.asarray(s).T)
    half = x.astype(np.float16)
    yield "softmax f16", lambda xp: softmax(xp, xp.asarray(half))
    yield "softmax bf16", lambda xp: softmax(xp, xp.asarray(x.astype(ml_dtypes.bfloat16)))
    long = values(3_000_001, dtype=np.int64)
    yield "long cumsum", lambda xp: xp.cumsum(xp.asarray(long))
    yield "long cumsum f32", lambda xp: xp.cumsum(xp.asarray(long.astype(np.float32)) * 0.01)
    index = np.random.default_rng(2).integers(-64, 64, 500)
    yield "gather", lambda xp: xp.asarray(x)[xp.asarray(index)] * 2
    yield "gather two", lambda xp: xp.asarray(x)[xp.asarray(index), xp.asarray(abs(index))]
    yield "take along", lambda xp: xp.take_along_axis(xp.asarray(odd), xp.argsort(xp.asarray(odd), axis=1), axis=1)
    yield "scatter", lambda xp: scattered(xp, values(4001), np.arange(5, 4000, 9))
    yield "histogram", lambda xp: xp.bincount(xp.asarray(long[:50_000]), minlength=100)
    yield "mask", lambda xp: xp.asarray(x)[xp.asarray(x) > 0.5]
    yield "nonzero", lambda xp: xp.nonzero(xp.asarray(x) > 0.5)[1]
    yield "unique", lambda xp: xp.unique(xp.asarray(long[:20_000]))
    yield "sort", lambda xp: xp.sort(xp.asarray(wide), axis=-1)
    yield "sort columns", lambda xp: xp.sort(xp.asarray(odd), axis=0)
    yield "argsort", lambda xp: xp.argsort(xp.asarray(long[:30_000]), kind="stable")
    yield "searchsorted", lambda xp: xp.searchsorted(xp.sort(xp.asarray(wide[0])), xp.asarray(odd))
    yield "windows", lambda xp: xp.asarray(x)[1:-1, 1:-1] + xp.asarray(x)[2:, :-2] - xp.asarray(x)[::-1][:-2, 2:]
    yield "concatenate", lambda xp: xp.concatenate((xp.asarray(x), xp.asarray(x)[:, ::-1] * 2, x[:3]))
    yield "pad, roll, tile", lambda xp: xp.tile(xp.roll(xp.pad(xp.asarray(odd), 3), 5, axis=1), (2, 1))
    yield "copies", lambda xp: xp.array(xp.asarray(x))[::2, ::-3].copy()
    yield "where", lambda xp: xp.where(xp.asarray(x) > 0, xp.asarray(x), -1)
    yield from products()
    yield "batched", lambda xp: xp.matmul(xp.asarray(values(5, 40, 64)), xp.asarray(values(64, 24)))
    yield "pairwise", lambda xp: xp.sum((xp.asarray(odd)[:, None, :16] - xp.asarray(x)[None, :, :16]) ** 2, axis=-1)


def products() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for m, k, n in ((64, 64, 64), (128, 256, 384), (200, 136, 72), (33, 65, 17), (1, 512, 256), (256, 512, 1)):
        for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.complex64):
            a, b = (values(*s, dtype=np.float32).astype(dtype) for s in ((m, k), (k, n)))
            name = f"product {np.dtype(dtype).name} {m}x{k}x{n}"
            yield name, lambda xp, a=a, b=b: xp.matmul(xp.asarray(a), xp.asarray(b))
            yield (
                f"{name} transposed",
                lambda xp, a=a, b=b: xp.matmul(xp.ascontiguousarray(a.T).T, xp.ascontiguousarray(b.T).T) + 1,
            )


def random_draws(xp: Any) -> Iterator[Any]:
    rng = xp.random.default_rng(7)
    yield rng.random(10_001)
    yield rng.standard_normal(10_001, dtype=np.float32)
    yield rng.integers(0, 1000, 10_001)
    yield rng.permutation(5000)


def run_programs(end: float) -> str:
    import blockarray as ba
    from tests.fuzz import programs as fuzz

    done = run_each(programs(), end)
    for draw in random_draws(ba):
        assert np.isfinite(np.asarray(draw)).all()
    seeds = 0
    while seeds < RANDOM and time.monotonic() < end:
        for x in fuzz.execute(fuzz.make(seeds, length=12, numpys=True), ba, ba.evaluate).values():
            np.asarray(x)
        seeds += 1
    return f"{done}, the draws and {seeds} random programs"


def run_each(cases: Iterator[tuple[str, Callable[[Any], Any]]], end: float) -> str:
    """Each program against NumPy, each buffer in an allocation of its own."""
    import blockarray as ba

    if any(str(d) != "cpu" for d in ba.devices()):
        allocate_directly()
    done = 0
    for name, program in cases:
        if time.monotonic() > end:
            return f"out of time after {done} programs"
        print(f"{CASE}{name}", flush=True)
        got = np.asarray(program(ba))
        want = np.asarray(program(np))
        assert got.shape == want.shape, name
        if got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want, name)
        else:
            to = np.complex128 if got.dtype.kind == "c" else np.float64
            tolerance = {2: 3e-2, 4: 2e-3, 8: 2e-3}.get(got.dtype.itemsize, 1e-9)
            np.testing.assert_allclose(got.astype(to), want.astype(to), tolerance, tolerance, err_msg=name)
        done += 1
    return f"{done} programs"


def allocate_directly() -> None:
    """Let each buffer be memory of the driver's own, of exactly its size: what the tools can tell apart."""
    from blockarray.runtime.cuda import driver, memory

    class Free:
        """In place of a list of freed blocks: gives them back at once."""

        def __init__(self, pool: memory.Pool) -> None:
            self.pool = pool

        def __len__(self) -> int:
            return 0

        def pop(self) -> int:
            raise IndexError

        def append(self, address: int) -> None:
            self.pool.context.synchronize()
            self.pool.context.check(driver.api.cuMemFree(address))

    def fresh(self: memory.Pool, capacity: int, nbytes: int) -> int:
        self.context.enter()
        self.sweep()
        self.free.setdefault(capacity, cast("Any", Free(self)))
        return int(self.context.check(driver.api.cuMemAlloc(max(nbytes, 1))))

    memory.Pool.fresh = fresh


# -- the compiler's own ------------------------------------------------------------------------------------------------
def module(name: str) -> ModuleType:
    path = ROOT / "tests/compiler/cuda" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run_kernels(end: float) -> str:
    bringup = module("bringup")
    from tests.compiler.cuda import gpu_products

    target, done = bringup.start(), 0
    cases = bringup.kernels.CASES | gpu_products.CASES
    for name, make in cases.items():
        if time.monotonic() > end:
            return f"out of time after {done} of {len(cases)} kernels"
        print(f"{CASE}{name}", flush=True)
        case = make()
        if sum(a.nbytes for a in case.args if isinstance(a, np.ndarray)) > 4 << 20:
            continue
        launch = bringup.Launch(case, target)
        launch.run()
        try:
            bringup.compare(case, launch.results())
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        launch.free()
        done += 1
    return f"{done} kernels"


def run_routines(end: float) -> str:
    sorting = module("bringup_sort")
    device, done = sorting.Device(), 0
    cases = [c for c in sorting.cases() if c.work <= SMALL]
    # Some of each kind first, should the time not do for all.
    for case in [*cases[::7], *(c for i, c in enumerate(cases) if i % 7)]:
        if time.monotonic() > end:
            return f"out of time after {done} of {len(cases)} cases"
        for step in case.routine.launches:
            if step.code.text not in device.blobs:
                device.blobs[step.code.text] = sorting.compiled(step.code)
        run = sorting.Run(case, device)
        sorting.check(run)
        run.free()
        done += 1
    return f"{done} cases of routines"


FAULTS = b"""
.version 7.4
.target sm_80
.address_size 64

.visible .entry memcheck(.param .u64 memory) {  // writes beyond the memory
    .reg .u64 %a;
    ld.param.u64 %a, [memory];
    st.global.u32 [%a+1024], 1;
    ret;
}

.visible .entry racecheck(.param .u64 memory) {  // no barrier between a warp's write and another's read
    .shared .align 4 .b8 word[4];
    .reg .u64 %a;
    .reg .u32 %t, %v;
    .reg .pred %p;
    ld.param.u64 %a, [memory];
    mov.u32 %t, %tid.x;
    setp.eq.u32 %p, %t, 0;
    @%p st.shared.u32 [word], %t;
    ld.shared.u32 %v, [word];
    setp.eq.u32 %p, %t, 40;
    @%p st.global.u32 [%a], %v;
    ret;
}

.visible .entry initcheck(.param .u64 memory) {  // reads what nobody wrote
    .reg .u64 %a;
    .reg .u32 %v;
    ld.param.u64 %a, [memory];
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, 1;
    st.global.u32 [%a+4], %v;
    ret;
}

.visible .entry synccheck(.param .u64 memory) {  // barriers that part of a warp comes to, or does not name
    .reg .u32 %t;
    .reg .pred %p;
    mov.u32 %t, %tid.x;
    setp.ge.u32 %p, %t, 5;
    @%p bra skip;
    bar.sync 0;
skip:
    bar.sync 0;
    bar.warp.sync 0x55555555;
    ret;
}
"""


def run_faults(tool: str) -> str:
    bringup = module("bringup")
    bringup.start()
    driver, call = bringup.driver, bringup.call
    function = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, FAULTS + b"\0"), tool.encode())
    memory = int(call(driver.cuMemAlloc, 1024))
    arguments = ((memory,), (ctypes.c_uint64,))
    call(driver.cuLaunchKernel, function, 1, 1, 1, 64, 1, 1, 0, 0, arguments, 0)
    driver.cuCtxSynchronize()  # an error here is a find
    return f"the kernel that {tool} is to find fault with"


# -- the tools --------------------------------------------------------------------------------------------------------
def sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(found).exists():
        sys.exit("compute-sanitizer was not found; it is part of the CUDA toolkit")
    return found


def start(tool: str, subject: str, seconds: float, folder: Path) -> tuple[str, subprocess.Popen[str], Path]:
    options = [
        "--tool",
        tool,
        "--error-exitcode",
        str(FOUND),
        "--target-processes",
        "application-only",
        "--print-limit",
        str(PRINTED),
    ]
    command = [
        sanitizer(),
        *options,
        sys.executable,
        __file__,
        "--run",
        subject,
        "--tools",
        tool,
        "--seconds",
        str(seconds),
    ]
    log = folder / f"{tool}-{subject}.log"
    process = subprocess.Popen(
        command, stdout=log.open("w"), stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=os.environ | {
            "BLOCKARRAY_CACHE_DIR": str(folder / "cache"), "BLOCKARRAY_DEVICE": "cuda", "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    return f"{tool:10} {subject:9}", process, log


def reports(lines: Sequence[str]) -> Iterator[str]:
    """What ran when a tool found fault, each with how often and the first report, without the host's frames."""
    cases: dict[str, list[list[str]]] = {}
    case = "before all"
    for line in lines:
        said = re.sub("^=========", "", line)
        if line.startswith(CASE):
            case = line
        elif said != line and not re.search("COMPUTE-SANITIZER|SUMMARY|Host Frame|backtrace", said):
            found = cases.setdefault(case, [])
            if not said.startswith("  ") or not found:
                found.append([])
            found[-1].append(line)
    for case, found in cases.items():
        yield f"{case}: {len(found)} reports"
        yield from found[0][:6]
    if not cases:
        yield from lines[-20:]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--subjects", default=",".join(SUBJECTS))
    parser.add_argument("--seconds", type=float, default=60, help="after which a process starts nothing more")
    parser.add_argument("--run", choices=(*SUBJECTS, PRODUCTS), help="run a subject in this process, without a tool")
    args = parser.parse_args()
    if args.run:
        end = time.monotonic() + args.seconds
        if args.run == "faults":
            said = run_faults(args.tools)
        elif args.run == PRODUCTS:
            said = run_each(products(), end)
        else:
            said = {"programs": run_programs, "kernels": run_kernels, "routines": run_routines}[args.run](end)
        print(f"ran {said}", flush=True)
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="blockarray-sanitize-") as name:
        started = [
            start(tool, subject, args.seconds, Path(name))
            for subject in args.subjects.split(",")
            for tool in args.tools.split(",")
        ]
        end = time.monotonic() + args.seconds + 45
        for label, process, log in started:
            try:
                status = process.wait(timeout=max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip("= ")]
            ran = next((line for line in lines if line.startswith("ran ")), "did not finish")
            wrong = status != FOUND if "faults" in label else bool(status)
            verdict = "FAILED" if wrong else "found " if "faults" in label else "clean "
            print(f"{label} {verdict} {ran}; {lines[-1].strip('= ') if lines else ''}", flush=True)
            if wrong:
                failed += 1
                print("\n".join(f"    {line[:200]}" for line in (*reports(lines), *lines[-3:])))
    return failed


if __name__ == "__main__":
    sys.exit(main())
