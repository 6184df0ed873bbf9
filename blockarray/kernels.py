"""Machine code for block IR kernels: the caches in memory and on disk, and the compiler behind them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from . import debug
from .compiler import cpu, passes
from .compiler.ir import Kernel
from .compiler.parser import parse
from .runtime import cache as disk
from .runtime import jit
from .runtime.config import config
from .runtime.device import CPU, CudaDevice, Device

_loaded: dict[tuple[str, Any], Code] = {}
#: Names and seconds of the kernels that this process has compiled.
compiled: list[tuple[str, float]] = []


class Code:
    """A kernel's loaded code; `kernel` is set where the NumPy interpreter stands in for code."""

    __slots__ = ("function", "address", "kernel")

    def __init__(self, function: Any, kernel: Kernel | None = None) -> None:
        #: A jit.Function, or on a GPU a runtime.cuda.launch.Function.
        self.function = function
        self.address = function.address if isinstance(function, jit.Function) else 0
        self.kernel = kernel

    def scratch(self, args_address: int) -> int:
        return self.function.scratch(args_address) if self.function else 0

    def workspace(self, args_address: int, threads: int) -> int:
        return self.function.workspace(args_address, threads) if self.function else 4096


def code_for(key: str, kernel: Kernel, device: Device = CPU) -> Code:
    """Code for a kernel whose canonical text is `key`: loaded before, on disk, or compiled now."""
    backend = backend_of(device)
    found = _loaded.get((key, backend.target))
    if found is None:
        if config.interpret:
            found = Code(None, kernel)
        else:
            found = _load(key, kernel.name, backend, lambda: _compiled(key, kernel, backend))
        _loaded[key, backend.target] = found
    return found


def code_for_routine(made: Sequence[Any], device: CudaDevice) -> list[Code]:
    """Code for a routine's kernels, each a compiler.cuda.codegen.Code; what is missing is compiled side by side."""
    backend = _cuda(device.capability)
    missing = {m.text: m for m in made if (m.text, backend.target) not in _loaded}
    if missing:
        load = lambda m: _load(m.text, "routine", backend, lambda: backend.compiler.package(m, backend.target))
        with ThreadPoolExecutor() as pool:
            for text, code in zip(missing, pool.map(load, missing.values())):
                _loaded[text, backend.target] = code
    return [_loaded[m.text, backend.target] for m in made]


class Backend(NamedTuple):
    """What compiles for a target, and what loads its code."""

    compiler: Any
    target: Any
    load: Callable[[bytes], Any]


def backend_of(device: Device) -> Backend:
    return _cuda(device.capability) if isinstance(device, CudaDevice) else _cpu()


@cache
def _cpu() -> Backend:
    return Backend(cpu, cpu.host_target(), jit.load)


@cache
def _cuda(capability: tuple[int, int]) -> Backend:
    from .compiler import cuda  # which is large, and of use to a GPU only
    from .runtime.cuda import launch

    cuda.set_cache(disk.get, disk.put)
    return Backend(cuda, cuda.make_target(capability), launch.load)


def _load(key: str, name: str, backend: Backend, compile: Callable[[], bytes]) -> Code:
    """Code from the disk, or from the compiler."""
    _, target, load = backend
    digest = _digest(key, target)
    stored = disk.get(digest)
    if stored is not None:
        try:
            return Code(load(stored))
        except RuntimeError:
            pass  # An object that this process cannot load is compiled again.
    started = time.perf_counter()
    try:
        code = compile()
    except Exception as error:
        raise RuntimeError(f"cannot compile the kernel of {name.replace('_', ', ')}: {error}\n{key}") from error
    compiled.append((name, time.perf_counter() - started))
    disk.put(digest, code)
    return Code(load(code))


def _digest(key: str, target: Any) -> str:
    """What code is kept under on disk."""
    return hashlib.sha256("\0".join((key, target.key, compiler_version())).encode()).hexdigest()


def absent(keys: Iterable[str], device: Device) -> list[str]:
    """The kernels, by their canonical texts, whose code is neither loaded nor on disk."""
    target = backend_of(device).target
    return [key for key in keys if (key, target) not in _loaded and disk.get(_digest(key, target)) is None]


def compiled_text(key: str, capability: tuple[int, int] | None) -> bytes:
    """The code of a kernel for a GPU of some capability, or for the CPU."""
    return _compiled(key, parse(key), _cpu() if capability is None else _cuda(capability))


def keep(key: str, device: Device, code: bytes) -> None:
    """Put code that another process compiled on disk."""
    disk.put(_digest(key, backend_of(device).target), code)


def _compiled(key: str, kernel: Kernel, backend: Backend) -> bytes:
    compiler, target, _ = backend
    kernel = passes.run(kernel, check=config.verify)
    if config.debug or config.dump:
        debug.compiled(kernel, key, compiler, target)
    return compiler.compile(kernel, target)


@cache
def compiler_version() -> str:
    """A hash of the compiler's source: code of another compiler is never used."""
    folder = Path(cpu.__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted([os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]):
        if path.endswith(".py"):
            digest.update(Path(path).read_bytes())
    return digest.hexdigest()
