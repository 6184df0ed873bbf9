"""From Python's syntax to block IR: expressions, calls, assignments.

A visitor evaluates a function: what is known stays a Python value, everything else is a Tensor, whose ops are made on
the way.  `control.py` has its statements that branch and loop.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from . import elementwise, program
from .control import Control
from .emit import builder
from .errors import CompilationError
from .merge import Missing, decayed, parts, spell
from .names import Names, is_const_annotation, is_constexpr_annotation
from .source import NAMES, function_of, source_of
from .types import constexpr, constexpr_type, pointer_type, unwrap
from .values import Tensor, compare, is_number, known_number, tensor, truth

#: Calls within calls before recursion is taken to be endless.
DEPTH = 64
_PACKAGE = __name__.rpartition(".")[0]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("equal", operator.eq), ast.NotEq: ("not_equal", operator.ne), ast.Lt: ("less", operator.lt),
    ast.LtE: ("less_equal", operator.le), ast.Gt: ("greater", operator.gt), ast.GtE: ("greater_equal", operator.ge),
}  # fmt: skip


def _language() -> ModuleType:
    return sys.modules[_PACKAGE]


def has_tensor(x: Any) -> bool:
    if isinstance(x, (tuple, list)):
        return any(map(has_tensor, x))
    if isinstance(x, dict):
        return any(map(has_tensor, x.values()))
    return getattr(type(x), "__module__", "") in _RUN_TIME


_RUN_TIME = frozenset((f"{_PACKAGE}.values", f"{_PACKAGE}.memory"))


def _minimum(*xs: Any) -> Any:
    return _folded(elementwise.minimum, builtins.min, xs)


def _maximum(*xs: Any) -> Any:
    return _folded(elementwise.maximum, builtins.max, xs)


def _folded(function: Callable[..., Any], plain: Callable[..., Any], xs: tuple[Any, ...]) -> Any:
    if not has_tensor(xs):
        return plain(*xs)
    xs = tuple(xs[0]) if len(xs) == 1 else xs
    result = xs[0]
    for x in xs[1:]:
        result = function(result, x)
    return result


def _print(*values: Any) -> None:
    """Python's print: while the kernel runs."""
    texts = [v for v in values if isinstance(v, str)]
    program.device_print(" ".join(texts), *[v for v in values if not isinstance(v, str)])


def is_instance(x: Any, classes: Any) -> bool:
    classes = classes if isinstance(classes, tuple) else (classes,)
    return isinstance(x, classes) or (constexpr in classes and not has_tensor(x))


#: Python's functions that kernels may call with tensors.
_BUILTINS: dict[Any, Callable[..., Any]] = {
    builtins.min: _minimum, builtins.max: _maximum, builtins.print: _print, builtins.isinstance: is_instance,
    builtins.len: len, builtins.abs: elementwise.abs, builtins.getattr: getattr, builtins.hasattr: hasattr,
    builtins.type: type, builtins.str: str, builtins.repr: repr, builtins.tuple: tuple, builtins.list: list,
    builtins.zip: lambda *xs: list(zip(*xs)), builtins.enumerate: lambda *xs: list(enumerate(*xs)),
    builtins.reversed: lambda xs: list(reversed(xs)),
}  # fmt: skip


_CASTS = {"float": "tl.float32", "int": "tl.int32", "bool": "tl.int1"}


