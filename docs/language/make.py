"""Run the tutorials: what they measure goes to RESULTS.md and plots/.  Bring the reference in language.md up to date.

    python docs/language/make.py [--device cpu|cuda] [--points N] [--reference | --plots]

The results of the kind of device that they run on are replaced, and those of the other kind are kept.  --points N
measures the last N sizes of each plot only; --reference leaves the tutorials out.  Plots, for which matplotlib is
needed, show the tables of RESULTS.md; --plots draws them anew.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import inspect
import os
import platform
import re
import shutil
import sys
import traceback
from functools import partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import tutorial

import blockarray as ba
import blockarray.language as tl
from blockarray.testing import Benchmark

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- made by make.py -->\n", "<!-- end -->\n"
FLAGS = re.MULTILINE | re.DOTALL
#: Titles of the results' parts, by the kind of device.
TITLES = {"cuda": "On a GPU", "cpu": "On a CPU"}
HEAD = """# What the tutorials measure

By `make docs`, which replaces the results of the kind of device that it runs on.  "kernel" is the tutorial's kernel,
"Triton" the same source compiled by Triton, and "kernel / Triton" how many times as fast as that it is; "composed" is
the same computation in operations of an array library, each of which stores its result.
"""
#: Titles of the reference's parts, by the module that names come from.
PARTS = {
    "program": "Programs, loops, hints, debugging",
    "products": "Products",
    "memory": "Memory",
    "elementwise": "Elements",
    "values": "Elements, as functions",
    "mapping": "Elements, by a function of one's own",
    "machine": "Elements, by instructions of a GPU",
    "shapes": "Shapes",
    "reductions": "Reductions and scans",
    "random": "Random numbers",
    "types": "Types",
    "errors": "Errors",
}


def reference() -> str:
    """All public names of blockarray.language, with the first line of what they say of themselves."""
    parts: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
    dtypes = []
    for name, value in sorted(vars(tl).items(), key=lambda item: item[0].lower()):
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        if isinstance(value, tl.dtype):
            dtypes.append(name)
            continue
        if name in _PLAIN:
            parts["types"].append((name, _PLAIN[name]))
        else:
            said = (inspect.getdoc(value) or "").split("\n")[0]
            parts[value.__module__.rpartition(".")[2]].append((name + _arguments(value), said))
    parts["types"].append((", ".join(dtypes), "Types of elements, and of pointers to int32 and to nothing."))
    lines = []
    for part, title in PARTS.items():
        lines += [f"### {title}", "", "| name | |", "| --- | --- |"]
        lines += [f"| `{name}` | {said.replace('|', chr(92) + '|')} |" for name, said in parts[part]]
        lines.append("")
    modules: dict[str, Any] = {"math": tl.math, "random": tl.random, "extra": tl.extra, "extra.cuda": tl.extra.cuda}
    for name, module in modules.items():
        lines += [f"`tl.{name}`: {module.__doc__.splitlines()[0]}", ""]
    functions = sorted(
        name for name, value in vars(tl.math).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in _HELPERS
    )  # fmt: skip
    return "\n".join([*lines, "Functions of `tl.math`: " + ", ".join(f"`{n}`" for n in functions) + ".", ""])


#: Names whose values say nothing of themselves.
_PLAIN = {
    "TRITON_MAX_TENSOR_NUMEL": "Elements that a block has at most.",
    "const": "Annotation of a pointer whose elements do not change.",
    "tuple": "Python's tuple.",
}
#: What `tl.math` uses itself.
_HELPERS = ("floats", "from_table", "elementwise", "convert", "tensor", "where")


def _arguments(value: Any) -> str:
    if inspect.isclass(value) and value not in (tl.range, tl.static_range):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = []
    for p in parameters:
        default = "" if p.default is p.empty else f"={getattr(p.default, 'name', None) or repr(p.default)}"
        shown.append({p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name + default)
    return f"({', '.join(shown)})"


def with_reference(text: str) -> str:
    """The page with the reference of today."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + "\n" + reference() + "\n" + text[end:]


