"""Kernels as text.  The text is canonical: kernels are equal (source lines aside) if and only if their texts are."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from .ir import Block, Dim, Kernel, Op, Type, Value

_type_text = cache(Type.__str__)


class _Names(dict[Value, str]):
    """A value that nothing defines prints as such, so that a broken kernel can be looked at."""

    def __missing__(self, value: Value) -> str:
        return f"%undefined<{value.type}>"


def text(kernel: Kernel) -> str:
    """The kernel's text; `parser.parse` reads it back."""
    return "\n".join(_Writer(None).kernel(kernel))


def locate(kernel: Kernel, op: Op) -> tuple[int, str]:
    """The number (from 1) and the text of an op's first line."""
    at: dict[Op, int] = {}
    lines = _Writer(at).kernel(kernel)
    return at[op] + 1, lines[at[op]].strip()


class _Writer:
    """Appends lines; numbers values in the order of their definitions."""

    def __init__(self, at: dict[Op, int] | None) -> None:
        self.lines: list[str] = []
        self.names = _Names()
        self.at = at
        self.count = 0

    def kernel(self, kernel: Kernel) -> list[str]:
        names = self.names
        for p in kernel.params:
            names[p] = "%" + p.name
        head = [f"kernel @{kernel.name}({self.params(kernel.params)})"]
        head.append(f"grid({', '.join([f'{names[a.size]} / {a.block}' for a in kernel.grid])})")
        if kernel.dims:
            head.append(f"dims({', '.join([self.dim(name, d) for name, d in kernel.dims.items()])})")
        if kernel.attrs:
            head.append(f"attrs({attrs_text(kernel.attrs)})")
        self.lines.append(" ".join(head) + " {")
        self.block(kernel.body, "  ")
        self.lines.append("}")
        return self.lines

    def dim(self, name: str, dim: Dim) -> str:
        block = "" if dim.block is None else f" / {dim.block} @ {dim.axis}"
        bucket = "" if dim.bucket is None else f" in {dim.bucket}"
        return f"{name} = {self.names[dim.size]}{block}{bucket}"

    def params(self, values: tuple[Value, ...]) -> str:
        return ", ".join([f"{self.names[v]}: {_type_text(v.type)}" for v in values])

    def define(self, values: tuple[Value, ...]) -> str:
        first = self.count
        self.count += len(values)
        texts = [f"%{i}" for i in range(first, self.count)]
        self.names.update(zip(values, texts))
        return ", ".join(texts)

    def block(self, block: Block, indent: str) -> None:
        lines, names, at = self.lines, self.names, self.at
        name_of = names.__getitem__
        for op in block.ops:
            if at is not None:
                at[op] = len(lines)
            results = op.results
            line = op.name
            if op.operands:
                line += " " + ", ".join(map(name_of, op.operands))
            if op.attrs:
                line += " {" + attrs_text(op.attrs) + "}"
            if op.regions:
                self.regions(op, line, indent)
            elif not results:
                lines.append(indent + line)
            elif len(results) == 1:
                value = results[0]
                name = names[value] = f"%{self.count}"
                self.count += 1
                lines.append(f"{indent}{name} = {line} : {_type_text(value.type)}")
            else:
                types = ", ".join([_type_text(v.type) for v in results])
                lines.append(f"{indent}{self.define(results)} = {line} : {types}")

    def regions(self, op: Op, line: str, indent: str) -> None:
        line = f"{indent}{self.define(op.results)} = {line}" if op.results else indent + line
        for i, region in enumerate(op.regions):
            if i:
                line = indent + "} else"
            if region.args:
                self.define(region.args)
                line += f" ({self.params(region.args)})"
            self.lines.append(line + " {")
            self.block(region, indent + "  ")
        types = ", ".join([_type_text(v.type) for v in op.results])
        self.lines.append(f"{indent}}} : {types}" if types else indent + "}")


def attrs_text(attrs: dict[str, Any]) -> str:
    """Attributes as canonical text, which tells 0.0 from -0.0 and 1 from True."""
    if len(attrs) == 1:
        for key, value in attrs.items():
            return f"{key}={_literal(value)}"
    return ", ".join([f"{key}={_literal(value)}" for key, value in sorted(attrs.items())])


def _literal(value: Any) -> str:
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        return repr(value)
    if kind is str:
        return f'"{value}"' if value.isidentifier() and value.isascii() else json.dumps(value)
    if kind is tuple:
        items = ", ".join(map(_literal, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is complex:
        return repr(value).strip("()")
    raise TypeError(f"an attribute cannot be {value!r}")
