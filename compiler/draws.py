"""Random numbers as functions of a counter: what the op table's rows for them compute, in NumPy.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a counter of 128 bits and a
key of 64 into four words of 32 bits.  Element `index` of a draw takes the words, one after the other, of the blocks
whose counters are (block, nonce), (block + 1, nonce), ...; where an element needs more, it has the block to itself.
What has to be drawn again comes from the same place with the next nonce: it depends on nothing but the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
#: What the halves of the key grow by each round.
WEYL = (0x9E3779B9, 0xBB67AE85)

#: Elements that share a block.  Of other rows each has one of its own.
PER_BLOCK = {"philox32": 4, "bounded32": 4, "philox64": 2, "bounded64": 2}

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def _words(block: Any, nonce: Any, key: Any) -> list[Any]:
    """The four words of the blocks with counters (block, nonce), each in a u64."""
    a, b, c, d = block & _LOW, block >> _HALF, nonce & _LOW, nonce >> _HALF
    k, l = key & _LOW, key >> _HALF
    first, second = map(np.uint64, MULTIPLIERS)
    for _ in range(ROUNDS):
        p, q = a * first, c * second
        a, b, c, d = (q >> _HALF) ^ b ^ k, q & _LOW, (p >> _HALF) ^ d ^ l, p & _LOW
        k, l = (k + np.uint64(WEYL[0])) & _LOW, (l + np.uint64(WEYL[1])) & _LOW
    return [a, b, c, d]


def philox32(index: Any, block: Any, nonce: Any, key: Any) -> Any:
    words = np.stack(np.broadcast_arrays(*_words(block + (index >> np.uint64(2)), nonce, key)))
    which = (index & np.uint64(3)).astype(np.intp)
    return np.take_along_axis(words, np.broadcast_to(which, words.shape[1:])[None], 0)[0].astype(np.uint32)


def philox64(index: Any, block: Any, nonce: Any, key: Any) -> Any:
    a, b, c, d = _words(block + (index >> np.uint64(1)), nonce, key)
    return np.where(index & np.uint64(1), c | d << _HALF, a | b << _HALF)


def bounded32(index: Any, block: Any, nonce: Any, key: Any, bound: Any) -> Any:
    """Lemire's method: the high half of bits * bound, unless the low half is one of the few that would favour some."""
    bound = np.where(bound & _LOW, bound & _LOW, np.uint64(1 << 32))

    def attempt(round: int) -> tuple[Any, Any]:
        product = philox32(index, block, nonce + np.uint64(round), key).astype(np.uint64) * bound
        return product >> _HALF, (product & _LOW) < (np.uint64(1 << 32) - bound) % bound

    return _until_accepted(attempt).astype(np.uint32)


def bounded64(index: Any, block: Any, nonce: Any, key: Any, bound: Any) -> Any:
    """As bounded32; a bound of 0 stands for 2**64."""
    divisor = np.maximum(bound, np.uint64(1))

    def attempt(round: int) -> tuple[Any, Any]:
        bits = philox64(index, block, nonce + np.uint64(round), key)
        high = np.where(bound == 0, bits, _multiply_high(bits, bound))
        return high, bits * bound < (np.uint64(0) - divisor) % divisor

    return _until_accepted(attempt)


def _multiply_high(x: Any, y: Any) -> Any:
    """The upper 64 bits of a product of 64-bit integers."""
    x0, x1, y0, y1 = x & _LOW, x >> _HALF, y & _LOW, y >> _HALF
    middle = x1 * y0 + (x0 * y0 >> _HALF)
    other = x0 * y1 + (middle & _LOW)
    return x1 * y1 + (middle >> _HALF) + (other >> _HALF)


#: Attempts after which even what is rejected is taken: that is nothing but NaNs.
ATTEMPTS = 128


def _until_accepted(attempt: Callable[[int], tuple[Any, Any]]) -> Any:
    """attempt(0), and where that is rejected attempt(1), ..."""
    value, rejected = attempt(0)
    round = 1
    while np.any(rejected) and round < ATTEMPTS:
        again, still = attempt(round)
        value, rejected = np.where(rejected, again, value), rejected & still
        round += 1
    return value


