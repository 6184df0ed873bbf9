"""Generators: NumPy's interface and errors, distributions, state."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import blockarray as xp

N = 40_000
SQRT2 = math.sqrt(2)
erf = np.vectorize(math.erf, otypes=[float])


def rng(seed: Any = 1) -> Any:
    return xp.random.default_rng(seed)


def host(x: Any) -> np.ndarray:
    return np.asarray(x)


# -- distributions ----------------------------------------------------------------------------------------------------
def triangular(x: np.ndarray) -> np.ndarray:
    """Of (1, 2, 5)."""
    return np.where(x < 2, (x - 1) ** 2 / 4, 1 - (5 - x) ** 2 / 12)


#: Methods with a cumulative distribution that is simple.
CONTINUOUS = {
    "random": ((), lambda x: x),
    "uniform": ((2.0, 5.0), lambda x: (x - 2) / 3),
    "standard_normal": ((), lambda x: 0.5 + 0.5 * erf(x / SQRT2)),
    "normal": ((1.0, 2.0), lambda x: 0.5 + 0.5 * erf((x - 1) / 2 / SQRT2)),
    "lognormal": ((0.5, 0.7), lambda x: 0.5 + 0.5 * erf((np.log(x) - 0.5) / 0.7 / SQRT2)),
    "standard_exponential": ((), lambda x: -np.expm1(-x)),
    "exponential": ((3.0,), lambda x: -np.expm1(-x / 3)),
    "laplace": ((1.0, 2.0), lambda x: 0.5 - np.sign(x - 1) * 0.5 * np.expm1(-abs(x - 1) / 2)),
    "logistic": ((1.0, 2.0), lambda x: 1 / (1 + np.exp((1 - x) / 2))),
    "gumbel": ((1.0, 2.0), lambda x: np.exp(-np.exp((1 - x) / 2))),
    "standard_cauchy": ((), lambda x: 0.5 + np.arctan(x) / np.pi),
    "rayleigh": ((2.0,), lambda x: -np.expm1(-x * x / 8)),
    "weibull": ((1.7,), lambda x: -np.expm1(-(x**1.7))),
    "pareto": ((2.5,), lambda x: 1 - (1 + x) ** -2.5),
    "power": ((2.5,), lambda x: x**2.5),
    "triangular": ((1.0, 2.0, 5.0), triangular),
    "chisquare": ((2.0,), lambda x: -np.expm1(-x / 2)),
    "standard_gamma": ((1.0,), lambda x: -np.expm1(-x)),
    "gamma": ((2.0, 3.0), lambda x: 1 - np.exp(-x / 3) * (1 + x / 3)),
    "beta": ((2.0, 1.0), lambda x: x * x),
    "f": ((2.0, 2.0), lambda x: x / (1 + x)),
    "standard_t": ((1.0,), lambda x: 0.5 + np.arctan(x) / np.pi),
    "vonmises": ((0.0, 0.0), lambda x: 0.5 + x / (2 * np.pi)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, dtype: Any) -> None:
    args, cdf = CONTINUOUS[name]
    x = host(getattr(rng(), name)(*args, size=N, dtype=dtype))
    assert x.dtype == dtype and x.shape == (N,) and np.isfinite(x).all()
    assert kolmogorov(x, cdf) < 1.95


def kolmogorov(x: np.ndarray, cdf: Any) -> float:
    """The largest difference of the distributions times sqrt(n): above 1.95 once in a thousand times."""
    p = cdf(np.sort(x.astype(np.float64)))
    steps = np.arange(len(x) + 1) / len(x)
    return float(max((steps[1:] - p).max(), (p - steps[:-1]).max()) * math.sqrt(len(x)))


def lgamma(x: Any) -> np.ndarray:
    return np.vectorize(math.lgamma, otypes=[float])(x)


def binomial(n: int, p: float) -> Any:
    return lambda k: (
        np.exp(
            lgamma(n + 1.0)
            - lgamma(k + 1.0)
            - lgamma(np.maximum(n - k, 0) + 1.0)
            + k * math.log(p)
            + (n - k) * math.log(1 - p)
        )
        * (k <= n)
    )


def poisson(lam: float) -> Any:
    return lambda k: np.exp(k * math.log(lam) - lam - lgamma(k + 1.0))


def hypergeometric(good: int, bad: int, sample: int) -> Any:
    def logs(n: int, k: np.ndarray) -> np.ndarray:
        inside = (k >= 0) & (k <= n)
        k = np.where(inside, k, 0)
        return np.where(inside, lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0), -np.inf)

    every = logs(good + bad, np.array(sample))
    return lambda k: np.exp(logs(good, k) + logs(bad, sample - k) - every)


COUNTS = {
    "poisson": [((0.3,), poisson(0.3)), ((9.5,), poisson(9.5)), ((10.0,), poisson(10)), ((200.0,), poisson(200))],
    "binomial": [
        ((7, 0.3), binomial(7, 0.3)), ((7, 0.9), binomial(7, 0.9)), ((100, 0.4), binomial(100, 0.4)),
        ((1000, 0.97), binomial(1000, 0.97)),
    ],
    "geometric": [((0.3,), lambda k: (k > 0) * 0.3 * 0.7 ** (k - 1.0))],
    "negative_binomial": [
        ((3, 0.4), lambda k: np.exp(lgamma(k + 3.0) - lgamma(k + 1.0) - lgamma(3.0)) * 0.4**3 * 0.6**k),
    ],
    "logseries": [((0.6,), lambda k: np.where(k > 0, -(0.6**k) / np.maximum(k, 1) / math.log(0.4), 0))],
    "hypergeometric": [((20, 7, 12), hypergeometric(20, 7, 12)), ((300, 900, 80), hypergeometric(300, 900, 80))],
    "zipf": [((3.0,), lambda k: np.where(k > 0, np.maximum(k, 1.0) ** -3 / 1.2020569031595942, 0))],
    "integers": [((3, 11), lambda k: ((k >= 3) & (k < 11)) / 8)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "args", "pmf"), [(n, *c) for n, cases in COUNTS.items() for c in cases])
def test_counts(name: str, args: Any, pmf: Any) -> None:
    x = host(getattr(rng(), name)(*args, size=N))
    assert x.dtype == np.int64
    expected = pmf(np.arange(x.max() + 100)) * N
    seen = np.bincount(x, minlength=len(expected))
    assert not seen[expected == 0].any()
    often = expected > 10
    e, s = (np.append(v[often], v[~often].sum()) for v in (expected, seen))
    chi = ((s - e) ** 2 / np.maximum(e, 1)).sum()
    freedom = often.sum()
    assert chi < freedom + 3.5 * math.sqrt(2 * freedom) + 4


def test_moments() -> None:
    r = rng(3)
    for name, args, mean, variance in (
        ("beta", (0.3, 0.2), 0.6, 0.16),
        ("wald", (2.0, 3.0), 2.0, 8 / 3),
        ("noncentral_chisquare", (3.0, 2.0), 5.0, 14.0),
        ("noncentral_f", (3.0, 9.0, 2.0), 15 / 7, None),
        ("gamma", (0.2, 2.0), 0.4, 0.8),
        ("vonmises", (1.0, 500.0), 1.0, 1 / 499.5),
    ):
        x = host(getattr(r, name)(*args, size=N))
        assert abs(x.mean() - mean) < 5 * x.std() / math.sqrt(N), name
        if variance is not None:
            spread = (x - mean) ** 2
            assert abs(spread.mean() - variance) < 5 * spread.std() / math.sqrt(N) + 1e-5, name


def test_vectors() -> None:
    r = rng(4)
    cov = np.array([[1.0, 0.5], [0.5, 2.0]])
    for method in ("svd", "eigh", "cholesky"):
        x = host(r.multivariate_normal([1, 2], cov, N, method=method))
        np.testing.assert_allclose(x.mean(0), [1, 2], atol=0.04)
        np.testing.assert_allclose(np.cov(x.T), cov, atol=0.06)
    x = host(r.dirichlet([0.5, 1, 2.5], N))
    np.testing.assert_allclose(x.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(x.mean(0), [0.125, 0.25, 0.625], atol=0.01)
    x = host(r.multinomial(20, [0.2, 0.3, 0.5], N))
    assert (x.sum(1) == 20).all() and x.dtype == np.int64
    np.testing.assert_allclose(x.mean(0), [4, 6, 10], atol=0.06)
    assert np.cov(x.T)[0, 1] == pytest.approx(-1.2, abs=0.1)
    for good, bad, sample, every in ((0, 5, 3, 0), (5, 0, 3, 3), (5, 5, 0, 0), (5, 5, 10, 5), (0, 0, 0, 0)):
        assert (host(r.hypergeometric(good, bad, sample, size=50)) == every).all()
    assert r.multivariate_normal([0], [[1]]).shape == (1,)
    assert r.multinomial([5, 6], [0.5, 0.5], size=(3, 2)).shape == (3, 2, 2)


def test_tails_of_float32_are_fine() -> None:
    x = host(rng(5).standard_normal(1 << 20, dtype=np.float32))
    far = x[abs(x) > 4]
    assert len(np.unique(far)) == len(far) and 40 < len(far) < 100
    assert host(rng(5).standard_exponential(1 << 20, dtype=np.float32)).min() > 0


# -- integers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_whole_types(dtype: str) -> None:
    low, high = (0, 1) if dtype == "?" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    x = host(rng().integers(low, high, 4096, dtype, endpoint=True))
    assert x.dtype == np.dtype(dtype)
    # The upper half of the range, and the lowest bit.
    for half in (x > low + (high - low) // 2, x.astype(np.uint64) & np.uint64(1)):
        assert abs(int(half.sum()) - 2048) < 160


def test_integers_with_bounds() -> None:
    r = rng()
    for low, high in ((-5, 7), (0, 3 << 30), (-(2**62), 2**62 + 5), (5, 6), (0, 2**32), (2**40, 2**40 + 2)):
        x = host(r.integers(low, high, 1000))
        assert x.min() >= low and x.max() < high
    x = host(r.integers([1, 5], [3, 100], size=(500, 2)))
    assert x[:, 0].min() == 1 and x[:, 0].max() == 2 and x[:, 1].min() >= 5 and x[:, 1].max() < 100
    assert (host(r.integers(xp.asarray([0, 7]), xp.asarray([1, 8]), size=(9, 2))) == [0, 7]).all()
    x = host(r.integers([0, 0], [2**64, 3], size=(2000, 2), dtype=np.uint64))
    assert x[:, 0].max() > 2**63 and x[:, 1].max() == 2
    assert host(r.integers(-3, [0, 5], endpoint=True)).shape == (2,)


# -- NumPy's interface ------------------------------------------------------------------------------------------------
SAME_TYPE = [
    "integers(5)", "integers(5, dtype=np.int32)", "integers(2, dtype=bool)", "integers(2.5)", "integers(9, dtype=int)",
    "random()", "random(dtype=np.float32)", "normal()", "poisson()", "binomial(5, 0.5)", "choice(5)",
    "choice([1.0, 2.0])", "gamma(2.0)", "standard_cauchy()", "geometric(0.5)", "triangular(1, 2, 3)", "bytes(5)",
    "normal(np.array(1.0))",
]  # fmt: skip


@pytest.mark.parametrize("call", SAME_TYPE)
def test_scalars_are_numpys(call: str) -> None:
    ours, theirs = (eval(f"r.{call}", {"r": r, "np": np}) for r in (rng(), np.random.default_rng(1)))
    assert type(ours) is type(theirs)


SAME_SHAPE = [
    "random(())", "random(3)", "random((2, 3))", "random((0, 3))", "random(np.int64(2))", "integers(5, size=())",
    "integers([2, 3])", "integers([], 5)", "integers(1, [[3], [4]], size=(2, 2))", "integers(3, 3, size=0)",
    "normal([1, 2], [[1], [2]])", "normal(np.array([1.0]))", "normal(0, [1, 2], (4, 2))", "choice([1, 2], size=0)",
    "choice(0, size=0)", "choice([], 0)", "choice([[1, 2], [3, 4], [5, 6]], 2)", "choice([[1, 2], [3, 4]], axis=1)",
    "choice(5, (2, 2), replace=False)", "choice(5, 3, p=[0.1, 0.2, 0.3, 0.2, 0.2])", "permutation(5)",
    "permutation(-3)", "permutation([[1, 2], [3, 4]], axis=1)", "multivariate_normal([0, 0], np.eye(2), (2, 3))",
    "dirichlet([1, 2], 2)", "multinomial(10, [0.2, 0.8], 3)", "multinomial([10, 3], [0.2, 0.8])", "poisson([1, 20])",
    "binomial([5, 6], 0.5)", "standard_gamma([1, 0.5])", "gamma(0, size=2)", "beta([0.5, 2], 1)",
]  # fmt: skip


@pytest.mark.parametrize("call", SAME_SHAPE)
def test_shapes_are_numpys(call: str) -> None:
    ours, theirs = (host(eval(f"r.{call}", {"r": r, "np": np})) for r in (rng(), np.random.default_rng(1)))
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype


SAME_ERROR = [
    "integers(-1)", "integers(5, 2)", "integers(0, 300, dtype=np.uint8)", "integers(-5, 3, dtype=np.uint8)",
    "integers(5, dtype='>i4')", "integers(5, dtype=float)", "integers([1, 2], [5, 0])", "integers(0)",
    "integers(0, -1, endpoint=True)", "integers(0, 3, dtype=bool)", "integers(2**63 + 1)",
    "random(dtype=np.int32)", "random(3, dtype='f2')", "standard_normal(dtype=int)", "normal(0, -1)", "normal(0, -0.0)",
    "normal(0, [-1.0, 1])", "normal(size=-1)", "uniform(1, 0)", "uniform(0, np.inf)", "exponential(-1)", "gamma(-1)",
    "gamma(1, -1)", "beta(0, 1)", "poisson(-1)", "poisson(np.nan)", "poisson(1e19)", "poisson([1, -1])",
    "binomial(-1, 0.5)", "binomial(5, 1.5)", "binomial(5, [0.5, np.nan])", "geometric(0)", "geometric(1.5)",
    "choice(0)", "choice([])", "choice(-3)", "choice(5, 6, replace=False)", "choice(3, p=[0.5, 0.5])",
    "choice(3, p=[0.5, 0.5, 0.5])", "choice(3, p=[-0.5, 1, 0.5])", "choice(3, 3, replace=False, p=[0, 0.5, 0.5])",
    "choice(2.5)", "choice([[1, 2], [3, 4]], p=[[0.5, 0.5]])", "choice(3, p=[np.nan, 0.5, 0.5])", "shuffle(5)",
    "shuffle((1, 2))", "permuted(5)", "triangular(3, 2, 4)", "triangular(1, 4, 3)", "triangular(1, 1, 1)",
    "vonmises(0, -1)", "power(0)", "standard_t(0)", "f(0, 1)", "negative_binomial(0, 0.5)", "negative_binomial(1, 0)",
    "multinomial(-1, [0.5, 0.5])", "dirichlet([-1, 1])", "logseries(1)", "hypergeometric(1, 1, 3)",
    "hypergeometric(1, 1, -1)", "hypergeometric(2e9, 1, 3)", "zipf(1)", "normal('a')", "normal(1j)", "normal(None)",
    "rayleigh(-1)", "weibull(-1)", "pareto(0)", "wald(0, 1)", "laplace(0, -1)", "chisquare(0)",
    "noncentral_chisquare(0, 1)", "noncentral_f(1, 1, -1)", "lognormal(0, -1)", "standard_gamma(-1)",
    "multivariate_normal([0, 0], [[1, 0]])", "multivariate_normal([[0]], [[1]])", "multivariate_normal([0], np.eye(2))",
    "multivariate_normal([0], [[1]], method='x')", "permutation(3.0)", "permutation([1, 2], axis=3)",
    "multinomial(5, [0.5, 0.6, 0.1])", "multinomial(5, [-0.5, 1])",
]  # fmt: skip


@pytest.mark.parametrize("call", SAME_ERROR)
def test_errors_are_numpys(call: str) -> None:
    with pytest.raises(Exception) as theirs:
        eval(f"r.{call}", {"r": np.random.default_rng(1), "np": np})
    with pytest.raises(type(theirs.value)) as ours:
        eval(f"r.{call}", {"r": rng(), "np": np})
    said = str(theirs.value)
    assert str(ours.value)[:12] == said[:12] or type(theirs.value) is TypeError or "object" in said


def test_sizes_must_fit_the_parameters() -> None:
    for call in (lambda r: r.normal([1, 2], 1, size=3), lambda r: r.integers(1, [3, 4], size=3)):
        with pytest.raises(ValueError):
            call(rng())


def test_out() -> None:
    for name, args in (
        ("random", ()),
        ("standard_normal", ()),
        ("standard_exponential", ()),
        ("standard_gamma", (2.0,)),
    ):
        out = xp.zeros((2, 3), dtype=np.float32)
        result = getattr(rng(), name)(*args, dtype=np.float32, out=out)
        assert result is out
        np.testing.assert_array_equal(host(out), host(getattr(rng(), name)(*args, size=(2, 3), dtype=np.float32)))
        with pytest.raises(TypeError, match="wrong type"):
            getattr(rng(), name)(*args, out=out)
        with pytest.raises(ValueError, match="size must match"):
            getattr(rng(), name)(*args, size=3, dtype=np.float32, out=out)


def test_seeds_are_checked_as_numpys() -> None:
    for seed, error in ((-1, ValueError), (1.5, TypeError), ("a", TypeError)):
        with pytest.raises(error):
            xp.random.default_rng(seed)
    assert rng(np.int64(7)).integers(1 << 40) == rng(7).integers(1 << 40)
    assert xp.random.default_rng([1, 2]).random() != xp.random.default_rng([2, 1]).random()
    assert xp.random.default_rng().random() != xp.random.default_rng().random()
    g = rng()
    assert xp.random.default_rng(g) is g
    with pytest.raises(TypeError):
        xp.random.Generator(np.random.PCG64())  # type: ignore[arg-type]


# -- picking and ordering ---------------------------------------------------------------------------------------------
def test_orders_are_equally_likely() -> None:
    r = rng(6)
    x = host(r.permuted(np.tile(np.arange(4), (24 * 200, 1)), axis=1))
    _, counts = np.unique(x @ [64, 16, 4, 1], return_counts=True)
    assert len(counts) == 24 and ((counts - 200) ** 2 / 200).sum() < 23 + 3.5 * math.sqrt(46)


def test_permutations_hold_every_element() -> None:
    r = rng()
    x = np.arange(24).reshape(4, 6)
    assert sorted(host(r.permutation(10)).tolist()) == list(range(10))
    assert sorted(host(r.permutation(x))[:, 0].tolist()) == [0, 6, 12, 18]
    assert sorted(host(r.permutation(x, axis=1))[0].tolist()) == list(range(6))
    assert sorted(host(r.permuted(x)).ravel().tolist()) == list(range(24))
    assert (np.sort(host(r.permuted(x, axis=1)), 1) == x).all()
    out = xp.zeros((4, 6), dtype=x.dtype)
    assert r.permuted(x, axis=0, out=out) is out and (np.sort(host(out), 0) == x).all()


def test_shuffle_is_in_place() -> None:
    r = rng()
    a, b, c = xp.arange(50), np.arange(50), list(range(50))
    view = a[:3]
    for x in (a, b, c):
        assert r.shuffle(x) is None
        assert sorted(np.asarray(x).tolist()) == list(range(50)) != np.asarray(x).tolist()
    assert host(view).tolist() == host(a)[:3].tolist()


def test_choice() -> None:
    r = rng(8)
    x = host(r.choice(4, N, p=[0.1, 0.2, 0, 0.7]))
    counts = np.bincount(x, minlength=4)
    assert counts[2] == 0
    np.testing.assert_allclose(counts / N, [0.1, 0.2, 0, 0.7], atol=0.01)
    assert len(set(host(r.choice(100, 50, replace=False)).tolist())) == 50
    x = host(r.choice(3, 2, replace=False, p=[0.5, 0, 0.5]))
    assert sorted(x.tolist()) == [0, 2]
    first = np.array([host(r.choice(3, 2, replace=False, p=[0.2, 0.3, 0.5]))[0] for _ in range(1500)])
    np.testing.assert_allclose(np.bincount(first) / 1500, [0.2, 0.3, 0.5], atol=0.05)
    assert set(host(r.choice([10, 20], 50)).tolist()) == {10, 20}


# -- state ------------------------------------------------------------------------------------------------------------
def test_a_draw_holds_its_place() -> None:
    one, two = rng(), rng()
    a, b = one.random(100), one.random(7)
    d, c = [two.random(n) for n in (100, 7)][::-1]
    np.testing.assert_array_equal(host(b), host(d))
    np.testing.assert_array_equal(host(a), host(c))
    whole = host(rng().random(100))
    np.testing.assert_array_equal(host(rng().random(100)[::-3]), whole[::-3])
    np.testing.assert_array_equal(host(rng().random((10, 10)).T), whole.reshape(10, 10).T)


def test_draws_do_not_overlap() -> None:
    r = rng()
    seen = np.concatenate([host(r.integers(2**64, size=n, dtype=np.uint64)) for n in (1, 2, 3, 7, 100, 1, 50)])
    assert len(np.unique(seen)) == len(seen)
    children = r.spawn(3)
    more = [host(g.integers(2**64, size=100, dtype=np.uint64)) for g in (*children, *children[0].spawn(2), *r.spawn(1))]
    every = np.concatenate([seen, *more])
    assert len(np.unique(every)) == len(every)


def test_state() -> None:
    r = rng()
    r.random(3)
    state = r.bit_generator.state
    x = host(r.normal(size=5))
    copy = pickle.loads(pickle.dumps(r))
    r.bit_generator.state = state
    np.testing.assert_array_equal(host(r.normal(size=5)), x)
    assert r.random() == copy.random()
    after = r.bit_generator.state
    r.bit_generator.state = state
    r.bit_generator.advance(4)  # five numbers of 64 bits, and one
    assert r.bit_generator.state == after
    with pytest.raises(ValueError):
        r.bit_generator.state = {"bit_generator": "PCG64", "state": {}}
    with pytest.raises(TypeError):
        r.bit_generator.state = 3


def test_functions_of_the_module() -> None:
    xp.random.seed(3)
    a = (host(xp.random.rand(2, 3)), host(xp.random.randn(4)), xp.random.randint(10), xp.random.random())
    xp.random.seed(3)
    b = (host(xp.random.rand(2, 3)), host(xp.random.randn(4)), xp.random.randint(10), xp.random.random())
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert a[0].shape == (2, 3) and type(a[2]) is int and type(xp.random.rand()) is float
    assert host(xp.random.normal(size=3)).shape == (3,) and host(xp.random.permutation(3)).shape == (3,)
    assert host(xp.random.randint(0, 5, 3)).dtype == np.int64
