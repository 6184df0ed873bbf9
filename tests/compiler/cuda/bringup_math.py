"""The accuracy of elementwise ops on a GPU, how fast variants of functions are, and products.

python tests/compiler/cuda/bringup_math.py [accuracy] [speed] [products] [words that products' names contain]
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import bringup
import numpy as np
from bringup import Launch, call
from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

from blockarray.compiler import cuda, ops
from blockarray.compiler.cuda.elements import Code
from blockarray.compiler.cuda.mma64 import Mma64
from blockarray.compiler.cuda.ptx import assemble, emit
from blockarray.compiler.cuda.simt import Simt
from blockarray.compiler.cuda.target import Target
from blockarray.compiler.cuda.wgmma import Wgmma
from blockarray.compiler.dtypes import NUMPY, PART, SIZE
from blockarray.compiler.llvm import math
from blockarray.compiler.llvm.text import Text, V
from tests.compiler.accuracy import CASES, compare, operand_arrays, ulp_error, ulp_limit
from tests.compiler.cuda import gpu_products

POINTER = "ptr addrspace(1)"
#: Ops of one kernel.
TOGETHER = 24
#: Ops that may be computed in line or by libdevice.
CHOICES = ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "hypot")
#: Seconds after which nothing new begins.
LIMIT = 165
Case = tuple[ops.Op, tuple[str, ...], str]


class InLine(Target):
    def calls(self, name: str, elem: str) -> bool:
        return False


class Called(Target):
    def emitter(self, name: str, elem: str) -> None:
        return None

    def calls(self, name: str, elem: str) -> bool:
        return name in CHOICES


def variant(kind: type[Target], target: Target) -> Target:
    return kind(target.arch, target.ptx, target.shared)


# -- kernels over arrays ----------------------------------------------------------------------------------------------
def body_of(target: Target) -> Text:
    """A thread's index is %i; threads past %n have ended."""
    t = Code(target)
    block = t.call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", [])
    thread = t.call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", [])
    number = t.bin("add", t.bin("mul", block, V("256", "i32")), thread)
    t.line(f"%i = zext {number} to i64")
    t.br_if(t.cmp("slt", V("%i", "i64"), V("%n", "i64")), "inside", "outside")
    t.label("inside")
    return t


def module_of(t: Text, pointers: int) -> str:
    params = ", ".join([*(f"{POINTER} %p{k}" for k in range(pointers)), "i64 %n"])
    return "\n".join((
        f'define ptx_kernel void @kernel({params}) "nvvm.reqntid"="256" {{', "entry:", *t.lines,
        "  br label %outside", "outside:", "  ret void", "}", *t.declarations.values(),
    ))  # fmt: skip


def place(t: Text, pointer: int, dtype: str, part: int) -> V:
    """The address of element %i of an array (whose parts are interleaved)."""
    base = t.gep(V(f"%p{pointer}", POINTER), V("%i", "i64"), f"[{SIZE[dtype]} x i8]")
    return t.gep(base, V(str(part * SIZE[PART.get(dtype, dtype)]), "i64"), "i8")


def load(t: Text, pointer: int, dtype: str) -> Any:
    size = SIZE[PART.get(dtype, dtype)]
    found = [t.load(place(t, pointer, dtype, i), math.memory_type(dtype), size) for i in range(1 + (dtype in PART))]
    return math.from_memory(t, (found[0], found[1]) if len(found) == 2 else found[0], dtype)


def store(t: Text, register: Any, pointer: int, dtype: str) -> None:
    stored = math.to_memory(t, register, dtype)
    for i, x in enumerate([stored] if isinstance(stored, V) else stored):
        t.store(x, place(t, pointer, dtype, i), SIZE[PART.get(dtype, dtype)])


