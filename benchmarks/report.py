"""The tables of a benchmark run, as Markdown."""

from __future__ import annotations

import datetime
import json
import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from workloads import PRODUCTS, Row

OURS = "blockarray"
METHOD = """\
Made by `benchmarks/run.py`: one process for each library, all on the same cores, timed in turns; medians over the
rounds ± half the interquartile range. "Ours vs best" is the fastest peer's time over ours, in bold where we are behind.
`torch ops` calls torch's own function for the whole row where there is one (softmax, layer_norm, gelu). The limit is
the bytes that must move at the bandwidth, or the operations at the peak, measured in the same run; the copy that
measures bandwidth reads the lines it overwrites, so streaming stores can pass 100 %."""

GPU_METHOD = """\
Times are the GPU's: events around a burst of calls that is queued behind a kernel which waits, so that the host's time
does not show (it has a table of its own, where it matters; "10 ops on 1,000 elements" is the host's time). JAX tells
no stream: the clock is the host's, and for rows under 200 us the difference between long and short bursts that wait
for the same signal. Inputs of small rows take turns over four times the L2 cache. Products, of normally distributed
numbers, have 20 rounds, and the median of the ratios within a round. The limit is the bytes at the bandwidth that a
copy, or for reductions and products a kernel that only reads, has in the same run, or the operations at the peak of
NVIDIA's data sheet for the type (a product of float32: a sixth of bfloat16's). Attention's operations are those of its
two products, half as many if it is causal. `cuDNN` and `FlashAttention` are these libraries' kernels behind torch's
scaled_dot_product_attention; `torch ops` calls torch._scaled_mm and torch._int_mm for f8 and int8; `max-autotune` is
torch.compile in that mode, for a few rows."""


@dataclass(frozen=True)
class Cell:
    """Median seconds and half the interquartile range over the rounds; a note if something went wrong."""

    seconds: float | None = None
    spread: float = 0.0
    note: str = ""
    rounds: list[float] = field(default_factory=list)


@dataclass
class Section:
    """All rows on one device with one number of threads."""

    device: str
    threads: int
    rows: list[Row]
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    cells: dict[str, dict[str, dict[str, Cell]]] = field(default_factory=dict)
    #: How rows are computed, by row and peer.
    plans: dict[str, str] = field(default_factory=dict)


def duration(seconds: float, spread: float | None = None) -> str:
    unit, scale = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1)

    def digits(x: float) -> str:
        return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"

    around = "" if spread is None else f" ± {digits(spread * scale)}"
    return f"{digits(seconds * scale)}{around} {unit}"


def best_peer(cells: dict[str, Cell]) -> tuple[str, float] | None:
    times = {name: cell.seconds for name, cell in cells.items() if name != OURS and cell.seconds and not cell.note}
    return min(times.items(), key=lambda item: item[1]) if times else None


def times_faster(row: Row, cells: dict[str, Cell]) -> tuple[float, float] | None:
    """How many times faster than the best peer, and the spread of that where rounds are compared one by one."""
    best, ours = best_peer(cells), cells.get(OURS, Cell())
    if best is None or not ours.seconds:
        return None
    theirs = cells[best[0]].rounds
    if row.function in PRODUCTS and len(theirs) == len(ours.rounds) > 1:
        ratios = [a / b for a, b in zip(theirs, ours.rounds)]
        low, _, high = quantiles(ratios, n=4, method="inclusive")
        return median(ratios), (high - low) / 2
    return best[1] / ours.seconds, 0.0


def ratio(row: Row, cells: dict[str, Cell]) -> str:
    """How many times faster than the best peer; below 1 is a loss."""
    found = times_faster(row, cells)
    if found is None:
        return ""
    value, spread = found
    text = f"{value:.2f}x" if value >= 1 else f"**{value:.2f}x**"
    return f"{text} ± {spread:.2f}" if spread else text


def table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def show(cell: Cell | None, spread: bool = True) -> str:
    if cell is None:
        return ""
    if cell.seconds is None:
        return "failed" if cell.note else ""
    return duration(cell.seconds, cell.spread if spread else None) + (" (!)" if cell.note else "")


