"""Runs the sorting, compacting and searching routines on a GPU, compares with NumPy and times the large ones.

    python tests/compiler/cuda/bringup_sort.py [words that the names must contain]

Prints a table of timings, then one of ok and FAILED; the exit status is the number of failures.
"""

from __future__ import annotations

import multiprocessing
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
# The compiler alone.
package = types.ModuleType("blockarray")
package.__path__ = [str(ROOT / "blockarray")]
sys.modules["blockarray"] = package
sys.path[:0] = [str(ROOT)]

from blockarray.compiler import cuda, dtypes
from blockarray.compiler.cuda.codegen import Code
from blockarray.compiler.cuda.routines import compact, search, sort
from blockarray.compiler.cuda.routines.compact import Selection
from blockarray.compiler.cuda.routines.routine import Routine
from blockarray.compiler.cuda.routines.sort import Tuning

#: Bytes before and after each result that no kernel may touch.
GUARD = 512
PATTERN = 0xA5
LARGE = 1 << 25
RNG = np.random.default_rng(0)


# -- inputs -----------------------------------------------------------------------------------------------------------
def bits(dtype: str, n: int) -> np.ndarray:
    """All patterns alike: floats of all sizes, and NaNs of both signs."""
    t = dtypes.NUMPY[dtype]
    x = np.frombuffer(RNG.bytes(n * t.itemsize), np.uint8).copy()
    return (x & 1).view(t) if dtype == "bool" else x.view(t)


def special(dtype: str, n: int) -> np.ndarray:
    if dtype not in dtypes.FLOAT:
        return bits(dtype, n)
    x = (RNG.standard_normal(n) * 100).astype(dtypes.NUMPY[dtype])
    for start, v in enumerate((0.0, -0.0, np.nan, np.inf, -np.inf, -np.nan, 1e-45)):
        x[start::23] = v
    return x


def few(dtype: str, n: int) -> np.ndarray:
    return RNG.integers(0, 2 if dtype == "bool" else 3, n).astype(dtypes.NUMPY[dtype])


def equal(dtype: str, n: int) -> np.ndarray:
    return np.ones(n, dtypes.NUMPY[dtype])


def ascending(dtype: str, n: int) -> np.ndarray:
    return np.sort(wide(special(dtype, n))).astype(dtypes.NUMPY[dtype])


def falling(dtype: str, n: int) -> np.ndarray:
    return ascending(dtype, n)[::-1].copy()


KINDS = {f.__name__: f for f in (bits, special, few, equal, ascending, falling)}


def wide(x: np.ndarray) -> np.ndarray:
    """Of a type that NumPy sorts with NaNs last."""
    return x.astype(np.float32) if dtypes.name(x.dtype) in dtypes.NARROW else x


# -- cases ------------------------------------------------------------------------------------------------------------
class Case:
    """A routine with its operands, and a check of what it gives."""

    def __init__(
        self,
        name: str,
        routine: Routine,
        inputs: Callable[[], dict[str, np.ndarray]],
        results: dict[str, tuple[Any, Any]],
        check: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], None],
        work: int = 0,
    ) -> None:
        self.name, self.routine, self.inputs, self.results, self.check = name, routine, inputs, results, check
        self.work = work


