"""Kernels built by hand: their text is the golden file's, comes back through the parser, and computes NumPy's answers.

UPDATE_GOLDEN=1 writes the files anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from blockarray.compiler import passes
from blockarray.compiler.interpreter import run
from blockarray.compiler.parser import parse
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify
from tests.compiler.ir_kernels import KERNELS

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_golden(name):
    kernel = KERNELS[name][0]()
    verify(kernel)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text(kernel) + "\n")
    assert text(kernel) + "\n" == path.read_text()


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_comes_back(name):
    kernel = KERNELS[name][0]()
    read = parse(text(kernel))
    verify(read)
    assert text(read) == text(kernel)


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_computes_numpys_answer(name, optimised):
    build, make = KERNELS[name]
    kernel = build()
    if optimised:
        kernel = passes.run(kernel, check=True)
    case = make(np.random.default_rng(0))
    assert tuple(run(kernel, case.args)) == case.failed
    for position, expected in case.expected.items():
        np.testing.assert_allclose(case.args[position].reshape(expected.shape), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_the_pipeline_changes_no_kernel_in_place_and_settles(name):
    kernel = KERNELS[name][0]()
    before = text(kernel)
    once = passes.run(kernel)
    assert text(kernel) == before
    assert text(passes.run(once)) == text(once)
