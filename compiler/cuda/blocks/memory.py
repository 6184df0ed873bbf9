"""Loads and stores of tiles: whole vectors where they are known to be there, each one predicated instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import dtypes
from ...ir import Op, Value
from ...llvm.convert import Register
from ...llvm.text import V
from .. import memory
from ..memory import at, both, i32, i64, parts
from . import assign
from .axes import constant
from .layout import Layout

if TYPE_CHECKING:
    from .codegen import Codegen


#: Accesses of a thread to one tile whose addresses are left to LLVM.
MANY = 32
#: Modifiers that say what caches keep.
_CACHES = {"load": frozenset(("ca", "cg", "cs", "cv")), "stor": frozenset(("wb", "cg", "cs", "wt"))}


class Access:
    """How a thread accesses its elements of a tile in memory: groups of registers that move together."""

    def __init__(self, code: Codegen, op: Op, given: Layout, most: int = assign.WIDEST) -> None:
        self.code, self.op, self.layout = code, op, given
        self.extents = assign.accessed(op)
        place = assign.pointer_of(op)
        self.pointer, self.rest = op.operands[place], op.operands[place + 1 :]
        #: Where a tile begins that is a part of another one, along each dim.
        self.start = op.attrs.get("start", (0,) * len(self.extents))
        self.dtype = self.pointer.type.dtype
        self.size = dtypes.SIZE[self.dtype]
        self.groups = self._groups(most)
        #: Addresses by what they are a multiple of a scalar further than.
        self.sums: dict[tuple[V, Value, int], V] = {}

    def _groups(self, most: int) -> list[list[int]]:
        """Registers whose elements are consecutive, in groups, each in order."""
        code, given = self.code, self.layout
        rank = len(self.extents)
        found = {d: min(given.run(d), most, assign.width(code.axes, self.op, d)) for d in range(rank)}
        dim = max(found, key=found.__getitem__, default=0)
        return given.groups(dim, found.get(dim, 1))

    def addresses(self) -> list[tuple[V, int]]:
        """Where each group begins: an address, and bytes from there."""
        if self.op.name.endswith("_view"):
            return self._view()
        return [self._address(first) for first, *_ in self.groups]

    def _address(self, register: int) -> tuple[V, int]:
        code, index = self.code, self.rest[0]
        away = code.affine.away(index, self.layout, register)
        if away is None:
            return code.address(self.pointer, index, self.layout, register), 0
        ptr = code.address(self.pointer, index, self.layout, 0)
        for scalar, n in away.items():
            if scalar is not None and n:
                ptr = self._further(ptr, scalar, n * self.size)
        return ptr, away.get(None, 0) * self.size

    def _view(self) -> list[tuple[V, int]]:
        code, t = self.code, self.code.t
        offset, *rest = self.rest
        strides = rest[: len(self.extents)]
        level = max([code.depth[v] for v in (self.pointer, *strides)])
        key = "view", self.pointer, tuple(strides), self.layout

        def thread() -> V:
            total = i64(0)
            for d, s in enumerate(strides):
                first = t.cast("zext", code.first(self.layout, d), "i64")
                total = t.bin("add", total, t.bin("mul", first, code.integer(s)))
            return at(t, code.integer(self.pointer), t.bin("mul", total, i64(self.size)))

        start = at(t, code.memo(key, level, thread), t.bin("mul", code.integer(offset), i64(self.size)))
        found = []
        for first, *_ in self.groups:
            ptr, fixed = start, 0
            for d, s in enumerate(strides):
                away = self.away(first, d) * self.size
                factor = constant(s)
                if factor is not None:
                    fixed += away * factor
                elif away:
                    ptr = self._further(ptr, s, away)
            found.append((ptr, fixed))
        return found

    def _further(self, ptr: V, scalar: Value, factor: int) -> V:
        """An address, a multiple of a scalar further.

        Of many, each is a power of two of it further than another one.  LLVM would find such sums itself, but takes
        time that grows with the square of their number, so that it is not to see where they come from.
        """
        if len(self.groups) <= MANY:
            return self.code.further(ptr, scalar, factor)
        step = factor & -factor
        if step != factor:
            ptr = self._further(ptr, scalar, factor - step)
        key = ptr, scalar, step
        if key not in self.sums:
            found = self.code.further(ptr, scalar, step)
            self.sums[key] = self.code.t.op(f'call {found.ty} asm "", "=l,0"({found})', found.ty)
        return self.sums[key]

    def away(self, register: int, dim: int) -> int:
        """How far along a dim a register's place is from the thread's first one."""
        return self.start[dim] + self.layout.offset(register, dim)

    def masks(self, mask: Value | None) -> list[V | None]:
        """Whether each group is accessed; None: it is."""
        code = self.code
        if self.op.attrs.get("bounded"):
            return self._bounds()
        if mask is None:
            return [None] * len(self.groups)
        if not mask.type.extents:
            return [code.integer(mask)] * len(self.groups)
        return [parts(code.register(mask, self.layout, first))[0] for first, *_ in self.groups]

    def _bounds(self) -> list[V | None]:
        code, t = self.code, self.code.t
        rank = len(self.extents)
        bounds = self.rest[1 + rank : 1 + 2 * rank]
        room = [t.bin("sub", code.saturated(b), code.first(self.layout, d)) for d, b in enumerate(bounds)]
        inside: dict[tuple[int, int], V] = {}
        found: list[V | None] = []
        for first, *_ in self.groups:
            all_: V | None = None
            for d in range(rank):
                key = d, self.away(first, d)
                if key not in inside:
                    inside[key] = t.cmp("slt", i32(key[1]), room[d])
                all_ = both(t, all_, inside[key])
            found.append(all_)
        return found


def hint(op: Op) -> str:
    """The modifier of an access's instruction that its hints make."""
    cache, evict = op.attrs.get("cache", "").lstrip("."), op.attrs.get("evict", "")
    if op.attrs.get("volatile"):
        # Each access happens, in order, as others see it.
        return ".cv"
    if cache in _CACHES[op.name[:4]]:
        return f".{cache}"
    return f".L1::{evict}" if evict in ("evict_first", "evict_last") else ""


