"""Runs the LLVM IR of a GPU kernel in NumPy, all threads of all blocks side by side, where there is no GPU.

It knows the instructions that the code generator writes, with every access checked: global memory must lie in an array
and be aligned, and no thread may read or overwrite what another one wrote, or overwrite what another one read, unless a
barrier of their block is between.  The blocks of a cluster count as one here, the parts of which have shared memory of
their own.
"""

from __future__ import annotations

import operator
import re
import struct
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.cuda.codegen import Code
from blockarray.compiler.ir import Kernel
from tests.compiler.cuda import gpu_atomics, gpu_copies, gpu_warps
from tests.compiler.cuda.gpu_functions import FUNCTIONS, LIBRARY, saturated, unsigned
from tests.compiler.cuda.gpu_memory import Memory, Races
from tests.compiler.cuda.gpu_text import VECTOR, Line, assembly, called, functions, operand, split, type_of

#: A copy that may ignore its source.
_IGNORING = re.compile(r"cp\.async\.c[ag]\.shared\.global \[\$0\+(\d+)\], \[\$1\+(\d+)\], (\d+), \$2;")
_CASTS = frozenset((
    "zext", "sext", "trunc", "bitcast", "fpext", "fptrunc", "sitofp", "uitofp", "ptrtoint", "inttoptr",
))  # fmt: skip
#: Threads that run side by side; further programs come after.
TOGETHER = 1 << 14
#: A copy, if a predicate says so.
_PREDICATED = re.compile(r"@\$2 cp\.async\.c[ag]\.shared\.global \[\$0\+(\d+)\], \[\$1\+(\d+)\], (\d+);")
#: Where the shared memory of a cluster's first block lies as the other blocks see it, and how far apart they are.
REMOTE, APART = 1 << 32, 1 << 24


