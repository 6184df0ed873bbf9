"""Emitters of the random draws, whose values `compiler/draws.py` defines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..draws import (
    ATTEMPTS,
    FEW,
    HAT,
    MULTIPLIERS,
    NORMAL,
    ROUNDS,
    SMALLEST,
    STIRLING,
    TERMS,
    WEYL,
    ZIPF_MOST,
)
from .floats import Real, emits
from .integers import emitter
from .lanes import Lanes, branch
from .polynomials import flip, horner
from .text import Text, V, element, lanes, mangle, vector

EMITTERS: dict[str, Callable[..., Lanes]] = {}
_LOW = 0xFFFFFFFF


def draws(name: str) -> Callable[[Callable[..., Lanes]], Callable[..., Lanes]]:
    def register(function: Callable[..., Lanes]) -> Callable[..., Lanes]:
        EMITTERS[name] = function
        return function

    return register


#: Lanes of code that is called.
_CALLED = 8


def _apart(name: str, elem: str, body: Callable[..., Lanes], *args: Lanes) -> Lanes:
    """body(*args), elements of type `elem`, in a function of its own: for code that is long, or that rarely runs."""
    t = args[0].t
    width = min(lanes(args[0].v.ty), _CALLED)
    types = [vector(element(a.v.ty), width) for a in args]
    ty = vector(elem, width)
    symbol = f"{name}_{mangle(ty)}"
    if symbol not in t.declarations:
        inner = Text()
        result = body(*(Lanes(inner, V(f"%x{i}", x)) for i, x in enumerate(types)))
        inner.line(f"ret {result.v}")
        t.declarations.update(inner.declarations)
        head = ", ".join(f"{x} %x{i}" for i, x in enumerate(types))
        lines = (f"define internal {ty} @{symbol}({head}) noinline nounwind {{", "entry:", *inner.lines, "}")
        t.declarations[symbol] = "\n".join(lines)
    calls = zip(*(t.split(a.v, width) if width else [a.v] for a in args), strict=True)
    return Lanes(t, t.concat([t.op(f"call {ty} @{symbol}({', '.join(map(str, xs))})", ty) for xs in calls]))


# -- Philox -----------------------------------------------------------------------------------------------------------
def _low_word(x: Lanes) -> Lanes:
    """The low half of 64 bits: as i32 if scalar; lanes stay 64 bits wide, and of those only the low half counts."""
    return x if lanes(x.v.ty) else x.cast("trunc", "i32")


def _multiply(x: Lanes, factor: int) -> tuple[Lanes, Lanes]:
    """High and low word of a word times a constant."""
    product = (x & _LOW if lanes(x.v.ty) else x.cast("zext", "i64")) * factor
    return _low_word(product.shr(32)), _low_word(product)


def _block(block: Lanes, nonce: Lanes, key: Lanes) -> tuple[Lanes, Lanes]:
    """The words of blocks, two in each result."""
    a, b = _low_word(block), _low_word(block.shr(32))
    c, d = _low_word(nonce), _low_word(nonce.shr(32))
    k, l = _low_word(key), _low_word(key.shr(32))
    for round in range(ROUNDS):
        high, low = _multiply(a, MULTIPLIERS[0])
        other, b_next = _multiply(c, MULTIPLIERS[1])
        # Sums of constants and the key come first, so that they leave the loop.
        a, c = other ^ (b ^ (k + (round * WEYL[0] & _LOW))), high ^ (d ^ (l + (round * WEYL[1] & _LOW)))
        b, d = b_next, low
    return _pair(a, b), _pair(c, d)


def _pair(low: Lanes, high: Lanes) -> Lanes:
    if lanes(low.v.ty):
        return (low & _LOW) | (high << 32)
    return low.cast("zext", "i64") | (high.cast("zext", "i64") << 32)


def _in_order(index: Lanes, others: Sequence[Lanes], step: int) -> Lanes | None:
    """Whether the lanes are consecutive from a multiple of `step`, and the others uniform; None if they never are.

    A splat is seen to be uniform by LLVM's simplification.
    """
    t, n = index.t, lanes(index.v.ty)
    if n < 2 * step:
        return None
    first = t.extract(index.v, 0)
    ramp = V("<" + ", ".join(f"i64 {i}" for i in range(n)) + ">", index.v.ty)
    apart = index ^ Lanes(t, t.bin("add", t.splat(first, n), ramp))
    apart = apart | Lanes(t, t.splat(t.bin("and", first, V(str(step - 1), "i64")), n))
    for x in others:
        apart = apart | (x ^ Lanes(t, t.shuffle(x.v, V("poison", x.v.ty), [0] * n)))
    return apart != 0


def _words(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bits: int) -> Lanes:
    """`bits` random bits for each index.  Where the lanes are in order no block is computed twice."""
    t, n, elem = index.t, lanes(index.v.ty), f"i{bits}"
    step = 128 // bits
    apart = _in_order(index, (block, nonce, key), step)
    if apart is None:
        return _scattered_words(index, block, nonce, key, bits)
    m = n // step
    every = [lane * step for lane in range(m)]
    pick = lambda x: Lanes(t, t.shuffle(x.v, V("poison", x.v.ty), every))
    low, high = _block(pick(block + index.shr(step.bit_length() - 1)), pick(nonce), pick(key))
    woven = t.shuffle(low.v, high.v, [i // 2 + i % 2 * m for i in range(2 * m)])
    words = Lanes(t, t.op(f"bitcast {woven} to {vector(elem, n)}", vector(elem, n)))
    scattered = lambda index, block, nonce, key: _scattered_words(index, block, nonce, key, bits)
    return branch(apart, lambda: _apart("scattered", elem, scattered, index, block, nonce, key), words)


def _scattered_words(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bits: int) -> Lanes:
    low, high = _block(block + index.shr(1 if bits == 64 else 2), nonce, key)
    if bits == 64:
        return ((index & 1) != 0).where(high, low)
    both = ((index & 2) != 0).where(high, low)
    return ((index & 1) != 0).where(both.shr(32), both).cast("trunc", "i32")


@draws("philox32")
def _philox32(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes) -> Lanes:
    return _words(index, block, nonce, key, 32)


@draws("philox64")
def _philox64(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes) -> Lanes:
    return _words(index, block, nonce, key, 64)


# -- rejection --------------------------------------------------------------------------------------------------------
State = tuple[Lanes, ...]


def _repeat(active: Lanes, state: State, step: Callable[..., tuple[Lanes, State]]) -> State:
    """`state`, replaced by that of step(*state) in lanes that are active, until step says of none that it still is."""
    t = active.t
    origin, head, done = t.block, t.new_label("again"), t.new_label("join")
    t.br_if(t.any(active.v), head, done)
    t.label(head)
    top = len(t.lines)
    was, *old = (Lanes(t, V(t.fresh(), x.v.ty)) for x in (active, *state))
    going, made = step(*old)
    new = [was.where(x, y) for x, y in zip(made, old, strict=True)]
    going = was & going
    end = t.block
    edges = zip((was, *old), (active, *state), (going, *new), strict=True)
    t.lines[top:top] = [
        f"  {x.v.ref} = phi {x.v.ty} [{first.v.ref}, %{origin}], [{last.v.ref}, %{end}]" for x, first, last in edges
    ]
    t.br_if(t.any(going.v), head, done)
    t.label(done)
    return tuple([
        Lanes(t, t.phi(x.v.ty, (x.v, origin), (y.v, end))) for x, y in zip(state, new, strict=True)
    ])  # fmt: skip


def _until_accepted(
    value: Lanes, rejected: Lanes, nonce: Lanes, attempt: Callable[[Lanes], tuple[Lanes, Lanes]]
) -> Lanes:
    """`value`, and where it is rejected that of the next nonces: attempt(nonce) says whether to reject it too."""

    def step(value: Lanes, round: Lanes) -> tuple[Lanes, State]:
        again, still = attempt(nonce + round)
        return still & (round < ATTEMPTS - 1), (again, round + 1)

    return _repeat(rejected, (value, nonce.like(1)), step)[0]


@draws("bounded32")
def _bounded32(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bound: Lanes) -> Lanes:
    bound = bound & _LOW
    bound = (bound == 0).where(1 << 32, bound)

    def scaled(bits: Lanes, bound: Lanes) -> tuple[Lanes, Lanes]:
        product = bits.cast("zext", "i64") * bound
        return product.shr(32), product & _LOW

    def threshold(bound: Lanes) -> Lanes:
        return emitter("remainder", "u64")((1 << 32) - bound, bound)

    place = index, block, nonce, key
    return _bounded(scaled, threshold, _words(*place, 32), *place, bound).cast("trunc", "i32")


@draws("bounded64")
def _bounded64(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bound: Lanes) -> Lanes:
    def scaled(bits: Lanes, bound: Lanes) -> tuple[Lanes, Lanes]:
        return (bound == 0).where(bits, _multiply_high(bits, bound)), bits * bound

    def threshold(bound: Lanes) -> Lanes:
        divisor = (bound == 0).where(1, bound)
        return emitter("remainder", "u64")(-divisor, divisor)

    place = index, block, nonce, key
    return _bounded(scaled, threshold, _words(*place, 64), *place, bound)


def _bounded(
    scaled: Callable[[Lanes, Lanes], tuple[Lanes, Lanes]],
    threshold: Callable[[Lanes], Lanes],
    bits: Lanes,
    index: Lanes,
    block: Lanes,
    nonce: Lanes,
    key: Lanes,
    bound: Lanes,
) -> Lanes:
    """Lemire's test.  The threshold, which takes a division, is below the bound, and few low halves are."""
    value, low = scaled(bits, bound)

    def rare(value: Lanes, low: Lanes, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bound: Lanes) -> Lanes:
        least = threshold(bound)

        def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
            value, low = scaled(_scattered_words(index, block, nonce, key, bits.bits), bound)
            return value, low.below(least)

        return _until_accepted(value, low.below(least), nonce, attempt)

    args = value, low, index, block, nonce, key, bound
    return branch(low.below(bound), lambda: _apart(f"bounded{bits.bits}", "i64", rare, *args), value)


