"""Every rule of the IR rejects what breaks it, with a message that names the op's line."""

from __future__ import annotations

import pytest

from blockarray.compiler import passes
from blockarray.compiler.builder import Builder
from blockarray.compiler.ir import I64, Block, GridAxis, Kernel, Op, Type, Value
from blockarray.compiler.parser import parse
from blockarray.compiler.verifier import VerifyError, verify

HEAD = (
    "kernel @k(%p: ptr<f32>, %n: i64, %b: bool, %f: f32) grid(%n / 1, %n / 8) dims(j = %n, i = %n / 8 @ 1) {\n"
    "  %t = load_view %p, %n, %n : f32[j]\n"
    "  %c = iota : i64[j]\n"
    "  %i4 = iota : i64[4]\n"
    "  %s = load_view %p, %n, %n : f32[4]\n"
    "  %m = load_view %p, %n, %n, %n : f32[4, j]\n"
    "  %sq = load_view %p, %n, %n, %n, %n : f32[2, 4, 4]\n"
)

GOOD = [
    "%x = load_view %p, %n : f32",
    "%x = load_view %p, %n, %n, %n, %n, %n {bounded=True, other=1.5} : f32[i, 4]",
    "%x = load_ptr %p, %n : f32",
    "%x = dim_extent {dim=\"i\"} : i64",
    "%x = broadcast %t {dims=(1,)} : f32[i, j]",
    "%x = argreduce %t, %c {dims=(0,), kind=\"argmin\"} : i64",
    "%x = scan %t, %f {dim=0, kind=\"cummax\"} : f32[j]",
    "%x = for %n, %n, %n, %t (%i: i64, %a: f32[j]) {\n yield %a\n } : f32[j]",
    "if %b {\n yield\n } else {\n yield\n }",
    "%x = bitcast %t : i32[j]",
    "%x = int_to_ptr %n : ptr<f16>\n %y = load_ptr %x, %c : f16[j]",
    "%x = ptr_to_int %p : i64",
    "%x = cast %n : i32\n%y = load_ptr %p, %x {cache=\".cg\", evict=\"evict_last\", volatile=True} : f32",
    "%x = atomic %f, %p, %n {kind=\"add\", order=\"relaxed\", scope=\"gpu\"} : f32",
    "%x = atomic %f, %f, %p, %n, %b {kind=\"cas\", masked=True, order=\"acquire\", scope=\"cta\"} : f32",
    "%x = hint %c {multiple=(8,), contiguous=(4,)} : i64[j]",
    "%x = hint %n {multiple=(8,)} : i64",
    "check %b, %b {message=\"no\"}",
    "print %t, %n {hex=False, prefix=\" x: \"}",
    "assume %b\n barrier",
    "%x = trans %m {perm=(1, 0)} : f32[j, 4]",
    "%x = join %t, %t : f32[j, 2]\n %y, %z = split %x : f32[j], f32[j]",
    "%x = reshape %s : f32[2, 2]\n %y = reshape %x : f32[1, 4]",
    "%x = cat %s, %s {dim=0} : f32[8]\n %y = flip %t {dim=0} : f32[j]",
    "%x = gather %t, %i4 {dim=0} : f32[4]\n %y = sort %x {descending=True, dim=0} : f32[4]",
    "%x = histogram %c : i32[8]",
    "%x, %y = reduce_by %t, %c {dims=(0,)} (%a: f32, %d: i64, %e: f32, %g: i64) {\n %h = less %a, %e : bool\n"
    " %k = where %h, %a, %e : f32\n yield %k, %d\n } : f32, i64",
    "%x = scan_by %t {dim=0, reverse=True} (%a: f32, %d: f32) {\n yield %a\n } : f32[j]",
    "%x = scan %t {dim=0, kind=\"cumsum\", reverse=True} : f32[j]",
    "%x, %y = while %n (%i: i64) {\n yield %b, %f, %i\n } else (%u: f32, %v: i64) {\n yield %v\n } : f32, i64",
    "while {\n yield %b\n } else {\n yield\n }",
    "%l = cast %n : i32\n%h = const {value=-2} : i32\nfor %l, %l, %h {num_stages=2} (%i: i32) {\n yield\n }",
    "%x = dot %sq, %sq {precision=\"tf32x3\"} : f32[2, 4, 4]",
]  # fmt: skip

