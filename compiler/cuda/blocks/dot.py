"""Products: the layouts that they want, and their code.

Those that tensor cores take are in wgmma.py and mma.py.  Here is the simplest form, for all types: operands lie in
shared memory, and each thread adds up its elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import dtypes
from ...ir import Kernel, Op, Value
from ...llvm.convert import Register, convert, register_type, round_to
from ...llvm.text import V
from .. import memory
from ..memory import at, i32, i64, parts
from . import layout, mma, wgmma
from .axes import extents_of
from .exchange import place
from .layout import Layout, pieces

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: Products of elements that a thread's code has in a row.
UNROLLED = 256


def layouts(walk: Any, op: Op) -> tuple[Layout, list[Layout | None]]:
    """The home of a product, and the layouts that it wants its operands in; None: any."""
    extents = extents_of(op.result)
    if wgmma.takes(op, walk.warps, walk.target):
        sums = wgmma.rows_of(extents, walk.warps)
        return sums, [wgmma.first_of(op.operands[0], sums), _second(op, walk.warps), sums]
    if kinds := mma.multiplied(op, walk.target):
        sums = mma.sums_of(extents, walk.warps, walk.chained)
        first = mma.fragment(extents_of(op.operands[0]), sums, False, kinds[0])
        return sums, [first, _second(op, walk.warps, kinds[1]), sums]
    vector = min(2, max(0, sum(map(layout.log2, extents)) - walk.threads))
    found = layout.blocked(extents, walk.warps, vector)
    return found, [None, None, found]


def _second(op: Op, warps: int, dtype: str | None = None) -> Layout | None:
    """The layout in which a second operand is put into shared memory that is made of what was copied there; None: any.

    Without a `dtype` as which single warps multiply it, it is one of Hopper's products.
    """
    value = op.operands[1]
    inner = mma.rows_of(value)
    if inner is None or (dtype is None and inner != (dtypes.SIZE[value.type.dtype] == 2)):
        return None
    return mma.put_from(value, warps, dtype or value.type.dtype)


def chained(kernel: Kernel) -> bool:
    """Whether a product's operand is made of another one's sums."""
    made: set[Value] = set()
    for op in kernel.walk():
        if op.name == "dot":
            if any(v in made for v in op.operands[:2]):
                return True
            made.add(op.result)
        elif any(v in made for v in op.operands):
            made.update(op.results)
    return False


def emit(code: Codegen, op: Op) -> None:
    if wgmma.takes(op, code.warps, code.target):
        code.products.emit(op)
        return
    if kinds := mma.multiplied(op, code.target):
        mma.emit(code, op, kinds)
        return
    t, (a, b) = code.t, op.operands[:2]
    dtype = op.result.type.dtype
    wide = "f32" if dtype in dtypes.NARROW else dtype
    home = code.layout_of(op.result)
    rank, depth = len(op.result.type.extents), extents_of(a)[-1]
    if wide in dtypes.COMPLEX:
        raise NotImplementedError(f"kernel @{code.kernel.name}: a product of {wide}")
    sums: Tile = [t.const(0, register_type(wide))] * home.registers
    if len(op.operands) > 2:
        sums = [convert(t, v, dtype, wide) for v in code.tile(op.operands[2], home)]
    sizes = [dtypes.SIZE[v.type.dtype] for v in (a, b)]
    counts = [1 << sum(map(layout.log2, extents_of(v))) for v in (a, b)]
    tiles = [code.tile(v, _own(code, v)) for v in (a, b)]
    second = -(-counts[0] * sizes[0] // 16) * 16
    base = code.exchange(second + counts[1] * sizes[1])
    bases = [base, at(t, base, second)]
    for v, tile, where in zip((a, b), tiles, bases, strict=True):
        _put(code, v, tile, where)
    code.barrier()
    m, n = rank - 2, rank - 1
    # By the dims of the result: what an element of an operand is further away by.
    steps_a, steps_b = _strides(extents_of(a)), _strides(extents_of(b))
    along_a, along_b = {m: steps_a[m]}, {n: steps_b[n]}
    for d in range(m):
        along_a[d], along_b[d] = steps_a[d], steps_b[d]
    starts = [
        place(code, where, _thread(code, home, along), size)
        for where, along, size in zip(bases, (along_a, along_b), sizes, strict=True)
    ]
    each = max(1, min(depth, UNROLLED // home.registers))
    each = 1 << each.bit_length() - 1
    strides = [steps_a[n] * sizes[0], steps_b[m] * sizes[1]]

    def products(sums: Tile, starts: list[V]) -> Tile:
        for k in range(each):
            held: list[dict[int, Register]] = [{}, {}]
            for v, start, size, along, stride, own in zip(
                (a, b), starts, sizes, (along_a, along_b), strides, held, strict=True
            ):
                for r in range(home.registers):
                    away = sum(home.offset(r, d) * s for d, s in along.items()) * size
                    if away not in own:
                        (x,) = memory.load(t, at(t, start, away + k * stride), v.type.dtype, 1)
                        own[away] = convert(t, x, v.type.dtype, wide)
            sums = [
                _add(code, held[0][_away(home, r, along_a, sizes[0])], held[1][_away(home, r, along_b, sizes[1])], s)
                for r, s in enumerate(sums)
            ]
        return sums

    if each == depth:
        sums = products(sums, starts)
    else:
        head, done = t.new_label("products"), t.new_label("done")
        before = t.block
        t.br(head)
        t.label(head)
        names = [V(t.fresh("s"), parts(s)[0].ty) for s in sums]
        k = V(t.fresh("k"), "i32")
        top = len(t.lines)
        wide_k = t.cast("zext", k, "i64")
        there = [at(t, p, t.bin("mul", wide_k, i64(s))) for p, s in zip(starts, strides, strict=True)]
        found = products(list(names), there)
        after = t.bin("add", k, i32(each))
        t.br_if(t.cmp("slt", after, i32(depth)), head, done)
        phis = [
            f"  {x.ref} = phi {x.ty} [{parts(start)[0].ref}, %{before}], [{parts(next_)[0].ref}, %{t.block}]"
            for x, start, next_ in zip([k, *names], [i32(0), *sums], [after, *found], strict=True)
        ]
        t.lines[top:top] = phis
        t.label(done)
        sums = found
    code.exchange_end()
    if wide != dtype:
        sums = [round_to(t, parts(s)[0], dtype) for s in sums]
    code.define(op.result, sums)


def _own(code: Codegen, value: Value) -> Layout:
    """An operand's home; of a flexible one, any layout."""
    found = code.home.get(value)
    return layout.blocked(extents_of(value), code.warps) if found is None else found


