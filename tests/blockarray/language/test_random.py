"""Random numbers: known answers, and their distributions."""

from __future__ import annotations

import numpy as np
import pytest

import blockarray.language as tl
from tests.blockarray.language.running import launch, run_compiled

N = 4096


def words(o_ptr, c_ptr, k_ptr):
    c0, c1, c2, c3 = (tl.load(c_ptr + k) for k in range(4))
    for_each = tl.philox_impl(c0, c1, c2, c3, tl.load(k_ptr), tl.load(k_ptr + 1), 10)
    for k in tl.static_range(4):
        tl.store(o_ptr + k, for_each[k])


# The known answers of the authors' Random123.
@pytest.mark.parametrize(
    ("dtype", "counter", "key", "expected"),
    [
        ("u4", [0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ("u4", [0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ("u4", [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
        ("u8", [0] * 4, [0] * 2,
         [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
    ],
)  # fmt: skip
def test_known_answers(dtype, counter, key, expected):
    o = np.zeros(4, dtype)
    launch(words, o_ptr=o, c_ptr=np.array(counter, dtype), k_ptr=np.array(key, dtype))
    np.testing.assert_array_equal(o, np.array(expected, dtype))


def draws(i_ptr, u_ptr, n_ptr, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(i_ptr + at, tl.randint(seed, at))
    tl.store(u_ptr + at, tl.rand(seed, at))
    tl.store(n_ptr + at, tl.randn(seed, at))


def test_distributions():
    i, u, n = np.zeros(N, "u4"), np.zeros(N, "f4"), np.zeros(N, "f4")
    run_compiled(draws, i_ptr=i, u_ptr=u, n_ptr=n, seed=np.int32(42), N=N)
    assert len(np.unique(i)) > N - 4
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02 and abs(u.var() - 1 / 12) < 0.005
    assert abs(n.mean()) < 0.05 and abs(n.var() - 1) < 0.08
    again = np.zeros(N, "u4")
    run_compiled(draws, i_ptr=again, u_ptr=u, n_ptr=n, seed=np.int32(43), N=N)
    assert (again != i).mean() > 0.99


def four(o_ptr, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(o_ptr + at, a)
    w, x, y, z = tl.rand4x(seed, at.to(tl.int64))
    tl.store(o_ptr + N + at, (w + x + y + z) * 1000)
    p, q, r, s = tl.randn4x(seed, at)
    tl.store(o_ptr + 2 * N + at, tl.abs(p * q * r * s) * 1000)
    tl.store(o_ptr + 3 * N + at, a ^ b ^ c ^ d)


def test_four_at_once():
    o = np.zeros(4 * 64, "u4")
    launch(four, o_ptr=o, seed=np.int64(2**40 + 7), N=64)
    assert len(np.unique(o[:64])) == 64
