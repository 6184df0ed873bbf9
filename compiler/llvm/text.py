"""A builder of LLVM IR as text.  Faster than an object model, and it can say everything that LLVM can."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class V(NamedTuple):
    """An LLVM value: its reference (%3, or a literal) and its type (float, <8 x i32>, ptr)."""

    ref: str
    ty: str

    def __str__(self) -> str:
        return f"{self.ty} {self.ref}"


_VECTOR = re.compile(r"<(\d+) x (.+)>")


def element(ty: str) -> str:
    m = _VECTOR.fullmatch(ty)
    return m[2] if m else ty


def lanes(ty: str) -> int:
    """Lanes of a vector type; 0 for a scalar."""
    m = _VECTOR.fullmatch(ty)
    return int(m[1]) if m else 0


def vector(elem: str, n: int) -> str:
    """The vector of n lanes, or the scalar for n = 0."""
    return f"<{n} x {elem}>" if n else elem


def mangle(ty: str) -> str:
    """A type's suffix in an intrinsic's name: <8 x float> -> v8f32."""
    n, e = lanes(ty), element(ty)
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(e, e)
    return f"v{n}{short}" if n else short


def literal(value: Any, elem: str) -> str:
    """A scalar constant's text."""
    if elem in ("float", "double"):
        if elem == "float":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if elem == "i1":
        return "true" if value else "false"
    return str(int(value))


