"""Attention on the GPU: its code, run by the emulator, against the interpreter; and through ptxas."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter
from blockarray.compiler.cuda import online, tools
from blockarray.compiler.verifier import verify
from tests.compiler.cuda import gpu_attention, gpu_emulator

TARGET = cuda.make_target((9, 0))


def check(case):
    verify(case.kernel)
    assert online.Online.suits(case.kernel, TARGET)
    wanted, found = ([a.copy() if isinstance(a, np.ndarray) else a for a in case.args] for _ in range(2))
    interpreter.run(case.kernel, wanted)
    gpu_emulator.run(cuda.generate(case.kernel, TARGET), case.kernel, found)
    for want, have in zip(wanted, found, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(have.astype(np.float64), want.astype(np.float64), case.rtol, case.atol)


@pytest.mark.parametrize("name", gpu_attention.CASES)
def test_values(name):
    check(gpu_attention.CASES[name]())


def build(**kind):
    causal = kind.pop("causal", False)
    return gpu_attention.Attention(m=512, n=512, **kind).build(causal=causal, known=False).kernel


@pytest.mark.skipif(tools.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [{"d": 64}, {"d": 64, "rows": 192, "keys": 112}, {"d": 128}, {"d": 256, "keys": 64}])
def test_registers_suffice_and_products_overlap(kind, causal, tmp_path):
    kernel = build(**kind, causal=causal)
    (tmp_path / "kernel.ptx").write_text(cuda.ptx(kernel, TARGET))
    command = [str(tools.ptxas()), "-arch=sm_90a", "-v", "-o", "kernel.cubin", "kernel.ptx"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert " 0 bytes spill stores" in said
    assert "serialized" not in said


def test_arrays_that_the_copy_engine_does_not_take_are_refused():
    assert online.Online.suits(build(d=64), TARGET)
    assert not online.Online.suits(build(d=64), cuda.make_target((8, 0)))
    # Rows of 72 bytes, blocks that shared memory does not hold, and a pointer that is not aligned.
    assert not online.Online.suits(build(d=36), TARGET)
    assert not online.Online.suits(build(d=256), TARGET)
    kernel = build(d=64)
    kernel.attrs["aligned"] = tuple(n for n in kernel.attrs["aligned"] if not n.startswith("p"))
    assert not online.Online.suits(kernel, TARGET)
    with pytest.raises(NotImplementedError):
        cuda.generate(kernel, TARGET)
