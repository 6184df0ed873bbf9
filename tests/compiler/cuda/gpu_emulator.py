"""Runs the LLVM IR of a GPU kernel in NumPy, all threads of all blocks side by side, where there is no GPU.

It knows the instructions that the code generator writes, with every access checked: global memory must lie in an array
and be aligned, and shared memory must not be read or overwritten by another thread before a barrier.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.cuda.codegen import Code
from blockarray.compiler.ir import Kernel

_INT = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
_FLOAT = {"half": np.float16, "float": np.float32, "double": np.float64}
_VECTOR = re.compile(r"<(\d+) x (.+)>")
_CALL = re.compile(r"call (.+?) @([\w.]+)\((.*)\)")
_ASM = re.compile(r'call (.+?) asm sideeffect "(.*?)", "(.*?)"\((.*)\)')
GUARD = 64


def _type(ty: str) -> Any:
    if ty.startswith("ptr"):
        return np.int64
    return _INT.get(ty) or _FLOAT[ty]


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(x.dtype.str.replace("i", "u")) if x.dtype.kind == "i" else x.view(np.uint8)


def _split(text: str) -> list[str]:
    """Operands separated by commas outside brackets."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += c in "(<{["
        depth -= c in ")>}]"
        if c == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


class Emulator:
    def __init__(self, code: Code, kernel: Kernel, args: list[Any], programs: int) -> None:
        self.threads = code.threads
        self.count = programs * code.threads
        self.values: dict[str, Any] = {}
        self.blocks: list[tuple[str, list[str]]] = []
        self.cells: dict[str, np.ndarray] = {}
        body = code.text[code.text.index("define ptx_kernel") :]
        head, *lines = body[: body.index("\n}\n")].split("\n")
        for line in lines:
            line = line.strip()
            if line.endswith(":"):
                self.blocks.append((line[:-1], []))
            elif line:
                self.blocks[-1][1].append(line)
        self.numbers = {name: k for k, (name, _) in enumerate(self.blocks)}
        self._memory(kernel, args, head)
        self.shared = np.zeros((programs, max(code.shared, 1)), np.uint8)
        self.written = np.full((2, programs, max(code.shared, 1)), -1, np.int64)
        self.was_read = np.full((2, programs, max(code.shared, 1)), -1, np.int64)
        self.epoch = np.zeros((programs, 1), np.int64)

    def _memory(self, kernel: Kernel, args: list[Any], head: str) -> None:
        names = re.findall(r"%(\w+)", head)
        size = 4096
        self.arrays: list[tuple[int, np.ndarray]] = []
        words: list[int | float] = []
        for p, arg in zip(kernel.params, args, strict=True):
            if p.type.pointer:
                size = -(-size // 256) * 256 + GUARD
                if p.name not in kernel.attrs.get("aligned", ()) and p.name != "errors":
                    size += arg.itemsize
                words.append(size)
                self.arrays.append((size, arg))
                size += arg.nbytes + GUARD
                continue
            raw = np.asarray(arg, dtypes.NUMPY[p.type.dtype])
            for part in (np.real(raw), np.imag(raw)) if raw.dtype.kind == "c" else (raw,):
                words += struct.unpack("<q", part.tobytes().ljust(8, b"\0"))
        size = -(-size // 16) * 16
        self.memory = np.full(size + 4096, 0xA5, np.uint8)
        self.allowed = np.zeros(size + 4096, np.bool_)
        for at, arg in self.arrays:
            self.memory[at : at + arg.nbytes] = arg.view(np.uint8)
            self.allowed[at : at + arg.nbytes] = True
        for name, word in zip(names, words, strict=True):
            self.values["%" + name] = np.full(self.count, word, np.int64)

    # -- running ------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        at = np.zeros(self.count, np.int64)
        came = np.full(self.count, -1, np.int64)
        with np.errstate(all="ignore"):
            while (at >= 0).any():
                # In each program, the earliest block in the text: loops finish before what follows them, branches join
                # again.  Each program gets its turn, as some wait for others.
                alive = np.where(at >= 0, at, 1 << 30).reshape(-1, self.threads)
                first = np.repeat(alive.min(1), self.threads)
                for here in np.unique(first[first < 1 << 30]):
                    self._block(int(here), (at == here) & (first == here), at, came)
        for start, arg in self.arrays:
            arg.view(np.uint8)[:] = self.memory[start : start + arg.nbytes]

    def _block(self, here: int, mask: np.ndarray, at: np.ndarray, came: np.ndarray) -> None:
        for line in self.blocks[here][1]:
            if line.startswith("ret"):
                at[mask] = -1
            elif line.startswith("br label"):
                came[mask] = here
                at[mask] = self.numbers[line.split("%")[1]]
            elif line.startswith("br i1"):
                cond, yes, no = re.fullmatch(r"br i1 (\S+), label %(\w+), label %(\w+)", line).groups()  # type: ignore
                taken = np.broadcast_to(self.value(cond, "i1"), self.count)
                came[mask] = here
                at[mask] = np.where(taken, self.numbers[yes], self.numbers[no])[mask]
            elif line.startswith(("store", "call void")):
                self._effect(line, mask)
            else:
                name, rhs = line.split(" = ", 1)
                new = self._compute(rhs, name, mask, came)
                old = self.values.get(name)
                if new is None:
                    continue
                if old is None or mask.all() or isinstance(new, list):
                    self.values[name] = new
                else:
                    shape = mask if new.ndim == 1 else mask[:, None]
                    self.values[name] = np.where(shape, new, old).astype(new.dtype)

    # -- values -------------------------------------------------------------------------------------------------------
    def value(self, ref: str, ty: str) -> np.ndarray:
        vector = _VECTOR.fullmatch(ty)
        if ref.startswith("%"):
            return self.values[ref]
        if vector:
            return np.zeros((self.count, int(vector[1])), _type(vector[2]))
        if ref.startswith("@"):
            return np.zeros(self.count, np.int64)
        if ref in ("true", "false"):
            return np.full(self.count, ref == "true")
        if ref.startswith("0x"):
            number = struct.unpack("<d", struct.pack("<Q", int(ref, 16)))[0]
            return np.full(self.count, number).astype(_type(ty))
        bits = 8 * np.dtype(_type(ty)).itemsize
        number = int(ref)
        if number >= 1 << (bits - 1):
            number -= 1 << bits
        return np.full(self.count, number, _type(ty))

    def typed(self, text: str) -> tuple[np.ndarray, str]:
        """A value after its type."""
        text = re.sub(r" align \d+", "", text).strip()
        ty, ref = text.rsplit(" ", 1)
        return self.value(ref, ty), ty

    def _compute(self, rhs: str, name: str, mask: np.ndarray, came: np.ndarray) -> Any:
        opcode, rest = rhs.split(" ", 1)
        if opcode == "call":
            return self._call(rhs, mask)
        if opcode == "atomicrmw":
            address, value = (self.typed(p.removeprefix("add ").removesuffix(" monotonic"))[0] for p in _split(rest))
            old = np.zeros(self.count, value.dtype)
            memory = self.memory.view(value.dtype)
            # Not in the order of the programs' own numbers.
            for who in np.flatnonzero(mask)[::-1]:
                place = address[who] // value.itemsize
                old[who] = memory[place]
                memory[place] += value[who]
            return old
        if opcode == "alloca":
            self.cells[name] = np.zeros(self.count, _type(rest.split(",")[0]))
            return None
        if opcode == "phi":
            ty = rest.split(" [")[0]
            result = np.zeros(self.count, _type(ty))
            for ref, label in re.findall(r"\[(\S+), %(\w+)\]", rest):
                result = np.where(came == self.numbers[label], self.value(ref, ty), result)
            return result.astype(_type(ty))
        if opcode in ("zext", "sext", "trunc", "bitcast", "fpext", "fptrunc", "sitofp", "uitofp"):
            source, target = rest.rsplit(" to ", 1)
            x, _ = self.typed(source)
            return self._cast(opcode, x, target)
        parts = _split(rest)
        if opcode == "getelementptr":
            return self.typed(parts[1])[0] + self.typed(parts[2])[0]
        if opcode == "load":
            ptr = parts[1].split(" ")[-1]
            if ptr in self.cells:
                return self.cells[ptr].copy()
            address, space = self.typed(parts[1])
            vector = _VECTOR.fullmatch(parts[0])
            elem, n = (vector[2], int(vector[1])) if vector else (parts[0], 1)
            words = self._load(address, space, elem, n, mask)
            return words if vector else words[:, 0]
        if opcode == "select":
            c, a, b = (self.typed(p)[0] for p in parts)
            return np.where(c, a, b).astype(a.dtype)
        if opcode == "extractelement":
            return self.typed(parts[0])[0][:, int(parts[1].split()[-1])]
        if opcode == "insertelement":
            x = self.typed(parts[0])[0].copy()
            x[:, int(parts[2].split()[-1])] = self.typed(parts[1])[0]
            return x
        if opcode == "extractvalue":
            return self.values[parts[0].split(" ")[-1]][int(parts[1])]
        if opcode in ("icmp", "fcmp"):
            predicate, first = parts[0].split(" ", 1)
            a, ty = self.typed(first)
            return self._compare(predicate, a, self.value(parts[1], ty))
        if opcode == "fneg":
            return -self.typed(rest)[0]
        a, ty = self.typed(parts[0])
        return self._binary(opcode, a, self.value(parts[1], ty))

    def _cast(self, opcode: str, x: np.ndarray, target: str) -> np.ndarray:
        vector = _VECTOR.fullmatch(target)
        ty = _type(vector[2] if vector else target)
        if opcode == "bitcast":
            if vector:
                return np.ascontiguousarray(x)[:, None].view(ty)
            return np.ascontiguousarray(x).view(ty)[:, 0] if x.ndim == 2 else np.ascontiguousarray(x).view(ty)
        if opcode in ("zext", "uitofp") and x.dtype != np.bool_:
            x = _unsigned(x)
        if opcode == "trunc" and target == "i1":
            return (x & 1).astype(np.bool_)
        return x.astype(ty)

    def _compare(self, predicate: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind == "f":
            unordered = np.isnan(a) | np.isnan(b)
            return {"uno": unordered, "ord": ~unordered, "une": a != b, "oeq": a == b, "one": (a < b) | (a > b),
                    "ogt": a > b, "oge": a >= b, "olt": a < b, "ole": a <= b}[predicate]  # fmt: skip
        if predicate[0] == "u":
            a, b = _unsigned(a), _unsigned(b)
        return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            predicate if predicate in ("eq", "ne") else predicate[1:]
        ]

    def _binary(self, opcode: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = 8 * a.dtype.itemsize
        match opcode:
            case "add" | "fadd":
                return a + b
            case "sub" | "fsub":
                return a - b
            case "mul" | "fmul":
                return a * b
            case "fdiv":
                return a / b
            case "and":
                return a & b
            case "or":
                return a | b
            case "xor":
                return a ^ b
            case "shl":
                return np.where(_unsigned(b) < bits, a << (b & (bits - 1)), 0).astype(a.dtype)
            case "lshr":
                return (_unsigned(a) >> (_unsigned(b) & (bits - 1))).view(a.dtype)
            case "ashr":
                return a >> (b & (bits - 1))
            case "udiv" | "urem":
                x, y = _unsigned(a), np.maximum(_unsigned(b), 1)
                return (x // y if opcode == "udiv" else x % y).view(a.dtype)
            case "sdiv":
                q = np.abs(a) // np.abs(np.where(b == 0, 1, b))
                return np.where((a < 0) != (b < 0), -q, q).astype(a.dtype)
            case "srem":
                return np.fmod(a, np.where(b == 0, 1, b))
        raise NotImplementedError(opcode)

    # -- memory -------------------------------------------------------------------------------------------------------
    def _places(self, address: np.ndarray, space: str, nbytes: int, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(threads that access memory, the bytes of each)."""
        who = np.flatnonzero(mask)
        address = address[who]
        assert not (address % nbytes).any(), f"an access of {nbytes} bytes is misaligned"
        places = address[:, None] + np.arange(nbytes)
        if "(1)" in space:
            inside = (places >= 0) & (places < len(self.allowed))
            assert inside.all() and self.allowed[places].all(), "out of bounds"
        else:
            assert (places >= 0).all() and (places < self.shared.shape[1]).all(), "out of shared memory"
        return who, places

    def _load(self, address: np.ndarray, space: str, elem: str, n: int, mask: np.ndarray) -> np.ndarray:
        size = np.dtype(_type(elem)).itemsize
        who, places = self._places(address, space, size * n, mask)
        raw = np.zeros((self.count, size * n), np.uint8)
        if "(1)" in space:
            raw[who] = self.memory[places]
        else:
            block = (who // self.threads)[:, None]
            now = self.epoch[block[:, 0]]
            raw[who] = self.shared[block, places]
            writer, epoch = self.written[0][block, places], self.written[1][block, places]
            assert not ((writer != who[:, None]) & (epoch == now)).any(), "read before a barrier"
            again = (self.was_read[1][block, places] == now) & (self.was_read[0][block, places] != who[:, None])
            self.was_read[0][block, places] = np.where(again, -2, who[:, None])
            # Several threads that read one place in this instruction.
            other = self.was_read[0][block, places] != who[:, None]
            self.was_read[0][np.broadcast_to(block, places.shape)[other], places[other]] = -2
            self.was_read[1][block, places] = now
        return raw.view(_type(elem))

    def _store(self, value: np.ndarray, address: np.ndarray, space: str, mask: np.ndarray) -> None:
        raw = np.ascontiguousarray(value).view(np.uint8).reshape(self.count, -1)
        who, places = self._places(address, space, raw.shape[1], mask)
        if "(1)" in space:
            self.memory[places] = raw[who]
            return
        block = (who // self.threads)[:, None]
        now = self.epoch[block[:, 0]]
        for kind in (self.was_read, self.written):
            other = (kind[0][block, places] != who[:, None]) & (kind[1][block, places] == now)
            assert not other.any(), "overwritten before a barrier"
        self.shared[block, places] = raw[who]
        self.written[0][block, places] = who[:, None]
        self.written[1][block, places] = now
        assert (self.written[0][block, places] == who[:, None]).all(), "two threads write to one place"

    def _effect(self, line: str, mask: np.ndarray) -> None:
        if line.startswith("store"):
            value, ptr, *_ = _split(line[6:])
            cell = ptr.split(" ")[-1]
            x, _ = self.typed(value)
            if cell in self.cells:
                self.cells[cell] = np.where(mask, x, self.cells[cell]).astype(x.dtype)
                return
            address, space = self.typed(ptr)
            self._store(x, address, space, mask)
        elif asm := _ASM.match(line):
            if "release" in asm[2]:
                ptr, word = _split(asm[4])
                self._store(self.typed(word)[0], *self.typed(ptr), mask)
                return
            *words, ptr, predicate = _split(asm[4])
            values = [self.typed(w)[0] for w in words]
            address, space = self.typed(ptr)
            if "b8" in asm[2]:
                values = [v.astype(np.int8) for v in values]
            active = mask & self.typed(predicate)[0]
            if " red." in asm[2]:
                who, places = self._places(address, space, values[0].itemsize, active)
                np.add.at(self.memory.view(values[0].dtype), places[:, 0] // values[0].itemsize, values[0][who])
                return
            self._store(np.stack(values, 1), address, space, active)
        else:
            if "bar.warp" in line:
                return
            assert "barrier" in line, line
            blocks = mask.reshape(-1, self.threads)
            assert (blocks.all(1) | ~blocks.any(1)).all(), "a barrier that not all threads reach"
            self.epoch[blocks.any(1)] += 1

    # -- calls --------------------------------------------------------------------------------------------------------
    def _call(self, rhs: str, mask: np.ndarray) -> Any:
        if asm := _ASM.match(rhs):
            ptr, predicate = _split(asm[4])
            address, space = self.typed(ptr)
            kinds = asm[1].strip("{}").split(", ")
            active = mask & self.typed(predicate)[0]
            elem = "i8" if ".b8" in asm[2] else kinds[0]
            words = self._load(address, space, elem, len(kinds), active)
            if "acquire" in asm[2]:
                return np.where(active, words[:, 0], 2).astype(np.int32)
            words = words if elem != "i8" else _unsigned(words).astype(_type(kinds[0]))
            return [words[:, k] for k in range(len(kinds))] if len(kinds) > 1 else words[:, 0]
        found = _CALL.match(rhs)
        assert found is not None, rhs
        ty, name, operands = found.groups()
        args = [self.typed(a)[0] for a in _split(operands)]
        if name.endswith("nctaid.x"):
            return np.full(self.count, self.count // self.threads, np.int32)
        if name.endswith("ctaid.x"):
            return (np.arange(self.count) // self.threads).astype(np.int32)
        if name.endswith("tid.x"):
            return (np.arange(self.count) % self.threads).astype(np.int32)
        if "shfl" in name:
            kind = name.split(".")[4]
            lane = np.arange(self.count) % 32
            source = {"bfly": lane ^ args[2], "up": lane - args[2], "idx": args[2]}[kind]
            source = np.where((source >= 0) & (source < 32), source, lane)
            warps = mask.reshape(-1, 32)
            assert (warps.all(1) | ~warps.any(1)).all(), "a shuffle in a part of a warp"
            return args[1][np.arange(self.count) - lane + source]
        if "vote.ballot" in name:
            bits = ((args[1] & mask).reshape(-1, 32) * (1 << np.arange(32))).sum(1)
            return np.repeat(bits.astype(np.uint32).view(np.int32), 32)
        if "vote.any" in name:
            return np.repeat((args[1] & mask).reshape(-1, 32).any(1), 32)
        if "match.any" in name:
            rows = args[1].reshape(-1, 32)
            same = (rows[:, :, None] == rows[:, None, :]) & mask.reshape(-1, 1, 32)
            return (same * (1 << np.arange(32))).sum(2).astype(np.uint32).view(np.int32).ravel()
        function = _FUNCTIONS[name.removeprefix("llvm.").split(".")[0]]
        unsigned = name.startswith("llvm.u")
        if unsigned:
            args = [_unsigned(a) for a in args]
        result = function(*args)
        return result.view(_type(ty)) if unsigned else result.astype(_type(ty))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "smin": np.minimum, "smax": np.maximum, "umin": np.minimum, "umax": np.maximum, "sqrt": np.sqrt, "fabs": np.abs,
    "maximum": np.maximum, "minimum": np.minimum, "floor": np.floor, "rint": np.rint, "trunc": np.trunc,
    "__nv_expf": np.exp, "__nv_exp": np.exp, "fma": lambda a, b, c: a * b + c, "abs": lambda a, _: np.abs(a),
    "ctpop": np.bitwise_count, "ctlz": lambda x, _: 31 - np.floor(np.log2(x)).astype(np.int32),
}  # fmt: skip


def run(code: Code, kernel: Kernel, args: list[Any]) -> None:
    """Run a kernel on arrays, which it changes."""
    sizes = dict(zip(kernel.params, args, strict=True))
    programs = 1
    for axis in kernel.grid:
        programs *= -(-int(sizes[axis.size]) // axis.block)
    # Where the number of blocks is open, two do.
    Emulator(code, kernel, args, 2 if code.programs else programs).run()
