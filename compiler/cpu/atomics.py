"""Atomic operations on one element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes
from ..ir import Op
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import V
from .memory import parts

if TYPE_CHECKING:
    from .codegen import Codegen

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_JOINS = {"add": "add", "max": "maximum", "min": "minimum"}


def one(code: Codegen, op: Op, where: V, value: Register, compare: Register | None) -> Register:
    """Join `value` with the element at an address; what was there before."""
    t, dtype, kind = code.t, op.result.type.dtype, op.attrs["kind"]
    order = _ORDERS[op.attrs["order"]]
    bits = f"i{8 * dtypes.SIZE[dtype]}"

    def raw(reg: Register) -> V:
        (v,) = parts(to_memory(t, reg, dtype))
        return t.cast("bitcast", v, bits)

    def held(v: V) -> Register:
        return from_memory(t, t.cast("bitcast", v, memory_type(dtype)), dtype)

    def exchange(old: V, new: V) -> V:
        """Put `new` where `old` is: what was there, and whether that was `old`."""
        failure = "acquire" if order in ("acquire", "acq_rel") else "monotonic"
        return t.op(f"cmpxchg ptr {where.ref}, {old}, {new} {order} {failure}", f"{{{bits}, i1}}")

    def field(pair: V, k: int) -> V:
        return t.op(f"extractvalue {pair}, {k}", bits if k == 0 else "i1")

    if kind == "cas":
        assert compare is not None
        return held(field(exchange(raw(compare), raw(value)), 0))
    if kind == "xchg" or dtype in dtypes.INTEGER:
        name = f"u{kind}" if kind in ("max", "min") and dtype in dtypes.UNSIGNED else kind
        return held(t.op(f"atomicrmw {name} ptr {where.ref}, {raw(value)} {order}", bits))
    # Others may change it between the load and the exchange: then it is tried again.
    first = t.op(f"load atomic {bits}, ptr {where.ref} monotonic, align {dtypes.SIZE[dtype]}", bits)
    entry, head, done = t.block, t.new_label("again"), t.new_label("joined")
    t.br(head)
    t.label(head)
    found = V(t.fresh("found"), bits)
    old = t.phi(bits, (first, entry), (found, head))
    top = len(t.lines)
    joined = code.combine(_JOINS[kind], [held(old), value], [dtype, dtype], dtype)
    pair = exchange(old, raw(joined))
    t.line(f"{found.ref} = extractvalue {pair}, 0")
    if t.block != head:  # the sum of some dtypes takes several blocks
        t.lines[top - 1] = t.lines[top - 1].replace(f"[{found.ref}, %{head}]", f"[{found.ref}, %{t.block}]")
    t.br_if(field(pair, 1), done, head)
    t.label(done)
    return held(old)
