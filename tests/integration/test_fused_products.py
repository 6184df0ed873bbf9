"""What comes before and after a product of bfloat16s on a GPU: how many kernels, by which schedule, their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import blockarray as ba
from blockarray import flush
from blockarray.compiler import cuda, parser, passes, schedule
from blockarray.compiler.cuda.dequantised import DequantisedParts
from blockarray.compiler.cuda.hopper import Hopper

pytestmark = pytest.mark.cpu_only
TARGET = cuda.make_target((9, 0))
BF16 = ba.bfloat16
#: Rows, columns and depth: more than one tile each way, and operands that are read often.
SIZES = (272, 320, 80)


class Operands:
    """Arrays a, b, ... of bfloat16 on a GPU, and in `wide` the same values in float64."""

    def __init__(self, m: int, n: int, k: int) -> None:
        device = ba.devices()[1]
        rng = np.random.default_rng(m + n + k)
        self.wide: dict[str, np.ndarray] = {}
        shapes = {"a": (m, k), "b": (k, n), "c": (n,), "d": (m, 1), "r": (m, n), "s": (n, m), "e": (n, k), "f": (k, m)}
        for name, shape in shapes.items():
            values = np.asarray(ba.astype(ba.asarray(rng.standard_normal(shape, np.float32)), BF16))
            self._put(name, ba.asarray(values, device=device))
        self._put("x", ba.asarray(rng.standard_normal((m, k), np.float32), device=device))
        self._put("w", ba.asarray(rng.integers(-100, 100, (k, n)).astype(np.int8), device=device))

    def _put(self, name: str, array: Any) -> None:
        ba.evaluate(array)
        setattr(self, name, array)
        self.wide[name] = np.asarray(ba.astype(array, ba.float64))


class Wide:
    """The same names, of float64."""

    def __init__(self, o: Operands) -> None:
        self.__dict__.update(o.wide)


def gelu(z: Any, tanh: Callable[[Any], Any]) -> Any:
    return 0.5 * z * (1 + tanh(0.7978845608 * (z + 0.044715 * z * z * z)))


#: Expressions over operands o, in the functions of a namespace xp.
ONE: dict[str, Callable[[Any, Any], Any]] = {
    "gelu": lambda o, xp: gelu(o.a @ o.b + o.c, xp.tanh),
    "residual": lambda o, xp: xp.maximum(o.a @ o.b + o.c + o.r, 0),
    "scales": lambda o, xp: (o.a @ o.b) * o.d * o.c,
    "cast": lambda o, xp: xp.astype(o.a @ o.b, xp.float32),
    "mask": lambda o, xp: xp.where(o.r > 0, o.a @ o.b, o.s.T),
    "triangle": lambda o, xp: xp.tril(o.a @ o.b),
    "several": lambda o, xp: (lambda z: (z, xp.maximum(z, 0), z * o.d))(o.a @ o.b + o.c),
    "a transposed": lambda o, xp: o.f.T @ o.b,
    "b transposed": lambda o, xp: o.a @ o.e.T,
    "result transposed": lambda o, xp: (o.a @ o.b).T,
    "einsum": lambda o, xp: xp.einsum("ik,nk->in", o.a, o.e),
    "tensordot": lambda o, xp: xp.tensordot(o.a, o.e, axes=((1,), (1,))),
    "inner": lambda o, xp: xp.inner(o.a, o.e),
    "dot": lambda o, xp: xp.dot(o.a, o.b),
    "matmul": lambda o, xp: xp.linalg.matmul(o.a, o.b),
    "linalg tensordot": lambda o, xp: xp.linalg.tensordot(o.a, o.b, axes=1),
}


def softmax(z: Any, xp: Any) -> Any:
    e = xp.exp(z - xp.max(z, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


#: As well, by whether each kernel is a product.
SEVERAL: dict[str, tuple[Callable[[Any, Any], Any], list[bool]]] = {
    "chain": (lambda o, xp: (o.a @ o.b * 0.1) @ o.s, [True, True]),
    "sum of products": (lambda o, xp: o.a @ o.b + o.f.T @ o.e.T, [True, True]),
    "cast before": (lambda o, xp: xp.astype(o.x, o.a.dtype) @ o.b, [False, True]),
    "dequantised": (lambda o, xp: o.a @ (xp.astype(o.w, o.a.dtype) * (o.c * 0.01)), [False, True]),
    "row maxima": (lambda o, xp: xp.max(o.a @ o.b + o.c, axis=-1), [True, False]),
    "row squares": (lambda o, xp: xp.sum(xp.square(xp.astype(o.a @ o.b, xp.float32) * 0.1), axis=1), [True, False]),
    "softmax": (lambda o, xp: softmax(o.a @ o.b[:, :192] * 0.2 + o.c[:192], xp), [True]),
    "softmax of few": (lambda o, xp: softmax(xp.astype(o.a @ o.b[:, :80], xp.float32) + o.r[:, :80], xp), [True]),
    "normalised": (lambda o, xp: (lambda z: z / xp.sum(z * z, axis=1)[:, None])(o.a @ o.b[:, 64:]), [True]),
    "short rows": (lambda o, xp: xp.min((o.a @ o.b[:, :192]) * o.d, axis=-1), [True]),
    "activated before": (lambda o, xp: xp.maximum(o.a, 0) @ o.b, [False, True]),
}


def are_products(*arrays: Any) -> list[bool]:
    """Of each kernel, whether it is a product by Hopper's schedule."""
    kernels = [passes.run(parser.parse(k.ir)) for k in ba.explain(*arrays).kernels]
    return [k.attrs.get("schedule") == "gemm" and Hopper.suits(k, TARGET) for k in kernels]


