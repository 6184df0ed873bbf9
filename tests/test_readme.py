"""The README's programs run, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import NAMESPACE, ROOT, run_python

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", TEXT, re.DOTALL)


def test_every_program_is_followed_by_its_output() -> None:
    assert PROGRAMS
    assert len(PROGRAMS) == TEXT.count("```python")


@pytest.mark.skipif(NAMESPACE != "blockarray", reason="the programs import blockarray")
@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_program(program: str, output: str, tmp_path: Path) -> None:
    # Kernels are compiled from their source, which is a file's.
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    assert run_python(f"import runpy; runpy.run_path({str(path)!r})") == output


def test_links_lead_somewhere() -> None:
    text = re.sub(r"(`+).*?\1", "", TEXT, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
