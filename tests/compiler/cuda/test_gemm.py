"""Products on the GPU: their code, run by the emulator, against the interpreter; and through ptxas."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter
from blockarray.compiler.cuda import gemm, spread, tools
from blockarray.compiler.cuda.dequantised import Dequantised, DequantisedParts
from blockarray.compiler.cuda.hopper import Hopper
from blockarray.compiler.cuda.parts import Parts
from blockarray.compiler.cuda.ptx import assemble, emit
from blockarray.compiler.cuda.spread import Spread
from blockarray.compiler.cuda.streamed import Streamed
from blockarray.compiler.verifier import verify
from tests.compiler.cuda import gpu_emulator, gpu_products

TARGET = cuda.make_target((9, 0))
OLD = cuda.make_target((7, 5))


def check(case, target):
    verify(case.kernel)
    wanted = gpu_products.zeros(case)
    found = gpu_products.zeros(case)
    interpreter.run(case.kernel, wanted)
    gpu_emulator.run(gemm.generate(case.kernel, target), case.kernel, found)
    for param, want, have in zip(case.kernel.params, wanted, found, strict=True):
        if not isinstance(want, np.ndarray):
            continue
        if param.name == "workspace":
            # Its flags are left as they were found.
            assert not have[: spread.FLAGS].any()
            continue
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol)


@pytest.mark.parametrize("name", gpu_products.CASES)
def test_values(name):
    check(gpu_products.CASES[name](), TARGET)


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("product bf16 a long", "cp.async.bulk.tensor"),
        ("dense bf16", "wgmma"),
        ("product bf16 strided", "mma.sync.aligned.m16n8k16"),
        ("product f16", "mma.sync.aligned.m16n8k16"),
        ("product f64", "m16n8k8.row.col.f64"),
        ("product f64 plain ahead 144 128", "cp.async.bulk.tensor"),
        ("product f64 b ahead 130 64", "cp.async.bulk.tensor"),
        ("product c128", "m16n8k8.row.col.f64"),
        ("product f32", "cp.async.ca"),
        ("product i8 b 64", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        ("product u8 b 32", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"),
        ("product u8 ahead 400 256", "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.u8"),
    ],
)
def test_tensor_cores_are_used(name, instruction):
    assert instruction in gemm.generate(gpu_products.CASES[name]().kernel, TARGET).text


@pytest.mark.parametrize("name", [name for name in gpu_products.CASES if name.startswith("spread")])
def test_few_tiles_are_spread(name):
    assert Spread.suits(gpu_products.CASES[name]().kernel, TARGET)


@pytest.mark.parametrize("name", [name for name in gpu_products.CASES if name.startswith("dequantised")])
def test_few_rows_of_a_computed_operand(name):
    schedule = DequantisedParts if "parts" in name else Dequantised if "panels" in name else Streamed
    kernel = gpu_products.CASES[name]().kernel
    assert [s for s in (Hopper, Parts, Streamed, Dequantised, DequantisedParts) if s.suits(kernel, TARGET)] == [
        schedule
    ]


@pytest.mark.parametrize("attrs", [{"together": 1}, {"stages": 2}, {"together": 32, "stages": 3}])
@pytest.mark.parametrize("name", ["dense bf16", "product f16 64 long", "product f32"])
def test_what_a_tuner_chooses(name, attrs):
    case = gpu_products.CASES[name]()
    case.kernel.attrs.update(attrs)
    check(case, TARGET)


@pytest.mark.parametrize("name", ["product f16", "product bf16 whole", "product bf16 transposed", "fused bf16"])
def test_values_without_tensor_cores(name):
    check(gpu_products.CASES[name](), OLD)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6)])
@pytest.mark.parametrize("name", ["product f64 long", "product f64 b copied 2", "product c128 whole", "product c64"])
def test_values_before_hopper(name, capability):
    check(gpu_products.CASES[name](), cuda.make_target(capability))


@pytest.mark.skipif(tools.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("name", gpu_products.TIMED)
def test_large_products_fit_the_registers(name):
    make, _ = gpu_products.TIMED[name]
    case = make(16)
    code = gemm.generate(case.kernel, TARGET)
    found = assemble(emit(code.text, TARGET), TARGET)
    assert found is not None
    # What is spilled are addresses, once a step of k.
    assert found.spills <= 256
    assert found.registers * code.threads <= 1 << 16


def test_registers_hold_no_promoted_sums_of_more_columns():
    kernel = gpu_products.product("f8e4m3", 128, 256, 64, 128, "b", broad=256).kernel
    with pytest.raises(NotImplementedError, match="128 columns"):
        gemm.generate(kernel, TARGET)


@pytest.mark.skipif(tools.ptxas() is None, reason="needs ptxas")
def test_promoted_sums_are_added_while_others_are_under_way(tmp_path: Path):
    code = gemm.generate(gpu_products.product("f8e4m3", 256, 256, 512, 128, "b").kernel, TARGET)
    source = tmp_path / "kernel.ptx"
    source.write_text(emit(code.text, TARGET))
    command = [str(tools.ptxas()), "-arch=sm_90a", "-v", "-o", str(tmp_path / "kernel.cubin"), str(source)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "serialized" not in said and " 0 bytes spill stores" in said
