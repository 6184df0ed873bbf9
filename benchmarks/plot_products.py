"""Draws TFLOP/s over size of products of square matrices: ours, cuBLAS's and a kernel in Triton.

python benchmarks/plot_products.py measure FILE.json [--step 256] [--rounds 5]     on a GPU
python benchmarks/plot_products.py draw FILE.json [docs/products.svg]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

LARGEST = 16384
#: Sizes whose products take so many rounds each, up to the size; larger ones take half of them.
SMALL = 8192
STYLES = {
    "blockarray": ("black", "-", 2.4), "cuBLAS": ("tab:red", "-", 1.3), "Triton": ("tab:blue", "-.", 1.3),
}  # fmt: skip
DTYPES = ("bfloat16", "float16")


def measure(target: Path, step: int, rounds: int, dtypes: list[str]) -> None:
    """Time the products, in turns, and write the seconds of each round."""
    import gpu
    import torch  # pyright: ignore[reportMissingImports]
    import triton_matmul

    import blockarray as bx
    from blockarray.runtime.cuda import streams

    device: Any = bx.devices()[1]
    ours, theirs = streams.stream(device), torch.cuda.current_stream().cuda_stream
    on_torch = lambda run: gpu.seconds(run, theirs, 3)
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for dtype in dtypes:
        pools = [torch.randn(LARGEST**2, device="cuda").to(getattr(torch, dtype)) for _ in range(2)]
        times = found[dtype] = {name: {} for name in STYLES}
        for n in range(step, LARGEST + 1, step):
            a, b = (pool[: n * n].view(n, n) for pool in pools)
            x, y = (bx.from_dlpack(t) for t in (a, b))
            torch.cuda.synchronize()
            calls: dict[str, tuple[Callable[[], Any], int]] = {
                "blockarray": (lambda x=x, y=y: bx.evaluate(x @ y), ours),
                "cuBLAS": (lambda a=a, b=b: torch.matmul(a, b), theirs),
            }
            try:
                tile = triton_matmul.fastest(a, b, on_torch)
                calls["Triton"] = (lambda a=a, b=b, tile=tile: triton_matmul.matmul(a, b, tile), theirs)
            except Exception as error:  # the picture then lacks its line
                print(f"Triton, {n}: {type(error).__name__}: {error}")
            for name in calls:
                times[name][n] = []
            for _ in range(rounds if n <= SMALL else max(1, rounds // 2)):
                for name, (run, stream) in calls.items():
                    times[name][n].append(gpu.seconds(run, stream))
            rates = [f"{name} {2 * n**3 / median(times[name][n]) / 1e12:.0f}" for name in calls]
            print(f"{dtype} {n}: {', '.join(rates)}", flush=True)
    target.write_text(json.dumps({"device": torch.cuda.get_device_name(), "seconds": found}, indent=1))


def draw(source: Path, target: Path) -> None:
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    found = json.loads(source.read_text())
    mpl.rcParams["svg.hashsalt"] = "products"
    count = len(found["seconds"])
    figure, axes = plt.subplots(
        1, count, figsize=(max(7.5, 5.5 * count), 4.2), sharey=True, layout="constrained", squeeze=False
    )
    for axis, (dtype, times) in zip(axes[0], found["seconds"].items()):
        for name, (color, style, width) in STYLES.items():
            points = [(int(n), 2 * int(n) ** 3 / median(rounds) / 1e12) for n, rounds in times[name].items() if rounds]
            if points:
                axis.plot(*zip(*points), style, color=color, linewidth=width, label=name)
        axis.set(xlabel="rows and columns", title=f"products of {dtype}, {found['device']}", ylim=(0, None))
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("TFLOP/s")
    axes[0][-1].legend(loc="lower right", fontsize="small")
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("file", type=Path)
    parser.add_argument("target", type=Path, nargs="?", default=Path("docs/products.svg"))
    parser.add_argument("--step", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.file, args.step, args.rounds, args.dtypes.split(","))
    else:
        draw(args.file, args.target)


if __name__ == "__main__":
    main()
