"""Which accesses become views, and that they stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

from blockarray.compiler import interpreter
from blockarray.compiler.ir import Kernel
from blockarray.compiler.parser import parse
from blockarray.compiler.passes.cse import cse
from blockarray.compiler.passes.dce import dce
from blockarray.compiler.passes.views import views
from blockarray.compiler.printer import text
from blockarray.compiler.verifier import verify

HEAD = "kernel @k(%x: ptr<f32>, %y: ptr<f32>, %n: i32, %s: i64, %g: i64) grid(%g / 1) {\n"


def made(body: str) -> tuple[Kernel, Kernel]:
    kernel = parse(HEAD + body + "\n}")
    verify(kernel)
    after = views(kernel)
    verify(after)
    after = dce(cse(after))
    verify(after)
    return kernel, after


def counts(kernel: Kernel) -> dict[str, int]:
    found: dict[str, int] = {}
    for op in kernel.walk():
        found[op.name] = found.get(op.name, 0) + 1
    return found


def agree(kernel: Kernel, after: Kernel, n: int, s: int, programs: int, size: int = 4096) -> None:
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    results = []
    for k in (kernel, after):
        y = np.zeros(size, np.float32)
        interpreter.run(k, [x, y, np.int32(n), s, programs])
        results.append(y)
    np.testing.assert_array_equal(*results)
    assert results[0].any()


ROW = """
  %p = program_id {axis=0} : i64
  %p32 = cast %p : i32
  %c = const {value=64} : i32
  %start = multiply %p32, %c : i32
  %i = iota : i64[64]
  %i32 = cast %i : i32[64]
  %startb = broadcast %start {dims=()} : i32[64]
  %at = add %startb, %i32 : i32[64]
  %nb = broadcast %n {dims=()} : i32[64]
  %ok = less %at, %nb : bool[64]
  %at64 = cast %at : i64[64]
"""


@pytest.mark.parametrize("n", [1, 63, 64, 100, 128])
def test_a_masked_row(n):
    kernel, after = made(ROW + "%v = load_ptr %x, %at64, %ok {other=0.0} : f32[64]\nstore_ptr %v, %y, %at64, %ok")
    found = counts(after)
    assert found.get("load_view") == found.get("store_view") == 1
    assert not {"load_ptr", "store_ptr", "iota"} & found.keys()
    agree(kernel, after, n, 0, 2)


def test_what_a_load_gives_outside_its_mask_goes_into_it():
    body = (
        ROW
        + """
      %v = load_ptr %x, %at64, %ok {other=0.0} : f32[64]
      %k = const {value=-3.0} : f32
      %kb = broadcast %k {dims=()} : f32[64]
      %w = where %ok, %v, %kb : f32[64]
      store_ptr %w, %y, %at64"""
    )
    kernel, after = made(body)
    assert "where" not in counts(after)
    assert "other=-3.0" in text(after)
    agree(kernel, after, 70, 0, 2)


COLUMNS = """
  %r = iota : i64[16]
  %rows = broadcast %r {dims=(0,)} : i64[16, 8]
  %c = iota : i64[8]
  %cols = broadcast %c {dims=(1,)} : i64[16, 8]
  %sb = broadcast %s {dims=()} : i64[16, 8]
  %down = multiply %rows, %sb : i64[16, 8]
  %at = add %down, %cols : i64[16, 8]
