"""What an array holds: a value, or a window of a storage that it shares with others.

An array that nobody aliases holds its expression directly.  Once a view of it exists, it and its views hold a Storage,
the one place that a write replaces, and each sees a window of the storage's row-major elements.  Expressions are
immutable, so whatever was recorded before a write keeps the old value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self

import numpy as np

from . import export, flush
from .compiler.expr import BUFFER, SCALAR, UPDATE, Expr, Shape, apart, broadcast, contiguous_strides, node, view
from .compiler.ops import Op
from .operands import broadcast_shapes, cast, placed
from .runtime.config import config
from .runtime.device import Device

#: Depth of a recorded graph at which it is computed unasked.
LIMIT = config.max_pending
#: Bytes of a recorded array beyond which reading a small window computes the window alone.
_LARGE = 64 << 20

#: What is asked before an array is written to, and may refuse.
guard: ContextVar[Callable[[Window], None] | None] = ContextVar("guard", default=None)
#: Held while a storage is made or its value is replaced, so that no thread's write is lost.
writing = threading.RLock()


class Storage:
    """What aliases share: the current value, and the memory outside that must follow it, if any."""

    __slots__ = ("expr", "export")

    expr: Expr
    export: Callable[[], export.Export | None] | None

    def __init__(self, expr: Expr) -> None:
        self.expr = expr
        self.export = None


def bound(e: Expr) -> None:
    """Compute a part of a deep graph, and all of one that reads memory which the outside may change."""
    flush.bound(e)
    if e.depth > LIMIT:
        flush.evaluate([e])


class Window:
    """An expression that nobody aliases, or a window of a Storage."""

    __slots__ = ("_expr", "_storage", "_offset", "_strides", "_shape", "_readonly", "__weakref__")

    #: The value, if the array has no Storage.  Another thread may make one meanwhile, and sets this to None last: who
    #: reads both reads this first.
    _expr: Expr | None
    _storage: Storage | None
    #: The window of the storage; `_strides` is None for the whole of it.
    _offset: int
    _strides: Shape | None
    _shape: Shape
    #: Whether this is a view of a broadcast; set where there is a storage.
    _readonly: bool

    def __init__(self, expr: Expr) -> None:
        self._expr = expr
        self._storage = None

    def _read(self) -> Expr:
        """The current value."""
        e = self._expr
        if e is not None:
            return e
        assert self._storage is not None
        base = self._storage.expr
        return base if self._strides is None else view(base, self._offset, self._strides, self._shape)

    def _share(self) -> Storage:
        """The storage, made on first use."""
        storage = self._storage
        if storage is not None:
            return storage
        with writing:
            if self._storage is None:
                e = self._expr
                assert e is not None
                self._offset, self._strides, self._shape, self._readonly = 0, None, e.shape, False
                self._storage = Storage(e)
                self._expr = None
            return self._storage

    def _window(self) -> tuple[int, Shape]:
        """Offset and strides in the storage's elements."""
        e = self._expr
        if e is not None:
            return 0, contiguous_strides(e.shape)
        if self._strides is None:
            return 0, contiguous_strides(self._shape)
        return self._offset, self._strides

    def _region(self, offset: int, strides: Shape, shape: Shape) -> Expr:
        """The current value of a window of the storage."""
        base = self._expr
        if base is None:
            assert self._storage is not None
            base = self._storage.expr
        return view(base, offset, strides, shape)

    def _view(self, offset: int, strides: Shape, shape: Shape) -> Self:
        """Another window of the same storage."""
        result = object.__new__(type(self))
        result._storage = self._share()
        result._expr = None
        result._readonly = self._readonly
        result._offset = offset
        result._strides = strides
        result._shape = shape
        return result

    def _assign(self, offset: int, strides: Shape, shape: Shape, value: Expr) -> None:
        """Replace a window of the storage by `value`, which has its shape and dtype."""
        storage = self._storage
        if storage is not None and self._readonly:
            raise ValueError("assignment destination is read-only")
        if 0 in shape:
            return
        if (ask := guard.get()) is not None:
            ask(self)
        with writing:
            storage = self._storage
            base = self._expr if storage is None else storage.expr
            assert base is not None
            if value.device is not base.device:
                if value.device is not None and base.device is not None:
                    raise ValueError(apart("assignment", base.device, value.device))
                value = placed(value, base.device)
            if storage is not None and storage.export is not None and export.write(storage, offset, strides, value):
                return
            if shape == base.shape and offset == 0 and strides == contiguous_strides(shape):
                new = value
            else:
                new = node(UPDATE, (base, value), (offset, strides), base.shape, base.dtype)
            if storage is None:
                self._expr = new
            else:
                storage.expr = new
        if new.depth > LIMIT:
            bound(new)

    def _fill(self, value: Expr, op: Op | None = None, casting: Any = "same_kind") -> None:
        """Replace the whole array by the result of `op` (an `out=` or in-place operation)."""
        shape, dtype, device = self.shape, self.dtype, self._device()
        if value.device is not device:
            if value.device is not None and device is not None:
                raise ValueError(apart(op.name if op else "assignment", device, value.device))
            value = placed(value, device)
        if value.shape != shape and broadcast_shapes(value.shape, shape) == shape:
            value = broadcast(value, shape)
        if value.shape != shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {shape} doesn't match the broadcast shape {value.shape}"
            )
        if value.dtype is not dtype:
            if not np.can_cast(value.dtype, dtype, casting):
                what = f"ufunc '{op.name}' output" if op else "output"
                raise TypeError(f"Cannot cast {what} from {value.dtype!r} to {dtype!r} with casting rule {casting!r}")
            value = cast(value, dtype)
        if (ask := guard.get()) is not None:
            ask(self)
        with writing:
            if self._storage is None:
                self._expr = value
                return
        self._assign(*self._window(), shape, value)

    def _computed(self) -> Expr:
        """The current value, computed.

        A view's storage is computed whole, so that reading it again costs nothing, unless it is large beside the view.
        """
        storage, e = None, self._expr
        if e is None:
            storage = self._storage
            assert storage is not None
            e = storage.expr
        if e.op is not BUFFER and e.op is not SCALAR:
            if self._is_small_window():
                e = self._read()
                flush.evaluate([e])
                return e
            flush.evaluate([e])
        return e if storage is None else self._read()

    def _is_readonly(self) -> bool:
        return self._storage is not None and self._readonly

    def _is_small_window(self) -> bool:
        """Whether this is a small part of a large array that is not computed yet."""
        storage = self._storage
        if storage is None:
            return False
        e = storage.expr
        return e.op is not BUFFER and e.nbytes > _LARGE and 16 * self.size < e.size

    def _host(self) -> np.ndarray:
        """The elements, read-only, and for the moment only."""
        return export.host(self._computed())

    @property
    def shape(self) -> Shape:
        """Extents of the axes."""
        e = self._expr
        return self._shape if e is None else e.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements: a NumPy dtype."""
        e = self._expr
        return self._shared.expr.dtype if e is None else e.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def _device(self) -> Device | None:
        """Where the value belongs; None if it is made of host values alone and not computed yet."""
        e = self._expr
        return self._shared.expr.device if e is None else e.device

    @property
    def _shared(self) -> Storage:
        """The storage of an array that has no expression of its own."""
        storage = self._storage
        assert storage is not None
        return storage
