"""The array: a lazy value that indexes, aliases and mutates as NumPy's does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import checks, dlpack, export, flush, indexing, transfer
from .compiler.expr import BUFFER, COPY, IOTA, SCALAR, VIEW, Expr, Shape, contiguous_strides, node, scalar
from .compiler.ops import TABLE, resolve
from .dtypes import canonical, real_type
from .operands import assigned, cast, constant, elementwise, is_operand
from .runtime.device import CPU, Device, default_device
from .storage import LIMIT, Window, bound

_new = object.__new__


# -- recording --------------------------------------------------------------------------------------------------------
#: Nodes of Python scalars by dtype, kind of scalar and value: to make one takes longer than to record the rest.
_constants: dict[tuple[np.dtype, type], dict[Any, Expr]] = {}
_WEAK_RULE = tuple[np.dtype, dict[Any, Expr]]


def binary_method(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method that records a binary operation.  The two usual cases are spelled out: this is the hottest path."""
    op = TABLE[name]
    same: dict[np.dtype, np.dtype] = {}
    ints: dict[np.dtype, _WEAK_RULE] = {}
    floats: dict[np.dtype, _WEAK_RULE] = {}

    def method(self: Array, other: Any) -> Any:
        x = self._expr
        if x is None:
            x = self._read()
        kind = type(other)
        dtype = x.dtype
        if kind is Array:
            y = other._expr
            if y is None:
                y = other._read()
            shape = x.shape
            if dtype is y.dtype and shape == y.shape and x.device is y.device:
                out = same.get(dtype)
                if out is not None:
                    e = _new(Expr)
                    e.op = op
                    e.inputs = (x, y)
                    e.attrs = None
                    e.shape = shape
                    e.dtype = out
                    e.device = x.device
                    depth = x.depth
                    if y.depth > depth:
                        depth = y.depth
                    e.depth = depth = depth + 1
                    result = _new(Array)
                    result._expr = e
                    result._storage = None
                    if depth > LIMIT:
                        bound(e)
                    return result
        elif kind is float or kind is int:
            rule = (floats if kind is float else ints).get(dtype)
            if rule is not None:
                out, known = rule
                s = known.get(other) if other else None  # 0.0 == -0.0
                if s is None:
                    try:
                        s = scalar(other, dtype)
                    except OverflowError:
                        return elementwise(op, other, self) if reflected else elementwise(op, self, other)
                    if other and len(known) < 256:
                        known[other] = s
                e = _new(Expr)
                e.op = op
                e.inputs = (s, x) if reflected else (x, s)
                e.attrs = None
                e.shape = x.shape
                e.dtype = out
                e.device = x.device
                e.depth = depth = x.depth + 1
                result = _new(Array)
                result._expr = e
                result._storage = None
                if depth > LIMIT:
                    bound(e)
                return result
        elif not is_operand(other):
            if name in ("equal", "not_equal") and (other is None or isinstance(other, str)):
                return Array(constant(name == "not_equal", np.dtype(bool), x.shape))
            return NotImplemented
        result = elementwise(op, other, self) if reflected else elementwise(op, self, other)
        if kind is Array:
            if other.dtype is dtype and not reflected:
                inputs, out = resolve(op, dtype, dtype)
                if inputs == (dtype, dtype):
                    same[dtype] = out
        elif kind is float or kind is int:
            inputs, out = resolve(op, kind, dtype) if reflected else resolve(op, dtype, kind)
            if inputs == (dtype, dtype):
                (floats if kind is float else ints)[dtype] = out, _constants.setdefault((dtype, kind), {})
        return result

    method.__name__ = name
    return method


def unary_method(name: str) -> Callable[[Any], Array]:
    op = TABLE[name]
    same: dict[np.dtype, np.dtype] = {}

    def method(self: Array) -> Array:
        x = self._expr
        if x is None:
            x = self._read()
        out = same.get(x.dtype)
        if out is None:
            result = elementwise(op, self)
            inputs, out = resolve(op, x.dtype)
            if inputs == (x.dtype,):
                same[x.dtype] = out
            return result
        return lazy(Expr(op, (x,), None, x.shape, out, x.depth + 1, x.device))

    method.__name__ = name
    return method


