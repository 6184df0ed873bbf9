"""Kernels as plain Python: BLOCKARRAY_INTERPRET=1."""

from __future__ import annotations

from typing import Any


def run(fn: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
    """Call a function of the block language for every program of a grid, one after the other.

    Parameters
    ----------
    fn : function
        The Python function, or an object whose `fn` is the function.
    grid : tuple of int
        The numbers of programs; axis 0 varies fastest.
    arguments : dict
        Arrays of NumPy (which stores change), TensorDescriptors of them, scalars and constexprs, by name.

    Raises
    ------
    OutOfBounds
        If a load or store that is not masked lies outside its buffer.
    """
    raise NotImplementedError
