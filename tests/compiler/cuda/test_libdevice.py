"""NVIDIA's library of mathematical functions, cut into pieces."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from blockarray.compiler.cuda import libdevice, make_target, tools
from blockarray.compiler.cuda.ptx import emit

TARGET = make_target((9, 0))

present = pytest.mark.skipif(tools.libdevice() is None, reason="needs libdevice")


def calling(*names):
    body = [f"  %v{i + 1} = call float @{name}(float %v{i})" for i, name in enumerate(names)]
    declared = [f"declare float @{name}(float)" for name in dict.fromkeys(names)]
    head = "define ptx_kernel void @kernel(ptr addrspace(1) %p) {\n  %v0 = load float, ptr addrspace(1) %p"
    return "\n".join([head, *body, f"  store float %v{len(names)}, ptr addrspace(1) %p\n  ret void\n}}", *declared])


@pytest.fixture
def empty(monkeypatch):
    monkeypatch.setattr(libdevice, "_pieces", {})


@present
def test_a_piece_is_small_and_complete():
    module = llvm.parse_bitcode(libdevice.piece("__nv_pow", TARGET))
    defined = {f.name for f in module.functions if not f.is_declaration}
    assert defined == {"__nv_pow", "__internal_accurate_pow"}
    assert "__nvvm_reflect" not in str(module)


@present
def test_large_functions_are_called_and_small_ones_expanded():
    code = emit(calling("__nv_expf", "__nv_sinf", "__nv_sinf"), TARGET)
    assert ".func" in code and "call" in code
    assert "ex2.approx.ftz.f32" in code and "__nv_expf" not in code
    assert code.count(".entry kernel") == 1


@present
def test_pieces_are_kept(empty, monkeypatch):
    stored = {}
    libdevice.set_cache(stored.get, stored.__setitem__)
    try:
        first = libdevice.piece("__nv_tanhf", TARGET)
        assert list(stored.values()) == [first]
        monkeypatch.setattr(libdevice, "_pieces", {})
        monkeypatch.setattr(libdevice, "_extract", None)
        assert libdevice.piece("__nv_tanhf", TARGET) == first
    finally:
        libdevice.set_cache(lambda key: None, lambda key, value: None)


@present
def test_an_unknown_function_is_an_error():
    with pytest.raises(RuntimeError, match="__nv_magic"):
        emit(calling("__nv_magic"), TARGET)


def test_without_the_library_the_error_names_the_wheel(empty, monkeypatch):
    monkeypatch.setattr(tools, "libdevice", lambda: None)
    libdevice._library.cache_clear()
    with pytest.raises(RuntimeError, match="nvidia-cuda-nvcc"):
        emit(calling("__nv_expf"), TARGET)
