"""Random numbers in compiled kernels: fusion, reuse of code, independence of the order of evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import fake_gpu
from tests.support import compiles, evaluate, host, needs_lazy, xp

pytestmark = needs_lazy


def rng(seed: int = 1) -> Any:
    return xp.random.default_rng(seed)


def kernels(x: Any) -> list[str]:
    return [line for line in str(xp.explain(x)).splitlines() if ": kernel " in line]


def test_monte_carlo_is_one_kernel() -> None:
    r = rng()
    x, y = r.random(20_000), r.random(20_000)
    p = ((x * x + y * y) < 1).mean()
    assert len(kernels(p)) == 1
    assert abs(4 * float(p) - np.pi) < 0.05


def test_a_long_walk_stores_only_its_blocks() -> None:
    r = rng()
    x, y = (r.random(4_000_000, dtype=np.float32) for _ in range(2))
    p = ((x * x + y * y) < 1).mean()
    text = str(xp.explain(p))
    assert "[4000000]" not in "".join(line for line in text.splitlines() if "reads" in line or "writes" in line)
    with xp.profile() as profile:
        assert abs(4 * float(p) - np.pi) < 0.005
    assert profile.launches <= 2


@pytest.mark.parametrize(
    "draw",
    [
        lambda r: r.normal(1, 2, (64, 300)), lambda r: r.integers(7, size=(64, 300)),
        lambda r: r.gumbel(size=(64, 300)), lambda r: r.gamma(2.0, size=(64, 300)), lambda r: r.poisson(3.0, (64, 300)),
    ],
    ids=["normal", "integers", "gumbel", "gamma", "poisson"],
)  # fmt: skip
def test_a_draw_joins_its_reader(draw: Any) -> None:
    assert len(kernels((draw(rng()) * 2.0).sum(axis=1))) == 1


def test_loops_of_draws_compile_once() -> None:
    r = rng()

    def step(n: int = 1000, seed: int | None = None) -> Any:
        g = r if seed is None else rng(seed)
        return g.normal(size=n) * 0.5 + g.uniform(0.1 * n, n, n) + g.integers(n, size=n)

    compiles(step)
    assert sum(compiles(step) for _ in range(10)) == 0
    assert sum(compiles(step, n, n) for n in range(900, 1000, 7)) == 0


METHODS = {
    "random": (), "integers": (0, 1000), "standard_normal": (), "exponential": (2.0,), "gamma": (0.7,),
    "poisson": (12.0,), "binomial": (100, 0.4), "vonmises": (0.0, 1.0), "geometric": (0.2,), "permutation": None,
}  # fmt: skip


def draws(r: Any) -> list[Any]:
    return [
        r.permutation(501) if args is None else getattr(r, name)(*args, size=(3, 167)) for name, args in METHODS.items()
    ]


def test_values_do_not_depend_on_the_order() -> None:
    at_once = [host(x) for x in draws(rng())]
    backwards = draws(rng())
    backwards = [host(x) for x in backwards[::-1]][::-1]
    together = draws(rng())
    evaluate(*together)
    for a, b, c in zip(at_once, backwards, together, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, host(c))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_do_not_depend_on_the_kernel(dtype: Any) -> None:
    """Slices, transposes and reductions draw what the whole array has."""
    whole = host(rng().random((37, 101), dtype=dtype))
    draw = lambda: rng().random((37, 101), dtype=dtype)
    np.testing.assert_array_equal(host(draw().T), whole.T)
    np.testing.assert_array_equal(host(draw()[3:30:2, ::-3] * 1), whole[3:30:2, ::-3])
    np.testing.assert_array_equal(host(draw().max(axis=0)), whole.max(0))
    np.testing.assert_array_equal(host(draw().max(axis=1)), whole.max(1))
    np.testing.assert_array_equal(host(draw()[5] + 0), whole[5])
    assert host(draw()[5, 7]) == whole[5, 7]
    index = np.arange(0, 37, 5)
    np.testing.assert_array_equal(host(xp.take(draw(), xp.asarray(index), axis=0)), whole[index])
    single = rng()
    np.testing.assert_array_equal(host(single.random(5, dtype=dtype)), whole.ravel()[:5])


def test_threads_share_a_generator() -> None:
    import threading

    r = rng()
    found: list[Any] = []
    workers = [
        threading.Thread(target=lambda: found.extend(r.integers(2**60, size=50) for _ in range(20))) for _ in "abcd"
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    values = np.concatenate([host(x) for x in found])
    assert len(np.unique(values)) == len(values) == 4000


def test_devices_draw_the_same(pytestconfig: pytest.Config) -> None:
    n = 5000
    exact = [
        lambda r, d: r.random((50, 100), device=d), lambda r, d: r.random(n, dtype=np.float32, device=d),
        lambda r, d: r.uniform(-2, 3, n, device=d), lambda r, d: r.integers(1000, size=n, device=d),
        lambda r, d: r.integers(3 << 61, size=n, device=d), lambda r, d: r.integers(-9, 9, n, np.int8, device=d),
        lambda r, d: r.integers(np.arange(n), np.arange(n) + 3, device=d),
    ]  # fmt: skip
    close = [
        lambda r, d: r.standard_normal(n, dtype=np.float32, device=d), lambda r, d: r.normal(size=n, device=d),
        lambda r, d: r.standard_exponential(n, device=d), lambda r, d: r.gamma(2.5, size=n, device=d),
        lambda r, d: r.poisson(4.5, n, device=d), lambda r, d: r.poisson(99.5, n, device=d),
        lambda r, d: r.binomial(200, 0.3, n, device=d), lambda r, d: r.vonmises(0, 2.5, n, device=d),
    ]  # fmt: skip
    with fake_gpu.installed(1) if pytestconfig.getoption("--device") == "cpu" else xp.device("cpu"):
        gpu = xp.devices()[1]
        for k, draw in enumerate(exact):
            np.testing.assert_array_equal(host(draw(rng(), gpu)), host(draw(rng(), "cpu")), f"exact {k}")
        for k, draw in enumerate(close):
            there, here = host(draw(rng(), gpu)), host(draw(rng(), "cpu"))
            off = ~np.isclose(there, here, 1e-12 if here.dtype.itemsize == 8 else 1e-6, 0)
            assert off.sum() <= 1, (k, there[off], here[off])  # a rejection that rounding tips


def test_devices(pytestconfig: pytest.Config) -> None:
    calls = [
        lambda r, d: r.random(9, device=d), lambda r, d: r.integers(9, size=9, device=d),
        lambda r, d: r.integers([1, 2], [5, 9], device=d), lambda r, d: r.normal([0, 1], [1, 2], device=d),
        lambda r, d: r.normal(xp.asarray([0.0, 1.0], device=d)), lambda r, d: r.choice([3, 4, 5], 4, device=d),
        lambda r, d: r.choice(3, 4, p=[0.2, 0.3, 0.5], device=d), lambda r, d: r.permutation(9, device=d),
        lambda r, d: r.multivariate_normal([0, 1], np.eye(2), 3, device=d), lambda r, d: r.beta(0.5, [1, 2], device=d),
        lambda r, d: r.choice(9, 3, replace=False, p=np.full(9, 1 / 9), device=d),
        lambda r, d: r.multinomial(9, [0.2, 0.3, 0.5], 4, device=d), lambda r, d: r.gamma(0, size=3, device=d),
        lambda r, d: r.permuted(xp.asarray([[1, 2, 3]], device=d), axis=1),
    ]  # fmt: skip
    with fake_gpu.installed(1) if pytestconfig.getoption("--device") == "cpu" else xp.device("cpu"):
        gpu = xp.devices()[1]
        for k, call in enumerate(calls):
            here, there = call(rng(), "cpu"), call(rng(), gpu)
            assert (here.device, there.device) == ("cpu", gpu), k
            if not isinstance(there.dtype, np.dtypes.Float64DType):
                np.testing.assert_array_equal(host(there), host(here))
        with xp.device(gpu):
            assert rng().random(3).device is gpu and rng().permutation([1, 2, 3]).device is gpu
            assert 0 <= rng().random() < 1