def load(code: Codegen, op: Op) -> None:
    given = code.layout_of(op.result)
    access = Access(code, op, given)
    t, dtype = code.t, op.result.type.dtype
    mask = access.rest[1] if op.name == "load_ptr" and len(access.rest) > 1 else None
    masks = access.masks(mask)
    fill = dtypes.cast_array(np.asarray(op.attrs.get("other", 0)), dtypes.NUMPY[dtype]).tobytes()
    tile: list[Register | None] = [None] * given.registers
    loaded = []
    for group, (ptr, beyond), m in zip(access.groups, access.addresses(), masks, strict=True):
        words = memory.load_words(t, ptr, dtype, len(group), m, beyond, hint(op), fill)
        loaded.append((group, words))
    # All loads come before anything that waits for them.
    for group, words in loaded:
        for r, v in zip(group, memory.unpack(t, words, dtype, len(group)), strict=True):
            tile[r] = v
    code.define(op.result, [v for v in tile if v is not None])


def store(code: Codegen, op: Op) -> None:
    value = op.operands[0]
    given = code.works[op] if assign.accessed(op) else code.scalars
    access = Access(code, op, given)
    mask = access.rest[1] if op.name == "store_ptr" and len(access.rest) > 1 else None
    t, writer = code.t, code.writer(given)
    masks, addresses = access.masks(mask), access.addresses()
    own = code.tile(value, given) if value in code.tiles else None
    # One thread writes what others may be about to read, or will read next.
    apart = writer is not None and (access.pointer in code.loaded or access.pointer.op is not None)
    if apart:
        code.synchronize()
    for group, (ptr, beyond), m in zip(access.groups, addresses, masks, strict=True):
        values = [own[r] if own else code.register(value, given, r) for r in group]
        memory.store(t, values, ptr, access.dtype, both(t, m, writer), beyond, hint(op))
    if apart:
        code.synchronize()
