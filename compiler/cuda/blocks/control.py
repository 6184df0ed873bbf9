"""Loops and branches: what they carry is in registers, joined by phis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Op, Value
from ...llvm.convert import register_type
from ...llvm.text import V
from .. import memory
from ..memory import join, parts
from . import atomic

if TYPE_CHECKING:
    from .codegen import Codegen, Tile


def _names(code: Codegen, values: Sequence[Value]) -> list[V]:
    """Names for all registers of tiles, which become the values' own."""
    found: list[V] = []
    for value in values:
        ty, count = register_type(value.type.dtype), 2 if value.type.dtype in dtypes.COMPLEX else 1
        tile: Tile = []
        for _ in range(code.layout_of(value).registers):
            pieces = [V(code.t.fresh("c"), ty) for _ in range(count)]
            tile.append(join(pieces))
            found += pieces
        code.depth[value] = code.level
        code.define(value, tile)
    return found


def _pieces(code: Codegen, values: Sequence[Value], like: Sequence[Value]) -> list[V]:
    """All registers of some values, in the layouts of others."""
    return [v for x, y in zip(values, like, strict=True) for reg in code.tile(x, code.layout_of(y)) for v in parts(reg)]


def _phis(names: Sequence[V], *edges: tuple[Sequence[V], str]) -> list[str]:
    return [
        f"  {name.ref} = phi {name.ty} " + ", ".join(f"[{values[k].ref}, %{label}]" for values, label in edges)
        for k, name in enumerate(names)
    ]


def for_(code: Codegen, op: Op) -> None:
    t, (body,) = code.t, op.regions
    lower, upper, step = (code.integer(v) for v in op.operands[:3])
    index, carried = body.args[0], body.args[1:]
    starts = _pieces(code, op.operands[3:], carried)
    head, inside, done = t.new_label("head"), t.new_label("body"), t.new_label("done")
    constant = op.operands[2].op
    down = constant is not None and constant.name == "const" and constant.attrs["value"] < 0
    with code.region(loop=True):
        names = _names(code, [index, *carried])
        # As the loop's head has them: waiting for products gives them other registers.
        heads = [code.tiles[arg] for arg in carried]
        t.br(head)
        t.label(head)
        top = len(t.lines)
        t.br_if(t.cmp("sgt" if down else "slt", names[0], upper), inside, done)
        t.label(inside)
        code.products.begin_round(op)
        code.block(body)
        code.products.end_round(op)
        nexts = _pieces(code, body.ops[-1].operands, carried)
        nexts = [t.bin("add", names[0], step), *nexts]
        latch = t.block
        t.br(head)
        before = code.regions[-2].block
        t.lines[top:top] = _phis(names, ([lower, *starts], before), (nexts, latch))
        t.label(done)
    for v, head_ in zip(op.results, heads, strict=True):
        code.define(v, head_)


def while_(code: Codegen, op: Op) -> None:
    if atomic.is_wait(op):
        atomic.wait(code, op)
        return
    t, (first, second) = code.t, op.regions
    starts = _pieces(code, op.operands, first.args)
    head, inside, done = t.new_label("head"), t.new_label("body"), t.new_label("done")
    with code.region(loop=True):
        names = _names(code, first.args)
        t.br(head)
        t.label(head)
        top = len(t.lines)
        code.block(first)
        condition, *passed = first.ops[-1].operands
        for v, arg in zip(passed, second.args, strict=True):
            code.depth[arg] = code.level
            code.define(arg, code.tile(v, code.layout_of(arg)))
        t.br_if(code.integer(condition), inside, done)
        t.label(inside)
        code.block(second)
        nexts = _pieces(code, second.ops[-1].operands, first.args)
        latch = t.block
        t.br(head)
        before = code.regions[-2].block
        t.lines[top:top] = _phis(names, (starts, before), (nexts, latch))
        t.label(done)
    for v, arg in zip(op.results, second.args, strict=True):
        code.define(v, code.tiles[arg])


def if_(code: Codegen, op: Op) -> None:
    t = code.t
    condition = code.integer(op.operands[0])
    labels = [t.new_label("then"), t.new_label("else")]
    done = t.new_label("done")
    edges: list[tuple[list[V], str]] = []
    with code.region():
        t.br_if(condition, *labels)
        for label, region in zip(labels, op.regions, strict=True):
            t.label(label)
            code.exchanged = None
            code.block(region)
            pairs = zip(region.ops[-1].operands, op.results, strict=True)
            edges.append(([w for v, result in pairs for w in _words(code, v, result)], t.block))
            t.br(done)
        t.label(done)
    names = [V(t.fresh("c"), w.ty) for w in edges[0][0]]
    t.lines += _phis(names, *edges)
    rest = iter(names)
    for v in op.results:
        code.depth[v] = code.level
        code.define(v, _elements(code, v, rest))


def _is_packed(code: Codegen, value: Value) -> bool:
    """Whether elements of a tile are joined in pairs: a register holds two."""
    return value.type.dtype in ("f16", "bf16") and code.layout_of(value).registers > 1


def _words(code: Codegen, value: Value, result: Value) -> list[V]:
    """What branches join of a value to make a result."""
    if not _is_packed(code, result):
        return _pieces(code, [value], [result])
    return memory.pack(code.t, code.tile(value, code.layout_of(result)), result.type.dtype, "i32")


def _elements(code: Codegen, result: Value, words: Iterator[V]) -> Tile:
    """The inverse of `_words`."""
    registers, dtype = code.layout_of(result).registers, result.type.dtype
    if _is_packed(code, result):
        return memory.unpack(code.t, [next(words) for _ in range(registers // 2)], dtype, registers)
    count = 2 if dtype in dtypes.COMPLEX else 1
    return [join([next(words) for _ in range(count)]) for _ in range(registers)]