class Emulator:
    """Runs a kernel.  `words` are its arguments, 8 bytes each; pointers are to `memory`."""

    #: Draws whose turn it is, where not all programs go on together.
    turns: np.random.Generator | None = None

    def __init__(self, code: Code, words: list[int], memory: Memory, programs: int, first: int, count: int) -> None:
        self.block, self.cluster = code.threads, code.cluster
        self.threads = code.threads * code.cluster
        self.programs, self.first = programs, first
        self.count = count * self.threads
        self.functions = functions(code.text)
        self.maps = gpu_copies.maps(code.maps, words)
        #: Those that programs make, by their addresses.
        self.made: dict[int, gpu_copies.Map] = {}
        #: Those in shared memory, by block.
        self.drafts: dict[tuple[int, int], gpu_copies.Map] = {}
        words = [*words, *range(len(self.maps))]
        self._enter("kernel", [np.full(self.count, word, np.uint64).view(np.int64) for word in words])
        self.memory = memory
        self.shared = np.zeros((count * code.cluster, max(code.shared, 1)), np.uint8)
        self.races = Races(self.shared.size)
        #: What other blocks sent and nobody has read.
        self.unread = np.zeros(self.shared.shape, np.bool_)
        self.epoch = np.zeros(count, np.int32)
        #: Barriers in shared memory, by block and address; threads that wait for one.
        self.barriers: dict[tuple[int, int], gpu_copies.Barrier] = {}
        #: Of barriers at which groups take turns, how much oftener they were let than they waited.
        self.given: Counter[tuple[int, int]] = Counter()
        #: Registers that only the assembler knows.
        self.own: list[np.ndarray] = []
        self.constants: dict[tuple[str, str], np.ndarray] = {}
        self.blocked = np.zeros(self.count, np.bool_)
        #: Copies to shared memory that threads have not waited for, each thread's with its group's number.
        self.copies: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.groups = np.zeros(self.count, np.int32)
        #: Threads that may meet memory: what was queued before has ended.
        self.ready = np.full(self.count, not code.waits)
        #: Whether the threads of a program have arrived at its cluster's barrier and not waited yet.
        self.arrived = np.zeros(count, np.bool_)

    # -- running ------------------------------------------------------------------------------------------------------
    def _enter(self, name: str, args: list[np.ndarray]) -> None:
        names, self.blocks = self.functions[name]
        self.numbers = {body.label: k for k, body in enumerate(self.blocks)}
        self.values: dict[str, Any] = dict(zip(names, args, strict=True))
        self.cells: dict[str, np.ndarray] = {}
        self.result: np.ndarray | None = None

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self._run(np.full(self.count, True))
        assert not any(self.given.values()), "a turn that nobody takes"

    def _run(self, mask: np.ndarray) -> None:
        """Run a function from its beginning, by some of the threads."""
        at = self.at = np.where(mask, 0, -1)
        came = np.full(self.count, -1, np.int64)
        while (at >= 0).any():
            # In each program, the earliest block in the text: loops finish before what follows them, branches join
            # again.  Each program gets its turn, as some wait for others.
            alive = np.where((at >= 0) & ~self.blocked, at, 1 << 30).reshape(-1, self.threads)
            turn = alive.min(1)
            assert (turn < 1 << 30).any(), "all threads wait"
            if self.turns is not None and (awake := self.turns.random(len(turn)) < self.turns.random()).any():
                turn[~awake] = 1 << 30
            first = np.repeat(turn, self.threads)
            for here in np.unique(first[first < 1 << 30]):
                self._block(int(here), (at == here) & (first == here) & ~self.blocked, at, came)

    def _invoke(self, name: str, args: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
        """Call one of the module's functions."""
        frame = self.blocks, self.numbers, self.values, self.cells, self.result, self.at
        self._enter(name, args)
        self._run(mask)
        result = self.result
        assert result is not None
        self.blocks, self.numbers, self.values, self.cells, self.result, self.at = frame
        return result

    def _block(self, here: int, mask: np.ndarray, at: np.ndarray, came: np.ndarray) -> None:
        body = self.blocks[here]
        # They read what others of them were.
        self.phis = {x.name: self._compute(x, mask, came) for x in body.phis} if len(body.phis) > 1 else {}
        whole = mask.all()
        for line in body.lines:
            text = line.text
            if line.opcode == "ret":
                at[mask] = -1
                if text != "ret void":
                    new = self.typed(text[4:])
                    self.result = new if self.result is None else np.where(mask, new, self.result).astype(new.dtype)
            elif line.opcode == "br":
                came[mask] = here
                if text.startswith("br label"):
                    at[mask] = self.numbers[text.split("%")[1]]
                    continue
                branch = re.fullmatch(r"br i1 (\S+), label %(\w+), label %(\w+)", text)
                assert branch is not None, text
                cond, yes, no = branch.groups()
                taken = self.value(cond, "i1")
                at[mask] = np.where(taken, self.numbers[yes], self.numbers[no])[mask]
            elif line.opcode == "try_wait":
                asm = assembly(text)
                assert asm is not None
                done = gpu_copies.wait(self, [self.typed(x) for x in asm[2]], mask)
                self.blocked |= mask & ~done
                mask = mask & done
                whole = False
                if not mask.any():
                    return
            elif not line.name:
                self._effect(text, mask)
            else:
                new = self.phis[line.name] if line.name in self.phis else self._compute(line, mask, came)
                if new is None:
                    continue
                old = self.values.get(line.name) if line.kept and not whole else None
                if old is None or isinstance(new, list):
                    self.values[line.name] = new
                else:
                    shape = mask if new.ndim == 1 else mask[:, None]
                    self.values[line.name] = np.where(shape, new, old).astype(new.dtype, copy=False)

    def other(self, who: int, rank: int) -> int:
        """Another block of a thread's cluster, whose memory there must be."""
        first = who // self.threads * self.cluster
        assert 0 <= rank < self.cluster and self.epoch[first // self.cluster], "no such block, or not begun"
        threads = slice((first + rank) * self.block, (first + rank + 1) * self.block)
        assert (self.at[threads] >= 0).any(), "a block that has ended"
        return first + rank

    # -- values -------------------------------------------------------------------------------------------------------
    def value(self, ref: str, ty: str) -> np.ndarray:
        if ref.startswith("%"):
            return self.values[ref]
        found = self.constants.get((ref, ty))
        if found is None:
            found = self.constants[ref, ty] = self._constant(ref, ty)
            found.flags.writeable = False
        return found

    def _constant(self, ref: str, ty: str) -> np.ndarray:
        vector = VECTOR.fullmatch(ty)
        if vector:
            return np.zeros((self.count, int(vector[1])), type_of(vector[2]))
        if ref.startswith("@"):
            return np.full(self.count, self.memory.names.get(ref, 0))
        if ref in ("true", "false"):
            return np.full(self.count, ref == "true")
        if ref.startswith("0x"):
            number = struct.unpack("<d", struct.pack("<Q", int(ref, 16)))[0]
            return np.full(self.count, number).astype(type_of(ty))
        bits = 8 * np.dtype(type_of(ty)).itemsize
        number = int(ref)
        if number >= 1 << (bits - 1):
            number -= 1 << bits
        return np.full(self.count, number, type_of(ty))

    def typed(self, text: str) -> np.ndarray:
        """A value after its type."""
        ty, ref = operand(text)
        return self.value(ref, ty)

    def _compute(self, line: Line, mask: np.ndarray, came: np.ndarray) -> Any:
        opcode, rest = line.opcode, line.rest
        if opcode == "call":
            return self._call(line.text, mask)
        if opcode == "atomicrmw":
            address, value = (self.typed(p.removeprefix("add ").removesuffix(" monotonic")) for p in split(rest))
            old = np.zeros(self.count, value.dtype)
            memory = self.memory.bytes.view(value.dtype)
            self._places(address, "(1)", value.itemsize, mask)
            # Not in the order of the programs' own numbers.
            for who in np.flatnonzero(mask)[::-1]:
                place = address[who] // value.itemsize
                old[who] = memory[place]
                memory[place] += value[who]
            return old
        if opcode == "alloca":
            # Other programs may have begun before.
            self.cells.setdefault(line.name, np.zeros(self.count, type_of(rest.split(",")[0])))
            return None
        if opcode == "phi":
            ty = rest.split(" [")[0]
            result = np.zeros(self.count, type_of(ty))
            for ref, label in re.findall(r"\[(\S+), %(\w+)\]", rest):
                if (here := came == self.numbers[label]).any():
                    result = np.where(here, self.value(ref, ty), result)
            return result.astype(type_of(ty))
        if opcode in _CASTS:
            source, target = rest.rsplit(" to ", 1)
            return self._cast(opcode, self.typed(source), target)
        parts = split(rest)
        if opcode == "getelementptr":
            return self.typed(parts[1]) + self.typed(parts[2])
        if opcode == "load":
            ptr = parts[1].split(" ")[-1]
            if ptr in self.cells:
                return self.cells[ptr].copy()
            vector = VECTOR.fullmatch(parts[0])
            elem, n = (vector[2], int(vector[1])) if vector else (parts[0], 1)
            words = self._load(self.typed(parts[1]), parts[1], elem, n, mask)
            return words if vector else words[:, 0]
        if opcode == "select":
            c, a, b = map(self.typed, parts)
            return np.where(c, a, b).astype(a.dtype, copy=False)
        if opcode == "extractelement":
            return self.typed(parts[0])[:, int(parts[1].split()[-1])]
        if opcode == "insertelement":
            x = self.typed(parts[0]).copy()
            x[:, int(parts[2].split()[-1])] = self.typed(parts[1])
            return x
        if opcode == "extractvalue":
            return self.values[parts[0].split(" ")[-1]][int(parts[1])]
        if opcode in ("icmp", "fcmp"):
            predicate, first = parts[0].split(" ", 1)
            ty, ref = operand(first)
            return self._compare(predicate, self.value(ref, ty), self.value(parts[1], ty))
        if opcode == "fneg":
            return -self.typed(rest)
        ty, ref = operand(parts[0])
        return self._binary(opcode, self.value(ref, ty), self.value(parts[1], ty))

    def _cast(self, opcode: str, x: np.ndarray, target: str) -> np.ndarray:
        vector = VECTOR.fullmatch(target)
        ty = type_of(vector[2] if vector else target)
        if opcode == "bitcast":
            if vector:
                return np.ascontiguousarray(x)[:, None].view(ty)
            return np.ascontiguousarray(x).view(ty)[:, 0] if x.ndim == 2 else np.ascontiguousarray(x).view(ty)
        if opcode in ("zext", "uitofp") and x.dtype != np.bool_:
            x = unsigned(x)
        if x.dtype == object:
            return (x & 2**64 - 1).astype(np.uint64).view(np.int64).astype(ty)
        if opcode == "sext" and x.dtype == np.bool_:
            x = -x.astype(np.int8)
        if opcode == "trunc" and target == "i1":
            return (x & 1).astype(np.bool_)
        return x.astype(ty)

    def _compare(self, predicate: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind == "f":
            unordered = np.isnan(a) | np.isnan(b)
            if predicate in ("uno", "ord"):
                return unordered if predicate == "uno" else ~unordered
            # Ordered and unordered comparisons differ where a NaN is.
            found = {"eq": a == b, "ne": a != b, "gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b}[predicate[1:]]
            return found | unordered if predicate[0] == "u" else found & ~unordered
        if predicate[0] == "u":
            a, b = unsigned(a), unsigned(b)
        return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            predicate if predicate in ("eq", "ne") else predicate[1:]
        ]

    def _binary(self, opcode: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype == object:
            return {"mul": operator.mul, "lshr": operator.rshift}[opcode](a, b)
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
                return np.where(unsigned(b) < bits, a << (b & (bits - 1)), 0).astype(a.dtype)
            case "lshr":
                return (unsigned(a) >> (unsigned(b) & (bits - 1))).view(a.dtype)
            case "ashr":
                return a >> (b & (bits - 1))
            case "udiv" | "urem":
                x, y = unsigned(a), np.maximum(unsigned(b), 1)
                return (x // y if opcode == "udiv" else x % y).view(a.dtype)
            case "sdiv":
                # Towards zero, from NumPy's towards minus infinity.
                b = np.where(b == 0, 1, b)
                q = a // b
                return np.where((q < 0) & (q * b != a), q + 1, q).astype(a.dtype)
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
            assert self.ready[who].all(), "what is queued before may not have ended"
            allowed = self.memory.allowed
            inside = (places >= 0) & (places < len(allowed))
            assert inside.all() and allowed[places].all(), "out of bounds"
        else:
            block = who // self.block
            if "(7)" in space:
                assert self.epoch[who // self.threads].all(), "the cluster's other blocks may not have begun"
                assert (address >= REMOTE).all(), "no address of another block"
                block = who // self.threads * self.cluster + (address - REMOTE) // APART
                places = (places - REMOTE) % APART
            assert (places >= 0).all() and (places < self.shared.shape[1]).all(), "out of shared memory"
            places = places + (block * self.shared.shape[1])[:, None]
        return who, places

    def _note(self, access: str, space: str, who: np.ndarray, places: np.ndarray) -> None:
        """Look for races."""
        program = who // self.threads
        epoch = self.epoch[program]
        # Some of the bytes do, of the same as other accesses.
        places = places[:, :: {2: 2, 4: 2}.get(places.shape[1], max(1, places.shape[1] // 4))]
        races = self.races
        if "(1)" in space:
            owned = ~self.memory.shared[places[:, 0]]
            who, places, program, epoch = (x[owned] for x in (who, places, program, epoch))
            races = self.memory.races
        getattr(races, access)(places, who % self.threads, program + self.first, epoch)

    def _load(self, address: np.ndarray, space: str, elem: str, n: int, mask: np.ndarray) -> np.ndarray:
        size = np.dtype(type_of(elem)).itemsize
        who, places = self._places(address, space, size * n, mask)
        raw = np.zeros((self.count, size * n), np.uint8)
        self._note("load", space, who, places)
        if "(1)" not in space:
            self.unread.reshape(-1)[places] = False
        raw[who] = (self.memory.bytes if "(1)" in space else self.shared.reshape(-1))[places]
        return raw.view(type_of(elem))

    def _store(self, value: np.ndarray, address: np.ndarray, space: str, mask: np.ndarray) -> None:
        raw = np.ascontiguousarray(value).view(np.uint8).reshape(self.count, -1)
        who, places = self._places(address, space, raw.shape[1], mask)
        self._note("store", space, who, places)
        (self.memory.bytes if "(1)" in space else self.shared.reshape(-1))[places] = raw[who]

    def _effect(self, line: str, mask: np.ndarray) -> None:
        if line.startswith("store"):
            value, ptr, *_ = split(line[6:])
            cell = ptr.split(" ")[-1]
            x = self.typed(value)
            if cell in self.cells:
                self.cells[cell] = np.where(mask, x, self.cells[cell]).astype(x.dtype, copy=False)
                return
            self._store(x, self.typed(ptr), ptr, mask)
        elif asm := assembly(line):
            _, text, operands = asm
            if found := _IGNORING.match(text):
                further, beyond, width = map(int, found.groups())
                to, source, ignored = map(self.typed, operands)
                copied = gpu_warps.copied(self, source + beyond, width // 4, np.where(ignored, 0, width), mask)
                self.copies.append((copied, to + further, mask, self.groups.copy()))
                return
            if found := _PREDICATED.match(text):
                further, beyond, width = map(int, found.groups())
                to, source, there = map(self.typed, operands)
                copied = gpu_warps.copied(self, source + beyond, width // 4, np.full(self.count, width), mask & there)
                self.copies.append((copied, to + further, mask & there, self.groups.copy()))
                return
            if gpu_copies.effect(self, text, [self.typed(x) for x in operands], mask) or text.startswith("fence."):
                return
            if "release" in text and " red." not in text:
                ptr, word = operands
                self._store(self.typed(word), self.typed(ptr), ptr, mask)
                return
            *words, ptr, predicate = operands
            values = [self.typed(w) for w in words]
            if "b8" in text:
                values = [v.astype(np.int8) for v in values]
            active = mask & self.typed(predicate)
            if " red." in text:
                gpu_atomics.join(self, text, self.typed(ptr), ptr, values, active)
                return
            self._store(np.stack(values, 1), self.typed(ptr) + _beyond(text), ptr, active)
        else:
            if found := re.search(r"cp\.async\.c[ag]\.shared\.global\.(\d+)", line):
                to, source, *count = map(self.typed, split(line[line.index("(") + 1 : -1]))
                nbytes = count[0] if count else np.full(self.count, int(found[1]))
                copied = gpu_warps.copied(self, source, int(found[1]) // 4, nbytes, mask)
                self.copies.append((copied, to, mask, self.groups.copy()))
                return
            if "cp.async.commit.group" in line:
                self.groups[mask] += 1
                return
            if wait := re.search(r"cp\.async\.wait\.(?:all|group\(i32 (\d+)\))", line):
                open_ = self.groups - int(wait[1]) if wait[1] else self.groups + 1
                left = []
                for copied, to, threads, group in self.copies:
                    done = threads & mask & (group < open_)
                    self._store(copied, to, "ptr addrspace(3)", done)
                    if (threads & ~done).any():
                        left.append((copied, to, threads & ~done, group))
                self.copies = left
                return
            # Other copies are done at once.
            if any(word in line for word in ("bar.warp", "cp.async", "fence.proxy", "setmaxnreg", "prefetch")):
                return
            assert "barrier" in line, line
            assert self.cluster == 1 or "cluster" in line, "a barrier of one block of a cluster"
            blocks = mask.reshape(-1, self.threads)
            assert (blocks.all(1) | ~blocks.any(1)).all(), "a barrier that not all threads reach"
            here = blocks.any(1)
            if "cluster" in line:
                waits = ".wait" in line
                assert (self.arrived[here] == waits).all(), "to arrive and to wait take turns"
                self.arrived[here] = not waits
                if not waits:
                    return
            self.epoch[here] += 1

    # -- calls --------------------------------------------------------------------------------------------------------
    def _assembly(self, types: str, text: str, operands: list[str], mask: np.ndarray) -> Any:
        """What an assembly with results gives."""
        if not text:
            return self.typed(operands[0])
        if " atom." in text:
            ptr, *words, predicate = operands
            active = mask & self.typed(predicate)
            return gpu_atomics.join(self, text, self.typed(ptr), ptr, [self.typed(w) for w in words], active)
        args = [self.typed(x) for x in operands]
        if "cvt.sat.s32.s64" in text or "sub.sat.s32" in text:
            ends = np.iinfo(np.int32)
            wide = [a.astype(np.int64) for a in args]
            return np.clip(wide[0] - wide[1] if "sub" in text else wide[0], ends.min, ends.max).astype(np.int32)
        if "wgmma" in text:
            return gpu_warps.wgmma(self, text, args, mask)
        if "bar.red.or" in text:
            return gpu_warps.any_of_group(self, args[0], mask)
        if ".f64.f64" in text:
            return gpu_warps.multiply_doubles(text, args)
        if "e4m3x2" in text:
            return gpu_warps.converted(text, args)
        if "mma.sync" in text:
            return gpu_warps.multiply_fragments(text, args)
        if "ldmatrix" in text:
            return gpu_warps.load_fragments(self, args[0], mask, False)
        address, predicate = args
        kinds = types.strip("{}").split(", ")
        active = mask & predicate
        elem = "i8" if ".b8" in text else kinds[0]
        words = self._load(address + _beyond(text), operands[0], elem, len(kinds), active)
        if "acquire" in text:
            return np.where(active, words[:, 0], 2).astype(np.int32)
        begins = re.match(r"mov\.b\d+ \$0, (\w+);", text)
        if begins and (fill := int(begins[1], 16)):
            words[~active] = np.array(fill, np.uint64).astype(unsigned(words).dtype).view(words.dtype)
        words = words if elem != "i8" else unsigned(words).astype(type_of(kinds[0]))
        return [words[:, k] for k in range(len(kinds))] if len(kinds) > 1 else words[:, 0]

    def _call(self, text: str, mask: np.ndarray) -> Any:
        if asm := assembly(text):
            return self._assembly(*asm, mask)
        ty, name, operands = called(text)
        args = [self.typed(a) for a in operands]
        if name.startswith("llvm.") and not name.startswith("llvm.nvvm.") and ".sat." not in name:
            return _result(name, ty, args)
        if "ldmatrix" in name:
            return gpu_warps.load_fragments(self, args[0], mask, ".trans" in name)
        if "mapa" in name:
            assert (unsigned(args[1])[mask] < self.cluster).all(), "no such block in the cluster"
            return REMOTE + args[1].astype(np.int64) * APART + args[0]
        if name.endswith("nctaid.x"):
            return np.full(self.count, self.programs * self.cluster, np.int32)
        if name.endswith("nclusterid.x"):
            return np.full(self.count, self.programs, np.int32)
        if name.endswith("clusterid.x"):
            return (self.first + np.arange(self.count) // self.threads).astype(np.int32)
        if name.endswith("ctarank"):
            return (np.arange(self.count) % self.threads // self.block).astype(np.int32)
        if name.endswith("ctaid.x"):
            return (self.first * self.cluster + np.arange(self.count) // self.block).astype(np.int32)
        if name.endswith("tid.x"):
            return (np.arange(self.count) % self.block).astype(np.int32)
        if "shfl" in name:
            kind = name.split(".")[4]
            lane = np.arange(self.count) % 32
            source = {"bfly": lane ^ args[2], "up": lane - args[2], "idx": args[2]}[kind]
            source = np.where((source >= 0) & (source < 32), source, lane)
            warps = mask.reshape(-1, 32)
            assert (warps.all(1) | ~warps.any(1)).all(), "a shuffle in a part of a warp"
            return args[1][np.arange(self.count) - lane + source]
        if "ff2bf16x2" in name:
            return np.stack([x.astype(ml_dtypes.bfloat16) for x in args[::-1]], 1)
        if "ff2f16x2" in name:
            return np.stack([x.astype(np.float16) for x in args[::-1]], 1)
        if name.endswith("prmt"):
            pieces = np.stack([np.ascontiguousarray(a).view(np.uint8).reshape(-1, 4) for a in args[:2]], 1).reshape(
                -1, 8
            )
            chosen = unsigned(args[2])[:, None] >> 4 * np.arange(4) & 7
            return np.ascontiguousarray(np.take_along_axis(pieces, chosen.astype(np.intp), 1)).view(np.int32)[:, 0]
        if "vote.ballot" in name:
            bits = ((args[1] & mask).reshape(-1, 32) * (1 << np.arange(32))).sum(1)
            return np.repeat(bits.astype(np.uint32).view(np.int32), 32)
        if "vote.any" in name:
            return np.repeat((args[1] & mask).reshape(-1, 32).any(1), 32)
        if "match.any" in name:
            rows = args[1].reshape(-1, 32)
            same = (rows[:, :, None] == rows[:, None, :]) & mask.reshape(-1, 1, 32)
            return (same * (1 << np.arange(32))).sum(2).astype(np.uint32).view(np.int32).ravel()
        if ".sat." in name:
            return saturated(args[0], type_of(ty), "fptoui" in name)
        if name.startswith("__nv_"):
            plain = name.removeprefix("__nv_")
            plain = plain if plain in LIBRARY else plain.removesuffix("f")
            return LIBRARY[plain](*(a.astype(np.float64) for a in args)).astype(type_of(ty))
        if name in self.functions:
            return self._invoke(name, args, mask)
        return _result(name, ty, args)


def _result(name: str, ty: str, args: list[np.ndarray]) -> np.ndarray:
    """What an intrinsic gives for each thread by itself."""
    function = FUNCTIONS[name.removeprefix("llvm.").removeprefix("nvvm.").split(".")[0]]
    natural = name.startswith("llvm.u")
    if natural:
        args = [unsigned(a) for a in args]
    result = function(*args)
    return result.view(type_of(ty)) if natural else result.astype(type_of(ty), copy=False)


def _beyond(asm: str) -> int:
    """The bytes that an instruction adds to its address."""
    found = re.search(r"\[\$\d+\+(\d+)\]", asm)
    return int(found[1]) if found else 0


def launch(code: Code, words: list[int], memory: Memory, programs: int) -> None:
    """Run the programs of a launch, as many side by side as is reasonable; `memory` is open."""
    together = max(2, TOGETHER // (code.threads * code.cluster))
    for first in range(0, programs, together):
        Emulator(code, words, memory, programs, first, min(together, programs - first)).run()


def run(code: Code, kernel: Kernel, args: list[Any]) -> None:
    """Run a kernel on arrays, which it changes."""
    sizes = dict(zip(kernel.params, args, strict=True))
    programs = 1
    for axis in kernel.grid:
        programs *= -(-int(sizes[axis.size]) // axis.block)
    memory = Memory()
    aligned = ("errors", "workspace", *kernel.attrs.get("aligned", ()))
    words = []
    for p, arg in zip(kernel.params, args, strict=True):
        if p.type.pointer:
            if p.name == "workspace":
                arg = np.zeros(max(arg.nbytes, code.workspace[0] + code.workspace[1] * programs), np.int8)
            words.append(memory.put(arg, 0 if p.name in aligned else arg.itemsize))
        else:
            words += scalar(p.type.dtype, arg)
    memory.declare(code)
    memory.open()
    mark_shared(kernel, words, memory)
    # Where the number of blocks is open, two do.
    blocks = max(2, kernel.attrs.get("spread", 0))
    launch(code, words, memory, blocks if code.programs else min(programs, 2) if code.resident else programs)
    memory.close()


def scalar(dtype: str, value: Any) -> list[int]:
    """The slots of a scalar argument."""
    raw = np.asarray(value, dtypes.NUMPY[dtype])
    parts = (np.real(raw), np.imag(raw)) if raw.dtype.kind == "c" else (raw,)
    return [int.from_bytes(part.tobytes().ljust(8, b"\0"), "little") for part in parts]


def mark_shared(kernel: Kernel, words: list[int], memory: Memory) -> None:
    """Say which arrays the threads of all programs access as they like."""
    at = 0
    scattered = {v for op in kernel.walk() if op.name in ("store_ptr", "atomic") for v in op.operands if v.type.pointer}
    for p in kernel.params:
        if p.type.pointer and (p.name in ("errors", "workspace") or p in scattered):
            start, array = max((a for a in memory.arrays if a[0] <= words[at]), key=lambda a: a[0])
            memory.shared[start : start + array.nbytes] = True
        at += 2 if p.type.dtype in dtypes.COMPLEX and not p.type.pointer else 1
