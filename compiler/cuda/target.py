"""What an NVIDIA GPU can do, and its functions for the emitters of mathematics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import llvmlite
import llvmlite.binding as llvm

from ..llvm.lanes import Lanes
from . import doubles, tools

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
# Code that wants wide accesses says so; looking for more takes time quadratic in the number of accesses.
llvm.set_option("blockarray", "-disable-nvptx-load-store-vectorizer")

#: The kernel's entry point.
SYMBOL = "kernel"
TRIPLE = "nvptx64-nvidia-cuda"
DATA_LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
#: Compute capability -> (architecture, version of PTX, bytes of shared memory that a block may have).
_KNOWN = {
    (7, 0): ("sm_70", 63, 96), (7, 2): ("sm_72", 63, 96), (7, 5): ("sm_75", 63, 64),
    (8, 0): ("sm_80", 71, 163), (8, 6): ("sm_86", 71, 99), (8, 7): ("sm_87", 74, 163), (8, 9): ("sm_89", 78, 99),
    (9, 0): ("sm_90a", 83, 227), (10, 0): ("sm_100a", 86, 227), (10, 3): ("sm_103a", 88, 227),
    (11, 0): ("sm_110a", 90, 227), (12, 0): ("sm_120a", 87, 99), (12, 1): ("sm_121a", 88, 99),
}  # fmt: skip
#: Functions that the emitters can compute in line, but that libdevice computes with fewer instructions within the
#: op table's bounds.  Its exp2 of floats is the hardware's approximation, which is not within them.
_CALLED = {
    "float": frozenset(("exp", "log", "log2", "tanh", "hypot")),
    "double": frozenset(),
}
#: Names of intrinsics that are single instructions on floats.
_EXTREMA = {"maximum": "maximum", "minimum": "minimum", "fmax": "maxnum", "fmin": "minnum"}
#: Functions of floats within 2 ULP.
_APPROXIMATIONS = {
    "inverse": "llvm.nvvm.rcp.approx.ftz.f", "power of two": "llvm.nvvm.ex2.approx.ftz.f",
    "sqrt": "llvm.nvvm.sqrt.approx.f",
    # Within 2**-10.9, relative: enough for bfloat16s only.
    "tanh": "llvm.nvvm.tanh.approx.f32",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A GPU architecture that LLVM can generate code for."""

    #: LLVM's and ptxas's name; with an `a`, code is for this architecture only.
    arch: str
    #: Version of PTX, times ten.
    ptx: int
    #: Bytes of shared memory that a block may have.
    shared: int
    warp: int = 32

    @property
    def sm(self) -> int:
        """The compute capability, times ten."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))

    @property
    def bf16(self) -> bool:
        """Whether it converts to bfloat16, and multiplies matrices of it."""
        return self.sm >= 80

    @property
    def float8(self) -> bool:
        """Whether it converts floats of 8 bits, and multiplies matrices of them."""
        return self.sm >= 89

    @property
    def clusters(self) -> bool:
        """Whether blocks of a cluster run at once and reach each other's shared memory."""
        return self.sm >= 90

    @property
    def async_copy(self) -> bool:
        """Whether it copies from global to shared memory past the registers."""
        return self.sm >= 80

    @cached_property
    def key(self) -> str:
        """Says everything that changes the code, for cache keys."""
        versions = f"llvmlite {llvmlite.__version__};llvm {llvm.llvm_version_info}"
        return f"{self.arch};{self.ptx};{self.shared};{versions};{tools.identity()}"

    def machine(self) -> llvm.TargetMachine:
        """A new LLVM target machine."""
        target = llvm.Target.from_triple(TRIPLE)
        return target.create_target_machine(cpu=self.arch, features=f"+ptx{self.ptx}", opt=3, codemodel="default")

    # -- MathTarget ---------------------------------------------------------------------------------------------------
    def vector_function(self, name: str, elem: str, lanes: int) -> tuple[str, int] | None:
        return None

    def scalar_function(self, name: str, elem: str) -> str:
        return f"__nv_{name}f" if elem == "float" else f"__nv_{name}"

    def emitter(self, name: str, elem: str) -> Callable[..., Lanes] | None:
        if elem == "double":
            return doubles.EMITTERS.get(name)
        extremum = _EXTREMA.get(name)
        if extremum is None or self.sm < 80:
            return None
        return lambda m, a, b: a.call(extremum, b)

    def calls(self, name: str, elem: str) -> bool:
        return name in _CALLED[elem]

    def approximation(self, name: str) -> str | None:
        return _APPROXIMATIONS.get(name)


def make_target(capability: tuple[int, int]) -> Target:
    """The target of a compute capability, such as (9, 0).

    One that is newer than this compiler gets code for the newest architecture that it knows, as PTX which the driver
    can translate; ValueError for one that is too old.
    """
    if capability in _KNOWN:
        arch, ptx, shared = _KNOWN[capability]
    else:
        older = [c for c in _KNOWN if c < capability]
        if not older:
            raise ValueError(f"GPUs of compute capability {'.'.join(map(str, capability))} are not supported")
        arch, ptx, shared = _KNOWN[max(older)]
        arch, shared = arch.rstrip("a"), min(shared, 99)
    return Target(arch, ptx, shared << 10)
