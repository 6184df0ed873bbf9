"""Emitters of the random draws, whose values `compiler/draws.py` defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..draws import MULTIPLIERS, NORMAL, ROUNDS, SMALLEST, WEYL
from .floats import Real, emits
from .integers import emitter
from .lanes import Lanes, branch
from .polynomials import _flip as flip
from .polynomials import _horner as horner
from .text import V, lanes, vector

EMITTERS: dict[str, Callable[..., Lanes]] = {}
_LOW = 0xFFFFFFFF


def draws(name: str) -> Callable[[Callable[..., Lanes]], Callable[..., Lanes]]:
    def register(function: Callable[..., Lanes]) -> Callable[..., Lanes]:
        EMITTERS[name] = function
        return function

    return register


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
    scattered = lambda: _scattered_words(index, block, nonce, key, bits)
    apart = _in_order(index, (block, nonce, key), step)
    if apart is None:
        return scattered()
    m = n // step
    every = [lane * step for lane in range(m)]
    pick = lambda x: Lanes(t, t.shuffle(x.v, V("poison", x.v.ty), every))
    low, high = _block(pick(block + index.shr(step.bit_length() - 1)), pick(nonce), pick(key))
    woven = t.shuffle(low.v, high.v, [i // 2 + i % 2 * m for i in range(2 * m)])
    return branch(apart, scattered, Lanes(t, t.op(f"bitcast {woven} to {vector(elem, n)}", vector(elem, n))))


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
def _until_accepted(value: Lanes, rejected: Lanes, again: Callable[[Lanes], tuple[Lanes, Lanes]]) -> Lanes:
    """`value`, and where it is rejected that of again(1), again(2), ...; these say whether to reject theirs."""
    t, ty = value.t, value.v.ty
    origin, head, done = t.block, t.new_label("again"), t.new_label("join")
    t.br_if(t.any(rejected.v), head, done)
    t.label(head)
    top = len(t.lines)
    round, old, open_ = (Lanes(t, V(t.fresh(), kind)) for kind in ("i64", ty, rejected.v.ty))
    new, still = again(round)
    result, left, following = open_.where(new, old), open_ & still, round + 1
    end = t.block
    edges = ((round, round.like(1), following), (old, value, result), (open_, rejected, left))
    t.lines[top:top] = [
        f"  {x.v.ref} = phi {x.v.ty} [{start.v.ref}, %{origin}], [{last.v.ref}, %{end}]" for x, start, last in edges
    ]
    t.br_if(t.any(left.v), head, done)
    t.label(done)
    return Lanes(t, t.phi(ty, (value.v, origin), (result.v, end)))


def _later(nonce: Lanes, round: Lanes) -> Lanes:
    return nonce + Lanes(nonce.t, nonce.t.splat(round.v, lanes(nonce.v.ty)))


@draws("bounded32")
def _bounded32(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bound: Lanes) -> Lanes:
    bound = bound & _LOW
    bound = (bound == 0).where(1 << 32, bound)
    threshold = lambda: emitter("remainder", "u64")((1 << 32) - bound, bound)

    def scaled(bits: Lanes) -> tuple[Lanes, Lanes]:
        product = bits.cast("zext", "i64") * bound
        return product.shr(32), product & _LOW

    value, low = scaled(_words(index, block, nonce, key, 32))

    def again(round: Lanes) -> tuple[Lanes, Lanes]:
        high, low = scaled(_scattered_words(index, block, _later(nonce, round), key, 32))
        return high, low.below(threshold())

    return _reject(value, low, bound, threshold, again).cast("trunc", "i32")


@draws("bounded64")
def _bounded64(index: Lanes, block: Lanes, nonce: Lanes, key: Lanes, bound: Lanes) -> Lanes:
    divisor = (bound == 0).where(1, bound)
    threshold = lambda: emitter("remainder", "u64")(-divisor, divisor)

    def scaled(bits: Lanes) -> tuple[Lanes, Lanes]:
        return (bound == 0).where(bits, _multiply_high(bits, bound)), bits * bound

    value, low = scaled(_words(index, block, nonce, key, 64))

    def again(round: Lanes) -> tuple[Lanes, Lanes]:
        high, low = scaled(_scattered_words(index, block, _later(nonce, round), key, 64))
        return high, low.below(threshold())

    return _reject(value, low, bound, threshold, again)


def _reject(
    value: Lanes,
    low: Lanes,
    bound: Lanes,
    threshold: Callable[[], Lanes],
    again: Callable[[Lanes], tuple[Lanes, Lanes]],
) -> Lanes:
    """Lemire's test: the threshold, which takes a division, is below the bound."""
    return branch(low.below(bound), lambda: _until_accepted(value, low.below(threshold()), again), value)


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

    def tail() -> Lanes:
        root = w.call("sqrt")
        values = [horner((root - centre) * (1 / scale), coefficients) for _, centre, scale, coefficients in tails]
        value = values[0] if len(values) == 1 else (root < tails[0][0]).where(*values)
        return far.where(value, f)

    return flip((1 - 2 * p) * branch(far, tail, f), x.to_bits())
