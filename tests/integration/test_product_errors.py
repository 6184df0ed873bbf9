"""Errors of matrix products beside the libraries', and below what theory says of them."""

from __future__ import annotations

import pytest

from tests import product_errors

#: Times the library's error: samples differ, and on the CPU the order in which both add up.
RMS, MAX = {"cpu": 1.3, "cuda": 1.05}, {"cpu": 2.0, "cuda": 1.3}


def check(name: str, inputs: str, depth: int, device: str) -> None:
    found = product_errors.measured(name, inputs, depth, device)
    rms, largest = found["ours"]
    assert rms <= product_errors.bound(product_errors.KINDS[name], depth)
    if "library" in found:
        assert rms <= RMS[device] * found["library"][0]
        assert largest <= MAX[device] * found["library"][1]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("name", "inputs", "depth"), product_errors.cases((64, 1024)))
def test_on_the_cpu(name: str, inputs: str, depth: int) -> None:
    check(name, inputs, depth, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "inputs", "depth"), product_errors.cases())
def test_on_a_gpu(name: str, inputs: str, depth: int) -> None:
    check(name, inputs, depth, "cuda")
