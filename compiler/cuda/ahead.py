"""Loading ahead: where one block fills a processor, nothing would be loaded while it computes.  Such blocks go from
program to program, and copy what they will read of the next into shared memory while they compute the present one.

Each thread copies its own elements, to places of its own, so that no thread waits for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.text import V
from .memory import SHARED, at, i32, load

if TYPE_CHECKING:
    from .codegen import Codegen

#: Bytes of a copy, and how it goes: past the nearest cache, if it can.
COPIES = {4: "ca", 8: "ca", 16: "cg"}


class Ahead:
    """The loads that are made ahead, with where their elements lie in shared memory."""

    def __init__(self, code: Codegen) -> None:
        self.code = code
        self.areas: dict[Op, int] = {}
        self.nbytes = 0
        if not code.layout.ahead or not all(code.facts.divides_extent(d, n) for d, n in code.vectors().items()):
            return
        written = {op.operands[1] for op in code.kernel.walk() if op.name in ("store_view", "store_ptr")}
        for op in code.kernel.body.ops:
            if op.name != "load_view" or op in code.windows or op.operands[0] in written:
                continue
            if op.result.type.extents != (code.layout.lane,):
                continue
            nbytes = code.layout.threads * code.count(op.result.type.extents) * dtypes.SIZE[op.result.type.dtype]
            per_program = op.operands[1].op is not None and op.operands[1].op.name != "const"
            if per_program and self._size(op) in COPIES and self.nbytes + nbytes <= code.target.shared - code.EXCHANGES:
                self.areas[op] = self.nbytes
                self.nbytes += nbytes

    def _size(self, op: Op) -> int:
        return self.code.width(op) * dtypes.SIZE[op.result.type.dtype]

    def _places(self, op: Op) -> Iterator[tuple[dict[str, int], V]]:
        """The first register of each copy, and its place."""
        code, size = self.code, self._size(op)
        own = at(code.t, V("@shared", SHARED), code.t.cast("zext", code.t.bin("mul", code.thread, i32(size)), "i64"))
        points = [p for p in code.points(op.result.type.extents) if p[str(code.layout.lane)] % code.width(op) == 0]
        for k, point in enumerate(points):
            yield point, at(code.t, own, self.areas[op] + k * size * code.layout.threads)

    def start(self) -> None:
        """Begin to copy what the program at `places` reads."""
        code, t = self.code, self.code.t
        for op in self.areas:
            size = self._size(op)
            name = f"llvm.nvvm.cp.async.{COPIES[size]}.shared.global.{size}.s"
            for point, place in self._places(op):
                mask = code.mask(op.result.type.extents, point)
                read = i32(size) if mask is None else t.select(mask, i32(size), i32(0))
                t.call(name, "void", [place, code.address(op, point), read], "nounwind")

    def finish(self) -> None:
        """Wait for the copies, and read them."""
        code, t = self.code, self.code.t
        t.call("llvm.nvvm.cp.async.wait.all", "void", [], "nounwind")
        for op in self.areas:
            lane, width = str(code.layout.lane), code.width(op)
            for point, place in self._places(op):
                for k, reg in enumerate(load(t, place, op.result.type.dtype, width)):
                    code.define(code.key(op.result, {**point, lane: point[lane] + k}), reg)
            code.define(("all", op), True)
