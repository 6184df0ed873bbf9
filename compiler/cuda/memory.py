"""Loads and stores of consecutive elements in up to 16 bytes at once, in global and shared memory, with or without a
predicate.

A predicated access is one predicated instruction, so that code around it stays straight: many loads are in flight
together.  What is not loaded is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .. import dtypes
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import Text, V
from . import float8
from .target import Target

GLOBAL = "ptr addrspace(1)"
SHARED = "ptr addrspace(3)"
#: Of any block of the cluster.
REMOTE = "ptr addrspace(7)"
TRUE = V("true", "i1")
#: A hint of loads that are made each time.
VOLATILE = ".volatile"
_SPACES = {GLOBAL: "global", SHARED: "shared", REMOTE: "shared::cluster"}


def i64(value: int) -> V:
    return V(str(value), "i64")


def i32(value: int) -> V:
    return V(str(value), "i32")


def parts(reg: Register) -> tuple[V, ...]:
    """The value's one or two LLVM values."""
    return (reg,) if isinstance(reg, V) else reg


def join(values: Sequence[V]) -> Register:
    """The inverse of `parts`."""
    return values[0] if len(values) == 1 else (values[0], values[1])


def select(t: Text, mask: V, a: Register, b: Register) -> Register:
    return join([t.select(mask, x, y) for x, y in zip(parts(a), parts(b), strict=True)])


def both(t: Text, a: V | None, b: V | None) -> V | None:
    """The conjunction of two conditions; None is True."""
    if a is None or b is None:
        return a if b is None else b
    return t.bin("and", a, b)


def at(t: Text, base: V, nbytes: V | int) -> V:
    """The address `nbytes` after `base`."""
    if nbytes == 0:
        return base
    offset = i64(nbytes) if isinstance(nbytes, int) else nbytes
    return t.op(f"getelementptr i8, {base}, {offset}", base.ty)


# -- words ------------------------------------------------------------------------------------------------------------
# An access moves 1, 2, 4 or 8 words of one LLVM type: i8 and i16 (alone), i32 or i64.
def word(dtype: str, nbytes: int) -> tuple[str, int]:
    """The words that so many bytes of elements are moved in: their type and number."""
    size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
    each = max(size, min(4, nbytes))
    return f"i{8 * each}", nbytes // each


def load(t: Text, ptr: V, dtype: str, n: int, mask: V | None = None, beyond: int = 0) -> list[Register]:
    """n consecutive elements, `beyond` bytes after an address, at a multiple of their joint size."""
    return unpack(t, load_words(t, ptr, dtype, n, mask, beyond), dtype, n)


def load_words(
    t: Text, ptr: V, dtype: str, n: int, mask: V | None = None, beyond: int = 0, hint: str = "", fill: bytes = b""
) -> list[V]:
    """What `load` loads, as words of memory.

    A `hint` is a modifier of the instruction, such as ".cg"; `fill` is an element that is there where the mask is not.
    """
    kind, count = word(dtype, n * dtypes.SIZE[dtype])
    if mask is None and not hint:
        return _load_words(t, at(t, ptr, beyond), kind, count)
    return _load_masked(t, ptr, kind, count, mask or TRUE, beyond, hint, fill)


def store(
    t: Text, values: Sequence[Register], ptr: V, dtype: str, mask: V | None = None, beyond: int = 0, hint: str = ""
) -> None:
    """Store consecutive elements, `beyond` bytes after an address, at a multiple of their joint size."""
    kind, count = word(dtype, len(values) * dtypes.SIZE[dtype])
    words = pack(t, values, dtype, kind)
    assert len(words) == count
    if mask is None and not hint:
        _store_words(t, words, at(t, ptr, beyond))
    else:
        _store_masked(t, words, ptr, mask or TRUE, beyond, hint)


def combine(t: Text, kind: str, value: Register, ptr: V, dtype: str, mask: V | None) -> None:
    """Join an integer of 32 or 64 bits to what memory holds, at once as seen by all threads: "add" or "maximum"."""
    assert isinstance(value, V) and value.ty in ("i32", "i64")
    if mask is None:
        mask = V("true", "i1")
    letter = {"i32": "r", "i64": "l"}[value.ty]
    what = f"max.{'s' if dtype in dtypes.SIGNED else 'u'}" if kind == "maximum" else "add.u"
    text = f"@$2 red.relaxed.gpu.global.{what}{value.ty[1:]} [$1], $0;"
    t.line(f'call void asm sideeffect "{text}", "{letter},l,b,~{{memory}}"({value}, {ptr}, {mask})')


def _load_words(t: Text, ptr: V, word: str, count: int) -> list[V]:
    nbytes = count * int(word[1:]) // 8
    if count == 1:
        return [t.load(ptr, word, nbytes)]
    whole = t.load(ptr, f"<{count} x {word}>", nbytes)
    return [t.extract(whole, k) for k in range(count)]


