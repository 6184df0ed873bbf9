"""Strips of more elements than a thread has registers for: 16-bit values, of which two fit into one.

Such a strip goes run by run, a run being the elements of one vector.  Of a run, what a later strip needs and would be
dear to compute again waits in pairs, loads among it; the rest is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes, ops
from ..ir import Op, Value
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import Text, V, element
from . import accesses
from .layout import REGISTERS
from .memory import parts

if TYPE_CHECKING:
    from .codegen import Codegen
    from .reduction import Reduction

#: Values at least this dear (in additions) wait rather than being computed again.
DEAR = 7


class Packed(NamedTuple):
    """One of two elements in a word, which is replaced at every barrier."""

    word: list[V]
    lane: int
    dtype: str

    def get(self, t: Text) -> Register:
        ty = memory_type(self.dtype, 2)
        pair = t.op(f"bitcast {self.word[0]} to {ty}", ty)
        return from_memory(t, t.op(f"extractelement {pair}, i64 {self.lane}", element(ty)), self.dtype)


def is_large(code: Codegen, extents: tuple[int | str, ...]) -> bool:
    """Whether a thread has too many of a tile's elements to hold them singly."""
    return code.count(extents) > REGISTERS and code.goes_on is None


def run_strip(code: Codegen, roots: list[Op], across: Sequence[Reduction], effects: Sequence[Op]) -> None:
    """Emit a strip whose roots are large, up to the end of what its threads do alone."""
    needed = code.needed(roots)
    large = [op for op in needed if is_large(code, op.result.type.extents)]
    code.compute([op for op in needed if op not in large], ())
    kept = [op for op in large if _waits(code, op)]
    extents = code.loop_extents(roots[0])
    for run in _runs(code, extents):
        with code.scope():
            code.emit_points(large, run)
            for r in across:
                r.update(run)
            # Unrounded values beside the rounded ones would take registers.
            code.t.unrounded.clear()
            for op in effects:
                accesses.effect(code, op, run)
            packed = [(op.result, point, p) for op in kept for point, p in _pack(code, op.result, run)]
        for value, point, p in packed:
            code.define(code.key(value, point), p)
    for op in kept:
        code.define(("all", op), True)


def settle(code: Codegen) -> None:
    """After a barrier: keep LLVM from unpacking before it what is used behind it."""
    for word in code.packed:
        word[0] = code.t.op(f'call i32 asm "", "=r,0"({word[0]})', "i32")


def _waits(code: Codegen, op: Op) -> bool:
    if op.result.type.dtype not in dtypes.NARROW or op not in code.later:
        return False
    row = ops.TABLE.get(op.name)
    return op.name in ("load_view", "load_ptr") or (row is not None and row.cost >= DEAR)


def _runs(code: Codegen, extents: tuple[int | str, ...]) -> Iterator[list[dict[str, int]]]:
    points = list(code.points(extents))
    lane = str(code.layout.lane)
    vector = max(code.layout.splits[lane].vector, 2)
    runs: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for point in points:
        key = tuple([r // vector if name == lane else r for name, r in point.items()])
        runs.setdefault(key, []).append(point)
    yield from runs.values()


def _pack(code: Codegen, value: Value, run: list[dict[str, int]]) -> Iterator[tuple[dict[str, int], Packed]]:
    t, dtype = code.t, value.type.dtype
    assert dtypes.SIZE[dtype] == 2
    ty = memory_type(dtype, 2)
    for pair in (run[k : k + 2] for k in range(0, len(run), 2)):  # the last one may be alone
        whole = V("poison", ty)
        for lane, point in enumerate(pair):
            whole = t.insert(whole, parts(to_memory(t, code.get(value, point), dtype))[0], lane)
        word = [t.op(f"bitcast {whole} to i32", "i32")]
        code.packed.append(word)
        for lane, point in enumerate(pair):
            yield point, Packed(word, lane, dtype)
