"""Tiles of products that are stored by whole rows: staged in shared memory, where a warp's registers make rows.

The copy engine stores tiles that lie within their bounds, if there are maps by which it finds them: each group of warps
stages its rows and goes on.  Else each warp stages some rows after the other, and stores them by its own threads: 16
bytes at a time, if addresses turn out to allow that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...ir import Op, Value
from ...llvm.text import V
from .. import memory
from ..memory import SHARED, at, both, i32, i64
from . import assign, wgmma
from .assign import extents_of
from .axes import constant
from .layout import LANES, Layout
from .panel import ALIGNMENT, PIECE, ROWS, Panel

if TYPE_CHECKING:
    from .specialised import Specialised

#: Columns and rows that the copy engine moves at a time, and bytes of a row.
SIDE, ROW = 64, 128
#: Rows that a warp has of 64, and bytes of its part of the stage.
OWN = 16
SLICE = OWN * ROW
#: Where the threads of a warp meet.
MEET = "bar.warp.sync 0xffffffff;"


class Part(NamedTuple):
    """A thread's part of a tile: of a group's rows and columns where they begin, and the group's number."""

    row: V
    column: V
    group: V


class Sending:
    """The stores of one kernel by rows, with their staging areas."""

    def __init__(self, code: Specialised, sends: bool) -> None:
        self.code = code
        #: Of the stores by the copy engine.
        self.maps: dict[Op, dict[str, Any]] = {}
        #: Where each of their tiles is staged, and where the rows of others are.
        self.places: dict[Op, int] = {}
        self.slices = 0
        self.by_rows: set[Op] = set()
        # Blocks that share a processor store while others compute; they need the room, and stage where they exchange.
        sends = sends and code.blocks == 1
        for op in code.kernel.walk():
            if op.name == "store_view" and self._has_rows(op):
                if sends and (found := self._map(op)) is not None:
                    self.maps[op] = found
                elif sends or assign.width(code.axes, op, 1) * 2 < PIECE:
                    self.by_rows.add(op)

    def __contains__(self, op: Op) -> bool:
        return op in self.maps or op in self.by_rows

    def place(self, start: int) -> int:
        """Place staging areas behind `start`, and tell where they end."""
        if self.by_rows and self.code.blocks == 1:
            self.slices = -(-start // ROW) * ROW
            start = self.slices + self._size()
        for op in self.maps:
            self.places[op] = -(-start // ALIGNMENT) * ALIGNMENT
            start = self.places[op] + self._panel(op).nbytes
        return start

    def _size(self) -> int:
        """Bytes of all warps' parts of the stage."""
        return self.code.threads // 32 * SLICE

    def _panel(self, op: Op) -> Panel:
        rows, columns = extents_of(op.operands[0])
        return Panel(rows, columns, 2)

    def _has_rows(self, op: Op) -> bool:
        """Whether warps have rows of a tile, of columns enough."""
        code, (value, pointer) = self.code, op.operands[:2]
        extents = extents_of(value)
        if pointer.type.dtype not in ("f16", "bf16") or len(extents) != 2 or min(extents) < SIDE:
            return False
        sums = wgmma.rows_of(extents, code.warps)
        return code.home.get(value) == sums and constant(op.operands[4]) == 1 and _columns(sums) >= SIDE

    def _map(self, op: Op) -> dict[str, Any] | None:
        from .specialised import far_map

        return far_map(self.code.kernel, op.operands[1], op.operands[3], SIDE, SIDE)

    def store(self, op: Op) -> None:
        """Store a tile: by the copy engine, if there is a map and it lies within its bounds, else by the threads."""
        from .specialised import fits

        code, t = self.code, self.code.t
        value = op.operands[0]
        extents = extents_of(value)
        tile, sums = code.tile(value), code.layout_of(value)
        offset = code.integer(op.operands[2])
        group = t.bin("lshr", code.thread, i32(LANES + wgmma.GROUP_BITS))
        down = sum(1 for bit in sums.warps[wgmma.GROUP_BITS :] if bit is not None and bit[0] == 0)
        part = Part(
            t.bin("mul", t.bin("and", group, i32((1 << down) - 1)), i32(SIDE)),
            t.bin("mul", t.bin("lshr", group, i32(down)), i32(_columns(sums))), group,
        )  # fmt: skip
        if op in self.by_rows:
            if code.blocks == 1:
                base = t.bin("add", code.base, i32(self.slices))
            else:
                base = t.op(f"ptrtoint {code.exchange(self._size())} to i32", "i32")
            self._rows(op, tile, offset, part, t.bin("add", base, t.bin("mul", code.warp, i32(SLICE))))
            if code.blocks > 1:
                code.exchange_end()
            return
        bounds = [code.integer(v) for v in op.operands[5:7]]
        with code.region(), t.if_else(fits(code, offset, extents[1], extents, bounds)) as turn:
            first = self._stage(op, part)
            self._send(op, tile, offset, part, first)
            next(turn)
            first = self._stage(op, part)
            warp = t.bin("and", code.warp, i32((1 << wgmma.GROUP_BITS) - 1))
            self._rows(op, tile, offset, part, t.bin("add", first, t.bin("mul", warp, i32(SLICE))))

    def _stage(self, op: Op, part: Part) -> V:
        """Wait until a group's stage is free: where its rows begin in the first of its boxes."""
        code, t = self.code, self.code.t
        base = t.bin("add", code.base, i32(self.places[op]))
        first = t.bin("add", base, t.bin("mul", part.row, i32(ROW)))
        first = t.bin("add", first, t.bin("mul", t.bin("lshr", part.column, i32(6)), i32(self._panel(op).box)))
        with t.if_(code.leads):
            code._act("cp.async.bulk.wait_group.read 0;")
        code._act("bar.sync $0, 128;", t.bin("add", part.group, i32(2)))
        return first

    def _chunks(self, start: V) -> list[V]:
        """Where a thread's part of a matrix's fragments goes, in a box of rows of which its own begins at `start`."""
        t, lane = self.code.t, self.code.lane
        low, half = t.bin("and", lane, i32(ROWS - 1)), t.bin("lshr", lane, i32(4))
        turned = [t.bin("xor", t.bin("add", half, i32(2 * q)), low) for q in range(SIDE // 16)]
        return [t.bin("add", start, t.bin("shl", x, i32(4))) for x in turned]

    def _write(self, op: Op, tile: list[Any], register: int, to: V) -> None:
        """Write 16 columns of a warp's rows."""
        words = memory.pack(self.code.t, tile[register : register + 8], op.operands[1].type.dtype, "i32")
        self.code._act("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", to, *words)

    # -- by the copy engine -------------------------------------------------------------------------------------------
    def _send(self, op: Op, tile: list[Any], offset: V, part: Part, first: V) -> None:
        code, t = self.code, self.code.t
        sums, panel = code.layout_of(op.operands[0]), self._panel(op)
        columns = _columns(sums)
        warp = t.bin("and", code.warp, i32((1 << wgmma.GROUP_BITS) - 1))
        line = t.bin("add", t.bin("and", code.lane, i32(OWN - 1)), t.bin("mul", warp, i32(OWN)))
        places = self._chunks(t.bin("add", first, t.bin("mul", line, i32(ROW))))
        each = columns // 2
        rows = [sums.offset(r, 0) for r in range(0, sums.registers, each)]
        for r, away in enumerate(rows):
            for q in range(columns // 16):
                box, inside = divmod(q, SIDE // 16)
                to = t.bin("add", places[inside], i32(box * panel.box + away * ROW))
                self._write(op, tile, r * each + 8 * q, to)
        code._act("fence.proxy.async.shared::cta;")
        code._act("bar.sync $0, 128;", t.bin("add", part.group, i32(2)))
        name = code.names[len(code.streams) + list(self.maps).index(op)]
        assert name is not None
        with t.if_(code.leads):
            stride = self._wide(op.operands[3])
            begin = t.bin("add", offset, t.bin("mul", t.cast("zext", part.row, "i64"), stride))
            begin = t.bin("add", begin, t.cast("zext", part.column, "i64"))
            for away in rows:
                there = t.cast("trunc", t.bin("add", begin, t.bin("mul", stride, i64(away))), "i32")
                for box in range(columns // SIDE):
                    place = [t.bin("add", there, i32(box * SIDE)), i32(0)]
                    code._send(name, t.bin("add", first, i32(box * panel.box + away * ROW)), place)
            code._act("cp.async.bulk.commit_group;")

    def _wide(self, value: Value) -> V:
        v = self.code.integer(value)
        return v if v.ty == "i64" else self.code.t.cast("sext", v, "i64")

    def finish(self) -> None:
        """Before the block ends: what is under way has been read, and written."""
        if self.maps:
            with self.code.t.if_(self.code.leads):
                self.code._act("cp.async.bulk.wait_group 0;")

    # -- by threads ---------------------------------------------------------------------------------------------------
    def _rows(self, op: Op, tile: list[Any], offset: V, part: Part, own: V) -> None:
        """Store a warp's rows through its part of the stage, 64 columns of 16 rows at a time."""
        code, t = self.code, self.code.t
        sums, lane = code.layout_of(op.operands[0]), code.lane
        columns = _columns(sums)
        pointer, stride = code.integer(op.operands[1]), t.bin("mul", self._wide(op.operands[3]), i64(2))
        bounds = [self._wide(v) for v in op.operands[5:7]]
        begin = at(t, pointer, t.bin("mul", offset, i64(2)))
        # Rows of 16 bytes, each of which lies within its bounds or not.
        even = t.bin("or", t.op(f"ptrtoint {begin} to i64", "i64"), stride)
        if bounds:
            outside = t.cmp("slt", bounds[1], i64(extents_of(op.operands[0])[1]))
            even = t.bin("or", even, t.select(outside, t.bin("mul", bounds[1], i64(2)), i64(0)))
        even = t.cmp("eq", t.bin("and", even, i64(PIECE - 1)), i64(0))
        warp = t.bin("and", code.warp, i32((1 << wgmma.GROUP_BITS) - 1))
        top = t.cast("zext", t.bin("add", part.row, t.bin("mul", warp, i32(OWN))), "i64")
        left = t.cast("zext", part.column, "i64")
        corner = at(t, begin, t.bin("add", t.bin("mul", top, stride), t.bin("mul", left, i64(2))))
        # What is left of the bounds from there.
        room = [t.bin("sub", bound, first) for bound, first in zip(bounds, (top, left), strict=False)]
        places = self._chunks(t.bin("add", own, t.bin("mul", t.bin("and", lane, i32(OWN - 1)), i32(ROW))))
        each = columns // 2
        for r in range(0, sums.registers, each):
            away = sums.offset(r, 0)
            start = at(t, corner, t.bin("mul", stride, i64(away)))
            below = [t.bin("sub", room[0], i64(away)), room[1]] if room else []
            for box in range(columns // SIDE):
                for q in range(SIDE // 16):
                    self._write(op, tile, r + 8 * (box * SIDE // 16 + q), places[q])
                code._act(MEET)
                with t.if_else(even) as turn:
                    self._store_pieces(own, start, stride, below, box * SIDE)
                    next(turn)
                    self._store_elements(own, start, stride, below, box * SIDE)
                code._act(MEET)

    def _store_pieces(self, own: V, start: V, stride: V, room: list[V], column: int) -> None:
        """Store rows by 16 bytes: eight threads a row."""
        t, lane = self.code.t, self.code.lane
        piece, row = t.bin("and", lane, i32(ROW // PIECE - 1)), t.bin("lshr", lane, i32(3))
        across = t.cast("zext", t.bin("mul", piece, i32(PIECE)), "i64")
        step = 32 * PIECE // ROW
        words = []
        for k in range(0, OWN, step):
            line = t.bin("add", row, i32(k))
            turned = t.bin("xor", piece, t.bin("and", line, i32(ROWS - 1)))
            place = t.bin("add", t.bin("mul", line, i32(ROW)), t.bin("mul", turned, i32(PIECE)))
            source = t.op(f"inttoptr {t.bin('add', own, place)} to {SHARED}", SHARED)
            words.append((line, memory.load_words(t, source, "u32", 4)))
        inside = None
        if room:
            inside = t.cmp("slt", t.bin("add", t.bin("lshr", across, i64(1)), i64(column)), room[1])
        for line, four in words:
            down = t.cast("zext", line, "i64")
            to = at(t, start, t.bin("add", t.bin("mul", down, stride), across))
            mask = both(t, inside, t.cmp("slt", down, room[0])) if room else None
            memory.store(t, four, to, "u32", mask, 2 * column)

    def _store_elements(self, own: V, start: V, stride: V, room: list[V], column: int) -> None:
        """Store rows by single elements, of which a thread has every 32nd."""
        code, t = self.code, self.code.t
        with t.for_(i32(OWN)) as line:
            down = t.cast("zext", line, "i64")
            for k in range(0, SIDE, 32):
                x = t.bin("add", code.lane, i32(k))
                turned = t.bin("xor", t.bin("lshr", x, i32(3)), t.bin("and", line, i32(ROWS - 1)))
                place = t.bin("add", t.bin("mul", line, i32(ROW)), t.bin("mul", turned, i32(PIECE)))
                place = t.bin("add", place, t.bin("mul", t.bin("and", x, i32(7)), i32(2)))
                source = t.op(f"inttoptr {t.bin('add', own, place)} to {SHARED}", SHARED)
                word = t.load(source, "i16", 2)
                across = t.cast("zext", t.bin("add", x, i32(column)), "i64")
                to = at(t, start, t.bin("add", t.bin("mul", down, stride), t.bin("mul", across, i64(2))))
                mask = None
                if room:
                    mask = t.bin("and", t.cmp("slt", across, room[1]), t.cmp("slt", down, room[0]))
                memory.store(t, [word], to, "u16", mask)


def _columns(sums: Layout) -> int:
    """Columns of sums that a group of warps has."""
    return 8 << sum(1 for d, b in sums.regs if d == 1 and b >= 3)
