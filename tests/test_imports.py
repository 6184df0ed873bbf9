"""Who may import whom: blockarray imports compiler and runtime; these import neither each other nor blockarray."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("compiler", "runtime")


def imported(source: str, package: str) -> Iterator[str]:
    """Absolute names of the modules that `source` imports, wherever in it the statement stands.

    `package` is the dotted package of the module, against which relative imports resolve.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join(filter(None, [*parents[: len(parents) - node.level + 1], base]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(layer: str, source: str, package: str) -> list[str]:
    """Imports of the project's modules from outside `layer`."""
    ours = [name for name in imported(source, package) if name.split(".")[0] in {"blockarray", *LAYERS}]
    return [name for name in ours if not f"{name}.".startswith(f"blockarray.{layer}.")]


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_imports_only_itself(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        package = ".".join(["blockarray", *path.relative_to(ROOT).parent.parts])
        assert violations(layer, path.read_text(), package) == [], path


def test_blockarray_uses_no_top_level_names() -> None:
    """`import compiler` works from a checkout, but it would load every module a second time."""
    for path in sorted((ROOT / "blockarray").glob("*.py")):
        names = imported(path.read_text(), "blockarray")
        assert [n for n in names if n.split(".")[0] in LAYERS] == [], path


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("from .expr import Expr", False),
        ("from . import expr", False),
        ("from .cpu.emit import go\nimport numpy as np", False),
        ("from ..runtime import memory", True),
        ("from .. import runtime", True),
        ("def f():\n    from blockarray.runtime.memory import alloc", True),
        ("import blockarray", True),
        ("from ..array import Array", True),
        ("import runtime.memory", True),
        ("import compiler.expr", True),
    ],
)
def test_the_rule_itself(source: str, bad: bool) -> None:
    assert bool(violations("compiler", source, "blockarray.compiler")) is bad


def test_generic_names_stay_free() -> None:
    code = "import sys, blockarray; print({'compiler', 'runtime'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


def test_architecture_names_no_module_that_is_gone() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", text, re.MULTILINE))
    found: dict[str, set[str]] = {}
    for top in ("blockarray", *LAYERS):
        for path in (ROOT / top).rglob("*.py"):
            folder = path.relative_to(ROOT).parent.as_posix()
            if not folder.startswith(("blockarray/compiler", "blockarray/runtime")) and not path.stem.startswith("__"):
                found.setdefault(folder, set()).add(path.stem)
    assert rows.keys() == found.keys()
    for folder, row in rows.items():
        assert set(re.findall(r"`(\w+)`", row)) <= found[folder], folder
