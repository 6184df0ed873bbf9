"""Matrix products on the CPU: every dtype, layout and size against NumPy."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from blockarray.compiler import dtypes, ir
from blockarray.compiler.builder import Builder
from blockarray.compiler.cpu import gemm, object
from blockarray.compiler.cpu.gemm_code import Function
from blockarray.compiler.cpu.gemm_pairs import PairTiles
from blockarray.compiler.cpu.target import SYMBOL, host_target, make_target
from blockarray.compiler.llvm.text import V, lanes, vector

P, I64 = ctypes.c_void_p, ctypes.c_int64


@dataclass
class Product:
    """A kernel under construction, with the argument slots of one call."""

    builder: Builder = field(default_factory=lambda: Builder("product"))
    slots: list[int] = field(default_factory=list)

    def integer(self, value: int) -> ir.Value:
        self.slots.append(value)
        return self.builder.param(f"i{len(self.slots)}", ir.I64)

    def scalar(self, value: Any, dtype: str) -> ir.Value:
        raw = np.zeros(2 if dtype in dtypes.COMPLEX else 1, np.int64)
        raw.view(np.uint8)[: dtypes.SIZE[dtype]].view(dtypes.NUMPY[dtype])[0] = value
        name = f"s{len(self.slots)}"
        self.slots += raw.tolist()
        return self.builder.param(name, ir.Type(dtype))

    def view(self, x: np.ndarray, batch: list[ir.Value] = []) -> tuple[ir.Value, ir.Value, list[ir.Value]]:  # noqa: B006
        """Pointer, offset and strides of an array; leading axes are batch axes.  Strides of 0 and 1 are constants."""
        b = self.builder
        self.slots.append(x.ctypes.data)
        ptr = b.param(f"p{len(self.slots)}", ir.Type(dtypes.name(x.dtype), (), True))
        strides = [s // x.itemsize for s in x.strides]
        offset = b.const(0)
        for program, stride in zip(batch, strides[: x.ndim - 2] if batch else []):
            offset = b.op("add", offset, b.op("multiply", program, self.integer(stride)))
        inner = strides[-2:] if batch else strides
        return ptr, offset, [b.const(s) if s in (0, 1) else self.integer(s) for s in inner]


@lru_cache(64)
def image_of(text: str) -> bytes:
    """The object file of a module: one serves many sizes."""
    return object.emit(text, host_target())


class Compiled:
    """A loaded module."""

    def __init__(self, kernel: ir.Kernel) -> None:
        image = image_of(gemm.generate(kernel, host_target()))
        names = [SYMBOL, f"{SYMBOL}_scratch", f"{SYMBOL}_workspace"]
        jit = llvm.create_lljit_compiler(llvm.Target.from_default_triple().create_target_machine(jit=True))
        library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for name in names:
            library.export_symbol(name)
        self.keep = (jit, library.link(jit, f"{kernel.name}{id(self)}"))
        run, scratch, workspace = (self.keep[1][name] for name in names)
        self.run = ctypes.CFUNCTYPE(None, P, I64, I64, P, I64)(run)
        self.scratch = ctypes.CFUNCTYPE(I64, P)(scratch)
        self.workspace = ctypes.CFUNCTYPE(I64, P, I64)(workspace)

    def __call__(self, slots: list[int], threads: int = 1) -> None:
        """Run with the workspace's pointer after `slots`."""
        args = np.array([s if s < 2**63 else s - 2**64 for s in (*slots, 0)], np.int64)
        size = self.scratch(args.ctypes.data)
        space = self.workspace(args.ctypes.data, threads)
        # Poisoned, with a guard: nothing may rely on fresh memory, or write past its end.
        workspace = np.full(space + 128, 0xFF, np.uint8)
        start = -workspace.ctypes.data % 64
        workspace[start : start + 4096] = 0
        args[-1] = workspace.ctypes.data + start
        scratches = [np.full(size + 128, 0xFF, np.uint8) for _ in range(threads)]

        def work(t: int) -> None:
            address = scratches[t].ctypes.data
            self.run(args.ctypes.data, t, threads, address + -address % 64, t)

        if threads == 1:
            work(0)
        else:
            team = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
            for member in team:
                member.start()
            for member in team:
                member.join()
        for buffer, used in ((workspace, space), *((s, size) for s in scratches)):
            begin = -buffer.ctypes.data % 64
            assert (buffer[begin + used :] == 0xFF).all() and (buffer[:begin] == 0xFF).all()


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray, threads: int = 1, batch: int = 0, **stages: Any) -> None:
    """out = after(before_a(a) @ before_b(b)), each stage given as a function of (Product, value)."""
    p = Product()
    builder = p.builder
    (m, n), k = out.shape[-2:], a.shape[-1]
    programs = [builder.program_id(builder.grid_axis(p.integer(size), 1)) for size in out.shape[:batch]]
    builder.dim("m", p.integer(m))
    builder.dim("n", p.integer(n))
    builder.dim("k", p.integer(k))

    def load(x: np.ndarray, extents: tuple[str, str]) -> ir.Value:
        return builder.load_view(*p.view(x, programs), extents)

    left = stages.get("before_a", lambda _, x: x)(p, load(a, ("m", "k")))
    right = stages.get("before_b", lambda _, x: x)(p, load(b, ("k", "n")))
    result = builder.dot(left, right)
    result = stages.get("after", lambda _, x: x)(p, result)
    ptr, offset, strides = p.view(out, programs)
    builder.store_view(builder.cast(result, ptr.type.dtype), ptr, offset, strides)
    builder.param("workspace", ir.Type("i8", (), True))
    builder.attrs.update(schedule="gemm", team=True)
    Compiled(builder.finish())(p.slots, threads)


