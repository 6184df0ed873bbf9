"""Attention on the GPU: its code, run by the emulator, against the interpreter; and through ptxas."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter
from blockarray.compiler.cuda import online
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
