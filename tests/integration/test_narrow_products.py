"""Products of elements of 8 bits: what of them is exact, how they are spelled, what is fused with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blockarray as ba
from blockarray import flush
from blockarray.compiler import plan
from blockarray.compiler import prepare as preparing
from tests.support import ON_GPU, xp

INT8, UINT8, INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
BF16 = np.dtype(ml_dtypes.bfloat16)
WIDE = {INT8: INT32, UINT8: INT32, E4M3: np.dtype("f4"), E5M2: np.dtype("f4")}
SIZES = [(1, 1, 1), (15, 17, 63), (65, 127, 129), (17, 1, 65), (129, 15, 127), (63, 65, 16), (128, 144, 160)]


def draw(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Any integers; floats whose sums of products are exact."""
    r = np.random.default_rng(sum(shape))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return r.integers(info.min, info.max, shape, dtype, endpoint=True)
    return r.integers(-8, 9, shape).astype(dtype)


def turned(x: np.ndarray, which: bool) -> Any:
    """An array of x's elements, whose memory is transposed."""
    return xp.asarray(np.ascontiguousarray(x.swapaxes(-1, -2))).swapaxes(-1, -2) if which else xp.asarray(x)


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """The dtypes of operands and results of the products that are planned, as they are filled in."""
    found: list[tuple[str, str, str]] = []
    build = plan.build

    def spy(*args: Any, **options: Any) -> Any:
        made = build(*args, **options)
        kernels = [s.kernel for s in made.steps if isinstance(s, plan.KernelStep)]
        for op in (op for kernel in kernels for op in kernel.body.ops if op.name == "dot"):
            a, b = op.operands
            found.append((a.type.dtype, b.type.dtype, op.result.type.dtype))
        return made

    monkeypatch.setattr(plan, "build", spy)
    monkeypatch.setattr(flush, "_plans", {})
    return found


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("which", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_products(dtype: np.dtype, size: tuple[int, int, int], batch: tuple[int, ...], which: tuple[bool, bool]):
    m, n, k = size
    a, b = draw(dtype, *batch, m, k), draw(dtype, *batch, k, n)
    got = np.asarray(xp.matmul(turned(a, which[0]), turned(b, which[1]), dtype=WIDE[dtype]))
    assert got.dtype == WIDE[dtype]
    np.testing.assert_array_equal(got, a.astype("i4") @ b.astype("i4"))


@pytest.mark.parametrize("dtypes", [(INT8, UINT8), (UINT8, INT8), (E4M3, E5M2), (E5M2, E4M3)], ids=str)
def test_operands_of_two_types(multiplied, dtypes: tuple[np.dtype, np.dtype]):
    a, b = draw(dtypes[0], 70, 130), draw(dtypes[1], 130, 90)
    wide = WIDE[dtypes[0]]
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype=wide))
    np.testing.assert_array_equal(got, a.astype("i4") @ b.astype("i4"))
    assert [x[0] == x[1] for x in multiplied] == [False]


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x, y: x.astype(ba.int32) @ y.astype(ba.int32),
        lambda x, y: (y.astype(ba.int32).T @ x.astype(ba.int32).T).T,
        lambda x, y: ba.einsum("ij,jk->ik", x, y, dtype=ba.int32),
        lambda x, y: ba.tensordot(x.astype(ba.int32), y.astype(ba.int32), 1),
        lambda x, y: ba.dot(x.astype(ba.int32), y.astype(ba.int32)),
        lambda x, y: x.astype(ba.int64) @ y.astype(ba.int64),
        lambda x, y: x.astype(ba.uint32) @ y.astype(ba.uint32),
    ],
)
def test_spellings(multiplied, spelling: Callable[[Any, Any], Any]):
    a, b = draw(INT8, 70, 130), draw(INT8, 130, 90)
    got = np.asarray(spelling(xp.asarray(a), xp.asarray(b)))
    np.testing.assert_array_equal(got, (a.astype("i8") @ b.astype("i8")).astype(got.dtype))
    assert multiplied == [("i8", "i8", "i32")]


