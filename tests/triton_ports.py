"""Triton's own tutorials and language tests, run with blockarray in Triton's place.

    python tests/triton_ports.py CHECKOUT tutorials [01 02 ...]
    python tests/triton_ports.py CHECKOUT tests [test_core ...] [-k EXPRESSION]

CHECKOUT is a copy of github.com/triton-lang/triton (about version 3.6); nothing of it is part of this project.  Each
file runs in a process of its own, which sees a module `triton` that is made here, of blockarray's names.  Where Triton
is installed, the tutorials run with it, too.  Options:

    --device cpu|cuda   where the tests' tensors are (default: a GPU if there is one)
    --jobs N            processes at a time
    --seconds S         for each process; what is not done by then counts as not run
    --configs K         the autotuner's first K configurations only
    --points P          the last P points of each plot (default 1), or the first -P
    --shards N          processes for each file of tests
    --no-peer           leave Triton out

The tables say what became of each file, and what its plots would show: the last points of each line.  Where a test
wants an error, any message will do: Triton's words are not ours.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import importlib.util
import io
import json
import os
import re
import runpy
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

TUTORIALS = ("01", "02", "03", "04", "05", "06", "08", "09")
TESTS = (
    "test_core", "test_standard", "test_random", "test_tensor_descriptor", "test_block_pointer", "test_conversions",
    "test_tuple",
)  # fmt: skip
#: How a child's result is marked in what it prints.
_MARK = "@@result "
#: Loops of a tutorial that only heat the device; and a comparison with torch's sums of float16 on the CPU, which are
#: farther from the truth than the kernel's.
_SHORTER = (("reps=10000, warmup_reps=10000", "reps=20, warmup_reps=5"),)
_ON_CPU = (("test_layer_norm(1151, 8192, torch.float16)", "test_layer_norm(1151, 8192, torch.float32)"),)


# -- the module in Triton's place -------------------------------------------------------------------------------------
def module(name: str, **content: Any) -> ModuleType:
    """A module, which its parent has as an attribute."""
    made = ModuleType(name)
    made.__dict__.update(content)
    adopt(name, made)
    return made


def adopt(name: str, made: ModuleType) -> None:
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)


class _Word:
    """What may be asked for anything and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return _Word()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Word()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter((_Word(), _Word()))


