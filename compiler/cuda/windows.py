"""Loads of shifted windows of the same memory, as stencils have them: what a thread would read through several of them,
or through one of them at several of its positions, it loads once.

Such loads have one pointer and the same strides, and offsets that differ by whole steps along the tile's dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ir import Kernel, Op, Value
from ..llvm.text import V
from .layout import Facts, Point, is_const, view
from .memory import load

if TYPE_CHECKING:
    from .codegen import Codegen

#: Coefficients by products of values, each sorted.
Polynomial = dict[tuple[Value, ...], int]
#: Positions along the dims, from the thread's first one on.
Cell = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Windows:
    """Loads of windows of the same memory, and how far each is shifted along each of its dims."""

    shifts: dict[Op, Cell]
    #: By whether tiles are whole, and vectors: consecutive cells that are loaded at once, for each of them.
    pieces: dict[tuple[bool, bool], dict[Cell, tuple[Cell, ...]]] = field(default_factory=dict)
    #: Registers of the tile for which each cell is read.
    readers: dict[Cell, set[Cell]] = field(default_factory=dict)

    @property
    def origin(self) -> Op:
        """The load that addresses are counted from."""
        return next(op for op, shift in self.shifts.items() if not any(shift))

    @property
    def shifted(self) -> frozenset[str]:
        """The dims along which there are shifts."""
        extents = self.origin.result.type.extents
        return frozenset(str(e) for k, e in enumerate(extents) if any(shift[k] for shift in self.shifts.values()))


# -- which loads ------------------------------------------------------------------------------------------------------
def find(kernel: Kernel, facts: Facts) -> dict[Op, Windows]:
    """The windows that each load is one of, if it is one of several."""
    alike: dict[Any, list[Windows]] = {}
    for op in kernel.body.ops:
        if op.name != "load_view" or op.attrs.get("bounded") or not op.result.type.extents:
            continue
        pointer, _, strides, extents = view(op)
        key = pointer, tuple([s if (c := _constant(s)) is None else c for s in strides]), extents
        family = alike.setdefault(key, [])
        for windows in family:
            shift = _shift(op, windows.origin)
            if shift is not None:
                windows.shifts[op] = shift
                break
        else:
            family.append(Windows({op: (0,) * len(extents)}))
    found = [w for some in alike.values() for w in some if len(w.shifts) > 1]
    for windows in found:
        # Shifts count from the load that can be made in the widest accesses.
        base = windows.shifts[max(windows.shifts, key=facts.widest)]
        windows.shifts = {op: tuple([a - b for a, b in zip(s, base, strict=True)]) for op, s in windows.shifts.items()}
    return {op: windows for windows in found for op in windows.shifts}


def _constant(value: Value) -> Any:
    return value.op.attrs["value"] if value.op is not None and value.op.name == "const" else None


def _shift(op: Op, origin: Op) -> Cell | None:
    """Steps along each dim from a load's elements to another one's, or None."""
    _, offset, strides, _ = view(op)
    distance = _polynomial(offset)
    for term, c in _polynomial(view(origin)[1]).items():
        distance[term] = distance.get(term, 0) - c
    found = [0] * len(strides)
    for term, c in distance.items():
        if c:
            dim = next((k for k, s in enumerate(strides) if (term == (s,) if term else is_const(s, 1))), None)
            if dim is None:
                return None
            found[dim] += c
    return tuple(found)


def _polynomial(value: Value) -> Polynomial:
    op = value.op
    if op is not None and op.name == "const":
        return {(): op.attrs["value"]}
    if op is None or op.name not in ("add", "subtract", "multiply"):
        return {(value,): 1}
    a, b = (_polynomial(v) for v in op.operands)
    found: Polynomial = {}
    if op.name == "multiply":
        for x, c in a.items():
            for y, d in b.items():
                term = tuple(sorted((*x, *y), key=id))
                found[term] = found.get(term, 0) + c * d
        return found
    sign = 1 if op.name == "add" else -1
    return {term: a.get(term, 0) + sign * b.get(term, 0) for term in {**a, **b}}


# -- their code -------------------------------------------------------------------------------------------------------
def count(code: Codegen, op: Op) -> int:
    """Elements that a load adds to those that are there."""
    windows = code.windows[op]
    cells = {_cell(code, windows, op, point) for point in code.points(op.result.type.extents)}
    return sum(code.lookup((windows, cell)) is None for cell in cells)


def element(code: Codegen, op: Op, point: Point) -> V | tuple[V, V]:
    """A load's element."""
    windows = code.windows[op]
    cell = _cell(code, windows, op, point)
    found = code.lookup((windows, cell))
    if found is None:
        piece = _pieces(code, windows)[cell]
        address = code.address_of(windows.origin, piece[0])
        mask = _mask(code, windows, cell)
        for here, value in zip(piece, load(code.t, address, op.result.type.dtype, len(piece), mask), strict=True):
            code.define((windows, here), value)
        found = code.lookup((windows, cell))
    return found