def _strides(extents: tuple[int, ...]) -> list[int]:
    found = [1] * len(extents)
    for d in reversed(range(len(extents) - 1)):
        found[d] = found[d + 1] * extents[d + 1]
    return found


def _put(code: Codegen, value: Value, tile: Tile, base: V) -> None:
    """Write an operand to shared memory, row after row."""
    given, dtype = _own(code, value), value.type.dtype
    size = dtypes.SIZE[dtype]
    strides = dict(enumerate(_strides(extents_of(value))))
    start = place(code, base, _thread(code, given, strides), size)
    for r, v in enumerate(tile):
        memory.store(code.t, [v], start, dtype, code.writer(given), _away(given, r, strides, size))


def _thread(code: Codegen, given: Layout, strides: dict[int, int]) -> V:
    """A thread's part of an element's number."""
    t, total = code.t, i32(0)
    for d, s in strides.items():
        if pieces(given, d):
            total = t.bin("add", total, t.bin("mul", code.first(given, d), i32(s)))
    return total


def _away(given: Layout, register: int, strides: dict[int, int], size: int) -> int:
    return sum(given.offset(register, d) * s for d, s in strides.items()) * size


def _add(code: Codegen, x: Register, y: Register, total: Register) -> V:
    t = code.t
    (a,), (b,), (c,) = parts(x), parts(y), parts(total)
    if c.ty in ("float", "double"):
        return t.fma(a, b, c)
    return t.bin("add", t.bin("mul", a, b), c)
