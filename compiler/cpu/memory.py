"""Loads and stores of register values: contiguous, strided and scattered, whole vectors and parts of them.

A register value is one `V`, or a pair (real, imaginary) for a complex dtype; `n` lanes, 0 for a scalar.  A part is
given by `count`, an i64: only the first `count` lanes are in memory (none if negative, all if it exceeds the lanes).
The other lanes of a part that is loaded are zero.
"""

from __future__ import annotations

from .. import dtypes
from ..llvm.convert import Register, from_memory, memory_type, to_memory
from ..llvm.text import Text, V, element, lanes, mangle, vector
from .target import Target

_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8}


def parts(reg: Register) -> tuple[V, ...]:
    """The value's one or two LLVM values."""
    return (reg,) if isinstance(reg, V) else reg


def join(values: list[V]) -> Register:
    """The inverse of `parts`."""
    return values[0] if len(values) == 1 else (values[0], values[1])


def i64(value: int) -> V:
    return V(str(value), "i64")


def lane_numbers(n: int, elem: str = "i64") -> V:
    """<0, 1, ... n-1>."""
    return V("<" + ", ".join(f"{elem} {i}" for i in range(n)) + ">", f"<{n} x {elem}>")


def clamp(t: Text, count: V, n: int) -> V:
    """`count` within [0, n]."""
    few = t.call("llvm.smin.i64", "i64", [count, i64(n)])
    return t.call("llvm.smax.i64", "i64", [few, i64(0)])


def splat(t: Text, reg: Register, n: int) -> Register:
    return join([t.splat(v, n) for v in parts(reg)])


def select(t: Text, mask: V, a: Register, b: Register) -> Register:
    return join([t.select(mask, x, y) for x, y in zip(parts(a), parts(b), strict=True)])


