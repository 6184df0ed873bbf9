"""The op table: type rules against NumPy's, values of the interpreter's special cases."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from blockarray.compiler import dtypes, ops
from blockarray.compiler.dtypes import NUMPY

BF16, E4M3, E5M2 = map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
ELEMENTWISE = [op for op in ops.TABLE.values() if op.kind == "elementwise"]
UFUNCS = [op for op in ELEMENTWISE if isinstance(op.numpy, np.ufunc)]
PYTHON = {bool: True, int: 1, float: 1.0, complex: 1j}


def numpys_answer(op, types):
    """dtype of the result of NumPy's function on ones, or TypeError."""
    with np.errstate(all="ignore"):
        values = [np.ones(2, t) if isinstance(t, np.dtype) else PYTHON[t] for t in types]
        try:
            return op.numpy(*values).dtype
        except TypeError:
            return TypeError


def our_answer(op, types):
    try:
        return ops.resolve(op, *types)[1]
    except TypeError:
        return TypeError


@pytest.mark.parametrize("op", UFUNCS, ids=repr)
def test_promotion_is_numpys(op):
    arrays = [d for d in NUMPY.values() if d not in (BF16, E4M3, E5M2)]
    operands = itertools.product(arrays, [*arrays, *PYTHON] if op.arity == 2 else [None])
    for x, y in operands:
        types = (x,) if y is None else (x, y)
        assert our_answer(op, types) == numpys_answer(op, types), types


def test_every_row_is_whole():
    for name, op in ops.TABLE.items():
        assert name == op.name and op.doc and op.numpy is not None
        if op.kind in ("reduction", "scan"):
            assert op.combine in ops.TABLE and op.identity is not None
    assert all(name in ops.TABLE for name in ops.ALIASES.values())


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((BF16, BF16), "bf16"), ((BF16, int), "bf16"), ((BF16, float), "bf16"), ((BF16, bool), "bf16"),
        ((float, BF16), "bf16"), ((BF16, complex), "c64"), ((BF16, NUMPY["f32"]), "f32"), ((BF16, NUMPY["f64"]), "f64"),
        ((BF16, NUMPY["f16"]), "f32"), ((BF16, NUMPY["i8"]), "bf16"), ((BF16, NUMPY["c64"]), "c64"),
        ((E4M3, E4M3), "f8e4m3"), ((E4M3, float), "f8e4m3"), ((int, E5M2), "f8e5m2"), ((E4M3, E5M2), "f32"),
        ((E4M3, NUMPY["i8"]), "f8e4m3"), ((E5M2, BF16), "f32"), ((E5M2, NUMPY["f16"]), "f32"),
    ],
)  # fmt: skip
def test_other_floats_promote_like_those_of_numpys(types, expected):
    assert ops.resolve(ops.TABLE["add"], *types)[1] == NUMPY[expected]
    assert ops.promote(*types) == NUMPY[expected]


def test_python_scalars_alone_take_the_default_dtypes():
    assert ops.resolve(ops.TABLE["add"], int, float)[1] == NUMPY["f64"]
    assert ops.resolve(ops.TABLE["less"], int, int)[0] == (NUMPY["i64"],) * 2
    assert ops.promote(bool) == NUMPY["bool"]


def test_where_and_clip():
    assert ops.resolve(ops.TABLE["where"], NUMPY["i32"], NUMPY["f32"], float) == (
        (NUMPY["bool"], NUMPY["f32"], NUMPY["f32"]),
        NUMPY["f32"],
    )
    assert ops.resolve(ops.TABLE["clip"], NUMPY["i8"], int, float)[1] == NUMPY["f64"]
    with pytest.raises(TypeError):
        ops.resolve(ops.TABLE["clip"], NUMPY["bool"], bool, bool)


def test_promote_agrees_with_result_type():
    numpys = [d for d in NUMPY.values() if d not in (BF16, E4M3, E5M2)]
    for types in itertools.product(numpys, [*numpys, *PYTHON.values()]):
        ours = tuple(t if isinstance(t, np.dtype) else type(t) for t in types)
        assert ops.promote(*ours) == np.result_type(*types)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "argmax", "argmin", "cumsum", "cumprod"])
