"""The reader of the printer's text.

    kernel = "kernel" "@" name "(" params ")" "grid" "(" axes ")" ["dims" "(" dims ")"] ["attrs" "(" attrs ")"] block
    params = %name ":" type, ...
    axes   = %size "/" block, ...
    dims   = name "=" %size ["/" block "@" axis | "in" bucket], ...
    block  = "{" op... "}"
    op     = [%result, ... "="] name [%operand, ...] ["{" attrs "}"] [region ["else" region]] [":" type, ...]
    region = ["(" params ")"] block
    attrs  = name "=" literal, ...
    type   = dtype | dtype "[" extent, ... "]" | "ptr" "<" dtype ">"

An op begins a line, and its operands stand on that line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .ir import Block, Dim, GridAxis, Kernel, Op, Type, Value

T = TypeVar("T")

_REAL = r"(?:nan|inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_TOKEN = re.compile(
    rf"""(?P<string>"(?:[^"\\]|\\.)*") | (?P<number>[+-]?{_REAL}(?:[+-]{_REAL}j|j)?(?!\w)) | (?P<value>%[\w.]+)
    | (?P<name>[A-Za-z_][\w.]*) | (?P<mark>[][(){{}}<>,:=/@]) | (?P<newline>\n) | (?P<space>[ \t\r]+)""",
    re.VERBOSE,
)


class ParseError(ValueError):
    """The text is not a kernel's; the message names the line."""


def parse(text: str) -> Kernel:
    """The kernel that `printer.text` printed."""
    return _Parser(text).kernel()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        self.values: dict[str, Value] = {}
        self.next = 0
        line, position = 1, 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ParseError(f"line {line}: cannot read {text[position : position + 20]!r}")
            position = match.end()
            kind = match.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind != "space":
                self.tokens.append((kind, match[0], line))
        self.tokens.append(("end", "end of text", line))

    # -- tokens -------------------------------------------------------------------------------------------------------
    def fail(self, message: str, token: int | None = None) -> NoReturn:
        """Complain at a token; at the next one unless given."""
        raise ParseError(f"line {self.tokens[self.next if token is None else token][2]}: {message}")

    def at(self, text: str) -> bool:
        kind, found, _ = self.tokens[self.next]
        return found == text and kind != "string"

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.tokens[self.next][1]!r}")

    def take(self, kind: str) -> str:
        found, text, _ = self.tokens[self.next]
        # nan and inf are numbers where a literal stands, and names elsewhere.
        if found != kind and not (kind == "name" and text.isidentifier() and found == "number"):
            self.fail(f"expected a {kind}, found {text!r}")
        self.next += 1
        return text

    def integer(self) -> int:
        try:
            return int(self.take("number"))
        except ValueError:
            self.fail(f"expected an integer, found {self.tokens[self.next - 1][1]!r}", self.next - 1)

    def list(self, item: Callable[[], T], close: str) -> list[T]:
        """Items with commas between them, up to and with `close`."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
                if self.accept(close):
                    break
            items.append(item())
        return items

    def items(self, item: Callable[[], T]) -> list[T]:
        """One or more items with commas between them."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        return found

    # -- values and types ---------------------------------------------------------------------------------------------
    def use(self) -> Value:
        name = self.take("value")
        if name not in self.values:
            self.fail(f"{name} is not defined", self.next - 1)
        return self.values[name]

    def define(self, name: str, value: Value) -> Value:
        if name in self.values:
            self.fail(f"{name} is defined twice", self.next - 1)
        self.values[name] = value
        return value

    def type(self) -> Type:
        name = self.take("name")
        if name == "ptr":
            self.expect("<")
            dtype = self.take("name")
            self.expect(">")
            return Type(dtype, pointer=True)
        return Type(name, tuple(self.list(self.extent, "]")) if self.accept("[") else ())

    def extent(self) -> int | str:
        return self.integer() if self.tokens[self.next][1].isdigit() else self.take("name")

    def param(self) -> tuple[str, Type]:
        name = self.take("value")
        self.expect(":")
        return name, self.type()

    def literal(self) -> Any:
        kind, text, _ = self.tokens[self.next]
        self.next += 1
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            if text.endswith("j"):
                return complex(text)
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        if text == "(":
            return tuple(self.list(self.literal, ")"))
        if text in ("True", "False"):
            return text == "True"
        self.fail(f"expected a literal, found {text!r}", self.next - 1)

    def attr(self) -> tuple[str, Any]:
        name = self.take("name")
        self.expect("=")
        return name, self.literal()

    # -- kernels ------------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        self.expect("kernel")
        self.expect("@")
        name = self.take("name")
        self.expect("(")
        params = tuple([self.define(p, Value(t, None, p[1:])) for p, t in self.list(self.param, ")")])
        self.expect("grid")
        self.expect("(")
        grid = tuple(self.list(self.grid_axis, ")"))
        dims: dict[str, Dim] = {}
        if self.accept("dims"):
            self.expect("(")
            dims = dict(self.list(self.dim, ")"))
        attrs: dict[str, Any] = {}
        if self.accept("attrs"):
            self.expect("(")
            attrs = dict(self.list(self.attr, ")"))
        kernel = Kernel(name, params, grid, dims, self.block(()), attrs)
        if self.tokens[self.next][0] != "end":
            self.fail(f"text after the kernel: {self.tokens[self.next][1]!r}")
        return kernel

    def grid_axis(self) -> GridAxis:
        size = self.use()
        self.expect("/")
        return GridAxis(size, self.integer())

    def dim(self) -> tuple[str, Dim]:
        name = self.take("name")
        self.expect("=")
        size = self.use()
        if self.accept("in"):
            return name, Dim(size, bucket=self.integer())
        if not self.accept("/"):
            return name, Dim(size)
        block = self.integer()
        self.expect("@")
        return name, Dim(size, block, self.integer())

    def block(self, args: tuple[Value, ...]) -> Block:
        self.expect("{")
        block = Block(args)
        while not self.accept("}"):
            block.ops.append(self.op())
        return block

    def region(self) -> Block:
        args: tuple[Value, ...] = ()
        if self.accept("("):
            args = tuple([self.define(name, Value(type)) for name, type in self.list(self.param, ")")])
        return self.block(args)

    def op(self) -> Op:
        results: list[str] = []
        if self.tokens[self.next][0] == "value":
            results = self.items(lambda: self.take("value"))
            self.expect("=")
        line = self.tokens[self.next][2]
        name = self.take("name")
        # Operands stand on the op's own line: the next line may start with a result.
        operands: list[Value] = []
        kind, _, operand_line = self.tokens[self.next]
        if kind == "value" and operand_line == line:
            operands = self.items(self.use)
        attrs: dict[str, Any] = {}
        if self.at("{") and self.tokens[self.next + 1][0] == "name" and self.tokens[self.next + 2][1] == "=":
            self.next += 1
            attrs = dict(self.list(self.attr, "}"))
        regions: list[Block] = []
        if self.at("(") or self.at("{"):
            regions.append(self.region())
            while self.accept("else"):
                regions.append(self.region())
        types = self.items(self.type) if self.accept(":") else []
        if len(types) != len(results):
            self.fail(f"{name} has {len(results)} results and {len(types)} types", self.next - 1)
        op = Op(name, tuple(operands), tuple(types), attrs, tuple(regions))
        for result, value in zip(results, op.results):
            self.define(result, value)
        return op
