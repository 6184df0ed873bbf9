"""The CUDA driver: loading it, its errors, and one context a device.

`api` is the module cuda.bindings.driver once the driver is in use.  Its functions return tuples, a status first:

    context.enter()
    value = context.check(api.cuSomething(...))
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

#: What the compiler's code needs: bfloat16 and asynchronous copies.
MIN_CAPABILITY = (8, 0)
#: A driver of CUDA 12.0.
_MIN_VERSION = 12000

#: cuda.bindings.driver, once loaded.
api: Any = None
#: The driver's own cuLaunchKernelEx, of four addresses: the bindings' takes longer than all else of a launch.
launch_kernel: Any = None

#: Errors after which a context is of no more use.
_STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION", "LAUNCH_FAILED",
        "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE",
        "CONTEXT_IS_DESTROYED", "TENSOR_MEMORY_LEAK", "CONTAINED", "MPS_CLIENT_TERMINATED", "EXTERNAL_DEVICE",
        "UNKNOWN",
    )
)  # fmt: skip


class Properties(NamedTuple):
    """What a device is.

    Attributes
    ----------
    name : str
        The product's name.
    capability : tuple of int
        Compute capability, such as (9, 0).
    multiprocessors : int
        Their number.
    total_memory : int
        Bytes of device memory.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    total_memory: int


class _Local(threading.local):
    context: Context | None = None


_local = _Local()
_lock = threading.Lock()
_contexts: dict[int, Context] = {}
#: Whether other users of CUDA may make another device's context a thread's current one.
_several = False
#: What keeps GPUs from being used; None before anybody asked.
_missing: tuple[str, ...] | None = None


def missing() -> tuple[str, ...]:
    """What a GPU cannot be used for want of, in words; () where one can be used."""
    global _missing
    if _missing is None:
        with _lock:
            if _missing is None:
                _missing = tuple(_load())
    return _missing


def indices() -> tuple[int, ...]:
    """Numbers of the devices that can be used."""
    return () if missing() else _usable()


@cache
def properties(index: int) -> Properties:
    """What device `index` is; makes no context."""
    device = check(api.cuDeviceGet(index))
    name = check(api.cuDeviceGetName(256, device))
    return Properties(
        name.partition(b"\0")[0].decode(errors="replace"),
        (_attribute(device, "COMPUTE_CAPABILITY_MAJOR"), _attribute(device, "COMPUTE_CAPABILITY_MINOR")),
        _attribute(device, "MULTIPROCESSOR_COUNT"),
        check(api.cuDeviceTotalMem(device)),
    )


def context(index: int) -> Context:
    """The context of device `index`, made if need be."""
    found = _contexts.get(index)
    if found is None:
        if lacking := missing():
            raise RuntimeError(f"cuda:{index} cannot be used: {'; '.join(lacking)}")
        with _lock:
            found = _contexts.get(index)
            if found is None:
                found = _contexts[index] = Context(index)
    return found


class Context:
    """A device's primary context and the stream on which its work happens.

    Attributes
    ----------
    index : int
        The device's number.
    handle, stream : object
        The driver's handles.
    fault : str or None
        Why the device can no longer be used.
    spare : dict
        Events that nobody uses, by whether they take the time.
    """

    __slots__ = ("index", "device", "handle", "stream", "fault", "spare")

    def __init__(self, index: int) -> None:
        self.index = index
        self.fault: str | None = None
        self.spare: dict[bool, list[Any]] = {False: [], True: []}
        self.device = check(api.cuDeviceGet(index))
        self.handle = check(api.cuDevicePrimaryCtxRetain(self.device))
        self.enter()
        # It waits for the legacy default stream, and that for it: memory that is shared with others who use the
        # default stream needs no more care.
        self.stream = self.check(api.cuStreamCreate(int(api.CUstream_flags.CU_STREAM_DEFAULT)))

    def enter(self) -> None:
        """Make this the calling thread's context."""
        if self.fault is not None:
            raise RuntimeError(self.fault)
        if _local.context is not self or _several:
            self.check(api.cuCtxSetCurrent(self.handle))
            _local.context = self

    def check(self, result: tuple[Any, ...]) -> Any:
        """The value of a driver call on this device, or its error."""
        return check(result, self)

    def attribute(self, name: str) -> int:
        """A CU_DEVICE_ATTRIBUTE."""
        return _attribute(self.device, name)

    def synchronize(self) -> None:
        """Wait until everything on the stream is done."""
        self.enter()
        self.check(api.cuStreamSynchronize(self.stream))


