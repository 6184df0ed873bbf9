"""Emitters of the elementwise ops on bools and integers.

Nothing traps: a divisor of 0 gives 0, and the lowest integer divided by -1 is itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import dtypes
from .lanes import Lanes, branch
from .text import V, lanes

Emitter = Callable[..., Lanes]


def literal_value(x: Lanes) -> int | None:
    """The value of an integer constant or splat of one, if x is that."""
    match = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", x.v.ref)
    return int(match[1]) if match else None


# -- division ---------------------------------------------------------------------------------------------------------
#: Adding this to a double in (-2**51, 2**51) leaves its integer part in the low bits.
_MAGIC = 6755399441055744.0
_MAGIC_BITS = 0x4338000000000000


def _quotient(a: Lanes, b: Lanes, signed: bool) -> Lanes:
    """a / b truncated; b is not 0, nor (if signed) -1."""
    if not lanes(a.v.ty):
        return _divide(a, b, signed)
    if a.bits == 64:
        half = 1 << 51
        offset = half if signed else 0
        big = ~((a + offset).below(half + offset) & (b + offset).below(half + offset))
        to_double = lambda x: (x + _MAGIC_BITS).from_bits() - _MAGIC
        fast = ((to_double(a) / to_double(b)).call("trunc") + _MAGIC).to_bits() - _MAGIC_BITS
        return branch(big, lambda: _divide(a, b, signed), fast)
    # The quotient of 32-bit integers in f64, or of 16-bit ones in f32, is never rounded up to an integer.
    opcode = "sitofp" if signed else "uitofp"
    if a.bits == 32:
        q = (a.cast(opcode, "double") / b.cast(opcode, "double")).call("trunc")
        return q.cast("fptosi", "i32") if signed else (q + _MAGIC).to_bits().cast("trunc", "i32")
    q = a.cast(opcode, "float") / b.cast(opcode, "float")
    return q.cast("fptosi", "i32").cast("trunc", a.elem)


def _divide(a: Lanes, b: Lanes, signed: bool) -> Lanes:
    return Lanes(a.t, a.t.bin("sdiv" if signed else "udiv", a.v, b.v))


def _truncating(a: Lanes, b: Lanes, signed: bool) -> tuple[Lanes, Lanes]:
    """Quotient and remainder of truncating division."""
    known = literal_value(b)
    if known == 0:
        return a.like(0), a.like(0)
    if known is not None and not (signed and known == -1):
        q = _divide(a, b, signed)
        return q, a - q * b
    zero = b == 0
    odd = zero | (b == -1) if signed else zero
    q = _quotient(a, odd.where(1, b), signed)
    r = odd.where(0, a - q * b)
    if signed:
        q = (b == -1).where(-a, q)
    return zero.where(0, q), r


def _power_of_two(b: Lanes) -> int | None:
    known = literal_value(b)
    return known.bit_length() - 1 if known is not None and known > 0 and known & (known - 1) == 0 else None


def _floor_divide(signed: bool) -> Emitter:
    def emit(a: Lanes, b: Lanes) -> Lanes:
        shift = _power_of_two(b)
        if shift is not None:
            return a >> shift if signed else a.shr(shift)
        q, r = _truncating(a, b, signed)
        return ((r != 0) & ((r ^ b) < 0)).where(q - 1, q) if signed else q

    return emit


def _remainder(signed: bool) -> Emitter:
    def emit(a: Lanes, b: Lanes) -> Lanes:
        shift = _power_of_two(b)
        if shift is not None:
            return a & ((1 << shift) - 1)
        r = _truncating(a, b, signed)[1]
        return ((r != 0) & ((r ^ b) < 0)).where(r + b, r) if signed else r

    return emit


def _high(a: Lanes, b: Lanes) -> Lanes:
    """The upper half of an unsigned product."""
    wide = f"i{2 * a.bits}"
    return (a.cast("zext", wide) * b.cast("zext", wide)).shr(a.bits).cast("trunc", a.elem)


# -- powers and shifts ------------------------------------------------------------------------------------------------
def _power(signed: bool) -> Emitter:
    def emit(base: Lanes, exponent: Lanes) -> Lanes:
        known = literal_value(exponent)
        if known is not None and 0 <= known <= 64:
            return _known_power(base, known)
        if not signed:
            return _power_loop(base, exponent)
        negative = exponent < 0
        power = _power_loop(base, negative.where(0, exponent))
        sign = 1 - ((exponent & 1) << 1)
        reciprocal = (base == 1).where(1, (base == -1).where(sign, 0))
        return negative.where(reciprocal, power)

    return emit


def _known_power(base: Lanes, n: int) -> Lanes:
    result: Lanes | None = None
    while n:
        if n & 1:
            result = base if result is None else result * base
        base, n = base * base, n >> 1
    return base.like(1) if result is None else result


def _power_loop(base: Lanes, exponent: Lanes) -> Lanes:
    """By repeated squaring, for exponents from 0 up."""
    t, ty = base.t, base.v.ty
    origin, head, done = t.block, t.new_label("power"), t.new_label("join")
    t.br(head)
    t.label(head)
    top = len(t.lines)
    result, square, left = (Lanes(t, V(t.fresh(), ty)) for _ in range(3))
    product = ((left & 1) != 0).where(result * square, result)
    squared, rest = square * square, left.shr(1)
    starts, ends = (base.like(1), base, exponent), (product, squared, rest)
    t.lines[top:top] = [
        f"  {x.v.ref} = phi {ty} [{start.v.ref}, %{origin}], [{end.v.ref}, %{head}]"
        for x, start, end in zip((result, square, left), starts, ends, strict=True)
    ]
    t.br_if(t.any((rest != 0).v), head, done)
    t.label(done)
    return product


def _left_shift(a: Lanes, n: Lanes) -> Lanes:
    # A GPU's back end takes a shift by more bits as one that gives 0, but looks at the count's low half only.
    return n.below(a.bits).where(a << (n & a.bits - 1), 0)


def _right_shift(signed: bool) -> Emitter:
    def emit(a: Lanes, n: Lanes) -> Lanes:
        if signed:
            return a >> n.below(a.bits).where(n, a.bits - 1)
        return n.below(a.bits).where(a.shr(n & a.bits - 1), 0)

    return emit


# -- the tables -------------------------------------------------------------------------------------------------------
def _compare(predicate: str, signed: bool) -> Emitter:
    return lambda a, b: Lanes(
        a.t, a.t.cmp(predicate if predicate in ("eq", "ne") else "us"[signed] + predicate, a.v, b.v)
    )


def _table(signed: bool) -> dict[str, Emitter]:
    identity: Emitter = lambda a: a
    low, high = ("smin", "smax") if signed else ("umin", "umax")
    table: dict[str, Emitter] = {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "floor_divide": _floor_divide(signed),
        "remainder": _remainder(signed),
        "fmod": lambda a, b: _truncating(a, b, signed)[1],
        "trunc_divide": lambda a, b: _truncating(a, b, signed)[0],
        "umulhi": lambda a, b: _high(a, b),
        "power": _power(signed),
        "negative": lambda a: -a,
        "absolute": (lambda a: abs(a)) if signed else identity,
        "square": lambda a: a * a,
        "reciprocal": lambda a: ((abs(a) if signed else a) == 1).where(a, 0),
        "bitwise_and": lambda a, b: a & b,
        "bitwise_or": lambda a, b: a | b,
        "bitwise_xor": lambda a, b: a ^ b,
        "invert": lambda a: ~a,
        "left_shift": _left_shift,
        "right_shift": _right_shift(signed),
        "bitwise_count": lambda a: _resize((abs(a) if signed else a).call("ctpop"), "i8"),
        "maximum": lambda a, b: a.call(high, b),
        "minimum": lambda a, b: a.call(low, b),
        "isnan": lambda a: (a == 0).like(False),
        "isinf": lambda a: (a == 0).like(False),
        "isfinite": lambda a: (a == 0).like(True),
        "imag": lambda a: a.like(0),
        "sign": (lambda a: (a > 0).where(1, a >> (a.bits - 1))) if signed else lambda a: (a != 0).where(a.like(1), 0),
        "equal": _compare("eq", signed),
        "not_equal": _compare("ne", signed),
        "less": _compare("lt", signed),
        "less_equal": _compare("le", signed),
        "greater": _compare("gt", signed),
        "greater_equal": _compare("ge", signed),
    }
    table["clip"] = lambda a, lowest, highest: a.call(high, lowest).call(low, highest)
    table["fmax"], table["fmin"] = table["maximum"], table["minimum"]
    for name in ("positive", "conjugate", "floor", "ceil", "trunc", "real"):
        table[name] = identity
    return table


def _resize(x: Lanes, elem: str) -> Lanes:
    return x.cast("trunc", elem) if x.elem != elem else x


def _bool_table() -> dict[str, Emitter]:
    identity: Emitter = lambda a: a
    table: dict[str, Emitter] = {
        "equal": lambda a, b: ~(a ^ b),
        "not_equal": lambda a, b: a ^ b,
        "less": lambda a, b: ~a & b,
        "less_equal": lambda a, b: ~a | b,
        "greater": lambda a, b: a & ~b,
        "greater_equal": lambda a, b: a | ~b,
        "bitwise_count": lambda a: a.cast("zext", "i8"),
        "imag": lambda a: a.like(False),
        "isnan": lambda a: a.like(False),
        "isinf": lambda a: a.like(False),
        "isfinite": lambda a: a.like(True),
    }
    for name in ("add", "logical_or", "bitwise_or", "maximum", "fmax"):
        table[name] = lambda a, b: a | b
    for name in ("multiply", "logical_and", "bitwise_and", "minimum", "fmin"):
        table[name] = lambda a, b: a & b
    for name in ("logical_xor", "bitwise_xor"):
        table[name] = table["not_equal"]
    for name in ("invert", "logical_not"):
        table[name] = lambda a: ~a
    for name in ("absolute", "positive", "conjugate", "floor", "ceil", "trunc", "real"):
        table[name] = identity
    return table


_SIGNED, _UNSIGNED, _BOOL = _table(True), _table(False), _bool_table()


def emitter(name: str, dtype: str) -> Emitter:
    """The emitter of an op on bools or integers."""
    return (_BOOL if dtype == "bool" else _SIGNED if dtype in dtypes.SIGNED else _UNSIGNED)[name]


def compare_mixed(name: str, a: Lanes, b: Lanes, signed_first: bool) -> Lanes:
    """A comparison of an i64 with a u64, by value."""
    if not signed_first:
        mirrored = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
        return compare_mixed(mirrored.get(name, name), b, a, True)
    negative, same = a < 0, _UNSIGNED[name](a, b)
    return negative | same if name in ("less", "less_equal", "not_equal") else ~negative & same