def sorting(
    dtype: str, n: int, rows: int = 1, kind: str = "special", descending: bool = False, keys: bool = True,
    positions: str | None = None, sizes: Tuning | None = None, label: str = "",
) -> Case:  # fmt: skip
    routine = sort.sort(
        dtype, n, rows, descending=descending, with_keys=keys, positions=positions, sizes=sizes, processors=132
    )
    t = dtypes.NUMPY[dtype]
    results: dict[str, tuple[Any, Any]] = {"keys": (t, (rows, n))} if keys else {}
    if positions:
        results["positions"] = (dtypes.NUMPY[positions], (rows, n))

    def check(given: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
        x = wide(given["x"])
        if n * rows >= 1 << 22 and rows == 1:
            order = found.get("positions")
            if order is None:
                want = np.sort(x, 1)
                np.testing.assert_array_equal(wide(found["keys"]), want[:, ::-1] if descending else want)
                return
            order = order[0].astype(np.int64)
            assert (np.bincount(order, minlength=n) == 1).all(), "no permutation"
            k = x[0][order]
            if keys:
                np.testing.assert_array_equal(wide(found["keys"])[0], k)
            a, b = (k[1:], k[:-1]) if descending else (k[:-1], k[1:])
            nan_a, nan_b = np.isnan(a), np.isnan(b)
            tie = (a == b) | (nan_a & nan_b)
            assert (((a < b) | (~nan_a & nan_b)) | (tie & (order[:-1] < order[1:]))).all(), "out of order"
            return
        if descending:
            order = n - 1 - np.flip(np.argsort(np.flip(x, 1), 1, kind="stable"), 1)
        else:
            order = np.argsort(x, 1, kind="stable")
        if positions:
            np.testing.assert_array_equal(found["positions"], order)
        if keys:
            want = np.take_along_axis(given["x"], order, 1)
            assert want.tobytes() == found["keys"].tobytes(), "keys differ"

    name = " ".join(
        f"{'argsort' if positions and not keys else 'both' if positions else 'sort'} {dtype} {rows}x{n} {kind}"
        f"{' descending' if descending else ''} {positions or ''} {label}".split()
    )
    return Case(name, routine, lambda: {"x": KINDS[kind](dtype, n * rows).reshape(rows, n)}, results, check, n * rows)


def compacting(selection: Selection, n: int, share: float = 0.5) -> Case:
    t = dtypes.NUMPY[selection.dtype]
    results: dict[str, tuple[Any, Any]] = {"count": (np.int64, (1,))}
    if selection.value:
        results["selected"] = (f"V{selection.value}", (n,))
    if selection.positions:
        results["positions"] = (dtypes.NUMPY[selection.positions], (n,))

    def inputs() -> dict[str, np.ndarray]:
        if selection.condition == "nonzero":
            x = (RNG.random(n) < share).astype(t)
        else:
            x = np.sort(special(selection.dtype, n))
        if not selection.value:
            return {"x": x}
        return {"x": x, "values": bits("u8", n * selection.value).view(f"V{selection.value}")}

    def check(given: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
        x = given["x"]
        chosen = x != 0
        if selection.condition == "distinct":
            chosen[:1] = True
            chosen[1:] = x[1:] != x[:-1]
            if selection.equal_nan:
                chosen[1:] &= ~((x[1:] != x[1:]) & (x[:-1] != x[:-1]))
        where = np.flatnonzero(chosen)
        count = int(found["count"][0])
        assert count == len(where), f"{count} instead of {len(where)}"
        if selection.value:
            assert found["selected"][:count].tobytes() == given["values"][where].tobytes(), "values differ"
        if selection.positions:
            np.testing.assert_array_equal(found["positions"][:count], where)

    name = f"compact {selection.dtype} {selection.condition} {n} {selection.value} {selection.positions or ''}"
    return Case(name, compact.compact(selection, n), inputs, results, check, n)


def searching(dtype: str, n: int, m: int, right: bool, sorter: bool = False) -> Case:
    def inputs() -> dict[str, np.ndarray]:
        a, v = special(dtype, n), special(dtype, m)
        v[: min(n, m)] = a[: min(n, m)]
        order = np.argsort(a, kind="stable")
        return {"a": a if sorter else a[order], "v": v, "sorter": order}

    def check(given: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
        side = "right" if right else "left"
        want = np.searchsorted(given["a"], given["v"], side, given["sorter"] if sorter else None)
        np.testing.assert_array_equal(found["positions"], want)

    name = f"searchsorted {dtype} {m} in {n} {'right' if right else 'left'}{' sorter' if sorter else ''}"
    routine = search.searchsorted(dtype, n, m, right=right, sorter=sorter)
    return Case(name, routine, inputs, {"positions": (np.int64, (m,))}, check, m)


def cases() -> Iterator[Case]:
    for descending in (False, True):
        for n in (0, 1, 2, 31, 32, 33, 1000, 4096, 4097, 65537, 1_000_003):
            for kind in KINDS:
                yield sorting("f32", n, 1, kind, descending)
                yield sorting("f32", n, 1, kind, descending, False, "i64")
    for dtype in sort_types():
        for n, rows in ((3, 1000), (33, 100), (300, 20), (4000, 5), (5000, 7), (100_003, 2)):
            yield sorting(dtype, n, rows, "bits", False, True, "i64")
            yield sorting(
                dtype, n, rows, "special", True, dtype not in ("i64", "f64"), None if dtype != "i64" else "i32"
            )
    for kind in KINDS:
        yield sorting("i32", LARGE + 1, 1, kind)
    yield sorting("f32", LARGE, 1, "special", False, False, "i64")
    yield sorting("f32", LARGE, 1, "few", True, False, "i64")
    limit = sort.WIDE
    sort.WIDE = 1  # counts and positions of 64 bits
    for dtype in ("f32", "i64", "u8"):
        yield sorting(dtype, 300_001, 3, "special", False, True, "i64", label="wide")
    sort.WIDE = limit
    for n in (0, 1, 31, 4096, 4097, 1_000_003, LARGE):
        yield compacting(Selection("bool", value=4, positions="i64"), n)
        yield compacting(Selection("f32", "distinct", True, 16, "i64"), min(n, 1_000_003))
        yield compacting(Selection("f64", "distinct", False, 8, "i32"), min(n, 1_000_003))
    for right in (False, True):
        for n, m in ((0, 10), (1, 1000), (100_003, 1_000_003)):
            yield searching("f32", n, m, right)
            yield searching("i64", n, m, right, True)


def sort_types() -> list[str]:
    return [t for t in dtypes.NUMPY if t not in dtypes.COMPLEX]


def timed() -> Iterator[Case]:
    yield sorting("f32", LARGE, kind="special")
    yield sorting("f32", LARGE, kind="bits")
    yield sorting("f32", LARGE, kind="few")
    for dtype in ("i32", "i64", "f64", "f16", "u8"):
        yield sorting(dtype, LARGE, kind="bits")
    yield sorting("f32", LARGE, 1, "bits", False, False, "i64")
    yield sorting("f32", LARGE, 1, "bits", False, False, "i32")
    yield sorting("i64", LARGE, 1, "bits", False, False, "i64")
    yield sorting("f32", 1 << 20, kind="bits")
    yield sorting("f32", 1 << 16, kind="bits")
    for n in (8, 32, 100, 256, 512, 1024, 4096, 8192, 65536):
        yield sorting("f32", n, LARGE // n, "bits")
    yield sorting("f32", 1024, LARGE // 1024, "bits", False, False, "i64")
    yield compacting(Selection("bool", positions="i64"), LARGE)
    yield compacting(Selection("bool", value=4), LARGE)
    yield compacting(Selection("f32", "distinct", value=4), LARGE)
    yield searching("f32", 1 << 20, 1 << 22, False)
    for sizes in (
        Tuning(384, 23, 4, 1), Tuning(384, 19, 4, 2), Tuning(384, 15, 4, 3), Tuning(256, 23, 4, 3),
        Tuning(256, 16, 4, 4), Tuning(256, 32, 4, 2), Tuning(512, 16, 4, 2), Tuning(512, 20, 4, 1),
        Tuning(512, 12, 4, 2), Tuning(384, 23, 1, 2), Tuning(384, 23, 8, 2),
    ):  # fmt: skip
        yield sorting("i32", LARGE, kind="bits", sizes=sizes, label=str(tuple(sizes)))
    for sizes in (Tuning(384, 11, 4, 2), Tuning(384, 19, 4, 2), Tuning(256, 16, 4, 3), Tuning(512, 12, 4, 2)):
        yield sorting("f32", LARGE, 1, "bits", False, False, "i64", sizes, str(tuple(sizes)))
    for sizes in (Tuning(384, 11, 4, 2), Tuning(256, 15, 4, 3), Tuning(512, 12, 4, 2)):
        yield sorting("i64", LARGE, kind="bits", sizes=sizes, label=str(tuple(sizes)))


# -- the device -------------------------------------------------------------------------------------------------------
def call(function: Any, *args: Any) -> Any:
    status, *rest = function(*args)
    if int(status):
        raise RuntimeError(f"{function.__name__}: {status}")
    return rest[0] if len(rest) == 1 else rest


class Device:
    """The first GPU."""

    def __init__(self) -> None:
        from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

        self.driver = driver
        call(driver.cuInit, 0)
        self.device = call(driver.cuDeviceGet, 0)
        call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, self.device))
        self.functions: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.blobs: dict[str, bytes] = {}

    def function(self, code: Code) -> tuple[Any, dict[str, Any]]:
        if code.text not in self.functions:
            header, binary = cuda.unpack(self.blobs[code.text])
            function = call(self.driver.cuModuleGetFunction, call(self.driver.cuModuleLoadData, binary), b"kernel")
            if header["shared"] > 48 << 10:
                attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                call(self.driver.cuFuncSetAttribute, function, attribute, header["shared"])
            self.functions[code.text] = function, header
        return self.functions[code.text]

    def upload(self, image: np.ndarray) -> int:
        base = int(call(self.driver.cuMemAlloc, max(image.nbytes, 16)))
        if image.nbytes:
            call(self.driver.cuMemcpyHtoD, base, image, image.nbytes)
        return base

    def download(self, base: int, nbytes: int) -> np.ndarray:
        image = np.empty(nbytes, np.uint8)
        if nbytes:
            call(self.driver.cuMemcpyDtoH, image, base, nbytes)
        return image


class Run:
    """A case on the device."""

    def __init__(self, case: Case, device: Device) -> None:
        self.case, self.device, self.driver = case, device, device.driver
        self.given = case.inputs()
        self.memory: dict[str, int] = {}
        addresses = {}
        for name, x in self.given.items():
            image = np.full(x.nbytes + x.itemsize, PATTERN, np.uint8)
            image[x.itemsize :] = x.reshape(-1).view(np.uint8)  # at no multiple of more than an element
            self.memory[name] = device.upload(image)
            addresses[name] = self.memory[name] + x.itemsize
        for name, (dtype, shape) in case.results.items():
            nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
            self.memory[name] = device.upload(np.full(nbytes + 2 * GUARD, PATTERN, np.uint8))
            addresses[name] = self.memory[name] + GUARD
        self.workspace = device.upload(np.full(case.routine.workspace, PATTERN, np.uint8))
        addresses["workspace"] = self.memory["workspace"] = self.workspace
        self.launches = []
        for launch in case.routine.launches:
            function, header = device.function(launch.code)
            slots = [a if isinstance(a, int) else addresses[a.operand] + a.offset for a in launch.arguments]
            words = np.frombuffer(struct.pack(f"<{len(slots)}Q", *slots), np.uint8).copy()
            length = np.array([len(words)], np.uint64)
            # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
            extra = np.array([1, words.ctypes.data, 2, length.ctypes.data, 0], np.uint64)
            self.launches.append((function, launch.programs, header, extra, words, length))

    def steps(self) -> list[Callable[[], None]]:
        def clear() -> None:
            if self.case.routine.zeroed:
                call(self.driver.cuMemsetD8Async, self.workspace, 0, self.case.routine.zeroed, 0)

        def launch(function: Any, programs: int, header: dict[str, Any], extra: np.ndarray, *_: Any) -> None:
            call(
                self.driver.cuLaunchKernel, function, programs, 1, 1, header["threads"], 1, 1, header["shared"], 0, 0,
                int(extra.ctypes.data),
            )  # fmt: skip

        return [clear, *(lambda a=a: launch(*a) for a in self.launches)]

    def run(self) -> None:
        for step in self.steps():
            step()

    def verify(self) -> None:
        call(self.driver.cuCtxSynchronize)
        found = {}
        for name, (dtype, shape) in self.case.results.items():
            nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
            image = self.device.download(self.memory[name], nbytes + 2 * GUARD)
            if (image[:GUARD] != PATTERN).any() or (image[GUARD + nbytes :] != PATTERN).any():
                raise AssertionError(f"wrote outside {name}")
            found[name] = image[GUARD : GUARD + nbytes].view(dtype).reshape(shape)
        self.case.check(self.given, found)

    def time(self) -> tuple[float, list[float]]:
        """Microseconds of a whole run and of each step of it, the best of some."""
        steps = self.steps()
        events = [call(self.driver.cuEventCreate, 0) for _ in range(len(steps) + 1)]
        whole, each = 1e9, [1e9] * len(steps)
        for _ in range(7):
            call(self.driver.cuEventRecord, events[0], 0)
            self.run()
            call(self.driver.cuEventRecord, events[1], 0)
            call(self.driver.cuEventSynchronize, events[1])
            whole = min(whole, call(self.driver.cuEventElapsedTime, events[0], events[1]) * 1e3)
        for _ in range(3):
            for step, event in zip(steps, events):
                call(self.driver.cuEventRecord, event, 0)
                step()
            call(self.driver.cuEventRecord, events[-1], 0)
            call(self.driver.cuEventSynchronize, events[-1])
            for i in range(len(steps)):
                each[i] = min(each[i], call(self.driver.cuEventElapsedTime, events[i], events[i + 1]) * 1e3)
        return whole, each

    def free(self) -> None:
        for base in self.memory.values():
            call(self.driver.cuMemFree, base)


def compiled(code: Code) -> bytes:
    return cuda.package(code, TARGET)


TARGET = cuda.make_target((9, 0))


def check(run: Run) -> None:
    run.run()
    run.verify()


def measure(run: Run) -> str:
    check(run)
    whole, each = run.time()
    headers = [header for _, _, header, *_ in run.launches]
    return (
        f"{run.case.name:52} {whole:9.1f} us {run.case.work / whole / 1e3:7.2f} G/s  steps "
        f"{' '.join(f'{t:.0f}' for t in each)}  registers {' '.join(str(h.get('registers')) for h in headers)}"
        f"  spills {sum(h.get('spills', 0) for h in headers)}"
    )


def work(jobs: list[tuple[Case, bool]], start: int, blobs: dict[str, bytes], end: float, results: Connection) -> None:
    """Do the jobs from one on, until one ends the context: a fault does, for the whole process."""
    device = Device()
    device.blobs = blobs
    for case, timed in jobs[start:]:
        if time.perf_counter() > end:
            return
        try:
            run = Run(case, device)
            row = measure(run) if timed else check(run)
            run.free()
            results.send((None, row))
        except Exception as e:
            results.send((str(e) if isinstance(e, AssertionError) else traceback.format_exc(), None))
            if "CUDA_ERROR" in str(e):
                return


def main(words: list[str]) -> int:
    begun = time.perf_counter()
    checked, measured = ([c for c in made() if all(w in c.name for w in words)] for made in (cases, timed))
    codes = list({x.code.text: x.code for c in (*checked, *measured) for x in c.routine.launches}.values())
    with ProcessPoolExecutor() as pool:
        blobs = {code.text: blob for code, blob in zip(codes, pool.map(compiled, codes))}
    print(f"{len(codes)} kernels compiled after {time.perf_counter() - begun:.0f} s", flush=True)
    failures: list[str] = []
    table: dict[str, int] = {}
    processes = multiprocessing.get_context("fork")  # the driver has not started here
    for jobs, seconds in (([(c, True) for c in measured], 70), ([(c, False) for c in checked], 110)):
        done = 0
        while done < len(jobs) and time.perf_counter() - begun < seconds:
            here, there = processes.Pipe(False)
            process = processes.Process(target=work, args=(jobs, done, blobs, begun + seconds, there))
            process.start()
            there.close()
            before = done
            while done < len(jobs):
                try:
                    problem, row = here.recv()
                except EOFError:
                    break
                case, timed_ = jobs[done]
                done += 1
                if problem:
                    failures.append(f"{case.name}: FAILED\n{problem[-700:]}")
                if timed_:
                    print(row or f"{case.name:52} FAILED", flush=True)
                else:
                    key = f"{' '.join(case.name.split()[:2])} {'FAILED' if problem else 'ok'}"
                    table[key] = table.get(key, 0) + 1
            process.join()
            if done == before and process.exitcode:
                failures.append(f"{jobs[done][0].name}: the process ended with {process.exitcode}")
                done += 1
        if done < len(jobs):
            print(f"out of time after {done} of {len(jobs)}")
    print(f"{time.perf_counter() - begun:.0f} s", *failures[:20], "=" * 60, sep="\n")
    for name, count in table.items():
        print(f"{name:40} {count}")
    print(f"{sum(table.values())} checks, {len(failures)} failures")
    return len(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
