"""Kernels' functions made fit to be run by Python itself, with the line numbers of their files."""

from __future__ import annotations

import ast
import copy
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from . import program
from .merge import decayed, rebuilt
from .names import is_constexpr_annotation
from .source import function_of, source_of
from .types import constexpr
from .values import Tensor, truth
from .visitor import is_instance

_DECAYED, _NOT, _TUPLE = "__decayed", "__not", "__tuple"


class Plain:
    """Copies of the author's functions that call each other, and for which constants are plain values."""

    def __init__(self) -> None:
        self.made: dict[FunctionType, FunctionType] = {}

    def function(self, original: FunctionType) -> FunctionType:
        found = self.made.get(original)
        if found is not None:
            return found
        code = _code(original)
        scope = dict(original.__globals__)
        defaults = None if original.__defaults__ is None else self.value(original.__defaults__)
        made = FunctionType(code, scope, original.__name__, defaults)
        made.__kwdefaults__ = {k: self.value(v) for k, v in (original.__kwdefaults__ or {}).items()}
        self.made[original] = made
        # What the function captures is global to the copy.
        for name, cell in zip(original.__code__.co_freevars, original.__closure__ or ()):
            try:
                scope[name] = cell.cell_contents
            except ValueError:
                continue
        for name in _names(code):
            if name in scope:
                scope[name] = self.value(scope[name])
        for name, value in (("range", program.range), ("isinstance", is_instance)):
            scope.setdefault(name, value)
        scope |= {_DECAYED: decayed, _NOT: _negation, _TUPLE: tuple}
        return made

    def value(self, x: Any) -> Any:
        """A constant, a default or an argument as the copies see it."""
        if isinstance(x, constexpr):
            return self.value(x.value)
        if isinstance(x, (tuple, list)):
            return rebuilt(x, [self.value(item) for item in x])
        inner = None if isinstance(x, FunctionType) else function_of(x)
        return x if inner is None else self.function(inner)


def _negation(x: Any) -> Any:
    return ~truth(x) if isinstance(x, Tensor) else not x


@lru_cache(maxsize=1024)
def _code(function: FunctionType) -> CodeType:
    """The function's code, by which a name that is given a number becomes a scalar, as in a compiled kernel."""
    source = source_of(function)
    tree = copy.deepcopy(source.tree)
    tree.decorator_list = []
    tree.returns = None
    for arg in ast.walk(tree.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    tree.args.kw_defaults = [None if d is None else ast.Constant(None) for d in tree.args.kw_defaults]
    constants = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and is_constexpr_annotation(ast.unparse(node.annotation))
    }
    constants |= {name for name, note in function.__annotations__.items() if is_constexpr_annotation(note)}
    module = ast.Module([_Decaying(constants).visit(tree)], [])
    ast.increment_lineno(module, source.line(source.tree) - source.tree.lineno)
    made = compile(ast.fix_missing_locations(module), source.file, "exec")
    (code,) = [c for c in made.co_consts if isinstance(c, CodeType) and c.co_name == function.__name__]
    return code


class _Decaying(ast.NodeTransformer):
    def __init__(self, constants: set[str]) -> None:
        self.constants = constants

    def _wrapped(self, value: ast.expr, *targets: ast.expr) -> ast.expr:
        if any(isinstance(n, ast.Name) and n.id in self.constants for t in targets for n in ast.walk(t)):
            return value
        return ast.copy_location(ast.Call(ast.Name(_DECAYED, ast.Load()), [value], []), value)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = self._wrapped(node.value, *node.targets)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        node.value = self._wrapped(node.value, node.target)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None:
            node.value = self._wrapped(node.value, node.target)
        node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Tuple(node.elts, node.ctx), node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        call = ast.Call(ast.Name(_TUPLE, ast.Load()), [ast.GeneratorExp(node.elt, node.generators)], [])
        return ast.copy_location(call, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name(_NOT, ast.Load()), [node.operand], []), node)


def _names(code: CodeType) -> set[str]:
    """The global names of a function, and of the functions within."""
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _names(inner)
    return names
