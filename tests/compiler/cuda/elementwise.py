"""One elementwise op as a kernel, run by the emulator."""

from __future__ import annotations

import numpy as np

from blockarray.compiler import cuda, ops
from blockarray.compiler.dtypes import NUMPY
from tests.compiler.accuracy import compare
from tests.compiler.cuda import gpu_emulator
from tests.compiler.cuda.gpu_kernels import Make

TARGET = cuda.make_target((9, 0))
#: Elements of a tile, by dtype.
BLOCK = {"f32": 1024, "f64": 4096}


def run(name: str, dtype: str, *arrays: np.ndarray) -> np.ndarray:
    """The op of arrays of an IR dtype, as a kernel computes it."""
    m = Make(name)
    b, n = m.b, arrays[0].size
    sources = [m.array(dtype, n, data=a.copy()) for a in arrays]
    out = m.array(dtype, n, data=np.zeros(n, NUMPY[dtype]))
    j = m.blocked("j", m.size(n), BLOCK[dtype])
    start, one = b.dim_start(j), b.const(1)
    tiles = [b.load_view(x, start, [one], (j,)) for x in sources]
    b.store_view(b.op(name, *tiles), out, start, [one])
    case = m.case()
    with np.errstate(all="ignore"):
        gpu_emulator.run(cuda.generate(case.kernel, TARGET), case.kernel, case.args)
    return case.args[len(arrays)]


def problem(name: str, dtype: str, *arrays: np.ndarray) -> str:
    """What is wrong with its values, or an empty string."""
    with np.errstate(all="ignore"):
        return compare(ops.TABLE[name], (dtype,) * len(arrays), dtype, list(arrays), run(name, dtype, *arrays))