def test_reduction_dtypes_are_numpys(name):
    for dtype in NUMPY.values():
        inputs, output = ops.resolve(ops.TABLE[name], dtype)
        assert output == getattr(np, name)(np.ones(3, dtype)).dtype
        array = np.ones((3, 2), inputs[0])
        assert ops.TABLE[name].numpy(array, 0).dtype == output  # pyright: ignore[reportOptionalCall]
        assert ops.result_dtype(name, dtypes.name(inputs[0])) == dtypes.name(output)


@pytest.mark.parametrize("op", [o for o in ops.TABLE.values() if o.combine], ids=repr)
def test_identity_is_neutral(op):
    for name, dtype in NUMPY.items():
        if name == "bool" and op.combine in ("add", "multiply"):
            continue
        x = np.array([0, 1, 1, 0] if name == "bool" else [0, 1, 5, 100], dtype)
        x = x.astype(bool) if op.combine.startswith("logical") else x
        identity = np.full_like(x, op.identity(dtypes.name(x.dtype)))
        np.testing.assert_array_equal(ops.interpret(op.combine, x, identity), x)


def test_result_dtype_wants_operands_cast():
    assert ops.result_dtype("add", "bf16", "bf16") == "bf16"
    assert ops.result_dtype("less", "i64", "u64") == "bool"
    assert ops.result_dtype("absolute", "c64") == "f32"
    assert ops.result_dtype("complex", "f32", "f32") == "c64"
    for operands in (("f32", "f64"), ("i32", "i32")):
        with pytest.raises(TypeError):
            ops.result_dtype("divide", *operands)


def test_comparisons_with_integers_beyond_the_dtype():
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        for dtype in (np.dtype("u1"), np.dtype("i8"), np.dtype("u8")):
            for value in (-1, 300, 2**63, 2**64, -(2**70)):
                expected = getattr(np, name)(np.array([7], dtype), value)[0]
                ours = ops.compare_beyond(name, dtype, value)
                info = np.iinfo(dtype)
                if info.min <= value <= info.max:
                    assert ours is None
                else:
                    assert ours == expected
    assert ops.compare_beyond("add", np.dtype("u1"), 300) is None


def test_interpret_integer_corner_cases():
    low = np.iinfo(np.int32).min
    x = np.array([low, 7, -7, 0], np.int32)
    np.testing.assert_array_equal(ops.interpret("floor_divide", x, np.array([-1, 0, 2, 0], np.int32)), [low, 0, -4, 0])
    np.testing.assert_array_equal(
        ops.interpret("power", np.array([1, -1, -1, 2, 0]), np.array([-3] * 5)), [1, -1, -1, 0, 0]
    )
    np.testing.assert_array_equal(ops.interpret("reciprocal", x), [0, 0, 0, 0])
    np.testing.assert_array_equal(ops.interpret("left_shift", x, np.array([40] * 4, np.int32)), [0] * 4)
    np.testing.assert_array_equal(ops.interpret("right_shift", x, np.array([40] * 4, np.int32)), [-1, 0, -1, 0])


@pytest.mark.parametrize("name", sorted(dtypes.INTEGER))
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64", "c128"])
def test_casts_to_integers_saturate(name, source):
    dtype = NUMPY[name]
    info = np.iinfo(dtype)
    values = [0.0, -0.0, 1.75, -1.75, 100.5, np.inf, -np.inf, np.nan, 3e38, -3e38, float(info.max), float(info.min)]
    x = dtypes.cast_array(np.array(values), NUMPY[source])
    reals = np.real(x).astype(np.float64)
    bounded = np.clip(np.nan_to_num(reals, nan=0), -1e30, 1e30).tolist()
    expected = [min(max(int(v), info.min), info.max) for v in bounded]
    np.testing.assert_array_equal(dtypes.cast_array(x, dtype), np.array(expected, dtype))