class Loaded:
    """A kernel on the device."""

    def __init__(self, text: str, target: Target) -> None:
        code = emit(text, target)
        found = assemble(code, target)
        self.module = call(driver.cuModuleLoadData, found.cubin if found else code.encode() + b"\0")
        self.function = call(driver.cuModuleGetFunction, self.module, b"kernel")

    def launch(self, pointers: Sequence[int], n: int) -> None:
        words = np.array([*pointers, n], np.uint64)
        length = np.array([words.nbytes], np.uint64)
        extra = np.array([1, words.ctypes.data, 2, length.ctypes.data, 0], np.uint64)
        call(
            driver.cuLaunchKernel, self.function, -(-n // 256), 1, 1, 256, 1, 1, 0, 0, 0, int(extra.ctypes.data)
        )  # fmt: skip
        self.kept = words, length, extra


def upload(array: np.ndarray) -> int:
    pointer = call(driver.cuMemAlloc, max(array.nbytes, 16))
    call(driver.cuMemcpyHtoD, pointer, array, array.nbytes)
    return int(pointer)


# -- accuracy ---------------------------------------------------------------------------------------------------------
def grouped(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of the same operands, a few at a time."""
    by_operands: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        by_operands.setdefault(case[1], []).append(case)
    for group in by_operands.values():
        for first in range(0, len(group), TOGETHER):
            yield group[first : first + TOGETHER]


def dense(operands: Sequence[str]) -> list[np.ndarray]:
    """What the tests of accuracy take, and for functions of one float many more."""
    arrays = operand_arrays(operands)
    if len(operands) > 1 or operands[0] not in ("f32", "f64"):
        return arrays
    kind, rng = NUMPY[operands[0]], np.random.default_rng(3)
    n = 1 << 16
    bits = rng.integers(0, 2 ** (8 * kind.itemsize), n, np.uint64).astype(f"u{kind.itemsize}").view(kind)
    spans = [rng.uniform(-s, s, n) for s in (1e-3, 1, 2, 20, 100, 800)]
    turns = np.arange(1, n) * (np.pi / 2)
    more = [bits, *(x.astype(kind) for x in (*spans, 1 + rng.uniform(-0.3, 0.5, n), turns))]
    return [np.concatenate([arrays[0], *more])]


def run(cases: Sequence[Case], target: Target) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(operands, results) of cases of the same operands."""
    operands: Sequence[str] = cases[0][1]
    arrays = [np.ascontiguousarray(a) for a in dense(operands)]
    n = len(arrays[0])
    t = body_of(target)
    registers = [load(t, k, dtype) for k, dtype in enumerate(operands)]
    for k, (op, _, out) in enumerate(cases):
        store(t, math.emit(t, op.name, registers, operands, out, target), len(operands) + k, out)
    results = [np.empty(n, NUMPY[out]) for _, _, out in cases]
    pointers = [upload(a) for a in (*arrays, *results)]
    loaded = Loaded(module_of(t, len(pointers)), target)
    loaded.launch(pointers, n)
    call(driver.cuCtxSynchronize)
    for pointer, result in zip(pointers[len(arrays) :], results, strict=True):
        call(driver.cuMemcpyDtoH, result, pointer, result.nbytes)
    for pointer in pointers:
        call(driver.cuMemFree, pointer)
    return arrays, results


def worst(case: Case, arrays: list[np.ndarray], got: np.ndarray) -> float | None:
    """The largest error of an inexact real function, in units in the last place."""
    op, _, out = case
    if out not in ("f32", "f64") or not op.ulp[0] or arrays[0].dtype.kind == "c":
        return None
    expected = ops.interpret(op.name, *arrays)
    error = ulp_error(op, arrays, got, expected, out)
    return float(np.max(np.where((got == expected) | ((got != got) & (expected != expected)), 0, error)))


def accuracy(target: Target, begun: float) -> list[str]:
    rows: list[str] = []
    table: dict[tuple[str, str], float] = {}
    count = 0
    for group in grouped(CASES):
        if time.perf_counter() - begun > LIMIT:
            rows.append("(out of time)")
            break
        try:
            arrays, results = run(group, target)
        except Exception as error:
            rows.append(f"FAILED {group[0][1]} {[c[0].name for c in group]}: {str(error)[:300]}")
            continue
        for case, got in zip(group, results, strict=True):
            count += 1
            problem = compare(*case, arrays, got)
            if problem:
                rows.append(f"{case[0].name} {'_'.join(case[1])}: {problem[:400]}")
            error = worst(case, arrays, got)
            if error is not None:
                table[case[0].name, case[2]] = error
    rows.append(f"accuracy: {count} of {len(CASES)} ops and dtypes compared")
    for name in dict.fromkeys(n for n, _ in table):
        op = ops.TABLE[name]
        cells = []
        for dtype in ("f32", "f64"):
            if (name, dtype) in table:
                error, limit = table[name, dtype], ulp_limit(op, dtype)
                cells.append(f"{dtype} {error:6.2f} of {limit:3.1f}{' <<<' if error > limit else ''}")
        rows.append(f"{name:12} " + "   ".join(cells))
    return rows


# -- speed of variants ------------------------------------------------------------------------------------------------
def elapsed(function: Callable[[], None]) -> float:
    """Seconds of one call, the best of some."""
    start, end = (call(driver.cuEventCreate, 0) for _ in range(2))
    best = 1e9
    for _ in range(5):
        call(driver.cuEventRecord, start, 0)
        function()
        call(driver.cuEventRecord, end, 0)
        call(driver.cuEventSynchronize, end)
        best = min(best, call(driver.cuEventElapsedTime, start, end) / 1e3)
    return best


def speed(target: Target, begun: float) -> list[str]:
    """Functions per second and the error, in line and from libdevice."""
    rows, n, repeat = [], 1 << 22, 16
    for name in CHOICES:
        for dtype in ("f32", "f64"):
            if time.perf_counter() - begun > LIMIT:
                return [*rows, "(out of time)"]
            op = ops.TABLE[name]
            cells = []
            for kind in (InLine, Called):
                try:
                    chosen = variant(kind, target)
                    operands = (dtype,) * op.arity
                    arrays, (got,) = run([(op, operands, dtype)], chosen)
                    error = worst((op, operands, dtype), arrays, got) or 0.0
                    t = body_of(chosen)
                    x = load(t, 0, dtype)
                    for k in range(repeat):
                        y = math.emit(t, name, [x] * op.arity, operands, dtype, chosen)
                        shift = math.constant(t, 0.5 + k / 64, dtype)
                        x = math.emit(t, "add", [math.emit(t, "absolute", [y], [dtype], dtype, chosen), shift],
                                      (dtype, dtype), dtype, chosen)  # fmt: skip
                        x = math.emit(t, "minimum", [x, shift], (dtype, dtype), dtype, chosen)
                    store(t, x, 0, dtype)
                    loaded = Loaded(module_of(t, 1), chosen)
                    data = upload(np.random.default_rng(0).uniform(0.1, 1, n).astype(NUMPY[dtype]))
                    seconds = elapsed(lambda: loaded.launch([data], n))  # noqa: B023
                    call(driver.cuMemFree, data)
                    cells.append(f"{error:6.2f} ulp {n * repeat / seconds / 1e9:8.0f} G/s")
                except Exception as failure:
                    cells.append(f"FAILED {str(failure)[:200]}")
            rows.append(f"{name:6} {dtype}  in line {cells[0]}   libdevice {cells[1]}")
    return rows


#: By words of products' names: schedules' attributes to try.
VARIANTS: dict[str, dict[str, tuple[type[Simt], dict[str, Any]]]] = {
    "16 8192": {
        "wgmma 3 x 2": (Wgmma, {}),
        "wgmma 4 x 1": (Wgmma, {"stages": 4, "blocks": 1}),
        "wgmma 6 x 1": (Wgmma, {"stages": 6, "blocks": 1}),
        "mma": (Wgmma, {"suits": staticmethod(lambda kernel, target: False)}),
    },
    "f64 4096": {
        "mma64 x 2": (Mma64, {}),
        "mma64 x 1": (Mma64, {"blocks": 1}),
        "simt": (Mma64, {"suits": staticmethod(lambda kernel, target: False)}),
    },
    "f32 4096": {"x 2": (Simt, {}), "x 1": (Simt, {"blocks": 1}), "8 steps": (Simt, {"unrolled": 512})},
    "distances": {
        "x 2": (Simt, {}),
        "x 1": (Simt, {"blocks": 1}),
        "8 steps": (Simt, {"unrolled": 1024}),
        "4 steps": (Simt, {"unrolled": 512}),
    },
}


@contextmanager
def changed(schedule: type[Simt], attributes: dict[str, Any]) -> Iterator[None]:
    """A schedule with other attributes."""
    before = {name: schedule.__dict__[name] for name in attributes}
    for name, value in attributes.items():
        setattr(schedule, name, value)
    yield
    for name, value in before.items():
        setattr(schedule, name, value)


# -- products ---------------------------------------------------------------------------------------------------------
def checked(case: Any, target: Target) -> str:
    """What is wrong with a case's results, or an empty string."""
    try:
        launch = Launch(case, target)
        launch.run()
        bringup.compare(case, launch.results())
        launch.free()
    except AssertionError as error:
        return f"WRONG {str(error)[:600]}"
    except Exception as error:
        return f"FAILED {error} {traceback.format_exc()[-500:]}"
    return ""


def products(target: Target, words: list[str], begun: float) -> list[str]:
    rows: list[str] = []
    chosen = {name: make for name, make in gpu_products.CASES.items() if all(w in name for w in words)}
    good = 0
    for name, make in chosen.items():
        problem = checked(make(), target) if time.perf_counter() - begun < LIMIT else "(out of time)"
        good += not problem
        if problem:
            rows.append(f"{name:28} {problem}")
    rows.append(f"products: {good} of {len(chosen)} right")
    for name, (make, work) in gpu_products.TIMED.items():
        if not all(w in name for w in words):
            continue
        if time.perf_counter() - begun > LIMIT:
            return [*rows, "(out of time)"]
        problem = checked(make(16), target)
        if problem:
            rows.append(f"{name:24} {problem}")
            continue
        plain: dict[str, tuple[type[Simt], dict[str, Any]]] = {"": (Simt, {})}
        variants = next((v for words_, v in VARIANTS.items() if words_ in name and "broad" not in name), plain)
        for title, (kind, attributes) in variants.items():
            with changed(kind, attributes):
                launch = Launch(make(1), target)
            launch.run()
            call(driver.cuCtxSynchronize)
            seconds = bringup.timed(launch)
            h = launch.header
            rows.append(
                f"{name:24} {title:12} {seconds * 1e6:9.1f} us {work / seconds / 1e12:7.1f} T/s "
                f"{launch.bytes / seconds / 1e9:6.0f} GB/s threads {h['threads']} shared {h['shared']} "
                f"registers {h.get('registers')} spills {h.get('spills')}"
            )
            launch.free()
    return rows


def main(arguments: list[str]) -> None:
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
    target = cuda.make_target((major, minor))
    begun = time.perf_counter()
    parts = {"products": lambda: products(target, words, begun), "accuracy": lambda: accuracy(target, begun),
             "speed": lambda: speed(target, begun)}  # fmt: skip
    words = [a for a in arguments if a not in parts]
    asked = [a for a in arguments if a in parts] or list(parts)
    tables = []
    for name in asked:
        started = time.perf_counter()
        rows = parts[name]()
        tables.append(["=" * 60, f"{name}: {time.perf_counter() - started:.0f} s", *rows])
    print("\n".join(row for rows in tables for row in rows))


if __name__ == "__main__":
    main(sys.argv[1:])
