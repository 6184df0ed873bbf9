"""Elementwise functions: one for each row of the op table, and those made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .array import Array, binary_method, lazy, method, unary_method
from .array import power as _array_power
from .compiler.expr import broadcast
from .compiler.ops import ALIASES, TABLE, Op
from .dtypes import canonical, float64
from .operands import SCALARS, as_array, broadcast_shapes, cast, elementwise

#: Rows that are no functions of the namespace, or that are written out below.
_INTERNAL = frozenset(("cast", "complex", "where", "clip", "real", "imag", "power", "sign"))


def finish(result: Array, out: Any, op: Op | None = None, where: Any = True, casting: Any = "same_kind") -> Array:
    """The result of a function with `out=`, `where=` and `casting=`."""
    if isinstance(out, tuple):
        (out,) = out
    if where is not True:
        mask = as_array(where)
        shape = broadcast_shapes(result.shape, mask.shape)
        other = (
            out
            if out is not None
            else Array(broadcast(cast(elementwise(TABLE["where"], False, 0, 0)._read(), result.dtype), shape))
        )
        result = elementwise(TABLE["where"], mask, cast_to(result, other.dtype), other)
    if out is None:
        return result
    if not isinstance(out, Array):
        raise TypeError("return arrays must be of ArrayType")
    out._fill(result._read(), op, casting)
    return out


def cast_to(a: Array, dtype: np.dtype) -> Array:
    """`a` converted to a dtype, itself if it has it."""
    return a if a.dtype == dtype else lazy(cast(a._read(), dtype))


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def _make(op: Op) -> Any:
    """The public function of a row."""

    record: Any = (unary_method if op.arity == 1 else binary_method)(op.name)

    def unary(x: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: str = "same_kind") -> Array:
        if dtype is None and type(x) is Array:
            result = record(x)
        else:
            result = elementwise(op, x, dtype=None if dtype is None else canonical(dtype), casting=casting)
        return result if out is None and where is True else finish(result, out, op, where, casting)

    def binary(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: str = "same_kind"
    ) -> Array:
        if dtype is None and type(x1) is Array and type(x2) in (Array, int, float):
            result = record(x1, x2)
        else:
            result = elementwise(op, x1, x2, dtype=None if dtype is None else canonical(dtype), casting=casting)
        return result if out is None and where is True else finish(result, out, op, where, casting)

    function = unary if op.arity == 1 else binary
    function.__name__ = function.__qualname__ = op.name
    operands = "x : array_like" if op.arity == 1 else "x1, x2 : array_like"
    function.__doc__ = f"""{op.doc}

    Parameters
    ----------
    {operands}
    out : Array, optional
        Where to put the result.
    where : array_like of bool, optional
        Positions to compute; `out` keeps its elements elsewhere.
    dtype : dtype, optional
        Type to compute in.
    casting : str
        Rule for casts to `dtype` and to the type of `out`.

    Returns
    -------
    Array
    """
    return function


#: Rows that no ufunc types are what random draws are made of.
__all__ = [name for name, op in TABLE.items() if op.kind == "elementwise" and name not in _INTERNAL and not op.types]
globals().update({name: _make(TABLE[name]) for name in __all__})
globals().update({alias: globals()[name] for alias, name in ALIASES.items() if name in __all__})
__all__ += [alias for alias, name in ALIASES.items() if name in __all__]
__all__ += [
    "power", "pow", "sign", "where", "clip", "real", "imag", "round", "around", "divmod", "modf", "ldexp", "fix",
    "sinc", "angle", "isposinf", "isneginf", "isreal", "iscomplex", "isclose", "allclose", "array_equal", "array_equiv",
    "nan_to_num", "iscomplexobj", "isrealobj", "gcd", "lcm",
]  # fmt: skip


def power(
    x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: str = "same_kind"
) -> Array:
    """First operand raised to the second."""
    if dtype is None and isinstance(x1, Array) and type(x2) in (int, float) and x1.dtype.kind != "b":
        result = _array_power(x1, x2)
    else:
        result = elementwise(TABLE["power"], x1, x2, dtype=None if dtype is None else canonical(dtype), casting=casting)
    return finish(result, out, TABLE["power"], where, casting)


pow = power


def sign(x: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: str = "same_kind") -> Array:
    """-1, 0 or 1 as the operand is negative, zero or positive; of a complex number, x / abs(x)."""
    to = None if dtype is None else canonical(dtype)
    return finish(elementwise(TABLE["sign"], x, dtype=to, casting=casting), out, None, where, casting)


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """`x` where a condition holds, else `y`; without them, the positions where it holds."""
    if x is None and y is None:
        from .selection import nonzero

        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return elementwise(TABLE["where"], condition, x, y)


@method
def clip(
    a: Any,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
    dtype: Any = None,
) -> Array:
    """The elements limited to an interval; a missing bound is no bound.

    Parameters
    ----------
    a, min, max : array_like
        `a_min` and `a_max` are NumPy's names of the bounds.
    out : Array, optional
    dtype : dtype, optional
    """
    if (min is not None or max is not None) and (a_min is not None or a_max is not None):
        raise ValueError("clip: the bounds are either min and max, or a_min and a_max")
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = as_array(a) if type(a) not in SCALARS else a
    if isinstance(x, Array) and x.dtype.kind in "iu":
        low, high = _bound(low, x.dtype, high=False), _bound(high, x.dtype, high=True)
    to = None if dtype is None else canonical(dtype)
    if low is None and high is None:
        result = as_array(x).copy()
    elif low is None:
        result = elementwise(TABLE["minimum"], x, high, dtype=to)
    elif high is None:
        result = elementwise(TABLE["maximum"], x, low, dtype=to)
    else:
        result = elementwise(TABLE["clip"], x, low, high, dtype=to)
    return finish(result, out, TABLE["clip"])


def _bound(value: Any, dtype: np.dtype, high: bool) -> Any:
    """A bound of `clip`; None for a Python integer that is beyond all values of an integer type."""
    if type(value) is not int:
        return value
    info = np.iinfo(dtype)
    return None if (value > info.max if high else value < info.min) else value


def real(val: Any, /) -> Array:
    """Real part."""
    return as_array(val).real


def imag(val: Any, /) -> Array:
    """Imaginary part."""
    return as_array(val).imag


@method
def round(a: Any, decimals: int = 0, out: Any = None) -> Array:
    """The elements rounded to a number of decimals, halves to even."""
    x = as_array(a)
    if x.dtype.kind == "b":
        x = x.astype(np.float16)
    if x.dtype.kind in "iu" and decimals >= 0:
        result = x.copy()
    elif decimals == 0:
        result = _rint(x)
    elif x.dtype.kind in "iu":
        scale = 10**-decimals
        result = cast_to(_rint(x / scale), x.dtype) * scale
    elif decimals > 0:
        result = _rint(x * 10.0**decimals) / 10.0**decimals
    else:
        result = _rint(x / 10.0**-decimals) * 10.0**-decimals
    return finish(result, out)


around = round


def _rint(x: Array) -> Array:
    return x if x.dtype.kind in "iu" else elementwise(TABLE["rint"], x)


def divmod(x1: Any, x2: Any, /, out1: Any = None, out2: Any = None, *, out: Any = None) -> tuple[Array, Array]:
    """floor_divide and remainder."""
    results = elementwise(TABLE["floor_divide"], x1, x2), elementwise(TABLE["remainder"], x1, x2)
    into = (out1, out2) if out is None else out
    return finish(results[0], into[0]), finish(results[1], into[1])


def modf(x: Any, /) -> tuple[Array, Array]:
    """Fractional and integral parts."""
    x = as_array(x)
    if x.dtype.kind in "iub":
        x = x.astype(float64)
    whole = elementwise(TABLE["trunc"], x)
    fraction = where(elementwise(TABLE["isinf"], x), 0.0, x - whole)
    return elementwise(TABLE["copysign"], fraction, x), whole


def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 * 2**x2."""
    x1 = as_array(x1)
    x1 = x1.astype(float64) if x1.dtype.kind in "iub" else x1
    # In two steps: 2**x2 alone may overflow where the product does not.
    n = as_array(x2)
    half = n // 2
    exp2 = lambda k: cast_to(elementwise(TABLE["exp2"], cast_to(k, float64)), float64)
    return cast_to(cast_to(x1, float64) * exp2(half) * exp2(n - half), x1.dtype)


