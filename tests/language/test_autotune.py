"""Choosing meta-parameters: what is measured, when, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl
from blockarray import testing
from blockarray.runtime.config import config


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_dir", tmp_path)


@ba.jit
def increment(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


CONFIGS = [ba.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((16, 1), (32, 2), (64, 4))]
grid = lambda meta: (ba.cdiv(meta["n"], meta["BLOCK"]),)


class Clock:
    """Measures that one configuration is the fastest; counts."""

    def __init__(self, fastest: int = 1) -> None:
        self.fastest = fastest
        self.count = 0

    def __call__(self, call: Callable[[], Any], quantiles: Any) -> list[float]:
        call()
        self.count += 1
        return [float((self.count - 1) % 3 != self.fastest)] * 3


def test_the_fastest_is_launched():
    clock = Clock()
    tuned = ba.autotune(CONFIGS, key=["n"], do_bench=clock)(increment)
    a = ba.zeros(50, dtype="f")
    tuned[grid](a, 50)
    assert np.asarray(a).tolist() == [4.0] * 50  # three candidates, and the launch
    assert clock.count == 3 and tuned.best_config is CONFIGS[1]
    assert tuned.configs_timings[CONFIGS[0]] == (1.0, 1.0, 1.0)
    tuned[grid](a, 50)
    assert clock.count == 3
    tuned[grid](a, n=40)
    assert clock.count == 6
    tuned[grid](ba.zeros(50, dtype="float64"), 50)
    assert clock.count == 9
    assert [c.kwargs["BLOCK"] for c in tuned.cache.values()] == [32] * 3


def test_arrays_are_reset_or_restored():
    a = ba.zeros(50, dtype="f")
    ba.autotune(CONFIGS, key=["n"], do_bench=Clock(), reset_to_zero=["x"])(increment)[grid](a, 50)
    assert np.asarray(a).tolist() == [1.0] * 50
    a = ba.ones(50, dtype="f") * 5
    ba.autotune(CONFIGS, key=["n"], do_bench=Clock(), restore_value=["x"])(increment)[grid](a, 50)
    assert np.asarray(a).tolist() == [6.0] * 50
    with pytest.raises(ValueError, match=r"autotune of increment: .* 'z' is unknown"):
        ba.autotune(CONFIGS, key=["n"], restore_value=["x", "z"])(increment)


def test_hooks():
    told: list[Any] = []
    configs = [ba.Config({"BLOCK": 16}, pre_hook=lambda args: told.append(args["BLOCK"])), CONFIGS[1]]
    tuned = ba.autotune(
        configs, key=["n"], do_bench=Clock(0), pre_hook=lambda args: told.append("pre"),
        post_hook=lambda args, exception: told.append(exception),
    )(increment)  # fmt: skip
    a = ba.zeros(20, dtype="f")
    tuned[grid](a, 20)
    assert told[-6:] == [16, "pre", None, "pre", None, 16]
    told.clear()
    tuned[grid](a, 20)
    assert told == [16]


def test_pruning():
    clock = Clock(0)
    early = lambda configs, named, **kwargs: [c for c in configs if c.kwargs["BLOCK"] <= named["n"]]
    tuned = ba.autotune(CONFIGS, key=["n"], do_bench=clock, prune_configs_by={"early_config_prune": early})(increment)
    a = ba.zeros(50, dtype="f")
    tuned[grid](a, 40)
    assert clock.count == 2
    with pytest.raises(ValueError, match="autotune of increment: early_config_prune left no configuration"):
        tuned[grid](a, 3)
    by = {"perf_model": lambda **args: -args["BLOCK"] * args["num_warps"], "top_k": 1}
    clock = Clock(0)
    tuned = ba.autotune(CONFIGS, key=["n"], do_bench=clock, prune_configs_by=by)(increment)
    tuned[grid](a, 40)
    assert clock.count == 1 and tuned.best_config is CONFIGS[2]


def test_candidates_that_cannot_run_are_left_out():
    def bench(call: Callable[[], Any], quantiles: Any) -> list[float]:
        bench.count += 1
        if bench.count < 3 or bench.all:
            raise RuntimeError(f"out of {bench.count}")
        call()
        return [2.0]

    bench.count, bench.all = 0, False
    tuned = ba.autotune(CONFIGS, key=["n"], do_bench=bench)(increment)
    a = ba.zeros(50, dtype="f")
    tuned[grid](a, 50)
    assert tuned.best_config is CONFIGS[2]
    bench.all = True
    with pytest.raises(RuntimeError, match="out of 4"):
        tuned[grid](a, 49)


def test_results_are_kept_on_disk():
    a = ba.zeros(50, dtype="f")
    for _ in range(2):
        clock = Clock()
        tuned = ba.autotune(CONFIGS, key=["n"], do_bench=clock, cache_results=True)(increment)
        tuned[grid](a, 50)
        assert tuned.best_config is CONFIGS[1]
    assert clock.count == 0
    clock = Clock(2)
    ba.autotune(CONFIGS[:2], key=["n"], do_bench=clock, cache_results=True)(increment)[grid](a, 50)
    assert clock.count == 2


def test_its_own_clock():
    a = ba.zeros(50, dtype="f")
    tuned = ba.autotune(CONFIGS, key=["n"])(increment)
    tuned[grid](a, 50)
    assert len(tuned.configs_timings) == 3
    assert all(0 < t[0] < 1e4 for t in tuned.configs_timings.values())


def test_errors():
    with pytest.warns(UserWarning, match="autotune of increment: there is no argument m for its key") as caught:
        tuned = ba.autotune(CONFIGS, key=["n", "m"], do_bench=Clock())(increment)
    assert caught[0].filename == __file__
    a = ba.zeros(50, dtype="f")
    alone = ba.autotune(CONFIGS[:1], key=["n"])(increment)
    for given in ({"BLOCK": 32}, {"num_warps": 4}):
        for kernel in (tuned, alone):
            with pytest.raises(ValueError, match=r"increment: .*: given at the launch, and by autotune"):
                kernel[grid](a, 50, **given)
    with pytest.raises(TypeError, match="its key names numbers, and x is an array"):
        ba.autotune(CONFIGS, key=["x"])(increment)[grid](a, 50)
    with pytest.raises(RuntimeError, match="launch it by increment"):
        tuned(a, 50)
    for what, error, reason in (
        (lambda: ba.autotune(CONFIGS, key="n")(increment), TypeError, r"a list of names as key: \['n'\]"),
        (lambda: ba.autotune(CONFIGS[0], key=["n"])(increment), TypeError, "takes a list of Config, not BLOCK: 16"),
        (lambda: ba.autotune([{"BLOCK": 1}], key=[])(increment), TypeError, "takes a list of Config"),
        (lambda: ba.autotune(CONFIGS, key=[])(grid), TypeError, "autotune takes a kernel, not <function"),
        (lambda: ba.autotune(CONFIGS, [], prune_configs_by={"k": 1})(increment), ValueError, "'k' is unknown: there"),
        (lambda: ba.autotune(CONFIGS, [], reset_to_zero=["y"])(increment), ValueError, "reset_to_zero 'y' is unknown"),
        (
            lambda: ba.autotune([ba.Config({"BLOK": 16})], key=[])(increment), ValueError,
            "autotune of increment: the constant of a Config 'BLOK' is unknown: did you mean BLOCK?",
        ),
        (
            lambda: ba.autotune([ba.Config({"BLOCK": 16, "num_warps": 8})], key=[])(increment), ValueError,
            "say num_warps beside the dict",
        ),
        (lambda: ba.Config([16]), TypeError, r"Config takes a dict of constants, not \[16\]"),
        (lambda: ba.heuristics({"BLOK": len})(increment), ValueError, "did you mean BLOCK?"),
        (lambda: ba.heuristics({"BLOCK": 16})(increment), TypeError, "BLOCK is a function of arguments, not 16"),
    ):  # fmt: skip
        with pytest.raises(error, match=reason):
            what()


def test_configs_compare():
    same = ba.Config({"BLOCK": 16}, num_warps=1)
    assert same == CONFIGS[0] and hash(same) == hash(CONFIGS[0]) and same != CONFIGS[1]
    assert repr(same) == "BLOCK: 16, num_warps: 1, num_stages: 3, num_ctas: 1"
    assert ba.Config({}, maxnreg=64).all_kwargs()["maxnreg"] == 64


def test_heuristics_and_both():
    a = ba.zeros(50, dtype="f")
    rule = ba.heuristics({"BLOCK": lambda args: ba.next_power_of_2(args["n"])})(increment)
    rule[grid](a, 50)
    assert np.asarray(a).tolist() == [1.0] * 50
    assert rule.warmup(a, 50).kernel is rule.fn.warmup(a, 50, BLOCK=64).kernel
    both = ba.autotune([ba.Config({}, num_warps=w) for w in (1, 2, 4)], key=["n"], do_bench=Clock())(rule)
    both[grid](a, n=50)
    assert both.best_config.num_warps == 2 and both.base_fn is increment
    assert np.asarray(a).tolist() == [5.0] * 50
    compiled = ba.autotune(CONFIGS, key=["n"])(increment).warmup(a, 50)
    assert [c.options["num_warps"] for c in compiled] == [1, 2, 4]


# -- the clock, and plots ---------------------------------------------------------------------------------------------
def test_do_bench():
    calls = []
    run = lambda: calls.append(ba.ones(1000, dtype="f") + len(calls)) or calls[-1]
    assert testing.do_bench(run, warmup=1, rep=2) > 0
    low, high = testing.do_bench(run, warmup=1, rep=2, quantiles=[0.2, 0.8])
    assert low <= high
    assert len(testing.do_bench(run, warmup=1, rep=2, return_mode="all")) >= 1
    with pytest.raises(ValueError, match="return_mode is one of"):
        testing.do_bench(run, return_mode="mode")


def test_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    @testing.perf_report(
        testing.Benchmark(
            x_names=["n"], x_vals=[1, 2], line_arg="provider", line_vals=["a", "b"], line_names=["A", "B"],
            plot_name="plot", args={"k": 3}, ylabel="GB/s",
        )
    )  # fmt: skip
    def bench(n, provider, k):
        return (n * k, 1.0, 2.0) if provider == "a" else n / 10

    bench.run(print_data=True, save_path=str(tmp_path))
    assert capsys.readouterr().out.split() == [
        "plot:",
        "n",
        "A",
        "(GB/s)",
        "B",
        "(GB/s)",
        "1",
        "3",
        "0.1",
        "2",
        "6",
        "0.2",
    ]
    assert (tmp_path / "plot.csv").read_text().splitlines()[1] == "1,3,0.1"


def test_assert_close():
    testing.assert_close(ba.ones(3), np.ones(3))
    with pytest.raises(AssertionError):
        testing.assert_close(ba.ones(3), np.ones(3) + 0.1)
