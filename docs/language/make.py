"""Run the tutorials: what they measure goes to RESULTS.md and plots/.  Bring the reference in language.md up to date.

    python docs/language/make.py [--device cpu|cuda] [--points N] [--reference]

--points N measures the last N sizes of each plot only; --reference leaves the tutorials out.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import blockarray as ba
import blockarray.language as tl

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- made by make.py -->\n", "<!-- end -->\n"
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
_HELPERS = ("floats", "from_table", "elementwise", "convert", "tensor")


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


def device_name(device: str | None) -> str:
    place = ba.Device("cuda:0" if device == "cuda" else device) if device else ba.get_default_device()
    if place != "cpu":
        return place.name  # pyright: ignore[reportAttributeAccessIssue]
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return f"{found[1] if found else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    page = HERE / "language.md"
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")
    if options.reference:
        return
    plots = HERE / "plots"
    lines = [
        "# What the tutorials measure", "",
        f"On {device_name(options.device)}, {datetime.date.today()}, by `make docs`.", "",
    ]  # fmt: skip
    for path in sorted(HERE.glob("[0-9]*.py")):
        print(f"{path.name} ...", flush=True)
        command = [sys.executable, str(path), "--save", str(plots), "--points", str(options.points)]
        done = subprocess.run(
            [*command, *(["--device", options.device] if options.device else [])],
            env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{path.name} failed:\n{done.stdout}{done.stderr}")
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix('"""# ')
        lines += [f"## [{title}]({path.name})", ""]
        for name, table in re.findall(r"^(\S+):\n((?:(?!\S+:$).*\S.*\n)+)", done.stdout, re.MULTILINE):
            lines += ["```text", table.rstrip(), "```", ""]
            if (plots / f"{name}.svg").exists():
                lines += [f"![{name}](plots/{name}.svg)", ""]
            (plots / f"{name}.csv").unlink(missing_ok=True)
    (HERE / "RESULTS.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
