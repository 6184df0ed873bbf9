"""Products of hand-written kernels against the interpreter, emulated; and through ptxas where there is one."""

from __future__ import annotations

import shutil

import pytest

from blockarray.compiler import cuda, passes
from tests.compiler.cuda import block_products as products
from tests.compiler.cuda.test_blocks import TARGET, compare


@pytest.mark.parametrize("name", products.CASES)
def test_emulated(name: str) -> None:
    compare(products.CASES[name]())


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("name", products.CASES)
def test_assembled(name: str) -> None:
    header, _ = cuda.unpack(cuda.compile(passes.run(products.CASES[name]().kernel), TARGET))
    assert header["format"] == "cubin" and not header["spills"]
