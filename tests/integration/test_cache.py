"""The kernel cache on disk: damaged, foreign, shared, unwritable and vanishing files never cost an answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, needs_lazy, run_python

pytestmark = needs_lazy

PROGRAM = """
import numpy as np, blockarray as xp
x = xp.asarray(np.arange(1000))
with xp.profile() as p:
    total = int(((x * 2 + 1) ** 2).sum())
print(total, p.compiles)
"""
TOTAL = 1333333000


def run(cache: Path, code: str = PROGRAM) -> tuple[int, int]:
    total, compiles = map(int, run_python(code, BLOCKARRAY_CACHE_DIR=str(cache)).split())
    return total, compiles


def files(cache: Path) -> list[Path]:
    return sorted(f for f in cache.rglob("*") if f.is_file())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "cache"
    total, compiles = run(folder)
    assert total == TOTAL and compiles >= 1
    assert files(folder), "nothing was cached"
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A cache with the program's kernels in it."""
    return shutil.copytree(filled, tmp_path / "cache")


def test_second_process_compiles_nothing(cache: Path) -> None:
    assert run(cache) == (TOTAL, 0)


def test_cache_is_private_to_the_user(filled: Path) -> None:
    assert all(f.stat().st_mode & 0o022 == 0 for f in (filled, *files(filled)))


DAMAGE = {
    "empty": lambda b: b"",
    "half": lambda b: b[: len(b) // 2],
    "last-byte-missing": lambda b: b[:-1],
    "first-byte-flipped": lambda b: bytes([b[0] ^ 0xFF]) + b[1:],
    "middle-bit-flipped": lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 1]) + b[len(b) // 2 + 1 :],
    "zeros": lambda b: bytes(len(b)),
    "foreign": lambda b: b"\x7fELF" + bytes(range(256)) * 20,
    "doubled": lambda b: b + b,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_ignored_and_rewritten(cache: Path, name: str) -> None:
    before = {f: f.read_bytes() for f in files(cache)}
    for f, content in before.items():
        f.write_bytes(DAMAGE[name](content))
    total, compiles = run(cache)
    assert total == TOTAL and compiles >= 1
    assert run(cache) == (TOTAL, 0)


def test_swapped_files_are_not_believed(cache: Path) -> None:
    """A file under another kernel's name holds the wrong code, well-formed as it is."""
    other = PROGRAM.replace("x * 2 + 1", "x * 3 - 5")
    want = sum((3 * k - 5) ** 2 for k in range(1000))
    assert run(cache, other)[0] == want
    third = PROGRAM.replace(".sum()", ".max()")
    assert run(cache, third)[0] == 1999**2
    found = files(cache)
    if len(found) >= 2:
        contents = [f.read_bytes() for f in found]
        for f, content in zip(found, contents[1:] + contents[:1]):
            f.write_bytes(content)
    assert run(cache)[0] == TOTAL
    assert run(cache, third)[0] == 1999**2


def test_files_of_others_are_left_alone(cache: Path) -> None:
    for name in ("README", "notes.txt", ".hidden"):
        (cache / name).write_text("mine")
    assert run(cache) == (TOTAL, 0)
    assert all((cache / name).read_text() == "mine" for name in ("README", "notes.txt", ".hidden"))


def test_no_temporary_files_stay(cache: Path) -> None:
    assert not [f for f in files(cache) if "tmp" in f.name.lower()]


def test_processes_share_an_empty_cache(tmp_path: Path) -> None:
    env = {**os.environ, "BLOCKARRAY_CACHE_DIR": str(tmp_path / "shared")}
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    for p in processes:
        out, _ = p.communicate(timeout=120)
        assert p.returncode == 0 and int(out.split()[0]) == TOTAL
    assert run(tmp_path / "shared") == (TOTAL, 0)


def test_folder_vanishes_while_in_use(tmp_path: Path) -> None:
    code = """
import os, shutil, numpy as np, blockarray as xp
x = xp.asarray(np.arange(1000))
assert int(x.sum()) == 499500
shutil.rmtree(os.environ["BLOCKARRAY_CACHE_DIR"])
print(int(((x * 2 + 1) ** 2).sum()), 0)
"""
    assert run(tmp_path / "cache", code)[0] == TOTAL


def test_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(tmp_path / "file" / "cache")[0] == TOTAL
    assert run(tmp_path / "file")[0] == TOTAL


def test_unwritable_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o555)
    try:
        assert run(folder)[0] == TOTAL
        if os.geteuid() == 0:  # permissions do not bind root; a folder that takes no files does
            assert run(Path("/proc/self/cache"))[0] == TOTAL
    finally:
        folder.chmod(0o755)


def test_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands in: writes stop in the middle of one."""
    limit = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
"""
    assert run(tmp_path, limit + PROGRAM)[0] == TOTAL
    assert run(tmp_path)[0] == TOTAL  # no half-written file is believed afterwards
    assert run(tmp_path) == (TOTAL, 0)


def test_unset_home(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("BLOCKARRAY_CACHE_DIR", "HOME", "XDG_CACHE_HOME")}
    env["HOME"] = str(tmp_path / "nowhere")
    p = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stderr
    assert int(p.stdout.split()[0]) == TOTAL
