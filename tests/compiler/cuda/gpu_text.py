"""The text of modules, taken apart: functions, their blocks, instructions, operands and types."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

_INT = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "i128": np.object_}
_FLOAT = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64}
VECTOR = re.compile(r"<(\d+) x (.+)>")
_NAME = re.compile(r"%[\w.]+")
_BRACKET = re.compile(r"[(<{\[]|^$")
_CALL = re.compile(r"call (.+?) @([\w.]+)\((.*)\)")
_ASM = re.compile(r'call (.+?) asm (?:sideeffect )?"(.*?)", "(.*?)"\((.*)\)')


def type_of(ty: str) -> Any:
    if ty.startswith("ptr"):
        return np.int64
    return _INT.get(ty) or _FLOAT[ty]


@lru_cache(1 << 16)
def split(text: str) -> list[str]:
    """Operands separated by commas outside brackets."""
    if not _BRACKET.search(text):
        return text.split(", ")
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += c in "(<{["
        depth -= c in ")>}]"
        if c == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


@lru_cache(1 << 16)
def operand(text: str) -> tuple[str, str]:
    """A type, and the value after it."""
    ty, ref = re.sub(r" align \d+", "", text).strip().rsplit(" ", 1)
    return ty, ref


@lru_cache(1 << 14)
def assembly(text: str) -> tuple[str, str, list[str]] | None:
    """The types of an assembly's results, its instructions and its operands."""
    found = _ASM.match(text)
    return (found[1], found[2], split(found[4])) if found else None


@lru_cache(1 << 14)
def called(text: str) -> tuple[str, str, list[str]]:
    """The type that a function gives, its name and its operands."""
    found = _CALL.match(text)
    assert found is not None, text
    return found[1], found[2], split(found[3])


class Line(NamedTuple):
    """An instruction, or what a result is made by; `rest` follows the opcode."""

    opcode: str
    text: str
    rest: str
    name: str = ""
    #: Whether other blocks read it, for which threads that are not here now keep what they have.
    kept: bool = False


def _line(text: str, readers: Counter[str], here: Counter[str]) -> Line:
    name, text = text.split(" = ", 1) if text.startswith("%") else ("", text)
    opcode, _, rest = text.partition(" ")
    if opcode == "call" and "try_wait" in text:
        return Line("try_wait", text, rest)
    return Line(opcode, text, rest.removeprefix("contract "), name, bool(name) and readers[name] != here[name])


class Body:
    """A block; most of them are not run, and so not taken apart."""

    def __init__(self, label: str, texts: list[str], readers: Counter[str]) -> None:
        self.label, self.texts, self.readers = label, texts, readers

    @cached_property
    def lines(self) -> list[Line]:
        here = Counter(_NAME.findall("\n".join(text for text in self.texts if " = phi " not in text)))
        return [_line(text, self.readers, here) for text in self.texts]

    @cached_property
    def phis(self) -> list[Line]:
        return [line for line in self.lines if line.opcode == "phi"]


@lru_cache(64)
def functions(module: str) -> dict[str, tuple[list[str], list[Body]]]:
    """The parameters and the blocks of each function."""
    found = {}
    for definition in re.findall(r"^define .*?^}$", module, re.MULTILINE | re.DOTALL):
        head, *lines = definition.removesuffix("}").split("\n")
        blocks: list[tuple[str, list[str]]] = []
        for line in map(str.strip, lines):
            if line.endswith(":"):
                blocks.append((line[:-1], []))
            elif line:
                if "try_wait" in line and blocks[-1][1]:
                    # Threads may have to come back to it.
                    label = f"{blocks[-1][0].split('.')[0]}.{len(blocks)}"
                    blocks[-1][1].append(f"br label %{label}")
                    blocks.append((label, []))
                blocks[-1][1].append(line)
        signature = re.search(r"@(\w+)\((.*)\)", head)
        assert signature is not None, head
        name, params = signature.groups()
        readers = Counter(_NAME.findall(definition))
        found[name] = _NAME.findall(params), [Body(label, texts, readers) for label, texts in blocks]
    return found
