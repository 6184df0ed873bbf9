"""Which schedules products of all shapes get on Hopper: tiles, parts of k, copies of operands."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from blockarray.compiler import cuda, passes, plan, policy
from blockarray.compiler import expr as E
from blockarray.compiler.cuda.dequantised import Dequantised, DequantisedParts
from blockarray.compiler.cuda.hopper import Hopper
from blockarray.compiler.cuda.mma import Mma
from blockarray.compiler.cuda.parts import Parts
from blockarray.compiler.cuda.shifted import Shifted
from blockarray.compiler.ops import TABLE

TARGET = cuda.make_target((9, 0))
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def matrix(*shape: int, strides: tuple[int, ...] | None = None, dtype: np.dtype = F16) -> E.Expr:
    memory = SimpleNamespace(pinned=False, nbytes=1 << 50, address=0, capacity=1 << 50)
    return E.buffer(memory, shape, dtype, 0, strides)


def cast(x: E.Expr) -> E.Expr:
    return E.Expr(TABLE["cast"], (x,), None, x.shape, F16, 1)


def kernels(a: E.Expr, b: E.Expr, capability: tuple[int, int] = (9, 0)) -> list:
    """Those of a @ b, of arrays that begin at multiples of 16 bytes."""
    shape = (*a.shape[:-1], b.shape[-1])
    graph = plan.scan([E.Expr(E.DOT, (a, b), None, shape, F16, 1)])
    graph.aligned = frozenset(k for k, node in enumerate(graph.nodes) if node.op is E.BUFFER)
    steps = plan.build(graph, policy.gpu_policy(132, capability)).steps
    return [passes.run(step.kernel) for step in steps if isinstance(step, plan.KernelStep)]


def tiles(kernel) -> tuple[int, ...]:
    return tuple(dim.block for dim in kernel.dims.values() if dim.block is not None)


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "parts"),
    [
        (8192, 8192, 8192, (128, 192), 1),
        (7168, 7168, 7168, (128, 256), 1),
        (2048, 2048, 2048, (128, 256), 1),
        (1024, 1024, 1024, (128, 64), 1),
        (1536, 1536, 1536, (128, 160), 1),
        (1792, 1792, 1792, (128, 224), 1),
        (3072, 3072, 3072, (128, 192), 1),
        (3840, 3840, 3840, (128, 128), 1),
        (16, 8192, 8192, (16, 128), 2),
        (8192, 16, 8192, (128, 16), 2),
        (4, 8192, 8192, (16, 128), 2),
        (1, 8192, 8192, (16, 128), 2),
        (128, 4096, 16384, (128, 64), 2),
    ],
)
def test_tiles(m, n, k, tile, parts):
    (kernel,) = kernels(matrix(m, k), matrix(k, n))
    assert (tiles(kernel), kernel.attrs.get("parts", 1)) == (tile, parts)
    assert (Parts if parts > 1 else Hopper).suits(kernel, TARGET)


@pytest.mark.parametrize("m", [5, 16, 40, 64])
@pytest.mark.parametrize("turned", [False, True])
def test_weights_of_8_bits_are_computed_on_the_way(m: int, turned: bool):
    weights = lambda rows, columns: cast(
        matrix(rows, columns, strides=(1, rows) if turned else (columns, 1), dtype=np.dtype(np.int8))
    )
    (kernel,) = kernels(matrix(m, 8192), weights(8192, 8192))
    assert DequantisedParts.suits(kernel, TARGET)
    (kernel,) = kernels(weights(20480, 8192), matrix(8192, m, strides=(1, 8192)))
    assert Dequantised.suits(kernel, TARGET)


def test_operands_that_are_cast_before_have_parts_in_clusters():
    for a, b in (
        (cast(matrix(128, 4096, dtype=F32)), matrix(4096, 4096)),
        (matrix(128, 4096), cast(matrix(4096, 4096, dtype=F32))),
    ):
        _, product = kernels(a, b)
        assert Parts.suits(product, TARGET)


def test_few_tiles_of_long_k_are_products_that_are_added_up():
    product, _ = kernels(matrix(512, 32768), matrix(32768, 512))
    assert Hopper.suits(product, TARGET)


def test_small_matrices_have_small_tiles():
    (kernel,) = kernels(matrix(4096, 32, 32), matrix(4096, 32, 32))
    assert tiles(kernel) == (32, 32)
    assert Mma.suits(kernel, TARGET) and not Hopper.suits(kernel, TARGET)


def test_operands_whose_rows_begin_anywhere_are_copied():
    *copies, product = kernels(matrix(4095, 4099), matrix(4099, 4097))
    assert len(copies) == 2 and Hopper.suits(product, TARGET)
    # Sixteen columns of tiles, and one of a single column.
    assert tiles(product) == (128, 256) and product.attrs["edge"] == 64
    large, product = kernels(matrix(16, 8192), matrix(8192, 8191))
    assert Shifted.suits(large, TARGET) and Parts.suits(product, TARGET)
    # The smaller one, where it is far smaller.
    *copies, product = kernels(matrix(8192, 8192), matrix(8192, 4))
    assert len(copies) == 1 and Hopper.suits(product, TARGET)
    assert len(kernels(matrix(64, 67), matrix(67, 65))) == 1


def test_strides_that_no_tensor_map_has():
    for pitch, suits in ((512, True), (1 << 35, True), (1 << 36, False), (-256, False)):
        (kernel,) = kernels(matrix(256, 256, strides=(pitch, 1)), matrix(256, 256))
        assert Hopper.suits(kernel, TARGET) == suits


def test_older_chips_have_no_narrow_tiles():
    for a, b in ((matrix(16, 8192), matrix(8192, 8192)), (matrix(128, 16384), matrix(16384, 4096))):
        for kernel in kernels(a, b, (8, 0)):
            assert "parts" not in kernel.attrs and min(tiles(kernel), default=16) >= 16
