"""Copies of rows of 16-bit elements that begin anywhere, run by the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import cuda
from blockarray.compiler.cuda.shifted import Shifted
from blockarray.compiler.dtypes import NUMPY
from tests.compiler.cuda import gpu_emulator
from tests.compiler.cuda.gpu_kernels import Make


def copy(dtype: str, rows: int, columns: int, pitch: int, wide: int, tile: tuple[int, int] = (1, 256)):
    """Rows `pitch` elements apart become rows `wide` elements apart."""
    p = Make("update")
    b = p.b
    m, n = (p.blocked(d, p.size(n), block) for d, n, block in zip("mn", (rows, columns), tile, strict=True))
    starts = [b.dim_start(d) for d in (m, n)]

    def place(stride):
        return b.op("add", b.op("multiply", starts[0], stride), starts[1]), [stride, b.const(1)]

    # The array ends with its last element.
    source = p.array(dtype, (rows - 1) * pitch + columns)
    target = p.array(dtype, rows * wide, data=np.zeros(rows * wide, NUMPY[dtype]))
    value = b.load_view(source, *place(p.size(pitch)), (m, n))
    b.store_view(value, target, *place(p.size(wide)))
    return p.case()


@pytest.mark.parametrize("dtype", ["f16", "u16"])
@pytest.mark.parametrize("tile", [(1, 256), (1, 2048), (16, 128), (4, 64)])
@pytest.mark.parametrize(
    ("rows", "columns", "pitch", "wide"),
    [
        (17, 259, 259, 320),
        (16, 128, 129, 128),
        (33, 127, 131, 128),
        (5, 385, 385, 400),
        (1, 1, 3, 16),
        (18, 130, 130, 192),
    ],
)
def test_rows_keep_their_elements(dtype, tile, rows, columns, pitch, wide):
    case = copy(dtype, rows, columns, pitch, wide, tile)
    assert Shifted.suits(case.kernel, cuda.make_target((9, 0)))
    gpu_emulator.run(cuda.generate(case.kernel, cuda.make_target((9, 0))), case.kernel, case.args)
    (source, target) = (x for x in case.args if isinstance(x, np.ndarray))
    wanted = np.zeros((rows, wide), source.dtype)
    for row in range(rows):
        wanted[row, :columns] = source[row * pitch :][:columns]
    np.testing.assert_array_equal(target.reshape(rows, wide).view(np.uint16), wanted.view(np.uint16))


def test_other_copies_are_as_ever():
    target = cuda.make_target((9, 0))
    assert not Shifted.suits(copy("f16", 16, 128, 144, 128).kernel, target)
    assert not Shifted.suits(copy("f16", 16, 128, 129, 128, (2, 128)).kernel, target)
    assert not Shifted.suits(copy("f32", 16, 128, 129, 128).kernel, target)
    assert not Shifted.suits(copy("f16", 16, 128, 129, 131).kernel, target)
