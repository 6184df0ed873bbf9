"""Planned graphs: how many kernels, and what they compute when the block IR is interpreted."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import expr as E
from blockarray.compiler import ops, plan
from blockarray.compiler.policy import Policy

from .planning import leaf, op, planned, reduce, run, window

rng = np.random.default_rng(7)


def f32(value: float) -> E.Expr:
    return E.scalar(value, np.dtype(np.float32))


def data(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x: E.Expr) -> E.Expr:
    e = op("exp", op("subtract", x, reduce("max", x, -1, True)))
    return op("divide", e, reduce("sum", e, -1, True))


def softmax_np(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mean(x: E.Expr, axis: int) -> E.Expr:
    return op("divide", reduce("sum", x, axis, True), f32(x.shape[axis]))


def layernorm(x: E.Expr) -> E.Expr:
    d = op("subtract", x, mean(x, -1))
    return op("divide", d, op("sqrt", op("add", mean(op("multiply", d, d), -1), f32(1e-5))))


def test_softmax_is_one_kernel() -> None:
    a = data(37, 11)
    x = leaf(a)
    assert len(planned(softmax(x)).steps) == 1
    assert len(planned(softmax(leaf(data(64, 512)))).steps) == 1
    np.testing.assert_allclose(run(softmax(x))[0], softmax_np(a), rtol=1e-6)


def test_layernorm_is_one_kernel() -> None:
    a = data(20, 33)
    assert len(planned(layernorm(leaf(data(4096, 4096)))).steps) == 1
    d = a - a.mean(-1, keepdims=True)
    want = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(layernorm(leaf(a)))[0], want, rtol=1e-5, atol=1e-6)


def test_column_mean_stays_resident() -> None:
    x = leaf(data(4096, 4096))
    assert len(planned(op("subtract", x, mean(x, 0))).steps) == 1
    a = data(50, 70)
    x = leaf(a)
    np.testing.assert_allclose(run(op("subtract", x, mean(x, 0)))[0], a - a.mean(0), atol=1e-6)


def test_few_columns_are_staged() -> None:
    x = leaf(np.zeros((1_000_000, 32), np.float32))
    assert len(planned(op("subtract", x, mean(x, 0))).steps) == 3
    a = data(70_000, 8)
    x = leaf(a)
    np.testing.assert_allclose(run(op("subtract", x, mean(x, 0)))[0], a - a.mean(0), atol=1e-5)


def test_softmax_then_column_sum_is_two_kernels() -> None:
    assert len(planned(reduce("sum", softmax(leaf(data(512, 512))), 0)).steps) <= 2
    a = data(300, 200)
    got = run(reduce("sum", softmax(leaf(a)), 0))[0]
    np.testing.assert_allclose(got, softmax_np(a).sum(0), rtol=1e-5)


def test_pairwise_distance_has_no_large_buffer() -> None:
    a, b = data(9, 5), data(7, 5)
    x, y = leaf(a), leaf(b)
    d = op("subtract", window(x, (slice(None), None)), window(y, None))
    out = reduce("sum", op("multiply", d, d), -1)
    made = planned(out)
    assert len(made.steps) == 1
    np.testing.assert_allclose(run(out)[0], ((a[:, None] - b[None]) ** 2).sum(-1), rtol=1e-5)


def test_stencil_is_one_kernel() -> None:
    a = data(12, 17)
    u = leaf(a)
    parts = [(slice(1, -1), slice(1, -1)), (slice(2, None), slice(1, -1)), (slice(None, -2), slice(1, -1)),
             (slice(1, -1), slice(2, None)), (slice(1, -1), slice(None, -2))]  # fmt: skip
    xs = [window(u, p) for p in parts]
    total = xs[1]
    for x in xs[2:]:
        total = op("add", total, x)
    out = op("subtract", total, op("multiply", f32(4), xs[0]))
    assert len(planned(out).steps) == 1
    want = sum((a[p] for p in parts[2:]), a[parts[1]]) - 4 * a[parts[0]]
    np.testing.assert_allclose(run(out)[0], want, rtol=1e-6)


def test_long_sum_is_split() -> None:
    a = rng.standard_normal(600_000).astype(np.float32)
    out = reduce("sum", op("maximum", leaf(a), f32(0)), 0)
    made = planned(out)
    assert len(made.steps) == 2
    np.testing.assert_allclose(run(out)[0], np.maximum(a, 0).sum(dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_long_argreduce_is_split(name: str) -> None:
    a = rng.integers(0, 1000, 600_000).astype(np.float32)
    assert run(reduce(name, leaf(a), 0))[0] == getattr(np, name)(a)


def test_reshape_into_reduction() -> None:
    a = data(4, 6, 5, 5)
    x = leaf(a)
    s = (slice(None), slice(None))
    pool = op("add", window(x, (*s, slice(None, -1), slice(None, -1))), window(x, (*s, slice(1, None), slice(1, None))))
    flat = E.view(pool, 0, (6 * 16, 1), (4, 96))
    out = reduce("sum", flat, -1)
    assert len(planned(out).steps) == 1
    want = (a[:, :, :-1, :-1] + a[:, :, 1:, 1:]).reshape(4, -1).sum(-1)
    np.testing.assert_allclose(run(out)[0], want, rtol=1e-5)


def test_product_with_epilogue_and_prologue() -> None:
    a, b, c = data(33, 40), data(40, 50), data(50)
    x, y = leaf(a), leaf(b)
    z = E.node(E.DOT, (op("multiply", x, f32(2)), y), None, (33, 50), np.dtype(np.float32))
    out = op("tanh", op("add", z, leaf(c)))
    assert len(planned(out).steps) == 1
    np.testing.assert_allclose(run(out)[0], np.tanh(2 * a @ b + c), rtol=1e-4, atol=1e-5)


def test_transposed_operands_take_no_kernel() -> None:
    a, b = data(40, 33), data(50, 40)
    x, y = window(leaf(a), slice(None)), leaf(b)
    xt, yt = E.view(x, 0, (1, 33), (33, 40)), E.view(y, 0, (1, 40), (40, 50))
    out = E.node(E.DOT, (xt, yt), None, (33, 50), np.dtype(np.float32))
    assert len(planned(out).steps) == 1
    np.testing.assert_allclose(run(out)[0], a.T @ b.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 7), (6, 5, 1), (3, 4, 2), (1, 1, 1)])
def test_small_products(m: int, k: int, n: int) -> None:
    a, b = data(3, m, k), data(3, k, n)
    out = E.node(E.DOT, (leaf(a), leaf(b)), None, (3, m, n), np.dtype(np.float32))
    np.testing.assert_allclose(run(out)[0], a @ b, rtol=1e-5, atol=1e-6)


def test_empty_and_identity() -> None:
    f = np.dtype(np.float32)
    x = leaf(np.empty((0, 3), np.float32))
    np.testing.assert_array_equal(run(reduce("sum", x, 0))[0], np.zeros(3))
    assert run(op("add", x, f32(1)))[0].shape == (0, 3)
    z = E.node(E.DOT, (leaf(np.empty((2, 0), np.float32)), x), None, (2, 3), f)
    np.testing.assert_array_equal(run(z)[0], np.zeros((2, 3)))


def test_gather_fuses_with_neighbours() -> None:
    a = data(30, 8)
    i = np.array([3, -1, 0, 29, -30])
    picked = E.node(E.GATHER, (leaf(a), leaf(i)), None, (5, 8), np.dtype(np.float32))
    out = op("multiply", picked, f32(3))
    assert len(planned(out).steps) == 1
    np.testing.assert_array_equal(run(out)[0], a[i] * np.float32(3))
    with pytest.raises(IndexError):
        run(E.node(E.GATHER, (leaf(a), leaf(np.array([30]))), None, (1, 8), np.dtype(np.float32)))


def test_scan() -> None:
    a = data(6, 40)
    x = leaf(a)
    out = E.node(ops.TABLE["cumsum"], (op("multiply", x, f32(2)),), 1, (6, 40), np.dtype(np.float32))
    np.testing.assert_allclose(run(out)[0], np.cumsum(a * 2, 1), rtol=1e-4, atol=1e-5)


def update(base: E.Expr, key: object, value: E.Expr) -> E.Expr:
    part = window(E.buffer(None, base.shape, base.dtype), key)
    return E.node(E.UPDATE, (base, value), part.attrs[1:], base.shape, base.dtype)


def test_overlapping_write() -> None:
    a = data(100)
    x = leaf(a.copy())
    out = update(x, slice(1, None), window(x, slice(None, -1)))
    a[1:] = a[:-1].copy()
    np.testing.assert_array_equal(run(out)[0], a)


def test_write_in_place_when_nobody_else_reads() -> None:
    a = data(100)
    memory = a.copy()
    x = leaf(memory)
    u = update(x, slice(2, 9), f32_row(7))
    u = update(u, slice(4, 5), f32_row(1))
    shared = x.attrs[0].array
    del x
    got = run(u)[0]
    a[2:9] = 0.5
    np.testing.assert_array_equal(got, a)
    assert np.shares_memory(got, shared)


def f32_row(n: int) -> E.Expr:
    return E.broadcast(f32(0.5), (n,))


def test_reader_before_write_keeps_the_old_value() -> None:
    a = data(50)
    x = leaf(a.copy())
    old = op("multiply", x, f32(2))
    new = update(x, slice(0, 10), f32_row(10))
    both = op("add", new, x)
    del x
    got_new, got_old, got_both = run(new, old, both)
    want = a.copy()
    want[:10] = 0.5
    np.testing.assert_array_equal(got_old, a * 2)
    np.testing.assert_array_equal(got_new, want)
    np.testing.assert_array_equal(got_both, want + a)


def test_two_broadcasts_of_one_source() -> None:
    s = leaf(np.arange(3, dtype=np.float32).reshape(1, 3, 1))
    a, b = E.broadcast(s, (1, 3, 5)), E.broadcast(s, (5, 3, 1))
    out = reduce("sum", op("add", a, b), 0)
    np.testing.assert_array_equal(run(out)[0], np.broadcast_to(np.array([[0], [10], [20]]), (3, 5)))


def test_named_intermediates_do_not_add_kernels() -> None:
    x = leaf(data(64, 512))
    m = reduce("max", x, -1, True)
    d = op("subtract", x, m)
    e = op("exp", d)
    s = reduce("sum", e, -1, True)
    out = op("divide", e, s)
    assert len(planned(out).steps) == 1


def test_repeated_stencils_stay_linear() -> None:
    def kernels(steps: int) -> tuple[int, int]:
        u = leaf(data(80, 80))
        for _ in range(steps):
            u = op("add", window(u, (slice(1, None), slice(None))), window(u, (slice(None, -1), slice(None))))
        made = planned(u)
        return len(made.steps), sum(len(s.key) for s in made.steps)  # type: ignore[union-attr]

    (k1, c1), (k2, c2) = kernels(20), kernels(40)
    assert k2 <= 2 * k1 + 6
    assert c2 <= 2.5 * c1


def test_keys_tell_shared_nodes_from_equal_ones() -> None:
    x, y = leaf(data(6)), leaf(data(6))
    shared = op("exp", x)
    graphs = [
        op("multiply", shared, shared),
        op("multiply", op("exp", x), op("exp", x)),
        op("multiply", op("exp", x), op("exp", y)),
        op("multiply", op("exp", x), x),
        op("multiply", x, op("exp", x)),
    ]
    del shared
    keys = {plan.scan([g]).key for g in graphs}
    assert len(keys) == len(graphs)
    assert plan.scan([op("multiply", op("exp", y), op("exp", y))]).key in keys


def test_keys_do_not_tell_shared_scalars_from_equal_ones() -> None:
    x = leaf(data(6))
    s = E.scalar(2.5, x.dtype)
    once = op("add", op("multiply", x, s), op("multiply", x, s))
    apart = op("add", op("multiply", x, E.scalar(1.5, x.dtype)), op("multiply", x, E.scalar(3, x.dtype)))
    graph, other = plan.scan([once]), plan.scan([apart])
    assert graph.key == other.key
    made = plan.build(graph, Policy())
    # Its kernel takes two numbers, so that it serves the other graph, too.
    scalars = [arg for s in made.steps if isinstance(s, plan.KernelStep) for arg in s.args if arg[0] == "scalar"]
    assert len(scalars) == 2 and [graph.nodes[i].attrs for _, i in scalars] == [2.5, 2.5]
    assert sorted(other.nodes[i].attrs for _, i in scalars) == [1.5, 3]
    assert len({*graph.nodes}) == len(graph.nodes) and all(x in graph.nodes for n in graph.nodes for x in n.inputs)


def test_readers_of_a_view_are_told_apart() -> None:
    v = E.view(op("exp", leaf(data(6))), 5, (-1,), (6,))
    a, b = E.broadcast(v, (3, 6)), E.broadcast(v, (3, 6))
    del v
    assert a.inputs is not b.inputs
    graph = plan.scan([op("add", a, b)])
    assert len({*graph.nodes}) == len(graph.nodes)
