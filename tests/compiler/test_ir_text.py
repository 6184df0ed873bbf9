"""Printer and parser: random kernels come back from their text, literals keep their bits, errors name lines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockarray.compiler import dtypes, passes
from blockarray.compiler.builder import Builder
from blockarray.compiler.interpreter import run
from blockarray.compiler.ir import I64, Block, Kernel, Op, Type, Value
from blockarray.compiler.parser import ParseError, parse
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify

REALS = ["i32", "i64", "u8", "f16", "bf16", "f32", "f64"]
BINARY = ["add", "subtract", "multiply", "maximum", "less", "equal", "where"]
EXTENTS = [(), ("j",), ("j", 4), (4,), ("i", "j"), ("inf",)]


class _Maker:
    """Draws ops over the values made so far; every kernel it makes is correct and stays in bounds."""

    def __init__(self, draw):
        self.draw = draw
        self.b = b = Builder(draw(st.sampled_from(["k", "kernel", "a.b", "nan"])))
        self.pointers = {d: b.param(f"p_{d}", Type(d, pointer=True)) for d in REALS}
        n = b.param("n", I64)
        self.flag = b.param("flag", Type("bool"))
        self.values = [n, b.param("0x", Type("f32"))]
        b.dim("j", n)
        b.dim("i", n, bucket=draw(st.sampled_from([None, 1024])))
        b.dim("inf", n, 2, b.grid_axis(n, 2))
        if draw(st.booleans()):
            b.attrs.update(schedule="x y", team=True, tile=(8, (1.5,), -0.0, ()))

    def pick(self, extents=None, dtype=None):
        found = [
            v for v in self.values
            if (extents is None or v.type.extents == extents) and (dtype is None or v.type.dtype == dtype)
        ]  # fmt: skip
        if found and self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from(found))
        dtype = dtype or self.draw(st.sampled_from(REALS))
        extents = self.draw(st.sampled_from(EXTENTS)) if extents is None else extents
        return self.b.broadcast(self.constant(dtype), (), extents)

    def constant(self, dtype):
        return self.b.const(self.draw(st.sampled_from([0, 1, 3, 7])), dtype)

    def step(self, depth):
        b, draw = self.b, self.draw
        match draw(st.sampled_from(["op", "op", "op", "cast", "load", "store", "reduce", "scan", "arg", "for", "if"])):
            case "op":
                x = self.pick()
                name = draw(st.sampled_from(BINARY))
                y = self.pick(x.type.extents, x.type.dtype)
                if name == "where":
                    self.values.append(b.op("where", b.op("less", x, y), x, y))
                elif x.type.dtype != "bool":
                    self.values.append(b.op(name, x, y))
            case "cast":
                self.values.append(b.cast(self.pick(), draw(st.sampled_from(REALS))))
            case "load":
                extents = draw(st.sampled_from(EXTENTS))
                zero, ptr = b.const(0), self.pointers[draw(st.sampled_from(REALS))]
                strides = [zero] * len(extents)
                bounds = [b.const(2)] * len(extents) if draw(st.booleans()) else None
                self.values.append(b.load_view(ptr, zero, strides, extents, bounds, 1))
            case "store":
                x = self.pick()
                if x.type.dtype != "bool":
                    b.store_view(x, self.pointers[x.type.dtype], b.const(1), [b.const(0)] * len(x.type.extents))
                else:
                    b.check(x, 'not "true"\n')
            case "reduce":
                x = self.pick(draw(st.sampled_from(EXTENTS[1:])))
                if x.type.dtype != "bool":
                    dims = tuple(sorted(draw(st.sets(st.integers(0, len(x.type.extents) - 1), min_size=1))))
                    self.values.append(b.reduce(x, draw(st.sampled_from(["sum", "max", "prod"])), dims))
            case "scan":
                x = self.pick(("j", 4))
                if x.type.dtype != "bool":
                    carry = draw(st.sampled_from([None, self.pick((4,), x.type.dtype)]))
                    self.values.append(b.scan(x, "cumsum", 0, carry))
            case "arg":
                self.values.append(b.argreduce(self.pick(("j",)), b.iota("j"), "argmin", (0,)))
            case "for" if depth < 2:
                inits = [self.pick() for _ in range(draw(st.integers(0, 2)))]
                with b.for_(b.const(0), b.const(2), b.const(1), inits) as loop:
                    results = self.region(depth, [loop.index, *loop.carried], [v.type for v in inits])
                    b.yield_(*results)
                self.values.extend(loop.results)
            case "if" if depth < 2:
                types = [self.pick().type for _ in range(draw(st.integers(0, 2)))]
                with b.if_(self.flag) as branch:
                    b.yield_(*self.region(depth, [], types))
                with branch.else_():
                    b.yield_(*self.region(depth, [], types))
                self.values.extend(branch.results)

    def region(self, depth, args, types):
        outer = self.values
        self.values = [*outer, *args]
        for _ in range(self.draw(st.integers(0, 3))):
            self.step(depth + 1)
        results = [self.pick(t.extents, t.dtype) for t in types]
        self.values = outer
        return results


@st.composite
def kernels(draw) -> Kernel:
    maker = _Maker(draw)
    for _ in range(draw(st.integers(1, 8))):
        maker.step(0)
    for x in maker.values:
        if x.type.dtype != "bool":
            b, rank = maker.b, len(x.type.extents)
            b.store_view(x, maker.pointers[x.type.dtype], b.const(2), [b.const(0)] * rank)
    return maker.b.finish()


def outputs(kernel: Kernel, n: int, flag: bool) -> tuple[list[bytes], list[str]]:
    buffers = [np.arange(3, 6).astype(dtypes.NUMPY[d]) for d in REALS]
    failed = run(kernel, [*buffers, n, flag, 0.5])
    return [x.tobytes() for x in buffers], failed


@settings(max_examples=80, deadline=None)
@given(kernels(), st.integers(0, 5), st.booleans())
def test_random_kernels(kernel, n, flag):
    """They verify, come back from their text, and mean the same after the passes."""
    verify(kernel)
    read = parse(text(kernel))
    assert text(read) == text(kernel)
    verify(read)
    optimised = passes.run(kernel, check=True)
    assert outputs(optimised, n, flag) == outputs(kernel, n, flag)
    assert text(passes.run(optimised)) == text(optimised)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.0, "f64"), (-0.0, "f64"), (math.inf, "f32"), (-math.inf, "bf16"), (math.nan, "f64"), (5e-324, "f64"),
        (1e300, "f64"), (0.1, "f32"), (0.1, "f16"), (True, "bool"), (-(2**63), "i64"), (2**64 - 1, "u64"),
        (complex(-0.0, -0.0), "c128"), (complex(0.0, -0.0), "c64"), (complex(math.nan, -math.inf), "c128"), (1j, "c64"),
        (complex(1e-05, 2.5e20), "c128"),
    ],
)  # fmt: skip
def test_constants_keep_their_bits(value, dtype):
    b = Builder("k")
    b.const(value, dtype)
    kernel = b.finish()
    verify(kernel)
    (op,) = parse(text(kernel)).body.ops
    held = dtypes.NUMPY[dtype].type(value)
    assert dtypes.NUMPY[dtype].type(op.attrs["value"]).tobytes() == held.tobytes()
    assert type(op.attrs["value"]) is type(kernel.body.ops[0].attrs["value"])


@pytest.mark.parametrize("message", ["plain", "", 'a "quoted" \\ line\n', "naïve \u2028 \U0001f600", "{", "// x"])
def test_messages_come_back(message):
    b = Builder("k")
    b.check(b.const(True, "bool"), message)
    assert parse(text(b.finish())).body.ops[1].attrs["message"] == message


def test_equal_numbers_of_different_types_print_differently():
    def of(value):
        return text(Kernel("k", (), (), {}, Block((), [Op("const", (), (Type("f64"),), {"value": value})])))

    assert len({of(v) for v in (0.0, -0.0, 0, False, 0j)}) == 5


def test_source_lines_do_not_print():
    b = Builder("k")
    b.line = ("file.py", 3)
    b.const(1)
    kernel = b.finish()
    assert kernel.body.ops[0].line == ("file.py", 3)
    assert "file" not in text(kernel)


def test_a_broken_kernel_prints():
    stray = Value(I64)
    kernel = Kernel("k", (), (), {}, Block((), [Op("negative", (stray,), (I64,))]))
    assert "%undefined<i64>" in text(kernel)


HEAD = "kernel @k(%n: i64) grid(%n / 1) {\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (HEAD + "  %0 = negative %m : i64\n}", "line 2: %m is not defined"),
        (HEAD + "  %0 = negative %n : i64\n  %0 = negative %n : i64\n}", "line 3: %0 is defined twice"),
        (HEAD + "  %0 = negative %n\n}", "line 2: negative has 1 results and 0 types"),
        (HEAD + "  %0 = const {value=?} : i64\n}", r"line 2: cannot read '\?"),
        (HEAD + "  %0 = const {value=x} : i64\n}", "line 2: expected a literal, found 'x'"),
        (HEAD, "line 2: expected a name, found 'end of text'"),
        (HEAD + "}\n}", "line 3: text after the kernel"),
        ("kernel @k(%n: i64) grid(%n / 1.5) {}", "line 1: expected an integer, found '1.5'"),
        ("", "expected 'kernel'"),
    ],
)
def test_errors_name_the_line(source, message):
    with pytest.raises(ParseError, match=message):
        parse(source)
