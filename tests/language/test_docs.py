"""The programs in the block language's page run, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "language" / "README.md").read_text(encoding="utf-8")


@pytest.mark.cpu_only
def test_programs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)), encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "BLOCKARRAY_TINY": "on"}
    done = subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert done.stdout.startswith(said)
    assert "custom operation total" in done.stdout
    assert "[-1." not in done.stdout and "1.  5.  9. 13." in done.stdout