BAD = [
    ("%x = frobnicate %n : i64", "no such op"),
    ("%x = sum %n : i64", "no such op"),
    ("%x = add %n : i64", "number of operands is 1, not 2"),
    ("%x = add %n, %f : i64", "add takes"),
    ("%x = add %n, %n : f32", r"the result is \(f32\), not \(i64\)"),
    ("%x = add %t, %f : f32[j]", "an operand's extents"),
    ("%x = divide %n, %n : f64", "divide takes"),
    ("%x = add %n, %n {wrap=True} : i64", "no attribute wrap"),
    ("%x = negative %p : f32", "operand 0 is a pointer"),
    ("%x = const {value=1.0} : i64", "value is 1.0, not a i64"),
    ("%x = const {value=1} : f32", "value is 1, not a f32"),
    ("%x = const {value=0.1} : f16", "value is 0.1, not a f16"),
    ("%x = const {value=300} : u8", "out of range for u8"),
    ("%x = const {value=-1} : u8", "out of range for u8"),
    ("%x = const {value=True} : i64", "not a i64"),
    ("%x = const {value=0} : i64[j]", "the result is"),
    ("%x = const : i64", "attribute value is missing"),
    ("%x = const {value=0} : i31", "unknown dtype i31"),
    ("%x = program_id {axis=2} : i64", "the grid has no axis 2"),
    ("%x = program_id {axis=True} : i64", "the grid has no axis True"),
    ("%x = dim_start {dim=\"z\"} : i64", "no dim 'z'"),
    ("%x = iota : i64", "number of extents is 0, not 1"),
    ("%x = iota : i64[z]", "extent z is not"),
    ("%x = iota : i64[0]", "extent 0 is not"),
    ("%x = iota : f32[j]", "the result is"),
    ("%x = cast %t : i32", "the result is"),
    ("%x = broadcast %t {dims=(2,)} : f32[i, j]", "out of range"),
    ("%x = broadcast %t {dims=(-1,)} : f32[i, j]", "out of range"),
    ("%x = broadcast %t {dims=(0,)} : f32[i, j]", "what dims pick"),
    ("%x = broadcast %t {dims=0} : f32[i, j]", "not an increasing tuple"),
    ("%x = broadcast %t {dims=(1, 1)} : f32[i, j]", "not an increasing tuple"),
    ("%x = load_view %n, %n, %n : i64[j]", "operand 0 is no pointer"),
    ("%x = load_view %p, %n : f32[j]", "offset, strides and bounds"),
    ("%x = load_view %p, %n, %n {bounded=True} : f32[j]", "offset, strides and bounds"),
    ("%x = load_view %p, %n, %n {other=0.0} : f32[j]", "has `other` and no bounds"),
    ("%x = load_view %p, %n, %n, %n {bounded=True, other=0} : f32[j]", "other is 0, not a f32"),
    ("%x = load_view %p, %n, %f : f32[j]", "an offset, stride or bound is f32"),
    ("%x = load_view %p, %c, %n : f32[j]", "an offset, stride or bound is i64"),
    ("%x = load_view %p, %n, %n : f64[j]", "the result is"),
    ("%x = load_view %p : f32", "operands are missing"),
    ("store_view %c, %p, %n, %n", "the value's dtype is i64, not f32"),
    ("store_view %t, %p, %n", "offset, strides and bounds"),
    ("%x = load_ptr %p, %t : f32[j]", "the index's dtype"),
    ("%x = load_ptr %p, %c, %b : f32[j]", "the mask is bool"),
    ("%x = load_ptr %p, %c {other=0.0} : f32[j]", "has `other` and no mask"),
    ("store_ptr %f, %p, %c", "the value is f32, not f32"),
    ("store_ptr %t, %p, %c {combine=\"xor\"}", "combine is 'xor'"),
    ("check %t {message=\"no\"}", "the condition's dtype"),
    ("check %b {message=1}", "message is no string"),
    ("%x = reduce %t {dims=(0,), kind=\"mean\"} : f32", "no reduction 'mean'"),
    ("%x = reduce %t {dims=(0,), kind=\"argmax\"} : f32", "no reduce 'argmax'"),
    ("%x = reduce %t {dims=(), kind=\"sum\"} : f32[j]", "no dims"),
    ("%x = reduce %t {dims=(1,), kind=\"sum\"} : f32", "out of range"),
    ("%x = reduce %t {dims=(0,), kind=\"any\"} : f32", "any of f32"),
    ("%x = reduce %t {dims=(0,), kind=\"sum\"} : f64", "the result is"),
    ("%x = argreduce %t, %n {dims=(0,), kind=\"argmax\"} : i64", "the index is i64, not"),
    ("%x = argreduce %t, %c {dims=(0,), kind=\"max\"} : i64", "no argreduce 'max'"),
    ("%x = scan %t {dim=0, kind=\"sum\"} : f32[j]", "no scan 'sum'"),
    ("%x = scan %t {dim=1, kind=\"cumsum\"} : f32[j]", "no extent 1"),
    ("%x = scan %t, %n {dim=0, kind=\"cumsum\"} : f32[j]", "the carry is i64"),
    ("%x = dot %t, %t : f32[j, j]", "no matrices"),
    ("%x = for %n, %n, %f (%i: i64) {\n yield\n } : f32", "step is f32"),
    ("for %n, %n, %n {\n yield\n }", "what the region takes"),
    ("%x = for %n, %n, %n, %f (%i: i64, %a: f32) {\n yield %i\n } : f32", r"yields \(i64\)"),
    ("for %n, %n, %n (%i: i64) {\n}", "does not end with yield"),
    ("for %n, %n, %n (%i: i64) {\n yield\n yield\n }", "yield is not the last op"),
    ("if %n {\n yield\n } else {\n yield\n }", "the condition is i64"),
    ("if %b {\n yield\n }", "has 1 regions"),
    ("%x = if %b {\n yield %n\n } else {\n yield %f\n } : i64", r"yields \(f32\)"),
    ("if %b {\n %y = negative %n : i64\n yield\n } else {\n %z = negative %y : i64\n yield\n }", "not defined here"),
    ("yield", "yield is not the last op of a region"),
    ("%x = bitcast %t : f64[j]", "size of the result's dtype"),
    ("%x = bitcast %b : i8", "bools have no bits"),
    ("%x = int_to_ptr %n : i64", "the result is"),
    ("%x = if %b {\n yield %p\n } else {\n yield %p\n } : ptr<f32>", "the result is a pointer"),
    ("%x = atomic %f, %p, %n {kind=\"nand\", order=\"relaxed\", scope=\"gpu\"} : f32", "kind is 'nand'"),
    ("%x = atomic %f, %p, %n {kind=\"and\", order=\"relaxed\", scope=\"gpu\"} : f32", "no atomic and of f32"),
    ("%x = atomic %f, %p, %n {kind=\"add\", order=\"seq_cst\", scope=\"gpu\"} : f32", "order is"),
    ("%x = atomic %f, %p, %n {kind=\"add\", order=\"relaxed\", scope=\"world\"} : f32", "scope is"),
    ("%x = atomic %f, %p, %n, %b {kind=\"add\", order=\"relaxed\", scope=\"gpu\"} : f32", "masked is False"),
    ("%x = atomic %n, %p, %n {kind=\"add\", order=\"relaxed\", scope=\"gpu\"} : i64", "the value is i64"),
    ("%x = hint %c {multiple=8} : i64[j]", "multiple is 8"),
    ("%x = hint %c {multiple=(8, 1)} : i64[j]", "entries of multiple"),
    ("check %b, %n {message=\"no\"}", "the mask is i64"),
    ("print %p {hex=False, prefix=\"\"}", "operand 0 is a pointer"),
    ("%x = trans %m {perm=(1, 1)} : f32[j, 4]", "perm is"),
    ("%x = join %t, %s : f32[j, 2]", "the second operand"),
    ("%x, %y = split %m : f32[4], f32[4]", "the last extent is not 2"),
    ("%x = reshape %s : f32[2, 4]", "numbers of elements differ"),
    ("%x = reshape %t : f32[2]", "numbers of elements differ"),
    ("%x = cat %t, %t {dim=0} : f32[j]", "the extent is no number"),
    ("%x = cat %s, %s {dim=1} : f32[8]", "no extent 1"),
    ("%x = gather %t, %s {dim=0} : f32[4]", "the index is f32"),
    ("%x = gather %m, %i4 {dim=0} : f32[4]", "number of the index's extents"),
    ("%x = histogram %t : i32[8]", "a histogram of f32"),
    ("%x = reduce_by %t {dims=(0,)} (%a: f32) {\n yield %a\n } : f32", "what the region takes"),
    ("%x = reduce_by %t {dims=(0,)} (%a: f32, %d: f32) {\n yield %t\n } : f32", r"yields \(f32\[j\]\)"),
    ("%x = reduce_by %t {dims=(0,)} (%a: f32, %d: f32) {\n %e = load_view %p, %n : f32\n yield %e\n } : f32",
     "load_view does not join scalars"),
    ("%x = while %n (%i: i64) {\n yield %i\n } else (%u: i64) {\n yield %u\n } : i64", r"yields \(i64\)"),
    ("%x = while %n (%i: i64) {\n yield %b, %f\n } else (%u: f32) {\n yield %u\n } : f32", r"yields \(f32\)"),
    ("%x = while %n (%i: i64) {\n yield %b, %i\n } else (%u: f32) {\n yield %i\n } : i64", "second region takes"),
    ("%z = const {value=0} : i64\nfor %n, %n, %z (%i: i64) {\n yield\n }", "step is 0"),
    ("for %f, %f, %f (%i: f32) {\n yield\n }", "lower is f32"),
    ("%x = dot %sq, %sq {precision=\"bf16\"} : f32[2, 4, 4]", "the precision is wrong"),
]  # fmt: skip


