"""`break` and `return` in loops of the run, said by flags.

What follows in an iteration is not run, as after `continue`, and the loop's condition asks the flag first.
"""

from __future__ import annotations

import ast
from typing import Any

from .errors import CompilationError
from .source import Source

#: Whether a loop was left by `return`.
RETURNED = "$returned"


def leaves(loop: ast.For | ast.While) -> tuple[bool, bool]:
    """Whether there is a `break` of the loop, and a `return` in it or in one of its loops."""
    breaks = returns = False
    work: list[tuple[ast.AST, bool]] = [(node, True) for node in loop.body]
    while work:
        node, own = work.pop()
        breaks |= own and isinstance(node, ast.Break)
        returns |= isinstance(node, ast.Return)
        own = own and not isinstance(node, ast.For | ast.While)
        work += [(inner, own) for inner in ast.iter_child_nodes(node)]
    return breaks, returns


def going(loop: ast.AST) -> str:
    """The name of the flag that a loop goes on."""
    return f"$going{_place(loop)}"


def with_flags(loop: ast.While, source: Source) -> ast.While:
    """A loop without `break` and `return`."""
    flag = going(loop)
    body = _Flags(flag, source).statements(loop.body)
    # The condition may hold only for as long as the loop goes on: what it loads may not be there afterwards.
    negated = ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), loop.test))
    test = ast.IfExp(ast.Name(flag, ast.Load()), negated, ast.Constant(False))
    return _placed(ast.While(test, body, []), loop)


def as_while(loop: ast.For, down: bool | None) -> tuple[ast.While, tuple[str, str, str]]:
    """A loop over a range as a `while`, and the names of its next index, its end and its step.

    `down`: whether the step is negative; None: it is known at run time only.
    """
    names = "$next", "$end", "$step"
    following, end, step = (f"{name}{_place(loop)}" for name in names)
    load = lambda name: ast.Name(name, ast.Load())
    below, above = (ast.Compare(load(following), [sign], [load(end)]) for sign in (ast.Lt(), ast.Gt()))
    test: ast.expr = above if down else below
    if down is None:
        test = ast.IfExp(ast.Compare(load(step), [ast.Gt()], [ast.Constant(0)]), below, above)
    head = [
        ast.Assign([loop.target], load(following)),
        ast.Assign([ast.Name(following, ast.Store())], ast.BinOp(load(following), ast.Add(), load(step))),
    ]
    made = ast.While(test, [*(_placed(node, loop) for node in head), *loop.body], [])
    return _placed(made, loop), (following, end, step)


def returning(loop: ast.AST) -> ast.If:
    """What follows a loop that may be left by `return`."""
    return _placed(ast.If(ast.Name(RETURNED, ast.Load()), [ast.Return(None)], []), loop)


def _place(loop: ast.AST) -> str:
    at: Any = loop
    return f"{at.lineno}:{at.col_offset}"


def _placed(node: Any, where: ast.AST) -> Any:
    """The node, where all that is new in it has the position of another one."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr | ast.stmt) and not hasattr(inner, "lineno"):
            ast.copy_location(inner, where)
    return node


class _Flags(ast.NodeTransformer):
    """Makes statements anew; those that are given stay as they are."""

    def __init__(self, flag: str, source: Source, inner: bool = False) -> None:
        self.flag = flag
        self.source = source
        #: Whether it is a loop in the loop, of which only `return` is of interest.
        self.inner = inner

    def statements(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in nodes:
            made = self.visit(node)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_If(self, node: ast.If) -> ast.If:
        made = ast.If(node.test, self.statements(node.body), self.statements(node.orelse))
        return ast.copy_location(made, node)

    def visit_Break(self, node: ast.Break) -> Any:
        return node if self.inner else self._leave(node)

    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            error = CompilationError("kernels cannot return a value inside of a loop of the run: break, then return it")
            error.positions.append(self.source.position(node))
            raise error
        if self.inner:
            return [_placed(_set(RETURNED, True), node), ast.copy_location(ast.Break(), node)]
        return [_placed(_set(RETURNED, True), node), *self._leave(node)]

    def _loop(self, node: ast.For | ast.While) -> Any:
        if not leaves(node)[1]:
            return node
        body = _Flags(self.flag, self.source, True).statements(node.body)
        made: Any
        if isinstance(node, ast.While):
            made = ast.While(node.test, body, node.orelse)
        else:
            made = ast.For(node.target, node.iter, body, node.orelse)
        after: list[ast.stmt] = [ast.Break()] if self.inner else self._leave(node)
        return [ast.copy_location(made, node), _placed(ast.If(ast.Name(RETURNED, ast.Load()), after, []), node)]

    visit_For = visit_While = _loop

    def _leave(self, node: ast.AST) -> list[ast.stmt]:
        return [_placed(x, node) for x in (_set(self.flag, False), ast.Continue())]


def _set(name: str, value: bool) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
