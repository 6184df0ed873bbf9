"""The interpreter's values where NumPy alone does not give them, its masks and its checks of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler.builder import Builder
from blockarray.compiler.dtypes import NUMPY
from blockarray.compiler.interpreter import OutOfBounds, run
from blockarray.compiler.ir import I64, Kernel, Type
from blockarray.compiler.parser import parse
from blockarray.compiler.verifier import verify


def one_tile(make, *dtypes: str, out: str) -> Kernel:
    """out[:] = make(builder, tiles...) over 1-D inputs, in one program."""
    b = Builder("k")
    ptrs = [b.param(f"x{i}", Type(d, pointer=True)) for i, d in enumerate(dtypes)]
    target = b.param("out", Type(out, pointer=True))
    j = b.dim("j", b.param("n", I64))
    zero, one = b.const(0), b.const(1)
    value = make(b, *[b.load_view(p, zero, [one], (j,)) for p in ptrs])
    b.store_view(value, target, zero, [one] * len(value.type.extents))
    verify(kernel := b.finish())
    return kernel


def apply(make, *arrays: np.ndarray, out: str, size: int | None = None) -> np.ndarray:
    names = {d: n for n, d in NUMPY.items()}
    n = len(arrays[0])
    result = np.zeros(n if size is None else size, NUMPY[out])
    run(one_tile(make, *[names[a.dtype] for a in arrays], out=out), [*arrays, result, n])
    return result


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_floats_round_after_every_op(dtype):
    x = np.array([1.0, 2048.0, 60000.0, 3e-5], NUMPY[dtype])
    y = np.array([2**-9, 1.0, 60000.0, 1e-3], NUMPY[dtype])
    got = apply(lambda b, x, y: b.op("subtract", b.op("add", x, y), x), x, y, out=dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, (x + y).astype(NUMPY[dtype]) - x)


def test_narrow_sums_accumulate_in_f32():
    x = np.full(4096, 1, np.float16)
    got = apply(lambda b, x: b.reduce(x, "sum", (0,)), x, out="f16", size=1)
    assert got[0] == 4096


def test_casts_from_floats_saturate_and_nan_is_zero():
    x = np.array([np.nan, np.inf, -np.inf, 300.7, -1.5, 1e30, 127.9])
    np.testing.assert_array_equal(apply(lambda b, x: b.cast(x, "u8"), x, out="u8"), [0, 255, 0, 255, 0, 255, 127])
    np.testing.assert_array_equal(apply(lambda b, x: b.cast(x, "i8"), x, out="i8"), [0, 127, -128, 127, -1, 127, 127])
    got = apply(lambda b, x: b.cast(x, "i64"), x, out="i64")
    np.testing.assert_array_equal(got, [0, 2**63 - 1, -(2**63), 300, -1, 2**63 - 1, 127])


def test_bool_bytes_and_ops():
    x = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    np.testing.assert_array_equal(
        apply(lambda b, x: b.op("logical_not", x), x, out="bool"), [True, False, False, False]
    )
    np.testing.assert_array_equal(apply(lambda b, x: b.cast(x, "i32"), x, out="i32"), [0, 1, 1, 1])
    assert apply(lambda b, x: b.reduce(x, "any", (0,)), x, out="bool", size=1)[0]
    assert not apply(lambda b, x: b.reduce(x, "all", (0,)), x, out="bool", size=1)[0]


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize(
    "values",
    [
        [1.0, 3, 3, 1], [1, np.nan, 3, np.nan], [np.inf, -np.inf, np.inf, -np.inf], [-0.0, 0.0, -0.0], [5],
        [1 + 2j, 1 + 3j, 1 - 3j], [complex(0, np.nan), complex(np.nan, 0), 9j],
        np.array([3, 1, 3, 1], np.uint8), np.array([True, False, True]), [-np.inf, -np.inf], [np.inf, np.inf],
    ],
)  # fmt: skip
def test_argreduce_is_numpys(kind, values):
    x = np.asarray(values)
    got = apply(lambda b, x: b.argreduce(x, b.iota("j"), kind, (0,)), x, out="i64", size=1)
    assert got[0] == getattr(np, kind)(x)


def test_argreduce_takes_the_lowest_index_given():
    x, index = np.array([2.0, 2, 1]), np.array([9, 4, 1])
    got = apply(lambda b, x, i: b.argreduce(x, i, "argmax", (0,)), x, index, out="i64", size=1)
    assert got[0] == 4


@pytest.mark.parametrize(
    ("kind", "dtype", "identity"),
    [
        ("sum", "f32", 0),
        ("prod", "i64", 1),
        ("max", "f64", -np.inf),
        ("min", "i32", 2**31 - 1),
        ("max", "bf16", -np.inf),
    ],
)
def test_reductions_of_nothing_give_the_identity(kind, dtype, identity):
    x = np.zeros(0, NUMPY[dtype])
    got = apply(lambda b, x: b.reduce(x, kind, (0,)), x, out=dtype, size=1)
    assert got[0] == identity


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "c64"])
def test_max_lets_nan_through(dtype):
    x = np.array([1, np.nan, 2], NUMPY[dtype])
    assert np.isnan(apply(lambda b, x: b.reduce(x, "max", (0,)), x, out=dtype, size=1)[0])


def test_scan_along_each_dim_with_a_carry():
    source = """kernel @k(%x: ptr<i64>, %c: ptr<i64>, %out: ptr<i64>) grid() {{
  %0 = const {{value=0}} : i64
  %1 = const {{value=1}} : i64
  %3 = const {{value=3}} : i64
  %t = load_view %x, %0, %3, %1 : i64[2, 3]
  %c0 = load_view %c, %0, %1 : i64[{kept}]
  %s = scan %t, %c0 {{dim={dim}, kind="{kind}"}} : i64[2, 3]
  store_view %s, %out, %0, %3, %1
}}"""
    x, c = np.array([[3, -1, 4], [1, 5, -9]]), np.array([10, 2, 0])
    for dim, kept in ((0, 3), (1, 2)):
        carry = np.expand_dims(c[:kept], dim)
        for kind, ufunc in (("cumsum", np.add), ("cumprod", np.multiply), ("cummax", np.maximum)):
            kernel = parse(source.format(kept=kept, dim=dim, kind=kind))
            verify(kernel)
            out = np.zeros(6, np.int64)
            run(kernel, [x.ravel(), c, out])
            expected = ufunc(ufunc.accumulate(x, dim), carry)
            np.testing.assert_array_equal(out.reshape(2, 3), expected)


def test_scan_across_programs():
    head = "kernel @k(%x: ptr<i64>, %out: ptr<i64>, %m: i64, %n: i64) grid(%m / 1, %n / 4) dims(j = %n / 4 @ 1)"
    kernel = parse(f"""{head} {{
  %0 = program_id {{axis=0}} : i64
  %1 = dim_start {{dim="j"}} : i64
  %2 = multiply %0, %n : i64
  %3 = add %2, %1 : i64
  %4 = const {{value=1}} : i64
  %5 = load_view %x, %3, %4 : i64[j]
  %6 = scan %5 {{across=True, dim=0, kind="cumsum"}} : i64[j]
  store_view %6, %out, %3, %4
}}""")
    verify(kernel)
    x, out = np.arange(30) - 7, np.zeros(30, np.int64)
    run(kernel, [x, out, 3, 10])
    np.testing.assert_array_equal(out.reshape(3, 10), x.reshape(3, 10).cumsum(1))


def test_products_of_narrow_floats_accumulate_in_f32():
    b = Builder("k")
    p, q = b.param("x", Type("f16", pointer=True)), b.param("out", Type("f16", pointer=True))
    zero, one, n = b.const(0), b.const(1), b.const(64)
    row = b.load_view(p, zero, [n, one], (1, 64))
    column = b.load_view(p, zero, [one, one], (64, 1))
    b.store_view(b.dot(row, column), q, zero, [one, one])
    x, out = np.full(64, 0.1, np.float16), np.zeros(1, np.float16)
    run(b.finish(), [x, out])
    assert out[0] == np.float16((x.astype("f") ** 2).sum())


def test_stores_with_equal_indices():
    source = """kernel @k(%v: ptr<f16>, %i: ptr<i64>, %out: ptr<f16>, %n: i64) grid() dims(j = %n) {{
  %0 = const {{value=0}} : i64
  %1 = const {{value=1}} : i64
  %v0 = load_view %v, %0, %1 : f16[j]
  %i0 = load_view %i, %0, %1 : i64[j]
  store_ptr %v0, %out, %i0{attrs}
}}"""
    v, i = np.array([4, 2, 1, 8], np.float16), np.array([0, 2, 0, 2])
    joined = (' {combine="add"}', [5, 0, 10]), (' {combine="maximum"}', [4, 0, 8])
    for attrs, expected in (("", [1, 0, 8]), *joined):
        out = np.zeros(3, np.float16)
        run(parse(source.format(attrs=attrs)), [v, i, out, 4])
        np.testing.assert_array_equal(out, expected)


def access(line: str) -> Kernel:
    source = """kernel @k(%p: ptr<f32>, %n: i64, %s: i64, %m: bool) grid(%n / 2) dims(j = %n / 2 @ 0) {
  %0 = const {value=0} : i64
  %4 = const {value=4} : i64
  %x = const {value=1.0} : f32
  %tile = broadcast %x {dims=()} : f32[4]
  LINE
}"""
    kernel = parse(source.replace("LINE", line))
    verify(kernel)
    return kernel


@pytest.mark.parametrize(
    ("line", "size", "element"),
    [
        ("%y = load_view %p, %s, %n : f32[4]", 9, 9),
        ("%y = load_view %p, %s : f32", 0, 0),
        ("%y = load_ptr %p, %4 : f32", 4, 4),
        ("store_view %tile, %p, %s, %n", 9, 9),
        ("store_ptr %x, %p, %4", 4, 4),
        ("%y = load_view %p, %s, %n, %4 {bounded=True} : f32[8]", 9, 9),
    ],
)
def test_accesses_out_of_bounds(line, size, element):
    buffer = np.zeros(size, np.float32)
    with pytest.raises(OutOfBounds, match=rf"line 6: .*element {element} of {size}, program \(0,\)"):
        run(access(line), [buffer, 3, 0, False])
    run(access(line), [np.zeros(10, np.float32), 3, 0, False])


def test_negative_elements_are_out_of_bounds():
    with pytest.raises(OutOfBounds, match="element -1 of 10"):
        run(access("%y = load_view %p, %s : f32"), [np.zeros(10, np.float32), 3, -1, False])


def test_masked_lanes_touch_nothing():
    buffer = np.zeros(0, np.float32)
    run(access("%y = load_view %p, %s, %n, %0 {bounded=True, other=2.0} : f32[8]"), [buffer, 3, 0, False])
    run(access("%y = load_ptr %p, %4, %m {other=2.0} : f32"), [buffer, 3, 0, False])
    run(access("store_view %tile, %p, %s, %n, %0 {bounded=True}"), [buffer, 3, 0, False])
    run(access("store_ptr %x, %p, %4, %m"), [buffer, 3, 0, False])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_blocked_dims(n):
    """Each program reports its start and its extent."""
    source = """kernel @k(%a: ptr<i64>, %b: ptr<i64>, %n: i64) grid(%n / 2) dims(j = %n / 2 @ 0) {
  %p = program_id {axis=0} : i64
  %s = dim_start {dim="j"} : i64
  %e = dim_extent {dim="j"} : i64
  store_view %s, %a, %p
  store_view %e, %b, %p
}"""
    count = -(-n // 2)
    starts, extents = np.zeros((2, count), np.int64)
    run(parse(source), [starts, extents, n])
    np.testing.assert_array_equal(starts, np.arange(0, n, 2))
    assert extents.sum() == n and (extents >= 1).all()


def test_checks_are_reported_once_in_order():
    source = """kernel @k(%n: i64) grid(%n / 1) {
  %p = program_id {axis=0} : i64
  %2 = const {value=2} : i64
  %a = less %p, %2 : bool
  check %a {message="late"}
  %b = equal %p, %2 : bool
  check %b {message="early"}
}"""
    assert run(parse(source), [4]) == ["early", "late"]
    assert run(parse(source), [0]) == []


def test_arguments():
    kernel = access("%y = load_ptr %p, %4 : f32")
    with pytest.raises(TypeError, match="takes 4 arguments, not 1"):
        run(kernel, [1])
    for wrong in (np.zeros((2, 2), np.float32), np.zeros(9), 3):
        with pytest.raises(TypeError, match="%p takes a 1-D array of float32"):
            run(kernel, [wrong, 1, 1, True])


def test_a_loop_that_does_not_advance():
    source = "kernel @k(%n: i64) grid() {\n for %n, %n, %n (%i: i64) {\n yield\n }\n}"
    run(parse(source), [3])
    with pytest.raises(ValueError, match="step 0"):
        run(parse(source), [0])
