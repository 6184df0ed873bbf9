"""What a generator's calls are made of: the place in its stream, checked parameters, and the draws themselves."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from .array import Array, lazy
from .compiler.draws import PER_BLOCK
from .compiler.dtypes import NUMPY
from .compiler.expr import Expr, broadcast, contiguous_strides, iota, node, scalar, view
from .compiler.ops import TABLE
from .creation import asarray, zeros
from .dtypes import canonical, float32, float64, int32, int64, uint32, uint64
from .elementwise import abs as absolute
from .elementwise import cast_to, exp, floor, log, log1p, where
from .operands import as_array, cast
from .runtime.device import Device, default_device


class Philox:
    """The state of a generator: a key, a nonce, and the position in the sequence of blocks of 128 bits.

    Parameters
    ----------
    seed : None, int, array_like of int, or SeedSequence
        None takes entropy from the operating system.

    Attributes
    ----------
    seed_seq : numpy.random.SeedSequence
    state : dict
        Assign one to return to it.
    """

    def __init__(self, seed: Any = None) -> None:
        self.seed_seq = seed if isinstance(seed, SeedSequence) else SeedSequence(_plain(seed))
        self._key, self._nonce = map(int, self.seed_seq.generate_state(2, np.uint64))
        self._block = 0
        self.lock = threading.Lock()

    def take(self, blocks: int) -> tuple[int, int, int]:
        """Move `blocks` on; where they begin, as (block, nonce, key)."""
        with self.lock:
            block = self._block
            self._block = (block + blocks) % 2**64
            return block, self._nonce, self._key

    def advance(self, delta: int) -> Philox:
        """Move on by a number of blocks, as if they had been drawn."""
        self.take(int(delta))
        return self

    def spawn(self, n_children: int) -> list[Philox]:
        """New, independent ones."""
        return [Philox(s) for s in self.seed_seq.spawn(n_children)]

    @property
    def state(self) -> dict[str, Any]:
        with self.lock:
            state = {"block": self._block, "nonce": self._nonce, "key": self._key}
        return {"bit_generator": "Philox", "state": state}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        if not isinstance(value, dict):
            raise TypeError("state must be a dict")
        if value.get("bit_generator") != "Philox":
            raise ValueError("state must be for a Philox RNG")
        inner = value["state"]
        with self.lock:
            self._block, self._nonce, self._key = (int(inner[k]) for k in ("block", "nonce", "key"))

    def __reduce__(self) -> Any:
        return _restored, (self.seed_seq, self.state)


def _restored(seed_seq: SeedSequence, state: dict[str, Any]) -> Philox:
    result = Philox(seed_seq)
    result.state = state
    return result


def _plain(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, Array) else x


def target(device: Any, operands: Any) -> Device:
    """The device that a `device=` argument means; by default that of the operands which are on one."""
    if device is not None:
        return Device(device)
    return next((x.device for x in operands if isinstance(x, Array)), None) or default_device()


# -- parameters -------------------------------------------------------------------------------------------------------
#: Raises what NumPy raises of a parameter's name and values.  An Array's values are not looked at: a bad one gives NaN.
Check = Callable[[str, np.ndarray], None]


def anything(name: str, x: np.ndarray) -> None:
    pass


def _require(ok: Callable[[np.ndarray], Any], message: str) -> Check:
    """ok of an array of values; {0} in the message is the name, {1} says that there is a NaN."""

    def check(name: str, x: np.ndarray) -> None:
        if not np.all(ok(x)):
            raise ValueError(message.format(name, "contains NaNs" if x.ndim else "is NaN"))

    return check


non_negative = _require(lambda x: ~np.signbit(x) | np.isnan(x), "{0} < 0")
positive = _require(lambda x: ~(x <= 0), "{0} <= 0")
probability = _require(lambda x: (x >= 0) & (x <= 1), "{0} < 0, {0} > 1 or {0} {1}")
positive_probability = _require(lambda x: (x > 0) & (x <= 1), "{0} <= 0, {0} > 1 or {0} contains NaNs")
above_one = _require(lambda x: x > 1, "{0} <= 1 or {0} {1}")
below_one = _require(lambda x: (x >= 0) & (x < 1), "{0} < 0, {0} >= 1 or {0} {1}")
_rate = _require(lambda x: x >= 0, "{0} < 0 or {0} {1}")
_limited = _require(lambda x: ~(x >= 1e9), "both ngood and nbad must be less than 1000000000")


def below_billion(name: str, x: np.ndarray) -> None:
    _limited(name, x)
    non_negative(name, x)


#: The largest mean whose counts fit an int64 with room to spare.
_MOST = np.iinfo(np.int64).max - 10 * math.sqrt(np.iinfo(np.int64).max)


def poisson_rate(name: str, x: np.ndarray) -> None:
    _rate(name, x)
    if np.any(x > _MOST):
        raise ValueError(f"{name} value too large")


def parameter(name: str, value: Any, check: Check, dtype: np.dtype, device: Device, whole: bool = False) -> Any:
    """A Python float, or an Array of `dtype`."""
    if type(value) in (int, float) and value:
        return _number(name, float(value), check, whole)
    if isinstance(value, Array):
        return cast_to(floor(value) if whole and value.dtype.kind == "f" else value, dtype)
    x = np.asarray(float(value) if np.ndim(value) == 0 else value, np.float64)
    x = np.trunc(x) if whole else x
    check(name, x)
    return asarray(x.astype(dtype), device=device) if x.ndim else float(x)


@lru_cache(1024)
def _number(name: str, value: float, check: Check, whole: bool) -> float:
    """A parameter that is a number, not zero (whose sign a cache would lose)."""
    x = np.asarray(math.trunc(value) if whole and math.isfinite(value) else value, np.float64)
    check(name, x)
    return float(x)


@cache
def float_kind(dtype: Any, name: str) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype not in (np.float64, np.float32):
        raise TypeError(f"Unsupported dtype {dtype!r} for {name}")
    return canonical(dtype)


@dataclass(slots=True)
class Call:
    """One call of a method: what it draws has this shape and floating-point type."""

    stream: Philox
    shape: tuple[int, ...]
    #: Whether NumPy would return a scalar.
    bare: bool
    dtype: np.dtype
    device: Device

    def draw(self, name: str, out: np.dtype, *parameters: Any) -> Array:
        """An op of `compiler/draws.py`, at counters that no other draw has."""
        n = math.prod(self.shape)
        if not n:
            return zeros(self.shape, out, device=self.device)
        blocks = self.stream.take(-(-n // PER_BLOCK.get(name, 1)))
        index = view(iota(n, self.device), 0, contiguous_strides(self.shape), self.shape)
        at = (cast(index, uint64), *(scalar(x, uint64) for x in blocks))
        kinds = [NUMPY[d] for types, made in TABLE[name].types if NUMPY[made] == out for d in types[4:]]
        rest = (self._operand(x, kind) for x, kind in zip(parameters, kinds, strict=True))
        return lazy(node(TABLE[name], (*at, *rest), None, self.shape, out))

    def _operand(self, x: Any, dtype: np.dtype) -> Expr:
        return broadcast(cast(x._read(), dtype), self.shape) if isinstance(x, Array) else scalar(x, dtype)

    def unit(self) -> Array:
        """In [0, 1)."""
        return self._number(self.bits())

    def tail(self) -> Array:
        """Of either sign, uniform between -1/2 and 1/2 and fine near zero: the distance to the nearer end of [0, 1]."""
        return self._number(cast_to(self.bits(), int32 if self.dtype == float32 else int64))

    def bits(self) -> Array:
        return self.draw("philox32", uint32) if self.dtype == float32 else self.draw("philox64", uint64)

    def _number(self, bits: Array) -> Array:
        return lazy(node(TABLE["fraction"], (bits._read(),), None, self.shape, self.dtype))

    def normal(self) -> Array:
        return lazy(node(TABLE["normal_tail"], (self.tail()._read(),), None, self.shape, self.dtype))

    def exponential(self) -> Array:
        return 0.0 - log(2.0 * absolute(self.tail()))

    def fine_exponential(self) -> Array:
        """Accurate near zero too."""
        t = self.tail()
        p = absolute(t)
        return where(t > 0, 0.0 - log(p), 0.0 - log1p(-p))

    def gamma(self, shape: Any) -> Array:
        """Below shape 1 by way of shape + 1."""
        if not isinstance(shape, Array):
            if shape == 0:
                return zeros(self.shape, self.dtype, device=self.device)
            if not shape < 1:
                return self.draw("gamma", self.dtype, shape)
        small = as_array(shape) < 1
        boosted = self.draw("gamma", self.dtype, where(small, shape + 1.0, shape))
        factor = exp(-(self.exponential() / shape))
        return cast_to(boosted * where(small, factor, 1.0), self.dtype)

    def chisquare(self, df: Any) -> Array:
        return 2.0 * self.gamma(df / 2.0)

    def poisson(self, lam: Any) -> Array:
        return cast_to(self.draw("poisson", float64, lam), self.dtype)

    def result(self, x: Array, dtype: np.dtype | None = None) -> Any:
        x = cast_to(x, dtype or self.dtype)
        return x.item() if self.bare else x