def install(checkout: Path, device: str) -> ModuleType:
    """Let `import triton` give blockarray's names, in the structure of Triton's."""
    import blockarray as ba
    from blockarray import language, testing
    from blockarray.blocks.arguments import Reinterpreted
    from blockarray.language.errors import CompilationError

    torch: Any = importlib.import_module("torch")
    if device == "cpu":
        ba.set_default_device("cpu")
        torch.cuda.get_device_capability = lambda device=None: (8, 0)  # many files ask
        torch.cuda.get_device_name = lambda device=None: "none"
        torch.cpu.set_stream = lambda stream: None
    index = torch.cuda.current_device() if device != "cpu" else 0
    major, minor = torch.cuda.get_device_capability() if device != "cpu" else (8, 0)
    count = torch.cuda.get_device_properties(index).multi_processor_count if device != "cpu" else 4
    properties = {
        "multiprocessor_count": count, "max_num_regs": 65536, "max_shared_mem": 232448, "warpSize": 32,
    }  # fmt: skip
    active = SimpleNamespace(
        get_active_torch_device=lambda: torch.device("cpu") if device == "cpu" else torch.device("cuda", index),
        get_current_target=lambda: SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=32),
        get_current_device=lambda: index,
        get_device_interface=lambda: torch.cuda,
        utils=SimpleNamespace(get_device_properties=lambda device: properties),
        get_current_stream=lambda device: torch.cuda.current_stream().cuda_stream,
    )  # fmt: skip

    names = ("jit", "autotune", "Config", "heuristics", "cdiv", "next_power_of_2", "reinterpret", "JITFunction")
    errors = {"CompilationError": CompilationError, "TritonError": CompilationError, "OutOfResources": RuntimeError}
    triton = module(
        "triton", __version__="3.6.0", __path__=[], set_allocator=lambda function: None, **errors,
        **{name: getattr(ba, name) for name in names}, constexpr_function=getattr(language, "constexpr_function", None),
    )  # fmt: skip
    adopt("triton.language", language)
    adopt("triton.testing", testing)
    for name in ("core", "math", "random", "standard", "semantic"):
        adopt(f"triton.language.{name}", getattr(language, name, language))
    extra = getattr(language, "extra", module("triton.language.extra"))
    adopt("triton.language.extra", extra)
    for name in ("libdevice", "cuda", "cuda.libdevice"):
        adopt(f"triton.language.extra.{name}", getattr(extra, "libdevice", extra))
    module("triton.runtime", __path__=[], driver=SimpleNamespace(active=active))
    module("triton.runtime.driver", active=active)
    module(
        "triton.runtime.jit", JITFunction=ba.JITFunction, TensorWrapper=Reinterpreted, reinterpret=ba.reinterpret,
        type_canonicalisation_dict=_Same(), MockTensor=None,
    )  # fmt: skip
    module("triton.runtime.errors", InterpreterError=Exception, OutOfResources=RuntimeError, PTXASError=RuntimeError)
    module("triton.runtime._allocation", NullAllocator=lambda: None)
    module("triton.compiler", __path__=[], CompiledKernel=None)
    module("triton.compiler.errors", CompilationError=CompilationError)
    module("triton.compiler.code_generator")
    module("triton.tools", __path__=[])
    module("triton.tools.tensor_descriptor", TensorDescriptor=ba.TensorDescriptor)
    module("triton.backends", __path__=[])
    module(
        "triton.profiler",
        __path__=[],
        **dict.fromkeys(("scope", "activate", "deactivate", "start", "finalize"), _Word()),
    )
    module("triton.profiler.viewer", parse=_Word(), print_tree=_Word())
    module("triton._C", __path__=[])
    multiply = SimpleNamespace(matmul=lambda a, b, c: c.copy_(a @ b.T) if a.element_size() > 1 else c.copy_(c))
    module("triton._C.libtriton", nvidia=SimpleNamespace(cublas=SimpleNamespace(CublasLt=lambda space: multiply)))
    ptxas = SimpleNamespace(version="13.0")
    module(
        "triton.knobs", nvidia=SimpleNamespace(ptxas=ptxas), runtime=SimpleNamespace(interpret=False), base_knobs=_Word,
        compilation=SimpleNamespace(), language=SimpleNamespace(), cache=SimpleNamespace(),
    )  # fmt: skip
    if importlib.util.find_spec("tabulate") is None:
        module("tabulate", tabulate=lambda rows, **_: "\n".join(str(row) for row in rows))
    for name in ("float8e4b15", "float8e4b8", "float8e5b16"):  # types of other GPUs
        if not hasattr(language, name):
            missing = object.__new__(type(language.float32))
            missing.name = missing.ir = name
            setattr(language, name, missing)
    floats = ["fp16", "bf16", "fp32", "fp64"]
    for name, found in (
        ("SINT_TYPES", ["int8", "int16", "int32", "int64"]), ("STANDARD_FP_TYPES", floats),
        ("UINT_TYPES", ["int1", "uint8", "uint16", "uint32", "uint64"]), ("FP_TYPES", ["fp8e4nv", "fp8e5", *floats]),
    ):  # fmt: skip
        if not hasattr(language.dtype, name):
            setattr(language.dtype, name, found)
    if not hasattr(language, "str_to_ty"):
        language.str_to_ty = lambda name, _: _type_of(language, name)  # type: ignore[attr-defined]
    for name in ("tools.mxfp", "_internal_testing"):
        path = checkout / "python" / "triton" / (name.replace(".", "/") + ".py")
        if path.exists():
            made = module(f"triton.{name}", __file__=str(path))
            exec(compile(path.read_text(), str(path), "exec"), made.__dict__)
    return triton


