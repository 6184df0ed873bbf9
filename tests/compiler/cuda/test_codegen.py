"""GPU code against the interpreter, emulated; and through ptxas where there is one."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter
from blockarray.compiler.cuda import lookback
from blockarray.compiler.cuda.layout import RESIDENT
from blockarray.compiler.verifier import verify
from tests.compiler.cuda import gpu_emulator as emulator
from tests.compiler.cuda import gpu_kernels as kernels

TARGET = cuda.make_target((9, 0))


@pytest.mark.parametrize("name", kernels.CASES)
def test_emulated(name: str) -> None:
    case = kernels.CASES[name]()
    verify(case.kernel)
    wanted, found = ([a.copy() if isinstance(a, np.ndarray) else a for a in case.args] for _ in range(2))
    failed = interpreter.run(case.kernel, wanted)
    emulator.run(cuda.generate(case.kernel, TARGET), case.kernel, found)
    for p, want, have in zip(case.kernel.params, wanted, found, strict=True):
        if not isinstance(want, np.ndarray):
            continue
        if p.name == "workspace":
            continue
        if p.name == "errors":
            assert bool(have[0]) == bool(failed)
        elif want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want, p.name)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol, err_msg=p.name)


@pytest.mark.parametrize("dtype", ["f32", "c128"])
def test_long_scans_do_not_depend_on_whose_turn_it_is(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups of 4 programs and batches of 16.
    monkeypatch.setattr(lookback, "GROUP", 2)
    case = kernels.long_scan(2, 32 * 36, 32, dtype=dtype)
    code = cuda.generate(case.kernel, TARGET)
    place = [p.name for p in case.kernel.params].index("workspace")
    case.args[place] = np.zeros(code.workspace[0] + 72 * code.workspace[1], np.int8)
    results: set[bytes] = set()
    for seed in range(3):
        monkeypatch.setattr(emulator.Emulator, "turns", np.random.default_rng(seed))
        args = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
        emulator.run(code, case.kernel, args)
        results.add(args[1].tobytes())
        want = np.cumsum(args[0].reshape(2, -1), 1, np.complex128 if dtype == "c128" else np.float64)
        np.testing.assert_allclose(args[1].reshape(2, -1), want, 1e-4, 1e-4)
    assert len(results) == 1


#: Kernels with the accesses that their PTX must have.
WIDE = {
    "chain whole": ("ld.global.v4.b32", "st.global.v4.b32"),
    "chain bf16": ("ld.global.v4.b32", "st.global.v4.b32"),
    "softmax 4096": ("ld.global.v4.b32", "st.global.v4.b32"),
    "softmax 16384": ("ld.global.v4.b32", "st.global.v4.b32"),
    "softmax 32768": ("st.global.v4.b32",),
    "softmax 262144": ("st.global.v4.b32",),
    "layernorm bf16 65536": ("ld.global.v4.b32", "st.global.v4.b32"),
    "layernorm bf16 8000": ("ld.global.v4.b32", "st.global.v4.b32"),
    "columns aligned": ("ld.global.v4.b32",),
    "transpose whole": ("ld.global.v4.b32", "st.global.v4.b32"),
    "windows of rows": ("ld.global.v4.b32", "st.global.v4.b32"),
    "windows along whole": ("ld.global.v4.b32", "st.global.v4.b32"),
    "argmax 5000": (),
    "gather": (),
    "cumsum 4096": ("ld.global.v4.b32", "st.global.v4.b32"),
    "cumsum long whole": ("ld.global.v4.b32", "st.global.v4.b32"),
}


def test_what_windows_share_is_loaded_once() -> None:
    case = kernels.windows(kernels.CROSS, (16, 129), (8, 64))
    whole, cut = re.split(r"^cut\d*:", cuda.generate(case.kernel, TARGET).text, flags=re.MULTILINE)
    # Ten rows of the column in the middle, eight of each beside it.
    assert len(re.findall(r"load i32, ptr addrspace\(1\)", whole)) == 26
    assert len(re.findall(r"ld\.global\.b32", cut)) == 26


@pytest.mark.parametrize(("name", "blocks"), [("softmax 65536", 4), ("softmax 262144", 8), ("softmax f64 65536", 8)])
def test_clusters(name: str, blocks: int) -> None:
    kernel = kernels.CASES[name]().kernel
    made = cuda.generate(kernel, TARGET)
    assert (made.cluster, made.resident) == (blocks, RESIDENT // made.threads)
    code = cuda.ptx(kernel, TARGET)
    assert f".reqnctapercluster {blocks}" in code
    # The blocks begin together, and reduce twice.
    found = re.findall(r"\bbarrier\.cluster\.(.*)\.aligned|\bbar\.(sync)", code)
    assert list(map("".join, found)) == ["arrive.relaxed", "wait", "arrive", "wait", "arrive", "wait"]
    older = cuda.make_target((8, 0))
    assert cuda.generate(kernel, older).cluster == 1
    assert "cluster" not in cuda.ptx(kernel, older)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_ahead(capability: tuple[int, int]) -> None:
    """A row that fills a processor is copied while the one before it is computed; a barrier a reduction is enough."""
    kernel, target = kernels.CASES["softmax 32768"]().kernel, cuda.make_target(capability)
    made = cuda.generate(kernel, target)
    assert made.resident == made.cluster == 1
    assert 128 << 10 <= made.shared <= target.shared
    code = cuda.ptx(kernel, target)
    assert re.findall(r"\bld\.global|\bbar\.sync", code) == ["bar.sync"] * 2
    assert cuda.generate(kernel, cuda.make_target((8, 9))).resident == 0


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("name", WIDE)
def test_assembled(name: str) -> None:
    kernel = kernels.CASES[name]().kernel
    code = cuda.ptx(kernel, TARGET)
    found = set(re.findall(r"(?:ld|st)\.global\S*", code))
    assert found >= set(WIDE[name])
    header, _ = cuda.unpack(cuda.compile(kernel, TARGET))
    assert header["format"] == "cubin"
    assert header["spills"] == 0
