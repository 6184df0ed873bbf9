"""Differential fuzzing of whole graphs against NumPy.

BLOCKARRAY_FUZZ_EXAMPLES sets the number of programs; `python -m tests.fuzz.run --seconds 600` goes on from there.
"""

from __future__ import annotations

import os
import random

import pytest

from blockarray.runtime.config import config
from tests.fuzz import programs
from tests.support import LAZY, canonical, evaluate, xp

EXAMPLES = int(os.environ.get("BLOCKARRAY_FUZZ_EXAMPLES", "120"))
CHUNK = 15


@pytest.mark.parametrize("start", range(0, EXAMPLES, CHUNK))
def test_random_programs(start: int) -> None:
    for seed in range(start, start + CHUNK):
        program = programs.make(seed)
        wrong = programs.failure(program, xp, evaluate)
        if wrong is not None:
            small = programs.minimise(program, lambda p: programs.failure(p, xp, evaluate) is not None)
            pytest.fail(f"{programs.failure(small, xp, evaluate) or wrong}\n\n{small}", pytrace=False)


@pytest.mark.skipif(not LAZY, reason="NumPy fuses nothing")
@pytest.mark.parametrize("start", range(10_000, 10_000 + EXAMPLES // 8, CHUNK))
def test_elementwise_bits_do_not_depend_on_fusion(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated as a whole, step by step, and cut at random places: the same bits."""
    monkeypatch.setattr(config, "tiny", 0)  # NumPy's functions round differently
    for seed in range(start, start + CHUNK):
        program = programs.make(seed, elementwise=True)
        cuts = random.Random(seed).choices([False, False, True], k=len(program.steps))
        ways = (None, lambda i: True, cuts.__getitem__)
        whole, *others = (
            {i: canonical(x) for i, x in programs.execute(program, xp, evaluate, w).items()} for w in ways
        )
        for other in others:
            for i in sorted(whole):
                assert whole[i] == other[i], f"v{i} depends on where the graph was cut\n\n{program}"