def times_table(section: Section, kind: str) -> str:
    used = [n for n in section.versions if any(n in section.cells[row.name].get(kind, {}) for row in section.rows)]
    lines = []
    for row in section.rows:
        cells = section.cells[row.name].get(kind, {})
        if not cells or (kind == "reused" and OURS not in cells):
            continue
        best, ours, limit = best_peer(cells), cells.get(OURS, Cell()).seconds, row.limit(section.limits)
        if kind == "host":
            limit = 0.0
        of_limit = f"{limit / ours:.0%}" if limit and ours else ""
        lines.append(
            [row.name, *(show(cells.get(n)) for n in used), best[0] if best else "", ratio(row, cells)]
            + [duration(limit) if limit else "", of_limit]
        )
    return table(["workload", *used, "best peer", "ours vs best", "limit", "ours, of limit"], lines)


def rates_table(section: Section) -> str:
    """Products as operations a second."""
    selected = [row for row in section.rows if row.function in PRODUCTS and row.flops]
    names = [n for n in section.versions if any(n in section.cells[row.name]["fresh"] for row in selected)]
    lines = []
    for row in selected:
        cells = section.cells[row.name]["fresh"]
        times = [cells[n].seconds if n in cells else None for n in names]
        peak = row.flops / limit if (limit := row.limit(section.limits)) else 0
        rates = [*(row.flops / t if t else 0 for t in times), peak]
        lines.append([row.name, *(f"{rate / 1e12:.{0 if rate >= 1e14 else 1}f}" if rate else "" for rate in rates)])
    return table(["TFLOP/s (TOP/s)", *names, "limit"], lines) if lines else ""


def overheads(section: Section) -> list[str]:
    """What comes behind a product, beside the product alone of the same rounds."""
    out = []
    for row in section.rows:
        found = []
        for name, alone in section.cells[row.name].get("bare", {}).items():
            whole = section.cells[row.name]["fresh"].get(name, Cell()).rounds
            if len(whole) == len(alone.rounds) > 1:
                ratios = [100 * (a / b - 1) for a, b in zip(whole, alone.rounds)]
                low, _, high = quantiles(ratios, n=4, method="inclusive")
                found.append(f"{name} {median(ratios):+.1f} % ± {(high - low) / 2:.1f}")
        if found:
            out.append(f"{row.name}, time over the bare product's: {', '.join(found)}.")
    return out


def first_table(section: Section) -> str:
    names = [n for n in ("numba", "JAX", "torch.compile", OURS) if n in section.versions]
    lines = [
        [row.name, *(show(section.cells[row.name]["first"].get(n), spread=False) for n in names)]
        for row in section.rows
    ]
    return table(["workload", *names], lines)


def notes(section: Section) -> list[str]:
    out = [f"- not installed: {name} ({reason})" for name, reason in section.absent.items()]
    for row in section.rows:
        for name, cell in section.cells[row.name]["fresh"].items():
            if cell.note:
                out.append(f"- {name}, {row.name}: {cell.note}")
    return out


def tally(section: Section) -> str:
    best, even, losses, of_memory = 0, 0, [], []
    for row in section.rows:
        cells = section.cells[row.name]["fresh"]
        peer, found = best_peer(cells), times_faster(row, cells)
        if peer is None or found is None:
            continue
        value = found[0]
        if row.memory_bound:
            of_memory.append(value)
        if value < 0.95:
            losses.append(f"{row.name} ({value:.2f}x, {peer[0]})")
        elif value <= 1.05:
            even += 1
        else:
            best += 1
    text = f"Against the best peer of each row: ahead on {best}, even (within 5 %) on {even}, behind on {len(losses)}"
    text += (": " + "; ".join(losses) if losses else "") + "."
    if of_memory and section.device == "cuda":
        mean = math.exp(sum(map(math.log, of_memory)) / len(of_memory))
        text += f" Geometric mean over the {len(of_memory)} rows that memory bounds: {mean:.2f}x."
    return text


