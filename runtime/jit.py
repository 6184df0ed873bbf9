"""Loading machine code into the process."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

_names = itertools.count()
_lock = threading.RLock()
_jit: llvm.LLJIT | None = None

_SIZE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class Function:
    """A kernel's code in memory; it is unloaded when nobody refers to the object.

    Attributes
    ----------
    address : int
        Address of the kernel K.
    scratch_address, workspace_address : int
        Addresses of K_scratch and K_workspace, 0 where the object lacks them.
    """

    __slots__ = ("address", "scratch_address", "workspace_address", "_scratch", "_workspace", "_library")

    def __init__(self, library: Any, symbol: str, companions: Sequence[str]) -> None:
        scratch, workspace = f"{symbol}_scratch", f"{symbol}_workspace"
        self.address: int = library[symbol]
        self.scratch_address: int = library[scratch] if scratch in companions else 0
        self.workspace_address: int = library[workspace] if workspace in companions else 0
        self._scratch = _SIZE(self.scratch_address) if self.scratch_address else None
        self._workspace = _SIZE(self.workspace_address) if self.workspace_address else None
        self._library = library

    def scratch(self, args_address: int) -> int:
        """Bytes of scratch that each thread needs for these arguments."""
        return self._scratch(args_address, 0) if self._scratch else 0

    def workspace(self, args_address: int, threads: int = 1) -> int:
        """Bytes of workspace that a team of `threads` shares for these arguments."""
        return self._workspace(args_address, threads) if self._workspace else 0


def load(code: bytes, symbol: str = "kernel") -> Function:
    """Load an object file.

    Parameters
    ----------
    code : bytes
        The object file, for this machine.
    symbol : str
        Name of the kernel in it.

    Raises
    ------
    RuntimeError
        If the object is not one for this machine, or refers to functions that the process lacks.
    """
    companions = [name for name in (f"{symbol}_scratch", f"{symbol}_workspace") if _defines(code, name)]
    return Function(link(code, [symbol, *companions]), symbol, companions)


def link(code: bytes, symbols: Sequence[str]) -> Any:
    """Load an object file; `result[symbol]` is an address, good for as long as somebody holds the result."""
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
        builder.export_symbol(symbol)
    return builder.link(engine(), f"blockarray{next(_names)}")


def engine() -> llvm.LLJIT:
    """The process's one JIT engine; it lives as long as the process."""
    global _jit
    if _jit is None:
        with _lock:
            if _jit is None:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
                # JITLink puts an object's sections side by side.  The older linker may put them too far apart for their
                # references where a GPU's driver has mapped most of the address space, and then ends the process.
                _jit = llvm.create_lljit_compiler(machine, use_jit_link=True)
    return _jit


def _before_fork() -> None:
    # llvmlite's own lock as well: a thread that is inside LLVM now does not exist in the child, to release it.
    _lock.acquire()
    ffi.lib._lock.__enter__()


def _after_fork() -> None:
    ffi.lib._lock.__exit__()
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _defines(code: bytes, symbol: str) -> bool:
    # In every object format the string table holds a symbol's name, followed by a zero byte.
    return symbol.encode() + b"\0" in code
