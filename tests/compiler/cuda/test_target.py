"""Architectures, and the parts of the toolkit."""

from __future__ import annotations

import pytest

from blockarray.compiler.cuda import make_target, tools
from blockarray.compiler.cuda.target import _KNOWN, DATA_LAYOUT


def test_targets_are_values():
    target = make_target((9, 0))
    assert target == make_target((9, 0)) and hash(target) == hash(make_target((9, 0)))
    assert (target.arch, target.sm, target.bf16, target.shared) == ("sm_90a", 90, True, 227 << 10)
    assert target.key != make_target((8, 0)).key


def test_unknown_gpus():
    newer = make_target((13, 0))
    assert (newer.arch, newer.sm) == ("sm_121", 121)
    with pytest.raises(ValueError, match=r"6\.1"):
        make_target((6, 1))


@pytest.mark.parametrize("capability", sorted(_KNOWN))
def test_llvm_knows_every_architecture(capability):
    machine = make_target(capability).machine()
    assert str(machine.target_data) == DATA_LAYOUT


def test_math_functions():
    target = make_target((9, 0))
    assert target.scalar_function("atan2", "float") == "__nv_atan2f"
    assert target.scalar_function("exp", "double") == "__nv_exp"
    assert target.vector_function("exp", "float", 4) is None


def test_the_users_toolkit_comes_first(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "ptxas"
    program.parent.mkdir()
    program.write_text("")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert tools.ptxas.__wrapped__() == program
