"""Statements: branches and loops, whose values are merged where they join."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..compiler import ops
from ..compiler.ir import Block, Op, Type, Value
from . import leaving, program
from .emit import Builder, bound, builder, constant, elementwise, knowing, least, spread
from .errors import CompilationError
from .merge import Missing, decayed, equal, leaves, mapped, parts, same_kind, spell, zipped
from .source import Source, assigned, escapes
from .types import dtype, int32, int64
from .values import Tensor, absolute, convert, integer_type, known_number, tensor, truth

#: What statements say that end otherwise than by coming to the end.
FELL, CONTINUE, BREAK = (type(name, (), {"__slots__": ()})() for name in ("Fell", "Continue", "Break"))

#: Ops of a branch up to which both branches are computed, and one selected.
CHEAP = 4


class Control:
    """The statements of a visitor."""

    if TYPE_CHECKING:
        env: dict[str, Any]
        constants: set[str]
        source: Source
        function: FunctionType
        unrolled: int
        returned: ast.Return | None
        called: Any
        rewritten: dict[ast.AST, Any]
        lessons: dict[ast.AST, tuple[set[str], set[int]]]

        def visit(self, node: ast.AST) -> Any: ...
        def assign(self, target: ast.expr, value: Any, known: bool = False) -> None: ...
        def binary(self, op: ast.operator, left: Any, right: Any) -> Any: ...
        def unsupported(self, node: ast.AST) -> Any: ...

    def body(self) -> Any:
        """Run the function; what it returns."""
        result = self.statements(self.source.tree.body)
        return None if result is FELL else result

    def statements(self, nodes: Sequence[ast.stmt]) -> Any:
        """Run statements: FELL, CONTINUE, BREAK or what they return."""
        for k, node in enumerate(nodes):
            b = builder()
            line, b.line = b.line, (self.source.file, self.source.line(node))
            try:
                result = self.statement(node, nodes[k + 1 :])
            except CompilationError as e:
                if not e.positions:
                    e.positions.append(self.source.position(node))
                raise
            finally:
                b.line = line
            if result is not None:
                return result[0]
        return FELL

    def statement(self, node: ast.stmt, rest: Sequence[ast.stmt]) -> tuple[Any] | None:
        """Run one statement; not None if the others, `rest`, are not to run any more."""
        match node:
            case ast.Expr(value=value):
                self.visit(value)
                if isinstance(value, ast.Call) and (words := getattr(self.called, "must_use_result", False)):
                    also = f": {words}" if isinstance(words, str) else ""
                    raise CompilationError(f"the result of {self.called.__name__} is not being used{also}")
            case ast.Assign(targets=targets, value=value):
                found = self.visit(value)
                for target in targets:
                    self.assign(target, found)
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self.visit(
                    ast.copy_location(ast.NamedExpr(target, ast.copy_location(ast.BinOp(load, op, value), node)), node)
                )
            case ast.AugAssign(target=target):
                self.assign(target, None)
            case ast.AnnAssign():
                self.annotated(node)
            case ast.Return(value=value):
                self.returned = node
                return (None if value is None else self.visit(value),)
            case ast.If():
                return self.if_(node, rest)
            case ast.For():
                return self.for_(node, rest)
            case ast.While():
                return self.while_(node, rest)
            case ast.Pass():
                pass
            case ast.Continue():
                return (CONTINUE,)
            case ast.Break():
                return (BREAK,)
            case ast.Assert(test=test, msg=msg):
                self.assertion(self.visit(test), "" if msg is None else self.visit(msg))
            case ast.Delete(targets=targets):
                for target in targets:
                    self.delete(target)
            case _:
                self.unsupported(node)
        return None

    def delete(self, target: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            raise CompilationError("kernels can delete names only")
        if target.id not in self.env:
            raise CompilationError(f"{target.id} is not defined")
        del self.env[target.id]

    def annotated(self, node: ast.AnnAssign) -> None:
        from .names import is_constexpr_annotation

        annotation = node.annotation.value if isinstance(node.annotation, ast.Constant) else self.visit(node.annotation)
        name = getattr(node.target, "id", None)
        if not is_constexpr_annotation(annotation) or name is None:
            if node.value is not None:
                self.assign(node.target, self.visit(node.value))
            return
        self.constants.add(name)
        if node.value is None:
            return
        value = self.visit(node.value)
        if any(True for _ in leaves(value)):
            known = known_number(value) if isinstance(value, Tensor) and not value.shape else None
            if known is None:
                raise CompilationError(f"{name} is annotated as a constexpr, and its value is known at run time only")
            value = known
        self.env[name] = value

    def assertion(self, test: Any, message: Any) -> None:
        if isinstance(test, Tensor) and known_number(test) is None:
            program.device_assert(test, message)
        elif not test:
            raise CompilationError(f"assertion failed{': ' if message else ''}{message}")

    # -- branches -------------------------------------------------------------------------------------------------
    def condition(self, x: Any) -> bool | Tensor:
        """A condition: a bool if it is known, else a scalar."""
        if not isinstance(x, Tensor):
            if parts(x) is not None and any(True for _ in leaves(x)):
                raise CompilationError(f"{spell(x)} is no condition")
            return bool(x)
        if x.numel != 1:
            raise CompilationError(f"a {x.type} is no condition: reduce it, or use tl.where")
        known = known_number(x)
        if known is not None:
            return bool(known)
        return truth(x.like(x.value, ()))

    def if_(self, node: ast.If, rest: Sequence[ast.stmt]) -> tuple[Any] | None:
        test = self.condition(self.visit(node.test))
        if isinstance(test, bool):
            chosen = node.body if test else node.orelse
            if escapes(chosen):
                # What follows belongs to the ways that come to it.
                return (self.statements([*chosen, *rest]),)
            result = self.statements(chosen)
            return None if result is FELL else (result,)
        then, otherwise = list(node.body), list(node.orelse)
        leaves_early = escapes(then) or escapes(otherwise)
        returns = leaves_early and any(
            isinstance(n, ast.Return) for s in (*then, *otherwise, *rest) for n in ast.walk(s)
        )
        if returns and self.unrolled:
            raise CompilationError("kernels cannot return inside of a loop, under a condition of the run")
        if leaves_early:
            # What follows belongs to the ways that come to it.
            then, otherwise = [*then, *rest], [*otherwise, *rest]
        ways = (lambda: self.statements(then), lambda: self.statements(otherwise))
        result = self.branch(
            test, ways, f"{self.function.__name__} returns", f"the if at line {self.source.line(node)}"
        )
        if not leaves_early:
            return None
        return (result if returns else CONTINUE,)

    def branch(self, test: Tensor, ways: Sequence[Callable[[], Any]], what: str, where: str = "") -> Any:
        """Run both ways under a run-time condition, each in its region; merge what they give and what they assign."""
        b, before = builder(), self.env
        blocks: list[Block] = []
        found: list[Any] = []
        envs: list[dict[str, Any]] = []
        try:
            for k, way in enumerate(ways):
                block = Block()
                self.env = dict(before)
                with b.region(block), knowing(test.value, {}) if k == 0 else nullcontext():
                    found.append(_flow(way()))
                blocks.append(block)
                envs.append(self.env)
        finally:
            self.env = before
        merger = _Merger(b, test, blocks)
        first, second = found
        result = zipped(first, second, what, merger.pair)
        then, otherwise = envs
        merged = {}
        for name in dict.fromkeys((*then, *otherwise)):
            if name not in then or name not in otherwise:
                merged[name] = Missing(f"it is assigned on one way through {where} only")
            elif isinstance(then[name], Missing) or isinstance(otherwise[name], Missing):
                merged[name] = then[name] if isinstance(then[name], Missing) else otherwise[name]
            else:
                merged[name] = zipped(then[name], otherwise[name], f"{name} is", merger.pair)
        substitute = merger.finish()
        self.env = {name: mapped(value, substitute) for name, value in merged.items()}
        return mapped(result, substitute)

    # -- loops ----------------------------------------------------------------------------------------------------
    def static_items(self, x: Any) -> list[Any]:
        """What is iterated over when the kernel is compiled."""
        if isinstance(x, program.range):
            bounds = [self._known_bound(v) for v in (x.start, x.end, x.step)]
            return list(builtins.range(*bounds))
        if isinstance(x, Tensor) or not hasattr(x, "__iter__"):
            raise CompilationError(f"{spell(x)} cannot be iterated over: use tl.range or tl.static_range")
        return list(x)

    def _known_bound(self, x: Any) -> int:
        known = known_number(x) if isinstance(x, Tensor) else x
        if known is None:
            raise CompilationError("a comprehension runs over constexprs")
        return known

    def _iterated(self, node: ast.expr) -> Any:
        """What a `for` runs over; Python's range is the language's."""
        if isinstance(node, ast.Call) and self.visit(node.func) is builtins.range:
            args = [self.visit(a) for a in node.args]
            if node.keywords:
                raise CompilationError("range takes no keywords; tl.range takes hints")
            return program.range(*args)
        return self.visit(node)

    def for_(self, node: ast.For, rest: Sequence[ast.stmt]) -> tuple[Any] | None:
        if node.orelse:
            raise CompilationError("kernels cannot have an else of a loop")
        over = self._iterated(node.iter)
        if isinstance(over, program.range):
            if any(leaving.leaves(node)):
                return self.left(node, rest, over)
            self.loop(node, over)
            return None
        for item in self.static_items(over):
            self.assign(node.target, item, known=True)
            self.unrolled += 1
            result = self.statements(node.body)
            self.unrolled -= 1
            if result is BREAK:
                break
            if result is not FELL and result is not CONTINUE:
                return (result,)
        return None

    def left(
        self, node: ast.For | ast.While, rest: Sequence[ast.stmt], over: program.range | None = None
    ) -> tuple[Any] | None:
        """A loop with `break` or `return`; the statements are made once, as loops learn by them."""
        if isinstance(node, ast.For):
            assert over is not None
            type, bounds = self.bounds_of(node, over)
            down = None if _goes_either_way(over.step) else (constant(bounds[2]) or 1) < 0
            if node not in self.rewritten:
                self.rewritten[node] = leaving.as_while(node, down)
            loop, names = self.rewritten[node]
            self.env.update(zip(names, [Tensor(v, type) for v in bounds]))
            self.env.pop(getattr(node.target, "id", ""), None)
        else:
            loop = node
        returns = leaving.leaves(node)[1]
        if loop not in self.rewritten:
            self.rewritten[loop] = leaving.with_flags(loop, self.source), leaving.returning(loop)
        made, after = self.rewritten[loop]
        self.env |= {leaving.going(loop): tensor(True), leaving.RETURNED: tensor(False)}
        self.while_(made, ())
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self.env[node.target.id] = Missing(f"it is the variable of the loop at line {self.source.line(node)}")
        return self.if_(after, rest) if returns else None

    def bounds_of(self, node: ast.For, over: program.range) -> tuple[dtype, list[Value]]:
        """A loop's type, and its lower and upper bound and step."""
        bounds = [tensor(x) for x in (over.start, over.end, over.step)]
        for x in bounds:
            if x.numel != 1 or not x.dtype.is_int():
                raise CompilationError(f"a range has integer bounds, not a {x.type}")
        type = bounds[0].dtype
        for x in bounds[1:]:
            type = integer_type(type, x.dtype)
        type = int32 if (type.int_bitwidth <= 32 and type.is_int_signed()) or type.int_bitwidth < 32 else int64
        values = [convert(x, type).value for x in bounds]
        if constant(values[2]) == 0:
            raise CompilationError("a range's step is 0")
        if not isinstance(node.target, ast.Name):
            raise CompilationError("a loop over a range has one variable")
        return type, values

    def loop(self, node: ast.For, over: program.range) -> None:
        type, (lower, upper, step) = self.bounds_of(node, over)
        assert isinstance(node.target, ast.Name)
        index = Value(Type(type.ir))
        b = builder()
        sign = None
        if _goes_either_way(over.step):
            # Loops of the IR go up: that of -lower, -upper and -step has the same rounds.
            sign = elementwise(
                "where", elementwise("less", step, b.const(0, type.ir)), b.const(-1, type.ir), b.const(1, type.ir)
            )
            lower, upper, step = (elementwise("multiply", x, sign) for x in (lower, upper, step))
        bound(index, least(upper if (constant(step) or 1) < 0 else lower))
        name = node.target.id

        def run(block: Block) -> None:
            with b.region(block):
                self.env[name] = Tensor(index if sign is None else elementwise("multiply", index, sign), type)
                self._loop_body(node.body)

        where = f"the loop at line {self.source.line(node)}"
        carried = _Carried(self, node, [n for n in assigned(node.body) if n != name], where)
        block, inits = carried.attempt(lambda args: Block((index, *args)), run)
        hints: dict[str, Any] = dict(over.hints)
        types = tuple([v.type for v in inits])
        op = Op("for", (lower, upper, step, *inits), types, hints, (block,), b.line)
        carried.finish(b.put(op))
        self.env[name] = Missing(f"it is the variable of {where}")

    def _loop_body(self, nodes: Sequence[ast.stmt]) -> None:
        result = self.statements(nodes)
        assert result is FELL or result is CONTINUE

    def while_(self, node: ast.While, rest: Sequence[ast.stmt]) -> tuple[Any] | None:
        if node.orelse:
            raise CompilationError("kernels cannot have an else of a loop")
        if any(leaving.leaves(node)):
            return self.left(node, rest)
        b = builder()
        where = f"the loop at line {self.source.line(node)}"
        carried = _Carried(self, node, assigned([node.test, *node.body]), where)
        first, second = Block(), Block()
        never = False

        def run(block: Block) -> None:
            nonlocal first, second, never
            first, second = Block(block.args), Block(tuple([Value(v.type) for v in block.args]))
            with b.region(first):
                test = self.condition(self.visit(node.test))
                never = test is False
                if test is True:
                    raise CompilationError("the condition of while never changes: it is always true")
                test_value = b.const(False, "bool") if isinstance(test, bool) else test.value
                passed = carried.values()
            b.finish_region(first, (test_value, *passed))
            renamed = dict(zip(passed, second.args))
            carried.rename(renamed)
            with b.region(second), knowing(test_value, renamed):
                self._loop_body(node.body)
            # What `carried` compares and yields belongs to the second region.
            block.ops = second.ops

        block, inits = carried.attempt(lambda args: Block(tuple(args)), run)
        if never:
            carried.abandon()
            return None
        second.ops = block.ops
        op = Op("while", tuple(inits), tuple([v.type for v in inits]), {}, (first, second), b.line)
        carried.finish(b.put(op))
        return None


