"""Options and isolation that every test shares."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest

# Kernels are cached on disk: a session starts with an empty folder of its own, so that no test passes on the code of an
# earlier checkout and compile counts are true.  So does each process that shares a session's tests (pytest-xdist).
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["BLOCKARRAY_CACHE_DIR"] = os.path.join(
        os.environ["BLOCKARRAY_CACHE_DIR"], os.environ["PYTEST_XDIST_WORKER"]
    )
elif "BLOCKARRAY_CACHE_DIR" not in os.environ:
    _cache = tempfile.mkdtemp(prefix="blockarray-test-cache-")
    os.environ["BLOCKARRAY_CACHE_DIR"] = _cache
    _owner = os.getpid()
    atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(_cache, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--big", action="store_true", help="run the tests marked big as well")
    parser.addoption(
        "--tiny", choices=("on", "off"), default="off", help="on: tiny arrays are interpreted, as users have them"
    )
    parser.addoption(
        "--device",
        default=os.environ.get("BLOCKARRAY_TEST_DEVICE", "cpu"),
        help="where arrays live: cpu, cuda, cuda:1, ..., or two GPUs that are not there: cuda-fake (kernels are "
        "interpreted) or cuda-emulated (their code is, slowly)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if "blockarray" in sys.modules:
        raise pytest.UsageError("a conftest.py imported blockarray before the options of the run were known")
    # Tests are about compiled code, and their arrays are small.
    os.environ["BLOCKARRAY_TINY"] = str(config.getoption("--tiny"))
    device = str(config.getoption("--device"))
    fake = device in _FAKES
    # For the interpreters that tests start, too; these have no fake.
    os.environ["BLOCKARRAY_DEVICE"] = "cpu" if fake else device
    if fake:
        from tests import fake_gpu

        fake_gpu.install(emulate=device == "cuda-emulated")
    from blockarray.runtime.device import set_default_device

    set_default_device("cuda:0" if fake else device)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what needs NVIDIA's libraries where a GPU is there but they are not."""
    try:
        return (yield)
    except ImportError as error:
        if item.config.getoption("--device") != "cpu" and "blockarray[cuda]" in str(error):
            pytest.skip(str(error))
        raise


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: collections of garbage need not look at them."""
    gc.freeze()


_FAKES = ("cuda-fake", "cuda-emulated")
#: Folders of tests that compile for the CPU, or run its runtime, whatever the default device is.
_CPU_FOLDERS = ("tests/compiler/", "tests/runtime/")


def _is_cpu_only(item: pytest.Item) -> bool:
    place = item.nodeid.replace(os.sep, "/")
    return "cpu_only" in item.keywords or (place.startswith(_CPU_FOLDERS) and "/cuda/" not in place)


def pytest_runtest_teardown() -> None:
    """A check that failed in a test, and that nobody asked for there, is no later test's."""
    checks = sys.modules.get("blockarray.checks")
    if checks is not None:
        checks._untold.clear()
        for waiting in checks._waiting.values():
            waiting.clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if on_gpu := [item for item in items if item.get_closest_marker("gpu")]:
        from blockarray.runtime.cuda import driver

        lacking = ("this one is a fake",) if config.getoption("--device") in _FAKES else driver.missing()
        if lacking:
            for item in on_gpu:
                item.add_marker(pytest.mark.skip(reason=f"no GPU: {'; '.join(lacking)}"))
    if config.getoption("--device") != "cpu":
        elsewhere = pytest.mark.skip(reason="about the CPU")
        for item in items:
            if _is_cpu_only(item):
                item.add_marker(elsewhere)
    if not config.getoption("--big"):
        small = pytest.mark.skip(reason="big: --big runs it, on a GPU with 80 GiB")
        for item in items:
            if "big" in item.keywords:
                item.add_marker(small)
    if config.getoption("--slow") or os.environ.get("BLOCKARRAY_SLOW"):
        return
    skip = pytest.mark.skip(reason="slow: --slow or BLOCKARRAY_SLOW=1 runs it")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
