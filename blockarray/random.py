"""Random numbers: NumPy's `Generator`, drawn from a counter inside the kernels that use them.

A generator is a key and a position.  A call takes as many blocks of counters as its result needs and moves the position
on at once; the numbers themselves are a function of the counter (`compiler/draws.py`), computed with whatever reads
them, in any order, on any device.  The streams are not NumPy's.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from .array import Array
from .creation import asarray, zeros
from .dtypes import bool_, canonical, float64, int64, uint32, uint64
from .elementwise import abs as absolute
from .elementwise import cast_to, ceil, copysign, exp, expm1, floor, log, log1p, maximum, sqrt, tan, where
from .manipulation import broadcast_to, reshape, stack
from .operands import as_array, axis_index, broadcast_shapes, shape_tuple
from .products import matmul
from .runtime.device import Device
from .searching import argsort, searchsorted
from .selection import take, take_along_axis
from .streams import (
    Call,
    Philox,
    above_one,
    anything,
    below_billion,
    below_one,
    float_kind,
    non_negative,
    parameter,
    poisson_rate,
    positive,
    positive_probability,
    probability,
    target,
)

__all__ = [
    "Generator", "Philox", "SeedSequence", "beta", "binomial", "choice", "default_rng", "exponential", "gamma",
    "multivariate_normal", "normal", "permutation", "poisson", "rand", "randint", "randn", "random", "random_sample",
    "seed", "shuffle", "standard_normal", "uniform",
]  # fmt: skip

#: Bounds up to this are drawn from 32 bits: larger ones would have to draw again too often.
_NARROW = 1 << 24


def default_rng(seed: Any = None) -> Generator:
    """A new generator.

    Parameters
    ----------
    seed : None, int, array_like of int, SeedSequence, Philox or Generator
        None takes entropy from the operating system.  A Generator is returned as it is.

    Returns
    -------
    Generator
    """
    return seed if isinstance(seed, Generator) else Generator(seed if isinstance(seed, Philox) else Philox(seed))


# -- the generator ----------------------------------------------------------------------------------------------------
class Generator:
    """NumPy's Generator, whose methods return lazy Arrays; without `size`, of plain parameters, Python scalars.

    Beside NumPy's arguments, methods take `device`, and those of continuous distributions `dtype`, which is float64 or
    float32.  Parameters are checked at the call, but for those that are Arrays: where one of these is bad, the result
    is NaN or another arbitrary number.

    Parameters
    ----------
    bit_generator : Philox
    """

    def __init__(self, bit_generator: Philox) -> None:
        if not isinstance(bit_generator, Philox):
            raise TypeError("Generator takes a blockarray.random.Philox")
        self._bit_generator = bit_generator

    @property
    def bit_generator(self) -> Philox:
        """Where the numbers come from: see its `state`."""
        return self._bit_generator

    def spawn(self, n_children: int) -> list[Generator]:
        """New, independent generators."""
        return [Generator(b) for b in self._bit_generator.spawn(n_children)]

    def __reduce__(self) -> Any:
        return Generator, (self._bit_generator,)

    def __repr__(self) -> str:
        return f"Generator(Philox) at 0x{id(self):X}"

    def _call(self, size: Any, dtype: Any, device: Any, *parameters: Any, name: str = "random") -> Any:
        """A Call, followed by the parameters; each of these comes as (name, value, check[, whether it is whole])."""
        kind = float_kind(dtype, name)
        place = target(device, (p[1] for p in parameters))
        values = [parameter(p[0], p[1], p[2], kind, place, whole=len(p) > 3) for p in parameters]
        arrays = [v for v in values if isinstance(v, Array)]
        shape = broadcast_shapes(*(a.shape for a in arrays))
        if size is not None:
            given = shape_tuple(size)
            if broadcast_shapes(given, shape) != given:
                raise ValueError(f"Output size {given} is not compatible with broadcast dimensions of inputs {shape}.")
            shape = given
        call = Call(self._bit_generator, shape, size is None and not arrays, kind, place)
        return (call, *values) if values else call

    # -- numbers in an interval ---------------------------------------------------------------------------------------
    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None, *, device: Any = None) -> Any:
        """Uniform numbers in [0, 1)."""
        return _into(out, size, dtype, lambda size: self._call(size, dtype, device), lambda call: call.unit())

    def uniform(
        self, low: Any = 0.0, high: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Uniform numbers in [low, high)."""
        call, low, high = self._call(
            size, dtype, device, ("low", low, anything), ("high", high, anything), name="uniform"
        )
        if not isinstance(low, Array) and not isinstance(high, Array):
            if not math.isfinite(high - low):
                raise OverflowError("high - low range exceeds valid bounds")
            if high < low:
                raise ValueError("high - low < 0")
        return call.result(low + (high - low) * call.unit())

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
        *,
        device: Any = None,
    ) -> Any:
        """Integers from `low` up to `high`, which is left out unless `endpoint`; from 0 to `low` if `high` is None.

        Every integer is exactly as likely as any other.
        """
        to = _integer(dtype)
        low, high = (0, low) if high is None else (low, high)
        if isinstance(low, Array) or isinstance(high, Array) or np.ndim(low) or np.ndim(high):
            return self._integers_between(low, high, size, to, endpoint, target(device, (low, high)))
        low, high = int(low), int(high) - (not endpoint)
        call = Call(self._bit_generator, *_sized(size), float64, target(device, ()))
        least, most = _range(to)
        if not least <= low <= high <= most and (size is None or math.prod(call.shape)):
            _check_bounds(np.asarray(low, object), np.asarray(high, object), to, endpoint)
        count = high - low + 1
        if to == bool_:
            result = cast_to(call.draw("bounded32", uint32, max(count, 1)), int64) + low != 0
        elif count == 2**64:
            result = call.draw("philox64", uint64)
        elif count == 2**32:
            result = call.draw("philox32", uint32)
        else:
            name, out = ("bounded32", uint32) if count <= _NARROW else ("bounded64", uint64)
            result = call.draw(name, out, max(count, 1))
        if to != bool_:
            # The sum wraps around to what is meant, in any type that holds the result.
            wide = uint64 if to.itemsize == 8 else uint32
            result = cast_to(result, wide)
            result = cast_to(result + wide.type(low % 2 ** (8 * wide.itemsize)) if low else result, to)
        if not call.bare:
            return result
        return (dtype if dtype in (int, bool) else to.type)(result.item())

    def _integers_between(self, low: Any, high: Any, size: Any, to: np.dtype, endpoint: bool, device: Device) -> Array:
        plain = [x if isinstance(x, Array) else np.asarray(x) for x in (low, high)]
        shape = broadcast_shapes(*(x.shape for x in plain))
        if size is not None:
            if broadcast_shapes(shape_tuple(size), shape) != shape_tuple(size):
                raise ValueError("shape mismatch: objects cannot be broadcast to a single shape")
            shape = shape_tuple(size)
        if not any(isinstance(x, Array) for x in plain) and math.prod(shape):
            exact = [np.vectorize(int, otypes=[object])(x) for x in plain]
            _check_bounds(exact[0], exact[1] - (not endpoint), to, endpoint)
        ends = []
        for x in plain:
            if not isinstance(x, Array):
                # Beyond int64, as one past the largest of an unsigned type is, an end wraps around.
                x = np.vectorize(lambda v: int(v) % 2**64, otypes=[np.uint64])(x) if x.size else x
                x = asarray(x, device=device)
            ends.append(cast_to(cast_to(x, int64) if x.dtype.kind != "u" else x, uint64))
        first, last = ends
        call = Call(self._bit_generator, shape, False, float64, device)
        result = call.draw("bounded64", uint64, last - first + uint64.type(1) if endpoint else last - first) + first
        return result != 0 if to == bool_ else cast_to(result, to)

    def bytes(self, length: int) -> bytes:
        """Random bytes."""
        length = int(length)
        call = self._call((-(-max(length, 0) // 8),), float64, "cpu")
        return np.asarray(call.bits()).tobytes()[: max(length, 0)]

    # -- continuous distributions -------------------------------------------------------------------------------------
    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None, *, device: Any = None) -> Any:
        """Normal deviates of mean 0 and variance 1."""
        make = lambda size: self._call(size, dtype, device, name="standard_normal")
        return _into(out, size, dtype, make, lambda call: call.normal())

    def normal(
        self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Normal deviates of mean `loc` and standard deviation `scale`."""
        call, loc, scale = self._call(size, dtype, device, ("loc", loc, anything), ("scale", scale, non_negative))
        return call.result(loc + scale * call.normal())

    def lognormal(
        self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Exponentials of normal deviates."""
        call, mean, sigma = self._call(size, dtype, device, ("mean", mean, anything), ("sigma", sigma, non_negative))
        return call.result(exp(mean + sigma * call.normal()))

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None, *, device: Any = None
    ) -> Any:
        """Exponential deviates of mean 1; `method` has no effect."""
        make = lambda size: self._call(size, dtype, device, name="standard_exponential")
        return _into(out, size, dtype, make, lambda call: call.exponential())

    def exponential(self, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Exponential deviates of mean `scale`."""
        call, scale = self._call(size, dtype, device, ("scale", scale, non_negative))
        return call.result(scale * call.exponential())

    def laplace(
        self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Double exponential deviates."""
        call, loc, scale = self._call(size, dtype, device, ("loc", loc, anything), ("scale", scale, non_negative))
        t = call.tail()
        return call.result(loc + scale * copysign(log(2.0 * absolute(t)), t))

    def logistic(
        self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Logistic deviates."""
        call, loc, scale = self._call(size, dtype, device, ("loc", loc, anything), ("scale", scale, non_negative))
        t = call.tail()
        p = absolute(t)
        return call.result(loc + scale * copysign(log((1.0 - p) / p), t))

    def gumbel(
        self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Gumbel deviates: the limit of the largest of many."""
        call, loc, scale = self._call(size, dtype, device, ("loc", loc, anything), ("scale", scale, non_negative))
        return call.result(loc - scale * log(call.fine_exponential()))

    def standard_cauchy(self, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Cauchy deviates with mode 0."""
        call = self._call(size, dtype, device)
        return call.result(1.0 / tan(math.pi * call.tail()))

    def rayleigh(self, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Rayleigh deviates: the length of a vector of two normal deviates."""
        call, scale = self._call(size, dtype, device, ("scale", scale, non_negative))
        return call.result(scale * sqrt(2.0 * call.exponential()))

    def weibull(self, a: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Weibull deviates of shape `a`."""
        call, a = self._call(size, dtype, device, ("a", a, non_negative))
        return call.result(where(as_array(a) == 0, 0.0, call.exponential() ** (1.0 / as_array(a))))

    def pareto(self, a: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Pareto II (Lomax) deviates of shape `a`."""
        call, a = self._call(size, dtype, device, ("a", a, positive))
        return call.result(expm1(call.exponential() / a))

    def power(self, a: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Numbers in [0, 1] with density a x**(a - 1)."""
        call, a = self._call(size, dtype, device, ("a", a, positive))
        return call.result(exp(-(call.exponential() / a)))

    def triangular(
        self, left: Any, mode: Any, right: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Numbers in [left, right] with a density that rises linearly to `mode` and falls again."""
        ends = (("left", left, anything), ("mode", mode, anything), ("right", right, anything))
        call, left, mode, right = self._call(size, dtype, device, *ends)
        if not any(isinstance(x, Array) for x in (left, mode, right)):
            if left > mode:
                raise ValueError("left > mode")
            if mode > right:
                raise ValueError("mode > right")
            if left == right:
                raise ValueError("left == right")
        u = call.unit()
        base, rise, fall = right - left, mode - left, right - mode
        up, down = left + sqrt(u * base * rise), right - sqrt((1.0 - u) * base * fall)
        return call.result(where(u * base <= rise, up, down))

    def wald(self, mean: Any, scale: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Inverse Gaussian deviates."""
        call, mean, scale = self._call(size, dtype, device, ("mean", mean, positive), ("scale", scale, positive))
        y = call.normal()
        # The smaller root of a quadratic equation, written so that nothing cancels.
        y = mean * y * y / (2.0 * scale)
        x = mean / (1.0 + y + sqrt(y * (y + 2.0)))
        return call.result(where(call.unit() * (mean + x) <= mean, x, mean * (mean / x)))

    def vonmises(self, mu: Any, kappa: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Angles in [-pi, pi] around `mu` with concentration `kappa`."""
        call, mu, kappa = self._call(size, dtype, device, ("mu", mu, anything), ("kappa", kappa, non_negative))
        angle = mu + call.draw("vonmises", float64, kappa)
        return call.result(angle - 2.0 * math.pi * floor((angle + math.pi) / (2.0 * math.pi)))

    # -- gamma and its kin --------------------------------------------------------------------------------------------
    def standard_gamma(
        self, shape: Any, size: Any = None, dtype: Any = np.float64, out: Any = None, *, device: Any = None
    ) -> Any:
        """Gamma deviates of scale 1."""
        make = lambda size: self._call(size, dtype, device, ("shape", shape, non_negative), name="standard_gamma")
        return _into(out, size, dtype, make, lambda call, a: call.gamma(a))

    def gamma(
        self, shape: Any, scale: Any = 1.0, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Gamma deviates."""
        given = ("shape", shape, non_negative), ("scale", scale, non_negative)
        call, shape, scale = self._call(size, dtype, device, *given)
        return call.result(scale * call.gamma(shape))

    def chisquare(self, df: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Sums of squares of `df` normal deviates."""
        call, df = self._call(size, dtype, device, ("df", df, positive))
        return call.result(call.chisquare(df))

    def noncentral_chisquare(
        self, df: Any, nonc: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None
    ) -> Any:
        """Noncentral chi-square deviates."""
        call, df, nonc = self._call(size, dtype, device, ("df", df, positive), ("nonc", nonc, non_negative))
        return call.result(call.chisquare(df + 2.0 * call.poisson(nonc / 2.0)))

    def standard_t(self, df: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Student's t with `df` degrees of freedom."""
        call, df = self._call(size, dtype, device, ("df", df, positive))
        return call.result(call.normal() / sqrt(call.chisquare(df) / df))

    def f(self, dfnum: Any, dfden: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """F deviates: ratios of mean squares."""
        call, n, m = self._call(size, dtype, device, ("dfnum", dfnum, positive), ("dfden", dfden, positive))
        return call.result((call.chisquare(n) * m) / (call.chisquare(m) * n))

    def noncentral_f(
        self,
        dfnum: Any,
        dfden: Any,
        nonc: Any,
        size: Any = None,
        *,
        dtype: Any = np.float64,
        device: Any = None,
    ) -> Any:
        """Noncentral F deviates."""
        given = ("dfnum", dfnum, positive), ("dfden", dfden, positive), ("nonc", nonc, non_negative)
        call, n, m, nonc = self._call(size, dtype, device, *given)
        top = call.chisquare(n + 2.0 * call.poisson(nonc / 2.0))
        return call.result((top * m) / (call.chisquare(m) * n))

    def beta(self, a: Any, b: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Any:
        """Beta deviates."""
        call, a, b = self._call(size, dtype, device, ("a", a, positive), ("b", b, positive))
        # The ratio of logarithms, since gamma deviates of tiny shape underflow.
        x, y = (_log_gamma(call, p) for p in (a, b))
        top = maximum(x, y)
        x, y = exp(x - top), exp(y - top)
        return call.result(x / (x + y))

    def dirichlet(self, alpha: Any, size: Any = None, *, dtype: Any = np.float64, device: Any = None) -> Array:
        """Points of a simplex, along the last axis."""
        if np.ndim(alpha) != 1:
            raise ValueError("alpha must be a 1-d sequence" if np.ndim(alpha) else "object of too small depth")
        shape = (*(() if size is None else shape_tuple(size)), len(alpha))
        call, alpha = self._call(shape, dtype, device, ("alpha", alpha, non_negative))
        x = _log_gamma(call, alpha)
        x = exp(x - x.max(axis=-1, keepdims=True))
        return call.result(x / x.sum(axis=-1, keepdims=True))

    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Any = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        method: str = "svd",
        device: Any = None,
    ) -> Array:
        """Normal vectors, along the last axis; the covariance is factored on the host."""
        if method not in ("eigh", "svd", "cholesky"):
            raise ValueError("method must be one of {'eigh', 'svd', 'cholesky'}")
        if check_valid not in ("warn", "raise", "ignore"):
            raise ValueError("check_valid must equal 'warn', 'raise', or 'ignore'")
        place = target(device, (mean, cov))
        centre, cov = asarray(mean, float64, device=place), np.asarray(cov, np.float64)
        if centre.ndim != 1:
            raise ValueError("mean must be 1 dimensional")
        if cov.ndim != 2 or cov.shape[0] != cov.shape[1]:
            raise ValueError("cov must be 2 dimensional and square")
        if centre.shape[0] != cov.shape[0]:
            raise ValueError("mean and cov must have same length")
        factor = _factor(cov, method, check_valid, tol)
        given = () if size is None else shape_tuple(size)
        call = self._call((math.prod(given), len(cov)), float64, place)
        result = matmul(call.normal(), asarray(factor, device=place)) + centre
        return reshape(result, (*given, len(cov)))

    # -- counts -------------------------------------------------------------------------------------------------------
    def poisson(self, lam: Any = 1.0, size: Any = None, *, device: Any = None) -> Any:
        """Counts of independent events of which `lam` are expected."""
        call, lam = self._call(size, float64, device, ("lam", lam, poisson_rate))
        return call.result(call.poisson(lam), int64)

    def binomial(self, n: Any, p: Any, size: Any = None, *, device: Any = None) -> Any:
        """Successes in `n` trials, each of probability `p`."""
        call, n, p = self._call(size, float64, device, ("n", n, non_negative, True), ("p", p, probability))
        return call.result(_successes(call, n, p), int64)

    def geometric(self, p: Any, size: Any = None, *, device: Any = None) -> Any:
        """Trials up to the first success."""
        call, p = self._call(size, float64, device, ("p", p, positive_probability))
        return call.result(maximum(ceil(call.fine_exponential() / -log1p(-as_array(p))), 1.0), int64)

    def negative_binomial(self, n: Any, p: Any, size: Any = None, *, device: Any = None) -> Any:
        """Failures before `n` successes."""
        call, n, p = self._call(size, float64, device, ("n", n, positive), ("p", p, positive_probability))
        return call.result(call.poisson(call.gamma(n) * ((1.0 - p) / p)), int64)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None, *, device: Any = None) -> Any:
        """Good ones among `nsample` taken, without putting back, from `ngood` good and `nbad` bad ones."""
        given = ("ngood", ngood, below_billion, True), ("nbad", nbad, below_billion, True)
        given = *given, ("nsample", nsample, non_negative, True)
        call, good, bad, sample = self._call(size, float64, device, *given)
        if not any(isinstance(x, Array) for x in (ngood, nbad, nsample)) and np.any(
            np.add(ngood, nbad) < np.asarray(nsample)
        ):
            raise ValueError("ngood + nbad < nsample")
        return call.result(call.draw("hypergeometric", float64, good, bad, sample), int64)

    def zipf(self, a: Any, size: Any = None, *, device: Any = None) -> Any:
        """Counts with probabilities in proportion to k**-a; none is above 2**62."""
        call, a = self._call(size, float64, device, ("a", a, above_one))
        return call.result(call.draw("zipf", float64, a), int64)

    def logseries(self, p: Any, size: Any = None, *, device: Any = None) -> Any:
        """Counts with probabilities in proportion to p**k / k."""
        call, p = self._call(size, float64, device, ("p", p, below_one))
        # Kemp, "Efficient generation of logarithmically distributed pseudo-random variables" (1981).
        v = call.unit()
        q = -expm1(log1p(-as_array(p)) * (1.0 - call.unit()))
        many = maximum(floor(1.0 + log(v) / log(q)), 1.0)
        return call.result(where((v >= p) | (v >= q), 1.0, where(v <= q * q, many, 2.0)), int64)

    def multinomial(self, n: Any, pvals: Any, size: Any = None, *, device: Any = None) -> Array:
        """How many of `n` trials end in each of several ways, along the last axis."""
        p = np.asarray(pvals, np.float64)
        if not p.ndim:
            raise TypeError("pvals must be a 1-d sequence")
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError("pvals < 0, pvals > 1 or pvals contains NaNs")
        if np.any(p[..., :-1].sum(-1) > 1.0 + 1e-12):
            raise ValueError("sum(pvals[:-1]) > 1.0")
        trials = np.asarray(n, np.int64)
        shape = np.broadcast_shapes(trials.shape, p.shape[:-1])
        call, left = self._call(shape if size is None else size, float64, device, ("n", trials, non_negative, True))
        if broadcast_shapes(call.shape, shape) != call.shape:
            raise ValueError(f"Output size {call.shape} is not compatible with broadcast dimensions of inputs {shape}.")
        left = asarray(left, device=call.device)
        # Each way's share of the trials that the ways before it have left.
        rest = np.cumsum(p[..., ::-1], -1)[..., ::-1]
        share = np.divide(p, rest, out=np.zeros_like(p), where=rest > 0)
        counts = []
        for k in range(p.shape[-1]):
            last = k == p.shape[-1] - 1
            count = left if last else _successes(call, left, asarray(np.clip(share[..., k], 0, 1), device=call.device))
            counts.append(broadcast_to(count, call.shape))
            left = left - count
        return cast_to(stack(counts, axis=-1), int64) if counts else zeros((*call.shape, 0), int64)

    # -- picking and ordering -----------------------------------------------------------------------------------------
    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
        *,
        device: Any = None,
    ) -> Any:
        """Elements picked at random along an axis of an array, or from range(a)."""
        whole = np.ndim(a) == 0
        if whole and not isinstance(_item(a), int | np.integer):
            raise ValueError(f"a must be a sequence or an integer, not {type(a)}")
        items = None if whole else asarray(a, device=target(device, (a,)))
        n = int(_item(a)) if items is None else items.shape[axis]
        shape = () if size is None else shape_tuple(size)
        count = math.prod(shape)
        if n <= 0 and count:
            raise ValueError(
                "a must be a positive integer unless no samples are taken"
                if whole
                else "a cannot be empty unless no samples are taken"
            )
        weights = None if p is None else _weights(p, n)
        place = target(device, (a,))
        if replace:
            if weights is None:
                picked = self.integers(0, n, size=shape, device=place) if count else zeros(shape, int64, device=place)
            else:
                edges = np.cumsum(weights)
                # Of equal edges the last: what has no weight is not picked.
                u = self.random(shape, device=place)
                picked = searchsorted(asarray(edges / edges[-1], device=place), u, side="right")
        else:
            if count > n:
                raise ValueError("Cannot take a larger sample than population when replace is False")
            call = self._call((n,), float64, place)
            if weights is None:
                keys = call.bits()
            else:
                if np.count_nonzero(weights) < count:
                    raise ValueError("Fewer non-zero entries in p than size")
                with np.errstate(divide="ignore"):
                    # The first arrivals of processes with these rates.
                    keys = call.exponential() * asarray(1 / weights, device=place)
            picked = reshape(argsort(keys)[:count], shape)
        result = cast_to(picked, int64) if items is None else take(items, picked, axis=axis)
        if size is not None or result.ndim:
            return result
        return result.item() if whole else result.dtype.type(result.item())

    def permutation(self, x: Any, axis: int = 0, *, device: Any = None) -> Array:
        """The elements in random order along an axis; range(x) if x is an integer."""
        if isinstance(x, int | np.integer):
            return self._order(max(int(x), 0), target(device, ()))
        a = asarray(x, device=target(device, (x,)))
        return take(a, self._order(a.shape[axis_index(axis, a.ndim)], a.device), axis=axis)

    def _order(self, n: int, device: Device) -> Array:
        """0, 1, ... n - 1 in random order."""
        return argsort(self._call((n,), float64, device).bits())

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put an Array's, a NumPy array's or a list's elements in random order along an axis."""
        if isinstance(x, Array):
            x[...] = self.permutation(x, axis)
        elif isinstance(x, np.ndarray):
            order = np.asarray(self._order(x.shape[axis], Device("cpu")))
            x[...] = np.take(x, order, axis)
        else:
            if axis:
                raise NotImplementedError("Axis argument is only supported on ndarray objects")
            order = np.asarray(self._order(len(x), Device("cpu"))).tolist()
            x[:] = [x[i] for i in order]

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Array:
        """The elements in random order along an axis, each slice in its own; of the whole array if `axis` is None."""
        a = as_array(x)
        if not a.ndim:
            raise TypeError("len() of unsized object")
        if axis is None:
            flat = reshape(a, (-1,))
            result = reshape(take(flat, self._order(flat.shape[0], a.device)), a.shape)
        else:
            keys = self._call(a.shape, float64, a.device).bits()
            result = take_along_axis(a, argsort(keys, axis=axis), axis=axis)
        if out is None:
            return result
        out[...] = result
        return out


# -- helpers ----------------------------------------------------------------------------------------------------------
def _sized(size: Any) -> tuple[tuple[int, ...], bool]:
    return (() if size is None else shape_tuple(size)), size is None


def _item(a: Any) -> Any:
    return a.item() if isinstance(a, Array | np.ndarray) else a


def _into(out: Any, size: Any, dtype: Any, make: Any, draw: Any) -> Any:
    """What draw(*make(size)) gives, put into `out` if there is one."""
    if out is not None:
        if not isinstance(out, Array):
            raise TypeError("out must be an Array")
        if out.dtype != np.dtype(dtype):
            expected = np.dtype(dtype)
            raise TypeError(f"Supplied output array has the wrong type. Expected {expected}, got {out.dtype}")
        if size is not None and shape_tuple(size) != out.shape:
            raise ValueError("size must match out.shape when used together")
        size = out.shape
    made = make(size)
    call, *parameters = made if isinstance(made, tuple) else (made,)
    result = call.result(draw(call, *parameters))
    if out is None:
        return result
    out[...] = result
    return out


def _integer(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if not dtype.isnative:
        raise ValueError(
            "Providing a dtype with a non-native byteorder is not supported. If you require platform-independent "
            "byteorder, call byteswap when required."
        )
    if dtype.kind not in "iub":
        raise TypeError(f"Unsupported dtype {dtype!r} for integers")
    return canonical(dtype)


@cache
def _range(dtype: np.dtype) -> tuple[int, int]:
    return (0, 1) if dtype == bool_ else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _check_bounds(low: np.ndarray, last: np.ndarray, dtype: np.dtype, endpoint: bool) -> None:
    """`last` is the largest integer wanted; both hold Python integers."""
    least, most = _range(dtype)
    if np.any(low < least):
        raise ValueError(f"low is out of bounds for {dtype}")
    if np.any(last > most):
        raise ValueError(f"high is out of bounds for {dtype}")
    if np.any(low > last):
        zero = not np.any(low)
        sign = ("<" if zero else ">") + ("" if endpoint else "=")
        raise ValueError(f"high {sign} 0" if zero else f"low {sign} high")


def _log_gamma(call: Call, shape: Any) -> Array:
    """Logarithms of gamma deviates, which are finite even where the deviates are not above 0."""
    a = as_array(shape)
    small = a < 1
    boosted = log(call.draw("gamma", call.dtype, where(small, a + 1.0, a)))
    return cast_to(boosted - where(small, call.exponential() / a, 0.0), call.dtype)


def _successes(call: Call, n: Any, p: Any) -> Array:
    """Binomial counts, as floats: of whichever of success and failure is rarer."""
    if isinstance(p, Array):
        often = p > 0.5
        count = call.draw("binomial", float64, n, where(often, 1.0 - p, p))
        return where(often, n - count, count)
    return n - call.draw("binomial", float64, n, 1.0 - p) if p > 0.5 else call.draw("binomial", float64, n, p)


def _factor(cov: np.ndarray, method: str, check: str, tol: float) -> np.ndarray:
    """F with F.T @ F = cov."""
    if method == "cholesky":
        return np.linalg.cholesky(cov).T
    values, vectors = np.linalg.eigh(cov)
    valid = bool(np.all(values >= -tol * max(1.0, float(np.abs(values).max(initial=0.0)))))
    if check != "ignore" and not (valid and np.allclose(cov, cov.T, rtol=tol, atol=tol)):
        if check == "raise":
            raise ValueError("covariance is not symmetric positive-semidefinite.")
        warnings.warn("covariance is not symmetric positive-semidefinite.", RuntimeWarning, stacklevel=3)
    return (vectors * np.sqrt(np.maximum(values, 0))).T


def _weights(p: Any, n: int) -> np.ndarray:
    p = np.asarray(p, np.float64)
    if p.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if p.size != n:
        raise ValueError("a and p must have same size")
    if np.isnan(p).any():
        raise ValueError("Probabilities contain NaN")
    if (p < 0).any():
        raise ValueError("Probabilities are not non-negative")
    if abs(math.fsum(p) - 1) > 1.5e-8:
        raise ValueError("Probabilities do not sum to 1. See Notes section of docstring for more information.")
    return p


# -- a generator for all ----------------------------------------------------------------------------------------------
_shared = default_rng()


def seed(seed: Any = None) -> None:
    """Start the generator behind this module's functions anew."""
    _shared._bit_generator = Philox(seed)


def rand(*size: int) -> Any:
    """Uniform numbers in [0, 1), in an array with these extents."""
    return _shared.random(size or None)


def randn(*size: int) -> Any:
    """Normal deviates, in an array with these extents."""
    return _shared.standard_normal(size or None)


def randint(low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
    """Integers from `low` up to `high`, which is left out; from 0 to `low` if `high` is None."""
    return _shared.integers(low, high, size, dtype)


def random(size: Any = None) -> Any:
    """Uniform numbers in [0, 1)."""
    return _shared.random(size)


random_sample = random

uniform, normal, standard_normal = _shared.uniform, _shared.normal, _shared.standard_normal
exponential, gamma, beta, poisson, binomial = (
    _shared.exponential, _shared.gamma, _shared.beta, _shared.poisson, _shared.binomial
)  # fmt: skip
multivariate_normal = _shared.multivariate_normal
choice, permutation, shuffle = _shared.choice, _shared.permutation, _shared.shuffle
