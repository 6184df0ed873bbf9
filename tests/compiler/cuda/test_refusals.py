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


def walks(body: str, grid: str = "", block: str = "") -> str:
    """A kernel of x[i, j], neither of whose extents is known; `body` makes %9 of %2."""
    params = "%x: ptr<f32>, %y: ptr<f32>, %n: i64, %m: i64, %workspace: ptr<i8>"
    return f"""kernel @k({params}) grid({grid}) dims(i = %n, j = %m{block}) {{
  %0 = const {{value=0}} : i64
  %1 = const {{value=1}} : i64
  %2 = load_view %x, %0, %m, %1 : f32[i, j]
  {body}
  store_view %9, %y, %0, %m, %1
}}"""


#: Scans along both dims; a reduction along one dim of a scan along the other, which it is inside of; the same with
#: the scanned dim around; and a scan from program to program of which a program has several rows.
BOTH = """%3 = scan %2 {dim=1, kind="cumsum"} : f32[i, j]
  %9 = scan %3 {dim=0, kind="cumsum"} : f32[i, j]"""
AROUND = """%3 = scan %2 {dim=1, kind="cumsum"} : f32[i, j]
  %4 = reduce %3 {dims=(0,), kind="max"} : f32[j]
  %5 = broadcast %4 {dims=(1,)} : f32[i, j]
  %9 = divide %3, %5 : f32[i, j]"""
INSIDE = """%3 = scan %2 {dim=0, kind="cumsum"} : f32[i, j]
  %4 = reduce %3 {dims=(1,), kind="max"} : f32[i]
  %5 = scan %4 {dim=0, kind="cumsum"} : f32[i]
  %6 = broadcast %5 {dims=(0,)} : f32[i, j]
  %9 = divide %3, %6 : f32[i, j]"""
ROWS = """%9 = scan %2 {across=True, dim=1, kind="cumsum"} : f32[i, j]"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BRANCH, "no loops, branches or products"),
        (product(16, ""), "no loops, branches or products"),
        (product(8, ' attrs(schedule="gemm")'), "tiles of 16 by 16"),
        (product(24, ' attrs(schedule="gemm")'), "tiles of 16 by 16"),
        (walks(BOTH), "scans along j and i in one strip"),
        (walks(AROUND), "a reduction along a dim that is walked around it"),
        (walks(INSIDE), "in trips inside its own"),
        (walks(ROWS, "%m / 64", " / 64 @ 0"), "a scan goes on along the last axis"),
    ],
    ids=["branch", "dot-alone", "small-block", "odd-block", "both", "around", "inside", "rows"],
)
def test_refused(source: str, message: str) -> None:
    kernel = parse(source)
    verify(kernel)
    with pytest.raises(NotImplementedError, match=message):
        cuda.text(kernel, TARGET)


def test_taken() -> None:
    assert "define ptx_kernel void @kernel" in cuda.text(parse(product(16, ' attrs(schedule="gemm")')), TARGET)


WRITTEN = 'kernel @k(%p: ptr<{0}>, %n: i64) grid(%n / 1) {1}attrs(num_warps=4, schedule="blocks") {{\n{2}\n}}'
ADDED = """  %i = iota : i64[32]
  %v = load_ptr %p, %i : bf16[32]
  %old = atomic %v, %p, %i {kind="add", order="relaxed", scope="gpu"} : bf16[32]"""
COMPLEX = """  %i = iota : i64[16]
  %r = broadcast %i {dims=(0,)} : i64[16, 16]
  %v = load_ptr %p, %r : c64[16, 16]
  %d = dot %v, %v : c64[16, 16]
  store_ptr %d, %p, %r"""
NAMED = '  %e = dim_extent {dim="j"} : i64\n  store_ptr %e, %p, %e'


@pytest.mark.parametrize(
    ("dtype", "dims", "body", "message"),
    [
        ("bf16", "", ADDED, "no atomic add of bf16 on sm_80"),
        ("c64", "", COMPLEX, "a product of c64"),
        ("i64", "dims(j = %n) ", NAMED, "no GPU code for dim_extent"),
    ],
    ids=["atomic", "complex", "named"],
)
def test_refused_of_hand_written_kernels(dtype: str, dims: str, body: str, message: str) -> None:
    kernel = parse(WRITTEN.format(dtype, dims, body))
    verify(kernel)
    with pytest.raises(NotImplementedError, match=message):
        cuda.text(kernel, cuda.make_target((8, 0)))
