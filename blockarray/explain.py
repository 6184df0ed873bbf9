"""How an expression will be computed: its kernels, what each reads and writes, and why they are not one."""

from __future__ import annotations

import html as escape
from math import prod
from pathlib import Path
from typing import Any

from .compiler import plan
from .compiler.expr import BUFFER, VIEW
from .recipes import recipe
from .runtime.device import CPU, Device, default_device


class KernelInfo:
    """One step of a plan.

    Attributes
    ----------
    name : str
    kind : str
        "kernel", "routine" where a GPU sorts or searches, or "library call" for NumPy functions, for which a GPU's
        operands and results are copied.
    ops : list of str
        The operations that it computes.
    inputs, outputs : list of str
        Arrays that it reads and writes, as dtype[shape].
    bytes, flops : int
        Bytes that it has to move, and arithmetic operations.
    programs : int
        Size of its grid.
    cuts : list of str
        Producers that were left out of the kernel, with the reason.
    notes : list of str
        Where its results may differ from those of one operation after the other.
    ir : str
        The block IR.
    tuned : bool
        Whether its schedule was chosen by measuring (see `tune`).
    """

    def __init__(self, step: plan.KernelStep | plan.HostStep, device: Device) -> None:
        self.name = step.name
        if isinstance(step, plan.KernelStep):
            self.kind = "kernel"
            self.ops, self.inputs, self.outputs, self.cuts = step.ops, step.inputs, step.outputs, step.cuts
            self.notes = step.notes
            self.bytes, self.flops, self.programs, self.ir = step.bytes, step.flops, step.programs, step.key
            self.tuned = step.tuned
        else:
            self.tuned = False
            self.ops, self.cuts, self.flops, self.programs, self.ir = [step.name], [], 0, 1, ""
            self.notes: list[str] = []
            if hasattr(step.function, "step"):
                self.kind = "custom operation"
            elif found := recipe(step, device):
                self.kind, self.programs = "routine", found.programs
            else:
                self.kind = "library call" if device is CPU else "library call on the host"
            self.inputs = [f"{o[4]}[{', '.join(map(str, o[3]))}]" for o in step.operands]
            self.outputs = [f"{step.dtype}[{', '.join(map(str, step.shape))}]"]
            arrays = [(o[3], o[4]) for o in step.operands] + [(step.shape, step.dtype)]
            self.bytes = sum(prod(shape) * dtype.itemsize for shape, dtype in arrays)

    @property
    def reason(self) -> str:
        """Why its producers were left out, in one line."""
        return "; ".join(self.cuts)


class Explanation:
    """The plan of an expression; `str()` and `html(path)` show it.

    Attributes
    ----------
    kernels : list of KernelInfo
        The steps, in order.
    operations : int
        Operations that were recorded.
    interpreted : int
        If the op table's interpreter computes them, because they are few and their arrays tiny: elements of the largest
        array.  0: kernels do.
    device : Device
        Where they will run.
    """

    def __init__(self, made: plan.Plan, device: Device, interpreted: int = 0) -> None:
        self.device = device
        self.interpreted = interpreted
        self.kernels = [KernelInfo(step, device) for step in made.steps]
        self.operations = made.recorded

    def __str__(self) -> str:
        if not self.kernels and not self.interpreted:
            return "already computed: no kernels"
        lines = [f"{self.operations} recorded operations {self._manner} on {self.device}"]
        for i, k in enumerate(self.kernels):
            tuned = ", tuned" * k.tuned
            lines.append(f"{i}: {k.kind} {k.name}  ({k.programs} programs, {k.bytes / 1e6:.3g} MB moved{tuned})")
            lines.append(f"   reads   {', '.join(k.inputs) or '-'}")
            lines.append(f"   writes  {', '.join(k.outputs)}")
            lines.append(f"   ops     {' '.join(k.ops)}")
            lines += [f"   cut     {cut}" for cut in k.cuts]
            lines += [f"   note    {note}" for note in k.notes]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def _manner(self) -> str:
        if self.interpreted:
            return f"interpreted: {self.interpreted} elements"
        return f"in {len(self.kernels)} kernel(s)"

    def html(self, path: str | Path) -> None:
        """Write the plan as a page that stands by itself."""
        cards = []
        for i, k in enumerate(self.kernels):
            ops = "".join(f"<span class=op>{escape.escape(o)}</span>" for o in k.ops)
            cuts = "".join(f"<li>{escape.escape(c)}</li>" for c in k.cuts)
            cards.append(
                f"<section><h2>{i}. {escape.escape(k.name)} <small>{k.kind}, {k.programs} programs, "
                f"{k.bytes / 1e6:.3g} MB{', tuned' * k.tuned}</small></h2>"
                f"<p><b>reads</b> {escape.escape(', '.join(k.inputs) or '-')}</p><p>{ops}</p>"
                f"<p><b>writes</b> {escape.escape(', '.join(k.outputs))}</p>"
                + (f"<p><b>cut before</b></p><ul>{cuts}</ul>" if cuts else "")
                + "".join(f"<p>{escape.escape(note)}</p>" for note in k.notes)
                + (f"<details><summary>block IR</summary><pre>{escape.escape(k.ir)}</pre></details>" if k.ir else "")
                + "</section>"
            )
        page = (
            "<!doctype html><meta charset=utf-8><title>blockarray plan</title><style>"
            "body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;color:#222}"
            "section{border:1px solid #bbb;border-radius:8px;padding:.2em 1em;margin:1em 0}"
            "h2{font-size:1.1em}small{color:#777;font-weight:normal}"
            ".op{display:inline-block;background:#e8f0fe;border-radius:4px;padding:0 .5em;margin:.15em}"
            "pre{overflow:auto;background:#f6f6f6;padding:.6em}</style>"
            f"<h1>{self.operations} operations {self._manner} on {self.device}</h1>{''.join(cards)}"
        )
        Path(path).write_text(page, encoding="utf-8")


def explain(*arrays: Any) -> Explanation:
    """How these arrays would be computed now; nothing runs.

    Returns
    -------
    Explanation
        With `.kernels`, `str()` and `.html(path)`.
    """
    from . import flush, tiny  # which show plans with this module

    exprs = [a._read() for a in arrays]
    with flush.lock:
        roots = list(dict.fromkeys([e for e in exprs if e.op is not BUFFER]))
        del exprs
        if len(places := {e.device or default_device() for e in roots} or {a.device for a in arrays}) > 1:
            raise ValueError(f"explain takes arrays of one device, not of {', '.join(sorted(map(str, places)))}")
        device = places.pop() if places else default_device()
        if not roots:
            return Explanation(plan.Plan([], [], 0, [], [], 0), device)
        if (nodes := tiny.schedule(roots, device)) is not None:
            recorded = sum([bool(n.inputs) and n.op is not VIEW for n in nodes])
            elements = max([x.size for n in nodes for x in (n, *n.inputs)]) or 1
            return Explanation(plan.Plan([], [], 0, [], [], recorded), device, elements)
        return Explanation(plan.build(flush.scanned(roots, device), flush.policy(device)), device)
