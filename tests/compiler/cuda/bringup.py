"""Runs the kernels of `gpu_kernels.py` on a GPU, compares with the interpreter and times the large ones.

python tests/compiler/cuda/bringup.py [words that the names must contain]
"""

from __future__ import annotations

import struct
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
# The compiler alone.
package = types.ModuleType("blockarray")
package.__path__ = [str(ROOT / "blockarray")]
sys.modules["blockarray"] = package
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import gpu_kernels as kernels
from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

from blockarray.compiler import cuda, dtypes, interpreter

#: Bytes before and after each array that no kernel may touch.
GUARD = 512
PATTERN = 0xA5


def call(function: Any, *args: Any) -> Any:
    status, *rest = function(*args)
    if int(status):
        raise RuntimeError(f"{function.__name__}: {status}")
    return rest[0] if len(rest) == 1 else rest


class Launch:
    """A case's code and its arguments on the device."""

    def __init__(self, case: kernels.Case, target: cuda.Target, guarded: bool = True) -> None:
        self.case = case
        self.header, code = cuda.unpack(cuda.compile(case.kernel, target))
        self.module = call(driver.cuModuleLoadData, code)
        self.function = call(driver.cuModuleGetFunction, self.module, b"kernel")
        if self.header["shared"] > 48 << 10:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver.cuFuncSetAttribute, self.function, attribute, self.header["shared"])
        sizes = dict(zip(case.kernel.params, case.args))
        self.programs = 1
        for axis in case.kernel.grid:
            self.programs *= -(-int(sizes[axis.size]) // axis.block)
        programs = self.header.get("programs", self.programs)
        if self.header["resident"]:
            # Whether they are all resident at once or not, they go through all programs.
            attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            processors = call(driver.cuDeviceGetAttribute, attribute, call(driver.cuCtxGetDevice))
            programs = min(programs, max(1, processors * self.header["resident"] // self.header["cluster"]))
        self.blocks = programs * self.header["cluster"]
        aligned = case.kernel.attrs["aligned"]
        self.memory: list[tuple[int, int, np.ndarray]] = []
        words = b""
        self.workspace: list[tuple[int, int]] = []
        self.bytes = 0
        for p, arg in zip(case.kernel.params, case.args):
            if not p.type.pointer:
                raw = np.asarray(arg, dtypes.NUMPY[p.type.dtype])
                for part in (np.real(raw), np.imag(raw)) if raw.dtype.kind == "c" else (raw,):
                    words += part.tobytes().ljust(8, b"\0")
                continue
            # What is not said to be aligned is not.
            shift = 0 if p.name in aligned or p.name == "errors" else arg.itemsize
            base = call(driver.cuMemAlloc, arg.nbytes + 2 * GUARD + 16)
            self.bytes += arg.nbytes
            image = np.full(arg.nbytes + 2 * GUARD + 16, PATTERN, np.uint8)
            image[GUARD + shift : GUARD + shift + arg.nbytes] = arg.view(np.uint8)
            call(driver.cuMemcpyHtoD, base, image, image.nbytes)
            self.memory.append((int(base), shift, arg))
            words += struct.pack("<Q", int(base) + GUARD + shift)
            if p.name == "workspace":
                self.workspace.append((int(base) + GUARD, arg.nbytes))
        self.words = np.frombuffer(words, np.uint8).copy()
        self.length = np.array([len(words)], np.uint64)
        self.extra = np.array(
            [1, self.words.ctypes.data, 2, self.length.ctypes.data, 0], np.uint64
        )  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END

    def run(self) -> None:
        h = self.header
        call(
            driver.cuLaunchKernel, self.function, self.blocks, 1, 1, h["threads"], 1, 1, h["shared"], 0, 0,
            int(self.extra.ctypes.data),
        )  # fmt: skip

    def clear(self) -> None:
        """Zero the workspace."""
        for address, nbytes in self.workspace:
            call(driver.cuMemsetD8Async, address, 0, nbytes, 0)

    def results(self) -> list[np.ndarray]:
        """The arrays, after a check of what surrounds them."""
        call(driver.cuCtxSynchronize)
        found = []
        for base, shift, arg in self.memory:
            image = np.empty(arg.nbytes + 2 * GUARD + 16, np.uint8)
            call(driver.cuMemcpyDtoH, image, base, image.nbytes)
            start = GUARD + shift
            if (image[:start] != PATTERN).any() or (image[start + arg.nbytes :] != PATTERN).any():
                raise AssertionError("wrote out of bounds")
            found.append(image[start : start + arg.nbytes].view(arg.dtype))
        return found

    def free(self) -> None:
        for base, _, _ in self.memory:
            call(driver.cuMemFree, base)
        call(driver.cuModuleUnload, self.module)


def compare(case: kernels.Case, found: list[np.ndarray]) -> None:
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    failed = interpreter.run(case.kernel, wanted)
    arrays = [(p, a) for p, a in zip(case.kernel.params, wanted) if isinstance(a, np.ndarray)]
    for (p, want), have in zip(arrays, found, strict=True):
        if p.name == "workspace":
            continue
        if p.name == "errors":
            assert bool(have[0]) == bool(failed), f"errors: {have[0]}, expected {failed}"
        elif want.dtype.kind in "biu":
            np.testing.assert_array_equal(have.view(np.uint8) != 0 if want.dtype.kind == "b" else have, want, p.name)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol, err_msg=p.name)


def timed(launch: Launch) -> float:
    """Seconds of one run, the best of some."""
    start, end = (call(driver.cuEventCreate, 0) for _ in range(2))
    best = 1e9
    for _ in range(7):
        launch.clear()
        call(driver.cuEventRecord, start, 0)
        for _ in range(1 if launch.workspace else 3):
            launch.run()
        call(driver.cuEventRecord, end, 0)
        call(driver.cuEventSynchronize, end)
        best = min(best, call(driver.cuEventElapsedTime, start, end) / (1e3 if launch.workspace else 3e3))
    return best


def start() -> cuda.Target:
    """Make the first GPU's context this thread's; what to compile for it."""
    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
    attribute = driver.CUdevice_attribute
    major, minor = (
        int(call(driver.cuDeviceGetAttribute, a, device))
        for a in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return cuda.make_target((major, minor))


def main(words: list[str]) -> None:
    target = start()
    device = call(driver.cuDeviceGet, 0)
    rows: list[str] = []
    failures: list[str] = []
    begun = time.perf_counter()
    for name, make in kernels.CASES.items():
        if not all(w in name for w in words):
            continue
        if time.perf_counter() - begun > 110:
            rows.append("(out of time)")
            break
        try:
            launch = Launch(make(), target)
            launch.run()
            compare(launch.case, launch.results())
            verdict = "ok"
            launch.free()
        except Exception as e:
            text = traceback.format_exc() if not isinstance(e, AssertionError) else str(e)
            verdict = "FAILED"
            failures.append(f"--- {name}\n{text[-900:]}")
            if "cu" in str(e) and "CUDA_ERROR" in str(e):
                failures.append(f"context after {name}: {driver.cuCtxSynchronize()}")
                # A fault ends the context: start again.
                driver.cuDevicePrimaryCtxReset(device)
                context = call(driver.cuDevicePrimaryCtxRetain, device)
                call(driver.cuCtxSetCurrent, context)
        if verdict != "ok":
            rows.append(f"{name:28} {verdict}")
    print(f"cases: {time.perf_counter() - begun:.0f} s")
    table: list[str] = []
    for name, make in kernels.TIMED.items():
        if not all(w in name for w in words) or time.perf_counter() - begun > 165:
            continue
        try:
            case = make()
            launch = Launch(case, target)
            launch.run()
            call(driver.cuCtxSynchronize)
            seconds = timed(launch)
            h = launch.header
            table.append(
                f"{name:24} {seconds * 1e6:9.1f} us {launch.bytes / seconds / 1e9:7.0f} GB/s  threads {h['threads']:4} "
                f"shared {h['shared']:6} registers {h.get('registers')} spills {h.get('spills')}"
            )
            launch.free()
        except Exception as e:
            table.append(f"{name:24} FAILED {str(e)[:200]}")
    print("\n".join((*failures, "=" * 60, *rows, f"{len(failures)} failures", "=" * 60, *table)))


if __name__ == "__main__":
    main(sys.argv[1:])
