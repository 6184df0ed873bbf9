"""Loading code and launching kernels."""

from __future__ import annotations

import ctypes
import json
import struct
import threading
from collections.abc import Sequence
from typing import Any

from .. import slots
from ..device import CudaDevice
from . import driver
from .tensor_maps import TensorMaps

ENTRY = b"kernel"
#: The driver's bound on the first axis of a grid.
MAX_BLOCKS = (1 << 31) - 1
#: Dynamic shared memory that a kernel may use without asking.
_SHARED = 48 << 10
_LOG = 16 << 10
#: Sizes of grids by which a function remembers how it is launched.
_CONFIGS = 64
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Config(ctypes.Structure):
    """The driver's CUlaunchConfig, and behind it room for one CUlaunchAttribute."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("attribute", ctypes.c_uint64 * 9),
    )


class Function:
    """A kernel's code; each device loads it at the first launch there.

    Attributes
    ----------
    threads : int
        Threads of a block.
    cluster : int
        Blocks of a program.
    shared : int
        Bytes of dynamic shared memory of a block.
    header : dict
        What the compiler says of it.
    code : bytes
        A cubin, or PTX that ends in a zero byte.
    resident : int
        If not 0: blocks of a processor that together go through all programs.
    waits : bool
        Whether it waits itself for what is queued before it, so that it may begin before that has ended.
    loaded : dict
        Contexts, the driver's handles, as integers, and the most programs of a launch by device.
    """

    __slots__ = (
        "threads", "cluster", "resident", "waits", "shared", "header", "code", "loaded", "_constant", "_per_program",
        "_configs",
    )  # fmt: skip

    def __init__(self, header: dict[str, Any], code: bytes) -> None:
        self.header = header
        self.threads = int(header["threads"])
        self.cluster = int(header.get("cluster", 1))
        self.resident = int(header.get("resident", 0))
        self.waits = bool(header.get("waits", False))
        self.shared = int(header["shared"])
        self._constant, self._per_program = map(int, header["workspace"])
        self.code = code + b"\0" if header["format"] == "ptx" else code
        self.loaded: dict[int, tuple[driver.Context, int, int]] = {}
        self._configs: dict[tuple[int, int, int | None], _Config] = {}

    def workspace(self, programs: int) -> int:
        """Bytes of workspace that a launch needs."""
        return self._constant + self._per_program * programs

    def load(self, index: int) -> tuple[driver.Context, int, int]:
        """Load the code on a device."""
        api, context = driver.api, driver.context(index)
        context.enter()
        log = bytearray(_LOG)
        options = [
            api.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
            api.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ]
        # Code stays loaded as long as the process: to unload it would be to wait for the device.
        try:
            module = context.check(api.cuModuleLoadDataEx(self.code, len(options), options, [log, _LOG]))
            handle = context.check(api.cuModuleGetFunction(module, ENTRY))
            if self.shared > _SHARED:
                attribute = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                context.check(api.cuFuncSetAttribute(handle, attribute, self.shared))
            most = self._resident(context, handle) if self.resident else MAX_BLOCKS // self.cluster
        except RuntimeError as error:
            why = log.split(b"\0", 1)[0].decode(errors="replace").strip()
            raise RuntimeError(f"cannot load a kernel on cuda:{context.index}: {error}{why and f' ({why})'}") from None
        found = self.loaded[index] = context, int(handle), most
        return found

    def _resident(self, context: driver.Context, handle: Any) -> int:
        """Programs that a device runs at once."""
        if self.cluster == 1:
            return self.resident * driver.properties(context.index).multiprocessors
        config = driver.api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.threads, 1, 1
        config.sharedMemBytes = self.shared
        return max(1, context.check(driver.api.cuOccupancyMaxActiveClusters(handle, config)))

    def config(self, context: driver.Context, blocks: int, stream: int | None) -> _Config:
        """How so many blocks are launched, on the device's stream or another one."""
        config = self._configs.get((context.index, blocks, stream))
        if config is None:
            handle = int(context.stream) if stream is None else stream
            config = _Config((blocks, 1, 1), (self.threads, 1, 1), self.shared, handle)
            if self.waits:
                config.attributes, config.count = ctypes.addressof(config) + _Config.attribute.offset, 1
                config.attribute[:2] = _EARLY, 1
            if len(self._configs) >= _CONFIGS:
                self._configs.clear()
            self._configs[context.index, blocks, stream] = config
        return config


def load(blob: bytes) -> Function:
    """A function from a compiler's blob: a 4-byte little-endian length, a JSON header, a cubin or PTX.

    Raises
    ------
    RuntimeError
        If `blob` is not one.  (Code that a device cannot load raises RuntimeError at its first launch there.)
    """
    try:
        (length,) = struct.unpack_from("<I", blob)
        header = json.loads(blob[4 : 4 + length])
        return Function(header, blob[4 + length :])
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"this is no compiled GPU kernel: {error}") from error


class _Extra(threading.local):
    """The last argument of cuLaunchKernel, an array: where the arguments are, where their size is, end."""

    def __init__(self) -> None:
        self.words = (ctypes.c_uint64 * 6)()
        self.address = ctypes.addressof(self.words)
        pointer, size, end = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END
        self.words[:] = (pointer, 0, size, self.address + 5 * 8, end, 0)


_extra = _Extra()