def _cell(code: Codegen, windows: Windows, op: Op, point: Point) -> Cell:
    names = [str(e) for e in op.result.type.extents]
    return tuple([code.layout.splits[n].offset(point[n]) + s for n, s in zip(names, windows.shifts[op], strict=True)])


def _pieces(code: Codegen, windows: Windows) -> dict[Cell, tuple[Cell, ...]]:
    """The cells that a thread reads, in pieces that one access loads."""
    key = code.whole, code.divisible
    found = windows.pieces.get(key)
    if found is not None:
        return found
    extents = windows.origin.result.type.extents
    windows.readers = {}
    for op in windows.shifts:
        for point in code.points(extents):
            cell = _cell(code, windows, op, point)
            windows.readers.setdefault(cell, set()).add(_registers(code, extents, point))
    windows.readers = {cell: _least(readers) for cell, readers in windows.readers.items()}
    found = windows.pieces[key] = {}
    width, lane = code.width(windows.origin), code.layout.lane
    where = extents.index(lane) if lane in extents else 0
    for cell in sorted(windows.readers):
        if cell in found:
            continue
        n = width
        while n > 1 and not _together(code, windows, _run(cell, where, n), cell[where] % n):
            n //= 2
        piece = _run(cell, where, n)
        found.update(dict.fromkeys(piece, piece))
    return found


def _run(cell: Cell, where: int, n: int) -> tuple[Cell, ...]:
    return tuple([(*cell[:where], cell[where] + k, *cell[where + 1 :]) for k in range(n)])


def _together(code: Codegen, windows: Windows, run: Sequence[Cell], odd: int) -> bool:
    """Whether all of a run is read, whenever one of it is."""
    readers = [windows.readers.get(cell) for cell in run]
    return not odd and None not in readers and (code.whole or all(r == readers[0] for r in readers))


def _registers(code: Codegen, extents: Sequence[int | str], point: Point) -> Cell:
    """A point's registers, a vector that no tile's end cuts counting as its first one."""
    found: list[int] = []
    for e in extents:
        name, vector = str(e), code.layout.splits[str(e)].vector
        register = point[name]
        found.append(register - register % vector if code.whole_vectors(name, vector) else register)
    return tuple(found)


def _least(readers: set[Cell]) -> set[Cell]:
    """Those of which none lies behind another one in all dims: where any is in the tile, one of them is."""
    return {r for r in readers if not any(o != r and all(a <= b for a, b in zip(o, r, strict=True)) for o in readers)}


def _mask(code: Codegen, windows: Windows, cell: Cell) -> V | None:
    """Whether the tile has an element for which a cell is read."""
    if code.whole:
        return None
    t, extents = code.t, windows.origin.result.type.extents
    found: V | None = None
    for registers in sorted(windows.readers[cell]):
        inside = code.mask(extents, dict(zip(map(str, extents), registers, strict=True)))
        assert inside is not None
        found = inside if found is None else t.bin("or", found, inside)
    return found