def operands(dtype: str, m: int, k: int, n: int, *batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * 10007 + k * 101 + n)
    if dtype in dtypes.INTEGER:
        info = np.iinfo(dtypes.NUMPY[dtype])
        draw = lambda shape: rng.integers(info.min, info.max, shape, dtypes.NUMPY[dtype], endpoint=True)
    elif dtype == "bool":
        draw = lambda shape: rng.random(shape) < 0.3
    elif dtype in dtypes.COMPLEX:
        draw = lambda shape: (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtypes.NUMPY[dtype])
    else:
        draw = lambda shape: rng.standard_normal(shape).astype(dtypes.NUMPY[dtype])
    return draw((*batch, m, k)), draw((*batch, k, n))


def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype in (np.float16, ml_dtypes.bfloat16):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)
    return a @ b


def check(out: np.ndarray, want: np.ndarray, k: int) -> None:
    name = dtypes.name(out.dtype)
    if name in dtypes.INTEGER or name == "bool":
        np.testing.assert_array_equal(out, want)
        return
    epsilon = {"f16": 1e-3, "bf16": 8e-3, "f32": 1.2e-7, "c64": 1.2e-7}.get(name, 2.3e-16)
    wide = np.complex128 if name in dtypes.COMPLEX else np.float64
    np.testing.assert_allclose(
        out.astype(wide), want.astype(wide), rtol=4 * epsilon, atol=epsilon * (2 + 4 * np.sqrt(k)) * 8
    )