def _inplace(name: str) -> Callable[[Any, Any], Any]:
    record = binary_method(name)
    op = TABLE[name]

    def method(self: Array, other: Any) -> Any:
        result = record(self, other)
        if result is NotImplemented:
            return result
        self._fill(result._expr, op)
        return self

    method.__name__ = f"i{name}"
    return method


_power = binary_method("power")
_square, _sqrt, _reciprocal = map(unary_method, ("square", "sqrt", "reciprocal"))


def power(x: Array, exponent: Any) -> Any:
    """x ** exponent, with NumPy's short cuts for the usual constants."""
    kind = type(exponent)
    if kind is int or kind is float:
        inexact = x.dtype.kind in "fcV"
        if exponent == 2 and (inexact or kind is int):
            return _square(x)
        if x.dtype.kind == "c" and exponent == 0.5:
            return _sqrt(x)
        if inexact and exponent == -1:
            return _reciprocal(x)
        if kind is int and exponent < 0 and x.dtype.kind in "iu":
            raise ValueError("Integers to negative integer powers are not allowed.")
    return _power(x, exponent)


def _ipower(x: Array, exponent: Any) -> Any:
    result = power(x, exponent)
    if result is NotImplemented:
        return result
    x._fill(result._expr, TABLE["power"])
    return x


def method(function: Any) -> Any:
    """Make a function of the namespace a method of Array as well."""
    setattr(Array, function.__name__, function)
    return function


def in_order(e: Expr) -> Expr:
    """An expression whose elements will lie in row-major order: itself if they do, or else a copy."""
    if e.op is BUFFER:
        steps = [(s, c) for n, s, c in zip(e.shape, e.attrs[2], contiguous_strides(e.shape)) if n != 1]
        ordered = all(s == c for s, c in steps) or 0 in e.shape
    else:
        ordered = (e.inputs[0] if e.op is VIEW else e).op in (SCALAR, IOTA)
    return e if ordered else node(COPY, (e,), None, e.shape, e.dtype)


def lazy(e: Expr) -> Array:
    """The array of a recorded expression, computed if its graph has become deep."""
    if e.depth > LIMIT:
        bound(e)
    result = _new(Array)
    result._expr = e
    result._storage = None
    return result


