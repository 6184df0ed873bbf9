"""The op table: every elementwise operation, reduction and scan, declared once.

`resolve` is the type rule of the front end (NumPy 2's promotion, Python scalars weak), `result_dtype` that of the block
IR, whose operands already have the dtypes that `resolve` asked for.  `interpret` computes a row with NumPy and defines
what compiled code must give, to within the row's `ulp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from . import draws, dtypes
from .dtypes import BOOL, COMPLEX128, FLOAT64, INT64, NUMPY

#: The type of an operand: a dtype, or Python's bool, int, float or complex for a Python scalar.
OperandType = np.dtype | type
#: (dtypes to cast the operands to, dtype of the result)
Signature = tuple[tuple[np.dtype, ...], np.dtype]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row.  Rows are compared by identity.

    kind      "elementwise", "reduction", "scan" or "structural" (those stand in `expr`)
    arity     number of array operands; -1: any
    numpy     elementwise: the NumPy ufunc or function that defines values (but see `values`) and, if a ufunc, dtypes;
              reduction and scan: function(array, axis) with dtype already right
    cost      time of one element, in additions
    ulp       largest error of compiled code in units in the last place, for f32 and f64; 0: correctly rounded.  The
              narrower floats are computed in f32 and rounded; a complex result is measured against its magnitude.
    combine   reduction and scan: name of the elementwise row that joins two partial results
    identity  reduction and scan: function(IR dtype) -> the Python value that `combine` leaves alone
    types     elementwise: (operands' IR dtypes, the result's) of each signature, where no ufunc has them
    values    elementwise: the function that defines values where a ufunc defines the dtypes alone
    """

    name: str
    arity: int
    kind: str
    doc: str
    numpy: Callable[..., Any] | None = None
    cost: int = 1
    ulp: tuple[float, float] = (0, 0)
    combine: str | None = None
    identity: Callable[[str], Any] | None = None
    types: tuple[tuple[tuple[str, ...], str], ...] = ()
    values: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


TABLE: dict[str, Op] = {}


def _elementwise(
    ufunc: np.ufunc,
    doc: str,
    cost: int = 1,
    ulp: float | tuple[float, float] = 0,
    values: Callable[..., Any] | None = None,
) -> None:
    both = ulp if isinstance(ulp, tuple) else (ulp, ulp)
    name = ufunc.__name__
    TABLE[name] = Op(name, ufunc.nin, "elementwise", doc, ufunc, cost, both, values=values)


# -- where NumPy refuses, loses a sign or leaves the Array API standard -----------------------------------------------
def _floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """floor(x / y) where either is infinite; NumPy pairs // with %."""
    result = np.floor_divide(x, y)
    return result if x.dtype.kind in "iu" else np.where(np.isinf(x) | np.isinf(y), np.divide(x, y), result)


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """For integers with negative exponents, the exact power truncated (0 for a base of 0)."""
    if base.dtype.kind == "f":
        result, half = np.power(base, exponent), exponent == 0.5
        if not half.any():
            return result
        # NumPy may take the root, which is -0 of -0 and NaN of minus infinity.
        return np.where(half, np.where(np.isneginf(base), base.dtype.type(np.inf), result + base.dtype.type(0)), result)
    negative = exponent < 0
    if base.dtype.kind not in "iu" or not negative.any():
        return np.power(base, exponent)
    reciprocal = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(negative, reciprocal, np.power(base, np.where(negative, 0, exponent))).astype(base.dtype)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) == 1, x, np.zeros_like(x)) if x.dtype.kind in "iu" else np.reciprocal(x)


def _sign(x: np.ndarray) -> np.ndarray:
    if x.dtype in _NARROW:
        # ml_dtypes keeps the sign of a zero, which NumPy's own floats lose.
        return np.sign(x.astype(NUMPY["f32"])).astype(x.dtype)
    return np.where(np.isnan(x), complex(np.nan, np.nan), np.sign(x)) if x.dtype.kind == "c" else np.sign(x)


