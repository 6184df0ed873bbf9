"""An interpreter of PTX, for tests on machines without a GPU.

Threads run in warps, the warps of a block and the blocks of a grid in random order between the points where they wait
for each other, so that code without the barriers it needs goes wrong.  Every access is checked.  Only the instructions
that the routines use are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

_TYPES = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16,
    "s16": np.int16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip
_SHARED_BASE = 1024
_GUARD = 256

Group = Any  # indices of the threads that execute


class Memory:
    """Global memory: blocks of bytes with gaps that nothing may touch."""

    def __init__(self, nbytes: int = 1 << 24) -> None:
        self.base = 1 << 32
        self.bytes = np.zeros(nbytes, np.uint8)
        self.owned = np.zeros(nbytes, bool)
        self.end = _GUARD

    def allocate(self, nbytes: int, offset: int = 0) -> int:
        """An address, `offset` bytes behind a multiple of 256."""
        start = self.end + offset
        self.end = -(-(start + nbytes + _GUARD) // 256) * 256
        assert self.end <= self.bytes.size, "out of memory"
        self.owned[start : start + nbytes] = True
        self.bytes[start : start + nbytes] = 0xCD
        return self.base + start

    def put(self, array: np.ndarray, offset: int = 0) -> int:
        address = self.allocate(array.nbytes, offset)
        start = address - self.base
        self.bytes[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return address

    def get(self, address: int, dtype: Any, shape: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        start = address - self.base
        count = int(np.prod(shape))
        return self.bytes[start : start + count * dtype.itemsize].copy().view(dtype).reshape(shape)


def _check(ok: Any, message: str) -> None:
    if not np.all(ok):
        raise AssertionError(message)


class Program:
    """A kernel's instructions."""

    def __init__(self, code: str) -> None:
        code = re.sub(r"//[^\n]*", "", code)
        found = re.search(r"\.reqntid (\d+)", code)
        assert found
        self.threads = int(found[1])
        self.parameters: dict[str, int] = {}
        head, body = code[code.index(".entry") :].split("{", 1)
        for i, name in enumerate(re.findall(r"(kernel_param_\d+)", head)):
            self.parameters[name] = i
        body = body[: body.rindex("}")]
        self.types: dict[str, Any] = {}
        self.labels: dict[str, int] = {}
        self.instructions: list[tuple[Callable[..., None] | None, str, tuple[str, bool] | None, str]] = []
        for statement in re.split(r"[;\n]\s*|(?<=:)\s|(?<![,\s\w%\[])\s*[{]\s+(?=\.reg)|\s[}]\s*$", body):
            self._statement(statement.strip())

    def _statement(self, text: str) -> None:
        text = text.strip()
        if text.startswith("{") and ".reg" in text:
            text = text[1:].strip()
        if not text or text in "{}":
            return
        if text.startswith(".reg"):
            ty, names = re.match(r"\.reg \.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
            for name in names.split(","):
                name = name.strip()
                many = re.fullmatch(r"(.+)<(\d+)>", name)
                for full in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                    self.types[full] = _TYPES[ty]
            return
        if text.startswith("."):
            return
        if text.endswith(":"):
            self.labels[text[:-1]] = len(self.instructions)
            return
        guard = None
        found = re.match(r"@(!?)(%?\w+)\s+(.*)", text)
        if found:
            guard, text = (found[2], found[1] == "!"), found[3]
        opcode, _, rest = text.partition(" ")
        opcode = opcode.strip()
        operands = [o.strip() for o in re.split(r",(?![^{\[]*[}\]])", rest.strip())] if rest.strip() else []
        kind = opcode.split(".")[0]
        if kind in ("bra", "ret", "exit", "bar") and not opcode.startswith("bar.warp"):
            self.instructions.append((None, kind + " " + (operands[0] if operands else ""), guard, text))
            return
        made = getattr(self, f"_{kind}", None)
        if made is None:
            raise NotImplementedError(text)
        self.instructions.append((made(opcode.split(".")[1:], operands), opcode, guard, text))

    # -- operands -----------------------------------------------------------------------------------------------------
    def _value(self, operand: str, ty: str) -> Callable[[Block, Group], Any]:
        dtype = np.dtype(_TYPES[ty])
        if operand in ("%tid.x", "%laneid", "%ctaid.x", "%ntid.x", "%lanemask_le", "%lanemask_lt"):
            return lambda b, g: b.special[operand][g].view(dtype)
        if operand == "shared":
            return lambda b, g: dtype.type(_SHARED_BASE)
        if operand in self.types:
            if self.types[operand] == np.bool_:
                return lambda b, g: b.read(operand)[g]
            narrow = np.dtype(self.types[operand]).itemsize > dtype.itemsize
            if narrow:
                return lambda b, g: b.read(operand)[g].astype(f"u{dtype.itemsize}").view(dtype)
            return lambda b, g: b.read(operand)[g].view(dtype)
        if operand.startswith("0f"):
            literal = np.array(int(operand[2:], 16), np.uint32).view(np.float32)[()]
        elif operand.startswith("0d"):
            literal = np.array(int(operand[2:], 16), np.uint64).view(np.float64)[()]
        else:
            number = {"true": 1, "false": 0}.get(operand)
            number = int(operand, 0) if number is None else number
            if dtype == np.bool_:
                literal = np.bool_(number & 1)
            else:
                literal = np.array(number & ((1 << dtype.itemsize * 8) - 1), f"u{dtype.itemsize}").view(dtype)[()]
        return lambda b, g: literal

    def _write(self, operand: str) -> Callable[[Block, Group, Any], None]:
        dtype = np.dtype(self.types[operand])

        def write(b: Block, g: Group, v: Any) -> None:
            v = np.asarray(v)
            if v.dtype != dtype:
                if v.dtype.kind in "f" or v.dtype.itemsize == dtype.itemsize:
                    v = v.view(dtype)
                else:
                    v = v.astype(dtype)
            b.registers[operand][g] = v
            b.written[operand][g] = True

        return write

    def _apply(self, fn: Callable[..., Any], ty: str, operands: Sequence[str], types: Sequence[str] = ()) -> Any:
        write = self._write(operands[0])
        sources = [self._value(o, t) for o, t in zip(operands[1:], types or [ty] * len(operands))]

        def run(b: Block, g: Group) -> None:
            write(b, g, fn(*(s(b, g) for s in sources)))

        return run

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def _add(self, m: list[str], o: list[str]) -> Any:
        if m[-1] == "f32":

            def add(x: Any, y: Any) -> Any:
                r = np.asarray(x + y)
                return np.where(np.isnan(r), np.uint32(0x7FFFFFFF), r.view(np.uint32)).view(np.float32)

            return self._apply(add, "f32", o)
        return self._apply(np.add, m[-1], o)

    def _sub(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.subtract, m[-1], o)

    def _mul(self, m: list[str], o: list[str]) -> Any:
        if m[0] == "wide":
            wide = _TYPES[m[1][0] + "64"]
            return self._apply(lambda a, b: np.asarray(a).astype(wide) * np.asarray(b).astype(wide), m[1], o)
        assert m[0] == "lo", m
        return self._apply(np.multiply, m[1], o)

    def _mad(self, m: list[str], o: list[str]) -> Any:
        if m[0] == "wide":
            wide = _TYPES[m[1][0] + "64"]
            fn = lambda a, b, c: np.asarray(a).astype(wide) * np.asarray(b).astype(wide) + c
            return self._apply(fn, m[1], o, [m[1], m[1], m[1][0] + "64"])
        assert m[0] == "lo", m
        return self._apply(lambda a, b, c: a * b + c, m[1], o)

    def _div(self, m: list[str], o: list[str]) -> Any:
        assert m[-1][0] == "u"
        return self._apply(np.floor_divide, m[-1], o)

    def _rem(self, m: list[str], o: list[str]) -> Any:
        assert m[-1][0] == "u"
        return self._apply(np.remainder, m[-1], o)

    def _and(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.bitwise_and, m[-1], o)

    def _or(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.bitwise_or, m[-1], o)

    def _xor(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.bitwise_xor, m[-1], o)

    def _not(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.invert, m[-1], o)

    def _neg(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.negative, m[-1], o)

    def _lop3(self, m: list[str], o: list[str]) -> Any:
        table = int(o[4], 0)

        def lop3(a: Any, b: Any, c: Any) -> Any:
            result = np.zeros_like(np.asarray(a | b | c))
            for i in range(8):
                if table >> i & 1:
                    result = result | (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            return result

        return self._apply(lop3, "b32", o[:4])

    def _shift(self, fn: Any, ty: str, o: list[str]) -> Any:
        width = int(ty[1:])

        def shift(a: Any, n: Any) -> Any:
            limit = np.minimum(n, width - 1).astype(np.asarray(a).dtype)
            out = fn(a, limit)
            return out if ty[0] == "s" else np.where(n >= width, np.zeros_like(out), out)

        return self._apply(shift, ty, o, [ty, "u32"])

    def _shl(self, m: list[str], o: list[str]) -> Any:
        return self._shift(np.left_shift, m[-1].replace("b", "u"), o)

    def _shr(self, m: list[str], o: list[str]) -> Any:
        return self._shift(np.right_shift, m[-1].replace("b", "u"), o)

    def _bfe(self, m: list[str], o: list[str]) -> Any:
        ty = m[-1]
        assert ty[0] == "u"
        one = _TYPES[ty](1)

        def bfe(a: Any, start: Any, count: Any) -> Any:
            mask = (one << np.asarray(count).astype(_TYPES[ty])) - one
            return (a >> np.asarray(start).astype(_TYPES[ty])) & mask

        return self._apply(bfe, ty, o, [ty, "u32", "u32"])

    def _prmt(self, m: list[str], o: list[str]) -> Any:
        def prmt(a: Any, b: Any, c: Any) -> Any:
            source = np.asarray(a).astype(np.uint64) | np.asarray(b).astype(np.uint64) << np.uint64(32)
            result = np.uint32(0)
            for i in range(4):
                select = (c >> np.uint32(4 * i)) & np.uint32(15)
                byte = (source >> ((select & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)
                byte = np.where(select & np.uint32(8), np.where(byte & np.uint64(128), 255, 0), byte)
                result = result | byte.astype(np.uint32) << np.uint32(8 * i)
            return result

        return self._apply(prmt, "b32", o)

    def _min(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.minimum, m[-1], o)

    def _max(self, m: list[str], o: list[str]) -> Any:
        return self._apply(np.maximum, m[-1], o)

    def _popc(self, m: list[str], o: list[str]) -> Any:
        return self._apply(lambda a: np.bitwise_count(a).astype(np.uint32), m[-1], o)

    def _clz(self, m: list[str], o: list[str]) -> Any:
        fn = lambda a: np.array([32 - int(x).bit_length() for x in np.atleast_1d(a)], np.uint32)
        return self._apply(fn, m[-1], o)

    def _selp(self, m: list[str], o: list[str]) -> Any:
        return self._apply(lambda a, b, c: np.where(c, a, b), m[-1], o, [m[-1], m[-1], "pred"])

    def _setp(self, m: list[str], o: list[str]) -> Any:
        compare = {
            "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
            "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
        }[m[0]]  # fmt: skip
        if len(m) == 3:
            join = {"and": np.logical_and, "or": np.logical_or}[m[1]]
            fn = lambda a, b, c: join(compare(a, b), c)
            return self._apply(fn, m[-1], o, [m[-1], m[-1], "pred"])
        return self._apply(compare, m[-1], o)

    def _mov(self, m: list[str], o: list[str]) -> Any:
        if o[1].startswith("{"):
            low, high = (self._value(x.strip(), "b32") for x in o[1][1:-1].split(","))
            write = self._write(o[0])

            def join(b: Block, g: Group) -> None:
                lo, hi = (np.asarray(v(b, g)).astype(np.uint64) for v in (low, high))
                write(b, g, lo | hi << np.uint64(32))

            return join
        if o[0].startswith("{"):
            writes = [None if x.strip() == "_" else self._write(x.strip()) for x in o[0][1:-1].split(",")]
            source = self._value(o[1], "b64")

            def split(b: Block, g: Group) -> None:
                v = source(b, g)
                for i, write in enumerate(writes):
                    if write:
                        write(b, g, (v >> np.uint64(32 * i)).astype(np.uint32))

            return split
        return self._apply(lambda a: a, m[-1], o)

    def _cvt(self, m: list[str], o: list[str]) -> Any:
        to, source = np.dtype(_TYPES[m[-2]]), m[-1]
        extended = np.dtype(self.types[o[0]])

        def cvt(a: Any) -> Any:
            v = np.asarray(a).astype(to)
            return v.astype(f"{'i' if to.kind == 'i' else 'u'}{extended.itemsize}").view(extended)

        return self._apply(cvt, source, o)

    # -- warps --------------------------------------------------------------------------------------------------------
    def _vote(self, m: list[str], o: list[str]) -> Any:
        assert m[:2] == ["sync", "ballot"], m
        source, write = self._value(o[1], "pred"), self._write(o[0])

        def vote(b: Block, g: Group) -> None:
            b.together(g)
            p = np.broadcast_to(source(b, g), len(g)).reshape(-1, 32)
            write(b, g, np.repeat(np.packbits(p, axis=1, bitorder="little").view(np.uint32).reshape(-1), 32))

        return vote

    def _shfl(self, m: list[str], o: list[str]) -> Any:
        kind = m[1]
        target = o[0].split("|")[0]
        source, other, write = self._value(o[1], "b32"), self._value(o[2], "s32"), self._write(target)

        def shfl(b: Block, g: Group) -> None:
            b.together(g)
            v = np.broadcast_to(source(b, g), len(g)).reshape(-1, 32)
            n = np.broadcast_to(other(b, g), len(g)).reshape(-1, 32)
            lane = np.arange(32)[None]
            if kind == "up":
                at = np.where(lane >= n, lane - n, lane)
            elif kind == "down":
                at = np.where(lane + n < 32, lane + n, lane)
            else:
                at = lane ^ n if kind == "bfly" else n & 31
            write(b, g, np.take_along_axis(v, at, 1).reshape(-1))

        return shfl

    def _bar(self, m: list[str], o: list[str]) -> Any:
        return lambda b, g: b.together(g)

    # -- memory -------------------------------------------------------------------------------------------------------
    def _address(self, operand: str) -> Callable[[Block, Group], Any]:
        base, _, offset = operand.strip("[]").replace(" ", "").partition("+")
        value = self._value(base, "s64" if self.types.get(base) == np.uint64 else "u32")
        shift = int(offset or 0)
        return lambda b, g: np.broadcast_to(np.asarray(value(b, g)).astype(np.int64) + shift, len(g))

    def _ld(self, m: list[str], o: list[str]) -> Any:
        ty = m[-1]
        if "param" in m:
            name, _, offset = o[1].strip("[]").partition("+")
            index, start = self.parameters[name], int(offset or 0)
            dtype = np.dtype(_TYPES[ty])
            write = self._write(o[0])

            def parameter(b: Block, g: Group) -> None:
                slot = b.arguments[index : index + 1].view(np.uint8)[start : start + dtype.itemsize]
                write(b, g, self._extended(slot.copy().view(dtype)[0], o[0]))

            return parameter
        count = {"v2": 2, "v4": 4}.get(m[-2], 1)
        names = [x.strip() for x in o[0].strip("{}").split(",")]
        address, writes = self._address(o[1]), [self._write(n) for n in names]
        assert len(names) == count
        dtype, shared = np.dtype(_TYPES[ty]), "shared" in m

        def load(b: Block, g: Group) -> None:
            where = address(b, g)
            _check(where % (dtype.itemsize * count) == 0, "misaligned load")
            for i, (name, write) in enumerate(zip(names, writes)):
                memory, index = b.locate(where + i * dtype.itemsize, dtype, shared)
                write(b, g, self._extended(memory[index], name))

        return load

    def _extended(self, v: Any, name: str) -> Any:
        """As a load puts a narrow value into a wider register."""
        v, dtype = np.asarray(v), np.dtype(self.types[name])
        return v if v.itemsize == dtype.itemsize else v.astype(f"{'i' if v.dtype.kind == 'i' else 'u'}{dtype.itemsize}")

    def _st(self, m: list[str], o: list[str]) -> Any:
        count = {"v2": 2, "v4": 4}.get(m[-2], 1)
        ty, address = m[-1], self._address(o[0])
        names = [x.strip() for x in o[1].strip("{}").split(",")]
        assert len(names) == count
        sources = [self._value(n, ty) for n in names]
        dtype, shared = np.dtype(_TYPES[ty]), "shared" in m

        def store(b: Block, g: Group) -> None:
            where = address(b, g)
            _check(where % (dtype.itemsize * count) == 0, "misaligned store")
            for i, source in enumerate(sources):
                memory, index = b.locate(where + i * dtype.itemsize, dtype, shared)
                memory[index] = source(b, g)

        return store

    def _red(self, m: list[str], o: list[str]) -> Any:
        return self._atom(m, ["", *o])

    def _atom(self, m: list[str], o: list[str]) -> Any:
        ty, operation = m[-1], m[-2]
        ufunc = {"add": np.add, "or": np.bitwise_or, "max": np.maximum, "min": np.minimum}[operation]
        address, source = self._address(o[1]), self._value(o[2], ty)
        write = self._write(o[0]) if o[0] else None
        dtype, shared = np.dtype(_TYPES[ty]), "shared" in m

        def atom(b: Block, g: Group) -> None:
            memory, index = b.locate(address(b, g), dtype, shared)
            v = np.broadcast_to(source(b, g), len(g))
            if write is None:
                ufunc.at(memory, index, v)
                return
            old = np.empty(len(g), dtype)
            for i, (at, x) in enumerate(zip(index, v)):
                old[i] = memory[at]
                memory[at] = ufunc(memory[at], x)
            write(b, g, old)

        return atom


class Block:
    """One block's threads and shared memory."""

    def __init__(self, program: Program, memory: Memory, arguments: np.ndarray, number: int, shared: int) -> None:
        n = program.threads
        self.program, self.memory, self.arguments = program, memory, arguments
        self.registers = {name: np.zeros(n, ty) for name, ty in program.types.items()}
        self.written = {name: np.zeros(n, bool) for name in program.types}
        self.shared = np.full(-(-shared // 16) * 16, 0xCD, np.uint8)
        lane = np.arange(n, dtype=np.uint32) % 32
        upto = ((np.uint64(2) << lane.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
        self.special = {
            "%tid.x": np.arange(n, dtype=np.uint32), "%laneid": lane, "%ctaid.x": np.full(n, number, np.uint32),
            "%ntid.x": np.full(n, n, np.uint32), "%lanemask_le": upto, "%lanemask_lt": upto >> np.uint32(1),
        }  # fmt: skip
        self._group = np.zeros(0, int)

    def read(self, name: str) -> np.ndarray:
        _check(self.written[name][self._group], f"{name} is read before it is written")
        return self.registers[name]

    def together(self, g: Group) -> None:
        _check(
            len(g) % 32 == 0 and (np.asarray(g)[::32] % 32 == 0).all(), "a warp's instruction, but only some threads"
        )

    def locate(self, address: np.ndarray, dtype: np.dtype, shared: bool) -> tuple[np.ndarray, np.ndarray]:
        size = dtype.itemsize
        _check(address % size == 0, "misaligned")
        if shared:
            offset, memory = address - _SHARED_BASE, self.shared
            _check((offset >= 0) & (offset + size <= memory.size), "outside shared memory")
        else:
            offset, memory = address - self.memory.base, self.memory.bytes
            _check((offset >= 0) & (offset + size <= memory.size), "outside memory")
            _check(self.memory.owned[offset] & self.memory.owned[offset + size - 1], "not allocated")
        return memory[: memory.size // size * size].view(dtype), offset // size

    def run(self, threads: np.ndarray) -> Iterator[str]:
        """Run some threads; yields "barrier" when all of them wait, "memory" when others may go on."""
        program = self.program
        pc = np.zeros(program.threads, int)
        live = threads
        waiting = np.zeros(program.threads, bool)
        while len(live):
            ready = live[~waiting[live]]
            if not len(ready):
                yield "barrier"
                waiting[:] = False
                continue
            at = pc[ready].min()
            g = ready[pc[ready] == at]
            others = ready[pc[ready] != at]
            limit = pc[others].min() if len(others) else len(program.instructions)
            while at < limit:
                self._group = g
                run, name, guard, text = program.instructions[at]
                h = g
                if guard is not None:
                    taken = self.read(guard[0])[g] != guard[1]
                    h = g[taken]
                if run is not None:
                    if len(h):
                        self._group = h
                        try:
                            run(self, h)
                        except Exception as error:
                            error.add_note(text)
                            raise
                        if "relaxed" in name or "atom" in name:
                            at += 1
                            pc[g] = at
                            yield "memory"
                            continue
                    at += 1
                    pc[g] = at
                    continue
                kind, _, label = name.partition(" ")
                if kind == "bra":
                    pc[g] = at + 1
                    pc[h] = program.labels[label]
                elif kind == "bar":
                    pc[g] = at + 1
                    waiting[g] = True
                else:
                    pc[g] = at + 1
                    live = live[~np.isin(live, h)]
                break


def _block(program: Program, memory: Memory, arguments: np.ndarray, number: int, shared: int, rng: Any, by_warp: bool):
    block = Block(program, memory, arguments, number, shared)
    threads = np.arange(program.threads)
    units = [block.run(t) for t in (threads.reshape(-1, 32) if by_warp else [threads])]
    while units:
        waiting, running = [], list(units)
        while running:
            i = rng.integers(len(running))
            event = next(running[i], "end")
            if event == "memory":
                yield
            else:
                unit = running.pop(i)
                if event == "barrier":
                    waiting.append(unit)
        units = waiting


@lru_cache
def _parsed(code: str) -> Program:
    return Program(code)


def launch(
    code: str,
    memory: Memory,
    arguments: Sequence[int],
    programs: int,
    shared: int,
    *,
    resident: int = 4,
    by_warp: bool = False,
    seed: int = 0,
) -> None:
    """Run a kernel given as PTX, `resident` blocks at a time."""
    program, rng = _parsed(code), np.random.default_rng(seed)
    slots = np.array([a & (1 << 64) - 1 for a in arguments], np.uint64)
    assert len(slots) == len(program.parameters), "number of arguments"
    order = list(rng.permutation(programs)) if programs else []
    running: list[Any] = []
    with np.errstate(all="ignore"):
        while order or running:
            while order and len(running) < resident:
                running.append(_block(program, memory, slots, int(order.pop()), shared, rng, by_warp))
            i = rng.integers(len(running))
            if next(running[i], "end") == "end":
                running.pop(i)


def run(routine: Any, emit: Callable[[str], str], memory: Memory, operands: dict[str, int], **options: Any) -> None:
    """Run a routine's launches, with a workspace that holds anything where it need not be zero."""
    workspace = memory.allocate(routine.workspace)
    start = workspace - memory.base
    memory.bytes[start : start + routine.zeroed] = 0
    operands = {**operands, "workspace": workspace}
    for step in routine.launches:
        arguments = [a if isinstance(a, int) else operands[a.operand] + a.offset for a in step.arguments]
        launch(emit(step.code.text), memory, arguments, step.programs, step.code.shared, **options)
