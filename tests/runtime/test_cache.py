"""The cache on disk: right answers or none, whatever happens to the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from blockarray.runtime import cache
from blockarray.runtime.config import config


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", tmp_path / "deep" / "cache")
    monkeypatch.setattr(cache, "_memory", {})
    return tmp_path / "deep" / "cache"


def entry(folder: Path) -> Path:
    (path,) = folder.glob("*.bin")
    return path


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
def test_round_trip(folder, data):
    assert cache.get("key") is None
    cache.put("key", data)
    assert cache.get("key") == data and cache.get("Key") is None
    cache.put("key", data + b"new")
    assert cache.get("key") == data + b"new"
    assert os.stat(folder).st_mode & 0o777 == 0o700 and os.stat(entry(folder)).st_mode & 0o777 == 0o600
    assert not cache._memory


def test_corruption_is_ignored_and_repaired(folder):
    data = b"code" * 100
    cache.put("key", data)
    path = entry(folder)
    good = path.read_bytes()
    for bad in [
        b"",
        good[:10],
        good[:-1],
        good + b"\0",
        b"X" + good[1:],
        *(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :] for i in (8, 12, 44, 48, 56, 60, len(good) - 1)),
    ]:
        path.write_bytes(bad)
        assert cache.get("key") is None
        cache.put("key", data)
        assert cache.get("key") == data
    cache.put("other", b"foreign")
    for other in folder.glob("*.bin"):
        if other != path:
            path.write_bytes(other.read_bytes())
    assert cache.get("key") is None


def test_folder_deleted(folder):
    cache.put("a", b"1")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert cache.get("a") is None
    cache.put("b", b"2")
    assert cache.get("b") == b"2" and folder.exists()


def test_places_that_cannot_be_used(folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x", Path("/proc/nowhere"), Path("/dev/full"), Path("bad\0name")):
        monkeypatch.setattr(config, "cache_dir", place)
        cache.put("k", b"v")
        assert cache.get("k") == b"v" and list(cache._memory) == ["k"]
        cache._memory.clear()


def test_foreign_or_open_folder_is_refused(folder, monkeypatch):
    cache.put("mine", b"1")
    folder.chmod(0o777)
    cache.put("k", b"v")
    assert cache.get("k") == b"v" and list(cache._memory) == ["k"]
    folder.chmod(0o700)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert cache.get("mine") is None
    cache.put("l", b"w")
    assert cache.get("l") == b"w" and "l" in cache._memory


def test_full_disk(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    cache.put("a", b"1")
    monkeypatch.setattr(os, "replace", full)
    cache.put("b", b"2")
    assert cache.get("a") == b"1" and cache.get("b") == b"2"
    assert len(list(folder.iterdir())) == 1


def test_no_home(monkeypatch):
    monkeypatch.setattr(config, "cache_dir", None)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    cache.put("a", b"1")
    assert cache.get("a") == b"1"


def test_folder_follows_the_convention(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "blockarray"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == Path.home() / ".cache" / "blockarray"


def test_limit(folder, monkeypatch):
    monkeypatch.setattr(config, "cache_limit", 100_000)
    for i in range(30):
        cache.put(f"k{i}", bytes(10_000))
        os.utime(cache._path(f"k{i}"), (i, i))
        if i % 5 == 0:
            # A use: k0 must outlive what was put after it.
            assert cache.get("k0") == bytes(10_000)
            os.utime(cache._path("k0"), (1000 + i, 1000 + i))
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 110_000
    assert cache.get("k0") and cache.get("k29") and cache.get("k3") is None


def test_use_refreshes_an_old_entry(folder):
    cache.put("k", b"v")
    os.utime(entry(folder), (1, 1))
    assert cache.get("k") == b"v"
    assert entry(folder).stat().st_mtime > 1e9


def test_forgotten_temporaries_are_swept(folder):
    cache.put("k", b"v")
    old, new = folder / "old.tmp", folder / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.evict()
    assert not old.exists() and new.exists()


def test_limit_zero_keeps_nothing_on_disk(folder, monkeypatch):
    monkeypatch.setattr(config, "cache_limit", 0)
    cache.put("k", b"v")
    assert cache.get("k") == b"v" and not folder.exists()


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(config, "cache_limit", 0)
    monkeypatch.setattr(cache, "_IN_MEMORY", 10)
    for i in range(30):
        cache.put(str(i), b"")
    assert len(cache._memory) == 10 and cache.get("29") == b"" and cache.get("0") is None


def test_sixteen_processes(folder):
    code = """
import random, sys, types
# The cache alone: the whole library would take sixteen times its start.
package = sys.modules["blockarray"] = types.ModuleType("blockarray")
package.__path__ = [sys.argv[1] + "/blockarray"]
from blockarray.runtime import cache
r = random.Random(int(sys.argv[2]))
for _ in range(60):
    k = r.randrange(30)
    data = bytes([k]) * (1000 + k)
    found = cache.get(f"key{k}")
    assert found is None or found == data, k
    if found is None or r.random() < 0.3:
        cache.put(f"key{k}", data)
"""
    environ = {**os.environ, "BLOCKARRAY_CACHE_DIR": str(folder), "BLOCKARRAY_CACHE_LIMIT": "20000"}
    command = [sys.executable, "-c", code, os.getcwd()]
    users = [subprocess.Popen([*command, str(i)], env=environ, stderr=subprocess.PIPE, text=True) for i in range(16)]
    for user in users:
        _, errors = user.communicate(timeout=120)
        assert (user.returncode, errors) == (0, "")
    assert not list(folder.glob("*.tmp"))
    for k in range(30):
        assert cache.get(f"key{k}") in (None, bytes([k]) * (1000 + k))
