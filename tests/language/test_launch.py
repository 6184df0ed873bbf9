"""Launches: binding of arguments, specialisation, memory of arrays, errors.  The block IR is written by hand."""

from __future__ import annotations

import gc
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import blockarray as ba
from blockarray import kernels
from blockarray.blocks import memory
from blockarray.language.types import constexpr
from blockarray.runtime.config import config
from tests.language import by_hand
from tests.language.by_hand import Writer, body

pytestmark = pytest.mark.usefixtures("by_hand")

ON_GPU = str(ba.get_default_device()) != "cpu"
BLOCK = 16


@body
def add_body(w: Writer) -> None:
    o = w.offsets(w.constants["BLOCK"])
    inside = w.inside(o, "n")
    x, y = (w.b.load_ptr(w[name], o, inside) for name in ("x", "y"))
    w.b.store_ptr(w.b.op("add", x, y), w["out"], o, inside)


@ba.jit
def add(x, y, out, n, BLOCK: constexpr):
    pass


@body
def fill_body(w: Writer) -> None:
    o = w.offsets(BLOCK)
    value = w.b.cast(w["value"], w["out"].type.dtype)
    w.b.store_ptr(w.spread(value, BLOCK), w["out"], o, w.inside(o, "n"))


@ba.kernel
def fill(out, value, n=BLOCK):
    pass


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (ba.cdiv(meta["n"], meta["BLOCK"]),)


