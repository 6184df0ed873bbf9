"""The syntax trees of kernels' functions, and where in their files each node is."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache
from types import FunctionType
from typing import Any

from .errors import CompilationError, Position


class Source:
    """A function's syntax tree; positions are those of its file."""

    __slots__ = ("file", "name", "tree", "_lines", "_first", "_indent")

    def __init__(self, function: FunctionType) -> None:
        self.file = inspect.getsourcefile(function) or function.__code__.co_filename
        self.name = function.__name__
        try:
            lines, self._first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise CompilationError(
                f"the source of {function.__qualname__} is not to be had: write it in a file"
            ) from None
        self._lines = lines
        text = textwrap.dedent("".join(lines))
        self._indent = len(lines[0]) - len(lines[0].lstrip())
        (node,) = ast.parse(text).body
        if not isinstance(node, ast.FunctionDef):
            raise CompilationError(f"a kernel is a function made by def, not {function.__qualname__}")
        self.tree = _Hints().visit(node)

    def line(self, node: Any) -> int:
        return self._first + node.lineno - 1

    def position(self, node: Any) -> Position:
        text = self._lines[node.lineno - 1].rstrip("\n")
        start = node.col_offset + self._indent
        one_line = node.end_lineno == node.lineno
        end = node.end_col_offset + self._indent if one_line else len(text)
        return Position(self.file, self.line(node), start, end, text, self.name)


class _Hints(ast.NodeTransformer):
    """A statement `tl.multiple_of(x, 8)` says it of x, as `x = tl.multiple_of(x, 8)` does."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        of: Any = node.value
        while isinstance(of, ast.Call) and of.args and ast.unparse(of.func).rpartition(".")[2] in _HINTS:
            of = of.args[0]
        if of is node.value or not isinstance(of, ast.Name):
            return node
        target = ast.copy_location(ast.Name(of.id, ast.Store()), of)
        return ast.copy_location(ast.Assign([target], node.value), node)


_HINTS = frozenset(("multiple_of", "max_contiguous", "max_constancy"))


@lru_cache(maxsize=1024)
def source_of(function: FunctionType) -> Source:
    return Source(function)


def function_of(x: Any) -> FunctionType | None:
    """The Python function of a kernel or of one of its helpers, which their decorators hold as `fn`."""
    seen = 0
    while not isinstance(x, FunctionType):
        # A named tuple may have a field of that name.
        x = None if isinstance(x, tuple) else getattr(x, "fn", None)
        seen += 1
        if x is None or seen > 16:
            return None
    return x


_OWN = "write a function beside the kernel, with jit"
_MEMORY = "store what outlasts the kernel in memory"
_FILE = "import it where the file begins"
#: What a reader calls the syntax that kernels cannot have, and what takes its place.
NAMES = {
    "Try": "try", "TryStar": "try", "With": "with", "ClassDef": "a class", "AsyncFunctionDef": "async",
    "Await": "await", "AsyncFor": "async for", "AsyncWith": "async with", "Break": "break", "Match": "match: use if",
    "Lambda": f"lambda: {_OWN}", "FunctionDef": f"a nested function: {_OWN}", "Yield": f"yield: {_MEMORY}",
    "YieldFrom": f"yield: {_MEMORY}", "Global": f"global: {_MEMORY}", "Nonlocal": f"nonlocal: {_MEMORY}",
    "Import": f"import: {_FILE}", "ImportFrom": f"import: {_FILE}", "Set": "a set: use a tuple",
    "Raise": "raise: use tl.device_assert, or tl.static_assert", "Starred": "a starred expression",
    "SetComp": "a set comprehension: make a tuple", "DictComp": "a dict comprehension: make a tuple",
    "MatMult": "@: use tl.dot",
}  # fmt: skip


def assigned(nodes: Any) -> list[str]:
    """The names that statements bind, in the order of their first mention; not those of constexpr annotations."""
    names: dict[str, None] = {}
    constants: set[ast.AST] = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("constexpr"):
                constants.add(node.target)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in constants:
                names.setdefault(node.id)
    return list(names)


def escapes(nodes: Any) -> bool:
    """Whether statements may leave before their end, by return or continue."""
    for node in nodes:
        if isinstance(node, (ast.Return, ast.Continue, ast.Break)):
            return True
        if isinstance(node, ast.If) and (escapes(node.body) or escapes(node.orelse)):
            return True
        if isinstance(node, (ast.For, ast.While)) and any(isinstance(n, ast.Return) for n in ast.walk(node)):
            return True
    return False