def fix(x: Any, out: Any = None) -> Array:
    """The elements rounded towards zero."""
    return finish(elementwise(TABLE["trunc"], x), out)


def sinc(x: Any) -> Array:
    """sin(pi x) / (pi x), 1 at zero."""
    x = as_array(x)
    y = np.pi * where(x == 0, 1.0e-20, x)
    return elementwise(TABLE["sin"], y) / y


def angle(z: Any, deg: bool = False) -> Array:
    """Argument of a complex number."""
    z = as_array(z)
    result = elementwise(TABLE["arctan2"], z.imag, z.real)
    return result * (180 / np.pi) if deg else result


def isposinf(x: Any, out: Any = None) -> Array:
    """Whether the operand is positive infinity."""
    x = as_array(x)
    result = elementwise(TABLE["isinf"], x)
    return finish(result & ~_negative(x), out)


def isneginf(x: Any, out: Any = None) -> Array:
    """Whether the operand is negative infinity."""
    x = as_array(x)
    return finish(elementwise(TABLE["isinf"], x) & _negative(x), out)


def _negative(x: Array) -> Array:
    return x < 0 if x.dtype.kind != "b" else x & False


def iscomplex(x: Any) -> Array:
    """Whether the imaginary part is not zero."""
    return as_array(x).imag != 0


