"""Layouts and what is known of tiles of integers, against all elements one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blockarray.compiler.builder import Builder
from blockarray.compiler.cuda.blocks import layout
from blockarray.compiler.cuda.blocks.affine import Affine
from blockarray.compiler.cuda.blocks.assign import Assignment, assign
from blockarray.compiler.cuda.blocks.axes import Axes
from blockarray.compiler.cuda.blocks.layout import Layout
from blockarray.compiler.cuda.target import Target
from blockarray.compiler.ir import Kernel, Type, Value
from tests.compiler.cuda import block_kernels as kernels
from tests.compiler.cuda.test_blocks import TARGET, compare

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(lambda bits: tuple(1 << b for b in bits))


@st.composite
def layouts(draw: st.DrawFn, extents: Sequence[int], warps: int = 2) -> Layout:
    """Any bits in any order, some of which stand for nothing."""
    bits = list(draw(st.permutations(layout.bits_of(extents))))
    threads = [bits.pop() if bits and draw(st.booleans()) else None for _ in range(layout.LANES + warps)]
    return Layout(tuple(bits), tuple(threads[: layout.LANES]), tuple(threads[layout.LANES :]))


def positions(given: Layout, rank: int) -> np.ndarray:
    """[register, thread, dim]"""
    threads = range(1 << len(given.threads))
    return np.array([[given.position(r, t, rank) for t in threads] for r in range(given.registers)])


@settings(max_examples=30, deadline=None)
@given(st.data(), SHAPES)
def test_layouts(data: st.DataObject, extents: tuple[int, ...]) -> None:
    rank = len(extents)
    where = data.draw(layouts(extents))
    found = positions(where, rank)
    assert len({tuple(p) for p in found.reshape(-1, rank)}) == np.prod(extents)
    for r in range(where.registers):
        for d in range(rank):
            assert where.offset(r, d) == found[r, 0, d]
    for d in range(rank):
        total = np.zeros(found.shape[1], int)
        for shift, count, place in layout.pieces(where, d):
            total |= (np.arange(found.shape[1]) >> shift & (1 << count) - 1) << place
        assert (total == found[0, :, d]).all()
    replicas = np.arange(found.shape[1]) & ~where.replicas
    assert (found == found[:, replicas]).all()


@settings(max_examples=12, deadline=None)
@given(st.data(), SHAPES)
def test_shapes_rename_bits(data: st.DataObject, extents: tuple[int, ...]) -> None:
    """An operand's element that a register gets is the one that NumPy says."""
    draw, rank = data.draw, len(extents)
    x = np.arange(np.prod(extents)).reshape(extents)
    perm = tuple(draw(st.permutations(range(rank))))
    flat = (1 << draw(st.integers(0, x.size.bit_length() - 1)),)
    made = {
        "trans": (x.transpose(perm), perm),
        "reshape": (x.reshape((*flat, x.size // flat[0])), ()),
        "broadcast": (np.broadcast_to(x, (4, *extents)), tuple(range(1, rank + 1))),
        "join": (np.stack([x, x], -1), ()),
        "cat": (np.concatenate([x, x]), ()),
    }
    for name, (y, how) in made.items():
        where = draw(layouts(y.shape))
        source, registers = layout.behind(name, where, extents, y.shape, how)
        of_y, of_x = positions(where, y.ndim), positions(source, rank)[list(registers)]
        assert (y[tuple(np.moveaxis(of_y, -1, 0))] == x[tuple(np.moveaxis(of_x, -1, 0))]).all()
        if name != "broadcast":
            again = layout.ahead(name, source, extents, y.shape, how)
            assert again.bits == frozenset(layout.bits_of(y.shape))


@settings(max_examples=20, deadline=None)
@given(st.data(), SHAPES, st.sampled_from(("f32", "f16", "i8", "f64")))
def test_conversions(data: st.DataObject, extents: tuple[int, ...], dtype: str) -> None:
    """From any layout to any other: a copy, whose load and whose store have layouts of their own."""
    from blockarray.compiler.cuda.blocks import codegen

    first, second = (data.draw(layouts(extents)) for _ in range(2))

    def build(m: kernels.Blocks, x: Value) -> Value:
        return m.b.op("add", x, m.full(0, extents, dtype))

    case = kernels.apply([extents], [dtype], build)
    usual = codegen.assign

    def given_ones(kernel: Kernel, warps: int, target: Target) -> Assignment:
        found = usual(kernel, warps, target)
        for op in case.kernel.walk():
            if op.name == "load_ptr":
                found.home[op.result] = first
            elif op.name == "store_ptr":
                found.works[op] = second
            elif op.name == "add" and op.result in found.home:
                found.home[op.result] = first
        return found

    with mock.patch.object(codegen, "assign", given_ones):
        compare(case)


def expressions(b: Builder, draw: Any, extents: tuple[int, ...], scalars: dict[Value, int]) -> tuple[Value, np.ndarray]:
    """A tile of integers, and what it is."""
    wide = np.broadcast_to(np.zeros((), np.int64), extents)

    def leaf() -> tuple[Value, np.ndarray]:
        d = draw(st.integers(0, len(extents)))
        if d < len(extents):
            shape = [n if k == d else 1 for k, n in enumerate(extents)]
            return b.broadcast(b.iota(extents[d]), (d,), extents), wide + np.arange(extents[d]).reshape(shape)
        if draw(st.booleans()):
            scalar = draw(st.sampled_from(list(scalars)))
            return b.broadcast(scalar, (), extents), wide + scalars[scalar]
        n = draw(st.integers(0, 40))
        return b.broadcast(b.const(n), (), extents), wide + n

    value, array = leaf()
    for _ in range(draw(st.integers(0, 5))):
        name = draw(
            st.sampled_from(("add", "multiply", "subtract", "remainder", "floor_divide", "minimum", "bitwise_and"))
        )
        other, numbers = leaf()
        if name in ("remainder", "floor_divide"):
            n = 1 << draw(st.integers(0, 5))
            other, numbers = b.broadcast(b.const(n), (), extents), wide + n
        value = b.op(name, value, other)
        array = getattr(np, name)(array, numbers)
    return value, array


@settings(max_examples=150, deadline=None)
@given(st.data(), SHAPES)
def test_what_is_known_of_integers(data: st.DataObject, extents: tuple[int, ...]) -> None:
    draw = data.draw
    b = Builder("kernel")
    b.attrs["aligned"] = ("n",)
    scalars = {
        b.param("n", Type("i64")): 16 * draw(st.integers(0, 9)),
        b.param("m", Type("i64")): draw(st.integers(0, 99)),
    }
    value, array = expressions(b, draw, extents, scalars)
    bound = draw(st.sampled_from(list(scalars)))
    names = ("less", "less_equal", "greater", "greater_equal", "equal")
    masks = [(name, b.op(name, value, b.broadcast(bound, (), extents))) for name in names]
    kernel = b.finish()
    axes = Axes(kernel)
    for d, axis in enumerate(axes[value]):
        rows = np.moveaxis(array, d, -1)
        runs = rows.reshape(*rows.shape[:-1], -1, axis.run)
        assert (runs == runs[..., :1] + np.arange(axis.run)).all()
        assert not (runs[..., 0] % axis.multiple).any()
        same = rows.reshape(*rows.shape[:-1], -1, axis.same)
        assert (same == same[..., :1]).all()
    for name, mask in masks:
        found = getattr(np, name)(array, scalars[bound])
        for d, axis in enumerate(axes[mask]):
            rows = np.moveaxis(found, d, -1)
            same = rows.reshape(*rows.shape[:-1], -1, axis.same)
            assert (same == same[..., :1]).all()
    affine, where = Affine(assign(kernel, 2, TARGET)), draw(layouts(extents))
    places = positions(where, len(extents))
    for r in range(where.registers):
        away = affine.away(value, where, r)
        if away is not None:
            total = sum(n * (1 if s is None else scalars[s]) for s, n in away.items())
            assert (array[tuple(places[r].T)] - array[tuple(places[0].T)] == total).all()


def test_rows_of_descriptors_begin_at_multiples_of_16_bytes() -> None:
    b = Builder("descriptor")
    b.param("x", Type("f16", pointer=True))
    stride = b.param("x.stride0", Type("i64"))
    b.attrs["pitched"] = ("x.stride0",)
    assert Axes(b.finish())[stride][0].multiple == 8
