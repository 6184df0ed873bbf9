"""What BLOCKARRAY_DEBUG prints and BLOCKARRAY_DUMP writes: the stages between a recorded graph and machine code."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from .compiler.ir import Kernel
from .compiler.plan import Graph, Plan
from .explain import Explanation
from .runtime.config import config
from .runtime.device import Device

_numbers = itertools.count(1)


def planned(graph: Graph, made: Plan, device: Device) -> None:
    """Show a graph that was not planned before, and its plan."""
    if "graph" in config.debug:
        place = {node: i for i, node in enumerate(graph.nodes)}
        for i, node in enumerate(graph.nodes):
            inputs = ", ".join(f"%{place[x]}" for x in node.inputs)
            mark = " (asked for)" if i < graph.roots else " (held)" if i in graph.external else ""
            _print("graph", f"%{i} = {node.op.name}({inputs}) : {node.dtype}{list(node.shape)}{mark}")
    if "fusion" in config.debug:
        _print("fusion", str(Explanation(made, device)))


def compiled(kernel: Kernel, text: str, compiler: Any, target: Any) -> None:
    """Show a kernel that is compiled now: its block IR `text`, LLVM IR and assembly (PTX for a GPU).

    A dumped block file is complete: `python -m blockarray.compiler FILE` compiles it again.
    """
    stages = {
        "block": lambda: text,
        "llvm": lambda: compiler.text(kernel, target),
    }
    if hasattr(compiler, "ptx"):
        stages["ptx"] = lambda: compiler.ptx(kernel, target)
    else:
        stages["asm"] = lambda: compiler.assembly(kernel, target)
    number = next(_numbers) if config.dump else 0
    for stage, make in stages.items():
        if stage in config.debug:
            _print(stage, make())
        if config.dump:
            config.dump.mkdir(parents=True, exist_ok=True)
            (config.dump / f"{number:04}-{kernel.name}.{stage}").write_text(make(), encoding="utf-8")


def launched(name: str, seconds: float, nbytes: int) -> None:
    """Show a launch."""
    _print("time", f"{name:40.40} {seconds * 1e6:10.1f} us {nbytes / seconds / 1e9 if seconds else 0.0:8.1f} GB/s")


def _print(stage: str, text: str) -> None:
    for line in text.splitlines():
        print(f"[{stage}] {line}", file=sys.stderr)
