"""Atomic operations: each element once, by the first thread of those that hold it; the others hear what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import dtypes
from ...ir import Op
from ...llvm.convert import Register, from_memory, memory_type, to_memory
from ...llvm.text import V
from ..memory import at, both, parts, select
from . import assign
from .exchange import broadcast
from .memory import Access

if TYPE_CHECKING:
    from .codegen import Codegen, Tile

#: The instruction's operation by kind, of integers.
_BITS = {"and": "and.b", "or": "or.b", "xor": "xor.b", "xchg": "exch.b", "cas": "cas.b"}
_LETTERS = {16: "h", 32: "r", 64: "l"}


def atomic(code: Codegen, op: Op) -> None:
    t, attrs = code.t, op.attrs
    value_count = assign.pointer_of(op)
    extents = assign.accessed(op)
    given = code.works[op] if extents else code.scalars
    # A scalar's is one instruction with the order and scope asked for; of many elements, the fastest that will do.
    used = op.result in code.used or not extents
    order, scope = attrs["order"], _scope(op)
    # Who does not look at what was there learns nothing from it.
    releases, acquires = order in ("release", "acq_rel"), used and order in ("acquire", "acq_rel")
    if releases and not extents:
        # What all threads have written comes before.
        code.synchronize()
    access = Access(code, op, given, 1)
    masks = access.masks(access.rest[1] if len(access.rest) > 1 else None)
    addresses, writer = access.addresses(), code.writer(given)
    # One fence serves several elements.
    single = given.registers == 1
    if releases and not single:
        _fence(code, scope)
    within = ("acq_rel" if acquires else "release") if releases else "acquire" if acquires else "relaxed"
    how = (within if single else "relaxed"), scope
    values = [code.tile(v, given if extents else None) for v in op.operands[:value_count]]
    found: Tile = [
        _one(code, op, [x[r] for x in values], at(t, ptr, beyond), both(t, m, writer), how, used)
        for r, ((ptr, beyond), m) in enumerate(zip(addresses, masks, strict=True))
    ]
    if acquires and not single:
        _fence(code, scope)
    if op.result in code.used:
        code.define(op.result, broadcast(code, found, op.result.type.dtype, given.replicas))


def _scope(op: Op) -> str:
    return {"sys": "sys", "cta": "cta"}.get(op.attrs["scope"], "gpu")


def is_wait(op: Op) -> bool:
    """Whether a `while` does nothing but try an atomic operation on a scalar until it finds what it waits for."""
    first, second = op.regions
    tries = [inner for inner in first.ops if inner.name == "atomic"]
    others = [inner for inner in first.ops[:-1] if inner not in tries]
    plain = all(inner.name == "const" or assign.is_elementwise(inner) for inner in others)
    scalar = not any(v.type.extents for inner in first.ops for v in (*inner.operands, *inner.results))
    return not first.args and len(second.ops) == 1 and len(tries) == 1 and plain and scalar


def wait(code: Codegen, op: Op) -> None:
    """One thread tries, as fast as it can; the others wait for it."""
    t, block = code.t, op.regions[0]
    attempt = next(inner for inner in block.ops if inner.name == "atomic")
    order, scope = attempt.attrs["order"], _scope(attempt)
    if order in ("release", "acq_rel"):
        code.synchronize()
    tries, head, done = t.new_label("tries"), t.new_label("head"), t.new_label("done")
    alone = code.writer(code.scalars)
    assert alone is not None
    with code.region(loop=True):
        t.br_if(alone, tries, done)
        t.label(tries)
        if order == "acq_rel":
            # The loop writes nothing else, so what was written is released once.
            _fence(code, scope)
            order = "acquire"
        t.br(head)
        t.label(head)
        for inner in block.ops[:-1]:
            if inner is attempt:
                _try(code, inner, (order, scope))
            else:
                code.op(inner)
        t.br_if(code.integer(block.ops[-1].operands[0]), head, done)
        t.label(done)
    code.synchronize()


def _try(code: Codegen, op: Op, how: tuple[str, str]) -> None:
    """A scalar's operation by this thread."""
    access = Access(code, op, code.scalars, 1)
    ((ptr, beyond),) = access.addresses()
    (mask,) = access.masks(access.rest[1] if len(access.rest) > 1 else None)
    values = [code.scalar(v) for v in op.operands[: assign.pointer_of(op)]]
    code.depth[op.result] = code.level
    code.define(op.result, [_one(code, op, values, at(code.t, ptr, beyond), mask, how, True)])


def _fence(code: Codegen, scope: str) -> None:
    code.t.line(f'call void asm sideeffect "fence.acq_rel.{scope};", "~{{memory}}"()')


