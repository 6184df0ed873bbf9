"""Random programs and random kernels with the code of the GPU's kernels emulated, where there is no GPU.

BLOCKARRAY_FUZZ_EMULATED sets their number; `pytest tests/fuzz/test_expressions.py --device cuda-emulated` runs more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from blockarray.compiler import cuda, verifier
from tests import fake_gpu
from tests.compiler.cuda import gpu_emulator
from tests.fuzz import kernels, programs
from tests.fuzz.test_block_ir import interpreted, same
from tests.support import evaluate, xp

pytestmark = pytest.mark.cpu_only
EXAMPLES = int(os.environ.get("BLOCKARRAY_FUZZ_EMULATED", "12"))
TARGET = cuda.make_target((9, 0))
#: Programs and kernels that went wrong once.
PROGRAMS = (188,)
KERNELS: tuple[int, ...] = ()


@pytest.fixture(scope="module")
def gpu() -> Iterator[None]:
    with fake_gpu.installed(1, emulate=True), xp.device("cuda:0"):
        yield


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("seed", (*PROGRAMS, *range(20_000, 20_000 + EXAMPLES)))
def test_programs(seed: int) -> None:
    program = programs.make(seed)
    wrong = programs.failure(program, xp, evaluate)
    assert wrong is None, f"{wrong}\n\n{program}"


@pytest.mark.parametrize("seed", (*KERNELS, *range(20_000, 20_000 + EXAMPLES)))
def test_kernels(seed: int) -> None:
    case = kernels.make(seed, gpu=True)
    verifier.verify(case.kernel)
    want = interpreted(case)
    got = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    gpu_emulator.run(cuda.generate(case.kernel, TARGET), case.kernel, got)
    for k in case.outputs:
        assert same(got[k], want[k]), (case.kernel.params[k].name, got[k], want[k])