# -- results ----------------------------------------------------------------------------------------------------------
def device_name(place: Any) -> str:
    if place != "cpu":
        return place.name
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return f"{found[1] if found else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def section(points: int) -> tuple[str, str]:
    """What the tutorials measure on the default device, and which of them failed."""
    place = ba.get_default_device()
    failed = ""
    parts = [f"## {TITLES[place.kind]}: {device_name(place)}", f"{datetime.date.today()}"]
    for path in sorted(HERE.glob("[0-9]*.py")):
        started = perf_counter()
        module = loaded(path)
        title = module.__doc__.splitlines()[0].removeprefix("# ")
        parts.append(f"### [{title}]({path.name})")
        try:
            module.check()
            marks = [value for name, value in vars(module).items() if name.startswith("report")]
            for mark, benchmark in tutorial.reports(marks, points):
                mark.run()
                parts.append(table(benchmark))
                print(parts[-1], flush=True)
        except Exception:  # the others go on
            traceback.print_exc()
            failed += f" {path.name}"
        print(f"{path.name}: {perf_counter() - started:.1f} s", flush=True)
    return "\n\n".join(parts) + "\n", failed


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"tutorial_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(benchmark: Benchmark) -> str:
    """What was measured, in Markdown."""
    names = list(benchmark.line_names)
    head, rows = [*benchmark.x_names, *names], benchmark.table()
    if tutorial.TRITON in names:
        ours, theirs = head.index(tutorial.OURS), head.index(tutorial.TRITON)
        head.append(tutorial.RATIO)
        rows = [[*row, row[ours] / row[theirs]] for row in rows]
    spelled = [[f"{x:.4g}" if isinstance(x, float) and x < 1e4 else f"{x:.0f}" for x in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---:"] * len(head), *spelled)]
    return f"**{benchmark.plot_name}** in {benchmark.ylabel}\n\n" + "\n".join(lines)


#: A table, as `table` writes it: name, unit, header, rows.
TABLE = re.compile(r"\*\*(\S+)\*\* in (.*)\n\n\| (.*) \|\n.*\n((?:\|.*(?:\n|$))+)")


def replaced(text: str, kind: str, made: str) -> str:
    """The results with those of a kind of device replaced."""
    parts = {name: part for name in TITLES for part in re.findall(rf"^## {TITLES[name]}:.*?(?=^## |\Z)", text, FLAGS)}
    parts[kind] = made
    return "\n".join([HEAD, *[parts[name].strip() + "\n" for name in TITLES if name in parts]])


def illustrated(text: str) -> str:
    """The results with plots of their tables, which are drawn."""
    text = re.sub(r"\n+!\[.*\n", "\n", text)
    for kind, title in TITLES.items():
        found = re.search(rf"^## {title}:.*?(?=^## |\Z)", text, FLAGS)
        if found is None:
            continue
        folder = HERE / "plots" / kind
        shutil.rmtree(folder, ignore_errors=True)
        part = TABLE.sub(partial(_plotted, folder), found[0])
        text = text[: found.start()] + part + text[found.end() :]
    return text


def _plotted(folder: Path, found: re.Match[str]) -> str:
    """A table and its plot."""
    name, unit, header, body = found.groups()
    x_name, *lines = [cell for cell in header.split(" | ") if cell != tutorial.RATIO]
    rows = [[float(cell) for cell in line.strip("| ").split(" | ")] for line in body.splitlines()]
    benchmark = Benchmark(
        [x_name], [int(row[0]) for row in rows], "", lines, lines, name, {}, ylabel=unit, x_log=True
    )  # fmt: skip
    benchmark.rows = [[int(row[0]), *[(x, None, None) for x in row[1 : len(lines) + 1]]] for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    figure = benchmark.plot()
    figure.savefig(folder / f"{name}.svg")
    sys.modules["matplotlib.pyplot"].close(figure)
    return f"{found[0].rstrip()}\n\n![{name}](plots/{folder.name}/{name}.svg)\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--plots", action="store_true")
    options = parser.parse_args()
    page, results = HERE / "language.md", HERE / "RESULTS.md"
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")
    if options.reference:
        return
    text = results.read_text(encoding="utf-8")
    failed = ""
    if not options.plots:
        if options.device:
            ba.set_default_device("cuda:0" if options.device == "cuda" else options.device)
        made, failed = section(options.points)
        text = replaced(text, ba.get_default_device().kind, made)
        results.write_text(text, encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        os.environ["MPLBACKEND"] = "agg"
        results.write_text(illustrated(text), encoding="utf-8")
    if failed:
        sys.exit(f"failed:{failed}")


if __name__ == "__main__":
    main()
