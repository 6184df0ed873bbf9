"""The table of docs/array-api.md: what each function of the Array API standard does on each device.

    python -m array_api_tests.table          # writes it into the document

Nothing in it is written by hand: every function is called, on the CPU and on a GPU (one that is not there will do), and
`profile()` tells what ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import blockarray as xp
from array_api_tests.calls import I8, F, calls, functions
from array_api_tests.standard import ATTRIBUTES, CONSTANTS
from blockarray.runtime.config import config
from blockarray.runtime.device import set_default_device
from tests import fake_gpu

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "array-api.md"
BEGIN, END = "<!-- written by: python -m array_api_tests.table -->\n", "<!-- end -->\n"

TITLES = {
    "creation": "Creation", "types": "Data types", "elementwise": "Elementwise", "indexing": "Indexing",
    "algebra": "Linear algebra", "manipulation": "Manipulation", "searching": "Searching", "sets": "Sets",
    "sorting": "Sorting", "statistics": "Statistics", "utility": "Utility", "linalg": "`linalg`", "fft": "`fft`",
    "info": "`__array_namespace_info__()`", "methods": "Methods and operators",
}  # fmt: skip
DEVICES = {"CPU": "cpu", "GPU": "cuda:0"}
#: States, in the order in which a function that does several things names them.
ORDER = ("kernel", "routine", "cuSOLVER", "cuFFT", "LAPACK", "pocketfft", "NumPy", "host")


@contextmanager
def on(device: str) -> Iterator[None]:
    """Put new arrays on a device; what is compiled for the CPU is interpreted, and so are a GPU's kernels."""
    with fake_gpu.installed(), patch.object(config, "tiny", 0), patch.object(config, "interpret", device == "cpu"):
        set_default_device(device)
        yield


def arrays(x: Any) -> list[Any]:
    """The Arrays in a result."""
    if isinstance(x, tuple | list):
        return [a for part in x for a in arrays(part)]
    return [x] if isinstance(x, xp.Array) else []


def ran(kind: str, name: str, device: str) -> list[str]:
    """What a launch says about a function's state."""
    if kind != "library call":
        return [kind]
    library = {"linalg": "LAPACK", "fft": "pocketfft"}.get(name.split(".")[0], "NumPy")
    return [library] if device == "cpu" else ["host"]


def state(call: Any, operands: tuple[np.ndarray, ...], device: str) -> list[str]:
    """What runs when a function is called and its result is asked for."""
    # Made by kernels: of small arrays that the host made, it knows the elements.
    given = [xp.where(x == x, x, x) for x in map(xp.asarray, operands)]
    xp.evaluate(given)
    with xp.profile() as called:
        result = call(xp, *given)
    with xp.profile() as asked:
        xp.evaluate(arrays(result))
    launches = [*called.kernels, *asked.kernels]
    found = [word for k in launches for word in ran(k.kind, k.name, device)]
    if found:
        return [*found, *(["at once"] if called.kernels else [])]
    made = any(x.size for x in arrays(result))
    if not given:
        return ["made on the host"] if made else []
    return ["copy"] if called.copies or asked.copies else ["view"] if made else []


def described(some: list[tuple[Any, ...]], device: str) -> str:
    """The states of a function's calls, in words."""
    found: set[str] = set()
    for call, *operands in some:
        words = state(call, tuple(operands), device)
        if "host" in words and any(x.dtype.kind == "c" for x in operands):
            words = ["host for complex elements"]
        found.update(words)
    words = [w for w in ORDER if w in found] + sorted(found - {*ORDER, "at once"})
    return " + ".join(words) + (", at once" if "at once" in found else "") or "—"


def entries() -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    """By title: calls of everything the standard has, by what the table calls it."""
    found = {title: {f"`{n}`": calls(part, n) for n in functions(part)} for part, title in TITLES.items()}
    found["Attributes"] = {f"`{n}`": [(lambda m, x, n=n: getattr(x, n), F)] for n in ATTRIBUTES}
    dtypes = xp.__array_namespace_info__().dtypes()
    found["Dtypes"] = {f"`{n}`": [(lambda m, x: m.where(x == 0, x, x), I8.astype(d))] for n, d in dtypes.items()}
    return found


def table() -> str:
    """The tables, as they stand in the document."""
    columns: dict[str, dict[str, dict[str, str]]] = {}
    for title, device in DEVICES.items():
        with on(device):
            columns[title] = {t: {n: described(c, device) for n, c in rows.items()} for t, rows in entries().items()}
    lines = []
    for title, rows in columns["CPU"].items():
        lines += [f"### {title}", "", f"| | {' | '.join(DEVICES)} |", "| --- " * (1 + len(DEVICES)) + "|"]
        lines += [f"| {name} | {' | '.join(columns[d][title][name] for d in DEVICES)} |" for name in rows]
        lines.append("")
    constants = ", ".join(f"`{name}` = {getattr(xp, name)}" for name in CONSTANTS)
    return "\n".join([*lines, "### Constants", "", constants, "", ""])


def written() -> tuple[str, str, str]:
    """The document: before the tables, the tables, and after them."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside, after


if __name__ == "__main__":
    before, _, after = written()
    DOCUMENT.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