def _one(
    code: Codegen, op: Op, values: list[Register], ptr: V, mask: V | None, how: tuple[str, str], used: bool
) -> Register:
    """An element's operation; what was there before."""
    t, kind, dtype = code.t, op.attrs["kind"], op.result.type.dtype
    mask = mask or V("true", "i1")
    if kind in ("max", "min") and dtype in ("f32", "f64"):
        return _extremum(code, kind, values[0], ptr, mask, dtype, how, used)
    bits = 8 * dtypes.SIZE[dtype]
    what = _instruction(code, kind, dtype)
    if what is None and kind in ("max", "min") and dtype in ("f16", "bf16") and code.target.sm >= 80:
        word = t.cast("bitcast", parts(to_memory(t, values[0], dtype))[0], "i16")
        found = _retried(code, f"{kind}.{dtype}", word, ptr, mask, how)
        return from_memory(t, t.cast("bitcast", found, memory_type(dtype)), dtype)
    if what is None:
        raise NotImplementedError(f"kernel @{code.kernel.name}: no atomic {kind} of {dtype} on {code.target.arch}")
    words = [t.cast("bitcast", parts(to_memory(t, v, dtype))[0], f"i{bits}") for v in values]
    word = _emit(code, what, words, ptr, mask, how, used or kind == "xchg" or kind == "cas")
    return from_memory(t, t.cast("bitcast", word, memory_type(dtype)), dtype)


def _instruction(code: Codegen, kind: str, dtype: str) -> str | None:
    bits = 8 * dtypes.SIZE[dtype]
    if kind in _BITS:
        return f"{_BITS[kind]}{bits}" if bits >= (16 if kind == "cas" else 32) else None
    if dtype in dtypes.INTEGER:
        if bits < 32:
            return None
        return f"add.u{bits}" if kind == "add" else f"{kind}.{'s' if dtype in dtypes.SIGNED else 'u'}{bits}"
    if kind != "add":
        return None
    if dtype in ("f16", "bf16"):
        return f"add.noftz.{dtype}" if dtype == "f16" or code.target.sm >= 90 else None
    return f"add.{dtype}"


def _emit(code: Codegen, what: str, words: list[V], ptr: V, mask: V, how: tuple[str, str], used: bool) -> V:
    """A predicated instruction, of some order and scope; 0 where the predicate is False."""
    t, ty = code.t, words[0].ty
    order, scope = how
    letter = _LETTERS[int(ty[1:])]
    if not used:
        text = f"@$2 red.{order}.{scope}.global.{what} [$1], $0;"
        t.line(f'call void asm sideeffect "{text}", "{letter},l,b,~{{memory}}"({words[0]}, {ptr}, {mask})')
        return V("0", ty)
    places = ", ".join(f"${2 + k}" for k in range(len(words)))
    # In Triton's order of words, which programs may look for.
    within = f"{order}.{scope}" if what.startswith("cas") else f"{scope}.{order}"
    text = f"mov.b{ty[1:]} $0, 0; @${2 + len(words)} atom.global.{within}.{what} $0, [$1], {places};"
    constraints = ",".join((f"=&{letter}", "l", *[letter] * len(words), "b", "~{memory}"))
    operands = ", ".join(map(str, (ptr, *words, mask)))
    return t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({operands})', ty)


def _retried(code: Codegen, what: str, word: V, ptr: V, mask: V, how: tuple[str, str]) -> V:
    """An operation of 16 bits that no instruction does: by compare and swap, until nobody came between."""
    order, scope = how
    text = (
        "{ .reg .b16 seen, next; .reg .pred again; mov.b16 $0, 0; @!$3 bra DONE; "
        f"ld.relaxed.{scope}.global.b16 $0, [$1]; "
        f"AGAIN: {what} next, $0, $2; atom.{order}.{scope}.global.cas.b16 seen, [$1], $0, next; "
        "setp.ne.s16 again, seen, $0; mov.b16 $0, seen; @again bra AGAIN; DONE: }"
    )
    return code.t.op(f'call i16 asm sideeffect "{text}", "=&h,l,h,b,~{{memory}}"({ptr}, {word}, {mask})', "i16")


def _extremum(
    code: Codegen, kind: str, value: Register, ptr: V, mask: V, dtype: str, how: tuple[str, str], used: bool
) -> Register:
    """Floats are in the order of their bits as integers; negative ones in the reverse order, as unsigned integers."""
    t = code.t
    (v,) = parts(value)
    bits = 8 * dtypes.SIZE[dtype]
    word = t.cast("bitcast", v, f"i{bits}")
    negative = t.cmp("slt", word, V("0", word.ty))
    other = {"max": "min", "min": "max"}[kind]
    positive = t.bin("and", mask, t.bin("xor", negative, V("true", "i1")))
    a = _emit(code, f"{kind}.s{bits}", [word], ptr, positive, how, used)
    b = _emit(code, f"{other}.u{bits}", [word], ptr, t.bin("and", mask, negative), how, used)
    found = parts(select(t, negative, b, a))[0]
    return t.cast("bitcast", found, v.ty)
