"""Attention written as array code, planned for a GPU: one kernel, whose code the emulator runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray.array import Array
from blockarray.compiler import cuda, passes
from blockarray.compiler.fusion import gpu_policy
from blockarray.compiler.ir import Kernel
from tests.compiler import planning
from tests.compiler.cuda import gpu_emulator
from tests.integration.test_attention import BF16, SPELLINGS, tensors

TARGET = cuda.make_target((9, 0))
POLICY = gpu_policy(132, (9, 0))

#: What no schedule is there for: further sums or maxima that the walk would carry, weights that are changed.
APART = (
    "scaled_after_the_maximum", "weighted_keys", "sum_of_chosen_weights", "window_of_two_masks",
    "without_the_sum",
)  # fmt: skip


def emulate(kernel: Kernel, args: list[Any]) -> list[str]:
    assert kernel.attrs.get("schedule") == "online"
    plain = [a[0][a[1] :] if isinstance(a, tuple) else a for a in args]
    gpu_emulator.run(cuda.generate(passes.run(kernel), TARGET), kernel, plain)
    return []


def check(name: str, *shape: Any, dtype: Any = BF16) -> None:
    inputs = tensors(*shape, dtype)
    out = SPELLINGS[name](xp, *[Array(planning.leaf(a)) for a in inputs])
    (got,) = planning.run(out._read(), policy=POLICY, execute=emulate, aligned=True)
    with np.errstate(all="ignore"):
        want = SPELLINGS[name](np, *[a.astype(np.float64) for a in inputs])
    np.testing.assert_allclose(got.astype(np.float64), want, 0, 3e-2 * np.nanmax(np.abs(want)))


@pytest.mark.parametrize("name", [name for name in SPELLINGS if name not in APART])
def test_spelling(name: str) -> None:
    check(name, (2,), 130, 144, 32, 32)
