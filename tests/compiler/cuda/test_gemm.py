"""Products on the GPU: their code, run by the emulator, against the interpreter; and through ptxas."""

from __future__ import annotations

import re

import numpy as np
import pytest

from blockarray.compiler import cuda, dtypes, interpreter
from blockarray.compiler.cuda import gemm, tools
from blockarray.compiler.cuda.ptx import assemble, emit
from blockarray.compiler.verifier import verify
from tests.compiler.cuda import gpu_emulator, gpu_products

TARGET = cuda.make_target((9, 0))
OLD = cuda.make_target((7, 5))


class Emulator(gpu_emulator.Emulator):
    """Knows a warp's instructions, and copies that are asynchronous on a GPU; bfloats are floats, rounded."""

    def _lanes(self, x):
        return x.reshape(-1, 32)

    def _call(self, rhs, mask):
        found = re.match(r"call .+? @([\w.]+)\((.*)\)", rhs)
        name, operands = found.groups() if found else ("", "")
        if "ldmatrix" in name:
            return self._ldmatrix(self.typed(operands)[0], mask, ".trans" in name)
        if "mma.m16n8k16" in name:
            args = [self.typed(x)[0] for x in gpu_emulator._split(operands)]
            return self._mma(args[:4], args[4:6], args[6:], "bf16" in name)
        return super()._call(rhs, mask)

    def _ldmatrix(self, address, mask, transposed):
        """Four matrices of 8 by 8 words of 16 bits; lane 8 i + r tells where row r of matrix i lies."""
        assert mask.reshape(-1, 32).all(1).any()
        rows = self._load(address, "ptr addrspace(3)", "i16", 8, mask).reshape(-1, 4, 8, 8)
        if transposed:
            rows = rows.transpose(0, 1, 3, 2)
        pairs = np.ascontiguousarray(rows).reshape(-1, 4, 32, 2).view(np.int32)[..., 0]
        return [pairs[:, i].reshape(-1) for i in range(4)]

    def _halves(self, x, bf16):
        """Two numbers of each word, by warp and lane."""
        bits = np.ascontiguousarray(x).view(np.uint16).reshape(-1, 32, 2)
        if bf16:
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float16).astype(np.float32)

    def _mma(self, a, b, c, bf16):
        lane = np.arange(32)
        row, column = lane // 4, lane % 4 * 2
        warps = self.count // 32
        full = np.zeros((warps, 16, 16), np.float32), np.zeros((warps, 16, 8), np.float32)
        for i, x in enumerate(a):
            for half in range(2):
                full[0][:, row + i % 2 * 8, column + i // 2 * 8 + half] = self._halves(x, bf16)[..., half]
        for i, x in enumerate(b):
            for half in range(2):
                full[1][:, column + i * 8 + half, row] = self._halves(x, bf16)[..., half]
        product = full[0] @ full[1]
        return [x + product[:, row + i // 2 * 8, column + i % 2].reshape(-1) for i, x in enumerate(c)]

    def _effect(self, line, mask):
        if "cp.async.cg" in line:
            to, source, count = (self.typed(x)[0] for x in gpu_emulator._split(line[line.index("(") + 1 : -1]))
            some = mask & (count > 0)
            words = np.zeros((self.count, 4), np.int32)
            words[some] = self._load(source, "ptr addrspace(1)", "i32", 4, some)[some]
            self._store(words, to, "ptr addrspace(3)", mask)
        elif "cp.async" not in line:
            super()._effect(line, mask)

    def _cast(self, opcode, x, target):
        if opcode == "fptrunc" and target == "bfloat":
            return x.astype(dtypes.NUMPY["bf16"])
        if opcode == "bitcast" and x.dtype == dtypes.NUMPY["bf16"]:
            return x.view(np.int16)
        if opcode == "fpext" and x.dtype == dtypes.NUMPY["bf16"]:
            return x.astype(np.float32)
        return super()._cast(opcode, x, target)


@pytest.fixture(autouse=True)
def warps(monkeypatch):
    monkeypatch.setattr(gpu_emulator, "Emulator", Emulator)


def check(case, target):
    verify(case.kernel)
    wanted = gpu_products.zeros(case)
    found = gpu_products.zeros(case)
    interpreter.run(case.kernel, wanted)
    gpu_emulator.run(gemm.generate(case.kernel, target), case.kernel, found)
    for want, have in zip(wanted, found, strict=True):
        if not isinstance(want, np.ndarray):
            continue
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol)


@pytest.mark.parametrize("name", gpu_products.CASES)
def test_values(name):
    check(gpu_products.CASES[name](), TARGET)


@pytest.mark.parametrize("name", [n for n in gpu_products.CASES if "f16" in n])
def test_values_without_tensor_cores(name):
    check(gpu_products.CASES[name](), OLD)


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