class _Same(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key


def _type_of(language: Any, name: str) -> Any:
    if name.startswith("*"):
        return language.pointer_type(_type_of(language, name[1:]))
    return getattr(language, {"bool": "int1"}.get(name, name))


class Results(dict[str, Any]):
    """Results that are kept in a file as they come, in case that there is no end."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self.record = record

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self.record.write_text(json.dumps(self))


# -- one tutorial -----------------------------------------------------------------------------------------------------
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

    testing.perf_report = lambda benchmarks: lambda fn: Report(fn, benchmarks)  # type: ignore[attr-defined]


def few_configs(triton: Any, count: int) -> None:
    whole = triton.autotune
    triton.autotune = lambda configs, *args, **kwargs: whole(configs[:count], *args, **kwargs)


def run_tutorial(path: Path, triton: Any, options: argparse.Namespace) -> dict[str, Any]:
    results = Results(Path(options.work) / f"{path.stem}.0.json")
    quick(triton.testing, options.points, results)
    if options.configs:
        few_configs(triton, options.configs)
    text = path.read_text()
    for old, new in _SHORTER if options.device != "cpu" else _SHORTER + _ON_CPU:
        text = text.replace(old, new)
    # A file: kernels' sources are read.
    copy = Path(options.work) / path.name
    copy.write_text(text)
    os.chdir(options.work)
    sys.argv = [str(copy)]
    is_attention = path.name.startswith("06")
    space = runpy.run_path(str(copy), run_name="tutorial" if is_attention else "__main__")
    if is_attention:
        for mode in ("fwd", "bwd"):
            try:
                space["test_op"](1, 2, 1024, 64, True, False, mode, "triton-fp16")
                results[f"test_op {mode}"] = "passed"
            except Exception as error:
                results[f"test_op {mode}"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        space["bench_flash_attention"].run()
    if options.device != "cpu":
        importlib.import_module("torch").cuda.synchronize()
    return results


# -- one file of tests ------------------------------------------------------------------------------------------------
class Recorder:
    """A plugin of pytest: runs a share of the tests for so many seconds, and counts what became of them."""

    def __init__(self, shard: int, shards: int, seconds: float, record: Path) -> None:
        self.shard, self.shards, self.until = shard, shards, time.monotonic() + seconds
        #: Where the counts are kept, in case that a test never ends.
        self.record = record
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.total = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.total = len(items[self.shard :: self.shards])
        items[:] = items[self.shard :: self.shards]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.counts["xfailed" if hasattr(report, "wasxfail") else report.outcome] += 1
            if report.failed:
                text = str(report.longrepr)
                lines = [line[4:] for line in text.splitlines() if line.startswith("E   ")] or text.splitlines()[-1:]
                reason = re.sub(r"0x[0-9a-f]+|\d+", "#", lines[0].strip())[:160]
                self.reasons[reason] += 1
                self.examples.setdefault(reason, report.nodeid.rpartition("::")[2])

    def pytest_runtest_setup(self, item: Any) -> None:
        self.record.write_text(json.dumps({**self.results(), "running": item.name}))

    def pytest_runtest_teardown(self, item: Any) -> None:
        if time.monotonic() > self.until:
            item.session.shouldstop = "time"

    def results(self) -> dict[str, Any]:
        left = max(0, self.total - sum(self.counts.values()))
        return {"counts": {**self.counts, "not run": left}, "reasons": self.reasons, "examples": self.examples}


def run_tests(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    import pytest

    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    raises = pytest.raises
    # What is wrong counts, not the words that say so.
    pytest.raises = lambda expected, *args, match=None, **kwargs: raises(expected, *args, **kwargs)
    record = Path(options.work) / f"{path.stem}.{options.shard}.json"
    recorder = Recorder(options.shard, options.shards, options.seconds, record)
    arguments = [
        str(path),
        "-q",
        "--no-header",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "--import-mode=prepend",
    ]
    arguments += ["--confcutdir", options.checkout, "--rootdir", options.checkout]
    arguments += ["--device", options.device, *(["-k", options.k] if options.k else []), "-o", "addopts="]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(arguments, plugins=[recorder])
    if not recorder.total:
        raise RuntimeError(f"pytest ended with {status}: {said.getvalue()[-800:]}")
    sys.stderr.write(said.getvalue())
    return recorder.results()


# -- children ---------------------------------------------------------------------------------------------------------
def child(options: argparse.Namespace) -> None:
    path = Path(options.child)
    started = time.perf_counter()
    limit = options.seconds if options.kind == "tutorials" else options.seconds + 20
    # pytest puts files of its own in the place of standard error.
    faulthandler.dump_traceback_later(limit, exit=True, file=os.fdopen(os.dup(2), "w"))
    result: dict[str, Any]
    try:
        if options.peer:
            triton: Any = importlib.import_module("triton")
            importlib.import_module("triton.testing")
        else:
            triton = install(Path(options.checkout), options.device)
        kind = run_tests(path, options) if options.kind == "tests" else run_tutorial(path, triton, options)
        result = {"outcome": "ran", "results": kind}
    except BaseException as error:
        frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-4:]]
        text = re.sub(r"\s+", " ", str(error))[:400]
        result = {"outcome": "failed", "results": {}, "error": f"{type(error).__name__}: {text} ({' > '.join(frames)})"}
        traceback.print_exc()
    result["seconds"] = time.perf_counter() - started
    print(_MARK + json.dumps(result), flush=True)


def start(path: Path, options: argparse.Namespace, peer: bool = False, shard: int = 0) -> dict[str, Any]:
    """Run a file in a process of its own."""
    words = [sys.executable, __file__, options.checkout, options.kind, "--child", str(path), "--device", options.device]
    for name in ("configs", "points", "shards", "seconds", "k", "work"):
        words += [f"--{name}" if len(name) > 1 else f"-{name}", str(getattr(options, name))]
    words += ["--shard", str(shard), *(["--peer"] if peer else [])]
    limit = options.seconds + 60
    root = str(Path(__file__).resolve().parent.parent)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, env=environ, check=False)
    except subprocess.TimeoutExpired:
        return {"outcome": f"no end after {limit:.0f} s", "results": {}, "seconds": limit}
    log = Path(options.work) / f"{path.stem}{'-triton' if peer else ''}{f'-{shard}' if shard else ''}.log"
    log.write_text(done.stdout + done.stderr)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK))
    said = done.stderr.strip().splitlines() or [""]
    if any(line.startswith("Timeout (") for line in said):
        frames = [re.sub(r'File ".*/|, line |"', " ", line).strip() for line in said if line.startswith("  File")]
        record = Path(options.work) / f"{path.stem}.{shard}.json"
        results = json.loads(record.read_text()) if record.exists() else {}
        where = " < ".join(frames[:12])
        return {"outcome": "no end", "results": results, "seconds": options.seconds, "error": where}
    return {"outcome": f"died ({done.returncode}): {said[-1][:300]}", "results": {}, "seconds": 0.0}


# -- tables -----------------------------------------------------------------------------------------------------------
def tutorials(options: argparse.Namespace) -> None:
    folder = Path(options.checkout) / "python" / "tutorials"
    paths = [p for name in options.names or TUTORIALS for p in sorted(folder.glob(f"{name}-*.py"))]
    peer = not options.no_peer and importlib.util.find_spec("triton") is not None
    with ThreadPoolExecutor(options.jobs) as pool:
        ours = [pool.submit(start, p, options) for p in paths]
        theirs = [pool.submit(start, p, options, True) for p in paths] if peer else []
        for k, path in enumerate(paths):
            mine = ours[k].result()
            other = theirs[k].result() if peer else None
            print(f"{path.stem:32} {mine['outcome']:8} {mine['seconds']:6.1f} s", end="")
            print(f"   Triton: {other['outcome']} {other['seconds']:.1f} s" if other else "")
            if "error" in mine:
                print(f"    {mine['error']}")
            for name, value in mine["results"].items():
                beside = other["results"].get(name) if other else None
                print(f"    {name:60} {_number(value):>12} {_number(beside):>12}", flush=True)


def _number(x: Any) -> str:
    return "" if x is None else f"{x:.4g}" if isinstance(x, int | float) else str(x)


def tests(options: argparse.Namespace) -> None:
    folder = Path(options.checkout) / "python" / "test" / "unit" / "language"
    names = options.names or TESTS
    with ThreadPoolExecutor(options.jobs) as pool:
        found = {
            name: [pool.submit(start, folder / f"{name}.py", options, False, k) for k in range(options.shards)]
            for name in names
        }
        reasons: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for name, shards in found.items():
            counts: Counter[str] = Counter()
            for shard in shards:
                result = shard.result()
                if result["outcome"] != "ran":
                    at = result["results"].get("running", "")
                    print(f"{name}: {result['outcome']} {at}: {result.get('error', '')}")
                if "counts" not in result["results"]:
                    continue
                counts.update(result["results"]["counts"])
                reasons.update(result["results"]["reasons"])
                examples = {**result["results"]["examples"], **examples}
            print(f"{name:24} {', '.join(f'{n} {what}' for what, n in sorted(counts.items()) if n)}", flush=True)
    print("\nWhy tests failed:")
    for reason, n in reasons.most_common(options.reasons):
        print(f"{n:6}  {reason}   [{examples.get(reason, '')[:80]}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("kind", choices=("tutorials", "tests"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("-k", default="")
    parser.add_argument("--device", default="")
    parser.add_argument("--work", default="")
    parser.add_argument("--seconds", type=float, default=600.0)
    for name, default in (("jobs", 1), ("configs", 0), ("points", 1), ("shards", 1), ("shard", 0), ("reasons", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--child", default="")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
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