def test_results_wrap_around_in_their_own_type(multiplied):
    a, b = draw(INT8, 70, 130), draw(INT8, 130, 90)
    got = np.asarray(xp.asarray(a) @ xp.asarray(b))
    assert got.dtype == INT8
    np.testing.assert_array_equal(got, a @ b)
    assert multiplied == [("i8", "i8", "i32")]


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_floats_are_no_integers(dtype: np.dtype):
    a = xp.asarray(np.ones((2, 2), dtype))
    for call in (lambda: xp.matmul(a, a, dtype=np.int32), lambda: xp.einsum("ij,jk->ik", a, a, dtype=np.int32)):
        with pytest.raises(TypeError, match="same_kind"):
            call()


@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_largest_sums(dtype: str, value: int):
    k = 3000
    a, b = np.full((66, k), -128, INT8), np.full((k, 65), value, INT8)
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype=dtype))
    np.testing.assert_array_equal(got, np.full((66, 65), -128 * value * k, dtype))


def test_sums_that_32_bits_do_not_hold(multiplied):
    k = (1 << 31) // (255 * 255) + 1
    a, b = np.full((4, k), 255, UINT8), np.full((k, 5), 255, UINT8)
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype=np.int64))
    np.testing.assert_array_equal(got, np.full((4, 5), 255 * 255 * k))
    assert "u8" not in {x for dtypes in multiplied for x in dtypes}


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("into", ["f4", "f2", BF16, None], ids=str)
def test_floats(multiplied, dtype: np.dtype, into: Any):
    r = np.random.default_rng(0)
    a, b = (r.standard_normal(shape).astype(dtype) for shape in ((130, 96), (96, 70)))
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), **({"dtype": into} if into else {})))
    assert got.dtype == (into or dtype)
    want = a.astype("f8") @ b.astype("f8")
    tolerance = {"f4": 1e-5, "f2": 1e-3, BF16: 8e-3, None: 0.13 if dtype == E5M2 else 0.07}[into]
    np.testing.assert_allclose(got.astype("f8"), want, tolerance, 1e-2 if into is None else 1e-4)
    assert [x[-1] for x in multiplied] == ["f32"]


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_infinities_and_nans(dtype: np.dtype):
    a, b = draw(dtype, 70, 130), draw(dtype, 130, 140)
    a[3, 5], a[60, 129], b[7, 100] = np.nan, np.nan, np.nan
    if dtype == E5M2:
        a[10, 2], a[11, 2], a[11, 3], b[2, 20], b[3, :] = np.inf, -np.inf, -np.inf, 0, 1
    with np.errstate(invalid="ignore"):
        want = a.astype("f4") @ b.astype("f4")
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype="f4"))
    np.testing.assert_array_equal(got, want)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            np.asarray(xp.asarray(a) @ xp.asarray(b)).astype("f4"), want.astype(dtype).astype("f4")
        )


@pytest.mark.parametrize("upright", [False, True])
def test_scales_after_a_product_are_fused(upright: bool):
    a, b = draw(INT8, 130, 144), draw(INT8, 144, 160)
    r = np.random.default_rng(1)
    down, across, bias = (r.standard_normal(n).astype("f4") for n in (130, 160, 160))
    x, y, s, u, c = (xp.asarray(v) for v in (a, b, down, across, bias))
    y = turned(b, upright)
    product = xp.matmul(x, y, dtype=np.int32).astype(np.float32)
    result = xp.maximum(product * s[:, None] * u + c, 0).astype(BF16)
    assert len([k for k in xp.explain(result).kernels if "dot" in k.ops]) == 1
    want = (a.astype("f4") @ b.astype("f4")) * down[:, None] * across + bias
    np.testing.assert_allclose(np.asarray(result).astype("f4"), np.maximum(want, 0), 1e-2, 1e-2)


