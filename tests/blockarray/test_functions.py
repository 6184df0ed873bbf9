"""The namespace against NumPy: types, values, signatures, errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blockarray as xp
from blockarray.compiler.ops import ALIASES, TABLE
from tests.support import assert_same

DTYPES = [np.dtype(t) for t in ("?", "i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8", "c8", "c16")]
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "less",
          "bitwise_and", "left_shift", "logical_or", "arctan2", "equal", "hypot"]  # fmt: skip
UNARY = ["negative", "absolute", "sqrt", "exp", "sin", "invert", "isnan", "conjugate", "square", "sign", "floor",
         "rint", "logical_not", "reciprocal"]  # fmt: skip


def sample(dtype: np.dtype, n: int = 6) -> np.ndarray:
    values = np.array([1, 2, 3, 0, 5, 7][:n])
    return (values * (1 + 0.5j) if dtype.kind == "c" else values).astype(dtype)


def outcome(function: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return function()
    except (TypeError, OverflowError, ValueError) as error:
        return type(error).__mro__


def same(got: Any, want: Any, what: str) -> None:
    if isinstance(want, tuple):
        assert isinstance(got, tuple), (what, got)
        assert (TypeError in got and TypeError in want) or got == want or ValueError in want, (what, got, want)
    else:
        assert not isinstance(got, tuple), (what, got)
        assert_same(got, want, what)


@pytest.mark.parametrize("name", BINARY)
def test_binary_promotion(name: str) -> None:
    for p in DTYPES:
        for q in DTYPES:
            x, y = sample(p), sample(q) + sample(q)[:1]
            want = outcome(lambda: getattr(np, name)(x, y))  # noqa: B023
            same(outcome(lambda: getattr(xp, name)(xp.asarray(x), xp.asarray(y))), want, f"{name} {p} {q}")  # noqa: B023
        for scalar in (True, 2, 2.5, 1j, np.float32(2), np.int8(3)):
            x = sample(p)
            if name in ("power", "floor_divide", "remainder") and p == np.bool_ and scalar is True:
                continue
            for swap in (False, True):
                pair = (scalar, x) if swap else (x, scalar)
                mine = (scalar, xp.asarray(x)) if swap else (xp.asarray(x), scalar)
                want = outcome(lambda: getattr(np, name)(*pair))  # noqa: B023
                same(outcome(lambda: getattr(xp, name)(*mine)), want, f"{name} {p} {scalar!r} {swap}")  # noqa: B023


@pytest.mark.parametrize("name", UNARY)
def test_unary_promotion(name: str) -> None:
    for p in DTYPES:
        x = sample(p)
        if name == "reciprocal" and p.kind in "iu":
            x = x[:3]
        want = outcome(lambda: getattr(np, name)(x))  # noqa: B023
        same(outcome(lambda: getattr(xp, name)(xp.asarray(x))), want, f"{name} {p}")  # noqa: B023


def test_weak_scalars() -> None:
    f = xp.ones(3, dtype=xp.float32)
    assert (f * 2.5).dtype == xp.float32 and (0.1 * 0.5 * f + 1).dtype == xp.float32
    assert (f * np.float64(2)).dtype == xp.float64
    assert (xp.ones(2, dtype=xp.bfloat16) * 1.5).dtype == ml_dtypes.bfloat16
    assert (xp.ones(2, dtype=xp.int8) + 1).dtype == xp.int8
    with pytest.raises(OverflowError):
        xp.ones(2, dtype=xp.int8) + 300
    u = xp.asarray([0, 255], dtype=xp.uint8)
    assert xp.equal(u, 300).tolist() == [False, False] and (u < 300).tolist() == [True, True] and (u > -1).all()
    assert xp.where(xp.asarray([True]), f[:1], 1.0).dtype == xp.float32
    # The same scalar again, and its equals of other kinds and signs.
    z = xp.asarray([1.0])
    assert np.signbit(np.asarray(z * -0.0)[0]) and not np.signbit(np.asarray(z * 0.0)[0])
    assert (z * 1).dtype == (z * 1.0).dtype == (z * True).dtype == xp.float64


def test_powers() -> None:
    f, i = xp.asarray([2.0, -3.0]), xp.asarray([2, -3])
    for exponent in (0, 1, 2, 3, -1, 0.5, -2, 2.0):
        with np.errstate(all="ignore"):
            assert_same(f**exponent, np.asarray(f) ** exponent)
        if exponent not in (-1, -2):
            with np.errstate(all="ignore"):
                assert_same(i**exponent, np.asarray(i) ** exponent)
    with pytest.raises(ValueError):
        i**-1
    assert_same(2 ** i[:1], 2 ** np.asarray(i)[:1])


def test_every_row_is_a_function() -> None:
    rows = {name for name, op in TABLE.items() if op.kind == "elementwise" and not op.types} - {"cast", "complex"}
    for name in rows | {alias for alias, row in ALIASES.items() if row in rows}:
        assert callable(getattr(xp, name)) and getattr(xp, name).__doc__, name


def test_out_and_where() -> None:
    a = xp.arange(6.0).reshape(2, 3)
    out = xp.zeros((3, 2)).T
    assert xp.add(a, 1, out=out) is out and out.tolist() == [[1, 2, 3], [4, 5, 6]]
    xp.multiply(a, 10, out=out, where=a > 2)
    assert out.tolist() == [[1, 2, 3], [30, 40, 50]]
    with pytest.raises(TypeError):
        xp.add(a, 1, out=xp.zeros((2, 3), dtype=xp.int64))
    with pytest.raises(ValueError):
        xp.add(a, 1, out=xp.zeros(3))
    assert xp.add(xp.ones(2), xp.ones(2), dtype=xp.float32).dtype == xp.float32
    assert xp.sum(a, out=xp.zeros(())).tolist() == 15
    assert xp.clip(a, 1, 4, out=xp.zeros((2, 3))).tolist() == [[1, 1, 2], [3, 4, 4]]


REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "count_nonzero",
              "ptp", "nansum", "nanmax", "nanmean", "nanvar", "median", "cumsum", "cumprod"]  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c16"])
def test_reductions(name: str, dtype: str) -> None:
    d = np.dtype(dtype)
    a = np.resize(sample(d), 24).reshape(2, 3, 4)
    if d.kind == "c" and name in ("ptp", "median", "nanmax"):
        return
    if d.kind == "b" and name == "ptp":
        return
    scan = name.startswith("cum")
    for axis in (None, 0, -1, *(() if scan or name.startswith("arg") else ((0, 2), ()))):
        if axis == () and name in ("median", "ptp", "count_nonzero", "nanmax"):
            continue
        for keepdims in (False, True):
            extra = {} if scan else {"keepdims": keepdims}
            with np.errstate(all="ignore"):
                want = np.asarray(getattr(np, name)(a, axis=axis, **extra))
            got = np.asarray(getattr(xp, name)(xp.asarray(a), axis=axis, **extra))
            assert got.shape == want.shape and got.dtype == want.dtype, (name, axis, got.dtype, want.dtype)
            tolerance = 1e-2 if d == np.float16 else 1e-5
            np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=tolerance, atol=tolerance)


def test_reduction_options() -> None:
    a = np.arange(12.0).reshape(3, 4)
    x, m = xp.asarray(a), a % 2 == 0
    assert_same(xp.sum(x, axis=0, where=xp.asarray(m), initial=5), np.sum(a, axis=0, where=m, initial=5))
    assert_same(xp.max(x, axis=1, where=xp.asarray(m), initial=-1), np.max(a, axis=1, where=m, initial=-1))
    assert_same(xp.mean(x, axis=1, where=xp.asarray(m)), np.mean(a, axis=1, where=m))
    assert_same(xp.var(x, axis=1, ddof=1), np.var(a, axis=1, ddof=1))
    assert_same(xp.std(x, correction=1), np.std(a, correction=1))
    assert_same(xp.sum(x, dtype=xp.float32), np.sum(a, dtype=np.float32))
    assert_same(xp.max(xp.zeros((0, 3)), axis=1), np.max(np.zeros((0, 3)), axis=1))
    assert_same(xp.cumulative_sum(x, axis=1, include_initial=True), np.cumulative_sum(a, axis=1, include_initial=True))
    assert_same(xp.average(x, 1, [1, 2, 3, 4]), np.average(a, 1, [1, 2, 3, 4]))
    for n in (0, 1, 2):
        assert_same(xp.diff(x, n, axis=0, prepend=7), np.diff(a, n, axis=0, prepend=7))
    with pytest.raises(ValueError):
        xp.max(xp.zeros((0, 3)), axis=0)
    with pytest.raises(ValueError):
        xp.argmax(xp.zeros(0))
    with pytest.raises(np.exceptions.AxisError):
        xp.sum(x, axis=2)
    with pytest.raises(ValueError):
        xp.sum(x, axis=(0, 0))
    with pytest.raises(TypeError):
        xp.sum(x, axis=1.5)
    assert int(xp.nanargmax(xp.asarray([np.nan, -np.inf, -np.inf]))) == 1
    with pytest.raises(ValueError):
        xp.nanargmax(xp.asarray([np.nan]))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, a, b: m.concatenate([a, b, a], 1),
        lambda m, a, b: m.concatenate([a, b], None),
        lambda m, a, b: m.stack([a, a], -1),
        lambda m, a, b: m.hstack([a, b]),
        lambda m, a, b: m.vstack([a, a]),
        lambda m, a, b: m.dstack([a, a]),
        lambda m, a, b: m.column_stack([a, a[:, 0]]),
        lambda m, a, b: m.block([[a, b], [a, b]]),
        lambda m, a, b: m.split(a, [1, 2], 1)[1],
        lambda m, a, b: m.tile(a, (2, 1, 3)),
        lambda m, a, b: m.tile(a, 0),
        lambda m, a, b: m.repeat(a, 3, 1),
        lambda m, a, b: m.repeat(a, [1, 0, 2], 0),
        lambda m, a, b: m.repeat(a, [1, 0, 2, 4], 1),
        lambda m, a, b: m.roll(a, 5),
        lambda m, a, b: m.roll(a, (1, -2), (0, 1)),
        lambda m, a, b: m.pad(a, 2),
        lambda m, a, b: m.pad(a, ((1, 0), (0, 2)), constant_values=7),
        lambda m, a, b: m.pad(a, 2, "reflect"),
        lambda m, a, b: m.resize(a, (4, 4)),
        lambda m, a, b: m.delete(a, 1, 1),
        lambda m, a, b: m.insert(a, 1, 9, 1),
        lambda m, a, b: m.append(a, b, 1),
        lambda m, a, b: m.outer(a, b),
        lambda m, a, b: m.inner(a, a),
        lambda m, a, b: m.kron(a, b),
        lambda m, a, b: m.tensordot(a, b, ((0,), (0,))),
        lambda m, a, b: m.dot(a.T, b),
        lambda m, a, b: m.vdot(a, a),
        lambda m, a, b: m.vecdot(a, a),
        lambda m, a, b: m.trace(a, 1),
        lambda m, a, b: m.cross(a, a[:, ::-1]) if a.shape[1] == 3 else m.cross(a.T, a.T[:, ::-1]),
        lambda m, a, b: m.tril(a, 1),
        lambda m, a, b: m.triu(a, -1),
        lambda m, a, b: m.diag(a),
        lambda m, a, b: m.diag(a[0], 1),
        lambda m, a, b: m.meshgrid(a[0], b[0])[1],
        lambda m, a, b: m.meshgrid(a[0], b[0], indexing="ij")[0],
        lambda m, a, b: m.indices((2, 3)),
        lambda m, a, b: m.sort(a, 0),
        lambda m, a, b: m.argsort(a[::-1], 1),
        lambda m, a, b: m.unique(a % 3, return_counts=True)[1],
        lambda m, a, b: m.searchsorted(a[0], b),
        lambda m, a, b: m.nonzero(a > 3)[1],
        lambda m, a, b: m.argwhere(a > 3),
        lambda m, a, b: m.isin(a, b),
        lambda m, a, b: m.isclose(a, a + 1e-9),
        lambda m, a, b: m.nan_to_num(a / 0.0),
        lambda m, a, b: m.round(a / 3, 2),
        lambda m, a, b: m.modf(a / 3)[0],
        lambda m, a, b: m.quantile(a, [0.1, 0.6], axis=1),
        lambda m, a, b: m.cov(a),
        lambda m, a, b: m.corrcoef(a),
        lambda m, a, b: m.histogram(a, 4)[0],
        lambda m, a, b: m.interp([0.5, 1.5], a[0], a[1]),
        lambda m, a, b: m.linalg.norm(a),
        lambda m, a, b: m.linalg.norm(a, axis=1, ord=1),
        lambda m, a, b: m.linalg.matrix_power(a[:, :3], 3),
        lambda m, a, b: m.linalg.solve(a[:, :3] + m.eye(3), a[:, 0]),
        lambda m, a, b: m.linalg.svd(a, full_matrices=False)[1],
        lambda m, a, b: m.linalg.multi_dot([a.T, a, a.T]),
        lambda m, a, b: m.fft.fft(a),
        lambda m, a, b: m.linspace(1, 2, 7),
        lambda m, a, b: m.linspace(a[0], 9, 5, axis=1),
        lambda m, a, b: m.linspace(0, 10, 4, endpoint=False, dtype=int),
        lambda m, a, b: m.eye(3, 4, 1),
        lambda m, a, b: m.tri(3, 5, 1),
        lambda m, a, b: m.vander(a[0], 3),
        lambda m, a, b: m.full((2, 2), a[0, :2]),
        lambda m, a, b: m.where(a > 3, a, b[:, :1]),
        lambda m, a, b: m.clip(a, None, 4),
        lambda m, a, b: m.ldexp(a, m.asarray([[1], [2], [3]])),
        lambda m, a, b: m.gradient(a, axis=1),
        lambda m, a, b: m.trapezoid(a),
    ],
)
def test_against_numpy(call: Any) -> None:
    rng = np.random.default_rng(0)
    a = np.sort(rng.integers(0, 9, (3, 4)).astype(float), 1)
    b = rng.integers(0, 9, (3, 2)).astype(float)
    with np.errstate(all="ignore"):
        want = np.asarray(call(np, a, b))
    got = np.asarray(call(xp, xp.asarray(a), xp.asarray(b)))
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "subscripts",
    ["ij,jk->ik", "ij,jk", "ij->ji", "ii->i", "ii", "i,j->ij", "bij,bjk->bik", "ij,ij->", "...ij,...jk->...ik",
     "i,i->i", "ij,jk,kl->il", "ijk,k->ij", "ij->", "...->...", "a...,b...->ab...", "ij,ik->jk", "iij->j",
     "ij,kl->ijkl"],
)  # fmt: skip
def test_einsum(subscripts: str) -> None:
    rng = np.random.default_rng(1)
    sizes = dict(zip("ijklbac", (3, 3, 4, 2, 2, 5, 6)))
    terms = subscripts.split("->")[0].split(",")
    arrays = []
    for term in terms:
        lead = (2, 1) if "..." in term else ()
        names = term.replace("...", "")
        at = term.index("...") if "..." in term else 0
        shape = [sizes[c] for c in names]
        arrays.append(rng.integers(-4, 5, (*shape[:at], *lead, *shape[at:])).astype(float))
    want = np.einsum(subscripts, *arrays)
    assert_same(xp.einsum(subscripts, *map(xp.asarray, arrays)), want, subscripts)


def test_matmul_shapes() -> None:
    rng = np.random.default_rng(2)
    for p, q in (
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((2, 0), (0, 3)),
    ):
        a, b = rng.integers(-4, 5, p).astype(float), rng.integers(-4, 5, q).astype(float)
        assert_same(xp.asarray(a) @ xp.asarray(b), np.asarray(a @ b), f"{p} {q}")
    t = np.array([[True, False], [True, True]])
    assert_same(xp.asarray(t) @ xp.asarray(t), t @ t)
    assert (xp.ones((2, 2), dtype=xp.float16) @ xp.ones((2, 2), dtype=xp.float16)).dtype == xp.float16
    with pytest.raises(ValueError):
        xp.ones((2, 3)) @ xp.ones((2, 3))
    with pytest.raises(ValueError):
        xp.matmul(xp.ones(()), xp.ones(3))


def test_arange_is_bit_identical() -> None:
    ranges = [
        (5,),
        (4.25,),
        (0.2, 0.8, 0.2),
        (1, 1.3, 0.1),
        (5, 0, -0.7),
        (3, 3, 1),
        (4, 1),
        (0.1, 7.3, 0.009),
        (10, 0, -3),
    ]
    for args in (*ranges, (10**16, 10**16 + 3)):
        assert_same(xp.arange(*args), np.arange(*args), str(args))
        for dtype in ("f4", "f2", "i4", "f8"):
            if max(map(abs, args)) < 1000:
                assert_same(xp.arange(*args, dtype=dtype), np.arange(*args, dtype=dtype), f"{args} {dtype}")
    assert_same(xp.arange(0, 250, 50, dtype=np.uint8), np.arange(0, 250, 50, dtype=np.uint8))
    with pytest.raises(ZeroDivisionError):
        xp.arange(0, 5, 0)


def test_types() -> None:
    assert xp.result_type(xp.ones(1, dtype=xp.float32), 1.5) == xp.float32
    assert xp.result_type(xp.int8, xp.uint8) == xp.int16 and xp.promote_types("i4", "f4") == xp.float64
    assert xp.result_type(xp.bfloat16, xp.float32) == xp.float32
    assert xp.can_cast(xp.int8, xp.int64) and not xp.can_cast(xp.float64, xp.float32)
    assert xp.isdtype(xp.float32, "real floating") and xp.isdtype(xp.bfloat16, ("integral", "real floating"))
    assert xp.finfo(xp.float32).eps == np.finfo(np.float32).eps and xp.finfo(xp.complex128).bits == 64
    assert xp.iinfo(xp.int8).max == 127
    with pytest.raises(TypeError):
        xp.zeros(3, dtype="M8[s]")
    with pytest.raises(TypeError):
        xp.asarray([object()])
    with pytest.raises(TypeError):
        xp.asarray(np.zeros(3, "U3"))
    assert xp.zeros(2, dtype=np.dtype(">f8")).dtype is np.dtype(float)
    assert xp.asarray(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["integral"] == xp.int64 and "float32" in info.dtypes(kind="real floating")


def test_errors() -> None:
    a = xp.ones((2, 3))
    for bad, error in (
        (lambda: a + xp.ones(4), ValueError),
        (lambda: xp.reshape(a, (4, 2)), ValueError),
        (lambda: xp.reshape(a, (-1, -1)), ValueError),
        (lambda: xp.concatenate([a, xp.ones((2, 2))], 0), ValueError),
        (lambda: xp.stack([a, xp.ones(3)]), ValueError),
        (lambda: xp.stack([]), ValueError),
        (lambda: xp.squeeze(a, 0), ValueError),
        (lambda: xp.transpose(a, (0, 0)), ValueError),
        (lambda: xp.broadcast_to(a, (2, 2)), ValueError),
        (lambda: xp.zeros(-1), ValueError),
        (lambda: xp.zeros(1.5), TypeError),
        (lambda: xp.moveaxis(a, 0, 5), np.exceptions.AxisError),
        (lambda: xp.invert(a), TypeError),
        (lambda: a & a, TypeError),
        (lambda: xp.einsum("ij,jk", a, a), ValueError),
        (lambda: xp.einsum("ij", a, a), ValueError),
        (lambda: xp.asarray(3, copy=False), ValueError),
        (lambda: xp.reshape(a.T, (6,), copy=False), ValueError),
        (lambda: xp.linalg.inv(a), np.linalg.LinAlgError),
        (lambda: xp.asarray("text"), TypeError),
        (lambda: xp.asarray([[1], [1, 2]]), ValueError),
        (lambda: xp.zeros(2, device="tpu"), ValueError),
    ):
        with pytest.raises(error):
            bad()


def test_nested_sequences_of_arrays() -> None:
    x = xp.asarray(2.0)
    assert xp.asarray([x, x + 1]).tolist() == [2, 3]
    assert xp.asarray([[x, 1], [2, x]]).tolist() == [[2, 1], [2, 2]]
    assert xp.asarray([xp.arange(2), xp.arange(2)], dtype=xp.float32).dtype == xp.float32