class Visitor(Control):
    """Evaluates one call of a function."""

    def __init__(self, function: FunctionType, depth: int = 0) -> None:
        self.function = function
        self.source = source_of(function)
        self.names = Names(function)
        self.env: dict[str, Any] = {}
        #: Names that are annotated as constants.
        self.constants: set[str] = set()
        #: The last return statement.
        self.returned: ast.Return | None = None
        #: What was called last: of an expression, the outermost function.
        self.called: Any = None
        #: Unrolled loops around the statement.
        self.unrolled = 0
        #: What loops were found to carry.
        self.lessons: dict[ast.AST, tuple[set[str], set[int]]] = {}
        #: Loops with `break` or `return`, as they are without.
        self.rewritten: dict[ast.AST, Any] = {}
        self.depth = depth

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the call returns."""
        self.bind(args, kwargs)
        return self.body()

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        signature = inspect.signature(self.function)
        for p in signature.parameters.values():
            if p.kind is p.VAR_KEYWORD:
                raise CompilationError(f"{self.function.__name__} takes **{p.name}, which kernels cannot")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise CompilationError(f"{self.function.__name__}: {e}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            value = unwrap(value)
            if is_constexpr_annotation(signature.parameters[name].annotation):
                # Triton's helpers may be given what is no constant; whatever needs one says so.
                if not has_tensor(value):
                    self.constants.add(name)
            elif is_const_annotation(signature.parameters[name].annotation) and isinstance(value, Tensor):
                value = Tensor(value.value, pointer_type(value.dtype.element_ty, const=True), value.shape, value.base)
            self.env[name] = value

    # -- nodes ----------------------------------------------------------------------------------------------------
    def visit(self, node: ast.AST) -> Any:
        """The value of an expression."""
        method = getattr(self, f"visit_{type(node).__name__}", None)
        b = builder()
        line, b.line = b.line, (self.source.file, self.source.line(node))
        try:
            return self.unsupported(node) if method is None else unwrap(method(node))
        except CompilationError as e:
            if not e.positions:
                e.positions.append(self.source.position(node))
            raise
        except (RecursionError, KeyboardInterrupt, AssertionError):
            raise
        except Exception as e:
            error = CompilationError(str(e) or type(e).__name__)
            error.positions.append(self.source.position(node))
            raise error from e
        finally:
            b.line = line

    def unsupported(self, node: ast.AST) -> Any:
        kind = type(node).__name__
        raise CompilationError(f"kernels cannot have {NAMES.get(kind, kind)}")

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        name = node.id
        if name not in self.env:
            return self.names.find(name)
        value = self.env[name]
        if isinstance(value, Missing):
            raise CompilationError(f"{name} may not be defined here: {value.reason}")
        return value

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.visit(node.value)
        if not hasattr(owner, node.attr) and (is_number(owner) or isinstance(owner, tuple)) and not has_tensor(owner):
            if node.attr in ("value", "type"):
                return owner if node.attr == "value" else constexpr_type(owner)
            owner = tensor(owner) if is_number(owner) else owner
        if not hasattr(owner, node.attr):
            near = difflib.get_close_matches(node.attr, dir(owner), 1)
            hint = f": did you mean {near[0]}?" if near else ""
            what = ast.unparse(node.value) if isinstance(owner, ModuleType) else spell(owner)
            hint = hint or (": lists are tuples in kernels" if hasattr(list, node.attr) and parts(owner) else "")
            raise CompilationError(f"{what} has no attribute {node.attr}{hint}")
        return getattr(owner, node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        owner, index = self.visit(node.value), self.visit(node.slice)
        if has_tensor(index) and not isinstance(owner, Tensor):
            raise CompilationError(f"{spell(owner)} takes constexprs as indices, not {spell(index)}")
        if function_of(owner) is not None:
            raise CompilationError(f"kernels do not launch others: call {ast.unparse(node.value)}(...)")
        return owner[index]

    def visit_Slice(self, node: ast.Slice) -> slice:
        return slice(*[None if part is None else self.visit(part) for part in (node.lower, node.upper, node.step)])

    def visit_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.items(node.elts))

    def visit_List(self, node: ast.List) -> tuple[Any, ...]:
        # Lists are tuples, as in Triton: [4, 8] == x.shape.
        return tuple(self.items(node.elts))

    def visit_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        if None in node.keys:
            raise CompilationError("kernels cannot have ** in a dict")
        return {self.visit(k): self.visit(v) for k, v in zip(node.keys, node.values) if k is not None}

    def items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.visit(node.value))
            else:
                found.append(self.visit(node))
        return found

    def visit_ListComp(self, node: ast.ListComp) -> tuple[Any, ...]:
        found: list[Any] = []
        before = dict(self.env)
        self._comprehend(node.generators, lambda: found.append(self.visit(node.elt)))
        self.env = before
        return tuple(found)

    visit_GeneratorExp = visit_ListComp

    def _comprehend(self, generators: Sequence[ast.comprehension], add: Callable[[], None]) -> None:
        if not generators:
            add()
            return
        first, *rest = generators
        for item in self.static_items(self.visit(first.iter)):
            self.assign(first.target, item, known=True)
            if all(self.known(self.visit(test), "the condition of a comprehension") for test in first.ifs):
                self._comprehend(rest, add)

    def known(self, x: Any, what: str) -> bool:
        if isinstance(x, Tensor) and known_number(x) is None:
            raise CompilationError(f"{what} must be a constexpr, not a run-time value of type {x.type}")
        return bool(x)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        return self.binary(node.op, left, right)

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        function = _BINARY.get(type(op))
        if function is None:
            return self.unsupported(op)
        if isinstance(op, ast.Pow) and has_tensor((left, right)):
            raise CompilationError("** takes constexprs; of tensors, use tl.exp2 and tl.log2, or multiply")
        return function(left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.visit(node.operand)
        match node.op:
            case ast.Not():
                return ~truth(x) if isinstance(x, Tensor) else not x
            case ast.USub():
                return -x
            case ast.UAdd():
                return +x
        return ~x

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Python's, of what is known; tensors are joined element by element, and all of them are computed."""
        either = isinstance(node.op, ast.Or)
        result = self.visit(node.values[0])
        for other in node.values[1:]:
            if not isinstance(result, Tensor):
                if bool(result) == either:
                    return result
                result = self.visit(other)
                continue
            known = known_number(result) if not result.shape else None
            if known is not None and bool(known) == either:
                return result
            right = self.visit(other)
            result = result.logical_or(right) if either else result.logical_and(right)
        return result

    def visit_Compare(self, node: ast.Compare) -> Any:
        left, result = self.visit(node.left), None
        for op, other in zip(node.ops, node.comparators):
            right = self.visit(other)
            one = self._compare(op, left, right)
            if result is None:
                result = one
            elif isinstance(result, Tensor) or isinstance(one, Tensor):
                result = tensor(result).logical_and(one)
            else:
                result = result and one
            if result is False:
                return False
            left = right
        return result

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        match op:
            case ast.Is():
                return left is right
            case ast.IsNot():
                return left is not right
            case ast.In() | ast.NotIn():
                if has_tensor((left, right)):
                    raise CompilationError("`in` takes constexprs")
                return (left in right) is isinstance(op, ast.In)
        name, function = _COMPARISONS[type(op)]
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return compare(name, left, right)
        return function(left, right)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.condition(self.visit(node.test))
        if isinstance(test, bool):
            return self.visit(node.body if test else node.orelse)
        return self.branch(test, (lambda: self.visit(node.body), lambda: self.visit(node.orelse)), "the value is")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join([str(self.visit(part)) for part in node.values])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        x = self.visit(node.value)
        x = {114: repr, 115: str, 97: ascii}.get(node.conversion, lambda v: v)(x)
        spec = "" if node.format_spec is None else self.visit(node.format_spec)
        return str(x) if isinstance(x, Tensor) else format(x, spec)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.assign(node.target, self.visit(node.value))
        return self.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))

    # -- calls ----------------------------------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> Any:
        function = self.visit(node.func)
        args = self.items(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            value = self.visit(k.value)
            kwargs |= {k.arg: value} if k.arg is not None else value
        try:
            result = self.call(function, args, kwargs)
            self.called = function
            return result
        except CompilationError as e:
            if e.positions:
                # It happened in the function called.
                e.positions.append(self.source.position(node))
            raise

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        python = _BUILTINS.get(function) if isinstance(function, (type, FunctionType, type(len))) else None
        if python is not None:
            return python(*args, **kwargs)
        if function is constexpr:
            return args[0]
        module = getattr(function, "__module__", None) or ""
        if module == _PACKAGE or module.startswith(_PACKAGE + "."):
            return function(*args, **kwargs)
        inner = function_of(function)
        if inner is not None and inner is not function:
            return inline(inner, args, kwargs, self.depth + 1)
        if not callable(function):
            raise CompilationError(f"{spell(function)} cannot be called")
        if not has_tensor((args, kwargs)) or (isinstance(function, type) and issubclass(function, tuple)):
            return function(*args, **kwargs)
        name = getattr(function, "__qualname__", repr(function))
        if module == "builtins":
            hint = f": use x.to({_CASTS[name]})" if name in _CASTS else ""
            raise CompilationError(f"Python's {name} takes no tensors{hint}")
        home = (module or type(function).__module__).partition(".")[0]
        if home != self.function.__module__.partition(".")[0] and callable(getattr(_language(), name, None)):
            raise CompilationError(f"{home}'s {name} takes no tensors: use tl.{name}")
        raise CompilationError(f"{name} is no function of kernels: decorate it with blockarray.jit")

    # -- assignments ----------------------------------------------------------------------------------------------
    def assign(self, target: ast.expr, value: Any, known: bool = False) -> None:
        """Bind names; what a loop of the compiler runs over stays `known`."""
        match target:
            case ast.Name(id=name):
                if name in self.constants and has_tensor(value):
                    raise CompilationError(f"{name} is a constexpr, and cannot become {spell(value)}")
                self.env[name] = value if known or name in self.constants else decayed(value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if any(isinstance(t, ast.Starred) for t in targets):
                    raise CompilationError("starred assignment targets are not supported")
                if not isinstance(value, (tuple, list)):
                    raise CompilationError(f"{spell(value)} cannot be unpacked")
                if len(value) > len(targets):
                    raise CompilationError(f"too many values to unpack (expected {len(targets)}, got {len(value)})")
                if len(value) < len(targets):
                    raise CompilationError(f"not enough values to unpack (expected {len(targets)}, got {len(value)})")
                for t, item in zip(targets, value):
                    self.assign(t, item, known)
            case ast.Subscript():
                raise CompilationError("elements of blocks and tuples cannot be assigned to; use tl.store or tl.where")
            case _:
                raise CompilationError("attributes cannot be assigned to in kernels")


def inline(function: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """What a call of a function of kernels returns; its ops are made where the builder is."""
    plain = function_of(function)
    if plain is None:
        raise CompilationError(f"{function!r} is no function of kernels")
    if depth > DEPTH:
        raise CompilationError(f"calls of {plain.__name__} are nested more than {DEPTH} deep")
    return Visitor(plain, depth).run(args, kwargs or {})
