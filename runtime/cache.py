"""Compiled code on disk.

One file an entry: a header with a checksum, the key, the data.  A file that is not exactly what `put` writes for its
key is as good as absent.  Nothing here fails: where the folder cannot be used, entries are kept in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import stat
import struct
import tempfile
import time
from pathlib import Path

from .config import config

_MAGIC = b"blkarray"
_VERSION = 1
#: Magic, version, SHA-256 of all that follows it; then the lengths of key and data.
_HEADER = struct.Struct("<8sI32s")
_LENGTHS = struct.Struct("<IQ")
_SUFFIX = ".bin"
_TEMPORARY = ".tmp"

#: An entry's time of last use is refreshed when it is older than this, in seconds.
_FRESH = 3600.0
#: Eviction leaves this share of the limit; the folder is looked through once per limit / _SCANS bytes written.
_KEEP = 0.75
_SCANS = 32

#: What a bad folder raises; RuntimeError: there is no home, ValueError: a path that cannot be one.
_TROUBLE = (OSError, RuntimeError, ValueError)
#: Entries kept in memory where the disk takes none.
_IN_MEMORY = 1000

_random = random.Random()
_memory: dict[str, bytes] = {}


def get(key: str) -> bytes | None:
    """The data that was put under `key`, or None."""
    data = _memory.get(key)
    if data is not None or not config.cache_limit:
        return data
    try:
        path = _path(key)
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read() if status.st_uid == os.geteuid() else b""
    except _TROUBLE:
        return None
    data = _decode(key, content)
    if data is not None and time.time() - status.st_mtime > _FRESH:
        with contextlib.suppress(OSError):
            os.utime(path)
    return data


def put(key: str, data: bytes) -> None:
    """Keep `data` under `key`."""
    if not config.cache_limit or not _write(key, data):
        _memory[key] = data
        if len(_memory) > _IN_MEMORY:
            _memory.pop(next(iter(_memory)), None)
        return
    # On average one scan for each limit / _SCANS bytes, however many short-lived processes write them.
    if _random.random() * config.cache_limit < _SCANS * len(data):
        evict()


def folder() -> Path:
    """Where entries are."""
    if config.cache_dir is not None:
        return config.cache_dir
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The convention: a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "blockarray"


def evict() -> None:
    """Delete the entries that were not used for longest if there is more than the limit; and forgotten temporaries."""
    entries: list[tuple[float, int, str]] = []
    total = 0
    with contextlib.suppress(*_TROUBLE), os.scandir(folder()) as found:
        for entry in found:
            # Another process may delete it first.
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    entries.append((status.st_mtime, status.st_size, entry.path))
                    total += status.st_size
                elif entry.name.endswith(_TEMPORARY) and time.time() - status.st_mtime > _FRESH:
                    os.unlink(entry.path)
    if total <= config.cache_limit:
        return
    for _, size, path in sorted(entries):
        if total <= _KEEP * config.cache_limit:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


def _path(key: str) -> Path:
    return folder() / (hashlib.sha256(key.encode()).hexdigest() + _SUFFIX)


def _encode(key: str, data: bytes) -> bytes:
    name = key.encode()
    body = _LENGTHS.pack(len(name), len(data)) + name + data
    return _HEADER.pack(_MAGIC, _VERSION, hashlib.sha256(body).digest()) + body


def _decode(key: str, content: bytes) -> bytes | None:
    name = key.encode()
    start = _HEADER.size + _LENGTHS.size + len(name)
    if len(content) < start:
        return None
    data = content[start:]
    return data if content == _encode(key, data) else None


def _write(key: str, data: bytes) -> bool:
    """Replace a key's file at once; whether that was possible."""
    try:
        path = _path(key)
        # Private, since what it holds is run.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(path.parent)
        if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
            return False
        descriptor, temporary = tempfile.mkstemp(_TEMPORARY, dir=path.parent)
    except _TROUBLE:
        return False
    try:
        with open(descriptor, "wb") as file:
            file.write(_encode(key, data))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