def fraction(bits: Any) -> Any:
    """Of u32 and u64 the upper 24 or 53 bits; of i32 and i64 all, plus a half."""
    size = 8 * bits.dtype.itemsize
    kind = np.dtype(f"f{size // 8}").type
    if bits.dtype.kind == "u":
        digits = np.finfo(kind).nmant + 1
        return (bits >> bits.dtype.type(size - digits)).astype(kind) * kind(2.0**-digits)
    return (bits.astype(kind) + kind(0.5)) * kind(2.0**-size)


# -- the normal distribution ------------------------------------------------------------------------------------------
#: With p = abs(x), the deviate is (1 - 2p) f(w) for w = -log(4p (1 - p)).  f is a polynomial in (w - centre) / scale up
#: to a limit, beyond it one in (sqrt(w) - centre) / scale: (limit of w or sqrt(w), centre, scale, coefficients).
#: Chebyshev fits; relative errors below 2**-55.
NORMAL: tuple[tuple[float, float, float, tuple[float, ...]], ...] = (
    (6.25, 3.125, 3.125, (
        2.338620710026593, 1.061359245941059, -0.0833290935280014, -0.03196751615861868, 0.02518482680708091,
        -0.005851046104340685, -0.0017984444531890383, 0.0017429978066581878, -0.0003739091117086396,
        -0.0001653057827204374, 0.00013204143173591753, -2.125239188777203e-05, -1.5920253464105942e-05,
        1.0083423681947991e-05, -9.66924289235093e-07, -1.4981066943851908e-06, 7.628721421190684e-07,
        -1.4403973837907885e-08, -1.3955053752441625e-07, 5.5373151809586065e-08, 6.777434644395065e-09,
        -1.2109610633876688e-08, 2.178134777722013e-09, 1.087433035338688e-09, -3.822938035710585e-10,
    )),
    (4.0, 3.25, 0.75, (
        4.36127285516533, 1.0662381493576993, 0.004272536364741317, -0.0022380510716525103, 0.0011148356546431205,
        -0.0005665844381824574, 0.00023994257513799313, -6.702216493618877e-05, 3.4024066375840526e-06,
        7.2511209378179754e-06, -3.768587598954005e-06, 7.445299305579081e-07, 1.313710884445717e-07,
        -1.3391113049463104e-07, 3.733386958701893e-08, -5.219308887995631e-10, -3.47971364352338e-09,
        1.3988407088862193e-09, -1.6675002886994813e-10, -9.15216052142517e-11, 3.4443939869712965e-11,
    )),
    (7.0, 5.4, 1.4, (
        7.430267296410117, 1.9999028229913576, -0.0009281537971669458, -0.0004653322657443091,
        0.00024780223327186654, -8.746119245594373e-05, 2.6773348905164372e-05, -7.6078977671267285e-06,
        2.074206692695303e-06, -5.679652098799502e-07, 1.7646418550753134e-07, -7.634112113050353e-08,
        4.827822171637423e-08, -3.606717925898638e-08, 2.3706798184270072e-08, -1.1975502310036671e-08,
        6.694613751909555e-09, -4.552187051328303e-09, 1.1877456188615361e-09, 7.374577188528137e-10,
        -3.81851720612178e-10,
    )),
)  # fmt: skip
#: The smallest tail.
SMALLEST = 2.0**-65


def normal_tail(x: Any) -> Any:
    wide = x.astype(np.result_type(x, np.float64))
    p = np.clip(np.abs(wide), SMALLEST, 0.5)
    w = -np.log(2 * p * (2 - 2 * p))
    root = np.sqrt(w)
    pieces = [
        np.polynomial.polynomial.polyval((v - centre) / scale, coefficients)
        for v, (_, centre, scale, coefficients) in zip((w, root, root), NORMAL, strict=True)
    ]
    f = np.where(w < NORMAL[0][0], pieces[0], np.where(root < NORMAL[1][0], pieces[1], pieces[2]))
    return (np.copysign(1, wide) * (1 - 2 * p) * f).astype(x.dtype)