class Memory:
    """Loads and stores of one function; owns its stack buffers."""

    def __init__(self, t: Text, target: Target) -> None:
        self.t = t
        self.target = target
        #: Lines for the function's entry block.
        self.allocas: list[str] = []
        self._dummy: V | None = None
        self._masks: dict[tuple[V, int], V] = {}

    def alloca(self, ty: str, align: int = 64) -> V:
        ref = self.t.fresh("a")
        self.allocas.append(f"  {ref} = alloca {ty}, align {align}")
        return V(ref, "ptr")

    # -- parts --------------------------------------------------------------------------------------------------------
    def mask(self, count: V, n: int) -> V:
        """The mask of the first `count` lanes of n."""
        known = self._masks.get((count, n))
        if known is not None:
            return known
        # Narrow lanes make the comparison cheap; clamping keeps the truncated count right.
        few = self.t.cast("trunc", clamp(self.t, count, n), "i32")
        return self.t.cmp("ugt", self.t.splat(few, n), lane_numbers(n, "i32"))

    def remember(self, count: V, n: int) -> None:
        """Compute the mask of `count` here, for all code that this point dominates."""
        self._masks[count, n] = self.mask(count, n)

    # -- raw vectors of memory elements -------------------------------------------------------------------------------
    def _load_raw(self, ptr: V, elem: str, n: int, count: V | None) -> V:
        t, ty, size = self.t, vector(elem, n), _BYTES[elem]
        if count is None:
            return t.load(ptr, ty, size)
        if size in self.target.masked:
            name = f"llvm.masked.load.{mangle(ty)}.p0"
            mask, zero = self.mask(count, n), V("zeroinitializer", ty)
            t.declare(name, ty, ["ptr", mask.ty, ty])
            return t.op(f"call {ty} @{name}(ptr align {size} {ptr.ref}, {mask}, {zero})", ty)
        buffer = self.alloca(ty)
        t.store(V("zeroinitializer", ty), buffer, 64)
        self.copy(buffer, ptr, self._bytes(count, size, n))
        return t.load(buffer, ty, 64)

    def _store_raw(self, raw: V, ptr: V, count: V | None) -> None:
        t, elem, n = self.t, element(raw.ty), lanes(raw.ty)
        size = _BYTES[elem]
        if count is None:
            t.store(raw, ptr, size)
        elif size in self.target.masked:
            name, mask = f"llvm.masked.store.{mangle(raw.ty)}.p0", self.mask(count, n)
            t.declare(name, "void", [raw.ty, "ptr", mask.ty])
            t.line(f"call void @{name}({raw}, ptr align {size} {ptr.ref}, {mask})")
        else:
            buffer = self.alloca(raw.ty)
            t.store(raw, buffer, 64)
            self.copy(ptr, buffer, self._bytes(count, size, n))

    def _bytes(self, count: V, size: int, n: int) -> V:
        few = clamp(self.t, count, n)
        return self.t.bin("mul", few, i64(size)) if size > 1 else few

    def copy(self, to: V, source: V, nbytes: V) -> None:
        self.t.call("llvm.memcpy.p0.p0.i64", "void", [to, source, nbytes, V("false", "i1")])

    def clear(self, to: V, nbytes: int) -> None:
        self.t.call("llvm.memset.p0.i64", "void", [to, V("0", "i8"), i64(nbytes), V("false", "i1")])

    # -- contiguous ---------------------------------------------------------------------------------------------------
    def load(self, dtype: str, ptr: V, n: int, count: V | None = None) -> Register:
        """The n consecutive elements at ptr (n = 0: a scalar)."""
        t, elem = self.t, memory_type(dtype)
        if dtype not in dtypes.COMPLEX:
            return from_memory(t, self._load_raw(ptr, elem, n, count), dtype)
        if not n:
            return (t.load(ptr, elem, _BYTES[elem]), t.load(t.gep(ptr, i64(1), elem), elem, _BYTES[elem]))
        both = self._load_raw(ptr, elem, 2 * n, None if count is None else self._twice(count, n))
        poison = V("poison", both.ty)
        return (t.shuffle(both, poison, range(0, 2 * n, 2)), t.shuffle(both, poison, range(1, 2 * n, 2)))

    def store(self, dtype: str, reg: Register, ptr: V, count: V | None = None) -> None:
        """Store to consecutive elements at ptr."""
        t = self.t
        if isinstance(reg, V):
            raw = to_memory(t, reg, dtype)
            assert isinstance(raw, V)
            self._store_raw(raw, ptr, count)
            return
        re, im = reg
        n = lanes(re.ty)
        if not n:
            t.store(re, ptr, _BYTES[re.ty])
            t.store(im, t.gep(ptr, i64(1), re.ty), _BYTES[re.ty])
            return
        both = t.shuffle(re, im, [k // 2 + n * (k % 2) for k in range(2 * n)])
        self._store_raw(both, ptr, None if count is None else self._twice(count, n))

    def _twice(self, count: V, n: int) -> V:
        return self.t.bin("shl", clamp(self.t, count, n), i64(1))

    def load_masked(self, dtype: str, ptr: V, mask: V) -> Register | None:
        """The consecutive elements at ptr that a mask picks, the others zero; None without an instruction for it."""
        t, elem = self.t, memory_type(dtype)
        if dtype in dtypes.COMPLEX or _BYTES[elem] not in self.target.masked:
            return None
        ty = vector(elem, lanes(mask.ty))
        name = f"llvm.masked.load.{mangle(ty)}.p0"
        t.declare(name, ty, ["ptr", mask.ty, ty])
        zero = V("zeroinitializer", ty)
        raw = t.op(f"call {ty} @{name}(ptr align {_BYTES[elem]} {ptr.ref}, {mask}, {zero})", ty)
        return from_memory(t, raw, dtype)

    # -- anywhere -----------------------------------------------------------------------------------------------------
    def gather(self, dtype: str, pointers: V, mask: V | None = None) -> Register:
        """One element at each of a vector of pointers; lanes outside `mask` are zero, and touch nothing."""
        t, n = self.t, lanes(pointers.ty)
        if mask is not None:
            pointers = t.select(mask, pointers, t.splat(self.nothing(), n))
        return self.load_each(dtype, [t.extract(pointers, lane) for lane in range(n)])

    def load_each(self, dtype: str, pointers: list[V]) -> Register:
        """The elements at the pointers, as a vector."""
        t, elem, n = self.t, memory_type(dtype), len(pointers)
        found = [V("poison", vector(elem, n)) for _ in range(1 + (dtype in dtypes.COMPLEX))]
        for lane, ptr in enumerate(pointers):
            for k in range(len(found)):
                at = t.gep(ptr, i64(k), elem) if k else ptr
                found[k] = t.insert(found[k], t.load(at, elem, _BYTES[elem]), lane)
        return from_memory(t, join(found), dtype)

    def nothing(self) -> V:
        """The address of zeros, to read where no element was asked for."""
        if self._dummy is None:
            self._dummy = self.alloca("[2 x i64]")
            self.allocas.append(f"  store [2 x i64] zeroinitializer, {self._dummy}")
        return self._dummy


def address(t: Text, ptr: V, index: V, dtype: str) -> V:
    """The address of element `index` (an i64, or a vector of them)."""
    size = dtypes.SIZE[dtype]
    return t.gep(ptr, index, {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}[size])
