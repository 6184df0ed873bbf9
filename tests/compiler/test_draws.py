"""Random draws: Philox against its authors' vectors, compiled code against NumPy's."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from blockarray.compiler import ops
from blockarray.compiler.dtypes import NUMPY
from tests.compiler.llvm_ops import Module, emit_function

U64 = np.uint64
LANES = (0, 2, 4, 8, 16, 32)
#: From Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, words.
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def place(n: int, order: str = "forwards") -> list[np.ndarray]:
    """index, block, nonce and key of n draws."""
    rng = np.random.default_rng(0)
    if order == "anywhere":
        return [rng.integers(0, 2**64, n, U64) for _ in range(4)]
    index = np.arange(n, dtype=U64)
    index = {"forwards": index, "backwards": index[::-1].copy(), "odd": index + U64(3), "apart": index * U64(5)}[order]
    return [index, *(np.full(n, x, U64) for x in (2**64 - 7, 2**40 + 3, 0x0123456789ABCDEF))]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    a, b, c, d = counter
    block, nonce, k = (np.full(4, low | high << 32, U64) for low, high in ((a, b), (c, d), key))
    index = np.arange(4, dtype=U64)
    assert ops.interpret("philox32", index, block, nonce, k).tolist() == list(words)
    halves = ops.interpret("philox64", index[:2], block[:2], nonce[:2], k[:2]).tolist()
    assert halves == [words[0] | words[1] << 32, words[2] | words[3] << 32]
    for name, want in (("philox32", list(words)), ("philox64", halves)):
        operands, out = ops.TABLE[name].types[0]
        n = len(want)
        for lanes in (0, 8):
            module = Module([emit_function(name, name, operands, out, lanes)])
            assert module.run(name, [index[:n], block[:n], nonce[:n], k[:n]], out, lanes).tolist() == want


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["philox32", "philox64", "bounded32", "bounded64"])
def test_bits_are_numpys(name, lanes):
    operands, out = ops.TABLE[name].types[0]
    module = Module([emit_function(name, name, operands, out, lanes)])
    rng = np.random.default_rng(1)
    n = 1024
    bounds = [None]
    if name.startswith("bounded"):
        edges = [0, 1, 2, 3, 10, 3 << 30, 2**32 - 1, 2**32, 3 << 62, 2**63, 2**63 + 1, 2**64 - 1]
        bounds = [np.full(n, x, U64) for x in edges]
        bounds.append(rng.integers(0, 2**64, n, U64) >> rng.integers(0, 64, n).astype(U64))
    for order in ("forwards", "odd", "backwards", "apart", "anywhere"):
        for bound in bounds:
            arrays = place(n, order) + ([] if bound is None else [bound])
            np.testing.assert_array_equal(module.run(name, arrays, out, lanes), ops.interpret(name, *arrays), order)


def test_bounded_draws_are_uniform():
    """With bounds of 3/4 of the range a product that is not checked would favour every third number."""
    for name, bound, shift in (("bounded32", 3 << 30, 20), ("bounded64", 3 << 62, 52)):
        values = ops.interpret(name, *place(1 << 16), np.full(1 << 16, bound, U64)).astype(U64)
        assert values.max() < bound
        counts = np.bincount(values % U64(3), minlength=3)
        assert np.abs(counts - counts.mean()).max() < 4 * np.sqrt(counts.mean())
        cells = np.bincount((values >> U64(shift)).astype(int), minlength=3 << 10)
        assert len(cells) == 3 << 10
        assert abs(((cells - cells.mean()) ** 2).sum() / cells.mean() / len(cells) - 1) < 0.1


def test_fraction():
    for dtype, out in (("u32", "f32"), ("u64", "f64")):
        top = np.iinfo(NUMPY[dtype]).max
        assert ops.interpret("fraction", np.array([0, top], NUMPY[dtype])).tolist() == [
            0,
            1 - np.finfo(NUMPY[out]).epsneg,
        ]
    for dtype in ("i32", "i64"):
        info = np.iinfo(NUMPY[dtype])
        least, below, above, most = ops.interpret("fraction", np.array([info.min, -1, 0, info.max], NUMPY[dtype]))
        assert (least, most) == (-0.5, 0.5)
        assert -below == above == 2.0 ** -(info.bits + 1)


def test_normal_tail_is_the_quantile():
    p = np.concatenate([np.linspace(1e-3, 0.5, 200), 10.0 ** -np.arange(3, 19)])
    exact = -np.array([NormalDist().inv_cdf(x) for x in p])
    for x, sign in ((p, 1), (-p, -1)):
        np.testing.assert_allclose(ops.interpret("normal_tail", x), sign * exact, 2e-15, 1e-16)
        single = ops.interpret("normal_tail", x.astype(np.float32))
        np.testing.assert_allclose(single, sign * exact, 2e-6, 1e-7)
    least = ops.interpret("normal_tail", np.array([0.0]))[0]
    assert least == pytest.approx(-NormalDist().inv_cdf(2.0**-65), rel=1e-14)


PARAMETERS = {
    "gamma": [(0.4, 40.0)],
    "poisson": [(0.01, 1e6)],
    "binomial": [(1, 1e6), (0.0, 0.5)],
    "vonmises": [(1e-9, 1e9)],
}


@pytest.mark.parametrize("lanes", [0, 4, 16])
@pytest.mark.parametrize("name", PARAMETERS)
def test_rejection(name, lanes):
    """The same decisions, but for the few that rounding tips, and values to within it."""
    n = 4000
    rng = np.random.default_rng(2)
    for operands, out in ops.TABLE[name].types:
        dtype = NUMPY[out]
        given = []
        for low, high in PARAMETERS[name]:
            x = rng.uniform(low, high, n) if high < 1 else np.exp(rng.uniform(np.log(low), np.log(high), n))
            x = np.floor(x) if name == "binomial" and high > 1 else x
            x[rng.integers(0, n, 6)] = [np.nan, -1, 0, np.inf, -np.inf, 1e30]
            given.append(x.astype(dtype))
        arrays = [*place(n), *given]
        with np.errstate(all="ignore"):
            want = ops.interpret(name, *arrays)
            got = Module([emit_function(name, name, operands, out, lanes)]).run(name, arrays, out, lanes)
        same = np.isclose(got, want, 1e-4 if out == "f32" else 1e-12, 0, equal_nan=True)
        assert (~same).sum() <= 2
        valid = np.all([(x > 0) & (x <= high) for x, (_, high) in zip(given, PARAMETERS[name], strict=True)], 0)
        assert np.isfinite(got[valid]).all()


def test_rejection_ends_for_what_is_no_number():
    with np.errstate(all="ignore"):
        assert np.isnan(ops.interpret("poisson", *place(4), np.full(4, np.nan))).all()
        assert np.isnan(ops.interpret("vonmises", *place(4), np.full(4, np.nan))).all()
        assert np.isnan(ops.interpret("binomial", *place(4), np.full(4, 100.0), np.full(4, np.nan))).all()
