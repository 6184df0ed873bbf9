"""Random expression graphs, planned under random policies and interpreted, against one-node-at-a-time evaluation.

Integers, so that every answer is exact; views of views, writes, gathers and scans included.
"""

from __future__ import annotations

import os
import random
from math import prod

import numpy as np
import pytest

from blockarray.compiler import expr as E
from blockarray.compiler import ops, reference
from blockarray.compiler.expr import Expr
from blockarray.compiler.policy import Policy
from tests.compiler.planning import leaf, op, reduce, run, window

SEEDS = int(os.environ.get("BLOCKARRAY_FUZZ_PLANS", "1500"))
CHUNKS = 10


def _read(buf: object, offset: int, shape: E.Shape, strides: E.Shape, dtype: np.dtype) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape, dtype)
    flat = buf.array[offset:]  # type: ignore[attr-defined]
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(s * dtype.itemsize for s in strides))


def _extend(r: random.Random, g: np.random.Generator, pool: list[Expr]) -> Expr | None:
    """A new node over the pool, or None where the choice does not fit."""
    x = r.choice(pool)
    kind = r.random()
    if kind < 0.35:
        y = r.choice(pool)
        try:
            np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            return None
        return op(r.choice(["add", "subtract", "multiply", "maximum"]), x, y)
    if not x.shape:
        return None
    ndim = len(x.shape)
    strides = E.contiguous_strides(x.shape)
    if kind < 0.55:
        if r.random() < 0.2:
            return reduce("argmax", x, r.randrange(ndim), r.random() < 0.5)
        axes = tuple(sorted(r.sample(range(ndim), r.randint(1, ndim))))
        return reduce(r.choice(["sum", "max", "min"]), x, axes, r.random() < 0.6)
    if kind < 0.65:
        key = tuple(
            slice(r.randint(0, 1), None, r.choice([1, 1, 2])) if r.random() < 0.6 else slice(None, None, -1)
            for _ in x.shape
        )
        return window(x, key)
    if kind < 0.75:
        order = r.sample(range(ndim), ndim)
        return E.view(x, 0, tuple(strides[i] for i in order), tuple(x.shape[i] for i in order))
    if kind < 0.85:
        n = prod(x.shape)
        shape = r.choice([(n,), (1, n), (n, 1)] + [(d, n // d) for d in (2, 3, 5) if n % d == 0])
        return E.view(x, 0, E.contiguous_strides(shape), shape)
    if kind < 0.9:
        return E.node(ops.TABLE["cumsum"], (x,), r.randrange(ndim), x.shape, x.dtype)
    if kind < 0.95:
        m = r.randint(1, 4)
        index = leaf(g.integers(-x.shape[0], x.shape[0], (m,)))
        return E.node(E.GATHER, (x, index), None, (m, *x.shape[1:]), x.dtype)
    part = window(E.buffer(None, x.shape, x.dtype), tuple(slice(r.randint(0, 1), None) for _ in x.shape))
    if 0 in part.shape:
        return None
    values = [p for p in pool if p.shape == part.shape] or [E.broadcast(E.scalar(5, x.dtype), part.shape)]
    return E.node(E.UPDATE, (x, r.choice(values)), part.attrs[1:], x.shape, x.dtype)


def _graph(r: random.Random, g: np.random.Generator) -> tuple[list[Expr], list[Expr]]:
    """Some roots, and what is held beside them: half of the time nothing, so that memory is taken over."""
    dims = [r.choice([1, 2, 3, 5, 7]) for _ in range(3)]
    pool = [
        leaf(g.integers(-3, 4, tuple(r.choice(dims) for _ in range(r.randint(0, 3)))).astype(np.int64))
        for _ in range(3)
    ]
    for _ in range(r.randint(2, 14)):
        made = _extend(r, g, pool)
        if made is not None and 0 < made.size <= 3000:
            pool.append(made)
    roots = [p for p in dict.fromkeys(pool) if p.inputs]
    r.shuffle(roots)
    return roots[: r.randint(1, 3)], pool if r.random() < 0.5 else []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_planned_graphs_match_the_reference(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS):
        r = random.Random(seed)
        roots, _held = _graph(r, np.random.default_rng(seed))
        if not roots:
            continue
        want = [np.array(v) for v in reference.evaluate(roots, _read)]
        policy = Policy(
            min_programs=r.choice([1, 4, 16]),
            small=r.choice([1, 32, 1 << 15]),
            split=r.choice([10, 1 << 19]),
            max_nodes=r.choice([3, 192]),
        )
        for expected, got in zip(want, run(*roots, policy=policy), strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")