@pytest.mark.parametrize("line", GOOD)
def test_good_lines_pass(line):
    verify(parse(HEAD + line + "\n}"))


@pytest.mark.parametrize(("line", "message"), BAD)
def test_bad_lines_do_not(line, message):
    kernel = parse(HEAD + line + "\n}")
    with pytest.raises(VerifyError, match=rf"(?s)kernel @k, line \d+: .*{message}"):
        verify(kernel)


def test_matrix_products():
    source = """kernel @k(%p: ptr<f16>, %q: ptr<f32>, %n: i64) grid() dims(i = %n) {{
  %a = load_view %p, %n, %n, %n : f16[i, 8]
  %b = load_view %p, %n, %n, %n : f16[8, 4]
  %w = load_view %q, %n, %n, %n : f32[8, 4]
  %c = load_view %q, %n, %n, %n : f32[i, 4]
  {}
}}"""
    verify(parse(source.format("%x = dot %a, %b : f16[i, 4]")))
    verify(parse(source.format("%x = dot %a, %b, %c : f32[i, 4]")))
    for line, message in [
        ("%x = dot %a, %w : f32[i, 4]", "first operand's dtype"),
        ("%x = dot %b, %a : f16[8, 8]", "last extent"),
        ("%x = dot %a, %b : f64[i, 4]", "accumulate in f64"),
        ("%x = dot %a, %b, %c : f16[i, 4]", "the accumulator"),
        ('%x = dot %a, %b {precision="tf32"} : f16[i, 4]', "precision"),
    ]:
        with pytest.raises(VerifyError, match=f"line 6.*{message}"):
            verify(parse(source.format(line)))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("@k(%p: ptr<f32>, %n: f32) grid(%n / 1)", "size of grid axis 0"),
        ("@k(%n: i64) grid(%n / 0)", "block 0"),
        ("@k(%n: i64) grid(%n / 8) dims(i = %n / 8 @ 1)", "no axis of the grid"),
        ("@k(%n: i64) grid(%n / 8) dims(i = %n / 4 @ 0)", "differ in size or block"),
        ("@k(%n: i64, %m: i64) grid(%n / 8) dims(i = %m / 8 @ 0)", "differ in size or block"),
        ("@k(%0: i64) grid()", "parameter name '0'"),
        ("@k(%x: i64[4]) grid()", "no scalar or pointer"),
        ("@k(%x: int) grid()", "unknown dtype int"),
    ],
)
def test_signatures(head, message):
    with pytest.raises(VerifyError, match=message):
        verify(parse(f"kernel {head} {{\n}}"))


