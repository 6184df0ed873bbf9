"""Random programs of views, reads and writes, against NumPy: what each name holds, at every later point.

Every array exists twice, in NumPy and in the namespace under test; views of one are views of the other.  Readers are
recorded and left unevaluated; NumPy's answer is known at once and compared later, after writes have come and gone.

BLOCKARRAY_FUZZ_EXAMPLES and BLOCKARRAY_FUZZ_STEPS lengthen the run.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.support import assert_same, evaluate, host, xp

EXAMPLES = int(os.environ.get("BLOCKARRAY_FUZZ_EXAMPLES", "60"))
STEPS = int(os.environ.get("BLOCKARRAY_FUZZ_STEPS", "25"))

DTYPES = [np.int64, np.int32, np.uint8, np.float64, np.float32]
SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 0]), max_size=3).map(tuple)


class Pair(NamedTuple):
    """The same array twice."""

    want: np.ndarray
    got: Any


def pair(a: np.ndarray) -> Pair:
    # NumPy keeps the memory order of what it computes from; C order on both sides makes reshape a view on both.
    a = np.array(a, order="C")
    return Pair(a, xp.array(a))


@st.composite
def slices(draw: Any, n: int) -> slice:
    bound = st.none() | st.integers(-n - 1, n + 1)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def basic_index(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Integers, slices, newaxis and at most one ellipsis."""
    index: list[Any] = []
    axes = draw(st.integers(0, len(shape)))
    for n in shape[:axes]:
        if draw(st.integers(0, 5)) == 0:
            index.append(None)
        if n and draw(st.integers(0, 3)) == 0:
            index.append(draw(st.integers(-n, n - 1)))
        else:
            index.append(draw(slices(n)))
    if draw(st.integers(0, 3)) == 0:
        index.append(...)
    return tuple(index)


@st.composite
def array_index(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """One or two index arrays, or a mask, among slices."""
    axis = draw(st.integers(0, len(shape) - 1))
    index: list[Any] = [draw(slices(n)) if draw(st.booleans()) else slice(None) for n in shape[:axis]]
    n = shape[axis]
    kind = draw(st.sampled_from(["array", "array", "pair", "mask", "mask2"]))
    if kind == "mask2" and axis + 1 < len(shape):
        m = shape[axis + 1]
        flat = draw(st.lists(st.booleans(), min_size=n * m, max_size=n * m))
        return (*index, np.array(flat, bool).reshape(n, m))
    if kind.startswith("mask") or n == 0:
        return (*index, np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
    positions = np.array(draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4)), np.int64)
    if kind == "pair" and axis + 1 < len(shape) and shape[axis + 1]:
        m = shape[axis + 1]
        k = len(positions)
        others = np.array(draw(st.lists(st.integers(-m, m - 1), min_size=k, max_size=k)), np.int64)
        if draw(st.booleans()):
            return (*index, positions[:, None], others)
        return (*index, positions, others)
    return (*index, positions)


