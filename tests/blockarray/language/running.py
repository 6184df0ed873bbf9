"""Runs kernels of the block language by the interpreter of block IR, as machine code, and as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockarray.compiler import dtypes, interpreter, passes, printer
from blockarray.compiler.ir import Kernel
from blockarray.compiler.parser import parse
from blockarray.compiler.verifier import verify
from blockarray.language import interpret
from blockarray.language.frontend import Argument, Boolean, Descriptor, Integer, Kind, Pointer, Real, build
from tests.compiler.cpu_kernels import Compiled


class Jit:
    """Stands for the decorator: marks functions that kernels may call."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("kernels are inlined")


def jit(fn: Any) -> Any:
    return Jit(fn)


class Described:
    """A descriptor as the host makes one."""

    def __init__(self, base: np.ndarray, block_shape: list[int]) -> None:
        self.base = base
        self.shape = base.shape
        self.strides = [s // base.itemsize for s in base.strides]
        self.block_shape = tuple(block_shape)


def kind_of(value: Any) -> Kind | None:
    if isinstance(value, np.ndarray):
        return Pointer(dtypes.name(value.dtype), value.ctypes.data % 16 == 0)
    if isinstance(value, Described):
        return Descriptor(dtypes.name(value.base.dtype), value.base.ndim, value.block_shape)
    if isinstance(value, (bool, np.bool_)):
        return Boolean()
    if isinstance(value, np.integer):
        return Integer(dtypes.name(value.dtype), natural=bool(value >= 0))
    if isinstance(value, np.floating):
        return Real(dtypes.name(value.dtype))
    return None


def compiled(fn: Any, debug: Any = False, **arguments: Any) -> Kernel:
    """The kernel for these arguments: arrays, and scalars of NumPy; whatever else is a constant."""
    kinds = {name: kind_of(value) for name, value in arguments.items()}
    given = [Argument(name, kind) for name, kind in kinds.items() if kind is not None]
    others = {name: value for name, value in arguments.items() if kinds[name] is None}
    kernel = build(fn, given, others, debug=debug)
    verify(kernel)
    assert printer.text(parse(printer.text(kernel))) == printer.text(kernel)
    return kernel


def text(fn: Any, **arguments: Any) -> str:
    return printer.text(compiled(fn, **arguments))


def run_compiled(fn: Any, grid: Any = (1,), debug: Any = False, **arguments: Any) -> list[str]:
    """Run the block IR, and the CPU's code of it on copies, which must agree; what its checks say."""
    kernel = compiled(fn, debug=debug, **arguments)
    slots: list[Any] = []
    for value in arguments.values():
        if isinstance(value, Described):
            slots += [interpret.flattened(value.base), *value.shape, *value.strides[:-1]]
        elif isinstance(value, np.ndarray):
            slots.append(interpret.flattened(value))
        elif kind_of(value) is not None:
            slots.append(value)
    slots += [*grid, 1, 1][:3]
    if kernel.params[-1].name == "errors":
        slots.append(np.zeros(8, np.int64))
    twins = [_copied(slot) for slot in slots]
    failed = interpreter.run(kernel, slots)
    Compiled(passes.run(kernel, check=True))(twins)
    for param, slot, twin in zip(kernel.params, slots, twins, strict=True):
        (want, _), (have, _) = (s if isinstance(s, tuple) else (s, 0) for s in (slot, twin))
        if param.name == "errors":
            assert bool(have[0]) == bool(failed)
        elif param.type.pointer:
            rtol = 2e-3 if want.itemsize < 4 else 3e-5
            np.testing.assert_allclose(have.astype("f8"), want.astype("f8"), rtol, 1e-5, err_msg=param.name)
    return failed


def _copied(slot: Any) -> Any:
    if isinstance(slot, tuple):
        return slot[0].copy(), slot[1]
    return slot.copy() if isinstance(slot, np.ndarray) else slot


def launch(fn: Any, grid: Any = (1,), rtol: Any = 0, **arguments: Any) -> None:
    """Run both ways, which must agree."""
    twins = {name: _twin(value) for name, value in arguments.items()}
    run_compiled(fn, grid, **arguments)
    x, y, z, *_ = (*grid, 1, 1)
    interpret.run(fn, (x, y, z), twins)
    for name, value in arguments.items():
        if isinstance(value, (np.ndarray, Described)):
            got, other = (v.base if isinstance(v, Described) else v for v in (value, twins[name]))
            np.testing.assert_allclose(other.astype("f8"), got.astype("f8"), rtol=rtol, err_msg=name)


def _twin(value: Any) -> Any:
    if isinstance(value, Described):
        return Described(value.base.copy(), list(value.block_shape))
    if not isinstance(value, np.ndarray):
        return value
    memory, start = interpret.flattened(value)
    return np.ndarray(value.shape, value.dtype, memory.copy(), start * value.itemsize, value.strides)