def arrays(n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.standard_normal(n).astype("f"), rng.standard_normal(n).astype("f")


# -- arrays -----------------------------------------------------------------------------------------------------------
def test_arrays_of_the_library():
    x, y = arrays()
    out = ba.zeros(100, dtype="f")
    add[grid](2 * ba.asarray(x), ba.asarray(y), out, 100, BLOCK=BLOCK)
    np.testing.assert_array_equal(np.asarray(out), 2 * x + y)


@pytest.mark.cpu_only
def test_numpy_arrays_in_place():
    x, y = arrays()
    out = np.zeros(100, "f")
    for _ in range(2):  # the second launch finds the kernel compiled
        out[:] = 0
        compiled = add[grid](x, y, out, 100, BLOCK=BLOCK)
        np.testing.assert_array_equal(out, x + y)
    assert compiled is add[7,](x, y, out, 100, BLOCK=BLOCK)
    add[grid](x, y, out[1:], 50, BLOCK=BLOCK)
    np.testing.assert_array_equal(out[1:51], (x + y)[:50])
    add[grid](x[::-1][:1], y, out, 1, BLOCK=BLOCK)
    assert out[0] == x[-1] + y[0]


@pytest.mark.cpu_only
def test_numpy_arrays_that_are_read_only():
    x, y = arrays()
    out = np.zeros(100, "f")
    x.flags.writeable = False
    add[grid](x, y, out, 100, BLOCK=BLOCK)
    np.testing.assert_array_equal(out, x + y)
    with pytest.raises(ValueError, match="add may write to out: its memory is read-only"):
        add[grid](out, y, x, 100, BLOCK=BLOCK)


def test_views_see_what_is_written():
    a = ba.arange(40, dtype="f")
    view, reverse = a[8:24], a[::-1]
    before = a + 1
    fill[1,](view, 7.0)
    want = np.arange(40, dtype="f")
    assert np.array_equal(np.asarray(before), want + 1)
    want[8:24] = 7
    np.testing.assert_array_equal(np.asarray(a), want)
    np.testing.assert_array_equal(np.asarray(view), want[8:24])
    np.testing.assert_array_equal(np.asarray(reverse), want[::-1])


def test_other_arrays_of_the_same_value_keep_it():
    a = ba.arange(16, dtype="f") * 2
    twin = ba.asarray(a, copy=True)
    ba.evaluate(a, twin)
    pending = a * 10
    fill[1,](a, 1.0)
    want = 2 * np.arange(16, dtype="f")
    np.testing.assert_array_equal(np.asarray(twin), want)
    np.testing.assert_array_equal(np.asarray(pending), want * 10)
    np.testing.assert_array_equal(np.asarray(a), np.ones(16))


def test_writes_of_arrays_that_nobody_shares_copy_nothing():
    a, b = ba.zeros(16, dtype="f"), ba.zeros(32, dtype="f")
    view = b[16:]
    fill[1,](a, 1.0)
    fill[1,](view, 1.0)
    places = memory.locate(a)[0].address, memory.locate(view)[0].address
    for _ in range(3):
        fill[1,](a, 2.0)
        fill[1,](view, 2.0)
    assert (memory.locate(a)[0].address, memory.locate(view)[0].address) == places
    assert float(a.sum()) == 32 and float(b.sum()) == 32


def test_kernels_of_one_array_twice():
    a = ba.arange(20, dtype="f")
    copy = a + 0
    ba.evaluate(a)
    held = a + 1
    add[1,](a, a, a, 16, BLOCK=BLOCK)
    want = np.arange(20, dtype="f")
    want[:16] *= 2
    np.testing.assert_array_equal(np.asarray(a), want)
    np.testing.assert_array_equal(np.asarray(held), np.arange(20) + 1)
    np.testing.assert_array_equal(np.asarray(copy), np.arange(20))


def test_transposed_and_computed_arrays():
    a = ba.reshape(ba.arange(16, dtype="f"), (4, 4))
    fill[1,](a.T[1:, :], 5.0, 3)  # a column's second element and two more
    want = np.arange(16, dtype="f").reshape(4, 4)
    want.ravel()[1:4] = 5
    np.testing.assert_array_equal(np.asarray(a), want)
    turned = (ba.reshape(ba.arange(16, dtype="f"), (4, 4)).T * 2).block_until_ready()
    assert turned.strides == (16, 4)
    fill[1,](turned, 3.0, 4)
    want = 2 * np.arange(16, dtype="f").reshape(4, 4).T
    want[0] = 3
    np.testing.assert_array_equal(np.asarray(turned), want)


@pytest.mark.cpu_only
def test_memory_that_others_see():
    x = np.zeros(16, "f")
    shared = ba.asarray(x, copy=False)
    fill[1,](shared, 4.0)
    assert (x == 4).all() and float(shared.sum()) == 64
    a = ba.zeros(16, dtype="f")
    seen = np.asarray(a)
    pending = a + 1
    fill[1,](a, 2.0)
    assert (seen == 2).all()
    assert (np.asarray(pending) == 1).all()
    x.flags.writeable = False
    with pytest.raises(ValueError, match="fill may write to out: its memory is read-only"):
        fill[1,](ba.asarray(x, copy=False), 4.0)


def test_empty_arrays_are_not_filled():
    a, b = ba.empty(16, dtype="f"), ba.empty_like(ba.ones(16, dtype="f"))
    assert np.asarray(ba.empty(16, dtype="f")).tolist() == [0.0] * 16
    with ba.profile() as seen:
        fill[1,](a, 4.0)
        fill[1,](b, 4.0)
    assert [kernel.name for kernel in seen.kernels] == ["fill", "fill"]
    assert float((a + b).sum()) == 128
    assert ba.empty((), dtype="f").shape == ()


def test_broadcasts_are_not_written_to():
    wide = ba.broadcast_to(ba.zeros(1, dtype="f"), (16,))
    with pytest.raises(ValueError, match="fill may write to out: it is read-only, as views of broadcasts"):
        fill[1,](wide, 4.0)


def test_empty_grids_and_arrays():
    a = ba.zeros(16, dtype="f")
    fill[0,](a, 4.0)
    fill[1, 0, 1](a, 4.0)
    fill[1,](ba.zeros(0, dtype="f"), 4.0, 0)
    assert float(a.sum()) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64", "bfloat16", "bool"])
def test_dtypes(dtype):
    a = ba.zeros(16, dtype=getattr(ba, dtype) if hasattr(ba, dtype) else dtype)
    fill[1,](a, 1.0)
    np.testing.assert_array_equal(np.asarray(a).astype("f"), np.ones(16))


# -- binding and specialisation ---------------------------------------------------------------------------------------
def test_defaults_keywords_and_order():
    a = ba.zeros(16, dtype="f")
    fill[1,](value=3.0, out=a)
    fill[1,](a, n=8, value=1.0)
    assert np.asarray(a).tolist() == [1.0] * 8 + [3.0] * 8


@body
def kinds_body(w: Writer) -> None:
    pass


@ba.jit(do_not_specialize=["general"], do_not_specialize_on_alignment=["ones"])
def kinds(x, general=0, ones=0):
    pass


def params(*args: Any, **kwargs: Any) -> str:
    """The parameters of the kernel for some arguments, with * where they are aligned."""
    kernel = kinds.warmup(*args, **kwargs).kernel
    aligned = kernel.attrs["aligned"]
    return ", ".join(f"{p.name}: {p.type}{'*' * (p.name in aligned)}" for p in kernel.params[:-3])


def test_specialisation():
    assert params(5) == "x: i32, general: i32, ones: i32"
    assert params(1) == "general: i32, ones: i32"
    assert params(32, 32, 32) == "x: i32*, general: i32, ones: i32"
    assert params(1, 1, 1) == "general: i32"
    assert params(1 << 31) == "x: i64*, general: i32, ones: i32"
    assert params(-(1 << 31) - 1) == "x: i64, general: i32, ones: i32"
    assert params((1 << 64) - 1) == "x: u64, general: i32, ones: i32"
    assert params(True) == "x: bool, general: i32, ones: i32"
    assert params(np.int64(5)) == "x: i32, general: i32, ones: i32"
    assert params(np.float64(2)) == "x: f32, general: i32, ones: i32"
    assert params(None) == "general: i32, ones: i32"
    assert params((5, None, (1, 2.0))) == "x.0: i32, x.2.1: f32, general: i32, ones: i32"
    assert params(ba.zeros(32, dtype="f")) == "x: ptr<f32>*, general: i32, ones: i32"
    assert params(ba.zeros(32, dtype="f")[1:]) == "x: ptr<f32>, general: i32, ones: i32"
    assert params(constexpr(5)) == "general: i32, ones: i32"
    with pytest.raises(OverflowError, match=r"argument x: .* 64 bits"):
        kinds[1,](1 << 64)


def test_launches_like_those_before():
    """They go the short way, until something is different."""
    x = arrays()[0]
    given = [ba.asarray(x), ba.arange(101, dtype="f")[1:], ba.asarray(x).astype("f8"), ba.asarray(x)]
    given = given if ON_GPU else [*given, x, x[1:], x.astype("f8"), x]
    for v in given:
        of = ba if isinstance(v, ba.Array) else np
        for n in (50, 50, 50, 32, 50, 1, 50):
            out = of.zeros(v.shape, dtype=v.dtype)
            before = out + 0
            add[(4,) if n != 32 else [np.int64(2), 1]](v, v, out, n, BLOCK=BLOCK)
            want = np.where(np.arange(len(v)) < n, 2 * np.asarray(v), 0)
            np.testing.assert_array_equal(np.asarray(out), want)
            assert not np.asarray(before).any()
    out = ba.zeros(BLOCK, dtype="f8")
    for value in (2, 2, 2, 2.5, 2.5, 2.5, True, 2, 1, 2, 1 << 40, 2.5, 2):
        fill[1,](out, value)
        assert np.asarray(out).tolist() == [value] * BLOCK
    with pytest.raises(ValueError, match="a grid is one to three numbers"):
        fill[()](out, 2)
    with ba.profile() as found:
        fill[1,](out, 2)
    assert "fill" in str(found)


class Pair(NamedTuple):
    first: Any
    second: Any


@body
def scale_body(w: Writer) -> None:
    o = w.offsets(BLOCK)
    x = w.b.load_ptr(w["pair.0"], o)
    factor = w.values.get("pair.1") or w.b.const(1.0, "f32")
    w.b.store_ptr(w.b.op("multiply", x, w.spread(factor, BLOCK)), w["pair.0"], o)


@ba.jit
def scale(pair):
    pass


@body
def nothing_body(w: Writer) -> None:
    pass


@ba.jit
def nothing():
    pass


def test_kernels_without_arguments():
    for _ in range(2):
        nothing[2,]()
        nothing[2,](num_warps=1)


def test_tuples():
    a = ba.ones(16, dtype="f")
    scale[1,]((a, 3.0))
    scale[1,](Pair(a, 2.0))
    assert np.asarray(a).tolist() == [6.0] * 16
    with pytest.raises(TypeError, match=r"kernel scale .*: argument pair: a kernel cannot take a str"):
        scale[1,]((a, "x"))


def test_numbers_that_do_not_fit_f32():
    a = ba.zeros(16, dtype="f")
    fill[1,](a, 1e300)
    assert np.isinf(np.asarray(a)).all()


@body
def count_body(w: Writer) -> None:
    b = w.b
    place, size = b.const(0), b.const(1)
    for axis in range(3):
        place = b.op("add", place, b.op("multiply", w.program(axis), size))
        size = b.op("multiply", size, w.values[f"grid_{axis}"])
    b.store_ptr(w.program(1), w["out"], place)


@ba.jit
def count(out):
    pass


def test_grids_of_three_axes():
    out = ba.zeros(24, dtype="int64")
    count[2, 3, 4](out)
    want = np.broadcast_to(np.arange(3)[None, :, None], (4, 3, 2)).ravel()
    np.testing.assert_array_equal(np.asarray(out), want)


# -- errors -----------------------------------------------------------------------------------------------------------
def test_errors_name_kernel_and_argument():
    a = ba.zeros(16, dtype="f")
    with pytest.raises(TypeError, match=r"kernel add \(.*test_launch.py:\d+\): missing out, n, BLOCK"):
        add[1,](a, a)
    with pytest.raises(TypeError, match="no argument or option BLOK: did you mean BLOCK"):
        add[1,](a, a, a, 16, BLOK=16)
    with pytest.raises(TypeError, match="argument n is given twice"):
        add[1,](a, a, a, 16, 16, n=3)
    with pytest.raises(TypeError, match="6 arguments are too many: it takes 5"):
        add[1,](a, a, a, 16, 16, 3)
    with pytest.raises(TypeError, match="argument y: a kernel cannot take a list"):
        add[1,](a, [1.0], a, 16, BLOCK=16)
    with pytest.raises(TypeError, match="argument y: kernels have no elements of type complex64"):
        add[1,](a, a.astype("complex64"), a, 16, BLOCK=16)
    with pytest.raises(RuntimeError, match="num_warps=128 is more than 32"):
        add[1,](a, a, a, 16, BLOCK=16, num_warps=128)
    with pytest.raises(ValueError, match="num_warps=3 is no power of two"):
        add[1,](a, a, a, 16, BLOCK=16, num_warps=3)
    for value, what in ((3.0, "num_warps=3.0"), (True, "num_warps=True"), ("4", "num_warps='4'")):
        with pytest.raises(TypeError, match=rf"{what} is no power of two"):
            add[1,](a, a, a, 16, BLOCK=16, num_warps=value)
    with pytest.raises(ValueError, match="num_ctas=0 is no number of blocks"):
        add[1,](a, a, a, 16, BLOCK=16, num_ctas=0)
    for bad in ((), (1, 1, 1, 1), (-1,), -1, (1, np.int64(-3))):
        with pytest.raises(ValueError, match=r"kernel add \(.*\): a grid is one to three numbers"):
            add[bad](a, a, a, 16, BLOCK=16)
    for bad, spelled in (("x", "str"), (None, "NoneType"), ((1.0, 2), "float, int"), (lambda meta: 1.5, "float")):
        with pytest.raises(TypeError, match=rf"a grid is one to three integers, not \({spelled}\)"):
            add[bad](a, a, a, 16, BLOCK=16)
    for large in ((1 << 31,), (1 << 70,), (1 << 30, 1 << 30, 1 << 30)):
        with pytest.raises(ValueError, match="is too large: an axis has"):
            add[large](a, a, a, 16, BLOCK=16)
    with pytest.raises(KeyError, match="N") as caught:
        add[lambda meta: (meta["N"],)](a, a, a, 16, BLOCK=16)
    assert "its grid may ask for x, y, out, n, BLOCK" in caught.value.__notes__[0]
    for constant in (a, [a], {"x": a}):
        with pytest.raises(TypeError, match=r"argument BLOCK cannot be a constexpr: .*Array"):
            add[1,](a, a, a, 16, BLOCK=constant)
    with pytest.raises(RuntimeError, match=r"launch it by add\[grid\]"):
        add(a, a, a, 16, 16)
    with pytest.raises(TypeError, match="jit takes a Python function"):
        ba.jit(3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no parameter z"):
        ba.jit(do_not_specialize=["z"])(lambda x: x)
    with pytest.raises(ValueError, match="BLOCK: marked as constexpr and listed in do_not_specialize"):
        ba.jit(do_not_specialize=["BLOCK"])(add.fn)[1,](a, a, a, 16, BLOCK=16)
    with pytest.raises(TypeError, match="jit has no option num_warps: say it at the launch"):
        ba.jit(num_warps=8)
    with pytest.raises(TypeError, match="waiting is made by async def"):

        @ba.jit
        async def waiting(x):
            pass


@body
def by_place_body(w: Writer) -> None:
    pass


@ba.jit
def by_place(x, /, n, *, m):
    pass


@ba.jit
def stars(x, *rest):
    pass


@ba.jit
def two_stars(x, **rest):
    pass


@pytest.mark.parametrize("interpret", [False, True])
def test_arguments_are_given_as_python_takes_them(interpret, monkeypatch):
    monkeypatch.setattr(config, "interpret", interpret)
    a = ba.zeros(16, dtype="f")
    for kernel, args, given, reason in (
        (by_place, (), {"x": a, "n": 1, "m": 2}, "argument x is taken by its place only"),
        (by_place, (a, 1, 2), {}, "3 arguments are too many: it takes 2"),
        (by_place, (a, 1), {}, "missing m"),
        (by_place, (a, 1), {"m": 2, "k": 3}, "no argument or option k"),
        (stars, (a, 1), {}, r"a kernel cannot take \*rest: name its parameters, or pass a tuple"),
        (two_stars, (a,), {"k": 1}, r"a kernel cannot take \*\*rest"),
        (by_place, (a, [1]), {"m": 2}, "argument n: a kernel cannot take a list"),
        (by_place, (a, 1), {"m": 2, "num_warps": 2.0}, "num_warps=2.0"),
    ):
        with pytest.raises(TypeError, match=reason):
            kernel[1,](*args, **given)
    with pytest.raises(ValueError, match="a grid is one to three numbers"):
        by_place[-1,](a, 1, m=2)


@body
def broken_body(w: Writer) -> None:
    raise NotImplementedError("no such thing")


@ba.jit
def broken(x):
    pass


def test_errors_in_the_compiler_leave_arrays_usable():
    a = ba.arange(16, dtype="f") + 1
    with pytest.raises(NotImplementedError, match="no such thing"):
        broken[1,](a)
    assert float(a.sum()) == 136


@body
def checked_body(w: Writer) -> None:
    """checks"""
    o = w.offsets(BLOCK)
    x = w.b.load_ptr(w["x"], o)
    w.b.check(w.b.op("less", x, w.spread(w.b.const(100.0, "f32"), BLOCK)), "x is large")
    w.b.store_ptr(x, w["out"], o)


@ba.jit
def checked(x, out):
    pass


def test_checks():
    x, out = ba.arange(16, dtype="f"), ba.zeros(16, dtype="f")
    checked[1,](x, out)
    np.testing.assert_array_equal(np.asarray(out), np.arange(16))
    with pytest.raises(AssertionError, match="checked: x is large"):
        checked[1,](x + 90, out)
        np.asarray(out)
    checked[1,](x, out)
    if not ON_GPU:
        np.testing.assert_array_equal(np.asarray(out), np.arange(16))


# -- what kernels are made of -----------------------------------------------------------------------------------------
FACTOR = constexpr(2)


@ba.jit
def helper(x):
    return x * FACTOR


@body
def uses_body(w: Writer) -> None:
    pass


@ba.jit
def uses(x):
    helper(x)


def test_changed_globals_are_noticed(monkeypatch):
    def launch() -> int:
        uses[1,](ba.zeros(16, dtype="f"))
        return by_hand.built["uses"]

    uses._forget()
    assert launch() == launch() == 1
    monkeypatch.setitem(globals(), "FACTOR", constexpr(2))
    assert launch() == 1  # equal
    monkeypatch.setitem(globals(), "FACTOR", constexpr(3))
    assert launch() == launch() == 2

    def helper(x):
        return x

    monkeypatch.setitem(globals(), "helper", ba.jit(helper))
    assert launch() == launch() == 3
    names = {use.name for _, use in uses.uses()}
    assert names == {"helper"}


def test_fingerprints_follow_the_source(monkeypatch):
    before = uses.fingerprint()
    assert before == uses.fingerprint()
    monkeypatch.setitem(globals(), "FACTOR", constexpr(5))
    assert uses.fingerprint() != before


def test_written_parameters():
    a = ba.zeros(16, dtype="f")
    compiled = add.warmup(a, a, a, 16, BLOCK=BLOCK)
    assert [p.name for k, p in enumerate(compiled.kernel.params) if k in compiled.written] == ["out"]
    assert compiled.asm["block"].startswith("kernel @add(")
    assert "store_ptr" in add.explain(a, a, a, 16, BLOCK=BLOCK)
    assert add.warmup(a.dtype, a.dtype, a, 16, BLOCK=BLOCK).key == compiled.key


@pytest.mark.cpu_only
def test_stages():
    x, y = arrays()
    compiled = add.warmup(x, y, x, 100, BLOCK=BLOCK)
    assert list(compiled.asm) == ["block", "canonical", "optimized", "llvm", "asm"]
    assert "define" in compiled.asm["llvm"] and compiled.asm["asm"]
    out = np.zeros(100, "f")
    compiled[7,](x, y, out, 100, BLOCK)
    np.testing.assert_array_equal(out, x + y)


# -- threads ----------------------------------------------------------------------------------------------------------
def test_launches_from_several_threads():
    x, y = arrays(1000)
    wrong: list[int] = []

    def work(k: int) -> None:
        a, b = ba.asarray(x), ba.asarray(y)
        for i in range(20):
            out = ba.zeros(1000, dtype="f")
            add[grid](a * k, b, out, 1000, BLOCK=32 << (k + i) % 3)
            if not np.array_equal(np.asarray(out), x * np.float32(k) + y):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    gc.collect()


@pytest.mark.cpu_only
def test_numpy_arrays_from_several_threads():
    x, y = arrays(1000)
    wrong: list[int] = []

    def work(k: int) -> None:
        for i in range(30):
            out = np.zeros(1000, "f")
            add[grid](x, y, out, 1000, BLOCK=32 << (k + i) % 3)
            if not np.array_equal(out, x + y):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_code_is_kept_on_disk(monkeypatch):
    a = ba.zeros(16, dtype="f")
    fill[1,](a, 1.0)
    before = len(kernels.compiled)
    monkeypatch.setattr(kernels, "_loaded", {})
    fill._forget()
    fill[1,](a, 2.0)
    assert len(kernels.compiled) == before
    assert float(a.sum()) == 32