def _multiply_high(x: Lanes, y: Lanes) -> Lanes:
    """The upper 64 bits of a product of 64-bit integers."""
    if not lanes(x.v.ty):
        wide = x.cast("zext", "i128") * y.cast("zext", "i128")
        return wide.shr(64).cast("trunc", "i64")
    x0, x1, y0, y1 = x & _LOW, x.shr(32), y & _LOW, y.shr(32)
    middle = x1 * y0 + (x0 * y0).shr(32)
    other = x0 * y1 + (middle & _LOW)
    return x1 * y1 + middle.shr(32) + other.shr(32)


# -- bits as numbers --------------------------------------------------------------------------------------------------
def fraction(bits: Lanes, signed: bool) -> Lanes:
    size, elem = bits.bits, "float" if bits.bits == 32 else "double"
    if signed:
        return (_to_double(bits) if size == 64 else bits.cast("sitofp", elem)) * 2.0**-size + 2.0 ** (-size - 1)
    digits = 24 if size == 32 else 53
    return bits.shr(size - digits).cast("uitofp", elem) * 2.0**-digits


def _to_double(x: Lanes) -> Lanes:
    """sitofp, by halves: AVX2 converts no vectors of 64-bit integers."""
    if not lanes(x.v.ty):
        return x.cast("sitofp", "double")
    high = ((x.shr(32) ^ (1 << 31)) | (1023 + 84 << 52)).from_bits() - (2.0**84 + 2.0**63 + 2.0**52)
    return high + ((x & _LOW) | (1023 + 52 << 52)).from_bits()


