"""Triton's own tutorials and language tests, run with blockarray in Triton's place.

    python tests/triton_ports.py CHECKOUT tutorials [01 02 ...]
    python tests/triton_ports.py CHECKOUT tests [test_core ...] [-k EXPRESSION]

CHECKOUT is a copy of github.com/triton-lang/triton (about version 3.6); nothing of it is part of this project.  Each
file runs in a process of its own, which sees a module `triton` that is made here, of blockarray's names.  Where Triton
is installed, the tutorials run with it, too.  Options:

    --device cpu|cuda   where the tests' tensors are (default: a GPU if there is one)
    --jobs N            processes at a time; the tests are shared among so many
    --seconds S         for each tutorial, or for all tests; what is not done by then counts as not run
    --configs K         the autotuner's first K configurations only
    --points P          the last P points of each plot (default 1), or the first -P
    --sample N          about N tests of each function only
    --first TEXT        begin with tests that have this in their names: the slow ones
    --reasons N         the most frequent reasons of failures; --slow N: the slowest functions
    --no-peer           leave Triton out

The tables say what became of each file, and what its plots would show: the last points of each line.  Statements of
tests about the text of code (PTX, which a CPU shows as a Hopper would have it, or Triton's representations) and about
the words of errors do not end a test: where only such ones do not hold, it "passed but for" text or words.  A failure
is "failed" if a result is wrong, or if something is missing, and of Triton's insides where a test is about its private
modules, or about what it refuses and we do not.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import faulthandler
import fcntl
import importlib
import importlib.util
import io
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from triton_stand_in import differences, install, softened, states

TUTORIALS = ("01", "02", "03", "04", "05", "06", "08", "09")
TESTS = (
    "test_subprocess", "test_matmul", "test_tensor_descriptor", "test_warp_specialization", "test_pipeliner",
    "test_conversions", "test_block_pointer", "test_standard", "test_random", "test_tuple", "test_annotations",
    "test_decorator", "test_compile_errors", "test_compile_only", "test_frontend", "test_libdevice", "test_line_info",
    "test_mxfp", "test_reproducer", "runtime/test_autotuner", "./test_debug", "../regression/test_cast_matmul",
    "../regression/test_functional_regressions", "test_core",
)  # fmt: skip
#: How a child's result is marked in what it prints.
_MARK = "@@result "
#: What makes tutorials shorter.  The last one measures itself, by a profiler.
_SHORTER = {
    "06": [
        ("x_vals=[2**i for i in range(10, 15)]", "x_vals=[2**i for i in range(10, 13)]"),
        ('(["triton-fp8"] if TORCH_HAS_FP8 else [])', "[]"),
    ],
    "09": [
        ("def bench_fn(label, reps, warmup_reps, fn, *args):", "def bench_fn(label, _, __, fn, *args):\n"
         "    return measured(label, lambda: fn(*args))"),
    ],
}  # fmt: skip
#: Fewer configurations of autotuners, the best ones among them.
_FEWER = {
    "06": [
        ("for BM in [64, 128]", "for BM in [128]"), ("for BN in [32, 64, 128]", "for BN in [64, 128]"),
        ("for s in NUM_STAGES_OPTIONS", "for s in [3]"),
    ],
    "08": [("for BK in [64, 128]", "for BK in [64]"), ("for s in ([3, 4])", "for s in [3]")],
    "09": [
        ("for BK in [64, 128]", "for BK in [64]"), ("for s in ([2, 3, 4])", "for s in [3]"),
        ("for w in [4, 8]", "for w in [8]"), ("for SUBTILE in [True, False]", "for SUBTILE in [False]"),
    ],
}  # fmt: skip
#: On the CPU: a comparison with torch's sums of float16, which are farther from the truth than the kernel's; and
#: attention for a GPU's many programs.
_ON_CPU = {
    "05": [("test_layer_norm(1151, 8192, torch.float16)", "test_layer_norm(1151, 8192, torch.float32)")],
    "06": [("BATCH, N_HEADS = 4, 32", "BATCH, N_HEADS = 1, 2")],
}


# -- one tutorial -----------------------------------------------------------------------------------------------------
class Results(dict[str, Any]):
    """Results that are kept in a file as they come, in case that there is no end."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self.record = record

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self.record.write_text(json.dumps(self))


