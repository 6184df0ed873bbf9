"""Library calls on the host, recorded as nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .array import Array, lazy
from .compiler.expr import HOST, Shape, node
from .dtypes import canonical


def call(
    name: str, function: Callable[..., Any], arrays: Sequence[Array], shape: Shape, dtype: Any, *static: Any
) -> Array:
    """The array that function(*numpy_arrays, *static) gives, whose shape and dtype are known beforehand.

    Parameters
    ----------
    name : str
        What explain() calls it.
    function : callable
    arrays : sequence of Array
    shape : tuple of int
    dtype : dtype
    *static
        Arguments that are no arrays.
    """
    attrs = (name, function, static)
    return lazy(node(HOST, tuple(a._read() for a in arrays), attrs, shape, canonical(dtype)))


def at_once(function: Callable[..., Any], arrays: Sequence[Array], *static: Any) -> Any:
    """function(*numpy_arrays, *static), now; arrays in its result become Arrays."""
    return to_arrays(function(*(a._host() for a in arrays), *static))


def to_arrays(x: Any) -> Any:
    """NumPy arrays and scalars, in tuples too, as Arrays."""
    from .operands import as_array

    if isinstance(x, tuple):
        return type(x)(*map(to_arrays, x)) if hasattr(x, "_fields") else tuple(map(to_arrays, x))
    return as_array(x) if isinstance(x, np.ndarray | np.generic) else x
