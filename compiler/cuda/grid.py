"""Where a block is: the positions of its threads, and the programs that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import GridAxis
from ..llvm.text import V
from . import lookback
from .memory import i32, i64

if TYPE_CHECKING:
    from .codegen import Codegen


def threads(code: Codegen) -> V:
    """Find the thread's number and first positions; gives the number of the block's first program."""
    t = code.t
    code.thread = code.tid = _special(code, "tid.x")
    if code.layout.cluster > 1:
        code.cluster_barrier("arrive.relaxed")
        # The thread's number in the cluster.
        before = t.bin("mul", _special(code, "cluster.ctarank"), i32(code.layout.threads))
        code.tid = t.bin("or", before, code.tid)
        linear = _special(code, "clusterid.x")
    elif code.goes_on:
        linear = lookback.ticket(code)
    else:
        linear = _special(code, "ctaid.x")
    code.first = {}
    for name, split in code.layout.splits.items():
        number = code.tid
        if split.shift:
            number = t.bin("lshr", number, i32(split.shift))
        number = t.bin("and", number, i32(split.threads - 1))
        code.first[name] = t.bin("mul", number, i32(split.vector)) if split.vector > 1 else number
    return linear


def place(code: Codegen, linear: V) -> None:
    """Find a program's place on each grid axis, and the extents of its tile."""
    t, kernel = code.t, code.kernel
    code.program = linear
    places: list[V] = []
    for number in reversed(range(len(kernel.grid))):
        axis = kernel.grid[number]
        if number == 0:
            places.append(linear)
            break
        count = _count(code, axis)
        places.append(t.bin("urem", linear, count))
        linear = t.bin("udiv", linear, count)
    code.places = [t.cast("zext", p, "i64") for p in reversed(places)]
    code.extents = {}
    for name, dim in kernel.dims.items():
        size = code.integer(dim.size)
        if dim.block is not None:
            left = t.bin("sub", size, code.start(name))
            size = t.call("llvm.smin.i64", "i64", [i64(dim.block), left])
        code.extents[name] = size


def _count(code: Codegen, axis: GridAxis) -> V:
    """Programs along a grid axis."""
    t, size = code.t, code.integer(axis.size)
    if axis.block != 1:
        size = t.bin("udiv", t.bin("add", size, i64(axis.block - 1)), i64(axis.block))
    return t.cast("trunc", size, "i32")


def walk(code: Codegen, program: V) -> None:
    """The body for one program after another, which is loaded while the one before it is computed."""
    t = code.t
    total = i32(1)
    for axis in code.kernel.grid:
        total = t.bin("mul", total, _count(code, axis))
    step = _special(code, "nclusterid.x" if code.layout.cluster > 1 else "nctaid.x")
    code.meet()
    with code.scope():
        place(code, program)
        code.ahead.start()
    cell = code.alloca("i32")
    t.line(f"store {program}, {cell}")
    head, body, load_, loaded, done = (t.new_label(k) for k in ("head", "program", "ahead", "loaded", "done"))
    t.br(head)
    t.label(head)
    program = t.op(f"load i32, {cell}", "i32")
    t.br_if(t.cmp("ult", program, total), body, done)
    t.label(body)
    behind = t.bin("add", program, step)
    barriers, code.reused = code.barriers, False
    with code.scope():
        code.ahead.finish()
        t.br_if(t.cmp("ult", behind, total), load_, loaded)
        t.label(load_)
        with code.scope():
            place(code, behind)
            code.ahead.start()
        t.br(loaded)
        t.label(loaded)
        place(code, program)
        code.versions()
    if code.reused or code.barriers - barriers < 2:
        # Else all have read an exchange when the next program's is written: another one is between.
        code.barrier()
    t.line(f"store {behind}, {cell}")
    t.br(head)
    t.label(done)


def _special(code: Codegen, name: str) -> V:
    return code.t.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [], "nounwind memory(none)")
