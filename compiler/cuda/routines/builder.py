"""A builder of scalar device code: what each thread of a block does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...llvm.text import Text, V
from ..codegen import Code
from ..target import SYMBOL

FULL = V("-1", "i32")
GLOBAL = "ptr addrspace(1)"


class Variable(str):
    """A scalar that may be assigned again; LLVM turns it into a register."""

    ty: str


class Builder(Text):
    """One kernel.

    Shared memory is addressed by 32-bit integers, in bytes: LLVM's shared pointers have 64 bits, and cost twice the
    arithmetic.

    Parameters
    ----------
    parameters : sequence of (name, type)
        Each "ptr", or an integer type that is the low part of an 8-byte slot.
    threads : int
        Threads of a block.
    resident : int
        Blocks that a multiprocessor should have registers for.
    """

    def __init__(self, parameters: Sequence[tuple[str, str]], threads: int, resident: int = 1) -> None:
        super().__init__()
        self.threads, self.resident, self.size = threads, resident, 0
        self._parameters = parameters
        self._variables: list[str] = []
        self.parameters: dict[str, V] = {}
        for name, ty in parameters:
            if ty == "ptr":
                self.parameters[name] = V(f"%{name}", GLOBAL)
            else:
                self.parameters[name] = self.cast("trunc", V(f"%{name}", "i64"), ty)
        self.tid = self._register("tid.x")
        self.lane = self._register("laneid")
        self.warp = self.shr(self.tid, 5)
        self.shared = self.op("ptrtoint ptr addrspace(3) @shared to i32", "i32")

    def _register(self, name: str) -> V:
        return self.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [])

    def program(self) -> V:
        """Which one of the grid this block is."""
        return self._register("ctaid.x")

    def lanes_up_to_this(self) -> V:
        return self._register("lanemask.le")

    def allocate(self, nbytes: int, align: int = 16) -> V:
        """Shared memory, as an address."""
        start = -(-self.size // align) * align
        self.size = start + nbytes
        return self.add(self.shared, start)

    def code(self) -> Code:
        """The kernel, complete."""
        self.line("ret void")
        params = ", ".join(f"{GLOBAL if ty == 'ptr' else 'i64'} %{name}" for name, ty in self._parameters)
        attributes = f'"nvvm.reqntid"="{self.threads}" "nvvm.minctasm"="{self.resident}"'
        text = [
            "@shared = external addrspace(3) global [0 x i8], align 1024",
            f"define ptx_kernel void @{SYMBOL}({params}) {attributes} {{",
            "entry:",
            *self._variables,
            *self.lines,
            "}",
            *self.declarations.values(),
        ]
        return Code("\n".join(text) + "\n", self.threads, self.size)

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def _two(self, opcode: str, a: V | int, b: V | int) -> V:
        ty = a.ty if isinstance(a, V) else b.ty if isinstance(b, V) else "i32"
        a, b = (x if isinstance(x, V) else self.const(x, ty) for x in (a, b))
        return self.bin(opcode, a, b)

    def add(self, a: V | int, b: V | int) -> V:
        return a if isinstance(b, int) and b == 0 and isinstance(a, V) else self._two("add", a, b)

    def sub(self, a: V | int, b: V | int) -> V:
        return self._two("sub", a, b)

    def mul(self, a: V | int, b: V | int) -> V:
        return self._two("mul", a, b)

    def and_(self, a: V | int, b: V | int) -> V:
        return self._two("and", a, b)

    def or_(self, a: V | int, b: V | int) -> V:
        return self._two("or", a, b)

    def xor(self, a: V | int, b: V | int) -> V:
        return self._two("xor", a, b)

    def shl(self, a: V | int, b: V | int) -> V:
        return self._two("shl", a, b)

    def shr(self, a: V | int, b: V | int) -> V:
        return self._two("lshr", a, b)

    def sar(self, a: V | int, b: V | int) -> V:
        return self._two("ashr", a, b)

    def udiv(self, a: V | int, b: V | int) -> V:
        return self._two("udiv", a, b)

    def min(self, a: V, b: V | int) -> V:
        """The smaller of two signed integers."""
        b = b if isinstance(b, V) else self.const(b, a.ty)
        return self.intrinsic("smin", a, b)

    def is_(self, predicate: str, a: V, b: V | int) -> V:
        return self.cmp(predicate, a, b if isinstance(b, V) else self.const(b, a.ty))

    def choose(self, c: V, a: V | int, b: V | int) -> V:
        ty = a.ty if isinstance(a, V) else b.ty if isinstance(b, V) else "i32"
        a, b = (x if isinstance(x, V) else self.const(x, ty) for x in (a, b))
        return self.select(c, a, b)

    def zext(self, a: V, ty: str) -> V:
        return self.cast("zext", a, ty)

    def sext(self, a: V, ty: str) -> V:
        return self.cast("sext", a, ty)

    def trunc(self, a: V, ty: str) -> V:
        return self.cast("trunc", a, ty)

    def resize(self, a: V, ty: str) -> V:
        """An unsigned integer in another width."""
        bits, wanted = int(a.ty[1:]), int(ty[1:])
        return self.cast("zext" if wanted > bits else "trunc", a, ty)

    # -- control ------------------------------------------------------------------------------------------------------
    def variable(self, initial: V | int, ty: str | None = None) -> Variable:
        if not isinstance(initial, V):
            initial = self.const(initial, ty or "i32")
        v = Variable(self.fresh("var"))
        v.ty = initial.ty
        self._variables.append(f"  {v} = alloca {v.ty}")
        self.set(v, initial)
        return v

    def get(self, v: Variable) -> V:
        return self.op(f"load {v.ty}, ptr {v}", v.ty)

    def set(self, v: Variable, value: V | int) -> None:
        value = value if isinstance(value, V) else self.const(value, v.ty)
        self.line(f"store {value}, ptr {v}")

    def either(self, condition: V, then: Callable[[], None], other: Callable[[], None]) -> None:
        with self.if_else(condition) as turn:
            then()
            next(turn)
            other()

    @contextmanager
    def while_(self, condition: Callable[[], V]) -> Iterator[None]:
        head, body, end = self.new_label("head"), self.new_label("body"), self.new_label("end")
        self.br(head)
        self.label(head)
        self.br_if(condition(), body, end)
        self.label(body)
        yield
        self.br(head)
        self.label(end)

    # -- threads ------------------------------------------------------------------------------------------------------
    def barrier(self) -> None:
        self.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [V("0", "i32")], "convergent")

    def warp_barrier(self) -> None:
        self.call("llvm.nvvm.bar.warp.sync", "void", [FULL], "convergent")

    def ballot(self, p: V) -> V:
        return self.call("llvm.nvvm.vote.ballot.sync", "i32", [FULL, p], "convergent")

    def shuffle_up(self, v: V, distance: int) -> V:
        """The value of the lane `distance` below; a lane's own where there is none."""
        return self._shuffle("up", v, V(str(distance), "i32"), 0)

    def shuffle_xor(self, v: V, mask: V | int) -> V:
        return self._shuffle("bfly", v, mask if isinstance(mask, V) else V(str(mask), "i32"), 31)

    def _shuffle(self, kind: str, v: V, lane: V, limit: int) -> V:
        if v.ty == "i64":
            halves = self.trunc(v, "i32"), self.trunc(self.shr(v, 32), "i32")
            low, high = (self.zext(self._shuffle(kind, h, lane, limit), "i64") for h in halves)
            return self.or_(low, self.shl(high, 32))
        name = f"llvm.nvvm.shfl.sync.{kind}.i32"
        return self.call(name, "i32", [FULL, v, lane, V(str(limit), "i32")], "convergent")

    def asm(self, code: str, result: str | None, *args: V) -> V:
        """Instructions with a result's type, $0, and operands from $1 on ($0 on without a result)."""
        letters = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", GLOBAL: "l", "float": "f", "double": "d"}
        early = "&" if code.count(";") > 1 else ""  # the result is written before the operands are all read
        constraints = [f"={early}{letters[result]}"] if result else []
        constraints += [letters[a.ty] for a in args] + ["~{memory}"]
        call = f'call {result or "void"} asm sideeffect "{code}", "{",".join(constraints)}"'
        rhs = f"{call}({', '.join(map(str, args))}) convergent nounwind"
        if result:
            return self.op(rhs, result)
        self.line(rhs)
        return V("", "void")

    # -- shared memory ------------------------------------------------------------------------------------------------
    def load_shared(self, address: V, ty: str, offset: int = 0) -> V:
        return self.asm(f"ld.shared.b{ty[1:]} $0, [$1+{offset}];", ty, address)

    def store_shared(self, address: V, v: V | int, offset: int = 0) -> None:
        v = v if isinstance(v, V) else self.const(v, "i32")
        self.asm(f"st.shared.b{v.ty[1:]} [$0+{offset}], $1;", None, address, v)

    def zero_shared(self, address: V, offset: int = 0) -> None:
        """Sixteen bytes."""
        self.asm(f"st.shared.v4.b32 [$0+{offset}], {{$1, $1, $1, $1}};", None, address, V("0", "i32"))

    def count_shared(self, address: V, offset: int = 0) -> None:
        self.asm(f"red.shared.add.u32 [$0+{offset}], 1;", None, address)

    # -- global memory ------------------------------------------------------------------------------------------------
    def at(self, base: V, index: V, nbytes: int) -> V:
        """The address of an element."""
        index = self.zext(index, "i64") if index.ty == "i32" else index
        return self.op(f"getelementptr i8, {base}, {self.mul(index, nbytes) if nbytes != 1 else index}", GLOBAL)

    def read(self, base: V, index: V, bits: int, offset: int = 0) -> V:
        """An integer of `bits` bits, as one of at least 32."""
        address = self.at(base, index, bits // 8)
        if offset:
            address = self.op(f"getelementptr i8, {address}, i64 {offset * bits // 8}", GLOBAL)
        v = self.load(address, f"i{bits}", bits // 8)
        return v if bits >= 32 else self.zext(v, "i32")

    def write(self, base: V, index: V, v: V, bits: int) -> None:
        self.store(self.resize(v, f"i{bits}"), self.at(base, index, bits // 8), bits // 8)

    def load_relaxed(self, address: V, ty: str) -> V:
        return self.asm(f"ld.relaxed.gpu.global.b{ty[1:]} $0, [$1];", ty, address)

    def store_relaxed(self, address: V, v: V) -> None:
        self.asm(f"st.relaxed.gpu.global.b{v.ty[1:]} [$0], $1;", None, address, v)

    def add_global(self, address: V, v: V) -> None:
        self.asm(f"red.relaxed.gpu.global.add.u{v.ty[1:]} [$0], $1;", None, address, v)


def predicated_store(k: Builder, address: V, v: V, bits: int, condition: V | None) -> None:
    """Store the low `bits` bits of an integer, where a condition holds, without a branch."""
    v = k.resize(v, f"i{max(bits, 16)}")
    guard, operands = ("@$2 ", (address, v, condition)) if condition is not None else ("", (address, v))
    k.asm(f"{guard}st.global.b{bits} [$0], $1;", None, *operands)