def _store_words(t: Text, words: list[V], ptr: V) -> None:
    word, count = words[0].ty, len(words)
    whole = words[0]
    if count > 1:
        whole = V("poison", f"<{count} x {word}>")
        for k, w in enumerate(words):
            whole = t.insert(whole, w, k)
    t.store(whole, ptr, count * int(word[1:]) // 8)


def _operands(first: int, count: int) -> str:
    names = ", ".join(f"${first + k}" for k in range(count))
    return f"{{{names}}}" if count > 1 else names


def _access(word: str, count: int) -> str:
    return (f"v{count}." if count > 1 else "") + f"b{word[1:]}"


def _after(nbytes: int) -> str:
    """What follows an address in an instruction, so that it needs no register of its own."""
    return f"+{nbytes}" if nbytes else ""


def _load_masked(t: Text, ptr: V, word: str, count: int, mask: V, beyond: int, hint: str, fill: bytes) -> list[V]:
    # There are no registers of 8 bits.
    held = "i16" if word == "i8" else word
    letter, width = {"i16": ("h", 16), "i32": ("r", 32), "i64": ("l", 64)}[held]
    nbytes = int(word[1:]) // 8
    other = int.from_bytes((fill * nbytes)[:nbytes], "little")
    fills = " ".join(f"mov.b{width} ${k}, {other:#x};" for k in range(count))
    space = f"volatile.{_SPACES[ptr.ty]}" if hint == VOLATILE else _SPACES[ptr.ty] + hint
    text = f"{fills} @${count + 1} ld.{space}.{_access(word, count)} {_operands(0, count)}, [${count}{_after(beyond)}];"
    constraints = ",".join([f"=&{letter}"] * count + ["l", "b"])
    ty = held if count == 1 else "{" + ", ".join([held] * count) + "}"
    found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({ptr}, {mask})', ty)
    words = [found] if count == 1 else [t.op(f"extractvalue {found}, {k}", held) for k in range(count)]
    return [t.cast("trunc", w, word) for w in words]


def _store_masked(t: Text, words: list[V], ptr: V, mask: V, beyond: int, hint: str) -> None:
    word, count = words[0].ty, len(words)
    if word == "i8":
        words = [t.cast("zext", w, "i16") for w in words]
    letter = {"i8": "h", "i16": "h", "i32": "r", "i64": "l"}[word]
    place = f"[${count}{_after(beyond)}]"
    text = f"@${count + 1} st.{_SPACES[ptr.ty]}{hint}.{_access(word, count)} {place}, {_operands(0, count)};"
    constraints = ",".join([letter] * count + ["l", "b"]) + ",~{memory}"
    t.line(f'call void asm sideeffect "{text}", "{constraints}"({", ".join(map(str, words))}, {ptr}, {mask})')


# -- elements in words ------------------------------------------------------------------------------------------------
def unpack(t: Text, words: list[V], dtype: str, n: int) -> list[Register]:
    """The inverse of `pack`."""
    elem = memory_type(dtype)
    size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
    if dtype == float8.DTYPE and dtype in t.rounding:
        return [x for w in words for x in float8.unpacked(t, w, int(w.ty[1:]) // 8)]
    pieces: list[V] = []
    for w in words:
        count = int(w.ty[1:]) // 8 // size
        if count == 1:
            pieces.append(t.cast("bitcast", w, elem))
        else:
            lanes = t.op(f"bitcast {w} to <{count} x {elem}>", f"<{count} x {elem}>")
            pieces += [t.extract(lanes, k) for k in range(count)]
    if dtype in dtypes.COMPLEX:
        return [(pieces[k], pieces[k + 1]) for k in range(0, 2 * n, 2)]
    return [from_memory(t, p, dtype) for p in pieces]


def pack(t: Text, values: Sequence[Register], dtype: str, word: str) -> list[V]:
    """Consecutive elements as words."""
    if dtype in t.rounding and (dtype == float8.DTYPE or word == "i32"):
        # One instruction rounds two floats and packs them, instead of one for each and another.
        wide = [t.unrounded.get(v.ref, v) for v in values if isinstance(v, V)]
        if dtype == float8.DTYPE:
            return float8.packed(t, wide, word)
        return [_bfloats(t, low, high) for low, high in zip(wide[::2], wide[1::2], strict=True)]
    pieces = [p for v in values for p in parts(to_memory(t, v, dtype))]
    size = dtypes.SIZE[dtypes.PART.get(dtype, dtype)]
    count = int(word[1:]) // 8 // size
    if count == 1:
        return [t.cast("bitcast", p, word) for p in pieces]
    words: list[V] = []
    for k in range(0, len(pieces), count):
        whole = V("poison", f"<{count} x {pieces[0].ty}>")
        for lane in range(count):
            whole = t.insert(whole, pieces[k + lane], lane)
        words.append(t.op(f"bitcast {whole} to {word}", word))
    return words


def rounding(t: Text, target: Target) -> dict[str, Callable[[V], V]]:
    """How narrow floats are rounded by instructions."""
    found: dict[str, Callable[[V], V]] = {}
    if target.bf16:
        found["bf16"] = partial(_round_bfloat, t)
    if target.float8:
        found[float8.DTYPE] = partial(float8.rounded, t)
    return found


def _round_bfloat(t: Text, v: V) -> V:
    """A float rounded to a bfloat16: the upper one of two, of which the other is 0, has its bits."""
    return t.op(f"bitcast {_pair(t, t.const(0.0, 'float'), v)} to float", "float")


def _bfloats(t: Text, low: V, high: V) -> V:
    """Two floats as bfloat16s in a word."""
    return t.op(f"bitcast {_pair(t, low, high)} to i32", "i32")


def _pair(t: Text, low: V, high: V) -> V:
    return t.call("llvm.nvvm.ff2bf16x2.rn", "<2 x bfloat>", [high, low], "nounwind memory(none)")
