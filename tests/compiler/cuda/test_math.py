"""Every elementwise op on every dtype, and every conversion, becomes PTX that the assembler takes."""

from __future__ import annotations

import itertools

import pytest

from blockarray.compiler import dtypes, ops
from blockarray.compiler.cuda import make_target, tools
from blockarray.compiler.cuda.elements import Code
from blockarray.compiler.cuda.ptx import assemble, emit
from blockarray.compiler.dtypes import NUMPY, PART, SIZE
from blockarray.compiler.llvm import math
from blockarray.compiler.llvm.text import Text, V
from tests.compiler.accuracy import CASES

TARGETS = {capability: make_target(capability) for capability in ((7, 5), (8, 0), (9, 0), (12, 0))}
POINTER = "ptr addrspace(1)"


def needs_assembler():
    return pytest.mark.skipif(tools.ptxas() is None, reason="needs ptxas")


def load(t: Text, dtype: str, place: int):
    """The element at %p + 16 place."""
    size = SIZE[PART.get(dtype, dtype)]
    loaded = [
        t.load(t.gep(V("%p", POINTER), V(str(16 * place + i * size), "i64"), "i8"), math.memory_type(dtype), size)
        for i in range(2 if dtype in PART else 1)
    ]
    return math.from_memory(t, (loaded[0], loaded[1]) if len(loaded) == 2 else loaded[0], dtype)


def store(t: Text, register, dtype: str, place: int):
    stored = math.to_memory(t, register, dtype)
    size = SIZE[PART.get(dtype, dtype)]
    for i, x in enumerate([stored] if isinstance(stored, V) else stored):
        t.store(x, t.gep(V("%q", POINTER), V(str(16 * place + i * size), "i64"), "i8"), size)


def module(t):
    head = f"define ptx_kernel void @kernel({POINTER} noalias %p, {POINTER} noalias %q) {{"
    return "\n".join([head, "entry:", *t.lines, "  ret void", "}", *t.declarations.values()])


def assembles(t, target):
    code = emit(module(t), target)
    for loose in ("add.f32", "mul.f32", "add.f64", "mul.f64", "div.full"):
        assert f"\t{loose} " not in code
    found = assemble(code, target)
    assert found is not None
    assert found.cubin[:4] == b"\x7fELF"
    return found


def groups(cases, size):
    return [cases[i : i + size] for i in range(0, len(cases), size)]


@needs_assembler()
@pytest.mark.parametrize("part", range(8))
def test_every_op_assembles(part):
    target = TARGETS[9, 0]
    t = Code(target)
    for place, (op, operands, out) in enumerate(CASES[part::8]):
        args = [load(t, dtype, k) for k, dtype in enumerate(operands)]
        store(t, math.emit(t, op.name, args, operands, out, target), out, place)
    assembles(t, target)


@needs_assembler()
@pytest.mark.parametrize("capability", TARGETS)
def test_narrow_floats_on_every_architecture(capability):
    target = TARGETS[capability]
    t = Code(target)
    place = 0
    for op, operands, out in CASES:
        if operands[0] in ("f16", "bf16") and op.cost < 10:
            args = [load(t, dtype, k) for k, dtype in enumerate(operands)]
            store(t, math.emit(t, op.name, args, operands, out, target), out, place)
            place += 1
    assembles(t, target)


@needs_assembler()
def test_every_conversion_assembles():
    target = TARGETS[9, 0]
    t = Code(target)
    for place, (source, into) in enumerate(itertools.permutations(NUMPY, 2)):
        store(t, math.convert(t, load(t, source, 0), source, into), into, place)
    assembles(t, target)


def test_nothing_is_contracted():
    target = TARGETS[9, 0]
    t = Code(target)
    for place, dtype in enumerate(("f32", "f64", "c64")):
        a, b, c = (load(t, dtype, k) for k in range(3))
        product = math.emit(t, "multiply", [a, b], [dtype] * 2, dtype, target)
        store(t, math.emit(t, "add", [product, c], [dtype] * 2, dtype, target), dtype, place)
    code = emit(module(t), target)
    assert "fma" not in code
    assert "mul.rn.f32" in code and "add.rn.f64" in code


def test_denormals_and_rounding_are_ieee():
    target = TARGETS[9, 0]
    t = Code(target)
    x, y = load(t, "f32", 0), load(t, "f32", 1)
    store(t, math.emit(t, "divide", [x, y], ["f32"] * 2, "f32", target), "f32", 0)
    store(t, math.emit(t, "sqrt", [x], ["f32"], "f32", target), "f32", 1)
    code = emit(module(t), target)
    assert "div.rn.f32" in code and "sqrt.rn.f32" in code
    assert ".ftz" not in code


@pytest.mark.parametrize("name", sorted(dtypes.PART))
def test_functions_come_from_libdevice(name):
    target = TARGETS[9, 0]
    t = Code(target)
    store(t, math.emit(t, "exp", [load(t, name, 0)], [name], name, target), name, 0)
    assert "@__nv_sin" in module(t)


@needs_assembler()
def test_draws_assemble():
    target = TARGETS[9, 0]
    t = Code(target)
    place = 0
    for op in ops.TABLE.values():
        for last in ("u64", "f32", "f64") if op.kind == "elementwise" and op.arity > 3 else ():
            operands = ["u64"] * 4 + [last] * (op.arity - 4)
            try:
                out = ops.result_dtype(op.name, *operands)
            except TypeError:
                continue
            args = [load(t, dtype, k) for k, dtype in enumerate(operands)]
            store(t, math.emit(t, op.name, args, operands, out, target), out, place)
            place += 1
    assert place >= 9
    assembles(t, target)
