"""What the machine that runs the code can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

#: The function that runs programs; SYMBOL + "_scratch", where there is one, tells how much scratch it needs.
SYMBOL = "kernel"


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU that LLVM can generate code for."""

    triple: str
    cpu: str
    features: str
    #: Bytes of a native SIMD register.
    vector_bytes: int
    #: Bytes of the data caches that a core can count on.
    l1: int
    l2: int
    l3: int
    #: Says everything above that changes the code, for cache keys.
    key: str

    def has(self, feature: str) -> bool:
        """Whether `feature` (LLVM's name, such as "avx512bw") is present."""
        return f"+{feature}" in self.features.split(",")

    @property
    def masked(self) -> frozenset[int]:
        """Element sizes in bytes for which masked vector loads and stores are instructions."""
        if self.has("avx512bw") and self.has("avx512vl"):
            return frozenset((1, 2, 4, 8))
        return frozenset((4, 8)) if self.has("avx2") or self.has("avx512f") or self.has("sve") else frozenset()

    def machine(self) -> llvm.TargetMachine:
        """A new LLVM target machine for position-independent code."""
        # Levels above 1 generate code for longer, and none that is measurably faster.
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=1, reloc="pic", codemodel="small", jit=False
        )


def vector_bytes(features: frozenset[str]) -> int:
    """Bytes of the widest SIMD register that the features give."""
    if "+avx512f" in features:
        return 64
    return 32 if "+avx2" in features or "+avx" in features else 16


def cache_sizes() -> tuple[int, int, int]:
    """L1, L2 and L3 data cache bytes of a core, as Linux tells, or common sizes."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "type").read_text().strip() != "Instruction":
                text = (index / "size").read_text().strip()
                unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
                sizes[int((index / "level").read_text())] = int(text.rstrip("KM")) * unit
        except (OSError, ValueError):
            continue
    return sizes[1], sizes[2], sizes[3]


def make_target(triple: str, cpu: str, features: str) -> Target:
    """A target by LLVM's names, with this machine's caches."""
    l1, l2, l3 = cache_sizes()
    key = f"{triple};{cpu};{features};{l1};{l2};{l3};llvmlite {llvmlite.__version__};llvm {llvm.llvm_version_info}"
    return Target(triple, cpu, features, vector_bytes(frozenset(features.split(","))), l1, l2, l3, key)


@lru_cache(maxsize=1)
def host_target() -> Target:
    """The CPU that this process runs on."""
    features = llvm.get_host_cpu_features().flatten()
    return make_target(llvm.get_default_triple(), llvm.get_host_cpu_name(), features)