def _goes_either_way(step: Any) -> bool:
    """Whether it is known at run time only which way a loop goes."""
    low = least(step.value) if isinstance(step, Tensor) else 0
    return isinstance(step, Tensor) and known_number(step) is None and (low is None or low < 0)


def _flow(result: Any) -> Any:
    """How a way through a branch ended; to come to the end is to return nothing, or to go on with the loop."""
    if result is BREAK:
        raise CompilationError("an unrolled loop cannot have break under a condition of the run: use range")
    return None if result is FELL or result is CONTINUE else result


class _Merger:
    """Makes the `if` of two regions, or selects where that is cheaper."""

    def __init__(self, b: Builder, test: Tensor, blocks: Sequence[Block]) -> None:
        self.b = b
        self.test = test
        self.blocks = blocks
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self.results: dict[Value, Value] = {}

    def pair(self, x: Tensor, y: Tensor) -> Tensor:
        """Stands for x or y until `finish` has made the op."""
        if x.dtype.is_ptr() and x.base is not y.base:
            with self.b.region(self.blocks[0]):
                x = absolute(x)
            with self.b.region(self.blocks[1]):
                y = absolute(y)
        for a, c, made in self.pairs:
            if a.value is x.value and c.value is y.value:
                return x.like(made.value)
        if x.value is y.value:
            return x
        made = x.like(Value(x.value.type))
        self.pairs.append((x, y, made))
        return made

    def finish(self) -> Callable[[Tensor], Tensor]:
        """Make the op; how its results take the place of what stood for them."""
        then, otherwise = self.blocks
        if self._cheap():
            for block in self.blocks:
                for op in block.ops:
                    self.b.put(op)
            for x, y, made in self.pairs:
                test = spread(self.test.value, (), made.shape)
                self.results[made.value] = elementwise("where", test, x.value, y.value)
        else:
            for block, k in ((then, 0), (otherwise, 1)):
                self.b.finish_region(block, [pair[k].value for pair in self.pairs])
            types = tuple([made.value.type for _, _, made in self.pairs])
            op = Op("if", (self.test.value,), types, {}, (then, otherwise), self.b.line)
            for (x, y, made), result in zip(self.pairs, self.b.put(op)):
                self.results[made.value] = result
                lows = least(x.value), least(y.value)
                if x.dtype.is_int() and lows[0] is not None and lows[1] is not None:
                    bound(result, min(lows[0], lows[1]))
        return lambda t: t.like(self.results.get(t.value, t.value))

    def _cheap(self) -> bool:
        made = [op for block in self.blocks for op in block.ops]
        if not self.pairs and not made:
            return True
        pure = all(op.name in ops.TABLE or op.name in ("const", "cast", "bitcast", "broadcast") for op in made)
        scalars = all(v.type.extents == () for op in made for v in op.results)
        few = len([op for op in made if op.name != "const"]) <= CHEAP and len(self.pairs) <= CHEAP
        return pure and ((scalars and few) or self.b.name == "combine")


