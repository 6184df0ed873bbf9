"""What the language's functions make ops with: the builder of the thread's kernel, constants that fold, broadcasts.

A block's IR value leaves out extents of 1, so that to insert them costs nothing; `whole` puts them back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..compiler import builder as blocks
from ..compiler import dtypes, ops
from ..compiler.ir import I64, Block, Op, Type, Value
from .errors import CompilationError


class Builder(blocks.Builder):
    """A builder of kernels that knows which integers are no less than zero."""

    __slots__ = ("natural", "grid", "debug", "origins")

    #: Whether values are there at once: in interpret mode.
    eager = False

    def __init__(self, name: str, debug: bool = False) -> None:
        super().__init__(name)
        self.natural: set[Value] = set()
        self.grid: tuple[Value, ...] = ()
        self.debug = debug
        self.origins: dict[str, Value] = {}

    def origin(self, dtype: str) -> Value:
        """The pointer to address 0, for pointers that are nothing but addresses."""
        found = self.origins.get(dtype)
        if found is None:
            zero = Op("const", (), (I64,), {"value": 0})
            made = Op("int_to_ptr", (zero.result,), (Type(dtype, pointer=True),))
            self._body.ops[:0] = [zero, made]
            found = self.origins[dtype] = made.result
        return found

    def put(self, op: Op) -> tuple[Value, ...]:
        """Append an op that is made already; its results."""
        self._ops.append(op)
        return op.results

    @contextmanager
    def region(self, block: Block) -> Iterator[None]:
        """Append to a region, which is to end with `finish_region`."""
        with self._region(block):
            yield
        last = block.ops[-1]
        if last.name == "yield" and not last.operands:
            block.ops.pop()

    def finish_region(self, block: Block, values: Sequence[Value]) -> None:
        block.ops.append(Op("yield", tuple(values), (), None, (), self.line))


class _State(threading.local):
    builder: Builder | None = None


_state = _State()


def builder() -> Builder:
    if _state.builder is None:
        raise RuntimeError("this is a function of the block language: call it in a kernel")
    return _state.builder


def active() -> Builder | None:
    """The builder of the kernel that this thread makes or interprets, if it does."""
    return _state.builder


@contextmanager
def building(b: Builder) -> Iterator[None]:
    before, _state.builder = _state.builder, b
    try:
        yield
    finally:
        _state.builder = before


# -- scalars ----------------------------------------------------------------------------------------------------------
def const(value: Any, dtype: str) -> Value:
    if dtype in dtypes.INTEGER:
        # As C converts: modulo the width.
        bits = 8 * dtypes.SIZE[dtype]
        value = int(value) & ((1 << bits) - 1)
        if dtype in dtypes.SIGNED and value >> (bits - 1):
            value -= 1 << bits
    return builder().const(value, dtype)


def constant(value: Value) -> Any:
    """The number that a value is known to be, or None."""
    op = value.op
    return op.attrs["value"] if op is not None and op.name == "const" else None


def elementwise(name: str, *values: Value, exact: bool = False) -> Value:
    """An op of the table; of constants, a constant.  An `exact` one is rounded correctly."""
    b = builder()
    if not b.eager:
        known = [constant(v) for v in values]
        if all(k is not None for k in known):
            with np.errstate(all="ignore"):
                arrays = [np.array(k, dtypes.NUMPY[v.type.dtype]) for k, v in zip(known, values)]
                result = ops.interpret(name, *arrays)
            return const(result.item(), ops.result_dtype(name, *[v.type.dtype for v in values]))
    result = b.op(name, *values, exact=exact)
    if (name in _NATURAL and all(map(is_natural, _NATURAL[name](values)))) or (
        name == "maximum" and any(map(is_natural, values))
    ):
        b.natural.add(result)
    return result


def cast(value: Value, dtype: str) -> Value:
    b = builder()
    if value.type.dtype == dtype:
        return value
    known = None if b.eager else constant(value)
    if known is not None:
        array = dtypes.cast_array(np.array(known, dtypes.NUMPY[value.type.dtype]), dtypes.NUMPY[dtype])
        return const(array.item(), dtype)
    op = value.op
    if dtype == "i64" and op is not None and op.name == "cast":
        # Positions and program numbers that were narrowed.
        (source,) = op.operands
        if source.op is not None and source.op.name in ("iota", "program_id"):
            return source
    result = b.cast(value, dtype)
    if value in b.natural and dtypes.SIZE[dtype] >= 4:
        b.natural.add(result)
    return result


#: Of which operands a result that is >= 0 is made.  Divisors are taken to be positive.
_NATURAL: dict[str, Any] = {
    "add": lambda x: x, "multiply": lambda x: x, "minimum": lambda x: x, "trunc_divide": lambda x: x[:1],
    "fmod": lambda x: x[:1], "right_shift": lambda x: x[:1], "where": lambda x: x[1:], "bitwise_or": lambda x: x,
}  # fmt: skip


def is_natural(value: Value) -> bool:
    """Whether an integer is known to be >= 0."""
    known, b = constant(value), builder()
    if b.eager:
        return bool((value.array >= 0).all())  # type: ignore[attr-defined]
    return known >= 0 if known is not None else value in b.natural


# -- shapes -----------------------------------------------------------------------------------------------------------
def extents(shape: Sequence[int]) -> tuple[int, ...]:
    """A block's extents in IR."""
    return tuple([n for n in shape if n != 1])


def spread(value: Value, shape: Sequence[int], target: Sequence[int]) -> Value:
    """A value of a block of `shape` (as many dims as `target`, or a scalar) as one of `target`."""
    if value.type.extents == extents(target):
        return value
    kept = [k for k, n in enumerate(shape) if n != 1]
    places = [k for k, n in enumerate(target) if n != 1]
    return builder().broadcast(value, [places.index(k) for k in kept], extents(target))


def whole(value: Value, shape: Sequence[int]) -> Value:
    """A value with the extents of 1 that its block has."""
    return builder().reshape(value, tuple(shape))


def bare(value: Value) -> Value:
    """A value without extents of 1."""
    return builder().reshape(value, extents(value.type.extents))  # type: ignore[arg-type]


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that blocks of these shapes are broadcast to together."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for k, n in enumerate(shape, rank - len(shape)):
            if n != 1 and result[k] not in (1, n):
                several = " and ".join(map(str, map(list, shapes)))
                raise CompilationError(f"blocks of shapes {several} do not broadcast together (dim {k})")
            result[k] = max(result[k], n)
    return tuple(result)