class Array(Window):
    """An n-dimensional array whose value is computed when it is looked at.

    Make one with `asarray`, `zeros`, `arange` and their like.  Operations follow NumPy's rules for types, broadcasting,
    views and assignment.
    """

    __slots__ = ()

    #: NumPy arrays and scalars leave binary operators to this class.
    __array_priority__ = 1000

    if TYPE_CHECKING:
        # Operators of `products`, and functions of the namespace that are methods too; see `method`.
        __matmul__: Callable[..., Any]
        __rmatmul__: Callable[..., Any]
        __imatmul__: Callable[..., Any]
        all: Callable[..., Array]
        any: Callable[..., Array]
        argmax: Callable[..., Array]
        argmin: Callable[..., Array]
        argsort: Callable[..., Array]
        clip: Callable[..., Array]
        compress: Callable[..., Array]
        cumprod: Callable[..., Array]
        cumsum: Callable[..., Array]
        diagonal: Callable[..., Array]
        dot: Callable[..., Array]
        flatten: Callable[..., Array]
        max: Callable[..., Array]
        mean: Callable[..., Array]
        min: Callable[..., Array]
        nonzero: Callable[..., tuple[Array, ...]]
        prod: Callable[..., Array]
        put: Callable[..., None]
        ravel: Callable[..., Array]
        repeat: Callable[..., Array]
        reshape: Callable[..., Array]
        round: Callable[..., Array]
        searchsorted: Callable[..., Array]
        sort: Callable[..., None]
        squeeze: Callable[..., Array]
        std: Callable[..., Array]
        sum: Callable[..., Array]
        swapaxes: Callable[..., Array]
        take: Callable[..., Array]
        trace: Callable[..., Array]
        transpose: Callable[..., Array]
        var: Callable[..., Array]

    # -- properties ---------------------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> Shape:
        """Bytes from one element to the next along each axis."""
        return tuple(s * self.itemsize for s in self._window()[1])

    @property
    def device(self) -> Device:
        """Where the array lives."""
        return self._device() or default_device()

    @property
    def T(self) -> Array:
        """The array with its axes reversed."""
        offset, strides = self._window()
        return self._view(offset, strides[::-1], self.shape[::-1])

    @property
    def mT(self) -> Array:
        """The array with its last two axes swapped."""
        offset, strides = self._window()
        shape = self.shape
        if len(shape) < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        swap = lambda t: (*t[:-2], t[-1], t[-2])
        return self._view(offset, swap(strides), swap(shape))

    @property
    def real(self) -> Array:
        """Real part; a copy, unlike NumPy's, if the array is complex."""
        return elementwise(TABLE["real"], self) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        if self.dtype.kind == "c":
            part = assigned(value, real_type(self.dtype), self.shape, self.device)
            self._fill(elementwise(TABLE["complex"], Array(part), self.imag)._read())
        else:
            self[...] = value

    @property
    def imag(self) -> Array:
        """Imaginary part; a copy, unlike NumPy's."""
        return elementwise(TABLE["imag"], self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        part = assigned(value, real_type(self.dtype), self.shape, self.device)
        self._fill(elementwise(TABLE["complex"], self.real, Array(part))._read())

    @property
    def flat(self) -> Iterator[Array]:
        """Iterator over the elements in row-major order."""
        from .manipulation import reshape

        return iter(reshape(self, (-1,)))

    def to_device(self, device: Device | str, /, *, stream: Any = None) -> Array:
        """The array on a device: itself if it is there, else a copy.

        Parameters
        ----------
        device : Device or str
        stream : int, optional
            Handle of a stream of the target (of the source, if the target is the CPU) that may use the result as soon
            as it gets there; None: whoever uses it by way of this library.
        """
        to = Device(device)
        if self.device is to and stream is None:
            return self
        return transfer.to_device(self, to, stream)

    # -- indexing -----------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Array:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        indexing.setitem(self, key, value)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __iter__(self) -> Iterator[Array]:
        shape = self.shape
        if not shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(self._host() == (value._host() if isinstance(value, Array) else value)))

    # -- to the host --------------------------------------------------------------------------------------------------
    def item(self, *index: Any) -> Any:
        """An element as a Python scalar."""
        return self._host().item(*index) if index or self.shape else export.element(self._computed())

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self._host().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements' bytes."""
        return self._host().tobytes(order)

    def _scalar(self, what: str) -> Any:
        """The element of a 0-d array."""
        if self.shape:
            raise TypeError(f"only 0-dimensional arrays can be converted to {what}")
        return export.element(self._computed())

    def __bool__(self) -> bool:
        return bool(self._host()) if self.shape else bool(export.element(self._computed()))

    def __int__(self) -> int:
        return int(self._scalar("Python integers"))

    def __float__(self) -> float:
        return float(self._scalar("Python floats"))

    def __complex__(self) -> complex:
        return complex(self._scalar("Python complex numbers"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self._scalar("a scalar index"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy:
            return np.array(self._host(), dtype)
        if copy is False and self.device is not CPU:
            raise ValueError(f"an array on {self.device} cannot become a NumPy array without a copy")
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError("a change of dtype needs a copy")
            return self._host().astype(dtype)
        return export.readonly(self)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return transfer.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.device
        return (dlpack.CPU if device is CPU else dlpack.CUDA, device.index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device is CPU:
            raise AttributeError("an array on the CPU has no __cuda_array_interface__")
        return transfer.interface(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .interop import array_ufunc

        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .interop import array_function

        return array_function(func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import blockarray

        if api_version is None:
            return blockarray
        from .versions import namespace

        return namespace(api_version)

    def __repr__(self) -> str:
        return repr(self._host())

    def __str__(self) -> str:
        return str(self._host())

    def __format__(self, spec: str) -> str:
        return format(self._host()[()] if not self.shape else self._host(), spec)

    def __reduce__(self) -> Any:
        from .creation import array

        return array, (np.array(self._host()),)

    def __copy__(self) -> Array:
        return self.copy("K")

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy("K")

    def copy(self, order: Any = "C") -> Array:
        """A copy of the array.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}, optional
            How it lies in memory: by rows, by columns, or ("A" and "K") as it comes.
        """
        e = self._read()
        if export.is_shared(e):
            e = export.snapshot(e)
        if order == "F":
            return Array(in_order(Array(e).T._read())).T
        return Array(in_order(e) if order == "C" else e)

    def fill(self, value: Any) -> None:
        """Set every element to a scalar."""
        self[...] = value

    def conj(self) -> Array:
        """Complex conjugate."""
        return elementwise(TABLE["conjugate"], self)

    conjugate = conj

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: Any = "unsafe",
        subok: bool = True,
        copy: bool = True,
        *,
        device: Any = None,
    ) -> Array:
        """The array with its elements cast to another type."""
        to = canonical(dtype)
        if to == self.dtype:
            result = self.copy("K") if copy else self
            return result if device is None else result.to_device(device)
        if casting != "unsafe" and not np.can_cast(self.dtype, to, casting):
            raise TypeError(f"Cannot cast array data from {self.dtype!r} to {to!r} according to the rule {casting!r}")
        result = lazy(cast(self._read(), to))
        return result if device is None else result.to_device(device)

    def block_until_ready(self) -> Array:
        """Compute the array and wait until its elements are there; returns it.

        Raises
        ------
        IndexError
            If an index array on a GPU, of which the elements come, held an index that is out of bounds.
        """
        e = self._read()
        flush.evaluate([e])
        if e.op is BUFFER:
            checks.wait(e.attrs[0])
        return self

    # -- operators ----------------------------------------------------------------------------------------------------
    __hash__ = None  # type: ignore[assignment]

    __add__ = binary_method("add")
    __radd__ = binary_method("add", True)
    __sub__ = binary_method("subtract")
    __rsub__ = binary_method("subtract", True)
    __mul__ = binary_method("multiply")
    __rmul__ = binary_method("multiply", True)
    __truediv__ = binary_method("divide")
    __rtruediv__ = binary_method("divide", True)
    __floordiv__ = binary_method("floor_divide")
    __rfloordiv__ = binary_method("floor_divide", True)
    __mod__ = binary_method("remainder")
    __rmod__ = binary_method("remainder", True)
    __pow__ = power
    __rpow__ = binary_method("power", True)
    __and__ = binary_method("bitwise_and")
    __rand__ = binary_method("bitwise_and", True)
    __or__ = binary_method("bitwise_or")
    __ror__ = binary_method("bitwise_or", True)
    __xor__ = binary_method("bitwise_xor")
    __rxor__ = binary_method("bitwise_xor", True)
    __lshift__ = binary_method("left_shift")
    __rlshift__ = binary_method("left_shift", True)
    __rshift__ = binary_method("right_shift")
    __rrshift__ = binary_method("right_shift", True)

    __eq__ = binary_method("equal")  # type: ignore[assignment]
    __ne__ = binary_method("not_equal")  # type: ignore[assignment]
    __lt__ = binary_method("less")
    __le__ = binary_method("less_equal")
    __gt__ = binary_method("greater")
    __ge__ = binary_method("greater_equal")

    __neg__ = unary_method("negative")
    __pos__ = unary_method("positive")
    __abs__ = unary_method("absolute")
    __invert__ = unary_method("invert")

    __iadd__ = _inplace("add")
    __isub__ = _inplace("subtract")
    __imul__ = _inplace("multiply")
    __itruediv__ = _inplace("divide")
    __ifloordiv__ = _inplace("floor_divide")
    __imod__ = _inplace("remainder")
    __ipow__ = _ipower
    __iand__ = _inplace("bitwise_and")
    __ior__ = _inplace("bitwise_or")
    __ixor__ = _inplace("bitwise_xor")
    __ilshift__ = _inplace("left_shift")
    __irshift__ = _inplace("right_shift")

    def __divmod__(self, other: Any) -> tuple[Array, Array]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Array, Array]:
        return other // self, other % self
