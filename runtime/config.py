"""Settings, read once from BLOCKARRAY_* environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

#: What BLOCKARRAY_DEBUG may name: each prints one stage of what happens.
DEBUG_STAGES = ("graph", "fusion", "block", "llvm", "ptx", "asm", "time")
#: How float32 may be multiplied.
PRECISIONS = ("highest", "high", "ieee")
#: Elements of an array up to which it is tiny.
TINY = 512

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _flag(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "" | "0" | "false" | "no" | "off":
            return False
    raise ValueError("expected 1 or 0")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None
    if value < 1:
        raise ValueError("expected at least 1")
    return value


def _elements(text: str) -> int:
    match text.strip().lower():
        case "on":
            return TINY
        case "off" | "0":
            return 0
    return _count(text)


def _size(text: str) -> int:
    word = text.strip().lower().removesuffix("b").removesuffix("i")
    number, unit = (word[:-1], word[-1:]) if word[-1:] in _UNITS else (word, "")
    try:
        value = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise ValueError("expected a number of bytes, such as 500000, 64K, 512M or 2G") from None
    if value < 0:
        raise ValueError("expected at least 0")
    return value


def _stages(text: str) -> frozenset[str]:
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if unknown := sorted(names - set(DEBUG_STAGES)):
        raise ValueError(f"unknown stage {', '.join(unknown)}; expected some of {', '.join(DEBUG_STAGES)}")
    return names


def _folder(text: str) -> Path:
    if not text:
        raise ValueError("expected a folder")
    return Path(text).expanduser()


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text.strip()


def _precision(text: str) -> str:
    if text not in PRECISIONS:
        raise ValueError(f"expected one of {', '.join(PRECISIONS)}")
    return text


def _by(parse: Callable[[str], Any]) -> dict[str, Any]:
    return {"parse": parse}


@dataclass(slots=True)
class Config:
    """Every switch of the library.  Attribute `x` is read from the environment variable BLOCKARRAY_X.

    Sizes in bytes may end in K, M, G or T (powers of 1024); flags are 1 or 0.

    Attributes
    ----------
    device : str or None
        Default device, such as "cpu" or "cuda:0".  None: the first GPU that can be used, else the CPU.
    num_threads : int or None
        Threads that run a kernel.  None: as many as the CPUs that this process may use.
    cache_dir : Path or None
        Folder of compiled kernels.  None: blockarray/ in $XDG_CACHE_HOME or in ~/.cache.
    cache_limit : int
        Bytes of compiled kernels to keep on disk; 0 keeps none there.
    pool_limit : int or None
        Bytes of freed array memory to keep for new arrays.  None: a quarter of the memory of this machine, and of each
        GPU.
    device_memory_limit : int or None
        Bytes of memory to take from each GPU.  None: all there is.
    debug : frozenset of str
        Stages to print: graph, fusion, block, llvm, ptx, asm, time (separated by commas).
    dump : Path or None
        Folder to write numbered stage files to.
    interpret : bool
        Run kernels in the NumPy interpreter of the block IR.
    verify : bool
        Verify the IR after each pass.
    tiny : int
        Graphs of arrays that all have at most so many elements are interpreted, not compiled: "on" (the default), "off"
        or a number.
    max_pending : int
        Depth of a recorded graph at which its older part is computed without being asked for.
    matmul_precision : str
        How products of float32 are computed: "highest" (as accurately as in float32), "high" (with mantissas of 10
        bits, where that is faster) or "ieee" (in float32).
    """

    device: str | None = field(default=None, metadata=_by(_name))
    num_threads: int | None = field(default=None, metadata=_by(_count))
    cache_dir: Path | None = field(default=None, metadata=_by(_folder))
    cache_limit: int = field(default=512 << 20, metadata=_by(_size))
    pool_limit: int | None = field(default=None, metadata=_by(_size))
    device_memory_limit: int | None = field(default=None, metadata=_by(_size))
    debug: frozenset[str] = field(default=frozenset(), metadata=_by(_stages))
    dump: Path | None = field(default=None, metadata=_by(_folder))
    interpret: bool = field(default=False, metadata=_by(_flag))
    verify: bool = field(default=False, metadata=_by(_flag))
    tiny: int = field(default=TINY, metadata=_by(_elements))
    max_pending: int = field(default=128, metadata=_by(_count))
    matmul_precision: str = field(default="highest", metadata=_by(_precision))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """The configuration that the variables ask for; ValueError names one that cannot be read."""
        return cls(**{f.name: _read(f, environ[_variable(f)]) for f in fields(cls) if _variable(f) in environ})


def _variable(f: Field[Any]) -> str:
    return f"BLOCKARRAY_{f.name.upper()}"


def _read(f: Field[Any], text: str) -> Any:
    try:
        return f.metadata["parse"](text)
    except ValueError as error:
        raise ValueError(f"{_variable(f)}={text!r}: {error}") from None


config = Config.from_environ(os.environ)
