"""Corners of NumPy's behaviour, each as an expression or a few statements that NumPy itself answers too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blockarray as xp

nan, inf = np.nan, np.inf

VALUES = """
transpose(ones((2, 3)), A([1, 0]))
ones((2, 3)).transpose(A([1, 0]))
moveaxis(ones((2, 3, 4)), A([0, 1]), A([2, 0]))
flip(A([[1, 2], [3, 4]]), A([0, 1]))
reshape(ones((2, 3)), A([3, 2]))
roll(A([[1, 2], [3, 4]]), A([1, 1]), A([0, 1]))
tensordot(A([[1, 2], [3, 4]]), A([[1, 2], [3, 4]]), A([[0], [1]]))
einsum("ii->i", ones((1, 3)))
einsum("i...j,jk->ik", ones((3, 2, 4)), ones((4, 5)))
einsum(ones((3, 4)), [0, 60], ones((4, 5)), [60, 2])
einsum(ones((3, 4)), [0, -1], ones((4, 5)), [-1, 2])
clip(A([1, 2, 3, 4], "u1"), -1, 300)
clip(A([1, 2, 3, 4], "i1"), 300, 400)
clip(A([1, 2, 3, 4], "u1"), None, -1)
max(A([]), initial=3)
max(A([]).reshape(2, 0), axis=1, initial=3)
min(A([], "i4"), initial=-2)
sum(A(5), axis=0)
max(A(5), axis=-1)
argmax(A(5), axis=0)
argmax(A(5), axis=0, keepdims=True)
average(A([[1, 2], [3, 4]]), axis=0, weights=[1, 3], returned=True)
compress([True, False, True], A([1, 2, 3]))
equal(A([True, False]) ** 2, 1)
A([True, False]) ** 2
A([1, 2]) == None
A([1, 2]) != None
A([1, 2]) == "a"
A([1, 2, 3]).compress([True, False, True])
add(A([1, 2]), 2, casting="unsafe", dtype="u1")
add(A([1.5, 2]), 2, casting="unsafe", dtype="i4")
add(A([1, 2]), 2, casting="no", dtype="f4")
concatenate([A([1, 2]), A([1.7])], dtype="i4")
concatenate([A([1, 2]), A([1.7])], dtype="i4", casting="unsafe")
stack([A([1, 2]), A([1.7, 2])], dtype="i4")
pad(A([5, 9, 4]), 2, mode="mean")
pad(A([5, 9, 4]), 2, mode="maximum")
pad(A([5.0, 9, 4]), 2, mode="linear_ramp")
pad(A([5, 9, 4]), 2, mode="reflect", reflect_type="odd")
tril(A([1, 2, 3]))
triu(A([1, 2, 3]), 1)
eye(2, M=3)
arange(stop=3)
arange(start=1, stop=3)
arange(5, 1, -2)
arange(0, inf)
linspace(0, 1, 2.0)
full((2,), 3.7, dtype=int)
full((2,), 300, dtype="u1")
add.reduce(A([[1, 2], [3, 4]], "u1"))
maximum.reduce(A([[1, 2], [3, 0]]), axis=1, keepdims=True)
multiply.reduce(A([[1, 2], [3, 4]]), axis=None)
add.accumulate(A([[1, 2], [3, 4]]))
subtract.outer(A([1, 2]), A([[1.5, 2]]))
less.outer(A([1, 2]), 2)
nancumsum(A([[1, nan], [2, 3]]), axis=1)
nancumprod(A([1, nan, 3]))
einsum(A([[1, 2], [3, 4]]), [0, 1], A([1, 2]), [1])
einsum(A([[1, 2], [3, 4]]), [0, 1], [1, 0])
einsum(A([[1, 2], [3, 4]]), [..., 0], A([1, 2]), [0], [...])
matmul(A([[1.5, 2]]), A([1, 2.0]), dtype="i4")
matmul(A([[1.5, 2]]), A([1, 2.0]), dtype="f4")
matmul(A([[1, 2]]), A([1, 2]), dtype="u8")
matmul(A([[1, 2]]), A([1, 2]), dtype="i1")
matmul(A([[1j, 2]]), A([1, 2]), dtype="f8")
einsum("ij,j->i", A([[1.5, 2]]), A([1, 2.0]), dtype="i4")
einsum("ij->i", A([[1.5, 2]]), dtype="i4")
einsum("ij,j->i", A([[1, 2]]), A([1, 2]), dtype="f8")
einsum("ij,j->i", A([[1j, 2]]), A([1, 2]), dtype="f8")
A([1 + 1j, inf, 2j]) / A([nan, complex(nan, 0), complex(0, nan)])
A([1 + 1j, inf, 2j, inf]) / A([0, 0j, complex(nan, nan), complex(0, inf)])
A([inf, 1, -inf]) * A([1 + 0j, complex(inf, 0), 1j])
choose(A([0, 1]), [A([1, 2]), A([3.5, 4])])
choose(A([0, 5]), [A([1, 2]), 7], mode="clip")
select([A([True, False]), A([True, True])], [A([1, 2]), A([3, 4])], default=9)
select([A([False, False])], [A([1, 2], "f4")], default=0.5)
divmod(A([7, -7]), 2, out=(A([0, 0]), A([0, 0])))
r = A([[1, 2], [3, 4]]); put(r.T, [0, 1], [7, 8])
r = A([1, 2, 3]); put(r, [5, -9], 9, mode="clip")
r = A([1, 2, 3]); put(r, [4], 9, mode="wrap")
r = A([1, 2, 3]); put(r, [5], 9)
r = A([1, 2, 3]); put(r, [0, 1, 2], [7, 8])
r = A([1, 2, 3]); putmask(r, r > 1, [7, 8])
r = A([1, 2, 3]); place(r, r > 1, [7, 8, 9])
r = A([[1, 2], [3, 4]]); place(r.T, r.T > 1, [7, 8])
r = A([1, 2, 3]); copyto(r, [7.0, 8, 9])
r = A([1, 2, 3]); copyto(r, [7.0, 8, 9], casting="unsafe")
r = A([1, 2, 3]); copyto(r, [7, 8, 9], where=[True, False, True])
r = A([1, 2, 3]); copyto(r, 5)
r = A([[1, 2], [3, 4], [5, 6]]); fill_diagonal(r, 9)
r = A([[1, 2], [3, 4], [5, 6], [7, 8]]); fill_diagonal(r, [9, 8], wrap=True)
r = zeros((3, 3, 3)); fill_diagonal(r, [1, 2, 3])
A([1, 2, 3])[A([], bool)]
ones((3, 2, 2))[A([[], [], []], bool)]
ones((3, 2, 2))[A([[], []], bool)]
r = ones((3, 2)); r[:, A([], bool)] = 5
ones((3, 2))[A([7]), A([], bool)]
ones((3, 2))[[7], [[]]]
ones((3, 2))[[7], [0]]
r = A([1, 2, 3, 4], "u1"); r[:] = [300, -1, 2, 3]
r = A([1, 2, 3, 4]); r[:2] = [3.7, nan]
r = A([[0.0, 0], [0, 0]]); add(A([1.0, 2]), A([3, 4]), out=r)
r = A([1, 0], "u1"); add(A([1, 2]), 2, out=r, casting="unsafe")
r = A([1, 0], "u1"); add(A([1, 2]), 2, out=r)
"""


def answer(namespace: Any, make: Any, code: str) -> Any:
    names = {
        **{n: getattr(namespace, n) for n in dir(namespace) if not n.startswith("_")},
        "A": make,
        "inf": inf,
        "nan": nan,
    }
    try:
        with np.errstate(all="ignore"):
            if "; " not in code:
                return eval(code, names)
            exec(code, names)
            return names["r"]
    except Exception as error:
        return error


def check(got: Any, want: Any, code: str) -> None:
    if isinstance(want, Exception):
        assert isinstance(got, Exception), (code, got, want)
        assert isinstance(want, type(got)) or isinstance(got, type(want)), (code, got, want)
    elif isinstance(want, tuple):
        assert len(got) == len(want), code
        for g, w in zip(got, want):
            check(g, w, code)
    else:
        assert not isinstance(got, Exception), (code, got)
        g, w = np.asarray(got), np.asarray(want)
        assert (g.dtype, g.shape) == (w.dtype, w.shape), (code, g, w)
        np.testing.assert_array_equal(g, w, code)


@pytest.mark.parametrize("code", [line for line in VALUES.splitlines() if line])
def test_as_numpy(code: str) -> None:
    check(answer(xp, xp.asarray, code), answer(np, np.array, code), code)
