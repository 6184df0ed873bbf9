"""Compiling kernels side by side, in processes of their own: LLVM's bindings let one thread of a process compile.

`python -m blockarray.compiling` is such a process: it reads pickled pairs of a device's capability (None: the CPU) and
a kernel's text, and writes the code of each, or what went wrong.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from . import kernels
from .runtime import limits
from .runtime.config import config
from .runtime.device import CudaDevice, Device

#: Processes at most, and kernels that one is started for at least.
_MOST, _EACH = 16, 2


def compile_ahead(missing: Iterable[str], device: Device) -> None:
    """Compile kernels, given by their canonical texts, and keep their code in the cache.

    What cannot be compiled is left out: whoever asks for it will see why.
    """
    capability = device.capability if isinstance(device, CudaDevice) else None
    compiler = kernels.backend_of(device).compiler
    texts: SimpleQueue[str] = SimpleQueue()
    wanted = [] if config.interpret or not isinstance(compiler, ModuleType) else kernels.absent(missing, device)
    for text in wanted:
        texts.put(text)
    count = min(_MOST, limits.cpus(), len(wanted) // _EACH)
    if count > 1:
        with ThreadPoolExecutor(count) as pool:
            for _ in range(count):
                pool.submit(_feed, texts, capability, device)


def _feed(texts: SimpleQueue[str], capability: tuple[int, int] | None, device: Device) -> None:
    """Have one process compile what is in a queue."""
    process: subprocess.Popen[bytes] | None = None
    try:
        while True:
            text = texts.get_nowait()
            process = process or _start()
            assert process.stdin is not None and process.stdout is not None
            try:
                pickle.dump((capability, text), process.stdin)
                process.stdin.flush()
                code = pickle.load(process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):  # LLVM ended it
                process.kill()
                process.communicate()
                process = None
                continue
            if isinstance(code, bytes):
                kernels.keep(text, device, code)
    except Empty:
        pass
    finally:
        if process is not None:
            process.communicate()


def _start() -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([p or os.getcwd() for p in sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def main() -> None:
    # Libraries may print: replies have a channel of their own, which was standard output.
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        while True:
            try:
                capability, text = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            reply: Any
            try:
                reply = kernels.compiled_text(text, capability)
            except Exception as error:  # the parent notes it as why this candidate has no time
                reply = str(error)
            pickle.dump(reply, replies)
            replies.flush()


if __name__ == "__main__":
    main()
