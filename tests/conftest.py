"""Options and isolation that every test shares."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

# Kernels are cached on disk: a session starts with an empty folder of its own, so that no test passes on the code of an
# earlier checkout and compile counts are true.
if "BLOCKARRAY_CACHE_DIR" not in os.environ:
    _cache = tempfile.mkdtemp(prefix="blockarray-test-cache-")
    os.environ["BLOCKARRAY_CACHE_DIR"] = _cache
    _owner = os.getpid()
    atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(_cache, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow") or os.environ.get("BLOCKARRAY_SLOW"):
        return
    skip = pytest.mark.skip(reason="slow: --slow or BLOCKARRAY_SLOW=1 runs it")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
