"""A kernel that was compiled for arguments of some kinds."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, debug, kernels
from ..compiler import passes
from ..compiler.canonical import canonical
from ..compiler.ir import Kernel
from ..compiler.printer import text
from ..runtime import profiler, slots, threads
from ..runtime.config import config
from ..runtime.cuda import driver, streams
from ..runtime.cuda.launch import Launcher
from ..runtime.device import CPU, CudaDevice, Device

if TYPE_CHECKING:
    from .function import JITFunction


class Compiled:
    """A kernel's code for arguments of some kinds, on a device.

    Attributes
    ----------
    function : JITFunction
        What it was made of.
    kernel : Kernel
        Its block IR, as the front end made it.
    key : str
        The same as text.
    device : Device
        Where it runs.
    written : frozenset of int
        Which of its parameters are pointers through which it may write.
    """

    def __init__(
        self,
        function: JITFunction,
        kernel: Kernel,
        messages: list[str],
        device: Device,
        options: Mapping[str, Any],
        places: Sequence[str],
        specialization: Any = None,
    ) -> None:
        self.function = function
        self.kernel = kernel
        self.device = device
        self.options = dict(options)
        #: What to call each parameter in messages.
        self.places = list(places)
        self.messages = messages
        #: Types by parameter (`signature`), and `constants`, for the function's `repr`.
        self.specialization = specialization
        self.key = text(kernel)
        names = [p.name for p in kernel.params]
        stored = written(kernel)
        self.written = frozenset(k for k, name in enumerate(names) if name in stored)
        self.checked = "errors" in names
        #: Whether it was queued on its device's own stream.
        self.queued = False
        self.code = _code(self.key, kernel, device, function.__name__)
        kinds = ["pointer" if p.type.pointer else p.type.dtype for p in kernel.params]
        if isinstance(device, CudaDevice):
            self._launch: Any = Launcher(self.code.function, device, kinds)
        else:
            self._launch = threads.Launcher(self.code.function, kinds)

    def __repr__(self) -> str:
        return f"<compiled {self.function.__name__} for {self.device}>"

    def __getitem__(self, grid: Any) -> partial[Any]:
        """Launch it by `compiled[grid](...)`, with the options that it was compiled with."""
        return partial(self.function.launch, grid, **self._extra)

    @cached_property
    def _extra(self) -> dict[str, Any]:
        """The options that are no arguments."""
        return {k: v for k, v in self.options.items() if k not in self.function.arg_names}

    def run(self, values: list[Any], programs: int, stream: int | None = None) -> Any:
        """Run it, or queue it on its device's stream or on another one of the device.

        Parameters
        ----------
        values : list
            One for each parameter: an address for a pointer, else a number.
        programs : int
            Their number in all.
        stream : int, optional
            The driver's handle of the stream.
        """
        if programs < 1:
            return None
        check: Any = None
        if self.checked:
            if isinstance(self.device, CudaDevice):
                check = checks.Check(self.device, self.messages, AssertionError)
                values.append(check.word.address)
            else:
                check = np.zeros(1, np.int64)
                values.append(check.ctypes.data)
        if profiler.active or config.debug:
            self._run_watched(values, programs, stream)
        else:
            try:
                if stream is None:
                    self._launch(programs, *values)
                else:
                    self._launch(programs, *values, stream=stream)
            except (struct.error, OverflowError, TypeError):
                self._run(self._repaired(values), programs, stream)
        if check is not None and self.device is CPU:
            if number := int(check[0]):
                raise AssertionError(self.messages[number - 1])
            return None
        return check

    def _run(self, values: list[Any], programs: int, stream: int | None) -> None:
        if stream is None:
            self._launch(programs, *values)
        else:
            self._launch(programs, *values, stream=stream)

    def _run_watched(self, values: list[Any], programs: int, stream: int | None) -> None:
        """Run with the clock on."""
        name, device = self.function.__name__, self.device
        values = self._repaired(values)
        seconds: Any
        if isinstance(device, CudaDevice) and stream is None:
            before = streams.Event(device, timing=True).record()
            self._run(values, programs, stream)
            after = streams.Event(device, timing=True).record()
            seconds = before.elapsed(after) if "time" in config.debug else lambda: before.elapsed(after)
        else:
            started = perf_counter()
            self._run(values, programs, stream)
            seconds = perf_counter() - started
        profiler.note(name, seconds, 0, programs)
        if "time" in config.debug:
            debug.launched(name, seconds, 0)

    def _repaired(self, values: list[Any]) -> list[Any]:
        """Values that fit their parameters: floats beyond f32 become infinite.

        Raises
        ------
        TypeError
            If a value fits none.
        """
        found = []
        for p, place, value in zip(self.kernel.params, [*self.places, "grid", "grid", "grid", "errors"], values):
            kind = "pointer" if p.type.pointer else p.type.dtype
            if kind == "f32":
                with np.errstate(over="ignore"):
                    value = float(np.float32(value))
            try:
                struct.pack("=" + slots.FORMATS[kind], value)
            except (struct.error, OverflowError, TypeError) as error:
                raise TypeError(f"{self.function.__name__}: {place}={value!r} is no {kind}: {error}") from None
            found.append(value)
        return found

    # -- looking into it ----------------------------------------------------------------------------------------------
    @cached_property
    def asm(self) -> Mapping[str, Any]:
        """The stages of compiling by name, made when they are asked for: "block" (the block IR), "optimized" (the same
        after the passes), "llvm", and "ptx" and "cubin", or "asm".  Beside them "canonical": the block IR as kernels
        are compared that say the same in different ways."""
        return _Stages(self)

    @cached_property
    def resources(self) -> dict[str, int]:
        """What a program takes: on a GPU "registers", "spills" (bytes, both of a thread), "shared" (bytes) and
        "threads"; on the CPU "scratch" (bytes)."""
        function = self.code.function
        if self.device is CPU or function is None:
            return {"registers": 0, "spills": 0, "shared": 0, "threads": 1}
        assert isinstance(self.device, CudaDevice)
        index = self.device.index
        context, handle, _ = function.loaded.get(index) or function.load(index)
        context.enter()
        names = driver.api.CUfunction_attribute
        function_handle = driver.api.CUfunction(int(handle))
        ask = lambda attribute: int(context.check(driver.api.cuFuncGetAttribute(attribute, function_handle)))
        return {
            "registers": ask(names.CU_FUNC_ATTRIBUTE_NUM_REGS),
            "spills": ask(names.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            "shared": function.shared + ask(names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            "threads": function.threads,
        }

    @cached_property
    def name(self) -> str:
        """What to call it: the function's name, or what its `repr` makes of the signature and the constants."""
        return self.function.__name__ if self.function.repr is None else self.function.repr(self.specialization)

    @property
    def n_regs(self) -> int:
        """At least 1: programs divide by it, and by `metadata.shared`."""
        return max(1, self.resources["registers"])

    @property
    def n_spills(self) -> int:
        return self.resources["spills"] // 4

    @cached_property
    def metadata(self) -> Any:
        """The options and the shared memory, as attributes."""
        return SimpleNamespace(name=self.name, shared=max(1, self.resources["shared"]), **self.options)

    def _init_handles(self) -> None:
        """Load the code on the device; to ask for `n_regs` does so, too."""
        _ = self.resources

    def __str__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.options.items())
        facts = ", ".join(f"{k} {v}" for k, v in self.resources.items())
        return f"{self.function.__name__} on {self.device} ({options}): {facts}\n{self.key}"


