"""Arrays of more than 2**31 elements and of more than 4 GiB, on a GPU: `pytest --big tests/integration/test_big.py`.

Values come from formulas in the position, so that those around any place are known, and sums by arithmetic.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import needs_lazy, xp

pytestmark = [needs_lazy, pytest.mark.gpu, pytest.mark.big]

#: Past what 32 bits count, and odd.
N = 2**31 + 7
#: Values repeat after so many.
PERIOD = 101
#: Where to look: the ends, and around the bounds of 31 and 32 bits of bytes.
PLACES = tuple(sorted({p for c in (0, N // 4, N // 2, N) for p in range(c - 3, c + 4) if 0 <= p < N}))


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with xp.device("cuda:0"):
        yield
    gc.collect()


def pattern(dtype: Any, n: int = N) -> Any:
    """The position modulo 101."""
    x = (xp.arange(n) % PERIOD).astype(dtype)
    xp.evaluate(x)
    return x


def total(n: int) -> int:
    """The sum of a pattern."""
    return n // PERIOD * (PERIOD * (PERIOD - 1) // 2) + sum(range(n % PERIOD))


def at(x: Any, places: Any) -> list[Any]:
    return [x[p].item() for p in places]


def agree(x: Any, formula: Any) -> None:
    """Compare elements of a vector with a formula in the position."""
    assert x.shape == (N,)
    assert at(x, PLACES) == [formula(p) for p in PLACES]


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_elementwise(dtype: str) -> None:
    x = pattern(dtype)
    agree(x, lambda p: p % PERIOD)
    y = x + x[::-1] * 0 + 1
    agree(y, lambda p: p % PERIOD + 1)
    x[N - 5 :] = 3
    x += 1
    agree(x, lambda p: 4 if p >= N - 5 else p % PERIOD + 1)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_reductions(dtype: str) -> None:
    x = pattern(dtype)
    assert xp.sum(x, dtype=xp.int64).item() == total(N)
    assert xp.max(x).item() == PERIOD - 1
    assert abs(xp.mean(x, dtype=xp.float64).item() - total(N) / N) < 1e-9
    assert xp.count_nonzero(x).item() == N - -(-N // PERIOD)
    assert xp.argmax(x).item() == PERIOD - 1
    x[N - 2] = 120
    assert xp.argmax(x).item() == N - 2
    assert xp.max(x).item() == 120


def test_reductions_of_rows_and_columns() -> None:
    tall = pattern("int8", 2**31 + 2**12).reshape(-1, 2**12)
    rows, columns = xp.sum(tall, axis=1, dtype=xp.int64), xp.sum(tall, axis=0, dtype=xp.int64)
    for i in (0, 1, 2**19 - 1, 2**19):
        assert rows[i].item() == total((i + 1) * 2**12) - total(i * 2**12)
    assert xp.sum(columns).item() == total(2**31 + 2**12)
    assert xp.argmax(tall, axis=1)[2**19].item() == (PERIOD - 1 - 2**31) % PERIOD
    wide = tall.reshape(2**12, -1)
    assert xp.max(wide, axis=0).shape == (2**19 + 1,)
    assert wide[-1].sum(dtype=xp.int64).item() == total(2**31 + 2**12) - total((2**12 - 1) * (2**19 + 1))


def test_cumsum() -> None:
    sums = xp.cumsum(pattern("int8"), dtype=xp.int64)
    agree(sums, lambda p: total(p + 1))
    agree(xp.cumsum(xp.ones(N, dtype=xp.int8)), lambda p: p + 1)


def test_indexing() -> None:
    x = pattern("int8")
    assert x[-1].item() == (N - 1) % PERIOD and x[N - 1].item() == x[-1].item()
    with pytest.raises(IndexError):
        x[N]
    back = x[::-3]
    assert at(back, (0, 1, 2**29, len(back) - 1)) == [(N - 1 - 3 * i) % PERIOD for i in (0, 1, 2**29, len(back) - 1)]
    tail = x[: N - 100 : -1] + 0
    assert tail.tolist() == [(N - 1 - i) % PERIOD for i in range(99)]
    assert (x[2**31 - 3 : 2**31 + 3] + 0).tolist() == [p % PERIOD for p in range(2**31 - 3, 2**31 + 3)]
    back[:4] = -1
    assert at(x, range(N - 10, N)) == [-1, *[-1 if (N - 1 - p) % 3 == 0 else p % PERIOD for p in range(N - 9, N)]]


def test_mask() -> None:
    x = pattern("int8")
    chosen = x[x == PERIOD - 1]
    assert chosen.shape == (N // PERIOD,) and xp.all(chosen == PERIOD - 1).item()
    places = xp.nonzero(x == PERIOD - 1)[0]
    assert places[-1].item() == N // PERIOD * PERIOD - 1 and places.shape == chosen.shape
    x[x > 50] = 7
    agree(x, lambda p: 7 if p % PERIOD > 50 else p % PERIOD)
    sevens = [r for r in range(PERIOD) if r > 50 or r == 7]
    assert xp.count_nonzero(x == 7).item() == sum(N // PERIOD + (r < N % PERIOD) for r in sevens)


def test_gather_and_scatter() -> None:
    x = pattern("int8")
    index = N - 1 - xp.arange(10_000_019) * 211
    assert at(x[index], (0, 1, 10_000_018)) == [(N - 1 - 211 * i) % PERIOD for i in (0, 1, 10_000_018)]
    assert at(xp.take(x, index - N), (0, 1, 5)) == [(N - 1 - 211 * i) % PERIOD for i in (0, 1, 5)]
    x[index] = -5
    assert xp.count_nonzero(x == -5).item() == 10_000_019
    assert at(x, (N - 1, N - 2, N - 212)) == [-5, (N - 2) % PERIOD, -5]
    with pytest.raises(IndexError):
        x[xp.asarray([0, N])].tolist()
    # More results than 32 bits count.
    many = pattern("int16", 1000)[xp.arange(N) % 1000]
    agree(many, lambda p: p % 1000 % PERIOD)


def test_two_axes() -> None:
    rows, columns = 2**16 + 1, 2**15 + 3
    x = pattern("int8", rows * columns).reshape(rows, columns)
    turned = xp.ascontiguousarray(x.T)
    for r, c in ((0, 0), (rows - 1, columns - 1), (rows - 1, 0), (0, columns - 1), (rows // 2, columns // 2)):
        assert turned[c, r].item() == (r * columns + c) % PERIOD
    assert xp.sum(turned, dtype=xp.int64).item() == total(rows * columns)
    assert xp.all(xp.diff(x[:, -2:].astype(xp.int16), axis=1) % PERIOD == 1).item()
    window = x[-3:, -3:] + 0
    assert window.tolist() == [
        [(r * columns + c) % PERIOD for c in range(columns - 3, columns)] for r in range(rows - 3, rows)
    ]


def test_concatenate() -> None:
    half = pattern("int8", 2**30 + 5)
    both = xp.concatenate((half, half[::-1], half[:3]))
    assert both.shape == (2**31 + 13,)
    assert at(both, (0, 2**30 + 4, 2**30 + 5, -4, -1)) == [
        0, (2**30 + 4) % PERIOD, (2**30 + 4) % PERIOD, 0, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_product(dtype: str) -> None:
    """An operand, and a result, of more than 4 GiB."""
    k = 512
    m = (4 << 30) // (k * xp.dtype(dtype).itemsize) + 129
    a = (xp.arange(m)[:, None] % 7 + xp.arange(k)[None, :] % 3).astype(dtype)
    b = (xp.arange(k)[:, None] % 2 + xp.arange(24)[None, :] % 4).astype(dtype)
    xp.evaluate(a, b)
    got = a @ b
    for i in (0, m // 2, m - 129, m - 1):
        left = (i % 7 + np.arange(k) % 3).astype(np.float64)
        want = left @ (np.arange(k)[:, None] % 2 + np.arange(24)[None, :] % 4)
        np.testing.assert_allclose(np.asarray(got[i]).astype(float), want, 4e-3 if dtype == "bfloat16" else 5e-4)
    del got
    wide = a[:, :64] @ (xp.arange(64)[:, None] % 2 * xp.ones((1, 520))).astype(dtype)
    assert wide.nbytes > 4 << 30
    for i in (0, m - 1):
        want = float(((i % 7 + np.arange(64) % 3) * (np.arange(64) % 2)).sum())
        assert at(wide[i], (0, -1)) == [want, want]


def test_sort() -> None:
    n = 2**31 + 7
    x = pattern("int8", n)
    ordered = xp.sort(x)
    count = [n // PERIOD + (r < n % PERIOD) for r in range(PERIOD)]
    starts = np.cumsum([0, *count])
    assert at(ordered, (0, n - 1)) == [0, PERIOD - 1]
    for r in (1, 50, 100):
        assert at(ordered, (starts[r] - 1, starts[r], starts[r + 1] - 1)) == [r - 1, r, r]


def test_random() -> None:
    x = xp.random.default_rng(3).random(N, dtype=xp.float32)
    assert abs(xp.mean(x, dtype=xp.float64).item() - 0.5) < 1e-4
    assert len(set(at(x, PLACES))) > len(PLACES) - 2


def test_copy_to_and_from_the_host() -> None:
    x = pattern("int8")
    host = np.asarray(x)
    assert [int(host[p]) for p in PLACES] == [p % PERIOD for p in PLACES]
    again = xp.asarray(host)
    assert xp.all(again == x).item()
