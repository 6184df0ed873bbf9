"""Runs kernels as machine code, beside the interpreter."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from blockarray.compiler import cpu, dtypes, interpreter
from blockarray.compiler.ir import Kernel
from blockarray.compiler.parser import parse
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify
from blockarray.runtime import jit

_RUN = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64])


@lru_cache(32)
def _function(key: str) -> jit.Function:
    """The machine code of a kernel's text: tests run the same kernel on several arguments."""
    return jit.load(cpu.compile(parse(key), cpu.host_target()))


class Compiled:
    """A kernel's machine code, to call with the interpreter's arguments."""

    def __init__(self, kernel: Kernel) -> None:
        verify(kernel)
        self.kernel = kernel
        self.function = _function(text(kernel))
        self._call = _RUN(self.function.address)

    def slots(self, args: list[Any]) -> np.ndarray:
        words = bytearray()
        for param, arg in zip(self.kernel.params, args, strict=True):
            if param.type.pointer:
                array, start = arg if isinstance(arg, tuple) else (arg, 0)
                words += np.int64(array.ctypes.data + start * array.itemsize).tobytes()
            else:
                raw = np.asarray(arg, dtypes.NUMPY[param.type.dtype])
                for part in (np.real(raw), np.imag(raw)) if raw.dtype.kind == "c" else (raw,):
                    words += part.tobytes().ljust(8, b"\0")
        return np.frombuffer(bytes(words), np.int64).copy()

    def programs(self, args: list[Any]) -> int:
        sizes = dict(zip(self.kernel.params, args, strict=True))
        return int(np.prod([-(-int(sizes[axis.size]) // axis.block) for axis in self.kernel.grid], dtype=np.int64))

    def __call__(self, args: list[Any]) -> None:
        slots = self.slots(args)
        size = self.function.scratch(slots.ctypes.data)
        scratch = np.full(size + 64, 0xA5, np.uint8)
        start = -scratch.ctypes.data % 64
        # Some programs at a time, as threads would.
        count = self.programs(args)
        for begin in range(0, count, 3):
            end = min(begin + 3, count)
            self._call(slots.ctypes.data, begin, end, scratch.ctypes.data + start, 0)


def check(kernel: Kernel, args: list[Any], rtol: float = 0, atol: float = 0, compiled: Compiled | None = None) -> None:
    """Compare the arrays that machine code and interpreter leave."""
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    found = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpreter.run(kernel, wanted)
    (compiled or Compiled(kernel))(found)
    for want, have in zip(wanted, found, strict=True):
        if not isinstance(want, np.ndarray):
            continue
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want)
            continue
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=rtol, atol=atol)
