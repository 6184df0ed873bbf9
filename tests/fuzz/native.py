"""Running one compiled kernel, with its memory under guard."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from blockarray.compiler import cpu, dtypes
from blockarray.compiler.cpu.target import host_target
from blockarray.compiler.ir import Kernel
from blockarray.runtime import jit

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
_GUARD = 256


class Canary:
    """A copy of an array between bytes that must not change."""

    def __init__(self, array: np.ndarray) -> None:
        self.whole = np.full(array.nbytes + 2 * _GUARD, 0x5A, np.uint8)
        self.array = self.whole[_GUARD : _GUARD + array.nbytes].view(array.dtype)
        self.array[:] = array

    def check(self) -> None:
        assert (self.whole[:_GUARD] == 0x5A).all(), "wrote before a buffer"
        assert (self.whole[len(self.whole) - _GUARD :] == 0x5A).all(), "wrote past a buffer"


class Cliff:
    """A copy of an array that ends (or starts) where memory does: an access beyond it ends the process."""

    def __init__(self, array: np.ndarray, at_end: bool) -> None:
        page = mmap.PAGESIZE
        pages = -(-max(array.nbytes, 1) // page)
        self.memory = mmap.mmap(-1, (pages + 2) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (base, base + (pages + 1) * page):
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = page + pages * page - array.nbytes if at_end else page
        self.array = np.frombuffer(self.memory, np.uint8, array.nbytes, start).view(array.dtype)
        self.array[:] = array

    def check(self) -> None:
        pass


Guard = Callable[[np.ndarray], Any]


def run(kernel: Kernel, args: list[Any], guard: Guard = Canary, parts: int = 1) -> list[Any]:
    """Compile a kernel and run it on copies of the arguments, its grid in `parts` calls, the last part first.

    The arguments afterwards.
    """
    function = jit.load(cpu.compile(kernel, host_target()))
    slots: list[int] = []
    guarded: dict[int, Any] = {}
    sizes = {}
    for k, (param, arg) in enumerate(zip(kernel.params, args, strict=True)):
        if param.type.pointer:
            guarded[k] = guard(arg)
            slots.append(guarded[k].array.ctypes.data)
        else:
            raw = np.zeros(2 if param.type.dtype in dtypes.COMPLEX else 1, np.int64)
            raw.view(np.uint8)[: dtypes.SIZE[param.type.dtype]].view(dtypes.NUMPY[param.type.dtype])[0] = arg
            slots += raw.tolist()
            sizes[param] = arg
    packed = np.array([*slots, 0], np.int64)
    error = np.zeros(8, np.int64)
    packed[-1] = error.ctypes.data
    programs = int(np.prod([-(-sizes[axis.size] // axis.block) for axis in kernel.grid], dtype=np.int64))
    need = function.scratch(packed.ctypes.data)
    scratch = Canary(np.full(need + 64, 0xFF, np.uint8))
    address = scratch.array.ctypes.data
    call = _RUN(function.address)
    cuts = np.linspace(0, programs, parts + 1).astype(int).tolist()
    for begin, end in reversed(list(pairwise(cuts))):
        call(packed.ctypes.data, begin, end, address + -address % 64, 0)
    for g in (*guarded.values(), scratch):
        g.check()
    return [guarded[k].array if k in guarded else arg for k, arg in enumerate(args)]
