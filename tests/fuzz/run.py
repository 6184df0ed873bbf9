"""Fuzz for as long as one likes: python -m tests.fuzz.run --seconds 600 --seed 1

Prints each failing program, minimised, as Python.  Two seeds apart, two runs have no program in common.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.fuzz import programs
from tests.support import evaluate, xp


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="start of the run; a failing program's seed is printed")
    parser.add_argument("--only", type=int, help="run one program, by the seed that was printed")
    parser.add_argument("--failures", type=int, default=5, help="stop after this many")
    options = parser.parse_args()

    def fails(program: programs.Program) -> bool:
        return programs.failure(program, xp, evaluate) is not None

    seeds = itertools.count(options.seed << 32) if options.only is None else [options.only]
    end, ran, failed = time.monotonic() + options.seconds, 0, 0
    for seed in seeds:
        if time.monotonic() > end or failed >= options.failures:
            break
        program = programs.make(seed)
        wrong = programs.failure(program, xp, evaluate)
        ran += 1
        if wrong is not None:
            failed += 1
            small = programs.minimise(program, fails)
            print(f"# {programs.failure(small, xp, evaluate) or wrong}\n{small}\n", flush=True)
    print(f"{ran} programs, {failed} wrong")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
