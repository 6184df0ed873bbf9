"""LLVM IR text -> PTX -> cubin."""

from __future__ import annotations

import json
import sys
import time

import pytest

from blockarray.compiler.cuda import make_target, tools, unpack
from blockarray.compiler.cuda.ptx import Assembled, _roomier, assemble, assemble_densely, check, emit, optimised

TARGET = make_target((9, 0))
HEAD = "define ptx_kernel void @kernel(ptr addrspace(1) %p) {"
SCALE = f"""{HEAD}
  %x = load float, ptr addrspace(1) %p, align 4
  %y = fmul float %x, 3.0
  store float %y, ptr addrspace(1) %p, align 4
  ret void
}}
"""

assembler = pytest.mark.skipif(tools.ptxas() is None, reason="needs ptxas")


def test_a_kernel():
    code = emit(SCALE, TARGET)
    assert ".target sm_90a" in code and ".visible .entry kernel(" in code
    assert "fmul" in optimised(SCALE, TARGET)


@assembler
def test_assembling_reports_resources():
    found = assemble(emit(SCALE, TARGET), TARGET)
    assert found is not None
    assert found.cubin[:4] == b"\x7fELF" and found.registers > 0 and found.spills == 0


@assembler
def test_the_assemblers_message_is_raised():
    with pytest.raises(RuntimeError, match="nonsense"):
        assemble(emit(SCALE, TARGET).replace("mul.rn.f32", "nonsense.f32"), TARGET)


@pytest.mark.parametrize(
    ("wanted", "spills", "given"), [(24, 0, 24), (36, 0, 32), (36, 8, 36), (64, 0, 64)]
)  # fmt: skip
def test_few_more_registers_than_fill_a_processor_are_saved_unless_that_spills(monkeypatch, wanted, spills, given):
    def fake(code, target):
        bounded = ".reqntid 128\n.maxnreg 32\n{" in code
        return Assembled(b"", 32, spills) if bounded else Assembled(b"", wanted, 0)

    module = sys.modules["blockarray.compiler.cuda.ptx"]
    monkeypatch.setattr(module, "assemble", fake)
    code = emit(SCALE.replace(" {\n", ' "nvvm.reqntid"="128" {\n', 1), TARGET)
    assert assemble_densely(code, TARGET) == (b"", given, 0)


@pytest.mark.parametrize(("spills", "given"), [(1556, (128, 392)), (100, (32, 100))])
def test_registers_for_further_blocks_are_not_paid_for_by_spilling_more_than_they_hold(monkeypatch, spills, given):
    def assembled(text, target):
        return Assembled(b"", 128, 392) if ".minnctapersm 1" in text else Assembled(b"", 32, spills)

    monkeypatch.setattr(sys.modules["blockarray.compiler.cuda.ptx"], "assemble", assembled)
    assert assemble_densely(".entry kernel()\n.reqntid 512\n{ }\n", TARGET) == (b"", *given)


def test_without_an_assembler_there_is_no_cubin(monkeypatch):
    monkeypatch.setattr(tools, "ptxas", lambda: None)
    assert assemble(emit(SCALE, TARGET), TARGET) is None


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}\n  %x = load float, ptr addrspace(1) %p\n  %y = call float @llvm.exp.f32(float %x)\n"
        "  store float %y, ptr addrspace(1) %p\n  ret void\n}\ndeclare float @llvm.exp.f32(float)",
        f"{HEAD}\n  %x = load float, ptr addrspace(1) %p\n  %y = frem float %x, 2.0\n"
        "  store float %y, ptr addrspace(1) %p\n  ret void\n}",
        f"{HEAD}\n  call void @sched_yield()\n  ret void\n}}\ndeclare void @sched_yield()",
    ],
)
def test_what_would_end_the_process_is_an_error(text):
    with pytest.raises(RuntimeError, match="no PTX"):
        emit(text, TARGET)


def test_malformed_text_is_an_error():
    with pytest.raises(RuntimeError):
        emit(f"{HEAD}\n  %x = load float, ptr %p\n  ret void\n}}", TARGET)


def test_library_functions_are_found():
    assert check("declare float @__nv_expf(float) nounwind\ndeclare float @llvm.fabs.f32(float)") == ["__nv_expf"]


def test_unpacking():
    header = json.dumps({"threads": 128, "shared": 0, "workspace": [0, 0], "format": "ptx"}).encode()
    blob = len(header).to_bytes(4, "little") + header + b"code"
    assert unpack(blob) == ({"threads": 128, "shared": 0, "workspace": [0, 0], "format": "ptx"}, b"code")


def test_long_straight_line_code_stays_quick():
    lines = ["%x0 = load float, ptr addrspace(1) %p, align 4"]
    for i in range(2000):
        lines.append(f"%a{i} = getelementptr float, ptr addrspace(1) %p, i64 {i}")
        lines.append(f"%l{i} = load float, ptr addrspace(1) %a{i}, align 4")
        lines.append(f"%x{i + 1} = fadd float %x{i}, %l{i}")
    lines.append("store float %x2000, ptr addrspace(1) %p, align 4")
    text = "\n  ".join([HEAD, *lines, "ret void"]) + "\n}"
    started = time.perf_counter()
    emit(text, TARGET)
    assert time.perf_counter() - started < 5


def test_one_more_block_for_what_waits() -> None:
    code = ".reqntid {}\n{{"
    assert _roomier(code.format(256), 114) == 80
    assert _roomier(code.format(256), 151) == 128
    # Enough threads, too many registers, or somebody has said how many.
    assert _roomier(code.format(256), 62) is None
    assert _roomier(code.format(1024), 64) is None
    assert _roomier(code.format(256), 255) is None
    assert _roomier(".reqntid 256\n.maxnreg 128\n{", 114) is None


@pytest.mark.parametrize(("alone", "chosen"), [(128, 128), (136, 116)])
def test_all_registers_with_which_as_many_blocks_fit(monkeypatch: pytest.MonkeyPatch, alone: int, chosen: int) -> None:
    """Of 256 threads two blocks have room with 116 and 128 registers, but one with 136."""
    module = sys.modules[assemble_densely.__module__]

    def assembled(code: str, target: object) -> Assembled:
        registers = alone if ".minnctapersm 1" in code else 80 if ".maxnreg" in code else 116
        return Assembled(b"", registers, 4 if registers == 80 else 0)

    monkeypatch.setattr(module, "assemble", assembled)
    code = ".entry kernel()\n.reqntid 256\n{ }\n"
    found = assemble_densely(code, TARGET, waits=True)
    assert found is not None and found.registers == chosen
    assert assemble_densely(code, TARGET) == (b"", 116, 0)