def test_what_text_cannot_say():
    n = Value(I64, None, "n")
    op = Op("negative", (n,), (I64,))
    verify(Kernel("k", (n,), (), {}, Block((), [op])))
    with pytest.raises(VerifyError, match="stands in the kernel twice"):
        verify(Kernel("k", (n,), (), {}, Block((), [op, op])))
    with pytest.raises(VerifyError, match="operand 0 is not defined here"):
        verify(Kernel("k", (), (), {}, Block((), [op])))
    with pytest.raises(VerifyError, match="one name"):
        verify(Kernel("k", (n, Value(I64, None, "n")), (), {}, Block()))
    with pytest.raises(VerifyError, match="no i64 parameter"):
        verify(Kernel("k", (), (GridAxis(n, 1),), {}, Block()))
    with pytest.raises(VerifyError, match="not plain"):
        verify(Kernel("k", (), (), {}, Block(), {"x": [1]}))


def test_the_runner_names_the_pass():
    def breaking(kernel: Kernel) -> Kernel:
        return Kernel("k", (), kernel.grid, kernel.dims, kernel.body)

    b = Builder("k")
    b.op("negative", b.param("n", I64))
    with pytest.raises(VerifyError, match="after pass breaking: kernel @k, line 2"):
        passes.run(b.finish(), [breaking], check=True)


def test_the_builder_refuses_what_has_no_type():
    b = Builder("k")
    n, x = b.param("n", I64), b.param("x", Type("f32"))
    with pytest.raises(TypeError):
        b.op("add", n, x)
    with pytest.raises(ValueError, match="extents differ"):
        b.op("add", n, b.iota(4))


def test_the_builder_folds_and_shares():
    b = Builder("k")
    n = b.param("n", I64)
    zero, one = b.const(0), b.const(1)
    assert b.const(0) is zero and b.const(True) is one and b.const(0.0, "f32") is not b.const(-0.0, "f32")
    assert b.op("add", n, zero) is n and b.op("add", zero, n) is n
    assert b.op("multiply", n, one) is n and b.op("multiply", one, n) is n
    assert b.op("multiply", n, zero) is zero
    assert b.op("add", b.const(2), b.const(3)) is b.const(5)
    big = b.op("multiply", b.const(2**62), b.const(2))
    assert big.op is not None and big.op.name == "multiply"
    assert b.cast(n, "i64") is n and b.broadcast(n, (), ()) is n
    with b.if_(b.param("c", Type("bool"))):
        seven = b.const(7)
        assert b.const(0) is zero and b.const(7) is seven
    assert b.const(7) is not seven
    verify(b.finish())