# -- distributions by rejection ---------------------------------------------------------------------------------------
def _two(index: Any, block: Any, nonce: Any, key: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """Two numbers between -1/2 and 1/2 from a block of each element's own."""
    a, b, c, d = _words(block + index, nonce, key)
    if dtype == np.float32:
        return tuple(fraction(x.astype(np.uint32).view(np.int32)) for x in (a, c))
    return tuple(fraction((x | y << _HALF).view(np.int64)) for x, y in ((a, b), (c, d)))


def gamma(index: Any, block: Any, nonce: Any, key: Any, shape: Any) -> Any:
    """Of shape 1/3 or more: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000)."""
    kind = shape.dtype.type
    d = shape - kind(1 / 3)
    c = kind(1 / 3) / np.sqrt(d)

    def attempt(round: int) -> tuple[Any, Any]:
        t, u = _two(index, block, nonce + np.uint64(round), key, shape.dtype)
        x = normal_tail(t)
        v = kind(1) + c * x
        v = v * v * v
        bound = kind(0.5) * (x * x) + d * (kind(1) - v + np.log(v))
        return d * v, (v <= 0) | (np.log(kind(2) * np.abs(u)) > bound)

    return _until_accepted(attempt)


#: Means below this are inverted term by term.
FEW = 10.0
#: Terms after which inversion ends: all that is left is rounding.
TERMS = 128


def poisson(index: Any, block: Any, nonce: Any, key: Any, lam: Any) -> Any:
    """Above FEW by Hormann, "The transformed rejection method for generating Poisson random variables" (1993)."""
    few = np.minimum(lam, FEW)
    t, _ = _two(index, block, nonce, key, lam.dtype)
    small = _invert(t + 0.5, np.exp(-few), lambda k: few / k, TERMS)
    many = np.maximum(lam, FEW)
    b = 0.931 + 2.53 * np.sqrt(many)
    a = -0.059 + 0.02483 * b
    alpha, limit = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def attempt(round: int) -> tuple[Any, Any]:
        u, v = _two(index, block, nonce + np.uint64(round), key, lam.dtype)
        near, v = 0.5 - np.abs(u), 2 * np.abs(v)
        k = np.floor((2 * a / near + b) * u + many + 0.43)
        density = k * np.log(many) - many - log_factorial(k)
        inside = (k >= 0) & (np.log(v * alpha / (a / (near * near) + b)) <= density)
        return k, ~(((near >= 0.07) & (v <= limit)) | inside)

    return np.where(lam < FEW, small, np.where(np.isnan(lam), lam, _until_accepted(attempt)))


def binomial(index: Any, block: Any, nonce: Any, key: Any, n: Any, p: Any) -> Any:
    """For p up to 1/2; means above FEW by Hormann, "The generation of binomial random variates" (1993)."""
    mean, odds = n * p, p / (1 - p)
    t, _ = _two(index, block, nonce, key, n.dtype)
    few = np.where(mean < FEW, n, 0)
    small = _invert(t + 0.5, np.exp(few * np.log1p(-p)), lambda k: (few - k + 1) / k * odds, np.minimum(few, TERMS))
    many = np.maximum(mean, FEW)
    deviation = np.sqrt(many * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha, limit = (2.83 + 5.1 / b) * deviation, 0.92 - 4.2 / b
    mode = np.floor((n + 1) * p)
    top = log_factorial(mode) + log_factorial(n - mode)

    def attempt(round: int) -> tuple[Any, Any]:
        u, v = _two(index, block, nonce + np.uint64(round), key, n.dtype)
        near, v = 0.5 - np.abs(u), 2 * np.abs(v)
        k = np.floor((2 * a / near + b) * u + many + 0.5)
        inside = (k >= 0) & (k <= n)
        density = top - log_factorial(k) - log_factorial(n - k) + (k - mode) * np.log(odds)
        inside &= np.log(v * alpha / (a / (near * near) + b)) <= density
        return k, ~(((near >= 0.07) & (v <= limit)) | inside)

    valid = (n >= 0) & (p >= 0) & (p <= 1)
    return np.where(valid, np.where(mean < FEW, small, _until_accepted(attempt)), np.nan)


def _invert(u: Any, first: Any, ratio: Callable[[Any], Any], terms: Any) -> Any:
    """The first k at which the sum of the probabilities up to it, first * ratio(1) * ... * ratio(k), is not below u."""
    k, term = np.zeros_like(u), first
    active = (u > term) & (k < terms)
    while np.any(active):
        u, k = np.where(active, u - term, u), np.where(active, k + 1, k)
        term = np.where(active, term * ratio(np.maximum(k, 1)), term)
        active &= (u > term) & (k < terms)
    return k


#: Stirling's series.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def log_factorial(k: Any) -> Any:
    """log(k!) for k from 0 up."""
    x = k + 1
    product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7)
    small = x < 8
    z = np.where(small, x + 8, x)
    series = np.polynomial.polynomial.polyval(1 / (z * z), STIRLING) / z
    value = (z - 0.5) * np.log(z) - z + 0.5 * np.log(2 * np.pi) + series
    return value - np.where(small, np.log(np.where(small, product, 1)), 0)


def vonmises(index: Any, block: Any, nonce: Any, key: Any, kappa: Any) -> Any:
    """Around 0: Best and Fisher, "Efficient simulation of the von Mises distribution" (1979)."""
    k = np.clip(kappa, 1e-8, 1e15)
    r = 1 + np.sqrt(1 + 4 * k * k)
    rho = 2 * k / (r + np.sqrt(2 * r))
    s = (1 - rho) * (1 - rho) / (2 * rho)

    def attempt(round: int) -> tuple[Any, Any]:
        t, v = _two(index, block, nonce + np.uint64(round), key, kappa.dtype)
        # With 1 - cos in place of cosines nothing cancels where kappa is large.
        half = np.sin(np.pi * np.abs(t))
        z = 2 * half * half
        below = s * z / (s + 2 - z)
        y = k * (s + below)
        angle = 2 * np.arcsin(np.minimum(np.sqrt(0.5 * below), 1))
        return np.copysign(angle, t), np.log(2 * np.abs(v)) > np.log(y) + 1 - y

    return np.where(np.isnan(kappa), kappa, _until_accepted(attempt))


def hypergeometric(index: Any, block: Any, nonce: Any, key: Any, good: Any, bad: Any, sample: Any) -> Any:
    """By Stadlober, "The ratio of uniforms approach for generating discrete random variates" (1990)."""
    total, least, most = good + bad, np.minimum(good, bad), np.maximum(good, bad)
    taken = np.minimum(sample, total - sample)
    share = least / np.maximum(total, 1)
    centre = taken * share + 0.5
    spread = np.sqrt((total - taken) * taken * share * (1 - share) / np.maximum(total - 1, 1) + 0.5)
    width = HAT[0] * spread + HAT[1]
    end = np.minimum(np.minimum(taken, least) + 1, np.floor(centre + 16 * spread))
    mode = np.floor((taken + 1) * (least + 1) / (total + 2))

    def logs(k: Any) -> Any:
        return log_factorial(k) + log_factorial(least - k) + log_factorial(taken - k) + log_factorial(most - taken + k)

    top = logs(mode)

    def attempt(round: int) -> tuple[Any, Any]:
        v, u = _two(index, block, nonce + np.uint64(round), key, good.dtype)
        u = 2 * np.abs(u)
        x = centre + width * v / u
        k = np.floor(x)
        return k, ~((x >= 0) & (x < end) & (2 * np.log(u) <= top - logs(k)))

    k = _until_accepted(attempt)
    k = np.where(good > bad, taken - k, k)
    return np.where(taken < sample, good - k, k)


#: Constants of the hat: 2 sqrt(2 / e) and 3 - 2 sqrt(3 / e).
HAT = (1.7155277699214135, 0.8989161620588988)
#: The largest number that zipf gives.
ZIPF_MOST = 2.0**62


def zipf(index: Any, block: Any, nonce: Any, key: Any, a: Any) -> Any:
    """By Devroye, "Non-uniform random variate generation" (1986), X.6.1."""
    power = np.minimum(a, 1000) - 1
    b = np.power(2, power)
    least = np.power(ZIPF_MOST, -power)

    def attempt(round: int) -> tuple[Any, Any]:
        u, v = _two(index, block, nonce + np.uint64(round), key, a.dtype)
        x = np.floor(np.power(1 - 2 * np.abs(u) * (1 - least), -1 / power))
        t = np.power(1 + 1 / x, power)
        return x, ~((x <= ZIPF_MOST) & (2 * np.abs(v) * x * (t - 1) / (b - 1) <= t / b))

    return _until_accepted(attempt)
