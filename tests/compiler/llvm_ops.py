"""Runs emitters of single ops over arrays, through llvmlite directly."""

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np

from blockarray.compiler import dtypes
from blockarray.compiler.cpu.libmvec import host_math
from blockarray.compiler.dtypes import NUMPY, PART
from blockarray.compiler.llvm import math
from blockarray.compiler.llvm.text import Text, V

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
_serial = itertools.count()


def parts(dtype):
    return 2 if dtype in PART else 1


def function(name, body, operands, out, lanes):
    """LLVM IR of `void name(ptr operand parts..., ptr out parts..., i64 n)`; n is a multiple of the lanes.

    body(text, registers) -> register.
    """
    t = Text()
    pointers = [f"%p{i}" for i in range(sum(map(parts, operands)) + parts(out))]
    step = lanes or 1
    t.line("br label %head")
    t.label("head")
    i = V("%i", "i64")
    top = len(t.lines)
    place = iter(pointers)
    registers = []
    for dtype in operands:
        loaded = []
        for _ in range(parts(dtype)):
            elem = math.memory_type(dtype)
            address = t.gep(V(next(place), "ptr"), i, elem)
            loaded.append(t.load(address, math.memory_type(dtype, lanes), 1))
        registers.append(math.from_memory(t, tuple(loaded) if len(loaded) == 2 else loaded[0], dtype))
    stored = math.to_memory(t, body(t, registers), out)
    for v in [stored] if isinstance(stored, V) else stored:
        t.store(v, t.gep(V(next(place), "ptr"), i, math.memory_type(out)), 1)
    t.line(f"%next = add i64 %i, {step}")
    t.line("%more = icmp slt i64 %next, %n")
    t.lines.insert(top, f"  %i = phi i64 [0, %entry], [%next, %{t.block}]")
    t.br_if(V("%more", "i1"), "head", "done")
    t.label("done")
    t.line("ret void")
    params = ", ".join([*(f"ptr {p}" for p in pointers), "i64 %n"])
    return "\n".join([f"define void @{name}({params}) {{", "entry:", *t.lines, "}"]), t.declarations


def emit_function(name, op, operands, out, lanes):
    return function(name, lambda t, xs: math.emit(t, op, xs, operands, out, host_math()), operands, out, lanes)


def convert_function(name, source, into, lanes):
    return function(name, lambda t, xs: math.convert(t, xs[0], source, into), [source], into, lanes)


class Module:
    """Compiled functions; `texts` are results of `function`."""

    def __init__(self, texts, optimize=False):
        declarations = {}
        for _, declared in texts:
            declarations.update(declared)
        source = "\n".join([*(body for body, _ in texts), *declarations.values()])
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
        )
        module = llvm.parse_assembly(source)
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def run(self, name, arrays, out: str, lanes):
        """The named function on 1-d arrays of one length."""
        n = len(arrays[0])
        size = -(-n // (lanes or 1)) * (lanes or 1)
        memory = []
        for a in arrays:
            padded = np.resize(a, size)
            memory += [np.real(padded).copy(), np.imag(padded).copy()] if a.dtype.kind == "c" else [padded]
        results = [np.empty(size, NUMPY[PART.get(out, out)]) for _ in range(parts(out))]
        pointers = [m.ctypes.data for m in memory + results]
        address = self._engine.get_function_address(name)
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)
        signature(address)(*pointers, size)
        if len(results) == 1:
            return results[0][:n]
        z = np.empty(size, NUMPY[out])
        z.real, z.imag = results
        return z[:n]


def hostile(dtype):
    """Values that break things, of an IR dtype."""
    kind = NUMPY[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if dtype in dtypes.INTEGER:
        info = np.iinfo(kind)
        small = [-200, -129, -128, -65, -64, -33, -10, -8, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 31, 32]
        wide = [*small, 33, 63, 64, 65, 100, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**53 + 1, 2**51, 2**51 - 1]
        edges = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 3]
        return np.array(sorted({x for x in wide + edges if info.min <= x <= info.max}), kind)
    if dtype in dtypes.COMPLEX:
        part = hostile(PART[dtype])
        re, im = (x.ravel() for x in np.meshgrid(part, part))
        z = np.empty(re.size, kind)
        z.real, z.imag = re, im
        return z
    if dtype in dtypes.FLOAT8:
        return np.arange(256, dtype=np.uint8).view(kind)
    info = {"f16": (6e-8, 6.1e-5, 65504.0, 9.8e-4), "bf16": (9.2e-41, 1.18e-38, 3.38e38, 7.8e-3)}.get(dtype)
    if info is None:
        f = np.finfo(kind)
        info = (float(f.smallest_subnormal), float(f.tiny), float(f.max), float(f.eps))
    tiny, normal, top, eps = info
    plain = [
        0.0,
        tiny,
        3 * tiny,
        normal,
        normal / 2,
        eps,
        1e-3,
        0.1,
        0.25,
        0.5,
        0.75,
        1 - eps / 2,
        1.0,
        1 + eps,
        1.5,
        2.0,
        2.5,
    ]
    plain += [
        np.pi / 2,
        np.pi,
        3.0,
        3.5,
        7.0,
        10.0,
        20.0,
        88.5,
        100.0,
        700.0,
        1000.0,
        33000.0,
        1e6,
        1e10,
        1e20,
        1e38,
        top / 2,
        top,
    ]
    both = [*plain, np.inf, *(-x for x in plain), -np.inf, np.nan]
    return dtypes.cast_array(np.array(both), kind)


def spread(dtype, n, rng):
    """Random values of all sizes, of a real IR dtype."""
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype in dtypes.INTEGER:
        info = np.iinfo(NUMPY[dtype])
        return rng.integers(info.min, info.max, n, NUMPY[dtype], endpoint=True) >> rng.integers(0, info.bits, n).astype(
            NUMPY[dtype]
        )
    if dtype in dtypes.COMPLEX:
        return (spread(PART[dtype], n, rng) + 1j * spread(PART[dtype], n, rng)).astype(NUMPY[dtype])
    near = rng.standard_normal(n // 2) * 5
    far = rng.standard_normal(n - n // 2) * 2.0 ** rng.integers(-30, 30, n - n // 2)
    return dtypes.cast_array(np.concatenate([near, far]), NUMPY[dtype])