def check(result: tuple[Any, ...], context: Context | None = None) -> Any:
    """The value in a driver call's result.

    Raises
    ------
    MemoryError
        If there is not enough memory.
    RuntimeError
        For every other error; `context` is of no more use if it is one that destroys contexts.
    """
    status = result[0]
    if status:
        raise _error(status, context)
    return result[1] if len(result) == 2 else result[1:] or None


def _error(status: Any, context: Context | None) -> Exception:
    name = status.name
    reason = api.cuGetErrorString(status)[1]
    message = f"{name}: {reason.decode()}" if isinstance(reason, bytes) else name
    if name in _STICKY and context is not None:
        if context.fault is None:
            context.fault = (
                f"cuda:{context.index} can no longer be used by this process and the arrays on it are lost, since a "
                f"kernel or copy failed earlier with {message}"
            )
        return RuntimeError(
            f"a kernel or copy on cuda:{context.index} failed with {message}; the arrays on this device are lost"
        )
    return MemoryError(message) if name == "CUDA_ERROR_OUT_OF_MEMORY" else RuntimeError(message)


def _attribute(device: Any, name: str) -> int:
    return check(api.cuDeviceGetAttribute(getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))


def _load() -> Sequence[str]:
    """Load the driver and start it; what is lacking, in words."""
    global launch_kernel
    lacking = []
    # The driver first: without one there is no point in the bindings, which take a while to import.
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        if hasattr(library, "cuLaunchKernelEx"):  # else it is too old, which `_start` says
            launch_kernel = library.cuLaunchKernelEx
            launch_kernel.argtypes = [ctypes.c_void_p] * 4
    except OSError:
        lacking.append("no NVIDIA driver is installed (libcuda.so.1 was not found)")
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        lacking.append("the package cuda-bindings is not installed: pip install 'blockarray[cuda]'")
    return lacking or _start(importlib.import_module("cuda.bindings.driver"))


def _start(bindings: Any) -> Sequence[str]:
    global api, _several
    api = bindings
    try:
        check(api.cuInit(0))
        if (version := check(api.cuDriverGetVersion())) < _MIN_VERSION:
            return [f"the NVIDIA driver is too old: it knows CUDA {version // 1000}.{version % 1000 // 10}, not 12.0"]
        _several = check(api.cuDeviceGetCount()) > 1
        if not _usable():
            return [f"no GPU of compute capability {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or newer, with memory pools"]
    except Exception as error:  # The bindings raise errors of their own, which differ between versions.
        return [f"the NVIDIA driver cannot be used ({error})"]
    return ()


@cache
def _usable() -> tuple[int, ...]:
    found = range(check(api.cuDeviceGetCount()))
    # Virtual GPUs may lack memory pools.
    pools = [i for i in found if _attribute(check(api.cuDeviceGet(i)), "MEMORY_POOLS_SUPPORTED")]
    return tuple(i for i in pools if properties(i).capability >= MIN_CAPABILITY)


def _after_fork() -> None:
    global _lock, _missing
    _lock = threading.Lock()
    if api is not None and not _missing:
        # The driver does not work in a child, and may hang.
        reason = "CUDA was in use before this process was forked; start worker processes with the 'spawn' method"
        _missing = (reason,)
        for context in _contexts.values():
            context.fault = f"cuda:{context.index} cannot be used: {reason}"


os.register_at_fork(after_in_child=_after_fork)
