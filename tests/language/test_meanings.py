"""Meanings that kernels written for Triton rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import blockarray as ba
import blockarray.language as tl
from blockarray.compiler import cpu, cuda, passes
from blockarray.compiler.parser import parse
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify
from blockarray.language.frontend import Argument, Integer, Pointer, build
from blockarray.runtime.config import config


@ba.jit
def hinted(x, shift, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.load(shift)
    tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


def test_hints_are_statements() -> None:
    x = np.zeros(64, np.float32)
    block = hinted[1,](x, np.zeros(1, np.int32), 64, BLOCK=64).asm["block"]
    assert x.all()
    (line,) = [line for line in block.splitlines() if "contiguous=(64,)" in line]
    assert f"cast {line.split()[0]} " in block, "what follows sees the hint"
    arguments = [
        Argument("x", Pointer("f32", True)),
        Argument("shift", Pointer("i32")),
        Argument("n", Integer("i32", True)),
    ]
    kernel = build(hinted.fn, arguments, {"BLOCK": 512})
    assert "st.global.v4" in cuda.ptx(passes.run(kernel), cuda.make_target((9, 0)))


@ba.jit
def carried(x, M, N, BLOCK: tl.constexpr):
    window = tl.make_tensor_descriptor(x, [M, N], [N, 1], [8, BLOCK])
    for i in range(0, N, BLOCK):
        if i % (2 * BLOCK) == 0:
            window = tl.make_tensor_descriptor(x, [M, N], [N, 1], [8, BLOCK])
        window.store([0, i], window.load([0, i]) + 1)
    for _ in range(2):
        window.store([0, 0], window.load([0, 0]) + 10)
        window = tl.make_tensor_descriptor(x + BLOCK, [M - 1, N - BLOCK], [N, 1], [8, BLOCK])


def test_loops_carry_descriptors() -> None:
    x = np.zeros((8, 64), np.float32)
    block = carried[1,](x, 8, 64, BLOCK=16).asm["block"]
    want = np.ones((8, 64))
    want[:, :16] += 10
    want[:7, 16:32] += 10
    np.testing.assert_array_equal(x, want)
    assert "for %" in block.split("load_view")[0] and "%N" in block
    assert " = for " not in block.split("load_view")[0], "a descriptor that stays the same is not carried"


@ba.jit
def typed(x, small: tl.int8, wide: tl.float64):  # pyright: ignore[reportInvalidTypeForm]
    tl.store(x, small)
    tl.store(x + 1, wide)


@pytest.mark.parametrize("interpret", [False, True])
def test_annotations_give_arguments_their_types(interpret, monkeypatch) -> None:
    monkeypatch.setattr(config, "interpret", interpret)
    x = np.zeros(2)
    for small in (1, 300):
        typed[1,](x, small, 0.1)
        np.testing.assert_array_equal(x, [np.array(small).astype(np.int8), 0.1])


@ba.jit
def numbers(o, x):
    tl.store(o, x)
    tl.store(o + 1, x * 3)
    tl.store(o + 2, x.dtype == tl.float32)


@pytest.mark.parametrize("interpret", [False, True])
def test_floats_are_of_32_bits(interpret, monkeypatch) -> None:
    monkeypatch.setattr(config, "interpret", interpret)
    o = np.zeros(3)
    for x in (0.1, 1e300, np.float16(0.1), np.float64(0.1), bfloat16(0.1)):
        numbers[1,](o, x)
        with np.errstate(over="ignore"):
            value = np.float32(x)
        np.testing.assert_array_equal(o, [value, value * np.float32(3), 1])
    for x in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(OverflowError, match=r"argument x: .* has more than 64 bits"):
            numbers[1,](o, x)
    o.flags.writeable = False
    with pytest.raises(ValueError, match="o: its memory is read-only"):
        numbers[1,](o, 1.0)
    with pytest.raises(ValueError, match=r"argument o: its strides \(5,\) are no multiples of its elements' 4 bytes"):
        numbers[1,](np.zeros(4, dtype=[("a", "u1"), ("b", "f4")])["b"], 1.0)


@ba.jit
def flat(x, RANK: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(x + (at[:, None] * 16 + at[None, :]), at if RANK == 1 else at[None, :])


def test_a_store_has_as_many_dims_as_its_pointers() -> None:
    x = np.zeros((16, 16), np.int32)
    flat[1,](x, RANK=2)
    assert (x == np.arange(16)).all()
    with pytest.raises(tl.CompilationError, match="as many dims"):
        flat[1,](x, RANK=1)


@ba.jit
def first_row_added(z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(z + at)
    places = z + at[:, None] * BLOCK + at[None, :]
    tl.store(places, tl.load(places) + row[None, :])


def test_loads_come_before_later_stores() -> None:
    z = np.arange(1024, dtype=np.float32).reshape(32, 32)
    want = z + z[0]
    first_row_added[1,](z, BLOCK=32)
    np.testing.assert_array_equal(z, want)


def assembled(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.inline_asm_elementwise("never", "=r,r", [at], tl.int32, True, 1)
    low, high = tl.inline_asm_elementwise(
        "{ lo $0, $2; hi $1, $2; } // [$3]", "=r,=f,r,l", [tl.load(x + at), y + at], (tl.int8, tl.float32), False, 4
    )
    tl.store(y + at, low + high)


def test_instructions_of_the_target() -> None:
    arguments = [Argument("x", Pointer("u8", True)), Argument("y", Pointer("f32", True))]
    kernel = build(assembled, arguments, {"BLOCK": 512})
    verify(kernel)
    assert text(parse(text(kernel))) == text(kernel)
    with pytest.raises(ValueError, match="does not fit the inputs for pack=4"):
        cuda.ptx(passes.run(kernel), cuda.make_target((9, 0)))
    (op,) = [op for op in kernel.walk() if op.name == "inline_asm"]
    op.attrs |= {"constraints": "=r,=f,=f,=f,=f,r,l,l,l,l", "text": "{ first $0, $5; } // [$6]"}
    ptx = cuda.ptx(passes.run(kernel), cuda.make_target((9, 0)))
    assert "never" not in ptx and "{ first %r" in ptx
    with pytest.raises(NotImplementedError, match="instructions of a GPU"):
        cpu.text(passes.run(kernel), cpu.host_target())


@ba.jit(repr=lambda known: f"named_{known.signature['n']}_{'_'.join(known.constants)}")
def named(x, n, one):
    tl.store(x, n)


def test_kernels_are_named() -> None:
    assert named[1,](np.zeros(1), 1 << 40, 1).name == "named_i64_one"


@ba.jit
def given(o, x: tl.constexpr, y):
    tl.store(o, x[0])
    tl.store(o + 1, y[0])
    tl.store(o + 2, GIVEN)
    tl.store(o + 3, tl.to_tensor(x[0]).dtype == tl.int32)


GIVEN = tl.constexpr(0.0)


def test_constants_that_compare_equal_are_not_the_same(monkeypatch) -> None:
    o = np.ones(4)
    for _ in range(2):
        for value in (0.0, -0.0, 0, False, np.nan):
            monkeypatch.setitem(globals(), "GIVEN", tl.constexpr(value))
            given[1,](o, (value,), (tl.constexpr(value),))
            np.testing.assert_array_equal(o, [value, value, value, type(value) is int])
            assert (np.signbit(o[:3]) == np.signbit(value)).all()
    variants = len(given._variants)
    given[1,](o, (float("nan"),), (tl.constexpr(float("nan")),))
    assert len(given._variants) == variants, "one NaN is like another"


class Settings:
    SCALE = tl.constexpr(1)

    class Inner:
        SHIFT: int = 1


ITEMS = tl.constexpr([1])
NUMBERS = [tl.constexpr(1)]
PLACE = 1


def of_the_host():
    return PLACE


@ba.jit
def chosen():
    return tl.to_tensor(GIVEN)


@ba.jit
def uses_much(o, function: tl.constexpr, given: tl.constexpr):
    tl.store(o, ITEMS[0] + NUMBERS[0] + Settings.SCALE + Settings.Inner.SHIFT + of_the_host() + given[0] + function())


def test_constants_may_change_in_place(monkeypatch) -> None:
    o = np.zeros(1, "f")
    given = [1]
    monkeypatch.setitem(globals(), "GIVEN", tl.constexpr(1))

    def total() -> float:
        uses_much[1,](o, chosen, given)
        return o[0]

    assert total() == total() == 7 and len(uses_much._variants) == 1
    ITEMS.value[0] = 2
    assert total() == 8
    NUMBERS[0] = tl.constexpr(2)
    assert total() == 9
    Settings.SCALE = tl.constexpr(2)
    assert total() == 10
    Settings.Inner.SHIFT = 2
    assert total() == 11
    monkeypatch.setitem(globals(), "PLACE", 2)
    assert total() == 12
    given[0] = 2
    assert total() == 13
    monkeypatch.setitem(globals(), "GIVEN", tl.constexpr(2))
    assert total() == total() == 14 and len(uses_much._variants) == 1
    with pytest.raises(AttributeError, match="a constexpr does not change"):
        ITEMS.value = 3


@ba.jit(debug=True)
def scaled(x, out, by):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.load(x + at) * by)


def test_overflow_where_kernels_are_debugged() -> None:
    x, out = np.array([1, 2, 3, 1 << 30], "i4"), np.zeros(4, "i4")
    with pytest.raises(AssertionError, match=r"scaled: overflow of int32: multiply \(.*test_meanings.py:\d+\)"):
        scaled[1,](x, out, 2)
    scaled[1,](x, out, 2, sanitize_overflow=False)
    np.testing.assert_array_equal(out, [2, 4, 6, -1 << 31])


@ba.jit
def of_all(x, out, f: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, f(tl.load(x + at)))


def test_bessel_functions() -> None:
    x = np.array([0.0, 1e-9, 0.1, 1.0, 5.0, 17.3, 25 - 1e-9, 25 + 1e-9, 30, 100, 700, np.inf, np.nan, -1, -30, -np.inf])

    def values(f) -> np.ndarray:
        out = np.zeros_like(x)
        of_all[1,](x, out, f=f, N=16)
        return out

    m = tl.math
    j0, j1, y0, y1, i0, i1 = map(values, (m.j0, m.j1, m.y0, m.y1, m.cyl_bessel_i0, m.cyl_bessel_i1))
    inside = slice(1, 11)
    j, k, y, z = (f[inside] for f in (j0, j1, y0, y1))
    np.testing.assert_allclose((k * y - j * z) * x[inside], 2 / np.pi, 1e-13)
    found = [f[3] for f in (j0, j1, y0, y1, i0, i1)]
    want = [0.765197686557967, 0.440050585744934, 0.088256964215677, -0.781212821300289, 1.266065877752008]
    np.testing.assert_allclose(found, [*want, 0.565159103992485], 1e-14)
    for f in (j0, j1, y0, y1, i0, i1):
        np.testing.assert_allclose(f[6], f[7], 1e-7)
    # The logarithm's derivative of i0, by the first terms of its expansion.
    np.testing.assert_allclose(i1[8:10] / i0[8:10], 1 - 0.5 / x[8:10] - 0.125 / x[8:10] ** 2, 1e-5)
    np.testing.assert_array_equal([f[0] for f in (j0, j1, y0, y1, i0, i1)], [1, 0, -np.inf, -np.inf, 1, 0])
    np.testing.assert_array_equal([f[11] for f in (j0, j1, y0, y1, i0, i1)], [0, 0, 0, 0, np.inf, np.inf])
    assert all(np.isnan(f[12]) for f in (j0, j1, y0, y1, i0, i1)) and np.isnan([y0[13:], y1[13:]]).all()
    for f, sign in ((j0, 1), (j1, -1), (i0, 1), (i1, -1)):
        np.testing.assert_array_equal(f[13:], sign * f[[3, 8, 11]])


class Both:
    """A class that names itself, and one that names it."""


class Other:
    Back = Both
    FACTOR = 2


NAMES: Any = Both
NAMES.Self, NAMES.Other = Both, Other


def plain_factor(n):
    return n


@ba.jit
def by_classes(x, n: tl.constexpr):
    tl.store(x, NAMES.Self.Other.Back.Other.FACTOR * plain_factor(n))


def test_classes_may_name_each_other(monkeypatch):
    x = np.zeros(1, "f4")
    by_classes[1,](x, 3)
    assert x[0] == 6
    before = by_classes.fingerprint()
    monkeypatch.setattr(Other, "FACTOR", 5)
    by_classes[1,](x, 3)
    assert x[0] == 15 and by_classes.fingerprint() != before


def test_fingerprints_follow_what_plain_functions_do(monkeypatch):
    before = by_classes.fingerprint()

    def plain_factor(n):
        return n + 1

    plain_factor.__qualname__ = "plain_factor"
    monkeypatch.setitem(globals(), "plain_factor", plain_factor)
    assert by_classes.fingerprint() != before


def test_blocks_of_descriptors_are_checked_when_they_change():
    desc = ba.TensorDescriptor.from_tensor(np.zeros((16, 16), "f4"), [8, 16])
    for wrong in ([8], [8, 16, 2], [8, 3], [0, 16]):
        with pytest.raises(ValueError, match="block_shape"):
            desc.block_shape = wrong
    desc.block_shape = [np.int64(4), 8]
    assert list(desc.block_shape) == [4, 8]