def on_device(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(xp.asarray(i) if isinstance(i, np.ndarray) else i for i in index)


def bounded(a: np.ndarray) -> np.ndarray:
    """Values small enough for every dtype, so that no cast is out of range."""
    return a % 50


AUGMENTED = {
    "+=": lambda t, v: t.__iadd__(v),
    "-=": lambda t, v: t.__isub__(v),
    "*=": lambda t, v: t.__imul__(v),
}
VALUES = st.sampled_from(["scalar", "fresh", "row", "other", "other"])


class Program(RuleBasedStateMachine):
    arrays = Bundle("arrays")
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[Pair] = []

    @rule(target=arrays, shape=SHAPES, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
    def create(self, shape: tuple[int, ...], dtype: Any, seed: int) -> Pair:
        return self.keep(pair(np.random.default_rng(seed).integers(0, 50, shape).astype(dtype)))

    def keep(self, p: Pair) -> Pair:
        self.alive = [*self.alive[-7:], p]
        return p

    # Views: both sides share memory with their source.

    @rule(target=arrays, source=arrays, data=st.data())
    def slice(self, source: Pair, data: Any) -> Pair:
        index = data.draw(basic_index(source.want.shape), label="index")
        index = index if ... in index else (*index, ...)  # a 0-d view, not NumPy's scalar
        return self.keep(Pair(source.want[index], source.got[index]))

    @rule(target=arrays, source=arrays)
    def transpose(self, source: Pair) -> Pair:
        return self.keep(Pair(source.want.T, source.got.T))

    @rule(target=arrays, source=arrays, data=st.data())
    def split_axis(self, source: Pair, data: Any) -> Pair:
        """A reshape that is a view whatever the strides: an axis in two."""
        shape = source.want.shape
        new = list(shape)
        if shape and source.want.size:
            axis = data.draw(st.integers(0, len(shape) - 1))
            n = shape[axis]
            k = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            new[axis : axis + 1] = [k, n // k]
        if len(new) > 4:
            new = list(shape)
        return self.keep(Pair(source.want.reshape(new), xp.reshape(source.got, tuple(new))))

    # Fresh arrays, recorded and not evaluated.

    @rule(target=readers, source=arrays, k=st.integers(-3, 3))
    def read(self, source: Pair, k: int) -> Pair:
        with np.errstate(all="ignore"):
            return Pair(np.asarray(source.want * 2 + source.want.dtype.type(k % 7)), source.got * 2 + k % 7)

    @rule(target=readers, source=arrays)
    def read_sum(self, source: Pair) -> Pair:
        return Pair(np.asarray(np.sum(source.want)), xp.sum(source.got))

    @rule(target=readers, source=arrays, data=st.data())
    def read_indexed(self, source: Pair, data: Any) -> Pair:
        if not source.want.ndim:
            return source._replace(want=source.want.copy(), got=source.got + source.want.dtype.type(0))
        index = data.draw(array_index(source.want.shape), label="index")
        return Pair(source.want[index], source.got[on_device(index)])

    @rule(target=arrays, source=arrays)
    def compute(self, source: Pair) -> Pair:
        return self.keep(Pair(np.array(bounded(source.want + 1), order="C"), bounded(source.got + 1)))

    @rule(target=arrays, source=consumes(readers))
    def adopt(self, source: Pair) -> Pair:
        """A reader becomes an array that later steps may write to."""
        return self.keep(Pair(np.array(bounded(source.want), order="C"), bounded(source.got)))

    # Writes.

    def value(self, data: Any, target: np.ndarray, other: Pair) -> tuple[Any, Any]:
        """Something that broadcasts to the target's shape, for NumPy (a copy) and for the other side (as it is)."""
        kind = data.draw(VALUES, label="value")
        if kind == "other":
            try:
                np.broadcast_to(other.want, target.shape)
            except ValueError:
                kind = "fresh"
            else:
                return other.want.copy(), other.got
        if kind in ("fresh", "row"):
            shape = target.shape[1:] if kind == "row" else target.shape
            fresh = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 50, shape).astype(target.dtype)
            return fresh, xp.asarray(fresh)
        k = data.draw(st.integers(0, 49))
        return k, k

    @rule(target_=arrays, other=arrays, data=st.data())
    def write(self, target_: Pair, other: Pair, data: Any) -> None:
        index = data.draw(basic_index(target_.want.shape), label="index")
        want, got = self.value(data, target_.want[(*index, ...) if ... not in index else index], other)
        target_.want[index] = want
        target_.got[index] = got

    @rule(target_=arrays, data=st.data())
    def write_overlapping(self, target_: Pair, data: Any) -> None:
        """Two windows of one array, equal in shape."""
        shape = target_.want.shape
        to, source = [], []
        for n in shape:
            width = data.draw(st.integers(0, n))
            for side in (to, source):
                start = data.draw(st.integers(0, n - width))
                stop = start + width
                flip = data.draw(st.booleans())
                side.append(slice(stop - 1, start - 1 if start else None, -1) if flip and width else slice(start, stop))
        to, source = tuple(to), tuple(source)
        target_.want[to] = target_.want[source].copy()
        target_.got[to] = target_.got[source]

    @rule(target_=arrays, other=arrays, data=st.data())
    def write_indexed(self, target_: Pair, other: Pair, data: Any) -> None:
        if not target_.want.ndim:
            return
        index = data.draw(array_index(target_.want.shape), label="index")
        want, got = self.value(data, target_.want[index], other)
        target_.want[index] = want
        target_.got[on_device(index)] = got

    @rule(target_=arrays, data=st.data())
    def write_through_own_values(self, target_: Pair, data: Any) -> None:
        """The index array is computed from the array written to."""
        if target_.want.ndim != 1 or not target_.want.size:
            return
        n = target_.want.shape[0]
        want = target_.want.astype(np.int64) % n
        got = target_.got.astype(np.int64) % n
        target_.want[want] = 3
        target_.got[got] = 3

    @rule(target_=arrays, other=arrays, op=st.sampled_from(sorted(AUGMENTED)), data=st.data())
    def augment(self, target_: Pair, other: Pair, op: str, data: Any) -> None:
        index = data.draw(basic_index(target_.want.shape), label="index")
        index = index if ... in index else (*index, ...)
        want, got = self.value(data, target_.want[index], other)
        if isinstance(want, np.ndarray) and not np.can_cast(want.dtype, target_.want.dtype, "same_kind"):
            return
        with np.errstate(all="ignore"):
            target_.want[index] = bounded(AUGMENTED[op](target_.want[index].copy(), want))
        # Twice through the view on this side: once for the operator, once to keep the values small.
        view = target_.got[index]
        AUGMENTED[op](view, got)
        view %= 50

    @rule(target_=arrays, data=st.data())
    def augment_indexed(self, target_: Pair, data: Any) -> None:
        if not target_.want.ndim:
            return
        index = data.draw(array_index(target_.want.shape), label="index")
        target_.want[index] += 1
        target_.got[on_device(index)] += 1

    @rule(target_=arrays)
    def augment_by_itself_reversed(self, target_: Pair) -> None:
        if not target_.want.ndim:
            return
        with np.errstate(all="ignore"):
            target_.want[...] = bounded(target_.want + target_.want[::-1])
        got = target_.got
        got += got[::-1]
        got %= 50

    # Looking.

    @rule(p=arrays)
    def evaluate_one(self, p: Pair) -> None:
        evaluate(p.got)

    @rule(p=arrays)
    def check(self, p: Pair) -> None:
        assert_same(p.got, p.want)

    @rule(p=consumes(readers))
    def check_reader(self, p: Pair) -> None:
        assert_same(p.got, p.want)

    @rule(p=arrays, data=st.data())
    def check_item(self, p: Pair, data: Any) -> None:
        if p.want.size:
            index = tuple(data.draw(st.integers(-n, n - 1)) for n in p.want.shape)
            assert p.got[index].item() == p.want[index].item()

    @invariant()
    def shapes_agree(self) -> None:
        for p in self.alive:
            assert p.got.shape == p.want.shape and p.got.dtype == p.want.dtype

    def teardown(self) -> None:
        for p in self.alive:
            np.testing.assert_array_equal(host(p.got), p.want)


TestProgram = Program.TestCase
TestProgram.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize="BLOCKARRAY_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
