"""Runs the upstream test suite of the Array API standard on this checkout, with nothing skipped or expected to fail.

    python array_api_tests/run.py --device cpu --max-examples 100 -n 2
    python array_api_tests/run.py --suite ../array-api-tests --tiny off -- -k linalg -x

What follows `--` goes to pytest.  The suite needs pytest, pytest-json-report, hypothesis and ndindex, and pytest-xdist
for `-n`.  It runs from its own root, in a process of its own: its package has the name of this folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

#: Upstream repositories, and the commits that results are about.  The standard's own text is the suite's submodule.
SUITE = ("https://github.com/data-apis/array-api-tests", "55fcc60179efa2680ddd6cd926ddf17b83530e2b")
STANDARD = ("https://github.com/data-apis/array-api", "8884c406ff8a3b81ab836cefcacb08bc4a92ae18")

ROOT = Path(__file__).resolve().parent.parent
#: Where the suite is cloned to if no checkout is given; git ignores it.
CLONE = ROOT / "build" / "array-api-tests"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and pytest's own arguments."""
    own, _, extra = "\0".join(argv).partition("\0--\0") if "--" in argv else ("\0".join(argv), "", "")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, metavar="PATH", help=f"a checkout; default: a clone in {CLONE}")
    parser.add_argument("--device", default="cpu", help="where arrays live: cpu, cuda, cuda:1, ... or cuda-fake")
    parser.add_argument("--max-examples", type=int, default=100, metavar="N", help="inputs to try in each test")
    parser.add_argument("--version", default="2025.12", help="version of the standard")
    parser.add_argument("--tiny", choices=("on", "off"), default="on", help="off: tiny arrays are compiled for, too")
    parser.add_argument("-n", dest="processes", default="0", metavar="N", help="processes")
    parser.add_argument("--fresh-cache", action="store_true", help="begin with an empty disk cache of kernels")
    parser.add_argument("--seed", type=int, help="make inputs the same from run to run")
    return parser.parse_args([a for a in own.split("\0") if a]), [a for a in extra.split("\0") if a]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)} in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()


def checkout(folder: Path, origin: tuple[str, str]) -> None:
    """A repository at its pinned commit."""
    url, commit = origin
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet")
    if git(folder, "for-each-ref", f"--points-at={commit}") == "":
        git(folder, "fetch", "--quiet", "--depth", "1", url, f"{commit}:refs/pinned/{commit}")
    git(folder, "checkout", "--quiet", "--detach", commit)


def suite(given: Path | None) -> Path:
    """The suite's root, with the standard's text in it."""
    if given is None:
        checkout(CLONE, SUITE)
        checkout(CLONE / "array-api", STANDARD)
        return CLONE
    for folder, (url, commit) in ((given, SUITE), (given / "array-api", STANDARD)):
        if not folder.is_dir() or not any(folder.iterdir()):
            raise SystemExit(f"{folder} is no checkout of {url}")
        found = git(folder, "rev-parse", "HEAD")
        if found != commit:
            print(f"note: {folder} is at {found[:12]}, not at {commit[:12]}")
    return given.resolve()


def run(options: argparse.Namespace, extra: Sequence[str]) -> int:
    root = suite(options.suite)
    with tempfile.TemporaryDirectory(prefix="blockarray-array-api-") as made:
        scratch = Path(made)
        (none := scratch / "none.txt").touch()
        report = scratch / "report.xml"
        environment = dict(os.environ)
        paths = filter(None, (str(ROOT), environment.get("PYTHONPATH")))
        put = f'from blockarray.runtime.device import set_default_device as put; put("{options.device}")'
        if options.device == "cuda-fake":
            put = "from tests import fake_gpu; fake_gpu.install(); " + put.replace("-fake", "")
        version = f'from blockarray.versions import namespace; xp = namespace("{options.version}")'
        environment |= {
            "ARRAY_API_TESTS_MODULE": f"exec('{put}; {version}')",
            "ARRAY_API_TESTS_VERSION": options.version,
            "BLOCKARRAY_TINY": options.tiny,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        if options.fresh_cache:
            environment["BLOCKARRAY_CACHE_DIR"] = str(scratch / "cache")
        command = [
            *(sys.executable, "-m", "pytest", "-c", "pytest.ini", "-q", "--disable-warnings", "-p", "no:cacheprovider"),
            *("--disable-deadline", f"--max-examples={options.max_examples}"),
            *(f"--xfails-file={none}", f"--skips-file={none}", f"--junitxml={report}"),
            *(["-n", options.processes] if options.processes != "0" else []),
            *([f"--hypothesis-seed={options.seed}"] if options.seed is not None else []),
            *extra,
        ]
        if not any(a.startswith("array_api_tests") for a in extra):
            command.append("array_api_tests/")
        started = time.perf_counter()
        status = subprocess.run(command, cwd=root, env=environment).returncode
        seconds = time.perf_counter() - started
        if not report.exists():
            return status or 1
        (found,) = ElementTree.parse(report).getroot().iter("testsuite")
        tests, failures, errors, skipped = (int(found.get(k, 0)) for k in ("tests", "failures", "errors", "skipped"))
        what = f"{options.version}, {options.device}, {options.max_examples} examples, tiny path {options.tiny}"
        passed = tests - failures - errors - skipped
        print(f"{what}: {passed} passed, {failures} failed, {errors} errors, {skipped} skipped in {seconds:.1f} s")
    return status


if __name__ == "__main__":
    raise SystemExit(run(*parse(sys.argv[1:])))
