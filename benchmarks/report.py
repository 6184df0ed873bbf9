"""The tables of a benchmark run, as Markdown."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass, field

from workloads import Row

OURS = "blockarray"
METHOD = """\
Made by `benchmarks/run.py`: one process for each library, all on the same cores, timed in turns; medians over the
rounds ± half the interquartile range. "Ours vs best" is the fastest peer's time over ours, in bold where we are behind.
`torch ops` calls torch's own function for the whole row where there is one (softmax, layer_norm, gelu). The limit is
the bytes that must move at the bandwidth, or the operations at the peak, measured in the same run; the copy that
measures bandwidth reads the lines it overwrites, so streaming stores can pass 100 %."""


@dataclass(frozen=True)
class Cell:
    """Median seconds and half the interquartile range over the rounds; a note if something went wrong."""

    seconds: float | None = None
    spread: float = 0.0
    note: str = ""


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


def duration(seconds: float, spread: float | None = None) -> str:
    unit, scale = ("us", 1e6) if seconds < 1e-4 else ("ms", 1e3) if seconds < 1 else ("s", 1)

    def digits(x: float) -> str:
        return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"

    around = "" if spread is None else f" ± {digits(spread * scale)}"
    return f"{digits(seconds * scale)}{around} {unit}"


def best_peer(cells: dict[str, Cell]) -> tuple[str, float] | None:
    times = {name: cell.seconds for name, cell in cells.items() if name != OURS and cell.seconds and not cell.note}
    return min(times.items(), key=lambda item: item[1]) if times else None


def ratio(cells: dict[str, Cell]) -> str:
    """How many times faster than the best peer; below 1 is a loss."""
    best, ours = best_peer(cells), cells.get(OURS, Cell()).seconds
    if best is None or not ours:
        return ""
    value = best[1] / ours
    return f"{value:.2f}x" if value >= 1 else f"**{value:.2f}x**"


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
    used = [n for n in section.versions if any(n in section.cells[row.name][kind] for row in section.rows)]
    lines = []
    for row in section.rows:
        cells = section.cells[row.name][kind]
        if not cells or (kind == "reused" and OURS not in cells):
            continue
        best, ours, limit = best_peer(cells), cells.get(OURS, Cell()).seconds, row.limit(section.limits)
        of_limit = f"{limit / ours:.0%}" if limit and ours else ""
        lines.append(
            [row.name, *(show(cells.get(n)) for n in used), best[0] if best else "", ratio(cells)]
            + [duration(limit) if limit else "", of_limit]
        )
    return table(["workload", *used, "best peer", "ours vs best", "limit", "ours, of limit"], lines)


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
    best, even, losses = 0, 0, []
    for row in section.rows:
        cells = section.cells[row.name]["fresh"]
        peer, ours = best_peer(cells), cells.get(OURS, Cell()).seconds
        if peer is None or not ours:
            continue
        value = peer[1] / ours
        if value < 0.95:
            losses.append(f"{row.name} ({value:.2f}x, {peer[0]})")
        elif value <= 1.05:
            even += 1
        else:
            best += 1
    text = f"Against the best peer of each row: ahead on {best}, even (within 5 %) on {even}, behind on {len(losses)}"
    return text + (": " + "; ".join(losses) if losses else "") + "."


def progress(section: Section, row: Row) -> str:
    cells = section.cells[row.name]["fresh"]
    parts = [f"{name} {show(cell)}" for name, cell in cells.items()]
    return f"[{section.threads} thread{'s' * (section.threads > 1)}] {row.name}: {', '.join(parts)}  {ratio(cells)}"


def markdown(machine: str, date: datetime.date, sections: list[Section], host: list[tuple[str, str]]) -> str:
    versions = {name: version for section in sections for name, version in section.versions.items()}
    built = "; ".join(dict.fromkeys(versions.values()))
    out = ["# Benchmarks", f"{machine}; {date}; Python {platform.python_version()}; {built}.", METHOD]
    for section in sections:
        limits = section.limits
        measured = [f"copy {limits['copy'] / 1e9:.1f} GB/s", f"read {limits['read'] / 1e9:.1f} GB/s"]
        measured += [f"{t} {limits[t] / 1e9:.0f} GFLOP/s" for t in ("float32", "float64") if t in limits]
        where = "GPU" if section.device == "cuda" else f"{section.threads} thread{'s' * (section.threads > 1)}"
        out += [f"## {where}", f"Limits: {', '.join(measured)}.", tally(section)]
        out += ["Fresh outputs, as a user gets them:", times_table(section, "fresh")]
        if any(section.cells[row.name]["reused"] for row in section.rows):
            out += ["Into an output made beforehand (`out=`), where a library has a way to say so:"]
            out += [times_table(section, "reused")]
        out += ["First call, compiling included:", first_table(section)]
        if notes(section):
            out.append("\n".join(notes(section)))
    if host:
        out += ["## Host costs of blockarray", table(["cost", "time"], [list(line) for line in host])]
    return "\n\n".join(out) + "\n"
