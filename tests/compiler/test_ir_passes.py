"""What the passes drop and what they must keep."""

from __future__ import annotations

import pytest

from blockarray.compiler import passes
from blockarray.compiler.parser import parse
from blockarray.compiler.passes.accumulate import accumulate
from blockarray.compiler.passes.cse import cse
from blockarray.compiler.passes.dce import dce
from blockarray.compiler.verifier import verify

HEAD = "kernel @k(%p: ptr<f32>, %n: i64, %c: bool) grid() dims(j = %n) {\n  %0 = const {value=0} : i64\n"


def names(step, body: str) -> list[str]:
    kernel = parse(HEAD + body + "\n}")
    verify(kernel)
    made = step(kernel)
    verify(made)
    return [op.name for op in made.walk() if op.name not in ("const", "yield")]


LOAD = "load_view %p, %0, %0 : f32[j]"
STORE = "store_view {}, %p, %0, %0\n"


@pytest.mark.parametrize(
    ("between", "loads"),
    [
        ("", 1),
        ("check %c {message=\"m\"}\n", 1),
        ("store_view %a, %p, %0, %0\n", 2),
        ("store_ptr %n1, %p, %0\n", 2),
        ("if %c {\n store_view %a, %p, %0, %0\n yield\n} else {\n yield\n}\n", 2),
        ("for %0, %n, %n (%i: i64) {\n yield\n}\n", 1),
    ],
)  # fmt: skip
def test_loads_are_shared_unless_a_store_stands_between(between, loads):
    body = f"%n1 = cast %n : f32\n%a = {LOAD}\n{between}%b = {LOAD}\n%s = add %a, %b : f32[j]\n" + STORE.format("%s")
    assert names(cse, body).count("load_view") == loads


def test_a_loop_with_a_store_loads_anew():
    body = (
        f"%a = {LOAD}\n" + STORE.format("%a") + f"%z = {LOAD}\n"
        f"for %0, %n, %n (%i: i64) {{\n %b = {LOAD}\n {STORE.format('%b')} yield\n}}\n"
    )
    assert names(cse, body).count("load_view") == 3


def test_regions_see_out_and_not_into_each_other():
    body = (
        "%a = negative %n : i64\n"
        "%r = if %c {\n %b = negative %n : i64\n %d = square %b : i64\n yield %d\n} else {\n"
        " %e = square %a : i64\n yield %e\n} : i64\n"
        "%f = square %a : i64\n%g = add %r, %f : i64\nstore_ptr %q, %p, %g"
    ).replace("store_ptr %q", "%q = cast %g : f32\nstore_ptr %q")
    assert names(cse, body) == ["negative", "if", "square", "square", "square", "add", "cast", "store_ptr"]


def test_attributes_and_types_tell_apart():
    body = (
        "%a = iota : i64[j]\n%b = iota : i64[4]\n"
        "%x = const {value=0.0} : f32\n%y = const {value=-0.0} : f32\n%z = const {value=0.0} : f64\n"
    )
    made = cse(parse(HEAD + body + "}"))
    assert len(made.body.ops) == 6


def test_repeated_checks_are_dropped():
    body = "check %c {message=\"m\"}\ncheck %c {message=\"n\"}\ncheck %c {message=\"m\"}"  # fmt: skip
    assert names(cse, body) == ["check", "check"]


def test_dead_code():
    body = (
        f"%a = {LOAD}\n%b = exp %a : f32[j]\n%d = negative %a : f32[j]\n" + STORE.format("%b")
        + "%r = for %0, %n, %n, %n (%i: i64, %v: i64) {\n %w = square %v : i64\n yield %w\n} : i64\n"
    )  # fmt: skip
    assert names(dce, body) == ["load_view", "exp", "store_view"]


def test_what_an_effect_inside_a_region_needs_lives():
    body = (
        f"%a = {LOAD}\n%u = greater %n, %0 : bool\n"
        "%r = for %0, %n, %n, %n (%i: i64, %v: i64) {\n"
        " %w = square %v : i64\n %dead = exp %a : f32[j]\n"
        " if %u {\n  store_view %a, %p, %v, %0\n  yield\n } else {\n  yield\n }\n yield %w\n} : i64\n"
    )
    assert names(dce, body) == ["load_view", "greater", "for", "square", "if", "store_view"]


def test_results_of_rebuilt_regions_reach_later_ops():
    body = (
        "%a = negative %n : i64\n%b = negative %n : i64\n"
        "%r = for %0, %n, %n, %b (%i: i64, %v: i64) {\n %w = add %v, %b : i64\n yield %w\n} : i64\n"
        "%q = cast %r : f32\nstore_ptr %q, %p, %r"
    )
    assert names(passes.run, body) == ["negative", "for", "add", "cast", "store_ptr"]


PRODUCT = """
  %z = const {value=0.0} : f32
  %a = broadcast %z {dims=()} : f32[16, 16]
  %d = dot %a, %a : f32[16, 16]
"""


def test_a_sum_with_a_product_begins_with_the_other_tile():
    body = PRODUCT + "%s = add %a, %d : f32[16, 16]\nstore_view %s, %p, %0, %0, %0"
    kernel = parse(HEAD + body + "\n}")
    made = dce(accumulate(kernel))
    verify(made)
    assert names(lambda k: dce(accumulate(k)), body).count("add") == 0
    assert [len(op.operands) for op in made.walk() if op.name == "dot"] == [3]


def test_a_product_that_is_read_elsewhere_is_added():
    body = PRODUCT + "%s = add %a, %d : f32[16, 16]\n%t = multiply %s, %d : f32[16, 16]\nstore_view %t, %p, %0, %0, %0"
    assert names(lambda k: dce(accumulate(k)), body).count("add") == 1


def test_what_loops_carry_for_nothing_is_dropped():
    body = (
        "%one = const {value=1} : i64\n%f = cast %n : f32\n"
        "%r, %s, %t = for %0, %n, %one, %f, %f, %0 (%i: i64, %x: f32, %y: f32, %k: i64) {\n"
        " %u = add %x, %y : f32\n %v = square %x : f32\n %w = add %k, %one : i64\n"
        " yield %u, %y, %w\n} : f32, f32, i64\n"
        "store_ptr %s, %p, %0"
    )
    kernel = parse(HEAD + body + "\n}")
    made = dce(kernel)
    verify(made)
    (loop,) = [op for op in made.walk() if op.name == "for"]
    assert len(loop.results) == 1 and [op.name for op in loop.regions[0].ops] == ["yield"]
