"""What the GPU's code generator does not take is refused before LLVM sees it."""

from __future__ import annotations

import pytest

from blockarray.compiler import cuda
from blockarray.compiler.parser import parse
from blockarray.compiler.verifier import verify

TARGET = cuda.make_target((9, 0))

BRANCH = """kernel @k(%x: ptr<f32>, %flag: bool) grid() {
  %0 = const {value=0} : i64
  %1 = if %flag {
    %2 = const {value=1.0} : f32
    yield %2
  } else {
    %3 = const {value=2.0} : f32
    yield %3
  } : f32
  store_view %1, %x, %0
}"""
PRODUCT = """kernel @k(%x: ptr<f32>, %y: ptr<f32>, %z: ptr<f32>, %n: i64) grid(%n / BLOCK, %n / BLOCK) HEAD {
  %0 = dim_start {dim="i"} : i64
  %1 = dim_start {dim="j"} : i64
  %2 = const {value=1} : i64
  %3 = multiply %0, %n : i64
  %4 = load_view %x, %3, %n, %2 : f32[i, k]
  %5 = load_view %y, %1, %n, %2 : f32[k, j]
  %6 = dot %4, %5 : f32[i, j]
  %7 = add %3, %1 : i64
  store_view %6, %z, %7, %n, %2
}"""


def product(block: int, attrs: str) -> str:
    head = f"dims(i = %n / {block} @ 0, k = %n, j = %n / {block} @ 1){attrs}"
    return PRODUCT.replace("BLOCK", str(block)).replace("HEAD", head)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BRANCH, "no loops, branches or products"),
        (product(16, ""), "no loops, branches or products"),
        (product(8, ' attrs(schedule="gemm")'), "16 by 16 at least"),
        (product(24, ' attrs(schedule="gemm")'), "power of two"),
    ],
    ids=["branch", "dot-alone", "small-block", "odd-block"],
)
def test_refused(source: str, message: str) -> None:
    kernel = parse(source)
    verify(kernel)
    with pytest.raises(NotImplementedError, match=message):
        cuda.text(kernel, TARGET)


def test_taken() -> None:
    assert "define ptx_kernel void @kernel" in cuda.text(parse(product(16, ' attrs(schedule="gemm")')), TARGET)
