"""Runs kernels of the block language on an emulated GPU, which must give what the interpreter gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockarray.compiler import cuda, interpreter, passes
from blockarray.compiler.ir import Kernel
from tests.compiler.cuda import gpu_emulator as emulator

TARGET = cuda.make_target((9, 0))


def run(kernel: Kernel, slots: list[Any]) -> list[str]:
    """By the interpreter and emulated; what the interpreter says."""
    before = [(a[0].copy(), a[1]) if isinstance(a, tuple) else a for a in slots]
    messages = interpreter.run(kernel, slots)
    if any(op.name == "print" for op in kernel.walk()):
        return messages
    for optimised in (False, True):
        args = [(a[0].copy(), a[1]) if isinstance(a, tuple) else a for a in before]
        _emulate(passes.run(kernel) if optimised else kernel, args)
        for p, want, have in zip(kernel.params, slots, args, strict=True):
            if isinstance(want, tuple):
                wide, near = want[0].astype("f8"), 1e-2 if want[0].itemsize < 4 else 2e-5
                np.testing.assert_allclose(have[0].astype("f8"), wide, near, near, err_msg=f"GPU: {p.name}")
    return messages


def _emulate(kernel: Kernel, args: list[Any]) -> None:
    kernel.attrs.setdefault("schedule", "blocks")
    code = cuda.generate(kernel, TARGET)
    sizes = dict(zip(kernel.params, args, strict=True))
    programs = 1
    for axis in kernel.grid:
        programs *= int(sizes[axis.size])
    memory, words = emulator.Memory(), []
    aligned = kernel.attrs.get("aligned", ())
    for p, arg in zip(kernel.params, args, strict=True):
        if not p.type.pointer:
            words += emulator.scalar(p.type.dtype, arg)
            continue
        array, start = arg if isinstance(arg, tuple) else (arg, 0)
        before = start * array.itemsize
        words.append(memory.put(array, -before % 16 if p.name in aligned else array.itemsize) + before)
    memory.declare(code)
    memory.open()
    memory.shared[:] = True
    if programs:
        emulator.launch(code, words, memory, programs)
    memory.close()
