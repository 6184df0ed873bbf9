"""What the names in a kernel that are not its own stand for."""

from __future__ import annotations

import builtins
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

from .errors import CompilationError
from .source import function_of
from .types import const, constexpr, dtype

_NOT_FOUND = object()


def is_constexpr_annotation(annotation: Any) -> bool:
    """Whether an annotation marks a constant; `from __future__ import annotations` makes it a string."""
    return _is(annotation, constexpr, "constexpr")


def is_const_annotation(annotation: Any) -> bool:
    """Whether an annotation marks a pointer through which nothing is stored."""
    return _is(annotation, const, "const")


def _is(annotation: Any, marker: Any, name: str) -> bool:
    if isinstance(annotation, str):
        return annotation.strip("'\"").rpartition(".")[2] == name
    return annotation is marker


class Names:
    """The variables around a function."""

    __slots__ = ("_function", "_cells")

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def find(self, name: str) -> Any:
        """What a global or captured name stands for; CompilationError if it may change between launches."""
        if name in self._cells:
            try:
                held = self._cells[name].cell_contents
            except ValueError:
                raise CompilationError(f"{name} is not defined") from None
            return self._constant(name, held, False)
        scope = self._function.__globals__
        if name in scope:
            annotation = scope.get("__annotations__", {}).get(name)
            return self._constant(name, scope[name], is_constexpr_annotation(annotation))
        found = getattr(builtins, name, _NOT_FOUND)
        if found is _NOT_FOUND:
            raise CompilationError(f"{name} is not defined")
        return found

    def _constant(self, name: str, value: Any, annotated: bool) -> Any:
        if isinstance(value, constexpr):
            return value.value
        if annotated or _lasting(value):
            return value
        if hasattr(value, "shape"):
            raise CompilationError(f"{name} is a global array: kernels take arrays as arguments")
        raise CompilationError(
            f"{name} is a global variable, which may change: make it a constant by {name} = tl.constexpr({value!r})"
        )


def _lasting(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(isinstance(v, constexpr) or _lasting(v) for v in value)
    return (
        value is None
        or isinstance(value, (ModuleType, dtype, Enum))
        or callable(value)
        or (function_of(value) is not None)
    )
