"""Attention's block IR, by its text and in the interpreter; the bounds that masks of positions set."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blockarray as xp
from blockarray.array import Array
from blockarray.compiler import interpreter, passes, plan
from blockarray.compiler.index import Axis, Index, Quotient, Remainder, divmod_index
from blockarray.compiler.ir import Kernel
from blockarray.compiler.parser import parse
from blockarray.compiler.printer import text
from tests.compiler import planning
from tests.integration.test_attention import SPELLINGS, Attention, positions, scores, softmax, tensors

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def recorded(function: Attention, *inputs: np.ndarray) -> Any:
    return function(xp, *[Array(planning.leaf(a)) for a in inputs])._read()


def kernels(function: Attention, *inputs: np.ndarray) -> list[Kernel]:
    steps = planning.planned(recorded(function, *inputs)).steps
    return [passes.run(s.kernel, check=True) for s in steps if isinstance(s, plan.KernelStep)]


@pytest.mark.parametrize(("name", "golden"), [("plain", "attention"), ("causal", "causal_attention")])
def test_the_text_is_golden(name: str, golden: str) -> None:
    (kernel,) = kernels(SPELLINGS[name], *tensors((2,), 130, 130, 32, 32))
    path = GOLDEN / f"{golden}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text(kernel) + "\n")
    assert text(kernel) + "\n" == path.read_text()
    assert text(parse(text(kernel))) == text(kernel)


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_interpreter_computes_numpys_answer(name: str) -> None:
    inputs = tensors((2,), 70, 70, 8, 8)
    (got,) = planning.run(recorded(SPELLINGS[name], *inputs))
    want = SPELLINGS[name](np, *[a.astype(np.float64) for a in inputs])
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


#: Masks of a row i and a key j, by what they keep, with the blocks of 64 keys that 64 rows from 128 on look at in all,
#: of 320 keys.
MASKS = {
    "causal": (lambda i, j: j <= i, 3),
    "later": (lambda i, j: j < i + 65, 4),
    "all": (lambda i, j: j < i + 1000, 5),
    "none": (lambda i, j: j < i - 1000, 0),
    "window": (lambda i, j: (j <= i) & (i - j < 64), 2),
    "ahead": (lambda i, j: j >= i, 3),
    "not causal": (lambda i, j: ~(j > i), 3),
    "difference": (lambda i, j: i - j >= 0, 3),
    "equal": (lambda i, j: i == j, 5),
    "either": (lambda i, j: (j <= i) | (j > 300), 5),
}


@pytest.mark.parametrize("name", MASKS)
def test_blocks_that_a_mask_closes_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mask, blocks = MASKS[name]

    def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
        i, j = positions(xp, q, k)
        return softmax(xp, xp.where(mask(i, j), scores(xp, q, k), -np.inf)) @ v

    walked: list[int] = []
    loop = interpreter._Program.loop

    def counted(self: Any, op: Any, x: Any) -> Any:
        if self.starts["d0"] == 128:
            walked.extend(range(*[int(v) for v in x[:3]]))
        return loop(self, op, x)

    monkeypatch.setattr(interpreter._Program, "loop", counted)
    inputs = tensors((), 320, 320, 8, 8)
    (got,) = planning.run(recorded(attention, *inputs))
    with np.errstate(invalid="ignore"):
        want = attention(np, *[a.astype(np.float64) for a in inputs])
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    assert len(walked) == blocks, walked


@pytest.mark.parametrize("fill", [-1e9, 0.0, np.nan, np.inf])
def test_blocks_are_kept_where_closed_scores_count(fill: float) -> None:
    def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
        i, j = positions(xp, q, k)
        return softmax(xp, xp.where(j <= i, scores(xp, q, k), fill)) @ v

    inputs = tensors((), 200, 200, 8, 8)
    (got,) = planning.run(recorded(attention, *inputs))
    with np.errstate(invalid="ignore"):
        want = attention(np, *[a.astype(np.float64) for a in inputs])
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def _value(index: Index, where: dict[Any, int]) -> int:
    total = index.const
    for atom, c in index.terms.items():
        if isinstance(atom, Axis):
            total += c * where[atom]
        else:
            assert isinstance(atom, Quotient | Remainder)
            whole = _value(atom.index, where)
            total += c * (whole // atom.divisor if isinstance(atom, Quotient) else whole % atom.divisor)
    return total


def test_quotients_and_remainders() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        axes = [Axis(int(n)) for n in rng.choice([1, 2, 3, 4, 6, 8], rng.integers(1, 4))]
        steps = rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 48, -4, -6], len(axes))
        index = Index(int(rng.integers(-30, 30)), {a: int(c) for a, c in zip(axes, steps, strict=True)})
        divisor = int(rng.choice([2, 3, 4, 6, 8, 12, 24, 48]))
        quotient, remainder = divmod_index(index, divisor)
        for places in product(*[range(a.size) for a in axes]):
            where = dict(zip(axes, places, strict=True))
            whole = _value(index, where)
            assert (_value(quotient, where), _value(remainder, where)) == divmod(whole, divisor)


def test_heads_that_are_read_by_groups_need_no_quotients() -> None:
    head, key, feature = Axis(8), Axis(50), Axis(16)
    flat = Index(0, {head: 800, key: 16, feature: 1})
    quotient, remainder = divmod_index(flat, 4 * 800)
    assert quotient == Index(0, {Quotient(Index(0, {head: 1}), 4): 1})
    assert {*remainder.terms} >= {key, feature}