class _Carried:
    """The values that a loop changes from iteration to iteration."""

    def __init__(self, visitor: Control, node: ast.AST, names: Sequence[str], where: str) -> None:
        self.visitor = visitor
        self.where = where
        self.before = visitor.env
        self.names = [n for n in names if n in self.before and not isinstance(self.before[n], Missing)]
        self.local = [n for n in names if n not in self.names]
        #: Names whose pointers change what they are relative to, and integers, by their places, that may fall below
        #: what they begin with: as far as they were found when the loop was made before, in one around it.
        self.absolute, self.falling = visitor.lessons.setdefault(node, (set(), set()))
        self.inits: dict[str, Any] = {}
        self.starts: dict[str, Any] = {}

    def values(self) -> list[Value]:
        return [leaf.value for n in self.names for leaf in leaves(self.visitor.env[n])]

    def rename(self, values: dict[Value, Value]) -> None:
        """Replace the values of the names by others."""
        for old, new in values.items():
            bound(new, least(old))
        env = self.visitor.env
        for n in self.names:
            env[n] = self.starts[n] = mapped(env[n], lambda t: t.like(values.get(t.value, t.value)))

    def attempt(self, make: Callable[[list[Value]], Block], run: Callable[[Block], None]) -> tuple[Block, list[Value]]:
        """Make the body, again while a guess about what is carried turns out wrong; and what it begins with."""
        while True:
            block, inits, again = self._once(make, run)
            if not again:
                return block, inits

    def _once(
        self, make: Callable[[list[Value]], Block], run: Callable[[Block], None]
    ) -> tuple[Block, list[Value], bool]:
        b, visitor = builder(), self.visitor
        for n in self.names:
            value = decayed(self.before[n])
            self.inits[n] = mapped(value, absolute_pointer) if n in self.absolute else value
        first = [leaf for n in self.names for leaf in leaves(self.inits[n])]
        args = [Value(leaf.value.type) for leaf in first]
        guessed = []
        for k, (leaf, arg) in enumerate(zip(first, args)):
            if self._guesses(k, leaf):
                bound(arg, least(leaf.value))
                guessed.append(k)
        supply = iter(args)
        visitor.env = dict(self.before)
        for n in self.names:
            visitor.env[n] = self.starts[n] = mapped(self.inits[n], lambda t: t.like(next(supply)))
        block = make(args)
        try:
            run(block)
            last, again = self._compare()
        finally:
            env, visitor.env = visitor.env, self.before
        if again:
            return block, [], True
        ends = [leaf for value in last for leaf in leaves(value)]
        wrong = [k for k in guessed if _falls(least(first[k].value), least(ends[k].value))]
        if wrong:
            self.falling.update(wrong)
            return block, [], True
        b.finish_region(block, [leaf.value for leaf in ends])
        self.locals = [n for n in env if n not in self.before]
        return block, [leaf.value for leaf in first], False

    def _guesses(self, k: int, leaf: Tensor) -> bool:
        """Whether a carried value is taken to be no less than what it begins with."""
        return k not in self.falling and leaf.dtype.is_int() and least(leaf.value) is not None

    def _compare(self) -> tuple[list[Any], bool]:
        """The values at the end of the body, whose types must be those of the beginning."""
        last, again = [], False
        for n in self.names:
            start, end = self.starts[n], self.visitor.env[n]
            if isinstance(end, Missing):
                raise CompilationError(
                    f"{n} is carried by {self.where}, and may not be defined at its end: {end.reason}"
                )
            if isinstance(start, Tensor) and not isinstance(end, Tensor):
                end = decayed(end)
            problem = self._differ(n, start, end)
            if problem == "base":
                self.absolute.add(n)
                again = True
            elif problem:
                raise CompilationError(
                    f"{n} is {spell(start)} before {self.where}, and {spell(end)} at its end: the types must agree"
                )
            last.append(end)
        return last, again

    def _differ(self, name: str, start: Any, end: Any) -> str:
        if isinstance(start, Tensor) and isinstance(end, Tensor):
            if start.type != end.type or start.dtype != end.dtype:
                return "type"
            return "base" if start.base is not end.base else ""
        left, right = parts(start), parts(end)
        if left is not None and right is not None and same_kind(start, end):
            found = [self._differ(name, a, c) for a, c in zip(left, right)]
            return next((f for f in found if f == "type"), next((f for f in found if f), ""))
        return "" if equal(start, end) else "type"

    def finish(self, results: Sequence[Value]) -> None:
        """Give the names what the loop results in."""
        visitor = self.visitor
        supply = iter(results)
        visitor.env = dict(self.before)
        k = 0
        for n in self.names:
            for leaf in leaves(self.inits[n]):
                if self._guesses(k, leaf):
                    bound(results[k], least(leaf.value))
                k += 1
            visitor.env[n] = mapped(self.inits[n], lambda t: t.like(next(supply)))
        for n in (*self.local, *self.locals):
            if n not in self.names:
                visitor.env[n] = Missing(f"it is assigned in {self.where} only, which may run no time")

    def abandon(self) -> None:
        """Leave the loop out."""
        self.visitor.env = dict(self.before)


def _falls(start: int | None, end: int | None) -> bool:
    return start is not None and (end is None or end < start)


def absolute_pointer(x: Tensor) -> Tensor:
    return absolute(x) if x.dtype.is_ptr() else x
