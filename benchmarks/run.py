"""Side-by-side benchmarks in one run: `python benchmarks/run.py [--threads 1,2] [--only softmax,sum] [--out FILE]`.

Every peer lives in a process of its own with the same number of threads, pinned to the same cores.  The processes are
timed in turns (A B C A B C ...), so that a disturbance of the machine hits all of them; a figure is the median over the
rounds.  Peers that are not installed are left out and named.  `--save FILE.json --append` adds rows to those of earlier
runs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import report
from host_cost import measure as host_costs
from peers import PEERS
from report import Cell, Section
from worker import SHORT
from workloads import ATTENTION, PRODUCTS, Pools, Row, rows

HERE = Path(__file__).resolve().parent
#: Rounds of a product on a GPU, whose clock follows the load.
PRODUCT_ROUNDS = 20
OURS = ("NumPy", "blockarray")  # run by this interpreter; the others by --peer-python
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS", "BLOCKARRAY_NUM_THREADS",
)  # fmt: skip


def cores(count: int) -> set[int]:
    """CPUs of `count` different cores, as far as there are so many."""
    allowed = sorted(os.sched_getaffinity(0))
    first: dict[str, int] = {}
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(siblings.read_text() if siblings.exists() else str(cpu), cpu)
    return set((list(first.values()) + [c for c in allowed if c not in first.values()])[:count])


def environment(threads: int) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    if threads:
        env |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    return env | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def spawn(command: list[str], threads: int, **options: Any) -> subprocess.Popen[str]:
    """A process whose threads, however it counts them, share the same cores as every other peer's."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores(threads) if threads else before)
    try:
        return subprocess.Popen(command, text=True, env=environment(threads), **options)
    finally:
        os.sched_setaffinity(0, before)


class Worker:
    """A peer's process; see `worker.py` for what it is asked."""

    def __init__(self, name: str, python: str, device: str, threads: int) -> None:
        command = [python, str(HERE / "worker.py"), name, device, str(threads)]
        self.name = name
        self.process = spawn(
            command, threads, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1
        )
        self.hello: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": f"the process ended with status {self.process.wait()}"}

    def ask(self, *command: Any) -> dict[str, Any]:
        self.tell(*command)
        return self.read()

    def tell(self, *command: Any) -> None:
        """Ask, and leave the answer for `read`."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command) + "\n")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def prepare(row: Row, workers: list[Worker], at_once: bool) -> dict[str, dict[str, Any]]:
    """What the peers say when they have made a row's inputs and compiled it."""
    if not at_once:
        return {worker.name: worker.ask("prepare", row.name) for worker in workers}
    for worker in workers:
        worker.tell("prepare", row.name)
    return {worker.name: worker.read() for worker in workers}