def quick(testing: ModuleType, points: int, results: dict[str, Any]) -> None:
    """Have plots measure their last points only, and keep the numbers."""

    class Report:
        def __init__(self, fn: Callable[..., Any], benchmarks: Any) -> None:
            self.fn = fn
            self.benchmarks = benchmarks if isinstance(benchmarks, list) else [benchmarks]

        def run(self, *_: Any, **kwargs: Any) -> None:
            for b in self.benchmarks:
                for x in list(b.x_vals)[-points:] if points > 0 else list(b.x_vals)[:-points]:
                    at = list(x) if isinstance(x, tuple | list) else [x] * len(b.x_names)
                    for line in b.line_vals:
                        try:
                            found = self.fn(**dict(zip(b.x_names, at)), **b.args, **{b.line_arg: line})
                            value: Any = found[0] if isinstance(found, tuple | list) else found
                        except Exception as error:
                            if "triton" in str(line):
                                raise
                            value = f"{type(error).__name__}"
                        results[f"{b.plot_name} {at[0]} {line}"] = value

    testing.__dict__["perf_report"] = lambda benchmarks: lambda fn: Report(fn, benchmarks)


def few_configs(triton: Any, count: int) -> None:
    whole = triton.autotune
    triton.autotune = lambda configs, *args, **kwargs: whole(configs[:count], *args, **kwargs)


