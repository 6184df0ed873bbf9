"""Values where control flow joins: the tensors that they are made of, and types that must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .errors import CompilationError
from .memory import BlockPointer, TensorDescriptor
from .types import int64
from .values import Tensor, is_number, tensor


class Missing:
    """What a name stands for that not every way to here has given a value."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def spell(x: Any) -> str:
    """What a value is, for messages."""
    if isinstance(x, (Tensor, BlockPointer, TensorDescriptor)):
        return str(x.type) if isinstance(x, Tensor) else repr(x)
    if isinstance(x, (tuple, list)):
        return f"({', '.join(map(spell, x))})"
    return repr(x)


def parts(x: Any) -> list[Any] | None:
    """What a structured value consists of."""
    if isinstance(x, (tuple, list)):
        return list(x)
    if isinstance(x, BlockPointer):
        return [x.base, *x.offsets]
    if isinstance(x, TensorDescriptor):
        return [x.base, *[Tensor(v, int64) for v in (*x.shape_values, *x.stride_values)]]
    return None


def rebuilt(x: Any, items: list[Any]) -> Any:
    """A value like x of other parts."""
    if isinstance(x, BlockPointer):
        return BlockPointer(items[0], x.shape_values, x.stride_values, items[1:], x.block_shape)
    if isinstance(x, TensorDescriptor):
        base, *sizes = items
        shape, strides = ([t.value for t in some] for some in (sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]))
        return TensorDescriptor(base, shape, strides, x.block_shape, x.padding)
    if hasattr(x, "_fields"):
        return type(x)(*items)
    return type(x)(items)


def same_kind(x: Any, y: Any) -> bool:
    """Whether two structured values differ in nothing but their parts."""
    if type(x) is not type(y):
        return False
    if isinstance(x, TensorDescriptor):
        return (x.block_shape, x.padding) == (y.block_shape, y.padding)
    if isinstance(x, BlockPointer):
        return (x.shape_values, x.stride_values, x.block_shape) == (y.shape_values, y.stride_values, y.block_shape)
    return len(x) == len(y)


def leaves(x: Any) -> Iterator[Tensor]:
    """The tensors of a value."""
    if isinstance(x, Tensor):
        yield x
    else:
        for item in parts(x) or ():
            yield from leaves(item)


def mapped(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The value with other tensors."""
    if isinstance(x, Tensor):
        return function(x)
    items = parts(x)
    return x if items is None else rebuilt(x, [mapped(item, function) for item in items])


def equal(x: Any, y: Any) -> bool:
    """Whether two values are the same without a look at the run."""
    if x is y:
        return True
    if isinstance(x, Tensor) or isinstance(y, Tensor) or type(x) is not type(y):
        return False
    left, right = parts(x), parts(y)
    if left is not None and right is not None:
        return same_kind(x, y) and all(map(equal, left, right))
    if isinstance(x, float):
        return repr(x) == repr(y)
    return bool(x == y)


def zipped(x: Any, y: Any, what: str, pair: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The value that is x on one way and y on the other; `pair` joins two tensors of one type."""
    if equal(x, y):
        return x
    if all(isinstance(v, Tensor) or is_number(v) for v in (x, y)):
        a, b = tensor(x), tensor(y)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            raise CompilationError(f"{what} {a.type} on one way and {b.type} on the other: the types must agree")
        return pair(a, b)
    left, right = parts(x), parts(y)
    if left is None or right is None or not same_kind(x, y):
        raise CompilationError(f"{what} {spell(x)} on one way and {spell(y)} on the other")
    return rebuilt(x, [zipped(a, b, what, pair) for a, b in zip(left, right)])


def decayed(x: Any) -> Any:
    """What a name becomes by `name = x`: of Python's numbers, scalars."""
    if is_number(x):
        return tensor(x)
    if isinstance(x, (tuple, list)):
        return rebuilt(x, [decayed(item) for item in x])
    return x
