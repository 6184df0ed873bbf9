"""Hand-written kernels against the interpreter, emulated; and through ptxas where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter, passes
from blockarray.compiler.cuda.blocks import codegen
from blockarray.compiler.cuda.target import Target
from blockarray.compiler.verifier import verify
from tests.compiler.cuda import block_kernels as kernels
from tests.compiler.cuda import gpu_emulator as emulator
from tests.compiler.cuda.gpu_kernels import Case

TARGET = cuda.make_target((9, 0))


def compare(case: Case, target: Target = TARGET) -> dict[str, Any]:
    """Run a kernel in the interpreter and emulated; the header of its code."""
    verify(case.kernel)
    wanted, found = ([a.copy() if isinstance(a, np.ndarray) else a for a in case.args] for _ in range(2))
    failed = interpreter.run(case.kernel, wanted)
    header, _ = cuda.unpack(cuda.compile(case.kernel, target))
    emulator.run(cuda.generate(case.kernel, target), case.kernel, found)
    for p, want, have in zip(case.kernel.params, wanted, found, strict=True):
        if not isinstance(want, np.ndarray):
            continue
        if p.name == "errors":
            assert bool(have[0]) == bool(failed)
        elif want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want, p.name)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol, err_msg=p.name)
    return header


@pytest.mark.parametrize("name", kernels.CASES)
def test_emulated(name: str) -> None:
    compare(kernels.CASES[name]())


@pytest.mark.parametrize("name", [name for name in kernels.CASES if not name.startswith("add")])
def test_after_passes(name: str) -> None:
    """With views in the place of pointers."""
    case = kernels.CASES[name]()
    compare(case._replace(kernel=passes.run(case.kernel)))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("name", kernels.CASES)
def test_assembled(name: str) -> None:
    header, _ = cuda.unpack(cuda.compile(kernels.CASES[name]().kernel, TARGET))
    assert header["format"] == "cubin" and not header["spills"]


def test_hints_and_prints_assemble() -> None:
    """What only a driver, or nothing, shows."""
    m = kernels.Blocks("prints", (3,))
    x, out = m.array("f16", 256), m.array("f16", 256)
    m.begin()
    b, at = m.b, m.arange(256)
    mask = m.less(at, b.const(100))
    v = b.load_ptr(x, at, mask, cache=".cg")
    w = b.load_ptr(x, at, evict="evict_first")
    u = b.load_ptr(x, b.const(0), volatile=True)
    b.print([v, at, u, mask], ' 100% of "v": ')
    b.print([w], hex=True)
    b.print([], "here")
    b.store_ptr(b.op("add", v, w), out, at, mask, cache=".wt", evict="evict_last")
    kernel = m.case().kernel
    verify(kernel)
    code = cuda.ptx(kernel, TARGET)
    for wanted in ("ld.global.cg.", "ld.global.L1::evict_first.", "ld.global.cv.", "st.global.wt.", "vprintf"):
        assert wanted in code
    cuda.compile(kernel, TARGET)


def test_quotients_and_roots_are_as_exact_as_asked_for() -> None:
    m = kernels.Blocks("exact")
    x, out = m.array("f32", 256), m.array("f32", 256)
    m.begin()
    b, at = m.b, m.arange(256)
    v = b.load_ptr(x, at)
    root = b.op("sqrt", b.op("divide", v, v, exact=True), exact=True)
    b.store_ptr(b.op("divide", root, b.op("sqrt", v)), out, at)
    kernel = m.case().kernel
    verify(kernel)
    code = cuda.ptx(kernel, TARGET)
    for wanted in ("div.rn.f32", "sqrt.rn.f32", "div.full.f32", "sqrt.approx.f32"):
        assert code.count(wanted) == 2


def test_large_tiles_are_converted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = kernels.apply([(8, 64, 32)], ["f32"], lambda m, x: m.b.trans(x, (0, 2, 1)))
    monkeypatch.setattr(codegen.Codegen, "WHOLE", 1 << 20)
    whole = cuda.generate(case.kernel, TARGET).shared
    monkeypatch.setattr(codegen.Codegen, "WHOLE", 4 << 10)
    assert cuda.generate(case.kernel, TARGET).shared < 0.6 * whole
    compare(case)


def test_a_number_in_memory_is_read_by_all_before_one_overwrites_it() -> None:
    m = kernels.Blocks("count")
    x = m.array("i32", 1)
    m.begin()
    b, place = m.b, m.b.const(0)
    with b.for_(place, b.const(3), b.const(1)):
        b.store_ptr(b.op("add", b.load_ptr(x, place), b.const(1, "i32")), x, place)
    case = m.case()
    compare(case)
    # The emulator's threads go on together: it would not see it.
    assert cuda.generate(case.kernel, TARGET).text.count("call void @llvm.nvvm.barrier") == 2


def test_exchanges_in_turns_wait_for_each_other() -> None:
    """Two exchanges a round need two barriers; a single one, as many."""
    text = cuda.generate(kernels.softmax_in_turns(stages=1).kernel, TARGET).text
    assert text.count("call void @llvm.nvvm.barrier") == 2
    m = kernels.Blocks("sums", (1,))
    x, out = m.array("f32", 1024), m.array("f32", 4)
    m.begin()
    b = m.b
    with b.for_(b.const(0), b.const(4), b.const(1)) as loop:
        at = m.plus(m.arange(256), b.op("multiply", loop.index, b.const(256)))
        b.store_ptr(b.reduce(b.load_ptr(x, at), "sum", (0,)), out, loop.index)
    case = m.case(1e-5, 1e-5)
    compare(case)
    assert cuda.generate(case.kernel, TARGET).text.count("call void @llvm.nvvm.barrier") == 2


@pytest.mark.parametrize(
    ("case", "loads"),
    [
        (lambda: kernels.softmax(2, 8000, warps=1), 1),
        (lambda: kernels.row_norm(early=False), 1),
        (lambda: kernels.row_norm(8064, dtype="bf16"), 2),
    ],
)
def test_rows_without_registers_for_them_are_parked(case: Callable[[], Case], loads: int) -> None:
    made = case()
    kernel = passes.run(made.kernel)
    size = 2 if kernel.params[0].type.dtype == "bf16" else 4
    assert cuda.generate(kernel, TARGET).shared >= loads * 8192 * size * 5 // 8
    assert not compare(made._replace(kernel=kernel)).get("spills")


def test_options_of_launches() -> None:
    m = kernels.Blocks("options")
    x, out = m.array("f32", 256), m.array("f32", 256)
    m.begin()
    b, at = m.b, m.arange(256)
    v = b.load_ptr(x, at)
    b.store_ptr(b.op("add", b.op("multiply", v, v), v), out, at)
    kernel = m.case().kernel
    code = cuda.ptx(kernel, TARGET)
    assert "fma.rn.f32" in code and ".maxnreg" not in code
    kernel.attrs.update(maxnreg=64, enable_fp_fusion=False)
    code = cuda.ptx(kernel, TARGET)
    assert "fma.rn.f32" not in code and ".maxnreg 64" in code
