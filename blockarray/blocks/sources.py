"""The source of functions of the block language, and what else they are made of."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from .keys import exact

#: Where the words of the language come from.
_LANGUAGE = __name__.rpartition(".blocks.")[0] + ".language"


_count = itertools.count()


class Use(NamedTuple):
    """A global, or a closure's variable, that a function reads; `get(name)` is its value now."""

    get: Callable[[str], Any]
    name: str
    value: Any


def source(fn: FunctionType) -> tuple[str, int]:
    """A function's source from its `def` on, dedented, and the line of the `def` in its file.

    Raises
    ------
    OSError
        If there is none: the function was typed into a prompt, or made by `exec`.
    """
    lines, first = inspect.getsourcelines(fn)
    skip = next((k for k, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return textwrap.dedent("".join(lines[skip:])), first + skip


def remade(fn: FunctionType, text: str) -> FunctionType:
    """A function of another source with the names that an old one sees."""
    place = f"<{fn.__qualname__} {next(_count)}>"
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
    space = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            space[name] = cell.cell_contents
        except ValueError:  # not yet defined
            continue
    exec(compile(text, place, "exec"), space)
    return space[fn.__name__]


def named(text: str) -> list[str]:
    """The names that functions of a source refer to."""
    return list(_names(compile(_body(text), "<kernel>", "exec")))


def uses(fn: FunctionType, names: Iterable[str]) -> Iterator[Use]:
    """The globals and closure's variables that a function of whose source these are the names may read.

    Every name counts that is one of either: too many at worst.  Of modules and of the author's classes, so
    do the attributes that it names.
    """
    names = dict.fromkeys(names)
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    for name in names:
        found: Any
        try:
            if name in cells:
                found = cells[name].cell_contents
                use = Use(_contents(cells[name]), name, found)
            else:
                found = fn.__globals__[name]
                use = Use(fn.__globals__.get, name, found)
        except (KeyError, ValueError):  # a local name, or a variable without a value yet
            continue
        if _may_change(found):
            yield use
        yield from _attributes(found, names, fn)


def _attributes(owner: Any, names: Iterable[str], fn: FunctionType, met: tuple[Any, ...] = ()) -> Iterator[Use]:
    """What a function that uses such names may read of a module, or of a class of its author's.

    Classes of which `owner` is an attribute are `met`: they may be its attributes, too.
    """
    if isinstance(owner, ModuleType) and not owner.__name__.startswith(_LANGUAGE):
        space = vars(owner)
        used = [Use(space.get, attribute, space[attribute]) for attribute in names if attribute in space]
    elif isinstance(owner, type) and _are_of_one(owner, fn):
        get = lambda name: getattr(owner, name, None)
        used = [Use(get, attribute, get(attribute)) for attribute in names if hasattr(owner, attribute)]
    else:
        return
    for use in used:
        if _may_change(use.value):
            yield use
        if isinstance(use.value, type) and use.value not in (above := (*met, owner)):
            yield from _attributes(use.value, names, fn, above)


def spelled(x: Any) -> str:
    """A text that is another one if what a kernel uses is."""
    kernel = getattr(x, "base_fn", x)
    if hasattr(type(kernel), "starting_line_number"):
        return kernel.src
    if isinstance(plain := inspect.unwrap(x) if callable(x) else x, FunctionType):
        return f"{plain.__qualname__} {_instructions(plain.__code__)} {plain.__defaults__} {plain.__kwdefaults__}"
    return getattr(x, "__qualname__", repr(x))


def _instructions(code: CodeType) -> str:
    constants = [_instructions(x) if isinstance(x, CodeType) else repr(x) for x in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _are_of_one(x: Any, fn: FunctionType) -> bool:
    """Whether something is of the same package as a function."""
    package = lambda x: (getattr(x, "__module__", None) or "").partition(".")[0]
    return package(x) == package(fn)


def called(value: Any, by: FunctionType) -> Iterator[tuple[FunctionType, list[str]]]:
    """The functions that something is, or contains, which a function uses; and the names that they use.

    Functions of kernels, and others of the same package, which run when the kernel is compiled.
    """
    if type(value).__name__ == "constexpr":
        value = value.value
    kernel = getattr(value, "base_fn", value)
    if isinstance(value, tuple | list):
        for item in value:
            yield from called(item, by)
    elif hasattr(type(kernel), "starting_line_number"):
        yield kernel.fn, named(kernel.src)
    elif callable(value) and isinstance(plain := inspect.unwrap(value), FunctionType) and _are_of_one(plain, by):
        code = plain.__code__
        yield plain, [*code.co_names, *code.co_freevars, *_names(code)]


def _may_change(value: Any) -> bool:
    """Whether a name for this may come to mean something else: names for modules and the language's words do not."""
    if isinstance(value, ModuleType):
        return False
    is_word = callable(value) and type(value).__name__ != "constexpr"
    return not (is_word and (getattr(value, "__module__", None) or "").startswith(_LANGUAGE))


def _body(text: str) -> ast.Module:
    """The source without what is evaluated but once, when the function is defined: annotations and defaults."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
    return tree


def _names(code: CodeType) -> Iterator[str]:
    """Names that the functions within a piece of code refer to."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from constant.co_names
            yield from constant.co_freevars
            yield from _names(constant)


def _contents(cell: CellType) -> Callable[[str], Any]:
    def get(_: str) -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # it has been deleted
            return None

    return get


def same(use: Use) -> bool:
    """Whether what a function used is still what it was, or a constant like it."""
    try:
        now = use.get(use.name)
        return now is use.value or exact(now) == exact(use.value)
    except Exception:  # it is gone, or cannot be compared
        return False
