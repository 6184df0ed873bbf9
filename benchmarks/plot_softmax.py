"""Draws bandwidth over row length of the softmax rows of a GPU run.

python benchmarks/run.py --device cuda --rows "softmax 2^27" --save FILE.json
python benchmarks/plot_softmax.py FILE.json [docs/softmax.svg]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import report
from matplotlib import pyplot as plt
from workloads import Row, rows

NAMES = {"blockarray": "blockarray", "torch ops": "torch.softmax", "torch.compile": "torch.compile"}
STYLES = {
    "blockarray": ("black", "-", 2.4), "torch ops": ("tab:red", "-", 1.3), "torch.compile": ("tab:orange", "--", 1.3),
    "Triton": ("tab:blue", "-.", 1.3), "JAX": ("tab:green", ":", 1.6), "CuPy": ("tab:purple", ":", 1.0),
}  # fmt: skip


def bandwidths(section: report.Section, selected: list[Row], peer: str) -> list[tuple[int, float]]:
    """Row lengths, and 1e9 bytes read and written a second."""
    found = []
    for row in selected:
        cell = section.cells[row.name]["fresh"].get(peer)
        if cell is not None and cell.seconds and not cell.note:
            found.append((row.shapes[0][1], row.nbytes / cell.seconds / 1e9))
    return found


def main() -> None:
    source = Path(sys.argv[1])
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/softmax.svg")
    section = next(section for section in report.load(source, rows) if section.device == "cuda")
    mpl.rcParams["svg.hashsalt"] = "softmax"
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for axis, (dtype, title) in zip(axes, (("float32", "float32"), ("bfloat16", "bfloat16"))):
        selected = [row for row in section.rows if row.name.startswith("softmax 2^27") and row.dtype == dtype]
        for peer, (color, style, width) in STYLES.items():
            if points := bandwidths(section, selected, peer):
                label = NAMES.get(peer, peer)
                axis.plot(*zip(*points), style, color=color, linewidth=width, marker="o", markersize=3, label=label)
        axis.axhline(section.limits["copy"] / 1e9, color="gray", linewidth=0.8)
        axis.annotate("copy", (128, section.limits["copy"] / 1e9), color="gray", va="bottom")
        axis.set(xlabel="row length", title=f"softmax of 2^27 elements, {title}", ylim=(0, None))
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("GB/s read and written")
    axes[1].legend(loc="lower left", fontsize="small")
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