def progress(section: Section, row: Row) -> str:
    cells = section.cells[row.name]["fresh"]
    parts = [f"{name} {show(cell)}" for name, cell in cells.items()]
    lines = [
        f"[{section.threads} thread{'s' * (section.threads > 1)}] {row.name}: {', '.join(parts)}  {ratio(row, cells)}",
        *(f"    {name}: {cell.note}" for name, cell in cells.items() if cell.note),
        *(f"    {line}" for line in overheads(replace(section, rows=[row]))),
    ]
    return "\n".join(lines)


def markdown(machine: str, date: datetime.date, sections: list[Section], host: list[tuple[str, str]]) -> str:
    versions = {name: version for section in sections for name, version in section.versions.items()}
    built = "; ".join(dict.fromkeys(versions.values()))
    out = ["# Benchmarks", f"{machine}; {date}; Python {platform.python_version()}; {built}.", METHOD]
    if any(section.device == "cuda" for section in sections):
        out.append(GPU_METHOD)
    for section in sections:
        limits = section.limits
        measured = [f"copy {limits['copy'] / 1e9:.1f} GB/s", f"read {limits['read'] / 1e9:.1f} GB/s"]
        measured += [f"{t} {rate / 1e9:.0f} GFLOP/s" for t, rate in limits.items() if t not in ("copy", "read")]
        where = "GPU" if section.device == "cuda" else f"{section.threads} thread{'s' * (section.threads > 1)}"
        out += [f"## {where}", f"Limits: {', '.join(measured)}.", tally(section)]
        out += ["Fresh outputs, as a user gets them:", times_table(section, "fresh")]
        if section.device == "cuda" and (rates := rates_table(section)):
            out += ["Products:", rates]
        out += overheads(section)
        if any(section.cells[row.name]["reused"] for row in section.rows):
            out += ["Into an output made beforehand (`out=`), where a library has a way to say so:"]
            out += [times_table(section, "reused")]
        if any(section.cells[row.name].get("host") for row in section.rows):
            out += ["The host's time for a call, where the device is quick:", times_table(section, "host")]
        out += ["First call, compiling included:", first_table(section)]
        out += [f"{what}:\n\n```text\n{plan}\n```" for what, plan in section.plans.items()]
        if notes(section):
            out.append("\n".join(notes(section)))
    if host:
        out += ["## Host costs of blockarray", table(["cost", "time"], [list(line) for line in host])]
    return "\n\n".join(out) + "\n"


def save(path: Path, sections: list[Section]) -> None:
    """Write the figures as JSON."""
    found = [asdict(section) | {"rows": [row.name for row in section.rows]} for section in sections]
    path.write_text(json.dumps(found, indent=1))


def load(path: Path, rows: Callable[[str], list[Row]]) -> list[Section]:
    """Sections that `save` wrote; `rows` gives the rows of a device."""
    sections = []
    for found in json.loads(path.read_text()):
        named = {row.name: row for row in rows(found["device"])}
        kept = [named[name] for name in found.pop("rows") if name in named]
        cells = found.pop("cells")
        section = Section(**found, rows=kept)
        for row in kept:
            section.cells[row.name] = {
                kind: {name: Cell(**cell) for name, cell in of_kind.items()}
                for kind, of_kind in cells[row.name].items()
            }
        sections.append(section)
    return sections


def merged(before: list[Section], after: list[Section], rows: Callable[[str], list[Row]]) -> list[Section]:
    """Sections of two runs, rows of the later one in place of the earlier one's, in the order of `rows`."""
    places: dict[Any, Section] = {(section.device, section.threads): section for section in before}
    for section in after:
        old = places.get((section.device, section.threads))
        if old is not None:
            section.cells = old.cells | section.cells
            section.rows = [row for row in rows(section.device) if row.name in section.cells]
            section.versions = old.versions | section.versions
            section.plans = old.plans | section.plans
            section.limits = {name: max(value, old.limits.get(name, 0)) for name, value in section.limits.items()}
        places[section.device, section.threads] = section
    return list(places.values())
