"""Random kernels: text, verifier, interpreter and compiled code must agree about each.

BLOCKARRAY_FUZZ_EXAMPLES sets their number.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from blockarray.compiler import interpreter, parser, printer, verifier
from tests.fuzz import kernels, native
from tests.support import run_python

EXAMPLES = int(os.environ.get("BLOCKARRAY_FUZZ_EXAMPLES", "120"))
CHUNK = 15


def interpreted(case: kernels.Case) -> list[Any]:
    args = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    interpreter.run(case.kernel, args)
    return args


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal values; the sign of a zero does not count, nor which NaN it is."""
    if got.dtype == np.bool_:
        return got.tobytes() == want.tobytes()
    return bool(((got == want) | ((got != got) & (want != want))).all())


def difference(seed: int, guard: Any = None) -> str | None:
    """What compiled code stores that the interpreter does not."""
    case = kernels.make(seed)
    verifier.verify(case.kernel)
    want = interpreted(case)
    got = native.run(case.kernel, case.args, guard or native.Canary, parts=random.Random(seed).choice([1, 1, 2, 3]))
    for k in case.outputs:
        if not same(got[k], want[k]):
            at = next(i for i in range(len(want[k])) if not same(got[k][i : i + 1], want[k][i : i + 1]))
            name = case.kernel.params[k].name
            values = f"{got[k][at]!r}, not {want[k][at]!r}"
            sizes = {p.name: a for p, a in zip(case.kernel.params, case.args) if not p.type.pointer}
            return f"seed {seed}: %{name}[{at}] is {values}; sizes {sizes}\n{printer.text(case.kernel)}"
    return None


@pytest.mark.parametrize("start", range(0, EXAMPLES, CHUNK))
def test_compiled_kernels_do_what_interpreted_ones_do(start: int) -> None:
    for seed in range(start, start + CHUNK):
        wrong = difference(seed)
        assert wrong is None, wrong


def test_text_round_trips() -> None:
    for seed in range(200):
        kernel = kernels.make(seed).kernel
        text = printer.text(kernel)
        again = parser.parse(text)
        verifier.verify(again)
        assert printer.text(again) == text


def test_no_access_outside_buffers() -> None:
    """Buffers that end where mapped memory does: a lane that is masked off must not touch what lies beyond."""
    run_python(
        """
import sys, functools
from tests.fuzz import native
from tests.fuzz.test_block_ir import difference
for seed in range(1000, 1000 + int(sys.argv[1])):
    print(seed, flush=True)
    wrong = difference(seed, functools.partial(native.Cliff, at_end=seed % 3 > 0))
    assert wrong is None, wrong
""",
        str(EXAMPLES // 8),
    )