@pytest.mark.parametrize("dtype", [INT8, E4M3], ids=str)
@pytest.mark.parametrize("into", ["f4", "f2", BF16], ids=str)
@pytest.mark.parametrize(
    "spelling",
    [
        lambda x, y, s, u: (x * s[:, None]) @ (y * u),
        lambda x, y, s, u: (s[:, None] * x) @ (u[:, None] * y.T).T,
        lambda x, y, s, u: ((x * 0.5) * (2 * s)[:, None]) @ y * u,
        lambda x, y, s, u: (x * s[:, None]) @ y * u,
    ],
)
def test_scales_before_a_product_come_after_it(multiplied, dtype: np.dtype, into: Any, spelling: Callable[..., Any]):
    a, b = draw(dtype, 130, 144), draw(dtype, 144, 160)
    r = np.random.default_rng(1)
    down, across = (r.random(n).astype("f4") / 100 for n in (130, 160))
    x, y, s, u = (xp.astype(xp.asarray(v), into) for v in (a, b, down, across))
    xp.evaluate(s, u)
    got = np.asarray(spelling(x, y, s, u))
    assert got.dtype == into
    wide = [v.astype(into).astype("f8") for v in (a, b, down, across)]
    scale = abs(wide[0] * wide[2][:, None]) @ abs(wide[1] * wide[3])
    error = {"f4": 1e-6, "f2": 2e-3, BF16: 1.6e-2}[into]
    assert (abs(got.astype("f8") - spelling(*wide)) <= error * (scale + 1e-4)).all()
    if dtype == E4M3 or ON_GPU:
        assert [x[:2] for x in multiplied] == [(d := {INT8: "i8", E4M3: "f8e4m3"}[dtype], d)]


def test_products_as_ieee_has_them(multiplied):
    a, b = draw(E4M3, 70, 130), draw(E4M3, 130, 90)
    with ba.matmul_precision("ieee"):
        got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype=np.float32))
    np.testing.assert_array_equal(got, a.astype("f4") @ b.astype("f4"))
    assert multiplied == [("f32", "f32", "f32")]


def test_arrays_whose_casts_would_run_at_once(multiplied):
    a, b = draw(INT8, 70, 130), draw(INT8, 130, 90)
    x, y = (ba.from_dlpack(v) for v in (a, b))
    got = np.asarray(ba.matmul(x, y, dtype=np.int32))
    np.testing.assert_array_equal(got, a.astype("i4") @ b.astype("i4"))
    assert multiplied == [("i8", "i8", "i32")]


def test_scales_along_a_product_stay(multiplied):
    a, b = draw(E4M3, 70, 130), draw(E4M3, 130, 90)
    scale = np.random.default_rng(1).random(130).astype("f4")
    got = np.asarray((xp.asarray(a).astype(np.float32) * xp.asarray(scale)) @ xp.asarray(b).astype(np.float32))
    np.testing.assert_allclose(got, (a.astype("f4") * scale) @ b.astype("f4"), 1e-4, 1e-3)
    assert multiplied == [("f32", "f32", "f32")]


def test_quantised_operands():
    r = np.random.default_rng(2)
    a, b = r.standard_normal((130, 144)).astype("f4"), r.standard_normal((144, 160)).astype("f4")
    quantise = lambda p, v: p.clip(p.rint(v * 40), -127, 127).astype(INT8)
    got = np.asarray(xp.matmul(quantise(xp, xp.asarray(a)), quantise(xp, xp.asarray(b)), dtype=np.int32))
    np.testing.assert_array_equal(got, quantise(np, a).astype("i4") @ quantise(np, b).astype("i4"))


def test_broadcast_batches(monkeypatch):
    monkeypatch.setattr(preparing, "UPRIGHT_PRODUCT", 1)
    a, b = draw(INT8, 3, 1, 70, 80), draw(INT8, 2, 80, 65)
    got = np.asarray(xp.matmul(xp.asarray(a), xp.asarray(b), dtype=np.int32))
    np.testing.assert_array_equal(got, a.astype("i4") @ b.astype("i4"))


def test_views_between_a_cast_and_a_product(multiplied):
    a, b = draw(INT8, 4, 40, 90), draw(INT8, 100, 60)
    x, y = xp.asarray(a).astype(np.int32), xp.asarray(b).astype(np.int32)
    got = np.asarray(x.transpose(1, 0, 2).reshape(160, 90)[::-1] @ y[5:95])
    want = a.astype("i4").transpose(1, 0, 2).reshape(160, 90)[::-1] @ b.astype("i4")[5:95]
    np.testing.assert_array_equal(got, want)
    assert multiplied == [("i8", "i8", "i32")]