#: `NORMAL` for float; below 2**-26.
_SINGLE_NORMAL = (
    (5.0, 2.5, 2.5, (
        2.12331343, 0.872005045, -0.0369232856, -0.027681604, 0.0120622134, -0.000686724961, -0.00119599979,
        0.000404075749, 5.03571173e-05, -4.81859242e-05,
    )),
    (7.0, 4.5, 2.3, (
        6.14440977, 3.28597558, 0.00244946984, -0.00741670107, 0.00586395779, -0.00354549768, 0.00219434068,
        -0.00289010431, 0.00263068321, 0.00137707303, 0.000122159177, -0.0094238251, 0.00763000107, 0.00441450286,
        -0.00553598325, -0.000352295809, 0.00105465628,
    )),
)  # fmt: skip


@emits("normal_tail")
def _normal_tail(m: Real, x: Lanes) -> Lanes:
    (limit, centre, scale, coefficients), *tails = _SINGLE_NORMAL if x.elem == "float" else NORMAL
    p = abs(x)
    p = (p < SMALLEST).where(SMALLEST, (p > 0.5).where(0.5, p))
    w = -m("log", (2 * p) * (2 - 2 * p))
    f = horner((w - centre) * (1 / scale), coefficients)
    far = w >= limit

    def tail(w: Lanes) -> Lanes:
        root = w.call("sqrt")
        values = [horner((root - centre) * (1 / scale), coefficients) for _, centre, scale, coefficients in tails]
        return values[0] if len(values) == 1 else (root < tails[0][0]).where(*values)

    f = branch(far, lambda: far.where(_apart("normal_tail", w.elem, tail, w), f), f)
    return flip((1 - 2 * p) * f, x.to_bits())


