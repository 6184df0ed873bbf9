# ruff: noqa
# fmt: off
# pyright: reportUndefinedVariable=false, reportAttributeAccessIssue=false, reportUnboundVariable=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportUnusedExpression=false, reportAssignmentType=false
"""What is wrong is said, at the author's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blockarray as ba
import blockarray.language as tl
from blockarray.language import CompilationError
from blockarray.language.frontend import Argument, Integer, Pointer, build
from tests.blockarray.language.running import jit

GLOBAL = 42


def error_of(kernel: Any, *names: str, **constants: Any) -> CompilationError:
    """The error of a kernel with integers, or, of the names in _ptr, pointers."""
    arguments = [Argument(n, Pointer("f32") if n.endswith("_ptr") else Integer()) for n in names]
    with pytest.raises(CompilationError) as caught:
        build(kernel, arguments, constants)
    return caught.value


def text_of(kernel: Any, *names: str, **constants: Any) -> str:
    return error_of(kernel, *names, **constants).reason


def test_the_line_is_shown_with_a_caret():
    def kernel(x_ptr, n):
        x = tl.load(x_ptr + tl.arange(0, 4))
        y = x + tl.arange(0, 8)

    error = error_of(kernel, "x_ptr", "n")
    line = kernel.__code__.co_firstlineno + 2
    assert str(error) == "\n".join((
        "blocks of shapes [4] and [8] do not broadcast together (dim 0)",
        f"  at {__file__}:{line}, in kernel",
        "    y = x + tl.arange(0, 8)",
        "        ^^^^^^^^^^^^^^^^^^^",
    ))  # fmt: skip


@jit
def inner(x):
    return x + nowhere


def test_the_calls_that_led_there_are_shown():
    def kernel(n):
        m = n * 2
        tl.static_print(
            inner(m)
        )

    error = error_of(kernel, "n")
    first, second = error.positions
    assert (first.function, second.function) == ("inner", "kernel")
    assert second.line == kernel.__code__.co_firstlineno + 3
    assert error.reason == "nowhere is not defined"
    assert "    return x + nowhere\n               ^^^^^^^\n  called from" in str(error)
    assert str(error).endswith("    inner(m)\n    ^^^^^^^^")


def test_sizes():
    def no_power():
        tl.arange(2, 7)

    def empty():
        tl.arange(4, 4)

    def shape():
        tl.zeros((33,), tl.int64)

    def large():
        tl.zeros((2048, 1024), tl.int64)

    def run_time(n):
        tl.arange(0, n)

    def variable_size():
        n = 4
        tl.zeros([n], tl.float32)

    def beyond():
        tl.arange(2**31 - 2, 2**31)

    assert text_of(no_power) == "arange(2, 7) has 5 elements, which is no power of two: take 8, and mask what is too much"
    assert text_of(empty) == "arange(4, 4) is empty: its end must be above its start"
    assert text_of(shape) == "element 0 of the shape is 33, which is no power of two: take 64, and mask what is too much"
    assert text_of(large) == "a block of shape [2048, 1024] has 2097152 elements, more than 1048576"
    assert text_of(run_time, "n") == (
        "arange's end must be a constexpr, not a run-time value of type int32: annotate the parameter n with tl.constexpr"
    )
    assert text_of(variable_size) == (
        "element 0 of the shape must be a constexpr, not a run-time value of type int32: annotate the variable, "
        "as NAME: tl.constexpr = 4"
    )
    assert text_of(beyond) == "arange(2147483646, 2147483648) is out of range for int32"


def test_names():
    def undefined():
        a += 1

    def variable():
        a = GLOBAL

    captured = 3

    def outer():
        a = captured

    def one_way(n):
        if n > 0:
            y = n
        n + y

    def loop_only(n):
        for i in range(n):
            y = i
        n + y

    assert text_of(undefined) == "a is not defined"
    assert text_of(variable) == (
        "GLOBAL is a global variable, which may change: make it a constant by GLOBAL = tl.constexpr(42)"
    )
    assert "captured is a global variable" in text_of(outer)
    line = one_way.__code__.co_firstlineno + 1
    expected = f"y may not be defined here: it is assigned on one way through the if at line {line} only"
    assert text_of(one_way, "n") == expected
    line = loop_only.__code__.co_firstlineno + 1
    expected = f"y may not be defined here: it is assigned in the loop at line {line} only, which may run no time"
    assert text_of(loop_only, "n") == expected


def test_types_that_differ():
    def loop(n):
        acc = 0
        for i in range(n):
            acc += 1.5

    def shapes(n):
        acc = tl.zeros((4,), tl.float32)
        while n > 0:
            acc = acc[:, None] + tl.zeros((4, 8), tl.float32)
            n -= 1

    def branch(n):
        y = 1
        if n > 0:
            y = 2.0

    def ternary(n):
        y = n if n > 0 else tl.zeros((2,), tl.int32)

    def nothing(n):
        y = None
        for i in range(n):
            y = i

    line = loop.__code__.co_firstlineno + 2
    assert text_of(loop, "n") == (
        f"acc is int32 before the loop at line {line}, and fp32 at its end: the types must agree"
    )
    assert "acc is <[4], fp32> before the loop" in text_of(shapes, "n")
    assert text_of(branch, "n") == "y is fp32 on one way and int32 on the other: the types must agree"
    assert text_of(ternary, "n") == (
        "the value is int32 on one way and <[2], int32> on the other: the types must agree"
    )
    assert "y is None before the loop" in text_of(nothing, "n")


@jit
def two_types(n):
    if n == 0:
        return tl.arange(0, 4)
    else:
        return tl.arange(0, 8)


@jit
def constant_needed(x, N: tl.constexpr):
    return x + tl.arange(0, N)


def test_calls():
    def returns(n):
        two_types(n)

    def missing(n):
        constant_needed(n, n)

    def count(n):
        constant_needed(n)

    def plain(n):
        error_of(n)

    def python(n):
        sum(n)

    def recursion(n):
        forever(n)

    def numpy_function(n):
        np.exp(n)

    def grown(n):
        x = [n, n]
        x.append(n)

    assert "two_types returns <[4], int32> on one way and <[8], int32> on the other" in text_of(returns, "n")
    assert text_of(missing, "n").endswith("value of type int32: annotate the parameter n with tl.constexpr")
    assert text_of(count, "n") == "constant_needed: missing a required argument: 'N'"
    assert text_of(plain, "n") == "error_of is no function of kernels: decorate it with blockarray.jit"
    assert text_of(python, "n") == "Python's sum takes no tensors"
    assert text_of(numpy_function, "n") == "numpy's exp takes no tensors: use tl.exp"
    assert text_of(grown, "n") == "(int32, int32) has no attribute append: lists are tuples in kernels"
    assert text_of(recursion, "n") == "calls of forever are nested more than 64 deep"


@jit
def forever(n):
    return forever(n)


def test_constants():
    def annotated(n):
        x: tl.constexpr = n

    def assertion(N: tl.constexpr):
        tl.static_assert(N == 3, "three")

    def unknown(n):
        tl.static_assert(n == 3)

    def bounds(n):
        for i in tl.static_range(n):
            pass

    def keyword(n, N: tl.constexpr):
        N = n

    assert text_of(annotated, "n") == "x is annotated as a constexpr, and its value is known at run time only"
    assert text_of(assertion, N=4) == "static_assert failed: three"
    assert text_of(unknown, "n") == "static_assert takes a constexpr, not a run-time value of type int1"
    assert text_of(bounds, "n").startswith("a bound of static_range must be a constexpr, not a run-time value of type")
    assert text_of(keyword, "n", N=3) == "N is a constexpr, and cannot become int32"


def with_lambda(n):
    f = lambda x: x


def with_try(n):
    try:
        n + 1
    except ValueError:
        pass


def with_import(n):
    import math


def with_function(n):
    def f():
        pass


def with_with(n):
    with n:
        pass


def with_matmul(n):
    n @ n


def with_else(n):
    for i in range(n):
        pass
    else:
        n = 3


def with_yield(n):
    yield n


def with_subscript(n):
    x = tl.arange(0, 4)
    x[0] = 3


def with_attribute(n):
    n.x = 3


def with_star(n):
    a, *b = (n, n, n)


def with_power(n):
    n**2


def with_set(n):
    {1, 2}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (with_lambda, "kernels cannot have lambda: write a function beside the kernel, with jit"),
        (with_try, "kernels cannot have try"),
        (with_import, "kernels cannot have import: import it where the file begins"),
        (with_function, "kernels cannot have a nested function: write a function beside the kernel, with jit"),
        (with_with, "kernels cannot have with"),
        (with_matmul, "kernels cannot have @: use tl.dot"),
        (with_else, "kernels cannot have an else of a loop"),
        (with_yield, "kernels cannot have yield: store what outlasts the kernel in memory"),
        (with_subscript, "elements of blocks and tuples cannot be assigned to; use tl.store or tl.where"),
        (with_attribute, "attributes cannot be assigned to in kernels"),
        (with_star, "starred assignment targets are not supported"),
        (with_power, "** takes constexprs; of tensors, use tl.exp2 and tl.log2, or multiply"),
        (with_set, "kernels cannot have a set: use a tuple"),
    ],
)
def test_unsupported_python(kernel, reason):
    error = error_of(kernel, "n")
    assert error.reason == reason
    assert error.positions[0].function == kernel.__name__


def test_operands():
    def block_condition(n):
        if tl.arange(0, 4) > n:
            pass

    def shift():
        1.0 << 1

    def text():
        0 + "a"

    def floats(x_ptr):
        tl.load(x_ptr) // 2

    def pointers(x_ptr):
        x_ptr * 2

    def fraction(x_ptr):
        x_ptr + 1.5

    def invert(x_ptr):
        ~tl.load(x_ptr)

    def subscript():
        tl.arange(0, 4)[0]

    def sliced():
        tl.arange(0, 4)[1:3]

    def picked():
        tl.arange(0, 4)[tl.arange(0, 2)]

    def indexed(x_ptr):
        x_ptr[0]

    def ordered(n, x_ptr):
        tl.arange(0, 4) < x_ptr

    def equal(x_ptr):
        x_ptr == 1.5

    def nothing(n):
        n < None

    def contained(n):
        3 in (n, 4)

    def deleted():
        del nowhere

    def launched(n):
        inner[1](n)

    def sorted_number():
        tl.sort(tl.float32)

    def number():
        float(tl.program_id(0))

    def text_value():
        tl.full([4], "a", tl.float32)

    def attribute(n):
        n.nothing

    def unpack(n):
        a, b = n, n, n

    def iterate(n):
        for x in tl.arange(0, 4):
            pass

    assert text_of(block_condition, "n") == "a <[4], int1> is no condition: reduce it, or use tl.where"
    assert text_of(shift) == "unsupported operand type(s) for <<: 'float' and 'int'"
    assert text_of(text) == "unsupported operand type(s) for +: 'int' and 'str'"
    assert text_of(floats, "x_ptr") == "// takes integers, not fp32 and 2"
    assert text_of(pointers, "x_ptr") == "* does not take pointers: pointer<fp32>"
    assert text_of(fraction, "x_ptr") == "a pointer moves by integers, not by 1.5"
    assert text_of(invert, "x_ptr") == "~ takes integers, not fp32"
    assert text_of(subscript) == "a <[4], int32> takes None and `:` as indices, not 0"
    assert text_of(sliced) == "a <[4], int32> takes None and `:` as indices, not 1:3"
    assert text_of(picked) == "a <[4], int32> takes None and `:` as indices, not <[2], int32>: see tl.gather"
    assert text_of(indexed, "x_ptr").startswith("a pointer<fp32> has no elements: load what it points to")
    assert text_of(ordered, "n", "x_ptr") == "< does not compare <[4], int32> with pointer<fp32>: one is a pointer"
    assert text_of(equal, "x_ptr") == "== does not compare pointer<fp32> with 1.5: one is a pointer"
    assert text_of(nothing, "n") == "< takes numbers and blocks, not None"
    assert text_of(contained, "n") == "`in` takes constexprs"
    assert text_of(deleted) == "nowhere is not defined"
    assert text_of(launched, "n") == "kernels do not launch others: call inner(...)"
    assert text_of(sorted_number) == "expected a number or a block, not the type fp32"
    assert text_of(number) == "Python's float takes no tensors: use x.to(tl.float32)"
    assert text_of(text_value) == "full takes a number or a scalar, not 'a'"
    assert text_of(attribute, "n") == "int32 has no attribute nothing"
    assert text_of(unpack, "n") == "too many values to unpack (expected 2, got 3)"
    assert text_of(iterate, "n") == "<[4], int32> cannot be iterated over: use tl.range or tl.static_range"


def test_memory():
    def value(n):
        tl.load(n)

    def mask(x_ptr):
        tl.load(x_ptr, mask=tl.arange(0, 4) > 2)

    def other(x_ptr):
        tl.load(x_ptr, other=0)

    def stored(x_ptr):
        tl.store(x_ptr, tl.arange(0, 4))

    def cache(x_ptr):
        tl.load(x_ptr, cache_modifier=".xy")

    def checked(x_ptr):
        tl.load(x_ptr, boundary_check=(0,))

    def assembly(n):
        tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [n], tl.int32, True, 3)

    def stride(x_ptr, n):
        tl.make_tensor_descriptor(x_ptr, [n, n], [1, n], [8, 8])

    def constant(x_ptr: tl.const):
        tl.store(x_ptr + tl.arange(0, 2), tl.load(x_ptr))

    assert text_of(constant, "x_ptr") == (
        "store changes memory, and its pointer is const: <[2], const pointer<fp32>>"
    )
    assert text_of(value, "n") == "load takes a pointer, not int32"
    assert text_of(mask, "x_ptr") == "load of one element has a block of shape [4] as mask"
    assert text_of(other, "x_ptr") == "load has `other` and no mask"
    assert text_of(stored, "x_ptr") == "store of one element has a block of shape [4] as value"
    assert text_of(cache, "x_ptr") == "cache_modifier is one of '', '.ca', '.cg', '.cv', not '.xy'"
    assert text_of(checked, "x_ptr").startswith("boundary_check and padding_option are for block pointers")
    assert text_of(assembly, "n").startswith("pack is a power of two")
    assert text_of(stride, "x_ptr", "n") == "the last stride of a descriptor must be a constexpr of 1"


def product(x_ptr, dtype: tl.constexpr, M: tl.constexpr, K: tl.constexpr, other: tl.constexpr):
    tl.dot(tl.zeros((M, K), dtype), tl.zeros((K, M), other))


def test_products():
    def case(dtype, m, k, other=None):
        return text_of(product, "x_ptr", dtype=dtype, M=m, K=k, other=other or dtype)

    assert case(tl.float16, 16, 8) == "dot of fp16 needs K >= 16, but the shapes are [16, 8] and [8, 16]"
    assert case(tl.int8, 16, 16) == "dot of int8 needs K >= 32, but the shapes are [16, 16] and [16, 16]"
    assert case(tl.int32, 16, 16) == "dot takes integers of 8 bits only, not int32"
    assert case(tl.float16, 16, 16, tl.float32) == "dot takes blocks of one type, not fp16 and fp32"


def test_it_is_a_value_error():
    def kernel(n):
        n.nothing

    with pytest.raises(ValueError):
        build(kernel, [Argument("n", Integer())], {})
    with pytest.raises(TypeError, match="a kernel is made of a function"):
        build(3, [], {})
    scope: dict[str, Any] = {}
    exec("def kernel(n): pass", scope)
    with pytest.raises(CompilationError, match="the source of kernel is not to be had"):
        build(scope["kernel"], [Argument("n", Integer())], {})
    with pytest.raises(RuntimeError, match="call it in a kernel"):
        tl.arange(0, 4)
    assert np.float32(1) == 1


@ba.must_use_result("it changes nothing in place")
@ba.jit
def cube(x):
    return x * x * x


def test_unused_results():
    def unused(n):
        cube(n)

    def used(n):
        m = cube(n)

    build(used, [Argument("n", Integer())], {})
    assert text_of(unused, "n") == "the result of cube is not being used: it changes nothing in place"


def test_conditions_that_are_no_truth_values_warn():
    def kernel(n):
        tl.where(n, 1, 2)

    with pytest.warns(UserWarning, match="where takes a condition of int1; int32 is compared with 0"):
        build(kernel, [Argument("n", Integer())], {})
