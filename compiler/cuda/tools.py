"""Where the parts of the CUDA toolkit are that the compiler uses: ptxas and libdevice."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

WHEELS = 'pip install "nvidia-cuda-nvcc>=13" (or the blockarray[cuda] extra)'


def _roots() -> Iterator[Path]:
    """Folders that may hold bin/ptxas and nvvm/libdevice: the user's choice first, then wheels, then installations."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        # nvidia/cu13 since CUDA 13; before, a folder a wheel.
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)
        yield Path(folder) / "cuda_nvcc"
    for program in ("ptxas", "nvcc"):
        found = shutil.which(program)
        if found:
            yield Path(found).resolve().parent.parent
    for place in ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"):
        yield Path(place)


@cache
def ptxas() -> Path | None:
    """The assembler, or None."""
    name = "ptxas.exe" if os.name == "nt" else "ptxas"
    found = [root / "bin" / name for root in _roots() if (root / "bin" / name).is_file()]
    return found[0] if found else None


@cache
def libdevice() -> Path | None:
    """NVIDIA's library of mathematical functions in LLVM bitcode, or None."""
    for root in _roots():
        path = root / "nvvm" / "libdevice" / "libdevice.10.bc"
        if path.is_file():
            return path
    return None


@cache
def identity() -> str:
    """Tells one installation of both from another."""
    files = [(path, path.stat()) for path in (ptxas(), libdevice()) if path is not None]
    return ";".join(f"{path}:{info.st_size}:{info.st_mtime_ns}" for path, info in files)
