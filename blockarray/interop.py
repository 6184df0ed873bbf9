"""What NumPy's own functions do when they meet an Array."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import elementwise, reductions
from .array import Array
from .compiler.ops import TABLE
from .host import home, to_arrays
from .operands import as_array


def _namespace(module: str) -> Any:
    import blockarray

    return blockarray.linalg if module.startswith("numpy.linalg") else blockarray


#: Methods of ufuncs that a function of the namespace is equal to.
_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod"}


def _along_first(function: Any, name: str) -> Any:
    """A reduction or scan as a ufunc's method, whose axis is the first one by default."""

    def method(array: Any, /, axis: Any = 0, *args: Any, **kwargs: Any) -> Array:
        return function(array, axis, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `{function.__name__}`, over the first axis by default."
    return method


def _outer(function: Any) -> Any:
    def outer(A: Any, B: Any, /, **kwargs: Any) -> Array:
        """The function of all pairs of elements."""
        x, y = as_array(A), as_array(B)
        return function(x[(..., *(None,) * y.ndim)], y, **kwargs)

    return outer


for _name, _op in TABLE.items():
    _function: Any = getattr(elementwise, _name, None)
    if _op.kind == "elementwise" and _op.arity == 2 and _function is not None:
        _function.outer = _outer(_function)
        for _method, _functions in (("reduce", _REDUCE), ("accumulate", _ACCUMULATE)):
            if _name in _functions:
                setattr(_function, _method, _along_first(getattr(reductions, _functions[_name]), _method))


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy ufunc on Arrays: this library's function of the same name, else NumPy's on the host."""
    out = kwargs.get("out")
    # Into a NumPy array only NumPy can write.
    ours = out is None or all(isinstance(o, Array) for o in (out if isinstance(out, tuple) else (out,)))
    name = {
        "__call__": ufunc.__name__, "reduce": _REDUCE.get(ufunc.__name__), "accumulate": _ACCUMULATE.get(ufunc.__name__)
    }.get(method)  # fmt: skip
    function = getattr(_namespace("numpy"), name, None) if name else None
    if function is not None and ours:
        if method != "__call__":
            kwargs.setdefault("axis", 0)
        return function(*inputs, **kwargs)
    if ours and out is not None:
        return NotImplemented
    result = getattr(ufunc, method)(*map(_plain, inputs), **{k: _plain(v) for k, v in kwargs.items()})
    if not ours:
        return result
    return to_arrays(result, home(ufunc.__name__, [x for x in inputs if isinstance(x, Array)]))


def array_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy function on Arrays: this library's function of the same name, else NumPy's on the host."""
    function = getattr(_namespace(func.__module__), func.__name__, None)
    if callable(function):
        return function(*args, **kwargs)
    return func(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})


def _plain(x: Any) -> Any:
    if isinstance(x, Array):
        return np.asarray(x)
    if isinstance(x, list | tuple):
        return type(x)(map(_plain, x)) if type(x) in (list, tuple) else x
    return x


def asnumpy(a: Any) -> np.ndarray:
    """A NumPy array of an array's elements; shares its memory where it can."""
    return np.asarray(as_array(a))
