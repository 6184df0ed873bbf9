"""tune() measures schedules, keeps the fastest, and changes nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blockarray as ba
from blockarray import flush, kernels, tuned
from blockarray.compiler import alternatives, prepare
from blockarray.compiling import compile_ahead
from blockarray.runtime.config import config
from blockarray.runtime.device import CPU
from tests.support import needs_lazy, run_python

pytestmark = needs_lazy
#: The module, whose name in the package is the function's.
MODULE = sys.modules["blockarray.tune"]


def _forget() -> None:
    flush.policy.cache_clear()
    tuned.named.cache_clear()
    flush.forget_plans()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Few candidates, and no choices that other tests would see."""
    monkeypatch.setattr(alternatives, "DEPTHS", (64,))
    monkeypatch.setattr(alternatives, "HEIGHTS", (24,))
    monkeypatch.setattr(MODULE, "_FIRST", 1)
    monkeypatch.setattr(MODULE, "_LEAST", 1)
    monkeypatch.setattr(MODULE, "_MOST", 1)
    monkeypatch.setattr(config, "cache_dir", tmp_path)
    _forget()
    yield
    _forget()


@pytest.fixture
def fake(pytestconfig: pytest.Config) -> Iterator[None]:
    """A GPU, if only one that is not there."""
    if pytestconfig.getoption("--device") != "cpu":
        yield
        return
    from tests import fake_gpu

    with fake_gpu.installed(1), ba.device("cuda:0"):
        yield


def matrices(dtype: str, *shapes: tuple[int, ...]) -> list[ba.Array]:
    rng = np.random.default_rng(1)
    made = [ba.astype(ba.asarray(rng.standard_normal(s).astype(np.float32)), getattr(ba, dtype)) for s in shapes]
    ba.evaluate(*made)
    return made


def product(x: ba.Array, y: ba.Array) -> ba.Array:
    return ba.tanh(x @ y) + 1


def check(found: ba.Array, a: ba.Array, b: ba.Array, tolerance: float) -> None:
    x, y = (np.asarray(ba.astype(v, ba.float64)) for v in (a, b))
    np.testing.assert_allclose(np.asarray(ba.astype(found, ba.float64)), np.tanh(x @ y) + 1, atol=tolerance)


@pytest.mark.cpu_only
def test_products_on_the_cpu() -> None:
    a, b = matrices("float32", (40, 70), (70, 50))
    assert "tuned" not in str(ba.explain(product(a, b)))
    tuning = ba.tune(product, a, b)
    (decision,) = tuning.decisions
    assert [c.choice for c in decision.candidates] == [{}, {"kc": 64, "mc": 24}]
    assert all(c.seconds for c in decision.candidates)
    assert decision.gain >= 1
    assert "kc=64" in str(tuning)
    before = len(kernels.compiled)
    result = product(a, b)
    assert ba.explain(result).kernels[0].tuned
    assert ", tuned)" in str(ba.explain(result))
    ba.evaluate(result)
    assert len(kernels.compiled) == before, "the winner was compiled again"
    check(result, a, b, 1e-5)
    assert not ba.explain(a[:20] @ b).kernels[0].tuned, "another class of sizes"


@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", ["complex64", "int32"])
def test_products_of_other_types(dtype: str) -> None:
    a, b = matrices(dtype, (40, 70), (70, 50))
    (decision,) = ba.tune(ba.matmul, a, b).decisions
    assert all(c.seconds and not c.note for c in decision.candidates)


@pytest.mark.cpu_only
def test_choices_are_kept(tmp_path: Path) -> None:
    head = "import numpy as np, blockarray as ba\na = ba.asarray(np.ones((40, 40), np.float32))\nf = lambda x: x @ x\n"
    few = "from blockarray.compiler import alternatives\nalternatives.DEPTHS = alternatives.HEIGHTS = (64,)\n"
    show = "print(ba.explain(f(a)).kernels[0].tuned)"
    environ: dict[str, Any] = {"BLOCKARRAY_CACHE_DIR": str(tmp_path), "BLOCKARRAY_NUM_THREADS": "2"}
    assert run_python(head + few + "ba.tune(f, a)\n" + show, **environ).strip() == "True"
    assert run_python(head + show, **environ).strip() == "True"
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert run_python(head + show, **environ).strip() == "False"


def test_arguments_keep_their_elements() -> None:
    a, b = matrices("float32", (40, 40), (40, 40))
    before = np.asarray(a).copy()

    def writes(some: dict[str, ba.Array]) -> list[ba.Array]:
        x = some["x"]
        x += 1
        x[:, 0] = 7
        return [x @ some["y"]]

    ba.tune(writes, {"x": a, "y": b})
    np.testing.assert_array_equal(np.asarray(a), before)


