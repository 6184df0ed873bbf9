"""Random programs and random kernels with the code of the GPU's kernels emulated, where there is no GPU.

BLOCKARRAY_FUZZ_EMULATED sets their number; `pytest tests/fuzz/test_expressions.py --device cuda-emulated` runs more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from blockarray.compiler import cuda, verifier
from blockarray.compiler.cuda import layout
from blockarray.compiler.cuda.codegen import Code
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
#: Kernels with a row that is walked again.
CLUSTERS = (20087, 20455, 20528, 20558, 20582, 20940, 21005, 21356, 21400, 21495)


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


def check(seed: int) -> Code:
    """Compare the emulated code of a random kernel with the interpreter."""
    case = kernels.make(seed, gpu=True)
    verifier.verify(case.kernel)
    want = interpreted(case)
    got = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    code = cuda.generate(case.kernel, TARGET)
    gpu_emulator.run(code, case.kernel, got)
    for k in case.outputs:
        assert same(got[k], want[k]), (case.kernel.params[k].name, got[k], want[k])
    return code


@pytest.mark.parametrize("seed", (*KERNELS, *range(20_000, 20_000 + EXAMPLES)))
def test_kernels(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", CLUSTERS)
def test_clusters(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows over the blocks of a cluster."""
    monkeypatch.setattr(layout, "spread", lambda length, *_: (32, min(8, length // 32)) if length >= 64 else None)
    assert check(seed).cluster > 1