def results(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def check(o: Operands, f: Callable[[Any, Any], Any], wanted: list[bool]) -> None:
    found = results(f(o, ba))
    assert are_products(*found) == wanted, str(ba.explain(*found))
    ba.evaluate(*found)
    for have, want in zip(found, results(f(Wide(o), np)), strict=True):
        np.testing.assert_allclose(np.asarray(ba.astype(have, ba.float64)), want, rtol=0.03, atol=0.5)


@pytest.fixture(scope="module")
def operands() -> Iterator[Operands]:
    from tests.fake_gpu import installed

    usual = flush.policy
    with installed(emulate=True), pytest.MonkeyPatch.context() as patch:
        # Few tiles are enough for few processors.
        patch.setattr(flush, "policy", lambda device: replace(usual(device), processors=6))
        yield Operands(*SIZES)


@pytest.mark.parametrize("name", ONE)
def test_one_kernel(operands: Operands, name: str) -> None:
    check(operands, ONE[name], [True])


@pytest.mark.parametrize("name", SEVERAL)
def test_kernels_beside_a_product(operands: Operands, name: str) -> None:
    f, wanted = SEVERAL[name]
    check(operands, f, wanted)


def test_explain_names_what_is_not_rounded(operands: Operands) -> None:
    o: Any = operands
    (plain,) = ba.explain(o.a @ o.b).kernels
    (activated,) = ba.explain(ba.maximum(o.a @ o.b + o.c, 0)).kernels
    assert not plain.notes
    assert "float32 until it is stored" in activated.notes[0]
    stored, _ = ba.explain(ba.maximum(o.a, 0) @ o.b).kernels
    assert "many times" in str(ba.explain(ba.maximum(o.a, 0) @ o.b)), stored


def test_few_tiles_spread_over_processors(monkeypatch, operands: Operands) -> None:
    monkeypatch.setattr(schedule, "product_cost", lambda *_: (0.0, schedule.Tiling((128, 64), spread=2)))
    o: Any = operands
    found = ba.maximum(o.a @ o.b + o.c, 0)
    (kernel,) = ba.explain(found).kernels
    assert parser.parse(kernel.ir).attrs["spread"] == 2
    wide = np.maximum(o.wide["a"] @ o.wide["b"] + o.wide["c"], 0)
    for _ in range(2):  # the second one finds the workspace as the first one left it
        have = np.asarray(ba.astype(ba.maximum(o.a @ o.b + o.c, 0), ba.float64))
        np.testing.assert_allclose(have, wide, rtol=0.03, atol=0.5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float8_e4m3fn"])
def test_weights_of_8_bits(dtype: str, turned: bool) -> None:
    """By one kernel, with zero points and scales, whose sums of parts of k are added up; and what follows it."""
    from tests.fake_gpu import installed

    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((24, 272)), rng.integers(0, 100, (272, 208))
    zero, scale, bias = rng.integers(0, 9, 208), rng.standard_normal(208), rng.standard_normal(208)
    with installed(emulate=True), ba.device("cuda:0"):
        a, s, c = (ba.astype(ba.asarray(y), ba.bfloat16) for y in (x, scale, bias))
        q = (
            ba.astype(ba.asarray(w.T.copy()), getattr(ba, dtype)).T
            if turned
            else ba.astype(ba.asarray(w), getattr(ba, dtype))
        )
        z = ba.astype(ba.asarray(zero), ba.bfloat16)
        ba.evaluate(a, s, c, q, z)
        found = ba.maximum(a @ ((ba.astype(q, ba.bfloat16) - z) * s) + c, 0)
        (kernel,) = ba.explain(found).kernels
        assert DequantisedParts.suits(passes.run(parser.parse(kernel.ir)), TARGET)
        wide = [np.asarray(ba.astype(v, ba.float64)) for v in (a, q, z, s, c)]
        got = np.asarray(ba.astype(found, ba.float64))
    want = np.maximum(wide[0] @ ((wide[1] - wide[2]) * wide[3]) + wide[4], 0)
    np.testing.assert_allclose(got, want, rtol=0.02, atol=6e-3 * np.abs(want).max())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(operands: Operands, value: float) -> None:
    o: Any = operands
    scale = np.ones((SIZES[0], 1), np.float32)
    scale[[0, 100, -1]] = value
    rows = ba.asarray(scale, device=o.a.device)
    z = ba.astype(o.a @ o.b, ba.float32) * rows
    with np.errstate(invalid="ignore"):
        wide = (o.wide["a"] @ o.wide["b"]).astype(np.float32) * scale
        pairs = (ba.max(z, axis=1), wide.max(1)), (ba.maximum(z, 0), np.maximum(wide, 0)), (z * 0, wide * 0)
    for have, want in pairs:
        np.testing.assert_allclose(np.asarray(have), want, rtol=0.01, atol=0.2)


def test_rows_of_a_product_without_a_schedule_for_them(operands: Operands) -> None:
    o: Any = operands
    flat = ba.asarray(np.concatenate([[0], o.wide["a"].ravel()]).astype(np.float32), device=o.a.device)
    flat = ba.astype(flat, BF16)
    ba.evaluate(flat)
    found = ba.max(ba.reshape(flat[1:], o.a.shape) @ o.b, axis=1)
    assert are_products(found)[0] is False
    np.testing.assert_allclose(
        np.asarray(ba.astype(found, ba.float64)), (o.wide["a"] @ o.wide["b"]).max(1), rtol=0.03, atol=0.5
    )
