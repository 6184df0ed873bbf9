"""Every elementwise op on every dtype: what it is given, and what is wrong with what it gave."""

import numpy as np

from blockarray.compiler import dtypes, ops
from blockarray.compiler.dtypes import NUMPY, PART
from tests.compiler.llvm_ops import hostile, spread

ROWS = [op for op in ops.TABLE.values() if op.kind == "elementwise" and op.name != "cast" and op.arity < 4]
#: C's result is used for values where one exists, else NumPy's in more precision.
WIDER = {
    **dict.fromkeys(dtypes.NARROW, "f32"),
    "f32": "f64",
    "f64": np.longdouble,
    "c64": "c128",
    "c128": np.clongdouble,
}

#: Binary digits of narrow floats, and their smallest numbers.
PLACES = {"f16": (11, 2.0**-24), "bf16": (8, 2.0**-133), "f8e4m3": (4, 2.0**-9), "f8e5m2": (3, 2.0**-16)}


def signatures(op):
    """Operand dtypes (as they are after casting) that the op takes."""
    found = []
    for first in NUMPY:
        try:
            inputs, out = ops.resolve(op, *[NUMPY[first]] * op.arity)
        except TypeError:
            continue
        operands = tuple(dtypes.name(d) for d in inputs)
        if operands not in [f[0] for f in found]:
            found.append((operands, dtypes.name(out)))
    if op.name in ("equal", "less", "greater_equal", "not_equal"):
        found += [(("i64", "u64"), "bool"), (("u64", "i64"), "bool")]
    return found


CASES = [(op, operands, out) for op in ROWS for operands, out in signatures(op)]


def label(op, operands, lanes):
    return "_".join((op.name, *operands, str(lanes)))


def operand_arrays(operands):
    rng = np.random.default_rng(7)
    if len(operands) == 1:
        return [np.concatenate([hostile(operands[0]), spread(operands[0], 500, rng)])]
    some = [hostile(d) if d not in PART else hostile(d)[::97] for d in operands]
    if len(operands) == 3:
        some = [s[:: max(1, len(s) // 24)] for s in some]
    crossed = [x.ravel() for x in np.meshgrid(*some)]
    return [np.concatenate([c, spread(d, 500, rng)]) for c, d in zip(crossed, operands, strict=True)]


def compare(op, operands, out, arrays, got):
    """What is wrong with `got`, or an empty string."""
    expected = ops.interpret(op.name, *arrays)
    assert expected.dtype == got.dtype, f"{expected.dtype} {got.dtype}"
    if out in dtypes.COMPLEX or (operands[0] in dtypes.COMPLEX and out in dtypes.FLOAT):
        return compare_complex(op, operands, arrays, got, expected)
    same = (got == expected) | ((got != got) & (expected != expected))
    if out in dtypes.FLOAT:
        if op.name not in ("maximum", "minimum", "fmax", "fmin", "clip", "nextafter"):  # these give either zero
            same &= (np.signbit(got) == np.signbit(expected)) | (got != got)
        limit = ulp_limit(op, out)
        if limit:
            error = ulp_error(op, arrays, got, expected, out)
            same |= error <= limit
    return report(same, arrays, got, expected)


def ulp_limit(op, out):
    """Of a result computed in f32 and rounded, two roundings; of f32 and f64, the table's."""
    if out in dtypes.NARROW:
        return 1.0 if op.ulp[0] else 0
    return op.ulp[out == "f64"]


def ulp_error(op, arrays, got, expected, out):
    wider = WIDER[out]
    wide = NUMPY[wider] if isinstance(wider, str) else wider
    with np.errstate(all="ignore"):
        exact = op.numpy(*(a.astype(wide) for a in arrays)).astype(np.longdouble)
        # From here on an overflow or underflow is one of the rounded result.
        finite = np.isfinite(expected) & np.isfinite(got)
        if op.name.startswith("logaddexp"):
            # Cancels where the result is near zero, in NumPy too.
            expected = np.maximum(np.abs(expected), np.max(np.abs(arrays), axis=0) / 4)
        size = np.abs(expected.astype(np.float64))
        if out in dtypes.NARROW:
            digits, lowest = PLACES[out]
            ulp = np.maximum(2.0 ** (np.floor(np.log2(np.where(size > 0, size, 1e-300))) + 1 - digits), lowest)
        else:
            ulp = np.spacing(np.abs(np.where(finite, expected, 1)))
        return np.where(finite, np.abs(got.astype(np.longdouble) - exact) / ulp, np.inf)


def log1p(z):
    """NumPy's loses what is small beside 1."""
    x, y = z.real, z.imag
    near = np.abs(z) < 0.5
    return np.where(near, 0.5 * np.log1p(x * x + y * y + 2 * x), np.log(np.abs(1 + z))) + 1j * np.arctan2(y, 1 + x)


def compare_complex(op, operands, arrays, got, expected):
    """Where operands and result are finite; the error is measured against the magnitude."""
    part = PART[operands[-1]] if operands[-1] in PART else operands[-1]
    wide = WIDER[operands[-1]]
    wide = NUMPY[wide] if isinstance(wide, str) else wide
    with np.errstate(all="ignore"):
        reference = expected
        inputs = [a.astype(wide) for a in arrays]
        if op.name == "log1p":
            reference = log1p(inputs[0])
        elif isinstance(op.numpy, np.ufunc) and (op.ulp[0] or op.name in ("divide", "sqrt", "sign")):
            reference = np.asarray(op.numpy(*inputs))
        size = np.abs(reference).astype(NUMPY[part])
        finite = np.isfinite(size) & np.isfinite(expected)
        for a in arrays:
            finite &= np.isfinite(np.abs(a))
        error = np.abs(got.astype(np.clongdouble) - reference) / np.spacing(size)
        limit = 8 if op.ulp[0] else 4
        # The error of an exponent is one of the result, magnified.
        if op.name in ("power", "float_power") and part == "f64":
            limit = limit + 4 * np.abs(inputs[1] * np.log(inputs[0]))
        elif op.name == "exp2" and part == "f64":
            limit = limit + np.abs(inputs[0].imag)
        same = ~finite | (got == expected) | (error <= limit)
    return report(same, arrays, got, expected)


def report(same, arrays, got, expected):
    if same.all():
        return ""
    wrong = np.flatnonzero(~same)[:4]
    rows = [f"{[a[i] for a in arrays]} -> {got[i]!r}, not {expected[i]!r}" for i in wrong]
    return f"{(~same).sum()} of {same.size} wrong: " + "; ".join(rows)
