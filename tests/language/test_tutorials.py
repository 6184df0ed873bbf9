"""The tutorials of the block language: their checks, the kernels as they say they are, and the reference."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl
from blockarray.runtime.cuda import driver
from tests.runtime.cuda.fake import FakeDriver

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "language"
TUTORIALS = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    sys.modules.pop("tutorial", None)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", TUTORIALS)
def test_results(name: str) -> None:
    if name.startswith("07") and isinstance(driver.api, FakeDriver):
        pytest.skip("the interpreter reaches the memory of arguments only, not what a table in memory names")
    load(name).check()


def test_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module = load("01_vector_add")
    report = module.report()
    report.benchmarks.x_vals = [1024, 2048]
    sys.modules["tutorial"].main(lambda: None, lambda: report, argv=["--points", "1", "--save", str(tmp_path)])
    assert "kernel (GB/s)" in capsys.readouterr().out
    assert (tmp_path / "vector-add.csv").read_text().count("\n") == 2


def test_kernels_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = ModuleType("triton")
    peer.__dict__.update(jit=ba.jit, autotune=ba.autotune, Config=ba.Config, set_allocator=lambda fn: None)
    torch = ModuleType("torch")
    torch.__dict__.update(from_dlpack=lambda x: x)
    for name, made in {"triton": peer, "triton.language": tl, "torch": torch}.items():
        monkeypatch.setitem(sys.modules, name, made)
    module = load("03_matmul")
    tutorial = sys.modules["tutorial"]
    a, c = tutorial.normal(32, 32), ba.zeros((32, 32), dtype="float32")
    tuned = ba.autotune([ba.Config({"BM": 32, "BN": 32, "BK": 32, "GROUP": 1})], ["M"])(module.matmul_kernel)
    tutorial.by("Triton", module.matmul)(a, a, c, tutorial.by("Triton", tuned))
    tutorial.close(c, np.asarray(a) @ np.asarray(a), 2e-3 if tutorial.on_gpu() else 1e-5)
    tutorial.by("Triton", load("08_scan").recurrence)(a, a, c)
    tutorial.close(c, load("08_scan").by_steps(np.asarray(a), np.asarray(a)))


def test_results_of_another_device_are_kept() -> None:
    make = load("make")
    text = (FOLDER / "RESULTS.md").read_text(encoding="utf-8")
    made = "## On a GPU: one\n\n**add** in GB/s\n\n| n | kernel |\n| ---: | ---: |\n| 8 | 1.5 |\n"
    both = make.replaced(text, "cuda", made)
    assert make.replaced(both, "cuda", made) == both
    assert make.TABLE.search(both).groups() == ("add", "GB/s", "n | kernel", "| 8 | 1.5 |\n")
    assert text[text.index("## On a CPU") :].strip() in both


def test_the_product_has_25_lines_at_most() -> None:
    source = inspect.getsource(load("03_matmul").matmul_kernel.fn)
    assert len(source[source.index("def ") :].splitlines()) <= 25


def test_the_reference_has_all_names() -> None:
    page = (FOLDER / "language.md").read_text(encoding="utf-8")
    make = load("make")
    names = {name for name, value in vars(tl).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    there = set(re.findall(r"\w+", " ".join(re.findall(r"^\| `([\w, ]+)", page, re.MULTILINE))))
    assert there == names, "python docs/language/make.py --reference brings the reference up to date"
    assert make.with_reference(page).count("| `") == page.count("| `")


def test_links_lead_somewhere() -> None:
    for page in FOLDER.glob("*.md"):
        text = re.sub(r"(`+).*?\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (FOLDER / target).exists(), f"{page.name}: {target}"