def alone(testing: Any, work: Path) -> None:
    """Have one process at a time measure, while others compile."""
    measure = testing.do_bench

    def do_bench(fn: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        fn()
        with (work / "measuring").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return measure(fn, *args, **kwargs)

    testing.do_bench = do_bench


def run_tutorial(path: Path, triton: Any, options: argparse.Namespace) -> dict[str, Any]:
    work = Path(options.work) / ("triton" if options.peer else "ours")
    work.mkdir(exist_ok=True)
    results = Results(work / f"{path.stem}.json")
    alone(triton.testing, Path(options.work))
    quick(triton.testing, options.points, results)
    if options.configs:
        few_configs(triton, options.configs)
    text, name = path.read_text(), path.name[:2]
    for changes in (_SHORTER, _FEWER if options.configs else {}, _ON_CPU if options.device == "cpu" else {}):
        for old, new in changes.get(name, ()):
            text = text.replace(old, new)
    # A file: kernels' sources are read.
    copy = work / path.name
    copy.write_text(text)
    os.chdir(work)
    sys.argv = [str(copy), *(["-K", "4096"] if name == "09" else [])]

    def measured(label: str, call: Callable[[], Any]) -> None:
        results[f"{label}, ms"] = triton.testing.do_bench(call)

    importlib.import_module("torch").manual_seed(0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run_name = "tutorial" if name == "06" else "__main__"
        space = runpy.run_path(str(copy), {"measured": measured}, run_name)
        if name == "06":
            for mode, provider in (("bwd", "triton-fp16"), ("fwd", "triton-fp8")):  # others are skipped
                try:
                    space["test_op"](1, 2, 1024, 64, True, False, mode, provider)
                    results[f"test_op {mode} {provider}"] = "passed"
                except BaseException as error:  # pytest's outcomes are no Exceptions
                    results[f"test_op {mode} {provider}"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            space["bench_flash_attention"].run()
    if options.device != "cpu":
        importlib.import_module("torch").cuda.synchronize()
    print(said.getvalue())
    results["said"] = [line.rpartition("\r")[2].strip() for line in said.getvalue().splitlines()]
    return results


# -- tests ------------------------------------------------------------------------------------------------------------
class Recorder:
    """A plugin of pytest: runs tests for so many seconds, and counts what became of them.

    All processes collect the same tests; who is free takes the next ones.
    """

    def __init__(self, options: argparse.Namespace, record: Path) -> None:
        self.sample, self.until, self.checkout = options.sample, options.until, options.checkout
        self.first = options.first
        self.device, self.on_cpu = options.device, options.device == "cpu"
        #: Where the counts are kept, in case that a test never ends, and how many tests were taken.
        self.record, self.taken = record, Path(options.work) / "taken"
        self.counts: dict[str, Counter[str]] = {}
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.totals: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.sample:
            functions: dict[tuple[Path, str], list[Any]] = {}
            for item in items:
                functions.setdefault((item.path, item.originalname), []).append(item)
            items[:] = [x for group in functions.values() for x in group[:: -(-len(group) // self.sample)]]
        items.sort(key=lambda item: not (self.first and self.first in item.name))
        self.totals.update(item.path.stem for item in items)
        for module in {item.module for item in items}:
            if module.__name__ == "test_conversions" and self.on_cpu:
                module.range = lambda count: range(0, count, 37)  # 2 ** 32 numbers are for GPUs
            if module.__name__ == "test_subprocess":
                module.subprocess = SimpleNamespace(run=self.run_script)

    def run_script(self, words: list[str], **kwargs: Any) -> Any:
        """Run a script of the tests with our module in Triton's place."""
        python, script, *arguments = words
        ours = [python, __file__, str(self.checkout), "script", *arguments, "--child", script, "--device", self.device]
        return subprocess.run(ours, **kwargs)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            reason = f"not collected: {str(report.longrepr).strip().splitlines()[-1][:160]}"
            self.counts.setdefault(Path(report.nodeid).stem, Counter())["not collected"] += 1
            self.totals[Path(report.nodeid).stem] += 1
            self.reasons[reason] += 1
            self.examples[reason] = report.nodeid

    def pytest_runtestloop(self, session: Any) -> bool:
        while time.time() < self.until:
            first = self._take(3)
            if first >= len(session.items):
                break
            for item in session.items[first : first + 3]:
                self.record.write_text(json.dumps({**self.results(), "running": f"{item.path.stem}::{item.name}"}))
                started = time.monotonic()
                differences.clear()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                spent = time.monotonic() - started
                self.seconds[item.originalname] = self.seconds.get(item.originalname, 0.0) + spent
        return True

    def _take(self, count: int) -> int:
        with self.taken.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            first = file.seek(0, os.SEEK_END)
            file.write("." * count)
        return first

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            if outcome == "passed" and differences:
                outcome = f"passed but for {' and '.join(sorted(differences))}"
            file = report.nodeid.partition("::")[0]
            if report.failed:
                text = str(report.longrepr)
                lines = [line[4:] for line in text.splitlines() if line.startswith("E   ")] or text.splitlines()[-1:]
                outcome = _blamed(report, lines)
                reason = f"{outcome}: {re.sub(r'0x[0-9a-f]+|[0-9]+', '#', lines[0].strip())[:160]}"
                self.reasons[reason] += 1
                self.examples.setdefault(reason, report.nodeid.rpartition("::")[2])
            self.counts.setdefault(Path(file).stem, Counter())[outcome] += 1

    def results(self) -> dict[str, Any]:
        return {
            "counts": self.counts, "totals": self.totals, "reasons": self.reasons, "examples": self.examples,
            "seconds": self.seconds,
        }  # fmt: skip


#: Triton's private modules; its own names of types, its architectures, and what it refuses and we do not.
_PRIVATE = re.compile(
    r"triton\.(_C|_utils|_filecheck|compiler|backends|knobs|runtime|experimental|tools)\b|fresh_knobs|TRITON_"
    r"|\b(ttir|ttgir|llir|amdgcn|mlir|TTGIR|_semantic|__traceback__)\b"
)
_OWN = re.compile(
    r"test_(dtype_codegen|call\[1-noinline|pointer_arguments\[cpu|poison_return|override_(arch|ttir|ttgir|ptx)"
    r"|num_ctas_pre_sm90|tensor_descriptor_reduce\[.*float32-m|err_in_unary_op|triton_reproducer|line_info_ir_source"
    r"|aggregate|retrieve_item|jit_(method|getitem)|late_bound_class|return_in_while|constexpr_annotated_global|hooks"
    r"|print\[(device_print_scalar|no_arg_print|print_no_arg|static_print))"
)


def _blamed(report: Any, errors: list[str]) -> str:
    """What a failure is about: a wrong result ("failed"), or Triton's insides."""
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
    file = report.nodeid.partition("::")[0].rpartition("/")[2]
    own = [e for e in entries if getattr(e, "reprfileloc", None) and e.reprfileloc.path.endswith(file)]
    statement = " ".join(line for line in own[-1].lines if not line.startswith("E  ")) if own else ""
    if _PRIVATE.search(statement + errors[0]) or _OWN.search(report.nodeid):
        return "of Triton's insides"
    return "skipped" if "Torch not compiled with CUDA" in errors[0] else "failed"


def run_tests(options: argparse.Namespace) -> dict[str, Any]:
    import pytest

    from blockarray.language.errors import CompilationError

    if options.device == "cuda":
        importlib.import_module("cuda.bindings")  # Before a folder of tests that is called `cuda`, too.
    paths = options.child.split(os.pathsep)
    for folder in dict.fromkeys(str(Path(p).parent) for p in paths):
        sys.path.insert(0, folder)
    builtins.__dict__["states"] = states
    raises = pytest.raises
    # What is wrong counts, not the words that say so, nor the class.
    alike: dict[Any, Any] = {
        AssertionError: (AssertionError, ValueError), CompilationError: (CompilationError, TypeError),
        RuntimeError: (RuntimeError, AssertionError),
    }  # fmt: skip
    pytest.raises = lambda expected, *args, match=None, **kwargs: raises(alike.get(expected, expected), *args, **kwargs)
    recorder = Recorder(options, Path(options.work) / f"tests.{options.shard}.json")
    pytest.hookimpl(trylast=True)(Recorder.pytest_collection_modifyitems)  # after -k
    arguments = [*paths, "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    arguments += ["--import-mode=prepend", "--confcutdir", options.work, "--rootdir", options.work]
    arguments += ["--device", options.device, *(["-k", options.k] if options.k else []), "-o", "addopts="]
    arguments += ["--continue-on-collection-errors"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(arguments, plugins=[recorder])
    if not recorder.totals:
        raise RuntimeError(f"pytest ended with {status}: {said.getvalue()[-800:]}")
    sys.stderr.write(said.getvalue())
    return recorder.results()


# -- children ---------------------------------------------------------------------------------------------------------
def child(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    limit = options.seconds if options.kind == "tutorials" else max(options.until - time.time() + 8, 1)
    # pytest puts files of its own in the place of standard error.
    faulthandler.dump_traceback_later(limit, exit=True, file=os.fdopen(os.dup(2), "w"))
    result: dict[str, Any]
    try:
        if options.peer:
            triton: Any = importlib.import_module("triton")
            importlib.import_module("triton.testing")
        else:
            capability = (9, 0) if options.kind == "tests" else (8, 0)
            triton = install(Path(options.checkout), options.device, capability)
        kind = run_tests(options) if options.kind == "tests" else run_tutorial(Path(options.child), triton, options)
        result = {"outcome": "ran", "results": kind}
    except BaseException as error:
        frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-4:]]
        text = re.sub(r"\s+", " ", str(error))[:400]
        result = {"outcome": "failed", "results": {}, "error": f"{type(error).__name__}: {text} ({' > '.join(frames)})"}
        traceback.print_exc()
    result["seconds"] = time.perf_counter() - started
    print(_MARK + json.dumps(result), flush=True)


def start(child: str, options: argparse.Namespace, peer: bool = False, shard: int = 0) -> dict[str, Any]:
    """Run a tutorial, or some of the tests, in a process of its own."""
    words = [sys.executable, __file__, options.checkout, options.kind, "--child", child, "--device", options.device]
    for name in ("configs", "points", "seconds", "until", "sample", "first", "k", "work"):
        words += [f"--{name}" if len(name) > 1 else f"-{name}", str(getattr(options, name))]
    words += ["--shard", str(shard), *(["--peer"] if peer else [])]
    limit = options.seconds + 60
    root = str(Path(__file__).resolve().parent.parent)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, env=environ, check=False)
    except subprocess.TimeoutExpired:
        return {"outcome": f"no end after {limit:.0f} s", "results": {}, "seconds": limit}
    stem = Path(child).stem if options.kind == "tutorials" else "tests"
    log = Path(options.work) / f"{stem}{'-triton' if peer else ''}{f'-{shard}' if shard else ''}.log"
    log.write_text(done.stdout + done.stderr)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK))
    said = done.stderr.strip().splitlines() or [""]
    record = Path(options.work) / ("triton" if peer else "ours") / f"{stem}.json"
    if options.kind == "tests":
        record = Path(options.work) / f"tests.{shard}.json"
    results = json.loads(record.read_text()) if record.exists() else {}
    if any(line.startswith("Timeout (") for line in said):
        frames = [re.sub(r'File ".*/|, line |"', " ", line).strip() for line in said if line.startswith("  File")]
        where = " < ".join(frames[:12])
        return {"outcome": "no end", "results": results, "seconds": options.seconds, "error": where}
    return {"outcome": f"died ({done.returncode}): {said[-1][:300]}", "results": results, "seconds": 0.0}


# -- tables -----------------------------------------------------------------------------------------------------------
def tutorials(options: argparse.Namespace) -> None:
    folder = Path(options.checkout) / "python" / "tutorials"
    paths = [p for name in options.names or TUTORIALS for p in sorted(folder.glob(f"{name}-*.py"))]
    peer = not options.no_peer and importlib.util.find_spec("triton") is not None
    with ThreadPoolExecutor(options.jobs) as pool:
        ours = [pool.submit(start, str(p), options) for p in paths]
        theirs = [pool.submit(start, str(p), options, True) for p in paths] if peer else []
        for k, path in enumerate(paths):
            mine = ours[k].result()
            other = theirs[k].result() if peer else None
            print(f"{path.stem:32} {mine['outcome']:8} {mine['seconds']:6.1f} s", end="")
            print(f"   Triton: {other['outcome']} {other['seconds']:.1f} s" if other else "")
            for run in (mine, other or {}):
                if "error" in run:
                    print(f"    {run['error']}")
            said = mine["results"].pop("said", [])
            print(f"    {sum('❌' in line for line in said)} checks failed of those that it prints", end="")
            if other and "said" in other["results"]:
                pairs = itertools.zip_longest(said, other["results"].pop("said"), fillvalue="")
                unlike = [f"        {a}   Triton: {b}" for a, b in pairs if a != b]
                print(f", {len(unlike)} of {len(said)} lines unlike Triton's", *unlike[:8], sep="\n", end="")
            print()
            for name, value in mine["results"].items():
                beside = other["results"].get(name) if other else None
                print(f"    {name:60} {_number(value):>12} {_number(beside):>12}", flush=True)


def _number(x: Any) -> str:
    return "" if x is None else f"{x:.4g}" if isinstance(x, int | float) else str(x)


def tests(options: argparse.Namespace) -> None:
    original, folder = Path(options.checkout) / "python" / "test", Path(options.work) / "test"
    for path in original.glob("**/*.py"):
        copy = folder / path.relative_to(original)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        copy.write_text(softened(text) if path.name.startswith("test_") else text)
    folder /= "unit"
    names = [name if "/" in name else f"language/{name}" for name in options.names or TESTS]
    child = os.pathsep.join(str(folder / f"{name}.py") for name in names)
    options.until = time.time() + options.seconds

    def work(job: int) -> list[dict[str, Any]]:
        """A process, and another one where a test ended it."""
        found = []
        for shard in range(job, 1 << 20, options.jobs):
            found.append(start(child, options, shard=shard))
            if not found[-1]["results"].get("running") or time.time() > options.until:
                break
        return found

    counts: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    totals: dict[str, int] = {}
    examples: dict[str, str] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in itertools.chain.from_iterable(pool.map(work, range(options.jobs))):
            found = result["results"]
            if result["outcome"] != "ran":
                print(f"{result['outcome']} {found.get('running', '')}: {result.get('error', '')}", flush=True)
                if "running" in found:
                    counts.setdefault(found["running"].partition("::")[0], Counter())["ended their process"] += 1
            for file, of in found.get("counts", {}).items():
                counts.setdefault(file, Counter()).update(of)
            reasons.update(found.get("reasons", {}))
            seconds.update(found.get("seconds", {}))
            totals.update(found.get("totals", {}))
            examples = {**found.get("examples", {}), **examples}
    for file, total in totals.items():
        of = counts.setdefault(file, Counter())
        of["not run"] = total - sum(of.values())
    print(*_table(counts), sep="\n", flush=True)
    print("\nWhy tests failed:")
    for reason, n in sorted(reasons.most_common(options.reasons), key=lambda x: x[0].partition(":")[0]):
        print(f"{n:6}  {reason}   [{examples.get(reason, '')[:80]}]")
    print("\nSeconds:", ", ".join(f"{name} {s:.1f}" for name, s in seconds.most_common(options.slow)))


def _table(counts: dict[str, Counter[str]]) -> list[str]:
    """A table in Markdown of what became of each file's tests."""
    columns = {
        "passed": ("passed",), "but for text": ("passed but for text",),
        "but for words": ("passed but for words", "passed but for text and words"), "failed": ("failed",),
        "Triton's insides": ("of Triton's insides", "not collected"), "skipped": ("skipped", "xfailed"),
        "not run": ("not run", "ended their process"),
    }  # fmt: skip
    rows = [f"| file | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for file, of in sorted(counts.items()):
        found = [sum(of[what] for what in kinds) for kinds in columns.values()]
        rows.append(f"| {file} | {' | '.join(str(n or '') for n in found)} |".replace("|  ", "| "))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("kind", choices=("tutorials", "tests", "script"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("-k", default="")
    parser.add_argument("--first", default="")
    parser.add_argument("--device", default="")
    parser.add_argument("--work", default="")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--until", type=float, default=0.0)
    for name, default in (
        ("jobs", 1),
        ("configs", 0),
        ("points", 1),
        ("shard", 0),
        ("sample", 0),
        ("reasons", 40),
        ("slow", 12),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--child", default="")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    if options.kind == "script":
        install(Path(options.checkout), options.device, (9, 0))
        sys.argv = [options.child, *options.names]
        runpy.run_path(options.child, run_name="__main__")
        return
    if options.child:
        child(options)
        return
    if not options.device:
        options.device = "cuda" if importlib.import_module("torch").cuda.is_available() else "cpu"
    if not options.work:
        import tempfile

        options.work = tempfile.mkdtemp(prefix="triton-ports-")
        print(f"logs: {options.work}")
    if options.device == "cpu":
        options.points = -abs(options.points)
    options.checkout = str(Path(options.checkout).resolve())
    (tutorials if options.kind == "tutorials" else tests)(options)


if __name__ == "__main__":
    main()
