"""Sorting and searching as steps of a plan on a GPU: the compiler's routines in place of library calls."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import addressof, create_string_buffer
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from . import checks, kernels
from .compiler import dtypes
from .compiler.expr import Expr, Shape, contiguous_strides
from .compiler.plan import HostStep
from .runtime import profiler
from .runtime.cuda import copies, streams
from .runtime.cuda.launch import launch
from .runtime.cuda.memory import allocate
from .runtime.device import CudaDevice

if TYPE_CHECKING:
    from .compiler.cuda.routines.routine import Routine


def queue(name: str, routine: Routine, device: CudaDevice, addresses: dict[str, int], nbytes: int) -> None:
    """Queue a routine's launches, over a workspace of their own."""
    checks.used[device] = None
    codes = kernels.code_for_routine([step.code for step in routine.launches], device)
    watched = profiler.active and routine.launches
    before = streams.Event(device, timing=True).record() if watched else None
    if routine.workspace:
        space = allocate(device, routine.workspace)
        copies.clear(space, 0, routine.zeroed)
        addresses = {**addresses, "workspace": space.address}
    for step, code in zip(routine.launches, codes):
        words = [a if isinstance(a, int) else addresses[a.operand] + a.offset for a in step.arguments]
        block = create_string_buffer(struct.pack(f"={len(words)}q", *words), 8 * len(words))
        launch(code.function, device, addressof(block), 8 * len(words), step.programs)
    if before is not None:
        after = streams.Event(device, timing=True).record()
        programs = [step.programs for step in routine.launches if step.programs]
        profiler.note(name, lambda: before.elapsed(after), nbytes, sum(programs), len(programs), "routine")


class Recipe(NamedTuple):
    """A routine for a library call, with its names for the operands and the result."""

    routine: Routine
    operands: tuple[str, ...]
    result: str

    @property
    def programs(self) -> int:
        """Blocks of threads in all."""
        return sum([step.programs for step in self.routine.launches])


def _sort(step: HostStep, device: CudaDevice) -> Recipe | None:
    axis, descending, _ = step.static
    return _sorting(step, device, axis, descending, None)


def _argsort(step: HostStep, device: CudaDevice) -> Recipe | None:
    axis, descending, _ = step.static
    return _sorting(step, device, axis, descending, "i64")


def _sorting(step: HostStep, device: CudaDevice, axis: int, descending: bool, positions: str | None) -> Recipe | None:
    from .compiler.cuda.routines.sort import sort

    _, _, _, shape, dtype = step.operands[0]
    if axis != len(shape) - 1:
        return None
    n = shape[-1]
    routine = sort(
        dtypes.name(dtype), n, prod(shape[:-1]), descending=descending, with_keys=not positions,
        positions=positions, processors=device.multiprocessors,
    )  # fmt: skip
    return Recipe(routine, ("x",), "positions" if positions else "keys")


def _searchsorted(step: HostStep, device: CudaDevice) -> Recipe | None:
    from .compiler.cuda.routines.search import searchsorted

    (_, _, _, (n,), dtype), (_, _, _, shape, _) = step.operands
    routine = searchsorted(dtypes.name(dtype), n, prod(shape), right=step.static[0] == "right")
    return Recipe(routine, ("a", "v"), "positions")


_RECIPES: dict[Callable[..., Any], Callable[[HostStep, CudaDevice], Recipe | None]] = {}


def replace(function: Callable[..., Any], name: str) -> None:
    """Let a routine take the place of calls of a library function: "sort", "argsort" or "searchsorted"."""
    _RECIPES[function] = {"sort": _sort, "argsort": _argsort, "searchsorted": _searchsorted}[name]


def recipe(step: HostStep, device: Any) -> Recipe | None:
    """What does a library call's work on a device, if it is a GPU that can: of real elements in row-major order."""
    make = _RECIPES.get(step.function)
    if make is None or not isinstance(device, CudaDevice):
        return None
    for slot, _, strides, shape, dtype in step.operands:
        if slot < 0 or dtype.kind == "c" or not _is_dense(shape, strides):
            return None
    return make(step, device)


def _is_dense(shape: Shape, strides: Shape) -> bool:
    return all(s == c or n == 1 for n, s, c in zip(shape, strides, contiguous_strides(shape)))


class RoutineCall:
    """A step of a plan that runs a routine."""

    __slots__ = ("step", "device", "recipe", "nbytes", "result")

    def __init__(self, step: HostStep, device: CudaDevice, recipe: Recipe) -> None:
        self.step, self.device, self.recipe = step, device, recipe
        self.result = prod(step.shape) * step.dtype.itemsize
        self.nbytes = moved(step)

    def run(self, nodes: list[Expr], memory: list[Any], base: list[int]) -> None:
        step = self.step
        addresses = {
            name: base[slot] + offset * dtype.itemsize
            for name, (slot, offset, _, _, dtype) in zip(self.recipe.operands, step.operands)
        }
        result = allocate(self.device, self.result)
        addresses[self.recipe.result] = result.address
        queue(step.name, self.recipe.routine, self.device, addresses, self.nbytes)
        if checks.suspects:
            checks.spread(None, [memory[slot] for slot in step.reads], [result])
        memory[step.slot] = result
        base[step.slot] = result.address
        for slot in step.frees:
            memory[slot] = None


def moved(step: HostStep) -> int:
    """Bytes of a library call's operands and result."""
    sizes = [(shape, dtype) for _, _, _, shape, dtype in step.operands]
    return sum([prod(shape) * dtype.itemsize for shape, dtype in (*sizes, (step.shape, step.dtype))])
