"""Products of hand-written kernels against the interpreter, emulated; and through ptxas where there is one."""

from __future__ import annotations

import shutil

import pytest

from blockarray.compiler import cuda
from tests.compiler.cuda import block_products as products
from tests.compiler.cuda.test_blocks import compare


@pytest.mark.parametrize("name", products.CASES)
def test_emulated(name: str) -> None:
    assert not compare(products.CASES[name]()).get("spills")


#: Which tensor cores multiply doubles in taller instructions, and floats of 8 bits.
CAPABILITIES = ((8, 0), (8, 9), (9, 0))


def test_maxima_lag() -> None:
    """Attention looks for a larger maximum where weights are large, unless results show what the maximum was."""
    target = cuda.make_target((9, 0))
    found = [cuda.text(products.attention(top=top).kernel, target) for top in ("", "with sums", "as they are")]
    assert ["vote.any" in text for text in found] == [True, True, False]


@pytest.mark.parametrize("name", products.PRODUCTS)
def test_small(name: str) -> None:
    number = list(products.PRODUCTS).index(name)
    compare(products.PRODUCTS[name](), cuda.make_target(CAPABILITIES[number % 3]))


@pytest.mark.parametrize("name", products.LOOPS)
def test_ahead(name: str) -> None:
    compare(products.LOOPS[name](), cuda.make_target((8, 0)))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_assembled_elsewhere(capability: tuple[int, int]) -> None:
    target = cuda.make_target(capability)
    instructions = {
        "smallest": "m16n8k16.row.col.f32.f16.f16.f32", "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
        "f64": "m16n8k8.row.col.f64" if target.sm >= 90 else "m8n8k4.row.col.f64",
        "i8 and u8, across": "m16n8k32.row.col.s32.s8.u8.s32",
        "f8, mixed": "m16n8k32.row.col.f32.e5m2.e4m3.f32" if target.float8 else "m16n8k16.row.col.f32.f16.f16.f32",
    }  # fmt: skip
    for name, instruction in instructions.items():
        kernel = products.PRODUCTS[name]().kernel
        assert instruction in cuda.ptx(kernel, target)
        header, _ = cuda.unpack(cuda.compile(kernel, target))
        assert header["format"] == "cubin" and not header["spills"]


def test_copies_ahead() -> None:
    """Three stages where there is room, fewer where there is not, none for what is used otherwise, too."""
    target = cuda.make_target((8, 6))
    kernel = products.matmul(block=(64, 64, 64), stages=8).kernel
    assert cuda.generate(kernel, target).shared == 6 * 2 * 64 * 64 * 2
    text = cuda.text(products.matmul(block=(32, 32, 32)).kernel, target)
    assert "cp.async.wait.group(i32 1)" in text and "ldmatrix" in text
    assert "cp.async" not in cuda.text(products.matmul(stages=1).kernel, target)
    # On Hopper by warps of their own, if these can bring all.
    hopper = cuda.make_target((9, 0))
    for kernel, bulk in ((products.matmul().kernel, True), (products.gathered(block=(64, 64, 32)).kernel, False)):
        text = cuda.text(kernel, hopper)
        assert "wgmma" in text and ("cp.async.bulk" in text) == bulk