class Text:
    """Lines of one function's body, with the declarations that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        #: The block being written: what a phi names as the origin of a value computed here.
        self.block = "entry"
        #: How the target rounds a float to narrow dtypes (and gives it as a float) that it has an instruction for.
        self.rounding: dict[str, Callable[[V], V]] = {}
        #: What values that it gave were before.
        self.unrounded: dict[str, V] = {}
        self._next = 0

    # -- raw lines ----------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str = "v") -> str:
        self._next += 1
        return f"%{prefix}{self._next}"

    def op(self, rhs: str, ty: str) -> V:
        ref = self.fresh()
        self.lines.append(f"  {ref} = {rhs}")
        return V(ref, ty)

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def new_label(self, hint: str = "bb") -> str:
        self._next += 1
        return f"{hint}{self._next}"

    def label(self, name: str) -> None:
        self.block = name
        self.lines.append(f"{name}:")

    def br(self, target: str) -> None:
        self.line(f"br label %{target}")

    def br_if(self, cond: V, then: str, other: str) -> None:
        self.line(f"br i1 {cond.ref}, label %{then}, label %{other}")

    def phi(self, ty: str, *edges: tuple[V, str]) -> V:
        return self.op(f"phi {ty} " + ", ".join(f"[{v.ref}, %{lab}]" for v, lab in edges), ty)

    @contextmanager
    def if_(self, cond: V | None) -> Iterator[None]:
        """What is written runs where `cond` (None: True) holds."""
        if cond is None:
            yield
            return
        then, after = self.new_label("then"), self.new_label("after")
        self.br_if(cond, then, after)
        self.label(then)
        yield
        self.br(after)
        self.label(after)

    @contextmanager
    def if_else(self, cond: V) -> Iterator[Iterator[None]]:
        """Two branches: next() on what is given goes from the first to the second."""
        then, other, after = self.new_label("then"), self.new_label("else"), self.new_label("after")
        self.br_if(cond, then, other)
        self.label(then)

        def turn() -> Iterator[None]:
            self.br(after)
            self.label(other)
            yield

        yield turn()
        self.br(after)
        self.label(after)

    # -- values -------------------------------------------------------------------------------------------------------
    def const(self, value: Any, ty: str) -> V:
        """A scalar constant, or a splat of one."""
        text = literal(value, element(ty))
        return V(f"splat ({element(ty)} {text})" if lanes(ty) else text, ty)

    def like(self, value: Any, v: V, elem: str | None = None) -> V:
        """A constant of v's lanes (and of its element type, unless given)."""
        return self.const(value, vector(elem or element(v.ty), lanes(v.ty)))

    def bin(self, opcode: str, a: V, b: V) -> V:
        return self.op(f"{opcode} {a.ty} {a.ref}, {b.ref}", a.ty)

    def fneg(self, a: V) -> V:
        return self.op(f"fneg {a}", a.ty)

    def cmp(self, predicate: str, a: V, b: V) -> V:
        """predicate: an fcmp one for floats (oeq, une, olt, uno, ...), an icmp one for integers (eq, slt, ult, ...)."""
        opcode = "fcmp" if element(a.ty) in ("float", "double", "half", "bfloat") else "icmp"
        return self.op(f"{opcode} {predicate} {a.ty} {a.ref}, {b.ref}", vector("i1", lanes(a.ty)))

    def select(self, c: V, a: V, b: V) -> V:
        return self.op(f"select {c}, {a}, {b}", a.ty)

    def cast(self, opcode: str, a: V, elem: str) -> V:
        """Element-wise conversion (sitofp, fpext, trunc, zext, bitcast...) at a's lanes."""
        ty = vector(elem, lanes(a.ty))
        return a if ty == a.ty else self.op(f"{opcode} {a} to {ty}", ty)

    def call(self, name: str, ty: str, args: Sequence[V], attributes: str = "") -> V:
        self.declare(name, ty, [a.ty for a in args], attributes)
        rhs = f"call {ty} @{name}({', '.join(map(str, args))})"
        if ty == "void":
            self.line(rhs)
            return V("", "void")
        return self.op(rhs, ty)

    def declare(self, name: str, ty: str, arg_types: Sequence[str], attributes: str = "") -> None:
        self.declarations[name] = f"declare {ty} @{name}({', '.join(arg_types)}) {attributes}".rstrip()

    def intrinsic(self, name: str, *args: V, ty: str | None = None) -> V:
        """llvm.NAME overloaded on its first argument's type, returning `ty` (that type by default)."""
        return self.call(f"llvm.{name}.{mangle(args[0].ty)}", ty or args[0].ty, args)

    def saturating(self, opcode: str, a: V, ty: str) -> V:
        """fptosi or fptoui that saturates, and gives 0 for a NaN."""
        return self.call(f"llvm.{opcode}.sat.{mangle(ty)}.{mangle(a.ty)}", ty, [a])

    def fma(self, a: V, b: V, c: V) -> V:
        return self.intrinsic("fma", a, b, c)

    def any(self, mask: V) -> V:
        """Whether any lane of an i1 vector is set."""
        return self.intrinsic("vector.reduce.or", mask, ty="i1") if lanes(mask.ty) else mask

    # -- vectors ------------------------------------------------------------------------------------------------------
    def splat(self, v: V, n: int) -> V:
        """A scalar in all n lanes (n = 0: itself)."""
        if not n or lanes(v.ty):
            return v
        ty = vector(v.ty, n)
        if not v.ref.startswith("%"):
            return V(f"splat ({v.ty} {v.ref})", ty)
        one = self.op(f"insertelement {ty} poison, {v}, i64 0", ty)
        return self.op(f"shufflevector {ty} {one.ref}, {ty} poison, <{n} x i32> zeroinitializer", ty)

    def extract(self, v: V, i: int) -> V:
        return self.op(f"extractelement {v}, i64 {i}", element(v.ty))

    def insert(self, v: V, x: V, i: int) -> V:
        return self.op(f"insertelement {v}, {x}, i64 {i}", v.ty)

    def shuffle(self, a: V, b: V, mask: Sequence[int]) -> V:
        m = ", ".join(f"i32 {i}" for i in mask)
        return self.op(f"shufflevector {a}, {b}, <{len(mask)} x i32> <{m}>", vector(element(a.ty), len(mask)))

    def split(self, v: V, width: int) -> list[V]:
        """v in pieces of `width` lanes."""
        n = lanes(v.ty)
        if n == width:
            return [v]
        poison = V("poison", v.ty)
        return [self.shuffle(v, poison, range(i, i + width)) for i in range(0, n, width)]

    def concat(self, parts: Sequence[V]) -> V:
        """The inverse of split; a power-of-two number of parts."""
        parts = list(parts)
        while len(parts) > 1:
            n = lanes(parts[0].ty)
            parts = [self.shuffle(a, b, range(2 * n)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    # -- memory -------------------------------------------------------------------------------------------------------
    def gep(self, base: V, index: V, elem: str) -> V:
        """base + index elements of `elem`; a vector of indices gives a vector of pointers."""
        n = lanes(index.ty)
        return self.op(f"getelementptr {elem}, {base}, {index}", vector(element(base.ty), n))

    def load(self, ptr: V, ty: str, align: int) -> V:
        return self.op(f"load {ty}, {ptr}, align {align}", ty)

    def store(self, v: V, ptr: V, align: int) -> None:
        self.line(f"store {v}, {ptr}, align {align}")