# -- distributions by rejection ---------------------------------------------------------------------------------------
#: Rows that take real numbers beside their place; their emitters' first argument is a Real.
OF_REALS: dict[str, Callable[..., Lanes]] = {}


def _of_reals(function: Callable[..., Lanes]) -> Callable[..., Lanes]:
    name = function.__name__

    def emit(m: Real, *args: Lanes) -> Lanes:
        return _apart(name, args[-1].elem, lambda *xs: function(m, *xs), *args)

    OF_REALS[name] = emit
    return function


def _two(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes) -> tuple[Lanes, Lanes]:
    """Two numbers between -1/2 and 1/2 from a block of each lane's own."""
    pairs = _block(block + index, nonce, key)
    first, second = (x.cast("trunc", "i32") if m.dtype == "f32" else x for x in pairs)
    return fraction(first, signed=True), fraction(second, signed=True)


@_of_reals
def gamma(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, shape: Lanes) -> Lanes:
    d = shape - 1 / 3
    c = (1 / 3) / d.call("sqrt")

    def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
        t, u = _two(m, index, block, nonce, key)
        x = m("normal_tail", t)
        v = 1 + c * x
        v = v * v * v
        bound = 0.5 * (x * x) + d * ((1 - v) + m("log", v))
        return d * v, (v <= 0) | (m("log", 2 * abs(u)) > bound)

    return _until_accepted(*attempt(nonce), nonce, attempt)


@_of_reals
def poisson(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, lam: Lanes) -> Lanes:
    place = index, block, nonce, key

    def small() -> Lanes:
        few = _at_most(lam, FEW)
        t, _ = _two(m, *place)
        return _invert(t + 0.5, m("exp", -few), lambda k: few / k, few.like(TERMS))

    def large() -> Lanes:
        many = _at_least(lam, FEW)
        b = 0.931 + 2.53 * many.call("sqrt")
        a = -0.059 + 0.02483 * b
        alpha, limit = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
        log = m("log", many)

        def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
            u, v = _two(m, index, block, nonce, key)
            near, v = 0.5 - abs(u), 2 * abs(v)
            k = ((2 * a / near + b) * u + many + 0.43).call("floor")
            density = (k * log - many) - _log_factorial(m, k)
            inside = (k >= 0) & (m("log", v * alpha / (a / (near * near) + b)) <= density)
            return k, ~(((near >= 0.07) & (v <= limit)) | inside)

        return _until_accepted(*attempt(nonce), nonce, attempt)

    zero = lam.like(0)
    few = lam < FEW
    return few.where(branch(few, small, zero), lam.isnan().where(lam, branch(lam >= FEW, large, zero)))


@_of_reals
def binomial(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, n: Lanes, p: Lanes) -> Lanes:
    mean, odds = n * p, p / (1 - p)
    rare = mean < FEW

    def small() -> Lanes:
        few = rare.where(n, 0)
        t, _ = _two(m, index, block, nonce, key)
        first = m("exp", few * m("log1p", -p))
        return _invert(t + 0.5, first, lambda k: ((few - k) + 1) / k * odds, _at_most(few, TERMS))

    def large() -> Lanes:
        many = _at_least(mean, FEW)
        deviation = (many * (1 - p)).call("sqrt")
        b = 1.15 + 2.53 * deviation
        a = (-0.0873 + 0.0248 * b) + 0.01 * p
        alpha, limit = (2.83 + 5.1 / b) * deviation, 0.92 - 4.2 / b
        mode = ((n + 1) * p).call("floor")
        top = _log_factorial(m, mode) + _log_factorial(m, n - mode)
        log = m("log", odds)

        def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
            u, v = _two(m, index, block, nonce, key)
            near, v = 0.5 - abs(u), 2 * abs(v)
            k = ((2 * a / near + b) * u + many + 0.5).call("floor")
            density = ((top - _log_factorial(m, k)) - _log_factorial(m, n - k)) + (k - mode) * log
            inside = (k >= 0) & (k <= n)
            inside = inside & (m("log", v * alpha / (a / (near * near) + b)) <= density)
            return k, ~(((near >= 0.07) & (v <= limit)) | inside)

        return _until_accepted(*attempt(nonce), nonce, attempt)

    zero = n.like(0)
    value = rare.where(branch(rare, small, zero), branch(mean >= FEW, large, zero))
    return ((n >= 0) & (p >= 0) & (p <= 1)).where(value, math.nan)


