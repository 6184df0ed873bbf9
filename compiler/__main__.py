"""`python -m blockarray.compiler FILE [block|llvm|asm]`: compile a block IR file and print a stage (asm by default)."""

from __future__ import annotations

import sys
from pathlib import Path

from . import cpu, passes
from .parser import parse
from .printer import text


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or arguments[1:] not in ([], ["block"], ["llvm"], ["asm"]):
        print(__doc__, file=sys.stderr)
        return 2
    kernel = passes.run(parse(Path(arguments[0]).read_text(encoding="utf-8")), check=True)
    target = cpu.host_target()
    stages = {"block": text, "llvm": lambda k: cpu.text(k, target), "asm": lambda k: cpu.assembly(k, target)}
    print(stages[(arguments[1:] or ["asm"])[0]](kernel))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