class _Stages(Mapping[str, Any]):
    def __init__(self, of: Compiled) -> None:
        self._of = of
        on_cpu = of.device is CPU
        self._names = ("block", "canonical", "optimized", "llvm", *(("asm",) if on_cpu else ("ptx", "cubin")))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        of = self._of
        if name == "block":
            return of.key
        if name == "canonical":
            return text(canonical(of.kernel))
        kernel = passes.run(of.kernel)
        compiler, target, _ = kernels.backend_of(of.device)
        if name == "optimized":
            return text(compiler.prepared(kernel) if of.device is CPU else kernel)
        if name == "cubin":
            return of.code.function.code
        make = {"llvm": "text", "ptx": "ptx", "asm": "assembly"}[name]
        return getattr(compiler, make)(kernel, target)


def written(kernel: Kernel) -> set[str]:
    """Names of the pointers that are parameters and through which a kernel may write."""
    found: set[str] = set()
    escaped: set[str] = set()
    anywhere = False
    for op in kernel.walk():
        if op.name in ("store_view", "store_ptr"):
            at: Any = op.operands[1]
        elif op.name == "atomic":
            at = next(x for x in op.operands if x.type.pointer)
        elif op.name == "ptr_to_int":
            escaped.add(op.operands[0].name)
            continue
        elif op.name == "inline_asm":
            anywhere |= "volatile" in op.attrs
            continue
        else:
            continue
        if at.op is None and at.name:
            found.add(at.name)
        else:
            anywhere = True
    return found | escaped if anywhere else found


def _code(key: str, kernel: Kernel, device: Device, name: str) -> kernels.Code:
    try:
        return kernels.code_for(key, kernel, device)
    except RuntimeError as error:
        cause = error.__cause__ or error
        raise type(cause)(f"cannot compile kernel {name} for {device}: {cause}") from cause
