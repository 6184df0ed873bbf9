"""Machine code for block IR kernels: the caches in memory and on disk, and the compiler behind them."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path

from . import debug
from .compiler import cpu, passes
from .compiler.ir import Kernel
from .runtime import cache as disk
from .runtime import jit
from .runtime.config import config

_loaded: dict[str, Code] = {}
#: Names and seconds of the kernels that this process has compiled.
compiled: list[tuple[str, float]] = []


class Code:
    """A kernel's loaded code; `kernel` is set where the NumPy interpreter stands in for code."""

    __slots__ = ("function", "address", "kernel")

    def __init__(self, function: jit.Function | None, kernel: Kernel | None = None) -> None:
        self.function = function
        self.address = function.address if function else 0
        self.kernel = kernel

    def scratch(self, args_address: int) -> int:
        return self.function.scratch(args_address) if self.function else 0

    def workspace(self, args_address: int, threads: int) -> int:
        return self.function.workspace(args_address, threads) if self.function else 4096


def code_for(key: str, kernel: Kernel) -> Code:
    """Code for a kernel whose canonical text is `key`: loaded before, on disk, or compiled now."""
    found = _loaded.get(key)
    if found is None:
        found = _loaded[key] = _load(key, kernel)
    return found


def _load(key: str, kernel: Kernel) -> Code:
    if config.interpret:
        return Code(None, kernel)
    target = cpu.host_target()
    digest = hashlib.sha256("\0".join((key, target.key, _compiler_version())).encode()).hexdigest()
    stored = disk.get(digest)
    if stored is not None:
        try:
            return Code(jit.load(stored))
        except RuntimeError:
            pass  # An object that this process cannot load is compiled again.
    started = time.perf_counter()
    try:
        kernel = passes.run(kernel, check=config.verify)
        if config.debug or config.dump:
            debug.compiled(kernel, key)
        code = cpu.compile(kernel, target)
    except Exception as error:
        raise RuntimeError(f"cannot compile the kernel of {kernel.name.replace('_', ', ')}: {error}\n{key}") from error
    compiled.append((kernel.name, time.perf_counter() - started))
    disk.put(digest, code)
    return Code(jit.load(code))


@cache
def _compiler_version() -> str:
    """A hash of the compiler's source: code of another compiler is never used."""
    folder = Path(cpu.__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