def _tanh(x: np.ndarray) -> np.ndarray:
    result: Any = np.asarray(np.tanh(x))
    if x.dtype.kind == "c":
        result.imag = np.where(np.isinf(np.real(x)), np.copysign(0, np.imag(x)), result.imag)
    return result


def _tan(x: np.ndarray) -> np.ndarray:
    result: Any = np.asarray(np.tan(x))
    if x.dtype.kind == "c":
        result.real = np.where(np.isinf(np.imag(x)), np.copysign(0, np.real(x)), result.real)
    return result


def _expm1(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "c":
        return np.expm1(x)
    # NumPy's multiplies infinities by zeros, and gives -0 for -0.
    result: Any = np.asarray(np.exp(x))
    result.real = np.where(np.abs(np.real(x)) < 1, np.real(np.expm1(x)) + 0.0, result.real - 1)
    return result


_elementwise(np.add, "Sum of two numbers.")
_elementwise(np.subtract, "Difference of two numbers.")
_elementwise(np.multiply, "Product of two numbers.")
_elementwise(np.divide, "Quotient; of integers, in floating point.", 5)
_elementwise(
    np.floor_divide, "Quotient rounded towards minus infinity; an integer divided by zero is 0.", 10, 0, _floor_divide
)
_elementwise(np.remainder, "Remainder of floor_divide; it has the divisor's sign.", 12)
_elementwise(np.fmod, "Remainder of truncating division; it has the dividend's sign.", 12)
_elementwise(np.power, "First operand raised to the second.", 30, 4, _power)
_elementwise(np.float_power, "First operand raised to the second, in at least double precision.", 40, 4)
_elementwise(np.negative, "Numerical negative.")
_elementwise(np.positive, "The operand itself.")
_elementwise(np.absolute, "Absolute value; of a complex number, its magnitude.", 1)
_elementwise(np.fabs, "Absolute value of a real number, in floating point.")
_elementwise(
    np.sign, "-1, 0 or 1 as the operand is negative, zero or positive; of a complex number, x / abs(x).", 2, 0, _sign
)
_elementwise(np.square, "The operand times itself.")
_elementwise(np.sqrt, "Non-negative square root.", 6)
_elementwise(np.cbrt, "Cube root.", 20, 4)
_elementwise(np.reciprocal, "One divided by the operand, in its own type.", 5, 0, _reciprocal)
_elementwise(np.conjugate, "Complex conjugate.")

_elementwise(np.exp, "Exponential.", 10, 2)
_elementwise(np.exp2, "Two to the power of the operand.", 10, 1.5)
_elementwise(np.expm1, "exp(x) - 1, accurate near zero.", 20, 4, _expm1)
_elementwise(np.log, "Natural logarithm.", 12, 1.5)
_elementwise(np.log1p, "log(1 + x), accurate near zero.", 20, 4)
_elementwise(np.log2, "Base-2 logarithm.", 12, 2)
_elementwise(np.log10, "Base-10 logarithm.", 12, 4)
_elementwise(np.logaddexp, "log(exp(x) + exp(y)).", 30, 4)
_elementwise(np.logaddexp2, "log2(2**x + 2**y).", 30, 4)

_elementwise(np.sin, "Sine of an angle in radians.", 15, (2, 4))
_elementwise(np.cos, "Cosine of an angle in radians.", 15, (2, 4))
_elementwise(np.tan, "Tangent of an angle in radians.", 20, 4, _tan)
_elementwise(np.arcsin, "Inverse sine.", 15, 4)
_elementwise(np.arccos, "Inverse cosine.", 15, 4)
_elementwise(np.arctan, "Inverse tangent.", 15, 4)
_elementwise(np.arctan2, "Angle of the point (second operand, first operand).", 25, 4)
_elementwise(np.sinh, "Hyperbolic sine.", 20, 4)
_elementwise(np.cosh, "Hyperbolic cosine.", 20, 4)
_elementwise(np.tanh, "Hyperbolic tangent.", 15, 2, _tanh)
_elementwise(np.arcsinh, "Inverse hyperbolic sine.", 20, 4)
_elementwise(np.arccosh, "Inverse hyperbolic cosine.", 20, 4)
_elementwise(np.arctanh, "Inverse hyperbolic tangent.", 20, 4)
_elementwise(np.hypot, "sqrt(x*x + y*y) without overflow.", 10, 4)
_elementwise(np.deg2rad, "Degrees to radians.", 1, 1)
_elementwise(np.rad2deg, "Radians to degrees.", 1, 1)

_elementwise(np.floor, "Largest integer not above the operand.")
_elementwise(np.ceil, "Smallest integer not below the operand.")
_elementwise(np.trunc, "The operand rounded towards zero.")
_elementwise(np.rint, "The operand rounded to the nearest integer, halves to even.")

_elementwise(np.equal, "Whether the operands are equal.")
_elementwise(np.not_equal, "Whether the operands differ.")
_elementwise(np.less, "Whether the first operand is less than the second.")
_elementwise(np.less_equal, "Whether the first operand is not above the second.")
_elementwise(np.greater, "Whether the first operand is greater than the second.")
_elementwise(np.greater_equal, "Whether the first operand is not below the second.")
_elementwise(np.logical_and, "Whether both operands are non-zero.")
_elementwise(np.logical_or, "Whether either operand is non-zero.")
_elementwise(np.logical_xor, "Whether exactly one operand is non-zero.")
_elementwise(np.logical_not, "Whether the operand is zero.")
_elementwise(np.isnan, "Whether the operand is not a number.")
_elementwise(np.isinf, "Whether the operand is infinite.")
_elementwise(np.isfinite, "Whether the operand is neither infinite nor a NaN.")
_elementwise(np.signbit, "Whether the sign bit is set.")

_elementwise(np.bitwise_and, "Bitwise and.")
_elementwise(np.bitwise_or, "Bitwise or.")
_elementwise(np.bitwise_xor, "Bitwise exclusive or.")
_elementwise(np.invert, "Bitwise not.")
_elementwise(np.left_shift, "Shift to the left; a shift by the width or more gives 0.")
_elementwise(np.right_shift, "Arithmetic shift to the right; a shift by the width or more leaves the sign.")
_elementwise(np.bitwise_count, "Number of one bits in the absolute value.", 4)

_elementwise(np.maximum, "Larger operand; a NaN if either is one.", 2)
_elementwise(np.minimum, "Smaller operand; a NaN if either is one.", 2)
_elementwise(np.fmax, "Larger operand; the other one if one is a NaN.", 2)
_elementwise(np.fmin, "Smaller operand; the other one if one is a NaN.", 2)
_elementwise(np.copysign, "First operand with the second one's sign.", 2)
_elementwise(np.nextafter, "Next floating-point number after the first operand towards the second.", 6)
_elementwise(np.heaviside, "0 for a negative first operand, 1 for a positive one, the second operand for zero.", 3)


def _function(name: str, arity: int, doc: str, function: Callable[..., Any], cost: int = 1) -> None:
    TABLE[name] = Op(name, arity, "elementwise", doc, function, cost)


def _clip(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


def _complex(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    z = np.empty(np.broadcast_shapes(re.shape, im.shape), _COMPLEX_OF[re.dtype])
    z.real, z.imag = re, im
    return z


_COMPLEX_OF = {NUMPY["f32"]: NUMPY["c64"], NUMPY["f64"]: COMPLEX128}

_function("where", 3, "Second operand where the first one is True, else the third.", np.where)
_function("clip", 3, "minimum(maximum(x, low), high); NaNs pass.", _clip, 3)
_function("real", 1, "Real part.", np.real)
_function("imag", 1, "Imaginary part.", np.imag)
_function("complex", 2, "Complex number from its real and imaginary parts.", _complex)
#: The result's dtype is the node's, not the table's to say.
_function("cast", 1, "Conversion to another dtype; see `dtypes.cast_array`.", dtypes.cast_array)


def _typed(
    name: str,
    doc: str,
    function: Callable[..., Any],
    cost: int,
    *types: tuple[tuple[str, ...], str],
    ulp: tuple[float, float] = (0, 0),
) -> None:
    TABLE[name] = Op(name, len(types[0][0]), "elementwise", doc, function, cost, ulp, types=types)


#: index, block, nonce, key: see `draws`.
_AT = ("u64",) * 4
_typed("philox32", "32 random bits.", draws.philox32, 40, (_AT, "u32"))
_typed("philox64", "64 random bits.", draws.philox64, 40, (_AT, "u64"))
_typed("bounded32", "A random integer below a bound of at most 2**32.", draws.bounded32, 50, ((*_AT, "u64"), "u32"))
_typed("bounded64", "A random integer below a bound.", draws.bounded64, 60, ((*_AT, "u64"), "u64"))
_typed("gamma", "Gamma deviate of shape 1/3 or more.", draws.gamma, 200, ((*_AT, "f32"), "f32"), ((*_AT, "f64"), "f64"))
_typed("poisson", "Poisson deviate, a whole number.", draws.poisson, 300, ((*_AT, "f64"), "f64"))
_typed(
    "binomial", "Binomial deviate, a whole number, for p up to 1/2.", draws.binomial, 400, ((*_AT, "f64", "f64"), "f64")
)
_typed(
    "hypergeometric", "Good ones in a sample of good and bad.", draws.hypergeometric, 500,
    ((*_AT, "f64", "f64", "f64"), "f64"),
)  # fmt: skip
_typed("zipf", "Zipf deviate, a whole number.", draws.zipf, 400, ((*_AT, "f64"), "f64"))
_typed("vonmises", "Von Mises deviate around 0.", draws.vonmises, 300, ((*_AT, "f64"), "f64"))
_typed(
    "fraction", "Random bits as a number in [0, 1); of a signed type, from -1/2 to 1/2 but not 0.", draws.fraction, 4,
    (("u32",), "f32"), (("u64",), "f64"), (("i32",), "f32"), (("i64",), "f64"),
)  # fmt: skip
_typed(
    "normal_tail", "Normal deviate of x's sign with upper tail abs(x), from 2**-65 up to 1/2.", draws.normal_tail, 45,
    (("f32",), "f32"), (("f64",), "f64"), ulp=(4, 4),
)  # fmt: skip


# -- what the block language has beside NumPy -------------------------------------------------------------------------
def _trunc_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = np.floor_divide(x, y)
    inexact = (np.multiply(quotient, y) != x) & (y != 0) & ((x < 0) != (y < 0))
    return quotient + inexact.astype(x.dtype)


def _umulhi(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = 4 * x.dtype.itemsize
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    a, b = x.view(unsigned), y.view(unsigned)
    low = unsigned.type(2**bits - 1)
    middle = (a >> bits) * (b & low) + ((a & low) * (b & low) >> bits)
    other = (a & low) * (b >> bits) + (middle & low)
    return ((a >> bits) * (b >> bits) + (middle >> bits) + (other >> bits)).view(x.dtype)


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    if x.dtype == FLOAT64:
        return np.asarray(_fma64(x, y, z), FLOAT64)
    # The product is exact in f64; a sum rounded to odd is rounded once more without harm.
    product, addend = x.astype(FLOAT64) * y.astype(FLOAT64), z.astype(FLOAT64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    odd = np.nextafter(total, np.copysign(np.inf, error))
    even = (total.view(INT64) & 1) == 0
    exact = np.where(even & (error != 0) & np.isfinite(error), odd, total)
    return exact.astype(NUMPY["f32"]).astype(x.dtype)


@partial(np.vectorize, otypes=[float])
def _fma64(x: float, y: float, z: float) -> float:
    rounded = x * y + z
    if not all(map(math.isfinite, (x, y, z))):
        return rounded
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else rounded
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _rsqrt(x: np.ndarray) -> np.ndarray:
    wide = x.astype(NUMPY["f32"]) if x.dtype in _NARROW else x
    return (1 / np.sqrt(wide)).astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype)


_REALS = ("f16", "bf16", "f8e4m3", "f8e5m2", "f32", "f64")
_typed(
    "trunc_divide", "Quotient of integers rounded towards zero; divided by zero, 0.", _trunc_divide, 10,
    *(((d, d), d) for d in sorted(dtypes.INTEGER)),
)  # fmt: skip
_typed(
    "umulhi", "Upper half of the product of the bits as unsigned numbers.", _umulhi, 2,
    *(((d, d), d) for d in ("i32", "u32", "i64", "u64")),
)  # fmt: skip
_typed("fma", "x * y + z, rounded once.", _fma, 1, *(((d,) * 3, d) for d in _REALS))
_typed("rsqrt", "One divided by the square root.", _rsqrt, 8, *(((d,), d) for d in _REALS), ulp=(2, 2))
_typed("erf", "Error function.", _erf, 20, *(((d,), d) for d in _REALS), ulp=(4, 4))


def _signed_zero(dtype: str) -> Any:
    """What leaves the sign of a zero alone when added."""
    if dtype in dtypes.COMPLEX:
        return complex(-0.0, -0.0)
    return 0 if dtype in dtypes.INTEGER or dtype == "bool" else -0.0


def _lowest(dtype: str) -> Any:
    if dtype in dtypes.INTEGER:
        return int(np.iinfo(NUMPY[dtype]).min)
    if dtype in dtypes.COMPLEX:
        return complex(-np.inf, -np.inf)
    return False if dtype == "bool" else -_largest(dtype)


def _highest(dtype: str) -> Any:
    if dtype in dtypes.INTEGER:
        return int(np.iinfo(NUMPY[dtype]).max)
    if dtype in dtypes.COMPLEX:
        return complex(np.inf, np.inf)
    return True if dtype == "bool" else _largest(dtype)


def _largest(dtype: str) -> float:
    return 448.0 if dtype == "f8e4m3" else np.inf  # which has no infinity


def _no_number(end: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda dtype: np.nan if dtype in dtypes.FLOAT else end(dtype)


def _accumulate(function: Callable[..., np.ndarray]) -> Callable[[np.ndarray, Any], np.ndarray]:
    """`function` in the operand's dtype, the narrow floats in f32."""

    def run(array: np.ndarray, axis: Any) -> np.ndarray:
        wide = NUMPY["f32"] if array.dtype in _NARROW else array.dtype
        return np.asarray(function(array, axis, wide), array.dtype)

    return run


_NARROW = frozenset(NUMPY[d] for d in dtypes.NARROW)


def _reduction(
    name: str,
    doc: str,
    function: Callable[..., Any],
    combine: str,
    identity: Callable[[str], Any],
    kind: str = "reduction",
) -> None:
    TABLE[name] = Op(name, 1, kind, doc, function, combine=combine, identity=identity)


_reduction("sum", "Sum of the elements.", _accumulate(np.add.reduce), "add", lambda dtype: 0)
_reduction("prod", "Product of the elements.", _accumulate(np.multiply.reduce), "multiply", lambda dtype: 1)
_reduction("min", "Smallest element; a NaN if there is one.", np.minimum.reduce, "minimum", _highest)
_reduction("max", "Largest element; a NaN if there is one.", np.maximum.reduce, "maximum", _lowest)
# Neutral are NaN and the other end of the numbers, so that of no numbers the result is either.
_reduction("min_number", "Smallest element that is no NaN.", np.fmin.reduce, "fmin", _no_number(_highest))
_reduction("max_number", "Largest element that is no NaN.", np.fmax.reduce, "fmax", _no_number(_lowest))
_reduction("any", "Whether any element is non-zero.", np.logical_or.reduce, "logical_or", lambda dtype: False)
_reduction("all", "Whether all elements are non-zero.", np.logical_and.reduce, "logical_and", lambda dtype: True)
_reduction("argmin", "Position of the first smallest element, or of the first NaN.", np.argmin, "minimum", _highest)
_reduction("argmax", "Position of the first largest element, or of the first NaN.", np.argmax, "maximum", _lowest)
_reduction("cumsum", "Sums of the elements so far.", _accumulate(np.add.accumulate), "add", _signed_zero, "scan")
_reduction(
    "cumprod",
    "Products of the elements so far.",
    _accumulate(np.multiply.accumulate),
    "multiply",
    lambda dtype: 1,
    "scan",
)
_reduction("cummin", "Smallest element so far.", np.minimum.accumulate, "minimum", _highest, "scan")
_reduction("cummax", "Largest element so far.", np.maximum.accumulate, "maximum", _lowest, "scan")

#: Exponents for which power is a few multiplications, a root or a reciprocal: these are part of a kernel's code.
LITERAL_EXPONENTS: frozenset[Any] = frozenset((-1, 0.5, 1, 2, 3, 4))

#: NumPy's other names.
ALIASES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
    "atanh": "arctanh", "abs": "absolute", "bitwise_invert": "invert", "bitwise_not": "invert", "conj": "conjugate",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "degrees": "rad2deg", "mod": "remainder",
    "pow": "power", "radians": "deg2rad", "true_divide": "divide",
}  # fmt: skip


# -- type rules -------------------------------------------------------------------------------------------------------
_DEFAULT: dict[type, np.dtype] = {bool: BOOL, int: INT64, float: FLOAT64, complex: COMPLEX128}
_UNSUPPORTED = "ufunc '{}' not supported for the input types {}"


def _strengthen(types: tuple[OperandType, ...]) -> tuple[OperandType, ...]:
    """The types with those Python scalars made dtypes that the ufunc machinery does not take as weak."""
    types = tuple(BOOL if t is bool else t for t in types)
    strong = [t for t in types if isinstance(t, np.dtype)]
    if not strong:
        return tuple(_DEFAULT[t] for t in types)  # type: ignore[index]
    # ml_dtypes registers no rule for Python scalars: give its types the one of NumPy's own floats.
    if any(t is float for t in types) and (both := promote(*strong)) in _NARROW:
        return tuple(both if t is float else t for t in types)
    return types


def _loop(ufunc: np.ufunc, types: tuple[OperandType, ...]) -> Signature:
    resolved = ufunc.resolve_dtypes((*_strengthen(types), None))  # type: ignore[arg-type]
    if any(d not in dtypes.NUMPY_NAMES for d in resolved):
        raise TypeError(_UNSUPPORTED.format(ufunc.__name__, _spell(types)))
    return resolved[:-1], resolved[-1]


def _spell(types: tuple[OperandType, ...]) -> str:
    return "(" + ", ".join(t.name if isinstance(t, np.dtype) else t.__name__ for t in types) + ")"


@cache
def promote(*types: OperandType) -> np.dtype:
    """The dtype that arrays and Python scalars of these types are promoted to together."""
    strong = [t for t in types if isinstance(t, np.dtype)]
    result = strong[0] if strong else _DEFAULT[types[0]]  # type: ignore[index]
    # Dtypes first: a Python scalar only chooses the kind.
    for t in strong[1:]:
        result = _loop(np.add, (result, t))[1]
    for t in types:
        if not isinstance(t, np.dtype):
            result = _loop(np.add, (result, t if strong else _DEFAULT[t]))[1]  # type: ignore[index]
    return result


@cache
def resolve(op: Op, *types: OperandType) -> Signature:
    """The dtypes that an op's operands are cast to, and its result's dtype.

    Parameters
    ----------
    op : Op
        An elementwise op, reduction or scan; not `cast`, whose result the caller chooses.
    *types : numpy.dtype or type
        A dtype for an array, Python's `bool`, `int`, `float` or `complex` for a Python scalar.

    Raises
    ------
    TypeError
        If the op is not defined on these types.
    """
    if op.kind != "elementwise":
        return _resolve_reduction(op, _DEFAULT[types[0]] if not isinstance(types[0], np.dtype) else types[0])
    if op.name == "where":
        both = promote(*types[1:])
        return (BOOL, both, both), both
    if op.name == "clip":
        both = promote(*types)
        if both == BOOL:
            raise TypeError(_UNSUPPORTED.format("clip", _spell(types)))
        return (both, both, both), both
    if op.name in ("real", "imag"):
        own = types[0] if isinstance(types[0], np.dtype) else _DEFAULT[types[0]]
        return (own,), _part(own)
    if op.name == "complex":
        both = promote(*types, NUMPY["f32"])
        if both not in _COMPLEX_OF:
            raise TypeError(_UNSUPPORTED.format("complex", _spell(types)))
        return (both, both), _COMPLEX_OF[both]
    for operands, result in op.types:
        if types == tuple(NUMPY[d] for d in operands):
            return types, NUMPY[result]  # type: ignore[return-value]
    if isinstance(op.numpy, np.ufunc):
        inputs, output = _loop(op.numpy, types)
        # One rule for truth, whatever loop the ufunc has.
        return ((BOOL,) * len(inputs), output) if op.name.startswith("logical_") else (inputs, output)
    raise TypeError(f"{op.name} has no type rule")


def _resolve_reduction(op: Op, dtype: np.dtype) -> Signature:
    if op.name in ("any", "all"):
        return (BOOL,), BOOL
    if op.name in ("argmin", "argmax"):
        return (dtype,), INT64
    if op.combine in ("add", "multiply"):
        if dtype == BOOL or dtype.kind == "i":
            dtype = INT64
        elif dtype.kind == "u":
            dtype = NUMPY["u64"]
    return (dtype,), dtype


def _part(dtype: np.dtype) -> np.dtype:
    return NUMPY[dtypes.PART.get(dtypes.name(dtype), dtypes.name(dtype))]


@cache
def result_dtype(name: str, *operands: str) -> str:
    """The IR dtype of an op's result; the operands already have the dtypes that `resolve` asks for, else TypeError."""
    given = tuple(NUMPY[d] for d in operands)
    inputs, output = resolve(TABLE[name], *given)
    if TABLE[name].kind == "elementwise" and inputs != given:
        raise TypeError(f"{name} takes {_spell(inputs)}, not {_spell(given)}")
    if TABLE[name].kind != "elementwise" and name not in ("argmin", "argmax"):
        return operands[0]
    return dtypes.name(output)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def compare_beyond(name: str, dtype: np.dtype, value: int) -> bool | None:
    """What the comparison `x NAME value` gives for every x of an integer dtype when value is outside its range.

    None if the value is in range (or it is no such comparison): then it is an ordinary weak scalar.
    """
    if name not in _COMPARISONS or dtype.kind not in "iu":
        return None
    info = np.iinfo(dtype)
    if info.min <= value <= info.max:
        return None
    above = value > info.max
    return {"equal": False, "not_equal": True, "less": above, "less_equal": above}.get(name, not above)


# -- values -----------------------------------------------------------------------------------------------------------
def interpret(name: str, *arrays: np.ndarray) -> np.ndarray:
    """An elementwise op on arrays of the dtypes that `resolve` asks for, without warnings."""
    with np.errstate(all="ignore"):
        return compute(TABLE[name], *arrays)


def compute(op: Op, *arrays: np.ndarray) -> np.ndarray:
    """As `interpret`, for callers that have turned NumPy's warnings off."""
    function = op.values or op.numpy
    assert function is not None
    return np.asarray(function(*arrays))
