"""Tiles of products that the copy engine stores: each group of warps stages its rows in shared memory, and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import Op
from ...llvm.text import V
from .. import memory
from ..memory import i32, i64
from . import handlers, layout, wgmma
from .assign import extents_of
from .axes import constant
from .panel import ALIGNMENT, ROWS, Panel

if TYPE_CHECKING:
    from .specialised import Specialised

#: Columns and rows that the copy engine moves at a time, and bytes of a row.
SIDE, ROW = 64, 128


class Sending:
    """The stores of one kernel that the copy engine makes, with their staging areas."""

    def __init__(self, code: Specialised, sends: bool) -> None:
        self.code = code
        self.maps: dict[Op, dict[str, Any]] = {}
        #: Where each store's tile is staged.
        self.places: dict[Op, int] = {}
        if code.blocks == 2 or not sends:
            # Blocks that share a processor store while others compute; they need the room.
            return
        for op in code.kernel.walk():
            if op.name == "store_view" and (found := self._map(op)) is not None:
                self.maps[op] = found

    def place(self, start: int) -> int:
        """Place staging areas behind `start`, and tell where they end."""
        for op in self.maps:
            self.places[op] = -(-start // ALIGNMENT) * ALIGNMENT
            start = self.places[op] + self._panel(op).nbytes
        return start

    def _panel(self, op: Op) -> Panel:
        rows, columns = extents_of(op.operands[0])
        return Panel(rows, columns, 2)

    def _map(self, op: Op) -> dict[str, Any] | None:
        from .specialised import far_map

        code, (value, pointer) = self.code, op.operands[:2]
        extents = extents_of(value)
        if pointer.type.dtype not in ("f16", "bf16") or len(extents) != 2 or min(extents) < SIDE:
            return None
        sums = wgmma.rows_of(extents, code.warps)
        if code.home.get(value) != sums or constant(op.operands[4]) != 1:
            return None
        if 8 << sum(1 for d, b in sums.regs if d == 1 and b >= 3) < SIDE:
            return None
        return far_map(code.kernel, pointer, op.operands[3], SIDE, SIDE)

    def store(self, op: Op) -> None:
        """Store a tile: by the copy engine if it lies within its bounds, else by the threads."""
        from .specialised import fits

        code, t = self.code, self.code.t
        value = op.operands[0]
        extents = extents_of(value)
        tile = code.tile(value)
        offset = code.integer(op.operands[2])
        bounds = [code.integer(v) for v in op.operands[5:7]]
        whole = fits(code, offset, extents[1], extents, bounds)
        labels = [t.new_label("whole"), t.new_label("cut")]
        done = t.new_label("stored")
        with code.region():
            t.br_if(whole, *labels)
            t.label(labels[0])
            self._send(op, tile, offset)
            t.br(done)
            t.label(labels[1])
            code.exchanged = None
            handlers.HANDLERS[op.name](code, op)
            t.br(done)
            t.label(done)

    def _send(self, op: Op, tile: list[Any], offset: V) -> None:
        code, t = self.code, self.code.t
        pointer, sums = op.operands[1], code.layout_of(op.operands[0])
        panel = self._panel(op)
        columns = 8 << sum(1 for d, b in sums.regs if d == 1 and b >= 3)
        group = t.bin("lshr", code.thread, i32(layout.LANES + wgmma.GROUP_BITS))
        own = sums.warps[wgmma.GROUP_BITS :]
        down = sum(1 for bit in own if bit is not None and bit[0] == 0)
        row = t.bin("mul", t.bin("and", group, i32((1 << down) - 1)), i32(SIDE))
        column = t.bin("mul", t.bin("lshr", group, i32(down)), i32(columns))
        base = t.bin("add", code.base, i32(self.places[op]))
        # Of the group: where its rows begin in the first of its boxes.
        first = t.bin("add", base, t.bin("mul", row, i32(ROW)))
        first = t.bin("add", first, t.bin("mul", t.bin("lshr", column, i32(6)), i32(panel.box)))
        number = t.bin("add", group, i32(2))
        with t.if_(code.leads):
            code._act("cp.async.bulk.wait_group.read 0;")
        code._act("bar.sync $0, 128;", number)
        lane, warp = code.lane, t.bin("and", code.warp, i32(3))
        low = t.bin("and", lane, i32(ROWS - 1))
        line = t.bin("add", t.bin("and", lane, i32(15)), t.bin("mul", warp, i32(16)))
        start = t.bin("add", first, t.bin("mul", line, i32(ROW)))
        half = t.bin("lshr", lane, i32(4))
        chunks = [t.bin("shl", t.bin("xor", t.bin("add", half, i32(2 * q)), low), i32(4)) for q in range(SIDE // 16)]
        places = [t.bin("add", start, chunk) for chunk in chunks]
        each = columns // 2
        repeats = sums.registers // each
        rows = [sums.offset(r * each, 0) for r in range(repeats)]
        for r, away in enumerate(rows):
            for q in range(columns // 16):
                k = r * each + 8 * q
                words = memory.pack(t, tile[k : k + 8], pointer.type.dtype, "i32")
                box, inside = divmod(q, SIDE // 16)
                at = t.bin("add", places[inside], i32(box * panel.box + away * ROW))
                code._act("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", at, *words)
        code._act("fence.proxy.async.shared::cta;")
        code._act("bar.sync $0, 128;", number)
        name = code.names[len(code.streams) + list(self.maps).index(op)]
        assert name is not None
        with t.if_(code.leads):
            stride = code.integer(op.operands[3])
            stride = stride if stride.ty == "i64" else t.cast("sext", stride, "i64")
            begin = t.bin("add", offset, t.bin("mul", t.cast("zext", row, "i64"), stride))
            begin = t.bin("add", begin, t.cast("zext", column, "i64"))
            for away in rows:
                there = t.cast("trunc", t.bin("add", begin, t.bin("mul", stride, i64(away))), "i32")
                for box in range(columns // SIDE):
                    place = [t.bin("add", there, i32(box * SIDE)), i32(0)]
                    code._send(name, t.bin("add", first, i32(box * panel.box + away * ROW)), place)
            code._act("cp.async.bulk.commit_group;")

    def finish(self) -> None:
        """Before the block ends: what is under way has been read, and written."""
        if self.maps:
            with self.code.t.if_(self.code.leads):
                self.code._act("cp.async.bulk.wait_group 0;")