SIZES = [
    (1, 1, 1), (1, 7, 1), (5, 3, 2), (6, 8, 16), (7, 9, 17), (13, 64, 31), (1, 300, 200), (200, 300, 1), (100, 1, 100),
    (64, 64, 64), (97, 513, 101), (250, 700, 130), (520, 33, 70), (3, 0, 4), (0, 3, 4), (4, 3, 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("layout", ["nn", "tn", "nt", "tt"])
def test_layouts(dtype: str, shape: tuple[int, int, int], layout: str) -> None:
    m, k, n = shape
    a, b = operands(dtype, m, k, n)
    if layout[0] == "t":
        a = np.asfortranarray(a)
    if layout[1] == "t":
        b = np.asfortranarray(b)
    out = np.full((m, n), np.nan, a.dtype)
    matmul(a, b, out, threads=1 + (layout == "nn"))
    check(out, expected(a, b), k)


@pytest.mark.parametrize(
    "dtype", ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "c64", "c128"]
)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 9, 17), (33, 400, 50), (200, 70, 40), (3, 0, 4)])
def test_dtypes(dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = operands(dtype, m, k, n)
    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        out = np.zeros((m, n), a.dtype)
        matmul(left, right, out)
        check(out, expected(a, b), k)


def _in_words(tiles: PairTiles, t: Function, a: V, b: V, total: V) -> V:
    """What the instruction for pairs computes, on CPUs without it."""
    ty = vector("i32", tiles.tile.width)
    for op, word in (("shl", "16"), ("and", "-65536")):
        halves = [t.bin(op, x, t.splat(V(word, "i32"), lanes(ty))) for x in (a, b)]
        x, y = (t.op(f"bitcast {half} to {total.ty}", total.ty) for half in halves)
        total = t.fma(x, y, total)
    return total


@pytest.fixture(params=["native", "pairs"])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of bf16 as this CPU does them, and by pairs."""
    if request.param == "pairs" and not host_target().cpu.startswith("znver4"):
        monkeypatch.setattr(PairTiles, "suits", lambda kernel, target: True)
        monkeypatch.setattr(PairTiles, "_mac", _in_words)


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("layout", ["nn", "tt", "rr"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 9, 17), (13, 64, 31), (200, 300, 1), (97, 513, 101), (40, 1025, 33)])
def test_bf16(shape: tuple[int, int, int], layout: str) -> None:
    m, k, n = shape
    a, b = operands("bf16", m, k, n)
    a, b = (
        {"n": x, "t": np.asfortranarray(x), "r": np.repeat(x, 2, 1)[::-1, ::2]}[c]
        for x, c in zip((a, b), layout, strict=True)
    )
    out = np.zeros((m, n), a.dtype)
    matmul(a, b, out, threads=1 + (layout == "nn"))
    check(out, expected(a, b), k)


@pytest.mark.usefixtures("pairs")
def test_bf16_with_a_prologue() -> None:
    a, b = operands("bf16", 70, 33, 50)
    out = np.zeros((70, 50), np.float32)
    twice = lambda p, x: p.builder.op("add", x, x)
    matmul(a, b, out, before_a=twice, before_b=lambda p, x: p.builder.op("negative", x))
    wide = -2 * a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out, wide, rtol=1e-2, atol=0.3)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.usefixtures("pairs")
def test_bf16_past_the_end_of_k_is_zero(special: float) -> None:
    a, b = (np.ones(s, ml_dtypes.bfloat16) for s in ((20, 9), (9, 40)))
    a[3, 8] = special
    out = np.zeros((20, 40), np.float32)
    matmul(a, b, out)
    np.testing.assert_array_equal(
        out, np.ones((20, 9)) @ np.ones((9, 40)) + np.where(np.arange(20) == 3, special, 0)[:, None]
    )


@pytest.mark.parametrize("cpu, pairs", [("sapphirerapids", False), ("znver4", True), ("znver5", True)])
def test_bf16_is_multiplied_in_pairs_where_that_is_fast(cpu: str, pairs: bool) -> None:
    features = "+avx512bf16,+avx512f,+avx512bw,+avx512vl,+avx2,+avx,+fma"
    target = make_target("x86_64-unknown-linux-gnu", cpu, features)
    p = Product()
    b = p.builder
    views = [np.zeros((4, 4), ml_dtypes.bfloat16) for _ in range(3)]
    for d in "mnk":
        b.dim(d, p.integer(4))
    x, y = (b.load_view(*p.view(v), e) for v, e in zip(views[:2], (("m", "k"), ("k", "n"))))
    ptr, offset, strides = p.view(views[2])
    b.store_view(b.dot(x, y), ptr, offset, strides)
    b.param("workspace", ir.Type("i8", (), True))
    module = llvm.parse_assembly(gemm.generate(b.finish(), target))
    assert (target.machine().emit_assembly(module).count("vdpbf16ps") >= 28) == pairs


@pytest.mark.parametrize("dtype", ["i8", "f32", "f16", "c64"])
def test_any_strides(dtype: str) -> None:
    a, b = operands(dtype, 90, 80, 120)
    left, right, out = a[::3, ::-2], b[::2, 100::-1], np.zeros((101, 60), a.dtype)[:, ::2].T
    matmul(left, right, out)
    check(out, expected(left, right), 40)
    wide = np.broadcast_to(b[:1, :64], (80, 64))
    out = np.zeros((90, 64), a.dtype)
    matmul(a, wide, out)
    check(out, expected(a, wide), 80)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(9, 5, 6, 7), (2, 150, 40, 33), (3, 40, 450, 33), (300, 4, 4, 4)])
def test_batches(threads: int, shape: tuple[int, int, int, int]) -> None:
    count, m, k, n = shape
    a, b = operands("f32", m, k, n, count)
    out = np.zeros((count, m, n), np.float32)
    matmul(a, b, out, threads, batch=1)
    check(out, a @ b, k)


def test_two_batch_axes() -> None:
    a, b = operands("f64", 5, 6, 7, 3, 4)
    out = np.zeros((3, 4, 5, 7))
    matmul(a.transpose(1, 0, 2, 3), b.transpose(1, 0, 2, 3), out.transpose(1, 0, 2, 3), batch=2)
    check(out, a @ b, 6)


def test_threads_do_not_change_bits() -> None:
    a, b = operands("f32", 500, 700, 300)
    results = []
    for threads in (1, 2, 3):
        out = np.zeros((500, 300), np.float32)
        matmul(a, b, out, threads)
        results.append(out)
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_zeros_do_not_hide(special: float) -> None:
    a, b = np.zeros((9, 20), np.float32), np.ones((20, 33), np.float32)
    b[3, 5] = special
    out = np.zeros((9, 33), np.float32)
    matmul(a, b, out)
    assert np.isnan(out[:, 5]).all() and (np.delete(out, 5, axis=1) == 0).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(7, 9, 17), (130, 450, 90)])
def test_prologue_and_epilogue(shape: tuple[int, int, int], threads: int) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (m, k), np.int8), rng.standard_normal((k, n)).astype(np.float32)
    scale, bias, shift = (rng.standard_normal(s).astype(np.float32) for s in (k, n, m))
    residual, out = rng.standard_normal((m, n)).astype(np.float32), np.zeros((m, n), np.float32)
    factor = np.float32(0.5)

    def before_a(p: Product, x: ir.Value) -> ir.Value:
        return p.builder.cast(x, "f32")

    def before_b(p: Product, x: ir.Value) -> ir.Value:
        scales = p.builder.load_view(*p.view(scale), ("k",))
        return p.builder.op("multiply", x, p.builder.broadcast(scales, (0,), ("k", "n")))

    def after(p: Product, x: ir.Value) -> ir.Value:
        b = p.builder
        for array, dim in ((bias, "n"), (shift, "m")):
            extra = b.broadcast(b.load_view(*p.view(array), (dim,)), ("mn".index(dim),), ("m", "n"))
            x = b.op("add", x, extra)
        x = b.op("multiply", x, b.broadcast(p.scalar(factor, "f32"), (), ("m", "n")))
        return b.op("add", x, b.load_view(*p.view(residual), ("m", "n")))

    matmul(a, b, out, threads, before_a=before_a, before_b=before_b, after=after)
    want = (a.astype(np.float64) @ (b * scale[:, None].astype(np.float64)) + bias + shift[:, None]) * factor + residual
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=2e-3)


def test_epilogue_may_update_in_place() -> None:
    a, b = operands("f64", 40, 600, 50)
    out = np.ones((40, 50))
    matmul(a, b, out, 2, after=lambda p, x: p.builder.op("add", x, p.builder.load_view(*p.view(out), ("m", "n"))))
    check(out, a @ b + 1, 600)


def test_half_precision_is_rounded_once() -> None:
    a, b = np.full((8, 4), 1, np.float16), np.full((4, 8), 2.0**-12, np.float16)
    out = np.zeros((8, 8), np.float16)
    one = lambda p, x: p.builder.broadcast(p.builder.const(1.0, "f16"), (), ("m", "n"))
    matmul(a, b, out, after=lambda p, x: p.builder.op("subtract", p.builder.op("add", x, one(p, x)), one(p, x)))
    np.testing.assert_array_equal(out, np.float16(2.0**-10))
