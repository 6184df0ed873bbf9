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
    """A builder of kernels that knows how small integers may be."""

    __slots__ = ("lowest", "ordered", "grid", "debug", "sanitize", "origins", "_standing")

    #: Whether values are there at once: in interpret mode.
    eager = False

    def __init__(self, name: str, debug: bool = False, sanitize: bool = False) -> None:
        super().__init__(name)
        #: Lower bounds of integers.
        self.lowest: dict[Value, int] = {}
        #: Pairs of integers of which the first is no less than the second.
        self.ordered: set[tuple[Value, Value]] = set()
        self.grid: tuple[Value, ...] = ()
        #: Whether kernels check what they assert, and integers for overflow.
        self.debug, self.sanitize = debug, sanitize
        self.origins: dict[str, Value] = {}
        self._standing: dict[Any, Value] = {}

    def origin(self, dtype: str) -> Value:
        """The pointer to address 0, for pointers that are nothing but addresses."""
        found = self.origins.get(dtype)
        if found is None:
            zero = Op("const", (), (I64,), {"value": 0})
            made = Op("int_to_ptr", (zero.result,), (Type(dtype, pointer=True),))
            self._body.ops[:0] = [zero, made]
            found = self.origins[dtype] = made.result
        return found

    def standing(self, value: Value) -> Value | None:
        """A constant or a parameter as an i64: the same value wherever it is asked for.  None of another value."""
        known = constant(value)
        if known is None and value not in self._params:
            return None
        key = value if known is None else known
        if key not in self._standing:
            made = Op("cast", (value,), (I64,)) if known is None else Op("const", (), (I64,), {"value": known})
            self._body.ops.insert(0, made)
            self._standing[key] = made.result
        return self._standing[key]

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
    return builder().const(fitted(value, dtype) if dtype in dtypes.INTEGER else value, dtype)


def fitted(value: Any, dtype: str) -> int:
    """A number as an integer of a type, as C converts: modulo the width."""
    bits = 8 * dtypes.SIZE[dtype]
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if dtype in dtypes.SIGNED and value >> (bits - 1) else value


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
    if not b.eager and result.type.dtype in dtypes.INTEGER:
        bound(result, _least(name, values))
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
    if dtypes.SIZE[dtype] >= 4 and dtype in dtypes.INTEGER:
        bound(result, least(value))
    return result


# -- how small integers may be ----------------------------------------------------------------------------------------
def bound(value: Value, low: int | None) -> None:
    """Remember that a value is no less than `low`."""
    if low is not None:
        builder().lowest[value] = low


def least(value: Value) -> int | None:
    """What an integer is no less than, if that is known; sums and products are taken to fit their types."""
    known = constant(value)
    if known is not None:
        return known
    return builder().lowest.get(value, 0 if value.type.dtype in dtypes.UNSIGNED else None)


def is_natural(value: Value) -> bool:
    """Whether an integer is known to be >= 0."""
    if builder().eager:
        held: Any = value
        return bool((held.array >= 0).all())
    low = least(value)
    return low is not None and low >= 0


@contextmanager
def knowing(condition: Value, renamed: dict[Value, Value]) -> Iterator[None]:
    """Within, the condition holds of its operands, or of what took their places."""
    b = builder()
    lowest, ordered = dict(b.lowest), set(b.ordered)
    learn(condition, renamed)
    changed = {v: lowest.get(v) for v in b.lowest if b.lowest[v] != lowest.get(v)}
    try:
        yield
    finally:
        b.ordered = ordered
        for value, low in changed.items():
            b.lowest.pop(value, None)
            bound(value, low)


def learn(condition: Value, renamed: dict[Value, Value] | None = None) -> None:
    """From here on the condition, comparisons of integers joined by `and`, holds."""
    op, b = condition.op, builder()
    if op is None or b.eager:
        return
    x, y, *_ = (*op.operands, condition, condition)
    if op.name == "logical_and":
        learn(x, renamed)
        learn(y, renamed)
    if op.name in ("less", "less_equal"):
        x, y = y, x
    elif op.name not in ("greater", "greater_equal"):
        return
    if renamed:
        x, y = renamed.get(x, x), renamed.get(y, y)
    low = least(y)
    b.ordered.add((x, y))
    if low is not None and x.type.dtype in dtypes.INTEGER:
        before = least(x)
        low += op.name in ("less", "greater")
        bound(x, low if before is None else max(low, before))


def _least(name: str, values: tuple[Value, ...]) -> int | None:
    """The lower bound of an op's result; divisors are taken to be positive, but arguments, of which it is known."""
    if name not in _BOUNDED:
        return None
    if name == "subtract" and values in builder().ordered:
        return 0
    lows = [least(v) for v in values]
    if name == "where":
        lows = lows[1:]
    first, second = lows
    if name == "maximum":
        return max((low for low in lows if low is not None), default=None)
    if first is None:
        return None
    match name:
        case "fmod" | "right_shift":
            return 0 if first >= 0 else None
        case "trunc_divide":
            return 0 if first >= 0 and not _may_be_negative(values[1]) else None
        case "subtract":
            known = constant(values[1])
            return None if known is None else first - known
    if second is None:
        return None
    if name == "add":
        return first + second
    if name in ("minimum", "where"):
        return min(first, second)
    return None if first < 0 or second < 0 else first * second if name == "multiply" else 0


def _may_be_negative(value: Value) -> bool:
    while value.op is not None and value.op.name in ("cast", "broadcast"):
        (value,) = value.op.operands
    low = least(value)
    return value.op is None and value in builder()._params and (low is None or low < 0)


_BOUNDED = frozenset((
    "add", "subtract", "multiply", "minimum", "maximum", "trunc_divide", "fmod", "right_shift", "where", "bitwise_or",
    "bitwise_and",
))  # fmt: skip


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
    return builder().reshape(value, extents([int(n) for n in value.type.extents]))


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