"""


def test_two_dims_and_conditions_of_each():
    body = (
        COLUMNS
        + """
      %n64 = cast %n : i64
      %nb = broadcast %n64 {dims=()} : i64[16, 8]
      %a = less_equal %rows, %nb : bool[16, 8]
      %b = greater %nb, %cols : bool[16, 8]
      %zero = const {value=0} : i64
      %some = less %zero, %s : bool
      %someb = broadcast %some {dims=()} : bool[16, 8]
      %ab = bitwise_and %a, %b : bool[16, 8]
      %ok = logical_and %ab, %someb : bool[16, 8]
      %v = load_ptr %x, %at, %ok {other=1.0} : f32[16, 8]
      store_ptr %v, %y, %at"""
    )
    kernel, after = made(body)
    found = counts(after)
    assert "load_ptr" not in found and "store_ptr" not in found
    for n in (0, 3, 7, 40):
        agree(kernel, after, n, 20, 1)


@pytest.mark.parametrize("step", ["%s", "%cols0"])
def test_a_loop_carries_where_tiles_begin(step):
    body = (
        COLUMNS
        + f"""
      %zero = const {{value=0}} : i64
      %one = const {{value=1}} : i64
      %four = const {{value=4}} : i64
      %cols0 = multiply %four, %s : i64
      %stepb = broadcast {step} {{dims=()}} : i64[16, 8]
      %f = const {{value=0.0}} : f32
      %init = broadcast %f {{dims=()}} : f32[16, 8]
      %end, %acc = for %zero, %four, %one, %at, %init (%i: i64, %here: i64[16, 8], %sum: f32[16, 8]) {{
        %v = load_ptr %x, %here : f32[16, 8]
        %next = add %here, %stepb : i64[16, 8]
        %more = add %sum, %v : f32[16, 8]
        yield %next, %more
      }} : i64[16, 8], f32[16, 8]
      store_ptr %acc, %y, %end"""
    )
    kernel, after = made(body)
    found = counts(after)
    assert "load_ptr" not in found and "store_ptr" not in found
    (loop,) = [op for op in after.walk() if op.name == "for"]
    assert [str(v.type) for v in loop.operands[3:]] == ["i64", "f32[16, 8]"]
    agree(kernel, after, 1, 20, 1)


def test_a_loop_whose_tiles_change_otherwise_carries_them():
    body = (
        COLUMNS
        + """
      %zero = const {value=0} : i64
      %one = const {value=1} : i64
      %four = const {value=4} : i64
      %end = for %zero, %four, %one, %at (%i: i64, %here: i64[16, 8]) {
        %v = load_ptr %x, %here : f32[16, 8]
        store_ptr %v, %y, %here
        %next = add %here, %cols : i64[16, 8]
        yield %next
      } : i64[16, 8]"""
    )
    kernel, after = made(body)
    assert counts(after)["load_ptr"] == 1
    agree(kernel, after, 1, 20, 1)


@pytest.mark.parametrize(
    "mask",
    [
        "%ok = less %at, %sb : bool[16, 8]",  # of both dims together
        "%a = equal %rows, %cols : bool[16, 8]\n%ok = logical_not %a : bool[16, 8]",
    ],
)
def test_other_masks_stay(mask):
    kernel, after = made(
        COLUMNS + mask + "\n%v = load_ptr %x, %at, %ok {other=0.0} : f32[16, 8]\nstore_ptr %v, %y, %at"
    )
    assert counts(after)["load_ptr"] == 1
    agree(kernel, after, 1, 20, 1)


def test_repeated_rows_are_views_and_stores_of_them_are_not():
    body = """
      %c = iota : i64[8]
      %cols = broadcast %c {dims=(1,)} : i64[16, 8]
      %v = load_ptr %x, %cols : f32[16, 8]
      store_ptr %v, %y, %cols"""
    kernel, after = made(body)
    assert "load_view" in counts(after) and "store_ptr" in counts(after)
    agree(kernel, after, 1, 20, 1)


WRAPPED = """
  %p = program_id {axis=0} : i64
  %p32 = cast %p : i32
  %c = const {value=16} : i32
  %start = multiply %p32, %c : i32
  %i = iota : i64[16]
  %i32 = cast %i : i32[16]
  %startb = broadcast %start {dims=()} : i32[16]
  %at = add %startb, %i32 : i32[16]
  %nb = broadcast %n {dims=()} : i32[16]
"""
WRAP = "%row = fmod %at, %nb : i32[16]\n"
CLIP = """
  %ok = less %at, %nb : bool[16]
  %zero32 = const {value=0} : i32
  %zeros = broadcast %zero32 {dims=()} : i32[16]
  %row = where %ok, %at, %zeros : i32[16]
"""
TILE = """
  %r64 = cast %row : i64[16]
  %rb = broadcast %r64 {dims=(0,)} : i64[16, 8]
  %sb = broadcast %s {dims=()} : i64[16, 8]
  %down = multiply %rb, %sb : i64[16, 8]
  %k = iota : i64[8]
  %cols = broadcast %k {dims=(1,)} : i64[16, 8]
  %index = add %down, %cols : i64[16, 8]
"""
PLACE = """
  %lines = broadcast %at {dims=(0,)} : i32[16, 8]
  %lines64 = cast %lines : i64[16, 8]
  %ld = multiply %lines64, %sb : i64[16, 8]
  %where_ = add %ld, %cols : i64[16, 8]
"""


@pytest.mark.parametrize("n", [16, 32, 40, 7])
@pytest.mark.parametrize("kind", ["wrap", "clip"])
def test_positions_that_end_somewhere_are_affine_before(kind, n):
    body = WRAPPED + (WRAP if kind == "wrap" else CLIP) + TILE + PLACE
    body += "%v = load_ptr %x, %index : f32[16, 8]\nstore_ptr %v, %y, %where_"
    kernel, after = made(body)
    assert {"if", "load_view", "load_ptr"} <= counts(after).keys()
    agree(kernel, after, n, 8, 3)


@pytest.mark.parametrize("n", [16, 32, 40, 7])
@pytest.mark.parametrize("kind", ["wrap", "clip"])
def test_a_loop_over_such_is_made_twice(kind, n):
    body = (
        WRAPPED
        + (WRAP if kind == "wrap" else CLIP)
        + TILE
        + PLACE
        + """
      %zero = const {value=0} : i64
      %one = const {value=1} : i64
      %three = const {value=3} : i64
      %eight = const {value=8} : i64
      %step = broadcast %eight {dims=()} : i64[16, 8]
      %f = const {value=0.0} : f32
      %init = broadcast %f {dims=()} : f32[16, 8]
      %acc, %end = for %zero, %three, %one, %init, %index (%j: i64, %sum: f32[16, 8], %here: i64[16, 8]) {
        %v = load_ptr %x, %here : f32[16, 8]
        %more = add %sum, %v : f32[16, 8]
        %next = add %here, %step : i64[16, 8]
        yield %more, %next
      } : f32[16, 8], i64[16, 8]
      store_ptr %acc, %y, %where_"""
    )
    kernel, after = made(body)
    assert [op.name for op in after.body.ops].count("if") == 1
    loops = [op for op in after.walk() if op.name == "for"]
    assert [len(op.operands) for op in loops] == [5, 5]
    assert sorted(v.type.extents for op in loops for v in op.operands[3:] if v.type.dtype == "i64") == [(), (16, 8)]
    agree(kernel, after, n, 24, 3)