def _at_most(x: Lanes, limit: float) -> Lanes:
    return (x > limit).where(limit, x)


def _at_least(x: Lanes, limit: float) -> Lanes:
    return (x < limit).where(limit, x)


def _invert(u: Lanes, first: Lanes, ratio: Callable[[Lanes], Lanes], terms: Lanes) -> Lanes:
    going = lambda u, term, k: (u > term) & (k < terms)

    def step(u: Lanes, term: Lanes, k: Lanes) -> tuple[Lanes, State]:
        u, k = u - term, k + 1
        term = term * ratio(k)
        return going(u, term, k), (u, term, k)

    start = u, first, u.like(0)
    return _repeat(going(*start), start, step)[2]


def _log_factorial(m: Real, k: Lanes) -> Lanes:
    x = k + 1
    product = x
    for i in range(1, 8):
        product = product * (x + i)
    small = x < 8
    z = small.where(x + 8, x)
    series = horner(1 / (z * z), STIRLING) / z
    value = ((z - 0.5) * m("log", z) - z + 0.5 * math.log(2 * math.pi)) + series
    return value - m("log", small.where(product, 1))


@_of_reals
def vonmises(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, kappa: Lanes) -> Lanes:
    k = _at_most(_at_least(kappa, 1e-8), 1e15)
    r = 1 + (1 + 4 * k * k).call("sqrt")
    rho = 2 * k / (r + (2 * r).call("sqrt"))
    s = (1 - rho) * (1 - rho) / (2 * rho)

    def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
        t, v = _two(m, index, block, nonce, key)
        half = m("sin", math.pi * abs(t))
        z = 2 * half * half
        below = s * z / ((s + 2) - z)
        y = k * (s + below)
        angle = 2 * m("arcsin", _at_most((0.5 * below).call("sqrt"), 1.0))
        return angle.copysign(t), m("log", 2 * abs(v)) > (m("log", y) + 1) - y

    value = _until_accepted(*attempt(nonce), nonce, attempt)
    return kappa.isnan().where(kappa, value)


@_of_reals
def hypergeometric(
    m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, good: Lanes, bad: Lanes, sample: Lanes
) -> Lanes:
    less = lambda a, b: (a < b).where(a, b)
    total, least, most = good + bad, less(good, bad), (good < bad).where(bad, good)
    taken = less(sample, total - sample)
    share = least / _at_least(total, 1.0)
    centre = taken * share + 0.5
    spread = ((total - taken) * taken * share * (1 - share) / _at_least(total - 1, 1.0) + 0.5).call("sqrt")
    width = HAT[0] * spread + HAT[1]
    end = less(less(taken, least) + 1, (centre + 16 * spread).call("floor"))
    mode = ((taken + 1) * (least + 1) / (total + 2)).call("floor")

    def logs(k: Lanes) -> Lanes:
        first = _log_factorial(m, k) + _log_factorial(m, least - k) + _log_factorial(m, taken - k)
        return first + _log_factorial(m, (most - taken) + k)

    top = logs(mode)

    def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
        v, u = _two(m, index, block, nonce, key)
        u = 2 * abs(u)
        x = centre + width * v / u
        k = x.call("floor")
        return k, ~((x >= 0) & (x < end) & (2 * m("log", u) <= top - logs(k)))

    k = _until_accepted(*attempt(nonce), nonce, attempt)
    k = (good > bad).where(taken - k, k)
    return (taken < sample).where(good - k, k)


@_of_reals
def zipf(m: Real, index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, a: Lanes) -> Lanes:
    power = _at_most(a, 1000.0) - 1
    b = m("exp2", power)
    least = m("power", a.like(ZIPF_MOST), -power)

    def attempt(nonce: Lanes) -> tuple[Lanes, Lanes]:
        u, v = _two(m, index, block, nonce, key)
        x = m("power", 1 - 2 * abs(u) * (1 - least), -1 / power).call("floor")
        t = m("power", 1 + 1 / x, power)
        return x, ~((x <= ZIPF_MOST) & (2 * abs(v) * x * (t - 1) / (b - 1) <= t / b))

    return _until_accepted(*attempt(nonce), nonce, attempt)
