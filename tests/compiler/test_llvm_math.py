"""Every elementwise op on every dtype and several numbers of lanes, compiled, against NumPy."""

import itertools

import numpy as np
import pytest

from blockarray.compiler import dtypes, ops
from blockarray.compiler.cpu.libmvec import host_math
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.llvm import math
from tests.compiler.accuracy import CASES, compare, label, operand_arrays, report, ulp_error
from tests.compiler.llvm_ops import Module, convert_function, emit_function, function, hostile

LANES = (0, 16)


@pytest.fixture(scope="module", params=LANES)
def compiled(request):
    lanes = request.param
    texts = [emit_function(label(op, operands, lanes), op.name, operands, out, lanes) for op, operands, out in CASES]
    return Module(texts), lanes


def test_values(compiled):
    module, lanes = compiled
    problems = []
    for op, operands, out in CASES:
        arrays = operand_arrays(operands)
        got = module.run(label(op, operands, lanes), arrays, out, lanes)
        problem = compare(op, operands, out, arrays, got)
        if problem:
            problems.append(f"{label(op, operands, lanes)}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("lanes", LANES)
def test_conversions(lanes):
    pairs = list(itertools.permutations(NUMPY, 2))
    module = Module([convert_function(f"{a}_to_{b}", a, b, lanes) for a, b in pairs])
    problems = []
    for a, b in pairs:
        x = operand_arrays((a,))[0]
        got = module.run(f"{a}_to_{b}", [x], b, lanes)
        expected = dtypes.cast_array(x, NUMPY[b])
        same = (got == expected) | ((got != got) & (expected != expected))
        problem = report(same, [x], got, expected)
        if problem:
            problems.append(f"{a}_to_{b}: {problem}")
    assert not problems, "\n".join(problems)


FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "log1p", "arctan2", "power", "hypot", "fmod")


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_bits_do_not_depend_on_lanes(dtype):
    lanes = (0, 2, 4, 8, 16)
    names = [(name, (dtype,) * ops.TABLE[name].arity) for name in FUNCTIONS]
    module = Module([emit_function(label(ops.TABLE[n], o, k), n, o, dtype, k) for n, o in names for k in lanes])
    for name, operands in names:
        arrays = operand_arrays(operands)
        scalar, *others = [module.run(label(ops.TABLE[name], operands, k), arrays, dtype, k) for k in lanes]
        for other in others:
            np.testing.assert_array_equal(scalar, other, err_msg=name)
            np.testing.assert_array_equal(np.signbit(scalar), np.signbit(other) | np.isnan(other) & np.signbit(scalar))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sin", "cos", "tanh"])
def test_inline_functions_are_accurate(name, dtype):
    kind, rng = NUMPY[dtype], np.random.default_rng(3)
    n = 1 << 14
    bits = rng.integers(0, 2 ** (8 * kind.itemsize), n, np.uint64).astype(f"u{kind.itemsize}").view(kind)
    near_axes = np.arange(1, n) * (np.pi / 2)
    x = [bits, rng.uniform(-2, 2, n), rng.uniform(-20, 20, n), rng.uniform(-100, 100, n), 1 + rng.uniform(-0.3, 0.5, n)]
    x = np.concatenate([*(a.astype(kind) for a in x), near_axes.astype(kind)])
    op = ops.TABLE[name]
    got = Module([emit_function(name, name, (dtype,), dtype, 16)]).run(name, [x], dtype, 16)
    expected = ops.interpret(name, x)
    error = ulp_error(op, [x], got, expected, dtype)
    same = (got == expected) | ((got != got) & (expected != expected)) | (error <= op.ulp[dtype == "f64"])
    assert not report(same, [x], got, expected)


def test_known_exponents_are_multiplications():
    for exponent, expected in ((2, np.square), (0.5, np.sqrt), (-1, np.reciprocal), (3, lambda a: a * a * a)):
        constant = lambda t, xs, e=exponent: math.emit(
            t, "power", [xs[0], math.constant(t, e, "f64", 8)], ("f64", "f64"), "f64", host_math()
        )
        text = function("power", constant, ("f64",), "f64", 8)
        assert "pow" not in text[0].replace("@power", "")
        x = np.abs(hostile("f64"))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(Module([text]).run("power", [x], "f64", 8), expected(x))


@pytest.mark.parametrize("dtype", sorted(dtypes.INTEGER))
def test_division_by_constants(dtype):
    info = np.iinfo(NUMPY[dtype])
    divisors = sorted({d for d in (-7, -1, 0, 1, 2, 3, 7, 8, 64, info.max, info.min) if info.min <= d <= info.max})
    names = ("floor_divide", "remainder", "fmod")
    texts = []
    for name, d, lanes in itertools.product(names, divisors, (0, 8)):
        divide = lambda t, xs, name=name, d=d, lanes=lanes: math.emit(
            t, name, [xs[0], math.constant(t, d, dtype, lanes)], (dtype, dtype), dtype, host_math()
        )
        texts.append(function(f"{name}{d}_{lanes}", divide, (dtype,), dtype, lanes))
    module = Module(texts)
    x = operand_arrays((dtype,))[0]
    for name, d, lanes in itertools.product(names, divisors, (0, 8)):
        got = module.run(f"{name}{d}_{lanes}", [x], dtype, lanes)
        np.testing.assert_array_equal(got, ops.interpret(name, x, np.full_like(x, d)), err_msg=f"{name} {d}")