def isreal(x: Any) -> Array:
    """Whether the imaginary part is zero."""
    return as_array(x).imag == 0


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return as_array(x).dtype.kind == "c"


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    """Whether elements are equal within abs(a - b) <= atol + rtol * abs(b)."""
    x, y = as_array(a), as_array(b)
    if y.dtype.kind in "iub":
        y = y.astype(float64)
    if x.dtype.kind == "b":
        x = x.astype(float64)
    finite = elementwise(TABLE["isfinite"], y)
    close = (abs(x - y) <= atol + rtol * abs(y)) & finite | (x == y)
    if equal_nan:
        close = close | ((x != x) & (y != y))
    return close


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are equal within a tolerance; see `isclose`."""
    return bool(np.all(isclose(a, b, rtol, atol, equal_nan)._host()))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two arrays have the same shape and elements."""
    x, y = as_array(a1), as_array(a2)
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan:
        same = same | ((x != x) & (y != y))
    return bool(np.all(same._host()))


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two arrays have the same elements once broadcast together."""
    x, y = as_array(a1), as_array(a2)
    try:
        broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return bool(np.all((x == y)._host()))


def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """The elements with NaN replaced by a number and infinities by large ones."""
    x = as_array(x)
    if x.dtype.kind in "iub":
        return x.copy()
    if x.dtype.kind == "c":
        parts = (nan_to_num(p, True, nan, posinf, neginf) for p in (x.real, x.imag))
        result = elementwise(TABLE["complex"], *parts)
    else:
        from .dtypes import finfo

        info = finfo(x.dtype)
        result = where(x != x, nan, x)
        result = where(result == np.inf, info.max if posinf is None else posinf, result)
        result = where(result == -np.inf, info.min if neginf is None else neginf, result)
    return result if copy else finish(result, x)


def _host_binary(name: str) -> Any:
    from .host import call

    ufunc = getattr(np, name)

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = as_array(x1), as_array(x2)
        return call(name, ufunc, (a, b), broadcast_shapes(a.shape, b.shape), np.result_type(a.dtype, b.dtype))

    function.__name__ = name
    function.__doc__ = f"{name.upper()} of two integers."
    return function


gcd, lcm = _host_binary("gcd"), _host_binary("lcm")
