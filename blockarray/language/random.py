"""Random numbers as functions of a seed and an offset: Philox4x32-10, or 4x64 for offsets of 64-bit words."""

from __future__ import annotations

from typing import Any

from ..compiler.draws import MULTIPLIERS, ROUNDS, WEYL
from .elementwise import cos, log, maximum, sin, sqrt, static_int, umulhi, where
from .errors import CompilationError
from .types import int32, int64, uint32, uint64
from .values import Tensor, add, convert, member, mul, tensor

#: (multipliers, what the key grows by) for words of 32 and of 64 bits.
_CONSTANTS = {
    32: (MULTIPLIERS, WEYL),
    64: ((0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)),
}
#: Rounds of the generator, unless a call asks for others.
N_ROUNDS_DEFAULT = ROUNDS


def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """The four words that a counter of four words and a key of two become."""
    type = c0.dtype
    (first, second), (grow0, grow1) = _CONSTANTS[type.primitive_bitwidth]
    for _ in range(static_int(n_rounds, "n_rounds")):
        high0, low0 = umulhi(tensor(second, type), c2), mul(c2, second, False)
        high1, low1 = umulhi(tensor(first, type), c0), mul(c0, first, False)
        c0, c1, c2, c3 = high0 ^ c1 ^ k0, low0, high1 ^ c3 ^ k1, low1
        k0, k1 = add(k0, tensor(grow0, type), False), add(k1, tensor(grow1, type), False)
    return c0, c1, c2, c3


def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """As `philox_impl`, with the key of a seed of 64 bits."""
    seed = tensor(seed)
    if not seed.dtype.is_int():
        raise CompilationError(f"a seed is an integer, not {seed.type}")
    seed = convert(seed, uint64)
    words = [tensor(c) for c in (c0, c1, c2, c3)]
    if words[0].dtype.primitive_bitwidth == 32:
        type, key = uint32, (convert(seed, uint32), convert(seed >> 32, uint32))
    elif words[0].dtype.primitive_bitwidth == 64:
        type, key = uint64, (seed, tensor(0, uint64))
    else:
        raise CompilationError(f"philox takes counters of 32 or 64 bits, not {words[0].dtype}")
    c0, c1, c2, c3 = [convert(w, type) for w in words]
    return philox_impl(c0, c1, c2, c3, *key, n_rounds=n_rounds)


def randint4x(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of random uint32, of a seed and a block of offsets."""
    offset = tensor(offset)
    zero = tensor(0, uint32)
    low = convert(offset, uint32)
    high = convert(offset >> 32, uint32) if offset.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


def randint(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Tensor:
    """A block of random uint32, of a seed and a block of offsets."""
    return randint4x(seed, offset, n_rounds)[0]


@member
def uint_to_uniform_float(x: Tensor) -> Tensor:
    """Random words as float32 in [0, 1)."""
    if x.dtype in (uint32, int32):
        signed, scale = int32, 4.6566127342e-10
    elif x.dtype in (uint64, int64):
        signed, scale = int64, 1.0842020432385337e-19
    else:
        raise CompilationError(f"uint_to_uniform_float takes integers of 32 or 64 bits, not {x.dtype}")
    x = convert(x, signed)
    return where(x < 0, -x - 1, x) * scale


def rand(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Tensor:
    """A block of random float32 in [0, 1), of a seed and a block of offsets."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


def rand4x(seed: Any, offsets: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of random float32 in [0, 1)."""
    return tuple([uint_to_uniform_float(x) for x in randint4x(seed, offsets, n_rounds)])


def pair_uniform_to_normal(u1: Any, u2: Any) -> Any:
    """Two blocks of uniform numbers as two of normal ones (Box and Muller)."""
    angle = u2 * 6.283185307179586
    radius = sqrt(log(maximum(u1, 1.0e-7)) * -2.0)
    return radius * cos(angle), radius * sin(angle)


def randn(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Tensor:
    """A block of random normal float32, of a seed and a block of offsets."""
    first, second, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(first), uint_to_uniform_float(second))[0]


def randn4x(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of random normal float32."""
    u = [uint_to_uniform_float(x) for x in randint4x(seed, offset, n_rounds)]
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))