def in_turns(calls: list[tuple[str, Worker]], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of each round by kind and peer, those of what fails left out."""
    times: dict[tuple[str, str], list[float]] = {(kind, worker.name): [] for kind, worker in calls}
    for _ in range(rounds):
        for kind, worker in calls:
            if (what := (kind, worker.name)) in times:
                if "seconds" in (reply := worker.ask("burst", kind)):
                    times[what].append(reply["seconds"])
                else:
                    del times[what]
    return times


def time_row(
    row: Row, workers: list[Worker], rounds: int, device: str
) -> tuple[dict[str, dict[str, Cell]], dict[str, str]]:
    """{"fresh": {peer: cell}, "reused": ..., "first": ...} of a row, and how peers say that they compute it."""
    began = time.perf_counter()
    cells: dict[str, dict[str, Cell]] = {"fresh": {}, "reused": {}, "bare": {}, "first": {}, "host": {}}
    reference: np.ndarray | None = None
    workers = [worker for worker in workers if PEERS[worker.name].supports(row)]
    replies = prepare(row, workers, device == "cuda")
    prepared = time.perf_counter()
    for name, reply in replies.items():
        if "error" in reply:
            cells["fresh"][name] = Cell(note=reply["error"])
        elif reply["sample"] is not None:
            cells["first"][name] = Cell(reply["first"])
            sample = np.array(reply["sample"])
            reference = sample if reference is None else reference
            if not np.allclose(sample, reference, *tolerances(row, reference)):
                cells["fresh"][name] = Cell(note=f"another result than {next(iter(cells['first']))}'s")
    if row.function in PRODUCTS and device == "cuda":
        rounds = max(rounds, PRODUCT_ROUNDS)
    # A product with something behind it, and the product alone, in the same rounds.
    for kinds in (("fresh", "bare"), ("reused",), ("host",)):
        host = kinds == ("host",)
        if host and not (device == "cuda" and any(c.seconds and c.seconds < SHORT for c in cells["fresh"].values())):
            continue  # Only where the device is quick the host may be what one waits for.
        able = {
            w.name: ["host"] if host else replies[w.name].get("kinds", ()) for w in workers if w.name in cells["first"]
        }
        calls = [(kind, w) for w in workers for kind in kinds if kind in able.get(w.name, ())]
        times = in_turns(calls, min(rounds, 5) if host else rounds)
        for (kind, name), seconds in times.items():
            if len(seconds) > 1:
                low, _, high = quantiles(seconds, n=4, method="inclusive")
                note = cells[kind][name].note if name in cells[kind] else ""
                cells[kind][name] = Cell(median(seconds), (high - low) / 2, note, seconds)
    for worker in workers:
        worker.ask("clear")
    slow = [f"{name} {cell.seconds:.0f}" for name, cell in cells["first"].items() if (cell.seconds or 0) > 2]
    of = f" ({', '.join(slow)})" if slow else ""
    print(f"{time.perf_counter() - began:5.1f} s, {prepared - began:.1f} of it to prepare{of}: ", end="")
    return cells, {name: plan for name, reply in replies.items() if (plan := reply.get("plan"))}


def tolerances(row: Row, reference: np.ndarray) -> tuple[float, float]:
    """How far results may be from each other: of their size, and of the mean size."""
    if row.function in ATTENTION:
        # Libraries round the scores, or what comes of them, at other places.
        return 0.1, 0.1 * abs(reference).mean()
    tolerance = {"float64": 1e-9, "bfloat16": 2e-2, "float16": 4e-3, "float8_e4m3fn": 5e-2}.get(row.dtype, 2e-3)
    return tolerance, tolerance * max(1, abs(reference).mean())


def limits(args: argparse.Namespace, threads: int) -> dict[str, float]:
    """What `limits.py` measures, on the peers' cores."""
    process = spawn(
        [sys.executable, str(HERE / "limits.py"), args.device, str(threads)], threads, stdout=subprocess.PIPE
    )
    return json.loads(process.communicate()[0])


def run_threads(args: argparse.Namespace, threads: int, selected: list[Row]) -> Section:
    began = time.perf_counter()
    wanted = args.peers.split(",") if args.peers else [name for name, peer in PEERS.items() if not peer.slow]
    wanted += args.and_peers.split(",")
    names = [
        name
        for name, peer in PEERS.items()
        if args.device in peer.devices and name in wanted and any(peer.supports(row) for row in selected)
    ]
    selected = selected.copy()
    section = Section(args.device, threads, rows=selected)
    workers = [
        Worker(name, sys.executable if name in OURS else args.peer_python, args.device, threads) for name in names
    ]
    for worker in workers.copy():
        worker.hello, name = worker.read(), worker.name
        if "error" in worker.hello:
            section.absent[name] = worker.hello["error"]
            workers.remove(worker)
            worker.close()
        else:
            section.versions[name] = worker.hello["versions"]
    try:
        before = limits(args, threads)
        for row in selected.copy():
            if time.perf_counter() - began > args.limit:
                print(f"left out, for want of time: {row.name}")
                selected.remove(row)
                continue
            section.cells[row.name], plans = time_row(row, workers, args.rounds, args.device)
            section.plans.update({f"{row.name}, {name}": plan for name, plan in plans.items()})
            print(report.progress(section, row), flush=True)
        after = limits(args, threads)
        section.limits = {name: max(before[name], after[name]) for name in before}
    finally:
        for worker in workers:
            worker.close()
    return section


def machine(device: str) -> str:
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs available, {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, a table each (default: 1,2)")
    parser.add_argument(
        "--only", "--rows", default="", dest="rows", help="parts of row names, separated by commas (default: all)"
    )
    parser.add_argument("--peers", default="", help=f"of {', '.join(PEERS)} (default: the quick ones)")
    parser.add_argument("--and-peers", default="", help="others beside the default ones, such as max-autotune")
    parser.add_argument("--peer-python", default=sys.executable, help="the interpreter that has the other libraries")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no row is begun")
    parser.add_argument("--no-host-cost", action="store_true", help="leave out recording, launching and compiling")
    parser.add_argument("--out", type=Path, help="write the tables there as Markdown")
    parser.add_argument("--save", type=Path, help="write all figures there as JSON")
    parser.add_argument("--append", action="store_true", help="keep the rows of earlier runs that --save wrote")
    args = parser.parse_args()
    wanted = [part for part in args.rows.split(",") if part]
    selected = [row for row in rows(args.device) if not wanted or any(part in row.name for part in wanted)]
    # Beside a GPU, processes are not pinned and use as many threads as they like.
    counts = [0] if args.device == "cuda" else [int(n) for n in args.threads.split(",")]
    host_machine = machine(args.device)
    with tempfile.TemporaryDirectory(prefix="blockarray-bench-") as folder:
        # Empty caches of compiled code, so that first calls are first calls.
        os.environ["BLOCKARRAY_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        if args.device == "cuda":
            os.environ["BLOCKARRAY_BENCH_INPUTS"] = folder
            Pools(folder).fill(selected)
        sections = [run_threads(args, n, selected) for n in counts]
    if args.save:
        if args.append and args.save.exists():
            sections = report.merged(report.load(args.save, rows), sections, rows)
        report.save(args.save, sections)
    host = [] if args.no_host_cost else host_costs()
    text = report.markdown(host_machine, datetime.date.today(), sections, host)
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
