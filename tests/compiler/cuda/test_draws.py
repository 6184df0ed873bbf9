"""Random draws in GPU code: the bits are those of the interpreter."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from blockarray.compiler import cuda, interpreter, ops
from blockarray.compiler.dtypes import NUMPY
from tests.compiler.cuda import gpu_emulator as emulator
from tests.compiler.cuda import gpu_kernels as kernels

TARGET = cuda.make_target((9, 0))
PLACE = (5, 2**63 + 3, 0x0123456789ABCDEF)
#: Rows, with their parameters.
DRAWS = {
    "philox32": (), "philox64": (), "bounded32": (3 << 30,), "bounded64": (3 << 62,), "gamma": (1.5,),
    "poisson": (30.0,), "binomial": (40.0, 0.4), "vonmises": (2.0,),
    "hypergeometric": (9.0, 7.0, 5.0), "zipf": (2.0,),
}  # fmt: skip


def drawn(name: str, n: int, *then: str) -> kernels.Case:
    """A row at the positions 0 to n - 1, and rows of one operand that are applied to it."""
    types, out = ops.TABLE[name].types[-1]
    m = kernels.Make(name)
    b = m.b
    last = out
    for row in then:
        last = ops.result_dtype(row, last)
    target = m.array(last, n, data=np.zeros(n, NUMPY[last]))
    values = [m.scalar(d, NUMPY[d].type(v)) for d, v in zip(types[1:], (*PLACE, *DRAWS[name]), strict=True)]
    j = m.blocked("j", m.size(n), 1024)
    start = b.dim_start(j)
    index = b.cast(b.op("add", b.iota(j), b.broadcast(start, (), (j,))), "u64")
    result = b.op(name, index, *(b.broadcast(v, (), (j,)) for v in values))
    for row in then:
        result = b.op(row, result)
    b.store_view(result, target, start, [b.const(1)])
    return m.case()


@pytest.mark.parametrize("name", ["philox32", "philox64"])
@pytest.mark.parametrize("then", [(), ("fraction",)])
def test_emulated(name: str, then: tuple[str, ...]) -> None:
    case = drawn(name, 1500, *then)
    found, wanted = ([a.copy() if isinstance(a, np.ndarray) else a for a in case.args] for _ in range(2))
    interpreter.run(case.kernel, wanted)
    emulator.run(cuda.generate(case.kernel, TARGET), case.kernel, found)
    np.testing.assert_array_equal(found[0], wanted[0])


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("name", DRAWS)
def test_assembled(name: str) -> None:
    header, _ = cuda.unpack(cuda.compile(drawn(name, 1500).kernel, TARGET))
    assert header["format"] == "cubin" and header["spills"] < 256


@pytest.mark.parametrize(("name", "blocks"), [("philox32", 2), ("philox64", 4)])
def test_threads_share_no_blocks(name: str, blocks: int) -> None:
    """A thread's eight elements take as few blocks as hold them, of twenty products each."""
    code = cuda.ptx(drawn(name, 4096, "fraction").kernel, TARGET)
    assert len(re.findall(r"mul\.(?:lo\.s64|wide\.u32)", code)) < 20 * blocks + 16