def launch(
    function: Function,
    device: CudaDevice,
    address: int,
    nbytes: int,
    programs: int,
    pointers: int = 0,
    stream: int | None = None,
) -> None:
    """Queue a kernel on a device's stream.

    Parameters
    ----------
    function : Function
        What to run.
    device : CudaDevice
        Where.
    address, nbytes : int
        Its packed arguments, which are copied before the function returns.
    pointers : int
        Address of an array of pointers to the arguments, which then count instead of the packed ones: not all are slots
        of 8 bytes.
    programs : int
        Below 1 nothing is launched; ValueError if they take more than 2**31 - 1 blocks.
    stream : int, optional
        The driver's handle of another stream of the device to queue it on.
    """
    if programs < 1:
        return
    context, handle, most = function.loaded.get(device.index) or function.load(device.index)
    programs = _fitting(function, programs, most)
    context.enter()
    config = function.config(context, programs * function.cluster, stream)
    extra = 0
    if not pointers:
        words = _extra.words
        words[1] = address
        words[5] = nbytes
        extra = _extra.address
    if status := driver.launch_kernel(ctypes.addressof(config), handle, pointers, extra):
        context.check((driver.api.CUresult(status),))


def _fitting(function: Function, programs: int, most: int) -> int:
    """Programs to launch, where at most so many go into a launch."""
    if programs > most and not function.resident:
        raise ValueError(f"a grid of {programs} programs is too large: a GPU takes {most}")
    return min(programs, most)


class Repeated:
    """A launch of a fixed size, repeated with the arguments that a block of memory holds at the time.

    Parameters
    ----------
    function, device, address, nbytes, programs
        As for `launch`.
    """

    __slots__ = ("context", "handle", "config", "extra", "_kept")

    def __init__(self, function: Function, device: CudaDevice, address: int, nbytes: int, programs: int) -> None:
        self.context, self.handle, most = function.loaded.get(device.index) or function.load(device.index)
        config = function.config(self.context, _fitting(function, programs, most) * function.cluster, None)
        extra = (ctypes.c_uint64 * 6)(*_extra.words)
        self.config, self.extra = ctypes.addressof(config), ctypes.addressof(extra)
        extra[1], extra[3], extra[5] = address, self.extra + 5 * 8, nbytes
        self._kept = config, extra

    def __call__(self, pointers: int = 0) -> None:
        """Queue it; `pointers` is as for `launch`."""
        context = self.context
        context.enter()
        if status := driver.launch_kernel(self.config, self.handle, pointers, 0 if pointers else self.extra):
            context.check((driver.api.CUresult(status),))


class Launcher:
    """Launches of a kernel with arguments of given kinds: the short way for who calls a kernel again and again.

    Parameters
    ----------
    function : Function
        The kernel.
    device : CudaDevice
        Where it runs, on the device's stream.
    kinds : sequence of str
        What each parameter is: "pointer", or the block IR's name of a scalar's dtype (see `slots.layout`).
        Tensor maps that the kernel has behind them are made of their values.
    """

    __slots__ = ("function", "device", "layout", "_free", "_ready", "_pack")

    def __init__(self, function: Function, device: CudaDevice, kinds: Sequence[str]) -> None:
        self.function = function
        self.device = device
        self.layout = slots.layout(kinds)
        self._pack = self.layout.pack_into
        #: Argument blocks that nobody uses: two threads, or a finaliser in the midst of a launch, have two.
        self._free: list[_Block] = []
        #: By programs and stream: the context, the function's handle, the address of the configuration, and this.
        self._ready: dict[tuple[int, int | None], tuple[driver.Context, int, int, Any]] = {}

    def __call__(self, programs: int, *values: Any, stream: int | None = None) -> None:
        """Queue the kernel with these arguments; what it writes to has to be kept until it has run.

        Parameters
        ----------
        programs : int
            Programs of its grid; with none nothing is launched.
        *values
            One for each parameter: an address for a pointer, else a number.
        stream : int, optional
            The driver's handle of another stream of the device.

        Raises
        ------
        struct.error
            If a value does not fit its parameter.
        """
        ready = self._ready.get((programs, stream))
        if ready is None:
            if programs < 1:
                return
            ready = self._prepared(programs, stream)
        context, handle, config, _ = ready
        try:
            block = self._free.pop()
        except IndexError:
            block = _Block(self.function, self.layout.size)
        self._pack(block.memory, 0, *values)
        context.enter()
        if block.maps is None:
            status = driver.launch_kernel(config, handle, 0, block.extra)
        else:
            status = driver.launch_kernel(config, handle, block.maps.pointers(), 0)
        if status:
            context.check((driver.api.CUresult(status),))
        self._free.append(block)

    def _prepared(self, programs: int, stream: int | None) -> tuple[driver.Context, int, int, Any]:
        """How so many programs are launched on a stream."""
        function = self.function
        context, handle, most = function.loaded.get(self.device.index) or function.load(self.device.index)
        config = function.config(context, _fitting(function, programs, most) * function.cluster, stream)
        if len(self._ready) >= _CONFIGS:
            self._ready.clear()
        ready = self._ready[programs, stream] = context, handle, ctypes.addressof(config), config
        return ready


class _Block:
    """Memory for arguments, and their tensor maps; `extra` is the address of cuLaunchKernel's last argument."""

    __slots__ = ("memory", "extra", "maps", "_kept")

    def __init__(self, function: Function, nbytes: int) -> None:
        self.memory = ctypes.create_string_buffer(max(8, nbytes))
        words = (ctypes.c_uint64 * 6)(*_extra.words)
        self.extra = ctypes.addressof(words)
        words[1], words[3], words[5] = ctypes.addressof(self.memory), self.extra + 5 * 8, nbytes
        self._kept = words
        specs = function.header.get("maps")
        self.maps = TensorMaps(specs, self.memory, nbytes) if specs else None