def test_writes_elsewhere_are_refused() -> None:
    a, total, other = matrices("float32", (40, 40), (40, 40), (40, 40))
    row = total[3]
    shared = ba.asarray(outside := np.zeros((40, 40), np.float32), copy=False)
    before = np.asarray(total).copy()

    def adds(x: ba.Array) -> ba.Array:
        total[1:] += (x @ x)[1:]
        return total * 2

    def fills(x: ba.Array) -> ba.Array:
        ba.add(x @ x, 1, out=other)
        return x @ x

    def aliases(x: ba.Array) -> ba.Array:
        row[:3] = 5
        return x @ x

    def views(x: ba.Array) -> ba.Array:
        other.T[0] = 5
        return x @ x

    def shares(x: ba.Array) -> ba.Array:
        shared[0] = 5
        return x @ x

    for function in (adds, fills, aliases, views, shares):
        with pytest.raises(ValueError, match="not among its arguments"):
            ba.tune(function, a)
    np.testing.assert_array_equal(np.asarray(total), before)
    assert not outside.any()
    total[0] = 1
    assert np.asarray(total)[0, 0] == 1


def test_writes_to_what_is_made_inside() -> None:
    a, total = matrices("float32", (40, 40), (40, 40))
    total[1:] += 1
    want = np.asarray(total.copy())

    def makes(x: ba.Array) -> ba.Array:
        y = total.copy()
        y[0] = 7
        z = ba.zeros_like(x)
        z[:] = y @ total
        return z @ x

    assert ba.tune(makes, a).decisions
    np.testing.assert_array_equal(np.asarray(total), want)


def test_writes_that_were_recorded_before() -> None:
    a, total = matrices("float32", (40, 40), (40, 40))
    want = np.asarray(total).copy()
    want[1:] += 1
    total[1:] += 1
    assert ba.tune(lambda x: x @ total, a).decisions
    np.testing.assert_array_equal(np.asarray(total), want)


def test_nothing_to_choose() -> None:
    (a,) = matrices("float32", (40, 40))
    assert not ba.tune(lambda x: x, a).decisions
    assert "nothing to choose" in str(ba.tune(lambda x: None, a))
    assert not ba.tune(lambda x: np.float64(3), a).decisions
    assert not ba.tune(lambda x: (np.array(3.0), np.asarray(x), b"text"), a).decisions


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_on_a_gpu(dtype: str) -> None:
    a, b = matrices(dtype, (70, 96), (96, 64))
    tuning = ba.tune(product, a, b)
    (decision,) = tuning.decisions
    tiles = {(c.choice["d0"], c.choice["d2"]) for c in decision.candidates}
    assert len(tiles) > 1
    assert (64, 64) in tiles
    result = product(a, b)
    assert ba.explain(result).kernels[0].tuned
    check(result, a, b, 1e-2)
    near, beside = matrices(dtype, (66, 96), (96, 64))
    assert ba.explain(product(near, beside)).kernels[0].tuned


@pytest.mark.usefixtures("fake")
def test_parts_of_k(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LEAST_PART", 64)
    monkeypatch.setattr(prepare, "PARTS", (1, 2, 4))
    a, b = matrices("float16", (48, 256), (256, 40))
    tuning = ba.tune(product, a, b)
    assert tuning.decisions[0].key.startswith("cuda: parts of float16")
    assert {c.choice["parts"] for c in tuning.decisions[0].candidates} >= {1, 2, 4}
    check(product(a, b), a, b, 1e-2)


@pytest.mark.usefixtures("fake")
def test_tiles_of_other_kernels() -> None:
    (a,) = matrices("float32", (300, 300))
    (decision,) = ba.tune(lambda x: ba.exp(x) + x[::-1], a).decisions
    usual = decision.candidates[0].choice
    assert [c.choice != usual for c in decision.candidates[1:]]
    result = ba.exp(a) + a[::-1]
    assert ba.explain(result).kernels[0].tuned
    x = np.asarray(a)
    np.testing.assert_allclose(np.asarray(result), np.exp(x) + x[::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.cpu_only
def test_what_fails_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [{"kc": "deep"}, {"kc": 64}]
    monkeypatch.setattr(alternatives, "_cpu_products", lambda: wrong)
    a, b = matrices("float32", (40, 70), (70, 50))
    (decision,) = ba.tune(product, a, b).decisions
    assert decision.candidates[1].note
    assert decision.candidates[1].seconds is None
    assert decision.best is not decision.candidates[1]


@pytest.mark.cpu_only
def test_other_results_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_alike", lambda x, y: x is y)
    a, b = matrices("float32", (40, 70), (70, 50))
    (decision,) = ba.tune(product, a, b).decisions
    assert decision.candidates[1].note == "other results"
    assert decision.best is decision.candidates[0]


@pytest.mark.cpu_only
def test_processes_compile() -> None:
    (a,) = matrices("float32", (100,))
    # Kernels that no other test of this process has compiled.
    keys = [ba.explain(f(f(f(a) - a) * a)).kernels[0].ir for f in (ba.exp, ba.sin, ba.cos, ba.log)]
    assert kernels.absent(keys, CPU) == keys
    compile_ahead([*keys, "no kernel"], CPU)
    assert not kernels.absent(keys, CPU)
    assert kernels.absent(["no kernel"], CPU)
