"""Mathematical functions of the host: libm's, and libmvec's on vectors where glibc has it."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform

import llvmlite.binding as llvm

#: Widest first: the host features that it needs, the letter of its variants (vector function ABI), bytes in a vector.
_X86 = (("avx512f", "e", 64), ("avx2", "d", 32), ("sse2", "b", 16))
_TWO_OPERANDS = frozenset(("pow", "atan2", "hypot"))


class HostMath:
    """A `MathTarget` for the machine that this process runs on."""

    def __init__(self) -> None:
        math = ctypes.util.find_library("m")
        if math:
            llvm.load_library_permanently(math)
        self._library: ctypes.CDLL | None = None
        self._letter, self._bytes = "", 0
        variant = _variant()
        if variant:
            try:
                self._library = ctypes.CDLL("libmvec.so.1", ctypes.RTLD_GLOBAL)
                llvm.load_library_permanently("libmvec.so.1")
                self._letter, self._bytes = variant
            except (OSError, RuntimeError):
                self._library = None  # not glibc

    def vector_function(self, name: str, elem: str, lanes: int) -> tuple[str, int] | None:
        # One variant for every number of lanes: those of different widths round differently.
        width = self._bytes // (4 if elem == "float" else 8)
        operands = "vv" if name in _TWO_OPERANDS else "v"
        symbol = f"_ZGV{self._letter}N{width}{operands}_{self.scalar_function(name, elem)}"
        return (symbol, width) if self._library is not None and hasattr(self._library, symbol) else None

    def emitter(self, name: str, elem: str) -> None:
        return None

    def calls(self, name: str, elem: str) -> bool:
        return False

    def approximation(self, name: str) -> str | None:
        return None

    def scalar_function(self, name: str, elem: str) -> str:
        return name + "f" if elem == "float" else name


def _variant() -> tuple[str, int] | None:
    machine = platform.machine()
    if machine == "aarch64":
        return "n", 16
    if machine in ("x86_64", "AMD64"):
        features = llvm.get_host_cpu_features()
        return next((letter, size) for feature, letter, size in _X86 if feature == "sse2" or features.get(feature))
    return None


#: Made on import: code from the disk cache calls these libraries in processes that compile nothing.
_HOST = HostMath()


def host_math() -> HostMath:
    return _HOST
