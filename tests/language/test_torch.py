"""Tensors of torch as arguments of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl

torch: Any = pytest.importorskip("torch")
if not hasattr(torch, "from_numpy"):
    pytest.skip("a stub of torch", allow_module_level=True)

DEVICE = "cuda" if torch.cuda.is_available() and ba.get_default_device() != "cpu" else "cpu"


@ba.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "float64"])
def test_in_place(dtype):
    x = torch.arange(100, device=DEVICE).to(getattr(torch, dtype))
    out = torch.zeros_like(x)
    add[(4,)](x, x, out, 100, BLOCK=32)
    assert torch.equal(out, x + x)
    add[(1,)](x[3:], x, out[1:], 20, BLOCK=32)
    assert torch.equal(out[1:21], (x[3:23] + x[:20]))


def test_parameters_of_modules():
    x = torch.nn.Parameter(torch.ones(32, device=DEVICE))
    out = torch.zeros(32, device=DEVICE)
    add[(1,)](x, x, out, 32, BLOCK=32)
    assert out.sum().item() == 64


def test_reinterpreted():
    x = torch.arange(32, dtype=torch.int32, device=DEVICE)
    out = torch.zeros(32, dtype=torch.int32, device=DEVICE)
    unsigned = ba.reinterpret(x, tl.uint32)
    compiled = add[(1,)](unsigned, unsigned, ba.reinterpret(out, tl.uint32), 32, BLOCK=32)
    assert torch.equal(out, 2 * x)
    assert [p.type.dtype for p in compiled.kernel.params[:3]] == ["u32"] * 3


def test_tensors_without_memory():
    with pytest.raises(TypeError, match="a tensor on meta has no memory"):
        add[1,](*[torch.zeros(8, device="meta")] * 3, 8, BLOCK=8)


def test_beside_arrays_of_the_library():
    x = torch.arange(32, dtype=torch.float32, device=DEVICE)
    a, out = ba.arange(32, dtype="f") * 2, torch.zeros(32, device=DEVICE)
    add[(1,)](x, a, out, 32, BLOCK=32)
    assert torch.equal(out, 3 * x)
    add[(1,)](x, out, a, 32, BLOCK=32)
    np.testing.assert_array_equal(np.asarray(a), 4 * np.arange(32))


def test_descriptors():
    x = torch.zeros(16, 32, device=DEVICE)
    desc = ba.TensorDescriptor.from_tensor(x, [8, 16])
    assert (tuple(desc.shape), tuple(desc.strides)) == ((16, 32), (32, 1))
    with pytest.raises(ValueError, match="the last stride of a tensor descriptor is 1"):
        ba.TensorDescriptor.from_tensor(x.T, [8, 16])
    with pytest.raises(ValueError, match="3 is no power of two"):
        ba.TensorDescriptor.from_tensor(x, [3, 16])
    with pytest.raises(ValueError, match="begins at a multiple of 16 bytes"):
        ba.TensorDescriptor.from_tensor(x[:, 1:], [8, 16])


@pytest.mark.skipif(DEVICE == "cpu", reason="graphs are a GPU's")
def test_a_graph_is_measured():
    x = torch.ones(32, device=DEVICE)
    out = torch.zeros(32, device=DEVICE)
    run = lambda: add[(1,)](x, x, out, 32, BLOCK=32)
    low, high = ba.testing.do_bench_cudagraph(run, rep=1, quantiles=[0.2, 0.8])
    assert 0 < low <= high and torch.equal(out, 2 * x)
