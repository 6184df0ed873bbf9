"""Launches under BLOCKARRAY_INTERPRET=1: the kernel runs as Python, and every load and store is checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import cuda
from ..array import Array
from ..compiler.dtypes import NUMPY, cast_array
from ..runtime.cuda import copies
from ..runtime.device import CPU
from ..runtime.memory import as_numpy
from . import memory
from .arguments import Reinterpreted, ir_dtype
from .descriptor import TensorDescriptor, integer_type, is_real
from .keys import CONSTANT

if TYPE_CHECKING:
    from .function import JITFunction

#: What puts a lent array's elements back, by the object that has them.
_Returns = dict[int, tuple[np.ndarray, Callable[[], Any]]]


def run(function: JITFunction, grid: tuple[int, int, int], bound: dict[str, Any]) -> None:
    """Run a kernel on its arrays' memory, or, if that is not the host's, on copies that then go back.

    Nobody flushes meanwhile.
    """
    from ..language import interpret

    returns: _Returns = {}
    arguments: dict[str, Any] = {}
    for name in function.arg_names:
        lent = _lend(bound[name], returns)
        arguments[name] = lent if function.roles[name] == CONSTANT else _numbers(lent, function.types[name])
    try:
        interpret.run(function, grid, arguments)
    finally:  # what was stored before an error is there, as it is on the host
        for _, put_back in returns.values():
            put_back()


def _numbers(x: Any, wanted: str | None) -> Any:
    """Numbers, also those in tuples, with the types that they have in compiled kernels."""
    if isinstance(x, tuple):
        items = [_numbers(item, wanted) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
    if isinstance(x, bool | np.bool_):
        own = "bool"
    elif isinstance(x, int | np.integer):
        own = integer_type(int(x))
    elif is_real(x):
        x, own = float(x), "f64" if wanted == "f64" else "f32"
    else:
        return x
    with np.errstate(over="ignore"):
        return cast_array(np.array(x, NUMPY[own]), NUMPY[wanted or own])[()]


def _lend(x: Any, returns: _Returns) -> Any:
    """An argument as the interpreter takes it."""
    if isinstance(x, tuple):
        items = [_lend(item, returns) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
    if isinstance(x, TensorDescriptor):
        lent = copy(x)
        lent.base = _lend(x.base, returns)
        return lent
    if isinstance(x, Reinterpreted):
        return _lend(x.base, returns).view(NUMPY[ir_dtype(x.dtype)[0]])
    if type(x) is Array:
        return _lend_array(x, returns)
    if callable(getattr(x, "data_ptr", None)):
        return _lend_tensor(x, returns)
    if hasattr(x, "__cuda_array_interface__"):  # CuPy's
        if id(x) not in returns:
            host = x.get()
            returns[id(x)] = host, lambda: x.set(host)
        return returns[id(x)][0]
    return x


def _lend_array(x: Array, returns: _Returns) -> np.ndarray:
    memory.settle([x])
    memory.locate(x)
    try:
        memory.own(x)
        writable = True
    except ValueError:  # It may only be read.
        writable = False
    buffer, offset = memory.locate(x)
    if buffer.device is CPU:
        lent = as_numpy(buffer, x.dtype, offset // x.itemsize, x.shape, tuple(s // x.itemsize for s in x.strides))
    else:
        lent = np.ndarray(x.shape, x.dtype, _on_host(buffer, returns if writable else {}), offset, x.strides)
    lent.flags.writeable = writable
    return lent


def _on_host(buffer: Any, returns: _Returns) -> np.ndarray:
    """The bytes of a GPU's buffer, which go back to it."""
    if id(buffer) not in returns:
        whole = np.empty(buffer.nbytes, np.uint8)
        copies.copy_to_host(buffer, 0, whole)

        def put_back() -> None:
            copies.copy_from_host(whole, buffer)
            cuda.forget(buffer)

        returns[id(buffer)] = whole, put_back
    return returns[id(buffer)][0]


def _lend_tensor(x: Any, returns: _Returns) -> np.ndarray:
    """A tensor of torch."""
    torch = sys.modules["torch"]
    found = returns.get(id(x))
    if found is not None:
        return found[0]
    host = x.detach().cpu()
    dtype = NUMPY[ir_dtype(x.dtype)[0]]
    if dtype.kind == "V":  # a type that NumPy has not
        array = host.view(torch.uint8 if dtype.itemsize == 1 else torch.int16).numpy().view(dtype)
    else:
        array = host.numpy()
    if x.get_device() >= 0:
        returns[id(x)] = array, lambda: x.copy_(host)
    return array
